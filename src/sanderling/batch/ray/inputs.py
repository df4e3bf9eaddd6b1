"""
The files that jobs need, on their way to other machines: projects, repositories, tasks in Harbor's format, and a script of a model.

An archive is made once for each of them, however many tasks use it. A repository arrives as a clone without its remotes and settings, in which
a task's project is as it would be here: with uncommitted changes and new files. An address is fetched here, with the user's credentials.
"""

import shutil
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from anyio import to_thread

from sanderling.batch.copies import CopyError, fetched, make_copy, repository_around
from sanderling.batch.git import GitError, git
from sanderling.batch.jobs import Job
from sanderling.batch.ray.archives import pack, pack_file, unpack
from sanderling.batch.tasks import Task, is_url
from sanderling.providers.choice import SCRIPT_PREFIX
from sanderling.sandbox.kernel.layout import remove_tree

Field = Literal["project", "repository", "harbor", "script"]
DIGEST_CHARS = 32


class Input(msgspec.Struct, frozen=True):
    """A part of an archive that a field of the job names: the whole, or a directory or file in it."""

    field: Field
    digest: str
    inner: str = ""


class Archive(msgspec.Struct, frozen=True):
    """An archive in the object store."""

    digest: str
    ref: Any


class Inputs:
    """The archives of a run. `put` places bytes in the object store; `staging` is a directory for copies while they are archived."""

    def __init__(self, put: Callable[[bytes], Any], staging: Path) -> None:
        self._put = put
        self._staging = staging
        self._archives: dict[tuple[Field, str], Archive] = {}
        self._locks: dict[tuple[Field, str], anyio.Lock] = {}

    async def of(self, job: Job) -> list[tuple[Input, Any]]:
        """
        Return the inputs of a job, each with its archive's reference.

        Raises:
            CopyError: one cannot be archived.
        """
        found: list[tuple[Input, Any]] = []
        for field, source, inner in await to_thread.run_sync(_sources_of, job):
            archive = await self._archive(field, source, job)
            found.append((Input(field, archive.digest, inner), archive.ref))
        return found

    async def _archive(self, field: Field, source: str, job: Job) -> Archive:
        key = field, source
        async with self._locks.setdefault(key, anyio.Lock()):
            if key not in self._archives:
                self._archives[key] = await to_thread.run_sync(self._make, field, source, job)
            return self._archives[key]

    def _make(self, field: Field, source: str, job: Job) -> Archive:
        copy = self._staging / sha256(f"{field} {source}".encode()).hexdigest()[:DIGEST_CHARS]
        self._staging.mkdir(parents=True, exist_ok=True)
        try:
            data = _archived(field, source, job, copy)
        except (OSError, GitError, shutil.Error) as error:
            raise CopyError(str(error)) from error
        finally:
            remove_tree(str(copy))
        return Archive(sha256(data).hexdigest()[:DIGEST_CHARS], self._put(data))


def _sources_of(job: Job) -> list[tuple[Field, str, str]]:
    task = job.task
    found: list[tuple[Field, str, str]] = []
    if task.harbor:
        found.append(("harbor", task.harbor, ""))
    elif task.repository:
        found.append(("repository", task.repository, ""))
    else:
        project = Path(task.project)
        root = (project.is_dir() and repository_around(project)) or project
        inner = str(project.relative_to(root)) if root != project else ""
        found.append(("project", str(root), inner))
    if job.settings.model.startswith(SCRIPT_PREFIX):
        script = job.settings.model.removeprefix(SCRIPT_PREFIX)
        found.append(("script", script, Path(script).name))
    return found


def _archived(field: Field, source: str, job: Job, copy: Path) -> bytes:
    match field:
        case "script":
            return pack_file(Path(source))
        case "harbor":
            return pack(Path(source))
        case "repository":
            local = fetched(source, job.cache) if is_url(source) else Path(source)
            if not local.is_dir():
                raise CopyError(f"there is no repository {source}")
            options = ("--quiet", "--mirror", "--no-hardlinks", "--template=")
            git("clone", *options, "--", local, copy, cwd=copy.parent)
            git("config", "--remove-section", "remote.origin", cwd=copy)
        case "project":
            made = make_copy(Task(id="", project=source), copy, job.cache, without=job.out)
            if made.lender:
                _borrow_nothing(copy)
    return pack(copy)


def _borrow_nothing(clone: Path) -> None:
    """Copy the objects that a clone borrows."""
    git("repack", "-a", "-d", "--quiet", cwd=clone)
    (clone / ".git" / "objects" / "info" / "alternates").unlink()


def with_inputs(
    job: Job, inputs: list[Input], directory: Path, fetch: Mapping[str, Callable[[], bytes]]
) -> Job:
    """
    Return the job with the paths of its inputs in `directory`. `fetch` returns the archive with a digest, if it is not there yet.

    Raises:
        ArchiveError, OSError: one cannot be unpacked.
    """
    task, settings = job.task, job.settings
    for each in inputs:
        path = directory / each.digest
        if not path.exists():
            partial = directory / f"{each.digest}.partial"
            remove_tree(str(partial))
            unpack(fetch[each.digest](), partial)
            partial.rename(path)
        there = str(path / each.inner) if each.inner else str(path)
        if each.field == "script":
            settings = msgspec.structs.replace(settings, model=SCRIPT_PREFIX + there)
        else:
            task = msgspec.structs.replace(task, **{each.field: there})
    return msgspec.structs.replace(job, task=task, settings=settings)
