"""Which provider the settings ask for."""

from pathlib import Path

from sanderling.config import Settings, has_api_key
from sanderling.providers import Provider
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.credentials import Credentials
from sanderling.providers.scripted import ScriptedProvider, load_demo, load_script

SCRIPT_PREFIX = "script:"


def is_demo(settings: Settings) -> bool:
    """Whether the demo model answers: it was asked for, by either name, or there is no key for another."""
    if settings.model.startswith(SCRIPT_PREFIX):
        return False
    has_key = has_api_key() or Credentials(settings.state_dir).is_known()
    is_chosen = settings.model == "demo" or not has_key
    return settings.provider == "demo" or (settings.provider == "auto" and is_chosen)


def make_provider(settings: Settings, sample: str = "") -> Provider:
    """
    The provider that the settings ask for; `auto` is Claude with an API key and the demo model without one.

    A model `script:FILE` is that script, whatever the provider. `sample` is the directory of the demo model's own project.

    Raises:
        ConfigError: the script cannot be used.
    """
    model = settings.model
    if model.startswith(SCRIPT_PREFIX):
        return ScriptedProvider(load_script(_path(model.removeprefix(SCRIPT_PREFIX))), model)
    if settings.provider == "scripted":
        return ScriptedProvider(load_script(_path(settings.script)))
    if is_demo(settings):
        return ScriptedProvider(load_demo(sample), "demo")
    return AnthropicProvider(settings)


def _path(name: str) -> Path:
    return Path(name).expanduser()
