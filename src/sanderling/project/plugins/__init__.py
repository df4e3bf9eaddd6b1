"""
Agent Plugins 1.0.0: directories with a `plugin.json`, skills and MCP servers (agent-plugins.org).

A plugin is somebody else's, so it gets what a command of the model gets, and a directory for its data. Each is copied when the user adds
it, so it does not change afterwards. A failure of one part leaves the other parts usable, as the specification demands.
"""

import os
from pathlib import Path

from sanderling.config import config_dir

NAME = "plugins"


def own_directory() -> Path:
    """Return the directory into which plugins are copied."""
    return Path(config_dir(), NAME)


def plugin_directories() -> tuple[Path, ...]:
    """Return the directories with plugins, the strongest first. The last one is shared with other agents."""
    return own_directory(), Path("~/.agents", NAME).expanduser()


def have_any() -> bool:
    return any(map(os.path.isdir, plugin_directories()))


def data_directory(state_dir: str, name: str) -> str:
    """Return `PLUGIN_DATA` of the plugin, which stays when the plugin is replaced."""
    return os.path.realpath(f"{state_dir}/{NAME}/data/{name}")
