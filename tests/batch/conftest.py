"""What the tests of batches share."""

from pathlib import Path

import pytest

from tests.batch.batches import Batches


@pytest.fixture
def home(tmp_path: Path) -> Batches:
    return Batches(tmp_path)
