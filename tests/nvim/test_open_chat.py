"""`sanderling` without arguments, on a terminal."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import DEADLINE_S, find_neovim, wait_until

CONFIGURED = "set shortmess+=I | let g:loaded_sanderling = 1"


class Terminal:
    """The command in a terminal of its own. `shown` is everything that it has written."""

    def __init__(self, home: Path, path: str) -> None:
        self.shown = b""
        self._host, theirs = os.openpty()
        os.set_blocking(self._host, False)
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-m", "sanderling"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=home,
            env={"HOME": str(home), "PATH": path, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
            start_new_session=True,
        )
        os.close(theirs)

    def shows(self, text: str) -> bool:
        with suppress(OSError):  # nothing there yet, or the process has ended
            self.shown += os.read(self._host, 1 << 16)
        return text.encode() in self.shown

    def send(self, keys: str) -> None:
        os.write(self._host, keys.encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)
        os.close(self._host)


@pytest.fixture
def terminal(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvim").symlink_to(find_neovim())
    opened: list[Terminal] = []

    def start(path: str = f"{tmp_path}/bin:/usr/bin:/bin") -> Terminal:
        opened.append(Terminal(tmp_path, path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_it_opens_neovim_with_the_chat_of_this_installation(terminal):
    shown = terminal()
    wait_until(lambda: shown.shows("No API key"))
    shown.send("\x1c\x0e:qa!\r")  # from any mode
    wait_until(lambda: shown.process.poll() == 0)


def test_a_neovim_that_cannot_load_the_plugin_says_so(terminal, tmp_path):
    config = tmp_path / ".config/nvim"
    config.mkdir(parents=True)
    (config / "init.vim").write_text(CONFIGURED)
    shown = terminal()
    wait_until(lambda: shown.shows("has no plugin Sanderling"))


def test_without_a_neovim_it_says_what_to_install(tmp_path):
    code = "import sys; sys.prefix = '/nowhere'; from sanderling.cli.neovim import open_chat; sys.exit(open_chat())"
    ended = subprocess.run(
        [sys.executable, "-I", "-c", code],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "install Neovim 0.11 or later" in ended.stderr
