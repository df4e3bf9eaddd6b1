"""The patches of a run, and the projects that they belong to."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import msgspec

from sanderling.batch.copies import repository_around
from sanderling.batch.git import GitError, git, names_in
from sanderling.batch.results import Result
from sanderling.batch.tasks import is_url
from sanderling.batch.trial import PATCH

Applied = Literal["applied", "already applied"]


class Patch(NamedTuple):
    """
    A patch, and the directory that its paths are relative to. Without one, `problem` says why.

    `part` is the project in that directory, relative to it, if the task was about a part of a repository.
    """

    result: Result
    path: Path
    root: Path | None
    problem: str = ""
    part: str = ""

    @property
    def _place(self) -> tuple[Path, dict[str, str]]:
        assert self.root
        # A directory that no repository tracks may be in one: git must not take the paths for that one's.
        ceiling = (
            {}
            if (self.root / ".git").exists()
            else {"GIT_CEILING_DIRECTORIES": str(self.root.parent)}
        )
        return self.root, ceiling

    def summary(self) -> str:
        """
        Return what it changes, file by file.

        Raises:
            GitError: it is not a patch.
        """
        root, env = self._place
        return git("apply", "--stat", "--summary", self.path, cwd=root, env=env).decode(
            errors="replace"
        )

    def apply(self) -> Applied:
        """
        Change the project's files, all or none. The index stays.

        Raises:
            GitError: it does not fit the files, or changes others than the project's.
        """
        root, env = self._place
        self._check_part()
        try:
            git("apply", self.path, cwd=root, env=env, is_foreign=True)
        except GitError:
            try:
                reverse = ("apply", "--reverse", "--check")
                git(*reverse, self.path, cwd=root, env=env, is_foreign=True)
            except GitError:
                pass
            else:
                return "already applied"
            raise
        return "applied"

    def _check_part(self) -> None:
        """
        Check that only the task's part of the repository changes. The agent could change no other, but a patch of a node may be anything.

        Raises:
            GitError: another part changes, or it is not a patch.
        """
        if not self.part:
            return
        root, env = self._place
        for line in names_in(git("apply", "--numstat", "-z", self.path, cwd=root, env=env)):
            name = line.split("\t", 2)[-1]
            if not PurePosixPath(name).is_relative_to(self.part):
                raise GitError(f"it changes {name}, which is not in {self.part}")
        # Of a rename, only the new name is in that list. Our patches have none.
        lines = git("apply", "--summary", self.path, cwd=root, env=env).splitlines()
        if renames := [line for line in lines if line.startswith((b" rename ", b" copy "))]:
            raise GitError(f"it has a{os.fsdecode(renames[0])}, which could be of another part")


class _TaskConfig(msgspec.Struct):
    path: str


class _TrialConfig(msgspec.Struct):
    task: _TaskConfig


def patches_of(out: Path, results: list[Result], min_reward: float | None) -> Iterator[Patch]:
    """Yield a patch for each task that has one: of several repetitions, that with the best reward."""
    best: dict[str, Result] = {}
    for result in sorted(results, key=lambda each: (_reward(each), -each.attempt)):
        if result.patch and (min_reward is None or _reward(result) >= min_reward):
            best[result.id] = result
    for task_id in sorted(best):
        yield _patch_of(out, best[task_id])


def _reward(result: Result) -> float:
    return float("-inf") if result.reward is None else result.reward


def _patch_of(out: Path, result: Result) -> Patch:
    trial = out / result.trial
    path = (trial / PATCH).absolute()
    try:
        source = msgspec.json.decode(
            (trial / "config.json").read_bytes(), type=_TrialConfig
        ).task.path
    except (OSError, msgspec.DecodeError) as error:
        return Patch(result, path, None, f"its project is not known: {error}")
    directory = Path(source)
    if is_url(source) or not directory.is_dir():
        return Patch(result, path, None, f"{source} is not a directory here")
    if (directory / "task.toml").exists():
        return Patch(result, path, None, "a task in Harbor's format has no project")
    real = Path(os.path.realpath(directory))
    root = repository_around(directory) or real
    part = str(real.relative_to(root)) if real != root and real.is_relative_to(root) else ""
    return Patch(result, path, root, part=part)
