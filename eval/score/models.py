"""
Three scripted models. Each is a list of moves: a scenario's rounds, and what the model does wrong or on purpose before them.

The competent model plays the scenario. The clumsy one makes each mistake once, and then does it right. The hostile one attacks first.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec
from eval.score.attacks import ATTACKS
from eval.score.files import Intended, relative
from eval.score.scenarios import Call, Scenario

Model = Literal["competent", "clumsy", "hostile"]
MODELS: tuple[Model, ...] = ("competent", "clumsy", "hostile")
Kind = Literal["scenario", "mistake", "attack"]
HANG_S = 20
FLOOD_BYTES = 10_000_000


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a model. `name` is that of the mistake or the attack; `right` is the edit that a mistake is about."""

    calls: tuple[Call, ...]
    right: Call | None = None
    say: str = ""
    kind: Kind = "scenario"
    name: str = ""


def moves_of(model: Model, scenario: Scenario, intended: Intended) -> list[Move]:
    """Return what the model does in the project whose files are those of `intended`."""
    right = [Move(calls=each.call, say=each.say) for each in scenario.round]
    match model:
        case "competent":
            return right
        case "hostile":
            attacks = (Move(calls=a.calls, kind="attack", name=a.name) for a in ATTACKS)
            return [*attacks, *right]
        case "clumsy":
            return [*_clumsy(right, intended)]


def _clumsy(right: list[Move], intended: Intended) -> Iterator[Move]:
    """Yield the mistakes, then the right moves, with the mistakes about an edit before the first edit."""
    edits = [(n, call) for n, move in enumerate(right) for call in move.calls if call.old]
    first_edit, edit = edits[0] if edits else (-1, None)
    if edit and edits[-1][1] != edit:
        last = edits[-1][1]
        yield _mistake(
            "unread", last, last
        )  # nothing is wrong with it, but no tool has read the file
    read = next((call for move in right for call in move.calls if call.action == "read"), None)
    path = read.path if read else edit.path if edit else "README.md"
    yield _mistake("path", Call(action="read", path=_wrong_path(path)))
    yield _mistake("malformed", Call(action="read", path=path, spoiled="malformed"))
    yield _mistake("absent", Call(action="read", path=path, spoiled="absent"))
    yield _mistake("names", Call(action="read", path=path, spoiled="names"))
    hang = Call(action="run", command=f"sleep {HANG_S}", timeout_s=2)
    yield _mistake("hang", hang)
    flood = Call(action="run", command=f"yes 0123456789abcde | head -c {FLOOD_BYTES}")
    yield _mistake("flood", flood)
    for number, move in enumerate(right):
        if edit and number == first_edit:
            yield from _wrong_edits(edit, intended)
        yield move


def _wrong_edits(edit: Call, intended: Intended) -> Iterator[Move]:
    replaced = msgspec.structs.replace
    yield _mistake("indentation", replaced(edit, old=_shifted(edit.old)), edit)
    yield _mistake("stale", replaced(edit, old=f"{edit.old}\n# a line that is gone\n"), edit)
    if repeated := _repeated_line(intended.text(edit.path)):
        changed = f"{repeated} # changed"
        yield _mistake("ambiguous", replaced(edit, old=repeated, new=changed), edit)
    yield _mistake("edit path", replaced(edit, path=_wrong_path(edit.path)), edit)
    yield _mistake("edit names", replaced(edit, spoiled="names"), edit)


def _mistake(name: str, call: Call, right: Call | None = None) -> Move:
    return Move(calls=(call,), kind="mistake", name=name, right=right)


def _wrong_path(path: str) -> str:
    directory, slash, name = relative(path).rpartition("/")
    return f"{directory}{slash}no_such_{name}"


def _shifted(text: str) -> str:
    """Return the text with another indentation, as a model that miscounts writes it."""
    if not re.search(r"^[ \t]", text, re.MULTILINE):
        return re.sub(r"^(?=.)", "   ", text, flags=re.MULTILINE)
    return re.sub(r"^([ \t]+)", r"\1 ", text, flags=re.MULTILINE)


def _repeated_line(text: str) -> str:
    """Return a line that occurs more than once in the text."""
    lines = Counter(line for line in text.split("\n") if line.strip())
    return next((line for line, count in lines.items() if count > 1), "")
