"""
The escape suite: what gets out of the sandbox, at every level, is exactly what the table of known gaps says.

An attack counts only if it succeeds outside of any sandbox, as the same user: one that fails for another reason proves nothing.
`make test` runs a tenth of them once, inside, where they do no harm to whatever else runs here.
"""

import fcntl
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from sanderling.sandbox.gaps import GAPS, NETWORK_ON, gaps_at
from tests.conftest import ROOT, find_neovim, prove
from tests.fuzz import part
from tests.sandbox.attacks import ATTACKS, Attack
from tests.sandbox.victim import OWN_PROJECT, Launch, User, Verdict, Victim

EXEC = ("-m", "sanderling", "sandbox", "exec")
AS_SERVER = (str(Path(__file__).with_name("as_server.py")),)
OLDER_KERNEL = Path(__file__).with_name("older_kernel.py")
IS_ROOT = os.geteuid() == 0
# Nobody else's id, also of the other processes of xdist: the kernel counts the processes of a user.
UNPRIVILEGED = User("unprivileged", 20_000 + os.getpid() % 40_000 if IS_ROOT else os.geteuid())
USERS = [UNPRIVILEGED, User("root", 0)] if IS_ROOT else [UNPRIVILEGED]
LEVELS = ("full", "full-bwrap", "namespaces", "landlock")
pytestmark = [] if IS_ROOT else [pytest.mark.xdist_group("one user")]


@dataclass(frozen=True)
class Kernel:
    """An older or more closed kernel, for `older_kernel.py`, and the level that is the best on it."""

    options: str
    level: str


KERNELS = (
    Kernel("--landlock-abi 1", "full"),
    Kernel("--no-landlock", "namespaces"),
    Kernel("--no-user-namespaces", "landlock"),
    *(Kernel(f"--no-user-namespaces --landlock-abi {abi}", "landlock") for abi in (6, 4, 2)),
)


