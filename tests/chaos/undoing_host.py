"""Processes that undo in a session, to be killed: `python -m tests.chaos.undoing_host`; each prints an empty line before it begins."""

import asyncio
import sys
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.protocol.actions import AnswerApproval, RedoTurn, Rewind, UndoTurn
from sanderling.protocol.events import (
    ApprovalRequested,
    ConversationRewound,
    Event,
    FilesRestored,
    Notice,
    TurnEnded,
)
from sanderling.protocol.messages import Prompt
from sanderling.providers.scripted import Script, ScriptedProvider
from sanderling.sandbox.confinement import policy_for
from sanderling.session.session import Session
from tests.chaos.forks import fork_for_each


class Act(msgspec.Struct, frozen=True):
    """What is done in the session of `folder`. To resume is to do nothing but what opening does."""

    folder: str
    what: Literal["apply", "undo", "redo", "rewind", "resume"]
    prompt_id: str = ""
    replies: list[list[dict[str, Any]]] = []
    is_confined: bool = False


ENDS: dict[str, type] = {
    "apply": TurnEnded,
    "undo": FilesRestored,
    "redo": FilesRestored,
    "rewind": ConversationRewound,
    "resume": Notice,
}


class Host:
    def __init__(self, act: Act) -> None:
        folder = Path(act.folder)
        project = str(folder / "project")
        settings = Settings(state_dir=str(folder / "state"))
        self.act = act
        self.done = anyio.Event()
        self.session = Session.open(settings.session_dir, "s1", project)
        script = {"version": 1, "reply": [{"step": steps} for steps in act.replies]}
        provider = ScriptedProvider(msgspec.convert(script, Script))
        self.conversation = Conversation(
            SessionServices(
                self.session, provider, self.emit, policy_for(settings, project), settings
            )
        )
        self.conversation.services.sandbox.switch(is_on=act.is_confined)

    def emit(self, event: Event) -> None:
        if isinstance(event, ApprovalRequested):
            approvals = self.conversation.services.approvals
            answer = AnswerApproval(event.id, "once")
            asyncio.get_running_loop().call_soon(approvals.answer, answer)
        is_of_opening = isinstance(event, FilesRestored) and event.kind == "finish"
        if isinstance(event, Notice) and self.act.what != "resume":
            sys.stderr.write(f"{self.act.what}: {event.text}\n")
        if isinstance(event, ENDS[self.act.what] | Notice) and not is_of_opening:
            self.done.set()

    async def serve(self) -> None:
        async with anyio.create_task_group() as tasks:
            self.conversation.controls.set_mode("auto")
            print(flush=True)
            tasks.start_soon(self.conversation.serve)
            match self.act.what:
                case "apply":
                    self.conversation.submit(Prompt(self.act.prompt_id, "Do it."))
                case "undo":
                    self.conversation.act(UndoTurn())
                case "redo":
                    self.conversation.act(RedoTurn())
                case "rewind":
                    self.conversation.act(Rewind(self.act.prompt_id, "both"))
                case "resume":
                    self.conversation.act(UndoTurn("no such turn"))
            await self.done.wait()
            self.conversation.close()
        self.conversation.services.workspace.journal.close()
        self.session.close()


if __name__ == "__main__":
    fork_for_each(Act, lambda act: Host(act).serve())
