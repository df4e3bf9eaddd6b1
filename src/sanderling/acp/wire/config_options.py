"""Session settings that a client shows: config options, and legacy modes."""

from typing import ClassVar

from sanderling.acp.wire.base import Wire


class ConfigChoice(Wire, frozen=True):
    """A value of an option, or a group of values, which has `group` and `options`."""

    exact: ClassVar = ("value", "name", "group")
    value: str | None = None
    name: str = ""
    description: str | None = None
    group: str | None = None
    options: "list[ConfigChoice] | None" = None


class ConfigOption(Wire, frozen=True):
    """
    An option; its `type` is select, with `options`, or boolean.

    `category` is mode, model, model_config, thought_level, or unknown.
    """

    exact: ClassVar = ("options",)
    id: str
    name: str
    type: str
    current_value: str | bool
    description: str | None = None
    category: str | None = None
    options: list[ConfigChoice] | None = None


class SessionMode(Wire, frozen=True):
    id: str
    name: str
    description: str | None = None


class SessionModes(Wire, frozen=True):
    current_mode_id: str
    available_modes: list[SessionMode]
