"""
The project's own remotes: the URLs by which git reaches the hosts of credentials, and the paths of credentials that are for remotes only.

They are read once, outside the sandbox, when a session begins, from the repository's own config. Commands cannot write it, nor make git look
for another one; files that it includes are left out, because the project may contain them. So nothing that the session does adds a remote.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from msgspec.structs import replace

from sanderling.config import REMOTES, Credential
from sanderling.hosts import canonical_host, split_authority
from sanderling.sandbox.credentials import HTTPS_PORT
from sanderling.sandbox.guard.git_program import TrustedGit
from sanderling.sandbox.policy import Remote, SandboxPolicy

LIST_URLS = (
    *("-c", "safe.bareRepository=explicit"),  # no config of a directory that only looks like one
    "config",
    "--local",
    "--no-includes",
    "-z",
    "--get-regexp",
    r"^remote\..*\.(push)?url$",
)
APIS = ("/repos", "/api/v3/repos", "/api/v1/repos")
"""Where hosts have what belongs to a repository: GitHub, GitHub Enterprise, Gitea and Forgejo."""
_SCP = r"(?:[^@/:]+@)?([^@/:]+):(.+)"
_NAME = r"[A-Za-z0-9_.~-]+(/[A-Za-z0-9_.~-]+)*"


def with_remotes(policy: SandboxPolicy) -> SandboxPolicy:
    """Return the policy with the project's remotes, whose paths replace "remotes" in its credentials. Blocks for some milliseconds."""
    remotes = read_remotes(policy.project, policy.write_paths)
    credentials = tuple((name, resolved(each, remotes)) for name, each in policy.credentials)
    return policy._replace(credentials=credentials, remotes=remotes)


def read_remotes(project: str, writable: Sequence[str]) -> tuple[Remote, ...]:
    """Return the project's remotes. `writable` are more places that commands can write: no git there is run."""
    git = TrustedGit(project, *writable)
    listed = git.run(*LIST_URLS, cwd=project) if git.program else None
    items = os.fsdecode(listed or b"").split("\0")
    return tuple(filter(None, (remote_of(item.partition("\n")[2]) for item in items)))


def remote_of(url: str) -> Remote | None:
    """Return the remote with this URL; None if it is not on a host."""
    host, path, port, is_rewritable = "", "", None, True
    if "://" in url:
        with suppress(ValueError):
            parts = urlsplit(url)
            port = (parts.port or HTTPS_PORT) if parts.scheme == "https" else None
            is_rewritable = parts.scheme in ("https", "ssh") and parts.password is None
            host, path = parts.hostname or "", url.partition("://")[2].partition("/")[2]
    elif found := re.fullmatch(_SCP, url):
        host, path = found.groups()
    name = path.strip("/").removesuffix(".git")
    if not host or not re.fullmatch(_NAME, name) or {".", ".."} & {*name.split("/")}:
        return None
    start = url.removesuffix(path.lstrip("/")) if is_rewritable and url.isascii() else ""
    with suppress(ValueError):
        return Remote(canonical_host(host), name, start, port)
    return None


def resolved(credential: Credential, remotes: Sequence[Remote]) -> Credential:
    """Return the credential with the paths of the `remotes` on its hosts in place of "remotes"."""
    if REMOTES not in credential.paths:
        return credential
    hosts = {split_authority(host)[0] for host in credential.hosts}
    own = [path for remote in remotes if remote.host in hosts for path in _paths_of(remote.name)]
    others = (path for path in credential.paths if path != REMOTES)
    return replace(credential, paths=tuple(dict.fromkeys((*own, *others))))


def _paths_of(name: str) -> Iterator[str]:
    """Return the paths of a repository. One without an owner has only those of git, or it would be all that an owner has."""
    places = [f"/{name}.git"]
    if "/" in name:
        places += [f"/{name}", *(f"{api}/{name}" for api in APIS)]
    for place in places:
        yield place
        yield f"{place}/*"
