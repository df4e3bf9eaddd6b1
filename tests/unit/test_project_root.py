"""The project of a command line: the nearest repository upwards that is the user's own."""

import os
from pathlib import Path

import pytest

from sanderling.project.root import project_root

OTHER = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the user's, below one in which everybody may make files."""
    here = tmp_path / "shared/mine/deep"
    here.mkdir(parents=True)
    (tmp_path / "shared").chmod(0o1777)
    monkeypatch.chdir(here)
    monkeypatch.delenv("SUDO_UID", raising=False)
    return here


def give(path: Path) -> None:
    os.chown(path, OTHER, OTHER, follow_symlinks=False)


@pytest.mark.parametrize("kind", ["directory", "pointer"])
def test_repository_above_is_the_project(here: Path, kind: str):
    root = here.parent
    if kind == "directory":
        (root / ".git").mkdir()
    else:
        (root / ".git").write_text("gitdir: elsewhere\n")
    assert project_root("") == str(root)


def test_without_a_repository_the_project_is_here(here: Path):
    assert project_root("") == str(here)


@needs_root
@pytest.mark.parametrize("kind", ["directory", "pointer", "link", "target"])
def test_repository_that_another_user_has_made_above_does_not_count(here: Path, kind: str):
    dot_git, elsewhere = here.parents[1] / ".git", here.parents[1] / "elsewhere"
    elsewhere.mkdir()
    if kind == "directory":
        dot_git.mkdir()
    elif kind == "pointer":
        dot_git.write_text(f"gitdir: {elsewhere}\n")
    else:
        dot_git.symlink_to(elsewhere)
    give(elsewhere if kind == "target" else dot_git)
    assert project_root("") == str(here)


@needs_root
def test_own_repository_above_anothers_counts(here: Path):
    (here.parents[0] / ".git").mkdir()
    give(here.parents[0] / ".git")
    (here.parents[1] / ".git").mkdir()
    assert project_root("") == str(here.parents[1])


@needs_root
def test_own_repository_in_a_directory_of_another_user_does_not_count(here: Path):
    (here.parent / ".git").mkdir()
    give(here.parent)
    assert project_root("") == str(here)


@needs_root
def test_repository_of_the_user_who_became_root_counts(here: Path, monkeypatch):
    (here.parent / ".git").mkdir()
    give(here.parent / ".git")
    monkeypatch.setenv("SUDO_UID", str(OTHER))
    assert project_root("") == str(here.parent)


@needs_root
def test_repository_of_roots_counts_for_everybody(here: Path, monkeypatch):
    (here.parent / ".git").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert project_root("") == str(here.parent)
