"""
The wire between host, supervisor and zygotes.

It is a Unix socket. Each message is one marshalled tuple, with file descriptors attached. Both ends run the same Python and the same code.
Commands never write here, so `marshal` is safe to use.

On Linux the socket keeps the boundaries of messages (SOCK_SEQPACKET). macOS has that only for datagrams, which do not show that the other
end is gone. So there it is a stream, in which each message follows its length. The descriptors come with the length's first byte.
"""
# ruff: noqa: S302

import array
import errno
import marshal
import os
import select
import socket
import struct
import sys
from contextlib import suppress
from typing import Any

from sanderling.platforms.files import memory_file

MAX_INLINE_BYTES = 64 * 1024
"""A packet must fit into the socket's buffer. Longer messages travel in a memory file."""
MAX_DESCRIPTORS = 16
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
"""Errors for lack of room for a message or its descriptors. The other end may be fine."""
REST_S = 5.0
"""For the rest of a message in a stream, of which a part has been sent or received: the other end reads and writes whole messages."""

Message = tuple[Any, ...]
STATUS = struct.Struct("i?")
"""What an init writes to the status pipe: a wait status, and whether no process of the command is left."""
_LENGTH = struct.Struct("=I")
_CLOSE_ON_EXEC: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)  # without it, Python ignores SIGPIPE


def socket_pair(platform: str = sys.platform) -> tuple[socket.socket, socket.socket]:
    if platform == "linux":
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for each in pair:
        with suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_INLINE_BYTES)
    return pair


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
    memory = memory_file("message")
    try:
        with os.fdopen(os.dup(memory), "wb") as file:
            file.write(data)
        _send(channel, b"", (*descriptors, memory))
    finally:
        os.close(memory)


def _send(channel: socket.socket, data: bytes, descriptors: tuple[int, ...]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    rights = rights if descriptors else []
    packet = b"\0" + data
    if not _is_stream(channel):
        channel.sendmsg([packet], rights, _NO_SIGNAL)
        return
    packet = _LENGTH.pack(len(packet)) + packet
    sent = channel.sendmsg([packet], rights, _NO_SIGNAL)
    while sent < len(packet):
        try:
            sent += channel.send(packet[sent:], _NO_SIGNAL)
        except BlockingIOError:
            _wait(channel, select.POLLOUT)


def _is_stream(channel: socket.socket) -> bool:
    return channel.type == socket.SOCK_STREAM


def receive(channel: socket.socket) -> tuple[Message, list[int]] | None:
    """
    Return the next message and its descriptors (close-on-exec), or None if the other end is gone.

    Raises:
        BlockingIOError: the socket is non-blocking and empty.
        OSError: this process cannot have as many descriptors as came with it.
    """
    is_stream = _is_stream(channel)
    size = _LENGTH.size if is_stream else MAX_INLINE_BYTES + 1
    try:
        data, descriptors, flags = _received(channel, size)
    except ConnectionError:
        return None
    if is_stream and data:
        data = _rest(channel, data)
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


def _received(channel: socket.socket, size: int) -> tuple[bytes, list[int], int]:
    found = array.array("i")
    # Not with recv_fds, which ignores its flags in Python 3.11, so that descriptors were inherited.
    room = socket.CMSG_SPACE(MAX_DESCRIPTORS * found.itemsize)
    data, ancillary, flags, _ = channel.recvmsg(size, room, _CLOSE_ON_EXEC)
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(value[: len(value) - len(value) % found.itemsize])
    if not _CLOSE_ON_EXEC:
        for descriptor in found:
            os.set_inheritable(descriptor, False)
    return data, list(found), flags


def _rest(channel: socket.socket, start: bytes) -> bytes:
    """Return the message that begins with `start` of its length; nothing if the other end has gone in the middle."""
    with suppress(ConnectionError):
        length = start + _exactly(channel, _LENGTH.size - len(start))
        return _exactly(channel, _LENGTH.unpack(length)[0])
    return b""


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            piece = channel.recv(size - len(data))
        except BlockingIOError:
            _wait(channel, select.POLLIN)
            continue
        if not piece:
            raise ConnectionAbortedError
        data += piece
    return data


def _wait(channel: socket.socket, event: int) -> None:
    """
    Wait until a part of a message can be sent or received.

    Raises:
        ConnectionError: the other end has stopped in the middle of one.
    """
    poll = select.poll()
    poll.register(channel, event)
    if not poll.poll(1000 * REST_S):
        raise ConnectionAbortedError(errno.ECONNABORTED, "the other end does not answer")
