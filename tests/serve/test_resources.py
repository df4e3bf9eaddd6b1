"""What sessions hold while no client watches them, and how many fit into few descriptors."""

import resource
from pathlib import Path

import pytest

from tests.acp.talk import chosen
from tests.conftest import happens, prove
from tests.sandbox.test_sandbox import supervisors
from tests.serve.talk import attached
from tests.serve.test_sessions import PERMISSION, bash

pytestmark = pytest.mark.guard

SESSIONS = 4
FEW = 110
"""Descriptors: a server needs some 40, a sandbox 13."""
RUN = [[bash(1, "echo once >> ran")], [{"text": "done"}]]


def descriptors(pid: int) -> int:
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


async def test_a_session_that_no_client_watches_holds_no_sandbox(serve, home):
    server = serve("--model", home.script(*RUN))
    pid = server.process.pid
    async with attached(server) as client:
        client.answers[PERMISSION] = chosen("once")
        for number in range(SESSIONS):
            session = await client.new(home)
            assert await client.prompt(session, "go", f"p{number}") == "end_turn"
        assert len(supervisors(pid)) == SESSIONS
    await happens(lambda: not supervisors(pid))


async def test_a_turn_that_no_client_watches_rests_when_it_ends(serve, home):
    server = serve(
        "--model", home.script([bash(1, "touch began; sleep 1; touch slept")], [{"text": "done"}])
    )
    pid = server.process.pid
    async with attached(server) as client:
        client.answers[PERMISSION] = chosen("once")
        session = await client.new(home)
        await client.begin_prompt(session, "go", "p1")
        await happens((home.project / "began").exists)
    slept = home.project / "slept"
    await happens(lambda: slept.exists() and not supervisors(pid))


@prove
async def test_with_few_descriptors_each_session_runs_its_command(serve, home):
    server = serve("--model", home.script(*RUN))
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
    async with attached(server) as client:
        client.answers[PERMISSION] = chosen("once")
        for number in range(3 * SESSIONS):
            session = await client.new(home)
            assert await client.prompt(session, "go", f"p{number}") == "end_turn"
        assert (home.project / "ran").read_text() == "once\n" * 3 * SESSIONS
        assert descriptors(server.process.pid) < FEW
