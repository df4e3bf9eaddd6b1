"""The hooks that Claude Code publishes, unchanged: as a trusted project's, or as the user's own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sanderling.protocol.events import TurnEnded
from tests.examples.conftest import EXAMPLES
from tests.unit.test_hooks import HookedTalk, group
from tests.unit.test_tool_uses import bash, edit
from tests.unit.test_trust import trust_all, write

VALIDATOR = EXAMPLES / "claude-code/examples/hooks/bash_command_validator_example.py"
PLUGINS = EXAMPLES / "claude-code/plugins"


def hooks_of(plugin: str, root: Path) -> dict[str, Any]:
    """Return what the plugin's hooks.json declares, with the paths set to its copy at `root`."""
    text = (PLUGINS / plugin / "hooks/hooks.json").read_text()
    hooks = json.loads(text.replace("${CLAUDE_PLUGIN_ROOT}", str(root)))["hooks"]
    for groups in hooks.values():
        for each in groups:
            for hook in each["hooks"]:
                hook["command"] = f"export CLAUDE_PLUGIN_ROOT={root}; {hook['command']}"
    return hooks


def install(talk: HookedTalk, plugin: str, *rules: str) -> None:
    """Install the plugin in the project, with some of hookify's example rules, and trust it."""
    root = talk.project / ".claude/plugins" / plugin
    shutil.copytree(PLUGINS / plugin, root)
    for rule in rules:
        text = (root / f"examples/{rule}.local.md").read_text()
        text = text.replace("enabled: false", "enabled: true")
        write(talk.project, f".claude/hookify.{rule}.local.md", text)
    declared = {"hooks": hooks_of(plugin, root)}
    write(talk.project, ".claude/settings.json", json.dumps(declared))
    trust_all(talk.services.project.trust)


@pytest.mark.parametrize("is_projects", [True, False])
@pytest.mark.parametrize("command, is_denied", [("grep return app.py", True), ("ls", False)])
async def test_the_validator_of_commands_denies_what_it_would_there(
    tmp_path, command, is_denied, is_projects
):
    path = tmp_path / "validate.py"
    line = f"python3 {path}"
    project = {"PreToolUse": group("python3 .claude/validate.py", "Bash")} if is_projects else {}
    own: Any = (
        {}
        if is_projects
        else {"PreToolUse": {"command": line, "matcher": "Bash", "sandbox": False}}
    )
    talk = HookedTalk(tmp_path, bash(command), mode="auto", project=project, own=own)
    write(talk.project, ".claude/validate.py", VALIDATOR.read_text())
    shutil.copy(VALIDATOR, path)
    await talk.run()
    assert ("Use 'rg' (ripgrep) instead of 'grep'" in talk.told()) == is_denied
    assert ("A hook denied this" in talk.told()) == is_denied


async def test_hookify_blocks_a_command_by_its_example_rule(tmp_path):
    talk = HookedTalk(tmp_path, bash("rm -rf app.py"), mode="auto")
    install(talk, "hookify", "dangerous-rm")
    await talk.run()
    assert "A hook denied this" in talk.told()
    assert (talk.project / "app.py").exists()
    assert any("Dangerous rm command detected!" in each for each in talk.notices)


async def test_hookify_warns_of_a_change_and_lets_it_happen(tmp_path):
    call = edit("app.py", "return 1", "return console.log(1)")
    talk = HookedTalk(tmp_path, ("read", {"path": "app.py"}), call, mode="auto")
    install(talk, "hookify", "console-log-warning")
    await talk.run()
    assert "console.log" in (talk.project / "app.py").read_text()
    assert any("Console.log detected" in each for each in talk.notices)


async def test_hookify_without_rules_changes_nothing(tmp_path):
    talk = HookedTalk(tmp_path, bash("echo out"), mode="auto")
    install(talk, "hookify")
    await talk.run()
    assert "out" in talk.told()
    assert talk.notices == []


async def test_the_explanatory_style_reaches_the_model_with_the_first_prompt(tmp_path):
    talk = HookedTalk(tmp_path, [{"text": "One."}])
    install(talk, "explanatory-output-style")
    await talk.run()
    [note] = [each for each in talk.notes if "educational" in each]
    assert note.startswith("[From a hook:\n")
    assert talk.notices == []


async def test_the_security_guidance_warns_the_model_of_a_change(tmp_path):
    call = ("write", {"path": "app.js", "content": "eval(input)\nelement.innerHTML = input\n"})
    talk = HookedTalk(tmp_path, call, mode="auto")
    install(talk, "security-guidance")
    await talk.run()
    assert (talk.project / "app.js").exists()
    assert [each.stop_reason for each in talk.of(TurnEnded)] == ["end_turn"]
    assert "Security" in talk.told(), (talk.told(), talk.notices, talk.notes)


async def test_ralphs_loop_continues_a_turn_of_the_users_until_the_promise(tmp_path):
    state = '---\niteration: 1\nmax_iterations: 5\ncompletion_promise: "DONE"\n---\nBuild it, then say so.\n'
    [stop] = hooks_of("ralph-wiggum", PLUGINS / "ralph-wiggum")["Stop"]
    own: Any = {"Stop": {"command": stop["hooks"][0]["command"], "sandbox": False}}
    replies = [
        [{"text": "Not yet."}],
        [{"text": "Nor now."}],
        [{"text": "<promise>DONE</promise>"}],
    ]
    talk = HookedTalk(tmp_path, *replies, own=own)
    file = write(talk.project, ".claude/ralph-loop.local.md", state)
    await talk.run()
    asked = [
        each
        for each in talk.notes
        if "A hook asks you to continue:\nBuild it, then say so." in each
    ]
    assert len(asked) == 2
    assert not file.exists()  # the loop has ended
    assert any("Ralph iteration 2" in each for each in talk.notices)


async def test_ralphs_loop_of_a_project_ends_because_it_may_not_see_the_log(tmp_path):
    talk = HookedTalk(tmp_path, [{"text": "Not yet."}])
    install(talk, "ralph-wiggum")
    write(
        talk.project,
        ".claude/ralph-loop.local.md",
        "---\niteration: 1\nmax_iterations: 5\ncompletion_promise: null\n---\nGo on.\n",
    )
    await talk.run()
    assert [each.stop_reason for each in talk.of(TurnEnded)] == ["end_turn"]
    assert not any("A hook asks you to continue" in each for each in talk.notes)
