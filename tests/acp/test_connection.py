"""A connection of the Agent Client Protocol, whatever the other side writes."""

import json
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.acp.wire.base import EMPTY, Empty
from sanderling.acp.wire.connection import MAX_LINE_BYTES, MAX_RUNNING, Method
from sanderling.acp.wire.envelope import MAX_VALUES, MalformedError, decoded, message_of
from sanderling.acp.wire.errors import ClosedError, RpcError
from sanderling.acp.wire.sessions import NewSessionRequest
from sanderling.acp.wire.wire_log import WireLog
from tests.acp.lines import connected
from tests.conftest import examples, happens, little_work, prove

PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}


async def pong(_: msgspec.Raw) -> object:
    return {"said": "pong"}


async def for_ever(_: msgspec.Raw) -> object:
    await anyio.sleep_forever()


async def typed(params: msgspec.Raw) -> object:
    decoded(params, NewSessionRequest)
    return EMPTY


METHODS = {"ping": Method(pong), "wait": Method(for_ever), "typed": Method(typed)}

MALFORMED = [
    (b"no json", -32700, None),
    (b'{"jsonrpc": "2.0", "id": 1', -32700, None),
    (b'\xff\xfe{"id": 1}', -32700, 1),
    (b"[" * 100_000, -32700, None),
    (b"[1, 2, 3]", -32600, None),
    (b"[]", -32600, None),
    (b"[1, 2", -32700, None),
    (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600, None),
    (b"1", -32600, None),
    (b'"ping"', -32600, None),
    (b"null", -32600, None),
    (b"{}", -32600, None),
    (b'{"foo": "boo"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 1}', -32600, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": 1}', -32600, 1),
    (b'{"jsonrpc": "2.0", "method": 1, "params": "bar"}', -32600, None),
    (b'{"jsonrpc": "1.0", "id": "a", "method": "ping"}', -32600, "a"),
    (b'{"id": 3, "method": "ping"}', -32600, 3),
    (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', -32600, None),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "pang"}', -32601, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "$/unheard_of"}', -32601, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "typed"}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "typed", "params": [1]}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "typed", "params": {"cwd": 5}}', -32602, 1),
    (b'{"jsonrpc": "2.0", "id": 1, "method": "typed", "params": {"cwd": null}}', -32602, 1),
]


READ = [
    (rb'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"cut \ud83d"}}', "cut \ufffd"),
    (rb'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"\ude00 cut"}}', "\ufffd cut"),
    (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"\xff \xe2\x82"}}', "\ufffd \ufffd"),
    (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"x\ty"}}', "x\ty"),
    (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":"x","b":NaN}}', "x"),
]


@pytest.mark.parametrize("line, words", READ)
async def test_half_an_emoji_in_a_request_costs_no_more_than_that(line, words):
    async def echo(params: msgspec.Raw) -> object:
        return msgspec.json.decode(params)

    async with connected({"echo": Method(echo)}) as other:
        await other.write(line + b"\n")
        answer = await other.read()
        assert (answer["id"], answer["result"]["a"]) == (1, words)


@pytest.mark.parametrize(
    "line, request_id",
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"a":', 5),
        (b'{"jsonrpc":"2.0","id":"x-1","method":"ping","params":{"a":"b}}', "x-1"),
        (
            b'{"jsonrpc":"2.0","id":6,"method":"ping","params":' + b"[" * 9000 + b"]" * 9000 + b"}",
            6,
        ),
        (b'{"id":1,"method":"ping","params":{"id":2,', None),
    ],
)
async def test_a_request_that_cannot_be_read_is_answered_under_its_id_if_that_can(line, request_id):
    async with connected(METHODS) as other:
        await other.write(line + b"\n")
        answer = await other.read()
        assert (answer["id"], answer["error"]["code"]) == (request_id, -32700)


