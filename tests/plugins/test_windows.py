"""Plugins that move windows, scroll them, or draw in them: the chat's windows stay as they were."""

import pytest

from tests.nvim.replies import bash, reply
from tests.plugins.setups import MINI, SNACKS

LINES = "".join(f"Line {n} of an answer that is long.\n\n" for n in range(120))
LONG = reply({"text": LINES + "The end."})
SHORT = reply(
    {"text": "And\n\nso\n\non.\n\n" * 3 + "And more.", "chunk_chars": 9, "chunk_delay_ms": 40},
    repeat=True,
)


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize(
    "plugin, config", [("snacks.nvim", SNACKS), ("mini.nvim", MINI)], ids=["snacks", "mini"]
)
def test_the_transcript_follows_its_text_next_to_a_plugin_that_scrolls_smoothly(
    start, plugin, config, is_inside
):
    child = start([plugin], config, [LONG, reply(bash("echo 1")), SHORT])
    child.chat("go")
    for _ in range(
        4
    ):  # an animation takes a fifth of a second: text arrives before, while and after
        child.feed("<C-w>kgg" if is_inside else "<C-w>kgg<C-w>j")
        child.submit_and_wait("go on")
        child.feed("<C-w>b")
        child.when_free(lambda: child.in_transcript("line('.') == line('$')"))
        child.wait_for_screen("And more.")
