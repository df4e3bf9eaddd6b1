"""The chat's windows, keys and words, as a person uses them."""

import pytest
from tests.conftest import DEADLINE_S, prove, prove_rest, wait_until
from tests.nvim.conftest import filetypes as windows

NOTICE = "No API key: this is the demo model, which replays a script."


def current_filetype(child):
    return child.lua("return vim.bo.filetype")


def test_no_line_of_the_cursor_shows_behind_the_placeholder(child):
    child.lua("vim.o.cursorline = true")
    child.command("AgentChat")
    assert "Ask anything" in child.screen_text()
    assert not child.lua("return vim.wo.cursorline")


def test_agentchat_shows_a_transcript_over_a_prompt_and_puts_the_cursor_there(child):
    child.command("AgentChat")
    assert windows(child) == ["", "sanderling", "sanderling_prompt"]
    assert current_filetype(child) == "sanderling_prompt"
    assert child.mode() == "n"


def test_the_chat_may_open_with_neovim(start_nvim):
    child = start_nvim(commands=["AgentChat"])
    wait_until(lambda: child.lua("return vim.v.vim_did_enter") == 1)
    assert windows(child) == ["", "sanderling", "sanderling_prompt"]


@prove
def test_without_a_key_the_chat_says_that_the_demo_model_answers(child):
    child.command("AgentChat")
    wait_until(lambda: NOTICE in child.transcript_text())
    assert "the demo model" in child.screen_text()


def test_the_transcript_says_when_another_model_replaces_the_demo_model(child):
    child.command("AgentChat")
    wait_until(lambda: NOTICE in child.transcript_text())
    child.command("AgentModel mistral:small")
    child.wait_for_transcript("mistral:small answers from now on, not the demo model.")
    child.command("AgentModel mistral:large")
    wait_until(lambda: child.lua("return require('sanderling').status().model") == "mistral:large")
    assert "mistral:large answers" not in child.transcript_text()


@prove
def test_demo_model_that_was_chosen_says_nothing_of_a_missing_key(child):
    child.setup(model="demo")
    child.command("AgentChat")
    child.feed("iping<C-s>")
    child.wait_for_turns()
    assert NOTICE not in child.transcript_text()


@pytest.mark.parametrize(
    "keys", prove_rest(["iping<Esc><CR>", "iping<C-s>", "iping<Esc><C-s>"], keep=(0,))
)
def test_a_prompt_is_sent_from_either_mode_and_answered(child, keys):
    child.command("AgentChat")
    child.feed(keys)
    child.wait_for_turns()
    assert child.transcript()[-7:] == ["## You", "", "ping", "", "## Sanderling", "", "pong"]
    assert child.prompt_lines() == [""]
    assert child.events("AgentTurnEnded")[0]["stop_reason"] == "end_turn"


@prove
def test_enter_in_insert_mode_is_a_newline(child):
    child.command("AgentChat")
    child.feed("ione<CR>two<Esc>")
    wait_until(lambda: child.prompt_lines() == ["one", "two"])
    child.feed("<CR>")
    child.wait_for_transcript("## You\n\none\ntwo\n\n")


@prove
def test_enter_in_insert_mode_sends_when_the_user_wants_it(child):
    child.setup(keys={"send_insert": ["<C-s>", "<CR>"]})
    child.command("AgentChat")
    child.feed("iping<CR>")
    child.wait_for_turns()
    assert child.transcript()[-1] == "pong"


@prove
def test_an_empty_prompt_is_not_sent(child):
    child.command("AgentChat")
    wait_until(lambda: NOTICE in child.transcript_text())
    child.feed("i  <CR>  <Esc><CR>")
    child.feed("<Esc>")
    assert child.events("AgentTurnStarted") == []
    assert "## You" not in child.transcript_text()


@prove
def test_a_conversation_has_many_turns(child):
    child.command("AgentChat")
    for _ in range(3):
        child.say("ping")
    assert child.transcript().count("pong") == 3


