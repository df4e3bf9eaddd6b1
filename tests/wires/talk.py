"""A session whose model is behind a server of one of the formats, and all that it emitted."""

from pathlib import Path
from typing import Any

from sanderling.config import Settings
from sanderling.providers.choice import make_provider
from sanderling.providers.retries import Backoff
from sanderling.session.session import Session
from tests.fuzz.wires import ANTHROPIC, Wire
from tests.talk import BaseTalk

ATTEMPTS = 3


class Talk(BaseTalk):
    """`options` are settings."""

    def __init__(self, wire: Wire, url: str, state_dir: Path, **options: Any) -> None:
        self.wire = wire
        settings = settings_of(wire, url, state_dir, **options)
        session = Session.open(state_dir, "s1", "/project")
        backoff = Backoff(ATTEMPTS, first_s=0)
        super().__init__(session, make_provider(settings), settings=settings, backoff=backoff)


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
