"""The chat's windows and buffers in the hands of a person, their plugins and their other windows."""

import fcntl
import re
from pathlib import Path

import pytest
from tests.conftest import ChildNvim, is_alive, prove_rest, prove_unless_quick, quick, wait_until
from tests.nvim.conftest import filetypes

pytestmark = prove_unless_quick

PONG = "pong"


@pytest.fixture
def agent_in_chat(start_agent):
    agent = start_agent({"step": [{"text": "pong"}]})
    agent.command("AgentChat")
    return agent


# --- autocommands that fail -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event", ["BufNew", "OptionSet", "BufAdd", "BufFilePre", "BufFilePost", "FileType"]
)
def test_an_autocommand_of_the_users_that_fails_is_not_in_the_way_of_the_chat(child, event):
    child.lua(
        "vim.api.nvim_create_autocmd(..., { callback = function() error('not today') end })", event
    )
    child.command("AgentChat")
    assert not child.is_blocked()
    child.say("ping")
    assert child.transcript()[-1] == PONG
    assert not child.is_blocked()
    child.feed(":Agent help<CR>")
    child.wait_for_screen("Commands")
    child.feed("q")
    wait_until(lambda: "Commands" not in child.screen_text())
    assert "not today" not in child.screen_text()


# --- buffers that somebody deletes or empties -------------------------------------------------------------------------

# Long enough that the turn still runs when a buffer goes, however busy the machine is.
SLOW = {"step": [{"text": "begun"}, {"delay_ms": 2000}, {"text": " and done"}]}


def buffer_of(child: ChildNvim, filetype: str) -> int:
    return child.lua(
        """
        for _, buf in ipairs(vim.api.nvim_list_bufs()) do
          if vim.bo[buf].filetype == ... and vim.api.nvim_buf_is_loaded(buf) then return buf end
        end
        """,
        filetype,
    )


@pytest.mark.parametrize("which", ["sanderling", "sanderling_prompt"])
@pytest.mark.parametrize(
    "command", ["bwipeout! {}", "bdelete! {}", "bunload! {}", "noautocmd bwipeout! {}", "%bdelete!"]
)
def test_a_turn_goes_on_when_a_buffer_of_the_chat_is_deleted_and_stands_in_the_next_one(
    start_agent, which, command
):
    agent = start_agent(SLOW, {"step": [{"text": "second"}]})
    agent.command("AgentChat")
    agent.feed("igo<C-s>half typed<Esc>")
    agent.wait_for_screen("begun")
    agent.command(command.format(buffer_of(agent, which)))
    agent.wait_for_screen("Still running in the background. :AgentChat shows it")
    assert "begun" not in agent.screen_text()
    agent.wait_for_turns()
    assert agent.events("AgentTurnEnded")[0]["stop_reason"] == "end_turn"
    agent.command("AgentChat")
    screen = agent.wait_for_screen("▍You", " and done", "half typed")
    assert "[No Name]" not in screen.split("\n")[0]
    assert agent.messages().count("internal error") == 0
    assert agent.lua("return #vim.api.nvim_list_wins()") == 3
    agent.feed("<C-s>")
    agent.wait_for_turns(2)
    agent.wait_for_screen("second")


@pytest.mark.parametrize("which", ["sanderling", "sanderling_prompt"])
@pytest.mark.parametrize("command", ["edit", "edit!", "noautocmd edit"])
def test_edit_in_a_window_of_the_chat_leaves_it_as_it_was(start_agent, which, command):
    agent = start_agent(
        {
            "step": [
                {"thinking": "a\nb\nc"},
                {"text": "begun"},
                {"delay_ms": 500},
                {"text": " and done"},
            ]
        }
    )
    agent.command("AgentChat")
    agent.feed("igo<C-s>half typed<Esc>")
    agent.wait_for_screen("begun")
    if which == "sanderling":
        agent.command("wincmd k")
    agent.command(command)
    agent.wait_for_turns()
    agent.wait_for_screen("▍You", "▸ Thinking", " and done", "half typed")
    assert not agent.messages().count("internal error")


