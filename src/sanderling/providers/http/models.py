"""
The list of a server's models, with their limits.

The format requires only an id. Many servers add limits, each under its own names.
"""

from contextlib import suppress
from typing import Any

import msgspec

from sanderling.providers import ModelLimits
from sanderling.providers.http.bodies import count, decode, field, first_count, is_list, items
from sanderling.providers.http.errors import malformed
from sanderling.providers.models.known import PER_TOKENS, Price

# OpenRouter, LM Studio, Mistral, Groq, vLLM, llama.cpp
_WINDOW = (
    ("context_length",),
    ("max_context_length",),
    ("loaded_context_length",),
    ("context_window",),
    ("max_model_len",),
    ("meta", "n_ctx"),
    ("meta", "n_ctx_train"),
    ("max_input_tokens",),
)
_OUTPUT = (
    ("top_provider", "max_completion_tokens"),
    ("max_completion_tokens",),
    ("max_output_tokens",),
)

# OpenRouter's prices are dollars per token, as text. They are negative if they vary from request to request.
_PRICE = {
    "input": "prompt",
    "output": "completion",
    "cache_read": "input_cache_read",
    "cache_write": "input_cache_write",
}

MAX_MODELS = 10_000
MAX_NAME_CHARS = 200

_decoder = msgspec.json.Decoder(Any)


def is_name(name: object) -> bool:
    """Reject names that are invisible or do not fit on a line."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def decode_models(data: bytes) -> dict[str, ModelLimits]:
    """
    Return the models with their limits, newest first if the list has dates, else in its order.

    Raises:
        ProviderError: it is not a list of models.
    """
    body = decode(_decoder, data)
    listed = body if is_list(body) else field(body, "data")
    if not is_list(listed):
        raise malformed("no list of models")
    found: dict[str, ModelLimits] = {}
    first = items(listed)[:MAX_MODELS]
    for model in sorted(first, key=lambda model: -(count(field(model, "created")) or 0)):
        name = field(model, "id")
        if is_name(name):
            found[name.removeprefix("models/")] = ModelLimits(  # Gemini's prefix
                first_count(model, _WINDOW), first_count(model, _OUTPUT), _price(model)
            )
    return found


def _price(model: object) -> Price | None:
    """Return the price; None if the list does not have all of it."""
    prices = {key: field(field(model, "pricing"), name) for key, name in _PRICE.items()}
    with suppress(ValueError, msgspec.ValidationError):
        dollars = {
            key: round(float(each) * PER_TOKENS, 9)
            for key, each in prices.items()
            if isinstance(each, str)
        }
        return msgspec.convert(dollars, Price)
    return None
