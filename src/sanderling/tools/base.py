"""A tool: an input type, whose schema is sent to the API, and a function, whose docstring the model reads."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sanderling.errors import ToolError
from sanderling.text import printable
from sanderling.tools.effects import Effect
from sanderling.tools.meant import fields_in_words, meant
from sanderling.tools.outcome import Outcome, Preview

if TYPE_CHECKING:
    from sanderling.sandbox.execution_environment import ExecutionEnvironment
    from sanderling.tools.commands.shell import ShellState
    from sanderling.tools.reviewed import AcceptedPart
    from sanderling.tools.workspace import Workspace


MAX_FIELD_CHARS = 40
SWITCHED = "Not run: the user switched off the sandbox after this call was checked. Call it again."


class Context(msgspec.Struct, frozen=True):
    """
    The context in which a tool call runs. `show` streams output to the chat while the tool runs.

    `shell` is the state with which a command starts. `may_read` tells whether a search may show a path; None permits all that the sandbox
    does. `overruled` are texts of buffers whose unsaved changes the user agreed to overwrite. `accepted` is the part of a reviewed change
    that the user accepts. `is_seen`: the user was shown the effect and allowed it. `together` is shared by all calls in a message, and
    empty if there is only one.
    """

    workspace: "Workspace"
    tool_use_id: str
    show: Callable[[str], None]
    shell: "ShellState | None" = None
    may_read: Callable[[str], bool] | None = None
    overruled: frozenset[str] = frozenset()
    accepted: "AcceptedPart | None" = None
    is_seen: bool = False
    together: str = ""


Run = Callable[[Any, Context], Awaitable[Outcome]]
Look = Callable[[Any, Context], Awaitable[Preview]]
PlanFor = Callable[[Any, Context], Awaitable[Any]]


class Tool(msgspec.Struct, frozen=True):
    """
    A tool as the conversation knows it.

    `effect` returns what a call would do, for the permissions; `title` its line on the screen, without the tool's name. `look` returns
    what the user sees before allowing it. If only another process knows what a call would do, `plan` asks it, and returns the input for
    `effect`, `title`, `look` and `run`. If the tool `is_elsewhere`, permissions are checked where it runs. A tool that
    `waits_for_user` does nothing else: interrupted, it was not run.
    """

    name: str
    input_type: type[msgspec.Struct]
    run: Run
    effect: "Callable[[Any, Workspace], Effect]"
    title: "Callable[[Any, Workspace], str]"
    look: Look | None = None
    plan: PlanFor | None = None
    is_elsewhere: bool = False
    waits_for_user: bool = False

    @property
    def description(self) -> str:
        return inspect.cleandoc(self.run.__doc__ or "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the input as the API requires it, with an object at the top."""
        (schema,), components = msgspec.json.schema_components(
            [self.input_type], ref_template="#/$defs/{name}"
        )
        top = components.pop(schema["$ref"].rpartition("/")[2])
        for component in components.values():
            component.pop("description", None)  # of a class
        for component in (top, *components.values()):
            component.pop("title", None)
            for field in component.get("properties", {}).values():
                _shorten(field)
                _add_type(field)
        return top | ({"$defs": components} if components else {})

    def repaired(self, data: dict[str, Any]) -> dict[str, Any]:
        """
        Return the input with common mistakes corrected: exactly this is checked, shown, run and logged.

        Raises:
            ToolError: naming the missing or wrong field, and the fields that the tool takes.
        """
        value, ignored = meant(data, self.input_type)
        try:
            msgspec.convert(value, self.input_type)
        except msgspec.ValidationError as error:
            words = f"Invalid input for '{self.name}': {error}. {self._fields(ignored)}"
            raise ToolError(words) from error
        return value

    def parse(self, data: dict[str, Any]) -> msgspec.Struct:
        """
        Return the input, correcting common mistakes in `data`.

        Raises:
            ToolError: see `repaired`.
        """
        return msgspec.convert(self.repaired(data), self.input_type)

    def note_on(self, data: dict[str, Any]) -> str:
        """Return a note for the model on ignored fields of a valid input."""
        ignored = meant(data, self.input_type).ignored
        return f"[{self._fields(ignored)}]" if ignored else ""

    def _fields(self, ignored: Sequence[str]) -> str:
        """Return "bash has no `cmd`. It takes: command (required), timeout_s, background."."""
        names = (f"`{printable(name)[:MAX_FIELD_CHARS]}`" for name in ignored)
        takes = f"takes: {fields_in_words(self.input_type)}."
        return (
            f"{self.name} has no {', '.join(names)}. It {takes}"
            if ignored
            else f"{self.name} {takes}"
        )


