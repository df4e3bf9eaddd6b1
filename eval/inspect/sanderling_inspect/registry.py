"""The names that Inspect looks up."""

from sanderling_inspect.agent import sanderling
from sanderling_inspect.environment import SanderlingSandboxEnvironment

__all__ = ["SanderlingSandboxEnvironment", "sanderling"]
