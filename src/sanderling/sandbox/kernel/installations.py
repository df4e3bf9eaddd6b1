"""
Where a program of the user's is installed: from its path through links and first lines to the directories it needs.

Only known layouts count as an installation: a prefix of Python, Node, Go, Ruby, Rust or Java, a virtual environment, an npm directory, or
the root of a version manager that its variable names. Of each only the named parts are returned, never the prefix itself, so that settings
with tokens next to the programs stay hidden.
"""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from glob import escape, iglob
from typing import NamedTuple

MAX_LINE = 256
MAX_PROGRAMS = 5
MAX_CHILDREN = 200
BINARIES = ("bin", "sbin", "libexec", "shims")

_PARTS = "bin sbin lib lib32 lib64 libexec include share"
PARTS = _PARTS.split()
"""The parts that a prefix usually has."""
_MARKERS = {
    "lib/python3*/os.py": _PARTS,
    "pyvenv.cfg": f"{_PARTS} pyvenv.cfg",
    "conda-meta": f"{_PARTS} ssl conda-meta",
    "lib/node_modules/npm": _PARTS,
    "include/node": _PARTS,
    "lib/ruby": _PARTS,
    "lib/rustlib": _PARTS,
    "pkg/tool": "VERSION go.env api bin lib misc pkg src",
    "lib/modules": f"{_PARTS} conf legal jmods release",
}
"""The parts of a prefix by what only such a prefix has."""

_VERSIONS = "bin completions libexec plugins pyenv.d rbenv.d shims version versions"


class Root(NamedTuple):
    """
    The root of a version manager, as its variable names it.

    `markers`: it has one of these. `parts`: shown. `is_filled`: the parts' entries are shown one by one, and programs inside may add others.
    """

    markers: str
    parts: str
    is_filled: bool = False


ROOTS = {
    "PYENV_ROOT": Root("versions", _VERSIONS),
    "RBENV_ROOT": Root("versions", _VERSIONS),
    "NODENV_ROOT": Root("versions", _VERSIONS),
    "GOENV_ROOT": Root("versions", _VERSIONS),
    "NVM_DIR": Root("nvm.sh versions/node", "alias bash_completion nvm-exec nvm.sh versions"),
    "FNM_DIR": Root("node-versions", "aliases node-versions"),
    "ASDF_DIR": Root("asdf.sh installs shims", "asdf.sh bin installs lib libexec plugins shims"),
    "ASDF_DATA_DIR": Root("installs shims", "installs plugins shims"),
    "MISE_DATA_DIR": Root("installs shims", "installs plugins shims"),
    "VOLTA_HOME": Root("tools/image", "bin tools"),
    "CARGO_HOME": Root("bin/cargo bin/rustup", "bin"),
    "RUSTUP_HOME": Root("toolchains", "settings.toml toolchains update-hashes"),
    "GOROOT": Root("pkg/tool src/runtime", "VERSION go.env api bin lib misc pkg src"),
    "BUN_INSTALL": Root("bin/bun", "bin install/global"),
    "DENO_INSTALL": Root("bin/deno", "bin"),
    "SDKMAN_DIR": Root("candidates", "candidates"),
    "PIPX_HOME": Root("venvs", "venvs", is_filled=True),
    "UV_TOOL_DIR": Root("*/pyvenv.cfg", "", is_filled=True),
    "UV_PYTHON_INSTALL_DIR": Root("*/bin/python3*", "", is_filled=True),
}
"""What a version manager's root contains, by the variable that moves it."""

_OF_PYTHON = (
    "pip.conf .condarc conda-meta/history",
    " */ envs/*/ */envs/*/ versions/*/ versions/*/envs/*/ python/*/ installs/python/*/",
)
"""Settings in a Python's prefix, and conda's log of its command lines; then where prefixes are."""
_SETTINGS_NAMES = (
    "history .git/config */.git/config plugins/*/.git/config etc/npmrc */etc/npmrc node/*/etc/npmrc versions/*/etc/npmrc"
    " versions/node/*/etc/npmrc nodejs/*/etc/npmrc installs/node/*/etc/npmrc installs/nodejs/*/etc/npmrc"
    " image/node/*/etc/npmrc tools/image/node/*/etc/npmrc */installation/etc/npmrc"
    " node-versions/*/installation/etc/npmrc */uv-receipt.toml uv-receipt.toml"
    " */pipx_metadata.json pipx_metadata.json node_modules/npm/npmrc versions/node/*/lib/node_modules/npm/npmrc"
    " maven/*/conf/settings.xml installs/maven/*/conf/settings.xml maven/*/*/conf/settings.xml"
)
_SETTINGS = (
    *(f"{at}{name}" for name in _OF_PYTHON[0].split() for at in _OF_PYTHON[1].split(" ")),
    *_SETTINGS_NAMES.split(),
)
"""Settings of package managers, relative to a directory that is shown: they may name an index with a password, or hold a token."""
_TOKEN = rb"(?i)://[^/\s]*@|/t/[\w-]{6,}|_auth|token|passw"
MAX_SETTINGS = 1 << 16


