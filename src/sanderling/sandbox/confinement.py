"""
The sandbox in a session's life: opened ahead of its first use, again after a mishap, and switched off by the person alone.

It costs processes, and holds the project as it found it. So it comes to **rest** when nobody has needed it for some minutes, and
at once after a turn that did without: its processes end, and the next one opens it again. What commands have left on the disk is
still there then, in the private HOME and in /tmp. While one of them runs, or has left something in memory alone, it does not rest;
nor does it with paths that the person has let in: what they lead to is looked up when it opens, and commands may have changed that.

It holds the very directory that was the project when it opened. Where somebody has put another one in its place since (`mv`, a new
clone), it is left, with all that runs in it, and opened anew: what is asked for now is meant for what is there now. So it is when
its private HOME or /tmp, which are files of the person's, were removed: commands would find nothing there that they could write.
"""

import math
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain

import anyio
from anyio import to_thread

from sanderling.config import Settings
from sanderling.errors import SandboxError
from sanderling.paths import real_path
from sanderling.remedies import remedies
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.environment import state_directory
from sanderling.sandbox.files import Files, UnconfinedFiles
from sanderling.sandbox.gaps import missing_at
from sanderling.sandbox.kernel.layout import (
    private_directory,
    remove_temporary_files_of_the_dead,
    remove_tree,
)
from sanderling.sandbox.network.hosts import HostRules, is_loopback, split_authority
from sanderling.sandbox.policy import (
    NO_GRANT,
    Grant,
    Level,
    NetworkMode,
    ProjectAccess,
    SandboxPolicy,
    changed_paths,
    resolve_policy,
    without,
)
from sanderling.sandbox.processes import STDOUT, Process
from sanderling.sandbox.report import ProjectReplaced, Report
from sanderling.sandbox.sandbox import NO_PROXY, Sandbox, SandboxEvent, check_level
from sanderling.sandbox.unconfined import UnconfinedProcess, spawn_unconfined

SHELL = ("/bin/sh", "-c")
SESSION = "session"
REST_AFTER_S = 300.0
REMOVE_S = 5.0  # what is left by then, the next session of the project removes
GONE = "The project's directory {project} is gone: nothing runs, is searched or changed until there is one again."

SessionEvent = SandboxEvent | ProjectReplaced
"""What happens unasked: in a sandbox, or because the project is another directory."""

_Place = tuple[str, int, int]
"""Which directory a path leads to: the real path, device and inode."""


def policy_for(settings: Settings, project: str) -> SandboxPolicy:
    """The policy with which a session of `project` begins: its network is off."""
    return SandboxPolicy(
        project=project,
        home=os.path.expanduser("~"),
        state_dir=state_directory(str(settings.sandbox_dir), project),
        read_paths=settings.sandbox_read,
        write_paths=settings.sandbox_write,
        hosts=settings.sandbox_hosts,
        env_pass=settings.sandbox_env,
        min_level=settings.sandbox_min_level,
    )


