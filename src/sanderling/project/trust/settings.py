"""The settings that a project adds once the user trusts its `.sanderling.toml`."""

from msgspec.structs import replace

from sanderling.config.file import parse, sound, user_file
from sanderling.config.layers import Layers, guards_in
from sanderling.config.project import PROJECT_FILE, read_project_file
from sanderling.project.trust.trust import Trust


def own_file_in_project(trust: Trust) -> str | None:
    """Return the path in the project of the user's own settings file, if it leads there, as in a repository of dotfiles."""
    return trust.relative(str(user_file()))


def with_project(layers: Layers, trust: Trust) -> Layers:
    """
    Return `layers` with the project's settings, if its file is trusted as it is now.

    If the user's own file is in the project, anything that works there can change it. So it must be trusted as well; until then it can
    only restrict the agent.

    Raises:
        ConfigError: the file is not valid TOML, or sets what a project may not.
    """
    if (own := own_file_in_project(trust)) is not None:
        text = trust.read(own)
        file = guards_in(layers.file) if text is None else sound(*parse(layers.file.origin, text))
        layers = replace(layers, file=file)
    text = trust.read(PROJECT_FILE)
    return layers if text is None else replace(layers, project=read_project_file(text))
