"""What programs say when the sandbox refuses them, read as data."""

import os
from pathlib import Path
from typing import get_args

import pytest

from sanderling.sandbox.denials import MAX_DENIALS, Denial, Rule, denials_in
from sanderling.sandbox.policy import SandboxPolicy
from tests.conftest import little_work
from tests.sandboxes import policy_below


@pytest.fixture
def policy(tmp_path) -> SandboxPolicy:
    """A project with protected files, and a file outside of it that exists."""
    for name in ("project/.git/hooks", "project/sub", "home", "outside", "granted"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("project/.git/config", "outside/secret", "outside/it's", "granted/file"):
        (tmp_path / name).touch()
    return policy_below(tmp_path, "project")


@pytest.fixture
def found(policy, tmp_path):
    """The denials in an output, of which {base} is the directory around everything."""

    def denials(output: str, cwd: str = "project", **changes) -> list[tuple[str, str, str]]:
        output = output.format(base=tmp_path, project=policy.project)
        denied = denials_in(output, policy._replace(**changes), str(tmp_path / cwd))
        return [
            (denial.operation, denial.target.removeprefix(f"{tmp_path}/"), denial.rule)
            for denial in denied
        ]

    return denials


@pytest.mark.parametrize(
    "output",
    [
        "cat: {base}/outside/secret: No such file or directory",
        "ls: cannot access '{base}/outside/secret': No such file or directory",
        "ls: cannot access \u2018{base}/outside/secret\u2019: No such file or directory",
        "sh: 1: cannot open {base}/outside/secret: No such file",
        "/bin/sh: 1: {base}/outside/secret: not found\ncat: {base}/outside/secret: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: '{base}/outside/secret'",
        "Error: ENOENT: no such file or directory, open '{base}/outside/secret'",
        "fatal: cannot open `{base}/outside/secret': No such file or directory",
        "gcc: error: {base}/outside/secret: No such file or directory",
        "cat: ../outside/secret: No such file or directory",
        "cat: sub/../../outside/secret: No such file or directory",
        "make: *** No rule\ncat: {base}/outside/secret: No such file or directory\nmake: *** failed",
    ],
)
def test_hidden_path_that_is_there_outside_is_a_denial(found, output):
    assert found(output) == [("read", "outside/secret", "hidden")]


@pytest.mark.parametrize(
    "output",
    [
        "",
        "cat: {base}/outside/nothing: No such file or directory",
        "cat: {project}/nothing: No such file or directory",
        "cat: {project}/.git/config: No such file or directory",
        "the file {base}/outside/secret is fine",
        "No such file or directory",
        "cat: secret: No such file or directory",
        "cat: '': No such file or directory",
        "rm: cannot remove '{project}/sub': Is a directory",
        "sh: 1: {project}/sub/tool: Permission denied",
    ],
)
def test_what_is_no_refusal_of_the_sandbox_is_no_denial(found, output):
    assert found(output) == []


@pytest.mark.parametrize(
    "output",
    [
        "touch: cannot touch '{base}/outside/new': Read-only file system",
        "touch: cannot touch '{base}/outside/new': Permission denied",
        "sh: 1: cannot create {base}/outside/new: Read-only file system",
        "OSError: [Errno 30] Read-only file system: '{base}/outside/new'",
        "PermissionError: [Errno 13] Permission denied: '{base}/outside/new'",
        "Error: EROFS: read-only file system, open '{base}/outside/new'",
        "Error: EACCES: permission denied, open '{base}/outside/new'",
        "mkdir: cannot create directory \u2018{base}/outside/new\u2019: Operation not permitted",
    ],
)
def test_path_that_cannot_be_written_is_a_denial(found, output):
    assert found(output) == [("write", "outside/new", "read_only")]


@pytest.mark.parametrize(
    "output",
    [
        "error: could not lock config file .git/config: Read-only file system",
        "sh: 1: cannot create .git/config: Read-only file system",
        "rm: cannot remove '.git/config': Device or resource busy",
        "error: could not write config file {project}/.git/config: Device or resource busy",
    ],
)
def test_protected_file_is_told_as_such(found, output):
    assert found(output) == [("write", "project/.git/config", "protected")]


def test_in_plan_mode_the_project_is_read_only(found):
    output = "touch: cannot touch '{project}/new': Read-only file system"
    assert found(output, mode="ro") == [("write", "project/new", "plan")]
    elsewhere = "touch: cannot touch '{base}/outside/new': Read-only file system"
    assert found(elsewhere, mode="ro") == [("write", "outside/new", "plan")]
    assert "nothing can be written in plan mode" in Denial("write", "x", "plan").reason


def test_granted_path_that_misses_something_is_no_denial(found, tmp_path):
    output = "cat: {base}/granted/nothing: No such file or directory"
    for grant in ("read_paths", "write_paths"):
        assert found(output, **{grant: (f"{tmp_path}/granted",)}) == []


def test_read_grant_can_still_be_refused_to_a_writer(found, tmp_path):
    output = "touch: cannot touch '{base}/granted/new': Read-only file system"
    assert found(output, read_paths=(f"{tmp_path}/granted",)) == [
        ("write", "granted/new", "read_only")
    ]


def test_neighbour_whose_name_begins_like_the_project_is_outside(found, tmp_path):
    (tmp_path / "project-2").mkdir()
    (tmp_path / "project-2/file").touch()
    output = "cat: {base}/project-2/file: No such file or directory"
    assert found(output) == [("read", "project-2/file", "hidden")]


@pytest.mark.parametrize(
    "output",
    [
        "fatal: '../outside' does not appear to be a git repository\nfatal: Could not read from remote repository.",
        "fatal: '{base}/outside' does not appear to be a git repository",
        "fatal: repository '../outside' does not exist",
        "Hint: It looks like a path. File '../outside' does not exist.",
    ],
)
def test_repository_that_is_hidden_is_told_as_git_names_it(found, output):
    assert found(output) == [("read", "outside", "hidden")]
    assert found(output.replace("outside", "nowhere")) == []


def test_path_relative_to_home_is_the_persons(policy, monkeypatch):
    monkeypatch.setenv("HOME", policy.home)
    path = f"{policy.home}/.netrc"
    Path(path).touch()
    output = "curl: ~/.netrc: No such file or directory"
    assert denials_in(output, policy, policy.project) == [Denial("read", path, "hidden")]


def test_paths_of_one_output_are_told_once_each_in_order(found, tmp_path):
    (tmp_path / "outside/other").touch()
    line = "cat: {{base}}/outside/{}: No such file or directory\n".format
    assert found(line("secret") + line("other") + line("secret")) == [
        ("read", "outside/secret", "hidden"),
        ("read", "outside/other", "hidden"),
    ]


def test_only_the_first_denials_of_an_output_are_told(policy):
    lines = (f"touch: '/usr/new{number}': Read-only file system" for number in range(100))
    denials = denials_in("\n".join(lines), policy, policy.project)
    assert [denial.target for denial in denials] == [f"/usr/new{n}" for n in range(MAX_DENIALS)]


@pytest.mark.parametrize(
    "output",
    [
        "x" * 30_000 + ": No such file or directory",
        "/" * 30_000 + ": No such file or directory",
        "x/" * 15_000 + " No such file or directory",
        "x /y " * 6_000 + " No such file or directory",
        "'" + "x " * 15_000 + " No such file or directory",
        "''" * 15_000 + " No such file or directory",
        "no such file or director" * 1_200,
        "\0/\0: No such file or directory",
        "'a/\0b': No such file or directory",
        "~" * 30_000 + "/: No such file or directory",
        "/".join(["\ud800"] * 100) + ": Permission denied",
        "/" + "x" * 5_000 + ": No such file or directory",
    ],
    ids=lambda output: ascii(output[:12]),
)
def test_no_output_is_costly_or_fatal_to_read(policy, output):
    with little_work(2):
        denials_in(output, policy, policy.project)


def test_denial_is_plain_data(policy):  # noqa: ARG001
    denial = Denial("connect", "example.org:443", "not_listed")
    assert denial == denial._replace()
    assert hash(denial) == hash(denial._replace())
    with pytest.raises(AttributeError):
        denial.target = os.sep  # type: ignore[misc]


@pytest.mark.parametrize("rule", get_args(Rule))
def test_each_rule_is_told_in_words(rule):
    reason = Denial("read", "x", rule, "a program").reason
    assert " " in reason
    assert "{" not in reason
