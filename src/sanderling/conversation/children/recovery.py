"""The report of a child whose process was killed before its parent had it, read from the child's log."""

from contextlib import suppress
from pathlib import Path

from sanderling.config import Settings
from sanderling.conversation.children.report import Report, cut, merged, references_in, said
from sanderling.errors import SessionError, WorktreeError
from sanderling.protocol.events import ChangedLines
from sanderling.protocol.messages import Message
from sanderling.providers.models.known import load_models
from sanderling.session.ledger import Ledger, Prices, prompt_tokens
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import (
    Header,
    LoggedChild,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedToolEnd,
    LoggedUsage,
)
from sanderling.worktrees.records import Record
from sanderling.worktrees.worktrees import Worktrees

KILLED = "Sanderling was interrupted while it ran. It was not run again."
UNREADABLE = "Sanderling was interrupted while it ran, and its log cannot be read: {error}."


def recovered(child: LoggedChild, session_dir: Path, settings: Settings) -> Report:
    """Return what a child had done when its process was killed, while it ran or just after its end. Reads files."""
    history, partial = list[Message](), ""
    changed, ledger = list[ChangedLines](), Ledger()
    why, work_dir, worktree = "" if child.state else KILLED, "", None
    try:
        log = log_path(session_dir, child.id)
        with opened(log) as file:
            header, records = records_of(log, file)
            worktree = _worktree_of(header, settings)
            work_dir = worktree.work_dir if worktree else header.project
            for record in records:
                match record:
                    case LoggedMessage(message=message, prompt=prompt):
                        if prompt:  # a fork begins with its parent's history
                            history, changed, ledger = [], [], Ledger()
                        history.append(message)
                        partial = ""
                    case LoggedPartial(block="text", text=text):
                        partial += text
                    case LoggedRestart():
                        partial = ""
                    case LoggedToolEnd(changed=paths):
                        changed += (ChangedLines(path, 0, 0) for path in paths)
                    case LoggedUsage(model=model, usage=usage):
                        ledger.add(model, usage)
                    case _:
                        pass
    except SessionError as error:
        why = UNREADABLE.format(error=error)
    state = child.state or "partial"
    is_done = state == "done"
    text = cut(said(history, is_done=is_done, partial=partial), child.id, is_done=is_done)
    cost, usage = ledger.cost(Prices(load_models(settings))), ledger.total
    return Report(
        child.id,
        child.name,
        state,
        text,
        why=why,
        references=references_in(text, work_dir),
        changed=merged(changed),
        tokens=prompt_tokens(usage) + usage.output_tokens,
        cost_usd=cost.usd if cost.is_priced else None,
        # The worktree of its parent is where the parent's model works, too.
        worktree=worktree.name if worktree and worktree.session_id == child.id else "",
    )


def _worktree_of(header: Header, settings: Settings) -> Record | None:
    """Return the worktree in which a session works, if that is still there."""
    if header.worktree:
        with suppress(WorktreeError):
            return Worktrees(settings.state_dir, header.project).find(header.worktree)
    return None
