import pytest

from tests.sandbox.test_sandbox import Place


@pytest.fixture
def place(tmp_path, monkeypatch, plain_environment) -> Place:  # noqa: ARG001
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(place.home))
    return place
