"""What the person has let in: for how long it is there, for whom, and that nothing stays of it."""

import shutil
from pathlib import Path

import anyio
import pytest

from sanderling.errors import SandboxError
from sanderling.sandbox.confinement import SessionSandbox
from sanderling.sandbox.policy import NO_GRANT, Grant
from tests.conftest import happens, prove, prove_rest
from tests.sandbox.test_files import session_of
from tests.sandbox.test_sandbox import MOUNTED, Place, all_of, names_in

pytestmark = pytest.mark.guard


@pytest.fixture
def notes(place) -> Path:
    """A file of the person's, two directories below HOME."""
    path = place.home / "documents/work/notes"
    path.parent.mkdir(parents=True)
    path.write_text("my notes\n")
    return path


def private_home(place: Place) -> Path:
    return place.base / "state/home"


async def said(session: SessionSandbox, script: str, grant: Grant = NO_GRANT) -> str:
    process = await session.environment.spawn(["sh", "-c", script], grant=grant)
    assert process.stdout
    output = await all_of(process.stdout)
    await process.wait()
    process.close()
    return output.decode()


# --- paths -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", prove_rest(MOUNTED, keep=(0,)))
async def test_nothing_stays_in_home_of_what_was_granted_to_one_command(place, notes, level):
    grant = Grant(read_paths=(str(notes),))
    async with session_of(place, level=level) as session:
        before = await said(session, "ls -A ~")
        async with session.environment.lending(grant):
            assert await said(session, f"cat {notes}", grant) == "my notes\n"
        await happens(lambda: not (private_home(place) / "documents").exists())
        assert await said(session, "ls -A ~") == before
        assert "No such file" in await said(session, f"cat {notes}")


@prove
async def test_nothing_stays_in_tmp_of_what_was_granted_to_the_file_worker(place, tmp_path):
    granted = tmp_path / "elsewhere"
    granted.write_text("old")
    grant = Grant(write_paths=(str(granted),))
    async with session_of(place) as session:
        async with session.environment.lending(grant):
            await (await session.environment.files(grant)).write(str(granted), b"new")
        assert granted.read_text() == "new"
        inside = f"{granted.relative_to('/tmp')}"
        await happens(lambda: not list((place.base / "state/tmp").glob(f"*/{inside}")))
        assert "No such file" in await said(session, f"cat {granted}")


@prove
async def test_what_a_command_in_the_background_was_granted_stays_until_it_ends(place, notes):
    grant = Grant(read_paths=(str(notes),))
    async with session_of(place) as session:
        async with session.environment.lending(grant):
            waiting = await session.environment.spawn(
                ["sh", "-c", f"until [ -e go ]; do sleep 0.05; done; cat {notes}"], grant=grant
            )
        async with session.environment.lending(grant):
            assert await said(session, f"cat {notes}", grant) == "my notes\n"
        assert (private_home(place) / "documents/work/notes").exists()
        (place.project / "go").touch()
        assert waiting.stdout
        assert await all_of(waiting.stdout) == b"my notes\n"
        await waiting.wait()
        await happens(lambda: not (private_home(place) / "documents").exists())


@prove
async def test_what_was_granted_for_the_session_leaves_nothing_for_the_next_one(place, notes):
    async with session_of(place) as session:
        await session.confined.extend(Grant(read_paths=(str(notes),)))
        assert await said(session, f"cat {notes}") == "my notes\n"
    await happens(lambda: not (private_home(place) / "documents").exists())
    async with session_of(place) as session:
        assert "No such file" in await said(session, f"cat {notes}")


@prove
async def test_what_a_command_has_put_beside_the_granted_file_stays(place, notes):
    grant = Grant(read_paths=(str(notes),))
    async with session_of(place) as session:
        async with session.environment.lending(grant):
            await said(session, f"echo mine > {notes.parent}/own; cat {notes}", grant)
        placeholder = private_home(place) / "documents/work/notes"
        await happens(lambda: not placeholder.exists())
        assert names_in(placeholder.parent) == ["own"]


@prove
async def test_link_in_the_way_of_a_placeholder_leads_no_removal_out_of_the_private_home(
    place, notes
):
    victim = place.base / "secret/work/notes"
    victim.parent.mkdir()
    victim.touch()
    grant = Grant(read_paths=(str(notes),))
    async with session_of(place) as session:
        async with session.environment.lending(grant):
            await said(session, "true", grant)
            own = private_home(place) / "documents"
            shutil.move(own, own.with_name("moved"))
            own.symlink_to(place.base / "secret")
        await said(session, "true")
        session.manager.sandbox.retire_views()
    assert victim.exists()


def replace_by_link(path: Path, target: Path) -> None:
    path.unlink()
    path.symlink_to(target)


def replace_its_directory(path: Path, target: Path) -> None:
    path.parent.rename(path.parent.with_name("away"))
    path.parent.symlink_to(target.parent)


def replace_by_another(path: Path, target: Path) -> None:
    target.rename(path)


