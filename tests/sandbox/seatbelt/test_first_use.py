"""
What a user of a Mac sees: before the self-test, during it, after it failed, and after it was run again.

The command line runs as on macOS, with stand-ins for `sandbox-exec` and `sysctl`, and with three attempts, to be quick.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import os, sys
# On macOS these find its own calls when they are imported; here they keep those of Linux.
import sanderling.platforms.endings, sanderling.platforms.files, sanderling.platforms.peers
import sanderling.platforms.processes, sanderling.sandbox.kernel.file_systems, sanderling.sandbox.seatbelt.spelling
import urllib.request
from sanderling.sandbox.seatbelt import profile
from sanderling.sandbox.selftest.trials import ESCAPES, TASKS
profile.PROGRAM = os.environ["STAND_IN"]
for table in (ESCAPES, TASKS):
    for name in {*table} - {"read-secret", "files", "temporary"}:
        del table[name]
sys.platform = "darwin"
from sanderling.sandbox.selftest import seatbelt
seatbelt._SYSCTL = os.environ["SYSCTL"]
"""
MAIN = "from sanderling.__main__ import main\nsys.exit(main())"
STAND_INS = {
    "works": '#!/bin/sh\ntouch "$0.ran"\nshift 3\ncase $* in *read-secret*) exit 1 ;; esac\nexec "$@"\n',
    "leaks": '#!/bin/sh\nshift 3\nexec "$@"\n',
    "nested": "#!/bin/sh\necho 'sandbox-exec: sandbox_apply: Operation not permitted' >&2\nexit 71\n",
    "refused": "#!/bin/sh\necho 'sandbox-exec: <input string>:12:3: unbound variable: foo' >&2\nexit 65\n",
}
VERIFYING = (
    "sanderling: The sandbox is tested on this Mac, as after each start and update. That takes some seconds, and commands"
    " wait for it.\n"
)
COMMAND = f"{sys.prefix}/bin/sanderling sandbox check"


