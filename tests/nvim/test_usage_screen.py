"""What a turn uses and costs, in the winbar; titles; reports."""

import re

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.test_approval import asked
from tests.nvim.test_sandbox_screen import changed
from tests.nvim.test_tools_screen import TURN_STARTED, prompt_winbar


def usage(**fields):
    event = {
        "type": "usage_updated",
        "last_request": {"input_tokens": 3_000, "cache_read_input_tokens": 62_000},
        "total": {"input_tokens": 90_000, "output_tokens": 1_500},
        "turn": {
            "input_tokens": 300,
            "cache_read_input_tokens": 11_800,
            "cache_creation_input_tokens": 200,
            "output_tokens": 840,
        },
        "context_window_tokens": 200_000,
        "turn_cost_usd": 0.034,
        "cost_usd": 0.42,
        "is_priced": True,
    }
    return event | fields


def bar(screen, width):
    screen.lua("vim.api.nvim_win_set_width(require('sanderling').transcript().win, ...)", width)
    return screen.winbar()[0]


def test_the_winbar_tells_tokens_cache_context_and_dollars(screen):
    screen.send(usage())
    assert "↑12.3k ↓840 ↻95% ctx 33% $0.42 (+$0.03)" in bar(screen, 100)
    assert "91.5k tokens, context 33 percent, $0.42" in screen.statusline()


CALL = "v:lua.require'sanderling'.statusline()"


@pytest.mark.parametrize(
    "form", prove_rest([f"%{{{CALL}}}", f"%{{%{CALL}%}}", f"%!{CALL}", "text"])
)
def test_the_statusline_is_safe_wherever_it_is_put(screen, form):
    """`text`: a plugin sets what it was given as a part of the option, and the option refuses a bare %."""
    screen.send(usage())
    if form == "text":
        form = "%#Normal# " + screen.statusline() + " %#Normal#"
    screen.lua("vim.o.laststatus, vim.o.statusline = 3, ...", form)
    assert "context 33 percent, $0.42 · sbx:" in screen.screen_text()
    assert "E539" not in screen.messages()


LUALINE = """
  local Component = {}
  Component.__index = Component
  function Component:extend()
    local class = setmetatable({ super = self }, { __index = self })
    class.__index = class
    return class
  end
  function Component:init(options)
    self.options = options
  end
  package.preload['lualine.component'] = function() return Component end
  _G.new_component = function(options)
    local class = require('lualine.components.sanderling')
    local component = setmetatable({}, class)
    component:init(options)
    return component
  end
"""


def test_the_component_for_lualine_has_colours_and_is_set_as_its_statusline(screen):
    screen.lua(LUALINE + "_G.component = new_component({ icon = 'A' })")
    screen.send(usage(), {"type": "turn_started", "prompt": {"id": "1", "text": "go"}})
    text = screen.lua("return _G.component:update_status()")
    screen.lua("vim.o.laststatus, vim.o.statusline = 3, '%#Normal#' .. ...", text)
    assert "thinking · 91.5k tokens, context 33%, $0.42 · sbx:" in screen.screen_text()
    assert "E539" not in screen.messages()
    busy = "vim.api.nvim_get_hl(0, { name = 'AgentBusy', link = false }).fg"
    assert screen.lua(f"return _G.component.options.color().fg == ('#%06x'):format({busy})")
    assert screen.lua("return new_component({ colored = false }).options.color == nil")
    assert screen.lua("return new_component({ color = 'Mine' }).options.color") == "Mine"


def test_the_component_for_lualine_shows_and_loads_nothing_before_there_is_a_chat(child):
    child.lua(LUALINE)
    assert child.lua("return new_component({}):update_status()") == ""
    assert child.lua("return new_component({}).options.color() == nil")
    assert child.lua("return package.loaded['sanderling.chat'] == nil")


def test_many_events_of_a_frame_draw_a_statusline_once(screen):
    screen.lua("""
      _G.drawn = 0
      function _G.Statusline() _G.drawn = _G.drawn + 1 return 'drawn ' .. _G.drawn end
      vim.o.laststatus, vim.o.statusline = 3, '%{v:lua.Statusline()}'
      vim.cmd.redraw()
    """)
    before = screen.lua("return _G.drawn")
    modes = ["auto", "plan", "ask", "auto", "plan"]
    screen.send(*({"type": "mode_changed", "mode": mode} for mode in modes))
    wait_until(lambda: screen.lua("return _G.drawn") > before)
    assert screen.lua("return _G.drawn") == before + 1
    assert "plan idle" in prompt_winbar(screen)


