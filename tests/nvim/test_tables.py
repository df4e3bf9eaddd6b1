"""The tables of verbs, keys and options: what is made from them, and that the made files are up to date."""

import subprocess
from typing import get_type_hints

import pytest
from tests.conftest import ROOT, find_neovim, prove, prove_rest, wait_until

from sanderling.config import FIELDS, NEOVIM_KEYS, Settings, key_of
from sanderling.project.slash_commands import BUILT_IN


def test_what_is_generated_is_up_to_date():
    argv = [find_neovim(), "--clean", "-l", "scripts/generate_plugin.lua", "--check"]
    checked = subprocess.run(
        argv, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_slash_commands_of_ours_are_those_that_no_markdown_file_can_take(child):
    names = child.lua("""
      require('sanderling.verbs')
      return vim.tbl_map(function(row) return row.name end, require('sanderling.prompt.slash').all())
    """)
    assert set(names) == BUILT_IN


# --- :Agent ------------------------------------------------------------------------------------------------------------


@prove
def test_agent_and_a_verb_do_what_the_command_of_that_name_does(child):
    child.command("Agent")
    child.command("Agent mode plan")
    wait_until(lambda: child.lua("return require('sanderling').mode()") == "plan")
    child.command("Agent todo")
    assert "No todo list yet." in child.messages()
    child.command("Agent chat")
    assert child.lua("return require('sanderling').transcript().win == nil")


@pytest.mark.parametrize(
    "line, told",
    prove_rest(
        [
            ("Agent mdoe plan", "Agent: no 'mdoe'; did you mean 'mode'?"),
            ("Agent jobs", "Agent: no 'jobs'; :Agent help lists them."),
            ("Agent stop it", "Agent: stop takes no argument."),
            ("Agent run", "Agent: run needs an argument."),
            ("Agent! stop", "E477: No ! allowed"),
            ("Agent stop!", "Agent: stop takes no !."),
            ("1Agent todo", "Agent: todo takes no range."),
            ("Agent config bogus", "Agent config: user or project, not 'bogus'."),
            ("AgentTimes", "E492: Not an editor command: AgentTimes"),
            ("Agent net bogus", "AgentNet: off, proxy or on, not 'bogus'."),
        ]
    ),
)
def test_agent_with_what_is_no_verb_or_takes_something_else_says_so(child, line, told):
    child.feed(f":{line}<CR>")
    assert told in wait_until(lambda: child.messages().strip())


@pytest.mark.parametrize(
    "typed, words",
    prove_rest(
        [
            ("Agent acc", ["accept"]),
            ("Agent mode ", ["ask", "auto", "plan"]),
            ("Agent compact! u", ["undo"]),
            ("Agent nothing ", []),
        ]
    ),
)
def test_agent_completes_verbs_and_what_they_take(child, typed, words):
    assert child.lua("return vim.fn.getcompletion(..., 'cmdline')", typed) == words


@pytest.mark.parametrize(
    "line", prove_rest(["Agent sandbox status", "Agent todo", "Agent mode plan"])
)
def test_a_bar_after_agent_ends_a_verb_that_takes_no_text(child, line):
    child.feed(f":{line} | let g:after = 1<CR>")
    wait_until(lambda: child.lua("return vim.g.after") == 1)


def test_a_bar_after_agent_belongs_to_text(child):
    child.feed(":Agent run echo one | tr o u<CR>")
    child.wait_for_transcript("une")


def test_agent_export_expands_as_a_command_that_takes_a_file(child, tmp_path):
    child.submit_and_wait("ping")
    child.command(f"let $HERE = '{tmp_path}'")
    child.feed(":Agent export $HERE/talk.md<CR>")
    wait_until((tmp_path / "talk.md").exists)


def test_agent_takes_a_bang_and_completes_an_argument_behind_it(child):
    child.command("Agent terminal!")
    assert "No job" in wait_until(lambda: child.messages().strip())
    complete = "return vim.fn.getcompletion(..., 'cmdline')"
    assert child.lua(complete, "silent 1,2Agent comp") == ["compact"]
    assert child.lua(complete, "Agent sandbox o") == ["off", "on"]


def test_a_map_runs_a_verb_that_has_no_command_of_its_own(child):
    child.command("nmap <F2> <Plug>(AgentTodo)|nmap <F3> <Plug>(AgentRun)")
    child.feed("<F2>")
    child.wait_for_message("No todo list yet.")
    child.feed("<F3>")
    assert child.lua("return { vim.fn.getcmdtype(), vim.fn.getcmdline() }") == [":", "Agent run "]


def test_agent_takes_the_selected_lines_of_a_verb(child):
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'one', 'two', 'three' })")
    child.feed("jVj:Agent explain<CR>")
    child.wait_for_transcript("2-3")


@prove
def test_agent_ask_takes_the_lines_of_its_range(child):
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'one', 'two', 'three' })")
    child.command("2,3Agent ask what is this?")
    child.wait_for_transcript("2-3")


def test_the_key_on_the_line_of_agent_login_is_forgotten(child):
    child.feed(":Agent login sk-secret<CR>")
    child.wait_for_message("Do not type the key")
    assert "sk-secret" not in child.lua("return vim.fn.histget('cmd', -1)")


