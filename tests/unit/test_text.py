"""What a file's bytes say, and the way back to them."""

import json
import random
import sys
import unicodedata

import pytest
from tests.conftest import little_work, prove

from sanderling.changes.editing.text import CR, CRLF, LF, decode
from sanderling.json_lines import encoded, for_terminal
from sanderling.text import CONTROL, common_length, counted, visible, visible_prose
from sanderling.tools.commands.shell import first_line

TEXT = "grün “x” 𝄞\nzwei\n"


BROKEN, BROKEN_ONES = "invalid byte (read as �)", "invalid bytes (read as �)"
BROKEN_PAIR = f"UTF-16 LE with BOM with 1 {BROKEN}; no newline at the end"
NO_UTF16 = "not UTF-8; shown as Latin-1; no newline at the end"
MIXED = "mixed line endings: 3 CRLF, 120 LF"


@pytest.mark.parametrize(
    "data, encoding, text, note",
    [
        (b"", "utf-8", "", ""),
        (b"a\n", "utf-8", "a\n", ""),
        (TEXT.encode(), "utf-8", TEXT, ""),
        (b"\xef\xbb\xbfa\n", "utf-8", "a\n", "UTF-8 with BOM"),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), "utf-16-le", TEXT, "UTF-16 LE with BOM"),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "utf-16-be", TEXT, "UTF-16 BE with BOM"),
        (b"\xff\xfe\0\0" + TEXT.encode("utf-32-le"), "utf-32-le", TEXT, "UTF-32 LE with BOM"),
        (b"\0\0\xfe\xff" + TEXT.encode("utf-32-be"), "utf-32-be", TEXT, "UTF-32 BE with BOM"),
        (b"\xff\xfeabc", "latin-1", "ÿþabc", NO_UTF16),  # half a character at the end
        (b"caf\xe9\n", "latin-1", "café\n", "not UTF-8; shown as Latin-1"),
        (b"\x80 5\n", "cp1252", "€ 5\n", "not UTF-8; shown as Windows-1252"),
        # A byte that Windows-1252 has not.
        (b"\x81\x80\n", "latin-1", "\x81\x80\n", "not UTF-8; shown as Latin-1"),
        # A broken byte in UTF-8 leaves the rest readable, and each is a character, as half a pair in UTF-16 is.
        ("ü für\n".encode() + b"\xff\n", "utf-8", "ü für\n�\n", f"UTF-8 with 1 {BROKEN}"),
        ("üüü".encode() + b"\xff\xfe\n", "utf-8", "üüü��\n", f"UTF-8 with 2 {BROKEN_ONES}"),
        (b"\xff\xfe\x00\xd8a\x00", "utf-16-le", "�a", BROKEN_PAIR),
        (b"a\r\nb\r\n", "utf-8", "a\nb\n", "CRLF line endings"),
        (b"a\rb\r", "utf-8", "a\nb\n", "CR line endings"),
        (b"a\r\n" * 3 + b"b\n" * 120, "utf-8", "a\n" * 3 + "b\n" * 120, MIXED),
        (b"10%\r20%\n", "utf-8", "10%\r20%\n", ""),  # a CR among LF is a character
        (b"a\r\r\n", "utf-8", "a\r\n", "CRLF line endings"),
        (b"a\nb", "utf-8", "a\nb", "no newline at the end"),
    ],
)
def test_bytes_are_read_as(data, encoding, text, note):
    read = decode(data)
    assert (read.encoding, read.text, read.note) == (encoding, text, note)
    assert read.has_bom == ("BOM" in note)
    assert read.bom + read.encode(read.exact, read.endings) == data


@pytest.mark.parametrize(
    "data, is_binary",
    [
        (b"", False),
        (b"plain\n", False),
        (b"\x1b[1mcolour\x1b[0m\f\n", False),
        (b"caf\xe9\n", False),
        (b"\xff\xfe" + "text".encode("utf-16-le"), False),
        (b"\x7fELF\x02\x01\x01\0\0\0", True),
        ("text".encode("utf-16-le"), True),  # nothing says that it is
        (b"\x01\x02\x03\x04 abc", True),
        (b"text\n" * 2000 + b"\0", False),  # too far down to matter
    ],
)
def test_binary_is_what_has_a_nul_or_many_control_characters(data, is_binary):
    assert decode(data).is_binary is is_binary


