"""
The harness: `sanderling acp`, whose model calls go to the interception server of verifiers.

The runner of verifiers allows whatever the agent asks. So in the runtime `subprocess`, which confines nothing, all of Sanderling runs in its
own sandbox: it can write the rollout's directory, and reach the interception server only. Other runtimes are containers, which confine it.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import override
from verifiers.v1.acp import ACPConfig, ACPHarness
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.runtimes.subprocess import SubprocessRuntime
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace
from verifiers.v1.types import Messages

AnyTrace = Trace[Any, Any, Any]

SYSTEM = (Path("/"), Path("/usr"), Path("/usr/local"))
"""Always visible in the sandbox."""


class SanderlingHarnessConfig(HarnessConfig):
    id: str = "sanderling-verifiers"
    command: str = "sanderling"
    """The installed program, in the runtime."""
    hosts: list[str] = []  # noqa: RUF012 - pydantic copies it
    """More hosts that the sandbox lets through, in the runtime `subprocess`."""


class SanderlingHarness(ACPHarness[SanderlingHarnessConfig]):
    SUPPORTS_MCP: ClassVar[bool] = True
    NEEDS_CONTAINER: ClassVar[bool] = False

    @override
    async def prepare_acp(
        self,
        ctx: ModelContext,
        trace: AnyTrace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
    ) -> ACPConfig:
        if self.config.disabled_tools:
            raise ValueError(
                "The harness of Sanderling has no `disabled_tools`: deny them in its settings."
            )
        system_prompt, prompt = self.resolve_prompt(data)
        own = {"ANTHROPIC_BASE_URL": endpoint.removesuffix("/v1"), "ANTHROPIC_API_KEY": secret}
        model = ("--model", f"anthropic:{ctx.model}")
        if not isinstance(runtime, SubprocessRuntime):
            command = [self.config.command, "acp", "--sandbox", "outer", *model]
            return self._acp(command, own, system_prompt, prompt)
        program = self._program()
        kept = self._kept(trace)
        kept.mkdir()
        shown = [] if program.parent.parent in SYSTEM else [f"--ro={program.parent.parent}"]
        hosts = [*map(_host_of, (endpoint, *mcp_urls.values())), *self.config.hosts]
        command = [
            *(str(program), "sandbox", "exec", "--net", "proxy", *shown),
            *(f"--allow-host={host}" for host in hosts),
            # The sandbox passes no other keys on. In the command line, each user of the machine could read the secret.
            *(f"--env={name}" for name in own),
            *("--", str(program), "acp", "--sandbox", "outer-unchecked", *model),
        ]
        return self._acp(command, own | {"XDG_STATE_HOME": str(kept)}, system_prompt, prompt)

    def _acp(
        self,
        command: list[str],
        env: dict[str, str],
        system_prompt: str | None,
        prompt: str | Messages | None,
    ) -> ACPConfig:
        return ACPConfig(
            env={**self.config.resolved_env, **env},
            command=command,
            prompt=prompt or "",
            system_prompt=system_prompt,
        )

    def _program(self) -> Path:
        if found := shutil.which(self.config.command):
            return Path(found).resolve()
        raise FileNotFoundError(
            f"There is no program {self.config.command!r}: install Sanderling, or set `command` of the harness."
        )

    @override
    async def cleanup(self, trace: AnyTrace, runtime: Runtime) -> None:
        shutil.rmtree(self._kept(trace), ignore_errors=True)

    @staticmethod
    def _kept(trace: AnyTrace) -> Path:
        """The directory for sessions, HOME and /tmp of a rollout."""
        return Path(tempfile.gettempdir(), f"sanderling-verifiers-{trace.id}")


def _host_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname or ""
