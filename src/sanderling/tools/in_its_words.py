"""Changes to files whose encoding only the editor knows: made in the buffer's text and encoded as the editor does."""

from msgspec.structs import replace

from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.buffers import bytes_of, is_in_step, is_utf_8
from sanderling.tools.editor import Buffer
from sanderling.tools.known import ChangeNotes, Knowledge, ProposedContent


def words_of(buffer: Buffer | None, data: bytes | None) -> Buffer | None:
    """
    Return the buffer if it shows these bytes in an encoding other than UTF-8; None if the bytes themselves determine the text.

    The model then reads the buffer's text. Bytes that look like an incomplete character are complete in that encoding.
    """
    if buffer and data is not None and not is_utf_8(buffer) and is_in_step(buffer, data):
        return buffer
    return None


async def considered(
    knowledge: Knowledge, words: Buffer | None, data: bytes | None, old: str, stamp: Stamp | None
) -> tuple[ProposedContent, ChangeNotes]:
    """
    Return the proposal in the file's bytes, made in the buffer's text if `words` is given.

    Raises:
        ToolError: the change is impossible, or has a character outside the encoding.
    """
    if words is None:
        return await knowledge.considered(data, old, stamp)
    text = words.text.encode("utf-8", "surrogateescape")
    proposal, known = await knowledge.considered(text, old, stamp)
    if proposal.data == text:
        return proposal._replace(data=data or b""), known
    new = proposal.data.decode("utf-8", "surrogateescape")
    if words.line_ending == "dos":
        new = new.replace("\r\n", "\n")
    return proposal._replace(data=bytes_of(replace(words, text=new))), known
