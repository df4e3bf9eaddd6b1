"""Ollama's errors. They have no types, and are recognized by their messages."""

import re
from http import HTTPStatus
from typing import NamedTuple

from sanderling.errors import ErrorKind, ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.http.errors import explain_status


class MissingModelError(ProviderError):
    """The model is not installed in Ollama."""


class _Refusal(NamedTuple):
    kind: ErrorKind
    pattern: re.Pattern[str]
    message: str
    remedy: str
    error: type[ProviderError] = ProviderError


_REFUSALS = (
    _Refusal(
        "invalid_request",
        re.compile(r"model .*not found|try pulling it first"),
        "Ollama does not have the model '{model}'.",
        "Get it with `ollama pull {model}`, or choose another: {choose}.",
        MissingModelError,
    ),
    _Refusal(
        "invalid_request",
        re.compile(r"does not support (?P<what>[\w ]+)"),
        "The model '{model}' cannot be used here: Ollama says that it does not support {what}.",
        "Choose another: {choose}.",
    ),
    _Refusal(
        "context_full",
        re.compile(r"exceeds? .*context|context (size|length) exceeded"),
        "The conversation is too long for the model: {words}.",
        "{shorten}",
    ),
    _Refusal(
        "invalid_request",
        re.compile(r"requires more (system )?memory|out of memory"),
        "Ollama cannot load '{model}': {words}.",
        "Give it a smaller window (:help sanderling-ollama), or choose another model: {choose}.",
    ),
    _Refusal(
        "malformed",
        re.compile(r"error parsing tool call"),
        "The model wrote a tool use that Ollama cannot read: {words}.",
        "{go_on}",
    ),
)
SIGN_IN = "Run `ollama signin`, or set OLLAMA_API_KEY for a server that requires a key."


def explain(
    status: int, words: str, model: str, retry_after_s: float | None = None
) -> ProviderError:
    """Return the error that Ollama reported in `words`; a status of 200 means in the middle of an answer."""
    for refusal in _REFUSALS:
        if found := refusal.pattern.search(words):
            values = {"model": model, "words": words, **found.groupdict()}
            known = remedies()
            remedy = refusal.remedy.format(
                model=model, choose=known.model, shorten=known.shorten, go_on=known.go_on
            )
            return refusal.error(refusal.kind, refusal.message.format(**values), remedy)
    remedy = SIGN_IN if status == HTTPStatus.UNAUTHORIZED else ""
    return explain_status("", status, words, retry_after_s, key_remedy=remedy)
