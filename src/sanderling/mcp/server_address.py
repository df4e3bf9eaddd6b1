"""The address of a server over HTTP: what its URL names, and where else its connection may lead."""

from urllib.parse import urlsplit

from sanderling.errors import ConfigError, SandboxError
from sanderling.hosts import canonical_host, is_address, is_loopback, is_public
from sanderling.sandbox.network.host_rules import HostRules

PORTS = {"https": 443, "http": 80}


class ServerAddress:
    """
    The address that `url` names.

    `hosts` are declared for the server. With `has_secrets` its headers must be sent encrypted.

    Raises:
        ConfigError: it is not the URL of a server.
    """

    def __init__(self, url: str, hosts: tuple[str, ...] = (), *, has_secrets: bool = False) -> None:
        try:
            parts = urlsplit(url)
            self.host = canonical_host(parts.hostname or "")
            self._scheme, self._port = parts.scheme, parts.port or PORTS[parts.scheme]
            self._declared = HostRules(hosts)
        except (ValueError, KeyError) as error:
            raise ConfigError(
                "its url must be https://host/path, or http:// on this machine"
            ) from error
        except SandboxError as error:
            raise ConfigError(f"in its hosts, {error}") from error
        if parts.username is not None or parts.fragment:
            raise ConfigError("its url must have no password and no # in it; use headers")
        self.url = url
        self.is_local = is_loopback(self.host)
        if has_secrets and self._scheme == "http" and not self.is_local:
            raise ConfigError("its headers would be sent unencrypted: use https")

    def is_own(self, scheme: str, host: str, port: int) -> bool:
        """Recognize the server's own origin, or the same over TLS."""
        own, other = (self._scheme, self._port), (scheme, port)
        is_upgrade = (own, other) == (("http", 80), ("https", 443))
        return host == self.host and (own == other or is_upgrade)

    def declares(self, host: str, port: int) -> bool:
        return self._declared.allows(host, port)

    def may_lead_to(self, host: str) -> bool:
        """Keep a remote server away from programs on this machine. `host` must be in canonical spelling."""
        return self.is_local or not is_loopback(host)

    def may_be_at(self, host: str, address: str, port: int) -> bool:
        """Allow addresses of this machine and the networks around it only where the declaration names them."""
        if is_public(address) or self.declares(address, port):
            return True
        is_named = host == self.host and is_address(host)
        return is_named or (self.is_local and is_loopback(host) and is_loopback(address))
