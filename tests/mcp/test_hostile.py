"""Servers that are dead, mute, flooding or lying: each costs its own tools, and nobody else anything."""

import json
import os
import re
import signal

import anyio
import pytest

from sanderling.mcp import connection, servers, stdio
from sanderling.mcp import server as owner
from sanderling.mcp.problems import ServerError
from sanderling.mcp.server import ServerStatus
from sanderling.sandbox.sandbox import Sandbox
from tests.conftest import happens, little_work, prove, prove_rest, running
from tests.mcp.conftest import hostile, mark_of, served


async def test_server_is_ready_with_its_tools_and_answers(place):
    async with served(place, bad=hostile()) as mcp:
        assert mcp["bad"].status == ServerStatus("ready")
        assert await mcp.called("bad", "echo", "hello") == "hello"
        names = [tool.name for tool in await mcp.source.tools()]
        assert "mcp__bad__echo" in names


async def test_server_that_is_killed_in_a_call_is_told_and_comes_back(place, monkeypatch):
    monkeypatch.setattr(owner, "FIRST_DELAY_S", 0.001)
    states: list[ServerStatus] = []
    async with served(place, lambda server: states.append(server.status), bad=hostile()) as mcp:
        with pytest.raises(ServerError, match=r"ended meanwhile \(it was ended by SIGKILL\)"):
            await mcp.called("bad", "die")
        assert await mcp.called("bad", "echo") == "hi"
    assert [status.state for status in states] == ["starting", "ready", "restarting", "ready"]
    assert states[2].why == "it was ended by SIGKILL"


@prove
async def test_calls_beside_the_one_that_ends_a_server_are_told_too(place):
    async with served(place, bad=hostile()) as mcp:
        told: list[str] = []

        async def hang() -> None:
            try:
                await mcp.called("bad", "hang", "nowhere")
            except ServerError as error:
                told.append(str(error))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(hang)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ServerError):
                await mcp.called("bad", "quit")
        assert len(told) == 5
        assert all("exit status 3" in each for each in told)
        assert "I have had enough" in mcp["bad"].log.text()