@pytest.mark.parametrize(
    "keys, lines",
    prove_rest(
        [
            ("ialpha beta<Esc>bdwu", ["alpha beta"]),
            ("ialpha beta<Esc>yypwcwgamma<Esc>", ["alpha beta", "alpha gamma"]),
            ("ialphabet alp<C-x><C-n>", ["alphabet alphabet"]),
        ]
    ),
)
def test_the_prompt_is_an_ordinary_buffer_with_undo_and_completion(child, keys, lines):
    child.command("AgentChat")
    child.feed(keys)
    wait_until(lambda: child.prompt_lines() == lines)


@prove
def test_a_sent_prompt_comes_back_with_undo(child):
    child.command("AgentChat")
    child.feed("iping<Esc><CR>")
    child.wait_for_turns()
    child.feed("u")
    wait_until(lambda: child.prompt_lines() == ["ping"])


@prove
def test_the_transcript_cannot_be_changed_but_read_searched_and_yanked(child):
    child.chat("ping")
    child.feed("<C-w>k/pong<CR>yy")
    assert wait_until(lambda: child.lua("return vim.fn.getreg('\"')")) == "pong\n"
    assert child.lua("return vim.bo[require('sanderling').transcript().buf].modifiable") is False


@prove
def test_prompt_history_goes_back_and_forth_and_keeps_the_draft(child):
    child.command("AgentChat")
    for text in ("ping", "hello"):
        child.say(text)
    child.feed("idraft")
    for key, expected in [
        ("<M-p>", "hello"),
        ("<M-p>", "ping"),
        ("<M-p>", "ping"),
        ("<M-n>", "hello"),
        ("<M-n>", "draft"),
        ("<M-n>", "draft"),
    ]:
        child.feed(key)
        wait_until(
            lambda expected=expected: child.prompt_lines() == [expected], f"{key} → {expected}"
        )


@prove
def test_prompt_history_outlives_neovim_and_keeps_line_breaks(start_nvim):
    first = start_nvim()
    first.command("AgentChat")
    first.feed("ione<CR>two<Esc><CR>")
    first.wait_for_turns()
    second = start_nvim()
    second.command("AgentChat")
    second.feed("<M-p>")
    wait_until(lambda: second.prompt_lines() == ["one", "two"])
    path = first.home / "state" / "nvim" / "sanderling" / "prompt_history.jsonl"
    assert path.read_text() == '"one\\ntwo"\n'
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("keys", prove_rest(["\\q", "<C-w>k\\q", "<C-w>kq"], (-1,)))
def test_a_key_hides_the_chat_from_each_window(child, keys):
    child.command("AgentChat")
    child.feed(keys)
    wait_until(lambda: windows(child) == [""])


def mapped(child, modes):
    """What is mapped in this buffer alone, by the keys as they are typed."""
    return child.lua(
        """
        local found = {}
        for mode in (...):gmatch('.') do
          for _, map in ipairs(vim.api.nvim_buf_get_keymap(0, mode)) do
            found[#found + 1] = map.lhs
          end
        end
        return found
        """,
        modes,
    )


def test_in_the_prompt_vims_own_keys_do_what_they_do_everywhere(child):
    child.command("AgentChat")
    ours = {"<CR>", "<C-S>", "<C-C>", "<S-Tab>", "<M-p>", "<M-n>", "<M-m>", "<M-s>"}
    ours |= {f"\\{key}" for key in "abqwnpur"} | {"<PageUp>", "<PageDown>", "<C-End>", "]h", "[h"}
    ours |= {
        *("g?", "gf", "gF", "[f", "]f", "gx")
    }  # what is named here is opened by us, or not at all
    ours |= {f"<C-W>{key}" for key in ("f", "<C-F>", "F", "gf", "gF")}
    keys = {lhs for lhs in mapped(child, "nixso") if not lhs.startswith("<Plug>")}
    assert keys == ours
    child.feed("ione two three four five<C-g>u<Esc>:set textwidth=10<CR>gwip")
    wait_until(lambda: child.prompt_lines() == ["one two", "three four", "five"])
    child.feed("uqa0x<Esc>q@a")
    wait_until(lambda: child.prompt_lines() == ["e two three four five"])
    child.feed("ccfour fo<C-p>")
    wait_until(lambda: child.prompt_lines() == ["four four"])


