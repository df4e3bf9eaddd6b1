"""
Instructions of the user and the project for the model, from `AGENTS.md` and similar files.

The user's own come first, then those of the project's root, then those of each directory down to where the model works. They are sent
once, at the end of a new message, and again when they change. Earlier messages stay unchanged, so that the API's cache stays valid.
"""

import posixpath
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from sanderling.project.trust.trust import (
    INSTRUCTION_NAMES,
    MAX_IMPORT_DEPTH,
    Import,
    InstructionFiles,
    OwnFiles,
    Trust,
    imported_path,
    lines_with_imports,
)
from sanderling.protocol.requests import TrustFile

MAX_SENT_BYTES = 32 * 1024
OWN, ROOT = "", "."  # scopes; any other is a directory of the project


class Section(msgspec.Struct, frozen=True):
    """
    Instructions for the files below the directory `scope`, whole, with what they import; those in `OWN` are for all projects.

    `path` is the file that contains them, so that the model can propose a change: of the user's own file it is absolute. `digest` changes
    with the text.
    """

    scope: str
    path: str
    text: str
    digest: str


class SentInstructions(msgspec.Struct, frozen=True):
    """The instructions that the model was sent for a scope. Without a `digest` they must be sent again."""

    path: str
    digest: str
    size_bytes: int


UNSENT = SentInstructions("", "", 0)


