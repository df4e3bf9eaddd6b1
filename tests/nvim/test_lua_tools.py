"""Tools and callbacks in Lua, of the user and of plugins: `agent.tool` and `agent.before`."""

import functools
import json
import re
import subprocess
import textwrap
from itertools import pairwise

import pytest
from tests.cached_api import CachedApi, text
from tests.cached_api import use as api_use
from tests.conftest import ROOT, prove_unless_quick, quick, wait_until
from tests.nvim.replies import DONE, reply, say, use

pytestmark = prove_unless_quick

FIRST = reply(say("First."))
TOOL = """
  local run, more = ...
  more = type(more) == 'table' and more or {}
  _G.calls = _G.calls or {}
  _G.handle = require('sanderling').tool('open_pr', vim.tbl_extend('force', {
    desc = 'Open a pull request.',
    schema = {
      type = 'object',
      properties = { title = { type = 'string' }, draft = { type = 'boolean' } },
      required = { 'title' },
    },
    effect = 'read',
    run = loadstring('return ' .. run)(),
  }, more))
"""
ECHO = "function(input, ctx, done) table.insert(_G.calls, { input, ctx.project, ctx.session.id }) done('Opened ' .. input.title) end"


def open_pr(**arguments):
    return use("lua__open_pr", **({"title": "Fix it"} | arguments))


@pytest.fixture
def start_with_tool(start_agent):
    """Start a Neovim with a tool `open_pr`, whose model makes these calls."""

    def start(*uses, run=ECHO, tool=None, mode="ask", **options):
        agent = start_agent(*(reply(each) for each in uses), DONE, **options)
        agent.lua(TOOL, run, tool)
        if mode != "ask":
            agent.command(f"AgentMode {mode}")
        return agent

    return start


@quick
def test_a_tool_gets_its_input_and_its_result_reaches_the_model(start_with_tool, project):
    agent = start_with_tool(open_pr(draft=True))
    agent.ask_and_wait()
    assert agent.results() == ["Opened Fix it"]
    expected = [{"title": "Fix it", "draft": True}, str(project), agent.session_id()]
    assert agent.lua("return _G.calls") == [expected]
    assert "lua__open_pr" in agent.transcript_text()


def nested(levels):
    return functools.reduce(lambda inner, _: [inner], range(levels), 0)


@quick
@pytest.mark.parametrize("value", [2**63, 2**70, nested(20), nested(200)])
def test_an_input_that_neovim_cannot_take_ends_only_the_call(start_with_tool, value):
    agent = start_with_tool(open_pr(value=value), open_pr())
    agent.ask_and_wait()
    refused, opened = agent.results()
    assert "Neovim cannot take" in refused
    assert opened == "Opened Fix it"


def test_a_callback_that_cannot_take_an_input_may_have_been_there_to_deny_it(start_with_tool):
    agent = start_with_tool(open_pr(value=nested(20)), open_pr(value=nested(17)))
    agent.lua("require('sanderling').before('tool', function() end)")
    agent.ask()
    assert "Neovim cannot take" in agent.wait_for_question()
    agent.answer_question("a")
    refused, opened = agent.results()
    assert "Neovim cannot take" in refused
    assert opened == "Opened Fix it"


@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
def test_a_tool_that_only_reads_asks_in_no_mode(start_with_tool, mode):
    agent = start_with_tool(open_pr(), mode=mode)
    agent.ask_and_wait()
    assert agent.results() == ["Opened Fix it"]
    assert agent.events("AgentApprovalRequested") == []


@pytest.mark.parametrize("mode", ["ask", "auto"])
@pytest.mark.parametrize("effect", ["write", "run", "network", None])
def test_any_other_tool_asks_and_says_whose_it_is(start_with_tool, mode, effect):
    tool = {"effect": effect} if effect else None
    agent = start_with_tool(open_pr(), tool=tool, mode=mode)
    if not effect:
        agent.lua("_G.handle:remove()")
        agent.lua(TOOL.replace("effect = 'read',", ""), ECHO)
    agent.ask()
    screen = agent.wait_for_question()
    assert '"title": "Fix it"' in screen
    assert "Lua" in screen
    agent.answer_question("a")
    assert agent.results() == ["Opened Fix it"]


@pytest.mark.parametrize("effect", ["write", "run", "network"])
def test_a_rule_allows_a_tool_by_its_name(start_with_tool, effect):
    rules = [{"action": "allow", "tool": "lua__open_pr"}]
    agent = start_with_tool(open_pr(), tool={"effect": effect}, setup={"permissions": rules})
    agent.ask_and_wait()
    assert agent.results() == ["Opened Fix it"]


