"""Opening a conversation: settings, project, provider, policy, rules and session come together here, for every face."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from anyio import to_thread

from sanderling.config import Settings
from sanderling.config.layers import Layers
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.parts import Parts
from sanderling.errors import ConfigError
from sanderling.mcp import GRACE_S
from sanderling.permissions.rules import Rule
from sanderling.permissions.store import load_rules
from sanderling.project.project import Project
from sanderling.protocol.agent import Agent
from sanderling.protocol.events import Event, Notice
from sanderling.protocol.messages import StopReason
from sanderling.protocol.modes import Mode, NetworkMode
from sanderling.protocol.remedies import remedies
from sanderling.providers import Provider
from sanderling.providers.choice import DEFAULT, choose, make_provider
from sanderling.sandbox.confinement import policy_for
from sanderling.session.session import Session
from sanderling.tools.catalog import check_disabled
from sanderling.tools.editor import Editor

if TYPE_CHECKING:
    from sanderling.agents.declared import DeclaredAgent
    from sanderling.commands.shell import Elsewhere
    from sanderling.conversation.clients_tools import ClientsTools
    from sanderling.mcp.servers import McpServer
    from sanderling.providers.http.way import Way
    from sanderling.tools.code.servers import LanguageServers

NO_KEY_NOTICE = "There is no API key, so the demo model answers: it replays a script.\n{remedy}"


def _alone(provider: Provider, _project: str) -> Provider:
    return provider


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """
    The wishes of a face for a conversation. `mode` is for this time, whatever the session remembers.

    `is_shown`: what the session begins or goes on with is emitted while it opens, `has_history` with what was said last; and the
    demo model gets a project of its own. `wrap` has the last word on the provider for a project. `log_dir` is where the log is, if not
    with the other sessions', and `face` what a new one says of where it began. The first request waits `patience_s` at most for the
    tool servers of which a rule allows something. With `elsewhere` the sandbox is off, and commands run there. `agent` is the guest
    that answers in a new session; one that is resumed knows its own. `way` leads to models through somebody who has the keys. With `tools` nothing is done here: they are the client's.
    """

    mode: Mode | None = None
    network: NetworkMode = "off"
    rules: tuple[Rule, ...] = ()
    editor: Editor | None = None
    code: "LanguageServers | None" = None
    is_eager: bool = True
    is_shown: bool = False
    has_history: bool = False
    wrap: Callable[[Provider, str], Provider] = _alone
    log_dir: Path | None = None
    face: str = ""
    patience_s: float = GRACE_S
    agent: str = ""
    elsewhere: "Elsewhere | None" = None
    way: "Way | None" = None
    tools: "ClientsTools | None" = None


class Opened(NamedTuple):
    """
    An agent that is to be served now, and what its face has to know before.

    `ends` has the reasons why turns have ended, by their prompts' ids, those of now included; `waiting` the ids of prompts that wait.
    """

    agent: Agent
    model: str
    is_resumed: bool
    has_waiting: bool
    ends: Mapping[str, StopReason]
    waiting: frozenset[str]


async def open_conversation(
    session_id: str,
    project: str,
    layers: Layers,
    emit: Callable[[Event], None],
    wishes: Wishes,
) -> Opened:
    """
    Open the session `session_id` of `project`, a new one or one with a log.

    Raises:
        ConfigError: the settings, the person's or the project's, ask for what cannot be.
        SessionInUseError: another process has it open.
        SessionError: its log cannot be read.
    """
    resources = AsyncExitStack()
    try:
        own = layers.settings()
        log_dir = wishes.log_dir or own.session_dir
        # A long log takes a while to read.
        session = await to_thread.run_sync(Session.open, log_dir, session_id, project, wishes.face)
        resources.callback(session.close)
        if address := _address_of(session, wishes):
            conversation = _begin_remote(
                session, own, emit, wishes, resources=resources, address=address
            )
        else:
            conversation = _begin_here(session, own, layers, emit, wishes, resources=resources)
        if wishes.is_shown:
            await conversation.views.show_opened(has_history=wishes.has_history)
            _tell_of_demo(conversation)
    except BaseException:
        await resources.aclose()
        raise
    return _opened(conversation)


def _opened(conversation: Conversation) -> Opened:
    parts, session = conversation.parts, conversation.parts.session
    waiting = parts.waiting.shown()
    ids = frozenset(each.id for each in (*waiting.steering, *waiting.queued))
    return Opened(
        conversation, parts.provider.model, session.is_resumed, bool(ids), session.asked.ends, ids
    )


def _begin_here(
    session: Session,
    own: Settings,
    layers: Layers,
    emit: Callable[[Event], None],
    wishes: Wishes,
    *,
    resources: AsyncExitStack,
) -> Conversation:
    """Begin a session in the project, by its settings, too."""
    if wishes.tools:  # there may be a directory of that name here, which is none of theirs
        return _begin_for_client(session, own, emit, wishes, wishes.tools, resources=resources)
    place = Project(own, session.project)
    settings = place.settings(layers)
    try:
        if agent := _agent_of(session, wishes, settings):
            return _begin_guest(
                session, place, settings, emit, wishes, resources=resources, agent=agent
            )
        return _begin(session, place, settings, emit, wishes, resources=resources)
    except ConfigError as error:
        from sanderling.conversation.configuration import explained  # only for whoever erred

        raise explained(error, settings, session.project) from error


def _begin(
    session: Session,
    project: Project,
    settings: Settings,
    emit: Callable[[Event], None],
    wishes: Wishes,
    *,
    resources: AsyncExitStack,
) -> Conversation:
    check_disabled(settings.tools_disabled)
    policy = policy_for(settings, session.project)._replace(network=wishes.network)
    sample = ""
    # The demo model must not pass for an answer where nobody looks.
    fallback = "demo" if wishes.is_shown else DEFAULT
    if wishes.is_shown and choose(settings) == "demo":
        from sanderling.providers.scripted import copy_sample

        sample = copy_sample(resources)
        policy = policy._replace(write_paths=(*policy.write_paths, sample))
    provider = wishes.wrap(
        make_provider(settings, sample, fallback=fallback, way=wishes.way), session.project
    )
    resources.push_async_callback(provider.aclose)
    parts = Parts(
        session,
        provider,
        emit,
        policy,
        settings,
        project=project,
        rules=(*load_rules(settings.permissions, session.project), *wishes.rules),
        editor=wishes.editor,
        code=wishes.code,
        servers=_servers(settings),
        patience_s=wishes.patience_s,
    )
    resources.callback(parts.workspace.journal.close)
    if wishes.elsewhere:
        parts.workspace.shell.elsewhere = wishes.elsewhere
        parts.sandbox.switch(is_on=False)
    return Conversation(parts, resources, mode=wishes.mode, is_eager=wishes.is_eager)


def _begin_for_client(
    session: Session,
    settings: Settings,
    emit: Callable[[Event], None],
    wishes: Wishes,
    tools: "ClientsTools",
    *,
    resources: AsyncExitStack,
) -> Conversation:
    """Begin a session whose files and commands are its client's: nothing is read, run or changed here."""
    from sanderling.conversation.clients_tools import ClientsConversation, ClientsParts

    check_disabled(settings.tools_disabled)
    provider = make_provider(settings, fallback="demo")
    resources.push_async_callback(provider.aclose)
    project = Project(settings, f"{settings.state_dir}/elsewhere")
    policy = policy_for(settings, session.project)
    parts = ClientsParts(tools, session, provider, emit, policy, settings, project=project)
    resources.callback(parts.workspace.journal.close)
    return ClientsConversation(parts, resources, is_eager=wishes.is_eager)


