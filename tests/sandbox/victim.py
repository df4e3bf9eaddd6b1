"""
The outside world that attacks aim at: a user's HOME, projects, sockets, processes, terminals; and what became of them.

`Victim` builds it and judges. The part that has to *be* the user (sockets, keys, processes) is this same file, run as that
user: `python3 victim.py FACTS`. It adds to the facts what it made and notes in a log what happened to it.
"""

# ruff: noqa: PTH115, PTH116, PTH208

import contextlib
import ctypes
import json
import os
import resource
import secrets
import selectors
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tests.sandbox.attacks import Attack

SYSTEM_PYTHON = "/usr/bin/python3"
HERE = Path(__file__).resolve().parent
GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
LEFTOVER_S = 0.3
ENDED_S = 5.0  # by then what the sandbox ends has ended; what stays would stay for half a minute
BATCH_S = 120.0  # what a launch, and attacks that share one, may take beside what each waits for
OWN_PROJECT = ("own", "late", "worktree")
SHARED = ("/tmp", "/var/tmp", "/dev/shm")


@dataclass(frozen=True, slots=True)
class User:
    name: str
    uid: int

    @property
    def popen_options(self) -> dict[str, Any]:
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.uid, "extra_groups": []}


@dataclass(frozen=True, slots=True)
class Verdict:
    escaped: bool
    detail: str
    needs: str = ""
    """Why the attack could prove nothing here."""


Launch = Callable[[Path, str], list[str]]
"""What stands before a command, for a project and a scene: nothing, or the sandbox."""