def test_no_rule_allows_a_tool_that_does_not_declare_its_effect(start_agent):
    rules = [{"action": "allow", "tool": "lua__*"}]
    agent = start_agent(reply(open_pr()), DONE, setup={"permissions": rules})
    agent.lua(TOOL.replace("effect = 'read',", ""), ECHO)
    agent.ask()
    agent.wait_for_question()
    agent.answer_question("d")
    assert agent.lua("return #_G.calls") == 0


def test_a_rule_denies_a_tool_that_only_reads(start_with_tool):
    rules = [{"action": "deny", "tool": "lua__*"}]
    agent = start_with_tool(open_pr(), setup={"permissions": rules})
    agent.ask_and_wait()
    assert "A rule forbids this" in agent.results()[0]
    assert agent.lua("return #_G.calls") == 0


def test_plan_mode_denies_a_tool_that_writes(start_with_tool):
    agent = start_with_tool(open_pr(), tool={"effect": "write"}, mode="plan")
    agent.ask_and_wait()
    assert "plan mode" in agent.results()[0]
    assert agent.lua("return #_G.calls") == 0


@pytest.mark.parametrize(
    "arguments, problem",
    [({"title": 3}, "$.title: 3 is not of type 'string'"), ({"draft": "yes"}, "$.draft")],
)
def test_input_that_does_not_fit_the_schema_is_refused(start_with_tool, arguments, problem):
    agent = start_with_tool(open_pr(**arguments))
    agent.ask_and_wait()
    assert problem in agent.results()[0]
    assert agent.lua("return #_G.calls") == 0


@pytest.mark.parametrize(
    "run, result",
    [
        ("function(_, _, done) done({ number = 7 }) end", '{"number":7}'),
        ("function(_, _, done) done(nil) end", "(nothing)"),
        ("function(_, _, done) done(7) end", "7"),
        ("function(_, _, done) done('caf\\233') end", "caf\ufffd"),
        ("function(_, _, done) vim.defer_fn(function() done('late') end, 30) end", "late"),
        (
            "function(_, _, done) vim.uv.new_timer():start(1, 0, function() done('fast') end) end",
            "fast",
        ),
        ("function(_, _, done) done('one') done('two') end", "one"),
    ],
)
def test_a_result_is_text_or_becomes_json(start_with_tool, run, result):
    agent = start_with_tool(open_pr(), run=run)
    agent.ask_and_wait()
    assert agent.results() == [result]


@pytest.mark.parametrize(
    "run, problem",
    [
        ("function() error('no network') end", "no network"),
        ("function(_, _, done) done(nil, 'not logged in') end", "not logged in"),
        ("function(_, _, done) done({ f = print }) end", "JSON does not have"),
        ("function(_, _, done) done(('x'):rep(11 * 1024 * 1024)) end", "more than 10485760 bytes"),
    ],
)
def test_a_failing_tool_fails_its_call_only_and_its_plugin_is_named(start_with_tool, run, problem):
    agent = start_with_tool(open_pr(), open_pr(), run=run)
    agent.ask_and_wait()
    assert len(agent.results()) == 2
    assert problem in agent.results()[0]
    assert "lua__open_pr of <nvim> failed: " in agent.results()[0]
    assert agent.events("AgentTurnEnded")[-1]["stop_reason"] == "end_turn"


def test_a_tool_that_never_answers_fails_after_its_timeout(start_with_tool):
    run = "function(_, ctx) ctx.on_cancel(function() _G.is_cancelled = true end) end"
    agent = start_with_tool(open_pr(), run=run, tool={"timeout": 0.2})
    agent.ask_and_wait()
    assert "did not call done() within 0.2 s" in agent.results()[0]
    assert agent.lua("return _G.is_cancelled") is True


def test_stopping_the_turn_cancels_the_tool(start_with_tool):
    run = """function(_, ctx)
      ctx.on_cancel(function() error('in a callback') end)
      ctx.on_cancel(function() _G.is_cancelled = true end)
      ctx.progress('half way')
    end"""
    agent = start_with_tool(open_pr(), run=run)
    agent.ask()
    wait_until(lambda: "half way" in agent.transcript_text(), "progress is shown")
    agent.lua("require('sanderling').stop()")
    agent.wait_for_turns()
    wait_until(lambda: agent.lua("return _G.is_cancelled"), "the tool is cancelled")


