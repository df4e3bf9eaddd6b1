"""Several sessions at once, and the way back to earlier ones."""

import json
import os
import signal

import pytest
from tests.conftest import ChildNvim, is_alive, prove_unless_quick, quick, wait_until

pytestmark = prove_unless_quick

LINES = "".join(f"line {n}\\n" for n in range(100))
WRAPPED = (("some words " * 40).strip() + "\\n\\n") * 3 + "more words " * 30
DROPS = "drop\\n" * 60
ANSWERS = f"""
[[reply]]
when = "long"
repeat = true
[[reply.step]]
thinking = "a\\nb\\nc"
[[reply.step]]
text = "{LINES}"
[[reply]]
when = "slow"
repeat = true
[[reply.step]]
text = "begun "
[[reply.step]]
delay_ms = 20000
[[reply]]
when = "wrapped"
repeat = true
[[reply.step]]
text = "{WRAPPED}the very end"
[[reply]]
when = "drip"
repeat = true
[[reply.step]]
text = "{DROPS}drips end"
chunk_chars = 5
chunk_delay_ms = 8
[[reply]]
repeat = true
[[reply.step]]
text = "answered"
"""

CATCH_CHOICES = """
  _G.choices = {}
  vim.ui.select = function(items, opts, on_choice)
    local lines = vim.tbl_map(opts.format_item or tostring, items)
    table.insert(_G.choices, { prompt = opts.prompt, lines = lines })
    _G.answer = function(index) on_choice(index and items[index], index) end
  end
"""


def current_id(child):
    return child.lua("return require('sanderling.session.live').current_id()")


def sessions(child):
    return child.lua("return require('sanderling').list()")


def title(child):
    return next(each["name"] for each in sessions(child) if each["is_current"])


def wait_for_choice(child, count=1):
    """The lines of the choice that is number `count`, as soon as it is offered."""
    wait_until(lambda: len(child.lua("return _G.choices")) >= count, f"choice {count}")
    return child.lua("return _G.choices[...].lines", count)


def choose(child, line, count=1):
    lines = wait_for_choice(child, count)
    (index,) = [n for n, each in enumerate(lines, 1) if line in each]
    child.lua("_G.answer(...)", index)


@pytest.fixture
def chat(scripted):
    """A chat in whose transcript nothing was said yet."""
    child = scripted(ANSWERS)
    child.lua(CATCH_CHOICES)
    child.command("AgentChat")
    return child


def queue(chat, text):
    """Send `text` while a turn is slow."""
    chat.feed("islow<C-s><Esc>")
    chat.wait_for_transcript("begun")
    chat.feed(f"i{text}<C-s><Esc>")
    chat.wait_for_screen("1 queued")


@pytest.fixture
def two(chat):
    """Two sessions with one turn each; the second is shown."""
    chat.say("first")
    chat.command("AgentNew")
    chat.say("second")
    return chat


# --- several that are open ---------------------------------------------------------------------------------------------


@quick
def test_a_new_session_stands_beside_the_old_one_and_the_keys_switch_between_them(two):
    ids = [each["id"] for each in sessions(two)]
    assert len(ids) == 2
    for window in ("", "<C-w>k"):
        for key, text in (("\\n", "first"), ("\\p", "second"), ("\\n", "first"), ("\\n", "second")):
            two.feed(window + key)
            wait_until(lambda text=text: f"## You\n\n{text}\n" in two.transcript_text(), key)
            assert text in two.screen_text()
            assert two.lua("return #vim.api.nvim_list_wins()") == 3
    assert [each["id"] for each in sessions(two)] == ids


@quick
def test_a_count_goes_further_and_one_session_alone_says_so(chat):
    chat.feed("\\n")
    chat.wait_for_message("No other session is open")
    for _ in range(2):
        chat.command("AgentNew")
    first, _, third = [each["id"] for each in sessions(chat)]
    assert current_id(chat) == third
    chat.feed("2\\p")
    wait_until(lambda: current_id(chat) == first)