def test_a_question_waits_on_when_the_chat_is_wiped(start_agent):
    agent = start_agent(
        {"step": [{"tool_use": {"name": "write", "input": {"path": "new.txt", "content": "x\n"}}}]},
        {"step": [{"text": "written"}]},
    )
    agent.command("AgentChat")
    agent.feed("igo<C-s><Esc>")
    agent.wait_for_question()
    agent.command("%bwipeout!")
    agent.command("AgentChat")
    agent.wait_for_question()
    assert agent.events("AgentTurnEnded") == []
    agent.command("AgentAllow")
    agent.wait_for_turns()
    agent.wait_for_screen("written", "write new.txt")


# --- where the transcript stands --------------------------------------------------------------------------------------


def long_answer(mark: str, count: int = 60) -> dict:
    return {"step": [{"text": "\n".join(f"{mark} {n}" for n in range(1, count + 1))}]}


@quick
def test_what_is_sent_is_seen_wherever_the_transcript_stood(start_agent):
    agent = start_agent(long_answer("first"), long_answer("second"))
    agent.chat("go")
    agent.command("wincmd k")
    agent.feed("gg")
    wait_until(lambda: "first 60" not in agent.screen_text())
    agent.feed("<C-w>jimore<C-s>")
    agent.wait_for_turns(2)
    agent.wait_for_screen("second 60")


def test_text_that_arrives_moves_no_view_that_has_left_the_end(start_agent):
    agent = start_agent(
        long_answer("first"),
        {"step": [{"text": "now"}, {"delay_ms": 500}, {"text": "\nthen " * 60}]},
    )
    agent.chat("go")
    agent.feed("imore<C-s><PageUp><PageUp>")
    agent.wait_for_screen("first 20")
    agent.wait_for_turns(2)
    assert "then" not in agent.screen_text()
    assert "first 20" in agent.screen_text()


@pytest.mark.parametrize("mode", ["n", "i"])
def test_keys_of_the_prompt_turn_the_pages_of_the_transcript(start_agent, mode):
    agent = start_agent(long_answer("line", 200), long_answer("second", 3))
    agent.command("AgentChat")
    agent.feed("igo<C-s>" + ("<Esc>" if mode == "n" else ""))
    agent.wait_for_turns()
    agent.wait_for_screen("line 200")
    agent.feed("<PageUp>")
    wait_until(lambda: "line 200" not in agent.screen_text())
    agent.feed("<PageUp><PageUp>")
    wait_until(lambda: "line 130" not in agent.screen_text())
    agent.feed("<C-End>")
    agent.wait_for_screen("line 200")
    agent.feed("<PageUp><PageDown>")
    agent.wait_for_screen("line 200")
    assert agent.mode() == mode
    assert agent.prompt_lines() == [""]
    agent.submit_and_wait("more")
    agent.wait_for_screen("second 3")


@quick
def test_who_is_at_the_end_of_a_tall_paragraph_and_goes_to_the_end_stays_there(screen):
    screen.lua("vim.o.lines = 18")
    screen.in_a_turn("some words " * 60 + "finally")
    for key in ("<C-End>", "<PageDown>", "<C-End>"):
        screen.feed(key)
        assert "finally" in screen.screen_text()


def test_a_question_about_many_lines_leaves_the_transcript_as_full_as_it_was(start_agent, project):
    code = project / "code.py"
    code.write_text("".join(f"line_{n} = {n}\n" for n in range(1, 24)))
    agent = start_agent(*[{"step": [{"text": f"answer {n}"}]} for n in range(1, 4)])
    agent.command(f"edit {code}")
    agent.open_chat(focus=False)
    for n in range(1, 4):
        agent.feed(":%AgentAsk what is this?<CR>")
        agent.wait_for_turns(n)
    screen = agent.wait_for_screen("answer 1", "answer 2", "answer 3")
    assert screen.count("▸ code.py:1-23 · 23 lines") == 3