def test_an_error_while_a_tool_is_cancelled_is_shown_with_the_plugins_name(start_with_tool):
    run = "function(_, ctx) ctx.on_cancel(function() error('in a callback') end) ctx.progress('half way') end"
    agent = start_with_tool(open_pr(), run=run)
    agent.ask()
    wait_until(lambda: "half way" in agent.transcript_text(), "progress is shown")
    agent.lua("require('sanderling').stop()")
    agent.wait_for_message("<nvim>: on_cancel of the tool 'open_pr' failed: ")


def test_a_tool_that_was_stopped_cancels_what_it_begins_afterwards(start_with_tool):
    """A tool may start its next program when the one before it has ended, which can be after the stop."""
    run = "function(_, ctx) _G.ctx = ctx ctx.progress('half way') end"
    agent = start_with_tool(open_pr(), run=run)
    agent.ask()
    wait_until(lambda: "half way" in agent.transcript_text(), "progress is shown")
    agent.lua("_G.ctx.on_cancel(function() _G.is_cancelled = true end)")
    agent.lua("require('sanderling').stop()")
    wait_until(lambda: agent.lua("return _G.is_cancelled"), "the tool is cancelled")
    agent.lua("_G.ctx.on_cancel(function() _G.is_cancelled_later = true end)")
    assert agent.lua("return _G.is_cancelled_later") is True


def test_a_tool_that_has_answered_is_not_cancelled(start_with_tool):
    run = "function(_, ctx, done) _G.ctx = ctx done('Opened') end"
    agent = start_with_tool(open_pr(), run=run)
    agent.ask_and_wait()
    agent.lua("_G.ctx.on_cancel(function() _G.is_cancelled = true end)")
    assert agent.lua("return _G.is_cancelled") is None


def test_a_long_result_is_cut_as_that_of_any_tool(start_with_tool):
    run = "function(_, _, done) done(('line\\n'):rep(100000)) end"
    agent = start_with_tool(open_pr(), run=run)
    agent.ask_and_wait()
    assert len(agent.results()[0]) < 20_000
    assert "of the result" in agent.results()[0]


def test_a_tool_that_was_removed_before_the_chat_does_not_exist(start_with_tool):
    agent = start_with_tool(open_pr())
    agent.lua("_G.handle:remove() _G.handle:remove()")
    agent.ask_and_wait()
    assert "There is no tool 'lua__open_pr'" in agent.results()[0]
    assert agent.lua("return #_G.calls") == 0


def test_a_name_that_was_removed_can_be_declared_again(start_with_tool):
    agent = start_with_tool(open_pr(), run="function() end")
    agent.lua("_G.handle:remove()")
    agent.lua(TOOL, ECHO)
    agent.ask_and_wait()
    assert agent.results() == ["Opened Fix it"]


def test_a_tool_that_is_removed_in_mid_session_is_no_longer_available(start_agent):
    agent = start_agent(reply(open_pr()), FIRST, reply(open_pr()), DONE)
    agent.lua(TOOL, ECHO)
    agent.ask_and_wait()
    agent.lua("_G.handle:remove()")
    agent.ask_and_wait("again")
    assert agent.results() == [
        "Opened Fix it",
        "lua__open_pr is no longer available: the plugin that provided it has removed it.",
    ]


def test_a_tool_that_is_added_in_mid_session_can_be_called(start_agent):
    agent = start_agent(FIRST, reply(open_pr()), DONE)
    agent.ask_and_wait()
    agent.lua(TOOL, ECHO)
    agent.ask_and_wait("again")
    assert agent.results() == ["Opened Fix it"]


def test_a_resumed_session_has_the_tools_of_this_neovim(start_agent):
    agent = start_agent(FIRST, reply(open_pr()), DONE)
    agent.ask_and_wait()
    session = agent.session_id()
    agent.command("Agent close")
    agent.lua(TOOL, ECHO)
    agent.command(f"AgentResume {session}")
    wait_until(
        lambda: any(each["is_resumed"] for each in agent.events("AgentSessionOpened")),
        "the session is open again",
    )
    agent.ask_and_wait("the script of the model begins again")
    agent.ask_and_wait("again")
    assert agent.results() == ["Opened Fix it"]


def test_a_schema_with_lua_s_empty_tables_is_a_valid_one(start_with_tool):
    schema = {"type": "object", "properties": []}
    agent = start_with_tool(
        use("lua__open_pr"), run="function(_, _, done) done('x') end", tool={"schema": schema}
    )
    agent.ask_and_wait()
    assert agent.results() == ["x"]