@prove
async def test_server_that_ends_at_once_fails_with_its_reason_and_can_be_restarted(
    place, monkeypatch
):
    monkeypatch.setattr(owner, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(owner, "MAX_FAILURES", 2)
    async with served(place, bad=hostile("exit"), good=hostile()) as mcp:
        await mcp["bad"].settled()
        assert mcp["bad"].status == ServerStatus(
            "failed", "it ended with exit status 7: nothing to do here"
        )
        assert "nothing to do here" in mcp["bad"].log.text()
        with pytest.raises(ServerError, match=r"it is failed: it ended with exit status 7"):
            await mcp.called("bad", "echo")
        assert await mcp.called("good", "echo") == "hi"
        mcp["bad"].restart()
        assert mcp["bad"].status.state == "starting"
        await happens(lambda: mcp["bad"].status.state == "failed")


@prove
async def test_server_that_waits_for_its_next_start_can_be_stopped(place, monkeypatch):
    monkeypatch.setattr(owner, "FIRST_DELAY_S", 60)
    async with served(place, bad=hostile("exit")) as mcp:
        await happens(lambda: mcp["bad"].status.state == "restarting")
        mcp["bad"].stop()
        await happens(lambda: mcp["bad"].status.state == "stopped")


async def test_program_that_is_not_there_is_named(place, monkeypatch):
    monkeypatch.setattr(owner, "FIRST_DELAY_S", 0.001)
    async with served(place, bad={"command": ["no-such-server"]}) as mcp:
        await mcp["bad"].settled()
        assert mcp["bad"].status.why == "there is no program 'no-such-server'"
        assert mcp["bad"].status.is_permanent


async def test_program_that_is_hidden_is_named_with_the_line_to_add(place, monkeypatch):
    monkeypatch.setattr(owner, "MAX_FAILURES", 1)
    hidden = place.home / "tools/bin"
    hidden.mkdir(parents=True)
    (hidden / "server").write_text("#!/bin/sh\nexit 5\n")
    (hidden / "server").chmod(0o755)
    argv = [str(hidden / "server")]
    async with served(place, bad={"command": argv}) as mcp:
        await mcp["bad"].settled()
        line = '(add `paths = ["~/tools"]` in [mcp.servers.bad] of config.toml)'
        assert mcp["bad"].status.why.endswith(line)
    async with served(place, **{"a bad.one": {"command": argv}}) as mcp:
        await mcp["a bad.one"].settled()
        assert 'in [mcp.servers."a bad.one"] of' in mcp["a bad.one"].status.why
        theirs = servers.load_servers({"theirs": {"command": argv}})["theirs"]
        server = mcp.source.declare("theirs", theirs, is_projects=True)
        await server.settled()
        assert server.status.why.endswith(
            "in [mcp.servers.theirs] of config.toml, with its `command`)"
        )
    async with served(place, bad={"command": argv, "paths": ["~/tools"]}) as mcp:
        await mcp["bad"].settled()
        assert mcp["bad"].status.why == "it ended with exit status 5"


@prove
async def test_server_that_never_answers_is_given_up_after_its_time(place, monkeypatch):
    monkeypatch.setattr(owner, "MAX_FAILURES", 2)
    monkeypatch.setattr(owner, "FIRST_DELAY_S", 0.001)
    monkeypatch.setattr(servers, "LEAST_START_S", 0.4)
    async with served(place, bad=hostile("mute", timeout_s=0.4)) as mcp:
        assert mcp["bad"].status.state == "restarting"
        assert mcp["bad"].status.why.startswith("not ready after 0.4 s")
        await happens(lambda: mcp["bad"].status.state == "failed")
    assert running(mark_of(place)) == []


@pytest.mark.parametrize("how", prove_rest(["ends:0", "ends:1", "old", "shocked"]))
async def test_server_that_does_not_bear_the_first_word_of_the_new_era_is_asked_in_the_old_one(
    place, monkeypatch, how
):
    monkeypatch.setattr(connection, "DISCOVER_S", 0.3)
    monkeypatch.setattr(owner, "FIRST_SHARE", 0.1)
    states: list[str] = []
    note = lambda server: states.append(server.status.state)  # noqa: E731
    async with served(place, note, bad=hostile(how, timeout_s=20)) as mcp:
        assert mcp["bad"].status == ServerStatus("ready")
        assert mcp["bad"].connection
        assert mcp["bad"].connection.era == "2025-11-25"
    assert states == ["starting", "ready"]


@prove
async def test_server_that_says_nothing_of_its_tools_is_told_with_what_it_was_asked(
    place, monkeypatch
):
    monkeypatch.setattr(servers, "LEAST_START_S", 2.0)
    async with served(place, bad=hostile("unlisted", timeout_s=2)) as mcp:
        assert mcp["bad"].status.why == ("not ready after 2 s: no answer to tools/list")


@prove
async def test_time_for_a_call_is_the_time_for_the_start_too(place):
    async with served(place, bad=hostile("slow:11", timeout_s=40)) as mcp:
        assert mcp["bad"].status == ServerStatus("ready")


async def test_server_with_too_many_tools_is_used_in_part_and_that_is_told(place):
    async with served(place, bad=hostile("many:600")) as mcp:
        assert len(mcp["bad"].tools) == 512
        assert mcp["bad"].status.why == "it has more than 512 tools: the first 512 are used"
        assert "works in part" in mcp["bad"].news()


# What is written instead of an answer, and what becomes of it.
OK = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"4711"}]}}'
READ = {
    "half a surrogate pair": (OK.replace("4711", "4711 \\ud83d"), "4711 \ufffd"),
    "no UTF-8": (OK.replace("4711", "4711 \xff"), "4711 \ufffd"),
    "half a character": (OK.replace("4711", "4711 \xe2\x82"), "4711 \ufffd"),
    "a control character": (OK.replace("4711", "4711\t."), "4711\t."),
    "a BOM": ("\xef\xbb\xbf" + OK, "4711"),
    "NaN": (OK[:-2] + ',"structuredContent":{"a":NaN,"b":-Infinity}}}', '"a": null'),
    "a number without end": (OK[:-2] + ',"structuredContent":{"a":1e999}}}', '"a": null'),
    "a long number": (OK[:-2] + ',"structuredContent":{"a":' + "1" * 30 + "}}}", '"a": 1111'),
    "a float as the id": (OK.replace("ID", "ID.0"), "4711"),
    "a text as the id": (OK.replace("ID", '"ID"'), "4711"),
    "a batch": ('[{"jsonrpc":"2.0","method":"notifications/progress"},' + OK + "]", "4711"),
    "two in a line": (OK + OK.replace("4711", "other"), "4711"),
    "words before it": ("Listening on stdio " + OK, "4711"),
    "words after it": (OK + " done", "4711"),
    "its answer twice": (OK + "\n" + OK.replace("4711", "other"), "4711"),
    "an error beside it": (OK[:-1] + ',"error":null}', "4711"),
    "a block that nobody knows": (OK.replace("text", "video", 1), "4711"),
    "a text in the place of blocks": (
        '{"jsonrpc":"2.0","id":ID,"result":{"content":"4711"}}',
        "4711",
    ),
    "no content": ('{"jsonrpc":"2.0","id":ID,"result":{"structuredContent":{"a":4711}}}', "4711"),
    "content that is null": (
        '{"jsonrpc":"2.0","id":ID,"result":{"content":null,"structuredContent":[4711]}}',
        "4711",
    ),
}
REFUSED = {
    "null": ('"result":null', "its answer is not valid: its result is null, not an object"),
    "an array": ('"result":[1]', "its result is an array, not an object"),
    "neither": ('"x":1', "it has neither a result nor an error"),
    "content that is a number": (
        '"result":{"content":5,"structuredContent":[4711]}',
        "its answer is not valid: content",
    ),
    "a code that is a text": ('"error":{"code":"E_FULL","message":"no room"}', "E_FULL: no room"),
    "an error that is a text": ('"error":"no room"', "no room"),
    "an error without words": ('"error":{"code":5}', '"code":5'),
    "the code of a closed connection": ('"error":{"code":-32000,"message":"no room"}', "no room"),
    "what is no JSON": ('"result":{"content":[}', "its answer to tools/call cannot be read"),
    "a line that is cut": ('"result":{"content":[{"type":"te', "cannot be read .*it may have done"),
    "too deep": ('"result":{"a":' + "[" * 9000 + "]" * 9000 + "}", "cannot be read"),
}


