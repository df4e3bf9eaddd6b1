"""A tool: an input type, whose schema the API is sent, and a function, whose docstring the model reads."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from sanderling.errors import ToolError
from sanderling.text import printable
from sanderling.tools.meant import meant
from sanderling.tools.outcome import Outcome, Preview

if TYPE_CHECKING:
    from sanderling.commands.shell import ShellState
    from sanderling.sandbox.ground import Ground
    from sanderling.tools.effects import Effect
    from sanderling.tools.reviewed import Accepted
    from sanderling.tools.workspace import Workspace


MAX_FIELD_CHARS = 40
SWITCHED = "Not run: it was judged with the sandbox, which the person has switched off meanwhile. Ask for it again."


class Context(msgspec.Struct, frozen=True):
    """
    The surroundings in which a tool use runs. `show` draws output in the chat while the tool still runs.

    `shell` is what a command begins with. `may_read` says of a path whether a search may show what stands there; None: wherever the
    sandbox lets it look. `overruled` are the texts of buffers whose unsaved changes the person has let this go over. `accepted` is
    what they take of a change that they have reviewed. `is_seen`: they were shown what this would do, and have allowed that. `together`
    is the same for all uses of a message, and empty where it has only this one.
    """

    workspace: "Workspace"
    tool_use_id: str
    show: Callable[[str], None]
    shell: "ShellState | None" = None
    may_read: Callable[[str], bool] | None = None
    overruled: frozenset[str] = frozenset()
    accepted: "Accepted | None" = None
    is_seen: bool = False
    together: str = ""


Run = Callable[[Any, Context], Awaitable[Outcome]]
Look = Callable[[Any, Context], Awaitable[Preview]]
PlanFor = Callable[[Any, Context], Awaitable[Any]]


class Tool(msgspec.Struct, frozen=True):
    """
    A tool as the conversation knows it.

    `effect` says what a use would do, for the permissions; `title` is its line on the screen, without the tool's name. `look` finds
    out what the person is to see before it is allowed. Where only somebody else can say what a use would do, `plan` asks them, and
    makes of the input what `effect`, `title`, `look` and `run` are given then. One that `is_elsewhere` is judged where it runs.
    """

    name: str
    input_type: type[msgspec.Struct]
    run: Run
    effect: "Callable[[Any, Workspace], Effect]"
    title: "Callable[[Any, Workspace], str]"
    look: Look | None = None
    plan: PlanFor | None = None
    is_elsewhere: bool = False

    @property
    def description(self) -> str:
        return inspect.cleandoc(self.run.__doc__ or "")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the input, as the API wants it: an object at the top."""
        (schema,), components = msgspec.json.schema_components(
            [self.input_type], ref_template="#/$defs/{name}"
        )
        top = components.pop(schema["$ref"].rpartition("/")[2])
        top.pop("title", None)
        for component in components.values():
            component.pop("title", None)
        return top | ({"$defs": components} if components else {})

    def parse(self, data: dict[str, Any]) -> msgspec.Struct:
        """
        The input that is meant by `data`.

        Raises:
            ToolError: naming the field that is missing or wrong, and those that the tool takes.
        """
        value, ignored = meant(data, self.input_type)
        try:
            return msgspec.convert(value, self.input_type)
        except msgspec.ValidationError as error:
            words = f"The input of '{self.name}' is wrong: {error}. {self._fields(ignored)}"
            raise ToolError(words) from error

    def note_on(self, data: dict[str, Any]) -> str:
        """Return what the model should know about an input that could be used: which of its fields were ignored."""
        ignored = meant(data, self.input_type).ignored
        return f"[{self._fields(ignored)}]" if ignored else ""

    def _fields(self, ignored: Sequence[str]) -> str:
        fields = ", ".join(f"`{name}`" for name in self.input_type.__struct_fields__)
        wrong = ", ".join(f"`{printable(name)[:MAX_FIELD_CHARS]}`" for name in ignored)
        without = f" Ignored: {wrong}." if wrong else ""
        return f"{self.name} takes {fields}.{without}"


class Arguments(msgspec.Struct, frozen=True):
    """The arguments for a tool from outside, by name."""

    values: dict[str, Any]


class OutsideTool(Tool, frozen=True, kw_only=True):
    """A tool that is not ours: what the model is told of it comes from where it does, and its arguments are checked there."""

    told: str
    input_schema: dict[str, Any]
    is_waiting: bool = False  # it can be called, but the model is not told of it yet

    @property
    def description(self) -> str:
        return self.told

    @property
    def schema(self) -> dict[str, Any]:
        return self.input_schema

    def parse(self, data: dict[str, Any]) -> Arguments:
        return Arguments(data)

    def note_on(self, data: dict[str, Any]) -> str:
        del data
        return ""


def tool(
    input_type: type[msgspec.Struct],
    *,
    effect: "Callable[[Any, Workspace], Effect]",
    title: "Callable[[Any, Workspace], str]",
    preview: Look | None = None,
    plan: PlanFor | None = None,
) -> Callable[[Run], Tool]:
    """Make a tool of a function, which gives it its name and its description."""

    def make(run: Run) -> Tool:
        name = getattr(run, "__name__")  # noqa: B009 - a Callable need not have one
        return Tool(name, input_type, run, effect, title, preview, plan)

    return make


class UseRequest(msgspec.Struct, frozen=True):
    """
    A tool use as it is when its turn comes: this is what is judged, shown and run, whatever changes meanwhile.

    `shell` is what a command begins with, and `ground` where it is to run. `is_of_several`: others of the same message
    have not ended yet.
    """

    tool_use_id: str
    tool: Tool
    args: Any
    effect: "Effect"
    title: str
    shell: "ShellState"
    ground: "Ground"
    is_of_several: bool = False

    def check_ground(self, workspace: "Workspace") -> None:
        """
        Return if what was judged still holds.

        Raises:
            ToolError: it was judged with the sandbox, which is off now.
        """
        if workspace.sandbox.is_weaker_than(self.ground):
            raise ToolError(SWITCHED)

    async def preview(self, workspace: "Workspace") -> Preview:
        """
        Find out what it would do.

        Raises:
            ToolError: it cannot be done at all, so that there is nothing to ask.
        """
        if self.tool.look:
            context = Context(workspace, self.tool_use_id, lambda _: None, self.shell)
            return await self.tool.look(self.args, context)
        effect = self.effect
        filetype = "sh" if effect.command else ""
        return Preview(effect.command or effect.host or effect.path, filetype)
