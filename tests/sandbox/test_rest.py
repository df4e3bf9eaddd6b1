"""The sandbox of a session at rest: no processes while nobody needs it, and nothing is lost by that."""

import os
import shutil
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.manager import REST_AFTER_S
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.sandbox.processes import Process
from sanderling.sandbox.sandbox import Sandbox
from tests.conftest import DEADLINE_S, happens, prove
from tests.sandbox.test_files import session_of
from tests.sandbox.test_grants import said
from tests.sandbox.test_sandbox import Place, supervisors

SOON_S = 0.05
LONGER_S = 10 * SOON_S
"""In which it would have come to rest, if nothing kept it."""
IN_MEMORY = {
    "a file in /dev/shm": "echo x >/dev/shm/left",
    "shared memory": "command -v ipcmk || exit 99; ipcmk -M 100",
}


def is_at_rest() -> bool:
    return not supervisors(os.getpid())


async def rest(session: SessionSandbox) -> None:
    """Let the minutes pass: from the next look on, until it is at rest."""
    session.manager.rest_after_s = SOON_S
    with session.manager.kept_open():
        pass
    await happens(is_at_rest)
    session.manager.rest_after_s = REST_AFTER_S


async def would_rest(session: SessionSandbox) -> None:
    """Let the minutes pass, of a session that something keeps from resting."""
    session.manager.rest_after_s = SOON_S
    with session.manager.kept_open():
        pass
    await anyio.sleep(LONGER_S)
    session.manager.rest_after_s = REST_AFTER_S


async def test_idle_session_has_no_processes_and_what_commands_left_on_the_disk_is_there_afterwards(
    place,
):
    async with session_of(place) as session:
        await said(session, "echo a >/tmp/left; echo b >~/left")
        await rest(session)
        assert place.sentinels() == []
        assert await said(session, "cat /tmp/left ~/left") == "a\nb\n"
    assert place.temporary_directories() == []


async def test_who_waits_for_a_sandbox_when_the_session_ends_is_told(place):
    told: list[str] = []

    async def want(session: SessionSandbox) -> None:
        with anyio.CancelScope(shield=True):  # as what has begun and comes to its end does
            try:
                await session.environment.files()
            except SandboxError as error:
                told.append(str(error))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            async with session_of(place) as session:
                tasks.start_soon(want, session)
                await anyio.lowlevel.checkpoint()
            tasks.start_soon(want, session)
    assert told == ["The session is over."] * 2


async def test_file_worker_that_starts_while_all_are_closed_is_closed_too(place):
    async with session_of(place) as session:
        sandbox, workers = await session.manager.opened(), session.manager.workers
        workers.close()
        async with anyio.create_task_group() as tasks:
            starting = tasks.start_soon(workers.of, sandbox, NO_GRANT)
            await anyio.lowlevel.checkpoint()
            workers.close()
        files = await starting
        assert files.has_ended
        with pytest.raises(SandboxError, match="ended"):
            await files.list(str(place.project))


@prove
async def test_tmp_goes_with_a_session_that_ends_at_rest(place):
    async with session_of(place) as session:
        await said(session, "mkdir -p /tmp/a/b; chmod 0 /tmp/a/b")
        await rest(session)
        assert len(place.temporary_directories()) == 1
    assert place.temporary_directories() == []


@prove
@pytest.mark.parametrize("is_moved", [False, True])
async def test_sandbox_whose_private_directories_go_is_opened_anew(place, is_moved):
    async with session_of(place) as session:
        assert await said(session, "echo a >/tmp/left; cat /tmp/left") == "a\n"
        files = await session.environment.files()
        await files.write(f"{place.project}/by_tool", b"1")
        if is_moved:
            (place.base / "state").rename((place.base / "state").with_name("moved"))
        else:
            shutil.rmtree(place.base / "state")
        command = "cat /tmp/left; echo b >/tmp/left; echo c >~/left; cat /tmp/left ~/left"
        assert (await said(session, command)).endswith("left: No such file or directory\nb\nc\n")
        files = await session.environment.files()
        await files.write(f"{place.project}/by_tool", b"2")
        shutil.rmtree(place.base / "state")
        _, theirs = await session.environment.scratch()
        assert await said(session, f"echo d >{theirs}/left; cat {theirs}/left") == "d\n"
        shutil.rmtree(place.base / "state")
    assert place.sentinels() == []


async def rests_when_it_has_ended(session: SessionSandbox, process: Process) -> None:
    await would_rest(session)
    assert process.is_running
    assert not is_at_rest()
    process.kill()
    await process.wait()
    process.close()
    await rest(session)


@prove
async def test_session_does_not_rest_while_a_command_runs(place):
    async with session_of(place) as session:
        process = await session.environment.spawn(["sleep", "600"])
        await rests_when_it_has_ended(session, process)


