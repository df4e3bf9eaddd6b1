"""The log of a server, what it says beside the protocol: the beginning and the end of it, without the secrets that it was given."""

from collections.abc import Iterable
from contextlib import suppress

import anyio

from sanderling.commands.output import Ends, ScreenText, follow
from sanderling.sandbox.ground import Serving
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from sanderling.text import signal_name, visible_prose

MAX_LAST_CHARS = 200
MIN_SECRET_CHARS = 8  # what is shorter may be a part of any word


def ending(status: int, last_words: str = "", *, is_confined: bool = True) -> str:
    """The end of a server in words, with the last that it said."""
    hint = f": {last_words}" if last_words else ""
    if status < 0:
        return f"it was ended by {signal_name(-status)}{hint}"
    if status == 0:
        return "it ended"
    if status in (EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE) and is_confined:
        hint += (
            " (what its program needs outside of the project and the system must be in its `paths`)"
        )
    return f"it ended with exit status {status}{hint}"


class ServerLog:
    """The log of one server. `secrets` are values that must not be seen in it."""

    def __init__(self) -> None:
        self._ends = Ends()
        self._secrets: tuple[str, ...] = ()

    def hide(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(each for each in secrets if len(each) >= MIN_SECRET_CHARS)

    def add(self, chunk: bytes) -> None:
        self._ends.add(chunk)

    async def read(self, server: Serving) -> None:
        """Add what the server says to its standard error, until that ends."""
        assert server.stderr
        with suppress(anyio.ClosedResourceError):
            await follow(server.stderr, ScreenText(), self.add, lambda _: None)

    def last_line(self) -> str:
        return visible_prose(self.text().rstrip().rpartition("\n")[2][:MAX_LAST_CHARS])

    def last_line_about(self, word: str) -> str:
        """The last line with `word` in it, else the last one: a runtime that ends may sign with its version."""
        found = [line for line in self.text().splitlines() if word in line]
        return visible_prose(found[-1].strip()[:MAX_LAST_CHARS]) if found else self.last_line()

    def text(self) -> str:
        return self.redacted(self._ends.text())

    def redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return text
