"""
A job's terminal, which the model and the user share.

Either of them has it, never both. While the user has it, the model neither sees nor sends anything. Text that the program writes meanwhile
is hidden: on the screen and in the log the model sees `[hidden]` instead, for as long as the text is there. Hiding continues after the
hand-back, because the echo of the last keys may still arrive: until the program has read all input, the host has read all output, and the
terminal was quiet for a moment.

A program can be busy for longer than that moment, and a shell can recall a line from its history. Therefore lines that the user typed stay
hidden wherever they appear (`typed.py`). A longer pause does not help: a shell echoes typed-ahead text when its command has ended. Hiding
everything until the model's next input would, but it would also hide the output of `sudo apt install`, for which the user typed a password.
A program can use the input in other ways, such as writing it to a file: that cannot be known here.

The log has the text that left the screen, and the last screen, as the model would have seen them. It does not have the bytes.
"""

import re
import secrets
from collections import deque
from collections.abc import Callable
from itertools import chain

import anyio

from sanderling.errors import ToolError
from sanderling.sandbox.terminals import CommandTerminal
from sanderling.tools.commands.keys import encoded, is_enter, is_interrupt
from sanderling.tools.commands.output import MAX_TOLD_BYTES
from sanderling.tools.commands.screen import APPLICATION_CURSOR, HIDDEN, Row, Screen
from sanderling.tools.commands.typed import TypedText

ROWS, COLUMNS = 24, 80
SETTLE_S = 0.5
QUIET_S, LONG_QUIET_S, FIRST_OUTPUT_S, OUTPUT_S = 0.15, 1.0, 1.0, 3.0
FEED_PAUSE_BYTES, FEED_PAUSE_S = 1 << 18, 0.004
MAX_UNSENT_BYTES = 1 << 20  # of the model's input; the user's is never dropped
MAX_UNREAD_ANSWER_BYTES = 4_096
MAX_LINE_ROWS = 100
MAX_SCROLLBACK = 1_000
RETRY_S = 0.05
LEGEND = f"[{HIDDEN} is what appeared while the user had the terminal, or what the user typed.]"
IS_THE_USERS = "The user has the terminal: nothing was sent. Wait with action screen and wait_s until the user hands it back."
IS_FULL = "Up to 1 MiB of input waits until the program reads it, and this is more: nothing was sent. Send less, or wait."

_SHELL = (
    r"\s*(?:exec\s+)?(?:\S*/)?(?:ba|da|z|k)?sh(?:\s+(?:-i|-l|--norc|--noprofile|--login|-f))*\s*"
)
_TURNING = r"\b(?:cd|pushd|popd|export|declare|typeset|unset|source|alias|set|shopt|eval|exec|trap|hash|enable|function)\b|^\s*\.\s|[=(){}]"
"""Commands that may change the meaning of later lines."""
_RECALLING = r"\t|\bfc\b|(?:^|[;&|])\s*r\b"
"""What makes another line of this one: completion, and the history."""


