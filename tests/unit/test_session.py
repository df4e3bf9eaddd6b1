"""The session's log: what is written, and that what is left of it after any crash can be read and continued."""

import json
import os
import re
import resource
import shutil
import stat
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import UNSET
from tests.api_rules.anthropic import refusals
from tests.conftest import DEADLINE_S, happens, prove, prove_rest
from tests.fuzz import part

from sanderling.conversation.prompt import prompt_message
from sanderling.errors import SessionError
from sanderling.protocol.events import FilesRestored, RestoredFile
from sanderling.protocol.messages import (
    CommandEnding,
    CommandRecord,
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    RedactedThinkingBlock,
    Selection,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.codec import Codec
from sanderling.session.history import NOT_RUN, UNKNOWN_OUTCOME, with_results
from sanderling.session.log import SessionInUseError
from sanderling.session.records import (
    LoggedChild,
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedRestored,
    LoggedRewind,
    LoggedSummary,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUsage,
)
from sanderling.session.session import KeptAgent, KeptPosition, Session, keep_agent, kept_agent

pytestmark = pytest.mark.guard

GOLDEN_DIR = Path(__file__).parent.parent / "golden"
GOLDEN = GOLDEN_DIR / "session_log_v7.jsonl"
GOLDEN_BEFORE = GOLDEN_DIR / "session_log_v6.jsonl"
AT = "2026-11-21T22:00:00Z"
THOUGHTS = (ThinkingBlock, RedactedThinkingBlock)


def say_hello(session: Session) -> None:
    """A turn, the smallest there is."""
    session.append_prompt(Message("user", (TextBlock("Hello."),)), Prompt("p1", "Hello."))
    session.append(LoggedPartial("text", "Hi"))
    session.append_message(Message("assistant", (TextBlock("Hi."),)))
    session.append(LoggedUsage("m", Usage(10, 2)))
    session.append(LoggedTurnEnd("end_turn"))


def say_everything(session: Session) -> None:
    """One of each record that there is, and of each block: what the golden file holds."""
    selection = Selection("src/a.py", 3, 4, "x = 1\ny = 2", "python")
    session.append_prompt(
        Message(
            "user",
            (TextBlock(f"src/a.py:3-4:\n```python\n{selection.text}\n```"), TextBlock("Why? 🦀")),
        ),
        Prompt("p1", "Why? 🦀", (selection,)),
    )
    session.append(LoggedPartial("thinking", "Let me "))
    session.append(LoggedPartial("thinking", "see."))
    session.append(LoggedPartial("text", "I will look."))
    session.append_message(
        Message(
            "assistant",
            (
                ThinkingBlock("Let me see.", "c2lnbmVk"),
                RedactedThinkingBlock("ZW5jcnlwdGVk"),
                TextBlock("I will look."),
                ToolUse("t1", "bash", {"command": "ls", "deep": [1, 2.5, None, True]}),
                ToolUse("t2", "read", {"path": "a.png"}),
            ),
        )
    )
    session.append(LoggedToolStart("t1"))
    session.append(LoggedChild("c1", "t1", "explore 1", "Find it."))
    session.append(LoggedUsage("claude-sonnet-5-5", Usage(7, 1), child="c1"))
    session.append(LoggedChild("c1", "t1", "explore 1", "Find it.", "done"))
    session.append(
        LoggedToolEnd(
            "t1",
            "ls",
            "failed",
            "no such tool",
            "sh",
            is_error=True,
            result=ToolResult("t1", "no such tool", is_error=True),
            output_chars=7,
            changed=("src/a.py",),
        )
    )
    session.append(LoggedToolEnd("t2", "a.png", "an image"))
    session.append_message(
        Message(
            "user",
            (
                ToolResult("t1", "no such tool", is_error=True),
                ToolResult("t2", (ImageBlock(ImageSource("image/png", "aGk=")),)),
                TextBlock("Be brief."),
            ),
        ),
        (Prompt("p1b", "Be brief."),),
    )
    session.keep_state("todo", [{"content": "Look", "status": "pending"}])
    session.append(LoggedPartial("text", "I can"))
    session.append(LoggedPartial("text", "not."))
    session.append_message(Message("assistant", (TextBlock("I cannot."),)))
    session.append(LoggedUsage("claude-sonnet-5-5", Usage(100, 20, 30, 40)))
    session.append(LoggedTurnEnd("end_turn"))
    session.append_prompt(Message("user", (TextBlock("Try again."),)), Prompt("p2", "Try again."))
    session.append(LoggedUsage("claude-sonnet-5-5", Usage(5, 0)))
    session.append(LoggedRestart())
    session.append(LoggedTurnEnd("error", "The API is overloaded just now (529)."))
    session.append_prompt(Message("user", (TextBlock("And now?"),)), Prompt("p3", "And now?"))
    session.append(LoggedPartial("text", "Good mor"))
    session.append_message(Message("assistant", (TextBlock("Good mor"),)))
    session.append(LoggedTurnEnd("cancelled"))
    session.append(LoggedClearing({"t1": "[cleared]"}, 90_000, 60_000))
    session.append(
        LoggedSummary((Message("user", (TextBlock("All of it."),)),), "All of it.", 60_000, 900)
    )
    session.undo_compaction()
    session.switch_model("claude-opus-5-5")
    session.append(
        LoggedCommand(CommandRecord("pytest -q", "F\n", CommandEnding("exited", 1, 2.3)))
    )


def take_back(session: Session) -> None:
    """The records of what was undone and rewound."""
    files = (
        RestoredFile("src/a.py", added=1, removed=2),
        RestoredFile("b", "merged"),
        RestoredFile("c", "left", "it was removed since"),
    )
    session.append(LoggedRestored(FilesRestored("undo", ("p2",), files)))
    session.append(LoggedRewind("p3", "And now?", 120))


def logged(path: Path) -> list[dict[str, Any]]:
    """The log's records, with what differs from run to run replaced."""
    text = re.sub(r'"at":"[^"]+Z"', f'"at":"{AT}"', path.read_text())
    text = re.sub(r'"sanderling":"[^"]+"', '"sanderling":"0.1.0"', text)
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The log of `say_everything`."""
    session = Session.open(tmp_path, "s1", "/project")
    say_everything(session)
    session.close()
    return session.path


def reopen(path: Path) -> Session:
    session = Session.open(path.parent, path.stem, "/elsewhere")
    session.close()
    return session


# --- the format --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "golden, total, children",
    [
        (GOLDEN, Usage(112, 21, 30, 40), ["explore 1"]),
        (GOLDEN_BEFORE, Usage(105, 20, 30, 40), []),
    ],
)
def test_log_of_this_version_and_the_one_before_keeps_loading(tmp_path, golden, total, children):
    (tmp_path / "s1.jsonl").write_bytes(golden.read_bytes())
    session = reopen(tmp_path / "s1.jsonl")
    said = Session("s1", "/project", tmp_path / "nowhere" / "s1.jsonl")
    say_everything(said)
    take_back(said)
    said.close()
    assert session.history == said.history
    assert session.history[-1].content[-1] == TextBlock("Try again.")
    assert [prompt.id for prompt in session.prompts] == ["p1", "p1b", "p2"]
    assert session.prompt_history.turn_ids == ["p1", "p2", "p3"]
    assert len(session.taken_back) == len(said.taken_back) == 2
    assert session.ledger.total == total
    assert [child.name for child in session.children.values()] == children
    assert session.project == "/project"
    assert (tmp_path / "s1.jsonl").read_bytes() == golden.read_bytes(), "reading wrote to it"


async def test_a_sync_that_outlives_its_log_touches_no_other_file(tmp_path, monkeypatch):
    session = Session.open(tmp_path, "s1", "/project")
    say_everything(session)
    has_begun, may_sync, synced = threading.Event(), threading.Event(), list[str]()

    def fsync(fd: int) -> None:
        has_begun.set()
        may_sync.wait(DEADLINE_S)
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    monkeypatch.setattr("os.fsync", fsync)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.log.synced)
        await happens(has_begun.is_set)
        session.close()
        with (tmp_path / "another").open("w"):  # gets the number of the log's descriptor
            may_sync.set()
            await happens(lambda: synced)
    assert synced == [str(session.path)]


def test_state_that_was_kept_last_is_there_after_reopening(log):
    assert reopen(log).state("todo") == [{"content": "Look", "status": "pending"}]
    assert reopen(log).state("shell") is None


@pytest.mark.parametrize("has_started, words", [(True, UNKNOWN_OUTCOME), (False, NOT_RUN)])
def test_tool_use_without_a_result_is_told_as_not_run_unless_it_had_started(
    tmp_path, has_started, words
):
    session = Session("s1", "/project", tmp_path / "s1.jsonl")
    session.append_prompt(Message("user", (TextBlock("Hello."),)), Prompt("p1", "Hello."))
    session.append_message(Message("assistant", (ToolUse("t1", "bash", {"command": "ls"}),)))
    if has_started:
        session.append(LoggedToolStart("t1"))
    session.close()
    assert reopen(session.path).history[-1].content == (ToolResult("t1", words, is_error=True),)


def test_command_that_no_prompt_has_told_of_is_there_after_reopening(log):
    assert [record.command for record in reopen(log).commands] == ["pytest -q"]


def test_command_that_a_prompt_has_told_of_is_not_told_again(log):
    session = Session.open(log.parent, log.stem, "/project")
    say_hello(session)
    session.close()
    assert reopen(log).commands == []


def test_writer_still_writes_the_records_of_the_golden_file(log):
    session = Session.open(log.parent, log.stem, "/project")
    take_back(session)
    session.close()
    assert logged(log) == [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def test_every_record_has_its_time_in_utc(log):
    for line in log.read_text().splitlines():
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", json.loads(line)["at"])


def waiting(*prompts: Prompt) -> dict[str, Any]:
    return {"steering": [], "queued": [msgspec.to_builtins(prompt) for prompt in prompts]}


def test_words_of_a_prompt_stand_in_the_log_once_however_long_they_wait(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    long = "x = 1  # the lines of a file\n" * 1000
    prompt = Prompt("p1", "Why is this " + "so " * 1000 + "long?", (Selection("a", 1, 9, long),))
    other = Prompt("p2", "Wait.")
    session.keep_state("waiting", waiting(prompt))
    session.keep_state("waiting", waiting(prompt, other))
    blocks = TextBlock("[A note]"), TextBlock(f"a:\n```\n{long}\n```"), TextBlock(prompt.text)
    session.append_prompt(Message("user", blocks), prompt)
    session.keep_state("waiting", waiting(other))
    session.close()
    assert session.path.stat().st_size < 1.1 * (len(long) + len(prompt.text))
    again = reopen(session.path)
    assert again.history == [Message("user", blocks)]
    assert again.prompts == [prompt]
    assert again.state("waiting") == waiting(other)


def test_an_image_of_a_prompt_stands_in_the_log_once(tmp_path):
    data = "iVBORw0KGgo" * 100
    shot = Selection("a.png", 1, 1, data, origin="an image", media_type="image/png")
    prompt = Prompt("p1", "Look.", (shot,))
    session = Session.open(tmp_path, "s1", "/project")
    session.append_prompt(prompt_message(prompt), prompt)
    session.close()
    assert session.path.read_text().count(data) == 1
    again = reopen(session.path)
    assert again.history == [prompt_message(prompt)]
    assert again.history[0].content[1] == ImageBlock(ImageSource("image/png", data))


def test_prompt_that_is_changed_while_it_waits_is_read_back_as_it_was_sent(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    before, after = Prompt("p1", "Wait."), Prompt("p1", "Wait no more.", sent="As told.")
    session.keep_state("waiting", waiting(before))
    session.keep_state("waiting", waiting(after))
    session.append_message(Message("user", (TextBlock("As told."),)), (after,))
    session.close()
    again = reopen(session.path)
    assert (again.history, again.prompts) == (session.history, [after])


# --- writing -----------------------------------------------------------------------------------------------------------


def test_session_that_nobody_spoke_in_leaves_no_file(tmp_path):
    Session.open(tmp_path / "sessions", "s1", "/project").close()
    assert not (tmp_path / "sessions").exists()


def test_only_the_owner_may_read_a_log(tmp_path):
    umask = os.umask(0)
    try:
        session = Session.open(tmp_path / "sessions", "s1", "/project")
        say_hello(session)
        session.close()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(session.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(session.path.parent.stat().st_mode) == 0o700


def test_record_is_in_the_file_as_soon_as_it_is_written(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    session.append_prompt(Message("user", (TextBlock("Hello."),)), Prompt("p1", "Hello."))
    assert [record["type"] for record in logged(session.path)] == ["session", "prompt", "message"]
    session.append(LoggedPartial("text", "Hi"))
    assert [record["type"] for record in logged(session.path)] == [
        "session",
        "prompt",
        "message",
        "partial",
    ]
    anyio.run(session.log.synced)
    assert session.log.write_error == ""
    session.close()


def test_resumed_session_goes_on_in_the_same_file(log):
    before = log.read_bytes()
    session = Session.open(log.parent, "s1", "/elsewhere")
    say_hello(session)
    session.close()
    assert log.read_bytes().startswith(before)
    again = reopen(log)
    assert (again.history, again.ledger.total) == (session.history, session.ledger.total)
    assert [message.role for message in again.history][-2:] == ["user", "assistant"]


def test_a_line_that_is_nested_too_deeply_is_damaged(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    say_hello(session)
    session.close()
    with session.path.open("ab") as file:
        file.write(b'{"type":"message","message":' + b'{"a":' * 100_000 + b"\n")
    again = reopen(session.path)
    assert again.history == session.history
    assert again.log.damaged_lines == 1


async def test_log_is_synced_though_no_descriptor_is_left(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    say_hello(session)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        await session.log.synced()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert session.log.write_error == ""
    session.close()


def test_disk_that_is_full_for_a_while_loses_nothing(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (333, hard))  # in the middle of a record
    try:
        say_hello(session)
        assert session.log.write_error == f"File too large: {session.path}"
        anyio.run(session.log.synced)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert session.path.stat().st_size == 333
    say_hello(session)
    session.close()
    assert session.log.write_error == ""
    again = reopen(session.path)
    assert (again.history, again.ledger.total) == (session.history, session.ledger.total)
    assert len(again.history) == 4


def test_device_without_room_is_named(tmp_path):
    session = Session("s1", "/project", Path("/dev/full"))
    say_hello(session)
    session.close()
    assert session.log.write_error == "No space left on device: /dev/full"
    assert len(session.history) == 2
    assert tmp_path.exists()


# --- a log that others take away ---------------------------------------------------------------------------------------


def _remove_all(log: Path) -> None:
    shutil.rmtree(log.parent.parent)


def _move_all(log: Path) -> None:
    log.parent.parent.rename(log.parent.parent.with_name("moved"))


def _move_all_and_make_anew(log: Path) -> None:
    _move_all(log)
    log.parent.mkdir(parents=True)


def _replace(log: Path) -> None:
    log.with_suffix(".other").write_bytes(log.read_bytes()[:50] + b"\n")
    log.with_suffix(".other").replace(log)


TAKEN_AWAY = [Path.unlink, _remove_all, _move_all, _move_all_and_make_anew, _replace]


@pytest.mark.parametrize("take_away", prove_rest(TAKEN_AWAY, is_one=True))
def test_log_that_is_taken_away_is_written_anew_with_the_next_record(tmp_path, take_away):
    session = Session.open(tmp_path / "state" / "sessions", "s1", "/src")
    say_everything(session)
    before = session.path.read_bytes()
    take_away(session.path)
    say_hello(session)
    assert session.log.write_error == ""
    assert session.path.read_bytes().startswith(before)
    assert stat.S_IMODE(session.path.stat().st_mode) == 0o600
    with pytest.raises(SessionInUseError):
        Session.open(session.path.parent, "s1", "/src")
    session.close()
    assert reopen(session.path).history == session.history


@pytest.mark.parametrize("size", [0, 70, 900])
@pytest.mark.parametrize("record", ["prompt", "reply", "usage", "state", "end", "compaction"])
def test_log_that_is_cut_while_it_is_open_is_written_anew_from_memory(tmp_path, size, record):
    session = Session.open(tmp_path, "s1", "/src")
    say_hello(session)
    session.append_prompt(Message("user", (TextBlock("Look."),)), Prompt("p2", "Look."))
    session.append_message(Message("assistant", (ToolUse("t1", "ls", {}),)))
    session.append(LoggedToolStart("t1"))
    session.append_message(Message("user", (ToolResult("t1", "a.py"),)))
    session.keep_state("mode", "plan")
    os.truncate(session.path, size)
    match record:
        case "prompt":
            session.append_prompt(Message("user", (TextBlock("And?"),)), Prompt("p3", "And?"))
        case "reply":
            session.append_message(Message("assistant", (TextBlock("Here."),)))
        case "usage":
            session.append(LoggedUsage("m", Usage(7, 1)))
        case "state":
            session.keep_state("title", "Called so")
        case "end":
            session.append(LoggedTurnEnd("end_turn"))
        case _:
            session.append(LoggedClearing({"t1": "cleared"}, 10, 5))
    session.append(LoggedTurnEnd("end_turn"))
    assert session.log.write_error == ""
    session.close()
    again = reopen(session.path)
    assert (again.history, again.prompts) == (session.history, session.prompts)
    assert (again.ledger.total, again.model) == (session.ledger.total, session.model)
    assert (again.title, again.state("mode")) == (session.title, "plan")
    assert again.log.damaged_lines == 0


def test_log_whose_place_is_taken_is_told_as_one_that_cannot_be_written(tmp_path):
    session = Session.open(tmp_path / "sessions", "s1", "/src")
    say_hello(session)
    shutil.rmtree(tmp_path / "sessions")
    (tmp_path / "sessions").touch()
    say_hello(session)
    assert str(session.path) in session.log.write_error
    (tmp_path / "sessions").unlink()
    session.log.write_again()
    assert session.log.write_error == ""
    session.close()
    assert reopen(session.path).history == session.history


# --- reading what a crash left -----------------------------------------------------------------------------------------


OUTSIDE_OF_TURNS = {"session", "turn_ended", "command", "cleared", "summarized"} | {
    "compaction_undone",
    "state",
    "prompt",
}


def missing(message: Message, records: list[dict[str, Any]]) -> list[Message]:
    """The results of tool uses that a killed host has left without."""
    started = {r["tool_use_id"] for r in records if r["type"] == "tool_started"}
    ended = {r["tool_use_id"]: r["result"] for r in records if r.get("result")}
    results = tuple(
        msgspec.convert(ended[block.id], ToolResult)
        if block.id in ended
        else ToolResult(block.id, UNKNOWN_OUTCOME if block.id in started else NOT_RUN, True)
        for block in message.content
        if isinstance(block, ToolUse)
    )
    return [Message("user", results)] if results else []


def expected(data: bytes) -> list[Message]:
    """What a log cut to `data` still says: its whole messages, and the text of the answer that was streaming."""
    records = [json.loads(line) for line in data.split(b"\n")[:-1]]
    read = map(Codec().decoded, data.split(b"\n")[:-1])
    messages = [record.message for record in read if isinstance(record, LoggedMessage)]
    last = max((n for n, r in enumerate(records) if r["type"] != "partial"), default=0)
    text = "".join(
        r["text"] for r in records[last:] if r["type"] == "partial" and r["block"] == "text"
    )
    if messages and messages[-1].role == "assistant" and not text:
        messages += missing(messages[-1], records)
    types = [record["type"] for record in records]
    if types.count("state") == 2:  # the second is the other model
        messages = [
            Message(m.role, tuple(b for b in m.content if type(b) not in THOUGHTS))
            for m in messages
        ]
    if "cleared" in types and types[-1] != "summarized":
        messages = with_results(messages, {"t1": "[cleared]"})
    if types and types[-1] == "summarized":
        messages = [Message("user", (TextBlock("All of it."),))]
    return [*messages, Message("assistant", (TextBlock(text),))] if text else messages


CUT_STEP = 7
at_any_byte = pytest.mark.parametrize("first_cut", prove_rest(range(part(CUT_STEP)), keep=(0,)))


def cuts(log: Path, first: int) -> list[tuple[Path, bytes]]:
    """A copy of the log for each seventh byte it may be cut at."""
    data = log.read_bytes()
    copies = log.parent / "cut"
    copies.mkdir()
    return [
        (copies / f"s{size}.jsonl", data[:size]) for size in range(first, len(data) + 1, CUT_STEP)
    ]


@prove
@at_any_byte
def test_log_cut_at_any_byte_gives_what_it_says_and_reading_it_again_changes_nothing(
    log, first_cut
):
    for path, data in cuts(log, first_cut):
        path.write_bytes(data)
        session = reopen(path)
        assert session.history == expected(data), len(data)
        mended = path.read_bytes()
        assert mended.startswith(data[: data.rfind(b"\n") + 1])
        again = reopen(path)
        assert (again.history, again.ledger.total) == (session.history, session.ledger.total), len(
            data
        )
        assert path.read_bytes() == mended, len(data)


@prove
@at_any_byte
def test_log_cut_at_any_byte_ends_in_a_turn_that_has_ended(log, first_cut):
    for path, data in cuts(log, first_cut):
        path.write_bytes(data)
        reopen(path)
        records = logged(path)
        turns = [r["type"] for r in records if r["type"] not in OUTSIDE_OF_TURNS - {"turn_ended"}]
        assert not turns or turns[-1] == "turn_ended", len(data)
        whole = [json.loads(line) for line in data.split(b"\n")[:-1]]
        if whole and whole[-1]["type"] not in OUTSIDE_OF_TURNS:
            assert records[-1] == {"type": "turn_ended", "stop_reason": "interrupted", "at": AT}


@prove
@at_any_byte
def test_log_cut_at_any_byte_can_be_continued(log, first_cut):
    unreadable: dict[int, str] = {}
    for path, data in cuts(log, first_cut):
        path.write_bytes(data)
        session = Session.open(path.parent, path.stem, "/project")
        say_hello(session)
        session.close()
        try:
            assert reopen(path).history == session.history, len(data)
        except SessionError as error:
            unreadable[len(data)] = str(error)
    assert unreadable == {}


@at_any_byte
def test_log_cut_at_any_byte_gives_a_history_that_the_api_accepts(log, first_cut):
    refused: dict[int, list[str]] = {}
    for path, data in cuts(log, first_cut):
        path.write_bytes(data)
        history = [*reopen(path).history, Message("user", (TextBlock("Go on."),))]
        if broken := refusals(msgspec.to_builtins(history)):
            refused[len(data)] = broken
    sample = next(iter(refused.items()), None)
    assert not refused, f"{len(refused)} of {log.stat().st_size} cuts, the first: {sample}"


@pytest.mark.parametrize(
    "tail",
    [
        b'{"type":"message","mess',
        b"\0" * 512,
        b"\xff\xfe",
        b'{"type":"partial","block":"text","text":"\xf0\x9f',
    ],
    ids=["half a record", "zeros", "no UTF-8", "half a character"],
)
def test_torn_last_record_is_dropped(log, tail):
    before = log.read_bytes()
    log.write_bytes(before + tail)
    reopen(log)
    assert log.read_bytes() == before


# --- logs that are not ours to read ------------------------------------------------------------------------------------


def line_of(log: Path, lnum: int, new: bytes) -> bytes:
    lines = log.read_bytes().split(b"\n")
    lines[lnum - 1] = new
    return b"\n".join(lines)


HEADER = b'{"type":"session","version":%b,"session_id":"s1","project":"/p","sanderling":"9","at":"2026-11-21T22:00:00Z"}'


@pytest.mark.parametrize(
    "lnum, line, words",
    [
        (1, HEADER % b"5", "another version of Sanderling; update"),
        (1, HEADER % b"8", "another version of Sanderling; update"),
        (1, HEADER % b'"two"', "another version of Sanderling; update"),
        (1, b'{"type":"from_the_future","version":8}', "another version of Sanderling; update"),
        (
            1,
            b'{"type":"partial","block":"text","text":"x","at":"2026-11-21T22:00:00Z"}',
            "not the header",
        ),
        (1, b"# My notes", "line 1, is damaged"),
        (1, b"[]", "line 1, is damaged"),
        (1, b"", "line 1, is damaged"),
        (1, b'{"version":' + b"[" * 100_000, "line 1, is damaged"),
    ],
)
def test_damaged_log_is_refused_with_a_sentence_and_left_alone(log, lnum, line, words):
    data = line_of(log, lnum, line)
    log.write_bytes(data)
    with pytest.raises(SessionError, match=re.escape(words)) as caught:
        reopen(log)
    assert str(log) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert log.read_bytes() == data


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"message"',
        b'{"type":"message"}',
        b'{"type":"from_the_future"}',
        b"",
        b"\0\0\0",
        b'{"type":"partial","block":"text","text":"\xff","at":"2026-11-21T22:00:00Z"}',
    ],
)
@pytest.mark.parametrize("lnum", prove_rest(range(2, 37), keep=(0, 7, 10, -1)))
def test_damaged_line_is_left_out_and_the_rest_is_a_history_that_the_api_accepts(log, lnum, line):
    log.write_bytes(line_of(log, lnum, line))
    session = reopen(log)
    is_needed_by_a_message = b'{"type":"prompt"' in GOLDEN.read_bytes().splitlines()[lnum - 1]
    assert session.log.damaged_lines == 1 + is_needed_by_a_message
    history = [*session.history, Message("user", (TextBlock("Go on."),))]
    assert refusals(msgspec.to_builtins(history)) == []


def test_log_of_another_version_is_left_alone_even_when_its_end_is_torn(log):
    data = line_of(log, 1, HEADER % b"8") + b'{"type":"mess'
    log.write_bytes(data)
    with pytest.raises(SessionError, match="another version"):
        reopen(log)
    assert log.read_bytes() == data


def test_log_that_cannot_be_read_is_refused_with_the_reason(tmp_path):
    (tmp_path / "s1.jsonl").mkdir()
    with pytest.raises(SessionError, match=r"cannot read .*s1\.jsonl: Is a directory"):
        Session.open(tmp_path, "s1", "/project")


@pytest.mark.parametrize(
    "session_id", ["", ".", "..", "../s1", "a/b", "-rf", "s\0", "s\n", "x" * 65, "é", ".hidden"]
)
def test_session_id_that_is_no_file_name_is_refused(tmp_path, session_id):
    with pytest.raises(SessionError, match="is not a session id"):
        Session.open(tmp_path, session_id, "/project")
    assert list(tmp_path.iterdir()) == []


def test_half_of_a_surrogate_pair_is_written_as_the_replacement_character(tmp_path):
    session = Session("s1", "/project", tmp_path / "s1.jsonl")
    session.append_prompt(Message("user", (TextBlock("Hello \ud83d"),)), Prompt("p1", "Hello."))
    session.close()
    assert reopen(session.path).history == [Message("user", (TextBlock("Hello \ufffd"),))]


@pytest.mark.parametrize(
    "name", ["", "\0", "a b! \0" * 100, "x" * 600, "web fetch", "工具", "line\nline"]
)
def test_log_with_names_and_ids_that_no_api_takes_is_read_as_one_that_it_does(tmp_path, name):
    ids = [name, f"{name}!", f"{name}?"]
    say_hello(session := Session.open(tmp_path, "s1", "/src"))
    session.append_prompt(Message("user", (TextBlock("Do."),)), Prompt("p2", "Do."))
    session.append_message(Message("assistant", tuple(ToolUse(each, name, {}) for each in ids)))
    for each in ids[:2]:
        session.append(LoggedToolStart(each))
    session.append(LoggedToolEnd(ids[0], "", result=ToolResult(ids[0], "first")))
    session.close()

    again = Session.open(tmp_path, "s1", "/src")
    results = [block for block in again.history[-1].content if isinstance(block, ToolResult)]
    assert [result.content for result in results] == ["first", UNKNOWN_OUTCOME, NOT_RUN]
    assert refusals(msgspec.to_builtins(again.history)) == []
    again.append(LoggedClearing({results[0].tool_use_id: "cleared"}, 10, 5))
    again.append(LoggedSummary(tuple(again.history), "All.", 5, 4))
    again.close()
    once_more = Session.open(tmp_path, "s1", "/src")
    assert once_more.history == again.history
    assert next(iter(once_more.history[-1].content)).content == "cleared"
    once_more.close()


def test_summary_with_names_that_no_api_takes_is_read_as_one_that_it_does(tmp_path):
    say_hello(session := Session.open(tmp_path, "s1", "/src"))
    use = ToolUse("a b", "", {})
    history = (
        Message("user", (TextBlock("Summary."),)),
        Message("assistant", (use,)),
        Message("user", (ToolResult("a b", "nothing"),)),
    )
    session.append(LoggedSummary(history, "Summary.", 10, 5))
    session.close()
    again = Session.open(tmp_path, "s1", "/src")
    assert refusals(msgspec.to_builtins(again.history)) == []
    again.close()


def test_session_that_was_closed_can_be_opened_at_once_whoever_still_has_its_file(tmp_path):
    session = Session("s1", "/project", tmp_path / "s1.jsonl")
    say_hello(session)
    descriptors = Path("/proc/self/fd").iterdir()
    [fd] = [int(each.name) for each in descriptors if each.exists() and each.samefile(session.path)]
    held = os.dup(fd)  # as by a thread that waits for the disk, or by a child
    session.close()
    assert len(reopen(session.path).history) == 2
    os.close(held)


def test_result_that_was_logged_ahead_of_its_message_is_in_memory_once(tmp_path):
    session = Session("s1", "/project", tmp_path / "s1.jsonl")
    session.append_prompt(Message("user", (TextBlock("Hello."),)), Prompt("p1", "Hello."))
    rounds, size = 20, 100_000
    for n in range(rounds):
        use, result = ToolUse(f"t{n}", "read", {}), ToolResult(f"t{n}", "x" * size)
        session.append_message(Message("assistant", (use,)))
        session.append(LoggedToolStart(use.id))
        session.append(LoggedToolEnd(use.id, result=result))
        session.append_message(Message("user", (result,)))
    session.close()
    del session
    tracemalloc.start()
    try:
        again = reopen(tmp_path / "s1.jsonl")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(again.history) == 2 * rounds + 1
    assert held < 1.5 * rounds * size


# --- rewinding ---------------------------------------------------------------------------------------------------------


def say(session: Session, *words: str) -> None:
    for word in words:
        session.append_prompt(Message("user", (TextBlock(word),)), Prompt(word, word))
        session.append_message(Message("assistant", (TextBlock(f"{word}!"),)))
        session.append(LoggedTurnEnd("end_turn"))


def words_of(session: Session) -> list[str]:
    blocks = (block for message in session.history for block in message.content)
    return [block.text for block in blocks if isinstance(block, TextBlock)]


def test_what_is_said_after_rewinding_follows_what_was_said_before(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    say(session, "a", "b", "c")
    assert session.prompt_history.history_before("b") == session.history[:2]
    session.append(LoggedRewind("b", "b", 10))
    say(session, "d")
    session.close()
    for each in (session, reopen(session.path)):
        assert words_of(each) == ["a", "a!", "d", "d!"]
        assert [prompt.id for prompt in each.prompt_history.prompts] == ["a", "d"]
        assert each.prompt_history.turn_ids == ["a", "b", "c", "d"]
        assert each.taken_back == []
        assert each.prompt_history.history_before("b") is None


def test_rewinding_goes_back_behind_a_summary(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    say(session, "a", "b")
    session.append(LoggedSummary((Message("user", (TextBlock("All."),)),), "All.", 90, 9))
    say(session, "c")
    session.append(LoggedClearing({}, 90, 60))
    session.append(LoggedRewind("c", "c", 9))
    assert words_of(session) == ["All."]
    session.append(LoggedRewind("b", "b", 9))
    session.close()
    for each in (session, reopen(session.path)):
        assert words_of(each) == ["a", "a!"]
        assert not each.undo_compaction()


def test_results_that_a_prompt_came_with_stay(tmp_path):
    session = Session.open(tmp_path, "s1", "/project")
    session.append_prompt(Message("user", (TextBlock("a"),)), Prompt("a", "a"))
    session.append_message(Message("assistant", (ToolUse("t1", "bash", {"command": "ls"}),)))
    say(session, "b")
    session.append(LoggedRewind("b", "b", 10))
    session.close()
    assert session.history[-1].content == (ToolResult("t1", NOT_RUN, is_error=True),)


# --- the agent of a session ---------------------------------------------------------------------------------------------


@pytest.fixture
def session(tmp_path):
    session = Session.open(tmp_path, "s1", "/p")
    session.append_prompt(Message("user", (TextBlock("Hi"),)), Prompt("p1", "Hi"))
    yield session
    session.close()


def last_value(path: Path) -> str:
    """The value of the last record, as the bytes are."""
    return path.read_text().splitlines()[-1].partition('"value":')[2].partition(',"at"')[0]


@pytest.mark.parametrize(
    "kept, line",
    [
        (KeptAgent("claude", "g1", "s1"), '{"name":"claude","session":"g1","of":"s1"}'),
        (
            KeptAgent("ssh://there", "g1", "s1", "", UNSET, KeptPosition("")),
            '{"name":"ssh://there","session":"g1","of":"s1","turn":"","seen":{"life":""}}',
        ),
        (
            KeptAgent("ssh://there", "g1", "s1", "p1", True, KeptPosition("l1", 7)),
            '{"name":"ssh://there","session":"g1","of":"s1","turn":"p1","whole":true,"seen":{"life":"l1","seq":7}}',
        ),
        (
            KeptAgent("a", "g1", "s1", "p1", UNSET, KeptPosition("l1", 7, True, "p1")),
            '{"name":"a","session":"g1","of":"s1","turn":"p1","seen":{"life":"l1","seq":7,"is_continued":true,"running":"p1"}}',
        ),
    ],
)
def test_the_log_has_of_it_what_is_set(session, kept, line):
    keep_agent(session, kept)
    assert last_value(session.log.path) == line
    assert kept_agent(session) == kept


@pytest.mark.parametrize(
    "value, kept",
    [
        (None, KeptAgent()),
        ("claude", KeptAgent()),
        ({"name": 1}, KeptAgent()),
        ({"name": "claude", "session": "g1"}, KeptAgent("claude")),
        ({"name": "claude", "session": "g0", "of": "s0", "turn": "p0"}, KeptAgent("claude")),
        ({"of": "s1", "new": 1, "seen": {}}, KeptAgent(of="s1", seen=KeptPosition())),
    ],
)
def test_an_old_or_a_damaged_one_is_read_as_far_as_it_holds(session, value: Any, kept):
    session.keep_state("agent", json.loads(json.dumps(value)))
    assert kept_agent(session) == kept
