"""
The whole way from `Sandbox.open` to a command on macOS, with a stand-in for `sandbox-exec`: it writes down its profile and runs the command.

So nothing here is confined; the profile's meaning has its own tests. Everything else is as on macOS: a wire of streams, the supervisor with
a polled guard, a starter for each view, and process trees without namespaces.
"""

import os
import resource
import shlex
import signal
import socket
import sys
from pathlib import Path

import anyio
import pytest

from sanderling.errors import SandboxError
from sanderling.platforms.processes import is_running
from sanderling.sandbox.policy import ResourceLimits
from sanderling.sandbox.processes import PIPE
from sanderling.sandbox.report import GuardEvent, LayerReport
from sanderling.sandbox.sandbox import Sandbox
from sanderling.sandbox.seatbelt.starter import Starter, StarterView
from tests.conftest import DEADLINE_S
from tests.sandbox.seatbelt.sbpl import Profile, Request
from tests.sandboxes import policy_below

VERIFIED = LayerReport({"seatbelt": ""}, 0)
STAND_IN = """#!/bin/sh
[ "$1" = -p ] && [ "$3" = -- ] || exit 64
printf %s "$2" > {profile}
/usr/bin/env > {profile}.environment
shift 3
exec "$@"
"""


class Mac:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.policy = policy_below(base)
        self.project = Path(self.policy.project)
        self.project.mkdir(parents=True)
        self.profile = base / "profile.sb"
        self.program = base / "sandbox-exec"
        self.program.write_text(STAND_IN.format(profile=shlex.quote(str(self.profile))))
        self.program.chmod(0o755)
        self.events = []

    def open(self, **changes):
        return Sandbox.open(
            self.policy._replace(**changes),
            self.events.append,
            VERIFIED,
            platform="darwin",
            sandbox_exec=str(self.program),
        )


@pytest.fixture
def mac(tmp_path, monkeypatch):
    mac = Mac(tmp_path.resolve())
    monkeypatch.setenv("HOME", mac.policy.home)
    return mac


async def output_of(sandbox, *argv, **options):
    process = await sandbox.spawn(argv, **options)
    said = b"".join([chunk async for chunk in process.stdout])
    status = await process.wait()
    process.close()
    return status, said.decode()


async def until(condition):
    with anyio.fail_after(DEADLINE_S):
        while not (found := condition()):
            await anyio.sleep(0.02)
    return found


async def test_command_runs_in_the_project_with_its_own_home_and_the_profile(mac):
    async with mac.open() as sandbox:
        assert sandbox.level == "seatbelt"
        code = 'pwd; echo "$HOME"; echo "$TMPDIR"; echo "$SANDERLING_SANDBOX"; exit 3'
        status, said = await output_of(sandbox, "/bin/sh", "-c", code)
        home, tmp = f"{mac.policy.state_dir}/home", sandbox.policy.tmp_dir
        assert (status, said.splitlines()) == (3, [str(mac.project), home, tmp, "seatbelt"])
        profile = mac.profile.read_text()
        assert "(deny default)" in profile
        assert f'(subpath "{mac.project}")' in profile
    assert not Path(tmp).exists()  # noqa: ASYNC240


async def test_no_variable_of_a_command_reaches_the_program_that_confines_it(mac):
    variables = {
        "MallocLogFile": f"{mac.policy.home}/.zshrc",
        "DYLD_INSERT_LIBRARIES": "evil",
        "-S": "x y",
    }
    async with mac.open() as sandbox:
        process = await sandbox.spawn(["/usr/bin/env"], env=variables)
        said = b"".join([chunk async for chunk in process.stdout]).decode().splitlines()
        assert await process.wait() == 0
        process.close()
    assert {f"{name}={value}" for name, value in variables.items()} <= {*said}
    own = Path(f"{mac.profile}.environment").read_text().splitlines()  # noqa: ASYNC240
    assert {line.partition("=")[0] for line in own} <= {
        "SANDERLING_TREE",
        "PWD",
        "_",
        "SHLVL",
        "OLDPWD",
    }


async def test_program_with_an_equals_sign_in_its_name_is_no_variable(mac):
    program = mac.project / "a=b"
    program.write_text("#!/bin/sh\necho ran $1\n")
    program.chmod(0o755)
    async with mac.open() as sandbox:
        assert await output_of(sandbox, str(program), "once") == (0, "ran once\n")


async def test_missing_program_ends_with_127_and_a_file_without_rights_with_126(mac):
    (mac.project / "text").write_text("no program")
    async with mac.open() as sandbox:
        process = await sandbox.spawn(["no-such-program"])
        assert await process.stderr.receive() == b"no-such-program: No such file or directory\n"
        assert await process.wait() == 127
        process.close()
        assert (await output_of(sandbox, f"{mac.project}/text"))[0] == 126


