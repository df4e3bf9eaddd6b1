"""
The test of the self-test: inside the sandbox of this machine every escape is refused and every task works; without one all succeed.

macOS's own `sandbox-exec` is missing here. Programs with its command line stand for one that confines nothing, and one that runs nothing.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sanderling.cli.sandbox import check_sandbox
from sanderling.config import state_dir
from sanderling.sandbox.report import EXIT_REFUSED
from sanderling.sandbox.selftest import running, sandboxed, seatbelt
from sanderling.sandbox.selftest.running import Ended, Result, Start
from sanderling.sandbox.selftest.scene import Scene
from sanderling.sandbox.selftest.seatbelt import Stamp, why_not_verified
from sanderling.sandbox.selftest.trials import ESCAPES, TASKS

STAMP = Stamp("boot-1", "25A1", "1.0", "digest", "3.13")
LETS_ALL_THROUGH = '#!/bin/sh\n[ "$1" = -p ] && [ "$3" = -- ] || exit 64\nshift 3\nexec "$@"\n'
RUNS_NOTHING = (
    "#!/bin/sh\necho 'sandbox-exec: sandbox_apply: Operation not permitted' >&2\nexit 71\n"
)


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@asynccontextmanager
async def not_confined(_: Scene) -> AsyncIterator[Start]:
    yield running.unconfined


def only(monkeypatch, *names: str) -> None:
    """Leave only these attempts, for a test that is about something else."""
    for table, given in (("ESCAPES", ESCAPES), ("TASKS", TASKS)):
        monkeypatch.setattr(running, table, {each: given[each] for each in given if each in names})


def test_there_are_ten_escapes_and_ten_tasks_at_least():
    assert len(ESCAPES) >= 10
    assert len(TASKS) >= 10


def test_the_check_finds_that_every_escape_is_refused_and_every_task_works(home):
    command = [sys.executable, "-m", "sanderling", "sandbox", "check", "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == EXIT_REFUSED:
        pytest.skip(ended.stderr)
    results = json.loads(ended.stdout)
    assert [each["outcome"] for each in results if not each["is_right"]] == []
    assert {each["name"] for each in results} == {*ESCAPES, *TASKS}
    assert ended.returncode == 0
    assert not [*state_dir({"HOME": str(home)}).glob("selftest-*")]


def test_the_check_shows_what_failed_and_its_status_is_1(home, monkeypatch, capsys):  # noqa: ARG001
    only(monkeypatch, "read-secret", "files")
    monkeypatch.setattr(sandboxed, "in_sandbox", not_confined)
    assert check_sandbox(argparse.Namespace(json=False)) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok       files of the project are written, renamed and removed: works",
        "FAILED   read a secret in HOME: succeeded in the sandbox",
        "1 of 2 failed.",
    ]


async def test_without_a_sandbox_every_escape_succeeds_and_is_a_failure(home):
    results = await running.run(home / "state", not_confined)
    escapes = {each.name: each for each in results if each.is_escape}
    assert [name for name, each in escapes.items() if not each.works_inside] == []
    assert not any(each.is_right for each in escapes.values())
    assert [str(each) for each in results if not each.is_escape and not each.is_right] == []


async def test_an_escape_that_fails_outside_too_proves_nothing(home, monkeypatch):
    only(monkeypatch, "read-secret")

    async def run_nothing(_: Sequence[str]) -> Ended:
        return Ended(1, "it is broken")

    monkeypatch.setattr(running, "unconfined", run_nothing)
    [result] = await running.run(home / "state", not_confined)
    assert not result.is_right
    assert str(result) == (
        "read a secret in HOME: cannot be judged, because it fails without the sandbox, too: it is broken"
    )


async def test_a_program_that_is_not_installed_is_no_failure(home, monkeypatch):
    only(monkeypatch, "node")
    monkeypatch.setenv("PATH", str(home))
    [result] = await running.run(home / "state", not_confined)
    assert (result.is_right, str(result)) == (True, "node runs a script: node is not installed")


def test_a_task_that_fails_inside_is_a_failure():
    result = Result("git", "git commits", False, True, False, detail="fatal: …")
    assert not result.is_right
    assert str(result) == "git commits: fails in the sandbox: fatal: …"


# ---------------------------------------------------------------- seatbelt


async def test_a_launcher_that_confines_nothing_is_not_verified(home, tmp_path, monkeypatch):
    only(monkeypatch, "read-secret", "loopback", "files")
    launcher = program(tmp_path / "sandbox-exec", LETS_ALL_THROUGH)
    reason = await why_not_verified(home / "state", STAMP, launcher)
    assert reason.startswith(
        "the self-test failed: read a secret in HOME: succeeded in the sandbox"
    )


async def test_a_launcher_that_runs_nothing_is_not_verified(home, tmp_path, monkeypatch):
    only(monkeypatch, "read-secret", "files")
    launcher = program(tmp_path / "sandbox-exec", RUNS_NOTHING)
    reason = await why_not_verified(home / "state", STAMP, launcher)
    assert "files of the project are written, renamed and removed: fails in the sandbox" in reason
    assert "sandbox_apply: Operation not permitted" in reason


async def test_without_the_launcher_the_level_is_not_verified(home, tmp_path, monkeypatch):
    only(monkeypatch, "files")
    reason = await why_not_verified(home / "state", STAMP, str(tmp_path / "missing"))
    assert "No such file or directory" in reason


async def test_a_result_holds_until_the_machine_or_a_version_changes(home, tmp_path, monkeypatch):
    only(monkeypatch, "files")
    state = home / "state"
    works = program(tmp_path / "works", LETS_ALL_THROUGH)
    fails = program(tmp_path / "fails", RUNS_NOTHING)
    assert await why_not_verified(state, STAMP, works) == ""
    assert await why_not_verified(state, STAMP, fails) == ""  # not run again
    for field in Stamp.__struct_fields__:
        changed = {name: getattr(STAMP, name) for name in Stamp.__struct_fields__} | {field: "new"}
        assert "self-test failed" in await why_not_verified(state, Stamp(**changed), fails), field
        assert await why_not_verified(state, STAMP, works) == ""


async def test_a_failure_is_remembered_and_the_check_tries_again(home, tmp_path, monkeypatch):
    only(monkeypatch, "files")
    state = home / "state"
    works = program(tmp_path / "works", LETS_ALL_THROUGH)
    fails = program(tmp_path / "fails", RUNS_NOTHING)
    assert await why_not_verified(state, STAMP, fails)
    assert await why_not_verified(state, STAMP, works)
    await seatbelt.verify(state, STAMP, works)
    assert await why_not_verified(state, STAMP, fails) == ""


@pytest.mark.parametrize("content", ["", "{}", "null", '{"version": 2}', "[" * 5000])
async def test_a_damaged_record_verifies_nothing(home, tmp_path, monkeypatch, content):
    only(monkeypatch, "files")
    state = home / "state"
    state.mkdir()
    (state / seatbelt.RECORD).write_text(content)
    launcher = program(tmp_path / "sandbox-exec", RUNS_NOTHING)
    assert "self-test failed" in await why_not_verified(state, STAMP, launcher)


async def test_a_project_cannot_write_the_record(home):
    from sanderling.errors import SandboxError
    from sanderling.sandbox.policy import resolve_policy

    state = home / "state"
    with Scene(state) as scene:
        policy = scene.policy._replace(state_root=str(state), write_paths=(str(state),))
        with pytest.raises(SandboxError, match="own state overlap"):
            resolve_policy(policy)


def test_the_digest_follows_the_rules_of_the_compiler(monkeypatch):
    from sanderling.sandbox.seatbelt import system

    before = seatbelt.reference_digest()
    assert seatbelt.reference_digest() == before
    monkeypatch.setattr(system, "_PROGRAMS", ("/bin",))
    assert seatbelt.reference_digest() != before
