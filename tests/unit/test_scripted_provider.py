"""The scripted provider: the demo model, and the model of these tests."""

import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.talk import scripted

from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.messages import (
    Message,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.providers import (
    BlockDone,
    ModelRequest,
    ReplyDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    UsageReport,
)
from sanderling.providers.scripted import (
    Script,
    ScriptedProvider,
    copy_sample,
    load_demo,
    load_script,
)


def answer(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"step": list(steps)} | more


async def ask(provider: ScriptedProvider, words: str = "Good morning.") -> list[StreamItem]:
    request = ModelRequest("Be brief.", [Message("user", (TextBlock(words),))])
    return [item async for item in provider.stream(request)]


async def said(provider: ScriptedProvider, words: str = "Good morning.") -> str:
    return "".join(item.text for item in await ask(provider, words) if isinstance(item, TextPiece))


async def test_steps_stream_in_pieces_and_end_in_whole_blocks():
    use = {"name": "bash", "input": {"command": "ls"}, "id": "t1"}
    provider = scripted(
        answer(
            {"thinking": "abcde", "chunk_chars": 2},
            {"text": "Hi."},
            {"tool_use": use},
            stop_reason="max_tokens",
            usage={"input_tokens": 3, "output_tokens": 4},
        )
    )
    items = await ask(provider)
    assert items[:4] == [
        ThinkingPiece("ab"),
        ThinkingPiece("cd"),
        ThinkingPiece("e"),
        BlockDone(ThinkingBlock("abcde", "scripted")),
    ]
    assert items[4:] == [
        TextPiece("Hi."),
        BlockDone(TextBlock("Hi.")),
        BlockDone(ToolUse("t1", "bash", {"command": "ls"})),
        UsageReport(Usage(3, 4)),
        ReplyDone("max_tokens"),
    ]


async def test_replies_come_in_order_and_one_with_when_answers_exactly_its_prompt():
    provider = scripted(
        answer({"text": "first"}),
        answer({"text": "second"}),
        answer({"text": "tea"}, when="coffee?"),
    )
    assert await said(provider) == "first"
    assert await said(provider, " coffee?\n") == "tea"
    assert await said(provider, "coffee") == "second"
    assert await said(provider, "coffee?") == "tea"


async def test_reply_that_repeats_answers_everything_after_it():
    provider = scripted(answer({"text": "once"}), answer({"text": "ever"}, repeat=True))
    assert [await said(provider) for _ in range(4)] == ["once", "ever", "ever", "ever"]


async def test_reply_to_a_tool_use_answers_it_each_time():
    provider = scripted(answer({"text": "done"}, after="d"))
    for tool_use_id in ("d", "d_2", "d_17"):  # as an id is called that was there before
        history = [Message("user", (ToolResult(tool_use_id, "", is_error=False),))]
        request = ModelRequest("", history)
        pieces = [item async for item in provider.stream(request) if isinstance(item, TextPiece)]
        assert pieces == [TextPiece("done")]


async def test_demo_model_without_a_project_for_its_tour_says_so():
    provider = ScriptedProvider(load_demo(""))
    assert "this session has none" in await said(provider, "tour")
    assert "this session has none" not in await said(provider, "hello")


async def test_script_without_more_replies_says_so():
    provider = scripted(answer({"text": "only"}))
    await ask(provider)
    with pytest.raises(ProviderError, match="no more replies") as caught:
        await ask(provider)
    assert "repeat = true" in caught.value.remedy


async def test_ping_is_answered_with_one_piece_unless_the_script_answers_it():
    assert [item for item in await ask(scripted(), "ping") if isinstance(item, TextPiece)] == [
        TextPiece("pong")
    ]
    assert await said(scripted(answer({"text": "mine"}, when="ping")), "ping") == "mine"


async def test_cut_ends_the_stream_without_its_last_item():
    items = await ask(scripted(answer({"text": "Good mor"}, {"cut": True}, {"text": "never"})))
    assert items == [TextPiece("Good mor"), BlockDone(TextBlock("Good mor"))]


async def test_error_is_raised_as_the_api_would_report_it():
    error = {"kind": "overloaded", "message": "Too much.", "remedy": "Wait."}
    with pytest.raises(ProviderError, match="Too much") as caught:
        await ask(scripted(answer({"text": "Hi."}, {"error": error})))
    assert (caught.value.kind, caught.value.remedy) == ("overloaded", "Wait.")


async def test_usage_is_estimated_when_the_script_has_none():
    items = await ask(scripted(answer({"text": "x" * 40})))
    [report] = [item.usage for item in items if isinstance(item, UsageReport)]
    assert report == Usage(input_tokens=len("Be brief.Good morning.") // 4, output_tokens=10)


def hurried_demo() -> ScriptedProvider:
    """The demo without its pauses."""
    script = msgspec.to_builtins(load_demo("sample"))
    for reply in script["reply"]:
        for step in reply["step"]:
            step["delay_ms"] = step["chunk_delay_ms"] = 0
    return ScriptedProvider(msgspec.convert(script, Script), "demo")


@pytest.mark.parametrize("words", ["hello", "markdown", "anything else", "ping"])
async def test_demo_answers_and_says_that_it_is_one(words):
    demo = hurried_demo()
    assert demo.model == "demo"
    assert await said(demo, words)
    assert await said(demo, "something new")
    assert "demo model" in await said(demo, "who are you?")


async def test_demo_can_fail():
    with pytest.raises(ProviderError, match="overloaded"):
        await ask(hurried_demo(), "fail")


TOML = 'version = 1\n[[reply]]\n[[reply.step]]\ntext = "Hi."\n'


@pytest.mark.parametrize("name, content", [("s.toml", TOML), ("s.json", None)])
async def test_script_is_toml_or_json(tmp_path: Path, name, content):
    path = tmp_path / name
    path.write_text(content or json.dumps({"version": 1, "reply": [{"step": [{"text": "Hi."}]}]}))
    assert await said(ScriptedProvider(load_script(path))) == "Hi."


@pytest.mark.parametrize(
    "content, words",
    [
        (b"version = ", []),
        (b"version = 2\nreply = []", ["version 2", "only 1 is known"]),
        (b"reply = []", ["version"]),
        (b"version = 1", ["reply"]),
        (TOML.replace("text", "txet").encode(), ["txet", "$.reply[0].step[0]"]),
        (TOML.encode() + b'thinking = "Hm."\n', ["one thing", "text and thinking"]),
        (TOML.encode() + b"delay_ms = -1\n", ["$.reply[0].step[0].delay_ms", ">= 0"]),
        (TOML.encode() + b'chunk_chars = "2"\n', ["chunk_chars", "int"]),
        (b"\xff\xfe\x00", []),
    ],
)
def test_file_that_is_no_script_is_refused_with_the_place(tmp_path: Path, content, words):
    path = tmp_path / "script.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_script(path)
    assert [word for word in [str(path), *words] if word not in str(caught.value)] == []


def test_missing_script_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load_script(tmp_path / "nowhere.toml")


def test_a_copy_of_the_tours_project_is_deleted_by_the_next_one_if_its_process_has_ended(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = "import sys, time; from contextlib import AsyncExitStack; from sanderling.providers.scripted import copy_sample;"
    code += " print(copy_sample(AsyncExitStack()), flush=True); sys.stdin.read()"
    owner = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with (
        subprocess.Popen(owner, env=env, **pipes) as killed,
        subprocess.Popen(owner, env=env, **pipes) as lives,
    ):
        abandoned, living = (
            Path(each.stdout.readline().strip()).parent for each in (killed, lives)
        )
        killed.kill()
        killed.wait()
        for copy in (abandoned, living):
            os.utime(copy, (0, 0))
        resources = AsyncExitStack()
        young = Path(copy_sample(resources)).parent
        assert {*tmp_path.iterdir()} == {living, young}
        anyio.run(resources.aclose)
        assert {*tmp_path.iterdir()} == {living}
        lives.kill()
