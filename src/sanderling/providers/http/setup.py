"""The setup of an HTTP client: address, proxies and certificates. The slow parts run in a thread."""

import os
import sys
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import SplitResult, urlsplit

from anyio import to_thread

from sanderling import __version__
from sanderling.config.expansion import expand, variables_in
from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.credentials import is_mangled
from sanderling.providers.endpoint import Endpoint, is_local
from sanderling.providers.http.transport import ACCEPTED, receive_head, words_of
from sanderling.providers.http.trust import read_certificates, tls_variables

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT_TIMEOUT_S = 10.0
OF_ONE_BODY = ("content-length", "transfer-encoding")
KEEP_S = 60.0  # of an idle connection; tools may run for a while

T = TypeVar("T")


def make_client(
    base_url: str, headers: dict[str, str], *, is_strict: bool = False
) -> "httpx2.AsyncClient":
    """
    Make a client for `base_url` that sends `headers`, by name in lower case, with each request.

    With `is_strict` it reads the certificates that the environment names even where TLS is not used.

    Raises:
        ProviderError: the address, a proxy or the certificates are unusable.
    """
    check_address("base_url", base_url)
    import httpx2

    is_here = is_local(base_url)  # reached without a proxy
    verify: ssl.SSLContext | bool = False
    try:
        check_proxies()
        if not (is_here and base_url.startswith("http:")) or (is_strict and tls_variables()):
            verify = read_certificates()
        client = httpx2.AsyncClient(
            base_url=base_url,
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),  # `IdleWatch` limits silence
            limits=httpx2.Limits(keepalive_expiry=KEEP_S),
            verify=verify,
            trust_env=not is_here,
            follow_redirects=False,  # a redirect would take the key and the conversation along
            event_hooks={"response": [receive_head]},
        )
        given = {name: value for name, value in headers.items() if name not in OF_ONE_BODY}
        own = {"user-agent": f"sanderling/{__version__}"}
        sent = own | given | {"accept-encoding": ACCEPTED}
        client.headers.update(httpx2.Headers(sent, encoding="utf-8"))
        client.headers.encoding = "utf-8"
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise _explain_setup(error) from error
    return client


def header_values(endpoint: Endpoint) -> dict[str, str]:
    """
    Return the endpoint's headers, with their variables expanded.

    Raises:
        ProviderError: a variable is not set, or its value is invalid in a header.
    """
    where = f"[providers.{endpoint.name}] headers"
    try:
        values = {name.lower(): expand(value) for name, value in endpoint.headers.items()}
    except ConfigError as error:
        remedy = f"Set it, or change the table, then {remedies().restart}."
        raise ProviderError("auth", f"{where}: {error}.", remedy) from error
    for name, value in values.items():
        if is_mangled(value.replace(" ", "")):
            remedy = f"Set it again and {remedies().restart}."
            message = (
                f"The header {name} of {where} contains a character that is invalid in a header."
            )
            raise ProviderError("auth", message, remedy)
    return values


def header_secrets(endpoint: Endpoint) -> tuple[str, ...]:
    names = (name for value in endpoint.headers.values() for name in variables_in(value))
    return tuple(os.environ.get(name, "") for name in names)


def url_secrets(url: "httpx2.URL") -> tuple[str, ...]:
    """Return the password in `url`, and the encoded form in which it is sent."""
    login = f"{url.username}:{url.password}"
    return (url.password, b64encode(login.encode()).decode()) if url.password else ()


def _explain_setup(error: Exception) -> ProviderError:
    match error:
        case ImportError():
            message = "The environment names a SOCKS proxy, which needs a missing Python package."
            remedy = f"Name an HTTP proxy, or install the package: {sys.executable} -m pip install socksio"
        case OSError():
            message = f"The certificates cannot be read ({_certificate_variables()}{error.strerror or error})."
            remedy = f"Set SSL_CERT_FILE to a file of certificates, or unset the wrong variable, then {remedies().restart}."
        case _:
            message = f"The connection to the API cannot be set up ({words_of(error)})."
            remedy = (
                f"Check base_url and the environment's proxy variables, then {remedies().restart}."
            )
    return ProviderError("network", message, remedy, is_temporary=False)


def check_address(name: str, url: str, example: str = "https://api.example.com/v1") -> None:
    """
    Reject what cannot be an API's address; `name` is the setting or variable that contains it, `example` a valid address.

    Raises:
        ProviderError: the message leaves out a password in the address.
    """
    with suppress(ValueError):  # the client reports it
        parts = urlsplit(url)
        if problem := _wrong_in(parts):
            _, at, place = url.rpartition("@")
            shown = f"…@{place}" if at else url
            raise ProviderError(
                "network",
                f"{name} is not the address of an API: {problem} ('{shown[:200]}').",
                f"Use an address such as '{example}'.",
                is_temporary=False,
            )


def _wrong_in(parts: SplitResult) -> str:
    if parts.scheme not in ("http", "https"):
        return "it does not begin with https:// or http://"
    if not parts.hostname:
        return "it names no host"
    return "" if _has_valid_port(parts) else "a port is a number from 1 to 65535"


def _has_valid_port(parts: SplitResult) -> bool:
    """Accept a missing port, too. Python's error for an invalid one would quote it: part of a password, if that contains a slash."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def check_proxies() -> None:
    """
    Reject a proxy with an invalid port. The client would fail only at each request, with an error about a task group.

    Raises:
        ValueError: the port of a proxy is invalid.
    """
    from urllib.request import getproxies  # already imported by the client

    for scheme, url in getproxies().items():
        if scheme in ("http", "https", "all") and not _has_valid_port(urlsplit(url)):
            raise ValueError("Port out of range 1-65535")


def _certificate_variables() -> str:
    values = [f"{name}={value}" for name, value in tls_variables().items()]
    return ", ".join([*values, ""]) if len(values) > 1 else f"{values[0]}: " if values else ""


async def in_thread(load: Callable[[], T]) -> T:
    """
    Return the result of `load`, which may import modules. Runs it in a thread.

    Raises:
        ProviderError: the import failed: there is too little memory, or a part is missing.
    """
    try:
        return await to_thread.run_sync(load, abandon_on_cancel=True)
    except (ImportError, MemoryError) as error:
        raise ProviderError(
            "internal",
            f"The modules that talk to the API cannot be loaded ({words_of(error)}).",
            f"Give it more memory (ulimit -v), or build the environment again: {remedies().install}.",
            is_temporary=False,
        ) from error
