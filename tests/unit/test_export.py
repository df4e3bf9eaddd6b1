"""A session as Markdown: all of what was said, and nothing in it can break the rest."""

import html
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import examples, prove

from sanderling.errors import SessionError
from sanderling.protocol.messages import (
    CommandEnding,
    CommandRecord,
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    Selection,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.session.codec import Codec
from sanderling.session.history import input_line
from sanderling.session.records import (
    LOG_VERSION,
    Header,
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedTurnEnd,
    LoggedUndo,
    LoggedUsage,
    Record,
)
from sanderling.session.session import Session
from sanderling.session.store import export_markdown, write_export
from sanderling.session.store.export import MAX_FOLD_CHARS

GOLDEN = Path(__file__).parent.parent / "golden"
AT = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)


def log(directory: Path, *records: Record) -> None:
    header = Header(LOG_VERSION, "s", "/home/me/project", at=AT)
    data = b"".join(map(Codec().encoded, (header, *records)))
    (directory / "s.jsonl").write_bytes(data)


def exported(directory: Path, *records: Record) -> str:
    log(directory, *records)
    return export_markdown(directory, "s")


def prompted(text: str, *selections: Selection) -> LoggedMessage:
    return LoggedMessage(Message("user", (TextBlock(text),)), Prompt("p", text, selections))


def answered(*blocks: TextBlock | ThinkingBlock | ToolUse) -> LoggedMessage:
    return LoggedMessage(Message("assistant", blocks))


def results(*blocks: ToolResult, steered: tuple[Prompt, ...] = ()) -> LoggedMessage:
    return LoggedMessage(Message("user", blocks), steered=steered)


def conversation(text: str) -> str:
    """What follows the head."""
    return text.partition("* Session: s\n\n")[2]


def test_a_session_is_exported_with_all_that_a_person_saw(tmp_path):
    text = exported(
        tmp_path,
        LoggedCommand(CommandRecord("git status", "clean\n", CommandEnding("exited", took_s=0.4))),
        prompted("## Why is `x` 1?", Selection("src/a.py", 3, 4, "x = 1\ny = 2", "python")),
        answered(
            ThinkingBlock("Hm.", "signed"),
            TextBlock("I look."),
            ToolUse("t1", "bash", {"command": "grep x <a.py>"}),
            ToolUse("t2", "read", {"path": "a.png"}),
        ),
        LoggedToolEnd("t1", "grep x <a.py>", "✓ 1 s", "x = 1", "text"),
        results(
            ToolResult("t1", "told to the model"),
            ToolResult("t2", (ImageBlock(ImageSource("image/png", "aGk=")),), is_error=True),
            steered=(Prompt("q", "Be brief."),),
        ),
        answered(TextBlock("It is set.")),
        LoggedUsage("claude-sonnet-5-5", Usage(250, 20, 0, 750)),
        LoggedTurnEnd("end_turn"),
        LoggedClearing({}, 200_000, 150_000),
        LoggedSummary((), "## Goal\nx", 150_000, 5_000),
        LoggedUndo(),
        prompted("Again."),
        LoggedPartial("thinking", "hm"),
        LoggedPartial("text", "No"),
        LoggedRestart(),
        LoggedPartial("text", "Yes, "),
        answered(TextBlock("Yes, because")),
        LoggedUsage("claude-opus-5-5", Usage(1_000, 30)),
        LoggedTurnEnd("interrupted"),
    )
    assert text == (GOLDEN / "export_v1.md").read_text(encoding="utf-8")


def test_the_title_that_the_person_has_given_is_the_documents(tmp_path):
    text = exported(tmp_path, prompted("Why?"), LoggedState("title", "A *fine*\n name"))
    assert text.startswith("# A *fine* name\n\n* Date: 2026-11-22 09:30 UTC\n")


def test_an_answer_that_was_never_finished_is_exported_as_far_as_it_goes(tmp_path):
    text = exported(
        tmp_path, prompted("Go."), LoggedPartial("text", "```py\nx"), LoggedPartial("text", " = 1")
    )
    assert conversation(text) == "## You\n\nGo.\n\n## Sanderling\n\n```py\nx = 1\n```\n"


def test_a_turn_that_failed_says_why(tmp_path):
    text = exported(tmp_path, prompted("Go."), LoggedTurnEnd("error", error="<no> key\nset"))
    assert text.endswith("\n\n> &lt;no&gt; key set\n")


def test_a_tool_use_without_a_result_says_so(tmp_path):
    text = exported(tmp_path, prompted("Go."), answered(ToolUse("t", "bash", {"command": "make"})))
    assert "<summary><b>bash</b> <code>make</code></summary>\n\n```\nNo result.\n```" in text


def test_of_a_long_result_the_beginning_is_shown(tmp_path):
    text = exported(
        tmp_path,
        prompted("Go."),
        answered(ToolUse("t", "bash", {"command": "make"})),
        results(ToolResult("t", "x" * (MAX_FOLD_CHARS + 1_234), is_error=True)),
    )
    assert "<code>make</code> failed</summary>" in text
    assert "x\n[… 1,234 characters omitted]\n```" in text


def test_a_session_without_words_has_a_title_all_the_same(tmp_path):
    text = exported(tmp_path)
    assert text.startswith("# A session without words\n")
    assert "* Model: unknown\n* Tokens: 0 in, 0 out\n" in text


