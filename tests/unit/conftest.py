"""What files of a project and of the user's own may steer the agent."""

from pathlib import Path

import pytest

from sanderling.project.places import Places
from sanderling.project.trust.trust import OwnFiles, Trust


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def trust(tmp_path: Path, project: Path) -> Trust:
    return Trust(str(tmp_path / "state"), str(project))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "config"


@pytest.fixture
def own_files(own: Path, trust: Trust) -> OwnFiles:
    return OwnFiles(str(own), trust)


@pytest.fixture
def places(trust: Trust, own_files: OwnFiles) -> Places:
    return Places(trust, (own_files,))
