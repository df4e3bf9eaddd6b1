"""`read`, `write` and `edit` as the model uses them: on the disk, in the sandbox, and in the buffers of an editor."""

import base64
import os
import random
import re
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples, happens, little_work, prove, prove_rest
from tests.fuzz import part
from tests.pictures import gif, jpeg, png, webp
from tests.sandbox.test_sandbox import supervisors
from tests.sandboxes import in_own_task, kept, policy_below, sandbox_of
from tests.unit.test_replace import AnyEdit, AnyFile, any_edit
from tests.workspaces import workspace_of

from sanderling.changes.editing.lines import Hunk, TextDifference, applied, buffer_hunks
from sanderling.errors import ToolError
from sanderling.protocol.messages import ImageBlock
from sanderling.sandbox.files import Identity
from sanderling.sandbox.inside.reading import Stamp
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.tools.base import Context, Tool
from sanderling.tools.buffers import bytes_of, text_in
from sanderling.tools.change import Change
from sanderling.tools.edit import edit
from sanderling.tools.editor import Buffer, Diagnostic
from sanderling.tools.grep import grep
from sanderling.tools.known import ProposedContent
from sanderling.tools.outcome import Outcome, Preview
from sanderling.tools.read import MAX_IMAGE_BYTES, read
from sanderling.tools.read_cache import ReadCache
from sanderling.tools.workspace import Workspace
from sanderling.tools.write import write