@pytest.mark.parametrize(
    "replaced", prove_rest([replace_by_link, replace_its_directory, replace_by_another])
)
async def test_what_was_replaced_after_the_person_was_asked_is_not_let_in(place, notes, replaced):
    secret = place.secret / "notes"
    secret.write_text("secret\n")
    grant = Grant(read_paths=(str(notes),)).identified()
    async with session_of(place) as session:
        replaced(notes, secret)
        with pytest.raises(SandboxError, match="changed after you approved it"):
            await said(session, f"cat {notes}", grant)
        with pytest.raises(SandboxError, match="changed after you approved it"):
            await session.environment.files(grant)
        with pytest.raises(SandboxError, match="replaced"):
            await session.confined.extend(grant)
        assert "No such file" in await said(session, f"cat {notes}")


@prove
async def test_what_is_replaced_while_it_is_let_in_for_the_session_is_taken_back_and_told(
    place, notes
):
    told = []
    grant = Grant(write_paths=(str(notes),)).identified()
    async with session_of(place) as session:
        session.effective_policy._on_event = told.append
        await session.confined.extend(grant)
        assert await said(session, f"cat {notes}") == "my notes\n"
        replace_by_link(notes, place.secret / "file")
        assert session.effective_policy.write_paths == ()
        assert "secret" not in await said(session, f"cat {notes}; echo evil > {notes}")
        assert [(event.operation, event.target) for event in told] == [("write", str(notes))]
        assert (place.secret / "file").read_text() == "secret\n"
        # asked about again
        await session.confined.extend(Grant(read_paths=(str(notes),)).identified())
        assert await said(session, f"cat {place.secret}/file") == "secret\n"


@prove
async def test_view_of_what_was_replaced_in_the_last_moment_is_not_made(place, notes):
    grant = Grant(read_paths=(str(notes),)).identified()
    async with place.open() as sandbox:
        policy = grant.added_to(sandbox.policy)
        replace_by_link(notes, place.secret / "file")
        with pytest.raises(SandboxError, match="replaced"):
            await sandbox._views.get(policy)


async def test_person_is_told_at_once_what_can_never_be_granted(place):
    async with session_of(place) as session:
        for path in ("/etc", str(place.home), str(place.base / "state/home")):
            with pytest.raises(SandboxError):
                session.confined.check_grant(Grant(write_paths=(path,)))
        session.confined.check_grant(Grant(read_paths=("/etc/passwd",)))


# --- hosts -------------------------------------------------------------------------------------------------------------


def hosts_in_force(session: SessionSandbox) -> tuple[str, tuple[str, ...]]:
    assert session.manager.sandbox
    return session.manager.sandbox.policy.network, session.manager.sandbox.policy.hosts


@prove
async def test_while_the_network_is_off_a_lent_host_opens_no_other_that_is_listed(place):
    async with session_of(place, hosts=("listed.example",)) as session:
        await said(session, "true")
        async with session.environment.lending(Grant(hosts=("one.example",))):
            assert hosts_in_force(session) == ("proxy", ("one.example",))
            assert session.facts.network == "proxy"
            assert session.environment.leads_to("one.example")
            assert not session.environment.leads_to("listed.example")
        assert hosts_in_force(session) == ("off", ("listed.example",))
        assert not session.environment.leads_to("one.example")


async def test_loans_that_overlap_are_each_taken_back(place):
    async with session_of(place) as session:
        await said(session, "true")
        first, second = (anyio.Event(), anyio.Event())

        async def borrow(host: str, until: anyio.Event) -> None:
            async with session.environment.lending(Grant(hosts=(host,))):
                await until.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(borrow, "a.example", first)
            await happens(lambda: session.environment.leads_to("a.example"))
            proxies = list(session.manager.sandbox._network._proxy_scopes)
            tasks.start_soon(borrow, "b.example", second)
            await happens(lambda: session.environment.leads_to("b.example"))
            first.set()
            await happens(lambda: not session.environment.leads_to("a.example"))
            assert hosts_in_force(session) == ("proxy", ("b.example",))
            # None was cut off by the other's end.
            assert session.manager.sandbox._network._proxy_scopes == proxies
            second.set()
        assert hosts_in_force(session) == ("off", ())


async def test_loan_is_taken_back_from_one_who_was_cancelled_while_it_was_made(place):
    async with session_of(place) as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with session.environment.lending(Grant(hosts=("one.example",))):
                pytest.fail("it was lent")
        assert not session.environment.leads_to("one.example")
        await said(session, "true")
        assert hosts_in_force(session) == ("off", ())


async def test_off_takes_back_the_hosts_that_were_let_in_for_the_session(place):
    async with session_of(place) as session:
        await session.confined.extend(Grant(hosts=("one.example",)))
        await session.confined.extend(Grant(hosts=("two.example",)))
        assert hosts_in_force(session) == ("proxy", ("one.example", "two.example"))
        await session.set_network("off")
        assert hosts_in_force(session) == ("off", ())
        await session.set_network("proxy")
        assert not session.environment.leads_to("one.example")


async def test_host_cannot_be_lent_where_there_is_no_proxy(place):
    async with session_of(place, level="landlock") as session:
        await said(session, "true")
        with pytest.raises(SandboxError, match="AgentNet on"):
            session.confined.check_grant(Grant(hosts=("one.example",)))
        assert session.facts.network == "off"


async def test_loopback_is_always_there_and_needs_no_grant(place):
    async with session_of(place) as session:
        for host in ("localhost:3000", "127.0.0.1", "[::1]:8080", "app.localhost"):
            assert session.environment.leads_to(host)
        assert not session.environment.leads_to("localhost.example")
