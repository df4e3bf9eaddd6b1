"""Instructions: which hold for a file, what they import, and that the model is told each of them once."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.test_trust import trust_all, write

from sanderling.project.instructions import MAX_SENT_BYTES, Instructions
from sanderling.project.trust.trust import OwnFiles, Trust


@pytest.fixture
def instructions(trust: Trust, own_files: OwnFiles) -> Instructions:
    return Instructions(trust, own_files)


@pytest.fixture
def put(trust: Trust, project: Path) -> Callable[..., None]:
    """Write a file of the project's, and trust it with all others."""

    def write_and_trust(name: str, text: str | bytes, *, is_trusted: bool = True) -> None:
        write(project, name, text)
        if is_trusted:
            trust.look(name)
            trust_all(trust)

    return write_and_trust


@pytest.fixture
def texts(trust: Trust, own_files: OwnFiles) -> Callable[..., list[str]]:
    """The instructions that a session is told which begins with these files."""

    def told(*paths: str) -> list[str]:
        news = Instructions(trust, own_files).news(paths)
        return re.split(r"(?:\n\n)?Instructions of [^\n]*:\n\n", news)[1:]

    return told


def test_instructions_go_from_the_persons_own_down_to_the_directory_of_the_file(texts, own, put):
    write(own, "AGENTS.md", "own")
    for directory in ("", "src/", "src/api/", "docs/"):
        put(f"{directory}AGENTS.md", f"in {directory}")
    assert texts() == ["own", "in"]
    assert texts("src/api/v1/a.py") == ["own", "in", "in src/", "in src/api/"]
    assert texts("src/a.py", "docs/b.md") == ["own", "in", "in docs/", "in src/"]


def test_files_are_named_absolute_or_relative_and_those_outside_have_the_roots(texts, project, put):
    put("AGENTS.md", "root")
    put("src/AGENTS.md", "src")
    assert texts(f"{project}/src/a.py") == ["root", "src"]
    assert texts("./src/../src/a.py") == ["root", "src"]
    for path in ("/etc/passwd", "../x/y", str(project), f"{project}-2/src/a.py", "", "a\0/b"):
        assert texts(path) == ["root"]


@pytest.mark.parametrize(
    "names, chosen",
    [
        (["CLAUDE.md"], "CLAUDE.md"),
        (["CLAUDE.md", "AGENTS.md"], "AGENTS.md"),
        (["CLAUDE.md", "AGENTS.md", "AGENTS.override.md"], "AGENTS.override.md"),
    ],
)
def test_one_file_of_a_directory_counts(texts, put, names, chosen):
    for name in names:
        put(name, f"from {name}")
    assert texts() == [f"from {chosen}"]


def test_untrusted_file_is_as_if_it_were_not_there_but_said(instructions, texts, put):
    put("AGENTS.md", "trusted")
    put("AGENTS.override.md", "not trusted", is_trusted=False)
    put("src/CLAUDE.md", "not trusted", is_trusted=False)
    assert texts("src/a") == ["trusted"]
    assert "not trusted" not in instructions.news(["src/a"])
    assert instructions.ignored() == ("AGENTS.override.md", "src/CLAUDE.md")


def test_what_was_told_holds_until_its_changed_file_is_trusted_again(instructions, texts, put):
    put("AGENTS.md", "one")
    instructions.news([])
    put("AGENTS.md", "two", is_trusted=False)
    assert texts() == []
    assert instructions.news([]) == ""
    assert instructions.ignored() == ("AGENTS.md",)
    put("AGENTS.md", "two")
    assert "They replace those from AGENTS.md above.\n\ntwo" in instructions.news([])


@pytest.mark.parametrize("text", ["", " \n\t\n", b"\xef\xbb\xbf"])
def test_file_without_words_tells_nothing(instructions, texts, put, text):
    put("AGENTS.md", text)
    assert texts() == []
    assert instructions.ignored() == ()


