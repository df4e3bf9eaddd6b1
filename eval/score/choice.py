"""
The tasks of the published score, chosen by a rule and not by their results.

Within each kind, tasks are in the order of the SHA-256 of their names. The first of each kind come first, then the second, so that a shorter
run does the first of the same tasks.
"""

import tomllib
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

PER_KIND = 2


def kinds_in(directory: Path) -> dict[str, str]:
    """Return the kinds of the tasks in a directory, by their names."""
    return {
        path.parent.name: tomllib.loads(path.read_text())["metadata"]["kind"]
        for path in directory.glob("*/task.toml")
    }


def chosen(kinds: Mapping[str, str], per_kind: int) -> list[str]:
    """Return the names of the first `per_kind` tasks of each kind, in the order in which they run."""
    of_kind = defaultdict[str, list[str]](list)
    for name in sorted(kinds, key=lambda name: sha256(name.encode()).digest()):
        of_kind[kinds[name]].append(name)
    ranks = zip_longest(*(of_kind[kind][:per_kind] for kind in sorted(of_kind)))
    return [name for rank in ranks for name in rank if name]
