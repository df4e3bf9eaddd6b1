"""
Permission for what an agent wants to do, which it asks for, and for what it has its client do for it.

An agent describes its own tool calls: by a kind, a title, and an input that each calls something else. As far as that names a command,
files or a host, it is judged as the same use of our own tool would be, by the rules and the mode: many a question is answered without
the person. A description may be wrong, or a lie; what holds then is the sandbox, as for what an agent does without asking. So a yes
lets nothing into the sandbox.

What the person has said yes to, as an agent asked, it may have its client do once without being asked about again: that very command,
and that very text of a file, as long as the mode is the same.
"""

import os
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, NamedTuple

from sanderling.agents.calls import Diff, ToolCall, command_of, cwd_of, host_of, paths_of
from sanderling.errors import ToolError
from sanderling.permissions.gate import Gate, Permit
from sanderling.text import visible_prose
from sanderling.tools.base import Tool, UseRequest
from sanderling.tools.effects import OUTSIDE, Effect
from sanderling.tools.workspace import Workspace

PREFIX = "acp"
"""Begins the names by which rules know what an agent does that is none of our tools: `acp__claude__think`."""
CHANGES, LOOKS = ("edit", "delete", "move"), ("read", "search")
MAX_PATHS = 50
MAX_REMEMBERED = 64
MAX_ASKING = 32
MAX_NAME_CHARS = 24
TOO_MANY = "Not done: too much of what you have asked for waits for the person already."


