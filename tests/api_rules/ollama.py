"""
Ollama's own API: https://docs.ollama.com/api/chat, and the types of its SDK.

It passes over most of what it does not know, so that nobody notices: a context that is cut to a default, thoughts that get lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.api_rules import (
    FUNCTION_NAME,
    Block,
    decoded,
    is_blank,
    of_base64_image,
    of_fields,
    of_function,
)

REQUEST_FIELDS = {
    *("model", "messages", "tools", "stream", "think", "options", "keep_alive", "format"),
    *("truncate", "shift"),
}
THINK = (True, False, "low", "medium", "high", "max")
OPTIONS = {"num_ctx", "num_predict", "temperature", "top_p", "top_k", "seed", "stop", "num_keep"}
MESSAGE_FIELDS = {
    "system": {"role", "content"},
    "user": {"role", "content", "images"},
    "assistant": {"role", "content", "thinking", "tool_calls"},
    "tool": {"role", "content", "tool_name", "tool_call_id", "images"},
}


def request_refusals(body: bytes) -> list[str]:
    """Why Ollama would answer the request with an error, or not to what was meant; empty: it would not."""
    try:
        request = decoded(body)
    except ValueError as error:
        return [f"invalid JSON: {error}"]
    messages = request.get("messages", [])
    found = list(_of_parameters(request))
    for n, message in enumerate(messages):
        found += [f"messages[{n}]{problem}" for problem in _of_message(message)]
    return [*found, *_of_order(messages)]


def _of_parameters(request: Mapping[str, Any]) -> Iterator[str]:
    yield from of_fields(request, REQUEST_FIELDS)
    if is_blank(request.get("model")):
        yield "model is required"
    if request.get("think", False) not in THINK:
        yield f"think: invalid value {request['think']!r}"
    options = request.get("options", {})
    yield from (f"options{each}" for each in of_fields(options, OPTIONS))
    if type(options.get("num_ctx")) is not int or options["num_ctx"] <= 0:
        yield "options.num_ctx: without it all but the last few thousand tokens are thrown away, and nobody is told"
    limit = options.get("num_predict", 1)
    if type(limit) is not int or limit <= 0:
        yield "options.num_predict: must be positive"
    for n, tool in enumerate(request.get("tools", ())):
        yield from (f"tools[{n}]{each}" for each in of_fields(tool, ("type", "function")))
        function = tool.get("function", {})
        known = ("name", "description", "parameters")
        for each in (*of_fields(function, known), *of_function(function, is_strict=False)):
            yield f"tools[{n}].function{each}"


def _of_message(message: Block) -> Iterator[str]:
    role = message.get("role", "")
    if role not in MESSAGE_FIELDS:
        yield f": invalid role {role!r}"
        return
    yield from of_fields(message, MESSAGE_FIELDS[role])
    content, calls = message.get("content", ""), message.get("tool_calls", [])
    if not isinstance(content, str):
        yield ".content: cannot unmarshal into a string"
    elif not calls and not message.get("images") and is_blank(content):
        yield ".content: must have words"
    if not isinstance(message.get("thinking", ""), str):
        yield ".thinking: cannot unmarshal into a string"
    for n, image in enumerate(message.get("images", ())):
        yield from (f".images[{n}]{each}" for each in of_base64_image(image))
    for n, call in enumerate(calls):
        yield from (f".tool_calls[{n}]{each}" for each in _of_call(call))


def _of_call(call: Block) -> Iterator[str]:
    yield from of_fields(call, ("id", "type", "function"))
    function = call.get("function", {})
    yield from (f".function{each}" for each in of_fields(function, ("name", "arguments", "index")))
    if not FUNCTION_NAME.fullmatch(str(function.get("name", ""))):
        yield f".function.name: must match '^{FUNCTION_NAME.pattern}$'"
    if not isinstance(function.get("arguments"), dict):
        yield ".function.arguments: cannot unmarshal into an object"


def _of_order(messages: Sequence[Block]) -> Iterator[str]:
    """What a tool answers stands behind the message that used it, in the order of its calls: names are all that tells them apart."""
    roles = [message.get("role", "") for message in messages]
    if "system" in roles[1:]:
        yield "messages: the system's stands at the beginning"
    if roles[-1:] not in (["user"], ["tool"]):
        yield "messages: the last one is not to be answered"
    open_names: list[str] = []
    for n, message in enumerate([*messages, {"role": "the end"}]):
        if message.get("role") == "tool":
            if [message.get("tool_name")] != open_names[:1]:
                yield f"messages[{n}].tool_name: not that of the call that it answers"
            open_names = open_names[1:]
            continue
        if open_names:
            yield f"messages[{n}]: no tool has answered the calls of {', '.join(open_names)}"
        calls = message.get("tool_calls") or ()
        open_names = [str(call.get("function", {}).get("name")) for call in calls]
