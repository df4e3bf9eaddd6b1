"""
ripgrep in the sandbox, with limits on time, memory and output.

rg is started through a shell, for three reasons. The shell limits memory, because rg holds a whole line, and a line may be a gigabyte.
Errors share a pipe with the output here and could split a record, so the shell holds them back until the end; the shell's own messages
("Killed") are dropped. And rg opens any named path and would wait for a pipe's other end, so the shell checks the paths first.
"""

import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import anyio
import msgspec

import sanderling
from sanderling.errors import SandboxError, ToolError
from sanderling.paths import closed_after, path_outside
from sanderling.protocol.remedies import remedies
from sanderling.sandbox.execution_environment import Disk
from sanderling.sandbox.sandbox import alone
from sanderling.text import printable, signal_name
from sanderling.tools.inside.packages import MODULES, PackageDirectories
from sanderling.tools.paths import Glob, GlobError, escaped
from sanderling.tools.workspace import Workspace

TIMEOUT_S = 30.0
SLOW_S = 0.5
MAX_MEMORY_KIB = 1024 * 1024
MAX_ARGUMENT_BYTES = 100_000  # the kernel's limit is 128 KiB
MAX_RECORD_BYTES = 8 * 1024 * 1024
MAX_ERRORS = 50
MAX_ERROR_CHARS = 2000

EXIT_SIGNALLED = 128  # plus the signal's number, as shells report it
NO_MATCH, FAILED, CANNOT_RUN, NOT_FOUND, ABORTED = 1, 2, 126, 127, EXIT_SIGNALLED + 6
HAS_RUN = (0, NO_MATCH, FAILED)
"""The exit statuses of a complete run: matches, no matches, some files not searched. Any other status means that rg was stopped."""
NEWLINE, NUL = b"\n", b"\0"

SHELL = """
exec 3>&1 2>/dev/null
ulimit -d {memory}
errors= places=
for place; do
  if test "$places" && test -e "$place" && ! test -f "$place" && ! test -d "$place"; then
    errors="rg: $place: Neither a file nor a directory" status=2
  fi
  if test "$place" = --; then places=1; fi
done
if test ! "$errors"; then
  errors=$("$@" 2>&1 >&3 3>&-)
  status=$?
fi
printf '\\{separator:03o}%s\\{separator:03o}%s' {mark} "$errors"
exit $status
"""

FIND_PIPES = r"""
place=$1
find "$place" \( -name .gitignore -o -name .ignore -o -name .rgignore -o -path '*/.git/info/exclude' \) ! -type f ! -type d -print0
while test -n "$place"; do
  place=${place%/*}
  for name in .gitignore .ignore .rgignore .git/info/exclude; do
    ! test -p "$place/$name" || printf '%s\0' "$place/$name"
  done
done
"""
PROGRAM = """
import sys
sys.path.append(sys.argv[1])
from sanderling.tools.inside.{name} import main
main(*sys.argv[2:])
"""
PYTHON = (os.path.realpath(sys.executable), "-I", "-S", "-B", "-Xutf8", "-c")
LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(sanderling.__file__)))

OPTIONS = (
    "--no-config",
    "--color=never",
    "--hidden",
    "--glob=!{.git,.hg,.jj,.svn}",
    "--no-require-git",  # .gitignore also applies outside repositories
    "--no-ignore-messages",
)
_ERRNO = r" \(os error \d+\)$"

_ADVICE = r"(?s)\n*Consider enabling \w+( mode)? with the --.*"
"""Advice to use rg options that the tool does not have."""
WITHOUT = " For look-around and backreferences use `grep -P` in bash."

NAMES = "only"
"""The file type for the names that a glob matches. Unlike `--glob`, a type never includes ignored files."""


