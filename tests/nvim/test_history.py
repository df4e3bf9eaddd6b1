"""What does not go to the end of the transcript: pages of earlier messages, an answer that was cut off, a prompt in the middle of a turn."""

import itertools
import os
import random
import signal

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.test_tools_screen import TURN_ENDED, delta, edited, ended, fold_at, go_to, started


@pytest.fixture
def screen(screen):
    yield screen
    assert not screen.lua("return require('sanderling.host.log').lines"), "nothing was a defect"


def turn(number, *events, answer=None):
    block_id = -number
    return [
        {"type": "turn_started", "prompt": {"id": f"p{number}", "text": f"question {number}"}},
        *events,
        delta(answer or f"answer {number}", block_id),
        {"type": "block_ended", "block_id": block_id},
        TURN_ENDED,
    ]


def page(*turns, has_earlier=False):
    events = [event for each in turns for event in each]
    return {"type": "history_shown", "events": events, "has_earlier": has_earlier}


def turns(first, last):
    return [turn(number) for number in range(first, last + 1)]


def thought(block_id=0):
    yield {"type": "thinking_delta", "block_id": block_id, "text": "I look at it first. " * 10}
    yield {"type": "block_ended", "block_id": block_id}


def read(use_id, detail):
    yield started("read", "src/app.py", use_id)
    yield ended("110 lines", detail, use_id)


def tool(use_id):
    yield started("bash", f"make {use_id}", use_id)
    yield ended("✓", "one\ntwo", use_id)


def visible(screen):
    """The rows of the transcript's window on the screen, the line of its cursor, and the row of that."""
    screen.command("redraw")
    top, left, height = screen.in_transcript("win_screenpos(0) + [winheight(0)]")
    rows = [row[left - 1 :] for row in screen.screen()[top : top + height]]
    return rows, screen.in_transcript("getline('.')"), screen.in_transcript("winline()")


def scroll_to_top(screen):
    screen.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    screen.feed("<Esc>gg")
    wait_until(lambda: screen.in_transcript("line('w0')") == 1)


def message_at(screen, text):
    """What `:Agent fork` is told of the first line that equals `text`."""
    row = screen.transcript().index(text)
    return screen.lua(
        """
        local live = require('sanderling.session.live')
        return live.current().transcript:message_at(...)
        """,
        row,
    )


def folds(screen):
    """First and last line of each closed fold, as the transcript's window has them."""
    return screen.lua(
        """
        return vim.api.nvim_win_call(require('sanderling').transcript().win, function()
          local found, lnum = {}, 1
          while lnum <= vim.fn.line('$') do
            local last = vim.fn.foldclosedend(lnum)
            if last > 0 then
              found[#found + 1] = { lnum, last }
              lnum = last
            end
            lnum = lnum + 1
          end
          return found
        end)
        """
    )


def folded_texts(screen):
    lines = screen.transcript()
    return [lines[first - 1] for first, _ in folds(screen)]


# --- the first page ----------------------------------------------------------------------------------------------------


def test_a_resumed_session_shows_its_end(screen):
    screen.send(page(*turns(1, 30)))
    rows, line, _ = visible(screen)
    assert "answer 30" in "".join(rows)
    assert line == ""
    assert screen.in_transcript("line('.') == line('$')")
    assert screen.transcript()[-3:] == ["answer 30", "", ""]


def test_what_is_said_next_stands_below_with_one_blank_line_and_the_window_goes_along(screen):
    screen.send(page(*turns(1, 30)))
    screen.send(*turn(31))
    assert screen.transcript()[-9:] == [
        "answer 30",
        "",
        "## You",
        "",
        "question 31",
        "",
        "## Sanderling",
        "",
        "answer 31",
    ]
    assert "answer 31" in "".join(visible(screen)[0])