@pytest.mark.parametrize(
    "width, text",
    prove_rest(
        [
            (70, "↑12.3k ↓840 ↻95% ctx 33% $0.42 (+$0.03)"),
            (54, "↑12.3k ↓840 ↻95% ctx 33% $0.42"),
            (46, "↑12.3k ↓840 ctx 33% $0.42"),
            (42, "ctx 33% $0.42"),
            (26, "ctx 33%"),
        ]
    ),
)
def test_what_matters_least_goes_first(screen, width, text):
    screen.send(usage())
    line = bar(screen, width).rstrip()
    assert f" {text}  sbx:" in line
    assert line.endswith("net:off")


@pytest.mark.parametrize("known_usd, shown", [(0, "no price"), (0.42, "$0.42+?")])
def test_a_price_that_is_not_known_is_said_and_a_window_is_left_out(screen, known_usd, shown):
    screen.send(usage(is_priced=False, cost_usd=known_usd, context_window_tokens=0))
    line = bar(screen, 100)
    assert f"↑12.3k ↓840 ↻95% {shown}  sbx:" in line
    assert "ctx" not in line
    assert f"91.5k tokens, {shown} " in screen.statusline()


@pytest.mark.parametrize(
    "fields, shown",
    [
        ({"cost_usd": 0.0004, "turn_cost_usd": 0}, "ctx 33% <$0.01"),
        (
            {
                "cost_usd": 0,
                "turn_cost_usd": 0,
                "turn": {"input_tokens": 2100, "output_tokens": 29},
            },
            " ↑2.1k ↓29 ctx 33%",
        ),
    ],
)
def test_cents_are_not_rounded_to_nothing_and_what_is_nothing_is_not_told(screen, fields, shown):
    screen.send(usage(**fields))
    assert f"{shown}  sbx:" in bar(screen, 100)


@pytest.mark.parametrize("laststatus", [2, 3])
def test_the_title_gives_way_to_the_numbers_in_the_winbar(start_chat, laststatus):
    screen = start_chat(commands=[f"set laststatus={laststatus}"])
    screen.send({"type": "title_changed", "title": "Why is multiply wrong?"}, usage(), changed())
    for width, numbers in (
        (90, "↑12.3k ↓840 ↻95% ctx 33% $0.42 (+$0.03)"),
        (60, "↑12.3k ↓840 ↻95% ctx 33% $0.42 (+$0.03)"),
        (47, "↑12.3k ↓840 ctx 33% $0.42"),
        (33, "ctx 33% $0.42"),
        (28, "ctx 33%"),
    ):
        line = bar(screen, width)
        assert f" {numbers}  sbx:full net:off" in line
        assert len(line.rstrip()) <= width
    screen.send({"type": "title_changed", "title": "Fix the 100% flaky test of the parser, " * 3})
    assert "ctx 33% $0.42 (+$0.03)" in bar(screen, 70)


@pytest.mark.parametrize("laststatus", prove_rest([1, 2, 3]))
@pytest.mark.parametrize("window", ["k", "j", "h"])
def test_the_title_is_on_the_screen_once(start_chat, laststatus, window):
    screen = start_chat(columns=240, commands=[f"set laststatus={laststatus}"])
    screen.send({"type": "title_changed", "title": "Why is multiply wrong?"}, usage())
    screen.command(f"wincmd {window}")
    wait_until(lambda: screen.screen_text().count("Why is multiply wrong?") == 1, "once")


def test_the_winbar_has_the_title_where_the_user_has_a_statusline(screen):
    screen.lua("vim.wo[require('sanderling').transcript().win].statusline = 'mine'")
    screen.send({"type": "title_changed", "title": "Why is multiply wrong?"})
    assert " Why is multiply wrong?" in bar(screen, 80)
    assert " Why is" in bar(screen, 36)


