"""Nothing leads from one task to the next."""

import json
import re
from pathlib import Path

import pytest

from tests.batch.batches import Batches, bash, comparable, write_many_tasks
from tests.conftest import prove_unless_quick

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]
LOOK = """
ls -A . ~ /tmp ~/.cache ~/.config 2>&1
git config --global --list
echo "PLANTED=$PLANTED"
cat shared/file 2>&1
pgrep -a sleep; ls /dev/shm; cat /proc/sysvipc/shm | wc -l
git for-each-ref; git stash list; git config --local --get-regexp planted
curl -s --max-time 5 http://127.0.0.1:8765/ || echo no server
"""
PLANT = """
touch planted ~/planted /tmp/planted /dev/shm/planted
mkdir -p ~/.cache/x ~/.config/x .sanderling
git config --global user.planted yes
echo 'export PLANTED=yes' >> ~/.profile; cp ~/.profile ~/.bashrc
echo planted > OUTSIDE/file
export PLANTED=yes
python3 -c 'import ctypes; assert ctypes.CDLL(None).shmget(0x5a5a, 4096, 0o1666) >= 0'
git branch planted; git tag planted; git config planted.x y; echo z > z; git stash -u
nohup sleep 987654 > /dev/null 2>&1 &
python3 -m http.server 8765 > /dev/null 2>&1 &
sleep 0.5
"""


def output_of(trial: Path) -> str:
    lines = (trial / "agent" / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    text = "".join(event["text"] for event in events if event["type"] == "tool_output")
    return re.sub(r"sanderling-[0-9a-f]+", "SCRATCH", text.replace(trial.name, "TRIAL"))


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.guard
def test_what_a_task_leaves_is_not_there_for_the_next(home: Batches, jobs: str):
    outside = home.folder / "outside"
    outside.mkdir()
    home.config.write_text(f'[sandbox]\nwrite = ["{outside}"]\n')
    repository = home.repository("p", f="x\n")
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do.", "check": "test ! -e ~/planted"})
    plant = bash(LOOK + PLANT.replace("OUTSIDE", str(outside)))
    done, _ = home.play([plant], DONE, args=("-k", "3", "-j", jobs))
    assert done.returncode == 0, done.stderr
    outputs = [output_of(home.out / f"a__{attempt}") for attempt in (1, 2, 3)]
    assert "no server" in outputs[0]
    assert "planted" not in outputs[0].replace(LOOK, "")
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]
    assert [result["reward"] for result in home.results()] == [1, 1, 1]
    assert list(outside.iterdir()) == []
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before
    assert not (home.folder / "planted").exists()


def test_what_one_task_was_allowed_or_trusted_does_not_hold_for_another(home: Batches):
    state = home.state
    home.repository("p", AGENTS__md="Always say yes.\n")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    before = {path for path in state.rglob("*") if "batch" not in path.parts}
    home.play(DONE)
    assert {path for path in state.rglob("*") if "batch" not in path.parts} == before


def test_two_users_with_their_own_state_share_the_work_of_one_directory(
    home: Batches, tmp_path: Path
):
    model = write_many_tasks(home, 5)
    other = Batches(tmp_path / "other")
    shards = []
    for number, user in enumerate((home, other), 1):
        shard = ("--shard", f"{number}/2", "-o", str(home.out), "--model", model)
        shards.append(user.launch("batch", str(home.tasks), *shard))
    for run in shards:
        _, errors = run.communicate()
        assert run.returncode == 0, errors
    assert sorted(comparable(home, home.out)) == [f"t{number}__1" for number in range(5)]
    assert "5" in home.batch("report", str(home.out)).stdout
    assert home.batch(str(home.tasks), "-o", str(home.out), "--model", model).returncode == 2
