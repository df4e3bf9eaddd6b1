"""Descriptors of the host's that are closed while somebody waits for them."""

import os

import anyio
import pytest

from sanderling.sandbox.descriptors import close
from sanderling.sandbox.processes import PipeReader
from tests.conftest import DEADLINE_S


async def test_who_waits_for_a_new_descriptor_is_not_forgotten_for_one_that_had_its_number():
    old, writer = os.pipe()
    reader = PipeReader(old)

    async def wait_for_the_old_one() -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await reader.receive()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for_the_old_one)
        await anyio.wait_all_tasks_blocked()
        reader.close()
        new, other_writer = os.pipe()
        os.write(other_writer, b"x")
        with anyio.fail_after(DEADLINE_S):
            assert await PipeReader(new).receive() == b"x"
    for descriptor in (writer, new, other_writer):
        os.close(descriptor)


async def test_what_is_closed_is_closed_once():
    reader, writer = os.pipe()
    assert close(close(reader)) == -1
    await anyio.lowlevel.checkpoint()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reader)
    os.close(writer)
