"""Agents as they are declared: presets, what the person changes of them, and what none of them may have of HOME."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sanderling.agents.calls import Diff, ToolCall, command_of, cwd_of, host_of, paths_of
from sanderling.agents.declared import agent_names, load_agent, presets
from sanderling.agents.home import MAX_ENTRIES, HomeWatch, problem_of
from sanderling.errors import ConfigError
from tests.conftest import prove, prove_rest


@pytest.mark.parametrize("name", presets())
def test_each_preset_is_sound(name):
    agent = load_agent(name, {})
    assert agent.argv
    assert agent.install
    assert agent.title
    assert agent.hosts
    assert agent.is_confined


def test_what_the_person_writes_changes_a_preset_key_by_key():
    own = {"claude": {"args": ["--debug"], "env": {"A": "1"}, "hosts": ["proxy.example"]}}
    agent, preset = load_agent("claude", own), load_agent("claude", {})
    assert agent.argv == (*preset.argv, "--debug")
    assert agent.env == preset.env | {"A": "1"}
    assert agent.hosts == ("proxy.example",)
    assert agent.home == preset.home


def test_an_agent_begins_from_a_preset_or_stands_for_itself():
    own = {
        "work": {"preset": "claude", "title": "At work", "sandbox": False},
        "mine": {"command": ["~/bin/agent"]},
    }
    assert load_agent("work", own).argv == load_agent("claude", {}).argv
    assert (load_agent("work", own).title, load_agent("work", own).is_confined) == (
        "At work",
        False,
    )
    assert load_agent("mine", own).title == "mine"
    assert agent_names(own)[:3] == ("work", "mine", "claude")
    with pytest.raises(ConfigError, match=r"no agent 'cluade'; did you mean 'claude'\?"):
        load_agent("cluade", own)


def test_variables_are_those_that_it_declares(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-another")
    assert "ANTHROPIC_API_KEY" not in load_agent("claude", {}).variables()
    agent = load_agent("x", {"x": {"command": ["x"], "env": {"K": "$A-1"}, "inherits": ["B", "C"]}})
    assert agent.variables({"A": "a", "B": "b", "D": "d"}) == {"K": "a-1", "B": "b"}
    with pytest.raises(ConfigError, match="A is not set"):
        agent.variables({})


REFUSED = (
    *("~", "~/", "/", "/etc/x", "~/..", "~/x/../..", "~/.bashrc", "~/.config", "~/.config/fish/conf.d"),
    *("~/.ssh/config", "~/.claude", "~/.claude/settings.json", "~/.claude.json", "~/.claude/hooks/x"),
    *("~/.codex/config.toml", "~/.gemini/../.bashrc", "~/.local/share/opencode/auth.json", "~/.kimi"),
    *("~/.kimi-code", "~/.vibe/.env", "~/.local/bin/x", "~/work/.envrc", "~/work/.git/hooks"),
    *("~/.config/sanderling/config.toml", "~/.local", "~/.claude/.credentials.json/x"),
)  # fmt: skip


@pytest.mark.parametrize("path", REFUSED)
def test_an_agent_may_not_change_what_runs_something(path):
    assert problem_of(path)


@pytest.mark.parametrize(
    "path",
    [
        *(each for preset in presets().values() for each in preset.get("home", ())),
        "~/.my-agent/login.json",
        "~/.cache/my-agent",
    ],
)
def test_an_agent_may_change_what_holds_its_login(path):
    assert problem_of(path) == ""


def test_what_a_login_is_replaced_by_is_taken_away(tmp_path: Path):
    directory, login = tmp_path / "credentials", tmp_path / "auth.json"
    directory.mkdir(mode=0o700)
    login.write_text("{}")
    login.chmod(0o600)
    (directory / "old").symlink_to("old-target")
    watch = HomeWatch([str(directory), str(login)])
    assert watch.look() == []
    (directory / "token.json").write_text("{}")
    (directory / "token.json").chmod(0o600)
    assert watch.look() == []  # it was renewed
    (directory / "link").symlink_to("/etc/passwd")
    os.mkfifo(directory / "pipe")
    (directory / "run").write_text("#!/bin/sh")
    (directory / "run").chmod(0o4755)
    login.chmod(0o666)
    assert len(watch.look()) == 4
    assert sorted(path.name for path in directory.iterdir()) == ["old", "run", "token.json"]
    assert stat.S_IMODE((directory / "run").stat().st_mode) == 0o600
    assert stat.S_IMODE(login.stat().st_mode) == 0o600
    assert watch.look() == []


@prove
def test_a_login_is_looked_after_among_however_many_files(tmp_path: Path):
    directory = tmp_path / "credentials"
    directory.mkdir(mode=0o700)
    names = ["a.json", "m.json", "z.json"]
    for name in names:
        (directory / name).write_text("{}")
        (directory / name).chmod(0o600)
    watch = HomeWatch([str(directory)])
    for number in range(2 * MAX_ENTRIES):
        if number == MAX_ENTRIES:
            for name in names:
                (directory / name).unlink()
                (directory / name).symlink_to("/etc/passwd")
        (directory / f"x{number}").touch(0o600)
    watch.look()
    assert not [name for name in names if (directory / name).is_symlink()]


SWAPPER = """
import os, sys, time
os.chdir(sys.argv[1])
print(flush=True)
while True:
    try:
        os.rename("sub", "away")
        os.symlink(sys.argv[2], "sub")
        time.sleep(0.002)
        os.unlink("sub")
        os.rename("away", "sub")
    except OSError:  # the watch has taken the link away
        os.rename("away", "sub")
    time.sleep(0.002)
