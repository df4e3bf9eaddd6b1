"""Calls of `delegate` whose session was interrupted: the logs have the child's work, and so has the parent's next request."""

import json

import pytest
from tests.children import Tree, delegate, said, tree, use
from tests.unit.test_children import facts
from tests.worktrees.conftest import run_git

from sanderling.protocol.messages import ToolResult
from sanderling.session.log import log_path
from sanderling.session.records import LoggedPartial


def cut_after(it: Tree, session_id: str, kind: str, count: int) -> None:
    """Leave in the log what a process that was killed then had written: all up to the record of this kind that is the `count`th."""
    path = log_path(it.logs, session_id)
    kept, left = list[bytes](), count
    for line in path.read_bytes().splitlines(keepends=True):
        kept.append(line)
        left -= json.loads(line)["type"] == kind
        if not left:
            break
    assert not left
    path.write_bytes(b"".join(kept))


@pytest.mark.parametrize("state", ["done", "budget"])
async def test_a_child_that_had_ended_is_reported_as_it_ended(tmp_path, state):
    replies = [[said("Looked."), use("ls")], [said("Found a.py.")]]
    calls = 2 if state == "done" else 1
    async with tree(
        tmp_path, [delegate("A.")], children={"A.": replies}, delegate={"calls": calls}
    ) as it:
        await it.run()
        [before] = it.results
        assert facts(before)["state"] == state
    cut_after(it, "parent", "child", 2)
    async with tree(tmp_path) as it:
        [after] = it.results
        assert after.partition("\n\n")[2] == before.partition("\n\n")[2]
        assert facts(after)["state"] == state
        result = it.services.session.history[-1].content[0]
        assert isinstance(result, ToolResult)
        assert not result.is_error


async def test_the_report_of_an_interrupted_child_says_in_which_worktree_its_changes_are(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("one\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "begin"]):
        run_git(project, *words)
    children = {
        "A.": [
            [use("edit", path="a", edits=[{"old": "one", "new": "one\ntwo"}])],
            [said("See a:2.")],
        ]
    }
    call = delegate("A.", isolation="worktree")
    async with tree(tmp_path, [call], children=children) as it:
        await it.run()
        before = facts(it.results[0])
        assert before["references"] == "a:2"  # not in the project
    cut_after(it, "parent", "child", 2)
    async with tree(tmp_path) as it:
        after = facts(it.results[0])
        assert (after["worktree"], after["references"]) == (before["worktree"], "a:2")


async def test_a_child_of_a_session_in_a_worktree_is_not_reported_as_being_in_one_of_its_own(
    tmp_path,
):
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("one\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "begin"]):
        run_git(project, *words)
    children = {"A.": [[use("write", path="b", content="x\n")], [said("See b:1.")]]}
    script, options = [delegate("A.")], {"worktree": ""}
    async with tree(tmp_path, script, children=children, options=options) as it:
        await it.run()
        before = facts(it.results[0])
    cut_after(it, "parent", "child", 2)
    async with tree(tmp_path) as it:
        after = facts(it.results[0])
        assert after["references"] == before["references"] == "b:1"
        assert "worktree" not in after


async def test_the_answer_that_a_child_was_writing_is_in_its_report(tmp_path):
    begun = [said("And then"), {"delay_ms": 400}, said(" it goes on.")]
    children = {"A.": [[said("Looked."), use("ls")], begun]}
    async with tree(tmp_path, [delegate("A.")], children=children) as it:
        await it.run()
        [child] = it.child_ids()
        partial = [each for each in it.read(child)[1] if isinstance(each, LoggedPartial)]
    cut_after(it, "parent", "child", 1)
    cut_after(it, child, "partial", len(partial))
    async with tree(tmp_path) as it:
        assert facts(it.results[0])["state"] == "partial"
        assert "Looked.\n\nAnd then" in it.results[0]