async def test_an_answer_that_cannot_be_read_fails_the_request_at_once():
    async with connected(METHODS) as other, anyio.create_task_group() as tasks:
        failed: list[RpcError] = []

        async def ask() -> None:
            with pytest.raises(RpcError) as error:
                await other.connection.request("x", {}, Empty)
            failed.append(error.value)

        tasks.start_soon(ask)
        number = (await other.read())["id"]
        await other.write(b'{"jsonrpc":"2.0","id":%d,"result":{"a":\n' % number)
        await happens(lambda: failed)
        assert "not JSON" in str(failed[0])


@pytest.mark.parametrize("line, code, request_id", MALFORMED)
async def test_what_is_malformed_is_answered_as_specified_and_survived(line, code, request_id):
    async with connected(METHODS) as other:
        await other.write(line + b"\n", PING)
        answer = await other.read()
        assert answer["error"]["code"] == code
        assert answer["id"] == request_id
        assert "result" not in answer
        assert await other.read() == {"jsonrpc": "2.0", "id": 7, "result": {"said": "pong"}}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"  \r",
        b'{"jsonrpc": "2.0", "method": "unheard_of"}',
        b'{"jsonrpc": "2.0", "method": "_unheard/of", "params": 5}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 99}}',
        b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": []}',
        b'{"jsonrpc": "2.0", "id": 99, "result": {}}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "what?"}}',
        b'{"jsonrpc": "2.0", "id": 1, "error": 5}',
    ],
)
async def test_what_wants_no_answer_gets_none(line):
    async with connected(METHODS) as other:
        await other.write(line + b"\n", PING)
        assert await other.read() == {"jsonrpc": "2.0", "id": 7, "result": {"said": "pong"}}


@pytest.mark.parametrize("request_id", [0, -1, "a", "", None, 2**60, 1.5, "ä\n"])
async def test_the_answer_has_the_very_id(request_id):
    async with connected(METHODS) as other:
        answer = await other.ask("ping", request_id=request_id)
        assert answer["id"] == request_id
        assert type(answer["id"]) is type(request_id)


@prove
async def test_an_id_that_is_in_use_is_refused_and_the_first_request_goes_on():
    async with connected(METHODS) as other:
        wait = {"jsonrpc": "2.0", "id": 1, "method": "wait"}
        await other.write(wait, wait, wait | {"id": "1"})
        answer = await other.read()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        await other.write(
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
        )
        answer = await other.read()
        assert (answer["id"], answer["error"]["code"]) == (1, -32800)


async def test_a_cancellation_that_follows_at_once_or_too_late_is_taken():
    async with connected(METHODS) as other:
        cancel = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
        await other.write(cancel, {"jsonrpc": "2.0", "id": 1, "method": "wait"}, cancel, cancel)
        assert (await other.read())["error"]["code"] == -32800
        await other.write(cancel)
        assert (await other.ask("ping"))["result"] == {"said": "pong"}


@prove
async def test_a_slow_request_holds_up_nobody():
    async with connected(METHODS) as other:
        await other.write({"jsonrpc": "2.0", "id": 1, "method": "wait"})
        assert (await other.ask("ping", request_id=2))["id"] == 2


async def test_a_defect_fails_its_request_alone():
    async def broken(_: msgspec.Raw) -> object:
        raise ValueError("secret")

    async with connected({**METHODS, "broken": Method(broken)}) as other:
        answer = await other.ask("broken")
        assert answer["error"]["code"] == -32603
        assert "secret" not in answer["error"]["message"]
        assert (await other.ask("ping"))["result"] == {"said": "pong"}


async def test_lines_may_come_in_any_pieces():
    data = msgspec.json.encode(PING) + b"\r\n"
    async with connected(METHODS) as other:
        for byte in data * 2:
            await other.write(bytes([byte]))
        assert [(await other.read())["id"] for _ in range(2)] == [7, 7]


async def test_half_a_line_at_the_end_is_none():
    async with connected(METHODS) as other:
        await other.write(PING, b'{"jsonrpc": "2.0", "id": 8, "meth')
        assert (await other.read())["id"] == 7
    assert other.connection.is_over


async def test_a_line_of_10_mb_is_taken():
    async with connected(METHODS) as other:
        answer = await other.ask("ping", {"text": "x" * 10_000_000})
        assert answer["result"] == {"said": "pong"}


