"""
The files of a project that git's settings run, in whatever way the user has spelled them: no command may change one unseen.

Each attack first succeeds: the file is changed where nothing holds it, and the user's next git runs the change.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from sanderling.sandbox.guard.command_lines import found_in_line
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.guard.protection import GitProtection, protection
from sanderling.sandbox.guard.repositories import survey
from tests.conftest import prove, prove_rest
from tests.sandbox.test_guard import Yard, kinds

pytestmark = pytest.mark.guard

PASS_ON = "#!/bin/sh\nexec cat\n"
STATUS, DIFF, COMMIT = ("status",), ("diff",), ("commit", "--amend")
FILTER = "filter.x.clean"


class Way(NamedTuple):
    """A setting, the file that a command changes, and the git that the user runs next. `plant` is for what is no shell script."""

    value: str
    path: str = "tools/x"
    key: str = FILTER
    git: tuple[str, ...] = STATUS
    plant: str = ""


WAYS = (
    Way("$(git rev-parse --show-toplevel)/tools/x"),
    Way('"$(git rev-parse --show-toplevel)"/tools/x %f'),
    Way("`git rev-parse --show-toplevel`/tools/x"),
    Way("./tools/x;true"),
    Way("cat|./tools/x"),
    Way("sh <tools/x"),
    Way("sh<tools/x"),
    Way("cd tools && ./x"),
    Way("cd tools;sh x"),
    Way('"$PWD"/tools/x'),
    Way("${PWD}/tools/x"),
    Way("${GIT_WORK_TREE:-.}/tools/x"),
    Way("${NOT_SET-tools}/x"),
    Way("exec ./tools/x||true"),
    Way("env A=1 ./tools/x"),
    Way("T=tools; $T/x"),
    Way("T=./tools/x; exec $T"),
    Way('to"ol"s/x'),
    Way("tools/''x"),
    Way("tools\\/x"),
    Way("tools//./x"),
    Way("tools/../tools/x"),
    Way("eval './to''ols/x'"),
    Way("sh -c 'exec ./tools/x'"),
    Way("sh -c \"sh -c './tools/x'\""),
    Way("bash -c '. tools/x'"),
    Way(". ./tools/x"),
    Way("(./tools/x)"),
    Way("{ ./tools/x; }"),
    Way("!f() { ./tools/x; }; f", key="alias.st", git=("st",)),
    Way("!cd tools && ./x", key="alias.st", git=("st",)),
    Way("-c core.fsmonitor=./tools/x status", key="alias.st", git=("st",)),
    Way("-c color.ui=never -c 'filter.x.clean=sh tools/x' diff", key="alias.d", git=("d",)),
    Way("rebase --root --exec ./tools/x", key="alias.check", git=("check",)),
    Way("rebase --root -x 'sh tools/x'", key="alias.check", git=("check",)),
    Way("grep -Otools/x ours", key="alias.look", git=("look",)),
    Way("grep --open=tools/x ours", key="alias.look", git=("look",)),
    Way('sh "$(dirname tools/caller)"/x'),
    Way("for f in tools/*; do sh $f; done"),
    Way("sh tools/?"),
    Way("'tools/with blank'", path="tools/with blank"),
    Way("tools/with\\ blank", path="tools/with blank"),
    Way("PATH=bin:$PATH cl", path="bin/cl"),
    Way("PATH=$PWD/bin:$PATH; cl", path="bin/cl"),
    Way('export PATH="$(git rev-parse --show-toplevel)/bin:$PATH" && cl', path="bin/cl"),
    Way("$(git rev-parse --show-toplevel)/bin/tac", path="bin/tac"),
    Way("${TOP:-$(pwd)}/bin/tac", path="bin/tac"),
    Way("npx cl", path="node_modules/.bin/cl"),
    Way("node_modules/.bin/cl", path="node_modules/.bin/cl"),
    Way("sh tools/caller", path="tools/x"),
    Way("tools/caller", path="tools/lib.sh"),
    Way("tools/caller", path="lib/deep.sh"),
    Way("python3 tools/run.py", path="tools/run.py", plant="python"),
    Way("python3 tools/run.py", path="tools/helper.py", plant="python"),
    Way("python3 -m nbs", path="nbs/__main__.py", plant="python"),
    Way("python3 -m nbs", path="nbs/other.py", plant="python"),
    Way("python3 -Im nbs.inner || python3 -m nbs.inner", path="nbs/inner.py", plant="python"),
    Way("python3 tools", path="tools/__main__.py", plant="python"),
    Way("PYTHONPATH=lib python3 -m deep_module", path="lib/deep_module.py", plant="python"),
    Way("sh ./x<", path="x", key="diff.x.textconv", git=DIFF),
    Way("sh ./x <", path="x", key="diff.x.textconv", git=DIFF),
    Way("./x;:", path="x", key="diff.external", git=DIFF),
    Way("$(git rev-parse --show-toplevel)/x", path="x", key="core.fsmonitor"),
    Way("$(git rev-parse --show-toplevel)/x", path="x", key="core.editor", git=COMMIT),
    Way("./tools/x", key="sequence.editor", git=("rebase", "-i", "--root")),
    Way("!$(pwd)/x", path="x", key="credential.helper", git=("credential", "fill")),
    Way("!./tools/x", key="credential.helper", git=("credential", "fill")),
    Way("tools/x", key="gpg.program", git=("commit", "-S", "--allow-empty", "-m", "x")),
    Way("tools/x", key="filter.x.process"),
    Way("cd tools; ./x", key="merge.x.driver", git=("merge", "other")),
)


class Place(Yard):
    """A yard with programs in which everything is harmless yet, and `*.txt` goes through the filter, the driver and the text conversion x."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.variables: dict[str, str] = {}
        here = self.project
        self.git("checkout", "-qb", "other")
        (here / "a.txt").write_text("other\n")
        self.git("commit", "-qam", "other")
        self.git("checkout", "-q", "main")
        (here / "a.txt").write_text("ours\n")
        self.git("commit", "-qam", "ours")
        for name in ("tools", "bin", "lib", "nbs", "node_modules/.bin"):
            (here / name).mkdir(parents=True)
        scripts = (
            *("bin/tac", "x", "tools/x", "tools/with blank", "bin/cl", "node_modules/.bin/cl"),
            "lib/deep.sh",
        )
        for name in scripts:
            self.program(name, PASS_ON)
        self.program("tools/lib.sh", 'sh "$(dirname "$0")/../lib/deep.sh"\n')
        self.program(
            "tools/caller", '#!/bin/sh\nhere=$(dirname "$0")\n. "$here/lib.sh"\nexec "$here"/x\n'
        )
        self.program("tools/run.py", "#!/usr/bin/env python3\nimport os, helper\n")
        self.program("tools/helper.py", "import sys; sys.stdout.write(sys.stdin.read())\n")
        self.program("nbs/__main__.py", "import nbs.other\n")
        for name in ("nbs/__init__", "nbs/other", "nbs/inner", "tools/__main__", "lib/deep_module"):
            self.program(f"{name}.py", "")
        (here / ".git/info/attributes").write_text("*.txt filter=x diff=x merge=x\n")

    def program(self, name: str, text: str) -> None:
        path = self.project / name
        path.write_text(text)
        path.chmod(0o755)

    def plant(self, name: str, kind: str = "") -> None:
        """Do what a command of the model does."""
        line = f"open({str(self.ran)!r}, 'w')\n" if kind == "python" else f": > '{self.ran}'\n"
        self.program(name, line if kind == "python" else f"#!/bin/sh\n{line}cat\n")

    def configure(self, key: str, value: str, where: str = "--local") -> None:
        if where == "--local":
            self.git("config", key, value)
        else:
            self.git("config", "--file", str(self.home / ".gitconfig"), key, value)

    def runs(self, *git: str, cwd: str = "") -> bool:
        """Say whether the user's next git runs what was planted."""
        self.ran.unlink(missing_ok=True)
        file = self.project / "a.txt"
        if git == DIFF:
            file.write_text("much else\n")
        else:  # of a file of another size git knows that it has changed, without the filter
            file.touch()
        path = os.pathsep.join((os.environ["PATH"], str(Path(sys.executable).parent)))
        environment = {"PATH": path, "HOME": str(self.home)} | self.variables
        subprocess.run(
            ["git", *git],
            cwd=self.project / cwd,
            env=environment,
            input=b"protocol=https\nhost=x\n\n",
            capture_output=True,
            check=False,
            timeout=60,
        )
        return self.ran.exists()

    def protection(self) -> GitProtection:
        return protection(survey(str(self.project), TrustedGit()))

    def holds(self, name: str) -> bool:
        plan = self.protection()
        path = self.project / name
        above = {str(path), *map(str, path.parents)}
        return not above.isdisjoint(plan.read_only)

    def start_guard(self, *, restores: bool = False):
        guard = super().start_guard(restores=restores)
        self.warnings = [event.path for event in guard.warnings()]
        return guard


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(tmp_path)
    monkeypatch.setenv("HOME", str(place.home))
    yield place
    if place.guard:
        place.guard.close()