class Ended(msgspec.Struct, frozen=True):
    """
    The end of a run.

    `status` is None if it was stopped: by `take`, or if `is_late` after `TIMEOUT_S`. `errors` is the error output.
    """

    status: int | None
    errors: str = ""
    is_late: bool = False

    @property
    def is_cut_off(self) -> bool:
        return self.status is not None and self.status not in HAS_RUN

    @property
    def how(self) -> str:
        """A phrase for how it was cut off."""
        assert self.status is not None
        number = -self.status if self.status < 0 else self.status - EXIT_SIGNALLED
        if number <= 0:
            return f"ended with exit status {self.status}"
        return f"was ended by {signal_name(number)}"

    @property
    def is_missing(self) -> bool:
        return "No such file or directory" in self.errors and not (self.is_late or self.is_cut_off)

    @property
    def notes(self) -> str:
        """Notes for the model if the results are incomplete; else empty."""
        if self.is_late:
            return f"Stopped after {TIMEOUT_S:.0f} s, so this is incomplete: search a smaller directory."
        if self.is_cut_off:
            return f"ripgrep {self.how}, so this is incomplete: search a smaller directory."
        return f"Some files could not be searched:\n{self.errors}" if self.errors else ""


def find_ripgrep(project: str) -> str:
    """
    Return the path of rg: the one installed with Sanderling, else the first on PATH outside the project, which is untrusted.

    Raises:
        ToolError: rg is not installed.
    """
    ours = os.path.dirname(sys.executable)
    if found := shutil.which("rg", path=os.pathsep.join((ours, path_outside(project)))):
        return found
    raise ToolError(
        f"ripgrep (rg) is not installed, so grep and glob do not work. Ask the user to install it ({remedies().install}), and use grep"
        " and find in bash meanwhile."
    )


async def run_ripgrep(
    workspace: Workspace,
    arguments: Sequence[str],
    places: Sequence[str],
    take: Callable[[bytes], bool],
    separator: bytes = NEWLINE,
) -> Ended:
    """
    Search `places`, files or directories; pass each output record to `take` until it returns False.

    Raises:
        ToolError: rg could not run, or could not search at all.
    """
    program = find_ripgrep(workspace.project)
    mark = os.urandom(16).hex()  # file names and contents cannot predict it
    script = SHELL.format(memory=MAX_MEMORY_KIB, separator=separator[0], mark=mark)
    shell = ["/bin/sh", "-c", script, "rg"]
    errors: list[bytes] = []
    # A record is passed on when the next one arrives: if rg was killed, the last one is incomplete.
    last = b""

    def take_record(record: bytes) -> bool:
        nonlocal last
        if errors:
            errors.extend([record] if len(errors) < MAX_ERRORS else [])
        elif record == mark.encode():
            errors.append(b"")
        else:
            whole, last = last, record
            return take(whole) if whole else True
        return True

    command = [*shell, program, *OPTIONS, *arguments, "--", *places]
    ended = Ended(None)
    with alone():
        async with anyio.create_task_group() as tasks:
            if places:
                tasks.start_soon(_release_pipes, workspace, places[0])
            ended = await run(workspace, command, take_record, separator)
            tasks.cancel_scope.cancel()
    words = _words(b"\n".join(errors), workspace)
    if ended.status in (CANNOT_RUN, NOT_FOUND):
        raise ToolError(
            f"The sandbox cannot run ripgrep at {program}: ask the user to install it with the system's package manager."
        )
    return Ended(ended.status, words, ended.is_late)


async def _release_pipes(workspace: Workspace, directory: str) -> None:
    """
    While a search runs, unblock it from pipes that replace ignore files.

    rg opens whatever is named `.gitignore` and waits until something writes to it, possibly for ever. No option prevents that, and
    looking for pipes before each search would take as long as the search. So if a search is slow, find the pipes and open them for a
    moment: rg then reads an empty file. The host does this, because the sandbox may only read the project.
    """
    await anyio.sleep(SLOW_S)
    while True:
        pipes: list[bytes] = []

        def note(path: bytes, pipes: list[bytes] = pipes) -> bool:
            pipes.append(path)
            return True

        with suppress(ToolError):
            await run(workspace, ["/bin/sh", "-c", FIND_PIPES, "sh", directory], note, NUL)
        for pipe in pipes:
            _open_for_a_moment(pipe)
        await anyio.sleep(SLOW_S / 5)