@prove
def test_the_keys_follow_the_persons_localleader_on_the_screen_too(start_nvim):
    child = start_nvim(commands=["let maplocalleader = ' '"])
    child.setup(keys={"send_normal": "<LocalLeader>s", "send_insert": False})
    child.command("AgentChat")
    assert "Ask anything: <Space>s sends" in child.screen_text()
    child.feed("iping<Esc> s")
    child.wait_for_turns()
    child.feed(" q")
    wait_until(lambda: windows(child) == [""])


@prove
def test_the_keys_of_the_prompt_history_select_in_a_completion_menu(child):
    child.command("AgentChat")
    child.feed("iping<C-s>")
    child.wait_for_turns()
    child.feed("alpha alpine al<C-x><C-n>")
    wait_until(lambda: child.lua("return vim.fn.pumvisible()"))
    child.feed("<M-n>")
    wait_until(lambda: child.prompt_lines() == ["alpha alpine alpine"])
    child.feed("<M-p>")
    wait_until(lambda: child.prompt_lines() == ["alpha alpine alpha"])
    assert child.mode() == "ic"


def test_the_text_in_the_prompt_survives_hiding(child):
    child.command("AgentChat")
    child.feed("ihalf a thought<Esc>\\q")
    wait_until(lambda: windows(child) == [""])
    child.command("AgentChat")
    assert child.prompt_lines() == ["half a thought"]
    assert "half a thought" in child.screen_text()


LINES = "".join(f"line {n}\\n" for n in range(100))
MORE = "".join(f"more {n}\\n" for n in range(100))
LONG = f"""
[[reply]]
[[reply.step]]
thinking = "a\\nb\\nc"
[[reply.step]]
text = "{LINES}"
[[reply]]
[[reply.step]]
delay_ms = 150
text = "{MORE}"
chunk_chars = 20
chunk_delay_ms = 5
"""


@prove
def test_hiding_and_showing_keeps_cursor_scroll_and_folds_while_a_turn_goes_on(scripted):
    child = scripted(LONG)
    child.chat("go")
    child.feed("igo on<C-s><Esc><C-w>k")
    child.feed("gg/Thinking<CR>zo:40,50fold<CR>60Gzt5j3l")
    wait_until(lambda: child.in_transcript("line('.')") == 65)
    before = child.in_transcript("winsaveview()")
    folds = "[foldclosed(7), foldlevel(7), foldclosed(42), foldclosedend(42)]"
    open_and_closed = child.in_transcript(folds)
    assert open_and_closed == [-1, 1, 40, 50]
    child.feed("\\q")
    wait_until(lambda: windows(child) == [""])
    child.wait_for_turns(2)
    child.command("AgentChat")
    assert child.in_transcript("winsaveview()") == before
    assert child.in_transcript(folds) == open_and_closed
    assert "more 99" in child.transcript_text()


@prove
def test_a_chat_that_was_at_its_end_is_shown_at_its_end_again(scripted):
    child = scripted(LONG)
    child.chat("go")
    child.feed("igo on<C-s><Esc>\\q")
    child.wait_for_turns(2)
    child.command("AgentChat")
    assert "more 99" in child.screen_text()