def test_a_schema_that_no_api_accepts_is_shown_and_the_tool_not_offered(start_with_tool):
    schema = {"type": "object", "properties": {"title": {"type": "text"}}}
    agent = start_with_tool(open_pr(), tool={"schema": schema})
    agent.ask_and_wait()
    assert "There is no tool 'lua__open_pr'" in agent.results()[0]
    assert "open_pr" in agent.transcript_text()
    agent.wait_for_transcript("the schema of `title` is not valid JSON")


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ("'a b', { desc = 'x', run = print }", "is not a name"),
        ("'a__b', { desc = 'x', run = print }", "is not a name of a tool"),
        ("('x'):rep(60), { desc = 'x', run = print }", "at most 59 characters"),
        ("'x', { run = print }", "'desc' is missing"),
        ("'x', { desc = ' ', run = print }", "desc is empty"),
        ("'x', { desc = 'x' }", "'run' is missing"),
        ("'x', { desc = 'x', run = print, effect = 'none' }", "read, write, run, network"),
        ("'x', { desc = 'x', run = print, timeout = 0 }", "timeout must be"),
        (
            "'x', { desc = 'x', run = print, effects = 'read' }",
            "unknown field 'effects'; did you mean 'effect'?",
        ),
        ("'x', { desc = 'x', run = print, schema = { title = {} } }", "type = 'object'"),
        (
            "'x', { desc = 'x', run = print, schema = { type = 'object', properties = { title = 'string' } } }",
            "the schema of 'title' must be a table, such as { type = 'string' }, not a string.",
        ),
        (
            "'x', { desc = 'x', run = print, schema = { type = 'object', required = 'title' } }",
            "schema.required must be a list of names, not a string",
        ),
        ("'x', nil", "expected a table of options"),
        ("'open_pr', { desc = 'x', run = print }", "'open_pr' is already registered, by"),
    ],
)
def test_a_wrong_declaration_is_an_error_that_says_what_to_do(start_with_tool, arguments, problem):
    agent = start_with_tool()
    code = f"return {{ pcall(require('sanderling').tool, {arguments}) }}"
    ok, message = agent.lua(code)
    assert not ok
    assert problem in message


def test_no_tool_is_loaded_before_the_user_declares_one(start_agent):
    agent = start_agent(DONE)
    agent.ask_and_wait()
    for name in ("tool", "before", "calls"):
        assert agent.lua(f"return package.loaded['sanderling.extend.{name}'] == nil")


def test_declaring_a_tool_loads_nothing_of_the_chat(start_screen):
    screen = start_screen()
    screen.lua("""
      for name in pairs(package.loaded) do
        if name:find('^sanderling') then package.loaded[name] = nil end
      end
      require('sanderling').tool('x', { desc = 'x', run = function() end })
      require('sanderling').before('prompt', function() end)
    """)
    loaded = screen.lua(
        "return vim.tbl_filter(function(n) return n:find('^sanderling') end, vim.tbl_keys(package.loaded))"
    )
    assert sorted(loaded) == [
        "sanderling",
        "sanderling.extend.before",
        "sanderling.extend.registry",
        "sanderling.extend.tool",
        "sanderling.host.declared",
        "sanderling.ui.lazy",
    ]


def test_a_plugin_is_named_by_its_directory(start_agent, tmp_path):
    plugin = tmp_path / "forge.nvim"
    (plugin / "lua").mkdir(parents=True)
    (plugin / "lua/forge.lua").write_text(
        "require('sanderling').tool('open_pr', { desc = 'x', effect = 'read',\n"
        "  run = function() error('no token') end })\n"
    )
    agent = start_agent(reply(open_pr()), DONE)
    agent.lua("vim.opt.rtp:append(...) require('forge')", str(plugin))
    agent.ask_and_wait()
    assert "lua__open_pr of forge.nvim failed: " in agent.results()[0]
    assert "no token" in agent.results()[0]


# --- before ----------------------------------------------------------------------------------------------------------------


def before(agent, point, fn, **opts):
    agent.lua(
        "local point, fn, opts = ...\n"
        "_G.before = require('sanderling').before(point, loadstring('return ' .. fn)(), opts)",
        point,
        fn,
        opts or {"timeout": 1},
    )


def last_prompt(agent):
    return agent.logged_messages()[0]["content"][-1]["text"]


@quick
@pytest.mark.parametrize(
    "fn, sent",
    [
        ("function(prompt) return prompt .. ' Be brief.' end", "go Be brief."),
        ("function(prompt) return prompt end", "go"),
        ("function() end", "go"),
        ("function() return true end", "go"),
    ],
)
def test_a_callback_changes_a_prompt(start_agent, fn, sent):
    agent = start_agent(DONE)
    before(agent, "prompt", fn)
    agent.ask_and_wait()
    assert sent in str(agent.logged_messages()[0])
    assert "go" in agent.transcript_text()