class Desk:
    """A project, and the tools on it."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.project = Path(workspace.project)

    async def use(self, tool: Tool, tool_use_id: str = "t1", **data: object) -> Outcome:
        return await tool.run(tool.parse(data), self.context(tool_use_id))

    async def told(self, tool: Tool, tool_use_id: str = "t1", **data: object) -> str:
        content = (await self.use(tool, tool_use_id, **data)).content
        assert isinstance(content, str)
        return content

    async def refusal(self, tool: Tool, **data: object) -> str:
        with pytest.raises(ToolError) as caught:
            await self.use(tool, **data)
        return str(caught.value)

    async def preview(self, tool: Tool, **data: object) -> Preview:
        assert tool.look
        return await tool.look(tool.parse(data), self.context("t1"))

    def context(self, tool_use_id: str = "t1") -> Context:
        return Context(self.workspace, tool_use_id, lambda _: None)


@dataclass
class Place:
    base: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def project(self) -> Path:
        return self.home / "project"

    @asynccontextmanager
    async def desk(
        self, editor: "MemoryEditor | None" = None, *, is_on: bool = False, **changes
    ) -> AsyncIterator[Desk]:
        """With the sandbox where `is_on`; it makes no difference to most of what a tool says, and takes its time to open."""
        sandbox = sandbox_of(policy_below(self.base, **changes), is_on=is_on)
        async with kept(sandbox):
            yield Desk(workspace_of(self.project, sandbox, editor))


@pytest.fixture
def place(tmp_path, monkeypatch, plain_environment) -> Place:  # noqa: ARG001
    place = Place(tmp_path)
    place.project.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place.home))
    return place


@pytest.fixture
def project(place) -> Path:
    return place.project


@pytest.fixture
async def desk(place: Place) -> AsyncIterator[Desk]:
    async for desk in in_own_task(place.desk()):
        yield desk


@pytest.fixture
async def confined(place: Place) -> AsyncIterator[Desk]:
    async for desk in in_own_task(place.desk(is_on=True)):
        yield desk


# --- reading -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on", [True, False])
async def test_lines_come_with_numbers_and_how_many_there_are(place, project, is_on):
    (project / "a.txt").write_text("one\ntwo\n\n")
    async with place.desk(is_on=is_on) as desk:
        outcome = await desk.use(read, path="a.txt")
    assert outcome.content == "1\tone\n2\ttwo\n3\t\n(3 lines)"
    assert outcome.summary == "3 lines"


async def test_page_says_where_the_next_one_begins(project, desk):
    (project / "long").write_text("".join(f"{n}\n" for n in range(1, 5322)))
    first = (await desk.told(read, path="long")).split("\n")
    assert (first[0], first[1999]) == ("1\t1", "2000\t2000")
    assert first[2000:] == ["(lines 1-2000 of 5321; continue with offset=2001)"]
    last = (await desk.told(read, path="long", offset=5320)).split("\n")
    assert last == ["5320\t5320", "5321\t5321", "(lines 5320-5321 of 5321)"]
    middle = await desk.told(read, path="long", offset=7, limit=1)
    assert middle == "7\t7\n(lines 7-7 of 5321; continue with offset=8)"


async def test_page_holds_at_most_fifty_kilobytes(project, desk):
    (project / "wide").write_text(("ä" * 999 + "\n") * 100)
    told = await desk.told(read, path="wide")
    assert len(told.encode()) < 51 * 1024
    assert told.endswith("(lines 1-25 of 100; continue with offset=26)")


async def test_long_line_is_cut_and_said_so(project, desk):
    (project / "wide").write_text("x" * 5000 + "\n" + "y" * 2000)
    lines = (await desk.told(read, path="wide")).split("\n")
    assert lines[0] == f"1\t{'x' * 2000}… [cut: the line has 5,000 characters]"
    assert lines[1] == f"2\t{'y' * 2000}"
    assert lines[2:] == [
        "(2 lines; no newline at the end; line 1 goes on: bash `sed -n '1{p;q}' wide | cut -c2001-12000`)"
    ]


async def test_line_that_goes_on_is_shown_by_the_command_in_the_result(project, desk):
    (project / "a b").write_text("short\n" * 3 + "x" * 2000 + "the rest\n" + "z" * 9000 + "\n")
    told = await desk.told(read, path="a b", offset=2)
    [command] = re.findall(r"bash `(.*)`\)$", told)
    done = await anyio.run_process(command, cwd=project)
    assert done.stdout == b"the rest\n"


async def test_line_of_a_large_file_goes_on_as_well(project, desk):
    (project / "large").write_text("x" * (9 << 20))
    told = await desk.told(read, path="large")
    assert "line 1 goes on: bash `sed -n '1{p;q}' large | cut -c2001-12000`" in told


async def test_cut_lines_that_bash_cannot_show_have_no_command(project, desk):
    (project / "wide").write_bytes(("x" * 5000 + "\n").encode("utf-16"))
    told = await desk.told(read, path="wide")
    assert "cut: the line has" in told
    assert "goes on" not in told


@pytest.mark.parametrize(
    "data, note",
    [
        (b"a\r\nb\r\n", "CRLF line endings"),
        (b"caf\xe9\n", "Latin-1"),
        (b"\xef\xbb\xbfa\n", "UTF-8 with BOM"),
        ("a\n".encode("utf-16"), "UTF-16 LE with BOM"),
        (b"a\nb", "no newline at the end"),
        (b"a\r\nb\n", "mixed line endings"),
    ],
)
async def test_what_is_unusual_about_a_file_is_said(project, desk, data, note):
    (project / "odd").write_bytes(data)
    last = (await desk.told(read, path="odd")).split("\n")[-1]
    assert note in last


async def test_empty_file_is_said_to_be_empty(project, desk):
    (project / "empty").touch()
    assert await desk.told(read, path="empty") == "(empty file)"


async def test_line_after_the_last_is_an_error_with_the_count(project, desk):
    (project / "a").write_text("one\n")
    said = await desk.refusal(read, path="a", offset=2)
    assert said == "The file has 1 lines: there is no line 2."


async def test_directory_is_listed(project, desk):
    (project / "sub").mkdir()
    (project / "file").touch()
    (project / "link").symlink_to("file")
    os.mkfifo(project / "pipe")
    lines = (await desk.told(read, path=".")).split("\n")
    assert lines[0].endswith("is a directory with 4 entries:")
    assert lines[1:] == ["file", "link@", "pipe (special file)", "sub/"]


@prove
async def test_name_in_a_listing_stays_on_its_line(project, confined):
    (project / "a\n(9 lines)\x1b").touch()
    (project / os.fsdecode(b"b\xff")).touch()
    lines = (await confined.told(read, path=".")).split("\n")
    assert lines[1:] == ["a\\x0a(9 lines)\\x1b", "b\\xff"]


async def test_directory_with_many_names_is_listed_in_part(project, desk):
    for number in range(600):
        (project / f"{number:03}").touch()
    lines = (await desk.told(read, path=".")).split("\n")
    assert lines[-2:] == ["499", "… and 100 more"]


@pytest.mark.parametrize(
    "data, kind",
    [(png(), "image/png"), (jpeg(), "image/jpeg"), (gif(), "image/gif"), (webp(), "image/webp")],
)
async def test_image_is_shown_as_one(project, desk, data, kind):
    (project / "image").write_bytes(data)
    text, image = (await desk.use(read, path="image")).content
    assert isinstance(image, ImageBlock)
    assert text.text == f"image: {kind}, {len(data)} bytes"
    assert image.source.media_type == kind
    assert base64.b64decode(image.source.data) == data


async def test_image_that_the_api_would_refuse_is_not_sent(project, desk):
    for size, is_sent in ((MAX_IMAGE_BYTES, True), (MAX_IMAGE_BYTES + 1, False)):
        (project / "image").write_bytes(png().ljust(size, b"x"))
        if is_sent:
            content = (await desk.use(read, path="image")).content
            assert len(content[1].source.data) <= 5 << 20
        else:
            assert "Make it smaller first" in await desk.refusal(read, path="image")
    for data, words in (
        (png(100, 9000), "9000 pixels high; at most 8000. Make it smaller first."),
        (jpeg(9000, 100), "9000 pixels wide; at most 8000. Make it smaller first."),
        (png()[:-5], "it is cut off."),
        (png(0, 1), "it is 0x1 pixels."),
    ):
        (project / "image").write_bytes(data)
        said = await desk.refusal(read, path="image")
        assert said == f"image is an image that cannot be shown: {words}"


async def test_binary_file_is_named_as_such(project, desk):
    (project / "program").write_bytes(b"\x7fELF" + bytes(5000))
    assert await desk.told(read, path="program") == "program is a binary file of 5,004 bytes."


@prove
async def test_missing_file_gets_the_names_that_are_like_it(project, confined):
    for name in ("config.py", "Config.toml", "confug.py", "other.txt"):
        (project / name).touch()
    said = await confined.refusal(read, path="confg.py")
    assert said.startswith("confg.py does not exist, or the sandbox hides it. Did you mean ")
    assert "config.py" in said
    assert "other.txt" not in said
    said = await confined.refusal(read, path="nothing-like-it")
    assert said == "nothing-like-it does not exist, or the sandbox hides it."
    said = await confined.refusal(read, path="no/such/directory")
    assert said == "no/such/directory does not exist, or the sandbox hides it."


@pytest.mark.parametrize("level", prove_rest(["full", "landlock"], keep=(-1,)))
async def test_hidden_file_is_told_from_none_by_nothing_but_its_mode(place, level):
    secret = place.base / "secret"
    secret.write_text("secret\n")
    async with place.desk(is_on=True, level=level) as desk:
        for tool, data in ((read, {}), (edit, {"edits": [{"old": "secret", "new": "x"}]})):
            said = await desk.refusal(tool, path=str(secret), **data)
            assert "the sandbox hides it" in said or "the sandbox forbids it" in said
    assert secret.read_text() == "secret\n"


async def test_what_is_no_file_is_told_and_not_waited_for(project, desk):
    os.mkfifo(project / "pipe")
    for tool, data in (
        (read, {}),
        (write, {"content": "x"}),
        (edit, {"edits": [{"old": "a", "new": "b"}]}),
    ):
        assert await desk.refusal(tool, path="pipe", **data) == "pipe is not a regular file."


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "~\0"])
async def test_name_that_no_file_can_have_is_told(desk, path):
    assert "is not a valid path" in await desk.refusal(read, path=path)


async def test_name_that_is_too_long_is_told(desk):
    assert "File name too long" in await desk.refusal(read, path="x" * 300)
    assert "File name too long" in await desk.refusal(write, path="x" * 300, content="")


async def test_file_below_home_is_found_by_tilde(place, desk):
    (place.home / "notes").write_text("note\n")
    assert await desk.told(read, path="~/notes") == "1\tnote\n(1 line)"


@prove
async def test_large_file_is_paged_without_being_read(project, confined):
    with (project / "huge").open("wb") as file:
        file.write(b"".join(b"line %d\n" % n for n in range(1, 200_001)))
        file.truncate(5 << 30)
    told = await confined.told(read, path="huge")
    assert told.startswith("1\tline 1\n")
    assert told.endswith("continue with offset=2001; 5,368,709,120 bytes)")
    assert "(lines 1-2000 of more than " in told
    told = await confined.told(read, path="huge", offset=199_999, limit=2)
    assert told.startswith("199999\tline 199999\n200000\tline 200000\n(lines 199999-200000 of")


async def test_large_file_whose_end_is_near_is_counted(project, desk):
    (project / "large").write_bytes(b"0123456789abcde\r\n" * 600_000)
    told = await desk.told(read, path="large", offset=600_000)
    assert told == "600000\t0123456789abcde\n(lines 600000-600000 of 600000; 10,200,000 bytes)"
    said = await desk.refusal(read, path="large", offset=600_001)
    assert said == "The file has 600,000 lines: there is no line 600001."


async def test_large_file_of_two_byte_characters_is_refused(project, desk):
    (project / "large").write_bytes(("line\n" * 1_000_000).encode("utf-16"))
    assert "UTF-16 LE and too large to be paged" in await desk.refusal(read, path="large")


# --- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on", [True, False])
async def test_new_file_is_created_with_its_directories(place, project, is_on):
    async with place.desk(is_on=is_on) as desk:
        outcome = await desk.use(write, path="src/deep/a.py", content="one\ntwo\n")
    assert outcome.content == "Created src/deep/a.py: 2 lines, 8 bytes."
    assert (outcome.summary, outcome.filetype) == ("+2 −0", "diff")
    assert outcome.detail == "@@ -0,0 +1,2 @@\n+one\n+two"
    assert (project / "src/deep/a.py").read_text() == "one\ntwo\n"


async def test_file_that_was_read_is_replaced(project, confined):
    (project / "a").write_text("one\ntwo\nthree\n")
    (project / "a").chmod(0o755)
    await confined.use(read, path="a")
    outcome = await confined.use(write, path="a", content="one\n2\nthree\n")
    assert outcome.content == "Replaced a: 3 lines, 12 bytes (+1 −1)."
    assert outcome.detail == "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"
    await confined.use(write, path="a", content="again\n")
    assert (project / "a").read_text() == "again\n"
    assert (project / "a").stat().st_mode & 0o777 == 0o755


async def test_file_that_was_not_read_is_not_replaced_until_its_loss_was_shown(project, desk):
    (project / "a").write_text("one\ntwo\n")
    said = await desk.refusal(write, path="a", content="one\n")
    assert said == (
        "a exists, and you have not read it. The change would be:\n@@ -1,2 +1,1 @@\n one\n-two\n"
        "Nothing was written. To replace it anyway, call write again."
    )
    assert (project / "a").read_text() == "one\ntwo\n"
    await desk.use(write, path="a", content="one\n")
    assert (project / "a").read_text() == "one\n"


async def test_file_whose_loss_is_too_long_to_show_must_be_read(project, desk):
    text = "".join(f"{n}\n" for n in range(100))
    (project / "a").write_text(text)
    for _ in range(2):
        said = await desk.refusal(write, path="a", content="x\n")
        assert said.endswith("… and more\nNothing was written. Read it first, or use edit.")
        assert len(said.split("\n")) < 45
    await desk.use(read, path="a")
    await desk.use(write, path="a", content="x\n")
    assert (project / "a").read_text() == "x\n"


async def test_file_that_has_changed_since_it_was_read_is_not_replaced(project, desk):
    (project / "a").write_text("one\ntwo\n")
    await desk.use(read, path="a")
    (project / "a").write_text("one\nTWO\n")
    said = await desk.refusal(write, path="a", content="new\n")
    assert said.startswith("a has changed since you read it, not by you:\n")
    assert "-two\n+TWO" in said
    assert (project / "a").read_text() == "one\nTWO\n"
    (project / "a").write_text("one\nthree\n")
    assert "-TWO\n+three" in await desk.refusal(write, path="a", content="new\n")
    await desk.use(write, path="a", content="new\n")
    assert (project / "a").read_text() == "new\n"


async def test_change_of_the_line_endings_alone_is_no_change(project, desk):
    (project / "a").write_bytes(b"one\ntwo\n")
    await desk.use(read, path="a")
    (project / "a").write_bytes(b"one\r\ntwo\r\n")
    await desk.use(write, path="a", content="new\nlines\n")
    assert (project / "a").read_bytes() == b"new\r\nlines\r\n"


async def test_empty_file_may_be_filled_without_being_read(project, desk):
    (project / "a").touch()
    await desk.use(write, path="a", content="x\n")
    await desk.use(write, path="a", content="y\n")
    assert (project / "a").read_text() == "y\n"


@pytest.mark.parametrize(
    "old, content, new",
    prove_rest(
        [
            (b"a\r\nb\r\n", "c\nd", b"c\r\nd"),
            (b"a\r\nb\r\n", "c\r\nd\n", b"c\r\nd\n"),
            (b"a\r\nb\n", "c\nd\n", b"c\nd\n"),
            (b"a\nb\n", "c\r\nd\r\n", b"c\r\nd\r\n"),
            (b"\xef\xbb\xbfa\n", "ä\n", b"\xef\xbb\xbf\xc3\xa4\n"),
            (b"\xef\xbb\xbfa\n", "\ufeffä\n", b"\xef\xbb\xbf\xc3\xa4\n"),
            (b"caf\xe9\n", "ni\xf1o\n", b"ni\xf1o\n"),
            ("a\n".encode("utf-16"), "€\n", "€\n".encode("utf-16")),
            (b"a\n", "no newline", b"no newline"),
            (b"a\n", "", b""),
        ]
    ),
)
async def test_replaced_file_keeps_encoding_and_line_endings(project, desk, old, content, new):
    (project / "a").write_bytes(old)
    await desk.use(read, path="a")
    await desk.use(write, path="a", content=content)
    assert (project / "a").read_bytes() == new


async def test_character_that_the_encoding_lacks_is_refused(project, desk):
    (project / "a").write_bytes(b"caf\xe9\n")
    await desk.use(read, path="a")
    said = await desk.refusal(write, path="a", content="one\ntwo → three\n")
    assert said.startswith(
        "The file is Latin-1, which has no “→” (U+2192 RIGHTWARDS ARROW), in line 2 of the content."
    )
    assert "UTF-8" in await desk.refusal(write, path="new", content="\ud800")
    assert (project / "a").read_bytes() == b"caf\xe9\n"
    assert not (project / "new").exists()


async def test_content_that_is_there_already_is_not_written(project, desk):
    (project / "a").write_text("same\n")
    before = (project / "a").stat()
    outcome = await desk.use(write, path="a", content="same\n")
    assert outcome.content == "No change: it already has this content."
    assert (project / "a").stat().st_ino == before.st_ino
    assert (project / "a").stat().st_mtime_ns == before.st_mtime_ns


async def test_directory_is_not_written(place, desk):
    assert await desk.refusal(write, path=".", content="x") == f"{place.project} is a directory."


async def test_file_too_large_to_be_changed_is_left_alone(project, desk):
    with (project / "huge").open("wb") as file:
        file.truncate((64 << 20) + 1)
    for tool, data in (
        (write, {"content": "x"}),
        (edit, {"edits": [{"old": "a", "new": "b"}]}),
    ):
        said = await desk.refusal(tool, path="huge", **data)
        assert said == "huge has 67,108,865 bytes; the limit is 67,108,864. Use bash."


async def test_link_is_written_through_and_known_by_both_names(project, confined):
    (project / "a").write_text("one\n")
    (project / "link").symlink_to("a")
    await confined.use(read, path="link")
    await confined.use(write, path="link", content="two\n")
    await confined.use(write, path="a", content="three\n")
    await confined.use(edit, path="link", edits=[{"old": "three", "new": "3"}])
    assert "since you read it" not in await confined.told(write, path="a", content="four\n")
    assert (project / "link").is_symlink()
    assert (project / "a").read_text() == "four\n"


# --- editing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_on", [True, False])
async def test_exact_edit_says_in_one_line_which_lines_are_new(place, project, is_on):
    (project / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    async with place.desk(is_on=is_on) as desk:
        outcome = await desk.use(
            edit,
            path="a.py",
            edits=[{"old": "line 5\n", "new": "five\nand more\n"}, {"old": "line 15", "new": "x"}],
        )
    assert outcome.content == "Changed a.py: +3 −2, now lines 5-6, 16."
    assert outcome.summary == "+3 −2"
    assert outcome.filetype == "diff"
    assert "-line 5\n+five\n+and more\n" in outcome.detail
    assert (
        (project / "a.py")
        .read_text()
        .startswith("line 1\nline 2\nline 3\nline 4\nfive\nand more\n")
    )


@pytest.mark.parametrize(
    "edits, content",
    [
        ([{"old": "line 5\n", "new": ""}], "Changed a: +0 −1, removed after line 4."),
        (
            [{"old": "line 5\n", "new": ""}, {"old": "line 9", "new": "9"}, {"old": "line 12", "new": "12\n12"}],
            "Changed a: +3 −3, now lines 8, 11-12; removed after line 4.",
        ),
        ([{"old": "line ", "new": "L", "replace_all": True}], "Changed a: +20 −20, now lines 1-20."),
    ],
)  # fmt: skip
async def test_exact_edit_names_lines_that_are_gone_too(project, desk, edits, content):
    (project / "a").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    assert await desk.told(edit, path="a", edits=edits) == content


async def test_many_changed_places_are_counted(project, desk):
    (project / "a").write_text("x\ny\n" * 30)
    told = await desk.told(edit, path="a", edits=[{"old": "x", "new": "z", "replace_all": True}])
    assert told.startswith("Changed a: +30 −30, now lines 1, 3, 5, ")
    assert told.endswith(", 39 and 10 more.")


async def test_lines_are_shown_where_the_model_did_not_write_just_them(project, desk):
    (project / "a").write_text("if x:\n\tone\n\ttwo\nend\n")
    told = await desk.told(
        edit, path="a", edits=[{"old": "    one\n    two", "new": "    1\n    2"}]
    )
    assert told.startswith("Changed a: +2 −2.\n1\tif x:\n2\t\t1\n3\t\t2\n4\tend\n")
    told = await desk.told(edit, path="a", edits=[{"new": "0", "insert_at_line": 0}])
    assert told == "Changed a: +1 −0.\n1\t0\n2\tif x:\n3\t\t1"


async def test_a_file_that_a_result_has_shown_in_full_counts_as_read(project, desk):
    (project / "a").write_text("one\ntwo\n")
    (project / "b").write_text("one\ntwo\nthree\nfour\n")
    edits = [{"new": "0", "insert_at_line": 0}]
    assert "1\t0\n2\tone\n3\ttwo" in await desk.told(edit, path="a", edits=edits)
    await desk.use(write, path="a", content="new\n")
    assert (project / "a").read_text() == "new\n"
    await desk.use(edit, path="b", edits=edits)
    assert "and you have not read it" in await desk.refusal(write, path="b", content="new\n")


# --- the cases in which other agents were tried ------------------------------------------------------------------------

TABS = b"def f(x):\n\tif x:\n\t\treturn 1\n\treturn 2\n"


@pytest.mark.parametrize(
    "data, old, new, expected",
    prove_rest(
        [
            pytest.param(
                b"a\r\nb\r\nc\r\n", "b", "B", b"a\r\nB\r\nc\r\n", id="01 CRLF file, 1 line"
            ),
            pytest.param(
                b"a\r\nb\nc\r\nd\n",
                "b",
                "B\nB",
                b"a\r\nB\nB\nc\r\nd\n",
                id="02 mixed EOL, LF line (tie)",
            ),
            pytest.param(
                b"a\nb\nc\r\nd\n", "c", "C\nC", b"a\nb\nC\r\nC\r\nd\n", id="03 mixed EOL, mostly LF"
            ),
            pytest.param(
                b"\xef\xbb\xbfa\nb\n",
                "a\n",
                "A\n",
                b"\xef\xbb\xbfA\nb\n",
                id="04 UTF-8 BOM, edit line 1",
            ),
            pytest.param(
                b"\xff\xfe" + "äb\r\nc\r\n".encode("utf-16-le"),
                "äb\n",
                "äB\n",
                b"\xff\xfe" + "äB\r\nc\r\n".encode("utf-16-le"),
                id="05 UTF-16 + BOM",
            ),
            pytest.param(
                b"caf\xe9\nb\n", "b", "B", b"caf\xe9\nB\n", id="06 Latin-1 byte elsewhere"
            ),
            pytest.param(b"a\nb", "b", "B", b"a\nB", id="07 no final newline"),
            pytest.param(
                b"#!/bin/sh\necho a\n", "a\n", "b\n", b"#!/bin/sh\necho b\n", id="08 mode 0755"
            ),
            pytest.param(b"linked\n", "linked", "edited", b"edited\n", id="09 symlink"),
            pytest.param(b"shared\n", "shared", "edited", b"edited\n", id="10 hard link"),
            pytest.param(
                b"x = 1\ny = 2\nx = 1\n",
                "x = 1",
                "x = 3",
                "`old` occurs 2 times in app.py, in lines 1 and 3.",
                id="11 two matches",
            ),
            pytest.param(
                b"a\n",
                "a",
                r"$& $1 \1 $$ \g<0>",
                b"$& $1 \\1 $$ \\g<0>\n",
                id="12 `$& $1 \\1 $$` in new text",
            ),
            pytest.param(
                TABS,
                "    if x:\n        return 1\n",
                "    if x:\n        return 3\n",
                b"def f(x):\n\tif x:\n\t\treturn 3\n\treturn 2\n",
                id="13 spaces given, file has tabs",
            ),
            pytest.param(
                TABS,
                "    if x:\n        return 1",
                "    if x:\n        for y in x:\n            return y",
                b"def f(x):\n\tif x:\n\t\tfor y in x:\n\t\t\treturn y\n\treturn 2\n",
                id="14 spaces given, file has tabs, a deeper line",
            ),
            pytest.param(
                b"def f():\n    one()\n    return 1\n",
                "def f():\n    two()\n    return 1\n",
                "",
                "`old` is not in app.py. The closest text:\n"
                "     1 def f():\n"
                "     2     one()\n"
                "     3     return 1\n"
                "Line 2 of `old` has no match:     two()",
                id="15 first+last line match, body differs",
            ),
            pytest.param(
                b"a \t\nb\n", "a \t\n", "A \t\n", b"A \t\nb\n", id="16 trailing space/tab"
            ),
            pytest.param(
                b"a\n\n\n", "a\n\n\n", "b\n\n\n", b"b\n\n\n", id="17 trailing blank lines"
            ),
            pytest.param(
                b"new\na\n",
                "a\n",
                "b\n",
                b"new\nb\n",
                id="18 changed on disk since read, text still unique",
            ),
        ],
        keep=(0, 1, 4, 10, -1),
    ),
)
async def test_of_the_18_cases_in_which_others_fail(place, request, *, data, old, new, expected):
    """The names are the rows of a table: five other agents pass 13 to 15 of these."""
    case = request.node.callspec.id
    path = file = place.project / "app.py"
    file.write_bytes(b"before\n" if "since read" in case else data)
    file.chmod(0o755 if "mode" in case else 0o640)
    if "link" in case:
        path = place.project / "link.py"
        path.symlink_to(file) if "symlink" in case else path.hardlink_to(file)
    before = file.lstat()
    async with place.desk(is_on=True) as desk:
        await desk.use(read, path=str(path))
        file.write_bytes(data)
        edits = [{"old": old, "new": new}]
        if isinstance(expected, str):
            assert expected in await desk.refusal(edit, path=str(path), edits=edits)
            expected = data
        else:
            told = await desk.told(edit, path=str(path), edits=edits)
            assert ("-before" in told) == ("since read" in case)
    assert file.read_bytes() == path.read_bytes() == expected
    assert (file.lstat().st_mode, file.lstat().st_nlink) == (before.st_mode, before.st_nlink)
    assert path.is_symlink() == ("symlink" in case)
    if expected.startswith(b"def"):
        compile(expected, "app.py", "exec")


# --- any edit of any file on the disk ----------------------------------------------------------------------------------

FILES_AT_ONCE = 250
MODES = [0o600, 0o640, 0o644, 0o755, 0o700, 0o1644]


@dataclass
class FileOnDisk:
    """A file of any bytes, mode, links and attributes, and an edit of it by any of its names."""

    path: Path
    chance: random.Random

    def __post_init__(self) -> None:
        self.asked: AnyEdit | None = None
        while self.asked is None:
            self.file = AnyFile(self.chance)
            self.asked = any_edit(self.file, self.chance)
        self.path.write_bytes(self.file.data)
        self.path.chmod(self.chance.choice(MODES))
        if self.chance.random() < 0.5:
            with suppress(OSError):  # not every file system has them
                os.setxattr(self.path, "user.note", self.chance.randbytes(9))
        self.link = self.path.with_suffix(".link")
        self.kind = self.chance.choice(["none", "symbolic", "hard"])
        if self.kind == "symbolic":
            self.link.symlink_to(self.path.name)
        elif self.kind == "hard":
            self.link.hardlink_to(self.path)
        self.before = self._state()

    async def check(self, desk: Desk) -> None:
        """Edit it, and look at what has become of every byte and of all else."""
        assert self.asked
        name = str(
            self.chance.choice([self.path, self.link] if self.kind != "none" else [self.path])
        )
        edits = [msgspec.to_builtins(self.asked.replacement)]
        if self.asked.refusal:
            assert self.asked.refusal in await desk.refusal(edit, path=name, edits=edits)
            assert self.path.read_bytes() == self.file.data
        else:
            await desk.use(edit, path=name, edits=edits)
            assert self.asked.is_made_of(self.path.read_bytes()), (self.file.data, self.asked)
        assert self._state() == self.before

    def _state(self) -> tuple[object, ...]:
        status = self.path.lstat()
        notes = {name: os.getxattr(self.path, name) for name in os.listxattr(self.path)}
        is_same = self.link.exists() and self.link.samefile(self.path)
        kept_inode = status.st_ino if self.kind == "hard" else 0
        return (
            status.st_mode,
            status.st_uid,
            status.st_nlink,
            kept_inode,
            notes,
            is_same,
            self.link.is_symlink(),
        )


@prove
@pytest.mark.parametrize("seed", range(part(20)))
@pytest.mark.parametrize("is_on", [True, False])
async def test_no_edit_on_the_disk_changes_anything_else(place, project, is_on, seed):
    chance = random.Random(f"edits on the disk {is_on} {seed}")
    async with place.desk(is_on=is_on) as desk:
        # Made first, edited then: a file that has just changed is looked at for 10 ms longer.
        files = [FileOnDisk(project / f"{n}.py", chance) for n in range(FILES_AT_ONCE)]
        names = set(project.iterdir())
        for file in files:
            await file.check(desk)
        assert set(project.iterdir()) == names


# --- edits as such -----------------------------------------------------------------------------------------------------


async def test_edits_are_all_made_or_none(project, desk):
    (project / "a").write_text("one\ntwo\n")
    edits = [{"old": "one", "new": "1"}, {"old": "three", "new": "3"}]
    assert "Replacement 2" in await desk.refusal(edit, path="a", edits=edits)
    assert (project / "a").read_text() == "one\ntwo\n"


async def test_bytes_around_an_edit_stay(project, desk):
    (project / "a").write_bytes(b"\xff\xfe" + "ä\r\nb\nc".encode("utf-16-le"))
    await desk.use(edit, path="a", edits=[{"old": "b", "new": "€"}])
    assert (project / "a").read_bytes() == b"\xff\xfe" + "ä\r\n€\nc".encode("utf-16-le")


async def test_edit_of_a_missing_file_says_which_there_are(project, desk):
    (project / "config.py").touch()
    said = await desk.refusal(edit, path="confg.py", edits=[{"old": "a", "new": "b"}])
    assert said == "confg.py does not exist, or the sandbox hides it. Did you mean config.py?"


async def test_link_that_leads_nowhere_is_said_to_be_one(project, desk):
    (project / "config.py").symlink_to("gone.py")
    edits = [{"old": "a", "new": "b"}]
    for said in (
        await desk.refusal(read, path="config.py"),
        await desk.refusal(edit, path="config.py", edits=edits),
    ):
        assert said == ("config.py does not exist, or the sandbox hides it. It is a broken link.")


async def test_edit_of_a_file_that_has_changed_is_made_and_the_change_is_told(project, desk):
    (project / "a").write_text("one\ntwo\nthree\n")
    await desk.use(read, path="a")
    (project / "a").write_text("ONE\ntwo\nthree\n")
    told = await desk.told(edit, path="a", edits=[{"old": "three", "new": "3"}])
    assert told.startswith("Changed a: +1 −1.\n")
    assert "a has changed since you read it, not by you:\n@@ -1,3 +1,3 @@\n-one\n+ONE" in told
    told = await desk.told(edit, path="a", edits=[{"old": "two", "new": "2"}])
    assert "since you read it" not in told
    await desk.use(write, path="a", content="all known\n")
    assert (project / "a").read_text() == "all known\n"


async def test_insertion_by_number_waits_until_others_changes_are_known(project, desk):
    (project / "a").write_text("one\ntwo\n")
    await desk.use(read, path="a")
    (project / "a").write_text("zero\none\ntwo\n")
    edits = [{"new": "1.5\n", "insert_at_line": 1}]
    said = await desk.refusal(edit, path="a", edits=edits)
    assert said.startswith("Line numbers may have shifted: nothing was changed.\na has changed")
    assert "+zero" in said
    assert (project / "a").read_text() == "zero\none\ntwo\n"
    await desk.use(edit, path="a", edits=[{"new": "1.5\n", "insert_at_line": 2}])
    assert (project / "a").read_text() == "zero\none\n1.5\ntwo\n"


async def test_long_change_by_others_is_told_in_part_and_then_not_taken_for_known(project, desk):
    (project / "a").write_text("keep\n")
    await desk.use(read, path="a")
    (project / "a").write_text("keep\n" + "".join(f"{n}\n" for n in range(1000)))
    told = await desk.told(edit, path="a", edits=[{"old": "keep", "new": "kept"}])
    assert "… and more" in told
    assert len(told.split("\n")) < 60
    assert "you have not read it" in await desk.refusal(write, path="a", content="x\n")


async def test_edit_that_no_longer_fits_says_what_others_have_changed(project, desk):
    (project / "a").write_text("one\ntwo\n")
    await desk.use(read, path="a")
    (project / "a").write_text("one\nTWO\n")
    said = await desk.refusal(edit, path="a", edits=[{"old": "two", "new": "2"}])
    assert "-two\n+TWO" in said
    assert (project / "a").read_text() == "one\nTWO\n"


@prove
async def test_edits_of_one_file_by_any_name_happen_one_after_the_other(project, confined):
    (project / "a").write_text("0\n" * 20)
    (project / "link").symlink_to("a")
    (project / "hard").hardlink_to(project / "a")
    async with anyio.create_task_group() as tasks:
        for number in range(20):

            async def insert(number: int = number) -> None:
                edits = [{"new": f"new {number}\n", "insert_at_line": 1}]
                await confined.use(edit, path=random.choice(["a", "link", "hard"]), edits=edits)

            tasks.start_soon(insert)
    lines = (project / "a").read_text().split("\n")
    assert sorted(line for line in lines if "new" in line) == sorted(f"new {n}" for n in range(20))
    assert lines.count("0") == 20


async def test_file_that_changes_between_look_and_write_is_looked_at_again(project, confined):
    (project / "a").write_text("0")
    others = iter("1234")

    def propose(old: bytes | None) -> ProposedContent:
        if other := next(others, None):
            (project / "a").write_text(other)  # as long as before
        return ProposedContent((old or b"") + b" and ours")

    changed = await Change(confined.context(), str(project / "a"), propose).make()
    assert changed.old == "4"
    assert (project / "a").read_text() == "4 and ours"
    others = iter("123456")
    with pytest.raises(ToolError, match="keeps changing while you edit it"):
        await Change(confined.context(), str(project / "a"), propose).make()
    assert (project / "a").read_text() == "5"


async def test_in_plan_mode_nothing_is_changed_and_the_reason_is_told(place, project):
    (project / "a").write_text("one\n")
    for level, word in (
        ("full", "In plan mode everything is"),
        ("landlock", "the sandbox forbids it"),
    ):
        async with place.desk(is_on=True, mode="ro", level=level) as desk:
            await desk.use(read, path="a")
            for tool, data in (
                (write, {"path": "a", "content": "x"}),
                (write, {"path": "new/b", "content": "x"}),
                (edit, {"path": "a", "edits": [{"old": "one", "new": "1"}]}),
            ):
                assert word in await desk.refusal(tool, **data)
    assert [path.name for path in project.iterdir()] == ["a"]
    assert (project / "a").read_text() == "one\n"


async def test_what_could_make_the_machine_run_something_is_not_changed(project, confined):
    hooks = project / ".git/hooks"
    hooks.mkdir(parents=True)
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (project / ".git" / name).mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\n")
    for tool, data in (
        (write, {"path": ".git/hooks/post-commit", "content": "evil"}),
        (write, {"path": ".git/hooks/pre-commit", "content": "evil"}),
        (edit, {"path": ".git/hooks/pre-commit", "edits": [{"old": "sh", "new": "evil"}]}),
    ):
        assert "such as .git/hooks" in await confined.refusal(tool, **data)
        with pytest.raises(ToolError, match=r"such as \.git/hooks"):  # nobody is asked
            await confined.preview(tool, **data)
    assert (hooks / "pre-commit").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("level", ["full", "landlock"])
async def test_what_the_guard_would_take_away_is_refused_before_anybody_is_asked(
    place, project, level
):
    (project / ".idea").mkdir()
    (project / ".config").mkdir()
    (project / "alias").symlink_to(".vscode")
    (project / "dangling").symlink_to(".nvimrc")
    (project / ".mcp.json").write_text("{}")
    refused = {
        *(".envrc", ".vscode/tasks.json", ".claude/deep/er/hook.sh", "alias/tasks.json"),
        *("dangling", ".config/mise.toml", "sub/.git/hooks/pre-commit", "sub/.git"),
        *(".idea/workspace.xml", ".mcp.json", str(project / "sub/../.exrc")),
    }
    before = sorted(project.rglob("*"))
    async with place.desk(is_on=True, level=level) as desk:
        await desk.use(read, path=".mcp.json")
        for path in sorted(refused):
            with pytest.raises(ToolError, match=r"(cannot|may not) be written"):
                await desk.preview(write, path=path, content="evil")
            await desk.refusal(write, path=path, content="evil")
        said = await desk.refusal(write, path=".envrc", content="evil")
        assert said.startswith(".envrc cannot be written while the sandbox is open")
        assert sorted(project.rglob("*")) == before
        for path in ("sub/.envrc", "config", "sub/hooks/pre-commit", "AGENTS.md"):
            assert await desk.told(write, path=path, content="fine") == (
                f"Created {path}: 1 line, 4 bytes."
            )
        process = await desk.workspace.sandbox.environment.spawn(
            ["true"]
        )  # after which the guard looks
        await process.wait()
        process.close()
    for path in ("sub/.envrc", "config", "sub/hooks/pre-commit", "AGENTS.md"):
        assert (project / path).read_text() == "fine"
    assert (project / ".mcp.json").read_text() == "{}"


@prove
async def test_what_the_guard_would_take_away_is_refused_in_a_buffer_too(place, project):
    editor = MemoryEditor()
    editor.open(project / ".envrc")
    editor.type(project / ".envrc", "theirs\n")
    async with place.desk(editor, is_on=True) as desk:
        edits = [{"old": "theirs", "new": "evil"}]
        said = await desk.refusal(edit, path=".envrc", edits=edits)
    assert said.startswith(".envrc cannot be written while the sandbox is open")


@prove
async def test_what_the_guard_would_take_away_can_be_written_when_the_sandbox_is_off(
    project, confined
):
    await confined.refusal(write, path=".envrc", content="mine")
    confined.workspace.sandbox.switch(is_on=False)
    await happens(lambda: not supervisors(os.getpid()))  # it rests, and with it the guard
    assert await confined.told(write, path=".envrc", content="mine") == (
        "Created .envrc: 1 line, 4 bytes."
    )
    assert (project / ".envrc").read_text() == "mine"


async def test_use_that_began_in_the_sandbox_stays_in_it_when_that_is_switched_off(place, confined):
    outside = place.home / "notes"
    outside.write_text("mine")
    use = Desk(confined.workspace.granted(NO_GRANT))
    confined.workspace.sandbox.switch(is_on=False)
    with suppress(ToolError):
        await use.told(write, path=str(outside), content="x")
    assert "mine" not in await use.told(grep, path=str(outside), pattern="m.ne")
    assert outside.read_text() == "mine"


async def test_what_lies_outside_is_not_changed(confined):
    said = await confined.refusal(edit, path="/etc/hostname", edits=[{"old": "a", "new": "b"}])
    assert said.startswith("/etc/hostname cannot be written: ") or "does not exist" in said


@prove
async def test_file_of_ten_megabytes_is_edited(project, confined):
    data = b"".join(b"line %d with some text\n" % n for n in range(400_000))
    (project / "ten").write_bytes(data)
    edits = [{"old": "line 200000 with", "new": "LINE"}]
    told = await confined.told(edit, path="ten", edits=edits)
    assert told == "Changed ten: +1 −1, now line 200001."
    assert (project / "ten").read_bytes() == data.replace(b"line 200000 with", b"LINE")


async def test_preview_shows_the_difference_and_changes_nothing(project, confined):
    (project / "a").write_text("one\ntwo\n")
    await confined.use(read, path="a")
    shown = await confined.preview(edit, path="a", edits=[{"old": "two", "new": "2"}])
    assert shown == Preview("@@ -1,2 +1,2 @@\n one\n-two\n+2", "diff")
    shown = await confined.preview(write, path="new", content="x\n")
    assert shown == Preview("@@ -0,0 +1,1 @@\n+x", "diff")
    for tool, data in (
        (edit, {"path": "a", "edits": [{"old": "none", "new": "2"}]}),
        (edit, {"path": "none", "edits": [{"old": "none", "new": "2"}]}),
        (write, {"path": "/etc/hostname", "content": "x"}),
    ):
        with pytest.raises(ToolError):
            await confined.preview(tool, **data)
    assert [path.name for path in project.iterdir()] == ["a"]
    assert (project / "a").read_text() == "one\ntwo\n"


@pytest.mark.parametrize(
    "tool, data, reason",
    prove_rest(
        [
            (edit, {"edits": [{"old": "my note is", "new": "x"}]}, "The closest text"),
            (write, {"content": "x\n"}, "-my note was\n+x"),
        ],
        keep=(-1,),
    ),
)
async def test_what_a_hidden_file_holds_is_told_to_the_person_before_it_is_granted(
    place, confined, tool, data, reason
):
    outside = place.home / "notes.txt"
    outside.write_text("my note was\n")
    grant = Grant(write_paths=(str(outside),))
    async with confined.workspace.sandbox.environment.lending(grant):
        context = Context(confined.workspace.granted(grant), "t1", lambda _: None)
        assert tool.look
        preview = await tool.look(tool.parse({"path": str(outside), **data}), context)
    assert reason in preview.subject
    assert "my note was" in preview.subject


async def test_effect_names_the_whole_path(project, desk):
    for tool, kind, data in (
        (read, "read", {}),
        (write, "write", {"content": ""}),
        (edit, "write", {"edits": [{"old": "a", "new": "b"}]}),
    ):
        args = tool.parse({"path": "sub/../a", **data})
        effect = tool.effect(args, desk.workspace)
        assert (effect.tool, effect.kind, effect.path) == (tool.name, kind, f"{project}/a")
        assert tool.title(args, desk.workspace) == "a"


# --- an editor ---------------------------------------------------------------------------------------------------------


def identity_of(path: Path) -> Identity:
    try:
        status, place = path.stat(), ""
    except FileNotFoundError:
        above = next(each for each in path.parents if each.exists())
        status, place = above.stat(), str(path)
    return Identity(status.st_dev, status.st_ino, place)


class MemoryEditor:
    """An editor without a screen: a face like any other. The functions let somebody act at that moment."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.undo: list[tuple[str, str]] = []  # tool use, and the text before it
        self.written: list[str] = []
        self.heard: list[str] = []  # files that have changed
        self.changed: list[tuple[str, tuple[Hunk, ...]]] = []  # files on the disk, by a tool
        self.changed_tick = 0
        self.before_change: Callable[[], None] = lambda: None
        self.after_change: Callable[[], None] = lambda: None
        self.format: Callable[[str], str] = lambda text: text
        self.is_silent = False
        self.has_place = False  # for a review

    def open(self, path: Path, **options: object) -> None:
        buffer = Buffer(len(self.buffers) + 1, str(path), 1, "", is_modified=False)
        buffer = msgspec.structs.replace(buffer, **options)
        text = text_in(buffer, path.read_bytes()) if path.exists() else ""
        self._keep(buffer, text=text)

    def type(self, path: Path, text: str) -> None:
        """The person changes the text."""
        self._keep(self.buffers[str(path)], text=text, is_modified=True)

    def save(self, path: Path) -> None:
        buffer = self.buffers[str(path)]
        path.write_bytes(bytes_of(buffer))
        self._keep(buffer, is_modified=False)

    def text(self, path: Path) -> str:
        return self.buffers[str(path)].text

    def is_modified(self, path: Path) -> bool:
        return self.buffers[str(path)].is_modified

    async def buffer(self, path: str, identity: Identity) -> Buffer | None:
        await anyio.lowlevel.checkpoint()
        if self.is_silent:
            raise ToolError("Neovim waits for a key.")
        buffer = self.buffers.get(os.path.realpath(path))  # noqa: ASYNC240
        return buffer if buffer and identity == identity_of(Path(buffer.path)) else None

    async def opened(self, path: str, identity: Identity, tool_use_id: str) -> Buffer | None:
        assert tool_use_id
        if self.has_place and path not in self.buffers:
            self.open(Path(path))
        return await self.buffer(path, identity) if self.has_place else None

    async def again(self, buffer: Buffer) -> Buffer | None:
        await anyio.lowlevel.checkpoint()
        return self.buffers.get(os.path.realpath(buffer.path))  # noqa: ASYNC240

    async def change(self, buffer: Buffer, hunks: tuple[Hunk, ...], tool_use_id: str) -> bool:
        await anyio.lowlevel.checkpoint()
        self.before_change()
        now = self.buffers[buffer.path]
        if now.tick != buffer.tick:
            return False
        if hunks:
            if not (self.undo and self.undo[-1][0] == tool_use_id):
                self.undo.append((tool_use_id, now.text))
            lines = now.text.split("\n")
            for hunk in reversed(hunks):
                lines[hunk.first_line : hunk.first_line + hunk.line_count] = hunk.lines
            self._keep(now, text="\n".join(lines), is_modified=True)
        self.changed_tick = self.buffers[buffer.path].tick
        self.after_change()
        return True

    async def before_write(self, buffer: Buffer) -> Buffer | None:
        await anyio.lowlevel.checkpoint()
        now = self.buffers[buffer.path]
        if now.is_modified and now.tick != self.changed_tick:
            return None
        if (text := self.format(now.text)) != now.text:
            self._keep(now, text=text)
        return self.buffers[buffer.path]

    async def after_write(self, buffer: Buffer, stamp: Stamp) -> None:
        status = Path(buffer.path).stat()  # noqa: ASYNC240
        assert (status.st_ino, status.st_size) == (stamp.inode, stamp.size)
        self.written.append(buffer.path)
        await self.not_written(buffer)

    async def not_written(self, buffer: Buffer) -> None:
        await anyio.lowlevel.checkpoint()
        now = self.buffers[buffer.path]
        if now.tick == buffer.tick:
            self.buffers[buffer.path] = msgspec.structs.replace(now, is_modified=False)

    async def unsaved(self) -> tuple[str, ...]:
        return tuple(path for path, buffer in self.buffers.items() if buffer.is_modified)

    async def save_buffer(self, path: str) -> str:
        return f"{path}: not here."

    async def files_changed(self, paths: tuple[str, ...]) -> None:
        await anyio.lowlevel.checkpoint()
        self.heard += paths
        for path in map(os.path.realpath, paths):
            buffer = self.buffers.get(path)
            if buffer and not buffer.is_modified and Path(path).exists():  # noqa: ASYNC240
                self._keep(buffer, text=text_in(buffer, Path(path).read_bytes()))  # noqa: ASYNC240

    async def changed_on_disk(self, path: str, hunks: tuple[Hunk, ...], tool_use_id: str) -> None:
        assert tool_use_id
        self.changed.append((path, hunks))
        await self.files_changed((path,))

    async def watch(self, buffer: Buffer, watch: str) -> None:
        raise ToolError(f"no language server says anything of {buffer.path} to {watch}")

    async def new_diagnostics(
        self, watches: tuple[str, ...], *, waits: bool
    ) -> tuple[Diagnostic, ...]:
        raise ToolError(f"nothing is watched: {watches}, {waits}")

    def _keep(self, buffer: Buffer, **changes: object) -> None:
        changed = msgspec.structs.replace(buffer, tick=buffer.tick + 1, **changes)
        self.buffers[os.path.realpath(buffer.path)] = changed


