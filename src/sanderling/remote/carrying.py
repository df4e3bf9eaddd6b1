"""Connections to an address: through a program's pipes or a socket."""

import os
from typing import TYPE_CHECKING

from sanderling.config import Settings
from sanderling.remote.address import Address
from sanderling.remote.pipe import Pipe, piped

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sanderling.remote.socket import Socket


def carried(
    address: Address, settings: Settings
) -> "AbstractAsyncContextManager[Pipe] | AbstractAsyncContextManager[Socket]":
    """
    Connect to `address` within this context.

    Raises:
        RemoteRefusedError: it is impossible, and a retry would not help.
        SanderlingError: it failed.
    """
    if address.kind == "server":
        # The WebSocket library is imported only if needed.
        from sanderling.remote.socket import socket_to

        return socket_to(address, settings)
    return piped(address, os.environ)
