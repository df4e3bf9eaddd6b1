"""A terminal that the model and the user share: real programs in the real sandbox, and who sees what."""

import os
import random
import re
import shutil
import string
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.conftest import DEADLINE_S, find_neovim, happens, prove_rest
from tests.sandboxes import in_own_task
from tests.unit.test_bash import Desk
from tests.unit.test_tool_uses import Talk, uses

from sanderling.errors import ToolError
from sanderling.permissions.decide import decide
from sanderling.permissions.rules import Rule, rule_from_text
from sanderling.protocol.actions import ResizeTerminal, TypeInTerminal, UseTerminal, WatchJob
from sanderling.protocol.events import Event, JobOutput
from sanderling.protocol.messages import Prompt
from sanderling.tools.commands import terminal as module
from sanderling.tools.commands.drawing import Drawing
from sanderling.tools.commands.screen import HIDDEN
from sanderling.tools.commands.terminal import Terminal
from sanderling.tools.jobs import jobs

SHELL = "PS1='$ ' exec bash --norc --noprofile -i"
WAIT_S = 20.0


class TerminalDesk(Desk):
    """A desk whose job j1 has a terminal."""

    @property
    def terminal(self) -> Terminal:
        terminal = self.jobs.find("j1").terminal
        assert terminal
        return terminal

    async def begin(self, command: str = SHELL, until: str = "$") -> None:
        await self.say(command, pty=True)
        await self.shows(until)

    async def screen_text(self) -> str:
        return await self.ask(action="screen", id="j1")

    async def shows(self, text: str) -> str:
        """What the model sees as soon as it sees `text`."""
        shown = ""
        with anyio.move_on_after(DEADLINE_S):
            while text not in (shown := await self.screen_text()):
                await anyio.sleep(0.02)
        assert text in shown
        return shown

    async def send(self, text: str, until: str = "") -> str:
        told = await self.ask(action="send", id="j1", text=text)
        return await self.shows(until) if until else told

    async def keys(self, keys: str) -> str:
        return await self.ask(action="keys", id="j1", keys=keys.split())

    async def user_types(self, data: str, until: str = "") -> None:
        """The user takes the terminal, types, waits until `until` is on the whole screen, and hands it back."""
        self.terminal.take(self)
        self.terminal.type(data.encode())
        await happens(lambda: until in self.whole_screen())
        self.terminal.hand_back(self)

    def whole_screen(self) -> str:
        return "\n".join("".join(row.cells).rstrip() for row in self.terminal.screen.rows)

    async def settles(self) -> None:
        await happens(lambda: not self.terminal.screen.hides)

    async def ends(self) -> None:
        await happens(lambda: not self.jobs.find("j1").is_running)

    async def begin_counting(self, written: str = "") -> None:
        """Begin a program that writes `written`, reads its input once there is a file `go`, and counts it up to a Z."""
        (self.project / "count.py").write_text(
            f"import os, time; print({written!r}, 're' + 'ady')\nwhile not os.path.exists('go'): time.sleep(0.05)\n"
            "data = b''\nwhile b'Z' not in data: data += os.read(0, 65536)\nprint('got', len(data), '.')"
        )
        await self.begin("stty raw -echo; python3 count.py; exec cat", "ready")

    async def counted_until_z(self) -> int:
        """What it counts when the user, who has the terminal, types the Z."""
        self.terminal.type(b"Z")
        (self.project / "go").touch()
        await happens(lambda: "got" in self.whole_screen() and "." in self.whole_screen())
        found = re.search(r"got (\d+)", self.whole_screen())
        assert found
        return int(found[1])

    def log(self) -> str:
        return self.jobs.find("j1").log.path.read_text()


@pytest.fixture(params=prove_rest(["sandbox", "off"], keep=(0,)))
async def desk(tmp_path, request) -> AsyncIterator[TerminalDesk]:
    desk = TerminalDesk(tmp_path, is_confined=request.param == "sandbox")
    async for served in in_own_task(desk.served()):
        yield served


# --- what the model does -----------------------------------------------------------------------------------------------


