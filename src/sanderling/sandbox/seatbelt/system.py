"""The part of a profile that is the same for every project: what programs need of macOS. Each rule says why it is there."""

from collections.abc import Iterator, Sequence

from sanderling.paths import is_within
from sanderling.sandbox.seatbelt.expressions import (
    but,
    everywhere,
    literal,
    quoted,
    regex,
    rule,
    subpath,
)
from sanderling.sandbox.seatbelt.spelling import above_it

READ = "file-read* file-map-executable process-exec"

_PROGRAMS = (
    "/bin",
    "/sbin",
    "/usr",
    "/opt",
    "/nix",
    "/Library/Apple",
    "/Library/Developer",
    "/Library/Frameworks",
    "/Library/Java",
    "/Library/TeX",
    "/System/Applications",
    "/System/Cryptexes",
    "/System/Library",
    "/System/Volumes/Preboot/Cryptexes",
    "/System/iOSSupport",
)
"""Without /System/Volumes, where all files appear under another path, and without the rest of /Library, which has keychains and logs."""
_DATA_OF_SERVICES = ("/usr/local/var", "/opt/homebrew/var", "/opt/local/var")
"""Databases, logs and sockets of services that Homebrew and MacPorts install, all of which belong to the user."""
_SETTINGS_OF_SERVICES = ("/usr/local/etc", "/opt/homebrew/etc", "/opt/local/etc")
"""
Settings of services and programs, such as WireGuard's keys (`etc/wireguard`) and the tokens of `npm config set -g` (`etc/npmrc`). Homebrew's
belong to the user, so their modes do not keep a command from reading them.
"""
_PUBLIC_SETTINGS = (
    r"^/(usr/local|opt/homebrew|opt/local)/etc/"
    r"(ca-certificates|openssl[^/]*|gnutls|fonts|php|xml|gitconfig|gitattributes)(/|$)"
)
"""What programs need of these: certificates, and what they do not start without. git ends if it cannot read its `gitconfig`."""
_APPLICATIONS = "/Applications/Xcode.app"
_XCODE = r"^/Applications/Xcode[^/]*\.app(/|$)"
_STATE = (
    "/private/etc",
    "/private/var/db/timezone",
    "/private/var/select",
    "/private/var/db/DarwinDirectory/local/recordStore.data",
)
_LINKS = ("/etc", "/tmp", "/var", "/private/var/db/xcode_select_link", "/private/var/tmp")
_STREAMS = ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/zero", "/dev/null")
_SOURCES = ("/dev/random", "/dev/urandom", "/dev/autofs_nowait")

_SYSCTLS = (
    "hw.activecpu hw.byteorder hw.cacheconfig hw.cachelinesize hw.cachelinesize_compat hw.cpufamily hw.cpusubfamily hw.cpufrequency"
    " hw.cpufrequency_compat hw.cpusubtype hw.cputype hw.cputhreadtype hw.cpu64bit_capable hw.l1dcachesize hw.l1dcachesize_compat"
    " hw.l1icachesize hw.l1icachesize_compat hw.l2cachesize hw.l2cachesize_compat hw.l3cachesize hw.l3cachesize_compat hw.logicalcpu"
    " hw.logicalcpu_max hw.machine hw.memsize hw.memsize_usable hw.model hw.ncpu hw.nperflevels hw.packages hw.pagesize"
    " hw.pagesize_compat hw.physicalcpu hw.physicalcpu_max hw.tbfrequency hw.tbfrequency_compat hw.vectorunit kern.argmax kern.hostname"
    " kern.iossupportversion kern.maxfiles kern.maxfilesperproc kern.maxproc kern.maxprocperuid kern.ngroups kern.osproductversion"
    " kern.osproductversioncompat kern.osrelease kern.ostype kern.osvariant_status kern.osversion kern.secure_kernel kern.tcsm_available"
    " kern.tcsm_enable kern.usrstack64 kern.version machdep.cpu.brand_string machdep.ptrauth_enabled sysctl.proc_cputype"
    " sysctl.proc_native sysctl.proc_translated vm.loadavg vm.pagesize"
)
_SYSCTL_PREFIXES = "hw.optional. hw.perflevel machdep.cpu."

