"""The use of a credential, on the screen of a real Neovim: each is a line, and the secret is nowhere."""

import os
import re
import shutil
import signal
from base64 import b64encode

import pytest
from tests.batch.batches import git
from tests.conftest import wait_until
from tests.nvim.conftest import contents
from tests.nvim.replies import DONE, bash, reply
from tests.secret_server import make_certificate, secret_server

from sanderling.providers.models.known import KnownModels
from sanderling.sandbox.environment import MARK
from sanderling.session.ledger import Prices
from sanderling.session.store import export_markdown
from sanderling.session.store.atif import export_trajectory

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")

SECRET = "ghp_A+b/9secret0123456789"
VARIABLE = "TEST_GIT_TOKEN"


def test_each_use_is_a_line_on_the_screen_and_none_with_the_network_off(
    start_agent, tmp_path, monkeypatch
):
    key, certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv(VARIABLE, SECRET)
    with secret_server(tmp_path, SECRET, key, certificate) as server:
        credential = {
            "hosts": [server.host],
            "source": "env",
            "variable": VARIABLE,
            "placeholders": ["GH_TOKEN"],
            "paths": ["/echo*"],
        }
        sandbox = {
            "hosts": [server.host, f"127.0.0.1:{server.server_port}"],
            "credentials": {"mine": credential},
        }
        url = f"http://{server.host}/echo?q=1"
        curl = f'curl -s -m 20 --noproxy "" -H "Authorization: token $GH_TOKEN" {url}; true'
        agent = start_agent(
            reply(bash(curl)),
            DONE,
            reply(bash(curl)),
            DONE,
            setup={"network": "proxy", "sandbox": sandbox},
        )
        agent.command("AgentMode auto")
        agent.ask_and_wait()
        wait_until(
            lambda: "Used the credential mine: GET localhost/echo, by" in agent.screen_text(),
            "drawn",
        )
        assert "q=1" not in agent.transcript_text().split("Used the credential")[1].split(", by")[0]
        assert len(server.authorizations) == 1
        assert SECRET in server.authorizations[0][2]
        agent.command("AgentNet off")
        agent.ask("again")
        agent.wait_for_turns(2)
        assert agent.transcript_text().count("Used the credential") == 1
        assert len(server.authorizations) == 1
        assert "*" * len(SECRET) in agent.transcript_text()
        assert SECRET not in agent.transcript_text() + agent.screen_text()
        logs = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
        assert logs
        assert not [path for path in logs if SECRET.encode() in path.read_bytes()]


def test_exports_and_the_log_of_a_crash_after_a_push_have_neither_secret_nor_placeholder(
    start_agent, tmp_path, monkeypatch
):
    key, certificate = make_certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    monkeypatch.setenv(VARIABLE, SECRET)
    project = tmp_path / "project"
    shutil.rmtree(project / ".git")
    git(tmp_path, "init", "-q", "--bare", "it.git")
    git(project, "init", "-q", "-b", "main")
    git(project, "commit", "-q", "--allow-empty", "-m", "First")
    with secret_server(tmp_path, SECRET, key, certificate) as server:
        git(project, "remote", "add", "origin", f"https://{server.host}/it.git")
        credential = {"hosts": [server.host], "source": "env", "variable": VARIABLE}
        sandbox = {
            "hosts": [server.host, f"127.0.0.1:{server.server_port}"],
            "credentials": {"mine": credential},
        }
        agent = start_agent(
            reply(bash("no_proxy= git push -q origin main")),
            DONE,
            setup={"network": "proxy", "sandbox": sandbox},
        )
        agent.command("AgentMode auto")
        agent.ask_and_wait()
    assert git(tmp_path / "it.git", "rev-parse", "main") == git(project, "rev-parse", "main")
    assert "Used the credential mine: POST localhost/it.git" in agent.transcript_text()
    os.kill(agent.host_pid(), signal.SIGABRT)
    agent.wait_for_transcript("exited (signal 6)")
    crash = wait_until(lambda: agent.lua("return require('sanderling.host.log').lines"))
    assert "Fatal Python error: Aborted" in crash
    log = agent.session_files()[0]
    exports = [
        str(export_trajectory(log.parent, log.stem, Prices(KnownModels()))),
        export_markdown(log.parent, log.stem),
    ]
    assert all("git push" in each for each in exports)
    shown = "\n".join([*exports, *crash, agent.screen_text(), agent.transcript_text()])
    shown += "".join(data.decode("latin-1") for data in contents(tmp_path / "home").values())
    assert SECRET not in shown
    assert b64encode(f"x-access-token:{SECRET}".encode()).decode() not in shown
    assert not re.search(MARK, shown)
