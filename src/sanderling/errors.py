"""
Errors with a message for their reader, by who acts on each.

SanderlingError
├── UsageError       the command line is wrong; nothing starts
├── ConfigError      the user's settings are wrong; nothing starts
├── SessionError     a session's log cannot be read; that session does not open
├── WorktreeError    a worktree cannot be made, removed or applied; nothing was changed
├── SandboxError     the kernel cannot enforce what was asked; nothing runs
├── ToolError        a tool use cannot be done as asked; the model sees why, the turn continues
└── ProviderError    the model API failed; the turn ends, the session lives
"""

from typing import Literal

from sanderling.text import name_set, printable

ErrorKind = Literal[
    "no_key",
    "auth",
    "invalid_request",
    "rate_limited",
    "overloaded",
    "server",
    "network",
    "stalled",
    "cut",
    "malformed",
    "context_full",
    "internal",
]

TEMPORARY = name_set("rate_limited overloaded server network stalled cut malformed")


class SanderlingError(Exception):
    """Anything that Sanderling itself reports. `str(error)` is one sentence for the user."""


class UsageError(SanderlingError):
    """The command line asks for something impossible."""


class ConfigError(SanderlingError):
    """
    A setting has an unknown name, a wrong type or an impossible value.

    `path`: the keys that lead to it in a settings file; items of a list by their index. A caller that has the file adds the line.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class SessionError(SanderlingError):
    """A session's log cannot be read."""


class WorktreeError(SanderlingError):
    """A worktree cannot be made, removed or applied as asked."""


class SandboxError(SanderlingError):
    """The sandbox cannot be set up as asked. Nothing may run then."""


class NoRoomError(SandboxError):
    """The sandbox needs descriptors or inotify instances, and none are left until another sandbox of this process closes."""


class ToolError(SanderlingError):
    """A tool use failed: `str(error)` tells the model what is wrong, and what to do instead."""


class ProviderError(SanderlingError):
    """
    The model did not answer: what happened, and what the user can do.

    `is_temporary`: the same request may succeed later, but not before `retry_after_s` if that is known. `is_paid`: the answer is complete
    and paid for, but unusable. Usually the next one is the same. `lacks_model`: the API does not know the model.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        remedy: str = "",
        *,
        retry_after_s: float | None = None,
        is_temporary: bool | None = None,
        is_paid: bool | None = None,
        lacks_model: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = printable(message)
        self.remedy = remedy
        self.retry_after_s = retry_after_s
        self.is_temporary = kind in TEMPORARY if is_temporary is None else is_temporary
        self.lacks_model = lacks_model
        self.is_paid = kind == "malformed" if is_paid is None else is_paid
