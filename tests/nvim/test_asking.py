"""Questions asked at the code: the small prompt, where they are answered, the operator, and templates."""

import subprocess

import pytest
from tests.conftest import prove, prove_unless_quick, quick, wait_until
from tests.loopback import STALL, LoopbackServer, Reply, delta, done, message_start, text
from tests.loopback import block_start as begin_block
from tests.nvim.conftest import texts_told

pytestmark = prove_unless_quick

CODE = "import time\n\n\ndef slow():\n    time.sleep(9)\n    return 1\n\n\ndef last():\n    pass\n"
ANSWER = "It sleeps for *nine* seconds."


@pytest.fixture
def server():
    with LoopbackServer() as server:
        server.answer(Reply(message_start(), text(ANSWER), done()))
        yield server


@pytest.fixture
def start(start_claude, project):
    """A Neovim in `code.py` that answers where `answer` says, in which `keys` are typed until `texts` are shown."""
    (project / "code.py").write_text(CODE)

    def start(answer, keys="", *texts, **screen):
        child = start_claude(**screen)
        child.setup(answer=answer)
        child.command("map <F6> <Plug>(AgentAsk)")
        child.command("smap <F6> <Plug>(AgentAsk)")
        child.command("edit code.py")
        child.feed(keys)
        child.wait_for_screen(*texts)
        return child

    return start


def told(server, index=-1):
    return texts_told(server.prompts[index].json()["messages"][0])


def lines_below(child, first):
    """The rows of the screen from the one that begins with `first` on, up to the keys below an answer."""
    screen = [line.rstrip() for line in child.screen()]
    top = next(row for row, line in enumerate(screen) if line.startswith(first))
    end = next(row for row, line in enumerate(screen) if row > top and "closes" in line)
    return screen[top - 1 : end + 1]


# --- where it is answered ----------------------------------------------------------------------------------------------


def test_an_answer_stands_in_lines_below_what_was_asked_about(start, server):
    child = start("lines", ":5,6AgentAsk why?<CR>", "nine", "closes")
    assert lines_below(child, "▍why?") == [
        "    return 1",
        "▍why?",
        "  It sleeps for nine seconds.",
        lines_below(child, "▍why?")[-1],
    ]
    assert "q closes · \\ec to the chat · \\ef follow-up" in child.screen_text()
    assert told(server)[-2:] == [
        "code.py:5-6, as the editor showed it then:\n```python\n5\t    time.sleep(9)\n6\t    return 1\n```",
        "why?",
    ]
    assert child.lua("return #vim.api.nvim_list_wins()") == 1
    assert child.lua("return not vim.bo.modified and vim.fn.expand('%:t')") == "code.py"


MARKDOWN = """## It sleeps

It **waits** for `time.sleep`, see the [manual](https://docs.python.org) for more about that function:

| call | s |
|------|--:|
| `sleep(9)` | 9 |
| none | 0 |

```python
def fast():

\treturn 1
```
* `a[0]` stays, though it is said in many more words than fit"""


def test_a_line_of_thousands_of_words_with_a_look_of_their_own_stays_plain(start, server):
    """Each part of a line is held against all of its marks: the editor would stand still."""
    server.answer(Reply(message_start(), text("*a* " * 2_400), done()))
    start("lines", ":5,6AgentAsk why?<CR>", "*a* *a* *a*", columns=60)


@quick
def test_an_answer_below_lines_reads_as_it_does_in_the_chat(start, server):
    server.answer(Reply(message_start(), text(MARKDOWN), done()))
    child = start("lines", ":5,6AgentAsk why?<CR>", "stays", "closes", columns=60)
    assert lines_below(child, "▍why?")[2:-1] == [
        "  It sleeps",
        "",
        "  It waits for time.sleep, see the manual for more about",
        "  that function:",
        "",
        "  │ call     │ s │",
        "  │──────────│───│",
        "  │ sleep(9) │ 9 │",
        "  │ none     │ 0 │",
        "",
        "  python",
        "  def fast():",
        "",
        "      return 1",
        "",
        "  * a[0] stays, though it is said in many more words than",
        "    fit",
    ]
    groups = child.lua("""
      local found = {}
      local ns = vim.api.nvim_get_namespaces().sanderling_rewrite
      for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(0, ns, 0, -1, { details = true })) do
        for _, line in ipairs(mark[4].virt_lines or {}) do
          for _, chunk in ipairs(line) do
            found[chunk[1]] = type(chunk[2]) == 'table' and chunk[2][#chunk[2]] or chunk[2]
          end
        end
      end
      return found
    """)
    assert groups["waits"] == "@markup.strong.markdown_inline"
    assert groups["time.sleep"] == "@markup.raw.markdown_inline"
    assert groups["def"].startswith(("@keyword", "python"))
    assert groups[" for "] == "AgentAnswer"


