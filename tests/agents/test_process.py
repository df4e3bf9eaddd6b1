"""The process of an agent: what it sees and may change, that nothing of it is left, and that it runs on the terms of now."""

import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from sanderling.agents.declared import DeclaredAgent, load_agent
from sanderling.agents.process import AgentError, AgentProcess, running
from sanderling.sandbox.confinement import SessionSandbox
from tests.conftest import DEADLINE_S, ROOT, happens, prove, prove_rest
from tests.conftest import running as running_now
from tests.sandbox.child import STRANGER, open_directory
from tests.sandbox.test_cli import SYSTEM_PATH, stranger
from tests.sandbox.test_files import session_of
from tests.sandbox.test_network import server_for
from tests.sandbox.test_sandbox import MOUNTED, Place, names_in
from tests.sandbox.test_servers import SHELL, said_by, server_in


@pytest.fixture
def place(tmp_path, monkeypatch, plain_environment) -> Place:  # noqa: ARG001
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(place.home))
    return place


class Shell:
    """A shell in the place of an agent: it runs each line that it is sent."""

    def __init__(self, agent: AgentProcess) -> None:
        self.agent = agent

    async def said(self, line: str) -> str:
        return await said_by(self.agent, line)


def declared(**fields: Any) -> DeclaredAgent:
    return load_agent("it", {"it": {"command": SHELL, "title": "It", **fields}})


@asynccontextmanager
async def shell_in(session: SessionSandbox, place: Place, **fields: Any) -> AsyncIterator[Shell]:
    async with running(declared(**fields), session, str(place.project)) as agent:
        yield Shell(agent)


