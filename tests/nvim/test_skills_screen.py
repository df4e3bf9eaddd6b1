"""Skills in Neovim: chosen from a list, in the menu of slash commands, and sent."""

import pytest
from tests.conftest import wait_until
from tests.unit.test_trust import write

SKILL = "---\nname: pdf\ndescription: Fill forms.\n---\nRun scripts/fill.sh.\n"
ANSWERS = '[[reply]]\nrepeat = true\n[[reply.step]]\ntext = "answered"\n'
CHOOSE_FIRST = """
  vim.ui.select = function(items, opts, choose)
    _G.offered = vim.tbl_map(opts.format_item, items)
    choose(items[1])
  end
"""


@pytest.fixture
def chat(scripted, tmp_path):
    write(tmp_path, "home/.agents/skills/pdf/SKILL.md", SKILL)
    write(tmp_path, "home/.claude/skills/bad/SKILL.md", "---\nname: bad\n---\nx")
    child = scripted(ANSWERS)
    child.chat("begin")
    child.lua(CHOOSE_FIRST)
    return child


def test_a_chosen_skill_begins_the_prompt_and_is_sent_with_its_text(chat):
    chat.command("Agent skills")
    wait_until(lambda: chat.lua("return _G.offered") is not None)
    first, second = chat.lua("return _G.offered")
    assert first == "pdf: Fill forms."
    assert second.startswith("not used: ")
    assert "it has no description" in second
    prompt = "return require('sanderling.session.live').current().prompt:lines()"
    wait_until(lambda: chat.lua(prompt) == ["/pdf "])
    chat.feed("<Esc>Aform.pdf<C-s>")
    chat.wait_for_transcript("Run scripts/fill.sh.")


def test_a_long_description_is_cut_in_the_list(scripted, tmp_path):
    write(tmp_path, "home/.agents/skills/pdf/SKILL.md", SKILL.replace("Fill forms.", "x" * 900))
    child = scripted(ANSWERS)
    child.chat("begin")
    child.lua(CHOOSE_FIRST)
    child.command("Agent skills")
    wait_until(lambda: child.lua("return _G.offered") is not None)
    assert len(child.lua("return _G.offered[1]")) <= 202  # with the ellipsis' three bytes
    assert child.lua("return _G.offered[1]").startswith("pdf: xxx")


def test_without_skills_a_message_says_where_they_are_looked_for(scripted):
    child = scripted(ANSWERS)
    child.chat("begin")
    child.command("Agent skills")
    child.wait_for_message("No skills here")
