"""The agent acts and the person decides, from end to end: a real Neovim, host, sandbox and files; only the model is a script."""

import json
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import (
    ROOT,
    is_alive,
    prove_rest,
    prove_unless_quick,
    quick,
    running,
    wait_until,
)
from tests.nvim.replies import DONE, bash, reply, say, use

from sanderling.changes.journal import turns_of
from sanderling.changes.records import read_journal
from sanderling.protocol.messages import ToolResult
from sanderling.session.history import NOT_RUN
from sanderling.session.log import SessionInUseError
from sanderling.session.session import Session

pytestmark = prove_unless_quick

APP = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"
FIXED = APP.replace("a - b", "a + b")
RIGHT = {"old": "a - b", "new": "a + b"}


def edit(*edits, path="src/app.py"):
    return use("edit", path=path, edits=list(edits or [RIGHT]))


TOOK = r"\d+(\.\d+)? m?s"


@pytest.fixture
def app(project):
    (project / "src").mkdir()
    path = project / "src" / "app.py"
    path.write_text(APP)
    return path


# --- asking ------------------------------------------------------------------------------------------------------------


def test_reading_runs_at_once_and_a_change_shows_what_it_would_be_and_waits(start_agent, app):
    replies = reply(use("read", path="src/app.py")), reply(edit()), DONE
    agent = start_agent(*replies, setup={"review": "float"})
    agent.command("edit src/app.py")
    agent.ask()
    text = agent.wait_for_question()
    assert "read src/app.py  5 lines" in text
    assert "╭ Allow edit src/app.py? ─" in text
    assert "No rule allows this change." in text
    assert re.search(r"│in /", text)
    assert re.search(r"│sbx:\S+( partial)? net:off ", text)
    assert "│-    return a - b " in text
    assert "│+    return a + b " in text
    assert "ask waiting for you: 1 to answer" in text
    assert "waiting for you: 1 to answer" in agent.statusline()
    told = agent.events("AgentApprovalRequested")
    assert [(event["tool"], event["title"], event["count"]) for event in told] == [
        ("edit", "src/app.py", 1)
    ]
    assert app.read_text() == APP
    assert agent.lua("return vim.fn.expand('%')") == "src/app.py"


@quick
def test_an_allowed_change_is_in_the_file_and_in_its_buffer_as_one_undo_step(start_agent, app):
    agent = start_agent(
        reply(use("read", path="src/app.py")),
        reply(edit(RIGHT, {"old": "print(add(1, 2))", "new": "print(add(2, 3))"})),
        DONE,
    )
    agent.command("edit src/app.py")
    agent.ask()
    agent.answer_question("a")
    changed = FIXED.replace("(1, 2)", "(2, 3)")
    assert app.read_text() == changed
    buffer = "return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n') .. '\\n'"
    assert agent.lua(buffer) == changed
    assert not agent.lua("return vim.bo.modified")
    assert "▸ edit src/app.py  +2 −2 · " in agent.screen_text()
    assert "Allow" not in agent.screen_text()
    agent.command("normal! u")
    assert agent.lua(buffer) == APP


def test_a_cell_of_a_notebook_that_is_open_is_changed_in_its_buffer_as_one_undo_step(
    start_agent, project
):
    cells = [
        {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": [each]}
        for each in ("x = 1\n", "y = 2\n")
    ]
    before = json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1
    )
    path = project / "n.ipynb"
    path.write_text(before + "\n")
    agent = start_agent(
        reply(use("read", path="n.ipynb")),
        reply(use("edit", path="n.ipynb", edits=[{"cell": 2, "old": "y = 2", "new": "y = 3"}])),
        DONE,
    )
    agent.command("edit n.ipynb")
    agent.ask()
    agent.answer_question("a")
    changed = before.replace("y = 2", "y = 3") + "\n"
    assert path.read_text() == changed
    buffer = "return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n') .. '\\n'"
    assert agent.lua(buffer) == changed
    assert not agent.lua("return vim.bo.modified")
    assert "--- cell 2: code, run [1]" in agent.results()[0]
    agent.command("normal! u")
    assert agent.lua(buffer) == before + "\n"


LONG_TALK = say("".join(f"Line {n}.\n\n" for n in range(60)) + "So I mend it.")


def said_above_question(agent):
    """The last three rows of the chat that the question leaves to be seen."""
    rows = agent.screen()
    top = next(row for row, text in enumerate(rows) if "╭ Allow edit" in text)
    return [row.rpartition("│")[2] for row in rows[top - 3 : top]]


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize("is_opened_later", [False, True])
def test_what_led_to_a_question_stands_above_it(start_agent, is_opened_later):
    agent = start_agent(reply(LONG_TALK, edit()))
    agent.ask()
    if is_opened_later:
        agent.command("AgentChat")  # which hides it
    agent.wait_for_question()
    if is_opened_later:
        agent.command("AgentChat")
    wait_until(lambda: said_above_question(agent) == [" So I mend it.", "", " edit src/app.py …"])


