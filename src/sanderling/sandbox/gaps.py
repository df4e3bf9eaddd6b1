"""
What a level does not isolate: one table, shown by `status`, told to the model, printed in the documentation, and held by the
escape suite to be exact: an attack gets through at a level if, and only if, it is listed here.
"""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sanderling.sandbox.policy import Level
    from sanderling.sandbox.report import Report


@dataclass(frozen=True, slots=True)
class Gap:
    """`attacks` are the ids, in `tests/sandbox/attacks`, of what gets through for that reason."""

    words: str
    layer: Literal["namespaces", "landlock"]
    """What would close it."""
    attacks: tuple[str, ...]
    only: Literal["root", "unprivileged"] | None = None
    max_abi: int | None = None
    """The newest version of Landlock that has the gap; None: all have."""

    def is_open(self, *, is_root: bool, landlock_abi: int) -> bool:
        return self.only in (None, "root" if is_root else "unprivileged") and (
            self.max_abi is None or landlock_abi <= self.max_abi
        )


GAPS: "dict[Level, tuple[Gap, ...]]" = {
    "full": (),
    "full-bwrap": (),
    "namespaces": (),
    "landlock": (),
}


def gaps_at(level: "Level", *, is_root: bool, landlock_abi: int) -> tuple[Gap, ...]:
    """What is open at `level` for this kind of user on this kernel."""
    return tuple(
        gap
        for gap in GAPS.get(level, ())
        if gap.is_open(is_root=is_root, landlock_abi=landlock_abi)
    )


def missing_at(report: "Report", level: "Level") -> list[dict[str, str]]:
    """What is open at `level` here: `what`, and the `reason` that a stronger layer does not close it."""
    gaps = gaps_at(level, is_root=os.geteuid() == 0, landlock_abi=report.landlock_abi)
    return [
        {"what": gap.words, "reason": report.reasons[gap.layer] or f"not used at level {level}"}
        for gap in gaps
    ]
