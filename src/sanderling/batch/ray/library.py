"""Ray, which is an optional package. It has no types of its own here, because its absence must not be an error of the type checker."""

from importlib import import_module
from typing import Any

from sanderling.errors import UsageError


def load_ray() -> Any:
    """
    Import Ray.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"the engine ray needs Ray, which cannot be loaded ({error}): pip install 'sanderling[ray]'"
        ) from error
