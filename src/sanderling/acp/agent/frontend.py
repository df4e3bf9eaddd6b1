"""The agent side of a connection: handlers for the ACP methods that a client can call."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from anyio import to_thread
from msgspec.structs import replace

import sanderling
from sanderling.acp.agent import auth
from sanderling.acp.agent.clients import Client
from sanderling.acp.agent.live import AgentSession
from sanderling.acp.agent.own_sessions import Sessions
from sanderling.acp.agent.prompts import prompt_of
from sanderling.acp.agent.tracked_prompts import TrackedPrompt
from sanderling.acp.wire.base import EMPTY, Implementation, Wire
from sanderling.acp.wire.connection import AcpConnection, Method
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import INTERNAL_ERROR, INVALID_REQUEST, RpcError, invalid, not_found
from sanderling.acp.wire.ours import (
    CHANGE_RULE,
    LIST_RULES,
    OfPrompt,
    RuleChange,
    RuleLine,
    RulesAnswer,
    meta_of,
    ours_in,
)
from sanderling.acp.wire.sessions import (
    ListSessionsRequest,
    ListSessionsResponse,
    NewSessionRequest,
    NewSessionResponse,
    OldSessionRequest,
    OldSessionResponse,
    PromptRequest,
    PromptResponse,
    SessionInfo,
    SessionRequest,
    SetConfigOptionRequest,
    SetConfigOptionResponse,
    SetModeRequest,
    TokenUsage,
)
from sanderling.acp.wire.setup import (
    AgentCapabilities,
    AuthenticateRequest,
    InitializeRequest,
    InitializeResponse,
    LogoutCapabilities,
    McpCapabilities,
    PromptCapabilities,
    SessionCapabilities,
    offered_by_agent,
)
from sanderling.config.layers import Layers
from sanderling.errors import ConfigError, SanderlingError
from sanderling.protocol.messages import Usage
from sanderling.session.ledger import prompt_tokens
from sanderling.session.records import is_session_id

PAGE = 50
MAX_CURSOR_CHARS = 10
CAPABILITIES = AgentCapabilities(
    load_session=True,
    prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
    mcp_capabilities=McpCapabilities(http=True),
    session_capabilities=SessionCapabilities(
        list=EMPTY, resume=EMPTY, close=EMPTY, delete=EMPTY, additional_directories=EMPTY
    ),
    auth=LogoutCapabilities(logout=EMPTY),
)


class AgentFrontend:
    """Handles a client's requests. `layers` returns the current settings, `sessions` holds the client's open sessions."""

    def __init__(self, layers: Callable[[], Layers], sessions: Sessions) -> None:
        self._layers = layers
        self._sessions = sessions
        self._is_initialized = False
        self._connection: AcpConnection | None = None

    def connect(self, connection: AcpConnection) -> None:
        self._connection = connection

    def methods(self) -> Mapping[str, Method]:
        answered: dict[str, Callable[[Any], Awaitable[Wire]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "logout": self._log_out,
            "session/new": self._new,
            "session/load": partial(self._open_again, is_told=True),
            "session/resume": partial(self._open_again, is_told=False),
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
            LIST_RULES: self._list_rules,
        }
        methods = {name: Method(_translated(handle)) for name, handle in answered.items()}
        prompt = Method(_translated(self._prompt), self._reserve, self._cancel)
        return methods | {"session/prompt": prompt}

    def notifications(self) -> Mapping[str, Callable[[msgspec.Raw], None]]:
        return {"session/cancel": self._cancel, CHANGE_RULE: self._change_rule}

    # --- setting up ----------------------------------------------------------------------------------------------------

    async def _initialize(self, params: msgspec.Raw) -> Wire:
        request = decoded(params, InitializeRequest)
        assert self._connection
        client, self._is_initialized = Client(request), True
        self._sessions.begin(self._connection, client)
        meta = meta_of(self._sessions.of_agent)
        return InitializeResponse(
            protocol_version=offered_by_agent(request.protocol_version),
            agent_capabilities=replace(CAPABILITIES, meta=meta),
            agent_info=Implementation(
                name="sanderling", title="Sanderling", version=sanderling.__version__
            ),
            auth_methods=auth.methods(client, self._layers),
        )

    async def _authenticate(self, params: msgspec.Raw) -> Wire:
        request = decoded(params, AuthenticateRequest)
        await auth.authenticate(request.method_id, self._layers().settings())
        return EMPTY

    async def _log_out(self, _: msgspec.Raw) -> Wire:
        await auth.log_out(self._layers().settings())
        return EMPTY

    # --- sessions ------------------------------------------------------------------------------------------------------

    async def _new(self, params: msgspec.Raw) -> Wire:
        self._check_initialized()
        live, meta = await self._sessions.new(decoded(params, NewSessionRequest))
        return NewSessionResponse(
            session_id=live.id,
            modes=live.options.shown_modes(),
            config_options=live.options.shown(),
            meta=meta,
        )

    async def _open_again(self, params: msgspec.Raw, *, is_told: bool) -> Wire:
        self._check_initialized()
        request = decoded(params, OldSessionRequest)
        live, meta = await self._sessions.again(request, is_told=is_told)
        options = live.options
        return OldSessionResponse(
            modes=options.shown_modes(), config_options=options.shown(), meta=meta
        )

    def _check_initialized(self) -> None:
        if not self._is_initialized:
            raise RpcError(INVALID_REQUEST, "send `initialize` first")

    async def _list(self, params: msgspec.Raw) -> Wire:
        from sanderling.session.store import list_sessions

        request = decoded(params, ListSessionsRequest)
        start = _place_of(request.cursor)
        directory = self._layers().settings().session_dir
        found = await to_thread.run_sync(
            lambda: list_sessions(directory, request.cwd or "", "", is_in_editor=True)
        )
        page = found[start : start + PAGE]
        shown = [
            SessionInfo(
                session_id=each.id,
                cwd=each.project,
                title=each.title or None,
                updated_at=datetime.fromtimestamp(each.changed_at, UTC).isoformat(
                    timespec="seconds"
                ),
                meta=meta_of(parent=each.parent) if each.parent else None,
            )
            for each in page
        ]
        is_last = start + PAGE >= len(found)
        return ListSessionsResponse(
            sessions=shown, next_cursor=None if is_last else str(start + PAGE)
        )

    async def _close(self, params: msgspec.Raw) -> Wire:
        request = decoded(params, SessionRequest)
        self._live(request.session_id)
        await self._sessions.close(request.session_id)
        return EMPTY

    async def _delete(self, params: msgspec.Raw) -> Wire:
        from sanderling.session.store import delete

        session_id = decoded(params, SessionRequest).session_id
        await self._sessions.close(session_id, is_for_all=True)
        directory = self._layers().settings().session_dir
        if is_session_id(session_id) and (directory / f"{session_id}.jsonl").is_file():
            await to_thread.run_sync(delete, directory, session_id)
        return EMPTY

    def _live(self, session_id: str) -> AgentSession:
        if live := self._sessions.find(session_id):
            return live
        raise not_found(f"the session {session_id!r} is not open")

    # --- turns ---------------------------------------------------------------------------------------------------------

    def _reserve(self, params: msgspec.Raw) -> None:
        request = decoded(params, SessionRequest)
        prompt_id = ours_in(request.meta, OfPrompt).prompt_id
        self._live(request.session_id).prompts.reserve(prompt_id)

    async def _prompt(self, params: msgspec.Raw) -> Wire:
        said = decoded(params, SessionRequest)
        live, ours = self._live(said.session_id), ours_in(said.meta, OfPrompt)
        request = live.prompts.find(ours.prompt_id) or live.prompts.now
        if request is None:
            raise RpcError(INVALID_REQUEST, "this prompt was already refused")
        if request.is_submitted:
            if request.is_accepted:
                live.accept(request)
        elif ours.was_accepted and ours.prompt_id not in live.prompts.waiting:
            live.prompts.release()  # it was running when an earlier process ended; its outcome is unknown
            return PromptResponse(stop_reason="cancelled")
        else:
            self._submit(live, params, ours)
        await request.done.wait()
        await self._sessions.has_told(live)
        return PromptResponse(stop_reason=request.result(), usage=_usage_of(request))

    def _submit(self, live: AgentSession, params: msgspec.Raw, ours: OfPrompt) -> None:
        try:
            request = decoded(params, PromptRequest)
            prompt = prompt_of(request.prompt, live.project, ours.prompt_id)
            self._sessions.sends(live, prompt.id, ours.notes)
            live.submit(prompt)
        except RpcError:
            live.prompts.release()
            raise

    def _cancel(self, params: msgspec.Raw) -> None:
        if live := self._sessions.find(decoded(params, SessionRequest).session_id):
            live.cancel()

    async def _set_mode(self, params: msgspec.Raw) -> Wire:
        request = decoded(params, SetModeRequest)
        await self._live(request.session_id).set_option("mode", request.mode_id)
        return EMPTY

    async def _set_config_option(self, params: msgspec.Raw) -> Wire:
        request = decoded(params, SetConfigOptionRequest)
        options = await self._live(request.session_id).set_option(request.config_id, request.value)
        return SetConfigOptionResponse(config_options=options)

    # --- rules ---------------------------------------------------------------------------------------------------------

    async def _list_rules(self, params: msgspec.Raw) -> Wire:
        page = await self._live(decoded(params, SessionRequest).session_id).rules()
        lines = [
            RuleLine(rule=each.rule, origin=each.origin, last_use=each.last_use, kind=each.kind)
            for each in page.rules
        ]
        return RulesAnswer(rules=lines, problem=page.problem)

    def _change_rule(self, params: msgspec.Raw) -> None:
        change = decoded(params, RuleChange)
        if live := self._sessions.find(change.session_id):
            live.change_rule(change.rule, change.new)


def _place_of(cursor: str | None) -> int:
    """Return the list offset that a cursor of session/list encodes."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < MAX_CURSOR_CHARS):
        raise invalid(f"{cursor[:20]!r} is not a cursor of session/list")
    return int(cursor)


def _usage_of(request: TrackedPrompt) -> TokenUsage | None:
    """Return the tokens of a turn; None without any, or if it was cancelled: a request that was cut off does not report its tokens."""
    usage = request.usage
    if usage == Usage() or request.outcome == "cancelled":
        return None
    taken = prompt_tokens(usage)
    return TokenUsage(
        total_tokens=taken + usage.output_tokens,
        input_tokens=taken,
        output_tokens=usage.output_tokens,
        cached_read_tokens=usage.cache_read_input_tokens,
        cached_write_tokens=usage.cache_creation_input_tokens,
    )


def _translated(
    handle: Callable[[msgspec.Raw], Awaitable[Wire]],
) -> Callable[[msgspec.Raw], Awaitable[Wire]]:
    """Wrap `handle` so that Sanderling's errors become JSON-RPC errors."""

    async def translated(params: msgspec.Raw) -> Wire:
        try:
            return await handle(params)
        except RpcError:
            raise
        except ConfigError as error:
            raise invalid(str(error)) from error
        except SanderlingError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error

    return translated