@pytest.mark.usefixtures("app")
def test_a_question_leaves_the_place_of_somebody_who_reads_the_chat(start_agent, project):
    agent = start_agent(
        reply(LONG_TALK, bash("until [ -e go ]; do sleep 0.02; done")), reply(edit())
    )
    agent.ask()
    agent.wait_for_screen("bash until")
    agent.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    agent.feed("gg")
    agent.wait_for_screen("Line 0.")
    (project / "go").touch()
    assert "Line 0." in agent.wait_for_question()


def test_a_file_far_down_is_named_whole_in_a_question_that_is_narrow(start_agent, project):
    path = "src/a_directory_with_a_long_name/and_another_one_below_it/app.py"
    agent = start_agent(reply(use("write", path=path, content="x\n")))
    agent.ask()
    screen = agent.wait_for_question()
    assert re.search(r"╭ Allow write src/a_dir\S*…\S*/app\.py\? ", screen)
    assert path in "".join(re.findall(r"││(?:↪ )?(.*?) *│\n", screen))
    assert list(project.iterdir()) == [project / ".git"]


@pytest.mark.usefixtures("app")
def test_a_chat_that_is_low_does_not_cut_a_question(start_agent):
    agent = start_agent(reply(edit()), setup={"chat": {"position": "bottom", "size": 0.4}})
    agent.ask()
    screen = agent.wait_for_question()
    assert "│+    return a + b" in screen
    assert "more lines" not in screen


@pytest.mark.parametrize("has_buffer", [True, False])
def test_project_that_was_replaced_is_the_one_that_is_changed_and_that_is_told(
    start_agent, app, project, has_buffer
):
    agent = start_agent(
        reply(bash("true")),
        reply(say("Ready.")),
        reply(edit()),
        reply(bash("echo made >new; cat src/app.py")),
        reply(use("grep", pattern="def ")),
        DONE,
    )
    agent.command("AgentMode auto")
    if has_buffer:
        agent.command("edit src/app.py")
    agent.ask_and_wait()
    old = project.rename(project.parent / "old")
    shutil.copytree(old, project)
    app.write_text("# new\n" + APP)
    agent.ask_and_wait()
    assert app.read_text() == "# new\n" + FIXED
    assert (project / "new").read_text() == "made\n"
    assert (old / "src/app.py").read_text() == APP
    assert sorted(path.name for path in old.iterdir()) == [".git", "src"]
    agent.wait_for_screen("Done.")
    assert "was replaced by another directory" in agent.transcript_text()
    told = "".join(map(str, agent.logged_messages()))
    assert told.count("The project directory was replaced") == 1
    assert "2: def add" in agent.results()[-1]
    if has_buffer:
        lines = agent.lines("app.py")
        assert "\n".join(lines) + "\n" == app.read_text()
        assert not agent.lua("return vim.bo[vim.fn.bufnr('app.py')].modified")


def test_without_a_project_nothing_is_done_until_it_is_back(run_agent, app, project):
    agent = run_agent(
        reply(bash("true")),
        reply(say("Ready.")),
        *(
            reply(each)
            for each in (edit(), bash("echo x >new"), use("write", path="n", content="n"))
        ),
        reply(use("glob", pattern="*")),
        reply(say("Nothing.")),
        reply(edit()),
        DONE,
    )
    away = project.rename(project.parent / "away")
    agent.ask_and_wait()
    assert not project.exists()
    assert sorted(path.name for path in away.iterdir()) == [".git", "src"]
    refused = agent.results()[1:]
    assert len(refused) == 4
    assert [each for each in refused if "is gone: nothing runs" not in each] == []
    away.rename(project)
    agent.ask_and_wait()
    assert app.read_text() == FIXED


@quick
def test_unsaved_text_is_what_the_model_reads_and_what_it_changes(start_agent, app):
    agent = start_agent(reply(use("read", path="src/app.py")), reply(edit()), DONE)
    agent.command("edit src/app.py | call append('$', '# mine')")
    agent.ask()
    assert "1 hunk to review in the file" in agent.wait_for_question()
    assert "# mine" in agent.results()[0]
    agent.command("AgentAllow")
    agent.wait_for_turns()
    lines = agent.lines()
    assert "\n".join(lines) == f"{FIXED}# mine"
    assert agent.lua("return vim.bo.modified")
    assert app.read_text() == APP
    assert "edit src/app.py  +1 −1 · not saved" in agent.wait_for_screen("· not saved")
    agent.command("silent undo")
    assert "    return a - b" in agent.lines()
    assert "# mine" in agent.lines()
    agent.close()
    again = start_agent()
    again.command("AgentResume")
    again.wait_for_screen("edit src/app.py  +1 −1 · not saved")


@quick
@pytest.mark.usefixtures("app")
def test_a_command_names_project_files_that_are_newer_in_the_editor(start_agent, tmp_path):
    agent = start_agent(reply(bash("true")), reply(say("One.")), reply(bash("true")), DONE)
    agent.command("AgentMode auto")
    agent.command(f"edit {tmp_path}/elsewhere.txt | call append('$', 'mine')")
    agent.command("edit src/app.py | call append('$', '# mine')")
    agent.ask_and_wait()
    note = "[Commands read the disk, where these are older than in the editor: src/app.py]"
    assert note in agent.results()[0]
    agent.command("silent write")
    agent.ask_and_wait()
    assert "Commands read the disk" not in agent.results()[1]


