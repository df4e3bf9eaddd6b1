"""A real API on the other end: HTTP, and a loopback server that speaks the wire format."""

import re

import pytest
from tests.conftest import prove_rest, prove_unless_quick, quick, wait_until
from tests.loopback import (
    HANG_UP,
    RESET,
    STALL,
    Reply,
    Status,
    Wait,
    done,
    error,
    message_start,
    ping,
    text,
    thinking,
)
from tests.nvim.conftest import texts_told

pytestmark = prove_unless_quick


@pytest.fixture
def claude(start_claude):
    child = start_claude()
    child.open_chat()
    return child


@quick
def test_a_conversation_streams_thinking_and_text_and_sends_its_history(claude, server):
    server.answer(
        Reply(
            message_start(input_tokens=12),
            thinking("I ", "wonder"),
            text("Hel", "lo.", index=1),
            done(output_tokens=9),
        ),
        Reply(message_start(input_tokens=30), text("Again."), done()),
    )
    claude.submit_and_wait("hi")
    claude.submit_and_wait("and again")
    screen = claude.screen_text()
    assert "▸ Thinking: I wonder · 1 line" in screen
    assert "Hello." in screen
    assert "Again." in screen
    roles = [message["role"] for message in server.prompts[1].json()["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert "claude-sonnet-5-5" in screen


def test_a_prompt_sent_while_the_client_loads_is_answered_and_the_winbar_says_starting(
    start_claude, server
):
    server.answer(Reply(message_start(), text("Here."), done()))
    child = start_claude()
    child.open_chat()
    child.submit("quick")
    child.wait_for_screen("starting")
    assert server.prompts == []
    child.wait_for_transcript("quick")
    child.wait_for_turns()
    assert child.transcript()[-1] == "Here."


def test_the_model_and_its_options_are_the_users(start_nvim, server):
    server.answer(Reply(message_start(), text("ok"), done()))
    child = start_nvim({"ANTHROPIC_API_KEY": "sk-secret"})
    child.setup(base_url=server.url, model="claude-opus-5-5", max_tokens=1234, thinking=False)
    child.chat("hi")
    body = server.prompts[0].json()
    assert (body["model"], body["max_tokens"]) == ("claude-opus-5-5", 1234)
    assert "thinking" not in body


def repeat_until_the_turn_ends(child, command):
    def has_ended():
        child.command(command)
        return child.events("AgentTurnEnded")

    wait_until(has_ended, "the turn ends")
    child.command("messages clear")  # where nothing waits any more, the command says so


FAILURES = {
    "a wrong key": (Status(401), "refused the key", "ANTHROPIC_API_KEY"),
    "an impossible request": (Status(400), "refused the request", "Change the prompt"),
    "a rate limit": (Status(429, retry_after=7), "rate limit is reached", "to wait for 7 s"),
    "an overload": (Status(529), "overloaded", "Send a new prompt to continue"),
    "a failing server": (Status(500), "The API failed", "Send a new prompt to continue"),
    "an error in mid-stream": (
        Reply(message_start(), text("Half an answ"), error("overloaded_error")),
        "overloaded",
        "Send a new prompt to continue",
    ),
    "a broken connection": (
        Reply(message_start(), text("Half an answ"), Wait(0.1), RESET),
        "broke",
        "Send a new prompt to continue",
    ),
    "a stream cut short": (
        Reply(message_start(), text("Half an answ"), HANG_UP),
        "broke",
        "Send a new prompt to continue",
    ),
    "a stream without its end": (
        Reply(message_start(), text("Half an answ")),
        "cut off",
        "Send a new prompt to continue",
    ),
}
LASTING = ("a wrong key", "an impossible request")
PAID = (
    "a stream without its end"  # the next answer, which is paid for, too, most often ends so again
)
PASSING = [failure for failure in FAILURES if failure not in LASTING]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_that_lasts_is_told_in_plain_words_and_the_conversation_goes_on(
    claude, server, failure
):
    answer, message, remedy = FAILURES[failure]
    server.answer(answer)
    claude.submit("hi")
    repeat_until_the_turn_ends(claude, "Agent retry")
    assert len(server.prompts) == (1 if failure in LASTING else 2 if failure == PAID else 10)
    transcript = claude.transcript_text()
    assert transcript.count(message) == 1
    assert transcript.count(remedy) == 1
    if isinstance(answer, Reply):
        assert transcript.count("Half an answ") == 1
    (reported,) = claude.events("AgentError")
    assert message in reported["message"]
    assert claude.events("AgentTurnEnded")[0]["stop_reason"] == "error"
    assert "ask failed" in claude.screen_text()
    assert "Again" not in claude.screen_text()
    server.answer(Reply(message_start(), text("Better now."), done()))
    claude.submit_and_wait("again")
    assert claude.transcript()[-1] == "Better now."
    assert set(claude.messages().splitlines()) <= {"", "Nothing to retry."}
    assert "Traceback" not in claude.transcript_text()


@pytest.mark.parametrize("failure", PASSING)
def test_a_failure_that_passes_is_followed_by_the_answer_and_nothing_stands_there_twice(
    claude, server, failure
):
    answer, _, _ = FAILURES[failure]
    failures = [answer] if failure == PAID else [answer, answer]
    server.answer(*failures, Reply(message_start(), text("Half an answer is whole."), done()))
    claude.submit("hi")
    repeat_until_the_turn_ends(claude, "Agent retry")
    assert len(server.prompts) == len(failures) + 1
    assert len({prompt.body for prompt in server.prompts}) == 1
    assert claude.transcript_text() == "## You\n\nhi\n\n## Sanderling\n\nHalf an answer is whole."
    assert "Again" not in claude.screen_text()
    assert claude.events("AgentError") == []
    assert claude.events("AgentTurnEnded")[0]["stop_reason"] == "end_turn"


def test_the_wait_that_a_server_asks_for_is_counted_down_on_the_screen(claude, server):
    server.answer(Status(529, retry_after=20), Reply(message_start(), text("Whole."), done()))
    claude.submit("hi")
    claude.wait_for_screen("Retry 2/10")
    screen = " ".join(claude.screen_text().split())
    assert "The API is overloaded just now" in screen
    assert re.search(r"Retry 2/10 in (19|20|21) s", screen)
    assert "overloaded" not in claude.transcript_text()
    wait_until(lambda: re.search(r"Retry 2/10 in 1[78] s", claude.screen_text()), "it counts")
    claude.command("Agent retry")
    claude.wait_for_turns()
    assert claude.transcript()[-1] == "Whole."
    assert len(server.prompts) == 2


def test_a_server_that_wants_a_long_wait_is_waited_for_only_if_the_person_says_so(claude, server):
    server.answer(Status(429, retry_after=61))
    claude.submit("hi")
    claude.wait_for_screen("Let it continue?")
    repeat_until_the_turn_ends(claude, "AgentDeny")
    assert len(server.prompts) == 1
    assert "to wait for 61 s" in claude.transcript_text()
    assert claude.events("AgentTurnEnded")[0]["stop_reason"] == "error"


def test_prompts_that_wait_are_held_when_the_turn_fails_and_the_next_one_lets_them_go(
    claude, server
):
    server.answer(
        Reply(message_start(), text("One. "), Wait(0.6), error("invalid_request_error")),
        Reply(message_start(), text("Answered."), done()),
    )
    claude.submit("first")
    claude.wait_for_transcript("One.")
    claude.submit("second")
    claude.wait_for_turns()
    claude.wait_for_screen("held")
    assert len(server.prompts) == 1
    claude.submit("third")
    claude.wait_for_turns(3)
    history = server.prompts[-1].json()["messages"]
    words = [texts_told(message)[-1] for message in history if message["role"] == "user"]
    assert words == ["first", "second", "third"]


def test_a_server_that_is_not_there_is_told_in_plain_words(start_nvim):
    child = start_nvim(
        {"ANTHROPIC_API_KEY": "sk-secret", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    )
    child.open_chat()
    child.submit("hi")
    repeat_until_the_turn_ends(child, "Agent retry")
    assert "Cannot reach 127.0.0.1:9" in child.transcript_text()
    assert "Check the network" in child.transcript_text()


def test_certificates_that_are_not_there_are_told_and_the_host_lives(start_nvim):
    child = start_nvim({"ANTHROPIC_API_KEY": "sk-secret", "SSL_CERT_FILE": "/no/such.pem"})
    child.chat("hi")
    assert "The certificates cannot be read (SSL_CERT_FILE=/no/such.pem" in child.transcript_text()
    assert "process exited" not in child.transcript_text()


def test_no_key_is_told_with_its_remedy(start_nvim):
    child = start_nvim()
    child.setup(provider="anthropic")
    child.chat("hi")
    assert "There is no API key." in child.transcript_text()
    assert "Store one with :Agent login, or set ANTHROPIC_API_KEY" in child.transcript_text()


def test_a_silent_api_is_given_up_and_pings_keep_it(start_nvim, server):
    server.answer(Reply(message_start(), text("Half"), STALL))
    child = start_nvim({"ANTHROPIC_API_KEY": "sk-secret"})
    child.setup(base_url=server.url, idle_timeout_s=2)
    child.open_chat()
    child.submit("hi")
    repeat_until_the_turn_ends(child, "Agent retry")
    assert "went silent: nothing arrived for 2 s" in child.transcript_text()
    assert child.transcript_text().count("Half") == 1
    pings = [step for _ in range(10) for step in (Wait(0.3), ping())]
    server.answer(Reply(message_start(), *pings, text("Late, but whole."), done()))
    child.submit_and_wait("again")
    assert child.transcript()[-1] == "Late, but whole."


@quick
@pytest.mark.parametrize(
    "key", prove_rest(["<C-c>", "<Esc><C-c>", "<Esc><C-w>k<C-c>", "<Esc>:AgentStop<CR>"], keep=(0,))
)
def test_stopping_keeps_the_partial_text_closes_the_connection_and_the_chat_goes_on(
    claude, server, key
):
    server.answer(
        Reply(message_start(), text("So far "), STALL),
        Reply(message_start(), text("Next."), done()),
    )
    claude.submit("hi")
    claude.wait_for_transcript("So far")
    claude.feed("idraft")
    wait_until(lambda: claude.prompt_lines() == ["draft"], "a <C-c> drops what is typed ahead")
    claude.feed(key)
    claude.wait_for_turns()
    assert claude.events("AgentTurnEnded")[0]["stop_reason"] == "cancelled"
    assert "So far \n\nStopped." in claude.transcript_text()
    wait_until(lambda: server.prompts[0].closed_at, "the server sees the connection close")
    assert claude.prompt_lines() == ["draft"]
    claude.submit_and_wait("go on")
    history = server.prompts[1].json()["messages"]
    assert [texts_told(message) for message in history] == [
        ["hi"],
        ["So far "],
        ["[Interrupted by the user.]", "go on"],
    ]


@quick
def test_stopping_before_the_agent_process_listens_takes_the_prompt_back_or_ends_its_turn(
    start_claude, server
):
    server.answer(Reply(message_start(), text("Too late."), done()))
    child = start_claude()
    child.command("AgentChat")
    child.feed("ihasty<C-s>")
    child.feed("<C-c>")
    child.wait_for_turns()
    assert child.events("AgentTurnEnded")[0]["stop_reason"] == "cancelled"
    wait_until(
        lambda: child.prompt_lines() == ["hasty"] or "## You\n\nhasty" in child.transcript_text()
    )
    assert "Too late." not in child.transcript_text()


def test_prompts_sent_during_a_turn_wait_and_are_counted(claude, server):
    server.answer(
        Reply(message_start(), text("One. "), Wait(0.6), text("Done."), done()),
        Reply(message_start(), text("Two."), done()),
    )
    claude.submit("first")
    claude.wait_for_transcript("One.")
    claude.feed("isecond<C-s><Esc>")
    claude.wait_for_screen("1 queued")
    claude.wait_for_turns(2)
    assert claude.transcript()[-1] == "Two."
    assert "queued" not in claude.screen_text()


def test_stopping_gives_back_the_prompts_that_waited(claude, server):
    server.answer(Reply(message_start(), text("One. "), STALL))
    claude.submit("first")
    claude.wait_for_transcript("One.")
    claude.feed("isecond<C-s>third")
    wait_until(lambda: claude.prompt_lines() == ["third"])
    claude.feed("<C-c>")
    claude.wait_for_turns()
    wait_until(lambda: claude.prompt_lines() == ["second", "third"])
    assert len(server.prompts) == 1


def test_a_proxy_for_earlier_versions_of_the_api_finds_the_key_too(claude, server):
    claude.submit_and_wait("hi")
    assert server.prompts[0].headers["x-api-key"] == "sk-secret"


def test_the_winbar_counts_tokens_and_the_context(claude, server):
    server.answer(
        Reply(
            message_start(input_tokens=1000, cache_read_input_tokens=90_000, output_tokens=1),
            text("x"),
            Wait(0.3),
            done(output_tokens=500),
        )
    )
    claude.submit_and_wait("hi")
    wait_until(lambda: "↑91.0k ↓500 ↻98% ctx 10% $0.02 " in claude.screen_text(), "the winbar")
    assert "91.5k tokens, context 10 percent" in claude.statusline()


@quick
def test_the_key_is_in_no_log(claude, server, tmp_path):
    server.answer(Status(401), Reply(message_start(), text("ok"), done()))
    claude.submit_and_wait("hi")
    claude.submit_and_wait("hi")
    assert server.prompts[0].headers["authorization"] == "Bearer sk-secret"
    for path in (tmp_path / "home").rglob("*"):
        if path.is_file():
            assert b"sk-secret" not in path.read_bytes(), path


def test_the_answer_is_shown_as_it_streams_with_its_speed(claude, server):
    words = [step for n in range(40) for step in (text(f"word{n} "), Wait(0.1))]
    server.answer(Reply(message_start(), *words, done()))
    claude.submit("hi")
    claude.wait_for_transcript("word3 ")
    assert "word39" not in claude.transcript_text()
    claude.wait_for_screen("tokens/s")
    claude.wait_for_turns()
    assert "word39" in claude.transcript_text()
