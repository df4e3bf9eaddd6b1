"""`sanderling rules` and `sanderling trust`: for machines without a screen."""

import argparse
import json
from datetime import date
from pathlib import Path

import pytest
from tests.unit.test_gate import request_of
from tests.unit.test_tool_uses import Talk

from sanderling.cli import rules, trust
from sanderling.config import state_dir
from sanderling.permissions.rules import rule_from_text
from sanderling.permissions.store import RuleStore


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("home", "project", "config"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


@pytest.fixture
def run(project, capsys):
    assert Path.cwd() == project

    def run(*argv: str) -> tuple[int, str, str]:
        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers()
        rules.add(commands)
        trust.add(commands)
        arguments = parser.parse_args(argv)
        status = arguments.run(arguments)
        out, err = capsys.readouterr()
        return status, out, err

    return run


@pytest.fixture
def store(project) -> RuleStore:
    return RuleStore(str(state_dir()), str(project))


def test_rules_are_listed_with_their_origin_and_a_stored_one_can_be_removed(run, project, store):
    settings = project.parent / "config/sanderling/config.toml"
    settings.parent.mkdir()
    settings.write_text('[[permissions]]\naction = "deny"\ntool = "bash"\ncommand = "rm"\n')
    store.add(rule_from_text("allow bash make test"))
    status, out, _ = run("rules", "list", "--json")
    listed = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [(each["number"], each["rule"]) for each in listed] == [
        (1, "deny bash rm"),
        (2, "allow bash make test"),
    ]
    assert listed[0]["origin"].endswith("config.toml:1")
    assert listed[1]["origin"] == "always"
    assert run("rules", "remove", "2") == (0, "removed: allow bash make test\n", "")
    assert store.load().rules == ()


def test_a_file_with_rules_that_is_not_trusted_is_named(run, project):
    (project / ".sanderling.toml").write_text(
        '[[permissions]]\naction = "deny"\ntool = "bash"\ncommand = "rm"\n'
    )
    status, out, err = run("rules", "list")
    assert (status, out) == (0, f"{rules.NONE}\n")
    assert err.startswith("sanderling: ignored until trusted with `sanderling trust`")
    assert err.endswith(": .sanderling.toml\n")


@pytest.mark.parametrize("wanted, words", [("1", "remove it there"), ("7", "there is no rule '7'")])
def test_only_an_existing_stored_rule_is_removed(run, project, wanted, words):
    settings = project.parent / "config/sanderling/config.toml"
    settings.parent.mkdir()
    settings.write_text('[[permissions]]\naction = "deny"\ntool = "bash"\ncommand = "rm"\n')
    status, out, err = run("rules", "remove", wanted)
    assert (status, out) == (2, "")
    assert words in err


def stamp_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


async def test_the_day_of_a_stored_rules_last_use_is_remembered(tmp_path):
    talk = Talk(tmp_path)
    gate = talk.conversation.services.gate
    store = gate._store
    store.add(rule_from_text("allow bash make"))
    await gate.permit(request_of(talk, "make"))
    assert store.load().last_uses == {"allow bash make": date.today().isoformat()}  # noqa: DTZ011
    before = stamp_of(store.path)
    await gate.permit(request_of(talk, "make"))  # the same day: nothing to write
    assert stamp_of(store.path) == before
    store.remove(rule_from_text("allow bash make"))
    assert store.load().last_uses == {}
    await talk.aclose()


def test_a_file_is_trusted_only_with_the_hash_that_it_has(run, project):
    (project / "AGENTS.md").write_text("Use tabs.\n")
    status, out, _ = run("trust")
    assert status == 1
    state, digest, path = out.split()
    assert (state, path) == ("new", "AGENTS.md")
    assert run("trust", "AGENTS.md")[1] == f"new       {digest} AGENTS.md\n    Use tabs.\n"
    (project / "AGENTS.md").write_text("Use spaces.\n")
    status, _, err = run("trust", "--accept", f"AGENTS.md={digest}")
    assert status == 2
    assert "AGENTS.md has the hash" in err
    digest = run("trust")[1].split()[1]
    assert run("trust", "--accept", f"AGENTS.md={digest}")[:2] == (
        0,
        f"trusted   {digest} AGENTS.md\n",
    )
    assert run("trust", "--revoke", "AGENTS.md")[1].startswith("new ")


def test_the_next_command_is_shown(run, project):
    (project / "AGENTS.md").write_text("Use tabs.\n")
    _, out, err = run("trust")
    assert err == "sanderling: `sanderling trust FILE` shows a file whole, and how to trust it\n"
    accept = f"AGENTS.md={out.split()[1]}"
    _, _, err = run("trust", "AGENTS.md", "--project", ".")
    assert err == f"sanderling: to trust as shown: sanderling trust --project . --accept {accept}\n"
    assert run("trust", "--json")[2] == ""
    assert run("trust", "--accept", accept)[2] == ""
    assert run("trust")[2] == ""
    assert run("trust", "--revoke", "AGENTS.md")[2] == ""


@pytest.mark.parametrize("argv", [["rules", "add"], ["rules", "--json", "add"]])
def test_an_unknown_action_is_answered_with_those_that_exist(run, capsys, argv):
    with pytest.raises(SystemExit):
        run(*argv)
    error = capsys.readouterr().err.splitlines()[-1]
    assert "list" in error
    assert "remove" in error
    assert "action" not in error


def test_the_status_of_a_change_of_trust_does_not_depend_on_other_files(run, project):
    for name in ("AGENTS.md", ".sanderling.toml"):
        (project / name).write_text("max_calls = 5\n")
    digests = dict(reversed(line.split()[1:]) for line in run("trust")[1].splitlines())
    assert run("trust", "--accept", f"AGENTS.md={digests['AGENTS.md']}")[0] == 0
    assert run("trust")[0] == 1
    assert run("trust", "--revoke", "AGENTS.md")[0] == 0


def test_what_a_project_would_allow_is_listed_with_its_file(run, project):
    (project / ".sanderling.toml").write_text(
        '[[permissions]]\naction = "allow"\ntool = "bash"\ncommand = "make"\n'
    )
    assert "allows" in run("trust")[1]


def test_no_text_of_a_project_imitates_a_row_of_a_list(run, project):
    row = f"new       {'a' * 64} AGENTS.md"
    (project / "AGENTS.md").write_text(f"Use tabs.\r{row}\n{row}\x0b{row}\u0085{row}\n")
    (project / ".sanderling.toml").write_text(
        f'[[permissions]]\naction = "allow"\ntool = "bash"\ncommand = """make\n{row}\n"""\n'
    )
    for arguments in ((), ("AGENTS.md", ".sanderling.toml")):
        out = run("trust", *arguments)[1]
        assert row not in out.splitlines()
    for name in (".sanderling.toml", "AGENTS.md"):
        digest = next(line.split()[1] for line in run("trust")[1].splitlines() if name in line)
        assert run("trust", "--accept", f"{name}={digest}")[0] in (0, 1)
    out = run("rules", "list")[1]
    assert "allow bash make" in out
    assert row not in out.splitlines()


def test_a_project_without_such_files_says_so(run):
    assert run("trust")[:2] == (0, f"{trust.NOTHING}\n")
    assert run("trust", "nothing.md")[0] == 2


def test_the_help_says_what_the_exit_status_means_and_which_action_wins(run, capsys):
    for arguments, words in (
        (("rules", "--help"), ("Deny overrides ask", "The exit status is 0; 1 if stored rules")),
        (("rules", "list", "--help"), ('"always" for a stored one',)),
        (("rules", "remove", "--help"), ("Rules of the settings are removed in their file",)),
    ):
        with pytest.raises(SystemExit) as ended:
            run(*arguments)
        assert ended.value.code == 0
        said = " ".join(capsys.readouterr().out.split())
        assert all(word in said for word in words)


def test_a_rule_can_be_named_without_quotes_and_the_nearest_one_is_suggested(run, store):
    store.add(rule_from_text("allow bash make test"))
    status, _, err = run("rules", "remove", "allow bash make tset")
    assert status == 2
    assert "no rule 'allow bash make tset'; did you mean 'allow bash make test'?" in err
    assert run("rules", "remove", "allow", "bash", "make", "test")[0] == 0
    assert store.load().rules == ()


def test_a_rules_file_that_cannot_be_used_is_named_and_changes_the_exit_status(run, store):
    store.add(rule_from_text("allow bash make"))
    store.path.write_text("{")
    status, out, err = run("rules", "list")
    assert status == 1
    assert str(store.path) in err
    assert "ask *" in out
    status, _, err = run("rules", "remove", "1")
    assert status == 2
    assert "Repair or remove it first" in err


@pytest.mark.parametrize(
    "rule, shown",
    [
        ("allow bash make\n  2  deny bash rm  (always)", "make<U+000A> <U+0020>2 <U+0020>deny"),
        (f"allow bash make{' ' * 60}deny", "make " + "<U+0020>" * 59 + "deny"),
        ("allow bash make ", "make<U+0020>  (always)"),
        ("allow bash make\x1b[2K\u202ex", "make<U+001B>[2K<U+202E>x"),
    ],
)
def test_a_stored_rule_cannot_look_like_another_row(run, store, rule, shown):
    store.add(rule_from_text(rule))
    [line] = run("rules", "list")[1].splitlines()
    assert shown in line
    assert run("rules", "remove", rule)[0] == 0


@pytest.mark.parametrize("name", ["./AGENTS.md", "{project}/AGENTS.md", "../AGENTS.md"])
def test_a_file_to_trust_can_be_named_from_the_current_directory(run, project, monkeypatch, name):
    (project / "AGENTS.md").write_text("Use tabs.\n")
    (project / ".git").mkdir()
    digest = run("trust")[1].split()[1]
    if name.startswith("../"):
        (project / "sub").mkdir()
        monkeypatch.chdir(project / "sub")
    name = name.format(project=project)
    assert "Use tabs." in run("trust", name)[1]
    assert run("trust", "--accept", f"{name}={digest}")[0] == 0
    assert run("trust")[0] == 0
    assert run("trust", "--revoke", name)[1].startswith("new ")


def test_the_nearest_file_is_suggested(run, project):
    (project / "AGENTS.md").write_text("Use tabs.\n")
    assert "'AGENT.md'; did you mean 'AGENTS.md'?" in run("trust", "AGENT.md")[2]


def test_of_two_rules_with_one_text_the_stored_one_is_removed(run, project, store):
    settings = project.parent / "config/sanderling/config.toml"
    settings.parent.mkdir()
    settings.write_text('[[permissions]]\naction = "allow"\ntool = "bash"\ncommand = "make"\n')
    store.add(rule_from_text("allow bash make"))
    assert run("rules", "remove", "allow bash make")[0] == 0
    assert store.load().rules == ()
    assert run("rules", "remove", "allow bash make")[0] == 2