@quick
@pytest.mark.parametrize("key", prove_rest(["1", "2", "d"]))
def test_before_a_command_the_user_is_asked_once_whether_to_save_what_the_model_edited(
    start_agent, app, key
):
    both = reply(edit(), bash("cat src/app.py"))
    agent = start_agent(reply(use("read", path="src/app.py")), both, reply(bash("true")), DONE)
    agent.command("AgentMode auto")
    agent.command("edit src/app.py | call append('$', '# mine')")
    agent.ask()
    screen = agent.wait_for_question()
    assert "Save src/app.py?" in screen
    assert "1  Save" in screen
    assert app.read_text() == APP
    agent.answer_question(key)
    command, last = agent.results()[-2:]
    is_saved = key == "1"
    assert app.read_text() == (f"{FIXED}# mine\n" if is_saved else APP)
    assert ("# mine" in command) == is_saved
    for result in (command, last):
        assert ("[Commands read the disk" in result) == (not is_saved)
    assert len(agent.events("AgentApprovalRequested")) == 1


@pytest.mark.parametrize(
    "mode, answer", [("auto", "AgentAllow"), ("auto", "AgentDeny"), ("ask", "AgentAllow")]
)
def test_a_change_over_unsaved_text_is_the_persons_to_decide_once_in_every_mode(
    start_agent, app, project, mode, answer
):
    wait = bash("until [ -e go ]; do sleep 0.02; done")
    agent = start_agent(reply(use("read", path="src/app.py")), reply(wait), reply(edit()), DONE)
    agent.command(f"AgentMode {mode}")
    agent.command("edit src/app.py")
    agent.ask()
    agent.wait_for_screen("│ bash until")
    agent.feed("2Gf-r*")
    (project / "go").touch()
    agent.wait_for_question()
    shown = agent.question_text()
    assert "You have unsaved changes in these lines" in shown
    assert "-    return a * b\n+    return a + b\n" in shown
    agent.command(answer)
    agent.wait_for_turns()
    assert app.read_text() == APP
    if answer == "AgentAllow":
        assert agent.lua("return vim.fn.getline(2)") == "    return a + b"
        agent.command("silent undo")
    else:
        assert "The user keeps their own unsaved text." in agent.results()[-1]
        assert "    return a * b" in agent.results()[-1]
    assert agent.lua("return vim.fn.getline(2)") == "    return a * b"
    assert len(agent.events("AgentApprovalRequested")) == 1


def test_a_question_takes_no_key_of_somebody_who_types(start_agent, app):
    agent = start_agent(reply(edit()), DONE)
    agent.command("edit notes.txt")
    agent.ask()
    agent.feed("i")
    typed = ""
    while not (agent.float() and len(typed) > 500):
        agent.feed("a d A s p q ")
        typed += "a d A s p q "
        assert len(typed) < 200_000
    agent.feed("<Esc>")
    wait_until(lambda: agent.mode() == "n")
    assert agent.lua("return vim.fn.getline(1)") == typed
    assert agent.lua("return vim.fn.expand('%')") == "notes.txt"
    assert app.read_text() == APP
    assert "1 to answer" in agent.screen_text()


# --- answers -----------------------------------------------------------------------------------------------------------


def test_once_is_once(asking_agent):
    agent = asking_agent(reply(bash("touch made")), reply(bash("touch made")), DONE)
    agent.command("AgentAllow")
    agent.wait_for_question(2)
    agent.command("AgentAllow once")
    agent.wait_for_turns()


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize(
    "first, second",
    [(bash("touch made"), bash("touch made")), (edit(), edit({"old": "(1, 2)", "new": "(2, 3)"}))],
    ids=["same command", "same file"],
)
def test_for_the_session_is_not_asked_again(asking_agent, first, second):
    agent = asking_agent(reply(first), reply(second), DONE)
    agent.answer_question("s")
    assert len(agent.events("AgentApprovalRequested")) == 1
    assert len(agent.results()) == 2
    assert "✗" not in agent.transcript_text()


def test_a_rule_made_by_always_can_be_edited_and_holds_in_the_next_session(
    start_agent, asking_agent, project, tmp_path
):
    agent = asking_agent(reply(bash("mkdir first")), DONE)
    agent.enter_question()
    agent.feed("A")
    agent.wait_for_screen("Always allow: allow bash mkdir")
    agent.feed("<C-u>allow bash mkdir *<CR>")
    agent.wait_for_turns()
    assert (project / "first").is_dir()
    assert not [path for path in project.rglob("*") if "rule" in path.name]
    kept = [
        path
        for path in (tmp_path / "home").rglob("*.json")
        if path.is_file() and "mkdir" in path.read_text()
    ]
    assert len(kept) == 1

    second = start_agent(reply(bash("mkdir second third")), DONE)
    second.ask_and_wait()
    assert (project / "third").is_dir()
    assert second.events("AgentApprovalRequested") == []


