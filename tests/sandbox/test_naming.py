"""The file worker where names are taken away and given: no link is followed, and what has changed meanwhile stays."""

import errno
import os

import pytest

from sanderling.sandbox.files import ABSENT, FileChangedError
from sanderling.sandbox.inside.writing import TEMPORARY
from tests.conftest import prove
from tests.sandbox.test_files import leftovers, open_files
from tests.sandbox.test_files import where as where  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.guard

IS_ROOT = os.geteuid() == 0
LIMIT = 1 << 20
REFUSED = "Read-only|Not a dir|Invalid|not perm|denied|busy|empty|Is a dir"


async def test_a_look_tells_what_has_a_name(place, where):
    root = place.project
    (root / "file").write_bytes(b"text\n")
    (root / "file").chmod(0o640)
    (root / "directory").mkdir(mode=0o750)
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    async with open_files(place, where) as files:
        file = await files.look(str(root / "file"), LIMIT)
        assert file[:5] == ("file", 0o640, 5, b"text\n", "")
        assert (await files.look(str(root / "file"), 4)).data is None
        assert (await files.look(str(root / "directory"), LIMIT))[:2] == ("directory", 0o750)
        assert (await files.look(str(root / "link"), LIMIT))[4] == "/etc/passwd"
        assert (await files.look(str(root / "pipe"), LIMIT))[0] == "fifo"
        absent = ("absent", 0, 0, None, "", ABSENT)
        assert await files.look(str(root / "none"), LIMIT) == absent
        assert await files.look(str(root / "file" / "below"), LIMIT) == absent


async def test_a_file_gets_its_bytes_and_its_mode_at_once_and_no_link_is_followed(place, where):
    root = place.project
    (root / "there").mkdir()
    (root / "there" / "file").write_text("theirs\n")
    (root / "way").symlink_to("there")
    (root / "link").symlink_to("there/file")
    async with open_files(place, where) as files:
        path = root / "made" / "deep" / "file"
        new = str(path)
        stamp = await files.write(new, b"one", expected=ABSENT, makes_parents=True, mode=0o755)
        assert path.read_bytes() == b"one"
        assert path.stat().st_mode & 0o777 == 0o755
        await files.write(new, b"two", expected=stamp, mode=0o600)
        assert path.stat().st_mode & 0o777 == 0o600
        for name in ("way/file", "way/new", "link"):
            with pytest.raises(OSError, match=REFUSED) as refused:
                await files.write(str(root / name), b"x", makes_parents=True, mode=0o644)
            assert refused.value.errno in (errno.ENOTDIR, errno.EINVAL)
    assert (root / "there" / "file").read_text() == "theirs\n"
    assert sorted(path.name for path in (root / "there").iterdir()) == ["file"]


@prove
async def test_a_hard_link_keeps_its_other_names_and_gets_its_mode(place, where):
    (place.project / "one").write_text("before\n")
    os.link(place.project / "one", place.project / "two")
    async with open_files(place, where) as files:
        await files.write(str(place.project / "one"), b"after\n", mode=0o600)
    assert (place.project / "two").read_text() == "after\n"
    assert (place.project / "two").stat().st_mode & 0o777 == 0o600


async def test_only_what_was_looked_at_is_taken_away(place, where):
    path = place.project / "file"
    path.write_text("before\n")
    async with open_files(place, where) as files:
        seen = (await files.look(str(path), LIMIT)).stamp
        path.write_text("the person's\n")
        with pytest.raises(FileChangedError):
            await files.unlink(str(path), seen)
        with pytest.raises(FileChangedError):
            await files.symlink(str(path), "elsewhere", seen)
        with pytest.raises(FileChangedError):
            await files.chmod(str(path), 0o600, seen)
        with pytest.raises(FileExistsError):
            await files.symlink(str(path), "elsewhere", ABSENT)
        assert path.read_text() == "the person's\n"
        await files.unlink(str(path), (await files.look(str(path), LIMIT)).stamp)
    assert not path.exists()
    assert not leftovers(place.project)


@prove
async def test_a_link_takes_the_place_of_a_file_and_goes_without_what_it_leads_to(place, where):
    path, other = place.project / "link", place.project / "other"
    path.write_text("a file\n")
    other.write_text("stays\n")
    async with open_files(place, where) as files:
        await files.symlink(str(path), "other", (await files.look(str(path), LIMIT)).stamp)
        assert str(path.readlink()) == "other"
        link = (await files.look(str(path), LIMIT)).stamp
        with pytest.raises(FileChangedError):  # a link has no mode
            await files.chmod(str(path), 0o600, link)
        await files.unlink(str(path), link)
        await files.symlink(str(place.project / "new" / "link"), "odd\udcff\n", ABSENT)
    assert other.read_text() == "stays\n"
    assert not path.is_symlink()
    assert str((place.project / "new" / "link").readlink()) == "odd\udcff\n"


async def test_modes_and_directories(place, where):
    path = place.project / "file"
    path.write_text("text\n")
    path.chmod(0)
    async with open_files(place, where) as files:
        seen = await files.look(str(path), LIMIT)
        assert (seen.kind, seen.data) == ("file", b"text\n" if where == "off" and IS_ROOT else None)
        await files.chmod(str(path), 0o755, seen.stamp)
        assert path.stat().st_mode & 0o777 == 0o755
        made = place.project / "a" / "b"
        await files.mkdir(str(made), 0o775)
        assert made.stat().st_mode & 0o777 == 0o775
        with pytest.raises(OSError, match="not empty"):
            await files.rmdir(str(made.parent))
        (made / f"{TEMPORARY}0123").write_text("half writ")
        (made / f"{TEMPORARY}4567").symlink_to("nowhere")
        (made / "other").touch()
        with pytest.raises(OSError, match="not empty"):
            await files.rmdir(str(made))
        assert len(list(made.iterdir())) == 3
        (made / "other").unlink()
        await files.rmdir(str(made))  # what writes that were killed have left goes with it
        with pytest.raises(NotADirectoryError):
            await files.rmdir(str(path))
    assert not made.exists()


@pytest.mark.parametrize("name", [".git/hooks", ".git/config"])
async def test_what_is_protected_stays(place, name):
    """On level landlock it is the guard alone that keeps it: who restores asks that first."""
    path = place.project / name
    before = path.stat()
    async with open_files(place, "full") as files:
        stamp = (await files.look(str(path), LIMIT)).stamp
        with pytest.raises(OSError, match=REFUSED):
            await files.chmod(str(path), 0o777, stamp)
        with pytest.raises(OSError, match=REFUSED):
            await (files.rmdir(str(path)) if path.is_dir() else files.unlink(str(path), stamp))
        with pytest.raises(OSError, match=REFUSED):
            await files.write(str(path), b"", mode=0o644)
    assert path.stat().st_mode == before.st_mode