@functools.cache
def interpreter(user: User) -> str:
    """A Python that `user` can run: ours, or the system's of the same version. A venv below /root is root's alone."""
    minor = f"python3.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{minor}", f"/usr/local/bin/{minor}"):
        command = [python, "-c", "import landlock, msgspec, sanderling"]
        environment = {"PYTHONPATH": python_path(ROOT / "src")}
        try:
            tried = subprocess.run(
                command,
                env=environment,
                cwd="/",
                capture_output=True,
                check=False,
                **user.popen_options,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return python
    return pytest.skip(f"no {minor} that user {user.uid} can run")


def python_path(source: Path) -> str:
    return f"{source}:{Path(msgspec_directory())}"


def msgspec_directory() -> str:
    return str(Path(msgspec.__file__).parent.parent)


def sandboxed(
    user: User,
    level: str = "",
    network: str = "off",
    kernel: str = "",
    *,
    source: Path = ROOT / "src",
    program: Sequence[str] = EXEC,
) -> Launch:
    """The command line that stands before an attack."""
    shim = [
        sys.executable if interpreter(user) == sys.executable else "/usr/bin/python3",
        str(OLDER_KERNEL),
    ]

    def launch(project: Path, scene: str) -> list[str]:
        return [
            *("env", f"PYTHONPATH={python_path(source)}"),
            *([*shim, *kernel.split(), "--"] if kernel else []),
            *(interpreter(user), *program),
            *("--project", str(project), "--net", network),
            *(["--level", level] if level else []),
            *(["--mode", "ro"] if scene == "ro" else []),
            "--",
        ]

    return launch


def status(user: User, kernel: str = "") -> dict:
    """What the sandbox says it can do."""
    command = sandboxed(user, kernel=kernel)(Path("/"), "")
    command = [*command[: command.index("exec")], "status", "--json"]
    answer = subprocess.run(
        command,
        capture_output=True,
        check=True,
        cwd="/",
        env={"HOME": "/nonexistent", "PATH": os.environ["PATH"]},
        **user.popen_options,
    )
    return json.loads(answer.stdout)


def attack_all(user: User, attacks: Sequence[Attack], launch: Launch) -> dict[str, Verdict]:
    with Victim(user, attacks, find_neovim()) as victim:
        return victim.attack(launch)


@pytest.fixture(scope="session")
def control(tmp_path_factory) -> Callable[[User], dict[str, Verdict]]:
    """What comes of each attack when nothing stops it; found out by the first of xdist's processes that asks."""
    directory = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = directory.parent

    @functools.cache
    def verdicts_of(user: User) -> dict[str, Verdict]:
        with (directory / f"control of {user.name}").open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if known := file.read():
                return msgspec.json.decode(known, type=dict[str, Verdict])
            verdicts = attack_all(user, list(ATTACKS.values()), lambda _project, _scene: [])
            file.write(msgspec.json.encode(verdicts))
        return verdicts

    return verdicts_of


@pytest.fixture(scope="session")
def proven(control) -> Callable[[User], list[Attack]]:
    """The attacks that work on this machine when nothing stops them."""
    return lambda user: [ATTACKS[id_] for id_, verdict in control(user).items() if verdict.escaped]


def assert_nothing_new(verdicts: dict[str, Verdict], expected: set[str]) -> None:
    unexpected = [
        f"{attack_id}: {verdict.detail}"
        for attack_id, verdict in verdicts.items()
        if verdict.escaped and attack_id not in expected
    ]
    assert not unexpected, "these got out, and no gap is known:\n" + "\n".join(unexpected)


def assert_exactly(verdicts: dict[str, Verdict], expected: set[str]) -> None:
    assert_nothing_new(verdicts, expected)
    stale = [
        f"{attack_id}: {verdict.detail}"
        for attack_id, verdict in verdicts.items()
        if attack_id in expected and not verdict.escaped
    ]
    assert not stale, "these are listed as gaps, and were stopped:\n" + "\n".join(stale)


def known(user: User, level: str, abi: int, network: str = "off") -> set[str]:
    open_gaps = gaps_at(level, is_root=user.uid == 0, landlock_abi=abi)
    opened = (
        gaps_at(level, is_root=user.uid == 0, landlock_abi=abi, table=NETWORK_ON)
        if network == "on"
        else ()
    )
    return {attack_id for gap in (*open_gaps, *opened) for attack_id in gap.attacks.split()}


def of_root(user: User) -> list[pytest.MarkDecorator]:
    """Root's attacks come one after the other: its id is not ours alone."""
    return [] if user.uid else [pytest.mark.xdist_group("root")]


user_of_each_kind = pytest.mark.parametrize(
    "user", [pytest.param(user, marks=of_root(user), id=user.name) for user in USERS]
)


def test_the_suite_is_as_large_as_promised():
    kinds = {attack.kind for attack in ATTACKS.values()}
    assert len(ATTACKS) >= 130
    assert len([attack for attack in ATTACKS.values() if attack.id.startswith("read-")]) >= 15
    assert len(kinds) >= 12


def test_every_gap_names_attacks_that_exist():
    tables = (*GAPS.values(), *NETWORK_ON.values())
    named = {name for table in tables for gap in table for name in gap.attacks.split()}
    assert not named - ATTACKS.keys()


def test_nothing_gets_out_at_the_best_level():
    """Every tenth one, and only a few of those that want a project of their own: a tenth of them takes a third of the time."""
    here = status(UNPRIVILEGED)
    if not here["level"]:
        pytest.skip("no sandbox here")
    alone = [attack for attack in ATTACKS.values() if attack.scene in OWN_PROJECT]
    attacks = [*without_own_projects(list(ATTACKS.values()))[::10], *alone[::80]]
    verdicts = attack_all(UNPRIVILEGED, attacks, sandboxed(UNPRIVILEGED))
    assert len(verdicts) == len(attacks)
    assert_nothing_new(verdicts, known(UNPRIVILEGED, here["level"], here["landlock_abi"]))


@prove
@user_of_each_kind
def test_every_attack_succeeds_where_nothing_stops_it(control, user):
    failed = {
        attack_id: verdict.detail
        for attack_id, verdict in control(user).items()
        if not verdict.escaped and not verdict.needs
    }
    for attack_id, verdict in control(user).items():
        if verdict.needs:
            print(f"{attack_id}: not here: {verdict.needs}")
    assert not failed


@prove
@user_of_each_kind
@pytest.mark.parametrize("level", [pytest.param("full", marks=pytest.mark.guard), *LEVELS[1:]])
def test_only_known_gaps_let_anything_through(proven, user, level):
    here = status(user)
    skip_unless_possible(level, here)
    attacks = proven(user)
    # The fate of what has a project of its own depends on mounts and guard, not on who one is: for root a few are enough.
    if user.uid == 0 or level in ("full-bwrap", "namespaces"):
        alone = [each for each in attacks if each.scene in OWN_PROJECT] if level == "full" else []
        attacks = [*without_own_projects(attacks), *alone[: part(len(alone))]]
    verdicts = attack_all(user, attacks, sandboxed(user, level))
    assert_exactly(verdicts, known(user, level, here["landlock_abi"]))


@prove
@pytest.mark.parametrize("level", ["full", "landlock"])
def test_a_tool_server_gets_no_further_than_a_command(proven, level):
    user = UNPRIVILEGED
    here = status(user)
    skip_unless_possible(level, here)
    attacks = without_own_projects(proven(user))
    verdicts = attack_all(user, attacks, sandboxed(user, level, program=AS_SERVER))
    assert_exactly(verdicts, known(user, level, here["landlock_abi"]))


@prove
@pytest.mark.parametrize("level", ["full", "landlock"])
def test_the_open_network_gives_away_what_the_table_says(proven, level):
    user = UNPRIVILEGED
    here = status(user)
    skip_unless_possible(level, here)
    attacks = without_own_projects(proven(user))
    verdicts = attack_all(user, attacks, sandboxed(user, level, network="on"))
    assert_exactly(verdicts, known(user, level, here["landlock_abi"], "on"))


@prove
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.options.replace(" ", ""))
def test_older_kernels_have_the_gaps_of_their_version(proven, kernel):
    user = UNPRIVILEGED
    skip_unless_possible("landlock", status(user))
    here = status(user, kernel.options)
    assert here["level"] == kernel.level
    # Traps in the project are the mounts' and the guard's business, whatever the version of Landlock.
    attacks = without_own_projects(proven(user))
    verdicts = attack_all(user, attacks, sandboxed(user, kernel=kernel.options))
    assert_exactly(verdicts, known(user, kernel.level, here["landlock_abi"]))


