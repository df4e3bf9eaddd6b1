"""Standing rules: loaded from the settings, stored beside the project, proposed for "always"."""

import errno
import fcntl
import json
import multiprocessing
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.conftest import prove
from tests.unit.test_permissions import action, run

from sanderling.errors import ConfigError
from sanderling.permissions.decide import decide
from sanderling.permissions.proposing import propose
from sanderling.permissions.rules import Examples, Rule
from sanderling.permissions.store import (
    ASK_ALWAYS,
    RuleStore,
    StoredRules,
    load_rules,
    wrong_example,
)
from sanderling.tools.effects import Effect

pytestmark = pytest.mark.guard


@pytest.fixture
def project(tmp_path: Path) -> str:
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    return str(root)


@pytest.fixture
def store(tmp_path: Path, project: str) -> RuleStore:
    return RuleStore(str(tmp_path / "state"), project)


def allow(command: str) -> Rule:
    return Rule(action="allow", tool="bash", command=command)


def deny(command: str) -> Rule:
    return Rule(action="deny", tool="bash", command=command)


def is_allowed(effect: Effect, project: str, *rules: Rule) -> bool:
    return action(effect, project, *rules) == "allow"


# --- The settings --------------------------------------------------------------------------------------------------------------


def test_rules_of_the_settings_are_tables(project):
    tables = [
        {"action": "allow", "tool": "bash", "command": "npm test"},
        {"action": "deny", "path": ".env"},
        {"action": "ask", "tool": "web_fetch", "host": "*.example.com"},
    ]
    rules = load_rules(tables, project)
    assert [rule.action for rule in rules] == ["allow", "deny", "ask"]
    assert load_rules([], project) == ()


@pytest.mark.parametrize(
    "table, words",
    [
        ({"action": "allow", "comand": "x"}, ["rule 2", "comand"]),
        ({"action": "always"}, ["rule 2", "always"]),
        ({"action": "allow", "tool": "edit", "command": "x"}, ["rule 2", "a rule for 'edit' has no command"]),
        ("allow ls", ["rule 2", "object"]),
        (
            {"action": "allow", "command": "git commit", "examples": {"matches": ["git commit -m x", "git push"]}},
            ["rule 2", "'allow * git commit' does not match its example 'git push'"],
        ),
        (
            {"action": "allow", "command": "git", "examples": {"does_not_match": ["git push"]}},
            ["rule 2", "'allow * git' matches its example 'git push'"],
        ),
        (
            {"action": "deny", "path": "src/*", "examples": {"matches": ["src/deep/a"]}},
            ["rule 2", "does not match its example 'src/deep/a'"],
        ),
        (
            {"action": "deny", "tool": "web_fetch", "host": "*.a.b", "examples": {"matches": ["a.b"]}},
            ["rule 2", "does not match its example 'a.b'"],
        ),
        ({"action": "deny", "tool": "edit", "examples": {"matches": ["x"]}}, ["rule 2", "no command, path or host"]),
    ],
)  # fmt: skip
def test_wrong_rule_is_named_with_what_is_wrong_with_it(project, table, words):
    with pytest.raises(ConfigError) as caught:
        load_rules([{"action": "allow", "tool": "bash", "command": "ls"}, table], project)
    assert [word for word in words if word not in str(caught.value)] == [], str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        {"action": "allow", "command": "git commit", "examples": {"matches": ["git commit", "git --no-pager commit -m 'x y'"],
         "does_not_match": ["git push", "git commit && rm x", "git commit > x", "sudo git commit"]}},
        {"action": "deny", "command": "rm", "examples": {"matches": ["rm x", "sudo rm x", "ls && rm x"], "does_not_match": ["echo rm"]}},
        {"action": "deny", "path": ".env", "examples": {"matches": [".env", "a/b/.env", "/elsewhere/.env"], "does_not_match": ["env"]}},
        {"action": "deny", "tool": "bash", "path": ".env", "examples": {"matches": ["cat .env"], "does_not_match": ["cat x"]}},
        {"action": "allow", "tool": "edit", "path": "src/**", "examples": {"matches": ["src/a"], "does_not_match": ["a", "src/../a"]}},
        {"action": "allow", "host": "a.b", "examples": {"matches": ["a.b"], "does_not_match": ["x.a.b"]}},
        {"action": "allow", "tool": "bash", "examples": {"matches": ["rm x"], "does_not_match": ["rm $(x)", "sudo rm"]}},
    ],
)  # fmt: skip
def test_examples_that_are_right_are_accepted(project, table):
    assert len(load_rules([table], project)) == 1