@pytest.mark.parametrize(
    "typed, words",
    [
        ("1<CR>", "'allow bash mkdir first1' was not added"),
        ("<C-u>99<CR>", "'99' is not a rule"),
        ("<C-u>allow bash rm<CR>", "'allow bash rm' was not added"),
    ],
)
def test_always_keeps_no_rule_that_does_not_cover_the_command(
    asking_agent, project, tmp_path, typed, words
):
    agent = asking_agent(reply(bash("mkdir first")), DONE)
    agent.enter_question()
    agent.feed(f"A<BS><BS>{typed}" if typed[0] == "1" else f"A{typed}")
    agent.wait_for_screen("╭ Allow bash? ─", "│mkdir first ")
    wait_until(lambda: words in agent.question_text(), words)
    assert not (project / "first").exists()
    assert not list((tmp_path / "home").rglob("rules/*.json"))


EVALUATED = "\x12=execute('let g:evaluated = 1')"  # <C-r>= asks for an expression


def test_a_path_with_control_characters_gets_no_rule_and_types_no_keys(asking_agent):
    call = use("write", path=EVALUATED, content="x")
    agent = asking_agent(reply(call), DONE)
    agent.enter_question()
    agent.feed("A")
    agent.wait_for_message('"Always" is not available for this.')
    agent.feed("s")
    agent.wait_for_turns()
    assert agent.lua("return vim.g.evaluated") is None


def test_what_is_no_rule_is_told_in_the_question_which_stays(asking_agent, project):
    agent = asking_agent(reply(bash("mkdir first")), DONE)
    agent.enter_question()
    agent.feed("A<C-u>nonsense<CR>")
    agent.wait_for_screen("Allow bash?", "'nonsense' is not a rule")
    assert not (project / "first").exists()
    assert not agent.is_blocked()


@quick
@pytest.mark.parametrize("keys", prove_rest(["d", ":AgentDeny<CR>"], keep=(0,)))
def test_what_is_denied_does_not_run_and_the_model_is_told(asking_agent, project, keys):
    agent = asking_agent(reply(bash("touch made")), DONE)
    agent.answer_question(keys)
    assert not (project / "made").exists()
    assert agent.results()[0].startswith("The user denied this without a reason.")
    assert "bash touch made  ✗ denied" in agent.screen_text()
    assert agent.transcript()[-1] == "Done."


@pytest.mark.parametrize("keys", ["Dnot | now<CR>", ":AgentDeny not | now<CR>"])
def test_the_model_reads_the_reason_of_a_denial(asking_agent, project, keys):
    agent = asking_agent(reply(bash("touch made")), DONE)
    agent.answer_question(keys)
    assert agent.results() == ["The user denied this: not | now"]
    assert not (project / "made").exists()


def test_to_leave_a_question_answers_nothing_and_it_can_be_reached_again(asking_agent, app):
    agent = asking_agent(reply(edit()), DONE)
    agent.enter_question()
    agent.feed("<Esc>")
    wait_until(lambda: not agent.float())
    assert "Allow" not in agent.screen_text()
    assert "waiting for you: 1 to answer" in agent.screen_text()
    assert app.read_text() == APP
    assert agent.results() == []
    agent.command("Agent question")
    agent.wait_for_question()
    agent.feed("a")
    agent.wait_for_turns()
    assert app.read_text() == FIXED


def test_one_key_denies_all_three_and_each_has_a_result(asking_agent, project):
    agent = asking_agent(reply(bash("touch one"), bash("touch two"), bash("touch three")), DONE)
    agent.command("AgentDeny!")
    agent.wait_for_turns()
    results = agent.results()
    assert len(results) == 3
    assert results[0].startswith("The user denied this")
    assert results[1:] == ["Not run: the user denied another tool call of the same message."] * 2
    assert sorted(path.name for path in project.iterdir()) == [".git"]
    wait_until(lambda: not agent.float())
    assert agent.transcript_text().count("✗ denied") == 1
    assert agent.transcript_text().count("✗ not run") == 2


@pytest.mark.usefixtures("app")
def test_a_model_that_goes_in_circles_goes_on_only_when_it_is_let(start_agent):
    agent = start_agent(reply(use("read", path="src/app.py"), repeat=True))
    agent.ask()
    assert "╭ Let it continue? ─" in agent.wait_for_question()
    assert len(agent.results()) == 5
    agent.command("AgentAllow")
    agent.wait_for_question(2)
    assert len(agent.results()) == 10
    agent.command("AgentDeny")
    agent.wait_for_turns()
    assert len(agent.results()) == 10


# --- from anywhere -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [":AgentAllow<CR>", "<F2>", ":AgentDeny<CR>", "<F3>"])
def test_it_is_answered_from_another_tab_page_without_going_into_it(start_agent, app, how):
    agent = start_agent(reply(edit()), DONE)
    agent.command("map <F2> <Plug>(AgentAllow)")
    agent.command("map <F3> <Plug>(AgentDeny)")
    agent.ask()
    agent.command("tabnew")
    agent.wait_for_question()
    assert "│+    return a + b" in agent.screen_text()
    agent.feed(how)
    agent.wait_for_turns()
    assert agent.lua("return vim.fn.tabpagenr()") == 2
    is_allowed = "Allow" in how or how == "<F2>"
    assert app.read_text() == (FIXED if is_allowed else APP)


