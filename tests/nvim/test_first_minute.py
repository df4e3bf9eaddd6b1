"""A chat that has just been opened: its mode, its keys, and what it says of them."""

import pytest
from tests.conftest import wait_until


@pytest.fixture
def fresh(start_screen):
    """A Neovim with the default of `chat.start_insert`."""
    return start_screen(is_typing=True)


def mode_is(child, mode):
    wait_until(lambda: child.mode() == mode, f"mode {mode}")


def sent(child):
    return [action["prompt"]["text"] for action in child.actions("submit_prompt")]


def test_an_empty_prompt_is_entered_in_insert_mode(fresh):
    fresh.feed(":AgentChat<CR>tour")
    wait_until(lambda: fresh.prompt_lines() == ["tour"], "the text is in the prompt")
    assert fresh.mode() == "i"


def test_a_draft_is_entered_in_normal_mode(fresh):
    fresh.feed(":AgentChat<CR>a draft<Esc>")
    wait_until(lambda: fresh.prompt_lines() == ["a draft"], "the text is in the prompt")
    mode_is(fresh, "n")
    fresh.feed(":AgentChat<CR>:AgentChat<CR>x")  # it is hidden, and shown again
    wait_until(lambda: fresh.prompt_lines() == ["a draf"], "x deletes a character")
    assert fresh.mode() == "n"


def test_a_chat_that_is_left_by_the_same_command_starts_no_insert_mode(fresh):
    fresh.feed(":AgentChat | wincmd t<CR>x:let g:done = 1<CR>")
    wait_until(lambda: fresh.lua("return vim.g.done") == 1)
    assert fresh.mode() == "n"
    assert fresh.lua("return vim.bo.filetype") == ""
    fresh.type_keys("i", "i")  # insert mode begins as before


def test_a_chat_without_focus_leaves_the_mode_alone(fresh):
    fresh.open_chat(focus=False)
    fresh.feed("<Ignore>")
    assert fresh.mode() == "n"
    fresh.type_keys("i", "i")
    fresh.open_chat(focus=False)
    assert fresh.mode() == "i"
    assert fresh.lua("return vim.bo.filetype") == ""


def test_the_option_keeps_normal_mode(fresh):
    fresh.setup(chat={"start_insert": False})
    fresh.feed(":AgentChat<CR>")
    wait_until(lambda: fresh.lua("return vim.bo.filetype") == "sanderling_prompt")
    assert fresh.mode() == "n"


def test_with_the_preset_chat_enter_sends_and_alt_enter_breaks_the_line(fresh):
    fresh.setup(keys={"preset": "chat"})
    fresh.feed(":AgentChat<CR>one<M-CR>two<S-CR>three")
    wait_until(lambda: fresh.prompt_lines() == ["one", "two", "three"], "three lines")
    fresh.feed("<CR>")
    wait_until(lambda: sent(fresh) == ["one\ntwo\nthree"], "it is sent")
    assert fresh.mode() == "i"
    assert fresh.prompt_lines() == [""]


def test_keys_that_the_user_sets_override_the_preset(fresh):
    fresh.setup(keys={"preset": "chat", "send_insert": "<C-s>"})
    fresh.feed(":AgentChat<CR>one<CR>two<M-CR>three")
    wait_until(lambda: fresh.prompt_lines() == ["one", "two", "three"], "three lines")
    assert sent(fresh) == []


def test_with_the_preset_vim_enter_breaks_the_line(fresh):
    fresh.feed(":AgentChat<CR>one<CR>two")
    wait_until(lambda: fresh.prompt_lines() == ["one", "two"], "two lines")
    assert sent(fresh) == []


def test_with_the_preset_chat_enter_accepts_a_selected_entry_of_the_menu(fresh):
    fresh.setup(keys={"preset": "chat"})
    fresh.feed(":AgentChat<CR>/comp")
    wait_until(lambda: fresh.lua("return vim.fn.pumvisible()") == 1, "the menu is open")
    fresh.feed("<C-n>")
    wait_until(
        lambda: fresh.lua("return vim.fn.complete_info({ 'selected' }).selected") == 0, "selected"
    )
    fresh.feed("<CR>")
    wait_until(lambda: fresh.lua("return vim.fn.pumvisible()") == 0, "the menu is closed")
    assert fresh.prompt_lines()[0].startswith("/compact")
    assert fresh.mode() == "i"


