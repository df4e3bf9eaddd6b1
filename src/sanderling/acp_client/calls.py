"""Tool calls of a guest, put together from all that it tells of each, and shown as uses of our tools are."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Literal, NamedTuple, cast

import msgspec

from sanderling.acp.content import ContentBlock, ToolContent
from sanderling.acp.updates import ToolCall, ToolCallFields
from sanderling.commands.output import clean
from sanderling.text import duration
from sanderling.tools.texts import difference, shown_to_person

MAX_DETAIL_CHARS = 32_768
MAX_DIFF_CHARS = 4 << 20  # of both sides together: nobody reads more
MAX_TITLE_CHARS = 200
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
"""The names of our blocks, by the kind of a tool."""
WRITING = frozenset(("edit", "delete", "move", "execute", "other"))
"""The kinds of tools after which the project is looked at."""
ENDED = ("completed", "failed")


Told = ToolCall | ToolCallFields


class Ending(NamedTuple):
    """The end of a call, as the screen and the log have it; `told` is all of its text."""

    summary: str
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    told: str = ""
    is_denied: bool = False


class Call:
    """
    One call, which grows with what the guest says of it; `id` is our own.

    `shown` says how a path is shown. `is_started`: it is on the screen, or in line for it.
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
        self._put_out = ""

    def take(self, told: Told) -> None:
        """Take in what the guest says of it now: what it leaves out stays as it was."""
        self.kind = told.kind or self.kind
        self.status = told.status or self.status
        self._title = told.title or self._title
        self._name = told.name or self._name
        if isinstance(told.raw_input, dict) and told.raw_input:  # pyright: ignore[reportUnknownMemberType]
            self.input = cast("dict[str, Any]", told.raw_input)
        if told.raw_output is not None:
            self.output = told.raw_output
        if told.locations:
            self.paths = tuple(place.path for place in told.locations)
        if told.content is not None:
            self._content = told.content

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    @property
    def is_telling(self) -> bool:
        """Say whether enough is known of it for a line on the screen."""
        return bool(self.input or self.paths or self._content) or self.status != "pending"

    @property
    def name(self) -> str:
        """The name of its block."""
        own = self._name if self._name.replace("_", "").replace("-", "").isalnum() else ""
        return NAMES.get(self.kind) or own[:40] or "tool"

    @property
    def title(self) -> str:
        """The line that says on what it works: the command, the path, else the guest's own words."""
        command = self.input.get("command")
        words = " ".join(map(str, command)) if isinstance(command, list) else command  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        if self.kind == "execute" and isinstance(words, str) and words:
            line = words
        elif self.kind in ("read", "edit", "delete") and self.path:
            line = self._shown(self.path)
        else:
            line = self._title.strip().strip("`")
        line = " ".join(clean(line).split())
        return line if len(line) <= MAX_TITLE_CHARS else f"{line[: MAX_TITLE_CHARS - 1]}…"

    @property
    def path(self) -> str:
        """The file that it is about, if it names one."""
        diffs = self.diffs
        return (diffs[0].path or "") if diffs else self.paths[0] if self.paths else ""

    @property
    def diffs(self) -> tuple[ToolContent, ...]:
        return tuple(each for each in self._content if each.type == "diff")

    @property
    def terminals(self) -> tuple[str, ...]:
        return tuple(each.terminal_id for each in self._content if each.terminal_id)

    @property
    def text(self) -> str:
        """The text that it shows, without the fence around it."""
        texts = (text_of(each.content) for each in self._content if each.content)
        return clean("\n".join(_unfenced(text) for text in texts if text)).rstrip()

    def news(self) -> str:
        """The text that has come since this was asked last; what the guest has said otherwise meanwhile is left to the end."""
        if self.has_ended or self.diffs:
            return ""
        text = self.text
        if not text.startswith(self._put_out):
            return ""
        new, self._put_out = text[len(self._put_out) :], text
        return new

    async def preview(self) -> tuple[str, str]:
        """All that it would change, as a diff, or what it says of itself; and the syntax of that."""
        if diffs := await self._difference():
            return diffs[1], "diff"
        command = self.input.get("command")
        if self.kind == "execute" and isinstance(command, str):
            return command, "bash"
        if text := self.text:
            return text, ""
        if self.input:
            return msgspec.json.format(msgspec.json.encode(self.input)).decode(), "json"
        return self.title, ""

    async def ending(self, how: Literal["", "stopped"] = "", output: str = "") -> Ending:
        """The end of it; `output` is what its terminals have written."""
        is_error = self.status == "failed" or bool(how)
        text = self.text or output or _output_text(self.output)
        rest = text.removeprefix(self._put_out)
        if not is_error and (changed := await self._difference()):
            return Ending(changed[0], changed[1][:MAX_DETAIL_CHARS], "diff", told=changed[1])
        took = _took(monotonic() - self.begun_at)
        if self.is_denied:
            return Ending("denied", is_error=True, told=text, is_denied=True)
        summary = how or ("failed" if is_error else f"✓ {took}" if self.has_ended else "")
        detail = rest.strip("\n")[:MAX_DETAIL_CHARS]
        return Ending(summary, detail, is_error=is_error, told=text)

    async def _difference(self) -> tuple[str, str] | None:
        """The number of lines that its diffs add and remove, and the diffs."""
        added = removed = 0
        parts: list[str] = []
        diffs = self.diffs
        for diff in diffs:
            old, new, path = diff.old_text or "", diff.new_text or "", self._shown(diff.path or "")
            if len(old) + len(new) > MAX_DIFF_CHARS:
                parts.append(f"({path} is too large to be compared)")
                continue
            change = await difference(old, new)
            added += sum(len(hunk.lines) for hunk in change.hunks)
            removed += sum(hunk.line_count for hunk in change.hunks)
            head = f"--- {path}\n" if len(diffs) > 1 else ""
            parts.append(head + shown_to_person(change).subject)
        return (f"+{added} −{removed}", "\n".join(parts)) if parts else None


def text_of(block: ContentBlock) -> str:
    """The text of a piece of content, or a line that stands for what is none."""
    match block.type:
        case "text":
            return block.text or ""
        case "resource" if block.resource and block.resource.text:
            return block.resource.text
        case "resource" | "resource_link":
            return f"[{(block.resource.uri if block.resource else block.uri) or 'a resource'}]"
        case kind:
            return f"[{kind}]"


def _unfenced(text: str) -> str:
    """`text` without the Markdown fence that is around all of it."""
    lines = text.strip("\n").split("\n")
    is_fenced = len(lines) > 1 and lines[0].startswith("```") and lines[-1].strip() == "```"
    return "\n".join(lines[1:-1]) if is_fenced else text


def _output_text(output: Any) -> str:
    """The raw output of a tool as text, where it shows nothing else."""
    if isinstance(output, str):
        return clean(output)
    if not isinstance(output, dict):
        return ""
    for key in ("output", "stdout", "text", "error", "message"):
        if isinstance(said := output.get(key), str) and said:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            return clean(said)
    return ""


def _took(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else duration(seconds)
