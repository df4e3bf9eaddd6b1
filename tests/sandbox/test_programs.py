"""The person's own programs in HOME: which directories of PATH are shown, and what is said where one is hidden."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sanderling.sandbox.denials import Denial, programs_denied
from sanderling.sandbox.kernel.programs import MAX_PROGRAMS, programs_of
from sanderling.sandbox.policy import Grant, resolve_policy
from tests.conftest import little_work, prove, prove_rest
from tests.sandbox.test_files import session_of
from tests.sandbox.test_grants import said
from tests.sandbox.test_sandbox import LEVELS, Place, run

MISSING = 127


@pytest.fixture
def own(place, monkeypatch) -> Callable[..., Path]:
    """Make directories of programs, and put them before the others on PATH."""

    def make(*names: str, at: Path = place.home) -> Path:
        directories = [at / name for name in names]
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
            program(directory / "mytool")
        monkeypatch.setenv("PATH", os.pathsep.join(map(str, directories)), prepend=os.pathsep)
        return directories[0]

    return make


def program(path: Path, text: str = "echo mine", mode: int = 0o755) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)


def shown(place: Place, **changes) -> list[str]:
    policy = resolve_policy(place.policy(**changes))
    return [path for path in programs_of(policy) if path.startswith(str(place.base))]


def denied(place: Place, output: str, status: int = MISSING, command: str = "") -> list[Denial]:
    return programs_denied(output, status, command, resolve_policy(place.policy()))


# --- what is shown -----------------------------------------------------------------------------------------------------


@prove
@pytest.mark.parametrize("level", LEVELS)
async def test_directory_of_programs_in_home_is_shown_and_cannot_be_written(place, own, level):
    directory = own("bin", ".tools/bin")
    async with session_of(place, level=level) as session:
        assert await said(session, "mytool") == "mine\n"
        assert await said(session, f"{place.home}/.tools/bin/mytool") == "mine\n"
        assert "x" not in await said(
            session, f"(echo x >{directory}/new) 2>/dev/null; cat {directory}/new 2>/dev/null"
        )
    assert [path.name for path in directory.iterdir()] == ["mytool"]


# --- what PATH finds first is never what a command has made ---------------------------------------------------------------

FAKE = "mkdir -p {0}; printf '#!/bin/sh\\necho evil\\n' >{0}/ls; chmod 755 {0}/ls"


ENTRIES = {
    "absent": "{home}/.local/bin",
    "in tmp": "/tmp/tools",
    "in shm": "/dev/shm/tools",
    "here": ".",
    "nowhere": "",
    "hidden": "{home}/bin",
    "a link to what is absent": "{base}/tools",
    "a link in HOME to elsewhere": "{home}/linked",
    "around a corner": "/usr/bin/../..{home}/bin",
}


@prove
@pytest.mark.parametrize("variable", ["PATH", "LD_LIBRARY_PATH"])
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES.keys())
async def test_directory_that_a_command_can_fill_is_not_searched(
    place, monkeypatch, entry, variable
):
    (place.home / "bin").mkdir()
    add_text(place.home / "bin")
    (place.base / "tools").symlink_to(place.home / "tools")
    (place.home / "linked").symlink_to("/usr/lib")
    directory = entry.format(home=place.home, base=place.base)
    before = os.environ["PATH"] if variable == "PATH" else ""
    monkeypatch.setenv(variable, f"{directory}{os.pathsep}{before}")
    at = place.home / "tools" if entry == "{base}/tools" else directory or "."
    async with session_of(place) as session:
        await said(session, FAKE.format(at))
        assert "evil" not in await said(session, "ls")
        searched = (await said(session, f"printf %s ${variable}")).split(":")
        assert directory not in searched or searched == [""]


async def test_directories_of_programs_that_are_shown_are_searched_in_their_order(place, own):
    own("bin", ".tools/bin", ".local/bin")
    (place.project / "node_modules/.bin").mkdir(parents=True)
    ours = [f"{place.home}/{name}" for name in ("bin", ".tools/bin", ".local/bin")]
    mine = f"{place.project}/node_modules/.bin"
    os.environ["PATH"] = f"{mine}:{os.environ['PATH']}"
    async with session_of(place) as session:
        searched = (await said(session, "printf %s $PATH")).split(":")
    assert searched[:4] == [mine, *ours]


@prove
async def test_granted_directory_of_programs_is_searched(place, own):
    directory = own("tools")
    add_text(directory)
    async with session_of(place) as session:
        assert str(directory) not in await said(session, "printf %s $PATH")
        await session.confined.extend(Grant(read_paths=(str(directory),)))
        assert await said(session, "mytool") == "mine\n"


@prove
@pytest.mark.parametrize("level", [*LEVELS[:-1]])
async def test_no_command_puts_another_directory_in_the_place_of_what_is_shown(place, own, level):
    """It would be renamed with the private directory around it, the project as well as the programs."""
    own(".local/bin", "some/where/bin")
    inside = place.project / "deep/er"
    inside.mkdir(parents=True)
    (inside / "file").write_text("real\n")
    async with place.open(level, project=str(inside)) as sandbox:
        for name in (".local", "some", "some/where", place.project.name, "project/deep"):
            rename = f"import os; os.rename('{place.home}/{name}', '{place.home}/aside')"
            assert (await run(sandbox, "python3", "-c", rename))[0] == 1
            assert (await run(sandbox, f"rm -rf {place.home}/.local; rmdir {place.home}/{name}"))[0]
            await run(sandbox, FAKE.format(f"{place.home}/.local/bin"))
        assert "evil" not in (await run(sandbox, "ls"))[1]
        assert (await run(sandbox, "mytool"))[1] == "mine\n"
        assert (await run(sandbox, f"cat {inside}/file"))[1] == "real\n"


def add_text(directory: Path) -> None:
    (directory / "token.txt").write_text("secret")


def fill(directory: Path) -> None:
    for number in range(MAX_PROGRAMS):
        (directory / f"{number}").symlink_to("mytool")


UNFIT = {
    "a text": add_text,
    "a dotfile": lambda directory: program(directory / ".netrc"),
    "a directory": lambda directory: (directory / "keys").mkdir(),
    "a private program": lambda directory: program(directory / "with_token", mode=0o700),
    "a pipe": lambda directory: os.mkfifo(directory / "pipe", 0o777),
    "the group may write": lambda directory: directory.chmod(0o775),
    "others may write": lambda directory: directory.chmod(0o757),
    "nothing": lambda directory: (directory / "mytool").unlink(),
    "too much": fill,
}


@pytest.mark.parametrize("name", prove_rest(UNFIT, keep=(0, 3, 6), is_one=True))
def test_directory_that_may_hold_something_private_is_not_shown(place, own, name):
    directory = own("bin")
    assert shown(place) == [str(directory)]
    UNFIT[name](directory)
    assert shown(place) == []


def test_home_what_the_project_lies_in_and_what_lies_elsewhere_are_not_shown(
    place, own, monkeypatch
):
    own("code", at=place.home)
    own("elsewhere", at=place.base)
    project = place.home / "code/project"
    project.mkdir()
    program(project / "mytool")
    monkeypatch.setenv("PATH", f"{place.home}:{project}:.:bin:~/bin:", prepend=os.pathsep)
    assert shown(place, project=str(project)) == []


def test_link_out_of_home_or_to_something_private_is_not_shown(place, own, monkeypatch):
    keys = place.home / ".ssh"
    keys.mkdir()
    (keys / "id").write_text("secret")
    keys.chmod(0o700)
    elsewhere = own("elsewhere", at=place.base)
    links = [place.home / name for name in ("a", "b", "c", "d")]
    for link, target in zip(links, (elsewhere, keys, place.home, "nowhere"), strict=True):
        link.symlink_to(target)
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, links)), prepend=os.pathsep)
    assert shown(place) == []


async def test_link_to_a_directory_that_may_be_shown_leads_there(place, own, monkeypatch):
    own("dotfiles/bin")
    (place.home / "bin").symlink_to("dotfiles/bin")
    monkeypatch.setenv("PATH", f"{place.home}/bin:{os.defpath}")
    async with session_of(place) as session:
        assert await said(session, "mytool; ls ~/dotfiles 2>/dev/null") == "mine\n"


async def test_link_among_the_programs_shows_nothing_that_is_hidden(place, own):
    directory = own("bin")
    (directory / "peek").symlink_to(place.secret / "file")
    async with session_of(place) as session:
        assert await said(session, "mytool") == "mine\n"
        assert "secret" not in await said(session, f"cat {directory}/peek 2>/dev/null")


# --- what is hidden ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output",
    [
        "/bin/sh: 1: mytool: not found",
        "bash: line 1: mytool: command not found",
        "zsh:1: command not found: mytool",
        "env: 'mytool': No such file or directory",
        "env: \u2018mytool\u2019: No such file or directory",
        "mytool: No such file or directory",
        "make: mytool: No such file or directory\nmake: *** [Makefile:2: all] Error 127",
        'exec: "mytool": executable file not found in $PATH',
        "FileNotFoundError: [Errno 2] No such file or directory: 'mytool'",
        "Error: spawn mytool ENOENT",
        "sh: 1: mytool: Permission denied",
    ],
)
def test_program_that_was_not_found_and_is_on_the_path_is_a_denial(place, own, output):
    directory = own("elsewhere", at=place.base)
    for status in (1, MISSING):
        assert denied(place, output, status) == [
            Denial("execute", str(directory), "hidden_program", "mytool")
        ]


def test_program_of_a_command_that_says_nothing_is_looked_for_in_its_words(place, own):
    directory = own("elsewhere", at=place.base)
    command = "cd src && mytool --all 2>/dev/null"
    assert [denial.target for denial in denied(place, "", MISSING, command)] == [str(directory)]
    assert denied(place, "", 1, command) == []


@pytest.mark.parametrize(
    "output",
    [
        *("sh: 1: other: not found", "sh: 1: sh: not found", "sh: 1: ./mytool: not found"),
        *("sh: 1: mytools: not found", "sh: 1: /usr/bin/mytool: not found", "mytool has run", ""),
    ],
)
def test_what_is_no_hidden_program_is_no_denial(place, own, output):
    own("elsewhere", at=place.base)
    assert denied(place, output) == []


def test_directory_that_is_shown_is_no_denial(place, own):
    own("bin")
    assert denied(place, "sh: 1: mytool: not found") != []
    policy = resolve_policy(place.policy(programs=(f"{place.home}/bin",)))
    assert programs_denied("sh: 1: mytool: not found", MISSING, "", policy) == []


def test_of_a_link_the_directory_that_it_leads_to_is_needed_too(place, own):
    directory = own("elsewhere", at=place.base)
    real = place.home / "src/tool"
    real.mkdir(parents=True)
    program(real / "tool.sh")
    (directory / "mytool").unlink()
    (directory / "mytool").symlink_to(real / "tool.sh")
    found = [denial.target for denial in denied(place, "sh: 1: mytool: not found")]
    assert found == [str(directory), str(real)]


def test_of_a_script_the_directory_of_its_interpreter_is_needed_too(place, own):
    directory = own("elsewhere", at=place.base)
    interpreter = place.base / "interpreters/mine"
    interpreter.parent.mkdir()
    program(interpreter)
    (directory / "mytool").write_text(f"#!{interpreter}\n")
    found = [denial.target for denial in denied(place, "sh: 1: mytool: not found")]
    assert found == [str(directory), str(interpreter.parent)]


@prove
async def test_hidden_program_runs_where_its_directory_is_granted(place, own, monkeypatch):
    directory = own("elsewhere", at=place.base)
    (place.base / "link").symlink_to(directory)
    for entry in (directory, place.base / "link"):
        monkeypatch.setenv("PATH", f"{entry}:{os.defpath}")
        async with session_of(place) as session:
            assert "not found" in await said(session, "mytool 2>&1")
            [denial] = session.look_after("sh: 1: mytool: not found", has_failed=True)
            grant = Grant(read_paths=(denial.target,))
            assert await said(session, "mytool", grant) == "mine\n"
            assert denial not in place.events  # who asks is told


def test_no_output_is_costly_to_look_through(place, own):
    own("elsewhere", at=place.base)
    with little_work():
        for output in (
            "a" * 1_000_000,
            "a: " * 300_000,
            "a: not found\n" * 100_000,
            "spawn " * 100_000,
        ):
            denied(place, output)
