"""The token of a server, where a client has it from: the keychain, or a file."""

import shutil
import subprocess
import sys

import pytest

from sanderling.serve.token import own_token
from tests.acp.talk import Home
from tests.conftest import ROOT, prove
from tests.serve.talk import attached


@pytest.fixture
def elsewhere(tmp_path):
    """The home of somebody on another machine, who has a keychain."""
    home = Home(tmp_path / "elsewhere")
    home.environment |= {
        "PYTHON_KEYRING_BACKEND": "tests.keychain.FileKeychain",
        "KEYCHAIN_FILE": str(tmp_path / "keychain.json"),
        "PYTHONPATH": str(ROOT),
    }
    return home


@prove
def test_the_keychain_keeps_the_token_of_a_server_until_it_is_removed(serve, elsewhere):
    server = serve()
    address = server.url.removesuffix("/acp")
    ask = ("client", "--connect", address, "--cwd", str(elsewhere.project), "-p", "ping")
    without = elsewhere.run(*ask)
    assert "There is no token for" in without.stderr
    kept = elsewhere.run("login", address, given=f"{server.token}\n")
    assert kept.returncode == 0, kept.stderr
    assert "Stored the token for" in kept.stdout
    answered = elsewhere.run(*ask)
    assert answered.stdout == "pong\n", answered.stderr
    removed = elsewhere.run("logout", address)
    assert removed.stdout.startswith("Removed the token for"), removed.stdout
    assert "There is no token for" in elsewhere.run(*ask).stderr


@prove
def test_a_token_in_a_file_that_others_can_read_is_not_sent(serve, elsewhere, tmp_path):
    server = serve()
    file = tmp_path / "token"
    file.write_text(f"{server.token}\n")
    address = f"{server.url.removesuffix('/acp')}?token-file={file}"
    ask = ("client", "--connect", address, "--cwd", str(elsewhere.project), "-p", "ping")
    file.chmod(0o640)
    assert "Others can read the token" in elsewhere.run(*ask).stderr
    file.chmod(0o600)
    assert elsewhere.run(*ask).stdout == "pong\n"


@pytest.mark.parametrize(
    "keychain, told",
    [
        ("keyring.backends.fail.Keyring", "no keychain that encrypts. Name a file with the token"),
        ("tests.keychain.LockedKeychain", "is locked. Unlock it and try again, or name a file"),
    ],
)
def test_whoever_has_no_keychain_is_told_to_name_a_file_with_the_token(elsewhere, keychain, told):
    elsewhere.environment["PYTHON_KEYRING_BACKEND"] = keychain
    refused = elsewhere.run("login", "ws://127.0.0.1:3000", given="a-token\n")
    assert refused.returncode == 1
    assert told in refused.stderr
    assert "ws://127.0.0.1:3000?token-file=PATH" in refused.stderr


@prove
def test_a_server_listens_on_a_socket_that_clients_find_without_a_path(serve, home):
    server = serve(listen="unix:")
    assert server.url == f"unix:{home.state / 'serve.sock'}"
    ask = ("client", "--cwd", str(home.project), "-p", "ping", "--connect", "unix:")
    assert home.run(*ask).stdout == "pong\n"
    server.finish()
    assert not (home.state / "serve.sock").exists()


@prove
def test_a_server_that_cannot_be_reached_is_exit_status_1(home, unused_port, tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token\n")
    token.chmod(0o600)
    address = f"ws://127.0.0.1:{unused_port}?token-file={token}"
    done = home.run("client", "--connect", address, "-p", "ping")
    assert done.returncode == 1
    assert "nothing listens there" in done.stderr


@prove
def test_a_client_waits_for_a_server_that_is_still_starting(serve, home, unused_port):
    own_token(home.state)
    address = f"ws://127.0.0.1:{unused_port}"
    ask = [sys.executable, "-m", "sanderling", "client", "--connect", address, "-p", "ping"]
    with subprocess.Popen(
        [*ask, "--cwd", str(home.project)],
        env=home.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as client:
        assert "nothing listens there" in client.stderr.readline()
        serve(listen=f"127.0.0.1:{unused_port}")
        assert client.stdout.read() == "pong\n"
    assert client.returncode == 0


@prove
async def test_a_new_token_counts_when_the_state_directory_was_removed(serve, home):
    server = serve()
    shutil.rmtree(home.state)
    server.token = own_token(home.state)  # as `serve --token` prints it
    async with attached(server) as client:
        session = await client.new(home)
        assert await client.prompt(session, "ping", "p1") == "end_turn"
