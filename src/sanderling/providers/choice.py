"""
Selection of a provider, by the settings and by each model that is chosen later.

`PROVIDER:MODEL` names both. A model alone belongs to the setting `provider`; with "auto", `claude…` belongs to Anthropic, and any other
model to the first provider with a key. Providers that are not used are not imported.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from sanderling.config import DEFAULT_MODEL, Settings, Table
from sanderling.errors import ConfigError
from sanderling.packages import extensions
from sanderling.providers import Delegate, Provider
from sanderling.providers.credentials import Credentials
from sanderling.providers.endpoint import (
    ANTHROPIC,
    Endpoint,
    endpoint_names,
    is_endpoint,
    is_endpoint_name,
    load_endpoint,
)
from sanderling.providers.models.known import UNKNOWN, load_models
from sanderling.providers.packaged import PackagedProvider
from sanderling.text import did_you_mean, nearest

if TYPE_CHECKING:
    from sanderling.providers.http.model_proxy import ModelProxy
    from sanderling.providers.http.provider import HttpProvider

ReadProviders = Callable[[], Mapping[str, Table]]

SCRIPT_PREFIX = "script:"
SCRIPTED = ("demo", "scripted")  # need no key and accept any model name
DEFAULT = ANTHROPIC.name  # its error explains how to store a key
PROFILE_VARIABLES = ("ANTHROPIC_PROFILE", "ANTHROPIC_CONFIG_DIR", "ANTHROPIC_FEDERATION_RULE_ID")
_PLAIN = (
    "auto",
    DEFAULT,
    *SCRIPTED,
)  # their models have no colon, so a colon follows a provider's name


def choose(settings: Settings, *, fallback: str = "demo") -> str:
    """
    Return the name of the provider that the settings choose; `fallback` if no provider has a key.

    Raises:
        ConfigError: the provider is unknown, or needs a model.
    """
    return _first_choice(settings, fallback)[0]


def make_provider(
    settings: Settings,
    sample: str = "",
    *,
    fallback: str = "demo",
    model_proxy: "ModelProxy | None" = None,
    read_providers: ReadProviders = dict,
) -> "ProviderChoice":
    """
    Make the provider of a session. `sample` is the directory of the demo model's project, `model_proxy` the model proxy.

    `read_providers` returns the user's tables of providers as they are now; it may raise ConfigError.

    Raises:
        ConfigError: the settings name an unknown provider or model.
    """
    return ProviderChoice(settings, sample, fallback, model_proxy, read_providers)


def find_model(settings: Settings, read_providers: ReadProviders, model: str) -> str:
    """
    Return the full name of `model`.

    Raises:
        ConfigError: no provider has it.
    """
    choice = make_provider(settings, read_providers=read_providers)
    choice.set_model(model)
    return choice.model


def search_warning(settings: Settings) -> str:
    """Return that the chosen model's API cannot do the searches that the settings leave to it; empty if it can."""
    name, model = _first_choice(settings, "demo")
    if name in SCRIPTED:
        return ""
    return search_warning_on(load_endpoint(name, settings.providers), model, settings)


def search_warning_on(endpoint: Endpoint, model: str, settings: Settings) -> str:
    if settings.web_search_provider != "api" or endpoint.quirks_of(model).web_search:
        return ""
    name = full_name(endpoint.name, model, settings)
    return (
        f'[web_search] provider = "api" has no effect with {name}: no search tool of its API is known.'
        ' Set provider to "searxng", "brave", "kagi" or "gemini", or the quirk `web_search`.'
    )


def credentials(settings: Settings, name: str = "") -> Credentials:
    """
    Return the credentials of the provider `name`, by default of the configured one or Anthropic.

    Raises:
        ConfigError: the provider is unknown, or its table is invalid.
    """
    own = DEFAULT if settings.provider in ("auto", *SCRIPTED) else settings.provider
    return Credentials(settings.state_dir, load_endpoint(name or own, settings.providers).account)


