"""PDFs: what `read` shows of them, and how it ends with those that are encrypted, damaged or hostile."""

import io
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pypdf
import pytest
from tests.conftest import DEADLINE_S, prove, prove_rest
from tests.sandboxes import kept, policy_below, sandbox_of
from tests.workspaces import workspace_of

from sanderling.errors import ToolError
from sanderling.tools.base import Context
from sanderling.tools.inside.pdf import MAX_BYTES
from sanderling.tools.read import read

FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"


def stream(data: bytes, *, is_packed: bool = False) -> bytes:
    packed = zlib.compress(data, 9) if is_packed else data
    kind = b" /Filter /FlateDecode" if is_packed else b""
    return b"<< /Length %d%b >>\nstream\n%b\nendstream" % (len(packed), kind, packed)


def pdf(*pages: bytes) -> bytes:
    """A PDF whose pages have these streams."""
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, len(pages)),
        FONT,
    ]
    for n, content in enumerate(pages):
        resources = b"/Resources << /Font << /F1 3 0 R >> >>"
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] %b /Contents %d 0 R >>"
            % (resources, 5 + 2 * n),
            content,
        ]
    out, places = io.BytesIO(), list[int]()
    out.write(b"%PDF-1.7\n")
    for number, each in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (number, each))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1))
    out.write(b"startxref\n%d\n%%%%EOF\n" % start)
    return out.getvalue()


def words(text: str, lines: int = 1) -> bytes:
    shown = b" 0 -12 Td ".join([b"(%b) Tj" % text.encode()] * lines)
    return stream(b"BT /F1 12 Tf 50 750 Td %b ET" % shown)


def encrypted(password: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(words("Sealed"))))
    writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def store(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


async def shown(tmp_path: Path, data: bytes, name: str = "a.pdf", **args: Any) -> str:
    policy = policy_below(tmp_path)
    store(Path(policy.project, name), data)
    sandbox = sandbox_of(policy)
    async with kept(sandbox, 4 * DEADLINE_S):
        context = Context(workspace_of(policy.project, sandbox), "t1", lambda _: None)
        try:
            content = (await read.run(read.parse({"path": name, **args}), context)).content
        except ToolError as error:  # a task group would wrap it
            content = error
    if isinstance(content, ToolError):
        raise content
    return str(content)


async def test_pages_are_shown_by_number(tmp_path):
    text = await shown(tmp_path, pdf(words("First page"), words("Second")))
    assert "--- page 1\nFirst page\n--- page 2\nSecond\n" in text
    assert text.splitlines()[-1] == "(2 pages; PDF, as text; offset and limit count pages)"


@pytest.mark.parametrize("name", ["a.py", "a.md"])
async def test_a_text_with_the_mark_of_a_pdf_is_a_text(tmp_path, name):
    text = await shown(tmp_path, b'MAGIC = b"%PDF-1.7"\n%PDF-1.4\n', name=name)
    assert '1\tMAGIC = b"%PDF-1.7"' in text


async def test_the_name_of_a_whole_pdf_is_one_line_without_marks_of_direction(tmp_path):
    policy = policy_below(tmp_path)
    store(Path(policy.project, "a\u202e\n.pdf"), pdf(words("x")))
    sandbox = sandbox_of(policy)
    async with kept(sandbox, 4 * DEADLINE_S):
        workspace = workspace_of(policy.project, sandbox)
        workspace.document_pages = lambda: 1
        args = read.parse({"path": "a\u202e\n.pdf"})
        outcome = await read.run(args, Context(workspace, "t1", lambda _: None))
    text, document = outcome.content
    name = "a\\u202e\\x0a.pdf"
    assert text.text.startswith(f"{name}: PDF, 1 page")
    assert document.title == name


async def test_a_pdf_may_have_something_before_its_mark(tmp_path):
    assert "Late" in await shown(tmp_path, b"@PJL\r\n" + pdf(words("Late")))
    assert "Late" in await shown(tmp_path, b"\n" + pdf(words("Late")), name="late")


async def test_offset_and_limit_count_pages(tmp_path):
    data = pdf(*(words(f"Page number {n}") for n in range(1, 6)))
    text = await shown(tmp_path, data, offset=2, limit=2)
    assert "Page number 2" in text
    assert "Page number 3" in text
    assert "Page number 4" not in text
    assert "(pages 2-3 of 5; continue with offset=4;" in text


async def test_a_page_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ToolError, match="it has 1 page: there is no page 3"):
        await shown(tmp_path, pdf(words("x")), offset=3)


async def test_only_as_many_pages_as_fit_are_shown(tmp_path):
    data = pdf(*(words("many words on a line " * 4, lines=300) for _ in range(5)))
    text = await shown(tmp_path, data)
    assert len(text.encode()) < 52_000
    assert "of 5; continue with offset=" in text


async def test_a_page_without_text_is_said_to_be_perhaps_scanned(tmp_path):
    assert "may be scanned images" in await shown(tmp_path, pdf(stream(b"")))


async def test_an_encrypted_pdf_needs_a_password_unless_it_is_empty(tmp_path):
    assert "Sealed" in await shown(tmp_path, encrypted(""))
    with pytest.raises(ToolError, match="it is encrypted and needs a password"):
        await shown(tmp_path, encrypted("secret"))


def broken(name: str) -> bytes:
    whole = pdf(words("x"))
    return {
        "cut": whole[:120],
        "only a mark": b"%PDF-1.7\n",
        "noise": b"%PDF-1.7\n" + bytes(range(256)) * 40,
        "a tree that contains itself": whole.replace(b"/Kids [4 0 R]", b"/Kids [2 0 R]"),
        "deep": b"%PDF-1.7\n1 0 obj\n" + b"[" * 100_000 + b"\nendobj\ntrailer << /Root 1 0 R >>",
    }[name]


@pytest.mark.parametrize(
    "name", prove_rest(["cut", "only a mark", "noise", "a tree that contains itself", "deep"])
)
async def test_a_damaged_pdf_ends_in_words(tmp_path, name):
    with pytest.raises(ToolError, match=r"^a\.pdf cannot be read: ") as raised:
        await shown(tmp_path, broken(name))
    assert len(str(raised.value)) < 400


@prove
@pytest.mark.guard
async def test_a_bomb_is_limited(tmp_path):
    bomb = stream(b"q " * (150 << 20), is_packed=True)
    text = await shown(tmp_path, pdf(bomb, words("After it")))
    assert "After it" in text
    assert len(text) < 2_000


async def test_a_huge_pdf_is_an_error(tmp_path):
    with pytest.raises(ToolError, match="at most 67,108,864 can be read"):
        await shown(tmp_path, pdf(words("x")) + b"\0" * MAX_BYTES)


def test_pdfs_are_not_parsed_in_the_host():
    """`read` is loaded with the first chat, `pypdf` by the program inside the sandbox only."""
    code = (
        "import sanderling.tools.pdf, sanderling.tools.read, sys; sys.exit('pypdf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
