"""The list of plugins, :AgentPlugins, with the host that answers it."""

import tomllib

import pytest
from tests.conftest import wait_until
from tests.unit.test_plugins import MANIFEST, SHARED, SKILL, make, servers, stdio
from tests.unit.test_trust import write

OWN = "config/sanderling/plugins"
NAMED_WRONGLY = "its name 'other' differs from its directory's, 'bad'"


@pytest.fixture
def home(tmp_path):
    home = tmp_path / "home"
    make(
        home / OWN / "tools",
        MANIFEST | {"version": "1.2", "description": "Tools\x1b[2J.", "x": 1},
        servers(db=stdio("npx", args=["-y", "db"]), bad=stdio("/bin/sh")),
        ("release",),
    )
    write(home / OWN / "tools", "skills/bad/SKILL.md", SKILL.format("other"))
    make(home / SHARED / "theirs", MANIFEST | {"name": "theirs"})
    make(home / SHARED / "wrong", {})
    return home


@pytest.fixture
def shown(home, screen):  # noqa: ARG001 - the plugins are there before the host looks
    screen.command("AgentPlugins")
    screen.wait_for_screen(" Plugins ")
    return screen


def lines(screen):
    return screen.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)")


def test_the_list_shows_what_each_plugin_has_and_what_is_wrong(shown):
    assert lines(shown) == [
        "✓ tools  1.2 · ~/config/sanderling/plugins/tools",
        "    Tools<U+001B>[2J.",
        "    skill   release: Does it.",
        "    server  tools.db: npx -y db",
        "    plugin.json: it has the unknown field `x`, which is ignored",
        "    mcp.json: server 'bad' is not used: `command` must be the name of a program, or begin with ./",
        f"    skills/bad/SKILL.md: it is not a valid Agent Skill: {NAMED_WRONGLY}",
        "✓ theirs  ~/.agents/plugins/theirs",
        "✗ ~/.agents/plugins/wrong",
        f'    plugin.json: it must have "$schema": "{MANIFEST["$schema"]}"',
    ]
    assert "r check again  d enable or disable  D remove" in shown.screen_text()


def test_a_plugin_is_disabled_and_enabled_again(shown, home):
    config = home / "config/sanderling/config.toml"
    shown.feed("jd")
    wait_until(lambda: lines(shown)[0].startswith("⏸ tools  1.2 · disabled"))
    assert tomllib.loads(config.read_text()) == {"plugins": {"disabled": ["tools"]}}
    assert shown.lua("return vim.api.nvim_win_get_cursor(0)[1]") == 1
    shown.feed("d")
    wait_until(lambda: lines(shown)[0].startswith("✓ tools"))
    assert tomllib.loads(config.read_text()) == {"plugins": {"disabled": []}}


def test_a_plugin_is_removed_after_a_question_and_a_shared_one_is_not(shown, home):
    shown.lua(
        """
        _G.answer, _G.asked = 'Keep it', 0
        vim.ui.select = function(_, _, choose)
          _G.asked = _G.asked + 1
          choose(_G.answer)
        end
        """
    )
    shown.feed("D")
    wait_until(lambda: shown.lua("return _G.asked") == 1)
    shown.lua("_G.answer = 'Remove it'")
    shown.feed("7jD")
    shown.wait_for_message("is shared with other agents")
    assert (home / OWN / "tools").exists()
    assert (home / SHARED / "theirs").exists()
    shown.feed("ggD")
    wait_until(lambda: lines(shown)[0].startswith("✓ theirs"))
    assert not (home / OWN / "tools").exists()


def test_the_list_is_read_again(shown, home):
    make(home / OWN / "more", MANIFEST | {"name": "more"})
    shown.feed("r")
    wait_until(lambda: lines(shown)[0].startswith("✓ more"))


def test_without_plugins_it_says_how_one_is_added(screen):
    screen.command("AgentPlugins")
    screen.wait_for_message("sanderling plugin add")
