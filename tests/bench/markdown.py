"""What the benchmark's model says: Markdown in pieces of a dozen characters, with serial numbers to find on the screen."""

import itertools
import re
from collections.abc import Iterator

_SERIAL = "¤"  # stands where a serial number goes

_TEMPLATE = """\
The host reads ¤ what the model says, ¤ joins the pieces into *frames* ¤ and sends each of them ¤ as one notification. \
A frame that comes too soon ¤ waits for the `timer`; one that is **too long** ¤ is cut, so that keys ¤ go before text.

- a list ¤ whose items are short
- another item ¤ with `code` in it
- and a [link](https://example.org/¤) to nowhere

```lua
local function ¤(buf, text)
  local count = vim.api.nvim_buf_line_count(buf) -- ¤
  return count + #vim.split(text, '\\n') > 0 and ¤ or nil
end
```

### A heading ¤

1. First the bytes ¤ arrive,
2. then they are ¤ decoded.

```python
async def ¤(reader: StreamReader) -> None:
    while line := await reader.readline():  # ¤
        print(f"{line!r} is number {¤}", flush=True)
```

"""


def _pieces(chars: int) -> list[str]:
    pieces = [""]
    for token in re.findall(r"\S*\s*", _TEMPLATE):
        if len(pieces[-1]) >= chars:
            pieces.append("")
        pieces[-1] += token
    return pieces


PIECES = _pieces(10)  # a dozen characters each, serial numbers included
_serials = itertools.count()


def deltas(count: int) -> Iterator[tuple[str, list[str]]]:
    """`count` pieces, each with the marks that it shows; no mark comes twice in a process."""
    for piece in itertools.islice(itertools.cycle(PIECES), count):
        marks = [f"n{next(_serials):06}" for _ in range(piece.count(_SERIAL))]
        parts = piece.split(_SERIAL)
        yield "".join(map("".join, itertools.zip_longest(parts, marks, fillvalue=""))), marks


def document(line_count: int) -> str:
    page = _TEMPLATE.replace(_SERIAL, "word")
    return page * -(-line_count // page.count("\n"))
