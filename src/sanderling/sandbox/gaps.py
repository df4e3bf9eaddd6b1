"""
The gaps of each level, as shown by `status`, to the model and in the documentation.

The escape suite checks the table: an attack succeeds at a level if, and only if, it is listed here.
"""

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from sanderling.protocol.modes import Level
    from sanderling.sandbox.report import LayerReport


class Gap(NamedTuple):
    """
    Something that is not isolated, described by the sentence `words`.

    `layer` would close it. `attacks` names the attacks in `tests/sandbox/attacks` that succeed because of it. `max_abi` is the
    newest Landlock version with the gap; None means all.
    """

    words: str
    layer: Literal["namespaces", "landlock", "seatbelt"]
    attacks: str
    only: Literal["root", "unprivileged"] | None = None
    max_abi: int | None = None

    def is_open(self, *, is_root: bool, landlock_abi: int) -> bool:
        return self.only in (None, "root" if is_root else "unprivileged") and (
            self.max_abi is None or landlock_abi <= self.max_abi
        )


_LATE_SOCKET = Gap(
    words="A unix socket that another program makes inside the project while a command runs can be connected to.",
    layer="landlock",
    attacks="unix-late",
    max_abi=8,
)
_PROCESSES_OF_ROOT = Gap(
    words="The number of root's processes is not limited.",
    layer="namespaces",
    attacks="fork-bomb",
    only="root",
)
_DEVICES_OF_ROOT = Gap(
    words="Root can change the permissions and times of the host's device nodes, such as /dev/null.",
    layer="namespaces",
    attacks="device-null-is-shared",
    only="root",
)
_WATCHES = Gap(
    words="A command can use up your inotify watches, so that your other programs miss changes of files.",
    layer="namespaces",
    attacks="inotify-instances inotify-watches",
)
_UNMOUNTED = (
    Gap(
        words="The project's .env files can be read.",
        layer="namespaces",
        attacks="read-env read-env-local read-env-nested env-rename env-hardlink env-parent-rename",
    ),
    Gap(
        words="Permissions, times and extended attributes of all your files can be changed, but not their content.",
        layer="namespaces",
        attacks=(
            "chmod-home chmod-directory-home chmod-visible chmod-directory-visible utime-home"
            " utime-visible setxattr-home setxattr-visible removexattr-home removexattr-visible"
            " device-null-is-shared"
        ),
    ),
    Gap(
        words="In plan mode this includes the project's files.",
        layer="namespaces",
        attacks="ro-chmod ro-utime ro-setxattr",
    ),
    Gap(
        words="Size, times, use, extended attributes and link target of any file with a known name can be seen, but not its content.",
        layer="namespaces",
        attacks=(
            "stat-secret readlink-secret xattr-secret handle-of-secret inotify-secret"
            " inotify-activity"
        ),
    ),
    Gap(
        words="Your other processes, their command lines and their mounts can be seen.",
        layer="namespaces",
        attacks="proc-list proc-cmdline proc-stat wait-for-victim mount-list",
    ),
    Gap(
        words="The machine's network connections, the names of its sockets, its shared memory segments and your keys are listed, but not the content of segments and keys.",
        layer="namespaces",
        attacks="proc-net proc-net-unix sysv-list key-list",
    ),
    _PROCESSES_OF_ROOT,
    _WATCHES,
    Gap(
        words="Your other processes can be sent signals, and so be killed.",
        layer="landlock",
        attacks="kill kill-0 kill-all kill-group pidfd-kill tgkill sigqueue sigio-owner dnotify-owner",
        max_abi=5,
    ),
    Gap(
        words="Every file that you may write can be truncated, by its name.",
        layer="landlock",
        attacks="file-truncate visible-truncate ro-truncate",
        max_abi=2,
    ),
)

GAPS: "dict[Level, tuple[Gap, ...]]" = {
    "full": (_LATE_SOCKET,),
    "full-bwrap": (_LATE_SOCKET, _PROCESSES_OF_ROOT, _DEVICES_OF_ROOT, _WATCHES),
    "namespaces": (_LATE_SOCKET,),
    "landlock": _UNMOUNTED,
}

