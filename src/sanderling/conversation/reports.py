"""Reports on a conversation's provider, cost and settings. Rarely used, so the imports they need are loaded on demand."""

from sanderling.config.show import settings_report
from sanderling.conversation.parts import Parts
from sanderling.conversation.trial import shown, try_all
from sanderling.conversation.usage_report import usage_report
from sanderling.models.known import split
from sanderling.protocol.requests import Report, ShowSettings, ShowUsage, TestProvider
from sanderling.providers.redaction import hide_secrets


async def answer(parts: Parts, request: TestProvider | ShowUsage | ShowSettings) -> Report:
    match request:
        case TestProvider(_, provider):
            name = provider or ":".join(split(parts.provider.model))
            return Report("Provider", shown(await try_all([name], "", parts.settings)))
        case ShowUsage():
            return Report("Usage", _usage(parts))
        case ShowSettings():
            text = settings_report(parts.settings, parts.provider.model, hide_secrets)
            return Report("Settings", text)


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
