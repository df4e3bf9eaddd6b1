"""Views: one zygote for each combination of mode, network and grants, and the processes started in it."""

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from weakref import WeakSet

import anyio

from sanderling.errors import NoRoomError, SandboxError
from sanderling.protocol.modes import Level
from sanderling.sandbox import wire
from sanderling.sandbox.channels import SupervisorChannel, receive, refusing_on_os_errors
from sanderling.sandbox.descriptors import close
from sanderling.sandbox.policy import PROXY_PORT, UNMOUNTED, SandboxPolicy
from sanderling.sandbox.processes import Process
from sanderling.sandbox.report import NOT_STARTED


class SandboxView:
    """One zygote and the processes started in it."""

    def __init__(self, number: int, policy: SandboxPolicy, channel: socket.socket) -> None:
        self.number = number
        self.rights = _rights(policy)
        self.channel = channel
        self.proxy_port = PROXY_PORT
        self.commands = WeakSet[Process]()
        self.servers = WeakSet[Process]()
        self.file_workers = WeakSet[Process]()
        self._sending = anyio.Lock()
        self._asking = anyio.Lock()
        self._wanted = 0  # number of pending starts

    @property
    def only_serves(self) -> bool:
        return not any(command.is_running for command in self.commands)

    @property
    def runs_commands(self) -> bool:
        return any(each.is_running for each in (*self.commands, *self.servers))

    @property
    def is_used(self) -> bool:
        return (
            self._wanted > 0
            or self.runs_commands
            or any(worker.is_running for worker in self.file_workers)
        )

    async def holds_memory(self) -> bool:
        """Return whether commands left data there that is not on disk. False if the zygote does not answer."""
        with suppress(OSError, anyio.ClosedResourceError):
            async with self._asking:
                await self.send(("look",), ())
                match await receive(self.channel):
                    case ("holds", is_something), _:
                        return is_something
                    case _:
                        pass
        return False

    async def listeners(
        self, places: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], socket.socket]:
        """Open listeners at `places` of the view's loopback. Those that commands have taken are left out."""
        found = dict[tuple[str, int], socket.socket]()
        with suppress(OSError, anyio.ClosedResourceError):  # the zygote is gone: the start says so
            async with self._asking:
                for start in range(0, len(places), wire.MAX_DESCRIPTORS):
                    batch = list(places[start : start + wire.MAX_DESCRIPTORS])
                    await self.send(("listen", batch), ())
                    match await receive(self.channel):
                        case ("listening", taken), descriptors:
                            for (host, port), each in zip(taken, descriptors, strict=True):
                                found[host, port] = socket.socket(fileno=each)
                        case _:
                            break
        return found

    def kill_commands(self) -> None:
        for command in (*self.commands, *self.servers):
            command.kill()

    async def send(self, message: wire.Message, descriptors: tuple[int, ...]) -> None:
        """
        Send `message` when the socket has room.

        Raises:
            OSError: the zygote is gone.
        """
        self._wanted += 1
        try:
            async with self._sending:
                while True:
                    with suppress(BlockingIOError):
                        wire.send(self.channel, message, descriptors)
                        return
                    await anyio.wait_writable(self.channel)
        finally:
            self._wanted -= 1

    def signal(self, key: int, number: int) -> None:
        try:
            wire.send(self.channel, ("signal", key, int(number)))
        except BlockingIOError:  # a zygote that does not read must not keep commands alive
            close(self.channel.detach())
        except OSError:
            pass  # the zygote is gone, and the command with it