def test_q_closes_an_answer_where_it_stands_and_records_a_macro_elsewhere(start):
    child = start("lines", ":5AgentAsk why?<CR>", "nine", "closes")
    child.feed("ggqaj")
    assert child.lua("return vim.fn.reg_recording()") == "a"
    child.feed("5Gq")
    assert child.lua("return { vim.fn.reg_recording(), vim.fn.getreg('a') }") == ["", "j5G"]
    assert "nine" in child.screen_text()
    child.feed("q")
    wait_until(lambda: "nine" not in child.screen_text())
    assert child.events("AgentSessionClosed")
    child.feed("qaq")
    assert child.lua("return vim.fn.maparg('q', 'n')") == ""


def test_an_answer_is_stopped_at_once_and_what_came_stays(start, server):
    server.answer(Reply(message_start(), begin_block(), delta(text="Half of it\n"), STALL))
    child = start("lines", ":5AgentAsk why?<CR>", "Half of it", "stops")
    child.feed("<C-c>")
    child.wait_for_screen("Half of it", "closes")
    assert [event["stop_reason"] for event in child.events("AgentTurnEnded")] == ["cancelled"]


def test_a_float_beside_the_code_has_the_answer_and_closes(start):
    keys = "<C-c> stops  \\ec to the chat  \\ef follow-up  q closes"
    child = start("float", ":5,6AgentAsk why?<CR>", "nine", keys, "code.py:5-6 · 2 lines")
    assert len(child.floats()) == 1
    child.feed("q")
    wait_until(lambda: child.floats() == [])
    assert child.lua("return vim.fn.expand('%:t')") == "code.py"
    assert child.events("AgentSessionClosed")
    wait_until(lambda: "nine" in child.session_files()[-1].read_text(), "the log has the answer")


def test_a_float_with_an_answer_does_not_cover_the_lines_that_it_is_about(start, project):
    (project / "long.py").write_text("".join(f"line = {n}\n" for n in range(1, 200)))
    child = start("float", lines=40)
    child.command("edit long.py | normal! 36G")
    child.feed(":36,38AgentAsk why?<CR>")
    screen = child.wait_for_screen("nine", "q closes").splitlines()
    assert any("line = 38" in row for row in screen)


@quick
@pytest.mark.parametrize("answer", ["lines", pytest.param("float", marks=prove)])
def test_a_key_carries_an_answer_into_the_chat(start, server, answer):
    child = start(answer, ":5AgentAsk why?<CR>", "nine", "to the chat")
    child.feed("\\ec")
    wait_until(
        lambda: child.floats() == [] and len(child.lua("return require('sanderling').list()")) == 1
    )
    wait_until(child.transcript_win)
    assert ANSWER in child.transcript_text()
    server.answer(Reply(message_start(), text("More."), done()))
    child.feed("<Esc>iand?<Esc><CR>")
    child.wait_for_transcript("More.")
    assert [m["role"] for m in server.prompts[-1].json()["messages"]] == [
        "user",
        "assistant",
        "user",
    ]


def test_a_float_that_is_closed_by_any_means_ends_its_session(start):
    child = start("float", ":5AgentAsk why?<CR>", "nine")
    child.feed(":quit<CR>")
    wait_until(lambda: child.events("AgentSessionClosed"))
    assert child.lua("return #require('sanderling.session.live').all()") == 0


@pytest.mark.parametrize("answer", ["lines", "float"])
def test_one_asks_further_in_the_same_session(start, server, answer):
    child = start(answer, ":5AgentAsk why?<CR>", "nine", "closes")
    server.answer(Reply(message_start(), text("Because of line 5."), done()))
    child.feed("\\ef")
    child.wait_for_screen("Follow-up")
    child.feed("how so?<C-s>")
    child.wait_for_screen("Because of line 5.")
    assert len(server.prompts[-1].json()["messages"]) == 3
    assert len(child.session_files()) == 1


