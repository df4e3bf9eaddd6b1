"""Callbacks in Lua that run before prompts, tool calls and summaries, as the hooks of a session."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from sanderling.editor.extensions import Extensions
from sanderling.errors import ToolError
from sanderling.hooks.callbacks import Point
from sanderling.hooks.hooks import Verdict
from sanderling.hooks.messages import Decision
from sanderling.protocol.events import Event, Notice
from sanderling.text import printable, with_printable

MARGIN_S = 2.0
"""How long after the callbacks' own deadlines the host gives up: one of them may block Neovim."""
BLOCKED = "Neovim did not answer in time"
NO_REASON = "{owner} gave no reason."


class _Answer(msgspec.Struct, frozen=True):
    """What one callback said, or why that does not count."""

    owner: str
    decision: Decision | None = None
    reason: str = ""
    input: dict[str, Any] | None = None
    text: str | None = None
    failure: str = ""


class _Said(msgspec.Struct, frozen=True):
    answers: list[_Answer]


class LuaCallbacks:
    """The callbacks, for one session."""

    def __init__(
        self,
        extensions: Extensions,
        session_id: str,
        project: str,
        emit: Callable[[Event], None],
    ) -> None:
        self._extensions = extensions
        self._facts = {"session": session_id, "project": project}
        self._emit = emit
        self._shown = set[str]()

    def are_for(self, point: Point) -> bool:
        return any(each.point == point for each in self._extensions.callbacks)

    async def run(self, point: Point, subject: Any) -> Verdict:
        limits = (each.timeout_s for each in self._extensions.callbacks if each.point == point)
        try:
            said = await self._extensions.call(
                "callbacks", sum(limits) + MARGIN_S, point, subject, self._facts
            )
            answers = msgspec.convert(with_printable(said), _Said).answers
        except (ToolError, TimeoutError) as error:
            answers = [_Answer("Lua", failure=str(error).rstrip(".") or BLOCKED)]
        except msgspec.ValidationError as error:
            answers = [_Answer("Lua", failure=f"the answer of Neovim is not valid: {error}")]
        return self._verdict(point, answers)

    def _verdict(self, point: Point, answers: Sequence[_Answer]) -> Verdict:
        verdict = Verdict()
        for each in answers:
            decision, reason = each.decision, each.reason
            if each.failure:
                reason = f"The {point} hook of {each.owner} failed: {each.failure}."
                self._show_once(reason)
                decision = "ask" if point == "tool" else None
            elif decision and not reason:
                reason = NO_REASON.format(owner=each.owner)
            verdict = verdict.and_also(Verdict(decision, reason, input=each.input, text=each.text))
        return verdict

    def _show_once(self, sentence: str) -> None:
        if sentence not in self._shown:
            self._shown.add(sentence)
            self._emit(Notice("warning", printable(sentence)))