def test_a_page_looks_as_what_was_drawn_live(start_screen):
    events = [
        *turn(1, *edited(), started("bash", "make", "t2"), ended("✓", "done", "t2")),
        {"type": "command_started", "id": "c", "command": "ls"},
        {"type": "command_output", "id": "c", "text": "file\n"},
        {"type": "command_ended", "id": "c", "outcome": "Done.", "is_success": True},
        *turn(2, {"type": "thinking_delta", "block_id": -9, "text": "Hm.\n"}),
    ]
    live, resumed = start_screen(), start_screen()
    for each in (live, resumed):
        each.command("AgentChat")
    live.send(*events)
    resumed.send(page(events))
    assert resumed.transcript()[: len(live.transcript())] == live.transcript()
    assert folds(resumed) == folds(live)
    for text in ("## You", "+line two", "$ ls", "edit src/app.py  +3 −2"):
        assert sorted(resumed.highlight(text)) == sorted(live.highlight(text))
    assert visible(resumed)[0][:20] == visible(live)[0][:20]


def test_a_page_may_be_empty(screen):
    screen.send(page(), *turn(1), page(), *turn(2))
    assert screen.transcript_text().count("question") == 2
    assert screen.transcript()[0] == "## You"


def test_without_more_no_line_says_that_there_is_more(screen):
    screen.send(page(*turns(1, 2)))
    assert screen.transcript()[0] == "## You"
    scroll_to_top(screen)
    assert screen.actions("show_earlier") == []


# --- earlier pages -----------------------------------------------------------------------------------------------------


def test_near_the_top_the_page_before_is_asked_for_once(screen):
    screen.send(page(*turns(20, 60), has_earlier=True))
    assert screen.transcript()[:3] == ["▲ earlier messages", "", "## You"]
    assert screen.actions("show_earlier") == []
    scroll_to_top(screen)
    wait_until(lambda: screen.actions("show_earlier"))
    screen.feed("10jgg10jgg")
    wait_until(lambda: screen.in_transcript("line('.')") == 1)
    assert len(screen.actions("show_earlier")) == 1


def test_a_page_that_does_not_fill_the_window_is_followed_by_the_one_before(screen):
    screen.send(page(*turns(9, 10), has_earlier=True))
    wait_until(lambda: len(screen.actions("show_earlier")) == 1)
    screen.send(page(*turns(1, 8)))
    rows, _, _ = visible(screen)
    text = "\n".join(rows)
    assert "answer 10" in text
    assert "answer 7" in text
    assert screen.transcript()[0] == "## You"


@pytest.mark.parametrize(
    "lnum", prove_rest([1, 2, 3, 40]), ids=["marker", "below it", "first", "further on"]
)
def test_what_is_read_stays_where_it_is_while_a_page_comes_above(screen, lnum):
    screen.send(page(*turns(20, 60), has_earlier=True))
    scroll_to_top(screen)
    screen.feed(f"{lnum}G")
    wait_until(lambda: screen.in_transcript("line('.')") == lnum)
    rows, line, row = visible(screen)
    screen.send(page(*turns(1, 19)))
    rows_after, line_after, row_after = visible(screen)
    assert rows_after[2:] == rows[2:]
    assert row_after == row
    if lnum > 2:
        assert line_after == line
    text = screen.transcript_text()
    assert [text.count(f"question {n}\n") for n in range(1, 61)] == [1] * 60
    assert "▲" not in text


def test_a_reader_in_the_middle_and_a_second_window_do_not_move(screen):
    screen.send(page(*turns(20, 80), has_earlier=True))
    go_to(screen, "question 50")
    screen.command("split")
    screen.lua("vim.cmd('normal! gg') vim.fn.search('question 70')")
    views = """
      local views = {}
      for _, win in ipairs(vim.fn.win_findbuf(require('sanderling').transcript().buf)) do
        views[#views + 1] = vim.api.nvim_win_call(win, function()
          return { vim.fn.getline('w0'), vim.fn.getline('.'), vim.fn.winline() }
        end)
      end
      return views
    """
    screen.command("redraw")
    before = screen.lua(views)
    screen.send(page(*turns(1, 19)))
    screen.command("redraw")
    assert screen.lua(views) == before


