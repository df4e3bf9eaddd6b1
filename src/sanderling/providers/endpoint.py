"""
Endpoints: the APIs that can answer, as data.

One is a preset of `presets.toml`, or a table `[providers.NAME]` of the person's: that changes the preset of its name, begins from
another `preset`, or stands alone with `wire` and `base_url`. What differs between servers of one wire is a row of `Quirks`, not code.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from sanderling.config.expansion import is_reference, variables_in
from sanderling.config.presets import base_of, merged
from sanderling.errors import ConfigError
from sanderling.hosts import canonical_host, is_loopback
from sanderling.providers.credentials import Account
from sanderling.text import did_you_mean

Wire = Literal["anthropic", "chat", "responses", "ollama"]

PRESETS = Path(__file__).with_name("presets.toml")
# Names with a meaning of their own before the colon of a model, or as the setting `provider`.
RESERVED = ("auto", "demo", "scripted", "script")
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    The habits of an endpoint.

    What a wire has no use for, it passes over.
    """

    replay_reasoning: Literal["never", "with_tools", "always"] = "never"
    """In which messages the model's thoughts go back to it: in none, in those of turns that use tools, or in all."""
    blank_reasoning: str = ""
    """The text that goes back in the place of thoughts, where there are none and the server wants some."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The fields in which a thought may stand in an answer: the first of them that is there."""
    text_thoughts: Literal["none", "tagged", "begun"] = "tagged"
    """Thoughts in the text: none, at its beginning in `<think>` and `</think>`, or without the first of them, up to `</think>`."""
    tool_ids: Literal["any", "alnum9"] = "any"
    """The form of a tool use's id: Mistral wants exactly nine letters and digits."""
    echo: tuple[str, ...] = ("extra_content", "reasoning_details")
    """Fields of a message, or of a tool use in it, that go back as they came."""
    stand_in: dict[str, Any] = {}
    """Fields of a message's first tool use that it cannot be without, where another model wrote it."""
    takes_turns: bool = False
    """A person's message may not follow a tool's, nor the model's its own."""
    system_role: Literal["system", "developer"] = "system"
    max_tokens_name: Literal["", "max_tokens", "max_completion_tokens", "max_output_tokens"] = (
        "max_tokens"
    )
    """Empty: what the server does by itself is best."""
    stream_usage: bool = True
    """Tokens are counted only if `stream_options` asks for it."""
    strict_schemas: bool = False
    """Tools whose schema allows it are declared `strict`."""
    parallel_tools: bool | None = None
    """The value of `parallel_tool_calls`; None: it is not sent."""
    effort: dict[Literal["on", "off"], dict[str, Any]] = {}
    """Fields of the request that have the model think, and that keep it from it."""
    body: dict[str, Any] = {}
    """Fields of each request besides."""
    cache: Literal["none", "automatic", "anthropic", "openai_explicit", "key"] = "automatic"
    """The way in which a prefix is kept: by itself, at marks like Anthropic's or OpenAI's, or under the session's key."""
    images: Literal["none", "user", "tool"] = "user"
    """The places where an image may stand: nowhere, in a message of the user's, or in a tool's result as well."""
    max_images: Annotated[int, msgspec.Meta(ge=0)] = 100
    """The most images of a request; the oldest are left out."""
    image_side: Annotated[int, msgspec.Meta(ge=1)] = 8000
    """The most pixels that an image may be wide or high."""
    many_images: Annotated[int, msgspec.Meta(ge=0)] = 20
    """The images of a request from which on each of them may have `many_images_side` at most."""
    many_images_side: Annotated[int, msgspec.Meta(ge=1)] = 2000
    max_request_bytes: Annotated[int, msgspec.Meta(ge=1)] = 32_000_000
    """The most bytes of a request, of which images may take three quarters."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """
    An API that can answer. `variables` of the environment may hold its key; `model` is asked when the person names none.

    `is_keyed`: without a key it need not be asked.
    """

    name: str
    wire: Wire
    base_url: str = ""  # empty: the setting's, or Claude's own
    variables: tuple[str, ...]
    is_keyed: bool = True
    model: str = ""
    headers: dict[str, str] = {}  # whose values may name variables
    quirks: Quirks = Quirks()
    by_model: tuple[tuple[str, Quirks], ...] = ()

    @property
    def account(self) -> Account:
        marker = "keychain" if self.name == "anthropic" else f"keychain-{self.name}"
        return Account(self.name, self.variables, marker)

    def quirks_of(self, model: str) -> Quirks:
        """The quirks when `model` is asked: those of the first pattern that it matches, else the endpoint's."""
        return next(
            (quirks for pattern, quirks in self.by_model if fnmatchcase(model, pattern)),
            self.quirks,
        )


class ProviderTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table as the person, or `presets.toml`, writes it; `models` has quirks by pattern."""

    wire: Wire
    base_url: str = ""
    api_key: str | tuple[str, ...] = ()
    model: str = ""
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    models: dict[str, dict[str, Any]] = {}
    preset: str = ""


# Not among the presets: whoever asks Claude need not read those.
_ANTHROPIC: dict[str, Any] = {
    "wire": "anthropic",
    "base_url": "",  # the setting's, the environment's, or BASE_URL of its provider
    "api_key": ["$ANTHROPIC_API_KEY", "$ANTHROPIC_AUTH_TOKEN"],
    "quirks": {
        "cache": "anthropic",
        "images": "tool",
        # Newer models think whether asked or not, and say nothing meanwhile unless told to.
        "effort": {"on": {"thinking": {"type": "adaptive", "display": "summarized"}}},
    },
}


@cache
def presets() -> Mapping[str, dict[str, Any]]:
    """The tables of `presets.toml`, by name, in the order in which a key for them is looked for."""
    import tomllib

    return {"anthropic": _ANTHROPIC} | tomllib.loads(PRESETS.read_text(encoding="utf-8"))


def endpoint_names(providers: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """The endpoints that there are: the person's before the presets, but for Claude."""
    return tuple(dict.fromkeys(("anthropic", *providers, *presets())))


def keys_of_providers(providers: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """The variables that may hold the key of an API, or a header's: that of a preset, or of the person's own `providers`."""
    tables = (*presets().values(), *providers.values())
    told = (str(table.get(key)) for table in tables for key in ("api_key", "headers"))
    own = map(_variable_of, (*presets(), *providers))
    return frozenset(own).union(*map(variables_in, told))


def is_endpoint_name(name: str) -> bool:
    """Say whether a table may have this name; what stands before the colon of a model may be something else."""
    return re.fullmatch(_NAME, name) is not None


def load_endpoint(name: str, providers: Mapping[str, Mapping[str, Any]]) -> Endpoint:
    """
    The endpoint `name`; `providers` are the person's own tables.

    Raises:
        ConfigError: there is none of that name, or its table is wrong.
    """
    own = providers.get(name)
    if own is None and name == "anthropic":
        return ANTHROPIC
    if own is None and name not in presets():
        names = endpoint_names(providers)
        raise ConfigError(
            f"there is no provider '{name}'{did_you_mean(name, names)}; there are {', '.join(names)}"
        )
    where, path = f"[providers.{name}]", ("providers", name)
    if not is_endpoint_name(name):
        raise ConfigError(
            f"{where} is no name of a provider: letters, digits, '-' and '_' only", path
        )
    if name in RESERVED:
        raise ConfigError(f"{where}: '{name}' has a meaning of its own; give it another name", path)
    try:
        base = base_of(own or {}, presets(), "providers", name)
        return _endpoint(name, where, _merged(own or {}, base))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where} is wrong: {error}", path) from error


def _merged(own: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    table = merged(own, base, ("headers", "models"))
    if isinstance(own.get("quirks"), Mapping):
        table["quirks"] = merged(own["quirks"], base.get("quirks", {}), ("effort",))
    return table


def _endpoint(name: str, where: str, table: Mapping[str, Any]) -> Endpoint:
    _check_keys(where, table, ProviderTable.__struct_fields__)
    if missing := [key for key in ("wire", "base_url") if key not in table]:
        names = ", ".join(presets())
        raise ConfigError(f"{where} needs {' and '.join(missing)}, or preset = one of: {names}")
    told = msgspec.convert(table, ProviderTable)
    base_url = told.base_url.rstrip("/")
    if base_url and not told.base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{where}: base_url must begin with http:// or https://",
            ("providers", name, "base_url"),
        )
    variables = key_variables(name, told.api_key)
    return Endpoint(
        name=name,
        wire=told.wire,
        base_url=base_url,
        variables=variables or (_variable_of(name),),
        is_keyed=bool(variables) and not is_local(base_url),
        model=told.model,
        headers=told.headers,
        quirks=_quirks(where, told.quirks),
        by_model=tuple(
            (pattern, _quirks(f"{where}, models.{pattern},", told.quirks | changed))
            for pattern, changed in told.models.items()
        ),
    )


def _variable_of(name: str) -> str:
    """The variable for the key of the provider `name`, where its table names none."""
    return f"{name.upper().replace('-', '_')}_API_KEY"


def _quirks(where: str, table: Mapping[str, Any]) -> Quirks:
    _check_keys(f"{where} quirks", table, Quirks.__struct_fields__)
    return msgspec.convert(table, Quirks)


def _check_keys(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key '{key}'{did_you_mean(key, known)}")


def key_variables(name: str, told: str | Sequence[str]) -> tuple[str, ...]:
    """
    The names of variables in `api_key` of the provider `name`.

    Raises:
        ConfigError: something in it is none: a key that should not be there, and is not repeated.
    """
    references = (told,) if isinstance(told, str) else told
    if not all(map(is_reference, references)):
        raise ConfigError(
            f'[providers.{name}]: api_key is the name of a variable, as in api_key = "$LOCAL_KEY", and never the key itself;'
            f" `sanderling login {name}` keeps one in the system's keychain",
            ("providers", name, "api_key"),
        )
    return tuple(name for each in references for name in variables_in(each))


def is_local(url: str) -> bool:
    """Say whether `url` is on this machine."""
    try:
        return is_loopback(canonical_host(urlsplit(url).hostname or ""))
    except ValueError:
        return False


ANTHROPIC = _endpoint("anthropic", "[providers.anthropic]", _ANTHROPIC)
