"""
Endpoints: the APIs that can be called, as data.

An endpoint is a preset of `presets.toml` or a user's table `[providers.NAME]`. The table changes the preset of its name, starts from
another `preset`, or is complete with `wire` and `base_url`. Servers of one wire differ in a row of `Quirks`, not in code.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from sanderling.config.expansion import is_reference, variables_in
from sanderling.config.presets import base_of, merged
from sanderling.errors import ConfigError
from sanderling.hosts import canonical_host, is_loopback
from sanderling.packages import extension, extensions
from sanderling.protocol.modes import Effort
from sanderling.providers.credentials import Account
from sanderling.text import did_you_mean

if TYPE_CHECKING:
    from sanderling.config import Table

WIRES = ("anthropic", "chat", "responses", "ollama")
"""The wires of Sanderling. Packages can add others (`packages.py`)."""
Wire = Annotated[str, msgspec.Meta(extra_json_schema={"examples": [*WIRES]})]

PRESETS = Path(__file__).with_name("presets.toml")
# Reserved as the part before the colon of a model, and as values of the setting `provider`.
RESERVED = ("auto", "demo", "scripted", "script")
NO_DOCUMENT = "(A PDF, which this model cannot take. Read the file again to get its text.)"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How an endpoint departs from the norm of its wire. A wire ignores the fields that it does not use."""

    replay_reasoning: Literal["never", "with_tools", "always"] = "never"
    """Assistant messages that are sent back with their reasoning: none, only in turns with tool uses, or all."""
    blank_reasoning: str = ""
    """Text sent instead of missing reasoning, for servers that require some."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The response fields that may hold reasoning; the first one present counts."""
    text_thoughts: Literal["none", "tagged", "begun"] = "tagged"
    """Reasoning within the text: none, in `<think>` and `</think>` at its start, or without the opening tag, up to `</think>`."""
    tool_ids: Literal["any", "alnum9"] = "any"
    """Format of tool use ids: Mistral requires exactly nine letters and digits."""
    echo: tuple[str, ...] = ("extra_content", "reasoning_details")
    """Fields of a message or of its tool uses that are sent back unchanged."""
    stand_in: dict[str, Any] = {}
    """Required fields of a message's first tool use, added if another model wrote it."""
    takes_turns: bool = False
    """User and assistant must alternate, also around tool messages. An error that says so sets it."""
    one_call: bool = False
    """A message may have one tool call: parallel calls are sent one after the other. An error that says so sets it."""
    full_schemas: bool = False
    """Every parameter of a tool needs a type and a description. An error about a missing one sets it."""
    system_role: Literal["system", "developer"] = "system"
    max_tokens_name: Literal["", "max_tokens", "max_completion_tokens", "max_output_tokens"] = (
        "max_tokens"
    )
    """Empty: the limit is not sent, because the server's default is best."""
    stream_usage: bool = True
    """Usage is reported only if `stream_options` requests it."""
    strict_schemas: bool = False
    """Tools are declared `strict` if their schema allows it."""
    parallel_tools: bool | None = None
    """The value of `parallel_tool_calls`; None: not sent."""
    effort: dict[Literal["on", "off"], dict[str, Any]] = {}
    """Request fields that turn reasoning on and off."""
    efforts: tuple[Effort, ...] = ()
    """The efforts that the model takes, unless the API reports them."""
    effort_field: str = "reasoning_effort"
    """The request field for the effort; `a.b` is the field `b` of `a`."""
    body: dict[str, Any] = {}
    """Additional fields of every request."""
    web_search: dict[str, Any] = {}
    """The definition of the API's own tool that searches the web, for `[web_search]` with the provider "api"; empty: it has none."""
    cache: Literal["none", "automatic", "anthropic", "openai_explicit", "key"] = "automatic"
    """How a prefix is cached: not at all, automatically, at Anthropic's or OpenAI's breakpoints, or by the session's key."""
    cache_diagnosis: bool = False
    """Ask why the cache did not have the beginning of a request; Claude's API, at its own address, is always asked."""
    late_tools: bool = False
    """Tools can be added by a system message in the conversation, so that the cache of what is before it stays valid."""
    model_suffix: str = ""
    """Removed from the model's name in requests: `NAME-fast` is `NAME`, requested with another `body` at another price."""
    images: Literal["none", "user", "tool"] = "user"
    """Where images are allowed: nowhere, in user messages, or in tool results too."""
    documents: Literal["none", "tool"] = "none"
    """Where PDFs are allowed: nowhere, or in tool results."""
    max_images: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Most images per request; the oldest are left out."""
    image_side: Annotated[int, msgspec.Meta(ge=1)] = 8000
    """Largest width or height of an image, in pixels."""
    many_images: Annotated[int, msgspec.Meta(ge=0)] = 20
    """If a request has more images than this, each may have at most `many_images_side` pixels a side."""
    many_images_side: Annotated[int, msgspec.Meta(ge=1)] = 2000
    max_request_bytes: Annotated[int, msgspec.Meta(ge=1)] = 32_000_000
    """Largest request in bytes; images may take three quarters of it."""

    def sent_name(self, model: str) -> str:
        return model.removesuffix(self.model_suffix)

    def reasoning(self, *, thinking: bool, effort: Effort = "default") -> dict[str, Any]:
        """Return the request fields for reasoning and its effort."""
        fields = self.effort.get("on" if thinking else "off", {})
        if effort == "default":
            return fields
        value: Any = effort
        for name in reversed(self.effort_field.split(".")):
            value = {name: value}
        return with_fields(fields, value)


def with_fields(fields: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fields` with `more`; objects in both are joined."""
    joined = dict(fields)
    for name, value in more.items():
        match joined.get(name), value:
            case dict(), dict():
                joined[name] = with_fields(cast("Table", joined[name]), cast("Table", value))
            case _:
                joined[name] = value
    return joined


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """
    An API that can be called.

    `variables`: environment variables that may hold its key. `model`: the default. `is_keyed`: a key is required.
    """

    name: str
    wire: Wire
    base_url: str = ""  # empty: the setting `base_url`, or Anthropic's own
    variables: tuple[str, ...]
    is_keyed: bool = True
    model: str = ""
    headers: dict[str, str] = {}  # values may reference variables
    quirks: Quirks = Quirks()
    by_model: tuple[tuple[str, Quirks], ...] = ()

    @property
    def account(self) -> Account:
        marker = "keychain" if self.name == "anthropic" else f"keychain-{self.name}"
        return Account(self.name, self.variables, marker)

    def quirks_of(self, model: str) -> Quirks:
        return next(
            (quirks for pattern, quirks in self.by_model if fnmatchcase(model, pattern)),
            self.quirks,
        )