def test_a_session_in_the_background_streams_on_and_is_shown_at_its_end(chat):
    chat.feed("idrip<C-s><Esc>")
    chat.wait_for_transcript("drop")
    chat.command("AgentNew")
    assert "drop" not in chat.screen_text()
    chat.submit("quick")
    wait_until(lambda: chat.transcript()[-1] == "answered")
    chat.wait_for_turns(2)
    assert "drop" not in chat.screen_text()
    chat.feed("\\n")
    chat.wait_for_screen("drips end")


def test_switching_keeps_view_folds_options_and_what_is_being_typed(chat):
    chat.say("long")
    chat.feed("ihalf a thought<Esc><C-w>kgg/Thinking<CR>zo:setlocal nowrap<CR>60Gzt3j2l")
    wait_until(lambda: chat.in_transcript("line('.')") == 63)
    state = "[winsaveview(), foldclosed(7), &l:wrap, &l:winfixwidth]"
    before = chat.in_transcript(state)
    chat.feed("<C-w>j")
    prompt_state = "[winheight(0), &l:winfixheight, &l:winbar]"
    prompt_before = chat.lua("return vim.fn.eval(...)", prompt_state)
    chat.command("AgentNew")
    assert chat.prompt_lines() == [""]
    assert chat.in_transcript("&l:wrap") == 0
    chat.feed("iother words<Esc>\\p")
    wait_until(lambda: chat.prompt_lines() == ["half a thought"])
    assert chat.in_transcript(state) == before
    assert chat.lua("return vim.fn.eval(...)", prompt_state) == prompt_before
    chat.feed("\\n")
    wait_until(lambda: chat.prompt_lines() == ["other words"])


@pytest.mark.parametrize("position", ["left", "bottom", "float", "tab", "current"])
def test_switching_works_wherever_the_chat_is_and_its_windows_close_together(scripted, position):
    child = scripted(ANSWERS, chat={"position": position})
    child.chat("first")
    child.command("AgentNew")
    child.say("second")
    before = child.lua("return vim.tbl_map(vim.api.nvim_win_get_config, vim.api.nvim_list_wins())")
    child.lua("vim.api.nvim_set_current_win(...)", child.transcript_win())
    child.feed("\\p")
    wait_until(lambda: title(child) == "first")
    assert "first" in child.screen_text()
    assert "second" not in child.screen_text()
    after = child.lua("return vim.tbl_map(vim.api.nvim_win_get_config, vim.api.nvim_list_wins())")
    assert after == before
    child.feed("q")
    wait_until(lambda: child.lua("return #vim.api.nvim_list_wins()") == 1)


def test_nothing_is_lost_of_three_answers_that_stream_while_the_user_switches(chat):
    for number in range(3):
        if number:
            chat.command("AgentNew")
        chat.feed("idrip<C-s><Esc>")
    for _ in range(10):
        chat.feed("\\n<C-w>k\\p2\\n<C-w>j")
    chat.wait_for_turns(3)
    for _ in range(3):
        assert chat.transcript_text().endswith("drop\n" * 60 + "drips end")
        assert "drips end" in chat.screen_text()
        before = current_id(chat)
        chat.feed("\\n")
        wait_until(lambda before=before: current_id(chat) != before)
    assert "went wrong" not in chat.messages()


def test_hiding_and_showing_comes_back_to_the_session_that_was_shown(two):
    two.feed("\\p")
    wait_until(lambda: title(two) == "first")
    two.command("AgentChat")
    two.command("AgentChat")
    assert "## You\n\nfirst\n" in two.transcript_text()
    assert "first" in two.screen_text()


def test_tab_pages_show_a_session_each_and_commands_are_about_the_one_that_was_entered(two):
    two.command("tabnew")
    two.command("AgentChat")
    two.feed("\\p")
    wait_until(lambda: title(two) == "first")
    two.command("tabprevious")
    assert title(two) == "second"
    assert "## You\n\nsecond\n" in two.transcript_text()
    two.command("tabnext")
    assert title(two) == "first"
    two.submit_and_wait("again")
    assert "## You\n\nagain\n" in two.transcript_text()