def test_an_answer_does_not_wait_for_the_turn_in_the_chat(start, server):
    server.answer(
        Reply(message_start(), begin_block(), delta(text="Half of it\n"), STALL),
        Reply(message_start(), text(ANSWER), done()),
    )
    child = start("lines")
    child.lua("require('sanderling').ask('go')")
    child.wait_for_transcript("Half of it")
    child.feed(":5AgentAsk why?<CR>")
    child.wait_for_screen("nine seconds", "closes")
    assert "nine" not in child.transcript_text()


def test_several_answers_stand_side_by_side_and_one_takes_the_place_of_another(start, server):
    server.answer(*(Reply(message_start(), text(f"Answer {n}."), done()) for n in (1, 2, 3)))
    child = start("lines", ":1AgentAsk one?<CR>", "Answer 1.")
    child.feed(":5AgentAsk two?<CR>")
    child.wait_for_screen("Answer 1.", "Answer 2.")
    child.feed(":1,2AgentAsk three?<CR>")
    child.wait_for_screen("Answer 2.", "Answer 3.")
    assert "Answer 1." not in child.screen_text()
    child.command("AgentReject!")
    wait_until(lambda: "Answer" not in child.screen_text())
    assert child.lua("return #require('sanderling.session.live').all()") == 0


def test_an_answer_goes_with_its_buffer_and_moves_with_its_lines(start):
    child = start("lines", ":5AgentAsk why?<CR>", "nine", "closes")
    child.feed("ggO# above<Esc>")
    assert lines_below(child, "▍why?")[0].strip() == "time.sleep(9)"
    child.command("bwipeout!")
    wait_until(lambda: child.events("AgentSessionClosed"))


def test_an_edit_and_an_answer_in_one_file_keep_their_keys(start, server):
    child = start("lines", ":5AgentAsk why?<CR>", "nine", "closes")
    server.answer(Reply(message_start(), text("import os"), done()))
    child.feed(":1AgentEdit os<CR>")
    child.wait_for_screen("import os", "accepts")
    child.feed("\\ea")
    wait_until(lambda: child.lua("return vim.fn.getline(1)") == "import os")
    child.feed("5Gq")
    wait_until(lambda: "nine" not in child.screen_text())


def test_a_failed_answer_says_why(start):
    child = start("lines")
    child.lua("require('sanderling').setup({ answer = 'lines', model = 'nobody:nothing' })")
    child.feed(":5AgentAsk why?<CR>")
    child.wait_for_screen("nobody")


# --- the small prompt --------------------------------------------------------------------------------------------------


def test_without_a_question_a_small_prompt_opens_at_the_code(start, server):
    child = start("lines")
    child.feed("5GVj<F6>")
    screen = child.wait_for_screen("Ask about code.py:5-6").splitlines()
    row = next(row for row, line in enumerate(screen) if "Ask about" in line)
    assert screen[row - 1].strip() == "return 1"
    child.feed("why<CR>so slow?")
    assert child.lines() == ["why", "so slow?"]
    child.feed("<C-s>")
    child.wait_for_screen("nine", "closes")
    assert told(server)[-1] == "why\nso slow?"
    assert child.mode() == "n"
    assert child.lua("return vim.api.nvim_win_get_cursor(0)[1]") == 6


@pytest.mark.parametrize("keys", ["GV<F6>", ":$AgentAsk<CR>", ":$AgentEdit<CR>"])
def test_a_small_prompt_at_the_end_of_a_file_covers_no_line_in_question(start, keys):
    child = start("chat", "", columns=80, lines=14)
    child.lua(
        "vim.api.nvim_buf_set_lines(0, -1, -1, true, vim.split(('x\\n'):rep(40) .. 'last', '\\n'))"
    )
    child.feed(f"G{keys}")
    child.wait_for_screen("╭ Ask" if "Ask" in keys or "F6" in keys else "╭ Edit")
    screen = child.screen()
    row = next(row for row, line in enumerate(screen) if line.startswith("╭"))
    assert screen[row - 1].strip() == "last"


