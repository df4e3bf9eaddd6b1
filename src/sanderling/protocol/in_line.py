"""The order in which the events of concurrent tool calls are shown: each call's in one piece."""

from collections.abc import Callable

from sanderling.protocol.events import Event, ToolEnded, ToolOutput, ToolStarted


class InLine:
    """
    Emits the events of tool calls, one call after the other, in the order in which they start.

    Events of a later call wait until the earlier ones have ended. What comes after the end of a call is not emitted.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._front = ""
        self._held: dict[str, list[Event]] = {}
        self._passed: set[str] = set()
        self._ended: set[str] = set()

    def show(self, event: ToolStarted | ToolOutput | ToolEnded) -> None:
        if event.id in self._ended:
            return
        if isinstance(event, ToolEnded):
            self._ended.add(event.id)
        if event.id in self._passed:
            self._emit(_without_detail(event))
        elif self._front not in ("", event.id):
            self._held.setdefault(event.id, []).append(event)
        else:
            self._front = event.id
            self._emit(event)
            if event.id in self._ended:
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
            if call_id not in self._ended:
                self._front = call_id


def _without_detail(event: ToolStarted | ToolOutput | ToolEnded) -> Event:
    """Drop the detail from the event of a call that is no longer last on the screen: nothing can be inserted there."""
    if isinstance(event, ToolEnded):
        return ToolEnded(
            event.id, event.summary, is_error=event.is_error, is_denied=event.is_denied
        )
    return event
