"""The models that can be chosen in a conversation."""

from typing import Literal

from anyio import to_thread

from sanderling.conversation.services import SessionServices
from sanderling.errors import ProviderError
from sanderling.protocol.requests import Models
from sanderling.providers.listing import ModelListing, known_models, listed_models
from sanderling.providers.models.known import split


async def models(services: SessionServices, scope: Literal["known", "own", "all"]) -> Models:
    """
    Return the known models; with "own" also the provider's list, with "all" the lists of all providers.

    Known models of a provider are left out if the provider returned a list.
    """
    settings, known = services.settings, services.calls.models
    names_known = await to_thread.run_sync(known_models, settings, known)
    listing = ModelListing()
    if scope == "all":
        listing = await listed_models(settings)
    elif scope == "own":
        listing = await _own_models(services)
    listed = {split(name)[0] for name in listing.models}
    rest = (
        name
        for name in names_known
        if split(name)[0] not in listed and (scope == "known" or not name.endswith(":"))
    )
    names = tuple(dict.fromkeys((*listing.models, *rest, services.provider.model)))
    notes = {name: note for name in names if (note := known.of(name).note)}
    return Models(names, notes, tuple(listing.problems))


async def _own_models(services: SessionServices) -> ModelListing:
    try:
        await services.provider.prepare()
        return ModelListing([*await services.provider.list_models()])
    except ProviderError as error:
        return ModelListing([], [f"{error.message} {error.remedy}".rstrip()])
