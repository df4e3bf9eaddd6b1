"""The sandbox `sanderling` of Inspect: confined by the kernel, without Docker."""

import os
import pwd
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Literal, overload

import anyio
import anyio.to_thread
from inspect_ai.util import (
    ComposeConfig,
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    concurrency,
    parse_compose_yaml,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import override

from sanderling_inspect import inside
from sanderling_inspect.images import DEFAULT_WORKDIR, image_of, only_service, read_dockerfile
from sanderling_inspect.process import SandboxProcess

PREFIX = "sanderling-inspect-"
REMOVALS, REMOVAL_S = 50, 0.1
PYTHON = Path(sys.executable).resolve()
SYSTEM = ("/usr", "/usr/local")
"""Always visible, and too wide to be granted."""


class SanderlingSandboxConfig(BaseModel):
    """
    The configuration of the sandbox.

    Attributes:
        project: a directory that each sample gets a fresh copy of, in `workdir`.
        copies: more files and directories that each sample gets, and where: in a directory, if that ends with "/".
        workdir: the working directory of commands, and of relative paths: a directory in /, or below one.
        directories: more writable directories in /.
        network: off; proxy, which leads to `hosts` only; or on.
        env: variables for all commands.
        read: paths of this machine that commands can read, in addition to the system.
        command: the program `sanderling`; by default that on PATH, or next to Inspect's Python.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str | None = None
    copies: tuple[tuple[str, str], ...] = ()
    workdir: str = DEFAULT_WORKDIR
    directories: tuple[str, ...] = ("/logs", "/solution", "/tests")
    network: Literal["off", "proxy", "on"] = "off"
    hosts: tuple[str, ...] = ()
    env: Mapping[str, str] = Field(default_factory=dict)
    read: tuple[str, ...] = ()
    command: str = ""

    @override
    def __hash__(self) -> int:  # Inspect hashes it, and `env` has no hash
        return hash(self.model_dump_json())

    @field_validator("workdir")
    @classmethod
    def _is_absolute(cls, value: str) -> str:
        if os.path.normpath(value) != value or not value.startswith("/") or value == "/":
            raise ValueError("an absolute path below / is needed, such as /app")
        return value


@sandboxenv(name="sanderling")  # pyright: ignore[reportUntypedClassDecorator]
class SanderlingSandboxEnvironment(SandboxEnvironment):
    """A sample's sandbox, with directories of its own in /, a HOME and a /tmp. All of them are removed after the sample."""

    @classmethod
    @override
    def is_docker_compatible(cls) -> bool:
        return True

    @classmethod
    @override
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return SanderlingSandboxConfig(**config)

    @classmethod
    @override
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        environment = cls(_resolved(config))
        try:
            await environment.start()
        except BaseException:
            await environment.remove()
            raise
        return {"default": environment}

    @classmethod
    @override
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await environment.as_type(SanderlingSandboxEnvironment).remove()

    @classmethod
    @override
    async def cli_cleanup(cls, id: str | None) -> None:
        """Remove what runs left that were killed. Their processes ended with them."""
        await anyio.to_thread.run_sync(_remove_left, id)

    def __init__(self, config: SanderlingSandboxConfig) -> None:
        super().__init__()
        self.config = config
        self.command = _command(config)
        self._directory = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = os.open(self._directory, os.O_RDONLY)
        flock(self._lock, LOCK_EX)
        self._process: SandboxProcess | None = None

    async def start(self) -> None:
        """
        Start the sandbox.

        Raises:
            SandboxUnavailableError: with the reason.
        """
        state = self._directory / "state"
        for path in (self.config.workdir, *self.config.directories):
            self._kept(path).mkdir(parents=True, exist_ok=True)
        copied_to = (Path(target).parts[1] for _, target in self.config.copies)
        names = {*(path.name for path in self._kept("/").iterdir()), *copied_to}
        for name in names:
            self._kept(f"/{name}").mkdir(exist_ok=True)
        argv = [
            self.command,
            "sandbox",
            "exec",
            "--die-with-parent",
            "--no-guard",
            "--net",
            self.config.network,
        ]
        argv += [f"--allow-host={host}" for host in self.config.hosts]
        argv += [f"--mount=/{name}={self._kept(f'/{name}')}" for name in names]
        argv += [f"--project=/{Path(self.config.workdir).parts[1]}"]
        argv += [f"--ro={path}" for path in self._readable()]
        argv += ["--", str(PYTHON), "-I", "-S", inside.__file__, self.config.workdir]
        env = os.environ | {"XDG_STATE_HOME": str(state)}
        self._process = SandboxProcess(argv, env, self._directory / "log")
        await self._process.start()
        # Only now: the sandbox protects the configuration and hooks of a repository that is there when it opens.
        project = [(self.config.project, f"{self.config.workdir}/")] if self.config.project else []
        for source, target in (*project, *self.config.copies):
            await anyio.to_thread.run_sync(_copy, Path(source), self._kept(target), target)

    def _kept(self, path: str) -> Path:
        """Return where this machine keeps the absolute `path` of the sandbox."""
        return self._directory.joinpath("root", *Path(path).parts[1:])

    def _readable(self) -> list[str]:
        """Return what the Python in the sandbox needs, Sanderling for an agent in it, and what the user names."""
        sanderling = Path(self.command).resolve().parent.parent
        needed = (sys.base_prefix, inside.__file__, str(sanderling))
        return [*(path for path in needed if path not in SYSTEM), *self.config.read]

    async def remove(self) -> None:
        """End all processes of the sample, and remove its files."""
        with anyio.CancelScope(shield=True):
            if self._process:
                await anyio.to_thread.run_sync(self._process.stop)
            await anyio.to_thread.run_sync(_remove, self._directory)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        if user is not None and not _is_own(user):
            raise SandboxUserUnsupportedError(
                f"The sandbox 'sanderling' runs commands as the user of Inspect, and not as {user!r}."
            )
        data = input.encode() if isinstance(input, str) else input
        async with AsyncExitStack() as stack:
            if concurrency:
                await stack.enter_async_context(_turn())
            output = await self._running.execute(
                cmd,
                data,
                cwd=cwd or "",
                env={**self.config.env, **(env or {})},
                timeout_s=timeout,
                limit=SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE,
            )
        if output.has_timed_out:
            raise TimeoutError(f"The command did not end within {timeout} seconds.")
        return ExecResult(
            success=output.status == 0,
            returncode=output.status,
            stdout=output.stdout.decode(errors="replace"),
            stderr=output.stderr.decode(errors="replace"),
        )

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        data = contents.encode() if isinstance(contents, str) else contents
        await self._running.write(file, data)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self._running.read(file, limit)
        except NotADirectoryError as error:
            raise FileNotFoundError(error.errno, "No such file", file) from error
        if data is None:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    @property
    def _running(self) -> SandboxProcess:
        assert self._process
        return self._process

    @override
    def default_polling_interval(self) -> float:
        return 0.2


def _resolved(config: SandboxEnvironmentConfigType | None) -> SanderlingSandboxConfig:
    match config:
        case None:
            return SanderlingSandboxConfig()
        case SanderlingSandboxConfig():
            return config
        case ComposeConfig():
            service = only_service(config)
            network = "off" if service.network_mode == "none" else "on"
            return SanderlingSandboxConfig(network=network, **image_of(service)._asdict())
        case str() if Path(config).name == "Dockerfile":
            image = read_dockerfile(Path(config), Path(config).parent)
            return SanderlingSandboxConfig(**image._asdict())
        case str() if config.endswith((".yaml", ".yml")):
            return _resolved(parse_compose_yaml(config))
        case str() if Path(config).is_dir():
            return SanderlingSandboxConfig(project=config)
        case str():
            raise ValueError(
                f"The sandbox 'sanderling' copies a directory, and {config!r} is none."
            )
        case _:
            raise TypeError(f"The sandbox 'sanderling' does not read a {type(config).__name__}.")


def _copy(source: Path, kept: Path, target: str) -> None:
    if source.is_dir():
        shutil.copytree(source, kept, symlinks=True, dirs_exist_ok=True)
        return
    to = kept / source.name if target.endswith(("/", "/.")) else kept
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, to)


