"""`sanderling credentials`: add, list and test, with a keychain in a file and a program in place of gh."""

import json
import subprocess
import tomllib

import pytest
from tests.conftest import ROOT
from tests.homes import Home

SECRET = "ghp_secret0123456789"


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path)
    subprocess.run(["git", "init", "-q", home.project], check=True)
    url = "git@github.com:me/it.git"
    subprocess.run(["git", "remote", "add", "origin", url], cwd=home.project, check=True)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    home.environment |= {
        "PATH": f"{binaries}:/usr/bin:/bin",
        "PYTHON_KEYRING_BACKEND": "tests.keychain.FileKeychain",
        "KEYCHAIN_FILE": str(tmp_path / "keychain.json"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
    }
    return home


def with_gh(home, text=f"echo {SECRET}"):
    gh = home.folder / "bin" / "gh"
    gh.write_text(f'#!/bin/sh\ntest "$1 $2" = "auth token" && {text}\n')
    gh.chmod(0o755)


def declared(home):
    return tomllib.loads(home.config.read_text())["sandbox"]["credentials"]


def test_github_is_added_from_gh_and_the_rest_of_the_file_stays(home):
    with_gh(home)
    before = 'model = "x"  # mine\n[sandbox]\nhosts = ["github.com"]'
    home.config.write_text(before)
    done = home.run("credentials", "add", "github")
    assert done.returncode == 0, done
    assert 'all paths of its hosts; paths = ["remotes"] there limits it' in done.stdout
    assert 'Next: add ["api.github.com"] to sandbox.hosts there; set network' in done.stdout
    assert home.config.read_text().startswith(f"{before}\n\n[sandbox.credentials.github]\n")
    assert declared(home)["github"]["source"] == "command"
    listed = home.run("credentials")
    assert "credential github for github.com, api.github.com, from the command" in listed.stdout
    assert ", for all paths (" in listed.stdout
    tested = home.run("credentials", "test", "github")
    assert tested.returncode == 0
    again = home.run("credentials", "add", "github")
    assert again.returncode == 2
    assert "there is a credential 'github' already" in again.stderr
    assert not [
        each for each in (done, listed, tested, again) if SECRET in each.stdout + each.stderr
    ]


def test_credential_can_be_limited_to_paths_and_the_projects_remotes(home):
    with_gh(home)
    done = home.run("credentials", "add", "github", "--path", "remotes", "--path", "/me/*")
    assert done.returncode == 0, done
    assert "all paths" not in done.stdout
    assert declared(home)["github"]["paths"] == ["remotes", "/me/*"]
    listed = home.run("credentials").stdout
    assert ", for /me/it.git, /me/it, /repos/me/it" in listed
    assert ", /me/* (" in listed
    wrong = home.run("credentials", "add", "other", "--host", "x.org", "--path", "me")
    assert (wrong.returncode, "`$.paths[0]`" in wrong.stderr) == (2, True), wrong


def test_what_commands_still_need_is_named_until_it_is_there(home):
    with_gh(home)
    home.config.write_text('[sandbox]\nhosts = ["github.com", "api.github.com"]')
    done = home.run("credentials", "add", "github")
    assert done.stdout.endswith('Next: set network = "proxy" there, or use :AgentNet in Neovim.\n')
    listed = home.run("credentials").stdout
    assert 'Set network = "proxy", or use :AgentNet in Neovim' in listed
    home.config.write_text(f'network = "proxy"\n{home.config.read_text()}')
    assert "Set network" not in home.run("credentials").stdout


def test_without_gh_the_secret_is_read_from_standard_input_into_the_keychain(home):
    done = home.run("credentials", "add", "github", stdin=f"{SECRET}\n")
    assert done.returncode == 0, done
    assert "source" not in declared(home)["github"]
    kept = json.loads((home.folder / "keychain.json").read_text())
    assert kept == {"sanderling-credentials/github": SECRET}
    assert SECRET not in home.config.read_text() + done.stdout + done.stderr
    again = home.run("credentials", "add", "github", stdin=f"{SECRET}2\n")
    assert "Stored github in the keychain." in again.stdout
    assert f"{SECRET}2" in (home.folder / "keychain.json").read_text()


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("work",), "name the hosts that get the secret of 'work': --host"),
        (("a.b", "--host", "x.org"), "'a.b' is not a name"),
        (("work", "--host", "*.org", "--variable", "T"), "'*.org' is not a host: use a name like"),
        (("work", "--host", "https://x.org/", "--variable", "T"), "'https://x.org/' is not a host"),
        (("work", "--hosts", "x.org", "--variable", "T"), "unrecognized arguments: --hosts x.org"),
        (("work", "--host", "x.org", "--source", "env"), "set `variable`"),
        (("work", "--host", "x.org", "--variable", "PATH"), "commands see PATH"),
        (("work", "--host", "x.org", "--variable", "NO_SUCH"), "There is no secret"),
        (("work", "--host", "x.org", "--command", "no-such-program"), "no-such-program"),
        (("work", "--host", "x.org"), "no secret was given, so nothing changed"),
    ],
)
def test_mistake_changes_nothing(home, arguments, words):
    done = home.run("credentials", "add", *arguments)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert not home.config.exists()


