"""The installed command: what Python loads is its environment's, whatever PYTHONPATH and the current directory hold."""

import os
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from importlib import import_module
from pathlib import Path

import pytest
from tests.conftest import ROOT, prove_rest

from sanderling.cli import COMMANDS as TABLE
from sanderling.cli.print_mode.arguments import print_parser

COMMANDS = (["--version"], ["sessions"], ["config", "check"], ["-p", "--model", "demo", "ping"])
PATHS = {"a dot": ".", "an empty entry": ":/nowhere", "the project": "{project}", "nothing": ""}


class Trap:
    """A project whose modules have the names of Python's, and leave a mark when they are loaded."""

    def __init__(self, root: Path) -> None:
        self.project, self.home, self.ran = root / "project", root / "home", root / "ran"
        self.project.mkdir()
        self.home.mkdir()
        for name in ("sitecustomize", "usercustomize", "re", "msgspec", "sanderling"):
            (self.project / f"{name}.py").write_text(
                f"open({str(self.ran)!r}, 'a').write('{name} ')\n"
            )

    def run(self, *command: str | Path, python_path: str = "") -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        if python_path:
            environment["PYTHONPATH"] = python_path.format(project=self.project)
        return subprocess.run(
            command,
            cwd=self.project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def loaded(self) -> str:
        return self.ran.read_text() if self.ran.exists() else ""


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def script() -> Path:
    return Path(sys.executable).with_name("sanderling")


def test_python_loads_what_pythonpath_names(trap: Trap):
    trap.run(sys.executable, "-c", "import re", python_path=".")
    assert trap.loaded().split()[0] == "sitecustomize"
    assert "re" in trap.loaded().split()


@pytest.mark.parametrize("words", prove_rest(COMMANDS, is_one=True), ids=" ".join)
def test_the_command_loads_nothing_of_the_project(trap: Trap, script: Path, words: list[str]):
    for path in PATHS.values():
        done = trap.run(script, *words, python_path=path)
        assert "Traceback" not in done.stderr
    assert trap.loaded() == ""


def test_the_command_is_found_through_links(trap: Trap, script: Path, tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/one").symlink_to(script)
    (tmp_path / "two").symlink_to("bin/one")
    done = trap.run(tmp_path / "two", "--version", python_path=".")
    assert done.stdout.startswith("sanderling ")
    assert trap.loaded() == ""


def test_the_command_passes_on_arguments_streams_and_its_end(trap: Trap, script: Path):
    done = trap.run(script, "a  b*")
    assert done.returncode == 2
    assert "there is no command 'a  b*'" in done.stderr
    assert trap.run("sh", "-c", f"exec {shlex.quote(str(script))} --version <&-").stdout.startswith(
        "sanderling "
    )


def test_where_no_python_lies_beside_it_the_command_takes_that_of_path(trap: Trap, tmp_path: Path):
    bin_dir = tmp_path / "user/bin"
    bin_dir.mkdir(parents=True)
    shutil.copy(ROOT / "scripts/sanderling.sh", bin_dir / "sanderling")
    path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
    done = trap.run("env", path, bin_dir / "sanderling", "--version", python_path=".")
    assert done.stdout.startswith("sanderling ")
    assert trap.loaded() == ""


@pytest.mark.parametrize("path", prove_rest(PATHS.values(), is_one=True), ids=PATHS)
def test_python_m_loads_nothing_of_the_project_but_what_python_itself_has_run(trap: Trap, path):
    (trap.project / "sanderling.py").unlink()
    done = trap.run(sys.executable, "-m", "sanderling", "--version", python_path=path)
    assert done.stdout.startswith("sanderling ")
    assert not {"re", "msgspec"} & set(trap.loaded().split())


# --- the commands -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(name for name, (module, _) in TABLE.items() if module))
def test_each_command_of_the_table_has_a_help(name, capsys):
    parser = ArgumentParser(prog="sanderling")
    import_module(f"sanderling.cli.{TABLE[name][0]}").add(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args([name, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: sanderling {name} ")


def test_the_help_lists_each_command_with_what_it_does():
    text = print_parser({name: what for name, (_, what) in TABLE.items()}).format_help()
    for name, (_, what) in TABLE.items():
        assert f"  {name:<10}{what}\n" in text
