"""Token counts of Chat Completions, which each server names in its own way."""

from sanderling.protocol.messages import Usage
from sanderling.providers.http.bodies import count, field, first_count

# Fields of `usage` for cached input: OpenAI and most others, DeepSeek, Moonshot.
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
    """Return the counts in a chunk; None if it has none. Missing counts keep their values."""
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
        output = max(
            output, total - prompt
        )  # some servers leave reasoning out of completion_tokens
    prompt = before.input_tokens if prompt is None else max(0, prompt - read - written)
    return Usage(prompt, output, written, read)
