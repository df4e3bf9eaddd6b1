"""
Instructions: what the person and the project want the model to keep to, from `AGENTS.md` and its kin.

The person's own come first, then those of the project's root, then those of each directory down to where the model works. They
are told at the end of a new message, once, and again when they change: what was said before stays as it was, so that the API's
cache of it holds.
"""

import posixpath
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from sanderling.project.trust.imports import (
    MAX_IMPORT_DEPTH,
    Import,
    imported_path,
    lines_with_imports,
)
from sanderling.project.trust.trust import INSTRUCTION_NAMES, OwnFiles, TellingFiles, Trust
from sanderling.protocol.requests import TrustFile

MAX_TOLD_BYTES = 32 * 1024
OWN, ROOT = "", "."  # scopes; any other is a directory of the project's


class Section(msgspec.Struct, frozen=True):
    """
    Instructions for the files below the directory `scope`, whole, with what they import; `OWN` are those for all projects.

    `path` is the file they stand in, `digest` changes with the text.
    """

    scope: str
    path: str
    text: str
    digest: str


class Told(msgspec.Struct, frozen=True):
    """The instructions that the model has been told for a scope; no `digest`: it is to be told again."""

    path: str
    digest: str
    size_bytes: int


UNTOLD = Told("", "", 0)


class Instructions:
    """The instructions for the model: what holds, and what it has been told."""

    def __init__(self, trust: Trust, own: OwnFiles) -> None:
        self._trust = trust
        self._own = own
        self._gathered: dict[str, _Gathered] = {}
        self._told: dict[str, Told] = {}
        self._ignored: tuple[str, ...] | None = None

    def news(self, paths: Iterable[str]) -> str:
        """
        The instructions for these files that the model has not been told, or not as it is now; "" if there is nothing.

        It counts as told from here on. What was told for other files is looked at, too. It costs a few `stat` for each directory.
        """
        gathered = self._look(paths)
        return "\n\n".join(filter(None, map(self._note, gathered, gathered.values())))

    def _look(self, paths: Iterable[str]) -> "dict[str, _Gathered]":
        scopes = sorted(self._scopes(paths) | self._told.keys(), key=_depth)
        gathered = {scope: self._gather(scope) for scope in scopes}
        ignored = [path for found in gathered.values() for path in found.ignored]
        self._ignored = tuple(dict.fromkeys(ignored))
        return gathered

    def ignored(self) -> tuple[str, ...]:
        """The files that `news` would have used last time, if the person had trusted them; before, those of the root."""
        if self._ignored is None:
            self._look([])
        return self._ignored or ()

    def state(self) -> dict[str, Any]:
        """All that the model has been told, as plain data for `restore`."""
        return msgspec.to_builtins(self._told)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there. What is no state counts as nothing told."""
        try:
            self._told = msgspec.convert(state, dict[str, Told])
        except msgspec.ValidationError:
            self._told = {}

    def forget(self) -> None:
        """The model is not shown any more what it was told: tell it all again."""
        self._told = dict.fromkeys(self._told, UNTOLD)

    def _scopes(self, paths: Iterable[str]) -> set[str]:
        scopes = {OWN, ROOT}
        for directory in {posixpath.dirname(path) for path in paths}:
            scope = self._scope_of(directory)
            while scope not in scopes:
                scopes.add(scope)
                scope = posixpath.dirname(scope) or ROOT
        return scopes

    def _scope_of(self, directory: str) -> str:
        """The name of the directory relative to the project; the root for one outside."""
        project = self._trust.project
        absolute = posixpath.normpath(posixpath.join(project, directory))
        return absolute[len(project) + 1 :] if absolute.startswith(f"{project}/") else ROOT

    def _gather(self, scope: str) -> "_Gathered":
        if scope not in self._gathered or not self._gathered[scope].is_current():
            self._gathered[scope] = _Gathered(scope, self._own if scope == OWN else self._trust)
        return self._gathered[scope]

    def _note(self, scope: str, found: "_Gathered") -> str:
        told, section = self._told.get(scope, UNTOLD), found.section
        if section is None:
            return self._take_back(scope, told, found)
        if told.digest == section.digest:
            return ""
        others = sum(other.size_bytes for key, other in self._told.items() if key != scope)
        text = _cut(section.text, MAX_TOLD_BYTES - others)
        self._told[scope] = Told(section.path, section.digest, len(text.encode()))
        replaced = f" They replace those from {told.path} above." if told.digest else ""
        return f"{_heading(section)}{replaced}\n\n{text}"

    def _take_back(self, scope: str, told: Told, found: "_Gathered") -> str:
        """Find what to take back: what was told had been trusted, and holds until the file is gone, or is trusted in its new form."""
        if found.ignored or not self._told.pop(scope, UNTOLD).digest:
            return ""
        return f"[The instructions from {told.path} hold no longer.]"


class _Gathered:
    """The text of the files of one scope, as they were when it was made; `ignored` are those that are not trusted."""

    def __init__(self, scope: str, files: TellingFiles) -> None:
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
                self.section = Section(scope, file.path, text, digest) if text else None
                return
            if file and not self.ignored:
                self.ignored.append(file.path)

    def _look(self, path: str) -> TrustFile | None:
        self._seen[path] = self._files.look(path)
        return self._seen[path]

    def _include(self, path: str, file: TrustFile, depth: int) -> str:
        """The text of the file, with what it imports in place of a line that says only that, else below the line."""
        self._included.add(path)
        lines = list[str]()
        for line, imports in lines_with_imports(file.text):
            texts = [self._imported(path, found, depth + 1) for found in imports]
            is_replaced = any(found.is_alone for found in imports)
            lines += filter(None, texts) if is_replaced else (line, *filter(None, texts))
        return "\n".join(lines)

    def _imported(self, importing: str, found: Import, depth: int) -> str:
        """The text that the import stands for. One that fails is left as it is, with the reason if it can be nothing but an import."""
        text, problem = self._try_import(imported_path(importing, found.mention), depth)
        if problem and found.is_alone:
            return f"@{found.mention} [not included: {problem}]"
        return text

    def _try_import(self, path: str | None, depth: int) -> tuple[str, str]:
        """The text, or why there is none."""
        if path is None:
            return "", "it lies outside"
        if path in self._included:
            return "", "it is included already"
        if depth > MAX_IMPORT_DEPTH:
            return "", f"more than {MAX_IMPORT_DEPTH} imports lead to it"
        file = self._look(path)
        if file is None:
            return "", "there is no such file"
        if file.state != "trusted":
            self.ignored.append(file.path)
            return "", "the person has not trusted it"
        return self._include(path, file, depth).strip(), ""


def _depth(scope: str) -> tuple[int, str]:
    """The person's own first, then from the root downwards."""
    return (0 if scope == OWN else 1 if scope == ROOT else 2 + scope.count("/"), scope)


def _heading(section: Section) -> str:
    if section.scope == OWN:
        return "Instructions of the person for all projects:"
    if section.scope == ROOT:
        return f"Instructions of this project, from {section.path}:"
    return f"Instructions of this project for files below {section.scope}/, from {section.path}:"


def _cut(text: str, room_bytes: int) -> str:
    """The first lines that there is room for, and a line that says what is missing."""
    data = text.encode()
    if len(data) <= room_bytes:
        return text
    kept = data[: max(0, room_bytes)].decode(errors="ignore")
    kept = kept[: kept.rfind("\n") + 1] or kept
    size = len(kept.encode())
    return f"{kept.rstrip()}\n[… cut: {size:,} of {len(data):,} bytes are shown]".lstrip()
