"""Negotiation of the protocol version."""

from sanderling.acp.wire.base import PROTOCOL_VERSION
from sanderling.acp.wire.errors import INVALID_PARAMS, RpcError

SUPPORTED = (PROTOCOL_VERSION,)


def offered_by_agent(wanted: int) -> int:
    """Return the version with which an agent answers: the client's if supported, else the latest."""
    return wanted if wanted in SUPPORTED else max(SUPPORTED)


def check_agents(version: int) -> None:
    """
    Check that the client supports the version of the agent.

    Raises:
        RpcError: it does not.
    """
    if version not in SUPPORTED:
        ours = " or ".join(map(str, SUPPORTED))
        raise RpcError(
            INVALID_PARAMS,
            f"the agent speaks version {version} of the Agent Client Protocol, Sanderling speaks version {ours}: update the older one",
        )
