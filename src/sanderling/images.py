"""
Images for models: their kind and size, read from the file's structure, and the limits of APIs.

An image that an API rejects would be in every later request, and each would be rejected: the session is lost. So an image is checked
before it enters a history. It is never decoded: a PNG of 25 kB can hold a picture of 10 GB. Its structure is read to the end, because a
file that was cut off has a valid beginning.

Formats: https://www.w3.org/TR/png-3, https://www.w3.org/Graphics/GIF/spec-gif89a.txt, ITU-T T.81 (JPEG), and
https://developers.google.com/speed/webp/docs/riff_container
"""

import base64
import re
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

MAX_BASE64_CHARS = 5 << 20
MAX_IMAGE_BYTES = MAX_BASE64_CHARS * 3 // 4
MAX_PDF_PAGES = 100
"""Pages of all PDFs in a request."""
MAX_PDF_BYTES = 16 << 20
"""In base64, about two thirds of the smallest limit of a request."""
MAX_SIDE = 8000
_AT_MOST = f"at most {MAX_IMAGE_BYTES:,} bytes"
KINDS = "PNG, JPEG, GIF or WebP"

_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
MEDIA_TYPES = frozenset((*_SIGNATURES.values(), "image/webp"))
_CUT = "it is cut off"
_NOT_FRAMES = frozenset((0xC4, 0xC8, 0xCC))  # tables, among the markers of frames
_BARE_MARKERS = frozenset((0x01, *range(0xD0, 0xD8)))  # without a length
_SOS, _EOI = 0xDA, 0xD9


class ImageError(ValueError):
    """An image cannot be used; `str(error)` says why, as a part of a sentence."""


class Picture(NamedTuple):
    media_type: str
    width: int
    height: int

    @property
    def side(self) -> int:
        return max(self.width, self.height)


def kind_of(data: bytes) -> str:
    """Return the media type of the image that begins with `data`; empty if models do not accept it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _SIGNATURES.items() if data.startswith(magic)), "")


def measured(data: bytes) -> Picture:
    """
    Read an image's kind and size, without limits.

    Raises:
        ImageError: no API could read it.
    """
    kind = kind_of(data)
    if not kind:
        raise ImageError(f"it is not {KINDS}")
    try:
        width, height = _READERS[kind](data)
    except (struct.error, IndexError) as error:
        raise ImageError(_CUT) from error
    if not (width and height):
        raise ImageError(f"it is {width}x{height} pixels")
    return Picture(kind, width, height)


def checked(data: bytes) -> Picture:
    """
    Read an image's kind and size, and check the limits of all APIs.

    Raises:
        ImageError: an API may reject it.
    """
    if len(data) > MAX_IMAGE_BYTES:
        raise ImageError(f"it has {len(data):,} bytes; {_AT_MOST}")
    picture = measured(data)
    if problem := too_many_pixels(picture, MAX_SIDE):
        raise ImageError(problem)
    return picture


def checked_base64(data: str, media_type: str) -> Picture:
    """
    Read the kind and size of an image in base64, and check that every API accepts it as a `media_type`.

    Raises:
        ImageError: an API may reject it, or it is not base64.
    """
    if len(data) > MAX_BASE64_CHARS:
        raise ImageError(f"it has about {len(data) * 3 // 4:,} bytes; {_AT_MOST}")
    picture = checked(_decoded(data))
    if picture.media_type != media_type.lower().replace("image/jpg", "image/jpeg"):
        raise ImageError(f"it is {picture.media_type}, not {media_type}")
    return picture


def measured_base64(data: str) -> Picture:
    """
    Read the kind and size of an image in base64, without limits.

    Raises:
        ImageError: no API could read it.
    """
    return measured(_decoded(data))


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise ImageError("it is not base64") from error


def too_many_pixels(picture: Picture, limit: int) -> str:
    """Describe how far a picture exceeds `limit`; empty if it does not."""
    wide, high = picture.width > limit, picture.height > limit
    if wide and high:
        return f"{picture.width}x{picture.height} pixels; at most {limit} each"
    if wide or high:
        return f"{picture.side} pixels {'wide' if wide else 'high'}; at most {limit}"
    return ""


# --- formats -----------------------------------------------------------------------------------------------------------


def _png(data: bytes) -> tuple[int, int]:
    """Read a PNG: IHDR comes first, at least one IDAT follows, and IEND is the last chunk."""
    length, name, width, height = struct.unpack_from(">I4sII", data, 8)
    if name != b"IHDR" or length != 13:  # noqa: PLR2004 - bytes of this chunk
        raise ImageError("it is not a valid PNG")
    if struct.unpack_from(">I", data, 29)[0] != zlib.crc32(data[12:29]):
        raise ImageError("its header is damaged")
    at, has_pixels = 33, False
    while name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, at)
        has_pixels |= name == b"IDAT" and length > 0
        at += 12 + length
    if at > len(data) or not has_pixels:
        raise ImageError(_CUT)
    return width, height


def _gif(data: bytes) -> tuple[int, int]:
    """Read a GIF: the screen, and blocks until the trailer. Of an animation the first picture is enough."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at, pictures = 13 + _gif_colors(flags), 0
    while at < len(data):
        block = data[at]
        if block == 0x3B:  # noqa: PLR2004 - the trailer
            break
        if block == 0x21:  # noqa: PLR2004 - an extension
            at = _after_gif_blocks(data, at + 2)
        elif block == 0x2C:  # noqa: PLR2004 - a picture
            left, top, wide, high, flags = struct.unpack_from("<HHHHB", data, at + 1)
            width, height = max(width, left + wide), max(height, top + high)
            at = _after_gif_blocks(data, at + 11 + _gif_colors(flags))
            pictures += at <= len(data)
        else:
            break
    if not pictures:
        raise ImageError(_CUT)
    return width, height


