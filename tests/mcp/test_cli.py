"""`sanderling mcp`: what is declared, whether it works, logging in and out."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sanderling.project.trust.trust import Trust
from tests.conftest import DEADLINE_S, ROOT, prove, prove_rest
from tests.mcp.talk import PATIENT_CLI, PYTHON, notes_over_http, tables_of
from tests.mcp.test_in_prompts import NOTES_SERVER


class Shell:
    """A person's shell in their project."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, self.project = base / "home", base / "project"
        self.config = self.home / ".config/sanderling/config.toml"
        for directory in (self.config.parent, self.project / ".git"):
            directory.mkdir(parents=True)
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("KEYCHAIN_FILE", str(base / "keychain.json"))
        monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.keychain.FileKeychain")
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "NVIM_APPNAME"):
            monkeypatch.delenv(name, raising=False)

    def declare(self, **servers) -> None:
        self.config.write_text(tables_of(servers))

    def run(self, *arguments: str, **more) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", PATIENT_CLI, "mcp", *arguments]
        return subprocess.run(
            argv, check=False, cwd=self.project, capture_output=True, text=True, **more
        )

    def rows(self, *arguments: str) -> list[dict]:
        return [json.loads(line) for line in self.run(*arguments, "--json").stdout.splitlines()]

    def trust(self) -> None:
        found = Trust(str(self.home / ".local/state/nvim/sanderling"), str(self.project))
        found.trust({".mcp.json": found.look(".mcp.json").sha256})


@pytest.fixture
def shell(tmp_path, monkeypatch, plain_environment) -> Shell:  # noqa: ARG001
    return Shell(tmp_path, monkeypatch)


def test_what_is_declared_is_listed(shell):
    assert shell.run("list").stdout.startswith("No tool servers: ")
    assert shell.run("list", "--json").stdout == ""
    shell.declare(
        git={"command": ["mcp-server-git", "--repository", "."]},
        tracker={"url": "https://mcp.example/mcp?key=secret"},
        off={"command": ["x"], "enabled": False},
    )
    (shell.project / ".mcp.json").write_text('{"mcpServers": {"docs": {"command": "docs"}}}')
    listed = shell.run("list")
    assert (
        "ignored until trusted with `sanderling trust`, or :Agent trust in Neovim: .mcp.json"
        in listed.stderr
    )
    assert listed.stdout.splitlines() == [
        "git      mcp-server-git --repository .",
        "tracker  https://mcp.example/mcp",
        "off      stopped  x",
    ]
    shell.trust()
    assert shell.rows("list")[-1] == {"name": "docs", "place": "docs", "is_projects": True}


def test_added_servers_are_listed_until_they_are_removed(shell):
    added = shell.run(
        "add", "notes", "--env", "TOKEN=a=b", "--env", "KEY", "--", "npx", "-y", "notes"
    )
    assert (added.returncode, added.stderr) == (0, "")
    assert (
        added.stdout
        == "Added notes to ~/.config/sanderling/mcp.json. Next: sanderling mcp check notes\n"
    )
    assert shell.run("add", "web", "https://a.example/mcp", "--header", "X: ${KEY}").returncode == 0
    path = shell.config.with_name("mcp.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["mcpServers"] == {
        "notes": {
            "command": "npx",
            "args": ["-y", "notes"],
            "env": {"TOKEN": "a=b", "KEY": "${KEY}"},
        },
        "web": {"type": "http", "url": "https://a.example/mcp", "headers": {"X": "${KEY}"}},
    }
    assert [row["place"] for row in shell.rows("list")] == ["npx -y notes", "https://a.example/mcp"]
    again = shell.run("add", "notes", "--", "x")
    assert again.returncode == 2
    assert "run sanderling mcp remove notes first" in again.stderr
    assert (
        shell.run("remove", "notes").stdout == "Removed notes from ~/.config/sanderling/mcp.json.\n"
    )
    assert [row["name"] for row in shell.rows("list")] == ["web"]
    assert "there is no server 'notes'" in shell.run("remove", "notes").stderr