def test_a_callback_refuses_a_prompt(start_agent):
    agent = start_agent(DONE)
    before(agent, "prompt", "function(prompt) return false, 'it names a customer' end")
    agent.ask_and_wait()
    assert "A hook refused the prompt: it names a customer" in agent.transcript_text()
    assert agent.logged_messages() == []


def test_callbacks_run_in_their_order_each_with_the_prompt_of_the_one_before(start_agent):
    agent = start_agent(DONE)
    before(agent, "prompt", "function(prompt) return prompt .. ' one' end")
    before(agent, "prompt", "function(prompt) return prompt .. ' two' end")
    agent.ask_and_wait()
    assert "go one two" in str(agent.logged_messages()[0])


def test_a_removed_callback_is_not_called(start_agent):
    agent = start_agent(DONE)
    before(agent, "prompt", "function() return false, 'no' end")
    agent.lua("_G.before:remove() _G.before:remove()")
    agent.ask_and_wait()
    assert "Done." in agent.transcript_text()


@pytest.mark.parametrize(
    "fn, opts, problem",
    [
        ("function() error('broken') end", {}, "broken"),
        ("function() return 7 end", {}, "it returned 7; expected: the prompt"),
        ("function() return '' end", {}, "expected: the prompt"),
        ("function() end", {"async": True, "timeout": 0.1}, "did not answer within 0.1 s"),
        ("function() vim.uv.sleep(300) end", {"timeout": 0.1}, "did not answer within 0.1 s"),
    ],
)
def test_a_failing_callback_is_named_and_the_prompt_is_sent(start_agent, fn, opts, problem):
    agent = start_agent(DONE)
    before(agent, "prompt", fn, **opts)
    agent.ask_and_wait()
    assert "Done." in agent.transcript_text()
    assert "The prompt hook of <nvim> failed: " in agent.transcript_text()
    assert problem in " ".join(agent.transcript_text().split())


def test_a_callback_answers_later(start_agent):
    agent = start_agent(DONE)
    fn = "function(prompt, _, done) vim.defer_fn(function() done(prompt .. ' later') end, 20) end"
    before(agent, "prompt", fn, **{"async": True})
    agent.ask_and_wait()
    assert "go later" in str(agent.logged_messages()[0])


def test_stopping_does_not_wait_for_a_callback(start_agent):
    agent = start_agent(DONE)
    before(agent, "prompt", "function() _G.is_called = true end", **{"async": True, "timeout": 60})
    agent.ask()
    wait_until(lambda: agent.lua("return _G.is_called"), "the callback is called")
    agent.lua("require('sanderling').stop()")
    agent.wait_for_turns()
    assert agent.logged_messages() == []
    assert agent.prompt_lines() == ["go"]


def write_file():
    return use("write", path="new.txt", content="x\n")


def test_a_callback_denies_a_tool_call_with_its_reason(start_agent, project):
    agent = start_agent(reply(write_file()), DONE)
    agent.command("AgentMode auto")
    fn = "function(call) if call.name == 'write' then return false, 'not ' .. call.input.path end end"
    before(agent, "tool", fn)
    agent.ask_and_wait()
    assert agent.results() == ["A hook denied this: not new.txt"]
    assert not (project / "new.txt").exists()


@pytest.mark.parametrize(
    "answer", ["call.input", "call", "vim.tbl_extend('force', call.input, { path = 'other.txt' })"]
)
def test_a_callback_changes_the_input_of_a_tool_call(start_agent, project, answer):
    agent = start_agent(reply(write_file()), DONE)
    agent.command("AgentMode auto")
    fn = f"function(call) call.input.path = 'other.txt' return {answer} end"
    before(agent, "tool", fn)
    agent.ask_and_wait()
    assert (project / "other.txt").read_text() == "x\n"
    assert not (project / "new.txt").exists()
    assert "A hook changed the input" in agent.results()[0]


def test_a_callback_gets_the_input_that_the_one_before_it_returned(start_agent, project):
    agent = start_agent(reply(write_file()), DONE)
    agent.command("AgentMode auto")
    for suffix in (".a", ".b"):
        change = (
            f"function(call) call.input.path = call.input.path .. '{suffix}' return call.input end"
        )
        before(agent, "tool", change)
    agent.ask_and_wait()
    assert [path.suffixes for path in project.glob("*.b")] == [[".txt", ".a", ".b"]]