def test_fifo_and_huge_file_are_ignored(instructions, project):
    os.mkfifo(project / "AGENTS.md")
    write(project, "src/AGENTS.md", b"x" * 10_000_000)
    assert instructions.news(["src/a"]) == ""
    assert instructions.ignored() == ("AGENTS.md", "src/AGENTS.md")


def test_import_on_its_own_line_is_replaced_by_the_file(texts, put):
    put("docs/style.md", "Short lines.\n- @more.md\n")
    put("docs/more.md", "Short words.\n")
    put("AGENTS.md", "Style:\n@docs/style.md\nEnd.")
    assert texts() == ["Style:\nShort lines.\nShort words.\nEnd."]


def test_import_within_a_line_follows_it(texts, put):
    put("README.md", "# Readme")
    put("AGENTS.md", "See @README.md and @types/node.\nEnd.")
    assert texts() == ["See @README.md and @types/node.\n# Readme\nEnd."]


@pytest.mark.parametrize(
    "mention, why",
    [
        ("docs/none.md", "there is no such file"),
        ("../../etc/passwd", "it is outside"),
        ("/etc/passwd", "it is outside"),
        ("~/.ssh/id_rsa", "it is outside"),
        ("link.md", "the user has not trusted it"),
        ("AGENTS.md", "it is included already"),
    ],
)
def test_import_that_fails_stays_with_the_reason(texts, project, put, mention, why):
    (project / "link.md").symlink_to("/etc/passwd")
    put("AGENTS.md", f"a\n@{mention}\nb\nSee @{mention} here")
    assert texts() == [f"a\n@{mention} [not included: {why}]\nb\nSee @{mention} here"]


def test_untrusted_import_is_left_out_and_said(instructions, put):
    put("AGENTS.md", "a\n@b.md")
    put("b.md", "evil", is_trusted=False)
    assert "evil" not in instructions.news([])
    assert instructions.ignored() == ("b.md",)


def test_cycle_of_imports_ends(texts, put):
    put("b.md", "b\n@AGENTS.md\n@b.md")
    put("AGENTS.md", "a\n@b.md")
    already = "[not included: it is included already]"
    assert texts() == [f"a\nb\n@AGENTS.md {already}\n@b.md {already}"]


def test_imports_go_five_deep(texts, put):
    for depth in range(6, 0, -1):
        put(f"{depth}.md", f"{depth}\n@{depth + 1}.md")
    put("AGENTS.md", "0\n@1.md")
    assert texts() == [
        "0\n1\n2\n3\n4\n5\n@6.md [not included: imports are nested more than 5 deep]"
    ]


def test_imports_of_ones_own_stay_below_ones_own(texts, own, put):
    put("secret.md", "of the project's")
    write(own, "more.md", "more")
    write(own, "AGENTS.md", "@more.md\n@../project/secret.md")
    assert texts() == ["more\n@../project/secret.md [not included: it is outside]"]


def test_model_is_told_each_once_and_where_it_holds(instructions, own, put):
    write(own, "AGENTS.md", "Be brief.")
    put("AGENTS.md", "Be kind.")
    put("src/api/CLAUDE.md", "Be strict.")
    assert instructions.news([]) == (
        f"Instructions of the user for all projects, from {own}/AGENTS.md:\n\nBe brief.\n\n"
        "Instructions of this project, from AGENTS.md:\n\nBe kind."
    )
    assert instructions.news(["src/api/a.py"]) == (
        "Instructions of this project for files below src/api/, from src/api/CLAUDE.md:\n\nBe strict."
    )
    assert instructions.news(["src/api/a.py", "src/api/b.py"]) == ""


def test_change_is_told_and_replaces_what_was_told(instructions, put):
    put("AGENTS.md", "Be kind.")
    instructions.news([])
    put("AGENTS.md", "Be strict.")
    assert instructions.news([]) == (
        "Instructions of this project, from AGENTS.md: They replace those from AGENTS.md above.\n\nBe strict."
    )
    put("AGENTS.override.md", "Be nice.")
    assert "from AGENTS.override.md: They replace those from AGENTS.md above." in instructions.news(
        []
    )


