"""The model's commands in the real sandbox, and without one: what carries over, what is told, what is left, what it costs."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.conftest import DEADLINE_S, find_neovim, happens, prove, prove_rest, running
from tests.sandboxes import in_own_task, kept, policy_below, sandbox_of
from tests.workspaces import workspace_of

from sanderling.errors import ToolError
from sanderling.sandbox.denials import Denial
from sanderling.tools.base import Context
from sanderling.tools.bash import BashInput, bash
from sanderling.tools.commands.jobs import Jobs
from sanderling.tools.commands.output import MAX_SCREEN_CHARS
from sanderling.tools.commands.shell import MAX_COMMAND_BYTES, Shell, ShellState, first_line
from sanderling.tools.jobs import JobsInput, jobs
from sanderling.tools.outcome import Outcome

ROOT = Path(__file__).resolve().parents[2]
MAX_CONTENT_BYTES = 30_000


class Desk:
    """A project, its sandbox, and what the tools of a session share."""

    def __init__(self, base: Path, *, is_confined: bool = True, **changes: Any) -> None:
        self.base, self.project = base, base / "home" / "project"
        (self.project / ".git").mkdir(parents=True, exist_ok=True)
        self.sandbox = sandbox_of(policy_below(base, **changes), self._hear, is_on=is_confined)
        self.changes = 0
        self.shown: list[str] = []

    @asynccontextmanager
    async def served(self) -> AsyncIterator["Desk"]:
        async with kept(self.sandbox, DEADLINE_S * 2) as tasks:
            self.workspace = workspace_of(
                self.project, self.sandbox, start=tasks.start_soon, on_change=self._change
            )
            yield self

    @property
    def shell(self) -> Shell:
        return self.workspace.shell

    @property
    def jobs(self) -> Jobs:
        return self.workspace.jobs

    @property
    def screen(self) -> str:
        return "".join(self.shown)

    async def run(self, command: str, **options: Any) -> Outcome:
        context = Context(self.workspace, options.pop("tool_use_id", "t1"), self.shown.append)
        return await bash.run(bash.parse({"command": command} | options), context)

    async def say(self, command: str, **options: Any) -> str:
        """What the model is told of a command."""
        content = (await self.run(command, **options)).content
        assert isinstance(content, str)
        assert len(content.encode()) <= MAX_CONTENT_BYTES
        return content

    async def ask(self, **data: Any) -> str:
        """What the tool `jobs` answers."""
        outcome = await jobs.run(jobs.parse(data), Context(self.workspace, "t2", self.shown.append))
        assert isinstance(outcome.content, str)
        assert len(outcome.content.encode()) <= MAX_CONTENT_BYTES
        return outcome.content

    def is_confined(self) -> bool:
        return self.sandbox.environment.is_confined

    def reports(self) -> list[Path]:
        """The files in which shells report, and have not been taken away."""
        return list((self.base / "state" / "tmp").glob("*/.sanderling-*"))

    def _hear(self, event: object) -> None:
        if isinstance(event, Denial):
            self.jobs.denied(event)

    def _change(self) -> None:
        self.changes += 1


@pytest.fixture(params=prove_rest(["sandbox", "off"], keep=(0,)))
async def desk(tmp_path, request) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path, is_confined=request.param == "sandbox")
    async for served in in_own_task(desk.served()):
        yield served


@pytest.fixture
async def confined(tmp_path) -> AsyncIterator[Desk]:
    async for served in in_own_task(Desk(tmp_path).served()):
        yield served


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# --- how a command ends ------------------------------------------------------------------------------------------------


async def test_output_and_status_are_told(desk):
    outcome = await desk.run("echo out; echo err >&2")
    assert outcome.content.startswith("out\nerr\n[exit status 0 · ")
    assert not outcome.is_error
    assert outcome.summary.startswith("✓ ")


@pytest.mark.parametrize(
    "command, told",
    prove_rest(
        [
            ("exit 3", "[exit status 3 · "),
            ("set -e; false; echo not reached", "[exit status 1 · "),
            ("no-such-program", "[exit status 127 · "),
            ("kill -9 $$", "[ended by SIGKILL · "),
            ("kill -SEGV $$", "[ended by SIGSEGV · "),
            ("bash -c 'kill -9 $$'", "[exit status 137 (SIGKILL) · "),
            ("kill -36 $$", "[ended by signal 36 · "),
            ("exit 255", "[exit status 255 · "),
            ("(", "[exit status 2 · "),
            ("echo 'unclosed", "[exit status 2 · "),
        ],
        keep=(0,),
    ),
)
async def test_failure_is_told_as_one(desk, command, told):
    outcome = await desk.run(command)
    assert told in outcome.content
    assert "not reached" not in outcome.content
    assert outcome.is_error


@prove
async def test_syntax_error_is_the_commands_own(desk):
    assert (await desk.say("echo fine\nif then")).startswith(
        "fine\nbash: eval: line 2: syntax error near unexpected token `then'"
    )


UNFINISHED = [
    *("true \\", "echo a \\\n", "echo 'abc", 'echo "abc', "echo $(date", "echo `date", "echo ${x"),
    *("[[ a", "(", "{ echo a", "echo a |", "echo a &&", "cat <<E", "cat <<E \\", "cat <<E\nx"),
    *("echo a # b \\", "echo a\r\necho b\r\n", "if true", 'export B=2; cd /; echo "abc'),
]


@pytest.mark.parametrize("line", prove_rest(UNFINISHED, keep=(0, 2, 4)))
async def test_line_without_its_end_does_what_bash_does_with_it(desk, line):
    """The line as bash runs it with `-c`: its status, its output, the directory and variables that it leaves."""
    await desk.say(f"mkdir -p sub; cd sub; export A=1\n{line}")
    told = (await desk.run(line)).content
    ran = await anyio.run_process(["bash", "-c", line], stderr=subprocess.STDOUT, check=False)
    shown, _, status = told.rpartition("[exit status ")
    expected = ran.stdout.decode().replace(" -c:", " eval:") or "(no output)"
    assert status.startswith(f"{ran.returncode} · ")
    assert " ".join(shown.split()) == " ".join(expected.split())
    assert (await desk.say('echo "$A $PWD"')).startswith(f"1 {desk.project}/sub\n")


@prove
async def test_lines_count_from_one(desk):
    told = await desk.say("echo $LINENO\n\nno-such-program")
    assert told.startswith("1\nbash: line 3: no-such-program: command not found")


async def test_input_is_empty_and_nothing_waits_for_a_person(desk):
    told = await desk.say(
        "cat; read -r line; echo $?; echo $TERM $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT; tty"
    )
    assert told.startswith("1\ndumb cat cat 0\nnot a tty\n")


@prove
async def test_neither_ci_nor_a_locale_is_forced(desk, monkeypatch):
    for name in ("CI", "LANG", "LC_ALL"):
        monkeypatch.delenv(name, raising=False)
    assert (await desk.say('echo "${CI-unset}${LANG-unset}${LC_ALL-unset}"')).startswith(
        "unsetunsetunset\n"
    )


@prove
async def test_commit_without_a_message_fails_and_with_one_succeeds(desk):
    await desk.say("mkdir repo; cd repo; git init -q; echo x > x; git add x")
    await desk.say("git config user.email a@b; git config user.name a")
    told = await desk.say("git commit -q")
    assert "empty commit message" in told
    assert "[exit status 1 · " in told
    assert "[exit status 0 · " in await desk.say("git commit -q -m one && git commit --amend -q")
    assert "there was a problem with the editor" in (await desk.say("git rebase -i --root")).lower()


@pytest.mark.parametrize("command", ["", "  \n", "echo \0", "echo \ud800", "x" * 200_000])
async def test_command_that_cannot_be_one_is_refused_in_words(desk, command):
    with pytest.raises(ToolError, match=r"The command (is empty|contains|exceeds)"):
        await desk.run(command)


@prove
async def test_long_command_runs(desk):
    line = "echo " + "x" * (MAX_COMMAND_BYTES - 10)
    assert "[exit status 0 · " in await desk.say(line)


@prove
async def test_command_does_not_find_itself(desk):
    assert (await desk.say("pgrep -f 'a-name-of-a-server' || echo none")).startswith("none\n")


async def test_timeout_is_bounded():
    for timeout_s in (0, -1):
        with pytest.raises(ToolError, match="timeout_s"):
            bash.parse({"command": "true", "timeout_s": timeout_s})
    assert bash.parse({"command": "true", "timeout_s": 601}) == BashInput("true", 600)
    parsed = bash.parse({"command": "true"})
    assert isinstance(parsed, BashInput)
    assert parsed.timeout_s == 120


# --- what carries over -------------------------------------------------------------------------------------------------


async def test_directory_carries_over_and_is_told(desk):
    told = await desk.say("mkdir -p 'a b'; cd 'a b'")
    assert "· cwd: a b (changed)]" in told
    told = await desk.say("pwd")
    assert told.startswith(f"{desk.project}/a b\n")
    assert "· cwd: a b]" in told
    assert "· cwd: the project root (changed)]" in await desk.say("cd ..")
    assert "cwd" not in (await desk.say("cd .")).rpartition("[")[2]
    assert (await desk.say("cd -")).startswith(f"{desk.project}/a b\n")


async def test_exported_variables_carry_over_and_are_told(desk):
    told = await desk.say("export A='x y' B=$'1\\n2=3 \"$HOME\" `x` \\\\' C=; D=not-exported")
    assert "· exported: A, B, C]" in told
    told = await desk.say('printf "%s|" "$A" "$B" "${C-unset}" "${D-unset}"')
    assert told.startswith('x y|1\n2=3 "$HOME" `x` \\||unset|')
    assert "exported" not in told.rpartition("[")[2]
    assert "· unset: A]" in await desk.say("unset A; D=")
    assert (await desk.say('echo "${A-unset}"')).startswith("unset\n")


@prove
async def test_variable_that_the_environment_brought_can_be_changed_and_unset(desk, monkeypatch):
    monkeypatch.setenv("CFLAGS", "-O1")
    monkeypatch.setenv("LDFLAGS", "-s")
    assert "exported: CFLAGS · unset: LDFLAGS]" in await desk.say("CFLAGS=-O2; unset LDFLAGS")
    assert (await desk.say('echo "$CFLAGS ${LDFLAGS-unset}"')).startswith("-O2 unset\n")
    assert desk.shell.state().variables == {"CFLAGS": "-O2", "LDFLAGS": None}
    await desk.say("export LDFLAGS=-x")
    assert (await desk.say('echo "$LDFLAGS"')).startswith("-x\n")


@pytest.mark.parametrize(
    "end",
    prove_rest(
        [
            *("", "exit 3", "set -e; false", "set -u; echo $no_such_variable"),
            *("trap 'echo trapped' EXIT", "if then", "set -C; umask 777"),
            "IFS=0123456789abcdefghijklmnopqrstuvwxyz",
            *("set -a; set -f; shopt -s failglob nullglob 2>/dev/null", "exec >/dev/null 2>&1"),
            *("printf() { :; }; pwd() { :; }; echo() { :; }", "set -- -x; shift"),
            *("sleep 0.2 & disown", "cd sub && export LATER=1; kill -TERM $$"),
        ],
        keep=(0, -1),
    ),
)
async def test_state_is_kept_however_the_command_ends(desk, end):
    await desk.say(f"mkdir -p sub; cd sub\nexport A=1\n{end}")
    told = await desk.say('echo "$A $PWD"')
    assert told.startswith(f"1 {desk.project}/sub\n"), told


@prove
async def test_trace_shows_the_command_alone(desk):
    told = await desk.say("set -x; true; cd /")
    assert told.startswith("++ true\n++ cd /\n[exit status 0")


@prove
@pytest.mark.parametrize("command", ["cd /; export A=1; exec true", "cd /; export A=1; kill -9 $$"])
async def test_command_that_replaces_the_shell_changes_nothing_and_that_is_told(desk, command):
    told = await desk.say(command)
    assert "The shell was replaced or killed: its directory and variables are unchanged." in told
    assert (await desk.say('echo "${A-unset} $PWD"')).startswith(f"unset {desk.project}\n")


@prove
async def test_nothing_runs_elsewhere_when_its_directory_is_gone_and_that_is_told(desk):
    """It was judged by what lies there: `cat notes` is harmless in one directory, and a link out of the project in another."""
    await desk.say("mkdir sub; cd sub")
    (desk.project / "sub").rmdir()
    told = await desk.say("touch ran; echo ran")
    assert "\nran" not in f"\n{told}"
    assert (
        "[Nothing was run: sub was deleted or is inaccessible. The shell is now in the project root.]"
        in told
    )
    assert not (desk.project / "ran").exists()
    told = await desk.say("pwd")
    assert told.startswith(f"{desk.project}\n")
    assert "inaccessible" not in told


async def test_cd_goes_by_no_list_of_directories_that_a_command_has_left(desk):
    await desk.say("mkdir -p sub private/sub; export CDPATH=private")
    assert f"{desk.project}/sub\n" in await desk.say("cd sub; pwd")


@prove
async def test_directory_that_the_command_itself_deletes_is_survived(desk):
    await desk.say("mkdir sub; cd sub; rmdir ../sub")
    assert "sub was deleted or is inaccessible" in await desk.say("pwd")


@prove
async def test_path_that_leads_nowhere_does_not_break_the_shell(desk):
    await desk.say("export PATH=/nowhere LD_PRELOAD=/no.so BASH_ENV=/no ENV=/no POSIXLY_CORRECT=1")
    told = await desk.say("export PATH=/usr/bin:/bin; unset LD_PRELOAD; ls -d /")
    assert told.splitlines()[-2] == "/"
    assert (await desk.say("ls -d /")).startswith("/\n")


async def test_what_belongs_to_the_sandbox_is_not_carried_over(confined):
    told = await confined.say(
        "export HOME=/x TMPDIR=/x SANDERLING_SANDBOX=none http_proxy=http://x TERM=xterm KEPT=1"
    )
    assert "exported: KEPT]" in told
    told = await confined.say("echo $HOME $TMPDIR $SANDERLING_SANDBOX ${http_proxy-none} $TERM")
    level = confined.sandbox.facts.level
    assert told.startswith(f"{confined.base}/home /tmp {level} none dumb\n")


@prove
async def test_commands_side_by_side_keep_each_others_changes(desk):
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(desk.say, f"export V{number}={number}; sleep 0.2")
    assert (await desk.say("echo $V0$V1$V2$V3")).startswith("0123\n")


@prove
async def test_too_large_a_variable_is_not_kept_and_that_is_told(desk):
    told = await desk.say("export BIG=$(head -c 40000 /dev/zero | tr '\\0' x) SMALL=1")
    assert "[Too large to keep for the next command: BIG.]" in told
    assert (await desk.say('echo "${BIG-unset} $SMALL"')).startswith("unset 1\n")


@prove
async def test_bytes_that_are_no_text_may_be_as_many_as_others(desk):
    """Bash makes four of each in its report."""
    told = await desk.say(
        r"LC_ALL=C; export BIG=$(head -c 600000 /dev/zero | tr '\0' '\344') SMALL=1"
    )
    assert "[Too large to keep for the next command: BIG.]" in told
    assert (await desk.say('echo "${BIG-unset} $SMALL"')).startswith("unset 1\n")


@prove
async def test_thousand_variables_are_bounded_and_the_shell_works(desk):
    told = await desk.say("for i in {1..1000}; do printf -v V$i %500s; export V$i; done")
    assert "Too large to keep for the next command: V" in told
    assert "exported: V1, V10, V100, V1000, V101, V102, V103, V104 and " in told
    assert (await desk.say("echo fine")).startswith("fine\n")
    assert len(msgspec.json.encode(desk.shell.state())) < 128 * 1024


@prove
async def test_names_that_are_none_and_functions_are_not_carried_over(desk):
    told = await desk.say("f() { :; }; export -f f; exec -a x env 'a b=1' true; true")
    assert "exported" not in told
    assert desk.shell.state().variables == {}


@prove
async def test_state_survives_a_log(desk, tmp_path):
    await desk.say("mkdir sub; cd sub; export A=$'x\\ny' EDITOR=ed; unset USER")
    saved = json.loads(msgspec.json.encode(desk.shell.state()))
    again = Desk(tmp_path, is_confined=desk.is_confined())
    async with again.served():
        again.shell.restore(msgspec.convert(saved, ShellState))
        told = await again.say('echo "$PWD|$A|$EDITOR|$OLDPWD"')
        assert told.startswith(f"{desk.project}/sub|x\ny|ed|{desk.project}\n")
        assert "· cwd: sub]" in told


@pytest.mark.parametrize(
    "line",
    prove_rest(["", "LC_ALL=C", "LC_ALL=C.UTF-8", "set -o posix", "set -fu; IFS=A"], keep=(0,)),
)
async def test_each_byte_carries_over_whatever_the_shell_is_set_to(desk, line):
    each = bytes(range(1, 256))
    escaped = "".join(f"\\{byte:03o}" for byte in each)
    told = await desk.say(f"{line}\nexport A=$'{escaped}' B=\"$'\\n'\\\\1\" C; readonly A")
    assert "· exported: A, B" in told
    told = await desk.say('printf %s "$A" | od -An -v -tx1; printf %s "$B|${C-unset}"')
    *dump, last = told.rpartition("\n[")[0].splitlines()
    assert bytes.fromhex("".join(dump)) == each
    assert last == "$'\\n'\\1|unset"


@prove
async def test_bytes_that_are_no_text_carry_over_but_not_into_the_log(desk):
    await desk.say("export BYTES=$'caf\\xe9' TEXT=1; mkdir $'d\\xff'; cd $'d\\xff'")
    assert (await desk.say("printf %s $BYTES | od -An -tx1")).startswith(" 63 61 66 e9\n")
    assert "cwd: d\\udcff]" in await desk.say("true")
    state = desk.shell.state()
    assert state.variables == {"TEXT": "1"}
    assert state.cwd == str(desk.project)
    msgspec.json.encode(state)


async def test_restored_state_is_not_trusted(desk):
    variables: dict[str, str | None] = {
        "x; touch planted": "1",
        "HOME": "/x",
        "GOOD": "';touch planted;'",
    }
    desk.shell.restore(ShellState("/no/such; touch planted", variables))
    assert "inaccessible" in await desk.say("true")
    assert (await desk.say("echo $GOOD; ls")).startswith("';touch planted;'\n[")


async def test_report_that_a_command_forges_reaches_no_file_and_no_host(confined):
    """It puts a link in the place of the file that the shell reports in; what it wins is its own next environment."""
    secret = confined.base / "secret"
    secret.write_text(".cwd=/\n\0.oldpwd=\0.lost=\0STOLEN=1\0.end=\0")
    told = await confined.say(
        f"for f in /tmp/.sanderling-*; do rm $f; ln -s {secret} $f; done; export A=1"
    )
    assert "STOLEN" not in told
    assert "unchanged" in told
    assert secret.read_text().startswith(".cwd=/")
    assert confined.reports() == []
    report = "printf '.cwd=/\\n\\0.oldpwd=\\0.lost=\\0FORGED=1\\0bad name=1\\0.end=\\0'"
    told = await confined.say(f"for f in /tmp/.sanderling-*; do {report} >$f; done; kill -9 $$")
    assert "cwd: / (changed)" in told
    assert "exported: FORGED" in told
    assert "· cwd: /]" in await confined.say("true")


@pytest.mark.parametrize("cwd", prove_rest(["..", "-", "sub"]))
async def test_a_report_of_a_relative_directory_is_no_report(confined, cwd):
    """It would be one place for who judges the next command, and another for the shell."""
    await confined.run("mkdir sub")
    forged = f"printf '.cwd={cwd}\\n\\0.oldpwd=\\0.lost=\\0.exported=\\0.end=\\0'"
    told = await confined.say(f'{forged} >"$_sanderling_file"; kill -9 $$')
    assert "unchanged" in told
    assert confined.shell.now.cwd == str(confined.project)
    confined.shell.restore(ShellState(cwd, {}, cwd))
    assert confined.shell.now == ShellState(str(confined.project), {})


async def test_a_reported_directory_is_where_a_shell_would_go_by_its_text(confined):
    """Behind a link, `..` is one place for bash's `cd` and another for the kernel, which those ask who judge the next command."""
    await confined.run("mkdir -p a/b a/x outside; ln -s a/b link; ln -s outside x")
    cwd = f"{confined.project}/link/../x"
    forged = f"printf '.cwd={cwd}\\n\\0.oldpwd={cwd}\\0.lost=\\0.exported=\\0.end=\\0'"
    told = await confined.say(f'{forged} >"$_sanderling_file"; kill -9 $$')
    assert "cwd: x (changed)" in told
    there = ShellState(f"{confined.project}/x", {}, f"{confined.project}/x")
    assert confined.shell.now.cwd == there.cwd
    assert confined.shell.now.previous_cwd == there.cwd
    confined.shell.restore(ShellState(cwd, {}, cwd))
    assert confined.shell.now == there


