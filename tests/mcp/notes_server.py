"""
A tool server for tests, on the SDK's own server: `python -m tests.mcp.notes_server [stdio | http PORT] [login]`.

It asks the person, offers prompts and resources, and, with `login`, wants one, at an authorization server of its own. Over HTTP it
serves both eras of the protocol. What a test wants to know of it stands in the file MCP_TEST_LOG, a line each.
"""

import os
import secrets
import sys
import time
from pathlib import Path
from typing import Annotated

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import BaseModel, Field

LIFETIME_S = 3600


def log(line: str) -> None:
    if path := os.environ.get("MCP_TEST_LOG"):
        with Path(path).open("a") as file:
            file.write(f"{line}\n")


class Logins(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """An authorization server that lets everybody in at once."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.refreshing: dict[str, RefreshToken] = {}

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client_info):
        self.clients[client_info.client_id] = client_info
        log("registered")

    async def authorize(self, client, params: AuthorizationParams):
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=True,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, authorization_code):  # noqa: ARG002
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client, authorization_code):
        del self.codes[authorization_code.code]
        return self._tokens(client, authorization_code.scopes, "issued")

    async def load_refresh_token(self, client, refresh_token):  # noqa: ARG002
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(self, client, refresh_token, scopes):
        del self.refreshing[refresh_token.token]
        return self._tokens(client, scopes, "renewed")

    def _tokens(self, client, scopes, what):
        access, refresh = f"secret-{secrets.token_hex(16)}", f"secret-{secrets.token_hex(16)}"
        expires_at = int(time.time()) + LIFETIME_S
        self.tokens[access] = AccessToken(
            token=access, client_id=client.client_id, scopes=scopes, expires_at=expires_at
        )
        self.refreshing[refresh] = RefreshToken(
            token=refresh, client_id=client.client_id, scopes=scopes
        )
        log(what)
        return OAuthToken(
            access_token=access,
            expires_in=LIFETIME_S,
            refresh_token=refresh,
            scope=" ".join(scopes) or None,
        )

    async def load_access_token(self, token):
        return self.tokens.get(token)

    async def revoke_token(self, token):
        self.tokens.pop(token.token, None)


class Details(BaseModel):
    name: str
    age: int = Field(ge=1, le=100)
    agrees: bool = False


def made(**options) -> MCPServer:
    server = MCPServer("test", **options)

    async def ask_details() -> Elicit[Details]:
        return Elicit("Who are you?", Details)

    @server.tool()
    def echo(text: str) -> str:
        """Say `text` again."""
        return text

    @server.tool()
    def introduce(details: Annotated[Details, Resolve(ask_details)]) -> str:
        """Ask the person who they are."""
        return (
            f"{details.name} is {details.age}, {'agrees' if details.agrees else 'does not agree'}"
        )

    @server.tool()
    def headers(context: Context) -> str:
        """The headers of the request, over HTTP."""
        request = context.request_context.request
        return "\n".join(f"{name}: {value}" for name, value in request.headers.items())

    @server.tool()
    def leave() -> str:
        """End the process."""
        os._exit(1)

    @server.prompt()
    def greet(name: str, tone: str = "kind") -> str:
        """Have somebody greeted."""
        return f"Greet {name} in a {tone} tone."

    @server.resource("note://today")
    def today() -> str:
        """The note of today."""
        return "Buy bread."

    @server.resource("note://day/{number}")
    def day(number: str) -> str:
        """The note of a day."""
        return f"Nothing on day {number}." + "x" * (100_000 if number == "99" else 0)

    return server


def main() -> None:
    kind, *rest = sys.argv[1:]
    if kind == "stdio":
        made().run()
        return
    port = int(rest[0])
    url = f"http://127.0.0.1:{port}"
    options = {}
    if "login" in rest:
        options = {
            "auth_server_provider": Logins(),
            "auth": AuthSettings(
                issuer_url=url,
                resource_server_url=f"{url}/mcp",
                client_registration_options=ClientRegistrationOptions(
                    enabled=True, valid_scopes=["notes"], default_scopes=["notes"]
                ),
                required_scopes=["notes"],
                validate_token_resource=False,
            ),
        }
    made(log_level="ERROR", **options).run(
        "streamable-http", port=port, json_response="json" in rest
    )


if __name__ == "__main__":
    main()
