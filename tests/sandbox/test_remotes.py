"""The project's own remotes: their URLs, and credentials that are limited to them."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanderling.config import Credential, Layer
from sanderling.config.layers import Layers
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.sandbox.remotes import read_remotes, remote_of, resolved

GITHUB = {"hosts": ["github.com", "api.github.com"], "source": "env", "variable": "TEST_TOKEN"}


def git(project: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=project, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "-q", "-b", "main")
    return project


def paths_in(project: Path, *paths: str, hosts: tuple[str, ...] = ("github.com",)) -> list[str]:
    """The paths of a credential with `paths`, or for remotes, in a session of `project`."""
    credential = Credential(hosts=hosts, paths=paths or ("remotes",))
    return [*resolved(credential, read_remotes(str(project), ())).paths]


@pytest.mark.parametrize(
    "url, remote",
    [
        ("https://github.com/me/it.git", ("github.com", "me/it")),
        ("https://GitHub.com/me/it/", ("github.com", "me/it")),
        ("https://me:secret@github.com/me/it", ("github.com", "me/it")),
        ("https://git.example:8443/group/sub/it.git", ("git.example", "group/sub/it")),
        ("git@github.com:me/it.git", ("github.com", "me/it")),
        ("github.com:me/it", ("github.com", "me/it")),
        ("ssh://git@github.com:22/me/it.git", ("github.com", "me/it")),
        ("/srv/it.git", None),
        ("../it", None),
        ("file:///srv/it.git", None),
        ("https://github.com/", None),
        ("https://github.com/me/../other", None),
        ("https://github.com/me/*", None),
        ("https://github.com/me/it%2fx", None),
        ("https://github.com/me/it?x", None),
        ("https://[bad/me/it", None),
        ("https://github.com:bad/me/it", None),
        ("", None),
    ],
)
def test_remote_is_a_host_and_a_path(url, remote):
    found = remote_of(url)
    assert (found and found[:2]) == remote


@pytest.mark.parametrize(
    "url, start, port",
    [
        ("https://GitHub.com/me/it.git", "https://GitHub.com/", 443),
        ("https://me@github.com:8443//me/it/", "https://me@github.com:8443//", 8443),
        ("https://me:secret@github.com/me/it", "", 443),
        ("me@github.com:/me/it", "me@github.com:/", None),
        ("ssh://me@github.com:22/me/it.git", "ssh://me@github.com:22/", None),
        ("http://me@github.com/me/it", "", None),
        ("git://github.com/me/it", "", None),
        ("https://\u00fc@github.com/me/it", "", 443),
    ],
)
def test_remote_begins_as_it_is_written_if_git_may_use_the_credential_for_it(url, start, port):
    remote = remote_of(url)
    assert remote
    assert (remote.start, remote.port) == (start, port)


def test_remotes_are_the_repositories_of_the_projects_remotes_on_the_credentials_hosts(project):
    git(project, "remote", "add", "origin", "git@github.com:me/it.git")
    git(project, "remote", "add", "other", "https://git.example/you/that")
    git(project, "remote", "set-url", "--push", "other", "https://github.com/fork/that.git")
    found = paths_in(project)
    assert {"/me/it.git/*", "/me/it", "/repos/me/it/*", "/fork/that.git"} <= {*found}
    assert not [path for path in found if "you" in path]
    assert paths_in(project, "/graphql", "remotes")[-1] == "/graphql"
    assert paths_in(project, "/graphql") == ["/graphql"]
    assert Credential().paths == ("/*",)


def test_remote_without_an_owner_is_no_owner(project):
    git(project, "remote", "add", "origin", "https://github.com/me")
    assert paths_in(project) == ["/me.git", "/me.git/*"]


def test_without_a_repository_or_a_remote_there_is_no_path(project, tmp_path):
    assert paths_in(project) == []
    assert paths_in(tmp_path) == []


def test_files_that_a_command_can_write_name_no_remote(project):
    (project / "more").write_text('[remote "evil"]\nurl = https://github.com/evil/it\n')
    (project / ".gitmodules").write_text(
        '[submodule "evil"]\npath = evil\nurl = https://github.com/evil/sub\n'
    )
    git(project, "config", "include.path", "../more")
    assert paths_in(project) == []


def test_files_that_look_like_a_repository_name_no_remote(tmp_path):
    git(tmp_path, "init", "-q", "--bare", "planted")
    git(tmp_path / "planted", "remote", "add", "origin", "https://github.com/evil/it")
    assert paths_in(tmp_path / "planted") == []


def test_worktree_has_the_remotes_of_its_repository(project, tmp_path):
    git(project, "remote", "add", "origin", "https://github.com/me/it")
    git(
        project,
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "x",
    )
    git(project, "worktree", "add", "-q", str(tmp_path / "tree"))
    assert "/me/it.git" in paths_in(tmp_path / "tree")


async def credentials_of(
    project: Path, paths: Sequence[str] = ("/*",), **options: object
) -> list[Credential]:
    """The credentials of a new session, declared with these `paths`."""
    script = project.parent / "script.json"
    script.write_text('{"version": 1, "reply": []}')
    chosen = {
        "provider": "scripted",
        "script": str(script),
        "sandbox": {"credentials": {"github": GITHUB | {"paths": [*paths]}}},
    }
    layers = Layers(state_dir=str(project.parent / "state"), file=Layer("config.toml", chosen))
    opened = await open_conversation(
        "s1", str(project), layers, lambda _: None, SessionOptions(is_eager=False, **options)
    )
    assert isinstance(opened.agent, Conversation)
    declared = opened.agent.services.sandbox.effective_policy.declared
    opened.agent.close()
    await opened.agent.serve()
    return [each for _, each in declared.credentials]


async def test_session_has_the_remotes_that_the_project_had_when_it_began(project):
    git(project, "remote", "add", "origin", "https://github.com/me/it")
    (credential,) = await credentials_of(project, paths=["remotes"])
    assert "/me/it.git" in credential.paths
    assert "remotes" not in credential.paths


async def test_session_can_be_without_credentials(project):
    assert await credentials_of(project, has_credentials=False) == []
