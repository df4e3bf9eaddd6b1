"""The methods that an external agent may call: the wire side. `agents/` implements them."""

from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, TypeVar

import anyio
import msgspec

from sanderling.acp.wire import asking
from sanderling.acp.wire.connection import Method
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import INVALID_PARAMS, RpcError, not_found
from sanderling.agents.files import NotThereError, ServedFiles
from sanderling.agents.permits import Permits
from sanderling.agents.terminals import Exit, Terminal, Terminals
from sanderling.errors import SanderlingError
from sanderling.mcp.elicitation import Ask, Elicitation, ElicitationAnswer
from sanderling.mcp.forms import FormError
from sanderling.permissions.gate import DeniedError
from sanderling.text import printable
from sanderling.tools.workspace import Workspace

DISMISSED = asking.ElicitationResponse(action="cancel")
REFUSED = -32000  # implementation-defined error: it was not done

T = TypeVar("T", bound=msgspec.Struct)


class Questioner:
    """
    Shows the questions of the agent `name` to the user: a form, or a page to open.

    `may_ask`: return whether something is waiting for the agent at this moment.
    """

    def __init__(self, name: str, project: str, ask: Ask, may_ask: Callable[[], bool]) -> None:
        self._name = name
        self._may_ask = may_ask
        self._elicitation = Elicitation(project, ask)

    async def ask(self, request: asking.ElicitationRequest) -> asking.ElicitationResponse:
        if not self._may_ask():
            return DISMISSED
        try:
            answer = await self._answer(request)
        except FormError as error:
            raise RpcError(INVALID_PARAMS, str(error)) from error
        content: dict[str, Any] | None = {**answer.content} if answer.content else None
        return asking.ElicitationResponse(action=answer.action, content=content)

    async def _answer(self, request: asking.ElicitationRequest) -> ElicitationAnswer:
        match request.mode:
            case "form":
                schema = request.requested_schema or {}
                return await self._elicitation.form(self._name, request.message, schema)
            case "url":
                return await self._elicitation.link(self._name, request.message, request.url or "")
            case mode:
                raise RpcError(INVALID_PARAMS, f"there is no mode {printable(mode)[:40]!r}")


class ExternalService:
    """Files and terminals for one agent. `put_out` is called with the id of a terminal that has new output."""

    def __init__(
        self,
        workspace: Workspace,
        permits: Permits,
        start: Callable[..., None],
        put_out: Callable[[str], None],
        questions: "Questioner",
    ) -> None:
        self._files = ServedFiles(workspace, permits)
        self._put_out = put_out
        self._written: dict[str, str] = {}
        self.terminals = Terminals(workspace, permits, start, self._terminal_wrote)
        self._numbers = count(1)
        self._workspace = workspace
        self._asking: set[anyio.CancelScope] = set()
        self._questions = questions

    def methods(self) -> Mapping[str, Method]:
        return {
            "fs/read_text_file": self._method(asking.ReadTextFileRequest, self._read),
            "fs/write_text_file": self._method(asking.WriteTextFileRequest, self._write),
            "terminal/create": self._method(asking.CreateTerminalRequest, self._create),
            "terminal/output": self._method(asking.TerminalRequest, self._output),
            "terminal/wait_for_exit": self._method(asking.TerminalRequest, self._wait),
            "terminal/kill": self._method(asking.TerminalRequest, self._kill),
            "terminal/release": self._method(asking.TerminalRequest, self._release),
            "elicitation/create": self._method(
                asking.ElicitationRequest, self._questions.ask, DISMISSED
            ),
        }

    def output_of(self, terminal_id: str) -> str:
        """Return the terminal's output in this turn, as it was shown on the screen."""
        return self._written.get(terminal_id, "")

    def end_turn(self) -> None:
        self._written.clear()

    def stop_asking(self) -> None:
        """Cancel everything that waits for the user, because the turn was stopped."""
        for scope in tuple(self._asking):
            scope.cancel()

    def close(self) -> None:
        self.terminals.close()

    def _method(
        self, kind: type[T], do: Callable[[T], Awaitable[Any]], stopped: Any = None
    ) -> Method:
        """Wrap `do` as a method. If the turn is stopped, it returns `stopped`, or an error without that."""

        async def handle(params: msgspec.Raw) -> Any:
            request = decoded(params, kind)
            with anyio.CancelScope() as scope:
                self._asking.add(scope)
                try:
                    return await do(request)
                except NotThereError as error:
                    raise not_found(str(error)) from error
                except RpcError:
                    raise
                except (SanderlingError, DeniedError) as error:
                    raise RpcError(REFUSED, str(error)) from error
                finally:
                    self._asking.discard(scope)
            if stopped is not None:
                return stopped
            raise RpcError(REFUSED, "The user stopped the turn.")

        return Method(handle)

    async def _read(self, request: asking.ReadTextFileRequest) -> asking.ReadTextFileResponse:
        for number in (request.line, request.limit):
            if number is not None and number < 0:
                raise RpcError(INVALID_PARAMS, "lines are counted from 1")
        text = await self._files.read(request.path, request.line, request.limit)
        return asking.ReadTextFileResponse(content=text)

    async def _write(self, request: asking.WriteTextFileRequest) -> None:
        await self._files.write(request.path, request.content, f"fs-{next(self._numbers)}")

    async def _create(self, request: asking.CreateTerminalRequest) -> asking.CreateTerminalResponse:
        env = {pair.name: pair.value for pair in request.env or ()}
        terminal = await self.terminals.create(
            request.command,
            request.args or (),
            env=env,
            cwd=request.cwd or "",
            output_bytes=request.output_byte_limit,
        )
        return asking.CreateTerminalResponse(terminal_id=terminal.id)

    async def _output(self, request: asking.TerminalRequest) -> asking.TerminalOutputResponse:
        output = self.terminals.output(request.terminal_id)
        return asking.TerminalOutputResponse(
            output=output.text,
            truncated=output.is_truncated,
            exit_status=_status(output.exit) if output.exit else None,
        )

    async def _wait(self, request: asking.TerminalRequest) -> asking.ExitStatus:
        return _status(await self.terminals.wait(request.terminal_id))

    async def _kill(self, request: asking.TerminalRequest) -> None:
        self.terminals.kill(request.terminal_id)

    async def _release(self, request: asking.TerminalRequest) -> None:
        self.terminals.release(request.terminal_id)

    def _terminal_wrote(self, terminal: Terminal, text: str) -> None:
        self._written[terminal.id] = self._written.get(terminal.id, "") + text
        self._put_out(terminal.id)


def _status(exit_: Exit) -> asking.ExitStatus:
    return asking.ExitStatus(exit_code=exit_.code, signal=exit_.signal)