class Victim:
    """One user's world, made anew for one run of the suite."""

    def __init__(self, user: User, attacks: Sequence["Attack"], nvim: str = "") -> None:
        self.user = user
        self.attacks = attacks
        self.name = f"sanderling-escape-{secrets.token_hex(3)}"
        self.token = f"CANARY-{secrets.token_hex(8)}"
        is_root = os.geteuid() == 0
        # Not below /tmp, which is private inside; and one directory that every program sees, as programs keep theirs.
        self.base = Path("/home" if is_root else "/var/tmp", self.name)
        self.elsewhere = Path("/var/lib" if is_root else "/opt", self.name)
        if not os.access(self.elsewhere.parent, os.W_OK):
            self.elsewhere = self.base / "elsewhere"
        self.home = self.base / "me"
        self.work = self.home / "work"
        self.nvim = nvim
        self._made: list[Path] = [self.base, self.elsewhere]
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    # ---------------------------------------------------------------- making the world

    def __enter__(self) -> Self:
        try:
            self._make_files()
            self._own(*self._made)
            self._make_projects()
            self._start_server()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        if self._server:
            with contextlib.suppress(OSError):
                self._server.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(3)
            self._server.kill()
            self._server.wait()
            self._server.stdout.close()
        while pids := self._marked_processes():
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        planted = (path for parent in SHARED for path in Path(parent).glob(f"*{self.name}*"))
        for path in (*self._made, *planted):
            _remove(path)

    def _make_files(self) -> None:
        from tests.sandbox.attacks.valuables import SECRETS

        self.work.mkdir(parents=True)
        self.elsewhere.mkdir(parents=True)
        # What is private is private to the user; the directories on the way to the project are not.
        shared = {
            "tmp": Path("/tmp", self.name),
            "var_tmp": Path("/var/tmp", self.name),
            "dev_shm": Path("/dev/shm", self.name),
        }
        is_root = os.geteuid() == 0
        if is_root:
            shared["run"] = Path("/run", self.name)
        for directory in shared.values():
            directory.mkdir()
        self._made += shared.values()
        for attack in self.attacks:
            places = [self.home / "outside" / attack.id, self.elsewhere / attack.id]
            places += [directory / attack.id for directory in shared.values()]
            for place in places:
                (place / "dir").mkdir(parents=True)
                (place / "file").write_text(f"{self.token}\n")
                with contextlib.suppress(OSError):
                    os.setxattr(place / "file", "user.kept", b"1")
                (place / "file").chmod(0o644)
        shared_file = Path("/dev/shm", f"{self.name}-shared")
        shared_file.write_text(self.token)
        self._made.append(shared_file)
        program = self.home / "outside/secret-exec/program"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\n: > {program.parent}/ran\n")
        program.chmod(0o755)
        secret_paths = {name: self.home / path for name, path in SECRETS.items()}
        secret_paths["moved"] = self.home / ".ssh" / "old"
        for path in secret_paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{self.token}\n")
            path.chmod(0o600)
        for path in (
            *(".bashrc", ".profile", ".gitconfig", ".config/nvim/init.lua", ".ssh/authorized_keys"),
        ):
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text("")
        (self.home / ".gitconfig").write_text("[user]\n\tname = Me\n\temail = me@example.org\n")
        (self.home / ".local/state/sanderling/trusted").write_text("")
        for path in (".config/autostart", ".local/bin", ".config/systemd/user", ".local/lib"):
            (self.home / path).mkdir(parents=True, exist_ok=True)
        (self.home / "Documents" / self.token).touch()
        (self.home / ".ssh/link").symlink_to(self.token)
        with contextlib.suppress(OSError):
            os.setxattr(secret_paths["ssh-key"], "user.note", self.token.encode())
        self.facts: dict[str, Any] = {
            "name": self.name,
            "home": str(self.home),
            "elsewhere": str(self.elsewhere),
            "busy_directory": str(self.home / "busy"),
            "secrets": {name: str(path) for name, path in secret_paths.items()},
            "secret_link": str(self.home / ".ssh/link"),
            "marker": f"marker-{self.name}-",
            "short_marker": self.name[-15:],
            "user_namespace": os.readlink("/proc/self/ns/user"),
            "shared_name": f"{self.name}-shared",
            "attack_ids": [attack.id for attack in self.attacks],
            "needs_process": [attack.id for attack in self.attacks if attack.kind == "processes"],
            "other_uid": 12346,
            "signal_limit": resource.getrlimit(resource.RLIMIT_SIGPENDING)[1],
            "has_ia32": Path("/proc/sys/abi/ldt16").exists() or _has_ia32(),
        }
        (self.home / "busy").mkdir()
        if is_root:
            self._make_what_root_can()
        self.facts |= {
            f"has_{name.removeprefix('has_')}": True
            for name in ("sudo", "crontab", "at")
            if shutil.which(name)
        }
        if _first_line("/proc/sys/dev/tty/legacy_tiocsti") in ("", "1"):
            self.facts["has_tiocsti"] = True
        if int(_first_line("/proc/sys/kernel/perf_event_paranoid") or 9) <= 2:
            self.facts["has_perf"] = True
        if Path("/proc/sys/net/mptcp/enabled").exists():
            self.facts["has_mptcp"] = True
        for name, family, kind, protocol in (
            ("vsock", 40, socket.SOCK_STREAM, 0),
            ("alg", 38, socket.SOCK_SEQPACKET, 0),
            ("xdp", 44, socket.SOCK_RAW, 0),
            ("audit", socket.AF_NETLINK, socket.SOCK_RAW, 9),
        ):
            with contextlib.suppress(OSError):
                socket.socket(family, kind, protocol).close()
                self.facts[f"has_{name}"] = True

    def _make_what_root_can(self) -> None:
        self.facts["has_run"] = True
        # What only root reads in /etc is in every sandbox's way: none that no attack is after.
        in_etc = [Path("/etc", self.name)] if self.user.uid == 0 else []
        for directory in (*in_etc, Path("/usr/local/lib", self.name)):
            directory.mkdir()
            (directory / "file").write_text("")
            (directory / "key").write_text(f"{self.token}\n")
            (directory / "key").chmod(0o600)
        other = self.elsewhere / "other-users"
        other.write_text(f"{self.token}\n")
        other.chmod(0o600)
        log = Path("/var/log", self.name)
        log.write_text(f"{self.token}\n")
        mail = Path("/var/mail", self.name)
        if mail.parent.exists():
            mail.write_text(f"{self.token}\n")
            self.facts["mail"] = str(mail)
        setuid = self.elsewhere / "setuid-id"
        shutil.copy(shutil.which("id") or "/usr/bin/id", setuid)
        self.facts |= {
            "other_users_file": str(other),
            "system_log": str(log),
            "setuid_program": str(setuid),
        }
        root_device = os.stat("/").st_dev
        if os.stat(self.base).st_dev == root_device:
            self.facts["root_inode"] = os.stat("/").st_ino
            numbers = (os.major(root_device), os.minor(root_device))
            block = Path(f"/sys/dev/block/{numbers[0]}:{numbers[1]}/uevent")
            name = dict(line.split("=") for line in _lines(block)).get("DEVNAME", "")
            if name and _can_open(f"/dev/{name}"):
                self.facts |= {"block_device": f"/dev/{name}", "block_numbers": numbers}
        self._made += [*in_etc, Path("/usr/local/lib", self.name), log, mail]

    def _own(self, *roots: Path) -> None:
        """Give everything to the user, except what belongs to someone else on purpose."""
        if self.user.uid != os.geteuid():
            for top in roots:
                if top.parts[1] in ("etc", "usr"):
                    continue
                os.chown(top, self.user.uid, self.user.uid, follow_symlinks=False)
                for parent, directories, files in os.walk(top):
                    for name in directories + files:
                        os.chown(
                            f"{parent}/{name}", self.user.uid, self.user.uid, follow_symlinks=False
                        )
        if other := self.facts.get("other_users_file"):
            os.chown(other, self.facts["other_uid"], self.facts["other_uid"])
            owner = self.facts["other_uid"] if self.user.uid == 0 else 0
            os.chown(self.facts["setuid_program"], owner, owner)
            Path(self.facts["setuid_program"]).chmod(0o4755)
        closed = self.elsewhere / "closed"
        closed.write_text(f"{self.token}\n")
        closed.chmod(0o600)
        os.chown(closed, self.user.uid, self.user.uid)
        self.facts["closed_file"] = str(closed)

    def _make_projects(self) -> None:
        """As the user: a main project with a submodule, a nested repository, and every protected name; a bare one."""
        script = _PROJECT_SCRIPT.format(home=self.home, work=self.work, token=self.token)
        self.as_user(["sh", "-euc", script], check=True, cwd=self.work)
        for name in ("main", "bare", "ro"):
            shutil.copytree(
                HERE / "attacks", self.work / name / ".attacks/attacks", ignore=_NO_CACHE
            )
            if name == "ro":
                for attack_id in self.facts["attack_ids"]:
                    if attack_id.startswith("ro-"):
                        (self.work / "ro/keep" / attack_id).mkdir(parents=True)
                        (self.work / "ro/keep" / attack_id / "file").write_text("x")
            self._own(self.work / name)
        shutil.copytree(HERE / "attacks", self.base / "attacks", ignore=_NO_CACHE)

    def as_user(
        self, argv: Sequence[str], *, check: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        own = {"stdin": subprocess.DEVNULL, "env": self.plain_env(), **self.user.popen_options}
        return subprocess.run(argv, capture_output=True, check=check, **own | options)

    def plain_env(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        } | GIT

    def secret_env(self) -> dict[str, str]:
        from tests.sandbox.attacks.environment import VARIABLES

        return self.plain_env() | {name: f"{self.token}-{name}" for name in VARIABLES}

    def _start_server(self) -> None:
        facts_path = self.base / "facts.json"
        self.facts["nvim_program"] = self.nvim
        self.facts["events"] = str(self.home / "busy" / "events")
        self.facts["project"] = str(self.work / "main")
        facts_path.write_text(json.dumps(self.facts))
        self._server = subprocess.Popen(
            [
                SYSTEM_PYTHON,
                "-B",
                __file__ if self.user.uid == os.geteuid() else self._server_copy(),
                str(facts_path),
                self.token,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self.home,
            env=self.secret_env(),
            start_new_session=True,
            **self.user.popen_options,
        )
        assert self._server.stdout
        line = self._server.stdout.readline()
        assert line, "the victim's server did not start"
        self.facts |= json.loads(line)

    def _server_copy(self) -> str:
        return str(shutil.copy(__file__, self.base / "victim.py"))

    # ---------------------------------------------------------------- running attacks

    def attack(self, launch: Launch) -> dict[str, Verdict]:
        """Run them, scene by scene, and judge each by what it did."""
        verdicts: dict[str, Verdict] = {}
        batches = list(_batches(self.attacks))
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            of_their_own = [
                workers.submit(self._run_batch, scene, batch, launch)
                for scene, batch in batches
                if scene in OWN_PROJECT
            ]
            for future in of_their_own:
                verdicts |= future.result()
        for scene, batch in batches:
            if scene not in OWN_PROJECT:
                verdicts |= self._run_batch(scene, batch, launch)
        return verdicts

    def _run_batch(self, scene: str, batch: list["Attack"], launch: Launch) -> dict[str, Verdict]:
        with self._scene(scene, batch) as (project, extra):
            if scene == "bare":
                for attack in batch:
                    _remove(self._target(attack, project))
            before = {attack.id: self._look(attack, project) for attack in batch}
            prefix = launch(project, scene)
            reports, errors = self._launch(batch, prefix, project, extra)
            if scene in ("late", "leftover"):
                self._wait_for_leftovers(batch, is_control=not prefix)
            if any(attack.evidence == "canary" for attack in batch):
                if not prefix:
                    # The attack's own git has run it. From inside nothing can, so there it was the sandbox's own.
                    for attack in batch:
                        (self.home / "outside" / attack.id / "ran").unlink(missing_ok=True)
                self._use_git(project, extra)
            self._ask_server("catch-up .")
            return {
                attack.id: self._judge(
                    attack, project, before[attack.id], reports.get(attack.id), errors
                )
                for attack in batch
            }

    def _wait_for_leftovers(self, batch: list["Attack"], *, is_control: bool) -> None:
        """Give what a command has left behind the time to act; and the sandbox, which may be slow to end it, the time for that."""
        time.sleep(5 * LEFTOVER_S if is_control else LEFTOVER_S)
        left = [attack.id for attack in batch if attack.evidence == "alive"]
        deadline = time.monotonic() + ENDED_S
        while not is_control and any(map(self._marked_processes, left)):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def _launch(
        self, batch: list["Attack"], prefix: list[str], project: Path, extra: dict[str, Any]
    ) -> tuple[dict[str, dict[str, Any]], str]:
        facts_path = project / ".attacks/facts.json"
        with open(self.home / ".ssh/id_ed25519") as secret:  # noqa: PTH123
            directory = os.open(self.home, os.O_RDONLY)
            extra |= {
                "inherited_file": secret.fileno(),
                "inherited_directory": directory,
                "project": str(project),
            }
            facts_path.write_text(json.dumps(self.facts | extra))
            command = [
                *prefix,
                *(SYSTEM_PYTHON, "-B", "-c", _RUN, str(project / ".attacks"), str(facts_path)),
                *([] if prefix else ["--control"]),
                *(attack.id for attack in batch),
            ]
            deadline_s = BATCH_S + sum(each.timeout_s for each in batch if each.scene != "main")
            run = _run_on_terminal if batch[0].scene == "terminal" else _run_piped
            try:
                output, errors, typed = run(
                    command,
                    deadline_s,
                    cwd=project,
                    env=self.secret_env(),
                    pass_fds=(secret.fileno(), directory),
                    **self.user.popen_options,
                )
            finally:
                os.close(directory)
        if typed:
            self._note("received", typed)
        reports = {}
        for line in output.splitlines():
            with contextlib.suppress(ValueError):
                report = json.loads(line)
                reports[report["id"]] = report
        # A sandbox that runs nothing lets nothing through either.
        assert reports, f"{batch[0].id} did not run: {errors}"
        return reports, errors

    @contextlib.contextmanager
    def _scene(self, scene: str, batch: list["Attack"]) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The project of a scene; `own` and `worktree` get a fresh copy."""
        if scene not in OWN_PROJECT:
            project = self.work / {"bare": "bare", "ro": "ro"}.get(scene, "main")
            stop = threading.Event()
            thread = threading.Thread(target=self._make_late_socket, args=(project, stop))
            if any(attack.id == "unix-late" for attack in batch):
                thread.start()
            try:
                yield project, {}
            finally:
                stop.set()
                if thread.ident:
                    thread.join()
            return
        (attack,) = batch
        place = self.work / scene / attack.id
        script = _WORKTREE_SCRIPT if scene == "worktree" else _COPY_SCRIPT
        self.as_user(
            [
                "sh",
                "-euc",
                script.format(work=self.work, place=place, base=self.base, token=self.token),
            ],
            check=True,
        )
        project = place / "project"
        extra = {"common_git_directory": str(place / "main/.git")} if scene == "worktree" else {}
        if attack.id == "unix-project-rename":
            extra["sockets_project"] = str(project / "sockets")
            self._ask_server(f"listen {project}/sockets")
        yield project, extra

    def _make_late_socket(self, project: Path, stop: threading.Event) -> None:
        while not stop.wait(0.02):
            if (project / "please").exists():
                self._ask_server(f"listen-late {project}/late.sock")
                return

    def _ask_server(self, request: str) -> None:
        assert self._server
        assert self._server.stdin
        assert self._server.stdout
        with self._lock:
            self._server.stdin.write(f"{request}\n".encode())
            self._server.stdin.flush()
            self._server.stdout.readline()

    def _note(self, what: str, text: str) -> None:
        with self._lock, Path(self.facts["events"]).open("a") as events:
            events.write(f"{what} {json.dumps(text)}\n")

    # ---------------------------------------------------------------- judging

    def _target(self, attack: "Attack", project: Path) -> Path:
        return Path(
            attack.target.format(
                home=self.home,
                elsewhere=self.elsewhere,
                project=project,
                id=attack.id,
                name=self.name,
            )
        )

    def _look(self, attack: "Attack", project: Path) -> object:
        if attack.evidence == "changed":
            # What the guard put back is younger, and as it was.
            return _fingerprint(self._target(attack, project), has_times=attack.kind != "traps")
        if attack.evidence == "process":
            return self._process_state(attack.id)
        return None

    def _judge(
        self,
        attack: "Attack",
        project: Path,
        before: object,
        report: dict[str, Any] | None,
        errors: str,
    ) -> Verdict:
        detail = report["detail"] if report else f"no report; stderr: {errors[-300:]}"
        if report and report.get("needs"):
            return Verdict(False, detail, report["needs"])
        if attack.evidence == "claim":
            return Verdict(bool(report and report["escaped"]), detail)
        seen = {
            "changed": lambda: self._look(attack, project) != before,
            "process": lambda: self._look(attack, project) != before,
            "loot": lambda: bool(report) and self.token in report["detail"],
            "received": lambda: attack.id in self._received(),
            "canary": (self.home / "outside" / attack.id / "ran").exists,
            "alive": lambda: bool(self._marked_processes(attack.id)),
        }[attack.evidence]()
        if seen:
            detail += f"; stderr: {errors}"
        return Verdict(seen, detail.replace(self.token, "the token")[:1000])

    def _received(self) -> set[str]:
        """Ids that came in over some socket or terminal, split at everything that is not part of one."""
        text = Path(self.facts["events"]).read_text(errors="replace")
        lines = [
            line.partition(" ")[2] for line in text.splitlines() if line.startswith("received ")
        ]
        return {word for line in lines for word in json.loads(line).split()}

    def _process_state(self, attack_id: str) -> object:
        """Everything about the attack's own process that another one could change."""
        pid = self.facts["pids"][attack_id]
        signals = [
            line
            for line in Path(self.facts["events"]).read_text().splitlines()
            if line.startswith("signalled ") and line.split()[1] == json.dumps(attack_id)
        ]
        proc = Path("/proc", str(pid))
        try:
            state = (proc / "stat").read_text().rpartition(")")[2].split()
            if state[0] in "ZX":
                return None
            files = (
                *("limits", "oom_score_adj", "coredump_filter", "comm", "autogroup"),
                "timerslack_ns",
            )
            texts = [(proc / name).read_text() for name in files if (proc / name).exists()]
            # stat: priority, nice, real-time priority, policy
            scheduling = (state[15], state[16], state[37], state[38])
            return (
                texts,
                scheduling,
                sorted(os.sched_getaffinity(pid)),
                _io_priority(pid),
                len(signals),
            )
        except OSError:
            return None

    def _marked_processes(self, attack_id: str = "") -> list[int]:
        """Living processes with the marker on their command line; the respawners, by their name."""
        found = []
        marker = f"{self.facts['marker']}{attack_id}".encode()
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                arguments = Path("/proc", pid, "cmdline").read_bytes().split(b"\0")
                comm = _first_line(f"/proc/{pid}/comm")
            except OSError:
                continue
            is_respawner = attack_id in ("", "respawner") and comm == self.facts["short_marker"]
            if is_respawner or (
                marker in arguments if attack_id else any(a.startswith(marker) for a in arguments)
            ):
                found.append(int(pid))
        return found

    def _use_git(self, project: Path, extra: dict[str, Any]) -> None:
        """What an editor and its user do all day: git, in every directory that they look at."""
        roots = [project, *project.parent.glob("side*")]
        if "common_git_directory" in extra:
            roots.append(Path(extra["common_git_directory"]).parent)
        script = f"roots='{' '.join(map(str, roots))}'\n{_GIT_SCRIPT}"
        self.as_user(["sh", "-c", script], cwd=project)


def _batches(attacks: Sequence["Attack"]) -> Iterator[tuple[str, list["Attack"]]]:
    """What can share one launch; first those that do nothing to each other's projects."""
    for scene in ("main", "ro", "terminal", "leftover"):
        if batch := [attack for attack in attacks if attack.scene == scene]:
            yield scene, batch
    # Of two attacks on one absent name each would see what the other planted.
    waves: list[dict[str, Attack]] = []
    for attack in attacks:
        if attack.scene == "bare":
            wave = next((wave for wave in waves if attack.target not in wave), None)
            if wave is None:
                waves.append(wave := {})
            wave[attack.target] = attack
    yield from (("bare", list(wave.values())) for wave in waves)
    for attack in attacks:
        if attack.scene in (*OWN_PROJECT, "alone"):
            yield attack.scene, [attack]


_RUN = "import sys; sys.path.insert(0, sys.argv[1]); from attacks.__main__ import main; main(sys.argv[2:])"
_NO_CACHE = shutil.ignore_patterns("__pycache__")

# A repository with a submodule (lib), a repository inside that is none (vendor/lib), a way out, and files that git ignores.
_PROJECT_SCRIPT = r"""
git init -q library && cd library && echo x > x && git add . && git commit -qm x && cd ..
mkdir -p other && git init -q main && cd main
git -c protocol.file.allow=always submodule --quiet add ../library lib
mkdir -p service src vendor && cd vendor && git init -q lib && cd lib && echo x > x && git add . && git commit -qm x && cd ../..
git config extensions.worktreeConfig true
printf '.env*\nnode_modules\n.attacks\nway-out\nsockets\nsaved-config\ntools/pre-commit\n' > .gitignore
echo 'print(1)' > src/main.py
echo x > README
echo true > check.sh && chmod 755 check.sh
printf '#!/bin/sh\nexit 0\n' > .git/hooks/pre-commit && chmod 755 .git/hooks/pre-commit
printf '#!/bin/sh\n./check.sh\n' > .git/hooks/commit-msg && chmod 644 .git/hooks/commit-msg
for name in .nvim.lua .exrc .nvimrc .lazy.lua .envrc .mcp.json; do echo > $name; done
mkdir .vscode .idea && echo '{{}}' > .vscode/tasks.json && echo '<x/>' > .idea/workspace.xml
mkdir tools && printf '#!/bin/sh\nexec cat\n' > tools/clean && chmod 755 tools/clean
git add -A && git commit -qm start
git config filter.x.clean '"$(git rev-parse --show-toplevel)"/tools/clean %f' && echo 'README filter=x' > .git/info/attributes
ln .git/config saved-config && ln .git/hooks/pre-commit tools/pre-commit
for name in .env .env.local service/.env.production; do echo 'KEY={token}' > $name; done
ln -s {home}/outside way-out
mkdir -p sockets keep
cd .. && cp -a main template && cp -a main ro
git init -q bare && cd bare && echo x > README && git add . && git commit -qm x
"""

# Beside each copy lies a linked worktree of it.
_COPY_SCRIPT = r"""
mkdir -p {place} && cp -a {work}/template {place}/project && cd {place}/project
git worktree add -q --detach ../side
mkdir .attacks && cp -a {base}/attacks .attacks/attacks
"""
_WORKTREE_SCRIPT = r"""
mkdir -p {place} && cp -a {work}/template {place}/main && cd {place}/main
git worktree add -q --detach ../project
mkdir ../project/.attacks && cp -a {base}/attacks ../project/.attacks/attacks
"""

# As an editor and its user would, in every directory that git takes for a repository; what fails is theirs to bear.
_GIT_SCRIPT = r"""
for root in $roots; do
  cd "$root" || continue
  git status; git diff --stat; git checkout -q -B another; git commit --allow-empty -qm x
  find . -maxdepth 4 -name .attacks -prune -o -path ./.git -prune -o \( -name .git -o -name HEAD \) -printf '%h\n' |
  while read -r directory; do (cd "$directory" && git status --short); done
done
"""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0]
    except OSError:
        return ""


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _can_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True


def _remove(path: Path) -> None:
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    for parent, _directories, _files in os.walk(path):
        with contextlib.suppress(OSError):
            Path(parent).chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)


