"""Another agent in the chat: rendered as ours is, asked about in the float, chosen from by its own options."""

import json
import sys

import pytest
from tests.acp_client.conftest import AGENT
from tests.acp_client.test_turns import OPTIONS, call, content, news, update
from tests.conftest import prove_unless_quick, quick, wait_until
from tests.nvim.conftest import count_keys_after

pytestmark = prove_unless_quick

ENTRY = {"sandbox": False, "title": "Mine"}


@pytest.fixture
def start_guest(start_agent, tmp_path):
    """A Neovim in whose settings the agent `mine` does as a script says."""

    def start(script, **screen):
        path = tmp_path / "guest.json"
        path.write_text(json.dumps(script))
        table = {"command": [sys.executable, str(AGENT), str(path)], **ENTRY}
        child = start_agent(setup={"agents": {"mine": table}}, **screen)
        child.command("AgentChat mine")
        child.wait_for_screen("NORMAL")
        return child

    return start


def typed(child, text):
    child.feed(f"<Esc>i{text}<Esc><CR>")


def test_a_turn_of_another_agent_is_drawn_as_one_of_ours(start_guest):
    diff = {"type": "diff", "path": "$CWD/a.py", "oldText": "one\n", "newText": "two\n"}
    steps = [
        {"think": "What is asked?"},
        {"say": "I change **it**.\n"},
        call("1", title="Edit a.py", kind="edit", status="in_progress", content=[diff]),
        news("1", status="completed"),
        call("2", title="ls", kind="execute", rawInput={"command": "ls"}, status="in_progress"),
        news("2", status="completed", content=content("a.py\nb.py")),
        update("plan", entries=[{"content": "test it", "priority": "low", "status": "pending"}]),
        {"say": "Done."},
    ]
    child = start_guest({"prompts": {"go": steps}}, lines=40, columns=100)
    typed(child, "go")
    screen = child.wait_for_screen("Done.", "edit a.py", "+1 −1", "bash ls", "I change")
    assert "mine" in screen  # the model's place in the bars
    child.wait_for_screen("test it")
    assert "-one" in child.transcript_text()
    assert child.records("state")
    keys = [record["key"] for record in child.records("state")]
    assert "agent" in keys


@quick
def test_its_question_is_answered_in_the_float_with_its_own_words(start_guest):
    raw = {"toolCallId": "1", "title": "x", "kind": "execute", "rawInput": {"command": "make all"}}
    child = start_guest(
        {"prompts": {"go": [{"ask": {"toolCall": raw, "options": OPTIONS}}]}}, columns=160, lines=40
    )
    typed(child, "go")
    screen = child.wait_for_question()
    assert "Allow bash?" in screen
    assert "Mine asks." in screen
    child.enter_question()
    child.wait_for_screen("a Yes")
    assert "A Yes, and" in child.screen_text()
    assert "d No, tell it" in child.screen_text()
    child.lua("vim.ui.select = function(items, _, fn) _G.offered = items fn(items[2]) end")
    child.feed("o")
    child.wait_for_transcript('"optionId": "ever"')
    assert len(child.lua("return _G.offered")) == 3


def test_its_options_and_commands_complete_and_are_chosen(start_guest):
    modes = {
        "currentModeId": "code",
        "availableModes": [{"id": "code", "name": "Code"}, {"id": "plan", "name": "Plan"}],
    }
    commands = [{"name": "init", "description": "begin here"}]
    script = {
        "session": {"modes": modes},
        "begin": [{"sessionUpdate": "available_commands_update", "availableCommands": commands}],
        "prompts": {"/init": [{"say": "begun"}]},
    }
    child = start_guest(script)
    wait_until(lambda: child.lua("return vim.fn.getcompletion('Agent option ', 'cmdline')"))
    completed = child.lua("return vim.fn.getcompletion('Agent option mode ', 'cmdline')")
    assert completed == ["code", "plan"]
    child.command("Agent option mode plan")

    def mode():
        return child.lua(
            """
            local session = require('sanderling.session.live').current()
            return session.state.guest_options[1].value
            """
        )

    wait_until(lambda: mode() == "plan")
    typed(child, "/init")
    child.wait_for_transcript("begun")
    child.command("Agent option nothing")
    child.wait_for_message("not 'nothing'")
    child.lua("vim.ui.select = function(items, _, choose) choose(items[1]) end")
    child.command("Agent option mode")
    wait_until(lambda: mode() == "code")


def test_an_agent_is_chosen_from_a_list_that_marks_those_of_open_sessions(start_guest):
    child = start_guest({"prompts": {}})
    child.command("AgentNew")
    child.lua("""
      vim.ui.select = function(items, opts, choose)
        _G.offered = vim.tbl_map(opts.format_item, items)
        choose('mine')
      end
    """)
    child.command("Agent agents")
    wait_until(lambda: child.lua("return _G.offered") is not None)
    assert {"mine · open", "claude"} <= set(child.lua("return _G.offered"))
    current = "return require('sanderling.screens.agents').of(require('sanderling.session.live').current())"
    wait_until(lambda: child.lua(current) == "mine")


def test_a_crash_is_told_and_the_next_prompt_starts_it_again(start_guest):
    child = start_guest({"prompts": {"go": [{"say": "on "}, {"exit": 7}]}})
    typed(child, "go")
    child.wait_for_transcript("Mine has ended: it ended with exit status 7")
    typed(child, "more")
    child.wait_for_transcript("heard: more")


