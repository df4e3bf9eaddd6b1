"""The review of changes from end to end: a real Neovim, host, sandbox and files; only the model is a script."""

import random

import pytest
from tests.conftest import prove_rest, prove_unless_quick, quick, wait_until
from tests.nvim.replies import DONE, bash, reply, use

pytestmark = prove_unless_quick

APP = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"


def edit(old, new):
    return use("edit", path="app.py", edits=[{"old": old, "new": new}])


def write(path, text):
    return use("write", path=path, content=text)


READ = reply(use("read", path="app.py"))


@pytest.fixture
def app(project):
    path = project / "app.py"
    path.write_text(APP)
    return path


def hunks(agent, name="app.py"):
    return agent.lua(
        """
        local hunks = require('sanderling.review.hunks')
        return vim.tbl_map(function(hunk)
          return { hunk.row, hunk.count, hunk.old }
        end, hunks.list(vim.fn.bufnr((...))))
        """,
        name,
    )


@quick
def test_in_auto_a_change_is_made_and_stays_to_be_reviewed_and_a_rejection_is_told(
    start_agent, app
):
    both = reply(edit("a - b", "a + b"), edit("add(1, 2)", "add(2, 3)"))
    agent = start_agent(READ, both, DONE)
    agent.command("edit app.py")
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    changed = APP.replace("a - b", "a + b").replace("(1, 2)", "(2, 3)")
    assert app.read_text() == changed
    assert hunks(agent) == [[1, 1, ["    return a - b"]], [4, 1, ["print(add(1, 2))"]]]
    assert agent.lua("return require('sanderling').status().unreviewed") == 2
    assert "2 to review" in agent.statusline()
    agent.command("5AgentReject the numbers were right")
    assert app.read_text() == changed.replace("(2, 3)", "(1, 2)")
    agent.command("AgentAccept all")
    wait_until(lambda: agent.events("AgentStatusChanged")[-1]["unreviewed"] == 0)
    assert "to review" not in agent.screen_text()
    agent.ask_and_wait("and now?")
    told = wait_until(
        lambda: [
            block["text"]
            for message in agent.logged_messages()
            for block in message["content"]
            if block["type"] == "text" and "rejected these" in block["text"]
        ]
    )
    assert told == [
        (
            "[The user reviewed your changes of app.py and rejected these: the file has its previous"
            " lines again. Do not make them again unless asked. They say: the numbers were right\n"
            "@@ line 5 @@\n-print(add(2, 3))\n+print(add(1, 2))]"
        )
    ]


def test_a_change_that_the_person_has_seen_and_allowed_is_reviewed_already(start_agent, app):
    agent = start_agent(READ, reply(edit("a - b", "a + b")), DONE)
    agent.command("edit app.py")
    agent.ask()
    agent.answer_question("a")
    assert "a + b" in app.read_text()
    assert hunks(agent) == []


def test_the_difference_is_shown_of_closed_files_and_of_what_commands_changed(
    run_agent, app, project
):
    other = project / "other.txt"
    other.write_text("one\ntwo\nthree\n")
    run = bash("sed -i s/two/2/ other.txt")
    agent = run_agent(READ, reply(edit("a - b", "a + b")), reply(run), DONE)
    assert other.read_text() == "one\n2\nthree\n"
    other.write_text("one\n2\nthree\nmine\n")
    agent.command("AgentDiff")
    listed = wait_until(lambda: agent.lua("return vim.fn.getqflist()"))
    assert [(each["lnum"], each["text"]) for each in listed] == [
        (2, "+1 −1  return a + b"),
        (2, "+1 −1  2"),
    ]
    agent.command("AgentReject all")
    assert (app.read_text(), other.read_text()) == (APP, "one\ntwo\nthree\nmine\n")


@pytest.mark.usefixtures("app")
def test_the_difference_has_hunks_only_of_what_is_not_reviewed(run_agent, project):
    other = project / "other.txt"
    other.write_text("one\ntwo\nthree\n")
    run = bash("sed -i s/two/2/ other.txt")
    agent = run_agent(
        READ, reply(edit("a - b", "a + b"), edit("(1, 2)", "(2, 3)")), reply(run), DONE
    )

    def listed():
        agent.command("cclose | call setqflist([]) | AgentDiff")
        return wait_until(lambda: [each["text"] for each in agent.lua("return vim.fn.getqflist()")])

    assert listed() == ["+1 −1  return a + b", "+1 −1  print(add(2, 3))", "+1 −1  2"]
    agent.command("edit app.py | 2AgentAccept")
    agent.command("buffer other.txt | AgentAccept file")
    agent.command("bwipeout! app.py")
    wait_until(
        lambda: (
            listed()
            == ["+1 −1  print(add(2, 3))", "reviewed: +1 −1  return a + b", "reviewed: +1 −1  2"]
        )
    )
    assert len(hunks(agent)) == 1
    agent.command("AgentAccept all")
    wait_until(lambda: [text[:9] for text in listed()] == ["reviewed:"] * 3)
    assert hunks(agent) == []
    assert other.read_text() == "one\n2\nthree\n"


