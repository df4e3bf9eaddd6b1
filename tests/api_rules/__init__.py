"""
What the APIs refuse, as they word it: judges of requests that know nothing of how ours are made, a module for each format.

From their documentation, the types of their SDKs and the errors that their users report. Where these leave room, a judge is the
stricter one. Here is what the formats have in common.
"""

import base64
import binascii
import io
import json
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pypdf

Block = Mapping[str, Any]

MAX_IMAGE_BYTES = 5 << 20
MAX_IMAGES, MANY_IMAGES = 100, 20
MAX_PDF_PAGES = 100
MAX_IMAGE_SIDE, MANY_IMAGES_SIDE = 8000, 2000
IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
FUNCTION_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")  # alone it is no text; in a pair it is
_DATA_URL = re.compile(r"data:(image/[a-z]+);base64,(.*)", re.DOTALL)


def decoded(body: bytes) -> Any:
    """
    Return the request that `body` is.

    Raises:
        ValueError: it is no JSON, or holds what is no text.
    """
    request = json.loads(body)
    if _SURROGATE.search(body):
        json.dumps(request, ensure_ascii=False).encode()
    return request


def is_blank(text: object) -> bool:
    return not isinstance(text, str) or not text.strip()


def of_fields(value: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    for field in sorted(set(value) - set(known)):
        yield f".{field}: Unknown parameter"


def of_arguments(arguments: object) -> Iterator[str]:
    """The arguments of a call, as the formats of OpenAI write them: a string that is a JSON object."""
    try:
        is_object = isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except ValueError:
        is_object = False
    if not is_object:
        yield "arguments: must be a string that holds a JSON object"


def of_base64_image(data: object, media_type: str = "image/png") -> Iterator[str]:
    if media_type not in IMAGE_TYPES:
        yield f": unsupported image type {media_type}"
    try:
        size = len(base64.b64decode(data, validate=True)) if isinstance(data, str) else 0
    except binascii.Error:
        yield ": not valid base64"
    else:
        if not 0 < size <= MAX_IMAGE_BYTES:
            yield f": an image has 1 to {MAX_IMAGE_BYTES} bytes, not {size}"


def of_pdf(source: Mapping[str, Any]) -> Iterator[str]:
    if source.get("type") != "base64" or source.get("media_type") != "application/pdf":
        yield ".pdf.source.media_type: Input should be 'application/pdf'"
    try:
        data = base64.b64decode(source["data"], validate=True)
    except binascii.Error:
        yield ".pdf.source.base64.data: not valid base64"
        return
    try:
        pages = len(pypdf.PdfReader(io.BytesIO(data)).pages)
    except pypdf.errors.PyPdfError:
        yield ".pdf.source.base64.data: The PDF specified was not valid."
    else:
        if pages > MAX_PDF_PAGES:
            yield f".pdf.source.base64.data: A maximum of {MAX_PDF_PAGES} PDF pages may be provided."


def image_size(data: bytes) -> tuple[int, int] | None:
    """The width and the height of a PNG, GIF, baseline or progressive JPEG; None: they are not known here."""
    if data[12:16] == b"IHDR" and len(data) >= 24:
        return struct.unpack(">II", data[16:24])  # type: ignore[return-value]
    if data[:4] == b"GIF8" and len(data) >= 10:
        return struct.unpack("<HH", data[6:10])  # type: ignore[return-value]
    if frame := re.search(rb"\xff[\xc0-\xc2]..\x08(..)(..)", data, re.DOTALL):
        return int.from_bytes(frame[2]), int.from_bytes(frame[1])
    return None


def of_image_sizes(images: Sequence[bytes]) -> Iterator[str]:
    """The rules of the Messages API for the sizes of all images of a request."""
    if len(images) > MAX_IMAGES:
        yield f"messages: too many images and documents: {len(images)} > {MAX_IMAGES}"
    limit = MANY_IMAGES_SIDE if len(images) > MANY_IMAGES else MAX_IMAGE_SIDE
    kind = "allowed size for many-image requests" if len(images) > MANY_IMAGES else "allowed size"
    for data in images:
        size = image_size(data)
        if size and 0 in size:
            yield "Could not process image"
        elif size and max(size) > limit:
            yield f"At least one of the image dimensions exceed max {kind}: {limit} pixels"


def of_image_url(url: object) -> Iterator[str]:
    match = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match:
        yield from of_base64_image(match[2], match[1])
    else:
        yield ": not a data URL of an image"


def of_function(function: Mapping[str, Any], *, is_strict: bool) -> Iterator[str]:
    """A function as the model is told of it; `is_strict`: its input is held to the schema."""
    if not FUNCTION_NAME.fullmatch(str(function.get("name", ""))):
        yield f".name: must match the pattern '^{FUNCTION_NAME.pattern}$'"
    schema = function.get("parameters", {"type": "object"})
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield ".parameters: schema must be a JSON Schema of 'type: \"object\"'"
    elif {"oneOf", "anyOf", "allOf", "enum", "not", "$ref"} & set(schema):
        yield ".parameters: schema must not have oneOf, anyOf, allOf, enum, not or $ref at the top level"
    elif is_strict:
        yield from (f".parameters{problem}" for problem in _of_strict(schema))


def _of_strict(schema: object, where: str = "") -> Iterator[str]:
    """Structured Outputs: each object closed, each property required, a reference alone."""
    if isinstance(schema, list):
        for n, each in enumerate(schema):
            yield from _of_strict(each, f"{where}.{n}")
    if not isinstance(schema, dict):
        return
    if "$ref" in schema and len(schema) > 1:
        yield f"{where}: $ref cannot have keywords beside it"
    for keyword in sorted({"oneOf", "allOf", "not", "patternProperties", "default"} & set(schema)):
        yield f"{where}: '{keyword}' is not permitted"
    properties = schema.get("properties", {})
    if schema.get("type") == "object" or properties:
        if schema.get("additionalProperties") is not False:
            yield f"{where}: 'additionalProperties' is required to be supplied and to be false"
        if set(schema.get("required", ())) != set(properties):
            yield f"{where}: 'required' is required to include every key in properties"
    for part in ("properties", "$defs"):
        for name, each in schema.get(part, {}).items():
            yield from _of_strict(each, f"{where}.{part}.{name}")
    for part in ("items", "anyOf"):
        yield from _of_strict(schema.get(part), f"{where}.{part}")