@prove
@pytest.mark.parametrize("way", WAYS, ids=lambda way: f"{way.key}={way.value}:{way.path}")
def test_git_runs_what_was_changed(place, way):
    if way.value.startswith("npx"):
        pytest.skip("it asks the network")
    place.configure(way.key, way.value)
    if way.git[0] != "merge":  # which is done then
        assert not place.runs(*way.git)
    place.plant(way.path, way.plant)
    assert place.runs(*way.git)


def test_no_command_can_change_what_git_runs(place):
    assert not [way for way in WAYS if place.holds(way.path)]
    missed = []
    for way in WAYS:
        place.configure(way.key, way.value)
        if not place.holds(way.path):
            missed.append(way)
        place.git("config", "--unset", way.key)
    assert missed == []


@pytest.fixture
def environment(place: Place) -> Path:
    """The packages of a virtual environment in the project, of which one is the filter, as `nbstripout --install` writes it."""
    root = place.project / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True)
    [packages] = root.glob("lib/python*/site-packages")
    (packages / "nbstrip.py").write_text("import nbformat\n")
    (packages / "nbformat.py").write_text("import sys; sys.stdout.write(sys.stdin.read())\n")
    place.configure(FILTER, f'"{root}/bin/python" -m nbstrip')
    return packages


@pytest.mark.parametrize(
    "name", prove_rest(["nbstrip.py", "nbformat.py", "sitecustomize.py", "new.pth"])
)
def test_packages_of_an_environment_that_git_runs_are_held(place, environment, name):
    if name == "sitecustomize.py" and find_spec("sitecustomize"):
        pytest.skip("this Python has one of its own, which comes first")
    assert not place.runs(*STATUS)
    plant = f"import os; open({str(place.ran)!r}, 'w')\n"
    (environment / name).write_text(plant)
    assert place.runs(*STATUS)
    plan = place.protection()
    assert str(environment) in plan.read_only
    assert str(environment) in plan.trees
    assert {str(place.project / ".venv"), str(environment.parent)} <= set(plan.pin)


