"""Problems with a server, which affect its own tools only."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from sanderling.errors import ConfigError, SanderlingError
from sanderling.protocol.remedies import remedies
from sanderling.text import printable, visible_prose

MAX_CHARS = 1_000  # of a reason, which may be the server's own words


class ServerError(SanderlingError):
    """A server cannot be used: `str(error)` says why, as a part of a sentence, without a full stop."""


class PermanentError(ServerError):
    """A problem that stays until the user changes something: trying again is useless."""


class LoginNeededError(PermanentError):
    """The user has to log in at the server `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(f"it requires a login: {remedies().server_login.format(name=name)}")


def lasting(error: BaseException) -> SanderlingError | None:
    """Return the first error within `error` that makes trying again useless."""
    leaves = _leaves(error)
    return next((each for each in leaves if isinstance(each, PermanentError | ConfigError)), None)


def why(error: BaseException) -> str:
    """Return the reason in an error, which the SDK wraps in groups of groups."""
    found = list(_leaves(error))
    ours = [each for each in found if isinstance(each, SanderlingError)]
    first = (ours or found)[0]
    if isinstance(first, TimeoutError):
        return "it did not answer in time"
    words = _words_of(first)[: 2 * MAX_CHARS].strip().partition("\n")[0].rstrip(".")
    words = visible_prose(printable(words)) or type(first).__name__
    return words if len(words) <= MAX_CHARS else f"{words[:MAX_CHARS]}…"


def _words_of(error: BaseException) -> str:
    """Return an error's message; of one of the SDK's validation errors the first invalid place, instead of the number of them."""
    errors: Any = getattr(error, "errors", None)
    if not callable(errors):
        return str(error)
    first = next(iter(cast("Iterable[dict[str, Any]]", errors())), dict[str, Any]())
    place = ".".join(map(str, first.get("loc", ())))
    return f"its answer is not valid: {place}: {first.get('msg', '')}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        for each in group.exceptions:
            yield from _leaves(each)
    else:
        yield error
