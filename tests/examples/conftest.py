"""Published skills and hooks, of which `EXAMPLES` names a directory with checkouts: scripts/fetch_examples.sh."""

import os
from pathlib import Path

import pytest

from tests.acp.conftest import begin, home, start
from tests.nvim.conftest import run_agent, start_agent

__all__ = ["begin", "home", "run_agent", "start", "start_agent"]  # fixtures

EXAMPLES = Path(os.environ.get("EXAMPLES", "/nowhere"))
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not EXAMPLES.is_dir():
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip("EXAMPLES names no directory: fetch_examples.sh"))
