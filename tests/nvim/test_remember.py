"""Lines for AGENTS.md as hunks in its buffer: proposed by the model in a turn, and by `:AgentRemember`."""

import pytest
from tests.conftest import wait_until
from tests.nvim.test_asked import DONE, decide, hunk_count

ADDED = "Be kind.\n\n* Use pnpm, never npm.\n"


def bash(command):
    return {"step": [{"tool_use": {"id": "t1", "name": "bash", "input": {"command": command}}}]}


def says(text):
    return {"step": [{"text": text}]}


def edit(old, new, path="AGENTS.md"):
    edits = [{"old": old, "new": new}]
    return {
        "step": [
            {
                "tool_use": {
                    "id": "t1",
                    "name": "edit",
                    "input": {"path": path, "edits": edits},
                }
            }
        ]
    }


@pytest.fixture
def corrected(start_agent, project):
    """A session in a file, after a command was denied with a reason."""

    def start(*replies, **options):
        (project / "AGENTS.md").write_text("Be kind.\n")
        (project / "other.txt").write_text("other\n")
        agent = start_agent(bash("npm test"), DONE, *replies, **options)
        agent.command("edit other.txt")
        agent.ask()
        agent.wait_for_question()
        agent.lua("require('sanderling.approval.answers').deny('use pnpm, never npm')")
        agent.wait_for_turns()
        return agent, project / "AGENTS.md"

    return start


def remember(agent, path):
    agent.command("AgentRemember")
    wait_until(lambda: hunk_count(agent, path), agent.screen_text)


def test_the_lines_are_a_hunk_in_the_file_which_names_where_they_come_from(corrected):
    agent, path = corrected(says("project: Use pnpm, never npm."))
    remember(agent, path)
    assert agent.lines(path) == ADDED.splitlines()
    assert path.read_text() == "Be kind.\n"
    question = " ".join(agent.question_text().split())
    assert "Proposed from 1 correction of yours in this session." in question
    assert "This file is not trusted" in question
    assert "for the session" not in question
    decide(agent, path, (1, True))
    wait_until(lambda: path.read_text() == ADDED, agent.screen_text)
    wait_until(lambda: "Changed AGENTS.md: +2" in agent.transcript_text(), agent.transcript_text)


def test_a_rejected_hunk_leaves_the_file(corrected):
    agent, path = corrected(says("project: Use pnpm, never npm."))
    remember(agent, path)
    decide(agent, path, (1, False), reason="not here")
    wait_until(
        lambda: "AGENTS.md stays as it is." in agent.transcript_text(), agent.transcript_text
    )
    assert path.read_text() == "Be kind.\n"
    assert agent.lines(path) == ["Be kind."]


def test_a_second_request_while_lines_are_proposed_asks_nothing_and_agentstop_ends_the_first(
    corrected,
):
    agent, path = corrected(says("project: Use pnpm, never npm."))
    remember(agent, path)
    agent.command("AgentRemember")
    agent.wait_for_transcript("Lines are being proposed already.")
    agent.command("AgentStop")
    wait_until(lambda: agent.float() is None, agent.screen_text)
    agent.wait_for_screen("idle")
    assert agent.transcript_text().count("what to remember") == 1
    assert agent.lines(path) == ["Be kind."]


def test_agentstop_ends_a_proposal_for_which_the_model_takes_long(corrected):
    agent, _ = corrected({"step": [{"text": "project: A.", "delay_ms": 60_000}]})
    agent.command("AgentRemember")
    agent.wait_for_screen("remembering")
    agent.command("AgentStop")
    agent.wait_for_screen("idle")


def test_agentstop_ends_a_summary(corrected):
    agent, _ = corrected({"step": [{"text": "A summary.", "delay_ms": 60_000}]})
    agent.command("Agent compact")
    agent.wait_for_screen("summarizing")
    agent.command("AgentStop")
    agent.wait_for_screen("idle")


def test_lines_that_are_requested_during_a_turn_are_announced(start_agent):
    agent = start_agent(says("One moment."), {"step": [{"text": "Slow.", "delay_ms": 60_000}]})
    agent.chat("go")
    agent.ask("and now")
    wait_until(lambda: len(agent.events("AgentTurnStarted")) == 2, agent.screen_text)
    agent.command("AgentRemember")
    agent.wait_for_transcript("Lines are proposed when this turn has ended.")


def test_unsaved_text_of_the_users_stays_and_is_not_written(corrected):
    agent, path = corrected(says("project: Use pnpm, never npm."))
    agent.command("edit AGENTS.md")
    agent.feed("ggOMine.<Esc>")
    remember(agent, path)
    decide(agent, path, (1, True))
    wait_until(lambda: "Changed AGENTS.md" in agent.transcript_text(), agent.transcript_text)
    assert path.read_text() == "Be kind.\n"
    assert agent.lines(path) == ["Mine.", *ADDED.splitlines()]
    assert agent.is_modified(path)


def test_a_line_that_is_only_in_the_unsaved_buffer_is_not_proposed_again(corrected):
    agent, _ = corrected(says("project: Use pnpm, never npm."))
    agent.command("edit AGENTS.md")
    agent.feed("Go- Use pnpm, never npm<Esc>")
    agent.command("AgentRemember")
    wait_until(lambda: "has these lines" in agent.transcript_text(), agent.transcript_text)
    assert agent.float() is None


