"""Servers that a project declares in `.mcp.json`: read as others do, and started when the person says so."""

import json
import shutil
import sys

import anyio
import pytest

from sanderling.config import Credential, Settings
from sanderling.errors import ConfigError
from sanderling.mcp.project_file import proposals, servers_in
from sanderling.mcp.servers import filled_in
from sanderling.project.trust.trust import Trust
from sanderling.protocol.actions import ControlToolServer, TrustFiles
from sanderling.protocol.events import ApprovalRequested, ApprovalSettled, Notice, TrustNeeded
from tests.mcp.conftest import HOSTILE
from tests.mcp.talk import NOTES, PYTHON, talking


def file_with(**servers):
    return json.dumps({"mcpServers": servers})


def test_variables_are_put_in_and_are_not_shown():
    text = file_with(
        it={
            "command": "${BIN:-/usr/bin}/it",
            "args": ["--root=${ROOT}", "$HOME"],
            "env": {"TOKEN": "${TOKEN}", "PRICE": "5$ or $x", "MODE": "${MODE:-fast}"},
            "disabled": True,
            "alwaysAllow": ["x"],
        }
    )
    it = servers_in(text, {"ROOT": "/srv", "TOKEN": "secret-token"})["it"]
    assert it.server
    assert it.server.command == ("/usr/bin/it", "--root=/srv", "$HOME")
    filled = filled_in(it.server.env, {"TOKEN": "secret-token", "x": "no"})
    assert filled.values == {"TOKEN": "secret-token", "PRICE": "5$ or $x", "MODE": "fast"}
    assert "secret-token" not in repr(it)
    assert "TOKEN: ${TOKEN}" in it.shown


def test_servers_over_http_are_read_under_all_their_names():
    for kind in ("http", "streamable-http", "streamableHttp", ""):
        each = {"type": kind, "url": "https://${HOST}/mcp", "headers": {"X-Key": "${KEY}"}}
        server = servers_in(file_with(it=each), {"HOST": "a.example"})["it"].server
        assert server
        assert (server.url, server.headers) == ("https://a.example/mcp", {"X-Key": "${KEY}"})


@pytest.mark.parametrize(
    "server",
    [
        {"url": "https://a.example/?k=${ANTHROPIC_API_KEY}"},
        {"url": "https://a.example", "headers": {"X": "${OPENAI_API_KEY:-none}"}},
        {"command": "it", "args": ["--key", "${GOOGLE_API_KEY}"]},
        {"command": "it", "env": {"KEY": "${ANTHROPIC_AUTH_TOKEN}"}},
        {"command": "it", "args": ["${OWN_KEY}"]},
        {"url": "https://a.example/${OTHER_KEY}"},
        {"command": "it", "args": ["${MY_OWN_API_KEY}"]},  # where no `api_key` names another
        {"command": "it", "args": ["${LLAMACPP_API_KEY}"]},
        {"command": "it", "env": {"KEY": "${HEADER_KEY}"}},
        {"command": "it", "env": {"KEY": "${SEARCH_KEY}"}},
        {"url": "https://a.example", "headers": {"X": "${GIT_SECRET}"}},
    ],
)
def test_no_server_of_a_project_is_given_the_key_of_a_models_provider(server):
    keys = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_AUTH_TOKEN")
    own = {"a": {"api_key": "$OWN_KEY"}, "b": {"api_key": ["$NONE", "${OTHER_KEY}"]}}
    own |= {"my-own": {"wire": "chat"}, "c": {"headers": {"X-Key": "Bearer $HEADER_KEY"}}}
    others = (
        "OWN_KEY",
        "OTHER_KEY",
        "MY_OWN_API_KEY",
        "LLAMACPP_API_KEY",
        "HEADER_KEY",
        "SEARCH_KEY",
        "GIT_SECRET",
    )
    environment = dict.fromkeys((*keys, *others), "sk-1")
    proposal = servers_in(
        file_with(it=server),
        environment,
        providers=own,
        search_key="$SEARCH_KEY",
        secrets=frozenset({"GIT_SECRET"}),
    )["it"]
    assert proposal.server is None
    assert "the key of a model's provider" in proposal.problem


