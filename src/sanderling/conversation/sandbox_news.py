"""Sandbox events as events for the screen."""

from sanderling.protocol.events import AccessDenied, Event, GuardActed, Notice, SandboxChanged
from sanderling.sandbox.confinement import SessionEvent, SessionSandbox
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.disk import DiskFull
from sanderling.sandbox.report import GuardEvent, ProjectReplaced
from sanderling.text import printable

PROJECT_REPLACED = (
    "{project} was replaced by another directory. Processes in the old one were stopped;"
    " the new one is used from now on."
)
DISK_FULL = "Commands were stopped: the disk of {path} is nearly full ({left} left)."


def shown_sandbox(sandbox: SessionSandbox) -> SandboxChanged:
    return SandboxChanged(*sandbox.facts)


def shown_event(event: SessionEvent) -> Event:
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
