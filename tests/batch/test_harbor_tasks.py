"""Tasks in Harbor's format, run without a container in a root directory with the paths that they expect."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sanderling.batch.checks import CheckError, read_rewards
from sanderling.batch.harbor.dockerfile import read_dockerfile
from sanderling.batch.harbor.task_file import TaskFile, UnsupportedError, network_of, resolved
from sanderling.batch.harbor.tasks import read_directory
from tests.batch.batches import Batches, bash
from tests.conftest import prove_unless_quick, quick

pytestmark = prove_unless_quick
DONE = [{"text": "Done."}]
DOCKERFILE = """\
# syntax=docker/dockerfile:1
FROM ubuntu:24.04
ARG NAME=value
ENV MODE=${NAME} \\
    OTHER="two words"
RUN mkdir -p /data && \\
    apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
WORKDIR /app
COPY . .
COPY --chown=root:root data.txt /data/
CMD ["bash"]
"""
TEST = """\
#!/bin/bash
cat /tests/expected
if diff /app/answer /tests/expected; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
exit 3
"""


def harbor_task(home: Batches, name: str = "task", **files: str) -> Path:
    """Make a task in a directory of tasks. The names of files have `__` for `/`, and `_` before a dot is a dot."""
    directory = home.project / "tasks" / name
    defaults = {
        "task.toml": 'schema_version = "1.4"\n[agent]\ntimeout_sec = 60.0\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Write the answer.\n",
        "environment/Dockerfile": DOCKERFILE,
        "environment/data.txt": "42\n",
        "tests/test.sh": TEST,
        "tests/expected": "42\n",
    }
    for path, text in (defaults | files).items():
        if text:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_text(text)
    return directory


def play(home: Batches, *replies: Any, args: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    model = home.write_script(*replies)
    done = home.batch(str(home.project / "tasks"), "-o", str(home.out), "--model", model, *args)
    assert done.returncode in (0, 3), done.stderr
    return {result["id"]: result for result in home.results()}


@quick
def test_a_task_finds_its_absolute_paths_and_its_tests_come_after_the_agent(home: Batches):
    harbor_task(home)
    look = "pwd; ls -d /app /logs/* /tests /solution; cat /data/data.txt > answer; echo $MODE-$OTHER; ls"
    results = play(home, [bash(look)], DONE)
    result = results["task"]
    assert (result["state"], result["reward"]) == ("completed", 1), result
    trial = home.out / "task__1"
    events = [
        json.loads(line) for line in (trial / "agent" / "events.jsonl").read_text().splitlines()
    ]
    output = "".join(event["text"] for event in events if event["type"] == "tool_output")
    assert output.split("\n")[0] == "/app"
    assert "value-two words" in output
    assert "/logs/verifier" in output
    assert "\n/tests\n" not in output
    assert "No such file or directory" in output
    assert "data.txt" in output
    assert "Dockerfile" not in output
    assert (trial / "verifier" / "test-stdout.txt").read_text() == "42\n"
    assert (trial / "verifier" / "reward.txt").read_text() == "1\n"
    assert "answer" in (trial / "changes.patch").read_text()
    assert not Path("/app").exists() or not (Path("/app") / "answer").exists()
    assert (
        json.loads((trial / "agent" / "trajectory.json").read_text())["schema_version"]
        == "ATIF-v1.8"
    )


@pytest.mark.guard
def test_a_reward_that_the_agent_wrote_does_not_count(home: Batches):
    harbor_task(home, **{"tests/test.sh": "#!/bin/sh\ntrue\n"})
    forge = (
        "echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json"
    )
    results = play(home, [bash(forge)], DONE)
    assert (results["task"]["state"], results["task"]["reward"]) == ("check_error", None)
    assert "neither reward.json nor reward.txt" in results["task"]["reason"]


@pytest.mark.guard
def test_links_that_the_agent_left_lead_nowhere(home: Batches):
    outside = home.folder / "outside"
    outside.mkdir()
    (outside / "reward.txt").write_text("1\n")
    step = {
        "task.toml": '[environment]\nnetwork_mode = "no-network"\n[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n',
        "steps/one/instruction.md": "One.\n",
        "steps/two/instruction.md": "Two.\n",
        "steps/two/workdir/sub/file": "x\n",
        "tests/test.sh": "#!/bin/sh\nln -sf DIR/reward.txt /logs/verifier/reward.txt\n".replace(
            "DIR", str(outside)
        ),
    }
    harbor_task(home, **step)
    harbor_task(home, "other", **{"tests/test.sh": step["tests/test.sh"]})
    link = f"mkfifo /logs/agent/pipe /logs/artifacts/pipe; ln -s {outside} sub; rm -r /logs/verifier; ln -s {outside} /logs/verifier"
    results = play(home, [bash(link)], DONE)
    assert {path.name for path in outside.iterdir()} == {"reward.txt"}
    assert all(result["reward"] is None for result in results.values())
    assert "is a link" in results["other"]["reason"]


def test_steps_share_files_and_their_rewards_are_combined(home: Batches):
    toml = """
