"""How Sanderling gets into an environment: from an archive, from wheels, from the index; and why not."""

import http.server
import json
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sanderling import __version__
from tests import archive
from tests.conftest import ROOT, prove
from tests.harbor.conftest import run_harbor
from tests.harbor.test_harbor import DONE, SOLVE, job

__all__ = ["job"]  # a fixture

DRIVER = """
import asyncio, json, sys
from pathlib import Path
from harbor.agents.installed.acp import AcpAgent
from harbor.models.task.config import EnvironmentConfig, NetworkPolicy
from harbor.models.trial.paths import TrialPaths
from sanderling_harbor import NamespaceEnvironment, Sanderling

async def main(folder, options, before, path, shown, policy, then):
    (folder / "environment").mkdir()
    (folder / "logs").mkdir()
    environment = NamespaceEnvironment(
        environment_dir=folder / "environment", environment_name="x", session_id="x__env",
        trial_paths=TrialPaths(trial_dir=folder / "trial"), task_env_config=EnvironmentConfig(),
        network_policy=NetworkPolicy(network_mode=policy), read_paths=shown,
        persistent_env={"PATH": path} if path else None,
    )
    await environment.start(False)
    try:
        await environment._check("/usr/bin/bash", "-c", before)
        if "registry_entry" in options:
            agent = AcpAgent(logs_dir=folder / "logs", **options)
            kind, target = agent._select_distribution("linux-x86_64")
            await agent._install_binary_target(environment, target)
            start = agent._build_launcher_script(kind, target)
            await environment._check("/usr/bin/bash", "-c", 'printf %s "$1" > /start', "", start)
        else:
            agent = Sanderling(logs_dir=folder / "logs", **options)
            await agent.setup(environment)
        done = await environment.exec(then)
        print(json.dumps([agent.version(), done.return_code, done.stdout, done.stderr]))
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
    finally:
        await environment.stop(True)

asyncio.run(main(Path(sys.argv[1]), **json.loads(sys.argv[2])))
"""
TOOLS = "mkdir /tools; for t in bash env mkdir readlink rm sh tar gzip; do ln -s /usr/bin/$t /tools; done"
OLD = "printf '#!/bin/sh\\necho Python 3.9.2; [ \"$1\" = -V ]\\n' > /tools/python3; chmod +x /tools/python3"

