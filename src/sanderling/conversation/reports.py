"""Reports on a conversation's provider, cost and settings. Rarely used, so the imports they need are loaded on demand."""

from math import inf

from sanderling.config.show import settings_report
from sanderling.conversation.checks.trial import shown, try_all
from sanderling.conversation.services import SessionServices
from sanderling.conversation.usage_report import usage_report
from sanderling.protocol.requests import Report, ShowSettings, ShowUsage, TestProvider
from sanderling.providers.models.known import split
from sanderling.providers.redaction import hide_secrets


async def answer(
    services: SessionServices, request: TestProvider | ShowUsage | ShowSettings
) -> Report:
    match request:
        case TestProvider(_, provider):
            name = provider or ":".join(split(services.provider.model))
            return Report("Provider", shown(await try_all([name], "", services.settings)))
        case ShowUsage():
            return Report("Usage", _usage(services))
        case ShowSettings():
            text = settings_report(services.settings, services.provider.model, hide_secrets)
            return Report("Settings", text)


def _usage(services: SessionServices) -> str:
    session, provider, calls = services.session, services.provider, services.calls
    return usage_report(
        session.ledger,
        calls.prices,
        model=provider.model,
        context_used=session.last_usage.context_tokens,
        window=provider.limits.context_window_tokens if provider.limits else 0,
        budget_usd=limit_usd if (limit_usd := calls.budget.session.limit.usd) != inf else 0.0,
    )
