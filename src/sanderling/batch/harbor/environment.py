"""The files of a task's environment: the directories that it finds in /, made from its Dockerfile and its files."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import sanderling
from sanderling.batch.copies import copy_file
from sanderling.batch.harbor.dockerfile import Image, read_dockerfile
from sanderling.batch.harbor.task_file import TaskFile, UnsupportedError
from sanderling.batch.root import can_be_placed
from sanderling.errors import ConfigError
from sanderling.paths import is_within

DEFAULT_WORKDIR = "/app"
LOGS, TESTS = "logs", "tests"
LOG_DIRECTORIES = ("agent", "verifier", "artifacts")
PARTS = ("task.toml", "instruction.md", "environment", "environment/Dockerfile", "tests", "workdir")
"""The files and directories of a task, or of a step, that are read by their names."""
COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml")


class Environment(NamedTuple):
    """
    Where the parts of the environment are kept.

    `places` are the directories in / by their names, `workdir` is the agent's project, and `env` are variables for all commands.
    """

    places: dict[str, Path]
    workdir: str
    env: dict[str, str]

    def kept(self, path: str) -> Path:
        """Return where the absolute `path` inside is kept."""
        _, name, *rest = PurePosixPath(path).parts
        return self.places[name].joinpath(*rest)


def plan_environment(
    task: TaskFile, directory: Path, kept: Path, variables: Mapping[str, str]
) -> tuple[Environment, Image]:
    """
    Return the environment, with its directories below `kept`, and the image that fills it. `variables` are the task's, resolved.

    Raises:
        UnsupportedError: it needs what is not here.
    """
    image = _image_of(task, directory / "environment")
    workdir = os.path.normpath(task.environment.workdir or image.workdir or DEFAULT_WORKDIR)
    targets = [workdir, DEFAULT_WORKDIR, *image.directories, *(to for _, to in image.copies)]
    names = {LOGS, TESTS}
    for target in targets:
        parts = PurePosixPath(target).parts
        name = parts[1] if len(parts) > 1 else ""
        if parts[:1] != ("/",) or not can_be_placed(name):
            raise UnsupportedError(f"it needs files of its own in {target}")
        names.add(name)
    places = {name: kept / name for name in names}
    env = image.env | dict(variables)
    return Environment(places, workdir, env), image


def _image_of(task: TaskFile, context: Path) -> Image:
    if any((context / name).exists() for name in COMPOSE):
        raise UnsupportedError("it needs containers that work together (docker-compose)")
    dockerfile = context / "Dockerfile"
    if dockerfile.is_file():
        return read_dockerfile(dockerfile.read_text(encoding="utf-8"), context)
    if image := task.environment.docker_image:
        raise UnsupportedError(f"it needs the image {image}")
    return Image(copies=[(context, f"{DEFAULT_WORKDIR}/")] if context.is_dir() else [])


def check_links(directory: Path, steps: Iterable[str]) -> None:
    """
    Check that no part of the task in `directory` is a link to files outside of it, which would be the user's.

    Raises:
        ConfigError: one is.
    """
    root = directory.resolve()
    places = (directory, *(directory / "steps" / name for name in steps))
    for path in (place / part for place in places for part in PARTS):
        if not path.resolve().is_relative_to(root):
            raise ConfigError(f"{path.relative_to(directory)} is a link that leads out of the task")


def check_places(environment: Environment, *needed: Path) -> None:
    """
    Check that no directory of the environment would hide one that is `needed`.

    Raises:
        UnsupportedError: one would.
    """
    ours = (sys.prefix, sys.base_prefix, Path(sanderling.__file__).parent, Path.home(), *needed)
    for name in environment.places:
        for path in map(os.path.realpath, map(str, ours)):
            if is_within(path, f"/{name}"):
                raise UnsupportedError(f"it needs /{name}, where {path} is")


def fill(environment: Environment, image: Image) -> None:
    """Make the directories and copy the files, as the Dockerfile says."""
    for place in environment.places.values():
        place.mkdir(parents=True)
    for name in LOG_DIRECTORIES:
        (environment.places[LOGS] / name).mkdir()
    for directory in (environment.workdir, *image.directories):
        environment.kept(directory).mkdir(parents=True, exist_ok=True)
    for source, target in image.copies:
        to = environment.kept(target)
        if source.is_dir():
            copy_into(
                source,
                to,
                lambda path, context=source: path.parent != context or _is_part_of_image(path),
            )
        else:
            to = to / source.name if target.endswith("/") else to
            to.parent.mkdir(parents=True, exist_ok=True)
            to.unlink(missing_ok=True)
            copy_file(source, to)


def _is_part_of_image(path: Path) -> bool:
    return path.name not in ("Dockerfile", ".dockerignore")


def copy_into(source: Path, target: Path, is_copied: Callable[[Path], bool] = bool) -> None:
    """Copy what is in the directory `source` and `is_copied` into `target`, over what is there. Links are copied as links."""
    target.mkdir(parents=True, exist_ok=True)
    for path in source.iterdir():
        to = target / path.name
        if not is_copied(path):
            continue
        if path.is_dir() and not path.is_symlink():
            if to.is_symlink():  # a command may have made it, to a directory outside
                to.unlink()
            copy_into(path, to, is_copied)
        elif path.is_symlink() or path.is_file():
            if to.is_symlink() or to.is_file():
                to.unlink()
            if path.is_symlink():
                to.symlink_to(path.readlink())
            else:
                copy_file(path, to)


def keep(source: Path, target: Path) -> None:
    """Copy the files that a task wrote in `source` to `target`, a directory of the trial. Pipes and devices are left out."""
    if source.is_dir() and not source.is_symlink():
        copy_into(source, target)
