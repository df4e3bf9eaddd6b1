"""What language servers newly say of the agent's edits goes to the model: once, none of it old, and nobody waits for the silent."""

import re
import shutil
import sys

import pytest
from tests.conftest import ROOT, prove_rest, prove_unless_quick, quick, wait_until
from tests.nvim.replies import DONE, edit, reply, use

pytestmark = prove_unless_quick

SERVER = ROOT / "tests" / "language_server.py"
NEW = "New since your edits, from the language servers in the user's editor:"
CALL = {"deadline_ms": 1e15, "channel": 0, "number": 1}

START = """
  local name, command, root = ...
  vim.lsp.start({ name = name, cmd = command, root_dir = root }, { bufnr = 0 })
"""
KEEP_ANSWERS = """
  local notify = vim.rpcnotify
  vim.rpcnotify = function(channel, name, ...)
    if name == 'sanderling_answer' then
      _G.answer = select(2, ...)
      return
    end
    return notify(channel, name, ...)
  end
"""


def start_server(child, project, style="push", name="scripted"):
    """Start a language server for the current buffer, and wait until it is there."""
    child.lua(START, name, [sys.executable, str(SERVER), style], str(project))
    ready = "return #vim.tbl_filter(function(c) return c.initialized end, vim.lsp.get_clients({ bufnr = 0, name = ... }))"
    wait_until(lambda: child.lua(ready, name), f"{name} has the buffer")


COUNT_QUESTIONS = """
  local diagnostics = require('sanderling.editing.diagnostics')
  local answer = diagnostics.answer
  _G.times_asked = 0
  diagnostics.answer = function(call, name, ...)
    _G.times_asked = _G.times_asked + (name == 'tell_new' and 1 or 0)
    return answer(call, name, ...)
  end
"""


def said(child):
    return child.lua(
        "return vim.tbl_map(function(d) return d.message end, vim.diagnostic.get(nil))"
    )


def wait_until_said(child, *messages):
    wait_until(lambda: sorted(said(child)) == sorted(messages), f"{messages}, not {said(child)}")


# --- the Lua half, asked as Python asks it ---------------------------------------------------------------------------


class Watched:
    """A buffer with a language server; `edit` is the agent's."""

    def __init__(self, child, project):
        self.child, self.project = child, project
        child.lua(KEEP_ANSWERS)

    def open(self, name, text, *styles):
        path = self.project / name
        path.write_text(text)
        self.child.command(f"edit {path}")
        for style in styles:
            start_server(self.child, self.project, style, name=f"{style}er")
        return self.child.lua("return vim.api.nvim_get_current_buf()")

    def ask(self, module, question, *args):
        answer = self.child.lua(
            f"return require('sanderling.editing{module}').answer(...)", CALL, question, *args
        )
        assert "error" not in answer, answer
        return answer.get("value")

    def edit(self, buf, row, count, *lines, watch="one"):
        self.ask(".diagnostics", "watch", buf, watch)
        tick = self.child.lua("return vim.api.nvim_buf_get_changedtick(...)", buf)
        assert self.ask("", "change", buf, tick, [(row, count, lines)], "use")

    def told(self, *watches, waits=True):
        """What is told; `has_waited` says whether for something."""
        self.child.lua("_G.answer = nil")
        self.ask(".diagnostics", "tell_new", watches or ["one"], waits)
        self.has_waited = self.child.lua("return _G.answer == nil")
        answer = wait_until(lambda: self.child.lua("return _G.answer"), "an answer")
        assert "error" not in answer, answer
        return [(each["line"], each["message"]) for each in answer["value"]]


@pytest.fixture
def watched(child, project):
    return Watched(child, project)


@quick
def test_only_what_was_not_said_before_is_told_and_that_once(watched):
    buf = watched.open("a.txt", "bad one\nbad two\nbad two\n", "push")
    wait_until_said(watched.child, "one is bad", "two is bad", "two is bad")
    watched.edit(buf, 0, 1, "new", "bad one", "bad two", "bad three")
    assert watched.told() == [(3, "two is bad"), (4, "three is bad")]
    assert watched.told(waits=False) == []


def test_what_is_said_later_is_told_later(watched):
    buf = watched.open("a.txt", "fine\n", "late")
    watched.edit(buf, 0, 1, "bad one")
    assert watched.told() == []
    wait_until_said(watched.child, "one is bad")
    assert watched.told(waits=False) == [(1, "one is bad")]
    assert watched.told(waits=False) == []


