"""Settings of the user, a trusted project and the command line, in layers, checked by name and type."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from sanderling.errors import ConfigError
from sanderling.protocol.modes import ConfiningLevel, Effort, Mode, NetworkMode
from sanderling.text import name_set

DEFAULT_MODEL = "claude-sonnet-5-5"

KeyPath = tuple[str | int, ...]
"""The keys that lead to a value in a settings file; items of a list by their number, from 0."""

Table = dict[str, Any]
LEVELS: tuple[ConfiningLevel, ...] = get_args(ConfiningLevel)  # the strongest first

GROUPS = ("sandbox", "mcp", "skills", "plugins", "tools", "web_search", "delegate", "worktree")
"""The tables of a file whose keys are fields of `Settings`, with the table's name as prefix."""

NEOVIM_KEYS = name_set(
    "ai_comments answer approval chat commit_trace diagnostics extensions follow icons keys picker python review ui"
)
"""Options of Neovim's screen. It is drawn before any Python runs, so they cannot be in a settings file."""


PathText = Annotated[str, Meta(pattern=r"^[/~$]", title="a path that begins with / or ~/")]
HostText = Annotated[
    str,
    Meta(pattern=r"^[^\s/@]+$", title="a host, like pypi.org, *.example.com or example.com:8080"),
]
VariableText = Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*$", title="the name of a variable")]


RelativePathText = Annotated[
    str,
    Meta(
        pattern=r"^(?!/|~|\.\.?(/|$)|.*/\.\.?(/|$)).",
        title="a path in the project, like .env or node_modules, without ..",
    ),
]

CredentialHostText = Annotated[
    str,
    Meta(
        pattern=r"^[^\s/@*]+$",
        title="the name of one host, like github.com or git.example.com:8443",
    ),
]
ALL_PATHS, REMOTES = "/*", "remotes"
"""Among the paths of a credential: all, or those of the project's own remotes."""

CredentialPathText = Annotated[
    str,
    Meta(
        pattern=rf"^({REMOTES}|/[^\s?#%]*)$",
        title=f"{REMOTES}, or a path that begins with /, like /owner/repo/*",
    ),
]
CredentialUserText = Annotated[
    str, Meta(pattern=r"^[!-9;-~]+$", title="a user's name in ASCII without a colon")
]