def test_the_slash_command_without_a_correction_says_so(start_agent):
    agent = start_agent(DONE)
    agent.chat("go")
    agent.feed("i/remember<C-s>")
    wait_until(
        lambda: "Nothing to remember: no denial" in agent.transcript_text(), agent.transcript_text
    )


def test_what_the_model_proposes_in_a_turn_is_a_hunk_in_auto_mode_too(start_agent, project):
    path = project / "AGENTS.md"
    path.write_text("Be kind.\n")
    agent = start_agent(edit("Be kind.\n", "Be kind.\nUse tabs.\n"), DONE, setup={"mode": "auto"})
    agent.command("edit AGENTS.md")
    agent.ask("Remember that I use tabs.")
    wait_until(lambda: hunk_count(agent, path), agent.screen_text)
    question = " ".join(agent.question_text().split())
    assert "in answer to \u201cRemember that I use tabs.\u201d" in question
    decide(agent, path, (1, True))
    agent.wait_for_turns()
    assert path.read_text() == "Be kind.\nUse tabs.\n"


@pytest.mark.parametrize("setup", [{}, {"auto_remember": False}], ids=["failed", "off"])
def test_a_closed_session_whose_corrections_led_to_no_proposal_names_the_command(corrected, setup):
    agent, _ = corrected(setup=setup)  # no answer is left in the script: the proposal fails
    session = agent.session_id()
    agent.command("Agent close")
    agent.wait_for_message(
        f"The closed session has 1 correction of yours: :AgentRemember {session}"
    )


def test_the_next_start_says_that_the_last_session_has_corrections(corrected, start_agent):
    agent, path = corrected()
    session = agent.session_id()
    agent.close()
    again = start_agent(says("project: Use pnpm, never npm."))
    again.command("AgentChat")
    hint = f"It has 1 correction of yours: :AgentRemember {session}"
    wait_until(lambda: hint in shown(again), again.screen_text)
    again.command(f"AgentRemember {session}")
    wait_until(lambda: hunk_count(again, path), again.screen_text)
    decide(again, path, (1, True))
    wait_until(lambda: path.read_text() == ADDED, again.screen_text)


def shown(agent):
    """The words in the right half of the screen."""
    return " ".join(" ".join(line.partition("│")[2] for line in agent.screen()).split())


def is_open(agent):
    return agent.lua("return #require('sanderling').list() > 0")


def test_a_session_closes_after_its_proposal(corrected):
    agent, path = corrected(says("project: Use pnpm, never npm."))
    agent.command("Agent close")
    wait_until(lambda: hunk_count(agent, path), agent.screen_text)
    assert is_open(agent)
    decide(agent, path, (1, True))
    wait_until(lambda: not is_open(agent), agent.screen_text)
    wait_until(lambda: path.read_text() == ADDED, agent.screen_text)
    assert "correction" not in agent.messages()


def reject_in_a_question(agent, path):
    agent.ask()
    wait_until(lambda: hunk_count(agent, path), agent.screen_text)
    decide(agent, path, (1, False), reason="keep it")
    agent.wait_for_turns()


def reject_afterwards(agent, path):
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    wait_until(lambda: hunk_count(agent, path), agent.screen_text)
    decide(agent, path, (1, False), reason="keep it")
    assert agent.lines(path) == ["other"]


def undo(agent, _path):
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    agent.command("AgentUndo")
    agent.wait_for_transcript("Reverted: 1 file")


@pytest.mark.parametrize("correct", [reject_in_a_question, reject_afterwards, undo])
def test_a_session_proposes_at_its_end_also_after_a_rejection_or_an_undone_turn(
    start_agent, project, correct
):
    instructions, path = project / "AGENTS.md", project / "other.txt"
    instructions.write_text("Be kind.\n")
    path.write_text("other\n")
    change = edit("other", "changed", "other.txt")
    agent = start_agent(change, DONE, says("project: Keep other.txt."))
    agent.command("edit other.txt")
    correct(agent, path)
    agent.command("Agent close")
    wait_until(lambda: hunk_count(agent, instructions), agent.screen_text)
    assert is_open(agent)


def test_a_session_without_a_correction_closes_at_once(start_agent):
    agent = start_agent(bash("npm test"), DONE)
    agent.ask()
    agent.wait_for_question()
    agent.command("AgentDeny")
    agent.wait_for_turns()
    assert agent.lua("vim.cmd('Agent close'); return #require('sanderling').list()") == 0


@pytest.mark.parametrize("again", ["Agent close", "Agent close!"])
def test_a_second_close_does_not_wait_for_the_proposal(corrected, again):
    agent, path = corrected(says("project: Use pnpm, never npm."))
    agent.command("Agent close")
    wait_until(lambda: hunk_count(agent, path), agent.screen_text)
    agent.command(again)
    assert not is_open(agent)
    wait_until(lambda: "1 correction of yours" in agent.messages(), agent.messages)
    assert path.read_text() == "Be kind.\n"