def test_the_golden_log_is_exported(tmp_path):
    data = (GOLDEN / "session_log_v6.jsonl").read_bytes()
    (tmp_path / "s1.jsonl").write_bytes(data)
    session = Session.open(tmp_path, "s1", "/p")
    session.close()
    text = export_markdown(tmp_path, "s1")
    for prompt in session.prompts:
        assert prompt.text in text
    assert f"{session.ledger.total.output_tokens} out" in text


def test_torn_and_damaged_lines_are_left_out(tmp_path):
    log(tmp_path, prompted("Go."), answered(TextBlock("Well.")))
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(
            b'\xff\n{"type":"from_the_future"}\n' + Codec().encoded(prompted("torn")).rstrip()
        )
    text = export_markdown(tmp_path, "s")
    assert text.endswith("## Sanderling\n\nWell.\n")


def test_an_open_session_can_be_exported(tmp_path):
    session = Session.open(tmp_path, "s", "/p")
    session.append_prompt(Message("user", (TextBlock("Go."),)), Prompt("p", "Go."))
    assert "Go." in export_markdown(tmp_path, "s")
    session.close()


@pytest.mark.parametrize(
    "said, closed",
    [
        ("```py\nx", "```py\nx\n```"),
        ("```py\nx\n```", "```py\nx\n```"),
        ("````\n```\nx\n", "````\n```\nx\n````"),
        ("~~~\n```\n", "~~~\n```\n~~~"),
        ("``` not `open`", "``` not `open`"),
        ("~~~ a `b`", "~~~ a `b`\n~~~"),
        ("```\nx\n```` ", "```\nx\n```` "),
        ("```\nx\n``` y", "```\nx\n``` y\n```"),
        ("    ```\nx", "    ```\nx"),
    ],
)
def test_a_block_of_code_that_is_left_open_is_closed(tmp_path, said, closed):
    text = exported(tmp_path, prompted(said), answered(TextBlock("Well.")))
    assert conversation(text) == f"## You\n\n{closed.strip(chr(10))}\n\n## Sanderling\n\nWell.\n"


HOSTILE = st.lists(
    st.sampled_from(
        ["```", "````", "~~~", "`", "\n", " ", "</details>", "<script>", "x", "# a", "> b"]
    ),
    max_size=20,
).map("".join)


def open_fences(text: str) -> list[str]:
    """The lines that are in no block of code, as CommonMark has it; fails if one is left open."""
    outside, fence = [], ""
    for line in text.split("\n"):
        run = re.match(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})", line)
        if fence:
            if re.fullmatch(rf" {{0,3}}{fence}{fence[0]}*[ \t]*", line):
                fence = ""
        elif run:
            fence = run[1]
        else:
            outside.append(line)
    assert not fence
    return outside


@prove
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(said=HOSTILE, put_out=HOSTILE, command=HOSTILE, lines=HOSTILE)
def test_whatever_was_said_and_put_out_stays_in_its_place(tmp_path, said, put_out, command, lines):
    text = exported(
        tmp_path,
        prompted("Go.", Selection("a`b.py", 1, 2, lines)),
        answered(ToolUse("t", "bash", {"command": command})),
        LoggedToolEnd("t", detail=put_out),
        results(ToolResult("t", "-")),
        LoggedSummary((), put_out, 2, 1),
        answered(TextBlock(said or "-")),
        prompted("The end."),
    )
    outside = open_fences(text)
    assert outside[-4:] == ["## You", "", "The end.", ""]
    line = input_line(ToolUse("t", "bash", {"command": command}))
    assert [line for line in outside if line.startswith("<summary>")] == [
        f"<summary><b>bash</b> <code>{html.escape(line)}</code></summary>",
        "<summary>The model continues from a summary: 2 → 1 tokens</summary>",
    ]


def test_command_is_exported_with_its_output_and_what_stood_below_it(tmp_path):
    text = exported(
        tmp_path,
        prompted("Go."),
        answered(ToolUse("t", "bash", {"command": "cd src; ls"})),
        LoggedToolEnd("t", "cd src; ls", "✓ 1 ms", "[cwd: src]", output_chars=4),
        results(ToolResult("t", "a.py\n[exit status 0 · 1 ms · cwd: src]")),
    )
    assert "```\na.py\n[cwd: src]\n```" in text


def test_an_export_is_written_into_a_new_file(tmp_path):
    path = tmp_path / "talk.md"
    write_export(str(path), "# Ä\n")
    assert path.read_text(encoding="utf-8") == "# Ä\n"


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    path = tmp_path / "talk.md"
    path.write_text("mine")
    with pytest.raises(SessionError, match="already exists: choose another name"):
        write_export(str(path), "# Talk\n")
    assert path.read_text() == "mine"


@pytest.mark.parametrize("name", ["none/talk.md", "file/talk.md", "x" * 300])
def test_a_place_that_cannot_be_written_is_told_of(tmp_path, name):
    (tmp_path / "file").touch()
    with pytest.raises(SessionError, match=re.escape(name)):
        write_export(str(tmp_path / name), "# Talk\n")


def test_what_is_no_session_is_not_exported(tmp_path):
    (tmp_path / "s.jsonl").write_text("notes\n")
    with pytest.raises(SessionError, match="not the header"):
        export_markdown(tmp_path, "s")
    with pytest.raises(SessionError, match="there is no session t"):
        export_markdown(tmp_path, "t")
