"""
An HTTP proxy that forwards only to the listed hosts, and inserts secrets that commands can use but not read (`credentials.py`).

Its sockets belong to the sandbox's network namespace, and the host's event loop serves them. So everything that arrives is written by
hostile code, and everything that leaves is sent in the host's name. Hence a target is parsed once, strictly, into host and port. Both are
looked up in the list, the name is resolved once, here, the addresses are checked, and one of exactly these is dialled. Nothing is parsed
or resolved again after it was checked. Connections, bytes, seconds and reports are limited.

asyncio's socket calls have no buffers of their own, but return without yielding as long as data is available. So each read ends with a
checkpoint; otherwise one client could block the editor.

Sources: RFC 9112 (HTTP/1.1), RFC 9110, sections 7.6 (what a proxy forwards) and 9.3.6 (CONNECT).
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from http import HTTPStatus

import anyio
import anyio.lowlevel
import h11
from anyio.abc import SocketStream
from anyio.streams.tls import TLSStream

from sanderling.errors import SandboxError
from sanderling.hosts import authority_of, is_public, split_authority
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.environment import mark_in_credentials
from sanderling.sandbox.network.credentials import (
    Mask,
    Placeholder,
    SecretProxy,
    masked_response,
    with_secret,
)
from sanderling.sandbox.network.denied import DENIED_REASON, DenialThrottle, OnDenial
from sanderling.sandbox.network.host_rules import HostRules

MAX_HEAD_BYTES = 16 << 10  # node's limit; one read may double it: 8000 headers, 30 ms in h11
MAX_CONNECTIONS = 256
MAX_LOOKUPS = 4  # at a time: lookups occupy the few threads that the whole host shares
CHUNK_BYTES = 64 << 10

HEAD_S = 10.0
LOOKUP_S = 30.0  # as long as the system's resolver may take: giving up earlier frees no thread
CONNECT_S = 5.0  # per address
IDLE_S = 300.0
LINGER_S = 2.0
ACCEPT_PAUSE_S = 0.1

MALFORMED = "Sanderling's proxy supports CONNECT host:port and http:// requests only."

Headers = list[tuple[bytes, bytes]]

CLOSE = (b"connection", b"close")
HTTP_VERSION = b"1.1"  # each side has its own version; h11 sends no other

_HTTP_URL = re.compile(r"(?i:http)://([^/?#]*)([^#]*)")


async def serve_proxy(
    listener: socket.socket, rules: HostRules, report: OnDenial, secrets: SecretProxy | None = None
) -> None:
    """
    Serve HTTP clients until cancelled, then close the listener. Clients beyond MAX_CONNECTIONS wait in its backlog.

    Hosts that the rules refuse get status 403 and are reported. A host name with a non-public address is refused unless that address is
    also listed.
    """
    report = DenialThrottle(report)
    slots = anyio.Semaphore(MAX_CONNECTIONS)
    lookups = anyio.Semaphore(MAX_LOOKUPS)
    parsing = anyio.Lock()

    async def serve(client: socket.socket) -> None:
        try:
            await _Exchange(client, rules, report, secrets, lookups=lookups, parsing=parsing).run()
        finally:
            slots.release()

    with listener:
        listener.setblocking(False)
        if listener.family != socket.AF_UNIX:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # clients inherit it
        async with anyio.create_task_group() as tasks:
            while True:
                await slots.acquire()
                tasks.start_soon(serve, await _accept(listener))


async def _accept(listener: socket.socket) -> socket.socket:
    while True:
        try:
            client, _ = await asyncio.get_running_loop().sock_accept(listener)
        except OSError:  # the client is gone, or the host has no descriptors left
            await anyio.sleep(ACCEPT_PAUSE_S)
        else:
            return client


class _RequestError(Exception):
    """An error response that ends the request."""

    def __init__(self, status: int, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.reason = reason or HTTPStatus(status).phrase


class _SecretError(_RequestError):
    """A request that gets no secret. Its reason phrase says why, because gh shows no body that is not JSON."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text, " ".join(text.split()))


class _Peer:
    """A socket and the HTTP spoken on it."""

    def __init__(self, sock: socket.socket, our_role: type[h11.CLIENT | h11.SERVER]) -> None:
        self.sock = sock
        self.http = h11.Connection(our_role, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def receive(self, max_bytes: int) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.sock, max_bytes)

    async def send(self, data: bytes) -> None:
        await _send(self.sock, data)


