"""`code_refactor`: turns a language server's proposed change into a plan, and the plan into edits."""

from collections.abc import Sequence

import msgspec

from sanderling.changes.editing.lines import TextDifference, shown
from sanderling.changes.editing.text import decode
from sanderling.errors import ToolError
from sanderling.protocol.events import ChangedLines
from sanderling.text import counted
from sanderling.tools.base import Context
from sanderling.tools.buffers import buffer_of, plain
from sanderling.tools.change import Change
from sanderling.tools.code.edits import applied, changed, splices
from sanderling.tools.code.inputs import RefactorInput
from sanderling.tools.code.moving import Move, target_of
from sanderling.tools.code.reach import MAX_BYTES, Reach, servers_of
from sanderling.tools.code.rows import Rows
from sanderling.tools.code.servers import CodeFile, FileEdits, WorkspaceChange
from sanderling.tools.disclosure import Disclosure
from sanderling.tools.effects import Effect
from sanderling.tools.known import ProposedContent
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.paths import escaped
from sanderling.tools.texts import asked_of_person, difference, shown_to_person, text_of
from sanderling.tools.workspace import Workspace

MAX_FILES = 500
MAX_REGION_LINES, MAX_LISTED_FILES = 30, 100
OUTSIDE = "The server would also change {name}, which you may not change: nothing was changed."
OPERATION = (
    "The server would also {kind} the file {name}, which is not supported: nothing was changed."
)
UNKNOWN_TEXT = "{name} has unsaved changes in the editor that {server} does not know: nothing was changed. Ask the user to save it first."
STALE = "{server} has an outdated text of {name}: nothing was changed. Try again, or use edit."
NOTHING = "{server} would change nothing."


class FilePlan(msgspec.Struct, frozen=True):
    """A change to a file with the text `base`: start and end offsets, and new text."""

    path: str
    base: str
    changes: tuple[tuple[int, int, str], ...]

    @property
    def new(self) -> str:
        return applied(self.base, self.changes)


class RefactorPlan(msgspec.Struct, frozen=True):
    """
    The change as the server proposed it, approved, shown and made as a whole. `moves` is a file's new path.

    Without files and a move, only `answer` is returned to the model.
    """

    args: RefactorInput
    files: tuple[FilePlan, ...] = ()
    moves: str = ""
    answer: str = ""
    notes: tuple[str, ...] = ()

    def effect(self, workspace: Workspace) -> Effect:
        paths = [each.path for each in self.files]
        if self.moves:
            paths += [workspace.path(self.args.path), self.moves]
        unique = tuple(dict.fromkeys(paths))
        if not unique:
            return Effect("code_refactor", "read", path=workspace.path(self.args.path))
        path = unique[0] if len(unique) == 1 else workspace.project
        return Effect("code_refactor", "write", path=path, paths=unique)


# --- the plan ----------------------------------------------------------------------------------------------------------


class Planner:
    """Asks the servers for the change."""

    def __init__(self, args: RefactorInput, context: Context) -> None:
        self._args = args
        self._context = context
        self._workspace = context.workspace
        self._servers = servers_of(context)
        self._reach = Reach(context)
        self._path = self._workspace.path(args.path)

    async def plan(self) -> RefactorPlan:
        args = self._args
        file = await self._reach.named(self._path)
        new = ""
        match args.op:
            case "rename":
                change = await self._rename(file)
            case "action":
                if not args.line:
                    raise ToolError("An action needs a line.")
                change = await self._servers.action(file, args.symbol, args.line, args.to)
            case "move_file":
                new = await self._target()
                change = await self._servers.move(file, new)
        if change.candidates:
            rows = Rows(self._context, self._reach)
            return RefactorPlan(args, answer=await rows.candidates(file, change.candidates))
        if change.titles is not None:
            disclosure = Disclosure(self._workspace, self._context.may_read)
            await disclosure.learn(file.path)
            await disclosure.search(change.titles)
            return RefactorPlan(args, answer=_listed(list(map(disclosure.message, change.titles))))
        for kind, path, _ in change.operations:
            raise ToolError(OPERATION.format(kind=kind, name=self._workspace.shown(path)))
        files = await self._files(change)
        if not files and not new:
            return RefactorPlan(args, answer=NOTHING.format(server=change.server))
        return RefactorPlan(args, files, new, notes=(change.note,) if change.note else ())

    async def _rename(self, file: CodeFile) -> WorkspaceChange:
        args = self._args
        if not args.symbol or not args.to:
            raise ToolError("rename needs a symbol, and its new name in `to`.")
        change = await self._servers.rename(file, args.symbol, args.line or None, args.to)
        if not change.candidates and not change.files:
            raise ToolError(
                f"{change.server} found no symbol {escaped(args.symbol)} there to rename."
            )
        return change

    async def _target(self) -> str:
        if not self._args.to:
            raise ToolError("move_file needs the new path in `to`.")
        new = target_of(self._context, self._path, self._args.to)
        if not self._reach.is_inside(new):
            raise ToolError(f"{new} is not in the project: nothing was moved.")
        await Move(self._context, self._path, new).check()
        return new

    async def _files(self, change: WorkspaceChange) -> tuple[FilePlan, ...]:
        if len(change.files) > MAX_FILES:
            raise ToolError(f"{len(change.files):,} files would change; the limit is {MAX_FILES}.")
        by_path: dict[str, FileEdits] = {}
        for each in change.files:
            before = by_path.get(each.path)
            edits = (*before.edits, *each.edits) if before else each.edits
            by_path[each.path] = msgspec.structs.replace(each, edits=edits)
        plans = [await self._file(each, change) for _, each in sorted(by_path.items())]
        return tuple(plan for plan in plans if plan.changes)

    async def _file(self, file: FileEdits, change: WorkspaceChange) -> FilePlan:
        name = self._workspace.shown(file.path)
        is_ours = self._reach.is_inside(file.path) and await self._reach.file(file.path)
        if not is_ours:
            raise ToolError(OUTSIDE.format(name=name))
        base = await self._text(file, change.server)
        changes = tuple(splices(base, file.edits, change.encoding, name))
        if self._args.op == "rename" and not file.is_attached:
            self._require_name(changes, base, name, change.server)
        return FilePlan(file.path, base, changes)

    def _require_name(
        self, changes: Sequence[tuple[int, int, str]], base: str, name: str, server: str
    ) -> None:
        """Check that each edit covers the symbol: with an outdated text, a server would rename something else."""
        for start, end, _ in changes:
            if self._last_name() not in base[start:end]:
                raise ToolError(STALE.format(server=server, name=name))

    def _last_name(self) -> str:
        symbol = self._args.symbol.rstrip("()")
        for separator in ("/", ".", "::", "#", "->"):
            symbol = symbol.rpartition(separator)[2]
        return symbol

    async def _text(self, file: FileEdits, server: str) -> str:
        """Return the text that the server knows: the buffer's if it was sent to the server, otherwise the disk's."""
        workspace, name = self._workspace, self._workspace.shown(file.path)
        with workspace.explaining(file.path, "changed"):
            loaded = await (await workspace.files()).load(file.path, MAX_BYTES)
        if not loaded.is_whole:
            raise ToolError(f"{name} is too large: nothing was changed.")
        text = await text_of(loaded.data)
        buffer = await buffer_of(workspace, file.path, loaded.stamp)
        if buffer is None:
            return text
        if buffer.is_modified:
            if not file.is_attached:
                raise ToolError(UNKNOWN_TEXT.format(name=name, server=server))
            return plain(buffer.text)
        if plain(buffer.text) != text and buffer.text.strip("\n"):
            assert workspace.editor
            await workspace.editor.files_changed((file.path,))
            raise ToolError(STALE.format(server=server, name=name))
        return text