def test_a_kernel_that_enforces_nothing_runs_nothing(tmp_path):
    user = User("user", os.geteuid())
    launch = sandboxed(user, kernel="--no-user-namespaces --no-landlock")
    mark = tmp_path / "mark"
    tried = subprocess.run(
        [*launch(tmp_path, ""), "touch", mark], capture_output=True, text=True, check=False
    )
    assert tried.returncode == 125
    assert len(tried.stderr.splitlines()) == 1
    assert not mark.exists()


def without_own_projects(attacks: Sequence[Attack]) -> list[Attack]:
    return [attack for attack in attacks if attack.scene not in OWN_PROJECT]


def skip_unless_possible(level: str, here: dict) -> None:
    needs = {
        "full": ("namespaces", "landlock", "seccomp"),
        "full-bwrap": ("bubblewrap", "landlock", "seccomp"),
        "namespaces": ("namespaces", "seccomp"),
        "landlock": ("landlock", "seccomp"),
    }[level]
    for layer in needs:
        if reason := here["layers"][layer]["reason"]:
            pytest.skip(f"{layer}: {reason}")


# ---------------------------------------------------------------- mutations


@dataclass(frozen=True)
class Mutation:
    """A layer taken out of a copy of the product, by replacing text in its files. Then `attacks` get through."""

    layer: str
    edits: tuple[tuple[str, str, str], ...]
    attacks: tuple[str, ...]
    level: str = "full"
    network: str = "off"
    user: User = UNPRIVILEGED