class Instructions:
    """The instructions for the model: in effect, and already sent."""

    def __init__(self, trust: Trust, own: OwnFiles) -> None:
        self._trust = trust
        self._own = own
        self._gathered: dict[str, _Gathered] = {}
        self._sent: dict[str, SentInstructions] = {}
        self._ignored: tuple[str, ...] | None = None

    def news(self, paths: Iterable[str]) -> str:
        """
        Return the instructions for these files that were not sent yet, or have changed since; "" for nothing.

        They count as sent from now on. Instructions sent for other files are checked, too. Costs a few `stat` calls per directory.
        """
        gathered = self._look(paths)
        return "\n\n".join(filter(None, map(self._note, gathered, gathered.values())))

    def _look(self, paths: Iterable[str]) -> "dict[str, _Gathered]":
        scopes = sorted(self._scopes(paths) | self._sent.keys(), key=_depth)
        gathered = {scope: self._gather(scope) for scope in scopes}
        ignored = [path for found in gathered.values() for path in found.ignored]
        self._ignored = tuple(dict.fromkeys(ignored))
        return gathered

    def ignored(self) -> tuple[str, ...]:
        """Return the files that the last `news` skipped because they are not trusted; before the first call, the files of the root."""
        if self._ignored is None:
            self._look([])
        return self._ignored or ()

    def state(self) -> dict[str, Any]:
        return msgspec.to_builtins(self._sent)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Invalid data counts as nothing sent."""
        try:
            self._sent = msgspec.convert(state, dict[str, SentInstructions])
        except msgspec.ValidationError:
            self._sent = {}

    def forget(self) -> None:
        """Send everything again, because the model no longer sees what it was sent."""
        self._sent = dict.fromkeys(self._sent, UNSENT)

    def _scopes(self, paths: Iterable[str]) -> set[str]:
        scopes = {OWN, ROOT}
        for directory in {posixpath.dirname(path) for path in paths}:
            scope = self._scope_of(directory)
            while scope not in scopes:
                scopes.add(scope)
                scope = posixpath.dirname(scope) or ROOT
        return scopes

    def _scope_of(self, directory: str) -> str:
        project = self._trust.project
        absolute = posixpath.normpath(posixpath.join(project, directory))
        return absolute[len(project) + 1 :] if absolute.startswith(f"{project}/") else ROOT

    def _gather(self, scope: str) -> "_Gathered":
        if scope not in self._gathered or not self._gathered[scope].is_current():
            self._gathered[scope] = _Gathered(scope, self._own if scope == OWN else self._trust)
        return self._gathered[scope]

    def _note(self, scope: str, found: "_Gathered") -> str:
        sent, section = self._sent.get(scope, UNSENT), found.section
        if section is None:
            return self._take_back(scope, sent, found)
        if sent.digest == section.digest:
            return ""
        others = sum(other.size_bytes for key, other in self._sent.items() if key != scope)
        text = _cut(section.text, MAX_SENT_BYTES - others)
        self._sent[scope] = SentInstructions(section.path, section.digest, len(text.encode()))
        replaced = f" They replace those from {sent.path} above." if sent.digest else ""
        return f"{_heading(section)}{replaced}\n\n{text}"

    def _take_back(self, scope: str, sent: SentInstructions, found: "_Gathered") -> str:
        """Withdraw what was sent. It had been trusted, and applies until the file is gone or trusted in its new form."""
        if found.ignored or not self._sent.pop(scope, UNSENT).digest:
            return ""
        return f"[The instructions from {sent.path} no longer apply.]"


class _Gathered:
    """The instructions of one scope, as the files were when this was made; `ignored` are the untrusted files."""

    def __init__(self, scope: str, files: InstructionFiles) -> None:
        self.section: Section | None = None
        self.ignored: list[str] = []
        self._files = files
        self._seen: dict[str, TrustFile | None] = {}
        self._included = set[str]()
        self._read_first_of(scope)

    def is_current(self) -> bool:
        return all(self._files.look(path) == file for path, file in self._seen.items())

    def _read_first_of(self, scope: str) -> None:
        directory = "" if scope in (OWN, ROOT) else f"{scope}/"
        for name in ("AGENTS.md",) if scope == OWN else INSTRUCTION_NAMES:
            file = self._look(directory + name)
            if file and file.state == "trusted":
                text = self._include(directory + name, file, 0).strip()
                digest = sha256(text.encode()).hexdigest()[:16]
                path = f"{self._files.root}/{name}" if scope == OWN else file.path
                self.section = Section(scope, path, text, digest) if text else None
                return
            if file and not self.ignored:
                self.ignored.append(file.path)

    def _look(self, path: str) -> TrustFile | None:
        self._seen[path] = self._files.look(path)
        return self._seen[path]

    def _include(self, path: str, file: TrustFile, depth: int) -> str:
        """Return the text of the file, with its imports: each replaces its line if it is alone there, else it follows the line."""
        self._included.add(path)
        lines = list[str]()
        for line, imports in lines_with_imports(file.text):
            texts = [self._imported(path, found, depth + 1) for found in imports]
            is_replaced = any(found.is_alone for found in imports)
            lines += filter(None, texts) if is_replaced else (line, *filter(None, texts))
        return "\n".join(lines)

    def _imported(self, importing: str, found: Import, depth: int) -> str:
        """Return the imported text. A failed import is left as it is, with the reason if nothing else is on its line."""
        text, problem = self._try_import(imported_path(importing, found.mention), depth)
        if problem and found.is_alone:
            return f"@{found.mention} [not included: {problem}]"
        return text

    def _try_import(self, path: str | None, depth: int) -> tuple[str, str]:
        """Return the text, or why it is missing."""
        if path is None:
            return "", "it is outside"
        if path in self._included:
            return "", "it is included already"
        if depth > MAX_IMPORT_DEPTH:
            return "", f"imports are nested more than {MAX_IMPORT_DEPTH} deep"
        file = self._look(path)
        if file is None:
            return "", "there is no such file"
        if file.state != "trusted":
            self.ignored.append(file.path)
            return "", "the user has not trusted it"
        return self._include(path, file, depth).strip(), ""


def _depth(scope: str) -> tuple[int, str]:
    """Sort the user's own first, then from the root downwards."""
    return (0 if scope == OWN else 1 if scope == ROOT else 2 + scope.count("/"), scope)


def _heading(section: Section) -> str:
    if section.scope == OWN:
        return f"Instructions of the user for all projects, from {section.path}:"
    if section.scope == ROOT:
        return f"Instructions of this project, from {section.path}:"
    return f"Instructions of this project for files below {section.scope}/, from {section.path}:"


def _cut(text: str, room_bytes: int) -> str:
    """Return the first lines that fit, and a line that says how much is missing."""
    data = text.encode()
    if len(data) <= room_bytes:
        return text
    kept = data[: max(0, room_bytes)].decode(errors="ignore")
    kept = kept[: kept.rfind("\n") + 1] or kept
    size = len(kept.encode())
    return f"{kept.rstrip()}\n[… cut: {size:,} of {len(data):,} bytes are shown]".lstrip()