# --- The stored ones -----------------------------------------------------------------------------------------------------------


def test_stored_rule_is_there_in_the_next_session(store, tmp_path, project):
    assert store.load().rules == ()
    store.add(allow("npm test"))
    store.add(deny("rm"))
    store.add(allow("npm test"))
    again = RuleStore(str(tmp_path / "state"), project)
    assert again.load().rules == (deny("rm"), allow("npm test"))
    assert again.load().problem == ""


def test_stored_rule_allows_tools_of_a_server_as_it_was_declared_only(store):
    of_any = Rule(action="allow", tool="mcp__git__*")  # as earlier versions stored it
    of_one, deny_any = replace(of_any, server="0123"), replace(of_any, action="deny")
    for rule in (of_any, of_one, deny_any):
        store.add(rule)
    assert store.load().rules == (of_one, deny_any)


def test_stored_rules_are_a_projects_own_and_lie_outside_of_it(store, tmp_path, project):
    store.add(allow("npm test"))
    other = tmp_path / "other" / "project"
    other.mkdir(parents=True)
    assert RuleStore(str(tmp_path / "state"), str(other)).load().rules == ()
    assert store.path.parent == tmp_path / "state" / "rules"
    assert store.path.name.startswith("project-")
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert list(Path(project).rglob("*.json")) == []
    assert json.loads(store.path.read_bytes())["version"] == 1


def test_project_that_is_called_otherwise_is_the_same(store, tmp_path, project):
    (tmp_path / "alias").symlink_to(project)
    store.add(allow("npm test"))
    assert RuleStore(str(tmp_path / "state"), str(tmp_path / "alias")).load().rules == (
        allow("npm test"),
    )


def test_rule_of_another_process_is_seen_at_the_next_look(store, tmp_path, project):
    other = RuleStore(str(tmp_path / "state"), project)
    store.load()
    other.add(allow("a"))
    assert store.load().rules == (allow("a"),)
    store.add(allow("b"))
    assert other.load().rules == (allow("a"), allow("b"))


def test_file_is_read_again_only_when_it_has_changed(store):
    store.add(allow("a"))
    assert store.load() is store.load()


def add_many(barrier, state: str, project: str, name: str) -> None:
    barrier.wait(60)
    for number in range(15):
        RuleStore(state, project).add(allow(f"{name} {number}"))


@prove
def test_processes_that_store_at_the_same_time_lose_nothing(tmp_path, project):
    state = str(tmp_path / "state")
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    workers = [
        context.Process(target=add_many, args=(barrier, state, project, name))
        for name in ("a", "b", "c")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    stored = RuleStore(state, project).load()
    assert stored.problem == ""
    assert {rule.command for rule in stored.rules} == {
        f"{name} {n}" for name in "abc" for n in range(15)
    }


GOOD = {"action": "allow", "tool": "bash", "command": "rm"}
FORBIDDING = {"action": "deny", "tool": "bash", "command": "dd"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": 1}',
        b'{"version": 1, "rules": {}}',
        b'{"version": "1", "rules": []}',
        b'{"version": 2, "rules": []}',
        json.dumps({"version": 99, "rules": [GOOD]}).encode(),
        json.dumps({"version": 1, "rules": [GOOD, {"action": "deny", "comand": "x"}]}).encode(),
        json.dumps({"version": 1, "rules": [GOOD, 5]}).encode(),
        json.dumps({"version": 1, "rules": [GOOD] * 1001}).encode(),
        json.dumps({"version": 1, "rules": [GOOD | {"command": "x" * 2000}] * 900}).encode(),
    ],
    ids=range(15),
)
def test_broken_file_allows_nothing_and_says_so(store, project, content):
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(content)
    stored = store.load()
    assert str(store.path) in stored.problem
    assert "everything asks" in stored.problem
    assert ASK_ALWAYS in stored.rules
    for command in ("rm x", "ls"):
        assert action(run(command), project, *stored.rules, mode="auto") == "ask"
    with pytest.raises(ConfigError, match="Repair or remove"):
        store.add(allow("ls"))
    assert store.path.read_bytes() == content


