"""The workspace of a session's tools: project, sandbox, editor, and state that is kept between calls."""

import errno
import os
from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace

from sanderling.changes.commands import CommandChanges
from sanderling.changes.journal import Journal
from sanderling.errors import SandboxError, ToolError
from sanderling.paths import is_in_any, is_within
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.execution_environment import Disk, ExecutionEnvironment
from sanderling.sandbox.files import FileChangedError, Files
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.text import printable
from sanderling.tools.children import Children
from sanderling.tools.commands.jobs import Jobs
from sanderling.tools.commands.shell import Shell
from sanderling.tools.editor import Editor
from sanderling.tools.outcome import AccessRefusedError, Outcome
from sanderling.tools.paths import escaped
from sanderling.tools.read_cache import ReadCache
from sanderling.tools.todo_list import TodoList
from sanderling.tools.user import User
from sanderling.tools.watches import EditWatches

if TYPE_CHECKING:
    from sanderling.tools.code.servers import LanguageServers

NEAR_NAMES, MAX_COMPARED_NAMES = 3, 2000
SENTENCES = {
    errno.EACCES: "{name} cannot be {what}: its mode or the sandbox forbids it.",
    errno.EPERM: "{name} cannot be {what}: its mode or the sandbox forbids it.",
    errno.EROFS: "{name} cannot be {what}: it is read-only in the sandbox. In plan mode everything is; files that could run code on"
    " the user's machine (such as .git/hooks) always are.",
    errno.EISDIR: "{name} is a directory.",
    errno.EINVAL: "{name} is not a regular file.",
    errno.ENOSPC: "{name} cannot be {what}: the disk is full. Nothing was changed.",
    errno.EDQUOT: "{name} cannot be {what}: the disk quota is used up. Nothing was changed.",
}
OUTSIDE = "{name} cannot be {what}: it is read-only in the sandbox. Only the project and paths that the user granted are writable."


def _no_locks() -> WeakValueDictionary[Hashable, anyio.Lock]:
    return WeakValueDictionary()


