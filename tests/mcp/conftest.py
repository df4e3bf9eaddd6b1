"""A session's sandbox with tool servers in it."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sanderling.mcp import connection, server
from sanderling.mcp.server import Server
from sanderling.mcp.servers import load_servers
from sanderling.mcp.source import McpSource
from sanderling.sandbox.confinement import SessionSandbox
from tests.conftest import DEADLINE_S
from tests.sandbox.test_sandbox import Place
from tests.sandboxes import kept, sandbox_of

HOSTILE = str(Path(__file__).parent / "hostile.py")
PYTHON = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
"""The one that is visible inside."""


@pytest.fixture(autouse=True)
def patience(monkeypatch) -> None:
    """Let servers take long to get ready: Python's SDK needs more than ten seconds on a machine that is busy."""
    for module in (server, connection):
        monkeypatch.setattr(module, "CONNECT_S", DEADLINE_S / 2)


@pytest.fixture
def place(tmp_path, monkeypatch, plain_environment) -> Place:  # noqa: ARG001
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(place.home))
    return place


def hostile(*how: str, **more: Any) -> dict[str, Any]:
    """The declaration of a hostile server."""
    paths = [str(Path(HOSTILE).parent), *more.pop("paths", ())]
    return {"command": [PYTHON, "-u", HOSTILE, *how], "paths": paths, **more}


def mark_of(place: Place) -> str:
    """The words in the command lines of a test's servers."""
    return f"of:{place.base}"


class Served:
    """Servers that run, and the sandbox that they run in."""

    def __init__(self, source: McpSource, sandbox: SessionSandbox) -> None:
        self.source = source
        self.sandbox = sandbox

    def __getitem__(self, name: str) -> Server:
        return self.source.servers[name]

    async def called(self, name: str, tool: str, words: str = "hi", **more: Any) -> str:
        """The text that a call is answered with."""
        result = await self[name].call(tool, {"words": words}, **more)
        return "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)


@asynccontextmanager
async def served(
    place: Place,
    on_change: Callable[[Server], None] = lambda _: None,
    policy: dict[str, Any] | None = None,
    **declared: dict[str, Any],
) -> AsyncIterator[Served]:
    """Servers by their names; those that get ready are."""
    sandbox = sandbox_of(place.policy(**(policy or {})), place.events.append)
    for each in declared.values():  # so that nobody takes another test's for this one's
        if HOSTILE in each.get("command", ()):
            each["command"] = [*each["command"], mark_of(place)]
    source = McpSource(load_servers(declared), sandbox, str(place.project), on_change)
    source.begin()
    async with kept(sandbox) as tasks:
        tasks.start_soon(source.run)
        for server in source.servers.values():
            await server.begun()
        yield Served(source, sandbox)
