"""Plugins that render Markdown, with `chat.markdown = 'treesitter'`: they draw answers, and Sanderling does not."""

import re

import pytest

from tests.conftest import wait_until
from tests.nvim.test_markdown_treesitter import ANSWER, turn
from tests.plugins.conftest import add_to

SETUPS = {
    "render-markdown.nvim": """
      require('render-markdown').setup({
        file_types = { 'markdown', 'sanderling' }, render_modes = true,
      })
    """,
    "markview.nvim": """
      require('markview').setup({
        preview = { filetypes = { 'markdown', 'sanderling' }, ignore_buftypes = {},
          modes = { 'n', 'no', 'c', 'i' } },
      })
    """,
}
NAMESPACES = """
  local buf, found = require('sanderling').transcript().buf, {}
  for name, ns in pairs(vim.api.nvim_get_namespaces()) do
    if #vim.api.nvim_buf_get_extmarks(buf, ns, 0, -1, {}) > 0 then
      found[#found + 1] = name
    end
  end
  return table.concat(found, ' ')
"""


@pytest.mark.parametrize("name", SETUPS)
def test_a_plugin_renders_the_transcript_alone(start_screen, name):
    screen = start_screen(columns=120, lines=40)
    add_to(screen, name)
    screen.command("runtime! plugin/*.lua")
    screen.lua(SETUPS[name])
    screen.setup(chat={"markdown": "treesitter"})
    screen.command("AgentChat")
    screen.send(*turn(ANSWER))
    stem = name.removesuffix(".nvim")
    wait_until(lambda: stem in screen.lua(NAMESPACES), screen.lua(NAMESPACES), 20)
    assert "sanderling_markdown" not in screen.lua(NAMESPACES)
    wait_until(lambda: "A heading" in screen.screen_text() and "bash make" in screen.screen_text())
    wait_until(lambda: re.search(r"\S *You$", screen.screen_text(), re.MULTILINE))
    assert "## " not in screen.screen_text()