async def test_missing_directory_is_said(mac):
    async with mac.open() as sandbox:
        process = await sandbox.spawn(["true"], cwd=f"{mac.project}/gone")
        with pytest.raises(SandboxError, match="gone is not a directory inside the sandbox"):
            await process.wait()
        process.close()


async def test_stdin_and_signals_reach_the_command(mac):
    async with mac.open() as sandbox:
        process = await sandbox.spawn(["cat"], stdin=PIPE)
        await process.stdin.send(b"hello")
        assert await process.stdout.receive() == b"hello"
        process.send_signal(15)
        assert await process.wait() == -15
        process.close()


LEAVES = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session={daemon},
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
"""


@pytest.mark.parametrize("daemon", [False, True])
async def test_what_a_command_leaves_is_killed_even_a_daemon(mac, daemon):
    async with mac.open() as sandbox:
        process = await sandbox.spawn([sys.executable, "-c", LEAVES.format(daemon=daemon)])
        orphan = int(await process.stdout.receive())
        assert await process.wait() == 0
        assert process.has_left_processes
        await until(lambda: not is_running(orphan))
        process.close()


async def test_kill_ends_a_command_with_its_daemon_and_so_does_closing(mac):
    code = LEAVES.format(daemon=True) + "\nimport time; time.sleep(600)"
    async with mac.open() as sandbox:
        first = await sandbox.spawn([sys.executable, "-c", code])
        second = await sandbox.spawn([sys.executable, "-c", code])
        orphans = [int(await each.stdout.receive()) for each in (first, second)]
        first.kill()
        assert await first.wait() == -9
        await until(lambda: not is_running(orphans[0]))
        assert is_running(orphans[1])
        first.close()
    await until(lambda: not is_running(orphans[1]))
    second.close()


async def test_starter_leaves_ending_to_the_supervisor_and_no_command_after_a_bug(mac):
    async with mac.open() as sandbox:
        process = await sandbox.spawn(["sleep", "600"])
        _, said = await output_of(sandbox, "/bin/sh", "-c", "echo $PPID")
        os.kill(int(said), signal.SIGTERM)
        (mac.project / ".envrc").touch()
        await until(lambda: not (mac.project / ".envrc").exists())
        assert await output_of(sandbox, "echo", "works") == (0, "works\n")
        assert Path(sandbox.policy.tmp_dir).is_dir()  # noqa: ASYNC240
        assert process.is_running
        view = await sandbox._views.get(sandbox.policy)
        await view.send(("nonsense",), ())
        with anyio.fail_after(DEADLINE_S):
            assert await process.wait() == -9
        process.close()


def test_command_that_cannot_be_watched_is_ended(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(os, "posix_spawn", _noting(os.posix_spawn, started))
    program = tmp_path / "sandbox-exec"
    program.write_text(STAND_IN.format(profile=shlex.quote(str(tmp_path / "profile"))))
    program.chmod(0o755)
    ours, theirs = socket.socketpair()
    status, said = os.pipe()
    streams = [os.open(os.devnull, os.O_RDWR) for _ in range(3)]
    starter = Starter(StarterView("", ResourceLimits(), str(program)), theirs, -1)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ours, theirs:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_next_descriptor(), limits[1]))
        try:
            starter._launch(1, ["/bin/sleep", "600"], {}, "/", [*streams, said])
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert os.read(status, 100) == b"Cannot start another process: Too many open files."
    assert os.read(status, 100) == b""
    os.close(status)
    assert [is_running(pid) for pid in started] == [False]


def _noting(spawn, pids):
    def noting(*arguments, **options):
        pids.append(spawn(*arguments, **options))
        return pids[-1]

    return noting


def _next_descriptor() -> int:
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


async def test_file_worker_reads_and_writes(mac):
    async with mac.open() as sandbox:
        files = await sandbox.open_files()
        await files.write(f"{mac.project}/new", b"text" * 100_000)
        assert (mac.project / "new").read_bytes() == b"text" * 100_000
        assert await files.list(str(mac.project)) == [("new", "file")]
        files.close()


async def test_proxy_has_a_port_of_its_own_in_profile_and_environment(mac):
    async with mac.open(network="proxy", hosts=("example.com",)) as sandbox:
        _, said = await output_of(sandbox, "/bin/sh", "-c", 'echo "$http_proxy"')
        port = int(said.strip().rpartition(":")[2])
        assert f'(remote ip "localhost:{port}")' in mac.profile.read_text()
        connection = await anyio.connect_tcp("127.0.0.1", port)
        async with connection:
            await connection.send(
                b"CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n"
            )
            assert b" 403 " in await connection.receive()


async def test_each_network_is_a_view_with_its_own_profile(mac):
    async with mac.open() as sandbox:
        await output_of(sandbox, "true")
        assert "(remote ip" not in mac.profile.read_text()
        await sandbox.set_network("on")
        await output_of(sandbox, "true")
        assert '(remote ip "*:*")' in mac.profile.read_text()


async def test_profile_refuses_the_names_that_git_would_run(mac):
    for repository in (mac.project, mac.base / "home/granted"):
        for command in (["init", "-q"], ["config", "core.fsmonitor", "tools/monitor"]):
            await anyio.run_process(["git", *command], cwd=await _made(repository))
    async with mac.open(write_paths=(str(mac.base / "home/granted"),)) as sandbox:
        await output_of(sandbox, "true")
    profile = Profile(mac.profile.read_text())
    for repository in ("project", "granted"):
        at = f"{mac.base}/home/{repository}"
        for path in ("tools/monitor", "Tools/MONITOR", ".git/commondir", ".git/config.worktree"):
            assert not profile.allows(Request("file-write-create", f"{at}/{path}")), path
        for path in ("tools/other", "tools"):
            assert profile.allows(Request("file-write-create", f"{at}/{path}")), path
        assert not profile.allows(Request("file-write-unlink", f"{at}/TOOLS"))  # to be renamed


async def _made(directory: Path) -> Path:
    await anyio.Path(directory).mkdir(parents=True, exist_ok=True)
    return directory


async def test_new_name_that_runs_something_is_put_into_quarantine(mac):
    async with mac.open() as sandbox:
        await output_of(sandbox, "/bin/sh", "-c", "mkdir .git; echo '[core]' > .envrc")
        sandbox.audit()
        found = await until(lambda: [each for each in mac.events if isinstance(each, GuardEvent)])
        assert any(each.kind == "quarantined" and each.path == ".envrc" for each in found)
        assert not (mac.project / ".envrc").exists()


async def test_protected_file_that_the_user_changes_stays_so(mac):
    await anyio.run_process(["git", "init", "-q"], cwd=mac.project)
    (mac.project / ".envrc").write_text("export A=1\n")
    async with mac.open() as sandbox:
        await output_of(sandbox, "true")
        setting = ["git", "config", "core.fsmonitor", "./monitor"]  # replaces the file
        await anyio.run_process(setting, cwd=mac.project)
        (mac.project / ".envrc").unlink()
        await sandbox.undoes(".envrc")  # an answer that comes after the guard's next look
        (mac.project / ".envrc").write_text("export A=2\n")
        (mac.project / ".nvimrc").touch()
        sandbox.audit()
        await until(lambda: not (mac.project / ".nvimrc").exists())
    assert (mac.project / ".envrc").read_text() == "export A=2\n"
    assert "fsmonitor" in (mac.project / ".git/config").read_text()
    assert [(each.kind, each.path) for each in mac.events] == [("quarantined", ".nvimrc")]


async def test_branch_that_the_user_has_checked_out_is_held_in_a_worktree(mac):
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (
        ("init", "-q", "-b", "main"),
        (*identity, "commit", "-q", "--allow-empty", "-m", "x"),
        ("worktree", "add", "-q", "-b", "side", f"{mac.base}/home/side"),
    ):
        await anyio.run_process(["git", *command], cwd=mac.project)
    async with mac.open(project=f"{mac.base}/home/side", is_worktree=True) as sandbox:
        await output_of(sandbox, "true")
    profile = Profile(mac.profile.read_text())
    heads = f"{mac.project}/.git/refs/heads"
    assert profile.allows(Request("file-write-data", f"{heads}/side"))
    assert not profile.allows(Request("file-write-data", f"{heads}/main"))
    assert not profile.allows(Request("file-write-unlink", heads))


async def test_nothing_opens_while_the_self_test_failed(mac):
    report = LayerReport({"seatbelt": "the self-test failed: read a secret: succeeded"}, 0)
    assert report.level == "none"
    opening = Sandbox.open(mac.policy, report=report, platform="darwin", sandbox_exec="/bin/false")
    with pytest.raises(SandboxError, match=r"on this Mac, because the self-test failed: read"):
        async with opening:
            pass


async def test_polled_guard_acts_without_being_asked(mac):
    async with mac.open() as sandbox:
        await output_of(sandbox, "true")
        (mac.project / ".envrc").write_text("evil")  # not by a command, so no audit follows
        await until(lambda: not (mac.project / ".envrc").exists())
        assert [each.kind for each in mac.events if each.path == ".envrc"] == ["quarantined"]
