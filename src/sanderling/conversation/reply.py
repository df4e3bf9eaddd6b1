"""The model's reply as it streams: logged while it grows, and added to the history when it is complete."""

from collections.abc import Callable
from typing import Literal

import anyio
import msgspec

from sanderling.protocol.messages import ContentBlock, Message, TextBlock, ToolUse
from sanderling.session.history import fit_name, for_another_model, unique_id
from sanderling.session.records import LoggedPartial, LoggedRestart
from sanderling.session.session import Session

PARTIAL_INTERVAL_S = 0.25  # how much of a streaming answer a killed host may lose


class Reply:
    """The model's output since the last message: complete blocks, and the block being written."""

    def __init__(self, session: Session) -> None:
        self.model = ""  # the model that writes it
        self.problems: dict[str, str] = {}  # by tool call id: input that cannot be parsed
        self._session = session
        self._blocks: list[ContentBlock] = []
        self._open_block: Literal["text", "thinking"] = "text"
        self._open_pieces: list[str] = []
        self._logged_pieces = 0

    @property
    def has_begun(self) -> bool:
        return bool(self._blocks or self._open_pieces)

    @property
    def last_block(self) -> ContentBlock | None:
        return self._blocks[-1] if self._blocks else None

    @property
    def has_open_block(self) -> bool:
        return bool(self._open_pieces)

    def add(self, block: Literal["text", "thinking"], piece: str) -> None:
        self._open_block = block
        self._open_pieces.append(piece)

    def finish_block(self, block: ContentBlock, problem: str = "") -> None:
        self._log_open_block()
        if isinstance(block, ToolUse):
            block = self._with_valid_names(block)
            if problem:
                self.problems[block.id] = problem
        self._blocks.append(block)
        self._open_pieces, self._logged_pieces = [], 0

    def _with_valid_names(self, use: ToolUse) -> ToolUse:
        """Return `use` with a unique, valid id and a valid name: the API rejects others, and some models send them."""
        taken = {block.id for block in self._blocks if isinstance(block, ToolUse)}
        own = unique_id(use.id or "use", taken | self._session.tool_use_ids)
        return msgspec.structs.replace(use, id=own, name=fit_name(use.name))

    def restart(self, model: str) -> None:
        """Discard the partial answer of a stream that was cut; `model` starts again."""
        self._session.append(LoggedRestart())
        self._forget()
        self.model = model

    def keep(
        self, model: str, repaired: Callable[[ToolUse], ToolUse] = lambda use: use
    ) -> list[ToolUse]:
        """
        Append the reply to the history, for `model` to continue from; return its tool calls.

        The history gets the `repaired` calls, so that the log, the screen and the next request show what ran.
        """
        open_text = "".join(self._open_pieces) if self._open_block == "text" else ""
        blocks = (
            repaired(block) if isinstance(block, ToolUse) else block for block in self._blocks
        )
        message = Message("assistant", (*blocks, TextBlock(open_text)))
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
