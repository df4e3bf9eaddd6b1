"""
Decoding of response bodies and events: strict for the answer itself, lenient for everything else.

Counts and reasons that cannot be read count as unknown: the answer has been paid for.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from sanderling.errors import ProviderError
from sanderling.providers import StreamItem
from sanderling.providers.http.errors import is_known, malformed
from sanderling.text import printable

if TYPE_CHECKING:
    from sanderling.protocol.messages import StopReason

MAX_SHOWN_INPUT_CHARS = 500
MAX_COUNT = 2**53  # what Lua can hold

T = TypeVar("T")

_input_decoder = msgspec.json.Decoder(dict[str, Any])


class Decoder(ABC):
    """
    The decoder of one response.

    `has_started`: if the stream breaks now, it breaks in the middle of the answer. `is_done`: a stop reason has arrived; some gateways
    leave out everything after it. `is_over`: nothing else can follow. Between `is_done` and `is_over` only usage is read, and only for a
    short time. Everything after that is ignored: some gateways append things, such as a tool use, that are not part of the answer.
    """

    def __init__(self, without_key: Callable[[str], str] = str, key_remedy: str = "") -> None:
        """`without_key` removes the key from a server's words; `key_remedy` says what to do about a rejected key."""
        self._without_key = without_key
        self._key_remedy = key_remedy
        self.has_started = self.has_words = False
        self.is_done = self.is_over = False
        self.stop_reason: StopReason = "end_turn"
        self.is_paused = False

    @abstractmethod
    def feed(self, data: str, event: str = "") -> Iterator[StreamItem]:
        """
        Decode the next event; `event` is its name.

        Raises:
            ProviderError: it reports an error, or breaks the format.
        """

    def end(self) -> Iterator[StreamItem]:
        """Finish: the answer is over, or the connection is closed. A block that was cut off is dropped."""
        return iter(())


def decode(decoder: msgspec.json.Decoder[T], data: bytes | str | msgspec.Raw) -> T:
    """
    Decode `data`.

    Raises:
        ProviderError: it does not have the decoder's type.
    """
    try:
        return decoder.decode(data)
    except (msgspec.ValidationError, RecursionError) as error:
        raise malformed(str(error)) from error
    except msgspec.DecodeError:
        pass
    # A proxy that cuts strings can send half of a surrogate pair, which no encoding can represent: show U+FFFD instead.
    try:
        value = json.loads(bytes(data) if isinstance(data, msgspec.Raw) else data)
        return decoder.decode(printable(json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise malformed(str(error)) from error


def tool_input(text: str) -> tuple[dict[str, Any], str]:
    """Return the input of a tool use; if it is not an object, an empty one and a message for the model."""
    try:
        return decode(_input_decoder, text.strip() or "{}"), ""
    except ProviderError:
        return {}, _broken_input(text)


def _broken_input(text: str) -> str:
    """Describe an invalid input. Most of the time it was cut off at the token limit."""
    try:
        json.loads(text)
        reason = "not an object, or nested too deeply"
    except (ValueError, RecursionError) as error:
        reason = str(error)
    shown = text if len(text) <= MAX_SHOWN_INPUT_CHARS else f"{text[:MAX_SHOWN_INPUT_CHARS]}…"
    return f"The input must be a JSON object ({reason}). Received: {printable(shown)}"


def field(value: object, name: str) -> Any:
    """Return the field `name` of an object; None if `value` is not an object or has no such field."""
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def is_list(value: object) -> bool:
    return isinstance(value, list)


def items(value: object) -> list[object]:
    """Return the items of a list; none if `value` is not a list."""
    return cast("list[object]", value) if isinstance(value, list) else []


def count(value: object) -> int | None:
    """Return `value` if it is a number of tokens."""
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def first_count(value: object, paths: tuple[tuple[str, ...], ...]) -> int:
    """Return the first number of tokens at `paths`, else 0."""
    for path in paths:
        found = value
        for name in path:
            found = field(found, name)
        if number := count(found):
            return number
    return 0


def decode_refusal(data: bytes) -> tuple[str, str]:
    """Return an error's type or code and its message, for `explain_status`; both empty if the body is not an API's."""
    with suppress(ValueError, RecursionError):
        return read_refusal(json.loads(data.decode(json.detect_encoding(data), "replace")))
    return "", ""


def read_refusal(body: object) -> tuple[str, str]:
    """
    Return the type or code of the error in `body` and its message, in whatever form: a proxy's body may be anything.

    Apart from `error: {type, code, message}` there are lists of it (Gemini), the fields without `error` (Mistral, vLLM), `error` as a
    string (Ollama, xAI), `detail` (FastAPI), and the message of the server behind a router.
    """
    body = next(iter(items(body)), body)
    reported = field(body, "error")
    sentence = reported if isinstance(reported, str) else ""
    error = cast("object", reported) if isinstance(reported, dict) else body
    names = [field(error, name) for name in ("code", "type", "status")]
    kinds = [name for name in names if isinstance(name, str)]
    kind = next(filter(is_known, kinds), kinds[-1] if kinds else "")
    raw = field(field(error, "metadata"), "raw")
    words = (sentence, field(error, "message"), _details(field(error, "detail")), raw)
    return kind, printable(": ".join(each for each in words if isinstance(each, str) and each))


def _details(detail: object) -> object:
    messages = (field(each, "msg") for each in items(detail))
    return "; ".join(each for each in messages if isinstance(each, str)) or detail