@prove
def test_a_thinking_block_that_grew_while_hidden_is_one_closed_fold(scripted):
    child = scripted("""
[[reply]]
[[reply.step]]
thinking = "one\\ntwo\\nthree\\nfour\\nfive\\n"
chunk_chars = 2
chunk_delay_ms = 15
[[reply.step]]
text = "done"
""")
    child.command("AgentChat")
    child.feed("igo<C-s><Esc>")
    child.wait_for_transcript("one")
    child.feed("\\q")
    child.wait_for_turns()
    child.command("AgentChat")
    assert "▸ Thinking: one · 5 lines" in child.screen_text()
    assert "three" not in child.screen_text()


@pytest.mark.parametrize(
    "position, expected",
    prove_rest(
        [
            ("right", ["", "sanderling", "sanderling_prompt"]),
            ("left", ["sanderling", "sanderling_prompt", ""]),
            ("bottom", ["", "sanderling", "sanderling_prompt"]),
            ("top", ["sanderling", "sanderling_prompt", ""]),
            ("float", ["", "sanderling_prompt", "sanderling"]),
            ("tab", ["sanderling", "sanderling_prompt"]),
            ("current", ["sanderling", "sanderling_prompt"]),
        ],
        keep=(0,),
    ),
)
def test_the_chat_opens_in_every_position_and_closes_again(child, position, expected):
    child.setup(chat={"position": position})
    child.command("AgentChat")
    assert windows(child) == expected
    child.say("ping")
    assert "pong" in child.screen_text()
    child.command("AgentChat")
    assert windows(child) == [""]
    child.command("AgentChat")
    assert windows(child) == expected
    assert "pong" in child.screen_text()


def test_a_chat_that_is_shown_moves_to_another_position(child):
    child.command("AgentChat")
    child.command("AgentChat left")
    assert windows(child) == ["sanderling", "sanderling_prompt", ""]
    child.command("AgentChat float")
    assert windows(child) == ["", "sanderling_prompt", "sanderling"]
    child.command("AgentChat tab")
    assert windows(child) == ["sanderling", "sanderling_prompt"]
    child.command("AgentChat right")
    assert windows(child) == ["", "sanderling", "sanderling_prompt"]
    assert child.lua("return #vim.api.nvim_list_tabpages()") == 1
    child.command("AgentChat right")
    assert windows(child) == [""]


@prove
def test_two_tab_pages_may_show_the_chat_and_each_hides_its_own(child):
    child.command("AgentChat")
    child.command("tabnew")
    child.chat("ping")
    assert windows(child) == ["", "sanderling", "sanderling_prompt"]
    child.command("AgentChat")
    assert windows(child) == [""]
    child.command("tabprevious")
    assert windows(child) == ["", "sanderling", "sanderling_prompt"]
    assert "pong" in child.screen_text()


def test_the_current_window_gets_its_file_back(child):
    child.command("edit file.txt")
    child.open_chat(position="current")
    child.feed("\\q")
    wait_until(lambda: windows(child) == ["text"])
    assert child.lua("return vim.fn.expand('%:t')") == "file.txt"


def test_the_size_is_a_share_or_a_number_of_columns(child):
    child.open_chat(size=50)
    assert child.in_transcript("winwidth(0)") == 50
    child.command("AgentChat")
    child.open_chat(size=0.25)
    assert child.in_transcript("winwidth(0)") == 30


def test_closing_one_window_closes_both(child):
    child.command("AgentChat")
    child.command("quit")
    wait_until(lambda: windows(child) == [""])
    child.command("AgentChat")
    child.feed("<C-w>k:q<CR>")
    wait_until(lambda: windows(child) == [""])


def test_quit_in_a_neovim_that_shows_only_the_chat_ends_it(child):
    child.setup(chat={"position": "current"})
    child.command("AgentChat")
    child.feed(":q<CR>")
    child.rpc.process.wait(DEADLINE_S)


