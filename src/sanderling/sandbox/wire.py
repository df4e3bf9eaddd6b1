"""
The wire between host, supervisor and zygotes.

It is a Unix socket with message boundaries (SOCK_SEQPACKET). Each message is one marshalled tuple, with file descriptors attached. Both
ends run the same Python and the same code. Commands never write here, so `marshal` is safe to use.
"""
# ruff: noqa: S302

import array
import errno
import marshal
import os
import socket
import struct
from typing import Any

MAX_INLINE_BYTES = 64 * 1024
"""A packet must fit into the socket's buffer. Longer messages travel in a memory file."""
MAX_DESCRIPTORS = 16
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
"""Errors for lack of room for a message or its descriptors. The other end may be fine."""

Message = tuple[Any, ...]
STATUS = struct.Struct("i?")
"""What an init writes to the status pipe: a wait status, and whether no process of the command is left."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """
    Send `message` with copies of `descriptors`.

    Raises:
        BlockingIOError: the socket is non-blocking and full.
        OSError: the other end is gone.
    """
    data = marshal.dumps(message)
    if len(data) <= MAX_INLINE_BYTES:
        _send(channel, data, descriptors)
        return
    memory = os.memfd_create("message", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(data)
        _send(channel, b"", (*descriptors, memory))
    finally:
        os.close(memory)


def _send(channel: socket.socket, data: bytes, descriptors: tuple[int, ...]) -> None:
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
    channel.sendmsg([b"\0" + data], [rights] if descriptors else [], socket.MSG_NOSIGNAL)


def receive(channel: socket.socket) -> tuple[Message, list[int]] | None:
    """
    Return the next message and its descriptors (close-on-exec), or None if the other end is gone.

    Raises:
        BlockingIOError: the socket is non-blocking and empty.
        OSError: this process cannot have as many descriptors as came with it.
    """
    try:
        data, descriptors, flags, _ = socket.recv_fds(
            channel, MAX_INLINE_BYTES + 1, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError:
        return None
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    if not data:
        return None
    if len(data) > 1:
        return marshal.loads(data[1:]), descriptors
    with os.fdopen(descriptors.pop(), "rb") as file:
        file.seek(0)
        return marshal.loads(file.read()), descriptors