def test_an_answer_streams_on_while_a_page_comes_above(screen):
    screen.send(page(*turns(20, 40), has_earlier=True))
    screen.send({"type": "turn_started", "prompt": {"id": "p41", "text": "question 41"}})
    screen.send({"type": "thinking_delta", "block_id": 0, "text": "Let me\nthink"})
    screen.send(page(*turns(1, 19)))
    screen.send(
        {"type": "thinking_delta", "block_id": 0, "text": " of it."},
        delta("# Title\n\nan", 1),
        started("bash", "make"),
        {"type": "tool_output", "id": "t1", "text": "one\n"},
    )
    screen.send(page(turn(0)), {"type": "tool_output", "id": "t1", "text": "two\n"}, ended("✓"))
    assert screen.transcript()[-14:] == [
        "## Sanderling",
        "",
        "Thinking",
        "Let me",
        "think of it.",
        "",
        "# Title",
        "",
        "an",
        "",
        "bash make  ✓",
        "one",
        "two",
        "",
    ]
    assert folded_texts(screen)[-2:] == ["Thinking", "bash make  ✓"]


def test_folds_headers_tools_and_their_files_work_in_a_page(screen, project):
    (project / "src").mkdir()
    (project / "src" / "app.py").write_text("".join(f"line {n}\n" for n in range(1, 100)))
    screen.send(page(*turns(20, 40), has_earlier=True))
    screen.send(page(turn(1, *edited()), *turns(2, 19)))
    assert folded_texts(screen) == ["edit src/app.py  +3 −2"]
    go_to(screen, "^edit src", "K")
    wait_until(lambda: screen.actions("inspect_tool_use"))
    assert screen.actions("inspect_tool_use")[0]["id"] == "t1"
    screen.feed("]]")
    wait_until(lambda: screen.in_transcript("getline('.')") == "## You")
    assert screen.in_transcript("getline(line('.') + 2)") == "question 2"
    screen.feed("[[[[")
    wait_until(lambda: screen.in_transcript("getline(line('.') + 2)") == "question 1")
    go_to(screen, "^edit src", "zo")
    go_to(screen, "^+line fifty", "gf")
    wait_until(lambda: screen.lua("return vim.fn.expand('%:t')") == "app.py")
    assert screen.lua("return vim.fn.line('.')") == 51


def test_markdown_of_a_page_is_highlighted_when_it_is_seen(screen):
    screen.send(page(*turns(20, 60), has_earlier=True))
    screen.send(page(turn(1, answer="# Heading\n\nsome *words*"), *turns(2, 19)))
    assert not [each for each in screen.highlight("# Heading") if each.startswith("@")]
    scroll_to_top(screen)
    wait_until(lambda: [each for each in screen.highlight("# Heading") if each.startswith("@")])


def test_a_page_can_begin_in_the_middle_of_a_turn(screen):
    screen.send(page([delta("the rest", -1), TURN_ENDED], *turns(2, 40), has_earlier=True))
    assert screen.transcript()[:4] == ["▲ earlier messages", "", "the rest", ""]
    assert message_at(screen, "the rest") is None
    screen.send(page(turn(1)[:-1]))
    lines = screen.transcript()
    assert lines[: lines.index("the rest") + 2][-6:] == [
        "## Sanderling",
        "",
        "answer 1",
        "",
        "the rest",
        "",
    ]
    assert message_at(screen, "the rest") == {"prompt_id": "p1", "is_prompt": False}


def test_folds_are_right_in_a_window_that_shows_the_chat_after_a_page_came(screen):
    screen.send(page(*turns(20, 30), turn(31, *edited("t31")), has_earlier=True))
    go_to(screen, "^edit", "zo")
    wait_until(lambda: folds(screen) == [])
    screen.command("AgentChat")
    assert screen.transcript_win() is None
    screen.send(page(turn(1, *edited("t1")), *turns(2, 19)))
    screen.command("AgentChat")
    assert folded_texts(screen) == ["edit src/app.py  +3 −2"]
    lines = screen.transcript()
    first = len(lines) - lines[::-1].index("edit src/app.py  +3 −2")
    assert fold_at(screen, first) == [1, -1, -1], "it is still open"
    assert fold_at(screen, first - 1)[0] == 0


def test_folds_of_ones_own_are_there_again_when_the_chat_is_shown_after_pages_came(screen):
    screen.send(page(*turns(20, 30), has_earlier=True))
    screen.send(page(turn(1, *edited("t1")), *turns(2, 19)))
    go_to(screen, "^question 25", "zfj")
    wait_until(lambda: len(folds(screen)) == 2)
    before = folds(screen)
    screen.command("AgentChat")
    assert screen.transcript_win() is None
    screen.send(turn(31, *edited("t31"))[0], *edited("t31"))
    screen.command("AgentChat")
    assert folds(screen)[:-1] == before
    assert folded_texts(screen) == [
        "edit src/app.py  +3 −2",
        "question 25",
        "edit src/app.py  +3 −2",
    ]


