"""
Tools that a session's client runs: each tool call is sent to the client.

A call has its own ID. If the client reconnects, it gets the call again with the same ID and runs it once. While the client is away, the
call waits like a question.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from sanderling.acp.wire.errors import INVALID_REQUEST, RpcError
from sanderling.acp.wire.ours import RUN_TOOL, ToolAnswer, ToolOutput, ToolRequest
from sanderling.errors import ToolError
from sanderling.tools.base import Context, Tool
from sanderling.tools.catalog import TOOLS
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Content, Outcome

if TYPE_CHECKING:
    from sanderling.acp.agent.clients import Client
    from sanderling.serve.broadcast import Broadcast

NOT_OFFERED = frozenset(("ask_user", "delegate"))
"""Tools that need the mode, the questions and the sessions of this machine."""
OURS_ALONE = frozenset(("todo",))
"""Tools without effects outside of the conversation, which the server runs."""
NO_TOOLS = (
    "this server leaves tools to its clients (--tools client), and this client runs none: connect with Sanderling, or start the"
    " server with --tools server"
)


def check_client(client: "Client") -> None:
    """
    Check that a client runs tools.

    Raises:
        RpcError: it does not.
    """
    if not client.ours.tools:
        raise RpcError(INVALID_REQUEST, NO_TOOLS)


class ShownOutput:
    """The output of a tool call that was shown so far."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._chars = 0

    def take(self, piece: ToolOutput) -> None:
        """Show the new part of `piece`. A piece after a gap is dropped, because the client sends everything again."""
        start = self._chars if piece.start is None else piece.start
        new = piece.text[self._chars - start :] if start <= self._chars else ""
        if new:
            self._chars += len(new)
            self._show(new)


class ClientToolProxy:
    """The tools of a `broadcast` session. The client that sent the current prompt runs them."""

    def __init__(self, broadcast: "Broadcast") -> None:
        self._broadcast = broadcast
        self._client = ""
        self._notes: list[str] = []
        self._told: list[str] = []
        self._shows: dict[str, ShownOutput] = {}

    def begin(self, client: "Client", notes: Sequence[str]) -> None:
        """
        Note the client that sent a prompt, and its `notes` for the model.

        Raises:
            RpcError: it runs no tools.
        """
        check_client(client)
        self._client = client.ours.tools
        self._notes += notes

    def take_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        self._told += notes
        return notes

    def tell_again(self) -> None:
        self._notes, self._told = self._told + self._notes, []

    def take_output(self, output: ToolOutput) -> None:
        if shown := self._shows.get(output.id):
            shown.take(output)

    async def tools(self) -> Sequence[Tool]:
        return [
            tool if name in OURS_ALONE else self._there(tool)
            for name, tool in TOOLS.items()
            if name not in NOT_OFFERED
        ]

    def _there(self, tool: Tool) -> Tool:
        async def run(args: Any, context: Context) -> Outcome:
            return await self._run(tool.name, msgspec.to_builtins(args), context)

        run.__doc__ = tool.description
        effect = _effect_on_job if tool.name == "jobs" else tool.effect
        return Tool(tool.name, tool.input_type, run, effect, tool.title, is_elsewhere=True)

    async def _run(self, name: str, given: dict[str, Any], context: Context) -> Outcome:
        request = ToolRequest(
            session_id=self._broadcast.session_id,
            id=uuid4().hex,
            name=name,
            tool_use_id=context.tool_use_id,
            together=context.together,
            input=given,
        )
        client = self._client
        self._shows[request.id] = ShownOutput(context.show)
        try:
            answer = await self._broadcast.ask(
                RUN_TOOL, request, ToolAnswer, lambda each: each.ours.tools == client
            )
        except RpcError as error:
            raise ToolError(f"The client could not run it: {error}") from error
        finally:
            del self._shows[request.id]
        self._notes += answer.notes or ()
        return Outcome(
            content=_content(answer.content),
            summary=answer.summary,
            detail=answer.detail,
            filetype=answer.filetype,
            is_error=answer.is_error,
            is_denied=answer.is_denied,
            output_chars=answer.output_chars,
        )


def _effect_on_job(_args: object, _workspace: object) -> Effect:
    """Return none: what input means to a terminal is known only where the job is, and is judged there."""
    return Effect("jobs", "none")


def _content(answer: Any) -> Content:
    try:
        return msgspec.convert(answer, Content)
    except msgspec.ValidationError as error:
        raise ToolError(f"The client sent an invalid result: {error}") from error
