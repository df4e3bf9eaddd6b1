"""Scenarios, the intended files, and the calls that a request's tools get."""

import hashlib
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from eval.score.__main__ import TASKS, main
from eval.score.adapters import Adapter, tools_of, whole_lines
from eval.score.choice import PER_KIND, chosen, kinds_in
from eval.score.files import BOM, Intended, fault_of
from eval.score.scenarios import Action, Call, ScoreError, read_scenario

TEXT = "one\n  two\nthree\n"


def object_of(*required: str, **properties: str) -> dict[str, Any]:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return {
        "type": "object",
        "properties": kinds,
        "required": [*required],
        "additionalProperties": False,
    }


CLAUDE = {
    "Read": object_of("file_path", file_path="string", limit="number"),
    "Edit": object_of(
        *("file_path", "old_string", "new_string"),
        **dict.fromkeys(("file_path", "old_string", "new_string"), "string"),
    ),
    "Write": object_of("file_path", "content", file_path="string", content="string"),
    "Bash": object_of("command", command="string", timeout="number", description="string"),
}
OPENCODE = {
    "read": object_of("filePath", filePath="string"),
    "edit": object_of(
        *("filePath", "oldString", "newString"),
        **dict.fromkeys(("filePath", "oldString", "newString"), "string"),
    ),
    "grep": object_of("pattern", pattern="string", path="string"),
    "bash": object_of("command", command="string", timeout="integer"),
}
GEMINI = {
    "read_file": object_of("file_path", file_path="string"),
    "list_directory": object_of("dir_path", dir_path="string"),
    "grep_search": object_of("pattern", pattern="string", dir_path="string"),
    "replace": object_of(
        *("file_path", "instruction", "old_string", "new_string"),
        **dict.fromkeys(("file_path", "instruction", "old_string", "new_string"), "string"),
    ),
    "run_shell_command": object_of("command", command="string", description="string"),
}
CODEX = {"exec_command": object_of("cmd", cmd="string", workdir="string", yield_time_ms="number")}
CALLS: dict[Action, Call] = {
    "read": Call(action="read", path="src/a.py"),
    "list": Call(action="list", path="src"),
    "search": Call(action="search", pattern="two", path="src"),
    "edit": Call(action="edit", path="src/a.py", old="two", new="2"),
    "write": Call(action="write", path="src/b.py", text="new\n"),
    "run": Call(action="run", command="make", timeout_s=2),
}


