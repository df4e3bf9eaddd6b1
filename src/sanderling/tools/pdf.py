"""PDFs for the model: whole for an API that takes them, else the text of their pages, extracted inside the sandbox."""

import base64
import os
from collections.abc import Iterator
from contextlib import suppress

import anyio
import anyio.to_thread
import msgspec

from sanderling.errors import ToolError
from sanderling.images import MAX_PDF_BYTES
from sanderling.protocol.messages import PDF_TYPE, DocumentBlock, ImageSource, TextBlock
from sanderling.text import counted, printable
from sanderling.tools.inside.pdf import PdfFailed, PdfReply, PdfRequest, PdfText
from sanderling.tools.isolated import command, output_of
from sanderling.tools.outcome import Outcome
from sanderling.tools.paths import escaped
from sanderling.tools.workspace import Workspace

TOTAL_S = 40.0
NO_TEXT = "no text on these pages: they may be scanned images"


async def whole_pdf(workspace: Workspace, path: str, max_pages: int) -> Outcome | None:
    """
    Return the PDF itself, for an API that takes it; None if it is encrypted, has more pages, or is beyond the API's limits.

    Raises:
        ToolError: the PDF is damaged or needs a password.
    """
    first_page = await _text(workspace, path, 1, 1, 1)
    if first_page.is_encrypted or first_page.count > max_pages:
        return None
    with workspace.explaining(path, "read"):
        loaded = await (await workspace.files()).load(path, MAX_PDF_BYTES)
    if not loaded.is_whole:
        return None
    data = await anyio.to_thread.run_sync(base64.b64encode, loaded.data)
    name, pages = escaped(workspace.shown(path)), first_page.count
    what = f"PDF, {counted(pages, 'page')}, {len(loaded.data):,} bytes"
    source = ImageSource(PDF_TYPE, data.decode("ascii"))
    content = (
        TextBlock(f"{name}: {what}"),
        DocumentBlock(source, escaped(os.path.basename(path)), pages),
    )
    return Outcome(content=content, summary=what, detail=what)


async def read_pdf(
    workspace: Workspace, path: str, first: int, limit: int, max_bytes: int
) -> Outcome:
    """
    Return the text of up to `limit` pages from page `first` on.

    Raises:
        ToolError: the PDF is encrypted, too large or damaged, or has no such page.
    """
    return _outcome(await _text(workspace, path, first, limit, max_bytes))


async def _text(workspace: Workspace, path: str, first: int, limit: int, max_bytes: int) -> PdfText:
    """
    Extract the text.

    Raises:
        ToolError: the PDF is encrypted, too large or damaged, or has no such page.
    """
    name = workspace.shown(path)
    asked = PdfRequest(path, first, limit, max_bytes)
    with workspace.explaining(path, "read"):
        process = await workspace.environment.spawn(
            [*command("pdf"), msgspec.json.encode(asked).decode()], grant=workspace.grant
        )
    try:
        with anyio.fail_after(TOTAL_S):
            assert process.stdout
            output = await output_of(process.stdout)
            await process.wait()
    except TimeoutError as error:
        raise ToolError(f"{name} cannot be read: it takes more than {TOTAL_S:.0f} s.") from error
    finally:
        process.close()
    reply: PdfReply = PdfFailed("reading it takes too much time or memory")
    with suppress(msgspec.DecodeError):
        reply = msgspec.json.decode(output.rpartition(b"\n")[2], type=PdfReply)
    if isinstance(reply, PdfFailed):
        raise ToolError(f"{name} cannot be read: {printable(reply.reason)}.")
    return reply


def _outcome(text: PdfText) -> Outcome:
    last = text.first + len(text.pages) - 1
    extent = f"pages {text.first}-{last} of {text.count}"
    if (text.first, last) == (1, text.count):
        extent = counted(text.count, "page")
    notes = [
        *([f"continue with offset={last + 1}"] if last < text.count else []),
        *([f"page {last} is cut: it is too long"] if text.is_cut else []),
        *([] if any(text.pages) else [NO_TEXT]),
    ]
    what = "; ".join((extent, *notes, "PDF, as text", "offset and limit count pages"))
    return Outcome(content="\n".join([*_lines(text), f"({what})"]), summary=extent)


def _lines(text: PdfText) -> Iterator[str]:
    for number, page in enumerate(text.pages, text.first):
        yield f"--- page {number}"
        if page:
            yield printable(page)
