"""Settings: what the user chose, checked by name and type."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from sanderling.errors import ConfigError
from sanderling.text import did_you_mean

DEFAULT_MODEL = "claude-sonnet-5-5"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options that a session runs with. `state_dir` holds the sessions, `log_file` the host's own log."""

    state_dir: str
    log_file: str = ""
    provider: str = "auto"  # a name in `providers.choice`
    model: Annotated[str, msgspec.Meta(min_length=1)] = DEFAULT_MODEL
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: 32,000, or the model's limit
    base_url: str = ""  # empty: ANTHROPIC_BASE_URL, else the API itself
    thinking: bool = True
    idle_timeout_s: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    script: str = ""  # the scripted provider's file
    sandbox_min_level: Literal["full", "full-bwrap", "namespaces", "landlock"] = "landlock"
    sandbox_hosts: tuple[str, ...] = ()
    sandbox_read: tuple[str, ...] = ()
    sandbox_write: tuple[str, ...] = ()
    sandbox_env: tuple[str, ...] = ()
    permissions: tuple[dict[str, Any], ...] = ()  # rules, as `permissions/store.py` reads them
    # Of the model in one turn and of a session, before the person is asked; 0: no limit.
    max_calls: Annotated[int, msgspec.Meta(ge=0)] = 200
    budget_usd: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    prices: dict[str, dict[str, float]] = {}  # by model, as the catalogue has them
    providers: dict[str, dict[str, Any]] = {}  # by name, as `providers/endpoint.py` reads them
    mcp_servers: dict[str, dict[str, Any]] = {}  # by name, as `mcp/servers.py` reads them
    auto_compact: bool = True

    @property
    def session_dir(self) -> Path:
        return Path(self.state_dir) / "sessions"

    @property
    def sandbox_dir(self) -> Path:
        return Path(self.state_dir) / "sandbox"


def make_private(settings: Settings) -> None:
    """Let nobody else see which projects there are: the directories that hold all others, also those of an earlier version."""
    for directory in (Path(settings.state_dir), settings.sandbox_dir):
        with suppress(OSError):  # whoever writes there later says what is wrong
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)


def load_settings(options: Mapping[str, Any]) -> Settings:
    """
    Check `options` and return them as settings.

    Raises:
        ConfigError: naming the unknown key and its nearest neighbour, or the key with the wrong value.
    """
    known = Settings.__struct_fields__
    for key in options:
        if key not in known:
            raise ConfigError(f"unknown setting '{key}'{did_you_mean(key, known)}")
    try:
        settings = msgspec.convert(options, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"wrong setting: {error}") from error
    if settings.provider == "scripted" and not settings.script:
        raise ConfigError("provider 'scripted' needs 'script', the path of its file")
    return settings


def settings_report(settings: Settings, model: str) -> str:
    """The settings in force, as Markdown, by their names in Neovim's setup(); `model` is the one that answers."""
    values = msgspec.to_builtins(settings) | {"model": model}
    lines = (
        f"* {_shown_name(name)}: {msgspec.json.encode(value).decode()}"
        for name, value in values.items()
    )
    return "\n".join(lines) + "\n"


def _shown_name(name: str) -> str:
    """The option's name in setup()."""
    return name.replace("_", ".", 1) if name.startswith("sandbox_") else name


def config_dir(environment: Mapping[str, str] = os.environ) -> str:
    """The directory of the person's own files."""
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # as the XDG specification says
        base = Path.home() / ".config"
    return str(base / "sanderling")
