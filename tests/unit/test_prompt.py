"""What the model is told: the system prompt, and a person's words with the lines they point at."""

import re

from hypothesis import given
from hypothesis import strategies as st

from sanderling.events import Prompt, Selection
from sanderling.messages import Message, TextBlock
from sanderling.prompt import prompt_message, system_prompt


def test_system_prompt_names_the_project_and_nothing_that_changes():
    text = system_prompt("/home/me/project")
    assert "/home/me/project" in text
    assert "{project}" not in text
    assert system_prompt("/home/me/project") == text


def test_prompt_is_one_text_block():
    assert prompt_message(Prompt("p1", "Why?\n")) == Message("user", (TextBlock("Why?\n"),))


def test_selections_come_before_the_words_with_path_lines_and_filetype():
    prompt = Prompt(
        "p1",
        "Why?",
        (Selection("src/a.py", 3, 4, "x = 1\ny = 2", "python"), Selection("b", 1, 1, "z")),
    )
    assert [block.text for block in prompt_message(prompt).content] == [
        "src/a.py:3-4, as it stands in the editor:\n```python\nx = 1\ny = 2\n```",
        "b:1-1, as it stands in the editor:\n```\nz\n```",
        "Why?",
    ]


@given(
    st.lists(st.sampled_from(["`", "``", "```", "````````", "\n", "x", " "]), max_size=20).map(
        "".join
    )
)
def test_nothing_in_a_selection_closes_its_fence(text: str):
    block = prompt_message(Prompt("p1", "Why?", (Selection("a", 1, 1, text),))).content[0]
    assert isinstance(block, TextBlock)
    _, opening, *inside, closing = block.text.split("\n")
    assert re.fullmatch("`{3,}", opening)
    assert opening == closing
    assert "\n".join(inside) == text
    assert all(opening not in line for line in inside)


def test_selection_without_words_leaves_no_blank_block():
    # The API: "text content blocks must contain non-whitespace text".
    prompt = Prompt("p1", " \n", (Selection("a", 1, 1, "x"),))
    blocks = prompt_message(prompt).content
    assert all(block.text.strip() for block in blocks if isinstance(block, TextBlock))
