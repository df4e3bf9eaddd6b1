"""Tool calls of an external agent, assembled from its updates and shown like calls of Sanderling's own tools."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Literal, NamedTuple, cast

import msgspec

from sanderling.acp.wire.content import ContentBlock, ToolContent
from sanderling.acp.wire.updates import ToolCall, ToolCallFields
from sanderling.agents import calls as agents
from sanderling.protocol.events import ChangedLines
from sanderling.text import CONTROL, duration, printable, shortened
from sanderling.tools.commands.output import ScreenText, clean
from sanderling.tools.texts import difference, shown_to_person

MAX_DETAIL_CHARS = 32_768
MAX_TOLD_CHARS = 262_144  # of a call's output, in the log
MAX_INPUT_CHARS, MAX_DEPTH, MAX_BITS = 1 << 20, 60, 64
MAX_DIFF_CHARS = 4 << 20  # of both sides together; larger diffs are not shown
MAX_TITLE_CHARS = 200
MAX_TERMINALS = 8
NAMES = {
    "read": "read",
    "edit": "edit",
    "delete": "delete",
    "move": "move",
    "search": "search",
    "execute": "bash",
    "think": "think",
    "fetch": "web_fetch",
    "switch_mode": "mode",
}
"""Names of tool blocks, by the agent's tool kind."""
WRITING = frozenset(("edit", "delete", "move", "execute", "other"))
"""Tool kinds that may change files: the project is scanned after them."""
OF_FILES = {"read": ("read",), "edit": ("edit", "write"), "delete": ("delete",)}
"""Tool kinds whose title is a path, and the tool names that each kind may have."""
ENDED = ("completed", "failed")
OUTPUT_KEYS = ("terminal_output", "terminal_output_delta")
"""Keys of `_meta` under which adapters stream the output of commands that they run."""
EXIT_KEY = "terminal_exit"


AnyToolCall = ToolCall | ToolCallFields


class CallEnding(NamedTuple):
    """
    The outcome of a call, for the screen and the log.

    `update` is the call's full text. Its first `output_chars` characters were already shown as output.
    """

    summary: str
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    text: str = ""
    is_denied: bool = False
    changed: tuple[ChangedLines, ...] = ()
    output_chars: int | None = None


class _Written:
    """Output of a command that the agent runs itself, as a terminal renders it; `put_out` was already shown."""

    def __init__(self) -> None:
        self.text = ""
        self.put_out = ""
        self.exit_code: int | None = None
        self._screen = ScreenText()

    def add(self, data: str) -> None:
        self.text += self._screen.feed(data.encode(errors="replace"))

    def finish(self) -> None:
        self.text += self._screen.finish()