async def test_a_command_has_a_terminal_of_its_own(desk):
    await desk.begin()
    shown = await desk.send("tty; stty size; [ -t 0 ] && [ -t 2 ] && echo ye''s\n", "yes\n")
    assert re.search(r"/dev/pts/\d+\n24 80\nyes\n", shown)
    assert "[j1 has a terminal · cursor at row 5, column 3 of 24x80]" in shown
    await desk.send("exit 3\n")
    await desk.ends()
    assert "[exit status 3 · " in await desk.ask(action="read", id="j1")


async def test_the_interrupt_key_reaches_the_program_that_runs(desk):
    await desk.begin()
    await desk.send("sleep 1000; echo status $?\n")
    await desk.keys("C-c")
    await desk.send("echo status $?\n", "status 130")


async def test_python_is_used_as_by_a_user(desk):
    await desk.begin("python3 -q", ">>>")
    assert "42\n>>>" in await desk.send("print(6 * 7)\n", "42")
    await desk.send("input('name? ')\n", "name? ")
    assert "'bob'" in await desk.send("bob\n", "'bob'")
    await desk.keys("C-d")
    await desk.ends()


async def test_node_is_used_as_by_a_user(desk):
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    await desk.begin("node", ">")
    assert "42" in await desk.send("6 * 7\n", "\n42")
    await desk.send(".exit\n")
    await desk.ends()


async def test_gdb_is_used_as_by_a_user(desk):
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    await desk.begin("gdb -q -nx", "(gdb)")
    await desk.send("print 6 * 7\n", "$1 = 42")
    await desk.send("quit\n")
    await desk.ends()


@pytest.mark.parametrize("editor", ["vim", "vi", "nvim"])
async def test_a_rebase_is_done_in_an_editor(desk, editor):
    program = find_neovim() if editor == "nvim" else shutil.which(editor)
    if not program:
        pytest.skip(f"{editor} is not installed")
    git = "git -c user.name=a -c user.email=a@b.c"
    made = (
        f"git init -q repo; cd repo; for i in 1 2 3; do {git} commit -q --allow-empty -m c$i; done"
    )
    await desk.say(made)
    await desk.begin(
        f"GIT_EDITOR='{program} -u NONE -N' {git} rebase -i --root --keep-empty; exec cat", "pick"
    )
    await desk.keys("j d d : w q Enter")
    await desk.shows("Successfully rebased")
    assert "c2" not in await desk.say("git log --format=%s")


async def test_a_pager_leaves_the_screen_as_it_was(desk):
    if not shutil.which("less"):
        pytest.skip("less is not installed")
    await desk.begin()
    shown = await desk.send("seq 100 | less\n", ":")
    assert "\n1\n" not in shown.replace("[", "\n") or "23" in shown
    await desk.keys("G")
    await desk.shows("100")
    await desk.keys("q")
    await happens(lambda: not desk.terminal.screen.is_alternate)
    assert "99" not in await desk.screen_text()


async def test_a_program_that_draws_the_whole_screen_again_and_again_is_read_and_ended(desk):
    if not shutil.which("top"):
        pytest.skip("top is not installed")
    await desk.begin()
    shown = await desk.send("HOME=/ top -d 0.3\n", "PID USER")
    assert "load average" in shown
    await desk.keys("h")
    await desk.shows("Help for Interactive Commands")
    await desk.keys("q")
    await desk.shows("PID USER")
    await desk.keys("q")
    await desk.send("echo en''ded\n", "\nended")


async def test_wide_and_combined_characters_are_shown_as_written(desk):
    await desk.begin()
    await desk.send("printf '漢字 e\\u0301 ü 👍|\\n'\n", "\n漢字 e\u0301 ü 👍|")


async def test_the_program_learns_the_size_of_the_users_window(desk):
    await desk.begin()
    desk.terminal.resize(10, 33)
    assert "10 33" in await desk.send("stty size\n", "10 33")
    desk.terminal.resize(0, 10**9)
    assert "of 1x1000]" in await desk.screen_text()


