"""
What a Dockerfile says about files, directories and variables, if it says nothing that would need a container.

The base image is not there. So it must be a system, or a language whose program is on this machine. `RUN` may make directories, and
install system packages whose programs are here.
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sanderling.batch.harbor.task_file import UnsupportedError

SYSTEMS = frozenset(
    [
        "alpine",
        "bash",
        "busybox",
        "centos",
        "debian",
        "fedora",
        "rockylinux",
        "scratch",
        "ubuntu",
        "buildpack-deps",
    ]
)
LANGUAGES = {
    "eclipse-temurin": "java",
    "gcc": "gcc",
    "golang": "go",
    "node": "node",
    "openjdk": "java",
    "perl": "perl",
    "php": "php",
    "python": "python3",
    "ruby": "ruby",
    "rust": "cargo",
}
PACKAGES = {
    "build-essential": ("gcc", "make"),
    "ca-certificates": (),
    "coreutils": ("ls",),
    "g++": ("g++",),
    "procps": ("ps",),
    "python3-pip": ("pip3",),
    "python3-venv": ("python3",),
    "ripgrep": ("rg",),
}
"""The programs of packages that have no program of their own name."""
IGNORED = frozenset(
    ["cmd", "entrypoint", "expose", "healthcheck", "label", "maintainer", "stopsignal", "volume"]
)
_FLAG = r"--(chown|chmod|link)(=\S+)?"


class Image(msgspec.Struct):
    """What a Dockerfile makes. `copies` have a source in the context, and a target, which is a directory if it ends in "/"."""

    workdir: str = ""
    env: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    directories: list[str] = msgspec.field(default_factory=list[str])
    copies: list[tuple[Path, str]] = msgspec.field(default_factory=list[tuple[Path, str]])


def read_dockerfile(text: str, context: Path) -> Image:
    """
    Return what the Dockerfile makes.

    Raises:
        UnsupportedError: it needs a container, or a program that is not here.
    """
    reader = _Reader(context)
    for line in _instructions(text):
        reader.take(line)
    return reader.image


def _instructions(text: str) -> Iterator[str]:
    """Yield the instructions, each as one line. A comment line within one is left out, as Docker does."""
    begun = ""
    for line in text.splitlines():
        if line.lstrip().startswith("#") or (not line.strip() and not begun):
            continue
        if line.rstrip().endswith("\\"):
            begun += line.rstrip()[:-1] + " "
            continue
        yield (begun + line).strip()
        begun = ""
    if begun.strip():
        yield begun.strip()


class _Reader:
    def __init__(self, context: Path) -> None:
        self.image = Image()
        self._context = context.resolve()
        # A base image sets these: `ENV PATH=/app/bin:$PATH` must keep the programs of this machine.
        self._variables = {name: os.environ.get(name, "") for name in ("PATH", "HOME")}
        self._has_base = False

    def take(self, line: str) -> None:
        name, _, rest = line.partition(" ")
        name, rest = name.lower(), rest.strip()
        if "<<" in rest and name in ("run", "copy", "add"):
            raise UnsupportedError(f"its Dockerfile has a here-document: {line}")
        match name:
            case "from":
                self._take_base(rest)
            case "workdir":
                self.image.workdir = self._absolute(self._expanded(rest))
                self.image.directories.append(self.image.workdir)
            case "env" | "arg":
                self._take_variables(rest, is_kept=name == "env")
            case "copy" | "add":
                self._take_copy(rest, line)
            case "run":
                self._take_run(rest)
            case "user":
                if rest.partition(":")[0] not in ("root", "0"):
                    raise UnsupportedError(f"its Dockerfile needs the user {rest}")
            case _:
                if name not in IGNORED:
                    raise UnsupportedError(
                        f"its Dockerfile has an instruction that is not followed: {line}"
                    )

    def _take_base(self, rest: str) -> None:
        words = [word for word in self._expanded(rest).split() if not word.startswith("--")]
        if self._has_base or not words:
            raise UnsupportedError("its Dockerfile has several stages")
        self._has_base = True
        image = re.sub(r"^(docker\.io/)?(library/)?", "", words[0])
        name = re.split(r"[:@]", image)[0]
        program = LANGUAGES.get(name, "")
        if name not in SYSTEMS and not program:
            raise UnsupportedError(f"it needs the image {words[0]}")
        if program and not shutil.which(program):
            raise UnsupportedError(f"it needs {program}, which is not on this machine")

    def _take_variables(self, rest: str, *, is_kept: bool) -> None:
        words = _words(rest)
        if words and "=" not in words[0]:
            words = [f"{words[0]}={' '.join(words[1:])}"]
        # One instruction sees the values from before it.
        pairs = [
            (name, self._expanded(value))
            for name, _, value in (word.partition("=") for word in words)
        ]
        self._variables.update(pairs)
        if is_kept:
            self.image.env.update(pairs)

    def _take_copy(self, rest: str, line: str) -> None:
        while found := re.match(_FLAG + r"\s+", rest):
            rest = rest[found.end() :]
        words = _words_in_json(rest) or _words(rest)
        if len(words) < 2 or rest.startswith("--"):  # noqa: PLR2004 - a source and a target
            raise UnsupportedError(
                f"its Dockerfile has an instruction that is not followed: {line}"
            )
        *sources, target = [self._expanded(word) for word in words]
        is_directory = target.endswith("/") or target == "." or len(sources) > 1
        absolute = self._absolute(target)
        for source in sources:
            for path in self._matching(source):
                self.image.copies.append((path, f"{absolute}/" if is_directory else absolute))

    def _matching(self, source: str) -> list[Path]:
        if "://" in source or re.search(r"\.(tar|tar\.\w+|tgz)$", source):
            raise UnsupportedError(f"its Dockerfile needs {source}")
        relative = os.path.normpath(source.lstrip("/") or ".")
        try:
            paths = [self._context] if relative == "." else sorted(self._context.glob(relative))
        except ValueError as error:
            raise UnsupportedError(f"its Dockerfile copies {source}: {error}") from error
        for path in paths:
            if not path.resolve().is_relative_to(self._context):
                raise UnsupportedError(
                    f"its Dockerfile copies {source}, which is outside of environment/"
                )
        if not paths:
            raise UnsupportedError(f"its Dockerfile copies {source}, which does not exist")
        return paths

    def _take_run(self, rest: str) -> None:
        for words in _commands(rest):
            match words:
                case ["mkdir", *arguments] if not any(map(_is_unknown_to_mkdir, arguments)):
                    directories = [word for word in arguments if not word.startswith("-")]
                    self.image.directories += map(self._absolute, map(self._expanded, directories))
                case ["apt-get" | "apt" | "apk", *arguments]:
                    _check_packages(arguments, rest)
                case ["rm", *arguments] if all(_is_cache(word) for word in arguments):
                    pass
                case ["true"] | []:
                    pass
                case _:
                    raise UnsupportedError(f"its Dockerfile runs: {shlex.join(words)}")

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join("/", self.image.workdir or "/app", path))  # noqa: PTH118

    def _expanded(self, text: str) -> str:
        def value_of(found: re.Match[str]) -> str:
            return self._variables.get(found[1] or found[2], "")

        return re.sub(r"\$(?:\{(\w+)\}|(\w+))", value_of, text)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UnsupportedError(f"its Dockerfile has a line that cannot be read: {text}") from error


def _words_in_json(text: str) -> list[str] | None:
    """Return the words of a list in JSON. None: it is a line for the shell, as `[ -d /data ]`, and as Docker takes a list that is wrong."""
    try:
        return msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return None


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the simple commands of a shell line that has no other operators than && and ;."""
    if words := _words_in_json(text):
        yield words
        return
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list[str]()
    try:
        for word in lexer:
            if word in ("&&", ";"):
                yield words
                words = []
            elif set(word) & set("|&<>()`") or "$(" in word:
                raise UnsupportedError(f"its Dockerfile runs: {text}")
            else:
                words.append(word)
    except ValueError as error:
        raise UnsupportedError(f"its Dockerfile runs: {text}") from error
    yield words


def _check_packages(arguments: Sequence[str], line: str) -> None:
    """Check that the programs of the packages to install are here."""
    words = [word for word in arguments if not word.startswith("-")]
    if not words or words[0] not in ("install", "add", "update", "clean", "upgrade"):
        raise UnsupportedError(f"its Dockerfile runs: {line}")
    if words[0] not in ("install", "add"):
        return
    for package in words[1:]:
        name = package.partition("=")[0]
        for program in PACKAGES.get(name, (name,)):
            if not shutil.which(program):
                raise UnsupportedError(f"it needs the package {name}, which is not on this machine")


def _is_unknown_to_mkdir(word: str) -> bool:
    """Return whether the word is an option with a meaning, such as `-m 700`, whose value is no directory."""
    return word.startswith("-") and word not in ("-p", "-v", "-pv", "--parents")


def _is_cache(word: str) -> bool:
    return word.startswith(("-", "/var/lib/apt/lists", "/var/cache/"))