def test_packages_are_warned_of_and_told_where_nothing_is_mounted(place, environment):
    guard = place.start_guard(restores=True)
    packages = str(environment.relative_to(place.project))
    assert packages in place.warnings
    assert guard.audit() == []
    (environment / "nbformat.py").write_text("import sys\n")
    assert kinds(guard.audit()) == [("noticed", f"{packages}/nbformat.py")]


def test_alias_forbids_only_what_it_runs(place):
    place.configure("alias.st", "!cat notes/today src/x.py && sh -c 'tee tools/out'; ./tools/y")
    guard = place.start_guard()
    for name in ("notes/today", "src/x.py", "tools/out"):
        (place.project / name).parent.mkdir(exist_ok=True)
        place.program(name, "")
    assert [*guard.handle_events(), *guard.audit()] == []


def test_alias_of_git_s_own_commands_forbids_only_what_it_runs(place):
    for number, alias in enumerate(
        ("log -- a.txt", "-c color.ui=always log a.txt", "add -u bin/cl")
    ):
        place.configure(f"alias.a{number}", alias)
    assert not place.holds("a.txt")
    assert not place.holds("bin/cl")


@pytest.mark.parametrize("name", prove_rest(["", "hooks", "hooks/post-checkout"]))
def test_template_of_new_repositories_is_held(place, name):
    hook = place.project / "template/hooks/post-checkout"
    hook.parent.mkdir(parents=True)
    place.program("template/hooks/post-checkout", "#!/bin/sh\n")
    place.configure("init.templateDir", f"{place.project}/template", "--global")
    place.plant("template/hooks/post-checkout")
    assert place.runs("clone", "-q", ".", str(place.project.parent / "clone"))
    assert place.holds(f"template/{name}".rstrip("/"))


