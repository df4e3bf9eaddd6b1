"""Connections to an address: through a program's pipes or a socket."""

import os
from typing import TYPE_CHECKING

from sanderling.acp.remote.address import Address
from sanderling.acp.remote.pipe import INSTALL, Pipe, piped
from sanderling.config import Settings

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sanderling.acp.remote.socket import Socket

__all__ = ["INSTALL", "carried"]


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
        from sanderling.acp.remote.socket import (
            socket_to,
        )  # imports the WebSocket library only if needed

        return socket_to(address, settings)
    return piped(address, os.environ)
