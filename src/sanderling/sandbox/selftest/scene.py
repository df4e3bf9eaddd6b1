"""The scene of a self-test: what escapes aim at, and whether they reached it."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.selftest import trials
from sanderling.sandbox.selftest.trials import Evidence, Facts

_GIT_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n"
_WAIT = "import sys; sys.stdin.read()"
_PLANTED_APP = """<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict><key>CFBundleExecutable</key><string>planted</string>
<key>CFBundleIdentifier</key><string>{label}</string><key>LSUIElement</key><true/></dict></plist>
"""


class Scene:
    """A new directory below `directory`, with a project, and `outside` of it what commands must not reach."""

    def __init__(self, directory: Path) -> None:
        self._token = secrets.token_hex(16)
        self.base = directory / f"selftest-{secrets.token_hex(4)}"
        self.project = self.base / "project"
        self.outside = self.base / "outside"
        self.state = self.base / "state"
        self.label = f"sanderling.selftest.{self._token[:8]}"
        self.script = self.project / "trials.py"
        self._listeners: list[socket.socket] = []
        self._victim: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            listener.close()
        self._end_victim()
        if sys.platform == "darwin":
            _run("/bin/launchctl", "remove", self.label)
        shutil.rmtree(self.base, ignore_errors=True)

    @property
    def policy(self) -> SandboxPolicy:
        """The policy of the project's commands, without network."""
        return SandboxPolicy(
            project=str(self.project),
            home=os.path.expanduser("~"),
            state_dir=str(self.state),
        )

    def facts(self) -> Facts:
        """Return the facts for an attempt. A victim that has ended is replaced."""
        victim = self._victim
        if victim is None or victim.poll() is not None:
            self._end_victim()
            victim = self._victim = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", "-c", _WAIT],
                stdin=subprocess.PIPE,
                env={"TOKEN": self._token},
            )
        return Facts(str(self.project), str(self.outside), self._port, victim.pid, self.label)

    def _end_victim(self) -> None:
        if self._victim:
            self._victim.kill()
            self._victim.communicate()

    def _make(self) -> None:
        self.base.mkdir(mode=0o700, parents=True)
        for path in (self.project, self.state / "home", self.state / "tmp"):
            path.mkdir(parents=True)
        for path in ("private", "Library/LaunchAgents", "Planted.app/Contents/MacOS"):
            (self.outside / path).mkdir(parents=True)
        (self.outside / "secret").write_text(self._token)
        (self.outside / "private" / self._token).touch()
        contents = self.outside / "Planted.app/Contents"
        (contents / "Info.plist").write_text(_PLANTED_APP.format(label=self.label))
        program = contents / "MacOS/planted"
        program.write_text(f"#!/bin/sh\n: > '{self.outside}/started'\n")
        program.chmod(0o755)
        shutil.copy(trials.__file__, self.script)
        self._make_repository()
        tcp = socket.create_server(("127.0.0.1", 0))
        self._port = tcp.getsockname()[1]
        self._listeners = [tcp, *(self._listen(name) for name in ("service", "desktop"))]
        for listener in self._listeners:
            listener.setblocking(False)

    def _make_repository(self) -> None:
        git = self.project / ".git"
        for name in ("hooks", "objects/info", "refs/heads"):
            (git / name).mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text(_GIT_CONFIG)

    def _listen(self, name: str) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        with _in(self.outside):  # the path of a socket is short
            listener.bind(name)
        listener.listen()
        return listener

    def has_escaped(self, evidence: Evidence, output: str) -> bool:
        """Return whether an attempt that printed `output` got through, and undo it as far as the next one needs that."""
        match evidence:
            case "said":
                return self._token in output
            case "reached":
                return self._was_reached()
            case "ended":
                return self._has_ended()
            case "changed":
                return self._has_changed() or self._was_reached()

    def _was_reached(self) -> bool:
        connections: list[socket.socket] = []
        for listener in self._listeners:
            with suppress(BlockingIOError):
                connections.append(listener.accept()[0])
        for each in connections:
            each.close()
        return bool(connections)

    def _has_ended(self) -> bool:
        assert self._victim
        with suppress(subprocess.TimeoutExpired):
            self._victim.wait(trials.PATIENCE_S / 5)
        return self._victim.returncode is not None

    def _has_changed(self) -> bool:
        git = self.project / ".git"
        made = (
            self.outside / "kept",
            self.outside / "started",
            self.outside / "Library/LaunchAgents/planted.plist",
            self.project / ".envrc",
            git / "hooks/pre-commit",
        )
        found = [path for path in made if path.exists()]
        for path in found:
            path.unlink()
        is_same = (git / "config").exists() and (git / "config").read_text() == _GIT_CONFIG
        if not is_same and (git / "config").exists():
            (git / "config").write_text(_GIT_CONFIG)
        return bool(found) or not is_same


@contextmanager
def _in(directory: Path) -> Generator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def _run(*argv: str) -> None:
    with suppress(OSError):
        subprocess.run(argv, check=False, capture_output=True)  # noqa: S603