class Mac:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.project = base / "home/project"
        self.project.mkdir(parents=True)
        for name, text in STAND_INS.items():
            self._write(name, text)
        self.boot = "boot-1"
        self._write("sysctl", '#!/bin/sh\necho "$BOOT"\n')

    def _write(self, name: str, text: str) -> None:
        (self.base / name).write_text(text)
        (self.base / name).chmod(0o755)

    def run(self, stand_in: str, *arguments: str, code: str = MAIN):
        return subprocess.run(
            [sys.executable, "-c", CODE + code, *arguments],
            cwd=self.project,
            env={
                "HOME": str(self.base / "home"),
                "PATH": os.defpath,
                "STAND_IN": str(self.base / stand_in),
                "SYSCTL": str(self.base / "sysctl"),
                "BOOT": self.boot,
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def mac(tmp_path):
    return Mac(tmp_path.resolve())


def sandbox_section(mac: Mac, stand_in: str) -> list[dict]:
    report = json.loads(mac.run(stand_in, "check", "--json").stdout)
    return next(each["lines"] for each in report["sections"] if each["title"] == "Sandbox")


def test_the_report_does_not_wait_for_the_self_test(mac):
    [line] = sandbox_section(mac, "works")
    assert line["level"] == "info"
    assert "not verified since the last start or update" in line["text"]
    assert line["advice"] == [f"Or run `{COMMAND}` now"]
    assert not (mac.base / "works.ran").exists()


def test_the_report_has_the_level_once_it_is_verified_and_not_after_an_update(mac):
    assert mac.run("works", "sandbox", "check").returncode == 0
    first, *others = sandbox_section(mac, "works")
    assert (first["level"], first["text"]) == ("ok", "level seatbelt")
    assert "(Seatbelt cannot prevent it)" in others[0]["text"]
    mac.boot = "boot-2"
    assert "not verified" in sandbox_section(mac, "works")[0]["text"]


def test_the_check_ends_with_its_meaning(mac):
    assert mac.run("works", "sandbox", "check").stdout.splitlines() == [
        "ok       files of the project are written, renamed and removed: works",
        "ok       temporary files are written: works",
        "ok       read a secret in HOME: refused",
        "The sandbox refused each escape and allowed each task (3 in all).",
    ]


def test_an_escape_that_succeeds_is_named_with_what_follows(mac):
    done = mac.run("leaks", "sandbox", "check")
    assert done.returncode == 1
    *_, escape, count, refused, report = done.stdout.splitlines()
    assert escape == "FAILED   read a secret in HOME: succeeded in the sandbox"
    assert count == "1 of 3 failed."
    assert refused.startswith("Until all succeed, Sanderling refuses commands on this Mac.")
    assert "sw_vers" in report


@pytest.mark.parametrize(
    "stand_in, reason",
    [
        ("nested", "sandbox-exec: sandbox_apply: Operation not permitted"),
        ("refused", "sandbox-exec: <input string>:12:3: unbound variable: foo"),
        ("missing", "missing: No such file or directory"),
    ],
)
def test_one_sentence_says_why_no_program_starts(mac, stand_in, reason):
    done = mac.run(stand_in, "sandbox", "check")
    said = [line for line in done.stdout.splitlines() if line.startswith("No program starts in")]
    assert len(said) == 1
    assert said[0].endswith(f"{reason}.")
    assert ("runs in a sandbox already" in done.stdout) == (stand_in == "nested")
    status = mac.run(stand_in, "sandbox", "status").stdout.splitlines()
    assert status[0] == "level: none"
    assert status[1].startswith(
        "- seatbelt: the self-test failed: no program starts in the sandbox: "
    )
    assert status[1].endswith(reason)


def test_a_refused_command_says_why_and_what_to_do(mac):
    done = mac.run("leaks", "sandbox", "exec", "--", "true")
    refused = (
        "sanderling: Commands are refused on this Mac, because the self-test failed: read a secret in HOME: succeeded in the"
        f" sandbox. Run `{COMMAND}` to see all and to try again.\n"
    )
    assert (done.returncode, done.stderr) == (125, VERIFYING + refused)
    assert mac.run("leaks", "sandbox", "exec", "--", "true").stderr == refused


AGAIN = """
import anyio
from sanderling.config import state_dir
from sanderling.sandbox.sandbox import Sandbox, must_verify

async def main():
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(Sandbox.probe)
    print((await Sandbox.probe()).level, await must_verify())
    record = state_dir() / seatbelt.RECORD
    record.write_text(record.read_text().replace('"no program', '"other'))
    print((await Sandbox.probe()).reasons["seatbelt"][:28])
    await seatbelt.verify(state_dir(), await seatbelt.current_stamp(), sys.argv[1])
    print((await Sandbox.probe()).level)
    print(open(sys.argv[2]).read().count("start"))

anyio.run(main)
"""


def test_sessions_share_one_self_test_and_notice_a_later_one_that_succeeded(mac):
    log = mac.base / "log"
    mac._write("counts", f"#!/bin/sh\necho start >> {log}\nexit 71\n")
    done = mac.run("counts", str(mac.base / "works"), str(log), code=AGAIN)
    assert done.stdout.splitlines() == [
        "none False",
        "the self-test failed: other ",
        "seatbelt",
        "3",
    ], done.stderr


SESSION = """
import anyio
from sanderling.config import state_dir
from sanderling.conversation.conversation import Conversation

class Services:
    # What `_find_level` needs of a session.
    def emit(self, event):
        print(event.level, event.text)

    async def find_level(self):
        print("found")

services = Services()
services.services, services.sandbox, services.manager = services, services, services
anyio.run(Conversation._find_level, services)
stamp = anyio.run(seatbelt.current_stamp)
anyio.run(seatbelt.verify, state_dir(), stamp)
anyio.run(Conversation._find_level, services)
"""


def test_a_session_says_that_commands_wait_for_the_self_test(mac):
    done = mac.run("works", code=SESSION)
    notice = VERIFYING.removeprefix("sanderling: ").strip()
    assert done.stdout.splitlines() == [f"info {notice}", "found", "found"], done.stderr