def test_the_winbar_says_the_same_wherever_the_cursor_is(screen):
    screen.send({"type": "title_changed", "title": "Why is multiply wrong?"}, usage())
    lines = set()
    for window in ("k", "j", "h"):
        screen.command(f"wincmd {window}")
        lines.add(next(row.partition("│")[2] for row in screen.screen() if "net:off" in row))
    assert len(lines) == 1


def test_the_place_among_several_sessions_is_in_the_winbar(screen):
    assert "1/" not in bar(screen, 80)
    screen.command("AgentNew")
    wait_until(lambda: "2/2 " in bar(screen, 80))


def test_the_model_that_was_chosen_is_in_the_winbar(screen):
    screen.send({"type": "model_changed", "model": "claude-opus-5-6"})
    assert "claude-opus-5-6" in prompt_winbar(screen)


def test_the_effort_that_was_chosen_is_in_the_winbar_the_statusline_and_the_status(screen):
    screen.send({"type": "model_changed", "model": "claude-opus-5-6"})
    screen.command("AgentEffort high")
    assert screen.actions()[-1] == {"type": "set_effort", "effort": "high", "is_once": False}
    screen.send({"type": "effort_changed", "effort": "high"})
    assert "claude-opus-5-6 high" in prompt_winbar(screen)
    assert "effort high" in screen.lua("return require('sanderling').statusline()")
    assert screen.lua("return require('sanderling').status().effort") == "high"
    screen.command("AgentEffort max once")
    assert screen.actions()[-1] == {"type": "set_effort", "effort": "max", "is_once": True}
    screen.send({"type": "effort_changed", "effort": "high", "next": "max"})
    assert "claude-opus-5-6 max" in prompt_winbar(screen)
    screen.send({"type": "effort_changed", "effort": "default"})
    assert prompt_winbar(screen).rstrip().endswith("claude-opus-5-6")


def test_the_role_is_in_the_winbar_the_statusline_and_the_status(screen):
    screen.command("AgentRole reviewer")
    assert screen.actions()[-1] == {"type": "set_role", "name": "reviewer"}
    screen.send({"type": "role_changed", "name": "reviewer", "description": "Reviews."})
    assert "role reviewer" in prompt_winbar(screen)
    assert "role reviewer" in screen.lua("return require('sanderling').statusline()")
    assert screen.lua("return require('sanderling').status().role") == "reviewer"
    screen.command("AgentRole none")
    assert screen.actions()[-1] == {"type": "set_role", "name": ""}
    screen.send({"type": "role_changed"})
    assert "role" not in prompt_winbar(screen)
    assert screen.lua("return require('sanderling').status().role") is None


def test_a_role_is_chosen_from_a_list_with_its_description(screen):
    screen.lua("""
      vim.ui.select = function(items, options, on_choice)
        _G.rows = vim.tbl_map(options.format_item, items)
        on_choice(items[2])
      end
    """)
    screen.command("AgentRole")
    screen.answer(
        "list_roles", roles=[{"name": "reviewer", "description": "Reviews code."}], problems=[]
    )
    assert screen.lua("return _G.rows") == ["none (current)", "reviewer: Reviews code."]
    assert screen.actions()[-1] == {"type": "set_role", "name": "reviewer"}


def test_a_level_that_does_not_exist_is_refused_with_the_levels(screen):
    before = screen.actions()
    screen.command("AgentEffort enormous")
    assert screen.actions() == before
    assert "low, medium, high, xhigh" in screen.messages()


def test_summarizing_is_said_until_it_is_done(screen):
    screen.send(TURN_STARTED, {"type": "compaction_started"})
    assert "summarizing" in prompt_winbar(screen)
    screen.send({"type": "compacted", "kind": "summary", "before_tokens": 2, "after_tokens": 1})
    assert "thinking" in prompt_winbar(screen)
    screen.send({"type": "compaction_started"})
    screen.send({"type": "notice", "level": "warning", "text": "It could not be summarized."})
    assert "summarizing" not in prompt_winbar(screen)


# --- reports -----------------------------------------------------------------------------------------------------------


REPORT = {"title": "Usage", "text": "# Usage\n\n| a | b |\n| - | - |\n"}


