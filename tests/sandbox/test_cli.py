"""`sanderling sandbox status|exec` as scripts and bug reports use it."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sanderling.cli.sandbox import LAYER_ADVICE, findings
from sanderling.sandbox.policy import LEVELS
from sanderling.sandbox.report import LayerReport
from tests.conftest import ROOT, prove, prove_rest, running, wait_until

GOLDEN = ROOT / "tests/golden/sandbox_status.json"
STRANGER = 12345  # a user id of nobody
TIMEOUT_S = 60
USERS = ["own", "stranger"] if os.geteuid() == 0 else ["own"]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
IN_USER_NAMESPACE = ("unshare", "--user", "--map-root-user")


def can_unshare() -> bool:
    argv = [*IN_USER_NAMESPACE, "test", "-w", "/proc/sys/user/max_inotify_instances"]
    return bool(shutil.which("unshare")) and subprocess.run(argv, check=False).returncode == 0


needs_unshare = pytest.mark.skipif(not can_unshare(), reason="no user namespaces")


@dataclass
class Caller:
    """Somebody who uses the command line: their home, a project in it, and a Python that they can run."""

    base: Path
    python: str = sys.executable
    user: dict = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home, self.project = self.base / "home", self.base / "home/project"
        for directory in (self.project / "sub", self.base / "outside"):
            directory.mkdir(parents=True)
        (self.base / "outside/secret").write_text("secret\n")
        (self.project / "file").write_text("public\n")
        if self.user:
            uid = self.user["user"]
            subprocess.run(["chown", "-R", f"{uid}:{uid}", self.base], check=True)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": SYSTEM_PATH, "HOME": str(self.home), "LANG": "C.UTF-8"} | self.variables

    def argv(self, *words: str) -> list[str]:
        return [self.python, "-m", "sanderling", "sandbox", *words]

    def options(self, **options) -> dict:
        return {"cwd": self.project, "env": self.environment} | self.user | options

    def call(self, *words: str, **options) -> subprocess.CompletedProcess[str]:
        options = {"timeout": TIMEOUT_S, "text": True, "capture_output": True} | options
        return subprocess.run(self.argv(*words), check=False, **self.options(**options))

    def exec(self, *words: str, **options) -> subprocess.CompletedProcess[str]:
        return self.call("exec", *words, **options)

    def start(self, *words: str, **options) -> subprocess.Popen[str]:
        options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        return subprocess.Popen(self.argv("exec", *words), **self.options(**options))


def stranger(base: Path) -> Caller:
    """A user without rights, with the system's Python and the packages of this one."""
    import msgspec

    packages = f"{ROOT / 'src'}:{Path(msgspec.__file__).parent.parent}"
    user = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
    python = shutil.which(f"python3.{sys.version_info.minor}", path=SYSTEM_PATH) or "false"
    if not can_run(python, packages):
        pytest.skip("no Python of this version that every user can run")
    return Caller(base, python, user, {"PYTHONPATH": packages})


