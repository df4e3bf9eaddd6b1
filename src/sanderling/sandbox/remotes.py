"""
The project's own remotes, for credentials that are meant for them only.

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
from sanderling.sandbox.credentials import NamedCredentials
from sanderling.sandbox.guard.git_program import TrustedGit

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


def with_remotes(
    credentials: NamedCredentials, project: str, writable: Sequence[str]
) -> NamedCredentials:
    """
    Return the credentials with the paths of the project's remotes in place of "remotes". Blocks for some milliseconds.

    `writable` are more places that commands can write: no git there is run.
    """
    git = TrustedGit(project, *writable)
    listed = git.run(*LIST_URLS, cwd=project) if git.program else None
    items = os.fsdecode(listed or b"").split("\0")
    remotes = [named for item in items if (named := remote_of(item.partition("\n")[2]))]
    return tuple((name, _resolved(each, remotes)) for name, each in credentials)


def remote_of(url: str) -> tuple[str, str] | None:
    """Return the host and the repository's path, without `.git`, of a remote; None if it has none."""
    host, path = "", ""
    if "://" in url:
        with suppress(ValueError):
            parts = urlsplit(url)
            host, path = parts.hostname or "", parts.path
    elif found := re.fullmatch(_SCP, url):
        host, path = found.groups()
    name = path.strip("/").removesuffix(".git")
    if not host or not re.fullmatch(_NAME, name) or {".", ".."} & {*name.split("/")}:
        return None
    with suppress(ValueError):
        return canonical_host(host), name
    return None


def _resolved(credential: Credential, remotes: list[tuple[str, str]]) -> Credential:
    if REMOTES not in credential.paths:
        return credential
    hosts = {split_authority(host)[0] for host in credential.hosts}
    own = [path for host, name in remotes if host in hosts for path in _paths_of(name)]
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
