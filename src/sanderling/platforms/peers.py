"""The user at the other end of a unix socket."""

import socket
import struct
import sys

from sanderling.platforms import libproc

_UCRED = struct.Struct("3i")  # pid, uid, gid, as of unix(7)


def uid_of_peer(connected: socket.socket) -> int:
    """
    Return the user ID of the process that has created the other end.

    Raises:
        OSError: the socket is not connected.
    """
    if sys.platform == "darwin":
        size = libproc.XUCRED.size
        return libproc.parsed_peer(
            connected.getsockopt(libproc.SOL_LOCAL, libproc.LOCAL_PEERCRED, size)
        )
    data = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return _UCRED.unpack(data)[1]
