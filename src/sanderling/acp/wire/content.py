"""Content of prompts, messages and tool calls."""

from typing import ClassVar

from sanderling.acp.wire.base import Wire


class Resource(Wire, frozen=True):
    """An embedded resource: its `text`, or its bytes as base64."""

    exact: ClassVar = ("text", "blob")
    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None


class Annotations(Wire, frozen=True):
    audience: list[str] | None = None
    priority: float | None = None
    last_modified: str | None = None


class ContentBlock(Wire, frozen=True):
    """
    A piece of content. Its `type` determines its fields.

    text: `text`; image: `data`, `mime_type`, optionally `uri`; audio: `data`, `mime_type`; resource_link: `uri` and `name`; resource:
    `resource`.
    """

    exact: ClassVar = ("text", "data", "uri", "name", "resource")
    type: str
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None
    uri: str | None = None
    name: str | None = None
    title: str | None = None
    description: str | None = None
    size: int | None = None
    resource: Resource | None = None
    annotations: Annotations | None = None


def text_block(text: str) -> ContentBlock:
    return ContentBlock(type="text", text=text)


class ToolContent(Wire, frozen=True):
    """
    Content shown by a tool call.

    `type` is content, with `content`; diff, with an absolute `path` and texts (no `old_text` for a new file); or terminal, with
    `terminal_id`.
    """

    exact: ClassVar = ("content", "path", "new_text", "terminal_id")
    type: str
    content: ContentBlock | None = None
    path: str | None = None
    old_text: str | None = None
    new_text: str | None = None
    terminal_id: str | None = None


def shown_text(text: str) -> ToolContent:
    return ToolContent(type="content", content=text_block(text))


def shown_diff(path: str, old_text: str | None, new_text: str) -> ToolContent:
    return ToolContent(type="diff", path=path, old_text=old_text, new_text=new_text)


def shown_terminal(terminal_id: str) -> ToolContent:
    return ToolContent(type="terminal", terminal_id=terminal_id)


class Location(Wire, frozen=True):
    """A place that a tool works on: an absolute path, and a line counted from 1."""

    path: str
    line: int | None = None
