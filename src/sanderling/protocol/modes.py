"""The modes: how far the agent may go. The standard library alone: processes of the sandbox may import it."""

from typing import Literal

Mode = Literal["ask", "auto", "plan"]
"""Changes and commands ask first, run when the sandbox confines them, or are not possible at all."""
NetworkMode = Literal["off", "proxy", "on"]
"""Loopback inside the session only; that and the listed hosts; the host's own network."""
ConfiningLevel = Literal["full", "full-bwrap", "namespaces", "landlock"]
Level = Literal[ConfiningLevel, "none"]
"""The level to which the kernel enforces the sandbox's policy, strongest first; `sandbox/gaps.py` has what each one lacks."""
SandboxLevel = Literal["", Level, "off"]
"""The part of the sandbox that the kernel enforces; empty while that is not known yet, "off" when the person has switched the sandbox off."""