def test_credentials_in_another_form_are_left_to_the_user(home):
    with_gh(home)
    text = "sandbox = { credentials = {} }\n"
    home.config.write_text(text)
    done = home.run("credentials", "add", "github")
    assert done.returncode == 2
    assert "add this to" in done.stderr
    assert home.config.read_text() == text


OTHERS = """\
# mine
[sandbox]
hosts = ["x.org"]  # [not a table]

[[permissions]]
action = "ask"
tool = "bash"
"""


def test_remove_takes_the_table_and_the_secret_and_leaves_the_rest(home):
    home.config.write_text(OTHERS)
    home.run("credentials", "add", "github", stdin=f"{SECRET}\n")
    home.config.write_text(home.config.read_text() + "\n# about tools\n[tools]\ndisabled = []\n")
    removed = home.run("credentials", "remove", "github")
    assert removed.returncode == 0, removed
    assert removed.stdout.startswith("Removed github from ")
    assert home.config.read_text().startswith(OTHERS)
    assert home.config.read_text().endswith("\n# about tools\n[tools]\ndisabled = []\n")
    assert "github" not in home.config.read_text()
    assert json.loads((home.folder / "keychain.json").read_text()) == {}
    again = home.run("credentials", "remove", "github")
    assert (again.returncode, "there is no credential 'github'" in again.stderr) == (2, True)


def test_remove_leaves_another_form_to_the_user(home):
    text = "sandbox = { credentials = { a = { hosts = ['x.org'] } } }\n"
    home.config.write_text(text)
    done = home.run("credentials", "remove", "a")
    assert done.returncode == 2
    assert "remove the credential 'a' from" in done.stderr
    assert home.config.read_text() == text


@pytest.mark.parametrize("keychain", ["Locked", "Forgetful", "Talkative"])
def test_keychain_that_fails_is_an_error_without_the_secret(home, keychain):
    home.environment["PYTHON_KEYRING_BACKEND"] = f"tests.keychain.{keychain}Keychain"
    done = home.run("credentials", "add", "github", stdin=SECRET)
    assert done.returncode in (1, 2)
    assert "nlock" in done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert not home.config.exists()


@pytest.mark.parametrize("is_known", [False, True])
def test_secret_is_not_given_to_a_program_of_the_project(home, is_known):
    if is_known:
        home.run("credentials", "add", "github", stdin=SECRET)
    package = home.project / "keyring"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        f"import sys; open({str(home.folder / 'stolen')!r}, 'w').write(sys.stdin.read())"
    )
    home.environment["PYTHONPATH"] = f"{home.project}:{home.environment['PYTHONPATH']}"
    done = home.run("credentials", "add", "github", stdin=SECRET)
    assert done.returncode == 0, done
    assert not (home.folder / "stolen").exists()


def test_secret_that_cannot_be_read_fails_the_test(home):
    with_gh(home)
    home.run("credentials", "add", "github")
    with_gh(home, "false")
    done = home.run("credentials", "test")
    assert done.returncode == 1
    assert (
        "error  There is no secret for the credential 'github'. Run `gh auth token`" in done.stdout
    )
    unknown = home.run("credentials", "test", "gihub")
    assert unknown.returncode == 2
    assert "there is no credential 'gihub'" in unknown.stderr


def test_list_is_json_on_request_and_says_that_there_are_none(home):
    assert "No credentials" in home.run("credentials").stdout
    home.run("credentials", "add", "github", stdin=SECRET)
    (line,) = home.run("credentials", "list", "--json").stdout.splitlines()
    assert json.loads(line)["level"] == "warn"