MACH_SERVICES = {
    "com.apple.system.opendirectoryd.libinfo": "getpwuid and getgrgid: git, ssh and Python ask for the user's name",
    "com.apple.system.opendirectoryd.membership": "getgrouplist: id, and tests of file permissions",
    "com.apple.SystemConfiguration.configd": "uv and other Rust programs crash without it; it only reads the network's configuration",
}
"""The services that a command may look up at any network mode, and who needs them. Everything else is refused, for example launchd's jobs,
AppleEvents, LaunchServices (`open`), the keychain, the pasteboard and the preferences of other programs (cfprefsd)."""
NETWORK_SERVICES = {
    "com.apple.SystemConfiguration.DNSConfiguration": "which name servers to ask",
    "com.apple.trustd": "Go and Apple's own clients have certificates verified there",
    "com.apple.trustd.agent": "the same, for the user's own settings",
    "com.apple.SecurityServer": "certificates of the system's keychain, for the same clients",
}
"""In addition, if the network is open. Not for the proxy: trustd itself fetches what a certificate names, from any host."""


def system_rules(hidden: Sequence[str]) -> Iterator[str]:
    """Yield the rules. `hidden` are canonical paths that are not the system's, even if they are below its directories: a HOME in /opt."""
    yield "(version 1)\n(deny default)"
    yield "; a command and its children, which stay in the same sandbox"
    yield everywhere("allow", "process-fork")
    # In this one process tree only: no signals to the user's programs, and no look at their memory, arguments or environment.
    yield rule("allow", "process-info* signal", ["(target same-sandbox)"])
    yield '; programs and libraries; "/" itself is listed by dyld'
    yield rule("allow", READ, [*_programs(hidden), regex(_XCODE), literal("/")])
    yield "; settings of the system, not of the user"
    yield rule(
        "allow",
        "file-read*",
        [*map(subpath, _STATE), *map(literal, _LINKS), regex(_PUBLIC_SETTINGS)],
    )
    above = {
        each
        for path in (*_PROGRAMS, *_STATE, *_LINKS, _APPLICATIONS, *_SOURCES)
        for each in above_it(path)
    } | {*_SETTINGS_OF_SERVICES}
    yield rule("allow", "file-read-metadata", map(literal, sorted(above)))
    yield "; devices without a memory, and a terminal of its own"
    yield rule(
        "allow",
        "file-read* file-write-data file-ioctl",
        [*map(literal, (*_STREAMS, "/dev/dtracehelper")), subpath("/dev/fd")],
    )
    yield rule("allow", "file-read*", map(literal, _SOURCES))
    yield everywhere("allow", "pseudo-tty")
    yield rule("allow", "file-read* file-write-data file-ioctl", [literal("/dev/ptmx")])
    own_terminal = f'(require-all {regex("^/dev/ttys[0-9]+$")} (extension "com.apple.sandbox.pty"))'
    yield rule("allow", "file-read* file-write-data file-ioctl", [own_terminal])
    yield "; what the machine is, not what runs on it: without kern.proc and kern.procargs2"
    yield rule(
        "allow",
        "sysctl-read",
        [
            *(f"(sysctl-name {quoted(name)})" for name in _SYSCTLS.split()),
            *(f"(sysctl-name-prefix {quoted(name)})" for name in _SYSCTL_PREFIXES.split()),
        ],
    )
    yield "; node's os.cpus()"
    yield everywhere("allow", "mach-host*")
    yield "; locks of Python's multiprocessing, and its shared memory"
    yield everywhere("allow", "ipc-posix-sem")
    yield rule("allow", "ipc-posix-shm*", ['(ipc-posix-name-regex "^/psm_")'])
    yield from service_rules(MACH_SERVICES)


def _programs(hidden: Sequence[str]) -> Iterator[str]:
    for root in _PROGRAMS:
        below = (
            path
            for path in (*_DATA_OF_SERVICES, *_SETTINGS_OF_SERVICES, *hidden)
            if is_within(path, root)
        )
        yield but(subpath(root), [*map(subpath, below)])


def service_rules(services: dict[str, str]) -> Iterator[str]:
    for name, reason in services.items():
        yield f"; {reason}"
        yield rule("allow", "mach-lookup", [f"(global-name {quoted(name)})"])