class Credential(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that commands can use but not read. The proxy inserts it into requests to `hosts`."""

    hosts: Annotated[
        tuple[CredentialHostText, ...],
        Meta(description="the hosts that get the secret; they must be allowed, too"),
    ] = ()
    source: Annotated[
        Literal["keychain", "command", "env"], Meta(description="where the secret is read from")
    ] = "keychain"
    command: Annotated[
        tuple[str, ...],
        Meta(min_length=1, description="prints the secret, outside the sandbox; for 'command'"),
    ] = ("gh", "auth", "token")
    variable: Annotated[
        VariableText | None, Meta(description="the variable with the secret; for 'env'")
    ] = None
    user: Annotated[
        CredentialUserText, Meta(description="the user that git sends with the secret")
    ] = "x-access-token"
    methods: Annotated[
        tuple[Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], ...],
        Meta(description="the methods of requests that get the secret"),
    ] = ("GET", "HEAD", "POST")
    paths: Annotated[
        tuple[CredentialPathText, ...],
        Meta(
            description="the paths of requests that get the secret; * matches any text, and"
            " remotes means the paths of the project's own remotes"
        ),
    ] = (ALL_PATHS,)
    placeholders: Annotated[
        tuple[VariableText, ...],
        Meta(description="variables that hold a placeholder for the secret, like GH_TOKEN"),
    ] = ()


SearchProvider = Literal["off", "api", "searxng", "brave", "kagi", "gemini"]


class Layer(msgspec.Struct, frozen=True):
    """
    Settings from one source, in the tables and keys of a file.

    `text` is that file, for line numbers; `written` are the options before variables were expanded, if any were.
    """

    origin: str = ""  # as shown in messages
    options: Table = {}
    text: str = ""
    written: Table = {}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    The settings of a session. `state_dir` contains the sessions, `log_file` is the host's own log.

    The fields from `provider` on are keys of a settings file: `sandbox_hosts` is `hosts` in the table `sandbox`.
    """

    state_dir: str
    log_file: str = ""
    layers: tuple[Layer, ...] = ()  # the sources of these settings, the strongest last
    project_mcp_servers: dict[
        str, Table
    ] = {}  # of a trusted project, without names that the user has declared

    provider: Annotated[str, Meta(description="the provider of the model")] = "auto"
    model: Annotated[
        str,
        Meta(min_length=1, description="the model's name in the API, alone or as PROVIDER:MODEL"),
    ] = DEFAULT_MODEL
    max_tokens: Annotated[
        int,
        Meta(ge=0, description="per answer; 0: 32,000, or the model's own limit if lower"),
    ] = 0
    base_url: Annotated[
        str, Meta(description="of Claude's API; empty: $ANTHROPIC_BASE_URL or the default")
    ] = ""
    thinking: Annotated[bool, Meta(description="request thinking, and summaries of it")] = True
    small_model: Annotated[
        str,
        Meta(description="a cheaper model, as for `model`, that titles sessions; empty: by rule"),
    ] = ""
    effort: Annotated[
        Effort,
        Meta(description="how much the model thinks and writes, of the levels that it takes"),
    ] = "default"
    mode: Annotated[
        Mode, Meta(description="how far the agent may go in a new session: ask, auto or plan")
    ] = "ask"
    network: Annotated[
        NetworkMode,
        Meta(description="the network of commands when a session opens: off, proxy or on"),
    ] = "off"
    role: Annotated[str, Meta(description="the role of a new session; empty: none")] = ""
    prewarm: Annotated[
        bool,
        Meta(description="fill the API's cache when a chat opens, before the first prompt"),
    ] = False
    idle_timeout_s: Annotated[
        float, Meta(gt=0, description="seconds without a byte before a request fails")
    ] = 120.0
    max_calls: Annotated[
        int,
        Meta(ge=0, description="model calls per turn before you are asked; 0: no limit"),
    ] = 200
    budget_usd: Annotated[
        float, Meta(ge=0, description="dollars per session before you are asked; 0: no limit")
    ] = 0.0
    delegate_tokens: Annotated[
        int, Meta(gt=0, description="tokens that one child session may use")
    ] = 200_000
    delegate_tree_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="tokens of all child sessions of a session before you are asked; 0: no limit",
        ),
    ] = 2_000_000
    delegate_seconds: Annotated[
        int, Meta(gt=0, description="seconds that one child session may run")
    ] = 1800
    delegate_calls: Annotated[
        int, Meta(gt=0, description="model calls that one child session may make")
    ] = 100
    delegate_running: Annotated[
        int, Meta(gt=0, description="child sessions that run at the same time")
    ] = 4
    auto_compact: Annotated[
        bool, Meta(description="compact the conversation before the context window is full")
    ] = True
    auto_remember: Annotated[
        bool, Meta(description="propose lines for AGENTS.md after a compaction and at the end")
    ] = True
    script: Annotated[str, Meta(description="the file of the provider 'scripted'")] = ""
    providers: Annotated[dict[str, Table], Meta(description="providers of models, by name")] = {}
    prices: Annotated[
        dict[str, dict[str, float]],
        Meta(description="dollars per million tokens, by model; override the known prices"),
    ] = {}
    permissions: Annotated[
        tuple[Table, ...],
        Meta(description="rules that allow, ask or deny"),
    ] = ()
    tools_set: Annotated[
        Literal["auto", "all", "small"],
        Meta(
            description="the tools offered; 'small': only read, edit, write, bash and grep, described"
            " briefly; 'auto': these if the model's window has less than 16,384 tokens"
        ),
    ] = "auto"
    tools_disabled: Annotated[
        tuple[str, ...], Meta(description="tools that the model is not offered; * matches any text")
    ] = ()
    web_search_provider: Annotated[
        SearchProvider,
        Meta(description="what the model searches the web with: 'api' is the API's own tool"),
    ] = "off"
    web_search_url: Annotated[
        str,
        Meta(
            pattern=r"^(https?://[^\s/@]+.*)?$",
            title="an address that begins with http:// or https://, without a password",
            description="the search endpoint's address; SearXNG requires it",
        ),
    ] = ""
    web_search_api_key: Annotated[
        str, Meta(description="the variable with the search endpoint's key, as in $BRAVE_API_KEY")
    ] = ""
    mcp_servers: Annotated[
        dict[str, Table], Meta(description="tool servers (Model Context Protocol), by name")
    ] = {}
    agents: Annotated[
        dict[str, Table], Meta(description="external agents (Agent Client Protocol), by name")
    ] = {}
    hooks: Annotated[
        dict[str, tuple[Table, ...]],
        Meta(description="commands that run when something happens, by event"),
    ] = {}
    skills_disabled: Annotated[
        tuple[str, ...], Meta(description="names of skills that are not used")
    ] = ()
    plugins_disabled: Annotated[
        tuple[str, ...], Meta(description="names of plugins that are not used")
    ] = ()
    roles: Annotated[
        dict[str, Table],
        Meta(description="roles: instructions, tools, model, effort and mode together, by name"),
    ] = {}
    acp_terminals: Annotated[
        Literal["sandbox", "editor"],
        Meta(
            description="where commands of another editor's session run; 'editor' is outside any sandbox"
        ),
    ] = "sandbox"
    sandbox_min_level: Annotated[
        ConfiningLevel, Meta(description="below this level commands are refused")
    ] = "landlock"
    sandbox_hosts: Annotated[
        tuple[HostText, ...],
        Meta(description="hosts that commands may reach when the network is 'proxy'"),
    ] = ()
    sandbox_read: Annotated[
        tuple[PathText, ...],
        Meta(description="paths outside the project that commands may read"),
    ] = ()
    sandbox_write: Annotated[
        tuple[PathText, ...],
        Meta(description="paths outside the project that commands may change"),
    ] = ()
    sandbox_env: Annotated[
        tuple[VariableText, ...],
        Meta(description="names of environment variables that commands see"),
    ] = ()
    sandbox_credentials: Annotated[
        dict[str, Credential],
        Meta(description="secrets that commands can use but not read, by name"),
    ] = {}

    worktree_extras: Annotated[
        tuple[RelativePathText, ...],
        Meta(
            description="files of the project, ignored by git, that a new worktree gets a copy of"
        ),
    ] = ()
    worktree_links: Annotated[
        tuple[RelativePathText, ...],
        Meta(description="the same, but linked to the project's own, and read-only"),
    ] = ()

    @property
    def session_dir(self) -> Path:
        return Path(self.state_dir) / "sessions"

    @property
    def sandbox_dir(self) -> Path:
        return Path(self.state_dir) / "sandbox"


