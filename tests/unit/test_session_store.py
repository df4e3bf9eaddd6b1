"""The sessions on the disk: what a picker is shown of them, and what can be done with one that is not open."""

import os
import resource
import stat
from pathlib import Path

import msgspec
import pytest
from tests.api_rules.anthropic import refusals

from sanderling.errors import SessionError
from sanderling.protocol.messages import (
    CommandEnding,
    CommandRecord,
    Message,
    Prompt,
    TextBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.codec import Codec
from sanderling.session.log import changes_dir
from sanderling.session.records import (
    LOG_VERSION,
    LoggedCommand,
    LoggedPartial,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUsage,
)
from sanderling.session.session import Session
from sanderling.session.store import (
    delete,
    fork,
    last_exchange,
    list_sessions,
    rename,
    write_export,
)
from sanderling.session.store.listing import CHUNK_BYTES, TITLE

GOLDEN = Path(__file__).parent.parent / "golden"


def user(text: str) -> Message:
    return Message("user", (TextBlock(text),))


def ask(session: Session, prompt_id: str, text: str, answer: str = "Well.") -> None:
    """A turn without tools."""
    session.append_prompt(user(text), Prompt(prompt_id, text))
    session.append(LoggedPartial("text", answer))
    session.append_message(Message("assistant", (TextBlock(answer),)))
    session.append(LoggedUsage("scripted", Usage(10, 2)))
    session.append(LoggedTurnEnd("end_turn"))


def use_tool(
    session: Session, tool_use_id: str, result: str, steered: tuple[Prompt, ...] = ()
) -> None:
    use = ToolUse(tool_use_id, "bash", {"command": "make"})
    session.append_message(Message("assistant", (TextBlock("I run it."), use)))
    session.append(LoggedToolStart(tool_use_id))
    session.append(LoggedToolEnd(tool_use_id, "make", "✓ 1 s"))
    told = ToolResult(tool_use_id, result), *(TextBlock(prompt.text) for prompt in steered)
    session.append_message(Message("user", told), steered)


@pytest.fixture
def make(tmp_path):
    """Makes a session with one turn for each text; closed, unless it is to stay open."""
    opened = []

    def make(session_id: str, *texts: str, project: str = "/p", is_open: bool = False) -> Session:
        session = Session.open(tmp_path, session_id, project)
        for number, text in enumerate(texts):
            ask(session, f"{session_id}-{number}", text)
        if is_open:
            opened.append(session)
        else:
            session.close()
        return session

    yield make
    for session in opened:
        session.close()


def changed_at(tmp_path: Path, session_id: str, seconds: int) -> None:
    os.utime(tmp_path / f"{session_id}.jsonl", (seconds, seconds))


def ids(infos) -> list[str]:
    return [info.id for info in infos]


def lines(tmp_path: Path, session_id: str) -> list[bytes]:
    return (tmp_path / f"{session_id}.jsonl").read_bytes().splitlines(keepends=True)


def texts(session: Session) -> list[str]:
    return [
        block.text
        for message in session.history
        for block in message.content
        if isinstance(block, TextBlock)
    ]


def is_valid(session: Session) -> bool:
    said = msgspec.json.decode(msgspec.json.encode(session.history))
    return not (said and refusals(said))


def test_sessions_of_a_project_come_newest_first_and_those_of_others_only_when_asked_for(
    tmp_path, make
):
    for number, (session_id, project) in enumerate((("a", "/p"), ("b", "/q"), ("c", "/p"))):
        make(session_id, f"# What is **{session_id}**?\nSay.", project=project)
        changed_at(tmp_path, session_id, 1_000 + number)
    assert ids(list_sessions(tmp_path, "/p", "")) == ["c", "a"]
    assert ids(list_sessions(tmp_path, "", "")) == ["c", "b", "a"]
    (info,) = list_sessions(tmp_path, "/q", "")
    assert (info.project, info.title, info.changed_at) == ("/q", "What is b?", 1_001)
    assert info.size_bytes == (tmp_path / "b.jsonl").stat().st_size
    assert not info.is_open
    assert not info.excerpt


def test_session_that_a_process_has_open_is_told_as_open(tmp_path, make):
    session = make("s", "First", is_open=True)
    assert [info.is_open for info in list_sessions(tmp_path, "/p", "")] == [True]
    session.close()
    assert [info.is_open for info in list_sessions(tmp_path, "/p", "")] == [False]


def test_the_title_is_the_last_that_was_given(tmp_path, make):
    session = make("s", "First", is_open=True)
    session.keep_state("title", "One")
    ask(session, "p", 'It says {"type":"state","key":"title","value":"no"}')
    session.keep_state("title", "Two")
    assert [info.title for info in list_sessions(tmp_path, "", "")] == ["Two"]
    session.keep_state("title", "")
    assert [info.title for info in list_sessions(tmp_path, "", "")] == ["First"]
    session.keep_state("title", "Three")
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b'{"type":"state","key":"title","value":"to')  # torn
    assert [info.title for info in list_sessions(tmp_path, "", "")] == ["Three"]