def test_only_keeps_the_window_that_it_was_typed_in_and_neovim(child):
    child.command("AgentChat")
    child.feed("<C-w>k:only<CR>")
    wait_until(lambda: windows(child) == ["sanderling"])
    child.command("AgentChat")
    assert windows(child)[-1] == "sanderling_prompt"
    child.feed("\\q")
    wait_until(lambda: windows(child) == ["sanderling"])
    child.feed("q")
    wait_until(lambda: windows(child) == [""])


def test_a_chat_that_was_moved_to_another_tab_page_is_shown_here_too(child):
    child.command("AgentChat")
    child.feed("<C-w>T")
    wait_until(lambda: child.lua("return #vim.api.nvim_list_tabpages()") == 2)
    child.command("tabfirst")
    child.command("AgentChat")
    assert windows(child)[-2:] == ["sanderling", "sanderling_prompt"]


@prove
def test_closing_the_tab_page_of_the_chat_leaves_the_chat_usable(child):
    child.open_chat(position="tab")
    child.command("tabclose")
    child.open_chat(position="tab")
    child.submit_and_wait("ping")
    assert child.transcript()[-1] == "pong"


@prove
def test_where_there_is_no_room_the_chat_says_so_and_asks_for_nothing(start_nvim):
    child = start_nvim(columns=20, lines=5)
    child.feed(":AgentChat<CR>")
    said = "sanderling: not enough room for the chat: E36: Not enough room"
    wait_until(lambda: " ".join(child.screen()).strip() == said)
    assert child.mode() == "n"
    assert windows(child)[0] == ""
    child.command("set lines=30 columns=100")
    child.chat("ping")


@prove
def test_a_bar_ends_a_command_that_takes_no_text(child):
    child.feed(":AgentChat | AgentMode plan | let g:after = 1<CR>")
    wait_until(lambda: child.lua("return vim.g.after") == 1)
    child.wait_for_screen("plan")


@prove
def test_a_deleted_prompt_comes_back(child):
    child.command("AgentChat")
    child.command("bdelete!")
    wait_until(lambda: "sanderling_prompt" not in windows(child))
    child.chat("ping")
    assert child.transcript()[-1] == "pong"


@prove
def test_names_of_an_old_chat_do_not_stop_a_new_one(child):
    child.lua(
        "for n = 1, 9 do vim.fn.bufadd(('[Sanderling %d]'):format(n)) vim.fn.bufadd('[Sanderling]') end"
    )
    child.command("AgentChat")
    assert windows(child) == ["", "sanderling", "sanderling_prompt"]


def type_command(child, text):
    child.feed(f":{text}<CR>")


@prove
def test_the_words_quit_clear_and_help_work_in_the_chat(child):
    child.chat("ping")
    type_command(child, "clear")
    wait_until(lambda: "pong" not in child.transcript_text())
    wait_until(lambda: NOTICE in child.transcript_text())
    type_command(child, "quit")
    wait_until(lambda: windows(child) == [""])


@prove
def test_help_opens_the_plugins_own_or_any_other_and_an_unknown_topic_blocks_nothing(child):
    child.command("AgentChat")
    type_command(child, "help")
    wait_until(lambda: child.lua("return vim.fn.expand('%:t')") == "sanderling.txt")
    type_command(child, "quit")
    wait_until(lambda: current_filetype(child) == "sanderling_prompt")
    type_command(child, "help nosuchtopic")
    child.wait_for_message("E149")
    assert not child.is_blocked()


@prove
def test_clear_during_a_turn_ends_it_and_gives_back_what_waited(scripted):
    child = scripted("""
[[reply]]
[[reply.step]]
text = "begun"
[[reply.step]]
delay_ms = 20000
""")
    child.command("AgentChat")
    child.feed("igo<C-s><Esc>")
    child.wait_for_transcript("begun")
    child.feed("iand then<C-s><Esc>")
    wait_until(lambda: child.prompt_lines() == [""])
    type_command(child, "clear")
    wait_until(lambda: child.prompt_lines() == ["and then"])
    assert [event["stop_reason"] for event in child.events("AgentTurnEnded")] == ["cancelled"]
    wait_until(lambda: '"stop_reason":"cancelled"' in child.session_files()[0].read_text())
    assert child.transcript() == [""]