async def test_a_report_of_more_names_than_a_shell_has_is_not_taken_over(confined):
    names = "for n in {1..5000}; do printf 'declare -x A%s=\"\"\\n' $n; done"
    forged = f"printf '.cwd=/\\n\\0.oldpwd=\\0.lost=\\0.exported='; {names}; printf '\\0.end=\\0'"
    told = await confined.say(f'{{ {forged}; }} >"$_sanderling_file"; kill -9 $$')
    assert "unchanged" in told
    assert "exported: B" in await confined.say("export B=1")


@prove
async def test_enormous_report_is_not_read(confined):
    told = await confined.say(
        "for f in /tmp/.sanderling-*; do head -c 9000000 /dev/zero >$f; done; cd /"
    )
    assert "unchanged" in told


@prove
async def test_switching_the_sandbox_off_and_on_keeps_the_state(confined):
    await confined.say("mkdir sub; cd sub; export A=1")
    for is_on in (False, True):
        confined.sandbox.switch(is_on=is_on)
        told = await confined.say('echo "$A $PWD"')
        assert told.startswith(f"1 {confined.project}/sub\n")
        assert "exported" not in told
        assert "unset" not in told


async def test_command_that_began_in_the_sandbox_stays_in_it_when_that_is_switched_off(confined):
    outside = confined.base / "home" / "made"

    async def run() -> None:
        await confined.run(f"touch {outside}")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()  # the sandbox opens
        confined.sandbox.switch(is_on=False)
    assert not outside.exists()


