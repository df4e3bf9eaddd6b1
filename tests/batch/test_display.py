"""The progress and the plots of a batch, with the libraries of the extra `sanderling[batch]` and without them."""

import json
import os
import pty
import re
import signal
from importlib.util import find_spec
from typing import Any, Self
from xml.etree import ElementTree as ET

import pytest

from sanderling.batch.report import WITHOUT_PLOTS, as_html
from tests.batch.batches import Batches, bash
from tests.batch.test_afterwards import result
from tests.batch.test_batch import processes_of
from tests.conftest import prove_unless_quick, quick, wait_until

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]
HIDDEN = "import runpy, sys; sys.modules |= {'rich': None, 'pygal': None}; runpy.run_module('sanderling', run_name='__main__', alter_sys=True)"
needs_extra = pytest.mark.skipif(
    not (find_spec("rich") and find_spec("pygal")), reason="needs sanderling[batch]"
)


class Terminal:
    """A terminal on which a batch runs."""

    def __init__(self, home: Batches, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        environment = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        home.environment |= environment
        self.run = home.launch("batch", *arguments, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.output = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run.kill()
        self.run.wait()
        os.close(self._ours)

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.output):
            self.output += os.read(self._ours, 1 << 16).decode(errors="replace")

    def read_all(self) -> int:
        try:
            while chunk := os.read(self._ours, 1 << 16):
                self.output += chunk.decode(errors="replace")
        except OSError:  # the other end is closed
            pass
        return self.run.wait()


def write_waiting(home: Batches) -> tuple[str, ...]:
    """Write a task that fails at once, and one that waits. Return the arguments of a run."""
    home.directory("p", f="x")
    home.write_tasks(
        {"id": "[red]first", "project": "missing", "prompt": "x"},
        {"id": "second", "project": "p", "prompt": "Wait."},
    )
    model = home.write_script([bash("touch started; sleep 1000")], DONE)
    return str(home.tasks), "-o", str(home.out), "--model", model


@needs_extra
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_terminal_shows_how_far_the_run_is_and_what_runs(home: Batches, number: signal.Signals):
    with Terminal(home, *write_waiting(home)) as terminal:
        terminal.read_until(
            r"1 of 2 done · 1 running · 1 failed · \$0\.00 · [\d.]+/min · [\d.]+ m?s left"
        )
        terminal.read_until(r"\d s +second #1")
        assert "[red]first #1 setup_error, 0.0 s: there is no directory" in " ".join(
            terminal.output.split()
        )
        terminal.run.send_signal(number)
        assert terminal.read_all() == 128 + number
        assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l"), "cursor"
        assert "stopped, with 1 left" in terminal.output


@needs_extra
def test_a_second_signal_ends_the_run_at_once_and_shows_the_cursor(home: Batches):
    with Terminal(home, *write_waiting(home)) as terminal:
        terminal.read_until(r"\d s +second #1")
        # Both are there when it continues, so the second one arrives before the run has stopped for the first one.
        for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            terminal.run.send_signal(number)
        assert terminal.read_all() in (128 + signal.SIGINT, 128 + signal.SIGTERM)
        assert terminal.output.rfind("\x1b[?25h") > terminal.output.rfind("\x1b[?25l"), "cursor"
        assert "stopped" not in terminal.output, "it waited"
    wait_until(lambda: processes_of(home) == [], "workers end with the run")


def test_without_the_library_a_terminal_shows_a_line_for_each_result(home: Batches):
    home.program = ("-c", HIDDEN)
    with Terminal(home, *write_waiting(home)) as terminal:
        terminal.read_until(r"\[red\]first #1 setup_error")
        terminal.run.send_signal(signal.SIGTERM)
        assert terminal.read_all() == 128 + signal.SIGTERM
        assert "\x1b" not in terminal.output


def drawings(results: list[Any]) -> list[ET.Element]:
    page = as_html(results)
    assert "<script" not in page
    assert WITHOUT_PLOTS not in page
    return [ET.fromstring(drawing) for drawing in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def texts(drawing: ET.Element) -> str:
    return "\n".join(text for text in drawing.itertext() if text.strip())


@needs_extra
@quick
def test_a_report_plots_rates_rewards_and_tokens_without_scripts():
    hostile = "<script>alert(1)</script>\x1b[31m"
    results = [result(hostile, 1), result("half", 0.5, cost=None, tokens=7_000), result("c", None)]
    rates, costs, tokens = drawings(results)
    assert "Pass rate: 50.0%" in texts(rates)
    assert rates.findall(".//*[@class='ci']"), "no interval"
    assert hostile.partition("\x1b")[0] in texts(costs)
    assert "half" not in texts(costs)
    assert "7,000" in texts(tokens)
    for drawing in (rates, costs, tokens):
        links = [value for each in drawing.iter() for name, value in each.items() if "href" in name]
        assert links == []


@needs_extra
@quick
def test_a_report_without_rewards_plots_only_tokens():
    assert len(drawings([result("a", None)])) == 1
    assert len(drawings([result("a", 1, cost=None)])) == 2


def test_without_the_library_a_report_has_all_tables_and_names_the_extra(home: Batches):
    home.program = ("-c", HIDDEN)
    home.out.mkdir()
    line = {"id": "a", "hash": "h", "state": "completed", "reward": 1, "tokens": 12_345}
    (home.out / "results.jsonl").write_text(json.dumps(line) + "\n")
    done = home.batch("report", str(home.out), "--report", "html")
    assert done.returncode == 0, done.stderr
    page = (home.out / "report.html").read_text()
    assert page.count("sanderling[batch]") == 1
    assert "<svg" not in page
    assert "100.0% of 1" in page
    assert "12,345" in page
