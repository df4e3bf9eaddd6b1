"""Profiles: everything that one command may do, as the text that `sandbox-exec` compiles for the kernel."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from sanderling.errors import SandboxError
from sanderling.paths import real_path
from sanderling.protocol.modes import NetworkMode
from sanderling.sandbox.kernel.layout import Protection
from sanderling.sandbox.policy import SandboxPolicy
from sanderling.sandbox.seatbelt.files import Places, file_rules, places_of
from sanderling.sandbox.seatbelt.network import network_rules
from sanderling.sandbox.seatbelt.system import system_rules

PROGRAM = "/usr/bin/sandbox-exec"
"""Deprecated since macOS 10.13, and used by Chromium, Nix, Bazel and Swift's package manager all the same: there is no other public way to
confine a command that is not an app."""
_ENV = ("/usr/bin/env", "-i", "--")


def compile_profile(
    policy: SandboxPolicy,
    protection: Protection,
    *,
    runtime: Iterable[str] = (),
    proxy_port: int = 0,
    canonical: Callable[[str], str] = real_path,
) -> str:
    """
    Return the profile of a resolved `policy` with its `tmp_dir`.

    `runtime` are directories of this Python, and `proxy_port` is where the proxy listens on localhost.

    Raises:
        SandboxError: the proxy has no port, or a path cannot be named in a profile.
    """
    if policy.network == "proxy" and not 0 < proxy_port < 1 << 16:
        raise SandboxError(f"The proxy's port is {proxy_port}: it is not listening.")
    places = places_of(policy, protection, runtime=runtime, canonical=canonical)
    return profile_of(places, policy.network, proxy_port)


def profile_of(places: Places, network: NetworkMode, proxy_port: int) -> str:
    rules = (
        *system_rules((*places.hidden, *places.masked)),
        *file_rules(places),
        *network_rules(network, proxy_port),
    )
    return "\n".join(rules) + "\n"


def launcher(profile: str, program: str = PROGRAM) -> tuple[str, ...]:
    """Return the arguments in front of a command. The profile is not a file, which something could change before it is read."""
    return program, "-p", profile, "--"


def with_environment(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """
    Return a command that runs `argv` with exactly this environment. It must follow `launcher`, whose own environment must be empty.

    `sandbox-exec` runs before the profile applies, and variables can make the system's libraries act there. MallocLogFile, for example, opens
    any file for appending, and leaves it open for the command (libmalloc, malloc.c); DYLD_INSERT_LIBRARIES loads code where System Integrity
    Protection is off. The environment of a project's MCP servers comes from the project. So `env` sets the variables, inside.

    Raises:
        ValueError: a variable has an impossible name.
    """
    if any(not name or "=" in name for name in environment):
        raise ValueError("illegal environment variable name")
    # `env` would take such a program for a variable.
    shell = ("/bin/sh", "-c", 'exec "$@"', "sh") if "=" in argv[0] else ()
    return *_ENV, *(f"{name}={value}" for name, value in environment.items()), *shell, *argv
