"""The way to an API: its address, proxies, certificates; and a client that goes there, whose making is done in a thread."""

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
from sanderling.providers.http.transport import receive_head, words_of
from sanderling.providers.http.trust import read_certificates, told_variables
from sanderling.providers.http.unpacking import ACCEPTED

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT_TIMEOUT_S = 10.0
OF_ONE_BODY = ("content-length", "transfer-encoding")
KEEP_S = 60.0  # a connection that nobody uses; tools may run for a while

T = TypeVar("T")


def make_client(
    base_url: str, headers: dict[str, str], *, is_strict: bool = False
) -> "httpx2.AsyncClient":
    """
    Make a client that asks `base_url`, and sends `headers` with each request, by name in lower case.

    If it `is_strict`, certificates that the environment names must be some also where none are needed.

    Raises:
        ProviderError: the address, a proxy or the certificates make it impossible.
    """
    check_address("base_url", base_url)
    import httpx2

    is_here = is_local(base_url)  # no proxy leads there
    verify: ssl.SSLContext | bool = False
    try:
        check_proxies()
        if not (is_here and base_url.startswith("http:")) or (is_strict and told_variables()):
            verify = read_certificates()
        client = httpx2.AsyncClient(
            base_url=base_url,
            timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT_S),  # silence is IdleWatch's
            limits=httpx2.Limits(keepalive_expiry=KEEP_S),
            verify=verify,
            trust_env=not is_here,
            follow_redirects=False,  # key and conversation would go along
            event_hooks={"response": [receive_head]},
        )
        told = {name: value for name, value in headers.items() if name not in OF_ONE_BODY}
        own = {"user-agent": f"sanderling/{__version__}"}
        sent = own | told | {"accept-encoding": ACCEPTED}
        client.headers.update(httpx2.Headers(sent, encoding="utf-8"))
        client.headers.encoding = "utf-8"
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise _explain_setup(error) from error
    return client


def header_values(endpoint: Endpoint) -> dict[str, str]:
    """
    The headers of the endpoint, with the variables that they name.

    Raises:
        ProviderError: one is not set, or has what no header may.
    """
    where = f"[providers.{endpoint.name}] headers"
    try:
        values = {name.lower(): expand(value) for name, value in endpoint.headers.items()}
    except ConfigError as error:
        remedy = f"Set it, or change the table, then {remedies().restart}."
        raise ProviderError("auth", f"{where}: {error}.", remedy) from error
    for name, value in values.items():
        if is_mangled(value.replace(" ", "")):
            remedy = f"Set it anew and {remedies().restart}."
            message = f"The header {name} of {where} holds a character that no header may have."
            raise ProviderError("auth", message, remedy)
    return values


def header_secrets(endpoint: Endpoint) -> tuple[str, ...]:
    """The values of the variables that the endpoint's headers name."""
    names = (name for value in endpoint.headers.values() for name in variables_in(value))
    return tuple(os.environ.get(name, "") for name in names)


def url_secrets(url: "httpx2.URL") -> tuple[str, ...]:
    """The password that stands in `url`, and what is sent of it."""
    told = f"{url.username}:{url.password}"
    return (url.password, b64encode(told.encode()).decode()) if url.password else ()


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


def check_address(name: str, url: str, example: str = "https://api.example.com/v1") -> None:
    """
    Refuse what cannot be the address of an API; `name` is the setting or variable that has it, `example` one that can be.

    Raises:
        ProviderError: without the password that may stand in it.
    """
    with suppress(ValueError):  # which the client tells
        parts = urlsplit(url)
        if problem := _wrong_in(parts):
            _, at, place = url.rpartition("@")
            shown = f"…@{place}" if at else url
            raise ProviderError(
                "network",
                f"{name} is no address of an API: {problem} ('{shown[:200]}').",
                f"An address is '{example}', for instance.",
                is_temporary=False,
            )


def _wrong_in(parts: SplitResult) -> str:
    if parts.scheme not in ("http", "https"):
        return "it does not begin with https:// or http://"
    if not parts.hostname:
        return "it names no host"
    return "" if _has_port(parts) else "a port is a number from 1 to 65535"


def _has_port(parts: SplitResult) -> bool:
    """Say whether the port is one, or left out. Python's own words for one that is none quote it: a password, if a slash is in that."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def check_proxies() -> None:
    """
    The client would find it out at each request, in words about a task group.

    Raises:
        ValueError: a proxy's port is none.
    """
    from urllib.request import getproxies  # the client has loaded it

    for scheme, url in getproxies().items():
        if scheme in ("http", "https", "all") and not _has_port(urlsplit(url)):
            raise ValueError("Port out of range 1-65535")


def _certificate_variables() -> str:
    told = [f"{name}={value}" for name, value in told_variables().items()]
    return ", ".join([*told, ""]) if len(told) > 1 else f"{told[0]}: " if told else ""


async def in_thread(load: Callable[[], T]) -> T:
    """
    Return what `load` makes of modules that may not be there yet.

    Raises:
        ProviderError: they cannot be loaded: there is too little memory, or a part of them is missing.
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
