r"""
Sanderling in Harbor: an agent, and an environment without Docker.

    PYTHONPATH=eval/harbor harbor run --path TASKS --model openai/gpt-5.5 \
        --agent sanderling_harbor:Sanderling --env sanderling_harbor:NamespaceEnvironment

It belongs to Harbor's process and imports nothing of Sanderling, which runs in the environment.
"""

import asyncio
import io
import json
import os
import posixpath
import pwd
import shlex
import shutil
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, override

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import BaseInstalledAgent, with_prompt_template
from harbor.agents.options import InstalledAgentOptions
from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities
from harbor.environments.options import EnvironmentOptions
from harbor.models.agent.context import AgentContext
from harbor.models.task.config import MCPServerConfig, NetworkPolicy
from harbor.models.trial.paths import EnvironmentPaths
from pydantic import Field

TRAJECTORY = "trajectory.json"
PLACE = "/opt/sanderling"
UPLOADED = "/installed-agent/sanderling"
DENIED = 3  # the exit status of a run in which something was denied

MAKE_PLACE = f"""set -u
mkdir -p {PLACE} && [ -w {PLACE} ] || {{
  echo '{PLACE} cannot be written: the installation needs root, and a writable file system.' >&2; exit 1
}}"""
UNPACK = f"""tar -xzf {UPLOADED} -C {PLACE} && {PLACE}/sanderling --version || {{
  echo 'The archive does not run in this image: build it for its system and C library.' >&2; exit 1
}}"""
CREATE = f"""found=
for python in python3 python3.14 python3.13 python3.12 python3.11 ''; do
  version=$($python -V 2>/dev/null) || continue
  $python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
  found="$found $version;"
done
[ "$python" ] || {{
  echo "It needs Python 3.11 or newer with the module venv, and the image has${{found:- no Python;}}" >&2
  echo 'use another image, or --agent-kwarg archive=FILE: scripts/archive.py makes one with its own Python.' >&2; exit 1
}}
$python -m venv {PLACE} || exit 1"""
FILL = f"{PLACE}/bin/python -m pip install --no-cache-dir --quiet --disable-pip-version-check"
FILLED = """|| {
  echo 'pip failed: if it has no network, use --agent-kwarg archive=FILE or wheels=DIRECTORY.' >&2; exit 1
}"""


class SanderlingOptions(InstalledAgentOptions):
    command: str = Field(default="", description="An installed `sanderling`, instead of a new one.")
    archive: str = Field(default="", description="A file that scripts/archive.py made, to install.")
    wheels: str = Field(default="", description="A directory of wheels, instead of the index.")
    sandbox: Literal["", "outer", "outer-unchecked"] = Field(
        default="outer", description="outer: the container is the sandbox; empty: Sanderling's own."
    )
    flags: str = Field(default="", description="More flags of `sanderling -p`.")


