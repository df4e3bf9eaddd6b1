"""What happens to the chat when it is used roughly: fast keys, killed hosts, deleted folds, small screens."""

import os
import signal
import time

import pytest
from tests.conftest import prove_rest, prove_unless_quick, quick, wait_until

pytestmark = prove_unless_quick

SLOW = """
[[reply]]
when = "slow"
[[reply.step]]
text = "begun"
[[reply.step]]
delay_ms = 20000
[[reply]]
repeat = true
[[reply.step]]
text = "answered"
"""

THINKING = """
[[reply]]
[[reply.step]]
thinking = "one\\ntwo\\nthree\\nfour\\nfive\\n"
chunk_chars = 2
chunk_delay_ms = 15
[[reply.step]]
text = "done"
"""


@pytest.fixture
def slow(scripted):
    def start(**options):
        child = scripted(SLOW, **options)
        child.command("AgentChat")
        child.submit("slow")
        child.wait_for_transcript("begun")
        return child

    return start


def interrupt(child):
    """A `<C-c>` as it arrives if it comes while Neovim draws: typed, and no mapping is looked for."""
    child.lua("vim.api.nvim_feedkeys('\\3', 'nt', false)")


@pytest.mark.parametrize("after_ms", prove_rest([0, 15, 30, 60], keep=(0,)))
def test_a_prompt_sent_just_after_a_crash_is_sent_once(slow, after_ms):
    child = slow()
    os.kill(child.host_pid(), signal.SIGKILL)
    time.sleep(after_ms / 1000)
    child.submit("again")
    wait_until(lambda: "answered" in child.transcript_text() or child.prompt_lines() == ["again"])
    time.sleep(0.1)
    is_answered = "## You\n\nagain\n" in child.transcript_text()
    assert is_answered != (child.prompt_lines() == ["again"])
    assert child.transcript_text().count("exited (signal 9)") == 1


def test_a_prompt_sent_after_a_stop_is_answered_and_not_given_back(slow):
    child = slow(keys={"stop": "<F5>"})  # <C-c> drops what is typed ahead
    child.feed("i<F5>")
    child.feed("next<C-s>")
    child.wait_for_turns(2)
    assert child.transcript()[-1] == "answered"
    assert child.prompt_lines() == [""]
    assert "queued" not in child.screen_text()


@pytest.mark.parametrize("keys, mode", [("i", "i"), ("", "n"), ("V", "V"), ("<C-w>k", "n")])
def test_an_interrupt_that_no_mapping_sees_stops_the_turn_and_nothing_else(slow, keys, mode):
    child = slow()
    child.feed(keys)
    interrupt(child)
    child.wait_for_turns()
    assert "Stopped." in child.transcript_text()
    assert child.lua("return vim.fn.mode()") == mode


def test_an_interrupt_elsewhere_is_neovims_own(slow):
    child = slow()
    child.command("new")
    child.feed("i")
    interrupt(child)
    wait_until(lambda: child.lua("return vim.fn.mode()") == "n")
    assert not child.events("AgentTurnEnded")


def test_what_is_typed_on_while_a_prompt_comes_back_stays_in_its_line(slow):
    child = slow()
    child.feed("iqueued prompt<C-s>half")
    wait_until(lambda: child.prompt_lines() == ["half"])
    child.feed("<C-c>")
    child.wait_for_turns()
    child.feed(" done")
    wait_until(lambda: child.prompt_lines() == ["queued prompt", "half done"])


@pytest.mark.parametrize(
    "keys, prompt", [("u", "ping"), ("<M-p>ccnew text<Esc><M-p><M-n><M-n>", "new text")]
)
def test_undo_and_history_after_a_prompt_was_sent_lose_no_text(child, keys, prompt):
    child.chat("ping")
    child.feed(keys)
    wait_until(lambda: child.prompt_lines() == [prompt])


@quick
def test_a_macro_on_the_prompt_keeps_the_order_of_its_keys(child):
    child.command("AgentChat")
    child.feed("ione<CR>two<CR>three<Esc>")
    child.lua("vim.fn.setreg('m', vim.keycode('<M-p>x'))")
    child.feed("0@m")
    wait_until(lambda: child.prompt_lines() == ["one", "wo", "three"])


@pytest.mark.parametrize("keys", ["v<C-c>", "gh<C-c>"])
def test_control_c_stops_from_visual_and_select_mode(slow, keys):
    child = slow()
    child.feed("itext<Esc>" + keys[:-5])
    child.feed("<C-c>")
    child.wait_for_turns()
    assert child.events("AgentTurnEnded")[0]["stop_reason"] == "cancelled"


@pytest.mark.parametrize("is_open", [False, True])
def test_a_thinking_fold_that_grew_while_hidden_is_as_it_was(scripted, is_open):
    child = scripted(THINKING)
    child.command("AgentChat")
    child.feed("igo<C-s><Esc>")
    child.wait_for_transcript("one")
    if is_open:
        child.feed("<C-w>k/Thinking<CR>zo<C-w>j")
    child.feed("\\q")
    child.wait_for_turns()
    child.command("AgentChat")
    head = child.transcript().index("Thinking") + 1
    state = child.in_transcript(f"[foldclosed({head}), foldlevel({head}), foldlevel({head + 6})]")
    assert state == [-1 if is_open else head, 1, 1]


def test_a_fold_that_the_user_deleted_stays_deleted(scripted):
    child = scripted(THINKING)
    child.chat("go")
    child.feed("<C-w>kzE")
    child.feed("q")
    child.command("AgentChat")
    head = child.transcript().index("Thinking") + 1
    assert child.in_transcript(f"foldlevel({head})") == 0


