"""
Hooks as declared: in the user's settings, and in files of a trusted project that other agents share.

A project's hooks run inside the sandbox and can only make a decision stricter: anyone who can change the project could have written them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, cast, get_args

import msgspec

from sanderling.config import Settings, Table, dotted
from sanderling.config.layers import place_of
from sanderling.errors import ConfigError
from sanderling.project.trust.trust import Trust
from sanderling.protocol.tool_names import KNOWN
from sanderling.text import did_you_mean, nearest, printable, shortened, visible_prose

HookEvent = Literal[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "Stop",
    "PreCompact",
    "SessionEnd",
]
EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
TIMEOUT_S, MAX_TIMEOUT_S = 10.0, 600.0
MAX_SHOWN_CHARS = 60
MAX_WAYS = 1_000_000
"""Python tries that many in about 10 ms."""
MAX_NAME_CHARS = 64
_MIN_LIKENESS = 0.85  # of a mistyped event: Claude has others, such as `PostToolUseFailure`
TOOL_EVENTS: tuple[HookEvent, ...] = ("PreToolUse", "PermissionRequest", "PostToolUse")
_WORDS = r"\w+(\|\w+)*"
_CLAUDES_ONLY = frozenset({"TaskOutput"})  # is like BashOutput
_MIN_LIKENESS_OF_TOOL = 0.75
_ALL = ("", "*")
_UNREADABLE = r"\(\?(?:#|[A-Za-z]*x)"
"""A comment, or `(?x)`, which begins comments: `_ways` would not read the matcher as Python does."""
_USED_KEYS = ("type", "command", "timeout", "if", "async", "asyncRewake", "shell")
_OTHER_KEYS = ("statusMessage", "description", "once")
"""Keys of Claude's that change nothing in what a hook of a settings file decides."""
_PIECE = r"(?s)\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]+\}|."


class HookTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A table `[[hooks.EVENT]]` of the user's settings.

    Attributes:
        command: a line for the shell.
        matcher: names of tools, or of what the event is about, as alternatives or a regular expression; empty: all.
        timeout: seconds after which it is killed.
        sandbox: False to run it with all of the user's rights.
    """

    command: Annotated[str, msgspec.Meta(min_length=1)]
    matcher: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] = TIMEOUT_S
    sandbox: bool = True


class Hook(msgspec.Struct, frozen=True):
    """
    A hook of a session. `origin` is its place, as shown; a project's (`is_projects`) only makes decisions stricter.

    `condition` is a permission rule that a tool call must match. A hook that `is_async` runs in the background and decides nothing; if it
    also `wakes`, the model reads why it refuses.
    """

    event: HookEvent
    command: str
    origin: str
    matcher: str = ""
    timeout_s: float = TIMEOUT_S
    is_confined: bool = True
    is_projects: bool = False
    condition: str = ""
    is_async: bool = False
    wakes: bool = False

    def matches(self, subjects: tuple[str, ...]) -> bool:
        """Return True if the hook is for any of these names; for an event that is about nothing, it always is."""
        if self.matcher in _ALL or not subjects:
            return True
        pattern = _pattern(self.matcher)
        return any(pattern.fullmatch(subject) for subject in subjects)

    @property
    def shown(self) -> str:
        command = visible_prose(" ".join(printable(self.command).split()))
        return f"`{shortened(command, MAX_SHOWN_CHARS)}` of {visible_prose(printable(self.origin))}"

    @property
    def problem(self) -> str:
        """A sentence about a tool that the matcher misspells, so that the hook never runs for it; "" without one."""
        if self.event not in TOOL_EVENTS or not re.fullmatch(_WORDS, self.matcher):
            return ""
        for word in self.matcher.split("|"):
            same = sorted(each for each in KNOWN if each.casefold() == word.casefold())
            near = same or nearest(word, sorted(KNOWN), _MIN_LIKENESS_OF_TOOL)
            if near and word not in KNOWN | _CLAUDES_ONLY:
                return f"{self.origin}: the matcher '{word[:40]}' of a {self.event} hook names no tool: did you mean '{near[0]}'?"
        return ""


@cache
def _pattern(matcher: str) -> re.Pattern[str]:
    return re.compile(matcher)


def load_hooks(tables: Mapping[str, Any]) -> dict[HookEvent, tuple[HookTable, ...]]:
    """
    Return the user's hooks by event.

    Raises:
        ConfigError: names what is wrong.
    """
    for event, declared in tables.items():
        if event not in EVENTS:
            hint = did_you_mean(event, EVENTS) or f"; known: {', '.join(EVENTS)}"
            raise ConfigError(f"there is no hook event '{event[:80]}'{hint}", ("hooks", event))
        tables_of_event = cast("list[Any]", declared) if isinstance(declared, list | tuple) else []
        for number, table in enumerate(tables_of_event):
            if isinstance(table, Mapping) and "command" not in table:
                place = ("hooks", event, number)
                raise ConfigError(f"'{dotted(place)}' has no `command`: nothing would run", place)
    try:
        hooks = msgspec.convert(tables, dict[HookEvent, tuple[HookTable, ...]])
    except msgspec.ValidationError as error:
        raise ConfigError(f"'hooks': {error}", ("hooks",)) from error
    for event, declared in hooks.items():
        for number, each in enumerate(declared):
            if problem := _problem_of(each.matcher):
                raise ConfigError(problem, ("hooks", event, number, "matcher"))
    return hooks


def own_hooks(settings: Settings) -> list[Hook]:
    """
    Return the hooks of the user's settings.

    Raises:
        ConfigError: names what is wrong.
    """
    hooks = list[Hook]()
    for event, declared in load_hooks(settings.hooks).items():
        for number, each in enumerate(declared):
            place = str(place_of(("hooks", event, number), settings.layers))
            hooks.append(Hook(event, each.command, place, each.matcher, each.timeout, each.sandbox))
    return hooks


def project_hooks(trust: Trust) -> tuple[list[Hook], list[str]]:
    """Return the hooks of the project's trusted files, and a sentence for each part that is not used."""
    hooks, problems = list[Hook](), list[str]()
    for path in trust.hook_files():
        text = trust.read(path)
        if text is None:
            continue
        for found in _hooks_in(path, text):
            if isinstance(found, Hook):
                hooks.append(found)
            else:
                problems.append(found)
    return hooks, problems