Install = Callable[..., Any]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Install in a new environment; return the error, or [version, status, output, errors] of the command `then`."""
    if not shutil.which("bwrap"):
        pytest.skip("the environment needs bubblewrap")

    def run(before: str = "true", path: str = "", then: str = "true", **options: Any) -> Any:
        policy = options.pop("policy", "no-network")
        given = {"options": options, "before": before, "path": path, "then": then}
        given |= {"shown": f"{sys.base_prefix}:{tmp_path}", "policy": policy}
        (tmp_path / "run").mkdir()
        done = run_harbor(
            *("-c", DRIVER, str(tmp_path / "run"), json.dumps(given)),
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "eval/harbor")},
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


PYTHON = f"{sys.base_prefix}/bin:/usr/bin:/bin"


def test_an_image_without_python_is_named_with_the_remedy(install):
    said = install(TOOLS, "/tools")
    assert said.startswith(
        "RuntimeError: Sanderling was not installed: It needs Python 3.11 or newer"
    )
    assert "the image has no Python" in said
    assert "archive=FILE" in said


def test_an_old_python_is_named_with_its_version(install):
    said = install(f"{TOOLS}; {OLD}", "/tools")
    assert "the image has Python 3.9.2;" in said


def test_an_image_without_a_network_is_told_from_other_failures(install):
    said = install(path=PYTHON)
    assert "pip failed: if it has no network, use --agent-kwarg archive=FILE or wheels=DIR" in said


def test_wheels_that_lack_the_package_are_named(install, tmp_path):
    (tmp_path / "wheels").mkdir()
    said = install(path=PYTHON, wheels=str(tmp_path / "wheels"))
    assert "No matching distribution found for sanderling" in said


def test_a_place_that_cannot_be_written_needs_root(install):
    said = install("rmdir /opt; ln -s /usr/share /opt")
    assert "/opt/sanderling cannot be written: the installation needs root" in said


@pytest.mark.parametrize("what", ["archive", "wheels"])
def test_a_file_that_is_not_there_is_named(install, what):
    said = install(**{what: "/nowhere"})
    assert said == "RuntimeError: Sanderling was not installed: there is no /nowhere"


def test_an_archive_that_does_not_run_is_named(install, tmp_path):
    (tmp_path / "archive").write_text("x")
    said = install(archive=str(tmp_path / "archive"))
    assert "The archive does not run in this image" in said


# --- with the archive --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return archive.build(tmp_path_factory.mktemp("built"))


@prove
def test_an_archive_needs_neither_python_nor_network_nor_a_writable_home(install, packed):
    then = "HOME=/usr /opt/sanderling/sanderling -p --model demo --sandbox outer hi; echo /installed-agent/*"
    said = install(TOOLS, "/tools", then, archive=str(packed))
    assert said[:2] == [__version__, 0], said
    assert said[2].splitlines()[-1] == "/installed-agent/*"


@prove
def test_a_task_is_solved_after_the_installation_of_an_archive(job, packed):
    options = ("--agent", "sanderling_harbor:Sanderling", "--ak", f"archive={packed}")
    results = job.run(*options, "--model", job.script(SOLVE, DONE), skip_install=False)
    assert [each["exception_info"] for each in results] == [None, None]
    assert [each["verifier_result"]["rewards"] for each in results] == [{"reward": 1.0}] * 2
    assert [each["agent_info"]["version"] for each in results] == [__version__] * 2


@prove
@pytest.mark.parametrize("is_changed", [False, True])
def test_harbor_installs_the_binary_of_the_registry_entry(install, packed, tmp_path, is_changed):
    key = tmp_path / "key.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-keyout",
        key,
    ]
    made += ["-out", key.with_name("cert.pem"), "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost"]
    if subprocess.run(made, capture_output=True, check=False).returncode:
        pytest.skip("a certificate for the server needs openssl")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(packed.parent))

        def log_message(self, *_: Any) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key.with_name("cert.pem"), key)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        entry = json.loads(packed.with_name("agent.json").read_text())
        binary = entry["distribution"]["binary"]["linux-x86_64"]
        binary["archive"] = f"https://localhost:{server.server_port}/{packed.name}"
        if is_changed:
            binary["checksum"] = "0" * 64
        asked = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
        said = install(
            f"printf 'cacert = {key.with_name('cert.pem')}\\nnoproxy = \"*\"\\n' > /root/.curlrc",
            then=f"echo '{asked}' | sh /start --model demo",
            registry_entry=entry,
            policy="public",
        )
        server.shutdown()
    if is_changed:
        assert "Checksum mismatch" in said
    else:
        assert json.loads(said[2])["result"]["agentInfo"]["version"] == __version__


# --- with packages -----------------------------------------------------------------------------------------------------


@prove
def test_wheels_are_installed_without_a_network(install, tmp_path):
    wheels, versions = tmp_path / "wheels", tmp_path / "versions.txt"
    pins = (ROOT / "constraints.txt").read_text()
    versions.write_text(re.sub(r"\\?\n? *--hash=\S+", "", pins))  # a directory has no hash
    pip = [sys.executable, "-m", "pip", "-q", "wheel", "--wheel-dir", wheels]
    pip += ["--constraint", versions, ROOT]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot fetch the packages: {done.stderr[-300:]}")
    then = "/opt/sanderling/bin/sanderling -p --model demo --sandbox outer hi"
    said = install(path=PYTHON, then=then, wheels=str(wheels))
    assert said[:2] == [__version__, 0], said