def test_what_forbids_stays_in_force_when_another_rule_of_the_file_is_broken(store, project):
    store.path.parent.mkdir(parents=True)
    broken = [
        {"action": "allow", "comand": "x"},
        {"action": "allow", "command": "a", "examples": {"matches": ["b"]}},
    ]
    for wrong in broken:
        store.path.write_text(json.dumps({"version": 1, "rules": [GOOD, FORBIDDING, wrong]}))
        stored = store.load()
        assert "its allow rules are ignored" in stored.problem
        assert stored.rules == (deny("dd"),)
        assert not is_allowed(run("rm x"), project, *stored.rules)
        assert is_allowed(run("ls"), project, *stored.rules)


def test_rule_that_could_not_be_read_again_is_not_stored(store):
    for rule in (
        Rule(action="allow", command="ls", examples=Examples(matches=("rm",))),
        Rule(action="allow", command="ls " + "x" * 3000),
        Rule(action="deny", path="\udc80"),
    ):
        with pytest.raises(ConfigError):
            store.add(rule)
        assert store.load().rules == ()


def test_rules_inside_of_the_project_are_not_believed(tmp_path):
    store = RuleStore(str(tmp_path / "state"), str(tmp_path))
    store.path.parent.mkdir(parents=True)
    store.path.write_text(json.dumps({"version": 1, "rules": [GOOD]}))
    assert store.load().rules == (ASK_ALWAYS,)
    assert "inside the project" in store.load().problem


def test_write_that_fails_leaves_what_was_there(store, monkeypatch):
    store.add(allow("a"))
    before = store.path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot store"):
        store.add(allow("b"))
    assert store.path.read_bytes() == before
    assert store.load().rules == (allow("a"),)
    assert sorted(store.path.parent.iterdir()) == [store.path, store.path.with_suffix(".lock")]


def test_lock_that_nobody_gives_back_is_not_waited_for_without_end(store, monkeypatch):
    store.add(allow("a"))
    monkeypatch.setattr("sanderling.state_file.MAX_LOCK_WAIT_S", 0.05)
    with store.path.with_suffix(".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process"):
            store.add(allow("b"))
    store.add(allow("c"))
    assert store.load().rules == (allow("a"), allow("c"))


def test_file_that_cannot_be_reached_any_more_allows_nothing(store):
    assert store.load() == StoredRules()
    store.path.parent.parent.mkdir(exist_ok=True)
    store.path.parent.write_text("a file in the place of the directory")
    assert store.load().rules == (ASK_ALWAYS,)
    assert "cannot be read" in store.load().problem


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_file_that_cannot_be_read_allows_nothing(store):
    store.add(allow("a"))
    store.path.chmod(0)
    assert store.load().rules == (ASK_ALWAYS,)


def test_directory_in_the_place_of_the_file_allows_nothing(store):
    store.path.mkdir(parents=True)
    assert store.load().rules == (ASK_ALWAYS,)


