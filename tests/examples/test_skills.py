"""Published skills: judged as the format's reference validator judges them, and used in print mode, Neovim and other editors."""

import json
import random
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sanderling.project.skills import Skipped, read_skill
from sanderling.protocol.messages import TextBlock
from tests.examples.conftest import EXAMPLES
from tests.unit.test_print_mode import Shell

PUBLISHED = sorted(
    path
    for name in ("skills", "claude-code")
    for path in (EXAMPLES / name).resolve().rglob("SKILL.md")
)
USED = {
    "webapp-testing": "python3 {}/scripts/with_server.py --help | head -1",
    "skill-creator": "cd {} && python3 -m scripts.aggregate_benchmark --help | head -1",
    "web-artifacts-builder": "bash {}/scripts/bundle-artifact.sh",
    "docx": "python3 -m py_compile {0}/scripts/office/unpack.py; head -1 {0}/scripts/office/unpack.py",
    "algorithmic-art": "head -c 15 {}/templates/viewer.html",
}
"""Skills and a command with a file of each."""
EXPECTED = {
    "webapp-testing": "usage: with_server.py",
    "skill-creator": "usage: ",
    "web-artifacts-builder": "No package.json",
    "docx": '"""',
    "algorithmic-art": "<!DOCTYPE html>",
}


@pytest.fixture(scope="module")
def validate() -> Callable[[Path], list[str]]:
    """The reference validator."""
    reference = EXAMPLES / "reference"
    if not reference.is_dir():
        pytest.skip("the reference validator is not installed: fetch_examples.sh")
    sys.path[:0] = [str(reference), str(EXAMPLES / "agentskills/skills-ref/src")]
    try:
        from skills_ref.validator import validate
    finally:
        del sys.path[:2]
    return validate


def problems_of(path: Path) -> list[str]:
    skill = read_skill(str(path), path.read_text(), "0" * 64)
    return [skill.problem] if isinstance(skill, Skipped) else list(skill.problems)


# --- the reference validator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
def test_a_published_skill_is_judged_as_by_the_reference(validate, path):
    assert bool(problems_of(path)) == bool(validate(path.parent)), problems_of(path)


NAMES = (
    "pdf|'pdf'|pdf # remark|Pdf|pdf-|-pdf|a--b|other|pdf_tools|größe|Größe||~|true|1.0|pdf tools|[a]|"
    + "x" * 65
).split("|")
DESCRIPTIONS = [
    *("Use for PDFs.", "Use when: asked", "", "~", "[a, b]", "{a: b}", ">\n  folded\n  text"),
    *(
        "'quoted: yes'",
        '"a \\" b"',
        "&x a",
        "*a",
        "!!str x",
        "# none",
        "null",
        "12",
        "@at",
        "x" * 1025,
    ),
]
OTHERS = [
    *("license: MIT", "compatibility: any", f"compatibility: {'x' * 501}", "compatibility: [a]"),
    *(
        "compatibility:\n  a: b",
        "metadata:\n  author: me",
        "metadata: {a: b}",
        "allowed-tools: Bash",
    ),
    *("argument-hint: '[x]'", "model: opus", "name: again", "# remark", "broken", "a: b: c"),
]
LENIENT = (
    # The reference allows only a part of YAML: no flow mappings, anchors, tags or repeated keys.
    "Invalid YAML in frontmatter",
    # Other clients have more keys, and read files with a byte order mark.
    "Unexpected fields in frontmatter",
    "SKILL.md must start with YAML frontmatter",
)
"""What the reference refuses and Sanderling accepts."""
STRICTER = ("its `allowed-tools` grants nothing here",)
"""What the reference accepts and Sanderling remarks on."""


def generated(seed: int) -> str:
    draw = random.Random(seed)
    name = draw.choice(NAMES) if draw.random() < 0.6 else "pdf"
    description = draw.choice(DESCRIPTIONS) if draw.random() < 0.6 else DESCRIPTIONS[0]
    lines = [f"name: {name}", f"description: {description}"]
    lines = [line for line in lines if draw.random() < 0.95]
    lines += draw.sample(OTHERS, draw.choice((0, 0, 1, 2)))
    begin = draw.choice(("---\n",) * 12 + ("--- \n", "", "\n---\n", "\ufeff---\n"))
    end = draw.choice(("\n---\n",) * 12 + ("\n--- \n", "\n", "\n...\n"))
    return begin + "\n".join(lines) + f"{end}Body.\n"


