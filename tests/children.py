"""A session whose model delegates, opened as a frontend opens it; parent and children read one script."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio

from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.conversation.children.running import find_running
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.protocol.actions import Action, AnswerApproval, SubmitPrompt
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import ApprovalRequested, ChildChanged, Event, TurnEnded
from sanderling.protocol.messages import Prompt, ToolResult
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import Header, Record
from tests.conftest import DEADLINE_S, happens

Steps = Sequence[dict[str, Any]]


def use(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_use": {"name": name, "input": arguments}}


def delegate(task: str, role: str = "edit", **more: Any) -> dict[str, Any]:
    return use("delegate", task=task, role=role, **more)


def said(text: str) -> dict[str, Any]:
    return {"text": text}


class Tree:
    """An open session, and what it has emitted. `answers`: what is answered to a question, by its tool; "" waits."""

    def __init__(self, base: Path, agent: Agent, events: list[Event]) -> None:
        self.agent, self.events = agent, events
        self.project = base / "project"
        self.logs = base / "state/sessions"
        self.on_event: Callable[[Event], None] = lambda _event: None

    @property
    def services(self) -> Any:
        return self.agent.services  # type: ignore[attr-defined]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def questions(self) -> list[ApprovalRequested]:
        return self.of(ApprovalRequested)

    @property
    def shown(self) -> list[ChildChanged]:
        return self.of(ChildChanged)

    @property
    def children(self) -> dict[str, Agent]:
        """The children that run, by their ids."""
        ids = self.child_ids()
        found = {each: find_running(log_path(self.logs, each)) for each in ids}
        return {each: child.conversation for each, child in found.items() if child}

    @property
    def states(self) -> list[str]:
        """Each state that a child was shown in, once in a row."""
        found = [event.state for event in self.of(ChildChanged)]
        return [
            state for before, state in zip(["", *found], found, strict=False) if state != before
        ]

    @property
    def results(self) -> list[str]:
        history = self.services.session.history
        blocks = (block for message in history for block in message.content)
        return [str(block.content) for block in blocks if isinstance(block, ToolResult)]

    def child_ids(self) -> list[str]:
        return [*dict.fromkeys(event.id for event in self.of(ChildChanged))]

    def state_of(self, child_id: str) -> str:
        return [event.state for event in self.of(ChildChanged) if event.id == child_id][-1]

    def read(self, session_id: str) -> tuple[Header, list[Record]]:
        log = log_path(self.logs, session_id)
        with opened(log) as file:
            header, records = records_of(log, file)
            return header, list(records)

    def read_if(self, session_id: str) -> list[Record]:
        """The records of a session that may have no log yet."""
        return self.read(session_id)[1] if log_path(self.logs, session_id).exists() else []

    def act(self, action: Action) -> None:
        self.agent.act(action)

    def answer(self, question: ApprovalRequested, answer: Any, **more: Any) -> None:
        self.act(AnswerApproval(question.id, answer, **more))

    async def asked(self, number: int = 1) -> ApprovalRequested:
        await happens(lambda: len(self.questions) >= number)
        return self.questions[number - 1]

    def submit(self, text: str = "Do it.") -> None:
        self.act(SubmitPrompt(Prompt(f"p{len(self.of(TurnEnded)) + 1}", text)))

    async def ended(self, count: int = 1) -> None:
        await happens(lambda: len(self.of(TurnEnded)) >= count)

    async def run(self, text: str = "Do it.") -> None:
        count = len(self.of(TurnEnded))
        self.submit(text)
        await self.ended(count + 1)


@asynccontextmanager
async def tree(
    base: Path,
    *parent: Steps,
    children: dict[str, Sequence[Steps]] | None = None,
    answer: str = "session",
    mode: Any = "auto",
    session_id: str = "parent",
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[Tree]:
    """
    A session whose model replies with `parent`, and whose children's with `children`, by their task.

    The first question about a delegation gets this `answer`; "" leaves it open.
    """
    project = base / "project"
    project.mkdir(exist_ok=True)
    script = base / "script.json"
    replies: list[dict[str, Any]] = []
    for task, its_replies in (children or {}).items():
        replies += ({"when": task, "step": [*steps]} for steps in its_replies[:1])
        replies += ({"step": [*steps], "after": after} for after, steps in _later(its_replies))
    replies += ({"step": [*steps]} for steps in (*parent, [said("All done.")]))
    script.write_text(json.dumps({"version": 1, "reply": replies}))
    chosen = {"provider": "scripted", "script": str(script), **settings}
    layers = Layers(state_dir=str(base / "state"), setup=Layer("setup()", chosen))
    events: list[Event] = []
    found: list[Tree] = []

    def emit(event: Event) -> None:
        events.append(event)
        is_about_it = isinstance(event, ApprovalRequested) and event.tool == "delegate"
        if is_about_it and answer and found:
            found[0].answer(event, answer)  # type: ignore[arg-type]
        elif found:
            found[0].on_event(event)

    with anyio.fail_after(DEADLINE_S):
        session_options = SessionOptions(mode=mode, can_ask=True, **(options or {}))
        opened_agent = await open_conversation(
            session_id, str(project), layers, emit, session_options
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened_agent.agent.serve)
            found.append(Tree(base, opened_agent.agent, events))
            yield found[0]
            opened_agent.agent.close()


def _later(replies: Sequence[Steps]) -> list[tuple[str, Steps]]:
    """Each later reply, after the last call of the one before, which has an id for that."""
    later: list[tuple[str, Steps]] = []
    for before, steps in pairwise(replies):
        last = [step["tool_use"] for step in before if "tool_use" in step][-1]
        last.setdefault("id", f"c{abs(hash(json.dumps(last))) % 10**9}-{len(later)}")
        later.append((last["id"], steps))
    return later
