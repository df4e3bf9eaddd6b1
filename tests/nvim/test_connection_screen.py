"""A session that lives elsewhere, on the screen: its connection in the bars, and what is done about one that is lost."""

import re

import pytest
from tests.conftest import prove, wait_until
from tests.nvim.test_tools_screen import prompt_winbar
from tests.remote.conftest import elsewhere  # noqa: F401 - a fixture


def changed(state, **more):
    return {"type": "connection_changed", "state": state, "name": "box", **more}


LOST = changed("waiting", why="Connection timed out.", delay_s=2, attempt=2)


def test_a_lost_connection_counts_down_in_the_bars_and_is_told_below_the_text(screen):
    screen.send(changed("connecting"))
    assert "connecting" in prompt_winbar(screen)
    screen.send(changed("connected"))
    assert "idle" in prompt_winbar(screen)
    before = screen.transcript()
    screen.send(LOST)
    assert "reconnecting in 2 s" in prompt_winbar(screen)
    assert "Sanderling: reconnecting in 2 s" in screen.statusline()
    text = screen.screen_text()
    assert "Cannot connect to box: Connection timed out." in text
    assert ":Agent retry retries now." in text
    assert screen.transcript() == before
    wait_until(lambda: "reconnecting in 1 s" in prompt_winbar(screen))
    screen.wait_for_screen("reconnecting in 1 s")  # nobody has moved
    assert screen.lua("return require('sanderling').status().connection") == "waiting"
    screen.send(changed("connecting", attempt=2))
    assert "reconnecting" in prompt_winbar(screen)
    screen.send(changed("connected"))
    assert "Cannot connect to box" not in screen.screen_text()
    assert "idle" in prompt_winbar(screen)


@prove
def test_while_a_connection_is_counted_down_the_turn_is_not_counted_up(screen):
    prompt = {"id": "p1", "text": "go"}
    screen.send(changed("connected"), {"type": "turn_started", "prompt": prompt})
    wait_until(lambda: re.search(r" 1 s\b", prompt_winbar(screen)))
    screen.send(LOST)
    assert re.search(r"reconnecting in \d s(?! \S \d)", prompt_winbar(screen))
    screen.send(changed("connected"))
    wait_until(lambda: re.search(r" [1-9] s\b", prompt_winbar(screen)))


def test_a_session_that_is_connected_after_all_has_not_failed(screen):
    error = {"type": "error_occurred", "kind": "connection", "message": "no token", "remedy": ""}
    screen.send(changed("refused", why="no token"), error)
    screen.send({"type": "turn_ended", "stop_reason": "error"})
    assert "not connected" in prompt_winbar(screen)
    screen.send(changed("connecting"), changed("connected"))
    assert "idle" in prompt_winbar(screen)


def test_a_turn_that_went_on_elsewhere_goes_on_below_what_was_shown_of_it(screen):
    prompt = {"id": "p1", "text": "go"}
    words = {"type": "text_delta", "block_id": -1, "text": "one "}
    shown = [{"type": "turn_started", "prompt": prompt}, words]
    page = {"type": "history_shown", "events": shown, "has_earlier": False, "start": 0}
    screen.send(page, {"type": "turn_started", "prompt": prompt, "is_continued": True})
    assert "thinking" in prompt_winbar(screen)
    screen.send({"type": "text_delta", "block_id": 1, "text": "two"})
    screen.send({"type": "turn_ended", "stop_reason": "end_turn"})
    lines = [line for line in screen.transcript() if line]
    assert lines == ["## You", "go", "## Sanderling", "one ", "two"]


def test_the_person_need_not_wait(screen):
    screen.send(LOST)
    screen.command("Agent retry")
    assert screen.actions("retry_now")


@prove
@pytest.mark.parametrize("columns", [44, 50, 80, 160])
def test_the_state_of_the_connection_stays_in_narrow_bars(start_chat, columns):
    screen = start_chat(columns=columns)
    screen.send({"type": "model_changed", "model": "box: claude-of-a-long-name"}, LOST)
    assert ("again 2 s" if columns < 80 else "reconnecting in 2 s") in prompt_winbar(screen)
    screen.send(changed("refused", why="There is no `sanderling` on box."))
    assert ("no link" if columns < 50 else "not connected") in prompt_winbar(screen)


def test_an_address_opens_a_session_there(screen):
    screen.command("AgentChat ssh://box/work/app")
    opened = screen.lua("return require('sanderling.session.live').current().agent")
    assert opened == "ssh://box/work/app"


@prove
def test_a_session_behind_a_container_is_talked_to_from_neovim(start_agent, elsewhere):  # noqa: F811
    child = start_agent(setup={}, columns=110, lines=40)
    child.command(f"AgentChat {elsewhere.address()}")
    child.wait_for_screen("docker box")
    child.feed("<Esc>ihello<Esc><CR>")
    child.wait_for_screen("pong")
    assert "sbx:" in child.screen_text()
    assert child.lua("return require('sanderling').status().connection") == "connected"
