"""
The way to Neovim and back: the one module of the package that knows pynvim.

Everything runs in one thread, on the asyncio loop that pynvim already runs: a handler is a greenlet of that loop, and what it
starts are tasks beside it. Neovim may sit in a prompt for minutes, so only `request` ever waits for it, and who calls
that keeps a deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import pynvim


class NeovimError(Exception):
    """A request failed, for the reason that Neovim gives."""


class Bridge:
    def __init__(self, nvim: pynvim.Nvim) -> None:
        self._nvim = nvim
        self._numbers = count(1)
        self._later: dict[int, asyncio.Future[Any]] = {}  # by the question's number

    def notify(self, lua: str, *args: Any) -> None:
        """Run `lua` in Neovim with `args`, some time; from the loop's thread only."""
        self._nvim.exec_lua(lua, *args, async_=True)

    async def request(self, method: str, *args: Any) -> Any:
        """
        Call a function of Neovim's API, from a task, and return what it gives: never, while Neovim sits in a prompt.

        Who stops waiting does not take back the call: Neovim does it when it can, and the answer is dropped.

        Raises:
            NeovimError: it failed.
        """
        answer = asyncio.get_running_loop().create_future()

        def on_answer(error: Any, result: Any) -> None:
            if answer.done():
                return  # nobody waits any more
            if error:
                answer.set_exception(NeovimError(error[1]))
            else:
                answer.set_result(result)

        # pynvim's own request() needs a greenlet to wait in; a task is none.
        session: Any = self._nvim._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        session._async_session.request(method, args, on_answer)  # noqa: SLF001
        return await answer

    async def ask(self, module: str, deadline_s: float, question: str, *args: Any) -> Any:
        """
        Ask what a Lua module answers by lua/sanderling/host/door.lua: at once, or later, under the question's number.

        Raises:
            NeovimError: it failed.
        """
        number = next(self._numbers)
        later = self._later[number] = asyncio.get_running_loop().create_future()
        call = {
            "deadline_ms": deadline_s * 1000,
            "channel": self._nvim.channel_id,
            "number": number,
        }
        try:
            lua = f"return require('{module}').answer(...)"
            answer = await self.request("nvim_exec_lua", lua, (call, question, *args))
            return await later if answer.get("comes_later") else answer
        finally:
            del self._later[number]

    def settle(self, number: int, answer: Any) -> None:
        """Take the answer to a question that could not be answered at once; nothing, if nobody waits for it any more."""
        later = self._later.get(number)
        if later and not later.done():
            later.set_result(answer)

    def start(
        self, serve: Callable[[], Awaitable[None]], on_end: Callable[[BaseException | None], None]
    ) -> None:
        """Run `serve` as a task beside pynvim's own work; `on_end` is called with what ended it."""
        task = self._nvim.loop.create_task(_run(serve))
        task.add_done_callback(lambda done: on_end(None if done.cancelled() else done.exception()))


async def _run(serve: Callable[[], Awaitable[None]]) -> None:
    await serve()


def run_host(plugin_path: str) -> None:
    """
    Serve the Neovim at the other end of stdin and stdout with the plugin at `plugin_path`, until it goes away.

    Each child process must be given a stdin of its own: ours is that pipe.
    """
    host: Any = pynvim.Host(pynvim.attach("stdio"))
    # Neovim has ended or was killed: the normal end of a host.
    with suppress(EOFError, ConnectionError):
        host.start([plugin_path])