@prove
async def test_session_does_not_rest_while_a_command_runs_in_a_view_that_was_left(place):
    async with session_of(place) as session:
        process = await session.environment.spawn(["sleep", "600"])
        sandbox = session.manager.sandbox
        [view] = sandbox._views._views.values()
        sandbox._views.drop(view)  # as when the host has replaced what is mounted there
        await rests_when_it_has_ended(session, process)


@prove
async def test_whoever_needs_a_sandbox_while_one_that_failed_closes_gets_the_next(
    place, monkeypatch
):
    async def refuse(_: Sandbox) -> None:
        monkeypatch.undo()
        raise SandboxError("refused, for once")

    async with session_of(place) as session:
        monkeypatch.setattr(session.manager, "_catch_up", refuse)
        first = session.manager._is_wanted
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(session.get_ready)
                await happens(lambda: session.manager._is_wanted is not first)
                assert await said(session, "echo fine") == "fine\n"


@prove
@pytest.mark.parametrize("script", IN_MEMORY.values(), ids=IN_MEMORY.keys())
async def test_session_does_not_rest_while_it_would_lose_what_is_in_memory(place, script):
    async with session_of(place) as session:
        process = await session.environment.spawn(["sh", "-c", script])
        if await process.wait() == 99:
            pytest.skip("no ipcmk")
        process.close()
        await would_rest(session)
        assert not is_at_rest()
        await said(session, "rm -f /dev/shm/left; ipcrm --all=shm 2>/dev/null")
        await rest(session)


@prove
async def test_hosts_and_network_are_as_before_after_a_rest(place):
    async with session_of(place) as session:
        await session.confined.extend(Grant(hosts=("example.org",)))
        await rest(session)
        assert "http" in await said(session, "echo $https_proxy")
        assert session.facts.network == "proxy"


@prove
async def test_session_with_paths_that_were_let_in_does_not_rest(place):
    """What they lead to would be looked up again, after commands that may have put links in their places."""
    other = place.base / "granted"
    async with session_of(place) as session:
        await session.confined.extend(Grant(write_paths=(str(other),)))
        await would_rest(session)
        assert not is_at_rest()


@prove
async def test_tmp_survives_an_opening_that_fails(place):
    async with session_of(place) as session:
        await said(session, "echo kept >/tmp/left")
        await rest(session)
        root = Path(session.effective_policy.policy.state_dir) / "root"
        aside = root.rename(f"{root}~")
        root.touch()
        with pytest.raises(SandboxError):
            await said(session, "true")
        root.unlink()
        aside.rename(root)
        assert await said(session, "cat /tmp/left") == "kept\n"


@prove
async def test_programs_of_the_project_do_not_clean_up(place, monkeypatch):
    programs = place.project / "bin"
    programs.mkdir()
    (programs / "rm").write_text(f"#!/bin/sh\ntouch {place.base}/was_run\n")
    (programs / "rm").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    async with session_of(place) as session:
        await said(session, "true")
        await rest(session)
    assert not (place.base / "was_run").exists()
    assert place.temporary_directories() == []


@prove
async def test_mode_that_is_set_at_rest_holds_afterwards(place):
    async with session_of(place) as session:
        await said(session, "true")
        await rest(session)
        session.set_mode("ro")
        assert "Read-only" in await said(session, "echo x 2>&1 >new")


@prove
async def test_what_changes_while_the_sandbox_opens_holds_for_the_first_command(place):
    async with session_of(place) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(session.get_ready)
        await happens(lambda: not is_at_rest())
        assert session.manager.sandbox is None
        session.set_mode("ro")
        async with session.environment.lending(Grant(hosts=("example.org",))):
            told = await said(session, "echo x 2>&1 >new; echo $https_proxy")
    assert "Read-only" in told
    assert "http" in told


async def test_sandbox_that_was_made_ready_is_kept_in_its_context_and_rests_if_nobody_needed_it(
    place,
):
    async with session_of(place) as session:
        with session.manager.kept_open():
            await session.get_ready()
            assert not is_at_rest()
            session.manager.rest_after_s = SOON_S
            await anyio.sleep(LONGER_S)
            assert not is_at_rest()
        await happens(is_at_rest)


@prove
async def test_sandbox_that_was_used_in_a_context_stays_when_that_ends(place):
    async with session_of(place) as session:
        with session.manager.kept_open():
            await said(session, "true")
        await anyio.sleep(LONGER_S)
        assert not is_at_rest()


@prove
async def test_environment_file_that_is_made_during_a_rest_is_hidden_afterwards(place):
    async with session_of(place) as session:
        await said(session, "true")
        await rest(session)
        (place.project / ".env").write_text("TOKEN=1\n")
        assert await said(session, "cat .env") == ""


@prove
async def test_what_cannot_be_made_ready_is_told_to_who_needs_it(place: Place):
    changes: list[str] = []
    async with session_of(place, min_level="full", level="landlock") as session:
        session.manager._on_change = lambda: changes.append(session.facts.problem)
        await session.get_ready()
        assert changes == []
        with pytest.raises(SandboxError, match="landlock"):
            await said(session, "true")
        assert changes
