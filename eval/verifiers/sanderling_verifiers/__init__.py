"""Sanderling as a harness of verifiers, which looks it up as `sanderling-verifiers`."""

from sanderling_verifiers.harness import SanderlingHarness, SanderlingHarnessConfig

__all__ = ["SanderlingHarness", "SanderlingHarnessConfig"]