@functools.cache
def can_run(python: str, packages: str) -> bool:
    attempt = [python, "-c", "import landlock, msgspec, sanderling"]
    try:
        tried = subprocess.run(
            attempt,
            env={"PYTHONPATH": packages},
            cwd="/",
            check=False,
            capture_output=True,
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
        )
    except OSError:
        return False
    return tried.returncode == 0


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own is private."""
    with tempfile.TemporaryDirectory(prefix="cli-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(params=prove_rest(USERS, keep=(0,)))
def caller(request, base) -> Caller:
    return Caller(base) if request.param == "own" else stranger(base)


@pytest.fixture
def me(base) -> Caller:
    return Caller(base)


@pytest.fixture
def needs(me) -> Callable[[str], None]:
    report = json.loads(me.call("status", "--json").stdout)

    def skip_without(layer: str) -> None:
        if reason := report["layers"][layer]["reason"]:
            pytest.skip(f"no {layer} here: {reason}")

    return skip_without


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """The sentence with which the sandbox refused; nothing else was written."""
    assert done.returncode == 125, done
    assert done.stdout == ""
    assert done.stderr.startswith("sanderling: ")
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    return done.stderr


# --- status ------------------------------------------------------------------------------------------------------------


def shape(value: object) -> object:
    match value:
        case dict():
            return {key: shape(item) for key, item in value.items()}
        case list():
            return [shape(item) for item in value]
        case _:
            return type(value).__name__


@prove
def test_status_has_the_keys_that_scripts_rely_on(caller):
    done = caller.call("status", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    status = json.loads(done.stdout)
    golden = json.loads(GOLDEN.read_text())
    for gap in status["missing"] or golden["missing"]:
        assert [shape(gap)] == golden["missing"] or gap == golden["missing"][0]
    for finding in status["findings"]:
        assert [shape(finding | {"advice": []})] == golden["findings"]
    lists = {"missing": [], "findings": []}
    assert shape(status | lists) == golden | lists
    assert list(status) == list(golden)


@prove
def test_status_agrees_with_itself(me):
    status = json.loads(me.call("status", "--json").stdout)
    assert status["level"] in LEVELS
    assert status["network"] == "off"
    for layer in status["layers"].values():
        assert layer["works"] is (layer["reason"] == "")
    assert status["layers"]["landlock"]["works"] is (status["landlock_abi"] > 0)
    assert all(gap["what"].endswith(".") and gap["reason"] for gap in status["missing"])


def test_status_for_people_names_the_level_and_each_gap(me):
    status = json.loads(me.call("status", "--json").stdout)
    first, *others = me.call("status").stdout.splitlines()
    assert first == f"level: {status['level']}"
    advice = [f"* {each}" for finding in status["findings"] for each in finding["advice"]]
    assert others == [f"- {gap['what']} ({gap['reason']})" for gap in status["missing"]] + advice


@pytest.mark.parametrize(
    "failing, min_level, level, text, advised",
    [
        ("", "full", "ok", "level full", []),
        ("bubblewrap", "full", "ok", "level full", []),
        ("landlock", "none", "warn", "level namespaces, weaker than full", ["landlock"]),
        (
            "landlock",
            "full",
            "error",
            "level namespaces, but the option sandbox.min_level is 'full': commands are blocked here",
            ["landlock"],
        ),
        (
            "namespaces bubblewrap landlock",
            "none",
            "error",
            "level none: commands are blocked here",
            ["namespaces", "bubblewrap", "landlock"],
        ),
    ],
)
def test_status_advises_on_the_layers_that_would_make_it_stronger(
    failing, min_level, level, text, advised
):
    layers = ("namespaces", "bubblewrap", "landlock", "seccomp")
    reasons = {layer: "It fails." if layer in failing.split() else "" for layer in layers}
    first, *_ = findings(LayerReport(reasons, 0 if reasons["landlock"] else 9), min_level)
    assert first == {
        "level": level,
        "text": text,
        "advice": [LAYER_ADVICE[layer] for layer in advised],
    }


@prove
def test_level_of_the_status_is_the_one_that_commands_get(caller):
    level = json.loads(caller.call("status", "--json").stdout)["level"]
    done = caller.exec("--", "sh", "-c", "echo $SANDERLING_SANDBOX")
    assert done.stdout == f"{level}\n"


# --- exec --------------------------------------------------------------------------------------------------------------


@prove
@pytest.mark.parametrize("status", [0, 1, 42, 125, 255])
def test_exit_status_is_passed_through(me, status):
    done = me.exec("--", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")


@prove
def test_exit_status_of_a_signal_is_128_more(me):
    for number in (signal.SIGTERM, signal.SIGKILL):
        assert me.exec("--", "sh", "-c", f"kill -{number} $$").returncode == 128 + number


@prove
def test_program_that_is_missing_or_none_is_told_as_a_shell_does(me):
    assert me.exec("--", "no-such-program").returncode == 127
    assert me.exec("--", "./file").returncode == 126


@prove
def test_streams_are_passed_through_as_bytes(caller):
    data = os.urandom(1 << 20)
    done = caller.exec("--", "sh", "-c", "cat; echo err >&2", input=data, text=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"err\n")


@prove
def test_arguments_are_passed_as_they_are(me):
    words = ["-c", "--", "a b", "", "*", "--level", "$HOME", "ü\n"]
    done = me.exec("--", "printf", "<%s>", *words)
    assert done.stdout == "".join(f"<{word}>" for word in words)


@prove
def test_options_come_before_the_command_only(me):
    assert me.exec("--", "echo", "--mode", "ro", "--").stdout == "--mode ro --\n"


@prove
def test_command_starts_where_the_caller_is(me):
    done = me.exec("--project", "..", "--", "pwd", cwd=me.project / "sub")
    assert done.stdout == f"{me.project}/sub\n"


@prove
def test_project_is_the_directory_of_the_caller_unless_it_is_told(me):
    assert me.exec("--", "touch", "new").returncode == 0
    assert (me.project / "new").exists()
    me.exec("--", "sh", "-c", "echo x > ../new", cwd=me.project / "sub")
    assert not (me.project / "new").read_text()


@prove
def test_project_can_be_used_from_anywhere(me):
    done = me.exec("--project", str(me.project), "--", "cat", "file", cwd=me.base / "outside")
    assert done.stdout == "public\n" or "is not a directory inside the sandbox" in refusal(done)


def test_in_plan_mode_the_project_is_read_only(caller):
    script = 'cat file; touch new || touch "$TMPDIR/new" && echo tmp'
    done = caller.exec("--mode", "ro", "--", "sh", "-c", script)
    assert done.stdout == "public\ntmp\n"
    assert not (caller.project / "new").exists()


@prove
def test_outside_is_seen_and_written_only_when_it_is_granted(caller):
    outside = caller.base / "outside"
    script = f"cat {outside}/secret; echo new > {outside}/new"
    assert caller.exec("--", "sh", "-c", script).stdout == ""
    assert caller.exec("--ro", str(outside), "--", "sh", "-c", script).stdout == "secret\n"
    assert not (outside / "new").exists()
    assert caller.exec("--rw", str(outside), "--", "sh", "-c", script).stdout == "secret\n"
    assert (outside / "new").read_text() == "new\n"


@prove
def test_grants_can_be_repeated(me):
    for name in ("a", "b"):
        (me.base / name).mkdir()
        (me.base / name / "file").write_text(name)
    grants = [word for name in ("a", "b") for word in ("--ro", str(me.base / name))]
    done = me.exec(*grants, "--", "cat", f"{me.base}/a/file", f"{me.base}/b/file")
    assert done.stdout == "ab"


@prove
@pytest.mark.parametrize("level", LEVELS[:-1])
def test_level_is_the_one_that_is_asked_for_or_refused(caller, level):
    done = caller.exec("--level", level, "--", "sh", "-c", "echo $SANDERLING_SANDBOX")
    if done.returncode:
        assert f"'{level}' does not work here: " in refusal(done)
    else:
        assert done.stdout == f"{level}\n"


@prove
@pytest.mark.parametrize("network, is_open", [("off", False), ("proxy", False), ("on", True)])
def test_network_is_the_one_that_is_asked_for(me, needs, network, is_open):
    needs("namespaces")
    done = me.exec("--net", network, "--", "cat", "/proc/net/dev")
    assert (len(done.stdout.splitlines()) > 3) is is_open


@prove
def test_proxy_refuses_a_host_that_is_not_listed_and_says_so(me, needs):
    needs("namespaces")
    if not shutil.which("curl"):
        pytest.skip("no curl")
    curl = ("curl", "-sS", "--max-time", "5", "http://sanderling.example:81/")
    done = me.exec("--net", "proxy", "--allow-host", "example.org", "--", *curl)
    assert ":AgentNet" in done.stdout
    assert "sanderling: denied: connect sanderling.example:81 (" in done.stderr


@prove
def test_what_the_guard_did_is_told_on_stderr(caller):
    done = caller.exec("--", "sh", "-c", "echo evil > .envrc; echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, "out\n")
    told = sorted(done.stderr.splitlines())
    assert told == ["err", "sanderling: guard: quarantined: .envrc: must not appear"]
    assert not (caller.project / ".envrc").exists()


@prove
def test_guard_can_be_left_out(me):
    done = me.exec("--no-guard", "--", "sh", "-c", "echo kept > .envrc")
    assert (done.returncode, done.stderr) == (0, "")
    assert (me.project / ".envrc").exists()


@prove
def test_state_is_where_the_caller_keeps_state(me, base):
    me.variables["XDG_STATE_HOME"] = str(base / "my-state")
    me.exec("--", "sh", "-c", "echo kept > ~/file")
    [home] = (base / "my-state/sanderling/sandbox").glob("project-*/home")
    assert (home / "file").read_text() == "kept\n"
    assert not (me.home / ".local").exists()


# --- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, sentence",
    prove_rest(
        [
            (["--project", "missing"], "does not exist"),
            (["--project", "file"], "is not a directory"),
            (["--project", "/"], "more than a command may touch"),
            (["--project", ".."], "more than a command may touch"),
            (["--rw", "../missing"], "does not exist"),
            (["--ro", ".."], "more than a command may touch"),
            (["--net", "proxy", "--allow-host", "a b"], "is not a host"),
            (["--net", "proxy", "--level", "landlock"], "proxy needs namespaces"),
        ],
        keep=(0,),
    ),
    ids=str,
)
def test_refusal_is_status_125_and_one_sentence(me, words, sentence):
    assert sentence in refusal(me.exec(*words, "--", "touch", "ran"))
    assert not (me.project / "ran").exists()


@prove
def test_directory_that_is_hidden_inside_is_a_refusal_or_the_project(me):
    done = me.exec("--project", str(me.project), "--", "pwd", cwd=me.base / "outside")
    if done.returncode:
        assert "outside is not a directory inside the sandbox." in refusal(done)
    else:
        assert done.stdout == f"{me.project}\n"


@prove
def test_state_that_cannot_be_kept_is_a_refusal(me, base):
    (base / "file").touch()
    me.variables["XDG_STATE_HOME"] = str(base / "file/below")
    assert "Not a directory" in refusal(me.exec("--", "touch", "ran"))
    assert not (me.project / "ran").exists()


@prove
@pytest.mark.parametrize("project", ["..", "{}"])
def test_directory_that_is_gone_is_a_refusal(me, project):
    script = 'rmdir "$PWD" && exec "$@"'
    words = ("--project", project.format(me.project))
    argv = ["sh", "-c", script, "sh", *me.argv("exec", *words, "--", "pwd")]
    options = me.options(cwd=me.project / "sub")
    refusal(subprocess.run(argv, check=False, capture_output=True, text=True, **options))


@pytest.mark.parametrize("fd", prove_rest([0, 1, 2], keep=(0,)))
def test_a_stream_that_was_closed_is_none_of_the_sandboxs_files_for_the_command(me, fd):
    script = f'exec "$@" {fd}<&-'
    command = ["sh", "-c", f'found=$(readlink /proc/$$/fd/{fd}); echo "$found" >stream']
    argv = ["sh", "-c", script, "sh", *me.argv("exec", "--", *command)]
    subprocess.run(argv, check=True, capture_output=True, **me.options())
    assert (me.project / "stream").read_text() == "/dev/null\n"


@prove
def test_argument_that_is_no_text_is_passed(me):
    argv = [os.fsencode(word) for word in me.argv("exec", "--", "printf", "%s")]
    done = subprocess.run([*argv, b"\xff"], check=False, capture_output=True, **me.options())
    assert (done.returncode, done.stdout) == (0, b"\xff")


@pytest.mark.parametrize(
    "words",
    prove_rest(
        [[], ["--"], ["--bogus", "--", "true"], ["--net", "wide", "--", "true"]], keep=(-1,)
    ),
    ids=str,
)
def test_call_that_is_none_is_status_2_and_the_usage(me, words):
    done = me.exec(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: sanderling ")


# --- signals -----------------------------------------------------------------------------------------------------------


@prove
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT], ids=lambda n: n.name
)
def test_signal_is_forwarded_and_its_status_is_the_commands(me, number):
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo caught; exit 9' {name}; echo started; while :; do sleep 0.05; done"
    with me.start("--", "sh", "-c", script) as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        output, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, output) == (9, "caught\n")


@prove
@pytest.mark.parametrize("command", ["sleep 1000", "kill -STOP $$"])
def test_a_second_sigterm_kills_a_command_that_does_not_end(me, command):
    with me.start("--", "sh", "-c", f"trap '' TERM; echo started; {command}") as process:
        assert process.stdout.readline() == "started\n"
        process.terminate()
        time.sleep(0.5)  # two signals at the same time are one
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 128 + signal.SIGKILL


@prove
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_command_that_a_signal_ends_is_told_as_128_more(caller, number):
    with caller.start("--", "sh", "-c", "echo started; exec sleep 1000") as process:
        assert process.stdout.readline() == "started\n"
        process.send_signal(number)
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
    assert process.returncode == 128 + number


@prove
def test_terminal_that_interrupts_everybody_ends_the_command_once(me):
    """The me's process group gets SIGINT, as from a terminal; the command has a session of its own."""
    script = "trap 'echo caught; exit 9' INT; echo started; while :; do sleep 0.05; done"
    with me.start("--", "sh", "-c", script, process_group=0) as process:
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S)[0] == "caught\n"
    assert process.returncode == 9


