"""What is asked of an open session is answered by it, once, whatever becomes of the session."""

import anyio
import pytest
from tests.conftest import happens
from tests.unit.test_host_defects import served

from sanderling.conversation.conversation import Conversation
from sanderling.editor.live import ENDED

SESSION_REQUESTS = ("list_models", "show_usage", "show_settings", "show_trust")


async def test_each_request_of_an_open_session_has_its_answer(tmp_path):
    async with served(tmp_path) as (host, bridge):
        for request_id, type_ in enumerate(SESSION_REQUESTS):
            host.request(request_id, {"type": type_, "session_id": "s1"})
        await happens(lambda: len(bridge.answers) == len(SESSION_REQUESTS))
    answers = dict(zip(SESSION_REQUESTS, map(bridge.answers.get, range(4)), strict=True))
    assert answers["list_models"] == {"models": ("scripted",)}
    assert answers["show_usage"]["title"] == "Usage"
    assert answers["show_settings"]["title"] == "Settings"
    assert answers["show_trust"] == {"project": str(tmp_path / "project")}


async def test_a_tool_use_that_is_not_known_is_an_error(tmp_path):
    async with served(tmp_path) as (host, bridge):
        host.request(1, {"type": "inspect_tool_use", "session_id": "s1", "id": "t1"})
        await happens(lambda: bridge.answers)
    assert bridge.answers[1]["error"].startswith("Cannot show the tool call")


async def test_what_is_asked_of_a_session_that_is_not_open_is_an_error(tmp_path):
    async with served(tmp_path) as (host, bridge):
        host.request(1, {"type": "show_usage", "session_id": "s3"})
        await happens(lambda: bridge.answers)
    assert bridge.answers[1] == {"error": "The session is not open."}


@pytest.mark.parametrize("type_", SESSION_REQUESTS)
async def test_a_session_that_cannot_be_opened_answers_with_the_reason(tmp_path, type_):
    (tmp_path / "state" / "sessions").mkdir(parents=True)
    (tmp_path / "state" / "sessions" / "s1.jsonl").write_text("{}\n")
    async with served(tmp_path) as (host, bridge):
        host.request(1, {"type": type_, "session_id": "s1"})
        await happens(lambda: bridge.answers)
        assert bridge.of("s1", "error_occurred")[0]["message"] == bridge.answers[1]["error"]


async def test_a_session_that_is_closed_before_it_answers_says_so(tmp_path, monkeypatch):
    is_asked = anyio.Event()

    async def answer(*_):
        is_asked.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(Conversation, "answer", answer)
    async with served(tmp_path) as (host, bridge):
        host.request(1, {"type": "show_trust", "session_id": "s1"})
        await is_asked.wait()
        host.act("s1", {"type": "close_session"})
        await happens(lambda: bridge.answers)
        host.act("s1", {"type": "open_session", "project": str(tmp_path / "project")})
    assert bridge.answers[1] == {"error": ENDED}
