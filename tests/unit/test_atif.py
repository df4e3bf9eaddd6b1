"""A session as a trajectory: whose words each step has, with its calls, their results, tokens and cost."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.test_print_mode import Shell

from sanderling.errors import SessionError
from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    Selection,
    ServerBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
    WebSearch,
)
from sanderling.providers.models.known import KnownModels
from sanderling.session.codec import Codec
from sanderling.session.ledger import Prices
from sanderling.session.records import (
    LOG_VERSION,
    Header,
    LoggedChild,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedTurnEnd,
    LoggedUsage,
    Record,
)
from sanderling.session.session import Session
from sanderling.session.store import fork
from sanderling.session.store.atif import export_trajectory

GOLDEN = Path(__file__).parent.parent / "golden"
AT = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
PRICES = Prices(KnownModels(prices={"m": {"input": 1, "output": 10, "cache_read": 0.1}}))


def exported(directory: Path, *records: Record) -> dict[str, Any]:
    header = Header(LOG_VERSION, "s", "/home/me/project", at=AT)
    data = b"".join(map(Codec().encoded, (header, *records)))
    (directory / "s.jsonl").write_bytes(data)
    return export_trajectory(directory, "s", PRICES)


def prompted(text: str, *notes: str) -> LoggedMessage:
    blocks = tuple(map(TextBlock, (*notes, text)))
    return LoggedMessage(Message("user", blocks), Prompt("p", text))


def answered(*blocks: TextBlock | ThinkingBlock | ToolUse | ServerBlock) -> LoggedMessage:
    return LoggedMessage(Message("assistant", blocks))


def said(trajectory: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(step["source"], step["message"]) for step in trajectory["steps"]]


def test_notes_are_the_systems_words_and_prompts_the_users(tmp_path):
    use = ToolUse("t", "bash", {"command": "ls"})
    steered = Message("user", (ToolResult("t", "a"), TextBlock("[A note.]"), TextBlock("Stop.")))
    found = exported(
        tmp_path,
        prompted("Go.", "[Where this is.]", "[Plan mode.]"),
        answered(TextBlock("Well."), use),
        LoggedMessage(steered, steered=(Prompt("q", "Stop."),)),
        answered(TextBlock("Done.")),
    )
    assert said(found) == [
        ("system", "[Where this is.]\n\n[Plan mode.]"),
        ("user", "Go."),
        ("agent", "Well."),
        ("system", "[A note.]"),
        ("user", "Stop."),
        ("agent", "Done."),
    ]
    assert [step["step_id"] for step in found["steps"]] == [1, 2, 3, 4, 5, 6]


def test_attached_lines_and_what_a_command_stands_for_are_the_users_words(tmp_path):
    selection = Selection("a.py", 1, 1, "x = 1")
    prompt = Prompt("p", "/fix", (selection,), sent="Fix the bug.")
    blocks = (
        TextBlock("[Note.]"),
        TextBlock("a.py:1:\n```\nx = 1\n```"),
        TextBlock("Fix the bug."),
    )
    found = exported(tmp_path, LoggedMessage(Message("user", blocks), prompt))
    assert said(found) == [
        ("system", "[Note.]"),
        ("user", "a.py:1:\n```\nx = 1\n```\n\nFix the bug."),
    ]


def test_an_attached_image_is_a_part_of_the_prompt(tmp_path):
    prompt = Prompt("p", "Look.", (Selection("a.png", 0, 0, "aGk=", media_type="image/png"),))
    image = ImageBlock(ImageSource("image/png", "aGk="))
    found = exported(
        tmp_path,
        LoggedMessage(Message("user", (TextBlock("a.png:"), image, TextBlock("Look."))), prompt),
    )
    source = {"media_type": "image/png", "path": "data:image/png;base64,aGk="}
    assert found["steps"][0]["message"] == [
        {"type": "text", "text": "a.png:"},
        {"type": "image", "source": source},
        {"type": "text", "text": "Look."},
    ]


def test_results_are_in_the_step_of_their_calls(tmp_path):
    one, two = ToolUse("t1", "bash", {"command": "make"}), ToolUse("t2", "read", {"path": "a"})
    results = Message("user", (ToolResult("t1", "no rule", is_error=True), ToolResult("t2", "x")))
    again = Message("user", (ToolResult("t1", "made"),))
    found = exported(
        tmp_path,
        prompted("Go."),
        answered(ThinkingBlock("Hm.", "signed"), one, two),
        LoggedToolEnd("t2", result=ToolResult("t2", "x")),
        LoggedMessage(results),
        answered(one),
        LoggedMessage(again),
    )
    first, second = found["steps"][1:]
    assert first["message"] == ""
    assert first["reasoning_content"] == "Hm."
    assert first["tool_calls"] == [
        {"tool_call_id": "t1", "function_name": "bash", "arguments": {"command": "make"}},
        {"tool_call_id": "t2", "function_name": "read", "arguments": {"path": "a"}},
    ]
    assert first["observation"]["results"] == [
        {"source_call_id": "t2", "content": "x"},
        {"source_call_id": "t1", "content": "no rule", "extra": {"is_error": True}},
    ]
    assert second["observation"]["results"] == [{"source_call_id": "t1", "content": "made"}]


def test_a_search_of_the_api_is_a_call_with_its_result(tmp_path):
    search = WebSearch("w", "sanderling", "1 result", "https://example.com")
    found = exported(tmp_path, prompted("Go."), answered(ServerBlock({}, search), TextBlock("A.")))
    step = found["steps"][1]
    assert step["tool_calls"][0]["function_name"] == "web_search"
    assert step["tool_calls"][0]["arguments"] == {"query": "sanderling"}
    result = {"source_call_id": "w", "content": "1 result\nhttps://example.com"}
    assert step["observation"]["results"] == [result]


def test_tokens_belong_to_the_answer_that_follows_them(tmp_path):
    use = ToolUse("t", "bash", {"command": "ls"})
    found = exported(
        tmp_path,
        LoggedState("effort", "high"),
        prompted("Go."),
        LoggedUsage("m", Usage(100, 10, 40, 60)),
        answered(use),
        LoggedMessage(Message("user", (ToolResult("t", "a"),))),
        LoggedUsage("m", Usage(5, 0)),  # it failed
        LoggedRestart(),
        LoggedUsage("m", Usage(7, 1)),
        answered(TextBlock("Done.")),
        LoggedUsage("n", Usage(1_000), is_aside=True),
        LoggedTurnEnd("end_turn"),
    )
    first, second = found["steps"][1:]
    assert first["metrics"] == {
        "prompt_tokens": 200,
        "completion_tokens": 10,
        "cached_tokens": 60,
        "cost_usd": pytest.approx((100 + 40 + 6 + 100) / 1e6),
        "extra": {"cache_creation_input_tokens": 40},
    }
    assert (first["model_name"], first["reasoning_effort"]) == ("m", "high")
    assert (first["llm_call_count"], second["llm_call_count"]) == (1, 2)
    assert second["metrics"]["prompt_tokens"] == 12
    totals = found["final_metrics"]
    assert totals == {
        "total_prompt_tokens": 1_212,
        "total_completion_tokens": 11,
        "total_cached_tokens": 60,
        "total_steps": 3,
    }  # the price of `n` is unknown, and so is that of the session


def test_tokens_that_an_external_agent_reports_at_the_end_belong_to_its_last_answer(tmp_path):
    found = exported(
        tmp_path,
        LoggedState("agent", {"name": "codex", "session": "x", "of": "s"}),
        prompted("Go."),
        answered(TextBlock("One.")),
        answered(TextBlock("Two.")),
        LoggedUsage("m", Usage(7, 1)),
        LoggedTurnEnd("end_turn"),
        prompted("On."),
        answered(TextBlock("Three.")),
    )
    counted = [step["message"] for step in found["steps"] if "metrics" in step]
    assert counted == ["Two."]
    assert found["agent"]["name"] == "codex"
    assert found["final_metrics"]["total_cost_usd"] == pytest.approx(17 / 1e6)


def test_tokens_of_a_summary_are_only_in_the_totals(tmp_path):
    found = exported(
        tmp_path,
        prompted("Go."),
        LoggedUsage("m", Usage(900, 50)),
        LoggedSummary((), "## Goal\nx", 150_000, 5_000),
        LoggedUsage("m", Usage(7, 1)),
        answered(TextBlock("Done.")),
    )
    summary, answer = found["steps"][1:]
    assert summary["source"] == "system"
    assert summary["message"].endswith("\n\n## Goal\nx")
    assert answer["metrics"]["prompt_tokens"] == 7
    assert found["final_metrics"]["total_prompt_tokens"] == 907


def test_a_turn_that_failed_says_why_and_so_does_the_trajectory(tmp_path):
    ended = LoggedTurnEnd("error", error="No key.")
    found = exported(tmp_path, prompted("Go."), ended)
    assert said(found)[-1] == ("system", "No key.")
    assert found["extra"] == {"project": "/home/me/project", "stop_reason": "error"}


def test_an_answer_that_was_never_finished_is_a_step(tmp_path):
    found = exported(
        tmp_path,
        prompted("Go."),
        LoggedPartial("text", "void"),
        LoggedRestart(),
        LoggedPartial("thinking", "Hm."),
        LoggedPartial("text", "It is"),
        LoggedUsage("m", Usage(7, 1)),
    )
    step = found["steps"][1]
    assert (step["message"], step["reasoning_content"]) == ("It is", "Hm.")
    assert step["extra"] == {"is_partial": True}


def test_steps_of_the_original_are_copied_context_in_a_fork(tmp_path):
    session = Session.open(tmp_path, "s", "/p")
    message = Message("user", (TextBlock("Go."),))
    before = datetime.now(UTC) - timedelta(hours=1)
    session.append(LoggedMessage(message, Prompt("p", "Go."), at=before))
    session.append(LoggedTurnEnd("end_turn", at=before))
    session.close()
    fork(tmp_path, "s", "f")
    session = Session.open(tmp_path, "f", "/p")
    session.append_prompt(message, Prompt("q", "Go."))
    session.close()
    found = export_trajectory(tmp_path, "f", PRICES)
    assert [step.get("is_copied_context") for step in found["steps"]][:2] == [True, None]
    assert found["extra"]["forked_from"] == "s"


def child_of(directory: Path, session_id: str, *records: Record, parent: str = "s") -> None:
    header = Header(LOG_VERSION, session_id, "/home/me/project", at=AT, parent=parent)
    data = b"".join(map(Codec().encoded, (header, *records)))
    (directory / f"{session_id}.jsonl").write_bytes(data)


def test_children_are_embedded_and_their_calls_refer_to_them(tmp_path):
    one, two = (ToolUse(each, "delegate", {"task": "Look."}) for each in ("t1", "t2"))
    used = LoggedUsage("m", Usage(7, 1))
    grandchild = LoggedChild("c3", "t3", "looker", "Look closer.")
    child_of(
        tmp_path,
        *("c1", prompted("Look."), answered(ToolUse("t3", "delegate", {})), grandchild, used),
        LoggedMessage(Message("user", (ToolResult("t3", "Seen closely."),))),
        answered(TextBlock("Seen.")),
    )
    child_of(tmp_path, "c3", prompted("Look closer."), answered(TextBlock("Yes.")), parent="c1")
    found = exported(
        tmp_path,
        prompted("Go."),
        answered(one, two),
        LoggedChild("c1", "t1", "looker", "Look."),
        LoggedChild("c2", "t2", "looker", "Look."),  # its log was deleted
        LoggedUsage("m", Usage(7, 1), is_aside=True, child="c1"),
        LoggedChild("c1", "t1", "looker", "Look.", state="done"),
        LoggedMessage(Message("user", (ToolResult("t1", "Seen."), ToolResult("t2", "Lost.")))),
        answered(TextBlock("Done.")),
    )
    assert [each["trajectory_id"] for each in found["subagent_trajectories"]] == ["c1"]
    (child,) = found["subagent_trajectories"]
    assert [each["trajectory_id"] for each in child["subagent_trajectories"]] == ["c3"]
    first, second = found["steps"][1]["observation"]["results"]
    assert first["subagent_trajectory_ref"] == [{"trajectory_id": "c1"}]
    assert "subagent_trajectory_ref" not in second
    assert found["final_metrics"]["total_prompt_tokens"] == 7  # that of the children included
    assert "metrics" not in found["steps"][2]


def test_a_session_that_names_itself_as_its_child_is_exported(tmp_path):
    found = exported(
        tmp_path, prompted("Go."), answered(TextBlock("Well.")), LoggedChild("s", "t1")
    )
    assert "subagent_trajectories" not in found


def test_a_session_without_words_cannot_be_a_trajectory(tmp_path):
    with pytest.raises(SessionError, match="nothing was said in the session s yet"):
        exported(tmp_path)


def test_the_golden_log_is_a_trajectory(tmp_path):
    (tmp_path / "s1.jsonl").write_bytes((GOLDEN / "session_log_v6.jsonl").read_bytes())
    found = export_trajectory(tmp_path, "s1", PRICES)
    assert found["schema_version"] == "ATIF-v1.8"
    answers = [step["message"] for step in found["steps"] if step["source"] == "agent"]
    assert answers == ["I will look.", "I cannot.", "Good mor"]
    assert found["final_metrics"]["total_prompt_tokens"] == 175


@pytest.fixture
def shell(tmp_path) -> Shell:
    return Shell(tmp_path)


def test_a_run_in_a_shell_is_exported(shell, tmp_path):
    read = {"tool_use": {"name": "read", "input": {"path": "none.txt"}}}
    played = shell.play([read], [{"text": "Done."}])
    assert played.returncode == 0, played.stderr
    (session,) = shell.sessions()
    exported = shell.run("sessions", "export", session.id, "--format", "atif")
    assert (exported.returncode, exported.stderr) == (0, "")
    found = json.loads(exported.stdout)
    assert found["session_id"] == session.id
    assert [step["source"] for step in found["steps"][-3:]] == ["user", "agent", "agent"]
    assert found["steps"][-2]["observation"]["results"][0]["extra"] == {"is_error": True}
    target = tmp_path / "talk.md"
    assert shell.run("sessions", "export", session.id, "-o", str(target)).returncode == 0
    assert "Done." in target.read_text()
    again = shell.run("sessions", "export", session.id, "-o", str(target))
    assert (again.returncode, again.stdout) == (1, "")
    assert "already exists" in again.stderr


@pytest.mark.parametrize(
    "arguments, status, words",
    [
        (("export", "none"), 1, "there is no session none"),
        (("--all", "export", "none"), 2, "--all has no effect here"),
        (("export", "none", "--format", "html"), 2, "invalid choice: 'html'"),
    ],
)
def test_an_export_that_cannot_be_says_why(shell, arguments, status, words):
    failed = shell.run("sessions", *arguments)
    assert failed.returncode == status
    assert words in failed.stderr


@pytest.mark.parametrize("session", [(), ("--no-session",)])
def test_a_run_in_a_shell_writes_its_trajectory(shell, tmp_path, session):
    path = tmp_path / "trajectory.json"
    played = shell.play([{"text": "Done."}], args=("--trajectory", str(path), *session))
    assert (played.returncode, played.stdout) == (0, "Done.\n")
    found = json.loads(path.read_text())
    assert found["steps"][-1]["message"] == "Done."
    assert found["extra"]["stop_reason"] == "end_turn"


def test_a_run_that_is_out_of_time_writes_its_trajectory(shell, tmp_path):
    path = tmp_path / "trajectory.json"
    slow = [{"text": "Wait", "delay_ms": 0}, {"text": "…", "delay_ms": 60_000}]
    played = shell.play(slow, args=("--trajectory", str(path), "--max-time", "1"))
    assert played.returncode == 4
    found = json.loads(path.read_text())
    assert found["extra"]["stop_reason"] == "cancelled"


def test_a_trajectory_that_cannot_be_written_is_refused_before_the_prompt_is_sent(shell):
    played = shell.play([{"text": "Done."}], args=("--trajectory", "/nowhere/t.json"))
    assert (played.returncode, played.stdout) == (2, "")
    assert "cannot write the trajectory /nowhere/t.json" in played.stderr
    assert not shell.sessions()
