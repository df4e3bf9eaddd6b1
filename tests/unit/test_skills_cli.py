"""`sanderling skills` in a shell, and skills in print mode with the real sandbox."""

import json
from pathlib import Path

import pytest
from tests.unit.test_plugins import make
from tests.unit.test_print_mode import Shell
from tests.unit.test_trust import write

from sanderling.protocol.messages import TextBlock

SKILL = "---\nname: pdf\ndescription: Fill forms. Use for PDFs.\n---\nRun scripts/fill.sh.\n"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def home(shell: Shell) -> Path:
    return shell.folder


def test_skills_are_listed_and_untrusted_ones_named(shell, home):
    write(home, ".agents/skills/pdf/SKILL.md", SKILL)
    write(shell.project, ".claude/skills/deploy/SKILL.md", SKILL.replace("pdf", "deploy"))
    ran = shell.run("skills", "list")
    path = home / ".agents/skills/pdf/SKILL.md"
    assert (ran.returncode, ran.stdout) == (0, f"pdf: Fill forms. Use for PDFs. ({path})\n")
    assert ".claude/skills/deploy/SKILL.md" in ran.stderr
    [listed] = map(json.loads, shell.run("skills", "list", "--json").stdout.splitlines())
    assert (listed["name"], listed["path"]) == ("pdf", str(path))


@pytest.mark.parametrize("command", ["skills", "plugin", "rules", "mcp"])
def test_a_command_without_an_action_lists(shell, home, command):
    write(home, ".agents/skills/pdf/SKILL.md", SKILL)
    alone, listed = shell.run(command), shell.run(command, "list")
    assert (alone.returncode, alone.stdout) == (0, listed.stdout)
    assert alone.stdout
    assert "Without an action, list" in " ".join(shell.run(command, "--help").stdout.split())


def test_options_of_a_list_may_be_before_the_action_or_without_it(shell, home):
    write(home, ".agents/skills/pdf/SKILL.md", SKILL)
    for arguments in (("--json",), ("--json", "list"), ("list", "--json")):
        assert json.loads(shell.run("skills", *arguments).stdout)["name"] == "pdf"


def test_without_skills_the_help_is_named(shell):
    ran = shell.run("skills", "list")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("No skills: `:help sanderling-skills`")


def test_a_check_explains_problems_and_fails(shell, home):
    write(home, ".agents/skills/pdf/SKILL.md", SKILL)
    assert shell.run("skills", "check").returncode == 0
    write(home, ".agents/skills/bad/SKILL.md", "---\nname: bad\n---\nx")
    ran = shell.run("skills", "check")
    assert ran.returncode == 1
    assert "bad/SKILL.md: it has no description" in ran.stdout
    assert "pdf/SKILL.md: ok" in ran.stdout


def test_a_check_of_a_directory_needs_no_trust(shell):
    write(shell.project, "made/pdf/SKILL.md", SKILL.replace("name: pdf", "name: Other"))
    for directory in ("made", "made/pdf"):
        ran = shell.run("skills", "check", directory)
        assert ran.returncode == 1
        assert "its name 'Other' should have" in ran.stdout
    ran = shell.run("skills", "check", ".git")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "no file SKILL.md" in ran.stderr


def test_the_model_reads_a_skill_of_a_plugin_and_runs_its_script_without_a_question(shell):
    plugin = shell.config.parent / "plugins/tools"
    make(plugin)
    write(plugin, "skills/pdf/SKILL.md", SKILL)
    write(plugin, "skills/pdf/scripts/fill.sh", "echo filled")
    write(plugin, "other", "a planted secret")
    calls = [
        {"tool_use": {"name": "read", "input": {"path": f"{plugin}/skills/pdf/SKILL.md"}}},
        {
            "tool_use": {
                "name": "bash",
                "input": {"command": f"sh {plugin}/skills/pdf/scripts/fill.sh"},
            }
        },
        {
            "tool_use": {
                "name": "bash",
                "input": {"command": f"cat {plugin}/other; echo > {plugin}/new"},
            }
        },
    ]
    shell.play(calls, [{"text": "Done."}], args=("--mode", "auto"))
    history = shell.sessions()[0].history
    texts = [block.text for block in history[0].content if isinstance(block, TextBlock)]
    assert any("- pdf: Fill forms. Use for PDFs. (" in text for text in texts)
    read, filled, other = history[2].content[:3]
    assert "Run scripts/fill.sh." in read.content
    assert "filled" in filled.content
    assert "planted" not in other.content
    assert not (plugin / "new").exists()


def test_the_model_reads_a_skill_of_the_users_and_runs_its_script_without_a_question(shell, home):
    write(home, ".agents/skills/pdf/SKILL.md", SKILL)
    write(home, ".agents/skills/pdf/scripts/fill.sh", "echo filled")
    write(home, ".agents/secret", "a planted secret")
    directory = home / ".agents/skills/pdf"
    calls = [
        {"tool_use": {"name": "read", "input": {"path": f"{directory}/SKILL.md"}}},
        {"tool_use": {"name": "bash", "input": {"command": f"sh {directory}/scripts/fill.sh"}}},
        {"tool_use": {"name": "bash", "input": {"command": "cat ~/.agents/secret"}}},
    ]
    ran = shell.play(calls, [{"text": "Done."}], args=("--mode", "auto"))
    history = shell.sessions()[0].history
    texts = [block.text for block in history[0].content if isinstance(block, TextBlock)]
    assert any(f"- pdf: Fill forms. Use for PDFs. ({directory}/SKILL.md)" in text for text in texts)
    read, filled, secret = history[2].content[:3]
    assert "Run scripts/fill.sh." in read.content
    assert "filled" in filled.content
    assert "planted" not in secret.content
    assert ran.stdout == "Done.\n"
