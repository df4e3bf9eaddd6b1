"""
The SDK's client: its key, its address, its way through proxies, its certificates.

To make one loads the SDK, and is done in a thread.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from sanderling.providers.anthropic.sdk import load_sdk
from sanderling.providers.http import setup
from sanderling.providers.http.transport import receive_head
from sanderling.providers.http.unpacking import ACCEPTED

if TYPE_CHECKING:
    import ssl

    import anthropic
    import httpx2
    from anthropic._types import RequestOptions

NO_REDIRECTS: "RequestOptions" = {"follow_redirects": False}  # key and conversation would go along


class Asking:
    """
    The way in which `client` asks for answers.

    The SDK takes half a millisecond to make the same headers anew. What it has made twice alike goes without it from then on, unless its
    key is one that changes.
    """

    def __init__(self, client: "anthropic.AsyncAnthropic") -> None:
        self.client = client
        self._url: httpx2.URL | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._extensions: dict[str, Any] = {}  # timeouts, and a name for TLS
        self._of_one_request = {b"content-length"}
        if "cookie" not in {name.lower() for name in client.default_headers}:
            self._of_one_request.add(b"cookie")  # the server's: the person has set none

    async def post(self, body: bytes) -> "httpx2.Response":
        """Ask for an answer; only its head is read."""
        http: httpx2.AsyncClient | None = getattr(self.client, "_client", None)
        if self._url and http:
            return await self._post_by(http, self._url, body)
        response = await self._post_by_sdk(body)
        sent = response.request
        headers = [each for each in sent.headers.raw if each[0].lower() not in self._of_one_request]
        if headers == self._headers and self.client.credentials is None:
            self._url, self._extensions = sent.url, sent.extensions
        self._headers = headers
        return response

    async def _post_by(
        self, http: "httpx2.AsyncClient", url: "httpx2.URL", body: bytes
    ) -> "httpx2.Response":
        import anthropic

        request = http.build_request(
            "POST", url, headers=self._headers, content=body, extensions=self._extensions
        )
        try:
            return await http.send(request, stream=True, follow_redirects=False)
        except Exception as error:  # whatever it is, as the SDK does
            raise anthropic.APIConnectionError(request=request) from error

    async def _post_by_sdk(self, body: bytes) -> "httpx2.Response":
        import anthropic
        import httpx2

        # `messages.create` would copy and encode all of the history, in 15 ms after 200 rounds.
        post: Any = self.client.post
        return await post(
            "/v1/messages",
            cast_to=httpx2.Response,
            options=NO_REDIRECTS,
            content=body,
            stream=True,
            stream_cls=anthropic.AsyncStream[Any],
        )


def make_client(
    base_url: str, key: str, headers: dict[str, str], *, is_claude: bool = True
) -> "anthropic.AsyncAnthropic":
    """
    Make the client that asks the API at `base_url` with `key`; where these are empty, with what the SDK finds: a profile, for instance.

    One that asks another API than Claude's sends nothing that the environment has for that.

    Raises:
        ProviderError: the address, a proxy or the certificates make it impossible.
    """
    for name, url in (
        ("base_url", base_url),
        ("ANTHROPIC_BASE_URL", os.environ.get("ANTHROPIC_BASE_URL", "")),
    ):
        if url:
            setup.check_address(name, url)
            break
    import httpx2

    # To read the system's certificates takes a tenth of a start, and needs no interpreter.
    with ThreadPoolExecutor(1) as beside:
        trust = beside.submit(httpx2.create_ssl_context)
        load_sdk()
    try:
        setup.check_proxies()
        return _connected(base_url, key, headers, trust.result(), is_claude=is_claude)
    except (ImportError, OSError, ValueError, httpx2.InvalidURL, sdk_error()) as error:
        raise setup.explain_setup(error) from error


def _connected(
    base_url: str, key: str, headers: dict[str, str], trust: "ssl.SSLContext", *, is_claude: bool
) -> "anthropic.AsyncAnthropic":
    import anthropic
    import httpx2

    async def remove_custom_headers(request: "httpx2.Request") -> None:
        for name in () if is_claude else _custom_headers() - headers.keys():
            request.headers.pop(name, None)

    timeout = httpx2.Timeout(None, connect=setup.CONNECT_TIMEOUT_S)  # silence is IdleWatch's
    # A refusal is read by `receive_head`: the SDK's errors would load its types.
    http_client = anthropic.DefaultAsyncHttpxClient(
        timeout=timeout,
        verify=trust,
        event_hooks={"request": [remove_custom_headers], "response": [receive_head]},
    )
    return anthropic.AsyncAnthropic(
        api_key=key or None,
        base_url=base_url or None,
        timeout=timeout,
        http_client=http_client,
        default_headers={"accept-encoding": ACCEPTED} | _proxy_headers(base_url, key) | headers,
        max_retries=0,  # the SDK's retries are silent, and wait as long as the server says
    )


def _custom_headers() -> set[str]:
    """The names of those that the SDK adds to each request, whoever it is for."""
    return {name for name, _ in _told_headers()}


def _told_headers() -> list[tuple[str, str]]:
    """Names and values of `ANTHROPIC_CUSTOM_HEADERS`, as the SDK reads them."""
    lines = os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "").split("\n")
    told = (line.partition(":") for line in lines if ":" in line)
    return [(name.strip(), value.strip()) for name, _, value in told]


def custom_secrets() -> list[str]:
    """The words in the values of the headers that the SDK adds, each of which may be a secret."""
    return [word for _, value in _told_headers() for word in value.split()]


def _proxy_headers(base_url: str, key: str) -> dict[str, str]:
    """The SDK sends the key as a bearer token; proxies made for earlier versions of the API read `x-api-key`."""
    is_proxied = bool(base_url or os.environ.get("ANTHROPIC_BASE_URL"))
    return {"x-api-key": key} if is_proxied and key else {}


def sdk_error() -> type[Exception]:
    import anthropic

    return anthropic.AnthropicError
