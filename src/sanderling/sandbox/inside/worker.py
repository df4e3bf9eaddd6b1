"""
The file worker: it executes the file tools' requests inside the sandbox.

It is an init without a command: confined like any command, it opens paths in the view's own root. A symbolic link that is swapped between
check and use cannot lead it out, because there is no check. The kernel refuses, or the path does not exist.
"""

import errno
import os
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from sanderling.sandbox import wire
from sanderling.sandbox.inside.looking import copies, judged, objects, scan, unclean
from sanderling.sandbox.inside.naming import (
    chmod,
    link,
    look,
    looks,
    mkdir,
    mkfifo,
    rmdir,
    symlink,
    unlink,
)
from sanderling.sandbox.inside.reading import identify, lines, list_directory, load, read
from sanderling.sandbox.inside.writing import check, sync, write

Answer = tuple[str, Any]


def serve(channel: socket.socket) -> NoReturn:
    """Answer numbered requests until the host closes `channel`."""
    while (received := wire.receive(channel)) is not None:
        number, *request = received[0]
        wire.send(channel, (number, *answer(*request)))
    os._exit(0)


def answer(operation: str, *arguments: Any) -> Answer:
    """Execute a request. Return ("ok", result) or ("error", errno)."""
    try:
        return "ok", OPERATIONS[operation](*arguments)
    except OSError as error:
        return "error", error.errno or errno.EIO
    except ValueError:  # not a valid path
        return "error", errno.EINVAL
    except MemoryError:
        return "error", errno.ENOMEM


OPERATIONS: dict[str, Callable[..., Any]] = {
    "read": read,
    "load": load,
    "lines": lines,
    "identify": identify,
    "real_path": os.path.realpath,
    "list": list_directory,
    "check": check,
    "write": write,
    "look": look,
    "looks": looks,
    "unlink": unlink,
    "symlink": symlink,
    "chmod": chmod,
    "mkdir": mkdir,
    "mkfifo": mkfifo,
    "link": link,
    "rmdir": rmdir,
    "sync": sync,
    "scan": scan,
    "unclean": unclean,
    "judged": judged,
    "copies": copies,
    "objects": objects,
}
