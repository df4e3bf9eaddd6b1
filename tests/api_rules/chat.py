"""
Chat Completions, of OpenAI and of those who speak it after their own fashion.

The format: https://platform.openai.com/docs/api-reference/chat, and the types of its SDK. What an endpoint has of its own is a row
of `ENDPOINTS`; where its documentation does not say so, the reports of its users do:

* DeepSeek: https://api-docs.deepseek.com/guides/thinking_mode; thoughts are blank at no tool call, whoever made it.
* Gemini: https://ai.google.dev/gemini-api/docs/thought-signatures; a call that it did not make has the signature that stands for none.
* Mistral: the types of `mistralai`, which forbid what they do not know; ids and order are those of `mistral_common`.
* Groq refuses properties of messages that it does not know. OpenRouter: …/docs/use-cases/reasoning-tokens.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
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
)

MAX_TOOLS = 128
OWED = {"deepseek": "reasoning_content", "openrouter": "reasoning_details"}  # with calls of tools
NO_SIGNATURE = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
REQUEST_FIELDS = {
    *("model", "messages", "stream", "stream_options", "tools", "tool_choice"),
    *("parallel_tool_calls", "reasoning_effort", "temperature", "top_p", "stop", "seed", "user"),
    *("response_format", "metadata", "service_tier"),
}
OPENAI_FIELDS = {"prompt_cache_key", "prompt_cache_options", "store", "verbosity"}
MESSAGE_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "tool_calls", "name", "refusal"},
    "tool": {"role", "content", "tool_call_id"},
}
CALL_FIELDS = {"id", "type", "function"}


@dataclass(frozen=True)
class Endpoint:
    """What one takes beside the format's own fields, and what it does not take."""

    max_tokens: tuple[str, ...] = ("max_tokens", "max_completion_tokens")
    fields: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    assistant_fields: frozenset[str] = frozenset()
    call_fields: frozenset[str] = frozenset()
    tool_fields: frozenset[str] = frozenset()
    ids: str = r"[^\s]{1,64}"
    has_developer: bool = False
    has_images: bool = True
    marks: frozenset[str] = frozenset()  # of the cache, on parts of a content
    has_thoughts: bool = False  # as parts of a content
    needs_content: bool = False  # null where there is none
    is_ordered: bool = False  # neither the person after a tool, nor the model after itself
    is_strict: bool = True  # takes `strict` functions


ENDPOINTS = {
    "openai": Endpoint(
        max_tokens=("max_completion_tokens",),
        fields=frozenset(OPENAI_FIELDS),
        has_developer=True,
        marks=frozenset({"prompt_cache_breakpoint"}),
    ),
    "deepseek": Endpoint(
        max_tokens=("max_tokens",),
        fields=frozenset({"thinking"}),
        assistant_fields=frozenset({"reasoning_content", "prefix"}),
        has_images=False,
        needs_content=True,
    ),
    "doubao": Endpoint(
        fields=frozenset({"thinking"}), assistant_fields=frozenset({"reasoning_content"})
    ),
    "mistral": Endpoint(
        max_tokens=("max_tokens",),
        fields=frozenset({"prompt_cache_key", "random_seed", "prompt_mode", "safe_prompt"}),
        without=frozenset({"stream_options", "seed", "user"}),
        assistant_fields=frozenset({"prefix"}),
        tool_fields=frozenset({"name"}),
        ids=r"[A-Za-z0-9]{9}",
        has_thoughts=True,
        is_ordered=True,
    ),
    "gemini": Endpoint(
        fields=frozenset({"extra_body"}),
        assistant_fields=frozenset({"extra_content"}),
        call_fields=frozenset({"extra_content"}),
        tool_fields=frozenset({"name"}),
    ),
    "openrouter": Endpoint(
        fields=frozenset({"reasoning", "provider", "usage", "cache_control", *OPENAI_FIELDS}),
        assistant_fields=frozenset({"reasoning", "reasoning_details"}),
        marks=frozenset({"cache_control"}),
    ),
    "xai": Endpoint(
        fields=frozenset({"prompt_cache_key"}), assistant_fields=frozenset({"reasoning_content"})
    ),
    "groq": Endpoint(
        fields=frozenset({"reasoning_format", "include_reasoning"}),
        assistant_fields=frozenset({"reasoning"}),
    ),
    "llamacpp": Endpoint(
        fields=frozenset({"cache_prompt", "chat_template_kwargs", "reasoning_format"}),
        assistant_fields=frozenset({"reasoning_content"}),
    ),
    "vllm": Endpoint(
        fields=frozenset({"chat_template_kwargs", "include_reasoning"}),
        assistant_fields=frozenset({"reasoning", "reasoning_content"}),
    ),
    "lmstudio": Endpoint(
        max_tokens=("max_tokens",), assistant_fields=frozenset({"reasoning", "reasoning_content"})
    ),
    "any": Endpoint(  # takes back whatever it may send
        assistant_fields=frozenset(
            {"reasoning", "reasoning_content", "reasoning_details", "extra_content"}
        ),
        call_fields=frozenset({"extra_content"}),
        has_thoughts=True,
    ),
}


