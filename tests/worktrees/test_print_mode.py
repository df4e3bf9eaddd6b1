"""`sanderling -p --worktree` and `sanderling worktrees`, as processes."""

import json
import os
from pathlib import Path

import pytest

from sanderling.permissions.rules import rule_from_text
from sanderling.permissions.store import RuleStore
from sanderling.session.store import fork
from tests.unit.test_print_mode import Shell
from tests.worktrees.conftest import run_git

BASE = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n"


def use(name: str, number: int = 1, **given: object) -> dict[str, object]:
    return {"tool_use": {"name": name, "input": given, "id": f"toolu_{number}"}}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    shell = Shell(tmp_path)
    (shell.project / ".git").rmdir()
    run_git(shell.project, "init", "-q", "-b", "main")
    (shell.project / "a.txt").write_text(BASE)
    (shell.project / "gone.txt").write_text("gone\n")
    (shell.project / "run.sh").write_text("true\n")
    run_git(shell.project, "add", "-A")
    run_git(shell.project, "commit", "-qm", "first")
    return shell


def listed(shell: Shell) -> list[dict[str, str]]:
    out = shell.run("worktrees", "list", "--json").stdout
    return [json.loads(line) for line in out.splitlines()]


def work(shell: Shell, line: str, *args: str) -> str:
    """Have the model run `line` in a new worktree; return its name."""
    done = shell.play(
        [use("bash", command=line)],
        [{"text": "Done."}],
        args=("--mode", "auto", "--worktree", *args),
    )
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr
    return listed(shell)[0]["name"]


def test_the_model_works_in_the_worktree_and_the_project_stays_as_it_is(shell: Shell):
    name = work(shell, "pwd; echo new > new.txt; sed -i s/two/2/ a.txt; rm gone.txt")
    assert run_git(shell.project, "status", "--porcelain") == ""
    [session] = shell.sessions()
    said = str(session.history)
    assert str(shell.project) not in said
    assert "worktrees/project-" in said
    [only] = listed(shell)
    assert only["loss"] == "1 changed file (a.txt), 1 deletion (gone.txt), 1 new file (new.txt)"
    shown = shell.run("worktrees", "show", name).stdout
    assert "\n  M a.txt\n  D gone.txt\n  A new.txt\n" in shown
    assert "+2\n" in shell.run("worktrees", "show", "--diff", name).stdout
    assert session.worktree == name
    assert session.project == str(shell.project)


def test_the_end_says_where_the_work_is_and_what_to_do_with_it(shell: Shell):
    done = shell.play(
        [use("bash", command="echo new > new.txt")],
        [{"text": "Done."}],
        args=("--mode", "auto", "--worktree"),
    )
    [only] = listed(shell)
    for words in ("has 1 changed file in", "show --diff", "apply", "remove"):
        assert words in done.stderr
    assert only["directory"] in done.stderr
    again = shell.play([{"text": "Hi."}], args=("--worktree", "--quiet"))
    assert again.stderr == ""


def test_the_session_goes_on_in_its_worktree(shell: Shell):
    work(shell, "echo new > new.txt")
    done = shell.play(
        [use("bash", 2, command="cat new.txt > copy.txt")],
        [{"text": "Done."}],
        args=("--mode", "auto", "--continue"),
    )
    assert done.returncode == 0, done.stderr
    assert not (shell.project / "copy.txt").exists()
    assert len(listed(shell)) == 1
    [only] = listed(shell)
    assert run_git(shell.project, "show", f"{only['kept_ref']}:copy.txt") == "new"


def test_a_session_whose_worktree_is_gone_does_not_work_in_the_project_instead(shell: Shell):
    name = work(shell, "echo new > new.txt")
    assert shell.run("worktrees", "remove", name, "--force").returncode == 0
    done = shell.play([use("bash", 2, command="echo bad > bad.txt")], args=("--continue",))
    assert done.returncode == 1
    assert f"the worktree {name} was removed; refs/sanderling/worktrees/{name}" in done.stderr
    assert not (shell.project / "bad.txt").exists()


@pytest.mark.parametrize(
    "args, why",
    [
        (("--worktree", "nowhere"), "there is no branch or commit 'nowhere'"),
        (("--worktree", "--continue"), "--worktree is for a new session"),
    ],
)
def test_where_there_can_be_no_worktree_nothing_is_done(
    shell: Shell, args: tuple[str, ...], why: str
):
    done = shell.play([use("bash", command="echo bad > bad.txt")], args=("--mode", "auto", *args))
    assert done.returncode != 0
    assert why in done.stderr
    assert not (shell.project / "bad.txt").exists()
    assert listed(shell) == []


def test_the_prompt_may_follow_the_flag(shell: Shell):
    model = shell.write_script([{"text": "Hi."}])
    done = shell.run("-p", "--model", model, "--worktree", "say something")
    assert (done.returncode, done.stdout) == (0, "Hi.\n"), done.stderr


