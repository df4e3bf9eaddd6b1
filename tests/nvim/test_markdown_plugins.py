"""`chat.markdown = 'treesitter'`: others render answers. `PLUGINS` names a directory with checkouts of render-markdown.nvim and markview.nvim."""

import os
import re
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.nvim.test_highlight import marked_rows, says

PLUGINS = os.environ.get("PLUGINS", "")
ANSWER = """# A heading

Some **strong** words and `code`.

- one
- two

```lua
local x = 1
```

| a | b |
|---|---|
| 1 | **2** |
"""
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


def turn(text):
    return [
        {"type": "turn_started", "prompt": {"id": "1", "text": "**Why**?"}},
        {"type": "tool_started", "id": "t", "tool": "bash", "title": "make"},
        {"type": "tool_output", "id": "t", "text": "one\ntwo"},
        {"type": "tool_ended", "id": "t", "summary": "✓"},
        says(text),
        {"type": "block_ended", "block_id": 1},
        {"type": "turn_ended", "stop_reason": "end_turn"},
    ]


def test_neovims_highlighter_has_the_transcript_and_we_set_no_marks_of_markdown(start_screen):
    screen = start_screen(columns=120, lines=40)
    screen.setup(chat={"markdown": "treesitter"})
    screen.command("AgentChat")
    screen.send(*turn(ANSWER))
    wait_until(lambda: "local x = 1" in screen.screen_text())
    screen.lua("vim.wait(500)")
    assert (
        screen.lua("""
      local buf = require('sanderling').transcript().buf
      return vim.treesitter.highlighter.active[buf] ~= nil and vim.treesitter.get_parser(buf):lang()
    """)
        == "markdown"
    )
    assert marked_rows(screen) == []
    assert "bash make" in screen.screen_text()
    screen.lua("vim.api.nvim_buf_delete(require('sanderling').transcript().buf, { force = true })")
    wait_until(
        lambda: screen.lua("""
          local shown = require('sanderling').transcript()
          return shown and vim.treesitter.highlighter.active[shown.buf] ~= nil
        """)
    )


def test_our_own_rendering_leaves_the_transcript_without_a_parser(start_screen):
    screen = start_screen(columns=120, lines=40)
    screen.command("AgentChat")
    screen.send(*turn(ANSWER))
    wait_until(lambda: marked_rows(screen))
    assert not screen.lua("""
      local buf = require('sanderling').transcript().buf
      return vim.treesitter.highlighter.active[buf] ~= nil
        or vim.treesitter.language.get_lang('sanderling') == 'markdown'
    """)


@pytest.mark.skipif(not PLUGINS, reason="PLUGINS does not say where they are")
@pytest.mark.parametrize("name", SETUPS)
def test_a_plugin_renders_the_transcript_alone(start_screen, name):
    screen = start_screen(columns=120, lines=40)
    screen.command(f"set runtimepath+={Path(PLUGINS, name)}")
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
    if os.environ.get("SHOW"):
        print(chr(10).join(screen.screen()))
