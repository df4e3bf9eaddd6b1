"""Web pages as text: decodes bytes, converts HTML to Markdown, and removes invisible characters."""

import codecs
import html
import re

from sanderling.changes.editing.text import BOMS
from sanderling.text import CONTROL, shortened

MAX_PAGE_BYTES = 50_000
MAX_TITLE_CHARS = 200
MAX_HEAD_CHARS = 64 << 10

# Patterns are compiled on use: the host loads this module with the first chat, but has no page.
HTML = ("text/html", "application/xhtml+xml")
LOOKS_LIKE_HTML = rb"(?i)\s{0,100}<(?:!doctype html|html|head|body)\b"
_TITLE = r"(?i)<title\b[^>]{0,200}>([^<]{0,1000})"
_CHARSET = r"(?ai)charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})"
_DECLARED = rb"(?i)<meta\b[^>]{0,500}?charset\s{0,9}=\s{0,9}[\"']?([\w.:-]{1,40})|^<\?xml[^>]{0,200}?encoding=[\"']([\w.:-]{1,40})"
# Python knows more charsets: some take quadratic time, some are not for text.
_KNOWN_CHARSET = (
    r"utf-?8|utf-?(?:16|32)(?:-?[lb]e)?|(?:us-)?ascii|(?:iso-?)?8859-?\d{1,2}|iso-?8859-?\d{1,2}|latin-?\d|(?:windows-|cp)\d{3,4}"
    r"|koi8-?[rut]|gb2312|gbk|gb18030|big5(?:-?hkscs)?|euc-?(?:jp|kr)|shift[_-]?jis|sjis|iso-?2022-?jp|tis-?620|macintosh"
)
# Control characters and the Unicode "tags", which users do not see, but models read.
_INVISIBLE = rf"{CONTROL.pattern}|[\U000e0000-\U000e007f]"


def decoded(body: bytes, content_type: str) -> str | None:
    """Return `body` as text; None if it is binary."""
    for encoding, mark in BOMS.items():
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    header = re.search(_CHARSET, content_type)
    declared = re.search(_DECLARED, body[:4096])
    names = (
        header[1] if header else "",
        (declared[1] or declared[2]).decode("ascii", "replace") if declared else "",
    )
    known = (_python_charset(name) for name in names)
    if charset := next(filter(None, known), None):
        return body.decode(charset, "replace")
    if b"\0" in body[:4096]:
        return None
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A truncated body may end within a character.
        is_utf8 = error.start > 0 and len(body) - error.start < len("\U0010ffff".encode())
        return body.decode("utf-8" if is_utf8 else "cp1252", "replace")


def _python_charset(name: str) -> str:
    name = name.lower()
    if not re.fullmatch(_KNOWN_CHARSET, name):
        return ""
    try:
        found = codecs.lookup(name).name
    except LookupError:
        return ""
    return "cp1252" if found in ("iso8859-1", "ascii") else found  # as browsers do


def read_html(text: str, url: str) -> tuple[str, str]:
    """Return the page as Markdown, and its title."""
    found = re.search(_TITLE, text[:MAX_HEAD_CHARS])
    return _markdown(text, url), one_line(html.unescape(found[1])) if found else ""


def cleaned(text: str) -> str:
    """Return `text` with plain line endings and without invisible characters."""
    return re.sub(_INVISIBLE, "", text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n")


def _markdown(text: str, url: str) -> str:
    from html_to_markdown import ConversionOptions, convert

    options = ConversionOptions(
        extract_metadata=False,
        base_url=url,
        inline_data_media="alt_text_only",
        strip_tags=["svg", "iframe", "button"],
        compact_tables=True,
    )
    return convert(text, options).content or ""


def page_at(text: str, offset: int) -> str:
    """Return `text` from character `offset`, up to `MAX_PAGE_BYTES`, in whole lines if they are not too long."""
    page = text[offset : offset + MAX_PAGE_BYTES]
    is_cut = offset + len(page) < len(text)
    encoded = page.encode()
    if len(encoded) > MAX_PAGE_BYTES:
        page, is_cut = encoded[:MAX_PAGE_BYTES].decode(errors="ignore"), True
    end = page.rfind("\n") + 1
    return page[:end] if is_cut and end > len(page) // 2 else page


def one_line(text: str) -> str:
    line = " ".join(re.sub(_INVISIBLE, " ", text[: 4 * MAX_TITLE_CHARS]).split()).rstrip(".")
    return shortened(line, MAX_TITLE_CHARS)