version = "1.0"
[environment]
network_mode = "no-network"
[[steps]]
name = "first"
[[steps]]
name = "second"
min_reward = 0.6
[[steps]]
name = "never"
"""
    script = """#!/bin/sh
ls /logs/verifier /tests
echo "{\\"reward\\": $(cat /tests/reward), \\"lines\\": $(wc -l < /app/log)}" > /logs/verifier/reward.json
echo 0 > /logs/verifier/reward.txt
"""
    files = {"task.toml": toml, "tests/test.sh": script, "instruction.md": "", "tests/expected": ""}
    for number, name in enumerate(("first", "second", "never")):
        files[f"steps/{name}/instruction.md"] = f"Step {name}.\n"
        files[f"steps/{name}/tests/reward"] = f"{1 - number / 2}\n"
    harbor_task(home, **files)
    model_reply = [bash("echo line >> log")]
    home.script.write_text(
        json.dumps(
            {
                "version": 1,
                "reply": [
                    *(
                        {"when": f"Step {name}.", "step": model_reply}
                        for name in ("first", "second")
                    ),
                    {"after": "toolu_1", "step": DONE},
                ],
            }
        )
    )
    arguments = (str(home.project / "tasks"), "-o", str(home.out))
    done = home.batch(*arguments, "--model", f"script:{home.script}")
    assert done.returncode == 0, done.stderr
    [result] = home.results()
    assert result["reward"] == 0.75
    assert result["rewards"] == {"reward": 0.75, "lines": 1.5}
    assert result["calls"] == 4
    steps = home.out / "task__1" / "steps"
    assert {path.name for path in steps.iterdir()} == {"first", "second"}
    output = (steps / "second" / "verifier" / "test-stdout.txt").read_text().split()
    assert output == ["/logs/verifier:", "/tests:", "reward", "test.sh"]
    trial = json.loads((home.out / "task__1" / "result.json").read_text())
    assert [step["step_name"] for step in trial["step_results"]] == ["first", "second"]


@pytest.mark.parametrize(
    "files, words",
    [
        ({"environment/Dockerfile": "FROM ubuntu\nRUN make install\n"}, "runs: make install"),
        ({"environment/Dockerfile": "FROM ghcr.io/some/image\n"}, "the image ghcr.io/some/image"),
        (
            {"environment/Dockerfile": "FROM rust\n"}
            if not shutil.which("cargo")
            else {"environment/Dockerfile": "FROM a AS b\n"},
            "it needs",
        ),
        ({"environment/docker-compose.yaml": "x"}, "docker-compose"),
        ({"task.toml": "[environment]\ngpus = 1\n"}, "a GPU"),
        ({"task.toml": '[environment]\nos = "windows"\n'}, "the system windows"),
        ({"task.toml": '[verifier]\nenvironment_mode = "separate"\n'}, "of its own for the tests"),
        ({"task.toml": '[agent]\nuser = "somebody"\n'}, "a user other than this one"),
        ({"task.toml": 'schema_version = "2.0"\n'}, "version 2.0"),
        ({"task.toml": '[environment.env]\nX = "${NOT_SET_ANYWHERE}"\n'}, "NOT_SET_ANYWHERE"),
        ({"environment/Dockerfile": "FROM ubuntu\nWORKDIR /usr/src/app\n"}, "in /usr/src/app"),
        ({"task.toml": '[environment]\nworkdir = "/"\n'}, "in /"),
    ],
)
def test_a_task_that_needs_what_is_missing_is_unsupported_and_says_what(
    home: Batches, files, words
):
    harbor_task(home, **files)
    results = play(home, DONE)
    assert results["task"]["state"] == "unsupported"
    assert words in results["task"]["reason"]
    assert results["task"]["exit"] is None


def test_a_wrong_task_is_one_result_and_the_others_run(home: Batches):
    harbor_task(home, "wrong", **{"task.toml": "[agent]\ntimeout_sec = 'soon'\n"})
    harbor_task(home, "good")
    results = play(home, [bash("cp data.txt answer")], DONE)
    assert results["wrong"]["state"] == "setup_error"
    assert "timeout_sec" in results["wrong"]["reason"]
    assert results["good"]["reward"] == 1


def test_tests_that_take_too_long_are_a_timeout_and_none_are_an_error(home: Batches):
    slow = {
        "tests/test.sh": "#!/bin/sh\nsleep 60\n",
        "task.toml": "[verifier]\ntimeout_sec = 0.5\n",
    }
    harbor_task(home, "slow", **slow)
    harbor_task(home, "none", **{"tests/test.sh": ""})
    results = play(home, DONE, args=("--net", "off"))
    assert results["slow"]["state"] == "check_timeout"
    assert results["none"]["state"] == "check_error"


def test_a_changed_file_of_a_task_makes_it_another_task(home: Batches):
    directory = harbor_task(home)
    play(home, DONE)
    (directory / "tests" / "expected").write_text("43\n")
    home.batch(str(directory), "-o", str(home.out), "--resume", "--model", f"script:{home.script}")
    first, second = home.results()
    assert first["hash"] != second["hash"]


@quick
def test_the_digest_of_a_task_covers_names_contents_modes_and_links(tmp_path: Path):
    home = Batches(tmp_path)
    directory = harbor_task(home)
    (directory / "environment" / "link").symlink_to("/one")
    (directory / "environment" / "directory").symlink_to("../tests")
    digests = [read_directory(directory)[0].digest]
    assert read_directory(directory.parent)[0].digest == digests[0]
    script = directory / "tests" / "test.sh"
    for change in (
        lambda: script.write_text("#!/bin/sh\n"),
        lambda: script.chmod(0o755),
        lambda: script.rename(script.with_name("other.sh")),
        lambda: relink(directory / "environment" / "link", "/two"),
        lambda: relink(directory / "environment" / "directory", ".."),
    ):
        change()
        digests.append(read_directory(directory)[0].digest)
    assert len(set(digests)) == len(digests)


def relink(link: Path, target: str) -> None:
    link.unlink()
    link.symlink_to(target)


@pytest.mark.parametrize(
    "files, rewards",
    [
        ({"reward.json": '{"a": 1, "b": 0.5}', "reward.txt": "0"}, {"a": 1.0, "b": 0.5}),
        ({"reward.txt": " 0.25\n"}, {"reward": 0.25}),
        ({"reward.json": '{"passed": true}'}, {"passed": 1.0}),
    ],
)
@quick
def test_rewards_are_numbers_by_name(tmp_path: Path, files, rewards):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert read_rewards(tmp_path) == rewards


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"reward.txt": ""},
        {"reward.txt": "nan"},
        {"reward.txt": "yes"},
        {"reward.json": "", "reward.txt": "1"},
        {"reward.json": "1"},
        {"reward.json": "{}"},
        {"reward.json": '{"reward": "1"}'},
        {"reward.json": '{"reward": 1e999}'},
        {"reward.json": '{"reward": NaN}'},
        {"reward.json": '{"reward": null}'},
        {"reward.json": "{", "reward.txt": "1"},
    ],
)
@quick
def test_what_is_no_finite_number_is_an_error(tmp_path: Path, files):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(CheckError):
        read_rewards(tmp_path)


@pytest.mark.parametrize(
    "text, words",
    [
        ("FROM ubuntu\nFROM debian\n", "several stages"),
        ("FROM ubuntu\nCOPY ../secret /app\n", "secret"),
        ("FROM ubuntu\nCOPY link /app/\n", "outside of environment/"),
        ("FROM ubuntu\nCOPY --from=x a b\n", "not followed"),
        ("FROM ubuntu\nADD https://example.com/x /app/\n", "needs https://example.com/x"),
        ("FROM ubuntu\nRUN mkdir a | sh\n", "runs"),
        ("FROM ubuntu\nRUN mkdir $(id)\n", "runs"),
        ("FROM ubuntu\nRUN apt-get install -y nothing-of-this-name\n", "nothing-of-this-name"),
        ("FROM ubuntu\nRUN rm -rf /home\n", "runs: rm -rf /home"),
        ("FROM ubuntu\nRUN mkdir -m 700 /data\n", "runs: mkdir -m 700 /data"),
        ("FROM ubuntu\nRUN [ -d /data ] || mkdir /data\n", "runs: .* -d /data"),
        ('FROM ubuntu\nRUN ["make" "all"]\n', "runs: .*make.* .*all"),
        ("FROM ubuntu\nRUN [1]\n", "runs: .*1"),
        ('FROM ubuntu\nCOPY ["a" "b"]\n', "a, which does not exist"),
        ("FROM ubuntu\nCOPY a\n", "not followed: COPY a"),
        ("FROM ubuntu\nCOPY **a /app/\n", r"copies \*\*a"),
        ("FROM ubuntu\nRUN <<EOF\nx\nEOF\n", "here-document"),
        ("FROM ubuntu\nUSER app\n", "the user app"),
        ('FROM ubuntu\nSHELL ["x"]\n', "not followed"),
    ],
)
@quick
def test_a_dockerfile_that_needs_a_container_is_refused(tmp_path: Path, text, words):
    (tmp_path / "context").mkdir()
    (tmp_path / "secret").touch()
    (tmp_path / "context" / "link").symlink_to("../secret")
    with pytest.raises(UnsupportedError, match=words):
        read_dockerfile(text, tmp_path / "context")


@quick
def test_a_dockerfile_is_followed_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", f"/only:{os.environ['PATH']}")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch()
    text = """
