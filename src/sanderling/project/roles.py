"""
Roles: instructions, tools, model, effort and mode that the user gives the agent together, under a name.

A role is a Markdown file with a header in `.claude/agents`, `.agents/agents` or `agents` of our own directories, or a table `[roles.NAME]`
of the user's settings. Files of other agents are read leniently. A role only restricts tools, and a project's role never makes the mode
less strict, nor lifts a limit of the user's role of the same name, so trusting one gives the project nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal, cast, get_args

import msgspec

from sanderling.config.server_names import fitted, fitted_server
from sanderling.errors import ConfigError
from sanderling.packages import extensions
from sanderling.project.front_matter import not_texts, one_line, read_document, unused
from sanderling.project.places import Place, Places
from sanderling.protocol.events import CommandSource
from sanderling.protocol.modes import MODES_BY_STRICTNESS, Effort, Mode
from sanderling.protocol.tool_names import known_names, meant_name
from sanderling.text import did_you_mean

MAX_DESCRIPTION_CHARS = 1024
NAME = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}"
_CLAUDES_MODES: Mapping[str, Mode] = {"default": "ask", "plan": "plan"}
_CLAUDES_KEYS = ("permission_mode", "max_turns", "mcp_servers", "initial_prompt")
_TEXTS = ("name", "description", "model", "system_prompt_append", "output_style")
_EVERYTHING = ("*", "all")
_SERVER = "mcp__"
_NUMBER = r"-\d+\Z"  # distinguishes tools of a server whose names would be the same
_WILD = r"[*?[]"


class RoleTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The keys of a role, in a table `[roles.NAME]` and in the header of a file.

    Attributes:
        prompt: what the model reads when the role begins; of a file, its text.
        tools: names of the tools that the model may use, Sanderling's or Claude's; `*` matches any text. None: all.
        disallowed_tools: names of tools that it may not use.
        skills: names of skills whose texts are sent with the role.
        system_prompt_append: text after the prompt.
        output_style: how to answer.
    """

    description: str = ""
    prompt: str = ""
    tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] = ()
    model: str = ""
    effort: Effort | None = None
    mode: Mode | None = None
    skills: tuple[str, ...] = ()
    system_prompt_append: str = ""
    output_style: str = ""


class Role(RoleTable, frozen=True, forbid_unknown_fields=False):
    """
    A role. `tools` and `disallowed_tools` are our names; `problems` are sentences for its author.

    `replaced` is the user's own role of the same name, whose limits hold, too.
    """

    name: str = ""
    origin: str = ""
    source: CommandSource = "user"
    problems: tuple[str, ...] = ()
    replaced: "Role | None" = None

    def allows(self, tool: str) -> bool:
        """Return whether the model may use the tool, by our name."""
        is_among = self.tools is None or _is_among(tool, self.tools)
        names = (tool, re.sub(_NUMBER, "", tool) if tool.startswith(_SERVER) else tool)
        is_denied = any(_is_among(each, self.disallowed_tools) for each in names)
        return is_among and not is_denied and (not self.replaced or self.replaced.allows(tool))

    @property
    def is_restricting(self) -> bool:
        return self._has_limits or bool(self.replaced and self.replaced.is_restricting)

    @property
    def _has_limits(self) -> bool:
        return self.tools is not None or bool(self.disallowed_tools)

    def tools_in_words(self) -> str:
        """Return which tools the role has: "read, grep", "all but bash"."""
        if not (self.replaced and self.replaced.is_restricting):
            return self._own_tools_in_words()
        theirs = self.replaced.tools_in_words()
        return f"{self._own_tools_in_words()}; of these {theirs}" if self._has_limits else theirs

    def _own_tools_in_words(self) -> str:
        but = ", ".join(self.disallowed_tools)
        if self.tools is None:
            return f"all but {but}"
        return (", ".join(self.tools) or "none") + (f", but not {but}" if but else "")

    def text(self, skills: str = "") -> str:
        """Return what the model reads when the role begins; `skills` are their texts."""
        style = f"Output style: {self.output_style}" if self.output_style else ""
        tools = f"[In this role you may use these tools: {self.tools_in_words()}.]"
        parts = (
            f"[The user has given you the role {self.name}. It holds until a note ends it.]",
            self.prompt,
            self.system_prompt_append,
            style,
            skills,
            tools if self.is_restricting else "",
        )
        return "\n\n".join(filter(None, parts))


