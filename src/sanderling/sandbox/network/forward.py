"""
Forwards a port of the sandbox's loopback to a loopback port of this machine that the user has allowed.

A model or a database on this machine is named as `http://127.0.0.1:11434`. Clients do not use the proxy for such addresses, because
NO_PROXY has them: with the proxy, a program would not reach its own servers, which are on the sandbox's loopback (opencode is one). So
the connection itself is forwarded. It leads only where the proxy would have led.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence

import anyio
import anyio.lowlevel

MAX_CONNECTIONS = 64
CHUNK_BYTES = 64 << 10
CONNECT_S = 5.0
PAUSE_S = 0.1


async def serve_forward(
    listener: socket.socket, targets: Callable[[], Sequence[tuple[str, int]]]
) -> None:
    """Forward connections until cancelled, then close the listener. The first of the `targets` that answers is used."""
    slots = anyio.Semaphore(MAX_CONNECTIONS)
    loop = asyncio.get_running_loop()

    async def serve(client: socket.socket) -> None:
        try:
            with client, await _dial(targets()) as server:
                await _join(client, server)
        except* OSError:
            pass  # an end is gone
        finally:
            slots.release()

    with listener:
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:
            while True:
                await slots.acquire()
                try:
                    client, _ = await loop.sock_accept(listener)
                except OSError:  # the client is gone, or this process has no descriptors left
                    slots.release()
                    await anyio.sleep(PAUSE_S)
                else:
                    tasks.start_soon(serve, client)


async def _dial(targets: Sequence[tuple[str, int]]) -> socket.socket:
    for host, port in targets:
        kind = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = socket.socket(kind, socket.SOCK_STREAM)
        try:
            server.setblocking(False)
            with anyio.fail_after(CONNECT_S):
                await asyncio.get_running_loop().sock_connect(server, (host, port))
        except OSError:
            server.close()
        except BaseException:
            server.close()
            raise
        else:
            return server
    raise ConnectionRefusedError


async def _join(client: socket.socket, server: socket.socket) -> None:
    """Copy both ways until both ends have closed, or one is gone."""
    for each in (client, server):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_copy, client, server)
        tasks.start_soon(_copy, server, client)


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, CHUNK_BYTES):
        await anyio.lowlevel.checkpoint()  # otherwise a fast client would block the loop
        await loop.sock_sendall(sink, data)
    sink.shutdown(socket.SHUT_WR)
