"""The effort of the model's answers: chosen for the session, for the next turn, or by a prompt's command."""

from collections.abc import Callable

import msgspec

from sanderling.errors import ConfigError
from sanderling.protocol.events import EffortChanged, Notice
from sanderling.protocol.modes import Effort
from sanderling.providers import Provider, not_taken


class ChosenEffort:
    """The effort of a session; `default` is that of its settings. A model that does not take it gets none."""

    def __init__(
        self, provider: Provider, default: Effort, emit: Callable[[EffortChanged | Notice], None]
    ) -> None:
        self._provider = provider
        self._emit = emit
        self._of_session: Effort = default
        self._of_next: Effort | None = None
        self._of_turn: Effort | None = None
        self._reported: set[tuple[str, Effort]] = set()

    def state(self) -> Effort:
        return self._of_session

    def restore(self, state: object) -> None:
        self._of_session = msgspec.convert(state, Effort)

    def shown(self) -> EffortChanged:
        return EffortChanged(self._of_session, self._of_next)

    def choose(self, effort: Effort, *, is_once: bool = False) -> None:
        """
        Use `effort` from the next request on, or in the next turn only.

        Raises:
            ConfigError: the model does not take it.
        """
        if effort != "default" and effort not in self._provider.efforts:
            raise ConfigError(not_taken(self._provider, effort))
        if is_once:
            self._of_next = effort
        else:
            self._of_session, self._of_next, self._of_turn = effort, None, None
        self._emit(self.shown())

    def begin_turn(self, of_prompt: Effort | None) -> None:
        """Use the effort of the turn's prompt, or the effort chosen for this turn."""
        self._of_turn = self._of_next or of_prompt
        if self._of_next:
            self._of_next = None
            self._emit(self.shown())

    def of_request(self) -> Effort:
        """Return the effort to request. If the model does not take it, warn once and return "default"."""
        effort = self._of_turn or self._of_session
        if effort == "default" or effort in self._provider.efforts:
            return effort
        if (key := (self._provider.model, effort)) not in self._reported:
            self._reported.add(key)
            self._emit(Notice("warning", f"{not_taken(self._provider, effort)} None is requested."))
        return "default"
