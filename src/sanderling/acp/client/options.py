"""Options of an external agent: the user's choices, and the requests that set them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sanderling.acp.wire.sessions import (
    ConfigChoice,
    ConfigOption,
    SessionModes,
    SetConfigOptionRequest,
    SetModeRequest,
)
from sanderling.errors import SanderlingError
from sanderling.protocol.events import GuestChoice, GuestOption
from sanderling.text import did_you_mean, visible_prose

MAX_OPTIONS, MAX_CHOICES = 100, 500
MAX_WORDS_CHARS = 300
MODE = "mode"
KNOWN_TYPES = ("select", "boolean")
WORDS = {"on": "true", "yes": "true", "1": "true", "off": "false", "no": "false", "0": "false"}


class OptionError(SanderlingError):
    """Unknown option or invalid value."""


class OptionRequest(NamedTuple):
    """A request that sets an option."""

    method: str
    params: SetModeRequest | SetConfigOptionRequest


class AgentOptions:
    """The options of a session."""

    def __init__(self) -> None:
        self._options: Sequence[ConfigOption] = ()
        self._modes: SessionModes | None = None

    def take(
        self, options: Sequence[ConfigOption] | None, modes: SessionModes | None = None
    ) -> None:
        """Store the agent's options and modes, except options of unknown types. None keeps the current ones."""
        if options is not None:
            self._options = [each for each in options if each.type in KNOWN_TYPES]
        self._modes = modes or self._modes

    def take_mode(self, mode_id: str) -> None:
        if self._modes:
            self._modes = SessionModes(
                current_mode_id=mode_id, available_modes=self._modes.available_modes
            )

    def shown(self) -> tuple[GuestOption, ...]:
        """Return all options. Legacy modes are included only if no option covers them."""
        options = tuple(map(_shown, self._options[:MAX_OPTIONS]))
        if self._modes and not any(MODE in (each.category, each.id) for each in options):
            return (_shown_modes(self._modes), *options)
        return options

    def of_category(self, category: str) -> GuestOption | None:
        return next((each for each in self.shown() if each.category == category), None)

    def wish(self, session_id: str, name: str, value: str) -> OptionRequest:
        """
        Return the request that sets the option `name` (an ID, title or category) to `value` (an ID or title).

        Raises:
            OptionError: the option is unknown, or the value is invalid.
        """
        option = self._find(name)
        chosen = _chosen(option, value)
        if option.id == MODE and not any(each.id == MODE for each in self._options):
            return OptionRequest(
                "session/set_mode", SetModeRequest(session_id=session_id, mode_id=chosen)
            )
        is_switch = not option.choices
        request = SetConfigOptionRequest(
            session_id=session_id,
            config_id=option.id,
            value=chosen == "true" if is_switch else chosen,
            type="boolean" if is_switch else None,
        )
        return OptionRequest("session/set_config_option", request)

    def _find(self, name: str) -> GuestOption:
        options = self.shown()
        for of in ("id", "title", "category"):
            for each in options:
                if str(getattr(each, of)).casefold() == name.casefold():
                    return each
        known = [each.id for each in options]
        if not known:
            raise OptionError("this agent has no options")
        hint = did_you_mean(name, known)
        raise OptionError(f"there is no option '{name}'{hint}; options: {', '.join(known)}")


def _chosen(option: GuestOption, value: str) -> str:
    if not option.choices:
        chosen = WORDS.get(value.casefold(), value.casefold())
        if chosen in ("true", "false"):
            return chosen
        raise OptionError(f"'{option.id}' must be on or off, not '{value}'")
    for of in ("value", "title"):
        for each in option.choices:
            if str(getattr(each, of)).casefold() == value.casefold():
                return each.value
    known = [each.value for each in option.choices]
    hint = did_you_mean(value, known)
    raise OptionError(f"'{option.id}' has no value '{value}'{hint}; values: {', '.join(known)}")


def _shown(option: ConfigOption) -> GuestOption:
    current = option.current_value
    value = str(current).lower() if isinstance(current, bool) else current
    choices = tuple(_choices(option.options or ()))[:MAX_CHOICES]
    return GuestOption(
        option.id,
        _words(option.name or option.id),
        value,
        () if option.type == "boolean" else choices,
        option.category or "",
        _words(option.description or ""),
    )


def _words(told: str) -> str:
    return " ".join(visible_prose(told[:MAX_WORDS_CHARS]).split())


def _choices(told: Sequence[ConfigChoice]) -> Iterator[GuestChoice]:
    """Return all values, with groups flattened."""
    for each in told:
        if each.options:
            yield from _choices(each.options)
        elif each.value is not None:
            words = (_words(each.name or each.value), _words(each.description or ""))
            yield GuestChoice(each.value, *words)


def _shown_modes(modes: SessionModes) -> GuestOption:
    choices = tuple(
        GuestChoice(each.id, _words(each.name or each.id), _words(each.description or ""))
        for each in modes.available_modes[:MAX_CHOICES]
    )
    return GuestOption(MODE, "Mode", modes.current_mode_id, choices, MODE)
