"""Commands in the background: started as such or out of time, read, stopped, bounded, and gone with the session."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
from tests.conftest import DEADLINE_S, happens, passes, prove, prove_rest, running
from tests.sandboxes import in_own_task
from tests.unit.test_bash import Desk, open_files

from sanderling.errors import ToolError
from sanderling.tools import jobs as module
from sanderling.tools.commands import jobs as engine

ENDS_ON_FILE = "until [ -e end ]; do sleep 0.01; done"
PATIENCE_S = 20.0
FIRST_LOOK_S = "sanderling.tools.bash.FIRST_LOOK_S"


@pytest.fixture(autouse=True)
def short_first_look(monkeypatch):
    monkeypatch.setattr(FIRST_LOOK_S, 0.3)


async def said_in_time(
    desk: Desk, command: str, has_begun: Callable[[], object], **options: Any
) -> str:
    """What the model is told of a command whose PATIENCE_S are over, which they are as soon as it has begun."""
    told: list[str] = []

    async def say() -> None:
        told.append(await desk.say(command, **options))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(say)
        await happens(has_begun)
        await passes(PATIENCE_S + 1)
    return told[0]


@pytest.fixture(params=prove_rest(["sandbox", "off"], keep=(-1,)))
async def desk(tmp_path, request) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, is_confined=request.param == "sandbox")
    async for served in in_own_task(desk.served()):
        yield served


async def test_command_that_is_out_of_time_goes_on_as_a_job(desk):
    command = f"mkdir sub; cd sub; echo begun; {ENDS_ON_FILE}; echo done; exit 3"
    told = await said_in_time(desk, command, lambda: desk.screen == "begun\n", timeout_s=PATIENCE_S)
    assert told.startswith("begun\n[Still running after 20 s, now in the background as j1.")
    assert "[still running" in await desk.ask(action="read", id="j1")
    assert desk.shell.cwd == str(desk.project)
    (desk.project / "sub" / "end").touch()
    told = await desk.ask(action="read", id="j1", wait_s=10)
    if "still running" in told:  # read in the moment between its last line and its end
        told += await desk.ask(action="read", id="j1", wait_s=10)
    assert told.startswith("done\n")
    assert "[exit status 3 · " in told
    assert "begun" not in told
    assert desk.shell.cwd == str(desk.project)


async def test_shell_keeps_its_state_while_a_job_runs(desk):
    await desk.say("mkdir sub; cd sub; export A=1")
    await desk.say(f"cd /; export A=2; {ENDS_ON_FILE}", timeout_s=0.2)
    assert (await desk.say("echo $A $PWD")).startswith(f"1 {desk.project}/sub\n")
    await desk.ask(action="stop", id="j1")
    assert (await desk.say("echo $A $PWD")).startswith(f"1 {desk.project}/sub\n")


async def test_job_starts_at_once_and_tells_what_it_says_first(desk, monkeypatch):
    monkeypatch.setattr(FIRST_LOOK_S, PATIENCE_S)
    told = await said_in_time(
        desk,
        "echo listening; sleep 1000",
        lambda: desk.jobs.all() and desk.jobs.find("j1").log.total_bytes,
        background=True,
    )
    assert told.startswith("listening\n[j1 runs in the background. Read more with jobs: read j1.]")
    await desk.ask(action="stop", id="j1")


async def test_job_without_output_begins_with_one_line(desk):
    assert await desk.say("sleep 1000", background=True) == (
        "[j1 runs in the background. Read more with jobs: read j1.]"
    )
    await desk.ask(action="stop", id="j1")


async def test_the_file_with_all_output_is_named_only_where_something_is_left_out(desk):
    command = "for i in 1 2 3; do until [ -e $i ]; do sleep 0.01; done; seq ${i}0000 ${i}4000; done"
    await desk.say(command, background=True)
    (desk.project / "1").touch()
    job = desk.jobs.find("j1")
    size = 6 * 4001
    await job.wait_for_bytes(size - 1)
    told = await desk.ask(action="read", id="j1")
    assert "bytes are left out here" in told
    assert f"All {size:,} bytes of output: " in told
    (desk.project / "2").touch()
    await job.wait_for_bytes(size)
    while (more := await desk.ask(action="read", id="j1")).startswith("(no output)"):
        await anyio.sleep(0.01)
    assert ("bytes of output" in more) == ("left out here" in more)
    await desk.ask(action="stop", id="j1")


async def test_short_output_of_a_job_names_no_file(desk):
    assert "bytes of output" not in await desk.say(f"echo a; {ENDS_ON_FILE}; echo b", timeout_s=0.3)
    (desk.project / "end").touch()
    told = await desk.ask(action="read", id="j1", wait_s=10)
    assert told.startswith("b\n")
    assert "bytes of output" not in told


async def test_job_that_fails_at_once_is_told_as_failed(desk, monkeypatch):
    monkeypatch.setattr(FIRST_LOOK_S, PATIENCE_S)
    outcome = await desk.run("echo no such port; exit 1", background=True)
    assert outcome.content.startswith("no such port\n[exit status 1 · ")
    assert outcome.is_error
    assert await desk.ask(action="list") == "There are no jobs."


async def test_only_what_is_new_is_read(desk):
    command = "for i in 1 2 3; do until [ -e $i ]; do sleep 0.01; done; echo got $i; done"
    await desk.say(command, background=True)
    for number in (1, 2):
        (desk.project / str(number)).touch()
        told = await desk.ask(action="read", id="j1", wait_s=10)
        assert told.startswith(f"got {number}\n[still running")
    assert (await desk.ask(action="read", id="j1")).startswith("(no output)\n[still running")
    await desk.ask(action="stop", id="j1")


@prove
async def test_read_waits_no_longer_than_it_is_told(desk):
    await desk.say("sleep 1000", background=True)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: desk.ask(action="read", id="j1", wait_s=PATIENCE_S))
        await anyio.wait_all_tasks_blocked()
        await passes(PATIENCE_S + 1)
    asked = {"action": "read", "id": "j1"}
    assert module.jobs.parse(asked | {"wait_s": 599}).wait_s == 599
    assert module.jobs.parse(asked | {"wait_s": 601}).wait_s == 600
    with pytest.raises(ToolError, match="wait_s"):
        module.jobs.parse(asked | {"wait_s": -1})
    await desk.ask(action="stop", id="j1")


async def test_several_readers_are_all_woken(desk):
    await desk.say(f"{ENDS_ON_FILE}; echo out; sleep 1000", background=True)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(lambda: desk.ask(action="read", id="j1", wait_s=20))
        await anyio.wait_all_tasks_blocked()
        (desk.project / "end").touch()
        await desk.jobs.find("j1").wait_for_bytes(0)
        await desk.ask(action="stop", id="j1")


async def test_stopped_job_is_gone_and_tells_how_and_its_last_words(desk, marker):
    command = f"trap 'echo last words; exit 7' INT; touch ready; {marker} & wait"
    await desk.say(command, background=True)
    await happens((desk.project / "ready").exists)
    told = await desk.ask(action="stop", id="j1")
    assert told.startswith("last words\n[exit status 7 · ")
    assert not running(marker)
    assert "[exit status 7 · " in await desk.ask(action="stop", id="j1")


async def test_job_that_ignores_signals_is_stopped_soon(desk):
    command = "trap '' INT TERM; touch ready; while :; do sleep 1000; done"
    await desk.say(command, background=True)
    await happens((desk.project / "ready").exists)
    told = await desk.ask(action="stop", id="j1")
    assert "[ended by SIGKILL · " in told


async def test_ended_job_is_listed_once_more(desk):
    await desk.say("sleep 1000 # first\n:", background=True)
    await desk.say(f"{ENDS_ON_FILE}; echo out", timeout_s=0.1)
    told = await desk.ask(action="list")
    assert [line.split()[:2] for line in told.splitlines()] == [
        ["j1", "running"],
        ["j2", "running"],
    ]
    assert "sleep 1000 # first …" in told
    (desk.project / "end").touch()
    await happens(lambda: not desk.jobs.find("j2").is_running)
    told = await desk.ask(action="list")
    assert "j2  exit status 0 · " in told
    assert "· new output" in told
    assert "j2" not in await desk.ask(action="list")
    assert (await desk.ask(action="read", id="j2")).startswith("out\n[exit status 0")
    await desk.ask(action="stop", id="j1")
    assert await desk.ask(action="list") == "There are no jobs."


async def test_unknown_job_is_told_with_those_that_there_are(desk):
    with pytest.raises(
        ToolError, match=r"There is no job 'j9'. Jobs: none, as each ends with the agent process."
    ):
        await desk.ask(action="read", id="j9")
    await desk.say("sleep 1000", background=True)
    with pytest.raises(ToolError, match=r"Jobs: j1."):
        await desk.ask(action="stop")
    await desk.ask(action="stop", id="j1")


async def test_what_a_read_tells_is_bounded_and_all_of_it_is_in_the_file(desk):
    await desk.say(f"seq 100000; {ENDS_ON_FILE}; seq 100000", background=True)
    (desk.project / "end").touch()
    await happens(lambda: not desk.jobs.find("j1").is_running)
    told = await desk.ask(action="read", id="j1")
    assert "bytes are left out here]" in told
    path = told.rstrip().rpartition(": ")[2]
    assert (await desk.say(f"wc -l {path}")).startswith("200000 ")


@prove
async def test_more_than_so_many_jobs_are_refused(desk, monkeypatch):
    monkeypatch.setattr(engine, "MAX_RUNNING", 2)
    # On a busy machine a command takes longer than usual to end by the first signal.
    (first, _), *others = engine.STOP_STEPS
    monkeypatch.setattr(engine, "STOP_STEPS", ((first, DEADLINE_S), *others))
    for _ in range(2):
        await desk.say("sleep 1000", background=True, timeout_s=0.1)
    with pytest.raises(ToolError, match="jobs are running: stop one first"):
        await desk.run("touch ran", background=True)
    told = await said_in_time(
        desk,
        "echo begun; sleep 1000",
        lambda: desk.screen.endswith("begun\n"),
        timeout_s=PATIENCE_S,
    )
    assert told.startswith("begun\n[ended by SIGINT · ")
    assert "Stopped after 20 s" in told
    await desk.ask(action="stop", id="j1")
    assert "runs in the background" in await desk.say("sleep 1000", background=True)
    assert not (desk.project / "ran").exists()


async def test_ended_jobs_are_forgotten_in_the_end_and_let_go_of_their_files(desk, monkeypatch):
    monkeypatch.setattr(engine, "MAX_ENDED", 2)
    before = open_files()
    for _ in range(4):
        await desk.say("true", background=True)
    assert [job.id for job in desk.jobs.all()] == ["j3", "j4"]
    assert open_files() <= before + 2 + (8 if desk.is_confined() else 0)


async def test_old_files_give_way_to_new_ones(desk, monkeypatch):
    monkeypatch.setattr(engine, "MAX_LOGS_BYTES", 100_000)
    await desk.say("seq 10000")
    old = [log.path for log in desk.jobs._logs]
    assert old[0].exists()
    await desk.say("seq 15000")
    assert not old[0].exists()
    assert desk.jobs._logs[0].path.exists()


@pytest.mark.parametrize("kind", ["sandbox", "off"])
async def test_jobs_end_with_the_session(tmp_path, kind, marker):
    async with Desk(tmp_path, is_confined=kind == "sandbox").served() as desk:
        await desk.say(f"{marker} & {marker}", background=True)
        await happens(lambda: len(running(marker)) >= 2)
        job = desk.jobs.find("j1")
    assert not job.is_running
    assert job.outcome == "ended with the session"
    await happens(lambda: not running(marker))


async def test_screen_can_list_and_follow_jobs(desk):
    await desk.say(f"printf '\\033[1mbold\\033[0m\\n'; {ENDS_ON_FILE}; echo end", background=True)
    (job,) = desk.jobs.all()
    assert (job.id, job.outcome) == ("j1", "")
    assert job.log.path.exists()
    await job.wait_for_bytes(0)
    assert job.log.read(0, 1000) == b"\x1b[1mbold\x1b[0m\n"
    changes = desk.changes
    (desk.project / "end").touch()
    await job.wait_for_bytes(13)
    assert job.log.read(13, 1000) == b"end\n"
    await happens(lambda: not job.is_running)
    assert job.outcome == "exit status 0"
    assert desk.changes == changes + 1


async def test_file_that_a_command_replaces_is_not_what_the_screen_shows(desk):
    secret = desk.base / "secret"
    secret.write_text("secret")
    await desk.say("echo out; sleep 1000", background=True)
    log = desk.jobs.find("j1").log
    await desk.jobs.find("j1").wait_for_bytes(0)
    log.path.unlink()
    log.path.symlink_to(secret)
    assert log.read(0, 100) == b"out\n"
    await desk.ask(action="stop", id="j1")


async def test_job_that_is_started_in_a_cancelled_turn_is_stopped(desk, marker):
    with anyio.CancelScope() as turn:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: desk.run(marker, background=True))
            await happens(lambda: running(marker))
            turn.cancel()
    assert not running(marker)


async def test_refusal_to_a_job_is_told_when_it_is_read(tmp_path):
    async with Desk(tmp_path).served() as desk:
        await desk.say(f"{ENDS_ON_FILE}; touch /etc/planted", background=True)
        (desk.project / "end").touch()
        await happens(lambda: not desk.jobs.find("j1").is_running)
        told = await desk.ask(action="read", id="j1")
        assert "[The sandbox refused: write /etc/planted" in told
        assert "refused" not in await desk.ask(action="read", id="j1")


async def test_running_command_is_found_by_its_call_and_stopped(desk):
    found: list[engine.Job] = []

    async def watch() -> None:
        await happens((desk.project / "ready").exists)
        job = desk.jobs.find_shown("t5")
        found.append(job)
        await job.wait_for_bytes(0)
        assert job.log.read(0, 100) == b"begun\n"
        await job.stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        told = await desk.say("echo begun; touch ready; sleep 1000", tool_use_id="t5")
    assert told.startswith(("begun\n[exit status 130", "begun\n[ended by SIG"))
    with pytest.raises(ToolError, match="There is no job 't5'"):
        desk.jobs.find_shown("t5")
    assert not found[0].is_running
