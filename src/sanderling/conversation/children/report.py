"""The report of a child: what its parent's model gets, also of a child that was stopped, has failed or was killed."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from sanderling.conversation.budget import dollars
from sanderling.paths import open_plain
from sanderling.protocol.events import ChangedLines, ChildState
from sanderling.protocol.messages import Message, TextBlock
from sanderling.text import counted, printable, visible_line
from sanderling.tools.outcome import Outcome

MAX_TEXT_BYTES = 4096
MAX_REFERENCES, MAX_FILES = 20, 50
MAX_SEARCHED_BYTES, CHUNK_BYTES = 8 << 20, 1 << 20  # of a file for a line
CUT = "[Cut here. The rest is in the session {id}.]"
SHORT_OF = "[The beginning is left out: see the session {id}.]"
WORKTREE = (
    "{name}: the files were changed there, not in the project; the user reviews and applies them"
)
PLACE = "Its changes are in the worktree {name}: `:AgentWorktrees` in Neovim, or `sanderling worktrees`, shows and applies them."
NO_TEXT = "(It has written nothing.)"
_REFERENCE = r"(?<![\w./~-])((?:~?/|\.{1,2}/)?[\w@+.-]+(?:/[\w@+.-]+)*):(\d{1,7})\b"
_IN_WORDS: dict[ChildState, str] = {
    "partial": "partial result",
    "budget": "budget used up",
    "timeout": "out of time",
    "error": "failed",
}
"""The states on the screen, where they are not words: as in the list of sessions."""
_FAILED: tuple[ChildState, ...] = ("denied", "error")


class Report(msgspec.Struct, frozen=True):
    """
    The work of a child.

    `why` is the reason of its end, unless it is done. `tokens` are all that the API has reported; `cost_usd` is None if a price is unknown.
    """

    id: str
    name: str
    state: ChildState
    text: str
    why: str = ""
    references: tuple[str, ...] = ()
    changed: tuple[ChangedLines, ...] = ()
    tokens: int = 0
    cost_usd: float | None = 0.0
    worktree: str = ""

    def outcome(self) -> Outcome:
        return Outcome(
            content=self.content(),
            summary=self.summary(),
            detail="\n\n".join(filter(None, (self.why, self.text, self._place()))),
            filetype="markdown",
            is_error=self.state in _FAILED,
            is_denied=self.state == "denied",
            changed=self.changed,
        )

    def _place(self) -> str:
        """Return where its changes are, if they are not in the project: the notice about it is not in the history."""
        return PLACE.format(name=self.worktree) if self.worktree and self.changed else ""

    def summary(self) -> str:
        files = f" · {counted(len(self.changed), 'file')}" if self.changed else ""
        state = _IN_WORDS.get(self.state, self.state)
        return f"{state} · {self.tokens:,} tokens · {self._cost()}{files}"

    def content(self) -> str:
        names = [each.path for each in self.changed]
        more = f" and {len(names) - MAX_FILES} more" if len(names) > MAX_FILES else ""
        facts = {
            "state": self.state,
            "reason": " ".join(self.why.split()),
            "session": self.id,
            "tokens": f"{self.tokens:,}",
            "cost": self._cost(),
            "files changed": ", ".join(names[:MAX_FILES]) + more or "none",
            "worktree": WORKTREE.format(name=self.worktree) if self.worktree else "",
            "references": ", ".join(self.references),
        }
        # A file's name can hold line ends, and would be a fact of its own, or the end of the facts.
        lines = (f"{name}: {visible_line(value)}" for name, value in facts.items() if value)
        return "\n".join([*lines, "", self.text or NO_TEXT])

    def _cost(self) -> str:
        return dollars(self.cost_usd) if self.cost_usd is not None else "unknown"


def said(history: Iterable[Message], *, is_done: bool, partial: str = "") -> str:
    """Return the model's last message if it `is_done`, else all that it has written, including a `partial` answer."""
    texts = [_text_of(each) for each in history if each.role == "assistant"]
    texts = [each for each in (*texts, partial.strip()) if each]
    return "\n\n".join(texts[-1:] if is_done else texts)


def _text_of(message: Message) -> str:
    return "".join(each.text for each in message.content if isinstance(each, TextBlock)).strip()


def cut(text: str, child_id: str, *, is_done: bool) -> str:
    """Shorten a text to 4 KB, at a line. Of unfinished work the end is kept, which is the newest."""
    data = printable(text).encode()
    if len(data) <= MAX_TEXT_BYTES:
        return data.decode()
    note = (CUT if is_done else SHORT_OF).format(id=child_id)
    room = MAX_TEXT_BYTES - len(note.encode()) - 1
    part = data[:room] if is_done else data[-room:]
    kept = part.decode(errors="ignore")
    if is_done:
        return "\n".join((kept.rpartition("\n")[0] or kept, note))
    return "\n".join((note, kept.partition("\n")[2] or kept))


def references_in(text: str, project: str) -> tuple[str, ...]:
    """Return the places (`path:line`) in `text` whose files exist in the project. Looks at files."""
    found = dict[str, None]()
    root = Path(project).resolve()
    for match in re.finditer(_REFERENCE, text):
        path, line = match[1], int(match[2])
        if len(found) == MAX_REFERENCES:
            break
        if _exists(root, path, line):
            found[f"{path}:{line}"] = None
    return tuple(found)


def _exists(root: Path, path: str, line: int) -> bool:
    try:
        file = (root / path).resolve()
        return line > 0 and file.is_relative_to(root) and _has_line(file, line)
    except OSError:
        return False


def _has_line(file: Path, line: int) -> bool:
    """Return whether a regular file has this line, in a part that is quickly read: a command can make a line of a terabyte."""
    begun, last = 0, b"\n"
    with open_plain(file) as data:
        for _ in range(MAX_SEARCHED_BYTES // CHUNK_BYTES):
            chunk = data.read(CHUNK_BYTES)
            begun += (last == b"\n" and chunk != b"") + chunk[:-1].count(b"\n")
            if begun >= line or not chunk:
                break
            last = chunk[-1:]
    return begun >= line


def merged(changed: Sequence[ChangedLines]) -> tuple[ChangedLines, ...]:
    """Return the changes with one entry for each file."""
    by_path = dict[str, ChangedLines]()
    for each in changed:
        before = by_path.get(each.path, ChangedLines(each.path, 0, 0))
        by_path[each.path] = ChangedLines(
            each.path, before.added + each.added, before.removed + each.removed
        )
    return tuple(by_path.values())