def test_the_words_are_known_nowhere_else(child):
    child.command("AgentChat")
    child.command("wincmd h")
    assert child.lua("return vim.fn.exists(':Clear')") == 0
    assert child.lua("return vim.fn.maparg('clear', 'c', true)") == ""
    assert child.lua("return vim.fn.maparg('q', 'n')") == ""


def test_words_inside_other_commands_are_left_alone(child):
    child.command("AgentChat")
    type_command(child, "let g:x = 'a' | let clear = 1")
    type_command(child, "echo clear")
    assert child.lua("return vim.g.clear") == 1


@prove
def test_clear_begins_a_new_session_and_keeps_the_old_one_on_disk(child):
    child.command("AgentChat")
    for _ in range(2):
        child.say("ping")
        type_command(child, "clear")
        wait_until(lambda: "pong" not in child.transcript_text())
    assert len(child.session_files()) == 2


@prove
def test_bracket_keys_go_from_message_to_message(child):
    child.command("AgentChat")
    for _ in range(2):
        child.say("ping")
    headers = [n for n, line in enumerate(child.transcript(), 1) if line.startswith("## ")]
    child.feed("<C-w>kgg")
    for header in headers:
        child.feed("]]")
        wait_until(lambda header=header: child.in_transcript("line('.')") == header)
    child.feed("2[[")
    wait_until(lambda: child.in_transcript("line('.')") == headers[-3])


def test_i_in_the_transcript_goes_to_the_prompt_in_insert_mode(child):
    child.command("AgentChat")
    child.feed("<C-w>kihello")
    wait_until(lambda: child.prompt_lines() == ["hello"])
    assert child.mode() == "i"


def test_every_map_has_a_description(child):
    child.command("AgentChat")
    missing = child.lua("""
      local missing = {}
      for _, buf in ipairs(vim.api.nvim_list_bufs()) do
        if vim.bo[buf].filetype:find('^sanderling') then
          for _, mode in ipairs({ 'n', 'i', 'x', 'c' }) do
            for _, map in ipairs(vim.api.nvim_buf_get_keymap(buf, mode)) do
              if not map.desc then table.insert(missing, map.lhs) end
            end
          end
        end
      end
      for _, map in ipairs(vim.api.nvim_get_keymap('n')) do
        if map.lhs:find('Agent') and not map.desc then table.insert(missing, map.lhs) end
      end
      return missing
    """)
    assert missing == []


def test_highlight_groups_are_defaults_that_a_colorscheme_keeps_and_a_user_overrides(child):
    child.command("highlight AgentUser guifg=#123456")
    child.command("AgentChat")
    assert child.lua("return vim.api.nvim_get_hl(0, { name = 'AgentUser' }).fg") == 0x123456
    child.command("colorscheme habamax")
    assert child.lua("return vim.api.nvim_get_hl(0, { name = 'AgentThinking' }).link") == "Comment"


@prove
def test_options_of_the_chat_do_not_leak_into_other_windows(child):
    child.command("set number")
    child.command("AgentChat")
    child.command("wincmd h")
    assert child.lua(
        "return { vim.wo.number, vim.wo.winbar, vim.wo.foldmethod, vim.wo.winfixwidth }"
    ) == [True, "", "manual", False]
    child.command("new")
    assert child.lua("return { vim.wo.number, vim.wo.winbar }") == [True, ""]


