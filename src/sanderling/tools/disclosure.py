"""
Limits on what a language server's messages disclose.

A server reads files that the model may not, and quotes them. A hover of `url = settings.URL` shows a constant's value from a hidden file,
or documentation from there; an error shows values as types. Servers do not say where such text comes from, and following definitions does
not help: `y = x` leads to `x` in a readable file, while the value comes from further away. So the text itself is compared. A value, a
comment or a line of documentation is shown if it also occurs in a readable file; names and types are always shown. The model can still
find out whether a value equals a known one, but a type checker's errors reveal that anyway.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from sanderling.errors import ToolError
from sanderling.tools.buffers import buffer_of
from sanderling.tools.editor import Diagnostic
from sanderling.tools.grep import Matches
from sanderling.tools.ripgrep import Filter
from sanderling.tools.texts import text_of
from sanderling.tools.workspace import Workspace

MAX_BYTES = 4 << 20
MAX_FILES = 20
MAX_SEARCHED = 100
LEFT_OUT = "…"
WITHHELD = "(Values and documentation not found in a readable file nearby are omitted.)"

# A Rust lifetime (`&'a str`) is not a string. An unpaired quote may begin a string that continues on another line.
_TEXT = (
    r'"""[\s\S]*?"""|'
    r"'''[\s\S]*?'''|"
    r'"(?:[^"\\\n]|\\.)*"|'
    r"(?<![&<\w])[bBrRuUfFL]{0,2}'(?:[^'\\\n]|\\.)*'|"
    r"`(?:[^`\\]|\\.)*`|"
    r"[\"`][^\n]*|(?<=[\[(|=:\"])'[^\n]*|(?<=, )'[^'\n]*\Z"
)
_NUMBER = r"(?<![\w.])\d[\w.]*"
_COMMENT = r"//[^\n]*|/\*[\s\S]*?\*/|(?m:^[ \t]*(?:#|--)[ \t][^\n]*)"
_IN_CODE = re.compile(f"(?P<comment>{_COMMENT})|(?P<text>{_TEXT})|(?P<number>{_NUMBER})")
_FENCED = re.compile(r"(?ms)^(?P<fence>`{3,})[^\n]*\n(?P<code>.*?)^(?P=fence)[ \t]*$")
_MARKUP = re.compile(r"&\w+;|\\(?=\W)")
_FRAGMENT = re.compile(r"[\w][^`*:—|]*")

_QUOTES = "\"'`"
_NAMES_A_VALUE = re.compile(r"(?i)\b(?:constant|value|literal|string)\s*$")
_CONSTANT = re.compile(rf"(?i)(?<=constant ){_NUMBER}")
_FREE = re.compile(
    r"(?is)(?:deprecat\w*[^:\n]*[:\n]|in included file:|static assertion[^:\n]*:)(?P<text>.*)"
)
"""Messages that quote a sentence from the file that defines a name: `the function "f" is deprecated`, then the reason."""


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text))


async def disclosed(
    diagnostics: Sequence[Diagnostic],
    workspace: Workspace,
    may_read: Callable[[str], bool] | None,
) -> list[Diagnostic]:
    """Return the diagnostics with undisclosed text removed. Their files must be readable."""
    disclosure = Disclosure(workspace, may_read)
    for path in list(dict.fromkeys(each.path for each in diagnostics))[:MAX_FILES]:
        await disclosure.learn(path)
    await disclosure.search(each.message for each in diagnostics)
    return [
        msgspec.structs.replace(each, message=disclosure.message(each.message))
        for each in diagnostics
    ]


class Disclosure:
    """Decides which text to show, by comparing it with readable files."""

    def __init__(self, workspace: Workspace, may_read: Callable[[str], bool] | None) -> None:
        self._workspace = workspace
        self._may_read = may_read
        self._texts: dict[str, str] = {}
        self._plain: dict[str, str] = {}
        self._found = set[str]()  # by searching the project

    async def learn(self, path: str) -> None:
        """Add a readable file to compare with, both on disk and in the editor."""
        if path in self._texts:
            return
        self._texts[path] = self._plain[path] = ""
        try:
            loaded = await (await self._workspace.files()).load(path, MAX_BYTES)
            buffer = await buffer_of(self._workspace, path, loaded.stamp)
            text = await text_of(loaded.data) + "\n" + (buffer.text if buffer else "")
        except (OSError, ToolError):
            return
        self._texts[path], self._plain[path] = text, _words(text)

    async def search(self, texts: Iterable[str]) -> None:
        """Find which values in `texts` (server messages) occur anywhere in the project."""
        unknown = {value for text in texts for value in _values(text) if not self._has(value)}
        asked = [value for value in sorted(unknown) if "\n" not in value][:MAX_SEARCHED]
        if not asked:
            return
        directory = self._workspace.project
        files = Filter(self._workspace.disk, directory, may_read=self._may_read, has_packages=True)
        found = Matches(files, MAX_SEARCHED, MAX_SEARCHED)
        options = ["--fixed-strings", *(f"--regexp={each}" for each in asked)]
        await found.search(self._workspace, options, [directory])
        lines = [line.text for file in found.sorted() for line in file.lines]
        self._found |= {value for value in asked if any(_stands_in(value, each) for each in lines)}

    def hover(self, text: str) -> str:
        """Return the Markdown `text` without unknown values, comments and documentation."""
        pieces: list[str] = []
        at = 0
        for fenced in _FENCED.finditer(text):
            pieces.append(self._documentation(text[at : fenced.start()]))
            opening = text[fenced.start() : fenced.start("code")]
            pieces.append(f"{opening}{self._code(fenced['code'])}{fenced['fence']}")
            at = fenced.end()
        pieces.append(self._documentation(text[at:]))
        shown = "".join(pieces).strip()
        return shown if shown == text.strip() else f"{shown}\n{WITHHELD}"

    def message(self, text: str) -> str:
        """Return the message `text` without unknown values."""
        if (free := _FREE.search(text)) and not self._is_known_prose(free["text"]):
            text = f"{text[: free.start('text')].rstrip()} {LEFT_OUT}"
        text = _CONSTANT.sub(lambda number: self._or_left_out(number[0], number[0]), text)
        pieces: list[str] = []
        for piece, is_quoted in _quoted(text):
            if not is_quoted:
                pieces.append(piece)
            elif _NAMES_A_VALUE.search("".join(pieces)):
                pieces.append(self._or_left_out(piece[1:-1], piece))
            else:
                quote = piece[0] if piece.endswith(piece[0]) and len(piece) > 1 else ""
                pieces.append(piece[0] + self._code(piece[1 : len(piece) - len(quote)]) + quote)
        return "".join(pieces)

    def _code(self, code: str) -> str:
        return _IN_CODE.sub(self._shown, code)

    def _shown(self, found: re.Match[str]) -> str:
        match found.lastgroup:
            case "comment":
                return found[0] if self._is_known_prose(found[0]) else ""
            case "text":
                return self._or_left_out(_inside(found[0]), found[0])
            case _:
                return self._or_left_out(found[0], found[0])

    def _or_left_out(self, value: str, shown: str) -> str:
        if self._has(value):
            return shown
        quote = shown[0] if shown[0] in _QUOTES else ""
        return f"{quote}{LEFT_OUT}{quote}"

    def _has(self, value: str) -> bool:
        value = value.removesuffix(LEFT_OUT)  # servers truncate long values
        return (
            not value
            or value in self._found
            or any(_stands_in(value, text) for text in self._texts.values())
        )

    def _documentation(self, text: str) -> str:
        return "".join(
            line for line in text.splitlines(keepends=True) if self._is_known_prose(line)
        )

    def _is_known_prose(self, text: str) -> bool:
        """True if each fragment between Markdown marks occurs in a file, whatever is between its words."""
        fragments = map(_words, _FRAGMENT.findall(_MARKUP.sub(" ", text)))
        texts = self._plain.values()
        return all(any(each in f"{plain} " for plain in texts) for each in fragments if each)


def _stands_in(value: str, text: str) -> bool:
    if not value[:1].isdigit():
        return value in text
    return re.search(rf"(?<![\w.]){re.escape(value)}(?![\w.])", text) is not None


def _inside(text: str) -> str:
    text = text.lstrip("bBrRuUfFL")
    for quotes in ('"""', "'''"):
        if text.startswith(quotes):
            return text.removeprefix(quotes).removesuffix(quotes)
    return text[1:-1] if text[0] == text[-1] and len(text) > 1 else text[1:]