def test_a_page_that_comes_while_another_window_shows_the_chat_moves_no_fold_of_either(screen):
    """Neovim keeps the folds of a window that shows something else, in the rows of that time."""
    screen.send(page(*turns(20, 29), turn(30, *edited("t30")), has_earlier=True))
    screen.command("tab sbuffer \\[Sanderling\\] | new | only")
    other = screen.lua("return vim.api.nvim_get_current_win()")
    screen.command("tabprevious")
    screen.send(page(turn(1, *edited("t1")), *turns(2, 19)))
    expected = folds(screen)
    assert len(expected) == 2
    screen.command("tabnext | buffer \\[Sanderling\\]")
    ends = f"foldclosedend({expected[0][0]}), foldclosedend({expected[1][0]}), foldlevel({expected[1][0] - 1})"
    assert screen.lua(
        f"return vim.api.nvim_win_call({other}, function() return vim.fn.eval('[{ends}]') end)"
    ) == [expected[0][1], expected[1][1], 0]


def test_a_session_that_begins_while_the_chat_is_hidden_has_no_folds_of_the_one_before(screen):
    screen.send(*turn(1, *edited("t1")))
    assert len(folds(screen)) == 1
    screen.command("AgentChat")
    screen.lua("require('sanderling').clear()")
    screen.send(*turn(1, answer="a line\n" * 30))
    screen.command("AgentChat")
    assert folds(screen) == []


def test_who_ends_up_at_the_very_top_gets_page_after_page(screen):
    screen.send(page(*turns(41, 60), has_earlier=True))
    for first in (21, 1):
        scroll_to_top(screen)
        count = len(screen.actions("show_earlier"))
        wait_until(lambda: screen.actions("show_earlier"))
        screen.send(page(*turns(first, first + 19), has_earlier=first > 1))
        assert len(screen.actions("show_earlier")) >= count
    text = screen.transcript_text()
    assert [text.count(f"question {n}\n") for n in range(1, 61)] == [1] * 60
    assert text.count("▲") == 0


def test_a_page_waits_for_a_buffer_that_is_locked(screen):
    screen.send(page(*turns(20, 30), has_earlier=True))
    screen.lua(
        "vim.keymap.set('n', '<F9>', function() vim.fn.getchar() return '' end, { expr = true })"
    )
    screen.feed("<Esc><F9>")
    wait_until(lambda: screen.mode() == "n")
    screen.send(page(*turns(1, 19)))
    assert "question 1\n" not in screen.transcript_text()
    screen.feed("x")
    screen.wait_for_transcript("question 1\n")
    assert screen.transcript_text().count("question 19\n") == 1


@prove
def test_page_after_page_of_tool_uses_and_a_clear_at_the_end(screen):
    """Neovim 0.11 aborted where lines with many marks were deleted: in the buffer that pages are drawn in."""
    detail = "".join(f"    return sum(values)  # line {n}\n" for n in range(110))
    parts = []  # of which a page takes some: it may begin and end within a turn
    for number in range(1, 61):
        first, *answer = turn(number)
        uses = [f"t{number}.{n}" for n in range(5)]
        parts += [[first], *([*thought(), *read(use, detail)] for use in uses), answer]
    while parts:
        count = 7 + len(parts) % 3
        parts, taken = parts[:-count], parts[-count:]
        screen.send(page(*taken, has_earlier=bool(parts)))
    text = screen.transcript_text()
    assert [text.count(f"question {n}\n") for n in range(1, 61)] == [1] * 60
    assert len(folds(screen)) == 2 * 5 * 60
    screen.lua("require('sanderling').clear()")
    assert screen.transcript() == [""]