def test_insert_in_a_transcript_whose_prompt_was_closed_by_only_opens_it_again(child):
    child.command("AgentChat")
    child.say("ping")
    child.feed("<C-w>k:only<CR>")
    wait_until(lambda: child.lua("return #vim.api.nvim_list_wins()") == 1)
    child.say("ping")
    assert child.lua("return #vim.api.nvim_list_wins()") == 2
    assert child.lua("return vim.bo.filetype") == "sanderling_prompt"
    child.feed("\\q")
    wait_until(lambda: child.lua("return vim.bo.filetype") == "")


# --- sizes ------------------------------------------------------------------------------------------------------------


def sizes(child: ChildNvim) -> dict[str, tuple[int, int]]:
    return {
        filetype: (width, height)
        for filetype, width, height in child.lua("""
          vim.cmd.redraw()
          return vim.tbl_map(function(win)
            return { vim.bo[vim.api.nvim_win_get_buf(win)].filetype,
              vim.api.nvim_win_get_width(win), vim.api.nvim_win_get_height(win) }
          end, vim.api.nvim_tabpage_list_wins(0))
        """)
        if filetype.startswith("sanderling")
    }


@quick
@pytest.mark.parametrize(
    "position", prove_rest(["right", "bottom", "left", "top", "tab", "current"], keep=[0])
)
@pytest.mark.parametrize(
    "split",
    prove_rest(["botright copen", "botright vnew", "topleft new", "new", "topleft vnew"], [0]),
)
def test_the_chat_has_its_size_again_when_another_window_has_come_and_gone(child, position, split):
    child.open_chat(position=position)
    child.command("wincmd p" if position not in ("tab", "current") else "wincmd k")
    before = sizes(child)
    child.lua("pcall(vim.cmd, ...)", split)
    child.feed("<Ignore>")
    sizes(child)
    child.command("close")
    wait_until(lambda: sizes(child) == before, f"{before}, not {sizes(child)}")


def test_a_size_that_a_person_gave_the_chat_is_what_it_has_again(child):
    child.command("AgentChat")
    child.feed(":resize 9<CR>")
    wait_until(lambda: sizes(child)["sanderling_prompt"][1] == 9)
    child.feed(":vertical resize 30<CR>")
    wait_until(lambda: sizes(child)["sanderling_prompt"][0] == 30)
    child.feed(":botright copen<CR>")
    wait_until(lambda: child.lua("return vim.bo.buftype") == "quickfix")
    child.feed(":cclose<CR>")
    wait_until(lambda: child.lua("return vim.bo.buftype") != "quickfix")
    wait_until(lambda: sizes(child)["sanderling_prompt"] == (30, 9))


@quick
@pytest.mark.parametrize(
    "position, size, expected",
    prove_rest(
        [
            ("right", 0.5, {(60, 40): (30, None), (120, 40): (60, None)}),
            ("bottom", 0.5, {(120, 20): (120, 10), (120, 40): (120, 20)}),
            ("right", 40, {(60, 40): (40, None), (120, 40): (40, None)}),
        ]
    ),
)
def test_a_share_of_the_screen_stays_one_when_the_screen_changes(child, position, size, expected):
    child.open_chat(position=position, size=size)

    def extent():
        found = sizes(child)
        width, height = found["sanderling"]
        return width, height + found["sanderling_prompt"][1] + 1

    for (columns, lines), (width, height) in expected.items():
        child.rpc.request("nvim_ui_try_resize", columns, lines)
        wait_until(
            lambda w=width, h=height: extent()[0] == w and h in (None, extent()[1]), f"{extent()}"
        )


@quick
@pytest.mark.parametrize("kept", prove_rest(["sanderling", "sanderling_prompt"], (-1,)))
def test_only_in_a_tab_page_of_the_chat_keeps_the_window_and_the_page(child, kept):
    child.open_chat(position="tab")
    if kept == "sanderling":
        child.command("wincmd k")
    child.feed(":only<CR>")
    wait_until(lambda: len(sizes(child)) == 1)
    assert child.lua("return { #vim.api.nvim_list_tabpages(), vim.bo.filetype }") == [2, kept]


def test_closing_a_window_of_a_chat_in_a_tab_page_closes_the_page(child):
    child.open_chat(position="tab")
    child.feed(":close<CR>")
    wait_until(lambda: child.lua("return #vim.api.nvim_list_tabpages()") == 1)


