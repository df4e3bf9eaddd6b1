"""Where skills, commands and roles are: in the project, in the user's own directories, and in plugins."""

import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from sanderling.paths import is_within
from sanderling.project.trust.reading import find_child_skills
from sanderling.project.trust.trust import InstructionFiles, Kind, OwnFiles, Trust, find
from sanderling.protocol.events import CommandSource
from sanderling.protocol.requests import TrustFile


class Place(NamedTuple):
    """A directory of one kind, relative to the root of `files`, which says who is trusted there; `bounds` as for `find_skills`."""

    files: InstructionFiles
    directory: str
    kind: Kind
    source: CommandSource
    bounds: str = ""

    def found(self) -> Iterator[tuple[str, TrustFile]]:
        """Yield the files by their name in the directory, whether the user trusts them or not."""
        directory = f"{self.files.root}/{self.directory}"
        is_plugins = self.source == "plugin"
        names = (
            find_child_skills(directory) if is_plugins else find(self.kind, directory, self.bounds)
        )
        for name in sorted(names):
            if file := self.files.look(f"{self.directory}/{name}"):
                yield name, file

    def absolute(self, name: str) -> str:
        return posixpath.normpath(f"{self.files.root}/{self.directory}/{name}")


class Places:
    """The places of a session. A project's files come before the user's, and these before the plugins' files."""

    def __init__(
        self, trust: Trust, own: Sequence[OwnFiles], plugins: Sequence[InstructionFiles] = ()
    ) -> None:
        self._trust = trust
        self._own = own
        self._plugins = plugins

    def of(self, kind: Kind) -> list[Place]:
        """Return the places of this kind, the strongest first; a directory may not exist."""
        project = [
            Place(self._trust, directory, kind, "project", self._trust.repository)
            for directory in self._trust.directories(kind)
        ]
        own = [Place(files, kind, kind, "user") for files in self._own]
        plugins = [Place(files, kind, kind, "plugin") for files in self._plugins]
        return [*project, *own, *(plugins if kind == "skills" else ())]

    def skills_outside(self) -> tuple[str, ...]:
        """
        Return the directories of skills outside the project, which commands may read without a question.

        Links in the user's own directories are followed, because users share skills with them. In a plugin, and in the repository around
        a project, which may be anyone's, they must stay in it: else `.agents/skills` could be a link to the user's keys. Commands can
        create links in the project, so one that leads out of the directories of skills needs a trusted file: else `.agents/skills` could
        be a link to the repository, whose other directories the sandbox hides.
        """
        found = dict[str, None]()
        for place in self.of("skills"):
            files = [
                (posixpath.dirname(place.absolute(name)), file) for name, file in place.found()
            ]
            trusted = [path for path, file in files if file.state == "trusted"]
            for path in (place.absolute(""), *(path for path, _ in files)):
                directory = os.path.realpath(path)
                if place.source == "user" and self._trust.is_on_the_way_to(path):
                    continue  # a command could have made it a link to anything
                if self._may_be_read(place, directory, is_trusted=path in trusted):
                    found[directory] = None
        return tuple(found)

    def _may_be_read(self, place: Place, directory: str, *, is_trusted: bool) -> bool:
        if self._trust.relative(directory) is not None or not Path(directory).is_dir():
            return False
        if place.source == "plugin":
            return is_within(directory, place.files.root)
        if place.source != "project":
            return not is_within(os.path.realpath(Path.home()), directory)
        if is_trusted and is_within(directory, self._trust.repository):
            return True
        roots = (f"{self._trust.root}/{name}" for name in self._trust.directories("skills"))
        return any(is_within(directory, posixpath.normpath(root)) for root in roots)
