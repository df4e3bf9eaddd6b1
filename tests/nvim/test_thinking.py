"""Thinking streams into a fold, dimmed; the folds are the user's from then on."""

THINKING = """
[[reply]]
[[reply.step]]
thinking = "one\\ntwo\\nthree\\nfour\\n"
chunk_chars = 3
chunk_delay_ms = 10
[[reply.step]]
text = "The answer.\\nIts second line."
"""


def test_thinking_ends_up_in_one_closed_fold_that_counts_its_lines(scripted):
    child = scripted(THINKING)
    child.open_chat()
    child.submit("go")
    child.wait_for_turns()
    text = child.transcript_text()
    assert "Thinking\none\ntwo\nthree\nfour\n\n\nThe answer." in text
    print(child.screen_text())
    assert "▸ Thinking · 4 lines" in child.screen_text()
    assert "three" not in child.screen_text()
