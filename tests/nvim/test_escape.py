"""No key that begins with Escape allows anything: a terminal sends <M-a> as Escape and `a`, as does whoever leaves insert mode and appends."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import shutil
import struct
import subprocess
import termios
import threading
import time

import pytest
from tests.conftest import ROOT, find_neovim, prove, prove_rest, wait_until
from tests.nvim.conftest import CATCH_ACTIONS
from tests.nvim.test_approval import asked
from tests.nvim.test_form import form

ESCAPE = b"\x1b"
GAPS_S = (0.0, 0.02, 0.045, 0.15, 0.3, 0.45)
PROPOSAL = {"path": "f.txt", "old": "one\n", "new": "two\n"}
OPTIONS = [
    {"id": "yes", "title": "Yes", "choice": "once"},
    {"id": "all", "title": "All of them", "choice": "session"},
]
QUESTIONS = {
    "use": asked(),
    "write": asked(tool="write", kind="write", path="f.txt", filetype="diff", subject="+two"),
    "grant": asked(kind="grant", choices=["once", "session"]),
    "overlap": asked(tool="edit", kind="overlap", choices=["once"]),
    "limit": asked(tool="calls", title="Go on?", kind="limit", rule="", choices=["once"]),
    "server": asked(tool="notes", kind="server", choices=["once", "always"], rule=""),
    "form": form(),
    "link": asked(tool="notes", kind="link", subject="https://example.com", choices=["once"]),
    "guest": asked(tool="Claude", options=OPTIONS, choices=["once", "session"]),
}
names = itertools.count()


class Terminal:
    """A Neovim in a terminal of its own, in tmux or directly, whose keys come as bytes."""

    def __init__(self, tmp_path, *, is_in_tmux):
        home = tmp_path / "home"
        home.mkdir()
        (tmp_path / "f.txt").write_text("one\n")
        (tmp_path / "init.lua").write_text(
            f"vim.opt.rtp:prepend({json.dumps(str(ROOT))})\n"
            "require('sanderling.ui.attention').GRACE_NS = 0\n"
            + CATCH_ACTIONS
            + "vim.ui.open = function() _G.is_opened = true end\n"
        )
        self.socket = f"/tmp/escape-{os.getpid()}-{next(names)}"
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NVIM", "XDG_", "TMUX"))
        } | {"HOME": str(home), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        argv = [find_neovim(), "-n", "-i", "NONE", "-u", str(tmp_path / "init.lua")]
        argv += ["--listen", self.socket, "f.txt", "-c", "AgentChat | wincmd p"]
        self.tmux = ["tmux", "-L", f"escape-{os.getpid()}-{next(names)}", "-f", "/dev/null"]
        self.is_in_tmux = is_in_tmux
        if is_in_tmux:
            argv = [*self.tmux, "new-session", "--", *argv]
        self.keyboard, screen = pty.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            argv,
            cwd=tmp_path,
            env=environment,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        os.close(screen)
        threading.Thread(target=self._drain, daemon=True).start()
        wait_until(lambda: self._evaluate("1") == "1", "Neovim answers")

    def _drain(self):
        with contextlib.suppress(OSError):
            while os.read(self.keyboard, 65536):
                pass

    def _evaluate(self, expression):
        argv = [find_neovim(), "--clean", "--server", self.socket, "--remote-expr", expression]
        return subprocess.run(argv, capture_output=True, text=True, check=False).stdout

    def lua(self, body, argument=None):
        """Call a function of this body with `argument`."""
        quoted = json.dumps(argument).replace("'", "''")
        code = f"(function(argument) {body} end)(vim.json.decode(_A))".replace("'", "''")
        return json.loads(self._evaluate(f"json_encode(luaeval('{code}', '{quoted}'))") or "null")

    def type(self, *keys, gap_s=0.0):
        for key in keys:
            os.write(self.keyboard, key)
            time.sleep(gap_s)

    def show(self, question):
        self.lua(
            "local id = vim.b[require('sanderling').transcript().buf].sanderling_session "
            "require('sanderling.host').receive({ session_id = id, seq = 1, events = { argument } })",
            question,
        )

    def line(self):
        return self.lua("return vim.fn.getline('.')")

    def allowed(self):
        """What was sent, but for a no."""
        return self.lua(
            "return vim.tbl_filter(function(action) "
            "return action.type == 'answer_approval' and action.answer ~= 'deny' "
            "end, _G.actions)"
        )

    def close(self):
        if self.is_in_tmux:
            subprocess.run([*self.tmux, "kill-server"], check=False, capture_output=True)
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)


@pytest.fixture
def start_terminal(tmp_path):
    terminals = []

    def start(is_in_tmux):
        if is_in_tmux and not shutil.which("tmux"):
            pytest.skip("no tmux")
        terminals.append(Terminal(tmp_path, is_in_tmux=is_in_tmux))
        return terminals[-1]

    yield start
    for terminal in terminals:
        terminal.close()


def leave_and_append(terminal, gap_s):
    """Type a character in insert mode, leave it, and append another one."""
    terminal.type(b":%d _\r", b"i", b"x")
    terminal.type(ESCAPE, b"a", b"y", gap_s=gap_s)
    wait_until(lambda: terminal.line() == "xy", terminal.line)
    terminal.type(ESCAPE)
    wait_until(lambda: terminal.lua("return vim.fn.mode()") == "n")


@pytest.mark.parametrize("is_in_tmux", [False, pytest.param(True, marks=prove)])
@pytest.mark.parametrize("kind", prove_rest(QUESTIONS, (0,), is_one=True))
def test_who_leaves_insert_mode_and_appends_allows_nothing(start_terminal, is_in_tmux, kind):
    terminal = start_terminal(is_in_tmux)
    terminal.show(QUESTIONS[kind])
    for gap_s in GAPS_S if is_in_tmux else (0.0, 0.02):
        leave_and_append(terminal, gap_s)
        assert not terminal.allowed(), gap_s
        assert not terminal.lua("return _G.is_opened")
        assert terminal.line() == "xy"  # in the file: nothing else was entered


HARMLESS = {
    *("steer", "history_previous", "history_next", "mention_pasted"),
    *("answer_deny", "answer_reason", "question_later", "close_page"),
}


def test_no_key_of_ours_that_allows_has_an_escape(screen):
    found = screen.lua("""
      local keys, found = require('sanderling.ui.keys'), {}
      for _, row in ipairs(require('sanderling.config.keys').rows) do
        if vim.iter(keys.list(row.default)):any(keys.has_escape) then
          found[#found + 1] = row.option
        end
      end
      return found
    """)
    assert set(found) <= HARMLESS


ALT = ["<M-a>", "<A-a>", "<T-a>", "<M-S-a>", "<C-M-a>", "<Esc>a", "<C-[>a", "\x1ba", "<lt><M-a>"]
TYPED = ["<F1>", "<Up>", "<End>", "<kPlus>"]
ALLOWING = [
    *("answer_once", "question_once", "question_choice", "question_send", "form_send", "trust_all"),
    *("accept_file", "edit_accept"),
]


@pytest.mark.parametrize("lhs", prove_rest(ALT + TYPED, is_one=True))
def test_a_key_with_an_escape_is_refused_for_what_allows(child, lhs):
    child.setup(keys={option: ["<C-x>a", lhs] for option in ALLOWING})
    mistakes = child.lua("return require('sanderling.config').mistakes")
    assert {mistake["name"] for mistake in mistakes} == {f"keys.{option}" for option in ALLOWING}
    assert (
        "must be a key without Alt or Escape (to a terminal, <M-a> is <Esc> and a), not"
        in mistakes[0]["text"]
    )
    options = child.lua("return require('sanderling.config').options.keys")
    assert options["answer_once"] is False
    assert options["question_once"] == "a"


@pytest.mark.parametrize(
    "lhs", prove_rest(["a", "<C-g>a", "<F5>", "<S-F1>", "<D-a>", "<C-Up>", "MA", "<lt>M-a>", False])
)
def test_other_keys_allow(child, lhs):
    child.setup(keys={"answer_once": lhs, "answer_deny": "<M-x>"})
    assert child.lua("return require('sanderling.config').mistakes") == []


def test_a_leader_with_an_escape_leaves_keys_out_that_allow(start_screen):
    screen = start_screen(commands=('let maplocalleader = "\\<M-,>"',))
    screen.lua("""
      local function nothing() end
      require('sanderling.ui.keys').set(0, 'edit', { edit_accept = nothing, edit_reject = nothing })
    """)
    maps = screen.lua(
        "return vim.tbl_map(function(map) return map.lhs end, vim.api.nvim_buf_get_keymap(0, 'n'))"
    )
    assert "<M-,>er" in maps
    assert "<M-,>ea" not in maps


def report(child):
    child.command("checkhealth sanderling")
    return child.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, 12, false), ' ')")


@prove
def test_checkhealth_warns_of_keys_that_become_one(start_nvim, tmp_path):
    tmux = tmp_path / "bin" / "tmux"
    tmux.parent.mkdir()
    tmux.write_text('#!/bin/sh\ntest "$*" = "show-options -sv escape-time" && echo 500\n')
    tmux.chmod(0o755)
    path = f"{tmux.parent}:{os.environ['PATH']}"
    child = start_nvim({"TMUX": "/tmp/some,1,0", "PATH": path})
    assert "is read as Alt and that key: tmux (escape-time 500) " in report(child)
    child.command("set ttimeoutlen=200")
    assert "tmux (escape-time 500), Neovim ('ttimeoutlen' 200) " in report(child)
    tmux.write_text("#!/bin/sh\necho 10\n")
    child.command("set ttimeoutlen=50")
    assert "is not read as Alt" in report(child)
    tmux.write_text("#!/bin/sh\nexit 1\n")
    child.command("set nottimeout")
    assert "Neovim ('timeoutlen' 1000, for 'nottimeout')" in report(child)