@dataclass
class Open:
    """A file with a text that is open in an editor."""

    place: Place
    editor: MemoryEditor = field(default_factory=MemoryEditor)

    @property
    def path(self) -> Path:
        return self.place.project / "a"

    @property
    def text(self) -> str:
        return self.editor.text(self.path)


@pytest.fixture
def opened(place) -> Open:
    opened = Open(place)
    opened.path.write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    opened.editor.open(opened.path)
    return opened


TWO = [{"old": "two", "new": "2"}]
SIX = [{"old": "six", "new": "6"}]


ENCODINGS = ["cp932", "gb18030", "euc-kr", "big5", "cp1251", "koi8-r", "utf-16le"]
WORDS = {
    "cp932": "ポート|表",
    "gb18030": "中文|镕",
    "euc-kr": "한국|어",
    "big5": "功能|許",
    "cp1251": "привет|мир",
    "koi8-r": "привет|мир",
    "utf-16le": "Größe|日本",
}


@pytest.mark.parametrize("encoding", prove_rest(ENCODINGS, is_one=True))
async def test_what_is_read_in_a_buffer_is_found_and_written_in_its_encoding(
    place, opened, encoding
):
    text = f"// {WORDS[encoding]}\n" * 2
    opened.path.write_bytes(text.encode(encoding))
    opened.editor.open(opened.path, encoding=encoding)
    old, _, rest = WORDS[encoding].partition("|")
    async with place.desk(opened.editor) as desk:
        told = await desk.told(read, path="a")
        assert WORDS[encoding] in told
        assert f"not UTF-8; shown as {encoding}" in told
        await desk.use(
            edit, path="a", edits=[{"old": f"{old}|", "new": f"{rest} or ", "replace_all": True}]
        )
        assert opened.text == f"// {rest} or {rest}\n" * 2
        assert opened.path.read_bytes() == opened.text.encode(encoding)
        await desk.use(write, path="a", content=f"{old}\n")
        assert opened.path.read_bytes() == f"{old}\n".encode(encoding)


