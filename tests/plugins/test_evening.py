"""What a user does every day, next to each plugin: ask, read, answer a question, review changes."""

import re

import pytest

from tests.conftest import wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.replies import bash, reply, say, use
from tests.plugins.setups import MANAGED, SETUPS

APP = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"
LONG = "".join(f"- item {n} of a list, `code {n}` and (more) words.\n" for n in range(80))
PROMPT = "Is [this] {right}? (a+b) 'c' \"d\" `e`"
EDITS = [{"old": "a - b", "new": "a + b"}, {"old": "add(1, 2)", "new": "add(2, 3)"}]
REPLIES = [
    reply(
        {"text": f"# Plan\n\n{LONG}\n```lua\nlocal x = {{ 1 }}\n```\nThe end.", "chunk_chars": 40}
    ),
    reply(say("I run it. "), bash("touch made")),
    reply(use("read", path="app.py")),
    reply(use("edit", path="app.py", edits=EDITS)),
    reply(say("All done."), repeat=True),
]


def errors(child):
    """The lines of :messages that no user should see."""
    bad = re.compile(r"E\d+:|Error|stack traceback|attempt to|\.lua:\d+")
    return [line for line in child.messages().splitlines() if bad.search(line)]


def send(child, text):
    """Type `text` into the prompt, and send it when plugins have seen it."""
    child.feed(text)
    child.when_free(lambda: child.prompt_lines() == [text], "it is typed")
    child.screen()
    child.feed("<C-s>")


def answer_here(child, keys):
    """Go to the question by its key, and answer it."""
    child.wait_for_question(1)
    count_keys_after(child, 0)
    child.feed("<Esc><C-w>a")
    wait_until(lambda: child.float() == child.lua("return vim.api.nvim_get_current_win()"))
    child.feed(keys)


@pytest.mark.parametrize("name", SETUPS | MANAGED)
def test_an_evening(start, project, name):
    (project / "app.py").write_text(APP)
    setup = (SETUPS | MANAGED)[name]
    child = start(*setup, REPLIES, is_typing=True, is_managed=name in MANAGED)
    child.feed(":edit app.py<CR>")
    wait_until(lambda: child.lua("return vim.fn.bufname()") == "app.py", "the file is open")
    child.feed(":AgentChat<CR>")
    wait_until(lambda: child.mode() == "i", "the prompt is entered in insert mode")
    send(child, PROMPT)
    child.wait_for_turns(1)
    assert child.sent() == [PROMPT]
    child.wait_for_screen("The end.")
    wait_until(lambda: child.in_transcript("line('w$') == line('$')"), "its end is shown")

    send(child, "and now?")
    answer_here(child, "a")
    child.wait_for_question(2)
    assert (project / "made").exists()
    child.feed("<C-w>t")
    wait_until(lambda: child.lua("return vim.fn.bufname()") == "app.py", "the file is entered")
    child.wait_for_screen("return a + b")
    child.feed("gg]h")
    child.when_free(lambda: child.lua("return vim.fn.line('.')") == 2, "the first change")
    child.feed("\\ha]h")
    child.when_free(lambda: child.lua("return vim.fn.line('.')") == 5, "the second change")
    child.feed("\\hr")
    child.wait_for_turns(2)
    assert (project / "app.py").read_text() == APP.replace("a - b", "a + b")
    child.wait_for_screen("All done.")
    assert errors(child) == []
