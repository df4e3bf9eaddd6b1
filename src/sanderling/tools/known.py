"""A change against what the model knows of the file: it must not replace what it has not seen, and hears what others have changed."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sanderling.errors import ToolError
from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.seen import Seen, Sight
from sanderling.tools.texts import difference, done, text_of

RENUMBERED = "Its lines may have other numbers now: nothing was changed."


class Proposal(NamedTuple):
    """The bytes that a file is to hold; notes tell the model how it came to that."""

    data: bytes
    notes: tuple[str, ...] = ()


class Known(NamedTuple):
    """The notes on others' changes that the model is given; `is_all`: then it knows all of the file."""

    notes: tuple[str, ...]
    is_all: bool


class Knowledge(msgspec.Struct, frozen=True):
    """The model's knowledge of the file `path`, and what it proposes: see `Change`."""

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
        """The proposal for a file, after a look at whether it is still the one that the model knows."""
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
            note = f"{self.name} has changed since you read it; what exactly is no longer known: read it again."
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
            problem = f"{self.name} exists, and you have not read it. This is what would change:\n{part.text}"
            known = Known((), is_all=part.is_whole)
        else:
            problem = known.notes[0]
        self.remember(old, known)
        remedy = (
            "Nothing was written. If it is to be replaced all the same, call write again."
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
