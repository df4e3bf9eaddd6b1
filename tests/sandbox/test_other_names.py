"""Hard links: a file that is held under one name is held under each that lies where a command can write."""

from pathlib import Path

import pytest

from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.guard.links import MAX_OTHER_NAMES
from sanderling.sandbox.guard.protection import GitProtection, protection
from sanderling.sandbox.guard.repositories import survey
from tests.conftest import prove_rest
from tests.sandbox.test_guard import Yard, kinds
from tests.sandbox.test_guard import yard as yard  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.guard


def protect(yard: Yard, *granted: Path) -> GitProtection:
    return protection(survey(str(yard.project), TrustedGit()), tuple(map(str, granted)))


def linked(yard: Yard, held: str, other: Path) -> Path:
    """Give what is held at `held` another name."""
    path = yard.project / held
    path.parent.mkdir(exist_ok=True, parents=True)
    if not path.exists():
        path.write_text("kept\n")
    other.parent.mkdir(exist_ok=True, parents=True)
    other.hardlink_to(path)
    return other


@pytest.mark.parametrize(
    "held",
    prove_rest(
        [".git/config", ".git/hooks/pre-commit", ".vscode/tasks.json", ".envrc", ".claude/a/b"]
    ),
)
@pytest.mark.parametrize("other", ["saved", "deep/er/saved", ".git/saved"])
def test_other_name_of_what_is_held_is_held(yard, held, other):
    path = linked(yard, held, yard.project / other)
    plan = protect(yard)
    assert str(path) in plan.read_only
    assert plan.linked == ()


def test_file_with_one_name_or_with_names_that_are_all_held_holds_nothing_else(yard):
    before = set(protect(yard).read_only)
    linked(yard, ".git/hooks/pre-commit", yard.project / ".git/hooks/post-commit")
    linked(yard, "src/a", yard.project / "src/b")
    assert set(protect(yard).read_only) == before


def test_other_name_in_a_directory_that_was_granted_is_held(yard):
    path = linked(yard, ".envrc", yard.root / "granted/envrc")
    plan = protect(yard, yard.root / "granted")
    assert str(path) in plan.read_only
    assert plan.linked == ()


def test_other_name_outside_is_warned_of(yard):
    linked(yard, ".envrc", yard.root / "outside")
    assert protect(yard).linked == (str(yard.project / ".envrc"),)
    [event] = yard.start_guard().warnings()
    assert (event.kind, event.path) == ("warned", ".envrc")
    assert "hard link" in event.reason


def test_more_names_than_can_be_mounted_are_warned_of(yard):
    (yard.project / ".envrc").write_text("kept\n")
    for number in range(MAX_OTHER_NAMES + 1):
        linked(yard, ".envrc", yard.project / f"others/{number:03}")
    plan = protect(yard)
    assert plan.linked == (str(yard.project / f"others/{MAX_OTHER_NAMES:03}"),)


def test_what_was_written_by_another_name_is_put_back_where_nothing_is_mounted(yard):
    other = linked(yard, ".envrc", yard.project / "saved")
    guard = yard.start_guard(restores=True)
    other.write_text("evil\n")
    events = guard.audit()
    assert {("restored", ".envrc"), ("restored", "saved")} <= set(kinds(events))
    assert (yard.project / ".envrc").read_text() == other.read_text() == "kept\n"


def test_change_by_a_name_that_is_not_held_is_told(yard):
    other = linked(yard, ".envrc", yard.root / "outside")
    guard = yard.start_guard()
    guard.warnings()
    assert guard.audit() == []
    other.write_text("evil\n")
    assert kinds(guard.audit()) == [("noticed", ".envrc")]
    assert guard.audit() == []