@prove
async def test_shell_without_bash_keeps_the_same(desk, monkeypatch):
    monkeypatch.setattr("sanderling.tools.commands.shell.BASH", ())
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    desk.workspace = workspace_of(desk.project, desk.sandbox, start=desk.jobs._start)
    told = await desk.say("mkdir -p sub; cd sub; export A='x\n=y'; unset USER; exit 3")
    assert "[exit status 3 · " in told
    assert "cwd: sub (changed) · exported: A" in told
    told = await desk.say('echo "$0 $A $PWD"')
    assert told.startswith(f"sh x\n=y {desk.project}/sub\n")
    assert "[exit status 2 · " in await desk.say("(")


# --- output ------------------------------------------------------------------------------------------------------------


async def test_escapes_and_controls_are_gone_and_what_is_no_text_is_escaped(desk):
    told = await desk.say(r"printf '\033[31mred\033[0m \000\007caf\351 \355\240\200 \302\233m\n'")
    assert told.startswith("red caf\\xe9 \\xed\\xa0\\x80 m\n[exit")


@prove
async def test_progress_is_its_last_state_however_long_it_took(desk):
    told = await desk.say("for i in {1..20000}; do printf 'step %s\\r' $i; done; echo done     ")
    assert told.startswith("done")
    assert "left out" not in told
    told = await desk.say("echo begin; for i in {1..20000}; do printf '\\r%s%%' $i; done")
    assert told.startswith("begin\n20000%\n[exit")


