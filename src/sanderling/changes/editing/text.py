"""
Converts a file's bytes to text and back.

The text is what models and users read: every line ends in a newline, and bytes that are invalid in the file's encoding read "�". Nothing
is lost: each offset in the text maps to one in the bytes, so a change to one part leaves all other bytes as they are.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator

import msgspec

from sanderling.changes.editing import legacy

LF, CRLF, CR = range(3)
LINE_ENDINGS = ("\n", "\r\n", "\r")
LINE_ENDING_NAMES = ("LF", "CRLF", "CR")

UNREADABLE = "\ufffd"
"""The character shown for a byte that is invalid in the file's encoding."""

BOMS = {  # UTF-32 LE's begins with that of UTF-16 LE
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}
_NAMES = {
    "utf-8": "UTF-8",
    "utf-16-le": "UTF-16 LE",
    "utf-16-be": "UTF-16 BE",
    "utf-32-le": "UTF-32 LE",
    "utf-32-be": "UTF-32 BE",
    "cp1252": "Windows-1252",
    "latin-1": "Latin-1",
    **legacy.NAMES,
}
_WESTERN = ("cp1252", "latin-1")
# Invalid bytes are decoded as lone surrogates, and encoded back to the same bytes.
_ERRORS = dict.fromkeys(BOMS, "surrogatepass") | {"utf-8": "surrogateescape"}
_SURROGATE = "[\ud800-\udfff]"
_NOT_LATIN_1 = rb"[\x80-\x9f]"  # control characters in Latin-1, but Windows-1252 has “€” here
_NOT_WINDOWS_1252 = rb"[\x81\x8d\x8f\x90\x9d]"

_DECLARATION = r"^[ \t\f]*(?:#.*?coding[:=][ \t]*|<\?xml[^>]*?encoding=[\"'])([-\w.]+)"
_MAX_DECLARATION = 1000
_SAMPLE_CHARS = 8192
_MAX_CONTROL_SHARE = 0.3
_CONTROLS = frozenset(map(chr, {*range(32), 127} - set(b"\t\n\r\f\b\x1b")))


class FileText(msgspec.Struct, frozen=True):
    """
    A file's bytes as text.

    `encoding` is Python's name. `exact` is `text` with a lone surrogate for each invalid byte, so that it can be encoded again. `endings`
    has an index into `LINE_ENDINGS` for each newline in the text. `doubtful` lists multibyte encodings that are also possible.
    """

    encoding: str
    bom: bytes
    text: str
    exact: str
    endings: bytes
    doubtful: tuple[str, ...] = ()

    @property
    def has_bom(self) -> bool:
        return bool(self.bom)

    @property
    def encoding_name(self) -> str:
        return _NAMES[self.encoding]

    @property
    def is_binary(self) -> bool:
        """True for a NUL near the beginning, or a large share of control characters."""
        sample = self.exact[:_SAMPLE_CHARS]
        controls = sum(character in _CONTROLS for character in sample)
        return "\0" in sample or controls > _MAX_CONTROL_SHARE * len(sample)

    @property
    def is_damaged(self) -> bool:
        return self.exact is not self.text

    @property
    def line_count(self) -> int:
        return len(self.endings) + (not self.has_final_newline and bool(self.text))

    @property
    def line_ending(self) -> str:
        return LINE_ENDINGS[max((LF, CRLF, CR), key=self.endings.count)]

    @property
    def has_mixed_line_endings(self) -> bool:
        return len(set(self.endings)) > 1

    @property
    def has_final_newline(self) -> bool:
        return self.text.endswith("\n")

    @property
    def note(self) -> str:
        """Unusual properties of the file in one line; may be empty."""
        return self.note_in("")

    def note_in(self, encoding: str) -> str:
        """Return the note for an editor that shows the file in `encoding`, if that is not UTF-8; empty: it shows the text read here."""
        shown = self._encoding_note()
        if encoding and not self.has_bom:
            shown = f"not UTF-8; shown as {encoding}"
        return "; ".join(filter(None, (shown, self._ending_note(), self._end_note())))

    def encode(self, exact: str, endings: bytes) -> bytes:
        return _with_endings(exact, endings).encode(
            self.encoding, _ERRORS.get(self.encoding, "strict")
        )

    def byte_offsets(self, offsets: Iterable[int]) -> Iterator[int]:
        """Yield the byte offset of each text offset; `offsets` must be ascending."""
        done = line = 0
        byte = len(self.bom)
        cr_bytes = len("\r".encode(self.encoding))
        for offset in offsets:
            part = self.exact[done:offset]
            next_line = line + part.count("\n")
            byte += len(part.encode(self.encoding, _ERRORS.get(self.encoding, "strict")))
            byte += self.endings.count(CRLF, line, next_line) * cr_bytes
            done, line = offset, next_line
            yield byte

    def _encoding_note(self) -> str:
        if self.encoding == "utf-8" and not self.has_bom and not self.is_damaged:
            return ""
        if self.encoding in (*_WESTERN, *legacy.NAMES):
            return f"not UTF-8; shown as {self.encoding_name}"
        note = self.encoding_name + (" with BOM" if self.has_bom else "")
        if self.is_damaged:
            count = len(re.findall(_SURROGATE, self.exact))
            note += f" with {count:,} invalid bytes" if count > 1 else " with 1 invalid byte"
            note += f" (read as {UNREADABLE})"
        return note

    def _ending_note(self) -> str:
        if self.has_mixed_line_endings:
            counts = (self.endings.count(kind) for kind in (CRLF, LF))
            return "mixed line endings: {:,} CRLF, {:,} LF".format(*counts)
        ending = LINE_ENDING_NAMES[self.endings[0]] if self.endings else "LF"
        return f"{ending} line endings" if ending != "LF" else ""

    def _end_note(self) -> str:
        return "" if self.has_final_newline or not self.text else "no newline at the end"