@pytest.mark.usefixtures("app")
def test_the_difference_is_shown_side_by_side(run_agent, project):
    (project / "gone.txt").write_text("what was in it\n")
    remove = bash("rm gone.txt")
    agent = run_agent(READ, reply(edit("a - b", "a + b")), reply(remove), DONE)
    agent.command("AgentDiff! session")
    wait_until(lambda: agent.lua("return #vim.api.nvim_list_tabpages()") == 3)
    screen = agent.screen_text()
    assert "gone.txt before the agent removed it" in screen
    assert "what was in it" in screen
    agent.command("tabprevious")
    screen = agent.screen_text()
    assert "app.py before the agent changed it" in screen
    assert any("return a - b" in row and "return a + b" in row for row in screen.split("\n"))
    assert agent.lua("return vim.wo.diff")


def test_where_nothing_was_changed_the_difference_says_so(start_agent):
    agent = start_agent(DONE)
    agent.command("AgentDiff")
    assert "No session is open" in agent.messages()
    agent.ask_and_wait()
    agent.command("AgentDiff walk")
    agent.wait_for_message("nothing in this turn. :AgentDiff walk session shows all turns.")
    agent.command("AgentDiff session")
    agent.wait_for_message("The agent changed nothing in this session.")
    agent.command("AgentDiff all")
    assert "AgentDiff: turn, session or walk, not 'all'" in agent.messages()


@pytest.mark.parametrize(
    "follow, keys, shown",
    [
        ("show", "<C-w>w", "app.py"),
        ("off", "<C-w>w", "here.txt"),
        ("show", "", "here.txt"),
        ("jump", "", "app.py"),
        ("jump", "i", "here.txt"),
    ],
)
def test_the_file_that_the_agent_changes_is_shown_where_the_person_is_not(
    start_agent, app, follow, keys, shown
):
    app.write_text("\n" * 100 + APP)
    app.with_name("here.txt").write_text("here\n")
    agent = start_agent(READ, reply(edit("a - b", "a + b")), DONE, setup={"follow": follow})
    agent.command("AgentMode auto")
    agent.command("edit here.txt")
    agent.ask()
    focus = agent.lua("return vim.api.nvim_get_current_win()")
    agent.feed(keys)
    agent.wait_for_turns()
    windows = agent.lua("""
      return vim.iter(vim.api.nvim_list_wins()):map(function(win)
        return vim.fs.basename(vim.api.nvim_buf_get_name(vim.api.nvim_win_get_buf(win)))
      end):totable()
    """)
    assert [name for name in windows if name in {"here.txt", "app.py"}] == [shown]
    if not keys:
        assert agent.lua("return vim.api.nvim_get_current_win()") == focus
    if shown == "app.py":
        assert "return a + b" in agent.screen_text()


def test_a_file_that_was_not_open_has_its_hunks_when_it_is_opened(run_agent, app):
    agent = run_agent(READ, reply(edit("a - b", "a + b")), DONE)
    agent.command("Agent reviews")
    listed = agent.lua("return vim.fn.getqflist()")
    assert [(each["lnum"], each["text"]) for each in listed] == [
        (2, "1 change while it was not open")
    ]
    agent.command("cclose | edit app.py")
    wait_until(lambda: hunks(agent) == [[1, 1, ["    return a - b"]]])
    agent.command("2AgentReject")
    assert app.read_text() == APP


TWO = reply(edit("a - b", "a + b"), edit("add(1, 2)", "add(2, 3)"))
CHANGED = APP.replace("a - b", "a + b").replace("(1, 2)", "(2, 3)")


def unreviewed(agent):
    return agent.lua("return (require('sanderling').status() or {}).unreviewed")