class ExternalCall:
    """
    A tool call, updated by each message about it; `id` is unique in the log.

    `shown` returns how a path is displayed. `is_started`: the call is on the screen, or waits for its place there.
    """

    def __init__(self, call_id: str, shown: Callable[[str], str]) -> None:
        self.id = call_id
        self.begun_at = monotonic()
        self.is_started = False
        self.is_ended = False
        self.is_denied = False
        self.kind = "other"
        self.status = "pending"
        self.input: dict[str, Any] = {}
        self.output: Any = None
        self.paths: tuple[str, ...] = ()
        self._shown = shown
        self._name = ""
        self._title = ""
        self._content: Sequence[ToolContent] = ()
        self._written = _Written()

    def take(self, update: AnyToolCall) -> None:
        """Update the call. Fields that the agent leaves out keep their value."""
        self.kind = update.kind or self.kind
        self.status = update.status or self.status
        self._title = update.title or self._title
        self._name = update.name or self._name
        if isinstance(update.raw_input, dict):
            given = cast("dict[str, Any]", update.raw_input)
            self.input = given if given and _is_fit(given) else self.input
        if update.raw_output is not None:
            self.output = update.raw_output
        if update.locations:
            self.paths = tuple(location.path for location in update.locations)
        if update.content is not None:
            self._content = update.content
        self._take_terminal(update.meta or {})

    def _take_terminal(self, meta: dict[str, Any]) -> None:
        for key in OUTPUT_KEYS:
            if isinstance(data := _field(meta, key, "data"), str):
                self._written.add(data)
        code = _field(meta, EXIT_KEY, "exit_code")
        self._written.exit_code = code if isinstance(code, int) else self._written.exit_code

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_telling(self) -> bool:
        """True if enough is known to show a line on the screen."""
        shows = any(each.type != "terminal" for each in self._content)  # a terminal is still empty
        return bool(self.input or self.paths or shows) or self.status != "pending"

    @property
    def name(self) -> str:
        own = self._name if self._name.replace("_", "").replace("-", "").isalnum() else ""
        return (own if self._own_title else NAMES.get(self.kind, own))[:40] or "tool"

    @property
    def _own_title(self) -> str:
        """The title without the leading tool name, if the agent formats its titles as Sanderling does; otherwise ""."""
        name, _, rest = self._title.partition(" ")
        is_own = name == self._name and self.kind != "execute"
        # The user approves this file: show the path, not a free text.
        if self.kind in OF_FILES and self.path:
            path, _, _ = rest.partition(":")
            is_own = is_own and name in OF_FILES[self.kind] and path == self._shown(self.path)
        return rest if is_own else ""

    @property
    def title(self) -> str:
        """What the call works on: its command, its path, or the agent's own title."""
        if self.command:
            line = self.command
        elif self._own_title:
            line = self._own_title
        elif self.kind in OF_FILES and self.path:
            line = self._shown(self.path)
        else:
            line = self._title.strip().strip("`")
        # `clean` would drop text before a \r.
        line = " ".join(CONTROL.sub(" ", printable(line)).split())
        return shortened(line, MAX_TITLE_CHARS)

    @property
    def command(self) -> str:
        """The shell command line that the call would run; "" for other calls. Rules and the mode judge it."""
        if self.kind != "execute":
            return ""
        return agents.command_of(agents.ToolCall(self.kind, self.input))

    @property
    def path(self) -> str:
        """Path of the call's first file; "" if it names none."""
        diffs = self.diffs
        return (diffs[0].path or "") if diffs else self.paths[0] if self.paths else ""

    @property
    def diffs(self) -> tuple[ToolContent, ...]:
        return tuple(each for each in self._content if each.type == "diff")

    @property
    def terminals(self) -> tuple[str, ...]:
        """IDs of the call's first terminals. The limit bounds work: each output event re-reads up to 256 KiB per terminal."""
        named = dict.fromkeys(each.terminal_id for each in self._content if each.terminal_id)
        return tuple(named)[:MAX_TERMINALS]

    @property
    def text(self) -> str:
        """The call's text without a Markdown fence, else the output of its command."""
        return clean(self._own_text).rstrip() or self._written.text.rstrip()

    @property
    def _own_text(self) -> str:
        texts = (text_of(each.content) for each in self._content if each.content)
        return "\n".join(_unfenced(text) for text in texts if text)

    def news(self, output: str = "") -> str:
        """
        Return the text since the last call of this method; "" if the text no longer begins with what was shown.

        `output` is the output of the call's terminals.
        """
        if self.has_ended or self.diffs:
            return ""
        text = self.text or output
        if not text.startswith(self._written.put_out):
            return ""
        new, self._written.put_out = text[len(self._written.put_out) :], text
        return new

    async def preview(self) -> tuple[str, str]:
        """Return what the call would run or change, or its description, and the filetype of that."""
        if self.command:
            return self.command, "bash"
        if changed := await self._difference():
            return changed.detail, "diff"
        # In full, because the user approves it.
        if text := printable(self._own_text).rstrip() or self.text:
            return text, ""
        if self.input:
            return msgspec.json.format(msgspec.json.encode(self.input)).decode(), "json"
        return self.title, ""

    async def ending(self, how: Literal["", "stopped"] = "", output: str = "") -> CallEnding:
        """Return the outcome of the call; `output` is the output of its terminals."""
        self._written.finish()
        is_error = self.status == "failed" or bool(how)
        text = (self.text or output or _output_text(self.output))[:MAX_TOLD_CHARS]
        rest = text.removeprefix(self._written.put_out)
        if not is_error and (changed := await self._difference()):
            return changed
        took = _took(monotonic() - self.begun_at)
        if self.is_denied:
            return CallEnding("denied", is_error=True, text=text, is_denied=True)
        code = self._written.exit_code
        failed = f"exit status {code} · {took}" if code else "failed"
        summary = how or (failed if is_error or code else f"✓ {took}" if self.has_ended else "")
        detail = rest.strip("\n")[:MAX_DETAIL_CHARS]
        before = len(text.removesuffix(rest).rstrip("\n")) or None
        is_error = is_error or bool(code)
        return CallEnding(summary, detail, is_error=is_error, text=text, output_chars=before)

    async def _difference(self) -> CallEnding | None:
        """Return the outcome of a call with diffs: the diffs, and the number of lines added and removed."""
        changed, parts = list[ChangedLines](), list[str]()
        diffs = self.diffs
        for diff in diffs:
            old, new, path = diff.old_text or "", diff.new_text or "", self._shown(diff.path or "")
            if not is_shown(diff):
                parts.append(f"({path}: too large to show a diff)")
                continue
            change = await difference(old, new)
            changed.append(ChangedLines(path, *change.counts))
            is_named = len(diffs) == 1 and self.kind in OF_FILES
            head = "" if is_named else f"--- {path}\n"
            parts.append(head + shown_to_person(change).subject)
        if not parts:
            return None
        added, removed = sum(file.added for file in changed), sum(file.removed for file in changed)
        text = "\n".join(parts)[:MAX_TOLD_CHARS]
        detail = text[:MAX_DETAIL_CHARS]
        return CallEnding(f"+{added} −{removed}", detail, "diff", text=text, changed=tuple(changed))