MUTATIONS = (
    Mutation(
        "landlock",
        (("zygote.py", 'if self.level != "namespaces":', "if False:"),),
        ("file-append", "read-ssh-key", "kill", "proc-mem"),
        level="landlock",
    ),
    Mutation(
        "landlock's scopes",
        (("zygote.py", 'if self.level != "namespaces":', "if False:"),),
        ("unix-stream-abstract", "unix-pair-abstract"),
        network="on",
    ),
    Mutation(
        "seccomp",
        (("init.py", "seccomp.install(self.seccomp)", "pass"),),
        ("io-uring", "userfaultfd", "unshare-user", "clone3-user", "vsock", "key-add", "int80"),
    ),
    Mutation(
        "a root of its own",
        (("supervisor.py", "namespaces.enter_root(view.layout)", "pass"),),
        ("read-ssh-key", "file-append", "tmp-secret", "read-env", "git-config-append"),
    ),
    Mutation(
        "pid namespace",
        (
            ("zygote.py", 'return self.level in ("full", "namespaces")', "return False"),
            (
                "supervisor.py",
                "namespaces.unshare(namespaces.CLONE_NEWNS | namespaces.CLONE_NEWPID)",
                "namespaces.unshare(namespaces.CLONE_NEWNS)",
            ),
            (
                "namespaces.py",
                'mount("proc", f"{new}/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)',
                '_attach("/proc", f"{new}/proc", MOUNT_ATTR_NOSUID)',
            ),
        ),
        ("proc-list", "proc-cmdline", "proc-stat"),
    ),
    Mutation(
        "network namespace",
        (
            (
                "supervisor.py",
                'has_own_network = policy.network != "on" and level != "landlock"',
                "has_own_network = False",
            ),
        ),
        ("udp-loopback", "dns", "proc-net"),
    ),
    Mutation(
        "ipc namespace",
        (
            (
                "supervisor.py",
                "namespaces.CLONE_NEWIPC | namespaces.CLONE_NEWUTS",
                "namespaces.CLONE_NEWUTS",
            ),
        ),
        ("sysv-shm-read", "sysv-msg-receive", "sysv-sem-set"),
    ),
    Mutation(
        "guard",
        (("supervisor.py", "if policy.has_guard and self._guard is None:", "if False:"),),
        ("plant.exrc", "nested-fsmonitor", "nested-pointer"),
    ),
    Mutation(
        "environment",
        (("environment.py", "for name in policy.env_pass if name in host}", "for name in host}"),),
        ("variable-ANTHROPIC_API_KEY", "variable-NVIM", "variable-SSH_AUTH_SOCK"),
    ),
    Mutation(
        "capabilities",
        (
            # Either is enough: the next exec of root's takes what the bounding set leaves.
            ("init.py", 'syscall("capset",', '(lambda *_: None)("capset",'),
            ("zygote.py", "init.bar_capabilities()", "pass"),
        ),
        ("capability-left", "higher-priority"),
        level="landlock",
        user=USERS[-1],
    ),
    Mutation(
        "protected paths",
        (
            (
                "supervisor.py",
                "read_only=(*(path for plan in found for path in plan.read_only), *held),",
                "",
            ),
        ),
        ("change.envrc", "change.nvim.lua"),
    ),
    Mutation(
        "masks",
        (
            (
                "supervisor.py",
                "masked=(*(path for each in (survey, *linked) for path in _secrets_in(each)), *sockets),",
                "masked=(),",
            ),
        ),
        ("read-env", "read-env-nested", "unix-stream-project"),
    ),
    Mutation(
        "limits",
        (("init.py", "_set_limits(self.limits, counts_all=not self.is_mounted)", "pass"),),
        ("fork-bomb", "huge-file", "raise-limits"),
    ),
)


@prove
@pytest.mark.parametrize(
    "mutation", [pytest.param(each, marks=of_root(each.user), id=each.layer) for each in MUTATIONS]
)
def test_without_a_layer_the_suite_fails(proven, mutation):
    user = mutation.user
    if mutation.layer == "capabilities" and user.uid:
        pytest.skip("needs root")
    skip_unless_possible(mutation.level, status(user))
    attacks = [attack for attack in proven(user) if attack.id in mutation.attacks]
    assert attacks
    # Not pytest's directories, which are closed to other users.
    with tempfile.TemporaryDirectory() as directory:
        source = mutant(mutation, Path(directory))
        launch = sandboxed(user, mutation.level, network=mutation.network, source=source)
        verdicts = attack_all(user, attacks, launch)
    stopped = {attack_id: v.detail for attack_id, v in verdicts.items() if not v.escaped}
    assert not stopped, "these should get through without the layer"


def mutant(mutation: Mutation, directory: Path) -> Path:
    """A copy of the product without the layer, that every user can read."""
    directory.chmod(0o755)
    source = directory / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in mutation.edits:
        [file] = (source / "sanderling" / "sandbox").rglob(name)
        text = file.read_text()
        assert text.count(old) == 1, f"{name} has changed: adapt the mutation"
        file.write_text(text.replace(old, new))
    return source
