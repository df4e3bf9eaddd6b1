"""
Slash commands from Markdown files: the user's, the project's if it is trusted, and the bundled ones.

A file `fix.md` is `/fix`, `git/pr.md` is `/git:pr`. Names consist of lowercase letters, digits, `-` and `_`; other files are ignored. The
text of the file is the prompt. `$ARGUMENTS` is replaced by everything typed after the name, `$1` to `$9` by single words, split as in a
shell, and `$$` by a dollar sign. Without the first two, the arguments are appended to the text.

A line in backquotes after `!` is for the shell, whose output takes its place. It is found before the arguments are put in, and gets them
as the shell's own variables, so nothing that the user types is ever run. Here nothing is run at all (`conversation/command_files.py`).
Other agents' headers are read leniently; their `allowed-tools` grants nothing.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import msgspec
from msgspec.structs import replace

from sanderling.errors import ConfigError
from sanderling.project.front_matter import one_line, read_document
from sanderling.project.places import Place, Places
from sanderling.project.skills import Skills
from sanderling.protocol.events import CommandSource, SlashCommand
from sanderling.protocol.messages import Prompt
from sanderling.protocol.modes import Effort
from sanderling.text import name_set

BUILT_IN = name_set(
    """
    help new clear resume sessions fork rename export compact remember undo redo again rewind config model effort role option mode
    net sandbox todo usage cost settings trust rules skills plugins worktrees mcp login logout close exit
    """
)
"""Commands that the chat window runs itself; `lua/sanderling/verbs` has the tables."""
BUNDLED = Path(__file__).with_name("bundled_commands")
MAX_DESCRIPTION_CHARS = 100

_TYPED = r"/([a-z0-9][a-z0-9_:-]*)(?:\s+|$)"
_FILE_NAME = r"((?:[a-z][a-z0-9_-]*/)*[a-z][a-z0-9_-]*)\.md"
_ASIDE = r"[ \t]*[A-Z][^.:?!\n]*: \$ARGUMENTS(?!\w)"
"""In a bundled command, a sentence only for the arguments, such as "Also: $ARGUMENTS"; it is left out without them."""
_PLACEHOLDER = r"\$(?:(ARGUMENTS)(?!\w)|([1-9])(?!\d)|(\$))"
_SHELL_LINE = r"(?m)(?<!\S)!`([^`\n]+)`|^```![ \t]*\n"
_FENCE_END = r"(?m)^```[ \t]*$"
_IN_SINGLE_QUOTES = r"'[^']*'"  # the shell leaves it as it is, which programs of awk rely on
_MENTION = r"(?<![\w@`])@([^\s`]+)"


class ShellLine(msgspec.Struct, frozen=True):
    """A command in the text of a command file. `written` is its source, which is sent if the command is not run."""

    command: str
    written: str


class AskedCommand(msgspec.Struct, frozen=True):
    """
    A command file with its arguments put in.

    Attributes:
        parts: the prompt, with lines for the shell between its texts.
        arguments, words: for these lines, whole and as single words.
        mentions: the names after `@` in the file.
        model, effort: for its turn, if not the session's.
    """

    parts: tuple[str | ShellLine, ...]
    arguments: str = ""
    words: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()
    model: str = ""
    effort: Effort | None = None

    @property
    def text(self) -> str:
        """The prompt without running anything."""
        return "".join(part if isinstance(part, str) else part.written for part in self.parts)

    def put_into(self, prompt: Prompt, text: str) -> Prompt:
        """Return the prompt as it is sent: `text` is this one's, perhaps with outputs."""
        effort, model = prompt.effort or self.effort, prompt.model or self.model
        return replace(prompt, sent=text, effort=effort, model=model)

    @property
    def needs_work(self) -> bool:
        """Whether the prompt is more than text: commands would run, or files be read."""
        return bool(self.mentions) or any(isinstance(part, ShellLine) for part in self.parts)


