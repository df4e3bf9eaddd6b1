"""Mentions of PDFs and notebooks: their pages and cells are attached to the prompt."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sandboxes import policy_below
from tests.talk import BaseTalk, scripted
from tests.unit.test_pdf import pdf, words

from sanderling.permissions.rules import rule_from_text
from sanderling.protocol.events import ErrorOccurred
from sanderling.protocol.messages import Prompt, Selection
from sanderling.session.session import Session
from sanderling.tools.mentioned import CELLS, MAX_BYTES, PAGES, has_documents


def notebook(*sources: str) -> str:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": each} for each in sources]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def opened(tmp_path: Path, **parts: Any) -> tuple[BaseTalk, Path]:
    project = tmp_path / "project"
    project.mkdir()
    session = Session.open(tmp_path / "state/sessions", "s1", str(project))
    provider = scripted([{"text": "Yes."}], is_repeating=True)
    return BaseTalk(session, provider, **parts), project


async def attached(talk: BaseTalk, text: str, *selections: Selection) -> list[str]:
    """The texts of the message that the prompt became, without its own."""
    async with talk.served():
        await talk.run_turns(Prompt("p1", text, selections))
    said = [block.text for message in talk.history[:1] for block in message.content]
    return [each for each in said if each.startswith(("a", "docs", "@"))]


async def test_a_mentioned_pdf_is_attached_by_page(tmp_path):
    talk, project = opened(tmp_path)
    (project / "docs").mkdir()
    (project / "docs/my file.PDF").write_bytes(pdf(words("First"), words("Second")))
    [text] = await attached(talk, r"See (@docs/my\ file.PDF), please.")
    assert text.startswith(f"docs/my file.PDF, {PAGES}:\n")
    assert "--- page 1\nFirst\n--- page 2\nSecond\n(2 pages;" in text


async def test_a_range_of_a_mentioned_pdf_counts_pages(tmp_path):
    talk, project = opened(tmp_path)
    (project / "a.pdf").write_bytes(pdf(*(words(f"Number {n}") for n in range(1, 6))))
    [text] = await attached(talk, "Compare @a.pdf:2-3.")
    assert [n for n in range(1, 6) if f"Number {n}" in text] == [2, 3]


async def test_two_ranges_of_a_pdf_are_both_attached(tmp_path):
    talk, project = opened(tmp_path)
    (project / "a.pdf").write_bytes(pdf(*(words(f"Number {n}") for n in range(1, 6))))
    texts = await attached(talk, "Compare @a.pdf:1 and @a.pdf:4-5.")
    assert [[n for n in range(1, 6) if f"Number {n}" in text] for text in texts] == [[1], [4, 5]]


async def test_a_large_pdf_is_attached_in_part_and_says_how_to_continue(tmp_path):
    talk, project = opened(tmp_path)
    (project / "a.pdf").write_bytes(pdf(*(words("x" * 60, 50) for _ in range(20))))
    [text] = await attached(talk, "Read @a.pdf")
    assert len(text) < MAX_BYTES + 1000
    assert "continue with offset=" in text


async def test_a_mentioned_notebook_is_attached_by_cell_instead_of_its_json(tmp_path):
    talk, project = opened(tmp_path)
    (project / "a.ipynb").write_text(notebook("# Terns", "Text", "End"))
    raw = Selection("a.ipynb", 1, 1, notebook("old"), "json", origin="as saved on disk")
    [text] = await attached(talk, "Explain @a.ipynb:1-2!", raw)
    assert text.startswith(f"a.ipynb, {CELLS}:\n")
    assert "# Terns" in text
    assert "(cells 1-2 of 3; continue with offset=3;" in text
    assert "nbformat" not in text


async def test_a_word_that_names_no_file_is_only_text(tmp_path):
    talk, _ = opened(tmp_path)
    assert await attached(talk, "Ask me@a.pdf or @nothing.pdf.") == []
    assert talk.of(ErrorOccurred) == []


@pytest.mark.parametrize(
    "data, rule, words",
    [
        (pdf(words("Secret")), "deny read a.pdf", "A rule keeps a.pdf from the model"),
        (b"%PDF-1.7 nothing", "allow bash", "@a.pdf is not available: a.pdf cannot be read"),
    ],
    ids=["kept by a rule", "damaged"],
)
async def test_a_pdf_that_cannot_be_attached_stops_the_prompt(tmp_path, data, rule, words):
    talk, project = opened(tmp_path, rules=(rule_from_text(rule),))
    (project / "a.pdf").write_bytes(data)
    assert await attached(talk, "Read @a.pdf") == []
    [error] = talk.of(ErrorOccurred)
    assert error.message.startswith(words)
    assert talk.history == []


async def test_a_pdf_that_the_sandbox_hides_is_not_called_damaged(tmp_path):
    talk, project = opened(tmp_path, policy=policy_below(tmp_path, "project"))
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/own.pdf").write_bytes(pdf(words("Private")))
    (project / "link.pdf").symlink_to(tmp_path / "home/own.pdf")
    assert await attached(talk, "Read @link.pdf") == []
    [error] = talk.of(ErrorOccurred)
    assert "link.pdf does not exist, or the sandbox hides it." in error.message


async def test_a_rule_keeps_a_pdf_in_a_directory_that_begins_with_an_at_sign(tmp_path):
    talk, project = opened(tmp_path, rules=(rule_from_text("deny read *.pdf"),))
    (project / "@docs").mkdir()
    (project / "@docs/a.pdf").write_bytes(pdf(words("Secret")))
    await attached(talk, "Read @@docs/a.pdf and @./@docs/a.pdf")
    [error] = talk.of(ErrorOccurred)
    assert error.message.startswith("A rule keeps ")
    assert talk.history == []


@pytest.mark.parametrize(
    "text, is_mention",
    [
        ("@a.pdf", True),
        ('("@b/a.ipynb:3")', True),
        ("@a.PDF?", True),
        ("a@a.pdf", False),
        ("@a.pdf.txt", False),
        ("@.pdf", False),
        ("@a.pdf:x", False),
    ],
)
def test_only_words_that_end_as_such_files_are_mentions(text, is_mention):
    assert has_documents(text) == is_mention
