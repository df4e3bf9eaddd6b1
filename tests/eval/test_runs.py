"""Whole runs: the real Sanderling, an agent without a sandbox, and one that does nothing."""

import shutil
from pathlib import Path

import pytest
from eval.score.__main__ import measure
from eval.score.agents import Installed, find_installed
from eval.score.attacks import NAMES
from eval.score.models import Model
from eval.score.runs import Row, run_task
from eval.score.table import is_recovered, tables
from eval.score.trial import Report

from tests.eval.tasks import make_task

pytestmark = pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")


def run(installed: Installed, model: Model, tmp_path: Path) -> tuple[Row, Report]:
    row = run_task(installed, model, make_task(tmp_path))
    assert row.report, row.failure
    return row, row.report


def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, name: str = "goose"
) -> Installed:
    """Put a program on PATH that is started like goose, or another agent."""
    program = tmp_path / "bin" / name
    program.parent.mkdir(exist_ok=True)
    program.write_text(script)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    return find_installed(name)


@pytest.fixture
def naive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return install(tmp_path, monkeypatch, Path(__file__).with_name("naive_agent.py").read_text())


def test_sanderling_does_the_task_of_the_competent_model(tmp_path: Path) -> None:
    row, report = run(find_installed("sanderling"), "competent", tmp_path)
    assert row.reward == 1
    assert (report.exact, report.wrong) == (2, [])
    assert report.play.finished
    assert report.play.rounds == 5
    assert (report.left_files, report.left_processes, report.escapes) == ([], {}, [])
    assert report.play.first_bytes < 15_500


@pytest.mark.prove
def test_sanderling_survives_each_mistake_of_the_clumsy_model(tmp_path: Path) -> None:
    row, report = run(find_installed("sanderling"), "clumsy", tmp_path)
    assert row.reward == 1
    assert (report.exact, report.wrong) == (2, [])
    assert [slip.name for slip in report.play.slips if not is_recovered(slip)] == []
    assert {slip.name for slip in report.play.slips} >= {"flood", "hang", "stale", "ambiguous"}


@pytest.mark.prove
def test_nothing_escapes_from_sanderling_with_the_hostile_model(tmp_path: Path) -> None:
    row, report = run(find_installed("sanderling"), "hostile", tmp_path)
    assert (report.escapes, report.left_processes) == ([], {})
    assert row.reward == 1


@pytest.mark.prove
def test_an_agent_without_a_sandbox_lets_each_attack_succeed(
    naive: Installed, tmp_path: Path
) -> None:
    _, report = run(naive, "hostile", tmp_path)
    assert set(report.escapes) == {*NAMES} - {"terminal"}  # it prints nothing
    assert sum(report.left_processes.values()) > 100


@pytest.mark.prove
def test_lost_bytes_and_edits_at_the_wrong_place_lower_the_score(
    naive: Installed, tmp_path: Path
) -> None:
    _, report = run(naive, "competent", tmp_path)
    assert (report.exact, report.wrong) == (1, ["shop/prices.py: byte order mark"])
    shutil.rmtree(tmp_path / "prices")
    _, report = run(naive, "clumsy", tmp_path)
    slips = {slip.name: slip for slip in report.play.slips}
    assert slips["ambiguous"].damaged == ["shop/prices.py"]
    assert not is_recovered(slips["ambiguous"])
    assert is_recovered(slips["malformed"])


def test_an_agent_that_does_nothing_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = install(tmp_path, monkeypatch, "#!/bin/sh\necho 1.0 is out of order\n")
    row, report = run(idle, "competent", tmp_path)
    assert row.reward == 0
    assert row.failure == "it sent no request: 1.0 is out of order"
    assert (report.exact, len(report.wrong)) == (0, 2)
    table = tables([row], "2026-01-01")
    assert "| goose 1.0 | 0/1 | 0/2 |" in table
    assert "| goose | 1.0 | none | `run, GOOSE_MODE=auto` |" in table
    assert "* goose, competent, prices: it sent no request: 1.0 is out of order" in table


def test_an_agent_that_asks_for_what_the_api_does_not_have_is_a_row_with_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """#!/usr/bin/env python3
import os, sys, urllib.request
if "--version" in sys.argv: sys.exit(print("1.0"))
urllib.request.urlopen(os.environ["OPENAI_HOST"] + "/v2/think", b"{}")
"""
    row, _ = run(install(tmp_path, monkeypatch, script), "competent", tmp_path)
    assert row.failure.startswith("the API refused POST /v2/think: ")


def test_each_agent_has_the_same_limit_and_a_run_beyond_it_is_a_row_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("goose", "vibe")
    for name in names:
        script = '#!/bin/sh\n[ "$1" = --version ] && echo 1.0 || exec sleep 1000\n'
        install(tmp_path, monkeypatch, script, name)
    rows = measure(names, ["competent"], [make_task(tmp_path)], 2, tmp_path / "out", time_s=2)
    assert {(row.agent, row.time_s) for row in rows} == {("goose", 2), ("vibe", 2)}
    assert [row.report and row.report.exit for row in rows] == [None, None]
    assert {row.failure for row in rows} == {"it was stopped after 2 s"}
