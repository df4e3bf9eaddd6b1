"""What every tool is: an input type, whose schema the API is sent, and a function, whose docstring the model reads."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from sanderling.errors import ToolError
from sanderling.tools.outcome import Outcome, Preview

if TYPE_CHECKING:
    from sanderling.commands.shell import ShellState
    from sanderling.tools.effects import Effect
    from sanderling.tools.workspace import Workspace


class Context(msgspec.Struct, frozen=True):
    """
    What a tool use is done with. `show` draws output in the chat while the tool still runs.

    `overruled` are the texts of buffers whose unsaved changes the person has let this go over. `shell` is what a command begins
    with, and `is_confined` whether the sandbox held when it was judged: it is to run as it was judged. `is_of_several`: others of
    the same message have not ended yet.
    """

    workspace: "Workspace"
    tool_use_id: str
    show: Callable[[str], None]
    overruled: set[str] = msgspec.field(default_factory=set)
    shell: "ShellState | None" = None
    is_confined: bool = True
    is_of_several: bool = False


Run = Callable[[Any, Context], Awaitable[Outcome]]
Look = Callable[[Any, Context], Awaitable[Preview]]


class Tool(msgspec.Struct, frozen=True):
    """
    A tool as the conversation knows it.

    `effect` says what a use would do, for the permissions; `title` is its line on the screen, without the tool's name.
    `is_read_only`: it changes nothing. `look` finds out what the person is to see before it is allowed.
    """

    name: str
    input_type: type[msgspec.Struct]
    run: Run
    effect: "Callable[[Any, Workspace], Effect]"
    title: "Callable[[Any, Workspace], str]"
    is_read_only: bool
    look: Look | None = None

    async def preview(self, args: Any, context: Context) -> Preview:
        """
        What a use would do.

        Raises:
            ToolError: it cannot be done at all, so that there is nothing to ask.
        """
        if self.look:
            return await self.look(args, context)
        effect = self.effect(args, context.workspace)
        filetype = "sh" if effect.command else ""
        return Preview(effect.command or effect.host or effect.path, filetype)

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
        The input that `data` holds.

        Raises:
            ToolError: naming the field that is missing, unknown or wrong.
        """
        try:
            return msgspec.convert(data, self.input_type)
        except msgspec.ValidationError as error:
            raise ToolError(f"The input of '{self.name}' is wrong: {error}.") from error


def tool(
    input_type: type[msgspec.Struct],
    *,
    effect: "Callable[[Any, Workspace], Effect]",
    title: "Callable[[Any, Workspace], str]",
    is_read_only: bool = False,
    preview: Look | None = None,
) -> Callable[[Run], Tool]:
    """Make a tool of a function, which gives it its name and its description."""

    def make(run: Run) -> Tool:
        name = getattr(run, "__name__")  # noqa: B009 - a Callable need not have one
        return Tool(name, input_type, run, effect, title, is_read_only, preview)

    return make
