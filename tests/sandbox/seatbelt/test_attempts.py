"""
The portable attacks of the escape suite, tried for real: on macOS against Seatbelt, elsewhere against the sandbox of Linux.

An attack counts if it succeeds without a sandbox. Each has its own directory outside, so all can run before anything is looked at.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sanderling.sandbox.policy import resolve_policy
from sanderling.sandbox.seatbelt.profile import launcher
from tests.sandbox import attacks
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.attacks.valuables import IGNORED, SECRETS
from tests.sandbox.seatbelt.scene import Scene
from tests.sandbox.seatbelt.test_decisions import portable

IS_MAC = sys.platform == "darwin"
RUN = "import sys; sys.path.insert(0, sys.argv[1]); from attacks.__main__ import main; main(sys.argv[2:])"
TIMEOUT_S = 150
IDS = [
    attack_id
    for attack_id in portable({"files", "metadata", "secrets"})
    if ATTACKS[attack_id].scene == "main"
    and ATTACKS[attack_id].evidence in ("changed", "loot", "claim")
    and not attack_id.startswith(("tmp-", "var-tmp-", "etc-", "usr-", "setuid-", "inotify-", "secret-exec", "file-dotdot", "file-rename-race"))
    and "chown" not in attack_id
]  # fmt: skip


class World:
    """A user's HOME with secrets, and a place for each attack."""

    def __init__(self, base: Path) -> None:
        self.scene = Scene(base)
        self.token = f"CANARY-{secrets.token_hex(8)}"
        self.home, self.project = self.scene.home, self.scene.project
        self.elsewhere = base / "elsewhere"
        for attack_id in IDS:
            for place in (self.home / "outside" / attack_id, self.elsewhere / attack_id):
                (place / "dir").mkdir(parents=True)
                (place / "file").write_text(f"{self.token}\n")
                note(place / "file", "user.kept", "1")
        for name in (*SECRETS.values(), ".ssh/old"):
            path = self.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{self.token}\n")
        note(self.home / SECRETS["ssh-key"], "user.note", self.token)
        (self.project / "way-out").symlink_to(self.home / "outside")
        for name in IGNORED.values():
            (self.project / name).write_text(f"{self.token}\n")
        (self.home / "Documents" / self.token).touch()
        (self.home / ".ssh/link").symlink_to(self.token)
        for name in (".config/autostart", ".local/bin", ".config/systemd/user", ".local/lib"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        for name in (".bashrc", ".profile", ".gitconfig", ".config/nvim/init.lua", ".ssh/authorized_keys"):  # fmt: skip
            (self.home / name).parent.mkdir(parents=True, exist_ok=True)
            (self.home / name).write_text("")
        self.code = self.project / "attacks"
        shutil.copytree(Path(attacks.__file__).parent, self.code / "attacks")
        self.facts = self.code / "facts.json"
        self.facts.write_text(json.dumps(self._facts()))

    def _facts(self) -> dict[str, Any]:
        return {
            "home": str(self.home),
            "elsewhere": str(self.elsewhere),
            "project": str(self.project),
            "name": self.scene.base.name,
            "secrets": {name: f"{self.home}/{path}" for name, path in SECRETS.items()}
            | {"moved": f"{self.home}/.ssh/old"},
            "secret_link": f"{self.home}/.ssh/link",
            "attack_ids": IDS,
        }

    def escaped(self, before: Sequence[str], environment: dict[str, str]) -> set[str]:
        """Return the attacks that got through, with `before` in front of their command."""
        places = {each: self._place(each) for each in IDS}
        looks = {each: look(path) for each, path in places.items()}
        python = os.path.realpath(sys.executable)
        command = [*before, python, "-B", "-c", RUN, str(self.code), str(self.facts), *IDS]
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.project,
            env=environment,
            timeout=TIMEOUT_S,
        )
        answers = {each["id"]: each for each in map(json.loads, ended.stdout.splitlines())}
        assert answers.keys() == {*IDS}, ended.stderr
        return {each for each in IDS if self._got_through(each, answers[each], looks[each])}

    def _place(self, attack_id: str) -> Path:
        target = ATTACKS[attack_id].target
        return Path(
            target.format(
                home=self.home,
                elsewhere=self.elsewhere,
                project=self.project,
                id=attack_id,
                name=self.scene.base.name,
            )
        )

    def _got_through(self, attack_id: str, answer: dict[str, Any], before: object) -> bool:
        match ATTACKS[attack_id].evidence:
            case "changed":
                return look(self._place(attack_id)) != before
            case "loot":
                return self.token in answer["detail"]
            case _:
                return answer["escaped"]


def note(path: Path, name: str, value: str) -> None:
    if not IS_MAC:  # Python has no such calls there
        os.setxattr(path, name, value.encode())


def look(path: Path) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for each in sorted((path, *path.rglob("*"))):
        if each.is_symlink() or not each.exists():
            found.append((str(each), each.is_symlink()))
            continue
        status = each.stat()
        content = each.read_bytes() if each.is_file() else b""
        names = os.listxattr(each) if hasattr(os, "listxattr") else ()
        found.append((str(each), status.st_mode, status.st_nlink, content, tuple(names)))
        found.append((int(status.st_mtime),) if each.is_file() else ())
    return found


@pytest.fixture
def world() -> Iterator[World]:
    with TemporaryDirectory() as short:  # the path of a socket has at most 107 bytes
        yield World(Path(os.path.realpath(short)))


def plain(world: World) -> dict[str, str]:
    return {"HOME": str(world.home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def sandboxed(world: World) -> tuple[list[str], dict[str, str]]:
    """Return what stands in front of a command, and its environment."""
    if not IS_MAC:
        options = ("--project", str(world.project), "--")
        return [sys.executable, "-m", "sanderling", "sandbox", "exec", *options], plain(world)
    policy = resolve_policy(world.scene.policy())
    for path in (policy.tmp_dir, f"{policy.state_dir}/home"):
        Path(path).mkdir(parents=True)
    policy = policy._replace(programs=(sys.base_prefix,))
    private = {"HOME": f"{policy.state_dir}/home", "TMPDIR": policy.tmp_dir}
    return [*launcher(world.scene.profile(policy))], plain(world) | private


def test_enough_of_the_suite_can_be_tried_anywhere():
    assert len(IDS) >= 60


def test_without_a_sandbox_the_attacks_succeed(world):
    escaped = world.escaped([], plain(world))
    if IS_MAC:  # some use calls of Linux
        assert len(escaped) >= 50
    else:
        assert {*IDS} - escaped == set()


def test_in_the_sandbox_no_attack_succeeds(world):
    before, environment = sandboxed(world)
    assert world.escaped(before, environment) == set()
