"""The order in which the events of concurrent tool calls are shown: each call's in one piece."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet

from sanderling.protocol.events import Event, ToolEnded, ToolOutput, ToolStarted


class InLine:
    """
    Emits the events of tool calls, one call after the other, in the order in which they start.

    Events of a later call wait until the earlier ones have ended. Events after the end of a call are dropped.

    Calls whose ids are in `aside` have no output: once they are shown, later calls do not wait for them.
    """

    def __init__(
        self, emit: Callable[[Event], None], aside: AbstractSet[str] = frozenset()
    ) -> None:
        self._emit = emit
        self._aside = aside
        self._front = ""
        self._held: dict[str, list[Event]] = {}
        self._passed: set[str] = set()
        self._ended: set[str] = set()
        self._shown_aside: set[str] = set()

    def show(self, event: ToolStarted | ToolOutput | ToolEnded) -> None:
        if event.id in self._ended:
            return
        if isinstance(event, ToolEnded):
            self._ended.add(event.id)
        if event.id in self._passed:
            self._emit(_without_detail(event))
        elif event.id in self._shown_aside:
            self._emit(event)
        elif self._front not in ("", event.id):
            self._held.setdefault(event.id, []).append(event)
        else:
            self._front = event.id
            self._emit(event)
            if self._is_done(event.id):
                self._go_on()

    def pass_all(self) -> None:
        """Stop waiting for running calls and emit all held events, because text is about to be shown."""
        while self._front:
            self._passed.add(self._front)
            self._go_on()

    def _go_on(self) -> None:
        self._front = ""
        while self._held and not self._front:
            call_id = next(iter(self._held))
            for event in self._held.pop(call_id):
                self._emit(event)
            if not self._is_done(call_id):
                self._front = call_id

    def _is_done(self, call_id: str) -> bool:
        """Return whether later calls can be shown. The call was shown."""
        if call_id in self._aside:
            self._shown_aside.add(call_id)
        return call_id in self._ended or call_id in self._aside


def _without_detail(event: ToolStarted | ToolOutput | ToolEnded) -> Event:
    """Drop the detail from the event of a call that is no longer last on the screen: nothing can be inserted there."""
    if isinstance(event, ToolEnded):
        return ToolEnded(
            event.id, event.summary, is_error=event.is_error, is_denied=event.is_denied
        )
    return event
