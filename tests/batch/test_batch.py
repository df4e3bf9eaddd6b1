"""`sanderling batch` as a process: tasks of JSON lines and of directories, with a scripted model."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from sanderling.batch.results import RunSettings, check_settings
from sanderling.errors import UsageError
from tests.batch.batches import Batches, bash, git
from tests.conftest import is_alive, prove_unless_quick, quick, wait_until

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]


@quick
def test_a_patch_has_what_the_task_changed_created_and_removed_in_any_file(home: Batches):
    home.repository("project", changed="old\n", removed="x\n")
    home.write_tasks({"id": "a", "project": "project", "prompt": "Change it."})
    command = (
        r"echo new > changed; rm removed; mkdir d; printf '\0\1' > d/binary; chmod +x d/binary"
    )
    done, results = home.play([bash(command)], DONE)
    assert done.returncode == 0, done.stderr
    assert results["a"]["state"] == "completed"
    assert results["a"]["patch"]
    fresh = home.folder / "fresh"
    git(home.folder, "clone", "--quiet", str(home.project / "project"), str(fresh))
    git(fresh, "am", "--quiet", str(home.patch("a")))
    assert (fresh / "changed").read_text() == "new\n"
    assert not (fresh / "removed").exists()
    assert (fresh / "d" / "binary").read_bytes() == b"\0\1"
    assert os.access(fresh / "d" / "binary", os.X_OK)
    assert git(home.project / "project", "status", "--short") == ""


def test_a_task_sees_uncommitted_changes_and_new_files_but_no_ignored_ones(home: Batches):
    project = home.repository("project", f="committed\n", gone="x", __gitignore="ignored\n")
    (project / "f").write_text("uncommitted\n")
    (project / "new").write_text("new\n")
    (project / "ignored").write_text("ignored\n")
    (project / "gone").unlink()
    home.write_tasks(
        {"id": "a", "project": "project", "prompt": "Look.", "check": "ls -A; cat f new"}
    )
    _, results = home.play(DONE)
    assert not results["a"]["patch"]
    output = (home.out / "a__1" / "verifier" / "test-stdout.txt").read_text().split()
    assert output == [".git", ".gitignore", "f", "new", "uncommitted", "new"]


def test_a_directory_outside_of_repositories_is_copied_with_its_links(home: Batches):
    project = home.directory("plain", f="text\n")
    (project / "link").symlink_to("f")
    (project / "nowhere").symlink_to("missing")
    os.mkfifo(project / "pipe")
    home.write_tasks({"id": "a", "project": "plain", "prompt": "Do.", "check": "cat link; ls -A"})
    _, results = home.play([bash("echo more >> f")], DONE)
    assert results["a"]["reward"] == 1
    output = (home.out / "a__1" / "verifier" / "test-stdout.txt").read_text().split()
    assert output == ["text", "more", "f", "link", "nowhere"]
    assert (project / "f").read_text() == "text\n"
    assert "+more" in home.patch("a").read_text()


def test_a_repository_is_used_at_the_revision_that_the_task_names(home: Batches):
    repository = home.repository("source", f="first\n")
    first = git(repository, "rev-parse", "HEAD").strip()
    (repository / "f").write_text("second\n")
    git(repository, "commit", "--quiet", "--all", "--message=Second")
    home.write_tasks(
        {"id": "first", "repository": "source", "revision": first, "prompt": "1", "check": "cat f"},
        {"id": "url", "repository": repository.as_uri(), "prompt": "2", "check": "cat f"},
        {"id": "none", "repository": "source", "revision": "nonsense", "prompt": "3"},
    )
    done, results = home.play(DONE)
    assert done.returncode == 3
    outputs = {
        name: (home.out / f"{name}__1" / "verifier" / "test-stdout.txt").read_text()
        for name in ("first", "url")
    }
    assert outputs == {"first": "first\n", "url": "second\n"}
    assert results["none"]["state"] == "setup_error"
    assert "has no revision 'nonsense'" in results["none"]["reason"]
    assert results["none"]["exit"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to give a file away")
def test_a_repository_of_another_user_is_copied_as_files_or_refused(home: Batches):
    repository = home.repository("source", f="old\n")
    for path in (repository, *repository.rglob("*")):
        os.chown(path, 12_345, 12_345)
    home.write_tasks(
        {"id": "files", "project": "source", "prompt": "1", "check": "grep -q new f"},
        {"id": "clone", "repository": "source", "prompt": "2"},
    )
    _, results = home.play([bash("echo new >> f")], DONE)
    assert (results["files"]["state"], results["files"]["reward"]) == ("completed", 1)
    assert re.findall(r"^diff --git a/(\S+)", home.patch("files").read_text(), re.MULTILINE) == [
        "f"
    ]
    assert results["clone"]["state"] == "setup_error"
    assert "belongs to another user: copy it first" in results["clone"]["reason"]


def test_each_makes_a_task_of_each_directory_and_a_package_writes_only_itself(home: Batches):
    repository = home.repository("mono")
    for name in ("one", "two"):
        (repository / "packages" / name).mkdir(parents=True)
        (repository / "packages" / name / "f").write_text(f"{name}\n")
    (repository / "packages" / "file").touch()
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=Packages")
    prompt = home.project / "prompt.md"
    prompt.write_text("Change the package.\n")
    model = home.write_script(
        [bash("x=$(cat ../two/f); echo $x > f; echo x > ../file; echo y > ../../z")], DONE
    )
    arguments = ("--each", "mono/packages/*", "--prompt", str(prompt), "--check", "test -s f")
    done = home.batch(*arguments, "-o", str(home.out), "-j", "2", "--model", model)
    results = {result["id"]: result for result in home.results()}
    assert done.returncode == 0, done.stderr
    assert results.keys() == {"mono/packages/one", "mono/packages/two"}
    patch = (home.out / results["mono/packages/one"]["trial"] / "changes.patch").read_text()
    assert re.findall(r"^diff --git a/(\S+)", patch, re.MULTILINE) == ["packages/one/f"]
    assert not results["mono/packages/two"]["patch"]


def test_the_check_gives_the_reward_and_its_time_does_not_count_for_the_agent(home: Batches):
    home.directory("p", f="x")
    task = {"project": "p", "prompt": "Do."}
    home.write_tasks(
        task | {"id": "good", "check": "test -e made"},
        task | {"id": "bad", "check": "echo why; exit 7"},
        task | {"id": "none"},
        task | {"id": "late", "check": "sleep 60", "limits": {"check_time_s": 0.5}},
    )
    _, results = home.play([bash("touch made")], DONE)
    rewards = {name: (result["state"], result["reward"]) for name, result in results.items()}
    assert rewards == {
        "good": ("completed", 1),
        "bad": ("completed", 0),
        "none": ("completed", None),
        "late": ("check_timeout", None),
    }
    assert (home.out / "bad__1" / "verifier" / "test-stdout.txt").read_text() == "why\n"
    assert results["late"]["checking"] >= 0.5


def test_a_timeout_a_limit_and_an_error_are_no_failures_of_the_check(home: Batches):
    home.directory("p", f="x")
    task = {"project": "p", "prompt": "Do.", "check": "test -e made"}
    home.write_tasks(
        task | {"id": "late", "limits": {"time_s": 2}},
        task | {"id": "calls", "limits": {"calls": 1}},
    )
    _, results = home.play([bash("touch made")], [{"delay_ms": 60_000}, *DONE])
    assert (results["late"]["state"], results["late"]["reward"]) == ("timeout", 1)
    assert (results["calls"]["state"], results["calls"]["reward"]) == ("limit", 1)
    args = ("-o", str(home.project / "other"), "--model", "demo", "--role", "nobody")
    done = home.batch(str(home.tasks), *args)
    assert done.returncode == 3
    for result in home.results(home.project / "other"):
        assert (result["state"], result["reward"]) == ("error", None)
        assert "nobody" in result["reason"]


def test_a_result_counts_what_the_agent_used_asked_and_was_denied(home: Batches):
    home.directory("p", f="x")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    used = {"usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 3}}
    script = {
        "version": 1,
        "reply": [
            {"step": [bash("curl http://localhost:1; git push", "toolu_1")], **used},
            {"step": DONE, **used},
        ],
    }
    home.script.write_text(json.dumps(script))
    model = f"script:{home.script}"
    arguments = (str(home.tasks), "-o", str(home.out), "--model", model, "--mode", "ask")
    home.batch(*arguments)
    [result] = home.results()
    assert result["tokens"] == 36
    assert result["calls"] == 2
    assert result["questions"] == result["denials"] == 1
    assert result["exit"] == 3


@pytest.mark.parametrize(
    "line, words",
    [
        ('{"id": "a", "prompt": "x"}', "needs either `project` or `repository`"),
        ('{"id": "a", "prompt": "x", "project": "p", "repository": "r"}', "needs either"),
        ('{"id": "a", "prompt": "x", "project": "p", "revision": "r"}', "needs a `repository`"),
        ('{"id": "a", "prompt": "", "project": "p"}', "prompt"),
        ('{"id": "a", "prompt": "x", "project": "p", "extra": 1}', "unknown field `extra`"),
        ('{"id": "a", "prompt": "x", "project": "p", "limits": {"time_s": -1}}', "time_s"),
        ('{"id": "a", "prompt": " ", "project": "p"}', "`prompt` is blank"),
        ('{"id": "a\\u0000", "prompt": "x", "project": "p"}', "cannot be shown"),
        ('{"id": " ", "prompt": "x", "project": "p"}', "`id` is blank"),
        ('{"id": "' + 300 * "a" + '", "prompt": "x", "project": "p"}', "<= 200"),
        ('{"id": "a", "prompt": "x", "project": "p\\u0000"}', "null"),
        ('{"id": "a", "prompt": "x", "project": "~nobody-of-this-name/p"}', "home directory"),
        ('{"id": "first", "prompt": "x", "project": "p"}', "occurs twice, first in line 1"),
        ('{"id": "\udcff", "prompt": "x", "project": "p"}', "utf-8"),
        ("null", "Expected `object`"),
        ("{", "truncated"),
    ],
)
@quick
def test_a_wrong_line_is_reported_with_its_number_and_nothing_runs(home: Batches, line, words):
    good = '{"id": "first", "prompt": "x", "project": "p"}'
    home.tasks.write_text(f"{good}\n\n{line}\n", errors="surrogateescape")
    done = home.batch(str(home.tasks), "-o", str(home.out), "--model", "demo")
    assert done.returncode == 2
    assert f"{home.tasks}:3: " in done.stderr
    assert words in done.stderr
    assert not home.out.exists()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "-o OUT"),
        (("-o", "out"), "name one file or directory of tasks"),
        (("missing", "-o", "out"), "cannot read"),
        (("--each", "nothing*", "--prompt", "prompt", "-o", "out"), "matches no directory"),
        (("--each", "*", "-o", "out"), "needs --prompt"),
        (("--each", "*", "--prompt", "empty", "-o", "out"), "is empty"),
        (("tasks.jsonl", "--prompt", "prompt", "-o", "out"), "belong to --each"),
        (("tasks.jsonl", "-o", "out", "--shard", "3/2"), "I/N"),
        (("tasks.jsonl", "-o", "out", "-j", "0"), "from 1 on"),
        (("twice.jsonl", "-o", "out"), "occurs twice"),
        (("none.jsonl", "-o", "out"), "has no tasks"),
    ],
)
def test_wrong_arguments_are_usage_errors(home: Batches, arguments, words):
    line = {"id": "a", "project": ".", "prompt": "x"}
    home.write_tasks(line)
    (home.project / "twice.jsonl").write_text(2 * (json.dumps(line) + "\n"))
    (home.project / "none.jsonl").touch()
    (home.project / "prompt").write_text("x")
    (home.project / "empty").write_text(" \n")
    done = home.batch(*arguments)
    assert done.returncode == 2
    assert words in done.stderr


def test_any_name_can_be_an_id_and_its_files_stay_in_the_results(home: Batches):
    home.directory("p", f="x")
    names = ["..", "a/../../b", "-o", "ü☃", 200 * "x", "a__1", "results.jsonl"]
    lines = [{"id": name, "project": "p", "prompt": "Do."} for name in names]
    home.write_tasks(*lines)
    home.tasks.write_bytes(b"\xef\xbb\xbf" + home.tasks.read_bytes().replace(b"\n", b"\r\n"))
    _, results = home.play(DONE, args=("-j", "3"))
    assert results.keys() == set(names)
    trials = {result["trial"] for result in results.values()}
    files = {"batch.json", "result.json", "results.jsonl"}
    assert {path.name for path in home.out.iterdir()} == trials | files
    assert all(path.is_dir() for path in map(home.out.joinpath, trials))


def test_repeats_have_results_of_their_own(home: Batches):
    home.directory("p", f="x")
    home.write_tasks({"id": "a/b", "project": "p", "prompt": "Do."})
    home.play(DONE, args=("-k", "3", "-j", "3"))
    results = home.results()
    assert sorted(result["attempt"] for result in results) == [1, 2, 3]
    assert len({result["trial"] for result in results}) == 3
    assert all((home.out / result["trial"] / "result.json").is_file() for result in results)


def test_shards_divide_the_tasks_whatever_their_order(home: Batches):
    home.directory("p", f="x")
    names = [f"t{number}" for number in range(5)]
    lines = [{"id": name, "project": "p", "prompt": "Do."} for name in names]
    home.write_tasks(*lines)
    home.play(DONE, args=("--shard", "1/2"))
    home.write_tasks(*reversed(lines))
    home.play(DONE, args=("--shard", "2/2"))
    assert sorted(result["id"] for result in home.results()) == names
    assert {path.name for path in home.out.glob("results*")} == {
        "results.1-of-2.jsonl",
        "results.2-of-2.jsonl",
    }


@pytest.mark.guard
def test_resuming_runs_what_is_new_or_was_changed_and_nothing_else(home: Batches):
    home.directory("p", f="x")
    task = {"project": "p", "prompt": "Do."}
    home.write_tasks(task | {"id": "a"}, task | {"id": "b"})
    home.play(DONE)
    before = home.results()
    done, _ = home.play(DONE)
    assert done.returncode == 2
    assert "has results: add --resume" in done.stderr
    home.write_tasks(task | {"id": "c"}, task | {"id": "b", "prompt": "Other."}, task | {"id": "a"})
    with (home.out / "results.jsonl").open("a") as file:
        file.write('{"id":"c","hash":"cut')  # killed while it wrote
    done, _ = home.play(DONE, args=("--resume",))
    assert done.returncode == 0, done.stderr
    assert home.results()[:2] == before
    assert sorted(result["id"] for result in home.results()[2:]) == ["b", "c"]


def test_a_run_with_other_settings_does_not_mix_with_the_results(home: Batches):
    home.directory("p", f="x")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    home.play(DONE)
    done, _ = home.play(DONE, args=("--resume", "--mode", "plan", "--allow", "bash make"))
    assert done.returncode == 2
    assert "mode: auto, now plan" in done.stderr
    assert "allow: none, now bash make" in done.stderr


def test_two_runs_cannot_write_the_same_results(home: Batches):
    home.directory("p", f="x")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    model = home.write_script([{"delay_ms": 600_000}, *DONE])
    arguments = ("batch", str(home.tasks), "-o", str(home.out), "--model", model)
    with home.launch(*arguments) as first:
        wait_until((home.out / "a__1" / "agent").exists)
        second = home.run(*arguments)
        assert second.returncode == 2
        assert "another run writes to" in second.stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait() == 128 + signal.SIGTERM


def test_the_run_stops_when_its_cost_is_reached_and_resumes_with_more(home: Batches):
    home.directory("p", f="x")
    task = {"project": "p", "prompt": "Do."}
    home.write_tasks(*(task | {"id": f"t{number}"} for number in range(4)))
    home.config.write_text(
        '[prices."*"]\ninput = 1000.0\noutput = 1000.0\ncache_read = 0.0\ncache_write = 0.0\n'
    )
    done, results = home.play(DONE, args=("--max-cost", "0.5"))
    assert done.returncode == 4, done.stderr
    assert 0 < len(results) < 4
    assert {result["state"] for result in results.values()} <= {"completed", "stopped"}
    done, results = home.play(DONE, args=("--resume", "--max-cost", "1000"))
    assert done.returncode == 0
    assert len({name for name, result in results.items() if result["state"] == "completed"}) == 4


def test_the_cost_of_a_run_passes_its_limit_by_the_answers_in_flight_at_most(home: Batches):
    home.directory("p", f="x")
    task = {"project": "p", "prompt": "Do."}
    home.write_tasks(*(task | {"id": f"t{number}"} for number in range(5)))
    home.config.write_text(
        '[prices."*"]\ninput = 1000.0\noutput = 1000.0\ncache_read = 0.0\ncache_write = 0.0\n'
    )
    usage = {"usage": {"input_tokens": 20, "output_tokens": 5}}
    steps = [*([bash("true", f"toolu_{number}")] for number in range(3)), DONE]
    script = {"version": 1, "reply": [{"step": step} | usage for step in steps]}
    home.script.write_text(json.dumps(script))
    arguments = (str(home.tasks), "-o", str(home.out), "--model", f"script:{home.script}")
    answer, limit, slots = 0.025, 0.2, 3
    done = home.batch(*arguments, "-j", str(slots), "--max-cost", str(limit))
    assert done.returncode == 4, done.stderr
    spent = sum(result["cost"] for result in home.results())
    assert limit <= spent + 1e-9 <= limit + slots * answer + 1e-9
    done = home.batch(*arguments, "-j", str(slots), "--max-cost", "100", "--resume")
    assert done.returncode == 0, done.stderr
    completed = [result["id"] for result in home.results() if result["state"] == "completed"]
    assert sorted(completed) == [f"t{number}" for number in range(5)]


def test_a_task_that_ends_at_its_own_cost_has_a_result_and_the_run_goes_on(home: Batches):
    home.directory("p", f="x")
    task = {"project": "p", "prompt": "Do."}
    home.write_tasks(task | {"id": "a", "limits": {"cost_usd": 0.01}}, task | {"id": "b"})
    home.config.write_text(
        '[prices."*"]\ninput = 1000.0\noutput = 1000.0\ncache_read = 0.0\ncache_write = 0.0\n'
    )
    done, results = home.play([bash("true")], DONE, args=("--max-cost", "1000"))
    assert done.returncode == 3
    assert results["a"]["state"] == "limit"
    assert results["b"]["state"] == "completed"


def processes_of(home: Batches) -> list[int]:
    """The processes that have something of this home in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes()
            except OSError:
                continue
            if f"HOME={home.folder}\0".encode() in variables and is_alive(int(entry.name)):
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_batch_leaves_no_process_and_its_next_run_no_files(home: Batches, number):
    home.directory("p", f="x")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    model = home.write_script([bash("touch started; sleep 1000")], DONE)
    arguments = ("batch", str(home.tasks), "-o", str(home.out), "--model", model)
    copies = home.folder / "state" / "nvim" / "sanderling" / "batch"
    with home.launch(*arguments) as run:
        wait_until(lambda: list(copies.glob("*/*/*/project/started")))
        run.send_signal(number)
        run.communicate()
    wait_until(lambda: processes_of(home) == [], "no process is left")
    assert home.results() == []
    home.write_script(DONE)
    done = home.run(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    assert list(copies.iterdir()) == []


def test_a_worker_that_dies_is_a_result(home: Batches):
    home.directory("p", f="x")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    model = home.write_script([bash("touch started; sleep 1000")], DONE)
    copies = home.folder / "state" / "nvim" / "sanderling" / "batch"
    arguments = ("batch", str(home.tasks), "-o", str(home.out), "--model", model)
    with home.launch(*arguments) as run:
        wait_until(lambda: list(copies.glob("*/*/*/project/started")))
        [worker] = [
            pid
            for pid in processes_of(home)
            if b"sanderling.batch.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        os.kill(worker, signal.SIGKILL)
        run.communicate()
        assert run.returncode == 3
    [result] = home.results()
    assert result["state"] == "crashed"
    assert (home.out / "a__1" / "result.json").is_file()
    wait_until(lambda: processes_of(home) == [], "no process is left")


@pytest.mark.guard
def test_the_agent_cannot_make_git_run_something_for_the_patch(home: Batches):
    home.repository("p", f="x\n")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    ran = home.folder / "ran"
    hostile = (
        f"echo y > f; git config core.fsmonitor 'touch {ran}'; echo 'f filter=x' > .gitattributes;"
        f" git config filter.x.clean 'touch {ran}'; mkdir n; cd n; git init -q; git commit -q --allow-empty -m x"
    )
    _, results = home.play([bash(hostile)], DONE)
    assert not ran.exists()
    assert "+y" in home.patch("a").read_text()
    assert results["a"]["state"] == "completed"


def test_a_repository_that_the_task_makes_is_named_and_not_in_the_patch(home: Batches):
    home.directory("p", f="x\n")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do."})
    _, results = home.play([bash("mkdir n; cd n; git init -q; touch g; touch ../h")], DONE)
    assert results["a"]["reason"] == "not in the patch, because they are repositories: n"
    assert re.findall(r"^diff --git a/(\S+)", home.patch("a").read_text(), re.MULTILINE) == ["h"]


def test_results_in_the_project_are_not_part_of_its_copies(home: Batches):
    home.write_tasks({"id": "a", "project": ".", "prompt": "Do.", "check": "! test -e out"})
    _, results = home.play(DONE)
    assert results["a"]["reward"] == 1


def test_the_tasks_of_another_checkout_of_the_same_files_are_the_same_tasks(home: Batches):
    found = []
    for place in ("one", "two"):
        directory = home.directory(f"{place}/p", f="x").parent
        (directory / "tasks.jsonl").write_text('{"id": "a", "project": "p", "prompt": "Do."}\n')
        model = home.write_script(DONE)
        out = home.project / f"out-{place}"
        home.batch(str(directory / "tasks.jsonl"), "-o", str(out), "--model", model)
        found += [result["hash"] for result in home.results(out)]
    assert found[0] == found[1]
    assert len(found) == 2


@pytest.mark.parametrize(
    "args, words",
    [
        ((), "There is no API key. Store one with sanderling login, or set ANTHROPIC_API_KEY"),
        (("--model", "openai:gpt-5.5"), "There is no API key for openai"),
        (("--model", "anthropc:x"), "did you mean 'anthropic'?"),
        (("--model", "script:missing.json"), "cannot read the script"),
        (("--model", "demo", "--allow", "bsh git"), "there is no tool 'bsh'"),
    ],
)
def test_what_would_fail_each_task_is_an_error_before_the_run(
    home: Batches, args: tuple[str, ...], words: str
):
    home.repository("p", f="old\n")
    for name in [name for name in home.environment if name.endswith("_API_KEY")]:
        del home.environment[name]
    tasks = home.write_tasks({"id": "a", "project": "p", "prompt": "Do it."})
    done = home.batch(tasks, "-o", str(home.out), *args)
    assert done.returncode == 2
    assert words in done.stderr
    assert not home.out.exists()


def test_a_run_without_results_continues_with_other_settings(home: Batches):
    home.repository("p", f="old\n")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do it."})
    done, results = home.play(DONE, args=("--role", "nope"))
    assert results["a"]["state"] == "error"
    done, results = home.play(DONE, args=("--resume",))
    assert results["a"]["state"] == "completed", done.stderr
    done, _ = home.play(DONE, args=("--resume", "--mode", "plan"))
    assert "was made with other settings (mode: auto, now plan)" in done.stderr


def test_a_task_that_could_not_begin_runs_again_when_a_run_is_resumed(home: Batches):
    home.write_tasks({"id": "a", "project": "late", "prompt": "Do it."})
    _, results = home.play(DONE)
    assert results["a"]["state"] == "setup_error"
    home.directory("late", f="x")
    done, results = home.play(DONE, args=("--resume",))
    assert results["a"]["state"] == "completed", done.stderr


@pytest.mark.parametrize(
    "line, words",
    [
        ('{"id": "a", "projct": "p", "prompt": "x"}', "`projct`; did you mean 'project'?"),
        ('{"id": "a", "project": "p", "prompt": "x", "limits": {"tim_s": 1}}', "mean 'time_s'?"),
        ('{"id": "a",', "truncated (each task is a JSON object in one line)"),
        ('[{"id": "a"}]', "got `array` (each task is a JSON object in one line)"),
    ],
)
def test_a_wrong_line_says_what_a_task_is(home: Batches, line: str, words: str):
    home.tasks.write_text(line + "\n")
    done = home.batch(str(home.tasks), "-o", "out", "--model", "demo")
    assert done.returncode == 2
    assert words in done.stderr


def test_settings_of_a_shard_without_results_yet_count(home: Batches):
    home.repository("p", f="old\n")
    home.write_tasks({"id": "a", "project": "p", "prompt": "Do it."})
    home.play(DONE, args=("--shard", "1/2"))
    (home.out / "results.1-of-2.jsonl").write_text("")
    done, _ = home.play(DONE, args=("--shard", "2/2", "--mode", "plan"))
    assert "was made with other settings (mode: auto, now plan)" in done.stderr


def test_wrong_words_get_a_hint(home: Batches):
    home.repository("p", f="old\n")
    for name in ("a", "b"):
        home.directory(name)
    (home.project / "change.md").write_text("Do it.")
    each = home.batch("--each", "a", "b", "--prompt", "change.md", "-o", "out")
    assert "but 'b' follows it: quote the pattern, as in --each 'packages/*'" in each.stderr
    assert "did you mean 'apply'?" in home.batch("aply", "out").stderr
    assert "did you mean 'report'?" in home.batch("reprot").stderr
    missing = home.batch("--each", "a", "--prompt", "chnge.md", "-o", "out")
    assert missing.stderr == "sanderling: cannot read chnge.md: No such file or directory\n"


@quick
def test_settings_that_cannot_be_written_are_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match=r"cannot write .*batch\.json: No such file"):
        check_settings(tmp_path / "gone" / "results.jsonl", RunSettings())


def test_a_state_directory_that_cannot_be_made_is_an_error(home: Batches):
    home.repository("p", f="old\n")
    tasks = home.write_tasks({"id": "a", "project": "p", "prompt": "Do it."})
    (home.folder / "state").write_text("")
    done = home.batch(tasks, "-o", str(home.out), "--model", "demo")
    assert done.returncode == 1
    assert "where tasks run: Not a directory" in done.stderr
