"""
Directories as bytes, in tar's format.

An archive may come from a node on which something went wrong. So unpacking accepts directories, files and links with plain relative names, and
makes links last, none below another: nothing is written through one. What it contains has limits, because a few kilobytes can unpack to a
full disk.

The extraction filters of tarfile do not fit. "data" refuses absolute links and links out of the directory, which projects and trials have; "tar" lets
hard links lead anywhere. And releases of Python before June 2025 have ways around both (CVE-2025-4517).
"""

import gzip
import io
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from sanderling.errors import SanderlingError

COMPRESSION = 1  # most of it is compressed already: git's packs
PERMISSIONS = 0o777
MAX_BYTES = 16 << 30
MAX_RATIO = 200
"""Of the content to the archive. gzip gets 1,000 from zeros, and less than 20 from source code and logs."""
MIN_LIMIT_BYTES = 1 << 30
"""This much may always be in an archive, such as a sparse file."""
CHUNK_BYTES = 1 << 20


class ArchiveError(SanderlingError):
    """The archive is not what `pack` makes."""


def pack(directory: Path) -> bytes:
    """Return an archive of a directory's files, links and directories. Pipes, sockets and devices are left out."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=COMPRESSION) as archive:
        for path in _below(directory):
            _add(archive, path, path.relative_to(directory).as_posix())
    return data.getvalue()


def pack_file(path: Path) -> bytes:
    """
    Return an archive of one file, under its name.

    Raises:
        OSError: it cannot be read.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=COMPRESSION) as archive:
        _add(archive, path, path.name)
    return data.getvalue()


def _below(directory: Path) -> Iterator[Path]:
    for root, directories, files in os.walk(directory):
        for name in sorted((*directories, *files)):
            yield Path(root, name)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one entry. A file with two names becomes two files."""
    found = path.lstat()
    entry = tarfile.TarInfo(name)
    entry.mode = found.st_mode & PERMISSIONS
    entry.mtime = int(found.st_mtime)
    if stat.S_ISDIR(found.st_mode):
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    elif stat.S_ISLNK(found.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        archive.addfile(entry)
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as file:
            entry.size = os.fstat(file.fileno()).st_size
            archive.addfile(entry, file)


def unpack(data: bytes, directory: Path) -> None:
    """
    Unpack an archive into a directory, which is made and must not exist.

    Raises:
        ArchiveError: it is damaged, or has a name that leads elsewhere.
        OSError: a file cannot be written.
    """
    directory.mkdir(parents=True)
    links: list[tarfile.TarInfo] = []
    modes: list[tuple[Path, int]] = []
    left = min(MAX_BYTES, max(MIN_LIMIT_BYTES, MAX_RATIO * len(data)))
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            for entry in archive:
                path = directory / _checked(entry.name)
                left -= entry.size
                if left < 0:
                    raise ArchiveError("the archive has too much in it for its size")
                if entry.issym():
                    links.append(entry)
                elif entry.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                    modes.append((path, entry.mode & PERMISSIONS))
                elif entry.isreg() and (content := archive.extractfile(entry)):
                    _write(path, content, entry)
                else:
                    raise ArchiveError(f"the archive has something else under {entry.name}")
    except (tarfile.TarError, EOFError, OverflowError, zlib.error, gzip.BadGzipFile) as error:
        raise ArchiveError(f"the archive is damaged: {error}") from error
    made = {PurePosixPath(entry.name) for entry in links}
    for entry in links:
        path = directory / entry.name
        if not made.isdisjoint(PurePosixPath(entry.name).parents):
            raise ArchiveError(f"the archive has {entry.name} below a link")
        if os.path.lexists(path):
            raise ArchiveError(f"the archive has {entry.name} twice")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(entry.linkname)
    for path, mode in reversed(modes):  # at the end, because a directory may be read-only
        path.chmod(mode)


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ArchiveError(f"the archive has a name that leads elsewhere: {name}")
    return name


def _write(path: Path, content: IO[bytes], entry: tarfile.TarInfo) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        shutil.copyfileobj(content, file, CHUNK_BYTES)
        os.fchmod(file.fileno(), entry.mode & PERMISSIONS)
    os.utime(path, (entry.mtime, entry.mtime))
