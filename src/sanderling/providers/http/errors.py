"""An API's errors as messages for the user, and whether the same request may succeed later."""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

from sanderling.errors import TEMPORARY, ErrorKind, ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.credentials import Account
from sanderling.text import duration

MAX_DETAIL_CHARS = 1000

# Error types and codes of APIs. Those in the first table are final, whatever the status.
_FINAL_KINDS: dict[str, ErrorKind] = {
    "billing_error": "auth",
    "insufficient_quota": "auth",
    "billing_hard_limit_reached": "auth",
    "context_length_exceeded": "context_full",
    "exceed_context_size_error": "context_full",  # llama.cpp
    "request_too_large": "context_full",
    "string_above_max_length": "context_full",
    "tool_use_failed": "malformed",  # Groq: the model wrote an invalid tool use
}
_KINDS_BY_TYPE: dict[str, ErrorKind] = {
    "authentication_error": "auth",
    "invalid_api_key": "auth",
    "permission_error": "auth",
    "permission_denied": "auth",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "requests": "rate_limited",  # OpenAI's limit of requests per minute
    "tokens": "rate_limited",
    "overloaded_error": "overloaded",
    "server_is_overloaded": "overloaded",
    "slow_down": "overloaded",
    "api_error": "server",
    "server_error": "server",
    "internal_server_error": "server",
    "timeout_error": "server",
    "invalid_request_error": "invalid_request",
    "not_found_error": "invalid_request",
    "model_not_found": "invalid_request",
    # OpenAI sends these in the middle of an answer, after a success status.
    "invalid_prompt": "invalid_request",
    "bio_policy": "invalid_request",
    "misalignment_policy_violation": "invalid_request",
    "data_residency_mismatch": "invalid_request",
    "invalid_image": "invalid_request",
    "image_too_large": "invalid_request",
    "image_parse_error": "invalid_request",
    "image_content_policy_violation": "invalid_request",
    "unsupported_image_media_type": "invalid_request",
}
_NOT_FOUND = frozenset(("not_found_error", "model_not_found"))
_UNPAID = frozenset(("billing_error", "insufficient_quota", "billing_hard_limit_reached"))
_KINDS_BY_STATUS: dict[int, ErrorKind] = {
    200: "server",  # in the middle of an answer: the request was accepted
    401: "auth",
    402: "auth",
    403: "auth",
    408: "server",
    409: "server",
    425: "server",
    413: "context_full",
    429: "rate_limited",
    529: "overloaded",
}
_TOO_LONG = re.compile(
    r"(prompt|input|request) is too (long|large)|exceeds?(ed)? (the |this model's |the model's |the available )?(maximum |max )?"
    r"(context|input token|model length|model's context)|maximum context length|maximum prompt length"
    r"|(larger|more tokens) than the (model's |maximum )?context|input token count .{0,40} exceeds",
    re.IGNORECASE,
)

# Errors of chat templates, with which local servers write the prompt (llama.cpp, vLLM, LM Studio), and of hosted servers with the same rules.
_ALTERNATE = re.compile(
    r"\b(must|should|need to|have to) (strictly )?alternat|roles? (is|are) not alternating|(multiple|consecutive) (\w+ )?(user|assistant) (messages|roles|turns)"
    r"|unexpected role '?\w+'? after role|expected last role|(last|first) message .{0,30}(must|should) (be|have) .{0,20}\brole\b",
    re.IGNORECASE,
)
_ONE_CALL = re.compile(
    r"single tool[- ]?calls? at once|(one|single) tool[- ]?call (per|at a time)", re.IGNORECASE
)
_NINE_CHARS = re.compile(r"tool[ _]?call ids? (should|must) .{0,40}\b9\b", re.IGNORECASE)
_UNDEFINED = re.compile(
    r"has no attribute '(description|type)'|on undefined values?\b|\bis undefined\b", re.IGNORECASE
)
_TEMPLATE = re.compile(
    r"raise_exception|jinja|\bminja\b|template(syntax)?error|chat[ _]template|generate parser for this template|render(ing)? (the )?(prompt|template)",
    re.IGNORECASE,
)
_TEMPLATE_STATUS = frozenset((200, 400, 422, 500))
_JINJA_ERROR = re.compile(r"(?:Error: )?Jinja Exception: *(?P<words>[^\n]+)")
_RAISED = re.compile(r"raise_exception\(\s*(?P<quote>[\"'])(?P<words>.{4,300}?)(?P=quote)\s*[)+~]")

