r"""
Detection of pre-Unicode East Asian encodings.

In these, a character has one or two bytes, and the second may be `|`, `\` or a letter. Decoded as Latin-1, such a file shows letters that
are half of a character, and replacing one destroys the character. So a file is decoded in one of these encodings if it is plausible in
exactly one. If several are possible, or the evidence is weak, it is shown as a Western file, but no match may begin or end inside a
possible character.

Plausible means that the whole file decodes strictly, and nine of ten non-ASCII characters are common in that encoding. A Western file
fails one of the two: accented letters stand alone where two bytes are required, or they form rare characters with the letter after them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

NAMES = {
    "cp932": "Shift-JIS",
    "gb18030": "GB18030",
    "big5": "Big5",
    "euc_kr": "EUC-KR",
    "euc_jp": "EUC-JP",
}
_MIN_DISTINCT = 2
_MIN_COMMON = 0.9
_MIN_POSSIBLE = 0.5
_MIN_KOREAN = 8
_SAMPLE_CHARS = 200_000


def _is_japanese(char: bytes) -> bool:
    """Kana, punctuation, full-width letters and level 1 kanji in Shift-JIS."""
    return len(char) == 2 and (char[0] in (0x81, 0x82, 0x83) or 0x88 <= char[0] <= 0x97)  # noqa: PLR2004


def _is_euc(char: bytes, *rows: range) -> bool:
    is_pair = len(char) == 2 and char[1] >= 0xA1  # noqa: PLR2004
    return is_pair and any(char[0] in row for row in rows)


_SYMBOLS = range(0xA1, 0xA4)
_COMMON: Mapping[str, Callable[[bytes], bool]] = {
    "cp932": _is_japanese,
    "gb18030": lambda char: _is_euc(char, _SYMBOLS, range(0xB0, 0xD8)),
    "big5": lambda char: len(char) == 2 and 0xA1 <= char[0] <= 0xC6,  # noqa: PLR2004
    "euc_kr": lambda char: _is_euc(char, _SYMBOLS, range(0xB0, 0xC9)),
    "euc_jp": lambda char: _is_euc(char, range(0xA1, 0xA6), range(0xB0, 0xD0)),
}
_KANA = frozenset(range(0x3041, 0x30FF))


def guessed(data: bytes) -> tuple[str, tuple[str, ...]]:
    """
    Return the only plausible encoding of `data`, which is not UTF-8, and all possible ones.

    The first is empty if no encoding is plausible, or several.
    """
    if b"\0" in data:
        return "", ()
    found: dict[str, _Evidence] = {}
    for encoding in NAMES:
        try:
            found[encoding] = _evidence(data.decode(encoding), encoding)
        except UnicodeDecodeError:
            continue
    possible = tuple(each for each in found if found[each].share >= _MIN_POSSIBLE)
    plausible = [each for each in found if found[each].is_plausible]
    # Common Korean characters are also common in Chinese, but many Chinese texts also use other rows.
    if "euc_kr" in plausible and found["euc_kr"].distinct >= _MIN_KOREAN:
        plausible = ["euc_kr"]
    return (plausible[0] if len(plausible) == 1 else ""), possible


class _Evidence(NamedTuple):
    """The number of distinct two-byte characters, and the share of common ones among all occurrences."""

    distinct: int
    share: float

    @property
    def is_plausible(self) -> bool:
        return self.distinct >= _MIN_DISTINCT and self.share >= _MIN_COMMON


def _evidence(text: str, encoding: str) -> _Evidence:
    counts = Counter(char for char in text[:_SAMPLE_CHARS] if not char.isascii())
    found = [(_bytes_of(char, encoding), char, count) for char, count in counts.items()]
    found = [each for each in found if len(each[0]) > 1]
    has_kana = any(ord(char) in _KANA for _, char, _ in found)
    is_wrong = has_kana if encoding in ("gb18030", "euc_kr") else not has_kana
    if not found or (encoding not in ("big5", "cp932") and is_wrong):
        return _Evidence(0, 0.0)
    total = sum(count for *_, count in found)
    common = sum(count for data, _, count in found if _COMMON[encoding](data))
    return _Evidence(len(found), common / total)


def inside(line: bytes, encodings: tuple[str, ...]) -> frozenset[int]:
    """Return offsets that are inside a possible character in one of `encodings`."""
    offsets: set[int] = set()
    if line.isascii():
        return frozenset()
    for encoding in encodings:
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError:
            continue
        at = 0
        for char in text:
            size = 1 if char.isascii() else len(_bytes_of(char, encoding))
            offsets.update(range(at + 1, at + size))
            at += size
    return frozenset(offsets)


def _bytes_of(char: str, encoding: str) -> bytes:
    try:
        return char.encode(encoding)
    except UnicodeEncodeError:  # the character has two codes, and only the other can be encoded
        return b"\xff\xff"