def _values(message: str) -> Iterator[str]:
    before = ""
    for piece, is_quoted in _quoted(message):
        if is_quoted:
            if _NAMES_A_VALUE.search(before):
                yield piece[1:-1]
            for found in _IN_CODE.finditer(piece[1:-1]):
                yield _inside(found[0]) if found.lastgroup == "text" else found[0]
        before = piece
    yield from _CONSTANT.findall(message)


def _quoted(message: str) -> Iterator[tuple[str, bool]]:
    """
    Yield the pieces of a message, and whether each is quoted: quotes contain names and types, with values in inner quotes.

    A quote of another kind within a piece hides everything up to its match; a backslash hides the next character.
    """
    at = 0
    for opening in re.finditer(rf"(?<![\w\\])[{_QUOTES}]", message):
        if opening.start() < at:
            continue
        end = _end_of(message, opening.start())
        yield message[at : opening.start()], False
        yield message[opening.start() : end], True
        at = end
    yield message[at:], False


def _end_of(message: str, start: int) -> int:
    """Return the end of the quotation that begins at `start`: the message's end if it is not closed."""
    quote, inner = message[start], ""
    at = start + 1
    while at < len(message):
        character = message[at]
        if character == "\\":
            at += 1
        elif inner:
            inner = "" if character == inner else inner
        elif character == quote:
            return at + 1
        elif character in _QUOTES and message[at - 1] not in "&<" and not message[at - 1].isalnum():
            inner = character
        at += 1
    return len(message)
