"""
The table of file names that run code, or instruct an agent, when the user only opens, enters or commits a project.

`asks` is for the permissions: file tools **ask** before they write such a name, at any depth. The rest is for the sandbox. Commands cannot
create names that are protected **at the root**, and cannot change those protected **anywhere** once the sandbox has found them. For other
names, and for those created below the root, the guard **reports** changes.
"""

import os
import stat
import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, NamedTuple


class NameRow(NamedTuple):
    """
    One entry of the table.

    `names` are spelled as programs spell them, and may have two parts. `at_root` "with hooks" applies if the repository has hooks of the
    user's that would read them.
    """

    names: str
    asks: bool = True
    at_root: Literal["always", "with hooks", ""] = "always"
    anywhere: bool = True


def _with_endings(stems: str, endings: str) -> str:
    return "".join(f" {stem}.{ending}" for stem in stems.split() for ending in endings.split())


VERSION_CONTROL = NameRow(".git .gitmodules .hg .jj", at_root="", anywhere=False)
"""Version control. `guard/`, which knows how each system works, decides what is protected there."""

INSTRUCTIONS = NameRow(
    "agents.md agents.override.md claude.md claude.local.md gemini.md qwen.md crush.md copilot-instructions.md"
    " .github/instructions .github/prompts .github/agents .github/chatmodes .github/skills .rules agent.md codebuddy.md"
    " iflow.md warp.md .openhands_instructions",
    at_root="",
    anywhere=False,
)
"""Text that agents follow, and no program runs."""

TABLE = (
    VERSION_CONTROL,
    # editors: sourced, or started as a task, a debugger or a container
    NameRow(
        ".exrc .nvimrc .nvim.lua .lazy.lua .lvimrc .neoconf.json .dir-locals.el .dir-locals-2.el"
        " .nvim .vim .helix .idea .vscode .zed .fleet .devcontainer .devcontainer.json .gdbinit .lldbinit"
        " .lite_project.lua .kateproject .kateproject.d .theia .vimrc.local .Rprofile .tmux-sessionizer"
    ),
    # in a project with dotfiles, ordinary files
    NameRow(".vimrc .gvimrc _vimrc _gvimrc _exrc", at_root="", anywhere=False),
    NameRow("*.code-workspace *.sublime-project", at_root=""),
    # language servers: loaded or started as soon as a file is opened
    NameRow(
        ".luarc.json .luarc.jsonc .nlsp-settings .ruby-lsp .solargraph.yml .ycm_extra_conf.py omnisharp.json"
    ),
    NameRow(".cargo/config .cargo/config.toml"),
    # imported first by every Python that has the project in its path
    NameRow("sitecustomize.py usercustomize.py"),
    # written by build tools
    NameRow(".bsp rust-toolchain rust-toolchain.toml", at_root="", anywhere=False),
    # shells: run on entering the directory
    NameRow(
        ".envrc .envrc.local .envrc.private .autoenv .autoenv.leave .autoenv.zsh .autoenv_leave.zsh .rvmrc .smartcd"
        " mise.toml .mise.toml mise.local.toml .mise.local.toml .rtx.toml .config/mise.toml .config/mise"
        " .miserc.toml .rtx.local.toml .config/mise.local.toml"
        " mise/config.toml mise/config.local.toml .mise/config.toml .mise/config.local.toml"
    ),
    NameRow(".direnv", at_root="", anywhere=False),  # `pip install` writes to it, too
    # a version can be a path; asdf and mise write it
    NameRow(".tool-versions", at_root="", anywhere=False),
    # git hooks, and the configuration of hook managers
    NameRow(".husky .githooks .git-hooks"),
    NameRow(
        "hk.pkl hk.local.pkl hk.toml hk.yaml hk.yml hk.json .config/hk.pkl .config/hk.local.pkl .rusty-hook.toml rusty-hook.toml"
        " .local-overcommit.yml grumphp.yaml grumphp.yml.dist grumphp.yaml.dist .nanostagedrc .gitlint whisky.json"
        " .pre-commit-config.yaml .pre-commit-config.yml prek.toml .overcommit.yml captainhook.json grumphp.yml .huskyrc"
        " .lintstagedrc .commitlintrc .lefthook .lefthook-local"
        + _with_endings(".nano-staged nano-staged", "js cjs mjs json")
        + _with_endings(".huskyrc", "json yaml yml js cjs")
        + _with_endings("husky.config", "js cjs")
        + _with_endings(".simple-git-hooks simple-git-hooks", "json js cjs")
        + _with_endings(".lintstagedrc .commitlintrc", "json yaml yml js cjs mjs ts cts mts")
        + _with_endings("lint-staged.config commitlint.config", "js cjs mjs ts cts mts")
        + _with_endings(
            "lefthook .lefthook lefthook-local .lefthook-local .config/lefthook .config/lefthook-local",
            "yml yaml toml json jsonc",
        ),
        at_root="with hooks",
    ),
    # their own tools write these
    NameRow(".yarnrc .yarnrc.yml .npmrc", at_root="", anywhere=False),
    # agents: their hooks, the servers that they start, and their instructions
    NameRow(
        ".claude .codex .cursor .gemini .kiro .opencode .roo .sanderling .windsurf .continue .qwen .amazonq .junie .trae"
        " .augment .factory .kilocode .crush .goose .clinerules .cursorrules .windsurfrules .roorules .roomodes .goosehints"
        " .agents .agent .openhands .pi .vibe .iflow .codebuddy .rovodev .aiassistant .github/hooks gptme.toml"
        " .mcp.json opencode.json opencode.jsonc crush.json .crush.json .aider.conf.yml .sanderling.toml"
    ),
    INSTRUCTIONS,
)