async def test_a_line_that_is_too_long_is_passed_over():
    async with connected(METHODS) as other:
        await other.write(b"[" + b" " * (MAX_LINE_BYTES // 2))
        await other.write(b" " * (MAX_LINE_BYTES // 2), b"  ", b" 5]\n", PING)
        answer = await other.read()
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        assert (await other.read())["id"] == 7


async def test_a_message_with_too_many_values_never_becomes_objects():
    async with connected(METHODS) as other:
        answer = await other.ask("ping", [1] * (MAX_VALUES + 1))
        assert answer["error"]["code"] == -32600
        assert (await other.ask("ping"))["result"] == {"said": "pong"}


@prove
async def test_only_so_many_requests_are_answered_at_once():
    async with connected(METHODS) as other:
        await other.write(
            *({"jsonrpc": "2.0", "id": n, "method": "wait"} for n in range(MAX_RUNNING + 1))
        )
        answer = await other.read()
        assert (answer["id"], answer["error"]["code"]) == (MAX_RUNNING, -32603)


async def test_notifications_are_taken_in_order_and_before_what_follows():
    taken: list[bytes] = []
    async with connected(METHODS, {"tell": lambda params: taken.append(bytes(params))}) as other:

        async def ask() -> None:
            await other.connection.request("question", EMPTY, Empty)
            taken.append(b"answer")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            request = await other.read()
            told = [{"jsonrpc": "2.0", "method": "tell", "params": n} for n in range(50)]
            await other.write(*told, {"jsonrpc": "2.0", "id": request["id"], "result": None})
    assert taken == [*(str(n).encode() for n in range(50)), b"answer"]


async def test_arrival_is_told_before_what_follows_and_can_refuse():
    seen: list[str] = []

    def arrive(_: msgspec.Raw) -> None:
        seen.append("arrived")
        if len(seen) > 2:
            raise RpcError(-32602, "busy")

    methods = {"ask": Method(for_ever, arrive, lambda _: seen.append("cancelled"))}
    async with connected(methods, {"tell": lambda _: seen.append("told")}) as other:
        ask = {"jsonrpc": "2.0", "id": 1, "method": "ask"}
        await other.write(ask, {"jsonrpc": "2.0", "method": "tell"}, ask | {"id": 2})
        assert (await other.read())["error"] == {"code": -32602, "message": "busy"}
        await other.write(
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
        )
        await happens(lambda: seen[-1] == "cancelled")
    assert seen == ["arrived", "told", "arrived", "cancelled"]


async def test_a_question_ends_with_its_answer_an_error_or_the_connection():
    async with connected(METHODS) as other:
        async with anyio.create_task_group() as tasks:
            errors: list[RpcError] = []

            async def ask() -> None:
                try:
                    await other.connection.request("question", EMPTY, NewSessionRequest)
                except RpcError as error:
                    errors.append(error)

            for _ in range(3):
                tasks.start_soon(ask)
            ids = [(await other.read())["id"] for _ in range(3)]
            await other.write(
                {"jsonrpc": "2.0", "id": ids[1], "error": {"code": 5, "message": "no"}}
            )
            await happens(lambda: len(errors) == 1)
            await other.write({"jsonrpc": "2.0", "id": ids[0], "result": {"cwd": 1}})
            await happens(lambda: len(errors) == 2)
            other.to.end()
        assert [str(error) for error in errors[:1]] == ["no"]
        assert errors[0].code == 5
        assert "malformed" in str(errors[1])
        assert isinstance(errors[2], ClosedError)
        with pytest.raises(ClosedError):
            await other.connection.request("question", EMPTY, Empty)


async def test_who_stops_waiting_tells_the_other_side():
    async with connected(METHODS) as other:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(other.connection.request, "question", EMPTY, Empty)
            asked = await other.read()
            tasks.cancel_scope.cancel()
        cancelled = await other.read()
        assert cancelled == {
            "jsonrpc": "2.0",
            "method": "$/cancel_request",
            "params": {"requestId": asked["id"]},
        }
        await other.write({"jsonrpc": "2.0", "id": asked["id"], "result": {}})  # too late
        assert (await other.ask("ping"))["result"] == {"said": "pong"}


async def test_the_end_of_input_lets_answers_out_that_are_due_and_ends_the_rest():
    ended: list[str] = []

    async def slow(_: msgspec.Raw) -> object:
        await anyio.sleep(0.05)
        return EMPTY

    methods = {**METHODS, "slow": Method(slow)}
    async with connected(methods, on_end=lambda: ended.append("end")) as other:
        await other.write({"jsonrpc": "2.0", "id": 1, "method": "slow"})
        other.to.end()
        assert await other.read() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert ended == ["end"]


async def test_a_connection_that_nobody_reads_ends():
    async with connected(METHODS) as other:
        other.from_.is_read = False
        other.connection.notify("tell", EMPTY)
        await happens(lambda: other.connection.is_over)


async def test_text_that_no_file_can_hold_is_sent_as_it_can_be():
    async with connected(METHODS) as other:
        other.connection.notify("tell", {"text": "half \ud800", "list": ["\udc80"]})
        assert (await other.read())["params"] == {"text": "half \ufffd", "list": ["\ufffd"]}


# --- made up -----------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
ENVELOPES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | JSON,
        "id": JSON,
        "method": st.sampled_from(["ping", "typed", "$/cancel_request", "tell"]) | JSON,
        "params": st.fixed_dictionaries({}, optional={"cwd": JSON, "requestId": JSON}) | JSON,
        "result": JSON,
        "error": JSON,
    },
)


@given(st.binary(max_size=200) | JSON.map(lambda it: json.dumps(it).encode()))
@settings(max_examples=examples(500), deadline=None)
def test_any_bytes_are_a_message_or_malformed(data):
    with suppress(MalformedError):
        assert message_of(data)


@given(
    st.lists(ENVELOPES.map(lambda it: json.dumps(it).encode()) | st.binary(max_size=40), max_size=8)
)
@settings(max_examples=examples(300), deadline=None)
def test_after_any_lines_the_connection_lives(lines):
    async def run() -> None:
        async with connected({"ping": METHODS["ping"], "typed": METHODS["typed"]}) as other:
            for line in lines:
                await other.write(line.replace(b"\n", b" ") + b"\n")
            await other.write(PING | {"id": "the last one"})
            while (answer := await other.read()).get("id") != "the last one":
                if "result" not in answer:
                    assert answer["error"]["code"] in (-32700, -32600, -32601, -32602)
            assert answer["result"] == {"said": "pong"}

    anyio.run(run)


@prove
async def test_ten_thousand_messages_pass_with_little_work():
    async with connected(METHODS) as other:
        await other.write(b"".join(msgspec.json.encode(PING) + b"\n" for _ in range(10_000)))
        with little_work():
            for _ in range(10_000):
                await other.read()


# --- the log -----------------------------------------------------------------------------------------------------------


async def test_each_message_is_a_line_of_the_log_that_only_the_person_can_read(tmp_path: Path):
    log = WireLog(tmp_path / "logs")
    async with connected(METHODS, wire_log=log) as other:
        await other.ask("ping", {"secret": "sk-1"})
        await other.write(b"no json\n")
        await other.read()
    log.close()
    assert log.path.stat().st_mode & 0o777 == 0o600
    assert log.path.parent.stat().st_mode & 0o777 == 0o700
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    assert [line["direction"] for line in lines] == ["in", "out", "in", "out"]
    assert lines[0]["message"]["params"] == {"secret": "sk-1"}
    assert lines[2]["text"] == "no json"
    assert all(line["at"].startswith("20") for line in lines)
    assert log.path.name[:10] == lines[0]["at"][:10]


async def test_what_is_said_after_the_end_is_not_logged_as_sent(tmp_path: Path):
    log = WireLog(tmp_path / "logs")
    async with connected(METHODS, wire_log=log) as other:
        await other.ask("ping")
    other.connection.notify("late", EMPTY)
    log.close()
    assert "late" not in log.path.read_text()
