"""Results of calls, as short as our own tools' results; all of a long one is in a file."""

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from sanderling.images import MEDIA_TYPES, ImageError, checked_base64
from sanderling.protocol.messages import ImageBlock, ImageSource, TextBlock
from sanderling.tools.base import Context
from sanderling.tools.commands.output import MAX_TOLD_BYTES, OutputLog
from sanderling.tools.outcome import Content, Outcome

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

MAX_IMAGES = 10
MAX_COMPARED_CHARS = 1 << 20  # of texts that may repeat the structured content


async def outcome_of(result: "CallToolResult", context: Context) -> Outcome:
    """Return the outcome of an answered call, which may be an error of the tool."""
    texts, images = await to_thread.run_sync(_parts, result)
    text = await _bounded("\n".join(texts), context)
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
    is_short = sum(map(len, texts)) <= MAX_COMPARED_CHARS
    if structured is not None and not (
        is_short and any(_is_same(text, structured) for text in texts)
    ):
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    return texts, images


def _is_same(text: str, structured: object) -> bool:
    """Compare a text with the structured content, which the protocol repeats for older clients. A long text counts as equal."""
    if len(text) > MAX_TOLD_BYTES:
        return True
    try:
        return json.loads(text) == structured
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


async def _bounded(text: str, context: Context) -> str:
    """Return the text, or its beginning and end with the path of the whole text."""
    data = text.encode(errors="replace")
    if len(data) <= MAX_TOLD_BYTES:
        return text
    directory, shown_directory = await context.workspace.sandbox.environment.scratch()
    name = f"result-{secrets.token_hex(4)}.txt"
    path = os.path.join(directory, name)  # noqa: PTH118
    log = OutputLog(Path(path), shown_as=f"{shown_directory}/{name}", is_new=True)
    try:
        await to_thread.run_sync(log.add, data)
        note = log.note().replace("of output", "of the result")
        return f"{log.text()}\n[{note}]"
    finally:
        log.close()


def _summary(result: "CallToolResult", text: str, images: int) -> str:
    if result.is_error:
        return "failed"
    lines = text.count("\n") + bool(text)
    shown = [f"{lines} line{'s' * (lines != 1)}"] if text else []
    return ", ".join([*shown, *([f"{images} image{'s' * (images > 1)}"] if images else [])])
