"""PDFs that the API reads itself: what `read` sends, how it goes back in later requests, and what stands for it elsewhere."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pypdf
import pytest
from tests import loopback
from tests.api_rules import anthropic as anthropic_rules
from tests.api_rules import responses as responses_rules
from tests.conftest import policy_of, prove_rest, settings_of
from tests.loopback import LoopbackServer, Reply, Request
from tests.talk import BaseTalk
from tests.wires import responses
from tests.wires.servers import ResponsesServer

from sanderling.conversation.compaction import cleared_results, estimated_tokens
from sanderling.images import MAX_PDF_PAGES
from sanderling.protocol.events import ErrorOccurred, ToolEnded
from sanderling.protocol.messages import (
    PDF_TYPE,
    DocumentBlock,
    ImageSource,
    Message,
    Prompt,
    TextBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest
from sanderling.providers.anthropic.request import RequestEncoder
from sanderling.providers.chat.request import ChatEncoder
from sanderling.providers.choice import make_provider
from sanderling.providers.endpoint import ANTHROPIC, NO_DOCUMENT, Quirks, load_endpoint
from sanderling.providers.images import Images
from sanderling.providers.ollama.request import Ask, OllamaEncoder
from sanderling.providers.responses.request import ResponsesEncoder
from sanderling.session.session import Session
from sanderling.session.store.export import export_markdown


def blank(pages: int = 2, *, password: str | None = None) -> bytes:
    writer = pypdf.PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(100, 100)
    if password is not None:
        writer.encrypt(password, owner_password="owner", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def document(data: bytes, pages: int = 2) -> DocumentBlock:
    return DocumentBlock(ImageSource(PDF_TYPE, encoded(data)), "a.pdf", pages)


def history_of(*documents: DocumentBlock) -> list[Message]:
    history = [Message("user", (TextBlock("Read."),))]
    for n, each in enumerate(documents):
        content = (TextBlock(f"PDF {n}"), each)
        history += [
            Message("assistant", (ToolUse(f"t{n}", "read", {"path": "a.pdf"}),)),
            Message("user", (ToolResult(f"t{n}", content),)),
        ]
    return history


class StrictServer(LoopbackServer):
    def refusals(self, request: Request) -> list[str]:
        return anthropic_rules.request_refusals(request.body)


SERVERS = {
    "anthropic:claude-opus-5-5": StrictServer,
    "openai:gpt-6.1-sol": ResponsesServer,
    "deepseek-anthropic:deepseek-v4-pro": StrictServer,
}


def calls(model: str, **args: Any) -> Reply:
    data = json.dumps({"path": "docs/a.pdf", **args})
    if model.startswith("openai"):
        return Reply(responses.events_of([responses.call("call_1", "read", data)]))
    use = loopback.tool_use("toolu_1", "read", data)
    return Reply(loopback.message_start() + use + loopback.done("tool_use"))


async def read_by(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, **args: Any
) -> tuple[BaseTalk, list[Request]]:
    """A conversation of two turns, in whose first one the model reads the PDF."""
    for name in ("ANTHROPIC", "OPENAI", "DEEPSEEK"):
        monkeypatch.setenv(f"{name}_API_KEY", "key-of-the-test")
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (project / "docs/a.pdf").write_bytes(data)
    session = Session.open(tmp_path / "state/sessions", "s1", str(project))
    with SERVERS[model]() as server:
        hello = responses.hello() if model.startswith("openai") else None
        server.answer(calls(model, **args), Reply(hello) if hello else loopback.hello())
        providers = {
            "openai": {"base_url": f"{server.url}/v1"},
            "deepseek-anthropic": {"base_url": server.url},
        }
        settings = msgspec.structs.replace(
            settings_of(session), model=model, base_url=server.url, providers=providers
        )
        provider = make_provider(settings)
        await provider.learn_limits()  # else at the same time as the turn
        talk = BaseTalk(session, provider, settings=settings, policy=policy_of(session))
        async with talk.served():
            await talk.run_turns(Prompt("p1", "Read it."), Prompt("p2", "And?"))
        await provider.aclose()
        return talk, server.prompts


def result_sent(request: Request) -> Any:
    body = request.json()
    if "input" in body:
        return next(
            each["output"] for each in body["input"] if each.get("type") == "function_call_output"
        )
    return body["messages"][2]["content"][0]["content"]


async def test_a_pdf_goes_whole_to_claude_in_each_request(tmp_path, monkeypatch):
    data = blank(3)
    talk, prompts = await read_by("anthropic:claude-opus-5-5", tmp_path, monkeypatch, data)
    what = f"PDF, 3 pages, {len(data):,} bytes"
    sent = [
        {"type": "text", "text": f"docs/a.pdf: {what}"},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": PDF_TYPE, "data": encoded(data)},
            "title": "a.pdf",
        },
    ]
    assert [result_sent(each) for each in prompts[1:]] == [sent, sent]
    [end] = talk.of(ToolEnded)
    assert (end.summary, end.is_error) == (what, False)


async def test_a_pdf_goes_whole_to_openai(tmp_path, monkeypatch):
    data = blank(1)
    _, prompts = await read_by("openai:gpt-6.1-sol", tmp_path, monkeypatch, data)
    file = {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": f"data:{PDF_TYPE};base64,{encoded(data)}",
    }
    assert [result_sent(each)[1]["type"] for each in prompts[1:]] == ["input_file"] * 2
    assert result_sent(prompts[2])[1].items() >= file.items()


@pytest.mark.parametrize(
    "model, data, args",
    prove_rest(
        [
            ("deepseek-anthropic:deepseek-v4-pro", blank(), {}),
            ("anthropic:claude-opus-5-5", blank(), {"limit": 1}),
            ("anthropic:claude-opus-5-5", blank(MAX_PDF_PAGES + 1), {}),
            ("anthropic:claude-opus-5-5", blank(password=""), {}),
        ]
    ),
    ids=["not taken", "some pages", "too many pages", "encrypted"],
)
async def test_other_pdfs_are_sent_as_text(tmp_path, monkeypatch, model, data, args):
    _, prompts = await read_by(model, tmp_path, monkeypatch, data, **args)
    assert "PDF, as text" in str(result_sent(prompts[1]))
    assert "base64" not in json.dumps(prompts[1].json()["messages"])


class SmallServer(StrictServer):
    def __init__(self) -> None:
        super().__init__()
        self.model_answer = loopback.model_info(200_000, 8_192)


@pytest.mark.parametrize("pages, is_whole", [(33, True), (34, False)])
async def test_a_pdf_that_fills_half_of_the_window_is_sent_as_text(
    tmp_path, monkeypatch, pages, is_whole
):
    monkeypatch.setitem(SERVERS, "anthropic:claude-opus-5-5", SmallServer)
    data = blank(pages)
    _, prompts = await read_by("anthropic:claude-opus-5-5", tmp_path, monkeypatch, data)
    assert ("base64" in str(result_sent(prompts[1]))) is is_whole


async def test_a_session_with_a_pdf_is_resumed_and_exported(tmp_path, monkeypatch):
    data = blank()
    talk, _ = await read_by("anthropic:claude-opus-5-5", tmp_path, monkeypatch, data)
    again = Session.open(tmp_path / "state/sessions", "s1", talk.session.project)
    [result] = [b for m in again.history for b in m.content if isinstance(b, ToolResult)]
    again.close()
    assert result.content[1] == document(data)
    shown = export_markdown(tmp_path / "state/sessions", "s1")
    assert "PDF, 2 pages" in shown
    assert encoded(data) not in shown


def body_by(encoder: Any, history: list[Message], **options: Any) -> bytes:
    return encoder.encode(
        ModelRequest("Be brief.", history), max_tokens=100, thinking=False, **options
    )


def test_wires_without_pdfs_have_a_text_instead():
    history = history_of(document(blank()))
    bodies = [
        body_by(RequestEncoder(Quirks()), history, model="m"),
        body_by(ChatEncoder(), history, model="m"),
        body_by(ResponsesEncoder("m", Quirks()), history),
        OllamaEncoder(Quirks()).encode(ModelRequest("", history), Ask("m", 4096)),
    ]
    for body in bodies:
        assert NO_DOCUMENT in body.decode()
        assert encoded(blank()) not in body.decode()


def test_both_judges_accept_a_pdf_and_refuse_what_is_none():
    openai = load_endpoint("openai", {}).quirks
    for data, is_valid in ((blank(), True), (b"%PDF-1.7 nothing", False)):
        history = history_of(document(data))
        claude = json.loads(body_by(RequestEncoder(ANTHROPIC.quirks), history, model="m"))
        body = body_by(ResponsesEncoder("m", openai), history)
        assert (anthropic_rules.refusals(claude["messages"]) == []) == is_valid
        assert (responses_rules.request_refusals(body) == []) == is_valid


def test_an_estimate_counts_a_pdfs_pages_and_not_its_bytes():
    few, many = (estimated_tokens(history_of(document(blank(), pages))) for pages in (1, 3))
    assert many - few == 2 * 3_000


def test_an_old_pdf_is_cleared_to_a_line():
    history = history_of(document(blank(), 90), document(blank(), 20), document(blank(), 1))
    assert cleared_results(history)["t0"] == (
        '[cleared: the result of read "a.pdf" (a PDF of 90 pages, 5 characters); get it again if you need it]'
    )


def test_old_pdfs_beyond_the_pages_of_a_request_are_left_out():
    history = history_of(*(document(blank(), 40) for _ in range(3)))
    fitted = Images().fitting(ModelRequest("", history), ANTHROPIC.quirks).history
    kinds = [
        type(block.content[1])
        for message in fitted
        for block in message.content
        if isinstance(block, ToolResult)
    ]
    assert kinds == [TextBlock, TextBlock, DocumentBlock]
    words = fitted[2].content[0].content[1].text
    assert (
        words
        == "[A PDF was here. It is not sent: PDFs of at most 100 pages are sent, the newest ones.]"
    )


def test_the_newest_of_large_pdfs_is_sent():
    """One has less than 16 MB, so `read` returns it whole, but more than half of a request."""
    large = [DocumentBlock(ImageSource(PDF_TYPE, "A" * 20_000_000), "a.pdf", 1) for _ in range(2)]
    fitted = Images().fitting(ModelRequest("", history_of(*large)), ANTHROPIC.quirks).history
    kinds = [type(fitted[at].content[0].content[1]) for at in (2, 4)]
    assert kinds == [TextBlock, DocumentBlock]


class RefusingServer(StrictServer):
    """Refuses every PDF."""

    def refusals(self, request: Request) -> list[str]:
        place = "messages.2.content.0.tool_result.content.1.pdf.source.base64.data"
        is_bad = b'"document"' in request.body
        found = [f"{place}: The PDF specified was not valid."] if is_bad else []
        return [*found, *super().refusals(request)]


async def test_a_pdf_that_the_api_refuses_is_left_out_from_then_on(tmp_path, monkeypatch):
    monkeypatch.setitem(SERVERS, "anthropic:claude-opus-5-5", RefusingServer)
    talk, prompts = await read_by("anthropic:claude-opus-5-5", tmp_path, monkeypatch, blank())
    assert [b'"document"' in each.body for each in prompts] == [False, True, False, False]
    assert talk.of(ErrorOccurred) == []