def decode(data: bytes) -> FileText:
    """
    Decode a file.

    A byte order mark decides; without one, valid UTF-8 is UTF-8. Otherwise it is UTF-8 with some broken bytes, if at least as many
    non-ASCII characters are valid. Otherwise it is the only plausible East Asian encoding (`legacy`), or Latin-1, or Windows-1252 if it
    uses its additional characters.
    """
    encoding, bom, exact, doubtful = _decoded(data)
    exact, endings = _without_endings(exact)
    is_damaged = not exact.isascii() and re.search(_SURROGATE, exact) is not None
    text = re.sub(_SURROGATE, UNREADABLE, exact) if is_damaged else exact
    return FileText(encoding, bom, text, exact, endings, doubtful)


def declared_encoding(file: FileText, text: str) -> str:
    """
    Return the encoding other than Unicode that one of the first two lines of `text` declares, as Python and XML do; "" if none is known.

    A file with valid UTF-8 characters is UTF-8, whatever it declares.
    """
    if file.has_bom or (file.encoding == "utf-8" and not file.text.isascii()):
        return ""
    for line in text[:_MAX_DECLARATION].split("\n")[:2]:
        if found := re.search(_DECLARATION, line):
            try:
                name = codecs.lookup(found[1]).name
                "".encode(name)
            except LookupError:  # unknown, or no encoding of text
                return ""
            return "" if name.startswith("utf") else name
    return ""


def utf_16_hint(data: bytes) -> str:
    """Return a hint about UTF-16 without a byte order mark, which looks binary to every tool; "" if it does not seem to be that."""
    sample = data[:_SAMPLE_CHARS]
    for zeros, encoding in ((sample[1::2], "utf-16-le"), (sample[::2], "utf-16-be")):
        if sample and zeros.count(0) > len(zeros) * _MAX_CONTROL_SHARE:
            text = sample[: len(sample) // 2 * 2].decode(encoding, "replace")
            if not any(character in _CONTROLS or character == UNREADABLE for character in text):
                codec = encoding.replace("16-", "16")
                return f" It looks like {_NAMES[encoding]} without a byte order mark: `iconv -f {codec} -t utf-8` converts it."
    return ""


def character_name(character: str) -> str:
    """Return a character with its code and name: unencodable ones may also be invisible."""
    name = unicodedata.name(character, "")
    return f"“{character}” (U+{ord(character):04X}{' ' if name else ''}{name})"


def readable(exact: str) -> str:
    return exact if exact.isascii() else re.sub(_SURROGATE, UNREADABLE, exact)


def _decoded(data: bytes) -> tuple[str, bytes, str, tuple[str, ...]]:
    """Return encoding, byte order mark, exact text, and doubtful encodings."""
    for encoding, bom in BOMS.items():
        if data.startswith(bom):
            try:
                return encoding, bom, data[len(bom) :].decode(encoding, _ERRORS[encoding]), ()
            except UnicodeDecodeError:
                continue  # it ends in half a character, so it only looks like a byte order mark
    try:
        return "utf-8", b"", data.decode(), ()
    except UnicodeDecodeError:
        pass
    # Count both without a loop over the characters.
    valid = data.decode(errors="ignore")
    exact = data.decode(errors="surrogateescape")
    if len(valid) - len(valid.encode("ascii", "ignore")) >= len(exact) - len(valid):
        return "utf-8", b"", exact, ()
    encoding, doubtful = legacy.guessed(data)
    if encoding:
        return encoding, b"", data.decode(encoding), ()
    is_windows = re.search(_NOT_LATIN_1, data) and not re.search(_NOT_WINDOWS_1252, data)
    encoding = "cp1252" if is_windows else "latin-1"
    return encoding, b"", data.decode(encoding), doubtful


def _without_endings(raw: str) -> tuple[str, bytes]:
    """Replace line endings by newlines; also return their kinds. A lone CR ends lines only if there is no newline."""
    if "\r" not in raw:
        return raw, bytes(raw.count("\n"))
    if "\n" not in raw:
        return raw.replace("\r", "\n"), bytes([CR]) * raw.count("\r")
    *lines, _ = raw.split("\n")
    return raw.replace("\r\n", "\n"), bytes(line.endswith("\r") for line in lines)


def _with_endings(text: str, endings: bytes) -> str:
    kinds = set(endings)
    if kinds <= {LF}:
        return text
    if len(kinds) == 1:
        return text.replace("\n", LINE_ENDINGS[endings[0]])
    *lines, last = text.split("\n")
    whole = (line + LINE_ENDINGS[kind] for line, kind in zip(lines, endings, strict=True))
    return "".join((*whole, last))