@pytest.mark.parametrize("cut", [-1, 0, 1, 15, len(TITLE) - 1, len(TITLE), 3 * CHUNK_BYTES])
def test_a_title_is_found_wherever_the_log_is_cut_into_pieces(tmp_path, make, cut):
    session = make("s", "First", is_open=True)
    session.keep_state("title", "Here")
    log = tmp_path / "s.jsonl"
    data = log.read_bytes()
    wanted_bytes = data.rfind(TITLE) + cut + CHUNK_BYTES  # a piece begins so far behind its begin
    log.write_bytes(data + b"x" * (wanted_bytes - len(data) - 1) + b"\n")
    assert [info.title for info in list_sessions(tmp_path, "", "")] == ["Here"]


def test_a_session_without_words_has_no_title(tmp_path, make):
    session = make("s", is_open=True)
    session.append(LoggedCommand(CommandRecord("ls", "", CommandEnding("exited"))))
    assert [info.title for info in list_sessions(tmp_path, "", "")] == [""]


def test_what_is_no_session_is_left_out(tmp_path, make):
    make("good", "Hi")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "torn.jsonl").write_bytes(b'{"type":"session","version":5,"sess')
    (tmp_path / "notes.jsonl").write_text("# My notes\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\x00" * 1_000)
    (tmp_path / "a b.jsonl").write_bytes(lines(tmp_path, "good")[0])
    (tmp_path / "directory.jsonl").mkdir()
    (tmp_path / "dangling.jsonl").symlink_to("nowhere")
    (tmp_path / "good").mkdir()
    (tmp_path / "good.txt").touch()
    assert ids(list_sessions(tmp_path, "", "")) == ["good"]
    assert ids(list_sessions(tmp_path, "", "hi")) == ["good"]
    assert list_sessions(tmp_path / "none", "", "") == []


def test_a_damaged_log_is_listed_with_what_is_known(tmp_path, make):
    make("s", "Why?")
    header, prompt, message, *_ = lines(tmp_path, "s")
    (tmp_path / "s.jsonl").write_bytes(
        header
        + b'{"type":"message","message":\n'
        + b"\x00\xff\n"
        + prompt
        + message
        + b'{"type":"mess'
    )
    (info,) = list_sessions(tmp_path, "/p", "")
    assert info.title == "Why?"


def test_the_golden_log_is_listed(tmp_path):
    data = (GOLDEN / "session_log_v6.jsonl").read_bytes()
    (tmp_path / "s1.jsonl").write_bytes(data)
    (info,) = list_sessions(tmp_path, "", "")
    assert info.title
    assert info.project


@pytest.fixture
def talks(tmp_path, make):
    session = make("s", "Where is the Parser, and\n  why does ÄRGER occur?", is_open=True)
    session.append_prompt(user("a note of ours, then the words"), Prompt("p", "Run it."))
    use_tool(session, "t", "secret in the output", (Prompt("q", "Not like this!"),))
    session.append_message(Message("assistant", (TextBlock("It says: “done”."),)))
    session.append(LoggedTurnEnd("end_turn"))
    make("other", "Nothing", "of it")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        *("parser", "PARSER,  and why", "ärger", "not like THIS!", "it says: “done”.", "I run it"),
        "occur?",
    ],
)
def test_what_the_person_and_the_model_said_is_found_in_any_case(talks, text):
    (info,) = list_sessions(talks, "", text)
    assert info.id == "s"
    assert info.excerpt