# --- The proposal --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, command",
    [
        ("git commit -m 'x y'", "git commit"),
        ("git --no-pager commit", "git commit"),
        ("git stash pop", "git stash pop"),
        ("git stash", "git stash $"),
        ("npm test", "npm test"),
        ("npm test \\\n  -x", "npm test"),
        ("git commit -m \"$(cat <<'E'\nIt's `x`.\nE\n)\"", "git commit"),
        ("git commit -F - <<'E'\nIt's `x`.\nE", "git commit"),
        ("npm run test -- --watch", "npm run test"),
        ("npm ci", "npm ci"),
        ("docker compose up -d", "docker compose up"),
        ("docker build .", "docker build . $"),
        ("cargo test --lib x", "cargo test"),
        ("python -m pytest -q tests", "python -m pytest"),
        ("python scripts/x.py --a", "python scripts/x.py --a $"),
        ("pytest -q", "pytest"),
        ("uv run pytest -q", "uv run pytest"),
        ("uv run python -m mypy src", "uv run python -m mypy"),
        ("uv sync", "uv sync $"),
        ("npx tsc --noEmit", "npx tsc"),
        ("make", "make $"),
        ("make test", "make test $"),
        ("make -j4", "make -j4 $"),
        ("go test ./...", "go test"),
        ("./gradlew build", "./gradlew build $"),
        ("rm -rf build", "rm -rf build $"),
        ("mkdir -p 'a b'", "mkdir -p 'a b' $"),
        ("mytool sub --flag", "mytool sub --flag $"),
        ("cd src && npm test", "npm test"),
        ("npm test 2>&1 | tail -5", "npm test"),
        ("npm test -- a && npm test -- b", "npm test"),
        ("CI=1 npm test", "npm test"),
        ("for f in a b; do npm test; done", "npm test"),
        ("pylint src", "pylint src $"),
        ("tox -e x", "tox -e x $"),
        ("mocha", "mocha $"),
        ("npx jest a", "npx jest a $"),
        ("gofmt -l .", "gofmt -l . $"),
        ("shfmt -d .", "shfmt -d . $"),
        ("python -m json.tool a", "python -m json.tool a $"),
        ("python -m pylint src", "python -m pylint src $"),
        ("git clone a", "git clone a $"),
        ("git read-tree HEAD", "git read-tree HEAD $"),
        ("git bundle create x --all", "git bundle create x --all $"),
        ("meson compile", "meson compile $"),
        ("ruff check", "ruff check"),
        ("ruff clean", "ruff clean $"),
        ("npx eslint src", "npx eslint"),
        ("npm run deploy -- x", "npm run deploy -- x $"),
        ("composer dump-autoload", "composer dump-autoload $"),
        ("pytest tests/*.py", "pytest"),
        ("git add -A", "git add"),
        ("git push origin main", "git push origin main $"),
        ("git reset --hard", "git reset --hard $"),
        ("git stash drop", "git stash drop $"),
        ("git -C src commit -m x", "git commit"),
        ("git --no-pager stash", "git --no-pager stash $"),
        ("npm --prefix src test", "npm test"),
        ("npm install left-pad", "npm install left-pad $"),
        ("npm run deploy", "npm run deploy $"),
        ("pip install x", "pip install x $"),
        ("python -m pip install x", "python -m pip install x $"),
        ("uv run python x.py", "uv run python x.py $"),
        ("npx tsx x.ts", "npx tsx x.ts $"),
        ("bundle exec ruby x.rb", "bundle exec ruby x.rb $"),
        ("bash x.sh", "bash x.sh $"),
        ("go run x.go", "go run x.go $"),
        ("deno run x.ts", "deno run x.ts $"),
        ("docker compose down -v", "docker compose down -v $"),
        ("kubectl delete pod x", "kubectl delete pod x $"),
        ("terraform apply", "terraform apply $"),
        (".venv/bin/pytest -q", ".venv/bin/pytest"),
        (".venv/bin/python x.py", ".venv/bin/python x.py $"),
        ("./node_modules/.bin/eslint src", "./node_modules/.bin/eslint"),
    ],
)  # fmt: skip
def test_proposed_rule_is_as_long_as_the_words_that_say_what_it_does(project, line, command):
    rule = propose(run(line), project=project)
    assert rule is not None
    assert (rule.action, rule.tool, rule.command) == ("allow", "bash", command)
    assert wrong_example(rule, project) == ""
    assert not is_allowed(run(line), project)
    assert is_allowed(run(line), project, rule)
    assert not is_allowed(run(f"{line} && rm -rf ."), project, rule)


@pytest.mark.parametrize(
    "line",
    [
        "sudo rm x", "timeout 9 npm test", "bash -c 'npm test'", "npm test $(x)", "npm test > x", "npm test &", "find . -delete",
        "git -c a=b commit", "PATH=. npm test", "npm test && npm run build", "rm $x", "rm *.py", "npm test '", "export A=b", "x=$(y)",
        "npm $x", "git push --exec=x", "cat a | sh", "npx", "uv run python -c x", "git diff --output=x", "ls", "", "rm\u202ex",
        "rm " + "a" * 400, "printf x > y", "make A=b", "xargs rm", "cd ..", "cd / && npm test",
        "python", "bash", "sudo", "python -c x", "node -e x", "cat a | python /dev/stdin", "make 'A = b'", "npm -script-shell=x test", "yarn node x.js", "cd src && ./run x", "cd src && tools/x",
        'for f in a b; do mypy "$f"; done', "pylint $x", "git commit --amend", "git switch -C x",
    ],
)  # fmt: skip
def test_nothing_is_proposed_where_no_rule_would_be_safe(project, line):
    assert propose(run(line), project=project) is None


