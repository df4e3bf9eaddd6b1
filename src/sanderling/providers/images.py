"""
The images and PDFs of requests, limited to what an endpoint accepts.

A history only grows, and each request repeats its images. So an image that an endpoint rejects is replaced by a text in what is sent; the
log keeps it. This also repairs sessions whose logs already have such images. Images beyond a known limit are left out before the request.
Limits that only the API knows are learned from its refusal, and the request is made again.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec
from msgspec.structs import replace

from sanderling.errors import ProviderError
from sanderling.images import (
    MAX_BASE64_CHARS,
    MAX_PDF_PAGES,
    ImageError,
    Picture,
    is_about_images,
    measured_base64,
    place_in,
    too_many_pixels,
)
from sanderling.protocol.messages import (
    PDF_TYPE,
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    ImageSource,
    Message,
    TextBlock,
    ToolResult,
)
from sanderling.providers import ModelRequest
from sanderling.providers.endpoint import Quirks
from sanderling.providers.http.bodies import field, items

MAX_REFUSALS = 4
"""Refusals of a request that are each taken to concern one place; after that no image is sent."""
STEPS = 4
"""Images beyond a limit are left out in steps, because each step costs the cached prefix."""
_MUCH, _LITTLE = 0.75, 0.5  # shares of a request's bytes, for its images
_REFUSED = "the API refused it"

log = logging.getLogger(__name__)


class Images:
    """The images that one provider sends."""

    def __init__(self) -> None:
        self._pictures: dict[int, tuple[ImageSource, Picture | None]] = {}
        self._refused: set[str] = set()
        self._replaced: dict[int, tuple[Message, tuple[str, ...], Message]] = {}

    def fitting(self, request: ModelRequest, quirks: Quirks) -> ModelRequest:
        """Return the request with the images that the endpoint accepts; the same object if it accepts all."""
        sources = [source for message in request.history for source in sources_in(message)]
        if quirks.documents == "none":  # others become texts
            sources = [each for each in sources if each.media_type != PDF_TYPE]
        pages = _pages_in(request.history)
        self._pictures = {id(each): self._look_at(each) for each in sources}
        reasons = self._reasons(sources, pages, quirks) if sources else {}
        before, self._replaced = self._replaced, {}
        if not reasons:
            return request
        history = [self._without(each, reasons, before) for each in request.history]
        return replace(request, history=history)

    def _look_at(self, source: ImageSource) -> tuple[ImageSource, Picture | None]:
        """Return an image with its measurements; None if they cannot be read, and only the API can judge it."""
        if known := self._pictures.get(id(source)):
            return known
        try:
            return source, measured_base64(source.data)
        except ImageError:
            return source, None

    def _side(self, source: ImageSource) -> int:
        picture = self._pictures[id(source)][1]
        return picture.side if picture else 0

    def _reasons(
        self, sources: list[ImageSource], pages: dict[int, int], quirks: Quirks
    ) -> dict[int, str]:
        """Return why images and PDFs are left out, by the identity of their sources."""
        reasons = dict[int, str]()
        for each in sources:
            picture = self._pictures[id(each)][1]
            if each.data in self._refused:
                reasons[id(each)] = _REFUSED
            elif len(each.data) > MAX_BASE64_CHARS and each.media_type != PDF_TYPE:
                reasons[id(each)] = f"it has more than {MAX_BASE64_CHARS >> 20} MB"
            elif picture and (words := too_many_pixels(picture, quirks.image_side)):
                reasons[id(each)] = words
        kept = [each for each in sources if id(each) not in reasons]
        for each in _beyond_pages([pages.get(id(each), 0) for each in kept]):
            reasons[id(kept[each])] = (
                f"PDFs of at most {MAX_PDF_PAGES} pages are sent, the newest ones"
            )
        kept = [each for each in kept if id(each) not in reasons]
        for each in _oldest(kept, quirks.max_images):
            reasons[id(each)] = f"at most {quirks.max_images} images are sent, the newest ones"
        kept = [each for each in kept if id(each) not in reasons]
        if len(kept) > quirks.many_images:
            large = [each for each in kept if self._side(each) > quirks.many_images_side]
            old = _oldest(kept, quirks.many_images)
            words = f"with more than {quirks.many_images} images, each may have at most {quirks.many_images_side} pixels a side"
            fewer = large if len(large) <= len(old) else old
            reasons |= {id(each): words for each in fewer if large}
            kept = [each for each in kept if id(each) not in reasons]
        left = sum(len(each.data) for each in kept)
        if left > quirks.max_request_bytes * _MUCH:
            for each in kept:
                # One PDF may have more than the share; the model has just asked for the newest.
                share = _MUCH if each is kept[-1] else _LITTLE
                if left > quirks.max_request_bytes * share:
                    reasons[id(each)] = "the images and PDFs of a request have too many bytes"
                    left -= len(each.data)
        return reasons

    def _without(
        self,
        message: Message,
        reasons: dict[int, str],
        before: dict[int, tuple[Message, tuple[str, ...], Message]],
    ) -> Message:
        """Return the message without those images; the same object each time, because encoded messages are recognized by identity."""
        words = tuple(reasons.get(id(source), "") for source in sources_in(message))
        if not any(words):
            return message
        known = before.get(id(message))
        if known is None or known[1] != words:
            content = tuple(_left_out(block, reasons) for block in message.content)
            known = message, words, replace(message, content=content)
        self._replaced[id(message)] = known
        return known[2]

    def learn(
        self, request: ModelRequest, body: bytes, error: ProviderError, refusals: int
    ) -> bool:
        """
        Learn from the n-th refusal in a row of `request`, sent as `body`, which images the API rejects.

        Return True if the next request has fewer of them.
        """
        is_refusal = error.kind in ("invalid_request", "context_full")
        if not (is_refusal and is_about_images(error.message)):
            return False
        sent = [source.data for message in request.history for source in sources_in(message)]
        if not sent:
            return False
        place = place_in(error.message)
        named = _images_at(body, place, frozenset(sent)) if place else set[str]()
        if not named and refusals == 1:
            last = [message for message in request.history if any(sources_in(message))][-1]
            named = {source.data for source in sources_in(last)}
        if not named or refusals > MAX_REFUSALS:
            named = set(sent)
        log.warning("asked again without %d images: %s", len(named), error)
        self._refused |= named
        return True

    def forget(self, refused: set[str]) -> None:
        """Reset the rejected images to `refused`, because leaving out others did not help."""
        self._refused = refused

    @property
    def refused(self) -> set[str]:
        return set(self._refused)


def sources_in(message: Message) -> Iterator[ImageSource]:
    for block in message.content:
        parts = block.content if isinstance(block, ToolResult) else (block,)
        yield from (part.source for part in parts if isinstance(part, ImageBlock | DocumentBlock))


def _pages_in(history: Sequence[Message]) -> dict[int, int]:
    """Return the numbers of pages of the PDFs, by the identity of their sources."""
    return {
        id(part.source): part.pages
        for message in history
        for block in message.content
        if isinstance(block, ToolResult) and isinstance(block.content, tuple)
        for part in block.content
        if isinstance(part, DocumentBlock)
    }


def _beyond_pages(pages: Sequence[int]) -> Iterator[int]:
    """Yield the oldest PDFs beyond the limit, and so many more that the cached prefix stays valid for a while; the newest is kept."""
    left = sum(pages)
    if left <= MAX_PDF_PAGES:
        return
    newest = max(number for number, count in enumerate(pages) if count)
    for number, count in enumerate(pages[:newest]):
        if count and left > MAX_PDF_PAGES * _LITTLE:
            left -= count
            yield number


def _oldest(images: Sequence[ImageSource], limit: int) -> Sequence[ImageSource]:
    """Return the oldest of `images`, in steps, so that no more than `limit` remain."""
    step = max(1, limit // STEPS)
    return images[: math.ceil(max(0, len(images) - limit) / step) * step]


def _left_out(block: ContentBlock, reasons: dict[int, str]) -> ContentBlock:
    match block:
        case ImageBlock(source) if reason := reasons.get(id(source)):
            return _text(reason, block)
        case ToolResult(content=tuple() as content):
            parts = (
                _text(reason, part)
                if isinstance(part, ImageBlock | DocumentBlock)
                and (reason := reasons.get(id(part.source)))
                else part
                for part in content
            )
            return replace(block, content=tuple(parts))
        case _:
            return block


def _text(reason: str, block: ImageBlock | DocumentBlock) -> TextBlock:
    what = "An image" if isinstance(block, ImageBlock) else "A PDF"
    return TextBlock(f"[{what} was here. It is not sent: {reason}.]")


def _images_at(body: bytes, place: tuple[int, int | None], known: frozenset[str]) -> set[str]:
    """Return the images among `known` at a place in a request."""
    number, part = place
    request: object = msgspec.json.decode(body)
    messages = items(field(request, "messages")) or items(field(request, "input"))
    at = messages[number] if number < len(messages) else None
    content = items(field(at, "content")) or items(field(at, "output"))
    if part is not None and part < len(content):
        at = content[part]
    return {text for each in _texts(at) if (text := each.rpartition("base64,")[2]) in known}


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in cast("dict[str, object]", value).values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _texts(each)