def request_refusals(body: bytes, endpoint: str = "openai") -> list[str]:
    """Why this endpoint would answer the request with an error; empty: it would not."""
    try:
        request = decoded(body)
    except ValueError as error:
        return [f"We could not parse the JSON body of your request: {error}"]
    rules = ENDPOINTS[endpoint]
    messages = request.get("messages", [])
    found = [*_of_parameters(request, rules), *_of_tools(request.get("tools"), rules)]
    for n, message in enumerate(messages):
        found += [f"messages[{n}]{problem}" for problem in _of_message(message, rules)]
    found += _of_order(messages, rules)
    found += _of_pairs(messages)
    if endpoint == "deepseek":
        found += _of_deepseek(messages)
    if endpoint == "gemini":
        found += _of_gemini(messages)
    return found


def changed_extras(
    messages: Sequence[Block], said: Sequence[Block], endpoint: str = "openai"
) -> list[str]:
    """
    Why the endpoint would refuse how calls of tools come back that this very model made; `said` has its messages, as it sent them.

    A call is known by its arguments: its id may be another where the endpoint demands one of a kind.
    """
    owed = OWED.get(endpoint, "")
    found: list[str] = []
    for n, message in enumerate(messages):
        for at, call in enumerate(message.get("tool_calls") or ()):
            replies = [reply for reply in said if _with_arguments(reply, call)]
            thoughts = [reply[owed] for reply in replies if reply.get(owed)]
            if thoughts and _merged(message.get(owed)) not in map(_merged, thoughts):
                found.append(f"messages[{n}]: {owed} is not what the model said")
            calls = [was for reply in replies if (was := _with_arguments(reply, call))]
            extras = [was["extra_content"] for was in calls if "extra_content" in was]
            is_foreign = _signature(call) in ("", *NO_SIGNATURE)
            if call.get("extra_content") not in extras and (extras or not is_foreign):
                found.append(f"messages[{n}].tool_calls[{at}]: Invalid thought signature")
    return found


def _with_arguments(message: Block, call: Block) -> Block | None:
    """The call of `message` that has the arguments of `call`."""
    calls = message.get("tool_calls") or ()
    return next((each for each in calls if _arguments(each) == _arguments(call)), None)


def _arguments(call: Block) -> object:
    try:
        return json.loads(call["function"]["arguments"] or "{}")
    except ValueError:
        return None


def _merged(thoughts: object) -> object:
    """The details of thoughts without how they were cut into pieces."""
    if not isinstance(thoughts, list):
        return thoughts
    merged: list[dict[str, Any]] = []
    for detail in thoughts:
        last = merged[-1] if merged else {}
        if all(last.get(name, "") == detail.get(name) for name in ("type", "index")):
            for name in ("text", "summary", "data"):
                if name in detail or name in last:
                    last[name] = (last.get(name) or "") + (detail.get(name) or "")
            last |= {name: detail[name] for name in detail if name not in last or not last[name]}
        else:
            merged.append(dict(detail))
    return merged


def _signature(call: Block) -> str:
    return call.get("extra_content", {}).get("google", {}).get("thought_signature", "")