def test_change_in_an_import_is_told(instructions, put):
    put("b.md", "one")
    put("AGENTS.md", "@b.md")
    assert "one" in instructions.news([])
    put("b.md", "two")
    assert "two" in instructions.news([])
    assert instructions.news([]) == ""


def test_import_that_appears_is_told(instructions, put):
    put("AGENTS.md", "@b.md")
    assert "there is no such file" in instructions.news([])
    put("b.md", "two")
    assert "two" in instructions.news([])


def test_instructions_that_are_gone_are_taken_back_once(instructions, project, put):
    put("src/AGENTS.md", "Be kind.")
    instructions.news(["src/a"])
    (project / "src" / "AGENTS.md").unlink()
    assert instructions.news([]) == "[The instructions from src/AGENTS.md no longer apply.]"
    assert instructions.news(["src/a"]) == ""


def test_what_was_told_is_known_after_a_resume(instructions, trust, own_files, put):
    put("AGENTS.md", "Be kind.")
    put("src/AGENTS.md", "Be strict.")
    instructions.news(["src/a"])
    resumed = Instructions(trust, own_files)
    resumed.restore(json.loads(json.dumps(instructions.state())))
    assert resumed.news(["src/a"]) == ""
    put("src/AGENTS.md", "Be nice.")
    assert "They replace" in resumed.news([])


@pytest.mark.parametrize("state", [{".": 1}, {".": {"path": "AGENTS.md"}}, []])
def test_state_that_is_none_tells_all_again(instructions, put, state):
    put("AGENTS.md", "Be kind.")
    instructions.restore(state)
    assert "Be kind." in instructions.news([])


def test_all_is_told_again_after_it_was_forgotten(instructions, put):
    put("AGENTS.md", "Be kind.")
    put("src/AGENTS.md", "Be strict.")
    first = instructions.news(["src/a"])
    instructions.forget()
    assert instructions.news([]) == first
    assert instructions.news([]) == ""


def test_forgetting_survives_a_resume(instructions, trust, own_files, put):
    put("src/AGENTS.md", "Be strict.")
    first = instructions.news(["src/a"])
    instructions.forget()
    resumed = Instructions(trust, own_files)
    resumed.restore(instructions.state())
    assert resumed.news([]) == first


def test_long_instructions_are_cut_between_lines_and_say_so(instructions, put):
    line = "x" * 99 + "\n"
    put("AGENTS.md", line * 450)
    news = instructions.news([])
    kept = MAX_SENT_BYTES // 100
    assert news.endswith(f"{line * kept}[… cut: {kept * 100:,} of 44,999 bytes are shown]")


def test_all_instructions_share_one_budget(instructions, put):
    put("AGENTS.md", "x" * (MAX_SENT_BYTES - 10))
    put("src/AGENTS.md", "é" * 100)
    put("src/api/AGENTS.md", "y" * 100)
    news = instructions.news(["src/api/a"])
    assert "\n\n" + "é" * 5 + "\n[… cut: 10 of 200 bytes are shown]" in news
    assert news.endswith("\n\n[… cut: 0 of 100 bytes are shown]")
    assert instructions.news(["src/api/a"]) == ""


def test_room_of_instructions_that_are_replaced_is_free_again(instructions, put):
    for text in ("a", "b", "c"):
        put("AGENTS.md", text * (MAX_SENT_BYTES - 10))
        assert "cut" not in instructions.news([])
    put("AGENTS.md", "short")
    put("src/AGENTS.md", "d" * (MAX_SENT_BYTES - 10))
    assert "cut" not in instructions.news(["src/a"])


def test_directories_without_instructions_leave_no_state(instructions, put):
    put("AGENTS.md", "Be kind.")
    instructions.news([f"d{number}/x/y/a.py" for number in range(50)])
    assert list(instructions.state()) == ["."]
