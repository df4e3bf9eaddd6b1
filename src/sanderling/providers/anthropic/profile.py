"""
Profiles, and identities of a machine: what may stand in the place of a key.

The `anthropic` SDK finds them, and gets their tokens. To load it is done in a thread.
"""

from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import TYPE_CHECKING

from anyio import to_thread

from sanderling.errors import ProviderError
from sanderling.protocol.remedies import remedies
from sanderling.providers.anthropic.sdk import load_sdk
from sanderling.providers.http.transport import causes_of

if TYPE_CHECKING:
    import httpx2

LOG_IN = "Log in again with what has made the profile, or set ANTHROPIC_API_KEY."


class Profile:
    """The profile that a client asks with. Once its token `is_refused`, the file that it comes from is worth another look."""

    def __init__(self) -> None:
        self.is_refused = False

    async def take_response(self, response: "httpx2.Response") -> None:
        self.is_refused = response.status_code == HTTPStatus.UNAUTHORIZED


def use_profile(client: "httpx2.AsyncClient", base_url: str, secrets: set[str]) -> Profile | None:
    """
    Have `client` ask with the profile that the SDK finds; None if there is none. `base_url` is the person's, and goes before a profile's.

    Its tokens become some of `secrets`.

    Raises:
        ProviderError: it cannot be read.
    """
    load_sdk()
    import anthropic

    try:
        sdk = anthropic.AsyncAnthropic(base_url=base_url or None, http_client=client)
        if sdk.custom_auth is None:
            return None
        client.base_url = sdk.base_url
        for name, value in sdk.default_headers.items():
            if isinstance(value, str):
                client.headers.setdefault(name, value)
    except Exception as error:  # of the SDK, and of whatever a file can hold
        raise _explained(error) from error
    profile = Profile()
    client.auth = _auth(sdk.custom_auth, secrets)
    client.event_hooks["response"].insert(0, profile.take_response)  # the next one raises a refusal
    return profile


def _auth(theirs: "httpx2.Auth", secrets: set[str]) -> "httpx2.Auth":
    """The SDK's `theirs`, whose failures are told in words, and for which nobody waits who has stopped."""
    import httpx2

    class Auth(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            flow = theirs.sync_auth_flow(request)
            try:
                asking = await to_thread.run_sync(next, flow, abandon_on_cancel=True)
            except Exception as error:
                raise _explained(error) from error
            secrets.add(asking.headers.get("authorization", "").rpartition(" ")[2])
            yield asking

    return Auth()


def _explained(error: Exception) -> ProviderError:
    """`error` in the SDK's words, which say what to do."""
    import httpx2

    words = str(error).rstrip(".") or type(error).__name__
    status = getattr(error, "status_code", None) or 0
    is_cut = any(isinstance(cause, httpx2.TransportError) for cause in causes_of(error))
    if (
        is_cut
        or status == HTTPStatus.TOO_MANY_REQUESTS
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        message = f"The token of the profile cannot be had just now: {words}."
        return ProviderError("network", message, remedies().go_on)
    return ProviderError("auth", f"The profile gives no token: {words}.", LOG_IN)
