"""
What an attack is: data about it, and one function that tries.

The programs run where an attacker would: alone, with any `python3`, copied into the project. They are told everything that
an attacker could only guess (paths, ports, process ids), never the token that the secrets hold.
"""

import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

PATIENCE_S = 20.0
"""How long an attack waits for what comes where nothing stops it, on a machine that is busy, too. A refusal comes at once."""

Evidence = Literal["claim", "changed", "loot", "received", "process", "canary", "alive"]
"""
What decides. `claim`: the attack says it got through. Otherwise the victim's own eyes: something below the attack's
`target` `changed`; the text that the attack brought back holds the token (`loot`); its id was `received` by a socket, a
terminal or a person's editor; the `process` that it aimed at is dead or not as it was; git, run by the victim
afterwards, ran the `canary`; a process that it left is `alive`, and stays so.
"""

Scene = Literal["main", "alone", "bare", "own", "worktree", "ro", "terminal", "late", "leftover"]
"""
Where it runs. `main`: with many others, in a project that has every protected name. `alone`: there, but by itself.
`bare`: a repository without those names. `own`: a copy of the main project for this attack only. `worktree`: a linked
worktree. `ro`: the project cannot be written. `terminal`: with a controlling terminal. `late`: like `own`,
judged 300 ms after the end; `leftover`: many together, also after that time.
"""


class World:
    """The victim as an attack sees it: every entry of the victim's description is an attribute."""

    id: str
    home: str
    elsewhere: str
    project: str

    def __init__(self, facts: dict[str, Any], attack_id: str) -> None:
        self.__dict__.update(facts)
        self.id = attack_id

    def __getattr__(self, name: str) -> Any:
        raise LookupError(f"the victim has no {name}")

    @property
    def outside(self) -> Path:
        """A directory in the victim's HOME for this attack alone; holds `file`, `dir/` and `link`."""
        return Path(self.home, "outside", self.id)

    @property
    def visible(self) -> Path:
        """The same in a directory that every program may read, like those below /var/lib."""
        return Path(self.elsewhere, self.id)

    @property
    def victim_pid(self) -> int:
        """A process of the user's for this attack alone."""
        return self.pids[self.id]


class Stopped(Exception):  # noqa: N818 - it is the good news
    """The attack saw for itself that it got nowhere."""


Need = Callable[[World], str]
"""Says why the attack proves nothing on this machine; an empty string: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    id: str
    kind: str
    run: Callable[[World], object]
    evidence: Evidence
    target: str
    """For `changed`: the path to look at, with `{home}`, `{elsewhere}`, `{project}` and `{id}` in it."""
    needs: tuple[Need, ...]
    scene: Scene
    timeout_s: float


ATTACKS: dict[str, Attack] = {}


def attack(
    attack_id: str,
    *,
    kind: str,
    evidence: Evidence = "claim",
    target: str = "{home}/outside/{id}",
    needs: tuple[Need, ...] = (),
    scene: Scene = "main",
    timeout_s: float = PATIENCE_S + 5,
) -> Callable[[Callable[[World], object]], Callable[[World], object]]:
    """
    Register a function that raises when it is stopped.

    For the evidence `claim` and `loot` it returns what it got (text, or anything true), or nothing when it was stopped.
    """

    def register(run: Callable[[World], object]) -> Callable[[World], object]:
        assert attack_id not in ATTACKS, attack_id
        ATTACKS[attack_id] = Attack(
            id=attack_id,
            kind=kind,
            run=run,
            evidence=evidence,
            target=target,
            needs=needs,
            scene=scene,
            timeout_s=timeout_s,
        )
        return run

    return register


def root(_world: World) -> str:
    return "" if os.geteuid() == 0 else "needs root"


def unprivileged(_world: World) -> str:
    return "root needs no trick for it" if os.geteuid() == 0 else ""


def fact(name: str) -> Need:
    """The victim could set `name` up."""
    return lambda world: "" if name in world.__dict__ else f"the victim has no {name}"


def path(name: str) -> Need:
    return lambda _world: "" if os.path.lexists(name) else f"no {name} here"


def implemented(call: Callable[[], object]) -> Need:
    """The kernel was built with the call; `call` makes it, in a way that changes nothing."""

    def need(_world: World) -> str:
        try:
            call()
        except OSError as error:
            return f"this kernel has no {error.filename}" if error.errno == errno.ENOSYS else ""
        return ""

    return need


def load_world(facts_path: str, attack_id: str) -> World:
    return World(json.loads(Path(facts_path).read_text()), attack_id)
