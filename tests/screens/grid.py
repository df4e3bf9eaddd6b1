"""A screen as Neovim's `redraw` events make it, and the same as an SVG."""

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import Any

FONT = "'DejaVu Sans Mono', Menlo, Consolas, monospace"
FONT_PX, CELL, ROW = 14, 8.43, 18  # a cell is as wide as a letter of the first font


class Grid:
    """The cells of the screen, each a text and the id of its highlight; the right half of a wide character is empty."""

    def __init__(self) -> None:
        self.cells: list[list[tuple[str, int]]] = []
        self.highlights: dict[int, dict[str, Any]] = {0: {}}
        self.foreground, self.background = 0xFFFFFF, 0
        self.cursor = (0, 0)
        self.drawn = 0

    def on_notification(self, name: str, batches: list[Any]) -> None:
        self.drawn += name == "redraw"
        for event, *calls in batches if name == "redraw" else ():
            if handle := getattr(self, f"_on_{event}", None):
                for call in calls:
                    handle(*call)

    def _on_grid_resize(self, _grid: int, columns: int, lines: int) -> None:
        self.cells = [[(" ", 0)] * columns for _ in range(lines)]

    def _on_grid_clear(self, _grid: int) -> None:
        self._on_grid_resize(1, len(self.cells[0]), len(self.cells))

    def _on_default_colors_set(self, foreground: int, background: int, *_rest: int) -> None:
        self.foreground, self.background = foreground, background

    def _on_hl_attr_define(self, id_: int, attributes: dict[str, Any], *_rest: Any) -> None:
        self.highlights[id_] = attributes

    def _on_grid_cursor_goto(self, _grid: int, row: int, col: int) -> None:
        self.cursor = (row, col)

    def _on_grid_line(self, _grid: int, row: int, col: int, cells: list[Any], *_rest: Any) -> None:
        highlight = 0
        for text, *more in cells:
            highlight = more[0] if more else highlight
            for _ in range(more[1] if len(more) > 1 else 1):
                self.cells[row][col] = (text, highlight)
                col += 1

    def _on_grid_scroll(
        self, _grid: int, top: int, bottom: int, left: int, right: int, rows: int, _columns: int
    ) -> None:
        targets = range(top, bottom - rows) if rows > 0 else range(bottom - 1, top - rows - 1, -1)
        for row in targets:
            self.cells[row][left:right] = self.cells[row + rows][left:right]

    def text(self) -> str:
        return "\n".join("".join(text for text, _ in row).rstrip() for row in self.cells)

    def svg(self, title: str) -> str:
        """The picture. Colors and shapes of text are classes, named in the order in which they come."""
        classes: dict[str, str] = {}
        body = [line for n, row in enumerate(self.cells) for line in self._row(n, row, classes)]
        width, height = round(len(self.cells[0]) * CELL), len(self.cells) * ROW
        row, col = self.cursor
        rules = "".join(f".{name}{{{rule}}}" for rule, name in classes.items())
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
                f"<title>{escape(title)}</title>",
                f"<style>text{{font:{FONT_PX}px {FONT};white-space:pre}}{rules}</style>",
                f'<rect width="100%" height="100%" fill="{_color(self.background)}"/>',
                *body,
                f'<rect x="{col * CELL:.1f}" y="{row * ROW}" width="{CELL}" height="{ROW}" fill="{_color(self.foreground)}" opacity=".5"/>',
                "</svg>\n",
            ]
        )

    def _row(
        self, number: int, row: list[tuple[str, int]], classes: dict[str, str]
    ) -> Iterator[str]:
        """The grounds of a row, then its texts: what is behind a letter would hide a part of the one before it."""
        grounds, texts = [], []
        for highlight, first, count, text in _runs(row):
            x, length = f"{first * CELL:.1f}".removesuffix(".0"), f"{count * CELL:.1f}"
            attributes = self.highlights[highlight]
            fill, ground = self._colors(attributes)
            if ground != self.background:
                grounds.append(
                    f'<rect x="{x}" y="{number * ROW}" width="{length}" height="{ROW}" fill="{_color(ground)}"/>'
                )
            shape = _shape(attributes)
            if text.strip() or "text-decoration" in shape:
                name = classes.setdefault(f"fill:{_color(fill)}{shape}", f"c{len(classes)}")
                texts.append(
                    f'<text x="{x}" y="{number * ROW + 14}" class="{name}" textLength="{length}" xml:space="preserve">{escape(text, quote=False)}</text>'
                )
        yield from grounds + texts

    def _colors(self, attributes: dict[str, Any]) -> tuple[int, int]:
        colors = (
            attributes.get("foreground", self.foreground),
            attributes.get("background", self.background),
        )
        return colors[::-1] if attributes.get("reverse") else colors


def _runs(row: list[tuple[str, int]]) -> Iterator[tuple[int, int, int, str]]:
    """Cells beside each other with one highlight: that, the first column, their number, the text. Wide characters stand alone."""

    def kind(at: int) -> tuple[int, int]:
        is_wide = at + 1 < len(row) and row[at + 1][0] == ""
        start = at - 1 if row[at][0] == "" else at
        return row[at][1], start if is_wide or row[at][0] == "" else -1

    for (highlight, _), group in groupby(range(len(row)), key=kind):
        columns = list(group)
        yield highlight, columns[0], len(columns), "".join(row[column][0] for column in columns)


def _color(value: int) -> str:
    return f"#{value:06x}"


def _shape(attributes: dict[str, Any]) -> str:
    lines = [
        css
        for name, css in (
            ("underline", "underline"),
            ("undercurl", "underline wavy"),
            ("strikethrough", "line-through"),
        )
        if attributes.get(name)
    ]
    return (
        (";font-weight:bold" if attributes.get("bold") else "")
        + (";font-style:italic" if attributes.get("italic") else "")
        + (f";text-decoration:{' '.join(lines)}" if lines else "")
    )
