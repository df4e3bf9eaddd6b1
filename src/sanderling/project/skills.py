"""
Agent Skills: instructions for special tasks, each in a directory with a `SKILL.md` (agentskills.io).

The model is sent each skill's name, description and file once, at the end of a message, so that the API's cache stays valid; it reads the
file when a task needs it. Files of other clients are read leniently: a skill is left out only without a description or a readable header.
`allowed-tools` grants nothing: only the user's rules do.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from sanderling.errors import ConfigError
from sanderling.project.front_matter import not_texts, one_line, read_document, unused
from sanderling.project.places import Place, Places
from sanderling.project.trust.reading import SKILL_NAMES
from sanderling.protocol.events import CommandSource, SlashCommand
from sanderling.protocol.requests import ShownSkill, SkillsPage
from sanderling.text import shortened

MAX_NAME_CHARS, MAX_DESCRIPTION_CHARS, MAX_COMPATIBILITY_CHARS = 64, 1024, 500
_SWITCHES = ("disable-model-invocation", "user-invocable")
_KEYS = ("name", "description", "argument-hint", *_SWITCHES)
_OTHER_KEYS = ("arguments",)  # Claude's
MAX_IN_MENU_CHARS = 200  # of a description, which the model reads whole
MAX_LISTED_CHARS = 16 * 1024
MAX_SHOWN_CHARS = 8_000  # of a text, to the user
MAX_KEPT_CHARS = 64 * 1024  # of the skills that are sent again after a summary
_LISTING = (
    "Skills, instructions for special tasks. When a task matches one, read its file before you begin;"
    " names in it are relative to its directory."
)


class Skill(msgspec.Struct, frozen=True):
    """
    A skill. `path` is its file as the model names it, `directory` the absolute path of its directory.

    `is_listed`: the model learns of it; `is_command`: the user can type `/name`. `problems` are sentences for its author.
    """

    name: str
    description: str
    path: str
    directory: str
    body: str
    digest: str
    source: CommandSource
    argument_hint: str = ""
    is_listed: bool = True
    is_command: bool = True
    problems: tuple[str, ...] = ()

    def shown(self) -> SlashCommand:
        description = shortened(self.description, MAX_IN_MENU_CHARS)
        return SlashCommand(self.name, description, self.argument_hint, self.source)


class Skipped(msgspec.Struct, frozen=True):
    """A skill that is not used, and why: a sentence."""

    path: str
    problem: str


class _Sent(msgspec.Struct, frozen=True):
    """The skills that the model was sent: the digest of each listed skill, and of each whose text it has read, in that order."""

    listed: dict[str, str] = {}
    read: dict[str, str] = {}


class Skills:
    """The skills of a session. Every call looks at the files again; each is parsed once for its bytes."""

    def __init__(self, places: Places, project: str, disabled: Iterable[str] = ()) -> None:
        self._places = places
        self._project = project
        self._disabled = frozenset(disabled)
        self._parsed: dict[tuple[str, str], Skill | Skipped] = {}
        self._sent = _Sent()
        self._ignored: tuple[str, ...] = ()

    def all(self) -> dict[str, Skill]:
        """Return the skills by name. Of two with one name, the stronger place's is used."""
        return {each.name: each for each in self.found() if isinstance(each, Skill)}

    def found(self) -> list[Skill | Skipped]:
        """Return all skills, and the files that cannot be used, with the reason."""
        found = list[Skill | Skipped]()
        ignored = list[str]()
        used = dict[str, Skill]()
        for place in self._places.of("skills"):
            for name, file in place.found():
                if file.state != "trusted":
                    ignored.append(file.path)
                    continue
                skill = self._parse(place, name, file.sha256, file.text)
                if isinstance(skill, Skill) and skill.name in self._disabled:
                    skill = Skipped(skill.path, "it is disabled in the settings")
                elif isinstance(skill, Skill) and skill.name in used:
                    used_path = used[skill.name].path
                    skill = Skipped(skill.path, f"{used_path} has the same name and comes first")
                elif isinstance(skill, Skill):
                    used[skill.name] = skill
                found.append(skill)
        self._ignored = tuple(ignored)
        return found

    def page(self) -> SkillsPage:
        """Return the skills as the user sees them."""
        return SkillsPage(tuple(map(shown_skill, self.found())), self.ignored())

    def ignored(self) -> tuple[str, ...]:
        """Return the files that the last search skipped because the user has not trusted them."""
        return self._ignored

    def _parse(self, place: Place, name: str, digest: str, text: str) -> Skill | Skipped:
        absolute = place.absolute(name)
        path = absolute.removeprefix(f"{self._project}/")  # as the model names it
        if not digest:
            return Skipped(path, text)
        if (absolute, digest) not in self._parsed:
            parsed = read_skill(absolute, text, digest, place.source, path)
            self._parsed[absolute, digest] = parsed
        return self._parsed[absolute, digest]

    # --- what the model was sent ---------------------------------------------------------------------------------------

    def news(self) -> str:
        """Return the skills that the model was not sent yet, or that have changed; "" for nothing. They count as sent from now on."""
        listed = {name: each for name, each in self.all().items() if each.is_listed}
        digests = {name: each.digest for name, each in listed.items()}
        before = self._sent.listed
        if digests == before:
            return ""
        new = [each for name, each in listed.items() if before.get(name) != each.digest]
        gone = [name for name in before if name not in listed]
        self._sent = msgspec.structs.replace(self._sent, listed=digests)
        words = [f"No longer available: {', '.join(gone)}."] if gone else []
        if new:
            words += [_LISTING if not before else "New or changed skills:", *_lines(new)]
        text = "\n".join(words)
        return f"[{text}]"

    def note_read(self, paths: Iterable[str]) -> None:
        """Remember which skills the model has read, of all the files that it has used."""
        named = (path for path in paths if path.endswith(SKILL_NAMES))
        absolute = {posixpath.normpath(posixpath.join(self._project, path)) for path in named}
        for skill in self.all().values() if absolute else ():
            if posixpath.join(self._project, skill.path) in absolute:
                self._note(skill)

    def _note(self, skill: Skill) -> None:
        others = {name: each for name, each in self._sent.read.items() if name != skill.name}
        self._sent = msgspec.structs.replace(self._sent, read={**others, skill.name: skill.digest})

    def prompt(self, skill: Skill, arguments: str) -> str:
        """Return the prompt of `/name`. A text that the model has read is not repeated."""
        if self._sent.read.get(skill.name) == skill.digest and "$" not in skill.body:
            words = f"Use the skill {skill.name}, which you have read."
            return f"{words}\n\n{arguments}".rstrip()
        self._note(skill)
        body = re.sub(r"\$\{(?:CLAUDE_)?SKILL_DIR\}", lambda _: skill.directory, skill.body)
        takes = re.search(r"\$ARGUMENTS(?!\w)", body)
        body = re.sub(r"\$ARGUMENTS(?!\w)", lambda _: arguments, body)
        first = f"Use the skill {skill.name}; names in it are relative to {skill.directory}."
        return "\n\n".join(filter(None, (first, body, "" if takes else arguments)))

    def texts(self, names: Iterable[str]) -> str:
        """Return the texts of these skills, which count as read; names without a skill are left out."""
        skills = self.all()
        found = [skills[name] for name in names if name in skills]
        for skill in found:
            self._note(skill)
        return "\n\n".join(
            f"[The skill {each.name}, from {each.path}; names in it are relative to its directory:]\n{each.body}"
            for each in found
        )

    def read_before(self) -> str:
        """Return the texts of the skills that the model has read, which it needs again after a summary; "" without any."""
        skills = self.all()
        kept, left = list[str](), list[str]()
        room = MAX_KEPT_CHARS
        for name in reversed(self._sent.read):  # the latest first
            if not (skill := skills.get(name)):
                continue
            room -= len(skill.body)
            if room >= 0:
                kept.append(
                    f"[The skill {name}, which you had read, from {skill.path}:]\n{skill.body}"
                )
            else:
                left.append(skill.path)
        if left:
            kept.append(f"[You had also read these skills: {', '.join(left)}.]")
        return "\n\n".join(kept)

    def state(self) -> dict[str, Any]:
        return msgspec.to_builtins(self._sent)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned. Invalid data counts as nothing sent."""
        try:
            self._sent = msgspec.convert(state, _Sent)
        except msgspec.ValidationError:
            self._sent = _Sent()

    def forget(self, *, keeps_read: bool = False) -> None:
        """Send everything again, because the model no longer sees what it was sent, except for the texts that it was sent again."""
        self._sent = _Sent(read=self._sent.read if keeps_read else {})


def shown_skill(each: Skill | Skipped) -> ShownSkill:
    match each:
        case Skipped(path, problem):
            return ShownSkill(path, problems=(problem,))
        case Skill():
            return ShownSkill(
                each.path,
                each.name,
                each.description,
                each.body[:MAX_SHOWN_CHARS],
                each.is_command,
                tuple(each.problems),
            )


def read_skill(
    absolute: str, text: str, digest: str, source: CommandSource = "user", path: str = ""
) -> Skill | Skipped:
    """
    Return the skill in the file at `absolute`, which has this text; `digest` changes with its bytes.

    One of a plugin must conform to the specification, as that of plugins demands.
    """
    path = path or absolute
    try:
        header, body, problems = read_document(text)
    except ConfigError as error:
        return Skipped(path, str(error))
    fields = {key: one_line(value) for key, value in header.items()}
    description = fields.get("description", "")
    mistakes = (
        *unused(header, _KEYS, _OTHER_KEYS),
        *not_texts(header, ("name", "description")),
        *_no_switches(fields),
    )
    if not description:
        missing = "it has no description, by which the model would choose it"
        return Skipped(path, "; ".join((missing, *mistakes)))
    directory = posixpath.dirname(absolute)
    name = fields.get("name") or posixpath.basename(directory)
    wrong = (*problems, *_violations(name, description, directory, header))
    if wrong and source == "plugin":
        return Skipped(path, f"it is not a valid Agent Skill: {wrong[0]}")
    useless = ("its `allowed-tools` grants nothing here: only your own rules allow tools",)
    return Skill(
        name,
        description[:MAX_DESCRIPTION_CHARS],
        path,
        directory,
        body,
        digest[:16],
        source,
        one_line(header.get("argument-hint")),
        is_listed=fields.get("disable-model-invocation", "").lower() != "true",
        is_command=fields.get("user-invocable", "").lower() != "false",
        problems=(*wrong, *mistakes, *(useless if "allowed-tools" in header else ())),
    )


def _lines(skills: Iterable[Skill]) -> list[str]:
    """Return a line for each skill. If they are too long together, each description is cut to the same length."""
    lines = [(f"- {each.name}: ", each.description, f" ({each.path})") for each in skills]
    if sum(len(part) for line in lines for part in line) <= MAX_LISTED_CHARS:
        return ["".join(line) for line in lines]
    room = max(60, MAX_LISTED_CHARS // len(lines) - 100)
    return [
        f"{first}{text[:room]}…{last}" if len(text) > room else f"{first}{text}{last}"
        for first, text, last in lines
    ]


def _no_switches(fields: Mapping[str, str]) -> Iterator[str]:
    for key in _SWITCHES:
        if (value := fields.get(key, "")) and value.lower() not in ("true", "false"):
            yield f"its `{key}` '{value[:40]}' is neither true nor false"


def _is_name(name: str) -> bool:
    """Return True for lowercase letters, digits and single hyphens; letters of any script, as in the reference validator."""
    words = _normal(name).split("-")
    return name == name.lower() and all(map(str.isalnum, words))


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _violations(
    name: str, description: str, directory: str, header: Mapping[str, Any]
) -> Iterable[str]:
    """Yield what the specification does not allow, though it is accepted here."""
    if not one_line(header.get("name")):
        yield "it has no name; its directory's is used"
    elif len(name) > MAX_NAME_CHARS or not _is_name(name):
        yield (
            f"its name '{name[:80]}' should have at most {MAX_NAME_CHARS} lowercase letters, digits and single hyphens"
        )
    if _normal(name) != _normal(posixpath.basename(directory)):
        yield f"its name '{name[:80]}' differs from its directory's, '{posixpath.basename(directory)}'"
    if len(description) > MAX_DESCRIPTION_CHARS:
        yield f"its description has more than {MAX_DESCRIPTION_CHARS:,} characters; the rest is cut"
    compatibility = header.get("compatibility")
    if compatibility is not None and not isinstance(compatibility, str):
        yield "its `compatibility` is not a text"
    elif compatibility and len(compatibility) > MAX_COMPATIBILITY_CHARS:
        yield f"its `compatibility` has more than {MAX_COMPATIBILITY_CHARS} characters"