@quick
def test_code_beside_the_chat_keeps_the_colors_of_its_syntax(child):
    (child.project / "code.py").write_text("def f():\n    return 1\n")
    child.command("edit code.py")
    child.open_chat(focus=False)
    child.command("Agent help | close")
    child.command("wincmd t")
    syntax = "return { vim.bo.syntax, vim.fn.synIDattr(vim.fn.synID(1, 1, 1), 'name') }"
    assert child.lua(syntax) == ["python", "pythonStatement"]


# --- what windows and buffers are called ------------------------------------------------------------------------------


def test_a_statusline_a_tab_and_a_list_of_buffers_call_the_chat_by_names_for_people(child):
    child.command("set laststatus=3 showtabline=2")
    child.open_chat(position="tab")
    child.say("ping")

    def statusline():
        return next((row.rstrip() for row in child.screen()[-3:] if row.strip()), "")

    wait_until(lambda: re.search("^ Sanderling: idle · .* sbx:.* net:off$", statusline()))
    assert "[Sanderling prompt]" in child.screen()[0]
    child.command("wincmd k")
    wait_until(lambda: re.search("^ Sanderling: idle · .* net:off  +All$", statusline()))
    child.command("wincmd j")
    child.command("AgentNew")
    wait_until(lambda: "[Sanderling prompt 2]" in child.screen()[0])
    child.command("Agent help")
    names = child.lua("return vim.tbl_map(vim.fn.bufname, vim.api.nvim_list_bufs())")
    assert not [name for name in names if "://" in name or name == "[Scratch]"]
    assert "[Sanderling commands]" in names


@quick
def test_a_statusline_of_the_users_is_left_alone(child):
    child.command("set laststatus=2 statusline=mine:%f")
    child.command("AgentChat")
    assert "mine:[Sanderling prompt]" in child.screen_text()
    assert "mine:[Sanderling]" in child.screen_text(), child.screen_text()


@pytest.mark.parametrize("key", ["/", "?"])
def test_a_search_that_is_given_up_at_the_end_goes_on_following(start_agent, key):
    agent = start_agent(
        {"step": [{"text": "begun\n"}, {"delay_ms": 700}, {"text": "then\n" * 60 + "last"}]}
    )
    agent.command("set incsearch")
    agent.command("AgentChat")
    agent.feed("igo<C-s><Esc><C-w>k")
    agent.wait_for_screen("begun")
    agent.feed(f"{key}beg")
    wait_until(lambda: agent.mode() == "c")
    agent.wait_for_turns()
    agent.feed("<Esc>")
    agent.wait_for_screen("last")


def test_a_refusal_without_a_line_for_messages_is_seen_and_asks_for_nothing(start_agent):
    agent = start_agent({"step": [{"text": "begun"}, {"delay_ms": 60000}]})
    agent.command("set cmdheight=0 showtabline=0")
    agent.command("AgentChat")
    agent.feed("igo<C-s>")
    agent.wait_for_screen("begun")
    agent.lua("require('sanderling').submit(('x'):rep(20 * 1024 * 1024))")
    agent.wait_for_screen("prompt")
    wait_until(lambda: not agent.is_blocked())
    agent.feed("typed")
    wait_until(lambda: agent.prompt_lines() == ["typed"])
    agent.feed("<Esc>:Agent todo<CR>")
    agent.wait_for_screen("No todo list yet")
    assert not agent.is_blocked()


def test_a_refusal_while_text_is_inserted_is_seen_until_it_can_have_been_read(agent_in_chat):
    agent = agent_in_chat
    agent.feed("i/close now<C-s>")
    agent.wait_for_screen("/close takes")
    agent.command("redraw!")
    assert "/close takes" in agent.screen_text()
    assert agent.prompt_lines() == ["/close now"]
    assert agent.messages().count("/close takes") == 1