class _Template(msgspec.Struct, frozen=True):
    """A command file. If there is a `problem`, a sentence, it cannot be run."""

    shown: SlashCommand
    text: str = ""
    problem: str = ""
    model: str = ""
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
        Return the prompt for a text that begins with `/name`, without running anything; return any other text, and a path, unchanged.

        Raises:
            ConfigError: the command is unknown, its file is invalid, or the arguments do not fit.
        """
        asked = self.asked(text)
        return asked.text if asked else text

    def asked(self, text: str) -> AskedCommand | None:
        """
        Return what a text that begins with `/name` asks for; None for any other text, and for a path.

        Raises:
            ConfigError: as `expand`.
        """
        if not (typed := re.match(_TYPED, text)):
            return None
        name, arguments = typed[1], text[typed.end() :].strip()
        templates = self._templates()
        if name in templates:
            return _asked(templates[name], arguments)
        if name in BUILT_IN:
            raise ConfigError(f"/{name} is a command of the chat window, not a prompt")
        skills = self._skills.all()
        if name in skills and skills[name].is_command:
            return AskedCommand((self._skills.prompt(skills[name], arguments),))
        if Path(f"/{name}").exists() or name[0].isdigit():
            return None
        ends = (f"/{name.replace(':', '/')}.md", f"/{name}/SKILL.md")
        for path in (*self._ignored, *self._skills.ignored()):
            if path.endswith(ends):
                raise ConfigError(
                    f"There is no command '/{name}', because you have not trusted {path}: `sanderling trust`, or :Agent trust in Neovim."
                )
        raise ConfigError(_unknown(name, BUILT_IN | templates.keys() | skills.keys()))

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
        header, text, _ = read_document(text)
    except ConfigError as error:
        return _broken(name, source, f"{path} cannot be used: {error}")
    if not text:
        return _broken(name, source, f"{path} cannot be used: it has no text for the model")
    fields = {key: one_line(value) for key, value in header.items()}
    first = text.lstrip("# \n").partition("\n")[0]
    description = (fields.get("description") or first)[:MAX_DESCRIPTION_CHARS]
    hint = fields.get("argument-hint", "")[:MAX_DESCRIPTION_CHARS]
    effort = fields.get("effort", "") or None
    if effort not in (None, *get_args(Effort)):
        known = ", ".join(get_args(Effort))
        return _broken(
            name, source, f"{path} cannot be used: its effort '{effort[:40]}' is none of {known}"
        )
    return _Template(
        SlashCommand(name, description, hint, source),
        text,
        model=fields.get("model", ""),
        effort=msgspec.convert(effort, Effort | None),
    )


def _broken(name: str, source: CommandSource, problem: str) -> _Template:
    return _Template(SlashCommand(name, problem, source=source), problem=problem)


def _asked(template: _Template, arguments: str) -> AskedCommand:
    if template.problem:
        raise ConfigError(template.problem)
    name, text = template.shown.name, template.text
    pieces = list(_pieces(text))
    seen = "".join(
        re.sub(_IN_SINGLE_QUOTES, "", each.command) if isinstance(each, ShellLine) else each
        for each in pieces
    )
    placeholders = [(found[1], found[2]) for found in re.finditer(_PLACEHOLDER, seen)]
    numbers = [int(number) for _, number in placeholders if number]
    takes_all = any(everything for everything, _ in placeholders)
    words = words_of(name, arguments) if numbers else []
    if numbers and not takes_all and len(words) > max(numbers):
        raise ConfigError(
            f"/{name} takes {max(numbers)} arguments, not {len(words)}; quote words that belong together"
        )

    def value(found: re.Match[str]) -> str:
        if found[2]:
            return words[int(found[2]) - 1] if int(found[2]) <= len(words) else ""
        return arguments if found[1] else "$"

    is_without = not arguments and template.shown.source == "sanderling"

    def put_in(text: str) -> str:
        text = re.sub(_ASIDE, "", text) if is_without else text
        return re.sub(_PLACEHOLDER, value, text)

    parts = [each if isinstance(each, ShellLine) else put_in(each) for each in pieces]
    if arguments and not (takes_all or numbers):
        parts.append(f"\n\n{arguments}")
    mentions = (
        put_in(each)
        for piece in pieces
        if isinstance(piece, str)
        for each in re.findall(_MENTION, piece)
    )
    return AskedCommand(
        tuple(_joined(parts)),
        arguments,
        tuple(words),
        tuple(dict.fromkeys(mentions)),
        template.model,
        template.effort,
    )


def _pieces(text: str) -> Iterator[str | ShellLine]:
    """Yield the text of a command file, with the lines for the shell apart."""
    end = 0
    for start, after, command in _shell_lines(text):
        yield text[end:start]
        yield ShellLine(command.strip(), text[start:after])
        end = after
    yield text[end:]


def _shell_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the command of each, in a time that grows with the text."""
    line, fence_end = re.compile(_SHELL_LINE), re.compile(_FENCE_END)
    end, may_close = 0, True
    while found := line.search(text, end):
        end = found.end()
        if found[1]:
            yield found.start(), end, found[1]
        elif may_close and (closing := fence_end.search(text, end)):
            yield found.start(), closing.end(), text[end : closing.start()]
            end = closing.end()
        else:
            may_close = False


def _joined(parts: list[str | ShellLine]) -> Iterator[str | ShellLine]:
    """Join texts that follow each other, and leave out empty ones."""
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        if text:
            yield text
        text = ""
        yield part
    if text:
        yield text


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
