"""
WebSocket connections to a server.

The token is never sent: both sides prove that they know it (`acp/proof.py`). On this machine, nothing is sent to another user's socket.
"""

import os
import re
import socket
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio import to_thread
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from sanderling.acp.remote.address import Address, RemoteRefusedError
from sanderling.acp.remote.listeners import uid_of_peer, uids_of_listeners
from sanderling.acp.wire.proof import Proof, is_proof, new_nonce, proof_of
from sanderling.acp.wire.websocket import WebSocketStreams
from sanderling.config import Settings
from sanderling.errors import SanderlingError
from sanderling.platforms import peers
from sanderling.providers.credentials import Account, Credentials
from sanderling.providers.endpoint import is_local

CONNECT_S, CLOSE_S = 10.0, 1.0
PING_S = 10.0
MAX_MESSAGE_BYTES = 64 << 20
OWN_TOKEN = "serve-token"  # noqa: S105 - a file name; `serve/token.py` creates the file
MAX_TOKEN_BYTES = 1_000
ROOT = 0
UNENCRYPTED = "The connection to {title} is not encrypted. Use wss:// or ssh:// to keep it private."
WITHOUT = (
    "There is no token for {title}. Run `sanderling serve --token` there to print it and `sanderling login {url}` here to store it in the"
    " keychain, or name a file that contains it: {url}?token-file=PATH."
)
REFUSED = (
    "{title} has another token than the one stored here, which was not sent. Run `sanderling serve --token` there to print it and"
    " `sanderling login {url}` here to store it."
)
OTHERS = "Another user listens on {where}, so nothing was sent there. Use another port or a socket: `sanderling serve --listen unix:PATH`."
UNPROVEN = "{title} accepts clients without a token, so it is not your `sanderling serve`. Nothing was sent there."
# A retry may succeed.
PASSING = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
NOBODY = "{title} cannot be reached: nothing listens there. Start `sanderling serve` there first."


class Socket:
    """An open WebSocket."""

    is_outdated = False
    warnings: tuple[str, ...] = ()

    def __init__(self, socket: ClientConnection, address: Address) -> None:
        self._socket = socket
        self.stdin = self.stdout = WebSocketStreams(socket)
        self.notice = ""
        if address.url.startswith("ws:") and not is_local(address.url):
            self.notice = UNENCRYPTED.format(title=address.title)

    async def wait(self) -> str:
        await self._socket.wait_closed()
        reason = self._socket.close_reason
        return reason or "the connection was cut"

    def kill(self) -> None:
        self._socket.transport.abort()

    def refusal(self) -> str:
        return ""


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc  # a redirect would get the authorization header


@asynccontextmanager
async def socket_to(address: Address, settings: Settings) -> AsyncGenerator[Socket]:
    """
    Keep a WebSocket to the server at `address` open within this context.

    Raises:
        RemoteRefusedError: the server refuses the connection, and a retry would not help.
        SanderlingError: the server cannot be reached now.
    """
    token = await to_thread.run_sync(token_for, address, settings)
    socket = await _connected(address, token)
    it = Socket(socket, address)
    try:
        yield it
    finally:
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_S):
                await socket.close()
            it.kill()


async def _connected(address: Address, token: str) -> ClientConnection:
    title = address.title
    try:
        return await _open(address, await _answer_to_challenge(address, token))
    except InvalidStatus as error:
        status = error.response.status_code
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise RemoteRefusedError(REFUSED.format(title=title, url=_plain(address))) from error
        if status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in PASSING:
            raise RemoteRefusedError(
                f"{title} is not a `sanderling serve`: it answers {status}."
            ) from error
        raise SanderlingError(f"{title} answers {status}.") from error
    except InvalidURI as error:
        raise RemoteRefusedError(f"{address.url} is not the address of a server.") from error
    except TimeoutError as error:
        raise SanderlingError(f"{title} did not answer within {CONNECT_S:.0f} s.") from error
    except (ConnectionRefusedError, FileNotFoundError) as error:
        raise SanderlingError(NOBODY.format(title=title)) from error
    except (OSError, InvalidHandshake, ConnectionClosed, EOFError) as error:
        raise SanderlingError(f"{title} cannot be reached: {_words_of(error)}.") from error