@quick
@pytest.mark.parametrize("style", prove_rest(["pull", "push", "mute", "late", "dying"], keep=(0,)))
def test_nobody_waits_longer_than_a_second_and_a_bit(watched, style):
    buf = watched.open("a.txt", "fine\n", style)
    watched.child.command("enew")  # Neovim asks for what a window shows alone
    watched.edit(buf, 0, 1, "bad one")
    assert watched.told() == ([(1, "one is bad")] if style in {"pull", "push"} else [])


def test_who_never_says_anything_is_waited_for_once(watched):
    buf = watched.open("a.txt", "fine\n", "mute")
    watched.edit(buf, 0, 1, "bad one")
    assert watched.told() == []
    assert watched.has_waited
    watched.edit(buf, 0, 1, "bad two", watch="two")
    assert watched.told("one", "two") == []
    assert not watched.has_waited


def test_the_slower_of_two_servers_is_heard(watched):
    buf = watched.open("a.txt", "bad one\n", "push", "pull")
    wait_until_said(watched.child, "one is bad", "one is bad")
    watched.edit(buf, 1, 0, "bad two")
    assert watched.told() == [(2, "two is bad"), (2, "two is bad")]


def test_what_a_server_finds_first_when_it_has_indexed_is_old(watched):
    buf = watched.open("a.txt", "bad one\n", "push")
    wait_until_said(watched.child, "one is bad")
    watched.edit(buf, 1, 0, "fine")
    assert watched.told() == []  # from now on it is known when a server gets a buffer
    buf = watched.open("b.txt", "bad two\n", "indexing")
    watched.edit(buf, 1, 0, "fine", watch="two")
    assert watched.told("one", "two") == []
    assert "two is bad" in said(watched.child)
    watched.edit(buf, 1, 0, "bad three", watch="three")
    assert watched.told("one", "two", "three") == [(2, "three is bad")]


def test_a_server_that_was_put_right_and_broken_again_is_told_again(watched):
    buf = watched.open("a.txt", "fine\n", "push")
    watched.edit(buf, 0, 1, "bad one")
    assert watched.told() == [(1, "one is bad")]
    watched.edit(buf, 0, 1, "fine", watch="two")
    assert watched.told("one", "two") == []
    watched.edit(buf, 0, 1, "bad one", watch="three")
    assert watched.told("one", "two", "three") == [(1, "one is bad")]


def test_what_the_persons_typing_brings_is_not_told(watched):
    buf = watched.open("a.txt", "fine\nfine\n", "push")
    watched.edit(buf, 0, 1, "bad one")
    watched.child.feed("Gobad two<Esc>")
    wait_until_said(watched.child, "one is bad", "two is bad")
    assert watched.told() == []
    watched.edit(buf, 0, 1, "bad three", watch="two")
    assert watched.told("one", "two") == [(1, "three is bad")]


def test_typing_in_another_file_hides_nothing_of_the_edited_one(watched):
    buf = watched.open("a.txt", "fine\n", "push")
    watched.open("b.txt", "fine\n", "push")
    watched.edit(buf, 0, 1, "bad one")
    watched.child.feed("obad two<Esc>")
    wait_until_said(watched.child, "one is bad", "two is bad")
    assert watched.told() == [(1, "one is bad")]


@quick
def test_where_no_server_is_nothing_is_loaded(watched):
    buf = watched.open("a.txt", "fine\n")
    tick = watched.child.lua("return vim.api.nvim_buf_get_changedtick(...)", buf)
    assert watched.ask("", "again", buf, "a.txt")["is_diagnosed"] is False
    assert watched.ask("", "change", buf, tick, [(0, 1, ["bad one"])], "use")
    assert watched.child.lua(
        "return package.loaded['vim.lsp'] == nil and package.loaded['sanderling.editing.diagnostics'] == nil"
    )


@pytest.mark.parametrize("option, count", [("off", 0), ("errors", 1), ("warnings", 2)])
def test_the_option_says_what_is_told(watched, option, count):
    watched.child.setup(diagnostics=option)
    buf = watched.open("a.txt", "fine\n", "push")
    watched.edit(buf, 0, 1, "bad one", "odd two")
    assert len(watched.told()) == count


# --- from end to end ---------------------------------------------------------------------------------------------------