class ChosenModel(msgspec.Struct, frozen=True):
    """
    The model that the settings choose, and where the key of its provider is.

    `is_fallback`: no provider has a key, so the demo model answers. `variable`: the environment variable for the key.
    """

    provider: str
    model: str
    key: Literal["environment", "keychain", "profile", "not needed", "missing"]
    variable: str = ""
    is_fallback: bool = False


def chosen_model(settings: Settings) -> ChosenModel:
    """
    Describe the settings' choice, for diagnostics.

    Raises:
        ConfigError: the provider is unknown, or needs a model.
    """
    name, model = _first_choice(settings, "demo")
    if name in SCRIPTED:
        named = settings.model.partition(":")[0]
        is_meant = settings.provider != "auto" or named in {*SCRIPTED, "script"}
        return ChosenModel(name, model, "not needed", is_fallback=not is_meant)
    endpoint = load_endpoint(name, settings.providers)
    account = endpoint.account
    if account.is_set():
        key = "environment"
    elif Credentials(settings.state_dir, account).is_known():
        key = "keychain"
    elif name == DEFAULT and names_profile():
        key = "profile"
    else:
        key = "missing" if endpoint.is_keyed else "not needed"
    return ChosenModel(name, model, key, account.variables[0])


class ProviderChoice(Delegate):
    """
    Forwards to the provider of the chosen model.

    `model` is the full name, as in logs. Each provider is made when it is first chosen, and closed at the end.
    """

    def __init__(
        self,
        settings: Settings,
        sample: str = "",
        fallback: str = "demo",
        model_proxy: "ModelProxy | None" = None,
        read_providers: ReadProviders = dict,
    ) -> None:
        self._read_providers = read_providers
        self._settings = settings
        self._model_proxy = model_proxy
        self._sample = sample
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
        before = self._settings
        name, colon, _ = model.partition(":")
        if colon and not model.startswith(SCRIPT_PREFIX) and not _is_name(name, self._settings):
            self._learn_provider(name)
        try:
            # Not the demo model, unless it is named: its answers would pass for this model's.
            self._use(*_later_choice(model, self._settings, DEFAULT))
        except ConfigError:
            self._settings = before  # the user may repair the table
            raise

    def _learn_provider(self, name: str) -> None:
        """Add a provider that the user has declared since the session began. Those that are known keep their tables."""
        known = self._settings
        try:
            table = self._read_providers().get(name)
        except ConfigError:  # elsewhere the colon is part of a model's name
            if known.provider in _PLAIN:
                raise
            return
        if table is not None:
            self._settings = replace(known, providers={**known.providers, name: table})

    def _use(self, name: str, model: str) -> None:
        kept_as = model if model.startswith(SCRIPT_PREFIX) else name
        if kept_as not in self._made:
            self._made[kept_as] = _make(
                name, model, self._settings, self._sample, self._model_proxy
            )
        self._name, self._provider = name, self._made[kept_as]
        if self._provider.model != model:
            self._provider.set_model(model)

    def _full(self, model: str) -> str:
        return full_name(self._name, model, self._settings)


def full_name(name: str, model: str, settings: Settings) -> str:
    """Return the name that selects `model` of the provider `name`."""
    is_own = name == DEFAULT and ":" not in model and settings.provider in _PLAIN
    return model if is_own or name in SCRIPTED else f"{name}:{model}"


def _make(
    name: str, model: str, settings: Settings, sample: str, model_proxy: "ModelProxy | None"
) -> Provider:
    if name in SCRIPTED:
        return _make_scripted(name, model, settings, sample)
    provider = make_at(load_endpoint(name, settings.providers), model, settings)
    if not isinstance(provider, PackagedProvider):  # it has no model proxy: it calls from here
        provider.model_proxy = model_proxy
    return provider