@pytest.mark.parametrize(
    "server, problem",
    [
        ({"type": "sse", "url": "https://a.b"}, "the protocol no longer has the type sse"),
        ({"command": "${NOWHERE}/it"}, "it needs the variable NOWHERE, which is not set"),
        ({"args": ["x"]}, "it needs a command, or a url and the type http"),
        ({"type": "stdio", "url": "https://a.b"}, "it needs a command"),
        ({"url": "ftp://a.b"}, "its url must be https://host/path"),
    ],
)
def test_a_server_that_cannot_be_costs_itself_only(server, problem):
    found = servers_in(file_with(bad=server, good={"command": "it"}), {})
    assert found["bad"].server is None
    assert found["bad"].problem.startswith(problem)
    assert found["good"].server


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"mcpServers": {"a": {"args": "x"}}}', "[" * 9999]
)
def test_what_is_no_such_file_is_told(text):
    with pytest.raises(ConfigError, match=r"^\.mcp\.json is wrong: "):
        servers_in(text)


def test_whatever_changes_in_a_declaration_it_is_another_one():
    first = {"command": "it", "args": ["a"], "env": {"A": "1", "B": "2"}}
    same = {"env": {"B": "2", "A": "1"}, "args": ["a"], "command": "it", "disabled": True}
    digests = [
        servers_in(file_with(it=each), {})["it"].digest
        for each in (first, same, first | {"args": ["b"]}, first | {"env": {"A": "${A:-1}"}})
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


ECHO = {"command": PYTHON, "args": ["-c", "raise SystemExit(0)"]}


@pytest.fixture
def project(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    return project


def trust(tmp_path, project, file=".mcp.json"):
    found = Trust(str(tmp_path / "state"), str(project))
    found.trust({file: found.look(file).sha256})


async def test_nothing_of_a_file_counts_that_is_not_trusted(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(it=ECHO))
    async with talking(tmp_path) as talk:
        await talk.say("go")
        assert talk.services.servers.shown() == ()
        assert talk.of(TrustNeeded)[0].paths == (".mcp.json",)
        assert talk.of(ApprovalRequested) == []


async def test_a_server_starts_when_the_person_lets_it_and_not_before(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(it=ECHO))
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        question = await talk.question("server")
        assert (question.tool, question.choices) == ("it", ("once", "always"))
        assert "raise SystemExit(0)" in question.subject
        assert talk.services.servers.shown()[0].state == "stopped"
        talk.answer(question, "deny")
        await talk.say("go")
        assert (await talk.state("it", "stopped")).why.startswith(
            "you have not allowed it to start"
        )
        talk.agent.act(ControlToolServer("it", "start"))
        talk.answer(await talk.question("server", 2), "once")
        await talk.state("it", "restarting")  # it ends at once


async def test_one_question_at_a_time_is_open_about_a_server(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(it=ECHO))
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        first = await talk.question("server")
        talk.agent.act(ControlToolServer("it", "start"))
        second = await talk.question("server", 2)
        await talk.until(lambda: ApprovalSettled(first.id) in talk.of(ApprovalSettled))
        again = talk.services.project.trust.look(".mcp.json").sha256
        talk.agent.act(TrustFiles({".mcp.json": again}))  # nothing changes
        await anyio.wait_all_tasks_blocked()
        assert ApprovalSettled(second.id) not in talk.of(ApprovalSettled)
        talk.answer(second, "once")
        await talk.state("it", "restarting")


async def test_a_question_about_what_is_declared_no_more_is_taken_back(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(it=ECHO))
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        question = await talk.question("server")
        (project / ".mcp.json").write_text("{}")
        talk.agent.act(TrustFiles({}))
        await talk.until(lambda: ApprovalSettled(question.id) in talk.of(ApprovalSettled))
        assert talk.services.servers.shown() == ()


async def test_always_is_for_this_declaration(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(it=ECHO))
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        talk.answer(await talk.question("server"), "always")
        await talk.state("it", "restarting")
    async with talking(tmp_path) as talk:
        await talk.state("it", "restarting")
        assert talk.of(ApprovalRequested) == []
    (project / ".mcp.json").write_text(file_with(it=ECHO | {"args": ["-c", "pass"]}))
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        assert "-c pass" in (await talk.question("server")).subject


async def test_a_file_that_is_trusted_in_the_session_brings_its_servers(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(it=ECHO, own=ECHO))
    own = {"own": {"command": [sys.executable, str(NOTES), "stdio"], "enabled": False}}
    async with talking(tmp_path, mcp_servers=own) as talk:
        await talk.say("go")
        found = talk.services.project.trust.look(".mcp.json")
        talk.agent.act(TrustFiles({".mcp.json": found.sha256}))
        assert (await talk.question("server")).tool == "it"
        assert [(each.name, each.is_projects) for each in talk.services.servers.shown()] == [
            ("own", False),
            ("it", True),
        ]
        talk.agent.act(TrustFiles({}))
        await talk.until(
            lambda: [s.name for s in talk.services.servers.shown() if s.is_projects] == []
        )


async def test_a_server_of_its_settings_that_cannot_be_costs_itself_only(tmp_path, project):
    text = '[mcp.servers.bad]\ncommand = ["x"]\nurl = "https://a.b"\n[mcp.servers.off]\ncommand = ["x"]\nenabled = false\n'
    (project / ".sanderling.toml").write_text(text)
    trust(tmp_path, project, ".sanderling.toml")
    async with talking(tmp_path) as talk:
        await talk.say("go")
        off, bad = talk.services.servers.shown()
        assert (bad.name, bad.state, off.state) == ("bad", "failed", "stopped")
        assert "it needs either a command or a url" in bad.why
        assert talk.of(ApprovalRequested) == []


async def test_a_server_whose_name_is_too_much_like_the_persons_is_left_out(tmp_path, project):
    (project / ".mcp.json").write_text(file_with(**{"it-": ECHO, "it.": ECHO}))
    trust(tmp_path, project)
    own = {"it": {"command": ["x"], "enabled": False}}
    async with talking(tmp_path, mcp_servers=own) as talk:
        await talk.say("go")
        assert [each.text for each in talk.of(Notice)] == [
            f"The project's tool server '{name}' is left out: its name is too similar to another server's."
            for name in ("it-", "it.")
        ]
        assert talk.of(ApprovalRequested) == []


async def test_a_server_that_is_declared_wrong_meanwhile_is_stopped(tmp_path, project):
    shutil.copy(HOSTILE, project)
    (project / ".mcp.json").write_text(file_with(it={"command": PYTHON, "args": ["hostile.py"]}))
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        talk.answer(await talk.question("server"), "once")
        await talk.state("it", "ready")
        (project / ".mcp.json").write_text(file_with(it={"type": "sse", "url": "https://a.b"}))
        found = talk.services.project.trust.look(".mcp.json")
        talk.agent.act(TrustFiles({".mcp.json": found.sha256}))
        await talk.state("it", "failed")
        await talk.until(
            lambda: talk.services.servers.source.servers["it"].status.state == "stopped"
        )


async def test_a_file_that_is_wrong_is_told_and_the_session_opens(tmp_path, project):
    (project / ".mcp.json").write_text("{")
    trust(tmp_path, project)
    async with talking(tmp_path) as talk:
        await talk.say("go")
        assert any(".mcp.json is wrong" in notice.text for notice in talk.of(Notice))


def test_no_server_of_a_project_gets_the_secret_of_a_credential(tmp_path, project, monkeypatch):
    monkeypatch.setenv("GIT_SECRET", "ghp_secret0123456789")
    credential = Credential(hosts=("git.example",), source="env", variable="GIT_SECRET")
    settings = Settings(str(tmp_path / "state"), sandbox_credentials={"git": credential})
    (project / ".mcp.json").write_text(
        file_with(it={"url": "https://a.example", "headers": {"X": "${GIT_SECRET}"}})
    )
    trust(tmp_path, project)
    found, _ = proposals(Trust(str(tmp_path / "state"), str(project)), settings)
    assert found["it"].server is None
    assert "the secret of a credential" in found["it"].problem
