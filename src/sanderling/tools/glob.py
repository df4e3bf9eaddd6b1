"""glob: find files by name."""

from typing import Annotated

import msgspec

from sanderling.tools.base import Context, tool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped, rooted
from sanderling.tools.ripgrep import Filter, each_file, failure
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
    """The first paths as far as they can be shown, and the number of all."""

    def __init__(self, workspace: Workspace) -> None:
        self.shown: list[str] = []
        self.count = 0
        self._workspace = workspace
        self._room = MAX_BYTES

    def take(self, path: str) -> None:
        self.count += 1
        if len(self.shown) == MAX_FILES or self._room < 0:
            return
        name = escaped(self._workspace.shown(path))
        self._room -= len(name.encode()) + 1
        if self._room >= 0:
            self.shown.append(name)


@tool(GlobInput, effect=_effect, title=_title)
async def glob(args: GlobInput, context: Context) -> Outcome:
    """
    Find files by name, the newest first, at most 200.

    `*` and `?` stay inside a name, `**` is any number of directories, `{a,b}` is either. A pattern without a slash fits names at
    any depth, one with a slash paths from `path` on. Hidden files are found; .git, symbolic links, directories, and what
    .gitignore names are not, unless `path` is inside of that.
    """
    workspace = context.workspace
    directory, pattern = _place(args, workspace)
    newest = _Newest(workspace)
    files = Filter(directory, pattern)
    ended = await each_file(workspace, directory, files, newest.take, is_newest_first=True)
    shown = escaped(workspace.shown(directory))
    is_refused = any(error.startswith(f"{shown}: ") for error in ended.errors.split("\n"))
    if not newest.count and (is_refused or ended.is_late or ended.is_cut_off):
        raise failure(ended, workspace, directory)
    if not newest.count:
        text = f"No files match {escaped(args.pattern)} in {shown}."
        return Outcome(content="\n\n".join(filter(None, (text, ended.notes))), summary="no files")
    count = "1 file" if newest.count == 1 else f"{newest.count:,} files"
    head = f"{count}, the newest first:"
    if len(newest.shown) < newest.count:
        head = f"The newest {len(newest.shown)} of {count}. Narrow the pattern or use path to see others:"
    text = "\n".join([head, *newest.shown])
    return Outcome(content="\n\n".join(filter(None, (text, ended.notes))), summary=count)
