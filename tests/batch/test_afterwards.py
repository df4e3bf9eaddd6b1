"""What follows a batch: its report, the comparison of two, and the patches applied."""

import os
import pty
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sanderling.batch.applying import patches_of
from sanderling.batch.report import as_html, as_markdown
from sanderling.batch.results import Result
from sanderling.batch.statistics import (
    compared,
    pass_all,
    pass_at,
    pass_rate,
    sign_test,
    wilson,
)
from tests.batch.batches import Batches, bash, git
from tests.conftest import prove_unless_quick, quick

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]


def result(task_id: str, reward: float | None, **more: Any) -> Result:
    values: dict[str, Any] = {"hash": "h", "state": "completed", "cost": 0.1, "tokens": 100} | more
    return Result(id=task_id, reward=reward, **values)


@quick
def test_the_interval_is_that_of_wilson():
    rate = wilson(8, 10)
    assert (rate.share, round(rate.low, 4), round(rate.high, 4)) == (0.8, 0.4902, 0.9433)
    assert (wilson(0, 20).low, round(wilson(0, 20).high, 4)) == (0, 0.1611)
    assert (round(wilson(5, 5).low, 4), wilson(5, 5).high) == (0.5655, 1)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0, 1)


@quick
def test_repetitions_of_a_task_count_once():
    results = [result("a", 1, attempt=n) for n in range(1, 10)] + [
        result("b", 0),
        result("c", None),
    ]
    rate = pass_rate(results)
    assert (rate.share, rate.tasks) == (0.5, 2)


@pytest.mark.parametrize(
    "better, worse, p", [(0, 0, 1), (5, 5, 1), (5, 0, 0.0625), (8, 1, 0.0390625), (0, 6, 0.03125)]
)
@quick
def test_the_sign_test_is_exact(better, worse, p):
    assert sign_test(better, worse) == pytest.approx(p)


@quick
def test_only_unchanged_tasks_with_rewards_are_compared():
    first = [result("a", 0), result("b", 1), result("c", 1), result("d", None), result("e", 1)]
    second = [result("a", 1), result("b", 1), result("c", 0, hash="other"), result("d", 1)]
    found = compared(first, second)
    assert list(found.pairs) == ["a", "b"]
    assert (found.better, found.worse, found.same, found.left_out) == (1, 0, 1, 3)


def repeated(task_id: str, *rewards: float | None) -> list[Result]:
    return [result(task_id, reward, attempt=n) for n, reward in enumerate(rewards, 1)]


@pytest.mark.parametrize(
    "first, second, difference",
    [
        ((0.1, 0.2, 0.3), (0.3, 0.2, 0.1), 0),
        ((0.1,), (0.1, 0.1, 0.1), 0),
        ((1, 0), (1, 0, 1, 0), 0),
        ((1, None), (1,), 0),
        ((1, 0), (1, 0, 1), 1),
        ((1, 0, 0), (0, 0), -1),
    ],
)
@quick
def test_repetitions_are_compared_by_their_mean_whatever_their_number_and_order(
    first, second, difference
):
    found = compared(repeated("a", *first), repeated("a", *second))
    assert (found.better, found.worse) == (difference > 0, difference < 0)
    assert found.same == (difference == 0)


@pytest.mark.parametrize(
    "passed, repeats, count, at, every",
    [(1, 3, 3, 1, 0), (3, 3, 3, 1, 1), (0, 3, 3, 0, 0), (1, 4, 2, 0.5, 0), (3, 4, 2, 1, 0.5)],
)
@quick
def test_repetitions_say_how_probable_one_and_all_passes_are(passed, repeats, count, at, every):
    results = [result("a", float(n < passed), attempt=n + 1) for n in range(repeats)]
    results += [result("few", 1), result("none", None)]
    assert (pass_at(results, count).share, pass_at(results, count).tasks) == (at, 1)
    assert pass_all(results, count).share == every


@quick
def test_a_report_of_repetitions_has_their_rates():
    results = [result("a", 1, attempt=1), result("a", 0, attempt=2)]
    text = as_markdown(results)
    assert re.search(r"pass@2 +\| +100.0% of 1", text)
    assert re.search(r"pass\^2 +\| +0.0% of 1", text)
    assert "pass@" not in as_markdown(results[:1])