_CHANGING = ("edit", "write", "code_refactor")
_OWN_ROLES = (
    Role(
        name="explore",
        description="finds out; only reads",
        prompt="Find out what the task asks, and change nothing. Report facts with the places (`path:line`) that prove them.",
        disallowed_tools=_CHANGING,
    ),
    Role(
        name="edit",
        description="changes files",
        prompt="Make the change that the task asks for, and check it. Report what you changed, and how you checked it.",
    ),
    Role(
        name="review",
        description="judges code; only reads",
        prompt="Review what the task names, and change nothing. Report each defect with its place (`path:line`), the worst one"
        " first, and how it shows. Leave out matters of taste.",
        disallowed_tools=_CHANGING,
    ),
)
_OTHERS_ROLES: Mapping[str, str] = {
    "general-purpose": "edit",
    "general": "edit",
    "plan": "explore",
    "code-reviewer": "review",
    "reviewer": "review",
}
"""Our own roles by the names that other agents have for them."""


class SkippedRole(msgspec.Struct, frozen=True):
    """A role that is not used, and why: a sentence."""

    origin: str
    problem: str


class Roles:
    """The roles of a session, first from `tables`, the user's settings, then from files. Every call looks at the files again."""

    def __init__(self, places: Places, tables: Mapping[str, Any]) -> None:
        self._places = places
        self._tables = tables
        self._ignored: tuple[str, ...] = ()

    def all(self) -> dict[str, Role]:
        """Return the roles by name."""
        return by_name(self.found())

    def find(self, name: str) -> Role:
        """
        Return the role with this name.

        Raises:
            ConfigError: it does not exist, or its file cannot be used.
        """
        found = self.found()
        roles = by_name(found)
        if name in roles:
            return roles[name]
        for each in found:
            if isinstance(each, SkippedRole) and each.origin.endswith(f"/{name}.md"):
                raise ConfigError(
                    f"The role '{name}' cannot be used: {each.origin}: {each.problem}.", ("role",)
                )
        known = f"; known: {', '.join(sorted(roles))}." if roles else "; there are no roles."
        hint = did_you_mean(name, roles) or known
        untrusted = f" Not trusted: {', '.join(self._ignored)}." if self._ignored else ""
        raise ConfigError(f"There is no role '{name}'{hint}{untrusted}", ("role",))

    def of_child(self, name: str) -> Role:
        """
        Return the role with this name that a child session can have: one of the user's, or one of our own.

        Raises:
            ConfigError: it does not exist.
        """
        found = self.all()
        own = {each.name: each for each in _OWN_ROLES}
        roles = dict(own)
        for key, each in found.items():
            # A project must not replace a role that the kernel keeps read-only, nor hide the user's, which may have limits.
            role = each if each.source == "user" or key.lower() not in own else each.replaced
            if role and (role.source == "user" or role is each):
                roles[key] = role
        plain = name.strip().lower()
        for each in (name, plain, _OTHERS_ROLES.get(plain, "")):
            if each in roles:
                return roles[each]
        raise ConfigError(f"There is no role '{name[:80]}'; roles: {', '.join(roles)}.")

    def found(self) -> list[Role | SkippedRole]:
        """Return all roles, and the files that cannot be used, with the reason."""
        found = list[Role | SkippedRole](load_roles(self._tables).values())
        ignored = list[str]()
        for place in self._places.of("agents"):
            for name, file in place.found():
                if file.state != "trusted":
                    ignored.append(file.path)
                elif not file.sha256:
                    found.append(SkippedRole(file.path, file.text))
                else:
                    found.append(_read_in(place, name, file.text))
        self._ignored = tuple(ignored)
        return found

    def ignored(self) -> tuple[str, ...]:
        """Return the files that the last search skipped because the user has not trusted them."""
        return self._ignored


