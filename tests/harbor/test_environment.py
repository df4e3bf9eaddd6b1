"""The environment without Docker, as Harbor uses it: files, users, time, and what a command can do to this machine."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, processes_with, wait_until
from tests.harbor.conftest import HARBOR

DRIVER = """
import asyncio, json, os, sys
from pathlib import Path
from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
from harbor.models.trial.paths import TrialPaths
from sanderling_harbor import NamespaceEnvironment

async def main(folder, steps, policy, mounts):
    environment = NamespaceEnvironment(
        environment_dir=folder / "environment", environment_name="x", session_id="x__env",
        trial_paths=TrialPaths(trial_dir=folder / "trial"), task_env_config=EnvironmentConfig(),
        network_policy=NetworkPolicy(network_mode=policy), mounts=mounts,
    )
    said = []
    try:
        await environment.start(False)
        for name, *arguments in steps:
            options = arguments.pop() if arguments and isinstance(arguments[-1], dict) else {}
            try:
                result = await getattr(environment, name)(*arguments, **options)
                said.append(result.model_dump() if name == "exec" else result)
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
    finally:
        await environment.stop(True)
    root = environment._root
    print(json.dumps([said, bool(root and root.exists())]))

asyncio.run(main(Path(sys.argv[1]), *json.loads(sys.argv[2])))
"""


@pytest.fixture
def use(tmp_path: Path) -> Callable[..., list[Any]]:
    """Start an environment, call its methods, stop it; nothing of it is left then."""
    if not shutil.which("bwrap"):
        pytest.skip("the environment needs bubblewrap")
    (tmp_path / "environment").mkdir()

    def run(*steps: Any, network: str = "no-network", mounts: Any = None) -> list[Any]:
        done = subprocess.run(
            [HARBOR, "-c", DRIVER, str(tmp_path), json.dumps([steps, network, mounts])],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "eval/harbor"), "SECRET": "s"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        said, is_left = json.loads(done.stdout)
        assert not is_left
        return said

    return run


def out(result: Any) -> str:
    assert isinstance(result, dict), result
    return result["stdout"].strip()


# --- files -------------------------------------------------------------------------------------------------------------


def test_files_directories_links_and_modes_go_in_and_out(use, tmp_path):
    there = tmp_path / "in"
    (there / "sub dir").mkdir(parents=True)
    (there / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (there / "run.sh").chmod(0o755)
    (there / "secret").write_text("x")
    (there / "secret").chmod(0o600)
    (there / "link").symlink_to("run.sh")
    (there / "sub dir/-n ümlaut").write_bytes(b"\0\xff")
    back = tmp_path / "out"
    said = use(
        ["upload_dir", str(there), "/data/deep/in"],
        ["upload_file", str(there / "run.sh"), "/data/other.sh"],
        [
            "exec",
            "stat -c '%a %n' run.sh secret; readlink link; ./link; /data/other.sh",
            {"cwd": "/data/deep/in"},
        ],
        ["download_dir", "/data/deep/in", str(back)],
        ["download_file", "/data/deep/in/sub dir/-n ümlaut", str(tmp_path / "one")],
        ["is_dir", "/data/deep"],
        ["is_file", "/data/deep"],
        ["download_file", "/data/nothing", str(tmp_path / "none")],
        ["upload_file", str(tmp_path / "nothing"), "/data/x"],
        ["download_dir", "/nowhere", str(tmp_path / "none")],
    )
    assert out(said[2]).splitlines() == ["755 run.sh", "600 secret", "run.sh", "ran", "ran"]
    assert (back / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (back / "link").readlink() == Path("run.sh")
    assert (back / "sub dir/-n ümlaut").read_bytes() == (tmp_path / "one").read_bytes() == b"\0\xff"
    assert said[5:7] == [True, False]
    assert "/data/nothing" in said[7]
    assert "nothing" in said[8]
    assert "/nowhere" in said[9]
    assert not (tmp_path / "none").exists()


DOCKERFILE = """
FROM python:3.14
# It's a comment, and " has no end.
ENV COLOUR=#fff OTHER="two # words"
LABEL note=it's
COPY file /app/
"""


def test_a_dockerfile_without_instructions_to_build_is_read(use, tmp_path):
    (tmp_path / "environment" / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "environment" / "file").write_text("x\n")
    said = use(["exec", 'cat file; echo "$COLOUR $OTHER"'])
    assert out(said[0]) == "x\n#fff two # words"


@pytest.mark.parametrize(
    "line",
    [
        "COPY ../secret /app/",
        "COPY /etc/hostname /app/",
        "COPY file link /app/",
        "COPY --from=x a /app/",
        "RUN echo it's",
        "ENV A='b",
    ],
)
def test_a_dockerfile_that_leads_out_or_needs_a_build_ends_the_start_with_its_line(
    use, tmp_path, line
):
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "environment" / "file").write_text("x\n")
    (tmp_path / "environment" / "link").symlink_to("../secret")
    (tmp_path / "environment" / "Dockerfile").write_text(f"FROM ubuntu\n{line}\n")
    with pytest.raises(
        AssertionError, match=r"NotImplementedError: .* the Dockerfile has"
    ) as raised:
        use()
    assert line in str(raised.value).replace("\\'", "'")


def test_links_that_lead_out_stay_inside(use, tmp_path):
    made = (
        "mkdir /x; ln -s /etc/hosts /x/absolute; ln -s ../../.. /x/up; ln -s a /x/near; echo a > /x/a;"
        " mkfifo /x/pipe; ln -s / /y"
    )
    use(
        ["exec", made],
        ["download_dir", "/x", str(tmp_path / "out")],
        ["upload_dir", str(tmp_path / "environment"), f"/y{tmp_path}/planted"],
    )
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "near"]
    assert not (tmp_path / "planted").exists()


def test_a_directory_that_the_user_names_is_mounted(use, tmp_path):
    for name in ("seen", "shared"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(name)
    mounts = [
        {"type": "bind", "source": str(tmp_path / "seen"), "target": "/seen", "read_only": True},
        {"type": "bind", "source": str(tmp_path / "shared"), "target": "/app/shared"},
    ]
    command = "cat /seen/a shared/a; echo x > /seen/b; echo x > shared/b"
    [said] = use(["exec", command], mounts=mounts)
    assert out(said) == "seenshared"
    assert sorted(tmp_path.glob("*/b")) == [tmp_path / "shared/b"]


# --- commands ----------------------------------------------------------------------------------------------------------


def test_a_command_has_its_user_directory_and_variables(use):
    said = use(
        [
            "exec",
            "id -u; id -g; pwd; echo $A; id -un; touch /root/x && echo made",
            {"env": {"A": "b c"}, "cwd": "/opt"},
        ],
        ["exec", "id -u; id -g; touch mine; stat -c %u mine", {"user": 1234}],
        ["exec", "id -u; id -g", {"user": "1234:55"}],
        ["exec", "id -un", {"user": "nobody"}],
        ["exec", "id", {"user": "no-such-user"}],
        ["exec", "pwd", {"cwd": "/nowhere"}],
        ["exec", "printf '\\377'; exit 7"],
    )
    assert out(said[0]).splitlines() == ["0", "0", "/opt", "b c", "root", "made"]
    assert out(said[1]).split() == ["1234", "1234", "1234"]
    assert out(said[2]).split() == ["1234", "55"]
    assert out(said[3]) == "nobody"
    assert said[4] == "RuntimeError: the environment has no user 'no-such-user': name its ID"
    assert said[5]["return_code"] != 0
    assert (said[6]["return_code"], said[6]["stdout"]) == (7, "�")


def test_a_command_that_takes_too_long_ends_with_all_of_its_processes(use, tmp_path):
    mark = f"sleep-{tmp_path.name}"
    command = f"(exec -a {mark} sleep 1000) & exec -a {mark} sleep 1000"
    said = use(["exec", command, {"timeout_sec": 1}], ["exec", "echo next"])
    assert said[0] == "RuntimeError: Command timed out after 1 seconds"
    assert out(said[1]) == "next"
    wait_until(lambda: not processes_with("cmdline", lambda line: line.startswith(mark.encode())))


def test_a_healthcheck_waits_for_what_it_names(use):
    check = (
        "from harbor.models.task.config import HealthcheckConfig as H;"
        "print(H(command='x').model_dump_json())"
    )
    fields = json.loads(subprocess.check_output([HARBOR, "-c", check], text=True))
    assert fields["command"] == "x"
    said = use(["run_healthcheck"], ["exec", "true"])
    assert said[0] is None


# --- attacks -----------------------------------------------------------------------------------------------------------


def test_nothing_of_this_machine_is_read_written_or_reached(use, tmp_path):
    (tmp_path / "secret").write_text("of this machine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tries = [
            f"cat {tmp_path}/secret /etc/shadow /proc/1/environ /root/.* ; env",
            "mount -o remount,rw,bind /usr; touch /usr/sanderling-was-here",
            "unshare -Urm sh -c 'mount -o remount,rw,bind /usr; touch /usr/sanderling-was-here'",
            "umount -l /proc/sys; test -w /proc/sys/kernel/core_pattern && echo can be written",
            "unshare -Urm sh -c 'umount -l /proc/sys; test -w /proc/sys/kernel/core_pattern' && echo can be written",
            "test -w /proc/sysrq-trigger && echo can be written",
            "mknod /tmp/disk b 259 0 && echo made",
            f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected",
            "ls -d /proc/[0-9]* | wc -l",
            "chroot / true && echo chrooted; kill -9 -1; true",
        ]
        said = use(*(["exec", each] for each in tries))
    texts = [out(each) for each in said]
    assert "of this machine" not in texts[0]
    assert "SECRET" not in texts[0]
    assert texts[1:8] == [""] * 7
    assert int(texts[8]) < 8
    assert texts[9] == ""
    assert not Path("/usr/sanderling-was-here").exists()


def test_no_capability_is_left(use):
    [said] = use(["exec", "grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status"])
    assert {line.split()[1] for line in out(said).splitlines()} == {"0" * 16}


def test_a_network_is_there_unless_the_task_forbids_it(use):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = f"exec 3<>/dev/tcp/127.0.0.1/{port} && echo connected"
        [said] = use(["exec", command], network="public")
    assert out(said) == "connected"


def test_a_mount_of_another_kind_is_refused(tmp_path):
    if not shutil.which("bwrap"):
        pytest.skip("the environment needs bubblewrap")
    (tmp_path / "environment").mkdir()
    mounts = [{"type": "volume", "source": "v", "target": "/v"}]
    done = subprocess.run(
        [HARBOR, "-c", DRIVER, str(tmp_path), json.dumps([[], "public", mounts])],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "eval/harbor")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "only directories and files can be mounted, not a volume" in done.stderr


@pytest.mark.parametrize("source", ["../secret", "link"])
def test_a_dockerfile_copies_no_file_from_outside_of_the_task(
    use: Callable[..., list[Any]], tmp_path: Path, source: str
):
    (tmp_path / "secret").write_text("planted")
    (tmp_path / "environment" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "environment" / "Dockerfile").write_text(f"FROM x\nCOPY {source} /app/\n")
    with pytest.raises(AssertionError, match="builds no images"):
        use(["exec", "cat /app/*"])
