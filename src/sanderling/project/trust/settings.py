"""The settings that a project makes for those who work in it, once they trust its `.sanderling.toml`."""

from msgspec.structs import replace

from sanderling.config.file import parse, sound, user_file
from sanderling.config.layers import Layers, guards_in
from sanderling.config.project import PROJECT_FILE, read_project_file
from sanderling.project.trust.trust import Trust


def own_file_in_project(trust: Trust) -> str | None:
    """The path in the project of the person's own file of settings, if it leads there, as in a repository of dotfiles."""
    return trust.relative(str(user_file()))


def with_project(layers: Layers, trust: Trust) -> Layers:
    """
    `layers` with what the project has set, if its file is trusted as it is now.

    Where the person's own file lies in the project, whoever works there can change it. So it counts when it is trusted, too; until
    then it only binds the agent.

    Raises:
        ConfigError: the file is no TOML, or has what a project may not set.
    """
    if (own := own_file_in_project(trust)) is not None:
        text = trust.read(own)
        file = guards_in(layers.file) if text is None else sound(*parse(layers.file.origin, text))
        layers = replace(layers, file=file)
    text = trust.read(PROJECT_FILE)
    return layers if text is None else replace(layers, project=read_project_file(text))
