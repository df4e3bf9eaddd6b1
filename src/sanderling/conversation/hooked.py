"""The events at which a conversation runs its hooks: the fields of each event's message, and the consequences of the verdict."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Literal

import anyio
import msgspec

from sanderling.hooks.callbacks import Callbacks, Point
from sanderling.hooks.hooks import NOTHING, Hooks, Owner, Verdict, quoted
from sanderling.hooks.messages import names_of, tool_fields, tool_response
from sanderling.protocol.messages import Prompt
from sanderling.tools.base import UseRequest
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome
from sanderling.tools.workspace import Workspace

END_S = 1.5
"""How long the end of a session waits for its hooks."""
MAX_CONTINUATIONS = 8
STILL_STOPPING = "A Stop hook has continued this turn {count} times; it ends now."
Trigger = Literal["manual", "auto"]


class PromptRefusedError(Exception):
    """A hook refused the prompt; `str(error)` is a sentence for the user."""


class SessionHooks:
    """The hooks and the editor's callbacks of one session, with a method for each event."""

    def __init__(self, hooks: Hooks, callbacks: Callbacks, workspace: Workspace) -> None:
        self._hooks = hooks
        self._callbacks = callbacks
        self._workspace = workspace
        self._has_begun = False
        self._continuations = 0
        self._notes: list[str] = []

    async def begin_turn(self, *, is_resumed: bool) -> None:
        """Read the hooks again, and run those for the session's start before its first turn here."""
        self._hooks.read_again()
        self._hooks.take_stop()  # of a turn that the user stopped before it could end so
        self._continuations = 0
        if not self._has_begun:
            self._has_begun = True
            await self.session_start("resume" if is_resumed else "startup")

    async def session_start(self, source: Literal["startup", "resume", "compact"]) -> None:
        verdict = await self._hooks.run("SessionStart", {"source": source}, (source,))
        self._note(verdict.context)

    def see_prompts(self) -> bool:
        return self._hooks.are_for("UserPromptSubmit") or self._callbacks.are_for("prompt")

    async def before_prompt(self, prompt: Prompt) -> Prompt:
        """
        Return the prompt to send.

        Raises:
            PromptRefusedError: it must not be sent.
        """
        verdict = await self._call("prompt", prompt.sent or prompt.text)
        if verdict.text is not None:
            prompt = msgspec.structs.replace(prompt, sent=verdict.text)
        if not verdict.is_denied:
            fields = {"prompt": prompt.sent or prompt.text}
            verdict = await self._hooks.run("UserPromptSubmit", fields)
        stop = self._hooks.take_stop()
        if verdict.is_denied or stop:
            raise PromptRefusedError(f"A hook refused the prompt: {verdict.reason or stop}")
        self._note(verdict.context)
        return prompt

    async def _call(self, point: Point, subject: Any) -> Verdict:
        return (
            await self._callbacks.run(point, subject) if self._callbacks.are_for(point) else NOTHING
        )

    def _note(self, context: str) -> None:
        if context:
            self._notes.append(f"[From a hook:\n{quoted(context)}]")

    def take_notes(self) -> list[str]:
        """Return the notes for the model since the last time, to be sent with the next message of the user's."""
        for said in self._hooks.take_late():
            self._note(said)
        notes, self._notes = self._notes, []
        return notes

    async def before_use(
        self, owner: Owner, tool: str, use_id: str, values: dict[str, Any], effect: Effect
    ) -> Verdict:
        """
        Run the hooks of `owner` before a tool call.

        The project's hooks run first: they may change the input, and the editor's callbacks and the user's hooks must decide about that
        input. With all of them at the same time, a hook in the repository could replace a command that the user has just allowed, or has
        not denied.
        """
        names = names_of(tool)
        if not self._hooks.are_for("PreToolUse", names):
            return NOTHING
        fields = tool_fields(tool, use_id, values, self._workspace.project)
        is_met = self._conditions(tool, effect)
        return await self._hooks.run("PreToolUse", fields, names, owner=owner, is_met=is_met)

    async def call_before_use(
        self, tool: str, use_id: str, values: dict[str, Any], effect: Effect
    ) -> Verdict:
        """Run the editor's callbacks before a tool call, after the project's hooks and before the user's."""
        del use_id, effect
        return await self._call("tool", {"name": tool, "input": values})

    def _conditions(self, tool: str, effect: Effect) -> Callable[[str], bool]:
        from sanderling.permissions.conditions import is_met  # it loads the shell's grammar

        return lambda condition: is_met(condition, tool, effect, self._workspace)

    async def before_question(self, request: UseRequest) -> Verdict:
        names = names_of(request.tool.name)
        if not self._hooks.are_for("PermissionRequest", names):
            return NOTHING
        fields = tool_fields(
            request.tool.name, request.tool_use_id, request.input, self._workspace.project
        )
        is_met = self._conditions(request.tool.name, request.effect)
        return await self._hooks.run("PermissionRequest", fields, names, is_met=is_met)

    async def after_use(
        self, tool: str, use_id: str, values: dict[str, Any], outcome: Outcome, *, effect: Effect
    ) -> Verdict:
        """Run the hooks after a tool call. What they change, as formatters do, belongs to the call: undo takes it back."""
        names = names_of(tool)
        if not self._hooks.are_for("PostToolUse", names):
            return NOTHING
        workspace = self._workspace
        fields = tool_fields(tool, use_id, values, workspace.project)
        text = outcome.content if isinstance(outcome.content, str) else ""
        path = str(fields["tool_input"].get("file_path", ""))
        fields["tool_response"] = tool_response(tool, text, path, is_error=outcome.is_error)
        async with AsyncExitStack() as running:
            if workspace.sandbox.can_write:
                during = workspace.changes.during(workspace.sandbox.confined, use_id)
                await running.enter_async_context(during)
            is_met = self._conditions(tool, effect)
            verdict = await self._hooks.run("PostToolUse", fields, names, is_met=is_met)
        if workspace.editor:
            await workspace.editor.files_changed(())
        return verdict

    async def before_stop(self, answer: str) -> str:
        """Return why the turn must continue, for the model; "" to let it end."""
        if not self._hooks.are_for("Stop"):
            return ""
        fields = {
            "stop_hook_active": self._continuations > 0,
            "last_assistant_message": answer,
        }
        verdict = await self._hooks.run("Stop", fields)
        if not verdict.is_denied:
            return ""
        self._continuations += 1
        return quoted(verdict.reason)

    @property
    def continues_too_often(self) -> bool:
        return self._continuations > MAX_CONTINUATIONS

    async def before_summary(self, trigger: Trigger, focus: str) -> Verdict:
        """Return whether the conversation may be summarized, and with which focus, if not with this one."""
        verdict = await self._call("compact", focus)
        if verdict.is_denied:
            return verdict
        focus = focus if verdict.text is None else verdict.text
        fields = {"trigger": trigger, "custom_instructions": focus}
        return verdict.and_also(await self._hooks.run("PreCompact", fields, (trigger,)))

    async def end(self) -> None:
        with anyio.move_on_after(END_S):
            await self._hooks.run("SessionEnd", {"reason": "other"}, ("other",))

    def take_stop(self) -> str:
        return self._hooks.take_stop()