def is_read_only(role: Role) -> bool:
    """Return whether it is a role of our own in which the kernel makes the project read-only."""
    return role in _OWN_ROLES and bool(role.disallowed_tools)


def by_name(found: Iterable[Role | SkippedRole]) -> dict[str, Role]:
    """Return the roles by name. Of two with one name the first is used, a project's within the limits of the user's."""
    roles = dict[str, Role]()
    for each in found:
        if not isinstance(each, Role):
            continue
        first = roles.setdefault(each.name, each)
        if first.source == "project" and each.source != "project" and not first.replaced:
            roles[each.name] = _limited(first, each)
    return roles


def _limited(role: Role, own: Role) -> Role:
    """Return a project's role with the limits of the user's role that it replaces."""
    modes = [mode for mode in (role.mode, own.mode) if mode and mode != "auto"]
    mode = min(modes, key=MODES_BY_STRICTNESS.index, default=role.mode)
    return msgspec.structs.replace(role, mode=mode, replaced=own)


def load_roles(tables: Mapping[str, Any]) -> dict[str, Role]:
    """
    Return the roles of the user's settings.

    Raises:
        ConfigError: names what is wrong.
    """
    roles = dict[str, Role]()
    for name, table in tables.items():
        if not re.fullmatch(NAME, name):
            words = f"'{name[:80]}' cannot be a role's name: use letters, digits, - and _"
            raise ConfigError(words, ("roles", name))
        try:
            declared = msgspec.convert(table, RoleTable)
        except msgspec.ValidationError as error:
            raise ConfigError(f"'roles.{name}': {error}", ("roles", name)) from error
        roles[name] = _role(declared, name, f"[roles.{name}]", "user", [])
    return roles


def _read_in(place: Place, name: str, text: str) -> Role | SkippedRole:
    origin = place.absolute(name)
    if place.source == "project":
        origin = f"{place.directory}/{name}"
    return read_role(origin, text, place.source)


def read_role(origin: str, text: str, source: CommandSource = "user") -> Role | SkippedRole:
    """Return the role in the file `origin`, which has this text."""
    try:
        header, body, repaired = read_document(text)
    except ConfigError as error:
        return SkippedRole(origin, str(error))
    fields = {_snake(key): value for key, value in header.items()}
    known = ("name", *RoleTable.__struct_fields__)
    problems = [*repaired, *unused(fields, known, _CLAUDES_KEYS), *not_texts(fields, _TEXTS)]
    name = one_line(fields.get("name")) or origin.rpartition("/")[2].removesuffix(".md")
    if not re.fullmatch(NAME, name):
        return SkippedRole(origin, f"'{name[:80]}' cannot be a role's name")
    effort = _one_of(fields, "effort", get_args(Effort), problems)
    mode = _one_of(fields, "mode", get_args(Mode), problems)
    table = RoleTable(
        description=one_line(fields.get("description"))[:MAX_DESCRIPTION_CHARS],
        prompt=body,
        tools=tuple(_names(fields["tools"])) if "tools" in fields else None,
        disallowed_tools=tuple(_names(fields.get("disallowed_tools"))),
        model=one_line(fields.get("model")),
        effort=msgspec.convert(effort, Effort | None),
        mode=msgspec.convert(mode or _claudes_mode(fields, problems), Mode | None),
        skills=tuple(_names(fields.get("skills"))),
        system_prompt_append=_whole(fields.get("system_prompt_append")),
        output_style=_whole(fields.get("output_style")),
    )
    if not (table.prompt or table.system_prompt_append or table.output_style):
        problems.append("it has no text for the model")
    return _role(table, name, origin, source, problems)


def _role(
    table: RoleTable, name: str, origin: str, source: CommandSource, problems: list[str]
) -> Role:
    fields = {each: getattr(table, each) for each in RoleTable.__struct_fields__}
    if table.tools is not None:
        everything = any(each in _EVERYTHING for each in table.tools)
        fields["tools"] = None if everything else _once(_own(table.tools, "allow", problems))
    fields["disallowed_tools"] = _once(_own(table.disallowed_tools, "deny", problems))
    fields["model"] = table.model if table.model != "inherit" else ""
    return Role(**fields, name=name, origin=origin, source=source, problems=tuple(problems))


