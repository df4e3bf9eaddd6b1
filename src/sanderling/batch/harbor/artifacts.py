"""Artifacts: the files of a task's environment that stay with its trial, and Harbor's list of them, `manifest.json`."""

import shutil
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from sanderling.batch.harbor.environment import copy_into
from sanderling.batch.harbor.task_file import Artifact
from sanderling.json_lines import encoded

PUBLISHED = "/logs/artifacts"
"""The directory that is kept without being named."""
MANIFEST = "manifest.json"


def keep_artifacts(
    named: Iterable[str | Artifact], workdir: Path, is_own: Callable[[Path], bool], to: Path
) -> None:
    """
    Copy the artifacts to the directory `to`, with the manifest. One whose place overlaps with an earlier one's is skipped.

    `is_own` recognizes paths of the task. The rest of the root directory is this machine's, and not copied.
    """
    artifacts = [Artifact(each) if isinstance(each, str) else each for each in named]
    if not any(each.source.rstrip("/") == PUBLISHED for each in artifacts):
        artifacts.insert(0, Artifact(PUBLISHED))
    taken = [PurePosixPath(MANIFEST)]
    manifest = [_keep(artifact, workdir, is_own, to, taken) for artifact in artifacts]
    to.mkdir(parents=True, exist_ok=True)
    (to / MANIFEST).write_bytes(encoded(manifest) + b"\n")


def _keep(
    artifact: Artifact,
    workdir: Path,
    is_own: Callable[[Path], bool],
    to: Path,
    taken: list[PurePosixPath],
) -> dict[str, Any]:
    """Copy an artifact, add its place to `taken`, and return its entry in the manifest."""
    source = workdir / artifact.source
    parts = PurePosixPath(artifact.destination or source).parts
    place = PurePosixPath(*(part for part in parts if part not in ("/", "..")))
    is_directory = source.is_dir()
    status = "skipped"
    if not any(place.is_relative_to(each) or each.is_relative_to(place) for each in taken):
        taken.append(place)
        status = _copy(source, to / place, artifact.exclude) if is_own(source) else "failed"
    return {
        "source": artifact.source,
        "destination": f"artifacts/{place}",
        "type": "directory" if is_directory else "file",
        "status": status,
        "service": artifact.service,
        "exclude": artifact.exclude if is_directory else (),
    }


def _copy(source: Path, target: Path, exclude: tuple[str, ...]) -> str:
    """Copy a file or directory, unless a link leads to it: the task could have it lead anywhere. Return Harbor's word for what was done."""
    if source.resolve() != source:
        return "failed"
    if source.is_dir():

        def is_copied(path: Path) -> bool:
            return not _is_excluded(path.relative_to(source), exclude)

        copy_into(source, target, is_copied)
        return "ok" if any(target.iterdir()) else "empty"
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        return "ok"
    return "failed"


def _is_excluded(path: PurePath, patterns: tuple[str, ...]) -> bool:
    """Return whether `tar --exclude` leaves the path out: a pattern can match any of its ends, and `*` matches `/`, too."""
    ends = ("/".join(path.parts[first:]) for first in range(len(path.parts)))
    return any(fnmatchcase(end, pattern.removeprefix("./")) for end in ends for pattern in patterns)
