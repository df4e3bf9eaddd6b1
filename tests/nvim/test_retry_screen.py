"""A request that is made again: the countdown below the transcript, and what ends it."""

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.test_tools_screen import TURN_ENDED, TURN_STARTED, delta, go_to, prompt_winbar


def scheduled(delay_s=7.0, attempt=3, reason="The API is overloaded (529)."):
    return {
        "type": "retry_scheduled",
        "attempt": attempt,
        "attempts": 10,
        "delay_s": delay_s,
        "reason": reason,
    }


STARTED = {"type": "retry_started"}


def test_the_countdown_stands_below_the_text_and_is_no_text(screen):
    screen.send(TURN_STARTED, delta("Half an ans"))
    before = screen.transcript()
    screen.send(scheduled())
    text = screen.screen_text()
    assert "The API is overloaded (529)." in text
    assert "Retry 3/10 in 7 s." in text
    assert ":Agent retry" in text
    assert "tries now." in text, "lines are wrapped, not cut"
    assert "retrying 3/10" in prompt_winbar(screen)
    assert screen.transcript() == before


@prove
def test_it_counts_down_without_moving_anything_or_asking_for_a_key(screen):
    screen.send(TURN_STARTED, delta("line\n" * 100), scheduled(3))
    assert "/10 in 3 s" in screen.screen_text()
    go_to(screen, "## You")
    view = screen.in_transcript("winsaveview()")
    screen.feed(":echo ")
    wait_until(lambda: screen.mode() == "c")
    screen.feed("<Esc>")
    wait_until(lambda: screen.mode() == "n")
    screen.feed("G")
    screen.wait_for_screen("/10 now")
    screen.feed("gg")
    wait_until(lambda: screen.in_transcript("winsaveview()") == view)
    assert screen.mode() == "n"
    assert "E" not in screen.messages()


@pytest.mark.parametrize(
    "event",
    prove_rest(
        [
            STARTED,
            TURN_ENDED,
            {"type": "error_occurred", "kind": "network", "message": "No.", "remedy": ""},
            {"type": "local_failed", "message": "The agent process has ended."},
        ]
    ),
    ids=lambda event: event["type"],
)
def test_it_goes_when_the_wait_is_over(screen, event):
    screen.send(TURN_STARTED, scheduled())
    assert "Retry 3/10" in screen.screen_text()
    screen.send(event)
    assert "Retry 3/10" not in screen.screen_text()
    assert "overloaded" not in screen.screen_text()
    if event["type"] != "error_occurred":
        assert "retrying" not in prompt_winbar(screen)


def test_the_next_one_takes_its_place(screen):
    screen.send(TURN_STARTED, scheduled(), STARTED, scheduled(95, 4, "The line is\nbusy."))
    text = screen.screen_text()
    assert text.count("Retry 4/10") == 1
    assert "The line is busy." in text
    assert "Retry 4/10 in 1 min 35 s." in text
    assert "retrying 4/10" in prompt_winbar(screen)


def test_it_stays_at_the_end_of_what_is_written_meanwhile(screen):
    screen.send(TURN_STARTED, scheduled())
    screen.send({"type": "command_started", "id": "c", "command": "ls"})
    screen.send({"type": "command_output", "id": "c", "text": "file\n" * 100})
    rows = screen.screen()
    last_file = max(i for i, row in enumerate(rows) if "file" in row)
    first = next(i for i, row in enumerate(rows) if "overloaded" in row)
    assert last_file < first


@prove
def test_nobody_counts_for_a_chat_that_is_hidden_and_it_goes_on_when_it_is_shown(screen):
    screen.send(TURN_STARTED, scheduled(600))
    screen.command("AgentChat")
    countdown = "require('sanderling.session.live').current().transcript.countdown"
    wait_until(lambda: not screen.lua(f"return {countdown}.is_ticking"))
    screen.command("AgentChat")
    assert screen.lua(f"return {countdown}.is_ticking")
    assert "/10 in 9 min" in screen.screen_text() or "/10 in 10 min" in screen.screen_text()


def test_a_chat_that_is_cleared_has_no_countdown(screen):
    screen.send(TURN_STARTED, scheduled(1))
    screen.lua("require('sanderling').clear()")
    assert "Again" not in screen.screen_text()
    assert screen.transcript() == [""]


def test_the_wait_can_be_cut_short(screen):
    screen.send(TURN_STARTED, scheduled())
    screen.command("Agent retry")
    assert screen.actions("retry_now") == [{"type": "retry_now"}]


def test_the_hint_names_the_key_that_is_configured(start_screen):
    screen = start_screen()
    screen.setup(keys={"stop": "<F8>"})
    screen.command("AgentChat")
    screen.send(TURN_STARTED, scheduled())
    assert "<F8> stops" in screen.screen_text()


def test_a_cut_answer_is_asked_for_again_and_stands_there_once(start_agent):
    broken = {"kind": "overloaded", "message": "Overloaded."}
    cut = {"step": [{"text": "Half of the ans"}, {"error": broken}]}
    whole = {"step": [{"text": "All of the answer."}]}
    agent = start_agent(*[cut] * 4, whole)  # how long it waits is random: one wait will be seen
    agent.ask()
    agent.wait_for_screen("Half of the ans", "Retry ")

    def has_ended():
        agent.command("Agent retry")
        return agent.events("AgentTurnEnded")

    wait_until(has_ended)
    agent.wait_for_screen("All of the answer.")
    assert agent.transcript()[4:] == ["## Sanderling", "", "All of the answer."]
    assert "Retry " not in agent.screen_text()
