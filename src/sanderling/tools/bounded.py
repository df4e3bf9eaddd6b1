"""Results of third-party tools, as short as the results of our own."""

import os
import secrets
from pathlib import Path

from anyio import to_thread

from sanderling.tools.base import Context
from sanderling.tools.commands.output import MAX_TOLD_BYTES, OutputLog


async def bounded(text: str, context: Context) -> str:
    """Return the text, or its beginning and end with the path of the whole text."""
    data = text.encode(errors="replace")
    if len(data) <= MAX_TOLD_BYTES:
        return text
    directory, shown_directory = await context.workspace.sandbox.environment.scratch()
    name = f"result-{secrets.token_hex(4)}.txt"
    path = os.path.join(directory, name)
    log = OutputLog(Path(path), shown_as=f"{shown_directory}/{name}", is_new=True)
    try:
        await to_thread.run_sync(log.add, data)
        note = log.note().replace("of output", "of the result")
        return f"{log.text()}\n[{note}]"
    finally:
        log.close()
