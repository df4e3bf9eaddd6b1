"""
Sanderling's extensions to the protocol: the key `sanderling` in `_meta`, and methods that begin with `_sanderling/`.

Peers that do not know them work without; nothing in the protocol itself depends on them.
"""

from typing import Any, ClassVar, TypeVar

import msgspec

from sanderling.acp.wire.base import Wire
from sanderling.acp.wire.errors import invalid
from sanderling.protocol.requests import RuleKind

OURS = "sanderling"
PROMPT_ACCEPTED = "_sanderling/prompt_accepted"
RUN_TOOL, TOOL_OUTPUT = "_sanderling/tool", "_sanderling/tool_output"
LIST_RULES, CHANGE_RULE = "_sanderling/list_rules", "_sanderling/change_rule"
HTTP, HTTP_DATA = "_sanderling/http", "_sanderling/http_data"
HTTP_TAKEN, HTTP_END = "_sanderling/http_taken", "_sanderling/http_end"
MAX_UNTAKEN_BYTES = 1 << 20

T = TypeVar("T")


class OfAgent(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A Sanderling agent, in `agentCapabilities`.

    Attributes:
        resume: 1 if a session continues without a client and sends missed updates later.
        tools: who runs tools: "server" or "client".
        sandbox: the sandbox's level in words; empty while it is unknown.
        cwd: the directory in which the agent was started.
    """

    version: str
    resume: int = 0
    tools: str = "server"
    sandbox: str = ""
    cwd: str = ""


class OfModels(msgspec.Struct, frozen=True):
    """The models that an agent can call through its client: the current `model`, its `provider`, and the user's `providers` tables."""

    provider: str
    model: str
    providers: dict[str, dict[str, Any]] = {}


class OfClient(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A Sanderling client, in `clientCapabilities`.

    Attributes:
        resume: it is sent every numbered update, including its own prompts.
        models: it sends requests to their APIs for the agent.
        tools: if not empty, it runs tools (`ToolRequest`), and this is its name on all of its connections.
    """

    resume: bool = False
    models: OfModels | None = None
    tools: str = ""


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A position in a session's updates, sent with each update and in the responses to session/new, load and resume.

    `life` identifies the time from when the server opens the session until it closes it. `seq` counts the updates of a life from 1.
    Updates from before that life and condensed updates have no `seq`. In a response, it is the last update that was sent; all later ones
    follow. `running` is the ID of the running prompt.
    """

    life: str
    seq: int = 0
    is_continued: bool | None = None
    running: str = ""


class After(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position from which a client continues, in session/resume."""

    life: str = ""
    after: int = -1


class OfPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A prompt of a Sanderling client, in session/prompt.

    A prompt runs once, however often it is sent with the same `prompt_id`; each request returns when its turn ends. If it `was_accepted`
    and its outcome is unknown, it is not started again and returns "cancelled". `notes` are for the model, from a client that runs the
    tools: its location and instructions.
    """

    prompt_id: str = ""
    was_accepted: bool = False
    notes: tuple[str, ...] = ()


class TurnOver(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a turn, in the session_info_update that ends each turn."""

    prompt_id: str
    stop_reason: str


class PromptAccepted(Wire, frozen=True):
    """Parameters of `_sanderling/prompt_accepted`: the prompt is in the session's log and cannot be lost any more."""

    session_id: str
    prompt_id: str


def ours_in(meta: dict[str, Any] | None, kind: type[T]) -> T:
    """
    Return the extension in `meta` as a `kind`; an empty one without one.

    Raises:
        RpcError: it is invalid.
    """
    try:
        return msgspec.convert((meta or {}).get(OURS) or {}, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid `_meta.{OURS}`: {error}") from error


def meta_of(*said: msgspec.Struct, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in said:
        found |= msgspec.to_builtins(each)
    return {OURS: found | more}


# --- the session's permission rules, for a client that shows and changes them -------------------------------------------------------------


class RuleLine(Wire, frozen=True):
    """A rule in effect; see `protocol.requests.ShownRule`."""

    rule: str
    origin: str
    last_use: str = ""
    kind: RuleKind = "settings"


class RulesAnswer(Wire, frozen=True):
    """The rules of a session, and why stored ones cannot be used."""

    rules: list[RuleLine] = msgspec.field(default_factory=list[RuleLine])
    problem: str = ""


class RuleChange(Wire, frozen=True):
    """Delete a rule of the session or a stored one, or replace it by `new`."""

    exact: ClassVar = ("new",)
    session_id: str
    rule: str
    new: str = ""


# --- tools that the client runs: files, commands, sandbox, rules and permission questions are its own -----------------------------------


class ToolRequest(Wire, frozen=True):
    """
    A tool call for the client to judge and run. It runs once, however often it is sent with the same `id`.

    `tool_use_id` is the model's ID, which session/update also uses. `together` is the same for all calls of a message with several:
    denying one denies those that have not started.
    """

    session_id: str
    id: str
    name: str
    tool_use_id: str = ""
    together: str = ""
    input: dict[str, Any] = msgspec.field(default_factory=dict)


class ToolAnswer(Wire, frozen=True):
    """
    The result. `content` goes to the model, as text or as content blocks of its API; `notes` are further messages to the model.

    `summary`, `detail` and `filetype` are for the screen. `output_chars` is the length of the beginning of `content` that was already
    sent as output.
    """

    content: Any
    summary: str = ""
    detail: str = ""
    filetype: str = ""
    is_error: bool = False
    is_denied: bool = False
    notes: list[str] | None = None
    output_chars: int | None = None


class ToolOutput(Wire, frozen=True):
    """
    A piece of the output of the running call `id`. `start` is the number of characters before it.

    A client that was disconnected sends all output again, from 0, when it gets the call again.
    """

    session_id: str
    id: str
    text: str
    start: int | None = None


# --- requests to a model's API, for which the client has the key -------------------------------------------------------------------------


class HttpRequest(Wire, frozen=True):
    """
    A request to the API of a provider that the client has announced: a POST if there is a `body`, else a GET of `path`.

    `id` must be new. The API's address, headers and key are known to the client only.
    """

    exact: ClassVar = ("query", "body")
    id: str
    provider: str
    path: str = ""
    query: dict[str, str | int | float | bool] | None = None
    body: str = ""


class HttpHead(Wire, frozen=True):
    """The status and headers of a response. Its body follows as `HttpData`, which may arrive earlier."""

    status: int
    headers: dict[str, str] | None = None


class HttpData(Wire, frozen=True):
    """A piece of a response's body, as base64. The last one has `is_last`, and a `problem` if the body is incomplete."""

    exact: ClassVar = ("data", "is_last", "problem")
    id: str
    data: str = ""
    is_last: bool = False
    problem: dict[str, Any] | None = None


class HttpTaken(Wire, frozen=True):
    """The agent has consumed `count` more bytes. At most `MAX_UNTAKEN_BYTES` are sent ahead."""

    id: str
    count: int


class HttpEnd(Wire, frozen=True):
    """The agent no longer needs a response."""

    id: str
