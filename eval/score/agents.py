"""
The agents, and how each is started without a user.

Each has its own command, the permissions that its documentation recommends for a sandbox, and the loopback API as its model.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from eval.score.attacks import HOME
from eval.score.scenarios import ScoreError

ROOT = Path(__file__).resolve().parents[2]
VERSION_TIME_S = 120.0


class Start(NamedTuple):
    """How a process of an agent is started. `files` are relative to HOME; `shown` are directories of this machine that it needs."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}


class Agent(NamedTuple):
    """
    An agent.

    Attributes:
        program: its name on PATH; empty for Sanderling, which is that of this checkout.
        start: returns how it is started, from the program, the prompt, the API's address and the key.
        permissions: the options that allow it to work without a user, for the report.
        has_sandbox: whether its own sandbox is on with them.
        unsupported: why the models cannot play with it.
    """

    name: str
    program: str
    start: Callable[[str, str, str, str], Start]
    permissions: str
    has_sandbox: bool = False
    unsupported: str = ""


def _sanderling(program: str, prompt: str, url: str, key: str) -> Start:
    argv = (program, "-m", "sanderling", "-p", "--mode", "auto", "--output-format", "stream-json")
    config = f'base_url = "{url}"\n'
    return Start(
        (*argv, prompt), {"ANTHROPIC_API_KEY": key}, {".config/sanderling/config.toml": config}
    )


def _claude(program: str, prompt: str, url: str, key: str) -> Start:
    argv = (
        program,
        "-p",
        prompt,
        "--dangerously-skip-permissions",
        "--output-format",
        "stream-json",
    )
    env = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": key,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
    }
    return Start((*argv, "--verbose"), env)


def _codex(program: str, prompt: str, url: str, key: str) -> Start:
    config = (
        'model = "gpt-5.1-codex"\nmodel_provider = "loopback"\ncheck_for_update_on_startup = false\n'
        "[model_providers.loopback]\n"
        f'name = "loopback"\nbase_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
        "[analytics]\nenabled = false\n"
    )
    argv = (program, "exec", "--sandbox", "workspace-write", "--skip-git-repo-check", prompt)
    return Start(argv, {"OPENAI_API_KEY": key}, {".codex/config.toml": config})


def _gemini(program: str, prompt: str, url: str, key: str) -> Start:
    env = {
        "GEMINI_API_KEY": key,
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"disableAutoUpdate": True},
    }
    argv = (program, "--yolo", "--model", "gemini-2.5-pro", "--prompt", prompt)
    return Start(argv, env, {".gemini/settings.json": json.dumps(settings)})


def _opencode(program: str, prompt: str, url: str, key: str) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "loopback",
        "options": {"baseURL": f"{url}/v1", "apiKey": key},
        "models": {"score-model": {"name": "score-model", "tool_call": True}},
    }
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"loopback": provider},
        "model": "loopback/score-model",
        "small_model": "loopback/score-model",
        "autoupdate": False,
        "share": "disabled",
    }
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    argv = (program, "run", "--auto", prompt)
    return Start(argv, env, {".config/opencode/opencode.json": json.dumps(settings)})


def _vibe(program: str, prompt: str, url: str, key: str) -> Start:
    config = (
        'active_model = "score"\nenable_telemetry = false\nenable_update_checks = false\n'
        f'[[providers]]\nname = "loopback"\napi_base = "{url}/v1"\napi_key_env_var = "MISTRAL_API_KEY"\n'
        'api_style = "openai"\nbackend = "generic"\n'
        '[[models]]\nname = "score-model"\nprovider = "loopback"\nalias = "score"\n'
    )
    argv = (program, "--prompt", prompt, "--auto-approve", "--output", "streaming")
    return Start(argv, {"MISTRAL_API_KEY": key}, {".vibe/config.toml": config})


def _goose(program: str, prompt: str, url: str, key: str) -> Start:
    env = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "gpt-4o",
        "GOOSE_MODE": "auto",
        "GOOSE_DISABLE_KEYRING": "1",
        "OPENAI_HOST": url,
        "OPENAI_API_KEY": key,
    }
    argv = (program, "run", "--no-session", "--with-builtin", "developer", "--text", prompt)
    return Start(argv, env)


def _no_start(_program: str, _prompt: str, _url: str, _key: str) -> Start:
    return Start(())


AGENTS = (
    Agent("sanderling", "", _sanderling, "-p --mode auto", has_sandbox=True),
    Agent("codex", "codex", _codex, "exec --sandbox workspace-write", has_sandbox=True),
    Agent("claude", "claude", _claude, "-p --dangerously-skip-permissions, IS_SANDBOX=1"),
    Agent("opencode", "opencode", _opencode, "run --auto"),
    Agent("gemini", "gemini", _gemini, "--yolo"),
    Agent("vibe", "vibe", _vibe, "--prompt --auto-approve"),
    Agent(
        *("aider", "aider", _no_start, "--yes-always"),
        unsupported="takes edits from text, not from tool calls",
    ),
    Agent("goose", "goose", _goose, "run, GOOSE_MODE=auto"),
)
BY_NAME = {agent.name: agent for agent in AGENTS}


class Installed(NamedTuple):
    """An agent on this machine: its program, its version, and the directories that it needs."""

    agent: Agent
    program: str
    version: str
    shown: tuple[Path, ...]


def find_installed(name: str) -> Installed:
    """
    Find the agent on this machine.

    Raises:
        ScoreError: it is not on PATH, does not start, or has no tools; the message says which.
    """
    agent = BY_NAME[name]
    if agent.unsupported:
        raise ScoreError(agent.unsupported)
    if not agent.program:
        program, version_argv = sys.executable, (sys.executable, "-m", "sanderling", "--version")
    elif found := shutil.which(agent.program):
        program, version_argv = str(Path(found).absolute()), (found, "--version")
    else:
        raise ScoreError("not on PATH")
    try:
        said = subprocess.run(
            version_argv,
            capture_output=True,
            text=True,
            timeout=VERSION_TIME_S,
            check=True,
            cwd="/",
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ScoreError(f"does not start: {error}") from error
    version = re.search(r"\d+\.\d+[\w.+-]*", said.stdout)
    return Installed(agent, program, version[0] if version else "?", _needed_by(Path(program)))


def _needed_by(program: Path) -> tuple[Path, ...]:
    """Return the directories with what a program is made of: its environment and the Python of that, or the packages next to it."""
    found = list[Path]()
    for path in (program, program.resolve()):
        parts = path.parts
        if "node_modules" in parts:
            found.append(Path(*parts[: parts.index("node_modules") + 1]))
        elif (path.parent.parent / "pyvenv.cfg").exists():
            base = (path.parent / "python").resolve().parent.parent
            found += [path.parent.parent, base]
        else:
            found.append(path.parent)
    return tuple(dict.fromkeys(path for path in found if not path.is_relative_to("/usr")))


def environment(start: Start, program: str) -> dict[str, str]:
    """Return the whole environment of the agent: nothing of this machine's."""
    path = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{Path(program).parent}"
    own = {"HOME": HOME, "USER": "user", "LOGNAME": "user", "SHELL": "/bin/bash", "PATH": path}
    own |= {"LANG": "C.UTF-8", "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
    return {**own, **start.env}