class Terminal:
    """
    A terminal with its screen. `take` gets text for the log.

    No other terminal has this `mark`, not even in a resumed session. `line` is what the model has typed of a command that has not ended, None
    if it cannot be known. `is_shell`: lines mean what they mean in a new shell.
    """

    def __init__(self, device: CommandTerminal, command: str, take: Callable[[str], None]) -> None:
        self.mark = secrets.token_hex(4)
        self.is_unfinished: Callable[[str], bool] = lambda _: False
        self.line: str | None = ""
        self.is_shell = self._was_shell = re.fullmatch(_SHELL, command) is not None
        self.scrollback = deque[Row](maxlen=MAX_SCROLLBACK)
        self.left_count = 0  # rows that have left the screen
        self.changes = 0
        self.screen = Screen(ROWS, COLUMNS, self._answer, self._leave)
        self._device = device
        self._holders: set[object] = set()
        self._take = take
        self._typed = TypedText()
        self._seen = 0
        self._unsent = bytearray()
        self._users_unsent = 0  # how many bytes of it are the user's, from the beginning
        self._has_models_input = False  # since the user last took it
        self._changed = anyio.Event()
        self._handed_back = anyio.Event()
        self._is_unsent = anyio.Event()
        self._line_rows: list[Row] = []
        self._untaken: list[str] = []
        self._was_hidden = False
        device.resize(ROWS, COLUMNS)

    # --- the program ---

    async def follow(self) -> None:
        """Read what the program writes, until nothing has the terminal open."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send)
            tasks.start_soon(self._settle)
            await self._read()
            tasks.cancel_scope.cancel()

    def end_input(self) -> None:
        """Note that the command has ended."""
        self._device.end()

    def finish(self) -> None:
        """Write the last screen to the log."""
        for row in self.screen.end():
            self._log(row)
        self._keep_line()
        self._give()
        self._holders.clear()
        self.screen.hides = False
        self._note_change()

    async def _read(self) -> None:
        unpaused = 0
        while True:
            try:
                chunk = await self._device.receive()
            except anyio.EndOfStream:
                return
            self.screen.feed(chunk)
            self._give()
            if self._typed:
                self._hide_typed()  # at once: the next keys may erase a part of it, and show the rest
            self._note_change()
            unpaused += len(chunk)
            if unpaused >= FEED_PAUSE_BYTES:
                unpaused = 0
                await anyio.sleep(FEED_PAUSE_S)

    async def _send(self) -> None:
        while True:
            if not self._unsent:
                self._is_unsent = anyio.Event()
                await self._is_unsent.wait()
            sent = self._device.send(self._unsent)
            del self._unsent[:sent]
            self._users_unsent = max(0, self._users_unsent - sent)
            if not sent:  # its buffer is full, which no poll reports
                await anyio.sleep(RETRY_S)

    async def _settle(self) -> None:
        """Show new output to the model again, some time after the user has handed back the terminal."""
        while True:
            await self._handed_back.wait()
            seen = self.changes
            await anyio.sleep(SETTLE_S)
            is_busy = self._unsent or self._device.has_unread or self.screen.is_in_sequence
            if self._handed_back.is_set() and seen == self.changes and not is_busy:
                self._handed_back = anyio.Event()
                self.screen.hides = False
                self._note_change()

    def _put(self, data: bytes) -> None:
        self._unsent += data
        self._is_unsent.set()

    def _answer(self, data: bytes) -> None:
        """Answer the program's question, unless it does not read the answers. A shell may take that for a part of the model's line."""
        self.line = None
        self.is_shell = False
        if len(self._unsent) < MAX_UNREAD_ANSWER_BYTES:
            self._put(data)

    def _leave(self, row: Row) -> None:
        self.scrollback.append(row)
        self.left_count += 1
        self._log(row)

    def _log(self, row: Row) -> None:
        self._line_rows.append(row)
        if not row.is_continued or len(self._line_rows) >= MAX_LINE_ROWS:
            self._keep_line()

    def _keep_line(self) -> None:
        """Keep a line that has left the screen for the log."""
        rows, self._line_rows = self._line_rows, []
        if not rows:
            return
        self._typed.hide_in(rows)
        whole = rows[0]
        if rows[1:]:
            whole = Row()
            whole.cells = list(chain.from_iterable(row.cells for row in rows))
            whole.pens = list(chain.from_iterable(row.pens for row in rows))
        text = whole.visible()
        if not (text == HIDDEN and self._was_hidden):
            self._untaken.append(f"{text}\n")
        self._was_hidden = text == HIDDEN

    def _give(self) -> None:
        """Write these lines to the log: all of a chunk at once, because a write for each would take half of the time."""
        if self._untaken:
            self._take("".join(self._untaken))
            self._untaken.clear()

    def _note_change(self) -> None:
        self.changes += 1
        self._changed.set()
        self._changed = anyio.Event()

    async def next_change(self) -> None:
        await self._changed.wait()

    # --- the model ---

    def type_text(self, text: str) -> None:
        """
        Send text as the model; each line end is Enter.

        Raises:
            ToolError: the user has the terminal, the text has control characters, or the program has not read earlier input.
        """
        if re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text.replace("\r\n", "\n")):
            raise ToolError(
                "`text` contains control characters. Send them with action keys: C-c, Esc, Tab."
            )
        if not text:
            raise ToolError("`text` is empty. Enter alone is action keys: Enter.")
        text = text.replace("\r\n", "\n")
        self._send_models(text.replace("\n", "\r").encode(errors="replace"))
        whole = (self.line or "") + text
        if re.search(_RECALLING, whole, re.MULTILINE):
            self.line = None
        if self.line is None or re.search(_TURNING, whole, re.MULTILINE):
            self.is_shell = False
        if self.line is not None:
            ended, enter, begun = whole.rpartition("\n")
            self.line = self._unended(ended) + begun if enter else whole

    def press(self, keys: str) -> None:
        """
        Send named keys as the model.

        Raises:
            ToolError: the user has the terminal, a key is unknown, or the program has not read earlier input.
        """
        self._send_models(encoded(keys, is_application=self.screen.has(APPLICATION_CURSOR)))
        if is_interrupt(keys):
            self.line = ""
        elif is_enter(keys):
            self.line = None if self.line is None else self._unended(self.line)
        else:
            self.line = None
            self.is_shell = False

    def _unended(self, line: str) -> str:
        """Return the `line` if its command continues after Enter, or might; otherwise ""."""
        continues = line.endswith("\\") or (self._was_shell and self.is_unfinished(line))
        return f"{line}\n" if continues else ""

    def _send_models(self, data: bytes) -> None:
        if self.is_users:
            raise ToolError(IS_THE_USERS)
        if len(self._unsent) + len(data) > MAX_UNSENT_BYTES:
            raise ToolError(IS_FULL)
        self._has_models_input = True
        self._put(data)

    def line_with(self, given: str, *, is_keys: bool) -> str:
        """Return the line that the program would get with this text or these keys; "" if it cannot be known."""
        if self.line is None or (is_keys and not is_enter(given)):
            return ""
        line = self.line if is_keys else self.line + given
        return "" if re.search(_RECALLING, line, re.MULTILINE) else line

    async def wait_for_output(self, wait_s: float) -> None:
        """
        Wait for the answer to the model's input: for some output, then for a pause in it, in which the program has read all input.

        With `wait_s` the pause is longer, as a program may need that long to start.
        """
        before = self.changes
        with anyio.move_on_after(max(wait_s, FIRST_OUTPUT_S)):
            while self.changes == before:
                await self.next_change()
        with anyio.move_on_after(max(wait_s, OUTPUT_S)):
            is_quiet = False
            while not is_quiet:
                with anyio.move_on_after(min(max(wait_s, QUIET_S), LONG_QUIET_S)) as pause:
                    await self.next_change()
                is_quiet = pause.cancelled_caught and not self._device.has_unread

    async def wait_for_news(self, wait_s: float) -> None:
        """Wait until the screen has changed since the model last saw it, and the user does not have the terminal."""
        with anyio.move_on_after(wait_s):
            while self.is_users or self.screen.hides or self.changes == self._seen:
                await self.next_change()

    def shown(self) -> tuple[str, str]:
        """Return the screen for the model, and where its cursor is."""
        self._seen = self.changes
        if self.is_users:
            return "", "the user has the terminal: wait for it with wait_s"
        self._hide_typed()
        rows = self.screen.visible()
        cut = len(rows)
        size = 0
        while cut and (size := size + len(rows[cut - 1].encode()) + 1) <= MAX_TOLD_BYTES:
            cut -= 1
        at = self.screen.cursor
        where = f"row {at.row + 1}"
        if not self.screen.rows[
            at.row
        ].is_hidden:  # its column would be the length of what is hidden
            where += f", column {at.column + 1}"
        size_of_screen = f"{self.screen.row_count}x{self.screen.columns}"
        return "\n".join(rows[cut:]), f"cursor at {where} of {size_of_screen}"

    def _hide_typed(self) -> None:
        line: list[Row] = []
        for row in self.screen.rows:
            line.append(row)
            if not row.is_continued:
                self._typed.hide_in(line)
                line = []
        self._typed.hide_in(line)

    # --- the user ---

    @property
    def is_users(self) -> bool:
        return bool(self._holders)

    def take(self, holder: object) -> None:
        """
        Give the terminal to the user, who may have it in several frontends: each is a holder.

        What the model has typed and the program did not read yet is dropped: it would precede the user's password. The terminal has one
        queue, so what the user typed ahead of the model's input is dropped, too.
        """
        del self._unsent[self._users_unsent :]
        if self._has_models_input:
            self._has_models_input = False
            self._device.drop_input()
        self._holders.add(holder)
        self.screen.hides = True
        if self._handed_back.is_set():
            self._handed_back = anyio.Event()
        self.line = None
        self.is_shell = False
        self._note_change()

    def type(self, data: bytes) -> None:
        """Send the user's keys. They are dropped unless the user has the terminal."""
        if self.is_users:
            self._typed.note(data)
            self._put(data)
            self._users_unsent = len(self._unsent)

    def hand_back(self, holder: object) -> None:
        """Give the terminal to the model, unless another holder has it."""
        if holder not in self._holders:
            return
        self._holders.remove(holder)
        if not self._holders:
            self._typed.keep()
            self._handed_back.set()
            self._note_change()

    def reveal(self) -> None:
        """Show the model what is on the screen now, and what the user has typed."""
        self._typed.forget()
        self.screen.reveal()
        self._note_change()

    def resize(self, rows: int, columns: int) -> None:
        if (rows, columns) != (self.screen.row_count, self.screen.columns):
            self.screen.resize(rows, columns)
            self._give()
            self._device.resize(self.screen.row_count, self.screen.columns)
            self._note_change()
