"""
Build runnable task directories from `eval/tasks`.

    python eval/fetch.py [--only NAME]... [--cache CACHE] DIRECTORY

A task whose `task.toml` names a `source` has the files of a source distribution, which pip downloads by version and hash
(`eval/sources.toml`), with the task's `plant.patch` applied. Files in `environment/` come on top. Then the directory becomes a git
repository with one commit, and `prepare.sh` adds what a repository cannot store, such as a large file. Everything is the same
in each build, so the digests of tasks are as well. A second run needs no network.
"""

import argparse
import email
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
TASKS = HERE / "tasks"
LICENCES = {
    "Apache-2.0": ("apache-2.0", "apache 2.0", "apache software license"),
    "BSD": ("bsd", "bsd license", "bsd-2-clause", "bsd-3-clause"),
    "ISC": ("isc", "isc license", "isc license (iscl)"),
    "MIT": ("mit", "mit license"),
    "PSF": ("psf", "psf-2.0", "python software foundation license"),
}
"""The accepted licences, each with its names in the metadata of packages."""
BACKENDS = (
    "flit_core.buildapi",
    "hatchling.build",
    "poetry.core.masonry.api",
    "setuptools.build_meta",
)
BACKEND = '''\
"""Answers pip with the metadata that a source distribution contains, so none of its code runs."""

import email
import pathlib
import shutil
import sys

__legacy__ = sys.modules[__name__]


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    metadata = email.message_from_string(pathlib.Path("PKG-INFO").read_text("utf-8"))
    name = metadata["Name"].replace("-", "_").replace(".", "_")
    target = pathlib.Path(directory, f"{name}-{metadata['Version']}.dist-info")
    target.mkdir()
    shutil.copyfile("PKG-INFO", target / "METADATA")
    return target.name
'''
DOCKERFILE = """\
FROM python:3.13
WORKDIR /app
COPY . .
"""
"""For a task without one of its own. Its image has git, make and sh as well."""
COMMIT_DATE = "2025-01-01T00:00:00Z"
NOT_IN_BUILD = ("environment", "plant.patch", "prepare.sh", "wrong.patch", "__pycache__")


class FetchError(Exception):
    """A task cannot be built: `str(error)` says why, and what to do."""


class Source(NamedTuple):
    """A source distribution. `files` are patterns of the files that tasks get; they include the licence."""

    name: str
    version: str
    sha256: str
    licence: str
    files: tuple[str, ...]

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}"


def read_sources(path: Path = HERE / "sources.toml") -> dict[str, Source]:
    """Return the sources by their requirements."""
    tables = tomllib.loads(path.read_text("utf-8"))
    sources = [
        Source(name, table["version"], table["sha256"], table["licence"], tuple(table["files"]))
        for name, table in tables.items()
    ]
    return {source.requirement: source for source in sources}


def source_of(task: Path) -> str:
    """Return the requirement that the task names; "" if it has only files of its own."""
    text = (task / "task.toml").read_text("utf-8")
    metadata: Mapping[str, Any] = tomllib.loads(text).get("metadata", {})
    return metadata.get("source", "")


def build(names: Iterable[str], directory: Path, cache: Path) -> list[Path]:
    """
    Build tasks in `directory`, each in a directory with its name, which replaces an earlier build. Return them.

    Raises:
        FetchError: one cannot be built.
    """
    tasks = _tasks_named(names)
    known = read_sources()
    needed = {task: source_of(task) for task in tasks}
    for task, requirement in needed.items():
        if requirement and requirement not in known:
            raise FetchError(f"{task.name}: {requirement} is not in eval/sources.toml; add it")
    found = archives({known[each] for each in needed.values() if each}, cache)
    directory.mkdir(parents=True, exist_ok=True)
    built = list[Path]()
    for task, requirement in needed.items():
        with tempfile.TemporaryDirectory(prefix=f".{task.name}-", dir=directory) as partial:
            whole = Path(partial, task.name)
            source = known.get(requirement)
            _build_task(task, whole, source, found.get(requirement))
            target = directory / task.name
            shutil.rmtree(target, ignore_errors=True)
            built.append(whole.rename(target))
    return built