@pytest.mark.parametrize(
    "data, line_ending, is_mixed, line_count, has_final_newline",
    [
        (b"", "\n", False, 0, False),
        (b"a", "\n", False, 1, False),
        (b"a\n", "\n", False, 1, True),
        (b"a\n\n", "\n", False, 2, True),
        (b"a\r\nb", "\r\n", False, 2, False),
        (b"a\rb", "\r", False, 2, False),
        (b"a\r\nb\n", "\n", True, 2, True),
        (b"a\r\nb\r\nc\n", "\r\n", True, 3, True),
    ],
)
def test_lines_are_told(data, line_ending, is_mixed, line_count, has_final_newline):
    text = decode(data)
    assert (text.line_ending, text.has_mixed_line_endings) == (line_ending, is_mixed)
    assert (text.line_count, text.has_final_newline) == (line_count, has_final_newline)


def test_line_endings_are_kept_one_by_one():
    assert decode(b"a\r\nb\nc\r\n").endings == bytes([CRLF, LF, CRLF])
    assert decode(b"a\rb\r").endings == bytes([CR, CR])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-32-be", "cp1252", "latin-1"])
@pytest.mark.parametrize("newlines", ["\n", "\r\n", "\r"])
def test_an_offset_into_the_text_leads_to_its_byte(encoding, newlines):
    raw = "eins é\nzwei\n\ndrei".replace("\n", newlines)
    bom = {"utf-16-le": b"\xff\xfe", "utf-32-be": b"\0\0\xfe\xff"}.get(encoding, b"")
    text = decode(bom + raw.encode(encoding))
    at = 0
    for offset, byte in enumerate(text.byte_offsets(range(len(text.text) + 1))):
        assert byte == len(bom) + len(raw[:at].encode(encoding)), offset
        at += 2 if raw.startswith("\r\n", at) else 1


def test_any_bytes_come_back_as_they_were():
    chance = random.Random(4)
    pieces = [b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\0", b"a", "ü€𝄞".encode()]
    for _ in range(3000):
        some = [*pieces, *(bytes([chance.randrange(256)]) for _ in range(8))]
        data = b"".join(chance.choices(some, k=chance.randrange(12)))
        text = decode(data)
        assert text.bom + text.encode(text.exact, text.endings) == data
        assert list(text.byte_offsets([0, len(text.text)])) == [len(text.bom), len(data)]
        text.text.encode()  # can be sent


@prove
def test_ten_megabytes_are_read_in_no_time():
    data = b"a line of a large file\r\nand one more\n" * 280_000
    with little_work():
        text = decode(data)
        list(text.byte_offsets([0, len(text.text) // 2, len(text.text)]))


@pytest.mark.parametrize(
    "encoding, text",
    [
        ("cp932", "// ポート 表示\n"),
        ("cp932", "ｱｲｳ カナ テスト\n"),
        ("gb18030", "中文字符测试。\n"),
        ("big5", "許功蓋是問題字元\n"),
        ("euc_kr", "한국어 테스트 문서\n"),
        ("euc_jp", "日本語のテキスト\n"),
    ],
)
def test_an_encoding_of_east_asia_is_known_where_only_one_is_plausible(encoding, text):
    file = decode(text.encode(encoding))
    assert (file.encoding, file.text, file.doubtful) == (encoding, text, ())
    assert file.note == f"not UTF-8; shown as {file.encoding_name}"


@pytest.mark.parametrize(
    "encoding, text",
    [
        ("cp1252", "café crème brûlée “quoted” €"),
        ("cp1252", "Größe über Straße, naïve façade, Ærøskøbing"),
        ("cp1252", "£5 §A ©A ÃÉ ÄÖÜ"),
        ("cp1251", "привет мир, это тестовая строка"),
        ("koi8-r", "привет мир"),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy"),
        ("cp1253", "Καλημέρα κόσμε"),
        ("cp1256", "مرحبا بالعالم"),
    ],
)
def test_a_western_file_is_none_of_east_asia(encoding, text):
    file = decode(text.encode(encoding))
    assert file.encoding in ("cp1252", "latin-1")
    assert file.doubtful == ()


def test_a_file_that_could_be_in_several_encodings_is_in_doubt():
    file = decode("你好|".encode("gb18030"))
    assert file.encoding in ("cp1252", "latin-1")
    assert "gb18030" in file.doubtful


# --- what a person approves ---------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "count, words", [(0, "0 cells"), (1, "1 cell"), (2, "2 cells"), (1200, "1,200 cells")]
)
def test_a_number_of_things_is_spelled_alike_everywhere(count, words):
    assert counted(count, "cell") == words


@pytest.mark.parametrize(
    "one, other, length",
    [
        ("", "", 0),
        ("abc", "", 0),
        ("abc", "abc", 3),
        ("abcd", "abce", 3),
        ("xbc", "abc", 0),
        ("ab", "abc", 2),
        ("aéb", "aéc", 2),
        (b"a\0b", b"a\0c", 2),
    ],
)
def test_the_common_beginning_is_measured(one, other, length):
    assert common_length(one, other) == common_length(other, one) == length
