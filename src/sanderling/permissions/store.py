"""
Permission rules: the user's own from the settings, and those stored for a project by "always".

The stored ones are a JSON file per project below the state directory, where neither the project nor a command can write. A file that
cannot be read allows nothing: its allow rules are ignored, and if a deny or ask rule may be lost, everything asks.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from sanderling.errors import ConfigError
from sanderling.paths import is_within, stamp_of, state_directory
from sanderling.permissions.rules import KIND_OF_TOOL, Examples, Rule, is_for_any_server
from sanderling.state_file import StateFile, TooLargeError, UnreadableError, Versioned
from sanderling.tools.effects import Effect

VERSION = 1
MAX_FILE_BYTES, MAX_RULES = 1 << 20, 1_000
TOO_MANY = "too many rules are stored; remove some first"
ASK_ALWAYS = Rule(action="ask", tool="*")


# --- Loading -------------------------------------------------------------------------------------------------------------------


def load_rules(tables: Sequence[Mapping[str, Any]], project: str) -> tuple[Rule, ...]:
    """
    Load the user's own rules, in the order of the settings.

    Raises:
        ConfigError: names the first rule that is invalid, and its example if that fails.
    """
    return tuple(load_rule(table, number, project) for number, table in enumerate(tables, 1))


def load_rule(table: object, number: int, project: str) -> Rule:
    """
    Load rule number `number`.

    Raises:
        ConfigError: says what is wrong, or names the example that fails.
    """
    path = ("permissions", number - 1)
    try:
        rule = msgspec.convert(table, Rule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"permission rule {number} is wrong: {error}", path) from error
    if problem := wrong_example(rule, project):
        raise ConfigError(f"permission rule {number} is wrong: {problem}", path)
    return rule


def wrong_example(rule: Rule, project: str) -> str:
    """Return a sentence about the first example that the rule contradicts, or ""."""
    if rule.examples == Examples():
        return ""
    from sanderling.permissions.decide import applies

    for examples, is_match, words in (
        (rule.examples.matches, True, "does not match"),
        (rule.examples.does_not_match, False, "matches"),
    ):
        for example in examples:
            effect = _effect_of(rule, example, project)
            if effect is None:
                return f"'{rule}' has examples, but no command, path or host to check them against"
            if applies(rule, effect, project=project) is not is_match:
                return f"'{rule}' {words} its example '{example[:200]}'"
    return ""


def _effect_of(rule: Rule, example: str, project: str) -> Effect | None:
    """Return the tool use that an example of the rule describes."""
    if rule.command or (rule.tool == "bash" and rule.path):
        return Effect("bash", "run", command=example)
    if rule.host:
        return Effect("web_fetch", "fetch", host=example)
    if rule.path:
        path = os.path.join(project, os.path.expanduser(example))  # noqa: PTH111, PTH118 - a name as text
        is_write = KIND_OF_TOOL.get(rule.tool) == "write"
        return Effect(rule.tool, "write" if is_write else "read", path=os.path.normpath(path))
    return Effect("bash", "run", command=example) if rule.tool == "bash" else None


# --- Storing -------------------------------------------------------------------------------------------------------------------


class StoredRules(msgspec.Struct, frozen=True):
    """
    The stored rules.

    Attributes:
        problem: a sentence for the user if part of the file cannot be used, else "".
        last_uses: the day on which a rule last allowed something, in ISO format, by the rule's text.
    """

    rules: tuple[Rule, ...] = ()
    problem: str = ""
    last_uses: Mapping[str, str] = {}


class _File(Versioned):
    rules: Annotated[list[Any], msgspec.Meta(max_length=MAX_RULES)]
    last_uses: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class RuleStore:
    """
    The rules that "always" has stored for a project.

    Several processes may share the file: each reads it again when it has changed, and writes it under a lock.
    """

    def __init__(self, state_dir: str, project: str) -> None:
        self.path = Path(f"{state_directory(f'{state_dir}/rules', project)}.json")
        self._file = StateFile(self.path, _File, version=VERSION, max_bytes=MAX_FILE_BYTES)
        self.project = project
        self._stamp: tuple[int, ...] | None = None
        self._stored = StoredRules()

    def load(self) -> StoredRules:
        """Return the current rules. The file is read again only if it has changed."""
        stamp = stamp_of(self.path)
        if stamp is None or stamp != self._stamp:
            self._stored, self._stamp = self._read(), stamp
        return self._stored

    def add(self, rule: Rule) -> None:
        """
        Store a rule permanently.

        Raises:
            ConfigError: its examples are wrong, or the file cannot be read or written.
        """
        # An invalid rule would make the file unreadable.
        load_rule(msgspec.to_builtins(rule), 1, self.project)
        self._change(lambda rules: [*(other for other in rules if other != rule), rule])

    def remove(self, rule: Rule) -> None:
        """
        Remove a stored rule, if another process has not removed it already.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        self._change(lambda rules: [other for other in rules if other != rule])

    def replace(self, rule: Rule, new: Rule) -> None:
        """
        Store `new` instead of a stored rule, if another process has not removed that.

        Raises:
            ConfigError: `new` is invalid, or the file cannot be read or written.
        """
        load_rule(msgspec.to_builtins(new), 1, self.project)
        self._change(
            lambda rules: [*dict.fromkeys(new if other == rule else other for other in rules)]
        )

    def note_use(self, rule: Rule) -> None:
        """
        Store that the rule has allowed something today: at most one write a day for each rule.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        today = date.today().isoformat()  # noqa: DTZ011 - the user's local day
        stored = self.load()
        if rule in stored.rules and stored.last_uses.get(str(rule)) != today:
            self._change(list, {str(rule): today})

    def _change(
        self,
        changed: Callable[[Sequence[Rule]], list[Rule]],
        uses: Mapping[str, str] = {},
    ) -> None:
        def with_it() -> _File:
            stored = self._read()
            if stored.problem:
                raise ConfigError(f"{stored.problem} Repair or remove it first.")
            rules = changed(stored.rules)
            if len(rules) > MAX_RULES:
                raise ConfigError(TOO_MANY)
            kept = {*map(str, rules)}
            last_uses = {**stored.last_uses, **uses}
            return _File(
                VERSION, rules, {text: day for text, day in last_uses.items() if text in kept}
            )

        try:
            self._file.change(with_it)
        except TooLargeError as error:
            raise ConfigError(TOO_MANY) from error
        except UnicodeEncodeError as error:
            raise ConfigError("a rule with unencodable characters is not stored") from error
        except OSError as error:
            raise ConfigError(f"cannot store the rules in {self.path}: {error.strerror}") from error
        self._stamp = None

    def _read(self) -> StoredRules:
        try:
            content = self._file.read()
        except UnreadableError as error:
            return self._broken(str(error))
        if content is None:
            return StoredRules()
        if is_within(os.path.realpath(self.path), os.path.realpath(self.project)):
            return self._broken(
                "is inside the project, where anything that runs there could write it"
            )
        return self._check(content)

    def _check(self, content: _File) -> StoredRules:
        rules, problems, is_lost = list[Rule](), list[str](), False
        for number, table in enumerate(content.rules, 1):
            try:
                rule = load_rule(table, number, self.project)
                if not is_for_any_server(rule):  # from an earlier version: asks again
                    rules.append(rule)
            except ConfigError as error:
                problems.append(str(error))
                is_lost |= (
                    not isinstance(table, dict) or cast("Any", table).get("action") != "allow"
                )
        if not problems:
            return StoredRules(tuple(rules), last_uses=content.last_uses)
        strict = tuple(rule for rule in rules if rule.action != "allow")
        why = f"contains an invalid rule ({problems[0]})"
        return self._broken(why, (*strict, ASK_ALWAYS) if is_lost else strict)

    def _broken(self, why: str, rules: tuple[Rule, ...] = (ASK_ALWAYS,)) -> StoredRules:
        effect = "everything asks" if ASK_ALWAYS in rules else "its allow rules are ignored"
        return StoredRules(
            rules, f"The rules file {self.path} {why}. Until it is repaired, {effect}."
        )
