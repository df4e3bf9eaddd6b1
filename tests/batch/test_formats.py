"""The files of a run, as the help describes them."""

import json
from pathlib import Path

import msgspec

from sanderling.batch.agent import AgentEnd, take_event
from sanderling.batch.results import Result, RunSettings, State, read_results
from sanderling.batch.tasks import Task, directory_name, read_lines
from sanderling.json_lines import encoded
from tests.batch.batches import Batches, bash
from tests.conftest import ROOT

GOLDEN = ROOT / "tests" / "golden"
HELP = (ROOT / "doc" / "sanderling-batch.txt").read_text()
DONE = [{"text": "Done."}]

RESULTS = (
    Result(
        id="packages/one",
        hash="5c1d",
        state="completed",
        reward=0.75,
        rewards={"reward": 0.75, "lines": 1.5},
        tokens=36,
        usage={"input_tokens": 20, "output_tokens": 6, "cache_read_input_tokens": 10},
        cost=0.0123,
        wall=12.5,
        setup=0.25,
        checking=1.5,
        calls=2,
        questions=1,
        denials=1,
        exit=3,
        patch=True,
        trial="packages_one-1a2b3c4d__1",
    ),
    Result(
        id="b", attempt=2, hash="aa", state="unsupported", reason="it needs a GPU", trial="b__2"
    ),
)


def test_a_line_of_the_results_is_as_in_the_golden_file(tmp_path: Path):
    golden = GOLDEN / "batch_results.jsonl"
    assert (
        b"".join(msgspec.json.encode(result) + b"\n" for result in RESULTS) == golden.read_bytes()
    )
    (tmp_path / "results.jsonl").write_bytes(golden.read_bytes())
    assert read_results(tmp_path) == list(RESULTS)


def test_the_settings_of_a_run_are_as_in_the_golden_file():
    settings = RunSettings(model="openai:gpt-x", effort="high", net="proxy", allow=("bash make",))
    golden = json.loads((GOLDEN / "batch_settings.json").read_text())
    assert msgspec.to_builtins(settings) == {**golden, "allow": tuple(golden["allow"])}


def test_a_file_of_tasks_is_read_as_in_the_golden_file():
    path = GOLDEN / "batch_tasks.jsonl"
    one, two = read_lines(path)
    assert (one.id, one.project) == ("one", str(GOLDEN.parent / "one"))
    assert (two.repository, two.revision) == ("https://example.com/two.git", "v1.2")
    assert (two.limits.time_s, two.limits.check_time_s) == (600, 600)


def test_the_help_lists_each_field_and_state():
    tasks, results = HELP.split("4. RESULTS")
    fields = {*Result.__struct_fields__, *State.__args__}  # pyright: ignore[reportAttributeAccessIssue]
    assert {name for name in fields if name not in results} == set()
    assert {name for name in Task.__struct_fields__ if name not in tasks} <= {"harbor", "digest"}


def test_a_trial_has_the_files_that_the_help_lists(home: Batches):
    home.directory("p", f="x")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do.", "check": "true"})
    home.play([bash("touch made")], DONE)
    trial = home.out / "a__1"
    files = {str(path.relative_to(trial)) for path in trial.rglob("*") if path.is_file()}
    listed = {name for name in files if name.rpartition("/")[2] in HELP}
    assert files == listed
    assert "agent/trajectory.json" in files


def test_each_id_has_a_directory_of_its_own():
    ids = ["a", "A", "a/b", "a_b", "a b", "..", ".", "a__1", "é", "x" * 200, "a" * 101, ""]
    names = [directory_name(each) for each in ids]
    assert len(set(names)) == len(ids)
    assert all("/" not in name and name not in (".", "..") and len(name) <= 100 for name in names)


def test_an_answer_that_updates_its_usage_several_times_is_one_call():
    end = AgentEnd()
    for counts in ((10, 1), (10, 5), (30, 6), (30, 9)):
        turn = dict(zip(("input_tokens", "output_tokens"), counts, strict=True))
        take_event(encoded({"type": "usage_updated", "turn": turn}), end, lambda _: None)
    assert (end.calls, end.tokens) == (2, 39)