def _fingerprint(top: Path, *, has_times: bool) -> object:
    """All that can be seen to change about a file, or a directory and what is below it."""

    def one(path: Path) -> object:
        status = path.lstat()
        flags = b""
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
            flags = _attributes(path)
        extended = [
            (name, os.getxattr(path, name)) for name in os.listxattr(path, follow_symlinks=False)
        ]
        times = status.st_mtime_ns if has_times and not stat.S_ISDIR(status.st_mode) else 0
        return status.st_mode, status.st_uid, status.st_gid, times, content, flags, extended

    if not os.path.lexists(top):
        return None
    found = {str(top): one(top)}
    for parent, directories, files in os.walk(top):
        found |= {f"{parent}/{name}": one(Path(parent, name)) for name in directories + files}
    return found


def _attributes(path: Path) -> bytes:
    """What `lsattr` shows."""
    import fcntl

    try:
        with path.open("rb") as file:
            return fcntl.ioctl(file, 0x80086601, bytes(8))
    except OSError:
        return b""


def _io_priority(pid: int) -> int:
    number = 252 if os.uname().machine == "x86_64" else 31
    return ctypes.CDLL(None).syscall(number, 1, pid)


def _has_ia32() -> bool:
    """Whether `int 0x80` is answered: getpid, by its 32-bit number, in a child."""
    if os.uname().machine != "x86_64":
        return False
    code = (
        "import ctypes, mmap\n"
        "page = mmap.mmap(-1, 4096, prot=7)\n"
        "page.write(bytes.fromhex('b814000000cd80c3'))\n"
        "call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))\n"
        "raise SystemExit(call() < 0)\n"
    )
    return (
        subprocess.run([SYSTEM_PYTHON, "-c", code], check=False, capture_output=True).returncode
        == 0
    )


