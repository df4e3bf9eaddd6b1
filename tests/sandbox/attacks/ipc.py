"""Memory, queues and keys that processes share by a name or a number instead of a file."""

import ctypes
import os
from pathlib import Path

from .kernel import libc, syscall
from .registry import Stopped, World, attack, fact

KEYCTL_GET_KEYRING_ID, KEYCTL_JOIN, KEYCTL_SEARCH, KEYCTL_READ, KEYCTL_LINK = 0, 1, 10, 11, 8
USER_KEYRING, SESSION_KEYRING, PROCESS_KEYRING = -4, -3, -2


@attack("sysv-shm-read", kind="ipc", evidence="loot", needs=(fact("shm_id"),))
def sysv_shm_read(world: World) -> bytes:
    address = syscall("shmat", world.shm_id, 0, 0o10000)
    return ctypes.string_at(address, 64)


@attack("sysv-shm-write", kind="ipc", needs=(fact("shm_id"),))
def sysv_shm_write(world: World) -> str:
    address = syscall("shmat", world.shm_id, 0, 0)
    ctypes.memset(address + 100, 1, 1)
    return "written"


@attack("sysv-shm-remove", kind="ipc", needs=(fact("shm_id_to_remove"),))
def sysv_shm_remove(world: World) -> str:
    syscall("shmctl", world.shm_id_to_remove, 0, 0)
    return "removed"


@attack("sysv-msg-receive", kind="ipc", evidence="loot", needs=(fact("msg_id"),))
def sysv_msg_receive(world: World) -> bytes:
    message = ctypes.create_string_buffer(256)
    syscall("msgrcv", world.msg_id, message, 200, 0, 0o4000)
    return message.raw


@attack("sysv-msg-send", kind="ipc", needs=(fact("msg_id"),))
def sysv_msg_send(world: World) -> str:
    syscall("msgsnd", world.msg_id, ctypes.create_string_buffer(b"\2" + bytes(7) + b"x"), 1, 0o4000)
    return "sent"


@attack("sysv-sem-set", kind="ipc", needs=(fact("sem_id"),))
def sysv_sem_set(world: World) -> str:
    syscall("semctl", world.sem_id, 0, 16, 5)
    return "set"


@attack("sysv-list", kind="ipc", needs=(fact("shm_id"),))
def sysv_list(world: World) -> str:
    if f" {world.shm_id} " not in Path("/proc/sysvipc/shm").read_text():
        raise Stopped("the victim's segment is not listed")
    return "sees the victim's segment"


@attack("mq-receive", kind="ipc", evidence="loot", needs=(fact("queue"),))
def mq_receive(world: World) -> bytes:
    fd = syscall("mq_open", world.queue, os.O_RDONLY | os.O_NONBLOCK, 0, None)
    message = ctypes.create_string_buffer(8192)
    syscall("mq_timedreceive", fd, message, 8192, None, None)
    return message.raw[:64]


@attack("mq-send", kind="ipc", needs=(fact("queue"),))
def mq_send(world: World) -> str:
    fd = syscall("mq_open", world.queue, os.O_WRONLY | os.O_NONBLOCK, 0, None)
    syscall("mq_timedsend", fd, b"x", 1, 0, None)
    return "sent"


@attack("key-read", kind="ipc", evidence="loot", needs=(fact("key"),))
def key_read(world: World) -> bytes:
    """A key in the user's keyring: disk passwords, Kerberos tickets."""
    # A session keyring that does not hold the user's keyring possesses none of its keys.
    syscall("keyctl", KEYCTL_JOIN, None, 0, 0, 0)
    syscall("keyctl", KEYCTL_LINK, USER_KEYRING, SESSION_KEYRING, 0, 0)
    key = syscall("keyctl", KEYCTL_SEARCH, USER_KEYRING, b"user", world.key, 0)
    text = ctypes.create_string_buffer(256)
    syscall("keyctl", KEYCTL_READ, key, text, 256, 0)
    return text.raw


@attack("key-add", kind="ipc")
def key_add(world: World) -> str:
    return f"key {syscall('add_key', b'user', f'attack-{world.id}', b'x', 1, PROCESS_KEYRING)}"


@attack("key-request", kind="ipc", evidence="claim", needs=(fact("key"),))
def key_request(world: World) -> str:
    syscall("keyctl", KEYCTL_JOIN, None, 0, 0, 0)
    syscall("keyctl", KEYCTL_LINK, USER_KEYRING, SESSION_KEYRING, 0, 0)
    return f"key {syscall('request_key', b'user', world.key, None, 0)}"


@attack("key-list", kind="ipc", evidence="loot", needs=(fact("key"),))
def key_list(_world: World) -> str:
    return Path("/proc/keys").read_text()


@attack("key-new-session", kind="ipc")
def key_new_session(_world: World) -> str:
    return f"keyring {syscall('keyctl', KEYCTL_JOIN, None, 0, 0, 0)}"


@attack("shm-open", kind="ipc", evidence="loot")
def shm_open(world: World) -> bytes:
    """A file below /dev/shm, by the name that the C library gives it."""
    fd = libc.shm_open(f"/{world.shared_name}".encode(), os.O_RDONLY, 0)
    if fd < 0:
        raise OSError(ctypes.get_errno(), "shm_open")
    return os.read(fd, 256)
