"""
Python packages that extend Sanderling, found by their entry points in the groups `sanderling.tools` and `sanderling.providers`.

Only packages in Sanderling's own environment count, with their modules in it: neither the current directory nor PYTHONPATH adds any,
and no editable install, because an agent that can change a project could then change what runs outside the sandbox.
"""

import logging
import os
import site
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from sanderling.errors import ConfigError, SanderlingError
from sanderling.paths import is_within

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

API_VERSION = 1
"""The version of `sanderling.api`; a package may name the version that it was written for."""

Group = Literal["sanderling.tools", "sanderling.providers"]
GROUPS: tuple[Group, ...] = ("sanderling.tools", "sanderling.providers")

log = logging.getLogger(__name__)


class Extension(NamedTuple):
    """What a package adds to a group under a name. `package` is its name and version."""

    group: Group
    name: str
    package: str
    point: "EntryPoint"

    def load(self) -> object:
        """
        Import the package's module and return the object that the entry point names.

        Raises:
            ConfigError: with the package's name and version.
        """
        try:
            _check_place(self.point.module)
            module = import_module(self.point.module)
            version = getattr(module, "API_VERSION", API_VERSION)
            if version == API_VERSION:
                return self.point.load()
        except (Exception, SystemExit) as error:
            log.info("%s cannot be loaded", self, exc_info=True)
            raise ConfigError(f"{self} cannot be loaded: {in_words(error)}") from error
        raise ConfigError(
            f"{self} was written for version {version} of Sanderling's interface, which has version {API_VERSION} here"
        )

    def __str__(self) -> str:
        kind = "tool" if self.group == "sanderling.tools" else "provider"
        return f"the {kind} '{self.name}' of the package {self.package}"


def in_words(error: BaseException) -> str:
    """Return an error of foreign code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")


@contextmanager
def translated(whose: str, made: Callable[[str], SanderlingError]) -> Generator[None]:
    """Raise what `made` makes of a sentence instead of an error of a package's code; `whose` is its `Extension`, as a string."""
    try:
        yield
    except SanderlingError:
        raise
    except Exception as error:
        log.info("%s failed", whose, exc_info=True)
        raise made(f"{whose[0].upper()}{whose[1:]} failed: {in_words(error)}.") from error


@cache
def extensions(group: Group) -> tuple[Extension, ...]:
    """Return what the installed packages add to the group, by package; the first time, this reads many small files."""
    found = (
        Extension(group, point.name, f"{package.name} {package.version}", point)
        for package in _packages()
        for point in package.entry_points.select(group=group)
    )
    return tuple(sorted(found, key=lambda each: (each.package, each.name)))


def extension(group: Group, name: str) -> Extension | None:
    """Return what adds `name` to the group: of several packages, the first."""
    return next((each for each in extensions(group) if each.name == name), None)


def _packages() -> Iterator["Distribution"]:
    """Yield the packages of our environment with entry points for us."""
    for directory in _environment():
        for name in _names_in(directory):
            if not name.endswith(".dist-info"):
                continue
            metadata = f"{directory}/{name}"
            try:
                with open(f"{metadata}/entry_points.txt", "rb") as file:
                    is_ours = b"[sanderling." in file.read()
            except OSError:
                continue
            if is_ours and (package := _package_at(Path(metadata))):
                yield package


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _package_at(path: Path) -> "Distribution | None":
    from importlib.metadata import Distribution  # slow to import, and seldom needed

    try:
        package = Distribution.at(path)
        is_readable = package.name and package.version and package.entry_points
    except Exception:
        log.info("the metadata in %s cannot be read", path, exc_info=True)
        return None
    return package if is_readable else None


def _environment() -> tuple[str, ...]:
    """Return the directories where packages of our environment are installed."""
    own = site.getusersitepackages() if site.ENABLE_USER_SITE else ""
    return tuple(filter(None, (*site.getsitepackages(), own)))


def _check_place(module: str) -> None:
    """
    Check that the module is imported from our environment.

    Raises:
        ImportError: it is somewhere else, or nowhere.
    """
    top = module.partition(".")[0]
    loaded = sys.modules.get(top)
    spec = loaded.__spec__ if loaded else find_spec(top)
    if spec is None:
        raise ImportError(f"there is no module {top}")
    places = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or ())]
    own = [os.path.realpath(each) for each in _environment()]
    for place in map(os.path.realpath, places):
        if not any(is_within(place, directory) for directory in own):
            raise ImportError(f"{place} is not in Sanderling's own environment; install it there")
