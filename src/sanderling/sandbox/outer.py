"""
A container as the sandbox: the user says so with `--sandbox outer`, or $SANDERLING_SANDBOX for any frontend.

Benchmarks run agents in a container of their own for each task, which is a boundary already. The levels that the kernel leaves us inside, often
only landlock, take loopback, unix sockets and pseudo-terminals away, and tasks need these. So commands run with all rights that the
container gives. Neither a settings file nor a project can say it, and it is refused where no container is found.

What counts as a container: a file that only the container's engine makes, a cgroup with an engine's name, or a PID namespace whose root is an
overlay. Of these, a process in the container cannot be denied the first two, and a user on the host cannot have the third one by accident: the
initial PID namespace has a fixed number (PROC_PID_INIT_INO of include/linux/proc_ns.h). A virtual machine looks like a host, so there the user
must say it in another word, `outer-unchecked`.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from sanderling.errors import ConfigError
from sanderling.sandbox.policy import LEVELS
from sanderling.text import did_you_mean

VARIABLE = "SANDERLING_SANDBOX"
CHECKED, UNCHECKED = CHOICES = ("outer", "outer-unchecked")
"""A command in a sandbox has the sandbox's level in the same variable, which says nothing here."""

_MARKERS = (
    ".dockerenv",  # Docker
    "run/.containerenv",  # Podman, Buildah, Toolbox
    "run/systemd/container",  # systemd, in whatever its engine has announced to it
    "run/host/container-manager",  # systemd-nspawn
    "var/run/secrets/kubernetes.io/serviceaccount",  # a pod, in any runtime
    ".singularity.d",  # Singularity, Apptainer
)
_CGROUP = (
    r"/(?:docker|kubepods|containerd|cri-containerd|crio|libpod|lxc)"
    r"(?:\.slice|\.payload[^/\n]*|-[0-9a-f]+\.scope)?(?=/|$)"  # docker.service is the engine itself
)
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def is_outer(
    environment: Mapping[str, str] = os.environ, root: Path = Path("/"), proc: Path = Path("/proc")
) -> bool:
    """
    Return whether the user has declared a container to be the sandbox.

    Raises:
        ConfigError: no container is found, or the variable has an unknown value.
    """
    said = environment.get(VARIABLE, "")
    if said in ("", "off", *LEVELS):
        return False
    if said not in CHOICES:
        raise ConfigError(
            f"${VARIABLE} must be one of {', '.join(CHOICES)}, not '{said}'{did_you_mean(said, CHOICES)}"
        )
    if said == CHECKED and not container(root, proc):
        raise ConfigError(
            f"'{CHECKED}' makes the container around this process the sandbox, but there seems to be none: commands would have all of your"
            f" rights. In a virtual machine that confines them, say '{UNCHECKED}'."
        )
    return True


def container(root: Path, proc: Path) -> str:
    """Return how the container around this process is known; "" without a container."""
    for name in _MARKERS:
        if os.path.lexists(root / name):
            return f"/{name}"
    if found := re.search(_CGROUP, _read(proc / "self/cgroup"), re.MULTILINE):
        return f"the cgroup {found[0]}"
    mounted = (line.split(" - ") for line in _read(proc / "self/mountinfo").splitlines())
    kinds = [after.split()[0] for before, after in mounted if before.split()[4] == "/"]
    has_own_processes = _link(proc / "self/ns/pid") not in ("", _INITIAL_PID_NAMESPACE)
    return "an overlay in a PID namespace" if has_own_processes and "overlay" in kinds else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
