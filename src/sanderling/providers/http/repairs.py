"""What a server's chat templates turn out to require, learned from their errors."""

import logging
from collections.abc import Sequence

from msgspec.structs import replace

from sanderling.protocol.messages import Message
from sanderling.providers.endpoint import Endpoint, Quirks
from sanderling.providers.http.errors import Repair, TemplateError
from sanderling.providers.turns import has_parallel_calls

log = logging.getLogger(__name__)


class Repairs:
    """The quirks of an endpoint's models, from its table and from errors."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._learned: dict[str, Quirks] = {}

    def quirks_of(self, model: str) -> Quirks:
        return self._learned.get(model) or self._endpoint.quirks_of(model)

    def learned(self, model: str) -> tuple[str, ...]:
        """Return the quirks that the model's table lacks, as it would have them."""
        now, declared = self.quirks_of(model), self._endpoint.quirks_of(model)
        named = {
            "takes_turns = true": now.takes_turns != declared.takes_turns,
            "one_call = true": now.one_call != declared.one_call,
            "full_schemas = true": now.full_schemas != declared.full_schemas,
            'tool_ids = "alnum9"': now.tool_ids != declared.tool_ids,
        }
        return tuple(name for name, is_learned in named.items() if is_learned)

    def learn(self, model: str, history: Sequence[Message], error: TemplateError) -> bool:
        """Return True if the request can be sent again, repaired."""
        quirks = self.quirks_of(model)
        repair = error.repair or _guess(quirks, history)
        repaired = _with(quirks, repair) if repair else quirks
        if repaired == quirks:
            return False
        log.warning("sent again with %s: %s", repair, error)
        self._learned[model] = repaired
        return True

    def restore(self, model: str, quirks: Quirks) -> None:
        """Go back to `quirks`, because the repairs did not help."""
        if quirks is self._endpoint.quirks_of(model):
            self._learned.pop(model, None)
        else:
            self._learned[model] = quirks


def _guess(quirks: Quirks, history: Sequence[Message]) -> Repair | None:
    """Return the likeliest repair for an error that does not name one."""
    if not quirks.takes_turns:
        return "takes_turns"
    if not quirks.one_call and has_parallel_calls(history):
        return "one_call"
    return None if quirks.full_schemas else "full_schemas"


def _with(quirks: Quirks, repair: Repair) -> Quirks:
    match repair:
        case "takes_turns":
            return replace(quirks, takes_turns=True)
        case "one_call":
            return replace(quirks, one_call=True)
        case "full_schemas":
            return replace(quirks, full_schemas=True)
        case "alnum9":
            return replace(quirks, tool_ids="alnum9")
