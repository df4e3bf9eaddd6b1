"""Checks a change against what the model knows of the file: it must not replace unseen text, and learns of changes by others."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sanderling.errors import ToolError
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.read_cache import KnownFile, ReadCache
from sanderling.tools.texts import difference, done, text_of

RENUMBERED = "Line numbers may have shifted: nothing was changed."


class ProposedContent(NamedTuple):
    """A file's new bytes, with notes for the model on how they came about."""

    data: bytes
    notes: tuple[str, ...] = ()


class ChangeNotes(NamedTuple):
    """Notes for the model on changes by others; `is_all` if it knows the whole file afterwards."""

    notes: tuple[str, ...]
    is_all: bool


class Knowledge(msgspec.Struct, frozen=True):
    """The model's knowledge of the file `path`, and the change that it proposes: see `Change`."""

    read_cache: ReadCache
    path: str
    name: str
    propose: Callable[[bytes | None], ProposedContent]
    is_whole: bool
    counts_lines: bool

    @property
    def known_file(self) -> KnownFile | None:
        return self.read_cache.get(self.path)

    async def considered(
        self, data: bytes | None, old: str, stamp: Stamp | None
    ) -> tuple[ProposedContent, ChangeNotes]:
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

    async def known(self, text: str, stamp: Stamp | None) -> ChangeNotes:
        """Compare `text` to what the model has seen."""
        known_file = self.known_file
        if not text and self.is_whole:
            return ChangeNotes((), is_all=True)
        if known_file is None or known_file.is_of(text, stamp):
            return ChangeNotes((), is_all=known_file is not None)
        if known_file.text is None:
            note = f"{self.name} has changed since you read it; the earlier text is no longer kept: read it again."
            return ChangeNotes((note,), is_all=False)
        since = await difference(known_file.text, text)
        part = since.shown()
        return ChangeNotes(
            (f"{self.name} has changed since you read it, not by you:\n{part.text}",),
            is_all=part.is_whole,
        )

    async def _require_known(self, old: str, proposal: ProposedContent, known: ChangeNotes) -> None:
        is_seen = self.known_file is not None
        if is_seen and not known.notes:
            return
        if not is_seen:
            new = await text_of(proposal.data)
            part = (await difference(old, new)).shown()
            problem = (
                f"{self.name} exists, and you have not read it. The change would be:\n{part.text}"
            )
            known = ChangeNotes((), is_all=part.is_whole)
        else:
            problem = known.notes[0]
        self.remember(old, known)
        remedy = (
            "Nothing was written. To replace it anyway, call write again."
            if known.is_all
            else "Nothing was written. Read it first, or use edit."
        )
        raise ToolError(f"{problem}\n{remedy}")

    def remember(self, text: str, known: ChangeNotes) -> None:
        if known.is_all:
            self.read_cache.note(self.path, text)
        elif known.notes:
            self.read_cache.forget(self.path)

    async def proposal(self, data: bytes | None) -> ProposedContent:
        return await done(len(data or b""), self.propose, data)
