"""`debug`: real nvim-dap with real adapters, debugpy and LLVM's. The model is a loopback server with the API's cache."""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cached_api import CachedApi, text
from tests.cached_api import use as api_use
from tests.conftest import wait_until

APP = """\
def divide(a, b):
    result = a / b
    return result


def main():
    items = {"one": 1, "two": [1, 2, 3]}
    total = 0
    for n in range(1, 4):
        total += divide(12, n)
    print(total, items)


def spin(*_):
    count = 0
    while count >= 0:
        count += 1


main()
"""
ADAPTER = """
local dap = require('dap')
dap.adapters.debugpy = { type = 'executable', command = PYTHON, args = { '-m', 'debugpy.adapter' } }
function DEBUG(file, name)
  dap.run({
    type = 'debugpy', request = 'launch', name = name, program = file, python = PYTHON,
    console = 'internalConsole', cwd = vim.fn.getcwd(),
  }, { new = true })
end
"""
OPTIONS = """
vim.g.sanderling = vim.tbl_deep_extend('force', vim.g.sanderling, vim.json.decode([==[%s]==]))
"""
ALLOWED = [{"action": "allow", "tool": "debug"}]
STOPPED = "return require('dap').session() ~= nil and require('dap').session().current_frame ~= nil"
ENDED = "return next(require('dap').sessions()) == nil"


class Model:
    """Makes the calls in `uses` one after the other, those of a list in one message, or what a function makes of the last result."""

    def __init__(self):
        self.uses = []
        self.api = CachedApi(self.answer)

    def answer(self, body):
        if not self.uses:
            return [text("Done.")]
        use = self.uses.pop(0)
        use = use(result_in(body["messages"][-1])) if callable(use) else use
        uses = use if isinstance(use, list) else [use]
        number = len(body["messages"])
        return [api_use(f"t{number}_{n}", "debug", **each) for n, each in enumerate(uses)]

    def tools(self, number=-1):
        """The names of the tools that a request has, wherever in it."""
        return set(re.findall(r'"name": "(\w+)"', json.dumps(self.api.asked[number].request)))


def result_in(message):
    [content] = [block["content"] for block in message["content"] if block["type"] == "tool_result"]
    return content if isinstance(content, str) else content[0]["text"]


def debug(op, **arguments):
    return {"op": op, **arguments}


@pytest.fixture
def model():
    model = Model()
    with model.api:
        yield model


@pytest.fixture
def app(project):
    (project / "app.py").write_text(APP)
    return project / "app.py"


@pytest.fixture
def start_child(start, model, monkeypatch):
    """Start a Neovim with nvim-dap, and `config` in its init.lua."""
    monkeypatch.setenv("OWN_KEY", "sk-test")
    monkeypatch.setenv("NO_PROXY", "*")

    def begin(config, mode="auto", permissions=ALLOWED):
        own = {"preset": "anthropic", "base_url": model.api.url, "api_key": "$OWN_KEY"}
        options = {"provider": "own", "model": "claude-opus-5-5", "providers": {"own": own}}
        options |= {"mode": mode, "permissions": permissions}
        return start(["nvim-dap"], f"{OPTIONS % json.dumps(options)}\n{config}")

    return begin


@pytest.fixture
def debugpy(start_child, app):
    """Start a Neovim whose user debugs `app` and has stopped in line 2."""
    if not importlib.util.find_spec("debugpy"):
        pytest.skip("debugpy is not installed: pip install debugpy")

    def begin(is_launched=True, **options):
        child = start_child(f"PYTHON = {json.dumps(sys.executable)}\n{ADAPTER}", **options)
        child.command(f"edit {app.name}")
        if is_launched:
            launch(child, app)
        return child

    return begin


def launch(child, app, name="app"):
    child.lua("require('dap.breakpoints').set({}, vim.fn.bufnr('app.py'), 2)")
    child.lua("DEBUG(...)", str(app), name)
    child.when_free(lambda: child.lua(STOPPED), "the program has stopped")


def end(child):
    child.lua("require('dap').terminate({ all = true })")
    child.when_free(lambda: child.lua(ENDED), "the session has ended")


