"""
The user's corrections in a session, from its log: denials and rejected hunks with reasons, undone turns, repeated instructions.

Only the user's own words and the model's calls are used, no tool's result: a file could contain the words of a denial.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sanderling.protocol.messages import Message, Prompt, TextBlock, ToolResult, ToolUse, text_of
from sanderling.session.history import input_line
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import (
    LoggedMessage,
    LoggedRestored,
    LoggedState,
    LoggedToolEnd,
    Record,
    StateKey,
)
from sanderling.text import shortened

MAX_CORRECTIONS = 40
MAX_CHARS = 500
PROPOSED: StateKey = "proposed"
"""The state of a session that holds the corrections of its last proposal."""
MIN_WORDS, LIKENESS = 3, 0.7
"""Sentences with fewer words, such as "go on", are no instructions; sentences that share so many of their words are the same."""

_DENIED = "The user denied this: "
_REJECTED = "The user rejected this part"
_UNASKED = "Do not make them again unless asked."
# The last such words of the line: a file's name, which the model may have chosen, could contain a reason. Without one they end the line.
_REVIEWED = rf"\[The user reviewed your changes of (.+) and rejected these: .*{_UNASKED} They say: (?!.*{_UNASKED}$)(.+)"
CHANGING = ("edit", "write", "code_refactor")
"""Tools whose results have the user's review, and nothing of a file before it."""


def corrections(records: Iterable[Record], unsent: Sequence[str] = ()) -> list[str]:
    """Return each correction once, oldest first; `unsent` are notes on rejected changes that no message has yet."""
    records = list(records)
    prompts = _prompts(records)
    found = [*_about_calls(records), *_undone(records, prompts)]
    notes = [*_notes(records), *unsent]
    found += (each for note in notes for each in _reviewed(note))
    found += (f"Said more than once: {each}" for each in repeated(each.text for each in prompts))
    cut = (shortened(" ".join(each.split()), MAX_CHARS) for each in found)
    return [*dict.fromkeys(cut)][-MAX_CORRECTIONS:]


def unproposed(records: Iterable[Record], unsent: Sequence[str] = ()) -> list[str]:
    """Return the corrections that no earlier proposal is based on."""
    records = list(records)
    done = {each for value in _states(records, PROPOSED) for each in value}
    return [each for each in corrections(records, unsent) if each not in done]


def left_in(session_dir: Path, session_id: str) -> list[str]:
    """
    Return the corrections in a stored session that no proposal is based on; none if it cannot propose any.

    Raises:
        SessionError: the session does not exist or its log cannot be read.
    """
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        header, lines = records_of(log, file)
        records = list(lines)
    if header.parent or _states(records, "agent"):  # a child's, or an external agent's
        return []
    notes = _states(records, "told")[-1:]
    return unproposed(records, [each for note in notes for each in note.get("rejected", ())])


def _states(records: Iterable[Record], key: StateKey) -> list[Any]:
    return [each.value for each in records if isinstance(each, LoggedState) and each.key == key]


def repeated(texts: Iterable[str]) -> list[str]:
    """Return the sentences that occur in several of `texts`, in much the same words, as they were last."""
    seen = list[tuple[frozenset[str], str]]()
    found = dict[frozenset[str], str]()
    for text in texts:
        own = [
            (words, each) for each in _sentences(text) if len(words := _words(each)) >= MIN_WORDS
        ]
        for words, sentence in own:
            if like := next((other for other, _ in seen if _are_alike(words, other)), None):
                found[like] = sentence
        seen += own
    return list(found.values())


def _sentences(text: str) -> list[str]:
    return [each.strip() for each in re.split(r"\n|(?<=[.!?;])\s", text) if each.strip()]


def _words(sentence: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", sentence.casefold()))


def _are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= LIKENESS * len(one | other)


def _prompts(records: Sequence[Record]) -> list[Prompt]:
    messages = (each for each in records if isinstance(each, LoggedMessage))
    return [
        prompt
        for each in messages
        for prompt in (*([each.prompt] if each.prompt else ()), *each.steered)
    ]


def _about_calls(records: Sequence[Record]) -> Iterator[str]:
    uses = dict[str, ToolUse]()
    reasons = dict[str, str]()
    for record in records:
        match record:
            case LoggedMessage(message=message):
                blocks = message.content
                uses |= {each.id: each for each in blocks if isinstance(each, ToolUse)}
                for block in blocks:
                    if isinstance(block, ToolResult) and (use := uses.get(block.tool_use_id)):
                        yield from _about_call(use, block, reasons.get(use.id, ""))
            case LoggedToolEnd(tool_use_id=use_id, detail=detail, is_denied=True):
                reasons[use_id] = detail
            case _:
                pass


def _about_call(use: ToolUse, result: ToolResult, reason: str) -> Iterator[str]:
    text = text_of(result.content)
    call = f'{use.name} "{input_line(use)}"'
    if reason and text.startswith((_DENIED, _REJECTED)):
        yield f"Denied {call}: {reason}"
    elif use.name in CHANGING:
        for found in re.findall(rf"(?m)^{_REJECTED}, .*?\. Reason: (.+)$", text):
            yield f"Rejected a part of {call}: {found}"


def _notes(records: Iterable[Record]) -> Iterator[str]:
    for record in records:
        if isinstance(record, LoggedMessage) and record.message.role == "user":
            yield from _texts(record.message)


def _texts(message: Message) -> Iterator[str]:
    return (block.text for block in message.content if isinstance(block, TextBlock))


def _reviewed(note: str) -> Iterator[str]:
    if found := re.match(_REVIEWED, note.partition("\n")[0]):
        yield f"Rejected changes of {found[1]}: {found[2]}"


def _undone(records: Iterable[Record], prompts: Iterable[Prompt]) -> Iterator[str]:
    asked = {each.id: each.text for each in prompts}
    undone = dict[str, None]()
    for record in records:
        if isinstance(record, LoggedRestored):
            turns = dict.fromkeys(record.restored.turns)
            if record.restored.kind == "undo":
                undone |= turns
            elif record.restored.kind == "redo":
                undone = {each: None for each in undone if each not in turns}
    for turn in undone:
        if turn in asked:
            yield f"Undid all changes that were made for: {asked[turn]}"
