"""A session whose model is behind a server of one of the formats, and all that it emitted."""

from pathlib import Path
from typing import Any

import anyio

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.parts import Parts
from sanderling.protocol.events import Event
from sanderling.protocol.messages import Prompt
from sanderling.providers.choice import make_provider
from sanderling.providers.retries import Backoff
from sanderling.session.session import Session
from tests.conftest import DEADLINE_S, policy_of
from tests.fuzz.wires import ANTHROPIC, Wire

ATTEMPTS = 3


class Talk:
    """`options` are settings."""

    def __init__(self, wire: Wire, url: str, state_dir: Path, **options: Any) -> None:
        self.wire = wire
        self.events: list[Event] = []
        self.session = Session.open(state_dir, "s1", "/project")
        settings = settings_of(wire, url, state_dir, **options)
        self.provider = make_provider(settings)
        policy = policy_of(self.session)
        parts = Parts(self.session, self.provider, self._emit, policy, settings)
        self.conversation = Conversation(parts)
        self.conversation.parts.calls.backoff = Backoff(ATTEMPTS, first_s=0)

    def _emit(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def say(self, words: str) -> None:
        with anyio.fail_after(DEADLINE_S):
            await self.conversation.run_turn(Prompt(words, words))

    async def aclose(self) -> None:
        self.session.close()
        await self.provider.aclose()


def settings_of(
    wire: Wire,
    url: str,
    state_dir: Path,
    *,
    model: str = "",
    idle_timeout_s: float = 0.5,
    **options: Any,
) -> Settings:
    """The settings that choose `model`, else the first that the format has, at `url`."""
    model = model or wire.models[0]
    if wire is ANTHROPIC:
        options |= {"provider": "anthropic", "base_url": url}
    else:
        [table] = wire.providers(url).values()
        options |= {"providers": {model.partition(":")[0]: table}}
    return Settings(str(state_dir), model=model, idle_timeout_s=idle_timeout_s, **options)
