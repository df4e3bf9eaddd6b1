"""Servers of Agent Plugins in the real sandbox: what each is given, and where it ends."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.project.plugins import data_directory
from sanderling.project.project import with_project
from sanderling.project.trust.trust import Trust
from tests.conftest import ROOT, prove
from tests.mcp.conftest import PYTHON, Served, served
from tests.mcp.talk import notes_over_http
from tests.mcp.test_real import ENVIRONMENT, of_python, said
from tests.sandbox.test_sandbox import Place
from tests.unit.test_plugins import MANIFEST, OWN, http, make, servers, stdio

PROBE = (ROOT / "tests/mcp/plugin_server.py").read_text()


class Installed:
    """The plugin `tools` of the user at `place`, with a server in its package."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.root = place.home / OWN / "tools"
        self.state = str(place.base / "agent state")
        self.data = Path(data_directory(self.state, "tools"))
        make(self.root)
        for name in ("bin/look", "bin/a tool"):
            program = self.root / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!{PYTHON}\n{PROBE}")
            program.chmod(0o755)

    def tables(self, *, own: dict[str, Any] | None = None, **declared: Any) -> dict[str, Any]:
        """The servers of a session, when the plugin has those that are `declared`, and the user has `own` tables."""
        make(self.root, mcp=servers(**declared))
        options = {"mcp": {"servers": own}} if own else {}
        layers = Layers(state_dir=self.state, file=Layer("config.toml", options))
        trust = Trust(self.state, str(self.place.project))
        return with_project(layers, trust).settings().mcp_servers


@pytest.fixture
def installed(place: Place) -> Installed:
    return Installed(place)


async def looked(mcp: Served, name: str = "tools.it", **arguments: Any) -> dict[str, Any]:
    assert mcp[name].status.state == "ready", mcp[name].log.text() + mcp[name].status.why
    return json.loads(await said(mcp, name, "look", **arguments))


async def test_a_server_has_its_root_to_read_and_its_data_to_write(installed, monkeypatch):
    place, root, data = installed.place, installed.root, installed.data
    monkeypatch.setenv("WEATHER_TOKEN", "secret")
    declared = stdio(
        "./bin/look",
        args=["${PLUGIN_ROOT}", "${PLUGIN_DATA}", "", "$HOME ${HOME}"],
        env={"A": "${PLUGIN_DATA}|$HOME", "WORDS": "two words"},
    )
    other = data.parent / "other"
    other.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        paths = [data / "kept", root / "bin/look", root / "new", other / "x", place.secret / "x"]
        policy = {"env_pass": ("WEATHER_TOKEN",)}
        async with served(place, policy=policy, **installed.tables(it=declared)) as mcp:
            found = await looked(
                mcp,
                write=[*map(str, paths)],
                read=[str(place.secret), str(root.parent.parent)],
                port=port,
            )
    assert found["argv"] == [f"{root}/bin/look", str(root), str(data), "", "$HOME ${HOME}"]
    assert found["cwd"] == str(root)
    variables = found["environment"]
    assert (variables["PLUGIN_ROOT"], variables["PLUGIN_DATA"]) == (str(root), str(data))
    assert (variables["A"], variables["WORDS"]) == (f"{data}|$HOME", "two words")
    assert "WEATHER_TOKEN" not in variables
    results = list(found["written"].values())
    assert results[0] == "done"
    assert "done" not in results[1:]
    assert found["home"] == "done"
    assert found["read"][str(place.secret)] != "done"
    assert found["reached"] != "done"
    assert (data / "kept").read_text() == "x"
    assert (root / "bin/look").read_text().endswith(PROBE)


async def test_its_data_stays_when_the_plugin_is_replaced(installed):
    kept = installed.data / "kept"
    for text in ("x", "xx"):
        make(installed.root, MANIFEST | {"version": text})
        async with served(installed.place, **installed.tables(it=stdio("./bin/look"))) as mcp:
            await looked(mcp, write=[str(kept)])
        assert kept.read_text() == text