@pytest.mark.parametrize("text", ["secret in the output", "a note of ours", "par.er", "make"])
def test_what_tools_and_we_said_is_not_found(talks, text):
    assert list_sessions(talks, "", text) == []


def test_blank_text_is_no_search(talks):
    assert len(list_sessions(talks, "", " \n")) == 2


@pytest.mark.parametrize(
    "said, text, excerpt",
    [
        ("Say hello", "HELLO", "Say hello"),
        ("a\n  b\tc", "b c", "a b c"),
        (
            "x" * 200 + " needle " + "y" * 200,
            "needle",
            "…" + "x" * 55 + " needle " + "y" * 55 + "…",
        ),
        ("needle " + "y" * 200, "needle", "needle " + "y" * 111 + "…"),
        ("z" * 300, "z" * 300, "z" * 118 + "…"),
    ],
)
def test_an_excerpt_is_one_short_line_around_what_was_found(tmp_path, make, said, text, excerpt):
    make("s", said)
    (info,) = list_sessions(tmp_path, "", text)
    assert info.excerpt == excerpt
    assert len(info.excerpt) <= 120


def test_a_renamed_session_keeps_its_place_and_what_it_holds(tmp_path, make):
    make("s", "First")
    changed_at(tmp_path, "s", 1_000)
    rename(tmp_path, "s", "  A better\n name ")
    (info,) = list_sessions(tmp_path, "", "")
    assert (info.title, info.changed_at) == ("A better name", 1_000)
    session = Session.open(tmp_path, "s", "/p")
    assert session.title == "A better name"
    assert texts(session) == ["First", "Well."]
    session.close()
    rename(tmp_path, "s", " ")
    assert list_sessions(tmp_path, "", "")[0].title == "First"


def test_a_session_with_a_torn_end_can_be_renamed(tmp_path, make):
    make("s", "First")
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b'{"type":"message","mess')
    rename(tmp_path, "s", "Mended")
    assert list_sessions(tmp_path, "", "")[0].title == "Mended"
    assert all(map(Codec().decoded, lines(tmp_path, "s")))


def test_a_deleted_session_leaves_nothing_behind(tmp_path, make):
    make("s", "First")
    make("other", "Second")
    outputs = tmp_path / "s"
    outputs.mkdir()
    (outputs / "c1.log").write_text("long")
    changes = changes_dir(tmp_path / "s.jsonl")
    changes.mkdir(parents=True)
    (changes / "journal.jsonl").write_text("{}")
    delete(tmp_path, "s")
    assert [path.name for path in tmp_path.iterdir()] == ["other.jsonl"]
    assert not changes.exists()


def test_an_open_session_is_neither_renamed_nor_deleted(tmp_path, make):
    make("s", "First", is_open=True)
    with pytest.raises(SessionError, match="open"):
        rename(tmp_path, "s", "Mine")
    with pytest.raises(SessionError, match="open"):
        delete(tmp_path, "s")
    assert list_sessions(tmp_path, "", "")[0].title == "First"


@pytest.mark.parametrize(
    "act", [delete, lambda *args: rename(*args, "x"), lambda *a: fork(*a, "n")]
)
@pytest.mark.parametrize(
    "session_id, words", [("none", "there is no session none"), ("../s", "is not a session id")]
)
def test_a_session_that_there_is_not_is_named(tmp_path, act, session_id, words):
    with pytest.raises(SessionError, match=words):
        act(tmp_path, session_id)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_told_of(tmp_path, make):
    make("s", "First")
    outputs = tmp_path / "s"
    outputs.write_text("no directory")
    with pytest.raises(SessionError, match="cannot remove"):
        delete(tmp_path, "s")
    assert ids(list_sessions(tmp_path, "", "")) == ["s"]


def forked(tmp_path: Path, prompt_id: str = "", *, is_before: bool = False):
    prompt = fork(tmp_path, "s", "new", prompt_id, is_before=is_before)
    session = Session.open(tmp_path, "new", "/elsewhere")
    session.close()
    assert is_valid(session)
    return session, prompt