def _open_for_a_moment(pipe: bytes) -> None:
    """Open and close `pipe` if it is a pipe: the path may have changed."""
    with suppress(OSError):
        if sys.platform == "darwin":  # where nothing is opened without its side effects
            if stat.S_ISFIFO(os.lstat(pipe).st_mode):
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
                os.close(os.open(pipe, flags))
            return
        with closed_after(os.open(pipe, os.O_PATH | os.O_CLOEXEC)) as found:
            if stat.S_ISFIFO(os.fstat(found).st_mode):
                os.close(os.open(f"/proc/self/fd/{found}", os.O_RDWR | os.O_NONBLOCK))


def program_inside(name: str, *arguments: str) -> list[str]:
    return [*PYTHON, PROGRAM.format(name=name), LIBRARY, *arguments]


async def run(
    workspace: Workspace,
    command: Sequence[str],
    take: Callable[[bytes], bool],
    separator: bytes,
) -> Ended:
    """
    Run `command` in the sandbox, passing each output record to `take`; kill it when that returns False, or after `TIMEOUT_S`.

    Longer records are cut to `MAX_RECORD_BYTES`.

    Raises:
        ToolError: it could not be started.
    """
    for argument in command:
        _check_argument(argument)
    try:
        process = await workspace.environment.spawn(
            command, cwd="", env=None, grant=workspace.grant
        )
        try:
            with anyio.move_on_after(TIMEOUT_S) as limit:
                assert process.stdout
                if await _read(process.stdout, take, separator):
                    return Ended(await process.wait())
        finally:
            process.close()
    except (OSError, SandboxError) as error:
        raise ToolError(f"The search could not be run: {error}") from error
    return Ended(None, is_late=limit.cancelled_caught)


async def _read(
    stdout: anyio.abc.ByteReceiveStream, take: Callable[[bytes], bool], separator: bytes
) -> bool:
    """Pass each record to `take`; return False if it stopped the search."""
    splitter = _Splitter(separator)
    try:
        while True:
            for record in splitter.feed(await stdout.receive()):
                if not take(record):
                    return False
    except anyio.EndOfStream:
        return take(splitter.rest())


class _Splitter:
    """Splits chunks into records, and cuts long ones."""

    def __init__(self, separator: bytes) -> None:
        self._separator = separator
        self._pieces: list[bytes] = []
        self._room = MAX_RECORD_BYTES

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        first, *others = chunk.split(self._separator)
        self._add(first)
        for piece in others:
            yield self.rest()
            self._add(piece)

    def rest(self) -> bytes:
        record = b"".join(self._pieces)
        self._pieces, self._room = [], MAX_RECORD_BYTES
        return record

    def _add(self, piece: bytes) -> None:
        if self._room and piece:
            self._pieces.append(piece[: self._room])
            self._room -= len(self._pieces[-1])


def _check_argument(argument: str) -> None:
    try:
        data = os.fsencode(argument)
    except UnicodeEncodeError as error:
        raise ToolError("A search cannot contain half of a surrogate pair: remove it.") from error
    if b"\0" in data:
        raise ToolError(r"A search cannot contain a NUL character: write \x00 in the pattern.")
    if len(data) > MAX_ARGUMENT_BYTES:
        raise ToolError(f"A pattern or path exceeds {MAX_ARGUMENT_BYTES:,} bytes.")


def _words(errors: bytes, workspace: Workspace) -> str:
    """Return rg's error messages with the paths that the model knows."""
    text = errors[: 4 * MAX_ERROR_CHARS].decode(errors="backslashreplace")
    lines = [re.sub(_ERRNO, "", line.removeprefix("rg: ")) for line in text.strip("\n").split("\n")]
    text = "\n".join(escaped(line) for line in lines).replace(f"{workspace.project}/", "")
    if len(text) > MAX_ERROR_CHARS:
        text = text[:MAX_ERROR_CHARS] + " …"
    return printable(text)


# --- which files -------------------------------------------------------------------------------------------------------