class SandboxViews:
    """
    The views of a sandbox, each opened when it is first needed.

    `on_listener` is called with the sockets that the host should serve on a new view's loopback: policy, "proxy" or "names", and socket.
    """

    def __init__(
        self,
        level: Level,
        platform: str,
        supervisor: SupervisorChannel,
        on_listener: Callable[[SandboxPolicy, str, socket.socket], None],
    ) -> None:
        self._level = level
        self._platform = platform
        self._supervisor = supervisor
        self._on_listener = on_listener
        self._views: dict[object, SandboxView] = {}
        # Commands still run in these views, but no new ones are started there.
        self._left: list[SandboxView] = []
        self._opening = anyio.Lock()
        self._numbers = count()

    async def send(
        self, policy: SandboxPolicy, message: wire.Message, descriptors: tuple[int, ...]
    ) -> SandboxView:
        """Send `message` to the view of `policy`, and again if the zygote has died. Return the view."""
        for is_last_try in (False, True):
            view = await self.get(policy)
            try:
                await view.send(message, descriptors)
            except OSError as error:
                if error.errno in wire.NO_ROOM:
                    raise SandboxError(NOT_STARTED.format(reason=error.strerror)) from error
                self._retire(view)
                if is_last_try:
                    raise SandboxError(f"The sandbox has ended: {error}.") from error
            else:
                return view
        raise AssertionError

    async def get(self, policy: SandboxPolicy) -> SandboxView:
        """
        Return the view of `policy`, opening it if needed.

        Fails once the supervisor has ended, although zygotes may live a moment longer.
        """
        if self._supervisor.has_ended.is_set():
            raise SandboxError("The sandbox has ended.")
        # A profile is fixed, so a view of Seatbelt has one network. Elsewhere, the host opens and closes the proxy of a view.
        is_open = policy.network if self._level == "seatbelt" else policy.network == "on"
        key = (policy.mode, is_open, *_rights(policy))
        async with self._opening:
            if key not in self._views:
                number = next(self._numbers)
                channel, listeners = await self._open_view(number, policy)
                view = self._views[key] = SandboxView(number, policy, channel)
                for name, listener in listeners.items():
                    if name == "proxy":
                        view.proxy_port = listener.getsockname()[1]
                    self._on_listener(policy, name, listener)
            return self._views[key]

    def hold_again(self, path: str) -> None:
        """Bind a protected file again after the host replaced it. Where that is impossible, close the view."""
        for view in list(self._views.values()):
            if self._level == "full-bwrap":
                self.drop(view)
            elif self._level not in UNMOUNTED:
                with suppress(OSError):  # the zygote is gone, with everything in it
                    wire.send(view.channel, ("hold", path))

    async def _open_view(
        self, number: int, policy: SandboxPolicy
    ) -> tuple[socket.socket, dict[str, socket.socket]]:
        """Return the channel to a new view, and its listeners by name."""
        with refusing_on_os_errors():
            ours, theirs = wire.socket_pair(self._platform)
        ours.setblocking(False)
        with ExitStack() as unless_ready:
            unless_ready.enter_context(ours)
            with theirs:
                # The supervisor has no use for credentials.
                plain = policy._replace(limits=tuple(policy.limits), credentials=(), remotes=())
                request = ("open", number, self._level, tuple(plain))
                try:
                    self._supervisor.send(request, (theirs.fileno(),))
                except OSError as error:
                    raise SandboxError(f"The sandbox has ended: {error}.") from error
            with refusing_on_os_errors():
                received = await receive(ours)
            match received:
                case ("ready", names), descriptors:
                    sockets = (socket.socket(fileno=descriptor) for descriptor in descriptors)
                    listeners = dict(zip(names, sockets, strict=True))
                    unless_ready.pop_all()
                case ("no room", reason), _:
                    raise NoRoomError(reason)
                case ("refused", reason), _:
                    raise SandboxError(f"Cannot set up the sandbox: {reason}")
                case _:
                    raise SandboxError("The sandbox's supervisor has ended.")
        return ours, listeners

    def retire_others(self, policy: SandboxPolicy) -> None:
        """Close unused views whose grants differ from `policy`."""
        for view in list(self._views.values()):
            if view.rights != _rights(policy) and not view.is_used:
                self._retire(view)

    def _retire(self, view: SandboxView) -> None:
        """Close an unused view and have its mount points removed."""
        self.drop(view)
        with suppress(OSError):  # the supervisor is gone, and cleans up
            self._supervisor.send(("retire", view.number))

    def drop(self, view: SandboxView) -> None:
        """Stop using `view` for new commands. Running ones continue, with their mounts."""
        self._views = {key: other for key, other in self._views.items() if other is not view}
        self._left = [other for other in (*self._left, view) if other.runs_commands]
        close(view.channel.detach())

    @property
    def runs_commands(self) -> bool:
        return any(view.runs_commands for view in (*self._views.values(), *self._left))

    @property
    def only_serve(self) -> bool:
        return all(view.only_serves for view in (*self._views.values(), *self._left))

    async def holds_memory(self) -> bool:
        """Return whether commands left data that would be lost with the processes: shared memory, semaphores or message queues."""
        return any([await view.holds_memory() for view in list(self._views.values())])

    def kill_commands(self) -> None:
        for view in (*self._views.values(), *self._left):
            view.kill_commands()

    def close(self) -> None:
        for view in self._views.values():
            close(view.channel.detach())


def _rights(policy: SandboxPolicy) -> tuple[object, ...]:
    """Everything by which the views of a session differ at the same time: its grants and its servers."""
    return (policy.server, policy.read_paths, policy.write_paths, policy.identities)
