"""Replacements in a file: the right bytes, or words that say why not."""

import functools
import random
import re
import warnings
from itertools import accumulate
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples, little_work, prove, prove_rest

from sanderling.changes.editing.closest import MAX_SHOWN_LINES
from sanderling.changes.editing.lines import applied, buffer_hunks
from sanderling.changes.editing.replace import Replacement, replace
from sanderling.changes.editing.text import decode
from sanderling.errors import ToolError
from sanderling.tools.buffers import bytes_of, text_in
from sanderling.tools.editor import Buffer

pytestmark = pytest.mark.guard


def change(old: str, new: str = "new", *, everywhere: bool = False) -> Replacement:
    return Replacement(old=old, new=new, replace_all=everywhere)


def insert(line: int, new: str) -> Replacement:
    return Replacement(new=new, insert_at_line=line)


def edit(data: bytes, *replacements: Replacement, path: str = "app.py") -> bytes:
    return replace(data, replacements, path=path).data


def refusal(data: bytes, *replacements: Replacement, path: str = "app.py") -> str:
    with pytest.raises(ToolError) as caught:
        replace(data, replacements, path=path)
    return str(caught.value)


TABS = b"def f(x):\n\tif x:\n\t\treturn 1\n\treturn 2\n"

# --- exact replacements ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, old, new, expected",
    [
        pytest.param(b"a b c\n", "b", "", b"a  c\n", id="text can be taken out"),
        pytest.param(b"a\nb\nc\n", "b\n", "", b"a\nc\n", id="a line can be taken out"),
        pytest.param(b"a\n", "a\n", "", b"", id="everything can be taken out"),
        pytest.param(b"a\nb\n", "b\n", "b", b"a\nb", id="the final newline can be taken out"),
        pytest.param(b"a\nb", "b", "b\n", b"a\nb\n", id="a final newline can be given"),
        pytest.param(b"a\r\nb\r\n", "a\r\nb", "A\r\nB", b"A\r\nB\r\n", id="CRLF in `old` is fine"),
        pytest.param(b"a\nb\n", "a\r\nb", "A\r\nB", b"A\nB\n", id="so it is where the file has LF"),
        pytest.param(b"a\r\nb\r\n", "a\nb", "A\nB", b"A\r\nB\r\n", id="and LF where it has CRLF"),
        pytest.param(b"a\rb\rc\r", "b\n", "B\nb\n", b"a\rB\rb\rc\r", id="CR endings stay CR"),
        pytest.param(b"a\rb\r", "a\rb", "A\rB", b"A\rB\r", id="CR endings match CR"),
        pytest.param(b"a\rb\nc\n", "a\rb", "a\rB", b"a\rB\nc\n", id="a CR among LF is text"),
        pytest.param(b"a\r\r\nb\r\r\n", "b", "B", b"a\r\r\nB\r\r\n", id="CR CR LF stays"),
        pytest.param(
            b"a\r\nb\nc\r\nd\n",
            "a\nb\nc\n",
            "a\nB\nc\n",
            b"a\r\nB\nc\r\nd\n",
            id="of mixed endings each line keeps its own",
        ),
        pytest.param(
            b"a\nb\r\nc\n",
            "a\nb\n",
            "a\nb\nx\n",
            b"a\nb\r\nx\r\nc\n",
            id="an added line ends as the one before it in `old`",
        ),
        pytest.param(
            b"a\r\nb\nc\n",
            "a\nb\n",
            "x\na\nb\n",
            b"x\r\na\r\nb\nc\n",
            id="a line put first ends as the one that was first",
        ),
        pytest.param(
            b"a\r\nb\n",
            "a\nb\n",
            "1\n2\n3\n",
            b"1\r\n2\r\n3\n",
            id="what comes in addition ends as the last",
        ),
        pytest.param(b"a\nb\r\nlast", "last", "1\n2", b"a\nb\r\n1\r\n2", id="or the one above"),
        pytest.param(b"one", "one", "1\n2", b"1\n2", id="without any it is LF"),
        pytest.param(b"\xef\xbb\xbfa\n", "\ufeffa", "\ufeffb", b"\xef\xbb\xbfb\n", id="BOM given"),
        pytest.param(
            b"\xfe\xff" + "a\n𝄞b\n".encode("utf-16-be"),
            "𝄞b",
            "𝄞é",
            b"\xfe\xff" + "a\n𝄞é\n".encode("utf-16-be"),
            id="pairs in UTF-16",
        ),
        pytest.param(
            b"\xff\xfe\0\0" + "a\r\nb".encode("utf-32-le"),
            "b",
            "c\nd",
            b"\xff\xfe\0\0" + "a\r\nc\r\nd".encode("utf-32-le"),
            id="UTF-32",
        ),
        pytest.param(b"caf\xe9\n", "café", "Café é", b"Caf\xe9 \xe9\n", id="Latin-1 is written"),
        pytest.param(b"5 \x80\n", "5 €", "6 €", b"6 \x80\n", id="Windows-1252 is written"),
        pytest.param("é".encode() + b"\n", "é", "ü", "ü\n".encode(), id="UTF-8 is written"),
        pytest.param(
            "éé \n".encode() + b"x\xff\n",
            "éé",
            "éü",
            "éü \n".encode() + b"x\xff\n",
            id="a broken byte elsewhere stays",
        ),
        pytest.param(
            "éé".encode() + b"\xff = 1\n",
            "� = 1",
            "� = 2",
            "éé".encode() + b"\xff = 2\n",
            id="a broken byte in `old` stays where `new` keeps it",
        ),
        pytest.param(
            "ééé ".encode() + b"a\xffb\xfec\n",
            "a�b�c",
            "A�B�C",
            "ééé ".encode() + b"A\xffB\xfeC\n",
            id="several broken bytes stay in their order",
        ),
        pytest.param(
            "ééé ".encode() + b"\xff\n", "é �", "e", "éée\n".encode(), id="or goes if it does not"
        ),
        pytest.param("�\n".encode(), "�", "��", "��\n".encode(), id="a real U+FFFD is text"),
        pytest.param(b"aXa\n", "X", "", b"aa\n", id="one character"),
        pytest.param(b"^a.*b$\n", "^a.*b$", "(", b"(\n", id="`old` is no pattern"),
        pytest.param(b"a\x0cb\n", "a\x0cb", "c", b"c\n", id="a form feed ends no line"),
        pytest.param(
            "a\u2028b\x85c\n".encode(),
            "b\x85c",
            "B\x85C",
            "a\u2028B\x85C\n".encode(),
            id="U+2028 and NEL end no line",
        ),
    ],
)
def test_exact_text_is_replaced(data, old, new, expected):
    edited = replace(data, [change(old, new)], path="app.py")
    assert (edited.data, edited.notes) == (expected, ())


