"""
Finds the project files that command lines in git's settings and hooks run.

Git passes such a line to a shell at the top of the worktree, so it can name a file in countless ways: `$(git rev-parse
--show-toplevel)/tools/x`, `cd tools && ./x`, `sh <x`, `PATH=bin:$PATH x`. An earlier version took whole words that were file names, and
missed 13 of 19 common spellings. Parsing would fail the same way: a parser that misreads one spelling lets a file through. So the line is
broken at every character that can surround a name, and a piece counts as soon as it names a file, relative to any directory that another
piece names. This finds too much rather than too little, and a file that is protected needlessly can still be read.

Some programs run files that cannot be listed: `make` runs its Makefile, and Python imports modules next to its script. These are not
protected, because developers edit them. Instead the user is warned when the sandbox opens, and when a command has changed them.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from glob import escape, iglob
from itertools import islice
from typing import NamedTuple

from sanderling.paths import is_within
from sanderling.sandbox.guard.repositories import MAX_HOOK_BYTES, read_file

MAX_PIECES, MAX_PIECE_CHARS = 400, 4096
MAX_MATCHES = 100
"""How many files a pattern like `tools/*.sh` may match."""
MAX_SCRIPTS = 200
PROGRAM_DIRECTORIES = (".venv/bin", "venv/bin", "env/bin", "node_modules/.bin", "vendor/bin")
"""Where a bare program name may be found: on PATH in an active environment, or by `npx` and similar programs."""

ENTRY_POINTS = ("__main__.py", "index.js", "index.mjs", "index.cjs")
"""The files that `python DIRECTORY` or `node DIRECTORY` runs."""

RUNNERS = {
    "make gmake": "GNUmakefile makefile Makefile",
    "just": "justfile Justfile .justfile",
    "task": "Taskfile.yml Taskfile.yaml",
    "rake": "Rakefile rakefile",
    "npm npx pnpm pnpx yarn bun bunx": "package.json",
    "deno": "deno.json deno.jsonc",
    "cargo": "Cargo.toml build.rs src",
    "go": "go.mod",
    "uv poetry pdm hatch pipenv rye tox nox": "pyproject.toml Pipfile tox.ini noxfile.py",
    "invoke inv": "tasks.py tasks",
    "bundle": "Gemfile",
    "composer": "composer.json",
    "mvn": "pom.xml",
    "gradle": "build.gradle build.gradle.kts",
    "ant": "build.xml",
    "mix": "mix.exs",
    "scons": "SConstruct",
    "ninja": "build.ninja",
    "cmake": "CMakeLists.txt",
    "nix": "flake.nix",
}
"""Programs that execute certain files of the directory."""

_FILES_OF_RUNNERS = {
    name: files.split() for names, files in RUNNERS.items() for name in names.split()
}
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?[-=+?]([^}]*))?[^}]*\}|(\w+))")
_SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
_CLEAR_SUBSTITUTION = re.compile(
    r"\s*(?:git\s+rev-parse\s+--[\w=-]+|pwd(?:\s+-[LP])?"
    r"|(?:dirname|basename|readlink|realpath|command\s+-v|which|mktemp|tty|tput|uname|date|nproc)\b.*)\s*",
    re.DOTALL,
)
# A name that is put together from parts, a program that `find` runs, or an empty entry of PATH, which is the current directory.
_UNRESOLVED = re.compile(
    r"\$\{\w+\}[\w.@+-]|[\w.@+-]\$\{?[A-Za-z_]|\s-(?:exec|execdir|ok)\s|\bPATH=(?::|[^\s;]*:(?=[:\s;\"']))"
)
_AROUND_NAMES = re.compile(r"[\s;&|<>(){}`,:=\"'\\$!]+")
_QUOTED = re.compile(r"\"([^\"]+)\"|'([^']+)'")
_WILD = re.compile(r"[*?\[]")
_RELATIVE = re.compile(r"/*[\w.@+-]+(?:/+[\w.@+-]+)*")
_INTERPRETER = (
    r"(?:sh|bash|dash|zsh|ksh|source|\.|node|deno|bun|ruby|perl|php|lua|python[\d.]*|pypy[\d.]*|py)"
)
_STEP = re.compile(r"(?:\bcd\s+|\bPATH=)[\"']?(?:\./)?([\w.@+-]+(?:/[\w.@+-]+)*)|/([\w.@+-]+):")
"""A directory that the line changes to, or puts on PATH."""
_INTERPRETED = re.compile(
    rf"(?:^|[\s;&|(/\"']){_INTERPRETER}(?:\s+-[\w-]+)*(?:\s*<\s*|\s+)[\"']?([\w.@+-]+)(?![\w/.@+-])"
)
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*|py")
_MODULE = re.compile(r"(?<!\S)-[A-Za-z]*m\s*([A-Za-z_][\w.]*)")
# Scripts are long, so a word in a script counts only if it is a path or follows an interpreter. Otherwise every word that is a file name
# would be protected, `package.json` for instance.
_PATH = re.compile(r"[\w.@+-]*(?:/[\w.@+-]+)+")
_DIRECTORY = re.compile(r"(?:\bcd\s+|=)[\"']?([\w.@+-]+(?:/[\w.@+-]+)*)")
_REQUIRED = re.compile(r"""(?:require_relative[\s(]*["']|["'](?=\.{1,2}/))([^"'\n]+)["']""")
_REQUIRED_ENDINGS = ("", ".js", ".mjs", ".cjs", ".ts", ".json", ".rb", "/index.js")
_IMPORTED = re.compile(
    r"^[ \t]*(?:from|import)[ \t]+\.*([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*)", re.MULTILINE
)


class ExecutedPaths(NamedTuple):
    """
    The parts of a project that a line runs.

    Attributes:
        files: single files.
        trees: directories that are loaded as a whole, such as the packages of an environment.
        absent: paths that would be run but do not exist yet.
        ruling: files that decide what a program does, such as a Makefile.
        nearby: directories, or `DIRECTORY/*.py`, from which it may load more.
        is_unclear: the line does not show what it runs.
    """

    files: set[str]
    trees: set[str]
    absent: set[str]
    ruling: set[str]
    nearby: set[str]
    is_unclear: bool


def found_in_line(line: str, worktree: str) -> ExecutedPaths:
    """Return what a shell at the top of `worktree` would run for this line."""
    asked = (a or b for a, b in _SUBSTITUTION.findall(line))
    is_unclear = not all(map(_CLEAR_SUBSTITUTION.fullmatch, asked)) or bool(
        _UNRESOLVED.search(line)
    )
    found = ExecutedPaths(set(), set(), set(), set(), set(), is_unclear)
    pieces = list(islice(dict.fromkeys(_pieces(line, worktree)), MAX_PIECES))
    named = {path for piece in pieces for path in _candidates(piece, [worktree])} - {worktree}
    if "dirname" in line:
        named.update(os.path.dirname(path) for path in tuple(named))
    directories = sorted(
        path for path in named - {worktree} if is_within(path, worktree) and os.path.isdir(path)
    )
    places = [worktree, *directories]
    for piece in pieces:
        files = [path for path in _candidates(piece, places) if os.path.isfile(path)]
        found.files.update(files or _programs(piece, worktree))
        found.absent.update(_not_yet_there(piece, line, [] if files else places, worktree))
        for path in (f"{d}/{name}" for d in places for name in _FILES_OF_RUNNERS.get(piece, ())):
            (found.ruling if os.path.lexists(path) else found.nearby).add(path)
    entries = (f"{directory}/{name}" for directory in directories for name in ENTRY_POINTS)
    found.files.update(filter(os.path.isfile, entries))
    # A file in a directory on PATH, or in one passed to a program that searches it, runs by its bare name.
    if not _FILES_OF_RUNNERS.keys().isdisjoint(pieces) or re.search(
        rf"\bPATH=|(?:^|[\s;&|(/\"']){_INTERPRETER}\s", line
    ):
        found.nearby.update(directories)
    if any(_PYTHON.fullmatch(os.path.basename(piece)) for piece in pieces):
        for name in _MODULE.findall(line):
            _add_module(name, places, found)
    found.files.update(scripts_named_by(found.files, [worktree]))
    for path in found.files:
        _add_surroundings(path, worktree, found)
    found.absent.difference_update([path for path in found.absent if os.path.lexists(path)])
    return found


def scripts_named_by(scripts: Iterable[str], places: Sequence[str]) -> set[str]:
    """
    Return the files that scripts name, recursively: by absolute path, relative to the script, or relative to `places`.

    Only files below `places` count, and no links: a virtual environment's Python link is recreated along with the environment.
    """
    found: set[str] = set()
    waiting = [path for path in scripts if any(is_within(path, place) for place in places)]
    while waiting and len(found) < MAX_SCRIPTS:
        for path in _named_in_script(waiting.pop(), places):
            is_new = path not in found and any(is_within(path, place) for place in places)
            if is_new and os.path.isfile(path) and not os.path.islink(path):
                found.add(path)
                waiting.append(path)
    return found


def _named_in_script(path: str, places: Iterable[str]) -> set[str]:
    try:
        text = os.fsdecode(read_file(path, MAX_HOOK_BYTES))
    except OSError:
        return set()
    if "\0" in text:
        return set()  # a binary
    here = os.path.dirname(path)
    found: set[str] = set()
    text = _VARIABLE.sub("", text)  # "$here/lib.sh"
    around = [here, *places]
    steps = (f"{place}/{name}" for name in set(_DIRECTORY.findall(text)) for place in around)
    around += list(islice(filter(os.path.isdir, steps), MAX_MATCHES))
    for word in {*_PATH.findall(text), *_INTERPRETED.findall(text)}:
        found.update((word, *(f"{place}/{word.lstrip('/')}" for place in around)))
    for name in _REQUIRED.findall(text):
        found.update(f"{here}/{name}{ending}" for ending in _REQUIRED_ENDINGS)
    if _is_python(path, text):
        for names in _IMPORTED.findall(text):
            for name in names.replace(" ", "").replace("\t", "").split(","):
                found.update(_module_files(here, name))
    return {os.path.normpath(each) for each in found if each.startswith("/")}


def _pieces(line: str, worktree: str) -> Iterator[str]:
    """Yield every piece of the line that could be a name: shell words, words without quotes, and everything in between."""
    here = {"PWD": worktree, "GIT_WORK_TREE": worktree, "OLDPWD": worktree}

    def expanded(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        value = here.get(name) or os.environ.get(name, "")
        is_path = value and not _AROUND_NAMES.search(value)  # unlike PATH
        return value if is_path else f" {match[2] or ''} "

    line = line.replace("\\\n", "")
    filled = _VARIABLE.sub(expanded, line)
    # A substitution may produce this directory: $(git rev-parse --show-toplevel)/bin is not /bin.
    rooted = _SUBSTITUTION.sub(lambda _: worktree, _VARIABLE.sub(lambda _: worktree, line))
    for text in dict.fromkeys((line, filled, rooted, _VARIABLE.sub(" ", line))):
        waiting = [text]
        for part in waiting:  # including lines within the line: sh -c '…'
            with suppress(ValueError):  # an unclosed quote
                words = shlex.split(part)
                yield from words
                waiting += [word for word in words if word != part and re.search(r"\s", word)]
            yield from _AROUND_NAMES.split(part)
            yield from _AROUND_NAMES.split(re.sub(r"[\"'\\]", "", part))
        yield from (a or b for a, b in _QUOTED.findall(text))


def _candidates(piece: str, places: Sequence[str]) -> Iterator[str]:
    """Yield the paths that a piece may mean: the whole piece, or the part after any of its slashes, whatever precedes it."""
    if not 0 < len(piece) <= MAX_PIECE_CHARS or "\0" in piece:
        return
    if piece.startswith("~"):
        piece = f"{places[0]}{piece[2:]}" if piece.startswith("~+") else os.path.expanduser(piece)
    if piece.startswith("/") and os.path.lexists(piece):
        yield os.path.normpath(piece)
        return
    for name in (piece, piece[2:]) if piece.startswith("-") else (piece,):  # -fFILE
        parts = [part for part in name.split("/") if part not in ("", ".")]
        for n in range(len(parts)):
            rest = "/".join(parts[n:])
            for place in places:
                yield os.path.normpath(f"{place}/{rest}")
                if _WILD.search(rest):
                    yield from islice(iglob(f"{escape(place)}/{rest}"), MAX_MATCHES)


def _not_yet_there(piece: str, line: str, places: Sequence[str], worktree: str) -> Iterator[str]:
    """Yield the paths where a piece would be run if it existed: in `places`, and in directories that may be created."""
    names = [name for either in _STEP.findall(line) for name in either if name]
    is_absolute = piece.startswith("/") and os.path.lexists(piece)
    if is_absolute or piece.strip("/") in names or not _RELATIVE.fullmatch(piece):
        return
    steps = [path for name in names if not os.path.isdir(path := f"{worktree}/{name}")]
    if "/" in piece or piece in _INTERPRETED.findall(line):
        around = [*places, *steps]
    else:
        around = [*places[1:], *steps] if "PATH=" in line else []
    yield from (os.path.normpath(f"{place}/{piece.lstrip('/')}") for place in around)


def _programs(name: str, worktree: str) -> list[str]:
    """Return the files that a bare program name may mean."""
    if not _RELATIVE.fullmatch(name) or "/" in name:
        return []
    on_path = (path for path in os.get_exec_path() if is_within(path, worktree))
    places = (*(f"{worktree}/{directory}" for directory in PROGRAM_DIRECTORIES), *on_path)
    return [path for place in places if os.path.isfile(path := f"{place}/{name}")]


def _add_module(name: str, places: Sequence[str], found: ExecutedPaths) -> None:
    """Add a module that Python runs from the current directory. Its imports may come from there, too."""
    for place in places:
        found.files.update(filter(os.path.isfile, _module_files(place, name)))
        package = f"{place}/{name.partition('.')[0]}"
        if os.path.isdir(package):
            found.trees.add(package)
    found.absent.update(f"{places[0]}/{name.partition('.')[0]}{ending}" for ending in ("", ".py"))
    found.nearby.add(f"{places[0]}/*.py")


def _module_files(directory: str, name: str) -> list[str]:
    path = f"{directory}/{name.replace('.', '/')}"
    return [f"{path}.py", f"{path}/__init__.py", f"{path}/__main__.py"]


def _add_surroundings(path: str, worktree: str, found: ExecutedPaths) -> None:
    """Add what a program loads from its surroundings."""
    if environment := _environment_of(path):
        found.trees.update(environment)
        return
    head, modules, rest = os.path.realpath(path).rpartition("/node_modules/")
    if modules:
        package = "/".join(rest.split("/")[: 2 if rest.startswith("@") else 1])
        found.trees.add(f"{head}{modules}{package}")
        found.nearby.add(f"{head}/node_modules")
    elif is_within(path, worktree) and _is_python(path):
        found.nearby.add(f"{os.path.dirname(path)}/*.py")


def _environment_of(path: str) -> list[str]:
    """Return what a virtual environment loads when one of its programs runs, or [] if `path` is not one of its programs."""
    root = os.path.dirname(os.path.dirname(path))
    if not os.path.isfile(f"{root}/pyvenv.cfg"):
        return []
    packages = iglob(f"{escape(root)}/lib/python*/site-packages")
    return [f"{root}/pyvenv.cfg", f"{root}/bin", *packages]


def _is_python(path: str, text: str | None = None) -> bool:
    if path.endswith(".py"):
        return True
    if text is None:
        try:
            text = os.fsdecode(read_file(path, MAX_HOOK_BYTES))
        except OSError:
            return False
    return text.startswith("#!") and "python" in text.partition("\n")[0]
