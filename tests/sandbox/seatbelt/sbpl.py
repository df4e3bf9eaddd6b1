"""
An interpreter of the part of SBPL that profiles are written in here. It reads the text, and knows nothing of the compiler.

Sources disagree on which of two matching rules decides, so the reader of a decision says which order he believes in. Anything unknown in a
profile is an error: on macOS, too, it would not compile.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Expression: TypeAlias = "str | Text | list[Expression]"
Order = Literal["last rule", "denial", "specific operation"]
ORDERS: tuple[Order, ...] = ("last rule", "denial", "specific operation")


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


OPERATIONS = frozenset(
    "file-read-data file-read-metadata file-read-xattr file-write-create file-write-data file-write-flags file-write-mode file-write-owner"
    " file-write-setugid file-write-times file-write-unlink file-write-xattr file-map-executable file-ioctl file-link file-clone"
    " process-exec process-fork process-info-pidinfo process-info-listpids process-info-setcontrol signal sysctl-read sysctl-write"
    " mach-lookup mach-register mach-priv-task-port mach-host-special-port-set ipc-posix-sem ipc-posix-shm-read-data"
    " ipc-posix-shm-write-create ipc-sysv-shm pseudo-tty network-outbound network-inbound network-bind system-socket appleevent-send"
    " lsopen job-creation user-preference-read user-preference-write iokit-open nvram-set system-privilege".split()
)


def parse(text: str) -> list[Expression]:
    tokens = _tokens(text)
    found: list[Expression] = []
    for token in tokens:
        found.append(_expression(token, tokens))
    return found


def _tokens(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        char = text[at]
        if char.isspace():
            at += 1
        elif char == ";":
            at = text.find("\n", at) % (len(text) + 1)
        elif char in "()":
            yield char
            at += 1
        elif char == '"':
            end, value = at + 1, ""
            while text[end] != '"':
                if text[end] == "\\":
                    end += 1
                    assert text[end] in '"\\', f"unsure what \\{text[end]} means"
                value += text[end]
                end += 1
            yield '"' + value
            at = end + 1
        else:
            end = at
            while end < len(text) and not text[end].isspace() and text[end] not in '();"':
                end += 1
            yield text[at:end]
            at = end


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
                assert type(each) is list, each
                matches(each, Request("file-read-data", "/"))  # knows every part of it
            self.rules.append((effect, operations, filters))

    def allows(self, request: Request, order: Order = "last rule") -> bool:
        assert request.operation in OPERATIONS, request.operation
        effects = [
            (effect, operation)
            for effect, operations, filters in self.rules
            for operation in operations
            if _covers(operation, request.operation)
            and (not filters or any(matches(each, request) for each in filters))
        ]
        decided = [each for each in effects if each[1] != "default"] or effects
        if order == "denial":
            return all(effect == "allow" for effect, _ in decided)
        if order == "specific operation":
            decided = [each for each in decided if not each[1].endswith("*")] or decided
        return decided[-1][0] == "allow"


def _covers(pattern: str, operation: str) -> bool:
    return pattern in ("default", operation) or (
        pattern.endswith("*") and operation.startswith(pattern[:-1])
    )


def matches(expression: Expression, request: Request) -> bool:
    match expression:
        case ["require-all", *parts]:
            return all([matches(part, request) for part in parts])
        case ["require-any", *parts]:
            return any([matches(part, request) for part in parts])
        case ["require-not", part]:
            return not matches(part, request)
        case ["literal", Text(path)]:
            return request.path == path
        case ["subpath", Text(path)]:
            assert path == "/" or not path.endswith("/"), path
            return path == "/" or request.path == path or request.path.startswith(f"{path}/")
        case ["prefix", Text(path)]:
            return bool(request.path) and request.path.startswith(path)
        case ["regex", Text(pattern)]:
            return bool(request.path) and bool(re.search(_regex(pattern), request.path))
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
            return bool(re.search(_regex(pattern), request.name))
        case ["extension", Text(name)]:
            return name in request.extensions
        case ["socket-domain", str(domain)]:
            return request.socket_domain == domain
        case _:
            raise AssertionError(f"unknown filter {expression}")


def _regex(pattern: str) -> str:
    """Return `pattern` for Python, if it has only what both engines have."""
    rest = re.sub(r"\\.|\[\^?[^\]\\]+\]", "", pattern, flags=re.DOTALL)
    assert not set(rest) & set("{}\\"), pattern
    assert "(?" not in rest, pattern
    for group in re.findall(r"\[\^?([^\]\\]+)\]", re.sub(r"\\.", "", pattern)):
        assert group.isascii(), f"{pattern}: a class is of bytes"
    return _dollars(pattern)


def _dollars(pattern: str) -> str:
    """In Python, a `$` also matches before a line break at the end."""
    return re.sub(r"(\\.)|\$", lambda found: found[1] or r"\Z", pattern, flags=re.DOTALL)
