"""A long session is shown again page by page from its end; one process at a time has it open."""

import itertools
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import prove

from sanderling.protocol.events import (
    ChildChanged,
    CommandEnded,
    CommandStarted,
    Compacted,
    ErrorOccurred,
    HistoryEvent,
    PromptSteered,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import (
    CommandEnding,
    CommandRecord,
    Message,
    Prompt,
    TextBlock,
    ToolResult,
    ToolUse,
)
from sanderling.session.history_pager import PAGE_BYTES, PAGE_PARTS, HistoryPager
from sanderling.session.log import SessionInUseError
from sanderling.session.records import (
    LoggedChild,
    LoggedClearing,
    LoggedCommand,
    LoggedPartial,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
)
from sanderling.session.session import Session
from sanderling.session.titles import prompt_title


def say(session: Session, number: int, *, chars: int = 20) -> None:
    """A turn with a tool use."""
    prompt = Prompt(f"p{number}", f"prompt {number}")
    session.append_prompt(Message("user", (TextBlock(prompt.text),)), prompt)
    use = ToolUse(f"t{number}", "bash", {"command": "ls"})
    session.append_message(Message("assistant", (TextBlock("I look."), use)))
    session.append(LoggedToolStart(use.id))
    session.append(LoggedToolEnd(use.id, "ls", "✓ 0.1 s"))
    session.append_message(Message("user", (ToolResult(use.id, "x" * chars),)))
    session.append_message(Message("assistant", (TextBlock(f"answer {number}"),)))
    session.append(LoggedTurnEnd("end_turn"))


def reopened(session: Session) -> Session:
    session.close()
    return Session.open(session.path.parent, session.id, session.project)


def pages_of(session: Session) -> list[tuple[HistoryEvent, ...]]:
    """All pages of the session when it is opened again, the first of the conversation first."""
    with closing(reopened(session)) as resumed:
        pages = HistoryPager(resumed)
        taken = [pages.take()]
        while taken[-1].has_earlier:
            taken.append(pages.take())
    return [page.events for page in reversed(taken)]


def prompt(session: Session, text: str) -> Prompt:
    asked = Prompt("p1", text)
    session.append_prompt(Message("user", (TextBlock(text),)), asked)
    return asked


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session.open(tmp_path, "s1", "/project")


def test_every_turn_is_shown_once_and_in_order_however_many_pages_there_are(session):
    for number in range(200):
        say(session, number)
    pages = pages_of(session)
    assert len(pages) > 3
    events = list(itertools.chain.from_iterable(pages))
    assert [e.prompt.text for e in events if isinstance(e, TurnStarted)] == [
        f"prompt {n}" for n in range(200)
    ]
    assert [e.text for e in events if isinstance(e, TextDelta)] == [
        text for n in range(200) for text in ("I look.", f"answer {n}")
    ]
    ids = [e.block_id for e in events if isinstance(e, TextDelta)]
    assert len(set(ids)) == len(ids)
    assert max(ids) < 0, "those of what is said from now on count up from 0"
    for page in pages:
        started = [e.id for e in page if isinstance(e, ToolStarted)]
        assert started == [e.id for e in page if isinstance(e, ToolEnded)]


def test_another_process_goes_on_with_the_page_before_those_that_were_shown(session):
    for number in range(200):
        say(session, number)
    resumed = reopened(session)
    shown = HistoryPager(resumed).take()
    say(resumed, 200)
    again = reopened(resumed)
    pages = HistoryPager(again, shown.start)
    taken = [shown]
    while taken[-1].has_earlier:
        taken.append(pages.take())
    again.close()
    events = itertools.chain.from_iterable(page.events for page in reversed(taken))
    prompts = [event.prompt.text for event in events if isinstance(event, TurnStarted)]
    assert prompts == [f"prompt {n}" for n in range(200)]


def test_page_is_small_though_a_part_may_be_large(session):
    for number in range(40):
        say(session, number, chars=30_000)
    pages = pages_of(session)
    turns = [sum(isinstance(e, TurnStarted) for e in page) for page in pages]
    assert max(turns) <= PAGE_BYTES // 30_000 + 1 < PAGE_PARTS


def test_all_that_the_log_knows_is_shown_again(session):
    asked = prompt(session, "Look.")
    use = ToolUse("t1", "read", {"path": "a.py"})
    session.append_message(Message("assistant", (use,)))
    session.append(LoggedToolStart("t1"))
    session.append(LoggedToolEnd("t1", "a.py", "12 lines", "text", "python"))
    steered = Prompt("p2", "Only the top.")
    session.append_message(
        Message("user", (ToolResult("t1", "text"), TextBlock("Only the top."))), (steered,)
    )
    session.append(LoggedClearing({"t1": "[cleared]"}, 90, 60))
    session.append(LoggedTurnEnd("error", "It broke."))
    session.append(LoggedCommand(CommandRecord("make", "ok\n", CommandEnding("exited", 0, 1.0))))
    [page] = pages_of(session)
    assert page[:3] == (
        TurnStarted(asked),
        ToolStarted("t1", "read", "a.py"),
        ToolEnded("t1", "12 lines", "text", "python"),
    )
    assert PromptSteered(steered) in page
    assert Compacted("cleared", 90, 60) in page
    assert ErrorOccurred("internal", "It broke.", "") in page
    assert TurnEnded("error") in page
    [started] = [e for e in page if isinstance(e, CommandStarted)]
    assert started.command == "make"
    [ended] = [e for e in page if isinstance(e, CommandEnded)]
    assert (ended.outcome, ended.is_success) == ("Succeeded after 1.0 s.", True)


@pytest.mark.parametrize(
    "told, end, shown",
    [
        ("a\nb\n[exit status 0 · 81 ms]", LoggedToolEnd("t1", output_chars=3), "a\nb"),
        ("(no output)\n[exit status 1]", LoggedToolEnd("t1", output_chars=0), ""),
        (
            "a\n[exit status 1 · cwd: src]\n\n[You have made this very call 3 times.]",
            LoggedToolEnd("t1", detail="[cwd: src]", output_chars=1),
            "a\n[cwd: src]",
        ),
        ("The person said no: later", LoggedToolEnd("t1", "x", "denied", "later"), "later"),
        # A log from before output was told from the rest, and one of a host that was killed.
        ("a\n[exit status 0]", LoggedToolEnd("t1", "x", "✓", "[cwd: src]"), "a\n[exit status 0]"),
        ("Its outcome is unknown.", None, "Its outcome is unknown."),
    ],
)
def test_command_of_the_models_is_shown_again_as_its_block_was(session, told, end, shown):
    prompt(session, "Look.")
    session.append_message(Message("assistant", (ToolUse("t1", "bash", {"command": "x"}),)))
    if end is None or end.summary != "denied":
        session.append(LoggedToolStart("t1"))
    if end:
        session.append(end)
    session.append_message(Message("user", (ToolResult("t1", told),)))
    [page] = pages_of(session)
    assert [e.detail for e in page if isinstance(e, ToolEnded)] == [shown]


@pytest.mark.parametrize("is_begun", [True, False])
@pytest.mark.parametrize(
    "tool, arguments, title",
    [
        ("bash", {"timeout_s": 9, "command": "make test"}, "make test"),
        ("bash", {"command": "cd src\nmake"}, "cd src …"),
        ("bash", {"command": "echo a\u202eb"}, "echo a<U+202E>b"),
        ("bash", {"command": "x" * 100}, "x" * 79 + "…"),
        ("edit", {"old": "a", "new": "b", "path": "src/a.py"}, "src/a.py"),
        ("grep", {"pattern": "def", "path": "src"}, "def"),
        ("mcp__db__ask", {"limit": 3, "statement": "select 1"}, "select 1"),
        ("todo", {"items": []}, ""),
    ],
)
def test_a_tool_use_that_was_interrupted_is_named(session, tool, arguments, title, is_begun):
    prompt(session, "Go.")
    session.append_message(Message("assistant", (ToolUse("t1", tool, arguments),)))
    if is_begun:
        session.append(LoggedToolStart("t1"))
    [page] = pages_of(session)
    [begun] = [each for each in page if isinstance(each, ToolStarted)]
    assert (begun.tool, begun.title) == (tool, title)


def test_turn_that_a_crash_has_interrupted_is_shown_with_what_was_said(session):
    prompt(session, "Tell.")
    session.append(LoggedPartial("text", "Once upon"))
    [page] = pages_of(session)
    assert [e.text for e in page if isinstance(e, TextDelta)] == ["Once upon"]
    assert page[-1] == TurnEnded("interrupted")


@pytest.mark.parametrize("state, shown", [("done", "done"), ("budget", "budget"), ("", "partial")])
def test_the_history_names_the_child_session_of_a_tool_use_and_how_it_ended(session, state, shown):
    prompt(session, "Find it.")
    use = ToolUse("t1", "delegate", {"task": "Find it."})
    session.append_message(Message("assistant", (use,)))
    session.append(LoggedToolStart(use.id))
    session.append(LoggedChild("c1", use.id, "explore", "Find it."))
    if state:
        session.append(LoggedChild("c1", use.id, "explore", "Find it.", state))
        session.append(LoggedToolEnd(use.id, "explore: Find it.", "done"))
    [page] = pages_of(session)
    child = ChildChanged("c1", use.id, "explore", "Find it.", shown)
    of_use = [each for each in page if isinstance(each, ToolStarted | ChildChanged | ToolEnded)]
    assert [type(each) for each in of_use] == [ToolStarted, ChildChanged, ToolEnded]
    assert of_use[1] == child


def test_new_session_has_one_empty_page(session):
    page = HistoryPager(session).take()
    assert (page.events, page.has_earlier) == ((), False)


@prove
def test_session_that_another_process_has_open_cannot_be_opened(session, tmp_path):
    say(session, 1)
    code = (
        "import sys; from pathlib import Path; from sanderling.session.session import *; from sanderling.session.log import *\n"
        "try: Session.open(Path(sys.argv[1]), 's1', '/project')\n"
        "except SessionInUseError as error: sys.exit(str(error))"
    )

    def open_elsewhere() -> str:
        ran = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
        return ran.stderr.strip()

    assert open_elsewhere() == "another process has the session s1 open"
    with pytest.raises(SessionInUseError):
        Session.open(tmp_path, "s1", "/project")
    session.close()
    assert open_elsewhere() == ""


def test_session_is_called_what_was_asked_first_until_it_is_named(session):
    assert session.title == ""
    say(session, 1)
    assert session.title == "prompt 1"
    session.keep_state("title", "My own")
    with closing(reopened(session)) as resumed:
        assert resumed.title == "My own"


@pytest.mark.parametrize(
    "text, title",
    [
        ("Why is this slow?", "Why is this slow?"),
        ("\n\n## **Fix** the `parser`\nplease", "Fix the parser"),
        ("> - quoted", "quoted"),
        ("x" * 100, "x" * 59 + "…"),
        ("a\tb\u2028c", "a b"),
        ("   ", ""),
    ],
)
def test_title_is_the_first_line_that_says_something(text, title):
    assert prompt_title(text) == title