def _own(
    names: Iterable[str], effect: Literal["allow", "deny"], problems: list[str]
) -> Iterator[str]:
    """Yield our names. A part of a tool, as in `Bash(git:*)`, is not supported: the stricter of all and nothing is meant."""
    for name in map(str.strip, names):
        tool, bracket, _ = name.partition("(")
        if bracket:
            outcome = "it is left out" if effect == "allow" else "all of the tool is left out"
            problems.append(f"'{name[:80]}' names a part of a tool: {outcome}")
        if bracket and effect == "allow":
            continue
        if tool.startswith(_SERVER):
            yield tool
            yield from _fitted(tool, effect)
        elif tool:
            own = meant_name(tool)
            if problem := _problem_of(own):
                problems.append(problem)
            yield own


def _problem_of(name: str) -> str:
    """Return what is wrong with the name of a tool, or the glob; "" if it means a tool, or may mean one of a server or of Lua."""
    known = known_names()
    if "__" in name or any(fnmatchcase(each, name) for each in known):
        return ""
    added = [each.name for each in extensions("sanderling.tools")]
    if any(fnmatchcase(each, name) for each in added):
        return ""
    return f"there is no tool '{name[:80]}'{did_you_mean(name, (*known, *added))}"


def _fitted(name: str, effect: Literal["allow", "deny"]) -> Iterator[str]:
    """
    Yield what the model calls the tools of a server whose name the user has written as in the settings: `tools.db` becomes `tools-db`.

    A `__` in the name may also belong to the server, which counts only where it makes the role stricter.
    """
    whole = name.removeprefix(_SERVER)
    server, separator, tool = whole.rpartition("__")
    if not separator:
        server, tool = whole, ""
    if not re.search(_WILD, server) and (fitted_name := fitted_server(server)):
        tool = tool if re.search(_WILD, tool) else fitted(tool, len(tool))
        yield f"{_SERVER}{fitted_name}{separator}{tool}"
    if effect == "deny" and separator and not re.search(_WILD, whole):
        yield f"{_SERVER}{fitted_server(whole)}"


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _is_among(tool: str, names: tuple[str, ...]) -> bool:
    return any(_means(name, tool) for name in names)


def _means(name: str, tool: str) -> bool:
    """Return whether `name` in a list means the tool: a tool that needs another comes with it, and a server with all of its tools."""
    if fnmatchcase(tool, name):
        return True
    if tool == "jobs":
        return name == "bash"
    if tool == "ls":
        return name in ("read", "glob")
    if tool == "mcp_search":
        return name.startswith(_SERVER)
    return name.startswith(_SERVER) and name.count("__") == 1 and tool.startswith(f"{name}__")


# --- values of a header ------------------------------------------------------------------------------------------------


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", key).replace("-", "_").lower()


def _whole(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _names(value: Any) -> Iterator[str]:
    """Yield the names of a list, or of a text with commas or blanks; a text in parentheses stays together."""
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    for item in items:
        if isinstance(item, str):
            yield from re.findall(r"[^\s,(]+(?:\([^)]*\))?", item)


def _one_of(
    fields: Mapping[str, Any], key: str, known: tuple[str, ...], problems: list[str]
) -> str | None:
    value = one_line(fields.get(key))
    if value and value not in known:
        problems.append(f"its {key} '{value[:40]}' is none of {', '.join(known)}")
        return None
    return value or None


def _claudes_mode(fields: Mapping[str, Any], problems: list[str]) -> Mode | None:
    """Return what Claude's `permissionMode` means. Modes that ask less have no counterpart."""
    value = one_line(fields.get("permission_mode"))
    if value and value not in _CLAUDES_MODES:
        problems.append(f"its permissionMode '{value[:40]}' has no effect here")
    return _CLAUDES_MODES.get(value)
