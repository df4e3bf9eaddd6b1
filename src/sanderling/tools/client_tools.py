"""Tools that a session's client runs, on its own machine."""

from collections.abc import Sequence
from typing import Protocol

from sanderling.tools.base import Tool


class ClientTools(Protocol):
    """The tools of a session, run by its client."""

    async def tools(self) -> Sequence[Tool]: ...

    def take_notes(self) -> list[str]:
        """Return the client's notes to the model, and forget them."""
        ...

    def tell_again(self) -> None:
        """Make `take_notes` return everything again, because the model no longer sees it."""
        ...
