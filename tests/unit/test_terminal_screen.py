"""The screen of a shared terminal: what a program draws, what the model sees of it, and what the user's Neovim gets."""

import random
import re
import subprocess

import pytest

from sanderling.errors import ToolError
from sanderling.tools.commands.keys import encoded
from sanderling.tools.commands.screen import HIDDEN, Row, Screen
from sanderling.tools.commands.typed import TypedText


def screen_with(*chunks: str | bytes, rows: int = 5, columns: int = 10) -> Screen:
    screen = Screen(rows, columns)
    for chunk in chunks:
        screen.feed(chunk.encode() if isinstance(chunk, str) else chunk)
    return screen


@pytest.mark.parametrize(
    "written, shown",
    [
        ("a\r\nb", ["a", "b"]),
        ("0123456789ab", ["0123456789", "ab"]),
        ("progress 1\rdone", ["doneress 1"]),
        ("abc\b\bX", ["aXc"]),
        ("a\tb", ["a       b"]),
        ("one\r\ntwo\x1b[1;2HX", ["oXe", "two"]),
        ("abc\x1b[2D\x1b[K", ["a"]),
        ("abc\r\ndef\x1b[2J\x1b[Hx", ["x"]),
        ("abcdef\x1b[1;3H\x1b[2P", ["abef"]),
        ("abcdef\x1b[1;3H\x1b[2@", ["ab  cdef"]),
        ("abcdef\x1b[1;3H\x1b[2X", ["ab  ef"]),
        ("a\r\nb\r\nc\x1b[2H\x1b[L", ["a", "", "b", "c"]),
        ("a\r\nb\r\nc\x1b[2H\x1b[M", ["a", "c"]),
        ("1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\n", ["1", "3", "4", "", "5"]),
        ("1\r\n2\x1b[H\x1bM0", ["0", "1", "2"]),
        ("漢字x\x1b[1;2Hy", [" y字x"]),
        ("e\u0301é👍|", ["e\u0301é👍|"]),
        ("\x1b(0lqk\x1b(Bq", ["┌─┐q"]),
        ("-\x1b[3b|", ["----|"]),
        ("-\x1b[9999b|", ["----------", "-|"]),
        (f"a\x1b[{';' * 300}Hb", ["ab"]),
        ("\x1b[?7l0123456789abc", ["012345678c"]),
        ("main\x1b[?1049h\x1b[Hother\x1b[?1049l!", ["main!"]),
        ("\x1b]0;a title\x07\x1bP+q544e\x1b\\\x1b]52;c;eA==\x1b\\text", ["text"]),
        ("\x1b7ab\x1b8X", ["Xb"]),
        ("a\x1b[4hb\x1b[1GX", ["Xab"]),
    ],
)  # fmt: skip
def test_text_is_where_a_terminal_shows_it(written, shown):
    assert screen_with(written).visible() == shown


def test_what_is_torn_anywhere_is_drawn_alike():
    text = "\x1b[1;31m漢é\x1b[0m\r\n\x1b]2;title\x1b\\x\x1b[?1049h\x1b[2;3Hy\x1b[?1049l\x1b[3;1Hz".encode()
    whole = screen_with(text).visible()
    for at in range(len(text)):
        assert screen_with(text[:at], text[at:]).visible() == whole


def test_random_bytes_leave_a_screen_of_the_same_size():
    source = random.Random(43)
    pieces = [b"\x1b[", b"\x1b", b";", b"?", b"h", b"1049", b"\r\n", b"m", b"99999", "漢".encode()]
    pieces += [bytes([number]) for number in range(256)]
    screen = Screen(7, 11)
    for count in range(20_000):
        screen.feed(source.choice(pieces))
        if count % 500 == 0:
            screen.resize(source.randint(1, 30), source.randint(1, 30))
        assert len(screen.rows) == screen.row_count
        assert max(len(row.cells) for row in screen.rows) <= screen.columns
        assert all(len(row.cells) == len(row.pens) for row in screen.rows)
        assert 0 <= screen.cursor.row < screen.row_count
        assert 0 <= screen.cursor.column < screen.columns


def test_questions_are_answered_and_others_are_not():
    answers: list[bytes] = []
    screen = Screen(5, 10, answers.append)
    screen.feed(b"ab\x1b[6n\x1b[c\x1b[5n\x1b]11;?\x07\x1b[?2026$p")
    assert answers == [b"\x1b[1;3R", b"\x1b[?62;22c", b"\x1b[0n", b"\x1b[?2026;0$y"]


def test_what_is_drawn_hidden_is_hidden_wherever_it_moves():
    screen = screen_with("name: ")
    screen.hides = True
    screen.feed(b"bob\r\npass")
    screen.hides = False
    screen.feed(b" ok\x1b[1;1H\x1b[L")
    assert screen.visible() == ["", f"name: {HIDDEN}", f"{HIDDEN} ok"]
    screen.feed(b"\x1b[2;7H\x1b[3@")
    assert screen.visible() == ["", f"name:    {HIDDEN}", f"{HIDDEN} ok"]
    screen.reveal()
    assert screen.visible() == ["", "name:    b", "pass ok"]


def test_a_hidden_character_is_not_shown_by_its_repetition():
    screen = screen_with("")
    screen.hides = True
    screen.feed(b"s")
    screen.hides = False
    screen.feed(b"\r\n\x1b[5b")
    assert screen.visible() == [HIDDEN, HIDDEN]


