"""The agent `sanderling` of Inspect: `sanderling acp` in the sandbox, whose model calls Inspect answers, counts and logs."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from inspect_ai.agent import Agent, AgentState, SandboxAgentBridge, agent, sandbox_agent_bridge
from inspect_ai.model import ChatMessageUser
from inspect_ai.util import ExecRemoteProcess, ExecRemoteStreamingOptions, sandbox, store
from inspect_swe.acp import ACPAgent
from inspect_swe.acp.agent import ACPAgentParams
from typing_extensions import Unpack, override

from acp import text_block
from sanderling_inspect.environment import SanderlingSandboxEnvironment

FIRST_PORT = 13_140
PORT_USED = "sanderling_model_port"
POLL_S = 0.05
KEY = "sk-inspect"
"""Sanderling wants one; the bridge reads none."""


class SanderlingACP(ACPAgent):
    """
    Sanderling over the Agent Client Protocol, for solvers with several prompts.

    The sandbox of the sample confines it, so its own is off. `command` is the program in the sandbox.
    """

    def __init__(self, *, command: str = "", **options: Unpack[ACPAgentParams]) -> None:
        super().__init__(**options)
        self._command = command
        self._has_cwd = bool(options.get("cwd"))

    def prompt_for(self, state: AgentState) -> str:
        """Return the user's last message, after what the system says."""
        prompts = [each.text for each in state.messages if isinstance(each, ChatMessageUser)]
        return "\n\n".join(filter(None, (self._resolve_system_prompt(state), *prompts[-1:])))

    @asynccontextmanager
    @override
    async def _start_agent(
        self, state: AgentState
    ) -> AsyncGenerator[tuple[ExecRemoteProcess, SandboxAgentBridge]]:
        place = sandbox(self.sandbox)
        if not self._has_cwd:
            self.cwd = (await place.exec(["pwd"])).stdout.strip()
        try:
            command, outer = place.as_type(SanderlingSandboxEnvironment).command, "outer-unchecked"
        except TypeError:
            command, outer = "sanderling", "outer"
        # A proxy of an earlier agent in the same sandbox may still have its port.
        port = store().get(PORT_USED, FIRST_PORT) + 1
        store().set(PORT_USED, port)
        async with sandbox_agent_bridge(
            state,
            model_aliases=self.model_map,
            filter=self.filter,
            retry_refusals=self.retry_refusals,
            sandbox=self.sandbox,
            bridged_tools=self.bridged_tools or None,
            port=port,
        ) as bridge:
            process = await place.exec_remote(
                [
                    self._command or command,
                    "acp",
                    "--model",
                    "anthropic:inspect",
                    "--sandbox",
                    outer,
                ],
                ExecRemoteStreamingOptions(
                    stdin_open=True,
                    cwd=self.cwd,
                    user=self.user,
                    env={
                        "ANTHROPIC_BASE_URL": f"http://localhost:{port}",
                        "ANTHROPIC_API_KEY": KEY,
                    }
                    | self.env,
                ),
            )
            yield process, bridge


@agent
def sanderling(
    *, command: str = "", mode: str = "auto", **options: Unpack[ACPAgentParams]
) -> Agent:
    """
    Sanderling, with the user's last message as its prompt.

    Args:
        command: the program in the sandbox; by default that of the sandbox `sanderling`, or `sanderling` on PATH.
        mode: Sanderling's mode.
        options: as for `inspect_swe.acp.ACPAgent`, such as `model`, `system_prompt`, `bridged_tools`, `cwd`, `env` and `sandbox`.
    """

    async def execute(state: AgentState) -> AgentState:
        instance = SanderlingACP(command=command, **options)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(instance, state)
            while not instance.conn:  # noqa: ASYNC110 - it replaces its event `ready` when it starts
                await anyio.sleep(POLL_S)
            assert instance.session_id
            await instance.conn.set_session_mode(session_id=instance.session_id, mode_id=mode)
            await instance.conn.prompt(
                session_id=instance.session_id, prompt=[text_block(instance.prompt_for(state))]
            )
            tasks.cancel_scope.cancel()
        return state

    return execute
