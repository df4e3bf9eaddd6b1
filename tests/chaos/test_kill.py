"""
A host that is killed with SIGKILL at a random moment, again and again, and a session that goes on each time.

The model's server has its own record: whatever it was sent once, it must be sent again, byte for byte, in front of what is new.
"""

import json
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sanderling.protocol.messages import Prompt
from sanderling.session.history import UNKNOWN_OUTCOME
from tests.cached_api import Body, CachedApi, Content, text, thought, use
from tests.chaos.forks import Forks
from tests.chaos.host import Run
from tests.conftest import prove
from tests.fuzz import IS_FULL

pytestmark = pytest.mark.guard

KILLS = 200 if IS_FULL else 6
KILLS_PER_SESSION = 3
CONFINED_EACH = 5  # sessions: the sandbox takes a while to open
LONGER, SHORTER = (
    1.05,
    0.9,
)  # how long a host lives at most: so that two of three are killed before they are done
ROUNDS = 2  # of tools in a turn
EVENT_PAUSE_S = 0.002
ANSWER = "It is done as far as it can be; the list says what is left. " * 3


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    more = {"ANTHROPIC_API_KEY": "sk-ant-test", "NO_PROXY": "*"}
    hosts = Forks("tests.chaos.host", tmp_path_factory.mktemp("home"), more)
    yield hosts
    hosts.close()


class Model:
    """Answers each prompt with some rounds of tools, and then with words; no tool use has an id that was there before."""

    def __init__(self) -> None:
        self.count = 0

    def answer(self, body: Body) -> Content:
        self.count += 1
        if _rounds(body["messages"]) >= ROUNDS:
            return [thought("That was it."), text(ANSWER)]
        use_id = f"bash_{self.count}"
        items = [{"content": f"Step {self.count}", "status": "in_progress"}]
        return [
            thought(f"Step {self.count}: the command first."),
            text("I run it."),
            use(use_id, "bash", command=f"echo {use_id} >> runs.txt; sleep 0.01"),
            use(f"todo_{self.count}", "todo", items=items),
            use(f"read_{self.count}", "read", path="notes.txt"),
        ]


def _rounds(messages: Sequence[dict[str, Any]]) -> int:
    """How often tools have answered since the person has spoken."""
    rounds = 0
    for message in reversed(messages):
        kinds = {block["type"] for block in message["content"]}
        if message["role"] == "user" and "tool_result" not in kinds:
            break
        rounds += "tool_result" in kinds
    return rounds


def run_of(folder: Path, api: CachedApi, number: int, *, is_confined: bool) -> Run:
    prompts = [Prompt(f"p{number}.{each}", f"Run {number}, prompt {each}.") for each in range(2)]
    steered = Prompt(f"s{number}", f"Run {number}, meanwhile.")
    return Run(str(folder), api.url, tuple(prompts), steered, is_confined)


def check(folder: Path, api: CachedApi) -> None:
    """No word is lost and no command ran twice; of each the model is told what is known."""
    assert api.refused == []
    assert api.changes == [], "what the model was sent is what it is sent again"
    messages = api.asked[-1].request["messages"]
    blocks = [block for message in messages for block in message["content"]]
    told = Counter(block["text"] for block in blocks if block["type"] == "text")
    said = (folder / "said").read_text().splitlines()
    assert {words: told[words] for words in said} == dict.fromkeys(said, 1), "said once, told once"
    results = {b["tool_use_id"]: b["content"] for b in blocks if b["type"] == "tool_result"}
    for use_id, runs in Counter((folder / "project" / "runs.txt").read_text().split()).items():
        assert runs == 1, f"{use_id} ran {runs} times"
        told_of_run = results[use_id]
        assert told_of_run == UNKNOWN_OUTCOME or "exit status 0" in told_of_run, told_of_run
    (log,) = (folder / "state" / "sessions").glob("*.jsonl")
    started = [
        record["tool_use_id"]
        for record in map(json.loads, log.read_bytes().splitlines())
        if record["type"] == "tool_started"
    ]
    assert len(started) == len(set(started))


@prove
def test_a_host_may_be_killed_at_any_moment(hosts, tmp_path):
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    longest_s = 1.0
    kills, session = 0, 0
    while kills < KILLS:
        folder = tmp_path / f"session{session}"
        (folder / "project").mkdir(parents=True)
        (folder / "project" / "notes.txt").write_text("A note.\n")
        (folder / "project" / "runs.txt").touch()
        is_confined = session % CONFINED_EACH == 0
        with CachedApi(Model().answer, event_pause_s=EVENT_PAUSE_S) as api:
            for number in range(KILLS_PER_SESSION):
                run = run_of(folder, api, number, is_confined=is_confined)
                status = hosts.end(hosts.begin(run), chance.uniform(0, longest_s))
                assert status in (0, -signal.SIGKILL), f"session {session}, seed {seed}"
                kills += status != 0
                longest_s *= LONGER if status else SHORTER
            last = run_of(folder, api, KILLS_PER_SESSION, is_confined=is_confined)
            assert hosts.end(hosts.begin(last), None) == 0, f"session {session}, seed {seed}"
            check(folder, api)
        session += 1