@pytest.fixture
def closed(run_agent, app):
    """An agent that has changed a file and made another, which are not open."""
    agent = run_agent(READ, TWO, reply(write("new.py", "x = 1\n")), DONE, DONE)
    assert app.read_text() == CHANGED
    assert unreviewed(agent) == 3
    return agent


def test_changes_of_files_that_are_not_open_are_counted_and_rejected_with_the_rest(closed, app):
    closed.command("AgentReject all no")
    wait_until(lambda: app.read_text() == APP)
    wait_until(lambda: not (app.parent / "new.py").exists())
    wait_until(lambda: unreviewed(closed) == 0)
    assert "Rejected 3 changes." in closed.messages()


def test_what_was_undone_is_not_to_be_reviewed_and_what_is_done_again_is(start_agent, app, project):
    less = edit("def add(a, b):\n", "")
    agent = start_agent(
        READ, reply(less, write("new.py", "x = 1\n"), write("shut.py", "y = 2\n")), DONE
    )
    agent.command("AgentMode auto")
    agent.command("edit app.py")
    agent.ask_and_wait()
    agent.command("wincmd t | edit new.py | edit app.py")
    wait_until(lambda: hunks(agent, "new.py") == [[0, 1, []]])
    assert unreviewed(agent) == 3
    agent.command("AgentUndo")
    wait_until(lambda: not (project / "shut.py").exists() and app.read_text() == APP)
    wait_until(lambda: unreviewed(agent) == 0)
    assert hunks(agent) == hunks(agent, "new.py") == []
    agent.command("AgentRedo")
    wait_until(lambda: unreviewed(agent) == 3)
    wait_until(lambda: hunks(agent) == [[0, 0, ["def add(a, b):"]]])
    agent.command("AgentReject all")
    wait_until(lambda: not (project / "shut.py").exists() and app.read_text() == APP)


def test_changes_of_files_that_are_not_open_are_kept_and_stay_so(closed, app, start_agent):
    closed.command("AgentAccept turn")
    assert "Accepted 3 changes." in closed.messages()
    assert unreviewed(closed) == 0
    closed.command("edit app.py")
    closed.ask_and_wait("again")
    assert hunks(closed) == []
    closed.close()
    again = start_agent(DONE)
    again.command("edit app.py")
    again.command("AgentResume")
    again.wait_for_screen("Done.")
    assert unreviewed(again) == 0
    assert app.read_text() == CHANGED


def test_the_next_change_may_be_in_a_file_that_is_not_open(closed, app):
    app.with_name("here.txt").write_text("here\n")
    closed.command("wincmd t | edit here.txt")
    closed.lua("require('sanderling.review.commands').go(1)")
    wait_until(
        lambda: hunks(closed) == [[1, 1, ["    return a - b"]], [4, 1, ["print(add(1, 2))"]]]
    )
    assert closed.lua("return { vim.fn.bufname(), vim.fn.line('.') }") == ["app.py", 2]


@pytest.mark.parametrize("is_open", prove_rest([True, False], keep=(-1,)))
def test_what_nobody_has_reviewed_comes_back_with_the_session(closed, app, start_agent, is_open):
    closed.command("edit app.py")
    wait_until(lambda: len(hunks(closed)) == 2)
    closed.command("2AgentAccept")
    closed.command("$put ='# mine'")
    closed.command("silent write")
    [journal] = (app.parent.parent / "home").rglob("journal.jsonl")
    wait_until(lambda: journal.read_text().count('"type":"reviewed"') == 2)
    closed.close()
    again = start_agent(DONE)
    again.command(f"edit {'app.py' if is_open else 'other.txt'}")
    again.command("AgentResume")
    wait_until(lambda: unreviewed(again) == 2)
    if not is_open:
        again.command("wincmd t | edit app.py")
    wait_until(lambda: hunks(again) == [[4, 1, ["print(add(1, 2))"]]])
    assert unreviewed(again) == 2
    again.command("AgentReject all")
    wait_until(lambda: not (app.parent / "new.py").exists())
    assert app.read_text() == APP.replace("a - b", "a + b") + "# mine\n"


