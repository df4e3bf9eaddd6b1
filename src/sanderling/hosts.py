"""Hosts: how they are spelled, which are public, which are this machine."""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"

_NAME = rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"

# A name that getaddrinfo may read as an address: 2130706433, 127.1, 0x7f.0.0.1.
_NUMERIC = r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)"

_AUTHORITY = r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{1,5}))?"

_IPV6_UNICAST = IPv6Network("2000::/3")

_NOT_GLOBAL = (
    IPv6Network("2002::/16"),  # 6to4
    # Older Pythons take these for global; a cloud's metadata service is in the first.
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),
    IPv6Network("3fff::/20"),
)

_NAT64 = IPv6Network("64:ff9b::/96")


def canonical_host(host: str) -> str:
    """
    Return the canonical spelling of a name or an address: lower case, ASCII, no final dot, no brackets.

    Raises:
        ValueError: it is neither, or an address in an unusual notation.
    """
    if "%" in host:  # a zone: link-local anyway
        raise ValueError(host)
    if ":" in host:
        return str(IPv6Address(host.removeprefix("[").removesuffix("]")))
    name = host.lower().removesuffix(".")
    if not name.isascii():
        encoded = name.encode("idna")
        if encoded.decode("idna") != name:  # IDNA 2003 and 2008 differ: "ß", joiners
            raise ValueError(host)
        name = encoded.decode()
    if is_address(name):
        return str(IPv4Address(name))
    if not re.fullmatch(_NAME, name):
        raise ValueError(host)
    return name


def is_public(address: str) -> bool:
    """
    Return True if the address is on the internet, not on this machine or in a network around it.

    IPv6 counts within the assigned range (2000::/3), without 6to4. A NAT64 address counts as its IPv4 address.
    """
    ip = ip_address(address)
    if ip in _NAT64:
        ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    if any(ip in network for network in _NOT_GLOBAL):
        return False
    if isinstance(ip, IPv6Address):
        return ip in _IPV6_UNICAST and ip.is_global
    return ip.is_global and not ip.is_multicast


def is_loopback(host: str) -> bool:
    """Recognize the loopback of any network; `host` must be in canonical spelling."""
    if is_address(host):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def is_address(host: str) -> bool:
    return ":" in host or re.fullmatch(_NUMERIC, host) is not None


def split_authority(text: str) -> tuple[str, int | None]:
    """
    Return the host, in canonical spelling, and the port of `text`.

    Raises:
        ValueError: `text` is not a host with an optional port.
    """
    match = re.fullmatch(_AUTHORITY, text)
    if not match:
        raise ValueError(text)
    host, port = match.groups()
    if port and not 0 < int(port) < 1 << 16:
        raise ValueError(text)
    return canonical_host(host), int(port) if port else None


def authority_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
