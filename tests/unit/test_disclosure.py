"""What is shown of a language server's words, compared to the text of a file."""

import pytest

from sanderling.tools.disclosure import WITHHELD, Disclosure, _words

KNOWN = 'a = "known text"\nb = 4711\n# said of it: the `answer`\n"""Say the *words*, twice."""\n'


@pytest.fixture
def disclosure():
    disclosure = Disclosure(None, None)  # pyright: ignore[reportArgumentType]
    disclosure._texts["a"], disclosure._plain["a"] = KNOWN, _words(KNOWN)
    return disclosure


@pytest.mark.parametrize(
    "code, shown",
    [
        ('def f(a: str = "known text") -> int', 'def f(a: str = "known text") -> int'),
        ('def f(a: str = "hush") -> int', 'def f(a: str = "…") -> int'),
        ("x: Literal['hush', 'known text']", "x: Literal['…', 'known text']"),
        ("x: Literal[b'hush']", "x: Literal[…]"),
        ("x: Literal[4711, 4712, 47]", "x: Literal[4711, …, …]"),
        ("const x: `a${hush}`", "const x: `…`"),
        ("const N: i64 = 0xDEAD", "const N: i64 = …"),
        ("#define KEY 0xDEAD // hush", "#define KEY … "),
        ('x = "it\\\'s // hush"', 'x = "…"'),
        ('x = "hush', 'x = "…"'),
        ('x: """hush\n hush"""', 'x: "…"'),
        ("fn f<'a>(x: &'a str, y: &'b str)", "fn f<'a>(x: &'a str, y: &'b str)"),
        ("x: int64 = f(y2)", "x: int64 = f(y2)"),
        ('x = "known te…"', 'x = "known te…"'),
    ],
)
def test_code_of_a_hover_keeps_names_and_types_and_known_values(disclosure, code, shown):
    note = "" if code == shown else f"\n{WITHHELD}"
    assert disclosure.hover(f"```x\n{code}\n```") == f"```x\n{shown}\n```{note}"


def test_documentation_is_shown_line_by_line_if_it_is_known(disclosure):
    text = "```x\nf\n```\n---\nSay the \\*words\\*, twice.\nHush about `answer`.\nsaid of it&nbsp;: the **answer**"
    shown = "```x\nf\n```\n---\nSay the \\*words\\*, twice.\nsaid of it&nbsp;: the **answer**"
    assert disclosure.hover(text) == f"{shown}\n{WITHHELD}"
    assert disclosure.hover("Hush.") == f"\n{WITHHELD}"


@pytest.mark.parametrize(
    "message, shown",
    [
        ('"f" is not accessed', '"f" is not accessed'),
        ('Type "list[Hush] | None" is not "(a: str) -> int"', 'Type "list[Hush] | None" is not "(a: str) -> int"'),
        ("Type \"Literal['hush']\" is not \"int\"", "Type \"Literal['…']\" is not \"int\""),
        ("Type \"Literal['a\"hush']\" is not \"int\"", "Type \"Literal['…']\" is not \"int\""),
        ("Type \"Literal['known text', 12]\" is", "Type \"Literal['known text', …]\" is"),
        ("Type '\"hush\"' is not assignable to type '4712'.", "Type '\"…\"' is not assignable to type '…'."),
        ("Type '4711' is not assignable to type 'number'.", "Type '4711' is not assignable to type 'number'."),
        ('cannot use x (untyped string constant "hush") as int', 'cannot use x (untyped string constant "…") as int'),
        ("cannot use x (constant 4712 of type int)", "cannot use x (constant … of type int)"),
        ("Expected 2 arguments, got 3", "Expected 2 arguments, got 3"),
        ('The function "f" is deprecated\n  use hush', 'The function "f" is deprecated …'),
        ('The function "f" is deprecated\n  said of it', 'The function "f" is deprecated\n  said of it'),
        ("x.Old is deprecated: hush hush. (SA1019)", "x.Old is deprecated: …"),
        ("In included file: hush", "In included file: …"),
        ("It's 5 o'clock", "It's 5 o'clock"),
        ("Type \"Literal['hush", "Type \"Literal['…'"),
        ('Type "a', 'Type "a'),
        ('a "', 'a "'),
        ("mismatched types: expected `&'static str`, found `i32`", "mismatched types: expected `&'static str`, found `i32`"),
    ],
)  # fmt: skip
def test_message_keeps_names_and_types_and_known_values(disclosure, message, shown):
    assert disclosure.message(message) == shown