async def test_long_output_is_told_by_its_beginning_and_its_end_and_is_whole_in_a_file(desk):
    told = await desk.say("seq 200000")
    assert told.startswith("1\n2\n3\n")
    assert "\n199999\n200000\n[exit status 0" in told
    head, _, tail = told.partition(" bytes are left out here]\n")
    assert len(tail) > 2 * len(head)
    path = told.rstrip().rpartition(": ")[2]
    assert "1288895 /" in await desk.say(f"wc -c {path}")
    assert (await desk.say(f"sed -n 100000p {path}")).startswith("100000\n")


@prove
async def test_binary_output_is_bounded(desk):
    told = await desk.say("head -c 100000 /dev/urandom")
    assert "bytes are left out here]" in told
    told.encode()


@prove
async def test_endless_output_ends_with_the_time_and_is_bounded(desk):
    told = await desk.say("yes", timeout_s=0.5)
    assert "now in the background as j1" in told
    await desk.ask(action="stop", id="j1")
    assert len(desk.screen) < MAX_SCREEN_CHARS + 100


async def test_output_is_shown_while_the_command_runs(desk):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(desk.run, "echo one; printf two; until [ -e end ]; do sleep 0.01; done")
        await happens(lambda: desk.screen == "one\ntwo")
        (desk.project / "end").touch()


@prove
async def test_screen_gets_a_quarter_of_a_mebibyte_and_a_sign(desk):
    await desk.run("seq 200000")
    assert len(desk.screen) < MAX_SCREEN_CHARS + 100
    assert desk.screen.endswith("[Only the first 256 KiB are shown here.]\n")


async def test_file_of_the_output_is_none_that_a_command_has_prepared(confined):
    """The name is not known before, and whoever guesses it finds that a link is not followed."""
    log = (await confined.jobs.launch("true", lambda _: None)).log
    planted = confined.base / "planted"
    log.path.symlink_to(planted)
    log.spill()
    log.add(b"x")
    assert not planted.exists()
    assert "The rest of the output is lost" in log.note()


