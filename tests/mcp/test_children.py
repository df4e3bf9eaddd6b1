"""Tool servers and child sessions: a child calls its parent's servers, and starts none."""

from sanderling.protocol.events import ToolServersChanged
from tests.children import delegate, said, tree, use
from tests.conftest import happens, running
from tests.mcp.conftest import hostile


def is_ready(events: list[ToolServersChanged]) -> bool:
    return any(server.state == "ready" for event in events for server in event.servers)


async def test_a_child_has_the_tools_of_its_parents_servers_and_starts_none(tmp_path, place):  # noqa: ARG001
    mark = f"of:{tmp_path}"
    echo = use("mcp__bad__echo", words="from the server")
    wait = use("bash", command="touch begun; until test -e go; do sleep 0.05; done")
    children = {"A.": [[echo], [wait], [said("Done.")]]}
    rules = [{"action": "allow", "tool": "mcp__bad__*"}]
    async with tree(
        tmp_path,
        [delegate("A.")],
        children=children,
        permissions=rules,
        mcp={"servers": {"bad": hostile(mark)}},
    ) as it:
        await happens(lambda: is_ready(it.of(ToolServersChanged)))
        it.submit()
        await happens((it.project / "begun").exists)
        assert len(running(mark)) == 1
        (it.project / "go").touch()
        await it.ended()
        [child] = it.child_ids()
        assert "There is no tool" not in str(it.read(child)[1])
        assert len(running(mark)) == 1  # the child's end does not end it
