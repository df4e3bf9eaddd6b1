"""
Endpoints that search the web for the tool `web_search`: SearXNG, Brave, Kagi and Gemini.

Sources: https://docs.searxng.org/dev/search_api.html, https://api-dashboard.search.brave.com/app/documentation/web-search,
https://help.kagi.com/kagi/api/search.html and https://ai.google.dev/gemini-api/docs/google-search
"""

import html
import os
import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

import anyio
import msgspec

from sanderling.config import Settings
from sanderling.config.expansion import is_reference, variables_in
from sanderling.errors import ConfigError, ProviderError
from sanderling.providers.credentials import is_mangled
from sanderling.providers.http.bodies import field, items
from sanderling.text import without_hidden

MAX_RESULTS = 10
MAX_QUERY_CHARS = 400  # Brave accepts no more
MAX_TITLE_CHARS, MAX_URL_CHARS, MAX_SNIPPET_CHARS = 200, 1000, 500
MAX_BODY_BYTES = 4 << 20
SEARCH_S = 20.0
_TAG = r"</?[A-Za-z][^<>]{0,200}>"


class SearchHit(NamedTuple):
    title: str
    url: str
    snippet: str


class _Service(NamedTuple):
    """
    A kind of endpoint: its usual address, its path and parameters, and where its answer has the results.

    `body` makes the content of a POST request from the query. Without it the query is the parameter `q` of a GET request.
    """

    name: str
    url: str
    path: str
    parameters: Mapping[str, str]
    key_header: str
    key_prefix: str
    is_keyed: bool
    results: Callable[[object], list[object]]
    snippet: str
    body: Callable[[str], object] | None = None


def _searxng_results(body: object) -> list[object]:
    return items(field(body, "results"))


def _brave_results(body: object) -> list[object]:
    return items(field(field(body, "web"), "results"))


def _kagi_results(body: object) -> list[object]:
    data = field(body, "data")
    found = items(data) or items(field(data, "search"))
    return [each for each in found if field(each, "t") in (0, None)]  # 1: related searches


_GEMINI_MODEL = "gemini-flash-lite-latest"
_GEMINI_TASK = "Search the web for the user's query. Then report in one or two sentences per source what it says about the query."


def _gemini_body(query: str) -> dict[str, Any]:
    """
    Return the request for one answer of Gemini with its tool `google_search`.

    The OpenAI-compatible API, which sessions use, accepts no search tool.
    """
    return {
        "systemInstruction": {"parts": [{"text": _GEMINI_TASK}]},
        "contents": [{"role": "user", "parts": [{"text": query}]}],
        "tools": [{"google_search": {}}],
    }


def _gemini_results(body: object) -> list[object]:
    """Return the sources of the answer, each with the sentences that it supports."""
    [candidate, *_] = items(field(body, "candidates")) or [None]
    metadata = field(candidate, "groundingMetadata")
    sources = [field(chunk, "web") for chunk in items(field(metadata, "groundingChunks"))]
    snippets = [""] * len(sources)
    for support in items(field(metadata, "groundingSupports")):
        text = field(field(support, "segment"), "text")
        for index in items(field(support, "groundingChunkIndices")):
            if not isinstance(index, int) or not 0 <= index < len(sources):
                continue
            # Limited here, because many supports may repeat one long text.
            if isinstance(text, str) and len(snippets[index]) < MAX_SNIPPET_CHARS:
                snippets[index] += f"{text[:MAX_SNIPPET_CHARS]} "
    return [
        {"url": field(source, "uri"), "title": field(source, "title"), "snippet": snippet}
        for source, snippet in zip(sources, snippets, strict=True)
    ]


_SERVICES = {
    "searxng": _Service(
        *("SearXNG", "", "/search", {"format": "json"}, "authorization", "Bearer ", False),
        results=_searxng_results,
        snippet="content",
    ),
    "brave": _Service(
        *("Brave", "https://api.search.brave.com", "/res/v1/web/search"),
        *({"count": f"{MAX_RESULTS}"}, "x-subscription-token", "", True),
        results=_brave_results,
        snippet="description",
    ),
    "kagi": _Service(
        *("Kagi", "https://kagi.com", "/api/v0/search"),
        *({"limit": f"{MAX_RESULTS}"}, "authorization", "Bot ", True),
        results=_kagi_results,
        snippet="snippet",
    ),
    "gemini": _Service(
        *("Gemini", "https://generativelanguage.googleapis.com"),
        *(f"/v1beta/models/{_GEMINI_MODEL}:generateContent", {}, "x-goog-api-key", "", True),
        results=_gemini_results,
        snippet="snippet",
        body=_gemini_body,
    ),
}


class SearchEndpoint(NamedTuple):
    """A search endpoint. `variable` is the environment variable with its key, or empty."""

    service: str
    url: str
    variable: str = ""

    @property
    def name(self) -> str:
        return _SERVICES[self.service].name

    @property
    def host(self) -> str:
        """The host, with its port if that is not the scheme's."""
        parts = urlsplit(self.url)
        host = (parts.hostname or "").lower()
        host = f"[{host}]" if ":" in host else host
        is_usual = parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme))
        return host if is_usual else f"{host}:{parts.port}"