DEPENDENCIES = frozenset({"node_modules", "bower_components", "site-packages", "_deps"})
"""Package managers fill and empty these, and users rarely open files in them. Nothing below is protected or reported."""

MAX_HELD = 256
"""Each is a mount in every view. Names nearest to the root come first; changes of the others are reported."""
MAX_STAMPS = 1_000
MAX_COMPARED_BYTES = 1 << 20


_RANGES = ((0x200C, 0x200F), (0x202A, 0x202E), (0x206A, 0x206F), (0xFEFF, 0xFEFF))
IGNORED = "".join(chr(code) for first, last in _RANGES for code in range(first, last + 1))
"""
The characters that HFS+ ignores when it compares names, so that `.env\\u200crc` opens `.envrc`.

Apple's TN1150 and `next_hfs_char` in git's utf8.c list them (CVE-2014-9390). External disks of Macs still have HFS+; APFS ignores none.
"""
_WITHOUT_IGNORED = str.maketrans("", "", IGNORED)


def folded(name: str) -> str:
    """Return `name` casefolded and in NFKC, for comparison on case-insensitive file systems."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFKC", name.translate(_WITHOUT_IGNORED)).casefold()


_SPELLED = {name: row for row in TABLE for name in row.names.split()}
_ROWS = {folded(name): row for name, row in _SPELLED.items()}
_ENDINGS = {name[1:]: row for name, row in _ROWS.items() if name.startswith("*")}
_ENDING = tuple(_ENDINGS)
_LAST_PARTS = frozenset(name.rpartition("/")[2] for name in _ROWS)
_INSTRUCTING = frozenset(name.rpartition("/")[2] for name in INSTRUCTIONS.names.split())
_DIRECTORIES = frozenset(name.partition("/")[0] for name in _ROWS if "/" in name)

_BELOW = {
    directory: tuple(
        name.partition("/")[2] for name in _SPELLED if folded(name).startswith(f"{directory}/")
    )
    for directory in _DIRECTORIES
}

AT_ROOT = frozenset(name for name, row in _SPELLED.items() if row.at_root == "always")
WITH_HOOKS = frozenset(name for name, row in _SPELLED.items() if row.at_root == "with hooks")


def row_of(name: str, directory: str = "") -> NameRow | None:
    """Return the table's row for `name` in `directory`, of which only the last component matters."""
    name, directory = folded(name), folded(directory)
    if row := _ROWS.get(name):
        return row
    if directory in _DIRECTORIES and (row := _ROWS.get(f"{directory}/{name}")):
        return row
    return _ENDINGS.get(name[name.rfind(".") :])