@pytest.mark.parametrize("name", prove_rest(READ, keep=(0, 1, 5)))
async def test_answer_that_is_not_quite_one_is_read(place, name):
    line, words = READ[name]
    async with served(place, bad=hostile(timeout_s=30)) as mcp:
        result = await mcp["bad"].call("raw", {"words": line})
        told = "\n".join(getattr(block, "text", "") for block in result.content)
        if result.structured_content:
            told += json.dumps(result.structured_content)
        assert words in told
        assert await mcp.called("bad", "echo") == "hi"


@pytest.mark.parametrize("name", prove_rest(REFUSED, keep=(0, 7)))
async def test_answer_that_cannot_be_read_ends_its_call_at_once_and_no_other(place, name):
    line, words = REFUSED[name]
    whole = '{"jsonrpc":"2.0","id":ID,' + line + ("" if "cut" in name else "}")
    async with served(place, bad=hostile(timeout_s=50)) as mcp, anyio.create_task_group() as tasks:
        mark = place.project / "cancelled"
        tasks.start_soon(mcp.called, "bad", "hang", str(mark))
        with pytest.raises(ServerError, match=words):
            await mcp["bad"].call("raw", {"words": whole})
        assert await mcp.called("bad", "echo") == "hi"
        assert not mark.exists()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "line",
    prove_rest(
        [
            '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot be read"}}',
            '{"jsonrpc":"2.0","result":{',
        ]
    ),
)
async def test_answer_without_an_id_is_that_to_the_only_open_request(place, line):
    async with served(place, bad=hostile(timeout_s=50)) as mcp:
        with pytest.raises(ServerError, match="cannot be read"):
            await mcp["bad"].call("raw", {"words": line})
        assert await mcp.called("bad", "echo") == "hi"


DEEP = '{"properties":{"k":' * 3000 + "1" + "}}" * 3000
LISTS = {
    "an array": ('"result":[]', "its result is an array, not an object"),
    "too deep": ('"result":{"tools":[{"name":"t","inputSchema":' + DEEP + "}]}", "cannot be read"),
    "tools that are a text": ('"result":{"tools":"t"}', "tools: "),
}