READ = reply(use("read", path="a.txt"), use("read", path="b.txt"))


@pytest.fixture
def start_watched(start_agent, project):
    """An agent in auto mode, in a Neovim that shows a.txt and has b.txt, both with a server."""

    def start(*replies, texts=("fine\n", "fine\n"), style="push", **options):
        agent = start_agent(*replies, DONE, **options)
        for name, text in zip(("b.txt", "a.txt"), texts, strict=True):
            (project / name).write_text(text)
            agent.command(f"edit {name}")
            start_server(agent, project, style)
        agent.lua(COUNT_QUESTIONS)
        agent.command("AgentMode auto")
        agent.ask_and_wait()
        return agent

    return start


def test_the_last_edit_of_a_message_tells_the_model_of_all_and_the_person_in_its_line(
    start_watched, project
):
    (project / "c.txt").write_text("")
    agent = start_watched(
        READ,
        reply(edit("a.txt", "fine", "bad \x1b[31mone"), edit("b.txt", "fine", "breaks c.txt two")),
    )
    *_, first, second = agent.results()
    assert NEW not in first
    assert second.endswith(
        f"{NEW}\na.txt:1: error: <U+001B>[31mone is bad [tests B1]\nc.txt:1: error: two is broken [tests B1]"
    )
    assert agent.lua("return _G.times_asked") == 1
    assert "edit a.txt  +1 −1\n" in agent.transcript_text()
    assert "edit b.txt  +1 −1 · 2 new errors" in agent.transcript_text()


def test_no_file_outside_of_the_project_and_none_that_a_rule_keeps_is_told_of(
    start_watched, project
):
    (project.parent / "outside.txt").write_text("")
    (project / "kept.txt").write_text("")
    (project / "shown.txt").write_text("")
    agent = start_watched(
        READ,
        reply(
            edit(
                "a.txt",
                "fine",
                "breaks ../outside.txt one\nbreaks kept.txt two\nbreaks shown.txt three",
            )
        ),
        setup={"permissions": [{"action": "deny", "tool": "read", "path": "kept.txt"}]},
    )
    assert agent.results()[-1].endswith(f"{NEW}\nshown.txt:1: error: three is broken [tests B1]")


def test_ten_in_the_file_and_five_elsewhere_are_told(start_watched, project):
    text = "".join(f"bad {n}\nbreaks c{n}.txt {n}\n" for n in range(12))
    for n in range(12):
        (project / f"c{n}.txt").write_text("")
    agent = start_watched(READ, reply(edit("a.txt", "fine\n", text)))
    told = agent.results()[-1].partition(NEW)[2].strip().splitlines()
    assert [line for line in told if line.startswith("…")] == [
        "… and 2 more in edited files",
        "… and 7 more in other files",
    ]
    assert len(told) == 10 + 1 + 5 + 1


DECIDE = """
vim.cmd('wincmd t | buffer a.txt')
local hunks, is_kept = require('sanderling.review.hunks'), ...
local list = hunks.list(vim.api.nvim_get_current_buf())
if not is_kept[2] then
  hunks.reject({ list[2] })
end
hunks.accept({ list[1], is_kept[2] and list[2] or nil })
"""


@pytest.mark.parametrize("is_second_kept", [True, False])
def test_what_a_server_says_of_a_proposal_is_new_once_that_is_kept(
    start_agent, project, is_second_kept
):
    both = use(
        "edit",
        path="a.txt",
        edits=[{"old": "first", "new": "bad one"}, {"old": "last", "new": "bad two"}],
    )
    agent = start_agent(reply(use("read", path="a.txt")), reply(both), DONE)
    (project / "a.txt").write_text("first\nbad old\nlast\n")
    agent.command("edit a.txt")
    start_server(agent, project, "push")
    wait_until_said(agent, "old is bad")
    agent.ask()
    wait_until_said(agent, "old is bad", "one is bad", "two is bad")
    agent.lua(DECIDE, [True, is_second_kept])
    agent.wait_for_turns()
    wanted = ["a.txt:1: error: one is bad [tests B1]", "a.txt:3: error: two is bad [tests B1]"]
    told = agent.results()[-1].partition(NEW)[2].strip().splitlines()
    assert told == wanted[: 1 + is_second_kept]


