"""The files of a project as a scenario intends them, to be compared byte by byte with the files that an agent leaves."""

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from eval.score.scenarios import Call

APP = "/app"
BOM = b"\xef\xbb\xbf"
BUILT = frozenset([".git", "__pycache__", ".pytest_cache", ".ruff_cache", "node_modules"])
"""Directories that commands make, or that are not the project's files."""

Content = tuple[bytes, int]
"""The bytes of a file, and its mode."""


def relative(path: str) -> str:
    return path.removeprefix(f"{APP}/").removeprefix("./")


def read_tree(root: Path) -> dict[str, Content]:
    """Return the regular files below `root` by their paths."""
    found = dict[str, Content]()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if BUILT.isdisjoint(name.parts) and stat.S_ISREG(mode := path.lstat().st_mode):
            try:
                found[str(name)] = (path.read_bytes(), stat.S_IMODE(mode))
            except OSError:
                found[str(name)] = (b"", stat.S_IMODE(mode))
    return found


class Intended:
    """The files as they should be after each call. Line endings, byte order mark and mode are those that the file had."""

    def __init__(self, root: Path) -> None:
        self.start = read_tree(root)
        self.files = dict(self.start)
        self.touched = set[str]()

    def text(self, path: str) -> str:
        """Return the text of a file as a model sees it, or nothing if there is no such file."""
        data, _ = self.files.get(relative(path), (b"", 0))
        return decoded(data, "replace")

    def after(self, call: Call) -> Content | None:
        """Return what the file should be after the call; None if the call does not fit."""
        data, mode = self.files.get(relative(call.path), (b"", 0o644))
        text = decoded(data, "surrogateescape")
        if call.action == "write":
            text = call.text
        elif text.count(call.old) != 1:
            return None
        else:
            text = text.replace(call.old, call.new)
        return (as_before(text, data), mode)

    def apply(self, call: Call) -> None:
        if call.action in ("edit", "write") and (content := self.after(call)):
            self.settle(relative(call.path), content)

    def settle(self, path: str, content: Content) -> None:
        self.files[path] = content
        self.touched.add(path)

    def adopt(
        self, before: dict[str, Content], now: dict[str, Content], but: Iterable[str]
    ) -> None:
        """Take over what a command of the scenario has changed."""
        kept = set(but)
        for path in (before.keys() | now.keys()) - kept:
            if before.get(path) != now.get(path):
                if path in now:
                    self.files[path] = now[path]
                else:
                    self.files.pop(path, None)


def text_in(files: Mapping[str, Content], path: str) -> str | None:
    """Return the text of a file as a command shows it, with a byte order mark; None if there is no such file."""
    if content := files.get(relative(path)):
        return content[0].decode(errors="replace").replace("\r\n", "\n")
    return None


def decoded(data: bytes, errors: str) -> str:
    return data.removeprefix(BOM).decode(errors=errors).replace("\r\n", "\n")


def fault_of(now: Content | None, wanted: Content) -> str:
    """Say how a file differs from what it should be."""
    if now is None:
        return "is missing"
    if now[0] != wanted[0]:
        plain, plain_wanted = (
            each[0].removeprefix(BOM).replace(b"\r\n", b"\n") for each in (now, wanted)
        )
        if plain.rstrip(b"\n") != plain_wanted.rstrip(b"\n"):
            return "content"
        if plain != plain_wanted:
            return "last line break"
        has_mark = now[0].startswith(BOM) == wanted[0].startswith(BOM)
        return "line endings" if has_mark else "byte order mark"
    return "mode"


def as_before(text: str, data: bytes) -> bytes:
    """Return the text with the line endings and the byte order mark of `data`."""
    if b"\r\n" in data:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    return (BOM if data.startswith(BOM) else b"") + text.encode(errors="surrogateescape")
