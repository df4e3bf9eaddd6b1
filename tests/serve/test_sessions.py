"""Sessions that outlive connections: several who watch, one who comes again, questions that wait, prompts that run once."""

import asyncio
import json
import signal
import socket

import pytest

from sanderling.serve.registry import MAX_IDLE
from tests.acp.talk import FULL, AgentError, chosen
from tests.conftest import prove
from tests.serve.talk import DEADLINE_S, Client, attached

PERMISSION = "session/request_permission"


def bash(number, command):
    return {"tool_use": {"id": f"t{number}", "name": "bash", "input": {"command": command}}}


ASKED = [[{"text": "I look."}, bash(1, "echo once >> ran; echo made")], [{"text": "done"}]]
SLOW = [[{"text": "one two three four five six", "chunk_chars": 4, "chunk_delay_ms": 300}]]


@prove
async def test_a_client_is_told_what_there_is_and_is_answered(serve, home):
    server = serve()
    async with server.connect() as socket:
        client = Client(socket)
        said = await client.initialize()
        ours = said["agentCapabilities"]["_meta"]["sanderling"]
        assert (ours["resume"], ours["cwd"]) == (1, str(home.project))
        assert ours["version"] == said["agentInfo"]["version"]
        assert socket.response.headers["Acp-Connection-Id"]
        session = await client.new(home)
        assert await client.prompt(session, "ping", "p1") == "end_turn"
        assert client.text() == "pong"
        assert client.accepted == ["p1"]
        assert client.numbers == list(range(1, len(client.told) + 1))
        assert client.of("session_info_update")[-1]["_meta"]["sanderling"] == {
            "prompt_id": "p1",
            "stop_reason": "end_turn",
        }
        await client.close()


@prove
async def test_a_prompt_that_is_sent_again_runs_once(serve, home):
    server = serve("--model", home.script(*ASKED))
    async with attached(server) as client:
        client.answers[PERMISSION] = chosen("once")
        session = await client.new(home)
        first = await client.begin_prompt(session, "go", "p1")
        again = await client.begin_prompt(session, "go", "p1")
        assert [(await each)["stopReason"] for each in (first, again)] == ["end_turn"] * 2
        assert await client.prompt(session, "go", "p1") == "end_turn"
        assert (home.project / "ran").read_text() == "once\n"
        assert client.accepted.count("p1") >= 2
        with pytest.raises(AgentError, match="prompt_id"):
            await client.prompt(session, "go", "../p")


async def test_a_turn_goes_on_while_nobody_is_attached_and_is_told_once(serve, home):
    server = serve("--model", home.script(*SLOW))
    async with attached(server) as client:
        session = await client.new(home)
        await client.begin_prompt(session, "go", "p1")
        await client.wait_for(client.text)
        told, life = client.told, client.told[-1]["_meta"]["sanderling"]["life"]
    async with attached(server) as again:
        meta = await again.again("resume", home, session, life=life, after=len(told))
        assert (meta["is_continued"], meta["running"]) == (True, "p1")
        assert await again.prompt(session, "go", "p1") == "end_turn"
        whole = told + again.told
        assert [each["_meta"]["sanderling"]["seq"] for each in whole] == [*range(1, len(whole) + 1)]
        chunks = [e for e in whole if e["update"]["sessionUpdate"] == "agent_message_chunk"]
        assert "".join(e["update"]["content"]["text"] for e in chunks) == SLOW[0][0]["text"]


@prove
async def test_an_unknown_life_is_not_continued_and_can_be_loaded(serve, home):
    server = serve()
    async with attached(server) as client:
        session = await client.new(home)
        await client.prompt(session, "ping", "p1")
        told = len(client.told)
    async with attached(server) as again:
        for life, after in (("other", 1), (client.told[0]["_meta"]["sanderling"]["life"], 9_999)):
            meta = await again.again("resume", home, session, life=life, after=after)
            assert meta["is_continued"] is False
        assert again.told == []
        meta = await again.again("load", home, session)
        # The sandbox's level may become known after the prompt's end, or after this answer.
        assert told <= meta["seq"] <= len(again.told)
        assert again.told[:told] == client.told[:told]
        assert await again.prompt(session, "ping") == "end_turn"
        assert again.text() == "pongpong"