@prove
def test_a_session_file_that_knows_the_chat_leaves_no_empty_windows_of_it(start_nvim, tmp_path):
    path = tmp_path / "Session.vim"
    first = start_nvim()
    first.command("edit code.py | AgentChat")
    first.command(f"mksession {path}")
    second = start_nvim()
    second.command(f"silent source {path}")
    names = second.lua("return vim.tbl_map(vim.fn.bufname, vim.api.nvim_list_bufs())")
    assert [name for name in names if "[Sanderling" in name] == []
    assert second.lua("return #vim.api.nvim_list_wins()") == 1
    assert second.lua("return vim.fn.bufname()") == "code.py"


@pytest.mark.parametrize("is_same", prove_rest([True, False], keep=(0,)))
def test_a_session_file_that_knew_the_chat_loads_without_a_message_or_a_name(
    start_nvim, tmp_path, is_same
):
    path = tmp_path / "Session.vim"
    first = start_nvim()
    first.command("edit code.py | AgentChat")
    first.command(f"mksession {path}")
    assert "Sanderling" not in path.read_text()
    second = first if is_same else start_nvim()
    chat = second.lua(
        "return vim.tbl_filter(function(b) return vim.b[b].sanderling_session ~= nil end, vim.api.nvim_list_bufs())"
    )
    second.feed(f"<Esc>:wincmd t<CR>:source {path}<CR>")
    wait_until(lambda: second.lua("return vim.fn.bufname()") == "code.py", "it is loaded")
    assert second.lua("return vim.api.nvim_get_mode().blocking") is False
    assert "E95" not in second.lua("return vim.fn.execute('messages')")
    assert second.lua("return #vim.api.nvim_list_wins()") == 1
    others = "local chat = ... return vim.tbl_filter(function(b) return vim.fn.bufname(b) ~= 'code.py' and not vim.list_contains(chat, b) end, vim.api.nvim_list_bufs())"
    assert second.lua(others, chat) == []


@prove
def test_a_session_file_that_is_loaded_leaves_the_chat_that_is_there_alone(start_nvim, tmp_path):
    path = tmp_path / "Session.vim"
    start_nvim().command(f"mksession {path}")
    child = start_nvim()
    child.command("AgentChat")
    transcript = child.lua("return require('sanderling').transcript().buf")
    child.command(f"wincmd h | silent source {path}")
    assert child.lua("return require('sanderling').transcript().buf") == transcript
    assert child.lua("return vim.api.nvim_buf_is_valid(...)", transcript)


@prove
def test_a_wiped_chat_comes_back_as_it_was(child):
    child.chat("ping")
    child.lua("vim.api.nvim_buf_delete(require('sanderling').transcript().buf, { force = true })")
    child.chat("ping")
    assert child.transcript()[-1] == "pong"


# --- thinking -----------------------------------------------------------------------------------------------------------


THINKING = """
[[reply]]
[[reply.step]]
thinking = "one\\ntwo\\nthree\\nfour\\n"
chunk_chars = 3
chunk_delay_ms = 10
[[reply.step]]
text = "The answer.\\nIts second line."
"""


def test_thinking_ends_up_in_one_closed_fold_that_counts_its_lines(scripted):
    child = scripted(THINKING)
    child.chat("go")
    text = child.transcript_text()
    assert "Thinking\none\ntwo\nthree\nfour\n\n\nThe answer." in text
    print(child.screen_text())
    assert "▸ Thinking: one · 4 lines" in child.screen_text()
    assert "three" not in child.screen_text()


def test_commands_that_write_lose_nothing_of_the_prompt(start_chat):
    screen = start_chat()
    screen.feed("ihello<Esc>:w<CR>")
    screen.wait_for_message("The prompt has no file: <CR> sends it.")
    screen.feed(":wa<CR>:let g:is_reached = 1<CR>")
    wait_until(lambda: screen.lua("return vim.g.is_reached"))
    assert "E382" not in screen.messages()
    assert not screen.is_blocked()
    screen.feed("ZZ")
    wait_until(lambda: windows(screen) == [""])
    screen.command("AgentChat")
    assert screen.prompt_lines() == ["hello"]
