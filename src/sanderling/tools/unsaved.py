"""Unsaved text in the editor: commands do not see it, because they read the disk."""

from collections.abc import Sequence
from contextlib import suppress

from sanderling.errors import ToolError
from sanderling.protocol.events import ApprovalRequested, FormChoice, FormField
from sanderling.tools.buffers import identify
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

MAX_NAMES = 5
SAVE, FIELD = "save", "save"
WHAT_IT_MEANS = (
    "The unsaved changes are yours and the model's. The next command reads the disk, without them."
)
CHOICES = (
    FormChoice(SAVE, "Save", "the command sees the edit"),
    FormChoice("leave", "Leave unsaved", "not asked again in this session"),
)


async def unsaved_note(workspace: Workspace) -> str:
    """Return a line on project files that are newer in the editor than a command sees them, or ""."""
    if not (paths := await _unsaved(workspace)):
        return ""
    names = _named(paths, workspace)
    return f"[Commands read the disk, where these are older than in the editor: {names}]"


async def offer_to_save(workspace: Workspace, tool_use_id: str) -> None:
    """Before a command, ask the user once whether to save files that the model edited in buffers with unsaved text."""
    if not (workspace.user and workspace.editor and workspace.edited_unsaved):
        return
    async with workspace.lock(workspace.project):  # commands that only read run at the same time
        paths = [path for path in await _unsaved(workspace) if _is_to_ask(path, workspace)]
        workspace.edited_unsaved.clear()
        if not paths:
            return
        question = _question(_named(paths, workspace), f"save:{tool_use_id}", workspace.project)
        answer = await workspace.user.ask_user(question)
        if answer.answer == "deny" or answer.values.get(FIELD) != SAVE:
            workspace.left_unsaved.update(map(workspace.disk.real_path, paths))
            return
        for path in paths:
            with suppress(ToolError):  # then the command's result names the file
                await workspace.editor.save_buffer(path)


def _is_to_ask(path: str, workspace: Workspace) -> bool:
    real = workspace.disk.real_path(path)
    return real in workspace.edited_unsaved and real not in workspace.left_unsaved


def _question(names: str, question_id: str, project: str) -> ApprovalRequested:
    field = FormField(FIELD, "choice", label=WHAT_IT_MEANS, choices=CHOICES)
    return ApprovalRequested(
        question_id,
        "edit",
        f"Save {names}",
        f"Save {names}?\n{WHAT_IT_MEANS}",
        "",
        project,
        ("once",),
        kind="question",
        fields=(field,),
    )


async def _unsaved(workspace: Workspace) -> list[str]:
    """Return the project's files with unsaved changes, under the editor's names, that the sandbox shows."""
    paths = list[str]()
    if workspace.editor:
        with suppress(ToolError):
            for path in sorted(await workspace.editor.unsaved()):
                if workspace.is_inside(path) and await identify(workspace, path):
                    paths.append(path)
    return paths


def _named(paths: Sequence[str], workspace: Workspace) -> str:
    names = ", ".join(escaped(workspace.shown(path)) for path in paths[:MAX_NAMES])
    return f"{names} and {len(paths) - MAX_NAMES} more" if len(paths) > MAX_NAMES else names