@pytest.mark.parametrize(
    "keys", [":only<CR>", "<C-w>o", ":tabnew<CR>:tabclose<CR>", ":tab split<CR>:tabonly<CR>"]
)
def test_it_survives_what_closes_windows_and_can_be_answered_then(asking_agent, app, keys):
    agent = asking_agent(reply(edit()), DONE)
    agent.feed(keys)
    agent.lua("return 1")
    agent.wait_for_screen("Allow edit src/app.py?", "│+    return a + b")
    agent.wait_for_question()  # it has to be seen anew
    agent.command("AgentAllow")
    wait_until(lambda: app.read_text() == FIXED)


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize("lines", [14, 12])
def test_it_is_whole_on_a_screen_that_becomes_small(asking_agent, lines):
    agent = asking_agent(reply(edit()), DONE)
    agent.rpc.request("nvim_ui_try_resize", 60, lines)
    wait_until(lambda: agent.lua("return vim.o.columns") == 60)
    rows = agent.screen()
    top = next(row for row, text in enumerate(rows) if "╭ Allow edit src/app.py?" in text)
    bottom = next(row for row, text in enumerate(rows) if "╯" in text)
    left, right = rows[top].index("╭"), rows[top].index("╮")
    assert right < 60
    for row in rows[top + 1 : bottom]:
        assert (row[left], row[right]) == ("│", "│"), rows
    assert (rows[bottom][left], rows[bottom][right]) == ("╰", "╯")
    assert ":Agent question to answer" in rows[bottom]
    if lines == 14:
        shown = "".join(row[left + 1 : right].rstrip() + "\n" for row in rows[top + 1 : bottom])
        assert "-    return a - b\n+    return a + b\n\n\n print(add(1, 2))\n" in shown
    else:
        assert any("more lines: :Agent question" in row for row in rows[top:bottom])


def test_tab_goes_on_to_the_next_question_and_p_opens_what_it_is_about(start_agent, app):
    agent = start_agent(reply(edit(), use("write", path="new.txt", content="x\n")))
    agent.ask()
    agent.wait_for_question(2)
    agent.enter_question()

    def question():
        return re.search(r"Allow (edit|write) .* · (\d) of 2", agent.screen_text()).groups()

    first = question()
    agent.feed("<Tab>")
    wait_until(lambda: question() != first)
    assert {first, question()} in ({("edit", "1"), ("write", "2")}, {("write", "1"), ("edit", "2")})
    agent.feed("<Tab>" if first[0] == "edit" else "")
    wait_until(lambda: question()[0] == "edit")
    agent.feed("p")
    wait_until(lambda: agent.lua("return vim.fn.tabpagenr('$')") == 2)
    assert "+    return a + b" in agent.lines()
    agent.feed("q")
    wait_until(lambda: agent.lua("return vim.fn.tabpagenr('$')") == 1)
    assert app.read_text() == APP


# --- modes -------------------------------------------------------------------------------------------------------------


def test_in_auto_what_the_sandbox_confines_runs_without_a_question(run_agent, app, project):
    agent = run_agent(reply(edit(), bash("touch made")), DONE)
    assert app.read_text() == FIXED
    assert (project / "made").exists()
    assert agent.events("AgentApprovalRequested") == []
    assert "│auto idle · 1 to review " in agent.screen_text()


def test_the_key_of_the_prompt_changes_the_mode_and_the_winbar_says_so(start_agent):
    agent = start_agent(DONE)
    agent.command("AgentChat")
    for mode in ("auto", "plan", "ask"):
        agent.feed("<S-Tab>")
        agent.wait_for_screen(f"NORMAL {mode} idle")


def test_in_plan_nothing_changes_not_even_by_a_command(start_agent, app, project):
    agent = start_agent(reply(edit()), reply(bash("touch made; echo $?")), DONE)
    agent.command("AgentMode plan")
    agent.ask()
    agent.wait_for_screen("│plan ")
    agent.wait_for_turns()
    assert app.read_text() == APP
    assert not (project / "made").exists()
    assert "edit src/app.py  ✗ denied" in agent.screen_text()
    assert "Read-only file system" in agent.transcript_text()
    assert agent.events("AgentApprovalRequested") == []


def test_what_was_asked_before_the_mode_changed_to_plan_is_not_done(asking_agent, app):
    agent = asking_agent(reply(edit()), DONE)
    agent.command("AgentMode plan")
    agent.wait_for_screen("│plan ")
    if agent.float():
        agent.command("AgentAllow")
    agent.wait_for_turns()
    assert app.read_text() == APP


# --- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_shows_what_it_writes_while_it_runs(start_agent, project):
    (project / "slow").write_text("echo began\nuntil [ -e go ]\ndo sleep 0.02\ndone\necho ended\n")
    agent = start_agent(reply(bash("bash slow")), DONE)
    agent.command("AgentMode auto")
    agent.ask()
    screen = agent.wait_for_screen("│ began")
    assert "│ bash bash slow …" in screen
    assert "│auto running bash " in screen
    assert "ended" not in screen
    (project / "go").touch()
    agent.wait_for_turns()
    assert re.search(rf"│ ▸ bash bash slow  ✓ {TOOK} · 2 lines", agent.screen_text())
    assert "ended" in agent.transcript()


def test_a_command_that_fails_stays_open(run_agent):
    agent = run_agent(reply(bash("echo wrong; exit 3")), DONE)
    screen = agent.screen_text()
    assert re.search(rf"│.bash echo wrong; exit 3  ✗ exit status 3 · {TOOK}\n", screen)
    assert re.search(r"│.wrong\n", screen)