def test_a_fork_holds_all_of_its_source_and_says_where_it_is_from(tmp_path, make):
    make("s", "One", "Two")
    before = (tmp_path / "s.jsonl").read_bytes()
    session, prompt = forked(tmp_path)
    assert prompt is None
    assert texts(session) == ["One", "Well.", "Two", "Well."]
    assert session.project == "/p"
    assert session.ledger.total == Usage(20, 4)
    header = msgspec.json.decode(lines(tmp_path, "new")[0])
    assert (header["session_id"], header["forked_from"], header["version"]) == (
        "new",
        "s",
        LOG_VERSION,
    )
    assert (tmp_path / "s.jsonl").read_bytes() == before
    assert stat.S_IMODE((tmp_path / "new.jsonl").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.jsonl", "s.jsonl"]


def test_a_fork_is_told_from_its_source_by_its_title(tmp_path, make):
    make("s", "One", "Two")
    assert forked(tmp_path)[0].title == "One (fork)"
    for source, new, title in (("new", "n2", "One (fork 2)"), ("n2", "n3", "One (fork 3)")):
        fork(tmp_path, source, new)
        again = Session.open(tmp_path, new, "/p")
        assert again.title == title
        again.close()


def test_a_fork_ends_with_the_turn_of_a_prompt_or_before_it(tmp_path, make):
    make("s", "One", "Two", "Three")
    session, prompt = forked(tmp_path, "s-1")
    assert (texts(session), prompt) == (["One", "Well.", "Two", "Well."], None)
    (tmp_path / "new.jsonl").unlink()
    session, prompt = forked(tmp_path, "s-1", is_before=True)
    assert (texts(session), prompt) == (["One", "Well."], Prompt("s-1", "Two"))
    (tmp_path / "new.jsonl").unlink()
    session, prompt = forked(tmp_path, "s-0", is_before=True)
    assert (texts(session), prompt) == ([], Prompt("s-0", "One"))


def test_a_fork_before_words_from_the_middle_of_a_turn_keeps_the_results_they_came_with(
    tmp_path, make
):
    session = make("s", "One", is_open=True)
    steered = Prompt("q", "Not so!")
    session.append_prompt(user("Go."), Prompt("p", "Go."))
    use_tool(session, "t", "made", (steered,))
    session.append_message(Message("assistant", (TextBlock("Oh."),)))
    session.append(LoggedTurnEnd("end_turn"))
    ask(session, "last", "Last")

    new, prompt = forked(tmp_path, "q", is_before=True)
    assert prompt == steered
    assert texts(new) == ["One", "Well.", "Go.", "I run it."]
    assert new.history[-1].content == (ToolResult("t", "made"),)
    (tmp_path / "new.jsonl").unlink()
    new, prompt = forked(tmp_path, "q")
    assert prompt is None
    assert texts(new)[-2:] == ["Not so!", "Oh."]


def test_a_fork_of_a_turn_that_goes_on_is_valid(tmp_path, make):
    session = make("s", "One", is_open=True)
    session.append_prompt(user("Go."), Prompt("p", "Go."))
    use = ToolUse("t", "bash", {"command": "make"})
    session.append_message(Message("assistant", (use,)))
    session.append(LoggedToolStart("t"))
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b'{"type":"mess')
    new, _ = forked(tmp_path)
    assert isinstance(new.history[-1].content[0], ToolResult)


def test_a_turn_without_an_end_ends_where_the_next_begins(tmp_path, make):
    session = make("s", is_open=True)
    session.append_prompt(user("One"), Prompt("p1", "One"))
    ask(session, "p2", "Two")
    new, _ = forked(tmp_path, "p1")
    assert texts(new) == ["One"]


def test_prompts_that_wait_and_grants_stay_with_the_source(tmp_path, make):
    session = make("s", "One", is_open=True)
    session.keep_state("waiting", {"queued": [{"id": "x", "text": "x"}]})
    session.keep_state("grants", ["y"])
    session.keep_state("mode", "plan")
    new, _ = forked(tmp_path)
    assert (new.state("waiting"), new.state("grants"), new.state("mode")) == (None, None, "plan")


