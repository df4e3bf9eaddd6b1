"""Messages to the user about events outside of the model's answer."""

from typing import Literal

from sanderling.protocol import events
from sanderling.protocol.events import Event
from sanderling.text import duration

Said = tuple[Literal["info", "warning", "error"], str]

OPERATIONS = {
    "read": "read",
    "write": "write",
    "execute": "run",
    "connect": "connect to",
    "resolve": "look up",
}
UNDONE = "The sandbox undid a change: {path} ({reason})."
GUARD = {
    "quarantined": UNDONE,
    "restored": UNDONE,
    "failed": "The sandbox could not undo a change: {path} ({reason}).",
    "noticed": "Look at {path}: it {reason}.",
}


def sentence_of(event: Event) -> Said | None:  # noqa: C901, PLR0911, PLR0912 - one table
    """Return the severity and text for an event; None if it needs no message or is shown in another way."""
    match event:
        case events.Notice(level, text):
            return level, text
        case events.RetryScheduled(attempt, attempts, delay_s, reason):
            return (
                "warning",
                f"{reason} Trying again in {duration(delay_s)} ({attempt} of {attempts}).",
            )
        case events.TrustNeeded(paths):
            return (
                "warning",
                f"Ignored until you trust it with /trust: {', '.join(paths)}",
            )
        case events.AccessDenied(operation, target, rule):
            return "info", f"The sandbox did not {OPERATIONS[operation]} {target} ({rule})."
        case events.GuardActed("replaced"):
            return None  # the change came from outside of the sandbox
        case events.GuardActed(kind, path, reason, kept_at):
            kept = f" What was written is kept at {kept_at}." if kept_at else ""
            return "warning", GUARD[kind].format(path=path, reason=reason) + kept
        case events.SandboxChanged(problem=problem) if problem:
            return "warning", f"Commands are blocked: {problem}"
        case events.CompactionStarted():
            return "info", "Summarizing the conversation."
        case events.Compacted(kind, before, after):
            what = (
                "Old results were cleared"
                if kind == "cleared"
                else "The conversation was summarized"
            )
            return "info", f"{what}: about {before:,} tokens are {after:,} now."
        case events.CompactionUndone():
            return "info", "The last compaction was undone."
        case events.FilesRestored():
            return _restored(event)
        case events.ConversationRewound(text):
            return "info", f"The conversation was rewound to before: {text}"
        case events.LinkOffered(url, text):
            return "info", f"{text}\n{url}"
        case _:
            return None


def _restored(event: events.FilesRestored) -> Said:
    done = [each.path for each in event.files if each.how != "left"]
    left = [f"{each.path}: {each.why}" for each in event.files if each.how == "left"]
    words = {
        "undo": "Undone",
        "redo": "Redone",
        "rewind": "Rewound",
        "finish": "Finished",
        "worktree": "Applied",
    }
    said = f"{words[event.kind]}: {', '.join(done) or 'nothing'}."
    if not left:
        return "info", said
    lines = [said, "Not changed:", *left]
    if event.rest_of:
        verb = "redo" if event.kind == "redo" else "undo"
        lines.append(f"Resolve this, then run /{verb} {event.rest_of} for the rest.")
    return "warning", "\n".join(lines)
