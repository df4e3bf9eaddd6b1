"""Tools of servers for the model: the server's description, a call for each use, and results as short as our own tools' results."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from anyio import to_thread

from sanderling.errors import ToolError
from sanderling.images import MEDIA_TYPES, ImageError, checked_base64
from sanderling.mcp.offers import RemoteTool
from sanderling.mcp.problems import ServerError
from sanderling.mcp.server import Server
from sanderling.protocol.messages import ImageBlock, ImageSource, TextBlock
from sanderling.text import counted, printable
from sanderling.tools.base import Arguments, Context, OutsideTool
from sanderling.tools.bounded import bounded
from sanderling.tools.commands.output import MAX_TOLD_BYTES
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Content, Outcome, Preview
from sanderling.tools.workspace import Workspace

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

PROGRESS_S = 0.1
MAX_PROGRESS_CHARS = 500
MAX_IMAGES = 10
MAX_COMPARED_CHARS = 1 << 20  # of texts that may repeat the structured content


def tool_of(server: Server, remote: RemoteTool, name: str) -> OutsideTool:
    """Return the tool `remote` of `server` under the `name` that the model uses."""
    return OutsideTool(
        name,
        Arguments,
        partial(_run, server, remote),
        lambda _args, _workspace: Effect(name, "call", server=server.declared.mark),
        partial(_title, remote),
        partial(_look, server, remote),
        remote_description=remote.description,
        input_schema=remote.schema,
    )


def _title(remote: RemoteTool, args: Arguments, _: Workspace) -> str:
    values = remote.arguments(args.values)
    return ", ".join(f"{name}: {_inline(value)}" for name, value in values.items())


def _inline(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


async def _look(server: Server, remote: RemoteTool, args: Arguments, _: Context) -> Preview:
    claims = f"{server.name} says of it: {', '.join(remote.claims)}. This is not verified."
    values = msgspec.json.format(msgspec.json.encode(remote.arguments(args.values))).decode()
    return Preview(values, "json", claims if remote.claims else "")


async def _run(server: Server, remote: RemoteTool, args: Arguments, context: Context) -> Outcome:
    progress = _Progress(context)
    try:
        result = await server.call(remote.name, remote.arguments(args.values), progress.show)
    except ServerError as error:
        raise ToolError(f"MCP server {server.name}: {error}.") from error
    finally:
        context.workspace.sandbox.look_after("", has_failed=False)
    return await outcome_of(result, context)


class _Progress:
    """Shows the progress of a call, not more often than one can read it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._next_at = 0.0

    async def show(self, progress: float, total: float | None, message: str | None) -> None:
        if anyio.current_time() < self._next_at:
            return
        self._next_at = anyio.current_time() + PROGRESS_S
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        line = " ".join(printable(f"{message or ''} ({share})").split())
        self._context.show(f"{line[:MAX_PROGRESS_CHARS]}\n")


async def outcome_of(result: "CallToolResult", context: Context) -> Outcome:
    """Return the outcome of an answered call, which may be an error of the tool."""
    texts, images = await to_thread.run_sync(_parts, result)
    text = await bounded("\n".join(texts), context)
    shown = text if text.strip() else "(nothing)"  # some APIs reject a blank text
    content: Content = (TextBlock(shown), *images) if images else shown
    return Outcome(
        content=content,
        summary=_summary(result, text, len(images)),
        detail=text,
        is_error=result.is_error,
    )


def _parts(result: "CallToolResult") -> tuple[list[str], list[ImageBlock]]:
    texts: list[str] = []
    images: list[ImageBlock] = []
    for block in result.content:
        if block.type != "image":
            texts.append(_text_of(block))
            continue
        if len(images) == MAX_IMAGES:
            texts.append(_not_shown("image", block, f"at most {MAX_IMAGES} of a result are"))
            continue
        try:
            picture = checked_base64(block.data, block.mime_type)
        except ImageError as error:
            why = str(error) if block.mime_type in MEDIA_TYPES else ""
            texts.append(_not_shown("image", block, why))
        else:
            images.append(ImageBlock(ImageSource(picture.media_type, block.data)))
    structured = result.structured_content
    if structured and not _repeats(structured, texts):
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    return texts, images


def _repeats(structured: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """
    Return whether structured content only repeats the texts, which the protocol requires for older clients.

    FastMCP wraps anything but an object as `{"result": …}`, other SDKs use other names, and items of a list are texts of their own.
    """
    values: list[Any] = [structured]
    if len(structured) == 1:
        values += structured.values()
    return any(_is_said(value, texts) for value in values)


def _is_said(value: Any, texts: Sequence[str]) -> bool:
    if isinstance(value, str) and value.strip() == "\n".join(texts).strip():
        return True
    if sum(map(len, texts)) > MAX_COMPARED_CHARS:
        return False
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    if len(items) == len(texts) and all(map(_is_same, texts, items)):
        return True
    return value is None or any(_is_same(text, value) for text in texts)


def _is_same(text: str, value: Any) -> bool:
    """Compare a text with a part of the structured content. A long text counts as equal to anything but a string."""
    if isinstance(value, str):
        return text.strip() == value.strip()
    if len(text) > MAX_TOLD_BYTES:
        return True
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


def _text_of(block: "ContentBlock") -> str:
    match block.type:
        case "text":
            return block.text
        case "resource":
            return _resource(block.resource)
        case "resource_link":
            about = f" ({block.mime_type})" if block.mime_type else ""
            return (
                f"[resource {block.uri}{about}: {block.description or block.title or block.name}]"
            )
        case "image" | "audio":
            return _not_shown(block.type, block, "")


def _not_shown(kind: str, block: Any, why: str) -> str:
    reason = f": {why}" if why else ""
    size = _bytes_in(block.data)
    return f"[{kind} of type {block.mime_type}, {size:,} bytes, which cannot be shown{reason}]"


def _resource(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if text is not None:
        return f"[resource {resource.uri}]\n{text}"
    size = _bytes_in(resource.blob)
    return f"[resource {resource.uri}: {resource.mime_type or 'binary'}, {size:,} bytes]"


def _bytes_in(data: str) -> int:
    return len(data) * 3 // 4 - data[-2:].count("=")


def _summary(result: "CallToolResult", text: str, images: int) -> str:
    if result.is_error:
        return "failed"
    lines = text.count("\n") + bool(text)
    shown = [counted(lines, "line")] if text else []
    return ", ".join([*shown, *([counted(images, "image")] if images else [])])
