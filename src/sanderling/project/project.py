"""A session's project: what it and the user give the agent (instructions, skills, commands, roles, settings), as far as it is trusted."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from sanderling.config import Layer, Settings, config_dir
from sanderling.config.file import parse, sound, user_file, user_servers_file
from sanderling.config.layers import Layers, guards_in, left_out_of_plugins, tables_without_plugin
from sanderling.config.project import PROJECT_FILE, ignored_servers, read_project_file
from sanderling.errors import ConfigError
from sanderling.project import plugins
from sanderling.project.instructions import Instructions
from sanderling.project.places import Places
from sanderling.project.roles import Roles
from sanderling.project.skills import Skills
from sanderling.project.slash_commands import AskedCommand, SlashCommands
from sanderling.project.trust.trust import MCP_FILE, InstructionFiles, OwnFiles, Trust
from sanderling.protocol.events import SlashCommand
from sanderling.protocol.messages import Prompt
from sanderling.text import visible_line

SHARED_DIRECTORIES = ("~/.agents", "~/.claude")
"""Directories of the user's that several agents share; Sanderling's own comes before them."""
OLD_PROJECT_FILE = ".sanderling/config.toml"  # never released
OLD_NAME = "{old} is no longer read: move it to {new} in the project's root, and trust it there."
LIKE_ANOTHER = (
    "The MCP server '{name}' of a plugin is not used: its name is too similar to another server's."
)
NO_PLUGIN = (
    'The table [mcp.servers."{name}"] of your settings has no effect: no plugin has this server.'
    " Add a command or url, or remove it."
)
OWN_SERVER = (
    "The server '{name}' of {file} is not used: you have one of that name in your own settings."
)


class Project:
    """One session's project; `whose` is the project of which the directory `project` is a worktree."""

    def __init__(self, settings: Settings, project: str, whose: str = "") -> None:
        self._state_dir = settings.state_dir
        self._disabled_skills = settings.skills_disabled
        self._disabled_plugins = settings.plugins_disabled
        self._role_tables = settings.roles
        self._news: list[str] = []
        self._read_in(project, whose)

    def _read_in(self, project: str, whose: str = "") -> None:
        self.trust = Trust(self._state_dir, project, whose)
        own = OwnFiles(config_dir(), self.trust)
        shared = (OwnFiles(str(Path(each).expanduser()), self.trust) for each in SHARED_DIRECTORIES)
        self.places = places = Places(self.trust, (own, *shared), self._plugins())
        self.instructions = Instructions(self.trust, own)
        self.skills = Skills(places, self.trust.project, self._disabled_skills)
        self._slash_commands = SlashCommands(places, self.skills)
        self.roles = Roles(places, self._role_tables)
        self._reported_untrusted: tuple[str, ...] = ()

    def _plugins(self) -> Sequence[InstructionFiles]:
        """Return the files of the plugins, whose problems the user should know."""
        if not plugins.have_any():
            return ()
        from sanderling.project.plugins import installed  # only needed if there is a plugin

        found = installed.find_plugins(self._state_dir, self.trust.whose)
        self._news += installed.news_of(found, self._disabled_plugins)
        return [
            installed.PluginFiles(each.root)
            for each in found
            if isinstance(each, installed.Plugin) and each.name not in self._disabled_plugins
        ]

    def move(self, project: str) -> None:
        """Read the files of this directory from now on. The instructions that the model was sent stay known."""
        sent, skills = self.instructions.state(), self.skills.state()
        self._read_in(project)
        self.instructions.restore(sent)
        self.skills.restore(skills)

    def settings(self, layers: Layers) -> Settings:
        """
        Return the settings of a session in this project.

        Raises:
            ConfigError: the project's settings are wrong.
        """
        layers = with_project(layers, self.trust)
        settings = layers.settings()
        self._role_tables = settings.roles
        self.roles = Roles(self.places, settings.roles)
        if os.path.exists(f"{self.trust.project}/{OLD_PROJECT_FILE}"):  # noqa: PTH110 - Path's raises without permission to look
            self._news.append(OLD_NAME.format(old=OLD_PROJECT_FILE, new=PROJECT_FILE))
        for name in left_out_of_plugins(layers, settings):
            self._news.append(LIKE_ANOTHER.format(name=name))
        for name in tables_without_plugin(layers, settings):
            self._news.append(NO_PLUGIN.format(name=visible_line(name)))
        for name in ignored_servers(layers.project, settings):
            self._news.append(OWN_SERVER.format(name=name, file=PROJECT_FILE))
        return settings

    def news_of_settings(self) -> list[str]:
        """Return the sentences about the project's settings that do not apply, except those returned before."""
        news, self._news = self._news, []
        return news

    def expand(self, prompt: Prompt) -> Prompt:
        """
        Return the prompt with its slash command expanded to text; nothing is run.

        Raises:
            ConfigError: the command is unknown, or cannot be used so.
        """
        asked = self.asked(prompt)
        return asked.put_into(prompt, asked.text) if asked else prompt

    def asked(self, prompt: Prompt) -> AskedCommand | None:
        """
        Return what the prompt's slash command asks for; None without one, and for a prompt that is already expanded.

        Raises:
            ConfigError: as `expand`.
        """
        return None if prompt.sent else self._slash_commands.asked(prompt.text)

    def expand_or_keep(self, prompt: Prompt) -> Prompt:
        """Expand the prompt if possible, because it can no longer be refused."""
        try:
            return self.expand(prompt)
        except ConfigError:
            return prompt

    def note_on_change(self, path: str) -> str:
        """Return what a change of the instructions at the absolute `path` would mean, for the user who decides about it."""
        own = config_dir()
        places = ((path, own), (os.path.realpath(path), os.path.realpath(own)))
        if any(Path(file).is_relative_to(directory) for file, directory in places):
            return "The model gets this in all your projects."
        if self.trust.relative(path) is None:
            return "It is outside the project, where the model does not get it."
        if self.trust.keeps_trust(path):
            return "The model gets this in later sessions of the project: accepting the change also trusts it."
        return "This file is not trusted, so the model does not get it until you trust it."

    def commands(self) -> tuple[SlashCommand, ...]:
        return self._slash_commands.all()

    def news_of_untrusted(self) -> tuple[str, ...]:
        """Return the files that are ignored for lack of trust, if they have changed since the last call."""
        own = own_files_in_project(self.trust)
        settings = (PROJECT_FILE, MCP_FILE, *self.trust.hook_files(), *own)
        files = (
            *self.instructions.ignored(),
            *self.trust.untrusted(settings),
            *self._slash_commands.ignored(),
            *self.skills.ignored(),
            *self.roles.ignored(),
        )
        ignored = tuple(dict.fromkeys(files))
        is_news, self._reported_untrusted = ignored != self._reported_untrusted, ignored
        return ignored if is_news else ()


