"""The model's reply, as it comes: kept on the disk while it grows, and as a message of the history when it is whole."""

from typing import Literal

import anyio
import msgspec

from sanderling.protocol.messages import ContentBlock, Message, TextBlock, ToolUse
from sanderling.session.history import MAX_NAME_CHARS, fit_name, for_another_model, plain
from sanderling.session.records import LoggedPartial, LoggedRestart
from sanderling.session.session import Session

PARTIAL_INTERVAL_S = 0.25  # how much of a streaming answer a killed host may lose


class Reply:
    """The model's words since the last message: whole blocks, and the one that it is writing."""

    def __init__(self, session: Session) -> None:
        self.model = ""  # who speaks
        self.problems: dict[str, str] = {}  # of its tool uses whose input cannot be read
        self._session = session
        self._blocks: list[ContentBlock] = []
        self._open_block: Literal["text", "thinking"] = "text"
        self._open_pieces: list[str] = []
        self._logged_pieces = 0

    @property
    def has_begun(self) -> bool:
        return bool(self._blocks or self._open_pieces)

    @property
    def has_open_block(self) -> bool:
        return bool(self._open_pieces)

    def add(self, block: Literal["text", "thinking"], piece: str) -> None:
        self._open_block = block
        self._open_pieces.append(piece)

    def finish_block(self, block: ContentBlock, problem: str = "") -> None:
        self._log_open_block()
        if isinstance(block, ToolUse):
            block = self._with_own_names(block)
            if problem:
                self.problems[block.id] = problem
        self._blocks.append(block)
        self._open_pieces, self._logged_pieces = [], 0

    def _with_own_names(self, use: ToolUse) -> ToolUse:
        """The API refuses an id that is there twice, and ids and names of tools that it cannot read; some models send such."""
        fit = plain(use.id, MAX_NAME_CHARS - len("_9999")) or "use"
        taken = {block.id for block in self._blocks if isinstance(block, ToolUse)}
        own, number = fit, 1
        while own in taken or own in self._session.tool_use_ids:
            number += 1
            own = f"{fit}_{number}"
        return msgspec.structs.replace(use, id=own, name=fit_name(use.name))

    def restart(self, model: str) -> None:
        """Forget what came of a stream that was cut: `model` says it again."""
        self._session.append(LoggedRestart())
        self._forget()
        self.model = model

    def keep(self, model: str) -> list[ToolUse]:
        """Put what was said into the history, for `model` to go on from; return its tool uses."""
        open_text = "".join(self._open_pieces) if self._open_block == "text" else ""
        message = Message("assistant", (*self._blocks, TextBlock(open_text)))
        self._forget()
        if model != self.model:
            [message] = for_another_model([message])
        return self._session.append_reply(message)

    def _forget(self) -> None:
        self._blocks, self._open_pieces, self._logged_pieces = [], [], 0
        self.problems = {}

    async def log_as_it_grows(self) -> None:
        while True:
            await anyio.sleep(PARTIAL_INTERVAL_S)
            self._log_open_block()

    def _log_open_block(self) -> None:
        new = "".join(self._open_pieces[self._logged_pieces :])
        self._logged_pieces = len(self._open_pieces)
        if new:
            self._session.append(LoggedPartial(self._open_block, new))
