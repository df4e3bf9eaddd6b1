"""
The provider that answers: who it is by the settings, and by each model that is named from then on.

`PROVIDER:MODEL` names both. A model alone is that of the setting `provider`; where that is "auto", `claude…` is Anthropic's, and any
other that of the first provider with a key. Who is not asked is not even imported.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from sanderling.config import DEFAULT_MODEL, Settings
from sanderling.errors import ConfigError
from sanderling.models.known import UNKNOWN, load_models
from sanderling.providers import Delegate, Provider
from sanderling.providers.credentials import Credentials
from sanderling.providers.endpoint import (
    ANTHROPIC,
    Endpoint,
    endpoint_names,
    is_endpoint_name,
    load_endpoint,
)
from sanderling.text import did_you_mean, nearest

if TYPE_CHECKING:
    from sanderling.providers.http.provider import HttpProvider
    from sanderling.providers.http.way import Way

SCRIPT_PREFIX = "script:"
SCRIPTED = ("demo", "scripted")  # they need no key, and answer by any name
DEFAULT = ANTHROPIC.name  # says what to do where there is no key
PROFILE_VARIABLES = ("ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_FEDERATION_RULE_ID")
_PLAIN = ("auto", DEFAULT, *SCRIPTED)  # whose models have no colon: what has one names a provider


def choose(settings: Settings, *, fallback: str = "demo") -> str:
    """
    Name the provider that the settings ask for; where nobody has a key, that is `fallback`.

    Raises:
        ConfigError: there is none of that name, or it needs a model.
    """
    return _first_choice(settings, fallback)[0]


def make_provider(
    settings: Settings, sample: str = "", *, fallback: str = "demo", way: "Way | None" = None
) -> "ProviderChoice":
    """
    Make the provider of a session. `sample` is the directory of the demo model's own project; `way` leads to somebody who has the keys.

    Raises:
        ConfigError: the settings ask for what cannot be.
    """
    return ProviderChoice(settings, sample, fallback, way)


def credentials(settings: Settings, name: str = "") -> Credentials:
    """
    The key that a person keeps for the provider `name`; without one, for that of the settings, or for Claude.

    Raises:
        ConfigError: there is no such provider, or its table is wrong.
    """
    own = DEFAULT if settings.provider in ("auto", *SCRIPTED) else settings.provider
    return Credentials(settings.state_dir, load_endpoint(name or own, settings.providers).account)


class ProviderChoice(Delegate):
    """
    A provider that is one of all there are: the one that the chosen model belongs to.

    `model` is its full name, as logs have it. Each provider is made when it is chosen first, and closed at the end.
    """

    def __init__(
        self,
        settings: Settings,
        sample: str = "",
        fallback: str = "demo",
        way: "Way | None" = None,
    ) -> None:
        self._settings = settings
        self._way = way
        self._sample = sample
        self._fallback = fallback
        self._made: dict[str, Provider] = {}
        self._use(*_first_choice(settings, fallback))

    @property
    def model(self) -> str:
        return self._full(self._provider.model)

    async def aclose(self) -> None:
        for provider in self._made.values():
            await provider.aclose()

    async def list_models(self) -> tuple[str, ...]:
        return tuple(map(self._full, await self._provider.list_models()))

    def set_model(self, model: str) -> None:
        self._use(*_later_choice(model, self._settings, self._fallback))

    def _use(self, name: str, model: str) -> None:
        kept_as = model if model.startswith(SCRIPT_PREFIX) else name
        if kept_as not in self._made:
            self._made[kept_as] = _make(name, model, self._settings, self._sample, self._way)
        self._name, self._provider = name, self._made[kept_as]
        if self._provider.model != model:
            self._provider.set_model(model)

    def _full(self, model: str) -> str:
        return full_name(self._name, model, self._settings)


def full_name(name: str, model: str, settings: Settings) -> str:
    """The name that chooses `model` of the provider `name`."""
    is_own = name == DEFAULT and ":" not in model and settings.provider in _PLAIN
    return model if is_own or name in SCRIPTED else f"{name}:{model}"


def _make(name: str, model: str, settings: Settings, sample: str, way: "Way | None") -> Provider:
    if name in SCRIPTED:
        return _make_scripted(name, model, settings, sample)
    provider = make_at(load_endpoint(name, settings.providers), model, settings)
    provider.way = way
    return provider


def make_at(endpoint: Endpoint, model: str, settings: Settings) -> "HttpProvider":
    """
    Make a provider that asks `endpoint` for `model`.

    Raises:
        ConfigError: nobody speaks its wire.
    """
    match endpoint.wire:
        case "anthropic":
            from sanderling.providers.anthropic.provider import AnthropicProvider

            return AnthropicProvider(settings, endpoint, model)
        case "chat":
            from sanderling.providers.chat.provider import ChatProvider

            return ChatProvider(settings, endpoint, model)
        case "ollama":
            from sanderling.providers.ollama.provider import OllamaProvider

            return OllamaProvider(settings, endpoint, model)
        case "responses":
            from sanderling.providers.responses.provider import ResponsesProvider

            return ResponsesProvider(settings, endpoint, model)


def _make_scripted(name: str, model: str, settings: Settings, sample: str) -> Provider:
    from sanderling.providers.scripted import ScriptedProvider, load_demo, load_script

    if name == "demo":
        return ScriptedProvider(load_demo(sample), "demo")
    path = model.removeprefix(SCRIPT_PREFIX) if model.startswith(SCRIPT_PREFIX) else settings.script
    return ScriptedProvider(load_script(Path(path).expanduser()), model)


def load_ahead(settings: Settings) -> None:
    """Load what the chosen provider asks with, and have what takes no interpreter be done beside all that is loaded next."""
    with suppress(ConfigError, ImportError, MemoryError):  # which whoever makes it is told
        if choose(settings) not in SCRIPTED:
            from sanderling.providers.http.trust import begin_reading

            begin_reading()


# --- who it is ---------------------------------------------------------------------------------------------------------


def _first_choice(settings: Settings, fallback: str) -> tuple[str, str]:
    """The provider and the model that the settings ask for. A model that is the default is one that nobody has named."""
    if settings.model != DEFAULT_MODEL:
        return _later_choice(settings.model, settings, fallback, is_first=True)
    name = settings.provider
    if name == "auto":
        name = _with_key(settings, needs_model=True) or fallback
    return _with_default_model(name, settings)


def _later_choice(
    model: str, settings: Settings, fallback: str, *, is_first: bool = False
) -> tuple[str, str]:
    """The provider and the model that `model` names."""
    if model.startswith(SCRIPT_PREFIX):
        return "scripted", model
    name, colon, rest = model.partition(":")
    if colon and name in _names(settings):
        return (name, rest) if rest else _with_default_model(name, settings)
    if colon and settings.provider in _PLAIN and is_endpoint_name(name):
        _check_name(name, settings)
    name = settings.provider
    if (
        name == "auto"
        and not model.startswith("claude")
        and model in endpoint_names(settings.providers)
    ):
        return _with_default_model(model, settings)
    if name == "auto":
        name = _auto(model, settings, fallback)
    _check_name(name, settings)
    return name, ("scripted" if name == "scripted" and is_first else model)


def _auto(model: str, settings: Settings, fallback: str) -> str:
    if model == "demo":
        return "demo"
    if model.startswith("claude"):
        return DEFAULT if _has_key(ANTHROPIC, settings) else fallback
    name = _with_key(settings)
    if (name or fallback) not in ("demo", *settings.providers):  # whose models are nobody else's
        _check_model(model, name or fallback, settings, is_asked=bool(name))
    return name or fallback


def _check_model(model: str, name: str, settings: Settings, *, is_asked: bool) -> None:
    """
    Refuse a model without a provider that the provider `name` does not know, and another one does.

    Where nobody has a key (not `is_asked`), it need only be spelt like one that is known.
    """
    known = load_models(settings)
    if known.of(f"{name}:{model}") != UNKNOWN:
        return
    others = endpoint_names(settings.providers)
    models = {each: f"{other}:{each}" for other in reversed(others) for each in known.names(other)}
    near = [model] if model in models else [] if is_asked else nearest(model, models)
    if near:
        raise ConfigError(
            f"'{name}' has no model '{model}'; did you mean '{models[near[0]]}'?", ("model",)
        )


def _with_default_model(name: str, settings: Settings) -> tuple[str, str]:
    _check_name(name, settings)
    if name in SCRIPTED:
        return name, name
    endpoint = load_endpoint(name, settings.providers)
    model = endpoint.model or (DEFAULT_MODEL if name == DEFAULT else "")
    if not model:
        raise ConfigError(
            f"the provider '{name}' needs a model: --model {name}:NAME, or model = \"{name}:NAME\" in the configuration"
        )
    return name, model


def _with_key(settings: Settings, *, needs_model: bool = False) -> str:
    """The first provider that can be asked; empty if there is none."""
    found = (
        endpoint.name
        for endpoint in at_hand(settings)
        if endpoint.model or endpoint.name == DEFAULT or not needs_model
    )
    return next(found, "")


def at_hand(settings: Settings) -> Iterator[Endpoint]:
    """The endpoints that can be asked: those with a key, and of the person's own those that need none."""
    has_claude = _has_key(ANTHROPIC, settings)
    if has_claude:  # without a look at the others
        yield load_endpoint(DEFAULT, settings.providers)
    for name in endpoint_names(settings.providers)[has_claude:]:
        endpoint = load_endpoint(name, settings.providers)
        is_open = name in settings.providers and not endpoint.is_keyed
        if is_open or _has_key(endpoint, settings):
            yield endpoint


def _has_key(endpoint: Endpoint, settings: Settings) -> bool:
    account = endpoint.account
    is_found = account.is_set() or Credentials(settings.state_dir, account).is_known()
    return is_found or (endpoint is ANTHROPIC and names_profile())


def names_profile() -> bool:
    """Say whether the environment names what stands in the place of a key for Claude; `anthropic.profile` uses it."""
    return any(map(os.environ.get, PROFILE_VARIABLES))


def _names(settings: Settings) -> tuple[str, ...]:
    return (*SCRIPTED, *endpoint_names(settings.providers))


def _check_name(name: str, settings: Settings) -> None:
    if name not in (DEFAULT, *SCRIPTED) and name not in _names(settings):
        names = ("auto", *_names(settings))
        hint = did_you_mean(name, names)
        raise ConfigError(
            f"wrong setting: there is no provider '{name}'{hint or ', only ' + ', '.join(names)}",
            ("provider",) if name == settings.provider else ("model",),
        )
