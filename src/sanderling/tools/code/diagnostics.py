"""`diagnostics`: the errors and warnings that the user's editor shows now."""

from collections import Counter

from sanderling.text import counted
from sanderling.tools.base import Context
from sanderling.tools.code.inputs import DiagnosticsInput
from sanderling.tools.code.reach import Reach, servers_of
from sanderling.tools.diagnostics import line_of
from sanderling.tools.disclosure import disclosed
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped
from sanderling.tools.texts import fitting

MAX_ROWS, MAX_BYTES, MAX_COUNTS = 100, 8 * 1024, 50


async def tell(args: DiagnosticsInput, context: Context) -> Outcome:
    """Report the diagnostics of files that the model may see."""
    servers, reach, workspace = servers_of(context), Reach(context), context.workspace
    file = await reach.named(workspace.path(args.path)) if args.path else None
    said = await servers.diagnostics(file)
    known = [
        each for each in said.found if reach.is_inside(each.path) and await reach.file(each.path)
    ]
    still = f"{said.still}: there may be more.\n" if said.still else ""
    if said.late:
        still += f"{said.late} has not reported since the last edit: this may be out of date.\n"
    if not known:
        who = f" ({said.servers})" if said.servers else ": no language server runs in the editor"
        return Outcome(content=f"{still}No errors or warnings{who}.", summary="none")
    kinds = Counter(each.severity for each in known)
    summary = " · ".join(counted(kinds[kind], kind) for kind in ("error", "warning") if kinds[kind])
    shown = await disclosed(known[:MAX_ROWS], workspace, context.may_read)
    lines = fitting((line_of(each, workspace) for each in shown), MAX_BYTES)
    left = Counter(each.path for each in known[len(lines) :])
    lines += [
        f"{escaped(workspace.shown(path))}: {count} more"
        for path, count in left.most_common(MAX_COUNTS)
    ]
    return Outcome(content=f"{still}{summary}:\n" + "\n".join(lines), summary=summary)