def _listed(titles: Sequence[str]) -> str:
    if not titles:
        return "No actions are available there."
    return "\n".join(["Actions there; pass a title as `to`:", *(f"- {each}" for each in titles)])


# --- making the change -------------------------------------------------------------------------------------------------


def _change(file: FilePlan, context: Context) -> Change:
    name = context.workspace.shown(file.path)

    def propose(old: bytes | None) -> ProposedContent:
        return ProposedContent(changed(old or b"", file.base, file.changes, name))

    return Change(context, file.path, propose)


def _others(plan: RefactorPlan, context: Context) -> list[FilePlan]:
    moved = context.workspace.path(plan.args.path) if plan.moves else ""
    return [file for file in plan.files if file.path != moved]


async def preview(plan: RefactorPlan, context: Context) -> Preview:
    """Preview the whole change: by hunks for one file, otherwise as one difference."""
    if len(plan.files) == 1 and not plan.moves:
        return await _change(plan.files[0], context).preview()
    workspace, parts = context.workspace, list[str]()
    if plan.moves:
        old = workspace.shown(workspace.path(plan.args.path))
        parts.append(f"rename {old} → {workspace.shown(plan.moves)}")
    for file in plan.files:
        what = asked_of_person(await difference(file.base, file.new))
        name = workspace.shown(file.path)
        parts += (f"--- {name}\n+++ {name}", what.subject)
    return Preview("\n".join(parts), "diff")


async def make(plan: RefactorPlan, context: Context) -> Outcome:
    """Make the planned change completely; an error lists the files changed before it."""
    if not (plan.files or plan.moves):
        return Outcome(content=plan.answer, summary="nothing changed")
    others = _others(plan, context)
    for file in others:
        await _change(file, context).check()
    lines, differences, made = list[str](), list[str](), list[ChangedLines]()
    for number, file in enumerate(others):
        try:
            done = await _change(file, context).make()
        except ToolError as error:
            if not number:
                raise
            raise ToolError(
                f"{error}\n{number} of {len(others)} files were changed before that:\n"
                + "\n".join(lines)
            ) from error
        what = await difference(done.old or "", done.new)
        name = context.workspace.shown(file.path)
        lines.append(_file_summary(name, what, done.notes, done.is_written))
        differences += (f"--- {name}", shown_to_person(what).subject)
        made.append(ChangedLines(name, *what.counts))
        if len(others) == 1:
            lines += [shown(what.regions(), MAX_REGION_LINES).text]
    if plan.moves:
        lines.append(await _move(plan, context))
    more = len(lines) - MAX_LISTED_FILES
    if more > 0:
        lines[MAX_LISTED_FILES:] = [f"… and {more} more files"]
    files = counted(len(others) + bool(plan.moves), "file")
    head = f"Done, in {files}:"
    return Outcome(
        content="\n".join([head, *lines, *plan.notes]),
        summary=files,
        detail="\n".join(differences),
        filetype="diff",
        changed=tuple(made),
    )


async def _move(plan: RefactorPlan, context: Context) -> str:
    workspace = context.workspace
    old = workspace.path(plan.args.path)
    move = Move(context, old, plan.moves)
    data = (await move.check()).data
    for file in plan.files:
        if file.path == old:
            data = changed(data, file.base, file.changes, workspace.shown(old))
    await move.make(data)
    workspace.read_cache.note(plan.moves, decode(data).text)
    return f"{workspace.shown(old)} is now {workspace.shown(plan.moves)}"


def _file_summary(name: str, what: TextDifference, notes: Sequence[str], is_written: bool) -> str:
    where = "" if is_written else " (in the editor, not saved)"
    return "\n".join([f"{escaped(name)}: {what.summary}{where}", *notes])
