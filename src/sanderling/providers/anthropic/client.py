"""
The SDK's client: its key, its address, its way through proxies, its certificates.

To make one loads the SDK, and is done in a thread.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from sanderling.config import Settings
from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.anthropic.sdk import load_sdk
from sanderling.providers.anthropic.transport import receive_head, sdk_error, words_of
from sanderling.providers.credentials import Account
from sanderling.providers.unpacking import ACCEPTED

if TYPE_CHECKING:
    import ssl

    import anthropic

ACCOUNT = Account("anthropic", ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "keychain")
CONNECT_TIMEOUT_S = 10.0


def make_client(settings: Settings, key: str) -> "anthropic.AsyncAnthropic":
    """
    Make the client that asks the API with `key`; if that is empty, with whatever else the SDK finds, a profile for instance.

    Raises:
        ProviderError: the address, a proxy or the certificates make it impossible.
    """
    for name, url in (
        ("base_url", settings.base_url),
        ("ANTHROPIC_BASE_URL", os.environ.get("ANTHROPIC_BASE_URL", "")),
    ):
        if url:
            _check_address(name, url)
            break
    import httpx2

    # To read the system's certificates takes a tenth of a start, and needs no interpreter.
    with ThreadPoolExecutor(1) as beside:
        trust = beside.submit(httpx2.create_ssl_context)
        load_sdk()
    try:
        _check_proxies()
        return _connected(settings, key, trust.result())
    except (ImportError, OSError, ValueError, httpx2.InvalidURL, sdk_error()) as error:
        raise _explain_setup(error) from error


def _connected(settings: Settings, key: str, trust: "ssl.SSLContext") -> "anthropic.AsyncAnthropic":
    import anthropic
    import httpx2

    timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S)  # silence is IdleWatch's
    # A refusal is read by `receive_head`: the SDK's errors would load its types.
    http_client = anthropic.DefaultAsyncHttpxClient(
        timeout=timeout, verify=trust, event_hooks={"response": [receive_head]}
    )
    return anthropic.AsyncAnthropic(
        api_key=key or None,
        base_url=settings.base_url or None,
        timeout=timeout,
        http_client=http_client,
        default_headers={"accept-encoding": ACCEPTED} | _proxy_headers(settings, key),
        max_retries=0,  # the SDK's retries are silent, and wait as long as the server says
    )


def _proxy_headers(settings: Settings, key: str) -> dict[str, str]:
    """The SDK sends the key as a bearer token; proxies made for earlier versions of the API read `x-api-key`."""
    is_proxied = bool(settings.base_url or os.environ.get("ANTHROPIC_BASE_URL"))
    return {"x-api-key": key} if is_proxied and key else {}


def _explain_setup(error: Exception) -> ProviderError:
    match error:
        case ImportError():
            message = "The environment names a SOCKS proxy, for which a Python package is missing."
            remedy = (
                f"Name an HTTP proxy, or add the package: {sys.executable} -m pip install socksio"
            )
        case OSError():
            message = f"The certificates cannot be read ({_certificate_variables()}{error.strerror or error})."
            remedy = f"Set SSL_CERT_FILE to a file of certificates, or unset what is wrong, then {remedies().restart}."
        case _:
            message = f"The way to the API cannot be set up ({words_of(error)})."
            remedy = (
                f"Check base_url and the environment's proxy variables, then {remedies().restart}."
            )
    return ProviderError("network", message, remedy, is_temporary=False)


def _check_address(name: str, url: str) -> None:
    with suppress(ValueError):  # which the client tells
        parts = urlsplit(url)
        if problem := _wrong_in(parts):
            shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            raise ProviderError(
                "network",
                f"{name} is no address of an API: {problem} ('{shown[:200]}').",
                "An address is 'https://api.anthropic.com', for instance; without one, that is asked.",
                is_temporary=False,
            )


def _wrong_in(parts: SplitResult) -> str:
    if parts.scheme not in ("http", "https"):
        return "it does not begin with https:// or http://"
    if not parts.hostname:
        return "it names no host"
    try:
        has_port = parts.port != 0
    except ValueError:
        has_port = False
    return "" if has_port else "a port is a number from 1 to 65535"


def _check_proxies() -> None:
    """
    The client would find it out at each request, in words about a task group.

    Raises:
        ValueError: a proxy's port is none.
    """
    from urllib.request import getproxies  # the client has loaded it

    for scheme, url in getproxies().items():
        if scheme in ("http", "https", "all") and urlsplit(url).port == 0:
            raise ValueError("Port out of range 1-65535")


def _certificate_variables() -> str:
    told = [
        f"{name}={os.environ[name]}"
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
        if os.environ.get(name)
    ]
    return ", ".join([*told, ""]) if len(told) > 1 else f"{told[0]}: " if told else ""
