"""
Git's objects: former contents of tracked files, read by git itself in the sandbox. Nothing is written, fetched or filtered.

A command may have written what git reads. So an object counts only if its digest matches its name (git does not check), and only as much
output is read as files of these sizes can produce.
"""

from collections.abc import Mapping
from hashlib import sha1

import anyio

from sanderling.errors import SandboxError
from sanderling.sandbox.execution_environment import ExecutionEnvironment, first_output
from sanderling.sandbox.guard.git_program import TrustedGit

MAX_OBJECTS, MAX_BYTES = 1000, 32 << 20
"""Limits of one batch."""
HEADER_BYTES = 100
"""The most that `cat-file` adds to an object's bytes."""
TIMEOUT_S = 20.0
SCRIPT = (
    'git=$1; shift; printf "%s\\n" "$@" | "$git" --no-replace-objects cat-file --batch 2>/dev/null'
)
ENVIRONMENT = {
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


async def read_objects(
    environment: ExecutionEnvironment, project: str, repository: str, sizes: Mapping[str, int]
) -> dict[str, bytes]:
    """Return the named objects of `repository` that git has; `sizes` are approximate."""
    found: dict[str, bytes] = {}
    program = TrustedGit(project, repository).program
    if not program:
        return found
    for names in _batches(sizes):
        argv = ["/bin/sh", "-c", SCRIPT, "sh", program, *names]
        try:
            with anyio.fail_after(TIMEOUT_S):
                limit = sum(sizes[name] + HEADER_BYTES for name in names)
                output = await first_output(
                    environment, argv, limit, cwd=repository, env=ENVIRONMENT
                )
                found |= _objects(output)
        except (OSError, SandboxError, TimeoutError):
            return found
    return found


def _batches(sizes: Mapping[str, int]) -> list[list[str]]:
    batches: list[list[str]] = [[]]
    total = 0
    for name, size in sizes.items():
        if len(batches[-1]) >= MAX_OBJECTS or total + size > MAX_BYTES:
            batches.append([])
            total = 0
        batches[-1].append(name)
        total += size
    return [batch for batch in batches if batch]


def _objects(output: bytes) -> dict[str, bytes]:
    """Parse the blobs in the output of `cat-file --batch`: a line with name, type and size, the bytes, a line end."""
    found: dict[str, bytes] = {}
    position = 0
    while (end := output.find(b"\n", position)) >= 0:
        words = output[position:end].split()
        position = end + 1
        if len(words) == 3 and words[1] == b"blob" and words[2].isdigit():  # noqa: PLR2004 - otherwise "missing"
            end = position + int(words[2])
            data = output[position:end]
            if end < len(output) and digest_of(data) == words[0].decode():
                found[words[0].decode()] = data
            position = end + 1
    return found


def digest_of(data: bytes) -> str:
    """Return git's object name for these bytes."""
    return sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def as_file(data: bytes, size: int) -> bytes | None:
    """Return the content of a file of `size` bytes from its object: unchanged or with CRLF line ends; None if it differs otherwise."""
    if len(data) == size:
        return data
    with_returns = data.replace(b"\n", b"\r\n")
    return with_returns if len(with_returns) == size and b"\r" not in data else None
