"""Images of any size that hold next to nothing, byte by byte."""

import base64
import struct
import zlib


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int = 1, height: int = 1, *before: bytes, pixels: bytes = b"") -> bytes:
    """A PNG; `before` are chunks before its pixels, which are as many only for one of 1 x 1."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = pixels or zlib.compress(bytes(2))
    parts = (chunk(b"IHDR", header), *before, chunk(b"IDAT", data), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def gif(width: int = 1, height: int = 1, frames: int = 1, version: bytes = b"89a") -> bytes:
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    control = b"\x21\xf9\x04" + bytes(4) + b"\0"
    frame = b"\x2c" + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x44\x01\0"
    return b"GIF" + version + screen + (control + frame) * frames + b"\x3b"


def segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def jpeg(
    width: int = 1, height: int = 1, *before: bytes, frame: int = 0xC0, parts: int = 3
) -> bytes:
    """A JPEG; `frame` is its kind (0xC2: progressive), `parts` its colors (4: CMYK)."""
    colors = b"".join(bytes((n + 1, 0x11, 0)) for n in range(parts))
    size = struct.pack(">BHHB", 8, height, width, parts)
    scan = bytes((parts,)) + b"".join(bytes((n + 1, 0)) for n in range(parts)) + b"\0\x3f\0"
    return b"".join(
        (
            b"\xff\xd8",
            segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
            *before,
            segment(0xDB, bytes(65)),
            segment(0xC4, bytes(17)),
            segment(frame, size + colors),
            segment(0xDA, scan),
            b"\x12\xff\x00\x34",
            b"\xff\xd9",
        )
    )


def webp(width: int = 1, height: int = 1, kind: bytes = b"VP8 ") -> bytes:
    match kind:
        case b"VP8L":
            bits = (width - 1) | (height - 1) << 14
            chunks = riff_chunk(kind, b"\x2f" + struct.pack("<I", bits) + bytes(4))
        case b"VP8X":
            size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
            inner = riff_chunk(b"VP8 ", b"\x30\x01\0\x9d\x01\x2a" + struct.pack("<HH", 1, 1))
            chunks = riff_chunk(kind, bytes(4) + size) + riff_chunk(b"ANMF", bytes(16) + inner)
        case _:
            chunks = riff_chunk(kind, b"\x30\x01\0\x9d\x01\x2a" + struct.pack("<HH", width, height))
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP" + chunks


def riff_chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
