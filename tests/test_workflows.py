"""What the workflows of CI run."""

import pytest

from tests.conftest import HARNESSES, ROOT

NIGHTLY = (ROOT / ".github" / "workflows" / "nightly.yml").read_text()


@pytest.mark.parametrize("folder", HARNESSES)
def test_the_tests_of_each_harness_run_at_night(folder: str):
    [command] = [line for line in NIGHTLY.splitlines() if "make prove ARGS=" in line]
    assert f"tests/{folder}" in command
    assert f"{HARNESSES[folder]}: ${{{{ runner.temp }}}}/{folder}/bin/python" in NIGHTLY
