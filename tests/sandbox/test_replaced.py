"""A project's directory that is replaced while a session is open: what comes after is the new one's."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox.files import FileChangedError
from sanderling.sandbox.policy import Grant
from sanderling.sandbox.report import GuardEvent, ProjectReplaced
from tests.conftest import happens, prove, prove_rest
from tests.sandbox.test_files import session_of
from tests.sandbox.test_grants import said
from tests.sandbox.test_rest import is_at_rest, rest
from tests.sandbox.test_sandbox import LEVELS, Place

pytestmark = pytest.mark.guard

OLD, NEW = "public\n", "new\n"


def fill(project: Path) -> None:
    project.mkdir()
    (project / "file").write_text(NEW)


def move_away(place: Place) -> Path:
    old = place.project.rename(place.home / "project.bak")
    fill(place.project)
    return old


def delete(place: Place) -> None:
    shutil.rmtree(place.project)
    fill(place.project)


def clone(place: Place) -> None:
    place.git("config", "user.name", "me")
    copy = place.base / "copy"
    subprocess.run(["git", "clone", "-q", place.project, copy], check=True)
    (copy / "file").write_text(NEW)
    shutil.rmtree(place.project)
    shutil.copytree(copy, place.project)


def rename_parent(place: Place) -> None:
    place.home.rename(place.base / "home.bak")
    place.home.mkdir()
    fill(place.project)


def put_link(place: Place) -> None:
    elsewhere = place.home / "elsewhere"
    fill(elsewhere)
    place.project.rename(place.home / "project.bak")
    place.project.symlink_to(elsewhere)


WAYS = [move_away, delete, clone, rename_parent, put_link]
way = pytest.mark.parametrize("replace", prove_rest(WAYS, keep=(0,)))


def replacements(place: Place) -> list[ProjectReplaced]:
    return [event for event in place.events if isinstance(event, ProjectReplaced)]


@prove
@way
async def test_command_after_the_project_was_replaced_runs_in_the_new_one_and_that_is_told_once(
    place, replace: Callable[[Place], object]
):
    async with session_of(place) as session:
        assert await said(session, "cat file") == OLD
        replace(place)
        assert (
            await said(session, "cat file; echo more >made; pwd -P")
            == f"{NEW}{place.project.resolve()}\n"
        )
        await said(session, "true")
        assert session.location.take_replaced()
        assert not session.location.take_replaced()
    assert (place.project / "made").read_text() == "more\n"
    assert replacements(place) == [ProjectReplaced(str(place.project))]


@prove
@pytest.mark.parametrize("level", LEVELS)
async def test_nothing_is_written_into_a_project_that_was_moved_away(place, level):
    async with session_of(place, level=level) as session:
        await said(session, "true")
        old = move_away(place)
        before = contents(old)
        await said(session, "echo x >a; echo y >file")
        files = await session.environment.files()
        await files.write(f"{place.project}/b", b"z")
        # What would be undone in the project is the person's own there, and here.
        for directory in (old, place.project):
            (directory / ".envrc").write_text("mine\n")
        session.look_after("", has_failed=False)
        await said(session, "true")
        assert contents(old) == before | {".envrc"}
    assert (place.project / "a").read_text() == "x\n"
    assert (place.project / "b").read_text() == "z"
    assert (old / ".envrc").exists()


def contents(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@prove
async def test_file_that_was_looked_at_before_is_not_written_over_afterwards(place):
    path = f"{place.project}/file"
    async with session_of(place) as session:
        loaded = await (await session.environment.files()).load(path, 100)
        old = move_away(place)
        with pytest.raises(FileChangedError):
            await (await session.environment.files()).write(path, b"x", expected=loaded.stamp)
    assert (old / "file").read_text() == OLD
    assert (place.project / "file").read_text() == NEW


@prove
async def test_what_the_person_has_in_the_new_project_the_guard_of_the_old_one_leaves_alone(place):
    """Their .envrc must neither appear in the old one nor be taken from the new."""
    async with session_of(place) as session:
        process = await session.environment.spawn(["sleep", "600"])
        old = move_away(place)
        (place.project / ".envrc").write_text("mine\n")
        (place.project / ".vscode").mkdir()
        (old / ".envrc").write_text("mine, too\n")
        session.look_after("", has_failed=True)
        assert await said(session, "cat .envrc") == "mine\n"
        assert await process.wait() < 0
        process.close()
        assert "Read-only" in await said(session, "echo x 2>&1 >.envrc")
    assert (old / ".envrc").read_text() == "mine, too\n"
    assert not [event for event in place.events if isinstance(event, GuardEvent)]


@prove
async def test_without_a_project_nothing_runs_and_it_goes_on_when_that_is_back(place):
    away = place.home / "away"
    async with session_of(place) as session:
        server = await session.environment.spawn(["sleep", "600"])
        place.project.rename(away)
        for ask in (
            lambda: said(session, "true"),
            session.environment.files,
            session.environment.scratch,
        ):
            with pytest.raises(SandboxError, match=r"project's directory .*/project is gone"):
                await ask()
        away.rename(place.project)
        assert await said(session, "cat file") == OLD
        assert server.is_running
        server.close()
        assert replacements(place) == []


@prove
async def test_file_in_the_place_of_the_project_is_no_project(place):
    async with session_of(place) as session:
        shutil.rmtree(place.project)
        place.project.touch()
        with pytest.raises(SandboxError, match="is gone"):
            await said(session, "true")
        place.project.unlink()
        fill(place.project)
        assert await said(session, "cat file") == NEW


@prove
async def test_project_that_was_replaced_during_a_rest_is_told(place):
    async with session_of(place) as session:
        await said(session, "true")
        await rest(session)
        move_away(place)
        await session.get_ready()
        assert await said(session, "cat file") == NEW
    assert len(replacements(place)) == 1


async def test_project_that_is_replaced_while_the_sandbox_opens_is_the_new_one_for_the_first_command(
    place,
):
    async with session_of(place) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(session.get_ready)
        await happens(lambda: not is_at_rest())
        move_away(place)
        assert await said(session, "cat file") == NEW


async def test_without_the_sandbox_nothing_makes_a_project_that_is_gone_again(place):
    async with session_of(place) as session:
        session.switch(is_on=False)
        await said(session, "true")
        place.project.rename(place.home / "away")
        with pytest.raises(SandboxError, match="is gone"):
            await session.environment.files()
        with pytest.raises(SandboxError, match="is gone"):
            await said(session, "true")
        fill(place.project)
        assert await said(session, "cat file") == NEW
    assert len(replacements(place)) == 1


@prove
async def test_mode_hosts_and_tmp_are_as_before_in_the_new_project(place):
    async with session_of(place) as session:
        await session.confined.extend(Grant(hosts=("example.org",)))
        await said(session, "echo kept >/tmp/left")
        session.set_mode("ro")
        move_away(place)
        told = await said(session, "cat /tmp/left; echo x 2>&1 >new; echo $https_proxy")
    assert "kept" in told
    assert "Read-only" in told
    assert "http" in told


@prove
async def test_path_that_was_let_in_leads_nowhere_else_afterwards(place):
    """A command may have put a link in its place: what it leads to was never granted."""
    outer, inner = place.base / "granted", place.base / "granted/inner"
    inner.mkdir()
    async with session_of(place) as session:
        await session.confined.extend(Grant(write_paths=(str(outer), str(inner))))
        await said(session, "true")
        inner.rmdir()
        inner.symlink_to(place.secret)
        move_away(place)
        assert "secret" not in await said(
            session, f"cat {place.secret}/file {inner}/file 2>/dev/null"
        )
        assert await said(session, f"echo x >{outer}/made; cat {outer}/made") == "x\n"


@prove
async def test_many_who_ask_at_once_open_it_once(place):
    async with session_of(place) as session:
        await said(session, "true")
        move_away(place)
        found: list[str] = []

        async def ask() -> None:
            found.append(await said(session, "cat file"))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask)
    assert found == [NEW] * 5
    assert len(replacements(place)) == 1