def test_a_message_that_is_longer_than_the_line_is_shown_whole(start_agent):
    agent = start_agent(columns=60, lines=20)
    agent.feed(":AgentResume 20260101-000000-abcd<CR>")
    agent.wait_for_screen("There is no session 20260101-000000-abcd", ":AgentSessions", "them.")
    assert not agent.is_blocked()
    assert agent.messages().endswith("…")
    agent.feed(":echo 1")
    wait_until(lambda: agent.screen()[-1] == ":echo 1", "what is typed is seen at once")
    agent.feed("<C-u>AgentResume 20260101-000000-abcd<CR>")
    agent.wait_for_screen("them.")
    agent.lua("require('sanderling.ui.message').tell('short')")
    wait_until(lambda: agent.screen()[-1].startswith("short"))


@quick
@pytest.mark.parametrize(
    "command, told",
    [
        ("Agent terminal j99", "No job j99."),
        ("AgentNet bogus", "not 'bogus'."),
        ("Agent log", "has no log yet"),
    ],
)
def test_no_command_asks_for_enter_where_there_is_no_line_for_messages(start_agent, command, told):
    agent = start_agent()
    agent.command("set cmdheight=0")
    agent.feed(f":{command}<CR>")
    wait_until(lambda: not agent.is_blocked() and told in agent.screen_text(), "it is told")


@quick
@pytest.mark.parametrize("position", prove_rest(["right", "bottom", "current"]))
def test_a_prompt_that_only_has_left_alone_is_not_there_twice(child, position):
    child.setup(chat={"position": position})
    child.command("AgentChat")
    child.feed("idraft<Esc>:only<CR>")
    wait_until(lambda: filetypes(child) == ["sanderling_prompt"])
    child.feed(":AgentChat<CR>")
    wait_until(lambda: filetypes(child) == ["sanderling", "sanderling_prompt"])
    assert child.lua("return vim.bo.filetype") == "sanderling_prompt"
    assert child.prompt_lines() == ["draft"]
    child.feed(":AgentChat<CR>")
    wait_until(lambda: filetypes(child) == [""], "all of it is hidden")


@quick
@pytest.mark.parametrize("command", prove_rest(["sandbox", "net", "mode"], keep=(0,)))
def test_a_wrong_word_behind_a_word_of_the_chat_is_one_line(agent_in_chat, command):
    agent_in_chat.feed(f":{command} bogus<CR>")
    wait_until(lambda: not agent_in_chat.is_blocked() and agent_in_chat.messages(), "it is told")
    assert "not 'bogus'." in agent_in_chat.messages()
    assert "traceback" not in agent_in_chat.messages()


@quick
def test_a_message_does_not_end_what_the_person_is_being_asked(start_agent):
    agent = start_agent()
    agent.lua("""
      vim.defer_fn(function()
        require('sanderling').setup({ modle = 'x' })
        vim.api.nvim_input('2<CR>')
      end, 50)
      vim.schedule(function()
        vim.ui.select({ 'one', 'two' }, { prompt = 'Which?' }, function(choice) _G.choice = choice end)
      end)
    """)
    wait_until(lambda: not agent.is_blocked() and agent.lua("return _G.choice"), "an answer")
    assert agent.lua("return _G.choice") == "two"
    assert "did you mean 'model'?" in agent.messages()


@quick
def test_messages_while_text_is_locked_leave_no_buffers(start_agent):
    agent = start_agent()
    agent.lua("""
      vim.keymap.set('n', '<F4>', function()
        for _ = 1, 5 do
          require('sanderling.ui.message').tell(('x'):rep(300))
        end
        return ''
      end, { expr = true })
    """)
    buffers = agent.lua("return #vim.api.nvim_list_bufs()")
    agent.feed("<F4>")
    assert agent.lua("return #vim.api.nvim_list_bufs()") <= buffers + 1


# --- what is not sent yet ---------------------------------------------------------------------------------------------


def drafts(child: ChildNvim) -> list:
    return sorted((child.home / "state" / "nvim" / "sanderling" / "drafts").glob("*.json"))


