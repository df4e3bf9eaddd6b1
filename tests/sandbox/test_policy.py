"""What a command may touch, as data: checked before anything is enforced."""

import re
from pathlib import Path

import pytest

from sanderling import paths
from sanderling.errors import SandboxError
from sanderling.paths import state_directory
from sanderling.sandbox.environment import environment
from sanderling.sandbox.gaps import GAPS, NETWORK_ON
from sanderling.sandbox.policy import (
    LEVELS,
    TOO_WIDE,
    ResourceLimits,
    SandboxPolicy,
    is_too_wide,
    resolve_policy,
)
from tests.conftest import ROOT
from tests.sandboxes import policy_below


@pytest.fixture
def policy(tmp_path) -> SandboxPolicy:
    for name in ("home/work/project", "elsewhere", "state"):
        (tmp_path / name).mkdir(parents=True)
    return policy_below(tmp_path, "home/work/project")


# --- paths -------------------------------------------------------------------------------------------------------------


def test_every_path_is_made_real(policy, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "home")
    resolved = resolve_policy(
        policy._replace(
            project=f"{tmp_path}/link/work/../work/project/",
            home=f"{tmp_path}/link",
            read_paths=(f"{tmp_path}/link/work",),
            write_paths=(f"{tmp_path}//elsewhere",),
        )
    )
    assert resolved == policy._replace(
        read_paths=(f"{tmp_path}/home/work",), write_paths=(f"{tmp_path}/elsewhere",)
    )


def test_tilde_in_a_grant_is_the_persons_home(policy, tmp_path, monkeypatch):  # noqa: ARG001
    monkeypatch.setenv("HOME", policy.home)
    assert resolve_policy(policy._replace(write_paths=("~/work",))).write_paths == (
        f"{policy.home}/work",
    )


def test_policy_of_a_missing_state_directory_is_resolved(policy, tmp_path):
    assert (
        resolve_policy(policy._replace(state_dir=f"{tmp_path}/new")).state_dir == f"{tmp_path}/new"
    )


@pytest.mark.parametrize("field", ["project", "read_paths", "write_paths"])
@pytest.mark.parametrize(
    "path, reason",
    [
        ("{base}/missing", "does not exist"),
        ("{base}/home", "more than a command may touch"),
        ("{base}", "more than a command may touch"),
        ("{base}/to-home", "more than a command may touch"),
        ("/", "more than a command may touch"),
        ("{base}/state", "own state overlap"),
        ("{base}/state/below", "own state overlap"),
    ],
)
def test_path_that_holds_too_much_is_refused_in_one_sentence(policy, tmp_path, field, path, reason):
    (tmp_path / "to-home").symlink_to(tmp_path / "home")
    (tmp_path / "state/below").mkdir()
    path = path.format(base=tmp_path)
    value = path if field == "project" else (path,)
    with pytest.raises(SandboxError, match=reason) as caught:
        resolve_policy(policy._replace(**{field: value}))
    assert path in str(caught.value)
    assert re.fullmatch(r"The (project|path) [^\n]*\.", str(caught.value))


@pytest.mark.parametrize("path", sorted(path for path in TOO_WIDE if Path(path).is_dir()))
@pytest.mark.parametrize("field", ["project", "write_paths"])
def test_directory_of_the_system_is_no_project_and_no_grant(policy, path, field):
    with pytest.raises(SandboxError):
        resolve_policy(policy._replace(**{field: path if field == "project" else (path,)}))


@pytest.mark.parametrize(
    "path", ["{base}/HOME", "{base}/data/home", "{base}/State/new", "{base}/data"]
)
@pytest.mark.parametrize("field", ["project", "read_paths", "write_paths"])
def test_another_spelling_of_a_path_is_judged_like_the_path(
    policy, tmp_path, monkeypatch, field, path
):
    """As on macOS: case makes no difference, and `data` leads to the same files without being a link."""
    base = str(tmp_path)

    def spelled(path: str) -> str:
        below = path.removeprefix(base) if path.startswith(f"{base}/") else ""
        return base + re.sub("^/data(?=/|$)", "", below.lower()) if below else path

    monkeypatch.setattr(paths, "MAY_BE_SPELLED_OTHERWISE", True)
    monkeypatch.setattr(paths, "on_disk", spelled)
    (tmp_path / "state/new").mkdir(exist_ok=True)
    path = path.format(base=base)
    value = path if field == "project" else (path,)
    with pytest.raises(SandboxError, match=r"more than a command|own state overlap"):
        resolve_policy(policy._replace(**{field: value}))


