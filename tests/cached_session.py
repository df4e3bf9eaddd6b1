"""
A day of work in forty turns, against an API with its cache.

Tools; a change of mode, of the network, of the date, of the branch; lists of what is to be done; instructions; a new skill; hooks that
begin to say something; a role that comes and goes; a command of the person's; words in between; a restart in the middle.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.actions import SetNetwork
from sanderling.protocol.events import Event, SandboxChanged, ToolStarted
from sanderling.protocol.messages import Prompt
from sanderling.protocol.modes import NetworkMode
from sanderling.providers.choice import make_provider
from sanderling.sandbox.confinement import policy_for
from sanderling.session.session import Session
from tests.cached_api import Body, CachedApi, Content, text, thought, use
from tests.conftest import DEADLINE_S

TURNS = 40
RESUMED_AT = 20
LONG_ROUND_AT = (12, 27)  # more uses of tools in one message than the API looks back
MANY = 30
PAGE_LINES = 40
LINE = "    total += sum(value for value in row if value is not None)  # {}\n"
ANSWER = "That function adds up what is there and leaves out what is not. " * 6
THOUGHT = "The person asks about another part; first I look at the page that has it. "
BEFORE_MIDNIGHT, AFTER_MIDNIGHT = "<west>+12", "<east>-14"  # 26 hours apart


def _answers() -> Iterator[Content]:
    """What the model says to each request."""
    for turn in range(TURNS):
        for number, uses in enumerate(_rounds(turn)):
            yield [thought(f"{THOUGHT}{turn}.{number}"), text("I look."), *uses]
        yield [thought(f"Now I know {turn}."), text(f"{turn}: {ANSWER}")]


def _rounds(turn: int) -> Iterator[Content]:
    page = {"offset": 1 + turn * PAGE_LINES, "limit": PAGE_LINES}
    yield [use(f"read_{turn}", "read", path="src/rows.py", **page)]
    if turn in LONG_ROUND_AT:
        several = range(MANY)
        yield [use(f"many_{turn}_{n}", "read", path="notes.txt", offset=n + 1) for n in several]
    if turn % 4 == 1:
        yield [use(f"todo_{turn}", "todo", items=_todo(turn))]
    if turn % 4 == 2:
        yield [use(f"grep_{turn}", "grep", pattern=f"# {turn}$", path="src")]
    if turn % 4 == 3:
        command = f"echo {turn} >> log.txt; wc -l log.txt"
        yield [use(f"bash_{turn}", "bash", command=command)]


def _todo(turn: int) -> list[dict[str, str]]:
    return [
        {"content": "Read the rows.", "status": "completed"},
        {"content": f"Understand turn {turn}.", "status": "in_progress"},
    ]


HOOKS: dict[str, Any] = {
    "UserPromptSubmit": [{"command": "cat hooked.txt 2>/dev/null; exit 0"}],
    "PostToolUse": [{"command": "[ -e hooked.txt ] && cat answer.json; exit 0", "matcher": "Bash"}],
}
ROLES: dict[str, Any] = {
    "reviewer": {"prompt": "Only review.", "disallowed_tools": ["write"], "skills": ["late"]}
}
SKILL = "---\nname: late\ndescription: Came at noon.\n---\nDo it well.\n"


class CachedSession:
    """`run` lives through the day; `api` has seen it."""

    def __init__(
        self, folder: Path, api: Callable[[Callable[[Body], Content]], Any] = CachedApi
    ) -> None:
        self.project = folder / "project"
        (self.project / "src").mkdir(parents=True)
        (self.project / ".git").mkdir()
        self._check_out("main")
        lines = map(LINE.format, range(TURNS * PAGE_LINES))
        (self.project / "src" / "rows.py").write_text("".join(lines))
        (self.project / "notes.txt").write_text("A line.\n" * MANY)
        (self.project / "AGENTS.md").write_text("Answer in whole sentences.\n")
        (self.project / "src" / "AGENTS.md").write_text("No loops here.\n")
        answers = _answers()
        self.api = api(lambda _body: next(answers))
        self.events: list[Event] = []
        self._folder = folder

    async def run(self) -> None:
        set_zone(BEFORE_MIDNIGHT)
        with self.api:
            for turns in (range(RESUMED_AT), range(RESUMED_AT, TURNS)):
                async with AsyncExitStack() as stack:
                    await self._open(stack)
                    for turn in turns:
                        await self._happen(turn)
                        self.conversation.submit(Prompt(f"p{turn}", _words(turn)))
                        await self._until(lambda turn=turn: self._count("TurnEnded") > turn)

    async def _open(self, stack: AsyncExitStack) -> None:
        state_dir = str(self._folder / "state")
        settings = Settings(state_dir=state_dir, hooks=HOOKS, roles=ROLES, **self.api.options)
        session = Session.open(settings.session_dir, "s1", str(self.project))
        stack.callback(session.close)
        provider = make_provider(settings)
        stack.push_async_callback(provider.aclose)
        policy = policy_for(settings, str(self.project))
        self.conversation = Conversation(
            SessionServices(session, provider, self._emit, policy, settings)
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(self.conversation.serve)
        stack.callback(self.conversation.close)
        if session.is_resumed:
            return
        self.conversation.controls.set_mode("auto")

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, ToolStarted) and event.id == "read_35":
            self.conversation.steer(Prompt("steered", "Leave the tests alone, please."))

    async def _happen(self, turn: int) -> None:
        """What changes before a turn."""
        match turn:
            case 6:
                self.conversation.controls.set_mode("plan")
            case 7:
                self.conversation.controls.set_mode("auto")
            case 9:
                await self._set_network("proxy")
            case 11:
                skill = Path.home() / ".agents/skills/late/SKILL.md"
                skill.parent.mkdir(parents=True)
                skill.write_text(SKILL)
            case 13:
                said = {"hookSpecificOutput": {"additionalContext": "Seen by a hook."}}
                (self.project / "answer.json").write_text(json.dumps(said))
                (self.project / "hooked.txt").write_text("The hook of prompts.")
            case 14:
                await self._set_network("off")
            case 16:
                self.conversation.controls.set_role("reviewer")
            case 17:
                set_zone(AFTER_MIDNIGHT)
            case 22:
                self.conversation.controls.set_role("")
            case 23 | 26:
                shown = self.conversation.services.project.trust.shown()
                self.conversation.services.project.trust.trust(
                    {f.path: f.sha256 for f in shown.files}
                )
            case 25:
                (self.project / "AGENTS.md").write_text("Answer in half sentences.\n")
            case 30:
                self._check_out("feature/rows")
            case 32:
                self.conversation.services.commands.start("c1", "echo from the person")
                await self._until(lambda: self._count("CommandEnded") == 1)
            case _:
                pass

    def _check_out(self, branch: str) -> None:
        (self.project / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")

    async def _set_network(self, mode: NetworkMode) -> None:
        self.conversation.act(SetNetwork(mode))
        await self._until(
            lambda: any(isinstance(e, SandboxChanged) and e.network == mode for e in self.events)
        )

    def _count(self, kind: str) -> int:
        return sum(type(event).__name__ == kind for event in self.events)

    async def _until(self, condition: Any) -> None:
        with anyio.fail_after(DEADLINE_S):
            while not condition():
                await anyio.sleep(0.005)


def _words(turn: int) -> str:
    return f"What does the page in turn {turn} do, and what would you change there?"


def set_zone(zone: str) -> None:
    """Where this process lives, and so which day it is there; empty: where the machine is."""
    if zone:
        os.environ["TZ"] = zone
    else:
        os.environ.pop("TZ", None)
    time.tzset()
