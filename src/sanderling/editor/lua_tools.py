"""Tools in Lua: a declaration becomes a tool of the session's catalog, whose calls run in Neovim."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from anyio import to_thread

from sanderling.editor.extensions import DeclaredTool, Extensions
from sanderling.errors import ToolError
from sanderling.protocol.events import Event, Notice
from sanderling.text import counted, duration, printable, shortened
from sanderling.tools.base import Arguments, Context, OutsideTool, Tool
from sanderling.tools.effects import LUA, Effect, outside_sandbox
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.workspace import Workspace

MAX_SHOWN_CHARS = 500
GONE = "{name} is no longer available: the plugin that provided it has removed it."
REFUSED = "The tool '{name}' of {owner} is not offered to the model: {problem}."


class LuaTools:
    """The tools of one session, as a source of its catalog."""

    def __init__(
        self, extensions: Extensions, session_id: str, emit: Callable[[Event], None]
    ) -> None:
        self._extensions = extensions
        self._session_id = session_id
        self._emit = emit
        self._made: dict[DeclaredTool, Tool | None] = {}

    async def tools(self) -> Sequence[Tool]:
        declared = self._extensions.tools.values()
        made = [self._made_of(each) for each in declared]
        return [tool for tool in made if tool]

    def _made_of(self, declared: DeclaredTool) -> Tool | None:
        """Return the tool; None if no API would accept its schema, which is shown once."""
        key = msgspec.structs.replace(declared, schema=msgspec.json.encode(declared.schema))
        if key not in self._made:
            self._made[key] = self._make(declared)
        return self._made[key]

    def _make(self, declared: DeclaredTool) -> Tool | None:
        from sanderling.mcp.schemas import sound, with_tables  # only needed with such tools

        schema, problems = sound(with_tables(declared.schema))
        if problems:
            # A server's tool would be offered without that part; the author of this one can correct it.
            problem = problems[0].replace("is left out", "is not valid JSON Schema")
            words = REFUSED.format(name=declared.name, owner=declared.owner, problem=problem)
            self._emit(Notice("warning", printable(words)))
            return None
        call = _Call(self._extensions, declared.name, self._session_id)
        return OutsideTool(
            f"{LUA}{declared.name}",
            Arguments,
            call.run,
            call.effect,
            call.title,
            call.look,
            call.plan,
            remote_description=declared.desc,
            input_schema=schema,
        )


class _Call:
    """Calls of the tool `name`, as it is declared at the time of the call."""

    def __init__(self, extensions: Extensions, name: str, session_id: str) -> None:
        self._extensions = extensions
        self._name = name
        self._session_id = session_id

    def effect(self, _args: Arguments, _workspace: Workspace) -> Effect:
        name = f"{LUA}{self._name}"
        if not (tool := self._extensions.tools.get(self._name)):
            return Effect(name, "call", leaves_sandbox=True)
        return outside_sandbox(Effect(name, "call"), tool.owner, tool.effect)

    def title(self, args: Arguments, _workspace: Workspace) -> str:
        return ", ".join(f"{name}: {_inline(value)}" for name, value in args.values.items())

    async def look(self, args: Arguments, _context: Context) -> Preview:
        tool = self._declared()
        values = msgspec.json.format(msgspec.json.encode(args.values)).decode()
        return Preview(values, "json", f"A Lua function of {tool.owner}.")

    async def plan(self, args: Arguments, _context: Context) -> Arguments:
        """
        Check the input.

        Raises:
            ToolError: it does not fit, or the tool is gone.
        """
        tool = self._declared()
        problems = await to_thread.run_sync(_problems, tool, args.values, abandon_on_cancel=True)
        if problems:
            lines = "\n".join(problems)
            raise ToolError(f"Invalid input for '{LUA}{self._name}':\n{lines}")
        return args

    async def run(self, args: Arguments, context: Context) -> Outcome:
        from sanderling.tools.bounded import bounded

        tool = self._declared()
        facts = {"session": self._session_id, "project": context.workspace.project}
        try:
            answer = await self._extensions.call(
                "tool",
                tool.timeout_s,
                self._name,
                args.values,
                facts,
                show=lambda text: context.show(f"{_line(text)}\n"),
            )
        except TimeoutError as late:
            limit = duration(tool.timeout_s)
            raise self._failed(tool, f"it did not call done() within {limit}") from late
        finally:
            context.workspace.sandbox.look_after("", has_failed=False)
        if error := answer.get("error"):
            raise self._failed(tool, printable(str(error)))
        text = await bounded(printable(str(answer.get("value", ""))), context)
        shown = text if text.strip() else "(nothing)"  # some APIs reject a blank text
        lines = text.count("\n") + bool(text)
        return Outcome(content=shown, summary=counted(lines, "line") if text else "", detail=text)

    def _failed(self, tool: DeclaredTool, problem: str) -> ToolError:
        return ToolError(f"{LUA}{self._name} of {tool.owner} failed: {problem.rstrip('.')}.")

    def _declared(self) -> DeclaredTool:
        if tool := self._extensions.tools.get(self._name):
            return tool
        raise ToolError(GONE.format(name=f"{LUA}{self._name}"))


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _line(text: str) -> str:
    return shortened(" ".join(printable(text).split()), MAX_SHOWN_CHARS)


def _problems(tool: DeclaredTool, values: dict[str, Any]) -> list[str]:
    """Return in which ways the input does not fit the schema. Blocks: `jsonschema` loads, and patterns may take long."""
    from sanderling.mcp.schemas import with_tables
    from sanderling.tools.json_schema import InvalidSchemaError, JsonSchema

    schema = with_tables(tool.schema)
    if not schema:
        return []
    try:
        return JsonSchema(schema).problems(values)
    except InvalidSchemaError as error:
        return [f"- the schema that {tool.owner} declares cannot be used: {error}"]