class Workspace(Struct):
    project: str
    sandbox: SessionSandbox
    shell: Shell
    jobs: Jobs
    journal: Journal
    changes: CommandChanges
    editor: Editor | None = None
    read_cache: ReadCache = field(default_factory=ReadCache)
    todo: TodoList = field(default_factory=TodoList)
    watches: EditWatches = field(default_factory=EditWatches)
    code: "LanguageServers | None" = None
    document_pages: Callable[[], int] = int  # 0
    """Return how many pages a PDF may have that the model's API gets whole; of others it gets the text."""
    user: User | None = None
    """The user, if they can be asked in this session."""
    children: Callable[[], Children] | None = None
    """Return the child sessions, unless this session is one. Their code is loaded with the first."""
    edited_unsaved: set[str] = field(default_factory=set[str])
    """Files that the model edited in buffers with unsaved text, until the user is asked whether to save them."""
    left_unsaved: set[str] = field(default_factory=set[str])
    """Files that the user did not want to save then; they are not asked again."""
    on_accepted: Callable[[str, bytes | None, bytes], None] = lambda _path, _before, _after: None
    """Called after a file was written as the user has seen and allowed it, with its content before and after."""
    grant: Grant = NO_GRANT
    _environment: ExecutionEnvironment | None = None
    _locks: WeakValueDictionary[Hashable, anyio.Lock] = field(default_factory=_no_locks)

    def granted(self, grant: Grant) -> "Workspace":
        """Return a copy for one call with its grant, which keeps the current environment even if the user switches the sandbox."""
        return replace(self, grant=grant, _environment=self.environment)

    def take_interrupted(self, tool_use_id: str) -> Outcome | None:
        """Return what a call that was cancelled has done so far, if that is known."""
        if output := self.jobs.take_interrupted(tool_use_id):
            return Outcome(content=output, summary="stopped", is_error=True)
        return self.children().take_interrupted(tool_use_id) if self.children else None

    @property
    def environment(self) -> ExecutionEnvironment:
        return self._environment or self.sandbox.environment

    def path(self, name: str) -> str:
        """
        Return `name` from the model (absolute, below `~`, or relative to the project) as an absolute path.

        Raises:
            ToolError: `name` is not a valid path.
        """
        try:
            os.fsencode(name)
            if "\0" in name:
                raise ToolError(f"{name!r} is not a valid path: it contains a NUL.")
            return os.path.normpath(os.path.join(self.project, os.path.expanduser(name)))
        except UnicodeEncodeError as error:
            raise ToolError(
                f"{printable(name)!r} is not a valid path: it is not valid text."
            ) from error

    def shown(self, path: str) -> str:
        """Return `path` for display: relative to the project if inside it."""
        inside = f"{self.project}/"
        return path.removeprefix(inside) if path.startswith(inside) else path

    @property
    def disk(self) -> Disk:
        """The file names where the tools run, as the user sees them."""
        return self.environment.disk

    def is_inside(self, path: str) -> bool:
        return is_within(self.disk.real_path(path), self.disk.real_path(self.project))

    def is_scratch(self, path: str) -> bool:
        """Return whether `path` is in the session's own /tmp, where nothing is the user's."""
        granted = (*self.grant.read_paths, *self.grant.write_paths)
        return self.environment.is_scratch(path) and not is_in_any(path, granted)

    async def require_scratch(self, path: str) -> None:
        """
        Check that no link leads `path` out of the session's /tmp: rules and the journal would not know the file by its name.

        Raises:
            ToolError: one does.
        """
        real = await (await self.files()).real_path(path)
        if not self.is_scratch(real):
            raise ToolError(
                f"{escaped(path)} is a link to {escaped(self.shown(real))}: use that path."
            )

    def lock(self, path: str) -> anyio.Lock:
        """Return the lock for changes to the file, the same for all its names."""
        name: Hashable = self.disk.real_path(path)
        status = self.disk.status(path)
        if status and status.st_nlink > 1:  # hard links: all names share the file
            name = (status.st_dev, status.st_ino)
        return self._locks.setdefault(name, anyio.Lock())

    async def files(self) -> Files:
        """
        Return access to files through the current sandbox.

        Raises:
            ToolError: there is no sandbox.
        """
        with self.explaining("", ""):
            return await self.environment.files(self.grant)

    @contextmanager
    def explaining(self, path: str, what: str) -> Generator[None]:
        """
        Turn errors into a sentence for the model: why `path` cannot be `what` ("read", "written").

        `FileChangedError` passes unchanged.
        """
        try:
            yield
        except FileChangedError:
            raise
        except SandboxError as error:
            raise ToolError(str(error)) from error
        except FileNotFoundError as error:
            raise self.absent(path) from error
        except OSError as error:
            raise ToolError(self._sentence(error, path, what)) from error

    async def missing(self, path: str) -> ToolError:
        """Return the error for a missing file, suggesting similar names in its directory."""
        near = await self.near_names(path)
        if near is None:
            return self.absent(path, " It is a broken link.")
        paths = [escaped(self.shown(each)) for each in near]
        return self.absent(path, f" Did you mean {' or '.join(paths)}?" if paths else "")

    async def near_names(
        self, path: str, may_read: Callable[[str], bool] | None = None
    ) -> list[str] | None:
        """Return the paths of similar names in the directory of a missing file; None if it is a broken link."""
        from difflib import get_close_matches  # slow to import, and rarely needed

        directory, name = os.path.split(path)
        entries: list[tuple[str, str]] = []
        with suppress(OSError, ToolError):
            entries = await (await self.files()).list(directory)
        if (name, "link") in entries:
            return None
        names = {entry.casefold(): entry for entry, _ in entries[:MAX_COMPARED_NAMES]}
        near = await anyio.to_thread.run_sync(
            get_close_matches, name.casefold(), list(names), NEAR_NAMES
        )
        paths = [os.path.join(directory, names[each]) for each in near]
        return [each for each in paths if may_read is None or may_read(each)]

    def absent(self, path: str, advice: str = "") -> ToolError:
        """Return the error for a missing path; if only the sandbox hides it, the user can grant access."""
        message = f"{escaped(self.shown(path))} does not exist, or the sandbox hides it.{advice}"
        if not self.environment.hides(path):
            return ToolError(message)
        return AccessRefusedError(message, Denial("read", path, "hidden"))

    def _sentence(self, error: OSError, path: str, what: str) -> str:
        code = error.errno or 0
        sentence = SENTENCES.get(code, "{name} cannot be {what}: {reason}.")
        if (
            code == errno.EROFS
            and self.sandbox.effective_policy.is_writable
            and not self.is_inside(path)
        ):
            sentence = OUTSIDE
        return sentence.format(
            name=self.shown(path), what=what, reason=os.strerror(code) if code else error
        )
