"""
Anthropic's profiles and machine identities, which can replace an API key.

The `anthropic` SDK finds them, and fetches their tokens. It must be loaded in a thread.
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

LOG_IN = "Log in again with the tool that made the profile, or set ANTHROPIC_API_KEY."


class Profile:
    """The profile that a client uses. Once its token `is_refused`, its file should be read again."""

    def __init__(self) -> None:
        self.is_refused = False

    async def take_response(self, response: "httpx2.Response") -> None:
        self.is_refused = response.status_code == HTTPStatus.UNAUTHORIZED


def use_profile(client: "httpx2.AsyncClient", base_url: str, secrets: set[str]) -> Profile | None:
    """
    Make `client` use the profile that the SDK finds; return None if it finds no profile.

    `base_url` is the user's, and overrides the profile's. Tokens are added to `secrets`.

    Raises:
        ProviderError: the profile cannot be read.
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
    except Exception as error:  # from the SDK, or because of a file's content
        raise _explained(error) from error
    profile = Profile()
    client.auth = _auth(sdk.custom_auth, secrets)
    client.event_hooks["response"].insert(
        0, profile.take_response
    )  # before `receive_head`, which raises on a refusal
    return profile


def _auth(sdk_auth: "httpx2.Auth", secrets: set[str]) -> "httpx2.Auth":
    """Wrap the SDK's auth: failures become `ProviderError`, and cancellation does not wait for it."""
    import httpx2

    class Auth(httpx2.Auth):
        async def async_auth_flow(
            self, request: httpx2.Request
        ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
            flow = sdk_auth.sync_auth_flow(request)
            try:
                asking = await to_thread.run_sync(next, flow, abandon_on_cancel=True)
            except Exception as error:
                raise _explained(error) from error
            secrets.add(asking.headers.get("authorization", "").rpartition(" ")[2])
            yield asking

    return Auth()


def _explained(error: Exception) -> ProviderError:
    """Explain `error` in the SDK's words, which say what to do."""
    import httpx2

    words = str(error).rstrip(".") or type(error).__name__
    status = getattr(error, "status_code", None) or 0
    is_cut = any(isinstance(cause, httpx2.TransportError) for cause in causes_of(error))
    if (
        is_cut
        or status == HTTPStatus.TOO_MANY_REQUESTS
        or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    ):
        message = f"The profile's token is not available just now: {words}."
        return ProviderError("network", message, remedies().go_on)
    return ProviderError("auth", f"The profile has no usable token: {words}.", LOG_IN)