class ProviderTable(msgspec.Struct, frozen=True, kw_only=True):
    """A `[providers.NAME]` table from the user's settings or `presets.toml`; `models` maps patterns to quirks."""

    wire: Wire
    base_url: str = ""
    api_key: str | tuple[str, ...] = ()
    model: str = ""
    headers: dict[str, str] = {}
    quirks: dict[str, Any] = {}
    models: dict[str, dict[str, Any]] = {}
    preset: str = ""


# Kept outside `presets.toml`: with Claude alone, that file need not be parsed.
_ANTHROPIC: dict[str, Any] = {
    "wire": "anthropic",
    "base_url": "",  # from the setting, the environment, or `BASE_URL` of its provider
    "api_key": ["$ANTHROPIC_API_KEY", "$ANTHROPIC_AUTH_TOKEN"],
    "quirks": {
        "cache": "anthropic",
        "images": "tool",
        "documents": "tool",
        # Newer models always think, but stream nothing of it unless asked to.
        "effort": {"on": {"thinking": {"type": "adaptive", "display": "summarized"}}},
        "efforts": ["low", "medium", "high", "xhigh", "max"],
        "effort_field": "output_config.effort",
        "web_search": {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    },
    "models": {  # the API reports the efforts, but only after the first request
        "claude-*-fast": {"model_suffix": "-fast", "body": {"speed": "fast"}, "late_tools": True},
        "claude-opus-5-5*": {"late_tools": True},
        "claude-fable-5*": {"late_tools": True},
        "claude-mythos-5*": {"late_tools": True},
        "claude-opus-4-[78]*": {},
        "claude-*-4-6*": {"efforts": ["low", "medium", "high", "max"]},
        "claude-opus-4-5*": {"efforts": ["low", "medium", "high"]},
        "claude-*-4-*": {"efforts": []},
        "claude-3*": {"efforts": []},
    },
}


@cache
def presets() -> Mapping[str, dict[str, Any]]:
    """Return the tables of `presets.toml` by name, in the order in which keys are looked for."""
    import tomllib

    return {"anthropic": _ANTHROPIC} | tomllib.loads(PRESETS.read_text(encoding="utf-8"))


def endpoint_names(providers: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return all endpoint names: Anthropic, the user's own, then the presets."""
    return tuple(dict.fromkeys(("anthropic", *providers, *presets())))


def keys_of_providers(providers: Mapping[str, Mapping[str, Any]]) -> frozenset[str]:
    """Return the variables that may hold an API key or a header's value, for presets and the user's `providers`."""
    tables = (*presets().values(), *providers.values())
    values = (str(table.get(key)) for table in tables for key in ("api_key", "headers"))
    own = map(_variable_of, (*presets(), *providers))
    return frozenset(own).union(*map(variables_in, values))


def is_endpoint_name(name: str) -> bool:
    return re.fullmatch(_NAME, name) is not None


def load_endpoint(name: str, providers: Mapping[str, Mapping[str, Any]]) -> Endpoint:
    """
    Return the endpoint `name`; `providers` are the user's own tables.

    Raises:
        ConfigError: the name is unknown, or its table is invalid.
    """
    own = providers.get(name)
    if own is None and name == "anthropic":
        return ANTHROPIC
    if own is None and name not in presets():
        if name not in WIRES and extension("sanderling.providers", name):
            return Endpoint(name=name, wire=name, variables=(_variable_of(name),), is_keyed=False)
        names = endpoint_names(providers)
        raise ConfigError(
            f"there is no provider '{name}'{did_you_mean(name, names)}; there are {', '.join(names)}"
        )
    where, path = f"[providers.{name}]", ("providers", name)
    if not is_endpoint_name(name):
        raise ConfigError(
            f"{where} is not a valid name: use only letters, digits, '-' and '_'", path
        )
    if name in RESERVED:
        raise ConfigError(f"{where}: '{name}' is reserved; choose another name", path)
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
    loaded = msgspec.convert(table, ProviderTable)
    _check_wire(where, name, loaded.wire)
    base_url = loaded.base_url.rstrip("/")
    if base_url and not loaded.base_url.startswith(("http://", "https://")):
        raise ConfigError(
            f"{where}: base_url must begin with http:// or https://",
            ("providers", name, "base_url"),
        )
    variables = key_variables(name, loaded.api_key)
    return Endpoint(
        name=name,
        wire=loaded.wire,
        base_url=base_url,
        variables=variables or (_variable_of(name),),
        is_keyed=bool(variables) and not is_local(base_url),
        model=loaded.model,
        headers=loaded.headers,
        quirks=_quirks(where, loaded.quirks),
        by_model=tuple(
            (pattern, _quirks(f"{where}, models.{pattern},", loaded.quirks | changed))
            for pattern, changed in loaded.models.items()
        ),
    )


def is_endpoint(name: str, providers: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if there is an endpoint of this name. Packages are only looked at for a name that is nothing else."""
    return name in endpoint_names(providers) or bool(extension("sanderling.providers", name))


def _check_wire(where: str, name: str, wire: str) -> None:
    if wire in WIRES or extension("sanderling.providers", wire):
        return
    wires = (*WIRES, *(each.name for each in extensions("sanderling.providers")))
    raise ConfigError(
        f"{where}: wire must be one of {', '.join(wires)}, not '{wire}'{did_you_mean(wire, wires)}",
        ("providers", name, "wire"),
    )


def _variable_of(name: str) -> str:
    return f"{name.upper().replace('-', '_')}_API_KEY"


def _quirks(where: str, table: Mapping[str, Any]) -> Quirks:
    _check_keys(f"{where} quirks", table, Quirks.__struct_fields__)
    return msgspec.convert(table, Quirks)


def _check_keys(where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}: unknown key '{key}'{did_you_mean(key, known)}")


def key_variables(name: str, value: str | Sequence[str]) -> tuple[str, ...]:
    """
    Return the variables that `api_key` of the provider `name` references.

    Raises:
        ConfigError: an entry is not a reference. It may be a key, so the message does not repeat it.
    """
    references = (value,) if isinstance(value, str) else value
    if not all(map(is_reference, references)):
        raise ConfigError(
            f'[providers.{name}]: api_key must name a variable, as in api_key = "$LOCAL_KEY", not contain the key;'
            f" `sanderling login {name}` stores a key in the system's keychain",
            ("providers", name, "api_key"),
        )
    return tuple(name for each in references for name in variables_in(each))


def is_local(url: str) -> bool:
    try:
        return is_loopback(canonical_host(urlsplit(url).hostname or ""))
    except ValueError:
        return False


ANTHROPIC = _endpoint("anthropic", "[providers.anthropic]", _ANTHROPIC)
