"""
Adding and removing plugins. A plugin is copied, so that it cannot change after the user has seen what is in it.

The copy has only directories, regular files, and links from one to another: whatever leads out of the plugin is left out, and so are its
`.git`, devices and pipes. It replaces an earlier one in one step.
"""

import errno
import fcntl
import os
import posixpath
import re
import shutil
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sanderling.errors import ConfigError
from sanderling.paths import is_within
from sanderling.platforms.files import exchange
from sanderling.project.plugins import data_directory, own_directory
from sanderling.project.plugins.installed import Plugin, read_plugin
from sanderling.project.plugins.manifest import read_manifest
from sanderling.text import did_you_mean, visible_line

MAX_ENTRIES = 50_000
MAX_BYTES = 500 * 1000 * 1000
MAX_DEPTH = 64
_CHUNK_BYTES = 1 << 20
_HISTORY = ".git"
_ADDRESS = r"[a-z+]+://|[\w.-]+@[\w.-]+:"  # git's


class Added(NamedTuple):
    """The plugin as it was copied, and the names in it that were `left_out`."""

    plugin: Plugin
    left_out: tuple[str, ...]


def add_plugin(directory: str, state_dir: str) -> Added:
    """
    Copy the plugin in `directory` to Sanderling's directory of plugins. An earlier one of the same name is replaced; its data stays.

    Raises:
        ConfigError: it is not a plugin, or cannot be copied; then nothing has changed.
    """
    if re.match(_ADDRESS, directory) and not Path(directory).exists():
        raise ConfigError(
            f"{directory} is not a directory here: download it first, then add the copy"
        )
    root = os.path.realpath(directory)
    plugin = read_plugin(root, state_dir)
    with _changing() as ours:
        target = ours / plugin.name
        if is_within(str(ours), root) or is_within(root, str(ours)):
            raise ConfigError(f"{root} is where plugins are copied to: name another directory")
        copy = ours / f".{plugin.name}.{os.urandom(8).hex()}"
        try:
            left_out = _copied(root, copy)
            if read_plugin(str(copy), state_dir).name != plugin.name:
                raise ConfigError("its name changed while it was copied")
            _replace(copy, target)
        finally:
            _remove(copy)
    return Added(read_plugin(str(target), state_dir), left_out)


def remove_plugin(name: str, state_dir: str, *, with_data: bool = False) -> Path:
    """
    Remove the plugin `name` from Sanderling's directory, and its data if that is wanted; return its path.

    Raises:
        ConfigError: it does not exist, or it cannot be removed.
    """
    with _changing() as ours:
        target = next((path for path in sorted(ours.iterdir()) if name in _names(path)), None)
        if target is None:
            known = {each for path in ours.iterdir() for each in _names(path)}
            raise ConfigError(f"there is no plugin '{name}' in {ours}{did_you_mean(name, known)}")
        aside = ours / f".{name}.{os.urandom(8).hex()}"
        target.rename(aside)
        _remove(aside)
        if with_data:
            _remove(Path(data_directory(state_dir, name)))
    return target


@contextmanager
def _changing() -> Generator[Path]:
    """Yield our directory, which exists, while no other process changes it."""
    ours = own_directory()
    try:
        ours.mkdir(0o700, parents=True, exist_ok=True)
        ours = ours.resolve()
        fd = os.open(ours, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            for path in ours.iterdir():  # of processes that were killed
                if re.fullmatch(r"\..+\.[0-9a-f]{16}", path.name):
                    _remove(path)
            yield ours
        finally:
            os.close(fd)
    except (OSError, shutil.Error) as error:
        raise ConfigError(f"the plugins in {ours} cannot be changed: {error}") from error


def _names(path: Path) -> tuple[str, ...]:
    """Return the names by which the user may call what is in the directory `path`."""
    if path.name.startswith(".") or not path.is_dir():
        return ()
    try:
        return path.name, read_manifest(str(path.resolve())).name
    except ConfigError:
        return (path.name,)


def _copied(root: str, copy: Path) -> tuple[str, ...]:
    """Copy the plugin in `root`, and return the names that are left out."""
    left_out = list[str]()
    size = 0
    copy.mkdir(0o755)
    for entries, (entry, name, directory) in enumerate(_walk(root)):
        target = copy / name
        if entry.is_dir(follow_symlinks=False):
            target.mkdir(0o755)
        elif entry.is_symlink():
            if inside := _inside(root, f"{root}/{name}"):
                target.symlink_to(inside)
            else:
                left_out.append(name)
        elif entry.is_file(follow_symlinks=False):
            size += _copy_file(entry.name, directory, target, MAX_BYTES - size)
        else:
            left_out.append(name)
        if entries >= MAX_ENTRIES or size > MAX_BYTES:
            raise ConfigError(f"it has more than {MAX_ENTRIES:,} files or {MAX_BYTES:,} bytes")
    return tuple(map(visible_line, left_out))


class _Found(NamedTuple):
    """An entry with its name in the plugin. `directory` is open until the next entry."""

    entry: os.DirEntry[str]
    name: str
    directory: int


def _walk(root: str, inside: str = "", parent: int | None = None) -> Iterator[_Found]:
    """
    Yield each entry, a directory before its contents.

    Each directory is opened relative to its parent: the plugin may be in a project, where a command could replace it by a link.
    """
    if inside.count("/") > MAX_DEPTH:
        raise ConfigError(f"its directories are nested more than {MAX_DEPTH} deep")
    path = root if parent is None else posixpath.basename(inside.rstrip("/"))
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda each: each.name)
        for entry in entries:
            name = f"{inside}{entry.name}"
            if name == _HISTORY:
                continue
            yield _Found(entry, name, directory)
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(root, f"{name}/", directory)
    finally:
        os.close(directory)


def _inside(root: str, link: str) -> str:
    """Return the target of a link, relative to its directory; "" if it leads out of the plugin, to nothing, or to what is left out."""
    real = os.path.realpath(link)
    is_left_out = is_within(real, f"{root}/{_HISTORY}") or not Path(real).exists()
    if is_left_out or not is_within(real, root):
        return ""
    return os.path.relpath(real, posixpath.dirname(link))


def _copy_file(name: str, directory: int, target: Path, room: int) -> int:
    """Copy a regular file of at most `room` bytes, or the beginning of a longer one; return its size."""
    size = 0
    fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
    with os.fdopen(fd, "rb") as file, target.open("xb") as copy:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", name)
        while size <= room and (chunk := file.read(_CHUNK_BYTES)):
            copy.write(chunk)
            size += len(chunk)
        os.fchmod(copy.fileno(), 0o755 if found.st_mode & stat.S_IXUSR else 0o644)
    return size


def _replace(copy: Path, target: Path) -> None:
    """Rename `copy` to `target`. If there is one already, the two are exchanged, so there is no moment without it."""
    if not os.path.lexists(target):
        copy.rename(target)
        return
    exchange(copy, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