def _address_of(session: Session, wishes: Wishes) -> str:
    """The address of the place where the session lives, if that is elsewhere."""
    name = _agent_name(session, wishes)
    if "://" not in name:
        return ""
    from sanderling.remote.address import is_address  # only for whoever works elsewhere

    return name if is_address(name) else ""


def _agent_name(session: Session, wishes: Wishes) -> str:
    kept: dict[str, Any] = session.state("agent") or {}
    return str(kept.get("name", "")) or ("" if session.is_resumed else wishes.agent)


def _agent_of(session: Session, wishes: Wishes, settings: Settings) -> "DeclaredAgent | None":
    """
    The guest that answers in the session, if one does.

    Raises:
        ConfigError: there is none of that name, or it is declared wrongly.
    """
    name = _agent_name(session, wishes)
    if not name:
        return None
    from sanderling.agents.declared import load_agent  # only for whoever wants another agent

    return load_agent(name, settings.agents)


def _begin_guest(
    session: Session,
    project: Project,
    settings: Settings,
    emit: Callable[[Event], None],
    wishes: Wishes,
    *,
    resources: AsyncExitStack,
    agent: "DeclaredAgent",
) -> Conversation:
    from sanderling.acp_client.provider import GuestProvider
    from sanderling.conversation.guest_conversation import GuestConversation
    from sanderling.conversation.guest_servers import with_servers

    if agent.servers:
        agent = with_servers(agent, settings)
    provider = GuestProvider(agent.name)
    policy = policy_for(settings, session.project)._replace(network=wishes.network)
    parts = Parts(
        session,
        provider,
        emit,
        policy,
        settings,
        project=project,
        rules=(*load_rules(settings.permissions, session.project), *wishes.rules),
        editor=wishes.editor,
    )
    resources.callback(parts.workspace.journal.close)
    return GuestConversation(
        parts, agent, provider, resources, is_eager=wishes.is_eager, mode=wishes.mode
    )


def _begin_remote(
    session: Session,
    settings: Settings,
    emit: Callable[[Event], None],
    wishes: Wishes,
    *,
    resources: AsyncExitStack,
    address: str,
) -> Conversation:
    """Begin a session that works elsewhere: nothing of the project here is read, run or changed."""
    from sanderling.acp_client.provider import GuestProvider
    from sanderling.conversation.remote_conversation import RemoteConversation
    from sanderling.remote.address import parse_address

    there = parse_address(address)
    provider = GuestProvider(there.title)
    parts = Parts(
        session,
        provider,
        emit,
        policy_for(settings, session.project)._replace(network=wishes.network),
        settings,
        project=Project(settings, f"{settings.state_dir}/elsewhere"),
        rules=(*load_rules(settings.permissions, session.project), *wishes.rules),
        editor=wishes.editor,
        code=wishes.code,
    )
    resources.callback(parts.workspace.journal.close)
    return RemoteConversation(parts, there, provider, resources, is_eager=wishes.is_eager)


def _servers(settings: Settings) -> "dict[str, McpServer]":
    if not settings.mcp_servers:  # then nothing of them is loaded
        return {}
    from sanderling.mcp.servers import load_servers

    return load_servers(settings.mcp_servers)


def _tell_of_demo(conversation: Conversation) -> None:
    settings = conversation.parts.settings
    if conversation.views.guest:
        return
    is_without_key = settings.provider == "auto" and choose(settings) == "demo"
    if is_without_key and not conversation.parts.session.is_resumed:
        conversation.parts.emit(Notice("info", NO_KEY_NOTICE.format(remedy=remedies().key)))
