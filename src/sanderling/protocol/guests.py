"""External agents that answer in a session over the Agent Client Protocol, and their options."""

from typing import Literal

import msgspec


class GuestChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that an option can have."""

    value: str
    title: str
    description: str = ""


class GuestOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    An option of an external agent, such as its mode, model or thinking effort; `value` is the current one.

    An option without `choices` is on or off: `true` or `false`.
    """

    id: str
    title: str
    value: str
    choices: tuple[GuestChoice, ...] = ()
    category: str = ""
    description: str = ""


class GuestOptionsChanged(msgspec.Struct, tag="guest_options_changed", frozen=True):
    """All current options of the session's external agent."""

    options: tuple[GuestOption, ...]


class SetGuestOption(
    msgspec.Struct, tag="set_guest_option", frozen=True, forbid_unknown_fields=True
):
    """Set an option of the session's external agent to `value`; `id` is the option's id or title."""

    id: str
    value: str


class AnswerOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer that an external agent offers to its question. `choice` is its key; the first answer with that `choice` gets it."""

    id: str
    title: str
    choice: Literal["once", "always", "deny"]


class ListAgents(msgspec.Struct, tag="list_agents", frozen=True, forbid_unknown_fields=True):
    """List the agents that can answer in a session instead of Sanderling. The answer's `agents` are their names."""
