"""Messages that set up a connection: versions, capabilities, authentication."""

from typing import ClassVar

from sanderling.acp.wire.base import PROTOCOL_VERSION, Empty, Implementation, Wire
from sanderling.acp.wire.errors import INVALID_PARAMS, RpcError

SUPPORTED = (PROTOCOL_VERSION,)


class FileCapabilities(Wire, frozen=True):
    read_text_file: bool = False
    write_text_file: bool = False


class BooleanOptions(Wire, frozen=True):
    """The option types that the client supports besides select: boolean ones if `boolean` is present."""

    boolean: Empty | None = None


class ClientSessionCapabilities(Wire, frozen=True):
    config_options: BooleanOptions | None = None
    notices: Empty | None = None
    compaction: Empty | None = None


class ElicitationCapabilities(Wire, frozen=True):
    form: Empty | None = None
    url: Empty | None = None


class AuthCapabilities(Wire, frozen=True):
    terminal: bool = False


class ClientCapabilities(Wire, frozen=True):
    fs: FileCapabilities | None = None
    terminal: bool = False
    session: ClientSessionCapabilities | None = None
    elicitation: ElicitationCapabilities | None = None
    auth: AuthCapabilities | None = None


class InitializeRequest(Wire, frozen=True):
    protocol_version: int
    client_capabilities: ClientCapabilities | None = None
    client_info: Implementation | None = None


class PromptCapabilities(Wire, frozen=True):
    image: bool = False
    audio: bool = False
    embedded_context: bool = False


class McpCapabilities(Wire, frozen=True):
    http: bool = False
    sse: bool = False


class SessionCapabilities(Wire, frozen=True):
    list: Empty | None = None
    resume: Empty | None = None
    close: Empty | None = None
    delete: Empty | None = None
    additional_directories: Empty | None = None


class LogoutCapabilities(Wire, frozen=True):
    logout: Empty | None = None


class AgentCapabilities(Wire, frozen=True):
    load_session: bool = False
    prompt_capabilities: PromptCapabilities | None = None
    mcp_capabilities: McpCapabilities | None = None
    session_capabilities: SessionCapabilities | None = None
    auth: LogoutCapabilities | None = None


class AuthVariable(Wire, frozen=True):
    """An environment variable with a key."""

    name: str
    label: str | None = None


class AuthMethod(Wire, frozen=True):
    """
    A login method: handled by the agent if it has no `type`.

    terminal: the client runs the agent's command in a terminal, with `args` and `env` added. env_var: the client starts the agent with `vars`
    in its environment. The latter is not in the stable protocol, for which it is a method without a type.
    """

    exact: ClassVar = ("type", "args", "env", "vars")
    id: str
    name: str
    description: str | None = None
    type: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    vars: list[AuthVariable] | None = None


class InitializeResponse(Wire, frozen=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities | None = None
    agent_info: Implementation | None = None
    auth_methods: list[AuthMethod] | None = None


class AuthenticateRequest(Wire, frozen=True):
    method_id: str


def offered_by_agent(wanted: int) -> int:
    """Return the version with which an agent answers: the client's if supported, else the latest."""
    return wanted if wanted in SUPPORTED else max(SUPPORTED)


def check_agents(version: int) -> None:
    """
    Check that the client supports the version of the agent.

    Raises:
        RpcError: it does not.
    """
    if version not in SUPPORTED:
        ours = " or ".join(map(str, SUPPORTED))
        raise RpcError(
            INVALID_PARAMS,
            f"the agent speaks version {version} of the Agent Client Protocol, Sanderling speaks version {ours}: update the older one",
        )
