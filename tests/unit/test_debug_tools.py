"""The tool for the user's debug session, as it comes and goes with what Neovim declares; tests/plugins/test_debugger.py uses it."""

from typing import Any, cast

from sanderling.editor.debug_tools import DebugTools
from sanderling.editor.extensions import Extensions


async def test_the_tool_is_offered_only_while_a_debug_session_runs():
    bridge = cast("Any", None)  # which only a call needs
    extensions = Extensions(bridge)
    source = DebugTools(bridge, extensions)
    offered = [[tool.name for tool in await source.tools()]]
    for declared in ({"tools": []}, {"is_debugging": True}, {"is_debugging": True}, {}):
        extensions.declare(declared)
        offered.append([tool.name for tool in await source.tools()])
    assert offered == [[], [], ["debug"], ["debug"], []]


async def test_its_definition_is_the_same_in_each_session():
    bridge = cast("Any", None)
    extensions = Extensions(bridge)
    extensions.declare({"is_debugging": True})
    (one,), (other,) = [await DebugTools(bridge, extensions).tools() for _ in range(2)]
    assert (one.description, one.schema) == (other.description, other.schema)
