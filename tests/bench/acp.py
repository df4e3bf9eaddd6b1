"""`sanderling acp`: from the start of the process to the first words, beside the least agent on the official SDK and Codex's adapter."""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.agents.adapters_api import ModelApi
from tests.bench.shared import Bench, Row, environment_in, peak_mb
from tests.conftest import ROOT

MODULES = ROOT / "tests" / "peers" / "node_modules"
ADAPTERS = ROOT / "tests" / "peers" / "adapters" / "node_modules"
LEAST = ROOT / "tests" / "bench" / "acp_sdk_agent.mjs"
CHUNKS = 1_000


class _Agent:
    """An agent's process, and what it said when."""

    def __init__(self, argv: Sequence[str], folder: str, environment: dict[str, str]) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            argv, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._ids = 0

    def ask(self, method: str, params: dict[str, Any]) -> tuple[Any, list[float]]:
        """The result, and the moments of the chunks before it."""
        assert self.process.stdin
        assert self.process.stdout
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        chunks: list[float] = []
        while True:
            line = self.process.stdout.readline()
            if b'"agent_message_chunk"' in line:
                chunks.append(time.monotonic())
            elif b'"id":%d' % self._ids in line or b'"id": %d' % self._ids in line:
                return json.loads(line)["result"], chunks

    def open(self, folder: str) -> str:
        self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        session, _ = self.ask("session/new", {"cwd": folder, "mcpServers": []})
        return session["sessionId"]

    def prompt(self, session: str, text: str) -> list[float]:
        block = {"type": "text", "text": text}
        return self.ask("session/prompt", {"sessionId": session, "prompt": [block]})[1]


@contextmanager
def _agent(argv: Sequence[str], folder: str, environment: dict[str, str]) -> Iterator[_Agent]:
    agent = _Agent(argv, folder, environment)
    try:
        yield agent
        assert agent.process.stdin
        agent.process.stdin.close()
        agent.process.wait(20)
    finally:
        agent.process.kill()
        agent.process.wait()
        assert agent.process.stdout
        agent.process.stdout.close()


def acp(bench: Bench) -> Iterator[Row]:
    cold: list[float] = []
    least: list[float] = []
    codex: list[float] = []
    warm: list[float] = []
    flood: list[float] = []
    memory_mb = 0.0
    with tempfile.TemporaryDirectory() as folder, ModelApi() as api:
        (Path(folder) / ".git").mkdir()
        script = Path(folder) / "script.json"
        step = {"text": "word " * CHUNKS, "chunk_chars": 5}
        script.write_text(json.dumps({"version": 1, "reply": [{"step": [step], "repeat": True}]}))
        environment = environment_in(folder)
        ours = [sys.executable, "-m", "sanderling", "acp", "--model", f"script:{script}"]
        theirs, adapter = _least(folder), _codex(folder, api)
        for _ in bench.times(8):  # in turns, so that what else the machine does meets both
            with _agent(ours, folder, environment) as agent:
                session = agent.open(folder)
                cold.append(1000 * (agent.prompt(session, "ping")[0] - agent.began))
                for _ in range(5):
                    began = time.monotonic()
                    warm.append(1000 * (agent.prompt(session, "ping")[0] - began))
                began = time.monotonic()
                chunks = agent.prompt(session, "go")
                assert len(chunks) >= CHUNKS
                flood.append(1000 * (chunks[-1] - began))
                memory_mb = max(memory_mb, peak_mb(agent.process.pid))
            if theirs:
                with _agent(theirs, folder, environment) as agent:
                    session = agent.open(folder)
                    least.append(1000 * (agent.prompt(session, "ping")[0] - agent.began))
            if adapter:
                more = environment | {"CODEX_HOME": f"{folder}/codex", "OPENAI_API_KEY": "sk-0"}
                with _agent(adapter, folder, more) as agent:
                    session = agent.open(folder)
                    codex.append(1000 * (agent.prompt(session, "ping")[0] - agent.began))
    others = (("the least agent on the SDK for Node", least), ("codex-acp", codex))
    note = ", ".join(f"{name}: {statistics.median(took):.0f} ms" for name, took in others if took)
    yield Row("acp: process start → first chunk", statistics.median(cold), "ms", 300, note)
    yield Row("acp: prompt → first chunk, warm", statistics.median(warm), "ms", 10)
    yield Row(f"acp: {CHUNKS:,} chunks", statistics.median(flood), "ms", 1_000)
    yield Row("acp: memory", memory_mb, "MB", 80)


def _least(folder: str) -> list[str]:
    """The command of the least agent, where Node finds the SDK."""
    if not (shutil.which("node") and (MODULES / "@agentclientprotocol").is_dir()):
        return []
    place = Path(folder) / "least"
    place.mkdir()
    (place / "node_modules").symlink_to(MODULES)
    shutil.copy(LEAST, place)
    return ["node", str(place / LEAST.name)]


def _codex(folder: str, api: ModelApi) -> list[str]:
    """The command of Codex's adapter, where it is installed; its model is on the loopback."""
    program = ADAPTERS / "@agentclientprotocol" / "codex-acp" / "dist" / "index.js"
    if not (shutil.which("node") and program.is_file()):
        return []
    home = Path(folder) / "codex"
    home.mkdir()
    (home / "auth.json").write_text('{"OPENAI_API_KEY": "sk-0", "auth_mode": "apikey"}')
    (home / "config.toml").write_text(
        'model_provider = "loop"\nmodel = "gpt-6"\n[model_providers.loop]\nname = "loop"\n'
        f'base_url = "{api.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
    )
    return ["node", str(program)]
