"""Processes that are made to stand still, below a process of its own: pytest's children are no business of theirs."""

import mmap
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sanderling.sandbox.inside.init import PR_SET_DUMPABLE, PR_SET_PDEATHSIG
from sanderling.sandbox.inside.stillness import everything_still
from sanderling.sandbox.kernel.syscalls import prctl
from tests.conftest import prove_rest, wait_until
from tests.sandbox.child import USERS, in_child

pytestmark = pytest.mark.guard

GENERATIONS = 3
CLOCK = GENERATIONS  # the place of the process that is started while the others stand still
TICKS = 100
TICK_S = 0.0005


class Counters:
    """Processes that count for as long as they run, each at a place that all can see."""

    def __init__(self, places: int) -> None:
        self.counts, self.pids = (memoryview(mmap.mmap(-1, 8 * places)).cast("Q") for _ in range(2))

    def start(self, place: int, last: int) -> int:
        """Start the process of `place`, and below it that of the next one, up to the `last`."""
        pid = os.fork()
        if pid == 0:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            self.pids[place] = os.getpid()
            if place < last:
                self.start(place + 1, last)
            while True:
                self.counts[place] += 1
                time.sleep(TICK_S)
        return pid

    def family(self) -> list[int]:
        return self.counts[:GENERATIONS].tolist()

    def stands_still(self) -> bool:
        return all(map(stands_still, self.pids[:GENERATIONS]))


def stands_still(pid: int) -> bool:
    """Whether the kernel has stopped all threads: a signal takes a moment to get through to who runs on another core."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(stat.rpartition(")")[2].split()[0] in "tT" for stat in stats)


def counts_around_a_stop(error: type[Exception] | None) -> tuple[list[int], list[int]]:
    """What a family has counted when it was stopped, and later while it was; then it must count on."""
    before: list[int] = []
    during: list[int] = []
    counters = Counters(GENERATIONS + 1)
    started = [counters.start(0, GENERATIONS - 1)]
    try:
        wait_until(lambda: all(counters.family()), "all count")
        with suppress(LookupError), everything_still():
            wait_until(counters.stands_still, "all stand still")
            before = counters.family()
            # The time that passes is measured by one that runs: also a fact, for the next view's zygote is started like this.
            started.append(counters.start(CLOCK, CLOCK))
            wait_until(lambda: counters.counts[CLOCK] >= TICKS, "who is started meanwhile runs")
            during = counters.family()
            if error:
                raise error
        wait_until(
            lambda: all(now > then for now, then in zip(counters.family(), during, strict=True)),
            "all count on",
        )
    finally:
        for pid in started:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return before, during


@pytest.mark.parametrize("uid", prove_rest(USERS, is_one=True))
@pytest.mark.parametrize("error", [None, LookupError])
def test_every_descendant_stands_still_in_the_context_and_goes_on_after_it(error, uid):
    before, during = in_child(lambda: counts_around_a_stop(error), uid)
    assert during == before


def what_a_parent_hears() -> tuple[list[int], list[int], int]:
    """Of its child's standing still: the signals to itself, the child's states, and what becomes of a signal to the child."""
    # As any program is, once executed; who has become another user is not.
    prctl(PR_SET_DUMPABLE, 1)
    heard = mmap.mmap(-1, 4096)
    parent = os.fork()
    if parent == 0:
        signals: list[int] = []
        signal.signal(signal.SIGCHLD, lambda number, _: signals.append(number))
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGUSR1, lambda *_: os._exit(42))
            heard[1] = 1
            while True:
                time.sleep(TICK_S)
        heard.seek(8)
        heard.write(child.to_bytes(4, "little"))
        states: list[int] = []
        heard[0] = 1
        while True:
            pid, status = os.waitpid(child, os.WUNTRACED | os.WCONTINUED | os.WNOHANG)
            if pid:
                states.append(status)
                if os.WIFEXITED(status):
                    break
            time.sleep(TICK_S)
        heard[2], heard[3] = len(signals), len(states)
        os._exit(os.waitstatus_to_exitcode(states[-1]))
    wait_until(lambda: heard[0] and heard[1], "both are there")
    child = int.from_bytes(heard[8:12], "little")
    for _ in range(5):
        with everything_still():
            pass
    with everything_still():
        os.kill(child, signal.SIGUSR1)
    _, status = os.waitpid(parent, 0)
    return [heard[2]], [heard[3]], os.waitstatus_to_exitcode(status)


@pytest.mark.parametrize("uid", USERS)
def test_a_parent_hears_nothing_of_it_and_a_signal_sent_meanwhile_arrives(uid):
    signals, states, exit_code = in_child(what_a_parent_hears, uid)
    assert (signals, states) == ([1], [1]), "the end alone"
    assert exit_code == 42


def threads_that_count() -> tuple[list[int], list[int]]:
    counts = memoryview(mmap.mmap(-1, 32)).cast("Q")
    pid = os.fork()
    if pid == 0:

        def count(place: int) -> None:
            while True:
                counts[place] += 1
                time.sleep(TICK_S)

        for place in (1, 2, 3):
            threading.Thread(target=count, args=(place,)).start()
        count(0)
    try:
        wait_until(lambda: all(counts), "all threads count")
        with everything_still():
            wait_until(lambda: stands_still(pid), "all stand still")
            before = counts.tolist()
            time.sleep(20 * TICK_S)
            return before, counts.tolist()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_every_thread_stands_still():
    before, during = in_child(threads_that_count)
    assert during == before


def test_a_process_that_stopped_itself_stays_stopped():
    def state_after() -> str:
        pid = os.fork()
        if pid == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        os.waitpid(pid, os.WUNTRACED)
        with everything_still():
            pass
        stat = Path(f"/proc/{pid}/stat")
        try:
            wait_until(
                lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stops again"
            )
            time.sleep(20 * TICK_S)
            return stat.read_text().rpartition(")")[2].split()[0]
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)

    assert in_child(state_after) == "T"