def test_closing_shows_the_next_session_and_keeps_what_was_typed_in_the_prompt_history(two):
    two.feed("iunfinished<Esc>")
    wait_until(lambda: two.prompt_lines() == ["unfinished"])
    two.command("Agent close")
    assert "## You\n\nfirst\n" in two.transcript_text()
    assert len(sessions(two)) == 1
    two.feed("<M-p>")
    wait_until(lambda: two.prompt_lines() == ["unfinished"])
    two.command("Agent close")
    assert two.lua("return #vim.api.nvim_list_wins()") == 1
    assert sessions(two) == []
    names = two.lua("return vim.tbl_map(vim.fn.bufname, vim.api.nvim_list_bufs())")
    assert [name for name in names if "[Sanderling" in name] == []
    assert len(two.session_files()) == 2
    two.command("AgentChat")
    assert two.transcript() == [""]


def test_closing_a_session_closes_or_changes_its_windows_in_all_tab_pages(two):
    two.command("tabnew")
    two.command("AgentChat")
    two.command("Agent close")
    for _ in range(2):
        assert "## You\n\nfirst\n" in two.transcript_text()
        assert "first" in two.screen_text()
        two.command("tabnext")


def test_closing_during_a_turn_stops_it_and_what_waits_is_in_the_prompt_history(chat):
    chat.command("AgentNew")
    queue(chat, "and then")
    log = chat.session_files()[-1]
    chat.command("Agent close")
    assert chat.events("AgentTurnEnded")[0]["stop_reason"] == "cancelled"
    wait_until(lambda: '"stop_reason":"cancelled"' in log.read_text())
    chat.feed("<M-p>")
    wait_until(lambda: chat.prompt_lines() == ["and then"])


def test_a_session_whose_buffer_was_deleted_has_it_again_beside_the_others(two):
    before = two.transcript_text()
    two.lua("vim.api.nvim_buf_delete(require('sanderling').transcript().buf, { force = true })")
    two.command("AgentChat")
    wait_until(lambda: two.transcript_text() == before)
    assert len(sessions(two)) == 2


def test_what_waits_in_a_session_whose_prompt_is_deleted_waits_on(chat):
    queue(chat, "and then")
    chat.command("bwipeout!")
    chat.command("AgentChat")
    chat.wait_for_screen("1 queued")
    assert "internal error" not in chat.messages()


def test_what_comes_back_while_text_is_locked_comes_back_afterwards(chat):
    queue(chat, "and then")
    chat.lua(
        "vim.keymap.set('n', '<F2>', function() vim.fn.getchar() return '' end, { expr = true })"
    )
    chat.feed("<F2>")
    chat.lua("""
      local id = require('sanderling.session.live').current_id()
      require('sanderling.host').receive({ session_id = id, events = {
        { type = 'prompts_returned', prompts = { { id = '1', text = 'locked' } } },
      } })
    """)
    assert chat.prompt_lines() == [""]
    chat.feed("x")
    wait_until(lambda: chat.prompt_lines() == ["locked"])


def test_autocommands_tell_what_opens_changes_and_closes(chat):
    wait_until(lambda: len(chat.events("AgentSessionOpened")) == 1)
    chat.command("AgentNew")
    first, second = [each["id"] for each in sessions(chat)]
    wait_until(lambda: len(chat.events("AgentSessionOpened")) == 2)
    opened = chat.events("AgentSessionOpened")
    assert [each["session_id"] for each in opened] == [first, second]
    assert not opened[0]["is_resumed"]
    assert opened[0]["project"] == str(chat.project)
    assert chat.events("AgentSessionChanged")[-1] == {"session_id": second, "previous_id": first}
    chat.command("Agent close")
    assert chat.events("AgentSessionClosed") == [{"session_id": second}]
    assert chat.events("AgentSessionChanged")[-1] == {"session_id": first, "previous_id": second}


def test_a_killed_host_is_told_in_both_and_each_goes_on_in_its_own_transcript(two):
    os.kill(two.host_pid(), signal.SIGKILL)
    two.wait_for_transcript("exited (signal 9)")
    for text in ("second", "first"):
        assert two.transcript_text().count("exited (signal 9)") == 1
        two.say("more")
        said = two.transcript_text()
        assert said.count(f"## You\n\n{text}\n") == 1
        assert said.endswith("## You\n\nmore\n\n## Sanderling\n\nanswered")
        two.feed("\\p")
        wait_until(lambda text=text: f"## You\n\n{text}\n" not in two.transcript_text())
    assert len(two.session_files()) == 2


