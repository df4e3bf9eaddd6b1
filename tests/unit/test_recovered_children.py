"""Calls of `delegate` whose session was interrupted: the logs have the child's work, and so has the parent's next request."""

import json

import pytest
from tests.children import Tree, delegate, said, tree, use
from tests.unit.test_children import facts

from sanderling.protocol.messages import ToolResult
from sanderling.session.log import log_path


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
