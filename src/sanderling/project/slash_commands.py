"""
Slash commands from Markdown files: the user's, the project's if it is trusted, and the bundled ones.

A file `fix.md` is `/fix`, `git/pr.md` is `/git:pr`. Names consist of lowercase letters, digits, `-` and `_`; other files are ignored. The
text of the file is the prompt. `$ARGUMENTS` is replaced by everything typed after the name, `$1` to `$9` by single words, split as in a
shell, and `$$` by a dollar sign. Without the first two, the arguments are appended to the text. Nothing in the file is ever run: it is only text for the model.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from sanderling.errors import ConfigError
from sanderling.project.places import Place, Places
from sanderling.project.skills import Skills
from sanderling.protocol.events import CommandSource, SlashCommand
from sanderling.protocol.modes import Effort
from sanderling.text import name_set

BUILT_IN = name_set(
    """
    help new clear resume sessions fork rename export compact undo redo rewind config model effort option mode net sandbox
    todo usage cost settings trust rules mcp login logout close exit
    """
)
"""Commands that the chat window runs itself; `lua/sanderling/verbs` has the tables."""
BUNDLED = Path(__file__).with_name("bundled_commands")
MAX_DESCRIPTION_CHARS = 100

_TYPED = r"/([a-z0-9][a-z0-9_:-]*)(?:\s+|$)"
_FILE_NAME = r"((?:[a-z][a-z0-9_-]*/)*[a-z][a-z0-9_-]*)\.md"
_FRONT_MATTER = r"(?s)---[ \t]*\n(.*?\n)?---[ \t]*(?:\n|$)"
_FIELD = r"([a-z-]+):(?:[ \t]+(.*))?"
_BLOCK = r"[|>][-+]?"
_ASIDE = r"[ \t]*[A-Z][^.:?!\n]*: \$ARGUMENTS(?!\w)"
"""In a bundled command, a sentence only for the arguments, such as "Also: $ARGUMENTS"; it is left out without them."""
_PLACEHOLDER = r"\$(?:(ARGUMENTS)(?!\w)|([1-9])(?!\d)|(\$))"


class _Front(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    description: str = ""
    argument_hint: str = ""
    effort: Effort | None = None


class _Template(msgspec.Struct, frozen=True):
    """A command file. If there is a `problem`, a sentence, it cannot be run."""

    shown: SlashCommand
    text: str = ""
    problem: str = ""
    effort: Effort | None = None


class SlashCommands:
    """Expands texts that begin with `/name`. Every call looks at the files again."""

    def __init__(self, places: Places, skills: Skills) -> None:
        self._places = places
        self._skills = skills
        self._ignored: tuple[str, ...] = ()

    def all(self) -> tuple[SlashCommand, ...]:
        """Return all current commands by name. A file that cannot be used says so in its description."""
        skills = {
            name: skill.shown()
            for name, skill in self._skills.all().items()
            if skill.is_command and name not in BUILT_IN and re.fullmatch(_TYPED, f"/{name}")
        }
        files = {name: template.shown for name, template in self._templates().items()}
        return tuple(shown for _, shown in sorted((skills | files).items()))

    def ignored(self) -> tuple[str, ...]:
        """Return the files that the last search skipped because the user has not trusted them."""
        return self._ignored

    def expand(self, text: str) -> str:
        """
        Return the prompt for a text that begins with `/name`; return any other text, and a path, unchanged.

        Raises:
            ConfigError: the command is unknown, its file is invalid, or the arguments do not fit.
        """
        if not (typed := re.match(_TYPED, text)):
            return text
        name, arguments = typed[1], text[typed.end() :].strip()
        templates = self._templates()
        if name in templates:
            return _expanded(templates[name], arguments)
        if name in BUILT_IN:
            raise ConfigError(f"/{name} is a command of the chat window, not a prompt")
        skills = self._skills.all()
        if name in skills and skills[name].is_command:
            return self._skills.prompt(skills[name], arguments)
        if Path(f"/{name}").exists() or name[0].isdigit():
            return text
        raise ConfigError(_unknown(name, BUILT_IN | templates.keys() | skills.keys()))

    def effort_of(self, text: str) -> Effort | None:
        """Return the effort that the command at the beginning of `text` sets for its turn."""
        typed = re.match(_TYPED, text)
        template = self._templates().get(typed[1]) if typed else None
        return template.effort if template else None

    def _templates(self) -> Mapping[str, _Template]:
        """Return the bundled commands, overridden by the user's, and these by the project's trusted ones."""
        templates = {template.shown.name: template for template in _bundled()}
        ignored = list[str]()
        for place in reversed(self._places.of("commands")):
            found, not_trusted = _found(place)
            templates |= found
            ignored += not_trusted
        self._ignored = tuple(ignored)
        return {name: found for name, found in templates.items() if name not in BUILT_IN}


def _found(place: Place) -> tuple[dict[str, _Template], list[str]]:
    """Return the commands of a place by name, and its files that are not trusted."""
    templates, ignored = dict[str, _Template](), list[str]()
    for path, file in place.found():
        if not (named := re.fullmatch(_FILE_NAME, path)):
            continue
        name = named[1].replace("/", ":")
        if file.state != "trusted":
            ignored.append(file.path)
        elif file.sha256:
            templates[name] = _template(name, place.source, file.path, file.text)
        else:
            templates[name] = _broken(name, place.source, file.text)
    return templates, ignored


def _bundled() -> Iterator[_Template]:
    for file in BUNDLED.iterdir():
        yield _template(file.stem, "sanderling", file.name, file.read_text(encoding="utf-8"))


def _template(name: str, source: CommandSource, path: str, text: str) -> _Template:
    try:
        front, text = _parse(text)
    except ConfigError as error:
        return _broken(name, source, f"{path} cannot be used: {error}")
    description = front.description or text.lstrip("# \n").partition("\n")[0]
    texts = (description[:MAX_DESCRIPTION_CHARS], front.argument_hint[:MAX_DESCRIPTION_CHARS])
    shown = SlashCommand(name, *texts, source)
    return _Template(shown, text, effort=front.effort)


def _broken(name: str, source: CommandSource, problem: str) -> _Template:
    return _Template(SlashCommand(name, problem, source=source), problem=problem)


def _parse(text: str) -> tuple[_Front, str]:
    """Split a file into its header, between two lines `---` at the top, and its text."""
    front = _Front()
    if text.startswith("---"):
        found = re.match(_FRONT_MATTER, text)
        if not found:
            raise ConfigError("its header is not closed by a line `---`")
        front, text = _front(found[1] or ""), text[found.end() :]
    if not text.strip():
        raise ConfigError("it has no text for the model")
    return front, text.strip()


def _front(header: str) -> _Front:
    fields = dict[str, str]()
    for line in filter(None, map(str.strip, header.splitlines())):
        found = re.fullmatch(_FIELD, line)
        if not found or found[1] in fields:
            raise ConfigError(f"in its header, '{line[:80]}' is not `key: value`, or repeats a key")
        fields[found[1]] = _unquoted(found[2] or "")
    try:
        return msgspec.convert(fields, _Front)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"its header may only have `description`, `argument-hint` and `effort`: {error}"
        ) from error


def _unquoted(value: str) -> str:
    value = value.strip()
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    if re.fullmatch(_BLOCK, value):
        raise ConfigError("in its header, a value spans several lines")
    return value[1:-1] if is_quoted else value


def _expanded(template: _Template, arguments: str) -> str:
    if template.problem:
        raise ConfigError(template.problem)
    placeholders = [(found[1], found[2]) for found in re.finditer(_PLACEHOLDER, template.text)]
    numbers = [int(number) for _, number in placeholders if number]
    takes_all = any(everything for everything, _ in placeholders)
    words = words_of(template.shown.name, arguments) if numbers else []
    if numbers and not takes_all and len(words) > max(numbers):
        raise ConfigError(
            f"/{template.shown.name} takes {max(numbers)} arguments, not {len(words)}; quote words that belong together"
        )

    def value(found: re.Match[str]) -> str:
        if found[2]:
            return words[int(found[2]) - 1] if int(found[2]) <= len(words) else ""
        return arguments if found[1] else "$"

    is_without = not arguments and template.shown.source == "sanderling"
    text = re.sub(_ASIDE, "", template.text) if is_without else template.text
    text = re.sub(_PLACEHOLDER, value, text)
    return text if takes_all or numbers or not arguments else f"{text}\n\n{arguments}"


def words_of(name: str, arguments: str) -> list[str]:
    """
    Split what was typed after the command `name` into words, as a shell does.

    Raises:
        ConfigError: a quote is not closed.
    """
    try:
        return shlex.split(arguments)
    except ValueError as error:
        raise ConfigError(
            f"the arguments of /{name} cannot be split into words: {error}"
        ) from error


def _unknown(name: str, known: set[str] | frozenset[str]) -> str:
    from difflib import get_close_matches  # only needed after a typo

    nearest = get_close_matches(name, known, n=1)
    hint = f"; did you mean '/{nearest[0]}'?" if nearest else "."
    return f"There is no command '/{name}'{hint} A space before it sends it as text."