def test_the_next_host_is_asked_for_the_pages_that_the_one_before_has_not_shown(screen):
    screen.send(page(*turns(20, 60), has_earlier=True) | {"start": 4711})
    for _ in range(2):
        screen.send({"type": "local_failed", "message": "The agent process has ended."})
    first = "▲ earlier messages: scroll up to here, or send a prompt, to load them"
    assert screen.transcript()[0] == first
    assert screen.actions("show_earlier") == []
    screen.send({"type": "session_opened", "model": "m", "is_resumed": True})
    scroll_to_top(screen)
    wait_until(lambda: screen.actions("show_earlier"))
    assert screen.actions("show_earlier") == [{"type": "show_earlier", "before": 4711}]
    screen.send(page(*turns(1, 19)))
    assert "earlier messages" not in "\n".join(screen.transcript())


def test_without_a_host_only_who_scrolls_up_starts_one_for_a_page(screen):
    screen.send(page(*turns(1, 4), has_earlier=True))
    wait_until(lambda: screen.actions("show_earlier"))
    screen.lua("_G.actions = {}")
    screen.send({"type": "local_failed", "message": "The agent process has ended."})
    screen.send(*(event for number in range(5, 60) for event in turn(number)))
    for _ in range(2):
        screen.command("AgentChat")
    assert screen.actions("show_earlier") == []
    scroll_to_top(screen)
    wait_until(lambda: screen.actions("show_earlier"))
    assert len(screen.actions("show_earlier")) == 1


# --- message_at --------------------------------------------------------------------------------------------------------


def test_each_row_belongs_to_a_prompt_or_to_its_answer(screen):
    screen.send(page(*turns(3, 4), has_earlier=True), *turn(5))
    screen.send(page(*turns(1, 2)))
    for number in (1, 3, 5):
        assert message_at(screen, f"question {number}") == {
            "prompt_id": f"p{number}",
            "is_prompt": True,
        }
        assert message_at(screen, f"answer {number}") == {
            "prompt_id": f"p{number}",
            "is_prompt": False,
        }


# --- a prompt in the middle of a turn ----------------------------------------------------------------------------------


def test_a_prompt_that_steers_stands_in_the_turn_and_the_answer_goes_on_below(screen):
    screen.send(
        {"type": "turn_started", "prompt": {"id": "p1", "text": "go"}},
        started("bash", "make"),
        ended("✓"),
        {"type": "prompt_steered", "prompt": {"id": "p2", "text": "and the tests"}},
        delta("Yes."),
        TURN_ENDED,
    )
    assert screen.transcript()[4:] == [
        "## Sanderling",
        "",
        "bash make  ✓",
        "",
        "## You (steering)",
        "",
        "and the tests",
        "",
        "## Sanderling",
        "",
        "Yes.",
    ]
    assert "▍You (steering)" in screen.screen_text()
    assert message_at(screen, "and the tests") == {"prompt_id": "p1", "is_prompt": False}


# --- an answer that was cut off ----------------------------------------------------------------------------------------


def thinking(text, block_id):
    return {"type": "thinking_delta", "block_id": block_id, "text": text}


def restarted(block_id):
    return {"type": "answer_restarted", "block_id": block_id}


def test_what_was_cut_off_is_replaced(screen):
    screen.send({"type": "turn_started", "prompt": {"id": "p", "text": "go"}})
    before = screen.transcript()
    screen.send(thinking("Hm.\n", 0), delta("The ans\n\n```py\nx = 1", 1))
    screen.send(restarted(0))
    assert screen.transcript() == before
    screen.send(thinking("Let me see.", 2), delta("The answer.", 3), TURN_ENDED)
    assert screen.transcript()[6:] == ["Thinking", "Let me see.", "", "The answer."]
    assert folded_texts(screen) == ["Thinking"]
    assert "AgentThinking" not in screen.highlight("The answer.")
    assert "The answer." in screen.screen_text()


def test_what_was_cut_off_while_the_chat_is_hidden_leaves_no_fold(screen):
    screen.send({"type": "turn_started", "prompt": {"id": "p", "text": "go"}})
    screen.send(thinking("Hm.\n" * 5, 0), delta("The ans", 1))
    assert folded_texts(screen) == ["Thinking"]
    screen.command("AgentChat")
    screen.send(restarted(0), delta("The answer.\n" * 10, 2), TURN_ENDED)
    screen.command("AgentChat")
    assert folds(screen) == []


