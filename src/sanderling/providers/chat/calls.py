"""
The calls of tools in a stream, put together from what servers send of them.

By the format a delta has the index of its call, and the first one of a call its id and name. In fact any of these may be missing,
empty or there again, all calls may have the index 0, and the arguments may come in one piece, as an object, or not at all. So
what belongs together is found out by what is there; where two calls cannot be told apart, what was merged is no JSON, and the model
is told.
"""

from typing import Any

import msgspec

from sanderling.protocol.messages import ToolUse
from sanderling.providers import BlockDone
from sanderling.providers.http.bodies import field, tool_input


class _Call(msgspec.Struct):
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
        """The arguments are an object to which nothing can be added."""
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        # Most of the time it is not; to decode all of it each time takes time by its square.
        if not last.rstrip().endswith("}"):
            return False
        try:
            return isinstance(msgspec.json.decode(self.arguments), dict)
        except (msgspec.DecodeError, RecursionError):
            return False


class Calls:
    """The calls of one reply. `echo` names the fields that go back with them."""

    def __init__(self, echo: tuple[str, ...] = ()) -> None:
        self._echo = echo
        self._calls: list[_Call] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, delta: object) -> None:
        """Take what the server says of a call."""
        function = field(delta, "function")
        told_index = field(delta, "index")
        index = told_index if type(told_index) is int else None
        use_id, name = _text(field(delta, "id")), _text(field(function, "name"))
        call = self._find(index, use_id, name)
        if call is None:
            call = _Call(index)
            self._calls.append(call)
        call.id, call.name = call.id or use_id, call.name or name
        arguments = field(function, "arguments")
        if isinstance(arguments, str):
            call.pieces.append(arguments)
        elif arguments is not None:  # not as text, but as what that would say
            call.pieces.append(msgspec.json.encode(arguments).decode())
        told = {key: value for key in self._echo if (value := field(delta, key)) is not None}
        call.extra |= told

    def _find(self, index: int | None, use_id: str, name: str) -> _Call | None:
        """The call that a delta goes on with; None: it begins one."""
        last = self._calls[-1] if self._calls else None
        at_index = next((call for call in reversed(self._calls) if call.index == index), None)
        if use_id:
            known = [call for call in self._calls if call.id == use_id]
            same = [call for call in known if index is None or call.index in (index, None)]
            if same:
                return same[-1]
            nameless = at_index or (last if index is None else None)
            # One whose id comes late.
            return nameless if nameless and not nameless.id and not nameless.is_whole else None
        call = last if index is None else at_index
        if call and name and (call.is_whole or (call.name not in ("", name))):
            return None
        return call

    def done(self) -> list[BlockDone]:
        """The calls as they are at the end, in the order in which they began."""
        return [_block(call) for call in self._calls]


def _block(call: _Call) -> BlockDone:
    arguments = call.arguments.strip()
    use_input, problem = tool_input("" if arguments == "null" else arguments)
    extra = {"call": call.extra} if call.extra else {}
    return BlockDone(ToolUse(call.id, call.name, use_input, extra), problem)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
