"""
Sanderling's extensions to the protocol: the key `sanderling` in `_meta`, and methods that begin with `_sanderling/`.

Peers that do not know them work without; nothing in the protocol itself depends on them.
"""

from typing import Any, TypeVar

import msgspec

from sanderling.acp.wire.base import Wire
from sanderling.acp.wire.errors import invalid

OURS = "sanderling"
PROMPT_ACCEPTED = "_sanderling/prompt_accepted"

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
        tools: if not empty, it runs tools (`acp/client_tools.py`), and this is its name on all of its connections.
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
    Return the extension in `meta` as a `kind`; an empty one if there is none.

    Raises:
        RpcError: it is invalid.
    """
    try:
        return msgspec.convert((meta or {}).get(OURS) or {}, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid `_meta.{OURS}`: {error}") from error


def meta_of(*said: msgspec.Struct, **more: Any) -> dict[str, Any]:
    """Return the extensions in `said`, and `more`, as `_meta`."""
    found: dict[str, Any] = {}
    for each in said:
        found |= msgspec.to_builtins(each)
    return {OURS: found | more}
