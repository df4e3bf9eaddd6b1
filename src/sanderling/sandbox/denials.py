"""
Denials: what the sandbox refused, with enough data to offer exactly that grant and to run the command again, still confined.

Proxy and name server report what they refuse. A refused path is known only to the program that was refused. So its error message is
parsed, and believed if the policy agrees. A program that was not found is searched on the user's own PATH.
"""

import os
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from sanderling.paths import is_in_any
from sanderling.sandbox.kernel.installations import chain
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
    "hidden": "it is outside the project and hidden",
    "hidden_program": "`{about}` is on your PATH, but the sandbox hides that directory",
    "read_only": "only the project can be written",
    "plan": "nothing can be written in plan mode",
    "protected": "it could make the host run code, so it cannot be changed",
    "replaced": "it changed after you approved it",
    "network_off": "the network is off",
    "not_listed": "only listed hosts, through the proxy",
    "not_public": "{about} resolves to an address that is not public",
    "unreachable": "the network does not allow it",
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
    Something that the sandbox refused.

    `target` is the requested path, host:port or name. `rule` is the reason, and `about` the program or host that it concerns. `by` is the
    mark of the process that asked, if the network knows it.
    """

    operation: Literal["read", "write", "execute", "connect", "resolve"]
    target: str
    rule: Rule
    about: str = ""
    by: str = ""

    @property
    def reason(self) -> str:
        return _WORDS[self.rule].format(about=self.about)


def denials_in(output: str, policy: SandboxPolicy, cwd: str) -> list[Denial]:
    """Return the denials that a command's `output` complains about, each once. `cwd` is where it ran."""
    found: dict[Denial, None] = {}
    for line in output.splitlines():
        shown = line[:MAX_LINE_CHARS]
        if complaint := re.search(_COMPLAINT, shown):
            found.update(dict.fromkeys(_denials(complaint[0].lower(), shown, policy, cwd)))
    return list(found)[:MAX_DENIALS]


def programs_denied(output: str, status: int, command: str, policy: SandboxPolicy) -> list[Denial]:
    """
    Return the directories of hidden programs that a failed command did not find, each once.

    The programs are named in `output`, or if the `status` says that a program was missing and `output` does not, in `command`.
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
    """Return the hidden directories needed to run a program: on PATH, of the target of a link there, and of its interpreters."""
    places = [at for at in directories if os.access(f"{at}/{name}", os.X_OK)]
    places = [at for at in places if os.path.isfile(f"{at}/{name}")]
    if not places or name in {".", ".."}:
        return []
    used = [*chain(f"{places[0]}/{name}")]
    shown = (*_visible(policy), *map(os.path.realpath, policy.programs))
    needed = dict.fromkeys(
        at
        for path in used
        for at in (os.path.realpath(os.path.dirname(path)), os.path.dirname(os.path.realpath(path)))
    )
    return [at for at in needed if not is_in_any(at, shown)]


def _denials(complaint: str, line: str, policy: SandboxPolicy, cwd: str) -> Iterator[Denial]:
    for quoted, plain in re.findall(_PATH, line):
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(quoted or plain)))
        if complaint.startswith(("no such", "does not")):
            if os.path.lexists(path) and not is_in_any(path, _visible(policy)):
                yield Denial("read", path, "hidden")
        elif is_in_any(path, _writable(policy)):
            if complaint != "permission denied":  # caused by the file's own mode
                yield Denial("write", path, "protected" if policy.mode == "rw" else "plan")
        elif os.path.isdir(os.path.dirname(path)):
            yield Denial("write", path, "read_only" if policy.mode == "rw" else "plan")


def _writable(policy: SandboxPolicy) -> tuple[str, ...]:
    return (policy.project, *policy.write_paths)


def _visible(policy: SandboxPolicy) -> tuple[str, ...]:
    return (*_writable(policy), *policy.read_paths, *(f"/{name}" for name in SYSTEM))