def test_what_the_user_trusts_and_allows_in_the_project_holds_in_its_worktree(shell: Shell):
    (shell.project / "AGENTS.md").write_text("Always whistle.\n")
    run_git(shell.project, "add", "-A")
    run_git(shell.project, "commit", "-qm", "agents")
    accepted = shell.run("trust", "AGENTS.md").stderr.split()[-1]
    assert shell.run("trust", "--accept", accepted).returncode == 0
    rules = RuleStore(str(shell.state), str(shell.project))
    rules.add(rule_from_text("allow bash touch *"))
    done = shell.play(
        [use("bash", command="touch new.txt")], [{"text": "Done."}], args=("--worktree",)
    )
    assert done.returncode == 0, done.stderr
    [session] = shell.sessions()
    assert "Always whistle." in str(session.history)
    [only] = listed(shell)
    assert Path(only["directory"], "new.txt").exists()


@pytest.mark.parametrize(
    "path", ["{}/private/*", "{}/**/key", "{}/../*/private/key", "{}/../**/private/**"]
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_rule_with_an_absolute_path_in_the_project_holds_in_its_worktree(
    shell: Shell, path: str, *, is_stored: bool
):
    (shell.project / "private").mkdir()
    (shell.project / "private/key").write_text("SECRET\n")
    run_git(shell.project, "add", "-A")
    run_git(shell.project, "commit", "-qm", "key")
    top = str(shell.project)
    path = path.replace("{}/..", str(shell.project.parent)).format(top)
    if is_stored:
        RuleStore(str(shell.state), top).add(rule_from_text(f"deny read {path}"))
    else:
        rule = f'{{ action = "deny", tool = "read", path = "{path}" }}'
        shell.config.write_text(f"permissions = [{rule}]\n")
    shell.play(
        [use("read", path="private/key"), use("bash", 2, command="cat private/key")],
        [{"text": "Done."}],
        args=("--worktree", "--mode", "auto"),
    )
    [session] = shell.sessions()
    assert "A rule forbids this" in str(session.history)
    assert "SECRET" not in str(session.history)


def test_apply_makes_the_changes_and_undo_takes_them_back(shell: Shell):
    name = work(
        shell,
        "sed -i s/two/2/ a.txt; rm gone.txt; mkdir d; echo new > d/new.txt; ln -s a.txt link;"
        " chmod +x run.sh; printf '\\0\\1' > binary",
    )
    text = BASE.replace("seven", "7")
    (shell.project / "a.txt").write_text(text)  # the user's own change meanwhile
    done = shell.run("worktrees", "apply", name)
    assert done.returncode == 0, done.stderr
    project = shell.project
    assert (project / "a.txt").read_text() == text.replace("two", "2")
    assert not (project / "gone.txt").exists()
    assert (project / "d/new.txt").read_text() == "new\n"
    assert (project / "link").readlink() == Path("a.txt")
    assert (project / "binary").read_bytes() == b"\0\1"
    assert os.access(project / "run.sh", os.X_OK)
    assert "a.txt  +1 −1  merged with yours" in done.stdout
    again = shell.run("worktrees", "apply", name)
    assert (again.returncode, again.stdout) == (0, "applied: 0 files\n")
    undone = shell.run("undo")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert run_git(project, "status", "--porcelain") == " M a.txt"
    assert (project / "a.txt").read_text() == text


def test_a_conflict_leaves_the_file_and_is_said(shell: Shell):
    name = work(shell, "sed -i s/two/2/ a.txt; echo theirs > gone.txt; echo new > new.txt")
    (shell.project / "a.txt").write_text(BASE.replace("two", "zwei"))
    (shell.project / "gone.txt").unlink()
    (shell.project / "new.txt").write_text("mine\n")
    done = shell.run("worktrees", "apply", name)
    assert done.returncode == 1
    assert "a.txt  conflict, left as it is: the same lines were changed since" in done.stdout
    assert (shell.project / "a.txt").read_text() == BASE.replace("two", "zwei")
    assert "gone.txt  conflict, left as it is: it was removed since" in done.stdout
    assert (shell.project / "new.txt").read_text() == "mine\n"
    assert "new.txt  conflict" in done.stdout
    assert len(listed(shell)) == 1


def test_remove_refuses_with_what_would_be_lost_and_force_keeps_the_ref(shell: Shell):
    name = work(shell, "echo new > new.txt")
    done = shell.run("worktrees", "remove", name)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{name} stays: removing it would lose 1 new file (new.txt). --force removes it" in (
        done.stderr
    )
    done = shell.run("worktrees", "remove", name, "--force")
    assert (done.returncode, "loses 1 new file (new.txt)" in done.stderr) == (0, True)
    assert f"refs/sanderling/worktrees/{name} keeps its files" in done.stdout
    assert shell.run("worktrees", "apply", name).returncode == 0
    assert (shell.project / "new.txt").read_text() == "new\n"
    assert shell.run("worktrees", "remove", name).returncode == 1
    assert shell.run("worktrees", "remove", name, "--force").returncode == 0
    assert listed(shell) == []
    assert run_git(shell.project, "for-each-ref", "refs/sanderling") == ""