def test_a_question_of_a_session_in_the_background_says_who_asks_and_its_answer_goes_there(
    start_agent,
):
    use = {"name": "bash", "input": {"command": "echo from the first > made.txt"}}
    child = start_agent(
        {"when": "work", "step": [{"delay_ms": 300}, {"tool_use": use}]},
        {"repeat": True, "step": [{"text": "answered"}]},
    )
    child.command("AgentChat")
    child.feed("iwork<C-s><Esc>")
    child.wait_for_transcript("## You\n\nwork")
    child.command("AgentNew")
    child.wait_for_question()
    assert "Session “work” asks." in child.screen_text()
    child.feed("\\p")
    wait_until(lambda: "asks." not in child.screen_text())
    child.feed("\\n")
    child.wait_for_screen("Session “work” asks.")
    child.answer_question("a")
    assert (child.project / "made.txt").read_text() == "from the first\n"
    assert child.transcript() == [""]


@quick
def test_jobs_and_todo_lists_are_those_of_the_session_that_is_shown(screen):
    job = {"id": "1", "command": "make", "outcome": ""}
    item = {"content": "mend it", "status": "pending"}
    screen.send({"type": "jobs_changed", "jobs": [job]}, {"type": "todo_changed", "items": [item]})
    assert screen.lua("return require('sanderling.screens.jobs').complete('')") == ["1"]
    screen.wait_for_screen("mend it")
    screen.command("AgentNew")
    assert screen.lua("return require('sanderling.screens.jobs').complete('')") == []
    assert "mend it" not in screen.screen_text()
    screen.command("Agent todo")
    assert "No todo list yet" in screen.messages()
    screen.feed("\\p")
    screen.wait_for_screen("mend it")


# --- what waits --------------------------------------------------------------------------------------------------------


def test_stopping_gives_back_what_waits_in_its_own_prompt(chat):
    queue(chat, "later")
    chat.command("AgentNew")
    chat.feed("iother<Esc>\\p")
    chat.wait_for_transcript("begun")
    chat.feed("<C-c>")
    wait_until(lambda: chat.prompt_lines() == ["later"])
    chat.feed("\\n")
    wait_until(lambda: chat.prompt_lines() == ["other"])


def test_the_second_key_steers_and_without_a_turn_it_asks(start_agent):
    use = {"name": "bash", "input": {"command": "sleep 0.5"}}
    child = start_agent(
        {"when": "work", "step": [{"tool_use": use}]},
        {"repeat": True, "step": [{"text": "answered"}]},
        setup={"permissions": [{"action": "allow", "tool": "bash", "command": "sleep 0.5"}]},
    )
    child.command("AgentChat")
    child.feed("iwork<C-s>")
    child.wait_for_transcript("bash")
    child.feed("with care<M-s>")
    child.wait_for_turns()
    assert "with care" in child.transcript_text()
    assert len(child.events("AgentTurnEnded")) == 1
    assert child.prompt_lines() == [""]
    child.feed("on my own<M-s>")
    child.wait_for_turns(2)
    assert child.transcript_text().endswith("## You\n\non my own\n\n## Sanderling\n\nanswered")


def test_what_waited_when_the_host_was_killed_is_held_until_it_is_sent_from_an_empty_prompt(chat):
    chat.feed("islow<C-s><Esc>")
    chat.wait_for_transcript("begun")
    chat.feed("ilater<C-s><Esc>")
    # A prompt that the host has not confirmed comes back.
    chat.wait_for_screen("↳ later")
    os.kill(chat.host_pid(), signal.SIGKILL)
    chat.wait_for_transcript("exited (signal 9)")
    assert chat.prompt_lines() == [""]
    chat.command("AgentChat")
    chat.command("AgentChat")
    chat.wait_for_screen("held")
    chat.feed("<Esc><CR>")
    chat.wait_for_transcript("## You\n\nlater\n")
    assert chat.prompt_lines() == [""]


# --- earlier ones ------------------------------------------------------------------------------------------------------


