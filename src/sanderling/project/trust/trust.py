"""
Trust: a project's files that would steer the agent are ignored until the user has seen exactly these bytes.

These files are its instructions with their imports, `.sanderling.toml`, `.mcp.json`, hooks, skills, commands and roles, also the skills
of the directories above it in the same repository. What the user has trusted is stored as a SHA-256 per file below the state directory,
which must be outside the project. A file is hashed and decoded from one read, so exactly the trusted bytes are used; a file that changes
is ignored again. Files that cannot be shown whole (larger than `MAX_FILE_BYTES`, not regular, or links out of the project) are never
trusted. In a project that contains the user's HOME nothing is trusted, because any download there could be one of these files.
"""

import os
import posixpath
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from sanderling.config.project import PROJECT_FILE, allowed_by
from sanderling.errors import ConfigError
from sanderling.paths import leads_through
from sanderling.project.trust.reading import (
    Content,
    TrustReader,
    find_files,
    find_markdown,
    find_skills,
    visible_name,
)
from sanderling.project.trust.store import TrustStore
from sanderling.protocol.requests import TrustFile, TrustPage

INSTRUCTION_NAMES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md")
PROJECT_DIRECTORIES = (".sanderling", ".agents", ".claude")
"""Directories with skills, commands and roles, the strongest first."""
Kind = Literal["skills", "commands", "agents"]
_SHOWN_KINDS: tuple[Kind, ...] = ("commands", "agents", "skills")
MCP_FILE = ".mcp.json"
HOOK_FILES = (".claude/settings.json", ".codex/hooks.json")
"""Files with hooks, in the formats of Claude Code and Codex."""
MAX_SHOWN_FILES = 500
MAX_SHOWN_CHARS = 4 << 20
MAX_IMPORT_DEPTH = 5
MAX_FOLLOWED_BYTES = 100_000  # a question shows lines of that length whole

_FENCE = r" {0,3}(`{3,}|~{3,})"
# Not slower on a long line of backticks than on others.
_SPAN = r"(?<!`)(`+)[^`]+\1"
_MENTION = r"(?<![^\s(])@([^\s`<>\"'()]+)"
_BULLET = r"\s*(?:[-*+]\s+)?"
_INDENTED = r"(?: {4}|\t)\s*(?![-*+\s])"  # code, unless it is a nested list


class Import(msgspec.Struct, frozen=True):
    """An import. `is_alone`: nothing else is on its line, so it can only be meant as an import."""

    mention: str
    is_alone: bool


def lines_with_imports(text: str) -> Iterator[tuple[str, tuple[Import, ...]]]:
    """Yield each line of `text` with its imports; code has no imports."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(_FENCE, line)
        if fence:
            is_end = found and found[1].startswith(fence) and not line[found.end() :].strip()
            fence = "" if is_end else fence
            yield line, ()
        elif found:
            fence = found[1]
            yield line, ()
        else:
            yield line, _imports(line)


def _imports(line: str) -> tuple[Import, ...]:
    if "@" not in line or re.match(_INDENTED, line):
        return ()
    mentions = [found.rstrip(".,;:!?") for found in re.findall(_MENTION, re.sub(_SPAN, "`", line))]
    alone = re.sub(_BULLET, "", line, count=1).rstrip()
    return tuple(Import(name, alone == f"@{name}") for name in mentions if name)


def imported_path(importing: str, mention: str) -> str | None:
    """Return the path that `mention` means in the file `importing`, both relative to the same root; None if it leads out of that."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(importing), mention))
    is_outside = path.startswith(("/", "~", "../")) or path in (".", "..")
    return None if is_outside else path


class InstructionFiles(Protocol):
    """A directory whose files may instruct the model."""

    @property
    def root(self) -> str:
        """The directory's absolute path."""
        ...

    def look(self, path: str) -> TrustFile | None:
        """Return the current file at a path relative to the directory; None if it does not exist."""
        ...