@pytest.mark.parametrize(
    "data, old, new, expected",
    [
        (b"a b a\r\na\n", "a", "x", b"x b x\r\nx\n"),
        (b"aaaa\n", "aa", "a", b"aa\n"),
        (b"a\r\na\na\r\n", "a", "a\nb", b"a\r\nb\r\na\nb\na\r\nb\r\n"),
        (b"one\n", "one", "two", b"two\n"),
        (b"caf\xe9 \xe9\n", "é", "e", b"cafe e\n"),
        ("éé".encode() + b"\xff=1 \xfe=1\n", "�=1", "�=2", "éé".encode() + b"\xff=2 \xfe=2\n"),
    ],
)
def test_every_occurrence_is_replaced_if_asked_for(data, old, new, expected):
    assert edit(data, change(old, new, everywhere=True)) == expected


@pytest.mark.parametrize(
    "data, line, new, expected",
    [
        (b"a\nb\n", 0, "x", b"x\na\nb\n"),
        (b"a\nb\n", 1, "x\n", b"a\nx\nb\n"),
        (b"a\nb\n", 2, "x\ny\n", b"a\nb\nx\ny\n"),
        (b"a\nb", 2, "x\n", b"a\nb\nx"),  # the end stays without a newline
        (b"a\nb", 1, "x", b"a\nx\nb"),
        (b"a\r\nb", 2, "x\ny", b"a\r\nb\r\nx\r\ny"),
        (b"a\r\nb\nc\n", 1, "x", b"a\r\nx\r\nb\nc\n"),  # as the line before
        (b"a\r\nb\nc\n", 2, "x", b"a\r\nb\nx\nc\n"),
        (b"a\r\nb\n", 0, "x", b"x\r\na\r\nb\n"),  # or the first
        (b"", 0, "x", b"x\n"),
        (b"\xef\xbb\xbf", 0, "x", b"\xef\xbb\xbfx\n"),
        (b"\xef\xbb\xbfa\n", 0, "x", b"\xef\xbb\xbfx\na\n"),
        (b"a\n", 1, "\n", b"a\n\n"),
        (b"a", 1, "x", b"a\nx"),
    ],
)
def test_lines_are_inserted_after_a_line(data, line, new, expected):
    assert edit(data, insert(line, new)) == expected


# --- several in one call -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, replacements, expected",
    [
        pytest.param(b"a\nb\nc\n", [change("a", "A"), change("c", "C")], b"A\nb\nC\n", id="apart"),
        pytest.param(b"a\nb\nc\n", [change("c", "C"), change("a", "A")], b"A\nb\nC\n", id="back"),
        pytest.param(b"ab\n", [change("a", "1"), change("b", "2")], b"12\n", id="side by side"),
        pytest.param(b"a\n", [change("a", "b"), change("b", "c")], b"c\n", id="in what one wrote"),
        pytest.param(
            b"a\r\nb\n", [insert(0, "x"), insert(1, "y")], b"x\r\na\r\ny\r\nb\n", id="insertions"
        ),
        pytest.param(
            b"a\nb\n",
            [change("a\nb", "1\n2\n3"), change("2\n", ""), insert(2, "4")],
            b"1\n3\n4\n",
            id="growing and shrinking",
        ),
        pytest.param(
            b"x a\nx b\n",
            [change("x", "y", everywhere=True), change("y a", "z")],
            b"z\ny b\n",
            id="everywhere, then one",
        ),
    ],
)
def test_each_replacement_is_made_in_what_those_before_it_left(data, replacements, expected):
    assert edit(data, *replacements) == expected


def test_a_replacement_of_what_one_before_it_wrote_is_told():
    edited = replace(b"a\nb\n", [change("a", "one"), change("one", "two")], path="app.py")
    assert edited.data == b"two\nb\n"
    assert edited.notes == ("Replacement 2 of 2: It changed text written by an earlier one.",)


# --- refusals, word by word --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, replacements, words",
    [
        pytest.param(
            b"a\n",
            [change("")],
            "`old` is empty. Give the text to replace, or `insert_at_line`.",
            id="nothing to look for",
        ),
        pytest.param(
            b"a b\n",
            [change(" \t\n", everywhere=True)],
            "`old` is only whitespace. Include text around it.",
            id="only whitespace",
        ),
        pytest.param(
            b"a\n",
            [change("a", "a")],
            "`old` and `new` are the same: nothing to change.",
            id="no change",
        ),
        pytest.param(
            b"a\nb\n",
            [change("a\nb", "a\r\nb")],
            "`old` and `new` are the same except for line endings, which are kept: nothing to change.",
            id="line endings cannot be changed",
        ),
        pytest.param(b"a\n", [], "Nothing to replace: give at least one replacement.", id="none"),
        pytest.param(
            b"x x\nx\n" + b"y\n" * 6 + b"x\n",
            [change("x")],
            "`old` occurs 4 times in app.py, in lines 1 (2 times), 2 and 9. Include more context, or set `replace_all`.",
            id="all lines of an ambiguous text",
        ),
        pytest.param(
            b"aaa\n",
            [change("aa")],
            "`old` occurs 2 times in app.py, in lines 1 (2 times). Include more context, or set `replace_all`.",
            id="places that overlap",
        ),
        pytest.param(
            b"a\nb\n",
            [insert(3, "x")],
            "`insert_at_line` is 3, but app.py has 2 lines: use 0 (start) to 2 (end).",
            id="a line that is not there",
        ),
        pytest.param(
            b"a",
            [insert(-1, "x")],
            "`insert_at_line` is -1, but app.py has 1 line: use 0 (start) to 1 (end).",
            id="a line before the first",
        ),
        pytest.param(
            b"a\n", [insert(1, "")], "`new` is empty: nothing to insert.", id="nothing to insert"
        ),
        pytest.param(
            b"a\n",
            [Replacement(old="a", new="b", insert_at_line=1)],
            "`insert_at_line` takes `new` alone: omit `old` and `replace_all`.",
            id="replacement and insertion",
        ),
        pytest.param(
            b"caf\xe9\n",
            [change("caf", "€")],
            "app.py is Latin-1, which has no “€” (U+20AC EURO SIGN). Write it differently, or convert the file to UTF-8 with a command"
            " first.",
            id="a character that the encoding has not",
        ),
        pytest.param(
            b"a\n",
            [change("a", "\udc80")],
            "`new` contains half of a character, U+DC80. Write it whole.",
            id="half a character",
        ),
        pytest.param(
            "éé".encode() + b"\xff\n",
            [change("�", "��")],
            "“�” marks a byte of the file that is not UTF-8. `new` must keep all of them in order, or none, but `old` has 1 and `new` has 2.",
            id="a broken byte that would be doubled",
        ),
        pytest.param(
            "éé".encode() + b"\xff\nx\n",
            [change("x", "�")],
            "“�” marks a byte of the file that is not UTF-8. `new` must keep all of them in order, or none, but `old` has 0 and `new` has 1.",
            id="a broken byte from elsewhere",
        ),
        pytest.param(
            b"\x7fELF\0\0a",
            [change("a")],
            "app.py is a binary file (it contains control characters). Change it with a command.",
            id="a binary file",
        ),
        pytest.param(
            b"a\nb\n",
            [change("a", "A"), change("a", "B")],
            "Replacement 2 of 2: `old` was in app.py, line 1, but replacement 1 changed that text. Each applies to the result of the previous ones: combine the two. No replacement was made.",
            id="text that one before took away",
        ),
        pytest.param(
            b"a\nb\n",
            [change("a", "b"), change("b", "c")],
            "Replacement 2 of 2: `old` occurs 2 times in app.py, in lines 1 and 2. An earlier replacement added one. Include more context, or set `replace_all`. No replacement was made.",
            id="text that one before doubled",
        ),
        pytest.param(
            b"a\nb\n",
            [change("a", "A"), change("zzzz"), change("b", "B")],
            "Replacement 2 of 3: `old` is not in app.py. Nothing in it is similar: read the file again. No replacement was made.",
            id="one of several that is not there",
        ),
        pytest.param(
            b"a\n\n",
            [insert(0, "x"), change("a\n", ""), change("y")],
            "Replacement 3 of 3: `old` is not in app.py. Nothing in it is similar: read the file again. No replacement was made.",
            id="the last of several",
        ),
    ],
)
def test_it_is_refused_in_words(data, replacements, words):
    assert refusal(data, *replacements) == words


