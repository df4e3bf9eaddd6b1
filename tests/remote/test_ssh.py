"""Sessions over ssh: a server of Debian's on this machine, with a key that is thrown away."""

import subprocess

import pytest

from sanderling.acp.remote.address import parse_address, ssh_address
from sanderling.acp.remote.pipe import argv_of
from sanderling.errors import ConfigError
from tests.conftest import prove
from tests.remote.ssh_server import has_sshd, serving
from tests.remote.test_elsewhere import states

pytestmark = pytest.mark.anyio

needs_sshd = pytest.mark.skipif(not has_sshd(), reason="there is no sshd")


@pytest.fixture
def address(elsewhere, tmp_path):
    with serving(elsewhere, tmp_path) as found:
        yield found


@needs_sshd
async def test_a_session_over_ssh_works_there_and_goes_on_after_a_cut(elsewhere, address):
    elsewhere.script(
        [
            {"step": [{"tool_use": {"name": "bash", "input": {"command": "pwd > where"}}}]},
            {"step": [{"text": "done"}], "repeat": True},
        ]
    )
    async with elsewhere.talk(address=address) as talk:
        talk.answer = {"answer": "once"}
        assert await talk.ask("go") == "end_turn", talk.errors
        assert (elsewhere.project / "where").read_text().strip() == str(elsewhere.project)
        talk.agent.external.reconnecting._live.process.kill()
        assert await talk.ask("more") == "end_turn", talk.errors
        assert states(talk).count("connected") == 2
        assert talk.text == "donedone"
    [log] = (elsewhere.there / "state").rglob("sessions/*.jsonl")
    assert log.read_text().count('"prompt":{') == 2


@needs_sshd
@prove
async def test_a_host_that_is_not_known_is_refused_with_what_to_do(elsewhere, address, tmp_path):
    (tmp_path / "ssh" / "known").write_text("")
    async with elsewhere.talk(address=address) as talk:
        await talk.wait_for(lambda: talk.errors)
        assert "Host key verification failed" in talk.errors[0]
        assert "in a terminal has to work without a question" in talk.errors[0]
        assert states(talk)[-1] == "refused"


# --- what ssh is told ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("ssh://-oProxyCommand=touch%20x/p", "ssh://%2DoProxyCommand=x/p"),
        *("ssh://a@-oProxyCommand=x/p", "ssh://-l@host/p", "ssh://user:secret@host/p"),
        *("ssh://ho%20st/p", "ssh://host:99999/p", "ssh://host/p?what=ever"),
        *("ws://user:secret@host:1", "via:///p", "ssh:///p"),
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError):
        parse_address(text)


@pytest.mark.parametrize("place", ["-oProxyCommand=x:p", "host", "a b:p", "$(x):p"])
def test_a_place_that_ssh_would_take_for_something_else_is_refused(place):
    with pytest.raises(ConfigError):
        ssh_address(place)


@pytest.mark.parametrize(
    "place, host, path",
    [
        ("box:src/app", "box", "src/app"),
        ("me@box:/work/it's here", "me@box", "/work/it's here"),
        ("box:~/src", "box", "src"),
        ("box:", "box", "."),
        ("Box.example:/p%20q?x", "Box.example", "/p%20q?x"),
        ("[::1]:/p", "::1", "/p"),
    ],
)
def test_a_place_as_scp_has_it_is_reached_as_it_is_written(place, host, path):
    found = parse_address(ssh_address(place))
    assert found.path == path
    *_, target, command = argv_of(found)
    assert target == host
    assert argv_of(found)[-3] == "--"
    said = subprocess.run(
        [
            "sh",
            "-c",
            command.replace('exec "$it" acp', 'pwd; echo "$1"; exit 0')
            .replace("cd --", ": --")
            .replace("command -v sanderling", "echo /bin/sh"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.splitlines()[-1] == path
