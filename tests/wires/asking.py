"""A provider that is asked without a conversation, and what it answers."""

from collections.abc import Sequence
from contextlib import aclosing

import anyio
import pytest

from sanderling.errors import ProviderError
from sanderling.protocol.messages import Message, TextBlock
from sanderling.providers import ModelRequest, Provider, StreamItem, TextPiece
from tests.conftest import DEADLINE_S

HISTORY = [Message("user", (TextBlock("Good morning."),))]
REQUEST = ModelRequest("Be brief.", HISTORY)


async def answer_to(request: ModelRequest, provider: Provider) -> list[StreamItem]:
    with anyio.fail_after(DEADLINE_S):
        async with aclosing(provider.stream(request)) as stream:
            return [item async for item in stream]


async def ask(provider: Provider, history: list[Message] = HISTORY) -> list[StreamItem]:
    return await answer_to(ModelRequest("Be brief.", history), provider)


async def fail(provider: Provider, request: ModelRequest = REQUEST) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        await answer_to(request, provider)
    return raised.value


async def run_out(provider: Provider) -> tuple[ProviderError | None, list[StreamItem]]:
    """Ask: the error, if there is one, and what came before it."""
    items: list[StreamItem] = []
    with anyio.fail_after(DEADLINE_S):
        try:
            async with aclosing(provider.stream(REQUEST)) as stream:
                async for item in stream:
                    items.append(item)  # noqa: PERF401  they are needed when it raises
        except ProviderError as error:
            return error, items
    return None, items


def said(items: Sequence[StreamItem]) -> str:
    return "".join(item.text for item in items if isinstance(item, TextPiece))
