"""The seam between versions of the protocol: which one a connection speaks."""

from sanderling.acp.base import PROTOCOL_VERSION
from sanderling.acp.errors import INVALID_PARAMS, RpcError

SUPPORTED = (PROTOCOL_VERSION,)


def offered_by_agent(wanted: int) -> int:
    """The version with which an agent answers a client: the same if it is known, else the latest that is."""
    return wanted if wanted in SUPPORTED else max(SUPPORTED)


def check_agents(version: int) -> None:
    """
    Look whether a client can go on with what the agent has answered.

    Raises:
        RpcError: it cannot.
    """
    if version not in SUPPORTED:
        ours = " or ".join(map(str, SUPPORTED))
        raise RpcError(
            INVALID_PARAMS,
            f"the agent speaks version {version} of the Agent Client Protocol, Sanderling version {ours}: update the older one",
        )
