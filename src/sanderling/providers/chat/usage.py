"""Tokens as servers of chat completions count them, each by its own names."""

from sanderling.protocol.messages import Usage
from sanderling.providers.http.bodies import count, field, first_count

# The fields of `usage` with what the cache has read: OpenAI and most, DeepSeek, Moonshot.
_READ = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cached_tokens",),
)
_WRITTEN = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
)


def read_usage(chunk: object, choice: object, before: Usage) -> Usage | None:
    """The tokens that the chunk tells of; None if it tells of none. What it leaves out keeps its value."""
    usage = (
        field(chunk, "usage") or field(field(chunk, "x_groq"), "usage") or field(choice, "usage")
    )
    prompt, completion, total = (
        count(field(usage, f"{name}_tokens")) for name in ("prompt", "completion", "total")
    )
    if prompt is None and completion is None:
        return None
    read, written = first_count(usage, _READ), first_count(usage, _WRITTEN)
    output = before.output_tokens if completion is None else completion
    if prompt is not None and total is not None:
        output = max(output, total - prompt)  # some leave out there what the thoughts have taken
    prompt = before.input_tokens if prompt is None else max(0, prompt - read - written)
    return Usage(prompt, output, written, read)
