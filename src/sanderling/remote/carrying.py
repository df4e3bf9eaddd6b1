"""Carrying a connection to an address: by a program's pipes, or a socket."""

import os
from contextlib import AbstractAsyncContextManager

from sanderling.config import Settings
from sanderling.remote.address import Address
from sanderling.remote.pipe import INSTALL, Pipe, piped

__all__ = ["INSTALL", "carried"]


def carried(address: Address, settings: Settings) -> AbstractAsyncContextManager[Pipe]:  # noqa: ARG001
    """
    Connect to `address` in this context.

    Raises:
        RefusedError: that cannot be, and trying again would not change it.
        SanderlingError: it cannot be now.
    """
    return piped(address, os.environ)
