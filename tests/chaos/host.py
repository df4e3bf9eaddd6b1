"""Processes that run a session as a host does, to be killed: `python -m tests.chaos.host`."""

import asyncio
import importlib
import os
from pathlib import Path

import anyio
import msgspec

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import (
    ApprovalRequested,
    ErrorOccurred,
    Event,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.sandbox.confinement import policy_for
from sanderling.session.session import Session
from tests.chaos.forks import fork_for_each


class Run(msgspec.Struct, frozen=True):
    """`prompts` are queued at once, `steered` is said when a tool runs. What has been said goes into the file `said`, line by line."""

    folder: str
    url: str
    prompts: tuple[Prompt, ...]
    steered: Prompt
    is_confined: bool = False


class Host:
    def __init__(self, run: Run) -> None:
        folder = Path(run.folder)
        project = str(folder / "project")
        settings = Settings(state_dir=str(folder / "state"), base_url=run.url, provider="anthropic")
        self.run = run
        self.changed = anyio.Event()
        self.said = os.open(folder / "said", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.is_steered = False
        self.turns = 0  # that have begun and not ended
        session = Session.open(settings.session_dir, "s1", project)
        self.provider = AnthropicProvider(settings)
        self.conversation = Conversation(
            SessionServices(
                session, self.provider, self.emit, policy_for(settings, project), settings
            )
        )
        self.conversation.services.sandbox.switch(is_on=run.is_confined)

    def emit(self, event: Event) -> None:
        match event:
            case ToolStarted() if not self.is_steered:
                self.is_steered = True
                self.conversation.steer(self.run.steered)
                self._tell(self.run.steered)
            case TurnStarted():
                self.turns += 1
            case TurnEnded():
                self.turns -= 1
                self.changed.set()
            case ApprovalRequested(id=question_id):  # unconfined, a command asks
                answer = AnswerApproval(question_id, "once")
                asyncio.get_running_loop().call_soon(
                    self.conversation.services.approvals.answer, answer
                )
            case ErrorOccurred():
                raise AssertionError(event)
            case _:
                pass

    def _tell(self, prompt: Prompt) -> None:
        os.write(self.said, f"{prompt.text}\n".encode())

    async def serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.conversation.serve)
            self.conversation.controls.set_mode("auto")
            for prompt in self.run.prompts:
                self.conversation.submit(prompt)
                self._tell(prompt)
            while self.conversation.services.waiting or self.turns:
                self.changed = anyio.Event()
                await self.changed.wait()
            self.conversation.close()
        await self.provider.aclose()


if __name__ == "__main__":
    importlib.import_module("httpx2")  # once, not in each process
    fork_for_each(Run, lambda run: Host(run).serve())
