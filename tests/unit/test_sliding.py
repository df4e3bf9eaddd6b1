"""Where insertions and deletions of the same lines are shown: as git shows them."""

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples

from sanderling.changes.editing.lines import TextDifference, applied, buffer_hunks

FUNCTION = """\
function short(ms) {
  const msAbs = Math.abs(ms);
  if (msAbs >= y) {
    return `${ms / y}y`;
  }
  if (msAbs >= d) {
    return `${ms / d}d`;
  }
  return `${ms}ms`;
}
"""
WEEKS = "  if (msAbs >= w) {\n    return `${ms / w}w`;\n  }\n"


def added_lines(old: str, new: str) -> str:
    return "\n".join(line for hunk in TextDifference(old, new).hunks for line in hunk.lines)


@pytest.mark.parametrize("before", ["  if (msAbs >= d)", "  return `${ms}ms`"])
def test_inserted_block_is_whole_among_other_changes(before):
    new = FUNCTION.replace(before, WEEKS + before).replace("short", "brief")
    new = new.replace("ms`;\n}", "ms!`;\n}")
    assert WEEKS.rstrip("\n") in added_lines(FUNCTION, new)
    removed = [
        line
        for hunk in TextDifference(new, FUNCTION).hunks
        for line in new.split("\n")[hunk.first_line : hunk.first_line + hunk.line_count]
    ]
    assert WEEKS.rstrip("\n") in "\n".join(removed)


def git_places(tmp_path, old: str, new: str) -> list[str]:
    for name, text in (("old", old), ("new", new)):
        (tmp_path / name).write_text(text)
    command = ["git", "diff", "--no-index", "-U0", "--indent-heuristic", "--minimal", "old", "new"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).stdout.decode()
    return re.findall(r"^@@ (.*?) @@", told, re.MULTILINE)


def test_single_insertions_are_where_git_shows_them(tmp_path):
    blocks = FUNCTION, FUNCTION.replace("  ", "\t"), FUNCTION.replace("}\n", "}\n\n")
    for text in blocks:
        lines = text.splitlines(keepends=True)
        for at in range(len(lines)):
            for end in range(at + 1, len(lines) + 1):
                new = "".join([*lines[:end], *lines[at:end], *lines[end:]])
                [place] = git_places(tmp_path, text, new)
                [hunk] = TextDifference(text, new).hunks
                first = int(re.search(r"\+(\d+)", place)[1])
                assert hunk.first_line + 1 == first, (at, end, text)


LINES = st.lists(st.sampled_from(["", "a", "  a", "  }", "}"]), max_size=12).map("\n".join)


@settings(max_examples=examples(200))
@given(LINES, LINES)
def test_slid_hunks_make_the_same_text(old, new):
    assert applied(old, buffer_hunks(old, new)) == new