def _hooks_in(path: str, text: str) -> Iterator[Hook | str]:
    """Yield the hooks of a settings file of Claude Code or Codex, and sentences about what is not used in it."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        yield f"The hooks of {path} are not used: it is not valid JSON ({error})."
        return
    events = cast("Table", data).get("hooks", {}) if isinstance(data, dict) else None
    if not isinstance(events, dict):
        yield f"The hooks of {path} are not used: they are not an object of lists by event."
        return
    for event, groups in cast("Table", events).items():
        if event not in EVENTS:
            near = nearest(event, EVENTS, _MIN_LIKENESS)
            hint = f": did you mean '{near[0]}'?" if near else "."
            yield f"{path}: hooks for '{event[:40]}' are not supported{hint}"
            continue
        if not isinstance(groups, list):
            yield f"{path}: the hooks for {event} are not used: they must be a list."
            continue
        for group in cast("list[Any]", groups):
            yield from _hooks_of_group(path, event, group)


def _hooks_of_group(path: str, event: HookEvent, group: Any) -> Iterator[Hook | str]:
    if not isinstance(group, dict):
        yield f"{path}: a hook for {event} is not a table."
        return
    matcher = cast("Table", group).get("matcher", "")
    declared = cast("Table", group).get("hooks")
    if problem := _problem_of(matcher):
        yield f"{path}: a hook for {event} is not used: {problem}."
        return
    if not isinstance(declared, list):
        yield f"{path}: a hook for {event} is not used: it has no list `hooks`, which contains the commands."
        return
    for each in cast("list[Any]", declared):
        hook = cast("Table", each) if isinstance(each, dict) else {}
        if problem := _why_unused(event, hook):
            yield f"{path}: a hook for {event} is not used: {problem}."
            continue
        for key in sorted(hook.keys() - {*_USED_KEYS, *_OTHER_KEYS}):
            hint = did_you_mean(key, _USED_KEYS) or "."
            yield f"{path}: the key '{key[:40]}' of a hook for {event} has no effect here{hint}"
        wakes = hook.get("asyncRewake") is True
        if wakes:
            yield f"{path}: what a hook with asyncRewake reports is sent with your next prompt; it wakes nothing."
        is_async = wakes or hook.get("async") is True
        yield Hook(
            event,
            hook["command"],
            path,
            matcher,
            _timeout_s(hook.get("timeout"), MAX_TIMEOUT_S if is_async else TIMEOUT_S),
            is_projects=True,
            condition=hook.get("if", ""),
            is_async=is_async,
            wakes=wakes,
        )


def _timeout_s(value: Any, usual_s: float) -> float:
    is_number = isinstance(value, int | float) and value > 0
    return float(min(value, MAX_TIMEOUT_S)) if is_number else usual_s


def _why_unused(event: HookEvent, hook: "Table") -> str:
    """Return why a hook of a file cannot run as its author meant; "" if it can."""
    command, condition = hook.get("command"), hook.get("if", "")
    problems = {
        "only commands are": hook.get("type", "command") != "command",
        "it has no `command`": not isinstance(command, str) or not command,
        "'args' is not supported: write one line in 'command'": bool(hook.get("args")),
        f"its shell '{str(hook.get('shell'))[:40]}' is not supported": hook.get("shell", "bash")
        not in ("bash", "sh"),
        "its 'if' is not a text": not isinstance(condition, str),
        "'if' is only for events about tool calls": condition and event not in TOOL_EVENTS,
    }
    return next((problem for problem, has in problems.items() if has), "")


def _problem_of(matcher: Any) -> str:
    if not isinstance(matcher, str):
        return "its matcher is not a string"
    try:
        if matcher not in _ALL:
            re.compile(matcher)
    except (re.error, RecursionError, OverflowError) as error:
        return f"its matcher '{matcher[:40]}' is no regular expression ({error})"
    if re.search(_UNREADABLE, matcher):
        return f"its matcher '{matcher[:40]}' has a comment or `(?x)`, which are not supported"
    if _ways(iter(re.findall(_PIECE, matcher))) > MAX_WAYS:
        return f"its matcher '{matcher[:40]}' may take too long: it repeats a group, or repeats too often"
    return ""


def _ways(tokens: Iterator[str], *, is_group: bool = False) -> float:
    """
    Return in how many ways, at most, the expression may be tried on the name of a tool.

    Python's `re` tries them all, one after the other, and nothing can interrupt it. A repeated group may be tried in too many ways.
    """
    sums, ways, last = 0.0, 1.0, 1.0
    for token in tokens:
        match token[0]:
            case ")" if is_group:
                break
            case ")":  # Python reads it otherwise
                return MAX_WAYS * 2
            case "|":
                sums, ways, last = sums + ways, 1.0, 1.0
            case "(":
                last = _ways(tokens, is_group=True) + 1.0  # more than that of a character
                ways *= last
            case "?":
                ways *= 2
            case "*" | "+" | "{":
                ways *= MAX_NAME_CHARS if last == 1.0 else MAX_WAYS * 2
            case _:
                last = 1.0
    return sums + ways