def test_names_of_agents_complete_and_a_session_of_one_is_found_again(start_guest):
    child = start_guest({"prompts": {}})
    complete = "return vim.fn.getcompletion('AgentChat ', 'cmdline')"
    assert {"right", "claude", "codex"} <= set(child.lua(complete))
    typed(child, "go")
    child.wait_for_transcript("heard: go")
    wait_until(lambda: "mine" in child.lua(complete))
    child.command("AgentNew")
    wait_until(lambda: "heard: go" not in child.transcript_text())
    child.command("AgentChat mine")
    child.wait_for_transcript("heard: go")
    child.command("Agent clear")
    typed(child, "again")
    child.wait_for_transcript("heard: again")
    assert len(child.session_files()) == 2


def test_stop_ends_the_turn_and_its_question(start_guest):
    asked = {"toolCall": {"toolCallId": "1", "title": "x", "kind": "other"}, "options": OPTIONS}
    child = start_guest({"prompts": {"go": [{"ask": asked}]}})
    typed(child, "go")
    child.wait_for_question()
    count_keys_after(child, 0)
    child.command("AgentStop")
    wait_until(lambda: child.events("AgentTurnEnded"))
    assert child.events("AgentTurnEnded")[-1]["stop_reason"] == "cancelled"
    wait_until(lambda: not child.float())


@pytest.mark.parametrize("is_open", [True, False])
def test_what_it_has_written_by_itself_is_reviewed_in_its_file(start_guest, project, is_open):
    (project / "app.py").write_text("one\ntwo\nthree\n")
    path = {"path": "$CWD/app.py", "text": "one\n2\nthree\n"}
    steps = [
        call("1", title="Write app.py", kind="edit", status="in_progress"),
        {"write": path},
        news("1", status="completed"),
        {"sleep": 0.3},
        {"say": "Done."},
    ]
    child = start_guest({"prompts": {"go": steps}})
    if is_open:
        child.command("wincmd w | split app.py")
    child.command("AgentChat mine")
    child.lua("require('sanderling').submit('go')")
    child.wait_for_transcript("Done.")
    if not is_open:
        child.command("wincmd w | split app.py")
    hunks = """
      local hunks = require('sanderling.review.hunks')
      return vim.tbl_map(function(hunk)
        return { hunk.row, hunk.count, hunk.old }
      end, hunks.list(vim.fn.bufnr('app.py')))
    """
    wait_until(lambda: child.lua(hunks) == [[1, 1, ["two"]]])
    child.lua("vim.api.nvim_set_current_win(vim.fn.bufwinid('app.py'))")
    child.command("2AgentReject because of the rest")
    wait_until(lambda: (project / "app.py").read_text() == "one\ntwo\nthree\n")
    child.lua("require('sanderling').submit('tell')")
    child.wait_for_transcript("rejected these")


def test_what_it_has_written_is_counted_once(start_guest, project):
    steps = [
        call("1", title="Write new.py", kind="edit", status="in_progress"),
        {"write": {"path": "$CWD/new.py", "text": "one\n"}},
        news("1", status="completed"),
        {"say": "Done."},
    ]
    child = start_guest({"prompts": {"go": steps}})
    typed(child, "go")
    wait_until(lambda: child.events("AgentTurnEnded"))
    assert child.lua("return require('sanderling').status().unreviewed") == 1
    child.command("AgentUndo")
    wait_until(lambda: not (project / "new.py").exists())
    wait_until(lambda: child.lua("return require('sanderling').status().unreviewed") == 0)


# --- files that the other agent has us read and write -------------------------------------------------------------------


def uses_file(method, **params):
    return {"call": {"method": f"fs/{method}_text_file", "params": params}}


def test_unsaved_text_is_read_and_merged_and_undone_in_one_step(start_guest, project):
    path = project / "a.txt"
    path.write_text("one\ntwo\nthree\nfour\nfive\n")
    script = {
        "prompts": {
            "read": [uses_file("read", path="$CWD/a.txt", line=1, limit=2)],
            "write": [
                uses_file("write", path="$CWD/a.txt", content="one\ntwo\nthree\nfour\nFIVE\n")
            ],
        }
    }
    child = start_guest(script)
    child.command("AgentMode auto")
    buf = child.lua(f"local buf = vim.fn.bufadd('{path}') vim.fn.bufload(buf) return buf")
    child.lua(f"vim.api.nvim_buf_set_lines({buf}, 0, 1, false, {{ 'ONE' }})")
    typed(child, "read")
    wait_until(lambda: r"ONE\ntwo\n" in child.transcript_text().replace("\\\\", "\\"))
    typed(child, "write")
    wait_until(lambda: child.transcript_text().count("got:") == 2)
    lines = child.lua(f"return vim.api.nvim_buf_get_lines({buf}, 0, -1, false)")
    assert lines == ["ONE", "two", "three", "four", "FIVE"]
    assert path.read_text() == "one\ntwo\nthree\nfour\nfive\n"
    child.lua(f"vim.api.nvim_buf_call({buf}, function() vim.cmd('silent undo') end)")
    lines = child.lua(f"return vim.api.nvim_buf_get_lines({buf}, 0, -1, false)")
    assert lines == ["ONE", "two", "three", "four", "five"]
