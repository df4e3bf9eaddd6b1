"""
The Responses API, without what it would keep of a conversation itself.

From https://platform.openai.com/docs/api-reference/responses, …/docs/guides/reasoning, the types of its SDK, and the errors that its users
report: a thought stands before what it led to, and nothing is known to the server but what is sent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.api_rules import (
    EFFORTS,
    FUNCTION_NAME,
    Block,
    decoded,
    is_blank,
    of_arguments,
    of_fields,
    of_function,
    of_image_url,
    of_pdf,
)

MAX_ID_CHARS = 64
MIN_OUTPUT_TOKENS = 16
ENCRYPTED = "reasoning.encrypted_content"
REQUEST_FIELDS = {
    *("model", "input", "instructions", "stream", "stream_options", "store", "include"),
    *("tools", "tool_choice", "parallel_tool_calls", "max_output_tokens", "reasoning", "text"),
    *("prompt_cache_key", "prompt_cache_options", "service_tier", "truncation", "metadata"),
    *("temperature", "top_p", "safety_identifier"),
}
STATUSES = ("in_progress", "completed", "incomplete")
ITEM_FIELDS = {
    "message": {"type", "id", "role", "content", "status", "phase"},
    "reasoning": {"type", "id", "summary", "content", "encrypted_content", "status"},
    "function_call": {"type", "id", "call_id", "name", "arguments", "status"},
    "function_call_output": {"type", "id", "call_id", "output", "status"},
    "web_search_call": {"type", "id", "status", "action"},
}
ID_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "web_search_call": "ws"}
PART_FIELDS = {
    "input_text": {"type", "text", "prompt_cache_breakpoint"},
    "input_image": {"type", "image_url", "detail", "prompt_cache_breakpoint"},
    "input_file": {"type", "filename", "file_data", "prompt_cache_breakpoint"},
    "output_text": {"type", "text", "annotations", "logprobs"},
    "refusal": {"type", "refusal"},
}
PARTS = {
    "user": ("input_text", "input_image"),
    "system": ("input_text",),
    "developer": ("input_text",),
    "assistant": ("output_text", "refusal"),
    "tool": ("input_text", "input_image", "input_file"),
}
SAID = (
    "reasoning",
    "function_call",
    "web_search_call",
)  # and the messages with the role of the assistant


def request_refusals(body: bytes) -> list[str]:
    """Why the API would answer the request with an error; empty: it would not."""
    try:
        request = decoded(body)
    except ValueError as error:
        return [f"We could not parse the JSON body of your request: {error}"]
    items = request.get("input", [])
    found = [*_of_parameters(request), *_of_tools(request.get("tools"))]
    for n, item in enumerate(items):
        found += [f"input[{n}]{problem}" for problem in _of_item(item)]
    return [*found, *_of_ids(items), *_of_thoughts(items, request), *_of_pairs(items)]


def changed_thoughts(items: Sequence[Block], said: Sequence[Sequence[Block]]) -> list[str]:
    """
    Why the API would refuse how this very model's thoughts come back; `said` has the items of its answers, as it sent them.

    Each is unchanged. While tools are at work, a call stands behind the thoughts that it stood behind.
    """
    known = {item["id"]: item for reply in said for item in reply if item["type"] == "reasoning"}
    found: list[str] = []
    for n, item in enumerate(items):
        if item.get("type") == "reasoning":
            was = known.get(item.get("id", ""), {})
            fields = ("encrypted_content", "summary", "content")
            if any(item.get(field) != was.get(field) for field in fields):
                found.append(f"input[{n}]: the encrypted content could not be verified")
    last = max((n for n, item in enumerate(items) if item.get("role") == "user"), default=-1)
    for n, item in enumerate(items[last + 1 :], last + 1):
        if item.get("type") == "function_call":
            before = [each.get("id") for each in items[:n] if each.get("type") == "reasoning"]
            needed = _thoughts_before(item, said)
            if needed and before[-len(needed) :] != needed:
                found.append(
                    f"input[{n}]: 'function_call' was provided without its required 'reasoning' item: {needed[-1]}"
                )
    return found


def _thoughts_before(call: Block, said: Sequence[Sequence[Block]]) -> list[str]:
    for reply in said:
        thoughts: list[str] = []
        for item in reply:
            if item["type"] == "reasoning":
                thoughts.append(item["id"])
            elif all(item.get(name) == call.get(name) for name in ("call_id", "arguments")):
                return thoughts
    return []


def _of_parameters(request: Mapping[str, Any]) -> Iterator[str]:
    yield from of_fields(request, REQUEST_FIELDS)
    if is_blank(request.get("model")):
        yield "model: Missing required parameter"
    if not request.get("input"):
        yield "input: Missing required parameter"
    if is_blank(request.get("instructions", "words")):
        yield "instructions: must have words"
    limit = request.get("max_output_tokens", MIN_OUTPUT_TOKENS)
    if type(limit) is not int or limit < MIN_OUTPUT_TOKENS:
        yield f"max_output_tokens: Expected a value >= {MIN_OUTPUT_TOKENS}, but got {limit}"
    if request.get("store") is not False:
        yield "store: what people say is kept for 30 days, unless this is false"
    if set(request.get("include", ())) - {ENCRYPTED}:
        yield "include: Invalid value"
    if set(request.get("stream_options", ())) - {"include_obfuscation"}:
        yield "stream_options: Unknown parameter"
    reasoning = request.get("reasoning", {})
    yield from (
        f"reasoning{each}" for each in of_fields(reasoning, ("effort", "summary", "context"))
    )
    if reasoning.get("effort", "none") not in EFFORTS:
        yield f"reasoning.effort: must be one of {', '.join(EFFORTS)}"
    if reasoning.get("summary", "auto") not in ("auto", "concise", "detailed"):
        yield "reasoning.summary: Invalid value"
    key = request.get("prompt_cache_key", "key")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_ID_CHARS:
        yield f"prompt_cache_key: a string of 1 to {MAX_ID_CHARS} characters"


def _of_tools(tools: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    names = [tool.get("name") for tool in tools or ()]
    if len(set(names)) < len(names):
        yield "tools: names must be unique"
    for n, tool in enumerate(tools or ()):
        where = f"tools[{n}]"
        if tool.get("type") == "web_search":
            known = {"type", "filters", "search_context_size", "user_location"}
            yield from (where + each for each in of_fields(tool, known))
            continue
        known = {"type", "name", "description", "parameters", "strict"}
        yield from (where + each for each in of_fields(tool, known))
        if tool.get("type") != "function":
            yield f"{where}.type: must be 'function'"
        if "strict" not in tool:
            yield f"{where}.strict: required; what is not said is true"
        yield from (
            where + each for each in of_function(tool, is_strict=tool.get("strict") is not False)
        )


def _of_item(item: Block) -> Iterator[str]:
    kind = item.get("type", "message" if "role" in item else "")
    if kind not in ITEM_FIELDS:
        yield f".type: Invalid value: {kind!r}"
        return
    yield from of_fields(item, ITEM_FIELDS[kind])
    if item.get("status", "completed") not in STATUSES:
        yield ".status: Invalid value"
    if "id" in item:
        prefix = ID_PREFIXES.get(kind, "")
        if not str(item["id"]).startswith(prefix):
            yield f".id: Expected an ID that begins with '{prefix}'"
        if not 0 < len(str(item["id"])) <= MAX_ID_CHARS:
            yield f".id: Expected a string with maximum length {MAX_ID_CHARS}"
    match kind:
        case "message":
            yield from _of_message(item)
        case "reasoning":
            yield from _of_thought(item)
        case "function_call":
            yield from _of_call(item)
        case "web_search_call":
            if not item.get("id"):
                yield ".id: Missing required parameter"
            if item.get("action", {}).get("type") not in ("search", "open_page", "find_in_page"):
                yield ".action.type: Invalid value"
        case _:
            yield from _of_call_id(item)
            yield from (f".output{each}" for each in _of_content(item.get("output"), "tool"))


def _of_message(item: Block) -> Iterator[str]:
    role = item.get("role", "")
    if role not in PARTS or role == "tool":
        yield f".role: Invalid value: {role!r}"
        return
    if "phase" in item and (
        role != "assistant" or item["phase"] not in ("commentary", "final_answer")
    ):
        yield ".phase: Invalid value"
    if "id" in item and role == "assistant" and "status" not in item:
        yield ".status: Missing required parameter"
    yield from (f".content{each}" for each in _of_content(item.get("content"), role))


def _of_content(content: object, role: str) -> Iterator[str]:
    if not isinstance(content, list):
        if is_blank(content):
            yield ": must have words"
        return
    if not content:
        yield ": must not be empty"
    for n, part in enumerate(content):
        kind, where = part.get("type"), f"[{n}]"
        if kind not in PARTS[role]:
            yield f"{where}: Invalid value: {kind!r}. Supported values are: {', '.join(PARTS[role])}"
            continue
        yield from (where + each for each in of_fields(part, PART_FIELDS[kind]))
        if kind == "input_image":
            yield from (where + each for each in of_image_url(part.get("image_url")))
        elif kind == "input_file":
            if not part.get("filename"):
                yield f"{where}.filename: Missing required parameter"
            prefix, _, data = part.get("file_data", "").partition(";base64,")
            source = {"type": "base64", "media_type": prefix.removeprefix("data:"), "data": data}
            yield from (where + each for each in of_pdf(source))
        elif is_blank(part.get("refusal" if kind == "refusal" else "text")):
            yield f"{where}: must have words"


def _of_thought(item: Block) -> Iterator[str]:
    summary = item.get("summary")
    if not item.get("id"):
        yield ".id: Missing required parameter"
    if not isinstance(summary, list):
        yield ".summary: Missing required parameter"
        return
    for n, part in enumerate(summary):
        if set(part) != {"type", "text"} or part["type"] != "summary_text":
            yield f".summary[{n}]: Invalid value"
    for n, part in enumerate(item.get("content") or ()):
        if set(part) != {"type", "text"} or part["type"] != "reasoning_text":
            yield f".content[{n}]: Invalid value"


def _of_call(item: Block) -> Iterator[str]:
    yield from _of_call_id(item)
    if not FUNCTION_NAME.fullmatch(str(item.get("name", ""))):
        yield f".name: must match '^{FUNCTION_NAME.pattern}$'"
    yield from (f".{each}" for each in of_arguments(item.get("arguments")))


def _of_call_id(item: Block) -> Iterator[str]:
    if not 0 < len(str(item.get("call_id", ""))) <= MAX_ID_CHARS:
        yield f".call_id: Expected a string of 1 to {MAX_ID_CHARS} characters"


def _is_said(item: Block) -> bool:
    """Say whether the model made `item`."""
    return item.get("type") in SAID or item.get("role") == "assistant"


def _of_ids(items: Sequence[Block]) -> Iterator[str]:
    for item_id, count in Counter(item["id"] for item in items if item.get("id")).items():
        if count > 1:
            yield f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."


def _of_thoughts(items: Sequence[Block], request: Mapping[str, Any]) -> Iterator[str]:
    is_asked = ENCRYPTED in request.get("include", ())
    if "reasoning" in request and not is_asked:
        yield "include: thoughts cannot come back if they do not come encrypted"
    for n, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        if not item.get("encrypted_content"):
            yield (
                f"input[{n}]: Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
            )
        if not (items[n + 1 :] and _is_said(items[n + 1])):
            yield (
                f"input[{n}]: Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
            )


def _of_pairs(items: Sequence[Block]) -> Iterator[str]:
    """Each call has its output before the person speaks again, once, and each output has its call."""
    open_ids: list[str] = []
    seen = Counter[str]()
    for n, item in enumerate([*items, {"role": "user"}]):
        match item:
            case {"type": "function_call", "call_id": call_id}:
                open_ids.append(call_id)
                seen[call_id] += 1
                if seen[call_id] > 1:
                    yield f"input[{n}]: Duplicate 'call_id': {call_id}"
            case {"type": "function_call_output", "call_id": call_id} if call_id in open_ids:
                open_ids.remove(call_id)
            case {"type": "function_call_output"}:
                yield (
                    f"input[{n}]: No tool call found for function call output with call_id {item.get('call_id')}"
                )
            case {"role": "user"} if open_ids:
                yield f"input[{n}]: No tool output found for function call {', '.join(open_ids)}"
                open_ids = []
            case _:
                pass
    if items and _is_said(items[-1]):
        yield "input: it ends with what the model has said"