class Filter:
    """
    A selection of the files below `directory`: by a glob, a ripgrep type, and the paths that `may_read` permits.

    node_modules and virtual environments are skipped even where no .gitignore names them, unless the directory or the glob does: they hold
    copies of other projects.

    Raises:
        ToolError: the glob is invalid.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        glob: str = "",
        file_type: str = "",
        may_read: Callable[[str], bool] | None = None,
        *,
        has_packages: bool = False,
    ) -> None:
        self._may_read = may_read
        self._prefix = directory.rstrip("/") + "/"
        self._type = file_type
        wanted = frozenset(glob.split("/"))
        self._packages = PackageDirectories(directory, wanted, disk.exists)
        self._packages.is_skipping &= not has_packages
        self._has_modules = MODULES in wanted or not self._packages.is_skipping
        try:
            self._glob = Glob(glob, has_braces=True) if glob else None
        except GlobError as error:
            raise ToolError(f"'{glob}' is not a valid glob: {error}.") from error

    @property
    def arguments(self) -> list[str]:
        """Options that keep rg from most other files. With two types rg would match either, so a given type replaces the glob's names."""
        skipping = [] if self._has_modules else [f"--glob=!{MODULES}/"]
        if self._type:
            return [*skipping, f"--type={self._type}"]
        if not self._glob or not (names := self._glob.last_names):
            return skipping
        return [*skipping, *(f"--type-add={NAMES}:{name}" for name in names), f"--type={NAMES}"]

    @property
    def skipped(self) -> list[str]:
        """The virtual environments that had files to select."""
        return self._packages.skipped

    def lets_in(self, path: str) -> bool:
        """True if `path` is selected. The glob does not apply to a file that is named itself."""
        if self._may_read and not self._may_read(path):
            return False
        if not self._glob or not path.startswith(self._prefix):
            return not self._packages.has(path)
        return self._glob.matches(path[len(self._prefix) :]) and not self._packages.has(path)


async def each_file(
    workspace: Workspace,
    directory: str,
    files: Filter,
    take: Callable[[str], None],
    *,
    is_newest_first: bool = False,
) -> Ended:
    """
    Pass to `take` the paths of the files below `directory` that are not ignored.

    Raises:
        ToolError: rg could not run.
    """

    def take_record(record: bytes) -> bool:
        path = os.fsdecode(record)
        if files.lets_in(path):
            take(path)
        return True

    order = ["--sortr=modified"] if is_newest_first else []
    arguments = ["--files", "--null", *order, *files.arguments]
    return await run_ripgrep(workspace, arguments, [directory], take_record, NUL)


async def names_of_type(workspace: Workspace, file_type: str) -> list[Glob]:
    """Return the globs of a ripgrep type; empty if it does not exist."""
    globs: list[str] = []

    def take(record: bytes) -> bool:
        name, _, names = record.decode().partition(": ")
        globs.extend(names.split(", ") if file_type in (name, "all") else ())
        return True

    await run_ripgrep(workspace, ["--type-list"], [], take)
    return [Glob(glob, has_braces=True) for glob in globs if glob]


def failure(ended: Ended, workspace: Workspace, directory: str) -> ToolError:
    """Return the error for a search without matches that failed."""
    if ended.is_late:
        return ToolError(f"Nothing was found in {TIMEOUT_S:.0f} s. {ended.notes}")
    if ended.is_cut_off:
        return _cut_off(ended, escaped(workspace.shown(directory)))
    if "unrecognized file type" in ended.errors:
        return ToolError(f"{ended.errors}: use glob instead of type, as in glob='*.ext'.")
    if problem := _problem_of_pattern(ended.errors):
        return ToolError(problem)
    return ToolError(f"Search failed: {ended.errors or f'exit status {ended.status}'}")


def _problem_of_pattern(errors: str) -> str:
    errors = re.sub(_ADVICE, "", errors).rstrip()
    if "is not allowed in a regex" in errors:
        return f"{errors}: write a line break as \\n; matches may then span lines."
    if "regex parse error" not in errors:
        return ""
    other = WITHOUT if re.search("(is|are) not supported", errors) else ""
    return f"Invalid regular expression. Set literal to search for plain text.{other}\n{errors}"


def _cut_off(ended: Ended, shown: str) -> ToolError:
    if ended.status == ABORTED:
        return ToolError(
            "ripgrep ran out of memory, so the search is incomplete: narrow the pattern, or exclude files with huge lines."
        )
    return ToolError(
        f"ripgrep {ended.how} before it searched all of {shown}: search a smaller directory."
        f"\n{ended.errors}".rstrip()
    )