def test_the_operator_is_repeated_by_the_dot_and_takes_a_count(start, server):
    server.answer(*(Reply(message_start(), text("Yes."), done()) for _ in range(2)))
    child = start("lines", "4G2<F6>_", "Ask about code.py:4-5")
    child.feed("why?<Esc><CR>")
    wait_until(lambda: len(server.prompts) == 1)
    assert "code.py:4-5" in told(server)[-2]
    child.feed("9G.")
    wait_until(lambda: len(server.prompts) == 2)
    assert "code.py:9-10" in told(server)[-2]
    assert told(server)[-1] == "why?"


def test_select_mode_asks_about_what_is_selected(start, server):
    child = start("lines", "5Ggh<Down><F6>", "Ask about code.py:5-6")
    child.feed("why?<C-s>")
    child.wait_for_screen("nine")
    assert "code.py:5-6" in told(server)[-2]


@pytest.mark.parametrize("keys", ["<Esc>q", "<Esc><Esc>", "<Esc>:q<CR>", "<Esc><C-w>c"])
def test_a_small_prompt_that_is_closed_asks_nothing(start, server, keys):
    child = start("lines", "5GV<F6>", "Ask about code.py:5")
    child.feed(f"why?{keys}")
    wait_until(lambda: child.floats() == [])
    wait_until(lambda: child.lua("return #require('sanderling.session.live').all()") == 0)
    assert child.lua("return vim.fn.expand('%:t')") == "code.py"
    assert server.prompts == []


def test_the_small_prompt_names_the_keys_of_the_mode_it_is_in(start):
    child = start("chat", "<F6>ip", "─ <C-s> sends ╯")
    child.feed("<Esc>")
    child.wait_for_screen("─ <CR> sends  q closes  g? keys ╯")
    child.feed("a")
    child.wait_for_screen("─ <C-s> sends ╯")


@quick
def test_the_keys_of_the_small_prompt_are_listed(start):
    start("lines", "5GV<F6><Esc>g?", "send the prompt", "older prompt")


def test_mentions_go_along_from_the_small_prompt(start, server, project):
    (project / "other.txt").write_text("something else\n")
    child = start("lines", "5GV<F6>", "Ask about code.py:5")
    child.feed("as in @other.txt?<C-s>")
    child.wait_for_screen("nine")
    assert "something else" in told(server)[1]


def test_a_question_in_the_chat_is_repeated_by_the_dot_as_well(start, server):
    server.answer(*(Reply(message_start(), text("Yes."), done()) for _ in range(2)))
    child = start("chat")
    child.feed(":5AgentAsk why?<CR>")
    child.wait_for_turns(1)
    child.feed("9G.")
    child.wait_for_turns(2)
    assert "code.py:9\n" in child.transcript_text()


@pytest.mark.parametrize("answer", ["lines", "float"])
def test_it_fits_on_a_small_screen(start, answer):
    child = start(answer, "10GV<F6>", "Ask about", columns=40, lines=12)
    child.feed("why?<C-s>")
    child.wait_for_screen("nine")


# --- templates ---------------------------------------------------------------------------------------------------------


def report(child, *places):
    child.lua(
        """
        local ns = vim.api.nvim_create_namespace('test')
        vim.diagnostic.set(ns, 0, vim.tbl_map(function(place)
          return { lnum = place[1] - 1, col = 0, message = place[2], severity = 1 }
        end, ...))
        """,
        [list(place) for place in places],
    )


def test_fix_sends_what_is_reported_in_the_line(start, server):
    child = start("lines")
    report(child, (5, "too slow"), (10, "too little"))
    child.feed("5G:AgentFix at once<CR>")
    child.wait_for_turns()
    lines, reports, words = told(server)
    assert lines.startswith("code.py:5, ")
    assert reports.endswith("```\ncode.py:5: error: too slow\n```")
    assert words.startswith("Fix the reported problems. Also: at once")
    assert child.transcript_win()


def test_fix_takes_a_range_or_all_and_says_when_there_is_nothing(start, server):
    server.answer(*(Reply(message_start(), text("Done."), done()) for _ in range(2)))
    child = start("chat")
    child.feed(":AgentFix!<CR>")
    child.wait_for_message("No diagnostics here.")
    report(child, (5, "too slow"), (6, "one"), (10, "too little"))
    child.feed(":1AgentFix<CR>")
    child.wait_for_message(":AgentFix! takes the whole buffer")
    child.feed(":5,6AgentFix<CR>")
    child.wait_for_turns(1)
    assert told(server)[1].count("error:") == 2
    child.feed(":AgentFix!<CR>")
    child.wait_for_turns(2)
    message = server.prompts[-1].json()["messages"][-1]
    assert texts_told(message)[1].count("error:") == 3
    assert texts_told(message)[0].startswith("code.py:5-10, ")


