"""Directories as bytes, also such as a hostile node could send."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from sanderling.batch.ray import archives
from sanderling.batch.ray.archives import ArchiveError, pack, pack_file, unpack
from sanderling.sandbox.kernel.layout import remove_tree


def test_a_directory_arrives_with_its_modes_links_and_odd_names(tmp_path: Path):
    source = tmp_path / "source"
    (source / "d" / "empty").mkdir(parents=True)
    (source / "d" / "f").write_bytes(b"\0\1")
    (source / "d" / "f").chmod(0o750)
    os.link(source / "d" / "f", source / "same")
    (source / "link").symlink_to("d/f")
    (source / "nowhere").symlink_to("/missing")
    (source / os.fsdecode(b"odd\xff\n")).write_text("x")
    os.mkfifo(source / "pipe")
    (source / "d").chmod(0o500)
    unpack(pack(source), tmp_path / "target")
    target = tmp_path / "target"
    assert (target / "d" / "f").read_bytes() == (target / "same").read_bytes() == b"\0\1"
    assert (target / "d" / "f").stat().st_mode & 0o777 == 0o750
    assert (target / "d").stat().st_mode & 0o777 == 0o500
    assert (target / "d" / "empty").is_dir()
    assert (target / "link").readlink() == Path("d/f")
    assert (target / "nowhere").readlink() == Path("/missing")
    assert (target / os.fsdecode(b"odd\xff\n")).read_text() == "x"
    assert not (target / "pipe").exists()


def test_a_file_arrives_under_its_name(tmp_path: Path):
    (tmp_path / "script.json").write_text("{}")
    unpack(pack_file(tmp_path / "script.json"), tmp_path / "target")
    assert (tmp_path / "target" / "script.json").read_text() == "{}"


def archive(*entries: tarfile.TarInfo) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for entry in entries:
            file.addfile(entry, io.BytesIO(b"x" * entry.size))
    return data.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    it = tarfile.TarInfo(name)
    it.type, it.linkname, it.size, it.mode = kind, to, int(kind == tarfile.REGTYPE), 0o755
    return it


@pytest.mark.parametrize(
    "entries",
    [
        (entry("../out"),),
        (entry("/tmp/out"),),
        (entry("a/../../out"),),
        (entry("."),),
        (entry("a", tarfile.LNKTYPE, "/etc/passwd"),),
        (entry("a", tarfile.CHRTYPE),),
        (entry("a", tarfile.FIFOTYPE),),
        (entry("../out", tarfile.SYMTYPE, "x"),),
    ],
)
def test_an_archive_that_leads_elsewhere_is_refused(tmp_path: Path, entries: tuple):
    with pytest.raises(ArchiveError):
        unpack(archive(*entries), tmp_path / "target")
    assert not (tmp_path / "out").exists()


def test_nothing_is_written_through_a_link(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = entry("d", tarfile.SYMTYPE, str(outside))
    with pytest.raises(ArchiveError):
        unpack(archive(link, entry("d/f")), tmp_path / "target")
    assert list(outside.iterdir()) == []


def test_no_link_is_made_through_another(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    links = entry("d", tarfile.SYMTYPE, str(outside)), entry("d/f", tarfile.SYMTYPE, "/etc/passwd")
    for order in (links, links[::-1]):
        with pytest.raises(ArchiveError):
            unpack(archive(*order), tmp_path / "target")
        assert list(outside.iterdir()) == []
        remove_tree(str(tmp_path / "target"))


def test_an_archive_that_would_fill_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archives, "MIN_LIMIT_BYTES", 1 << 20)
    (tmp_path / "source").mkdir()
    with (tmp_path / "source" / "zeros").open("wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(ArchiveError, match="too much"):
        unpack(pack(tmp_path / "source"), tmp_path / "target")
    assert not (tmp_path / "target" / "zeros").exists()


def test_bytes_that_are_no_archive_are_refused(tmp_path: Path):
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(b"nonsense", tmp_path / "target")
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(archive(entry("a"))[:40], tmp_path / "other")