def test_a_callback_has_the_user_asked(start_agent, project):
    agent = start_agent(reply(write_file()), DONE)
    agent.command("AgentMode auto")
    before(agent, "tool", "function() return 'ask', 'it is Friday' end")
    agent.ask()
    assert "it is Friday" in agent.wait_for_question()
    agent.answer_question("d")
    assert not (project / "new.txt").exists()


def test_a_callback_allows_a_tool_call_but_nothing_that_a_rule_denies(start_agent, project):
    rules = [{"action": "deny", "tool": "bash", "command": "touch"}]
    uses = (write_file(), use("bash", command="touch made"))
    agent = start_agent(*map(reply, uses), DONE, setup={"permissions": rules})
    before(agent, "tool", "function() return 'allow' end")
    agent.ask_and_wait()
    assert (project / "new.txt").exists()
    assert not (project / "made").exists()
    assert agent.events("AgentApprovalRequested") == []


def test_of_several_callbacks_the_strictest_decides(start_agent):
    agent = start_agent(reply(write_file()), DONE)
    for answer in ("'ask'", "false, 'never'", "'allow'"):
        before(agent, "tool", f"function() return {answer} end")
    agent.ask_and_wait()
    assert agent.results() == ["A hook denied this: never"]


@pytest.mark.parametrize(
    "fn, opts",
    [
        ("function() error('broken') end", {}),
        ("function() return { content = print } end", {}),
        ("function() return { 'other.txt' } end", {}),
        ("function(call) call.input = nil return call end", {}),
        ("function() end", {"async": True, "timeout": 0.1}),
    ],
)
def test_a_failing_callback_before_a_tool_call_asks(start_agent, fn, opts):
    agent = start_agent(reply(write_file()), DONE)
    agent.command("AgentMode auto")
    before(agent, "tool", fn, **opts)
    agent.ask()
    assert "of <nvim> failed" in agent.wait_for_question()
    agent.answer_question("a")
    assert "Done." in agent.transcript_text()


def test_a_callback_changes_the_input_of_a_lua_tool_which_is_checked_again(start_with_tool):
    agent = start_with_tool(open_pr(), open_pr())
    before(
        agent,
        "tool",
        "function(call) _G.n = (_G.n or 0) + 1 return { title = _G.n == 1 and 7 or 'New' } end",
    )
    agent.ask_and_wait()
    assert "is not of type 'string'" in agent.results()[0]
    assert agent.results()[1].startswith("Opened New")


@pytest.mark.parametrize(
    "fn, shown",
    [
        ("function(focus) return false, 'not now' end", "not now"),
        ("function(focus) _G.focus = focus return 'the tests' end", ""),
    ],
)
def test_a_callback_refuses_a_compaction_or_changes_its_focus(start_agent, fn, shown):
    agent = start_agent(DONE)
    agent.ask_and_wait()
    before(agent, "compact", fn)
    agent.command("Agent compact the names")
    if shown:
        agent.wait_for_transcript("A hook refused to compact the conversation: not now")
    else:
        wait_until(
            lambda: agent.lua("return _G.focus") == "the names", "the callback has the focus"
        )


@pytest.mark.parametrize(
    "arguments, problem",
    [
        ("'turn', print", "prompt, tool, compact"),
        ("'prompt'", "must be a function"),
        ("'prompt', print, { timeout = 100 }", "at most 60"),
        ("'prompt', print, { asynch = true }", "unknown field 'asynch'"),
    ],
)
def test_a_wrong_callback_is_an_error_that_says_what_to_do(start_screen, arguments, problem):
    screen = start_screen()
    ok, message = screen.lua(f"return {{ pcall(require('sanderling').before, {arguments}) }}")
    assert not ok
    assert problem in message


# --- the help --------------------------------------------------------------------------------------------------------------


def examples():
    """The Lua code of the chapter, in its order."""
    text = (ROOT / "doc/sanderling-extending.txt").read_text()
    chapter = text.partition("*sanderling-lua-tools*\n")[2].partition("\n=====")[0]
    return [textwrap.dedent(each) for each in re.findall(r">lua\n(.*?)\n<\n", chapter, re.DOTALL)]


OPEN_BUFFERS, OPEN_PR, RULES, BEFORE = range(4)


def run_example(agent, number):
    agent.lua("local agent = require('sanderling')\n" + examples()[number])