def test_a_preset_that_does_not_exist_is_reported(fresh):
    fresh.setup(keys={"preset": "emacs"})
    fresh.wait_for_message("option 'keys.preset' must be one of 'vim', 'chat', not \"emacs\"")


@pytest.mark.parametrize(
    "preset, insert, normal",
    [
        ("vim", "Ask anything: <C-s> sends", "Ask anything: <CR> sends"),
        ("chat", "Ask anything: <CR> sends, <M-CR> breaks the line", "Ask anything: <CR> sends"),
    ],
)
def test_the_placeholder_names_only_the_keys_of_the_current_mode(
    start_screen, preset, insert, normal
):
    child = start_screen(is_typing=True, columns=220)
    child.setup(keys={"preset": preset})
    child.command("AgentChat")
    mode_is(child, "i")
    child.wait_for_screen(insert, "/ commands, @ files, !command")
    child.feed("<Esc>")
    child.wait_for_screen(f"{normal}; i types")
    assert "<C-s>" not in child.screen_text()
    assert "<M-CR>" not in child.screen_text()


def test_in_insert_mode_the_placeholder_leaves_it_before_keys_of_normal_mode(fresh):
    fresh.setup(keys={"send_insert": False})
    fresh.command("AgentChat")
    mode_is(fresh, "i")
    fresh.wait_for_screen("Ask anything: <Esc><CR> sends")
    fresh.send({"type": "waiting_changed", "queued": [{"id": "2", "text": "x"}], "is_held": True})
    fresh.wait_for_screen("<Esc><CR> sends")


def test_the_greeting_names_the_tour(start_nvim):
    child = start_nvim(is_typing=True)
    child.feed(":AgentChat<CR>")
    child.wait_for_transcript("Send `tour` to watch it work.")
    child.wait_for_screen("tour")


def width_of_chat(child):
    return child.lua("return vim.api.nvim_win_get_width(require('sanderling').transcript().win)")


@pytest.mark.parametrize("position", ["right", "left"])
def test_on_a_narrow_screen_the_chat_takes_half(start_screen, position):
    child = start_screen(columns=80)
    child.open_chat(position=position)
    assert width_of_chat(child) == 40
    child.command("set columns=120")
    wait_until(lambda: width_of_chat(child) == 50, "its share of a wide screen")
    child.command("set columns=90")
    wait_until(lambda: width_of_chat(child) == 45, "half again")


def test_a_size_that_the_user_gives_holds_on_a_narrow_screen(start_screen):
    child = start_screen(columns=80)
    child.open_chat(size=0.3)
    assert width_of_chat(child) == 24


def test_with_the_preset_chat_one_key_goes_to_the_prompt_and_back(fresh):
    fresh.setup(keys={"preset": "chat"})
    file = fresh.lua("return vim.api.nvim_get_current_win()")
    fresh.feed("<C-Space>hello<CR>")
    wait_until(lambda: sent(fresh) == ["hello"])
    fresh.feed("<Esc>")
    mode_is(fresh, "n")
    fresh.feed("<C-Space>")
    wait_until(lambda: fresh.lua("return vim.api.nvim_get_current_win()") == file)
    fresh.feed("<C-Space>again<CR>")
    wait_until(lambda: sent(fresh) == ["hello", "again"])


def test_the_key_to_the_prompt_hides_no_map_of_the_users_and_goes_with_its_option(fresh):
    fresh.command("nnoremap <C-Space> :let g:mine = 1<CR>")
    fresh.setup(keys={"preset": "chat"})
    assert "mine" in fresh.lua("return vim.fn.maparg('<C-Space>', 'n')")
    fresh.lua("vim.keymap.set('n', ' ', '<Nop>', { nowait = true, desc = 'which-key-trigger' })")
    for key in ("<F6>", "<Space>a"):
        fresh.setup(keys={"go": key})
        assert fresh.lua("return vim.fn.maparg(..., 'n')", key) == "<Plug>(AgentGo)"
        fresh.setup()
        assert fresh.lua("return vim.fn.maparg(..., 'n')", key) == ""
