"""The title of a session by a small model, from the first exchange. Without one, `session/titles.py` has the rule."""

import logging
from collections.abc import Callable
from contextlib import aclosing

import anyio

from sanderling.conversation.budget import BudgetError
from sanderling.conversation.model_calls import ModelCalls
from sanderling.errors import ConfigError, ProviderError
from sanderling.protocol.events import Event, TitleChanged
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest, Provider, TextPiece
from sanderling.session.session import Session
from sanderling.session.titles import prompt_title
from sanderling.text import shortened

PATIENCE_S = 30.0
MAX_SENT_CHARS = 2_000  # of the prompt, and of the answer
MAX_TOKENS = 512  # some models think before they answer
_SYSTEM = (
    "Write a title of two to seven words for the conversation, in its language."
    " Answer with the title alone: no quotes, no full stop, no Markdown."
)

QUOTES = "\"'\u201c\u201d\u2018\u2019"  # around a title, though it was asked for none

log = logging.getLogger(__name__)


class Titler:
    """
    Titles one session after its first turn. `make` makes the provider of the small model, which is used once.

    A failure is only logged: the session keeps the title that the rule gives it. The cost counts as the session's.
    """

    def __init__(
        self,
        session: Session,
        calls: ModelCalls,
        emit: Callable[[Event], None],
        make: Callable[[], Provider],
    ) -> None:
        self._session = session
        self._calls = calls
        self._emit = emit
        self._make = make

    @property
    def is_due(self) -> bool:
        """Whether the session has just had its first turn."""
        return len(self._session.prompts) == 1 and not self._session.is_resumed

    async def title(self) -> None:
        session = self._session
        before = session.state("title")  # the rule may have made one from the answer
        try:
            with anyio.fail_after(PATIENCE_S):
                title = prompt_title(await self._ask()).strip(QUOTES)
        except (BudgetError, ConfigError, ProviderError, TimeoutError) as error:
            log.warning("the small model has made no title: %s", error)
            return
        if title and session.state("title") == before:  # else the user has set one meanwhile
            session.keep_state("title", title)
            self._emit(TitleChanged(session.title))

    async def _ask(self) -> str:
        provider, text, request = self._make(), "", self._request()
        try:
            async with self._calls.budget.call(request, provider) as answer:
                try:
                    async with aclosing(provider.stream(request)) as items:
                        async for item in items:
                            answer.note(item)
                            if isinstance(item, TextPiece):
                                text += item.text
                finally:
                    self._calls.note_aside(provider.model, answer.usage)
            self._calls.show_usage()
        finally:
            with anyio.CancelScope(shield=True):
                await provider.aclose()
        return text

    def _request(self) -> ModelRequest:
        asked = self._session.prompts[0].text
        answers = (
            block.text
            for message in self._session.history
            if message.role == "assistant"
            for block in message.content
            if isinstance(block, TextBlock)
        )
        said = shortened("\n".join(answers), MAX_SENT_CHARS)
        text = f"The user:\n{shortened(asked, MAX_SENT_CHARS)}\n\nThe answer:\n{said}"
        return ModelRequest(_SYSTEM, (Message("user", (TextBlock(text),)),))
