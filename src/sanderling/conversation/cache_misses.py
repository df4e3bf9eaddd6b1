"""Why a request was not read from the API's cache: what differs from the request before it, or what the API says."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from sanderling.protocol.messages import Message, Usage
from sanderling.providers import ModelRequest
from sanderling.session.ledger import Last, prompt_tokens
from sanderling.session.records import now
from sanderling.text import duration

LEAST_TOKENS = 2_048  # APIs do not cache shorter prefixes
MISSED_SHARE = 0.5  # of what the cache could have had; APIs round down, and some lose the end
TTL = timedelta(minutes=5)  # the shortest of the APIs
MAX_NAMES = 3

_API_REASONS = {
    "model_changed": "the model or its speed changed",
    "system_changed": "the system prompt changed",
    "tools_changed": "the tools changed",
    "messages_changed": "earlier messages changed",
    "previous_message_not_found": "it no longer has the request before",
    "unavailable": "no diagnosis, or thinking or effort changed",
}


class Miss(NamedTuple):
    tokens: int
    why: str


class _SentRequest(NamedTuple):
    """A request. `messages` is the session's list, which is replaced by every change that is not at its end."""

    request: ModelRequest
    model: str
    messages: list[Message]
    at: datetime


class CacheWatch:
    """Compares each request of a session with the one before; `last` is that of an earlier process."""

    def __init__(self, last: Last | None) -> None:
        self._last = last
        self._before: _SentRequest | None = None
        self._now: _SentRequest | None = None
        self._why_shortened = ""
        self._has_cache = False

    def explain(self, why: str) -> None:
        """Remember `why` the next request does not continue the last one."""
        self._why_shortened = why

    def sends(self, request: ModelRequest, model: str, messages: list[Message]) -> None:
        self._now = _SentRequest(request, model, messages, now())

    def miss(self, usage: Usage, api_reason: str = "") -> Miss | None:
        """Return what the last request missed, given its usage and the API's own reason, if any; None if it missed nothing."""
        sent, before, last = self._now, self._before, self._last
        if not sent or not prompt_tokens(usage):
            return None  # it failed
        why_shortened, self._why_shortened = self._why_shortened, ""
        self._before, self._now, self._last = sent, None, Last(sent.model, usage, now())
        self._has_cache |= _is_cached(usage)
        if not last:
            return None
        self._has_cache |= _is_cached(last.usage)
        could = min(prompt_tokens(last.usage), prompt_tokens(usage))
        missed = could - usage.cache_read_input_tokens
        if not self._has_cache or could < LEAST_TOKENS or missed <= MISSED_SHARE * could:
            return None
        api = _API_REASONS.get(api_reason, api_reason)
        own = ", ".join(_reasons(sent, before, last, why_shortened))
        if not own and not api:
            own = "nothing that Sanderling sends changed" if before else "the session was reopened"
        return Miss(missed, "; ".join(filter(None, (own, api and f"the API says: {api}"))))


def _is_cached(usage: Usage) -> bool:
    return bool(usage.cache_read_input_tokens or usage.cache_creation_input_tokens)


def _reasons(
    sent: _SentRequest, before: _SentRequest | None, last: Last, why_shortened: str
) -> Iterator[str]:
    if last.model != sent.model:
        yield f"the model was {last.model or 'unknown'}"
    if before:
        yield from _changes(sent.request, before.request)
    if why_shortened:
        yield why_shortened
    elif before and last.model == sent.model and sent.messages is not before.messages:
        yield "the conversation was taken back"
    if (gap := sent.at - last.at) > TTL:
        yield f"the request before was {duration(gap.total_seconds())} ago"


def _changes(request: ModelRequest, before: ModelRequest) -> Iterator[str]:
    if request.tools != before.tools:
        known = {spec.name for spec in before.tools}
        added = [spec.name for spec in request.tools if spec.name not in known]
        names = ", ".join(added[:MAX_NAMES]) + ", …" * (len(added) > MAX_NAMES)
        yield f"tools were added: {names}" if added else "the tools changed"
    if request.system != before.system:
        yield "the system prompt changed"
    if request.effort != before.effort:
        yield f"the effort was {before.effort}"