def test_explain_is_an_operator_and_answers_where_it_is_set(start, server):
    child = start("lines")
    child.command("map <F7> <Plug>(AgentExplain)")
    child.feed("4G<F7>ip")
    child.wait_for_screen("▍/explain", "nine")
    assert told(server)[-2].startswith("code.py:4-6, ")
    assert told(server)[-1].startswith("Explain this code.")


def test_a_file_of_the_persons_takes_the_place_of_ours(start, server):
    child = start("chat")
    commands = child.home / "config" / "sanderling" / "commands"
    commands.mkdir(parents=True)
    (commands / "test.md").write_text("Test it with nose, $ARGUMENTS!")
    child.feed("4G:Agent test please<CR>")
    child.wait_for_turns()
    assert told(server)[-1] == "Test it with nose, please!"


def test_findings_of_a_review_are_the_quickfix_list(start, server):
    answer = (
        "Findings:\n\n* **critical** `code.py:5`: it sleeps. That is slow.\n"
        "* **minor** code.py:9-10: empty, as in code.py:1\n* gone.py:3: not there\n\nI looked at code.py:1 alone."
    )
    server.answer(Reply(message_start(), text(answer), done()))
    child = start("chat")
    child.command("Agent review")
    child.wait_for_turns()
    child.wait_for_message(":copen lists them")
    found = child.lua("""
      return vim.tbl_map(function(item)
        return { vim.fn.bufname(item.bufnr):match('[^/]*$'), item.lnum, item.end_lnum, item.type, item.text }
      end, vim.fn.getqflist())
    """)
    assert found[:2] == [
        ["code.py", 5, 0, "E", "critical: it sleeps. That is slow."],
        ["code.py", 9, 10, "I", "minor: empty, as in code.py:1"],
    ]
    assert child.lua("return vim.fn.getqflist({ title = 0 }).title") == "Agent: /review"


@pytest.fixture
def committing(start, project):
    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
            cwd=project,
            check=True,
            capture_output=True,
        )

    git("init", "-q")
    (project / "code.py").write_text(CODE)
    git("add", "code.py")
    (project / "message").write_text("\n# Please enter the commit message\n#\n# Changes:\n")
    child = start("chat")
    child.command("edit message | set filetype=gitcommit")
    return child


def test_commit_writes_the_message_of_what_is_staged(committing, server):
    child = committing
    server.answer(Reply(message_start(), text("feat: sleep\n\nIt was too fast."), done()))
    child.feed(":Agent commit in few words<CR>")
    child.wait_for_screen("+  feat: sleep", "accepts")
    request = server.prompts[0].json()
    assert "tools" not in request
    context, words = [block["text"] for block in request["messages"][0]["content"]]
    assert "+    time.sleep(9)" in context
    assert "@staged, from git" in context
    assert "Also: in few words" in words
    child.feed("\\ea")
    wait_until(lambda: child.lua("return vim.fn.getline(1)") == "feat: sleep")
    assert child.lua("return vim.api.nvim_buf_get_lines(0, 0, 5, true)") == [
        "feat: sleep",
        "",
        "It was too fast.",
        "# Please enter the commit message",
        "#",
    ]


def test_commit_says_where_it_is_of_use_and_when_nothing_is_staged(committing, server, project):
    child = committing
    subprocess.run(["git", "rm", "-q", "--cached", "code.py"], cwd=project, check=True)
    child.feed(":Agent commit<CR>")
    child.wait_for_message("nothing is staged")
    child.command("edit code.py")
    child.feed(":Agent commit<CR>")
    child.wait_for_message("No commit message is open")
    assert server.prompts == []


def test_commit_sends_nothing_that_a_rule_keeps_from_the_model(committing, server):
    child = committing
    child.setup(
        answer="chat",
        permissions=[{"action": "deny", "tool": "read", "path": "code.py"}],
    )
    child.feed(":Agent commit<CR>")
    child.wait_for_message("@staged contains code.py, which a rule keeps")
    assert server.prompts == []
