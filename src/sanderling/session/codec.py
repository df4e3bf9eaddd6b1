"""
Encodes the records of a session's log as lines, and decodes them.

A prompt's text and attached lines can be long. They are in the log once, in the record `prompt`; messages that contain them, and the
state of pending prompts, have the prompt's number instead.
"""

from collections.abc import Sequence
from datetime import datetime
from itertools import dropwhile, takewhile
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from sanderling.json_lines import encoded
from sanderling.protocol.messages import (
    ContentBlock,
    ImageBlock,
    ImageSource,
    Message,
    NoteBlock,
    Prompt,
    TextBlock,
    ToolResult,
)
from sanderling.session.history import fit, fit_id
from sanderling.session.records import (
    Line,
    LoggedClearing,
    LoggedMessage,
    LoggedPrompt,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedToolStart,
    Record,
)


class _Quote(msgspec.Struct, tag="quote", frozen=True, omit_defaults=True):
    """
    A text block that quotes a prompt: its text or, if `selection` is set, the selection with that number, from 1.

    A selection that is an image is quoted without `before` and `after`.
    """

    prompt: int
    selection: int = 0
    before: str = ""
    after: str = ""


class _Content(msgspec.Struct, frozen=True):
    role: Literal["user", "assistant"]
    content: tuple[ContentBlock | _Quote, ...]


class _LoggedMessage(msgspec.Struct, tag="message", frozen=True, omit_defaults=True):
    """A `LoggedMessage` in its encoded form: prompts by their numbers."""

    message: _Content
    at: datetime
    prompt: int | None = None
    steered: tuple[int, ...] = ()


_decoder: msgspec.json.Decoder[Line | _LoggedMessage] = msgspec.json.Decoder(Line | _LoggedMessage)


class Codec:
    """Encodes and decodes the lines of one log. It remembers the prompts that it has written or read."""

    def __init__(self) -> None:
        self._prompts: dict[int, Prompt] = {}
        self._numbers: dict[Prompt, int] = {}
        self._new: list[LoggedPrompt] = []

    def encoded(self, record: Record) -> bytes:
        """Return the line of `record`, preceded by the lines of prompts that it is the first to use."""
        self._new = []
        match record:
            case LoggedMessage():
                line = self._shortened(record)
            case LoggedState(key="waiting"):
                line = replace(record, value=self._numbered(record.value))
            case _:
                line = record
        return b"".join(encoded(each) + b"\n" for each in (*self._new, line))

    def decoded(self, line: bytes) -> Record | None:
        """Return the record in `line`, with valid ids and names; None if the line is damaged or its prompt is missing."""
        try:
            record = _decoder.decode(line)
            match record:
                case LoggedPrompt(number=number, prompt=prompt):
                    self._learn(number, prompt)
                case _LoggedMessage():
                    record = self._whole(record)
                case LoggedState(key="waiting"):
                    record = replace(record, value=self._spelt_out(record.value))
                case _:
                    pass
            return _fit(record)
        except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, RecursionError):
            return None

    def _learn(self, number: int, prompt: Prompt) -> None:
        self._prompts[number] = prompt
        self._numbers[prompt] = number

    def _number(self, prompt: Prompt) -> int:
        if prompt not in self._numbers:
            number = max(self._prompts, default=0) + 1
            self._learn(number, prompt)
            self._new.append(LoggedPrompt(number, prompt))
        return self._numbers[prompt]

    def _shortened(self, logged: LoggedMessage) -> _LoggedMessage:
        prompts = (*((logged.prompt,) if logged.prompt else ()), *logged.steered)
        numbers = [self._number(prompt) for prompt in prompts]
        message = logged.message
        blocks = tuple(self._quoted(block, numbers) for block in message.content)
        steered = tuple(numbers[1:] if logged.prompt else numbers)
        return _LoggedMessage(
            _Content(message.role, blocks),
            logged.at,
            numbers[0] if logged.prompt else None,
            steered,
        )

    def _quoted(self, block: ContentBlock, numbers: list[int]) -> ContentBlock | _Quote:
        if isinstance(block, TextBlock):
            return next((q for n in numbers if (q := self._quote(block.text, n))), block)
        if isinstance(block, ImageBlock):
            return next((q for n in numbers if (q := self._quoted_image(block, n))), block)
        return block

    def _quoted_image(self, block: ImageBlock, number: int) -> _Quote | None:
        for count, selection in enumerate(self._prompts[number].selections, 1):
            if block.source == ImageSource(selection.media_type, selection.text):
                return _Quote(number, count)
        return None

    def _quote(self, text: str, number: int) -> _Quote | None:
        prompt = self._prompts[number]
        if text == _words(prompt):
            return _Quote(number)
        for count, selection in enumerate(prompt.selections, 1):
            before, found, after = text.partition(f"\n{selection.text}\n")
            if found:
                return _Quote(number, count, f"{before}\n", f"\n{after}")
        return None

    def _whole(self, line: _LoggedMessage) -> LoggedMessage:
        notes = 0 if line.prompt else _notes_in(line.message.content)
        blocks = tuple(map(self._block, line.message.content))
        return LoggedMessage(
            Message(line.message.role, _with_notes(blocks, notes)),
            None if line.prompt is None else self._prompts[line.prompt],
            line.at,
            tuple(self._prompts[number] for number in line.steered),
        )

    def _block(self, block: ContentBlock | _Quote) -> ContentBlock:
        if not isinstance(block, _Quote):
            return block
        prompt = self._prompts[block.prompt]
        quoted = prompt.selections[block.selection - 1] if block.selection else None
        if quoted and quoted.media_type and not block.before:
            return ImageBlock(ImageSource(quoted.media_type, quoted.text))
        words = quoted.text if quoted else _words(prompt)
        return TextBlock(f"{block.before}{words}{block.after}")

    def _numbered(self, waiting: object) -> dict[str, list[int]]:
        prompts = msgspec.convert(waiting, dict[str, list[Prompt]])
        return {key: list(map(self._number, each)) for key, each in prompts.items()}

    def _spelt_out(self, waiting: object) -> Any:
        numbers = msgspec.convert(waiting, dict[str, list[int]])
        return msgspec.to_builtins(
            {key: [self._prompts[each] for each in of_key] for key, of_key in numbers.items()}
        )


