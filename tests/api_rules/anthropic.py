"""
The Messages API: https://docs.anthropic.com/en/api/messages, …/build-with-claude/extended-thinking, …/prompt-caching, …/vision.

DeepSeek speaks it, too (https://api-docs.deepseek.com/guides/anthropic_api): signs nothing, sees nothing, and wants to be told what it
thought, in each message of a turn in which it has called a tool, as in its other format.
"""

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tests.api_rules import IMAGE_TYPES, MAX_IMAGE_BYTES, Block, decoded, of_image_sizes, of_pdf

MAX_BODY_BYTES = 32 << 20
MAX_BREAKPOINTS = 4
ID = re.compile(r"[a-zA-Z0-9_-]+")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
THOUGHTS = ("thinking", "redacted_thinking")
BLOCK_FIELDS = {
    "text": {"type", "text", "citations", "cache_control"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "title", "context", "citations", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "tool_addition": {"type", "tool", "cache_control"},
    "server_tool_use": {"type", "id", "name", "input", "caller", "cache_control"},
    "web_search_tool_result": {"type", "tool_use_id", "content", "caller", "cache_control"},
}
SEARCH_TOOL = "web_search_20250305"
SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")
REQUEST_FIELDS = {
    *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking"),
    *("output_config", "cache_control", "metadata", "stop_sequences", "stream", "service_tier"),
    "context_management",
}
IN_ROLE = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {
        *("text", "tool_use", "thinking", "redacted_thinking"),
        *("server_tool_use", "web_search_tool_result"),
    },
    "system": {"tool_addition"},  # of models that take tools in mid-conversation
}


def request_refusals(body: bytes, endpoint: str = "anthropic") -> list[str]:
    """Why the API would answer a request for a message with an error; empty: it would not."""
    if len(body) > MAX_BODY_BYTES:
        return ["Request exceeds the maximum size"]
    try:
        request = decoded(body)
    except ValueError as error:
        return [f"The request body is not valid JSON: {error}"]
    return [
        *_of_parameters(request),
        *_of_tools(request.get("tools", [])),
        *_of_system(request.get("system", [])),
        *_of_breakpoints(request),
        *refusals(request.get("messages", []), endpoint),
        *_of_the_end(request.get("messages", [])),
    ]


def refusals(messages: Sequence[Mapping[str, Any]], endpoint: str = "anthropic") -> list[str]:
    """Why the API would refuse any request that begins with this history."""
    found = (
        []
        if messages and messages[0]["role"] == "user"
        else ["messages: first message must use the user role"]
    )
    for n, message in enumerate(messages):
        found += [f"messages.{n}{problem}" for problem in _of_message(message)]
    found += [*_of_pairs(messages), *_of_searches(messages), *_of_images(messages)]
    return [*found, *(_of_deepseek if endpoint == "deepseek" else _of_signatures)(messages)]


def changed_thoughts(
    messages: Sequence[Mapping[str, Any]], said: Sequence[Sequence[Block]]
) -> list[str]:
    """
    Why the API would refuse how thoughts come back in the tool loop that is going on; `said` has the replies that it has sent.

    What the model thought before a tool use must come back with it, unchanged.
    """
    found: list[str] = []
    for n in range(_begin_of_loop(messages), len(messages)):
        content = messages[n]["content"]
        uses = [block for block in content if block["type"] == "tool_use"]
        kept = [reply[: reply.index(uses[-1])] for reply in said if uses and uses[-1] in reply]
        if kept and _thoughts(content) not in map(_thoughts, kept):
            found.append(
                f"messages.{n}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified"
            )
    return found


def _thoughts(content: Sequence[Block]) -> list[Block]:
    """The thoughts without blank ones that nobody has signed: DeepSeek wants one where its model has not thought."""
    return [
        block
        for block in content
        if block["type"] in THOUGHTS
        and not (block.get("thinking", "x").isspace() and not block.get("signature"))
    ]


def _begin_of_loop(messages: Sequence[Mapping[str, Any]]) -> int:
    """The message behind the last one in which the person speaks and no tool answers."""
    for n in reversed(range(len(messages))):
        kinds = {block["type"] for block in messages[n]["content"]}
        if messages[n]["role"] == "user" and "tool_result" not in kinds:
            return n + 1
    return 0


def _of_parameters(request: Mapping[str, Any]) -> Iterator[str]:
    for field in sorted(set(request) - REQUEST_FIELDS):
        yield f"{field}: Extra inputs are not permitted"
    if not request.get("model"):
        yield "model: Field required"
    max_tokens = request.get("max_tokens")
    if not isinstance(max_tokens, int) or max_tokens <= 0:
        yield "max_tokens: must be greater than 0"
    if request.get("tool_choice", {}).get("type") in ("any", "tool"):
        yield "tool_choice: forced tool use is not supported by this model"
    kinds = {block["type"] for block in _content_blocks(request)}
    if kinds & {"tool_use", "tool_result"} and not request.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"