Repair = Literal["takes_turns", "one_call", "alnum9", "full_schemas"]


class TemplateError(ProviderError):
    """
    The model's chat template rejects the conversation, so the same request cannot succeed.

    `repair`: what the template requires, if its error says so.
    """

    repair: Repair | None = None


def is_known(kind: str) -> bool:
    return kind in _FINAL_KINDS or kind in _KINDS_BY_TYPE


def explain_status(
    error_type: str,
    status: int,
    detail: str,
    retry_after_s: float | None = None,
    *,
    key_remedy: str,
) -> ProviderError:
    """
    Return the error that an API reports, by its type or code, unless the status says that it is temporary.

    `key_remedy` says what to do about a rejected key.
    """
    if status == HTTPStatus.NETWORK_AUTHENTICATION_REQUIRED:
        return login_page(status, "a refusal")
    if status in _TEMPLATE_STATUS and error_type not in _FINAL_KINDS:
        repair = _repair_in(detail)
        if repair or _TEMPLATE.search(detail):
            return _template_error(detail, status, repair)
    kind = _kind(error_type, status)
    if kind == "invalid_request" and _TOO_LONG.search(detail):
        kind = "context_full"  # no API has a type for this
    detail = detail.rstrip(". ")
    detail = detail if len(detail) <= MAX_DETAIL_CHARS else f"{detail[:MAX_DETAIL_CHARS]}…"
    what = detail if status == HTTPStatus.OK else f"{detail} ({status})"
    message, remedy = _in_words(kind, error_type, status)
    if kind in ("rate_limited", "overloaded", "server"):
        remedy = " ".join(filter(None, (_in_a_while(retry_after_s), remedy)))
    elif kind == "auth":
        remedy = remedy or key_remedy
    is_missing = error_type in _NOT_FOUND or status == HTTPStatus.NOT_FOUND
    return ProviderError(
        kind, f"{message}: {what}.", remedy, retry_after_s=retry_after_s, lacks_model=is_missing
    )


def _repair_in(detail: str) -> Repair | None:
    if _ONE_CALL.search(detail):
        return "one_call"
    if _NINE_CHARS.search(detail):
        return "alnum9"
    if _ALTERNATE.search(detail):
        return "takes_turns"
    return "full_schemas" if _UNDEFINED.search(detail) and _TEMPLATE.search(detail) else None


def _template_error(detail: str, status: int, repair: Repair | None) -> TemplateError:
    """Return the error in the template's own words, without its source, which some servers quote."""
    found = _JINJA_ERROR.search(detail) or _RAISED.search(detail)
    words = " ".join((found["words"] if found else detail).split()).rstrip(". ")[:MAX_DETAIL_CHARS]
    message = f"The model's chat template rejects this conversation: {words} ({status})."
    remedy = f"Choose another model ({remedies().model}), or start the server with another template (llama.cpp: --chat-template-file)."
    error = TemplateError("invalid_request", message, remedy)
    error.repair = repair
    return error


def _in_words(kind: ErrorKind, error_type: str, status: int) -> tuple[str, str]:
    """Return the beginning of the message and this kind's own remedy, which may be empty."""
    match kind:
        case "auth" if error_type in _UNPAID or status == HTTPStatus.PAYMENT_REQUIRED:
            return "The account cannot pay for this", "Check the account's credit and limits."
        case "auth" | "server":
            return "The API refused the key" if kind == "auth" else "The API failed", ""
        case "rate_limited":
            remedy = f"Other models have their own limits: {remedies().model}."
            return "The account's rate limit is reached", remedy
        case "overloaded":
            remedy = f"Another model may be available: {remedies().model}."
            return "The API is overloaded just now", remedy
        case "context_full":
            return "The conversation is too long for the model", remedies().shorten
        case _:
            return _request_in_words(error_type, status)


