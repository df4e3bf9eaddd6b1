"""PDFs and notebooks that a prompt mentions: attached by page and by cell, as `read` shows them."""

import re
import stat
from collections.abc import Callable, Iterator
from typing import NamedTuple

import anyio.to_thread
from msgspec.structs import replace

from sanderling.changes.editing.lines import numbered
from sanderling.changes.editing.notebook import parse_notebook
from sanderling.changes.editing.replace import NOTEBOOK_SUFFIX
from sanderling.changes.editing.text import decode
from sanderling.errors import ConfigError, ToolError
from sanderling.protocol.messages import Prompt, Selection
from sanderling.tools.notebooks import cells_shown
from sanderling.tools.pdf import read_pdf
from sanderling.tools.read import MAX_LINES, NOTEBOOK_BYTES, buffer_in_step
from sanderling.tools.texts import fitting
from sanderling.tools.workspace import Workspace

MAX_MENTIONS = 10
MAX_BYTES = 16 * 1024
"""Of one file; the model reads the rest."""
PAGES, CELLS = "the text of its pages", "its cells"
_WORD = r"(?<![\w@])@((?:\\ |\S){1,4096})"
_AFTER = ".,;:!?)]}'\""  # punctuation of the sentence
_FILE = re.compile(r"(?i)(.+\.(pdf|ipynb))(?::(\d{1,9})(?:-(\d{1,9}))?)?")


class _Mention(NamedTuple):
    """`limit` pages or cells from number `first` on."""

    path: str
    is_notebook: bool
    first: int
    limit: int

    @property
    def origin(self) -> str:
        return CELLS if self.is_notebook else PAGES


def has_documents(text: str) -> bool:
    return any(_files(text))


async def with_documents(
    prompt: Prompt, workspace: Workspace, check: Callable[[Prompt], None]
) -> Prompt:
    """
    Attach the PDFs and notebooks that `prompt` mentions. `check` raises for what the model may not see.

    Raises:
        ConfigError: one cannot be read.
    """
    found = list(dict.fromkeys(_mentions(prompt, workspace)))[:MAX_MENTIONS]
    check(replace(prompt, selections=tuple(_selection(each, "", workspace) for each in found)))
    # The editor attaches a notebook as it is on disk.
    names = {workspace.shown(each.path) for each in found}
    instead = {*names, *(f"@outline:{name}" for name in names)}
    selections = [each for each in prompt.selections if each.path not in instead]
    for each in found:
        name = workspace.shown(each.path)
        try:
            text = await _text(each, workspace)
        except ToolError as error:
            raise ConfigError(f"@{name} is not available: {error} Nothing was sent.") from error
        selections.append(_selection(each, text, workspace))
    return replace(prompt, selections=tuple(selections)) if found else prompt


def _files(text: str) -> Iterator[re.Match[str]]:
    for word in re.findall(_WORD, text):
        if file := _FILE.fullmatch(word.rstrip(_AFTER)):
            yield file


def _mentions(prompt: Prompt, workspace: Workspace) -> Iterator[_Mention]:
    """Yield the files that exist and are not attached yet."""
    attached = {(each.path, each.origin) for each in prompt.selections}
    for name, suffix, first, last in (file.groups() for file in _files(prompt.text)):
        try:
            path = workspace.path(name.replace("\\ ", " "))
        except ToolError:
            continue
        begin = max(1, int(first or 1))
        end = int(last or first or MAX_LINES)
        found = _Mention(
            path, f".{suffix.lower()}" == NOTEBOOK_SUFFIX, begin, max(1, end - begin + 1)
        )
        status = workspace.disk.status(path)
        is_new = (workspace.shown(path), found.origin) not in attached
        if status and stat.S_ISREG(status.st_mode) and is_new:
            yield found


def _selection(mention: _Mention, text: str, workspace: Workspace) -> Selection:
    name = workspace.shown(mention.path)
    return Selection(name, 1, text.count("\n") + 1, text, origin=mention.origin)


async def _text(mention: _Mention, workspace: Workspace) -> str:
    path, first, limit = mention.path, mention.first, min(mention.limit, MAX_LINES)
    with workspace.explaining(path, "read"):  # perhaps the sandbox hides it
        loaded = await (await workspace.files()).load(
            path, NOTEBOOK_BYTES if mention.is_notebook else 1
        )
    if not mention.is_notebook:
        content = (await read_pdf(workspace, path, first, limit, MAX_BYTES)).content
        assert isinstance(content, str)
        return content
    buffer = await buffer_in_step(workspace, path, loaded)
    text = buffer.text if buffer else (await anyio.to_thread.run_sync(decode, loaded.data)).text
    if not (notebook := await anyio.to_thread.run_sync(parse_notebook, text)):
        return "\n".join(fitting(numbered(text.split("\n")[:MAX_LINES], 1), MAX_BYTES))
    cells = cells_shown(notebook, first, limit, MAX_BYTES)
    return "\n".join([*cells.lines, f"({cells.extent})"])
