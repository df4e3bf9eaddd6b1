"""News of the sandbox, unasked, as the screen is told of it."""

from sanderling.protocol.events import AccessDenied, Event, GuardActed, Notice, SandboxChanged
from sanderling.sandbox.confinement import SessionEvent, SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.report import GuardEvent, ProjectReplaced
from sanderling.text import printable

PROJECT_REPLACED = (
    "{project} is another directory than before. What was still running in the old one was stopped;"
    " from here on, the new one is used."
)
DISK_FULL = "Commands were stopped: the disk of {path} is nearly full ({left} left)."


def shown_sandbox(sandbox: SessionSandbox) -> SandboxChanged:
    """The event that says how the sandbox is now."""
    return SandboxChanged(*sandbox.facts)


def shown_event(event: SessionEvent) -> Event:
    """`event` of the sandbox in the words of a face's."""
    match event:
        case Denial():
            return AccessDenied(event.operation, event.target, event.reason)
        case GuardEvent(kind, path, reason, kept_at):
            shown = "noticed" if kind == "warned" else kind
            return GuardActed(shown, printable(path), printable(reason), printable(kept_at))
        case ProjectReplaced(project):
            return Notice("warning", PROJECT_REPLACED.format(project=printable(project)))
        case DiskFull(path, free, unit):
            left = f"{free / 1e6:,.0f} MB" if unit == "bytes" else f"{free:,} files"
            return Notice("warning", DISK_FULL.format(path=path, left=left))
