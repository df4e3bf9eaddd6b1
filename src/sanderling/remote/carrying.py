"""Carrying a connection to an address: by a program's pipes, or a socket."""

import os
from typing import TYPE_CHECKING

from sanderling.config import Settings
from sanderling.remote.address import Address
from sanderling.remote.pipe import INSTALL, Pipe, piped

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from sanderling.remote.socket import Socket

__all__ = ["INSTALL", "carried"]


def carried(
    address: Address, settings: Settings
) -> "AbstractAsyncContextManager[Pipe] | AbstractAsyncContextManager[Socket]":
    """
    Connect to `address` in this context.

    Raises:
        RefusedError: that cannot be, and trying again would not change it.
        SanderlingError: it cannot be now.
    """
    if address.kind == "server":
        from sanderling.remote.socket import socket_to  # the library is only for whoever uses it

        return socket_to(address, settings)
    return piped(address, os.environ)