class SessionSandbox:
    """
    What confines a session's commands.

    `serve` must run as long as the session lives. `on_change` is called when `level`, `network`, `missing` or `problem` changed.
    """

    rest_after_s = REST_AFTER_S
    _report: Report | None = None

    def __init__(
        self,
        policy: SandboxPolicy,
        on_event: Callable[[SessionEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.problem = ""
        self._policy = policy
        self._on_event = on_event
        self._on_change = on_change
        self.is_off = False
        self._sandbox: Sandbox | None = None
        self._known_place: _Place | None = None  # where the project was last
        self._opened_at: _Place | None = None  # where it was when the sandbox opened
        self._has_been_replaced = False
        self._is_wanted = anyio.Event()
        self._is_decided = anyio.Event()
        self._is_kept_open = False
        self._private: object = None  # what the private directories were when it opened
        self._needed_at = -math.inf  # the last time, since it is open
        self._patience: anyio.CancelScope | None = None  # until it may rest
        self._files: dict[Grant, tuple[Files, object]] = {}  # each with what it was opened for
        self._opening_files = anyio.Lock()
        self._hosts_let_in: dict[object, tuple[str, ...]] = {}  # by whom, or what, they are for
        self._changing_network = anyio.Lock()

    @property
    def level(self) -> Level | None:
        """The level that is in force; None while it is not known."""
        return self._policy.level or (self._report.level if self._report else None)

    @property
    def network(self) -> NetworkMode:
        return self._in_force.network

    @property
    def _in_force(self) -> SandboxPolicy:
        """The policy with the hosts that the person has let in: while the network is off, those and no others."""
        policy = self._policy
        hosts = tuple(dict.fromkeys(chain.from_iterable(self._hosts_let_in.values())))
        if not hosts or policy.network == "on":
            return policy
        listed = policy.hosts if policy.network == "proxy" else ()
        return policy._replace(network="proxy", hosts=(*listed, *hosts))

    @property
    def missing(self) -> tuple[str, ...]:
        """What the level leaves open, in sentences."""
        if not (self._report and self.level):
            return ()
        return tuple(gap["what"] for gap in missing_at(self._report, self.level))

    async def serve(self) -> None:
        """Open the sandbox whenever it is wanted, until it can rest."""
        try:
            while True:
                await self._is_wanted.wait()
                await self._hold_open()
        finally:
            if self._policy.tmp_dir:  # still there, if it rests or has rested
                with anyio.move_on_after(REMOVE_S, shield=True):
                    await to_thread.run_sync(
                        remove_tree, self._policy.tmp_dir, abandon_on_cancel=True
                    )

    def directory_outside(self) -> str:
        """A directory for what goes along with commands that nothing confines. Of a host that was killed, the next one removes it."""
        directory = private_directory(self._policy, "tmp")
        remove_temporary_files_of_the_dead(directory)
        return tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=directory)

    async def find_level(self) -> None:
        """Find out what the kernel can do, for those who want to see it before anything is opened."""
        try:
            self._report = await Sandbox.probe()
            check_level(self._policy, self._report)
        except SandboxError as error:
            self.problem = str(error)
        self._on_change()

    async def _hold_open(self) -> None:
        # When this one comes to its end, the next may be waited for already.
        is_decided, is_wanted = self._is_decided, self._is_wanted
        self._opened_at = _place(self._policy.project)
        try:
            async with Sandbox.open(self._in_force, self._on_event, self._report) as sandbox:
                self._policy = self._policy._replace(tmp_dir=sandbox.policy.tmp_dir)
                self._sandbox, self.problem = sandbox, ""
                self._private = _private_directories(sandbox)
                if self._report is None:
                    self._report = sandbox.report
                    self._on_change()
                try:
                    await self._catch_up(sandbox)
                    is_decided.set()
                    await self._until_it_can_rest(sandbox)
                finally:
                    if self._sandbox is sandbox:  # else it was left
                        self._let_go()
                if sandbox.has_ended.is_set():  # a mishap
                    self._on_change()
                else:
                    await sandbox.rest()
        except SandboxError as error:
            self.problem = str(error)
        if self._is_wanted is is_wanted:
            self._let_go()
        is_decided.set()

    async def _catch_up(self, sandbox: Sandbox) -> None:
        """What has changed while it opened is in force before anything is started in it."""
        sandbox.policy = sandbox.policy._replace(mode=self._policy.mode)
        await self._renew_network()

    async def _until_it_can_rest(self, sandbox: Sandbox) -> None:
        """Return when it has ended, was left, or nobody has needed it for a while and nothing would be lost."""
        while self._sandbox is sandbox and not sandbox.has_ended.is_set():
            with anyio.CancelScope(deadline=self._rest_at) as self._patience:
                await sandbox.has_ended.wait()
            if self._sandbox is not sandbox or self._rest_at > anyio.current_time():
                continue
            has_paths = self._policy.read_paths or self._policy.write_paths
            if has_paths or sandbox.runs_commands or await sandbox.holds_memory():
                self._need()
            elif self._rest_at <= anyio.current_time():
                return

    @property
    def _rest_at(self) -> float:
        return math.inf if self._is_kept_open else self._needed_at + self.rest_after_s

    def _take_back_what_changed(self) -> None:
        """What was let in for the session, and is something else by now, has to be asked about again."""
        changed = changed_paths(self._policy)
        for path in changed:
            can_write = path in self._policy.write_paths
            self._on_event(Denial("write" if can_write else "read", path, "replaced"))
        if changed:
            self._policy = without(self._policy, changed)
        if changed and self._sandbox:
            self._sandbox.policy = without(self._sandbox.policy, changed)

    def _need(self) -> None:
        self._needed_at = anyio.current_time()

    def _let_go(self) -> None:
        """Whoever needs it from now on opens it anew."""
        self._sandbox, self._is_wanted = None, anyio.Event()
        self._needed_at = -math.inf
        for files, _ in self._files.values():
            files.close()
        self._files.clear()

    @contextmanager
    def kept_open(self) -> Generator[None]:
        """Once it is open, it stays so in this context; afterwards it rests at once if nobody has needed it."""
        self._is_kept_open = True
        try:
            yield
        finally:
            self._is_kept_open = False
            if self._patience:
                self._patience.deadline = self._rest_at

    async def get_ready(self) -> None:
        """Open it ahead of its use, if that can be; if it cannot, who needs it is told."""
        if not self.is_off:
            await self._decided()
        if self._sandbox:
            with suppress(SandboxError):
                await self._files_of(self._sandbox, NO_GRANT)

    async def _decided(self) -> None:
        """Return when it is open, or that was tried."""
        if self._sandbox is None and not self._is_wanted.is_set():
            self._is_decided = anyio.Event()
            self._is_wanted.set()
        await self._is_decided.wait()

    async def _opened(self) -> Sandbox:
        while True:
            self._look_at_project()
            if self._sandbox and _private_directories(self._sandbox) != self._private:
                self._leave()
            if self._sandbox is None:
                self._take_back_what_changed()  # or it would not open
            self._need()
            await self._decided()
            if self._sandbox is None:
                self._on_change()
                raise SandboxError(self.problem)
            self._need()
            if _place(self._policy.project) == self._opened_at:
                return self._sandbox  # else it went while the sandbox opened

    def _look_at_project(self) -> None:
        """
        Leave a sandbox that holds a directory which is the project no more.

        Raises:
            SandboxError: there is no directory in its place.
        """
        place = self._require_project()
        if self._sandbox and place != self._opened_at:
            self._leave()
        known, self._known_place = self._known_place or place, place
        if known != place:
            self._has_been_replaced = True
            self._on_event(ProjectReplaced(self._policy.project))

    def _require_project(self) -> _Place:
        if place := _place(self._policy.project):
            return place
        raise SandboxError(GONE.format(project=self._policy.project))

    def _leave(self) -> None:
        """It ends with all that runs in it; whoever needs one waits for that, and opens the next."""
        self._let_go()
        if self._patience:
            self._patience.cancel()

    def take_replaced(self) -> bool:
        """Whether the project's directory was replaced since this was asked last."""
        has_been_replaced, self._has_been_replaced = self._has_been_replaced, False
        return has_been_replaced

    async def spawn_shell(
        self, command: str, grant: Grant = NO_GRANT
    ) -> Process | UnconfinedProcess:
        """Start a line for the shell in the project's root, as `spawn` does."""
        return await self.spawn([*SHELL, command], grant=grant)

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        env: Mapping[str, str] | None = None,
        grant: Grant = NO_GRANT,
    ) -> Process | UnconfinedProcess:
        """
        Start a command, its errors in with its output, its input empty.

        `cwd` is the project's root if it is empty; `env` comes on top of what the policy lets in; the paths of `grant` are for this
        command alone.

        Raises:
            SandboxError: it cannot be confined, so it was not started.
            OSError: there is no sandbox, and it cannot be started.
        """
        if self.is_off:
            self._look_at_project()
            return await spawn_unconfined(argv, cwd=cwd or self._policy.project, env=env)
        sandbox = await self._opened()
        self._take_back_what_changed()
        policy = _policy_of_now(sandbox, grant)
        return await sandbox.spawn(argv, cwd=cwd, env=env, stderr=STDOUT, policy=policy)

    async def files(self, grant: Grant = NO_GRANT) -> Files:
        """
        Files as a command of now would see them; without a sandbox, as the person does. Ask anew for each use.

        Raises:
            SandboxError: they cannot be confined, or there is no project.
        """
        if self.is_off:
            self._look_at_project()
            return UnconfinedFiles()
        sandbox = await self._opened()
        self._take_back_what_changed()
        return await self._files_of(sandbox, grant)

    async def _files_of(self, sandbox: Sandbox, grant: Grant) -> Files:
        async with self._opening_files:
            policy = _policy_of_now(sandbox, grant) or sandbox.policy
            paths = (policy.read_paths, policy.write_paths, policy.identities)
            wanted = (sandbox, policy.mode, *paths)
            files, opened_for = self._files.get(grant, (None, None))
            if files and (files.has_ended or opened_for != wanted):
                await files.retire()
                files = None
            files = files or await sandbox.open_files(policy)
            self._files[grant] = (files, wanted)
            return files

    async def undoes(self, path: str) -> bool:
        """
        Whether the guard would undo a change of `path`, whoever has approved it.

        It is at work as long as a sandbox is open, also beside what runs without one.
        """
        return self._sandbox is not None and await self._sandbox.undoes(real_path(path))

    def leads_to(self, host: str) -> bool:
        """Whether the network of now leads to `host`, with or without `:port`; to its own loopback each does."""
        policy = self._in_force
        if self.is_off or policy.network == "on" or is_loopback(split_authority(host)[0]):
            return True
        return policy.network == "proxy" and HostRules(policy.hosts).allow_all_of(host)

    def check_grant(self, grant: Grant) -> None:
        """
        Return if the person could let that in.

        Raises:
            SandboxError: a path holds too much, a host needs a proxy that this level does not have, or there is no project.
        """
        self._require_project()
        resolve_policy(grant.added_to(self._policy))
        if grant.hosts and self.network != "on" and self.level == "landlock":
            raise SandboxError(
                f"{NO_PROXY} The person can open all of it: `{remedies().network} on`."
            )

    async def extend(self, grant: Grant) -> None:
        """
        Let `grant` in for the rest of the session: its hosts through the proxy, unless the network is open anyway.

        Raises:
            SandboxError: a path holds too much, or a host needs a proxy that this level does not have.
        """
        sandbox = await self._opened()
        self.check_grant(grant)
        grant = grant if grant.is_identified else grant.identified()
        await self._let_in(SESSION, (*self._hosts_let_in.get(SESSION, ()), *grant.hosts))
        paths = grant._replace(hosts=())
        self._policy = paths.added_to(self._policy)
        sandbox.policy = paths.added_to(sandbox.policy)

    @asynccontextmanager
    async def lending(self, grant: Grant) -> AsyncGenerator[None]:
        """
        Let the hosts of `grant` through the proxy in this context, for all commands of the session; then take all of it back.

        What `spawn` has started with its paths keeps those.

        Raises:
            SandboxError: a host needs a proxy that this level does not have.
        """
        if grant == NO_GRANT or self.is_off:
            yield
            return
        borrower = object()
        try:
            await self._let_in(borrower, grant.hosts)
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await self._let_in(borrower, ())
                await self._retire(grant)

    async def _let_in(self, whose: object, hosts: tuple[str, ...]) -> None:
        """From now on these hosts for that; none takes them back."""
        before = self._hosts_let_in.pop(whose, ())
        if hosts:
            self._hosts_let_in[whose] = hosts
        if hosts == before:
            return
        try:
            await self._renew_network()
        except SandboxError:
            if not hosts:
                return  # taken back all the same: with the sandbox the proxy has ended
            self._hosts_let_in[whose] = before
            raise
        if whose is SESSION:  # what is lent for a moment is not worth the person's attention
            self._on_change()

    async def _retire(self, grant: Grant) -> None:
        async with self._opening_files:
            if lent := self._files.pop(grant, None):
                await lent[0].retire()
        if self._sandbox:
            self._sandbox.retire_views()

    async def set_network(self, mode: NetworkMode) -> None:
        """
        Change the network of what is started from now on; "off" also takes back the hosts that were let in.

        Raises:
            SandboxError: this level cannot do it, or there is no sandbox.
        """
        if self.is_off:
            raise SandboxError("The sandbox is off, and with it any hold on the network.")
        await self._opened()
        before = self._policy, self._hosts_let_in
        self._policy = self._policy._replace(network=mode)
        if mode == "off":
            self._hosts_let_in = {}
        try:
            await self._renew_network()
        except SandboxError:
            self._policy, self._hosts_let_in = before
            raise
        self._on_change()

    async def _renew_network(self) -> None:
        async with self._changing_network:
            wanted, sandbox = self._in_force, self._sandbox
            is_new = sandbox and (wanted.network, wanted.hosts) != (
                sandbox.policy.network,
                sandbox.policy.hosts,
            )
            if sandbox and is_new:
                await sandbox.set_network(wanted.network, wanted.hosts)

    async def scratch(self) -> tuple[str, str]:
        """
        The session's temporary directory: its path for us, and for its commands.

        Raises:
            SandboxError: there is no sandbox to be had.
        """
        sandbox = await self._opened()
        path = sandbox.policy.tmp_dir
        return path, path if sandbox.level == "landlock" else "/tmp"

    @property
    def is_writable(self) -> bool:
        """Whether anything of the person's can be written: in plan mode nothing can."""
        return self._policy.mode == "rw"

    def set_mode(self, mode: ProjectAccess) -> None:
        """Whether what is started from now on can write the project."""
        self._policy = self._policy._replace(mode=mode)
        if self._sandbox:
            self._sandbox.policy = self._sandbox.policy._replace(mode=mode)

    @property
    def write_paths(self) -> tuple[str, ...]:
        """What can be written beside the project."""
        return without(self._policy, changed_paths(self._policy)).write_paths

    def switch(self, *, is_on: bool) -> None:
        """
        Confine the commands that are started from now on, or do not: the second only when the person has typed it.

        Then nothing needs a sandbox that is open, and its guard: it rests, unless something in it would be lost.
        """
        self.is_off = not is_on
        if self.is_off and self._patience:
            self._needed_at = -math.inf
            self._patience.deadline = self._rest_at
        self._on_change()

    def look_after(
        self,
        output: str,
        *,
        has_failed: bool,
        cwd: str = "",
        status: int | None = None,
        command: str = "",
    ) -> tuple[Denial, ...]:
        """A `command` has ended: have the guard look at the project; return what its failure says was refused."""
        if not self._sandbox:
            return ()
        self._sandbox.audit()
        if not has_failed:
            return ()
        return (*self._sandbox.denials_in(output, cwd, status=status or 1, command=command),)


def _private_directories(sandbox: Sandbox) -> object:
    """Which directories private HOME and /tmp are; None if one is gone."""
    policy = sandbox.policy
    try:
        found = [os.stat(path) for path in (f"{policy.state_dir}/home", policy.tmp_dir)]
    except OSError:
        return None
    return [(status.st_dev, status.st_ino) for status in found]


def _place(project: str) -> _Place | None:
    """None: there is no directory."""
    try:
        status = os.stat(f"{project}/")
    except OSError:
        return None
    return real_path(project), status.st_dev, status.st_ino


def _policy_of_now(sandbox: Sandbox, grant: Grant) -> SandboxPolicy | None:
    """What is started now has this; None: what the sandbox has. In plan mode nothing is written, whatever was let in."""
    policy = grant.added_to(sandbox.policy)
    if policy.mode == "ro":
        policy = Grant(read_paths=policy.write_paths).added_to(policy._replace(write_paths=()))
    return None if policy == sandbox.policy else policy
