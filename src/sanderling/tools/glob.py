"""The glob tool: finds files by name."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import msgspec

from sanderling.sandbox.execution_environment import Disk
from sanderling.text import counted
from sanderling.tools.base import Context, tool
from sanderling.tools.effects import Effect
from sanderling.tools.elsewhere import missing
from sanderling.tools.links import with_links
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped, rooted
from sanderling.tools.ripgrep import Filter, each_file, failure
from sanderling.tools.texts import fitting
from sanderling.tools.workspace import Workspace

MAX_FILES = 200
MAX_BYTES = 26_000


class GlobInput(msgspec.Struct, forbid_unknown_fields=True):
    pattern: Annotated[
        str, msgspec.Meta(min_length=1, description="Such as **/*.py or src/**/*.{ts,tsx}")
    ]
    path: Annotated[str, msgspec.Meta(description="Directory to look in")] = "."


def _place(args: GlobInput, workspace: Workspace) -> tuple[str, str]:
    return rooted(args.pattern, workspace.path(args.path))


def _effect(args: GlobInput, workspace: Workspace) -> Effect:
    return Effect("glob", "read", path=_place(args, workspace)[0])


def _title(args: GlobInput, workspace: Workspace) -> str:
    where = workspace.shown(workspace.path(args.path))
    return escaped(args.pattern + ("" if where == workspace.project else f" in {where}"))


class _Newest:
    """The newest paths, and the number of all."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.count = 0

    def take(self, path: str) -> None:
        self.count += 1
        if len(self.paths) < MAX_FILES:
            self.paths.append(path)

    def add(self, links: Sequence[str], disk: Disk) -> None:
        """Insert links by the modification time of their targets."""

        def changed(path: str) -> float:
            status = disk.status(path)
            return status.st_mtime if status else 0.0

        self.count += len(links)
        self.paths = sorted([*self.paths, *links], key=changed, reverse=True)[:MAX_FILES]

    def shown(self, workspace: Workspace) -> list[str]:
        """Return the names that fit, newest first."""
        return fitting((escaped(workspace.shown(path)) for path in self.paths), MAX_BYTES)


@tool(GlobInput, effect=_effect, title=_title)
async def glob(args: GlobInput, context: Context) -> Outcome:
    """
    Find files by name, newest first, at most 200.

    `*` and `?` match within a name, `**` any number of directories, `{a,b}` either. A pattern without a slash matches names at any depth,
    one with a slash paths below `path`. Hidden files and links to files are found. .git, node_modules, virtual environments, directories,
    linked directories and files in .gitignore are not, unless `path` is in them.
    """
    workspace = context.workspace
    directory, pattern = _place(args, workspace)
    newest = _Newest()
    files = Filter(workspace.disk, directory, pattern)
    search = partial(each_file, workspace, directory, files, newest.take, is_newest_first=True)
    ended, links = await with_links(workspace, directory, search)
    if found := [link for link in links.files if files.lets_in(link)]:
        newest.add(found, workspace.disk)
    shown = escaped(workspace.shown(directory))
    is_refused = any(error.startswith(f"{shown}: ") for error in ended.errors.split("\n"))
    if not newest.count and is_refused and ended.is_missing:
        raise await missing(workspace, directory, context.may_read)
    if not newest.count and (is_refused or ended.is_late or ended.is_cut_off):
        raise failure(ended, workspace, directory)
    notes = (links.note(workspace, directory, is_found=newest.count > 0), ended.notes)
    if not newest.count:
        text = f"No files match {escaped(args.pattern)} in {shown}."
        return Outcome(content="\n\n".join(filter(None, (text, *notes))), summary="no files")
    names = newest.shown(workspace)
    count = counted(newest.count, "file")
    head = f"{count}, newest first:"
    if len(names) < newest.count:
        head = f"The newest {len(names)} of {count}. Narrow the pattern or use path to see others:"
    text = "\n".join([head, *names])
    return Outcome(content="\n\n".join(filter(None, (text, *notes))), summary=count)
