"""The log of a server, apart from the protocol: its beginning and end, without the secrets that the server was given."""

from collections.abc import Iterable
from contextlib import suppress

import anyio

from sanderling.sandbox.execution_environment import RunningServer
from sanderling.text import shortened, signal_name, visible_prose
from sanderling.tools.commands.last_words import reason_in
from sanderling.tools.commands.output import Ends, ScreenText, follow

MAX_LAST_CHARS = 200
MAX_REASON_CHARS = 400
MIN_SECRET_CHARS = 8  # a shorter value may be part of any word


def ending(status: int, reason: str = "", advice: str = "") -> str:
    """Describe how a server has ended, with the reason that it gave and what to do about it."""
    hint = (f": {reason}" if reason else "") + (f" ({advice})" if advice else "")
    if status < 0:
        return f"it was ended by {signal_name(-status)}{hint}"
    return f"it ended{hint}" if status == 0 else f"it ended with exit status {status}{hint}"


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
        assert server.stderr
        with suppress(anyio.ClosedResourceError):
            await follow(server.stderr, ScreenText(), self.add, lambda _: None)

    def last_line(self) -> str:
        return visible_prose(self.text().rstrip().rpartition("\n")[2][:MAX_LAST_CHARS])

    def reason(self) -> str:
        """Return the reason for its end, or "" if it gave none."""
        return shortened(visible_prose(reason_in(self.text())), MAX_REASON_CHARS)

    def text(self) -> str:
        return self.redacted(self._ends.text())

    def redacted(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[hidden]")
        return text