@pytest.mark.parametrize("is_modified", [False, True])
async def test_a_character_that_the_encoding_of_the_buffer_has_not_is_refused_by_name(
    place, opened, is_modified
):
    before = "// 表 two\n".encode("cp932")
    opened.path.write_bytes(before)
    opened.editor.open(opened.path, encoding="cp932")
    if is_modified:
        opened.editor.type(opened.path, "// 表 two!\n")
    text = opened.text
    async with place.desk(opened.editor) as desk:
        said = await desk.refusal(edit, path="a", edits=[{"old": "two", "new": "\u00e9"}])
    assert "“é” (U+00E9 LATIN SMALL LETTER E WITH ACUTE)" in said
    assert (opened.path.read_bytes(), opened.text) == (before, text)


async def test_unsaved_text_is_what_is_read(place, opened):
    opened.editor.type(opened.path, "unsaved\n")
    async with place.desk(opened.editor, is_on=True) as desk:
        assert (
            await desk.told(read, path="a") == "1\tunsaved\n(1 line; unsaved changes in the editor)"
        )


async def test_what_is_unusual_about_the_file_of_a_buffer_is_said(place, opened):
    opened.path.write_bytes(b"one\r\ntwo")
    opened.editor.open(opened.path, line_ending="dos")
    async with place.desk(opened.editor) as desk:
        told = await desk.told(read, path="a")
    assert told.endswith("(2 lines; CRLF line endings; no newline at the end)")