def _request_in_words(error_type: str, status: int) -> tuple[str, str]:
    if _is_elsewhere(status):
        remedy = (
            "If the network requires a login, log in with a browser. If the API has moved, set base_url to its address:"
            " the key and the conversation are not sent to other addresses."
        )
        return "The API redirects to another address", remedy
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        remedy = f"Set user name and password in the environment's proxy variables, then {remedies().restart}."
        return "The proxy requires a login", remedy
    if error_type == "tool_use_failed":
        return "The model wrote a tool call that its API cannot read", remedies().go_on
    if error_type in _NOT_FOUND or status == HTTPStatus.NOT_FOUND:
        remedy = "Check `model` and `base_url`."
        return "The API does not know this model or address", remedy
    remedy = f"Change the prompt or the settings it names; {remedies().begin_anew}."
    return "The API refused the request", remedy


def _is_elsewhere(status: int) -> bool:
    return 300 <= status < 400  # noqa: PLR2004 - redirections


def _kind(error_type: str, status: int) -> ErrorKind:
    if _is_elsewhere(status):
        return "invalid_request"
    if error_type in _FINAL_KINDS:
        return _FINAL_KINDS[error_type]
    by_status = _KINDS_BY_STATUS.get(status, "server" if status >= 500 else "invalid_request")  # noqa: PLR2004
    by_type = _KINDS_BY_TYPE.get(error_type, by_status)
    # APIs call many errors an "invalid request", so a temporary status overrides that type.
    is_by_status = status != HTTPStatus.OK and (
        by_status in TEMPORARY or by_type == "invalid_request"
    )
    if by_type == "server" and by_status == "invalid_request":
        return by_status  # some servers call each of their errors a server error
    return by_status if is_by_status and by_type not in TEMPORARY else by_type


def _in_a_while(retry_after_s: float | None) -> str:
    go_on = remedies().go_on
    return (
        f"The API asks to wait for {duration(retry_after_s)}. {go_on}" if retry_after_s else go_on
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the delay that the API asks for: in ms, in seconds, or until a date by the API's own clock."""
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if until := _date(value):
        return max(0.0, (until - (_date(headers.get("date")) or datetime.now(UTC))).total_seconds())
    return None


def _number(text: str | None) -> float | None:
    with suppress(ValueError):
        if text and 0 <= (number := float(text)) < math.inf:
            return number
    return None


def _date(text: str | None) -> datetime | None:
    with suppress(ValueError, OverflowError):
        if text:
            date = parsedate_to_datetime(text)
            return date if date.tzinfo else date.replace(tzinfo=UTC)
    return None


def refused_key(account: Account, *, is_kept: bool) -> str:
    """Return the remedy for a rejected key; `is_kept`: it came from the keychain."""
    if is_kept:
        return f"Check its account, or store another key with {account.log_in()}."
    return f"Check {account.variables[0]} and its account, then {remedies().restart} with a key that works."


def no_key(account: Account) -> ProviderError:
    whose = "" if account.name == "anthropic" else f" for {account.name}"
    return ProviderError(
        "no_key",
        f"There is no API key{whose}.",
        f"Store one with {account.log_in()}, or set {account.variables[0]} and {remedies().restart}. The model `demo` needs no key.",
    )


def login_page(status: int, what: str) -> ProviderError:
    """Return the error for a response that came from a network's login page. Waiting does not help."""
    return ProviderError(
        "malformed",
        f"The network sent {what} instead of the API's answer ({status}): you may have to log in.",
        f"Open any page in a browser to see; if base_url names a proxy, it may be at fault. {remedies().go_on}",
        is_temporary=False,
    )


def malformed(detail: str) -> ProviderError:
    return ProviderError(
        "malformed",
        f"The API sent an invalid response ({detail}).",
        f"If base_url names a proxy, it may be at fault. {remedies().go_on}",
    )
