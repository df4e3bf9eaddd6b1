import pytest


@pytest.fixture(autouse=True)
def _alone(alone):
    pass