def test_extras_of_the_settings_are_copied_and_links_are_read_only(shell: Shell):
    shell.config.write_text('[worktree]\nextras = ["local.cfg"]\nlinks = ["node_modules"]\n')
    (shell.project / ".gitignore").write_text("local.cfg\nnode_modules\n")
    run_git(shell.project, "add", "-A")
    run_git(shell.project, "commit", "-qm", "ignore")
    (shell.project / "local.cfg").write_text("K=1\n")
    (shell.project / "node_modules").mkdir()
    (shell.project / "node_modules/x.js").write_text("mine\n")
    work(
        shell,
        "cat local.cfg node_modules/x.js > seen; echo bad > node_modules/x.js; rm -f node_modules/x.js; true",
    )
    [only] = listed(shell)
    assert Path(only["directory"], "seen").read_text() == "K=1\nmine\n"
    assert (shell.project / "node_modules/x.js").read_text() == "mine\n"
    assert only["loss"] == "1 new file (seen)"


def test_what_is_hidden_in_the_project_is_hidden_behind_links(shell: Shell):
    shell.config.write_text('[worktree]\nlinks = ["data", ".env"]\n')
    (shell.project / ".gitignore").write_text("data\n.env\n")
    (shell.project / "data/sub").mkdir(parents=True)
    for path in (".env", "data/.env", "data/sub/prod.env", "data/open"):
        (shell.project / path).write_text(f"TOKEN={path}\n")
    work(shell, "cat .env data/.env data/sub/prod.env data/open > seen; true")
    [only] = listed(shell)
    assert Path(only["directory"], "seen").read_text() == "TOKEN=data/open\n"


def test_a_link_that_a_command_replaces_does_not_make_its_target_readable(
    shell: Shell, tmp_path: Path
):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/key").write_text("SECRET\n")
    (shell.project / "data").mkdir()
    shell.config.write_text('[worktree]\nlinks = ["data"]\n')
    work(shell, f"rm data; ln -s {tmp_path}/secrets data")
    done = shell.play(
        [use("bash", 2, command="cat data/key > seen; true")],
        [{"text": "Done."}],
        args=("--mode", "auto", "--continue"),
    )
    assert done.returncode == 0, done.stderr
    assert Path(listed(shell)[0]["directory"], "seen").read_text() == ""


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "~/x", ""])
def test_extras_outside_the_project_are_a_mistake_in_the_settings(shell: Shell, path: str):
    shell.config.write_text(f'[worktree]\nextras = ["{path}"]\n')
    done = shell.play([{"text": "Hi."}])
    assert done.returncode == 2
    assert "worktree.extras[1]" in done.stderr


def test_a_copy_of_the_session_works_in_the_same_worktree(shell: Shell):
    name = work(shell, "true")
    [session] = shell.sessions()
    fork(session.path.parent, session.id, "copy")
    done = shell.play([use("bash", 2, command="echo x > copy.txt")], [{"text": "Done."}], args=(
        "--mode", "auto", "--resume", "copy", "--output-format", "json"
    ))  # fmt: skip
    assert json.loads(done.stdout)["worktree"] == name
    assert not (shell.project / "copy.txt").exists()
    assert "1 new file (copy.txt)" in listed(shell)[0]["loss"]


def test_apply_replaces_binary_files_and_kinds_of_entries(shell: Shell):
    project = shell.project
    (project / "binary").write_bytes(b"\0\1\2")
    (project / "entry").write_text("file\n")
    (project / "other").mkdir()
    (project / "other/f").write_text("f\n")
    (project / "crlf.txt").write_bytes(b"1\r\n2\r\n3\r\n")
    run_git(project, "add", "-A")
    run_git(project, "commit", "-qm", "more")
    name = work(
        shell,
        "printf '\\0\\7' > binary; rm entry; mkdir entry; echo in > entry/in; rm -r other; ln -s a.txt other;"
        " sed -i 's/^3/drei/' crlf.txt; git mv gone.txt moved.txt",
    )
    (project / "crlf.txt").write_bytes(b"eins\r\n2\r\n3\r\n")
    done = shell.run("worktrees", "apply", name)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (project / "binary").read_bytes() == b"\0\7"
    assert (project / "entry/in").read_text() == "in\n"
    assert (project / "other").readlink() == Path("a.txt")
    assert (project / "crlf.txt").read_bytes() == b"eins\r\n2\r\ndrei\r\n"
    assert (project / "moved.txt").read_text() == "gone\n"
    assert not (project / "gone.txt").exists()
    undone = shell.run("undo")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    assert run_git(project, "status", "--porcelain") == " M crlf.txt"
    binary = work(shell, "printf '\\0\\8' > binary")
    (project / "binary").write_bytes(b"\0mine")
    assert shell.run("worktrees", "apply", binary).returncode == 1
    assert (project / "binary").read_bytes() == b"\0mine"
