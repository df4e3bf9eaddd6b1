"""Changes of files whose encoding only the editor knows: made in the text of the buffer, and encoded again as the editor does."""

from msgspec.structs import replace

from sanderling.sandbox.inside.reading import Stamp
from sanderling.tools.buffers import bytes_of, is_in_step, is_utf_8
from sanderling.tools.editor import Buffer
from sanderling.tools.known import Knowledge, Known, Proposal


def words_of(buffer: Buffer | None, data: bytes | None) -> Buffer | None:
    """
    Return the buffer, if it shows the file with these bytes in an encoding of its own; None: the bytes say how they are read.

    What the model has read is the buffer's text then. Half of a character that the bytes alone seem to have is none there.
    """
    if buffer and data is not None and not is_utf_8(buffer) and is_in_step(buffer, data):
        return buffer
    return None


async def considered(
    knowledge: Knowledge, words: Buffer | None, data: bytes | None, old: str, stamp: Stamp | None
) -> tuple[Proposal, Known]:
    """
    The proposal in the file's bytes, which is made in the buffer's text if there are `words`.

    Raises:
        ToolError: it cannot be made, or has a character that the encoding has not.
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