class Verdict(NamedTuple):
    """The answer of rules and mode, and the reason for it in a sentence; "ask": it is the person's to give."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""


class _Allowed(NamedTuple):
    """A command or a change that the person said yes to, and the mode and the ground at that time."""

    conditions: tuple[object, ...]
    command: str = ""
    cwd: str = ""
    diff: Diff | None = None


class Permits:
    """
    The permits of the agent `name`. `is_confined` says whether its own process runs in the sandbox now.

    `gate` judges, and asks about what is done for the agent; its mode and rules are those of the session.
    """

    def __init__(
        self,
        name: str,
        workspace: Workspace,
        gate: Gate,
        is_confined: Callable[[], bool] = lambda: True,
    ) -> None:
        self.gate = gate
        self._name = "".join(c if c.isalnum() else "-" for c in name)[:MAX_NAME_CHARS].strip("-")
        self._workspace = workspace
        self._is_confined = is_confined
        self._allowed: deque[_Allowed] = deque(maxlen=MAX_REMEMBERED)
        self._numbers = count(1)
        self._asking = 0

    # --- what it asks for --------------------------------------------------------------------------------------------------

    def judge(self, call: ToolCall) -> Verdict:
        """
        Answer the agent's question whether it may do this, as far as rules and mode do; the rest is to be asked.

        Whoever has asked tells by `allowed` if the answer was yes.
        """
        is_confined = self._workspace.sandbox.confines(is_confined=self._is_confined())
        effects = self._effects(call, is_confined=is_confined)
        decisions = [self.gate.judge(each, is_confined=is_confined) for each in effects]
        for action in ("deny", "ask"):
            for decision in decisions:
                if decision.action == action:
                    return Verdict(decision.action, decision.reason)
        self.allowed(call)
        return Verdict("allow", decisions[0].reason)

    def allowed(self, call: ToolCall) -> None:
        """
        Take note that the agent was told yes: what it then has its client do is not asked about again.

        That is what was judged and shown: the command of a command, the differences of a change. What else a call says was neither.
        """
        if call.kind == "execute" and (command := command_of(call)):
            cwd = cwd_of(call, self._workspace.project)
            self._allowed.append(_Allowed(self._conditions, command, cwd))
        for diff in call.diffs if call.kind in CHANGES else ():
            self._allowed.append(_Allowed(self._conditions, diff=diff))

    def _effects(self, call: ToolCall, *, is_confined: bool) -> list[Effect]:
        """The tool call as uses of our own tools; one that is none of them as what only the agent knows."""
        project = self._workspace.project
        paths = paths_of(call, project)[: MAX_PATHS + 1]
        is_named = 0 < len(paths) <= MAX_PATHS
        if call.kind == "execute" and (command := command_of(call)):
            return [Effect("bash", "run", command=command, cwd=cwd_of(call, project))]
        if call.kind in CHANGES and is_named:
            changes = [Effect(_tool_for(call, path), "write", path=path) for path in paths]
            # No yes of ours lets it write where the sandbox does not: nobody is asked about that.
            is_inside = all(map(self._workspace.is_inside, paths))
            return changes if is_inside or not is_confined else [*changes, self._unknown(call)]
        if call.kind in LOOKS and is_named:
            return [Effect("read", "read", path=path) for path in paths]
        if call.kind == "fetch" and (host := host_of(call)):
            return [Effect("web_fetch", "fetch", host=host)]
        return [self._unknown(call)]

    def _unknown(self, call: ToolCall) -> Effect:
        kind = "".join(c if c.isascii() and c.isalnum() else "-" for c in call.kind).strip("-")
        return Effect(OUTSIDE.join((PREFIX, self._name, kind or "other")), "call")

    # --- what it has its client do -----------------------------------------------------------------------------------------

    def request(
        self, tool: Tool, args: Any, *, use_id: str = "", effect: Effect | None = None
    ) -> UseRequest:
        """
        The use of a tool of ours that the agent has its client do, on the ground of now.

        Its `use_id`, if there is one, is in the journal of changes; no two that are open may have the same.
        """
        workspace = self._workspace
        title = " ".join(visible_prose(tool.title(args, workspace)).split())
        return UseRequest(
            use_id or f"{PREFIX}-{next(self._numbers)}",
            tool,
            args,
            effect or tool.effect(args, workspace),
            title,
            workspace.shell.now,
            workspace.sandbox.ground,
        )

    async def of_write(self, request: UseRequest, path: str, content: str) -> Permit:
        """
        Return when it may make `content` the text of the file.

        Raises:
            DeniedError: the person said no.
            ToolError: a rule or the mode says no, or it cannot be done.
        """
        sight = self._workspace.seen.get(path)
        before = sight.text if sight else None
        is_answered = self._take(lambda each: _is_of(each.diff, path, content, before))
        return await self._permit(request, is_answered=is_answered)

    async def of_run(self, request: UseRequest) -> Permit:
        """
        Return when it may run a command.

        Raises:
            DeniedError: the person said no.
            ToolError: a rule or the mode says no.
        """
        what = (request.effect.command, request.effect.cwd)
        is_answered = not request.effect.exported and self._take(
            lambda each: (each.command, each.cwd) == what
        )
        return await self._permit(request, is_answered=is_answered)

    async def of_read(self, request: UseRequest) -> Permit:
        """
        Return when it may read a file.

        Raises:
            DeniedError: the person said no.
            ToolError: a rule says no.
        """
        return await self._permit(request)

    async def _permit(self, request: UseRequest, *, is_answered: bool = False) -> Permit:
        if self._asking >= MAX_ASKING:
            raise ToolError(TOO_MANY)
        self._asking += 1
        try:
            return await self.gate.permit(request, is_answered=is_answered)
        finally:
            self._asking -= 1

    @property
    def _conditions(self) -> tuple[object, ...]:
        return self.gate.mode, self._workspace.sandbox.ground

    def _take(self, is_it: Callable[[_Allowed], bool]) -> bool:
        """Say whether the person has said yes to it as the agent asked; then that is used up."""
        for each in self._allowed:
            if each.conditions == self._conditions and is_it(each):
                self._allowed.remove(each)
                return True
        return False


def _tool_for(call: ToolCall, path: str) -> str:
    is_new = any(each.old is None and os.path.normpath(each.path) == path for each in call.diffs)
    return "write" if is_new else "edit"


def _is_of(diff: Diff | None, path: str, content: str, before: str | None) -> bool:
    """Say whether to write `content` is exactly what the difference has shown, as a whole file or as a part of it."""
    if diff is None or os.path.normpath(diff.path) != path:
        return False
    old, before = diff.old or "", before or ""
    if old == before:
        return content == diff.new
    return bool(old) and content in (
        before.replace(old, diff.new, 1),
        before.replace(old, diff.new),
    )
