"""What a command writes, made fit for the screen, for the model and for a file."""

import errno
import os
import stat
from pathlib import Path  # noqa: TC003

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import little_work, prove

from sanderling.tools.commands.output import (
    CUT_LINE,
    MAX_FILE_BYTES,
    MAX_HEAD_BYTES,
    MAX_HELD_CHARS,
    MAX_SCREEN_CHARS,
    MAX_SCREEN_LINE_CHARS,
    MAX_TAIL_BYTES,
    MAX_TOLD_BYTES,
    Ends,
    OutputLog,
    ScreenText,
    clean,
)

IN_MEMORY_BYTES = MAX_HEAD_BYTES + MAX_TAIL_BYTES
CHUNK_BYTES = 64 * 1024  # what one read of a pipe may give


def on_screen(*chunks: bytes) -> str:
    """What stands on the screen when the command has written `chunks`, one soon after the other."""
    screen = ScreenText()
    return "".join([*map(screen.feed, chunks), screen.flush()])


def with_pauses(*chunks: bytes) -> str:
    """The same with a pause after each, so that unfinished lines are shown."""
    screen = ScreenText()
    return "".join(screen.feed(chunk) + screen.flush() for chunk in chunks)


# --- for the screen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written, seen",
    [
        ("plain\n", "plain\n"),
        ("a\tb\n", "a\tb\n"),
        ("\x1b[1;31mred\x1b[0m\n", "red\n"),
        ("\x1b[2K\x1b[1Gline\n", "line\n"),
        ("\x1b[?25lhidden cursor\x1b[?25h\n", "hidden cursor\n"),
        ("\x1b]0;title\x07text\n", "text\n"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        ("\x1b(Bcharset\n", "charset\n"),
        ("\x1b7save\x1b8\n", "save\n"),
        ("a\x00b\x07c\x7f\n", "abc\n"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("two\r\r\n", "two\n"),
        (" 10%\r 50%\r100%\n", "100%\n"),
        ("\r 10%\r 50%\r100%\n", "100%\n"),
        ("kept\n10%\r20%\nkept\n", "kept\n20%\nkept\n"),
        ("ab\x08\x08cd\n", "cd\n"),
        ("\x08\x08a\n", "a\n"),
        ("bo\x08old\n", "bold\n"),
        ("line\n\x08next\n", "line\nnext\n"),
        ("\ud800\n", "\ufffd\n"),
        ("a\x85\x9bb\n", "ab\n"),
        ("", ""),
    ],
)
def test_text_is_what_a_person_would_see_in_the_end(written, seen):
    assert clean(written) == seen


def test_last_state_of_a_progress_line_that_ends_in_a_return_is_kept():
    assert clean("10%\r50%\r100%\r") == "100%"


@given(st.text())
def test_cleaned_text_holds_no_control_characters_and_can_be_encoded(text):
    cleaned = clean(text)
    cleaned.encode()
    assert not any(ord(c) < 0x20 and c not in "\n\t" for c in cleaned)
    assert "\x7f" not in cleaned


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")) | st.just("\n")), st.data())
def test_text_comes_out_whole_however_it_is_cut(text, data):
    written = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(written)), max_size=4).map(sorted))
    edges = [0, *cuts, len(written)]
    chunks = [written[a:b] for a, b in zip(edges, edges[1:], strict=False)]  # noqa: RUF007
    assert on_screen(*chunks) == text
    assert with_pauses(*chunks) == text


def test_character_cut_between_two_reads_is_whole_on_the_screen():
    crab = "🦀\n".encode()
    assert on_screen(crab[:1], crab[1:3], crab[3:]) == "🦀\n"
    assert with_pauses(crab[:1], crab[1:3], crab[3:]) == "🦀\n"


def test_bytes_that_are_no_text_are_shown_as_what_they_are():
    assert on_screen(b"caf\xe9\n", b"\xff\xfe\n") == "caf\\xe9\n\\xff\\xfe\n"


