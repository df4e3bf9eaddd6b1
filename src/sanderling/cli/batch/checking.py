"""What a run checks before it writes anything: what would end each of its tasks with the same error."""

from msgspec.structs import replace

from sanderling.batch.results import RunSettings
from sanderling.cli.print_mode.inputs import rules_of
from sanderling.config import Layer, Settings
from sanderling.config.layers import own_layers
from sanderling.errors import ProviderError, UsageError
from sanderling.providers.choice import DEFAULT, chosen_model, make_provider
from sanderling.providers.endpoint import load_endpoint


def check_agent(settings: RunSettings) -> None:
    """
    Check the rules, the model and its key, without a request. Roles can come from a project, so only the tasks check them.

    Raises:
        UsageError: there is no key.
        ConfigError: a rule is invalid, or there is no such provider, model or script.
    """
    rules_of(list(settings.allow))
    options = {"model": settings.model} if settings.model else {}
    command_line = Layer("the command line", options)
    own = replace(own_layers(), command_line=command_line).settings()
    chosen = chosen_model(own)
    if chosen.provider == "scripted":
        make_provider(own)  # it reads the script
    elif chosen.is_fallback or chosen.key == "missing":
        _refuse(own, DEFAULT if chosen.is_fallback else chosen.provider)


def _refuse(own: Settings, provider: str) -> None:
    from sanderling.providers.http.errors import no_key

    error: ProviderError = no_key(load_endpoint(provider, own.providers).account)
    raise UsageError(f"{error.message} {error.remedy}")