def line_of(child):
    return child.lua("return require('dap').session().current_frame.line")


# --- reading ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
def test_the_model_reads_stack_and_variables_without_a_question(debugpy, model, mode):
    child = debugpy(mode=mode, permissions=[])
    model.uses = [debug("stack"), debug("variables"), debug("variables", frame=1)]
    model.uses += [debug("breakpoints")]
    child.ask_and_wait()
    stack, inner, outer, breakpoints = child.results()
    assert "Debug session 1 'app' (debugpy): stopped in thread 1 (MainThread)." in stack
    assert "#0 divide app.py:2: result = a / b  (selected in the editor)" in stack
    assert "#1 main app.py:10: total += divide(12, n)" in stack
    assert "  a: int = 12\n  b: int = 1" in inner
    assert "  items: dict = {'one': 1, 'two': [1, 2, 3]}  #" in outer
    assert breakpoints == "app.py:2: result = a / b"
    assert child.events("AgentApprovalRequested") == []


def test_parts_of_a_value_have_a_reference_until_the_program_continues(debugpy, model):
    def parts(result):
        reference = int(result.rpartition("#")[2])
        model.uses = [
            lambda inner: debug(
                "variables", reference=int(re.search(r"'two': .*#(\d+)", inner)[1])
            ),
            debug("continue"),
            debug("variables", reference=reference),
        ]
        return debug("variables", reference=reference)

    child = debugpy()
    model.uses = [debug("evaluate", frame=1, expression="items"), parts]
    child.ask_and_wait()
    whole, outer, inner, _, later = child.results()
    assert whole.startswith("dict = {'one': 1, 'two': [1, 2, 3]}  #")
    assert "'one': int = 1\n'two': list = [1, 2, 3]  #" in outer
    assert "0: int = 1\n1: int = 2\n2: int = 3" in inner
    assert "is not a value of the current stop" in later


def test_a_long_value_is_bounded_and_complete_in_a_file(debugpy, model):
    child = debugpy()
    model.uses = [debug("evaluate", expression="'x' * 100_000 + 'end'")]
    child.ask_and_wait()
    [result] = child.results()
    assert len(result) < 40_000
    assert "of the result" in result


def test_many_variables_are_counted(debugpy, model):
    child = debugpy()
    define = "globals().update({f'name_{n}': n for n in range(500)})"
    model.uses = [debug("evaluate", expression=define), debug("variables")]
    child.ask_and_wait()
    assert re.search(r"… and 4\d\d more: evaluate an expression for them", child.results()[-1])


# --- continuing ------------------------------------------------------------------------------------------------------------


def test_steps_show_where_the_program_stops_and_its_end(debugpy, model):
    child = debugpy()
    steps = [debug("step_over"), debug("step_out"), debug("continue"), debug("step_in")]
    clear = [debug("clear_breakpoint", path="app.py"), debug("continue"), debug("stack")]
    model.uses = [*steps, *clear]
    child.ask_and_wait()
    over, out, again, into, _, ended, after = child.results()
    assert "stopped (step) in thread 1 (MainThread)." in over
    assert "#0 divide app.py:3: return result" in over
    assert "#0 main app.py:" in out
    assert "stopped (breakpoint)" in again
    assert "#0 divide app.py:2" in again
    assert "#0 divide app.py:3" in into
    assert ended == "The program has ended, and with it debug session 1. Its exit code is 0."
    assert "No debug session runs in the editor" in after


def test_a_step_is_one_step_whatever_count_the_user_gave_to_the_last_command(debugpy, model):
    child = debugpy()
    child.type_keys("5l")
    model.uses = [debug("step_over")]
    child.ask_and_wait()
    assert "#0 divide app.py:3" in child.results()[0]
    assert line_of(child) == 3


def test_calls_of_one_message_run_in_their_order(debugpy, model):
    child = debugpy()
    model.uses = [
        [
            debug("set_breakpoint", path="app.py", line=10),
            debug("clear_breakpoint", path="app.py", line=2),
            debug("continue"),
            debug("step_over"),
            debug("variables"),
            debug("step_over"),
        ]
    ]
    child.ask_and_wait()
    _, _, again, header, variables, line = child.results()
    assert "#0 main app.py:10" in again
    assert "#0 main app.py:9" in header
    assert "  total: float = 18.0" in variables
    assert "#0 main app.py:10" in line