def test_files_are_reviewed_while_an_answer_streams_and_the_person_types_in_another(
    start_agent, app
):
    made = reply(edit("a - b", "a + b"), edit("add(1, 2)", "add(2, 3)"), write("new.py", "x = 1\n"))
    words = [{"text": f"word {number}", "delay_ms": 10} for number in range(300)]
    agent = start_agent(READ, made, reply({"text": "Done."}), reply(*words), DONE)
    agent.command("AgentMode auto")
    agent.command("edit mine.txt | split app.py | split new.py | wincmd b")
    agent.ask_and_wait()
    agent.ask("tell more")
    agent.wait_for_screen("word 3")
    agent.command("buffer mine.txt")
    agent.feed("itype")
    windows = "vim.fn.win_execute(vim.fn.bufwinid('app.py'), ...)"
    agent.lua(f"{windows}", "5AgentReject the numbers were right")
    agent.feed(" on")
    agent.lua(f"{windows}", "2AgentAccept")
    agent.lua("vim.fn.win_execute(vim.fn.bufwinid('new.py'), 'AgentAccept file')")
    agent.feed(" and on")
    wait_until(lambda: agent.lua("return vim.api.nvim_get_current_line()") == "type on and on")
    assert agent.mode() == "i"
    assert "word 299" not in agent.transcript_text()
    assert app.read_text() == APP.replace("a - b", "a + b")
    assert hunks(agent) == []
    agent.wait_for_turns(2)
    assert "word 299" in agent.transcript_text()
    assert agent.lua("return require('sanderling').status().unreviewed") == 0


# None fails: after an error in visual mode Neovim itself does nothing for seconds.
TYPED = (
    "h j k l w b e 0 $ gg G % { } H M L fo ; n <C-d> <C-u> zt zz zb <C-e> <C-y> v V 3j 5k"
    " <Esc>ix<Esc> <Esc>dd <Esc>p <Esc>u <Esc>."
)
SEEN = """
local view = vim.fn.winsaveview()
return { vim.fn.mode(), view.lnum, view.col, view.topline, vim.fn.getline(1, '$') }
"""


@pytest.mark.parametrize("seed", range(5))
def test_whatever_a_person_types_does_the_same_while_hunks_and_an_answer_arrive(
    start_agent, app, project, seed
):
    app.write_text("v0\n" * 3)
    (project / "mine.txt").write_text("".join(f"one (two) {n} four\n\n" for n in range(60)))
    words = [{"text": f"word {n} ", "delay_ms": 4} for n in range(25)]
    rounds = [reply(*words, edit(f"v{n}\n" * 3, f"v{n + 1}\n" * 3)) for n in range(12)]
    busy, quiet = start_agent(READ, *rounds, DONE), start_agent(DONE)
    for agent in (busy, quiet):
        agent.command("AgentMode auto")
        agent.command("edit mine.txt | split app.py")
        agent.command("AgentChat")
        agent.command("wincmd t | wincmd j | let @/ = 'two' | normal! yy")
    busy.submit("go")
    busy.wait_for_screen("word 3")
    choose = random.Random(seed)
    while not busy.events("AgentTurnEnded"):
        keys = choose.choice(TYPED.split())
        for agent in (busy, quiet):
            agent.feed(keys)
        assert busy.lua(SEEN) == quiet.lua(SEEN), keys
    assert app.read_text() == "v12\n" * 3
    assert hunks(busy) == [[0, 3, ["v0"] * 3]]
    assert "rror" not in busy.messages()


@quick
def test_one_key_rejects_a_hunk_with_a_reason_and_another_accepts_one(start_agent, app):
    both = reply(edit("a - b", "a + b"), edit("add(1, 2)", "add(2, 3)"))
    agent = start_agent(READ, both, DONE)
    agent.command("edit app.py")
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    agent.feed(r"gg]h\ha]h\hdthe numbers were right<CR>")
    wait_until(lambda: hunks(agent) == [])
    assert app.read_text() == APP.replace("a - b", "a + b")
    agent.ask_and_wait()
    assert "the numbers were right" in str(agent.logged_messages()[-2])


@quick
def test_a_decided_hunk_leaves_the_quickfix_list(start_agent, app):
    both = reply(edit("a - b", "a + b"), edit("add(1, 2)", "add(2, 3)"))
    agent = start_agent(READ, both, DONE)
    agent.command("edit app.py")
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    agent.command("Agent reviews")
    lines = "return vim.tbl_map(function(item) return item.lnum end, vim.fn.getqflist())"
    assert agent.lua(lines) == [2, 5]
    agent.command("wincmd p | 5AgentReject the numbers were right")
    assert agent.lua(lines) == [2]
    agent.command("2AgentAccept")
    assert agent.lua(lines) == []
    assert app.read_text() == APP.replace("a - b", "a + b")
