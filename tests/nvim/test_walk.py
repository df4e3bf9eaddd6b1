"""A walk through what the agent has changed: its order, what each step shows, its keys."""

import random

import pytest
from tests.acp_client.test_turns import call
from tests.conftest import prove_unless_quick, quick, wait_until
from tests.fuzz import part
from tests.nvim.replies import DONE, edit, reply, say, use
from tests.nvim.test_code import SCRIPTED, start
from tests.nvim.test_comments import places
from tests.nvim.test_guests import start_guest, typed  # noqa: F401 - a fixture

pytestmark = prove_unless_quick

LUA = """\
local M = {}

local function caller()
  return helper() + 1
end

local between = 1


local function helper()
  return 1
end

return M
"""
MAIN = "import helper\n\nprint(helper.number())\n"
HELPER = "def number():\n    return 1\n"
TEST = "import main\nimport helper\n\nassert helper.number() == 1\n"


def write(path, content):
    return use("write", path=path, content=content)


def walk(agent, scope=""):
    agent.command(f"AgentDiff walk {scope}".strip())
    agent.wait_for_screen("▎ 1/")


def here(agent):
    return agent.lua("return { vim.fn.expand('%:t'), vim.fn.line('.') }")


def all_steps(agent):
    """Go through the walk to its end; give the place of each step."""
    found = [here(agent)]
    while "last of" not in (messages := agent.messages()) and "only change" not in messages:
        agent.feed("]w")
        found.append(here(agent))
    return found[:-1]


@pytest.fixture
def walked(start_agent):
    """A Neovim in which the agent has made these changes."""

    def start(*steps, **screen):
        agent = start_agent(*(reply(each) for each in steps), DONE, **{"columns": 160, **screen})
        agent.command("AgentMode auto")
        agent.command("enew")
        agent.ask_and_wait()
        return agent

    return start


@quick
def test_each_step_shows_its_number_and_what_the_model_said_before_it(start_agent, project):
    (project / "code.lua").write_text(LUA)
    reason = "The helper **first**: it is what\nthe caller needs."
    agent = start_agent(
        reply(use("read", path="code.lua")),
        reply(say("Now the caller."), edit("code.lua", "helper() + 1", "helper() + 2")),
        reply(say(reason), edit("code.lua", "  return 1\n", "  return 2\n")),
        DONE,
        columns=100,
    )
    agent.command("AgentMode auto")
    agent.command("edit code.lua")
    agent.ask_and_wait()
    agent.command("wincmd t | only")
    walk(agent)
    shown = [line.rstrip() for line in agent.screen()]
    row = shown.index("▎ 1/2 · The helper **first**: it is what")
    assert shown[row : row + 4] == [
        "▎ 1/2 · The helper **first**: it is what",
        "▎ the caller needs.",
        "−   return 1",
        "~   return 2",
    ]
    assert here(agent) == ["code.lua", 11]
    agent.feed("]w")
    agent.wait_for_screen("▎ 2/2 · Now the caller.")
    assert here(agent) == ["code.lua", 4]
    assert "1/2" not in agent.screen_text()
    agent.feed("[w")
    agent.wait_for_screen("▎ 1/2")
    agent.feed("2]w")
    agent.wait_for_message("That was the last of 2 changes.")
    assert "1/2" not in agent.screen_text()
    assert agent.lua("return vim.fn.maparg(']w', 'n')") == ""


def label(agent):
    """The rows above the step, as drawn."""
    return [line.split("│")[0].rstrip() for line in agent.screen() if line.startswith("▎")]


WORDS = "The parser keeps comments now, so that the printer can write them where they were."


@pytest.mark.parametrize("first", ["", "-- above\n\n"])
def test_the_words_of_a_step_are_wrapped_again_when_the_window_is_resized(
    start_agent, project, first
):
    (project / "code.lua").write_text(first + "local a = 1\n")
    change = reply(say(WORDS), edit("code.lua", "a = 1", "a = 2"))
    agent = start_agent(reply(use("read", path="code.lua")), change, DONE, columns=160)
    agent.command("AgentMode auto")
    agent.command("edit code.lua")
    agent.ask_and_wait()
    agent.command("wincmd t | only | rightbelow vnew | wincmd p")
    walk(agent)
    for cells, rows in ((100, 1), (40, 3), (60, 2)):
        agent.command(f"vertical resize {cells}")
        wait_until(lambda rows=rows: len(label(agent)) == rows, f"{rows} rows in {cells} cells")
        shown = " ".join(line.removeprefix("▎ ") for line in label(agent))
        assert shown == f"1/1 · {WORDS}"


def test_what_is_imported_comes_first_and_tests_come_last(walked):
    agent = walked(
        write("tests/test_all.py", TEST), write("main.py", MAIN), write("zhelper.py", HELPER),
        write("helper.py", "import zhelper\n"),
    )  # fmt: skip
    walk(agent)
    names = [name for name, _ in all_steps(agent)]
    assert names == ["zhelper.py", "helper.py", "main.py", "test_all.py"]


