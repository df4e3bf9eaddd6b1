"""Removals by commands, as the person is told of them before they allow one: in the real sandbox, on real files."""

import anyio
import pytest
from tests.sandboxes import kept, policy_below, sandbox_of
from tests.workspaces import workspace_of

from sanderling.permissions.removals import MAX_COUNTED, removals_note
from sanderling.sandbox.sandbox import alone
from sanderling.tools.effects import Effect


@pytest.fixture
def project(tmp_path):
    project = tmp_path / "home/project"
    (project / "src/deep").mkdir(parents=True)
    (project / "a.py").write_text("one\ntwo\nthree")
    (project / "b.py").write_text("one\n")
    (project / "packed").write_bytes(b"\0" * 1500)
    (project / "link").symlink_to("a.py")
    for name in ("a.py", "1", "deep/2", "deep/3"):
        (project / "src" / name).write_text("")
    return project


@pytest.fixture
def told(tmp_path, project):
    """The sentences on commands."""

    async def ask(commands: tuple[str, ...]) -> list[str]:
        sandbox = sandbox_of(policy_below(tmp_path))
        workspace = workspace_of(project, sandbox)
        effects = [Effect("bash", "run", command=each) for each in commands]
        with alone():
            async with kept(sandbox):
                return [await removals_note(effect, workspace) for effect in effects]

    return lambda *commands: anyio.run(ask, commands)


WORDS = {
    "rm a.py": "It removes a.py (3 lines).",
    "git rm -q a.py b.py": "It removes a.py (3 lines) and b.py (1 line).",
    "make && rm -rf ./src/ b.py -v": "It removes src/ (4 files) and b.py (1 line).",
    "cd src && rm deep/2": "It removes src/deep/2 (0 lines).",
    "rm x* packed link": "It removes packed (1,500 bytes) and link.",
    "rm a.py b.py link src a.py": "It removes a.py (3 lines), b.py (1 line), link and 1 more.",
}


def test_files_that_a_command_removes_by_name_are_told_with_their_size(told):
    assert dict(zip(WORDS, told(*WORDS), strict=True)) == WORDS


SILENT = (
    "rm nothing.py",
    "rm *.py",
    "git rm --cached a.py",
    "echo rm a.py",
    "cd src && rm a.py",  # two are called so
    "rm 'a.py",
    "xargs rm <<< a.py",
)


def test_nothing_is_said_where_it_is_not_known_what_goes(told):
    assert told(*SILENT) == [""] * len(SILENT)


def test_a_directory_of_very_many_files_is_not_counted_to_the_end(told, project):
    for number in range(MAX_COUNTED + 1):
        (project / "src/deep" / f"{number}").touch()
    assert told("rm -r src") == ["It removes src/ (more than 2,000 files)."]
