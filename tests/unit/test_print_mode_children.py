"""Child sessions in a shell: what print mode says of them, counts and refuses, and how they are listed."""

import json

import pytest
from tests.homes import Home
from tests.unit.test_print_mode import GOLDEN, Shell, normalised

from sanderling.cli.print_mode.frontend import PrintFrontend
from sanderling.cli.streams import ThreadedStdout
from sanderling.protocol.events import GuardActed, ToolStarted

TASK = "Task A."


@pytest.fixture
def shell(tmp_path):
    return Shell(tmp_path)


def run(shell: Home, *arguments: str, command: str = "touch made"):
    call = {"id": "toolu_1", "name": "bash", "input": {"command": command}}
    task = {"id": "toolu_0", "name": "delegate", "input": {"task": TASK, "role": "edit"}}
    replies = [
        {"when": TASK, "step": [{"tool_use": call}]},
        {"after": "toolu_1", "step": [{"text": "Did it."}]},
        {"step": [{"tool_use": task}]},
        {"step": [{"text": "All done."}]},
    ]
    shell.script.write_text(json.dumps({"version": 1, "reply": replies}))
    return shell.run("-p", "Go.", "--model", f"script:{shell.script}", *arguments)


def test_one_line_says_that_a_child_starts_and_one_how_it_has_ended(shell):
    done = run(shell, "--allow", "delegate", "--mode", "auto")
    assert (done.returncode, done.stdout) == (0, "All done.\n")
    started, ended = done.stderr.splitlines()
    assert started == "sanderling: edit 1 starts: Task A."
    assert ended.startswith("sanderling: edit 1: done, 2 model calls, ")
    quiet = run(shell, "--allow", "delegate", "--mode", "auto", "--quiet")
    assert quiet.stderr == ""


async def test_a_file_that_another_sandbox_replaced_is_not_reported(capfd):
    frontend = PrintFrontend(
        ThreadedStdout(), "text", "auto", is_quiet=False, act=lambda _action: None
    )
    frontend.take(ToolStarted("1", "delegate", "edit: Task A."))
    frontend.take(GuardActed("replaced", ".git/commondir", "was replaced by the host"))
    frontend.take(GuardActed("quarantined", ".envrc", "must not appear"))
    assert capfd.readouterr().err == "sanderling: guard: quarantined: .envrc: must not appear\n"


def test_the_totals_of_a_run_include_its_children_once(shell):
    done = run(shell, "--allow", "delegate", "--mode", "auto", "--output-format", "json")
    result = json.loads(done.stdout)
    assert result["model_calls"] == 4
    used = sum(result["usage"].values())
    sessions = {session.parent: session for session in shell.sessions()}
    child = next(session for parent, session in sessions.items() if parent)
    own = sum(getattr(child.ledger.total, name) for name in result["usage"])
    parent = sessions[""].ledger
    assert sum(getattr(parent.total, name) for name in result["usage"]) == used
    assert 0 < own < used


def test_a_childs_question_is_refused_and_counted_under_its_name(shell):
    done = run(shell, "--allow", "delegate")
    assert done.returncode == 3
    assert "denied: edit 1: bash touch made: No rule covers 'touch made'." in done.stderr
    assert "--allow 'bash touch made $' or --mode auto allows it" in done.stderr
    assert not (shell.project / "made").exists()


def test_without_a_rule_no_child_starts_and_the_flag_is_named(shell):
    done = run(shell, "--mode", "auto")
    assert done.returncode == 3
    assert "--allow delegate allows it" in done.stderr
    assert len(shell.sessions()) == 1


def test_events_of_a_child_carry_its_id(shell):
    done = run(shell, "--allow", "delegate", "--output-format", "stream-json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    child = next(each.parent and each.id for each in shell.sessions() if each.parent)
    shown = [each for each in events if each["type"] == "child_changed"]
    assert {each["id"] for each in shown} == {child}
    [asked] = [each for each in events if each["type"] == "approval_requested"]
    assert asked["id"] == f"{child}/toolu_1"
    first = {(each["type"], each.get("state")): each for each in reversed(events)}
    kinds = ("child_changed", "approval_requested", "approval_settled")
    found = [
        normalised(json.dumps(each).replace(child, "toolu_child"), shell)
        for each in reversed(first.values())
        if each["type"] in kinds
    ]
    for each in found:
        each.pop("tokens", None)  # they depend on the length of paths
    golden = GOLDEN / "stream_json_children_v1.jsonl"
    assert found == list(map(json.loads, golden.read_text().splitlines()))


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_children_are_listed_below_their_parent(shell, flags):
    for _ in range(2):
        run(shell, "--allow", "delegate", "--mode", "auto")
    lines = shell.run("sessions", *flags).stdout.splitlines()
    parents = {each.id: each.parent for each in shell.sessions()}
    ids = [json.loads(line)["id"] if flags else line.split()[0] for line in lines]
    assert [parents[each] for each in ids] == ["", ids[0], "", ids[2]]