@pytest.mark.parametrize("name", prove_rest(LISTS))
async def test_list_that_cannot_be_read_is_told_at_once_with_the_reason(place, name):
    line, words = LISTS[name]
    line = '{"jsonrpc":"2.0","id":ID,' + line + "}"
    async with served(place, bad=hostile("list:" + line, timeout_s=50)) as mcp:
        assert mcp["bad"].status.state == "restarting"
        assert words in mcp["bad"].status.why


ODD = [
    {"name": "healthy", "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}},
    {"name": "either", "inputSchema": {"anyOf": [{"type": "object", "properties": {"b": {}}}]}},
    {"name": "none"},
    {"name": "text", "inputSchema": {"type": "string"}},
    {"name": "odd", "inputSchema": {"properties": {"c": {"type": "nope"}}}, "annotations": 5},
    {"name": "hint", "annotations": {"readOnlyHint": "yes"}, "description": 5, "title": []},
    {"name": "out", "outputSchema": {"type": "array"}, "icons": "x", "execution": 5},
    {"name": 5},
    {"inputSchema": {}},
    "tool",
    {"name": "healthy", "inputSchema": {}},
]


async def test_one_odd_tool_costs_no_other_and_is_told_by_name(place):
    line = '{"jsonrpc":"2.0","id":ID,"result":{"tools":' + json.dumps(ODD) + "}}"
    async with served(place, bad=hostile("list:" + line)) as mcp:
        assert mcp["bad"].status.state == "ready"
        names = ["healthy", "either", "none", "text", "odd", "hint", "out"]
        assert [tool.name for tool in mcp["bad"].tools] == names
        assert mcp["bad"].tools[1].schema["properties"] == {"b": {}}
        told = "; ".join(mcp["bad"].offers.problems)
        assert "the tool 'text': its schema is not an object's" in told
        assert "the tool 'odd': the schema of `c` is left out" in told
        assert "tool 8 of its list has no valid name" in told
        assert "more than one tool 'healthy'" in told
        assert mcp["bad"].status.why.endswith("more")
        assert [tool.name for tool in await mcp.source.tools()]


async def test_list_that_is_null_is_empty(place):
    line = '{"jsonrpc":"2.0","id":ID,"result":{"tools":null}}'
    async with served(place, bad=hostile("list:" + line)) as mcp:
        assert (mcp["bad"].status, mcp["bad"].tools) == (ServerStatus("ready"), ())


async def test_tools_whose_names_leave_nothing_are_all_there(place):
    tools = [{"name": name, "inputSchema": {}} for name in ("一覧", "список", "一覧 list", "list")]
    line = '{"jsonrpc":"2.0","id":ID,"result":{"tools":' + json.dumps(tools) + "}}"
    async with served(place, bad=hostile("list:" + line)) as mcp:
        names = [tool.name for tool in await mcp.source.tools()]
        assert len(set(names)) == 4
        assert all(re.fullmatch(r"mcp__bad__[A-Za-z0-9_-]+", name) for name in names)
        assert [each for each in names if each.endswith("__")] == []


async def test_what_is_no_message_goes_to_the_log(place):
    async with served(place, bad=hostile("banner")) as mcp:
        assert await mcp.called("bad", "garbage") == "hi"
        log = mcp["bad"].log.text()
        assert "Welcome to the server!" in log
        assert "this is no message" in log


@prove
@pytest.mark.parametrize("where", prove_rest(["stdout", "endless", "deaf"], keep=(0,)))
async def test_server_that_floods_its_output_is_ended(place, where, monkeypatch):
    monkeypatch.setattr(stdio, "MAX_MESSAGE_BYTES", 1 << 20)
    async with served(place, bad=hostile()) as mcp:
        tool = "endless" if where == "endless" else "flood"
        with pytest.raises(
            ServerError, match=r"writes too much|a line of more than|does not read the answers"
        ):
            await mcp.called("bad", tool, where)
        assert await mcp.called("bad", "echo") == "hi"


@prove
@pytest.mark.parametrize("where", ["progress", "stderr", "requests", "answers"])
async def test_flood_that_breaks_no_rule_leaves_the_loop_free_and_others_alone(place, where):
    async with served(place, bad=hostile(timeout_s=1.5), worse=hostile(), good=hostile()) as mcp:
        with pytest.raises(ServerError, match=r"did not answer within 1\.5 s"):
            await mcp.called("bad", "flood", where)
        assert len(mcp["bad"].log.text()) < 64_000
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mcp.called, "worse", "flood", where)
            for _ in range(20):  # all while it floods, which it does until its call is cancelled
                assert await mcp.called("good", "echo") == "hi"
            tasks.cancel_scope.cancel()


