"""A running child session that the user opens: what is shown, what the user can do, and what remains when the child has ended."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from tests.conftest import DEADLINE_S
from tests.talk import Emitted

from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.conversation.children.running import MAX_PIECES_CHARS, RunningChild
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.protocol.actions import (
    AnswerApproval,
    CancelTurn,
    CloseSession,
    ShowEarlier,
    SubmitPrompt,
)
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import (
    ApprovalRequested,
    ErrorOccurred,
    HistoryShown,
    PromptSteered,
    SessionOpened,
    TextDelta,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageUpdated,
)
from sanderling.protocol.messages import Prompt

TASK = Prompt("task", "Find the configuration.")
LATER = Prompt("later", "And the tests?")
WAIT = {"delay_ms": 3_600_000}
LOOK = {"tool_use": {"name": "ls", "input": {"path": "."}}}
WRITE = {"tool_use": {"name": "write", "input": {"path": "new.txt", "content": "new"}}}

MINE = {"when": LATER.text, "step": [{"text": "Mine."}]}


class Family:
    """A child that runs as its parent would run it, and frontends that open it."""

    def __init__(self, base: Path, *replies: list[dict[str, Any]]) -> None:
        self.project = base / "project"
        self.project.mkdir()
        path = base / "script.json"
        path.write_text(
            json.dumps({"version": 1, "reply": [*({"step": each} for each in replies), MINE]})
        )
        options = {"provider": "scripted", "script": str(path)}
        self.layers = Layers(state_dir=str(base / "state"), setup=Layer("setup()", options))
        self.parent = Emitted()
        self.child = RunningChild(self.parent.emit)

    @asynccontextmanager
    async def begun(self, prompt: Prompt = TASK) -> AsyncIterator[None]:
        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._run, prompt)
                yield
                tasks.cancel_scope.cancel()

    async def _run(self, prompt: Prompt, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        conversation = await self.open(self.child.emit)
        assert isinstance(conversation, Conversation)
        with self.child.running(conversation):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(conversation.serve)
                conversation.submit(prompt)
                task_status.started()
                await self.parent.until(TurnEnded)
                conversation.close()

    async def open(self, emit, **options) -> Agent:
        chosen = SessionOptions(is_shown=True, has_history=True, **options)
        opened = await open_conversation("c1", str(self.project), self.layers, emit, chosen)
        return opened.agent

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Agent, Emitted]]:
        frontend = Emitted()
        agent = await self.open(frontend.emit)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.serve)
            yield agent, frontend
            agent.act(CloseSession())


def said(frontend: Emitted) -> str:
    return "".join(event.text for event in frontend.of(TextDelta))


async def test_a_newcomer_sees_the_running_turn_from_its_beginning_and_then_what_happens(tmp_path):
    family = Family(
        tmp_path,
        [LOOK],
        [{"text": "Looking", "chunk_chars": 1}, {"delay_ms": 300}, {"text": " on."}],
    )
    async with family.begun():
        await family.parent.until(TextDelta, 7)
        async with family.opened() as (_, frontend):
            assert isinstance(frontend.events[0], SessionOpened)
            assert [each.prompt.text for each in frontend.of(TurnStarted)] == [TASK.text]
            assert [type(each) for each in frontend.of(ToolStarted, ToolEnded)] == [
                ToolStarted,
                ToolEnded,
            ]
            assert "Looking" in [each.text for each in frontend.of(TextDelta)]  # in one piece
            assert len(frontend.of(UsageUpdated)) == 1  # the newest
            await frontend.until(TurnEnded)
            assert said(frontend) == "Looking on."
        assert said(family.parent) == "Looking on."


def test_of_endless_output_a_newcomer_gets_the_end():
    child, newcomer = RunningChild(lambda _: None), Emitted()
    child.emit(ToolStarted("t1", "bash", "yes"))
    line = "y" * 999 + "\n"
    for _ in range(10_000):
        child.emit(ToolOutput("t1", line))
    child.emit(ToolOutput("t1", "the end"))
    child.attach(newcomer.emit)
    (output,) = newcomer.of(ToolOutput)
    assert output.text.endswith(line + "the end")
    assert MAX_PIECES_CHARS - 2 * len(line) < len(output.text) <= MAX_PIECES_CHARS


async def test_opening_and_scrolling_in_one_frontend_changes_no_other(tmp_path):
    family = Family(tmp_path, [{"text": "Hm."}, WAIT])
    async with family.begun():
        await family.parent.until(TextDelta)
        async with family.opened() as (_, first):
            before = len(family.parent.events), len(first.events)
            async with family.opened() as (agent, second):
                agent.act(ShowEarlier(-1))
                await second.until(HistoryShown)
            assert (len(family.parent.events), len(first.events)) == before


async def test_closing_only_detaches(tmp_path):
    family = Family(tmp_path, [{"text": "Hm."}, {"delay_ms": 200}, {"text": " Done."}])
    async with family.begun():
        await family.parent.until(TextDelta)
        async with family.opened() as (_, frontend):
            pass
        assert (await family.parent.until(TurnEnded)).stop_reason == "end_turn"
        assert said(frontend) == "Hm."


async def test_a_prompt_steers_the_running_child(tmp_path):
    family = Family(tmp_path, [{"delay_ms": 200}, LOOK], [{"text": "Seen."}])
    async with family.begun():
        await family.parent.until(TurnStarted)
        async with family.opened() as (agent, frontend):
            agent.act(SubmitPrompt(LATER))
            assert (await frontend.until(PromptSteered)).prompt == LATER
            await frontend.until(TurnEnded)
        assert len(family.parent.of(TurnStarted)) == 1


async def test_stopping_stops_the_childs_turn(tmp_path):
    family = Family(tmp_path, [{"text": "Hm."}, WAIT])
    async with family.begun():
        await family.parent.until(TextDelta)
        async with family.opened() as (agent, _):
            agent.act(CancelTurn())
            assert (await family.parent.until(TurnEnded)).stop_reason == "cancelled"


async def test_a_question_can_be_answered_where_the_child_is_open(tmp_path):
    family = Family(tmp_path, [WRITE], [{"text": "Written."}])
    async with family.begun():
        asked = await family.parent.until(ApprovalRequested)
        async with family.opened() as (agent, frontend):
            assert frontend.of(ApprovalRequested) == [asked]
            agent.act(AnswerApproval(asked.id, "once"))
            await frontend.until(TurnEnded)
            assert (family.project / "new.txt").read_text() == "new"
        async with family.opened() as (_, late):
            assert late.of(ApprovalRequested) == []  # it was answered


async def test_when_the_child_has_ended_its_next_turn_is_the_users(tmp_path):
    family = Family(tmp_path, [{"text": "Hm."}, {"delay_ms": 100}, {"text": " Done."}])
    async with family.begun():
        await family.parent.until(TextDelta)
        async with family.opened() as (agent, frontend):
            await family.child.ended.wait()
            agent.act(SubmitPrompt(LATER))
            await frontend.until(TurnEnded, 2)
            assert said(frontend) == "Hm. Done.Mine."
            assert family.parent.of(TurnEnded)[1:] == []
            assert frontend.of(HistoryShown, ErrorOccurred) == []


async def test_a_prompt_that_comes_too_late_for_the_child_begins_the_users_turn(tmp_path):
    family = Family(tmp_path, [{"text": "Done."}])
    async with family.begun():
        await family.parent.until(TurnStarted)
        async with family.opened() as (agent, frontend):
            frontend.on_event = lambda event: (
                agent.act(SubmitPrompt(LATER))
                if event == TurnEnded("end_turn") and len(frontend.of(TurnEnded)) == 1
                else None
            )
            await frontend.until(TurnEnded, 2)
            assert "Mine." in said(frontend)


async def test_a_child_that_has_ended_opens_like_any_session(tmp_path):
    family = Family(tmp_path, [{"text": "Done."}])
    async with family.begun():
        await family.child.ended.wait()
        async with family.opened() as (agent, frontend):
            history = await frontend.until(HistoryShown)
            assert [each.text for each in history.events if isinstance(each, TextDelta)] == [
                "Done."
            ]
            agent.act(SubmitPrompt(LATER))
            await frontend.until(TurnEnded)


async def test_a_frontend_whose_child_crashes_sees_the_end_of_its_turn(tmp_path):
    family = Family(tmp_path, [{"text": "Hm."}, WAIT])
    frontend = Emitted()
    async with family.begun():
        await family.parent.until(TextDelta)
        await family.open(frontend.emit)
    assert frontend.of(TurnEnded)[-1].stop_reason in {"error", "cancelled"}
    assert len(frontend.of(TurnEnded)) == 1