def test_a_command_that_takes_too_long_goes_on_as_a_job_that_can_be_watched_and_stopped(
    run_agent, marker
):
    agent = run_agent(reply(bash(f"echo began; {marker}", timeout_s=0.3)), DONE)
    screen = agent.wait_for_screen("→ j1", "· 1 job")
    assert running(marker)
    agent.command("Agent terminal")
    wait_until(lambda: agent.lua("return vim.api.nvim_buf_get_lines(0, 0, 1, true)[1]") == "began")
    agent.feed("<C-c>")
    screen = agent.wait_for_screen("[ended by SIGINT")
    assert "1 job" not in screen
    wait_until(lambda: not running(marker))


@pytest.mark.parametrize("way", ["AgentStop", "quit", "kill", "clear"])
def test_nothing_is_left_running(start_agent, marker, way):
    agent = start_agent(
        reply(bash(f"({marker} &); setsid {marker} & {marker}", background=True)),
        reply(bash(f"trap '' INT TERM; setsid {marker} & ({marker} &); {marker}; {marker}")),
        DONE,
    )
    agent.command("AgentMode auto")
    agent.ask()
    wait_until(lambda: len(running(marker)) >= 6, "both run")
    if way == "AgentStop":
        agent.command("AgentStop")
        agent.wait_for_turns()
        agent.wait_for_screen("✗", "Stopped.")
        agent.command("Agent terminal!")
    elif way == "clear":
        agent.lua("require('sanderling').clear()")
    elif way == "quit":
        agent.feed(":qa!<CR>")
        wait_until(lambda: agent.rpc.process.poll() is not None)
    else:
        agent.rpc.process.kill()
    wait_until(lambda: not running(marker), f"nothing is left after {way}")


# --- looking closer ----------------------------------------------------------------------------------------------------


def in_transcript(agent, pattern):
    agent.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    agent.command("normal! gg")
    assert agent.lua("return vim.fn.search(..., 'cW')", pattern) > 0


def test_k_shows_input_and_output_in_full(run_agent):
    agent = run_agent(reply(bash("seq 1 3; echo done")), DONE)
    in_transcript(agent, "^bash seq")
    agent.feed("K")
    wait_until(lambda: agent.lua("return vim.api.nvim_win_get_config(0).relative") == "editor")
    lines = agent.lines()
    assert '  "command": "seq 1 3; echo done"' in lines
    assert lines[lines.index("1") :][:4] == ["1", "2", "3", "done"]
    assert "╭ bash ─" in agent.screen_text()
    agent.feed("q")
    wait_until(lambda: agent.lua("return vim.api.nvim_win_get_config(0).relative") == "")


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize("key", ["gf", "<CR>"])
def test_a_place_that_a_command_names_is_opened_where_code_was_looked_at_last(start_agent, key):
    agent = start_agent(reply(bash("echo; echo src/app.py:5:1: error; false")), DONE)
    agent.command("AgentMode auto")
    agent.command("edit one.txt | vsplit two.txt")
    agent.lua("_G.code_win = vim.api.nvim_get_current_win()")
    agent.ask_and_wait()
    in_transcript(agent, "^src/app.py:5:1: error")
    agent.feed(key)
    wait_until(lambda: agent.lua("return vim.fn.expand('%:.')") == "src/app.py")
    assert agent.lua("return vim.api.nvim_win_get_cursor(0)") == [5, 0]
    assert agent.lua("return vim.api.nvim_get_current_win() == _G.code_win")


def test_the_list_of_what_is_to_be_done_is_pinned_and_shown(start_agent):
    def items(*statuses):
        names = ("Look", "Change", "Test")
        return [
            {"content": name, "status": status}
            for name, status in zip(names, statuses, strict=True)
        ]

    agent = start_agent(
        reply(use("todo", items=items("completed", "in_progress", "pending"))),
        reply(say("Two to go.")),
        reply(use("todo", items=items("completed", "completed", "completed"))),
        DONE,
    )
    agent.ask_and_wait()
    screen = agent.screen()
    pinned = [row for row, text in enumerate(screen) if re.search("│[☐◐☑] ", text)]
    assert [screen[row].partition("│")[2] for row in pinned] == ["☑ Look", "◐ Change", "☐ Test"]
    assert pinned == list(range(pinned[0], pinned[0] + 3))
    agent.command("Agent todo")
    lines = agent.lines()
    assert lines == ["☑ Look", "◐ Change", "☐ Test"]
    assert "╭ Todo ─" in agent.screen_text()
    agent.feed("q")
    agent.ask_and_wait("on")
    assert not any(re.search("│[☐◐☑] ", row) for row in agent.screen())


@pytest.mark.usefixtures("app")
def test_a_command_that_changes_files_is_seen_in_their_buffers(start_agent, project):
    other = project / "other.txt"
    other.write_text("old\n")
    agent = start_agent(reply(bash("sed -i s/a.-.b/a+b/ src/app.py; echo new > other.txt")), DONE)
    agent.command("AgentMode auto")
    agent.command("edit other.txt | call setline(1, 'mine') | set hidden | split src/app.py")
    agent.ask_and_wait()
    agent.wait_for_screen("    return a+b")
    assert not agent.is_blocked()
    assert agent.lua("return vim.fn.getbufline('other.txt', 1, '$')") == ["mine"]
    assert agent.lua("return vim.fn.getbufvar('other.txt', '&modified')") == 1
    assert other.read_text() == "new\n"