def _tasks_named(names: Iterable[str]) -> list[Path]:
    tasks = {path.parent.name: path.parent for path in sorted(TASKS.glob("*/task.toml"))}
    if unknown := [name for name in names if name not in tasks]:
        raise FetchError(f"there is no task '{unknown[0]}' in {TASKS}")
    return [tasks[name] for name in names] or list(tasks.values())


# --- source distributions ---------------------------------------------------------------------------------------------


def archives(sources: set[Source], cache: Path) -> dict[str, Path]:
    """Return the verified archives by requirement. Missing ones are downloaded."""
    cache.mkdir(parents=True, exist_ok=True)
    found = {source.requirement: cache / f"{source.sha256}.tar.gz" for source in sources}
    missing = [each for each in sorted(sources) if not _has_hash(found[each.requirement], each)]
    if missing:
        _download(missing, cache)
    return found


def _has_hash(path: Path, source: Source) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256


def _download(sources: list[Source], cache: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as name:
        place = Path(name)
        for backend in BACKENDS:
            module = place.joinpath("backends", *backend.split(".")).with_suffix(".py")
            module.parent.mkdir(parents=True, exist_ok=True)
            module.write_text(BACKEND)
        for package in (place / "backends").rglob("*/"):
            (package / "__init__.py").touch()
        lines = (f"{each.requirement} --hash=sha256:{each.sha256}\n" for each in sources)
        (place / "requirements.txt").write_text("".join(lines))
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", ":all:", "--no-build-isolation", "--use-pep517"]
        command += ["--require-hashes", "--dest", str(place / "files")]
        command += ["--requirement", str(place / "requirements.txt")]
        # A constraint of the user for another version would contradict the table.
        env = os.environ | {"PYTHONPATH": str(place / "backends"), "PIP_CONSTRAINT": ""}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            names = ", ".join(each.requirement for each in sources)
            said = "\n".join(errors) or done.stderr.strip()[-2_000:]
            raise FetchError(
                f"pip cannot download {names}:\n{said}\n"
                "Check the network and pip's settings, and that this Python has pip. A second run needs no network."
            )
        by_hash = {
            hashlib.sha256(path.read_bytes()).hexdigest(): path
            for path in (place / "files").iterdir()
        }
        for source in sources:
            if source.sha256 not in by_hash:
                raise FetchError(f"pip downloaded no archive of {source.requirement} with its hash")
            by_hash[source.sha256].replace(cache / f"{source.sha256}.tar.gz")


def unpack(archive: Path, source: Source, to: Path) -> None:
    """Unpack the files of the source, without the directory that contains all of them."""
    with tarfile.open(archive) as tar:
        members = {member.name.partition("/")[2]: member for member in tar if member.isfile()}
        _check_licence(tar, members, source)
        names = [
            name for name in members if any(fnmatch(name, pattern) for pattern in source.files)
        ]
        for pattern in source.files:
            if not any(fnmatch(name, pattern) for name in names):
                raise FetchError(f"{source.requirement} has no file '{pattern}'")
        for name in names:
            path = to / name
            if ".." in Path(name).parts or not path.resolve().is_relative_to(to.resolve()):
                raise FetchError(f"{source.requirement} has a file with the name {name!r}")
            content = tar.extractfile(members[name])
            assert content
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
            path.chmod(0o755 if members[name].mode & 0o100 else 0o644)


def _check_licence(
    tar: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], source: Source
) -> None:
    """Check that the package has the licence of the table, and that its text is among the files."""
    if source.licence not in LICENCES:
        accepted = ", ".join(LICENCES)
        raise FetchError(f"{source.requirement}: '{source.licence}' is none of {accepted}")
    content = tar.extractfile(members["PKG-INFO"]) if "PKG-INFO" in members else None
    metadata = email.message_from_bytes(content.read() if content else b"")
    named = list(_named_licences(metadata.items()))
    if not any(name.lower() in LICENCES[source.licence] for name in named):
        raise FetchError(
            f"{source.requirement} is not under {source.licence}: its metadata has {named}"
        )
    texts = [name for name in members if name.upper().startswith(("LICENSE", "LICENCE"))]
    if not any(fnmatch(name, pattern) for name in texts for pattern in source.files):
        raise FetchError(f"{source.requirement}: add the file of its licence to `files`: {texts}")


