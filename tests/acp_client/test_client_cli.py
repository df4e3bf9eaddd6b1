"""`sanderling client`: another agent on a command line."""

import json
import os
import pty
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import DEADLINE_S, prove

AGENT = Path(__file__).with_name("agent.py")
ASKED = {
    "toolCall": {"toolCallId": "1", "title": "rm x", "kind": "other"},
    "options": [
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
        {"optionId": "no", "name": "No", "kind": "reject_once"},
    ],
}
SCRIPT = {
    "prompts": {
        "ping": [{"say": "pong"}],
        "ask": [{"ask": ASKED}],
        "wait": [{"say": "on\n"}, {"wait_cancel": 20}],
        "die": [{"exit": 3}],
    }
}


@pytest.fixture
def client(tmp_path):
    """Start `sanderling client` with the scripted agent, outside of a sandbox, in an empty HOME."""
    running = []

    def start(*arguments, script=SCRIPT, agent=None, stream=subprocess.PIPE):
        path = tmp_path / "script.json"
        path.write_text(json.dumps(script))
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)
        command = agent or shlex.join([sys.executable, str(AGENT), str(path)])
        argv = [sys.executable, "-m", "sanderling", "client", "--no-sandbox"]
        argv += ["--agent", command, "--cwd", str(project), *arguments]
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        process = subprocess.Popen(
            argv, stdin=stream, stdout=stream, stderr=stream, text=True, env=env
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        for stream in filter(None, (process.stdin, process.stdout, process.stderr)):
            stream.close()


def test_ping_is_answered_with_pong_and_the_time_that_took(client):
    out, err = client().communicate(":ping\n", timeout=DEADLINE_S)
    assert out == "pong\n"
    assert "the first word took " in err


@prove
def test_p_asks_once_and_nobody_answers_its_questions(client):
    process = client("-p", "ask")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert json.loads(out.removeprefix("answer: "))["outcome"]["optionId"] == "no"
    assert "denied: tool rm x" in err
    assert process.returncode == 0


@prove
def test_on_a_terminal_words_and_what_is_told_beside_them_stand_in_order(client):
    steps = [{"say": "words "} for _ in range(200)] + [{"ask": ASKED}]
    master, slave = pty.openpty()
    process = client("-p", "go", script={"prompts": {"go": steps}}, stream=slave)
    os.close(slave)
    shown = b""
    with suppress(OSError):  # its end
        while data := os.read(master, 65536):
            shown += data
    os.close(master)
    assert process.wait(DEADLINE_S) == 0
    beginning, _, end = shown.decode().partition("sanderling: tool rm x\r\n")
    assert beginning.partition("\r\n")[2] == f"{'words ' * 200}\r\n"
    assert end.startswith("sanderling: denied: tool rm x")


@prove
def test_a_question_is_answered_by_number(client):
    process = client()
    process.stdin.write("ask\n")
    process.stdin.flush()
    while "2. No" not in process.stderr.readline():
        pass
    process.stdin.write("7\n1\n")
    process.stdin.close()
    assert '"optionId": "yes"' in process.stdout.read()
    assert process.wait(DEADLINE_S) == 0
    assert "answer with a number from 1 to 2" in process.stderr.read()


@prove
def test_words_that_could_pass_for_a_question_wait_until_the_open_one_is_answered(client, tmp_path):
    seen = tmp_path / "seen"
    asked = {"sessionId": "$SESSION", **ASKED}
    line = {"jsonrpc": "2.0", "id": 999_000, "method": "session/request_permission"}
    spoof = "sanderling: ls? is that fine\n    1. allow\n    2. deny\n"
    steps = [
        {"raw": json.dumps(line | {"params": asked})},
        {"sleep": 1},
        {"say": spoof},
        {"wait_for": str(seen)},
    ]
    process = client(script={"prompts": {"ask": steps}})
    process.stdin.write("ask\n")
    process.stdin.flush()
    while "2. No" not in (said := process.stderr.readline()):
        assert said
    assert select.select([process.stdout], [], [], 2)[0] == []
    seen.touch()
    out, _ = process.communicate("2\n:quit\n", timeout=DEADLINE_S)
    assert out.strip() == spoof.strip()


def test_cancel_and_an_interrupt_stop_the_turn(client):
    process = client()
    for stop in (
        lambda: process.stdin.write(":cancel\n"),
        lambda: process.send_signal(signal.SIGINT),
    ):
        process.stdin.write("wait\n")
        process.stdin.flush()
        assert process.stdout.readline() == "on\n"
        stop()
        process.stdin.flush()
        while "the turn ended: cancelled" not in process.stderr.readline():
            pass
    process.stdin.write(":quit\n")
    process.stdin.close()
    assert process.wait(DEADLINE_S) == 0


@prove
def test_an_interrupt_of_p_is_its_exit_status(client):
    process = client("-p", "wait")
    assert process.stdout.readline() == "on\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == 130


@prove
@pytest.mark.parametrize(
    "script, agent, told",
    [
        ({"settings": {"version": 7}}, None, "speaks version 7 of the Agent Client Protocol"),
        (SCRIPT, "cluade", "there is no agent 'cluade'; did you mean 'claude'?"),
        (SCRIPT, "false", "ended before it answered"),
    ],
)
def test_what_cannot_be_started_is_told_and_is_exit_status_2(client, script, agent, told):
    process = client(script=script, agent=agent)
    assert process.wait(DEADLINE_S) == 2
    assert told in process.stderr.read()


@prove
def test_an_agent_that_ends_in_mid_turn_is_exit_status_1(client):
    process = client("-p", "die")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "it ended with exit status 3" in err
