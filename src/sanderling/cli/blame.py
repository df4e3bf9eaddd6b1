"""`sanderling blame`, and `sanderling changes --line`: the prompts, models and sessions that wrote the lines of a file."""

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from sanderling.blame.origins import origins_in
from sanderling.cli.alone import refuse_options
from sanderling.cli.streams import say
from sanderling.config.layers import own_settings
from sanderling.errors import SanderlingError, UsageError
from sanderling.json_lines import for_terminal
from sanderling.project.root import project_root
from sanderling.protocol.blame import Blame, BlamedHunk
from sanderling.text import printable, visible, visible_line

EXIT_UNKNOWN, EXIT_USAGE = 1, 2
MAX_DIGITS = 9
GONE = "(its session was deleted)"


class Place(NamedTuple):
    """A file and perhaps a line, which counts from 1."""

    path: str
    line: int | None = None


def add(commands: Any) -> None:
    blame = commands.add_parser(
        "blame",
        description="Show which of the agent's turns wrote the lines of a file, with the prompt, the model, the cost of the turn and what became of the"
        " change. Lines are found by content, so they may have been committed, formatted or moved since.",
        epilog=f"The exit status is 0; {EXIT_UNKNOWN} if the agent did not write LINE; {EXIT_USAGE} for a mistake.",
    )
    blame.add_argument("place", metavar="FILE[:LINE]")
    blame.add_argument("--json", action="store_true", help="print JSON")
    blame.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        place = _place(arguments.place)
        found = _blame(place)
        if place.line is not None:
            return _show_line(found, place, is_json=arguments.json)
    except SanderlingError as error:
        say(str(error))
        return EXIT_USAGE
    if arguments.json:
        lines = [for_terminal(found)]
    else:
        lines = [
            f"{_span(each.first, each.count)}  {_facts(found.hunks[each.hunk])}"
            for each in found.lines
        ] or ["The agent wrote no line of this file."]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def show_changes_of_line(arguments: argparse.Namespace) -> int:
    """
    Print the hunk that wrote a line, and the earlier ones that it replaced.

    Raises:
        SanderlingError: the file has no such line, or cannot be read.
    """
    refuse_options(arguments, "session", "turn")
    place = _place(arguments.line)
    if place.line is None:
        raise UsageError("--line FILE:LINE: the number of the line is missing")
    found = _blame(place)
    chain = list(_chain(found, place))
    if not chain:
        return _say_unknown(place)
    for hunk in chain:
        if arguments.json:
            _write_json(hunk)
        else:
            sys.stdout.writelines(f"{line}\n" for line in (_facts(hunk), *_difference(hunk)))
    return 0


def _place(text: str) -> Place:
    """
    Return the place that `text` names. A file whose own name ends in a number is a file.

    Raises:
        UsageError: a file is followed by something other than the number of a line.
    """
    path, colon, line = text.rpartition(":")
    if not colon or os.path.exists(text):  # Path.exists fails for a name that is too long
        return Place(text)
    if line.isdecimal() and len(line) <= MAX_DIGITS:
        return Place(path, int(line))
    if os.path.isfile(path):
        raise UsageError(f"'{printable(line)}' after {path} is not the number of a line")
    return Place(text)


def _blame(place: Place) -> Blame:
    found = origins_in(own_settings(), project_root("")).blame(place.path)
    if place.line is not None and not 0 < place.line <= found.line_count:
        raise UsageError(
            f"{place.path} has no line {place.line}, its last one is {found.line_count}"
        )
    return found


def _hunk_of(found: Blame, line: int) -> BlamedHunk | None:
    for each in found.lines:
        if each.first <= line < each.first + each.count:
            return found.hunks[each.hunk]
    return None


def _chain(found: Blame, place: Place) -> Iterator[BlamedHunk]:
    hunk = _hunk_of(found, place.line or 0)
    queue, seen = [hunk] if hunk else [], set[int]()
    while queue:
        hunk = queue.pop(0)
        yield hunk
        queue += [found.hunks[at] for at in hunk.earlier if at not in seen]
        seen.update(hunk.earlier)


def _show_line(found: Blame, place: Place, *, is_json: bool) -> int:
    hunk = _hunk_of(found, place.line or 0)
    if hunk is None:
        return _say_unknown(place)
    if is_json:
        _write_json(hunk)
        return 0
    lines = [
        _facts(hunk),
        *(f"    {line}" for line in visible(hunk.prompt).splitlines()),
        *_difference(hunk),
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _write_json(hunk: BlamedHunk) -> None:
    """Print a hunk without `earlier`, the indexes in a list that is not printed."""
    sys.stdout.write(for_terminal(replace(hunk, earlier=())) + "\n")


def _say_unknown(place: Place) -> int:
    say(f"the agent did not write line {place.line} of {place.path}, as far as is recorded")
    return EXIT_UNKNOWN


def _span(first: int, count: int) -> str:
    return f"{first}-{first + count - 1}" if count > 1 else f"{first}"


def _facts(hunk: BlamedHunk) -> str:
    """Return a hunk in one line: when, by whom, for how much, its outcome, session and prompt."""
    if not hunk.number:
        return f"{hunk.outcome}  session {hunk.session_id} {GONE}"
    at = datetime.fromtimestamp(hunk.at)  # noqa: DTZ006 - the user's local time
    cost = f"${hunk.usd:.2f}" if hunk.is_priced else "$?"
    by = ", ".join(filter(None, (hunk.agent, hunk.child, hunk.model)))
    turn = f"session {hunk.session_id} turn {hunk.number}"
    parts = (f"{at:%Y-%m-%d %H:%M}", by, cost, hunk.outcome, turn, hunk.title)
    return visible_line("  ".join(filter(None, parts)))


def _difference(hunk: BlamedHunk) -> Iterator[str]:
    for sign, lines, count in (("-", hunk.old, hunk.removed), ("+", hunk.lines, hunk.added)):
        yield from (f"  {sign}{visible(line)}" for line in lines)
        if count > len(lines):
            yield f"  {sign}… {count - len(lines)} more"
