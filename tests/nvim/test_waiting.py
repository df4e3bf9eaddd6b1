"""The prompts that wait: below the transcript, and as a text that can be edited."""

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.test_tools_screen import TURN_STARTED, delta, prompt_winbar


def prompt(id_, text):
    return {"id": id_, "text": text}


def waiting(steering=(), queued=(), is_held=False):
    event = {"type": "waiting_changed", "is_held": is_held}
    for name, texts in (("steering", steering), ("queued", queued)):
        if texts:
            event[name] = [prompt(f"{name[0]}{i}", text) for i, text in enumerate(texts)]
    return event


def show(screen):
    screen.lua(
        "require('sanderling.chat.waiting').show(require('sanderling.session.live').current_id())"
    )


def type_(screen, keys):
    """Type `keys`; back when they were taken."""
    screen.feed(keys + "<Cmd>let g:typed = 1<CR>")
    wait_until(lambda: screen.lua("return vim.g.typed"))
    screen.lua("vim.g.typed = nil")


STEERED = "── 1 ⇢ with the next tool result ──"
QUEUED = "── 2 ↳ after this turn ──"


@pytest.fixture
def listed(screen):
    screen.send(TURN_STARTED, waiting(["fix it"], ["then docs\nand a changelog"]))
    show(screen)
    assert screen.lines() == [STEERED, "fix it", QUEUED, "then docs", "and a changelog"]
    return screen


# --- below the transcript ----------------------------------------------------------------------------------------------


def test_both_lists_stand_below_the_text(screen):
    screen.send(TURN_STARTED, delta("word\n" * 100))
    before = screen.transcript()
    screen.send(waiting(["fix the\ntests"], ["write docs"]))
    text = screen.screen_text()
    assert "⇢ fix the …" in text
    assert "↳ write docs" in text
    assert text.index("⇢") < text.index("↳")
    assert screen.transcript() == before
    screen.send(delta("more\n" * 5))
    assert "↳ write docs" in screen.screen_text()
    screen.send(waiting())
    assert "write docs" not in screen.screen_text()


def test_below_a_paragraph_that_is_taller_than_the_window_its_end_is_seen(screen):
    screen.lua("vim.o.lines = 18")
    screen.send(TURN_STARTED, waiting(["fix it"]))
    for n in range(60):
        screen.send(delta(f"some more words <{n}> "))
        text = screen.screen_text()
        assert f"<{n}>" in text
        assert "⇢ fix it" in text


def test_the_winbar_counts_those_that_steer_and_those_that_are_queued(screen):
    screen.send(TURN_STARTED, waiting(["a1"], ["b2", "c3"]))
    assert "· 1 steering · 2 queued" in prompt_winbar(screen)
    screen.send(waiting(["a1"]))
    assert "· 1 steering" in prompt_winbar(screen)
    assert "queued" not in prompt_winbar(screen)


def test_in_a_narrow_window_the_winbar_keeps_the_mode_and_cuts_what_waits(start_chat):
    screen = start_chat(columns=60)
    screen.send(TURN_STARTED, waiting(["a1"], ["b2", "c3"]))
    assert prompt_winbar(screen).endswith("NORMAL ask thinking · 1 stee…")


def test_the_first_three_are_shown_and_how_many_there_are_besides(screen):
    screen.send(TURN_STARTED, waiting(["a1"], ["b2", "c3", "d4", "e5"]))
    text = screen.screen_text()
    assert "↳ c3" in text
    assert "d4" not in text
    assert "… 2 more: :Agent queue" in text


def test_held_prompts_say_how_they_are_sent(screen):
    screen.send(waiting(["a1"], ["b2"], is_held=True))
    text = screen.screen_text()
    assert "⏸ a1" in text
    assert "held: <CR> on an empty prompt sends them" in text
    assert "2 held" in prompt_winbar(screen)
    screen.send(waiting())
    assert "held" not in screen.screen_text()


def test_in_a_narrow_window_how_held_prompts_are_sent_is_not_cut(start_chat):
    screen = start_chat(columns=60)
    screen.send(waiting(["a1"], is_held=True))
    assert any(row.endswith("sends them") for row in screen.screen())


def test_a_dead_host_holds_nothing_on_the_screen(screen):
    screen.send(TURN_STARTED, waiting(["a1"], is_held=True))
    screen.send({"type": "local_failed", "message": "The agent process has ended."})
    assert "⏸ a1" not in screen.screen_text()
    assert "held" not in prompt_winbar(screen)


# --- the list that is edited -------------------------------------------------------------------------------------------


def test_a_text_that_is_changed_and_written_changes_the_prompt(listed):
    type_(listed, "2GA soon<Esc>Goand more<Esc>:w<CR>")
    assert listed.actions("edit_waiting") == [
        {"type": "edit_waiting", "id": "s0", "text": "fix it soon"},
        {"type": "edit_waiting", "id": "q0", "text": "then docs\nand a changelog\nand more"},
    ]
    assert not listed.lua("return vim.bo.modified")


@pytest.mark.parametrize("keys", prove_rest(["2Gdd", "1Gdd", "2GD", "2Gddk"]))
def test_dd_takes_a_prompt_out(listed, keys):
    type_(listed, keys + ":w<CR>")
    assert listed.actions("edit_waiting") == [{"type": "edit_waiting", "id": "s0", "text": ""}]


def test_the_list_and_its_keys_say_how_it_is_written_and_closed(listed):
    assert " :w saves, dd drops, q closes " in listed.screen_text()
    listed.feed("g?")
    listed.wait_for_screen("apply your changes to the prompts")