@prove
async def test_ten_megabytes_come_whole(place):
    async with served(place, bad=hostile()) as mcp:
        assert len(await mcp.called("bad", "big")) == pytest.approx(10 << 20, rel=0.01)


@prove
async def test_answer_in_a_million_parts_is_refused_at_once(place):
    async with served(place, bad=hostile()) as mcp:
        with (
            little_work(),
            pytest.raises(ServerError, match=r"its answer has more than 100,000 values"),
        ):
            await mcp.called("bad", "parts")
        assert await mcp.called("bad", "echo") == "hi"


@prove
async def test_two_hundred_calls_at_once_are_all_answered(place):
    async with served(place, bad=hostile()) as mcp:
        answers: list[str] = []

        async def call(number: int) -> None:
            answers.append(await mcp.called("bad", "echo", str(number)))

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(call, number)
        assert sorted(map(int, answers)) == list(range(200))


async def test_call_that_is_cancelled_is_cancelled_in_the_server(place):
    mark = place.project / "cancelled"
    async with served(place, bad=hostile()) as mcp:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mcp.called, "bad", "hang", str(mark))
            await anyio.wait_all_tasks_blocked()
            assert not mark.exists()
            tasks.cancel_scope.cancel()
        await happens(mark.exists)
        assert await mcp.called("bad", "echo") == "hi"


@prove
async def test_call_that_takes_too_long_is_given_up_and_cancelled(place):
    mark = place.project / "cancelled"
    async with served(place, bad=hostile(timeout_s=0.5)) as mcp:
        with pytest.raises(ServerError, match=r"did not answer within 0\.5 s"):
            await mcp.called("bad", "hang", str(mark))
        await happens(mark.exists)


@pytest.mark.parametrize(
    "tool, words",
    prove_rest(
        [
            ("refuse", "ValueError: this cannot be asked for"),
            ("no-such-tool", "hi"),
            ("odd", r"its answer is not valid: content: .*list"),
        ],
        keep=(-1,),
    ),
)
async def test_what_is_wrong_with_an_answer_is_told(place, tool, words):
    async with served(place, bad=hostile()) as mcp:
        if tool == "no-such-tool":
            assert await mcp.called("bad", tool) == words
            return
        with pytest.raises(ServerError, match=words):
            await mcp.called("bad", tool)
        assert await mcp.called("bad", "echo") == "hi"


async def test_schema_of_a_server_keeps_nobody_busy(place):
    async with served(place, bad=hostile()) as mcp:
        await mcp.called(
            "bad", "regex"
        )  # whoever checked the answer against its schema would never be done


@prove
async def test_server_that_asks_us_something_is_refused_and_its_call_goes_on(place):
    async with served(place, bad=hostile()) as mcp:
        assert await mcp.called("bad", "ask") == "hi"


@prove
async def test_progress_is_told_as_it_comes(place):
    steps: list[tuple[float, float | None, str | None]] = []

    async def note(*step: float | str | None) -> None:
        steps.append(step)  # type: ignore[arg-type]

    async with served(place, bad=hostile()) as mcp:
        await mcp.called("bad", "count", on_progress=note)
    assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_tools_that_come_later_are_told_after_the_others(place, monkeypatch):
    monkeypatch.setattr("sanderling.mcp.search.MAX_SENT", 99)
    async with served(place, bad=hostile()) as mcp:
        before = [tool.name for tool in await mcp.source.tools()]
        own = mcp["bad"].tools
        await mcp.called("bad", "more")
        await happens(lambda: len(mcp["bad"].tools) > len(own))
        after = [tool.name for tool in await mcp.source.tools()]
        assert after == [*before, "mcp__bad__later1"]