@pytest.fixture
def again(scripted):
    """Start Neovim once more, with a chat, after one in which `prompts` were sent."""

    def start(*prompts, chat=True):
        before = scripted(ANSWERS)
        before.command("AgentChat")
        for prompt in prompts:
            before.say(prompt)
        host = before.host_pid()
        before.close()
        wait_until(lambda: not is_alive(host), "its host lets go of the session")
        child = scripted(ANSWERS)
        child.lua(CATCH_CHOICES)
        if chat:
            child.command("AgentChat")
        return child

    return start


def test_an_empty_transcript_says_that_the_last_conversation_can_go_on_until_something_is_said(
    again,
):
    child = again("remember me")
    child.wait_for_screen(":AgentResume continues “remember me”, just")
    child.say("hello")
    assert "AgentResume" not in child.screen_text()


def test_without_an_earlier_conversation_nothing_is_said_of_one(chat):
    chat.say("hello")
    chat.command("AgentNew")
    answered = chat.lua("""
      local done = false
      require('sanderling.host').request({ type = 'list_sessions' }, function() done = true end)
      return vim.wait(60000, function() return done end)
    """)
    assert answered
    assert "AgentResume" not in chat.screen_text()


def test_resuming_takes_the_place_of_an_empty_session_shows_the_end_and_knows_what_was_said(again):
    child = again("long", "short")
    child.command("AgentResume")
    wait_until(lambda: child.transcript_text().rstrip().endswith("answered"))
    assert len(sessions(child)) == 1
    assert "answered" in child.screen_text()
    assert title(child) == "long"
    assert child.transcript_text().count("## You") == 2
    assert child.in_transcript("foldclosedend(search('^Thinking$', 'bw'))") > 0
    assert child.events("AgentSessionOpened")[-1]["is_resumed"]
    child.say("and on")
    (log,) = child.session_files()
    prompts = [
        record["prompt"]["text"]
        for record in map(json.loads, log.read_text().splitlines())
        if record["type"] == "prompt"
    ]
    assert prompts == ["long", "short", "and on"]


def test_resuming_beside_a_conversation_leaves_that_alone(again):
    child = again("earlier")
    child.say("now")
    child.command("AgentResume")
    child.wait_for_transcript("## You\n\nearlier\n")
    assert [each["name"] for each in sessions(child)] == ["now", "earlier"]
    child.command("AgentResume")
    child.wait_for_message("no other session to resume")


@pytest.mark.parametrize("has_earlier", [True, False])
def test_who_resumes_learns_that_the_newest_session_is_open_elsewhere(
    again, scripted, *, has_earlier
):
    chat = again("earlier") if has_earlier else scripted(ANSWERS)
    chat.open_chat()
    chat.say("newest")
    other = scripted(ANSWERS)
    other.command("AgentResume")
    if has_earlier:
        other.wait_for_message("“newest” is open elsewhere; this is the one before.")
        other.wait_for_transcript("## You\n\nearlier\n")
    else:
        other.wait_for_message("“newest” is open elsewhere, and there is no other one to resume.")


def test_a_session_is_resumed_by_its_id_which_completes_from_its_title(again):
    child = again("the one", chat=False)
    session_id = child.session_files()[0].stem
    assert child.lua("return vim.fn.getcompletion('AgentResume ', 'cmdline')") == [session_id]
    child.command(f"AgentResume {session_id}")
    wait_until(lambda: sessions(child))
    child.wait_for_transcript("## You\n\nthe one\n")
    assert child.lua("return vim.fn.getcompletion('AgentResume 20', 'cmdline')") == [session_id]
    assert child.lua("return vim.fn.getcompletion('AgentResume The', 'cmdline')") == [session_id]
    child.command("AgentResume 20010101-000000-aaaa")
    child.wait_for_message("There is no session 20010101-000000-aaaa")
    assert len(child.session_files()) == 1


@quick
def test_the_sessions_are_offered_newest_first_with_what_can_be_done(again):
    child = again("alpha")
    child.say("beta")
    child.command("AgentSessions")
    lines = wait_for_choice(child)
    assert [line.split(" · ")[0] for line in lines] == ["beta", "alpha"]
    assert lines[0].endswith("kB · open")
    assert "just now" in lines[1]
    assert "open" not in lines[1]
    choose(child, "alpha")
    assert wait_for_choice(child, 2) == ["Resume", "Rename", "Fork", "Export as Markdown", "Delete"]
    choose(child, "Resume", 2)
    child.wait_for_transcript("## You\n\nalpha\n")


