"""Inputs that can mean only one thing are taken as that, whatever form a model gives them."""

import json
from typing import Any

import pytest

from sanderling.errors import ToolError
from sanderling.tools.catalog import TOOLS

EDIT = {"old": "a", "new": "b"}
ITEM = {"content": "x", "status": "pending"}
SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("edit", {"path": "f", "edits": [EDIT]}, {"path": "f", "edits": json.dumps([EDIT])}),
    ("edit", {"path": "f", "edits": [EDIT]}, {"path": "f", "edits": json.dumps(EDIT)}),
    ("edit", {"path": "f", "edits": [EDIT]}, {"path": "f", "edits": [json.dumps(EDIT)]}),
    ("edit", {"path": "f", "edits": [EDIT]}, {"path": "f", "edits": EDIT}),
    ("edit", {"path": "f", "edits": [EDIT]}, {"path": "f", **EDIT}),
    (
        "edit",
        {"path": "f", "edits": [EDIT | {"replace_all": True}]},
        {"file_path": "f", "old_string": "a", "new_string": "b", "replaceAll": "true"},
    ),
    (
        "edit",
        {"path": "f", "edits": [{"new": "b", "insert_at_line": 3}]},
        {"path": "f", "edits": [{"new_str": "b", "insert_line": "3"}]},
    ),
    (
        "edit",
        {"path": "f", "edits": [EDIT | {"replace_all": False}]},
        {"path": "f", "edits": [EDIT | {"replace_all": "False", "insert_at_line": None}]},
    ),
    ("read", {"path": "f", "offset": 1, "limit": 5}, {"path": "f", "offset": "1", "limit": 5.0}),
    ("read", {"path": "f"}, {"filePath": "f", "offset": None}),
    ("read", {"path": "f", "limit": 2000}, {"path": "f", "limit": 100_000}),
    ("read", {"path": "f", "limit": 2000}, {"path": "f", "limit": "99999"}),
    ("write", {"path": "f", "content": "[1]"}, {"file_path": "f", "file_text": "[1]"}),
    ("bash", {"command": "ls"}, {"cmd": "ls", "description": "List."}),
    ("bash", {"command": "ls", "timeout_s": 60}, {"command": "ls", "timeout": "60"}),
    ("bash", {"command": "ls", "timeout_s": 120}, {"command": "ls", "timeout": 120_000}),
    ("bash", {"command": "ls", "timeout_s": 600}, {"command": "ls", "timeout_s": 9_000}),
    ("bash", {"command": "ls", "background": True}, {"command": "ls", "run_in_background": 1}),
    ("grep", {"pattern": "x", "glob": "*.py"}, {"query": "x", "include": "*.py"}),
    ("grep", {"pattern": "x", "ignore_case": True}, {"pattern": "x", "ignoreCase": "TRUE"}),
    ("todo", {"items": [ITEM]}, {"items": json.dumps([ITEM])}),
    ("todo", {"items": [ITEM]}, {"todos": [{"text": "x", "status": "Pending"}]}),
    (
        "todo",
        {"items": [ITEM | {"status": "in_progress"}]},
        {"items": ITEM | {"status": "in-progress"}},
    ),
]


@pytest.mark.parametrize("name, exact, meant", SAME, ids=lambda value: json.dumps(value)[:60])
def test_what_can_mean_only_one_thing_is_taken_as_that(name, exact, meant):
    assert TOOLS[name].parse(meant) == TOOLS[name].parse(exact)
    assert TOOLS[name].note_on(meant) == ""


@pytest.mark.parametrize("name, exact, _", SAME, ids=lambda value: json.dumps(value)[:60])
def test_what_is_exact_stays_as_it_is(name, exact, _):
    import msgspec

    assert TOOLS[name].parse(exact) == msgspec.convert(exact, TOOLS[name].input_type)


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("edit", {"path": "f", "edits": "a to b"}, "edit takes `path`, `edits`."),
        ("edit", {"path": "f", "edits": "[{"}, "edit takes `path`, `edits`."),
        ("edit", {"path": "f", "edits": []}, "length >= 1"),
        ("edit", {"path": "f"}, "missing required field `edits`"),
        ("read", {"path": 5}, "Expected `str`, got `int`"),
        ("read", {"path": "f", "offset": "one"}, "Expected `int`, got `str`"),
        ("read", {"path": "f", "offset": 1.5}, "Expected `int`, got `float`"),
        ("read", {"path": "f", "offset": True}, "Expected `int`, got `bool`"),
        ("read", {"path": "f", "limit": 0}, ">= 1"),
        ("read", {"path": "f", "limit": "9" * 5000}, "Expected `int`, got `str`"),
        ("bash", {"command": ["ls"]}, "Expected `str`, got `array`"),
        ("write", {"path": "f", "content": {"a": 1}}, "Expected `str`, got `object`"),
    ],
)
def test_what_can_mean_several_things_is_refused_with_the_fields_of_the_tool(name, given, words):
    with pytest.raises(ToolError) as error:
        TOOLS[name].parse(given)
    assert words in str(error.value)
    assert f"{name} takes `" in str(error.value)


def test_a_field_of_its_own_goes_before_one_that_others_call_so():
    args = TOOLS["read"].parse({"path": "f", "file_path": "g"})
    assert getattr(args, "path") == "f"  # noqa: B009
    assert "Ignored: `file_path`" in TOOLS["read"].note_on({"path": "f", "file_path": "g"})


def test_a_field_that_is_ignored_is_told():
    note = TOOLS["bash"].note_on({"command": "ls", "cwd": "/tmp", "description": "List."})
    assert note == "[bash takes `command`, `timeout_s`, `background`. Ignored: `cwd`.]"