def _gif_colors(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_gif_blocks(data: bytes, at: int) -> int:
    while size := data[at]:
        at += 1 + size
    return at + 1


def _jpeg(data: bytes) -> tuple[int, int]:
    """Read a JPEG: segments up to the scan, one of which is a frame, then the pixels and the end marker."""
    at, size = 2, (0, 0)
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:  # noqa: PLR2004 - filling
            at += 1
        start, marker = data[at], data[at + 1]
        if start != 0xFF or marker == _EOI:  # noqa: PLR2004
            raise ImageError("it is not a valid JPEG")
        if marker in _BARE_MARKERS:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:  # noqa: PLR2004
            height, width = struct.unpack_from(">HH", data, at + 5)
            size = width, height
        at += 2 + max(2, length)
        if marker == _SOS:
            break
    if data.find(b"\xff\xd9", at) < 0:
        raise ImageError(_CUT)
    return size


def _webp(data: bytes) -> tuple[int, int]:
    """Read a WebP: a picture (VP8, VP8L), or VP8X with the size of the canvas, followed by pictures."""
    (size,) = struct.unpack_from("<I", data, 4)
    if size + 8 > len(data):
        raise ImageError(_CUT)
    at, found, has_pixels = 12, (0, 0), False
    while at + 8 <= size + 8:
        name, length = struct.unpack_from("<4sI", data, at)
        has_pixels |= name in (b"VP8 ", b"VP8L", b"ANMF")
        if found == (0, 0):
            found = _webp_size(name, data, at + 8)
        at += 8 + length + length % 2
    if not has_pixels:
        raise ImageError(_CUT)
    return found


def _webp_size(name: bytes, data: bytes, at: int) -> tuple[int, int]:
    if name == b"VP8X":
        width, high_width, height, high_height = struct.unpack_from("<HBHB", data, at + 4)
        return 1 + width + (high_width << 16), 1 + height + (high_height << 16)
    if name == b"VP8L" and data[at] == 0x2F:  # noqa: PLR2004 - its signature
        (bits,) = struct.unpack_from("<I", data, at + 1)
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if name == b"VP8 " and data[at + 3 : at + 6] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, at + 6)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


_READERS: dict[str, Callable[[bytes], tuple[int, int]]] = {
    "image/png": _png,
    "image/jpeg": _jpeg,
    "image/gif": _gif,
    "image/webp": _webp,
}

# --- errors about images -----------------------------------------------------------------------------------------------

_NAMED = r"(?i)\b(pdfs?|documents?|input_file|images?|image_url|input_image|pictures?|vision)\b"
_PLACE = r"(?:messages|input)[.\[](\d+)\]?(?:[.\[]*(?:content|output)\]?[.\[]*(\d+))?"


def is_about_images(words: str) -> bool:
    return bool(re.search(_NAMED, words.replace("_", " ")) or re.search(_NAMED, words))


def place_in(words: str) -> tuple[int, int | None] | None:
    """Return the indices of the message and of its content that an API's `words` name; None if they name none."""
    found = re.search(_PLACE, words)
    return (int(found[1]), int(found[2]) if found[2] else None) if found else None