def is_free(log: Path) -> bool:
    """Whether no process holds its lock: one that was killed does until the last of its threads is gone."""
    with log.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_what_stands_unsent_in_a_prompt_outlives_a_neovim_that_is_killed(start_nvim):
    child = start_nvim()
    child.command("AgentChat")
    child.say("ping")
    child.feed("ihalf typed pro<CR>second line")
    wait_until(lambda: drafts(child))
    wait_until(lambda: "second line" in drafts(child)[0].read_text())
    assert drafts(child)[0].stat().st_mode & 0o777 == 0o600
    assert drafts(child)[0].parent.stat().st_mode & 0o777 == 0o700
    other = start_nvim()
    other.command("AgentChat")
    wait_until(lambda: other.events("AgentSessionOpened"))
    assert other.prompt_lines() == [""], "it stands in a Neovim that lives"
    host = child.host_pid()
    log = child.session_files()[0]
    child.close()
    wait_until(lambda: not is_alive(host) and is_free(log), "the session is free")
    other.command("AgentResume")
    wait_until(lambda: other.prompt_lines() == ["half typed pro", "second line"])
    other.feed("<C-w>jA!<C-s><Esc>")
    other.wait_for_turns()
    wait_until(lambda: drafts(other) == [])


def test_what_stands_unsent_where_nothing_was_said_comes_back_in_the_next_session(start_nvim):
    child = start_nvim()
    child.command("AgentChat")
    wait_until(lambda: child.events("AgentSessionOpened"))
    child.feed("ifirst words")
    wait_until(lambda: drafts(child) and "first words" in drafts(child)[0].read_text())
    child.close()
    other = start_nvim()
    other.command("AgentChat")
    wait_until(lambda: other.prompt_lines() == ["first words"])


def test_what_was_typed_just_before_neovim_was_left_is_kept(start_nvim):
    child = start_nvim()
    child.command("AgentChat")
    wait_until(lambda: child.events("AgentSessionOpened"))
    child.feed("ilast words<Esc>:qa!<CR>")
    wait_until(lambda: child.rpc.process.poll() is not None)
    assert "last words" in drafts(child)[0].read_text()


def test_what_may_hold_a_key_is_kept_in_no_draft(child):
    child.command("AgentChat")
    child.feed("iwords")
    wait_until(lambda: drafts(child))
    child.feed("<C-u>/login sk-secret")
    wait_until(lambda: child.prompt_lines() == ["/login sk-secret"])
    wait_until(lambda: drafts(child) == [])


def test_a_transcript_at_its_end_fills_its_window_after_a_resize_or_a_scroll_past_it(screen):
    lines = "".join(f"{n} {'word ' * 14}\n" for n in range(60))
    screen.in_a_turn(lines + "The end.")
    rows = "return vim.fn.line('w$', ...) - vim.fn.line('w0', ...)"
    screen.command("vertical resize 30")
    few = screen.lua(rows, screen.transcript_win())
    screen.feed(":vertical resize 90<CR>")
    wait_until(lambda: screen.lua(rows, screen.transcript_win()) > 2 * few, "it shows more lines")
    screen.lua("""
      vim.api.nvim_win_call(require('sanderling').transcript().win, function()
        vim.fn.winrestview({ topline = vim.fn.line('$') }) -- as a plugin that animates windows does
      end)
    """)
    screen.feed("<Ignore>")
    wait_until(lambda: screen.lua(rows, screen.transcript_win()) > 2 * few, "it shows more lines")


def test_a_user_in_the_transcript_can_scroll_its_last_line_to_the_top(screen):
    screen.in_a_turn("".join(f"{n}\n" for n in range(60)) + "The end.")
    screen.feed("<C-w>kGzt:let g:done = 1<CR>")
    wait_until(lambda: screen.lua("return vim.g.done") == 1)
    screen.screen()
    assert screen.in_transcript("line('w0') == line('$')")


def test_the_transcript_says_that_its_scrolling_is_not_to_be_animated(child):
    command = "autocmd FileType sanderling let b:set = [b:snacks_scroll, b:minianimate_disable]"
    child.command(command)
    child.command("AgentChat")
    buf = "vim.b[require('sanderling').transcript().buf]"
    assert child.lua(f"return {buf}.set") == [False, True]