def test_what_the_model_was_told_with_a_prompt_is_not_known_before_it(tmp_path, make):
    session = make("s", is_open=True)
    for number in range(2):
        session.keep_state("told", {"facts": number})
        ask(session, f"p{number}", "Go.")
    new, _ = forked(tmp_path, "p1", is_before=True)
    assert new.state("told") == {"facts": 0}
    (tmp_path / "new.jsonl").unlink()
    new, _ = forked(tmp_path, "p0", is_before=True)
    assert new.state("told") is None
    (tmp_path / "new.jsonl").unlink()
    new, _ = forked(tmp_path, "p1")
    assert new.state("told") == {"facts": 1}


def test_lines_that_are_damaged_are_left_out_of_a_fork(tmp_path, make):
    make("s", "One")
    log = tmp_path / "s.jsonl"
    head, *rest = lines(tmp_path, "s")
    log.write_bytes(head + b"\xff\x00\n" + b"".join(rest) + b'{"type":')
    forked(tmp_path)
    assert all(map(Codec().decoded, lines(tmp_path, "new")))


def test_a_fork_of_the_golden_log_has_its_history(tmp_path):
    data = (GOLDEN / "session_log_v6.jsonl").read_bytes()
    (tmp_path / "s.jsonl").write_bytes(data)
    source = Session.open(tmp_path, "s", "/p")
    source.close()
    session, _ = forked(tmp_path)
    assert session.history == source.history
    assert session.ledger.total == source.ledger.total


@pytest.mark.parametrize(
    "new_id, prompt_id, words",
    [
        ("s", "", "there is a session s already"),
        ("new", "nobody", "there is no prompt nobody"),
        ("../new", "", "is not a session id"),
    ],
)
def test_a_fork_that_cannot_be_leaves_nothing_behind(tmp_path, make, new_id, prompt_id, words):
    make("s", "One")
    with pytest.raises(SessionError, match=words):
        fork(tmp_path, "s", new_id, prompt_id)
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize(
    "header, words",
    [
        (b"notes", "not the header"),
        (b"", "not the header"),
        (
            b'{"type":"session","version":99,"session_id":"s","project":"/p","from":"the future"}',
            "another version of Sanderling; update",
        ),
    ],
)
def test_a_fork_of_what_cannot_be_read_is_refused(tmp_path, header, words):
    (tmp_path / "s.jsonl").write_bytes(header + b"\n")
    with pytest.raises(SessionError, match=words):
        fork(tmp_path, "s", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize(
    "write",
    [
        lambda directory: fork(directory, "s", "new"),
        lambda directory: write_export(str(directory / "new.md"), "x" * 1_000),
    ],
)
def test_a_disk_that_is_full_is_told_of_and_no_half_file_stays(tmp_path, make, write):
    make("s", "One", "Two")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (333, hard))
    try:
        with pytest.raises(SessionError, match=r"[Cc]annot write .*new\..*: File too large"):
            write(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


# --- the preview -------------------------------------------------------------------------------------------------------


def test_the_preview_is_the_last_prompt_and_what_was_answered_around_its_tools(tmp_path):
    with_tools = Session.open(tmp_path, "a", "/p")
    ask(with_tools, "1", "The first question", "The first answer")
    with_tools.append_prompt(user("Run it"), Prompt("2", "Run it"))
    use_tool(with_tools, "t1", "secret output")
    with_tools.append_message(Message("assistant", (TextBlock("It ran.\u202e"),)))
    with_tools.close()
    assert last_exchange(tmp_path, "a") == (
        "## You\n\nRun it\n\n## Sanderling\n\nI run it.\n\nIt ran.<U+202E>\n"
    )


def test_the_preview_of_a_prompt_without_an_answer_is_the_prompt_and_long_texts_are_cut(tmp_path):
    session = Session.open(tmp_path, "a", "/p")
    session.append_prompt(user("x" * 9000), Prompt("1", "x" * 9000))
    session.close()
    assert last_exchange(tmp_path, "a") == f"## You\n\n{'x' * 3999}…\n"
    with pytest.raises(SessionError, match="there is no session b"):
        last_exchange(tmp_path, "b")