def test_a_report_that_comes_while_windows_are_locked_is_shown_after_that(screen):
    screen.feed(":Agent usage<CR>")
    wait_until(screen.actions)
    screen.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    screen.feed("<Esc><F5>")
    wait_until(lambda: screen.lua("return not pcall(vim.cmd.split)"), "windows are locked")
    bufs = screen.lua("return #vim.api.nvim_list_bufs()")
    screen.answer("show_usage", **REPORT)
    assert screen.floats() == []
    assert screen.lua("return #vim.api.nvim_list_bufs()") == bufs
    screen.feed("x")
    wait_until(lambda: len(screen.floats()) == 1, "the report")


@pytest.mark.parametrize("command", ["Agent usage", "Agent settings"])
def test_a_report_is_a_float_that_is_entered_by_asking_again_and_that_q_closes(screen, command):
    before = screen.lua("return vim.api.nvim_get_current_win()")
    screen.feed(f":{command}<CR>")
    (asked,) = wait_until(screen.actions)
    screen.answer(asked["type"], **REPORT)
    assert len(screen.floats()) == 1
    assert screen.lua("return vim.api.nvim_get_current_win()") == before
    assert " Usage " in screen.screen_text()
    assert "| a | b |" in screen.screen_text()
    assert "Run it again to focus" in screen.screen_text()
    screen.feed(f":{command}<CR>")
    wait_until(lambda: screen.lua("return vim.api.nvim_get_current_win()") == screen.floats()[0])
    assert " q closes " in screen.screen_text()
    assert len(screen.actions()) == 1
    screen.feed("jq")
    wait_until(lambda: screen.floats() == [])
    assert screen.lua("return vim.api.nvim_get_current_win()") == before


def test_another_report_is_asked_for_while_one_is_shown(screen):
    screen.feed(":Agent usage<CR>")
    screen.answer("show_usage", **REPORT)
    wait_until(screen.floats)
    screen.feed(":Agent settings<CR>")
    wait_until(
        lambda: [a["type"] for a in screen.actions()] == ["show_usage", "show_settings"],
        "the settings are asked for",
    )


def test_who_looks_at_the_keys_of_a_report_comes_back_to_it(screen):
    screen.feed(":Agent usage<CR>")
    screen.answer("show_usage", **REPORT)
    wait_until(screen.floats)
    screen.feed(":Agent usage<CR>g?")
    screen.wait_for_screen("close it without an answer")
    screen.feed("q")
    wait_until(lambda: "close it without an answer" not in screen.screen_text())
    assert [screen.lua("return vim.api.nvim_get_current_win()")] == screen.floats()


def test_a_report_that_comes_while_a_person_types_takes_no_key_of_theirs(screen):
    screen.feed("i/usage<C-s>hello")
    wait_until(lambda: screen.prompt_lines() == ["hello"])
    screen.answer("show_usage", **REPORT)
    screen.feed(" dear")
    wait_until(lambda: screen.prompt_lines() == ["hello dear"])
    assert screen.mode() == "i"
    assert " Usage " in screen.screen_text()
    screen.feed("<Esc>h")
    wait_until(lambda: screen.floats() == [], "it goes when they do something else")


def test_a_report_does_not_come_up_where_the_chat_is_not(screen):
    screen.feed(":Agent usage<CR>")
    wait_until(screen.actions)
    screen.command("tabnew")
    screen.answer("show_usage", **REPORT)
    assert screen.floats() == []


def shown_report(screen):
    screen.feed(":Agent usage<CR>")
    wait_until(screen.actions)
    screen.answer("show_usage", **REPORT)
    assert "| a | b |" in screen.screen_text()


@pytest.mark.parametrize(
    "go_on",
    prove_rest(
        [
            lambda screen: screen.feed("i"),
            lambda screen: screen.command("AgentNew"),
            lambda screen: screen.send(TURN_STARTED),
            lambda screen: screen.send(asked()),
        ]
    ),
    ids=["types", "another session", "a turn", "a question"],
)
def test_a_report_closes_when_the_user_moves_on(screen, go_on):
    shown_report(screen)
    go_on(screen)
    wait_until(lambda: "| a | b |" not in screen.screen_text(), "the report is closed")


