"""`sanderling -p` as a process: streams, exit status, signals, and nothing that waits or stays behind."""

import json
import os
import pwd
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests import loopback
from tests.conftest import DEADLINE_S, ROOT, is_alive, prove, prove_rest, wait_until
from tests.homes import Home
from tests.loopback import LoopbackServer, Reply, Status, message_start, text, tool_use

from sanderling.cli.print_mode.result import DeniedCall, Result, ResultBuilder
from sanderling.cli.streams import STDIN_WAIT_S, say
from sanderling.paths import state_directory
from sanderling.project.trust.trust import Trust
from sanderling.protocol.events import (
    AnswerRestarted,
    Event,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from sanderling.protocol.messages import Message, TextBlock
from sanderling.session.records import new_session_id
from sanderling.session.session import Session
from sanderling.session.store import list_sessions

GOLDEN = ROOT / "tests" / "golden"
FOREVER = {"name": "bash", "input": {"command": "sleep 1000", "timeout_s": 600}, "id": "toolu_1"}
MAKE = {"name": "bash", "input": {"command": "make all"}, "id": "toolu_1"}
WRITE = {"name": "write", "input": {"path": "new.txt", "content": "x\n"}, "id": "toolu_2"}

Steps = list[dict[str, Any]]


class Shell(Home):
    """Runs the program in a project of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.script = folder / "script.json"

    def write_script(self, *replies: Steps) -> str:
        script = {"version": 1, "reply": [{"step": steps} for steps in replies]}
        self.script.write_text(json.dumps(script))
        return f"script:{self.script}"

    def play(
        self, *replies: Steps, args: tuple[str, ...] = (), **streams: Any
    ) -> subprocess.CompletedProcess[str]:
        """Ask a model that answers so."""
        model = self.write_script(*replies)
        return self.run("-p", "Do it.", "--model", model, *args, **streams)

    def begin(self, *args: str) -> Session:
        """The session of a first run."""
        assert self.play([{"text": "One."}], args=args).returncode == 0
        [session] = self.sessions()
        return session

    def sessions(self) -> list[Session]:
        paths = sorted(
            (self.state / "sessions").glob("*.jsonl"), key=lambda path: path.stat().st_mtime
        )
        found = [Session.open(path.parent, path.stem, "/") for path in paths]
        for session in found:
            session.close()
        return found


def descendants(pid: int) -> list[int]:
    """The processes that it has started, and those that these have."""
    words = (
        word for path in Path(f"/proc/{pid}/task").glob("*/children") for word in read(path).split()
    )
    return [found for child in map(int, words) for found in (child, *descendants(child))]


def read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def api(shell: Shell) -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        shell.environment |= {
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
            "NO_PROXY": "*",
        }
        yield server


@prove
def test_wait_that_the_api_asks_for_is_told_once_and_in_hours(shell, api):
    api.answer(Status(429, message="too many", retry_after=360_000))
    done = shell.run("-p", "Hi.")
    assert (done.returncode, done.stderr.count("too many")) == (1, 1)
    assert "The API asks to wait for 100 h." in done.stderr
    assert "360000" not in done.stderr


@prove
def test_answer_cut_by_the_limit_of_tokens_is_an_error_and_nothing_denied(shell, api):
    api.answer(Reply(message_start(), text("And so on and"), loopback.done("max_tokens")))
    done = shell.run("-p", "Hi.", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["denials"], result["is_error"]) == (1, [], True)
    assert result["text"] == "And so on and"
    assert "max_tokens" in done.stderr


@prove
def test_turn_that_goes_in_circles_is_an_error_and_nothing_denied(shell):
    look = [{"tool_use": {"name": "ls", "input": {}}}]
    done = shell.play(*[look] * 9, args=("--output-format", "json"))
    result = json.loads(done.stdout)
    assert (done.returncode, result["denials"], result["is_error"]) == (1, [], True)
    assert "keeps making the same call" in done.stderr


@prove
@pytest.mark.parametrize("answer", [[], [{"text": " \n"}]])
def test_empty_answer_is_told_on_standard_error(shell, answer):
    done = shell.play(answer)
    assert (done.returncode, done.stdout.strip()) == (0, "")
    assert "the model's answer is empty" in done.stderr


@prove
def test_tour_of_the_demo_model_has_its_project_in_a_shell_too(shell):
    done = shell.run("-p", "tour", "--model", "demo", "--mode", "auto", "--output-format", "json")
    assert "That is the tour" in done.stdout
    [project] = set(re.findall(r"/\S*?tour-\w+/greeter", done.stdout))
    assert not Path(project).exists(), "it goes with its session"


@prove
def test_model_demo_is_the_demo_model(shell):
    done = shell.run("-p", "ping", "--model", "demo")
    assert (done.returncode, done.stdout, done.stderr) == (0, "pong\n", "")


ROLE = "[roles.reviewer]\nprompt = 'Review.'\ntools = ['read']\n"


def sent_in(session: Session) -> str:
    return "\n".join(each.text for each in session.history[0].content)


@pytest.mark.parametrize("flag", ["--role", "--agent"])
def test_a_run_in_a_role(shell, flag):
    shell.config.write_text(ROLE)
    done = shell.play(
        [{"tool_use": MAKE}], [{"text": "Done."}], args=(flag, "reviewer", "--mode", "auto")
    )
    assert done.stdout == "Done.\n"
    [session] = shell.sessions()
    assert "Review." in sent_in(session)
    assert "The role reviewer does not have the tool bash" in session.history[2].content[0].content


def test_a_role_of_a_project_must_be_trusted(shell):
    agents = shell.project / ".claude/agents"
    agents.mkdir(parents=True)
    (agents / "reviewer.md").write_text("Review.")
    done = shell.play([{"text": "Done."}], args=("--role", "reviewer"))
    assert done.returncode == 2
    assert "There is no role 'reviewer'" in done.stderr
    assert "Not trusted: .claude/agents/reviewer.md" in done.stderr


@pytest.mark.parametrize(
    "settings, args, mode",
    [
        ("mode = 'plan'", (), "plan"),
        ("mode = 'plan'", ("--mode", "ask"), "ask"),
        (f"role = 'reviewer'\n{ROLE}mode = 'plan'", (), "plan"),
        (f"role = 'reviewer'\n{ROLE}mode = 'plan'", ("--mode", "ask"), "ask"),
        (f"mode = 'plan'\nrole = 'reviewer'\n{ROLE}", (), "plan"),
    ],
)
def test_a_run_begins_in_the_mode_of_the_settings(shell, settings, args, mode):
    shell.config.write_text(settings)
    assert shell.play([{"text": "Done."}], args=args).returncode == 0
    [session] = shell.sessions()
    assert ("[Plan mode" in sent_in(session)) == (mode == "plan")


def test_a_default_role_that_does_not_exist_stops_the_run(shell):
    shell.config.write_text("role = 'reviewr'\n" + ROLE)
    done = shell.play([{"text": "Done."}])
    assert done.returncode == 2
    assert "config.toml:1: There is no role 'reviewr'; did you mean 'reviewer'?" in done.stderr


@pytest.mark.parametrize(
    "settings, args, network",
    [
        ("network = 'on'", (), "on"),
        ("network = 'on'", ("--net", "off"), "off"),
        ("", (), "off"),
    ],
)
def test_the_network_of_the_settings_is_that_of_commands(shell, settings, args, network):
    shell.config.write_text(settings)
    shell.play([{"text": "Done."}], args=args)
    [session] = shell.sessions()
    assert f"network: {network}" in sent_in(session).replace("network is", "network:")


@prove
def test_empty_home_is_that_of_the_account(shell):
    shell.environment["HOME"] = ""
    use = {"tool_use": {"name": "bash", "input": {"command": "cd && pwd"}, "id": "t1"}}
    done = shell.play([use], [{"text": "Done."}], args=("--mode", "auto"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "Done.\n", "")
    [result] = shell.sessions()[0].history[2].content[:1]
    assert pwd.getpwuid(os.getuid()).pw_dir in result.content


@prove
@pytest.mark.parametrize(
    "name, status, why",
    [
        ("settings", 2, "config.toml: cannot be read: it is not a regular file"),
        ("rules", 3, "cannot be read: it is not a regular file. Until it is repaired"),
        (
            "trust",
            0,
            "ignored until trusted with `sanderling trust`, or :Agent trust in Neovim: AGENTS.md",
        ),
        ("session", 0, ""),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_keeps_nobody_waiting(shell, name, status, why, kind):
    (shell.project / "AGENTS.md").write_text("Be kind.")
    mine = Path(state_directory("", str(shell.project))).name + ".json"
    path = {
        "settings": shell.config,
        "rules": shell.state / "rules" / mine,
        "trust": shell.state / "trust" / mine,
        "session": shell.state / "sessions" / "20260102-030405-abcd.jsonl",
    }[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    made = shell.play([{"tool_use": WRITE}], [{"text": "Done."}], args=("--allow", "write ./"))
    assert made.returncode == status
    assert why in made.stderr
    if status != 2:
        assert shell.play([{"text": "More."}], args=("--continue",)).returncode == 0


@prove
def test_settings_may_be_empty_and_begin_with_a_byte_order_mark(shell):
    shell.config.symlink_to("/dev/null")
    assert shell.play([{"text": "Hi."}]).returncode == 0
    shell.config.unlink()
    shell.config.write_bytes(b'\xef\xbb\xbfmodel = "demo"\r\n')
    assert shell.run("-p", "Hi.").returncode == 0


@prove
def test_session_of_print_mode_is_in_its_own_list_and_not_in_the_editors(shell):
    session = shell.begin()
    found = list_sessions(session.path.parent, str(shell.project), "")
    assert [info.id for info in found] == [session.id]
    assert list_sessions(session.path.parent, "", "", is_in_editor=True) == []
    assert session.id in shell.run("sessions").stdout
    again = shell.play([{"text": "Again."}], args=("--continue",))
    assert (again.returncode, len(shell.sessions())) == (0, 1)
    assert list_sessions(session.path.parent, "", "", is_in_editor=True) == []


@prove
def test_session_of_the_editor_that_print_mode_goes_on_with_stays_the_editors(shell):
    session = shell.begin()
    log = session.path.read_text()
    session.path.write_text(log.replace(',"face":"print"', "", 1))
    shell.play([{"text": "Again."}], args=("--continue",))
    found = list_sessions(session.path.parent, "", "", is_in_editor=True)
    assert [info.id for info in found] == [session.id]


@prove
def test_state_directory_that_goes_in_the_middle_of_a_turn_is_made_again(shell):
    first = {"tool_use": {"name": "bash", "input": {"command": "echo one"}, "id": "t1"}}
    again = {"tool_use": {"name": "bash", "input": {"command": "echo x >~/f; cat ~/f"}, "id": "t2"}}
    model = shell.write_script([first], [{"delay_ms": 1500}, again], [{"text": "Done."}])
    args = ("-p", "Go.", "--model", model, "--mode", "auto", "--output-format", "stream-json")
    with shell.launch(*args) as process:
        assert process.stdout
        for line in process.stdout:
            if json.loads(line)["type"] == "tool_ended":
                shutil.rmtree(shell.state)
                break
        out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    ended = [event for event in map(json.loads, out.splitlines()) if event["type"] == "tool_ended"]
    assert [event.get("is_error", False) for event in ended] == [False]
    [session] = shell.sessions()
    assert session.history[-1] == Message("assistant", (TextBlock("Done."),))
    assert len(session.history) == 6
    assert not (shell.project / ".git" / "commondir").exists()


# --- what is printed ---------------------------------------------------------------------------------------------------


@prove
def test_only_the_text_after_the_last_tool_use_is_printed(shell):
    done = shell.play(
        [{"text": "Let me look."}, {"tool_use": {"name": "ls", "input": {}}}],
        [{"thinking": "Empty."}, {"text": "Nothing"}, {"text": "there.\n\n"}],
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "Nothing\n\nthere.\n", "")


def test_state_of_git_is_told_with_a_result_once_the_sandbox_has_counted(shell):
    subprocess.run(["git", "init", "-qb", "main", shell.project], check=True)
    (shell.project / "new").touch()
    look = [{"delay_ms": 1000}, {"tool_use": {"name": "ls", "input": {}}}]
    done = shell.play(*[look] * 3, [{"text": "Done."}])
    assert done.returncode == 0
    [log] = shell.state.glob("**/*.jsonl")
    assert "git: branch main, 1 file changed" in log.read_text()


def test_json_is_one_object(shell):
    done = shell.play([{"text": "Yes."}], args=("--output-format", "json"))
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    assert isinstance(result.pop("duration_ms"), int)
    assert result.pop("session_id") == shell.sessions()[0].id
    usage = result.pop("usage")
    assert set(usage) == {
        "input_tokens",
        "output_tokens",
        "cache_creation_input_tokens",
        "cache_read_input_tokens",
    }
    assert result == {
        "type": "result",
        "text": "Yes.",
        "stop_reason": "end_turn",
        "is_error": False,
        "model": f"script:{shell.script}",
        "model_calls": 1,
        "cost_usd": 0.0,
        "denials": [],
    }


def normalised(line: str, shell: Shell) -> Any:
    """Without what differs from run to run."""
    line = line.replace(str(shell.project.parent), "/home")
    line = re.sub(r'"(session_id|id)":"(?!toolu)[^"]*"', r'"\1":"ID"', line)
    line = re.sub(r'"(duration_ms|input_tokens)":\d+', r'"\1":0', line)
    line = re.sub(r"✓ [\d.]+ m?s", "✓", line)
    return json.loads(line)


def test_stream_is_one_event_per_line_and_the_result(shell):
    done = shell.play(
        [
            {"thinking": "Look."},
            {"text": "One moment.", "chunk_chars": 6},
            {"tool_use": {"name": "ls", "input": {}, "id": "toolu_0"}},
        ],
        [{"tool_use": MAKE}],
        [{"text": "It was denied."}],
        args=("--output-format", "stream-json"),
    )
    assert done.returncode == 3
    lines = done.stdout.splitlines()
    events = [normalised(line, shell) for line in lines if "sandbox_changed" not in line]
    golden = GOLDEN / "stream_json_v1.jsonl"
    assert events == list(map(json.loads, golden.read_text().splitlines()))


def test_first_request_is_small_and_mentions_no_editor_and_nobody_who_could_answer(shell, api):
    api.answer(Reply(message_start(), text("Done."), loopback.done()))
    assert shell.run("-p", "Look.", "--model", "claude-sonnet-5-5").returncode == 0
    [request] = api.prompts
    sent = request.body.decode()
    assert len(sent) <= 11 * 1024
    assert '"pty"' not in sent  # no user could take over a terminal
    names = {tool["name"] for tool in json.loads(sent)["tools"]}
    assert not names & {"code_nav", "code_refactor", "diagnostics", "ask_user"}
    for words in ("editor", "Neovim", "may deny", "stop and ask"):
        assert words not in sent
    assert "nobody can answer a question" in " ".join(json.loads(sent)["system"][0]["text"].split())


@prove
def test_calls_tokens_and_dollars_are_told(shell, api):
    api.answer(
        Reply(
            message_start(input_tokens=1000),
            tool_use("toolu_1", "ls", "{}"),
            loopback.done("tool_use", output_tokens=10),
        ),
        Reply(
            message_start(cache_read_input_tokens=900),
            text("Done."),
            loopback.done(output_tokens=20),
        ),
    )
    ran = shell.run("-p", "Look.", "--output-format", "json", "--model", "claude-sonnet-5-5")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["model_calls"] == 2
    assert result["usage"] == {
        "input_tokens": 1010,
        "output_tokens": 30,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 900,
    }
    assert result["cost_usd"] == pytest.approx((1010 * 2 + 30 * 10 + 900 * 0.1) / 1e6, rel=1e-3)


def result_of(*events: Event) -> Result:
    builder = ResultBuilder()
    for event in events:
        builder.take(event)
    return builder.result("s1", "m", 0.0)


def test_text_that_was_cut_off_counts_once():
    result = result_of(
        TextDelta(0, "Half a"), AnswerRestarted(0), TextDelta(0, "A whole."), TurnEnded("end_turn")
    )
    assert (result.text, result.model_calls, result.exit_status) == ("A whole.", 2, 0)


@pytest.mark.parametrize("stop_reason", ["max_tokens", "refusal", "context_full", "error"])
def test_a_turn_that_did_not_come_to_its_end_is_an_error(stop_reason):
    result = result_of(TextDelta(0, "So far."), TurnEnded(stop_reason))
    assert (result.text, result.is_error, result.exit_status) == ("So far.", True, 1)


def test_what_a_rule_denies_without_a_question_is_told():
    started = ToolStarted("t1", "edit", "secret.py")
    ended = ToolEnded("t1", "denied", "A rule of yours denies it.", is_error=True, is_denied=True)
    result = result_of(started, ended, TurnEnded("end_turn"))
    assert result.denials == (DeniedCall("edit", "secret.py", "A rule of yours denies it."),)
    assert result.exit_status == 3


# --- what goes in ------------------------------------------------------------------------------------------------------


def first_words(shell: Shell) -> list[str]:
    return [block.text for block in shell.sessions()[0].history[0].content]


def test_standard_input_is_the_prompt(shell):
    done = shell.run("--model", shell.write_script([{"text": "4"}]), stdin="What is 2+2?\n")
    assert (done.returncode, done.stdout) == (0, "4\n")
    assert first_words(shell)[-1].strip() == "What is 2+2?"


@prove
def test_standard_input_goes_before_the_prompt_in_a_fence(shell):
    done = shell.play([{"text": "A typo."}], stdin="Error: ```\nline 2\n")
    assert done.returncode == 0
    *_, lines, words = first_words(shell)
    assert "````\nError: ```\nline 2\n````" in lines
    assert words == "Do it."


@prove
def test_an_input_that_nobody_writes_into_is_not_waited_for(shell):
    reader, writer = os.pipe()
    started = time.monotonic()
    model = shell.write_script([{"text": "Alone."}])
    process = shell.launch("-p", "hi", "--model", model, stdin=reader)
    out, err = process.communicate(timeout=DEADLINE_S)
    os.close(writer)
    os.close(reader)
    assert (process.returncode, out) == (0, "Alone.\n")
    assert "nothing came on standard input" in err
    assert time.monotonic() - started > STDIN_WAIT_S


@pytest.mark.parametrize(
    "args, why",
    prove_rest(
        [
            (["-p"], "there is no prompt"),
            (["-p", " "], "there is no prompt"),
            (
                ["tell me"],
                "there is no command 'tell me'; to ask the model: sanderling -p 'tell me'",
            ),
            (
                ["--project", "x", "plugin", "list"],
                "options come after the command: sanderling plugin",
            ),
            (["--project", "x", "skills"], "options come after the command: sanderling skills"),
            (["-p", "hi", "--mode", "yolo"], "invalid choice: 'yolo'"),
            (["-p", "hi", "--max-turns", "-1"], "'-1' is not a whole number"),
            (["-p", "hi", "--allow", "bsh rm"], "'allow bsh rm' is not a rule"),
            (
                ["-p", "hi", "--resume", "20200101-000000-0000"],
                "there is no session '20200101-000000-0000'",
            ),
            (["-p", "hi", "--resume", ""], "there is no session ''"),
            (
                ["-p", "hi", "--model", "script:/nowhere.json"],
                "cannot read the script /nowhere.json",
            ),
            (["-p", "hi", "--project", "/nowhere"], "there is no directory '/nowhere'"),
            (["-p", "hi", "--record", "/nowhere/x.json"], "cannot record to /nowhere/x.json"),
            (["-p", "hi", "--out", "json"], "unrecognized arguments"),
            (["-p", "hi", "--continue"], "there is no session of "),
        ],
        keep=(0,),
    ),
)
def test_wrong_usage_is_refused_by_name(shell, args, why):
    done = shell.run(*args, stdin="")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


@prove
@pytest.mark.parametrize("session_id", ["../../s1", "x" * 300, "a/b", ""])
def test_what_is_no_id_of_a_session_names_none(shell, session_id):
    assert shell.play([{"text": "One."}]).returncode == 0
    done = shell.play([{"text": "Two."}], args=("--resume", f"{session_id}.x"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no session" in done.stderr


@prove
def test_words_that_are_no_utf8_are_a_prompt_all_the_same(shell):
    model = shell.write_script([{"text": "Yes."}])
    done = shell.run("-p", "caf\udce9?", "--model", model, "--output-format", "stream-json")
    assert done.returncode == 0, done.stderr
    assert first_words(shell)[-1] == "caf\ufffd?"


@prove
def test_a_project_whose_name_is_no_utf8_is_refused(shell):
    shell.project = shell.project.parent / "caf\udce9"
    shell.project.mkdir()
    done = shell.play([{"text": "One."}])
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not UTF-8" in done.stderr


def test_many_sessions_can_begin_in_the_same_second():
    assert len({new_session_id() for _ in range(2000)}) == 2000


@prove
@pytest.mark.parametrize(
    "toml, why",
    [
        ("modle = 'x'", "config.toml:1: unknown key 'modle'; did you mean 'model'?"),
        ("\nmax_calls = 'x'", "config.toml:2: 'max_calls': must be a whole number"),
        ("model = ", "config.toml:1: not valid TOML"),
    ],
)
def test_file_of_settings_is_refused_by_name(shell, toml, why):
    shell.config.write_text(toml)
    done = shell.run("-p", "hi")
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


@prove
def test_file_of_settings_counts(shell):
    shell.config.write_text(
        f"provider = 'scripted'\nscript = '{shell.script}'\npermissions = [{{action='allow', tool='write'}}]"
    )
    shell.write_script([{"tool_use": WRITE}], [{"text": "Written."}])
    done = shell.run("-p", "Write.")
    assert (done.returncode, done.stdout) == (0, "Written.\n")
    assert (shell.project / "new.txt").read_text() == "x\n"


@prove
def test_name_that_may_run_later_is_told_at_the_end_of_its_command(shell):
    plant = MAKE | {"input": {"command": "mkdir pkg; echo evil > pkg/.envrc"}}
    ran = shell.play([{"tool_use": plant}], [{"text": "Done."}], args=("--mode", "auto"))
    assert (ran.returncode, ran.stdout) == (0, "Done.\n")
    assert "guard: noticed: pkg/.envrc: is new" in ran.stderr


def test_the_end_of_a_background_job_is_reported_once_with_the_next_results(shell):
    job = {"command": "until [ -e go ]; do sleep 0.01; done; echo done; exit 3", "background": True}
    wait = {"command": "touch go; sleep 1"}
    steps = [[{"tool_use": {"name": "bash", "input": each}}] for each in (job, wait, wait)]
    ran = shell.play(*steps, [{"text": "Done."}], args=("--mode", "auto"))
    assert ran.returncode == 0
    texts = [
        block.text
        for message in shell.sessions()[0].history
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    assert texts.count("[j1 has ended: exit status 3. `jobs read j1` has 5 bytes.]") == 1


# --- what is allowed ---------------------------------------------------------------------------------------------------


def test_what_would_ask_is_denied_and_told(shell):
    ran = shell.play([{"tool_use": MAKE}], [{"text": "I could not."}])
    assert (ran.returncode, ran.stdout) == (3, "I could not.\n")
    assert "denied: bash make all" in ran.stderr
    assert "--allow 'bash make all $' or --mode auto allows it" in ran.stderr
    [told] = shell.sessions()[0].history[2].content[:1]
    assert told.content.startswith("Denied: Questions cannot be answered: this runs from a script.")
    assert "user" not in told.content
    assert "--mode auto would allow it" in told.content


def test_no_option_is_suggested_that_a_hook_which_asks_would_not_accept(shell):
    asks = {"hookSpecificOutput": {"permissionDecision": "ask"}}
    hook = f"[[hooks.PreToolUse]]\ncommand = '''echo '{json.dumps(asks)}''''\n"
    shell.config.write_text(hook)
    ran = shell.play([{"tool_use": MAKE}], [{"text": "I could not."}])
    assert "denied: bash make all: A hook asks about this" in ran.stderr
    assert "allows it" not in ran.stderr


def test_what_the_sandbox_refuses_is_told_by_name_and_what_lets_it_in(shell):
    outside = shell.project.parent / "outside.txt"
    outside.write_text("secret")
    use = {"name": "bash", "input": {"command": "cat ../outside.txt"}}
    args = ("--mode", "auto", "--output-format", "json")
    ran = shell.play([{"tool_use": use}], [{"text": "I could not."}], args=args)
    assert ran.returncode == 3
    assert f"denied: bash cat ../outside.txt: the sandbox refused: read {outside}" in ran.stderr
    assert "sandbox.read in config.toml allows it" in ran.stderr
    [denied] = json.loads(ran.stdout)["denials"]
    assert (denied["tool"], denied["title"]) == ("sandbox", f"read {outside}")
    assert denied["reason"] == "bash cat ../outside.txt"
    [told] = shell.sessions()[0].history[2].content[:1]
    assert "[Not allowed: Questions cannot be answered: this runs from a script." in told.content
    assert "The user did not" not in told.content


def test_mode_auto_lets_through_what_the_sandbox_confines(shell):
    done = shell.play([{"tool_use": WRITE}], [{"text": "Done."}], args=("--mode", "auto"))
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    assert (shell.project / "new.txt").exists()


def test_what_keeps_commands_from_running_is_told_to_who_runs_one(shell):
    """An answer in words says nothing of it, though the sandbox was to be opened while the model thought."""
    thinking, auto = {"delay_ms": 600}, ("--mode", "auto")
    for home, project in ((shell.project, shell.project), (shell.project, Path("/usr"))):
        shell.environment["HOME"], shell.project = str(home), project
        words = shell.play([thinking, {"text": "Done."}], args=auto)
        assert (words.returncode, words.stdout, words.stderr) == (0, "Done.\n", "")
    ran = shell.play([thinking, {"tool_use": MAKE}], [{"text": "Done."}], args=auto)
    assert ran.stderr.count("warning: commands cannot run: The project /usr holds more than") == 1


@prove
def test_a_rule_lets_through_what_it_names(shell):
    allowed = ("--allow", "write ./new.txt", "--output-format", "json")
    done = shell.play(
        [{"tool_use": WRITE}], [{"tool_use": MAKE}], [{"text": "Half."}], args=allowed
    )
    assert done.returncode == 3
    assert (shell.project / "new.txt").exists()
    assert [denied["tool"] for denied in json.loads(done.stdout)["denials"]] == ["bash"]


@prove
def test_a_rule_of_the_flag_can_name_its_action(shell):
    allowed = ("--allow", "allow write ./new.txt", "--allow", "deny bash make all")
    done = shell.play([{"tool_use": WRITE}], [{"text": "Done."}], args=allowed)
    assert (done.returncode, done.stdout) == (0, "Done.\n")


@prove
def test_settings_of_the_project_count_once_they_are_trusted(shell):
    text = "[[permissions]]\naction = 'deny'\ntool = 'write'\n"
    (shell.project / ".sanderling.toml").write_text(text)
    args = ("--mode", "auto")
    assert shell.play([{"tool_use": WRITE}], [{"text": "One."}], args=args).returncode == 0
    digest = sha256(text.encode()).hexdigest()
    Trust(str(shell.state), str(shell.project)).trust({".sanderling.toml": digest})
    done = shell.play([{"tool_use": WRITE}], [{"text": "Two."}], args=args)
    assert done.returncode == 3


@prove
def test_limit_of_calls_ends_the_turn(shell):
    look = [{"tool_use": {"name": "ls", "input": {}}}]
    done = shell.play(look, look, look, args=("--max-turns", "2", "--output-format", "json"))
    result = json.loads(done.stdout)
    assert (done.returncode, result["stop_reason"], result["model_calls"]) == (3, "max_calls", 2)
    assert [denied["tool"] for denied in result["denials"]] == ["calls"]
    assert done.stderr.count("called 2 times") == 1
    assert "--max-turns N allows it" in done.stderr


# --- errors ------------------------------------------------------------------------------------------------------------


def test_refused_key_is_an_error(shell, api):
    api.answer(Status(401))
    done = shell.run("-p", "hi", "--output-format", "json")
    assert done.returncode == 1
    assert "The API refused the key" in done.stderr
    result = json.loads(done.stdout)
    assert (result["stop_reason"], result["is_error"], result["error"]["kind"]) == (
        "error",
        True,
        "auth",
    )
    assert result["error"]["remedy"].endswith("then run it again with a key that works.")


@prove
def test_without_a_key_no_demo_model_answers(shell):
    done = shell.run("-p", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no API key." in done.stderr
    assert "The model `demo` needs no key." in done.stderr


@prove
def test_retries_are_counted_down_on_standard_error(shell, api):
    api.answer(Status(529), Reply(message_start(), text("At last."), loopback.done()))
    ran = shell.run("-p", "hi")
    assert (ran.returncode, ran.stdout) == (0, "At last.\n")
    assert re.search(r"overloaded.* Retry 2/\d+ in [\d.]+ s\.", ran.stderr)


@prove
def test_quiet_leaves_nothing_but_errors(shell):
    denied = shell.play([{"tool_use": MAKE}], [{"text": "No."}], args=("--quiet",))
    assert (denied.returncode, denied.stderr) == (3, "")
    error = {"kind": "auth", "message": "Wrong key.", "remedy": "Get another."}
    failed = shell.play([{"error": error}], args=("--quiet",))
    assert (failed.returncode, failed.stderr) == (1, "sanderling: Wrong key. Get another.\n")


# --- sessions ----------------------------------------------------------------------------------------------------------


@prove
def test_a_session_goes_on(shell):
    session = shell.begin()
    done = shell.play([{"text": "Two."}], args=("--resume", session.id))
    assert (done.returncode, done.stdout) == (0, "Two.\n")
    assert len(shell.sessions()[0].history) == 4
    done = shell.play([{"text": "Three."}], args=("--continue",))
    assert (done.returncode, done.stdout) == (0, "Three.\n")
    [session] = shell.sessions()
    assert len(session.history) == 6


def test_damaged_lines_of_a_resumed_session_are_reported(shell):
    session = shell.begin()
    lines = session.path.read_bytes().splitlines(keepends=True)
    session.path.write_bytes(b"".join([*lines[:2], b"{half a line\n", *lines[2:]]))
    done = shell.play([{"text": "Two."}], args=("--continue",))
    assert (done.returncode, done.stdout) == (0, "Two.\n")
    assert "Skipped 1 damaged line of the session's log" in done.stderr


def test_a_resumed_history_beyond_the_window_is_summarized_whatever_usage_was_reported(shell):
    told = {"input_tokens": 9, "output_tokens": 9}
    reply = {"step": [{"text": "word " * 1_000_000}], "usage": told}
    shell.script.write_text(json.dumps({"version": 1, "reply": [reply]}))
    assert shell.run("-p", "Do it.", "--model", f"script:{shell.script}").returncode == 0
    done = shell.play([{"text": "A summary."}], [{"text": "Two."}], args=("--continue",))
    assert (done.returncode, done.stdout) == (0, "Two.\n")
    assert "A summary." in str(shell.sessions()[0].history)


@prove
def test_mode_of_a_resumed_session_does_not_come_along_and_stays_as_it_was(shell):
    session = shell.begin("--mode", "auto")
    assert session.state("mode") is None, "the flag is of the run"
    in_editor = Session.open(session.path.parent, session.id, "/")
    in_editor.keep_state("mode", "auto")
    in_editor.close()
    done = shell.play([{"tool_use": WRITE}], [{"text": "No."}], args=("--resume", session.id))
    assert done.returncode == 3
    assert not (shell.project / "new.txt").exists()
    [session] = shell.sessions()
    assert session.state("mode") == "auto"


@prove
def test_a_session_that_is_open_elsewhere_is_refused(shell):
    session = shell.begin()
    open_elsewhere = Session.open(session.path.parent, session.id, "/")
    done = shell.play([{"text": "Two."}], args=("--resume", session.id))
    open_elsewhere.close()
    assert (done.returncode, done.stdout) == (1, "")
    assert "open" in done.stderr


@pytest.mark.parametrize(
    "flags, told, left",
    [
        pytest.param(
            (), "still waiting in this session", ["Delete\nit all.", "Then more."], marks=prove
        ),
        (("--drop-waiting",), "dropped without being sent", []),
    ],
)
def test_prompts_that_wait_in_a_session_are_not_sent(shell, flags, told, left):
    waiting = Session.open(shell.state / "sessions", "s1", str(shell.project))
    queued = [{"id": "p9", "text": "Delete\nit all."}]
    steering = [{"id": "p8", "text": "Then more."}]
    waiting.keep_state("waiting", {"queued": steering, "steering": queued})
    waiting.close()
    done = shell.play([{"text": "Answered."}], args=("--resume", "s1", *flags))
    assert (done.returncode, done.stdout) == (0, "Answered.\n")
    assert f'{told}: "Delete it all.", "Then more."' in done.stderr
    [session] = shell.sessions()
    assert [prompt.text for prompt in session.prompts] == ["Do it."]
    assert [each["text"] for each in session.state("waiting")["queued"]] == left
    done = shell.play([{"text": "Again."}], args=("--resume", "s1"))
    assert (done.returncode, "waiting" in done.stderr) == (0, bool(left))


@pytest.mark.parametrize("zone", prove_rest(["XXX-167:59", "XXX+167:59", "nonsense"]))
def test_a_run_works_in_any_time_zone_that_posix_allows(shell, zone):
    shell.environment["TZ"] = zone
    assert shell.play([{"text": "Answered."}]).returncode == 0


@prove
def test_no_session_leaves_no_log(shell, tmp_path):
    shell.environment["TMPDIR"] = str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    assert shell.play([{"text": "One."}], args=("--no-session",)).returncode == 0
    assert shell.sessions() == []
    assert list((tmp_path / "tmp").iterdir()) == []


@prove
def test_names_say_nothing_to_the_terminal(shell, tmp_path):
    shell.project = tmp_path / "pro\x1b[2J\nject"
    (shell.project / ".git").mkdir(parents=True)
    assert shell.play([{"text": "One."}]).returncode == 0
    [line] = shell.run("sessions", "--all").stdout.splitlines()
    assert "pro<U+001B>[2J ject" in line


def test_no_line_of_somebody_elses_passes_for_ours(capsys):
    say("denied: make\nsanderling: all is well\x1b[2J")
    assert capsys.readouterr().err == (
        "sanderling: denied: make\n    sanderling: all is well<U+001B>[2J\n"
    )


@prove
def test_sessions_are_listed(shell):
    session = shell.begin()
    [line] = shell.run("sessions").stdout.splitlines()
    assert line.startswith(session.id)
    assert line.endswith("Do it.")
    assert json.loads(shell.run("sessions", "--json").stdout)["id"] == session.id


@prove
def test_a_recorded_run_replays_the_same(shell, api, tmp_path):
    api.answer(
        Reply(
            message_start(),
            text(f"In {shell.project}."),
            tool_use("toolu_1", "ls", "{}", index=1),
            loopback.done("tool_use"),
        ),
        Reply(message_start(), text(f"Nothing in {shell.project}/src."), loopback.done()),
    )
    path = tmp_path / "recorded.json"
    recorded = shell.run("-p", "Look.", "--record", str(path))
    assert recorded.stdout == f"Nothing in {shell.project}/src.\n"
    assert str(shell.project) not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replayed = shell.run("-p", "Look.", "--model", f"script:{path}", "--output-format", "json")
    result = json.loads(replayed.stdout)
    assert (replayed.returncode, result["text"], result["model_calls"]) == (
        0,
        "Nothing in ./src.",
        2,
    )


# --- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, status", prove_rest([(signal.SIGINT, 130), (signal.SIGTERM, 143)], keep=(0,))
)
def test_a_signal_stops_the_turn_and_leaves_nothing_behind(shell, number, status):
    model = shell.write_script([{"text": "Some."}, {"tool_use": FOREVER}])
    process = shell.launch(
        "-p", "Wait.", "--mode", "auto", "--model", model, "--output-format", "stream-json"
    )
    lines = [process.stdout.readline()]
    while "tool_started" not in lines[-1]:
        lines.append(process.stdout.readline())
    wait_until(
        lambda: (
            "tool_started"
            in read(shell.state / "sessions" / f"{json.loads(lines[0])['session_id']}.jsonl")
        )
    )
    wait_until(lambda: len(descendants(process.pid)) >= 3, "supervisor, zygote and command")
    running = descendants(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == status
    assert list(filter(is_alive, running)) == []
    assert json.loads(out.splitlines()[-1])["stop_reason"] == "cancelled"
    assert re.search(r"interrupted; --resume \S+ continues", err)
    [session] = shell.sessions()
    assert session.history[-1].role == "user"  # each use has its result


@prove
def test_a_second_signal_ends_at_once_and_leaves_nothing_behind(shell, tmp_path):
    (tmp_path / "tmp").mkdir()
    shell.environment["TMPDIR"] = str(tmp_path / "tmp")
    forever = shell.write_script([{"text": "Some."}, {"delay_ms": 600_000, "text": "more"}])
    options = ("--no-session", "--output-format", "stream-json", "--model", forever)
    process = shell.launch("-p", "Wait.", *options, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    assert len(list((tmp_path / "tmp").iterdir())) == 1
    os.kill(process.pid, signal.SIGSTOP)  # so that both are there before the first is heard
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (130, 143)
    assert list((tmp_path / "tmp").iterdir()) == []


REFUSES = """
import resource, sys
from sanderling.__main__ import main
import sanderling.cli.print_mode.run, threading, {module}
def refuse(*_, **__):
    raise {error}
{what} = refuse
sys.argv[1:] = ["-p", "Hi.", "--no-session"]
main()
"""


@pytest.mark.parametrize(
    "what, error, words",
    prove_rest(
        [
            ("threading._start_new_thread", 'RuntimeError("can\'t start new thread")', "threads"),
            (
                "httpx2.create_ssl_context",
                'SystemError("error return without exception set")',
                "memory",
            ),
            ("httpx2.create_ssl_context", "MemoryError", "memory"),
        ],
        keep=(0,),
    ),
)
def test_what_the_system_refuses_is_one_sentence(shell, api, what, error, words):
    code = REFUSES.format(module=what.partition(".")[0], what=what, error=error)
    shell.environment["SSL_CERT_FILE"] = __file__  # or no certificates are needed here
    shell.program = ("-c", code)
    done = shell.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "ulimit" in done.stderr
    assert api.requests == []


@prove
def test_a_signal_prints_no_text_that_is_not_final(shell):
    model = shell.write_script([{"text": "Some"}, {"text": "more", "delay_ms": 600_000}])
    process = shell.launch("-p", "Wait.", "--model", model)
    wait_until(
        lambda: any("Some" in read(path) for path in (shell.state / "sessions").glob("*.jsonl"))
    )
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (130, "")


@prove
def test_a_signal_while_standard_input_is_awaited_stops_at_once(shell):
    model = shell.write_script([{"text": "Some"}])
    process = shell.launch("-p", "--model", model, stdin=subprocess.PIPE)
    wait_until(
        lambda: (
            "SigCgt" in read(Path(f"/proc/{process.pid}/status"))
            and catches(process.pid, signal.SIGTERM)
        )
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 143
    process.communicate()


INTERRUPTS_AN_IMPORT = """
import os, signal, sys, weakref

def interrupt(_):
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass  # here an exception would be raised, and ignored

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "sanderling.conversation.conversation":
            lock = Interrupting()
            self.held = weakref.ref(lock, interrupt)
            del lock  # as the import system drops its own

sys.meta_path.insert(0, Interrupting())
"""


def test_an_interrupt_is_not_lost_while_modules_load(shell, tmp_path):
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(INTERRUPTS_AN_IMPORT)
    shell.environment["PYTHONPATH"] = str(tmp_path / "hooks")
    done = shell.play([{"text": "Hello."}])
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def catches(pid: int, number: int) -> bool:
    found = re.search(r"SigCgt:\s+(\w+)", read(Path(f"/proc/{pid}/status")))
    return bool(found and int(found[1], 16) & 1 << (number - 1))


@prove
def test_a_reader_that_goes_ends_it_quietly(shell):
    model = shell.write_script(
        [{"text": "word " * 10_000, "chunk_chars": 5}, {"text": "more", "delay_ms": 600_000}]
    )
    process = shell.launch("-p", "Talk.", "--model", model, "--output-format", "stream-json")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE
    assert process.stderr.read() == ""
    process.stderr.close()


@prove
def test_a_full_disk_behind_standard_output_is_an_error(shell):
    with Path("/dev/full").open("w") as full:
        done = shell.play([{"text": "Hello."}], stdout=full)
    assert done.returncode == 1
    assert "standard output cannot be written: No space left on device" in done.stderr


@prove
def test_closed_streams_are_no_files_of_ours(shell):
    model = shell.write_script([{"text": "Hello."}])
    line = 'exec "$0" -m sanderling -p hi --model "$1" <&- >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable, model],
        cwd=shell.project,
        env=shell.environment,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0
    assert shell.sessions()[0].history[-1].content[0].text == "Hello."


def test_streams_that_were_closed_lead_nowhere_and_open_ones_need_no_null_device(tmp_path):
    code = (
        "import os, sys\n"
        "import sanderling\n"
        "os.devnull = sys.argv[1]\n"
        "for fd in map(int, sys.argv[2]): os.close(fd)\n"
        "sanderling.open_missing_streams()\n"
        "os._exit(0 if all(os.fstat(fd) for fd in range(3)) else 1)\n"
    )
    nothing = tmp_path / "null"
    for null, closed in ((os.devnull, "012"), (os.devnull, "1"), (str(nothing), "")):
        done = subprocess.run([sys.executable, "-c", code, null, closed], check=False)
        assert done.returncode == 0, (null, closed)


# --- effort ------------------------------------------------------------------------------------------------------------


def test_effort_of_the_command_line_is_requested(shell, api):
    api.answer(Reply(message_start(), text("Yes."), loopback.done()))
    assert shell.run("-p", "Hi.", "--effort", "max").returncode == 0
    assert api.prompts[0].json()["output_config"] == {"effort": "max"}


@prove
def test_effort_that_the_model_does_not_take_is_a_wrong_setting_and_nothing_is_sent(shell, api):
    done = shell.run("-p", "Hi.", "--model", "claude-haiku-4-5", "--effort", "max")
    assert (done.returncode, done.stdout) == (2, "")
    assert "claude-haiku-4-5 has no levels of effort, so 'max' does not apply." in done.stderr
    assert api.prompts == []


# --- limits of a run ---------------------------------------------------------------------------------------------------


def priced(api: LoopbackServer, *contents: bytes) -> None:
    start = message_start(input_tokens=1000, output_tokens=0)
    api.answer(*(Reply(start, content) for content in contents))


def test_cost_limit_ends_the_run_before_the_next_request_with_a_status_of_its_own(shell, api):
    look = tool_use("toolu_1", "ls", "{}") + loopback.done("tool_use")
    priced(api, look, look, look)
    done = shell.run("-p", "Hi.", "--max-cost", "0.003", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["stop_reason"], result["denials"]) == (4, "budget", [])
    assert len(api.prompts) == result["model_calls"] == 2
    assert "This run has cost $0.0041; its limit is $0.003." in done.stderr


def test_token_limit_ends_the_run_before_the_next_request_with_the_same_status(shell, api):
    look = tool_use("toolu_1", "ls", "{}") + loopback.done("tool_use")
    priced(api, look, look, look)
    done = shell.run("-p", "Hi.", "--max-tokens", "1500", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["stop_reason"], result["denials"]) == (4, "budget", [])
    assert len(api.prompts) == result["model_calls"] == 2
    assert "tokens; its limit is 1,500 tokens." in done.stderr


@prove
def test_cost_limit_of_a_model_without_a_known_price_is_an_error_and_nothing_is_paid(shell, api):
    done = shell.run("-p", "Hi.", "--model", "claude-of-tomorrow", "--max-cost", "1")
    assert done.returncode == 1
    assert "The price of claude-of-tomorrow is unknown" in done.stderr
    assert "in [prices.claude-of-tomorrow] of config.toml" in done.stderr
    assert api.prompts == []


@prove
def test_cost_limit_counts_this_run_and_not_the_session(shell, api):
    for more in ((), ("--continue",), ("--continue",)):
        priced(api, text("Yes.") + loopback.done())
        assert shell.run("-p", "Hi.", "--max-cost", "0.0035", *more).returncode == 0


def test_time_limit_ends_the_run_with_a_status_of_its_own_and_the_session_can_go_on(shell):
    model = shell.write_script([{"text": "One"}, {"delay_ms": 3_600_000}])
    done = shell.run("-p", "Go.", "--model", model, "--max-time", "0.5", "--output-format", "json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["stop_reason"], result["text"]) == (4, "max_time", "One")
    assert "stopped after 0.5 s" in done.stderr
    [session] = shell.sessions()
    assert session.history[-1].role == "assistant"


@prove
@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
@pytest.mark.parametrize("flag", ["--max-cost", "--max-time"])
def test_limit_that_is_no_number_above_0_is_refused(shell, flag, value):
    done = shell.run("-p", "Hi.", f"{flag}={value}")
    assert done.returncode == 2
    assert f"'{value}' is not a number above 0" in done.stderr


# --- answers for programs ----------------------------------------------------------------------------------------------


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["name", "count"],
    "additionalProperties": False,
}
FITS = {"name": "Émile", "count": 2}


@pytest.fixture
def schema(shell: Shell) -> str:
    path = shell.project / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


@pytest.mark.parametrize(
    "answer", prove_rest(["{}", "```json\n{}\n```", "Here it is:\n\n```\n{}\n```\n"])
)
def test_answer_that_fits_the_schema_is_printed_as_json(shell, schema, answer):
    said = answer.replace("{}", json.dumps(FITS))
    done = shell.play([{"text": said}], args=("--json-schema", schema))
    assert (done.returncode, json.loads(done.stdout)) == (0, FITS)
    [session] = shell.sessions()
    asked = "".join(block.text for block in session.history[0].content)
    assert json.dumps(SCHEMA, separators=(",", ":")) in asked


def test_answer_that_does_not_fit_is_asked_for_once_more(shell, schema):
    done = shell.play(
        [{"text": '{"name": 3}'}],
        [{"text": json.dumps(FITS)}],
        args=("--json-schema", schema, "--output-format", "json"),
    )
    result = json.loads(done.stdout)
    assert (done.returncode, result["output"], result["model_calls"]) == (0, FITS, 2)
    [session] = shell.sessions()
    repair = session.prompts[1].text
    assert "'count' is a required property" in repair
    assert "$.name: 3 is not of type 'string'" in repair


def test_second_answer_that_does_not_fit_is_an_error_with_a_status_of_its_own(shell, schema):
    done = shell.play(
        [{"text": "I cannot."}],
        [{"text": "Still not."}],
        args=("--json-schema", schema, "--output-format", "json"),
    )
    result = json.loads(done.stdout)
    assert (done.returncode, result["is_error"], result["error"]["kind"]) == (5, True, "schema")
    assert "output" not in result
    plain = shell.play(
        [{"text": "I cannot."}], [{"text": "NaN"}], args=("--json-schema", schema, "--quiet")
    )
    assert (plain.returncode, plain.stdout) == (5, "")


def test_stream_of_a_repaired_answer_has_both_turns_and_one_result(shell, schema):
    done = shell.play(
        [{"text": '{"name": 3}'}],
        [{"text": json.dumps(FITS)}],
        args=("--json-schema", schema, "--output-format", "stream-json"),
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    events = [normalised(line, shell) for line in lines if "sandbox_changed" not in line]
    golden = GOLDEN / "stream_json_schema_v1.jsonl"
    assert events == list(map(json.loads, golden.read_text().splitlines()))


@pytest.mark.parametrize(
    "content, words",
    prove_rest(
        [
            ("{", "it is not JSON"),
            ("3", "a schema is an object"),
            ('{"type": "objekt"}', "it is not a JSON schema: $.type"),
            ('{"properties": {"a": {"$ref": "https://example.org/x"}}}', "leads out of the file"),
            (None, "No such file or directory"),
        ]
    ),
)
def test_schema_that_cannot_be_used_is_refused_and_nothing_is_sent(shell, content, words):
    path = shell.project / "own.json"
    if content is not None:
        path.write_text(content)
    done = shell.play([{"text": "{}"}], args=("--json-schema", str(path)))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert shell.sessions() == []


# --- another model -----------------------------------------------------------------------------------------------------


def test_fallback_model_answers_when_the_first_is_overloaded(shell, api):
    yes = Reply(message_start(), text("Yes."), loopback.done())
    api.answer(*[Status(529, message="busy") for _ in range(3)], yes)
    done = shell.run("-p", "Hi.", "--fallback-model", "claude-haiku-4-5")
    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    models = [each.json()["model"] for each in api.prompts]
    assert models == ["claude-sonnet-5-5"] * 3 + ["claude-haiku-4-5"]
    assert "Continuing with claude-haiku-4-5." in done.stderr


def test_fallback_model_answers_at_once_when_the_api_does_not_know_the_first(shell, api):
    unknown = Status(404, "not_found_error", "model: claude-x")
    api.answer(unknown, Reply(message_start(), text("Yes."), loopback.done()))
    done = shell.run("-p", "Hi.", "--model", "claude-x", "--fallback-model", "claude-haiku-4-5")
    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert len(api.prompts) == 2


@prove
def test_fallback_model_of_an_unknown_provider_is_refused_and_nothing_is_sent(shell, api):
    done = shell.run("-p", "Hi.", "--fallback-model", "nowhere:model")
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert api.prompts == []


# --- terminals ---------------------------------------------------------------------------------------------------------


def test_the_model_uses_a_terminal(shell):
    pty = {"name": "bash", "input": {"command": "exec cat", "pty": True}}
    send = {"name": "jobs", "input": {"action": "send", "id": "j1", "text": "over here\n"}}
    steps = ([{"tool_use": each}] for each in (pty, send))
    done = shell.play(*steps, [{"text": "Done."}], args=("--mode", "auto"))
    assert done.returncode == 0, done.stderr
    log = next((shell.state / "sessions").glob("*.jsonl")).read_text()
    assert r"over here\nover here\n[j1 has a terminal" in log
