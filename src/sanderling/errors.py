"""
The errors that have a reader, by who acts on each.

SanderlingError
├── ConfigError      the user's settings are wrong; nothing starts
├── SessionError     a session's log cannot be read or written; that session does not open
└── ProviderError    the model API failed; the turn ends, the session lives
"""

from typing import Literal

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
    "internal",
]


class SanderlingError(Exception):
    """Anything that Sanderling itself reports. `str(error)` is one sentence for a person."""


class ConfigError(SanderlingError):
    """A setting has an unknown name, a wrong type or an impossible value."""


class SessionError(SanderlingError):
    """A session's log cannot be read or written."""


class ProviderError(SanderlingError):
    """The model did not answer: what happened, and what a person can do about it."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        remedy: str = "",
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ErrorKind = kind
        self.message = message
        self.remedy = remedy
        self.retry_after_s = retry_after_s