@quick
def test_a_report_shows_names_as_text_and_is_well_formed():
    hostile = "<script>alert(1)</script>|x\x1b[31m"
    results = [
        result(hostile, 1, state="error", reason="a | b"),
        result("b", 0.5, cost=None),
        result("c", None, state="unsupported", cost=0.0, tokens=0),
    ]
    page = as_html(results)
    assert "<script>" not in page
    assert "\x1b" not in page
    assert page.count("<table>") == 3
    assert metadata.version("pytest")  # a library for plots replaces how these are found
    text = as_markdown(results)
    table = text.split("## Trials\n\n")[1].splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "50.0% of 2 (95 % interval 9.5% to 90.5%)" in text


def run(home: Batches, **tasks: str) -> None:
    home.write_tasks(
        *(
            {"id": name, "project": name, "prompt": f"Do {name}.", "check": check}
            for name, check in tasks.items()
        )
    )
    done, _ = home.play([bash("echo new >> f; echo made > made")], DONE)
    assert done.returncode == 0, done.stderr


def test_patches_with_a_reward_are_applied_to_their_projects_once(home: Batches):
    home.repository("good", f="old\n")
    home.repository("bad", f="old\n")
    home.directory("plain", f="old\n")
    run(home, good="true", bad="false", plain="true")
    done = home.batch("apply", str(home.out), "--min-reward", "1", "--yes")
    assert done.returncode == 0, done.stderr
    changed = {name: (home.project / name / "f").read_text() for name in ("good", "bad", "plain")}
    assert changed == {"good": "old\nnew\n", "bad": "old\n", "plain": "old\nnew\n"}
    assert git(home.project / "good", "status", "--short") == " M f\n?? made\n"
    again = home.batch("apply", str(home.out), "--min-reward", "1", "--yes")
    assert again.returncode == 0
    assert again.stdout.count("already applied") == 2
    assert again.stderr == "sanderling: 2 applied, 0 left\n"


@pytest.mark.parametrize(
    "rewards, min_reward, chosen",
    [
        ((0, 1, 0.5), None, 2),
        ((0, 1, 0.5), 1, 2),
        ((1, 1, 1), None, 1),
        ((None, 0, None), None, 2),
        ((None, None), None, 1),
        ((None, 0.9), 1, None),
    ],
)
@quick
def test_of_several_repetitions_the_first_with_the_best_reward_is_applied(
    tmp_path: Path, rewards, min_reward, chosen
):
    results = [msgspec.structs.replace(each, patch=True) for each in repeated("a", *rewards)]
    for order in (results, results[::-1]):
        found = [each.result.attempt for each in patches_of(tmp_path, order, min_reward)]
        assert found == ([chosen] if chosen else [])
    without = [msgspec.structs.replace(each, patch=False) for each in results]
    assert list(patches_of(tmp_path, without, min_reward)) == []


@pytest.mark.guard
def test_a_patch_that_does_not_fit_changes_nothing(home: Batches):
    home.repository("p", f="old\n")
    run(home, p="true")
    (home.project / "p" / "f").write_text("other\n")
    done = home.batch("apply", str(home.out), "--yes")
    assert done.returncode == 1
    assert "patch does not apply" in done.stderr
    assert "sanderling: 0 applied, 1 failed, 0 left\n" in done.stderr
    assert (home.project / "p" / "f").read_text() == "other\n"
    assert not (home.project / "p" / "made").exists()


def test_applying_renames_and_modes_and_binary_files_equals_the_agents_work(home: Batches):
    repository = home.repository("p", old="text\n", script="#!/bin/sh\n", gone="x\n")
    (repository / "picture").write_bytes(bytes(range(256)))
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=Picture")
    home.write_tasks({"id": "p", "project": "p", "prompt": "Do."})
    work = r"mv old 'new name'; chmod +x script; rm gone; printf 'a\0b' > picture; ln -s script link; mkdir -p d/e; touch d/e/empty"
    home.play([bash(work)], DONE)
    done = home.batch("apply", str(home.out), "--yes")
    assert done.returncode == 0, done.stderr
    names = {path.name for path in repository.iterdir()}
    assert names == {".git", "new name", "script", "picture", "link", "d"}
    assert os.access(repository / "script", os.X_OK)
    assert (repository / "picture").read_bytes() == b"a\0b"
    assert (repository / "link").readlink().name == "script"
    assert (repository / "d" / "e" / "empty").read_bytes() == b""


def test_a_directory_inside_another_repository_gets_its_own_paths(home: Batches):
    repository = home.repository("outer", f="outer\n", __gitignore="inner\n")
    home.directory("outer/inner", f="inner\n")
    run(home, **{"outer/inner": "true"})
    home.batch("apply", str(home.out), "--yes")
    assert (repository / "inner" / "f").read_text() == "inner\nnew\n"
    assert (repository / "f").read_text() == "outer\n"


