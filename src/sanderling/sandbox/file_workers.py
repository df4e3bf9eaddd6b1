"""File workers: one per grant, started when first needed, and replaced when its access has changed."""

import anyio

from sanderling.sandbox.effective_policy import policy_of_now
from sanderling.sandbox.files import Files
from sanderling.sandbox.policy import Grant
from sanderling.sandbox.sandbox import Sandbox


class FileWorkers:
    def __init__(self) -> None:
        self._files: dict[Grant, tuple[Files, object]] = {}  # with the access they were opened for
        self._opening = anyio.Lock()
        self._is_closed = anyio.Event()  # a new one after each close

    async def of(self, sandbox: Sandbox, grant: Grant) -> Files:
        """
        Return the files as commands with `grant` see them now.

        Raises:
            SandboxError: the worker cannot be started.
        """
        is_closed = self._is_closed
        async with self._opening:
            policy = policy_of_now(sandbox, grant) or sandbox.policy
            paths = (policy.read_paths, policy.write_paths, policy.identities)
            wanted = (sandbox, policy.mode, *paths)
            files, opened_for = self._files.get(grant, (None, None))
            if files and (files.has_ended or opened_for != wanted):
                await files.retire()
                files = None
            files = files or await sandbox.open_files(policy)
            if is_closed.is_set():  # closed along with its sandbox; the caller gets an error
                files.close()
            else:
                self._files[grant] = (files, wanted)
            return files

    async def retire(self, grant: Grant) -> None:
        async with self._opening:
            if lent := self._files.pop(grant, None):
                await lent[0].retire()

    def close(self) -> None:
        for files, _ in self._files.values():
            files.close()
        self._files.clear()
        self._is_closed.set()
        self._is_closed = anyio.Event()