def test_a_search_shows_where_it_was_said(again):
    child = again("alpha", "the needle in here")
    child.say("beta")
    child.command("AgentSessions NEEDLE")
    (line,) = wait_for_choice(child)
    assert line.startswith("alpha")
    assert "the needle in here" in line
    child.command("AgentSessions nothing like it")
    child.wait_for_message("No session of this project contains “nothing like it”")


def test_sessions_of_other_projects_are_offered_with_a_bang(again, tmp_path):
    child = again("alpha", chat=False)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    child.command(f"cd {elsewhere}")
    child.command("AgentSessions")
    child.wait_for_message("No session of this project yet.")
    child.command("AgentSessions!")
    (line,) = wait_for_choice(child)
    assert str(child.project) in line
    choose(child, "alpha")
    choose(child, "Resume", 2)
    child.wait_for_transcript("## You\n\nalpha\n")
    assert sessions(child)[0]["project"] == str(child.project)


def test_who_has_gone_on_to_something_else_is_not_interrupted_by_the_list(again):
    child = again("alpha")
    child.lua("""
      require('sanderling').choose_session()
      vim.cmd.wincmd('h')
    """)
    child.wait_for_message("Sessions loaded")
    assert child.lua("return #_G.choices") == 0


def test_an_earlier_session_is_renamed_and_deleted_when_that_is_confirmed(again):
    child = again("alpha")
    child.lua("vim.ui.input = function(opts, answer) _G.default = opts.default answer('Other') end")
    child.command("AgentSessions")
    choose(child, "alpha")
    choose(child, "Rename", 2)
    child.wait_for_message("renamed to “Other”")
    assert child.lua("return _G.default") == "alpha"
    (log,) = [path for path in child.session_files() if "alpha" in path.read_text()]
    for count, answer in ((3, "Keep"), (6, "Delete it")):
        child.command("AgentSessions")
        choose(child, "Other", count)
        choose(child, "Delete", count + 1)
        choose(child, answer, count + 2)
    wait_until(lambda: not log.exists())
    child.wait_for_message("Deleted “Other”.")


def test_the_current_session_is_renamed(chat):
    chat.command("Agent rename")
    assert "This session is empty" in chat.messages()
    chat.say("hello")
    chat.command("Agent rename A better name")
    wait_until(lambda: title(chat) == "A better name")


def test_what_was_typed_for_a_path_does_not_stay_on_the_screen(chat):
    chat.say("hello")
    chat.feed(":Agent export<CR>")
    wait_until(lambda: chat.mode() == "c")
    chat.feed("<C-u><CR>")
    wait_until(lambda: chat.mode() == "n")
    assert not any("Export to" in row for row in chat.screen())


def test_a_session_is_exported_to_the_path_that_is_given_and_to_no_file_that_is_there(chat):
    chat.say("mend / there")
    chat.lua("vim.ui.input = function(opts, answer) _G.default = opts.default answer(nil) end")
    chat.command("Agent export")
    assert chat.lua("return _G.default") == "mend there.md"
    for _ in range(2):
        chat.command("Agent export notes.md")
    chat.wait_for_transcript("notes.md already exists")
    chat.wait_for_message("Exported to notes.md")
    text = (chat.project / "notes.md").read_text()
    assert "mend / there" in text
    assert "answered" in text


# --- forks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [22, 24])
def test_a_fork_shows_the_end_of_a_last_line_that_is_wrapped(chat, height):
    chat.lua("vim.o.lines = ...", height)
    chat.say("wrapped")
    chat.command("Agent fork")
    chat.wait_for_screen("2/2 wrapped", "the very end")
    assert title(chat) == "wrapped (fork)"


