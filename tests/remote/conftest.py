"""A session elsewhere: `docker` and `kubectl` that only execute, and a Sanderling behind them with a home of its own."""

import json
import shlex
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sanderling.acp.remote.address import via_address
from sanderling.config.file import setup_layer
from sanderling.config.layers import Layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from tests.acp_client.conftest import Talk

CUT = Path(__file__).with_name("cut.py")


def program(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)


class Elsewhere:
    """The place there: `project`, what the model answers, and what breaks."""

    def __init__(self, tmp_path):
        self.here, self.there = tmp_path / "here", tmp_path / "there"
        self.bin = tmp_path / "bin"
        self.state = tmp_path / "state"  # of here
        self.project = self.there / "project"
        self.cuts = tmp_path / "cuts"
        self.script_path = self.there / "script.json"
        self.here.mkdir()
        self.project.mkdir(parents=True)
        for name in ("docker", "kubectl"):
            program(self.bin / name, f'exec {shlex.join([sys.executable, str(CUT)])} "$@"')
        self.answer({"text": "pong"})

    def answer(self, *steps, **more):
        """Have the model there answer with these steps, each time."""
        self.script([{"step": list(steps), "repeat": True, **more}])

    def script(self, replies):
        self.script_path.write_text(json.dumps({"version": 1, "reply": replies}))
        self.install()

    def install(self, *arguments):
        environment = {
            "HOME": str(self.there),
            "XDG_STATE_HOME": str(self.there / "state"),
            "XDG_CONFIG_HOME": str(self.there / "config"),
            "SANDERLING_SCRIPT": str(self.script_path),
        }
        told = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        model = f"--model script:{shlex.quote(str(self.script_path))}"
        words = " ".join(arguments) or model
        program(
            self.bin / "sanderling",
            *told,
            f'exec {shlex.quote(sys.executable)} -m sanderling "$@" {words}',
        )

    def configure(self, text):
        """Write the settings there."""
        path = self.there / "config" / "sanderling" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cut(self, *lines):
        """Have each connection from now on end as its line says."""
        self.cuts.write_text("\n".join(lines))

    def address(self, engine="docker exec -i box", path=None):
        return via_address(engine, str(path or self.project))

    @asynccontextmanager
    async def talk(self, session_id="s1", address=None, options=None):
        setup = setup_layer(options or {})
        layers = Layers(state_dir=str(self.state), setup=setup)
        talk = Talk()
        session_options = SessionOptions(
            agent=address or self.address(), is_shown=True, has_history=True
        )
        opened = await open_conversation(
            session_id, str(self.here), layers, talk.emit, session_options
        )
        talk.agent = opened.agent
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.agent.serve)
            yield talk
            opened.agent.close()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    it = Elsewhere(tmp_path)
    monkeypatch.setenv("PATH", str(it.bin), prepend=":")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CUTS", str(it.cuts))
    return it


@pytest.fixture
def anyio_backend():
    return "asyncio"
