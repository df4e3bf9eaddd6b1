"""The plugins that are installed for the user, and what each of them brings."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from sanderling.config import Layer, Settings, Table
from sanderling.config.file import shown_path
from sanderling.errors import ConfigError
from sanderling.paths import is_within, leads_through
from sanderling.project.plugins import data_directory, own_directory, plugin_directories
from sanderling.project.plugins.manifest import MANIFEST, Manifest, read_manifest
from sanderling.project.plugins.servers import SERVERS, Directories, read_servers, shown_server
from sanderling.project.skills import Skill, Skipped, read_skill
from sanderling.project.trust.reading import TrustReader, find_child_skills
from sanderling.protocol.requests import ShownPlugin, TrustFile
from sanderling.text import visible_line

SKILLS = "skills"


class Plugin(msgspec.Struct, frozen=True):
    """A plugin in the resolved directory `root`. `servers` are tables of settings, `problems` sentences about parts that are not used."""

    root: str
    manifest: Manifest
    servers: dict[str, Table]
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.manifest.name

    def server_name(self, name: str) -> str:
        """Return the name in settings of one of its servers."""
        return f"{self.name}.{name}"

    def skills(self) -> list[Skill | Skipped]:
        """Return its skills, and for each unused skill the reason."""
        files = PluginFiles(self.root)
        found = list[Skill | Skipped]()
        for name in find_child_skills(f"{self.root}/{SKILLS}"):
            path = f"{SKILLS}/{name}"
            if file := files.look(path):
                absolute = f"{self.root}/{path}"
                found.append(
                    read_skill(absolute, file.text, file.sha256, "plugin", path)
                    if file.sha256
                    else Skipped(path, file.text)
                )
        return found


class Broken(msgspec.Struct, frozen=True):
    """A directory that is not used as a plugin, and why: a sentence."""

    path: str
    problem: str


class PluginFiles:
    """The files of a plugin, as the user has added it. Links must not lead out of it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._reader = TrustReader(root, "the plugin")

    def look(self, path: str) -> TrustFile | None:
        """Return the file as `Trust.look` does. One that cannot be read has no `sha256`, and its text says why."""
        content = self._reader.read(f"{self.root}/{path}")
        if content is None:
            return None
        if content.problem:
            return TrustFile(path, "trusted", "", f"[{path} {content.problem}]")
        return TrustFile(path, "trusted", content.sha256, content.text)


def read_plugin(directory: str, state_dir: str) -> Plugin:
    """
    Return the plugin in `directory`.

    Raises:
        ConfigError: the directory has no plugin, or it must be rejected as a whole.
    """
    root = os.path.realpath(directory)
    manifest = read_manifest(root)
    servers = read_servers(Directories(root, data_directory(state_dir, manifest.name)))
    problems = (*manifest.problems, *_problem_of_skills(root), *servers.problems)
    return Plugin(root, manifest, servers.tables, problems)


def find_plugins(state_dir: str, project: str = "") -> list[Plugin | Broken]:
    """
    Return the installed plugins. Of two with one name the first is used.

    A plugin inside `project` or around it is not, because anything that works there could change it.
    """
    found = list[Plugin | Broken]()
    used = dict[str, str]()
    for path in _paths():
        try:
            plugin = read_plugin(path, state_dir)
        except ConfigError as error:
            found.append(Broken(path, str(error)))
            continue
        if project and leads_through(path, project):
            problem = "it is in this project, where the agent could change it"
            found.append(Broken(path, problem))
        elif project and is_within(project, plugin.root):
            problem = "it contains this project, so the agent could change it"
            found.append(Broken(path, problem))
        elif plugin.name in used:
            problem = f"{shown_path(Path(used[plugin.name]))} has the same name and comes first"
            found.append(Broken(path, problem))
        else:
            used[plugin.name] = path
            found.append(plugin)
    return found


def news_of(found: Sequence[Plugin | Broken], disabled: Sequence[str]) -> list[str]:
    """Return sentences about plugins, and their parts, that are not used."""
    news = list[str]()
    for each in found:
        if isinstance(each, Broken):
            news.append(f"The plugin in {shown_path(Path(each.path))} is not used: {each.problem}.")
        elif each.name not in disabled:
            news += [f"The plugin {each.name}: {problem}." for problem in each.problems]
    return [visible_line(words) for words in news]


def shown_plugin(plugin: Plugin, disabled: Sequence[str]) -> ShownPlugin:
    """Return the plugin as the user reads it, without anything invisible."""
    skills = plugin.skills()
    used = [each for each in skills if isinstance(each, Skill)]
    skipped = (f"{each.path}: {each.problem}" for each in skills if isinstance(each, Skipped))
    servers = (
        f"{plugin.server_name(name)}: {shown_server(table)}"
        for name, table in plugin.servers.items()
    )
    return ShownPlugin(
        plugin.name,
        shown_path(Path(plugin.root)),
        visible_line(plugin.manifest.version),
        visible_line(plugin.manifest.description),
        tuple(visible_line(f"{each.name}: {each.description}") for each in used),
        tuple(map(visible_line, servers)),
        tuple(map(visible_line, (*plugin.problems, *skipped))),
        is_disabled=plugin.name in disabled,
        is_ours=is_within(plugin.root, os.path.realpath(own_directory())),
    )


def shown_plugins(settings: Settings, project: str) -> list[ShownPlugin]:
    """Return the installed plugins, and the other directories among them, as a session in `project` finds them."""
    found = find_plugins(settings.state_dir, os.path.realpath(project))
    return [
        ShownPlugin("", shown_path(Path(each.path)), problems=(visible_line(each.problem),))
        if isinstance(each, Broken)
        else shown_plugin(each, settings.plugins_disabled)
        for each in found
    ]


def layers_of(found: Sequence[Plugin | Broken], state_dir: str) -> dict[str, Layer]:
    """Return the servers of each plugin as a layer of settings, and make the directories for their data."""
    layers = dict[str, Layer]()
    for each in found:
        if isinstance(each, Plugin) and each.servers:
            with suppress(OSError):  # then its servers do not start, and say why
                _make_data_directories(data_directory(state_dir, each.name), each)
            tables = {each.server_name(name): table for name, table in each.servers.items()}
            origin = shown_path(Path(each.root, SERVERS))
            layers[each.name] = Layer(origin, {"mcp": {"servers": tables}})
    return layers


def _make_data_directories(data: str, plugin: Plugin) -> None:
    """Make the directory for the plugin's data, and those in it in which its servers start."""
    Path(data).mkdir(0o700, parents=True, exist_ok=True)
    for table in plugin.servers.values():
        if is_within(cwd := table.get("cwd", ""), data):
            Path(cwd).mkdir(parents=True, exist_ok=True)


def _paths() -> Iterator[str]:
    for directory in plugin_directories():
        try:
            names = sorted(each.name for each in directory.iterdir())
        except OSError:  # it does not exist, or is not readable
            continue
        for name in names:
            path = f"{directory}/{name}"
            is_data = name == "data" and not os.path.lexists(
                f"{path}/{MANIFEST}"
            )  # of other agents
            if Path(path).is_dir() and not name.startswith(".") and not is_data:
                yield path


def _problem_of_skills(root: str) -> Sequence[str]:
    path = f"{root}/{SKILLS}"
    if not os.path.lexists(path):
        return ()
    real = os.path.realpath(path)
    if not is_within(real, root):
        return (f"{SKILLS} is a link that leads out of the plugin, so no skill of it is used",)
    if not Path(real).is_dir():
        return (f"{SKILLS} is not a directory, so no skill of the plugin is used",)
    return ()
