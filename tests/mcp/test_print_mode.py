"""Tool servers in print mode, where the first request is often the only one."""

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from sanderling.mcp.allowed import AllowedServers
from sanderling.mcp.project_file import servers_in
from sanderling.project.trust.trust import Trust
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from tests.conftest import prove, prove_rest
from tests.mcp.conftest import HOSTILE, PYTHON, hostile
from tests.mcp.talk import PATIENT_CLI, tables_of
from tests.unit.test_print_mode import Shell

CALL = {"name": "mcp__bad__echo", "input": {"words": "from the server"}, "id": "toolu_1"}
ANSWER = [{"text": "Done."}]


@pytest.fixture
def shell(tmp_path) -> Shell:
    shell = Shell(tmp_path)
    shell.program = ("-c", PATIENT_CLI)
    return shell


def declare(shell: Shell, **servers: Any) -> None:
    shell.config.write_text(tables_of(servers))


def test_tool_of_a_server_is_there_at_the_first_request_and_runs_if_it_is_allowed(shell):
    declare(shell, bad=hostile())
    done = shell.play(
        [{"tool_use": CALL}],
        ANSWER,
        args=("--allow", "mcp__bad__*", "--output-format", "stream-json"),
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    results = [event for event in events if event.get("type") == "tool_result"]
    assert "from the server" in done.stdout, results


@prove
def test_tool_of_a_server_is_denied_where_nobody_can_be_asked(shell):
    declare(shell, bad=hostile())
    allowed = ("--allow", "mcp__bad__other")
    done = shell.play([{"tool_use": CALL}], ANSWER, args=(*allowed, "--output-format", "json"))
    assert "mcp__bad__echo" in str(json.loads(done.stdout))
    [session] = shell.sessions()
    assert "from the server" not in str(msgspec.to_builtins(session.history[2:]))


@prove
def test_server_that_fails_is_told_and_the_answer_comes(shell):
    declare(shell, bad=hostile("exit"), good=hostile())
    done = shell.play(ANSWER, args=("--allow", "mcp__*"))
    assert done.returncode == 0
    assert done.stdout == "Done.\n"
    assert "MCP server bad: it ended with exit status 7: nothing to do here, restarting." in (
        done.stderr
    )


@pytest.mark.parametrize(
    "how, words",
    prove_rest(
        [
            ("many:5000", "it has more than 512 tools: the first 512 are used"),
            (
                'list:{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"t","inputSchema":"x"}]}}',
                "the tool 't': its schema is not an object's",
            ),
            ('list:{"jsonrpc":"2.0","id":ID,"result":[]}', "its result is an array, not an object"),
            ("unlisted", "not ready after 10 s: no answer to tools/list"),
            ("mute", "not ready after 10 s: no answer to initialize"),
        ],
        keep=(0,),
    ),
)
def test_what_of_a_server_cannot_be_used_is_told_before_the_answer(shell, how, words):
    declare(shell, bad=hostile(how, timeout_s=10))
    done = shell.play(ANSWER, args=("--allow", "mcp__*"))
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert "MCP server bad" in done.stderr
    assert words in done.stderr


@prove
def test_server_whose_variable_is_not_set_is_told(shell):
    declare(shell, bad=hostile(env={"TOKEN": "$NOT_SET_ANYWHERE"}))
    done = shell.play(ANSWER, args=("--allow", "mcp__bad__*"))
    assert "MCP server bad failed: the variable NOT_SET_ANYWHERE is not set." in done.stderr


def test_wrong_declaration_is_told_before_anything_starts(shell):
    declare(shell, bad={"comand": ["x"]})
    done = shell.play(ANSWER)
    assert done.returncode != 0
    assert (
        "config.toml:2: unknown key 'mcp.servers.bad.comand'; did you mean 'mcp.servers.bad.command'?"
        in done.stderr
    )
    assert not Path(shell.state / "sessions").exists() or shell.sessions() == []


def propose(shell: Shell, **servers: Any) -> None:
    """Have the project propose these in a file that is trusted."""
    (shell.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    trust = Trust(str(shell.state), str(shell.project))
    trust.trust({".mcp.json": trust.look(".mcp.json").sha256})


@prove
def test_server_of_the_project_that_may_start_is_there_at_the_first_request(shell):
    shutil.copy(HOSTILE, shell.project)
    propose(shell, bad={"command": PYTHON, "args": ["hostile.py"]})

    async def always(question: ApprovalRequested) -> AnswerApproval:
        return AnswerApproval(question.id, "always")

    [proposal] = servers_in((shell.project / ".mcp.json").read_text()).values()
    allowed = AllowedServers(str(shell.state), str(shell.project), always)
    assert anyio.run(allowed.ask, "bad", proposal)
    done = shell.play(
        [{"tool_use": CALL}],
        ANSWER,
        args=("--allow", "mcp__bad__*", "--output-format", "stream-json"),
    )
    assert done.returncode == 0, done.stderr
    assert "from the server" in done.stdout


def test_server_of_the_project_that_nobody_has_let_start_is_told_and_the_answer_comes(shell):
    propose(shell, it={"command": "it"})
    done = shell.play(ANSWER, args=("--output-format", "json"))
    assert done.returncode == 0, done.stderr
    assert "not started: the project's tool server 'it': allow it in Neovim first" in done.stderr
    assert json.loads(done.stdout)["denials"] == []


@prove
def test_where_no_server_is_declared_nothing_of_them_is_loaded(shell):
    model = shell.write_script(ANSWER)
    argv = [sys.executable, "-X", "importtime", "-m", "sanderling", "-p", "Go.", "--model", model]

    def loaded() -> set[str]:
        run = partial(subprocess.run, argv, cwd=shell.project, env=shell.environment, check=True)
        told = run(capture_output=True, text=True).stderr
        return set(re.findall(r"\| +(sanderling\.mcp\.\w+|mcp)$", told, re.MULTILINE))

    assert loaded() == set()
    propose(shell, it={"command": "it"})
    assert "sanderling.mcp.server" in loaded()