@pytest.mark.parametrize("window", prove_rest(["j", "k", "h"]))
def test_q_closes_a_report_that_has_no_focus_and_means_what_it_did_afterwards(screen, window):
    screen.command(f"wincmd {window}")
    look = "local map = vim.fn.maparg('q', 'n', false, true) return map.desc or ''"
    before = screen.lua(look)
    shown_report(screen)
    screen.feed("q")
    wait_until(lambda: screen.floats() == [], "the report is closed")
    assert screen.lua("return vim.fn.reg_recording()") == ""
    assert screen.lua(look) == before


def test_a_report_in_use_goes_behind_a_question(screen):
    shown_report(screen)
    screen.feed(":Agent usage<CR>")
    wait_until(lambda: screen.lua("return vim.api.nvim_get_current_win()") in screen.floats())
    screen.send(asked())
    wait_until(lambda: len(screen.floats()) == 2, "the question and the report")
    levels = screen.lua("""
      return vim.tbl_map(function(win)
        return vim.api.nvim_win_get_config(win).zindex
      end, vim.api.nvim_tabpage_list_wins(0))
    """)
    assert sorted(level for level in levels if level) == [59, 60]


def test_a_report_that_comes_during_a_question_is_behind_it(screen):
    screen.send(asked())
    wait_until(screen.floats, "the question")
    shown = screen.screen_text()
    screen.feed(":Agent usage<CR>")
    wait_until(screen.actions)
    screen.answer("show_usage", **REPORT)
    levels = screen.lua("""
      return vim.tbl_map(function(win)
        return vim.api.nvim_win_get_config(win).zindex
      end, vim.api.nvim_tabpage_list_wins(0))
    """)
    assert sorted(level for level in levels if level) == [59, 60], shown


# --- narrow windows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "width, state, model",
    prove_rest(
        [
            (80, "waiting for you: 1 to answer", "claude-sonnet-5-5"),
            (56, "waiting for you: 1 to answer", "claude-sonnet…"),
            (33, "1 to answer", "claude-…"),
            (27, "1 to answer", ""),
        ]
    ),
)
def test_the_state_is_whole_and_the_models_name_gives_way(screen, width, state, model):
    screen.send({"type": "model_changed", "model": "claude-sonnet-5-5"}, asked())
    screen.command("Agent question")
    screen.feed("q")  # nothing lies over it
    bar(screen, width)
    line = prompt_winbar(screen)
    assert f" ask {state} " in line + " "
    assert line.endswith(f" {model}" if model else state)
    assert "<" not in line


def test_of_a_long_title_the_winbar_says_the_beginning(screen):
    screen.send({"type": "title_changed", "title": "Fix the 100% flaky test of the parser"})
    assert bar(screen, 40).startswith(" Fix the 100% flaky tes…  sbx:")


@pytest.mark.parametrize(
    "width, placeholder",
    prove_rest(
        [
            (85, "Ask anything: <CR> sends; i types, and then / commands, @ files, !command"),
            (30, "Ask anything: <CR> sends"),
            (20, "Ask anything"),
        ]
    ),
)
def test_what_stands_in_empty_windows_is_not_cut(screen, width, placeholder):
    screen.lua(
        "require('sanderling.session.live').current():set_hint('It goes on with “this”, just now.')"
    )
    bar(screen, width)
    wait_until(lambda: any(row.endswith(placeholder) for row in screen.screen()))
    assert "now." in screen.screen_text()


def test_what_stands_in_the_empty_prompt_of_another_session_is_not_cut(screen):
    bar(screen, 30)
    screen.command("AgentNew")
    wait_until(lambda: any(row.endswith("Ask anything: <CR> sends") for row in screen.screen()))


def test_the_prompts_winbar_has_the_mode_only_where_the_cursor_is(screen):
    assert "NORMAL ask idle" in screen.screen_text()
    screen.command("wincmd h")
    assert re.search("│ *ask idle", screen.screen_text())


@pytest.mark.parametrize("window", ["j", "k"])
def test_a_global_statusline_says_what_goes_on(start_chat, window):
    screen = start_chat(commands=["set laststatus=3"])
    screen.send(usage())
    screen.command(f"wincmd {window}")
    screen.wait_for_screen("Sanderling: idle · 91.5k tokens, context 33 percent, $0.42")
