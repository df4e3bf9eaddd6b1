"""The refusal of a session elsewhere."""

from sanderling.errors import SanderlingError


class RefusedError(SanderlingError):
    """A session elsewhere cannot be had, and trying again would not change that: the person has to do something."""
