"""The log of a server, apart from the protocol: its beginning and end, without the secrets that the server was given."""

from collections.abc import Iterable
from contextlib import suppress

import anyio

from sanderling.sandbox.execution_environment import RunningServer
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from sanderling.text import signal_name, visible_prose
from sanderling.tools.commands.output import Ends, ScreenText, follow

MAX_LAST_CHARS = 200
MIN_SECRET_CHARS = 8  # a shorter value may be part of any word


def ending(status: int, last_words: str = "", *, is_confined: bool = True) -> str:
    """Describe how a server has ended, with its last words."""
    hint = f": {last_words}" if last_words else ""
    if status < 0:
        return f"it was ended by {signal_name(-status)}{hint}"
    if status == 0:
        return "it ended"
    if status in (EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE) and is_confined:
        hint += (
            " (what its program needs outside the project and the system must be in its `paths`)"
        )
    return f"it ended with exit status {status}{hint}"


class ServerLog:
    """The log of one server. `secrets` are values that it must not show."""

    def __init__(self) -> None:
        self._ends = Ends()
        self._secrets: tuple[str, ...] = ()

    def hide(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(each for each in secrets if len(each) >= MIN_SECRET_CHARS)

    def add(self, chunk: bytes) -> None:
        self._ends.add(chunk)

    async def read(self, server: RunningServer) -> None:
        """Add the server's standard error, until that ends."""
        assert server.stderr
        with suppress(anyio.ClosedResourceError):
            await follow(server.stderr, ScreenText(), self.add, lambda _: None)

    def last_line(self) -> str:
        return visible_prose(self.text().rstrip().rpartition("\n")[2][:MAX_LAST_CHARS])

    def last_line_about(self, word: str) -> str:
        """Return the last line with `word` in it, else the last one: a runtime may end with a line about its version."""
        found = [line for line in self.text().splitlines() if word in line]
        return visible_prose(found[-1].strip()[:MAX_LAST_CHARS]) if found else self.last_line()

    def text(self) -> str:
        return self.redacted(self._ends.text())

    def redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return text