def requests_of(tools: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a request with these tools in each of the formats."""
    items = [*tools.items()]
    functions = [{"name": name, "parameters": schema} for name, schema in items]
    declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in items]
    return [
        {"tools": [{"name": name, "input_schema": schema} for name, schema in items]},
        {"tools": [{"type": "function", "function": each} for each in functions]},
        {"tools": [{"type": "function", **each} for each in functions]},
        {"tools": [{"functionDeclarations": declared}]},
    ]


@pytest.mark.parametrize("tools", [CLAUDE, OPENCODE, GEMINI, CODEX])
def test_each_action_becomes_a_call_that_fits_the_schema_of_the_agent(
    tools: dict[str, dict[str, Any]],
) -> None:
    for body in requests_of(tools):
        adapter = Adapter(tools_of(body), {"src/a.py": TEXT}.get)
        assert adapter.can_work
        for call in CALLS.values():
            made = adapter.call(call)
            jsonschema.validate(json.loads(made.arguments), tools[made.name])


def test_paths_are_absolute_where_the_agent_asks_for_a_file_path() -> None:
    adapter = Adapter(tools_of(requests_of(CLAUDE)[0]), {}.get)
    assert json.loads(adapter.call(CALLS["read"]).arguments) == {"file_path": "/app/src/a.py"}
    assert json.loads(adapter.call(CALLS["run"]).arguments) == {"command": "make", "timeout": 2000}


def test_a_part_of_a_line_becomes_whole_lines_in_a_patch() -> None:
    assert whole_lines(TEXT, "two", "2") == ("  two", "  2")
    assert whole_lines(TEXT, "  two\n", "  2\n") == ("  two", "  2")
    assert whole_lines(TEXT, "e\n  t", "X") == ("one\n  two", "onXwo")
    body = {"tools": [{"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}}]}
    made = Adapter(tools_of(body), {"src/a.py": TEXT}.get).call(CALLS["edit"])
    assert made.is_free
    assert made.arguments.splitlines()[1:-1] == [
        "*** Update File: src/a.py",
        "@@",
        "-  two",
        "+  2",
    ]


def test_spoiled_calls_are_broken_in_their_way_only() -> None:
    adapter = Adapter(tools_of(requests_of(CLAUDE)[0]), {}.get)
    made = {
        how: adapter.call(Call(action="read", path="a", spoiled=how))
        for how in ("malformed", "names", "absent")
    }
    with pytest.raises(ValueError, match="Unterminated string"):
        json.loads(made["malformed"].arguments)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(made["names"].arguments), CLAUDE["Read"])
    assert made["absent"].name not in CLAUDE


def test_the_intended_file_keeps_line_endings_mark_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(BOM + b"one\r\ntwo\r\n\xff")
    path.chmod(0o751)
    intended = Intended(tmp_path)
    intended.apply(Call(action="edit", path="/app/a.txt", old="one\ntwo", new="1\n2"))
    assert intended.files["a.txt"] == (BOM + b"1\r\n2\r\n\xff", 0o751)
    wanted = intended.files["a.txt"]
    assert fault_of((wanted[0].replace(b"\r\n", b"\n"), 0o751), wanted) == "line endings"
    assert fault_of((wanted[0].removeprefix(BOM), 0o751), wanted) == "byte order mark"
    assert fault_of((wanted[0], 0o644), wanted) == "mode"
    assert fault_of((b"else", 0o751), wanted) == "content"


def test_an_edit_whose_text_occurs_twice_is_not_intended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\nx\n")
    assert Intended(tmp_path).after(Call(action="edit", path="a.txt", old="x", new="y")) is None


@pytest.mark.parametrize(
    "text, message",
    [
        ('[[round]]\n[[round.call]]\naction = "edit"\npath = "a"\n', "round 1: `edit` needs `old`"),
        ('[[round]]\n[[round.call]]\naction = "fly"\n', "Invalid enum value 'fly'"),
        ('[[round]]\nsays = "x"\n', "unknown field `says`"),
    ],
)
def test_a_wrong_scenario_names_the_fault(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(ScoreError, match=r"scenario\.toml") as error:
        read_scenario(path)
    assert message in str(error.value)


def test_an_unknown_task_is_an_error_and_not_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["--tasks", "no-such", "--out", str(tmp_path)])
    assert status == 1
    assert "no-such" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--agents", "sanderlin"], "there is no agent 'sanderlin'; there are sanderling, codex"),
        (["--models", "competnt"], "there is no model 'competnt'; there are competent, clumsy"),
    ],
)
def test_unknown_names_are_errors_before_tasks_are_built(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert words in capsys.readouterr().err


def test_the_published_tasks_are_the_first_of_each_kind_by_the_hashes_of_their_names() -> None:
    kinds = kinds_in(TASKS)
    names = chosen(kinds, PER_KIND)
    assert len(names) == PER_KIND * len({*kinds.values()})
    for kind in {*kinds.values()}:
        of_kind = [name for name in kinds if kinds[name] == kind]
        of_kind.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        assert [name for name in names if kinds[name] == kind] == of_kind[:PER_KIND]


def test_a_run_with_fewer_tasks_begins_with_the_same_ones() -> None:
    kinds = kinds_in(TASKS)
    every = chosen(kinds, len(kinds))
    assert sorted(every) == sorted(kinds)
    for per_kind in (1, 2, 3):
        assert chosen(kinds, per_kind) == every[: len(chosen(kinds, per_kind))]
        reversed_kinds = dict(reversed(kinds.items()))
        assert chosen(reversed_kinds, per_kind) == chosen(kinds, per_kind)


@pytest.mark.parametrize("option", ["--per-kind", "--seconds"])
@pytest.mark.parametrize("value", ["0", "-1", "few"])
def test_a_number_of_tasks_or_seconds_must_be_positive(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([f"{option}={value}"])
    assert f"'{value}' is no positive number" in capsys.readouterr().err