def test_late_ones_go_with_the_next_result(start_watched):
    agent = start_watched(
        READ,
        reply(edit("a.txt", "fine", "bad one")),
        reply(use("bash", command="sleep 2")),
        reply(use("bash", command="true")),
        style="late",
    )
    *_, edited, slept, last = agent.results()
    assert NEW not in edited
    assert slept.endswith(f"{NEW}\na.txt:1: error: one is bad [tests B1]")
    assert NEW not in last


@quick
@pytest.mark.parametrize("path", prove_rest([{"path": "a.txt"}, {}], (0,), is_one=True))
@pytest.mark.parametrize("style", prove_rest(["push", "pull", "late"]))
def test_diagnostics_after_an_edit_are_those_of_the_new_text(start_watched, style, path):
    agent = start_watched(
        READ,
        reply(edit("a.txt", "bad old", "bad new"), use("diagnostics", **path)),
        reply(edit("a.txt", "bad new", "fine")),
        reply(use("diagnostics", **path)),
        texts=("fine\n", "bad old\n"),
        style=style,
    )
    *_, first, _, second = agent.results()
    assert "1: error: new is bad" in first
    assert "old is bad" not in first
    assert "bad" not in second
    assert "No errors or warnings" in second


def test_diagnostics_that_do_not_come_again_are_named_as_old(start_watched):
    agent = start_watched(
        READ,
        reply(edit("a.txt", "bad old", "fine"), use("diagnostics", path="a.txt")),
        texts=("fine\n", "bad old\n"),
        style="once",
    )
    told = agent.results()[-1]
    assert told.startswith(
        "scripted has not reported since the last edit: this may be out of date."
    )
    assert "old is bad" in told


def test_an_edit_that_is_denied_gets_no_errors_of_another_file(start_watched, project):
    (project / "kept.txt").write_text("fine\n")
    agent = start_watched(
        reply(*READ["step"], use("read", path="kept.txt")),
        DONE | {"repeat": False},
        reply(edit("a.txt", "fine", "bad one"), edit("kept.txt", "fine", "worse")),
        setup={"permissions": [{"action": "ask", "tool": "edit", "path": "kept.txt"}]},
    )
    agent.ask()
    agent.wait_for_question()
    wait_until_said(agent, "one is bad")
    agent.command("AgentDeny")
    agent.wait_for_turns(2)
    made, denied = agent.results()[-2:]
    assert made.endswith(f"{NEW}\na.txt:1: error: one is bad [tests B1]")
    assert NEW not in denied
    line = re.search("edit kept.txt.*", agent.transcript_text())
    assert line
    assert "new error" not in line[0]


SERVERS = {
    "basedpyright": (["basedpyright-langserver", "--stdio"], "a.py", "x: int = 1\n", "x: int = ''"),
    "ruff": (["ruff", "server"], "a.py", "x = 1\n", "x = ("),
    "clangd": (["clangd"], "a.c", "int x = 1;\n", "int x = y;"),
    "typescript": (
        ["typescript-language-server", "--stdio"],
        "a.ts",
        "let x: number = 1;\n",
        "let x: number = '';",
    ),
}


@pytest.mark.parametrize("name", SERVERS)
def test_real_servers_tell_of_an_error(start_agent, project, name):
    (program, *args), path, text, broken = SERVERS[name]
    places = (ROOT / ".venv" / "bin", ROOT / "tests" / "peers" / "node_modules" / ".bin")
    found = next(filter(None, (shutil.which(str(place / program)) for place in places)), None)
    found = found or shutil.which(program)
    if not found:
        pytest.skip(f"{program} is not installed")
    (project / path).write_text(text)
    agent = start_agent(
        reply(use("read", path=path)), reply(edit(path, text.strip(), broken)), DONE
    )
    agent.command(f"edit {path}")
    agent.lua(START, name, [found, *args], str(project))
    wait_until(lambda: agent.lua("return #vim.lsp.get_clients({ bufnr = 0 })"), f"{name} is there")
    # it has read the project when it has found a first error, and that it is gone
    agent.lua("vim.api.nvim_buf_set_lines(0, 0, 1, true, { ... })", broken)
    wait_until(lambda: said(agent), f"{name} says something")
    agent.command("silent undo | silent write")
    wait_until(lambda: not said(agent), f"{name} takes it back")
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    assert re.search(rf"{NEW}\n{path}:\d: error: .+ \[.+\]", agent.results()[-1])