def make_at(
    endpoint: Endpoint, model: str, settings: Settings
) -> "HttpProvider | PackagedProvider":
    """
    Make a provider that calls `model` at `endpoint`.

    Raises:
        ConfigError: the package with its wire does not work.
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
        case _:
            return PackagedProvider(endpoint, model)


def _make_scripted(name: str, model: str, settings: Settings, sample: str) -> Provider:
    from sanderling.providers.scripted import ScriptedProvider, load_demo, load_script

    if name == "demo":
        return ScriptedProvider(load_demo(sample), "demo")
    path = model.removeprefix(SCRIPT_PREFIX) if model.startswith(SCRIPT_PREFIX) else settings.script
    return ScriptedProvider(load_script(Path(path).expanduser()), model)


def load_ahead(settings: Settings) -> None:
    """Import the chosen provider's HTTP stack; load certificates in a thread meanwhile."""
    with suppress(ConfigError, ImportError, MemoryError):  # reported when the provider is made
        if choose(settings) not in SCRIPTED:
            from sanderling.providers.http.trust import begin_reading

            begin_reading()


def _first_choice(settings: Settings, fallback: str) -> tuple[str, str]:
    """Return the provider and model that the settings choose. The default model counts as not chosen."""
    if settings.model != DEFAULT_MODEL:
        return _later_choice(settings.model, settings, fallback, is_first=True)
    name = settings.provider
    if name == "auto":
        name = _with_key(settings, needs_model=True) or fallback
    return _with_default_model(name, settings)


def _later_choice(
    model: str, settings: Settings, fallback: str, *, is_first: bool = False
) -> tuple[str, str]:
    """Return the provider and model that `model` names."""
    if model.startswith(SCRIPT_PREFIX):
        return "scripted", model
    name, colon, rest = model.partition(":")
    if colon and _is_name(name, settings):
        return (name, rest) if rest else _with_default_model(name, settings)
    if colon and settings.provider in _PLAIN and is_endpoint_name(name):
        _check_name(name, settings)
    name = settings.provider
    if name == "auto" and not model.startswith("claude") and is_endpoint(model, settings.providers):
        return _with_default_model(model, settings)
    if name == "auto":
        name = _auto(model, settings, fallback)
        if name == "demo":  # it has no other name: another model's would have a price
            model = name
    _check_name(name, settings)
    return name, ("scripted" if name == "scripted" and is_first else model)


def _auto(model: str, settings: Settings, fallback: str) -> str:
    if model == "demo":
        return "demo"
    if model.startswith("claude"):
        return DEFAULT if _has_key(ANTHROPIC, settings) else fallback
    name = _with_key(settings)
    if (name or fallback) not in (
        "demo",
        *settings.providers,
    ):  # the user's own providers may have any model
        _check_model(model, name or fallback, settings, is_asked=bool(name))
    return name or fallback


def _check_model(model: str, name: str, settings: Settings, *, is_asked: bool) -> None:
    """
    Reject a model without a provider if the provider `name` does not have it and another one does.

    If no provider has a key (not `is_asked`), a similar name of a known model is enough to reject it.
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
    """Return the first provider that can be called, or ""."""
    found = (
        endpoint.name
        for endpoint in at_hand(settings)
        if endpoint.model or endpoint.name == DEFAULT or not needs_model
    )
    return next(found, "")


def at_hand(settings: Settings) -> Iterator[Endpoint]:
    """Yield the endpoints that can be called: those with a key, and the user's own that need none."""
    has_claude = _has_key(ANTHROPIC, settings)
    if has_claude:  # the others are not loaded
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
    """Return True if the environment selects a profile instead of an API key for Claude; `anthropic.profile` uses it."""
    return any(map(os.environ.get, PROFILE_VARIABLES))


def _names(settings: Settings) -> tuple[str, ...]:
    packaged = (each.name for each in extensions("sanderling.providers"))
    return (*SCRIPTED, *endpoint_names(settings.providers), *packaged)


def _is_name(name: str, settings: Settings) -> bool:
    return name in SCRIPTED or is_endpoint(name, settings.providers)


def _check_name(name: str, settings: Settings) -> None:
    if name != DEFAULT and not _is_name(name, settings):
        names = ("auto", *_names(settings))
        hint = did_you_mean(name, names)
        raise ConfigError(
            f"wrong setting: there is no provider '{name}'{hint or ', only ' + ', '.join(names)}",
            ("provider",) if name == settings.provider else ("model",),
        )