@prove
@pytest.mark.parametrize("keys", ["", "iping<C-s>"])
def test_a_chat_loads_neither_questions_nor_pages_before_they_are_needed(child, keys):
    child.command("AgentChat")
    child.feed(keys)
    if keys:
        child.wait_for_turns()
    loaded = child.lua("return vim.tbl_keys(package.loaded)")
    later = ("review", "proposals", "screens", "editing", "chat.waiting", "health")
    found = {name for name in loaded if name.startswith(tuple(f"sanderling.{x}" for x in later))}
    # The first looks at files before a command can replace them, the second knows which agent answers.
    assert found <= {"sanderling.editing.kinds", "sanderling.screens.agents"}


# --- Keys --------------------------------------------------------------------------------------------------------------


def test_the_keys_of_the_transcript_are_shown_there(child):
    child.open_chat()
    child.feed("<Esc><C-w>kg?")
    child.wait_for_screen("to the next header")
    child.feed("q")
    wait_until(lambda: "to the next header" not in child.screen_text())


def test_the_keys_of_a_page_are_shown_as_the_options_have_them(child):
    child.setup(keys={"close": "Q", "show_keys": "<F1>"})
    child.command("Agent help")
    child.feed("<F1>")
    child.wait_for_screen("Q       close it")
    child.feed("QQ")
    wait_until(lambda: "/help" not in child.screen_text())


@prove
def test_a_key_of_the_chat_is_a_map_without_a_key_as_well(child):
    child.open_chat()
    child.lua("vim.keymap.set('n', 'gs', '<Plug>(AgentKey-send_normal)', { buffer = true })")
    child.feed("iping<Esc>gs")
    child.wait_for_turns()
    assert child.transcript()[-1] == "pong"


# --- vim.g.sanderling --------------------------------------------------------------------------------------------------


def option(child, name):
    return child.lua(f"return require('sanderling.config').options.{name}")


def test_a_table_that_is_set_before_and_changed_after_is_taken_and_setup_goes_before_it(child):
    child.lua("vim.g.sanderling = { model = 'a', max_calls = 7, keys = { stop = false } }")
    assert (option(child, "model"), option(child, "keys.stop")) == ("a", False)
    child.setup(model="b")
    assert (option(child, "model"), option(child, "max_calls")) == ("b", 7)
    child.lua("vim.g.sanderling = { model = 'c', max_calls = 8 }")
    assert (option(child, "model"), option(child, "max_calls")) == ("b", 8)
    child.lua("vim.g.sanderling = nil")
    assert (option(child, "model"), option(child, "max_calls")) == ("b", 200)


@pytest.mark.parametrize(
    "value, told",
    [
        ("{ modle = 'x' }", "unknown option 'modle'; did you mean 'model'?"),
        ("{ chat = { size = 0 } }", "option 'chat.size' must be a number from 0.05 on, not 0"),
        ("5", "vim.g.sanderling takes a table of options, not 5"),
    ],
)
def test_what_is_wrong_in_the_table_is_refused_by_its_name(start_nvim, value, told):
    child = start_nvim(columns=200)
    child.lua("require('sanderling.config')")
    child.lua(f"vim.g.sanderling = {value}")
    assert told in child.messages()


@prove
def test_a_host_that_runs_is_told_of_a_table_that_is_set(child, tmp_path):
    child.chat("ping")
    script = tmp_path / "script.json"
    script.write_text('{"version": 1, "reply": [{"step": [{"text": "scripted now"}]}]}')
    table = f"{{ provider = 'scripted', script = '{script}' }}"
    child.lua(f"vim.g.sanderling = {table}")
    child.command("Agent clear")
    child.submit_and_wait("anything")
    assert child.transcript()[-1] == "scripted now"


# --- Options -----------------------------------------------------------------------------------------------------------


def test_an_option_of_the_host_is_a_key_of_a_file_in_the_same_words(child):
    rows = child.lua("""
      return vim.tbl_map(function(row)
        return { name = row.name, doc = row.doc, is_hosts = row.host or false }
      end, require('sanderling.config.schema').rows)
    """)
    kinds = get_type_hints(Settings, include_extras=True)
    described = {
        ".".join(key_of(field)): kinds[field].__metadata__[0].description for field in FIELDS
    }
    assert {row["name"]: row["doc"] for row in rows if row["is_hosts"]} == described
    others = {row["name"].partition(".")[0] for row in rows if not row["is_hosts"]}
    assert others | {"ui"} == NEOVIM_KEYS


def test_an_option_with_tables_by_name_is_checked_as_far_as_lua_knows_it(start_nvim):
    child = start_nvim(columns=200)
    for options, told in (
        ({"providers": ["x"]}, "option 'providers' must be tables by name, like { here = { wire"),
        ({"mcp": {"servers": {"git": "x"}}}, "option 'mcp.servers' must be tables by name, like"),
        ({"providers": {"x": {"models": [1, {"y": 2}]}}}, ""),
        ({"mcp": {"server": {}}}, "unknown option 'mcp.server'; did you mean 'mcp.servers'?"),
        ({"tools": {"disabled": "x"}}, "option 'tools.disabled' must be a list of strings"),
    ):
        child.setup(**options)
        assert told in child.messages()


def test_tables_by_name_reach_the_host_and_what_is_not_given_does_not(child):
    child.setup(
        providers={"here": {"wire": "chat", "headers": {}, "api_key": "$KEY"}},
        mcp={"servers": {"git": {"command": ["x"], "env": {"A": "$B"}}}},
        tools={"disabled": []},
        thinking=False,
    )
    assert child.lua("return require('sanderling.config').host_settings().options") == {
        "providers": {"here": {"wire": "chat", "api_key": "$KEY"}},
        "mcp": {"servers": {"git": {"command": ["x"], "env": {"A": "$B"}}}},
        "tools": {"disabled": []},
        "thinking": False,
    }
