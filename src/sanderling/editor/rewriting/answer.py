"""
The replacement in an answer. The model is asked for the replacement alone; a wrapper that it adds anyway is removed.

Nothing is guessed: what is not clearly a wrapper stays, and the user sees it before accepting it. A wrapper is a Markdown fence around
the whole answer, with at most a few lines of prose before it and any number after it.
In a file of prose only a fence marked as Markdown or as the file's type counts, because a fence may be just what was asked for.

Whole lines get the indentation of the lines that they replace if the model has left it out, on the first line or on all.
"""

import re
from collections.abc import Sequence

PROSE = frozenset(
    (
        *("", "asciidoc", "gitcommit", "help", "mail", "markdown", "mdx", "norg", "org", "pandoc"),
        *("plaintex", "quarto", "rmd", "rst", "tex", "text", "typst", "vimwiki"),
    )
)
"""File types in which sentences and fences are content."""

MAX_INTRODUCTION_LINES = 3
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$")
_BEGINNING_OF_FENCE = re.compile(r"\s*(?:`{1,2}|~{1,2})$")
_SENTENCE = re.compile(r"[A-Z][^\n]*\s[^\n]*[:.!]$")
_INTRODUCTION = re.compile(
    r"(?:here(?:['\u2019]s| is| are)|sure|certainly|of course|below is|okay|ok)\b[^\n]{0,200}:[ \t]*\n[ \t]*\n",
    re.IGNORECASE,
)
_OPENS_BLOCK = re.compile(r"(?:[:{(\[]|\b(?:then|do|begin|=>|=))$")


def replacement(answer: str, original: str, filetype: str, *, is_whole_lines: bool) -> str:
    """Return the replacement of `original` in an answer, which may be incomplete."""
    answer = answer if "\r" in original else answer.replace("\r\n", "\n")
    text = _unwrapped(answer, original, filetype)
    text = text.rstrip("\n") + "\n" * (len(original) - len(original.rstrip("\n")))
    if not original.startswith("\n"):
        text = text.lstrip("\n")
    return _indented(text, original) if is_whole_lines else text


def _unwrapped(answer: str, original: str, filetype: str) -> str:
    if _BEGINNING_OF_FENCE.match(answer):
        return ""  # an incomplete fence
    lines, is_prose = answer.split("\n"), filetype in PROSE
    first = next((row for row, line in enumerate(lines) if _FENCE.match(line)), None)
    if first is not None and _is_wrapping(lines, first, original, filetype):
        inside = _inside(lines, first, ends_last=is_prose)
        return answer if inside is None else "\n".join(inside)
    introduction = _INTRODUCTION.match(answer)
    if introduction and not is_prose and not _INTRODUCTION.match(original):
        return answer[introduction.end() :]
    return answer


def _is_wrapping(lines: Sequence[str], first: int, original: str, filetype: str) -> bool:
    """Return True if the first fence of an answer may enclose the whole replacement."""
    before = [line.strip() for line in lines[:first] if line.strip()]
    is_introduced = len(before) <= MAX_INTRODUCTION_LINES and all(map(_SENTENCE.match, before))
    if not is_introduced or any(map(_FENCE.match, original.split("\n")[:1])):
        return False
    if filetype not in PROSE:
        return not before or not any(map(_FENCE.match, original.split("\n")))
    found = _FENCE.match(lines[first])
    return found is not None and found[2].lower() in ("markdown", "md", filetype or "text")


def _inside(lines: Sequence[str], first: int, *, ends_last: bool) -> Sequence[str] | None:
    """Return the lines within the fence that `first` opens, up to the end if it is still open; None if other fences follow."""
    opened = _FENCE.match(lines[first])
    assert opened is not None
    ends = [row for row in range(first + 1, len(lines)) if _closes(lines[row], opened[1])]
    if not ends:
        inside = lines[first + 1 :]
        is_ending = bool(inside) and _BEGINNING_OF_FENCE.match(inside[-1])
        return inside[:-1] if is_ending else inside
    end = ends[-1] if ends_last else ends[0]
    if any(map(_FENCE.match, lines[end + 1 :])):
        return None
    return lines[first + 1 : end]


def _closes(line: str, fence: str) -> bool:
    found = _FENCE.match(line)
    return found is not None and found[1].startswith(fence) and not found[2]


def _indented(text: str, original: str) -> str:
    """Return `text` with the indentation of `original`, where it has none."""
    wanted = _common_indentation(original.split("\n"))
    lines = text.split("\n")
    first = next((row for row, line in enumerate(lines) if line.strip()), None)
    if not wanted or first is None or lines[first][0].isspace():
        return text
    rest = _common_indentation(lines[first + 1 :])
    is_opening = _OPENS_BLOCK.search(lines[first].rstrip()) is not None
    if rest is None or (rest.startswith(wanted) and (rest != wanted or not is_opening)):
        lines[first] = wanted + lines[first]
    else:
        lines = [wanted + line if line.strip() else line for line in lines]
    return "\n".join(lines)


def _common_indentation(lines: Sequence[str]) -> str | None:
    """Return the indentation that all non-blank lines share; None if all are blank."""
    indentations = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    return _beginning(min(indentations), max(indentations)) if indentations else None


def _beginning(one: str, other: str) -> str:
    end = 0
    while end < min(len(one), len(other)) and one[end] == other[end]:
        end += 1
    return one[:end]
