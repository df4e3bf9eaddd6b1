"""The providers that there are, and the one that the settings ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.providers import Provider
from sanderling.providers.anthropic.client import ACCOUNT as ANTHROPIC
from sanderling.providers.anthropic.provider import AnthropicProvider
from sanderling.providers.credentials import Account, Credentials
from sanderling.providers.scripted import ScriptedProvider, load_demo, load_script

SCRIPT_PREFIX = "script:"


class KnownProvider(NamedTuple):
    """One provider: what makes it of the settings and the directory of the demo's project, and the key that it needs."""

    make: Callable[[Settings, str], Provider]
    account: Account | None = None


def _make_anthropic(settings: Settings, _: str) -> Provider:
    return AnthropicProvider(settings)


def _make_demo(_: Settings, sample: str) -> Provider:
    return ScriptedProvider(load_demo(sample), "demo")


def _make_scripted(settings: Settings, _: str) -> Provider:
    if settings.model.startswith(SCRIPT_PREFIX):
        path = _path(settings.model.removeprefix(SCRIPT_PREFIX))
        return ScriptedProvider(load_script(path), settings.model)
    return ScriptedProvider(load_script(_path(settings.script)))


PROVIDERS = {
    "anthropic": KnownProvider(_make_anthropic, ANTHROPIC),
    "demo": KnownProvider(_make_demo),
    "scripted": KnownProvider(_make_scripted),
}


DEFAULT = "anthropic"  # whose model is the default; says what to do where there is no key


def choose(settings: Settings, *, fallback: str = "demo") -> str:
    """
    Name the provider that answers: `auto` is the demo model if it is asked for, else the first that has a key, else `fallback`.

    A model `script:FILE` is that script, whatever the provider.
    """
    if settings.model.startswith(SCRIPT_PREFIX):
        return "scripted"
    if settings.provider != "auto":
        return settings.provider
    if settings.model == "demo":
        return "demo"
    with_key = (name for name in PROVIDERS if _has_key(name, settings))
    return next(with_key, fallback)


def _has_key(name: str, settings: Settings) -> bool:
    account = PROVIDERS[name].account
    return account is not None and (
        account.is_set() or Credentials(settings.state_dir, account).is_known()
    )


def make_provider(settings: Settings, sample: str = "", *, fallback: str = "demo") -> Provider:
    """
    Make the provider that `choose` names. `sample` is the directory of the demo model's own project.

    Raises:
        ConfigError: there is none of that name, or its script cannot be used.
    """
    name = choose(settings, fallback=fallback)
    if name not in PROVIDERS:
        names = ", ".join(("auto", *PROVIDERS))
        raise ConfigError(f"wrong setting: there is no provider '{name}', only {names}")
    return PROVIDERS[name].make(settings, sample)


def credentials(settings: Settings) -> Credentials:
    """The key that a person keeps for the provider of the settings; for the default one if it needs none."""
    known = PROVIDERS.get(settings.provider, PROVIDERS[DEFAULT])
    return Credentials(settings.state_dir, known.account or ANTHROPIC)


def _path(name: str) -> Path:
    return Path(name).expanduser()
