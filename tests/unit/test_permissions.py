"""What runs at once, what asks and what is refused: modes, rules, and two corpora of commands."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples, little_work, prove, prove_rest

from sanderling.mcp.servers import MAX_NUMBER, tool_name
from sanderling.permissions.decide import Mode, applies, decide, why_not_allowed_by
from sanderling.permissions.proposing import propose, propose_wider
from sanderling.permissions.rules import Rule
from sanderling.permissions.rules import rule_from_text as rule
from sanderling.sandbox.execution_environment import LOCAL_DISK, Disk
from sanderling.sandbox.kernel import programs
from sanderling.text import name_set
from sanderling.tools.effects import Effect, is_outside_name

pytestmark = pytest.mark.guard

CORPORA = Path(__file__).parent / "corpora"


def corpus(name: str) -> list[str]:
    lines = (CORPORA / name).read_text().splitlines()
    return [as_command(line) for line in lines if not line.startswith("##")]


def as_command(line: str) -> str:
    """A line that is JSON stands for what it decodes to; others that begin with a quote are as they are."""
    try:
        decoded = json.loads(line)
    except ValueError:
        return line
    return decoded if isinstance(decoded, str) else line


def allow(*commands: str) -> list[Rule]:
    return [rule(f"allow bash {command}") for command in commands]


PROGRAMS = (
    "ls cat find env echo grep rg fd sort shuf uniq xxd tree file date hostname printf read test [ sed awk gawk make tar rsync xargs"
    " timeout nice nohup sudo doas bash sh zsh dash fish python python3 perl ruby node php lua deno bun docker curl wget sqlite3 zip"
    " split vim less more man nvim ed ssh eval exec command builtin source . time coproc export declare typeset readonly local set"
    " shopt enable hash alias unalias trap mapfile readarray getopts bind complete compgen fc history unset let parallel flock busybox"
    " script strace chroot unshare stdbuf setsid ionice watch for npx doas"
)
RULES = allow(
    *PROGRAMS.split(),
    *("git status", "git diff", "git log", "git show", "git grep", "git cat-file", "git submodule"),
    *("git bisect", "git rebase"),
    *("git difftool", "git clone", "git fetch", "git ls-remote", "git help", "npm test"),
    *("npm exec", "npm x", "python -m pytest"),
    *("uv run", "uv run pytest", "poetry run", "bundle exec", "go test", "go vet", "go build"),
    *("cargo test", "git config --list"),
)
EVERYDAY_RULES = allow(
    *("git add", "git commit", "git checkout", "git switch", "npm test", "npm run", "npm ci"),
    *("npx tsc", "npx eslint", "npx prettier"),
    *("node scripts/build.js", "pytest", "python -m pytest", "python3 -m pytest", "python -m mypy"),
    *("uv run pytest", "uv run ruff"),
    *("uv run mypy", "ruff", "mypy", "cargo build", "cargo test", "cargo clippy", "cargo fmt"),
    *("cargo check", "go build", "go test"),
    *("go vet", "make", "mkdir", "docker compose ps", "docker compose logs", ".venv/bin/pytest"),
)
WIDE_RULES = allow(
    *name_set(
        "[ arch awk base64 bash bun cargo cat cc cd cmake cp curl date deno diff docker echo env eslint fd find gcc getconf git "
        "go gradle grep head install jq julia just kubectl less ls lua5.4 m4 make mkdir mv mvn mypy mysql ninja node npm patch "
        "perl perl5.36 php pip pnpm printf psql pytest python python3 python3.11 rake read rg rm rsync ruby ruff rustup scp sed "
        "sort sqlite3 ssh-keygen tar tee test touch tree ts-node tsx uniq wget xxd yarn zip"
    ),
    *("npm test", "npm run", "python -m pytest", "docker compose", "uv run pytest"),
    *("rustup run nightly", "/usr/bin/make", "/usr/bin/git", "uv run make", "uv run git"),
)


@pytest.fixture
def project(tmp_path: Path) -> str:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "sub").mkdir()
    return str(root)


def run(command: str, cwd: str = "") -> Effect:
    return Effect("bash", "run", command=command, cwd=cwd)


def action(
    effect: Effect, project: str, *rules: Rule, mode: Mode = "ask", is_confined: bool = True
) -> str:
    return decide(effect, mode, rules, project=project, is_confined=is_confined).action


# --- Changes of several files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules, mode, expected",
    [
        ([], "ask", "ask"),
        ([], "auto", "allow"),
        ([], "plan", "deny"),
        (["deny edit b.py"], "auto", "deny"),
        (["ask write b.py"], "auto", "ask"),
        (["allow code_refactor a.py"], "ask", "ask"),
        (["allow code_refactor a.py", "allow code_refactor b.py"], "ask", "allow"),
        (["allow edit *.py"], "ask", "ask"),
    ],
)
def test_a_change_of_several_files_is_judged_by_each_of_them(tmp_path, rules, mode, expected):
    project = str(tmp_path)
    paths = (f"{project}/a.py", f"{project}/b.py")
    effect = Effect("code_refactor", "write", path=project, paths=paths)
    made = [*map(rule, rules)]
    assert action(effect, project, *made, mode=mode) == expected


def test_no_rule_is_proposed_for_a_change_of_several_files(tmp_path):
    paths = (f"{tmp_path}/a/a.py", f"{tmp_path}/b/b.py")
    effect = Effect("code_refactor", "write", path=str(tmp_path), paths=paths)
    assert propose(effect, project=str(tmp_path)) is None
    one = Effect("code_refactor", "write", path=paths[0], paths=paths[:1])
    assert str(propose(one, project=str(tmp_path))) == "allow code_refactor ./a/**"


# --- The corpora ---------------------------------------------------------------------------------------------------------------


def test_corpora_are_as_large_as_they_have_to_be():
    assert len(set(corpus("tricky_commands.txt"))) >= 550
    assert len(set(corpus("wide_rules_commands.txt"))) >= 750
    assert len(set(corpus("unconfined_commands.txt"))) >= 180
    assert len(set(corpus("everyday_commands.txt"))) >= 600


@pytest.mark.parametrize(
    "name, rules, is_confined",
    [
        ("tricky", RULES, False),
        ("wide_rules", WIDE_RULES, True),
        ("unconfined", (), False),
        pytest.param("tricky", RULES, True, marks=prove),
        pytest.param("wide_rules", WIDE_RULES, False, marks=prove),
    ],
)
def test_no_command_of_the_corpora_runs_without_asking(project, name, rules, is_confined):
    """They trick one, make a program run another than the rule is for, or look beyond the project where nothing confines them."""
    allowed = [
        command
        for command in corpus(f"{name}_commands.txt")
        if action(run(command), project, *rules, is_confined=is_confined) == "allow"
    ]
    assert allowed == []


@pytest.mark.parametrize(
    "command",
    [
        *("jq .scripts.test package.json", "jq -r '.dependencies | keys[]' package.json"),
        *("awk '{print $1}' src/a", "grep -rn x src", "rg -n x", "ls -la src", "tree -L 2"),
        *("find . -name x", "du -sh src", "diff -u src/a src/b", "echo done"),
        *("test -f src/a && echo yes", "sha256sum src/a", "git diff HEAD~1 -- src"),
        *("git config user.name", "git --version", "bash --version"),
    ],
)
def test_without_a_sandbox_what_looks_at_the_project_alone_runs_at_once(project, command):
    assert action(run(command), project, is_confined=False) == "allow"


@pytest.mark.parametrize("is_confined", [True, False])
@pytest.mark.parametrize(
    "place", ["{project}/bin", "bin", "", "{project}/sub/../bin", "{base}/link"]
)
def test_program_of_the_project_on_path_is_not_taken_for_the_one_that_only_looks(
    project, tmp_path, monkeypatch, place, is_confined
):
    (tmp_path / "link").symlink_to(f"{project}/bin")
    for name in ("bin/ls", "ls"):
        Path(project, name).parent.mkdir(exist_ok=True)
        Path(project, name).write_text("#!/bin/sh\n")
        Path(project, name).chmod(0o755)
    before = os.environ["PATH"]
    assert action(run("ls"), project, is_confined=is_confined) == "allow"
    monkeypatch.setenv("PATH", f"{place.format(project=project, base=tmp_path)}:{before}")
    assert action(run("ls"), project, is_confined=is_confined) == "ask"
    assert action(run("cat src/a"), project, is_confined=is_confined) == "allow"
    monkeypatch.setenv("PATH", f"{before}:{place.format(project=project, base=tmp_path)}")
    assert action(run("ls"), project, is_confined=is_confined) == "allow"


@pytest.mark.parametrize(
    "target, expected",
    [
        ("{home}/dev/rg/rg", "ask"),  # inside, a command can make that
        ("{home}/dev/hop", "ask"),
        ("{home}/.cargo/bin/rg", "allow"),
        ("{home}/bin/ripgrep", "allow"),
        ("/usr/bin/env", "allow"),
    ],
)
def test_link_to_a_hidden_program_does_not_only_look(
    project, tmp_path, monkeypatch, target, expected
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(programs, "PRIVATE", ("/tmp/sanderling-none",))
    for name in ("dev/rg/rg", ".cargo/bin/rg", "bin/ripgrep"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "dev/hop").symlink_to("/usr/bin/env")
    (tmp_path / "bin/rg").symlink_to(target.format(home=tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    assert action(run("rg x"), project) == expected
    assert action(run("rg x"), project, is_confined=False) == "allow"


class Elsewhere(Disk):
    """A machine on which `link`, in any directory, leads to /secrets."""

    def real_path(self, path):
        return "/secrets" if path.endswith("/link") else path

    def status(self, path):
        return Path("/").stat() if path.endswith("/directory") else None

    def is_program(self, path):
        return path == "/usr/bin/cat"


def test_what_a_command_looks_at_is_looked_up_on_the_disk_where_it_runs():
    def action_of(command, *rules):
        effect = Effect("bash", "run", command=command, cwd="/project")
        return decide(
            effect, "ask", rules, project="/project", is_confined=False, disk=Elsewhere()
        ).action

    assert action_of("cat file") == "allow"
    assert action_of("cat x/link") == "ask"
    assert action_of("diff a b") == "allow"
    assert action_of("diff a directory") == "ask"
    assert action_of("cat x/link", rule("deny read /secrets")) == "deny"


def test_next_program_on_path_counts_where_the_first_may_be_hidden(project, tmp_path, monkeypatch):
    for directory in (tmp_path / "hidden", Path(project, "bin")):
        directory.mkdir()
        (directory / "jq").write_text("#!/bin/sh\n")
        (directory / "jq").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/hidden:{project}/bin:{os.environ['PATH']}")
    assert action(run("jq . x"), project) == "ask"
    monkeypatch.setenv("PATH", f"{tmp_path}/hidden:/usr/bin:{project}/bin")
    assert action(run("jq . x"), project) == ("allow" if Path("/usr/bin/jq").exists() else "ask")


@pytest.mark.parametrize(
    "directory, target, expected",
    [
        (".asdf/shims", "", ("ask", "ask")),
        (".local/share/mise/shims", "mise", ("ask", "ask")),
        (".cargo/bin", "rustup", ("ask", "ask")),
        (".volta/bin", "volta-shim", ("ask", "ask")),
        (".pyenv/shims", "", ("allow", "ask")),
        (".local/bin", "", ("allow", "allow")),
    ],
)
def test_program_whose_version_the_directory_chooses_does_not_only_look(
    project, tmp_path, monkeypatch, *, directory, target, expected
):
    (tmp_path / directory).mkdir(parents=True)
    program = tmp_path / (target or f"{directory}/jq")
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    if target:
        (tmp_path / directory / "jq").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path / directory}:{os.environ['PATH']}")
    decided = [action(run("jq --version"), project, is_confined=each) for each in (True, False)]
    assert tuple(decided) == expected


def test_every_tricky_prefix_rule_allows_something(project):
    """Without this the test above could pass because the rules are of no use."""
    for command in (
        *("ls -la", "cat x", "find . -name y", "npm test", "python -m pytest -q", "git log -3"),
        *("sed -n 1p x", "curl http://x", "make all", "docker ps", "cargo test -q"),
        *("go test ./...", "uv run pytest", "tar -tf x", "sqlite3 x y", "python x.py"),
    ):
        assert action(run(command), project, *RULES) == "allow", command


@pytest.mark.parametrize(
    "command",
    [
        *("git push", "git merge -s ours x", "git config user.name x"),
        *("git remote add x https://y", "make test", "make -j4 -C sub test"),
        *("npm test -- --script-shell=x", "npm --prefix sub run build"),
        *("pytest -x -k 'a or b' tests", "pytest -nauto -p no:cacheprovider"),
        *("python -m pytest src", "docker ps", "docker compose up", "kubectl get pods -o yaml"),
        *("cmake -S . -B build -DCMAKE_BUILD_TYPE=Release -DX=ON", "cmake --build build"),
        *("go build -o app -ldflags '-s -w' ./...", "sqlite3 -header x.db 'select 1'"),
        *("curl -sS -H 'a: b' https://x", "wget -qO- https://x", "gcc -O2 -o x x.c", "tar -xzf x"),
        *("sed -nE '/x/p' y", "awk 'NR>1 && $2 >= 3 {print $1}' x", "printf '%5.2f%%\\n' 3"),
        *("rm x", "bash x.sh", "rustup show"),
    ],
)
def test_rule_for_a_whole_program_covers_what_that_program_does_by_itself(project, command):
    assert action(run(command), project, *WIDE_RULES) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git commit -m \"$(cat <<'EOF'\nfix: x\n\nIt's `code` and $HOME, in ../y of /etc.\nEOF\n)\"",
        'git commit -m fix -m "$(cat <<"EOF"\n- a\n- (b\nEOF\n)" && git status',
        'git commit -m "$(cat <<EOF\nfix: x\nEOF\n)"',
        "git commit -F - <<'EOF'\nfix: x\nEOF",
        "git commit --allow-empty -qF - <<-'EOF'\n\tfix: x\n\tEOF",
        "git commit --file=- <<EOF && git log -1\nfix: x\nEOF",
        "git commit --file - \\\n  <<EOF\nfix: x\nEOF",
        "cat <<'EOF' | git commit -F -\nfix: x\nEOF",
        "git commit \\\n  -m 'fix: x' \\\n  -- src",
    ],
)
def test_message_in_a_here_document_is_as_good_as_one_in_quotes(project, command):
    assert action(run(command), project, *allow("git commit")) == "allow"
    assert action(run(command), project) == "ask"
    no_cat = rule("deny bash cat")
    expected = "deny" if "cat <<" in command else "allow"
    assert action(run(command), project, *allow("git commit"), no_cat) == expected


@pytest.mark.parametrize(
    "command",
    [
        *("bash <<'E'\nrm x\nE", "ssh host <<'E'\nrm x\nE", "make -f - <<'E'\nx:\n\tRM x\nE"),
        *("ed notes <<'E'\n!rm x\nE", "cat <<'E' | ssh host\nrm x\nE"),
        *("bash -c 'xargs -I% % x <<E\nrm\nE'", "xargs cat <<'E'\nsecrets/x\nE"),
        "git apply <<'E'\n+++ b/secrets/x\nE",
    ],
)
def test_here_document_that_names_what_a_rule_forbids_asks(project, command):
    rules = [*map(rule, ("deny bash rm", "deny read secrets/**", "deny edit secrets/**"))]
    assert action(run(command), project, *rules, mode="auto") == "ask"
    other = command.replace("rm", "mv").replace("RM", "MV").replace("secrets", "public")
    if not command.startswith("bash <<"):
        assert action(run(other), project, *rules, mode="auto") == "allow"


def test_next_to_none_of_the_everyday_commands_asks(project):
    commands = corpus("everyday_commands.txt")
    asked = [c for c in commands if action(run(c), project, *EVERYDAY_RULES) != "allow"]
    assert len(asked) <= 0.03 * len(commands), asked


def test_what_only_looks_needs_no_rule_and_what_changes_anything_does(
    project,
):
    assert action(run("git status && ls"), project) == "allow"
    for command in ("git add -A", "mkdir x", "npm test", "pytest", "rm x", "ruff check ."):
        assert action(run(command), project) == "ask", command


@pytest.mark.parametrize(
    "command", ["black ln", "ruff check --fix ln", "mypy ln", "go build -o ln"]
)
def test_rule_does_not_cover_a_link_out_of_the_project_by_its_bare_name(project, tmp_path, command):
    (tmp_path / "elsewhere").mkdir()
    Path(project, "ln").symlink_to(tmp_path / "elsewhere")
    rules = allow("black", "ruff check", "mypy", "go build")
    assert action(run(command), project, *rules) == "ask"
    assert action(run(command.replace("ln", "src")), project, *rules) == "allow"


ALLOWED = [
    *("ls -la", "cat 'a b'", "git status", "npm test", "find . -name x", 'echo "it\'s"'),
    *("grep -n 'a;b' x", "python -m pytest -q"),
]
FORBIDDEN = [
    *("rm -rf x", "git push", "ls > x", "sudo ls", "x=$(ls) ls", "find . -delete", "PATH=. ls"),
    *("./ls", "eval ls", "ls & true", "bash -c ls"),
]
JOINS = [
    *(" && ", " || ", "; ", ";", "\n", " | ", "|", " |& ", " & ", "&", " && ! ", "; time "),
    *("\n\n# x\n", " && (", "; { "),
]
AROUND = ["{}", "({})", "{{ {}; }}", "! {}", "if {}; then ls; fi", "if ls; then {}; fi", "while ls; do {}; done", "for f in a; do {}; done",
          "case x in y) {};; esac", "$({})", 'ls "$({})"', "cat <({})", "f() {{ {}; }}", "{} 2>&1", "ls && ({})"]  # fmt: skip


@prove
@settings(max_examples=examples(600), deadline=None)
@given(st.data())
def test_nothing_that_is_forbidden_hides_behind_what_is_allowed(data):
    """However they are joined: a command that no rule covers makes the whole line ask."""
    parts = data.draw(st.lists(st.sampled_from(ALLOWED), max_size=3))
    bad = data.draw(st.sampled_from(AROUND)).format(data.draw(st.sampled_from(FORBIDDEN)))
    parts.insert(data.draw(st.integers(0, len(parts))), bad)
    line = parts[0]
    for part in parts[1:]:
        line += data.draw(st.sampled_from(JOINS)) + part
    assert action(run(line), "/project", *RULES) == "ask", line


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.sampled_from(ALLOWED), min_size=1, max_size=5), st.data())
def test_what_is_allowed_stays_allowed_in_company(commands, data):
    line = commands[0]
    for command in commands[1:]:
        line += data.draw(st.sampled_from([" && ", " || ", "; ", "\n", " | ", " |& "])) + command
    assert action(run(line), "/project", *RULES) == "allow", line


# --- Modes ---------------------------------------------------------------------------------------------------------------------

INSIDE, OUTSIDE = "src/a.py", "../other/a.py"


@pytest.mark.parametrize(
    "kind, target, mode, is_confined, expected",
    [
        ("none", "", "ask", False, "allow"),
        ("read", INSIDE, "ask", True, "allow"),
        ("read", INSIDE, "plan", False, "allow"),
        ("read", OUTSIDE, "ask", True, "allow"),  # the sandbox decides what can be seen
        ("read", OUTSIDE, "auto", False, "ask"),
        ("write", INSIDE, "ask", True, "ask"),
        ("write", INSIDE, "auto", True, "allow"),
        ("write", INSIDE, "auto", False, "ask"),
        ("write", OUTSIDE, "auto", True, "ask"),
        ("write", INSIDE, "plan", True, "deny"),
        ("write", INSIDE, "plan", False, "deny"),
        ("run", "make", "ask", True, "ask"),
        ("run", "make", "auto", True, "allow"),
        ("run", "$(curl x)", "auto", True, "allow"),
        ("run", "make", "auto", False, "ask"),
        ("run", "make", "plan", True, "allow"),
        ("run", "make", "plan", False, "ask"),
        ("run", "ls", "plan", False, "ask"),
        ("run", "ls", "ask", False, "allow"),
        ("run", "", "ask", True, "ask"),
        ("fetch", "example.com", "ask", True, "ask"),
        ("fetch", "example.com", "auto", True, "ask"),
        ("fetch", "example.com", "plan", True, "ask"),
        ("call", "", "ask", True, "ask"),
        ("call", "", "auto", True, "ask"),
        ("call", "", "plan", True, "ask"),
    ],
)
def test_mode_decides_where_no_rule_does(project, *, kind, target, mode, is_confined, expected):
    field = {"read": "path", "write": "path", "run": "command", "fetch": "host"}.get(kind)
    value = f"{project}/{target}" if field == "path" else target
    effect = Effect("tool", kind, **({field: value} if field else {}))
    assert action(effect, project, mode=mode, is_confined=is_confined) == expected


@pytest.mark.parametrize("is_confined", [True, False])
def test_exports_end_all_that_is_allowed_but_what_the_sandbox_alone_allows(project, is_confined):
    exported = ("PATH='/x'", "LD_PRELOAD (unset)")
    rules = (*allow("ls", "ls $", "npm test"), Rule(action="allow"))
    for command in ("ls", "npm test", "git status"):
        effect = Effect("bash", "run", command=command, exported=exported)
        decision = decide(effect, "ask", rules, project=project, is_confined=is_confined)
        assert decision.action == "ask"
        assert "PATH='/x', LD_PRELOAD (unset), which" in decision.reason
        assert action(effect, project, mode="auto") == "allow"


@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
def test_leaving_the_sandbox_always_asks_whatever_is_allowed(project, mode):
    effect = Effect("bash", "run", command="ls", leaves_sandbox=True)
    assert action(effect, project, *allow("ls", "ls $"), Rule(action="allow"), mode=mode) == "ask"


def test_plan_mode_tells_the_model_what_to_do_instead(project):
    effect = Effect("edit", "write", path=f"{project}/a")
    decision = decide(effect, "plan", [rule("allow edit")], project=project, is_confined=True)
    assert decision.action == "deny"
    assert "plan mode" in decision.reason
    assert "answer" in decision.reason


def test_granted_paths_are_written_in_auto_mode(project, tmp_path):
    effect = Effect("write", "write", path=str(tmp_path / "out" / "x"))
    for paths, expected in (((str(tmp_path / "out"),), "allow"), ((), "ask")):
        decision = decide(effect, "auto", [], project=project, is_confined=True, write_paths=paths)
        assert decision.action == expected


@pytest.mark.parametrize(
    "name",
    [
        *(".git/hooks/pre-commit", ".envrc", ".vscode/tasks.json", "sub/.git/config", "GEMINI.md"),
        *(".nvim.lua", ".GIT/hooks/x", "gemini.MD", ".Vscode/x", "sub/.vim/x", ".hg/hgrc"),
        *(".husky/_/pre-commit", ".cargo/config.toml", "sub/.Cargo/Config.toml"),
        *("app.code-workspace", "opencode.json", "sub/.dir-locals-2.el"),
    ],
)
def test_what_runs_when_the_project_is_opened_is_never_written_just_so(project, name):
    effect = Effect("write", "write", path=f"{project}/{name}")
    assert action(effect, project, mode="auto") == "ask"
    assert action(effect, project, rule("allow write **/*")) == "ask"
    assert action(effect, project, rule("allow write")) == "ask"
    assert action(effect, project, Rule(action="allow", tool="write", path=f"./{name}")) == "allow"


@pytest.mark.parametrize("name", [".cargo/registry/x", "config.toml", "husky/x", "code-workspace"])
@pytest.mark.parametrize("below", ["", ".claude/worktree"])
def test_what_only_resembles_such_a_name_is_written_like_any_other(project, below, name):
    project = f"{project}/{below}"
    assert (
        action(Effect("write", "write", path=f"{project}/{name}"), project, mode="auto") == "allow"
    )


def test_link_that_leads_out_of_the_project_is_outside(project, tmp_path):
    (tmp_path / "other").mkdir()
    Path(project, "link").symlink_to(tmp_path / "other")
    effect = Effect("write", "write", path=f"{project}/link/x")
    assert action(effect, project, mode="auto") == "ask"
    assert action(effect, project, rule("allow write link/**")) == "ask"
    assert action(effect, project, rule("allow write")) == "ask"


def test_without_a_sandbox_only_the_project_is_read_at_once(project, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    Path(project, "innocent").symlink_to(secret)
    (tmp_path / "other").mkdir()
    Path(project, "away").symlink_to(tmp_path / "other")
    for command in (
        *(f"cat {secret}", "cat innocent", "cat ../secret", "cat ~/.ssh/id_rsa", "grep -r x /etc"),
        *("cat $x", "ls src && cat /etc/passwd", f"cat < {secret}", "{ cat; } < ../secret"),
        *(f"read -r x < {secret}; echo x", "while read -r x; do echo x; done < ../secret"),
        *(f"file -b -i -F: {secret}", "cat sub/../../secret", "cat away/../secret"),
        *("sort --files0-from=list", "wc --fi=-", "grep -f../secret x", "ps", "cat ~-/secret"),
        *("head -1 ~1/secret", "cat '~/secret'"),
    ):
        assert action(run(command), project, is_confined=False) == "ask", command
        assert action(run(command), project, is_confined=True) == "allow", command
    for command in ("ls", "ls -la", "find", "tree", "du", "cat a"):  # where it is
        assert action(run(command, "/etc"), project, is_confined=False) == "ask", command
        assert action(run(command, "/etc"), project, is_confined=True) == "allow", command
    assert action(run("ls", project), project, is_confined=False) == "allow"
    assert action(run("cat src/a && git status"), project, is_confined=False) == "allow"
    # A configuration of its own.
    assert action(run("cd sub && git status"), project, is_confined=False) == "ask"
    assert action(run("cd sub && git status"), project, is_confined=True) == "allow"
    assert action(run("git -C sub status"), project, is_confined=False) == "ask"
    assert action(run("git -C . status"), project, is_confined=False) == "allow"
    assert action(run(f"git -C {project} status"), project, is_confined=False) == "allow"
    assert action(run("git status", cwd=f"{project}/sub"), project, is_confined=False) == "ask"


@pytest.mark.parametrize(
    "name, text",
    [
        ("config", "[core]\n\tbare = false\n\tworktree = {home}\n"),
        ("config", "[CORE] WorkTree={home}\n"),
        ("config.worktree", "[core]\nworktree = {home}\n"),
    ],
)
def test_git_of_a_repository_with_files_elsewhere_asks_unconfined(project, tmp_path, name, text):
    subprocess.run(["git", "init", "-q", project], check=True)
    (Path(project) / ".git/config").write_text("[extensions]\nworktreeConfig = true\n")
    assert action(run("git diff"), project, is_confined=False) == "allow"
    (Path(project) / ".git" / name).write_text(text.format(home=tmp_path))
    assert action(run("git diff"), project, is_confined=False) == "ask"
    assert action(run("git diff"), project, is_confined=True) == "allow"


@pytest.mark.parametrize("has_hollow_git", [False, True])
@pytest.mark.parametrize("holder", ["", "common"])
def test_git_of_a_project_that_is_a_git_directory_itself_asks_where_its_files_lie_elsewhere(
    project, tmp_path, has_hollow_git, holder
):
    shutil.rmtree(project)
    subprocess.run(["git", "init", "-q", "--bare", project], check=True)
    if has_hollow_git:
        (Path(project) / ".git").mkdir()
    if holder:
        (Path(project) / holder).mkdir()
        (Path(project) / "commondir").write_text(f"{holder}\n")
    assert action(run("git status"), project, is_confined=False) == "allow"
    (Path(project) / holder / "config").write_text(f"[core]\n\tworktree = {tmp_path}\n")
    assert action(run("git status"), project, is_confined=False) == "ask"


def test_git_of_a_linked_worktree_needs_no_question_without_the_sandbox(project, tmp_path):
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run([*git, "init", "-q", str(tmp_path / "main")], check=True)
    subprocess.run(
        [*git, "commit", "-q", "--allow-empty", "-m", "a"], cwd=tmp_path / "main", check=True
    )
    shutil.rmtree(project)
    subprocess.run([*git, "worktree", "add", "-q", project], cwd=tmp_path / "main", check=True)
    assert action(run("git status"), project, is_confined=False) == "allow"


# --- Rules ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules, expected",
    [
        (["allow bash ls x"], "allow"),
        (["allow bash rm", "ask bash rm x"], "ask"),
        (["allow bash rm", "ask bash rm", "deny bash rm"], "deny"),
        (["deny bash rm", "ask bash rm", "allow bash rm x"], "deny"),
        (["allow bash"], "allow"),
        (["allow *"], "allow"),
        (["allow *", "deny *"], "deny"),
        (["allow bash *"], "allow"),
        (["allow bash rm $"], "ask"),
        (["allow bash rm x $"], "allow"),
        (["allow bash r"], "ask"),
        (["allow edit"], "ask"),
    ],
)
def test_deny_goes_before_ask_before_allow(project, rules, expected):
    command = "ls x" if rules == ["allow bash ls x"] else "rm x"
    for order in (rules, rules[::-1]):
        assert action(run(command), project, *map(rule, order)) == expected


@pytest.mark.parametrize(
    "forbidden, command",
    [
        ("rm", "rm -rf x"),
        ("rm", "ls && rm x"),
        ("rm", "ls; /bin/rm x"),
        ("rm", "\\rm x"),
        ("rm", "r'm' x"),
        ("rm", "sudo rm x"),
        ("rm", "sudo -u me env A=1 rm x"),
        ("rm", "timeout 5 nice rm x"),
        ("rm", "find . -exec rm {} +"),
        ("rm", "ls | xargs rm"),
        ("rm", "bash -c 'rm x'"),
        ("rm", "bash -c \"sh -c 'ls; rm x'\""),
        ("rm", "eval 'ls; rm x'"),
        ("rm", "eval rm x"),
        ("rm", "ssh host 'rm x'"),
        ("rm", "ls $(rm x)"),
        ("rm", "ls `rm x`"),
        ("rm", "cat <(rm x)"),
        ("rm", "f() { rm x; }; f"),
        ("rm", 'echo "a $(rm x)"'),
        ("rm", "if true; then rm x; fi"),
        ("rm", "rm x &"),
        ("rm", "A=1 rm x"),
        ("rm", "rm x > y"),
        ("rm", "[[ a ]] && rm x"),
        ("rm", "ls \\\n; rm x"),
        ("rm", "ls ' ; rm x"),
        ("rm", "ls\r; rm x"),
        ("rm", "ls " + "a" * 10_000 + "; rm x"),
        ("rm", "uv run rm x"),
        ("rm", "cat <<E\n$(rm x)\nE"),
        ("git push", "git push origin main"),
        ("git push", "git --no-pager push"),
        ("git push", "git -C sub push"),
        ("git push", "timeout 5 git push"),
        ("*", "anything at all"),
        ("npm publish", "cd sub && npm publish"),
        ("git push --force", "git push --force origin"),
        ("git push", "/usr/bin/git -C sub push"),
        ("git push", "sudo git --no-pager -C sub push"),
        ("rm", "env -S'rm x'"),
        ("rm", "su -c'rm x'"),
        ("rm", "tar -I'rm x' -xf y"),
        ("rm", "sort --compress-program=/bin/rm y"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
def test_denied_command_is_found_wherever_it_can_be_seen(project, forbidden, command, mode):
    rules = [*allow("rm", "git", "sudo", "ls", "bash"), rule(f"deny bash {forbidden}")]
    assert action(run(command), project, *rules, mode=mode) == "deny"


@pytest.mark.parametrize(
    "forbidden, command",
    [
        ("rm", "$x y"),
        ("rm", 'eval "$x"'),
        ("rm", "ls $(echo cm0geA== | base64 -d)"),
        ("rm", "bash <<< x"),
        ("git push", "git $x"),
        ("git push", "git -c a=b push"),
        ("git push", "git --exec-path=x push"),
        ("git push --force", "git push $x"),
        ("git push --force", 'git push "$x" origin'),
        ("rm -rf", "rm {-rf,x}"),
        ("rm", "RM x"),
        ("rm", "/bin/Rm x"),
        ("rm", "echo 'rm x' | sh"),
        ("rm", "echo 'rm x' | sudo -u me sh"),
        ("rm", "echo 'rm x' | env bash -s"),
        ("rm", "echo 'rm x' | bash /dev/stdin"),
        ("rm", "echo 'rm x' | uv run python"),
        ("rm", "printf 'rm x' | source /dev/stdin"),
        ("rm", "echo \"-c 'rm x'\" | xargs sh"),
        ("rm", "shopt -s expand_aliases; alias x=rm"),
        ("rm", "tar --to-command=rm -xf y"),
        ("rm", "tar -Irm -xf y"),
        ("rm", "perl -e 'system \"rm x\"'"),
        ("git push", "timeout 5 git -c a=b push"),
        ("git push", "git --git-dir=x push"),
        ("git push --force", "git push origin --force"),
        ("git push --force", "git push -uf origin"),
        ("git push --force", "git push --forc"),
        ("git push --force", "git push origin $x"),
        ("npm publish", "npm --tag x publish"),
        ("rm -rf", "rm -r -f x"),
        ("rm -rf", "rm x -fR"),
        ("rm -rf", "rm --recursive --force x"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
def test_what_might_be_denied_asks_even_where_everything_runs(project, forbidden, command, mode):
    rules = [*allow("rm", "git", "ls"), rule(f"deny bash {forbidden}")]
    assert action(run(command), project, *rules, mode=mode) == "ask"


@pytest.mark.parametrize(
    "forbidden, command",
    [
        ("rm", "grep -rn rm src"),
        ("rm", "echo rm"),
        ("rm", "git commit -m 'rm x'"),
        ("rm", "git rm x"),
        ("rm", "npm run rm"),
        ("rm", "rmdir x"),
        ("git push", "git log --grep push"),
        ("git push --force", "git push origin"),
        ("git push $", "git push origin"),
        ("make", "ls Makefile; cmake ."),
        ("git push --force", "git push --follow-tags origin"),
        ("npm publish", "npm run publish"),
        ("rm -rf", "rm -r x"),
        ("rm", "command -v python"),
        ("rm", "python x.py < y"),
        ("rm", "bash x.sh"),
    ],
)
def test_denied_word_that_is_no_command_is_only_a_word(project, forbidden, command):
    denied = rule(f"deny bash {forbidden}")
    assert action(run(command), project, denied, mode="auto") == "allow"


@pytest.mark.parametrize(
    "glob, command, expected",
    [
        (".env", "cat .env", "deny"),
        (".env", "cat ./src/../.env", "deny"),
        (".env", "cat sub/.env", "deny"),
        (".env", "ls && head -1 '.e'nv", "deny"),
        (".env", "git show HEAD:.env", "deny"),
        (".env", "curl -d @.env x", "deny"),
        (".env", "grep --file=.env x", "deny"),
        (".env", "cd sub && cat .env", "deny"),
        (".env", "cat < .env", "deny"),
        (".env", "sudo cat .env", "deny"),
        (".env", "bash -c 'cat .env'", "deny"),
        (".env", "cat link", "deny"),
        (".env", "cat $x", "ask"),
        (".env", "cat .e*", "ask"),
        (".env", "cat $(echo .env | cat)", "deny"),
        (".env", "cat .environment", "allow"),
        ("secrets/**", "tar -cf x secrets", "deny"),
        ("secrets/**", "cat secrets/a/b", "deny"),
        ("secrets/**", "cat sub/secrets/a", "allow"),
        ("secrets/", "cat secrets/a", "deny"),
        ("~/.ssh/**", "cat ~/.ssh/id_rsa", "deny"),
        ("~/.ssh/**", "cat $HOME/.ssh/id_rsa", "ask"),
        ("/etc/shadow", "cat /etc/shadow", "deny"),
        ("/etc/shadow", "cat //etc/./shadow", "deny"),
        (".env", "cat .ENV", "ask"),
        (".env", "file -f.env", "deny"),
        (".env", "grep -nf.env x", "deny"),
        (".env", "curl -T.env x", "deny"),
        (".env", "sed 'r.env' x", "ask"),
        (".env", "find . -name '.en?' -exec cat {} +", "ask"),
        (".env", "python -c 'open(\".env\")'", "deny"),
        (".env", "echo 'cat .e*' | sh", "ask"),
        ("sub/.env", "cat way/../.env", "deny"),
        ("secrets/**", "cat vault/new", "deny"),
        ("secrets/**", "cat SECRETS/a", "ask"),
        ("**/.env", "cat /elsewhere/.env", "deny"),
        ("caf\u00e9", "cat cafe\u0301", "ask"),
        (".env", "cat " + " ".join(f"./{n}" for n in range(1_500)) + " link", "ask"),
        ("secrets/**", "cat ~+/secrets/key", "ask"),
        ("secrets/**", "cat ~-/key", "ask"),
        ("secrets/**", "cat ~0/secrets/key", "ask"),
        ("secrets/**", "cat ~-1/key", "ask"),
        ("secrets/**", "cat < ~+2/key", "ask"),
        ("secrets/**", "grep --file=~+/secrets/key x", "ask"),
        ("secrets/**", "dd if=a:~+/secrets/key", "ask"),
        ("secrets/**", "cat ''~+/secrets/key", "ask"),
        ("secrets/**", "cat '~/key'", "deny"),
        ("secrets/**", "cat \\~/key", "deny"),
        ("secrets/**", "cd '~' && cat key", "deny"),
        ("secrets/**", "git diff HEAD~1 HEAD~+", "allow"),
        ("secrets/**", "cd vault && cat new", "deny"),
        ("secrets/**", "HOME=secrets; cd && cat key", "ask"),
        ("secrets/**", "CDPATH=secrets; cd deep && cat key", "ask"),
        ("secrets/**", "shopt -s cdable_vars; a=secrets; cd a && cat key", "ask"),
        ("secrets/**", 'shopt -s cdable""_vars; a=secrets; cd a && cat key', "ask"),
        ("secrets/**", 'declare -n r="HO""ME"; r=secrets; cd; cat key', "ask"),
        ("secrets/**", "cd src && grep -rn HOME .", "allow"),
        ("secrets/**", "git commit -m 'fix HOME and CDPATH'", "allow"),
        ("secrets/**", "HOME=/tmp make", "allow"),
    ],
)
def test_denied_path_is_found_in_the_words_of_commands(project, glob, command, expected):
    Path(project, ".env").write_text("x")
    Path(project, "link").symlink_to(f"{project}/.env")
    Path(project, "sub", "deep").mkdir()
    Path(project, "way").symlink_to(f"{project}/sub/deep")
    Path(project, "vault").symlink_to(f"{project}/secrets")
    Path(project, "~").symlink_to(f"{project}/secrets")
    denied = rule(f"deny read {glob}")
    assert action(run(command), project, denied, mode="auto") == expected


@pytest.mark.parametrize("there", ["/{}/secrets", "{}/vault", "/{}/vault"])
def test_denied_path_is_found_by_whatever_name_its_directory_goes(project, there):
    Path(project, "secrets").mkdir()
    Path(project, "vault").symlink_to("secrets")
    cwd = there.format(project)
    denied = rule("deny edit secrets/**")
    for effect in (run(f"cd {cwd} && echo x > new"), run("echo x > new", cwd)):
        assert action(effect, project, denied, mode="auto") == "deny"


@pytest.mark.parametrize("exported", ["HOME='secrets'", "CDPATH='secrets'", "HOME (unset)"])
def test_where_a_variable_of_before_turns_cd_a_denied_path_cannot_be_ruled_out(project, exported):
    effect = msgspec.structs.replace(run("cd deep && cat key"), exported=(exported,))
    denied = rule("deny read secrets/**")
    assert action(effect, project, denied, mode="auto") == "ask"
    other = msgspec.structs.replace(effect, exported=("EDITOR='vi'",))
    assert action(other, project, denied, mode="auto") == "allow"


def test_path_that_may_not_be_edited_may_not_be_redirected_to_but_is_read(project):
    denied = rule("deny edit migrations/**")
    writing = Effect("write", "write", path=f"{project}/migrations/1")
    for effect, expected in (
        (run("echo x > migrations/1"), "deny"),
        (run("cat migrations/1"), "allow"),
        (writing, "deny"),
    ):
        assert action(effect, project, denied, mode="auto") == expected


@pytest.mark.parametrize(
    "glob, path, is_match",
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/a/b/c.py", True),
        ("src/**", "lib/src/a.py", False),
        ("src/*", "src/a/b.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/**/test_*.py", "src/a/b/test_c.py", True),
        ("src/**/test_*.py", "src/test_c.py", True),
        ("**/tests/**", "a/tests/b", True),
        ("*.py", "a/b/c.py", True),
        ("*.py", "c.pyc", False),
        ("/src/a.py", "src/a.py", False),
        ("./a.py", "a.py", True),
        ("./a.py", "sub/a.py", False),
        ("src/[ab].py", "src/a.py", True),
        ("src/[!ab].py", "src/a.py", False),
        ("src/?.py", "src/a.py", True),
        ("src/", "src/deep/a.py", True),
        ("src", "src/a.py", False),
        ("src/**", "src/../lib/a.py", False),
        ("src/**", "src/../../etc/passwd", False),
    ],
)
def test_path_rule_is_a_glob_as_in_gitignore(project, glob, path, is_match):
    effect = Effect("edit", "write", path=f"{project}/{path}")
    assert applies(rule(f"allow edit {glob}"), effect, project=project) is is_match


def test_name_without_a_slash_is_denied_everywhere_and_allowed_only_inside(project, tmp_path):
    effect = Effect("write", "write", path=str(tmp_path / "a.pem"))
    assert applies(rule("deny write *.pem"), effect, project=project)
    assert not applies(rule("allow write *.pem"), effect, project=project)


@pytest.mark.parametrize("odd", ["a/\0b", "a/\ud800", "~\0/a", "~\ud800/a", "a/" * 3_000])
def test_name_that_no_file_can_have_is_decided_like_any_other(project, odd):
    rules = [rule("deny read .env"), rule("allow edit src/**"), rule("deny bash rm")]
    assert action(run(f"cat {odd} x/y"), project, *rules, mode="auto") in ("ask", "allow")
    assert action(run(f"cat {odd}"), project, is_confined=False) == "ask" or odd[-1] == "/"
    for kind in ("read", "write"):
        assert action(Effect("edit", kind, path=f"{project}/{odd}"), project, *rules) != "deny"


def test_path_rule_takes_no_time_to_match_whatever_the_path(project):
    hostile = f"{project}/" + "a/" * 2_000 + "b"
    effect = Effect("edit", "write", path=hostile)
    assert not applies(rule("deny edit **/*a*a*a*a/**/a*a*/**/c"), effect, project=project)


def test_project_that_is_reached_through_a_link_is_the_same(project, tmp_path):
    (tmp_path / "alias").symlink_to(project)
    for root in (project, str(tmp_path / "alias")):
        for name in (project, str(tmp_path / "alias")):
            effect = Effect("edit", "write", path=f"{name}/src/a.py")
            assert action(effect, root, rule("allow edit src/**")) == "allow"
            assert action(effect, root, rule("deny edit src/**"), mode="auto") == "deny"


@pytest.mark.parametrize(
    "pattern, host, is_match",
    [
        ("example.com", "example.com", True),
        ("example.com", "EXAMPLE.com.", True),
        ("example.com", "example.com:443", True),
        ("example.com", "example.com:8080", False),
        ("example.com:8080", "example.com:8080", True),
        ("example.com:8080", "example.com", False),
        ("example.com", "evil-example.com", False),
        ("example.com", "a.example.com", False),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("example.com", "example.com.evil.net", False),
        ("[::1]:80", "[::1]:80", True),
    ],
)
def test_host_rule_is_a_name_with_what_lies_below_it_and_a_port(project, pattern, host, is_match):
    effect = Effect("web_fetch", "fetch", host=host)
    assert applies(rule(f"allow web_fetch {pattern}"), effect, project=project) is is_match


@pytest.mark.parametrize(
    "effect, rules, expected",
    [
        (("web_fetch", "fetch"), ["deny web_fetch example.com", "allow web_fetch"], "deny"),
        (("write", "write"), ["allow edit"], "ask"),
        (("write", "write"), ["deny edit", "allow write"], "deny"),
        *(((tool, "read"), ["deny read .env"], "deny") for tool in ("read", "grep", "glob", "ls")),
    ],
)
def test_rule_holds_at_every_port_and_for_all_tools_of_a_kind(project, effect, rules, expected):
    target = {"host": "example.com:8080"} if "fetch" in effect else {"path": f"{project}/.env"}
    assert action(Effect(*effect, **target), project, *map(rule, rules)) == expected


@pytest.mark.parametrize(
    "tool, is_meant",
    [
        ("mcp__db__query", True),
        ("mcp__db__*", True),
        ("mcp__*", True),
        ("*__query", True),
        ("*", True),
        ("mcp__db", False),
        ("MCP__db__query", False),
        ("mcp__db__quer", False),
        ("read", False),
        ("bash", False),
        ("web_fetch", False),
    ],
)
def test_rule_for_tools_from_outside_is_a_name_or_a_glob(project, tool, is_meant):
    effect = Effect("mcp__db__query", "call")
    for act in ("allow", "deny"):
        expected = act if is_meant else "ask"
        assert action(effect, project, rule(f"{act} {tool}")) == expected
    for target in ({"command": "x"}, {"path": "**"}, {"host": "x"}):
        assert action(effect, project, Rule(action="deny", **target)) == "ask"


@pytest.mark.parametrize("glob", ["[!__]*", "*[__]*", "*[!__]"])
def test_glob_is_never_about_our_own_tools(project, glob):
    fetch = Effect("web_fetch", "fetch", host="example.org")
    for effect in (Effect("bash", "run", command="touch x"), fetch):
        assert action(effect, project, rule(f"allow {glob}")) == "ask"


def test_always_for_a_tool_from_outside_is_a_rule_for_that_tool(project):
    effect = Effect("mcp__db__query", "call")
    found = propose(effect, project=project)
    assert str(found) == "allow mcp__db__query"
    assert rule(str(found)) == found
    assert action(effect, project, found) == "allow"
    assert action(effect, project, found, mode="plan") == "ask"
    assert action(Effect("mcp__db__drop", "call"), project, found) == "ask"
    assert propose(Effect("nameless", "call"), project=project) is None
    assert action(effect, project, propose(Effect("mcp__db__*", "call"), project=project)) == "ask"


@pytest.mark.parametrize("tool", ["query", "a.b", "x" * 100, "y" * 50 + ".z"])
@pytest.mark.parametrize("number", [2, MAX_NUMBER])
def test_deny_by_name_holds_for_a_tool_that_is_told_once_more(project, tool, number):
    first, later = tool_name("db", tool), tool_name("db", tool, number=number)
    assert len(later) <= 64
    effect = Effect(later, "call")
    allow, deny = rule("allow mcp__db__*"), rule(f"deny {first}")
    assert action(effect, project, allow, deny) == "deny"
    assert action(effect, project, rule(f"allow {first}")) == "ask"


@pytest.mark.parametrize(
    "wrapper",
    [
        "timeout 60 npm test",
        "bash -c 'ls; pwd'",
        "sudo apt update",
        "find . -name x -delete",
        "env A=1 ls",
    ],
)
def test_command_that_runs_another_is_allowed_only_by_all_its_words(project, wrapper):
    first, second = wrapper.split()[:2]
    for pattern in (first, f"{first} {second}", f"{first} *", wrapper, f"{wrapper} *"):
        assert (
            action(run(wrapper), project, *(allow(pattern) if pattern.count("'") != 1 else ()))
            == "ask"
        ), pattern
    assert action(run(wrapper), project, *allow(f"{wrapper} $")) == "allow"
    assert action(run(f"{wrapper} x"), project, *allow(f"{wrapper} $")) == "ask"


def test_code_from_elsewhere_is_not_what_a_rule_for_its_program_means(project, tmp_path):
    programs = ("cmake", "python", "bash", "pytest", "make", "git")
    rules = allow(*programs, "python -m pytest", f"python {tmp_path}/a.py")
    Path(project, "away").symlink_to(tmp_path)
    for command in (
        *("python ../evil.py", "python ../evil.py -m x", "pytest away", "cmake -S../evil ."),
        *("python away/evil.py", "bash ~/evil.sh", f"pytest {tmp_path}/test_evil.py::test_x"),
        *("pytest src ../evil", "python -m pytest away/evil", "make -C away test"),
        *("make -C .. test", "git -C away/.. status", "git -C away status"),
    ):
        assert action(run(command), project, *rules) == "ask", command
    for command in (
        *("python src/a.py ../data.csv", f"pytest {project}/src/test_a.py::test_x"),
        *("pytest sub src", f"python {tmp_path}/a.py", "make -C sub test", "git -C sub status"),
    ):
        assert action(run(command), project, *rules) == "allow", command


def test_program_of_the_project_is_another_one_in_another_directory(project):
    rules = allow("./run", "npm test")
    assert action(run("./run all"), project, *rules) == "allow"
    assert action(run("cd sub && ./run all"), project, *rules) == "ask"
    assert action(run("./run all", cwd=f"{project}/sub"), project, *rules) == "ask"
    assert action(run("npm test", cwd=f"{project}/sub"), project, *rules) == "allow"
    assert action(run("npm test", cwd="/tmp"), project, *rules) == "ask"


@pytest.mark.parametrize(
    "table, words",
    [
        ({"action": "permit"}, "permit"),
        ({"action": "allow", "tool": "Bash"}, "Bash"),
        ({"action": "deny", "tool": "mcp_server"}, "no tool 'mcp_server'; tools: bash, edit, "),
        ({"action": "deny", "tool": "*_fetch"}, "no tool '*_fetch'"),
        (
            {"action": "deny", "tool": "mcp__x__*", "path": "y"},
            "a rule for 'mcp__x__*' has no path",
        ),
        ({"action": "allow", "tool": "bash", "comand": "ls"}, "comand"),
        ({"action": "allow", "tool": "edit", "command": "ls"}, "a rule for 'edit' has no command"),
        ({"action": "allow", "tool": "bash", "host": "x"}, "a rule for 'bash' has no host"),
        ({"action": "allow", "command": "ls", "path": "x"}, "not command and path"),
        ({"action": "allow", "tool": "bash", "path": "x"}, "name the command"),
        ({"action": "deny", "tool": "edit", "path": "!x"}, "'!'"),
        ({"action": "allow", "command": "ls 'x"}, "quot"),
        ({"action": "allow", "command": "ls * x"}, "'*'"),
        ({"action": "allow", "command": "$"}, "'$'"),
        ({"action": "allow", "host": "https://x/"}, "a host is a name"),
        ({"action": "deny", "command": "x" * 3000}, "2000"),
        ({"tool": "bash"}, "action"),
    ],
)
def test_rule_that_could_never_do_what_it_says_is_refused_in_words(table, words):
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(table, Rule)
    assert words.lower() in str(caught.value).lower()


def test_reason_names_what_is_not_covered(project):
    def reason(command: str, *rules: Rule) -> str:
        return decide(run(command), "ask", rules, project=project, is_confined=True).reason

    assert reason("ls && rm -rf x") == "No rule covers 'rm -rf x'."
    assert "uses command substitution" in reason("ls $(x)")
    assert "'-delete' makes 'find'" in reason("find . -delete", *allow("find"))
    assert "redirected" in reason("ls > x")
    assert reason("ls | ls | ls\nrm x 2>&1") == "No rule covers 'rm x'."
    assert reason(f"rm {'x' * 90}") == f"No rule covers 'rm {'x' * 76}…'."
    assert "sets 'PATH'" in reason("PATH=. ls")
    assert reason("rm x", rule("deny bash rm")) == "A rule forbids this: deny bash rm."
    assert len(reason("x" * 5_000)) < 200


def test_decision_names_the_rule_that_made_it(project):
    (allowed,), denied = allow("npm test"), rule("deny bash rm")
    decision = decide(
        run("ls && npm test"), "ask", [denied, allowed], project=project, is_confined=True
    )
    assert (decision.action, decision.rule) == ("allow", allowed)
    decision = decide(run("rm x"), "ask", [denied, allowed], project=project, is_confined=True)
    assert (decision.action, decision.rule) == ("deny", denied)


@pytest.mark.parametrize(
    "piece",
    prove_rest(
        [
            *("$(", "a=b ", "a;", "git -C a ", "cd a; ", "a:b=c@d ", "sudo ", "bash -c 'a; b' "),
            *("printf '%0", "uv run ", "npx ", "sed -e p ", "make -C a ", "env -S'a b' ", "-f"),
            "a=a/../",
        ],
        keep=(-1,),
    ),
)
def test_hostile_line_is_decided_at_once_whatever_the_rules(piece):
    rules = [Rule(action="deny", tool="bash", command=f"x{number} y") for number in range(30)]
    rules += [rule("deny read .env"), rule("ask read secrets/**"), *RULES]
    with little_work():
        for line in ((piece * 10_000)[:10_000], "printf '%" + "0" * 9_900 + "'"):
            action(run(line), "/project", *rules)


@prove
def test_line_of_100_kb_asks_at_once(project):
    rules = [rule(f"deny bash x{number}") for number in range(30)]
    with little_work():
        assert action(run("ls x; " * 17_000), project, *rules, mode="auto") == "ask"


@pytest.mark.parametrize(
    "typed, is_enough",
    [
        ("allow mcp__git__log", True),
        ("allow mcp__git__*", True),
        ("allow mcp__git__logs", False),
        ("allow mcp__gitlab__*", False),
        ("allow bash mcp__git__log", False),
    ],
)
def test_a_rule_typed_for_a_tool_of_a_server_must_cover_it(project, typed, is_enough):
    effect = Effect("mcp__git__log", "call")
    why = why_not_allowed_by(rule(typed), effect, (), project=project, disk=LOCAL_DISK)
    assert why == ("" if is_enough else "it does not cover 'mcp__git__log'")


@pytest.mark.parametrize(
    "name", ["\x12=1/x", "a\nb/x", "\n/x", "a\x15", "x ", "a  b/c", "a\u202eb", "a\u00a0b"]
)
def test_no_rule_is_proposed_that_cannot_be_read(project, name):
    for tool, kind in (("write", "write"), ("edit", "write"), ("read", "read")):
        assert propose(Effect(tool, kind, path=f"{project}/{name}"), project=project) is None
    assert propose(Effect("web_fetch", "fetch", host="a\x12b"), project=project) is None
    readable = propose(Effect("write", "write", path=f"{project}/ä b/x"), project=project)
    assert str(readable) == "allow write ./ä b/**"


# --- tools in Lua --------------------------------------------------------------------------------------------------------


def lua(does="", server="mark"):
    """The effect of a call of a tool in Lua that declares this."""
    return Effect("lua__open_pr", "call", server=server, does=does, leaves_sandbox=not does)


@pytest.mark.parametrize(
    "does, mode, without, with_rule",
    [
        ("read", "ask", "allow", "allow"),
        ("read", "plan", "allow", "allow"),
        ("write", "auto", "ask", "allow"),
        ("write", "plan", "deny", "deny"),
        ("run", "auto", "ask", "allow"),
        ("run", "plan", "ask", "ask"),
        ("network", "auto", "ask", "allow"),
        ("network", "plan", "ask", "allow"),
        ("", "ask", "ask", "ask"),
        ("", "auto", "ask", "ask"),
        ("", "plan", "ask", "ask"),
    ],
)
def test_a_declared_effect_decides_about_a_tool_in_lua(project, does, mode, without, with_rule):
    rule = Rule(action="allow", tool="lua__open_pr")
    for rules, expected in (((), without), ((rule,), with_rule)):
        decision = decide(lua(does), mode, rules, project=project, is_confined=True)
        assert decision.action == expected


@pytest.mark.parametrize("tool", ["lua__open_pr", "lua__*", "*"])
@pytest.mark.parametrize("forbidden", ["ask", "deny"])
def test_a_rule_forbids_a_tool_in_lua_whatever_it_declares(project, tool, forbidden):
    rule = Rule(action=forbidden, tool=tool)
    for does in ("read", "network", ""):
        decision = decide(lua(does), "auto", (rule,), project=project, is_confined=True)
        assert decision.action == forbidden


def test_always_holds_for_the_declaration_that_was_seen(project):
    rule = propose(lua("network"), project=project)
    assert rule == Rule(action="allow", tool="lua__open_pr")
    kept = msgspec.structs.replace(rule, server="mark")
    for server, expected in (("mark", "allow"), ("another", "ask")):
        effect = lua("network", server)
        decision = decide(effect, "ask", (kept,), project=project, is_confined=True)
        assert decision.action == expected


def test_no_rule_is_offered_for_a_tool_that_declares_nothing(project):
    assert propose(lua(), project=project) is None
    assert propose_wider(lua()) is None


@pytest.mark.parametrize(
    "name, may",
    [
        ("lua__open_pr", True),
        ("lua__a-1", True),
        ("lua__", False),
        ("lua__a__b__c", False),
        ("lua__a_", False),
        ("lua___a", False),
        ("other__open_pr", False),
        (f"lua__{'x' * 60}", False),
        ("mcp__db__query", True),
    ],
)
def test_a_tool_of_a_third_party_has_a_name_that_no_other_source_can_have(name, may):
    assert is_outside_name(name) is may
