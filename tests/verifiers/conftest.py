"""Tests with verifiers, of which `VERIFIERS` names the Python: `pip install verifiers uv` in an environment of its own."""

import os
from pathlib import Path

import pytest

VERIFIERS = os.environ.get("VERIFIERS", "")
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not VERIFIERS:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip("VERIFIERS names no Python that has verifiers"))