def is_shown(diff: ToolContent) -> bool:
    return len(diff.old_text or "") + len(diff.new_text or "") <= MAX_DIFF_CHARS


def text_of(block: ContentBlock) -> str:
    """Return the text of a content block, or a placeholder in brackets for other content."""
    match block.type:
        case "text":
            return block.text or ""
        case "resource" if block.resource and block.resource.text:
            return block.resource.text
        case "resource" | "resource_link":
            return f"[{(block.resource.uri if block.resource else block.uri) or 'a resource'}]"
        case kind:
            return f"[{kind[:40]}]"


def _is_fit(given: dict[str, Any]) -> bool:
    """Check that a tool's input is small and shallow enough to be shown and logged."""
    waiting: list[tuple[Any, int]] = [(given, 0)]
    room = MAX_INPUT_CHARS
    while waiting:
        item, depth = waiting.pop()
        parts: list[Any] = []
        match item:
            case dict():
                parts = [*item, *item.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            case list():
                parts = item  # pyright: ignore[reportUnknownVariableType]
            case str():
                room -= len(item)
            case int() if item.bit_length() > MAX_BITS:
                return False
            case _:
                pass
        room -= 1
        if depth > MAX_DEPTH or room < 0:
            return False
        waiting += [(each, depth + 1) for each in parts]
    return True


def _unfenced(text: str) -> str:
    lines = text.strip("\n").split("\n")
    is_fenced = len(lines) > 1 and lines[0].startswith("```") and lines[-1].strip() == "```"
    return "\n".join(lines[1:-1]) if is_fenced else text


def _output_text(output: Any) -> str:
    """Return a tool's raw output as text, for a call without content."""
    if isinstance(output, str):
        return clean(output)
    if not isinstance(output, dict):
        return ""
    for key in ("output", "stdout", "text", "error", "message"):
        if isinstance(said := output.get(key), str) and said:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            return clean(said)
    return ""


def _field(meta: dict[str, Any], key: str, name: str) -> Any:
    value = meta.get(key)
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)
