"""The tool `debug` as a source of a session's catalog, while a debug session runs in the editor."""

from collections.abc import Sequence

from sanderling.editor.bridge import Bridge
from sanderling.editor.extensions import Extensions
from sanderling.tools.base import Tool


class DebugTools:
    def __init__(self, bridge: Bridge, extensions: Extensions) -> None:
        self._bridge = bridge
        self._extensions = extensions
        self._tools: tuple[Tool, ...] = ()

    async def tools(self) -> Sequence[Tool]:
        if not self._extensions.is_debugging:
            return ()
        if not self._tools:
            from sanderling.editor.debugger import NeovimDebugger  # few users debug
            from sanderling.tools.debugger import debug_tool

            self._tools = (debug_tool(NeovimDebugger(self._bridge)),)
        return self._tools
