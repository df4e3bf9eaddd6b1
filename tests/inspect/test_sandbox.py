"""Inspect's sandbox `sanderling`, run by Inspect itself."""

import json
import os
import signal
import socket
import subprocess
import threading

import pytest

from tests.conftest import running, wait_until
from tests.inspect.conftest import HERE, Inspect

NOT_APPLICABLE = {"test_exec_as_user": "a sample's commands have one user, which cannot add others"}


def test_inspects_own_checks_of_a_sandbox_pass(inspect: Inspect):
    done = inspect.python(str(HERE / "self_check.py"))
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["count"] >= 44
    assert result["failed"].keys() == NOT_APPLICABLE.keys(), result["failed"]
    assert inspect.left() == []


def sample_metadata(log: dict) -> list[dict]:
    assert log["status"] == "success", log.get("error")
    return [sample["store"] for sample in log["samples"]]


def test_a_sample_has_its_files_and_setup_and_nothing_else_of_this_machine(inspect: Inspect):
    (inspect.home / "secret").write_text("secret")
    heard: list[bool] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            while True:
                try:
                    listener.accept()
                except OSError:
                    return
                heard.append(True)

        threading.Thread(target=listen, daemon=True).start()
        port = listener.getsockname()[1]
        outside = inspect.folder / "outside"
        outside.mkdir()
        arguments = f"secret={inspect.home}/secret", f"port={port}", f"outside={outside}"
        log = inspect.eval("confined", *(word for each in arguments for word in ("-T", each)))
        listener.shutdown(socket.SHUT_RDWR)
    (found,) = sample_metadata(log)
    assert found["given"] == "given\nset up\n"
    assert "secret" not in found["secret"]
    assert found["key"] == "no key\n"
    assert found["written"] == "refused\nrefused\n"
    assert found["connected"] == "refused\n"
    assert heard == []
    assert [*outside.iterdir()] == []
    assert found["read_file"] == "FileNotFoundError"
    assert found["write_file"] in ("PermissionError", "FileNotFoundError", "OSError")
    assert inspect.left() == []


def test_samples_at_the_same_time_do_not_see_each_other(inspect: Inspect):
    log = inspect.eval("neighbours", "--max-samples", "4", "--max-subprocesses", "8")
    samples = sample_metadata(log)
    assert len(samples) == 4
    for found in samples:
        assert found["files"].split() == [found["own"]] * 3
        assert found["processes"] == "1\n"
    assert inspect.left() == []


def test_a_process_in_the_background_is_there_for_the_next_command_and_gone_after_the_sample(
    inspect: Inspect,
):
    (found,) = sample_metadata(inspect.eval("background"))
    assert found["answered"] == "hello\n"
    assert found["returned"] == "1\n"
    assert not running(found["mark"])


def test_a_project_is_copied_for_each_sample_with_its_repository(inspect: Inspect):
    project = inspect.folder / "project"
    project.mkdir()
    (project / "file").write_text("file\n")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], cwd=project, check=True)
    samples = sample_metadata(inspect.eval("project", "-T", f"path={project}"))
    assert [found["said"] for found in samples] == ["file\nchanged\n"] * 2
    assert (project / "file").read_text() == "file\n"
    assert not (project / ".git/hooks/pre-commit").exists()


def test_what_a_configuration_has_wrong_is_named(inspect: Inspect):
    code = """
import anyio, sys
from sanderling_inspect.environment import SanderlingSandboxConfig, SanderlingSandboxEnvironment
async def start(**options):
    try:
        config = SanderlingSandboxConfig(**options)
        await SanderlingSandboxEnvironment.sample_init("x", config, {})
    except Exception as error:
        print(str(error).replace("\\n", " "))
anyio.run(lambda: start(workdir="/usr"))
anyio.run(lambda: start(workdir="app"))
anyio.run(lambda: start(command="missing"))
anyio.run(lambda: start(hots=()))
"""
    done = inspect.python("-c", code)
    system, relative, program, key = done.stdout.splitlines()
    assert "/usr cannot be mounted" in system
    assert "an absolute path below / is needed" in relative
    assert "There is no program 'missing'" in program
    assert "hots" in key
    assert inspect.left() == []


def test_a_command_cannot_forge_answers_and_one_that_stops_the_server_harms_only_its_sample(
    inspect: Inspect,
):
    code = """
import anyio
from sanderling_inspect.environment import SanderlingSandboxEnvironment as Environment
SERVER = "SERVER=$(pgrep -f inside.py | head -1); "
async def run(command, **options):
    environment = (await Environment.sample_init("x", None, {}))["default"]
    try:
        for each in (command, "echo next"):
            try:
                print((await environment.exec(["sh", "-c", SERVER + each], **options)).stdout.strip())
            except Exception as error:
                print(type(error).__name__)
    finally:
        await environment.remove()
anyio.run(run, "for f in environ mem fd/1 fd/2; do cat /proc/$SERVER/$f 2>/dev/null || echo no; done")
anyio.run(run, "kill -KILL $SERVER; sleep 60")
anyio.run(lambda: run("kill -STOP $SERVER; sleep 60", timeout=1))
"""
    done = inspect.python("-c", code)
    assert done.returncode == 0, done.stderr
    forged, killed, stopped = ["no"] * 4, ["SandboxUnavailableError"] * 2, ["TimeoutError"] * 2
    assert done.stdout.split() == [*forged, "next", *killed, *stopped]
    assert inspect.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_no_process(inspect: Inspect, number: signal.Signals):
    mark = f"mark_{os.getpid()}_{number}"
    command = inspect.command("endless", "-T", f"mark={mark}", "--max-samples", "2")
    with (inspect.folder / "out").open("wb") as out:
        run = subprocess.Popen(
            command, env=inspect.environment, cwd=inspect.folder, stdout=out, stderr=out
        )
        wait_until(lambda: len(running(mark)) >= 3, deadline_s=120)  # with Inspect itself
        run.send_signal(number)
        run.wait(120)
    wait_until(lambda: not running(mark), deadline_s=60)
    if number == signal.SIGKILL:
        assert len(inspect.left()) == 2
        done = inspect.python("-m", "inspect_ai", "sandbox", "cleanup", "sanderling")
        assert done.returncode == 0, done.stderr
    assert inspect.left() == []


READ = """
import sys
from pathlib import Path
from sanderling_inspect.images import read_dockerfile
try:
    image = read_dockerfile(Path("Dockerfile"), Path.cwd())
    print(image.env, [target for _, target in image.copies])
except NotImplementedError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "line, words",
    [
        ("# It's a comment.\nENV A=#fff B='two # words'", "{'A': '#fff', 'B': 'two # words'}"),
        ("LABEL note=it's\nCOPY file /app/", "['/app/']"),
        ("RUN echo it's", "builds no images"),
        ("COPY ../secret /app/", "builds no images"),
    ],
)
def test_a_dockerfile_is_read_or_refused_with_its_line(inspect: Inspect, line: str, words: str):
    (inspect.folder / "Dockerfile").write_text(f"FROM ubuntu\n{line}\n")
    done = inspect.python("-c", READ)
    assert words in done.stdout, done.stderr