class Sanderling(BaseInstalledAgent):
    """Sanderling's print mode. It writes its own trajectory, with the tokens and cost of each step."""

    capabilities = AgentCapabilities(atif=True, mcp_servers=True, skills=True)
    options_model = SanderlingOptions
    options: SanderlingOptions

    @staticmethod
    @override
    def name() -> str:
        return "sanderling"

    @override
    def get_version_command(self) -> str | None:
        return f"{self._command} --version"

    @override
    def parse_version(self, stdout: str) -> str:
        return stdout.strip().removeprefix("sanderling").strip()

    @property
    def _command(self) -> str:
        program = "sanderling" if self.options.archive else "bin/sanderling"
        return self.options.command or f"{PLACE}/{program}"

    @override
    async def install(self, environment: BaseEnvironment) -> None:
        if self.options.command:
            return
        options = self.options
        given = Path(options.archive or options.wheels)
        if options.archive or options.wheels:
            if not await asyncio.to_thread(given.exists):
                raise RuntimeError(f"Sanderling was not installed: there is no {given}")
            upload = environment.upload_file if options.archive else environment.upload_dir
            await upload(given, UPLOADED)
        package = shlex.quote(f"sanderling=={self._version}" if self._version else "sanderling")
        index = f"--no-index --find-links {UPLOADED}" if options.wheels else ""
        script = UNPACK if options.archive else f"{CREATE}\n{FILL} {index} {package} {FILLED}"
        done = await environment.exec(f"{MAKE_PLACE}\n{script}\nrm -rf {UPLOADED}", user="root")
        if done.return_code:
            said = "\n".join((done.stderr or done.stdout or "").strip().splitlines()[-5:])
            raise RuntimeError(f"Sanderling was not installed: {said}")

    @override
    async def configure(self, environment: BaseEnvironment) -> None:
        """Give the agent the task's skills and tool servers as the user's own, which need no trust."""
        if self.skills_dir:
            copy = f'cp -r {shlex.quote(self.skills_dir)}/. "$HOME/.agents/skills"'
            await self.exec_as_agent(environment, f'mkdir -p "$HOME/.agents/skills" && {copy}')
        if self.mcp_servers:
            servers = {each.name: _declared(each) for each in self.mcp_servers}
            text = shlex.quote(json.dumps({"mcpServers": servers}))
            write = f'printf %s {text} > "$HOME/.config/sanderling/mcp.json"'
            await self.exec_as_agent(environment, f'mkdir -p "$HOME/.config/sanderling" && {write}')

    @with_prompt_template
    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        flags = ["-p", "--mode", "auto", "--output-format", "stream-json"]
        flags += ["--trajectory", str(EnvironmentPaths.agent_dir / TRAJECTORY)]
        if self.options.sandbox:
            flags += ["--sandbox", self.options.sandbox]
        for server in self.mcp_servers:
            flags += ["--allow", f"mcp__{server.name}__*"]
        if self.model_name:
            provider, slash, name = self.model_name.partition("/")
            is_ours = not slash or ":" in provider  # provider:model, of which a "/" is a part
            flags += ["--model", self.model_name if is_ours else f"{provider}:{name}"]
        log = EnvironmentPaths.agent_dir / "sanderling.jsonl"
        await self.exec_as_agent(
            environment,
            f"printf %s {shlex.quote(instruction)}"
            f" | {self._command} {shlex.join(flags)} {self.options.flags} > {log}"
            f" || [ $? -eq {DENIED} ]",
            env=self._keys(),
        )

    def _keys(self) -> dict[str, str]:
        provider = (self.model_name or "").partition("/")[0].upper().replace("-", "_")
        names = (f"{provider}_API_KEY", f"{provider}_BASE_URL")
        return {name: value for name in names if (value := self._get_env(name))}

    @override
    def populate_context_post_run(self, context: AgentContext) -> None:
        try:
            totals = json.loads((self.logs_dir / TRAJECTORY).read_text())["final_metrics"]
        except (OSError, ValueError, KeyError) as error:
            self.logger.warning("Sanderling left no trajectory: %r", error)
            return
        context.n_input_tokens = totals["total_prompt_tokens"]
        context.n_cache_tokens = totals["total_cached_tokens"]
        context.n_output_tokens = totals["total_completion_tokens"]
        context.cost_usd = totals.get("total_cost_usd")


def _declared(server: MCPServerConfig) -> dict[str, Any]:
    if server.transport == "stdio":
        return {"command": server.command, "args": server.args}
    if server.transport == "sse":
        raise RuntimeError(
            f"The tool server {server.name!r} has the transport sse, and Sanderling only stdio and streamable-http."
        )
    return {"url": server.url}


# --- the environment ---------------------------------------------------------------------------------------------------

SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64")
LINKS = {f"/{name}": Path("/", name).readlink() for name in SYSTEM if Path("/", name).is_symlink()}
"""Of the system, such as /bin, where it leads to usr/bin."""
SETTINGS = (
    *(
        "alternatives",
        "ca-certificates",
        "group",
        "host.conf",
        "hosts",
        "ld.so.cache",
        "ld.so.conf",
    ),
    *("ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "passwd", "pki", "protocols"),
    *("resolv.conf", "services", "ssl", "terminfo"),
)
"""Of /etc, without what has passwords."""
PROC = ("acpi", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger")
"""Of /proc, where a process of the machine's root can change the machine, even without capabilities."""
DIRECTORIES = ("app", "home", "opt", "proc", "dev", "root", "run", "srv", "tmp", "var/tmp")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VARIABLES = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8"}
ACP_VENV = "/opt/harbor-acp-venv"
"""Where Harbor's `acp` agent expects a Python with the package agent-client-protocol."""
UNBUILT = "the environment {!r} builds no images, and the Dockerfile has {!r}: only FROM, WORKDIR, COPY and ENV need none"


class NamespaceOptions(EnvironmentOptions):
    read_paths: str = Field(default="", description="Paths of this machine to show, as in PATH.")
    acp_venv: str = Field(default="", description="A Python environment for the agent `acp`.")


class NamespaceEnvironment(BaseEnvironment):
    """
    A root of its own for each trial, in namespaces that bubblewrap makes: this machine's system, read-only, and a writable rest.

    Each command has its own processes, so none of them survives it, and no capabilities. It is the user that it asks for, but all files
    belong to that user, because a namespace of this kind has only one. Nothing limits CPU or memory.
    """

    options_model = NamespaceOptions
    options: NamespaceOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._workdir = "/app"
        self._unbuilt = ""  # why the image would have to be built
        self._image_env: dict[str, str] = {}
        self._copies: list[tuple[str, str]] = []
        self._root: Path | None = None
        super().__init__(*args, **kwargs)

    @classmethod
    @override
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        super().preflight(kwargs)
        if not shutil.which("bwrap"):
            raise SystemExit("NamespaceEnvironment needs bubblewrap: install the package.")

    @staticmethod
    @override
    def type() -> str:
        return "namespaces"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(disable_internet=True, dynamic_network_policy=True)

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        pass  # each command has its own namespaces

    @override
    def _validate_definition(self) -> None:
        """Read what a Dockerfile says without building anything. An error here would end the whole job, so `start` raises it."""
        path = self.environment_dir / "Dockerfile"
        text = path.read_text() if path.is_file() else ""
        for line in text.replace("\\\n", " ").splitlines():
            instruction, _, rest = line.strip().partition(" ")
            match instruction.upper(), shlex.split(rest, comments=True):
                case (("" | "FROM" | "LABEL" | "MAINTAINER"), _):
                    pass
                case word, _ if word.startswith("#"):
                    pass
                case "WORKDIR", [directory]:
                    self._workdir = posixpath.join(self._workdir, directory)
                case "ENV", [*pairs] if all("=" in pair for pair in pairs):
                    self._image_env |= dict(pair.split("=", 1) for pair in pairs)
                case "COPY", [*sources, target] if sources and all(map(self._is_part, sources)):
                    target = posixpath.join(self._workdir, target)
                    self._copies += [(source, target) for source in sources]
                case _:
                    self._unbuilt = self._unbuilt or UNBUILT.format(self.type(), line.strip())
        self._workdir = self.task_env_config.workdir or self._workdir

    def _is_part(self, source: str) -> bool:
        """Recognize files of the task: `COPY ../../.ssh` and a link would copy the user's."""
        context = self.environment_dir.resolve()
        path = self.environment_dir / source
        return not source.startswith("--") and path.resolve().is_relative_to(context)

    @override
    async def start(self, force_build: bool) -> None:
        if self._unbuilt:
            raise NotImplementedError(self._unbuilt)
        if other := [each["type"] for each in self._host_mounts if each["type"] != "bind"]:
            raise NotImplementedError(
                f"only directories and files can be mounted, not a {other[0]}"
            )
        root = self._root = Path(tempfile.mkdtemp(prefix="sanderling-harbor-"))
        for name in DIRECTORIES:
            (root / name).mkdir(parents=True, exist_ok=True)
        (root / "run/.containerenv").touch()  # it is a container: `sanderling --sandbox outer`
        for link, target in LINKS.items():
            (root / link.lstrip("/")).symlink_to(target)
        paths = EnvironmentPaths
        made = (paths.agent_dir, paths.verifier_dir, paths.artifacts_dir, paths.tests_dir)
        await self._check("mkdir", "-p", self._workdir, "/installed-agent", *map(str, made))
        for source, target in self._copies:
            await self._copy_in(self.environment_dir / source, target)
        await self._upload_environment_dir_after_start()

    async def _copy_in(self, source: Path, target: str) -> None:
        if await asyncio.to_thread(source.is_dir):
            await self.upload_dir(source, target)
        else:
            is_directory = target.endswith(("/", "/."))
            await self.upload_file(
                source, posixpath.join(target, source.name) if is_directory else target
            )

    @override
    async def stop(self, delete: bool) -> None:
        if self._root and delete:
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)
        elif self._root:
            self.logger.info("The environment's files are in %s", self._root)

    # --- files: always from inside, where no link leads out of the root ------------------------------------------------

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        directory, name = posixpath.split(target_path)
        await self._unpack(directory or "/", [(Path(source_path), name)])

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._unpack(target_dir, [(Path(source_dir), ".")])

    async def _unpack(self, directory: str, files: Sequence[tuple[Path, str]]) -> None:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, name in files:
                tar.add(path, arcname=name)
        await self._check("mkdir", "-p", directory)
        options = ("--no-same-owner", "-C", directory)
        await self._check("tar", "-x", *options, stdin=packed.getvalue())

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        data = await self._check("cat", "--", source_path)
        await asyncio.to_thread(Path(target_path).write_bytes, data)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        packed = await self._check("tar", "-c", "-C", source_dir, ".")
        await asyncio.to_thread(_extract, packed, Path(target_dir))

    # --- commands ------------------------------------------------------------------------------------------------------

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        shell = ("bash", "-c", command)
        ids = _ids_of(self._resolve_user(user))
        code, out, err = await self._run(shell, cwd, self._merge_env(env), timeout_sec, ids=ids)
        return ExecResult(
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            return_code=code,
        )

    async def _check(self, *argv: str, stdin: bytes = b"") -> bytes:
        code, out, err = await self._run(argv, "/", None, None, stdin=stdin)
        if code:
            raise RuntimeError(
                f"{shlex.join(argv)} failed in the environment: {err.decode(errors='replace').strip()}"
            )
        return out

    async def _run(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: dict[str, str] | None,
        timeout_sec: int | None,
        *,
        stdin: bytes = b"",
        ids: tuple[int, int] = (0, 0),
    ) -> tuple[int, bytes, bytes]:
        options = self._confinement(cwd or self._workdir, ids)
        for name, value in (VARIABLES | self._image_env | (env or {})).items():
            options += ["--setenv", name, value]
        # The task's variables must not reach bubblewrap itself, which LD_PRELOAD and PATH would turn into another program. And keys do not
        # belong into a command line, which everybody can read.
        with os.fdopen(os.memfd_create("options"), "wb") as given:
            given.write(b"".join(os.fsencode(each) + b"\0" for each in options))
            given.flush()
            given.seek(0)
            process = await asyncio.create_subprocess_exec(
                *(shutil.which("bwrap") or "bwrap", "--args", str(given.fileno()), "--", *argv),
                env={"PATH": PATH},
                pass_fds=[given.fileno()],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        try:
            async with asyncio.timeout(timeout_sec):
                out, err = await process.communicate(stdin)
        except TimeoutError:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds") from None
        finally:
            if process.returncode is None:
                process.kill()  # and with it all of the command's processes
                await process.wait()
        assert process.returncode is not None
        return process.returncode, out, err

    def _confinement(self, cwd: str, ids: tuple[int, int]) -> list[str]:
        if self._root is None:
            raise RuntimeError("the environment was not started")
        argv = ["--clearenv", "--unshare-user", "--uid", str(ids[0]), "--gid", str(ids[1])]
        argv += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent"]
        # If Harbor runs as root, bubblewrap leaves all capabilities, and `mount -o remount,rw /usr` changes this machine.
        argv += ["--new-session", "--cap-drop", "ALL"]
        argv += ["--unshare-net"] if self._network_disabled else []
        argv += ["--bind", str(self._root), "/", "--proc", "/proc", "--dev", "/dev"]
        shown = [*(f"/{name}" for name in SYSTEM), *(f"/etc/{name}" for name in SETTINGS)]
        shown += filter(None, self.options.read_paths.split(os.pathsep))
        for each in shown:
            if Path(each).exists() and each not in LINKS:
                argv += ["--ro-bind", each, each]
        for each in (f"/proc/{name}" for name in PROC):
            argv += ["--ro-bind-try", each, each]
        for mount in self._host_mounts:
            kind = "--ro-bind" if mount.get("read_only") else "--bind"
            argv += [kind, str(mount.get("source")), mount["target"]]
        if self.options.acp_venv:
            argv += ["--ro-bind", self.options.acp_venv, ACP_VENV]
        return [*argv, "--chdir", cwd]


def _ids_of(user: str | int | None) -> tuple[int, int]:
    """
    Return the user and group ID of a user of this machine, whose /etc/passwd the environment shows.

    Raises:
        RuntimeError: there is no such user.
    """
    name, _, group = str(user or 0).partition(":")
    if name.isdecimal() and (group or "0").isdecimal():
        return int(name), int(group or name)
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise RuntimeError(f"the environment has no user {name!r}: name its ID") from None
    return found.pw_uid, found.pw_gid


def _extract(packed: bytes, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(directory, filter=_kept)  # noqa: S202 - the filter


def _kept(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """Leave out what leads out of the directory, such as links that the agent made."""
    try:
        return tarfile.data_filter(member, directory)
    except tarfile.FilterError:
        return None
