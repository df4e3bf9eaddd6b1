"""
An interpreter of the part of SBPL that profiles are written in here. It reads the text, and knows nothing of the compiler.

Sources disagree on which of two matching rules decides: the last one, the one that denies, or the one that names the operation without a
wildcard. A decision that depends on this is an error. So is anything unknown in a profile, which would not compile on macOS either.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

Expression: TypeAlias = "str | Text | list[Expression]"


class Text(str):
    """A string of SBPL, as opposed to a symbol."""

    __slots__ = ()


@dataclass(frozen=True)
class Request:
    """What a process asks of the kernel: an operation on a path, an address, a name, or a process."""

    operation: str
    path: str = ""
    host: str = ""
    port: int = 0
    name: str = ""
    is_same_sandbox: bool = False
    extensions: frozenset[str] = frozenset()
    socket_domain: str = ""
    vnode_type: str = "REGULAR-FILE"


VNODE_TYPES = ("REGULAR-FILE", "DIRECTORY", "SYMLINK", "SOCKET", "FIFO", "CHARACTER-DEVICE")
OPERATIONS = frozenset(
    [
        "file-read-data",
        "file-read-metadata",
        "file-read-xattr",
        "file-write-create",
        "file-write-data",
        "file-write-flags",
        "file-write-mode",
        "file-write-owner",
        "file-write-setugid",
        "file-write-times",
        "file-write-unlink",
        "file-write-xattr",
        "file-map-executable",
        "file-ioctl",
        "file-link",
        "file-clone",
        "process-exec",
        "process-fork",
        "process-info-pidinfo",
        "process-info-listpids",
        "process-info-setcontrol",
        "signal",
        "sysctl-read",
        "sysctl-write",
        "mach-lookup",
        "mach-register",
        "mach-priv-task-port",
        "mach-host-special-port-set",
        "ipc-posix-sem",
        "ipc-posix-shm-read-data",
        "ipc-posix-shm-write-create",
        "ipc-sysv-shm",
        "pseudo-tty",
        "network-outbound",
        "network-inbound",
        "network-bind",
        "system-socket",
        "appleevent-send",
        "lsopen",
        "job-creation",
        "user-preference-read",
        "user-preference-write",
        "iokit-open",
        "nvram-set",
        "system-privilege",
    ]
)


_TOKEN = re.compile(
    r"""\s+|;[^\n]*|(?P<token>[()]|[^\s();"]+)|"(?P<string>(?:[^"\\]|\\.)*)\"""", re.DOTALL
)


def parse(text: str) -> list[Expression]:
    tokens = _tokens(text)
    return [_expression(token, tokens) for token in tokens]


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found, f"no token at {text[at : at + 20]!r}"
        at = found.end()
        if token := found["token"]:
            yield token
        elif (string := found["string"]) is not None:
            escaped = re.findall(r"\\(.)", string, re.DOTALL)
            assert not {*escaped} - {*'"\\'}, f"unsure what {escaped} mean"
            yield '"' + re.sub(r"\\(.)", r"\1", string, flags=re.DOTALL)


def _expression(token: str, tokens: Iterator[str]) -> Expression:
    if token == "(":
        items: list[Expression] = []
        while (each := next(tokens)) != ")":
            items.append(_expression(each, tokens))
        return items
    assert token != ")", "one bracket too many"
    return Text(token[1:]) if token.startswith('"') else token


class Profile:
    def __init__(self, text: str) -> None:
        self.rules: list[tuple[str, list[str], list[Expression]]] = []
        version, *rules = parse(text)
        assert version == ["version", "1"]
        for effect, *rest in rules:
            assert effect in ("allow", "deny"), effect
            operations = [each for each in rest if type(each) is str]
            assert operations, "a rule without an operation"
            for each in operations:
                assert each == "default" or any(_covers(each, one) for one in OPERATIONS), each
            filters = rest[len(operations) :]
            for each in filters:
                _check(each)
            self.rules.append((effect, operations, filters))

    @classmethod
    def of(cls, rules: "list[tuple[str, list[str], list[Expression]]]") -> "Profile":
        profile = cls("(version 1)")
        profile.rules = rules
        return profile

    def allows(self, request: Request) -> bool:
        """Return the decision, which must not depend on the order that one believes in."""
        assert request.operation in OPERATIONS, request.operation
        effects = [
            (effect, operation)
            for effect, operations, filters in self.rules
            for operation in operations
            if _covers(operation, request.operation)
            and (not filters or any(matches(each, request) for each in filters))
        ]
        decided = [each for each in effects if each[1] != "default"] or effects
        specific = [each for each in decided if not each[1].endswith("*")] or decided
        by_last = decided[-1][0] == "allow"
        by_denial = all(effect == "allow" for effect, _ in decided)
        by_operation = specific[-1][0] == "allow"
        assert by_last == by_denial == by_operation, f"the order of rules decides about {request}"
        return by_last


def _check(expression: Expression) -> None:
    """Check that every part of a filter is known."""
    assert isinstance(expression, list)
    if expression[0] in ("require-all", "require-any", "require-not"):
        assert expression[1:], expression
        for part in expression[1:]:
            _check(part)
    else:
        matches(expression, Request("file-read-data", "/"))


@cache
def _covers(pattern: str, operation: str) -> bool:
    return pattern in ("default", operation) or (
        pattern.endswith("*") and operation.startswith(pattern[:-1])
    )


def matches(expression: Expression, request: Request) -> bool:  # noqa: PLR0911 - one for each filter
    match expression:
        case ["require-all", *parts]:
            return all(matches(part, request) for part in parts)
        case ["require-any", *parts]:
            return any(matches(part, request) for part in parts)
        case ["require-not", part]:
            return not matches(part, request)
        case ["literal", Text(path)]:
            return request.path == path
        case ["subpath", Text(path)]:
            assert path == "/" or not path.endswith("/"), path
            return path in ("/", request.path) or request.path.startswith(f"{path}/")
        case ["prefix", Text(path)]:
            return bool(request.path) and request.path.startswith(path)
        case ["regex", Text(pattern)]:
            return bool(request.path) and bool(_regex(pattern).search(request.path))
        case ["remote" | "local", "ip", Text(address)]:
            host, _, port = address.rpartition(":")
            assert host in ("*", "localhost"), f"Seatbelt knows no host {host}"
            is_host = host == "*" or request.host in ("127.0.0.1", "::1")
            return bool(request.host) and is_host and port in ("*", str(request.port))
        case ["target", "same-sandbox"]:
            return request.is_same_sandbox
        case ["global-name" | "sysctl-name", Text(name)]:
            return request.name == name
        case ["sysctl-name-prefix", Text(name)]:
            return request.name.startswith(name)
        case ["ipc-posix-name-regex", Text(pattern)]:
            return bool(_regex(pattern).search(request.name))
        case ["extension", Text(name)]:
            return name in request.extensions
        case ["vnode-type", str(kind)]:
            assert kind in VNODE_TYPES, kind
            return bool(request.path) and request.vnode_type == kind
        case ["socket-domain", str(domain)]:
            return request.socket_domain == domain
        case _:
            raise AssertionError(f"unknown filter {expression}")


@cache
def _regex(pattern: str) -> re.Pattern[str]:
    """Return `pattern` for Python, if it has only what both engines have."""
    rest = re.sub(r"\\.|\[\^?[^\]\\]+\]", "", pattern, flags=re.DOTALL)
    assert not set(rest) & set("{}\\"), pattern
    assert "(?" not in rest, pattern
    for group in re.findall(r"\[\^?([^\]\\]+)\]", re.sub(r"\\.", "", pattern)):
        assert group.isascii(), f"{pattern}: a class is of bytes"
    return re.compile(_dollars(pattern))


def _dollars(pattern: str) -> str:
    """In Python, a `$` also matches before a line break at the end."""
    return re.sub(r"(\\.)|\$", lambda found: found[1] or r"\Z", pattern, flags=re.DOTALL)