def test_changes_are_decided_and_commented_on_in_the_walk(walked, project):
    (project / "code.lua").write_text(LUA)
    agent = walked(
        use("read", path="code.lua"),
        edit("code.lua", "helper() + 1", "helper() + 2"),
        edit("code.lua", "  return 1\n", "  return 2\n"),
    )
    walk(agent)
    agent.feed("\\hr")
    wait_until(lambda: "  return 1\n" in (project / "code.lua").read_text())
    agent.feed("]w:AgentComment Why two?<CR>")
    assert places(agent) == [[4, 4, "Why two?"]]
    agent.feed("\\ha")
    wait_until(lambda: agent.lua("return require('sanderling.review.hunks').counts()") == 0)
    assert "helper() + 2" in (project / "code.lua").read_text()
    agent.feed("O-- above<Esc>[w")
    assert here(agent) == ["code.lua", 12]


def test_reviewed_changes_are_in_the_walk_and_comments_are_about_them(walked, project):
    (project / "code.lua").write_text(LUA)
    agent = walked(
        use("read", path="code.lua"), edit("code.lua", "return M", "M.a = 1\nM.b = 2\nreturn M")
    )
    agent.command("AgentAccept all")
    walk(agent)
    agent.feed(":AgentComment Both?<CR>")
    assert places(agent) == [[14, 15, "Both?"]]


def test_the_first_line_and_a_removed_file_have_their_steps(walked, project):
    (project / "a.txt").write_text("one\ntwo\n")
    (project / "b.txt").write_text("gone\n")
    agent = walked(
        use("read", path="a.txt"), edit("a.txt", "one\n", "1\n"), use("bash", command="rm b.txt")
    )
    walk(agent)
    shown = [line.split("│")[0].rstrip() for line in agent.screen()]
    assert shown[:3] == ["▎ 1/2", "− one", "~ 1"]
    agent.feed("]w")
    agent.wait_for_screen("▎ 2/2")
    assert here(agent)[0] == "b.txt"


def test_a_walk_without_a_change_says_so_and_one_in_diff_mode_is_refused(walked):
    agent = walked(say("Nothing."))
    agent.command("AgentDiff walk")
    agent.wait_for_message("The agent changed nothing in this turn.")
    agent.feed(":AgentDiff! walk<CR>")
    agent.wait_for_message("A walk takes no !.")


@pytest.fixture
def served(walked, project):
    """A Neovim with such a language server, which says that z.txt uses a.txt; by their imports it is the other way round."""
    (project / "open.txt").write_text("def open\n")

    def begin(style, limit_ms=60_000):
        agent = walked(write("a.txt", "import z\ndef base\n"), write("z.txt", "def top\nbase\n"))
        agent.command("edit open.txt")
        start(agent, project, "names", [*SCRIPTED, style], ["text"])
        if limit_ms:
            agent.lua("require('sanderling.review.uses').server_ms = ...", limit_ms)
        agent.lua("require('sanderling.code.asking').LIMIT_MS = 600000")  # of the model's requests
        agent.command("AgentDiff walk")
        return agent

    return begin


BY_SERVER, BY_IMPORTS = ["a.txt", "z.txt"], ["z.txt", "a.txt"]


@pytest.mark.parametrize(
    "style, names", [("plain", BY_SERVER), ("dying", BY_IMPORTS), ("linter", BY_IMPORTS)]
)
def test_a_language_server_that_knows_references_orders_the_walk(served, style, names):
    agent = served(style)
    agent.wait_for_screen("▎ 1/")
    assert [name for name, _ in all_steps(agent)] == names


def test_a_language_server_that_answers_late_but_in_time_is_waited_for(served, project):
    agent = served("held")
    wait_until((project / "asked").exists)
    assert "▎ 1/" not in agent.screen_text()
    (project / "released").touch()
    agent.wait_for_screen("▎ 1/")
    assert [name for name, _ in all_steps(agent)] == BY_SERVER


def test_a_language_server_that_answers_too_late_changes_nothing_and_is_asked_no_more(
    served, project
):
    agent = served("held", limit_ms=100)
    agent.wait_for_screen("▎ 1/")
    (project / "released").touch()
    for _ in range(2):  # the second one comes behind what the answers to the walk lead to
        assert agent.lua("""
          local buf = vim.fn.bufnr('open.txt')
          local params = { textDocument = vim.lsp.util.make_text_document_params(buf) }
          return vim.lsp.buf_request_sync(buf, 'textDocument/documentSymbol', params, 30000)
        """)
    assert [name for name, _ in all_steps(agent)] == BY_IMPORTS
    assert len((project / "asked").read_text().splitlines()) <= 3, "the walk has asked once"