def parts_of_roots(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield what is shown of the version managers' roots that variables name. A part that links out of its root is left out."""
    for name, root in ROOTS.items():
        place = os.path.normpath(environment.get(name) or "/")
        if place == "/" or not os.path.isabs(place) or not _has_any(place, root.markers.split()):
            continue
        parts = [os.path.normpath(f"{place}/{part}") for part in root.parts.split() or (".",)]
        if root.is_filled:
            yield from (each for part in parts for each in entries(part))
        else:
            yield from (part for part in parts if _stays_in(place, part))


def entries(directory: str) -> list[str]:
    """Return the directories in `directory`, and links among them, without hidden ones."""
    with suppress(OSError), os.scandir(directory) as found:
        paths = sorted(each.path for each in found if each.name[0] != "." and each.is_dir())
        return [path for path in paths[:MAX_CHILDREN] if _stays_in(directory, path)]
    return []


def _stays_in(directory: str, path: str) -> bool:
    return os.path.exists(path) and os.path.realpath(path).startswith(
        f"{os.path.realpath(directory)}/"
    )


def installation_parts(path: str) -> Iterator[str]:
    """Yield what is installed together with the program at `path`, a real path: nothing if its layout is not known."""
    parts = path.split("/")
    if "node_modules" in parts:
        modules = "/".join(parts[: parts.index("node_modules") + 1])
        yield modules
        above = os.path.dirname(modules)
        if os.path.basename(above) != "lib":
            return
        yield from prefix_parts(os.path.dirname(above))
        return
    directory = os.path.dirname(path)
    if os.path.basename(directory) in BINARIES:
        yield from prefix_parts(os.path.dirname(directory))


def prefix_parts(prefix: str) -> Iterator[str]:
    """Yield the parts of `prefix` that do not link out of it, if it has a known layout."""
    for marker, names in _MARKERS.items():
        if not _has_any(prefix, [marker]):
            continue
        parts = (f"{prefix}/{name}" for name in names.split())
        yield from (part for part in parts if _stays_in(prefix, part))


def chain(program: str, path: str | None = None) -> Iterator[str]:
    """Yield the program, the interpreter in its first line, and so on."""
    for _ in range(MAX_PROGRAMS):
        if not program:
            return
        yield program
        if base := _base_of_venv(program):
            yield base
        program = interpreter(os.path.realpath(program), path)


def interpreter(program: str, path: str | None = None) -> str:
    """Return the interpreter that the first line of `program` names, also behind `env` and behind the shell that pip writes for long paths."""
    try:
        descriptor = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return ""
    with suppress(OSError), open(descriptor, "rb") as file:
        head = file.read(2 * MAX_LINE).decode(errors="replace")
        if not head.startswith("#!"):
            return ""
        first, _, rest = head.partition("\n")
        if behind := re.match(r"'''exec' (\"[^\"]+\"|\S+)", rest):
            return behind[1].strip('"')
        words = [word for word in first[2:].split() if not word.startswith("-") and "=" not in word]
        is_by_name = len(words) > 1 and words[0].endswith("/env")
        return (shutil.which(words[1], path=path) or "") if is_by_name else "".join(words[:1])
    return ""


def _base_of_venv(python: str) -> str:
    """Return the interpreter that a virtual environment's `python` is made of."""
    settings = os.path.join(os.path.dirname(os.path.dirname(python)), "pyvenv.cfg")
    with suppress(OSError), open(settings, encoding="utf-8", errors="replace") as file:
        for line in file:
            key, _, value = line.partition("=")
            if key.strip() == "home":
                return os.path.join(value.strip(), os.path.basename(python))
    return ""


def files_with_tokens(shown: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return the settings of package managers in directories that are shown, if they contain a token or a password.

    Of a file that links lead to, such as `node/20` to `node/20.1.0`, the path without links below the shown directory is returned: a mount
    follows no link.
    """
    found = {
        os.path.realpath(path): None
        for directory in shown
        for pattern in _SETTINGS
        for path in iglob(f"{escape(directory)}/{pattern}", include_hidden=True)
        if os.path.isfile(path)
    }
    places = {directory: os.path.realpath(directory) for directory in shown}
    paths = (
        directory + path.removeprefix(real)
        for path in found
        if _has_token(path)
        for directory, real in places.items()
        if path.startswith(f"{real}/")
    )
    return tuple(dict.fromkeys(paths))


def _has_token(path: str) -> bool:
    """A file that cannot be examined counts as having one."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_SETTINGS)
    except OSError:
        return True
    if path.endswith(".xml"):  # Maven's examples have passwords
        content = re.sub(rb"(?s)<!--.*?-->", b"", content)
    return len(content) == MAX_SETTINGS or re.search(_TOKEN, content) is not None


def _has_any(directory: str, patterns: list[str]) -> bool:
    return any(
        next(iglob(f"{escape(directory)}/{pattern}"), "")
        if "*" in pattern
        else os.path.exists(f"{directory}/{pattern}")
        for pattern in patterns
    )
