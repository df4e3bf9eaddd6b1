"""A provider: it answers each prompt by repeating it."""

from collections.abc import AsyncGenerator

from sanderling.api import (
    BlockDone,
    Endpoint,
    ModelRequest,
    PlainProvider,
    ReplyDone,
    StreamItem,
    TextBlock,
    TextPiece,
)

API_VERSION = 1


class Parrot(PlainProvider):
    def __init__(self, endpoint: Endpoint, model: str) -> None:
        super().__init__(model)
        self.endpoint = endpoint  # its base_url and headers are those of [providers.NAME]

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        """Yield the answer in pieces as it comes, then each complete block, and `ReplyDone`."""
        said = [each.text for each in request.history[-1].content if isinstance(each, TextBlock)]
        text = f"{self.model}: {said[-1]}"
        yield TextPiece(text)
        yield BlockDone(TextBlock(text))
        yield ReplyDone("end_turn")
