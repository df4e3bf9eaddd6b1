"""
A unix socket of the sandbox for gh, which speaks HTTPS only.

With `http_unix_socket` in its settings, gh sends every request over that socket, unencrypted and as if the socket were the server. Go reads
no certificates from a variable on macOS, and gh has no other way to an API without TLS that keeps the host's name.
"""

import os
import socket
import tempfile

_CONFIG = 'http_unix_socket: "{path}"\nprompt: disabled\n'
BACKLOG = 64


def open_gateway(tmp_dir: str, shown_as: str) -> tuple[socket.socket, str]:
    """
    Return a listener below `tmp_dir`, which commands see as `shown_as`, and the directory of gh's settings as they see it.

    The directory is new, and kept open: a link that a command plants in its place leads nowhere. A socket's path is limited to 108 bytes,
    hence the short way over the descriptor.
    """
    name = os.path.basename(tempfile.mkdtemp(prefix=".sanderling-gh-", dir=tmp_dir))
    directory = os.open(f"{tmp_dir}/{name}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(f"/proc/self/fd/{directory}/socket")
            listener.listen(BACKLOG)
            listener.setblocking(False)
            config = os.open(
                "config.yml", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=directory
            )
            with os.fdopen(config, "w") as file:
                file.write(_CONFIG.format(path=f"{shown_as}/{name}/socket"))
        except BaseException:
            listener.close()
            raise
    finally:
        os.close(directory)
    return listener, f"{shown_as}/{name}"