def test_only_the_blocks_that_were_cut_off_go(screen):
    screen.send({"type": "turn_started", "prompt": {"id": "p", "text": "go"}})
    screen.send(delta("Let me look.", 0), {"type": "block_ended", "block_id": 0})
    screen.send(started(), ended("✓", "out"), thinking("Hm.\n", 1), delta("Half of", 2))
    screen.send(restarted(1), delta("All of it.", 3), TURN_ENDED)
    assert screen.transcript()[6:] == [
        "Let me look.",
        "",
        "bash pytest -q  ✓",
        "out",
        "",
        "All of it.",
    ]
    assert folded_texts(screen) == ["bash pytest -q  ✓"]


def test_what_a_command_said_in_between_stays(screen):
    screen.send({"type": "turn_started", "prompt": {"id": "p", "text": "go"}})
    screen.send(delta("One.\n\n", 0))
    screen.send({"type": "command_started", "id": "c", "command": "ls"})
    screen.send({"type": "command_output", "id": "c", "text": "file\n"})
    screen.send(delta("Two", 0))
    screen.send({"type": "command_output", "id": "c", "text": "other\n"})
    screen.send(restarted(0), delta("All.", 1))
    screen.send(
        {"type": "command_ended", "id": "c", "outcome": "Done.", "is_success": True}, TURN_ENDED
    )
    text = "\n".join(screen.transcript()[6:])
    assert "One" not in text
    assert "Two" not in text
    assert [text.count(each) for each in ("file", "other", "All.")] == [1, 1, 1]
    assert "\n\n\n" not in text


def test_a_reader_elsewhere_does_not_move_when_an_answer_begins_anew(screen):
    screen.send(page(*turns(1, 40)))
    screen.send({"type": "turn_started", "prompt": {"id": "p", "text": "go"}})
    screen.send(delta("word\n" * 30, 0))
    go_to(screen, "question 20")
    before = visible(screen)
    screen.send(restarted(0))
    assert visible(screen) == before
    screen.send(delta("again", 1))
    assert visible(screen) == before


# --- the model's view --------------------------------------------------------------------------------------------------


def test_a_line_says_where_the_models_view_was_shortened_and_its_fold_has_the_summary(screen):
    screen.send(*turn(1))
    screen.send(
        {
            "type": "compacted",
            "kind": "summary",
            "before_tokens": 182_000,
            "after_tokens": 21_400,
            "summary": "# So far\n\nWe did this.",
        }
    )
    screen.send(*turn(2), {"type": "compaction_undone"})
    lines = screen.transcript()
    label = "── context summarized: 182k → 21.4k tokens ──"
    first = lines.index(label)
    assert lines[first - 2 : first + 6] == [
        "answer 1",
        "",
        label,
        "# So far",
        "",
        "We did this.",
        "",
        "## You",
    ]
    assert folded_texts(screen) == [label]
    assert "▸ ── context summarized: 182k → 21.4k" in screen.screen_text()
    assert "We did this." not in screen.screen_text()
    assert lines[-1] == "── compaction undone ──"


def test_cleared_tool_results_are_one_line(screen):
    screen.send(
        {"type": "compacted", "kind": "cleared", "before_tokens": 150_000, "after_tokens": 90_000}
    )
    label = "── old tool results cleared: 150k → 90.0k tokens ──"
    assert screen.transcript() == [label]


# --- all of it ---------------------------------------------------------------------------------------------------------


def test_a_session_that_is_resumed_shows_what_was_said_and_goes_on(start_agent, project):
    (project / "notes.md").write_text("# Notes\n")
    read_it = {"name": "read", "input": {"path": "notes.md"}}
    replies = (
        {"step": [{"thinking": "I look first."}, {"tool_use": read_it}]},
        {"step": [{"text": "It has a *heading*."}]},
    )
    first = start_agent(*replies)
    first.ask_and_wait("What is in the notes?")
    said = first.transcript()
    first.close()
    second = start_agent({"step": [{"text": "Nothing else."}]})
    second.command("AgentResume")
    second.wait_for_screen("It has a heading.")
    told = [
        "1\t# Notes",
        "(1 line)",
    ]  # a tool use without details of its own shows what the model was told
    assert [line for line in second.transcript() if line not in told][: len(said)] == said
    assert folded_texts(second) == ["Thinking", "read notes.md  1 line"]
    second.submit_and_wait("What else?")
    assert second.transcript()[-3:] == ["## Sanderling", "", "Nothing else."]
    assert message_at(second, "It has a *heading*.")["is_prompt"] is False


