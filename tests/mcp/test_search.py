"""Tools of which there are too many: they wait behind a search, and come last when they are found."""

import pytest

from sanderling.mcp.search import MAX_FOUND, MAX_SENT, ToolIndex
from sanderling.tools.base import Arguments, OutsideTool, Tool
from sanderling.tools.catalog import Catalog, OwnTools
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome
from tests.conftest import prove
from tests.mcp.talk import says, talking, uses
from tests.mcp.test_in_prompts import NOTES_SERVER


def made(name: str, told: str = "Does something.") -> OutsideTool:
    async def run(*_: object) -> Outcome:
        return Outcome(content="done")

    full = f"mcp__it__{name}"
    effect = Effect(full, "call")
    schema = {"type": "object", "properties": {}}
    return OutsideTool(
        full,
        Arguments,
        run,
        lambda *_: effect,
        lambda *_: "",
        remote_description=told,
        input_schema=schema,
    )


def names(tools: tuple[Tool, ...], *, is_waiting: bool = False) -> list[str]:
    return [
        each.name.removeprefix("mcp__it__")
        for each in tools
        if getattr(each, "is_waiting", False) is is_waiting
    ]


def test_a_few_tools_are_told_as_they_come():
    shelf = ToolIndex()
    shelf.put([made("b"), made("a")])
    shelf.put([made("c")])
    assert names(shelf.tools()) == ["b", "a", "c"]
    assert names(shelf.tools(), is_waiting=True) == []


def test_what_would_be_too_many_waits_and_what_was_told_stays():
    shelf = ToolIndex()
    shelf.put(made(f"early{number}") for number in range(5))
    shelf.put(made(f"late{number}") for number in range(MAX_SENT))
    shelf.put([made("last")])
    assert names(shelf.tools()) == [*(f"early{n}" for n in range(5)), "mcp_search"]
    assert len(names(shelf.tools(), is_waiting=True)) == MAX_SENT + 1


@pytest.mark.parametrize("window_tokens, is_told", [(0, True), (200_000, True), (8_000, False)])
def test_tools_that_fill_a_tenth_of_the_window_wait(window_tokens, is_told):
    shelf = ToolIndex(lambda: window_tokens)
    shelf.put([made("long", "x" * 4_000)])
    assert names(shelf.tools()) == (["long"] if is_told else ["mcp_search"])


@pytest.fixture
def shelf() -> ToolIndex:
    shelf = ToolIndex()
    shelf.put(made(f"other{number}", "Nothing of it.") for number in range(30))
    shelf.put(
        [
            made("create_issue", "Open a ticket in the tracker."),
            made("listIssues", "All tickets."),
            made("send_mail", "Mail about issues."),
        ]
    )
    return shelf


@pytest.mark.parametrize(
    "query, found",
    [
        ("create issue", ["create_issue", "listIssues", "send_mail"]),
        ("Issues", ["create_issue", "listIssues", "send_mail"]),
        ("ticket tracker", ["create_issue", "listIssues"]),
        ("mcp__it__send_mail", ["send_mail"]),
        ("nowhere", []),
        ("...", []),
    ],
)
def test_tools_are_found_by_the_words_of_names_and_descriptions(shelf, query, found):
    best = [each.name.removeprefix("mcp__it__") for each in shelf.find(query)]
    assert best[: len(found)] == found
    assert len(best) <= MAX_FOUND


def test_what_was_found_comes_last_and_is_found_again(shelf):
    shelf.find("mail")
    shelf.find("create")
    assert names(shelf.tools()) == ["mcp_search", "send_mail", "create_issue"]
    assert [each.name for each in shelf.find("mail")] == ["mcp__it__send_mail"]
    assert names(shelf.tools()) == ["mcp_search", "send_mail", "create_issue"]


async def test_the_catalog_tells_of_a_tool_when_it_is_found_and_knows_it_before(shelf):
    class Source:
        async def tools(self) -> tuple[Tool, ...]:
            return shelf.tools()

    catalog = Catalog(OwnTools(), Source())
    before = await catalog.so_far()
    assert before.specs[-1].name == "mcp_search"
    assert "mcp__it__create_issue" in before.by_name
    shelf.find("create")
    after = await catalog.so_far()
    assert after.specs[: len(before.specs)] == before.specs
    assert [spec.name for spec in after.specs[len(before.specs) :]] == ["mcp__it__create_issue"]


@prove
async def test_a_model_searches_and_uses_what_it_finds(tmp_path, monkeypatch, plain_environment):  # noqa: ARG001
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    monkeypatch.setattr("sanderling.mcp.search.MAX_SENT", 2)
    script = (
        uses("mcp__it__echo", text="unseen"),
        uses("mcp_search", query="say again"),
        uses("mcp__it__echo", text="found"),
        says("Done."),
    )
    allowed = ({"action": "allow", "tool": "mcp__it__*"},)
    servers = {"it": NOTES_SERVER}
    async with talking(tmp_path, *script, mcp_servers=servers, permissions=allowed) as talk:
        await talk.state("it", "ready")
        await talk.say("go")
        unseen, found, seen = talk.results()
        assert unseen.startswith("unseen")
        assert found.startswith("These can be used now:\nmcp__it__echo: ")
        assert seen.startswith("found")
        tools = await talk.services.calls.catalog.so_far()
        assert [spec.name for spec in tools.specs][-2:] == ["mcp_search", "mcp__it__echo"]