class _TlsPeer(_Peer):
    """A server that is reached over TLS."""

    def __init__(self, sock: socket.socket, stream: TLSStream) -> None:
        super().__init__(sock, h11.CLIENT)
        self._stream = stream

    async def receive(self, max_bytes: int) -> bytes:
        try:
            return await self._stream.receive(max_bytes)
        except anyio.EndOfStream:
            return b""
        except anyio.BrokenResourceError as error:
            raise ConnectionResetError from error

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send(data)
        except anyio.BrokenResourceError as error:
            raise ConnectionResetError from error


class _Exchange:
    """One client's connection: one request, one answer, or a tunnel."""

    def __init__(
        self,
        client: socket.socket,
        rules: HostRules,
        report: OnDenial,
        secrets: SecretProxy | None,
        *,
        lookups: anyio.Semaphore,
        parsing: anyio.Lock,
    ) -> None:
        self.client = _Peer(client, h11.SERVER)
        self.rules = rules
        self.report = report
        self.lookups = lookups
        self.parsing = parsing
        self.secrets = secrets
        self.is_gateway = client.family == socket.AF_UNIX  # see gateway.py
        self.mark = ""
        self.idle = anyio.CancelScope()

    async def run(self) -> None:
        try:
            with self.client.sock, self.idle:
                self._stay()
                await self._serve()
        except* (OSError, h11.ProtocolError):
            pass  # an end is gone, or no HTTP was spoken; too late for a response

    async def _serve(self) -> None:
        async with AsyncExitStack() as use:
            try:
                with anyio.fail_after(HEAD_S):
                    request = await self._next_event(self.client)
                if not isinstance(request, h11.Request):
                    return  # nothing was requested
                self.mark = _mark(request)
                host, port, path = (
                    _target_of_gateway(request) if self.is_gateway else _target(request)
                )
                placeholder = self._placeholder(request, host, port, path)
                port = placeholder.port if placeholder else port
                use.enter_context(self.rules.in_use(host, port, self.idle))
                upstream = use.enter_context(await self._dial(host, port))
                server, secret = _Peer(upstream, h11.CLIENT), None
                if self.secrets and placeholder:
                    secret = await self._authorization(self.secrets, placeholder)
                if secret or self.is_gateway:
                    server = await self._over_tls(upstream, host, use)
                if self.secrets and placeholder:
                    self.secrets.on_use(placeholder.use)
            except _RequestError as error:
                await self._refuse(error)
            except h11.RemoteProtocolError as error:
                await self._refuse(_RequestError(error.error_status_hint, MALFORMED))
            except ValueError:
                await self._refuse(_RequestError(400, MALFORMED))
            else:
                if request.method == b"CONNECT":
                    await self._tunnel(upstream)
                elif placeholder and secret:
                    authority = authority_of(host, port).removesuffix(":443")
                    authorization, mask = secret
                    hosts = placeholder.credential.hosts
                    request = replace(
                        request, headers=with_secret([*request.headers], authorization)
                    )
                    await self._forward(request, authority, path, server, (mask, hosts))
                else:
                    default = ":443" if self.is_gateway else ":80"
                    authority = authority_of(host, port).removesuffix(default)
                    await self._forward(request, authority, path, server)

    def _placeholder(
        self, request: h11.Request, host: str, port: int, path: bytes
    ) -> Placeholder | None:
        """Return the placeholder that the proxy replaces in a request over plain HTTP."""
        if not self.secrets or request.method == b"CONNECT":
            return None
        found = self.secrets.placeholder_in(host, port, request.method, path, request.headers)
        if found and (reason := self.secrets.why_off() or found.why_not()):
            raise _SecretError(403, f"The credential '{found.use.name}' is {reason}.")
        return found

    async def _authorization(
        self, secrets: SecretProxy, placeholder: Placeholder
    ) -> tuple[bytes, Mask]:
        try:
            return await secrets.authorization(placeholder)
        except SandboxError as error:
            raise _SecretError(502, str(error)) from error

    async def _over_tls(self, upstream: socket.socket, host: str, use: AsyncExitStack) -> _TlsPeer:
        """Return the server after it has proved that it is `host`, by the certificates that this machine trusts."""
        context = await anyio.to_thread.run_sync(_trust)
        stream = await SocketStream.from_socket(upstream.dup())
        use.push_async_callback(anyio.aclose_forcefully, stream)
        try:
            with anyio.fail_after(HEAD_S):
                tls = await TLSStream.wrap(
                    stream, hostname=host, ssl_context=context, standard_compatible=False
                )
        except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            reason = getattr(error, "verify_message", "") or "the TLS handshake failed"
            raise _SecretError(502, f"{host} gets no secret: {reason}.") from error
        return _TlsPeer(upstream, tls)

    async def _dial(self, host: str, port: int) -> socket.socket:
        if not self.rules.allows(host, port):
            target = authority_of(host, port)
            raise self._denied(target, Denial("connect", target, "not_listed"))
        try:
            with anyio.fail_after(LOOKUP_S):
                async with self.lookups:
                    found = await anyio.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise _RequestError(502, f"{host} cannot be resolved: {error}") from error
        private = ""
        for family, _, _, _, address in found:
            if is_public(address[0]) or self.rules.allows(*address):
                with suppress(OSError):
                    return await _connect(family, address)
            else:
                private = authority_of(*address)
        if private:
            denial = Denial("connect", private, "not_public", host)
            raise self._denied(authority_of(host, port), denial)
        raise _RequestError(502, f"{host} does not answer on port {port}.")

    def _denied(self, asked: str, denial: Denial) -> _RequestError:
        self.report(denial._replace(by=self.mark))
        return _RequestError(
            403,
            f"Sanderling's sandbox blocks {asked}: {denial.reason}.\n"
            "Ask the user to allow it: `:AgentNet` in Neovim, `--net` in a shell.",
            DENIED_REASON,
        )

    async def _refuse(self, error: _RequestError) -> None:
        body = error.text.encode() + b"\n"
        head = (
            f"HTTP/1.1 {error.status} {error.reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        await _send(self.client.sock, head.encode() + body)
        await self._see_off()

    async def _tunnel(self, upstream: socket.socket) -> None:
        client = self.client.sock
        early, _ = self.client.http.trailing_data
        await _send(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
        await _send(upstream, early)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pump, client, upstream)
            tasks.start_soon(self._pump, upstream, client)

    async def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        while data := await self._receive(source):
            await _send(sink, data)
        sink.shutdown(socket.SHUT_WR)

    async def _forward(
        self,
        request: h11.Request,
        authority: str,
        path: bytes,
        server: _Peer,
        masking: tuple[Mask, tuple[str, ...]] | None = None,
    ) -> None:
        headers = [(b"host", authority.encode()), *_end_to_end(request), CLOSE]
        head = replace(request, target=path, headers=headers, http_version=HTTP_VERSION)
        await self._send_event(server, head)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._forward_body, server, masking is not None)
            if masking:
                await self._return_masked(server, *masking)
            else:
                await self._return_response(server)
            tasks.cancel_scope.cancel()
        await self._see_off()

    async def _forward_body(self, server: _Peer, has_secret: bool) -> None:
        event = None
        while not isinstance(event, h11.EndOfMessage):
            event = await self._next_event(self.client)
            if has_secret and self.secrets and self.secrets.why_off():
                raise ConnectionAbortedError  # since the request began
            if isinstance(event, h11.EndOfMessage) and has_secret:
                event = h11.EndOfMessage()  # a server may take trailers for headers
            # A server may respond without reading the rest of the body. The client still sends it, then reads the response.
            with suppress(OSError):
                await self._send_event(server, event)

    async def _return_response(self, server: _Peer) -> None:
        event = None
        while not isinstance(event, h11.EndOfMessage):
            event = await self._next_event(server)
            if isinstance(event, h11.InformationalResponse):
                event = replace(event, headers=_end_to_end(event), http_version=HTTP_VERSION)
            elif isinstance(event, h11.Response):
                headers = [*_end_to_end(event), CLOSE]
                event = replace(event, headers=headers, http_version=HTTP_VERSION)
            await self._send_event(self.client, event)

    async def _return_masked(self, server: _Peer, mask: Mask, hosts: tuple[str, ...]) -> None:
        """Return a response in which the secret is masked. Informational responses and trailers are dropped."""
        event = None
        while not isinstance(event, h11.EndOfMessage):
            event = await self._next_event(server)
            if isinstance(event, h11.Response):
                try:
                    headers = masked_response(_end_to_end(event), mask, hosts)
                except SandboxError as error:
                    await self._refuse(_RequestError(502, f"No response: {error}."))
                    return
                reason = mask.masked(bytes(event.reason))
                event = replace(
                    event, headers=[*headers, CLOSE], reason=reason, http_version=HTTP_VERSION
                )
            elif isinstance(event, h11.Data):
                event = h11.Data(mask.feed(bytes(event.data)))
            elif isinstance(event, h11.EndOfMessage):
                await self._send_event(self.client, h11.Data(mask.end()))
                event = h11.EndOfMessage()
            if not isinstance(event, h11.InformationalResponse):
                await self._send_event(self.client, event)

    async def _see_off(self) -> None:
        """Close gracefully. Closing while the client still sends would reset the connection and could lose the end of the response."""
        client = self.client.sock
        client.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(LINGER_S):
            while await self._receive(client):
                pass

    async def _next_event(self, peer: _Peer) -> h11.Event:
        while True:
            # One parser per loop iteration, so that many clients with expensive headers do not block everything else.
            async with self.parsing:
                event = peer.http.next_event()
            if isinstance(event, h11.Event):
                return event
            peer.http.receive_data(await self._received(peer.receive(MAX_HEAD_BYTES)))

    async def _send_event(self, peer: _Peer, event: h11.Event) -> None:
        if data := peer.http.send(event):
            await peer.send(data)

    async def _receive(self, source: socket.socket, max_bytes: int = CHUNK_BYTES) -> bytes:
        return await self._received(asyncio.get_running_loop().sock_recv(source, max_bytes))

    async def _received(self, receiving: Awaitable[bytes]) -> bytes:
        data = await receiving
        await anyio.lowlevel.checkpoint()
        self._stay()
        return data

    def _stay(self) -> None:
        self.idle.deadline = anyio.current_time() + IDLE_S


_HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"upgrade"}
_FRAMING = {b"content-length", b"transfer-encoding"}


def _end_to_end(message: h11.Request | h11.InformationalResponse | h11.Response) -> Headers:
    """Return the headers that do not concern the connection, without `Host`."""
    names = {name for name, _ in message.headers}
    options = b",".join(value for name, value in message.headers if name == b"connection")
    named = {option.strip() for option in options.lower().split(b",")} - _FRAMING
    dropped = _HOP_BY_HOP | named | {b"host"}
    if b"transfer-encoding" in names:
        dropped.add(b"content-length")  # RFC 9112, section 6.3: only one of the two may be sent
    return [
        (name, value)
        for name, value in message.headers
        if name not in dropped and not name.startswith(b"proxy-")
    ]


def _mark(request: h11.Request) -> str:
    found = (value for name, value in request.headers if name == b"proxy-authorization")
    return mark_in_credentials(next(found, b""))


def _target(request: h11.Request) -> tuple[str, int, bytes]:
    """Return host, port, and the path with its query, which is empty for a tunnel."""
    target = request.target.decode("ascii")
    if request.method == b"CONNECT":
        host, port = split_authority(target)
        path = ""
    elif url := _HTTP_URL.fullmatch(target):
        host, port = split_authority(url[1])
        port = port or 80
        path = url[2] if url[2].startswith("/") else "/" + url[2]
    else:
        raise ValueError(target)
    if not port:
        raise ValueError(target)
    return host, port, path.encode()


def _target_of_gateway(request: h11.Request) -> tuple[str, int, bytes]:
    """Return host, port and path of a request that was sent as if to the server itself, which has TLS."""
    named = next((value for name, value in request.headers if name == b"host"), b"")
    if request.method == b"CONNECT" or not request.target.startswith(b"/"):
        raise ValueError(request.target)
    host, port = split_authority(named.decode("ascii"))
    return host, port or 443, bytes(request.target)


def _trust() -> ssl.SSLContext:
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _send(sink: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sink, data)


async def _connect(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with anyio.fail_after(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