def test_a_program_that_runs_on_is_paused(debugpy, model):
    child = debugpy()
    model.uses = [
        debug("clear_breakpoint", path="app.py", line=2),
        debug("evaluate", expression="globals().update(divide=spin)"),
        debug("continue", timeout_s=0.5),
        debug("stack"),
        debug("evaluate", expression="1"),
        debug("pause"),
        debug("pause"),
    ]
    child.ask_and_wait()
    _, _, runs, stack, evaluated, paused, again = child.results()
    assert runs.startswith("The program is still running after 0.5 s.")
    assert stack == "Debug session 1 'app' (debugpy): running.\nThreads: 1 (MainThread)"
    assert "The program is running" in evaluated
    assert "stopped (pause)" in paused
    assert "#1 main app.py:10" in paused
    assert "has stopped already" in again


def test_an_exception_is_named(debugpy, model):
    child = debugpy()
    child.lua("require('dap').set_exception_breakpoints({ 'raised' })")
    model.uses = [debug("evaluate", expression="b = 0"), debug("continue")]
    child.ask_and_wait()
    assert "stopped (exception, " in child.results()[-1]
    assert "ZeroDivisionError" in child.results()[-1]


def test_an_exception_before_the_chat_is_named_too(debugpy, model):
    child = debugpy()
    child.lua("require('dap').set_exception_breakpoints({ 'raised' })")
    child.lua(
        "require('dap').session():evaluate('b = 0', function() require('dap').continue() end)"
    )
    raised = "return #vim.diagnostic.get(0) > 0"  # nvim-dap shows the exception
    child.when_free(lambda: child.lua(raised), "the exception")
    model.uses = [debug("stack")]
    child.ask_and_wait()
    assert "stopped (exception, division by zero, ZeroDivisionError)" in child.results()[0]


def test_a_stop_that_the_model_causes_does_not_move_the_user(debugpy, model):
    child = debugpy()
    child.command("AgentChat")
    child.feed("iwords")
    model.uses = [debug("step_over"), debug("step_over")]
    child.feed("<C-s>")
    child.wait_for_turns()
    assert child.lua("return vim.bo.filetype") == "sanderling_prompt"
    assert "#0 main app.py:" in child.results()[-1]
    sign = """
      local signs = vim.fn.sign_getplaced('app.py', { group = '*' })[1].signs
      return vim.iter(signs):filter(function(each) return each.name == 'DapStopped' end)
        :map(function(each) return each.lnum end):totable()
    """
    assert child.lua(sign) == [line_of(child)]
    cursor = "return vim.api.nvim_win_get_cursor(vim.fn.bufwinid('app.py'))[1]"
    assert child.lua(cursor) == line_of(child)


def test_a_stop_that_the_user_causes_goes_there_as_ever(debugpy, model):
    child = debugpy()
    model.uses = [debug("step_over")]
    child.ask_and_wait()
    child.command("1")
    child.lua("require('dap').step_over()")
    child.when_free(lambda: child.lua("return vim.fn.line('.')") in (9, 10), "the cursor has moved")


# --- breakpoints -----------------------------------------------------------------------------------------------------------


def test_a_breakpoint_has_a_condition(debugpy, model):
    child = debugpy()
    model.uses = [
        debug("clear_breakpoint", path="app.py", line=2),
        debug("set_breakpoint", path="app.py", line=3, condition="b == 3"),
        debug("continue"),
        debug("variables"),
        debug("breakpoints"),
    ]
    child.ask_and_wait()
    removed, made, _, variables, listed = child.results()
    assert removed == "1 breakpoint removed."
    assert made == "Set: app.py:3: return result  [if b == 3]"
    assert "  b: int = 3" in variables
    assert listed == "app.py:3: return result  [if b == 3]"
    signs = "return vim.fn.sign_getplaced('app.py', { group = 'dap_breakpoints' })[1].signs[1].name"
    assert child.lua(signs) == "DapBreakpointCondition"


