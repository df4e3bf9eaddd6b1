"""
A lexer for the plain part of the shell language: words, operators, comments, and here-documents whose text is constant.

It is one of the two parsers of a line, and knows nothing about its structure.
"""

import re

import msgspec

VARIABLE = rb"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\}|\?)"

# Within `$(…)`, bash also ends a here-document at a line that only begins with the delimiter, if a `)` follows later
# (`read_secondary_line` in its parse.y). So no line of the text may begin with the delimiter, not even after blanks. If the delimiter is
# unquoted, the text is constant only if it contains nothing that the shell expands.
_START = (
    rb"<<(?P<strip>-)?[ \t]*"
    rb"(?P<delimiter>(?P<quote>['\"])?(?P<end>[A-Za-z_]\w*)(?(quote)(?P=quote)))"
)
_TEXT = rb"(?P<text>(?:(?![ \t]*(?P=end))(?:(?(quote)[^\n]|[^\n$`\\]))*\n)*)"
CONSTANT = (
    rb"\$\([ \t]*cat[ \t]*"
    + _START
    + rb"[ \t]*\n"
    + _TEXT
    + rb"(?(strip)\t*)(?P<close>(?P=end))\n[ \t\n]*\)"
)
"""The form in which models pass a text that contains quotes: `"$(cat <<'EOF' … EOF)"`."""

IN_QUOTES = rb"[^\"\\$`]++|\\[^\n]|" + VARIABLE + rb"|" + CONSTANT + rb"|\$(?![\w({\[@*#?$!-])"
QUOTED = rb"'[^']*'|\"(?:" + IN_QUOTES + rb")*\""
_PIECE = rb"(?:[^\s;&|()<>'\"\\`$]|\\[^\n]|" + QUOTED + rb"|" + VARIABLE + rb")"
# No group is repeated possessively: before Python 3.11.5 that matches too much. Each of them can match in only one way.
WORD = re.compile(_PIECE + rb"+")
_TOKEN = re.compile(
    rb"(?P<blank>[ \t]++)|(?P<line_end>\n)|(?P<comment>\#[^\n]*+)|(?P<descriptor>\d++(?=[<>]))"
    rb"|(?P<operator>[<>]&-|&&|\|\||;;&|;&|;;|\|&|&>>|&>|>>|>&|<&|>\||[;|()<>])"
    rb"|(?P<word>" + _PIECE + rb"+)"
)
_DOCUMENT = re.compile(_START + rb"(?=[\s;&|)<>])")
_PARTS_OF_WORDS = re.compile(rb"\\.|" + QUOTED)
_PARTS_IN_QUOTES = re.compile(IN_QUOTES)

Span = tuple[int, int]


class Lexed(msgspec.Struct):
    """
    The positions of words, operators, comments and here-document delimiters in a line.

    `substitutions` are the command substitutions that contain only a here-document. `plain` is the line with placeholders of the same length: spaces for
    here-documents and escaped line ends, `_` for substitutions. `inputs` are the here-documents that commands read.
    """

    plain: bytearray
    spans: list[Span] = []
    delimiters: list[Span] = []
    substitutions: list[Span] = []
    inputs: list[bytes] = []


def lex(source: bytes) -> Lexed | None:
    """Return the positions in a line; None if anything in it is not plain."""
    lexed = Lexed(bytearray(source))
    awaited: re.Match[bytes] | None = None
    at, is_after_blank = 0, False
    while at < len(source):
        if is_after_blank and source.startswith(b"\\\n", at):
            lexed.plain[at : at + 2] = b"  "
            at += 2
        elif document := _DOCUMENT.match(source, at):
            if awaited or source[max(0, at - 1) : at].isdigit():
                return None  # a second one in this line, or one for another descriptor
            awaited, at, is_after_blank = document, document.end(), False
            lexed.delimiters.append(document.span("delimiter"))
            _blank(lexed.plain, *document.span())
        elif (token := _TOKEN.match(source, at)) is None:
            return None
        else:
            at, is_after_blank = token.end(), token.lastgroup == "blank"
            if token.lastgroup not in ("blank", "line_end"):
                lexed.spans.append(token.span())
            if token.lastgroup == "word":
                _replace_substitutions(token, lexed)
            if awaited and b"\n" in token[0]:
                text = _text_after(awaited).match(source, at)
                if token.lastgroup != "line_end" or text is None:
                    return None
                at = text.end()
                lexed.delimiters.append(text.span("end"))
                lexed.inputs.append(text["text"])
                _blank(lexed.plain, *text.span())
                awaited = None
    return None if awaited else lexed


def in_double_quotes(raw: bytes) -> bytes | None:
    """Return the value of the inside of double quotes; None if a variable is part of it."""
    text = b""
    for part in _PARTS_IN_QUOTES.finditer(raw):
        if part["end"]:
            text += _value(part).rstrip(b"\n")
        elif re.fullmatch(VARIABLE, part[0]):
            return None
        else:
            text += re.sub(rb"^\\([\"\\$`])", rb"\1", part[0])
    return text


def _value(document: re.Match[bytes]) -> bytes:
    text = document["text"]
    return re.sub(rb"(?m)^\t+", b"", text) if document["strip"] else text


def _replace_substitutions(word: re.Match[bytes], lexed: Lexed) -> None:
    for quoted in _PARTS_OF_WORDS.finditer(word.string, *word.span()):
        if not quoted[0].startswith(b'"'):
            continue
        for part in _PARTS_IN_QUOTES.finditer(word.string, quoted.start() + 1, quoted.end() - 1):
            if part["end"]:
                lexed.delimiters += (part.span("delimiter"), part.span("close"))
                lexed.substitutions.append(part.span())
                lexed.plain[part.start() : part.end()] = b"_" * len(part[0])


def _text_after(document: re.Match[bytes]) -> re.Pattern[bytes]:
    """Return the pattern of the text of `document`, up to its end."""
    end, tabs = document["end"], rb"\t*" if document["strip"] else b""
    line = rb"[^\n]*\n" if document["quote"] else rb"[^\n$`\\]*\n"
    return re.compile(
        rb"(?P<text>(?:(?![ \t]*%b)%b)*)%b(?P<end>%b)(?=\n|\Z)" % (end, line, tabs, end)
    )


def _blank(plain: bytearray, start: int, end: int) -> None:
    plain[start:end] = re.sub(rb"[^\n]", b" ", plain[start:end])