@pytest.mark.parametrize(
    "url", ["http://${HOST:-localhost}/mcp", "https://a.example:${PORT:-443}/mcp"]
)
@pytest.mark.parametrize("scope", ["--user", "--project"])
def test_a_url_with_variables_can_be_added_as_sessions_take_it(shell, url, scope):
    added = shell.run("add", "it", scope, url)
    assert (added.returncode, added.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("add", "it", "--project", "--", "x"), ("remove", "theirs")])
def test_a_projects_link_does_not_choose_which_file_is_changed(shell, arguments):
    other = shell.home / ".claude.json"
    other.write_text('{"mcpServers": {"theirs": {"command": "x"}}}')
    (shell.project / ".mcp.json").symlink_to(other)
    ran = shell.run(*arguments)
    assert ran.returncode == 2
    assert "leads out of the project" in ran.stderr
    assert other.read_text() == '{"mcpServers": {"theirs": {"command": "x"}}}'


def test_a_projects_file_that_an_open_session_removes_is_not_reported_as_added(shell):
    path, is_over = shell.project / ".mcp.json", threading.Event()

    def guard() -> None:
        while not is_over.wait(0.001):
            path.unlink(missing_ok=True)

    thread = threading.Thread(target=guard)
    thread.start()
    try:
        added = shell.run("add", "it", "--project", "--", "npx", "it")
    finally:
        is_over.set()
        thread.join()
    assert (added.returncode, added.stdout) == (2, "")
    assert "an open session in this project removed .mcp.json" in added.stderr


def test_in_the_home_directory_the_users_file_is_named_as_ignored(shell):
    added = shell.run("add", "notes", "--", "npx", "notes")
    assert added.returncode == 0
    checked = shell.run("check", "notes", "--project", str(shell.home))
    assert checked.returncode == 2
    ignored, unknown = checked.stderr.splitlines()
    assert ignored.startswith("sanderling: ignored until trusted")
    assert ignored.endswith(": .config/sanderling/mcp.json")
    assert "there is no tool server 'notes'" in unknown


def test_a_server_added_for_the_project_needs_trust_and_keeps_the_rest_of_the_file(shell):
    path = shell.project / ".mcp.json"
    path.write_text(
        '{"other": [1], "mcpServers": {"docs": {"command": "docs", "alwaysAllow": []}}}'
    )
    added = shell.run("add", "it", "--project", "--", "npx", "it")
    assert "trust it with `sanderling trust`, or :Agent trust in Neovim" in added.stdout
    assert json.loads(path.read_text()) == {
        "other": [1],
        "mcpServers": {
            "docs": {"command": "docs", "alwaysAllow": []},
            "it": {"command": "npx", "args": ["it"]},
        },
    }
    assert shell.rows("list") == []
    shell.trust()
    assert [row["name"] for row in shell.rows("list")] == ["docs", "it"]
    assert "Removed it from" in shell.run("remove", "it", "--project").stdout


