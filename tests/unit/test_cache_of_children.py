"""Child sessions and the API's cache: siblings and forks read what their parent has written."""

import json
from itertools import pairwise

import pytest
from tests.cached_api import Asked, CachedApi, positions, text, use
from tests.children import tree

LONG = "This was said before, at some length. " * 400


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test")
    monkeypatch.setenv("NO_PROXY", "*")


async def asked_by(tmp_path, *calls: dict[str, object]) -> tuple[list[Asked], list[Asked]]:
    """The requests of a parent, which first says something `LONG` and then delegates, and those of its children."""
    tasks = [str(call["task"]) for call in calls]
    uses = [use(f"toolu_{n}", "delegate", **call) for n, call in enumerate(calls)]

    def is_of_child(body) -> bool:
        last = json.dumps(body["messages"][-1])
        return any(task in last for task in tasks)

    def answer(body):
        last = json.dumps(body["messages"][-1])
        if is_of_child(body):
            return [text("It is so.")]
        if "tool_result" in last:
            return [text("All done.")]
        return uses if "Delegate." in last else [text(LONG)]

    with CachedApi(answer) as api:
        async with tree(tmp_path, delegate={"running": 1}, **api.options) as it:
            await it.run("Say it.")
            await it.run("Delegate.")
    assert api.refused == []
    asked = api.asked
    return (
        [each for each in asked if not is_of_child(each.request)],
        [each for each in asked if is_of_child(each.request)],
    )


def read(asked: Asked) -> int:
    return asked.usage["cache_read_input_tokens"]


@pytest.mark.parametrize("roles", [("explore", "explore"), ("explore", "edit", "review")])
async def test_siblings_read_the_prefix_whatever_their_roles(tmp_path, roles):
    calls = [{"task": f"Task {n}.", "role": role} for n, role in enumerate(roles)]
    parent, children = await asked_by(tmp_path, *calls)
    for child in children:
        fixed = len(child.request["tools"]) + len(child.request["system"])
        assert read(child) == positions(child.request)[fixed - 1].tokens
    assert len(children) == len(roles)
    assert_only_the_results_are_new(parent)


async def test_a_fork_reads_its_parents_history(tmp_path):
    fork = {"task": "Task 0.", "role": "edit", "fork": True}
    parent, [child] = await asked_by(tmp_path, fork)
    assert read(child) == parent[1].input_tokens
    assert read(child) > 10 * child.usage["cache_creation_input_tokens"]
    assert_only_the_results_are_new(parent)


def assert_only_the_results_are_new(parent: list[Asked]) -> None:
    """A child's start and end change nothing before them in the request of its parent."""
    for before, after in pairwise(parent):
        assert read(after) == before.input_tokens
        assert after.usage["input_tokens"] == 0