async def test_all_who_watch_are_told_and_the_first_answer_counts(serve, home):
    server = serve("--model", home.script(*ASKED))
    async with attached(server) as one, attached(server) as two, attached(server, {}) as plain:
        session = await one.new(home)
        await two.again("resume", home, session)
        await plain.again("resume", home, session)
        turn = await one.begin_prompt(session, "go", "p1")
        for each in (one, two, plain):
            await each.wait_for(lambda each=each: each.asked)
        two.answers[PERMISSION] = chosen("once")
        await two.send({"id": two.asked[0]["id"], "result": chosen("once")(None)})
        assert (await turn)["stopReason"] == "end_turn"
        await one.wait_for(lambda: one.cancelled == [one.asked[0]["id"]])
        await plain.wait_for(lambda: plain.cancelled == [plain.asked[0]["id"]])
        await two.wait_for(lambda: two.text() == "I look.done")
        await plain.wait_for(lambda: plain.text() == "I look.done")
        assert two.text("user_message_chunk") == plain.text("user_message_chunk") == "go"
        assert not plain.of("notice")
        assert plain.accepted == []


async def test_a_question_waits_and_is_asked_again_of_whoever_comes(serve, home):
    server = serve("--model", home.script(*ASKED))
    async with attached(server) as client:
        session = await client.new(home)
        await client.begin_prompt(session, "go", "p1")
        question = await client.wait_for(lambda: client.asked)
    async with attached(server) as again:
        again.answers[PERMISSION] = chosen("once")
        await again.again("load", home, session)
        assert await again.prompt(session, "go", "p1") == "end_turn"
        ids = [each["params"]["_meta"]["sanderling"]["id"] for each in (*question, *again.asked)]
        assert len(ids) == 2
        assert len(set(ids)) == 1
    assert (home.project / "ran").read_text() == "once\n"


@prove
async def test_a_client_of_others_is_not_told_its_own_words(serve, home):
    server = serve()
    async with attached(server, FULL) as client:
        session = await client.new(home)
        await client.prompt(session, "ping")
        assert client.of("user_message_chunk") == []
        assert client.accepted == []
        refused = await client.begin("session/prompt", sessionId="nobody", prompt=[])
        with pytest.raises(AgentError):
            await refused


@prove
async def test_closing_ends_a_session_when_the_last_one_has_closed_it(serve, home):
    server = serve("--model", home.script(*SLOW))
    async with attached(server) as one, attached(server) as two:
        session = await one.new(home)
        await two.again("resume", home, session)
        turn = await one.begin_prompt(session, "go", "p1")
        await two.wait_for(two.text)
        await one.request("session/close", sessionId=session)
        before = len(two.text())
        await two.wait_for(lambda: len(two.text()) > before)
        await two.request("session/close", sessionId=session)
        assert (await turn)["stopReason"] == "cancelled"
        meta = await two.again("load", home, session)
        assert "running" not in meta
        assert two.told[-1]["_meta"]["sanderling"]["life"] == meta["life"]


@prove
async def test_a_signal_interrupts_turns_and_the_next_start_goes_on(serve, home):
    model = home.script(*SLOW, [{"text": "again"}])
    server = serve("--model", model)
    async with attached(server) as client:
        session = await client.new(home)
        turn = await client.begin_prompt(session, "go", "p1")
        await client.wait_for(client.text)
        server.process.send_signal(signal.SIGTERM)
        assert (await turn)["stopReason"] == "cancelled"
    assert server.process.wait(DEADLINE_S) == 0
    server = serve("--model", model)
    async with attached(server) as client:
        meta = await client.again("load", home, session)
        assert meta["life"]
        assert client.text("user_message_chunk") == "go"
        assert client.text().startswith("one")
        assert await client.prompt(session, "go", "p1") == "cancelled"  # it was begun once
        assert await client.prompt(session, "more", "p2") == "end_turn"
        assert await client.prompt(session, "lost", "p3", was_accepted=True) == "cancelled"