def test_line_is_shown_when_it_is_whole_or_nothing_more_comes():
    screen = ScreenText()
    assert screen.feed(b"whole\nPassw") == "whole\n"
    assert screen.feed(b"ord: ") == ""
    assert screen.flush() == "Password: "
    assert screen.flush() == ""


def test_escape_sequence_cut_between_two_reads_does_not_show():
    assert on_screen(b"\x1b[3", b"1mred\x1b", b"[0m\n") == "red\n"


def test_newline_after_a_pause_does_not_lose_the_line_before_its_return():
    assert with_pauses(b"line\r", b"\nnext\n") == "line\nnext\n"


def test_states_of_a_slow_progress_line_do_not_run_into_each_other():
    shown = with_pauses(b"\r10%", b"\r20%", b"\r30%", b"\rdone\n")
    assert shown.split("\n")[-2] == "done"
    assert "10%20%" not in shown


def test_screen_holds_the_first_quarter_of_a_mebibyte():
    screen = ScreenText()
    shown = "".join(screen.feed(b"x" * 99 + b"\n") for _ in range(10_000))
    assert len(shown) == MAX_SCREEN_CHARS
    assert screen.is_full
    assert screen.feed(b"more\n") == screen.flush() == ""


def test_endless_line_is_shown_in_parts_and_holds_little_memory():
    screen = ScreenText()
    shown = sum(len(screen.feed(b"x" * 4096)) for _ in range(20))
    assert min(20 * 4096, MAX_SCREEN_LINE_CHARS) - shown <= MAX_HELD_CHARS


@pytest.mark.parametrize("chunk_bytes", [1000, MAX_SCREEN_LINE_CHARS, CHUNK_BYTES, 200_000])
def test_line_that_neovim_could_not_draw_in_time_is_cut_with_a_sign(chunk_bytes):
    long, whole = b"x" * (MAX_SCREEN_LINE_CHARS + 1), b"y" * MAX_SCREEN_LINE_CHARS
    written = b"\n".join([b"before", long, whole, b"between", b"z" * 100_000, b"after\n"])
    chunks = [written[at : at + chunk_bytes] for at in range(0, len(written), chunk_bytes)]
    assert on_screen(*chunks).split("\n") == [
        "before",
        "x" * MAX_SCREEN_LINE_CHARS + CUT_LINE,
        "y" * MAX_SCREEN_LINE_CHARS,
        "between",
        "z" * MAX_SCREEN_LINE_CHARS + CUT_LINE,
        "after",
        "",
    ]


def test_what_is_cut_from_the_screen_is_in_the_file(log):
    log.add(b"x" * (MAX_SCREEN_LINE_CHARS + 1))
    assert log.path.stat().st_size == MAX_SCREEN_LINE_CHARS + 1