class Arguments(msgspec.Struct, frozen=True):
    """Arguments for a third-party tool, by name."""

    values: dict[str, Any]


class OutsideTool(Tool, frozen=True, kw_only=True):
    """A third-party tool: its server provides the description and schema, and validates arguments."""

    remote_description: str
    input_schema: dict[str, Any]
    is_waiting: bool = False  # callable, but its definition is not sent to the model yet

    @property
    def description(self) -> str:
        return self.remote_description

    @property
    def schema(self) -> dict[str, Any]:
        return self.input_schema

    def repaired(self, data: dict[str, Any]) -> dict[str, Any]:
        return data

    def parse(self, data: dict[str, Any]) -> Arguments:
        return Arguments(data)

    def note_on(self, data: dict[str, Any]) -> str:
        del data
        return ""


def _add_type(field: dict[str, Any]) -> None:
    """Add the type of an enum of strings, without which some models' chat templates cannot be rendered."""
    if all(isinstance(value, str) for value in field.get("enum", (0,))):
        field["type"] = "string"


def _shorten(field: dict[str, Any]) -> None:
    """Remove what tells a model nothing, because every request has it: empty defaults, null next to a type, obvious lower limits."""
    for limit in ("minimum", "exclusiveMinimum", "minLength"):
        field.pop(limit, None)
    if not field.get("default", True):
        del field["default"]
    types = [each for each in field.pop("anyOf", ()) if each != {"type": "null"}]
    field |= types[0] if len(types) == 1 else {"anyOf": types} if types else {}


def on_path(tool: str, kind: Literal["read", "write"]) -> "Callable[[Any, Workspace], Effect]":
    """Return the `effect` of a tool that reads or changes what its argument `path` names."""

    def effect(args: Any, workspace: "Workspace") -> Effect:
        return Effect(tool, kind, path=workspace.path(args.path))

    return effect


def path_shown(args: Any, workspace: "Workspace") -> str:
    """Return the argument `path` as a title."""
    return workspace.shown(workspace.path(args.path))


def tool(
    input_type: type[msgspec.Struct],
    *,
    effect: "Callable[[Any, Workspace], Effect] | None" = None,
    title: "Callable[[Any, Workspace], str]" = lambda _args, _workspace: "",
    preview: Look | None = None,
    plan: PlanFor | None = None,
    waits_for_user: bool = False,
) -> Callable[[Run], Tool]:
    """Make a function a tool with its name and docstring. Without an `effect`, only the tool knows what it does, so its calls are asked about."""

    def make(run: Run) -> Tool:
        name: str = getattr(run, "__name__")  # noqa: B009 - a Callable need not have one

        def unknown(_args: Any, _workspace: "Workspace") -> Effect:
            return Effect(name, "call")

        return Tool(
            name,
            input_type,
            run,
            effect or unknown,
            title,
            preview,
            plan,
            waits_for_user=waits_for_user,
        )

    return make


class UseRequest(msgspec.Struct, frozen=True):
    """
    A tool call when its turn comes: exactly this is checked, shown and run, whatever changes meanwhile.

    `shell` is the state with which a command starts, and `environment` where it runs. `is_of_several`: other calls in the same message are
    still running. `hooked` is the decision of the hooks before the call, `hook_reason` its reason, `input` what they were sent.
    """

    tool_use_id: str
    tool: Tool
    args: Any
    effect: Effect
    title: str
    shell: "ShellState"
    environment: "ExecutionEnvironment"
    is_of_several: bool = False
    hooked: Literal["allow", "ask", "deny"] | None = None
    hook_reason: str = ""
    input: dict[str, Any] = {}

    def check_ground(self, workspace: "Workspace") -> None:
        """
        Check that the call may still run as it was approved.

        Raises:
            ToolError: it was approved for the sandbox, which is off now.
        """
        if workspace.sandbox.is_weaker_than(self.environment):
            raise ToolError(SWITCHED)

    async def preview(self, workspace: "Workspace") -> Preview:
        """
        Return what the call would do.

        Raises:
            ToolError: it is impossible, so there is nothing to ask.
        """
        if self.tool.look:
            context = Context(workspace, self.tool_use_id, lambda _: None, self.shell)
            return await self.tool.look(self.args, context)
        effect = self.effect
        filetype = "sh" if effect.command else ""
        return Preview(effect.command or effect.host or effect.path, filetype)