@pytest.mark.parametrize(
    "variables",
    prove_rest(
        [
            {
                "GIT_CONFIG_COUNT": "1",
                "GIT_CONFIG_KEY_0": "core.fsmonitor",
                "GIT_CONFIG_VALUE_0": "sh tools/x",
            },
            {"GIT_CONFIG_PARAMETERS": "'core.fsmonitor'='tools/x'"},
            {"GIT_CONFIG_GLOBAL": "HOME/elsewhere"},
            {"GIT_EXTERNAL_DIFF": "./tools/x"},
        ]
    ),
    ids=lambda variables: next(iter(variables)),
)
def test_settings_in_the_user_s_environment_are_read(place, monkeypatch, variables):
    elsewhere = place.home / "elsewhere"
    elsewhere.write_text("[core]\n\tfsmonitor = tools/x\n")
    for name, value in variables.items():
        place.variables[name] = value.replace("HOME", str(place.home))
        monkeypatch.setenv(name, place.variables[name])
    assert place.holds("tools/x")
    place.plant("tools/x")
    assert place.runs(*(DIFF if "GIT_EXTERNAL_DIFF" in variables else STATUS))


def test_package_of_node_that_git_runs_is_held(place):
    bin_file = place.project / "node_modules/@scope/clean/bin/main.js"
    bin_file.parent.mkdir(parents=True)
    bin_file.write_text("#!/usr/bin/env node\nrequire('../lib/x')\n")
    (place.project / "node_modules/.bin/clean").symlink_to("../@scope/clean/bin/main.js")
    place.configure(FILTER, "node_modules/.bin/clean")
    assert place.holds("node_modules/@scope/clean/lib/x.js")
    assert not place.holds("node_modules/other")


@pytest.mark.parametrize(
    "value",
    prove_rest(
        ["git-lfs clean -- %f", "less -R", "npm run lint", "make -s filter", "$TOOLS/y", "true"]
    ),
)
def test_files_that_a_developer_changes_are_not_held(place, value):
    for name in ("package.json", "Makefile", "README.md"):
        place.program(name, "all:\n")
    place.configure(FILTER, value)
    plan = place.protection()
    inside = [path for path in plan.read_only if "/.git/" not in path]
    assert inside == []


def test_what_cannot_be_held_is_warned_of_and_told_when_it_has_changed(place):
    place.program("Makefile", "filter:\n\t@cat\n")
    place.configure(FILTER, "make -s filter")
    assert not place.runs(*STATUS)
    guard = place.start_guard()
    assert place.warnings == ["Makefile"]
    assert guard.audit() == []
    place.program("Makefile", f"filter:\n\t@: > '{place.ran}'; cat\n")
    [event] = guard.audit()
    assert (event.kind, event.path) == ("noticed", "Makefile")
    assert FILTER in event.reason
    assert guard.audit() == []
    assert place.runs(*STATUS)


def test_line_that_asks_what_to_run_is_warned_of(place):
    place.configure(FILTER, "$(cat ../which)")
    place.start_guard()
    assert place.warnings == [".git/config"]


def test_line_that_is_held_is_not_warned_of(place):
    place.configure(FILTER, '"$(git rev-parse --show-toplevel)"/tools/x')
    place.configure("alias.st", "!make st")
    place.start_guard()
    assert place.warnings == []


@pytest.mark.parametrize(
    "value, name",
    prove_rest(
        [
            ("python3 tools/run.py", "tools/json.py"),
            ("python3 tools/run.py", "tools/random/__init__.py"),
            ("python3 -m nbs", "json.py"),
            ("PATH=bin:$PATH cl", "bin/cat"),
            (
                "python3 -c 'import sys; sys.path.append(\"lib\"); import deep' || cat",
                "lib/deep.py",
            ),
            ("perl -Ilib -MDeep -e1; cat", "lib/Deep.pm"),
            ("make -s -C tools", "tools/x.mk"),
        ]
    ),
)
def test_module_beside_what_git_runs_is_told(place, value, name):
    place.configure(FILTER, value)
    guard = place.start_guard()
    (place.project / name).parent.mkdir(exist_ok=True)
    place.program(name, "")
    assert kinds(guard.audit()) == [("noticed", name)]


