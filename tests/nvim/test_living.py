"""The chat beside what a person has set: layouts, bars, color schemes, session files; and what is told where the chat is not seen."""

import pytest
from tests.conftest import prove, prove_rest, wait_until

PONG = {"step": [{"text": "pong"}]}


def ask(child):
    child.feed("<Esc>")
    child.say("ping")
    child.wait_for_screen("pong")


@pytest.mark.parametrize(
    "options",
    prove_rest(
        [
            *("laststatus=0", "laststatus=1", "laststatus=2", "laststatus=3"),
            *("cmdheight=0 laststatus=3", "mouse= cmdheight=0 showtabline=2"),
        ],
        keep=[4],
        is_one=True,
    ),
)
@pytest.mark.parametrize(
    "position", prove_rest(["right", "left", "bottom", "top", "float", "tab"], (0,), is_one=True)
)
def test_a_turn_is_seen_whole_in_each_layout_beside_each_bar(start_nvim, options, position):
    child = start_nvim(columns=80, lines=24)
    child.command(f"set {options}")
    child.open_chat(position=position, focus=True)
    ask(child)
    screen = child.screen_text()
    assert "ask idle" in screen
    assert "Ask anything" in screen
    assert not child.is_blocked()
    child.command("AgentChat")
    wait_until(lambda: "Ask anything" not in child.screen_text())


@pytest.mark.parametrize("command", prove_rest(["only", "tabnew", "tab split"], (0,), is_one=True))
def test_a_chat_comes_back_after_what_takes_its_windows_away(child, command):
    child.command("AgentChat")
    ask(child)
    child.command("wincmd h")
    child.command(command)
    child.command("AgentChat")
    child.wait_for_screen("pong")
    ask(child)


@prove
@pytest.mark.parametrize("scheme", ["habamax", "peachpuff", "default"])
def test_a_color_scheme_that_is_chosen_later_leaves_each_group_with_a_meaning(child, scheme):
    child.command("AgentChat")
    ask(child)
    for background in ("dark", "light"):
        child.command(f"set background={background} | colorscheme {scheme}")
        empty = child.lua("""
          return vim.iter(require('sanderling.ui.highlights')):filter(function(row)
            return row[2] and vim.tbl_isempty(vim.api.nvim_get_hl(0, { name = row[1] }))
          end):totable()
        """)
        assert empty == []


@prove
def test_a_winbar_of_the_persons_stays_in_their_windows_alone(child):
    child.command("set winbar=mine laststatus=2 statusline=also:%f")
    child.command("AgentChat")
    ask(child)
    rows = child.screen()
    assert rows[0].startswith("mine")
    assert rows[0].count("mine") == 1
    assert "also:[Sanderling prompt]" in child.screen_text()


@prove
def test_a_session_file_with_local_options_leaves_no_windows_of_a_chat_that_was(
    start_nvim, tmp_path
):
    first = start_nvim()
    first.command("set sessionoptions+=localoptions,options")
    first.command("edit code.py | AgentChat")
    first.command(f"mksession {tmp_path / 'Session.vim'}")
    second = start_nvim()
    second.command(f"silent source {tmp_path / 'Session.vim'}")
    assert second.lua("return #vim.api.nvim_list_wins()") == 1
    assert second.lua("return vim.fn.bufname()") == "code.py"


# --- elsewhere --------------------------------------------------------------------------------------------------------

NOTIFY = "vim.notify = function(text) _G.told = (_G.told or '') .. text .. '\\n' end"


def test_who_does_not_see_the_chat_is_told_that_a_turn_has_ended(start_agent):
    agent = start_agent({"step": [{"text": "pong"}, {"delay_ms": 300}]}, PONG)
    agent.lua(NOTIFY)
    agent.command("AgentChat")
    agent.feed("iping<C-s><Esc>:AgentChat<CR>")
    agent.wait_for_turns()
    assert "Answer ready: “ping”" in wait_until(lambda: agent.lua("return _G.told"))
    agent.command("AgentChat")
    ask(agent)
    assert agent.lua("return _G.told").count("\n") == 1


@prove
def test_a_component_of_heirline_has_the_state_and_its_color(child):
    child.lua("_G.component = require('sanderling.heirline')")
    assert child.lua("return _G.component.condition()") is False
    assert child.lua("return _G.component.provider()") == ""
    child.command("AgentChat")
    ask(child)
    assert child.lua("return _G.component.condition()") is True
    shown = child.lua("return _G.component.provider()")
    assert shown.startswith("idle")
    drawn = child.lua(
        "return vim.api.nvim_eval_statusline(_G.component.provider(), { maxwidth = 200 }).str"
    )
    assert drawn == shown.replace("%%", "%")
    assert child.lua("return _G.component.hl()") == "AgentStatus"
    assert child.lua("return _G.component.update.pattern") == "AgentStatusChanged"


@pytest.mark.parametrize("wrapped", ["tell", "vim.schedule_wrap(tell)"])
def test_a_replaced_notify_gets_whole_messages_also_if_it_runs_later(child, wrapped):
    child.lua(f"""
      local function tell(text, level, opts)
        _G.told = {{ text, level, opts.title }}
      end
      vim.notify = {wrapped}
    """)
    text = "word " * 60 + "\nline two"
    child.lua("require('sanderling.ui.message').tell(..., vim.log.levels.WARN)", text)
    assert wait_until(lambda: child.lua("return _G.told")) == [text, 3, "Sanderling"]