@quick
def test_window_options_that_the_user_set_last(child):
    child.command("AgentChat")
    child.feed("<C-w>k:setlocal nowrap number nofoldenable<CR>")
    child.feed("q")
    child.command("AgentChat")
    assert child.in_transcript("[&l:wrap, &l:number, &l:foldenable]") == [0, 1, 0]


def test_a_long_paragraph_is_followed_from_any_column(scripted):
    words = " ".join(f"word{n}" for n in range(900))
    child = scripted(f"""
[[reply]]
[[reply.step]]
text = "{words}"
chunk_chars = 30
chunk_delay_ms = 12
""")
    child.command("AgentChat")
    child.feed("igo<C-s><Esc>")
    child.wait_for_transcript("word60 ")
    child.feed("<C-w>kgg0G")
    child.wait_for_turns()
    assert "word899" in child.screen_text()


def test_a_chat_in_its_own_tab_page_is_opened_once(child):
    child.setup(chat={"position": "tab"})
    for turn in (1, 2):
        child.command("AgentAsk ping")
        child.wait_for_turns(turn)
        child.command("tabfirst")
    assert child.lua("return #vim.api.nvim_list_tabpages()") == 2
    child.command("AgentChat")
    assert child.lua("return vim.bo.filetype") == "sanderling_prompt"


@quick
def test_a_file_in_the_transcripts_window_is_not_the_chat(child):
    child.setup(chat={"position": "current"})
    child.command("AgentChat")
    child.feed("<C-w>k:edit other.txt<CR>")
    wait_until(lambda: child.lua("return vim.fn.expand('%:t')") == "other.txt")
    child.command("AgentChat")
    assert "sanderling" in child.lua("""
      return vim.tbl_map(function(win)
        return vim.bo[vim.api.nvim_win_get_buf(win)].filetype
      end, vim.api.nvim_tabpage_list_wins(0))
    """)
    assert child.lua("return vim.fn.bufloaded('other.txt')") == 1


def test_the_placeholder_never_covers_text(slow):
    child = slow()
    child.feed("iqueued<C-s><Esc><C-w>h:AgentStop<CR>")
    child.wait_for_turns()
    wait_until(lambda: child.prompt_lines() == ["queued"])
    assert "Ask anything" not in child.screen_text()


@pytest.mark.parametrize("position", ["top", "bottom", "float", "right"])
def test_on_a_small_screen_the_transcript_keeps_its_share(start_nvim, position):
    child = start_nvim(columns=80, lines=24)
    child.open_chat(position=position)
    assert child.in_transcript("winheight(0)") >= 4
    child.submit_and_wait("ping")
    assert "pong" in child.screen_text()


def test_floats_stay_on_a_screen_that_shrinks(child):
    child.open_chat(position="float")
    child.submit_and_wait("ping")
    child.rpc.request("nvim_ui_try_resize", 60, 20)
    wait_until(lambda: child.lua("return vim.o.lines") == 20)
    child.wait_for_screen("pong")
    assert "Ask anything" in child.screen_text()


@quick
def test_what_users_do_on_entering_a_window_finds_the_prompts_height_fixed(child):
    child.lua("vim.api.nvim_create_autocmd({ 'WinEnter', 'BufEnter' }, { command = 'wincmd =' })")
    child.command("AgentChat")
    assert child.lua("return vim.api.nvim_win_get_height(0)") <= 8


def test_deleting_the_transcript_during_a_turn_is_no_error(scripted):
    child = scripted(THINKING)
    child.command("AgentChat")
    child.feed("igo<C-s><Esc>")
    child.wait_for_transcript("one")
    child.feed("<C-w>k:bdelete<CR>")
    child.wait_for_turns()
    assert "went wrong" not in child.messages()


@quick
def test_hiding_from_insert_mode_leaves_insert_mode(child):
    child.command("inoremap <F2> <Cmd>AgentChat<CR>")
    child.command("AgentChat")
    child.feed("itext<F2>")
    wait_until(lambda: child.lua("return vim.bo.filetype") == "")
    wait_until(lambda: child.mode() == "n")


@quick
@pytest.mark.parametrize("range_", prove_rest([[5, 1], [900, 1000], [1], "1,2"]))
def test_a_range_that_is_none_is_refused_by_name(child, range_):
    with pytest.raises(Exception, match=r"opts\.range.*line numbers of the buffer"):
        child.lua("require('sanderling').ask('what?', { range = ... })", range_)


@pytest.mark.parametrize(
    "typed, then",
    [
        ("i", "y"),
        ("ihalf", "halfy"),
        ("ihalf<Left><Left>", "haylf"),
        ("ihalf<Esc>0Rx", "xylf"),
        ("ihalf<Esc>0gRx", "xylf"),
    ],
)
def test_an_interrupt_while_writing_stops_the_turn_and_writing_goes_on(slow, typed, then):
    child = slow()
    sleeps = child.home / "sleeps"
    child.command(f"inoremap <F3> <Cmd>call writefile([], '{sleeps}') <Bar> sleep 9<CR>")
    child.feed(typed)
    before = child.lua("return {vim.fn.mode(1), vim.fn.getline('.'), vim.fn.col('.')}")
    child.rpc.request("nvim_input", "<F3>")
    wait_until(sleeps.exists)  # it sleeps, as if it drew: what it finds now is an interrupt
    child.feed("<C-c>")
    child.wait_for_turns()
    assert "Stopped." in child.transcript_text()
    assert child.lua("return {vim.fn.mode(1), vim.fn.getline('.'), vim.fn.col('.')}") == before
    child.feed("y")
    assert wait_until(lambda: child.prompt_lines() == [then])