@pytest.mark.parametrize(
    "terms, shown",
    [
        ({"log_message": "b is {b}"}, "app.py:3 [logs b is {b}]"),
        ({"condition": "b > 9", "hit_condition": "2"}, "app.py:3 [if b > 9; hits 2]"),
    ],
)
def test_a_breakpoint_that_replaces_the_users_says_so_in_the_question_and_the_result(
    debugpy, model, terms, shown
):
    child = debugpy(permissions=[])
    place = "require('dap.breakpoints').set(..., vim.fn.bufnr('app.py'), 3)"
    child.lua(place, terms)
    model.uses = [debug("set_breakpoint", path="app.py", line=3)]
    child.ask()
    child.wait_for_question()
    assert f"It replaces {shown}. This moves" in " ".join(child.question_text().split())
    child.answer_question("a")
    [result] = child.results()
    assert result == f"Set: app.py:3: return result\nIt replaced {shown}."


def test_a_plain_breakpoint_that_gets_a_condition_is_replaced_too(debugpy, model):
    child = debugpy()
    model.uses = [debug("set_breakpoint", path="app.py", line=2, condition="b == 3")]
    model.uses += [debug("set_breakpoint", path="app.py", line=2, condition="b == 3")]
    child.ask_and_wait()
    first, same = child.results()
    assert first.endswith("\nIt replaced app.py:2.")
    assert "replaced" not in same


def test_removing_the_users_breakpoints_names_their_conditions(debugpy, model):
    child = debugpy(permissions=[])
    place = "require('dap.breakpoints').set({ log_message = 'b' }, vim.fn.bufnr('app.py'), 3)"
    child.lua(place)
    model.uses = [debug("clear_breakpoint", path="app.py")]
    child.ask()
    child.wait_for_question()
    assert "It removes app.py:3 [logs b]. This" in " ".join(child.question_text().split())
    child.answer_question("a")
    assert child.results() == ["2 breakpoints removed. It removed app.py:3 [logs b]."]


def test_a_breakpoint_in_a_file_that_is_not_there_yet_is_asked_about(debugpy, model, project):
    child = debugpy(permissions=[])
    model.uses = [debug("set_breakpoint", path="new.py", line=1)]
    child.ask()
    child.wait_for_question()
    (project / "new.py").write_text("x = 1\n")
    child.answer_question("a")
    assert child.results()[0].startswith("Set: new.py:1: x = 1")


def test_a_file_that_is_not_open_is_loaded_without_the_users_autocommands(debugpy, model, project):
    (project / "other.py").write_text("x = 1\n")
    child = debugpy()
    child.command("autocmd BufRead,BufNew,BufEnter,FileType *other.py let g:fired = 1")
    model.uses = [debug("set_breakpoint", path="other.py", line=1)]
    child.ask_and_wait()
    assert "Set: other.py:1: x = 1" in child.results()[0]
    assert child.lua("return vim.g.fired == nil")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ({"op": "set_breakpoint", "line": 1}, "needs the `path` of a file"),
        ({"op": "set_breakpoint", "path": "app.py"}, "needs a `line`"),
        ({"op": "set_breakpoint", "path": "app.py", "line": 99}, "app.py has 20 lines."),
        ({"op": "set_breakpoint", "path": "ap.py", "line": 1}, "Did you mean app.py?"),
        ({"op": "set_breakpoint", "path": "/etc/passwd", "line": 1}, "is not in the project"),
        ({"op": "clear_breakpoint", "path": "app.py", "line": 1}, "There is no breakpoint there."),
        ({"op": "evaluate"}, "evaluate needs an `expression`."),
        ({"op": "evaluate", "expression": "nothing"}, "NameError"),
        ({"op": "variables", "frame": 50}, "has no frame 50."),
        ({"op": "stack", "session": 9}, "There is no debug session 9. These run: 1 (app)."),
        ({"op": "stack", "thread": 9}, "Debug session 1 has no thread 9: see `stack`."),
    ],
)
def test_a_mistake_is_named(debugpy, model, arguments, expected):
    child = debugpy()
    model.uses = [arguments]
    child.ask_and_wait()
    assert expected in child.results()[0]


