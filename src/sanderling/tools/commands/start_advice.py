"""
The access that a server or an agent lacks in the sandbox, as the lines to add to its table of the settings.

The lines are exact: the user copies them. What a program needs is found as the kernel would: by PATH, through links, to the interpreter
in its first line, and for each of these to the directory that holds everything installed with it.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from sanderling.config import KeyPath, dotted
from sanderling.errors import SandboxError
from sanderling.hosts import is_loopback, split_authority
from sanderling.paths import is_in_any, is_within
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.kernel.installations import BINARIES, chain
from sanderling.sandbox.kernel.programs import is_system
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.policy import Grant, SandboxPolicy, is_too_wide
from sanderling.sandbox.report import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND

MAX_HOSTS = 5
TAIL = 80
CONTAINERS = ("docker", "podman", "nerdctl")
NO_CONTAINERS = (
    "the sandbox reaches no container engine: use the server's npm or Python package, or its url"
)
BESIDE = {"pypi.org": "files.pythonhosted.org"}
"""Hosts that are needed together with another one."""

_HOST = r"((?:[A-Za-z0-9_-]+\.)+[A-Za-z][A-Za-z0-9-]*(?::\d+)?)"
_NO_NETWORK = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|[Cc]ould not resolve|getaddrinfo|Name or service not known|name resolution|dns error"
    r"|nodename nor servname|Not a listed host|tunnel error|Network is unreachable|no such host|NameResolutionError|blocks "
)
_URL = re.compile(rf"https?://{_HOST}")
_NAMED = re.compile(
    rf"(?:ENOTFOUND|EAI_AGAIN|resolve host:|lookup|host=')\s*{_HOST}|\[refused: resolve {_HOST}:"
)
_REFUSED = re.compile(r"\[refused: connect (\S+): (.*)\]")


class StartedProgram(NamedTuple):
    """
    A program as its `table` of the settings declares it, started with `grant` in `project`, with `env` of its own.

    With `is_projects` the project declares it. It cannot give it access, and a table of the user's takes its place as a whole.
    """

    argv: Sequence[str]
    table: KeyPath
    sandbox: SessionSandbox
    project: str
    grant: Grant
    env: Mapping[str, str]
    is_projects: bool = False

    def path(self) -> str:
        """Return the path of the program, empty without one."""
        program = os.path.expanduser(self.argv[0])
        place = os.path.join(self.project, program) if "/" in program else program
        return shutil.which(place, path=self.env.get("PATH")) or ""

    def advice(self, status: int, log: str) -> str:
        """Return what to do about its end with `status`, after it wrote `log`; empty if that is not known."""
        if not self.sandbox.confines(is_confined=True) or not status:
            return ""
        if status in (EXIT_NOT_FOUND, EXIT_NOT_EXECUTABLE) and (found := self._hidden()):
            return self._line("paths", self.grant.read_paths, found)
        if os.path.basename(self.argv[0]) in CONTAINERS:
            return NO_CONTAINERS
        if hosts := self._hosts(log):
            return self._line("hosts", self.grant.hosts, hosts)
        return ""

    def _line(self, key: str, declared: Sequence[str], needed: Sequence[str]) -> str:
        values = dict.fromkeys((*declared, *needed))
        listed = ", ".join(msgspec.json.encode(each).decode() for each in values)
        line = f"{'set' if declared else 'add'} `{key} = [{listed}]` in [{dotted(self.table)}] of config.toml"
        return f"{line}, with its `command`" if self.is_projects else line

    def _hidden(self) -> list[str]:
        """Return the paths that its program needs and the sandbox does not show."""
        open_sandbox = self.sandbox.manager.sandbox
        policy = open_sandbox.policy if open_sandbox else self.sandbox.effective_policy.policy
        places = dict[str, None]()
        for path in chain(self.path()):
            for each in dict.fromkeys((path, os.path.realpath(path))):
                if not _is_shown(each, self.grant.added_to(policy)):
                    places[_installation(each, policy.home)] = None
        needed = [
            each for each in places if not any(is_within(each, o) for o in places if o != each)
        ]
        return [_short(each, policy.home) for each in needed]

    def _hosts(self, log: str) -> list[str]:
        """Return the hosts that it did not reach."""
        if self.sandbox.environment.network == "on":
            return []
        lines = log.splitlines()[-TAIL:]
        found = list[str]()
        for line in lines:
            if refused := _REFUSED.search(line):
                found.append(refused[1].removesuffix(":443").removesuffix(":80"))
            found += (name for names in _NAMED.findall(line) for name in names)
        if any(map(_NO_NETWORK.search, lines)):
            found += (host for line in lines for host in _URL.findall(line))
        found += [BESIDE[each] for each in found if each in BESIDE]
        return [each for each in dict.fromkeys(found) if self._is_missing(each)][:MAX_HOSTS]

    def _is_missing(self, host: str) -> bool:
        with suppress(ValueError, SandboxError):
            is_local = is_loopback(split_authority(host)[0])
            return not is_local and not HostRules(self.grant.hosts).allow_all_of(host)
        return False


def _installation(path: str, home: str) -> str:
    """Return the directory with everything that is installed together with the program at `path`."""
    parts = path.split("/")
    if "node_modules" in parts:
        above = parts[: parts.index("node_modules")]
        top = "/".join(above[:-1] if above[-1] == "lib" else above)
        return (
            top if _may_be_named(top, home) else "/".join(parts[: parts.index("node_modules") + 1])
        )
    directory = os.path.dirname(path)
    above = os.path.dirname(directory)
    if os.path.basename(directory) in BINARIES and _may_be_named(above, home):
        return above
    return directory if _may_be_named(directory, home) else path


def _may_be_named(directory: str, home: str) -> bool:
    return not is_too_wide(
        os.path.realpath(directory), os.path.realpath(home)
    ) and directory not in (
        f"{home}/.local",
        f"{home}/.local/share",
        f"{home}/.config",
    )


def _is_shown(path: str, policy: SandboxPolicy) -> bool:
    granted = (policy.project, *policy.read_paths, *policy.write_paths, *policy.programs)
    shown = (*granted, *map(os.path.realpath, granted))
    return is_in_any(path, shown) or (is_system(path) and os.path.exists(path))


def _short(path: str, home: str) -> str:
    return f"~{path.removeprefix(home)}" if is_within(path, home) and path != home else path