def _notes_in(content: Sequence[ContentBlock | _Quote]) -> int:
    """Return the number of notes, which follow the tool results and precede what the user sent meanwhile."""
    rest = list(dropwhile(_is_result, content))
    if len(rest) == len(content):
        return 0
    notes = list(takewhile(_is_text, rest))
    has_image = any(map(_is_image, rest[len(notes) : len(notes) + 1]))
    return len(notes) - has_image  # an image follows its name


def _is_result(block: ContentBlock | _Quote) -> bool:
    return isinstance(block, ToolResult)


def _is_text(block: ContentBlock | _Quote) -> bool:
    return isinstance(block, TextBlock)


def _is_image(block: ContentBlock | _Quote) -> bool:
    if isinstance(block, _Quote):
        return bool(block.selection) and not block.before
    return isinstance(block, ImageBlock)


def _with_notes(blocks: tuple[ContentBlock, ...], notes: int) -> tuple[ContentBlock, ...]:
    """Return `blocks` with the first `notes` texts as notes."""
    marked: list[ContentBlock] = []
    for block in blocks:
        if notes and isinstance(block, TextBlock):
            marked.append(NoteBlock(block.text))
            notes -= 1
        else:
            marked.append(block)
    return tuple(marked)


def _words(prompt: Prompt) -> str:
    return prompt.sent or prompt.text


def _fit(record: Record) -> Record:
    """Return `record` with valid ids and names: older versions logged invalid ones, as models made them up."""
    match record:
        case LoggedMessage(message=message):
            fitting = fit(message)
            return record if fitting is message else replace(record, message=fitting)
        case LoggedSummary(history=history):
            return replace(record, history=tuple(map(fit, history)))
        case LoggedToolStart(tool_use_id=use_id) if fit_id(use_id) != use_id:
            return replace(record, tool_use_id=fit_id(use_id))
        case LoggedToolEnd(tool_use_id=use_id, result=result) if fit_id(use_id) != use_id:
            own = fit_id(use_id)
            return replace(
                record, tool_use_id=own, result=result and replace(result, tool_use_id=own)
            )
        case LoggedClearing(results=results) if any(fit_id(use_id) != use_id for use_id in results):
            return replace(
                record, results={fit_id(use_id): text for use_id, text in results.items()}
            )
        case _:
            return record