"""


def test_a_directory_that_is_swapped_for_a_link_leads_the_watch_nowhere(tmp_path: Path):
    directory, others = tmp_path / "credentials", tmp_path / "others"
    (directory / "sub").mkdir(parents=True, mode=0o700)
    others.mkdir()
    names = [str(number) for number in range(200)]
    for name in names:
        (directory / "sub" / name).touch(0o600)
        os.mkfifo(others / name)
    watch = HomeWatch([str(directory)])
    argv = [sys.executable, "-c", SWAPPER, str(directory), str(others)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout
        swapper.stdout.readline()
        for _ in range(40):
            watch.look()
        swapper.kill()
    assert len([*others.iterdir()]) == len(names)


# --- what an agent says of its tool calls ------------------------------------------------------------------------------


COMMANDS = {
    "a line": ({"command": " npm test "}, "npm test"),
    "words": ({"command": ["npm", "run", "a b"]}, "npm run 'a b'"),
    "a shell's": ({"command": ["/bin/bash", "-lc", "npm test | tee x"]}, "npm test | tee x"),
    "a program with arguments": ({"command": "npm", "args": ["run", "a b"]}, "npm run 'a b'"),
    "another name": ({"cmd": "make"}, "make"),
    "none": ({"description": "x"}, ""),
    "no table": ("npm test", ""),
    "no words": ({"command": [1, 2]}, ""),
    "a table": ({"command": {"a": 1}}, ""),
}


@pytest.mark.parametrize("how", prove_rest(COMMANDS))
def test_command_of_a_call_is_found(how):
    given, command = COMMANDS[how]
    assert command_of(ToolCall("execute", given)) == command


def test_files_and_host_of_a_call_are_found():
    call = ToolCall(
        "edit",
        {"file_path": "a/../b", "cwd": "sub", "path": 5},
        (Diff("/p/c", None, "x"),),
        ("/p/b", "~/d", "bad\0"),
    )
    home = str(Path.home())
    assert paths_of(call, "/p") == ("/p/c", "/p/b", f"{home}/d")
    assert cwd_of(call, "/p") == "/p/sub"
    assert cwd_of(ToolCall(), "/p") == "/p"
    assert host_of(ToolCall("fetch", {"url": "https://Example.org:8443/x"})) == "example.org:8443"
    for url in ("x", "https://a b/", "file:///etc/passwd", 5, "http://[x/"):
        assert host_of(ToolCall("fetch", {"url": url})) == ""