_MEASURE = """
import asyncio, sys
from pathlib import Path
from tests.unit.test_bash import Desk

def rss_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

async def main():
    async with Desk(Path(sys.argv[1]), is_confined=sys.argv[2] == "sandbox").served() as desk:
        await desk.run("seq 100000")
        before, peak = rss_mb(), 0.0
        running = asyncio.ensure_future(desk.say(sys.argv[3]))
        while not running.done():
            await asyncio.sleep(0.01)
            peak = max(peak, rss_mb())
        files = [path.stat().st_size for path in Path(sys.argv[1]).rglob("*.log")]
        print(peak - before, max(files, default=0))

asyncio.run(main())
"""


@prove
@pytest.mark.parametrize(
    "command",
    ["seq 40000000", "head -c 300000000 /dev/zero | tr '\\0' x", "yes | head -c 300000000"],
    ids=["lines", "one line", "short lines"],
)
@pytest.mark.parametrize("kind", ["sandbox", "off"])
def test_300_mb_of_output_cost_little_memory_and_their_file_is_capped(tmp_path, kind, command):
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, tmp_path, kind, command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/src", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,  # alone it takes 2 s, beside much else 30
        check=True,
    )
    grown_mb, file_bytes = map(float, done.stdout.split())
    print(f"{kind}, {command}: +{grown_mb:.1f} MB")
    assert grown_mb < 10
    assert file_bytes == 64_000_000


# --- what is left ------------------------------------------------------------------------------------------------------


async def test_process_in_the_background_ends_with_its_command_and_that_is_told(desk, marker):
    told = await desk.say(f"{marker} & echo started")
    assert told.startswith("started\n[exit status 0")
    assert "Processes it started were stopped with it. Use background=true for servers." in told
    await happens(lambda: not running(marker))
    assert "Processes it started" not in await desk.say("true & wait")


@pytest.mark.parametrize(
    "way", prove_rest(["setsid", "nohup", "setsid nohup", "(setsid"], keep=(-1,))
)
async def test_nothing_survives_in_the_sandbox(confined, way, marker):
    end = " &)" if way.startswith("(") else " &"
    await confined.say(f"{way} {marker} </dev/null >/dev/null 2>&1{end} echo started")
    await happens(lambda: not running(marker))


async def test_outcome_comes_even_if_the_output_is_held_open(desk, marker):
    told = await desk.say(f"setsid {marker} & sleep 0.1; echo said")
    assert told.startswith("said\n[exit status 0")


@prove
async def test_landlock_alone_leaves_nothing_and_keeps_the_state(tmp_path, marker):
    async with Desk(tmp_path, level="landlock").served() as desk:
        assert (await desk.say(f"setsid {marker} & cd /; export A=1; echo x")).startswith("x\n")
        assert not running(marker)
        told = await desk.say("echo $A $PWD; seq 20000")
        assert told.startswith("1 /\n")
        path = told.rstrip().rpartition(": ")[2]
        assert (await desk.say(f"head -n 2 {path}")).startswith("1 /\n1\n")


# --- pipes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, output, state",
    prove_rest(
        [
            ("(echo a; exit 3) | tail -1", "a", "exit status 0; 3 in the pipe before tail"),
            (
                "cat <<'E' | (cat; exit 4) | cat\nx | y\nE",
                "x | y",
                "exit status 0; 4 in the pipe before cat",
            ),
            (
                "(exit 3) | (exit 5)",
                "(no output)",
                "exit status 5; 3 in the pipe before the next part",
            ),
            ("set -o pipefail; (exit 3) | cat", "(no output)", "exit status 3"),
            ("set -e; (exit 3) | cat; echo on", "on", "exit status 0"),
            ("set -eu; (exit 3) | cat", "(no output)", "exit status 0; 3 in the pipe before cat"),
            (
                "set -x; (exit 3) | cat",
                "++ cat\n++ exit 3",
                "exit status 0; 3 in the pipe before cat",
            ),
            (
                "trap 'echo at the end $?' EXIT; (exit 3) | (exit 4)",
                "at the end 4",
                "exit status 4; 3 in the pipe before the next part",
            ),
            (
                "trap 'echo ERR $?' ERR; (exit 3) | cat",
                "(no output)",
                "exit status 0; 3 in the pipe before cat",
            ),
            ("exec 3>&1; exec cat < <(echo a | (cat; exit 3))", "a", "exit status 0"),
            ("echo a | tee >(cat >/dev/null) | cat", "a", "exit status 0"),
            ("false | true; exit 6", "(no output)", "exit status 6"),
            ("echo $LINENO | cat", "1", "exit status 0"),
            ("! (exit 2) | true", "(no output)", "exit status 1; 2 in the pipe before true"),
            ("yes | head -1", "y", "exit status 0"),
        ]
    ),
)
async def test_failed_part_of_a_pipe_is_reported_and_nothing_else_changes(
    desk, command, output, state
):
    outcome = await desk.run(command)
    assert isinstance(outcome.content, str)
    lines = outcome.content.split("\n")
    at = next(number for number, line in enumerate(lines) if line.startswith("[exit status"))
    assert sorted(lines[:at]) == sorted(output.split("\n"))
    assert lines[at].startswith(f"[{state} · ")
    assert outcome.is_error == (state != "exit status 0")
    assert outcome.summary.startswith("✓" if state == "exit status 0" else state)


async def test_shell_keeps_its_state_after_a_pipe_that_failed_in_part(desk):
    told = await desk.say("mkdir sub; cd sub; export A=1; (exit 3) | cat")
    assert "3 in the pipe before cat · " in told
    assert "cwd: sub (changed) · exported: A" in told
    assert (await desk.say("echo $A | cat")).startswith("1\n[exit status 0 · ")


async def test_failed_part_of_a_pipe_in_the_background_is_reported(desk):
    await desk.say("until [ -e go ]; do sleep 0.01; done; (exit 3) | cat", background=True)
    (desk.project / "go").touch()
    told = await desk.ask(action="read", id="j1", wait_s=20)
    assert "[exit status 0; 3 in the pipe before cat · " in told


# --- programs that want a terminal -------------------------------------------------------------------------------------

EDITORS = ("vim", "vi", "view", "nvim")


@pytest.fixture(params=EDITORS)
def editor(request) -> str:
    """The name of a real editor that commands find."""
    if request.param == "nvim":
        directory = Path(find_neovim()).resolve().parent
        return f"PATH={directory}:$PATH; nvim --clean"
    if not shutil.which(request.param):
        pytest.skip(f"there is no {request.param}")
    return request.param


