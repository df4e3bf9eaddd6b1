"""Tasks as data: from a file of JSON lines, or one prompt for many directories."""

import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from sanderling.errors import UsageError
from sanderling.text import did_you_mean

MAX_ID_CHARS = 200
CHECK_TIME_S = 600.0
_SAFE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_DIGEST_CHARS = 8

Seconds = Annotated[float, Meta(gt=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a task; 0: only the limits of the run and of the settings apply."""

    time_s: Annotated[float, Meta(ge=0)] = 0.0
    cost_usd: Annotated[float, Meta(ge=0)] = 0.0
    calls: Annotated[int, Meta(ge=0)] = 0
    check_time_s: Seconds = CHECK_TIME_S


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A task. `harbor` is a directory in Harbor's format, which contains the rest. Other tasks have a `project` or a `repository`.

    `digest` covers the task's definition. It changes with the files of a Harbor task, but not with a project's files.
    """

    id: str
    prompt: str = ""
    project: str = ""
    repository: str = ""
    revision: str = ""
    check: str = ""
    role: str = ""
    limits: Limits = Limits()
    harbor: str = ""
    digest: str = ""


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the file."""

    id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]
    prompt: Annotated[str, Meta(min_length=1)]
    project: str = ""
    repository: str = ""
    revision: str = ""
    check: str = ""
    role: str = ""
    limits: Limits = Limits()


def read_lines(path: Path) -> list[Task]:
    """
    Read a file of JSON lines. Relative directories in it are relative to the file.

    Raises:
        UsageError: names the line and what is wrong in it.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    tasks = list[Task]()
    lines = dict[str, int]()
    for number, line in enumerate(data.removeprefix(BOM_UTF8).split(b"\n"), 1):
        if line.strip():
            try:
                task = _task_of(msgspec.json.decode(line, type=_Line), path.parent)
            except msgspec.DecodeError as error:
                raise UsageError(f"{path}:{number}: {_about_json(error)}") from error
            except (ValueError, RuntimeError, UsageError) as error:  # of paths
                raise UsageError(f"{path}:{number}: {error}") from error
            if (first := lines.setdefault(task.id, number)) != number:
                raise UsageError(
                    f"{path}:{number}: the id '{task.id}' occurs twice, first in line {first}"
                )
            tasks.append(task)
    return unique(tasks, str(path))


def _about_json(error: msgspec.DecodeError) -> str:
    """Return the library's words, with what is missing in them: the key that was meant, or that a task is one line."""
    if not isinstance(error, msgspec.ValidationError) or "got `array`" in str(error):
        return f"{error} (each task is a JSON object in one line)"
    unknown = re.search(r"unknown field `([^`]*)`(.*)", str(error), re.DOTALL)
    keys = (Limits if unknown and "$.limits" in unknown[2] else _Line).__struct_fields__
    return f"{error}{did_you_mean(unknown[1], keys) if unknown else ''}"


def _task_of(line: _Line, directory: Path) -> Task:
    """
    Return the task of a line.

    Raises:
        UsageError, ValueError, RuntimeError: the line is wrong, or a path in it cannot be one.
    """
    if not line.id.isprintable() or not line.id.strip():
        raise UsageError("`id` is blank, or has characters that cannot be shown")
    if not line.prompt.strip():
        raise UsageError("`prompt` is blank")
    if bool(line.project) == bool(line.repository):
        raise UsageError("a task needs either `project` or `repository`")
    if line.revision and not line.repository:
        raise UsageError("`revision` needs a `repository`")
    repository = line.repository
    if repository and not is_url(repository):
        repository = str((directory / Path(repository).expanduser()).resolve())
    project = line.project and str((directory / Path(line.project).expanduser()).resolve())
    return Task(
        id=line.id,
        prompt=line.prompt,
        project=project,
        repository=repository,
        revision=line.revision,
        check=line.check,
        role=line.role,
        limits=line.limits,
        digest=digest_of([msgspec.json.encode(line)]),
    )


def is_url(repository: str) -> bool:
    """Return whether git takes the text for an address: `https://…`, or `host:path`, as in git-clone(1)."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/:]+:", repository))


def for_each(patterns: Sequence[str], prompt: str, check: str, here: Path) -> list[Task]:
    """
    Return a task for each directory that a pattern matches.

    Raises:
        UsageError: a pattern matches no directory, or cannot be used.
    """
    found = dict[Path, None]()
    for pattern in patterns:
        try:
            base, relative = (
                (Path("/"), pattern.lstrip("/")) if pattern[:1] == "/" else (here, pattern)
            )
            matches = sorted(path for path in base.glob(relative) if path.is_dir())
        except (ValueError, NotImplementedError, IndexError) as error:
            raise UsageError(f"--each '{pattern}': {error}") from error
        if not matches:
            raise UsageError(f"--each '{pattern}' matches no directory")
        found |= dict.fromkeys(matches)
    return [
        Task(
            id=str(path.relative_to(here)) if path.is_relative_to(here) else str(path),
            prompt=prompt,
            project=str(path.resolve()),
            check=check,
            digest=digest_of([prompt.encode(), check.encode()]),
        )
        for path in found
    ]


def digest_of(parts: Iterable[bytes]) -> str:
    """Return the digest of a task's definition. It has no absolute paths, so it is the same on another machine."""
    digest = sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def with_limits(task: Task, limits: Limits) -> Task:
    """Return the task with `limits` in place of missing ones."""
    own = task.limits
    merged = msgspec.structs.replace(
        own,
        time_s=own.time_s or limits.time_s,
        cost_usd=own.cost_usd or limits.cost_usd,
        calls=own.calls or limits.calls,
    )
    return msgspec.structs.replace(task, limits=merged)


def unique(tasks: Sequence[Task], where: str) -> list[Task]:
    """
    Return the tasks.

    Raises:
        UsageError: no task is there, or two have the same id.
    """
    if not tasks:
        raise UsageError(f"{where} has no tasks")
    seen = set[str]()
    for task in tasks:
        if task.id in seen:
            raise UsageError(f"{where}: the id '{task.id}' occurs twice")
        seen.add(task.id)
    return list(tasks)


def directory_name(task_id: str) -> str:
    """Return a name for files that belong to the task: its id, if that can be one, else what is similar to it, and unique."""
    # An id in the form of such a name would get the directory of another task.
    is_similar = re.fullmatch(rf".*-[0-9a-f]{{{_DIGEST_CHARS}}}", task_id, re.DOTALL)
    if re.fullmatch(_SAFE_NAME, task_id) and "__" not in task_id and not is_similar:
        return task_id
    similar = re.sub(r"[^A-Za-z0-9.-]+", "_", task_id).strip("_.-")[:60] or "task"
    return f"{similar}-{sha256(task_id.encode()).hexdigest()[:_DIGEST_CHARS]}"


def shard_of(tasks: Sequence[Task], index: int, count: int) -> Iterator[Task]:
    """Yield the tasks of one shard, from 1. The division depends on the ids only, not on the order of the tasks."""
    ordered = sorted(tasks, key=lambda task: sha256(task.id.encode()).digest())
    chosen = {task.id for task in ordered[index - 1 :: count]}
    return (task for task in tasks if task.id in chosen)
