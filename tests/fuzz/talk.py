"""
A conversation with an API in this very process, which can be cut, stalled or stopped wherever it is; and what must hold afterwards.

Everything is real (conversation, tools, log, provider) but the socket: `InProcessApi` hands the bytes of an answer to the HTTP
client, and judges each request.
"""

import asyncio
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import msgspec
from anyio.lowlevel import checkpoint

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import (
    AnswerRestarted,
    ApprovalRequested,
    Event,
    PromptsReturned,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.providers import ModelLimits, Provider
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.choice import make_provider
from sanderling.providers.http.setup import make_client
from sanderling.providers.retries import Backoff
from sanderling.sandbox.confinement import policy_for
from sanderling.sandbox.sandbox import Sandbox
from sanderling.session.codec import Codec
from sanderling.session.history import for_another_model
from sanderling.session.records import LoggedMessage
from sanderling.session.session import Session
from tests.api_rules.anthropic import refusals
from tests.conftest import DEADLINE_S
from tests.fuzz.wires import ANTHROPIC, NOWHERE, SIGNATURE, Wire
from tests.sent import Changes

IDLE_TIMEOUT_S = 0.03
SIGNATURES = {"claude-opus-5-5": b"b3B1cyE1"}
FAST_DISK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

How = Literal["cut", "reset", "stall", "cancel"]
HOWS: tuple[How, ...] = ("cut", "reset", "cancel", "stall")


# --- the API -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """
    `data`, `chunk_bytes` at a time.

    If only `at` bytes of it arrive, then `then` is called, and comes what `how` says.
    """

    data: bytes
    at: int = -1
    how: How = "cut"
    then: Callable[[], None] = lambda: None
    chunk_bytes: int = 1 << 20


class InProcessApi(httpx2.AsyncBaseTransport):
    """Gives `answers` one after the other, then the last again and again."""

    def __init__(self, wire: Wire = ANTHROPIC) -> None:
        self.wire = wire
        self.answers: list[Answer] = []
        self.refused: list[str] = []
        self.changes = Changes()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/api/show":
            return httpx2.Response(200, json={"capabilities": ["tools", "thinking"]})
        if request.method == "GET":
            return httpx2.Response(
                404, json={"type": "error", "error": {"type": "not_found_error"}}
            )
        body = await request.aread()
        broken = self.wire.refusals(body)
        if self.wire is ANTHROPIC:
            broken += _of_signatures(json.loads(body))
        if broken:
            self.refused += broken
            error = {"type": "invalid_request_error", "message": "; ".join(broken)}
            return httpx2.Response(400, json={"type": "error", "error": error})
        self.changes.note(body)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return httpx2.Response(
            200,
            headers={"content-type": self.wire.content_type},
            stream=AnswerStream(answer, signed_by(json.loads(body)["model"], answer.data)),
        )


def signed_by(model: str, data: bytes) -> bytes:
    """`data`, its thoughts signed by this model: their signatures are all of one length."""
    own = SIGNATURES.get(model, SIGNATURE)
    for part in (slice(0, 8), slice(0, 4), slice(4, 8)):
        data = data.replace(b'"%b"' % SIGNATURE[part], b'"%b"' % own[part])
    return data


def _of_signatures(request: dict[str, Any]) -> list[str]:
    own = SIGNATURES.get(request["model"], SIGNATURE).decode()
    return [
        f"messages.{n}: Invalid `signature` in `thinking` block"
        for n, message in enumerate(request["messages"])
        for block in message["content"]
        if block["type"] == "thinking" and block["signature"] != own
    ]


class AnswerStream(httpx2.AsyncByteStream):
    def __init__(self, answer: Answer, data: bytes) -> None:
        self.answer = answer
        self.data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        answer = self.answer
        end = len(self.data) if answer.at < 0 else answer.at
        for start in range(0, end, answer.chunk_bytes):
            yield self.data[start : min(end, start + answer.chunk_bytes)]
            await checkpoint()
        if answer.at < 0:
            return
        answer.then()
        if answer.how == "reset":
            raise httpx2.RemoteProtocolError("reset by the test")
        if answer.how in ("stall", "cancel"):
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        pass


class InProcessProvider(AnthropicProvider):
    """The real one, whose connections end in this process."""

    def __init__(self, settings: Settings, client: Any) -> None:
        super().__init__(settings)
        self.limits = ModelLimits(200_000, 64_000)
        self._in_process = client

    def _make_client(self) -> Any:
        return self._in_process

    async def aclose(self) -> None:
        """The client serves all conversations."""


MakeProvider = Callable[[Settings], Provider]


@asynccontextmanager
async def in_process_api(
    wire: Wire = ANTHROPIC,
) -> AsyncGenerator[tuple[InProcessApi, MakeProvider]]:
    """The API, and what makes a provider that asks it."""
    await Sandbox.probe()  # once, and not beside each conversation
    api = InProcessApi(wire)
    if wire is not ANTHROPIC:
        yield api, lambda settings: in_process(settings, api)
        return
    async with make_client("http://api.test", {"authorization": "Bearer sk-ant-test"}) as client:
        client._transport = api
        yield api, lambda settings: InProcessProvider(settings, client)


def in_process(settings: Settings, api: InProcessApi) -> Provider:
    """The real one, whose connections end in this process."""
    choice = make_provider(settings)
    provider: Any = choice._provider
    connect = provider._make_client

    def connected() -> httpx2.AsyncClient:
        client = connect()
        client._transport = api
        return client

    provider._make_client = connected
    provider.last_words_s = IDLE_TIMEOUT_S
    return choice


# --- the conversation --------------------------------------------------------------------------------------------------


@contextmanager
def directory(parent: str | None = FAST_DISK) -> Iterator[Path]:
    """Where fsync costs nothing, unless a `parent` says otherwise: what is judged here is what was written, not the disk."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@dataclass
class Talk:
    """A session in the making, with all it has emitted and all that the person has said to it."""

    conversation: Conversation = field(init=False)
    events: list[Event] = field(default_factory=list)
    said: list[Prompt] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def session(self) -> Session:
        return self.conversation.services.session

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self.changed.set()
        if isinstance(event, ApprovalRequested):
            answer = "deny" if event.tool == "tokens" else "once"
            loop = asyncio.get_running_loop()
            loop.call_soon(
                self.conversation.services.approvals.answer, AnswerApproval(event.id, answer)
            )

    def submit(self, text: str) -> None:
        self.said.append(Prompt(f"p{len(self.said)}", text))
        self.conversation.submit(self.said[-1])

    def steer(self, text: str) -> None:
        self.said.append(Prompt(f"p{len(self.said)}", text))
        self.conversation.steer(self.said[-1])

    def edit(self, prompt_id: str, text: str) -> None:
        self.said = [
            Prompt(prompt.id, text) if prompt.id == prompt_id else prompt for prompt in self.said
        ]
        self.conversation.services.waiting.edit(prompt_id, text)

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    def is_quiet(self) -> bool:
        """No turn is going on, and nothing waits that goes by itself."""
        waiting = self.conversation.services.waiting
        # Not their counts: to cancel between two turns ends one that has not started.
        turns = [event for event in self.events if isinstance(event, TurnStarted | TurnEnded)]
        has_ended = not turns or isinstance(turns[-1], TurnEnded)
        return has_ended and bool(self.events) and (not waiting or waiting.is_held)

    async def be_quiet(self) -> None:
        with anyio.fail_after(DEADLINE_S):
            while not self.is_quiet():
                self.changed = anyio.Event()
                await self.changed.wait()

    async def ask(self, text: str) -> None:
        ended = self.count(TurnEnded)
        self.submit(text)
        with anyio.fail_after(DEADLINE_S):
            while self.count(TurnEnded) == ended or not self.is_quiet():
                self.changed = anyio.Event()
                await self.changed.wait()


def settings_in(folder: Path, wire: Wire = ANTHROPIC, url: str = NOWHERE) -> Settings:
    settings = Settings(state_dir=str(folder / "state"), idle_timeout_s=IDLE_TIMEOUT_S)
    if wire is ANTHROPIC:
        return msgspec.structs.replace(settings, provider="anthropic", base_url=url)
    return msgspec.structs.replace(settings, model=wire.models[0], providers=wire.providers(url))


@asynccontextmanager
async def talking(
    folder: Path,
    make: MakeProvider = make_provider,
    *,
    wire: Wire = ANTHROPIC,
    base_url: str = NOWHERE,
    is_confined: bool = False,
) -> AsyncGenerator[Talk]:
    """
    The session in `folder`, new or resumed. Its model is behind what `make` makes, else at `base_url`.

    Without a sandbox, whose processes would take most of the time, unless it is wanted.
    """
    project = folder / "project"
    if not project.exists():
        project.mkdir(parents=True)
        (project / "notes.txt").write_text("A note.\n")
    settings = settings_in(folder, wire, base_url)
    provider = make(settings)
    session = Session.open(settings.session_dir, "s1", str(project))
    policy = policy_for(settings, str(project))
    talk = Talk()
    talk.conversation = conversation = Conversation(
        SessionServices(session, provider, talk.emit, policy, settings)
    )
    conversation.services.calls.backoff = Backoff(attempts=4, first_s=0)
    conversation.services.sandbox.switch(is_on=is_confined)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(conversation.serve)
        yield talk
        conversation.close()
    await provider.aclose()
    session.close()


# --- what must hold ----------------------------------------------------------------------------------------------------


def texts_of(history: Sequence[Message], role: str) -> list[str]:
    return [
        block.text
        for message in history
        if message.role == role
        for block in message.content
        if isinstance(block, TextBlock)
    ]


def check_history(history: Sequence[Message]) -> None:
    """What was said by Claude goes back as it is; what another model has sealed goes to nobody else."""
    is_plain = not any(
        getattr(block, "extra", None) for message in history for block in message.content
    )
    for each in ([history] if is_plain else []) + [for_another_model(history)]:
        assert refusals(msgspec.to_builtins(each)) == []


def check_talk(talk: Talk) -> None:
    check_history(talk.session.history)
    check_nothing_was_lost(talk)
    check_tools(talk)
    check_screen(talk)


def records(log: Path, kind: str) -> list[dict[str, Any]]:
    found = map(json.loads, log.read_bytes().splitlines())
    return [record for record in found if record["type"] == kind]


def logged_texts(log: Path, role: str) -> list[str]:
    """All that was said, whatever a summary stands for by now."""
    read = map(Codec().decoded, log.read_bytes().splitlines())
    return texts_of((each.message for each in read if isinstance(each, LoggedMessage)), role)


def check_nothing_was_lost(talk: Talk) -> None:
    """Each prompt was said once, and the model is shown it; or it was given back, or still waits."""
    waiting = talk.conversation.services.waiting.shown()
    elsewhere = [
        *(p.text for e in talk.events if isinstance(e, PromptsReturned) for p in e.prompts),
        *(prompt.text for prompt in (*waiting.steering, *waiting.queued)),
    ]
    said = logged_texts(talk.session.path, "user")
    shown = "\n".join(texts_of(talk.session.history, "user"))
    assert [p.text for p in talk.said if p.text in said and p.text not in shown] == []
    found = Counter([*said, *elsewhere])
    assert {prompt.text: found[prompt.text] for prompt in talk.said} == {
        prompt.text: 1 for prompt in talk.said
    }


def check_tools(talk: Talk) -> None:
    """Each tool use starts at most once, on the screen and in the log, and what starts ends."""
    started = [event.id for event in talk.events if isinstance(event, ToolStarted)]
    ended = [event.id for event in talk.events if isinstance(event, ToolEnded)]
    assert sorted(started) == sorted(ended) == sorted(set(started))
    ran = [each["tool_use_id"] for each in records(talk.session.path, "tool_started")]
    assert sorted(ran) == sorted(set(ran))
    assert talk.count(TurnStarted) <= talk.count(TurnEnded)


def check_screen(talk: Talk) -> None:
    """What the model has said stands on the screen once, as it is in the log."""
    blocks: dict[tuple[int, int], str] = {}
    turn = 0
    for event in talk.events:
        match event:
            case TurnStarted():
                turn += 1
            case TextDelta(block_id, text):
                blocks[turn, block_id] = blocks.get((turn, block_id), "") + text
            case AnswerRestarted(block_id):
                blocks = {key: text for key, text in blocks.items() if key < (turn, block_id)}
            case _:
                pass
    shown = [text for text in blocks.values() if text.strip()]
    assert shown == logged_texts(talk.session.path, "assistant")


def check_resumed(folder: Path, history: Sequence[Message]) -> None:
    """The log holds the conversation as it was in memory."""
    session = Session.open(settings_in(folder).session_dir, "s1", "/elsewhere")
    try:
        assert session.history == list(history)
    finally:
        session.close()


def check_log_of_killed_host(log: bytes, prompts: Sequence[Prompt]) -> None:
    """A log as a host leaves it that is killed: what follows from it is valid, and all that was said is there."""
    with directory() as folder:
        (folder / "s1.jsonl").write_bytes(log)
        session = Session.open(folder, "s1", "/project")
        check_history(session.history)
        said = texts_of(session.history, "user")
        waiting = msgspec.json.encode(session.state("waiting") or {}).decode()
        for prompt in prompts:
            assert prompt.text in said or prompt.text in waiting
        session.close()


def last_words(wire: Wire = ANTHROPIC) -> Answer:
    return Answer(wire.last_words)