def with_plugins(layers: Layers, project: str) -> Layers:
    """Return `layers` with the MCP servers of the plugins."""
    if not plugins.have_any():
        return layers
    from sanderling.project.plugins import installed  # only needed if there is a plugin

    found = installed.find_plugins(layers.state_dir, os.path.realpath(project))
    return replace(layers, plugins=installed.layers_of(found, layers.state_dir))


def own_files_in_project(trust: Trust) -> list[str]:
    """Return the paths in the project of the user's own files of settings that lead there, as in a repository of dotfiles."""
    files = (_in_project(trust, path) for path in (user_file(), user_servers_file()))
    return [path for path in files if path is not None]


def _in_project(trust: Trust, path: Path) -> str | None:
    return trust.relative(str(path))


def with_project(layers: Layers, trust: Trust) -> Layers:
    """
    Return `layers` with the project's settings, if its file is trusted as it is now, and with the user's plugins.

    If a file of the user's own is in the project, anything that works there can change it. So it must be trusted as well; until then
    settings can only restrict the agent, and servers are ignored.

    Raises:
        ConfigError: the file is not valid TOML, or sets what a project may not.
    """
    if (own := _in_project(trust, user_servers_file())) is not None:
        from sanderling.config.servers_file import parse_servers  # only needed if there is a file

        text = trust.read(own)
        origin = layers.servers.origin
        servers = Layer(origin) if text is None else sound(*parse_servers(origin, text))
        layers = replace(layers, servers=servers)
    if (own := _in_project(trust, user_file())) is not None:
        text = trust.read(own)
        file = guards_in(layers.file) if text is None else sound(*parse(layers.file.origin, text))
        layers = replace(layers, file=file)
    layers = with_plugins(layers, trust.whose)
    text = trust.read(PROJECT_FILE)
    return layers if text is None else replace(layers, project=read_project_file(text))
