"""Reports on a conversation's models, costs and settings: what is seldom asked for, and loads much that nothing else needs."""

from typing import Literal

from anyio import to_thread

from sanderling.config.show import settings_report
from sanderling.conversation.parts import Parts
from sanderling.conversation.trial import shown, try_all
from sanderling.conversation.usage_report import usage_report
from sanderling.errors import ProviderError
from sanderling.models.known import split
from sanderling.protocol.requests import (
    ListModels,
    Models,
    Report,
    ShowSettings,
    ShowUsage,
    TestProvider,
)
from sanderling.providers.listing import Listing, known_models, listed_models
from sanderling.providers.redaction import hide_secrets


async def answer(
    parts: Parts, request: ListModels | TestProvider | ShowUsage | ShowSettings
) -> Models | Report:
    """Answer `request` about the conversation of `parts`."""
    match request:
        case ListModels(_, scope):
            return await _models(parts, scope)
        case TestProvider(_, provider):
            name = provider or ":".join(split(parts.provider.model))
            return Report("Provider", shown(await try_all([name], "", parts.settings)))
        case ShowUsage():
            return Report("Usage", _usage(parts))
        case ShowSettings():
            text = settings_report(parts.settings, parts.provider.model, hide_secrets)
            return Report("Settings", text)


async def _models(parts: Parts, scope: Literal["known", "own", "all"]) -> Models:
    """Models that can be chosen: those that were listed, and what is known of providers that have listed nothing."""
    settings, models = parts.settings, parts.calls.models
    known = await to_thread.run_sync(known_models, settings, models)
    listing = Listing()
    if scope == "all":
        listing = await listed_models(settings)
    elif scope == "own":
        listing = await _own_models(parts)
    told = {split(name)[0] for name in listing.models}
    rest = (
        name
        for name in known
        if split(name)[0] not in told and (scope == "known" or not name.endswith(":"))
    )
    names = tuple(dict.fromkeys((*listing.models, *rest, parts.provider.model)))
    notes = {name: note for name in names if (note := models.of(name).note)}
    return Models(names, notes, tuple(listing.problems))


async def _own_models(parts: Parts) -> Listing:
    try:
        await parts.provider.prepare()
        return Listing([*await parts.provider.list_models()])
    except ProviderError as error:
        return Listing([], [f"{error.message} {error.remedy}".rstrip()])


def _usage(parts: Parts) -> str:
    session, provider, calls = parts.session, parts.provider, parts.calls
    return usage_report(
        session.ledger,
        calls.prices,
        model=provider.model,
        context_used=session.last_usage.context_tokens,
        window=provider.limits.context_window_tokens if provider.limits else 0,
        budget_usd=calls.budget_usd,
    )