def test_of_very_many_places_the_first_are_listed():
    words = refusal(b"x\n" * 5000, change("x"))
    assert words.startswith("`old` occurs 5,000 times in app.py, in lines 1, 2, 3, ")
    assert "99 and 100 and 4,900 more." in words


@pytest.mark.parametrize(
    "data, old, words",
    [
        pytest.param(
            b"def f():\n\treturn  1\n",
            "def f():\n    return 1",
            "`old` is not in app.py. The closest text (→ is a tab, · a space):\n"
            "     1 def f():\n"
            "     2 →return  1\n"
            "It differs in whitespace: the file has tabs where `old` has spaces. Copy the file's text exactly.",
            id="tabs in the file",
        ),
        pytest.param(
            b"if  x:\n    y\n",
            "if x:\n\ty",
            "`old` is not in app.py. The closest text (→ is a tab, · a space):\n"
            "     1 if  x:\n"
            "     2 ····y\n"
            "It differs in whitespace: the file has spaces where `old` has tabs. Copy the file's text exactly.",
            id="tabs in `old`",
        ),
        pytest.param(
            b"One two  \nthree\n",
            "e two\nth",
            "`old` is not in app.py. The closest text (→ is a tab, · a space):\n"
            "     1 One two··\n"
            "     2 three\n"
            "It differs in whitespace at the end of lines. Copy the file's text exactly.",
            id="trailing whitespace",
        ),
        pytest.param(
            b"a =  1\n",
            "a = 1",
            "`old` is not in app.py. The closest text:\n"
            "     1 a =  1\n"
            "It differs in whitespace. Line 1 of `old` has `a = 1`, the file `a =  1`. Copy the file's text exactly.",
            id="whitespace within a line",
        ),
        pytest.param(
            b"Hello World\n",
            "hello world",
            "`old` is not in app.py. The closest text:\n"
            "     1 Hello World\n"
            "It differs in upper and lower case. Copy the file's text exactly.",
            id="case",
        ),
        pytest.param(
            "it\u2019s “so”\n".encode(),
            'it\'s "so"',
            "`old` is not in app.py. The closest text:\n"
            "     1 it\u2019s “so”\n"
            "It differs in typography: the file has “\u2019” (U+2019). Copy the file's text exactly.",
            id="typographic quotes in the file",
        ),
        pytest.param(
            b"it's\n",
            "it\u2019s",
            "`old` is not in app.py. The closest text:\n"
            "     1 it's\n"
            "It differs in typography: `old` has “\u2019” (U+2019). Copy the file's text exactly.",
            id="typographic quotes in `old`",
        ),
        pytest.param(
            "cafe\u0301\n".encode(),
            "caf\xe9",
            "`old` is not in app.py. The closest text:\n"
            "     1 cafe\u0301\n"
            "It differs in accented letters: one character in one text, two in the other. Copy the file's text exactly.",
            id="accents composed differently",
        ),
        pytest.param(
            b"x = 1\ndef power(base, exponent, modulus, precision):\n    return base**exp\n",
            "precision):\n    return base ** exp",
            "`old` is not in app.py. The closest text:\n"
            "     2 def power(base, exponent, modulus, precision):\n"
            "     3     return base**exp\n"
            "It differs in whitespace. Line 2 of `old` has `return base ** exp`, the file `return base**exp`."
            " Copy the file's text exactly.",
            id="whitespace within a later line",
        ),
        pytest.param(
            "a\u00a0b \x1b\u202e\n".encode(),
            "a b \x1b",
            "`old` is not in app.py. The closest text:\n"
            "     1 a<U+00A0>b <U+001B><U+202E>\n"
            "It differs in whitespace. Line 1 of `old` has `a b <U+001B>`, the file `a<U+00A0>b <U+001B>`. Copy the file's text exactly.",
            id="what cannot be seen",
        ),
        pytest.param(
            b"def one():\n    pass\n",
            "     1\tdef one():\n     2\t    pass\n",
            "`old` is not in app.py. It includes line numbers, which are not in the file: remove them.",
            id="line numbers of the read tool",
        ),
        pytest.param(
            b"\xff\xfe" + "alpha beta\n".encode("utf-16-le"),
            "alpha gamma",
            "`old` is not in app.py. (The file: UTF-16 LE with BOM.) The closest text:\n"
            "     1 alpha beta\n"
            "Line 1 of `old` has no match: alpha gamma",
            id="an unusual file is told",
        ),
        pytest.param(
            b"x = 1\n" * 50 + b"value = compute(first, second)\n" + b"y = 2\n" * 50,
            "value = compute(first, third)\n",
            "`old` is not in app.py. The closest text:\n"
            "    51 value = compute(first, second)\n"
            "Line 1 of `old` has no match: value = compute(first, third)",
            id="a line that differs in a word",
        ),
    ],
)
def test_the_closest_text_is_shown_and_in_what_it_differs(data, old, words):
    assert refusal(data, change(old, "x")) == words


