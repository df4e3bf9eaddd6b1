"""The modes: how far the agent may go. Imports only the standard library, so that processes in the sandbox can import it."""

from typing import Literal

Mode = Literal["ask", "auto", "plan"]
"""Changes and commands ask first; run if the sandbox confines them; or are not allowed at all."""
MODES_BY_STRICTNESS: tuple[Mode, ...] = ("plan", "ask", "auto")
Effort = Literal["default", "low", "medium", "high", "xhigh", "max"]
"""How much the model thinks and writes; "default" leaves that to the API."""
NetworkMode = Literal["off", "proxy", "on"]
"""Loopback inside the session only; loopback and the listed hosts; the host's network."""
NETWORKS_BY_STRICTNESS: tuple[NetworkMode, ...] = ("off", "proxy", "on")
ConfiningLevel = Literal["full", "full-bwrap", "namespaces", "seatbelt", "landlock"]
Level = Literal[ConfiningLevel, "none"]
"""How much of the sandbox's policy the kernel enforces, strongest first. `sandbox/gaps.py` lists what each level lacks."""
SandboxLevel = Literal["", Level, "outer", "off"]
"""
The enforced level; empty while unknown.

"outer": the container around Sanderling is the sandbox. "off": the user has switched the sandbox off.
"""
