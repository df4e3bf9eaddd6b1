"""
The list of models that a server has, and what it says of their limits.

By the format a model has no more than an id; many say more, each by names of its own.
"""

from contextlib import suppress
from typing import Any

import msgspec

from sanderling.models.known import PER_TOKENS, Price
from sanderling.providers import ModelLimits
from sanderling.providers.http.bodies import count, decode, field, first_count, is_list, items
from sanderling.providers.http.errors import malformed

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

# OpenRouter tells dollars per token, as text; what varies from request to request is negative there.
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
    """Say whether a model can be called so: what nobody can see or write in a line is no name."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()


def decode_models(data: bytes) -> dict[str, ModelLimits]:
    """
    The models with their limits, the newest first where the list tells; else in its order.

    Raises:
        ProviderError: it is no list of models.
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
            found[name.removeprefix("models/")] = ModelLimits(  # as Gemini has them
                first_count(model, _WINDOW), first_count(model, _OUTPUT), _price(model)
            )
    return found


def _price(model: object) -> Price | None:
    """The price that the list tells; None if it does not tell all of it."""
    told = {key: field(field(model, "pricing"), name) for key, name in _PRICE.items()}
    with suppress(ValueError, msgspec.ValidationError):
        dollars = {
            key: round(float(each) * PER_TOKENS, 9)
            for key, each in told.items()
            if isinstance(each, str)
        }
        return msgspec.convert(dollars, Price)
    return None
