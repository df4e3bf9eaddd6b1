"""Checks a change against what the model knows of the file: it must not replace unseen text, and learns of changes by others."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sanderling.errors import ToolError
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.seen import Seen, Sight
from sanderling.tools.texts import difference, done, text_of

RENUMBERED = "Line numbers may have shifted: nothing was changed."


class Proposal(NamedTuple):
    """A file's new bytes, with notes for the model on how they came about."""

    data: bytes
    notes: tuple[str, ...] = ()


class Known(NamedTuple):
    """Notes for the model on changes by others; `is_all` if it knows the whole file afterwards."""

    notes: tuple[str, ...]
    is_all: bool


class Knowledge(msgspec.Struct, frozen=True):
    """The model's knowledge of the file `path`, and the change that it proposes: see `Change`."""

    seen: Seen
    path: str
    name: str
    propose: Callable[[bytes | None], Proposal]
    is_whole: bool
    counts_lines: bool

    @property
    def sight(self) -> Sight | None:
        return self.seen.get(self.path)

    async def considered(
        self, data: bytes | None, old: str, stamp: Stamp | None
    ) -> tuple[Proposal, Known]:
        """Return the proposal for a file, after comparing the file with what the model knows."""
        known = await self.known(old, stamp)
        if known.notes and self.counts_lines:
            self.remember(old, known)
            raise ToolError("\n".join([RENUMBERED, *known.notes]))
        try:
            proposal = await self.proposal(data)
        except ToolError as error:
            if not known.notes:
                raise
            self.remember(old, known)
            raise ToolError("\n".join([str(error), *known.notes])) from error
        if self.is_whole and old and proposal.data != data:
            await self._require_known(old, proposal, known)
        return proposal, known._replace(is_all=known.is_all or self.is_whole)

    async def known(self, text: str, stamp: Stamp | None) -> Known:
        """Compare `text` to what the model has seen."""
        sight = self.sight
        if not text and self.is_whole:
            return Known((), is_all=True)
        if sight is None or sight.is_of(text, stamp):
            return Known((), is_all=sight is not None)
        if sight.text is None:
            note = f"{self.name} has changed since you read it; the earlier text is no longer kept: read it again."
            return Known((note,), is_all=False)
        since = await difference(sight.text, text)
        part = since.shown()
        return Known(
            (f"{self.name} has changed since you read it, not by you:\n{part.text}",),
            is_all=part.is_whole,
        )

    async def _require_known(self, old: str, proposal: Proposal, known: Known) -> None:
        is_seen = self.sight is not None
        if is_seen and not known.notes:
            return
        if not is_seen:
            new = await text_of(proposal.data)
            part = (await difference(old, new)).shown()
            problem = (
                f"{self.name} exists, and you have not read it. The change would be:\n{part.text}"
            )
            known = Known((), is_all=part.is_whole)
        else:
            problem = known.notes[0]
        self.remember(old, known)
        remedy = (
            "Nothing was written. To replace it anyway, call write again."
            if known.is_all
            else "Nothing was written. Read it first, or use edit."
        )
        raise ToolError(f"{problem}\n{remedy}")

    def remember(self, text: str, known: Known) -> None:
        if known.is_all:
            self.seen.note(self.path, text)
        elif known.notes:
            self.seen.forget(self.path)

    async def proposal(self, data: bytes | None) -> Proposal:
        return await done(len(data or b""), self.propose, data)
