"""
The names of models in a client's option: `provider/model`, as most clients write them, instead of our `provider:model`.

Harbor, for example, selects only values of the option that are equal to its `provider/model`, or to the model alone. A Claude model has no
provider in its name, so that both match. Our own names are accepted as well.
"""

from collections.abc import Sequence

from sanderling.providers.endpoint import presets
from sanderling.providers.models.known import DEFAULT_PROVIDER, is_replayed, split


def with_slash(name: str) -> str:
    """Return the full name of a model as clients write it."""
    provider, model = split(name)
    return name if is_replayed(provider) or ":" not in name else f"{provider}/{model}"


def meant(value: str, names: Sequence[str]) -> str:
    """
    Return the full name that a client's `value` means; `names` are the models that can be chosen.

    The name of a model can contain slashes, so a provider that cannot be called counts only if no model has that name.
    """
    if value in names:
        return value
    if found := next((name for name in names if with_slash(name) == value), ""):
        return found
    provider, slash, model = value.partition("/")
    if not (slash and model) or ":" in provider:
        return value
    if found := next((name for name in names if split(name) == (provider, model)), ""):
        return found
    callable_ones = {split(name)[0] for name in names}
    has_it = any(split(name)[1] == value for name in names)
    is_provider = provider in (DEFAULT_PROVIDER, *presets()) and not has_it
    return f"{provider}:{model}" if provider in callable_ones or is_provider else value


def is_same(value: str, name: str) -> bool:
    """Return whether `value` means the model `name`. It may be a part of the name."""
    return value in name or split(value) == split(name)
