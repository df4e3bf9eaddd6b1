import os

import pytest

from tests.sandbox.test_sandbox import Place


@pytest.fixture
def place(tmp_path, monkeypatch) -> Place:
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_")):
            monkeypatch.delenv(name)
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(place.home))
    return place