def asked_about(parts: Iterable[str]) -> frozenset[str]:
    """Return the parts of a path about which file tools ask."""
    steps = pairwise(("", *parts))
    rows = ((part, row_of(part, directory)) for directory, part in steps)
    return frozenset(part for part, row in rows if row and row.asks)


def only_instructs(part: str) -> bool:
    """Return whether a part of a path that is asked about is text for agents."""
    return folded(part) in _INSTRUCTING


def is_listed(name: str, directory: str) -> bool:
    """Return whether a walk records this name: it is in the table and not version control's. Called for every file."""
    lowered = name.lower()
    if lowered not in _LAST_PARTS and name.isascii() and not lowered.endswith(_ENDING):
        return False
    row = row_of(name, directory)
    return row is not None and row is not VERSION_CONTROL


def listed_by_link(link: str) -> list[str]:
    """Return what is recorded for a link named like a directory of the table (`.cargo`): the link, and the files that it leads to."""
    below = _BELOW.get(folded(os.path.basename(link)), ())
    files = (f"{link}/{name}" for name in below)
    return (
        [link, *(os.path.realpath(file) for file in files if os.path.lexists(file))]
        if below
        else []
    )


def held(named: Iterable[str]) -> list[str]:
    """Return the recorded paths that commands must not change, up to a limit."""
    found = (path for path in named if (row := _row_at(path)) and row.anywhere)
    return sorted(found, key=lambda path: (path.count("/"), path))[:MAX_HELD]


def _row_at(path: str) -> NameRow | None:
    directory, name = os.path.split(path)
    return row_of(name, os.path.basename(directory))


def stamp(path: str, limit: int = MAX_STAMPS) -> tuple[tuple[object, ...], ...]:
    """Return a value that changes with `path` or anything below, up to a limit; () if it is missing."""
    found: list[tuple[object, ...]] = []
    waiting = [path]
    while waiting and len(found) < limit:
        place = waiting.pop()
        try:
            status = os.lstat(place)
            if stat.S_ISLNK(status.st_mode):
                found.append((place, os.readlink(place)))
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting += sorted(f"{place}/{name}" for name in os.listdir(place))
        except OSError:
            continue
        # Without a directory's own times, which an editor's backup file changes.
        is_file = not stat.S_ISDIR(status.st_mode)
        times = (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if is_file else ()
        found.append((place, status.st_dev, status.st_ino, *times))
    return tuple(found)


def is_copy(path: str, original: str) -> bool:
    """Return whether both contain the same regular files and directories. False if there is too much to compare."""
    waiting = [(path, original)]
    for _ in range(MAX_STAMPS):
        if not waiting:
            return True
        both = waiting.pop()
        try:
            kinds = {stat.S_IFMT(os.lstat(place).st_mode) for place in both}
            if kinds == {stat.S_IFDIR}:
                names, others = (sorted(os.listdir(place)) for place in both)
                if names != others:
                    return False
                waiting += [(f"{both[0]}/{name}", f"{both[1]}/{name}") for name in names]
            elif kinds != {stat.S_IFREG} or not _have_same_bytes(*both):
                return False
        except OSError:
            return False
    return False


def _have_same_bytes(path: str, other: str) -> bool:
    first, second = map(_content, (path, other))
    return first == second and len(first) < MAX_COMPARED_BYTES


def _content(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return file.read(MAX_COMPARED_BYTES)
