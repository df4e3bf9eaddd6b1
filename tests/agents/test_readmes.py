"""
Agents of npm and PyPI, started in the sandbox with the line of their README. Their model is on the loopback.

What `sanderling client` then says is missing is copied into config.toml, as a user would, until the agent answers.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.agents.adapters_api import ModelApi
from tests.conftest import prove

MAX_COPIED = 6
START_S = 240
NEWER = ("python3.14", "python3.13", "python3.12")
ADVICE = re.compile(r"(?:add|set) `((\w+) = \[.*?\])` in \[agents\.it\]")
GONE = re.compile(
    r"E404|404 Not Found|No matching version|not found in the package registry|no versions of"
)
OTHER_PYTHON = re.compile(r"does not satisfy Python|require CPython")
OTHER_NODE = re.compile(r"requested module 'node:|Unsupported engine|EBADENGINE")


def claude(api: ModelApi, _: Path) -> dict[str, Any]:
    env = {"ANTHROPIC_BASE_URL": api.url, "ANTHROPIC_API_KEY": "sk-ant-0"}
    return {
        "preset": "claude",
        "command": "npx -y @agentclientprotocol/claude-agent-acp",
        "env": env,
    }


def codex(api: ModelApi, home: Path) -> dict[str, Any]:
    write(
        home / ".codex/config.toml",
        'model_provider = "loop"\nmodel = "gpt-6"\n[model_providers.loop]\nname = "loop"\n'
        f'base_url = "{api.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n',
    )
    env = {"OPENAI_API_KEY": "sk-0"}
    return {"preset": "codex", "command": "npx -y @agentclientprotocol/codex-acp", "env": env}


def opencode(api: ModelApi, home: Path) -> dict[str, Any]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{api.url}/v1", "apiKey": "sk-0"},
        "models": {"m": {"name": "m"}},
    }
    config = {"model": "loop/m", "small_model": "loop/m", "provider": {"loop": provider}}
    write(home / ".config/opencode/opencode.json", json.dumps(config))
    return {"preset": "opencode", "command": "npx -y opencode-ai acp"}


def qwen(api: ModelApi, _: Path) -> dict[str, Any]:
    env = {"OPENAI_BASE_URL": f"{api.url}/v1", "OPENAI_API_KEY": "sk-0", "OPENAI_MODEL": "m"}
    return {"command": "npx -y @qwen-code/qwen-code --acp --auth-type openai", "env": env}


def vibe(api: ModelApi, home: Path) -> dict[str, Any]:
    write(
        home / ".vibe/config.toml",
        'active_model = "m"\nenable_telemetry = false\nenable_update_checks = false\n'
        f'[[providers]]\nname = "loop"\napi_base = "{api.url}/v1"\napi_key_env_var = "LOOP_KEY"\n'
        '[[models]]\nname = "m"\nprovider = "loop"\nalias = "m"\n',
    )
    env = {"LOOP_KEY": "sk-0", "MISTRAL_API_KEY": "sk-0"}
    return {"preset": "vibe", "command": "uvx --from mistral-vibe vibe-acp", "env": env}


def fast_agent(_: ModelApi, __: Path) -> dict[str, Any]:
    return {"command": "uvx fast-agent-acp@latest --model passthrough"}


def gemini(api: ModelApi, _: Path) -> dict[str, Any]:
    env = {"GEMINI_API_KEY": "sk-0", "GOOGLE_GEMINI_BASE_URL": api.url}
    return {"preset": "gemini", "command": "npx -y @google/gemini-cli --acp", "env": env}


def kimi(_: ModelApi, __: Path) -> dict[str, Any]:
    return {"preset": "kimi", "command": "npx -y @moonshot-ai/kimi-code acp"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Shell:
    """A user's shell in their project, with one agent in their settings."""

    def __init__(self, base: Path, entry: dict[str, Any], hosts: list[str]) -> None:
        self.home, self.project = base / "home", base / "project"
        (self.project / ".git").mkdir(parents=True)
        self._entry = {**entry, "command": entry["command"].split()}
        self._hosts, self._lines = hosts, dict[str, str]()
        self._write()

    def _write(self) -> None:
        entry = {"hosts": self._hosts, **self._entry}
        lines = {key: f"{key} = {toml(value)}" for key, value in entry.items()}
        write(
            self.home / ".config/sanderling/config.toml",
            "\n".join(("[agents.it]", *({**lines, **self._lines}).values())),
        )

    def follow(self, advice: re.Match[str]) -> None:
        self._lines[advice[2]] = advice[1]
        self._write()

    def use_newer_python(self) -> bool:
        """Have `uvx` use a Python on PATH that is newer than this one, as a user would; return False without one."""
        for name in NEWER:
            found = shutil.which(name)
            if found and "--python" not in self._entry["command"]:
                asked = [found, "-c", "import sys; print(sys.base_prefix)"]
                prefix = subprocess.run(asked, check=False, capture_output=True, text=True)
                if base := prefix.stdout.strip():
                    uvx, *rest = self._entry["command"]
                    self._entry["command"] = [uvx, "--python", f"{base}/bin/{name}", *rest]
                    paths = self._lines.get("paths", "paths = []")
                    self._lines["paths"] = paths.replace("[", f"[{json.dumps(base)}, ", 1)
                    self._write()
                    return True
        return False

    def ask(self, text: str) -> str:
        argv = [sys.executable, "-m", "sanderling", "client", "--agent", "it", "-p", text]
        environment = {**os.environ, "HOME": str(self.home)}
        for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "NVIM_APPNAME"):
            environment.pop(name, None)
        with subprocess.Popen(
            argv,
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                return process.communicate(timeout=START_S)[0]
            except subprocess.TimeoutExpired:
                process.terminate()
                return "(no answer)\n" + process.communicate()[0]


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {json.dumps(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)


ANSWERS = {
    claude: "pong",
    codex: "pong",
    opencode: "pong",
    qwen: "pong",
    vibe: "pong",
    fast_agent: "ping",
    gemini: "pong",
    kimi: "log in",
}


@prove
@pytest.mark.usefixtures("plain_environment")
@pytest.mark.parametrize("agent", ANSWERS, ids=lambda agent: agent.__name__)
def test_an_agent_answers_after_the_lines_that_the_client_prints(tmp_path, agent):
    with ModelApi() as api:
        entry = agent(api, tmp_path / "home")
        program = entry["command"].partition(" ")[0]
        if not shutil.which(program):
            pytest.skip(f"there is no {program}")
        shell = Shell(tmp_path, entry, [api.host])
        for _ in range(MAX_COPIED):
            said = shell.ask("ping")
            if OTHER_PYTHON.search(said) and shell.use_newer_python():
                continue
            if not (advice := ADVICE.search(" ".join(said.split()))):
                break
            shell.follow(advice)
    if GONE.search(said):
        pytest.skip(f"{entry['command']} is gone: {said}")
    for what, pattern in (("Python", OTHER_PYTHON), ("Node", OTHER_NODE)):
        if pattern.search(said):
            pytest.skip(f"{entry['command']} needs another {what}: {said}")
    assert ANSWERS[agent] in said