@pytest.mark.parametrize(
    "data, old, new, words",
    [
        pytest.param(
            b"def f():\n    if x:\n        a()\n    if x:\n      a()\n",
            "if x:\na()\n",
            "if x:\nb()\n",
            "`old` is not in app.py exactly. Apart from whitespace, it matches lines 2 and 4, so it is ambiguous. The closest text (→ is a tab, · a space):\n"
            "     2 ····if x:\n"
            "     3 ········a()\n"
            "It differs in whitespace. Copy the file's text exactly.",
            id="lines that are there twice but for whitespace",
        ),
        pytest.param(
            b"def f():\n\tif x:\n\t\ta()\n",
            "    if x:\n        a()\n",
            "    if x:\n    b()\n",
            "`old` is not in app.py exactly. Apart from whitespace it matches, but `new`, indented to fit, would break the"
            " file (line 3: expected an indented block after 'if' statement on line 2). The closest text (→ is a tab, · a"
            " space):\n"
            "     2 →if x:\n"
            "     3 →→a()\n"
            "It differs in whitespace: the file has tabs where `old` has spaces. Copy the file's text exactly.",
            id="Python that would not be Python any more",
        ),
    ],
)
def test_why_lines_that_are_alike_are_not_replaced_is_told(data, old, new, words):
    assert refusal(data, change(old, new)) == words


def test_the_lines_of_the_file_are_told_also_after_other_replacements():
    data = b"a\nb\nvalue = compute(first)\n"
    words = refusal(data, insert(0, "x\ny\nz"), change("value = compute(second)"))
    assert "\n     3 value = compute(first)\n" in words


@pytest.mark.parametrize(
    "line", prove_rest(["x" * 100_000, "é\t" * 50_000, "\x1b" * 50_000, "word " * 20_000])
)
@pytest.mark.parametrize("count", [1, 40])
def test_a_refusal_is_short_whatever_the_file_is(line, count):
    words = refusal(
        "\n".join([line] * count).encode(), change("\n".join([f" {line[:-9]}?"] * count))
    )
    assert len(words.split("\n")) <= MAX_SHOWN_LINES + 2
    assert len(words) < 20_000


def test_a_long_line_is_shown_where_it_is_alike():
    data = b"{" + b'"some": 1,' * 50_000 + b'"needle":  [1, 2]' + b"}" * 50_000
    words = refusal(data, change('"needle": [1, 2]'), path="a.js")
    assert '"needle":  [1, 2]' in words
    assert len(words) < 500


def test_the_first_difference_is_among_the_shown_lines():
    lines = [f"line number {n} of the file" for n in range(60)]
    old = "\n".join([*lines[:40], "something else", *lines[41:]])
    words = refusal("\n".join(lines).encode(), change(old))
    assert "    41 line number 40 of the file\n" in words
    assert "Line 41 of `old` has no match: something else" in words


# --- lines that differ in whitespace -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, data, old, new, expected",
    [
        pytest.param(
            "a.py",
            b"if x:\n    if y:\n        a()\n",
            "if y:\n    a()\n",
            "if y:\n    b()\n    c()\n",
            b"if x:\n    if y:\n        b()\n        c()\n",
            id="not indented enough",
        ),
        pytest.param(
            "a.py",
            b"if y:\n    a()\n",
            "    if y:\n        a()",
            "    if y:\n        while z:\n            a()",
            b"if y:\n    while z:\n        a()\n",
            id="indented too much",
        ),
        pytest.param(
            "a.py",
            b"def f():\n  if y:\n    a()\n",
            "    if y:\n        a()\n",
            "    if y:\n        a()\n        if z:\n            b()\n",
            b"def f():\n  if y:\n    a()\n    if z:\n      b()\n",
            id="four spaces given, two there",
        ),
        pytest.param(
            "a.go",
            b"func f() {\n\tif y {\n\t\ta()\n\t}\n}\n",
            "  if y {\n    a()\n  }\n",
            "  if y {\n    if z {\n      a()\n    }\n  }\n",
            b"func f() {\n\tif y {\n\t\tif z {\n\t\t\ta()\n\t\t}\n\t}\n}\n",
            id="two spaces given, tabs there",
        ),
        pytest.param(
            "a.c",
            b"f() {\n    if (y)\n        a();\n}\n",
            "\tif (y)\n\t\ta();\n",
            "\tif (y)\n\t\tb(1,\n\t\t  2);\n",
            b"f() {\n    if (y)\n        b(1,\n          2);\n}\n",
            id="tabs given, spaces there, with aligned arguments",
        ),
        pytest.param(
            "a.txt", b"a  \nb\t\nc\n", "a\nb\n", "a\nB\n", b"a  \nB\nc\n", id="trailing whitespace"
        ),
        pytest.param("a.txt", b"a\nb\n", "a \nb ", "A\nB", b"A\nB\n", id="trailing in `old`"),
        pytest.param("a.txt", b"a\nb", "a\nb\n", "a\nc\n", b"a\nc", id="no final newline there"),
        pytest.param(
            "a.txt", b"a\n  \nb\n", "a\n\nb\n", "a\n\nc\n", b"a\n  \nc\n", id="a blank line's own"
        ),
        pytest.param("a.txt", b"a\n\tb\nc\n", "  b\n", "", b"a\nc\n", id="a line taken out"),
        pytest.param(
            "a.py",
            b"if x:\r\n\ta()\r\n\tb()\nc()\r\n",
            "    a()\n    b()\n",
            "    a()\n    x()\n    b()\n",
            b"if x:\r\n\ta()\r\n\tx()\r\n\tb()\nc()\r\n",
            id="line endings stay",
        ),
        pytest.param(
            "a.txt", b"x\n\t\xe9\n", "    é\n", "    è\n", b"x\n\t\xe8\n", id="in Latin-1"
        ),
    ],
)
def test_whole_lines_are_replaced_whatever_their_whitespace(path, data, old, new, expected):
    edited = replace(data, [change(old, new)], path=path)
    assert edited.data == expected
    assert edited.notes[0].startswith("`old` differed in whitespace")


