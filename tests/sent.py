"""A request in the bytes in which it came, whatever its format: what a cache would find again of the one before it."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

SHOWN_BYTES = 60
MARK = re.compile(rb',"(?:cache_control|prompt_cache_breakpoint)":\{[^{}]*\}')
END = re.compile(rb'("|\])\}$')
PREFIX = ("tools", "system", "instructions", "thinking")


class Sent:
    def __init__(self, body: bytes) -> None:
        self._fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        self.model: str = msgspec.json.decode(self._fields["model"])

    def parts(self) -> Iterator[tuple[str, bytes]]:
        """The parts of the prefix by name, without the marks of the cache: those may move."""
        named: list[tuple[str, Any]] = [(name, self._fields.get(name, b"")) for name in PREFIX]
        for name in {"messages", "input"} & set(self._fields):
            items = msgspec.json.decode(self._fields[name], type=list[msgspec.Raw])
            named += [(f"{name}.{n}", item) for n, item in enumerate(items)]
        return ((name, MARK.sub(b"", bytes(part))) for name, part in named)

    def difference(self, before: "Sent") -> str:
        """Where this is not, byte by byte, what `before` was, continued; empty if it is."""
        now, parts = dict(self.parts()), list(before.parts())
        for name, part in parts:
            if (other := now.get(name, b"")) != part:
                if (name, part) == parts[-1] and other.startswith(END.sub(b"", part)):
                    continue  # the user's message has grown, because the model did not answer
                at = next(
                    (n for n, (a, b) in enumerate(zip(part, other, strict=False)) if a != b),
                    min(len(part), len(other)),
                )
                was, became = part[at:][:SHOWN_BYTES], other[at:][:SHOWN_BYTES]
                return f"{name}, byte {at}: {was!r} became {became!r}"
        return ""


class Changes(list[str]):
    """Changes of the prefix, from one request to the next one to the same model."""

    def __init__(self) -> None:
        super().__init__()
        self._sent: dict[str, Sent] = {}

    def note(self, body: bytes) -> None:
        now = Sent(body)
        if (before := self._sent.get(now.model)) and (difference := now.difference(before)):
            self.append(difference)
        self._sent[now.model] = now