def _run_piped(command: list[str], deadline_s: float, **options: Any) -> tuple[str, str, str]:
    """Output and errors go to files: a process that stays behind may hold them open, and is not waited for."""
    import tempfile

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, **options
        )
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        return output.read().decode(errors="replace"), errors.read().decode(errors="replace"), ""


def _run_on_terminal(command: list[str], deadline_s: float, **options: Any) -> tuple[str, str, str]:
    """As from a shell: the terminal controls the session, and is standard input and error. Third is what was typed into it."""
    master, slave = _raw_terminal()
    # The child takes the terminal before it becomes the user, who could not open it by its name.
    code = (
        "import fcntl, os, sys, termios\n"
        "os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "os.execvp(sys.argv[1], sys.argv[1:])\n"
    )
    if uid := options.get("user"):
        os.fchown(slave, uid, uid)
    process = subprocess.Popen(
        [SYSTEM_PYTHON, "-c", code, *command],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        **options,
    )
    try:
        output, _ = process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    errors = _read_available(master)
    os.set_blocking(slave, False)
    typed = _read_available(slave)
    os.close(master)
    os.close(slave)
    return output.decode(errors="replace"), errors, typed


def _raw_terminal() -> tuple[int, int]:
    """Both ends of a terminal that passes on each byte at once, and echoes none."""
    import termios

    master, slave = os.openpty()
    attributes = termios.tcgetattr(slave)
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(slave, termios.TCSANOW, attributes)
    return master, slave


