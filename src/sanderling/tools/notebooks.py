"""Notebooks for the model: cells by number, with shortened outputs."""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

from sanderling.changes.editing.lines import cut, numbered
from sanderling.changes.editing.notebook import Cell, Notebook, joined
from sanderling.errors import ToolError
from sanderling.text import counted, shortened, visible_line
from sanderling.tools.commands.output import clean
from sanderling.tools.texts import fitting

MAX_OUTPUT_LINES, MAX_OUTPUT_LINE_CHARS = 20, 300
MAX_OUTPUTS = 10
MAX_WORD_CHARS = 80
TEXTS = ("text/plain", "text/markdown", "text/html")


class ShownCells(NamedTuple):
    lines: list[str]
    extent: str


def cells_shown(notebook: Notebook, first: int, limit: int, max_bytes: int) -> ShownCells:
    """
    Return up to `limit` cells from number `first` on, as many as fit in `max_bytes`, but at least a part of one.

    Raises:
        ToolError: there is no such cell.
    """
    count = len(notebook.cells)
    what = f"notebook, {_word(notebook.language)}" if notebook.language else "notebook"
    if not count:
        return ShownCells([], f"{what} without cells")
    if first > count:
        raise ToolError(f"The notebook has {counted(count, 'cell')}: there is no cell {first}.")
    lines: list[str] = []
    left, last = max_bytes, first - 1
    for number in range(first, min(count, first - 1 + limit) + 1):
        shown = list(_shown(notebook.cells[number - 1], number))
        fit = fitting(shown, left)
        if len(fit) < len(shown) and lines:
            break
        if len(fit) < len(shown):
            fit.append(
                f"[cut: {len(shown) - len(fit)} more lines of this cell; read them with bash]"
            )
        lines += fit
        left -= sum(len(line.encode()) + 1 for line in fit)
        last = number
    if (first, last) == (1, count):
        extent = counted(count, "cell")
    else:
        more = f"; continue with offset={last + 1}" if last < count else ""
        extent = f"cells {first}-{last} of {count}{more}"
    return ShownCells(lines, f"{extent}; {what}; offset and limit count cells")


def _shown(cell: Cell, number: int) -> Iterator[str]:
    run = cell.data.get("execution_count")
    yield f"--- cell {number}: {_word(cell.kind)}{f', run [{run}]' if type(run) is int else ''}"
    yield from numbered(cell.source.split("\n"), 1)
    outputs = cell.data.get("outputs")
    outputs = cast("list[Any]", outputs) if isinstance(outputs, list) else []
    for output in outputs[:MAX_OUTPUTS]:
        if isinstance(output, dict):
            yield from _output(cast("dict[str, Any]", output))
    if len(outputs) > MAX_OUTPUTS:
        yield f"[{len(outputs) - MAX_OUTPUTS} more outputs]"


def _output(output: dict[str, Any]) -> Iterator[str]:
    match output.get("output_type"):
        case "stream":
            yield f"output ({_word(str(output.get('name', 'stdout')))}):"
            yield from _shortened(joined(output.get("text")))
        case "error":
            yield "output (error):"
            trace = output.get("traceback")
            lines = cast("list[Any]", trace) if isinstance(trace, list) else []
            text = "\n".join(str(line) for line in lines)
            yield from _shortened(text or f"{output.get('ename')}: {output.get('evalue')}")
        case _:
            data = output.get("data")
            yield from _bundle(cast("dict[str, Any]", data) if isinstance(data, dict) else {})


def _bundle(data: dict[str, Any]) -> Iterator[str]:
    """Yield an output that is there in several formats: as text, if possible, and the names of the others."""
    kind = next((each for each in TEXTS if joined(data.get(each))), "")
    others = [each for each in data if each not in TEXTS]
    names = "".join(f", {_word(each)} ({_size(data[each])})" for each in others[:5])
    yield f"output ({kind or 'not text'}{names}):"
    if kind:
        yield from _shortened(joined(data[kind]))


def _word(text: str) -> str:
    """Return a word of the file's metadata, short and on one line: it could be of any length, or imitate a cell."""
    return shortened(visible_line(text[: MAX_WORD_CHARS + 1]), MAX_WORD_CHARS)


def _size(value: object) -> str:
    text = joined(value)
    return f"{len(text):,} characters" if text else "data"


def _shortened(text: str) -> Iterator[str]:
    """Yield the first and the last lines of an output, each cut."""
    lines = clean(text).rstrip("\n").split("\n")
    if len(lines) > MAX_OUTPUT_LINES:
        half = MAX_OUTPUT_LINES // 2
        lines = [*lines[:half], f"[… {len(lines) - 2 * half:,} lines left out]", *lines[-half:]]
    for line in lines:
        yield f"  {cut(line, MAX_OUTPUT_LINE_CHARS)}"