def test_the_length_of_hidden_text_is_not_shown():
    for text in (b"x", b"longer"):
        screen = screen_with("")
        screen.hides = True
        screen.feed(text)
        assert screen.visible() == [HIDDEN]


@pytest.mark.parametrize(
    "typed, text, shown",
    [
        (b"hunter2\r", "echo hunter2!", f"echo {HIDDEN}!"),
        (b"hunt\x7fter2", "hunter2", HIDDEN),
        (b"log in as\x1b[D correcthorse\r", "correcthorse", HIDDEN),
        (b"make test\r", "2 tests", "2 tests"),
        (b"abc\r", "abc", "abc"),
        ("pässwört\r".encode(), "=pässwört=", f"={HIDDEN}="),
        (b"\x1b[200~pasted text\x1b[201~", "pasted text", HIDDEN),
        (b"correct horse\r", "orrect hors", HIDDEN),
    ],
)
def test_what_the_user_typed_stays_hidden_where_it_is_repeated(typed, text, shown):
    known = TypedText()
    known.note(typed)
    known.keep()
    row = Row()
    row.put(0, text, row.pens[0] if row.pens else screen_with("x").rows[0].pens[0])
    known.hide_in([row])
    assert row.visible() == shown


def test_pasted_text_is_known_wherever_its_input_is_divided():
    pasted = b"\x1b[200~hunter2\x1b[201~"
    for at in range(2, len(pasted)):
        known = TypedText()
        known.note(pasted[:at])
        known.note(pasted[at:])
        known.keep()
        screen = screen_with("hunter2")
        known.hide_in(screen.rows)
        assert screen.visible() == [HIDDEN], at


def test_the_number_of_hidden_wide_characters_is_not_shown():
    screen = screen_with("漢字漢字")
    known = TypedText()
    known.note("漢字漢字\r".encode())
    known.hide_in(screen.rows)
    assert screen.visible() == [HIDDEN]


def test_what_the_user_typed_is_hidden_over_the_end_of_a_row():
    screen = screen_with("echo hunter2hunter2")
    known = TypedText()
    known.note(b"hunter2hunter2\r")
    known.hide_in(screen.rows[:2])
    assert screen.visible() == [f"echo {HIDDEN}", HIDDEN]


def test_a_wide_character_that_a_narrower_window_cuts_is_gone():
    screen = screen_with("漢字x")
    screen.resize(5, 3)
    assert screen.rows[0].drawn() == "漢"


def test_rows_that_leave_the_main_screen_are_kept_in_order():
    left: list[str] = []
    screen = Screen(3, 10, leave=lambda row: left.append(row.visible()))
    screen.feed(b"".join(b"%d\r\n" % number for number in range(1000)))
    screen.feed(b"\x1b[?1049h" + b"other\r\n" * 100 + b"\x1b[?1049l")
    assert left == [str(number) for number in range(998)]
    screen.resize(1, 10)
    assert left[998:] == ["998", "999"]


@pytest.mark.parametrize(
    "keys, data",
    [
        ("Enter", b"\r"),
        ("C-c", b"\x03"),
        ("ctrl+d ^C <C-x>", b"\x04\x03\x18"),
        ("Up Down", b"\x1b[A\x1b[B"),
        ("M-x M-X", b"\x1bx\x1bX"),
        (": w q Enter", b":wq\r"),
        ("Esc F1 F12 PageUp S-Tab Space", b"\x1b\x1bOP\x1b[24~\x1b[5~\x1b[Z "),
        ("C-Space C-]", b"\x00\x1d"),
    ],
)
def test_named_keys_are_encoded_as_a_terminal_does(keys, data):
    assert encoded(keys, is_application=False) == data


def test_cursor_keys_are_encoded_as_the_program_asked():
    assert encoded("Up", is_application=True) == b"\x1bOA"


@pytest.mark.parametrize("keys", ["", "Enterr", "C-", "C-ab", "hello", "M-" * 2_000])
def test_unknown_keys_are_refused_with_the_names_of_others(keys):
    with pytest.raises(ToolError, match="C-c"):
        encoded(keys, is_application=False)


def test_the_output_of_ncurses_programs_is_where_tput_puts_it():
    found = subprocess.run(
        ["tput", "-T", "xterm-256color", "-S"],
        input="clear\ncup 2 3\nsetaf 1\nbold\nsgr0\nel\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        pytest.skip("tput has no xterm-256color here")
    assert screen_with("x", found.stdout, "here").visible() == ["", "", "   here"]
    assert not re.search(r"\x1b", "".join(screen_with(found.stdout, "here").visible()))


@pytest.mark.parametrize(
    "parameters, style",
    [
        (("1", "31", "44"), "1;31;44"),
        (("1;31", "0"), ""),
        (("1;31", ""), ""),
        (("38;5;200;1",), "1;38;5;200"),
        (("38;2;1;2;3", "48:5:7"), "38;2;1;2;3;48;5;7"),
        (("58;5;3;4",), "4"),
        (("1;2;4;97;107", "22;24;39"), "107"),
        (("4:3", "4:0"), ""),
        (("38", "5;99999;1", "38;5"), "5;1;38;5"),
    ],
)
def test_styles_are_kept_in_their_shortest_form(parameters, style):
    screen = screen_with(*(f"\x1b[{each}m" for each in parameters), "x")
    assert screen.rows[0].pens[0].style == style
