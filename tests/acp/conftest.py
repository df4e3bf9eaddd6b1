"""A home for each test, and the agents that it starts there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acp.talk import Agent, Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def start(home: Home) -> Iterator[Callable[..., Agent]]:
    """Start agents; what is still running at the end is ended, and all that was said held against the schema."""
    agents: list[Agent] = []

    def start(*arguments: str, **more: Any) -> Agent:
        agents.append(home.start(*arguments, **more))
        return agents[-1]

    yield start
    for agent in agents:
        try:
            if agent.process.poll() is None:
                agent.finish()
        finally:
            agent.kill()


@pytest.fixture
def begin(start: Callable[..., Agent]) -> Callable[..., Agent]:
    """Start an agent with a model, and initialize it with the client's capabilities."""

    def begin(model: str, **capabilities: object) -> Agent:
        agent = start("--model", model)
        agent.initialize(**capabilities)
        return agent

    return begin