def _named_licences(headers: Iterable[tuple[str, str]]) -> Iterator[str]:
    for name, value in headers:
        if name == "Classifier" and value.startswith("License ::"):
            yield value.rpartition(" :: ")[2]
        elif name in ("License", "License-Expression"):
            yield from (part.strip(" ()") for part in value.split(" OR "))


# --- tasks ------------------------------------------------------------------------------------------------------------


def _build_task(task: Path, to: Path, source: Source | None, archive: Path | None) -> None:
    shutil.copytree(task, to, symlinks=True, ignore=shutil.ignore_patterns(*NOT_IN_BUILD))
    app = to / "environment"
    app.mkdir()
    if source and archive:
        unpack(archive, source, app)
        if (task / "plant.patch").is_file():
            apply_patch(task / "plant.patch", app)
    if (task / "environment").is_dir():
        shutil.copytree(
            task / "environment",
            app,
            symlinks=True,
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__", "Dockerfile"),
        )
    _commit(app)
    # Docker would copy it to /app with the other files, where git must not show it.
    dockerfile = task / "environment" / "Dockerfile"
    text = dockerfile.read_text("utf-8") if dockerfile.is_file() else DOCKERFILE
    (app / "Dockerfile").write_text(text)
    (app / ".git" / "info").mkdir()
    (app / ".git" / "info" / "exclude").write_text("/Dockerfile\n")
    script = task / "prepare.sh"
    if script.is_file():
        _run(task.name, ["sh", str(script)], app)


def apply_patch(patch: Path, directory: Path) -> None:
    """
    Apply a patch to the files of a directory.

    Raises:
        FetchError: it does not fit.
    """
    git("apply", "--whitespace=nowarn", str(patch), cwd=directory, what=str(patch))


def _commit(directory: Path) -> None:
    """Make the directory a repository with one commit that is the same each time."""
    git("init", "--quiet", "--template=", "--initial-branch=main", cwd=directory)
    git("add", "--all", "--force", cwd=directory)
    git("commit", "--quiet", "--allow-empty", "--no-verify", "--message=Import", cwd=directory)
    # An index has the times of files. This one has none, and git adds them when it needs them.
    (directory / ".git" / "index").unlink()
    git("read-tree", "HEAD", cwd=directory)


def git(*arguments: str, cwd: Path, what: str = "git") -> None:
    """Run git without the user's configuration."""
    _run(what, ["git", "-c", "core.autocrlf=false", "-c", "gc.auto=0", *arguments], cwd)


def _run(what: str, command: list[str], cwd: Path) -> None:
    names = ("GIT_AUTHOR", "GIT_COMMITTER")
    own = {f"{name}_{part}": value for name in names for part, value in _IDENTITY.items()}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    # Otherwise git would take the paths of a directory in a repository for those of that one.
    limits = {"GIT_CEILING_DIRECTORIES": str(cwd.resolve().parent)}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=inherited | own | limits | quiet,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise FetchError(f"{what}: {' '.join(command[:2])} failed: {done.stderr.strip()}")


_IDENTITY = {"NAME": "Sanderling", "EMAIL": "eval@localhost", "DATE": COMMIT_DATE}


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "sanderling-eval")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="fetch.py", description="Build runnable task directories from eval/tasks."
    )
    parser.add_argument("directory", type=Path, help="where the tasks are built")
    parser.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="only this task"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_cache(), help="where downloads are kept"
    )
    arguments = parser.parse_args()
    try:
        built = build(arguments.only, arguments.directory, arguments.cache)
    except (FetchError, OSError) as error:
        print(f"fetch.py: {error}", file=sys.stderr)
        return 1
    print(f"{len(built)} tasks in {arguments.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