async def test_each_form_of_the_working_directory(installed):
    (installed.root / "work").mkdir()
    tables = installed.tables(
        a=stdio("./bin/a tool", cwd="./work"),
        b=stdio("./bin/look", cwd="${PLUGIN_ROOT}/work"),
        c=stdio("./bin/look", cwd="${PLUGIN_DATA}"),
        d=stdio("./bin/look", cwd="${PLUGIN_DATA}/new/deeper"),
    )
    async with served(installed.place, **tables) as mcp:
        found = {name: (await looked(mcp, name))["cwd"] for name in tables}
    work = str(installed.root / "work")
    data = str(installed.data)
    assert list(found.values()) == [work, work, data, f"{data}/new/deeper"]


async def test_a_server_that_cannot_start_leaves_the_others(installed):
    tables = installed.tables(
        gone=stdio("no-such-program"), ends=stdio("false"), it=stdio("./bin/look")
    )
    async with served(installed.place, **tables) as mcp:
        await looked(mcp)
        assert mcp["tools.gone"].status.state == "failed"
        assert "no program 'no-such-program'" in mcp["tools.gone"].status.why
        assert mcp["tools.ends"].status.state != "ready"


async def test_tools_of_a_plugin_cannot_have_the_name_of_a_built_in_one(installed):
    async with served(installed.place, **installed.tables(read=stdio("./bin/look"))) as mcp:
        names = [tool.name for tool in await mcp.source.tools()]
    assert names == ["mcp__tools-read__look"]


async def test_without_the_sandbox_it_gets_no_keys(installed, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    tables = installed.tables(it=stdio("./bin/look", env={"A": "b"}))
    async with served(installed.place, **tables) as mcp:
        mcp.sandbox.switch(is_on=False)
        mcp["tools.it"].restart()
        await mcp["tools.it"].settled()
        variables = (await looked(mcp))["environment"]
    assert "ANTHROPIC_API_KEY" not in variables
    assert variables["PATH"]
    assert variables["A"] == "b"


async def test_a_server_over_http_gets_its_headers_as_they_are_but_none_of_ours_is_replaced(
    installed, unused_port
):
    with notes_over_http(unused_port) as url:
        headers = {"AcCePt": "text/plain", "X-Words": "${PLUGIN_ROOT} $HOME  two"}
        tables = installed.tables(it=http(url, headers=headers))
        async with served(installed.place, policy={"network": "on"}, **tables) as mcp:
            assert mcp["tools.it"].status.state == "ready", mcp["tools.it"].status.why
            sent = await said(mcp, "tools.it", "headers")
    assert "x-words: ${PLUGIN_ROOT} $HOME  two" in sent
    assert "accept: text/plain" not in sent
    assert "text/event-stream" in sent


@prove
@pytest.mark.parametrize("name", ["time", "git"])
async def test_a_published_server_works_as_a_plugin(installed, name):
    program = of_python(name)["command"][0]
    repository = str(installed.place.project)
    arguments = {"time": ["--local-timezone", "UTC"], "git": ["--repository", repository]}[name]
    (installed.root / "bin/start").write_text(f'#!/bin/sh\nexec {program} "$@"\n')
    (installed.root / "bin/start").chmod(0o755)
    own = {"tools.it": {"paths": [str(ENVIRONMENT)]}}
    tables = installed.tables(own=own, it=stdio("./bin/start", args=arguments))
    async with served(installed.place, **tables) as mcp:
        assert mcp["tools.it"].status.state == "ready", mcp["tools.it"].log.text()
        if name == "time":
            text = await said(mcp, "tools.it", "get_current_time", timezone="Europe/Zurich")
            assert "Europe/Zurich" in text
        else:
            text = await said(mcp, "tools.it", "git_status", repo_path=repository)
            assert "working tree clean" in text
