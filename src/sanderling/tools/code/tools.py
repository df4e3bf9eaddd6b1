"""
The tools that query language servers: definitions of `code_nav`, `code_refactor` and `diagnostics`.

Their implementations are imported on first use.
"""

from typing import TYPE_CHECKING

from sanderling.tools.base import Context, on_path, path_shown, tool
from sanderling.tools.code.inputs import DiagnosticsInput, NavInput, RefactorInput
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

if TYPE_CHECKING:
    from sanderling.tools.code.refactor import RefactorPlan


def _nav_title(args: NavInput, workspace: Workspace) -> str:
    where = path_shown(args, workspace) if args.path else ""
    place = f"{where}:{args.line}" if args.line else where
    return escaped(" ".join(filter(None, (args.op, args.symbol[:80], place and f"({place})"))))


@tool(NavInput, effect=on_path("code_nav", "read"), title=_nav_title)
async def code_nav(args: NavInput, context: Context) -> Outcome:
    """
    Ask the language servers in the user's editor about a symbol.

    Exact for callers, implementations, types and all real uses of a name; for plain text use `grep`. `definition` shows it
    whole, `outline` lists the symbols of `path`, or inside one `symbol`, `symbols` the project's symbols with names like `symbol`. The others need a `symbol`, and if known the `path` and `line` where
    it occurs. Results are `path:line: source`; if there are too many, the rest is counted by file. Unsaved text in the editor counts.
    Without an editor, or a server for that language, it fails.
    """
    from sanderling.tools.code.nav import Navigation

    return await Navigation(args, context).run()


def _refactor_effect(args: "RefactorInput | RefactorPlan", workspace: Workspace) -> Effect:
    """Return the effect; the widest possible one before the plan is known."""
    if not isinstance(args, RefactorInput):
        return args.effect(workspace)
    if args.op == "action" and not args.to:
        return Effect("code_refactor", "read", path=workspace.path(args.path))
    return Effect("code_refactor", "write", path=workspace.project)


def _refactor_title(args: "RefactorInput | RefactorPlan", workspace: Workspace) -> str:
    args = args if isinstance(args, RefactorInput) else args.args
    where = path_shown(args, workspace)
    place = f"{where}:{args.line}" if args.line else where
    to = f"→ {args.to}" if args.to else ""
    return escaped(" ".join(filter(None, (args.op, args.symbol[:80], f"({place})", to[:80]))))


async def _plan(args: RefactorInput, context: Context) -> "RefactorPlan":
    from sanderling.tools.code.refactor import Planner

    return await Planner(args, context).plan()


async def _preview(plan: "RefactorPlan", context: Context) -> Preview:
    from sanderling.tools.code.refactor import preview

    return await preview(plan, context)


@tool(RefactorInput, effect=_refactor_effect, title=_refactor_title, preview=_preview, plan=_plan)
async def code_refactor(plan: "RefactorPlan", context: Context) -> Outcome:
    """
    Let a language server in the user's editor change code: one exact call instead of many edits.

    It can rename a symbol in all files, apply one of its actions (fixes, imports) on a line, or move a file and update references to it.
    The user reviews the change like any edit. All touched files are saved and listed in the result: do not read them again. Actions that
    run server commands are refused.
    """
    from sanderling.tools.code.refactor import make

    return await make(plan, context)


def _diagnostics_title(args: DiagnosticsInput, workspace: Workspace) -> str:
    return escaped(path_shown(args, workspace)) if args.path else ""


@tool(DiagnosticsInput, effect=on_path("diagnostics", "read"), title=_diagnostics_title)
async def diagnostics(args: DiagnosticsInput, context: Context) -> Outcome:
    """
    List errors and warnings of the language servers and linters in the user's editor.

    They are for one file, or all known files. New errors after your edits are reported without asking. Run the project's own checks
    before you say that it works.
    """
    from sanderling.tools.code.diagnostics import tell

    return await tell(args, context)
