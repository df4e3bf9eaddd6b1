"""A tool: an input, whose schema the model is sent, and a function, whose docstring it reads."""

import msgspec

from sanderling.api import Context, Effect, Outcome, tool

API_VERSION = 1


class Words(msgspec.Struct, frozen=True):
    text: str
    is_unique: bool = False


@tool(
    Words,
    # It changes nothing, so it runs without a question. Without `effect`, each call is asked about.
    effect=lambda _args, _workspace: Effect("count_words", "none"),
    title=lambda args, _workspace: args.text[:40],
)
async def count_words(args: Words, _: Context) -> Outcome:
    """Count the words of a text. With `is_unique`, each word counts once."""
    words = args.text.split()
    count = len(set(words) if args.is_unique else words)
    return Outcome(content=f"{count} words", summary=f"{count} words")
