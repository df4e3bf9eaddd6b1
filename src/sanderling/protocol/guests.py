"""Guests: agents of others that answer in a session, over the Agent Client Protocol, and what they let a person choose."""

from typing import Literal

import msgspec


class GuestChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that an option can have, by its title."""

    value: str
    title: str
    description: str = ""


class GuestOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    An option of a guest: its mode, its model, how much it thinks, or what else it offers; `value` is the one in force.

    One without `choices` is on or off: `true` or `false`.
    """

    id: str
    title: str
    value: str
    choices: tuple[GuestChoice, ...] = ()
    category: str = ""
    description: str = ""


class GuestOptionsChanged(msgspec.Struct, tag="guest_options_changed", frozen=True):
    """All options that the guest of a session offers, as they are now."""

    options: tuple[GuestOption, ...]


class SetGuestOption(
    msgspec.Struct, tag="set_guest_option", frozen=True, forbid_unknown_fields=True
):
    """Have an option of the session's guest be `value`; `id` is the option's id, or its title."""

    id: str
    value: str


class AnswerOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer that a guest offers to its question, in its own words; `choice` is the key that gives it, where it is the first such."""

    id: str
    title: str
    choice: Literal["once", "always", "deny"]


class ListAgents(msgspec.Struct, tag="list_agents", frozen=True, forbid_unknown_fields=True):
    """The names of the agents that can answer in a session in our own's place, as `agents`."""
