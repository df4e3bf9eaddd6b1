"""The messages of the Agent Client Protocol: what we write is what the official schema knows, what comes is read as it is meant."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.acp.agent.notices import sentence_of
from sanderling.acp.agent.prompts import prompt_of
from sanderling.acp.agent.tracked_prompts import TrackedPrompts
from sanderling.acp.wire import asking, sessions, setup, updates
from sanderling.acp.wire.base import EMPTY, Empty, Implementation, Wire
from sanderling.acp.wire.config_options import ConfigChoice, ConfigOption, SessionMode, SessionModes
from sanderling.acp.wire.content import (
    Annotations,
    ContentBlock,
    Location,
    Resource,
    ToolContent,
    shown_diff,
    shown_terminal,
    shown_text,
    text_block,
)
from sanderling.acp.wire.envelope import decoded
from sanderling.acp.wire.errors import RpcError
from sanderling.acp.wire.updates import IncomingUpdate, SessionNotification, update_of
from sanderling.acp.wire.versions import check_agents, offered_by_agent
from sanderling.protocol.events import GuardActed
from sanderling.protocol.messages import Prompt
from tests.acp.schema import check, definition
from tests.conftest import examples

BLOCKS = [
    text_block("hello"),
    ContentBlock(type="image", data="aGk=", mime_type="image/png"),
    ContentBlock(type="audio", data="aGk=", mime_type="audio/wav"),
    ContentBlock(type="resource_link", uri="file:///a.py", name="a.py", size=3),
    ContentBlock(type="resource", resource=Resource(uri="file:///a.py", text="x = 1")),
    ContentBlock(type="resource", resource=Resource(uri="file:///a.bin", blob="aGk=")),
    ContentBlock(type="text", text="", annotations=Annotations(audience=["user"], priority=1.0)),
]
OPTIONS = [
    ConfigOption(
        id="model",
        name="Model",
        type="select",
        category="model",
        current_value="a",
        options=[ConfigChoice(value="a", name="A", description="the first")],
    ),
    ConfigOption(
        id="grouped",
        name="Grouped",
        type="select",
        current_value="a",
        options=[ConfigChoice(group="g", name="G", options=[ConfigChoice(value="a", name="A")])],
    ),
    ConfigOption(id="fast", name="Fast", type="boolean", current_value=False),
]
MODES = SessionModes(current_mode_id="ask", available_modes=[SessionMode(id="ask", name="Ask")])
FIELDS = {
    "title": "Run pytest",
    "kind": "execute",
    "status": "pending",
    "name": "bash",
    "content": [
        shown_text("x"),
        shown_diff("/a", None, "x"),
        shown_diff("/a", "", "y"),
        shown_terminal("t"),
    ],
    "locations": [Location(path="/a", line=3), Location(path="/b")],
    "raw_input": {"command": "pytest"},
    "raw_output": ["x"],
    "meta": {"theirs": 1},
}
UPDATES: list[updates.SessionUpdate] = [
    *(updates.UserMessageChunk(content=block, message_id="m") for block in BLOCKS),
    updates.AgentMessageChunk(content=BLOCKS[0]),
    updates.AgentThoughtChunk(content=BLOCKS[0], message_id="m"),
    updates.ToolCall(tool_call_id="t", **FIELDS),
    updates.ToolCall(tool_call_id="t", title=""),
    updates.ToolCallUpdate(tool_call_id="t", **FIELDS),
    updates.ToolCallUpdate(tool_call_id="t", content=[]),
    updates.Plan(entries=[]),
    updates.Plan(entries=[updates.PlanEntry(content="x", priority="high", status="pending")]),
    updates.AvailableCommandsUpdate(available_commands=[]),
    updates.AvailableCommandsUpdate(
        available_commands=[
            updates.AvailableCommand(name="a", description="b"),
            updates.AvailableCommand(name="a", description="", input=updates.CommandInput(hint="")),
        ]
    ),
    updates.CurrentModeUpdate(current_mode_id="plan"),
    updates.ConfigOptionUpdate(config_options=OPTIONS),
    updates.SessionInfoUpdate(title="T", updated_at="2026-11-23T00:00:00Z"),
    updates.SessionInfoUpdate(title=None),
    updates.UsageUpdate(used=0, size=0),
    updates.UsageUpdate(used=1, size=2, cost=updates.Cost(amount=0.5, currency="USD")),
    updates.Notice(severity="warning", title="Look", description="there"),
    updates.CompactionUpdate(compaction_id="c", status="completed", summary=[BLOCKS[0]]),
    updates.CompactionSummaryChunk(compaction_id="c", content=BLOCKS[0]),
]
SERVERS = [
    sessions.McpServer(
        name="a", command="/bin/a", args=["-x"], env=[sessions.Pair(name="A", value="1")]
    ),
    sessions.McpServer(name="b", type="http", url="https://b", headers=[]),
]
MESSAGES: list[tuple[str, Wire]] = [
    (
        "InitializeRequest",
        setup.InitializeRequest(
            protocol_version=1,
            client_capabilities=setup.ClientCapabilities(
                fs=setup.FileCapabilities(read_text_file=True, write_text_file=True),
                terminal=True,
                session=setup.ClientSessionCapabilities(
                    config_options=setup.BooleanOptions(boolean=EMPTY),
                    notices=EMPTY,
                    compaction=EMPTY,
                ),
                elicitation=setup.ElicitationCapabilities(form=EMPTY, url=EMPTY),
                auth=setup.AuthCapabilities(terminal=True),
            ),
            client_info=Implementation(name="a", version="1", title="A"),
        ),
    ),
    ("InitializeRequest", setup.InitializeRequest(protocol_version=1)),
    (
        "InitializeResponse",
        setup.InitializeResponse(
            protocol_version=1,
            agent_capabilities=setup.AgentCapabilities(
                load_session=True,
                prompt_capabilities=setup.PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=setup.McpCapabilities(http=True),
                session_capabilities=setup.SessionCapabilities(
                    list=EMPTY,
                    resume=EMPTY,
                    close=EMPTY,
                    delete=EMPTY,
                    additional_directories=EMPTY,
                ),
                auth=setup.LogoutCapabilities(logout=EMPTY),
            ),
            agent_info=Implementation(name="a", version="1"),
            auth_methods=[
                setup.AuthMethod(id="a", name="A"),
                setup.AuthMethod(id="b", name="B", type="terminal", args=["login"], env={"A": "1"}),
            ],
        ),
    ),
    ("AuthenticateRequest", setup.AuthenticateRequest(method_id="a")),
    ("NewSessionRequest", sessions.NewSessionRequest(cwd="/", mcp_servers=[])),
    (
        "NewSessionRequest",
        sessions.NewSessionRequest(cwd="/", mcp_servers=SERVERS, additional_directories=["/x"]),
    ),
    (
        "NewSessionResponse",
        sessions.NewSessionResponse(session_id="s", modes=MODES, config_options=OPTIONS),
    ),
    ("LoadSessionRequest", sessions.OldSessionRequest(session_id="s", cwd="/", mcp_servers=[])),
    ("ResumeSessionRequest", sessions.OldSessionRequest(session_id="s", cwd="/")),
    ("LoadSessionResponse", sessions.OldSessionResponse(modes=MODES)),
    ("ListSessionsRequest", sessions.ListSessionsRequest(cwd="/", cursor="5")),
    (
        "ListSessionsResponse",
        sessions.ListSessionsResponse(
            sessions=[sessions.SessionInfo(session_id="s", cwd="/", title="T", updated_at="now")]
        ),
    ),
    ("PromptRequest", sessions.PromptRequest(session_id="s", prompt=BLOCKS)),
    ("PromptResponse", sessions.PromptResponse(stop_reason="end_turn")),
    ("CancelNotification", sessions.SessionRequest(session_id="s")),
    ("SetSessionModeRequest", sessions.SetModeRequest(session_id="s", mode_id="m")),
    (
        "SetSessionConfigOptionRequest",
        sessions.SetConfigOptionRequest(session_id="s", config_id="c", value=True, type="boolean"),
    ),
    (
        "SetSessionConfigOptionRequest",
        sessions.SetConfigOptionRequest(session_id="s", config_id="c", value="v"),
    ),
    ("SetSessionConfigOptionResponse", sessions.SetConfigOptionResponse(config_options=[])),
    (
        "RequestPermissionRequest",
        asking.PermissionRequest(
            session_id="s",
            tool_call=updates.ToolCallFields(tool_call_id="t", **FIELDS),
            options=[asking.PermissionOption(option_id="a", name="A", kind="allow_once")],
        ),
    ),
    (
        "RequestPermissionResponse",
        asking.PermissionResponse(outcome=asking.PermissionOutcome(outcome="cancelled")),
    ),
    (
        "RequestPermissionResponse",
        asking.PermissionResponse(
            outcome=asking.PermissionOutcome(outcome="selected", option_id="a")
        ),
    ),
    ("ReadTextFileRequest", asking.ReadTextFileRequest(session_id="s", path="/a", line=1, limit=2)),
    ("ReadTextFileResponse", asking.ReadTextFileResponse(content="")),
    ("WriteTextFileRequest", asking.WriteTextFileRequest(session_id="s", path="/a", content="")),
    ("WriteTextFileResponse", EMPTY),
    (
        "CreateTerminalRequest",
        asking.CreateTerminalRequest(
            session_id="s", command="ls", args=[], env=[], cwd="/", output_byte_limit=5
        ),
    ),
    ("CreateTerminalResponse", asking.CreateTerminalResponse(terminal_id="t")),
    ("TerminalOutputRequest", asking.TerminalRequest(session_id="s", terminal_id="t")),
    (
        "TerminalOutputResponse",
        asking.TerminalOutputResponse(
            output="", truncated=False, exit_status=asking.ExitStatus(exit_code=0)
        ),
    ),
    ("WaitForTerminalExitResponse", asking.ExitStatus(signal="SIGTERM")),
    (
        "CreateElicitationRequest",
        asking.ElicitationRequest(
            message="?",
            mode="form",
            session_id="s",
            requested_schema={"type": "object", "properties": {"a": {"type": "string"}}},
        ),
    ),
    (
        "CreateElicitationRequest",
        asking.ElicitationRequest(
            message="?", mode="url", session_id="s", url="https://a", elicitation_id="e"
        ),
    ),
    ("CreateElicitationResponse", asking.ElicitationResponse(action="accept", content={"a": "b"})),
    ("CreateElicitationResponse", asking.ElicitationResponse(action="cancel")),
    *(
        ("SessionNotification", SessionNotification(session_id="s", update=each))
        for each in UPDATES
    ),
]

ALONE = [
    (setup.InitializeRequest, "InitializeRequest"),
    (setup.InitializeResponse, "InitializeResponse"),
    (setup.ClientCapabilities, "ClientCapabilities"),
    (setup.FileCapabilities, "FileSystemCapabilities"),
    (setup.ClientSessionCapabilities, "ClientSessionCapabilities"),
    (setup.ElicitationCapabilities, "ElicitationCapabilities"),
    (setup.AgentCapabilities, "AgentCapabilities"),
    (setup.PromptCapabilities, "PromptCapabilities"),
    (setup.SessionCapabilities, "SessionCapabilities"),
    (setup.AuthMethod, "AuthMethodTerminal"),
    (sessions.NewSessionRequest, "NewSessionRequest"),
    (sessions.NewSessionResponse, "NewSessionResponse"),
    (sessions.OldSessionRequest, "LoadSessionRequest"),
    (sessions.OldSessionResponse, "LoadSessionResponse"),
    (sessions.ListSessionsRequest, "ListSessionsRequest"),
    (sessions.ListSessionsResponse, "ListSessionsResponse"),
    (sessions.SessionInfo, "SessionInfo"),
    (sessions.PromptRequest, "PromptRequest"),
    (sessions.McpServer, "McpServerStdio"),
    (sessions.McpServer, "McpServerHttp"),
    (sessions.SetConfigOptionResponse, "SetSessionConfigOptionResponse"),
    (ConfigOption, "SessionConfigOption"),
    (ConfigOption, "SessionConfigSelect"),
    (ConfigChoice, "SessionConfigSelectOption"),
    (ConfigChoice, "SessionConfigSelectGroup"),
    (SessionMode, "SessionMode"),
    (SessionModes, "SessionModeState"),
    (ContentBlock, "TextContent"),
    (ContentBlock, "ResourceLink"),
    (ContentBlock, "EmbeddedResource"),
    (Annotations, "Annotations"),
    (Resource, "TextResourceContents"),
    (Resource, "BlobResourceContents"),
    (ToolContent, "Content"),
    (ToolContent, "Diff"),
    (ToolContent, "Terminal"),
    (Location, "ToolCallLocation"),
    (asking.PermissionRequest, "RequestPermissionRequest"),
    (asking.PermissionOutcome, "SelectedPermissionOutcome"),
    (asking.ReadTextFileRequest, "ReadTextFileRequest"),
    (asking.CreateTerminalRequest, "CreateTerminalRequest"),
    (asking.TerminalOutputResponse, "TerminalOutputResponse"),
    (asking.ExitStatus, "TerminalExitStatus"),
    (asking.ElicitationRequest, "ElicitationFormMode"),
    (asking.ElicitationRequest, "ElicitationUrlMode"),
    (asking.ElicitationRequest, "ElicitationSessionScope"),
    (asking.ElicitationRequest, "ElicitationRequestScope"),
    (asking.ElicitationResponse, "ElicitationAcceptAction"),
    (updates.ToolCall, "ToolCall"),
    (updates.ToolCallUpdate, "ToolCallUpdate"),
    (updates.Plan, "Plan"),
    (updates.AvailableCommand, "AvailableCommand"),
    (updates.AvailableCommandsUpdate, "AvailableCommandsUpdate"),
    (updates.ConfigOptionUpdate, "ConfigOptionUpdate"),
    (updates.SessionInfoUpdate, "SessionInfoUpdate"),
    (updates.UsageUpdate, "UsageUpdate"),
    (updates.Notice, "Notice"),
    (updates.CompactionUpdate, "CompactionUpdate"),
    (updates.AgentMessageChunk, "ContentChunk"),
]


@pytest.mark.parametrize(
    "kind, message", MESSAGES, ids=lambda it: it if isinstance(it, str) else ""
)
def test_what_is_written_is_what_the_schema_knows(kind, message):
    data = msgspec.json.encode(message)
    check(kind, msgspec.json.decode(data))
    assert b"null" not in data or b'"title":null' in data
    assert msgspec.json.decode(data, type=type(message)) == message


def test_the_judge_knows_what_is_wrong():
    with pytest.raises(AssertionError, match="no PromptResponse"):
        check("PromptResponse", {"stopReason": "because"})


@pytest.mark.parametrize("update", UPDATES)
def test_an_update_that_comes_is_read_by_its_kind(update):
    data = msgspec.json.encode(SessionNotification(session_id="s", update=update))
    incoming = msgspec.json.decode(data, type=IncomingUpdate)
    assert update_of(incoming.update) == update


@pytest.mark.parametrize(
    "update, kind",
    [
        ({"sessionUpdate": "subagent_update", "x": [1]}, "subagent_update"),
        ({"sessionUpdate": "state_update"}, "state_update"),
        ({}, ""),
    ],
)
def test_an_update_of_a_kind_that_is_not_known_is_its_name(update, kind):
    assert update_of(msgspec.Raw(msgspec.json.encode(update))) == kind


@pytest.mark.parametrize(
    "update",
    [
        {"sessionUpdate": "tool_call"},
        {"sessionUpdate": 5},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": 5}},
        [],
        "plan",
    ],
)
def test_an_update_that_is_malformed_is_refused(update):
    with pytest.raises(RpcError):
        update_of(msgspec.Raw(msgspec.json.encode(update)))


def test_what_a_later_schema_adds_is_passed_over_and_null_says_nothing():
    update: Any = {
        "sessionUpdate": "tool_call",
        "toolCallId": "t",
        "title": "T",
        "kind": "teleport",
        "status": None,
        "content": [{"type": "hologram", "text": "x", "more": 1}],
        "later": {},
    }
    read = update_of(msgspec.Raw(msgspec.json.encode(update)))
    assert isinstance(read, updates.ToolCall)
    assert (read.kind, read.status, read.content and read.content[0].type) == (
        "teleport",
        None,
        "hologram",
    )


def _read(kind, message):
    return decoded(msgspec.Raw(msgspec.json.encode(message)), kind)


def test_what_may_be_missing_and_cannot_be_understood_is_left_out():
    read = _read(
        setup.InitializeRequest,
        {
            "protocolVersion": 1,
            "clientInfo": {"name": "editor", "version": 1},
            "clientCapabilities": {"terminal": "yes", "fs": {"readTextFile": True}, "auth": []},
            "_meta": "none",
        },
    )
    files = setup.FileCapabilities(read_text_file=True)
    can = setup.ClientCapabilities(fs=files)
    editor = Implementation(name="editor")
    assert read == setup.InitializeRequest(
        protocol_version=1, client_capabilities=can, client_info=editor
    )


def test_items_that_cannot_be_understood_are_passed_over():
    known = {"id": "m", "name": "M", "type": "boolean", "currentValue": True, "description": 5}
    told = {"sessionId": "s", "configOptions": [{"id": "t", "currentValue": 0.5}, known]}
    read = _read(sessions.NewSessionResponse, told)
    option = ConfigOption(id="m", name="M", type="boolean", current_value=True)
    assert read.config_options == [option]
    commands = [{"name": 5}, {"name": "go", "description": "", "input": {"form": {}}}]
    read = _read(updates.AvailableCommandsUpdate, {"availableCommands": commands})
    assert read.available_commands == [updates.AvailableCommand(name="go", description="")]


@pytest.mark.parametrize(
    "kind, message",
    [
        (sessions.NewSessionRequest, {"cwd": "/", "mcpServers": [{"name": "x", "args": 5}]}),
        (sessions.NewSessionRequest, {"cwd": "/", "additionalDirectories": "/tmp"}),
        (asking.CreateTerminalRequest, {"sessionId": "s", "command": "rm", "args": ["-i", 5]}),
        (
            asking.PermissionRequest,
            {"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [{}]},
        ),
        (sessions.PromptRequest, {"sessionId": "s", "prompt": [{"type": "text", "text": "x"}, 5]}),
    ],
)
def test_what_is_asked_for_is_never_half_understood(kind, message):
    with pytest.raises(RpcError):
        _read(kind, message)


@pytest.mark.parametrize("kind, name", ALONE, ids=lambda it: it if isinstance(it, str) else "")
def test_what_may_be_left_out_is_what_the_schema_says(kind, name):
    told = definition(name)["properties"]
    ours = {it.encode_name: it for it in msgspec.structs.fields(kind) if it.name != "meta"}
    for each in ours.keys() & told.keys():
        is_lenient = told[each].get("x-deserialize-default-on-error", False)
        if not ours[each].required or "list[" in str(ours[each].type):
            assert (ours[each].name not in kind.exact) == is_lenient, each


@given(st.integers(-5, 1_000_000))
@settings(max_examples=examples(50))
def test_an_agent_answers_with_a_version_that_it_speaks(version):
    assert offered_by_agent(version) == 1


def test_a_client_goes_on_with_a_version_that_it_speaks_alone():
    check_agents(1)
    with pytest.raises(RpcError, match=r"version 2 .* version 1"):
        check_agents(2)


def test_nothing_says_nothing():
    assert msgspec.json.encode(Empty()) == b"{}"


@pytest.mark.parametrize(
    "uri, words",
    [
        ("file:///p/x.py", "x.py"),
        ("file:///p/x.py#L10:12", "x.py:10-12"),
        ("file:///p/x.py?symbol=f#L10:12", "x.py:10-12"),
        ("file:///p/a%20b.py#L10", "a b.py:10"),
        ("file:///p/x.py#L10-L12", "x.py:10-12"),
        ("file:///p/x.py#L10C5-L12C3", "x.py:10-12"),
        ("file:///p/x.py#10-12", "x.py:10-12"),
        ("file:///p/x.py#L12:12", "x.py:12"),
        ("file:///p/x.py#L0", "x.py"),
        ("file:///p/x.py#section2", "x.py"),
        ("file:///elsewhere/x.py#L3", "/elsewhere/x.py:3"),
        ("https://example.org/x#L3", "https://example.org/x#L3"),
    ],
)
def test_a_link_keeps_its_lines(uri, words):
    link = ContentBlock(type="resource_link", uri=uri, name="x.py")
    assert prompt_of([link], "/p").text == words


def test_an_embedded_file_keeps_its_lines():
    resource = Resource(uri="file:///p/x.py?symbol=f#L10:11", text="a\nb\n")
    prompt = prompt_of([ContentBlock(type="resource", resource=resource)], "/p")
    [selection] = prompt.selections
    assert (prompt.text, selection.first_line, selection.last_line) == ("x.py", 10, 11)


# --- sentences beside the answer ----------------------------------------------------------------------------------------


def test_what_the_guard_has_done_is_a_sentence():
    moved = GuardActed("quarantined", ".envrc", "was written by a command", "/kept/.envrc")
    assert sentence_of(moved) == (
        "warning",
        "The sandbox undid a change: .envrc (was written by a command). What was written is kept at /kept/.envrc.",
    )
    new = GuardActed("noticed", "{x}", "is new, and may run something")
    assert sentence_of(new) == ("warning", "Look at {x}: it is new, and may run something.")


def test_what_the_host_itself_replaced_is_not_told():
    assert sentence_of(GuardActed("replaced", ".git/commondir", "was replaced by the host")) is None


# --- what counts as going on --------------------------------------------------------------------------------------------


def test_a_turn_goes_on_whoever_has_asked_for_it():
    prompts = TrackedPrompts()
    prompts.reserve("asked")
    assert prompts.begin(Prompt("asked", "first"))
    prompts.end("end_turn")
    prompts.release()
    assert not prompts.is_in_turn
    assert not prompts.begin(Prompt("waited", "second"))
    assert prompts.now is None
    assert prompts.is_in_turn
    prompts.end("end_turn")
    assert not prompts.is_in_turn
