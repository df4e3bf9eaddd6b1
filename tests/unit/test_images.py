"""Images are known by their structure, and never decoded."""

import pytest
from tests.pictures import chunk, gif, in_base64, jpeg, png, segment, webp

from sanderling.images import (
    MAX_IMAGE_BYTES,
    ImageError,
    Picture,
    checked,
    checked_base64,
    is_about_images,
    measured,
    place_in,
)

EXIF = segment(0xE1, b"Exif\0\0" + b"\xff\xc0\0\x11\x08\x40\0\x40\0" + bytes(60_000))
PICTURES = {
    "png": (png(3, 2), "image/png", 3, 2),
    "a png with text before its pixels": (png(3, 2, chunk(b"tEXt", b"a" * 99)), "image/png", 3, 2),
    "an animated png": (png(3, 2, chunk(b"acTL", bytes(8))), "image/png", 3, 2),
    "a png with words after it": (png(3, 2) + b"trailing", "image/png", 3, 2),
    "gif": (gif(3, 2), "image/gif", 3, 2),
    "an old gif": (gif(3, 2, version=b"87a"), "image/gif", 3, 2),
    "an animated gif": (gif(3, 2, frames=30), "image/gif", 3, 2),
    "a gif without its end": (gif(3, 2)[:-1], "image/gif", 3, 2),
    "jpeg": (jpeg(3, 2), "image/jpeg", 3, 2),
    "a progressive jpeg": (jpeg(3, 2, frame=0xC2), "image/jpeg", 3, 2),
    "a lossless jpeg": (jpeg(3, 2, frame=0xC3), "image/jpeg", 3, 2),
    "a jpeg in four colors": (jpeg(3, 2, parts=4), "image/jpeg", 3, 2),
    "a jpeg with exif": (jpeg(3, 2, EXIF), "image/jpeg", 3, 2),
    "a jpeg with filling": (jpeg(3, 2, b"\xff\xff\xff"), "image/jpeg", 3, 2),
    "a jpeg of a camera": (jpeg(3, 2) + bytes(100), "image/jpeg", 3, 2),
    "webp": (webp(3, 2), "image/webp", 3, 2),
    "a lossless webp": (webp(3, 2, b"VP8L"), "image/webp", 3, 2),
    "an animated webp": (webp(3, 2, b"VP8X"), "image/webp", 3, 2),
    "a long png": (png(100, 9000), "image/png", 100, 9000),
    "a png bomb": (png(100_000, 100_000), "image/png", 100_000, 100_000),
    "a large lossless webp": (webp(16384, 16384, b"VP8L"), "image/webp", 16384, 16384),
    "a large canvas": (webp(1 << 24, 1, b"VP8X"), "image/webp", 1 << 24, 1),
    "a large jpeg": (jpeg(65535, 8001), "image/jpeg", 65535, 8001),
}


@pytest.mark.parametrize("name", PICTURES)
def test_an_image_is_measured(name):
    data, kind, width, height = PICTURES[name]
    assert measured(data) == Picture(kind, width, height)


@pytest.mark.parametrize("name", PICTURES)
def test_an_image_that_is_cut_off_anywhere_is_none(name):
    data, *_ = PICTURES[name]
    has_tail = "after it" in name or "camera" in name or "animated gif" in name or "without" in name
    for end in range(1, min(len(data), 300)):
        try:
            measured(data[:end])
        except ImageError:
            continue
        assert has_tail or end >= len(data) - 60, end
    if not has_tail and "gif" not in name:
        with pytest.raises(ImageError):
            measured(data[:-1])


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "it is not PNG, JPEG, GIF or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "it is not PNG"),
        (b"BM" + bytes(100), "it is not PNG"),
        (b"II*\0" + bytes(100), "it is not PNG"),
        (b"\0\0\0\x1cftypavif" + bytes(100), "it is not PNG"),
        (b"\x89PNG\r\n\x1a\n", "cut off"),
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "not a valid PNG"),
        (png()[:20] + b"\0\0\0\x09" + png()[24:], "damaged"),
        (png(0, 5), "it is 0x5 pixels"),
        (gif(5, 0), "it is 5x0 pixels"),
        (jpeg(5, 0), "it is 5x0 pixels"),
        (b"\xff\xd8\xff\xd9", "not a valid JPEG"),
        (b"RIFF\xff\xff\xff\x7fWEBP" + bytes(100), "cut off"),
        (b"GIF89a" + bytes(100), "cut off"),
        (png(100, 9000), "9000 pixels high; at most 8000"),
        (png(9000, 100), "9000 pixels wide; at most 8000"),
        (gif(8001, 9000), "8001x9000 pixels; at most 8000 each"),
        (jpeg(8001, 8000), "8001 pixels wide; at most 8000"),
        (webp(9000, 3, b"VP8X"), "9000 pixels wide; at most 8000"),
        (png() + bytes(MAX_IMAGE_BYTES), "bytes; at most 3,932,160 bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_image_that_an_api_may_refuse_is_refused_with_the_reason(data, words):
    with pytest.raises(ImageError, match=words):
        checked(data)
    with pytest.raises(ImageError):
        checked_base64(in_base64(data), "image/png")


def test_what_is_no_base64_is_no_image():
    with pytest.raises(ImageError, match="not base64"):
        checked_base64("no base64!", "image/png")


def test_an_image_is_of_the_type_that_it_is_said_to_be():
    assert checked_base64(in_base64(jpeg()), "image/jpg").media_type == "image/jpeg"
    with pytest.raises(ImageError, match="it is image/png, not image/jpeg"):
        checked_base64(in_base64(png()), "image/jpeg")


def test_the_largest_image_is_taken():
    assert checked(png(8000, 8000)).side == 8000
    whole = png()
    assert checked(whole + bytes(MAX_IMAGE_BYTES - len(whole)))


@pytest.mark.parametrize(
    "words, place",
    [
        ("messages.3.content.1.image.source.base64.data: At least one …", (3, 1)),
        ("messages.3.content.1.content.0.image.source.base64: image exceeds", (3, 1)),
        ("Invalid 'input[2].content[1].image_url'", (2, 1)),
        ("Invalid type for 'messages[4].content[0].image_url.url'", (4, 0)),
        ("messages: too many images and documents", None),
        ("Could not process image", None),
    ],
)
def test_the_place_that_an_api_names_is_found(words, place):
    assert is_about_images(words)
    assert place_in(words) == place


def test_a_refusal_of_something_else_is_not_about_images():
    assert not is_about_images("max_tokens: must be greater than 0 (imagenet)")