@pytest.mark.parametrize("name", ["Users", "Library", "Volumes", "private/var", "Applications"])
def test_directory_of_macos_is_too_wide(name):
    assert is_too_wide(f"/{name}", "/Users/me")
    assert not is_too_wide(f"/{name}/x", "/Users/me")


@pytest.mark.parametrize("name", ["rules/a.json", "trust", "sessions/new", "to-rules"])
def test_nothing_in_the_state_is_writable_whatever_is_granted(policy, tmp_path, name):
    root = tmp_path / "root"
    for each in ("rules", "trust", "sessions/new"):
        (root / each).mkdir(parents=True)
    (root / "rules/a.json").touch()
    (tmp_path / "to-rules").symlink_to(root / "rules")
    path = str((tmp_path if name == "to-rules" else root) / name)
    policy = policy._replace(state_root=str(root))
    with pytest.raises(SandboxError, match="own state overlap"):
        resolve_policy(policy._replace(write_paths=(path,)))
    assert resolve_policy(policy._replace(read_paths=(path,))).read_paths


def test_project_above_the_state_is_refused(policy):
    with pytest.raises(SandboxError, match="overlap"):
        resolve_policy(policy._replace(state_dir=f"{policy.project}/.state"))


def test_project_that_is_a_file_is_refused(policy, tmp_path):
    (tmp_path / "elsewhere/file").touch()
    with pytest.raises(SandboxError, match="is not a directory"):
        resolve_policy(policy._replace(project=str(tmp_path / "elsewhere/file")))


def test_one_file_can_be_granted(policy, tmp_path):
    file = tmp_path / "elsewhere/file"
    file.touch()
    assert resolve_policy(policy._replace(write_paths=(str(file),))).write_paths == (str(file),)


# --- the environment ---------------------------------------------------------------------------------------------------


SECRETS = {
    "NVIM": "/run/nvim.sock",
    "NVIM_LISTEN_ADDRESS": "/run/nvim.sock",
    "SSH_AUTH_SOCK": "/run/agent",
    "SSH_AGENT_PID": "1",
    "GPG_AGENT_INFO": "/run/gpg",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/bus",
    "DISPLAY": ":0",
    "WAYLAND_DISPLAY": "wayland-0",
    "XAUTHORITY": "/run/xauth",
    "XDG_RUNTIME_DIR": "/run/user/1",
    "TMUX": "/tmp/tmux",
    "DOCKER_HOST": "unix:///run/docker.sock",
    "KUBECONFIG": "/kube",
    "ANTHROPIC_API_KEY": "key",
    "GITHUB_TOKEN": "token",
    "GH_TOKEN": "token",
    "NPM_TOKEN": "token",
    "AWS_SECRET_ACCESS_KEY": "key",
    "PGPASSWORD": "word",
    "DATABASE_URL": "postgres://me:word@host/db",
    "LD_PRELOAD": "/lib/evil.so",
    "BASH_ENV": "/home/me/env",
    "GIT_SSH_COMMAND": "ssh -i key",
    "GIT_ASKPASS": "/bin/ask",
    "PYTHONSTARTUP": "/home/me/startup",
    "PYTHONHOME": "/home/me",
    "http_proxy": "http://proxy",
    "LC_TOKEN_": "x",
    "MY_PATH": "/bin",
    "PATH_TOKEN": "x",
    "path": "x",
}


@pytest.mark.parametrize("level", LEVELS[:-1])
def test_environment_holds_no_secret_socket_or_display(policy, level):
    assert not environment(SECRETS, policy, level).keys() & (SECRETS.keys() - {"LC_TOKEN_"})