@pytest.mark.parametrize(
    "path, data, old, new",
    [
        pytest.param("a.py", b"  a = b + 1\n", "a = b +  1", "x", id="whitespace within a line"),
        pytest.param("a.py", b"x = a\n", "  a\n", "  b\n", id="half a line"),
        pytest.param(
            "a.py", b"\ta\n\tb\n", "a\n  b", "x\n  y", id="no one indentation for another"
        ),
        pytest.param("a.py", b"\ta\n", "  a\n", "  b", id="a newline lost"),
        pytest.param("a.py", b"if a:\n\tb\n", "   b\n", "   b\n  c\n", id="less than was known"),
        pytest.param("a.json", b'{\n\t"a": 1\n}\n', '  "a": 1\n', '  "a":\n', id="JSON broken"),
        pytest.param("a.toml", b"[a]\n\tb = 1\n", "  b = 1\n", "  b =\n", id="TOML broken"),
    ],
)
def test_nothing_less_alike_is_replaced(path, data, old, new):
    assert refusal(data, change(old, new), path=path).startswith(f"`old` is not in {path}")


@pytest.mark.parametrize(
    "path, data, old, new, expected",
    [
        pytest.param(
            "Makefile",
            b"all:\n\ttools/mkrel -q\nhelp:\n\t@tools/mkrel -h\n",
            "\t tools/mkrel -q\n",
            "\ttools/make-release\n",
            b"all:\n\ttools/make-release\nhelp:\n\t@tools/mkrel -h\n",
            id="a blank too many after a tab",
        ),
        pytest.param(
            "Makefile",
            b"all:\n\tcc a.c\n",
            "    cc a.c\n",
            "\tcc b.c\n\t\tcd\n",
            b"all:\n\tcc b.c\n\t\tcd\n",
            id="spaces for a tab",
        ),
        pytest.param(
            "a.py",
            b"if x:\n    a()\n",
            "       a()\n",
            "    b()\n",
            b"if x:\n    b()\n",
            id="three spaces too many",
        ),
        pytest.param(
            "a.py",
            b"if x:\n    a()\n    b()\n",
            "    a()\n     b()\n",
            "    a()\n    if c:\n        b()\n",
            b"if x:\n    a()\n    if c:\n        b()\n",
            id="a space too many in one line of two",
        ),
        pytest.param(
            "a.c",
            b"f(a, \n  b);\n",
            "f(a,\n  b);",
            "f(a,\n     b);",
            b"f(a, \n     b);\n",
            id="trailing whitespace only",
        ),
        pytest.param("a.txt", b"a\nb\n", "   a\n", "c\n", b"c\nb\n", id="no indentation there"),
    ],
)
def test_the_file_s_own_indentation_in_new_is_kept(path, data, old, new, expected):
    assert edit(data, change(old, new), path=path) == expected


@pytest.mark.parametrize(
    "path, data, old, new",
    [
        pytest.param(
            "Makefile", b"a:\n\tb\n\tc\n", "\t\tb\n", "\td\n", id="a tab too many, or one less"
        ),
        pytest.param(
            "a.txt",
            b"a\n  b\n    c\n",
            "    b\n",
            "    d\n        e\n",
            id="four spaces for two, or two more",
        ),
        pytest.param("a.c", b"f()\n\tg();\n", "  g();\n", "  h(1,\n    \t2);\n", id="tabs behind"),
    ],
)
def test_an_indentation_with_two_meanings_is_refused(path, data, old, new):
    assert refusal(data, change(old, new), path=path).startswith(f"`old` is not in {path}")


LEVELS = st.lists(st.integers(0, 3), min_size=2, max_size=6)
PATHS = st.sampled_from(["Makefile", "a.txt", "a.c"])
STYLES = st.sampled_from(["\t", "  ", "   ", "    ", "        "])


def stepwise(levels: list[int]) -> list[int]:
    """Return the levels, none of them more than one above the last."""
    return [*accumulate(levels, lambda before, level: min(level, before + 1))]


def styled(levels: list[int], unit: str, words: str) -> str:
    return "".join(f"{unit * level}{words}{n}\n" for n, level in enumerate(levels))


@given(st.data(), LEVELS, STYLES, STYLES)
@settings(max_examples=examples(400), deadline=None)
def test_alike_lines_keep_the_levels_that_new_has_relative_to_old(data, levels, unit, given_unit):
    levels = stepwise([0, 1, *levels])
    start = data.draw(st.integers(2, len(levels) - 1))
    there = levels[start:]
    has_clear_levels = given_unit in (unit, "\t")  # other spaces can be levels or an offset
    shifts = range(-min(there), 3) if has_clear_levels else (0, -min(there))
    shift = data.draw(st.sampled_from(shifts))
    added = stepwise([there[0], *data.draw(LEVELS)])
    file = styled(levels, unit, "line").splitlines(keepends=True)
    whole = "".join(file)
    old = "".join(
        given_unit * (level + shift) + line.lstrip()
        for level, line in zip(there, file[start:], strict=True)
    )
    levels_given = [level + shift for level in added]
    if min(levels_given) < 0 or old in whole:
        return
    try:
        edited = edit(
            whole.encode(), change(old, styled(levels_given, given_unit, "new")), path="x"
        )
    except ToolError:
        return
    assert edited.decode() == "".join(file[:start]) + styled(added, unit, "new")


@given(st.data(), LEVELS, STYLES, st.sampled_from([" ", "\t "]))
@settings(max_examples=examples(400), deadline=None)
def test_a_blank_too_many_in_old_changes_no_indentation_of_new(data, levels, unit, blank):
    file = styled(levels, unit, "line")
    spoiled = data.draw(st.lists(st.booleans(), min_size=len(levels), max_size=len(levels)))
    old = "".join(
        line.replace("line", f"{blank}line") if is_spoiled else line
        for line, is_spoiled in zip(file.splitlines(keepends=True), spoiled, strict=True)
    )
    new = styled(data.draw(LEVELS), unit, "new")
    if not any(spoiled):
        return
    try:
        edited = edit(file.encode(), change(old, new), path=data.draw(PATHS))
    except ToolError:
        return
    assert edited.decode() == new


@pytest.mark.parametrize(
    "path, data, verdict",
    [
        ("a.py", b"if x:\n\ta\n", "It is still valid Python."),
        ("a.pyi", b"if x:\n\ta\n", "It is still valid Python."),
        (
            "a.py",
            b"if x:\n\ta\n)\n",
            "It was not valid Python before, so its syntax was not checked.",
        ),
        ("a.py", b"if x:\n\ta\n" + b"#" * 300_000, "Its syntax was not checked."),
        ("a.py", b"if x:\n\ta\n" + b"-" * 9000 + b"1", "Its syntax was not checked."),
        ("a.py", b"if x:\n\ta\n'\\d'\n", "It is still valid Python."),  # which warns of \d
        ("a.json", b"[\n\ta\n]", "It was not valid JSON before, so its syntax was not checked."),
        ("a.toml", b"b = '''\n\ta\n'''", "It is still valid TOML."),
        ("a.toml", b"b = '''\n\ta\n'''\n" + b"a." * 200 + b"b=1", "Its syntax was not checked."),
        ("a.js", b"{\n\ta\n}\n", "Its syntax was not checked."),
        ("Makefile", b"x:\n\ta\n", "Its syntax was not checked."),
    ],
)
def test_what_became_of_the_syntax_is_told(path, data, verdict):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edited = replace(data, [change("  a\n", "  b\n")], path=path)
    assert edited.data == data.replace(b"\ta\n", b"\tb\n")
    (note,) = edited.notes
    assert note == (
        "`old` differed in whitespace, but matched from line 2 on: `new` was indented to fit."
        f" {verdict}"
    )