_OPEN_NETWORK = (
    Gap(
        words="A command can send everything that it can read to any host. It can reach services on this machine and in its network, and its own ports can be reached.",
        layer="namespaces",
        attacks=(
            "tcp-loopback tcp-loopback-v6 tcp-mapped-v4 tcp-any-address tcp-host-address"
            " tcp-fastopen tcp-reconnect tcp-listen udp-loopback udp-loopback-v6 udp-connected"
            " udp-host-address multicast dns"
        ),
    ),
    Gap(
        words="The machine's network interfaces, connections and the names of its sockets are listed.",
        layer="namespaces",
        attacks="netlink-interfaces proc-net proc-net-unix",
    ),
)
_ABSTRACT_SOCKETS = Gap(
    words="Abstract unix sockets, such as a display server's, can be connected to.",
    layer="landlock",
    attacks="unix-stream-abstract unix-dgram-abstract unix-seqpacket-abstract unix-pair-abstract",
    max_abi=5,
)
NETWORK_ON: "dict[Level, tuple[Gap, ...]]" = {
    "full": (*_OPEN_NETWORK, _ABSTRACT_SOCKETS),
    "full-bwrap": (*_OPEN_NETWORK, _ABSTRACT_SOCKETS),
    "namespaces": (*_OPEN_NETWORK, _ABSTRACT_SOCKETS),
    "landlock": _OPEN_NETWORK,
}
"""The gaps that an open network adds to a level."""

SEATBELT = (
    Gap(
        words="New repositories, and new names of files that run something below the project's root or in a directory that is moved there, are checked after each command, not while it runs.",
        layer="seatbelt",
        attacks="",
    ),
    Gap(
        words="Processes that a command leaves running are ended by Sanderling, which must find them first, as they share your process ids.",
        layer="seatbelt",
        attacks="",
    ),
    Gap(
        words="The project's .env files can be seen, with their size and times, but not read.",
        layer="seatbelt",
        attacks="",
    ),
    Gap(
        words="A unix socket that another program makes in the project while a command runs can be connected to, once its directory is moved.",
        layer="seatbelt",
        attacks="",
    ),
    Gap(
        words="Named semaphores of your other programs, and shared memory of Python's multiprocessing, can be used.",
        layer="seatbelt",
        attacks="",
    ),
    Gap(
        words="The machine's model and network configuration, and names of users and groups, can be read.",
        layer="seatbelt",
        attacks="",
    ),
)
"""The gaps of the level `seatbelt`. The attacks run on Linux only, so these are not exact in the sense of the other levels."""

SEATBELT_NETWORK_ON = (
    Gap(
        words=_OPEN_NETWORK[0].words,
        layer="seatbelt",
        attacks=(
            "tcp-loopback tcp-loopback-v6 tcp-mapped-v4 tcp-any-address tcp-host-address tcp-fastopen tcp-reconnect tcp-listen"
            " udp-loopback udp-loopback-v6 udp-connected udp-host-address multicast dns icmp-raw"
        ),
    ),
    Gap(
        words="The system checks certificates for a command, and asks the hosts for them that a certificate names.",
        layer="seatbelt",
        attacks="",
    ),
)
"""The gaps that an open network adds to the level `seatbelt`. Tests compare the attacks with the decisions of a profile."""


OUTER = (
    "Commands can do whatever the container lets them: they can change and read everything in it, Sanderling's own files included.",
    "Plan mode cannot keep commands from writing, so it asks about each, and no guard protects files that run something.",
    "The network is that of the container.",
)
"""The gaps if the container around Sanderling is the sandbox."""


def gaps_at(
    level: "Level",
    *,
    is_root: bool,
    landlock_abi: int,
    table: "dict[Level, tuple[Gap, ...]]" = GAPS,
) -> tuple[Gap, ...]:
    """Return the gaps of `level` for this user and kernel. A level without Landlock has its gaps whatever the kernel supports."""
    abi = 0 if level == "namespaces" else landlock_abi
    return tuple(
        gap for gap in table.get(level, ()) if gap.is_open(is_root=is_root, landlock_abi=abi)
    )


def missing_at(report: "LayerReport", level: "Level") -> list[dict[str, str]]:
    """Return the gaps of `level` here: `what` is open, and the `reason` why it is not closed."""
    if level == "seatbelt":
        gaps = SEATBELT
    else:
        gaps = gaps_at(level, is_root=os.geteuid() == 0, landlock_abi=report.landlock_abi)
    return [{"what": gap.words, "reason": _reason(gap, report, level)} for gap in gaps]


def _reason(gap: Gap, report: "LayerReport", level: "Level") -> str:
    if gap.layer == "seatbelt":
        return "Seatbelt cannot prevent it"
    if report.reasons[gap.layer]:
        return f"{gap.layer}: {report.reasons[gap.layer]}"
    if gap.layer == "landlock" and gap.max_abi is not None and level != "namespaces":
        return f"needs Landlock {gap.max_abi + 1}, this kernel has {report.landlock_abi}"
    return f"level {level} does not use {gap.layer}"
