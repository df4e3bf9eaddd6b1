"""Two users with state directories of their own, as two machines: they share the tasks, which they cannot write, and nothing else."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.batch.batches import Batches, comparable, write_many_tasks
from tests.conftest import ROOT, prove_unless_quick
from tests.sandbox.child import in_child

pytestmark = prove_unless_quick
USERS = 12_345, 12_346
TASKS = 6
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON = shutil.which(f"python3.{sys.version_info.minor}", path=SYSTEM_PATH) or ""


class Machine(Batches):
    """The home of a user, which other users may look into, as distributions make it."""

    python = PYTHON

    def __init__(self, folder: Path, uid: int) -> None:
        folder.mkdir()
        super().__init__(folder)
        self.uid = uid
        paths = (str(ROOT / "src"), sysconfig.get_path("platlib"))
        self.environment |= {"PYTHONPATH": ":".join(paths), "PATH": SYSTEM_PATH}
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid)

    def launch(self, *args: str, **streams: Any) -> subprocess.Popen[str]:
        return super().launch(
            *args, user=self.uid, group=self.uid, extra_groups=[], umask=0o022, **streams
        )


@pytest.fixture
def place() -> Iterator[Path]:
    if os.geteuid() != 0 or not PYTHON:
        pytest.skip("takes root, to become other users, and a system's Python of this version")
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def readable_files(directory: Path) -> list[str]:
    """Return the files below the directory that this process can read. One that cannot be listed has none."""
    return [
        str(Path(here, name))
        for here, _, names in os.walk(directory)
        for name in names
        if os.access(Path(here, name), os.R_OK)
    ]


def test_two_users_share_the_work_and_cannot_read_each_others_results(place: Path):
    (place / "shared").mkdir()
    shared = Batches(place / "shared")
    model = write_many_tasks(shared, TASKS)
    machines = [Machine(place / f"user{uid}", uid) for uid in USERS]
    tasks = (str(shared.tasks), "--model", model, "-j", "2")
    runs = [
        each.launch("batch", *tasks, "-o", str(each.out), "--shard", f"{number}/2")
        for number, each in enumerate(machines, 1)
    ]
    for run in runs:
        _, errors = run.communicate()
        assert run.returncode == 0, errors
    found = [comparable(each, each.out) for each in machines]
    assert all(0 < len(part) < TASKS for part in found)
    whole = place / f"user{USERS[0]}" / "here" / "whole"
    assert machines[0].batch(*tasks, "-o", str(whole)).returncode == 0
    assert found[0] | found[1] == comparable(machines[0], whole)
    assert found[0].keys().isdisjoint(found[1])
    for reader, owner in (machines, machines[::-1]):
        assert in_child(lambda out=owner.out: readable_files(out), owner.uid)
        assert in_child(lambda out=owner.out: readable_files(out), reader.uid) == []
        assert in_child(lambda state=owner.state: readable_files(state), reader.uid) == []
