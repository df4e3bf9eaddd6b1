"""What a person approves is what they read."""

import json
import sys
import unicodedata

import pytest
from tests.conftest import prove

from sanderling.commands.shell import first_line
from sanderling.json_lines import encoded, for_terminal
from sanderling.text import CONTROL, visible, visible_prose

# By Unicode's list of what renderers ignore, and what shows as a blank that is none.
IGNORED = [
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810)),
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2070),
    *(0x13440, 0x13441, 0x13442, 0x16FE4),  # blanks of Egyptian, a filler of Khitan
    *(0x2800, 0x3164, *range(0xFE00, 0xFE10), 0xFEFF, 0xFFA0, *range(0xFFF0, 0xFFFC)),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *(0xE0000, 0xE0001, *range(0xE0020, 0xE0080), *range(0xE0100, 0xE01F0), 0xE0FFF),
]


@pytest.mark.parametrize("show", [visible, lambda text: visible_prose(text + text)])
def test_what_is_shown_as_nothing_stands_there_as_its_number(show):
    for code in IGNORED:
        assert f"<U+{code:04X}>" in show(chr(code)), hex(code)


@prove
def test_no_format_control_or_private_character_passes():
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in hidden and code not in (9, 10):
            assert visible(chr(code)) != chr(code), hex(code)


def test_text_stays_as_it_is():
    text = "größe ✓ 日本 \tx\n"
    assert visible(text) == visible_prose(text) == text
    assert visible_prose("❤\ufe0f न\u200dम") == "❤\ufe0f न\u200dम"


def test_a_commands_line_hides_nothing():
    assert first_line("rm a\ufe0fb\u034fc") == r"rm a\ufe0fb\u034fc"


@pytest.mark.parametrize("text", ["\x7f", "\x9b31m", "\x1b[31m", "a\nb\tc", "é \u202e", 'a"b'])
@pytest.mark.parametrize("has_lines", [False, True])
def test_json_for_a_terminal_commands_nothing_and_says_the_same(text, has_lines):
    shown = for_terminal({"a": text}, has_lines=has_lines)
    assert not CONTROL.search(shown)
    assert json.loads(shown) == {"a": text}


def test_json_of_what_is_no_text_has_a_sign_in_its_place():
    assert json.loads(encoded({"caf\udce9": "\ud83d"})) == {"caf\ufffd": "\ufffd"}