def _of_tools(tools: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len({tool["name"] for tool in tools}) < len(tools):
        yield "tools: Tool names must be unique"
    for n, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(tool["name"]):
            yield f"tools.{n}.custom.name: String should match pattern '^{TOOL_NAME.pattern}$'"
        if tool.get("type", "custom") != "custom":
            yield from _of_search_tool(tool, f"tools.{n}")
            continue
        schema = tool.get("input_schema", {})
        if schema.get("type") != "object":
            yield f"tools.{n}.custom.input_schema.type: Input should be 'object'"
        if {"oneOf", "allOf", "anyOf"} & set(schema):
            yield f"tools.{n}.custom.input_schema: no oneOf, allOf or anyOf at the top level"


def _of_search_tool(tool: Mapping[str, Any], where: str) -> Iterator[str]:
    if tool["type"] != SEARCH_TOOL or tool["name"] != "web_search":
        yield f"{where}: Input tag '{tool['type']}' found using 'type' does not match any of the expected tags"
    for field in sorted(
        set(tool) - {"type", "name", "max_uses", "allowed_domains", "cache_control"}
    ):
        yield f"{where}.{SEARCH_TOOL}.{field}: Extra inputs are not permitted"
    if tool.get("max_uses", 1) <= 0:
        yield f"{where}.{SEARCH_TOOL}.max_uses: Input should be greater than 0"


def _of_system(system: str | Sequence[Block]) -> Iterator[str]:
    if not isinstance(system, str) and not all(block["text"].strip() for block in system):
        yield "system: text content blocks must contain non-whitespace text"


def _of_breakpoints(request: Mapping[str, Any]) -> Iterator[str]:
    """The automatic breakpoint takes one of the four places."""
    marked = [
        block
        for block in (*request.get("tools", []), *_system_blocks(request), *_all_blocks(request))
        if block.get("cache_control")
    ]
    count = len(marked) + bool(request.get("cache_control"))
    if count > MAX_BREAKPOINTS:
        yield f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
    if any(block.get("text") == "" for block in marked):
        yield "cache_control cannot be set for empty text blocks"


def _system_blocks(request: Mapping[str, Any]) -> Sequence[Block]:
    system = request.get("system", [])
    return [] if isinstance(system, str) else system


def _content_blocks(request: Mapping[str, Any]) -> list[Block]:
    return [block for message in request.get("messages", []) for block in message["content"]]


def _all_blocks(request: Mapping[str, Any]) -> Iterator[Block]:
    for block in _content_blocks(request):
        yield block
        yield from _parts(block)


def _parts(block: Block) -> Sequence[Block]:
    """What a tool result consists of, where that is more than a string."""
    content = block.get("content", "")
    return content if isinstance(content, list) else []  # a failed search has an object


def _of_message(message: Mapping[str, Any]) -> Iterator[str]:
    role, content = message["role"], message["content"]
    if role not in IN_ROLE:
        yield f".role: Input should be 'user' or 'assistant', not {role!r}"
        return
    if not content:
        yield ": must have non-empty content"
    for n, block in enumerate(content):
        where = f".content.{n}"
        if block["type"] not in IN_ROLE[role]:
            yield f"{where}: `{block['type']}` blocks are not permitted in {role} messages"
        else:
            yield from (f"{where}{problem}" for problem in _of_block(block))
    if role == "assistant" and content and content[-1]["type"] in THOUGHTS:
        yield ": The final block in an assistant message cannot be `thinking`"


def _of_block(block: Block) -> Iterator[str]:
    kind = block["type"]
    for field in sorted(set(block) - BLOCK_FIELDS[kind]):
        yield f".{kind}.{field}: Extra inputs are not permitted"
    match kind:
        case "text" if not block["text"].strip():
            yield ": text content blocks must contain non-whitespace text"
        case "image":
            yield from _of_image(block["source"])
        case "document":
            yield from of_pdf(block["source"])
        case "text" if any(not each.get("encrypted_index") for each in block.get("citations", [])):
            yield ".text.citations: web_search_result_location.encrypted_index: Field required"
        case "server_tool_use" if not SERVER_ID.fullmatch(block["id"]):
            yield f".server_tool_use.id: String should match pattern '^{SERVER_ID.pattern}$'"
        case "web_search_tool_result" if isinstance(block["content"], list):
            for each in block["content"]:
                if each.get("type") != "web_search_result" or not each.get("encrypted_content"):
                    yield ".web_search_tool_result.content.encrypted_content: Field required"
        case "tool_use":
            yield from _of_use(block)
        case "tool_result":
            yield from _of_result(block)
        case _:
            pass


def _of_use(use: Block) -> Iterator[str]:
    if not ID.fullmatch(use["id"]):
        yield f".tool_use.id: String should match pattern '^{ID.pattern}$'"
    if not TOOL_NAME.fullmatch(use.get("name", "")):
        yield f".tool_use.name: String should match pattern '^{TOOL_NAME.pattern}$'"
    if not isinstance(use.get("input"), dict):
        yield ".tool_use.input: Input should be a valid dictionary"


def _of_result(result: Block) -> Iterator[str]:
    parts = _parts(result)
    for n, part in enumerate(parts):
        if part["type"] not in ("text", "image", "document"):
            yield f".tool_result.content.{n}: `{part['type']}` blocks are not permitted here"
        else:
            yield from (f".tool_result.content.{n}{problem}" for problem in _of_block(part))
    if result.get("is_error") and any(part["type"] != "text" for part in parts):
        yield ': all content must be type "text" if "is_error" is true'


def _of_image(source: Mapping[str, Any]) -> Iterator[str]:
    if source.get("media_type") not in IMAGE_TYPES:
        yield f".image.source.media_type: Input should be one of {', '.join(IMAGE_TYPES)}"
    try:
        size = len(base64.b64decode(source["data"], validate=True))
    except binascii.Error:
        yield ".image.source.data: not valid base64"
    else:
        if not 0 < size <= MAX_IMAGE_BYTES:
            yield f".image.source: image exceeds 5 MB maximum: {size} bytes"


def _of_pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each tool use has its result in the message behind it, first of all, and each result has its use."""
    open_uses: list[str] = []
    seen = Counter[str]()
    for n, message in enumerate(messages):
        content = message["content"]
        kinds = [block["type"] for block in content]
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        uses = [block["id"] for block in content if block["type"] == "tool_use"]
        if missing := [use_id for use_id in open_uses if use_id not in results]:
            yield (
                f"messages.{n}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                + ", ".join(missing)
            )
        if stray := [use_id for use_id in results if use_id not in open_uses]:
            yield (
                f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: "
                + ", ".join(stray)
            )
        if len(set(results)) < len(results):
            yield f"messages.{n}: each tool_use must have a single result"
        if "tool_result" in kinds[len(results) :]:
            yield f"messages.{n}: `tool_result` blocks must come first"
        seen.update(uses)
        if any(seen[use_id] > 1 for use_id in uses):
            yield f"messages.{n}: `tool_use` ids must be unique"
        open_uses = uses
    if open_uses:
        yield "`tool_use` ids were found without `tool_result` blocks at the end"


def _of_searches(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Each search has its result behind it in the same message; only the last one may be paused."""
    for n, message in enumerate(messages):
        uses = [block["id"] for block in message["content"] if block["type"] == "server_tool_use"]
        found = [
            block["tool_use_id"]
            for block in message["content"]
            if block["type"] == "web_search_tool_result"
        ]
        missing = [use_id for use_id in uses if use_id not in found]
        if missing and n < len(messages) - 1:
            yield (
                f"messages.{n}: `web_search` tool use with id `{missing[0]}` was found without a corresponding"
                " `web_search_tool_result` block"
            )
        if stray := [use_id for use_id in found if use_id not in uses]:
            yield f"messages.{n}: unexpected `tool_use_id` in `web_search_tool_result`: {stray[0]}"


def _of_images(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    images: list[bytes] = []
    for block in _all_blocks({"messages": messages}):
        if block["type"] == "image":
            with suppress(ValueError):  # which is another rule's
                images.append(base64.b64decode(block["source"]["data"]))
    yield from of_image_sizes(images)


def _of_signatures(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for n, message in enumerate(messages):
        for block in message["content"]:
            if block["type"] == "thinking" and not block.get("signature"):
                yield f"messages.{n}: thinking.signature: Field required"


def _of_deepseek(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    begin = 0
    for n, message in enumerate([*messages, {"role": "user", "content": []}]):
        kinds = {block["type"] for block in message["content"]}
        if message["role"] == "user" and "tool_result" not in kinds:
            yield from _of_thinking_turn(messages, range(begin, n))
            begin = n + 1
    kinds = {block["type"] for block in _all_blocks({"messages": messages})}
    for kind in sorted(kinds & {"image", "document"}):
        yield f"messages: unknown variant `{kind}`"


def _of_thinking_turn(messages: Sequence[Mapping[str, Any]], turn: range) -> Iterator[str]:
    said = [(n, messages[n]["content"]) for n in turn if messages[n]["role"] == "assistant"]
    if not any(block["type"] == "tool_use" for _, content in said for block in content):
        return
    for n, content in said:
        if not any(block["type"] == "thinking" and block["thinking"] for block in content):
            yield f"messages.{n}: The `content[].thinking` in the thinking mode must be passed back to the API."


def _of_the_end(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    said = [message["role"] for message in messages if message["role"] != "system"]
    if said and said[-1] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
