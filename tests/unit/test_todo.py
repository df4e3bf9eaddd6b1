"""The todo list: what it takes, who hears of it, what the log keeps, and when the model is reminded."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sandboxes import policy_below, sandbox_of
from tests.workspaces import workspace_of

from sanderling.errors import ToolError
from sanderling.protocol.events import TodoItem
from sanderling.tools.base import Context
from sanderling.tools.outcome import Outcome
from sanderling.tools.todo import TodoInput, todo
from sanderling.tools.todo_list import STALE_AFTER, TodoList

PENDING, IN_PROGRESS, COMPLETED = "pending", "in_progress", "completed"


def items(*statuses: str) -> list[TodoItem]:
    return [TodoItem(f"step {n}", status) for n, status in enumerate(statuses, 1)]  # type: ignore[arg-type]


class Heard:
    """A list, and how often it said that it has changed."""

    def __init__(self) -> None:
        self.count = 0
        self.list = TodoList(self.hear)

    def hear(self) -> None:
        self.count += 1


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def context(tmp_path: Path) -> Context:
    policy = policy_below(tmp_path, ".", home=str(tmp_path))
    sandbox = sandbox_of(policy)
    return Context(workspace_of(tmp_path, sandbox), "t1", lambda _: None)


async def use(context: Context, *given: tuple[str, str]) -> Outcome:
    data = {"items": [{"content": content, "status": status} for content, status in given]}
    return await todo.run(todo.parse(data), context)


# --- the tool ----------------------------------------------------------------------------------------------------------


async def test_a_list_is_kept_and_shown_with_its_marks(context):
    outcome = await use(context, ("read", COMPLETED), ("write", IN_PROGRESS), ("test", PENDING))
    assert outcome.content == "Saved: 1 of 3 done."
    assert outcome.summary == "1 of 3 done"
    assert outcome.detail == "☑ read\n◐ write\n☐ test"
    assert context.workspace.todo.lines() == ["☑ read", "◐ write", "☐ test"]


async def test_a_list_replaces_the_one_before_and_an_empty_one_clears_it(context):
    await use(context, ("a", IN_PROGRESS))
    await use(context, ("b", COMPLETED))
    assert context.workspace.todo.lines() == ["☑ b"]
    assert (await use(context)).summary == "empty"
    assert context.workspace.todo.items == ()


async def test_a_refused_list_leaves_the_old_one(context):
    await use(context, ("a", IN_PROGRESS))
    with pytest.raises(ToolError):
        await use(context, ("b", IN_PROGRESS), ("c", IN_PROGRESS))
    assert context.workspace.todo.lines() == ["◐ a"]


@pytest.mark.parametrize(
    "data, words",
    [
        ({}, "items"),
        ({"items": "a"}, "array"),
        ({"items": [{"content": "a"}]}, "status"),
        ({"items": [{"content": "a", "status": "soon"}]}, "soon"),
        ({"items": [{"content": 1, "status": PENDING}]}, "str"),
    ],
)
def test_input_of_another_shape_is_refused_by_name(data, words):
    with pytest.raises(ToolError, match=words):
        todo.parse(data)


def test_its_line_on_the_screen_is_what_is_being_done(context):
    def title(*statuses: str) -> str:
        return todo.title(TodoInput(tuple(items(*statuses))), context.workspace)

    assert title(COMPLETED, IN_PROGRESS, PENDING) == "step 2"
    assert title(COMPLETED) == title() == ""


def test_it_touches_nothing_and_is_short(context):
    assert todo.effect(TodoInput(()), context.workspace).kind == "none"
    assert todo.name == "todo"
    assert len(todo.description) <= 900
    assert len(msgspec.json.encode(todo.schema)) < 600


# --- which lists are taken ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statuses",
    [
        (),
        (PENDING,),
        (PENDING, PENDING),
        (IN_PROGRESS,),
        (COMPLETED,),
        (COMPLETED, COMPLETED),
        (IN_PROGRESS, PENDING),
        (COMPLETED, IN_PROGRESS),
        (PENDING, IN_PROGRESS, COMPLETED),
    ],
)
def test_lists_that_can_be_worked_from_are_taken(heard, statuses):
    heard.list.replace(items(*statuses))
    assert [item.status for item in heard.list.items] == list(statuses)


@pytest.mark.parametrize(
    "statuses, words",
    [
        ((IN_PROGRESS, IN_PROGRESS), "2 items are in_progress"),
        ((IN_PROGRESS, COMPLETED, IN_PROGRESS, IN_PROGRESS), "3 items are in_progress"),
        ((COMPLETED, PENDING), "No item is in_progress: mark the next one."),
    ],
)
def test_lists_that_do_not_say_what_is_being_done_are_refused(heard, statuses, words):
    with pytest.raises(ToolError, match=words):
        heard.list.replace(items(*statuses))
    assert heard.list.items == ()


@pytest.mark.parametrize(
    "content, words",
    [
        ("", "Item 2 is empty"),
        (" \t\n", "Item 2 is empty"),
        ("a\nb", "Item 2 is not one line"),
        ("a\rb", "Item 2 is not one line"),
        ("a\u2028b", "Item 2 is not one line"),
        ("a\x1b[31mb", "Item 2 is not one line"),
        ("a\0b", "Item 2 is not one line"),
        ("a\u202eb", "Item 2 is not one line"),
        ("x" * 201, "Item 2 has 201 characters; the limit is 200"),
        ("x" * 1_000_000, "Item 2 has 1,000,000 characters"),
    ],
)
def test_items_are_one_line_of_text(heard, content, words):
    with pytest.raises(ToolError, match=words):
        heard.list.replace([TodoItem("a", PENDING), TodoItem(content, PENDING)])


def test_contents_are_stripped_and_may_be_200_characters_of_any_script(heard):
    heard.list.replace([TodoItem(f" {'ü' * 200}\n", IN_PROGRESS), TodoItem("é 漢字 🙂", PENDING)])
    assert heard.list.lines() == [f"◐ {'ü' * 200}", "☐ é 漢字 🙂"]


def test_half_a_surrogate_pair_becomes_text(heard):
    heard.list.replace([TodoItem("a\ud800b", PENDING)])
    assert heard.list.items[0].content == "a\ufffdb"


def test_50_items_are_the_most(heard):
    heard.list.replace(items(*[PENDING] * 50))
    with pytest.raises(ToolError, match="51 items; the limit is 50"):
        heard.list.replace(items(*[PENDING] * 51))


# --- who hears of it, and what the log keeps ---------------------------------------------------------------------------


def test_a_change_is_told_once_and_none_is_not_told(heard):
    heard.list.replace(items(IN_PROGRESS))
    assert heard.count == 1
    heard.list.replace(items(IN_PROGRESS))
    assert heard.count == 1
    with pytest.raises(ToolError):
        heard.list.replace(items(IN_PROGRESS, IN_PROGRESS))
    assert heard.count == 1
    heard.list.replace([])
    assert heard.count == 2


def test_who_hears_of_a_change_sees_the_new_list():
    seen: list[list[str]] = []
    todo_list = TodoList(lambda: seen.append(todo_list.lines()))
    todo_list.replace(items(IN_PROGRESS))
    assert seen == [["◐ step 1"]]


def test_the_log_keeps_plain_data_and_gives_the_list_back(heard):
    heard.list.replace(items(COMPLETED, IN_PROGRESS, PENDING))
    state = msgspec.json.decode(msgspec.json.encode(heard.list.state()))
    assert TodoList(state=state).items == heard.list.items


@pytest.mark.parametrize(
    "state",
    [
        None, "x", 1, {}, [1], [{}], [{"content": "a"}], [{"content": "a", "status": "b"}], [{"content": "", "status": PENDING}],
        [{"content": "a", "status": IN_PROGRESS}] * 2, [{"content": "a", "status": PENDING}] * 51,
    ],
)  # fmt: skip
def test_a_damaged_log_gives_an_empty_list(state: Any):
    todo_list = TodoList(state=state)
    assert todo_list.items == ()
    assert todo_list.reminder(is_prompt=True) == ""


# --- when the model is reminded ----------------------------------------------------------------------------------------


def test_the_model_is_not_told_what_it_has_just_written(heard):
    heard.list.replace(items(IN_PROGRESS, PENDING))
    assert heard.list.reminder() == ""


def test_a_list_left_alone_for_long_is_called_to_mind_now_and_then(heard):
    heard.list.replace(items(COMPLETED, IN_PROGRESS, PENDING))
    told = [heard.list.reminder() for _ in range(2 * STALE_AFTER)]
    assert [bool(text) for text in told] == ([False] * (STALE_AFTER - 1) + [True]) * 2
    assert told[STALE_AFTER - 1] == (
        "Your current todo list:\n☑ step 1\n◐ step 2\n☐ step 3\nKeep it up to date with `todo`."
    )


def test_a_list_that_is_kept_up_to_date_is_not_called_to_mind(heard):
    for number in range(3 * STALE_AFTER):
        if number % (STALE_AFTER - 1) == 0:
            heard.list.replace([TodoItem(f"step {number}", IN_PROGRESS)])  # type: ignore[arg-type]
        assert heard.list.reminder() == ""


def test_a_prompt_brings_the_open_list_along(heard):
    heard.list.replace(items(IN_PROGRESS))
    text = heard.list.reminder(is_prompt=True)
    assert text == ("Your current todo list:\n◐ step 1\nUpdate it with `todo` as you go.")
    assert heard.list.reminder() == ""


def test_a_list_that_was_restored_is_told_once(heard):
    heard.list.replace(items(IN_PROGRESS))
    restored = TodoList(state=heard.list.state())
    assert "◐ step 1" in restored.reminder()
    assert restored.reminder() == ""


def test_nothing_to_do_is_nothing_to_be_reminded_of(heard):
    for statuses in ((), (COMPLETED, COMPLETED)):
        heard.list.replace(items(*statuses))
        told = [heard.list.reminder(is_prompt=True) for _ in range(2 * STALE_AFTER)]
        assert set(told) == {""}