def test_200_generated_headers_are_judged_as_by_the_reference_apart_from_known_leniency(
    validate, tmp_path
):
    directory = tmp_path / "pdf"
    directory.mkdir()
    path = directory / "SKILL.md"
    judged = {True: 0, False: 0}
    for seed in range(200):
        path.write_text(generated(seed))
        theirs, ours = validate(directory), problems_of(path)
        judged[bool(ours)] += 1
        if bool(theirs) == bool(ours):
            continue
        is_known = all(each.startswith(LENIENT) for each in theirs) and all(
            each.startswith(STRICTER) for each in ours
        )
        assert is_known, (path.read_text(), theirs, ours)
    assert min(judged.values()) > 30


# --- use -------------------------------------------------------------------------------------------------------------------


def installed(home: Path, name: str) -> Path:
    """Install the skill for the user."""
    directory = home / ".agents/skills" / name
    shutil.copytree(EXAMPLES / "skills/skills" / name, directory)
    return directory


def steps(directory: Path) -> list[dict[str, Any]]:
    """Have the model read the skill and run its script."""
    command = USED[directory.name].format(directory)
    return [
        {"tool_use": {"name": "read", "input": {"path": f"{directory}/SKILL.md"}}},
        {"tool_use": {"name": "bash", "input": {"command": command}}},
    ]


@pytest.mark.parametrize("name", USED)
def test_a_published_skill_is_used_in_print_mode(tmp_path, name):
    shell = Shell(tmp_path)
    directory = installed(shell.folder, name)
    ran = shell.play(steps(directory), [{"text": "Done."}], args=("--mode", "auto"))
    assert (ran.returncode, ran.stderr) == (0, "")
    first, _, results, *_ = shell.sessions()[0].history
    told = [block.text for block in first.content if isinstance(block, TextBlock)]
    assert any(f"- {name}: " in text for text in told)
    read, run = results.content[:2]
    assert f"name: {name}" in read.content
    assert EXPECTED[name] in run.content


@pytest.mark.parametrize("name", USED)
def test_a_published_skill_is_started_by_its_name_in_print_mode(tmp_path, name):
    shell = Shell(tmp_path)
    directory = installed(shell.folder, name)
    model = shell.write_script([{"text": "Done."}])
    assert shell.run("-p", f"/{name} with care", "--model", model).returncode == 0
    [prompt] = [
        block.text
        for block in shell.sessions()[0].history[0].content
        if isinstance(block, TextBlock) and "with care" in block.text
    ]
    assert prompt.startswith(f"Use the skill {name}; names in it are relative to {directory}.")


@pytest.mark.parametrize("name", USED)
def test_a_published_skill_is_used_and_started_in_another_editor(home, begin, name):
    directory = installed(home.folder, name)
    agent = begin(home.script(steps(directory), [{"text": "Done."}], [{"text": "Again."}]))
    session = agent.new()
    agent.request("session/set_mode", sessionId=session, modeId="auto")
    assert agent.prompt(session, "Do it.") == "end_turn"
    assert agent.prompt(session, f"/{name} with care") == "end_turn"
    assert agent.asked_for("session/request_permission") == []
    shown = json.dumps(agent.updates)
    assert f'"name": "{name}"' in shown  # among the commands
    assert json.dumps(EXPECTED[name])[1:-1] in shown


@pytest.mark.parametrize("name", USED)
def test_a_published_skill_is_used_and_started_in_neovim(tmp_path, run_agent, name):
    directory = installed(tmp_path / "home", name)
    agent = run_agent(
        {"step": steps(directory)}, {"step": [{"text": "Done."}]}, {"step": [{"text": "Again."}]}
    )
    read, run = agent.results()
    assert f"name: {name}" in read
    assert EXPECTED[name] in run
    agent.ask_and_wait(f"/{name} with care")
    texts = [block["text"] for block in agent.logged_messages()[-2]["content"] if "text" in block]
    # A text that the model has read is not sent again, unless it has something to fill in.
    assert any(re.match(rf"Use the skill {name}[;,]", text) for text in texts)