def _of_parameters(request: Mapping[str, Any], rules: Endpoint) -> Iterator[str]:
    known = (REQUEST_FIELDS | rules.fields | set(rules.max_tokens)) - rules.without
    yield from of_fields(request, known)
    if is_blank(request.get("model")):
        yield "model: you must provide a model parameter"
    limits = [request[name] for name in rules.max_tokens if name in request]
    if len(limits) > 1:
        yield f"{' and '.join(rules.max_tokens)}: only one of them can be set"
    if not all(type(limit) is int and limit > 0 for limit in limits):
        yield f"{rules.max_tokens[0]}: must be at least 1"
    if "stream_options" in request and not request.get("stream"):
        yield "stream_options: only allowed when 'stream' is enabled"
    if request.get("reasoning_effort", "none") not in EFFORTS:
        yield f"reasoning_effort: must be one of {', '.join(EFFORTS)}"
    for field in ("tool_choice", "parallel_tool_calls"):
        if field in request and not request.get("tools"):
            yield f"{field}: only allowed when 'tools' are specified"
    key = request.get("prompt_cache_key", "key")
    if not isinstance(key, str) or not 0 < len(key) <= 64:
        yield "prompt_cache_key: a string of 1 to 64 characters"
    if any(message.get("tool_calls") for message in request["messages"]) and not request.get(
        "tools"
    ):
        yield "tools: must be given when messages hold tool calls"


def _of_tools(tools: Sequence[Mapping[str, Any]] | None, rules: Endpoint) -> Iterator[str]:
    if tools is None:
        return
    if not 0 < len(tools) <= MAX_TOOLS:
        yield f"tools: an array of 1 to {MAX_TOOLS}, not {len(tools)}"
    names = [tool.get("function", {}).get("name") for tool in tools]
    if len(set(names)) < len(names):
        yield "tools: function names must be unique"
    for n, tool in enumerate(tools):
        yield from (f"tools[{n}]{problem}" for problem in of_fields(tool, ("type", "function")))
        if tool.get("type") != "function":
            yield f"tools[{n}].type: must be 'function'"
        function = tool.get("function", {})
        known = {"name", "description", "parameters"} | ({"strict"} if rules.is_strict else set())
        strict = bool(function.get("strict"))
        for problem in (*of_fields(function, known), *of_function(function, is_strict=strict)):
            yield f"tools[{n}].function{problem}"


def _of_message(message: Block, rules: Endpoint) -> Iterator[str]:
    role = message.get("role", "")
    if role not in MESSAGE_FIELDS or (role == "developer" and not rules.has_developer):
        yield f".role: unknown role {role!r}"
        return
    extra = {"assistant": rules.assistant_fields, "tool": rules.tool_fields}.get(role, frozenset())
    yield from of_fields(message, MESSAGE_FIELDS[role] | extra)
    match role:
        case "assistant":
            yield from _of_assistant(message, rules)
        case _:
            yield from _of_content(message.get("content"), role, rules)
    if role == "tool" and not re.fullmatch(rules.ids, str(message.get("tool_call_id", ""))):
        yield f".tool_call_id: must match '^{rules.ids}$'"


def _of_assistant(message: Block, rules: Endpoint) -> Iterator[str]:
    content, calls = message.get("content"), message.get("tool_calls")
    if "tool_calls" in message and not calls:
        yield ".tool_calls: [] is too short"
    if "content" not in message and rules.needs_content:
        yield ": missing field `content`"
    if not calls or content:
        yield from _of_content(content, "assistant", rules)
    for n, call in enumerate(calls or ()):
        yield from (f".tool_calls[{n}]{problem}" for problem in _of_call(call, rules))
    for field in ("reasoning_content", "reasoning"):
        if not isinstance(message.get(field, ""), str):
            yield f".{field}: must be a string"
    if not isinstance(message.get("reasoning_details", []), list):
        yield ".reasoning_details: must be an array"


def _of_call(call: Block, rules: Endpoint) -> Iterator[str]:
    yield from of_fields(call, CALL_FIELDS | rules.call_fields)
    function = call.get("function", {})
    yield from of_fields(function, ("name", "arguments"))
    if not re.fullmatch(rules.ids, str(call.get("id", ""))):
        yield f".id: must match '^{rules.ids}$'"
    if call.get("type") != "function":
        yield ".type: must be 'function'"
    if not FUNCTION_NAME.fullmatch(str(function.get("name", ""))):
        yield f".function.name: must match '^{FUNCTION_NAME.pattern}$'"
    yield from (f".function.{problem}" for problem in of_arguments(function.get("arguments")))


