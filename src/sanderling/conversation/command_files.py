"""
Prompts from command files: their lines for the shell run, and the files that they mention are attached.

These lines run as the user's own commands do, but always in the sandbox, because the file may have come with the project. A prompt that
is not sent after all has run them in vain, so they should only look.
"""

import re
import stat
import time
from collections.abc import Callable

import anyio
from anyio import to_thread
from msgspec.structs import replace

from sanderling.changes.editing.text import decode
from sanderling.errors import SandboxError, ToolError
from sanderling.project.slash_commands import AskedCommand, ShellLine
from sanderling.protocol.messages import CommandEnding, Prompt, Selection
from sanderling.tools.commands.output import Ends, ScreenText
from sanderling.tools.commands.running import run_to_end
from sanderling.tools.commands.shell import first_on_path
from sanderling.tools.commands.user_commands import LINGER_S, SHELL
from sanderling.tools.read import MAX_NAMES, WHOLE_BYTES, buffer_in_step
from sanderling.tools.texts import fitting
from sanderling.tools.workspace import Workspace

TIMEOUT_S = 30.0
"""Of one line for the shell."""
MAX_MENTIONS = 10
MAX_MENTIONED_BYTES = 256 * 1024
_ARGUMENTS = (
    "ARGUMENTS=$1; shift; "  # on the line's own first line, so that errors name the right one
)
_MENTION = r"(.+?)(?::(\d{1,9})(?:-(\d{1,9}))?)?"
_AFTER = ".,;:!?)]}'\""  # punctuation of the sentence


class CommandFiles:
    """Expands the prompts of one session. `check` raises ConfigError for what the model may not see."""

    def __init__(self, workspace: Workspace, check: Callable[[Prompt], None]) -> None:
        self._workspace = workspace
        self._check = check

    async def expand(self, prompt: Prompt, asked: AskedCommand) -> Prompt:
        """
        Return the prompt of the command `asked`, with the output of its lines and the files that it mentions.

        Raises:
            ConfigError: it mentions what the model may not see.
        """
        if asked.mentions:
            prompt = await self._with_mentions(prompt, asked.mentions)
        texts = [
            await self._output(part, asked) if isinstance(part, ShellLine) else part
            for part in asked.parts
        ]
        return asked.put_into(prompt, "".join(texts))

    # --- lines for the shell -------------------------------------------------------------------------------------------

    async def _output(self, line: ShellLine, asked: AskedCommand) -> str:
        """Run the line and return its output, bounded, with how it ended if it failed."""
        output, sandbox = Ends(), self._workspace.sandbox
        began, ending = time.monotonic(), CommandEnding("stopped", took_s=TIMEOUT_S)
        own = sandbox.first_on_path(sandbox.boundary)
        begin = f"{first_on_path(own)}; {_ARGUMENTS}" if own else _ARGUMENTS
        argv = [*SHELL, begin + line.command, "sh", asked.arguments, *asked.words]
        with self._workspace.changes.of_person(), anyio.move_on_after(TIMEOUT_S):
            try:
                process = await sandbox.boundary.spawn(argv)
                status = await run_to_end(
                    process, ScreenText(), output.add, lambda _: None, linger_s=LINGER_S
                )
                ending = CommandEnding("exited", status, time.monotonic() - began)
            except (SandboxError, OSError) as error:
                ending = CommandEnding("not_started", problem=str(error))
        if self._workspace.editor:
            await self._workspace.editor.files_changed(())
        text = output.text().strip("\n")
        if ending.is_success:
            return text
        failed = f"[The command `{line.command}` of this prompt {ending.description}]"
        return f"{text}\n{failed}" if text else failed

    # --- mentions ------------------------------------------------------------------------------------------------------

    async def _with_mentions(self, prompt: Prompt, mentions: tuple[str, ...]) -> Prompt:
        """Attach the project's files and directories among `mentions`; other words are left as text."""
        from sanderling.tools.mentioned import with_documents  # only for mentions

        mentions = tuple(filter(self._is_inside, mentions))
        asked = replace(prompt, text=" ".join(f"@{name}" for name in mentions))
        prompt = replace(
            await with_documents(asked, self._workspace, self._check), text=prompt.text
        )
        attached = {each.path for each in prompt.selections}
        found = list[Selection]()
        for name in mentions[: 2 * MAX_MENTIONS]:
            selection = await self._selection(name.rstrip(_AFTER))
            if selection and selection.path not in attached and len(found) < MAX_MENTIONS:
                attached.add(selection.path)
                found.append(selection)
        prompt = replace(prompt, selections=(*prompt.selections, *found))
        self._check(prompt)
        return prompt

    def _is_inside(self, name: str) -> bool:
        parts = re.fullmatch(_MENTION, name.rstrip(_AFTER))
        try:
            return bool(parts) and self._workspace.is_inside(self._workspace.path(parts[1]))
        except ToolError:
            return False

    async def _selection(self, name: str) -> Selection | None:
        workspace = self._workspace
        if not (parts := re.fullmatch(_MENTION, name)):
            return None
        try:
            path = workspace.path(parts[1])
            status = workspace.disk.status(path)
            if not status:
                return None
            if stat.S_ISDIR(status.st_mode):
                return await self._directory(path)
            if stat.S_ISREG(status.st_mode):
                return await self._file(path, parts[2], parts[3])
        except (ToolError, SandboxError):
            pass  # the model may look itself, and learns why it cannot
        return None

    async def _directory(self, path: str) -> Selection:
        entries = await (await self._workspace.files()).list(path)
        names = [f"{name}/" if kind == "directory" else name for name, kind in entries[:MAX_NAMES]]
        shown = f"{self._workspace.shown(path)}/"
        text = "\n".join(sorted(names))
        return Selection(shown, 1, len(names), text, origin="directory listing")

    async def _file(self, path: str, first: str | None, last: str | None) -> Selection | None:
        workspace = self._workspace
        with workspace.explaining(path, "read"):
            loaded = await (await workspace.files()).load(path, WHOLE_BYTES)
        buffer = await buffer_in_step(workspace, path, loaded)
        if not buffer and (not loaded.is_whole or b"\0" in loaded.data):
            return None
        text = buffer.text if buffer else (await to_thread.run_sync(decode, loaded.data)).text
        lines = text.removesuffix("\n").split("\n")
        begin = int(first or 1)
        wanted = lines[begin - 1 : int(last or first or len(lines))]
        kept = fitting(wanted, MAX_MENTIONED_BYTES)
        if not kept or begin < 1:
            return None
        origin = "current editor text" if buffer else "as saved on disk"
        if len(kept) < len(wanted):
            origin += f", up to line {begin + len(kept) - 1} of {len(lines)}"
        end = begin + len(kept) - 1
        return Selection(workspace.shown(path), begin, end, "\n".join(kept), origin=origin)