def test_lines_that_are_to_differ_in_whitespace_only_are_refused():
    words = refusal(b"if x:\n\ta()\n", change("  a() \n", "  a()\n"), path="a.py")
    assert "Apart from whitespace it matches, but `new`, indented to fit, changes nothing." in words


def test_python_that_only_a_compiler_would_choke_on_is_checked_soon():
    nested = "".join(f"{' ' * n}try:\n{' ' * n} x\n{' ' * n}finally:\n" for n in range(40))
    data = f"if x:\n\ta\n{nested}{' ' * 40}x\n".encode()
    with little_work():
        edited = replace(data, [change("  a\n", "  b\n")], path="a.py")
        assert edited.notes[0].endswith("It is still valid Python.")


# --- declared encodings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, new",
    [
        (b"# -*- coding: latin-1 -*-\nx = 1\n", "'ü'"),
        (b"#!/usr/bin/python\n# vim: set fileencoding=iso-8859-15 :\nx = 1\n", "'ü'"),
        (b"# coding: iso-8859-15\n# \xfc\nx = 1\n", "'¤'"),
        ("# coding: koi8-r\n# Привет, мир\nx = 1\n".encode("koi8-r"), "'é'"),
        ("<?xml version='1.0' encoding='iso-8859-2'?>\n<x>č</x>x = 1\n".encode("latin2"), "è"),
    ],
)
def test_characters_with_other_bytes_in_the_declared_encoding_are_refused(data, new):
    words = refusal(data, change("1\n", new + "\n"))
    assert words.startswith("app.py declares the encoding ")
    assert "Write the character as an escape" in words


@pytest.mark.parametrize(
    "data, old, new, expected",
    [
        (
            b"# coding: latin-1\n# \xe4\nx = v\n",
            "v\n",
            "'ü'\n",
            b"# coding: latin-1\n# \xe4\nx = '\xfc'\n",
        ),
        (b"# coding: cp1252\n# \x80\nv\n", "v\n", "é\n", b"# coding: cp1252\n# \x80\n\xe9\n"),
        (b"# coding: koi8-r\n# \xc6\nv\n", "Æ\nv", "Æ\n2", b"# coding: koi8-r\n# \xc6\n2\n"),
        (
            "# coding: latin-1\n# ä\nv\n".encode(),
            "v\n",
            "é\n",
            "# coding: latin-1\n# ä\né\n".encode(),
        ),
        (b"# coding: utf-8\nv\n", "v\n", "é\n", "# coding: utf-8\né\n".encode()),
        (b"# coding: hex\nv\n", "v\n", "é\n", "# coding: hex\né\n".encode()),
        (b"# coding: no-such\nv\n", "v\n", "é\n", "# coding: no-such\né\n".encode()),
        (b"\n\n# coding: latin-1\nv\n", "v\n", "é\n", "\n\n# coding: latin-1\né\n".encode()),
    ],
)
def test_other_characters_are_written_as_the_file_is_read(data, old, new, expected):
    assert edit(data, change(old, new)) == expected


# --- hunks for a buffer ------------------------------------------------------------------------------------------------


def change_in_buffer(old: bytes, new: bytes, line_ending: str) -> bytes:
    """What the editor writes after `old` has become `new` by hunks in its buffer."""
    has_bom = old.startswith(b"\xef\xbb\xbf")
    empty = Buffer(1, "a", 1, "", is_modified=False, line_ending=line_ending, has_bom=has_bom)
    buffer = msgspec.structs.replace(empty, text=text_in(empty, old))
    hunks = buffer_hunks(buffer.text, text_in(buffer, new))
    return bytes_of(msgspec.structs.replace(buffer, text=applied(buffer.text, hunks)))


@pytest.mark.parametrize(
    "data, line_ending",
    [
        (b"a\nb\nc\n", "unix"),
        (b"a\r\nb\r\nc\r\n", "dos"),
        (b"a\r\nb\r\nc\r\n", "unix"),  # opened with ++ff=unix: the lines end in CR
        (b"a\r\nb\nc\r\n", "unix"),
        (b"a\rb\rc\r", "unix"),  # one line, for Neovim
        (b"a\rb\rc\r", "mac"),
        (b"a\nb\nc", "unix"),
        (b"\xef\xbb\xbfa\r\nb\r\nc", "dos"),
    ],
)
@pytest.mark.parametrize(
    "replacements",
    [
        [change("b", "B")],
        [change("b", "B\nBB")],
        [change("a\nb\n", "")],
        [change("a", "A"), change("c", "C")],
        [change("a", "A"), change("b", "B"), change("c", "C\nD")],
        [insert(0, "x"), insert(2, "y"), insert(3, "z")],
        [insert(3, "x\ny")],
    ],
)
def test_the_editor_writes_the_same_bytes_after_the_change_in_its_buffer(
    data, line_ending, replacements
):
    edited = edit(data, *replacements)
    assert change_in_buffer(data, edited, line_ending) == edited


@pytest.mark.parametrize(
    "data, replacement",
    [
        (b"", insert(0, "x\ny")),
        (b"a\n", change("a\n", "")),
        (b"a", change("a", "")),
        (b"\n", insert(0, "x")),
        (b"\n", insert(1, "x")),
        (b"a", change("a", "a\n")),
    ],
)
def test_the_editor_writes_the_same_bytes_of_next_to_nothing(data, replacement):
    edited = edit(data, replacement)
    assert change_in_buffer(data, edited, "unix") == edited


# --- any edit of any file ----------------------------------------------------------------------------------------------

ALPHABETS = {
    "utf-8": "ab \té€𝄞",
    "utf-16-le": "ab \té€𝄞",
    "utf-16-be": "ab \té€𝄞",
    "utf-32-le": "ab \té€𝄞",
    "utf-32-be": "ab \té€𝄞",
    "cp1252": "ab \té€",
    "latin-1": "ab \té",
}
BOMS = {
    "utf-8": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\0\0",
    "utf-32-be": b"\0\0\xfe\xff",
}


