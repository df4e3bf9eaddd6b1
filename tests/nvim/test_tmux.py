"""The chat in a tmux as it is installed, at 80 x 24: half a second of escape-time, no extended keys, no true color."""

import itertools
import json
import os
import shutil
import subprocess
import sys

import pytest
from tests.conftest import ROOT, find_neovim, prove, wait_until
from tests.nvim.replies import bash, reply, say

pytestmark = pytest.mark.skipif(not shutil.which("tmux"), reason="no tmux")

APP = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"
numbers = itertools.count()


class Tmux:
    """A Neovim in tmux whose model replays `replies`. The user types, and sees what is drawn."""

    def __init__(self, home, *replies):
        self.home, self.project = home, home / "app"
        self.project.mkdir(parents=True, exist_ok=True)
        if not (self.project / "app.py").exists():
            (self.project / "app.py").write_text(APP)
        script = home / "script.json"
        script.write_text(json.dumps({"version": 1, "reply": replies}))
        options = f"provider = 'scripted', script = {json.dumps(str(script))}"
        (home / "init.lua").write_text(
            f"vim.opt.rtp:prepend({json.dumps(str(ROOT))})\n"
            f"require('sanderling').setup({{ {options}, python = {json.dumps(sys.executable)} }})\n"
            "require('sanderling.ui.attention').GRACE_NS = 0\n"
        )
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("NVIM", "XDG_", "TMUX"))}
        self.environment = kept | {"HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.argv = ["tmux", "-L", f"chat-{os.getpid()}-{next(numbers)}", "-f", "/dev/null"]
        neovim = [find_neovim(), "-n", "-u", str(home / "init.lua"), "app.py"]
        self._run("new-session", "-d", "-x", "80", "-y", "24", "-c", str(self.project), *neovim)
        self.wait_for("print(add(1, 2))")

    def _run(self, *argv):
        return subprocess.run(
            [*self.argv, *argv], env=self.environment, capture_output=True, text=True, check=True
        ).stdout

    def type(self, *keys):
        """Press `keys`, each by its name in tmux or a text; they come at once."""
        self._run("send-keys", *keys)

    def screen(self):
        return self._run("capture-pane", "-p")

    def wait_for(self, *texts):
        try:
            return wait_until(
                lambda: (screen := self.screen()) and all(t in screen for t in texts) and screen
            )
        except AssertionError:
            raise AssertionError(f"{texts} on this screen:\n{self.screen()}") from None

    def is_running(self):
        argv = [*self.argv, "has-session"]
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0

    def close(self):
        subprocess.run([*self.argv, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*replies):
        started.append(Tmux(tmp_path / "home", *replies))
        return started[-1]

    yield start
    for tmux in started:
        tmux.close()


TOUCH = reply(bash("touch made"))


@pytest.mark.guard
def test_a_user_asks_stops_allows_denies_and_changes_the_mode(start):
    tmux = start(
        reply(say("One moment, "), {"delay_ms": 60_000}),
        TOUCH,
        reply(say("Made.")),
        reply(bash("touch other")),
        reply(say("Not made.")),
        repeated := reply(say("Resumed."), repeat=True),
    )
    made, other = tmux.project / "made", tmux.project / "other"
    tmux.type(":AgentChat", "Enter")
    tmux.wait_for("INSERT ask idle")
    tmux.type("wait for me", "C-s")
    tmux.wait_for("One moment,", "streaming")
    tmux.type("C-c")
    tmux.wait_for("ask idle", "Stopped")
    tmux.type("make it", "C-s")
    tmux.wait_for("touch made", "<C-w>a")
    tmux.type("x", "Escape", "a", "y")  # tmux sends Alt-a
    tmux.type("Escape")
    tmux.wait_for("NORMAL ask")
    assert not made.exists()
    tmux.type("C-w", "a")
    tmux.type("a")
    tmux.wait_for("Made.")
    assert made.exists()
    tmux.type("cc", "and the other", "C-s")
    tmux.wait_for("touch other", "<C-w>a")
    tmux.type("M-r")
    tmux.wait_for("Deny, because:")
    tmux.type("not needed", "Enter")
    tmux.wait_for("Not made.")
    assert not other.exists()
    tmux.type("BTab")
    tmux.wait_for("auto idle")
    tmux.type("Escape", ":qa!", "Enter")
    wait_until(lambda: not tmux.is_running(), "Neovim has ended")
    again = start(repeated)
    again.type(":AgentResume", "Enter")
    again.wait_for("Not made.", "auto")


@prove
def test_a_user_reviews_a_change_hunk_by_hunk_and_undoes_the_turn(start):
    fix = [{"old": "a - b", "new": "a + b"}, {"old": "add(1, 2)", "new": "add(2, 3)"}]
    use = {"tool_use": {"name": "edit", "input": {"path": "app.py", "edits": fix}}}
    tmux = start(reply(use), reply(say("Fixed."), repeat=True))
    tmux.type(":AgentChat", "Enter")
    tmux.wait_for("INSERT ask idle")
    tmux.type("fix it", "C-s")
    tmux.wait_for("a + b", "add(2, 3)", "1 to answer")
    tmux.type("Escape")
    tmux.wait_for("NORMAL ask")
    tmux.type("C-w", "h")
    tmux.type("gg", "]h", "\\ha")
    tmux.type("]h", "\\hd")
    tmux.wait_for("Reject, because:")
    tmux.type("the numbers were right", "Enter")
    tmux.wait_for("Fixed.", "ask idle")
    app = tmux.project / "app.py"
    wait_until(lambda: app.read_text() == APP.replace("a - b", "a + b"))
    tmux.type("C-w", "b")
    tmux.type("\\u")
    wait_until(lambda: app.read_text() == APP)
