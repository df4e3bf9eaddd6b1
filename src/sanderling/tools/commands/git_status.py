"""Counts the files that differ from the last commit, by git in the sandbox. Nothing that the repository configures runs."""

import anyio

from sanderling.errors import SandboxError
from sanderling.sandbox.execution_environment import ExecutionEnvironment, first_output
from sanderling.tools.commands.shell import GIT_THAT_READS

TIMEOUT_S = 20.0
MAX_BYTES = 1 << 18
_IS_WHOLE = "whole"
_SCRIPT = f"{GIT_THAT_READS}\ngit status --porcelain -z --no-renames --untracked-files=normal 2>/dev/null && echo {_IS_WHOLE}"


async def count_changed(environment: ExecutionEnvironment) -> int | None:
    """Return the number of changed and untracked files; None if git does not say, or not in time."""
    try:
        with anyio.fail_after(TIMEOUT_S):
            output = await first_output(environment, ("/bin/sh", "-c", _SCRIPT), MAX_BYTES)
    except (OSError, SandboxError, TimeoutError):
        return None
    is_whole = output.endswith(f"{_IS_WHOLE}\n".encode())  # not if the sandbox closed meanwhile
    return output.count(b"\0") if is_whole or len(output) >= MAX_BYTES else None
