"""
Jupyter notebooks: their cells as a model reads them, and edits of cells.

An edit replaces only the JSON of a cell's `source`. Parsing the file and writing it again would change what the model did not ask for:
indentation, the order of keys, escapes, numbers such as `1.0`. So the positions of the values are found in the text, and everything outside
them stays byte for byte. Format: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

import codecs
import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, cast

import msgspec

from sanderling.changes.editing.lines import first_places, numbered
from sanderling.changes.editing.merge import line_changes
from sanderling.changes.editing.replace import Edited, Replacement, replace
from sanderling.errors import ToolError
from sanderling.text import counted, printable

_SPACE = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


class JsonSpan(NamedTuple):
    start: int
    end: int


class Cell(NamedTuple):
    """A cell: its parsed `data`, its source, and where both are in the file's text."""

    data: dict[str, Any]
    source: str
    span: JsonSpan
    source_span: JsonSpan | None

    @property
    def kind(self) -> str:
        return str(self.data.get("cell_type", "raw"))


class CellDifference(NamedTuple):
    """The cells of `notebook` whose kind or source is new, by number from 1."""

    notebook: "Notebook"
    numbers: tuple[int, ...]

    @property
    def places(self) -> str:
        """Where the new cells are: "now cells 2, 3 of 4"; only the count if cells were just removed."""
        count = f"{len(self.notebook.cells)}"
        if not self.numbers:
            return f"now {count} cell{'s' * (count != '1')}"
        many = "s" * (len(self.numbers) > 1)
        return f"now cell{many} {first_places([str(each) for each in self.numbers])} of {count}"

    def lines(self) -> Iterator[str]:
        """Yield the source of the new cells with line numbers."""
        for number in self.numbers:
            cell = self.notebook.cells[number - 1]
            yield f"--- cell {number}: {printable(cell.kind)}"
            yield from numbered(cell.source.splitlines(), 1)


class Notebook(NamedTuple):
    text: str
    data: dict[str, Any]
    cells: tuple[Cell, ...]
    list_span: JsonSpan

    @property
    def language(self) -> str:
        metadata = _table(self.data.get("metadata"))
        kernel, info = _table(metadata.get("kernelspec")), _table(metadata.get("language_info"))
        return str(info.get("name") or kernel.get("language") or kernel.get("name") or "")


def parse_notebook(text: str) -> Notebook | None:
    """Return the notebook in `text`; None if it is not one, or of a format before 4."""
    try:
        start = _skip(text, 0)
        if not text.startswith("{", start):
            return None
        data = _table(_value_at(text, start)[0])
        spans = _members(text, start)
        cells, span = data.get("cells"), spans.get("cells")
        if not isinstance(cells, list) or span is None:
            return None
        places = list(_elements(text, span.start))
        return Notebook(
            text,
            data,
            tuple(
                _cell(text, cell, place)
                for cell, place in zip(cast("list[Any]", cells), places, strict=True)
            ),
            span,
        )
    except (ValueError, TypeError, IndexError, RecursionError):
        return None


def cell_difference(old: str, new: str) -> CellDifference | None:
    """Return which cells of `new` are not in `old`; None if the cells are equal, or one text is not a notebook."""
    before, after = parse_notebook(old), parse_notebook(new)
    if before is None or after is None:
        return None
    mine, others = (
        [f"{cell.kind}\n{cell.source}" for cell in each.cells] for each in (after, before)
    )
    if not (changes := line_changes(others, mine)):
        return None
    return CellDifference(after, tuple(number + 1 for each in changes for number in each.new))


def _cell(text: str, data: Any, span: JsonSpan) -> Cell:
    if not isinstance(data, dict):
        raise TypeError("a cell is not an object")
    table = cast("dict[str, Any]", data)
    return Cell(table, joined(table.get("source")), span, _members(text, span.start).get("source"))


