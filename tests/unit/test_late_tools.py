"""Tools that come after the first request: a system message adds them, so that the API's cache of what is before stays valid."""

import msgspec
import pytest
from tests.loopback import LoopbackServer, Reply, Status, done, message_start, text

from sanderling.config import Settings
from sanderling.protocol.messages import Message, TextBlock, ToolResult, ToolUse
from sanderling.providers import ModelRequest, ReplyDone, ToolSpec
from sanderling.providers.anthropic.late_tools import LateTools
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.choice import make_provider
from sanderling.providers.endpoint import load_endpoint

READ, LATE, LATER = (ToolSpec(name, "A tool.", {"type": "object"}) for name in "abc")
HELLO, GO_ON = (Message("user", (TextBlock(words),)) for words in ("Hello.", "Go on."))
HI = Message("assistant", (TextBlock("Hi."),))


@pytest.fixture
def encoder() -> RequestEncoder:
    made = RequestEncoder()
    made.late_tools = LateTools()
    return made


def sent(encoder, history, *tools):
    asked = ModelRequest("Help.", history, tools)
    return msgspec.json.decode(encoder.encode(asked, model="m", max_tokens=9, thinking=True))


def names(body):
    return [tool["name"] for tool in body["tools"]]


def added(body):
    """Where tools are added: the number of messages before, and the names."""
    return [
        (n, [block["tool"]["definition"]["name"] for block in message["content"]])
        for n, message in enumerate(body["messages"])
        if message["role"] == "system"
    ]


def test_a_late_tool_leaves_every_earlier_byte_and_stays_where_it_came(encoder):
    history = [HELLO]
    first = sent(encoder, history, READ)
    history += [HI, GO_ON]
    second = sent(encoder, history, READ, LATE)
    history += [HI, GO_ON]
    third = sent(encoder, history, READ, LATE, LATER)
    assert names(first) == names(second) == names(third) == ["a"]
    assert added(second) == [(3, ["b"])]
    assert added(third) == [(3, ["b"]), (6, ["c"])]
    for before, after in ((first, second), (second, third)):
        assert after["messages"][: len(before["messages"])] == before["messages"]
        assert (after["tools"], after["system"]) == (before["tools"], before["system"])
    [block] = second["messages"][-1]["content"]
    definition = {"name": "b", "description": "A tool.", "input_schema": {"type": "object"}}
    assert block == {
        "type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": definition},
    }


def test_each_addition_follows_a_message_of_the_user(encoder):
    use = Message("assistant", (ToolUse("t1", "a", {}),))
    result = Message("user", (ToolResult("t1", "x"),))
    sent(encoder, [HELLO], READ)
    body = sent(encoder, [HELLO, use, result], READ, LATE)
    body = sent(encoder, [HELLO, use, result, HI, GO_ON], READ, LATE)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "user", "system", "assistant", "user"]


def test_all_tools_begin_the_request_after_a_definition_has_changed(encoder):
    sent(encoder, [HELLO], READ)
    changed = msgspec.structs.replace(READ, description="Another.")
    body = sent(encoder, [HELLO, HI, GO_ON], changed, LATE)
    assert names(body) == ["a", "b"]
    assert body["tools"][0]["description"] == "Another."


@pytest.mark.parametrize("shortened", [[GO_ON], [HELLO]], ids=["summarized", "taken back"])
def test_all_tools_begin_the_request_of_a_conversation_that_was_shortened(encoder, shortened):
    sent(encoder, [HELLO], READ)
    sent(encoder, [HELLO, HI, GO_ON], READ, LATE)
    body = sent(encoder, shortened, READ, LATE)
    assert (names(body), added(body)) == (["a", "b"], [])
    again = sent(encoder, [*shortened, HI, GO_ON], READ, LATE, LATER)
    assert (names(again), added(again)) == (["a", "b"], [(3, ["c"])])


def test_many_late_tools_do_not_put_the_last_request_out_of_the_caches_sight(encoder):
    many = [ToolSpec(f"t{n}", "A tool.", {"type": "object"}) for n in range(30)]
    sent(encoder, [HELLO], READ)
    body = sent(encoder, [HELLO, HI, GO_ON], READ, *many)
    assert body["messages"][0]["content"][-1]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    "model, takes", [("claude-opus-5-5", True), ("claude-opus-4-6", False), ("claude-3-x", False)]
)
def test_only_models_that_take_late_tools_get_them(model, takes):
    assert load_endpoint("anthropic", {}).quirks_of(model).late_tools is takes


# --- a server ------------------------------------------------------------------------------------------------------------


class LateApi(LoopbackServer):
    """Knows the messages that add tools, or rejects them."""

    def __init__(self, *, takes: bool) -> None:
        super().__init__()
        self.takes = takes
        self.bodies: list[dict] = []
        self.betas: list[str] = []

    def answer_to(self, request):
        body = request.json()
        self.bodies.append(body)
        self.betas.append(request.headers.get("anthropic-beta", ""))
        if added(body) and not self.takes:
            return Status(400, message="messages.3.role: Input should be 'user' or 'assistant'")
        return Reply(message_start() + text("Done.") + done())


async def run(tmp_path, api, **quirks):
    own = {"wire": "anthropic", "base_url": api.url, "api_key": "$K", "quirks": quirks}
    provider = make_provider(Settings(str(tmp_path), model="mine:m", providers={"mine": own}))
    await provider.prepare()
    ends = []
    requests = (
        ([HELLO], (READ,)),
        ([HELLO, HI, GO_ON], (READ, LATE)),
        ([HELLO, HI, GO_ON, HI, GO_ON], (READ, LATE)),
    )
    for history, tools in requests:
        items = [item async for item in provider.stream(ModelRequest("Help.", history, tools))]
        ends += [item for item in items if isinstance(item, ReplyDone)]
    await provider.aclose()
    assert len(ends) == 3


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("K", "sk-test")
    monkeypatch.setenv("NO_PROXY", "*")


async def test_a_server_that_takes_late_tools_is_sent_them_with_the_beta(tmp_path):
    with LateApi(takes=True) as api:
        await run(tmp_path, api, late_tools=True)
    assert [added(body) for body in api.bodies] == [[], [(3, ["b"])], [(3, ["b"])]]
    assert ["inline-tools-2026-09-15" in beta for beta in api.betas] == [False, True, True]


async def test_a_server_that_rejects_them_is_asked_again_with_all_tools_at_the_beginning(tmp_path):
    with LateApi(takes=False) as api:
        await run(tmp_path, api, late_tools=True)
    assert [names(body) for body in api.bodies] == [["a"], ["a"], ["a", "b"], ["a", "b"]]
    assert [len(added(body)) for body in api.bodies] == [0, 1, 0, 0]


async def test_other_servers_of_this_wire_get_neither_the_messages_nor_the_beta(tmp_path):
    with LateApi(takes=False) as api:
        await run(tmp_path, api)
    assert [names(body) for body in api.bodies] == [["a"], ["a", "b"], ["a", "b"]]
    assert api.betas == ["", "", ""]
