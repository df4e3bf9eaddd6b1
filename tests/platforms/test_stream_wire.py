"""The wire of systems without SOCK_SEQPACKET: messages in a stream, between two ends of this process."""

import os
import resource
import socket
from contextlib import ExitStack, suppress
from threading import Thread

import pytest

from sanderling.sandbox import wire


@pytest.fixture(params=["linux", "darwin"])
def ends(request):
    ours, theirs = wire.socket_pair(request.param)
    with ours, theirs:
        yield ours, theirs


def test_kinds_differ():
    with ExitStack() as closing:
        pairs = {name: wire.socket_pair(name) for name in ("linux", "darwin")}
        for each in (*pairs["linux"], *pairs["darwin"]):
            closing.enter_context(each)
        assert pairs["linux"][0].type == socket.SOCK_SEQPACKET
        assert pairs["darwin"][0].type == socket.SOCK_STREAM


def test_messages_keep_their_order_and_boundaries(ends):
    sent = [("open", 1, None), (), ("text", "ü" * 1000, b"\0\xff"), (True, (1, ("two",)))]
    for message in sent:
        wire.send(ends[0], message)
    assert [wire.receive(ends[1]) for _ in sent] == [(message, []) for message in sent]


@pytest.mark.parametrize("size", [10, wire.MAX_INLINE_BYTES - 10, 3 * wire.MAX_INLINE_BYTES])
def test_message_of_any_size_brings_its_descriptors(ends, size, tmp_path):
    (tmp_path / "one").write_text("one")
    (tmp_path / "two").write_text("two")
    opened = tuple(os.open(tmp_path / name, os.O_RDONLY) for name in ("one", "two"))
    sender = Thread(target=wire.send, args=(ends[0], ("it", "x" * size), opened))
    sender.start()
    message, descriptors = wire.receive(ends[1])
    sender.join()
    assert message == ("it", "x" * size)
    assert [os.read(each, 9) for each in descriptors] == [b"one", b"two"]
    assert not any(map(os.get_inheritable, descriptors))
    for each in (*opened, *descriptors):
        os.close(each)


def test_descriptors_stay_with_their_message(ends, tmp_path):
    (tmp_path / "one").write_text("one")
    opened = os.open(tmp_path / "one", os.O_RDONLY)
    for message, descriptors in [(("plain",), ()), (("with",), (opened,)), (("plain",), ())]:
        wire.send(ends[0], message, descriptors)
    assert wire.receive(ends[1]) == (("plain",), [])
    message, (received,) = wire.receive(ends[1])
    assert message == ("with",)
    assert wire.receive(ends[1]) == (("plain",), [])
    for each in (opened, received):
        os.close(each)


def test_message_whose_descriptors_find_no_room_is_skipped(ends):
    opened = tuple(os.open(os.devnull, os.O_RDONLY) for _ in range(2))
    for message, descriptors in [(("with",), opened), (("next",), ())]:
        wire.send(ends[0], message, descriptors)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = os.dup(0)
    os.close(room)
    resource.setrlimit(resource.RLIMIT_NOFILE, (room + 1, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            wire.receive(ends[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert wire.receive(ends[1]) == (("next",), [])
    assert os.dup(0) == room
    for each in (*opened, room):
        os.close(each)


def test_end_of_the_other_side_is_none(ends):
    wire.send(ends[0], ("last",))
    ends[0].close()
    assert wire.receive(ends[1]) == (("last",), [])
    assert wire.receive(ends[1]) is None
    with pytest.raises(BrokenPipeError):
        wire.send(ends[1], ("late",))


@pytest.mark.parametrize("size", [1, 5, 9])
def test_message_that_ends_in_the_middle_is_the_end(size):
    ours, theirs = wire.socket_pair("darwin")
    with theirs:
        wire.send(ours, ("some", "message"))
        packet = theirs.recv(100)
        ours.close()
    ours, theirs = wire.socket_pair("darwin")
    with theirs:
        ours.send(packet[:size])
        ours.close()
        assert wire.receive(theirs) is None


def test_empty_and_full_sockets_do_not_block(ends):
    for each in ends:
        each.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.receive(ends[1])
    count = 0
    with suppress(BlockingIOError):
        while True:
            wire.send(ends[0], ("x" * 1000,))
            count += 1
    assert count > 10
    assert [wire.receive(ends[1]) for _ in range(count)] == [(("x" * 1000,), [])] * count