def joined(value: object) -> str:
    """Return a text of the format, which may be a list of lines."""
    if isinstance(value, list):
        return "".join(line for line in cast("list[Any]", value) if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


# --- positions in JSON -------------------------------------------------------------------------------------------------


def _value_at(text: str, start: int) -> tuple[object, int]:
    """Return the value at `start`, and where it ends."""
    return cast("tuple[object, int]", _decoder.raw_decode(text, start))


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _members(text: str, start: int) -> dict[str, JsonSpan]:
    """Return where the values of the object at `start` are; the last one of equal keys counts, as in Python's parser."""
    spans: dict[str, JsonSpan] = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, at = _value_at(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        _, end = _value_at(text, begin)
        spans[str(key)] = JsonSpan(begin, end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return spans


def _elements(text: str, start: int) -> Iterator[JsonSpan]:
    """Yield where the elements of the list at `start` are."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = _value_at(text, at)
        yield JsonSpan(at, end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


# --- edits -------------------------------------------------------------------------------------------------------------


def replace_in_notebook(
    data: bytes, replacements: Sequence[Replacement], *, path: str
) -> Edited | None:
    """
    Make all replacements in order, each in the result of the previous one.

    A replacement with a `cell` concerns that cell; without one, the cell whose source contains `old`. Return None if `data` is not a
    notebook.

    Raises:
        ToolError: one is impossible; none was made.
    """
    mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    try:
        text = data.removeprefix(mark).decode()
    except UnicodeDecodeError:
        return None
    if (notebook := parse_notebook(text)) is None:
        return None
    notes: list[str] = []
    for number, each in enumerate(replacements, 1):
        which = f"Replacement {number} of {len(replacements)}: " if len(replacements) > 1 else ""
        try:
            changed, said = _make(notebook, each, path)
        except ToolError as error:
            nothing = " No replacement was made." if which else ""
            raise ToolError(f"{which}{error}{nothing}") from error
        if (after := parse_notebook(changed)) is None:
            raise ToolError(
                f"{which}{path} would not be a valid notebook any more. Give the number of a `cell`."
            )
        notebook = after
        notes += [which + note for note in said]
    return Edited(mark + notebook.text.encode(errors="surrogatepass"), tuple(notes))


def _make(notebook: Notebook, asked: Replacement, path: str) -> tuple[str, tuple[str, ...]]:
    """Return the text after one replacement, and notes for the model."""
    if asked.new_cell:
        return _with_new_cell(notebook, asked, path)
    if not asked.cell:
        return _anywhere(notebook, asked, path)
    cell = _numbered_cell(notebook, asked.cell, path)
    if asked.old or asked.insert_at_line is not None:
        return _in_cell(notebook, asked.cell, asked, path)
    if not asked.new:
        return _without(notebook, asked.cell), (f"Cell {asked.cell} was deleted.",)
    return _with_source(notebook, cell, asked.new), ()


def _numbered_cell(notebook: Notebook, number: int, path: str) -> Cell:
    count = len(notebook.cells)
    if not 1 <= number <= count:
        raise ToolError(f"{path} has {counted(count, 'cell')}: there is no cell {number}.")
    return notebook.cells[number - 1]


def _in_cell(
    notebook: Notebook, number: int, asked: Replacement, path: str
) -> tuple[str, tuple[str, ...]]:
    cell = notebook.cells[number - 1]
    own = msgspec.structs.replace(asked, cell=0)
    source = cell.source.encode(errors="surrogatepass")
    edited = replace(source, (own,), path=f"cell {number} of {path}")
    return _with_source(notebook, cell, edited.data.decode(errors="surrogatepass")), edited.notes


def _anywhere(notebook: Notebook, asked: Replacement, path: str) -> tuple[str, tuple[str, ...]]:
    """Make a replacement that names no cell: in the cells, or else in the rest of the file."""
    old = asked.old.replace("\r\n", "\n")
    found = [n for n, cell in enumerate(notebook.cells, 1) if old and old in cell.source]
    if len(found) > 1 and not asked.replace_all:
        raise ToolError(
            f"`old` occurs in cells {', '.join(map(str, found))} of {path}. Give the `cell`, or set `replace_all`."
        )
    notes: tuple[str, ...] = ()
    if found:
        for number in found:
            text, said = _in_cell(notebook, number, asked, path)
            notebook, notes = cast("Notebook", parse_notebook(text)), (*notes, *said)
        return notebook.text, notes
    edited = replace(notebook.text.encode(errors="surrogatepass"), (asked,), path=path)
    return edited.data.decode(errors="surrogatepass"), edited.notes


def _with_source(notebook: Notebook, cell: Cell, source: str) -> str:
    text = notebook.text
    if cell.source_span is None:
        raise ToolError("This cell has no `source`.")
    before, after = text[: cell.source_span.start], text[cell.source_span.end :]
    return before + _source_json(notebook, cell.source_span, source) + after


def _source_json(notebook: Notebook, span: JsonSpan, source: str) -> str:
    """Return `source` in the form of the value that it replaces, with its unchanged lines as they were."""
    text, encode = notebook.text, _encoder(notebook.text)
    if not text.startswith("[", span.start):
        return encode(source)
    spans = list(_elements(text, span.start))
    written = [text[each.start : each.end] for each in spans]
    known = {json.loads(each): each for each in written if each.startswith('"')}
    lines = [known.get(line) or encode(line) for line in _lines(source, known)]
    if not lines:
        return "[]"
    if spans:
        first = text[span.start + 1 : spans[0].start]
        last = text[spans[-1].end : span.end - 1]
        between = text[spans[0].end : spans[1].start] if len(spans) > 1 else f",{first or ' '}"
    else:
        first, between, last = _list_style(notebook, span)
    return f"[{first}{between.join(lines)}{last}]"


def _lines(source: str, known: Iterable[str]) -> list[str]:
    """Split `source` as the `known` lines are: Jupyter splits at all line ends that Python knows, other programs only at newlines."""
    if any(len(line.splitlines()) > 1 for line in known):
        return re.findall(r"[^\n]*\n|[^\n]+", source)
    return source.splitlines(keepends=True)


def _list_style(notebook: Notebook, span: JsonSpan) -> tuple[str, str, str]:
    """Return the blanks of a list that was empty: like those of other lists of the notebook, else by the indentation of its key."""
    text = notebook.text
    begin = text.rfind("\n", 0, span.start) + 1
    indent = text[begin : _SPACE.match(text, begin).end()]  # pyright: ignore[reportOptionalMemberAccess]
    is_alone = text[begin + len(indent) :].startswith('"source"')
    if not is_alone:
        return "", ", ", ""
    end = "\r\n" if text[:begin].endswith("\r\n") else "\n"
    return f"{end}{indent}{_unit(text)}", f",{end}{indent}{_unit(text)}", f"{end}{indent}"


def _unit(text: str) -> str:
    """Return the indentation of one level."""
    found = re.match(r"\s*\{\r?\n([ \t]*)", text)
    return found[1] if found else " "


def _encoder(text: str) -> Callable[[str], str]:
    """Return the encoder of strings that fits the file: with escapes for all but ASCII, if it has such escapes and nothing else."""
    is_ascii = text.isascii() and re.search(r"\\u(?!d[89a-f]|00[01])[0-9a-f]{4}", text, re.IGNORECASE) is not None  # fmt: skip
    return lambda value: _json(value, is_ascii=is_ascii)


def _json(value: object, indent: str | None = None, *, is_ascii: bool) -> str:
    """Encode `value`. Halves of surrogate pairs remain escapes: they have no bytes in UTF-8."""
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent)
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text)


def _without(notebook: Notebook, number: int) -> str:
    """Return the text without a cell, its comma, and the blanks in between."""
    text, cells = notebook.text, notebook.cells
    span = cells[number - 1].span
    if len(cells) == 1:
        return f"{text[: notebook.list_span.start]}[]{text[notebook.list_span.end :]}"
    if number < len(cells):
        return text[: span.start] + text[cells[number].span.start :]
    return text[: cells[number - 2].span.end] + text[span.end :]


def _with_new_cell(
    notebook: Notebook, asked: Replacement, path: str
) -> tuple[str, tuple[str, ...]]:
    """Return the text with a new cell before the cell `asked.cell`, or at the end."""
    text, cells = notebook.text, notebook.cells
    count = len(cells)
    number = asked.cell or count + 1
    if asked.old or asked.insert_at_line is not None:
        raise ToolError("`new_cell` takes `cell` and `new` alone: omit `old` and `insert_at_line`.")
    if not 1 <= number <= count + 1:
        raise ToolError(f"{path} has {counted(count, 'cell')}: insert at `cell` 1 to {count + 1}.")
    assert asked.new_cell
    data = _new_cell(notebook, asked.new_cell, asked.new)
    span = notebook.list_span
    if not cells:
        return f"{text[: span.start]}[{_shown(notebook, data, span.start)}]{text[span.end :]}", ()
    if number <= count:
        at = cells[number - 1].span.start
        gap = _gap(notebook) or text[span.start + 1 : at]
        return f"{text[:at]}{_shown(notebook, data, at)},{gap.replace(',', '', 1)}{text[at:]}", ()
    at = cells[-1].span.end
    gap = _gap(notebook) or f",{text[span.start + 1 : cells[0].span.start]}"
    return f"{text[:at]}{gap}{_shown(notebook, data, cells[-1].span.start)}{text[at:]}", ()


def _gap(notebook: Notebook) -> str:
    """Return the text between the first two cells."""
    first = notebook.cells[:2]
    return notebook.text[first[0].span.end : first[1].span.start] if len(first) > 1 else ""


def _new_cell(notebook: Notebook, kind: Literal["code", "markdown"], source: str) -> dict[str, Any]:
    data: dict[str, Any] = {"cell_type": kind}
    if kind == "code":
        data["execution_count"] = None
    version = [notebook.data.get(key) for key in ("nbformat", "nbformat_minor")]
    has_ids = all(isinstance(each, int) for each in version) and version >= [4, 5]
    if has_ids or any("id" in cell.data for cell in notebook.cells):
        data["id"] = secrets.token_hex(4)
    data["metadata"] = {}
    if kind == "code":
        data["outputs"] = []
    return data | {"source": source.splitlines(keepends=True)}


def _shown(notebook: Notebook, data: dict[str, Any], at: int) -> str:
    """Return a new cell in the notebook's style, for the position `at`."""
    text = notebook.text
    is_ascii = _encoder(text)("\xe9") != '"\xe9"'
    begin = text.rfind("\n", 0, at) + 1
    indent = text[begin:at]
    if begin == 0 or indent.strip():  # not on a line of its own
        return _json(data, is_ascii=is_ascii)
    shown = _json(data, _unit(text), is_ascii=is_ascii)
    end = "\r\n" if text[:begin].endswith("\r\n") else "\n"
    return shown.replace("\n", f"{end}{indent}")
