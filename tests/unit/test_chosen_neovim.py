"""`make test NVIM=PATH` runs the tests with that Neovim."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.conftest import ROOT, find_neovim, prove_rest


def test_the_neovim_that_was_chosen_is_the_one(monkeypatch, tmp_path):
    nvim = tmp_path / "my nvim"
    nvim.symlink_to("/bin/true")
    monkeypatch.setenv("SANDERLING_NVIM", str(nvim))
    assert find_neovim() == str(nvim)


def test_one_that_cannot_be_run_ends_the_tests_with_its_name(monkeypatch):
    monkeypatch.setenv("SANDERLING_NVIM", "/no/such/nvim")
    with pytest.raises(pytest.exit.Exception, match="no Neovim that runs: /no/such/nvim"):
        find_neovim()


def test_without_a_choice_it_is_an_executable(monkeypatch):
    monkeypatch.setenv("SANDERLING_NVIM", "")
    assert os.access(find_neovim(), os.X_OK)


@pytest.mark.skipif(not shutil.which("make"), reason="no make")
@pytest.mark.parametrize(
    "given, chosen",
    prove_rest(
        [
            ("/a b/nvim", "/a b/nvim"),
            ("sub/nvim", "$PWD/sub/nvim"),
            ("nvim-nightly", "nvim-nightly"),
            (None, ""),
        ]
    ),
)
@pytest.mark.parametrize("target", ["test", "prove"])
def test_make_hands_on_what_is_given_to_it_and_not_what_neovim_sets(
    target, given, chosen, tmp_path: Path
):
    (tmp_path / "sub").mkdir()
    arguments = [f"NVIM={given}"] if given else []
    result = subprocess.run(
        ["make", "-n", "-f", ROOT / "Makefile", target, "ARGS=x", *arguments],
        cwd=tmp_path,
        env=os.environ | {"NVIM": "/run/user/0/nvim.1.0", "MAKEFLAGS": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f'export SANDERLING_NVIM="{chosen}"; ' in result.stdout
