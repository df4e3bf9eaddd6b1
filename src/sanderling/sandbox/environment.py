"""The environment variables of a command."""

import base64
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress

from sanderling.paths import is_in_any
from sanderling.protocol.modes import Level
from sanderling.sandbox.kernel.programs import is_system, search_path
from sanderling.sandbox.policy import UNMOUNTED, SandboxPolicy, private_home

ENVIRONMENT = (
    r"PATH|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|COLORTERM|EDITOR|VISUAL|COLUMNS|LINES"
    r"|VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV)|PYTHON(PATH|UNBUFFERED|DONTWRITEBYTECODE|WARNINGS)|(PY|RB|NOD|GO)ENV_(ROOT|VERSION)"
    r"|NVM_(DIR|BIN)|FNM_DIR|ASDF_(DATA_)?DIR|MISE_DATA_DIR|VOLTA_HOME|BUN_INSTALL|DENO_INSTALL|SDKMAN_DIR|PIPX_HOME|UV_(TOOL|PYTHON_INSTALL)_DIR|NODE_(PATH|ENV|OPTIONS)|CARGO_(HOME|TARGET_DIR|NET_OFFLINE)|RUSTUP_(HOME|TOOLCHAIN)"
    r"|GO(PATH|ROOT|FLAGS|PROXY|MODCACHE|CACHE|TOOLCHAIN)|JAVA_HOME|ANDROID_HOME|GEM_(HOME|PATH)"
    r"|MAKEFLAGS|CC|CXX|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS|PKG_CONFIG_PATH|LD_LIBRARY_PATH|CMAKE_(PREFIX_PATH|BUILD_TYPE|BUILD_PARALLEL_LEVEL|GENERATOR|INSTALL_PREFIX|MODULE_PATH|TOOLCHAIN_FILE)"
    r"|NIX_(PATH|PROFILES|SSL_CERT_FILE)|SSL_CERT_(FILE|DIR)|CURL_CA_BUNDLE|REQUESTS_CA_BUNDLE|NODE_EXTRA_CA_CERTS"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL)|CI|NO_COLOR|FORCE_COLOR|SOURCE_DATE_EPOCH"
)
"""
The variables that may pass, as a pattern. They contain no secrets, sockets or displays.

It is an allow-list, because many variables lead out of the sandbox. Neovim, for instance, sets $NVIM for all of its children, the path
of its RPC socket.
"""


FAIL_FAST = {
    "npm_config_fetch_retries": "0",
    "PIP_RETRIES": "0",
    "CARGO_NET_RETRY": "0",
    "UV_HTTP_RETRIES": "0",
}
"""Without a network, retries are pointless."""

FILLED = (
    "CARGO_HOME",
    "GOCACHE",
    "GOMODCACHE",
    "GOPATH",
    "PIPX_HOME",
    "UV_PYTHON_INSTALL_DIR",
    "UV_TOOL_DIR",
)
"""Directories that programs fill. They are passed only where they can: outside, the default below HOME works."""

SEARCHED = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": ""}
"""Search paths for programs and libraries, with the default if nothing remains of them."""

MARK = r"sanderling-[0-9a-f]{16}"
MARKED = ".invalid"
"""The domain of marks: it never exists (RFC 6761)."""
PASSWORD = "x"  # noqa: S105 - git asks the user for a missing one, and node sends no user without one

CREDENTIALS = r"://[^/\s]*@"


def environment(host: Mapping[str, str], policy: SandboxPolicy, level: Level) -> dict[str, str]:
    """Return a command's environment: the host's variables allowed by `ENVIRONMENT` and `env_pass`, then Sanderling's own."""
    passed = {name: host[name] for name in policy.env_pass if name in host} | harmless(host)
    for name in FILLED:
        if name in passed and not _exists_inside(passed[name], policy, level):
            del passed[name]
    for name, default in SEARCHED.items():
        if name in passed:
            passed[name] = search_path(passed[name], policy) or default
    has_network = policy.network != "off"
    mounted = {"HOME": policy.home, "TMPDIR": "/tmp"}
    places = _places_without_mounts(policy) if level in UNMOUNTED else mounted
    return (
        passed
        | ({} if has_network else FAIL_FAST)
        | places
        | {
            "TERM": "dumb",
            "PAGER": "cat",
            "GIT_PAGER": "cat",
            "GIT_TERMINAL_PROMPT": "0",
            "SANDERLING_SANDBOX": level,
        }
    )