def _of_content(content: object, role: str, rules: Endpoint) -> Iterator[str]:
    """Words, or parts; neither may be without any."""
    if not isinstance(content, list):
        if is_blank(content):
            yield ".content: must be a string with words"
        return
    if not content:
        yield ".content: [] is too short"
    for n, part in enumerate(content):
        where = f".content[{n}]"
        match part.get("type"):
            case "text":
                yield from (
                    where + each for each in of_fields(part, {"type", "text", *rules.marks})
                )
                if is_blank(part.get("text")):
                    yield f"{where}.text: must have words"
            case "image_url" if role == "user" and rules.has_images:
                yield from (
                    where + each for each in of_fields(part, {"type", "image_url", *rules.marks})
                )
                yield from (where + each for each in of_image_url(part["image_url"].get("url")))
            case "thinking" if role == "assistant" and rules.has_thoughts:
                yield from (where + each for each in _of_thought(part))
            case "image_url":
                yield f"{where}: images are not allowed for messages with role '{role}' here"
            case kind:
                yield f"{where}: unknown variant {kind!r}"


def _of_thought(part: Block) -> Iterator[str]:
    yield from of_fields(part, {"type", "thinking", "signature", "closed"})
    thinking = part.get("thinking")
    if not isinstance(thinking, list) or not all(
        set(each) == {"type", "text"} and each["type"] == "text" for each in thinking
    ):
        yield ".thinking: Input should be a valid list of texts"


def _of_order(messages: Sequence[Block], rules: Endpoint) -> Iterator[str]:
    roles = [message.get("role", "") for message in messages]
    spoken = [role for role in roles if role not in ("system", "developer")]
    if spoken[:1] != ["user"]:
        yield "messages: the first one after the system's must be the user's"
    if roles[len(roles) - len(spoken) :] != spoken or len(roles) - len(spoken) > 1:
        yield "messages: one system message, at the beginning"
    if roles[-1:] not in (["user"], ["tool"]):
        yield f"Expected last role User or Tool for serving but got {roles[-1:]}"
    for n, (one, other) in enumerate(pairwise(roles), 1):
        if rules.is_ordered and (one, other) in (("tool", "user"), ("assistant", "assistant")):
            yield f"messages[{n}]: Unexpected role '{other}' after role '{one}'"


def _of_pairs(messages: Sequence[Block]) -> Iterator[str]:
    """Each call is answered right behind its message, once, and each answer has its call."""
    open_ids: list[str] = []
    seen = Counter[str]()
    for n, message in enumerate([*messages, {"role": "the end"}]):
        if message.get("role") == "tool":
            use_id = message.get("tool_call_id", "")
            if use_id not in open_ids:
                yield (
                    f"messages[{n}]: messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
                )
            else:
                open_ids.remove(use_id)
            continue
        if open_ids:
            yield (
                f"messages[{n}]: An assistant message with 'tool_calls' must be followed by tool messages responding to each"
                f" 'tool_call_id': {', '.join(open_ids)}"
            )
        open_ids = [call.get("id", "") for call in message.get("tool_calls") or ()]
        seen.update(open_ids)
        if any(seen[use_id] > 1 for use_id in open_ids):
            yield f"messages[{n}].tool_calls: ids must be unique"


def _turns(messages: Sequence[Block]) -> Iterator[list[tuple[int, Block]]]:
    """What stands between two messages of the person's."""
    turn: list[tuple[int, Block]] = []
    for n, message in enumerate(messages):
        if message.get("role") == "user":
            yield turn
            turn = []
        turn.append((n, message))
    yield turn


def _of_deepseek(messages: Sequence[Block]) -> Iterator[str]:
    """Between two messages of the person's in which it has called a tool, all that it thought must come back, ever after."""
    for turn in _turns(messages):
        if any(message.get("tool_calls") for _, message in turn):
            for n, message in turn:
                if message.get("role") == "assistant" and not message.get("reasoning_content"):
                    yield (
                        f"messages[{n}]: The `reasoning_content` in the thinking mode must be passed back to the API."
                    )


def _of_gemini(messages: Sequence[Block]) -> Iterator[str]:
    """In the turn that goes on, the first of the calls in each message is signed."""
    *_, turn = _turns(messages)
    for n, message in turn:
        for call in (message.get("tool_calls") or ())[:1]:
            if not _signature(call):
                yield f"messages[{n}]: Function call is missing a thought_signature in functionCall parts"
