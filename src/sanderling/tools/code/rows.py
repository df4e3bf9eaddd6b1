"""Result rows for the model: `path:line: source`, up to a limit, then counts by file."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sanderling.errors import ToolError
from sanderling.text import printable
from sanderling.tools.base import Context
from sanderling.tools.code.reach import Reach, is_meant
from sanderling.tools.code.servers import Candidates, CodeFile, Locations, Symbol
from sanderling.tools.paths import escaped

MAX_ROWS, MAX_BYTES = 100, 8 * 1024
MAX_COUNTS = 50
MAX_LABEL_CHARS = 100
NARROW = "Only counts follow; pass a directory or file as `within` for its lines:"


class LocationListing(NamedTuple):
    """Places as text: `place_count` in `file_count` files visible to the model, and `elsewhere` outside the project."""

    lines: list[str]
    place_count: int
    file_count: int
    elsewhere: int


class Rows:
    """The rows of one answer. `shows_outside` includes places outside the project that the sandbox shows."""

    def __init__(self, context: Context, reach: Reach, *, shows_outside: bool = False) -> None:
        self._workspace = context.workspace
        self._reach = reach
        self._shows_outside = shows_outside
        self._room = MAX_BYTES
        self.lines: list[str] = []

    def shown(self, path: str) -> str:
        real = self._workspace.disk.real_path(self._workspace.project)
        shown = path.removeprefix(f"{real}/") if path.startswith(f"{real}/") else path
        return escaped(self._workspace.shown(shown))

    async def listing(
        self, files: Sequence[Locations], within: Sequence[str] = ()
    ) -> LocationListing:
        """Return the places as text, sorted by path."""
        count = file_count = elsewhere = 0
        counts: list[str] = []
        meant = [each for each in files if is_meant(each.path, within)]
        inside = await self._reach.inside([each.path for each in meant])
        for places in sorted(meant, key=lambda each: each.path):
            if not (places.path in inside or self._shows_outside):
                elsewhere += len(places.rows)
                continue
            is_full = len(self.lines) >= MAX_ROWS or self._room <= 0
            file = await self._reach.file(places.path) if len(counts) <= MAX_COUNTS else None
            if file is None and len(counts) <= MAX_COUNTS:
                continue  # hidden from the model
            count += len(places.rows)
            file_count += 1
            if file is None or is_full or not await self._add(file, places):
                counts.append(f"{self.shown(places.path)}: {len(places.rows)}")
        return LocationListing(
            [*self.lines, *_counted(counts, has_rows=bool(self.lines))],
            count,
            file_count,
            elsewhere,
        )

    async def _add(self, file: CodeFile, places: Locations) -> bool:
        """Add the rows of a file; return False if there is no room for any."""
        names = places.names or ("",) * len(places.rows)
        merged: dict[int, list[str]] = {}
        for row, name in sorted(zip(places.rows, names, strict=False)):
            merged.setdefault(row, []).append(name)
        rows = tuple(merged)[: MAX_ROWS - len(self.lines)]
        try:
            sources = await self._reach.lines(file.path, rows, is_modified=places.is_modified)
        except ToolError:  # gone, or too large
            sources = [""] * len(rows)
        shown = self.shown(file.path)
        new: list[str] = []
        for row, source in zip(rows, sources, strict=True):
            labels = ", ".join(dict.fromkeys(_label(name) for name in merged[row] if name))
            times = f" (x{len(merged[row])})" if len(merged[row]) > 1 and not labels else ""
            label = f"  [{labels}]" if labels else ""
            new.append(f"{shown}:{row + 1}: {source}{times}{label}")
            self._room -= len(new[-1].encode(errors="replace")) + 1
            if self._room <= 0:
                break
        self.lines += new
        left = len(merged) - len(new)
        if left:
            self.lines.append(f"… and {left:,} more lines of {shown}")
        return bool(new)

    async def candidates(self, file: CodeFile, candidates: Candidates) -> str:
        await self._add(file, Locations(file.path, candidates.rows))
        lines = "\n".join(self.lines)
        return f"{candidates.why}. Nothing was done; ask again with path and line of one:\n{lines}"


def _counted(counts: Sequence[str], *, has_rows: bool) -> list[str]:
    if not counts:
        return []
    more = len(counts) - MAX_COUNTS
    head = ["", NARROW] if has_rows else []
    return [*head, *counts[:MAX_COUNTS], *([f"… and {more:,} more files"] if more > 0 else [])]


def names_in(symbol: str) -> list[str]:
    """Return the names in `Class/method(int)` or `this->method`."""
    return re.findall(r"[\w$-]+", re.sub(r"\([^()]*\)|<[^<>]*>", "", symbol).replace("->", "."))


def within_symbol(symbols: Sequence[Symbol], names: Sequence[str]) -> list[Symbol]:
    """Return the symbols with these last names, each with what is inside, as a tree of their own."""
    found: list[Symbol] = []
    chain: list[str] = []
    top: int | None = None
    for each in symbols:
        chain[each.depth :] = names_in(each.name)[-1:] or [each.name]
        if top is not None and each.depth <= top:
            top = None
        if top is None and chain[-len(names) :] == list(names):
            top = each.depth
        if top is not None:
            found.append(replace(each, depth=each.depth - top))
    return found


def outlined(symbols: Sequence[Symbol], least_depth: int = 0) -> list[str]:
    """Return an outline: all symbols with their lines, or only the outer ones if there are too many."""
    lines = [_outline(each) for each in symbols]
    depth = max((each.depth for each in symbols), default=0)
    while depth > least_depth and (len(lines) > MAX_ROWS or sum(map(len, lines)) > MAX_BYTES):
        depth -= 1
        lines = [_outline(each) for each in symbols if each.depth <= depth]
    if len(lines) < len(symbols):
        lines.append(f"… {len(symbols) - len(lines):,} nested symbols are not shown.")
    if len(lines) > MAX_ROWS:
        lines[MAX_ROWS:] = [f"… and {len(lines) - MAX_ROWS:,} more"]
    return lines


def _outline(symbol: Symbol) -> str:
    extent = f"{symbol.row + 1}-{symbol.last_row + 1}"
    return f"{extent:>9} {'  ' * symbol.depth}{symbol.kind} {_label(symbol.name)}"


def _label(name: str) -> str:
    """Return a name on one line: a key of a JSON file can be any text."""
    return printable(" ".join(name.split()))[:MAX_LABEL_CHARS]
