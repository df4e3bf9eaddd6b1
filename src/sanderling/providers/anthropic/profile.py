"""
Profiles, and identities of a machine: what may stand in the place of a key.

The `anthropic` SDK finds them, and gets their tokens. To load it is done in a thread.
"""

from http import HTTPStatus
from typing import TYPE_CHECKING

from sanderling.errors import ProviderError
from sanderling.providers.anthropic.sdk import load_sdk

if TYPE_CHECKING:
    import httpx2


class Profile:
    """
    The profile that a client asks with, whose tokens become some of `secrets`.

    Once one `is_refused`, the file that it comes from is worth another look.
    """

    def __init__(self, secrets: set[str]) -> None:
        self._secrets = secrets
        self.is_refused = False

    async def take_request(self, request: "httpx2.Request") -> None:
        self._secrets.add(request.headers.get("authorization", "").rpartition(" ")[2])

    async def take_response(self, response: "httpx2.Response") -> None:
        self.is_refused = response.status_code == HTTPStatus.UNAUTHORIZED


def use_profile(client: "httpx2.AsyncClient", base_url: str, secrets: set[str]) -> Profile | None:
    """
    Have `client` ask with the profile that the SDK finds; None if there is none. `base_url` is the person's, and goes before a profile's.

    Raises:
        ProviderError: it cannot be read.
    """
    load_sdk()
    import anthropic

    try:
        sdk = anthropic.AsyncAnthropic(base_url=base_url or None, http_client=client)
    except (OSError, ValueError, anthropic.AnthropicError) as error:
        raise explain_profile(error) from error
    if sdk.custom_auth is None:
        return None
    client.base_url, client.auth = sdk.base_url, sdk.custom_auth
    for name, value in sdk.default_headers.items():
        if isinstance(value, str):
            client.headers.setdefault(name, value)
    profile, hooks = Profile(secrets), client.event_hooks
    hooks["request"].append(profile.take_request)
    hooks["response"].insert(0, profile.take_response)  # the next one raises what is refused
    return profile


def profile_errors() -> tuple[type[Exception], ...]:
    """The errors of a request whose token cannot be had."""
    import anthropic

    return (anthropic.AnthropicError,)


def explain_profile(error: Exception) -> ProviderError:
    """`error` as the SDK's words tell it, which say what to do."""
    remedy = "Log in there again, or set ANTHROPIC_API_KEY."
    return ProviderError("auth", f"The profile gives no token ({error}).", remedy)