@prove
@pytest.mark.parametrize("then", ["scroll", "send"])
def test_after_the_hosts_end_all_that_was_said_can_still_be_read(start_agent, then):
    first = start_agent({"step": [{"text": "It goes on."}], "repeat": True})
    for number in range(1, 81):
        first.ask_and_wait(f"question {number}.")
    first.close()
    second = start_agent({"step": [{"text": "Yes."}]})
    second.command("AgentResume")
    second.wait_for_screen("question 80.")
    assert "question 1.\n" not in second.transcript_text()
    os.kill(second.host_pid(), signal.SIGKILL)
    second.wait_for_transcript("exited (signal 9)")
    if then == "send":
        second.submit_and_wait("Go on?")
    second.feed("<Esc><C-w>k")
    wait_until(lambda: second.lua("return vim.bo.filetype") == "sanderling")

    def is_all_there():
        second.feed("gg")
        return "question 1.\n" in second.transcript_text()

    wait_until(is_all_there)
    text = second.transcript_text()
    assert [text.count(f"question {n}.\n") for n in range(1, 81)] == [1] * 80


WRONG_ROWS = """
  local self = require('sanderling.session.live').current().transcript
  local lines = vim.api.nvim_buf_get_lines(self.buf, 0, -1, true)
  local wrong = {}
  local function expect(what, row, pattern)
    if not (lines[row + 1] or 'no line'):find(pattern) then
      table.insert(wrong, ('%s in row %d: %s'):format(what, row, lines[row + 1] or 'no line'))
    end
  end
  for _, row in ipairs(self.headers) do expect('header', row, '^## ') end
  for _, turn in ipairs(self.turns) do
    expect('prompt', turn.first, '^## You$')
    expect('answer', turn.answer, '^## Sanderling$')
  end
  for _, block in ipairs(self.tool_blocks) do expect('tool', block.first, '^bash make ' .. block.id) end
  for _, use in pairs(self.tools) do expect('running', use.row, '^bash make ' .. use.id) end
  for _, fold in ipairs(self.folds) do expect('fold', fold.first, fold.name and '^bash make' or '^Thinking') end
  for _, piece in ipairs(self.pieces) do expect('piece', piece.first, '^[Ttw]') end
  local last = 0
  for _, block in ipairs(self.markdown.closed) do
    if block.first < last or block.last > #lines then
      table.insert(wrong, 'markdown in row ' .. block.first)
    end
    last = block.last
  end
  if self.last ~= #lines - 1 or self.col ~= #lines[#lines] then
    table.insert(wrong, ('the end: %d, %d'):format(self.last, self.col))
  end
  return wrong
"""


@prove
@pytest.mark.parametrize("seed", range(6))
def test_what_is_remembered_by_row_stays_right_in_any_order_of_events(screen, seed):
    choose = random.Random(seed)
    ids = itertools.count()
    block_id = 0
    running: str | None = None
    screen.send(page(*turns(100, 110), has_earlier=True))
    screen.send({"type": "turn_started", "prompt": {"id": "p", "text": "go"}})
    for number in range(99, 19, -1):
        for _ in range(choose.randrange(6)):
            kind = choose.choice(("text", "thinking", "tool", "restart"))
            if running:
                screen.send(ended("✓", choose.choice(("", "x\ny")), running))
                running = None
            elif kind == "text":
                block_id += choose.randrange(2)
                screen.send(delta(choose.choice(("word ", "words.\n\n", "words\n")), block_id))
            elif kind == "thinking":
                block_id += 1
                screen.send(thinking("I think.\n", block_id))
                block_id += 1
            elif kind == "tool":
                running = f"use{next(ids)}"
                screen.send(started("bash", f"make {running}", running))
                block_id += 1
            else:
                screen.send(restarted(block_id - choose.randrange(3)))
                block_id += 1
        screen.send(page(turn(number, *tool(f"use{next(ids)}")), has_earlier=True))
        assert not screen.lua(WRONG_ROWS)
