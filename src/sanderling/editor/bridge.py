"""
The connection to Neovim: the only module of the package that knows pynvim.

Everything runs in one thread, on pynvim's asyncio loop: a handler is a greenlet of that loop, and what it starts are tasks next to it.
Neovim may wait in a prompt for minutes, so only `request` waits for it, and its callers keep a deadline.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, NamedTuple

import pynvim


class NeovimError(Exception):
    """A request failed, for the reason that Neovim gives."""


class _Later(NamedTuple):
    """An answer that comes later. `show` takes the pieces of text that come before it."""

    answer: asyncio.Future[Any]
    show: Callable[[str], None]


class Bridge:
    def __init__(self, nvim: pynvim.Nvim) -> None:
        self._nvim = nvim
        self._numbers = count(1)
        self._later: dict[int, _Later] = {}  # by the question's number

    def notify(self, lua: str, *args: Any) -> None:
        """Run `lua` in Neovim with `args`, without waiting. Call it only from the loop's thread."""
        self._nvim.exec_lua(lua, *args, async_=True)

    async def request(self, method: str, *args: Any) -> Any:
        """
        Call a function of Neovim's API from a task, and return its result. Does not return while Neovim waits in a prompt.

        Cancelling does not withdraw the call: Neovim executes it when it can, and the answer is dropped.

        Raises:
            NeovimError: it failed.
        """
        answer = asyncio.get_running_loop().create_future()

        def on_answer(error: Any, result: Any) -> None:
            if answer.done():
                return  # the caller was cancelled
            if error:
                answer.set_exception(NeovimError(error[1]))
            else:
                answer.set_result(result)

        # pynvim's own request() needs a greenlet to wait in; a task is not one.
        session: Any = self._nvim._session  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        session._async_session.request(method, args, on_answer)  # noqa: SLF001
        return await answer

    async def ask(self, module: str, deadline_s: float, question: str, *args: Any) -> Any:
        """
        Ask a Lua module, through lua/sanderling/host/door.lua. It answers at once, or later under the question's number.

        Raises:
            NeovimError: it failed.
        """
        with self.later() as (number, later):
            call = {
                "deadline_ms": deadline_s * 1000,
                "channel": self._nvim.channel_id,
                "number": number,
            }
            lua = f"return require('{module}').answer(...)"
            answer = await self.request("nvim_exec_lua", lua, (call, question, *args))
            return await later if answer.get("comes_later") else answer

    @contextmanager
    def later(
        self, show: Callable[[str], None] = lambda _: None
    ) -> Generator[tuple[int, Awaitable[Any]]]:
        """Take an answer that Neovim sends later, under a number of its own. `show` gets what Neovim shows before."""
        number = next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._later[number] = _Later(answer, show)
        try:
            yield number, answer
        finally:
            del self._later[number]

    def settle(self, number: int, answer: Any) -> None:
        """Take a late answer to a question. Does nothing if its caller was cancelled."""
        later = self._later.get(number)
        if later and not later.answer.done():
            later.answer.set_result(answer)

    def show(self, number: int, text: str) -> None:
        """Take a text that comes before the answer to a question. Does nothing if its caller was cancelled."""
        if later := self._later.get(number):
            later.show(text)

    def start(
        self,
        serve: Callable[[], Coroutine[Any, Any, None]],
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        """Run `serve` as a task next to pynvim's own work; `on_end` is called with the exception that ended it."""
        task = self._nvim.loop.create_task(serve())
        task.add_done_callback(lambda done: on_end(None if done.cancelled() else done.exception()))


def run_host(plugin_path: str) -> None:
    """
    Serve the Neovim at the other end of stdin and stdout with the plugin at `plugin_path`, until Neovim ends.

    Each child process must get a stdin of its own: the host's is that pipe.
    """
    host: Any = pynvim.Host(pynvim.attach("stdio"))
    # Neovim has ended or was killed: the normal end of a host.
    with suppress(EOFError, ConnectionError):
        host.start([plugin_path])
