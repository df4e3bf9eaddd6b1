"""The error for a refused connection to a remote session."""

from sanderling.errors import SanderlingError


class RemoteRefusedError(SanderlingError):
    """A remote session refused the connection. A retry does not help until the user has acted."""