# --- permissions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, note",
    [
        ({"op": "evaluate", "expression": "a + b"}, "holds for all code, not for steps."),
        ({"op": "step_over"}, "holds for all steps and for breakpoints without a condition, not"),
        ({"op": "set_breakpoint", "path": "app.py", "line": 3}, "This moves or stops the debugged"),
        (
            {"op": "set_breakpoint", "path": "app.py", "line": 3, "condition": "a"},
            "This runs code in the debugged program.",
        ),
    ],
)
def test_what_affects_the_program_asks(debugpy, model, arguments, note):
    child = debugpy(permissions=[])
    model.uses = [arguments]
    child.ask()
    child.wait_for_question()
    asked = " ".join(child.question_text().split())
    assert note in asked
    assert "It runs programs outside the sandbox." in asked
    child.answer_question("d")
    assert "denied" in child.results()[0]
    assert line_of(child) == 2


def test_always_for_a_step_does_not_allow_to_run_code(debugpy, model):
    child = debugpy(permissions=[])
    step = debug("step_over")
    model.uses = [step, debug("set_breakpoint", path="app.py", line=3)]
    model.uses += [debug("evaluate", expression="a")]
    child.ask()
    child.enter_question()
    child.feed("s")
    child.wait_for_question(2)
    assert "runs code" in " ".join(child.question_text().split())
    child.answer_question("d")
    assert len(child.events("AgentApprovalRequested")) == 2


def test_a_rule_denies_the_tool(debugpy, model):
    child = debugpy(permissions=[{"action": "deny", "tool": "debug"}])
    model.uses = [debug("stack")]
    child.ask_and_wait()
    assert "A rule forbids this: deny debug." in child.results()[0]


def test_lines_of_a_file_that_a_rule_hides_are_not_shown(debugpy, model):
    child = debugpy(permissions=[*ALLOWED, {"action": "deny", "tool": "read", "path": "app.py"}])
    model.uses = [debug("stack"), debug("breakpoints")]
    model.uses += [debug("set_breakpoint", path="app.py", line=3)]
    child.ask_and_wait()
    stack, listed, refused = child.results()
    assert "#0 divide app.py:2  (selected in the editor)\n" in stack
    assert listed == "app.py:2"
    assert "return result" not in refused
    assert (
        child.lua("return #require('dap.breakpoints').get('app.py')[vim.fn.bufnr('app.py')]") == 1
    )


# --- while a session runs --------------------------------------------------------------------------------------------------


def test_the_tool_comes_with_a_session_and_no_request_loses_the_cache(debugpy, model, app):
    child = debugpy(is_launched=False)
    child.ask_and_wait("first")
    assert "debug" not in model.tools()
    launch(child, app)
    model.uses = [debug("stack")]
    child.ask_and_wait("second")
    assert "debug" in model.tools()
    end(child)
    model.uses = [debug("stack")]
    child.ask_and_wait("third")
    assert "#0 divide app.py:2" in child.results()[0]
    assert "No debug session runs in the editor." in child.results()[1]
    assert model.api.refused == []
    for before, after in pairwise(model.api.asked):
        assert after.usage["cache_read_input_tokens"] == before.input_tokens
    child.command("AgentNew")
    child.ask_and_wait("fourth")
    assert "debug" not in model.tools()


@pytest.mark.parametrize(
    "use",
    [
        debug("evaluate", expression="a"),
        debug("step_over"),
        debug("set_breakpoint", path="app.py", line=3),
    ],
)
def test_no_question_is_asked_when_no_session_runs_any_more(debugpy, model, use):
    child = debugpy(permissions=[])
    child.ask_and_wait("first")
    end(child)
    model.uses = [use]
    child.ask_and_wait("second")
    assert "No debug session runs in the editor." in child.results()[-1]
    assert child.events("AgentApprovalRequested") == []