async def test_editor_is_told_of_a_file_that_it_has_no_buffer_of(place, opened):
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(write, path="new", content="x\n")
        await desk.use(edit, path="new", edits=[{"old": "x", "new": "y"}])
    name = str(place.project / "new")
    assert opened.editor.heard == [name] * 2
    assert opened.editor.changed == [(name, (Hunk(0, 0, ("x",)),)), (name, (Hunk(0, 1, ("y",)),))]
    assert opened.editor.written == []


async def test_buffer_without_changes_is_edited_and_written(place, opened):
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        told = await desk.told(edit, "use 7", path="a", edits=TWO)
        assert told == "Changed a: +1 −1, now line 2."
    assert opened.text == opened.path.read_text() == "one\n2\nthree\nfour\nfive\nsix\nseven\n"
    assert not opened.editor.is_modified(opened.path)
    assert opened.editor.undo == [("use 7", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n")]
    assert opened.editor.written == [str(opened.path)]


async def test_unsaved_changes_elsewhere_are_merged_and_not_written(place, opened):
    before = opened.path.read_text()
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        opened.editor.type(opened.path, before.replace("six", "SIX (unsaved)"))
        outcome = await desk.use(edit, path="a", edits=TWO)
        told = outcome.content
        assert isinstance(told, str)
        assert outcome.summary == "+1 −1 · not saved"
        assert told.startswith("Changed a in the editor: +1 −1.\n")
        assert "the file on disk was not written" in told
        assert "-six\n+SIX (unsaved)" in told
        assert "since you read it" not in await desk.told(
            edit, path="a", edits=[{"old": "one", "new": "1"}]
        )
    assert opened.text == "1\n2\nthree\nfour\nfive\nSIX (unsaved)\nseven\n"
    assert opened.path.read_text() == before
    assert opened.editor.is_modified(opened.path)


async def test_unsaved_changes_of_the_same_text_are_never_lost(place, opened):
    before = opened.path.read_text()
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        unsaved = before.replace("two", "zwei")
        opened.editor.type(opened.path, unsaved)
        said = await desk.refusal(edit, path="a", edits=TWO)
        assert said == (
            "The user has unsaved changes in a, line 2, in the same text. Nothing was changed."
            " Read the file again and edit its current text, or ask the user.\n2\tzwei"
        )
        assert (opened.text, opened.path.read_text()) == (unsaved, before)
        await desk.use(read, path="a")
        await desk.use(edit, path="a", edits=[{"old": "zwei", "new": "2"}])
    assert opened.text == before.replace("two", "2")
    assert opened.path.read_text() == before


async def test_text_quoted_from_the_buffer_is_replaced_there_next_to_unsaved_lines(place, opened):
    before = opened.path.read_text()
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        opened.editor.type(opened.path, before.replace("two\n", "# mine\ntwo\n"))
        spanning = [{"old": "one\ntwo\nthree", "new": "1"}]
        assert "unsaved changes in a" in await desk.refusal(edit, path="a", edits=spanning)
        edits = [{"old": "two\nthree", "new": "2\n3"}]
        preview = await desk.preview(edit, path="a", edits=edits)
        assert "\n # mine\n-two\n-three\n+2\n+3\n" in preview.subject
        await desk.use(edit, path="a", edits=edits)
    assert opened.text == "one\n# mine\n2\n3\nfour\nfive\nsix\nseven\n"
    assert opened.path.read_text() == before


async def test_line_number_next_to_unsaved_lines_is_that_of_the_text_as_read(place, opened):
    before = opened.path.read_text()
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        opened.editor.type(opened.path, "# mine\n" + before)
        await desk.use(edit, path="a", edits=[{"insert_at_line": 5, "new": "5.5"}])
    assert opened.text == "# mine\n" + before.replace("five\n", "five\n5.5\n")


async def test_unsaved_text_that_was_read_is_edited_as_it_is(place, opened):
    opened.editor.type(opened.path, "un\nsaved\n")
    async with place.desk(opened.editor) as desk:
        await desk.use(read, path="a")
        told = await desk.told(edit, path="a", edits=[{"old": "saved", "new": "written"}])
        assert "not by you" not in told
    assert opened.text == "un\nwritten\n"


async def test_text_that_only_the_buffer_has_is_found_in_it(place, opened):
    async with place.desk(opened.editor) as desk:
        await desk.use(read, path="a")
        opened.editor.type(opened.path, opened.text + "eight\n")
        await desk.use(edit, path="a", edits=[{"old": "eight", "new": "8"}])
    assert opened.text.endswith("seven\n8\n")


async def test_buffer_that_changes_meanwhile_is_looked_at_again(place, opened):
    moves = iter(["ONE", "ONE!"])

    def type_once() -> None:
        if word := next(moves, None):
            opened.editor.type(opened.path, word + opened.text[opened.text.index("\n") :])

    opened.editor.before_change = type_once
    async with place.desk(opened.editor) as desk:
        await desk.use(read, path="a")
        await desk.use(edit, path="a", edits=TWO)
    assert opened.text.startswith("ONE!\n2\nthree\n")


async def test_change_that_cannot_be_taken_back_is_not_made_twice(place, opened):
    def type_and_write() -> None:
        opened.editor.type(opened.path, opened.text + "typed\n")
        opened.path.write_text("by others\n")
        opened.editor.after_change = lambda: None

    opened.editor.after_change = type_and_write
    async with place.desk(opened.editor) as desk:
        edits = [{"new": "new\n", "insert_at_line": 1}]
        said = await desk.refusal(edit, path="a", edits=edits)
    assert said == "a has just changed. The change is in the editor's buffer, unsaved."
    assert opened.text == "one\nnew\ntwo\nthree\nfour\nfive\nsix\nseven\ntyped\n"
    assert opened.editor.is_modified(opened.path)
    assert opened.path.read_text() == "by others\n"


async def test_buffer_that_never_stands_still_is_left_alone(place, opened):
    opened.editor.before_change = lambda: opened.editor.type(opened.path, opened.text + "x\n")
    async with place.desk(opened.editor) as desk:
        said = await desk.refusal(edit, path="a", edits=TWO)
    assert said.startswith("a keeps changing while you edit it")
    assert "two\n" in opened.text


async def test_what_the_formatter_makes_of_it_is_written_and_told(place, opened):
    opened.editor.format = lambda text: text.replace("2\n", "two (formatted)\n") + "# end\n"
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        told = await desk.told(edit, path="a", edits=TWO)
        assert "hooks (format on save) changed it:\n@@ -1,7 +1,8 @@" in told
        assert "-2\n+two (formatted)" in told
        assert "2\ttwo (formatted)\n" in told
        assert "since you read it" not in await desk.told(edit, path="a", edits=SIX)
    assert opened.text == opened.path.read_text()
    assert opened.text.startswith("one\ntwo (formatted)\nthree\n")
    assert not opened.editor.is_modified(opened.path)


async def test_editor_that_saves_by_itself_is_in_nobodys_way(place, opened):
    opened.editor.after_change = lambda: opened.editor.save(opened.path)
    async with place.desk(opened.editor) as desk:
        for number in range(3):
            edits = [{"new": f"{number}\n", "insert_at_line": 0}]
            told = await desk.told(edit, path="a", edits=edits)
            assert told.startswith("Changed a: +1 −0.")
    assert opened.text == opened.path.read_text()
    assert opened.text.startswith("2\n1\n0\none\n")


async def test_file_deleted_under_a_buffer_is_edited_in_the_buffer_alone(place, opened):
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        opened.path.unlink()
        told = await desk.told(edit, path="a", edits=TWO)
        assert "The file is not on disk" in told
        assert not opened.path.exists()
        assert opened.text.startswith("one\n2\n")
        assert "only in the editor, not on disk" in await desk.told(read, path="a")


@prove
async def test_file_deleted_under_a_buffer_is_written_when_all_of_it_is_given(place, opened):
    async with place.desk(opened.editor, is_on=True) as desk:
        await desk.use(read, path="a")
        opened.path.unlink()
        assert (await desk.told(write, path="a", content="new\n")).startswith("Created a: 1 line")
    assert opened.path.read_text() == opened.text == "new\n"
    assert not opened.editor.is_modified(opened.path)


@prove
async def test_new_buffer_gets_the_file_that_is_written(place, opened):
    path = place.project / "sub/new"
    opened.editor.open(path)
    async with place.desk(opened.editor, is_on=True) as desk:
        assert (await desk.told(write, path="sub/new", content="x\n")).startswith("Created sub/new")
    assert path.read_text() == opened.editor.text(path) == "x\n"


@prove
async def test_buffer_without_changes_is_replaced(place, opened):
    async with place.desk(opened.editor, is_on=True) as desk:
        assert "you have not read it" in await desk.refusal(write, path="a", content="x\n")
        await desk.use(read, path="a")
        content = "zero\none\n2\nthree\nfour\nfive\nsix\nseven\n"
        assert "(+2 −1)" in await desk.told(write, path="a", content=content)
    assert opened.path.read_text() == opened.text == content
    assert len(opened.editor.undo) == 1


@prove
async def test_unsaved_changes_are_merged_with_a_whole_new_file(place, opened):
    before = opened.path.read_text()
    async with place.desk(opened.editor, is_on=True) as desk:
        opened.editor.type(opened.path, before.replace("seven", "SEVEN"))
        said = await desk.refusal(write, path="a", content="x\n")
        assert "with unsaved changes, and you have not read them" in said
        await desk.use(read, path="a")
        opened.editor.type(opened.path, opened.text.replace("five", "FIVE"))
        content = before.replace("seven", "SEVEN").replace("one", "1")
        assert "in the editor: +1 −1" in await desk.told(write, path="a", content=content)
        assert opened.text == "1\ntwo\nthree\nfour\nFIVE\nsix\nSEVEN\n"
        opened.editor.type(opened.path, opened.text.replace("two", "ZWEI"))
        assert "unsaved changes in a, line 2" in await desk.refusal(
            write, path="a", content=opened.text.replace("ZWEI", "deux")
        )
    assert "ZWEI" in opened.text
    assert opened.path.read_text() == before


async def test_file_changed_under_a_buffer_is_loaded_again_and_edited(place, opened):
    async with place.desk(opened.editor) as desk:
        await desk.use(read, path="a")
        opened.path.write_text("ONE\ntwo\n")
        told = await desk.told(edit, path="a", edits=TWO)
        assert "+ONE" in told
    assert opened.text == opened.path.read_text() == "ONE\n2\n"
    assert opened.editor.undo == [("t1", "ONE\ntwo\n")]


@pytest.mark.parametrize(
    "text, codec, options",
    prove_rest(
        [
            ("a\r\ntwo\r\n", "ascii", {"line_ending": "dos"}),
            ("a\r\ntwo\nc\r\n", "ascii", {}),
            ("a\rtwo\r", "ascii", {"line_ending": "mac"}),
            ("caf\xe9 two\n", "latin-1", {"encoding": "latin1"}),
            ("\ufefftwo\n", "utf-8", {"has_bom": True}),
            ("two ä\n", "utf-16-le", {"encoding": "utf-16le"}),
            ("ポ two\n", "cp932", {"encoding": "cp932"}),
            ("中文 two\n", "gb18030", {"encoding": "gb18030"}),
            ("한국어 two\n", "euc_kr", {"encoding": "euc-kr"}),
            ("功 two\n", "big5", {"encoding": "big5"}),
            ("привет two\n", "cp1251", {"encoding": "cp1251"}),
            ("привет two\n", "koi8-r", {"encoding": "koi8-r"}),
            ("日本 two\n", "iso2022_jp", {"encoding": "iso-2022-jp"}),
            ("ポ\r\ntwo\nc\r\n", "cp932", {"encoding": "cp932"}),
            ("ポ\r\ntwo\r\n", "cp932", {"encoding": "cp932", "line_ending": "dos"}),
            ("\ufefftwo ä\n", "utf-16-le", {"encoding": "utf-16le", "has_bom": True}),
            ("\ufefftwo\n", "utf-16-be", {"encoding": "utf-16", "has_bom": True}),
            ("no newline two", "ascii", {}),
            ("bad \xff two and \xc3\xa4 \xc3\xa4\n", "latin-1", {}),  # for the editor it is UTF-8
        ]
    ),
)
async def test_buffer_of_any_encoding_is_edited_to_the_byte(place, opened, text, codec, options):
    data, new = (each.encode(codec) for each in (text, text.replace("two", "2")))
    opened.path.write_bytes(data)
    opened.editor.open(opened.path, **options)
    async with place.desk(opened.editor) as desk:
        await desk.use(edit, path="a", edits=TWO)
        assert opened.path.read_bytes() == new
        assert bytes_of(opened.editor.buffers[str(opened.path)]) == new
        opened.editor.format = lambda text: text.replace("2", "3")
        await desk.use(edit, path="a", edits=[{"old": "2", "new": "2 "}])
        assert opened.path.read_bytes() == new.replace(b"2", b"3", 1).replace(b"3", b"3 ", 1) or (
            opened.path.read_bytes() == bytes_of(opened.editor.buffers[str(opened.path)])
        )


async def test_end_of_the_file_is_edited_in_the_buffer_too(place, opened):
    opened.path.write_text("one\nlast")
    opened.editor.open(opened.path)
    async with place.desk(opened.editor) as desk:
        await desk.use(edit, path="a", edits=[{"old": "last", "new": "last\nand more\n"}])
        assert opened.text == opened.path.read_text() == "one\nlast\nand more\n"
        await desk.use(read, path="a")
        await desk.use(write, path="a", content="one")
    assert opened.text == opened.path.read_text() == "one"


async def test_encoding_that_only_the_editor_knows_is_told(place, opened):
    opened.editor.open(opened.path, encoding="latin1")
    opened.editor.buffers[str(opened.path)] = msgspec.structs.replace(
        opened.editor.buffers[str(opened.path)], encoding="8bit-dec-mcs"
    )
    async with place.desk(opened.editor) as desk:
        assert "8bit-dec-mcs, is not supported" in await desk.refusal(edit, path="a", edits=TWO)


async def test_character_that_the_buffers_encoding_lacks_changes_nothing(place, opened):
    opened.path.write_bytes(b"caf\xe9\ntwo\n")
    opened.editor.open(opened.path, encoding="latin1")
    async with place.desk(opened.editor) as desk:
        await desk.refusal(edit, path="a", edits=[{"old": "two", "new": "→"}])
    assert opened.text == "café\ntwo\n"
    assert opened.path.read_bytes() == b"caf\xe9\ntwo\n"


async def test_silent_editor_is_told_and_nothing_is_done_behind_its_back(place, opened):
    before = opened.path.read_text()
    opened.editor.is_silent = True
    async with place.desk(opened.editor) as desk:
        for tool, data in ((read, {}), (edit, {"edits": TWO}), (write, {"content": "x"})):
            assert await desk.refusal(tool, path="a", **data) == "Neovim waits for a key."
    assert opened.path.read_text() == before


async def test_write_that_fails_in_the_end_is_taken_back_from_the_buffer(place, opened):
    before = opened.text

    def lock(text: str) -> str:
        (place.project / "a").rename(place.project / "b")
        (place.project / "a").mkdir()
        return text

    opened.editor.format = lock
    async with place.desk(opened.editor) as desk:
        assert "is a directory" in await desk.refusal(edit, path="a", edits=TWO)
    assert opened.text == before
    assert not opened.editor.is_modified(opened.path)


async def test_write_that_fails_while_the_person_types_says_where_the_text_is(place, opened):
    def lock(text: str) -> str:
        (place.project / "a").rename(place.project / "b")
        (place.project / "a").mkdir()
        return text

    opened.editor.format = lock
    real = opened.editor.before_write

    async def type_after(buffer: Buffer) -> Buffer:
        ready = await real(buffer)
        opened.editor.type(opened.path, opened.text + "typed\n")
        return ready

    opened.editor.before_write = type_after
    async with place.desk(opened.editor) as desk:
        said = await desk.refusal(edit, path="a", edits=TWO)
    assert said.endswith("The change is in the editor's buffer, unsaved.")
    assert opened.text.endswith("typed\n")


async def test_cancelled_edit_of_a_buffer_is_whole(place, opened):
    async with place.desk(opened.editor) as desk:
        with anyio.CancelScope() as scope:
            opened.editor.after_change = scope.cancel
            await desk.use(edit, path="a", edits=TWO)
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert opened.text == opened.path.read_text()
    assert opened.text.startswith("one\n2\n")
    assert not opened.editor.is_modified(opened.path)


# --- what must not come through a buffer -------------------------------------------------------------------------------


async def test_hidden_file_is_not_read_or_changed_through_its_buffer(place, opened):
    secret = place.base / "secret"
    secret.write_text("secret\n")
    (place.project / "link").symlink_to(secret)
    private = place.home / ".netrc"
    private.write_text("secret\n")
    for path in (secret, private):
        opened.editor.open(path)
    async with place.desk(opened.editor, is_on=True) as desk:
        for path in (str(secret), "link", "~/.netrc"):
            for tool, data in ((read, {}), (edit, {"edits": [{"old": "secret", "new": "x"}]})):
                assert "the sandbox" in await desk.refusal(tool, path=path, **data)
        told = await desk.told(write, path="~/.netrc", content="the sandbox's own\n")
        assert "private to the sandbox" in told
    assert opened.editor.text(secret) == opened.editor.text(private) == "secret\n"
    assert private.read_text() == "secret\n"


async def test_secret_that_the_sandbox_covers_stays_in_its_buffer(place, opened):
    path = place.project / ".env"
    path.write_text("TOKEN=secret\n")
    (place.project / ".gitignore").write_text(".env\n")
    (place.project / ".git").mkdir()
    (place.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (place.project / ".git" / name).mkdir()
    opened.editor.open(path)
    opened.editor.type(path, "TOKEN=unsaved\n")
    async with place.desk(opened.editor, is_on=True) as desk:
        told = await desk.told(read, path=".env")
        assert "secret" not in told
        assert "unsaved" not in told
        assert "the sandbox hides this file" in told
        await desk.refusal(write, path=".env", content="x")
    assert opened.editor.text(path) == "TOKEN=unsaved\n"
    assert path.read_text() == "TOKEN=secret\n"


@pytest.mark.parametrize("is_dirty", prove_rest([False, True], keep=(-1,)))
@pytest.mark.parametrize("changes", [{}, {"mode": "ro"}])
async def test_what_may_not_be_written_is_not_changed_in_its_buffer(
    place, opened, is_dirty, changes
):
    hook = place.project / ".git/hooks/pre-commit"
    hook.parent.mkdir(parents=True)
    (place.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (place.project / ".git" / name).mkdir()
    hook.write_text("#!/bin/sh\n")
    new = hook.parent / "post-commit"
    for path in (hook, new):
        opened.editor.open(path)
        if is_dirty:
            opened.editor.type(path, "#!/bin/sh\nunsaved\n")
    texts = dict(opened.editor.buffers)
    async with place.desk(opened.editor, is_on=True, **changes) as desk:
        await desk.use(read, path=".git/hooks/pre-commit")
        for name in ("pre-commit", "post-commit"):
            for tool, data in (
                (edit, {"edits": [{"old": "sh", "new": "evil"}]}),
                (write, {"content": "evil"}),
            ):
                assert "read-only in the sandbox" in await desk.refusal(
                    tool, path=f".git/hooks/{name}", **data
                )
    assert opened.editor.buffers == texts


# --- what was seen -----------------------------------------------------------------------------------------------------


def test_oldest_texts_become_digests_when_there_are_too_many():
    seen = ReadCache(max_text_chars=10)
    seen.note("/a", "12345")
    seen.note("/b", "67890")
    seen.get("/a")
    seen.note("/c", "x")
    assert seen.get("/b").text is None
    assert seen.get("/b").is_of("67890", None)
    assert not seen.get("/b").is_of("67891", None)
    assert (seen.get("/a").text, seen.get("/c").text) == ("12345", "x")
    seen.note("/d", "longer than all of it")
    assert seen.get("/d").is_of("longer than all of it", None)
    assert seen._text_chars <= 10


def test_oldest_files_are_forgotten_when_there_are_too_many():
    seen = ReadCache(max_files=2)
    for path in ("/a", "/b", "/a", "/c"):
        seen.note(path, path)
    assert seen.get("/b") is None
    assert seen.get("/a")
    assert seen._text_chars == 4


@prove
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.text("xy", max_size=6))))
def test_count_of_what_is_held_is_right(notes):
    seen = ReadCache(max_text_chars=8, max_files=3)
    for path, text in notes:
        seen.note(path, text)
        assert seen.get(path).is_of(text, None)
        assert seen._text_chars == sum(len(s.text or "") for s in seen._known.values()) <= 8
        assert len(seen._known) <= 3


def test_large_file_is_known_by_its_stamp():
    seen = ReadCache()
    stamp = Stamp(1, 2, 3, 4, 5, 6, 7)
    seen.note_large("/a", stamp)
    assert seen.get("/a").is_of("whatever", stamp)
    assert not seen.get("/a").is_of("whatever", stamp._replace(ctime_ns=6))


@prove
async def test_file_that_was_too_large_to_keep_says_only_that_it_has_changed(project, desk):
    data = "a line of text\n" * 600_000
    (project / "large").write_text("first\n" + data)
    await desk.use(read, path="large", limit=1)
    told = await desk.told(edit, path="large", edits=[{"old": "first", "new": "1st"}])
    assert "since you read it" not in told
    await desk.use(read, path="large", limit=1)
    (project / "large").write_text("FIRST\n" + data)
    told = await desk.told(edit, path="large", edits=[{"old": "FIRST", "new": "1st"}])
    assert "has changed since you read it; the earlier text is no longer kept" in told


# --- differences -------------------------------------------------------------------------------------------------------


def patched(old: str, difference: str) -> list[str]:
    """The lines of `old` after a unified difference, by the book."""
    lines = old.removesuffix("\n").split("\n") if old else []
    new: list[str] = []
    position = 0
    for line in difference.split("\n"):
        if line.startswith("@@ "):
            start, count = map(int, line.split()[1][1:].split(","))
            first = start - (count > 0)
            new += lines[position:first]
            position = first
        elif line[0] in " -":
            assert lines[position] == line[1:]
            new += [line[1:]] * (line[0] == " ")
            position += 1
        else:
            new.append(line[1:])
    return new + lines[position:]


TEXTS = st.lists(st.sampled_from(["a", "b", "", "c d", "x"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])])
)


