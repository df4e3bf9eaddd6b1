"""Shortages of descriptors and inotify instances, which end when another sandbox of this process closes."""

import errno
import resource

from sanderling.errors import SandboxError

_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)


class NoRoomError(SandboxError):
    """The sandbox needs descriptors or inotify instances, and none are left."""


def sandbox_error(error: OSError) -> SandboxError:
    """Return the error to raise when the system refuses something that the sandbox needs."""
    if error.errno not in _TOO_MANY_FILES:
        return SandboxError(f"Cannot set up the sandbox: {error}.")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return NoRoomError(
        f"Too many open files (limit {limit}). Close sessions, or raise the limit with `ulimit -n`."
    )