@pytest.mark.parametrize(
    "line, number, kept, typed",
    [
        ("## You", 2, ["one"], ["two"]),
        ("two", 1, ["one"], ["two"]),
        ("answered", 2, ["one", "two"], [""]),
        ("", 0, ["one", "two", "three"], [""]),
    ],
)
def test_a_fork_ends_where_the_cursor_is(chat, line, number, kept, typed):
    for text in ("one", "two", "three"):
        chat.say(text)
    original = chat.session_files()[0]
    before = original.read_text()
    if line:
        lnums = [lnum for lnum, each in enumerate(chat.transcript(), 1) if each == line]
        chat.feed(f"<C-w>k{lnums[number - 1]}G")
    chat.feed(":Agent fork<CR>")
    wait_until(lambda: len(sessions(chat)) == 2)

    def prompts():
        lines = chat.transcript()
        return [lines[n + 2] for n, each in enumerate(lines) if each == "## You"]

    wait_until(lambda: prompts() == kept, f"{kept} in the fork")
    wait_until(lambda: chat.prompt_lines() == typed)
    assert chat.lua("return vim.bo.filetype") == "sanderling_prompt"
    assert original.read_text() == before


@pytest.fixture
def elsewhere(chat, scripted):
    """Another Neovim that wants to resume the session of `chat`, and the log of that."""
    chat.say("mine")
    (log,) = chat.session_files()
    other = scripted(ANSWERS)
    other.lua(CATCH_CHOICES)
    other.command(f"AgentResume {log.stem}")
    return other, log


def test_a_session_that_another_neovim_has_open_is_offered_as_a_fork(chat, elsewhere):
    other, log = elsewhere
    choose(other, "Fork it")
    other.wait_for_transcript("## You\n\nmine\n")
    assert len(sessions(other)) == 1
    assert current_id(other) != log.stem
    before = log.read_text()
    other.say("yours")
    chat.say("mine again")
    assert "yours" not in log.read_text()
    assert log.read_text().startswith(before)


def test_who_leaves_a_session_that_another_neovim_has_open_has_an_empty_one(elsewhere):
    other, log = elsewhere
    choose(other, "Leave it")
    assert current_id(other) != log.stem
    other.feed("ihello<C-s><Esc>")
    other.wait_for_turns(2)  # the first is the end of what could not be opened
    assert other.transcript()[-1] == "answered"


# --- requests ----------------------------------------------------------------------------------------------------------


def test_a_request_starts_the_host_and_one_that_a_dying_host_leaves_is_answered_with_an_error(
    start_nvim,
):
    child: ChildNvim = start_nvim()
    ask = """
      _G.results = {}
      for _ = 1, 20 do
        require('sanderling.host').request({ type = 'list_sessions' }, function(result)
          table.insert(_G.results, result)
        end)
      end
    """
    child.lua(ask)
    wait_until(lambda: len(child.lua("return _G.results")) == 20)
    assert child.lua("return _G.results[1].sessions") == []
    pid = child.host_pid()
    os.kill(pid, signal.SIGSTOP)
    child.lua(ask)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(child.lua("return _G.results")) == 20)
    assert "exited" in child.lua("return _G.results[20].error")


@quick
def test_a_request_that_no_host_can_be_started_for_is_answered_with_the_reason(child):
    child.setup(python="/no/such/python")
    child.lua("""
      require('sanderling.host').request({ type = 'list_sessions' }, function(result)
        _G.result = result
      end)
    """)
    assert "cannot be run" in wait_until(lambda: child.lua("return _G.result"))["error"]


@quick
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("what", ["shared/.git", "shared"])
def test_repository_that_another_user_has_made_above_is_not_the_project(child, tmp_path, what):
    shared = tmp_path / "shared"
    deep = shared / "mine" / "deep"
    deep.mkdir(parents=True)
    (shared / ".git").mkdir()
    child.command(f"cd {deep}")
    root = "return require('sanderling.session.stored').root_here()"
    child.command(f"edit {deep}/file")
    assert child.lua(root) == str(shared)
    os.chown(tmp_path / what, 12345, 12345)
    assert child.lua(root) == str(deep)
    (shared / "mine" / ".git").write_text("gitdir: elsewhere\n")
    assert child.lua(root) == str(shared / "mine")
    child.command("enew")
    assert child.lua(root) == str(shared / "mine")