FROM --platform=linux/amd64 docker.io/library/debian:12
ENV PATH=/app/bin:$PATH A="b c" \\
    # a comment
    D=$A
ENV E=$A
ENV OLD the rest of it
WORKDIR /srv-data
WORKDIR sub
COPY *.txt ./
COPY ["a.txt", "/app/x"]
RUN mkdir -p /data/one two
"""
    image = read_dockerfile(text, tmp_path)
    assert image.env["PATH"].startswith("/app/bin:/only:")
    assert [image.env[name] for name in ("A", "D", "E", "OLD")] == [
        "b c",
        "",
        "b c",
        "the rest of it",
    ]
    assert image.workdir == "/srv-data/sub"
    assert image.directories == ["/srv-data", "/srv-data/sub", "/data/one", "/srv-data/sub/two"]
    assert [(path.name, target) for path, target in image.copies] == [
        ("a.txt", "/srv-data/sub/"),
        ("b.txt", "/srv-data/sub/"),
        ("a.txt", "/app/x"),
    ]


@quick
def test_a_part_of_a_task_has_the_network_of_its_own_or_of_the_environment():
    import msgspec

    def network(environment: dict[str, Any], own: dict[str, Any], limit: Any = None) -> Any:
        task = msgspec.convert({"environment": environment, "agent": own}, TaskFile)
        return network_of(task.environment, task.agent, limit)

    assert network({}, {}) == ("on", ())
    assert network({"network_mode": "no-network"}, {}) == ("off", ())
    assert network({"allow_internet": False}, {}) == ("off", ())
    allow = {"network_mode": "allowlist", "allowed_hosts": ["Example.com.", "*.b.org", "::1"]}
    assert network({"network_mode": "no-network"}, allow) == (
        "proxy",
        ("example.com", "*.b.org", "[::1]"),
    )
    assert network({}, allow, "off") == ("off", ())
    assert network({}, {}, "proxy") == ("proxy", ())


@quick
def test_variables_come_from_this_machine_or_have_a_default():
    assert resolved({"A": "${X}", "B": "${Y:-z}", "C": "a ${Y:-} b"}, {"X": "1"}) == {
        "A": "1",
        "B": "z",
        "C": "a  b",
    }


WITHOUT_NAMESPACES = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'


@pytest.mark.skipif(not shutil.which("unshare"), reason="needs unshare")
def test_without_namespaces_such_a_task_is_unsupported_and_others_run(home: Batches):
    harbor_task(home)
    home.directory("p", f="x\n")
    home.write_tasks({"id": "plain", "project": "p", "prompt": "Do.", "check": "grep -q more f"})
    model = home.write_script([bash("echo more >> f")], DONE)
    for tasks in (home.project / "tasks", home.tasks):
        out = home.project / f"out-{tasks.name}"
        command = (
            home.python,
            *home.program,
            "batch",
            str(tasks),
            "-o",
            str(out),
            "--model",
            model,
        )
        subprocess.run(
            ["unshare", "-Ur", "sh", "-c", WITHOUT_NAMESPACES, "sh", *command],
            env=home.environment,
            cwd=home.project,
            check=False,
        )
    [task] = home.results(home.project / "out-tasks")
    assert task["state"] == "unsupported"
    assert "it needs namespaces" in task["reason"]
    [plain] = home.results(home.project / "out-tasks.jsonl")
    assert (plain["state"], plain["reward"]) == ("completed", 1)


def test_a_task_brings_skills_and_a_tool_server(home: Batches):
    toml = """
[environment]
network_mode = "no-network"
skills_dir = "/app/skills"
[[environment.mcp_servers]]
name = "notes"
transport = "stdio"
command = "python3"
args = ["/app/server.py"]
"""
    skill = "---\nname: greeting\ndescription: Says hello in the way of the house.\n---\nHello.\n"
    server = "import pathlib\npathlib.Path('/app/started').touch()\n"
    files = {"task.toml": toml, "environment/skills/greeting/SKILL.md": skill}
    harbor_task(home, **files, **{"environment/server.py": server})
    results = play(home, [bash("cp data.txt answer; ls")], DONE)
    assert results["task"]["reward"] == 1
    trial = home.out / "task__1"
    assert "Says hello in the way of the house." in (trial / "agent" / "session.jsonl").read_text()
    assert "started" in (trial / "changes.patch").read_text()
