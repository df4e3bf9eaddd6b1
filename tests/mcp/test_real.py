"""Servers that others have written, of both eras of the protocol, in the sandbox."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from sanderling.mcp.problems import ServerError
from sanderling.mcp.server import ServerStatus
from tests.conftest import ROOT, prove
from tests.mcp.conftest import Served, served

MODULES = ROOT / "tests/peers/node_modules"
ENVIRONMENT = Path(sys.prefix)
OLD, NEW = "2025-11-25", "2026-07-28"


def of_node(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
    program = MODULES / f"@modelcontextprotocol/server-{name}/dist/index.js"
    if not (shutil.which("node") and program.exists()):
        pytest.skip("no Node, or not its programs")
    return {"command": ["node", str(program), *arguments], "paths": [str(MODULES)], **more}


def of_python(name: str, *arguments: str, **more: Any) -> dict[str, Any]:
    program = ENVIRONMENT / f"bin/mcp-server-{name}"
    if not program.exists():
        pytest.skip(f"no mcp-server-{name}")
    return {"command": [str(program), *arguments], "paths": [str(ENVIRONMENT)], **more}


async def said(mcp: Served, name: str, tool: str, **arguments: Any) -> str:
    result = await mcp[name].call(tool, arguments)
    return "\n".join(getattr(block, "text", f"[{block.type}]") for block in result.content)


def era(mcp: Served, name: str) -> str:
    assert mcp[name].status == ServerStatus("ready"), mcp[name].log.text()
    assert mcp[name].connection
    return mcp[name].connection.era


@prove
async def test_server_everything(place):
    steps: list[float] = []

    async def note(progress: float, *_: object) -> None:
        steps.append(progress)

    async with served(place, it=of_node("everything")) as mcp:
        assert era(mcp, "it") == OLD
        assert await said(mcp, "it", "echo", message="hello") == "Echo: hello"
        assert "5" in await said(mcp, "it", "get-sum", a=2, b=3)
        assert "[image]" in await said(mcp, "it", "get-tiny-image")
        assert "temperature" in await said(mcp, "it", "get-structured-content", location="New York")
        slow = {"duration": 0.5, "steps": 5}
        result = await mcp["it"].call("trigger-long-running-operation", slow, note)
        assert not result.is_error
        assert steps[-1] == 5
        variables = json.loads(await said(mcp, "it", "get-env"))
        assert variables["SANDERLING_SANDBOX"]
        assert not [name for name in variables if "KEY" in name or "TOKEN" in name]


@prove
async def test_server_filesystem_sees_what_the_sandbox_lets_it_see(place):
    allowed = [str(place.project), str(place.secret), str(place.base / "granted")]
    (place.base / "granted/note").write_text("noted\n")
    paths = [str(MODULES), str(place.base / "granted")]
    declared = of_node("filesystem", *allowed) | {"paths": paths}
    async with served(place, it=declared) as mcp:
        assert era(mcp, "it") == OLD
        project, secret, granted = (Path(each) for each in allowed)
        assert "public" in await said(mcp, "it", "read_text_file", path=str(project / "file"))
        assert "noted" in await said(mcp, "it", "read_text_file", path=str(granted / "note"))
        refused = await mcp["it"].call("read_text_file", {"path": str(secret / "file")})
        assert refused.is_error
        written = await mcp["it"].call("write_file", {"path": str(project / "new"), "content": "x"})
        assert not written.is_error
        refused = await mcp["it"].call("write_file", {"path": str(granted / "new"), "content": "x"})
        assert refused.is_error
    assert (project / "new").read_text() == "x"
    assert not (granted / "new").exists()


@prove
async def test_server_memory_keeps_what_it_learns(place):
    kept = place.base / "granted/memory.jsonl"
    more = {"env": {"MEMORY_FILE_PATH": str(kept)}, "write_paths": [str(kept.parent)]}
    entity = {"name": "Ada", "entityType": "person", "observations": ["likes engines"]}
    async with served(place, it=of_node("memory", **more)) as mcp:
        assert era(mcp, "it") == OLD
        await said(mcp, "it", "create_entities", entities=[entity])
    assert "Ada" in kept.read_text()
    async with served(place, it=of_node("memory", **more)) as mcp:
        assert "likes engines" in await said(mcp, "it", "search_nodes", query="Ada")


@prove
async def test_server_git_works_in_the_project(place):
    async with served(place, it=of_python("git", "--repository", str(place.project))) as mcp:
        assert era(mcp, "it") == NEW
        repository = str(place.project)
        assert "working tree clean" in await said(mcp, "it", "git_status", repo_path=repository)
        (place.project / "new").write_text("x")
        await said(mcp, "it", "git_add", repo_path=repository, files=["new"])
        await said(mcp, "it", "git_commit", repo_path=repository, message="second")
        assert "second" in await said(mcp, "it", "git_log", repo_path=repository)
        result = await mcp["it"].call("git_status", {"repo_path": str(place.secret)})
        assert result.is_error


@prove
async def test_server_time_tells_the_time(place):
    async with served(place, it=of_python("time", "--local-timezone", "UTC")) as mcp:
        assert era(mcp, "it") == NEW
        assert "Europe/Zurich" in await said(
            mcp, "it", "get_current_time", timezone="Europe/Zurich"
        )
        result = await mcp["it"].call("get_current_time", {"timezone": "Nowhere/Else"})
        assert result.is_error


@prove
async def test_all_of_them_side_by_side_in_plan_mode_write_nothing(place):
    declared = {
        "fs": of_node("filesystem", str(place.project)),
        "git": of_python("git", "--repository", str(place.project)),
        "all": of_node("everything"),
        "time": of_python("time"),
    }
    async with served(place, policy={"mode": "ro"}, **declared) as mcp:
        assert {each.status.state for each in mcp.source.servers.values()} == {"ready"}
        refused = await mcp["fs"].call(
            "write_file", {"path": str(place.project / "new"), "content": "x"}
        )
        assert refused.is_error
        (place.project / "new").write_text("x")
        try:
            result = await mcp["git"].call(
                "git_add", {"repo_path": str(place.project), "files": ["new"]}
            )
            assert result.is_error
        except ServerError:
            pass
        assert "new" in place.git("status", "--porcelain")
        assert "A" not in place.git("status", "--porcelain").split()
