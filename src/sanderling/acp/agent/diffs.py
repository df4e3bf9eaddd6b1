"""Converts unified diffs to ACP diffs, one for each hunk."""

from collections.abc import Iterator

from sanderling.acp.wire.content import ToolContent, shown_diff

HEAD = "@@ -"
LEFT_OUT = "… and more"


def shown_parts(path: str, difference: str) -> list[ToolContent]:
    """Return the hunks of a unified `difference` of the file `path`; empty if it is not a diff."""
    parts = list(_parts(difference.split("\n")))
    is_new = len(parts) == 1 and difference.startswith("@@ -0,0 ")
    return [shown_diff(path, None if is_new else _text(old), _text(new)) for old, new in parts]


def first_line(difference: str) -> int | None:
    """Return the new file's line number at which a unified `difference` begins."""
    head = difference.partition("\n")[0]
    if not head.startswith(HEAD) or "+" not in head:
        return None
    number = head.partition("+")[2].split(",")[0].split()[0]
    return max(1, int(number)) if number.isdigit() else None


def _parts(lines: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    old: list[str] = []
    new: list[str] = []
    for line in lines:
        if line.startswith(HEAD):
            if old or new:
                yield old, new
            old, new = [], []
        elif line != LEFT_OUT:
            sign, text = line[:1], line[1:]
            if sign in {" ", "-"}:
                old.append(text)
            if sign in {" ", "+"}:
                new.append(text)
    if old or new:
        yield old, new


def _text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