# --- ends --------------------------------------------------------------------------------------------------------------


def test_what_a_hook_changes_after_a_call_is_seen_in_buffers(start_agent, project, tmp_path):
    config = tmp_path / "home/config/sanderling/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[[hooks.PostToolUse]]\ncommand = "echo formatted >notes.txt"\n')
    path = project / "notes.txt"
    path.write_text("as written\n")
    agent = start_agent(reply(use("read", path="notes.txt")), DONE)
    agent.command(f"split {path}")
    agent.command("AgentChat")
    agent.ask_and_wait()
    wait_until(lambda: agent.lines(path) == ["formatted"], "the buffer has the hook's text")


@pytest.mark.parametrize("is_job", [False, True])
def test_what_a_command_of_the_persons_or_a_job_changes_is_seen_in_buffers_too(
    start_agent, project, is_job
):
    (project / "open.txt").write_text("old\n")
    change = "until [ -e go ]; do sleep 0.02; done; echo new > open.txt"
    agent = start_agent(reply(bash(change, background=True)), DONE)
    agent.command("edit open.txt")
    agent.command("AgentMode auto")
    if is_job:
        agent.ask_and_wait()
    else:
        agent.command(f"Agent run {change}")
    (project / "go").touch()
    wait_until(lambda: agent.lua("return vim.fn.getline(1)") == "new")
    assert not agent.is_blocked()


def test_a_neovim_that_is_killed_while_it_asks_leaves_a_session_that_goes_on(
    asking_agent, app, project
):
    agent = asking_agent(reply(use("read", path="src/app.py"), edit()), DONE)
    host = agent.host_pid()
    (path,) = agent.session_files()
    agent.rpc.process.kill()
    wait_until(lambda: not is_alive(host), "the host ends with its Neovim")

    def resume():
        with suppress(SessionInUseError):  # the kernel frees the lock when the last thread is gone
            return Session.open(path.parent, path.stem, str(project))

    session = wait_until(resume, "the session can be resumed")
    results = [b for m in session.history for b in m.content if isinstance(b, ToolResult)]
    assert results[-1].content == NOT_RUN
    assert results[-1].is_error
    assert app.read_text() == APP


def test_to_stop_the_turn_takes_its_question_away_and_does_nothing(asking_agent, app):
    agent = asking_agent(reply(edit()), DONE)
    agent.command("AgentStop")
    agent.wait_for_turns()
    assert "Allow" not in agent.screen_text()
    assert "to answer" not in agent.screen_text()
    assert "edit src/app.py  ✗ stopped" in agent.screen_text()
    assert agent.results() == ["Interrupted by the user."]
    assert app.read_text() == APP


def test_a_host_that_is_killed_while_it_asks_takes_the_question_along_and_the_next_one_goes_on(
    asking_agent, app
):
    agent = asking_agent(reply(edit()), DONE)
    os.kill(agent.host_pid(), signal.SIGKILL)
    agent.wait_for_screen("The agent process exited (signal 9)")
    assert "Allow" not in agent.screen_text()
    agent.ask("go on")
    agent.wait_for_screen("edit src/app.py …")
    assert agent.results() == [NOT_RUN]
    assert app.read_text() == APP


# --- the network -------------------------------------------------------------------------------------------------------

CALL_OUT = (
    """python3 -c "import urllib.request as r; r.urlopen('http://example.org', timeout=5)" """
)


def test_a_command_that_called_out_can_be_granted_that_host_and_runs_again_confined(
    start_agent, tmp_path
):
    (tmp_path / "private").write_text("a secret\n")
    command = (
        f"{CALL_OUT}; status=$?; [ -e {tmp_path}/private ] && echo is seen; echo ran; exit $status"
    )
    agent = start_agent(reply(bash(command)), DONE)
    agent.command("AgentMode auto")
    agent.ask()
    text = agent.wait_for_question()
    assert "resolve example.org" in text
    assert "The sandbox blocked this" in text
    assert "net:off" in text
    agent.answer_question("a")
    text = agent.transcript_text()
    assert text.count("\nran\n") == 2
    assert "is seen" not in text
    assert "net:off" in agent.screen_text()


@quick
def test_a_question_says_what_the_sandbox_is_now(start_agent):
    agent = start_agent(reply(bash("touch made")), DONE)
    agent.ask()
    assert "net:off" in agent.wait_for_question()
    agent.command("AgentNet on")
    wait_until(lambda: re.search(r"│.*sbx:\S+( partial)? net:on ", agent.screen_text()), "redrawn")


def test_who_does_not_grant_a_host_is_not_asked_for_it_again(start_agent):
    agent = start_agent(reply(bash(CALL_OUT)), reply(bash(CALL_OUT)), DONE)
    agent.command("AgentMode auto")
    agent.ask()
    agent.wait_for_question()
    agent.command("AgentDeny")
    agent.wait_for_turns()
    assert len(agent.events("AgentApprovalRequested")) == 1
    assert "the network is off" in agent.results()[0]