@pytest.fixture
async def unconfined(tmp_path) -> AsyncIterator[Desk]:
    async for served in in_own_task(Desk(tmp_path, is_confined=False).served()):
        yield served


async def test_an_editor_that_would_wait_for_keys_ends(unconfined, editor):
    (unconfined.project / "foo").write_text("kept\n")
    for options in ("", "", "-c 'set nu'", "-u NONE"):  # the last leaves $VIMINIT out
        line = f"{editor} {options} foo"
        told = await unconfined.say(line, timeout_s=20)
        assert "[exit status 1 · " in told
    assert (unconfined.project / "foo").read_text() == "kept\n"
    assert {path.name for path in unconfined.project.iterdir()} == {".git", "foo"}


async def test_an_editor_runs_its_commands_without_a_terminal(unconfined, editor):
    (unconfined.project / "foo").write_text("one\n")
    for number, options in enumerate(("-es", "")):
        line = f"set -e; {editor} {options} -c '%s/one/two/e' -c 'w! out{number}' -c 'qa!' foo; echo went on"
        told = await unconfined.say(line, timeout_s=20)
        assert "went on\n[exit status 0" in told
        assert (unconfined.project / f"out{number}").read_text() == "two\n"


@pytest.mark.parametrize(
    "line", prove_rest(["vim foo", "less -R foo", "git commit", "more foo", "top", "crontab -e"])
)
async def test_no_program_waits_for_a_terminal(desk, line):
    if not shutil.which(line.split()[0]):
        pytest.skip(f"there is no {line}")
    (desk.project / "foo").write_text("text\n")
    setup = "mkdir r && cd r && git init -q --template= && git config user.email a@b && git config user.name a; cp ../foo .; git add foo;"
    assert "[exit status " in await desk.say(f"{setup} {line}", timeout_s=20)


@pytest.mark.parametrize(
    "line",
    prove_rest(
        [
            "GIT_EDITOR=vim git commit",
            "timeout 60 vim foo",
            "command vim foo",
            "echo foo | xargs vim",
            "command -p view foo",
        ],
        (0,),
        is_one=True,
    ),
)
@prove
async def test_an_editor_that_another_program_starts_ends(desk, line):
    if not shutil.which("vim"):
        pytest.skip("there is no vim")
    setup = "mkdir r && cd r && git init -q --template= && git config user.email a@b && git config user.name a; touch foo; git add foo;"
    assert "[exit status " in await desk.say(f"{setup} {line}", timeout_s=20)


@prove
async def test_a_configuration_of_the_editor_is_loaded_and_keys_from_a_pipe_are_read(unconfined):
    if not shutil.which("vim"):
        pytest.skip("there is no vim")
    nvim = find_neovim()
    line = (
        "export HOME=$PWD XDG_CONFIG_HOME=$PWD; mkdir nvim; echo 'vim.g.mine = 1' > nvim/init.lua; echo 'let g:mine = 2' > .vimrc;"
        f" {nvim} --headless -c 'call writefile([g:mine], \"one\")' -c qa;"
        " command vim -c 'call writefile([g:mine], \"two\")' -c qa;"
        r" printf ':call writefile([g:mine + 1], \"three\")\r:qa\r' | command vim; cat one two three"
    )
    told = await unconfined.say(line, timeout_s=60)
    assert "1\n2\n3\n[exit status 0" in told


async def test_a_function_of_the_shell_named_like_an_editor_is_kept(desk):
    assert (await desk.say("vim() { echo mine; }; vim foo")).startswith("mine\n")


# --- what the sandbox refused ------------------------------------------------------------------------------------------


async def test_refusal_is_told_with_what_can_be_done_instead(confined):
    told = await confined.say("touch /etc/planted")
    assert "[The sandbox refused: write /etc/planted: only the project can be written." in told
    assert "Write in the project or in $TMPDIR" in told
    (confined.base / "outside").touch()
    told = await confined.say(f"cat {confined.base}/outside")
    assert f"[The sandbox refused: read {confined.base}/outside: it is outside" in told
    assert "refused" not in await confined.say("cat no-such-file")


@prove
async def test_network_that_is_off_is_told(confined):
    script = "import socket; socket.getaddrinfo('example.org', 80)"
    told = await confined.say(f'python3 -c "{script}"')
    assert "[The sandbox refused: resolve example.org: the network is off." in told
    assert ":AgentNet" in told
    script = "import socket; socket.create_connection(('192.0.2.1', 80), 3)"
    told = await confined.say(f'python3 -c "{script}"')
    assert "[The network is off: do without, or ask the user" in told


LOOKUP = "import socket; socket.getaddrinfo('example.org', 80)"
UNMARKED = (
    "import os, socket; os.environ.clear(); s = socket.socket(type=socket.SOCK_DGRAM);"
    r" s.sendto(b'\0\7\1\0\0\1' + bytes(6) + b'\7example\3org\0\0\1\0\1', ('127.0.0.1', 53));"
    " s.recv(512); raise SystemExit(1)"
)
"""Asks as a program that is linked with musl does."""


async def both(desk: Desk, asks: str) -> tuple[Outcome, Outcome]:
    """The outcomes of a command that asks for a host, and of one that fails meanwhile without the network."""
    outcomes: dict[str, Outcome] = {}

    async def run(name: str, command: str) -> None:
        outcomes[name] = await desk.run(command)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            run, "innocent", "touch began; until [ -e asked ]; do sleep 0.01; done; exit 3"
        )
        await happens((desk.project / "began").exists)
        tasks.start_soon(run, "asks", f'python3 -c "{asks}"; touch asked; exit 4')
    return outcomes["asks"], outcomes["innocent"]


async def test_a_refusal_is_charged_to_the_command_that_caused_it_only(confined):
    asks, innocent = await both(confined, LOOKUP)
    assert [denial.target for denial in asks.denials] == ["example.org"]
    assert "[The sandbox refused: resolve example.org: the network is off." in asks.content
    assert innocent.denials == ()
    assert "example.org" not in innocent.content


async def test_a_refusal_without_a_mark_is_named_to_all_and_charged_to_none(confined):
    for outcome in await both(confined, UNMARKED):
        assert outcome.denials == ()
        assert (
            "[The sandbox refused, to this command or to another one that ran at the same time:"
            " resolve example.org: the network is off." in outcome.content
        )
    alone = await confined.run(f'python3 -c "{UNMARKED.replace("example", "another")}"')
    assert [denial.target for denial in alone.denials] == ["another.org"]