def test_a_language_server_has_two_seconds(served):
    agent = served("mute", limit_ms=None)
    agent.wait_for_screen("▎ 1/")
    assert agent.lua("return require('sanderling.review.uses').server_ms") == 2000
    assert [name for name, _ in all_steps(agent)] == BY_IMPORTS


def test_a_walk_that_another_one_replaces_before_it_begins_leaves_no_marks(start_nvim, project):
    (project / "a.txt").write_text("a\n")
    (project / "b.txt").write_text("b\n")
    child = start_nvim()
    marks, shown = child.lua("""
      local uses, walk = require('sanderling.review.uses'), require('sanderling.review.walk')
      local callbacks = {}
      uses.find = function(_, on_done)
        callbacks[#callbacks + 1] = on_done
      end
      local bufs = {}
      for i, name in ipairs({ 'a.txt', 'b.txt' }) do
        vim.cmd.edit(name)
        bufs[i] = vim.api.nvim_get_current_buf()
        local path = vim.api.nvim_buf_get_name(0)
        walk.begin({ { buf = bufs[i], before = { path = path, text = 'old\\n' } } }, vim.fn.getcwd())
      end
      for _, on_done in ipairs(callbacks) do
        on_done({})
      end
      local ns = vim.api.nvim_get_namespaces().sanderling_walk_steps
      return { vim.api.nvim_buf_get_extmarks(bufs[1], ns, 0, -1, {}), vim.fn.bufname() }
    """)
    assert marks == []
    assert shown == "b.txt"
    child.wait_for_screen("▎ 1/1")


def test_another_agents_words_are_the_reasons_of_its_changes(start_guest, project):  # noqa: F811
    steps = [
        {"say": "I add a file."},
        {"write": {"path": str(project / "a.txt"), "text": "one\n"}},
        call("1", title="Write", kind="edit", status="completed"),
        {"say": "Done."},
    ]
    child = start_guest({"prompts": {"*": steps}}, columns=160, lines=40)
    typed(child, "go")
    child.wait_for_turns()
    child.command("AgentDiff walk")
    child.wait_for_screen("▎ 1/1 · I add a file.")


ORDERED = """
local count, edges, tests = ...
local uses = {}
for _, edge in ipairs(edges) do
  uses[edge[1]] = uses[edge[1]] or {}
  uses[edge[1]][edge[2]] = true
end
return require('sanderling.review.order').sorted(count, uses, function(number)
  return vim.list_contains(tests, number)
end)
"""


def reachable(edges, start):
    found, left = set(), [start]
    while left:
        at = left.pop()
        for a, b in edges:
            if a == at and b not in found:
                found.add(b)
                left.append(b)
    return found


@quick
def test_in_random_orders_no_step_is_missing_and_what_is_used_comes_first(start_nvim):
    child = start_nvim()
    for _ in range(part(200)):
        seed = random.randrange(10**6)
        rng = random.Random(seed)
        count = rng.randint(1, 12)
        numbers = range(1, count + 1)
        edges = [(rng.choice(numbers), rng.choice(numbers)) for _ in range(rng.randint(0, 16))]
        tests = [number for number in numbers if rng.random() < 0.2]
        order = child.lua(ORDERED, count, [list(edge) for edge in edges], tests)
        assert sorted(order) == [*numbers], seed
        at = {number: index for index, number in enumerate(order)}
        assert order == sorted(order, key=lambda number: (number in tests, at[number])), seed
        followed = [(a, b) for a, b in edges if a in tests or b not in tests]
        for a, b in followed:
            if a not in reachable(followed, b):
                assert (a in tests) > (b in tests) or at[b] < at[a], seed


STEPS = """
local seed, old, new = ...
local path = vim.fn.tempname() .. '.lua'
vim.fn.writefile(new, path)
vim.cmd('silent edit ' .. path)
local files = { { buf = vim.api.nvim_get_current_buf(), before = { path = path, text = old } } }
require('sanderling.review.walk').begin(files, vim.fs.dirname(path))
"""


@quick
def test_under_random_changes_the_steps_are_the_differences_each_once(start_nvim):
    child = start_nvim()
    for _ in range(part(10)):
        seed = random.randrange(10**6)
        rng = random.Random(seed)
        old = [f"local function f{i}() return f{rng.randrange(9)}() end" for i in range(30)]
        new = [*old]
        for at in sorted(rng.sample(range(0, 30, 2), rng.randint(1, 8)), reverse=True):
            new[at : at + 1] = rng.choice([[], [f"{new[at]} -- changed"], ["-- a", "-- b"]])
        child.command("messages clear")
        child.lua(STEPS, seed, "".join(f"{line}\n" for line in old), new)
        child.wait_for_screen("▎ 1/")
        visited = [lnum for _, lnum in all_steps(child)]
        expected = child.lua(
            "return vim.tbl_map(function(part) return part[3] end,"
            " require('sanderling.editing.hunks').differences(...))",
            old,
            new,
        )
        assert sorted(visited) == sorted(min(lnum, len(new)) for lnum in expected), seed