def test_dd_on_one_of_several_lines_takes_out_the_line(listed):
    type_(listed, "4Gdd:w<CR>")
    assert listed.actions("edit_waiting") == [
        {"type": "edit_waiting", "id": "q0", "text": "and a changelog"}
    ]


def test_dd_on_the_header_takes_out_all_of_the_prompt_and_undo_brings_it_back(listed):
    type_(listed, "3Gdd")
    assert listed.lines() == [STEERED, "fix it"]
    type_(listed, "u:w<CR>")
    assert listed.actions("edit_waiting") == []


def test_what_is_written_unchanged_changes_nothing(listed):
    type_(listed, ":w<CR>")
    assert listed.actions("edit_waiting") == []


def test_what_cannot_be_sent_stays_to_be_written_and_the_reason_is_told(listed):
    listed.lua("require('sanderling.host').act = function() return 'It cannot start.' end")
    type_(listed, "2GA soon<Esc>:w<CR>")
    assert "fix it soon" in listed.lines()
    assert listed.lua("return vim.bo.modified")
    assert "It cannot start." in listed.transcript_text()


def test_text_above_the_first_header_is_refused(listed):
    type_(listed, "ggOwhat<Esc>:w<CR>")
    assert listed.actions("edit_waiting") == []
    assert "above the first header" in listed.messages()
    assert listed.lua("return vim.bo.modified")


def test_a_prompt_whose_text_looks_like_a_header_stays_whole(screen):
    screen.send(TURN_STARTED, waiting([], [f"about\n{QUEUED}\nthat", "other"]))
    show(screen)
    assert screen.lines()[0] == "─── 1 ↳ after this turn ───"
    type_(screen, "GA words<Esc>:w<CR>")
    assert screen.actions("edit_waiting") == [
        {"type": "edit_waiting", "id": "q1", "text": "other words"}
    ]


def test_the_list_follows_what_happens_while_it_is_not_being_edited(listed):
    listed.send(waiting([], ["then docs\nand a changelog"]))
    assert listed.lines() == ["── 1 ↳ after this turn ──", "then docs", "and a changelog"]
    listed.send(waiting())
    assert listed.lines() == ["No prompts are queued."]


def test_an_edit_of_a_prompt_that_was_sent_meanwhile_is_told_and_the_others_are_kept(listed):
    type_(listed, "2GA soon<Esc>")
    listed.send(waiting([], ["then docs\nand a changelog"]))
    assert listed.lines()[1] == "fix it soon"
    type_(listed, "GA!<Esc>:w<CR>")
    assert listed.actions("edit_waiting") == [
        {"type": "edit_waiting", "id": "q0", "text": "then docs\nand a changelog!"}
    ]
    assert "1 prompt was sent before your edit" in listed.messages()


def test_q_closes_it_but_not_over_changes(listed):
    type_(listed, "2GA soon<Esc>q")
    assert "No write since last change" in listed.messages()
    type_(listed, "<CR>")
    assert listed.lines()[0] == STEERED
    type_(listed, "u:set nomodified<CR>q")
    assert "/waiting" not in listed.lua("return vim.api.nvim_buf_get_name(0)")


def test_held_prompts_go_with_enter(screen):
    screen.send(waiting([], ["b2"], is_held=True))
    show(screen)
    assert screen.lines()[0] == "── 1 ⏸ held ──"
    type_(screen, "<CR>")
    assert screen.actions("release_waiting") == [{"type": "release_waiting"}]


def test_shown_twice_it_is_one_window(listed):
    win = listed.lua("return vim.api.nvim_get_current_win()")
    listed.command("wincmd p")
    show(listed)
    assert listed.lua("return vim.api.nvim_get_current_win()") == win


def test_without_any_it_says_so(screen):
    show(screen)
    assert "No prompts are queued." in screen.messages()


@prove
def test_a_prompt_that_waits_is_changed_before_it_is_sent(start_agent):
    busy = {"step": [{"text": "Working"}, {"delay_ms": 1500}, {"text": " done."}]}
    agent = start_agent(busy, {"step": [{"text": "Second."}]})
    agent.ask()
    agent.wait_for_screen("Working")
    agent.submit("write teh docs")
    agent.wait_for_screen("↳ write teh docs")
    agent.command("Agent queue")
    wait_until(lambda: agent.lines() == ["── 1 ↳ after this turn ──", "write teh docs"])
    type_(agent, ":%s/teh/the<CR>:w<CR>")
    agent.wait_for_turns(2)
    wait_until(lambda: "write the docs" in agent.transcript())
    assert "teh" not in agent.transcript_text()
    wait_until(lambda: agent.lines() == ["No prompts are queued."])


def test_the_list_opens_for_a_prompt_that_is_not_confirmed_yet(screen):
    sent = {"type": "local_prompt_sent", "prompt": prompt("p9", "and tests")}
    screen.send(TURN_STARTED, sent)
    show(screen)
    wait_until(lambda: screen.lines() == ["No prompts are queued."])
    event = waiting()
    event["queued"] = [prompt("p9", "and tests")]
    screen.send(event)
    assert screen.lines() == ["── 1 ↳ after this turn ──", "and tests"]
    assert screen.lua("return vim.api.nvim_win_get_height(0)") == 2


def test_a_queued_prompt_that_is_too_long_ends_with_an_ellipsis(start_chat):
    screen = start_chat(columns=80, lines=24)
    screen.send(TURN_STARTED, waiting(queued=["Then write a test for both of them, and more."]))
    screen.wait_for_screen("↳ Then write a test for both of them, …")
