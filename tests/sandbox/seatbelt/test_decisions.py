"""The escape suite's cases as decisions of a profile, what programs need, and that no rule can be left out."""

import re
from collections.abc import Iterable

import pytest

from sanderling.sandbox.gaps import SEATBELT_NETWORK_ON
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.attacks.valuables import IGNORED, SECRETS
from tests.sandbox.seatbelt.sbpl import Profile, Request, matches
from tests.sandbox.seatbelt.scene import Scene

PROXY_PORT = 49152
KINDS = {"files", "metadata", "secrets", "network", "read-only", "traps", "set-id"}
ELSEWHERE = "/Users/Shared/elsewhere"
WRITES = {
    "create": "create", "append": "data", "truncate": "data", "open-truncate": "data", "unlink": "unlink", "rename": "unlink",
    "symlink-create": "create", "mkfifo": "create", "mkdir": "create", "rmdir": "unlink", "mknod": "create", "hardlink-out": "create",
    "move-into-project": "unlink", "replace-from-project": "create", "exchange": "unlink", "dotdot": "create", "through-symlink": "data",
    "through-directory-symlink": "data", "through-existing-symlink": "data", "rename-race": "data",
}  # fmt: skip
"""What each way to change a file asks of the kernel last, once links are resolved."""

LINUX = re.compile(
    r"proc|victim|tmpfile-linkat|dev-shm|^run-|-run$|override-permissions|become-other-user|^sudo$|cwd-left-behind|abstract|openat2"
    r"|fchmodat2|unnamed|access-list|mptcp|udplite|packet|xdp|netlink|vsock|alg-socket|seqpacket|handle|chattr|any-process|namespace"
    r"|bind-mount|cover|^secret-in-visible|kcore|kmsg|^shadow$|host-key|^mail$|system-log|remount|receive-descriptor"
)
"""Attacks on what macOS does not have, on root's files, or through descriptors and mounts of Linux."""
GUARDED = re.compile(
    r"^nested-(?!existing)|git-hook-other-name|git-filter|git-config-other-name|secret-hardlink|unix-late|flood"
)
"""Left to the guard, which looks after each command: new repositories, and other names of files, which no path can tell."""
WORKTREE = re.compile(r"^linked-|^worktrees-")
"""The project is a worktree, or has some: the guard's protection of another scene."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory) -> Scene:
    return Scene(tmp_path_factory.mktemp("seatbelt").resolve())


@pytest.fixture(scope="module")
def profile(scene) -> str:
    return scene.profile(scene.policy(state_root=str(scene.base / "state")))


def requests_of(attack_id: str, scene: Scene) -> list[Request]:  # noqa: PLR0911 - one for each family
    """Return what an attack asks of the kernel. One refusal stops it."""
    home, project = str(scene.home), str(scene.project)
    outside = f"{home}/outside/{attack_id}/file"
    kind, _, rest = attack_id.partition("-")
    if kind == "read" and rest in SECRETS:
        return [Request("file-read-data", f"{home}/{SECRETS[rest]}")]
    if kind == "read":
        return [Request("file-read-data", f"{project}/{IGNORED[rest]}")]
    if kind == "file" and rest in WRITES:
        return [Request(f"file-write-{WRITES[rest]}", outside)]
    if kind == "visible" and rest in WRITES:
        return [Request(f"file-write-{WRITES[rest]}", f"{ELSEWHERE}/file")]
    if kind == "plant" and "." not in attack_id:
        return [Request("file-write-create", f"{home}/{rest}")]
    if attack_id.startswith(("tmp-", "var-tmp-")):
        operation = {"append": "write-data", "plant": "write-create", "secret": "read-data"}
        place = "/private/tmp" if kind == "tmp" else "/private/var/tmp"
        return [Request(f"file-{operation[attack_id.rpartition('-')[2]]}", f"{place}/file")]
    if found := re.fullmatch(r"(change|plant|replace|rename|add-to|link|move-in)(\..+)", attack_id):
        operation = "unlink" if found[1] in ("rename", "replace") else "create"
        # A directory that is moved in has the protected name itself.
        below = (
            "/tasks.json"
            if found[1] in ("change", "add-to") and found[2] in (".vscode", ".idea")
            else ""
        )
        return [Request(f"file-write-{operation}", f"{project}/{found[2]}{below}")]
    if kind in {"unix", "nvim"}:
        places = {
            "home": f"{home}/s",
            "tmp": "/private/tmp/s",
            "visible": f"{ELSEWHERE}/s",
            "project": f"{project}/s",
        }
        return [
            Request(
                "network-outbound", next((p for n, p in places.items() if n in rest), f"{home}/s")
            )
        ]
    return DECIDED[attack_id](home, project)


def tcp(host: str, port: int = 5432, operation: str = "network-outbound"):
    return lambda _home, _project: [Request(operation, host=host, port=port)]


def write(name: str, operation: str = "data"):
    return lambda _home, project: [Request(f"file-write-{operation}", f"{project}/{name}")]


def ask(operation: str, path: str):
    return lambda home, project: [Request(operation, path.format(home=home, project=project))]


DECIDED = {
    "file-hardlink-in": ask("file-link", "{home}/outside/file"),
    "visible-hardlink-in": ask("file-link", f"{ELSEWHERE}/file"),
    "file-bind-socket": ask("network-bind", "{home}/outside/s"),
    "etc-append": ask("file-write-data", "/private/etc/hosts"),
    "usr-create": ask("file-write-create", "/usr/local/bin/x"),
    "setuid-program": ask("file-write-setugid", "{project}/x"),
    **{f"{name}-{place}": ask(operation, path)
       for place, path in (("home", "{home}/outside/file"), ("visible", f"{ELSEWHERE}/file"), ("directory-home", "{home}/outside/dir"),
                           ("directory-visible", f"{ELSEWHERE}/dir"))
       for name, operation in (("chmod", "file-write-mode"), ("utime", "file-write-times"), ("setxattr", "file-write-xattr"),
                               ("removexattr", "file-write-xattr"), ("chown", "file-write-owner"))},
    "stat-secret": ask("file-read-metadata", "{home}/.ssh/id_ed25519"),
    "readlink-secret": ask("file-read-data", "{home}/.ssh/link"),
    "xattr-secret": ask("file-read-xattr", "{home}/.ssh/id_ed25519"),
    "inotify-secret": ask("file-read-data", "{home}/.ssh"),
    "inotify-activity": ask("file-read-data", "{home}/busy"),
    "list-home": ask("file-read-data", "{home}"),
    "list-outside": ask("file-read-data", "{home}/outside"),
    **{f"set{bit}-{way}": ask("file-write-setugid", "{project}/x")
       for bit in ("uid", "gid") for way in ("chmod", "fchmod", "create", "mknod")},
    "env-rename": write(".env", "unlink"),
    "env-hardlink": ask("file-link", "{project}/.env"),
    "env-parent-rename": write("service", "unlink"),
    "secret-symlink": ask("file-read-data", "{home}/.ssh/id_ed25519"),
    "secret-rename": ask("file-write-unlink", "{home}/.ssh/old"),
    "secret-exec": ask("process-exec", "{home}/outside/secret-exec/program"),
    "tcp-loopback": tcp("127.0.0.1"), "tcp-loopback-v6": tcp("::1"), "tcp-mapped-v4": tcp("127.0.0.1"),
    "tcp-host-address": tcp("192.0.2.1"), "tcp-any-address": tcp("127.0.0.1"), "tcp-fastopen": tcp("127.0.0.1"),
    "tcp-reconnect": tcp("127.0.0.1"), "tcp-listen": tcp("0.0.0.0", operation="network-bind"),
    "udp-loopback": tcp("127.0.0.1"), "udp-loopback-v6": tcp("::1"), "udp-host-address": tcp("192.0.2.1"), "udp-connected": tcp("127.0.0.1"),
    "dns": ask("network-outbound", "/private/var/run/mDNSResponder"), "multicast": tcp("224.0.0.251", 5353), "icmp-raw": tcp("192.0.2.1", 0),
    "git-hook-add": write(".git/hooks/post-index-change", "create"), "git-hook-change": write(".git/hooks/pre-commit"),
    "git-hook-replace": write(".git/hooks/pre-commit", "unlink"), "git-hooks-rename": write(".git/hooks", "unlink"),
    "git-hooks-symlink": write(".git/hooks", "unlink"), "git-hook-chmod": write(".git/hooks/commit-msg", "mode"),
    "git-config-append": write(".git/config"), "git-config-command": write(".git/config", "unlink"),
    "git-config-replace": write(".git/config", "unlink"), "git-config-hardlink": ask("file-link", "{project}/.git/config"),
    "git-config-worktree": write(".git/config.worktree", "create"), "git-commondir": write(".git/commondir", "create"),
    "git-commondir-replace": write(".git/commondir", "create"), "git-move-dot-git": write(".git", "unlink"),
    "git-dot-git-symlink": write(".git", "unlink"), "git-dot-git-exchange": write(".git", "unlink"),
    "git-project-directory-replaced": lambda _home, project: [Request("file-write-unlink", project)],
    "nested-existing-config": write("vendor/lib/.git/config"), "nested-existing-hook": write("vendor/lib/.git/hooks/pre-commit", "create"),
    "nested-existing-renamed": write("vendor", "unlink"), "submodule-config": write(".git/modules/lib/config"),
    "submodule-hook": write(".git/modules/lib/hooks/pre-commit", "create"), "submodule-renamed": write(".git/modules/lib", "unlink"),
    "submodules-renamed": write(".git/modules", "unlink"), "submodule-pointer": write("lib/.git", "unlink"),
    "submodule-commondir": write(".git/modules/lib/commondir", "create"),
}  # fmt: skip


def portable(kinds: Iterable[str]) -> list[str]:
    left = (LINUX, GUARDED, WORKTREE)
    return [
        each.id
        for each in ATTACKS.values()
        if each.kind in kinds and not any(pattern.search(each.id) for pattern in left)
    ]


@pytest.mark.parametrize("attack_id", portable(KINDS - {"read-only"}))
def test_an_attack_is_refused(scene, profile, attack_id):
    requests = requests_of(attack_id, scene)
    assert not all(Profile(profile).allows(each) for each in requests)


def test_most_of_the_suite_is_decided():
    assert len(portable(KINDS)) >= 150


def test_in_plan_mode_no_file_of_the_project_can_be_changed(scene):
    profile = Profile(scene.profile(scene.policy(mode="ro")))
    path = f"{scene.project}/main.py"
    for operation in ["create", "data", "unlink", "mode", "times", "xattr", "owner", "flags"]:
        assert not profile.allows(Request(f"file-write-{operation}", path))
    assert not profile.allows(Request("network-bind", path))
    assert profile.allows(Request("file-read-data", path))
    assert profile.allows(Request("file-write-create", f"{scene.base}/state/home/x"))


def test_a_worktree_can_commit_but_not_reach_the_repository_around_it(scene):
    policy = scene.policy("home/linked", is_worktree=True)
    profile = Profile(scene.profile(policy))
    git = f"{scene.project}/.git"
    for path in (f"{git}/objects/ab/new", f"{git}/worktrees/linked/index", f"{git}/refs/heads/x"):
        assert profile.allows(Request("file-write-create", path))
    for name in (
        "config",
        "hooks/pre-commit",
        "commondir",
        "HEAD",
        "index",
        "worktrees/linked/commondir",
    ):
        assert not profile.allows(Request("file-write-create", f"{git}/{name}"))
    assert not profile.allows(Request("file-write-unlink", f"{git}/worktrees/linked"))
    assert not profile.allows(Request("file-read-data", f"{scene.project}/.env"))
    assert profile.allows(Request("file-read-data", f"{git}/config"))


def test_the_network_is_as_open_as_its_mode(scene):
    proxy = Profile(scene.profile(scene.policy(network="proxy"), PROXY_PORT))
    is_open = Profile(scene.profile(scene.policy(network="on")))
    for host in ("127.0.0.1", "::1"):
        assert proxy.allows(Request("network-outbound", host=host, port=PROXY_PORT))
        assert not proxy.allows(Request("network-outbound", host=host, port=5432))
    assert not proxy.allows(Request("network-outbound", host="192.0.2.1", port=PROXY_PORT))
    assert not proxy.allows(Request("network-bind", host="127.0.0.1", port=PROXY_PORT))
    assert not proxy.allows(Request("mach-lookup", name="com.apple.trustd.agent"))
    for host, operation in (("192.0.2.1", "outbound"), ("127.0.0.1", "bind"), ("::1", "inbound")):
        assert is_open.allows(Request(f"network-{operation}", host=host, port=443))
    for path in ("/private/var/run/docker.sock", f"{scene.home}/.ssh/agent", f"{scene.project}/s"):
        assert not is_open.allows(Request("network-outbound", path))


def test_an_open_network_lets_through_what_the_table_of_gaps_says(scene):
    profile = Profile(scene.profile(scene.policy(network="on")))
    attacks = portable({"network"})
    through = {each for each in attacks if all(map(profile.allows, requests_of(each, scene)))}
    assert through == {name for gap in SEATBELT_NETWORK_ON for name in gap.attacks.split()}


OWN, OTHER = Request("signal", is_same_sandbox=True), Request("signal")
NEEDED = (
    OWN,
    Request("process-fork"),
    Request("process-info-pidinfo", is_same_sandbox=True),
    *(Request("process-exec", path) for path in ("/bin/sh", "/usr/bin/git", "/opt/homebrew/bin/node", "/Library/Developer/CommandLineTools/usr/bin/make")),
    *(Request("file-map-executable", path) for path in ("/usr/lib/libSystem.dylib", "/System/Cryptexes/OS/System/Library/dyld/x", "/Applications/Xcode.app/Contents/Developer/x")),
    *(Request("file-read-data", path) for path in ("/", "/opt/homebrew/etc/openssl@3/cert.pem", "/usr/local/etc/gitconfig", "/private/etc/ssl/cert.pem", "/private/var/select/sh", "/dev/urandom", "/dev/fd/3")),
    *(Request("file-read-metadata", path) for path in ("/tmp", "/Applications", "/private/var", "/opt/homebrew/etc")),
    *(Request("file-write-data", path) for path in ("/dev/null", "/dev/tty", "/dev/ptmx")),
    Request("file-ioctl", "/dev/ttys004", extensions=frozenset({"com.apple.sandbox.pty"})),
    Request("pseudo-tty"),
    *(Request("sysctl-read", name=name) for name in ("hw.ncpu", "hw.optional.arm64", "kern.osrelease")),
    Request("mach-host-special-port-set"),
    *(Request("mach-lookup", name=f"com.apple.{name}") for name in ("system.opendirectoryd.libinfo", "system.opendirectoryd.membership", "SystemConfiguration.configd")),
    Request("ipc-posix-sem", name="/mp-abc"),
    Request("ipc-posix-shm-write-create", name="/psm_1234"),
    Request("system-socket", socket_domain="AF_UNIX"),
)  # fmt: skip
NEVER = (
    OTHER,
    Request("process-info-pidinfo"),
    *(Request(operation) for operation in ["appleevent-send", "lsopen", "job-creation", "mach-priv-task-port", "mach-register", "process-info-listpids", "ipc-sysv-shm", "nvram-set"]),
    *(Request("sysctl-read", name=name) for name in ("kern.procargs2.1", "kern.proc.all", "kern.proc.pid.1")),
    *(Request("mach-lookup", name=f"com.apple.{name}") for name in ("cfprefsd.agent", "pasteboard.1", "coreservices.launchservicesd", "securityd.xpc", "tccd", "coreservices.appleevents", "trustd.agent")),
    *(Request("file-read-data", path) for path in ("/Library/Keychains/System.keychain", "/opt/homebrew/var/postgresql/x", "/usr/local/var/mysql/x", "/opt/homebrew/etc/wireguard/wg0.conf", "/usr/local/etc/npmrc", "/opt/homebrew/etc", "/opt/local/etc/x", "/private/var/log/system.log", "/Volumes/disk/x", "/dev/disk0", "/dev/ttys001", "/private/var/folders/x")),
    *(Request("file-write-data", path) for path in ("/dev/ttys001", "/dev/disk0", "/usr/local/bin/x", "/opt/homebrew/bin/x")),
    Request("ipc-posix-shm-read-data", name="/chrome"),
    Request("user-preference-read"),
    Request("sysctl-write", name="kern.hostname"),
    Request("system-socket", socket_domain="AF_SYSTEM"),
)  # fmt: skip


def decisions(scene: Scene) -> list[tuple[Request, bool]]:
    """Return requests and their right answers, enough to miss each rule."""
    base, project = str(scene.base), str(scene.project)
    needed = [
        *NEEDED,
        *(Request("file-read-metadata", path) for path in (base, f"{project}/.env", str(scene.home))),
        *(Request("file-write-create", path) for path in (f"{project}/new", f"{base}/state/home/x", f"{base}/state/tmp/1-0/x", f"{project}/.git/index.lock", f"{project}/a/.envrc")),
        *(Request("file-write-unlink", path) for path in (f"{project}/main.py", f"{project}/.git/index.lock")),
        Request("file-write-unlink", f"{base}/state/tmp/1-0/s", vnode_type="SOCKET"),
        *(Request("process-exec", path) for path in (f"{project}/run", f"{base}/state/home/x")),
        *(Request("file-read-data", path) for path in (f"{base}/state/gitconfig", f"{project}/.git/config")),
        *(Request(operation, f"{base}/state/tmp/1-0/s") for operation in ("network-bind", "network-outbound", "network-inbound")),
    ]  # fmt: skip
    refused = [
        *NEVER,
        *(each for name in portable(KINDS - {"read-only"}) for each in requests_of(name, scene)),
    ]
    refused += [
        Request("file-read-data", str(scene.base / "state/quarantine/x")),
        Request("file-write-unlink", f"{base}/state/home"),
        Request("file-write-unlink", f"{project}/tmp/late.sock", vnode_type="SOCKET"),
    ]
    refused += [
        Request("file-write-unlink", f"{project}/{name}")
        for name in (".config", ".CARGO", ".github", "mise", ".mise", "sub", ".git/objects")
    ]
    refused += [Request("file-write-create", f"{project}/{name}") for name in protected_names()]
    return [*((each, True) for each in needed), *((each, False) for each in refused)]


def protected_names() -> list[str]:
    from sanderling.sandbox.names import AT_ROOT

    linked = ".git/worktrees/linked"
    hfs = (
        ".",
        ".git/",
        ".git/worktrees/linked/",
        "vendor/lib/.git/",
        ".git/modules/lib/",
        ".git/objects/info/",
        ".CARGO/",
        ".config/mise/",
    )
    ignored = [f"{name}\u200cx" for name in hfs]
    return [*map(str.upper, AT_ROOT), *ignored, f"{linked}/commondir", f"{linked}/gitdir", f"{linked}/config.worktree", ".hg", ".jj", ".git/objects/info/alternates", "sub/.exrc", "lib/.git", "vendor/lib/.git/commondir",
            "vendor/lib/.git/config.worktree", ".git/modules/lib/config.worktree", ".git/modules/lib/commondir", ".env/x", ".env.local", "service/.env.production"]  # fmt: skip


def wrong(profile: Profile, answers: Iterable[tuple[Request, bool]]) -> list[Request]:
    return [request for request, is_allowed in answers if profile.allows(request) != is_allowed]


def test_programs_get_what_they_need_and_nothing_that_leads_out(scene, profile):
    assert wrong(Profile(profile), decisions(scene)) == []


def test_no_rule_and_no_exception_can_be_left_out(scene, profile):
    """A mutant of the profile without one rule, or without one `require-not`, gives a wrong answer to some request."""
    answers = decisions(scene)
    whole = Profile(profile)
    survivors = []
    for at, (effect, operations, filters) in enumerate(whole.rules):
        mutants = [("all", [*whole.rules[:at], *whole.rules[at + 1 :]])]
        for which, each in enumerate(filters):
            if each[0] != "require-all" or str(scene.base) not in each[1][1]:
                continue
            for part in each[2:]:
                if is_named_twice(part, each[2:]):
                    continue
                rest = [other for other in each if other is not part]
                changed = [*filters[:which], rest, *filters[which + 1 :]]
                rules = [*whole.rules[:at], (effect, operations, changed), *whole.rules[at + 1 :]]
                mutants.append((part, rules))
        for left_out, rules in mutants:
            mutant = Profile.of(rules)
            if effect == "deny" and operations == ["default"]:
                continue  # without it, nothing is decided
            if not any_wrong(mutant, answers):
                survivors.append((effect, operations, left_out))
    assert not survivors


def is_named_twice(part: list, parts: list) -> bool:
    """A file at the root that exists is protected as such, and by its name in case it is removed outside."""
    if part[0] != "require-not":
        return False
    kind, path = part[1]
    others = (
        each[1]
        for each in parts
        if each is not part and each[0] == "require-not" and each[1][0] == "regex"
    )
    return kind == "subpath" and any(
        matches(each, Request("file-write-data", path)) for each in others
    )


def any_wrong(profile: Profile, answers: list[tuple[Request, bool]]) -> bool:
    return any(profile.allows(request) != is_allowed for request, is_allowed in answers)


def test_the_suite_runs_on_a_scene_as_the_guard_sees_it(scene):
    protected = scene.protection(scene.policy())
    assert f"{scene.project}/.git/hooks" in protected.read_only
    assert f"{scene.project}/service/.env.production" in protected.masked
    assert (f"{scene.project}/.git", "config.worktree") in protected.absent
    assert (scene.project / ".git/modules/lib").is_dir()
