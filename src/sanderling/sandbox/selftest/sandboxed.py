"""Runs the self-test's commands in the sandbox of Linux."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio

from sanderling.sandbox.processes import STDOUT
from sanderling.sandbox.sandbox import Sandbox
from sanderling.sandbox.selftest.running import TIMED_OUT, TIMEOUT_S, Ended, Start
from sanderling.sandbox.selftest.scene import Scene


@asynccontextmanager
async def in_sandbox(scene: Scene) -> AsyncGenerator[Start]:
    """Run commands in the sandbox that a session of the scene's project would have."""
    async with Sandbox.open(scene.policy) as sandbox:

        async def start(argv: Sequence[str]) -> Ended:
            output = b""
            with anyio.move_on_after(TIMEOUT_S):
                process = await sandbox.spawn(argv, stderr=STDOUT)
                assert process.stdout
                async for chunk in process.stdout:
                    output += chunk
                return Ended(await process.wait(), output.decode(errors="replace"))
            return Ended(TIMED_OUT, f"it took longer than {TIMEOUT_S:.0f} s")

        yield start
