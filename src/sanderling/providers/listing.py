"""The models of all available providers: the known ones, and the providers' own lists, fetched in parallel."""

from collections.abc import Iterator

import anyio
import msgspec

from sanderling.config import Settings
from sanderling.errors import ConfigError, ProviderError
from sanderling.providers import Provider
from sanderling.providers.choice import at_hand, full_name, make_at
from sanderling.providers.endpoint import Endpoint, is_local, load_endpoint, presets
from sanderling.providers.models.known import KnownModels
from sanderling.text import duration

DEADLINE_S = 10.0


class ModelListing(msgspec.Struct):
    """Models by their full names; `problems` are sentences about providers that could not be called."""

    models: list[str] = []
    problems: list[str] = []


def known_models(settings: Settings, known: KnownModels) -> list[str]:
    """Return the known models of available providers, without calling them; for a provider without any, the prefix of its names."""
    found: dict[str, None] = {}
    for endpoint in at_hand(settings):
        names = [*filter(None, (endpoint.model, *known.names(endpoint.name)))] or [""]
        found |= dict.fromkeys(full_name(endpoint.name, name, settings) for name in names)
    return list(found)


async def listed_models(settings: Settings, *, deadline_s: float = DEADLINE_S) -> ModelListing:
    """Call each available provider, and the local servers that may be running, for its models."""
    asked = {endpoint.name: endpoint for endpoint in (*at_hand(settings), *_local(settings))}
    listings = {name: ModelListing() for name in asked}
    async with anyio.create_task_group() as tasks:
        for name, endpoint in asked.items():
            tasks.start_soon(_list, endpoint, settings, listings[name], deadline_s)
    return ModelListing(
        [model for listing in listings.values() for model in listing.models],
        [problem for listing in listings.values() for problem in listing.problems],
    )


def _local(settings: Settings) -> Iterator[Endpoint]:
    for name in presets():
        endpoint = load_endpoint(name, settings.providers)
        if is_local(endpoint.base_url):
            yield endpoint


async def _list(
    endpoint: Endpoint, settings: Settings, listing: ModelListing, deadline_s: float
) -> None:
    try:
        with anyio.fail_after(deadline_s):
            names = await _names(make_at(endpoint, endpoint.model, settings))
        listing.models = [full_name(endpoint.name, name, settings) for name in names]
    except TimeoutError:
        listing.problems.append(f"{endpoint.name}: no list within {duration(deadline_s)}.")
    except ProviderError as error:
        # A local server that the user has not configured need not run.
        if endpoint.name in settings.providers or error.kind != "network":
            listing.problems.append(f"{endpoint.name}: {error.message} {error.remedy}".rstrip())
    except ConfigError as error:
        listing.problems.append(f"{endpoint.name}: {error}.")


async def _names(provider: Provider) -> tuple[str, ...]:
    try:
        await provider.prepare()
        return await provider.list_models()
    finally:
        with anyio.CancelScope(shield=True):
            await provider.aclose()
