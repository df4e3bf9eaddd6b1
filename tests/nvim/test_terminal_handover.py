"""A terminal in the hands of the model and of the user: a real Neovim, the real host and sandbox, and what leaves this machine."""

import json
import os
import signal
import subprocess
import sys

import pytest
from tests.conftest import wait_until
from tests.loopback import Reply, done, message_start, text, tool_use
from tests.nvim.conftest import contents

SECRET = "correct-horse-battery"
# The program repeats the secret, as a careless one would, and ends its output with a line that the model has to see.
PROGRAM = 'read -r -s -p "Password: " p; echo; echo "$p is wrong"; echo "ready: ${#p}"; exec cat'


def reply(*steps):
    return Reply(message_start(), *steps)


def use(use_id, tool, **data):
    return reply(tool_use(use_id, tool, json.dumps(data)), done("tool_use"))


@pytest.fixture
def handed(start_claude, server):
    """A Neovim whose user takes the model's terminal, types the secret, and hands it back; with its screens meanwhile."""

    def hand(columns=80, lines=24, background="dark"):
        server.answer(
            use("t1", "bash", command=PROGRAM, pty=True),
            reply(text("Please type the password."), done()),
            use("t2", "jobs", action="screen", id="j1", wait_s=60),
            use("t3", "jobs", action="send", id="j1", text="on we go\n"),
            reply(text("Thank you."), done()),
        )
        child = start_claude(columns=columns, lines=lines)
        child.command(f"set background={background}")
        child.command("AgentMode auto")
        child.submit_and_wait("Install it.")
        child.command("Agent terminal")
        child.screens = [child.wait_for_screen("Password:", "The model has the terminal")]
        child.feed("i")
        wait_until(lambda: child.mode() == "t")
        child.feed(f"{SECRET}<CR>")
        child.screens.append(child.wait_for_screen(f"{SECRET} is wrong", "You have the terminal"))
        child.feed("<C-\\><C-n>")
        child.screens.append(child.wait_for_screen("The model has the terminal"))
        child.submit_and_wait("Go on.")
        child.wait_for_screen("on we go")
        return child

    return hand


def files_with_secret(*directories):
    return [path for path, data in contents(*directories).items() if SECRET.encode() in data]


def test_nothing_that_leaves_neovim_has_what_the_user_typed(handed, server):
    child = handed()
    last = server.prompts[-1].body.decode()
    assert "[hidden]" in last
    assert "on we go" in last, "what the model typed afterwards is seen"
    assert [each for each in server.requests if SECRET.encode() in each.body] == []
    assert SECRET not in child.transcript_text()
    child.command("Agent export out.md")
    child.wait_for_message("Exported to out.md")
    sessions = [sys.executable, "-m", "sanderling", "sessions", "export", child.session_id()]
    environment = os.environ | {
        "HOME": str(child.home),
        "XDG_STATE_HOME": str(child.home / "state"),
    }
    for format_ in ("markdown", "atif"):
        options = ("--format", format_, "--output", str(child.project / f"exported.{format_}"))
        subprocess.run([*sessions, *options], env=environment, cwd=child.project, check=True)
    os.kill(child.host_pid(), signal.SIGKILL)
    child.wait_for_transcript("exited (signal 9)")
    assert files_with_secret(child.home, child.project) == []
    for name in ("out.md", "exported.markdown", "exported.atif"):
        assert "on we go" in (child.project / name).read_text()


def test_a_host_that_is_killed_while_the_user_types_leaves_nothing_of_it(start_claude, server):
    server.answer(
        use("t1", "bash", command="read -r -p 'Password: ' p; exec cat", pty=True),
        reply(text("Please type the password."), done()),
        reply(text("I am back."), done()),
    )
    child = start_claude()
    child.command("AgentMode auto")
    child.submit_and_wait("Install it.")
    child.command("Agent terminal")
    child.wait_for_screen("Password:", "The model has the terminal")
    child.feed(f"i{SECRET}")
    child.wait_for_screen(SECRET, "You have the terminal")
    host_pid = child.host_pid()
    child.rpc.request(
        "nvim_paste", SECRET, False, -1
    )  # as a whole: a single key would not be found
    os.kill(host_pid, signal.SIGKILL)
    child.rpc.request("nvim_paste", SECRET, False, -1)
    child.wait_for_screen(" The agent process ended. ")
    assert child.mode() == "t", "keys that come late are not commands"
    child.feed(f"{SECRET}<CR><C-\\><C-n>")
    wait_until(lambda: child.mode() == "nt")
    child.submit_and_wait("Go on.")
    assert SECRET not in child.transcript_text()
    assert [each for each in server.requests if SECRET.encode() in each.body] == []
    assert files_with_secret(child.home, child.project) == []


@pytest.mark.parametrize("background", ["dark", "light"])
@pytest.mark.parametrize("columns, lines", [(80, 24), (40, 12)])
def test_who_has_the_terminal_is_visible_at_each_size(handed, columns, lines, background):
    child = handed(columns, lines, background)
    for screen, who in zip(
        child.screens, ("The model has", "You have", "The model has"), strict=True
    ):
        assert f"{who} the terminal" in screen
    assert "i takes it" in child.screens[0]
    assert "<C-\\><C-n>" in child.screens[1]