@prove
async def test_server_that_has_other_tools_each_time_has_only_so_many(place, monkeypatch):
    async with served(place, bad=hostile()) as mcp:
        own = len(mcp["bad"].tools)
        monkeypatch.setattr("sanderling.mcp.source.MAX_MADE", own + 2)
        for count in range(own + 1, own + 6):
            await mcp.called("bad", "more")
            await happens(lambda count=count: len(mcp["bad"].tools) >= count)
            names = [tool.name for tool in await mcp.source.tools()]
        assert names[-1] == "mcp__bad__later2"
        assert "mcp__bad__echo" in names


@prove
async def test_server_is_started_on_the_terms_of_now(place):
    async with served(place, bad=hostile()) as mcp:
        await mcp.called("bad", "write", str(place.project / "one"))
        mcp.sandbox.set_mode("ro")
        with pytest.raises(ServerError, match=r"Read-only file system|Permission denied"):
            await mcp.called("bad", "write", str(place.project / "two"))
        mcp.sandbox.set_mode("rw")
        await mcp.called("bad", "write", str(place.project / "three"))
        assert mcp["bad"].status == ServerStatus("ready")
    assert (place.project / "three").exists()
    assert not (place.project / "two").exists()


async def test_server_reads_no_secret_and_reaches_no_host(place):
    async with served(place, bad=hostile(env={"TOKEN": "t0ken-of-mine"})) as mcp:
        with pytest.raises(ServerError, match=r"No such file|Permission denied"):
            await mcp.called("bad", "read", str(place.secret / "file"))
        assert await mcp.called("bad", "read", "file") == "public\n"
        assert await mcp.called("bad", "env", "TOKEN") == "t0ken-of-mine"
        with pytest.raises(ServerError, match=r"gaierror|unreachable|refused"):
            await mcp.called("bad", "connect", "example.org:80")
        log = mcp["bad"].log.text()
        assert "[refused: resolve example.org: the network is off]" in log


async def test_log_has_no_secret_that_the_server_was_given(place, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "s3cret-value")
    async with served(place, bad=hostile(env={"TOKEN": "Bearer ${MY_TOKEN}"})) as mcp:
        assert await mcp.called("bad", "env", "TOKEN") == "Bearer s3cret-value"
        await mcp.called("bad", "log", "I know s3cret-value")
        await happens(lambda: "logged" in mcp["bad"].log.text())
        log = mcp["bad"].log.text()
        assert "s3cret-value" not in log
        assert "[info] I know" in log


@prove
async def test_server_that_is_stopped_is_gone_until_it_is_wanted(place):
    async with served(place, bad=hostile()) as mcp:
        mcp["bad"].stop()
        await happens(lambda: mcp["bad"].status.state == "stopped")
        assert running(mark_of(place)) == []
        with pytest.raises(ServerError, match="stopped"):
            await mcp.called("bad", "echo")
        mcp["bad"].restart()
        assert await mcp.called("bad", "echo") == "hi"


@prove
@pytest.mark.parametrize("level", ["full-bwrap", "namespaces", "landlock"])
async def test_servers_live_at_each_level(place, level):
    if reason := (await Sandbox.probe()).why_not(level):
        pytest.skip(reason)
    async with served(place, policy={"level": level}, bad=hostile(env={"A": "b"})) as mcp:
        assert await mcp.called("bad", "env", "A") == "b"
        with pytest.raises(ServerError):
            await mcp.called("bad", "die")
        assert await mcp.called("bad", "echo") == "hi"


@prove
async def test_server_is_killed_from_outside_as_often_as_one_likes(place, monkeypatch):
    monkeypatch.setattr(owner, "FIRST_DELAY_S", 0.01)
    async with served(place, bad=hostile()) as mcp:
        for _ in range(3):
            connection = mcp["bad"].connection
            [pid] = running(mark_of(place))
            os.kill(pid, signal.SIGKILL)
            await happens(lambda connection=connection: mcp["bad"].connection is not connection)
            assert await mcp.called("bad", "echo") == "hi"


async def test_path_that_leads_elsewhere_since_the_session_began_is_not_let_in(place):
    declared = place.project / "data"
    declared.mkdir()
    async with served(place, bad=hostile(paths=["data"])) as mcp:
        mcp["bad"].stop()
        await happens(lambda: mcp["bad"].status.state == "stopped")
        declared.rmdir()
        declared.symlink_to(place.secret)
        mcp["bad"].restart()
        await happens(lambda: "changed after you approved it" in mcp["bad"].status.why)
        assert mcp["bad"].connection is None
