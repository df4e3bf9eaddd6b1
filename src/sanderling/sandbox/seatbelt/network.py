"""
The rules for the network. Seatbelt knows no hosts but `localhost` and `*`.

There is no loopback of the sandbox's own: with the network off, a command cannot even reach its own server on a port, because the user's
servers are there, too.
"""

from collections.abc import Iterator

from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.seatbelt.expressions import literal, quoted, rule
from sanderling.sandbox.seatbelt.system import NETWORK_SERVICES, service_rules

RESOLVER = "/private/var/run/mDNSResponder"
_RESOLVER_FILES = ("/private/var/run/resolv.conf",)


def network_rules(mode: NetworkMode, proxy_port: int) -> Iterator[str]:
    """Yield the rules of a mode. `proxy_port` is where the proxy listens on localhost, if there is one."""
    yield "; sockets as such: what they may reach is listed by address or path"
    yield rule("allow", "system-socket", ["(socket-domain AF_UNIX)"])
    if mode == "proxy":
        yield "; the proxy, and no name server: the proxy resolves names"
        yield rule("allow", "network-outbound", [_remote(f"localhost:{proxy_port}")])
    elif mode == "on":
        yield "; every address, and the system's resolver"
        yield rule("allow", "network-outbound", [_remote("*:*"), literal(RESOLVER)])
        yield rule("allow", "network-bind network-inbound", [f"(local ip {quoted('*:*')})"])
        yield rule("allow", "system-socket", ["(socket-domain AF_ROUTE)"])
        yield rule("allow", "file-read*", map(literal, _RESOLVER_FILES))
        yield rule("allow", "sysctl-read", [f"(sysctl-name-prefix {quoted('net.routetable.')})"])
        yield from service_rules(NETWORK_SERVICES)


def _remote(address: str) -> str:
    return f"(remote ip {quoted(address)})"