def test_nothing_is_remembered_of_sessions_before_the_first_that_runs(debugpy, model, app):
    def remembered(child):
        return child.lua("return require('sanderling.host.debugging').of(1)")

    child = debugpy()
    model.uses = [debug("evaluate", frame=1, expression="items"), debug("step_over")]
    child.ask_and_wait()
    assert remembered(child)["stops"] == 1
    assert remembered(child)["last"]["reason"] == "step"
    end(child)
    launch(child, app, "second")
    wait_until(lambda: remembered(child) == {"stops": 0, "references": []})


def test_a_breakpoint_that_the_adapter_never_confirms_leaves_no_listener(debugpy, model):
    child = debugpy()
    child.lua("require('dap.session').set_breakpoints = function() end")
    model.uses = [debug("set_breakpoint", path="app.py", line=3)]
    child.ask_and_wait()
    assert "did not answer within 7 s (setBreakpoints)" in child.results()[0]
    assert child.lua("return next(require('dap').listeners.before.setBreakpoints) == nil")


def test_the_session_may_end_while_the_model_waits(debugpy, model):
    child = debugpy()
    model.uses = [
        debug("clear_breakpoint", path="app.py"),
        debug("evaluate", expression="globals().update(divide=spin)"),
        debug("continue", timeout_s=600),
    ]
    child.ask()
    running = "return require('dap').session().stopped_thread_id == nil"
    wait_until(lambda: len(model.api.asked) == 3 and child.lua(running), "the program runs")
    end(child)
    child.wait_for_turns()
    assert child.results()[-1].startswith("The program has ended")


