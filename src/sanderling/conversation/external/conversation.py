"""A conversation in which an external agent answers; turns, queue, commands, undo and log work as in any other."""

from contextlib import AsyncExitStack
from uuid import uuid4

from sanderling.acp.client.provider import ExternalProvider
from sanderling.agents.declared import DeclaredAgent
from sanderling.conversation.conversation import Conversation, OneTurn
from sanderling.conversation.external.agent import ExternalAgent
from sanderling.conversation.external.turn import ExternalTurn
from sanderling.conversation.services import SessionServices
from sanderling.conversation.usage_report import guest_report
from sanderling.errors import ConfigError, ProviderError, SanderlingError, SessionError
from sanderling.protocol import requests
from sanderling.protocol.actions import (
    Action,
    Compact,
    NoteUsage,
    Remember,
    Rewind,
    SetEffort,
    SetGuestOption,
    SetModel,
    SetRole,
    UndoCompaction,
)
from sanderling.protocol.events import ErrorOccurred, TurnEnded
from sanderling.protocol.messages import Prompt
from sanderling.protocol.modes import Mode

COMPACT = "compact"


class ExternalConversation(Conversation):
    """The conversation of a session with the external agent `declared`; `provider` represents it in the `services`."""

    def __init__(
        self,
        services: SessionServices,
        declared: DeclaredAgent,
        provider: ExternalProvider,
        resources: AsyncExitStack,
        *,
        is_eager: bool = True,
        mode: Mode | None = None,
    ) -> None:
        self.external = self.make_external(services, declared, provider)
        super().__init__(services, resources, is_eager=is_eager, mode=mode, external=declared.name)

    def make_external(
        self, services: SessionServices, declared: DeclaredAgent, provider: ExternalProvider
    ) -> ExternalAgent:
        return ExternalAgent(services, declared, provider)

    def act(self, action: Action) -> None:
        match action:
            case SetModel(model):
                self.services.tasks.start(self._set_option, "model", model)
            case SetEffort(effort, is_once=False):
                self.services.tasks.start(self._set_option, "effort", effort)
            case SetEffort():
                self.services.warn(f"{self.external.name} cannot change its effort for one turn.")
            case SetRole():
                self.services.warn(
                    f"Roles are for Sanderling's own agent, not for {self.external.name}."
                )
            case SetGuestOption(name, value):
                self.services.tasks.start(self._set_option, name, value)
            case Compact(focus):
                self._compact(focus)
            case Remember():
                self.services.warn(f"Ask {self.external.name} itself what to remember.")
            case NoteUsage():
                pass  # the agent reports its own usage
            case UndoCompaction():
                self.services.warn(f"{self.external.name} manages its own context.")
            case Rewind(prompt_id, what) if what != "files":
                self.services.warn(
                    f"{self.external.name} cannot rewind the conversation, only files."
                )
                if what == "both":
                    super().act(Rewind(prompt_id, "files"))
            case _:
                super().act(action)

    async def answer(self, request: requests.SessionRequest) -> requests.Answer:
        match request:
            case requests.ListModels():
                return await self._models()
            case requests.ListEfforts():
                return requests.Efforts(("default",))
            case requests.ListRoles():
                return requests.Roles()
            case requests.ShowUsage():
                usage = self.external.usage
                text = guest_report(
                    self.services.session.ledger,
                    name=self.external.name,
                    context_used=usage.used,
                    window=usage.window,
                    cost_usd=usage.cost_usd if usage.is_priced else None,
                )
                return requests.Report("Usage", text)
            case (
                requests.TestProvider(provider="")
                | requests.TestProvider(provider=self.external.declared.name)
            ):
                raise SessionError(f"{self.external.name} is not a provider and cannot be tested")
            case _:
                return await super().answer(request)

    def make_turn(self) -> OneTurn:
        return ExternalTurn(self.external)

    def declare_servers(self) -> None:
        """Declare none: the external agent has tool servers of its own."""

    async def expanded(self, prompt: Prompt) -> Prompt:
        """Expand the prompt's slash command, unless it is one of the agent's."""
        word = prompt.text.split(maxsplit=1)[0] if prompt.text.strip() else ""
        if word.startswith("/") and any(
            word[1:] == each.name for each in self.services.agent_commands
        ):
            return prompt
        try:
            return await self.with_command(prompt)
        except ConfigError:  # the agent may know it
            return prompt

    async def _prepare(self) -> None:
        """Start the agent, and report a failure before the first prompt."""
        try:
            await self.external.get_ready()
        except ProviderError as error:
            if not self._turn:  # which reports it, too
                self.services.emit(ErrorOccurred(error.kind, error.message, error.remedy))
                self.services.emit(TurnEnded("error"))

    def _compact(self, focus: str) -> None:
        if any(each.name == COMPACT for each in self.services.agent_commands):
            self.submit(Prompt(uuid4().hex, f"/{COMPACT} {focus}".rstrip()))
        else:
            self.services.warn(f"{self.external.name} does not support compaction.")

    async def _models(self) -> requests.Models:
        await self.external.link.ready()
        option = self.external.link.options.of_category("model")
        if option is None:
            raise SessionError(f"{self.external.name} does not support choosing a model")
        notes = {
            each.value: each.title if not each.description else f"{each.title}: {each.description}"
            for each in option.choices
        }
        return requests.Models(tuple(notes), notes)

    async def _set_option(self, name: str, value: str) -> None:
        try:
            await self.external.link.set_option(name, value)
        except SanderlingError as error:
            self.services.warn(f"Nothing changed: {error}.".replace("..", "."))
