"""Code intelligence without an editor: what the tools say then, a server's edits as bytes, outlines and their bounds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples
from tests.sandboxes import policy_below, sandbox_of
from tests.workspaces import workspace_of

from sanderling.errors import ToolError
from sanderling.tools.base import Context
from sanderling.tools.catalog import TOOLS
from sanderling.tools.code.edits import applied, changed, offset_of, splices
from sanderling.tools.code.reach import Reach
from sanderling.tools.code.rows import Rows, outlined, within_symbol
from sanderling.tools.code.servers import Locations, Symbol


@pytest.mark.parametrize(
    "name, args",
    [
        ("code_nav", {"op": "references", "symbol": "f"}),
        ("code_nav", {"op": "outline", "path": "a.py"}),
        ("diagnostics", {}),
    ],
)
async def test_without_an_editor_the_tools_say_so_in_a_sentence(tmp_path, name, args):
    policy = policy_below(tmp_path, ".", home=str(tmp_path))
    workspace = workspace_of(tmp_path, sandbox_of(policy))
    context = Context(workspace, "u", lambda _: None)
    with pytest.raises(ToolError, match=r"no editor with language servers .* use grep and read"):
        await TOOLS[name].run(TOOLS[name].parse(args), context)
    plan = TOOLS["code_refactor"].plan
    with pytest.raises(ToolError, match="no editor with"):
        await plan(TOOLS["code_refactor"].parse({"op": "rename", "path": "a.py"}), context)


@pytest.mark.parametrize(
    "encoding, character", [("utf-8", 4 + 2 + 1), ("utf-16", 2 + 1 + 1), ("utf-32", 3)]
)
def test_positions_are_counted_as_the_server_counts(encoding, character):
    text = "a\n😀é\tname\r\nb"
    assert offset_of(text, 1, character, encoding) == text.index("name")
    assert offset_of(text, 1, 999, encoding) == text.index("\nb")
    assert offset_of(text, 9, 9, encoding) == len(text)


def edit(row, first, last, new, last_row=None):
    return (row, first, row if last_row is None else last_row, last, new)


@pytest.mark.parametrize(
    "data",
    [
        b"one\r\ntwo\nthree\r\n",
        b"\xef\xbb\xbfone\ntwo\nthree",
        "one\ntwo\nthree\n".encode("utf-16"),
    ],
)
def test_an_edit_changes_no_other_byte(data):
    text = "one\ntwo\nthree" + "\n" * (b"\n" in data[-2:])
    changes = splices(text, [edit(1, 0, 3, "2"), edit(2, 0, 0, "and ")], "utf-16", "a")
    encoding = "utf-16-le" if data[:1] == b"\xff" else "utf-8"
    expected = data.replace("two".encode(encoding), "2".encode(encoding))
    expected = expected.replace("three".encode(encoding), "and three".encode(encoding))
    assert changed(data, text, changes, "a") == expected
    assert applied(text, changes) == text.replace("two", "2").replace("three", "and three")


def test_edits_that_overlap_and_those_of_another_text_are_refused():
    with pytest.raises(ToolError, match="overlap"):
        splices("one two", [edit(0, 0, 5, "x"), edit(0, 4, 7, "y")], "utf-16", "a")
    with pytest.raises(ToolError, match="is not supported"):
        splices("one two", [], "utf-7", "a")
    with pytest.raises(ToolError, match="has changed since"):
        changed(b"other", "one two", [(0, 3, "x")], "a")


@settings(max_examples=examples(100), deadline=None)
@given(
    st.text("a😀é\t\n", max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.text("xy\n", max_size=3)), max_size=5),
)
def test_insertions_anywhere_come_out_as_text_and_as_bytes_alike(text, places):
    at = {min(place, len(text)): new for place, new in places}
    edits = []
    for offset, new in at.items():
        before = text[:offset]
        start = before.rfind("\n") + 1
        character = len(before[start:].encode("utf-16-le")) // 2
        edits.append(edit(before.count("\n"), character, character, new))
    changes = splices(text, edits, "utf-16", "a")
    assert changed(text.encode(), text, changes, "a").decode() == applied(text, changes)


async def test_a_name_cannot_imitate_another_row(tmp_path):
    file = tmp_path / "a.json"
    file.write_text("one\n")
    sandbox = sandbox_of(policy_below(tmp_path, ".", home=str(tmp_path)), is_on=False)
    context = Context(workspace_of(tmp_path, sandbox), "u", lambda _: None)
    name = "key\nb.json:1: two" + "x" * 100_000
    listing = await Rows(context, Reach(context)).listing([Locations(str(file), (0,), (name,))])
    [line] = listing.lines
    assert line.startswith("a.json:1: one  [key b.json:1: two")
    assert "\n" not in line
    assert len(line) < 200


def test_an_outline_that_is_too_long_shows_only_what_is_outside():
    symbols = [
        Symbol(f"n{index}", "function", int(index % 10 > 0), index, index + 1)
        for index in range(500)
    ]
    lines = outlined(symbols)
    assert len(lines) == 51
    assert lines[0] == "      1-2 function n0"
    assert lines[-1] == "… 450 nested symbols are not shown."


TREE = [
    Symbol("Command", "class", 0, 0, 400),
    *(Symbol(f"method_{n}", "method", 1, n, n) for n in range(1, 120)),
    Symbol("run(int)", "method", 1, 200, 210),
    Symbol("inner", "function", 2, 201, 202),
    Symbol("Group<T>", "class", 0, 410, 500),
    Symbol("run", "method", 1, 420, 430),
]


@pytest.mark.parametrize(
    "names, lines",
    [
        (["Group"], ["  411-501 class Group<T>", "  421-431   method run"]),
        (["Command", "run"], ["  201-211 method run(int)", "  202-203   function inner"]),
        (
            ["run"],
            ["  201-211 method run(int)", "  202-203   function inner", "  421-431 method run"],
        ),
        (["Nothing"], []),
        (["Group", "inner"], []),
    ],
)
def test_outline_of_one_symbol_has_only_what_is_inside_of_it(names, lines):
    assert outlined(within_symbol(TREE, names), least_depth=1) == lines


def test_outline_of_a_large_class_shows_its_methods_up_to_a_limit():
    lines = outlined(within_symbol(TREE, ["Command"]), least_depth=1)
    assert lines[:2] == ["    1-401 class Command", "      2-2   method method_1"]
    assert lines[-1].endswith(" more")
    assert len(lines) == 101
