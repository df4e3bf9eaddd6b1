"""Sessions on a server, whose connection is cut wherever that can be."""

import os
import random
import socket

import anyio
import pytest
from websockets.asyncio.server import serve

from sanderling.acp.remote.address import parse_address
from sanderling.errors import ConfigError
from sanderling.protocol.actions import (
    AnswerApproval,
    CancelTurn,
    SetMode,
    SubmitPrompt,
    TypeInTerminal,
    UseTerminal,
)
from sanderling.protocol.events import (
    ApprovalRequested,
    ConnectionChanged,
    HistoryShown,
    PromptsReturned,
    TextDelta,
    ToolEnded,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt
from sanderling.serve.server import Door
from sanderling.session.store.export import export_markdown
from tests.conftest import DEADLINE_S, prove
from tests.remote.served import Cutter, Server, cuts_at_random
from tests.remote.test_elsewhere import states

pytestmark = pytest.mark.anyio

NOBODY = 65_534
WORDS = " ".join(map(str, range(300)))
STREAM = {"text": WORDS, "chunk_chars": 6, "chunk_delay_ms": 2}
BASH = {"tool_use": {"name": "bash", "input": {"command": "echo ran >> runs; sleep 0.2"}}}


@pytest.fixture
def token(tmp_path):
    """A file with a token that no server knows."""
    file = tmp_path / "token"
    file.write_text("a-token\n")
    file.chmod(0o600)
    return file


@pytest.fixture
def server(elsewhere):
    it = Server(elsewhere)
    yield it
    it.stop()


@prove
async def test_a_turn_goes_on_while_the_connection_is_cut_and_is_shown_once(elsewhere, server):
    elsewhere.answer(STREAM)
    server.start()
    async with Cutter(server.port) as cutter:
        cutter.cuts = [("out", 9_000), ("out", 4_000), ("in", 700), ("out", 20_000)]
        async with elsewhere.talk(address=server.address(cutter.port)) as talk:
            assert await talk.ask("go") == "end_turn", talk.errors
            assert talk.text == WORDS
            assert "waiting" in states(talk)
            assert cutter.made >= 3
    assert next(each.delay_s for each in talk.of(ConnectionChanged) if each.delay_s) == 0.5


async def test_the_model_has_a_terminal_on_the_server_which_nobody_can_take(elsewhere, server):
    pty = {"name": "bash", "input": {"command": "exec cat", "pty": True}}
    text = {"action": "send", "id": "j1", "text": "over there\n"}
    send = {"name": "jobs", "input": text}
    elsewhere.script(
        [
            {"step": [{"tool_use": pty}]},
            {"step": [{"text": "one"}]},
            {"step": [{"tool_use": send}]},
            {"step": [{"text": "two"}]},
        ]
    )
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        await talk.wait_for(lambda: "connected" in states(talk))
        talk.act(SetMode("auto"))
        assert await talk.ask("go") == "end_turn", talk.errors
        talk.act(UseTerminal("j1", "take"))
        talk.act(TypeInTerminal("j1", b"unexpected\r"))
        assert await talk.ask("again") == "end_turn", talk.errors
    log = server.log()
    assert r"over there\nover there\n[j1 has a terminal" in log
    assert "unexpected" not in log


@prove
async def test_a_servers_socket_is_an_address(elsewhere, tmp_path):
    elsewhere.answer({"text": "pong"})
    path = tmp_path / "a socket"
    server = Server(elsewhere, "--listen", f"unix:{path}").start()
    address = f"unix:{tmp_path}/a%20socket?token-file={server.token_file}"
    try:
        async with elsewhere.talk(address=address) as talk:
            assert await talk.ask("ping") == "end_turn", talk.errors
            server.kill()
            await talk.wait_for(lambda: "waiting" in states(talk))
            path.unlink(missing_ok=True)
            talk.submit("ping")
            server.start()
            await talk.wait_for_turns(2)
            assert talk.text == "pongpong"
    finally:
        server.stop()


def test_a_socket_has_a_whole_path():
    assert parse_address("unix:~/it?cwd=/x").socket == os.path.expanduser("~/it")  # noqa: PTH111
    for wrong in ("unix:it", "unix://host/it"):
        with pytest.raises(ConfigError, match="whole path"):
            parse_address(wrong)


async def test_a_question_that_was_open_is_asked_again_and_the_tool_runs_once(elsewhere, server):
    elsewhere.script([{"step": [BASH]}, {"step": [{"text": "done"}]}])
    async with server.talk_over_a_cutter() as (cutter, talk):
        talk.submit("go")
        await talk.wait_for(lambda: talk.of(ApprovalRequested))
        cutter.is_down = True
        cutter.cut()
        await talk.wait_for(lambda: "waiting" in states(talk))
        cutter.is_down = False
        await talk.wait_for(lambda: len(talk.of(ApprovalRequested)) == 2)
        talk.act(AnswerApproval(talk.of(ApprovalRequested)[-1].id, "once"))
        assert await talk.wait_for_turns() == "end_turn"
        assert talk.text == "done"
        assert len(talk.of(ToolEnded)) == 1
    assert (elsewhere.project / "runs").read_text() == "ran\n"


@prove
async def test_what_is_said_before_it_is_known_that_the_prompt_arrived_is_shown(elsewhere, server):
    """That it was accepted got lost with the connection: what was said meanwhile comes first on the next one."""
    elsewhere.answer({"text": WORDS})
    async with server.talk_over_a_cutter() as (cutter, talk):
        await talk.wait_for(lambda: "connected" in states(talk))
        cutter.is_mute = True
        talk.submit("go")
        with anyio.fail_after(DEADLINE_S):
            while '"turn_ended"' not in server.log():
                await anyio.sleep(0.05)
        cutter.cut()
        cutter.is_mute = False
        assert await talk.wait_for_turns() == "end_turn", talk.errors
        assert talk.text == WORDS
        assert len(talk.of(TurnStarted)) == 1


@prove
async def test_a_server_that_is_killed_and_comes_back_repeats_nothing(elsewhere, server):
    """It has the turn's beginning from its log, and tells it anew; what was shown stands here once."""
    elsewhere.answer({"text": WORDS, "chunk_chars": 6, "chunk_delay_ms": 20})
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.submit("go")
        await talk.wait_for(lambda: len(talk.text) > 100)
        server.kill()
        await talk.wait_for(lambda: states(talk).count("waiting") == 2)
        assert "cannot be reached: nothing listens there" in talk.of(ConnectionChanged)[-1].why
        server.start()
        await talk.wait_for_turns()
        assert WORDS.startswith(talk.text)
        assert "the turn was interrupted" in talk.errors[0]
        elsewhere.answer({"text": "pong"})
        shown = talk.text
        assert await talk.ask("more") == "end_turn", talk.errors
        assert talk.text.removeprefix(shown) in (WORDS, "pong")  # which script it has read


def shown_of(talk):
    """The history that was shown: prompts, words and ends."""
    found = [""]
    for event in talk.of(HistoryShown)[0].events:
        match event:
            case TurnStarted(prompt):
                found += [prompt.text, ""]
            case TextDelta(text=text):
                found[-1] += text
            case TurnEnded(reason):
                found += [reason, ""]
            case _:
                pass
    return [each for each in found if each]


@prove
async def test_who_comes_back_later_is_told_what_was_said_meanwhile(elsewhere, server):
    elsewhere.answer({**STREAM, "chunk_delay_ms": 10})
    server.start()
    async with elsewhere.talk(address=server.address()) as talk:
        talk.submit("go")
        await talk.wait_for(lambda: talk.of(TextDelta))
    seen = talk.text
    assert seen != WORDS
    assert WORDS.startswith(seen)
    await anyio.sleep(0.5)
    async with elsewhere.talk(address=server.address()) as again:
        assert await again.wait_for_turns() == "end_turn"
        assert seen + again.text == WORDS
        assert [each.is_continued for each in again.of(TurnStarted)] == [True]
        again.act(SubmitPrompt(Prompt("another", "more")))
        assert await again.wait_for_turns(2) == "end_turn"
    assert shown_of(again) == ["go", seen]
    async with elsewhere.talk(address=server.address()) as later:
        await later.wait_for(lambda: later.of(HistoryShown))
    assert shown_of(later) == ["go", WORDS, "end_turn", "more", WORDS, "end_turn"]
    exported = export_markdown(elsewhere.state / "sessions", "s1")
    assert "Interrupted" not in exported
    assert exported.count("\ngo\n") == 1


@prove
async def test_who_was_killed_and_comes_back_is_shown_the_rest_of_the_turn(elsewhere, server):
    use = {"tool_use": {"name": "bash", "input": {"command": "echo ran >> runs"}}}
    elsewhere.script([{"step": [use]}, {"step": [{**STREAM, "chunk_delay_ms": 10}]}])
    server.start()
    with anyio.CancelScope() as killed:
        async with elsewhere.talk(address=server.address()) as talk:
            talk.answer = {"answer": "once"}
            talk.submit("go")
            await talk.wait_for(lambda: len(talk.text) > 300)
            killed.cancel()
            await anyio.sleep_forever()
    async with elsewhere.talk(address=server.address()) as again:
        assert await again.wait_for_turns() == "end_turn"
        assert WORDS.endswith(again.text)
        assert len(WORDS) - len(again.text) > 200  # what was in the log
        assert again.of(ToolEnded) == []


async def test_a_wrong_token_is_refused_with_what_to_do(elsewhere, server, tmp_path):
    server.start()
    wrong = tmp_path / "wrong"
    wrong.write_text("no-token\n")
    wrong.chmod(0o600)
    address = f"ws://127.0.0.1:{server.port}?token-file={wrong}"
    async with elsewhere.talk(address=address) as talk:
        await talk.wait_for(lambda: talk.errors)
        assert "has another token than the one stored here, which was not sent" in talk.errors[0]
        assert states(talk) == ["connecting", "refused"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_the_token_does_not_go_to_a_socket_of_another_user(elsewhere, tmp_path, token):
    with socket.socket(socket.AF_UNIX) as theirs:
        theirs.bind(f"{tmp_path}/socket")
        os.seteuid(NOBODY)
        try:
            theirs.listen()
        finally:
            os.seteuid(0)
        address = f"unix:{tmp_path}/socket?token-file={token}"
        async with elsewhere.talk(address=address) as talk:
            await talk.wait_for(lambda: talk.errors)
            assert "Another user listens" in talk.errors[0]
            assert states(talk) == ["connecting", "refused"]
        theirs.settimeout(5)
        with theirs.accept()[0] as connection:
            assert connection.recv(1000) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
async def test_nothing_is_sent_to_a_port_that_another_user_has_taken(elsewhere, token, host):
    os.seteuid(NOBODY)
    try:
        theirs = socket.create_server(
            (host, 0), family=socket.AF_INET6 if host == "::" else socket.AF_INET
        )
    finally:
        os.seteuid(0)
    with theirs:
        address = f"ws://localhost:{theirs.getsockname()[1]}?token-file={token}"
        async with elsewhere.talk(address=address) as talk:
            await talk.wait_for(lambda: talk.errors)
            assert "Another user listens on localhost" in talk.errors[0]
            assert states(talk) == ["connecting", "refused"]
        theirs.settimeout(0)
        with pytest.raises(BlockingIOError):  # nobody has connected
            theirs.accept()


def _refuses(connection, _):
    return connection.respond(401, "")


def _proves_another_token(_, request):
    return Door("another-token", frozenset()).check(None, request)


def _lets_in(_, __):
    return None


@pytest.mark.parametrize("answer", [_refuses, _proves_another_token, _lets_in])
async def test_a_server_that_does_not_know_the_token_never_sees_it(elsewhere, tmp_path, answer):
    token = tmp_path / "token"
    token.write_text("a-secret-token\n")
    token.chmod(0o600)
    seen = []

    async def take(connection, request):
        seen.append(str(request.headers))
        return answer(connection, request)

    def wait(connection):
        return connection.wait_closed()

    async with serve(wait, "127.0.0.1", 0, process_request=take) as it:
        port = it.sockets[0].getsockname()[1]
        address = f"ws://127.0.0.1:{port}?token-file={token}"
        async with elsewhere.talk(address=address) as talk:
            await talk.wait_for(lambda: talk.errors)
            assert states(talk) == ["connecting", "refused"]
    assert seen
    assert "a-secret-token" not in "".join(seen)
    assert "proof=" not in "".join(seen)


async def test_where_no_server_listens_it_is_said_what_to_start(
    elsewhere, token, unused_port, monkeypatch
):
    monkeypatch.setattr("sanderling.acp.client.reconnecting.FIRST_CONNECTION_S", 0)
    address = f"ws://127.0.0.1:{unused_port}?token-file={token}"
    async with elsewhere.talk(address=address) as talk:
        await talk.wait_for(lambda: talk.errors)
        assert talk.errors[0] == (
            f"127.0.0.1:{unused_port} cannot be reached: nothing listens there. Start `sanderling serve` there first."
        )


@prove
@pytest.mark.parametrize("seed", range(10))
async def test_cuts_at_random_bytes_lose_nothing_and_repeat_nothing(elsewhere, server, seed):
    """Each run has up to twenty cuts, in both directions, while text streams and a tool runs."""
    chance = random.Random(seed)
    elsewhere.script(
        [{"step": [STREAM, BASH]}, {"step": [{"text": "done"}]}] * 3 + [{"step": [STREAM]}]
    )
    async with server.talk_over_a_cutter() as (cutter, talk):
        talk.answer = {"answer": "once"}
        await talk.wait_for(lambda: "connected" in states(talk))
        cutter.cuts = cuts_at_random(chance)
        cutter.cut()
        with anyio.fail_after(120):
            talk.agent.external.reconnecting._pause = lambda *_: anyio.sleep(0.01)
            for number, text in enumerate(("one", "two", "three"), 1):
                talk.submit(text)
                while len([e for e in talk.events if type(e).__name__ == "TurnEnded"]) < number:
                    await talk._changed.wait()
        assert talk.errors == []
        assert talk.text == (WORDS + "done") * 3
        assert [each.prompt.text for each in talk.of(TurnStarted)] == ["one", "two", "three"]
        assert len(talk.of(ToolEnded)) == 3
        assert cutter.made >= 3
    assert (elsewhere.project / "runs").read_text() == "ran\n" * 3


@prove
async def test_what_is_taken_back_while_nobody_is_connected_does_not_run_on_there(
    elsewhere, server
):
    """The prompt came there, and that it was accepted did not come back."""
    elsewhere.answer({**STREAM, "chunk_delay_ms": 50})
    async with server.talk_over_a_cutter() as (cutter, talk):
        await talk.wait_for(lambda: "connected" in states(talk))
        cutter.is_mute = True
        talk.submit("go")
        with anyio.fail_after(DEADLINE_S):
            while '"text":"go"' not in server.log():
                await anyio.sleep(0.05)
        cutter.is_down = True
        cutter.cut()
        await talk.wait_for(lambda: "waiting" in states(talk))
        talk.act(CancelTurn())
        await talk.wait_for(lambda: talk.of(PromptsReturned))
        cutter.is_down = cutter.is_mute = False
        await talk.wait_for(lambda: states(talk)[-1] == "connected")
        elsewhere_log = next((elsewhere.there / "state").rglob("sessions/*.jsonl"))
        with anyio.fail_after(DEADLINE_S):
            while '"stop_reason":"cancelled"' not in elsewhere_log.read_text():
                await anyio.sleep(0.05)
