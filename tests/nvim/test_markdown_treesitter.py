"""`chat.markdown = 'treesitter'`: Neovim's highlighter has the transcript."""

from tests.conftest import wait_until
from tests.nvim.test_highlight import marked_rows, says

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
