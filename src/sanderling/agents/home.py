"""
Limits for the files in HOME that an external agent may change: its login, and nothing that runs programs.

The agent's changes outlive the sandbox, and the user's own programs read them with all of the user's rights. A shell reads its startup
files; the same agent, started outside, reads settings that name hooks, servers and plugins to run. So a path is refused if it is such a
file, lies below one or contains one. In an agent's own directory only known data files are accepted. While the agent runs, accepted
directories are checked for links, special files and changed permissions.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sanderling.paths import is_within
from sanderling.sandbox.inside.writing import passed_through
from sanderling.sandbox.kernel.programs import FILLED, TOOLCHAINS
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
"""Login files of agents: readers treat their content as data only."""

_RUNS = (
    # read by shells at startup or exit
    ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_completion .profile .zshrc .zshenv .zprofile .zlogin .zlogout"
    " .zsh .oh-my-zsh .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc .xonshrc .config/fish .config/nushell .config/bash"
    " .config/zsh .config/direnv .config/starship.toml .pam_environment .config/environment.d"
    # started by the desktop or the system
    " .xprofile .xinitrc .xsession .xsessionrc .Xresources .config/autostart .config/systemd .local/share/systemd"
    " .local/share/applications .local/share/dbus-1 .config/i3 .config/sway .config/hypr .config/awesome .config/kitty"
    " .config/alacritty .config/wezterm .wezterm.lua .config/ghostty .tmux.conf .tmux .config/tmux .screenrc"
    # editors
    " .vimrc .vim .gvimrc .config/nvim .local/share/nvim .local/state/nvim .emacs .emacs.d .config/emacs .config/helix .config/Code"
    " .config/zed .nanorc"
    # run by git, ssh and others, or deciding where they send credentials
    " .gitconfig .config/git .ssh .gnupg .netrc .curlrc .wgetrc .docker .kube .aws .azure .config/gcloud .config/gh .pypirc .npmrc"
    " .yarnrc .yarnrc.yml .config/pip .pip .cargo .m2 .gradle .gem .bundle .bunfig.toml .pdbrc .pythonrc .ipython .jupyter .irbrc"
    " .pryrc .gdbinit .config/gdb .lldbinit .Rprofile .Renviron .psqlrc .sqliterc .config/mise .tool-versions .local/bin .local/lib"
    " bin .npm .npm-global .config/yarn .local/share/pnpm"
    # agents whose directories have no name that is also protected in a project
    " .claude.json .config/opencode .local/share/opencode .config/goose .local/share/goose .kimi .kimi-code .config/crush"
    " .config/sanderling .local/share/sanderling .local/state/sanderling"
)
RUNS = frozenset((*_RUNS.split(), *TOOLCHAINS, *FILLED))
"""Names below HOME that run programs when the user opens a shell, an editor or an agent, or that hold other secrets."""

MAX_ENTRIES = 2_000


def problem_of(path: str, home: str = "") -> str:
    """Return why an agent may not change `path`, which begins with `~/` or `/`; "" if it may."""
    home = os.path.normpath(home or os.path.expanduser("~"))
    original, path = path, os.path.normpath(os.path.expanduser(path))
    if path == home or is_within(home, path):
        return f"'home' contains {original}, which includes all of HOME. Name the file with the agent's login"
    if not is_within(path, home):
        return f"'home' contains {original}, which is not below HOME"
    name = os.path.relpath(path, home)
    if name in DATA:
        return ""
    for each in RUNS:
        if is_within(name, each) or is_within(each, name):
            return f"'home' contains {original}, but ~/{each} can run programs or holds other secrets. List it in `paths` to make it readable"
    for part in name.split("/"):
        if (row := row_of(part)) and row.asks:
            return f"'home' contains {original}, but files in {part} can run programs. Name the file with the agent's login"
    return ""


def problem_of_link(path: str, real: str, home: str = "") -> str:
    """Return why an agent may not change `real`, the target of the user's symlink `path`; "" if it may."""
    home = os.path.normpath(home or os.path.expanduser("~"))
    name = os.path.relpath(os.path.normpath(os.path.expanduser(path)), home)
    is_login = name in DATA and os.path.basename(real) == os.path.basename(name)
    if not is_login:
        return problem_of(real, home)
    below = real.removeprefix(f"{os.path.realpath(home)}/")
    held = (each for each in RUNS if is_within(below, each) or is_within(each, below))
    return next((f"~/{each} can run programs or holds other secrets" for each in held), "")


class _Mode(NamedTuple):
    path: str
    mode: int


class HomeWatch:
    """
    Watches the resolved paths that an agent may change. It must be created before the agent starts.

    A link, pipe or device there could make one of the user's programs read or write another file than the login, and a file with wider
    permissions could be read or run by others. `look` removes the former and restores the latter.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._files = {path: _file_at(path) for path in self._paths if not os.path.isdir(path)}
        self._before = {entry.path: entry.mode for path in self._paths for entry in _entries(path)}

    @property
    def has_other_files(self) -> bool:
        """Whether a login file was replaced from outside. An agent that was started before still has the old one."""
        return any(_file_at(path) != file for path, file in self._files.items())

    def look(self) -> list[str]:
        """Repair what the agent should not have done; return messages. Entries that existed at the start are always checked."""
        known = (entry for path in self._before for entry in _entries(path, 1))
        found = (entry for path in self._paths for entry in _entries(path))
        return [said for entry in (*known, *found) if (said := self._put_right(entry))]

    def _put_right(self, entry: _Mode) -> str:
        """Repair an entry, in a directory opened without following links: the agent may have replaced a parent by a link."""
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
            return f"{path} was replaced by a link or special file, and was removed."
        private = 0o700 if kind == stat.S_IFDIR else 0o600
        mode = stat.S_IMODE(before) if before and stat.S_IFMT(before) == kind else private
        if not stat.S_IMODE(now) & ~(mode | private):
            return ""
        _chmod(name, mode, directory)
        return f"The permissions of {path} were widened, and were restored."


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _entries(path: str, most: int = MAX_ENTRIES) -> Iterator[_Mode]:
    """Yield at most `most` files at `path` or below it."""
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
    """Change the mode of a file, without following a link."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