@prove
async def test_a_server_that_is_killed_loses_no_prompt_and_runs_no_tool_twice(serve, home):
    model = home.script(*ASKED)
    server = serve("--model", model)
    async with attached(server) as client:
        session = await client.new(home)
        await client.begin_prompt(session, "go", "p1")
        await client.wait_for(lambda: client.asked)
        server.process.kill()
        server.process.wait()
    server = serve("--model", model)
    async with attached(server) as client:
        await client.again("load", home, session)
        assert client.text("user_message_chunk") == "go"
        assert await client.prompt(session, "go", "p1") == "cancelled"
    assert not (home.project / "ran").exists()


@prove
async def test_a_slow_reader_is_held_up_alone_and_told_all_in_the_end(serve, home):
    words = "word " * 800_000
    server = serve("--model", home.script([{"text": words, "chunk_chars": 8_000}]))
    async with attached(server) as client:
        session = await client.new(home)
        async with server.connect(max_queue=1, close_timeout=0.2) as socket:
            for number, (method, params) in enumerate(
                (
                    ("initialize", {"protocolVersion": 1, "clientCapabilities": OURS_ALONE}),
                    (
                        "session/resume",
                        {"sessionId": session, "cwd": str(home.project), "mcpServers": []},
                    ),
                )
            ):
                message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                await socket.send(json.dumps(message))
                while json.loads(await socket.recv()).get("id") != number:
                    pass
            assert await client.prompt(session, "go", "p1") == "end_turn"
            assert client.text() == words
    server.check()


OURS_ALONE = {"_meta": {"sanderling": {"resume": True}}}


@prove
async def test_the_socket_of_a_person_is_theirs_alone_and_is_taken_away(serve, home):
    path = home.folder / "socket"
    server = serve(listen=f"unix:{path}")
    assert path.stat().st_mode & 0o777 == 0o600
    async with attached(server) as client:
        session = await client.new(home)
        assert await client.prompt(session, "ping") == "end_turn"
    second = home.run("serve", "--listen", f"unix:{path}")
    assert second.returncode == 2
    assert "another server" in second.stderr
    server.finish()
    assert not path.exists()


def is_taken(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@prove
async def test_a_server_that_ends_leaves_the_socket_of_the_next_one_alone(serve, home):
    path = home.folder / "socket"
    server = serve(listen=f"unix:{path}")
    async with server.connect() as slow:
        slow.transport.pause_reading()  # so that it is waited for
        server.process.terminate()
        while is_taken(path):
            await asyncio.sleep(0.01)
        following = serve(listen=f"unix:{path}")
        assert server.process.poll() is None
        slow.transport.abort()
    assert await asyncio.to_thread(server.process.wait, DEADLINE_S) == 0
    async with attached(following) as client:
        assert await client.new(home)


@prove
async def test_two_that_load_at_once_have_one_and_the_same_session(serve, home):
    server = serve()
    async with attached(server) as client:
        session = await client.new(home)
        await client.prompt(session, "ping", "p1")
        await client.request("session/close", sessionId=session)
    async with attached(server) as one, attached(server) as two:
        lives = await asyncio.gather(*(each.again("load", home, session) for each in (one, two)))
        assert lives[0]["life"] == lives[1]["life"]
        assert one.text() == two.text() == "pong"


@prove
async def test_sessions_that_nobody_watches_are_no_more_than_so_many(serve, home):
    server = serve()

    async def left(prompt_id=""):
        async with attached(server, is_judged=False) as client:
            session, life = await client.begin_session(home)
            if prompt_id:
                await client.prompt(session, "ping", prompt_id)
            return session, life

    async def life_of(session):
        async with attached(server) as client:
            return (await client.again("load", home, session))["life"], client.text()

    [first, *_, last] = [await left("p1"), *[await left() for _ in range(MAX_IDLE)], await left()]
    assert await life_of(last[0]) == (last[1], "")
    life, text = await life_of(first[0])
    assert life != first[1]
    assert text == "pong"