def _read_available(fd: int) -> str:
    os.set_blocking(fd, False)
    try:
        return os.read(fd, 1 << 16).decode(errors="replace")
    except OSError:
        return ""


# ---------------------------------------------------------------- the part that is the user


class Server:
    """Everything that a user has running: sockets that note what they receive, processes, shared memory, keys, terminals."""

    def __init__(self, facts: dict[str, Any], token: str) -> None:
        self.facts, self.token = facts, token
        self.made: dict[str, Any] = {}
        self.selector = selectors.DefaultSelector()
        self.events = os.open(facts["events"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666)
        self.children: list[int] = []
        self.undo: list[Callable[[], object]] = []
        self.kept: list[object] = []

    def run(self) -> None:
        self._fork_targets()
        self._open_files()
        self._listen_on_the_network()
        self._listen_on_paths()
        for make in (
            self._make_shared_memory,
            self._make_queue,
            self._make_key,
            self._make_terminal,
            self._start_nvim,
        ):
            with contextlib.suppress(OSError):
                make()
        print(json.dumps(self.made), flush=True)
        self.selector.register(sys.stdin.fileno(), selectors.EVENT_READ, None)
        is_running = True
        while is_running:
            for key, _ in self.selector.select(0.2):
                if key.data is None:
                    is_running = self._serve_request()
                else:
                    with contextlib.suppress(OSError):
                        key.data(key.fileobj)
            self._visit_listeners()
            self._log("tick", "")
        for pid in self.children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for undo in self.undo:
            with contextlib.suppress(OSError):
                undo()

    def _log(self, what: str, text: str) -> None:
        if what != "tick":
            os.write(self.events, f"{what} {json.dumps(text)}\n".encode())
        else:
            os.utime(self.facts["events"])

    def _catch_up(self) -> None:
        """Take what has arrived: nothing is missed only because somebody else had the machine."""
        while waiting := [key for key, _ in self.selector.select(0.05) if key.data]:
            for key in waiting:
                with contextlib.suppress(OSError):
                    key.data(key.fileobj)

    def _serve_request(self) -> bool:
        request = sys.stdin.buffer.readline().decode().split()
        if not request:
            return False
        what, path = request
        with contextlib.suppress(OSError):
            if what == "catch-up":
                self._catch_up()
            elif what == "listen":
                self._listen_in(path)
            else:
                # Whoever waits for the name finds somebody who listens.
                self._listen(socket.SOCK_STREAM, f"{path}~")
                Path(f"{path}~").rename(path)
        print("done", flush=True)
        return True

    # ---- processes

    def _fork_targets(self) -> None:
        """A process per attack, before anything else is open; each leads a group."""
        self.secret = ctypes.create_string_buffer(self.token.encode(), 8192)
        pids = {}
        for attack_id in self.facts["needs_process"]:
            pid = os.fork()
            if pid == 0:
                self._be_target(attack_id)
            pids[attack_id] = pid
        self.children += pids.values()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        self.made |= {
            "pids": pids,
            "server_pid": os.getpid(),
            "secret_address": ctypes.addressof(self.secret),
        }

    def _be_target(self, attack_id: str) -> None:
        os.setpgid(0, 0)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
        if attack_id == "kill-all":
            signal.signal(signal.SIGURG, lambda *_: self._log("signalled", attack_id))
        while True:
            signal.pause()

    # ---- files

    def _open_files(self) -> None:
        home_fd = os.open(self.facts["home"], os.O_RDONLY)
        secret_fd = os.open(self.facts["secrets"]["ssh-key"], os.O_RDONLY)
        self.made |= {"home_fd": home_fd, "secret_fd": secret_fd}

    # ---- network

    def _listen_on_the_network(self) -> None:
        self.made["tcp_port"] = self._tcp(socket.AF_INET, "127.0.0.1")
        self.made["tcp_any_port"] = self._tcp(socket.AF_INET, "0.0.0.0")
        self.made["udp_port"] = self._udp(socket.AF_INET, "0.0.0.0")
        with contextlib.suppress(OSError):
            self.made["tcp6_port"] = self._tcp(socket.AF_INET6, "::1")
            self.made["udp6_port"] = self._udp(socket.AF_INET6, "::1")
        with contextlib.suppress(OSError):
            self.made["udplite_port"] = self._udp(socket.AF_INET, "127.0.0.1", 136)
        for _, name in socket.if_nameindex():
            if name != "lo" and (address := _address_of(name)):
                self.made["host_address"] = address
        # Bound, so that nobody else gets the port; who sets SO_REUSEADDR can listen on it.
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        self.kept.append(held)
        self.made["listen_port"] = held.getsockname()[1]
        with contextlib.suppress(OSError):
            group = "239.77.7.7"
            receiver = socket.socket(type=socket.SOCK_DGRAM)
            receiver.bind(("", 0))
            membership = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            self._watch(receiver, self._receive)
            self.made["multicast"] = (group, receiver.getsockname()[1])

    def _tcp(self, family: int, host: str) -> int:
        server = socket.socket(family)
        server.bind((host, 0))
        server.listen()
        with contextlib.suppress(OSError):
            server.setsockopt(socket.IPPROTO_TCP, 23, 5)  # TCP_FASTOPEN
        self._watch(server, self._accept)
        return server.getsockname()[1]

    def _udp(self, family: int, host: str, protocol: int = 0) -> int:
        receiver = socket.socket(family, socket.SOCK_DGRAM, protocol)
        receiver.bind((host, 0))
        self._watch(receiver, self._receive)
        return receiver.getsockname()[1]

    def _visit_listeners(self) -> None:
        """The door from the other side: a client of the user's, for whoever listens there."""
        with contextlib.suppress(OSError):
            client = socket.create_connection(("127.0.0.1", self.made["listen_port"]), 0.1)
            self._watch(client, self._receive)

    def _watch(self, source: socket.socket, then: Callable[[socket.socket], None]) -> None:
        source.setblocking(False)
        self.selector.register(source, selectors.EVENT_READ, then)

    def _accept(self, server: socket.socket) -> None:
        client, _ = server.accept()
        self._watch(client, self._receive)

    def _receive(self, client: socket.socket) -> None:
        data = client.recv(4096)
        if data:
            # A DNS question holds lengths where words have spaces.
            words = "".join(chr(byte) if 32 < byte < 127 else " " for byte in data)
            self._log("received", words)
            if data == b"give":
                socket.send_fds(client, [b"x"], [self.made["secret_fd"]])
        elif client.type != socket.SOCK_DGRAM:
            self.selector.unregister(client)
            client.close()

    # ---- unix sockets

    def _listen_on_paths(self) -> None:
        places = {
            "home": self.facts["home"] + "/busy",
            "tmp": f"/tmp/{self.facts['name']}",
            "visible": self.facts["elsewhere"],
            "project": self.facts["project"] + "/sockets",
            "dev_shm": f"/dev/shm/{self.facts['name']}",
        }
        if "has_run" in self.facts:
            places["run"] = f"/run/{self.facts['name']}"
        for place, directory in places.items():
            self._listen_in(directory)
            self.made[f"sockets_{place}"] = directory
        self.made["abstract"] = f"{self.facts['name']}-abstract"
        self._listen_in(f"\0{self.made['abstract']}", "-{}")
        # Seen by everyone in /proc/net/unix, so it says what only the victim knows.
        self._listen(socket.SOCK_STREAM, f"\0{self.token}")

    def _listen_in(self, directory: str, name: str = "/{}.sock") -> None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            kind_name = {1: "stream", 2: "dgram", 5: "seqpacket"}[kind]
            self._listen(kind, directory + name.format(kind_name))

    def _listen(self, kind: int, address: str) -> None:
        server = socket.socket(socket.AF_UNIX, kind)
        server.bind(address)
        if kind == socket.SOCK_DGRAM:
            self._watch(server, self._receive)
        else:
            server.listen()
            self._watch(server, self._accept)

    # ---- System V, POSIX, keys

    def _make_shared_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        for name in ("shm_id", "shm_id_to_remove"):
            number = libc.shmget(0, 4096, 0o1600)
            if number < 0:
                return
            ctypes.memmove(libc.shmat(number, None, 0), self.token.encode(), len(self.token))
            self.undo.append(lambda number=number: libc.shmctl(number, 0, None))
            self.made[name] = number
        queue = libc.msgget(0, 0o1600)
        text = struct.pack("l", 1) + self.token.encode()
        libc.msgsnd(queue, text, len(self.token), 0)
        self.undo.append(lambda: libc.msgctl(queue, 0, None))
        semaphore = libc.semget(0, 1, 0o1600)
        self.undo.append(lambda: libc.semctl(semaphore, 0, 0))
        self.made |= {"msg_id": queue, "sem_id": semaphore}

    def _make_queue(self) -> None:
        librt = ctypes.CDLL("librt.so.1", use_errno=True)
        name = f"/{self.facts['name']}".encode()
        queue = librt.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None)
        if queue >= 0:
            for _ in range(2):
                librt.mq_send(queue, self.token.encode(), len(self.token), 0)
            self.undo.append(lambda: librt.mq_unlink(name))
            self.made["queue"] = self.facts["name"]

    def _make_key(self) -> None:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        add_key, keyctl = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
        name, text = self.facts["name"].encode(), self.token.encode()
        key = syscall(add_key, b"user", name, text, len(text), ctypes.c_long(-4))
        if key >= 0:
            syscall(keyctl, 5, key, 0x3F3F0000)  # KEYCTL_SETPERM: possessor and user
            # A key whose description is the secret: /proc/keys lists descriptions.
            listed = syscall(add_key, b"user", text, b"x", 1, ctypes.c_long(-4))
            self.undo += [
                lambda: syscall(keyctl, 9, key, ctypes.c_long(-4)),
                lambda: syscall(keyctl, 9, listed, ctypes.c_long(-4)),
            ]
            self.made["key"] = self.facts["name"]

    # ---- terminal and editor

    def _make_terminal(self) -> None:
        self.master, slave = _raw_terminal()
        status = os.fstat(slave)
        self.made |= {
            "pts": os.ttyname(slave),
            "pts_fd": slave,
            "pts_device": status.st_rdev,
            "pts_inode": status.st_ino,
            "pts_filesystem": status.st_dev,
        }

        lines: dict[int, bytes] = {}

        def note(fd: int) -> None:
            *whole, lines[fd] = (lines.get(fd, b"") + os.read(fd, 4096)).split(b"\n")
            for line in whole:
                self._log("received", line.decode(errors="replace"))

        for fd in (self.master, slave):
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, note)

    def _start_nvim(self) -> None:
        """A Neovim as a person runs it, and its RPC sockets: in HOME, in /tmp, in the project."""
        program = self.facts["nvim_program"]
        if not program or not os.access(program, os.X_OK):
            return
        addresses = {
            "home": f"{self.facts['home']}/busy/nvim.sock",
            "tmp": f"/tmp/{self.facts['name']}/nvim.sock",
            "project": f"{self.facts['project']}/sockets/nvim.sock",
        }
        starts = [f"call serverstart('{address}')" for address in addresses.values()]
        arguments = [argument for start in starts for argument in ("-c", start)]
        process = subprocess.Popen(
            [program, "--clean", "--headless", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in ("HOME", "PATH", "LANG")},
        )
        self.children.append(process.pid)
        deadline = time.monotonic() + 30
        while not all(map(os.path.exists, addresses.values())) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.kept.append(process)
        self.made["nvim"] = addresses


def _address_of(interface: str) -> str:
    import fcntl

    with socket.socket(type=socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, 0x8915, struct.pack("256s", interface.encode()))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


if __name__ == "__main__":
    Server(json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]).run()