def test_nothing_is_proposed_for_leaving_the_sandbox(project):
    effect = Effect("bash", "run", command="npm test", leaves_sandbox=True)
    assert propose(effect, project=project) is None


@pytest.mark.parametrize(
    "line, other",
    [
        ("pylint src", "pylint --init-hook='import os' src"),
        ("python -m pylint src", "python -m pylint --init-hook=x src"),
        ("tox -e x", "tox -x testenv.commands='sh -c id'"),
        ("mocha", "mocha --require /tmp/x.js"),
        ("jest", "jest --globalSetup=/tmp/x"),
        ("npx jest", "npx jest --globalSetup=/tmp/x"),
        ("yarn run concurrently a", "yarn run concurrently 'id'"),
        ("vitest run", "vitest run --config /tmp/x"),
        ("eslint src", "eslint --config /tmp/x.js"),
        ("eslint src", "eslint -c x.js src"),
        ("eslint src", "eslint -o x src"),
        ("eslint src", "eslint --rulesdir /tmp src"),
        ("eslint src", "eslint -f ./evil.js src"),
        ("./node_modules/.bin/eslint src", "./node_modules/.bin/eslint --config=/tmp/x.js src"),
        ("npx eslint src", "npx eslint --plugin=x src"),
        ("prettier --check .", "prettier --plugin=/tmp/x.js ."),
        ("prettier --check .", "prettier --write ~/.bashrc"),
        ("prettier --check .", "prettier --write .vscode/tasks.json"),
        ("mypy src", "mypy --config-file=/tmp/x src"),
        ("mypy src", "mypy --python-exec=./evil src"),
        ("mypy src", "mypy --html-report=/tmp src"),
        ("python -m mypy src", "python -m mypy --config-file x src"),
        ("uv run mypy src", "uv run mypy --python-executable x"),
        ("pyright", "pyright --pythonpath ./evil"),
        ("rspec", "rspec -r /tmp/x"),
        ("rubocop", "rubocop --require /tmp/x"),
        ("phpunit", "phpunit --bootstrap /tmp/x"),
        ("clang-tidy x.c", "clang-tidy --load=/tmp/x.so x.c"),
        ("pytest", "pytest -p evil"),
        ("pytest", "pytest -pevil"),
        ("pytest", "pytest -qp evil"),
        ("pytest", "pytest -W error::evil.X"),
        ("pytest", "pytest --tx popen//python=./evil"),
        ("pytest", "pytest --ignore=/tmp/x"),
        ("python -m pytest", "python -m pytest -p evil"),
        ("uv run python -m pytest", "uv run python -m pytest -p evil"),
        ("meson compile", "meson compile -C /tmp/x"),
        ("zig build", "zig build --build-file /tmp/x"),
        ("dotnet build", "dotnet build /tmp/x.csproj"),
        ("shfmt -d .", "shfmt -w ~/.bashrc"),
        ("gofmt -l .", "gofmt -w ~/x.go"),
        ("ruff check", "ruff check --output-file x"),
        ("ruff check", "ruff check -o x"),
        ("ruff format", "ruff format ~/x.py"),
        ("ruff check", "ruff check --config=/tmp/x"),
        ("flake8", "flake8 --output-file x"),
        ("go build ./...", "go build -o ~/x"),
        ("go build ./...", "go build -o .husky/pre-commit"),
        ("go test ./...", "go test /tmp/evil"),
        ("go test ./...", "go test -coverprofile=/tmp/x"),
        ("cargo test", "cargo test --manifest-path ../x"),
        ("cargo doc", "cargo doc --open"),
        ("cargo fmt", "cargo fmt -- --config-path /tmp"),
        ("tsc", "tsc --outFile ../x"),
        ("tsc", "tsc -OUTDIR /x"),
        ("npx tsc", "npx tsc --outDir .vscode"),
        ("npx tsc", "npx tsc @x"),
        ("npm test", "npm test -- --globalSetup=/tmp/x"),
        ("npm run lint", "npm run lint -- --config ~/x"),
        ("python3 -m json.tool a", "python3 -m json.tool a ~/.bashrc"),
        ("python -m zipfile -l x", "python -m zipfile -e evil.zip /root"),
        ("git bundle verify x", "git bundle create ~/.bashrc --all"),
        ("docker build .", "docker build -o / ."),
        ("docker compose up", "docker compose -f /tmp/x up"),
        ("git switch dev", "git switch -f -C main evil"),
        ("git switch dev", "git switch --discard-changes dev"),
        ("git commit -m x", "git commit --amend"),
        ("git commit -m x", "git commit -F /etc/passwd"),
        ("git read-tree HEAD", "git read-tree --reset -u HEAD~9"),
        ("git clone a", "git clone b ~/y"),
        ("git stash pop", "git stash drop"),
        ("git apply x", "git apply --unsafe-paths y"),
        ("uv sync", "uv sync --index-url http://evil"),
        ("golangci-lint run", "golangci-lint run -c /tmp/x"),
        ("luacheck .", "luacheck --config /tmp/x ."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_confined", [True, False])
def test_proposed_rule_covers_no_other_code_and_no_writing_elsewhere(
    project, line, other, is_confined
):
    rule = propose(run(line), project=project)
    assert rule is not None
    assert action(run(other), project, rule, is_confined=is_confined) == "ask"


@prove
def test_everyday_corpus_gets_proposals_that_work(project):
    corpus = (Path(__file__).parent / "corpora" / "everyday_commands.txt").read_text().splitlines()
    lines = [line for line in corpus if not line.startswith(("##", '"'))]
    asked = [line for line in lines if not is_allowed(run(line), project)]
    proposals = {line: rule for line in asked if (rule := propose(run(line), project=project))}
    assert len(proposals) >= 0.85 * len(asked), sorted(set(asked) - proposals.keys())
    for line, rule in proposals.items():
        assert is_allowed(run(line), project, rule), (line, rule)


@pytest.mark.parametrize(
    "tool, path, glob",
    [
        ("edit", "src/a.py", "./src/**"),
        ("write", "src/deep/a.py", "./src/deep/**"),
        ("edit", "!src/a.py", "./!src/**"),
        ("edit", "a.py", "./a.py"),
        ("edit", "src/we[i]rd*/a.py", "./src/we[[]i]rd[*]/**"),
        ("edit", "[x].py", "./[[]x].py"),
        ("write", ".git/hooks/x", "./.git/hooks/x"),
        ("write", "sub/.envrc", "./sub/.envrc"),
    ],
)
def test_proposed_path_is_the_directory_of_the_file(project, tool, path, glob):
    effect = Effect(tool, "write", path=f"{project}/{path}")
    rule = propose(effect, project=project)
    assert rule is not None
    assert (rule.tool, rule.path) == (tool, glob)
    assert is_allowed(effect, project, rule)
    assert not is_allowed(Effect(tool, "write", path=f"{project}/elsewhere/a.py"), project, rule)


def test_proposed_path_outside_of_the_project_is_the_file(project, tmp_path):
    effect = Effect("write", "write", path=str(tmp_path / "x.txt"))
    rule = propose(effect, project=project)
    assert rule is not None
    assert rule.path == str(tmp_path / "x.txt")
    assert is_allowed(effect, project, rule)


def test_proposed_host_is_the_host_with_its_port(project):
    for host in ("example.com", "Example.com:8080", "[::1]:80"):
        effect = Effect("web_fetch", "fetch", host=host)
        rule = propose(effect, project=project)
        assert rule is not None
        assert rule.host == host.lower()
        assert is_allowed(effect, project, rule)
    assert propose(Effect("web_fetch", "fetch", host="a b"), project=project) is None


# --- Tools from outside ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["deny", "ask"])
def test_rule_against_a_tool_holds_when_its_server_tells_of_it_anew(project, action):
    rule = Rule(action=action, tool="mcp__a__delete")
    told_again = Effect("mcp__a__delete-2", "call")
    rules = [Rule(action="allow", tool="mcp__a__*"), rule]
    assert decide(told_again, "ask", rules, project=project, is_confined=True).rule == rule


def test_rule_that_allows_a_tool_does_not_allow_what_its_server_made_of_it_later(project):
    assert not is_allowed(
        Effect("mcp__a__read-2", "call"), project, Rule(action="allow", tool="mcp__a__read")
    )


@pytest.mark.parametrize("tool", ["mcp__my.server__*", "mcp__my server__*", "mcp__a__b/c"])
def test_rule_with_a_name_that_no_tool_can_have_is_refused(project, tool):
    with pytest.raises(ConfigError, match="invalid tool name"):
        load_rules([{"action": "deny", "tool": tool}], project)