FIELDS = Settings.__struct_fields__[Settings.__struct_fields__.index("provider") :]
"""The fields that are keys of a settings file."""


def key_of(field: str) -> tuple[str, ...]:
    """Return the keys of a field in a settings file: `("sandbox", "hosts")` for `sandbox_hosts`."""
    for group in GROUPS:
        if field.startswith(f"{group}_"):
            return group, field.removeprefix(f"{group}_")
    return (field,)


def dotted(path: KeyPath) -> str:
    """Return `path` as text, with items counted from 1: `permissions[1].tool`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key + 1}]"
        else:
            is_bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
            text += f".{key}" if is_bare else f".{msgspec.json.encode(key).decode()}"
    return text.removeprefix(".")


def make_private(settings: Settings) -> None:
    """Make the directories that show which projects exist private, also in the layout of an earlier version."""
    for directory in (Path(settings.state_dir), settings.sandbox_dir):
        with suppress(OSError):  # a later write there reports the problem
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)


def config_dir(environment: Mapping[str, str] = os.environ) -> str:
    """
    Return the directory of the user's settings.

    Raises:
        ConfigError: there is no HOME.
    """
    base = Path(environment.get("XDG_CONFIG_HOME", ""))
    if not base.is_absolute():  # must be absolute by the XDG specification
        try:
            base = Path.home() / ".config"
        except RuntimeError as error:
            raise ConfigError("there is no home directory: set HOME") from error
    return str(base / "sanderling")


def state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the directory of sessions, rules and trust. It is Neovim's, so that all frontends share it."""
    try:
        state = environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise ConfigError("there is no home directory: set HOME") from error
    return Path(state, environment.get("NVIM_APPNAME") or "nvim", "sanderling")


def server_socket() -> str:
    return str(state_dir() / "serve.sock")