@prove
def test_reader_that_goes_away_ends_the_command(me):
    with me.start("--", "yes") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGPIPE


@needs_unshare
def test_without_inotify_instances_nothing_runs_and_that_is_said(me):
    """In a user namespace with a limit of its own: what else this user runs has no part in it."""
    limited = 'echo 0 >/proc/sys/user/max_inotify_instances; exec "$@"'
    command = me.argv("exec", "--", "touch", "ran")
    done = subprocess.run(
        [*IN_USER_NAMESPACE, "sh", "-c", limited, "sh", *command],
        check=False,
        capture_output=True,
        text=True,
        **me.options(),
    )
    assert done.returncode == 125
    assert "no inotify instances left (limit 0)" in done.stderr
    assert "`sudo sysctl fs.inotify.max_user_instances=1024`" in done.stderr
    [tag] = re.findall(r"sanderling-inotify", done.stderr)
    assert f"*{tag}*" in (ROOT / "doc/sanderling.txt").read_text()
    assert not (me.project / "ran").exists()


@needs_unshare
def test_a_test_knows_how_many_inotify_instances_are_left():
    limited = 'echo 3 >/proc/sys/user/max_inotify_instances; exec "$@"'
    code = "from tests.conftest import inotify_instances_left; print(inotify_instances_left())"
    argv = [*IN_USER_NAMESPACE, "sh", "-c", limited, "sh", sys.executable, "-c", code]
    assert subprocess.check_output(argv, cwd=ROOT, text=True) == "3\n"