@pytest.mark.parametrize(
    "name", ["PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "CC", "CARGO_HOME", "GOFLAGS", "CI"]
)
def test_what_builds_need_is_passed(policy, name):
    assert environment({name: "/usr/bin"}, policy, "full")[name] == "/usr/bin"


@pytest.mark.parametrize(
    "value",
    [
        "https://me:word@proxy.example",
        "https://:word@proxy.example,direct",
        "direct,https://me:word@proxy.example/path",
        "https://me:@proxy.example",
        "https://token@proxy.example",
    ],
)
def test_value_with_credentials_in_an_address_stays_outside(policy, value):
    assert "GOPROXY" not in environment({"GOPROXY": value}, policy, "full")


@pytest.mark.parametrize(
    "value", ["https://proxy.example:80/a@b", "me@host", "https://proxy.example,direct"]
)
def test_address_without_credentials_is_passed(policy, value):
    assert environment({"GOPROXY": value}, policy, "full")["GOPROXY"] == value


def test_named_variable_is_passed_whatever_it_holds(policy):
    named = policy._replace(env_pass=("GITHUB_TOKEN", "GOPROXY", "MISSING"))
    host = {"GITHUB_TOKEN": "token", "GOPROXY": "https://me:word@host", "GH_TOKEN": "token"}
    found = environment(host, named, "full")
    assert found["GITHUB_TOKEN"] == "token"
    assert found["GOPROXY"] == "https://me:word@host"
    assert not found.keys() & {"GH_TOKEN", "MISSING"}


def test_naming_a_variable_does_not_move_home_or_tmp_outside(policy):
    named = policy._replace(env_pass=("HOME", "TMPDIR", "GIT_CONFIG_GLOBAL"))
    host = dict.fromkeys(named.env_pass, "/outside")
    assert "/outside" not in environment(host, named, "landlock").values()


def test_home_is_the_persons_path_where_it_is_mounted_and_the_private_one_where_not(policy):
    policy = policy._replace(tmp_dir="/state/tmp/1")
    mounted, unmounted = (environment({}, policy, level) for level in ("full", "landlock"))
    assert (mounted["HOME"], mounted["TMPDIR"]) == (policy.home, "/tmp")
    assert unmounted["HOME"] == f"{policy.state_dir}/home"
    assert unmounted["TMPDIR"] == "/state/tmp/1"
    assert mounted["SANDERLING_SANDBOX"] == "full"


def test_tools_are_told_not_to_try_again_only_while_the_network_is_off(policy):
    off, on = (environment({}, policy._replace(network=mode), "full") for mode in ("off", "on"))
    assert off["PIP_RETRIES"] == "0"
    assert "PIP_RETRIES" not in on


# --- the rest ----------------------------------------------------------------------------------------------------------


def test_projects_of_the_same_name_have_state_of_their_own(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "my project").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a/my project")
    a, b, link, again = (
        state_directory("/state", str(tmp_path / path))
        for path in ("a/my project", "b/my project", "link", "a/../a/my project/")
    )
    assert a == link == again != b
    assert re.fullmatch(r"/state/my_project-[0-9a-f]{16}", a)


def test_any_name_of_a_project_gives_a_name_for_its_state(tmp_path):
    path = tmp_path / ("ü\n/" + "x" * 200)
    name = state_directory("/state", str(path)).removeprefix("/state/")
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,60}", name)


def test_every_session_may_have_hundreds_of_processes():
    assert ResourceLimits().processes >= 512


# --- the gaps of each level ---------------------------------------------------------------------------------------------


HELP = " ".join((ROOT / "doc" / "sanderling.txt").read_text().split())
AT_EVERY_LEVEL = (
    "Files that a command writes to the project run outside the sandbox when you run them: tests, Makefiles, package scripts, an unfinished rebase.",
    "When you commit: what a hook runs beyond the files that it names, such as the scripts of package.json.",
    "When you only open a file: a language server or linter in your editor runs build scripts (build.rs), macros, plugins and settings that are code (eslint.config.js).",
    "A command can read the whole project, its history included, and the system's programs and settings.",
    "With the network on, or to a host that the proxy allows, it can send what it reads.",
    "A name that does not exist yet cannot be protected by a mount; the guard removes it within about a millisecond, and a program that reads it in between finds it.",
    "A new repository whose settings run something is found within about a second, in large projects within ten times the duration of a scan; a git command in between runs them.",
    "While you change a repository's settings outside, a running command can write to the new file for about a millisecond, and its text counts as yours.",
    "A command with the network on can hand a connection to one without.",
    "If the sandbox's own processes are killed before their last check, files left by a command stay in the project.",
    "An MCP server starts in the project: if it loads code or settings from there (node_modules, .npmrc), their author can misuse the paths, hosts and variables declared for it.",
    "As root, files below /usr and /opt that only root may read are readable.",
    "The kernel is shared: a vulnerability in it is a vulnerability of the sandbox.",
)
SENTENCES = {gap.words for gaps in (*GAPS.values(), *NETWORK_ON.values()) for gap in gaps} | set(
    AT_EVERY_LEVEL
)


@pytest.mark.parametrize("sentence", sorted(SENTENCES))
def test_help_says_what_is_not_isolated_in_the_same_words(sentence):
    assert sentence in HELP


def test_help_lists_for_each_level_what_it_lacks():
    for level, gaps in GAPS.items():
        chapter = HELP.partition(f"Level {level} ~")[2].partition(" ~ ")[0]
        assert all(gap.words in chapter for gap in gaps), level