async def test_a_refusal_of_a_job_is_not_charged_to_a_later_command(confined):
    job = f'until [ -e go ]; do sleep 0.01; done; python3 -c "{LOOKUP}"; touch asked; sleep 1000'
    await confined.run(job, background=True)
    outcome = await confined.run("touch go; until [ -e asked ]; do sleep 0.01; done; exit 3")
    assert outcome.denials == ()
    assert "example.org" not in outcome.content
    assert "[The sandbox refused: resolve example.org" in await confined.ask(action="read", id="j1")
    await confined.ask(action="stop", id="j1")


@pytest.mark.parametrize(
    "words, is_hinted",
    prove_rest(
        [
            ("ModuleNotFoundError: No module named nope", False),
            ("FileNotFoundError: x", False),
            ("could not resolve dependency tree", False),
            ("getaddrinfo ENOTFOUND example.org", True),
            ("curl: (6) Could not resolve host: example.org", True),
        ]
    ),
)
async def test_the_network_is_named_only_where_it_failed(confined, words, is_hinted):
    told = await confined.say(f"echo '{words}'; false")
    assert ("[The network is off" in told) == is_hinted


@prove
async def test_refusals_are_bounded(confined):
    told = await confined.say("for i in {1..15}; do touch /etc/x$i; done; false")
    assert told.count("[The sandbox refused: ") == 5
    assert "[10 more were refused.]" in told


async def test_sandbox_that_cannot_be_had_runs_nothing(tmp_path):
    async with Desk(tmp_path, min_level="full", level="landlock").served() as desk:
        with pytest.raises(ToolError, match="Could not start the command: Level 'landlock'"):
            await desk.run("touch ran")
    assert not (desk.project / "ran").exists()


# --- stopping ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ignored", prove_rest(["", "trap '' INT; ", "trap '' INT TERM; "], keep=(-1,))
)
async def test_cancelled_command_is_gone_and_what_it_wrote_is_kept(desk, ignored, marker):
    with anyio.CancelScope() as turn:
        async with anyio.create_task_group() as tasks:
            command = f"{ignored}cd /; echo begun; {marker}"
            tasks.start_soon(partial(desk.run, command, tool_use_id="t7"))
            await happens(lambda: desk.screen == "begun\n" and running(marker))
            turn.cancel()
    assert not running(marker)
    told = desk.jobs.take_interrupted("t7")
    assert told.startswith("begun\n[ended by SIG")
    assert "stopped by the user" in told
    assert desk.jobs.take_interrupted("t7") == ""
    assert desk.shell.cwd == str(desk.project)
    assert (await desk.say("echo fine")).startswith("fine\n")


@prove
async def test_nothing_is_left_open_after_many_commands(desk):
    await desk.say("true")
    before = open_files()
    for _ in range(5):
        await desk.say("seq 10000")
    assert open_files() == before


# --- the tool ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, title",
    [
        ("pytest -q", "pytest -q"),
        ("\n  make\ntest\n", "make …"),
        ("echo a\tb\x1b[2Jc\u202ed\u200be\xa0f", "echo a\\tb\\x1b[2Jc\\u202ed\\u200be\\xa0f"),
        ("x" * 200, "x" * 78 + " …"),
        ("echo \ud800", "echo \\ud800"),
    ],
)
def test_title_hides_nothing(command, title):
    assert first_line(command) == title
    assert bash.title(BashInput(command), None) == title  # type: ignore[arg-type]


@prove
async def test_effect_is_to_run_the_command_where_the_shell_is(desk):
    await desk.run("mkdir -p sub; cd sub")
    effect = bash.effect(BashInput("ls"), desk.workspace)
    assert (effect.kind, effect.command) == ("run", "ls")
    assert effect.cwd.endswith("/sub")
    for action in ("list", "read", "stop"):
        assert jobs.effect(JobsInput(action), None).kind == "none"  # type: ignore[arg-type]


def test_what_the_model_reads_is_short():
    for one in (bash, jobs):
        assert 100 < len(one.description) <= 900
        assert len(json.dumps(one.schema)) < 900


async def test_without_a_sandbox_nothing_of_a_host_that_was_killed_stays(tmp_path):
    state = tmp_path / "state"
    dead = state / "tmp" / "999999999-x"
    dead.mkdir(parents=True)
    async with Desk(tmp_path, is_confined=False).served() as desk:
        assert "hello" in await desk.say("echo hello")
        own = [path.name for path in (state / "tmp").iterdir()]
        assert own
        assert all(name.startswith(f"{os.getpid()}-") for name in own)


# --- git that only reads ---------------------------------------------------------------------------------------------------


def hostile_repository(project: Path) -> None:
    """One whose own configuration, attributes and hooks name a program wherever git takes one while it reads."""

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *identity, *arguments], cwd=project, check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    for branch, text in (("main", "one\n"), ("other", "two\n")):
        git("checkout", "-q", "--orphan", branch)
        (project / "a.txt").write_text(text)
        git("add", "a.txt")
        git("commit", "-q", "-m", branch)
    git("checkout", "-q", "main")
    (project / "a.txt").write_text("1\n2\n")
    git("add", "a.txt")
    git("commit", "-q", "-m", "more")
    git("merge", "-q", "-s", "ours", "--allow-unrelated-histories", "-m", "both", "other")
    (project / "a.txt").write_text("changed\n")
    git("stash", "-q")
    (project / "a.txt").write_text("changed again\n")
    for name in ("clean", "external", "driver", "textconv", "merge", "monitor", "gpg", "refs"):
        program = project / f"run-{name}"
        program.write_text(f"#!/bin/sh\necho {name} >> {project}/ran\ncat 2>/dev/null\n")
        program.chmod(0o755)
    hook = project / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\necho hook >> {project}/ran\n")
    hook.chmod(0o755)
    (project / ".git" / "info" / "attributes").write_text("*.txt filter=x diff=x merge=x\n")
    for key, name in (
        ("core.fsmonitor", "monitor"), ("diff.external", "external"), ("diff.x.command", "driver"), ("diff.x.textconv", "textconv"),
        ("filter.x.clean", "clean"), ("merge.x.driver", "merge"), ("gpg.program", "gpg"), ("core.alternateRefsCommand", "refs"),
        ("core.pager", "external"),
    ):  # fmt: skip
        git("config", key, f"./run-{name}")
    git("config", "filter.x.required", "true")
    git("config", "log.showSignature", "true")
    # From now on the index itself says that the monitor is to be asked by whoever reads it.
    git("update-index", "--fsmonitor")
    (project / "ran").unlink()