def load_search(settings: Settings) -> SearchEndpoint | None:
    """
    Return the endpoint of `[web_search]`; None if searching is off, or done by the model's API.

    Raises:
        ConfigError: the table is incomplete or invalid.
    """
    provider = settings.web_search_provider
    if provider in ("off", "api"):
        return None
    service = _SERVICES[provider]
    url = (settings.web_search_url or service.url).rstrip("/").removesuffix(service.path)
    if not url:
        example = f'url = "http://127.0.0.1:8888" names your instance of {service.name}'
        raise ConfigError(f"[web_search] needs a url: {example}", ("web_search", "url"))
    try:
        is_valid = bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ConfigError("[web_search]: url is not a valid address", ("web_search", "url"))
    return SearchEndpoint(provider, url, _variable(settings, service))


def _variable(settings: Settings, service: _Service) -> str:
    value, path = settings.web_search_api_key, ("web_search", "api_key")
    if value and not is_reference(value):
        raise ConfigError(
            '[web_search]: api_key must name a variable, as in api_key = "$BRAVE_API_KEY", not contain the key',
            path,
        )
    if service.is_keyed and not value:
        example = f'api_key = "${service.name.upper()}_API_KEY"'
        raise ConfigError(f"[web_search] needs the key of {service.name}: {example}", path)
    return next(iter(variables_in(value)), "")


async def search(endpoint: SearchEndpoint, query: str) -> list[SearchHit]:
    """
    Return what the endpoint finds, in its order.

    Raises:
        ProviderError: it cannot be reached, or refuses the search.
    """
    from sanderling.providers.http.setup import in_thread, make_client
    from sanderling.providers.http.transport import RefusalError, transport_errors

    service = _SERVICES[endpoint.service]
    method, path, content = _request(service, query[:MAX_QUERY_CHARS])
    headers = _headers(endpoint, service)
    client = await in_thread(lambda: make_client(endpoint.url, headers))
    try:
        with anyio.fail_after(SEARCH_S):
            async with client, client.stream(method, path, content=content) as response:
                data = bytearray()
                async for piece in response.aiter_raw():
                    data += piece
                    if len(data) > MAX_BODY_BYTES:
                        raise _failure(endpoint, "its answer is too long")
    except RefusalError as refusal:
        status, said = refusal.response.status_code, refusal.response.content
        raise _refusal(endpoint, status, said) from refusal
    except TimeoutError as error:
        raise _failure(endpoint, f"it did not answer within {SEARCH_S:.0f} s") from error
    except transport_errors() as error:
        raise _failure(endpoint, str(error) or type(error).__name__) from error
    try:
        body: object = msgspec.json.decode(bytes(data))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise _failure(endpoint, "its answer is not JSON") from error
    return list(_hits(service, body))[:MAX_RESULTS]


def _request(service: _Service, query: str) -> tuple[str, str, bytes | None]:
    """Return the method, path and content of the request for `query`."""
    query = query.encode(errors="replace").decode()  # lone surrogates
    if service.body:
        return "POST", service.path, msgspec.json.encode(service.body(query))
    return "GET", f"{service.path}?{urlencode({'q': query, **service.parameters})}", None


def _headers(endpoint: SearchEndpoint, service: _Service) -> dict[str, str]:
    headers = {"accept": "application/json"}
    if service.body:
        headers["content-type"] = "application/json"
    if not endpoint.variable:
        return headers
    key = os.environ.get(endpoint.variable, "").strip()
    if not key or is_mangled(key):
        what = "is not set" if not key else "contains a character that is invalid in a key"
        message = f"The variable {endpoint.variable}, with the key of {endpoint.name}, {what}."
        raise ProviderError("auth", message)
    return {**headers, service.key_header: service.key_prefix + key}


def _hits(service: _Service, body: object) -> Iterator[SearchHit]:
    known = set[str]()
    for each in service.results(body):
        url = field(each, "url")
        if not isinstance(url, str) or url in known:
            continue
        if not re.fullmatch(r"https?://\S+", without_hidden(url)) or len(url) > MAX_URL_CHARS:
            continue
        known.add(url)
        title = _plain(field(each, "title"), MAX_TITLE_CHARS)
        yield SearchHit(
            title, without_hidden(url), _plain(field(each, service.snippet), MAX_SNIPPET_CHARS)
        )


def _plain(value: object, limit: int) -> str:
    """Return a field as one line, without the marks around found words and without hidden characters."""
    text = value if isinstance(value, str) else ""
    plain = html.unescape(re.sub(_TAG, "", text[: 4 * limit]))
    line = without_hidden(" ".join(plain.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def _refusal(endpoint: SearchEndpoint, status: int, said: bytes) -> ProviderError:
    match status:
        case HTTPStatus.FORBIDDEN if endpoint.service == "searxng":
            why = "it refuses JSON; the user must add json to search.formats in its settings.yml"
        case HTTPStatus.BAD_REQUEST if b"API_KEY_INVALID" in said:  # Gemini's
            why = "it rejects the key"
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            why = "it rejects the key"
        case HTTPStatus.PAYMENT_REQUIRED:
            why = "its account has no credit left"
        case HTTPStatus.TOO_MANY_REQUESTS:
            why = "its rate limit is reached; wait, then retry"
        case _:
            why = f"it answers with status {status}"
    return _failure(endpoint, why)


def _failure(endpoint: SearchEndpoint, why: str) -> ProviderError:
    return ProviderError("network", f"{endpoint.name} ({endpoint.host}) cannot search: {why}.")
