"""Converts the content blocks of a client's prompt to text and attached lines."""

import re
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from sanderling.acp.wire.content import ContentBlock, Resource
from sanderling.acp.wire.errors import invalid
from sanderling.images import ImageError, checked_base64
from sanderling.protocol.messages import Prompt, Selection
from sanderling.text import printable, visible

LINES = r"L?(\d{1,9})(?:C\d+)?(?:[:-]L?(\d{1,9})(?:C\d+)?)?"


class _FileRange(NamedTuple):
    """The file and lines that a URI names; 0 means no line."""

    path: str
    first_line: int = 0
    last_line: int = 0

    def mention(self, project: str) -> str:
        """Return the file's name as the user would write it, with its lines."""
        lines = f":{self.first_line}" if self.first_line else ""
        if self.last_line > self.first_line:
            lines += f"-{self.last_line}"
        return _mention(self.path, project) + lines


def prompt_of(blocks: list[ContentBlock], project: str, prompt_id: str = "") -> Prompt:
    """
    Return the prompt in `blocks`, with the ID `prompt_id` if it is not empty.

    Raises:
        RpcError: the prompt is empty, or contains an unsupported block.
    """
    words: list[str] = []
    selections: list[Selection] = []
    for block in blocks:
        match block:
            case ContentBlock(type="text", text=str() as text):
                words.append(text)
            case ContentBlock(type="resource_link", uri=str() as uri):
                words.append(_place(uri).mention(project))
            case ContentBlock(type="resource", resource=Resource() as resource):
                if resource.text is None:
                    raise invalid("an embedded resource must be text")
                selections.append(_selection(resource, project))
                words.append(_mention(_place(resource.uri).path, project))
            case ContentBlock(type="image", data=str() as data, mime_type=str() as kind):
                selections.append(_image(block.uri, data, kind, project))
            case _:
                raise invalid(f"a prompt cannot contain content of type {block.type!r}")
    text = printable("".join(words))
    if not text.strip():
        raise invalid("the prompt is empty")
    return Prompt(prompt_id or uuid4().hex, text, tuple(selections))


def _place(uri: str) -> _FileRange:
    """Return the file and lines of a URI with a fragment such as `#L10:12` or `#L10-L12`. Other URIs are kept as they are."""
    uri = visible(uri)
    try:
        parts = urlsplit(uri)
    except ValueError:  # not a valid URI
        return _FileRange(uri)
    if parts.scheme not in {"file", ""}:
        return _FileRange(uri)
    found, path = re.fullmatch(LINES, parts.fragment), unquote(parts.path)
    if "\0" in path:  # not a valid path
        return _FileRange(uri)
    return (
        _FileRange(path, *(int(each or 0) for each in found.groups()))
        if found
        else _FileRange(path)
    )


def _mention(path: str, project: str) -> str:
    shown = PurePath(path)
    return str(shown.relative_to(project)) if shown.is_relative_to(project) else path


def _selection(resource: Resource, project: str) -> Selection:
    text = printable((resource.text or "").removesuffix("\n"))
    path, first, _ = _place(resource.uri)
    first = max(1, first)
    last = first + text.count("\n")
    return Selection(printable(_mention(path, project)), first, last, text)


def _image(uri: str | None, data: str, media_type: str, project: str) -> Selection:
    try:
        picture = checked_base64(data, media_type)
    except ImageError as error:
        name = f" '{uri}'" if uri else f" of type {media_type}"
        raise invalid(f"the image{name} cannot be used: {error}") from error
    path = printable(_mention(_place(uri).path, project)) if uri else "image"
    return Selection(path, 1, 1, data, origin="an image", media_type=picture.media_type)