def on_terminal(home: Batches, answers: str, *arguments: str) -> tuple[int, str]:
    """Run the command on a terminal, and type the answers when it asks."""
    ours, theirs = pty.openpty()
    process = home.launch("batch", *arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    for number, answer in enumerate(answers, 1):
        while output.count(b"Apply?") < number:
            output += os.read(ours, 1 << 16)
        os.write(ours, f"{answer}\n".encode())
    try:
        while chunk := os.read(ours, 1 << 16):
            output += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    return process.wait(), output.decode()


def test_apply_asks_about_each_patch_and_shows_it_before(home: Batches):
    for name in ("a", "b", "c"):
        home.repository(name, f="old\n")
    run(home, a="true", b="true", c="true")
    refused = home.batch("apply", str(home.out))
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    status, output = on_terminal(home, "nyq", "apply", str(home.out))
    assert status == 0
    assert output.index("+new") < output.index("Apply?")
    changed = {name: (home.project / name / "f").read_text() for name in ("a", "b", "c")}
    assert changed == {"a": "old\n", "b": "old\nnew\n", "c": "old\n"}


def test_apply_opens_the_patch_in_neovim_and_asks_afterwards(home: Batches):
    home.repository("p", f="old\n")
    home.write_tasks({"id": "p", "project": "p", "prompt": "Do."})
    home.play([bash("echo added >> f")], DONE)
    ours, theirs = pty.openpty()
    arguments = ("batch", "apply", str(home.out), "--open")
    process = home.launch(*arguments, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    while b"+added" not in output:
        output += os.read(ours, 1 << 16)
    shown = home.folder / "shown"
    os.write(ours, f":call writefile([&readonly, &modeline], '{shown}') | q\r".encode())
    while b"Apply?" not in output:
        output += os.read(ours, 1 << 16)
    os.write(ours, b"y\n")
    assert process.wait() == 0
    os.close(ours)
    assert shown.read_text().split() == ["1", "0"]
    assert "added" in (home.project / "p" / "f").read_text()


def test_two_runs_are_compared_task_by_task(home: Batches):
    for name in ("a", "b"):
        home.repository(name, f="old\n")
    run(home, a="grep -q new f", b="grep -q new f")
    other = home.project / "other"
    model = home.write_script(DONE)
    home.batch(str(home.tasks), "-o", str(other), "--model", model)
    done = home.batch("compare", str(home.out), str(other))
    assert done.returncode == 0, done.stderr
    assert "2 tasks in both: 0 better in 2, 2 worse, 0 the same" in done.stdout
    assert "sign test: p = 0.5" in done.stdout
    assert re.search(r"\| a +\| +1 \| +0 \| +-1 ", done.stdout)


def test_a_comparison_counts_ties_and_names_what_it_left_out(home: Batches):
    runs = {
        "one": [result("a", 1), result("tie", 0), result("gone", 1), result("none", None)],
        "two": [*repeated("a", 1, 0), result("tie", 0), result("new", 1), result("none", None)],
        "other": [result("x", 1)],
    }
    for name, results in runs.items():
        (home.project / name).mkdir()
        lines = b"".join(msgspec.json.encode(each) + b"\n" for each in results)
        (home.project / name / "results.jsonl").write_bytes(lines)
    done = home.batch("compare", "one", "two")
    assert done.returncode == 0, done.stderr
    assert "2 tasks in both: 0 better in 2, 1 worse, 1 the same" in done.stdout
    assert "3 tasks left out: changed, in one run only, or without a reward" in done.stdout
    assert "sign test: p = 1: no difference" in done.stdout
    assert re.search(r"\| a +\| +1 \| +0\.5 \| +-0\.5 ", done.stdout)
    assert "tie" not in done.stdout
    done = home.batch("compare", "one", "other")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no task has a reward in both runs" in done.stderr
    done = home.batch("compare", "one")
    assert "compare needs 2 directories" in done.stderr


def test_reports_are_files_in_the_directory_of_results(home: Batches):
    home.repository("p", f="old\n")
    run(home, p="true")
    for form in ("html", "md"):
        done = home.batch("report", str(home.out), "--report", form)
        assert done.returncode == 0, done.stderr
        assert "100.0%" in (home.out / f"report.{form}").read_text()
    assert "Pass rate" in home.batch("report", str(home.out)).stdout
    assert home.batch("report", str(home.project)).returncode == 2