async def test_text_with_control_keys_is_refused(desk):
    await desk.begin()
    for text in ("\x03", "a\x1b[A", ""):
        with pytest.raises(ToolError, match="action keys"):
            await desk.send(text)


async def test_only_running_jobs_with_a_terminal_take_input(desk):
    await desk.say("sleep 1000", background=True)
    for action in ("send", "keys", "screen"):
        with pytest.raises(ToolError, match="j1 has no terminal"):
            await desk.ask(action=action, id="j1", text="x", keys=["Enter"])
        with pytest.raises(ToolError, match="There is no job 'j9'"):
            await desk.ask(action=action, id="j9", text="x", keys=["Enter"])
    await desk.ask(action="stop", id="j1")


def is_open_for_writing(fifo: int) -> bool:
    try:
        return os.read(fifo, 1) != b""
    except BlockingIOError:
        return True


async def test_a_stopped_job_and_its_daemons_are_gone(desk):
    if not desk.is_confined():
        pytest.skip("without the sandbox, processes that left the group stay")
    os.mkfifo(desk.project / "fifo")
    reading = os.open(desk.project / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    try:
        await desk.begin()
        await desk.send(
            "(setsid sleep 1000 > fifo &); sleep 1; echo sta''rted; sleep 1000\n", "started"
        )
        assert is_open_for_writing(reading)
        await desk.ask(action="stop", id="j1")
        await happens(lambda: not is_open_for_writing(reading))
    finally:
        os.close(reading)


async def test_the_log_has_what_left_the_screen_and_the_last_screen(desk):
    await desk.begin("seq 2000; read -p 'more? ' x; echo end", "more?")
    assert (await desk.ask(action="read", id="j1")).startswith("1\n2\n")
    await desk.send("y\n")
    await desk.ends()
    lines = desk.log().splitlines()
    assert lines == [*map(str, range(1, 2001)), "more? y", "end"]


async def test_a_flood_costs_a_frontend_little_and_ends_with_the_interrupt_key(desk):
    await desk.begin()
    drawing = Drawing(desk.terminal)
    await desk.send("yes 0123456789012345678901234567890123456789\n")
    before = desk.terminal.left_count
    await happens(lambda: desk.terminal.left_count > before + 20_000)
    assert len(drawing.update()) < 20_000
    await desk.keys("C-c")
    await desk.send("echo do''ne\n", "done")


# --- what the user does ------------------------------------------------------------------------------------------------


async def test_while_the_user_has_the_terminal_the_model_neither_sees_nor_sends(desk):
    await desk.begin()
    desk.terminal.take(desk)
    assert await desk.screen_text() == (
        "(no output)\n[j1 has a terminal · the user has the terminal: wait for it with wait_s]"
    )
    for given in ({"action": "send", "text": "x"}, {"action": "keys", "keys": ["Enter"]}):
        with pytest.raises(ToolError, match="nothing was sent"):
            await desk.ask(id="j1", **given)
    desk.terminal.hand_back(desk)
    await desk.settles()
    await desk.send("echo he''re\n", "here")
    assert "x" not in desk.whole_screen()


async def test_what_the_user_does_not_have_takes_no_keys(desk):
    await desk.begin()
    desk.terminal.type(b"echo unexpected\r")
    await desk.send("echo he''re\n", "here")
    assert "unexpected" not in desk.whole_screen()


async def test_a_password_is_neither_seen_nor_logged_and_what_follows_is(desk):
    await desk.begin(
        "read -r -s -p 'password: ' p; echo; until [ -e go ]; do sleep 0.1; done; echo \"len ${#p}\"; read x",
        "password:",
    )
    await desk.user_types("correct horse\r")
    await desk.settles()
    (desk.project / "go").touch()
    shown = await desk.shows("len 13")
    assert "horse" not in shown
    await desk.send("\n")
    await desk.ends()
    assert "horse" not in desk.log()
    assert "len 13" in desk.log()


async def test_sudo_gets_a_password_that_the_model_does_not_see(desk):
    if not shutil.which("sudo") or not shutil.which("setpriv"):
        pytest.skip("sudo or setpriv is not installed")
    if os.getuid():
        pytest.skip(
            "sudo asks root nothing, and another user's wrong passwords may lock the account"
        )
    if desk.is_confined():
        pytest.skip("the sandbox lets no program become root")
    nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    await desk.begin(f"cd /; {nobody} sudo -S -k -p 'Password of %u: ' true", "Password of nobody:")
    await desk.user_types("correct horse\r", "Sorry")
    await desk.settles()
    shown = await desk.send("wrong\n", "Sorry, try again.\nPassword of nobody:")
    await desk.keys("C-c")
    await desk.ends()
    assert "horse" not in shown + desk.log() + desk.whole_screen()


async def test_the_model_can_wait_until_the_user_hands_back(desk):
    await desk.begin()
    desk.terminal.take(desk)
    told: list[str] = []

    async def wait() -> None:
        told.append(await desk.ask(action="screen", id="j1", wait_s=60))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        desk.terminal.type(b"echo secret\r")
        await happens(lambda: "\nsecret" in desk.whole_screen())
        assert told == []
        desk.terminal.hand_back(desk)
    assert "secret" not in told[0]
    assert HIDDEN in told[0]


async def test_a_job_that_ends_while_the_user_has_its_terminal_is_reported(desk):
    await desk.begin("read -s x; exit 3", "")
    desk.terminal.take(desk)
    desk.terminal.type(b"secret\r")
    told = await desk.ask(action="screen", id="j1", wait_s=60)
    await desk.ends()
    told += await desk.ask(action="screen", id="j1")
    assert "[exit status 3 · " in told
    assert "secret" not in told + desk.log()


async def test_an_echo_that_comes_long_after_the_hand_back_is_hidden(desk):
    await desk.begin()
    await desk.send("until [ -e go ]; do sleep 0.1; done\n")
    await desk.user_types("echo typed-ahead-of-time\r")
    await anyio.sleep(2 * module.SETTLE_S)
    assert desk.terminal.screen.hides  # the shell has not read it
    (desk.project / "go").touch()
    await desk.settles()
    shown = await desk.send("echo af''ter\n", "after")
    assert "ahead" not in shown


async def test_what_the_shell_brings_back_from_its_history_is_hidden(desk):
    await desk.begin()
    await desk.user_types("echo my-old-secret\r", "\nmy-old-secret")
    await desk.settles()
    await desk.send("clear\n")
    await desk.keys("Up Up")
    await happens(lambda: "my-old-secret" in desk.whole_screen())
    shown = await desk.screen_text()
    assert "old" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize("edit", ["BSpace", "C-a C-d C-d C-d C-d C-d C-d C-l", "M-b M-d"])
async def test_a_line_of_the_history_stays_hidden_when_the_model_edits_it(desk, edit):
    await desk.begin()
    await desk.user_types("echo my-old-secret\r", "\nmy-old-secret")
    await desk.settles()
    await desk.send("clear\n")
    await desk.keys(f"Up Up {edit}")
    await happens(lambda: "y-old-" in desk.whole_screen())
    assert "old" not in await desk.screen_text()


async def test_a_narrower_window_does_not_show_what_the_user_typed(desk):
    await desk.begin()
    await desk.user_types(": my-old-secret\r", ": my-old-secret")
    await desk.settles()
    desk.terminal.type_text("clear; history | tail -n 2 | head -n 1\n")
    await happens(lambda: "1  : my-old-secret" in desk.whole_screen())
    desk.terminal.resize(24, 18)
    assert "my-o" not in await desk.screen_text()


async def test_what_is_repeated_and_leaves_the_screen_unseen_is_hidden_in_the_log(desk):
    await desk.begin()
    await desk.user_types("echo my-old-secret\r", "\nmy-old-secret")
    await desk.settles()
    await desk.send("clear; history; seq 100; echo do''ne\n", "done")
    assert "my-old-secret" not in desk.log()
    assert HIDDEN in desk.log()
    assert "\n50\n" in desk.log()


async def test_the_cursor_does_not_reveal_how_long_a_hidden_text_is(desk):
    await desk.begin("cat", "")
    assert "column 1 " in await desk.screen_text()
    await desk.user_types("pass", "pass")
    await desk.settles()
    shown = await desk.screen_text()
    assert HIDDEN in shown
    assert "cursor at row 1 of 24x80" in shown


async def test_the_user_can_show_what_is_hidden(desk):
    await desk.begin()
    await desk.user_types("echo not secret\r", "\nnot secret")
    await desk.settles()
    assert "not secret" not in await desk.screen_text()
    desk.terminal.reveal()
    assert "\nnot secret" in await desk.screen_text()


async def test_node_keeps_no_file_of_what_the_user_typed(desk):
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    await desk.begin("HOME=$PWD exec node", ">")
    await desk.user_types("'typed-by-the-user'\r", "typed-by-the-user")
    await desk.settles()
    await desk.send(".exit\n")
    await desk.ends()
    assert not (desk.project / ".node_repl_history").exists()


async def test_what_the_program_answers_at_once_after_the_hand_back_is_hidden(desk, monkeypatch):
    monkeypatch.setattr(module, "SETTLE_S", 1.5)
    await desk.begin("read -s -p 'code: ' x; sleep 0.3; echo \"code $x\"; read y", "code:")
    await desk.user_types("k7\r")  # too short to be found again later
    await happens(lambda: "code k7" in desk.whole_screen())
    await desk.settles()
    shown = await desk.screen_text()
    assert "k7" not in shown
    assert HIDDEN in shown


SEED = 4_343
HANDOVERS = 1_000
# Bash alone, on a terminal without Sanderling, ends once in some thousand interrupts: it reads an end of file.
SHELLS = f"trap : INT; while :; do ({SHELL}); done"


async def test_after_a_thousand_handovers_nothing_the_user_typed_is_in_the_log_or_the_models_view(
    desk, monkeypatch
):
    monkeypatch.setattr(module, "SETTLE_S", 0.01)  # sooner than any user, and than the programs
    source = random.Random(SEED)
    await desk.begin(SHELLS)
    typed: list[str] = []
    views = [""]
    for number in range(HANDOVERS):
        if number % 25 == 0:
            await desk.settles()
            with anyio.fail_after(DEADLINE_S):
                while f"model {number}" not in views[-1]:  # an interrupt may drop what follows it
                    await desk.keys("C-c")
                    views.append(await desk.send(f"echo mod''el {number}\n"))
        word = "".join(
            source.choices(string.ascii_letters + string.digits + "äöü漢", k=source.randint(5, 30))
        )
        typed.append(word)
        line = source.choice((": {}", "echo {}", "{}", "printf {} >&2", "read -s x; {}"))
        end = source.choice(("\r", "\r", "\r", "\x15", "\x03"))
        desk.terminal.take(desk)
        data = line.format(word).encode() + end.encode()
        at = source.randint(0, len(data))
        desk.terminal.type(data[:at])
        if source.random() < 0.5:
            await anyio.sleep(source.random() * 0.01)
        desk.terminal.type(data[at:])
        if source.random() < 0.5:
            await anyio.sleep(source.random() * 0.02)
        desk.terminal.hand_back(desk)
        views.append(await desk.screen_text())
    await desk.settles()
    await desk.keys("C-c")
    await desk.send("echo la''st\n", "last")
    views.append(await desk.screen_text())
    await desk.keys("C-d")
    await desk.ask(action="stop", id="j1")
    views += [await desk.ask(action="read", id="j1"), desk.log(), *desk.shown]
    everything = "\n".join(views)
    assert "model 40" in everything
    assert [word for word in typed if word in everything] == []


async def test_another_command_cannot_open_the_terminal(desk):
    if not desk.is_confined():
        pytest.skip("without the sandbox, every program of the user can")
    await desk.begin()
    assert (await desk.say("ls /dev/pts; cat /dev/pts/0")).startswith(
        "ptmx\ncat: /dev/pts/0: No such file or directory\n"
    )


# --- permissions -------------------------------------------------------------------------------------------------------


def decided(desk: TerminalDesk, mode: Any, *rules: str, **data: str) -> str:
    effect = jobs.effect(jobs.parse({"id": "j1", **data}), desk.workspace)
    given = [
        Rule(action=action, tool="bash", command=command)  # type: ignore[arg-type]
        for action, _, command in (rule.partition(" bash ") for rule in rules)
    ]
    return decide(effect, mode, given, project=str(desk.project), is_confined=True).action


async def test_text_for_a_shell_is_judged_as_a_command(desk):
    await desk.begin("bash --norc", "bash-")
    send = {"action": "send", "text": "make test\n"}
    assert decided(desk, "ask", **send) == "ask"
    assert decided(desk, "auto", **send) == "allow"
    assert decided(desk, "ask", "allow bash make test", **send) == "allow"
    assert decided(desk, "auto", "deny bash make", **send) == "deny"
    assert decided(desk, "ask", action="send", text="cat README\n") == "ask"
    assert decided(desk, "ask", action="screen") == "allow"
    assert decided(desk, "ask", action="list") == "allow"


async def test_a_line_that_is_typed_in_parts_is_judged_as_a_whole(desk):
    await desk.begin("bash --norc", "bash-")
    await desk.send("git pu")
    assert decided(desk, "auto", "deny bash git push", action="send", text="sh\n") == "deny"
    await desk.send("sh")
    assert decided(desk, "auto", "deny bash git push", action="keys", keys=["Enter"]) == "deny"


async def test_parts_of_a_line_in_one_message_are_judged_as_a_whole(tmp_path):
    parts = [
        ("jobs", {"action": "send", "id": "j1", "text": text}) for text in ("touch nev", "er\n")
    ]
    begin = ("bash", {"command": "exec bash --norc", "pty": True})
    rules = (rule_from_text("deny bash touch never"),)
    talk = Talk(tmp_path, begin, uses(*parts), mode="auto", rules=rules)
    await talk.run("once")
    assert [result.is_error for result in talk.results] == [False, False, True]
    assert "A rule forbids this" in talk.told(2)
    assert not (talk.project / "never").exists()


@pytest.mark.parametrize("beginning", ["git \\\n", "git pu\\\n", "if true; then\n", "echo 'a\n"])
async def test_a_command_of_several_lines_is_judged_as_a_whole(desk, beginning):
    await desk.begin("bash --norc", "bash-")
    deny, end = "deny bash git push", "sh\n" if "pu" in beginning else "push\n"
    await desk.send(beginning)
    assert decided(desk, "auto", deny, action="send", text=end) in ("ask", "deny")
    assert decided(desk, "auto", "deny bash git", action="send", text="'; git push\n") != "allow"
    await desk.keys("C-c")
    assert decided(desk, "auto", deny, action="send", text="make\n") == "allow"


@pytest.mark.parametrize("text", ["git pus\t\n", "fc -s pusx=push\n", "true; r x=h\n"])
async def test_completion_and_the_history_may_make_any_line(desk, text):
    await desk.begin("bash --norc", "bash-")
    deny = "deny bash git push"
    assert decided(desk, "auto", deny, action="send", text=text) == "ask"
    desk.terminal.type_text(text.removesuffix("\n"))
    assert decided(desk, "auto", deny, action="keys", keys="Enter") == "ask"


async def test_what_the_terminal_answers_may_be_a_part_of_the_line(desk):
    await desk.begin("bash --norc", "bash-")
    assert decided(desk, "ask", "allow bash make", action="send", text="make\n") == "allow"
    await desk.send(r"printf '\033[c'" + "\n")
    assert decided(desk, "ask", "allow bash make", action="send", text="make\n") == "ask"


async def test_what_the_model_typed_ahead_is_dropped_when_the_user_takes_over(desk):
    await desk.begin_counting()
    desk.terminal.type_text("x" * 500_000)
    await anyio.wait_all_tasks_blocked()
    desk.terminal.take(desk)
    assert await desk.counted_until_z() == 1


async def test_a_line_that_the_model_began_does_not_precede_the_users_password(desk):
    await desk.begin("read -r -s -p 'password: ' p; echo \"len ${#p}\"; exec cat", "password:")
    await desk.send("model")
    await desk.user_types("secret\r", "len 6")


async def test_input_of_the_model_that_would_not_fit_is_refused(desk):
    await desk.begin_counting()
    half = "x" * (module.MAX_UNSENT_BYTES // 2 + 100_000)
    desk.terminal.type_text(half)
    for given in ({"action": "send", "text": half}, {"action": "send", "text": 2 * half}):
        with pytest.raises(ToolError, match="nothing was sent"):
            await desk.ask(id="j1", **given)
    (desk.project / "go").touch()
    await desk.send("Z", f"got {len(half) + 1} .")


async def test_a_paste_of_the_user_arrives_whole_and_is_remembered(desk):
    await desk.begin_counting()
    desk.terminal.take(desk)
    pasted = "".join(f"{number:019}\r" for number in range(55_000)) + "the last line\r"
    desk.terminal.type(pasted.encode())
    assert await desk.counted_until_z() == len(pasted) + 1
    desk.terminal.hand_back(desk)
    await desk.settles()
    desk.terminal.type_text("\nthe last li, not\n")
    await happens(lambda: "the last li, not" in desk.whole_screen())
    assert f"{HIDDEN}, not" in await desk.screen_text()


async def test_a_program_that_does_not_read_the_terminals_answers_gets_no_more(desk):
    await desk.begin_counting("\x1b[c" * 50_000)
    (desk.project / "go").touch()
    found = re.search(r"got (\d+)", await desk.send("Z", "got"))
    assert found
    assert int(found[1]) < 100_000


async def test_what_the_user_typed_ahead_is_not_dropped_when_the_user_takes_over_again(desk):
    await desk.begin_counting()
    desk.terminal.type_text("dropped")
    desk.terminal.take(desk)
    desk.terminal.type(b"x" * 500_000)
    await anyio.wait_all_tasks_blocked()
    desk.terminal.hand_back(desk)
    desk.terminal.take(desk)
    assert await desk.counted_until_z() == 500_001


async def test_keys_that_may_complete_a_denied_line_are_asked_about(desk):
    await desk.begin("bash --norc", "bash-")
    deny = "deny bash git push"
    assert decided(desk, "auto", action="keys", keys="Up Enter") == "allow"
    assert decided(desk, "auto", deny, action="keys", keys="Up Enter") == "ask"
    await desk.keys("Tab")
    assert decided(desk, "auto", deny, action="send", text="x\n") == "ask"


@pytest.mark.parametrize("before", ["cd sub\n", "alias make=rm\n", "make() { rm; }\n", "PATH=.\n"])
async def test_an_allow_rule_does_not_cover_a_shell_that_was_changed(desk, before):
    await desk.begin("bash --norc", "bash-")
    await desk.send(before)
    assert decided(desk, "ask", "allow bash make", action="send", text="make\n") == "ask"


async def test_an_allow_rule_does_not_cover_other_programs(desk):
    await desk.begin("python3 -q", ">>>")
    assert decided(desk, "ask", "allow bash make", action="send", text="make\n") == "ask"


async def test_an_allow_rule_does_not_cover_what_follows_the_users_input(desk):
    await desk.begin("bash --norc", "bash-")
    await desk.user_types("git pu", "git pu")
    assert decided(desk, "ask", "allow bash make", action="send", text="make\n") == "ask"
    assert decided(desk, "auto", "deny bash git push", action="send", text="sh\n") == "ask"


async def test_a_terminal_with_more_access_than_the_mode_gives_is_asked_about(desk):
    await desk.begin("bash --norc", "bash-")
    send = {"action": "send", "text": "touch x\n"}
    desk.sandbox.effective_policy.set_mode("ro")
    if desk.is_confined():
        assert decided(desk, "plan", **send) == "ask"


async def test_what_is_allowed_for_the_session_is_this_input_in_this_terminal(tmp_path):
    keys = ("jobs", {"action": "keys", "id": "j1", "keys": "Up"})
    other = ("jobs", {"action": "keys", "id": "j1", "keys": "Down"})
    begin = ("bash", {"command": "exec cat", "pty": True})
    talk = Talk(tmp_path, begin, keys, keys, other)
    await talk.run("once", "session", "deny")
    assert [question.title for question in talk.questions[1:]] == ["keys j1 Up", "keys j1 Down"]


# --- where there are none ----------------------------------------------------------------------------------------------


async def test_a_level_without_terminals_says_so(tmp_path):
    desk = TerminalDesk(tmp_path, level="landlock")
    async for served in in_own_task(desk.served()):
        with pytest.raises(ToolError, match="level 'landlock' has no terminals"):
            await served.say("bash", pty=True)
        assert served.reports() == []


# --- the conversation --------------------------------------------------------------------------------------------------


async def test_no_record_of_a_session_has_what_the_user_typed(tmp_path):
    secret = "correct-horse-battery"
    pty = ("bash", {"command": "read -r -s -p 'password: ' p; echo ok; exec cat", "pty": True})
    screen = ("jobs", {"action": "screen", "id": "j1", "wait_s": 30})
    talk = Talk(tmp_path, pty, [{"text": "Take it."}], screen, mode="auto")
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Begin."))
        act = talk.conversation.act
        act(WatchJob("j1"))
        act(ResizeTerminal("j1", 10, 40))
        act(UseTerminal("j1", "take"))
        act(TypeInTerminal("j1", f"{secret}\r{secret}\r".encode()))
        await happens(lambda: secret in "".join(each.text for each in talk.of(JobOutput)))
        act(UseTerminal("j1", "hand_back"))
        await talk.run_turns(Prompt("p2", "Go on."))
        job = talk.services.workspace.jobs.find("j1")
        assert job.terminal
        assert job.terminal.screen.columns == 40
        await job.stop()
        log = job.log.path.read_bytes()
    assert HIDDEN in str(talk.results[-1].content)
    others = [event for event in talk.events if not isinstance(event, JobOutput)]
    records = [path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert secret not in str(others)
    assert [record for record in (log, *records) if secret.encode() in record] == []
    assert secret not in repr(TypeInTerminal("j1", secret.encode()))


async def test_a_frontend_that_watches_no_longer_hands_the_terminal_back(tmp_path):
    talk = Talk(tmp_path, ("bash", {"command": "exec cat", "pty": True}), mode="auto")
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Begin."))
        terminal = talk.services.workspace.jobs.find("j1").terminal
        assert terminal
        talk.conversation.act(WatchJob("j1"))
        talk.conversation.act(UseTerminal("j1", "take"))
        assert terminal.is_users
        talk.conversation.act(WatchJob("j1", is_on=False))
        assert not terminal.is_users


async def test_one_of_two_frontends_that_closes_its_view_leaves_the_terminal_to_the_other(tmp_path):
    talk = Talk(tmp_path, ("bash", {"command": "exec cat", "pty": True}), mode="auto")
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Begin."))
        terminal = talk.services.workspace.jobs.find("j1").terminal
        assert terminal
        events: list[Event] = []
        first, second = talk.conversation.views, talk.conversation.views.seen_by(events.append)
        for frontend in (first, second):
            frontend.show(WatchJob("j1"))
        await happens(lambda: events)
        second.show(UseTerminal("j1", "take"))
        first.show(WatchJob("j1", is_on=False))
        assert terminal.is_users
        first.show(UseTerminal("j1", "take"))
        second.show(UseTerminal("j1", "hand_back"))
        assert terminal.is_users
        second.show(UseTerminal("j1", "take"))
        first.show(UseTerminal("j1", "hand_back"))
        second.close()
        assert not terminal.is_users
        count = len(events)
        terminal.take(talk)
        terminal.type(b"unseen\r")
        await happens(lambda: "unseen" in "".join(terminal.screen.rows[0].cells))
        terminal.hand_back(talk)
        await happens(lambda: not terminal.screen.hides)
        assert len(events) == count, "the view of a frontend that is gone"