def _command(config: SanderlingSandboxConfig) -> str:
    next_to_python = str(Path(sys.executable).with_name("sanderling"))
    if found := shutil.which(config.command or "sanderling") or shutil.which(next_to_python):
        return str(Path(found).absolute())
    raise FileNotFoundError(
        f"There is no program {config.command or 'sanderling'!r}: install Sanderling, or set `command` of the sandbox."
    )


def _is_own(user: str) -> bool:
    try:
        uid = int(user) if user.isdecimal() else pwd.getpwnam(user).pw_uid
    except KeyError:
        return False
    return uid == os.geteuid()


def _turn() -> Any:
    """Wait for the number of subprocesses that Inspect allows."""
    return concurrency("subprocesses", os.cpu_count() or 1)


def _remove_left(name: str | None) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if name in (None, path.name) and path.stat().st_uid == os.geteuid():
            descriptor = os.open(path, os.O_RDONLY)
            with suppress(BlockingIOError):  # a running one
                flock(descriptor, LOCK_EX | LOCK_NB)
                _remove(path)
            os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a tree, in which a sample may have made directories read-only or unreadable."""
    for _ in range(REMOVALS):  # processes that were killed can end a little later
        for directory, names, _ in os.walk(path):
            for each in (Path(directory, name) for name in names):
                with suppress(OSError):
                    if not each.is_symlink():
                        each.chmod(0o700)
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(REMOVAL_S)
