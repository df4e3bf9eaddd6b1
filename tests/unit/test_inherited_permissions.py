"""What a child session may do: what its parent denies is denied there, and what is allowed there changes nothing in the parent."""

from random import Random
from typing import Any, get_args

import pytest
from tests.talk import BaseTalk, scripted

from sanderling.permissions.approvals import Conditions
from sanderling.permissions.gate import ForbiddenError, Gate
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.permissions.session_rules import AllowedUse
from sanderling.permissions.store import RuleStore
from sanderling.protocol.modes import MODES_BY_STRICTNESS, Mode
from sanderling.sandbox.policy import NO_GRANT
from sanderling.session.session import Session
from sanderling.tools.effects import Effect

MODES: tuple[Mode, ...] = get_args(Mode)
TARGETS = (
    *("bash", "bash git push", "bash touch", "edit", "edit *.py", "write", "read .env"),
    *("web_fetch", "web_fetch example.org", "delegate", "*"),
)
ORDER = ("allow", "ask", "deny")


def rules(random: Random, *actions: str) -> list[Rule]:
    count = random.randrange(3)
    return [
        rule_from_text(f"{random.choice(actions)} {random.choice(TARGETS)}") for _ in range(count)
    ]


class Pair:
    """The gates of a parent and its child, and what each decides."""

    def __init__(self, base: Any, random: Random) -> None:
        self.random = random
        self.project = base / "project"
        self.project.mkdir(exist_ok=True)
        talks = [self.talk(base, name) for name in ("parent", "child")]
        self.talks = talks
        own = tuple(rules(random, *ORDER))
        self.parent, self.child = (self.gate(base, talk, own) for talk in talks)
        self.child = self.gate(base, talks[1], own, above=self.parent)

    def talk(self, base: Any, name: str) -> BaseTalk:
        session = Session.open(base / "state/sessions", name, str(self.project))
        return BaseTalk(session, scripted())

    def gate(self, base: Any, talk: BaseTalk, own: tuple[Rule, ...], **more: Any) -> Gate:
        services = talk.services
        store = RuleStore(str(base / "state"), str(self.project))
        return Gate(services.workspace, services.approvals, store, own, talk.emit, **more)

    @property
    def effects(self) -> list[Effect]:
        path = str(self.project)
        commands = ("ls", "touch a", "git push", "cat .env", "curl example.org")
        return [
            *(Effect("bash", "run", command=command, cwd=path) for command in commands),
            *(Effect("edit", "write", path=f"{path}/{name}") for name in ("a.py", "b", ".env")),
            *(Effect("read", "read", path=f"{path}/{name}") for name in ("a.py", ".env")),
            Effect("web_fetch", "fetch", host="example.org"),
            Effect("mcp__s__t", "call"),
            Effect("delegate", "delegate"),
        ]

    def change(self) -> None:
        """Change something in the parent or the child, as the user or a role may at any time."""
        gate = self.random.choice((self.parent, self.child))
        match self.random.randrange(3):
            case 0:
                gate.set_mode(self.random.choice(MODES))
            case 1:
                forbidden = self.random.choice(("bash", "edit", ""))
                gate.forbids = lambda tool: "forbidden" if tool == forbidden else ""
            case _:
                for rule in rules(self.random, *ORDER):
                    use = AllowedUse(Conditions(gate.mode, is_off=False), self.effects[0], NO_GRANT)
                    gate.allow(use, rule)

    def decided(self, gate: Gate, effect: Effect) -> str:
        try:
            gate.check_role(effect.tool)
        except ForbiddenError:
            return "deny"
        return gate.decide(effect, is_confined=True).action

    def all_decided(self, gate: Gate) -> list[str]:
        return [self.decided(gate, effect) for effect in self.effects]

    def close(self) -> None:
        for talk in self.talks:
            talk.session.close()


@pytest.fixture(params=range(60))
def pair(request, tmp_path):
    made = Pair(tmp_path, Random(request.param))
    yield made
    made.close()


def test_what_the_parent_denies_is_denied_in_its_child_whatever_changes(pair):
    for _ in range(20):
        pair.change()
        decided = zip(
            pair.effects, pair.all_decided(pair.parent), pair.all_decided(pair.child), strict=True
        )
        for effect, parent, child in decided:
            assert child == "deny" or parent != "deny", effect
        order = MODES_BY_STRICTNESS.index
        assert order(pair.child.mode) <= order(pair.parent.mode)


def test_what_is_allowed_or_chosen_in_the_child_changes_nothing_in_the_parent(pair):
    for _ in range(5):
        pair.change()
    before = pair.all_decided(pair.parent)
    for rule in (rule_from_text(f"allow {target}") for target in TARGETS):
        use = AllowedUse(Conditions(pair.child.mode, is_off=False), pair.effects[0], NO_GRANT)
        pair.child.allow(use, rule)
    pair.child.set_mode("auto")
    pair.child.forbids = lambda _tool: ""
    assert pair.all_decided(pair.parent) == before


def test_what_the_user_allows_in_the_parent_for_the_session_is_allowed_in_its_child(pair):
    pair.child.set_mode("auto")  # its mode is its parent's
    for effect in pair.effects[:5]:
        if pair.decided(pair.child, effect) == "ask":
            words = f"allow bash {effect.command}"
            use = AllowedUse(Conditions(pair.parent.mode, is_off=False), effect, NO_GRANT)
            pair.parent.allow(use, rule_from_text(words))
            assert pair.decided(pair.child, effect) == pair.decided(pair.parent, effect)
