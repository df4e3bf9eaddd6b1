"""Settings: what the person, a trusted project and the command line chose, layer upon layer, checked by name and type."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from sanderling.errors import ConfigError
from sanderling.protocol.modes import ConfiningLevel

DEFAULT_MODEL = "claude-sonnet-5-5"

KeyPath = tuple[str | int, ...]
"""The keys that lead to a value, as a file of settings has them; items of a list by their number, from 0."""

Table = dict[str, Any]
LEVELS: tuple[ConfiningLevel, ...] = get_args(ConfiningLevel)  # the strongest first

GROUPS = ("sandbox", "mcp", "tools")
"""The tables of a file whose keys are fields of `Settings` with the table's name before theirs."""

NEOVIM_KEYS = frozenset(
    (
        "answer",
        "approval",
        "chat",
        "diagnostics",
        "follow",
        "icons",
        "keys",
        "python",
        "review",
        "ui",
    )
)
"""The options of Neovim's screen: it is drawn before anything of Python runs, so they are no keys of a file."""


PathText = Annotated[str, Meta(pattern=r"^[/~$]", title="a path that begins with / or ~/")]
HostText = Annotated[
    str,
    Meta(pattern=r"^[^\s/@]+$", title="a host, like pypi.org, *.example.com or example.com:8080"),
]
VariableText = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*$", title="the name of a variable")]


class Layer(msgspec.Struct, frozen=True):
    """
    Settings from one place, in the tables and keys of a file.

    `text` is that file, to say on which line a key stands; `written` are the options before variables were put in, if any were.
    """

    origin: str = ""  # as a person is told of it
    options: Table = {}
    text: str = ""
    written: Table = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The options that a session runs with. `state_dir` holds the sessions, `log_file` the host's own log.

    Those from `provider` on are keys of a file of settings, `sandbox_hosts` as `hosts` in the table `sandbox`.
    """

    state_dir: str
    log_file: str = ""
    layers: tuple[Layer, ...] = ()  # from which these settings are, the strongest last
    project_mcp_servers: dict[str, Table] = {}  # of a trusted project: none of them is the person's

    provider: Annotated[str, Meta(description="what answers")] = "auto"
    model: Annotated[
        str,
        Meta(min_length=1, description="the name that the API knows, alone or as PROVIDER:MODEL"),
    ] = DEFAULT_MODEL
    max_tokens: Annotated[
        int,
        Meta(
            ge=0, description="of an answer; 0: 32,000, or the model's own limit if that is lower"
        ),
    ] = 0
    base_url: Annotated[
        str, Meta(description="empty: $ANTHROPIC_BASE_URL, else the API itself")
    ] = ""
    thinking: Annotated[bool, Meta(description="ask for it, and for summaries of it")] = True
    idle_timeout_s: Annotated[
        float, Meta(gt=0, description="seconds without a byte before a request fails")
    ] = 120.0
    max_calls: Annotated[
        int,
        Meta(ge=0, description="of the model in one turn, before you are asked; 0: no limit"),
    ] = 200
    budget_usd: Annotated[
        float, Meta(ge=0, description="dollars of one session, before you are asked; 0: no limit")
    ] = 0.0
    auto_compact: Annotated[
        bool, Meta(description="shorten what the model is shown before its window is full")
    ] = True
    script: Annotated[str, Meta(description="the scripted provider's file")] = ""
    providers: Annotated[dict[str, Table], Meta(description="where models are, by name")] = {}
    prices: Annotated[
        dict[str, dict[str, float]],
        Meta(description="by model, instead of those that are known"),
    ] = {}
    permissions: Annotated[
        tuple[Table, ...],
        Meta(description="rules: what may be done without asking, what asks, what is denied"),
    ] = ()
    tools_disabled: Annotated[
        tuple[str, ...], Meta(description="tools that the model is not offered; * stands for any")
    ] = ()
    mcp_servers: Annotated[
        dict[str, Table], Meta(description="servers of tools (Model Context Protocol), by name")
    ] = {}
    agents: Annotated[
        dict[str, Table], Meta(description="agents of others (Agent Client Protocol), by name")
    ] = {}
    acp_terminals: Annotated[
        Literal["sandbox", "editor"],
        Meta(
            description="where commands of another editor's session run: 'editor' is outside of any sandbox"
        ),
    ] = "sandbox"
    sandbox_min_level: Annotated[
        ConfiningLevel, Meta(description="below it commands are refused")
    ] = "landlock"
    sandbox_hosts: Annotated[
        tuple[HostText, ...], Meta(description="that commands reach when the network is 'proxy'")
    ] = ()
    sandbox_read: Annotated[
        tuple[PathText, ...],
        Meta(description="paths outside of the project that commands may read"),
    ] = ()
    sandbox_write: Annotated[
        tuple[PathText, ...],
        Meta(description="paths outside of the project that commands may change"),
    ] = ()
    sandbox_env: Annotated[
        tuple[VariableText, ...],
        Meta(description="names of environment variables that commands see"),
    ] = ()

    @property
    def session_dir(self) -> Path:
        return Path(self.state_dir) / "sessions"

    @property
    def sandbox_dir(self) -> Path:
        return Path(self.state_dir) / "sandbox"


FIELDS = Settings.__struct_fields__[Settings.__struct_fields__.index("provider") :]
"""The fields that are keys of a file."""


def key_of(field: str) -> tuple[str, ...]:
    """The keys that lead to a field of `Settings` in a file: `("sandbox", "hosts")` to `sandbox_hosts`."""
    group, _, name = field.partition("_")
    return (group, name) if group in GROUPS else (field,)


def dotted(path: KeyPath) -> str:
    """`path` as a person reads it: `permissions[1].tool`, the first item being 1."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key + 1}]"
        else:
            is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
            text += f".{key}" if is_bare else f".{msgspec.json.encode(key).decode()}"
    return text.removeprefix(".")


def make_private(settings: Settings) -> None:
    """Let nobody else see which projects there are: the directories that hold all others, also those of an earlier version."""
    for directory in (Path(settings.state_dir), settings.sandbox_dir):
        with suppress(OSError):  # whoever writes there later says what is wrong
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)


def config_dir(environment: Mapping[str, str] = os.environ) -> str:
    """
    The directory of the person's own files.

    Raises:
        ConfigError: there is no HOME.
    """
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # as the XDG specification says
        try:
            base = Path.home() / ".config"
        except RuntimeError as error:
            raise ConfigError("there is no home directory: set HOME") from error
    return str(base / "sanderling")


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The directory of sessions, rules and trust: Neovim's, so that each face has the same ones."""
    try:
        state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError("there is no home directory: set HOME") from error
    return Path(state, environment.get("NVIM_APPNAME") or "nvim", "sanderling")


def server_socket() -> str:
    """Return the path of the socket on which `sanderling serve` listens unless `--listen` names another place."""
    return str(state_dir() / "serve.sock")