@prove
@settings(max_examples=examples(500), deadline=None)
@given(TEXTS, TEXTS)
def test_difference_makes_one_text_of_the_other(old, new):
    difference = TextDifference(old, new)
    if difference.hunks:
        shown = difference.shown(10_000)
        assert shown.is_whole
        assert patched(old, shown.text) == (new.removesuffix("\n").split("\n") if new else [])
    assert applied(old, buffer_hunks(old, new)) == new


def test_difference_shows_no_blank_line_at_its_ends():
    shown = TextDifference("a\n\n \nb\nc\n\nd\n\n\n", "a\n\n \nb\nC\n\nd\n\n\n").shown().text
    assert shown == "@@ -4,4 +4,4 @@\n b\n-c\n+C\n \n d"


@prove
def test_difference_of_hostile_texts_takes_no_time_and_little_room():
    old = "\n".join(["a", "b"] * 100_000)
    new = "\n".join(["b", "a", "a"] * 70_000)
    with little_work():
        shown = TextDifference(old, new).shown()
    assert not shown.is_whole
    assert len(shown.text.split("\n")) == 41
    assert len(TextDifference("", "x" * 10_000_000).shown().text) < 500


def test_half_of_a_surrogate_pair_never_reaches_the_model():
    assert TextDifference("", "\ud800\n").shown().text.encode()