async def _answer_to_challenge(address: Address, token: str) -> str:
    """Let the server prove that it knows the token; return the header with the client's proof."""
    nonce = new_nonce()
    try:
        stranger = await _open(address, Proof(nonce).header())
    except InvalidStatus as error:
        asked = Proof.in_header(error.response.headers.get("WWW-Authenticate", ""))
        expected = proof_of("server", token, nonce, asked.nonce) if asked else ""
        if asked is None or not is_proof(asked.proof, expected):
            raise
        return Proof(nonce, asked.nonce, proof_of("client", token, nonce, asked.nonce)).header()
    await stranger.close()
    raise RemoteRefusedError(UNPROVEN.format(title=address.title))


async def _open(address: Address, authorization: str) -> ClientConnection:
    where: dict[str, Any] = {}
    if address.socket:
        where = {"unix": True, "sock": await to_thread.run_sync(_connected_to, address.socket)}
    elif is_local(address.url):
        where = {"sock": await to_thread.run_sync(_connected_on_loopback, address)}
    return await _Connect(
        address.url,
        additional_headers={"Authorization": authorization},
        user_agent_header=None,
        compression=None,
        proxy=None if is_local(address.url) else True,
        open_timeout=CONNECT_S,
        close_timeout=CLOSE_S,
        ping_interval=PING_S,
        ping_timeout=PING_S,
        max_size=MAX_MESSAGE_BYTES,
        **where,
    )


def _connected_to(path: str) -> socket.socket:
    """Return a connection to the Unix socket at `path`, if no other user listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        found.settimeout(CONNECT_S)
        found.connect(path)
        _check_users({peers.uid_of_peer(found)}, path)
        return found.dup()


def _connected_on_loopback(address: Address) -> socket.socket:
    """Return a connection to a port of this machine, unless another user listens there: the server may have left it to any user."""
    parts = urlsplit(address.url)
    port = parts.port or (443 if parts.scheme == "wss" else 80)
    problem: OSError = ConnectionRefusedError()
    for family, _, _, _, place in socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM):
        _check_users(uids_of_listeners(str(place[0]), port), address.title)
        with socket.socket(family, socket.SOCK_STREAM) as found:
            found.settimeout(CONNECT_S)
            try:
                found.connect(place)
            except OSError as error:
                problem = error
                continue
            peer = uid_of_peer(found)
            _check_users(set() if peer is None else {peer}, address.title)
            return found.dup()
    raise problem


def _check_users(uids: Collection[int], where: str) -> None:
    if not set(uids) <= {os.geteuid(), ROOT}:
        raise RemoteRefusedError(OTHERS.format(where=where))


def _words_of(error: Exception) -> str:
    """Return the kernel's message for the error if there is one, instead of the library's list of attempts."""
    number = re.search(r"\[Errno (\d+)\]", str(error))
    return os.strerror(int(number[1])) if number else getattr(error, "strerror", None) or str(error)


def _plain(address: Address) -> str:
    return address.text.partition("?")[0]


# --- the token -----------------------------------------------------------------------------------------------------------


class TokenAccount(Account, frozen=True):
    """The token of one server. No environment variable holds it."""

    url: str

    def use_the_environment(self) -> str:
        return f"Name a file with the token instead: {self.url}?token-file=PATH."

    def unlock_it(self) -> str:
        return (
            f"Unlock it and try again, or name a file with the token: {self.url}?token-file=PATH."
        )


def account_of(address: Address) -> Account:
    name = address.socket or address.title
    marker = f"keychain-serve-{re.sub('[:/]', '_', name).strip('[]')}"
    return TokenAccount(f"serve {name}", (), marker, _plain(address))


def token_for(address: Address, settings: Settings) -> str:
    """
    Read the token for a server: from the file that its address names, from the keychain, or for a local server from its own file.

    Raises:
        RemoteRefusedError: there is no token.
    """
    own = Path(settings.state_dir) / OWN_TOKEN
    kept = Credentials(settings.state_dir, account_of(address))
    if address.token_file:
        return _read(Path(address.token_file).expanduser())
    if kept.is_known():
        try:
            return kept.read()
        except SanderlingError as error:
            raise RemoteRefusedError(str(error)) from error
    if is_local(address.url) and own.exists():
        return _read(own)
    raise RemoteRefusedError(WITHOUT.format(title=address.title, url=_plain(address)))


def _read(path: Path) -> str:
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise RemoteRefusedError(f"Others can read the token in {path}: `chmod 600` it.")
            token = file.read(MAX_TOKEN_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or str(error)
        raise RemoteRefusedError(f"The token in {path} cannot be read: {words}.") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise RemoteRefusedError(f"There is no token in {path}.")
    return token
