"""The attacks of the escape suite: importing the package registers them all."""

from . import (
    devices,
    environment,
    exhaustion,
    files,
    ipc,
    leftovers,
    metadata,
    mounts,
    network,
    processes,
    readonly,
    surface,
    terminals,
    traps,
    valuables,
)
from .registry import ATTACKS, Attack, Evidence, Scene, World

__all__ = [
    "ATTACKS",
    "Attack",
    "Evidence",
    "Scene",
    "World",
    "devices",
    "environment",
    "exhaustion",
    "files",
    "ipc",
    "leftovers",
    "metadata",
    "mounts",
    "network",
    "processes",
    "readonly",
    "surface",
    "terminals",
    "traps",
    "valuables",
]
