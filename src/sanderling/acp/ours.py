"""
Additions of ours to the protocol: what stands under `sanderling` in `_meta`, and methods that begin with `_sanderling/`.

Whoever does not know them goes without; nothing of the protocol itself depends on them.
"""

from typing import Any, TypeVar

import msgspec

from sanderling.acp.base import Wire
from sanderling.acp.errors import invalid

OURS = "sanderling"
PROMPT_ACCEPTED = "_sanderling/prompt_accepted"

T = TypeVar("T")


class OfAgent(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    An agent of ours, in `agentCapabilities`.

    `resume`: 1 where a session goes on without a client, and tells it later what it has missed. `tools`: whose files and commands
    they are, the server's or the client's. `sandbox` is its level in words, empty while that is not known. `cwd` is the directory in which
    it was started.
    """

    version: str
    resume: int = 0
    tools: str = "server"
    sandbox: str = ""
    cwd: str = ""


class OfModels(msgspec.Struct, frozen=True):
    """The models that a client can ask for an agent: the `model` of now, its `provider`, and the tables of the person's own `providers`."""

    provider: str
    model: str
    providers: dict[str, dict[str, Any]] = {}


class OfClient(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A client of ours, in `clientCapabilities`. `resume`: it is told all that is numbered, its own prompts as well.

    `models`: it makes the requests to their APIs. `tools`: it runs tools (`acp/hands.py`), and that is its name, the same on each of its
    connections.
    """

    resume: bool = False
    models: OfModels | None = None
    tools: str = ""


class Position(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A position in what a session tells, with each update and in the answers to session/new, load and resume.

    `life` is that of the session, from when the server opens it until it ends there; `seq` counts its updates from 1. An update that
    was before that life, or is told in short, has no `seq`. In an answer it is the last one that was told, and all that is later
    comes. `running` is the prompt that is being answered.
    """

    life: str
    seq: int = 0
    is_continued: bool | None = None
    running: str = ""


class After(msgspec.Struct, frozen=True, omit_defaults=True):
    """The place after which a client wants to be told, in session/resume."""

    life: str = ""
    after: int = -1


class OfPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A prompt of a client of ours, in session/prompt.

    It runs once, however often it is sent with the same `prompt_id`: each time that answers with the end of the one turn. One that
    `was_accepted` is never begun anew: if nobody knows what has become of it, that is "cancelled". `notes` are for the model, from a client
    that runs the tools: where it is, and by what instructions.
    """

    prompt_id: str = ""
    was_accepted: bool = False
    notes: tuple[str, ...] = ()


class TurnOver(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a turn, with the session_info_update that each ends with."""

    prompt_id: str
    stop_reason: str


class PromptAccepted(Wire, frozen=True):
    """The parameters of `_sanderling/prompt_accepted`: the prompt stands in the session's log, and is not lost any more."""

    session_id: str
    prompt_id: str


def ours_in(meta: dict[str, Any] | None, kind: type[T]) -> T:
    """
    Read what stands for us in `meta`, as a `kind`; an empty one where nothing does.

    Raises:
        RpcError: it is something else.
    """
    try:
        return msgspec.convert((meta or {}).get(OURS) or {}, kind)
    except msgspec.ValidationError as error:
        raise invalid(f"invalid `_meta.{OURS}`: {error}") from error


def meta_of(*said: msgspec.Struct, **more: Any) -> dict[str, Any]:
    """Return what is `said`, and `more`, as `_meta`."""
    found: dict[str, Any] = {}
    for each in said:
        found |= msgspec.to_builtins(each)
    return {OURS: found | more}
