"""
The known models, by provider and name.

The user's file and the option `prices` override Sanderling's data, key by key. Limits that an endpoint reports override both; a price
that it reports overrides Sanderling's.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from sanderling.config import Layer, Settings, config_dir
from sanderling.config.file import Mistake, parse_file, placed, refusal, without
from sanderling.errors import ConfigError
from sanderling.protocol.messages import Usage

FILE = "models.toml"  # the user's, in their configuration directory
PER_TOKENS = 1_000_000
PER_SEARCHES = 1_000
LENGTH_STEP_TOKENS = 1_000
DEFAULT_PROVIDER = "anthropic"  # of a name without one
_REPLAYED = ("demo", "scripted", "script")
_PROVIDER = r"[a-z0-9]+"  # as in the names of the files here
_ALSO = {"deepseek-anthropic": "deepseek"}  # endpoints with the same models, at the same price
_SNAPSHOT = r"(?:[-@]\d{8}|-\d{4}-\d{2}-\d{2}|-latest)$"

Dollars = Annotated[float, msgspec.Meta(ge=0, le=1_000_000)]
Factor = Annotated[float, msgspec.Meta(ge=0, le=1_000)]
LengthTokens = Annotated[float, msgspec.Meta(ge=0, multiple_of=LENGTH_STEP_TOKENS)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Table = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Table]]


class Price(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Dollars per million tokens.

    A request with a prompt of more than `long_prompt_tokens` (0: no limit), cached or not, costs the factors times as much, all of it.
    Writing to the cache and reading from it cost as much as other input, unless set. `web_searches` is the price of a thousand searches by
    the API: the same at Anthropic and at OpenAI (https://docs.anthropic.com/en/docs/about-claude/pricing,
    https://developers.openai.com/api/docs/pricing).
    """

    input: Dollars
    output: Dollars
    cache_write: Dollars | None = None
    cache_read: Dollars | None = None
    long_prompt_tokens: LengthTokens = 0
    long_input_factor: Factor = 1
    long_output_factor: Factor = 1
    web_searches: Dollars = 10

    def cost_usd(self, usage: Usage, request_prompt_tokens: int) -> float:
        """Return the cost of `usage`, of requests with prompts of this length."""
        cache_write = self.input if self.cache_write is None else self.cache_write
        cache_read = self.input if self.cache_read is None else self.cache_read
        taken = (
            usage.input_tokens * self.input
            + usage.cache_creation_input_tokens * cache_write
            + usage.cache_read_input_tokens * cache_read
        )
        given = usage.output_tokens * self.output
        if 0 < self.long_prompt_tokens < request_prompt_tokens:
            taken, given = taken * self.long_input_factor, given * self.long_output_factor
        searching = usage.web_searches * self.web_searches / PER_SEARCHES
        return (taken + given) / PER_TOKENS + searching


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model at one provider; 0 and None mean unknown."""

    window_tokens: Tokens = 0
    max_output_tokens: Tokens = 0
    price: Price | None = None

    @property
    def note(self) -> str:
        """The window and the price, for a list of models."""
        if self in (UNKNOWN, FREE):
            return ""
        window = f"{self.window_tokens:,}" if self.window_tokens else "?"
        dollars = f"${self.price.input:g}/${self.price.output:g}" if self.price else "$?/$?"
        return f"window {window}, {dollars} per M"


UNKNOWN = Model()
_NOTHING = {"input": 0, "output": 0}
FREE = Model(price=Price(**_NOTHING))

_FAMILIES = ("opus", "sonnet", "haiku")


class KnownModels:
    """
    The known models. `own` has the user's tables by provider and model, `prices` the user's prices by name or pattern.

    `also` maps providers to others that have the same models.
    """

    def __init__(
        self,
        own: Tables | None = None,
        prices: Table | None = None,
        also: Mapping[str, str] | None = None,
    ) -> None:
        self._own = own or {}
        self._prices = prices or {}
        self._also = {**_ALSO, **(also or {})}
        self._known: dict[str, Model] = {}
        for name in self._prices:
            self.of(name)
        try:
            for provider, models in self._own.items():
                for model in models:
                    self.of(f"{provider}:{model}")
        except ConfigError as error:
            raise ConfigError(f"{FILE}: {error}") from error

    def of(self, name: str) -> Model:
        """
        Return the model `name`: `provider:model`, or the name of a Claude model alone.

        A dated snapshot counts as its model. Another release does not: the price of `claude-opus-5-6` is not guessed.
        """
        if name not in self._known:
            self._known[name] = self._look_up(name)
        return self._known[name]

    def learn(self, name: str, price: Price) -> None:
        """Use the price that the provider reports for `name`, unless the user has set one."""
        provider, model = split(name)
        own = self._own.get(provider, {}).get(model, {})
        if "price" not in own and not self._own_price((name, model)):
            self._known[name] = msgspec.structs.replace(self.of(name), price=price)

    def names(self, provider: str) -> tuple[str, ...]:
        """Return the known models of `provider`: the user's own first, then the newest first."""
        return tuple(dict.fromkeys((*self._own.get(provider, ()), *self._shipped(provider))))

    def meant(self, name: str, provider: str) -> str:
        """
        Return the model of `provider` that `name` means in the files of Claude Code: the newest `sonnet`. Other names are returned as they are.

        Raises:
            ConfigError: the provider has no such model.
        """
        if name not in _FAMILIES:
            return name
        found = next((each for each in self.names(provider) if name in each.split("-")), "")
        if not found:
            raise ConfigError(f"no model of {provider} has that name")
        return found if provider == DEFAULT_PROVIDER else f"{provider}:{found}"

    def _look_up(self, name: str) -> Model:
        provider, model = split(name)
        plain = re.sub(_SNAPSHOT, "", model)
        table: dict[str, Any] = {"price": _NOTHING} if provider in _REPLAYED else {}
        sources: tuple[Mapping[str, Table], ...] = (
            self._shipped(provider),
            self._own.get(provider, {}),
        )
        for source in sources:
            found = source.get(model) or source.get(plain) or {}
            table = {**table, **found, **_price(table, found.get("price"))}
        names = (name, model, f"{provider}:{plain}", plain)
        table |= _price(table, self._own_price(names))
        try:
            return msgspec.convert(table, Model)
        except msgspec.ValidationError as error:
            what = "price" if "$.price" in str(error) else "entry"
            words = str(error).replace("$.price", "$")
            raise ConfigError(f"wrong {what} of the model '{name}': {words}") from error

    def _shipped(self, provider: str) -> Mapping[str, Table]:
        return _shipped(self._also.get(provider, provider))

    def _own_price(self, names: tuple[str, ...]) -> Table | None:
        for name in names:
            if name in self._prices:
                return self._prices[name]
        patterns = (pattern for pattern in self._prices if "*" in pattern)
        found = next((each for each in patterns if fnmatchcase(names[0], each)), None)
        return self._prices[found] if found else None