class AnyFile:
    """A file as a list of characters, each with the bytes that it has there: the truth to hold the result against."""

    def __init__(self, chance: random.Random) -> None:
        self.encoding = chance.choice(list(ALPHABETS))
        must_have_bom = self.encoding.startswith(("utf-16", "utf-32"))
        has_bom = must_have_bom or (self.encoding == "utf-8" and chance.random() < 0.3)
        self.bom = BOMS[self.encoding] if has_bom else b""
        endings = chance.choice([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n"]])
        self.characters: list[tuple[str, bytes]] = []
        for _ in range(chance.randrange(1, 9)):
            self.characters += [
                (character, character.encode(self.encoding))
                for character in chance.choices(ALPHABETS[self.encoding], k=chance.randrange(7))
            ]
            if self.encoding == "utf-8" and chance.random() < 0.1:
                self.characters += [("é", "é".encode()), ("�", b"\xff")]
            self.characters.append(("\n", chance.choice(endings).encode(self.encoding)))
        if chance.random() < 0.4:
            self.characters.pop()

    @property
    def data(self) -> bytes:
        return self.bom + b"".join(data for _, data in self.characters)

    @property
    def text(self) -> str:
        return "".join(character for character, _ in self.characters)

    def bytes_of(self, start: int, end: int) -> bytes:
        return b"".join(data for _, data in self.characters[start:end])


class AnyEdit(NamedTuple):
    """An edit, and what it makes of the file: a pattern of its bytes, in Latin-1, or a part of the words that refuse it."""

    replacement: Replacement
    pattern: str = ""
    refusal: str = ""

    def is_made_of(self, data: bytes) -> bool:
        return bool(re.fullmatch(self.pattern, data.decode("latin-1"), re.DOTALL))


def any_edit(file: AnyFile, chance: random.Random) -> AnyEdit | None:
    """A random edit of the file; None if the file is read otherwise than it was meant: Latin-1 that is right in UTF-8, say."""
    text, read = file.text, decode(file.data)
    start, end = sorted(chance.choices(range(len(text) + 1), k=2))
    old = text[start:end]
    new = "".join(chance.choices(ALPHABETS[file.encoding] + "\n\n", k=chance.randrange(6)))
    if read.text != text or new.encode(read.encoding, "replace").decode(read.encoding) != new:
        return None
    if chance.random() < 0.3:  # most of `old` stays
        cut = chance.randrange(len(old) + 1)
        new = old[:cut].replace("�", "") + new + old[cut:].replace("�", "")
    asked = change(old, new, everywhere=chance.random() < 0.3)
    if not old.strip() or old == new:
        return AnyEdit(asked, refusal="`old`")
    if not asked.replace_all and text.find(old, text.find(old) + 1) >= 0:
        return AnyEdit(asked, refusal=f"{max(text.count(old), 2)} times")
    return AnyEdit(asked, pattern=expected_bytes(file, old, new))


def expected_bytes(file: AnyFile, old: str, new: str) -> str:
    """A pattern: the very bytes of the file outside of every `old`, and `new` with whatever line endings in the place of each."""
    encoding = decode(file.data).encoding
    endings = "|".join(
        re.escape(ending.encode(encoding).decode("latin-1")) for ending in ("\r\n", "\n", "\r")
    )
    written = f"(?:{endings})".join(
        re.escape(line.encode(encoding).decode("latin-1")) for line in new.split("\n")
    )
    places = [match.start() for match in re.finditer(re.escape(old), file.text)]
    begins, ends = [0, *(place + len(old) for place in places)], [*places, len(file.text)]
    outside = (file.bytes_of(begin, end) for begin, end in zip(begins, ends, strict=True))
    return re.escape(file.bom.decode("latin-1")) + written.join(
        re.escape(data.decode("latin-1")) for data in outside
    )


def check_edit(file: AnyFile, chance: random.Random) -> bool:
    """Make one random edit of the file and look at every byte of the result; False if there is none."""
    if (asked := any_edit(file, chance)) is None:
        return False
    if asked.refusal:
        assert asked.refusal in refusal(file.data, asked.replacement)
        return True
    edited, read = edit(file.data, asked.replacement), decode(file.data)
    assert asked.is_made_of(edited), (file.data, asked, edited)
    kinds = set(read.endings)
    if len(kinds) == 1:
        assert set(decode(edited).endings) <= kinds, (file.data, asked, edited)
    if read.encoding == "utf-8" and not read.is_damaged:
        line_ending = "dos" if b"\n" in file.data and kinds == {1} else "unix"
        assert change_in_buffer(file.data, edited, line_ending) == edited
    return True


EDITS_PER_FILE = 20
FILES = 100


@pytest.mark.parametrize("part", prove_rest(range(6), keep=(0,)))
def test_no_edit_changes_a_byte_outside_of_what_it_replaces(part):
    checked = 0

    @given(st.integers(0, 2**32))
    @settings(max_examples=examples(FILES), deadline=None, derandomize=True, database=None)
    def check(seed: int) -> None:
        nonlocal checked
        chance = random.Random(f"{part} {seed}")
        for _ in range(EDITS_PER_FILE):
            checked += check_edit(AnyFile(chance), chance)

    check()
    assert checked >= examples(1_667)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_several_edits_are_what_they_are_one_after_the_other(seed):
    chance = random.Random(seed)
    data = "".join(f"{n} {chance.choice('abc')}\r\n" for n in range(8)).encode()
    replacements, one_by_one = [], data
    for number in range(chance.randrange(2, 6)):
        text = decode(one_by_one).text
        start, end = sorted(chance.choices(range(len(text) + 1), k=2))
        made = change(text[start:end], f"<{number}\n>")
        try:
            one_by_one = edit(one_by_one, made)
        except ToolError:
            continue
        replacements.append(made)
    if not replacements:
        return
    assert edit(data, *replacements) == one_by_one


@given(st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_lines_are_inserted_by_the_numbers_of_the_file_before_all_edits(seed):
    chance = random.Random(seed)
    lines = [f"line {n}" for n in range(chance.randrange(1, 9))]
    end = chance.choice(["\n", ""])
    made, after = list[Replacement](), [list[str]() for _ in range(len(lines) + 1)]
    new = lines.copy()
    for number in range(chance.randrange(2, 7)):
        line = chance.randrange(len(lines) + 1)
        if chance.random() < 0.5 and line and new[line - 1] == lines[line - 1]:
            new[line - 1] = "\n".join(
                f"changed {number}.{n}" for n in range(chance.randrange(1, 4))
            )
            made.append(change(lines[line - 1], new[line - 1]))
        else:
            after[line].append(f"inserted {number}")
            made.append(insert(line, f"inserted {number}"))
    expected = [*after[0]]
    for line, inserted in zip(new, after[1:], strict=True):
        expected += (line, *inserted)
    text = "\n".join(lines) + end

    assert edit(text.encode(), *made).decode().removesuffix("\n") == "\n".join(expected)


@pytest.mark.parametrize(
    "edits, new",
    [
        ([change("b\nc\n", "x\ny\nz\n"), insert(2, "new")], "a\nx\ny\nz\nnew\nd\n"),
        ([change("b\nc\n", ""), insert(2, "new")], "a\nnew\nd\n"),
        ([insert(2, "one"), insert(2, "two")], "a\nb\none\ntwo\nc\nd\n"),
        ([change("c", "C\nC"), insert(2, "new")], "a\nb\nnew\nC\nC\nd\n"),
        ([change("a", "a\na\na"), insert(4, "new")], "a\na\na\nb\nc\nd\nnew\n"),
    ],
)
def test_a_line_number_means_the_line_as_it_was_read_wherever_that_is_now(edits, new):
    assert edit(b"a\nb\nc\nd\n", *edits).decode() == new


# --- large and hostile files -------------------------------------------------------------------------------------------


@functools.cache
def large() -> str:
    return "".join(
        f"{'    ' * (n % 4)}value_{n} = compute(first_{n % 97}, {n})\n" for n in range(240_000)
    )


@prove
@pytest.mark.parametrize(
    "make, replacements",
    [
        pytest.param(lambda: large().encode(), [change("value_120000 =", "x =")], id="LF"),
        pytest.param(
            lambda: large().replace("\n", "\r\n").encode(),
            [change("value_120000 =", "x\n=")],
            id="CRLF",
        ),
        pytest.param(
            lambda: large().encode("utf-16"), [change("value_120000 =", "é")], id="UTF-16"
        ),
        pytest.param(
            lambda: large().encode(),
            [change(f"value_{n} =", f"x_{n} =") for n in range(0, 240_000, 12_000)],
            id="twenty at once",
        ),
        pytest.param(
            lambda: large().encode(),
            [change("first_50,", "second,", everywhere=True)],
            id="everywhere",
        ),
    ],
)
def test_a_file_of_ten_megabytes_is_edited_soon(make, replacements):
    data = make()
    with little_work():
        assert edit(data, *replacements, path="app.py") != data


@pytest.mark.parametrize(
    "make, old",
    prove_rest(
        [
            pytest.param(lambda: large().encode(), "nothing like it\nis there", id="nothing alike"),
            pytest.param(
                lambda: large().encode(),
                "value_120000 = compute(first_11, x)",
                id="something alike",
            ),
            pytest.param(
                lambda: large().encode(), "value_120000 =  compute(first_11,", id="whitespace"
            ),
            pytest.param(lambda: b"a" * 10_000_000, "a" * 5000 + "b", id="one letter"),
            pytest.param(lambda: b"a" * 10_000_000, "A" * 5000, id="one letter, otherwise written"),
            pytest.param(lambda: b"aaaa\n" * 2_000_000, "aaaa\n" * 1000 + "b", id="one line"),
            pytest.param(
                lambda: b"aaaa\n" * 900_000, " aaaa\n" * 1000, id="one line, otherwise indented"
            ),
            pytest.param(lambda: b"\n" * 10_000_000 + b"b", "\n\n c\n", id="no lines"),
            pytest.param(lambda: (b" " * 99 + b"\n") * 100_000, "b \n  b  ", id="blanks"),
            pytest.param(
                lambda: b"word word word\n" * 700_000, "word wordx word\n" * 300, id="words"
            ),
            pytest.param(lambda: b"x=1;" * 2_500_000, "y=2; x=1;", id="one long line"),
            pytest.param(
                lambda: b"x\n" + b" " * 5_000_000 + b"y", "x\n" + "\t" * 500_000 + "y", id="deep"
            ),
            pytest.param(
                lambda: "é\u2019".encode() * 2_000_000, "é'" * 1000 + "x", id="typography"
            ),
        ]
    ),
)
def test_a_refusal_comes_soon_whatever_the_file_is(make, old):
    data = make()
    with little_work():
        assert len(refusal(data, change(old, old.upper() + "\n"))) < 20_000


def test_a_file_cannot_be_blown_up():
    words = refusal(b"a" * 50_000, change("a", "b" * 5000, everywhere=True))
    assert words == (
        "`old` occurs 50,000 times, and the file would have 250,000,000 characters: too much to replace here. Use a command."
    )
    assert "too much" in refusal(b"a" * 200_000, change("a", "b", everywhere=True))


# --- what the model is told of the input -------------------------------------------------------------------------------


def test_the_input_is_described_in_few_words():
    schema = msgspec.json.encode(msgspec.json.schema(Replacement))
    assert schema.count(b'"description"') == 7  # its own and one for each field
    assert len(schema) < 800


@pytest.mark.parametrize(
    "wrong", [{"old": "a"}, {"new": "a", "line": 1}, {"new": "a", "insert_at_line": "1"}]
)
def test_an_input_that_says_something_else_is_refused(wrong):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Replacement)


HALF = b"// \x83\x7c\n"  # one character of Shift-JIS, whose second byte is a `|`


def test_half_of_a_character_is_not_replaced():
    with pytest.raises(ToolError, match=r"half of a possible character .* perhaps Shift-JIS"):
        replace(HALF, [Replacement(old="|", new="or")], path="a.txt")
    with pytest.raises(ToolError, match="half of a possible character"):
        replace(HALF, [Replacement(old="|", new="or", replace_all=True)], path="a.txt")


def test_of_all_places_those_in_a_character_are_left_and_that_is_told():
    edited = replace(
        HALF + b"a|b\n", [Replacement(old="|", new=" or ", replace_all=True)], path="a.txt"
    )
    assert edited.data == HALF + b"a or b\n"
    assert (
        "1 of 2 occurrences were not replaced: each may be half of a character" in edited.notes[0]
    )
    edited = replace(HALF + b"a|b\n", [Replacement(old="|", new=" or ")], path="a.txt")
    assert edited.data == HALF + b"a or b\n"


@pytest.mark.parametrize(
    "encoding, text", [("cp932", "// ポート 表示 | ソ\n"), ("big5", "許功蓋是問題字元 | a\n")]
)
def test_text_of_east_asia_is_edited_to_the_byte(encoding, text):
    edited = replace(
        text.encode(encoding), [Replacement(old="|", new="or", replace_all=True)], path="a.txt"
    )
    assert edited.data == text.replace("|", "or").encode(encoding)
    with pytest.raises(ToolError, match="U\\+00E9 LATIN SMALL LETTER E WITH ACUTE"):
        replace(text.encode(encoding), [Replacement(old="|", new="é")], path="a.txt")
