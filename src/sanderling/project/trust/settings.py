"""The settings that a project may make for those who work in it, once they trust its `.sanderling/config.toml`."""

import tomllib
from typing import Annotated, Any, TypeVar

import msgspec

from sanderling.config import Settings
from sanderling.errors import ConfigError
from sanderling.project.trust.trust import CONFIG_FILE, Trust

Limit = TypeVar("Limit", int, float)


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    The keys of `Settings` that a project may have. Those that bound what is spent only ever lower it.

    `permissions` come on top of the person's; "allow" among them counts, for the person has seen it.
    """

    model: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    thinking: bool | None = None
    max_tokens: Annotated[int, msgspec.Meta(gt=0)] | None = None
    max_calls: Annotated[int, msgspec.Meta(gt=0)] | None = None
    budget_usd: Annotated[float, msgspec.Meta(gt=0)] | None = None
    permissions: tuple[dict[str, Any], ...] = ()


def project_settings(trust: Trust, settings: Settings) -> Settings:
    """
    `settings` with what the project has set, if its file is trusted as it is now.

    Raises:
        ConfigError: the file is no TOML, or has what a project may not set.
    """
    text = trust.read(CONFIG_FILE)
    if text is None:
        return settings
    chosen = _parse(text)
    return msgspec.structs.replace(
        settings,
        model=chosen.model or settings.model,
        thinking=settings.thinking if chosen.thinking is None else chosen.thinking,
        max_tokens=chosen.max_tokens or settings.max_tokens,
        max_calls=_lower(settings.max_calls, chosen.max_calls),
        budget_usd=_lower(settings.budget_usd, chosen.budget_usd),
        permissions=(*settings.permissions, *chosen.permissions),
    )


def _parse(text: str) -> ProjectSettings:
    try:
        return msgspec.convert(tomllib.loads(text), ProjectSettings)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{CONFIG_FILE} is no TOML: {error}") from error
    except msgspec.ValidationError as error:
        keys = ", ".join(ProjectSettings.__struct_fields__)
        raise ConfigError(f"{CONFIG_FILE} is wrong: {error}; a project may set {keys}") from error


def _lower(own: Limit, chosen: Limit | None) -> Limit:
    """The lower of both; 0 is no limit."""
    if not chosen:
        return own
    return min(own, chosen) if own else chosen