def test_the_example_of_a_tool_that_reads_runs(start_agent, project):
    agent = start_agent(reply(use("lua__open_buffers")), DONE)
    (project / "notes.txt").write_text("x\n")
    agent.command("edit notes.txt")
    run_example(agent, OPEN_BUFFERS)
    agent.ask_and_wait()
    assert agent.results() == ["notes.txt"]


@pytest.mark.parametrize("status, result", [(0, "-t Fix it"), (1, "no token")])
def test_the_example_of_a_tool_with_input_runs(start_agent, tmp_path, status, result):
    program = tmp_path / "bin/gh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@"\necho no token >&2\nexit {status}\n')
    program.chmod(0o755)
    agent = start_agent(reply(open_pr()), DONE)
    agent.lua("vim.env.PATH = ... .. ':' .. vim.env.PATH", str(program.parent))
    run_example(agent, OPEN_PR)
    agent.ask()
    agent.wait_for_question()
    agent.answer_question("a")
    assert result in agent.results()[0]


def test_the_example_of_a_rule_allows_that_tool(start_with_tool):
    agent = start_with_tool(open_pr(), tool={"effect": "network"})
    options = examples()[RULES].replace("setup({", "setup({ provider = p, script = s,")
    config = "local o = require('sanderling.config').options local p, s = o.provider, o.script\n"
    agent.lua(config + options)
    agent.ask_and_wait()
    assert agent.results() == ["Opened Fix it"]


def test_the_examples_of_callbacks_run(start_agent, project):
    subprocess.run(["git", "init", "-q", "-b", "topic"], cwd=project, check=True)
    agent = start_agent(reply(use("bash", command="terraform apply")), DONE)
    agent.command("AgentMode auto")
    run_example(agent, BEFORE)
    agent.ask_and_wait("this is a BEGIN PRIVATE KEY")
    assert "it contains a private key" in agent.transcript_text()
    agent.ask("does acme-internal work?")
    assert "terraform changes" in agent.wait_for_question()
    agent.enter_question()
    agent.feed("d")
    agent.wait_for_turns(2)
    assert (
        "does the product work?\nBranch: topic" in agent.logged_messages()[0]["content"][-1]["text"]
    )


def test_changes_of_a_tool_are_undone_with_the_turn(start_with_tool, project):
    run = """function(_, ctx, done)
      vim.fn.writefile({ 'x' }, ctx.project .. '/made.txt')
      done('made')
    end"""
    rules = [{"action": "allow", "tool": "lua__*"}]
    agent = start_with_tool(
        open_pr(), run=run, tool={"effect": "write"}, setup={"permissions": rules}
    )
    agent.ask_and_wait()
    assert (project / "made.txt").exists()
    agent.command("AgentUndo")
    wait_until(lambda: not (project / "made.txt").exists(), "the file is gone")


# --- the cache of the API --------------------------------------------------------------------------------------------------


@pytest.fixture
def cached(start_nvim, monkeypatch):
    """An API with its cache, and a Neovim whose model it is, and calls the tool whenever it has it as a new one."""
    monkeypatch.setenv("NO_PROXY", "*")

    def answer(body):
        roles = {message["role"]: message for message in body["messages"]}
        is_result = roles["user"]["content"][-1]["type"] == "tool_result"
        if "system" in roles and not is_result:
            return [api_use(f"t{len(body['messages'])}", "lua__open_pr", title="Fix it")]
        return [text("I see.")]

    with CachedApi(answer) as api:
        child = start_nvim({"NO_PROXY": "*", "OWN_KEY": "sk-test"})
        own = {"preset": "anthropic", "base_url": api.url, "api_key": "$OWN_KEY"}
        child.setup(provider="own", model="claude-opus-5-5", providers={"own": own})
        yield api, child


def test_a_tool_that_is_added_or_removed_in_mid_session_costs_nothing_of_the_cache(cached):
    api, child = cached
    child.open_chat()
    child.submit_and_wait("first")
    child.lua(TOOL, ECHO)
    child.submit_and_wait("second")
    child.lua("_G.handle:remove()")
    child.submit_and_wait("third")
    assert api.refused == []
    assert child.lua("return #_G.calls") == 1
    assert "no longer available" in json.dumps(api.asked[-1].request["messages"])
    assert len(api.asked) == 5
    for before, after in pairwise(api.asked):
        assert after.usage["cache_read_input_tokens"] == before.input_tokens
    assert {json.dumps(each.request["tools"]) for each in api.asked} == {
        json.dumps(api.asked[0].request["tools"])
    }


