"""On a system without the sandbox: everything else works, and commands are refused in one sentence."""

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# What Python has on Linux alone, as far as the host's side could stumble over it.
PRELUDE = """
import fcntl, os, resource, signal, socket, sys
for module, names in {
    fcntl: "F_ADD_SEALS F_GETPIPE_SZ F_NOTIFY F_SETLEASE F_SETPIPE_SZ F_SETSIG",
    os: "O_DIRECT O_LARGEFILE O_NOATIME O_PATH O_RSYNC O_TMPFILE MFD_CLOEXEC SCHED_BATCH memfd_create"
    " copy_file_range eventfd getrandom getxattr listxattr pidfd_open pipe2 posix_fadvise posix_fallocate"
    " prlimit removexattr sched_getaffinity setns setxattr splice unshare",
    resource: "RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING prlimit",
    signal: "SIGPOLL SIGPWR SIGRTMIN SIGRTMAX SIGSTKFLT sigtimedwait",
    socket: "AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED SO_DOMAIN",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.platform = "darwin"
"""

UNKNOWN = "macOS does not say when it started, or which build it is"  # as its sysctl is missing
REFUSED = f"Commands are refused on this Mac, because {UNKNOWN}."


def run_elsewhere(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("module", ["sanderling.editor.host", "sanderling.__main__"])
def test_package_can_be_imported_without_what_only_linux_has(module):
    done = run_elsewhere(f"import {module}")
    assert (done.returncode, done.stderr) == (0, "")


def test_command_is_refused_with_the_reason():
    code = "from sanderling.__main__ import main; sys.exit(main())"
    done = run_elsewhere(code, "sandbox", "exec", "--", "true")
    assert done.returncode == 125
    assert done.stderr == f"sanderling: {REFUSED}\n"


def test_status_says_that_nothing_is_enforced():
    code = "from sanderling.__main__ import main; sys.exit(main())"
    done = run_elsewhere(code, "sandbox", "status")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("level: none\n")
    report = json.loads(run_elsewhere(code, "sandbox", "status", "--json").stdout)
    assert report["layers"] == {"seatbelt": {"works": False, "reason": UNKNOWN}}
    assert [finding["level"] for finding in report["findings"]] == ["error", "info"]
    assert "sanderling sandbox check" in report["findings"][0]["advice"][0]


def test_only_a_session_whose_sandbox_was_switched_off_runs_anything(tmp_path):
    (tmp_path / "project").mkdir()
    code = f"""
import anyio
from sanderling.config import Settings
from sanderling.errors import SandboxError
from sanderling.sandbox.confinement import SessionSandbox, policy_for

async def main():
    settings = Settings(state_dir={str(tmp_path / "state")!r})
    policy = policy_for(settings, {str(tmp_path / "project")!r})
    sandbox = SessionSandbox(policy, print, lambda: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sandbox.manager.serve)
        try:
            await sandbox.environment.spawn(["true"])
        except SandboxError as error:
            print(error)
        sandbox.switch(is_on=False)
        process = await sandbox.environment.spawn(["echo", "ran"])
        print((await process.stdout.receive()).decode().strip(), await process.wait())
        process.close()
        tasks.cancel_scope.cancel()

anyio.run(main)
"""
    done = run_elsewhere(code)
    assert done.stdout == f"{REFUSED}\nran 0\n", done.stderr


MODULES = """
import importlib, pkgutil, sysconfig, types
# Python's own build data and a module of its own have other names on macOS.
sys.platform = "linux"
sysconfig.get_config_vars()
sys.platform = "darwin"
sys.modules["_scproxy"] = types.SimpleNamespace(_get_proxies=dict, _get_proxy_settings=dict)
import sanderling

for module in pkgutil.walk_packages(sanderling.__path__, "sanderling."):
    if not module.name.startswith(("sanderling.__main__", "sanderling.providers.sample")):
        importlib.import_module(module.name)
print("imported")
"""


def test_every_module_can_be_imported_without_what_only_linux_has():
    done = run_elsewhere(MODULES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "imported\n", "")
