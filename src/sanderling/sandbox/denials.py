"""
Denials: what the sandbox refused, as data: enough to offer exactly that grant and to run the command again, still confined.

The network's doors report what they refuse. A refused path is known at first hand only to the program that was refused; its
complaint is looked at, and believed where the policy says the same. A program that is not found is looked for where the person's own
shell would find it.
"""

import os
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from sanderling.paths import is_in_any
from sanderling.sandbox.kernel.programs import SYSTEM, path_entries
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND

Rule = Literal[
    "hidden",
    "hidden_program",
    "read_only",
    "plan",
    "protected",
    "replaced",
    "network_off",
    "not_listed",
    "not_public",
    "unreachable",
]
_WORDS: dict[Rule, str] = {
    "hidden": "it is outside of the project, and hidden",
    "hidden_program": "`{about}` is there, on your PATH, and the sandbox hides that directory",
    "read_only": "only the project can be written",
    "plan": "nothing can be written in plan mode, in which the sandbox is read-only",
    "protected": "it could make the host run something, so it cannot be changed",
    "replaced": "it was replaced after you had been asked about it",
    "network_off": "the network is off",
    "not_listed": "only listed hosts, through the proxy",
    "not_public": "{about} leads to an address that is not public",
    "unreachable": "the network does not lead there",
}
_NAME = r"(?<![\w./-])([\w.+-]+)"
_NOT_FOUND = (
    rf"(?i)(?:{_NAME}['\"\u2019]?: (?:(?:command |executable file )?not found(?!:)|No such file or directory|Permission denied)"
    rf"|command not found: {_NAME}|(?:No such file or directory|spawn):? ['\"\u2018`]?{_NAME})"
)
_COMPLAINT = (
    r"(?i)No such file(?: or directory)?|Permission denied|Read-only file system|Operation not permitted"
    r"|Device or resource busy|does not (?:exist|appear to be a git repository)"
)
_QUOTES = "'\"`\u2018\u2019\u201c\u201d"
_PLAIN = rf"[^\s{_QUOTES}:,;()]"
_PATH = rf"[{_QUOTES}]([^{_QUOTES}]+)[{_QUOTES}]|({_PLAIN}*/{_PLAIN}+)"
MAX_DENIALS = 20
MAX_LINE_CHARS = 1024


class Denial(NamedTuple):
    """
    One thing that the sandbox did not let happen.

    `target` is the path, the host:port or the name that was asked for; `rule` stood against it, and is `about` a program or a host.
    """

    operation: Literal["read", "write", "execute", "connect", "resolve"]
    target: str
    rule: Rule
    about: str = ""

    @property
    def reason(self) -> str:
        """The rule in words, as the person and the model read it."""
        return _WORDS[self.rule].format(about=self.about)


def denials_in(output: str, policy: SandboxPolicy, cwd: str) -> list[Denial]:
    """The refusals that a command's `output` complains of, each once; `cwd` is where it ran."""
    found: dict[Denial, None] = {}
    for line in output.splitlines():
        shown = line[:MAX_LINE_CHARS]
        if complaint := re.search(_COMPLAINT, shown):
            found.update(dict.fromkeys(_denials(complaint[0].lower(), shown, policy, cwd)))
    return list(found)[:MAX_DENIALS]


def programs_denied(output: str, status: int, command: str, policy: SandboxPolicy) -> list[Denial]:
    """
    The directories of hidden programs that a command which has failed did not find, each once.

    Its `output` names them, or where the `status` says that there was no program and the output does not, the `command`.
    """
    lines = (line[:MAX_LINE_CHARS] for line in output.splitlines())
    named = [
        name for line in lines for found in re.findall(_NOT_FOUND, line) for name in found if name
    ]
    denials = _programs_denied(named, policy)
    if not denials and status in {EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND}:
        denials = _programs_denied(re.findall(_NAME, command[:MAX_LINE_CHARS]), policy)
    return denials


def _programs_denied(names: list[str], policy: SandboxPolicy) -> list[Denial]:
    found: dict[str, Denial] = {}
    directories = path_entries()
    for name in list(dict.fromkeys(names))[:MAX_DENIALS]:
        for directory in _places_of(name, directories, policy):
            denial = Denial("execute", directory, "hidden_program", name)
            found.setdefault(directory, denial)
    return list(found.values())[:MAX_DENIALS]


def _places_of(name: str, directories: list[str], policy: SandboxPolicy) -> list[str]:
    """The hidden directories that it takes to run the program: where it is on the PATH, and where a link there leads."""
    places = [at for at in directories if os.access(f"{at}/{name}", os.X_OK)]
    places = [at for at in places if os.path.isfile(f"{at}/{name}")]
    if not places or name in {".", ".."}:
        return []
    first = places[0]
    real = os.path.dirname(os.path.realpath(f"{first}/{name}"))
    shown = (*_visible(policy), *map(os.path.realpath, policy.programs))
    needed = dict.fromkeys((os.path.realpath(first), real))
    return [at for at in needed if not is_in_any(at, shown)]


def _denials(complaint: str, line: str, policy: SandboxPolicy, cwd: str) -> Iterator[Denial]:
    for quoted, plain in re.findall(_PATH, line):
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(quoted or plain)))
        if complaint.startswith(("no such", "does not")):
            if os.path.lexists(path) and not is_in_any(path, _visible(policy)):
                yield Denial("read", path, "hidden")
        elif is_in_any(path, _writable(policy)):
            if complaint != "permission denied":  # that is the file's own mode
                yield Denial("write", path, "protected" if policy.mode == "rw" else "plan")
        elif os.path.isdir(os.path.dirname(path)):
            yield Denial("write", path, "read_only" if policy.mode == "rw" else "plan")


def _writable(policy: SandboxPolicy) -> tuple[str, ...]:
    return (policy.project, *policy.write_paths)


def _visible(policy: SandboxPolicy) -> tuple[str, ...]:
    return (*_writable(policy), *policy.read_paths, *(f"/{name}" for name in SYSTEM))
