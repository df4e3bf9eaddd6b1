"""What the sandbox refused, as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Denial:
    """
    One thing that the sandbox did not let happen.

    `target` is the path, the host:port or the name that was asked for; `rule` says in words what stood against it.
    """

    operation: Literal["read", "write", "execute", "connect", "resolve"]
    target: str
    rule: str