# --- the session's own /tmp --------------------------------------------------------------------------------------------


async def run(desk, command: str) -> None:
    process = await desk.workspace.environment.spawn(["/bin/sh", "-c", command], cwd="/tmp")
    assert await process.wait() == 0
    process.close()


@pytest.fixture
def scratch(tmp_path):
    """A name in /tmp that the host does not have."""
    name = Path("/tmp") / f"scratch-{tmp_path.name}-{os.getpid()}"
    yield name
    assert not os.path.lexists(name)


@pytest.fixture
async def outside(monkeypatch, plain_environment) -> AsyncIterator[Desk]:  # noqa: ARG001
    """A project outside of /tmp."""
    cache = Path(__file__).parents[2] / ".pytest_cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as base:
        place = Place(Path(base))
        place.project.mkdir(parents=True)
        monkeypatch.setenv("HOME", str(place.home))
        async for desk in in_own_task(place.desk(is_on=True)):
            yield desk


async def check_scratch(desk: Desk, scratch: Path) -> None:
    await run(desk, f"mkdir {scratch} && echo one > {scratch}/s.py")
    path = f"{scratch}/s.py"
    assert await desk.told(read, path=path) == "1\tone\n(1 line)"
    told = await desk.told(edit, path=path, edits=[{"old": "one", "new": "two"}])
    assert told == f"Changed {path}: +1 −1, now line 1."
    told = await desk.told(write, path=f"{scratch}/deep/new.py", content="three\n")
    assert "private" not in told
    await run(desk, f'test "$(cat {scratch}/s.py {scratch}/deep/new.py)" = "two\nthree"')
    for each in (path, f"{scratch}/deep/new.py", "/tmp/x", "/var/tmp/x/y"):
        assert desk.workspace.environment.needed_to_write(each) == NO_GRANT