def test_without_tools_of_lua_the_first_request_has_none(cached):
    api, child = cached
    child.open_chat()
    child.submit_and_wait("first")
    assert "lua__" not in json.dumps(api.asked[0].request)


# --- during a turn ---------------------------------------------------------------------------------------------------------

WAITING = "function(_, _, done) _G.done = done end"


@pytest.mark.parametrize(
    "fn, sent",
    [
        ("function(prompt) return prompt .. ' Be brief.' end", "and this Be brief."),
        ("function(prompt) if prompt == 'and this' then return false, 'no' end end", None),
    ],
)
def test_a_callback_gets_a_prompt_that_is_sent_during_the_turn(start_with_tool, fn, sent):
    agent = start_with_tool(open_pr(), run=WAITING)
    before(agent, "prompt", fn)
    agent.ask()
    wait_until(lambda: agent.lua("return _G.done ~= nil"), "the tool runs")
    agent.lua("require('sanderling').steer('and this')")
    if not sent:
        agent.wait_for_transcript("A hook refused the prompt: no")
    agent.lua("_G.done('made')")
    agent.wait_for_turns()
    assert agent.results()[0] == "made"
    if sent:  # with the tool's result, or after it
        wait_until(lambda: sent in str(agent.logged_messages()), "the changed prompt is sent")
    else:
        assert "and this" not in str(agent.logged_messages())


def test_stopping_the_turn_does_not_wait_for_a_callback_before_a_tool_call(start_agent):
    agent = start_agent(reply(write_file()), DONE)
    before(agent, "tool", "function() _G.is_called = true end", **{"async": True, "timeout": 60})
    agent.ask()
    wait_until(lambda: agent.lua("return _G.is_called"), "the callback is called")
    agent.lua("require('sanderling').stop()")
    agent.wait_for_turns()
    assert agent.events("AgentTurnEnded")[-1]["stop_reason"] == "cancelled"


def test_an_answer_that_comes_after_its_call_was_stopped_is_ignored(start_with_tool):
    agent = start_with_tool(open_pr(), run=WAITING)
    agent.ask()
    wait_until(lambda: agent.lua("return _G.done ~= nil"), "the tool runs")
    agent.lua("require('sanderling').stop()")
    agent.wait_for_turns()
    agent.lua("_G.done('late')")
    agent.ask_and_wait("again")
    assert "late" not in str(agent.logged_messages())


def test_a_hook_that_is_a_command_gets_what_a_callback_made_of_the_input(
    start_agent, project, tmp_path
):
    seen = tmp_path / "seen.json"
    config = tmp_path / "home/config/sanderling/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[[hooks.PreToolUse]]\ncommand = "cat >{seen}"\nsandbox = false\n')
    agent = start_agent(reply(write_file()), DONE)
    agent.command("AgentMode auto")
    before(agent, "tool", "function(call) call.input.path = 'other.txt' return call end")
    agent.ask_and_wait()
    assert json.loads(seen.read_text())["tool_input"]["file_path"] == f"{project}/other.txt"


# --- the host --------------------------------------------------------------------------------------------------------------


def test_a_new_host_has_the_tools_and_callbacks_of_the_one_before(start_agent):
    agent = start_agent(FIRST, reply(open_pr()), DONE)
    agent.lua(TOOL, ECHO)
    before(agent, "prompt", "function(prompt) return prompt .. ' Be brief.' end")
    agent.ask_and_wait()
    agent.lua("require('sanderling.host').stop('Stopped by the test.')")
    agent.wait_for_transcript("Stopped by the test.")
    agent.ask_and_wait("the script of the model begins again")
    agent.ask_and_wait("again")
    assert agent.results() == ["Opened Fix it"]
    assert "again Be brief." in str(agent.logged_messages())


def test_the_option_that_disables_tools_disables_tools_of_lua(start_with_tool):
    agent = start_with_tool(open_pr(), setup={"tools": {"disabled": ["lua__*"]}})
    agent.ask_and_wait()
    assert "There is no tool 'lua__open_pr'" in agent.results()[0]


@quick
@pytest.mark.parametrize("module", ["true", "{}", "{ sessions = function() return {} end }"])
def test_another_module_called_dap_is_not_a_debugger(start_agent, module):
    agent = start_agent(reply(use("debug", op="stack")), DONE)
    agent.lua(f"package.loaded.dap = {module}")
    agent.ask_and_wait()
    agent.command("doautocmd User DapProgressUpdate")
    agent.ask_and_wait()
    assert "There is no tool 'debug'." in agent.results()[0]
    assert "debug" not in agent.results()[0].partition("There are:")[2]
