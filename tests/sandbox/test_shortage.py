"""Few descriptors, few inotify instances: idle sandboxes close for those that are needed, and what is missing is named."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from sanderling.errors import SandboxError
from tests.sandbox.test_cli import IN_USER_NAMESPACE, needs_unshare
from tests.sandbox.test_files import session_of
from tests.sandbox.test_grants import said
from tests.sandbox.test_rest import is_at_rest

pytestmark = pytest.mark.guard

FEW = 6
"""Descriptors that are left: too few to open a sandbox, enough to look at the project."""


@contextmanager
def few_descriptors_left():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 40, hard))
    try:
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for descriptor in held[-FEW:]:
            os.close(descriptor)
        yield
    finally:
        for descriptor in held[:-FEW]:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_an_idle_sandbox_closes_for_one_that_lacks_descriptors(place):
    async with session_of(place) as idle, session_of(place) as other:
        assert await said(idle, "printf idle") == "idle"
        with few_descriptors_left():
            assert await said(other, "printf other") == "other"
        assert idle.manager.sandbox is None
        assert await said(idle, "printf again") == "again"


async def test_a_sandbox_that_is_closing_already_is_waited_for(place):
    async with session_of(place) as idle, session_of(place) as other:
        assert await said(idle, "printf idle") == "idle"
        processes = children()
        with few_descriptors_left():
            for each in processes:
                os.kill(each, signal.SIGSTOP)
            idle.manager.rest_soon()
            while idle.manager.sandbox:
                await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(resume, processes)
                assert await said(other, "printf other") == "other"


async def resume(processes: list[int]) -> None:
    await anyio.sleep(0.3)
    for each in processes:
        os.kill(each, signal.SIGCONT)


def children() -> list[int]:
    threads = Path("/proc/self/task").iterdir()
    return [int(each) for thread in threads for each in (thread / "children").read_text().split()]


async def test_a_sandbox_in_use_stays_and_the_other_session_hears_of_the_limit(place):
    async with session_of(place) as busy, session_of(place) as other:
        with busy.manager.kept_open():
            assert await said(busy, "printf busy") == "busy"
            with few_descriptors_left(), pytest.raises(SandboxError, match="Too many open files"):
                await said(other, "echo other")
            assert await said(busy, "printf still") == "still"
    assert is_at_rest()


SESSIONS = """
    import sys
    from pathlib import Path
    import anyio
    from tests.sandbox.test_files import session_of
    from tests.sandbox.test_grants import said
    from tests.sandbox.test_sandbox import Place

    async def main():
        place = Place(Path(sys.argv[1]))
        async with session_of(place) as first, session_of(place) as second:
            print(await said(first, "echo first"))
            print(await said(second, "echo second"))
            print(first.manager.sandbox is None)

    anyio.run(main)
"""


@needs_unshare
def test_an_idle_sandbox_closes_for_one_that_lacks_an_inotify_instance(tmp_path):
    limited = 'echo 1 >/proc/sys/user/max_inotify_instances; exec "$@"'
    script = [sys.executable, "-c", textwrap.dedent(SESSIONS), str(tmp_path)]
    done = subprocess.run(
        [*IN_USER_NAMESPACE, "sh", "-c", limited, "sh", *script],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.stdout.split() == ["first", "second", "True"], done.stderr
