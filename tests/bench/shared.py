"""What the benchmarks share: the server's process, a Neovim whose screen is watched, figures."""

import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.conftest import ROOT, ChildNvim, is_alive, wait_until

COLUMNS, LINES = 120, 40
MARK = re.compile(r"(?:begin|end|n)\d{6}")
MAX_GROWTH = 1.2  # of a figure, from an empty chat to one of any length
NOISE = 2  # ms or %
NEAR = 1.1  # times the limit
MAX_TYPED = 40  # keys that fit in one row of the prompt


# figures -------------------------------------------------------------------------------------------------------------


def short(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


@dataclass(frozen=True)
class Row:
    """
    One line of the table. A row without a target is shown and not judged.

    `reference` is the same figure of an empty chat. Growth below `NOISE` is the machine's: the p99 of one and the same chat
    differs by more from round to round. A figure that is less than a tenth over its limit is "near": two runs on one machine
    differ by as much, so it does not fail the run.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    note: str = ""
    reference: float | None = None

    @property
    def limit(self) -> float:
        flat = (
            math.inf
            if self.reference is None
            else max(MAX_GROWTH * self.reference, self.reference + NOISE)
        )
        return flat if self.target is None else min(flat, self.target)

    @property
    def verdict(self) -> Literal["ok", "near", "OVER"]:
        if self.value <= self.limit:
            return "ok"
        return "near" if self.value < NEAR * self.limit else "OVER"

    def cells(self) -> tuple[str, str, str, str]:
        measured = f"{short(self.value)} {self.unit}" + (f"  ({self.note})" if self.note else "")
        if self.target is None:
            return self.what, measured, "", ""
        target = f"≤ {self.target:g} {self.unit}"
        if self.reference:
            measured += f", {self.value / self.reference:.2f} of an empty chat's"
            target += f", ≤ {MAX_GROWTH}"
        return self.what, measured, target, self.verdict


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest rank: with 100 values, p99 is the second largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.floor(len(ordered) * percent / 100))]


def median_row(what: str, values: Sequence[float], unit: str, target: float | None = None) -> Row:
    note = f"median of {len(values)}; {short(min(values))} to {short(max(values))}"
    return Row(what, statistics.median(values), unit, target, note)


@contextmanager
def timed(values: list[float]) -> Generator[None]:
    """Add to `values` how many ms the block takes."""
    begin = time.perf_counter()
    yield
    values.append(1000 * (time.perf_counter() - begin))


async def ms_of(action: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await action()
    return 1000 * (time.perf_counter() - begin)


def plain_ms(argv: Sequence[str], cwd: Path = ROOT) -> float:
    """How many ms the program takes as a plain subprocess."""
    begin = time.perf_counter()
    subprocess.run(argv, check=True, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return 1000 * (time.perf_counter() - begin)


# processes -----------------------------------------------------------------------------------------------------------


def _status_mb(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+)", status)[1]) / 1024


def rss_mb(pid: int) -> float:
    return _status_mb(pid, "VmRSS")


def anonymous_mb(pid: int) -> float:
    """Return the resident memory of a process without what it maps of files."""
    return _status_mb(pid, "RssAnon")


def forget_peak_mb(pid: int) -> float:
    """Have the kernel forget the largest resident size of a process; returns what it is now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return rss_mb(pid)


def peak_mb(pid: int) -> float:
    """The largest resident size since that was forgotten."""
    return _status_mb(pid, "VmHWM")


def child_pids(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def environment_in(folder: str, **more: str) -> dict[str, str]:
    """The environment of who lives in `folder`."""
    own = {
        "HOME": folder,
        "XDG_STATE_HOME": f"{folder}/state",
        "XDG_CONFIG_HOME": f"{folder}/config",
    }
    return os.environ | own | more


class Server:
    """tests/bench/server.py and what it reports."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.server"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self.process.stdout.readline().strip()}"
        self._ids = itertools.count(1)

    def words(self, kind: str, *more: int | str) -> tuple[int, str]:
        """A new id, and the prompt that asks for an answer with it."""
        answer_id = next(self._ids)
        return answer_id, " ".join(map(str, (kind, answer_id, *more)))

    def report(self, answer_id: int) -> dict[str, Any]:
        """What the server tells of an answer that it has ended."""
        for line in self.process.stdout:
            report = json.loads(line)
            if report["id"] == answer_id:
                return report
        raise EOFError("the server has ended")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


# Neovim --------------------------------------------------------------------------------------------------------------


class Screen:
    """What ext_linegrid redraw events show, and when each mark was first shown."""

    def __init__(self) -> None:
        self.rows = [[" "] * COLUMNS for _ in range(LINES)]
        self.seen: dict[str, float] = {}
        self._changed: set[int] = set()

    def text(self) -> str:
        return "\n".join(map("".join, self.rows))

    def on_notification(self, name: str, events: list[Any]) -> None:
        if name != "redraw":
            return
        now = time.monotonic()
        for event, *calls in events:
            for args in calls:
                if event == "grid_line":
                    self._draw_cells(*args[1:4])
                elif event == "grid_scroll":
                    self._scroll(*args[1:6])
                elif event == "grid_clear":
                    self.rows = [[" "] * COLUMNS for _ in range(LINES)]
                elif event == "flush":
                    self._note_marks(now)

    def _draw_cells(self, row: int, col: int, cells: list[list[Any]]) -> None:
        line = self.rows[row]
        for text, *rest in cells:
            count = rest[1] if len(rest) > 1 else 1
            line[col : col + count] = [text] * count
            col += count
        self._changed.add(row)

    def _scroll(self, top: int, bottom: int, left: int, right: int, by: int) -> None:
        moved = range(top, bottom - by) if by > 0 else range(bottom - 1, top - by - 1, -1)
        for row in moved:
            self.rows[row][left:right] = self.rows[row + by][left:right]

    def _note_marks(self, now: float) -> None:
        for row in self._changed:
            for mark in MARK.findall("".join(self.rows[row])):
                self.seen.setdefault(mark, now)
        self._changed.clear()


class BenchNvim(ChildNvim):
    """A Neovim with the plugin, whose screen is followed and whose prompt takes keys."""

    def __init__(self, home: Path, project: Path, env: dict[str, str]) -> None:
        super().__init__(home, project, env, columns=COLUMNS, lines=LINES)
        self.screen_seen = Screen()
        self.rpc._on_notification = self.screen_seen.on_notification
        self.command("mode")  # draws everything again
        self._typed = ""
        self._echo_at = (0, 0)

    def wait(self, condition: Callable[[], Any], what: str, deadline_s: float = 60.0) -> float:
        """Follow the screen until `condition`; return when that was."""
        end = time.monotonic() + deadline_s
        while not condition():
            self.rpc.pump(0.1)
            assert time.monotonic() < end, (
                f"not within {deadline_s} s: {what}\n{self.screen_seen.text()}"
            )
        return time.monotonic()

    def wait_for_mark(self, mark: str) -> float:
        self.wait(lambda: mark in self.screen_seen.seen, mark)
        return self.screen_seen.seen[mark]

    def wait_for_text(self, text: str) -> float:
        return self.wait(lambda: text in self.screen_seen.text(), text)

    def follow(self, until: float) -> None:
        while (left := until - time.monotonic()) > 0:
            self.rpc.pump(left)

    def open_prompt(self) -> None:
        """Open the chat and begin to write in its prompt."""
        self.command("AgentChat")
        self.begin_to_type()

    def begin_to_type(self) -> None:
        self.feed("<Esc>cc")
        self._echo_at = self.lua(
            "local p = vim.fn.screenpos(0, 1, 1) return { p.row - 1, p.col - 1 }"
        )
        self._typed = ""

    def echo_s(self) -> float:
        """Type one more key into the prompt; return how long it took to be on the screen."""
        row, col = self._echo_at
        if len(self._typed) == MAX_TYPED:
            self.feed("<C-u>")
            self.wait(
                lambda: "Ask anything" in "".join(self.screen_seen.rows[row][col:]), "placeholder"
            )
            self._typed = ""
        at = col + len(self._typed)
        key = "abcdefghijkm"[len(self._typed) % 12]
        start = time.monotonic()
        request = self.rpc.send("nvim_input", key)
        end = self.wait(lambda: self.screen_seen.rows[row][at] == key, f"echo of {key}")
        self._typed += key
        self.rpc.answer(request)
        return end - start

    def write(self, words: str) -> None:
        """Leave `words` in the prompt, in normal mode, for a `<CR>`."""
        self.feed("<Esc>cc" + words + "<Esc>")
        self.wait_for_text(words)
        self.follow(time.monotonic() + 0.1)

    def wait_until_idle(self) -> None:
        wait_until(
            lambda: self.lua("return require('sanderling').statusline()").startswith(
                "Sanderling: idle"
            ),
            "the turn ends",
        )

    def answer_to(self, words: str, answer_id: int) -> None:
        """Have `words` answered to the end, however long that takes."""
        self.submit(words)
        self.wait_for_mark(f"end{answer_id:06}")
        self.wait_until_idle()


class Bench:
    """What a group of measurements is given."""

    def __init__(self, server: Server, *, is_quick: bool) -> None:
        self.server = server
        self.is_quick = is_quick

    def times(self, count: int) -> range:
        return range(3 if self.is_quick else count)

    @contextmanager
    def nvim(self, env: dict[str, str] | None = None) -> Iterator[BenchNvim]:
        """A fresh Neovim, in a home of its own, that asks the benchmark's server."""
        if env is None:
            env = {
                "ANTHROPIC_API_KEY": "bench",
                "ANTHROPIC_BASE_URL": self.server.url,
                "NO_PROXY": "*",
            }
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            home, project = Path(folder, "home"), Path(folder, "project")
            home.mkdir()
            (project / ".git").mkdir(parents=True)
            nvim = BenchNvim(home, project, env)
            nvim.setup(max_calls=0)  # nobody is here to be asked
            try:
                yield nvim
            finally:
                children = child_pids(nvim.pid)
                nvim.close()
                # A host that still imports would disturb the next measurement.
                wait_until(lambda: not any(map(is_alive, children)), "the host ends")

    @contextmanager
    def warm_nvim(self) -> Iterator[BenchNvim]:
        """A Neovim in whose chat a prompt has been answered."""
        with self.nvim() as nvim:
            nvim.open_prompt()
            answer_id, words = self.server.words("stream", 3, 0)
            nvim.answer_to(words, answer_id)
            yield nvim

    @contextmanager
    def bare_client(self) -> Generator[Callable[[int], tuple[float, float, float]]]:
        """
        The bare SDK, warm, in a process of its own.

        It asks for an answer of so many deltas, and returns the seconds to the server, to the first event, to the last.
        """
        argv = [sys.executable, "-m", "tests.bench.bare_client", self.server.url]
        pipe = subprocess.PIPE
        with subprocess.Popen(argv, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
            assert process.stdin
            assert process.stdout
            asked, told = process.stdin, process.stdout

            def ask(deltas: int) -> tuple[float, float, float]:
                answer_id, words = self.server.words("stream", deltas, 0)
                print(words, file=asked, flush=True)
                begin, first, last = map(float, told.readline().split())
                return self.server.report(answer_id)["at"] - begin, first - begin, last - begin

            ask(3)
            yield ask
