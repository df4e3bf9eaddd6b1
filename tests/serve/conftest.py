"""Servers for tests: each in a home of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acp.talk import Home
from tests.serve.talk import Server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def serve(home: Home) -> Iterator[Callable[..., Server]]:
    """Start servers; at the end each is told to go, and goes."""
    servers: list[Server] = []

    def start(*arguments: str, **more: str) -> Server:
        servers.append(Server(home, *(arguments or ("--model", "demo")), **more))
        return servers[-1]

    yield start
    for server in servers:
        try:
            if server.process.poll() is None:
                server.finish()
        finally:
            server.kill()