@pytest.mark.parametrize(
    "chunk",
    [
        b"x" * CHUNK_BYTES,
        b"x" * (CHUNK_BYTES // 2) + b"\x08" * (CHUNK_BYTES // 2),
        b"x\x08" * (CHUNK_BYTES // 2),
        b"\r" * CHUNK_BYTES,
        b"x\r" * (CHUNK_BYTES // 2),
        b"\x1b[" + b"0" * CHUNK_BYTES,
        b"\x1b]" * (CHUNK_BYTES // 2),
        b"\x1b]" + b"x" * CHUNK_BYTES,
        b"\x1b " * (CHUNK_BYTES // 2),
        b"\n" * CHUNK_BYTES,
        b"\xff" * CHUNK_BYTES,
    ],
    ids=lambda chunk: ascii(chunk[:2].decode("latin-1")),
)
def test_no_output_is_costly_to_show(chunk):
    screen = ScreenText()
    with little_work():
        screen.feed(chunk)
        screen.flush()


# --- for the model, and the file ---------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    log = OutputLog(tmp_path / "session" / "c1.log")
    yield log
    log.close()


def test_short_output_is_kept_whole_and_without_a_file(log):
    log.add(b"one\n")
    log.add(b"\x1b[1mtwo\x1b[0m\n")
    assert log.text() == "one\ntwo\n"
    assert log.note() == ""
    assert not log.path.parent.exists()


def test_output_that_just_fits_has_no_file(log):
    log.add(b"x" * IN_MEMORY_BYTES)
    assert log.text() == "x" * IN_MEMORY_BYTES
    assert not log.path.exists()
    log.add(b"y")
    assert log.path.read_bytes() == b"x" * IN_MEMORY_BYTES + b"y"


@pytest.mark.parametrize("chunk_bytes", [7, 1000, CHUNK_BYTES, 1 << 20])
def test_file_holds_every_byte_for_the_person_alone(log, chunk_bytes):
    written = b"".join(b"%d \xff\x1b[1mline\r\n" % number for number in range(10_000))
    for at in range(0, len(written), chunk_bytes):
        log.add(written[at : at + chunk_bytes])
    assert log.path.read_bytes() == written
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.path.parent.stat().st_mode) == 0o700
    assert log.note() == f"All {len(written):,} bytes of output: {log.path}"


@prove
def test_long_output_is_told_by_its_whole_first_and_last_lines(log):
    lines = [f"line {number}\n" for number in range(100_000)]
    for line in lines:
        log.add(line.encode())
    head, _, tail = log.text().partition(" bytes are left out here]\n")
    beginning, _, gap = head.rpartition("[")
    assert "".join(lines).startswith(beginning)
    assert "".join(lines).endswith(tail)
    assert beginning.endswith("\n")
    assert tail.startswith("line ")
    count = int(gap.replace(",", ""))
    assert count + len(beginning) + len(tail) == len("".join(lines)) == log.total_bytes


def test_what_is_told_of_one_endless_line_is_bounded(log):
    for _ in range(160):
        log.add(b"x" * CHUNK_BYTES)
    assert log.total_bytes == 10 << 20
    assert len(log.text()) < IN_MEMORY_BYTES + 100
    assert log.path.stat().st_size == 10 << 20


@pytest.mark.parametrize("byte", [b"x", b"\x08", b"\r", b"\xff", b"/"])
def test_no_output_is_costly_to_tell(log, byte):
    log.add(byte * (1 << 20))
    with little_work():
        log.text()


def test_file_ends_at_its_limit_and_the_person_is_told(log):
    for _ in range(MAX_FILE_BYTES // (1 << 20) + 2):
        log.add(b"x" * (1 << 20))
    assert log.path.stat().st_size == MAX_FILE_BYTES
    limit = f"{log.path} holds the first {MAX_FILE_BYTES:,} bytes"
    assert log.note() == f"The rest of the output is lost: {limit}."


def test_full_disk_is_told_and_the_beginning_and_the_end_are_kept(tmp_path):
    path = tmp_path / "full.log"
    path.symlink_to("/dev/full")
    log = OutputLog(path)
    log.add(b"first\n" + b"x\n" * IN_MEMORY_BYTES)
    log.add(b"last\n")
    assert log.note() == f"The rest of the output is lost: {path}: {os.strerror(errno.ENOSPC)}."
    assert log.text().startswith("first\n")
    assert log.text().endswith("last\n")
    log.close()


def test_directory_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    log = OutputLog(tmp_path / "file" / "below" / "c1.log")
    log.add(b"x" * (IN_MEMORY_BYTES + 1))
    assert os.strerror(errno.ENOTDIR) in log.note()
    log.close()


def test_file_of_an_earlier_command_with_the_same_name_is_replaced(tmp_path):
    path: Path = tmp_path / "c1.log"
    path.write_bytes(b"old" * IN_MEMORY_BYTES)
    log = OutputLog(path)
    log.add(b"n" * (IN_MEMORY_BYTES + 1))
    log.close()
    assert path.read_bytes() == b"n" * (IN_MEMORY_BYTES + 1)


def test_log_can_be_closed_twice_and_closes_its_file(log):
    log.add(b"x" * (IN_MEMORY_BYTES + 1))
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    log.close()
    log.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1  # noqa: PTH208


def fed(chunks: list[bytes]) -> str:
    ends = Ends()
    for chunk in chunks:
        ends.add(chunk)
    return ends.text()


@prove
def test_end_gets_three_times_what_the_beginning_gets():
    text = fed([b"%d\n" % number for number in range(100_000)])
    head, _, tail = text.partition("bytes are left out here]\n")
    assert 2.5 < len(tail) / len(head) < 3.5


@pytest.mark.parametrize(
    "chunk",
    [
        b"\xff",
        b"\xc3",
        b"x\n",
        b"\xff\n",
        b"x" * 60_000 + b"\xff" * 60_000,
        "🦀".encode(),
        b"\x1b[1mx",
    ],
    ids=ascii,
)
def test_what_is_told_is_bounded_whatever_it_is_made_of(chunk):
    text = fed([chunk * (200_000 // len(chunk))])
    assert 3_000 < len(text.encode()) < MAX_TOLD_BYTES + 100


def test_what_is_told_of_text_without_newlines_begins_and_ends_with_whole_characters():
    assert "\\x" not in fed(["🦀".encode() * 50_000])
    assert "\\x" not in fed([b"x" + "🦀".encode() * 50_000])


def test_line_that_is_too_long_is_told_in_part_and_the_short_one_after_it_whole():
    text = fed([b"x" * 100_000 + b"\nlast\n"])
    assert text.endswith("xxx\nlast\n")
    assert len(text) > MAX_TAIL_BYTES


@prove
def test_states_of_a_progress_line_take_no_room():
    states = [b"\r%d%%" % number for number in range(100_000)]
    assert fed([b"begin\n", *states, b"\nend\n"]) == "begin\n99999%\nend\n"
    assert fed(states) == "99999%"
    assert fed([b"%d%%\r" % number for number in range(100_000)]) == "99999%"


@prove
@given(st.lists(st.binary(max_size=8) | st.sampled_from([b"\r", b"\n", b"\r\n", b"10%\r"])))
def test_what_fits_is_told_as_if_it_had_come_at_once_and_as_the_screen_has_it(chunks):
    whole = b"".join(chunks)
    assert fed(chunks) == fed([whole]) == clean(whole.decode("utf-8", "backslashreplace"))


def test_output_is_taken_once(log):
    log.add(b"one\ntw")
    assert (log.has_news, log.take()) == (True, "one\ntw")
    assert (log.has_news, log.take()) == (False, "")
    log.add(b"o\n")
    assert log.take() == "o\n"


def test_output_can_be_read_as_it_was_written_before_and_after_it_is_in_the_file(log):
    log.add(b"\x1b[1mone\r\n")
    assert log.read(4, 3) == b"one"
    log.spill()
    assert log.path.read_bytes() == b"\x1b[1mone\r\n"
    log.add(b"two")
    assert log.read(4, 100) == b"one\r\ntwo"
    assert log.read(100, 10) == b""


def test_escaped_output_that_does_not_fit_is_in_the_file(log):
    log.add(b"\xff" * (MAX_TOLD_BYTES // 4))
    assert not log.is_spilled
    log.add(b"\xff")
    assert log.path.read_bytes() == b"\xff" * (MAX_TOLD_BYTES // 4 + 1)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_new_log_takes_no_file_that_is_there_already(tmp_path, kind):
    path = tmp_path / "new.log"
    target = tmp_path / "target"
    path.touch() if kind == "file" else path.symlink_to(target)
    log = OutputLog(path, shown_as="/tmp/new.log", is_new=True)
    log.add(b"x" * (IN_MEMORY_BYTES + 1))
    assert (
        log.note() == f"The rest of the output is lost: /tmp/new.log: {os.strerror(errno.EEXIST)}."
    )
    assert not target.exists()
    assert path.stat(follow_symlinks=False).st_size in (0, len(str(target)))


def test_limit_of_the_file_can_be_another_one_and_its_name_another(tmp_path):
    log = OutputLog(tmp_path / "c1.log", shown_as="/tmp/c1.log", max_file_bytes=50_000)
    for _ in range(10):
        log.add(b"x" * 30_000)
    assert log.path.stat().st_size == 50_000
    assert "/tmp/c1.log holds the first 50,000 bytes" in log.note()
    log.close()