def login_of(place: Place) -> Path:
    path = place.home / ".it/login.json"
    path.parent.mkdir()
    path.write_text("token\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("level", prove_rest(MOUNTED, keep=(0,)))
async def test_agent_has_the_project_and_its_login_and_nothing_else_of_home(
    place, level, monkeypatch
):
    login = login_of(place)
    (place.home / ".it/settings").write_text("hooks\n")
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id").write_text("key\n")
    (place.home / ".other").write_text("other\n")
    monkeypatch.setenv("OTHER_API_KEY", "k0")
    monkeypatch.setenv("LET_IN", "k1")
    monkeypatch.setenv("OWN", "k2")
    async with (
        session_of(place, level=level, env_pass=("LET_IN",)) as session,
        shell_in(
            session, place, home=["~/.it/login.json"], env={"MINE": "a"}, inherits=["OWN"]
        ) as it,
    ):
        assert it.agent.is_confined
        assert it.agent.notice == ""
        assert await it.said("pwd; cat file; echo new >made; cat made") == (
            f"{place.project}\npublic\nnew\n"
        )
        assert await it.said("echo $OTHER_API_KEY,$LET_IN,$OWN,$MINE") == ",,k2,a\n"
        assert await it.said("cat ~/.it/login.json; echo renewed >~/.it/login.json") == "token\n"
        found = await it.said("cat ~/.it/settings ~/.ssh/id ~/.other ~/.gitconfig; ls -A ~ ~/.it")
        assert not {"hooks", "key", "other"} & {*found.split()}
        assert "login.json" in found
        found = await it.said(f"cat {place.secret}/file; cat /proc/1/environ; ls /proc")
        assert "secret\n" not in found
        assert "OTHER_API_KEY" not in found
        assert str(os.getpid()) not in found.split() or os.getpid() < 100
        assert "kept" in await it.said("echo kept >~/.it/state; cat ~/.it/state")
    assert login.read_text() == "renewed\n"
    assert names_in(login.parent) == ["login.json", "settings"]
    assert (place.project / "made").read_text() == "new\n"


@prove
async def test_where_there_are_no_mounts_a_login_is_missed_and_that_is_said(place):
    login_of(place)
    async with (
        session_of(place, level="landlock") as session,
        shell_in(session, place, home=["~/.it/login.json"]) as it,
    ):
        assert "Its login is not available" in it.agent.warnings[0]
        assert "No such file" in await it.said("cat ~/.it/login.json")
    async with session_of(place, level="landlock") as session:
        with pytest.raises(AgentError, match="proxy"):
            async with shell_in(session, place, hosts=["example.org"]):
                pass


async def test_a_login_that_was_renewed_outside_is_noticed(place):
    login = login_of(place)
    async with (
        session_of(place, level="full") as session,
        shell_in(session, place, home=["~/.it/login.json"]) as it,
    ):
        await it.said("echo renewed >~/.it/login.json")
        assert not it.agent.has_old_login
        other = login.with_name("other")
        other.write_text("renewed outside\n")
        other.replace(login)
        assert it.agent.has_old_login
        assert await it.said("cat ~/.it/login.json") == "renewed\n"
    assert login.read_text() == "renewed outside\n"


@prove
async def test_what_an_agent_keeps_in_its_private_home_is_there_again(place):
    for said in ("echo 1 >~/.state; cat ~/.state", "cat ~/.state"):
        async with session_of(place, level="full") as session, shell_in(session, place) as it:
            assert await it.said(said) == "1\n"


@prove
async def test_an_agent_shares_no_place_with_commands_or_a_server_of_its_name(place):
    async with (
        session_of(place, level="full") as session,
        shell_in(session, place) as it,
        server_in(session, A="b") as server,
    ):
        await it.said("echo mine >~/own; echo mine >/tmp/own")
        assert "No such file" in await server.said("cat ~/own")
        assert "No such file" in await server.said("cat /tmp/own")


ESCAPES = {
    "a link in HOME": "mkdir -p ~/.it && ln -sf {home}/.ssh/id ~/.it/x && cat ~/.it/x",
    "the login is moved away": "mv ~/.it/login.json ~/.it/old",
    "a link takes the login's place": "ln -sf /etc/passwd ~/.it/login.json",
    "the login's directory is moved away": "mv ~/.it ~/.that",
    "hooks of git": "echo x >.git/hooks/pre-commit",
    "git's own settings": "git config core.fsmonitor ./x",
    "an editor's start file": "echo x >.exrc",
    "a shell's start file": "echo x >.envrc",
    "another mount": "mount -t tmpfs none /mnt",
    "another root": "chroot /proc/1/root ls",
    "a process of the host": "kill -0 {pid}",
    "its environment": "cat /proc/{pid}/environ",
    "the real HOME by /proc": "cat /proc/1/root{home}/.ssh/id",
    "tracing": 'python3 -c "import ctypes; exit(ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) and 1)"',
}  # fmt: skip


@pytest.mark.parametrize("how", prove_rest(ESCAPES))
async def test_hostile_agent_does_not_get_out(place, how):
    login = login_of(place)
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id").write_text("key\n")
    line = ESCAPES[how].format(pid=os.getpid(), home=place.home)
    async with (
        session_of(place, level="full") as session,
        shell_in(session, place, home=["~/.it/login.json"]) as it,
    ):
        done = await it.said(f"({line}) >/dev/null && echo done")
        assert done != "done\n" or "start file" in how  # that is undone
        assert await it.said("cat ~/.it/login.json") in ("token\n", "")
    assert (login.read_text(), login.is_symlink()) == ("token\n", False)
    assert not (place.project / ".exrc").exists()
    assert not (place.project / ".envrc").exists()
    assert not (place.project / ".git/hooks/pre-commit").exists()


PLANTED = {
    "a link to a directory of the system": "rm -rf ~/.it; ln -s /etc ~/.it",
    "a link to the project": "rm -rf ~/.it; ln -s {project} ~/.it",
    "a link to where the person's files are": "rm -rf ~/.it; ln -s {home}/.ssh ~/.it",
    "a link out of its private HOME": "rm -rf ~/.it; ln -s ../../../tmp ~/.it",
    "a file": "rm -rf ~/.it; echo x >~/.it",
    "a link for the login": "mkdir -p ~/.it; rm -rf ~/.it/*; ln -s {project}/file ~/.it/login.json",
    "a directory for the login": "mkdir -p ~/.it; rm -rf ~/.it/*; mkdir ~/.it/login.json",
}  # fmt: skip


@pytest.mark.parametrize("how", prove_rest(PLANTED, (-1,)))
async def test_what_an_agent_leaves_in_its_home_leads_its_next_start_nowhere(place, how):
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id").write_text("key\n")
    line = PLANTED[how].format(project=place.project, home=place.home)
    async with session_of(place, level="full") as session, shell_in(session, place) as it:
        await it.said(line)
    login = login_of(place)
    async with (
        session_of(place, level="full") as session,
        shell_in(session, place, home=["~/.it/login.json"]) as it,
    ):
        assert await it.said("cat ~/.it/login.json; echo new >~/.it/login.json") == "token\n"
    assert login.read_text() == "new\n"
    assert (place.project / "file").read_text() == "public\n"
    assert not (place.project / "login.json").exists()
    assert names_in(place.home / ".ssh") == ["id"]
    assert names_in(login.parent) == ["login.json"]


async def test_links_and_rights_in_a_granted_directory_are_taken_back(place):
    (place.home / ".it/credentials").mkdir(parents=True)
    (place.home / ".it/credentials/token").write_text("old\n")
    async with (
        session_of(place, level="full") as session,
        shell_in(session, place, home=["~/.it/credentials"]) as it,
    ):
        await it.said(
            "cd ~/.it/credentials; echo new >t; mv t token; ln -s ~/.bashrc login; chmod 777 token"
        )
        log = it.agent.log
    directory = place.home / ".it/credentials"
    assert (directory / "token").read_text() == "new\n"
    assert names_in(directory) == ["token"]
    assert not stat.S_IMODE((directory / "token").stat().st_mode) & 0o133
    assert "was replaced by a link or special file" in log.text()


@pytest.mark.parametrize("level", prove_rest(MOUNTED, keep=(0,)))
async def test_agent_reaches_its_hosts_and_no_others(place, level):
    async def answer(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nhi\n")

    ask = "curl -s --noproxy '' http://127.0.0.1:%d/"
    async with (
        server_for(answer) as port,
        server_for(answer) as other,
        session_of(place, level=level) as session,
        shell_in(session, place, hosts=[f"127.0.0.1:{port}"]) as it,
    ):
        assert await it.said(ask % port) == "hi\n"
        assert "hi" not in await it.said(ask % other)
        assert "hi" not in await it.said(f"curl -s --noproxy '*' http://127.0.0.1:{other}/")
        await happens(lambda: f"127.0.0.1:{other}" in it.agent.log.text())
        assert session.environment.network == "off"


async def test_nothing_is_left_of_an_agent(place, marker):
    async with session_of(place, level="full") as session:
        async with shell_in(session, place) as it:
            await it.said(f"setsid {marker} & (trap '' TERM HUP; {marker}) &")
            await happens(lambda: len(running_now(marker)) == 2)
        await happens(lambda: not running_now(marker))


@prove
async def test_an_agent_that_does_not_end_by_itself_is_killed(place):
    agent = declared(command=["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
    async with session_of(place, level="full") as session:
        with anyio.fail_after(DEADLINE_S):
            async with running(agent, session, str(place.project)) as process:
                assert process.is_running
        assert not process.is_running


@pytest.mark.parametrize(
    "command, words",
    prove_rest(
        [
            ("echo no key >&2; exit 3", "it ended with exit status 3: no key"),
            ("exit 0", "it ended"),
            (
                "echo 'TypeError: no key' >&2; echo at x >&2; echo v20 >&2; exit 1",
                "it ended with exit status 1: TypeError: no key",
            ),
            ("echo dying >&2; kill -9 $$", "it was ended by SIGKILL: dying"),
        ]
    ),
)
async def test_end_of_an_agent_is_told_with_its_last_words(place, command, words):
    agent = declared(command=["sh", "-c", command])
    async with (
        session_of(place, level="full") as session,
        running(agent, session, str(place.project)) as process,
    ):
        ending = await process.wait()
        await happens(
            lambda: not process.log.text() or words.partition(": ")[2] in process.log.text()
        )
        assert ending == words or (ending == words.partition(": ")[0])


async def test_an_agent_that_is_not_installed_says_how_it_is(place):
    agent = declared(command=["no-such-agent"], install="npm install -g it")
    async with session_of(place, level="full") as session:
        with pytest.raises(
            AgentError, match=r"no program 'no-such-agent'\. To install it: npm install"
        ):
            async with running(agent, session, str(place.project)):
                pass


@prove
async def test_stderr_of_an_agent_is_kept_in_bounds_and_without_its_key(place, monkeypatch):
    monkeypatch.setenv("OWN", "hunter22hunter22")
    line = "(echo begin; yes line | head -c 3000000; echo $OWN) >&2; exec cat"
    agent = declared(command=["sh", "-c", line], inherits=["OWN"])
    async with (
        session_of(place, level="full") as session,
        running(agent, session, str(place.project)) as process,
    ):
        await happens(lambda: "[hidden]" in process.log.text())
        assert len(process.log.text()) < 40_000
        assert "hunter22" not in process.log.text()


async def test_an_agent_is_ended_when_its_terms_change(place):
    async with session_of(place, level="full") as session:
        async with shell_in(session, place) as it:
            assert not it.agent.is_outdated
            session.set_mode("ro")
            assert await it.agent.wait() == "its permissions changed"
            assert it.agent.is_outdated
        async with shell_in(session, place) as it:
            assert "Read-only" in await it.said("echo x >made")


async def test_an_agent_whose_entry_says_so_runs_outside_and_has_no_key_of_others(
    place, monkeypatch
):
    monkeypatch.setenv("OTHER_API_KEY", "k0")
    async with (
        session_of(place, level="full") as session,
        shell_in(
            session, place, sandbox=False, env={"MINE": "a"}, sandboxed_env={"FREE": "1"}
        ) as it,
    ):
        assert not it.agent.is_confined
        assert it.agent.notice == (
            "It runs outside the sandbox with all of your rights, because of `sandbox = false` or `--no-sandbox`."
        )
        assert (
            await it.said(f"echo $FREE$OTHER_API_KEY,$MINE; cat {place.secret}/file")
            == ",a\nsecret\n"
        )
        session.set_mode("ro")
        assert await it.said("echo still here") == "still here\n"
        assert not it.agent.is_outdated


@prove
async def test_an_agent_runs_outside_while_the_sandbox_is_off_and_that_is_said(place):
    async with session_of(place, level="full") as session:
        session.switch(is_on=False)
        async with shell_in(session, place) as it:
            assert "you switched the sandbox off" in it.agent.notice
            assert await it.said(f"cat {place.secret}/file") == "secret\n"
            session.switch(is_on=True)
            assert await it.agent.wait() == "its permissions changed"


@prove
async def test_what_links_of_the_persons_lead_to_is_where_the_agent_looks_for_it(place):
    dotfiles = place.home / "dotfiles/.claude"
    dotfiles.mkdir(parents=True)
    (dotfiles / ".credentials.json").write_text("token\n")
    (dotfiles / "settings.json").write_text("settings\n")
    (dotfiles / "other").write_text("other\n")
    (place.home / ".claude").symlink_to(dotfiles)
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id").write_text("key\n")
    (place.home / ".it").mkdir()
    (place.home / ".it/login.json").symlink_to(place.home / ".ssh/id")
    (place.project / "link").symlink_to(dotfiles / "settings.json")
    home = ["~/.claude/.credentials.json", "~/.it/login.json", "~/.it/none"]
    for _ in range(2):
        async with (
            session_of(place, level="full") as session,
            shell_in(
                session, place, home=home, paths=["~/.claude/settings.json", "~/project/link"]
            ) as it,
        ):
            assert it.agent.warnings == (
                (
                    f"No access to ~/.it/login.json, which links to {place.home}/.ssh/id: 'home' contains {place.home}/.ssh/id,"
                    " but ~/.ssh can run programs or holds other secrets. List it in `paths` to make it readable."
                ),
            )
            assert await it.said("cat ~/.claude/.credentials.json ~/.claude/settings.json") == (
                "token\nsettings\n"
            )
            assert "Read-only" in await it.said("(echo x >~/.claude/settings.json)")
            assert await it.said("cat ~/project/link") == "settings\n"
            assert "No such file" in await it.said("cat ~/.claude/other ~/.ssh/id")
            await it.said(
                "echo token >~/.claude/.credentials.json; rm -rf ~/.claude; ln -s /etc ~/.claude"
            )
    assert (dotfiles / "settings.json").read_text() == "settings\n"


@prove
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_an_unprivileged_persons_agent_is_held_likewise():
    with open_directory() as base:
        caller = stranger(base)
        environment = {
            "HOME": str(base),
            "PATH": SYSTEM_PATH,
            "PYTHONPATH": f"{caller.variables['PYTHONPATH']}:{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        ran = subprocess.run(
            [caller.python, "-m", "tests.agents.test_process", f"{base}/own"],
            env=environment,
            cwd="/",
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            **caller.user,
        )
        assert (ran.stdout, ran.returncode) == (f"{STRANGER}\ntoken\nnew\n", 0), ran.stderr


async def _as_stranger(base: Path) -> None:
    place = Place(base)
    os.environ["HOME"] = str(place.home)
    login = login_of(place)
    (place.home / ".other").write_text("other\n")
    async with (
        session_of(place, level="full") as session,
        shell_in(session, place, home=["~/.it/login.json"]) as it,
    ):
        line = "id -u; cat ~/.it/login.json ~/.other; echo new >~/.it/login.json; echo x >made"
        said = await it.said(line)
    assert (place.project / "made").read_text() == "x\n"
    print(said.partition("cat:")[0], login.read_text(), sep="", end="")


if __name__ == "__main__":
    anyio.run(_as_stranger, Path(sys.argv[1]))
