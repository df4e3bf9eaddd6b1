"""
Assembly of tool calls from a stream.

By the format, each delta has the index of its call, and a call's first delta has its id and name. In practice any of these may be
missing, empty or repeated, all calls may have the index 0, and the arguments may come in one piece, as an object, or not at all. So
deltas are matched by what is present. If two calls cannot be distinguished, the merged arguments are not JSON, and the model gets an
error.
"""

from typing import Any

import msgspec

from sanderling.protocol.messages import ToolUse
from sanderling.providers import BlockDone
from sanderling.providers.http.bodies import field, tool_input


class _PendingCall(msgspec.Struct):
    index: int | None
    id: str = ""
    name: str = ""
    pieces: list[str] = []
    extra: dict[str, Any] = {}

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def is_whole(self) -> bool:
        """True if the arguments are an object, to which nothing can be added."""
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        # Usually they are not. Decoding all of them for each piece would take quadratic time.
        if not last.rstrip().endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode(self.arguments), dict)
        except (msgspec.DecodeError, RecursionError):
            return False


class Calls:
    """The calls of one reply. `echo` names the fields that are sent back with them."""

    def __init__(self, echo: tuple[str, ...] = ()) -> None:
        self._echo = echo
        self._calls: list[_PendingCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, delta: object) -> None:
        function = field(delta, "function")
        given_index = field(delta, "index")
        index = given_index if type(given_index) is int else None
        use_id, name = _text(field(delta, "id")), _text(field(function, "name"))
        call = self._find(index, use_id, name)
        if call is None:
            call = _PendingCall(index)
            self._calls.append(call)
        call.id, call.name = call.id or use_id, call.name or name
        arguments = field(function, "arguments")
        if isinstance(arguments, str):
            call.pieces.append(arguments)
        elif arguments is not None:  # an object instead of text
            call.pieces.append(msgspec.json.encode(arguments).decode())
        echoed = {key: value for key in self._echo if (value := field(delta, key)) is not None}
        call.extra |= echoed

    def _find(self, index: int | None, use_id: str, name: str) -> _PendingCall | None:
        """Return the call that a delta continues; None if it starts a new one."""
        last = self._calls[-1] if self._calls else None
        at_index = next((call for call in reversed(self._calls) if call.index == index), None)
        if use_id:
            known = [call for call in self._calls if call.id == use_id]
            same = [call for call in known if index is None or call.index in (index, None)]
            if same:
                return same[-1]
            nameless = at_index or (last if index is None else None)
            # A call whose id comes late.
            return nameless if nameless and not nameless.id and not nameless.is_whole else None
        call = last if index is None else at_index
        if call and name and (call.is_whole or (call.name not in ("", name))):
            return None
        return call

    def done(self) -> list[BlockDone]:
        return [_block(call) for call in self._calls]


def _block(call: _PendingCall) -> BlockDone:
    arguments = call.arguments.strip()
    use_input, problem = tool_input("" if arguments == "null" else arguments)
    extra = {"call": call.extra} if call.extra else {}
    return BlockDone(ToolUse(call.id, call.name, use_input, extra), problem)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
