"""The project's own programs, and how its tests are run, found by the names and settings of common tools."""

import os
import re
from collections.abc import Callable

from sanderling.paths import is_within
from sanderling.project.trust.reading import TrustReader
from sanderling.project.trust.trust import Trust

PLACES = (".venv/bin", "venv/bin", "node_modules/.bin")
"""Directories in the project's root in which package managers install its programs."""
MAX_RUNNERS = 3


def own_programs(trust: Trust) -> tuple[str, ...]:
    """
    Return the existing directories of the project's programs, if the user trusts the project; they come first on commands' PATH.

    Anyone who writes the project decides what `python` or `tsc` is there. So without trust PATH stays the user's. A colon in the project's
    path would put two other directories on PATH.
    """
    if not trust.is_given or os.pathsep in trust.project:
        return ()
    root = os.path.realpath(trust.project)
    places = (f"{trust.project}/{place}" for place in PLACES)
    return tuple(path for path in places if _is_directory_in(root, path))


def _is_directory_in(root: str, path: str) -> bool:
    real = os.path.realpath(path)
    return is_within(real, root) and os.path.isdir(real)  # noqa: PTH112 - Path's raises without permission to look


class TestRunners:
    """How the tests of `project` are run. The words are ours, so an untrusted project cannot instruct the model with them."""

    __test__ = False  # not a test of pytest's

    def __init__(self, project: str) -> None:
        self._project = project
        self._files = TrustReader(os.path.realpath(project))

    def found(self) -> str:
        """Return the commands; "" if none is known. Costs a `stat` for each name, unless a file has changed."""
        commands = (command for find in _FINDERS if (command := find(self)))
        return ", ".join([*commands][:MAX_RUNNERS])

    def has(self, *names: str) -> bool:
        paths = (f"{self._project}/{name}" for name in names)
        return any(os.path.exists(path) for path in paths)  # noqa: PTH110 - as above

    def says(self, name: str, pattern: str) -> bool:
        content = self._files.read(f"{self._project}/{name}")
        return content is not None and re.search(pattern, content.text, re.MULTILINE) is not None


def _python(project: TestRunners) -> str:
    at = next((place for place in PLACES[:2] if project.has(f"{place}/python")), "")
    python = f"{at}/python" if at else "python"
    is_pytest = (
        project.has("pytest.ini", "conftest.py", "tests/conftest.py")
        or project.says("pyproject.toml", r"^\[tool\.pytest\b|^\[tool\.pytest\.|[\"']pytest\b")
        or project.says("setup.cfg", r"^\[tool:pytest\]")
        or project.says("tox.ini", r"^\[pytest\]|\bpytest\b")
        or (at and project.has(f"{at}/pytest"))
    )
    if is_pytest:
        return f"{python} -m pytest"
    is_python = project.has("pyproject.toml", "setup.py", "setup.cfg")
    if is_python and project.has("tests", "test"):
        return f"{python} -m unittest"
    return f"{python} (no tests found)" if at and is_python else ""


def _node(project: TestRunners) -> str:
    if not project.says("package.json", r"\"scripts\"\s*:\s*\{[^}]*\"test\"\s*:"):
        return ""
    managers = {
        "pnpm-lock.yaml": "pnpm",
        "yarn.lock": "yarn",
        "bun.lock": "bun run",
        "bun.lockb": "bun run",
    }
    manager = next((name for lock, name in managers.items() if project.has(lock)), "npm")
    return f"{manager} test"


def _make(project: TestRunners) -> str:
    return "make test" if project.says("Makefile", r"^test\s*:(?!=)") else ""


def _by_file(command: str, *names: str) -> Callable[[TestRunners], str]:
    return lambda project: command if project.has(*names) else ""


_FINDERS: tuple[Callable[[TestRunners], str], ...] = (
    _make,
    _python,
    _node,
    _by_file("cargo test", "Cargo.toml"),
    _by_file("go test ./...", "go.mod"),
    _by_file("bundle exec rspec", "spec/spec_helper.rb", ".rspec"),
    _by_file("mix test", "mix.exs"),
    _by_file("./mvnw test", "mvnw"),
    _by_file("./gradlew test", "gradlew"),
    _by_file("deno test", "deno.json", "deno.jsonc"),
)