def harmless(host: Mapping[str, str]) -> dict[str, str]:
    """Return the host's variables allowed by `ENVIRONMENT`."""
    return {
        name: value
        for name, value in host.items()
        if re.fullmatch(ENVIRONMENT, name) and not re.search(CREDENTIALS, value)
    }


def _exists_inside(path: str, policy: SandboxPolicy, level: Level) -> bool:
    path = os.path.normpath(path)
    writable = (
        policy.project,
        *policy.write_paths,
        *([] if level in UNMOUNTED else [policy.home]),
    )
    return is_in_any(path, writable) or is_system(path)


def proxy_environment(port: int, mark: str = "") -> dict[str, str]:
    """
    Return the variables that make curl, git, pip, npm, node, cargo and go use the proxy, except for loopback.

    Clients then send the `mark` as their user.
    """
    user = f"{mark}:{PASSWORD}@" if mark else ""
    proxy = f"http://{user}127.0.0.1:{port}"
    # Not "[::1]", which only urllib needs: every client of httpx 0.28 fails with "Invalid port: ':1]'" because of it.
    bypass = "localhost,127.0.0.1,::1"
    names = {"http_proxy": proxy, "https_proxy": proxy, "all_proxy": proxy, "no_proxy": bypass}
    return (
        names
        | {name.upper(): value for name, value in names.items()}
        | {"NODE_USE_ENV_PROXY": "1"}
        # Otherwise git asks first without the user, and sends it only after status 407.
        | {"GIT_HTTP_PROXY_AUTHMETHOD": "basic"}
    )


def resolver_environment(mark: str) -> dict[str, str]:
    """
    Return the variables that make the C library put the `mark` into the names that it asks for.

    A query does not say which process sent it, and a datagram's sender cannot be found later: curl has closed its socket by the time that
    /proc is searched. So the mark is a search domain, which glibc tries first for a name of fewer than 15 dots. musl and Go's own
    resolver ignore it and ask for the plain name only.
    """
    return {"LOCALDOMAIN": f"{mark}{MARKED}", "RES_OPTIONS": "ndots:15"}


def new_mark() -> str:
    """Return a mark that other commands cannot guess."""
    return f"sanderling-{secrets.token_hex(8)}"


def mark_in_name(name: str) -> tuple[str, str]:
    """Return the requested name and the mark of a query; an empty mark if it has none."""
    found = re.fullmatch(rf"(.*)\.({MARK}){re.escape(MARKED)}", name)
    return (found[1], found[2]) if found else (name, "")


def mark_in_credentials(header: bytes) -> str:
    """Return the mark in a `Proxy-Authorization` header; empty if it has none."""
    scheme, _, encoded = header.decode("latin-1").strip().partition(" ")
    with suppress(ValueError):
        user = base64.b64decode(encoded.strip(), validate=True).partition(b":")[0].decode()
        if scheme.lower() == "basic" and re.fullmatch(MARK, user):
            return user
    return ""


def _places_without_mounts(policy: SandboxPolicy) -> dict[str, str]:
    """Without mounts, nothing is at its usual place, so variables point there."""
    return {
        "HOME": f"{policy.state_dir}/{private_home(policy)}",
        "TMPDIR": policy.tmp_dir,
        "GIT_CONFIG_GLOBAL": f"{policy.state_dir}/gitconfig",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.excludesFile",
        "GIT_CONFIG_VALUE_0": f"{policy.state_dir}/gitignore",
    }