@pytest.mark.skipif(sys.platform != "linux", reason="finds the adapter in /proc")
def test_an_adapter_that_is_killed_ends_the_call_and_the_session(debugpy, model):
    child = debugpy()
    model.uses = [debug("clear_breakpoint", path="app.py")]
    model.uses += [debug("evaluate", expression="globals().update(divide=spin)")]
    model.uses += [debug("continue", timeout_s=600), debug("stack")]
    child.ask()
    running = "return require('dap').session().stopped_thread_id == nil"
    wait_until(lambda: len(model.api.asked) == 3 and child.lua(running), "the program runs")
    children = child.lua("return vim.api.nvim_get_proc_children(vim.fn.getpid())")
    adapters = [pid for pid in children if b"debugpy" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(adapters[0], signal.SIGKILL)
    child.wait_for_turns()
    assert "ended" in child.results()[-2]  # while it waits, or during the request to continue
    assert "No debug session runs" in child.results()[-1]


def test_an_evaluation_that_does_not_end_ends_only_the_call(debugpy, model):
    child = debugpy()
    model.uses = [debug("evaluate", expression="__import__('time').sleep(15)"), debug("stack")]
    child.ask_and_wait()
    late, _ = child.results()
    assert "The debugger did not answer within 7 s (evaluate)." in late


def test_stopping_the_turn_leaves_the_program_running(debugpy, model):
    child = debugpy()
    model.uses = [
        debug("clear_breakpoint", path="app.py"),
        debug("evaluate", expression="globals().update(divide=spin)"),
        debug("continue", timeout_s=600),
    ]
    child.ask()
    running = "return require('dap').session().stopped_thread_id == nil"
    wait_until(lambda: len(model.api.asked) == 3 and child.lua(running), "the program runs")
    child.command("AgentStop")
    child.wait_for_turns()
    model.uses = [debug("stack")]
    child.ask_and_wait("and now?")
    assert child.results()[-1].startswith("Debug session 1 'app' (debugpy): running.")


def test_of_several_sessions_each_has_its_number(debugpy, model, app):
    child = debugpy()
    launch(child, app, "second")
    both = "local n = 0 for _, s in pairs(require('dap').sessions()) do n = n + (s.current_frame and 1 or 0) end return n == 2"
    child.when_free(lambda: child.lua(both), "both have stopped")
    model.uses = [debug("stack", session=1), debug("step_over", session=2)]
    model.uses += [debug("stack", session=1), debug("stack", session=2)]
    child.ask_and_wait()
    first, stepped, still, second = child.results()
    assert first.startswith("Debug session 1 'app' (debugpy): stopped")
    assert "\nDebug session 2 'second' (debugpy): stopped" in first
    assert stepped.startswith("Debug session 2 'second' (debugpy): stopped (step)")
    assert "#0 divide app.py:2" in still
    assert "#0 divide app.py:3" in second


# --- another adapter -------------------------------------------------------------------------------------------------------

C = """\
#include <stdio.h>

int twice(int n) {
  int result = n * 2;
  return result;
}

int main(void) {
  printf("%d\\n", twice(21));
  return 3;
}
"""
LLDB = """
local dap = require('dap')
dap.adapters.lldb = { type = 'executable', command = ADAPTER }
function DEBUG(file)
  dap.run({ type = 'lldb', request = 'launch', name = 'c', program = file, cwd = vim.fn.getcwd() })
end
"""


def test_a_program_in_c_is_debugged_by_llvm(start_child, model, project):
    names = ("lldb-dap", "lldb-vscode", "lldb-vscode-14", "lldb-dap-19")
    adapter = next(filter(None, map(shutil.which, names)), None)
    compiler = shutil.which("cc")
    if not adapter or not compiler:
        pytest.skip("no C compiler, or no lldb-dap: apt install lldb")
    (project / "app.c").write_text(C)
    subprocess.run([compiler, "-g", "-O0", "-o", "app", "app.c"], cwd=project, check=True)
    child = start_child(f"ADAPTER = {json.dumps(adapter)}\n{LLDB}")
    child.command("edit app.c")
    child.lua("require('dap.breakpoints').set({}, vim.fn.bufnr('app.c'), 4)")
    child.lua("DEBUG(...)", str(project / "app"))
    child.when_free(lambda: child.lua(STOPPED), "the program has stopped")
    model.uses = [debug("stack"), debug("step_over"), debug("variables")]
    model.uses += [debug("evaluate", expression="result + 1"), debug("continue")]
    child.ask_and_wait()
    stack, stepped, variables, value, ended = child.results()
    assert "Debug session 1 'c' (lldb): stopped" in stack
    assert "app.c:4: int result = n * 2;" in stack
    assert "app.c:5: return result;" in stepped
    assert "n: int = 21" in variables
    assert "43" in value
    assert ended == "The program has ended, and with it debug session 1. Its exit code is 3."


HOSTILE = """\
import json, sys


def send(**message):
    data = json.dumps({"seq": 1, **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(data) + data)
    sys.stdout.flush()


BODIES = {
    "threads": {"threads": [{"id": 1, "name": "main"}]},
    "stackTrace": {"stackFrames": [{"id": 1, "name": "f", "line": 1, "column": 1}]},
    "scopes": {"scopes": []},
    "evaluate": {"result": "x", "variablesReference": "1"},
}
while head := sys.stdin.buffer.readline():
    sys.stdin.buffer.readline()
    asked = json.loads(sys.stdin.buffer.read(int(head.split(b":")[1])))
    command = asked["command"]
    body = BODIES.get(command, {})
    send(type="response", request_seq=asked["seq"], success=True, command=command, body=body)
    if command == "launch":
        send(type="event", event="initialized")
        send(type="event", event="stopped", body={"reason": "entry", "threadId": 1})
    if command == "continue":
        send(type="event", event="exited", body={"exitCode": "none"})
        send(type="event", event="terminated")
"""
INVALID = """
local dap = require('dap')
dap.adapters.hostile = { type = 'executable', command = 'python3', args = { ADAPTER } }
function DEBUG()
  dap.run({ type = 'hostile', request = 'launch', name = 'it' })
end
"""


def test_an_answer_that_is_not_in_the_protocol_ends_only_the_call(start_child, model, tmp_path):
    adapter = tmp_path / "adapter.py"
    adapter.write_text(HOSTILE)
    child = start_child(f"ADAPTER = {json.dumps(str(adapter))}\n{INVALID}")
    child.lua("DEBUG()")
    child.when_free(lambda: child.lua(STOPPED), "the program has stopped")
    model.uses = [debug("evaluate", expression="x"), debug("stack"), debug("continue")]
    child.ask_and_wait()
    value, stack, ended = child.results()
    assert "not in the protocol" in value
    assert "stopped in thread 1 (main)" in stack
    assert "not in the protocol" in ended
