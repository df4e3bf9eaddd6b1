"""
Questions to Neovim.

A question is one request. If Neovim cannot begin it before the deadline, it does not do it at all: the deadline is sent along, by the
monotonic clock, which both processes share. The answer may come after the request has ended: Neovim's keys and screen stay usable.
"""

import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec

from sanderling.editor.bridge import Bridge, NeovimError
from sanderling.errors import ToolError

DEADLINE_S = 1.0
PATIENCE_S = 10.0  # for a busy Neovim: a user's hooks take their time
RETRY_S = 0.02
POLL_S = 0.2

# The modes in which Neovim does nothing until a key is pressed.
PROMPTS = {"r": "the hit-enter prompt", "rm": "the more-prompt", "r?": "a question"}

T = TypeVar("T")
INVALID = "The answer is not in the protocol: {error}."


def checked(value: Any, kind: type[T]) -> T:
    """
    Return a value of the editor, which contains what a language server or debug adapter sent: any program can be one.

    Raises:
        ToolError: it is not of this kind.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ToolError(INVALID.format(error=error)) from error


class EditorAnswer(msgspec.Struct, frozen=True):
    """Neovim's answer: a value, an error sentence for the model, the step that must come first, or that Neovim began too late."""

    value: Any = None
    error: str = ""
    waits_for: str = ""
    is_late: bool = False


class EditorQuestions:
    """The questions that the Lua module `module` answers, by lua/sanderling/host/door.lua."""

    def __init__(self, bridge: Bridge, module: str) -> None:
        self._bridge = bridge
        self._module = module

    async def ask(self, question: str, *args: Any) -> Any:
        """
        Ask, again and again while something else must come first.

        Raises:
            ToolError: it is impossible, or not possible in time.
        """
        started_s = time.monotonic()
        deadline_s = started_s + DEADLINE_S
        waits_for = ""
        while True:
            answer = await self._request(deadline_s, question, args)
            if answer.error:
                raise ToolError(answer.error)
            if answer.is_late:
                if waits_for or time.monotonic() - started_s > PATIENCE_S:
                    break
                # It was busy, with a user's autocommands for example, and is not any more.
                deadline_s = time.monotonic() + DEADLINE_S
                continue
            if not answer.waits_for:
                return answer.value
            waits_for = answer.waits_for
            await anyio.sleep(RETRY_S)
        if waits_for:
            raise _waits_for_key(waits_for)
        raise ToolError(f"Neovim was busy for {PATIENCE_S:g} s, so nothing was done. Try again.")

    async def call(
        self,
        question: str,
        timeout_s: float,
        *args: Any,
        show: Callable[[str], None] = lambda _: None,
    ) -> Any:
        """
        Ask what may take long: Neovim begins at once, and answers under the number that it gets as the first argument.

        If this is cancelled, the function `cancel` of the module is called with the number.

        Raises:
            ToolError: Neovim cannot begin.
            TimeoutError: there is no answer in time.
        """
        with self._bridge.later(show) as (number, answer):
            try:
                await self.ask(question, number, *args)
                with anyio.fail_after(timeout_s):
                    return await answer
            except BaseException:
                self._bridge.notify(f"require('{self._module}').cancel(...)", number)
                raise

    async def _request(
        self, deadline_s: float, question: str, args: tuple[Any, ...]
    ) -> EditorAnswer:
        answer: EditorAnswer | None = None
        problem = ToolError("Neovim was not asked.")

        async def give_up() -> None:
            nonlocal problem
            problem = await self._why_late(deadline_s)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            try:
                result = await self._bridge.ask(self._module, deadline_s, question, *args)
                answer = msgspec.convert(result, EditorAnswer)
            except NeovimError as error:
                answer = EditorAnswer(error=f"Neovim failed: {error}")
            except UnicodeEncodeError:
                answer = EditorAnswer(
                    error="The text contains a lone surrogate, which no file can contain."
                )
            tasks.cancel_scope.cancel()
        if answer is None:
            raise problem
        return answer

    async def _why_late(self, deadline_s: float) -> ToolError:
        """Return an error once waiting is pointless: at the deadline if Neovim waits for a key, else when patience has run out."""
        await anyio.sleep(max(0.0, deadline_s - time.monotonic()))
        with anyio.move_on_after(PATIENCE_S):
            while True:  # a busy Neovim does not answer this either
                mode = await self._bridge.request("nvim_get_mode")
                if mode["blocking"]:
                    return _waits_for_key(PROMPTS.get(mode["mode"], "the rest of a command"))
                await anyio.sleep(POLL_S)
        return ToolError(f"Neovim is busy: no answer within {DEADLINE_S + PATIENCE_S:g} s.")


def _waits_for_key(what: str) -> ToolError:
    return ToolError(
        f"Neovim waits for a key ({what}): its buffers cannot be used until the user presses one. Try again."
    )