def test_to_allow_a_page_that_the_network_does_not_reach_is_to_grant_its_host(start_agent):
    agent = start_agent(reply(use("web_fetch", url="http://example.org/page")), DONE)
    agent.ask()
    text = agent.wait_for_question()
    assert "╭ Allow web_fetch? ─" in text
    rows = re.findall(r"││(.*?) *│\n", text)
    assert rows[0] == "http://example.org/page"
    assert "example.org is blocked. Allowing opens it" in " ".join(rows)
    agent.command("AgentDeny")
    agent.wait_for_turns()
    assert "✗ denied" in agent.screen_text()


# --- an environment that is out of date ---------------------------------------------------------------------------------


def test_a_package_that_a_new_version_needs_is_named_with_the_remedy_and_no_traceback(
    start_agent, bare_plugin
):
    (bare_plugin / "src").unlink()
    shutil.copytree(ROOT / "src", bare_plugin / "src")
    with (bare_plugin / "src" / "sanderling" / "conversation" / "tool_uses.py").open("a") as file:
        file.write("import a_package_that_is_new\n")
    agent = start_agent(plugin_root=bare_plugin, setup={"python": sys.executable})
    agent.command("AgentAsk go")
    agent.wait_for_transcript("named 'a_package_that_is_new'")
    assert "is broken (ModuleNotFoundError" in agent.transcript_text()
    assert ":AgentInstall" in agent.transcript_text()
    assert not agent.is_blocked()


# --- the tour ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns, lines", [(130, 40), (80, 24)])
def test_the_tour_goes_to_its_end_and_shows_each_stop(start_agent, columns, lines):
    agent = start_agent(setup={"provider": "demo"}, columns=columns, lines=lines)
    agent.command("AgentAsk tour")
    text = agent.wait_for_question(1)
    assert re.search(r"Allow edit \S*greeter\.py\?", text)
    assert "+    return [greet(name) for name in names]" in text
    agent.command("Agent question")
    agent.feed("a")
    agent.wait_for_question(2)
    text = agent.wait_for_screen("╭ Allow bash? ─", "││cd ", "unittest", "│ bash cd ")
    assert 0 < text.index("│ bash cd ") < text.index("╭ Allow")  # what led to it is not hidden
    assert "+1 −1" in (text if lines == 40 else agent.transcript_text())
    agent.feed(":AgentAllow<CR>")
    text = agent.wait_for_question(3)
    assert "call_out.py" in text
    assert "OK" in agent.transcript()
    agent.feed(":AgentAllow<CR>")
    text = agent.wait_for_question(4)
    assert "resolve example.org" in text
    agent.feed(":AgentDeny<CR>")
    agent.wait_for_turns()
    assert "The sandbox refused: resolve example.org" in agent.transcript_text()
    agent.wait_for_screen("That is the tour.", "ANTHROPIC_API_KEY")
    assert agent.events("AgentTurnEnded")[0]["stop_reason"] == "end_turn"
    assert not agent.is_blocked()


def test_a_command_is_shown_again_as_it_was_with_its_output_and_what_stood_below_it(
    start_agent, asking_agent
):
    use = {"name": "bash", "input": {"command": "echo said; mkdir -p src; cd src"}}
    agent = asking_agent({"step": [{"tool_use": use}]}, {"step": [{"text": "done"}]})
    agent.answer_question("a")
    shown = agent.transcript()
    assert "said" in shown
    assert "[cwd: src (changed)]" in shown
    agent.close()
    again = start_agent()
    again.command("AgentResume")
    again.wait_for_screen("done")
    first, last = shown.index("## You"), shown.index("done")
    resumed = again.transcript()
    assert resumed[resumed.index("## You") : resumed.index("done") + 1] == shown[first : last + 1]


# --- what the person saves meanwhile ------------------------------------------------------------------------------------


def journal_of(agent) -> Path | None:
    found = list(Path(agent.lua("return vim.fn.stdpath('state')")).rglob("journal.jsonl"))
    return found[0] if found else None


@pytest.mark.guard
def test_a_file_that_is_saved_while_a_command_runs_is_not_taken_for_its_work(start_agent, project):
    (project / "mine.txt").write_text("old\n")
    wait = "while ! [ -e go ]; do sleep 0.02; done; touch made"
    agent = start_agent(reply(bash(f"touch begun; {wait}")), DONE)
    agent.lua("require('sanderling').mode('auto')")
    agent.command("edit mine.txt")
    agent.ask()
    wait_until((project / "begun").exists, "the command runs")
    agent.lua(
        "local buf = vim.fn.bufnr('mine.txt') vim.api.nvim_buf_set_lines(buf, 0, -1, false, { 'mine' })"
        " vim.api.nvim_buf_call(buf, function() vim.cmd('write') end)"
    )
    (project / "go").touch()
    agent.wait_for_turns()
    (turn,) = turns_of(read_journal(journal_of(agent)).records)
    changed = {Path(change.path).name for change in turn.changes}
    assert changed == {"begun", "go", "made"}  # who has made `go`, nobody can know
    assert [Path(change.path).name for change in turn.doubtful] == ["mine.txt"]