def split(name: str) -> tuple[str, str]:
    provider, colon, model = name.partition(":")
    if colon:
        return provider, model
    return (name, "") if name in _REPLAYED else (DEFAULT_PROVIDER, name)


def is_replayed(provider: str) -> bool:
    """Return whether the models of `provider` are scripts."""
    return provider in _REPLAYED


def load_models(settings: Settings) -> KnownModels:
    """
    Return the known models, with the user's own file and prices.

    Raises:
        ConfigError: names the file, or the model and the key that is unknown, missing or wrong.
    """
    return KnownModels(load_own(config_dir()), settings.prices, _begun_from(settings))


def load_own(directory: str) -> Tables:
    """
    Read the user's own file in `directory`, which may be missing.

    Raises:
        ConfigError: names all mistakes, each with its line.
    """
    layer, mistakes = _parse_own(directory)
    if mistakes:
        raise refusal(mistakes)
    return layer.options


def mistakes_in_own(settings: Settings) -> list[Mistake]:
    """Return all mistakes in the user's own file, including missing keys that no other source has."""
    layer, mistakes = _parse_own(config_dir())
    reported = {mistake.path[:2] for mistake in mistakes}
    errors = list[ConfigError]()
    for provider, models in without(layer, mistakes).options.items():
        for model, table in models.items():
            try:
                KnownModels({provider: {model: table}}, also=_begun_from(settings))
            except ConfigError as error:
                if (provider, model) not in reported:
                    errors.append(ConfigError(str(error), (provider, model)))
    return mistakes + placed(layer, errors)


def _parse_own(directory: str) -> tuple[Layer, list[Mistake]]:
    layer, mistakes = parse_file(Path(directory, FILE), None)
    if layer.options:
        from sanderling.config.mistakes import mistakes_in  # needed for such a file only

        mistakes += placed(layer, mistakes_in(layer.options, dict[str, dict[str, Model]]))
    return layer, mistakes


def _begun_from(settings: Settings) -> dict[str, str]:
    """Return the presets of endpoints that start from one and keep its address."""
    return {
        name: str(table["preset"])
        for name, table in settings.providers.items()
        if "preset" in table and "base_url" not in table
    }


def _price(table: Table, price: Table | None) -> dict[str, Any]:
    return {"price": {**table.get("price", {}), **price}} if price else {}


@cache
def _shipped(provider: str) -> dict[str, dict[str, Any]]:
    if not re.fullmatch(_PROVIDER, provider):
        return {}
    file = Path(__file__).with_name(f"{provider}.toml")
    if not file.is_file():
        return {}
    import tomllib  # needed after the first answer, for its price

    return tomllib.loads(file.read_text(encoding="utf-8"))