@pytest.mark.parametrize(
    "arguments, words",
    prove_rest(
        [
            (("it",), "the command is missing"),
            (("it", "--project", "--host", "a.example", "--", "x"), "add it with --user"),
            (("it", "--env", "=x", "--", "x"), "write --env K=V"),
            (("it", "--header", "A: b", "--", "x"), "--header is for a URL"),
            (("it", "ftp://a.example"), "is not a URL that begins with https"),
            (("it", "https://a.example", "--env", "A=b"), "send keys with --header"),
            (("it", "http://a.example/", "--header", "A: b"), "use https"),
            (("!!", "--", "x"), "a name needs a letter or a digit"),
        ]
    ),
)
def test_what_cannot_be_added_is_not_written(shell, arguments, words):
    result = shell.run("add", *arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert not shell.config.with_name("mcp.json").exists()
    assert not (shell.project / ".mcp.json").exists()


def test_a_malformed_file_is_named_with_its_line_and_kept(shell):
    path = shell.config.with_name("mcp.json")
    path.write_text('{"mcpServers": {\n"a": {"command": "x"},\n}}')
    before = path.read_text()
    for action in (("add", "b", "--", "x"), ("remove", "a"), ("list",), ("check",)):
        result = shell.run(*action)
        assert result.returncode == 2
        assert "~/.config/sanderling/mcp.json:2: JSON allows no comma before }" in result.stderr
    assert path.read_text() == before


def test_a_mistake_in_a_table_is_named_with_file_and_line(shell):
    shell.config.write_text(
        '[mcp.servers.a]\ncommand = "x"\n[mcp.servers.b]\ncommand = "y"\nhots = []\n'
    )
    for action in ("list", "check"):
        result = shell.run(action)
        assert result.returncode == 2
        assert "config.toml:5: unknown key 'mcp.servers.b.hots'" in result.stderr


def test_a_server_of_config_toml_is_removed_there(shell):
    shell.declare(it={"command": ["x"]})
    result = shell.run("remove", "it")
    assert "'it' is declared in ~/.config/sanderling/config.toml:1" in result.stderr


@prove
def test_each_is_started_and_its_row_says_what_came_of_it(shell, unused_port):
    (shell.project / ".mcp.json").write_text(
        '{"mcpServers": {"docs": {"command": "docs"}, "old": {"type": "sse", "url": "http://x"}}}'
    )
    shell.trust()
    with notes_over_http(unused_port) as url:
        shell.declare(
            pipes=NOTES_SERVER,
            http={"url": url},
            closed={"url": "https://mcp.example/mcp"},
            ends={"command": [PYTHON, "-c", "raise SystemExit(3)"]},
            off={"command": ["x"], "enabled": False},
        )
        rows = {row["name"]: row for row in shell.rows("check")}
    for name in ("pipes", "http"):
        assert (rows[name]["state"], rows[name]["era"]) == ("ready", "2026-07-28")
        assert rows[name]["tools"] >= 3
        assert rows[name]["ms"] > 0
        assert "error" not in rows[name]
    assert rows["closed"]["error"].startswith("mcp.example:443 is blocked: `--net on`")
    assert rows["ends"]["error"].startswith("it ended with exit status 3")
    assert rows["off"]["state"] == "stopped"
    assert rows["docs"]["error"].startswith("not allowed permanently")
    assert "no longer has the type sse" in rows["old"]["error"]


@prove
def test_the_exit_status_tells_whether_all_are_ready(shell):
    shell.declare(good=NOTES_SERVER, bad={"command": [PYTHON, "-c", "pass"]})
    good = shell.run("check", "good")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("good  ready  2026-07-28  ")
    assert shell.run("check").returncode == 1


@prove
def test_the_exit_status_tells_of_mistakes(shell):
    shell.declare(good=NOTES_SERVER, bad={"command": [PYTHON, "-c", "pass"]})
    unknown = shell.run("check", "god")
    assert unknown.returncode == 2
    assert unknown.stderr == "sanderling: there is no tool server 'god'; known: good, bad\n"
    shell.config.write_text("[mcp.servers.x]\nurl = 5\n")
    assert shell.run("list").returncode == 2


@prove
def test_login_shows_a_page_and_logout_forgets(shell, unused_port):
    with notes_over_http(unused_port, "login") as url:
        shell.declare(it={"url": url}, program={"command": ["x"]})
        assert "it requires a login: `sanderling mcp login it`" in shell.run("check", "it").stdout
        argv = [sys.executable, "-m", "sanderling", "mcp", "login", "it"]
        with subprocess.Popen(
            argv, cwd=shell.project, stderr=subprocess.PIPE, text=True, env=os.environ
        ) as login:
            assert login.stderr
            assert login.stderr.readline() == "Log in to it in your browser:\n"
            page = login.stderr.readline().strip()
            visit = "import httpx2, sys; httpx2.get(sys.argv[1], follow_redirects=True)"
            subprocess.run([sys.executable, "-c", visit, page], check=True, timeout=DEADLINE_S)
            assert login.stderr.read() == "Logged in to it.\n"
        assert login.returncode == 0
        assert shell.run("check", "it").returncode == 0
        assert shell.run("logout", "it").returncode == 0
        assert shell.run("check", "it").returncode == 1
        refused = shell.run("login", "program")
        assert "'program' is a local program and has no login" in refused.stderr


def test_a_mistake_cannot_write_control_characters_to_the_terminal(shell):
    result = shell.run("login", "\x1b]0;x\x07")
    assert result.returncode == 1
    assert "\x1b" not in result.stderr
    assert "<U+001B>" in result.stderr
