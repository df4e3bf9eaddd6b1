"""Logins at servers over HTTP, at an authorization server of the SDK's: in the keychain, renewed, and in no log."""

import json
import logging
from pathlib import Path

import anyio
import httpx2
import pytest

from sanderling.mcp.callback import waiting_for_browser
from sanderling.mcp.logins import ServerLogin, StoredLogin
from sanderling.mcp.problems import ServerError
from sanderling.mcp.servers import McpServer, OAuthClient
from sanderling.mcp.tool_servers import log_in_at
from sanderling.protocol.actions import ControlToolServer
from sanderling.protocol.events import LinkOffered, Notice
from tests.conftest import DEADLINE_S, prove
from tests.mcp.talk import notes_over_http, says, talking, uses

ALLOWED = ({"action": "allow", "tool": "mcp__it__*"},)


@pytest.fixture(autouse=True)
def _keychain(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("KEYCHAIN_FILE", str(tmp_path / "keychain.json"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.keychain.FileKeychain")


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


async def browse(url: str) -> httpx2.Response:
    """Do what a browser does whose person agrees."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as client:
        return await client.get(url)


async def log_in(url: str, state_dir: Path, **declared) -> list[str]:
    """Log in as a person does, and return the pages that they were shown."""
    shown: list[str] = []
    error: ServerError | None = None

    async with anyio.create_task_group() as tasks:

        async def show(page: str) -> None:
            shown.append(page)
            tasks.start_soon(browse, page)

        with anyio.fail_after(DEADLINE_S):
            try:
                await log_in_at("it", McpServer(url=url, **declared), str(state_dir), show)
            except ServerError as problem:
                error = problem
    if error:
        raise error
    return shown


@prove
async def test_a_person_logs_in_from_the_list_and_goes_on(tmp_path, unused_port, log, caplog):
    caplog.set_level(logging.DEBUG)
    with notes_over_http(unused_port, "login", MCP_TEST_LOG=str(log)) as url:
        script = (uses("mcp__it__echo", text="hello"), says("Done."))
        servers = {"it": {"url": url}}
        async with talking(tmp_path, *script, mcp_servers=servers, permissions=ALLOWED) as talk:
            failed = await talk.state("it", "failed")
            assert failed.why == "it requires a login: `L` in :Agent mcp opens its page"
            assert failed.needs_login
            assert not log.exists(), "nothing was begun"
            talk.agent.act(ControlToolServer("it", "login"))
            (link,) = await talk.until(lambda: talk.of(LinkOffered))
            assert (await talk.state("it", "stopped")).why.startswith("waiting for your login")
            page = await browse(link.url)
            assert "Sanderling has logged in" in page.text
            await talk.state("it", "ready")
            assert any("You are logged in at 'it'" in notice.text for notice in talk.of(Notice))
            await talk.say("go")
            assert talk.results()[0].startswith("hello")
        async with talking(tmp_path, mcp_servers=servers) as talk:
            await talk.state("it", "ready")
    assert log.read_text().split() == ["registered", "issued"]
    kept = json.loads((tmp_path / "keychain.json").read_text())
    assert list(kept) == [f"sanderling/mcp {url}"]
    written = caplog.text + "".join(
        path.read_text() for path in (tmp_path / "state").rglob("*") if path.is_file()
    )
    assert "secret-" not in written


def test_another_server_of_the_same_name_is_not_sent_the_login(tmp_path):
    url = "https://mcp.example/mcp"
    ServerLogin(tmp_path / "state", "it", url).store(StoredLogin({"access_token": "x"}, {}))
    assert ServerLogin(tmp_path / "state", "it", url).is_known()
    assert not ServerLogin(tmp_path / "state", "it", url + "2").is_known()


@prove
async def test_a_token_that_has_ended_is_renewed_by_the_next_process(
    tmp_path, unused_port, log, monkeypatch
):
    with notes_over_http(unused_port, "login", MCP_TEST_LOG=str(log)) as url:
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr("sanderling.mcp.oauth.EARLY_S", 1_000_000)  # so it has ended already
            await log_in(url, tmp_path / "state")
        async with talking(tmp_path, mcp_servers={"it": {"url": url}}) as talk:
            await talk.state("it", "ready")
    assert log.read_text().split()[:3] == ["registered", "issued", "renewed"]


@prove
async def test_a_token_that_is_refused_too_early_is_renewed(tmp_path, unused_port, log):
    with notes_over_http(unused_port, "login", MCP_TEST_LOG=str(log)) as url:
        await log_in(url, tmp_path / "state")
        login = ServerLogin(tmp_path / "state", "it", url)
        kept = login.read()
        assert kept
        kept.tokens["access_token"] = "secret-of-yesterday"
        login.store(kept)
        async with talking(tmp_path, mcp_servers={"it": {"url": url}}) as talk:
            await talk.state("it", "ready")
    assert "renewed" in log.read_text()


@prove
async def test_a_token_that_cannot_be_renewed_wants_a_login(tmp_path, unused_port, log):
    with notes_over_http(unused_port, "login", MCP_TEST_LOG=str(log)) as url:
        await log_in(url, tmp_path / "state")
        login = ServerLogin(tmp_path / "state", "it", url)
        kept = login.read()
        assert kept
        kept.tokens.update(access_token="secret-a", refresh_token="secret-b")
        login.store(kept)
        async with talking(tmp_path, mcp_servers={"it": {"url": url}}) as talk:
            assert (await talk.state("it", "failed")).needs_login


@prove
async def test_a_login_under_a_name_that_the_server_knows_introduces_nobody(
    tmp_path, unused_port, log
):
    with notes_over_http(unused_port, "login", MCP_TEST_LOG=str(log)) as url:
        shown: list[str] = []

        async def show(page: str) -> None:
            shown.append(page)
            raise ServerError("enough")

        own = OAuthClient("known-client", port=0)
        with pytest.raises(ServerError, match="enough"):
            await log_in_at("it", McpServer(url=url, oauth=own), str(tmp_path / "state"), show)
        assert "client_id=known-client" in shown[0]
        assert not log.exists()


@prove
async def test_what_wants_no_login_says_so(tmp_path, unused_port):
    with (
        notes_over_http(unused_port) as url,
        pytest.raises(ServerError, match="it requires no login"),
    ):
        await log_in(url, tmp_path / "state")


@prove
async def test_without_a_keychain_nobody_is_sent_to_a_page(tmp_path, unused_port, monkeypatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    with (
        notes_over_http(unused_port, "login") as url,
        pytest.raises(ServerError, match=r"no keychain that encrypts.*headers = "),
    ):
        await log_in(url, tmp_path / "state")


PAGE = "https://auth.example/authorize?state=right&x=1"


async def test_only_the_browser_that_was_sent_counts():
    with anyio.fail_after(DEADLINE_S):
        async with waiting_for_browser() as callback:
            callback.expect(PAGE)
            for query in ("?code=c&state=wrong", "?code=c", "x?code=c&state=right"):
                page = await browse(callback.redirect_uri + query)
                assert page.status_code == 404
            page = await browse(f"{callback.redirect_uri}?code=c&state=right&iss=i")
            assert page.headers["Referrer-Policy"] == "no-referrer"
            assert await callback.wait() == ("c", "right", "i")


async def test_a_login_that_is_refused_says_why():
    async with waiting_for_browser() as callback:
        callback.expect(PAGE)
        page = await browse(f"{callback.redirect_uri}?error=access_denied&state=right")
        assert "was refused" in page.text
        with pytest.raises(ServerError, match=r"the login was refused \(access_denied\)"):
            await callback.wait()


async def test_a_login_that_nobody_makes_ends(monkeypatch):
    monkeypatch.setattr("sanderling.mcp.callback.LOGIN_S", 0.05)
    async with waiting_for_browser() as callback:
        callback.expect(PAGE)
        with pytest.raises(ServerError, match="there was no login within"):
            await callback.wait()


async def test_a_port_that_is_taken_is_told(unused_port):
    async with waiting_for_browser(unused_port):
        with pytest.raises(ServerError, match=f"port {unused_port} of this machine"):
            async with waiting_for_browser(unused_port):
                pass


async def test_what_is_no_request_holds_nothing_up():
    async with waiting_for_browser() as callback:
        callback.expect(PAGE)
        port = int(callback.redirect_uri.rpartition(":")[2].partition("/")[0])
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"\xff\x00 nonsense\r\n\r\n")
        assert (await browse(f"{callback.redirect_uri}?code=c&state=right")).status_code == 200