@prove
def test_nothing_is_left_when_the_command_line_is_killed(caller, marker):
    with caller.start("--", "sh", "-c", f"setsid {marker} & echo started; {marker}") as process:
        assert process.stdout.readline() == "started\n"
        process.kill()
        process.wait()
    wait_until(lambda: not running(marker))


# --- directories in / ---------------------------------------------------------------------------------------------------


def test_a_directory_is_mounted_in_the_root_and_writable_there(caller):
    logs, work = caller.home / "logs", caller.home / "work"
    made = ["mkdir", "-p", str(logs), str(work / "in")]
    subprocess.run(made, check=True, **{name: caller.user[name] for name in caller.user})
    mounts = ("--mount", f"/logs={logs}", "--mount", f"/app={work}", "--project", "/app")
    script = f"cd /app/in && pwd && echo 1 > new && echo 2 > /logs/new; cat /app/in/new; ls {logs}"
    done = caller.exec(*mounts, "--", "sh", "-c", script, cwd="/")
    assert done.stdout.split() == ["/app/in", "1"], done.stderr
    assert done.returncode != 0
    assert [path.read_text() for path in (work / "in/new", logs / "new")] == ["1\n", "2\n"]


@pytest.mark.parametrize(
    "mount, reason",
    [
        ("/etc={}", "/etc cannot be mounted"),
        ("app={}", "app cannot be mounted"),
        ("/a/b={}", "/a/b cannot be mounted"),
        ("/app={}/missing", "missing is not a directory"),
        ("/app", "write /NAME=DIR"),
        (f"/{Path(sys.prefix).resolve().parts[1]}={{}}", "cannot be mounted"),
    ],
)
def test_a_mount_that_cannot_be_is_refused_with_its_reason(me, tmp_path, mount, reason):
    done = me.exec("--mount", mount.format(tmp_path), "--", "true")
    assert done.returncode == 125
    assert reason in done.stderr


@prove
def test_a_variable_that_the_caller_names_reaches_the_command_and_no_other(caller: Caller):
    caller.variables |= {"MY_API_KEY": "named", "OTHER_API_KEY": "unnamed"}
    done = caller.exec("--env", "MY_API_KEY", "--", "sh", "-c", "echo $MY_API_KEY $OTHER_API_KEY")
    assert done.stdout == "named\n", done.stderr