async def test_file_of_a_command_in_tmp_is_ordinary(confined, scratch):
    await check_scratch(confined, scratch)


async def test_file_in_tmp_is_ordinary_for_a_project_elsewhere(outside, scratch):
    await check_scratch(outside, scratch)


async def test_file_of_the_user_in_tmp_is_not_reached_and_needs_a_grant(confined, tmp_path):
    with tempfile.NamedTemporaryFile("w+", dir="/tmp", suffix=".py") as file:
        file.write("the user's\n")
        file.flush()
        needed = confined.workspace.environment.needed_to_write
        assert needed(file.name).write_paths == (file.name,)
        assert "the sandbox hides it" in await confined.refusal(read, path=file.name)
        await run(confined, f"echo own > {file.name}")
        assert needed(file.name) == NO_GRANT
        assert (await confined.told(read, path=file.name)).startswith(
            "1\town\n(1 line; the sandbox hides"
        )
        await confined.use(write, path=file.name, content="changed\n")
        file.seek(0)
        assert file.read() == "the user's\n"
    for path in (
        tmp_path / "home/x",
        tmp_path / "state/tmp/1-1/x",
        Path("/tmpx/y"),
        Path("/etc/x"),
    ):
        assert needed(str(path)) != NO_GRANT


async def test_link_in_tmp_does_not_lead_out_of_it(confined, scratch):
    project = confined.project
    (project / "secret.txt").write_text("secret\n")
    await run(
        confined,
        f"mkdir {scratch} && cd {scratch} && ln -s {project} dir && ln -s {project}/secret.txt file"
        f" && ln -s {project}/new.txt dangling && echo x > real && ln -s real inside",
    )
    for name in ("dir/secret.txt", "file", "dangling", "dir/new.txt"):
        path = f"{scratch}/{name}"
        for tool, data in (
            (read, {}),
            (edit, {"edits": [{"old": "secret", "new": "x"}]}),
            (write, {"content": "x"}),
        ):
            said = await confined.refusal(tool, path=path, **data)
            assert said.startswith(f"{path} is a link to "), (name, tool.name)
    assert [each.name for each in project.iterdir()] == ["secret.txt"]
    assert (project / "secret.txt").read_text() == "secret\n"
    assert await confined.told(read, path=f"{scratch}/inside") == "1\tx\n(1 line)"


async def test_tmp_of_another_session_is_not_reached(place, scratch):
    async with place.desk(is_on=True) as one, place.desk(is_on=True) as other:
        await one.use(write, path=str(scratch), content="one's\n")
        assert "does not exist" in await other.refusal(read, path=str(scratch))
        held = list((place.base / "state/tmp").glob(f"*/{scratch.name}"))
        assert len(held) == 1
        assert "does not exist" in await other.refusal(read, path=str(held[0]))
        assert other.workspace.environment.needed_to_write(str(held[0])) != NO_GRANT
        assert one.workspace.environment.needed_to_write(str(held[0])) != NO_GRANT


async def test_change_in_tmp_is_not_journaled(confined, scratch):
    await confined.use(write, path=str(scratch), content="x\n")
    await confined.use(write, path="a.txt", content="x\n")
    records = repr(await confined.workspace.journal.records())
    assert "a.txt" in records
    assert scratch.name not in records
