"""Headers of skills, commands and roles, as other tools' users write them."""

import time

import pytest

from sanderling.errors import ConfigError
from sanderling.project.front_matter import MAX_HEADER_CHARS, read_document


def test_a_header_and_the_text_after_it_are_separated():
    document = read_document(
        "---\nname: pdf\ndescription: Fill forms.\n---\n\n# Forms\n\n---\nmore\n"
    )
    assert document.header == {"name": "pdf", "description": "Fill forms."}
    assert (document.body, document.problems) == ("# Forms\n\n---\nmore", ())


@pytest.mark.parametrize("text", ["Just text.", "--- not a header", "----\nname: x\n----"])
def test_a_file_without_a_header_is_all_text(text):
    assert read_document(text) == ({}, text, ())


def test_each_scalar_stays_the_text_that_was_written():
    document = read_document("---\nversion: 1.0\nname: on\ndate: 2026-01-01\nempty:\n---\nx")
    assert document.header == {"version": "1.0", "name": "on", "date": "2026-01-01", "empty": ""}


def test_lists_nested_mappings_and_block_scalars_are_read():
    text = "---\ntools: [Read, Bash]\nskills:\n  - a\n  - b\nmetadata:\n  author: x\nd: >-\n  one\n  two\n---\n"
    assert read_document(text).header == {
        "tools": ["Read", "Bash"],
        "skills": ["a", "b"],
        "metadata": {"author": "x"},
        "d": "one two",
    }


@pytest.mark.parametrize(
    "value",
    [
        "Use this when: the user asks about PDFs",
        'He said: "stop" and: \\d+',
        "@file first",
        "`code` first",
        "100 % of the time: yes",
    ],
)
def test_an_unquoted_value_that_is_no_yaml_is_read_as_text_and_reported(value):
    document = read_document(f"---\nname: pdf\ndescription: {value}\n---\nbody")
    assert document.header == {"name": "pdf", "description": value}
    assert "not valid YAML, line 3" in document.problems[0]


@pytest.mark.parametrize(
    "text, reason",
    [
        ("---\nname: x\n", "not closed"),
        ("---\n- a\n- b\n---\n", "not made of lines"),
        ("---\nname: [a\nb: }\n---\n", "not valid YAML"),
        (f"---\nname: {'x' * MAX_HEADER_CHARS}\n---\n", "more than"),
        (f"---\nname: {'[' * 9_000}{']' * 9_000}\n---\n", "not valid YAML"),
    ],
)
def test_a_header_that_cannot_be_read_says_why(text, reason):
    with pytest.raises(ConfigError, match=reason):
        read_document(text)


def test_lines_may_end_as_on_windows_and_begin_with_a_byte_order_mark():
    assert read_document("\ufeff---\r\nname: x\r\n---\r\nbody\r\n") == ({"name": "x"}, "body", ())


def test_tags_create_nothing_but_text():
    document = read_document('---\nname: !!python/object/apply:os.system ["exit 1"]\n---\n')
    assert document.header == {"name": ["exit 1"]}


def test_aliases_of_aliases_are_read_in_no_time():
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
    document = read_document("---\n" + "\n".join(lines) + "\n---\n")
    assert len(document.header) == 40


def test_a_value_that_goes_on_in_lines_of_its_own_is_read():
    text = """---
name: helper
description: Use this for "a: b". Examples:

<example>
Context: the user: asks
user: "help"
name: not this
</example>

model: sonnet
tools: ["Read", "Grep"]
---
Help."""
    document = read_document(text)
    assert document.header["name"] == "helper"
    assert document.header["model"] == "sonnet"
    assert document.header["tools"] == ["Read", "Grep"]
    assert document.header["description"].startswith('Use this for "a: b". Examples: <example>')
    assert "read as if its values went on in the next lines" in document.problems[0]


def test_lists_without_quotes_are_read_as_text():
    assert read_document("---\nhint: [a] [b]\n---\n").header == {"hint": "[a] [b]"}


def test_escapes_of_yaml_hide_nothing():
    header = read_document('---\na: "\\e[2J\\u202e"\nb: ["\\0"]\n---\n').header
    assert header == {"a": "<U+001B>[2J<U+202E>", "b": ["<U+0000>"]}


def test_aliases_do_not_grow():
    lists = [f"a{number}: &a{number} [*a{number - 1}, *a{number - 1}]" for number in range(1, 40)]
    text = "\n".join(["a0: &a0 [x, x]", *lists, "c: [*a39, {d: e, f: *a39}, g]"])
    assert read_document(f"---\n{text}\n---\n").header["c"] == ["d: e", "g"]


@pytest.mark.parametrize("blank", ["\n", " "])
def test_many_blanks_take_no_time(blank):
    began = time.process_time()
    read_document(f"---\na: b: c{blank * 30_000}d\n---\n")
    assert time.process_time() - began < 1
