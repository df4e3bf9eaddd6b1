"""
What the sandbox refused, as data: enough to offer exactly that grant and to run the command again, still confined.

The network's doors report what they refuse. A refused path is known at first hand only to the program that was refused; its
complaint is looked at, and believed where the policy says the same.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sanderling.sandbox.layout import SYSTEM
from sanderling.sandbox.policy import SandboxPolicy, is_within

HIDDEN, READ_ONLY, PLAN, PROTECTED = (
    "it is outside of the project, and hidden",
    "only the project can be written",
    "nothing can be written in plan mode, in which the sandbox is read-only",
    "it could make the host run something, so it cannot be changed",
)
_COMPLAINT = (
    r"(?i)No such file(?: or directory)?|Permission denied|Read-only file system|Operation not permitted"
    r"|Device or resource busy"
)
_QUOTES = "'\"`\u2018\u2019\u201c\u201d"
_PLAIN = rf"[^\s{_QUOTES}:,;()]"
_PATH = re.compile(rf"[{_QUOTES}]([^{_QUOTES}]+)[{_QUOTES}]|({_PLAIN}*/{_PLAIN}+)")
MAX_DENIALS = 20
MAX_LINE_CHARS = 1024


@dataclass(frozen=True, slots=True)
class Denial:
    """
    One thing that the sandbox did not let happen.

    `target` is the path, the host:port or the name that was asked for; `rule` says in words what stood against it.
    """

    operation: Literal["read", "write", "execute", "connect", "resolve"]
    target: str
    rule: str


def denials_in(output: str, policy: SandboxPolicy, cwd: str) -> list[Denial]:
    """The refusals that a command's `output` complains of, each once; `cwd` is where it ran."""
    found: dict[Denial, None] = {}
    for line in output.splitlines():
        shown = line[:MAX_LINE_CHARS]
        if complaint := re.search(_COMPLAINT, shown):
            found.update(dict.fromkeys(_denials(complaint[0].lower(), shown, policy, cwd)))
    return list(found)[:MAX_DENIALS]


def _denials(complaint: str, line: str, policy: SandboxPolicy, cwd: str) -> Iterator[Denial]:
    for quoted, plain in _PATH.findall(line):
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(quoted or plain)))
        if complaint.startswith("no such"):
            if os.path.lexists(path) and not _is_in_any(path, _visible(policy)):
                yield Denial("read", path, HIDDEN)
        elif _is_in_any(path, _writable(policy)):
            if complaint != "permission denied":  # that is the file's own mode
                yield Denial("write", path, PROTECTED if policy.mode == "rw" else PLAN)
        elif os.path.isdir(os.path.dirname(path)):
            yield Denial("write", path, READ_ONLY if policy.mode == "rw" else PLAN)


def _writable(policy: SandboxPolicy) -> tuple[str, ...]:
    return (policy.project, *policy.write_paths)


def _visible(policy: SandboxPolicy) -> tuple[str, ...]:
    return (*_writable(policy), *policy.read_paths, *(f"/{name}" for name in SYSTEM))


def _is_in_any(path: str, roots: tuple[str, ...]) -> bool:
    return any(is_within(path, root) for root in roots)