class Trust:
    """
    The user's trust in a project's files. `project` is the absolute path of its root.

    In a worktree, that is the worktree's; `whose` is then the project, for which the user's trust is stored.
    """

    def __init__(self, state_dir: str, project: str, whose: str = "") -> None:
        self.whose = os.path.realpath(whose or project)
        self.project = str(Path(project))
        self._root = Path(os.path.realpath(project))
        self._reader = TrustReader(str(self._root))
        self._repository = _repository_around(self._root)
        self._reader_above = TrustReader(str(self._repository))
        self._store = TrustStore(state_dir, self.whose)
        self._asked_for = set[str]()
        self.refusal = _refusal(self._root, self._store.path)

    @property
    def root(self) -> str:
        return str(self._root)

    @property
    def repository(self) -> str:
        """The directory of the repository around the project, or the project itself."""
        return str(self._repository)

    @property
    def problem(self) -> str:
        """A sentence for the user if the store cannot be read; then nothing is trusted."""
        return self._store.problem

    @property
    def is_given(self) -> bool:
        """Whether the user trusts a file of the project as it is now, and so the project."""
        return any(self.read(path) is not None for path in tuple(self._store.hashes()))

    def look(self, path: str) -> TrustFile | None:
        """
        Return the current file at a path relative to the project; None if it does not exist, or if its name has invisible characters.

        A file that can never be trusted has no `sha256`, and its text says why.
        """
        is_visible = path == visible_name(path)
        reader = self._reader_above if path.startswith("../") else self._reader
        content = reader.read(f"{self._root}/{path}") if is_visible else None
        if content is None:
            return None
        self._asked_for.add(path)
        if content.problem:
            return TrustFile(path, "new", "", f"[{path} {content.problem}: it cannot be trusted]")
        return TrustFile(path, self._state(path, content), content.sha256, content.text)

    def read(self, path: str) -> str | None:
        """Return the text of the file if it is trusted as it is now."""
        file = self.look(path)
        return file.text if file and file.state == "trusted" else None

    def untrusted(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the files among these that exist, but are not trusted as they are now."""
        files = map(self.look, paths)
        return tuple(file.path for file in files if file and file.state != "trusted")

    def hook_files(self) -> list[str]:
        """Return the files that declare hooks; other settings of other agents do not matter here."""
        looked = [(path, self.look(path)) for path in HOOK_FILES]
        return [
            path for path, file in looked if file and (not file.sha256 or '"hooks"' in file.text)
        ]

    def directories(self, kind: Kind) -> list[str]:
        """Return the directories with this kind of file, relative to the project, the strongest first; some may not exist."""
        above = len(self._root.relative_to(self._repository).parts) if kind == "skills" else 0
        levels = ("../" * level for level in range(above + 1))
        return [f"{level}{name}/{kind}" for level in levels for name in PROJECT_DIRECTORIES]

    def relative(self, path: str) -> str | None:
        """Return the name in this project of the file that `path` leads to; None if it leads outside."""
        real = Path(os.path.realpath(path))
        return real.relative_to(self._root).as_posix() if real.is_relative_to(self._root) else None

    def is_on_the_way_to(self, path: str) -> bool:
        """Return whether a link to or in this project decides where `path` leads: anything that works here could change it."""
        return leads_through(path, self.root)

    def shown(self) -> TrustPage:
        """
        Return the files that could be trusted, at most `MAX_SHOWN_FILES`. Searches the project: not for the editor's thread.

        Instructions that the search does not reach are included once `look` was called for them.
        """
        if self.refusal:
            return TrustPage(self.project, refusal=self.refusal)
        files = dict[str, TrustFile]()
        for path in self._candidates():
            self._gather(path, files, 0)
        return TrustPage(self.project, tuple(_within_bounds(files.values())))

    def trust(self, hashes: Mapping[str, str]) -> None:
        """
        Trust the files with these SHA-256 from now on, and no others.

        Raises:
            ConfigError: this project cannot be trusted, or the hashes cannot be stored.
        """
        if self.refusal:
            raise ConfigError(self.refusal)
        self._store.replace({path: digest for path, digest in hashes.items() if digest})

    def keeps_trust(self, path: str) -> bool:
        """Return whether the instructions at the absolute `path` stay trusted when the user accepts a change of them."""
        content = self._reader.read(path)
        return any(
            self._is_trusted(name, content and content.sha256) for name in self._names_of(path)
        )

    def follow(self, path: str, before: bytes | None, after: bytes) -> None:
        """
        Trust the instructions at the absolute `path` after a change that the user has seen and accepted, if they were trusted `before`.

        Raises:
            ConfigError: the hash cannot be stored.
        """
        names = self._names_of(path) if len(after) <= MAX_FOLLOWED_BYTES else ()
        for name in names:
            if self._is_trusted(name, None if before is None else sha256(before).hexdigest()):
                self._store.add(name, sha256(after).hexdigest())

    def _is_trusted(self, name: str, digest: str | None) -> bool:
        """Return whether instructions with this hash are trusted; new ones, without a hash, are if anything of the project is."""
        return self.is_given if digest is None else self._store.hashes().get(name) == digest

    def _names_of(self, path: str) -> list[str]:
        """Return the names of the instructions that are in the file `path`: its own, and those of trusted links to it."""
        # The hash that is stored for a name is that of the project's file, and not of a worktree's.
        if self.refusal or self.whose != self.root or (name := self.relative(path)) is None:
            return []
        names = filter(_is_instructions, {name: None, **self._store.hashes()})
        return [each for each in names if self.relative(f"{self._root}/{each}") == name]

    def _state(self, path: str, content: Content) -> Literal["new", "changed", "trusted"]:
        known = "" if self.refusal else self._store.hashes().get(path, "")
        if known == content.sha256:
            return "trusted"
        return "changed" if known else "new"

    def _candidates(self) -> Iterator[str]:
        """Yield instructions before their imports, which are followed from there."""
        yield from (*INSTRUCTION_NAMES, PROJECT_FILE, MCP_FILE, *self.hook_files())
        for kind in _SHOWN_KINDS:
            for directory in self.directories(kind):
                found = find(kind, f"{self._root}/{directory}", self.repository)
                yield from sorted(f"{directory}/{name}" for name in found)
        known = sorted({*self._store.hashes(), *self._asked_for} - {*HOOK_FILES})
        yield from filter(_is_instructions, known)
        yield from find_files(str(self._root), INSTRUCTION_NAMES.__contains__)
        yield from known

    def _gather(self, path: str, files: dict[str, TrustFile], depth: int) -> None:
        """Add the file to `files`, and its imports after it."""
        if path in files or len(files) >= MAX_SHOWN_FILES or not (file := self.look(path)):
            return
        is_settings = path == PROJECT_FILE and bool(file.sha256)
        files[path] = replace(file, allowed=allowed_by(file.text)) if is_settings else file
        if depth < MAX_IMPORT_DEPTH and (depth or _is_instructions(path)):
            for target in _targets(file):
                self._gather(target, files, depth + 1)


class OwnFiles:
    """
    The user's own configuration, which is trusted as it is, wherever its links lead, except into the project.

    A file there, as in a repository of dotfiles, could be changed by anything that works in the project.
    """

    def __init__(self, directory: str, trust: Trust) -> None:
        self._root = directory
        self._trust = trust
        self._reader = TrustReader()

    @property
    def root(self) -> str:
        return self._root

    def look(self, path: str) -> TrustFile | None:
        """Return the file as `Trust.look` does. One that cannot be read has no `sha256`, and its text says why."""
        content = self._reader.read(f"{self._root}/{path}")
        if content is None:
            return None
        if content.problem:
            return TrustFile(path, "trusted", "", f"[{path} {content.problem}]")
        if in_project := self._trust.relative(f"{self._root}/{path}"):
            return self._trust.look(in_project)
        if self._trust.is_on_the_way_to(f"{self._root}/{path}"):
            text = f"[{path} is a link that leads through the project and out of it: it cannot be trusted]"
            return TrustFile(path, "trusted", "", text)
        return TrustFile(path, "trusted", content.sha256, content.text)


def find(kind: Kind, directory: str, bounds: str = "") -> list[str]:
    """Return the files of this kind below `directory`, relative to it; `bounds` as for `find_skills`."""
    return find_skills(directory, bounds) if kind == "skills" else find_markdown(directory)


def _repository_around(project: Path) -> Path:
    """Return the directory that holds the project's repository, unless anything below HOME could be in it; else the project."""
    for directory in (project, *project.parents):
        if any(home.is_relative_to(directory) for home in _homes()):
            break
        if os.path.exists(f"{directory}/.git"):  # noqa: PTH110 - Path's raises without permission to look
            return directory
    return project


def _refusal(project: Path, store: Path) -> str:
    """Return why nothing of this project can be trusted; "" if it can."""
    if any(home.is_relative_to(project) for home in _homes()):
        return (
            f"The files of {project} cannot be trusted, because it contains your home directory, where any download could be one of them. "
            "Open the directory of a project."
        )
    if Path(os.path.realpath(store)).is_relative_to(project):
        return (
            f"The files of {project} cannot be trusted, because {store.parent}, where trust is stored, is inside it. "
            "Move the state directory out of the project."
        )
    return ""


def _homes() -> Iterator[Path]:
    if home := os.environ.get("HOME"):
        yield Path(os.path.realpath(home))
    with suppress(KeyError):  # a user without an entry, as in containers
        yield Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir))


def _is_instructions(path: str) -> bool:
    return path.rpartition("/")[2] in INSTRUCTION_NAMES


def _targets(file: TrustFile) -> Iterator[str]:
    for _, imports in lines_with_imports(file.text):
        for found in imports:
            if target := imported_path(file.path, found.mention):
                yield target


def _within_bounds(files: Iterable[TrustFile]) -> Iterator[TrustFile]:
    """Yield the files as they are, until they have too many characters; the rest cannot be trusted this time."""
    room = MAX_SHOWN_CHARS
    for file in files:
        room -= len(file.text)
        if room >= 0:
            yield file
        else:
            text = f"[{file.path} is not shown, because the files before it are too long: it cannot be trusted]"
            yield TrustFile(file.path, file.state, "", text)
