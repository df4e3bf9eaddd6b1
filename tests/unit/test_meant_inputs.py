"""Inputs that can mean only one thing are taken as that, whatever form a model gives them."""

import json
from typing import Any

import msgspec
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
    ("bash", {"command": "ls", "timeout_s": 1}, {"command": "ls", "timeout": 1_000}),
    ("bash", {"command": "ls", "timeout_s": 0.5}, {"command": "ls", "timeout_ms": 500}),
    ("bash", {"command": "ls", "timeout_s": 600}, {"command": "ls", "timeout": "700"}),
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
    *(
        ("todo", {"items": [ITEM | {"status": own}]}, {"items": [ITEM | {"status": other}]})
        for own, others in {
            "completed": ("done", "Done", "finished", "complete"),
            "in_progress": ("doing", "active", "IN PROGRESS"),
            "pending": ("todo", "not started", "open"),
        }.items()
        for other in others
    ),
    ("jobs", {"action": "stop", "id": "j1"}, {"action": "kill", "job_id": "j1"}),
    (
        "jobs",
        {"action": "read", "id": "j1", "wait_s": 30},
        {"action": "read", "id": "j1", "timeout": 30_000},
    ),
    ("grep", {"pattern": "x"}, {"pattern": "x", "output_mode": "content", "-n": True}),
    (
        "grep",
        {"pattern": "x", "files_only": True},
        {"pattern": "x", "output_mode": "files_with_matches"},
    ),
    (
        "grep",
        {"pattern": "x", "files_only": True},
        {"pattern": "x", "output_mode": "count", "multiline": False},
    ),
    (
        "grep",
        {"pattern": "x", "ignore_case": True, "context": 3},
        {"pattern": "x", "-i": True, "-C": 3},
    ),
    ("grep", {"pattern": "x", "ignore_case": True}, {"query": "x", "case_sensitive": False}),
    ("grep", {"pattern": "404", "limit": 1000}, {"pattern": 404, "limit": 5000}),
    ("read", {"path": "f", "offset": 1, "limit": 2000}, {"path": "f", "offset": 0, "limit": 5000}),
    (
        "read",
        {"path": "f", "offset": 10, "limit": 11},
        {"target_file": "f", "start_line": 10, "end_line": 20},
    ),
    ("read", {"path": "f", "offset": 10, "limit": 11}, {"path": "f", "view_range": "[10, 20]"}),
    ("read", {"path": "f", "offset": 10}, {"path": "f", "view_range": [10, -1]}),
    ("read", {"path": "f", "limit": 5}, {"input": {"path": "f", "limit": "5"}}),
    ("read", {"path": "f"}, {"arguments": '{"file_path": "f"}'}),
    ("bash", {"command": "ls", "timeout_s": 600}, {"command": "ls", "timeout_s": "700"}),
    (
        "web_fetch",
        {"url": "https://a.example", "offset": 0},
        {"link": "https://a.example", "offset": "0"},
    ),
    ("code_nav", {"op": "outline", "path": "f"}, {"operation": "Outline", "file": "f"}),
]


@pytest.mark.parametrize("name, exact, meant", SAME, ids=lambda value: json.dumps(value)[:60])
def test_what_can_mean_only_one_thing_is_taken_as_that(name, exact, meant):
    assert TOOLS[name].parse(meant) == TOOLS[name].parse(exact)
    assert TOOLS[name].note_on(meant) == ""


@pytest.mark.parametrize("name, exact, _", SAME, ids=lambda value: json.dumps(value)[:60])
def test_what_is_exact_stays_as_it_is(name, exact, _):
    assert TOOLS[name].parse(exact) == msgspec.convert(exact, TOOLS[name].input_type)


@pytest.mark.parametrize(
    "name, given, words",
    [
        (
            "edit",
            {"path": "f", "edits": "a to b"},
            "edit takes: path (required), edits (required; each: old, new (required), ",
        ),
        ("edit", {"path": "f", "edits": "[{"}, "edit takes: path (required), edits (required"),
        ("edit", {"path": "f", "edits": []}, "length >= 1"),
        ("edit", {"path": "f"}, "missing required field `edits`"),
        ("read", {"path": 5}, "Expected `str`, got `int`"),
        ("read", {"path": "f", "offset": "one"}, "Expected `int`, got `str`"),
        ("read", {"path": "f", "offset": 1.5}, "Expected `int`, got `float`"),
        ("read", {"path": "f", "offset": True}, "Expected `int`, got `bool`"),
        ("read", {"path": "f", "limit": 0}, ">= 1"),
        ("read", {"path": "f", "limit": "9" * 5000}, "Expected `int`, got `str`"),
        (
            "bash",
            {"shell": "ls"},
            "bash has no `shell`. It takes: command (required), timeout_s, background, pty.",
        ),
        (
            "jobs",
            {"action": "see"},
            "jobs takes: action (required; keys | list | read | screen | send | stop), id, wait_s, text, keys.",
        ),
        ("grep", {"pattern": "x", "limit": -1}, ">= 1"),
        ("read", {"input": 5}, "read has no `input`. It takes: path (required), offset, limit."),
        ("bash", {"command": ["ls"]}, "Expected `str`, got `array`"),
        ("write", {"path": "f", "content": {"a": 1}}, "Expected `str`, got `object`"),
    ],
)
def test_what_can_mean_several_things_is_refused_with_the_fields_of_the_tool(name, given, words):
    with pytest.raises(ToolError) as error:
        TOOLS[name].parse(given)
    assert words in str(error.value)
    assert "takes: " in str(error.value)


def test_a_field_of_its_own_goes_before_one_that_others_call_so():
    args = TOOLS["read"].parse({"path": "f", "file_path": "g"})
    assert getattr(args, "path") == "f"  # noqa: B009
    assert "read has no `file_path`. " in TOOLS["read"].note_on({"path": "f", "file_path": "g"})


def test_a_field_that_is_ignored_is_told():
    note = TOOLS["bash"].note_on({"command": "ls", "cwd": "/tmp", "description": "List."})
    assert note == "[bash has no `cwd`. It takes: command (required), timeout_s, background, pty.]"


@pytest.mark.parametrize("name, exact, meant", SAME, ids=lambda value: json.dumps(value)[:60])
def test_a_repaired_input_needs_no_repair_and_is_the_one_that_runs(name, exact, meant):
    repaired = TOOLS[name].repaired(meant)
    assert TOOLS[name].repaired(repaired) == repaired
    assert msgspec.convert(repaired, TOOLS[name].input_type) == TOOLS[name].parse(exact)
