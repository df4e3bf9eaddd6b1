"""
The part of HOME that an agent may change: what holds its login, and nothing that runs anything.

What it writes there outlives the sandbox, and the person's own programs read it with all of their rights: a shell its start file, the
same agent its settings, which name hooks, servers and plugins to start. So a path that is one of these, lies in one or holds one is
refused. Of the directories of agents only what is known to be data can be named. In a directory that can, the names are looked after
while the agent runs: what a program of the person's would follow, or run, is not left there.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_within
from sanderling.sandbox.inside.writing import passed_through
from sanderling.sandbox.kernel.programs import TOOLCHAINS
from sanderling.sandbox.names import row_of

DATA = frozenset(
    (
        ".claude/.credentials.json",
        ".codex/auth.json",
        ".gemini/gemini-credentials.json",
        ".gemini/google_accounts.json",
        ".gemini/oauth_creds.json",
        ".kimi-code/credentials",
        ".kimi/credentials",
        ".qwen/oauth_creds.json",
    )
)
"""Logins of agents: what is read there is data, whatever it says."""

_RUNS = (
    # what shells read when they begin or end
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_completion .profile .zshrc .zshenv .zprofile .zlogin .zlogout"
    " .zsh .oh-my-zsh .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xonshrc .config/fish .config/nushell .config/bash"
    " .config/zsh .config/direnv .config/starship.toml .pam_environment .config/environment.d"
    # what a desktop, or the system, starts for the person
    " .xprofile .xinitrc .xsession .xsessionrc .Xresources .config/autostart .config/systemd .local/share/systemd"
    " .local/share/applications .local/share/dbus-1 .config/i3 .config/sway .config/hypr .config/awesome .config/kitty"
    " .config/alacritty .config/wezterm .wezterm.lua .config/ghostty .tmux.conf .tmux .config/tmux .screenrc"
    # editors
    " .vimrc .vim .gvimrc .config/nvim .local/share/nvim .local/state/nvim .emacs .emacs.d .config/emacs .config/helix .config/Code"
    " .config/zed .nanorc"
    # what git, ssh and others start, or where they send what is theirs
    " .gitconfig .config/git .ssh .gnupg .netrc .curlrc .wgetrc .docker .kube .aws .azure .config/gcloud .config/gh .pypirc .npmrc"
    " .yarnrc .yarnrc.yml .config/pip .pip .cargo .m2 .gradle .gem .bundle .bunfig.toml .pdbrc .pythonrc .ipython .jupyter .irbrc"
    " .pryrc .gdbinit .config/gdb .lldbinit .Rprofile .Renviron .psqlrc .sqliterc .config/mise .tool-versions .local/bin .local/lib"
    " bin .npm .npm-global .config/yarn .local/share/pnpm"
    # agents that no name of a project stands for
    " .claude.json .config/opencode .local/share/opencode .config/goose .local/share/goose .kimi .kimi-code .config/crush"
    " .config/sanderling .local/share/sanderling .local/state/sanderling"
)
RUNS = frozenset((*_RUNS.split(), *TOOLCHAINS))
"""Names below HOME that run something when the person opens a shell, an editor or their own agent, or that hold others' secrets."""

MAX_ENTRIES = 2_000


def problem_of(path: str, home: str = "") -> str:
    """Say in a clause why an agent may not change `path`, which begins with `~/` or `/`; "" if it may."""
    home = os.path.normpath(home or os.path.expanduser("~"))
    told, path = path, os.path.normpath(os.path.expanduser(path))
    if path == home or is_within(home, path):
        return f"'home' has {told}, which is all of HOME: name the file that holds its login"
    if not is_within(path, home):
        return f"'home' has {told}, which is not below HOME"
    name = os.path.relpath(path, home)
    if name in DATA:
        return ""
    for each in RUNS:
        if is_within(name, each) or is_within(each, name):
            return f"'home' has {told}: ~/{each} runs something, or holds what is another's. An agent may read it (`paths`)"
    for part in name.split("/"):
        if (row := row_of(part)) and row.asks:
            return f"'home' has {told}: what stands in {part} can run something. Name the file that holds its login"
    return ""


def problem_of_link(path: str, real: str, home: str = "") -> str:
    """Say likewise why an agent may not change `real`, to which a link of the person's leads at `path`."""
    home = os.path.normpath(home or os.path.expanduser("~"))
    name = os.path.relpath(os.path.normpath(os.path.expanduser(path)), home)
    is_login = name in DATA and os.path.basename(real) == os.path.basename(name)
    if not is_login:
        return problem_of(real, home)
    below = real.removeprefix(f"{os.path.realpath(home)}/")
    held = (each for each in RUNS if is_within(below, each) or is_within(each, below))
    return next((f"~/{each} runs something, or holds what is another's" for each in held), "")


class _Mode(NamedTuple):
    path: str
    mode: int


class HomeWatch:
    """
    A watch over the paths that an agent may change, which are real, from before it begins.

    A link, a pipe or a device among them would have a program of the person's read or write something else than a login, and a file
    with other rights would be read by others, or run: `look` takes the one away and the other back.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._files = {path: _file_at(path) for path in self._paths if not os.path.isdir(path)}
        self._before = {entry.path: entry.mode for path in self._paths for entry in _entries(path)}

    @property
    def has_other_files(self) -> bool:
        """Say whether a program of the person's has put another file in the place of one: what began before has the old one."""
        return any(_file_at(path) != file for path, file in self._files.items())

    def look(self) -> list[str]:
        """Put right what the agent should not have done; return it in sentences. What was there before it is looked at in any case."""
        known = (entry for path in self._before for entry in _entries(path, 1))
        found = (entry for path in self._paths for entry in _entries(path))
        return [said for entry in (*known, *found) if (said := self._put_right(entry))]

    def _put_right(self, entry: _Mode) -> str:
        """Put one right, in the directory that really is there: on the way to it the agent may have put a link meanwhile."""
        if self._before.get(entry.path) == entry.mode:
            return ""
        try:
            directory = passed_through(os.path.dirname(entry.path))
        except OSError:
            return ""
        try:
            return self._put_right_in(directory, entry.path)
        except OSError:
            return ""
        finally:
            os.close(directory)

    def _put_right_in(self, directory: int, path: str) -> str:
        name, before = os.path.basename(path), self._before.get(path)
        now = os.lstat(name, dir_fd=directory).st_mode
        kind = stat.S_IFMT(now)
        if kind not in (stat.S_IFREG, stat.S_IFDIR):
            if now == before:
                return ""
            os.unlink(name, dir_fd=directory)
            return f"{path} was made a link, or no file, and is removed."
        private = 0o700 if kind == stat.S_IFDIR else 0o600
        mode = stat.S_IMODE(before) if before and stat.S_IFMT(before) == kind else private
        if not stat.S_IMODE(now) & ~(mode | private):
            return ""
        _chmod(name, mode, directory)
        return f"{path} was given other rights, which are taken back."


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _entries(path: str, most: int = MAX_ENTRIES) -> Iterator[_Mode]:
    """Each file at `path` or below it, as far as they are not too many."""
    waiting, count = [path], 0
    while waiting and count < most:
        place = waiting.pop()
        count += 1
        with suppress(OSError):
            mode = os.lstat(place).st_mode
            yield _Mode(place, mode)
            if stat.S_ISDIR(mode):
                waiting += [f"{place}/{name}" for name in os.listdir(place)]


def _chmod(name: str, mode: int, directory: int) -> None:
    """Change the mode of what is there, but of nothing that a link leads to."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
