"""
Permissions for external agents: for tool calls that an agent asks about, and for requests that it sends to its client.

An agent describes its own tool calls by a kind, a title and an input without a common schema. Where these name a command, files or a
host, the rules and the mode judge the call like the same use of a Sanderling tool, and many questions need no user. A description may be
wrong or a lie. The sandbox confines the agent in any case, so allowing a call never grants access in the sandbox.

What the user allowed when the agent asked, its client may do once without a second question: exactly that command, or that text of a
file, while the mode is the same.
"""

import os
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, Literal, NamedTuple

from sanderling.agents.calls import Diff, ToolCall, command_of, cwd_of, host_of, paths_of
from sanderling.errors import ToolError
from sanderling.permissions.approvals import Permit
from sanderling.permissions.gate import Gate
from sanderling.text import visible_prose
from sanderling.tools.base import Tool, UseRequest
from sanderling.tools.effects import OUTSIDE, Effect
from sanderling.tools.workspace import Workspace

PREFIX = "acp"
"""Prefix of the names that rules use for an agent's other calls: `acp__claude__think`."""
CHANGES, LOOKS = ("edit", "delete", "move"), ("read", "search")
MAX_PATHS = 50
MAX_REMEMBERED = 64
MAX_ASKING = 32
MAX_NAME_CHARS = 24
TOO_MANY = "Not done: too many of your requests are already waiting for the user."


class Verdict(NamedTuple):
    """The decision of the rules and the mode, with its reason. "ask" leaves the decision to the user."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""


class _AllowedCall(NamedTuple):
    """A command or change that was allowed, with the mode and the sandbox's state at that time."""

    conditions: tuple[object, ...]
    command: str = ""
    cwd: str = ""
    diff: Diff | None = None


class Permits:
    """
    Judges the calls and requests of the agent `name`. `is_confined` returns whether its process runs in the sandbox.

    `gate` has the session's mode and rules, and asks the user about requests.
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
        self._allowed: deque[_AllowedCall] = deque(maxlen=MAX_REMEMBERED)
        self._numbers = count(1)
        self._asking = 0

    # --- tool calls that the agent asks about ------------------------------------------------------------------------------

    def judge(self, call: ToolCall) -> Verdict:
        """
        Decide whether the agent may make the call, by the rules and the mode.

        After "ask", the caller must call `allowed` if the user allows it.
        """
        is_confined = self._workspace.sandbox.confines(is_confined=self._is_confined())
        effects = self._effects(call, is_confined=is_confined)
        decisions = [self.gate.decide(each, is_confined=is_confined) for each in effects]
        for action in ("deny", "ask"):
            for decision in decisions:
                if decision.action == action:
                    return Verdict(decision.action, decision.reason)
        self.allowed(call)
        return Verdict("allow", decisions[0].reason)

    def allowed(self, call: ToolCall) -> None:
        """
        Note that the call was allowed, so the matching request to the client needs no second question.

        This covers what was judged and shown: the command line, or the diffs. Other fields of the call were neither.
        """
        if call.kind == "execute" and (command := command_of(call)):
            cwd = cwd_of(call, self._workspace.project)
            self._allowed.append(_AllowedCall(self._conditions, command, cwd))
        for diff in call.diffs if call.kind in CHANGES else ():
            self._allowed.append(_AllowedCall(self._conditions, diff=diff))

    def _effects(self, call: ToolCall, *, is_confined: bool) -> list[Effect]:
        """Return the call as effects of Sanderling's tools, or as an unknown effect if it matches none."""
        project = self._workspace.project
        paths = paths_of(call, project)[: MAX_PATHS + 1]
        is_named = 0 < len(paths) <= MAX_PATHS
        if call.kind == "execute" and (command := command_of(call)):
            return [Effect("bash", "run", command=command, cwd=cwd_of(call, project))]
        if call.kind in CHANGES and is_named:
            changes = [Effect(_tool_for(call, path), "write", path=path) for path in paths]
            # Allowing cannot let a confined agent write outside of the project, so such a call is not judged as an edit alone.
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

    # --- requests to the client --------------------------------------------------------------------------------------------

    def request(
        self, tool: Tool, args: Any, *, use_id: str = "", effect: Effect | None = None
    ) -> UseRequest:
        """
        Return a use of a Sanderling tool on behalf of the agent.

        `use_id` goes into the journal of changes and must be unique among open uses.
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
            workspace.sandbox.environment,
        )

    async def of_write(self, request: UseRequest, path: str, content: str) -> Permit:
        """
        Wait for permission to write `content` to the file.

        Raises:
            DeniedError: the user denied it.
            ToolError: a rule or the mode forbids it, or it is impossible.
        """
        known_file = self._workspace.read_cache.get(path)
        before = known_file.text if known_file else None
        is_answered = self._take(lambda each: _is_of(each.diff, path, content, before))
        return await self._permit(request, is_answered=is_answered)

    async def of_run(self, request: UseRequest) -> Permit:
        """
        Wait for permission to run a command.

        Raises:
            DeniedError: the user denied it.
            ToolError: a rule or the mode forbids it.
        """
        what = (request.effect.command, request.effect.cwd)
        is_answered = not request.effect.exported and self._take(
            lambda each: (each.command, each.cwd) == what
        )
        return await self._permit(request, is_answered=is_answered)

    async def of_read(self, request: UseRequest) -> Permit:
        """
        Wait for permission to read a file.

        Raises:
            DeniedError: the user denied it.
            ToolError: a rule forbids it.
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
        return self.gate.mode, self._workspace.sandbox.environment

    def _take(self, is_it: Callable[[_AllowedCall], bool]) -> bool:
        """Return whether a matching call was allowed under the same conditions. Each one counts once."""
        for each in self._allowed:
            if each.conditions == self._conditions and is_it(each):
                self._allowed.remove(each)
                return True
        return False


def _tool_for(call: ToolCall, path: str) -> str:
    is_new = any(each.old is None and os.path.normpath(each.path) == path for each in call.diffs)
    return "write" if is_new else "edit"


def _is_of(diff: Diff | None, path: str, content: str, before: str | None) -> bool:
    """Return whether writing `content` does exactly what the diff showed, which may cover a part of the file."""
    if diff is None or os.path.normpath(diff.path) != path:
        return False
    old, before = diff.old or "", before or ""
    if old == before:
        return content == diff.new
    return bool(old) and content in (
        before.replace(old, diff.new, 1),
        before.replace(old, diff.new),
    )
