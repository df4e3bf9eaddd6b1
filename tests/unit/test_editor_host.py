"""What is asked of the host is answered once, and a defect, or a session without descriptors, ends or fails alone."""

import logging
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.conftest import happens, prove
from tests.unit.test_commands import Talk

from sanderling.conversation.conversation import Conversation
from sanderling.editor.host import MAX_LOG_BYTES, EditorHost, start_log
from sanderling.editor.live import ENDED

SCRIPT = "version = 1\n[[reply]]\nrepeat = true\n[[reply.step]]\ntext = 'Hello.'\n"


class Bridge:
    """What the host says to Neovim, in the order in which it says it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[int, dict[str, Any]] = {}
        self.serve: Any = None

    def notify(self, code: str, *args: Any) -> None:
        if "answered" in code:
            self.answers[args[0]] = args[1]
        for frame in args:
            if isinstance(frame, dict) and "events" in frame:
                self.events += [(frame["session_id"], event) for event in frame["events"]]

    def start(self, serve: Any, _on_end: Any) -> None:
        self.serve = serve

    def of(self, session_id: str, kind: str) -> list[dict[str, Any]]:
        return [
            event for owner, event in self.events if owner == session_id and event["type"] == kind
        ]


@asynccontextmanager
async def served(base: Path) -> AsyncIterator[tuple[EditorHost, Bridge]]:
    script = base / "script.toml"
    script.write_text(SCRIPT)
    (base / "project").mkdir()
    bridge = Bridge()
    host = EditorHost(bridge)  # type: ignore[arg-type]
    options = {"provider": "scripted", "script": str(script)}
    host.configure({"state_dir": str(base / "state"), "options": options})
    async with host._inbox, host._asked, anyio.create_task_group() as tasks:
        tasks.start_soon(bridge.serve)
        for session_id in ("s1", "s2"):
            host.act(session_id, {"type": "open_session", "project": str(base / "project")})
        yield host, bridge
        for session_id in ("s1", "s2"):
            host.act(session_id, {"type": "close_session"})
        await happens(lambda: not host._ending)
        tasks.cancel_scope.cancel()


def ask(host: EditorHost, session_id: str, text: str) -> None:
    host.act(session_id, {"type": "submit_prompt", "prompt": {"id": text, "text": text}})


async def turn(host: EditorHost, bridge: Bridge, session_id: str, text: str) -> None:
    ended = len(bridge.of(session_id, "turn_ended"))
    ask(host, session_id, text)
    await happens(lambda: len(bridge.of(session_id, "turn_ended")) > ended)


async def answer_to(host: EditorHost, bridge: Bridge, type_: str, **fields: Any) -> dict[str, Any]:
    request_id = len(bridge.answers) + 1
    host.request(request_id, {"type": type_, **fields})
    await happens(lambda: request_id in bridge.answers)
    return bridge.answers[request_id]


async def test_defect_ends_its_session_alone_and_the_next_prompt_opens_that_again(
    tmp_path, monkeypatch
):
    real = Conversation.run_turn

    async def run_turn(self: Conversation, prompt: Any) -> None:
        await real(self, prompt)
        if prompt.text == "boom":
            raise RuntimeError("a defect")

    monkeypatch.setattr(Conversation, "run_turn", run_turn)
    async with served(tmp_path) as (host, bridge):
        await turn(host, bridge, "s1", "hello")
        ask(host, "s1", "boom")
        await happens(lambda: bridge.of("s1", "error_occurred"))
        [error] = bridge.of("s1", "error_occurred")
        assert error["message"].startswith("An internal error stopped this session")
        await turn(host, bridge, "s2", "hello")
        assert not bridge.of("s2", "error_occurred")
        await turn(host, bridge, "s1", "again")
        assert bridge.of("s1", "session_opened")[-1]["is_resumed"]
        assert bridge.of("s1", "turn_ended")[-1]["stop_reason"] == "end_turn"


@prove
@pytest.mark.parametrize("spare", [1, 2, 3, *range(5, 12), 20, 4])
async def test_session_without_descriptors_says_so_and_goes_on_when_there_are_some(tmp_path, spare):
    talk = Talk(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with talk.served():
        await talk.run(
            "c0", "true"
        ) if spare % 2 else await talk.conversation.services.sandbox.manager.find_level()
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())  # noqa: ASYNC240
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + spare, hard))
        try:
            end = await talk.run("c1", "true")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert end.is_success or "Too many open files" in end.outcome or "has ended" in end.outcome
        assert (await talk.run("c2", "true")).is_success


async def test_a_defect_in_a_request_fails_that_request_alone(tmp_path, monkeypatch):
    async def answer(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr("sanderling.editor.host.answer", answer)
    async with served(tmp_path) as (host, bridge):
        assert "RuntimeError" in (await answer_to(host, bridge, "list_agents"))["error"]
        await turn(host, bridge, "s1", "still here")


async def test_an_export_to_a_path_with_a_nul_byte_is_refused_in_words(tmp_path):
    async with served(tmp_path) as (host, bridge):
        await turn(host, bridge, "s1", "hello")
        export = {"session_id": "s1", "path": "nul\0byte"}
        told = await answer_to(host, bridge, "export_session", **export)
    assert "null byte" in told["error"]


async def test_a_defect_in_a_rewrite_fails_it_alone(tmp_path, monkeypatch):
    async def rewrite(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr("sanderling.editor.rewriting.rewriter.Rewriter.rewrite", rewrite)
    async with served(tmp_path) as (host, bridge):
        rewrite = {"project": str(tmp_path / "project"), "path": "", "shown_as": "a buffer"}
        rewrite |= {"filetype": "python", "first_line": 1, "text": "x = 1", "instruction": "say 2"}
        told = await answer_to(host, bridge, "rewrite", **rewrite)
        assert "RuntimeError" in told["error"]
        usage = await answer_to(host, bridge, "show_usage", session_id="s1")
    assert usage["title"] == "Usage"


# --- requests ----------------------------------------------------------------------------------------------------------

SESSION_REQUESTS = ("list_models", "show_usage", "show_settings", "show_trust")


async def test_each_request_of_an_open_session_has_its_answer(tmp_path):
    async with served(tmp_path) as (host, bridge):
        for request_id, type_ in enumerate(SESSION_REQUESTS):
            host.request(request_id, {"type": type_, "session_id": "s1"})
        await happens(lambda: len(bridge.answers) == len(SESSION_REQUESTS))
    answers = {type_: bridge.answers[n] for n, type_ in enumerate(SESSION_REQUESTS)}
    assert answers["list_models"] == {"models": ("scripted",)}
    assert answers["show_usage"]["title"] == "Usage"
    assert answers["show_settings"]["title"] == "Settings"
    assert answers["show_trust"] == {"project": str(tmp_path / "project")}


async def test_a_tool_use_that_is_not_known_is_an_error(tmp_path):
    async with served(tmp_path) as (host, bridge):
        told = await answer_to(host, bridge, "inspect_tool_use", session_id="s1", id="t1")
    assert told["error"].startswith("Cannot show the tool call")


async def test_what_is_asked_of_a_session_that_is_not_open_is_an_error(tmp_path):
    async with served(tmp_path) as (host, bridge):
        told = await answer_to(host, bridge, "show_usage", session_id="s3")
    assert told == {"error": "The session is not open."}


@pytest.mark.parametrize("type_", SESSION_REQUESTS)
async def test_a_session_that_cannot_be_opened_answers_with_the_reason(tmp_path, type_):
    (tmp_path / "state" / "sessions").mkdir(parents=True)
    (tmp_path / "state" / "sessions" / "s1.jsonl").write_text("{}\n")
    async with served(tmp_path) as (host, bridge):
        told = await answer_to(host, bridge, type_, session_id="s1")
        assert bridge.of("s1", "error_occurred")[0]["message"] == told["error"]


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


# --- the log ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def package_log():
    log = logging.getLogger("sanderling")
    before = list(log.handlers)
    yield log
    for handler in set(log.handlers) - set(before):
        log.removeHandler(handler)
        handler.close()


def test_log_never_takes_more_than_two_files_of_its_size(tmp_path, package_log):
    path = tmp_path / "new" / "sanderling.log"
    start_log(str(path))
    for number in range(2500):
        package_log.info("%05d %s", number, "x" * 1000)
    files = sorted(path.parent.iterdir())
    assert [file.name for file in files] == ["sanderling.log", "sanderling.log.1"]
    assert all(file.stat().st_size <= MAX_LOG_BYTES for file in files)
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files)
    assert "02499" in path.read_text()