def with_submodule(project: Path) -> Path:
    """Add a repository as hostile below one, of which that runs nothing itself."""
    inner = project / "inner"
    inner.mkdir()
    hostile_repository(inner)
    for line in (
        "-c core.fsmonitor= -c advice.addEmbeddedRepo=false add inner",
        "config diff.submodule diff",
    ):
        subprocess.run(["git", *line.split()], cwd=project, check=True)
    for directory in (project, inner):
        (directory / "ran").unlink(missing_ok=True)
    return inner


READING = (
    "git status", "git diff", "git diff HEAD", "git diff --stat", "git log -p --all", "git log -p --remerge-diff", "git show",
    "git blame a.txt", "git stash show -p", "git stash list -p", "git describe --always", "g''it status", "\\git diff", 'gi"t" log -1', "git ls-files -m", "git diff-files -p",
    "git diff-index -p HEAD", "git range-diff main~1 main other", "git log --format='%G? %s'", "git rev-list --alternate-refs --all",
    "git rev-parse :a.txt", "git config --get-all core.fsmonitor", "git ls-files --eol", "git config --list",
    "git grep x", "git shortlog -s HEAD", "git whatchanged -p", "git annotate a.txt", "git --no-pager -C . diff && git cherry main",
)  # fmt: skip


@prove
@pytest.mark.parametrize("is_confined", [True, False])
async def test_git_that_only_reads_runs_nothing_that_the_repository_names(tmp_path, is_confined):
    desk = Desk(tmp_path, is_confined=is_confined)
    hostile_repository(desk.project)
    async with desk.served():
        ran = {}
        for line in READING:
            told = await desk.say(line)
            assert "fatal" not in told, (line, told)
            if (desk.project / "ran").exists():
                ran[line] = (desk.project / "ran").read_text().split()
                (desk.project / "ran").unlink()
        assert ran == {}
        assert "+changed again" in await desk.say("cat a.txt && git diff")
        assert "exported" not in await desk.say("git status")
        await desk.say("git status && git add a.txt")
        assert "clean" in (desk.project / "ran").read_text()  # what changes something runs as ever


CONFIGURED = (
    *(
        f"git config {key}"
        for key in ("core.hooksPath", "core.pager", "core.fsmonitor", "filter.x.clean", "filter.x.required", "gpg.program",
                    "diff.x.textconv", "log.showSignature", "diff.submodule", "merge.x.driver")
    ),
    "git config --get-all core.fsmonitor", "git config --local --list", "git config --get-regexp ^core",
    "git rev-parse --git-path hooks", "git rev-parse --git-path hooks/pre-commit", "git -C . rev-parse --git-path hooks",
    "git config core.pager && git rev-parse HEAD && git config core.hooksPath",
)  # fmt: skip


@pytest.mark.parametrize("is_confined", [True, False])
async def test_git_answers_what_is_configured(tmp_path, is_confined):
    desk = Desk(tmp_path, is_confined=is_confined)
    hostile_repository(desk.project)

    def answer_outside(line: str) -> str:
        done = subprocess.run(["sh", "-c", line], cwd=desk.project, check=True, capture_output=True)
        (desk.project / "ran").unlink(missing_ok=True)
        return done.stdout.decode().rstrip("\n")

    answer_outside("git config core.hooksPath .husky/_; git config diff.submodule log")
    answers = {line: answer_outside(line) for line in CONFIGURED}
    async with desk.served():
        for line, answer in answers.items():
            assert answer in await desk.say(line), line
            assert not (desk.project / "ran").exists(), line


@pytest.mark.parametrize("is_confined", [True, False])
@prove
async def test_git_that_only_reads_runs_nothing_that_a_submodule_names(tmp_path, is_confined):
    desk = Desk(tmp_path, is_confined=is_confined)
    hostile_repository(desk.project)
    inner = with_submodule(desk.project)
    lines = ("git status", "git diff", "git diff HEAD", "git diff-files -p", "git diff-index HEAD",
             "git log -p -1", "git diff --cached", "git submodule status", "git show", "git describe --always")  # fmt: skip
    async with desk.served():
        for line in lines:
            await desk.say(line)
            ran = [path for path in (desk.project / "ran", inner / "ran") if path.exists()]
            assert ran == [], line


@prove
async def test_git_that_only_reads_is_git_to_the_other_programs_of_the_line(tmp_path):
    desk = Desk(tmp_path)
    hostile_repository(desk.project)
    async with desk.served():
        await desk.say("git log -1 && sh -c 'git status'")
        assert "monitor" in (desk.project / "ran").read_text()
        (desk.project / "sub").mkdir()
        assert "exit status 128" in await desk.say("git -C nowhere status")
        assert "main" in await desk.say("cd sub; set -eu; git -C .. branch; pwd")


# --- What commands have left ------------------------------------------------------------------------------------------------


@pytest.fixture
def poisoned_path(monkeypatch, tmp_path) -> None:
    """PATH as many a shell has it: with directories in HOME that are not there."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    first = os.pathsep.join(f"{home}/{name}" for name in (".local/bin", "bin", "go/bin"))
    monkeypatch.setenv("PATH", first, prepend=os.pathsep)


@prove
@pytest.mark.usefixtures("poisoned_path")
async def test_what_a_command_has_put_into_the_private_home_stands_in_for_no_program(tmp_path):
    desk = Desk(tmp_path)
    make = 'mkdir -p ~/{0}; printf "#!/bin/sh\\necho evil\\n" >~/{0}/{1}; chmod +x ~/{0}/{1}'
    async with desk.served():
        for directory in (".local/bin", "bin", "go/bin"):
            for name in ("ls", "cat"):
                await desk.say(make.format(directory, name))
        assert "evil" not in await desk.say("ls; cat /dev/null")


@prove
@pytest.mark.skipif(not Path("/usr/bin/pip").exists(), reason="the system has no pip")
async def test_pip_that_only_reads_runs_nothing_of_the_private_home(tmp_path):
    desk = Desk(tmp_path)
    async with desk.served():
        await desk.say(
            "site=$(/usr/bin/python3 -m site --user-site); mkdir -p $site ~/.config/pip;"
            " echo 'import os; os.system(\"touch ran\")' >$site/x.pth;"
            " printf '#!/bin/sh\\ntouch ran\\n' >evil; chmod +x evil;"
            " printf '[global]\\npython = ./evil\\n' >~/.config/pip/pip.conf"
        )
        for line in ("pip list", "p''ip3 list | cat"):
            await desk.say(line)
            assert not (desk.project / "ran").exists(), line
        await desk.say("/usr/bin/python3 -c pass")
        assert (desk.project / "ran").exists()
