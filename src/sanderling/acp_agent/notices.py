"""Sentences for the person about what happens beside the answer."""

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
    """The sentence for what happened, and how much it matters; None for what is told in another way, or need not be."""
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
                f"Ignored until you trust it, with /trust: {', '.join(paths)}",
            )
        case events.AccessDenied(operation, target, rule):
            return "info", f"The sandbox did not {OPERATIONS[operation]} {target} ({rule})."
        case events.GuardActed("replaced"):
            return None  # the host's own business
        case events.GuardActed(kind, path, reason, kept_at):
            kept = f" What was written is kept at {kept_at}." if kept_at else ""
            return "warning", GUARD[kind].format(path=path, reason=reason) + kept
        case events.SandboxChanged(problem=problem) if problem:
            return "warning", f"Nothing is run: {problem}"
        case events.CompactionStarted():
            return "info", "The conversation is summarized."
        case events.Compacted(kind, before, after):
            what = "Old results were cleared" if kind == "cleared" else "A summary takes its place"
            return "info", f"{what}: about {before:,} tokens are {after:,} now."
        case events.CompactionUndone():
            return "info", "The model is shown again what the last compaction took away."
        case events.FilesRestored():
            return _restored(event)
        case events.ConversationRewound(text):
            return "info", f"The conversation goes on from before: {text}"
        case events.LinkOffered(url, text):
            return "info", f"{text}\n{url}"
        case _:
            return None


def _restored(event: events.FilesRestored) -> Said:
    done = [each.path for each in event.files if each.how != "left"]
    left = [f"{each.path}: {each.why}" for each in event.files if each.how == "left"]
    words = {"undo": "Undone", "redo": "Made again", "rewind": "Rewound", "finish": "Finished"}
    said = f"{words[event.kind]}: {', '.join(done) or 'nothing'}."
    if not left:
        return "info", said
    lines = [said, "Left as it is:", *left]
    if event.rest_of:
        verb = "redo" if event.kind == "redo" else "undo"
        lines.append(f"/{verb} {event.rest_of} does the rest, once nothing keeps it from that.")
    return "warning", "\n".join(lines)