@pytest.mark.parametrize("where", ["--local", "--global"])
@pytest.mark.parametrize("name", ["tools/new", "new/tool"])
@pytest.mark.parametrize("value", prove_rest(["{}", "sh {}", "./{} %f"]))
def test_program_that_is_not_there_yet_must_not_appear(place, where, name, value):
    place.configure("core.fsmonitor", value.format(name), where)
    guard = place.start_guard()
    (place.project / "new").mkdir()
    (place.project / "new/else").write_text("")
    place.plant(name)
    assert place.runs(*STATUS)
    events = [*guard.handle_events(), *guard.audit()]
    assert kinds(events) == [("quarantined", name)]
    assert not place.runs(*STATUS)
    assert (place.project / "new/else").exists()


@pytest.mark.parametrize(
    "value, name",
    prove_rest(
        [
            ("PATH=made:$PATH cl", "made/cl"),
            ("PATH=made/bin:$PATH; cl", "made/bin/cl"),
            ('PATH="$(git rev-parse --show-toplevel)/made:$PATH" cl', "made/cl"),
            ("cd made && ./cl", "made/cl"),
            ("cd made; sh -e cl", "made/cl"),
            ("cd tools && ./new", "tools/new"),
        ]
    ),
)
def test_program_in_a_directory_that_is_not_there_yet_must_not_appear(place, value, name):
    place.configure("core.fsmonitor", value)
    guard = place.start_guard()
    (place.project / name).parent.mkdir(parents=True, exist_ok=True)
    place.plant(name)
    assert place.runs(*STATUS)
    guard.handle_events()
    guard.audit()
    assert not place.runs(*STATUS)
    assert (place.project / name).parent.exists()


def test_bare_name_after_an_interpreter_must_not_appear(place):
    place.configure("core.fsmonitor", "sh <mon")
    guard = place.start_guard()
    place.plant("mon")
    assert kinds([*guard.handle_events(), *guard.audit()]) == [("quarantined", "mon")]


@pytest.mark.parametrize(
    "key, value, name",
    prove_rest(
        [
            ("core.fsmonitor", "tools/mon", "tools/mon"),
            ("core.fsmonitor", "sh tools/mon", "tools/mon"),
            ("core.fsmonitor", "$(git rev-parse --show-toplevel)/mon", "mon"),
            ("core.hooksPath", "hooks", "hooks/post-index-change"),
        ]
    ),
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_users_own_setting_runs_nothing_of_a_nested_repository(place, key, value, name, when):
    nested = place.project / "nested"

    def clone() -> None:
        place.git("clone", "-q", ".", "nested")

    place.configure(key, value, "--global")
    if when == "before":
        clone()
    guard = place.start_guard()
    if when == "after":
        clone()
    (nested / name).parent.mkdir(exist_ok=True)
    place.plant(f"nested/{name}")
    (nested / "a.txt").touch()
    assert place.runs("status", cwd="nested")
    events = [*guard.handle_events(), *guard.audit()]
    assert [event.kind for event in events] == ["quarantined"]
    assert not place.runs("status", cwd="nested")


def test_users_own_setting_leaves_a_nested_repository_alone_that_has_nothing_of_it(place):
    place.configure("core.fsmonitor", "tools/mon", "--global")
    place.configure("core.hooksPath", "hooks", "--global")
    guard = place.start_guard()
    place.git("clone", "-q", ".", "nested")
    assert guard.audit() == []


@pytest.mark.parametrize(
    "line, is_unclear",
    [
        ("p=too; ${p}ls/x", True),
        ("n=ls/x; ./too$n", True),
        ("find . -name x -exec sh {} \\;", True),
        ("PATH=$PATH: xq", True),
        ("PATH=:/usr/bin xq", True),
        ('"$GIT_DIR"/../tools/x "$1"', False),
        ("PATH=tools:$PATH x", False),
        ("find . -name x -print", False),
    ],
)
def test_a_line_that_does_not_show_what_it_runs_is_unclear(tmp_path, line, is_unclear):
    assert found_in_line(line, str(tmp_path)).is_unclear is is_unclear
