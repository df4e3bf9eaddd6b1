"""The processes of this machine: their parents, groups and environments."""

import os
import signal
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from sanderling.platforms import libproc

_KILL_S = 0.01  # for killed processes to end


class ProcessRow(NamedTuple):
    """A process that exists. `started` and `pid` identify it, because the kernel uses a pid again."""

    pid: int
    parent: int
    group: int
    uid: int
    is_zombie: bool
    started: int


def is_running(pid: int) -> bool:
    """Return whether a process `pid` exists, of any user."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return pid > 0


def row(pid: int) -> ProcessRow | None:
    """Return the process `pid`, or None if it is gone or hidden."""
    if sys.platform == "darwin":
        found = libproc.info(pid)
        return ProcessRow(*found) if found else None
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat, uid = file.read(), os.fstat(file.fileno()).st_uid
    except OSError:
        return None
    return parsed_stat(pid, uid, stat)


def parsed_stat(pid: int, uid: int, stat: bytes) -> ProcessRow:
    """Parse /proc/PID/stat (proc_pid_stat(5)). The name before the last parenthesis may contain anything."""
    state, parent, group, *rest = stat.rpartition(b")")[2].split()
    return ProcessRow(pid, int(parent), int(group), uid, state == b"Z", int(rest[16]))


def rows() -> list[ProcessRow]:
    """Return all processes that this user can see."""
    if sys.platform == "darwin":
        pids: Iterable[int] = libproc.pids()
    else:
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [found for pid in pids if (found := row(pid))]


def has_in_environment(pid: int, entry: bytes) -> bool:
    """
    Return whether the environment with which the program of `pid` started has the `entry`, as `NAME=value`.

    False if it cannot be read: it is another user's, or on macOS a program of the system, whose environment is hidden.
    """
    with suppress(OSError):
        if sys.platform == "darwin":
            return entry in libproc.arguments(pid)[1]
        with open(f"/proc/{pid}/environ", "rb") as file:
            return entry in file.read().split(b"\0")
    return False


def descendants(of: Iterable[int], among: Sequence[ProcessRow]) -> set[int]:
    """Return the processes below `of` that are not zombies, without `of` themselves."""
    children: dict[int, list[int]] = {}
    for each in among:
        children.setdefault(each.parent, []).append(each.pid)
    zombies = {each.pid for each in among if each.is_zombie}
    found, waiting = set[int](), list(of)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting += new
    return found - zombies - set(of)


class ProcessTree:
    """
    Everything that was started from the process `leader`, where no pid namespace holds it together.

    A process belongs to it if it descends from another that does, is in a process group of one, or has the `marker` in its environment. The
    members seen so far are remembered, so a process whose parent has ended is still found. A process escapes if it leaves the group, drops
    the marker, and its parent ends, all between two looks.

    A group is forgotten when two looks have found no member in it: its number is used again, and then belongs to other processes of the user.
    Two, because a list is not taken at one moment: a child that was made meanwhile may be missing, and its parent have ended already.
    """

    def __init__(self, leader: int, marker: bytes) -> None:
        self._leader = leader
        self._marker = marker
        self._members = dict[int, int]()  # when each started, by pid
        self._strangers = dict[int, int]()  # likewise
        self._groups = {leader}
        self._former_groups = {leader}

    def look(self, apart: Collection[int] = ()) -> set[int]:
        """Find the members that run now, without those in `apart`. The leader is one of them."""
        among = [each for each in rows() if each.uid == os.getuid() and each.pid not in apart]
        known = {
            each.pid
            for each in among
            if self._members.get(each.pid) == each.started
            or each.pid == self._leader
            or each.group in self._groups
            or each.group in self._former_groups
            or self._is_marked(each)
        } - {os.getpid()}
        found = known | descendants(known, among)
        running = [each for each in among if each.pid in found and not each.is_zombie]
        self._members = {each.pid: each.started for each in running}
        self._strangers = {each.pid: each.started for each in among if each.pid not in found}
        self._former_groups = self._groups
        self._groups = {each.group for each in running} - {os.getpgrp()}
        return set(self._members)

    def _is_marked(self, process: ProcessRow) -> bool:
        """Look for the marker. A process without it gets it only from a member, whose descendant it is then."""
        if self._strangers.get(process.pid) == process.started:
            return False
        return has_in_environment(process.pid, self._marker)

    def kill(self) -> bool:
        """
        Kill the members until none is left. Return whether there was one.

        All are stopped first. Members that fork without end would otherwise be replaced as fast as they are killed; stopped ones count
        towards the limit of processes, at which forks fail.
        """
        was_there = False
        while members := self.look():
            was_there = True
            stopped = set[int]()
            while running := members - stopped:
                _signal(running, signal.SIGSTOP)
                stopped |= running
                members = self.look()
            _signal(members, signal.SIGKILL)
            time.sleep(_KILL_S)
        return was_there


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
