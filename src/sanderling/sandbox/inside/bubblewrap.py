"""
Bubblewrap as the provider of namespaces, where an AppArmor profile allows them to bwrap and not to Python (Ubuntu since 24.04).

It builds the same root from the same layout, and the zygote starts in it as a program. Without capabilities there, the zygote cannot give
each command its own pid namespace, so the commands of a view share one.
"""

import marshal
import os
import socket
import sys
from io import BufferedReader
from typing import TYPE_CHECKING

from sanderling.errors import SandboxError
from sanderling.platforms.files import memory_file
from sanderling.sandbox.kernel.namespaces import HIDDEN_IN_PROC, OWN_DIRECTORIES, make_mount_point

if TYPE_CHECKING:  # the probe needs neither and should start fast
    from sanderling.sandbox.inside.zygote import ZygoteView
    from sanderling.sandbox.kernel.layout import Layout

# Not from PATH: a program planted there would decide what commands can reach.
PROGRAMS = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
ISOLATION = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
)
MAX_COMPLAINT_BYTES = 2000
START = (  # It imports everything before it reports that it has started, because commands run again after that.
    "import sys; sys.path[:] = {path!r}; import sanderling.sandbox.kernel.landlock; "
    "from sanderling.sandbox.inside.zygote import main; main({channel}, {view}, {entered})"
)


def find() -> str:
    """
    Return the program's path.

    Raises:
        SandboxError: it is not installed.
    """
    for program in PROGRAMS:
        if os.access(program, os.X_OK):
            return program
    raise SandboxError("bubblewrap (bwrap) is not installed")


def try_it() -> None:
    """
    Run it with every namespace that a zygote needs.

    Raises:
        SandboxError: it is missing, or cannot create the namespaces.
    """
    program = find()
    complaints, stderr = os.pipe()
    arguments = [program, *ISOLATION, "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"]
    pid = os.posix_spawn(
        program,
        [*arguments, program, "--version"],
        {},
        file_actions=[(os.POSIX_SPAWN_DUP2, stderr, 2), (os.POSIX_SPAWN_CLOSE, 1)],
    )
    os.close(stderr)
    with os.fdopen(complaints, "rb") as pipe:
        complaint = complaint_in(pipe)
    if os.waitpid(pid, 0)[1]:
        raise complaint


def complaint_in(stderr: BufferedReader) -> SandboxError:
    """Return an error with the output of a bubblewrap that has exited."""
    words = stderr.read(MAX_COMPLAINT_BYTES).decode(errors="replace").strip()
    return SandboxError(words or "bubblewrap does not work here")


def start_zygote(
    view: "ZygoteView", channel: socket.socket, entered: socket.socket
) -> BufferedReader:
    """Start a zygote in the root of `view`, serving `channel`. It reports its start on `entered`; the returned pipe has its errors."""
    _make_mount_points(view.layout)
    complaints, stderr = os.pipe()
    memory = memory_file("view")
    os.write(memory, marshal.dumps(view.as_data()))
    os.lseek(memory, 0, os.SEEK_SET)
    os.set_inheritable(memory, True)
    for end in (channel, entered):
        end.set_inheritable(True)
    program = find()
    code = START.format(
        path=sys.path, channel=channel.fileno(), view=memory, entered=entered.fileno()
    )
    python = (os.path.realpath(sys.executable), "-I", "-S", "-c", code)
    network = ("--unshare-net",) if view.has_own_network else ()
    argv = [program, *ISOLATION, *network, *root_arguments(view.layout), "--", *python]
    try:
        os.posix_spawn(program, argv, {}, file_actions=[(os.POSIX_SPAWN_DUP2, stderr, 2)])
    finally:
        os.close(stderr)
        os.close(memory)
        for end in (channel, entered):
            end.set_inheritable(False)
    return os.fdopen(complaints, "rb")


def _make_mount_points(layout: "Layout") -> None:
    """Create mount points in the private directories. An earlier command may have left other entries there, at which bwrap would fail."""
    for bind in layout.binds:
        for directory, target in layout.private_places(bind) if bind.is_private else ():
            make_mount_point(directory, bind._replace(target=target))


def root_arguments(layout: "Layout") -> list[str]:
    arguments = ["--tmpfs", "/", "--dev", "/dev", "--size", str(layout.shm_bytes)]
    arguments += ["--tmpfs", "/dev/shm", "--mqueue", "/dev/mqueue", "--proc", "/proc"]
    for directory in OWN_DIRECTORIES:
        arguments += ["--dir", directory]
    arguments += ["--symlink", "/run", "/var/run"]
    for link, target in layout.links:
        arguments += ["--symlink", target, link]
    for bind in layout.binds:
        how = "--bind" if bind.is_writable else "--ro-bind"
        arguments += [how, bind.source, bind.target]
    for name in HIDDEN_IN_PROC:
        arguments += ["--ro-bind-try", "/dev/null", f"/proc/{name}"]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/"]
