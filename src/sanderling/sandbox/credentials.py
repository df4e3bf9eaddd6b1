"""
Secrets that commands can use but not read: which there are, how they are read, and what commands get instead.

A command gets a placeholder, its own mark, which no other command can guess. It sends that to the proxy over plain HTTP on the sandbox's
loopback. The proxy replaces it by the secret and uses TLS from there (`network/credentials.py`).

The alternative is a certificate authority per session, with which the proxy ends TLS. Then every client of these hosts must trust that
authority, or it fails: Java, Go on macOS, and programs with certificates of their own have no common variable for it. It would also end TLS for
requests that need no secret. With plain HTTP, a client takes part only if it sends the placeholder, and git has a setting for that,
`url.<base>.insteadOf`. All else still tunnels to the host and checks its certificate itself.
"""

import os
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sanderling.config import Credential
from sanderling.errors import ConfigError, SandboxError
from sanderling.hosts import split_authority
from sanderling.paths import leads_through, own_command
from sanderling.sandbox.environment import ENVIRONMENT
from sanderling.sandbox.policy import Remote

READ_S = 30.0  # a locked keychain asks the user first
MAX_SECRET_BYTES = 4096
HTTPS_PORT = 443
MIN_SECRET_CHARS = 8  # a shorter one is too easy to guess, and masking it would spoil responses
KEYCHAIN_SERVICE = (
    "sanderling-credentials"  # not that of the API keys, which have the names of providers
)

NamedCredentials = Sequence[tuple[str, Credential]]
"""Credentials with their names."""


class CredentialUse(NamedTuple):
    """A request that got the secret of the credential `name`, without its query. `by` is the mark of the command that sent it."""

    name: str
    method: str
    host: str
    path: str
    by: str


def check_credentials(credentials: Mapping[str, Credential], passed: Sequence[str]) -> None:
    """
    Check that each credential is complete, and that commands do not see its variable, which must not be among the `passed` ones.

    Raises:
        ConfigError: names the key and what to do.
    """
    users = dict[tuple[str, int], str]()
    for name, credential in credentials.items():
        path = ("sandbox", "credentials", name)
        if not credential.hosts:
            raise ConfigError(f"the credential '{name}' has no hosts: list them in `hosts`", path)
        for host in credential.hosts:
            try:
                places = places_of(host)
            except ValueError:
                message = f"'{host}' of the credential '{name}' is not a host"
                raise ConfigError(message, (*path, "hosts")) from None
            for place in places:
                if users.setdefault(place, name) != name:
                    message = (
                        f"the credentials '{users[place]}' and '{name}' have the same host {host}"
                    )
                    raise ConfigError(message, (*path, "hosts"))
        variable = credential.variable or ""
        if credential.source == "env" and not variable:
            message = f"the credential '{name}' is from the environment: set `variable`"
            raise ConfigError(message, path)
        if re.fullmatch(ENVIRONMENT, variable):
            message = f"commands see {variable}, so it cannot hold the secret of '{name}'"
            raise ConfigError(message, (*path, "variable"))
        if variable in passed:
            message = (
                f"commands would see the secret of '{name}': remove {variable} from sandbox.env"
            )
            raise ConfigError(message, ("sandbox", "env"))


def secret_variables(credentials: Mapping[str, Credential]) -> frozenset[str]:
    """Return the variables of our environment that hold secrets of credentials."""
    return frozenset(each.variable for each in credentials.values() if each.variable)


def places_of(host: str) -> list[tuple[str, int]]:
    """
    Return the hosts and ports by which a client can name the `host` of a credential.

    Raises:
        ValueError: it is not a host.
    """
    name, port = _named_port(host)
    return [(name, each) for each in ((port,) if port else (80, 443))]


def _named_port(host: str) -> tuple[str, int | None]:
    """Return the name and the port of a host. The port of HTTPS is none, because URLs leave it out."""
    name, port = split_authority(host)
    return name, None if port == HTTPS_PORT else port


def with_canonical_hosts(
    credentials: Mapping[str, Credential],
) -> tuple[tuple[str, Credential], ...]:
    """Return checked credentials with hosts in the spelling that git, and the proxy in redirects, look for."""

    def canonical(host: str) -> str:
        name, port = _named_port(host)
        shown = f"[{name}]" if ":" in name else name
        return f"{shown}:{port}" if port else shown

    return tuple(
        (name, replace(each, hosts=tuple(map(canonical, each.hosts))))
        for name, each in credentials.items()
    )


def placeholder_environment(
    credentials: NamedCredentials,
    mark: str,
    before: Mapping[str, str],
    remotes: Sequence[Remote] = (),
) -> dict[str, str]:
    """
    Return the variables that make git send the `mark` in place of the secret, and the placeholders. `before` has git's earlier settings.

    Git rewrites a URL by its beginning. A URL with a user, or with a host in capitals, is therefore known only from the project's `remotes`.
    """
    settings = list[tuple[str, str]]()
    variables = dict[str, str]()
    for _, credential in credentials:
        variables |= dict.fromkeys(credential.placeholders, mark)
        basic = b64encode(f"{credential.user}:{mark}".encode()).decode()
        for host in credential.hosts:
            base = f"http://{host}/"
            name, port = _named_port(host)
            ports = (None, port or HTTPS_PORT)
            own = (each.start for each in remotes if each.host == name and each.port in ports)
            written = (f"https://{host}/", f"git@{name}:", f"ssh://git@{name}/", *filter(None, own))
            settings += ((f"url.{base}.insteadOf", each) for each in dict.fromkeys(written))
            settings.append((f"http.{base}.extraHeader", f"Authorization: Basic {basic}"))
    count = int(before.get("GIT_CONFIG_COUNT", "0"))
    for number, (key, value) in enumerate(settings, count):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables | {"GIT_CONFIG_COUNT": str(count + len(settings))}


def read_secret(name: str, credential: Credential, writable: Sequence[str]) -> str:
    """
    Read the secret from where the user keeps it. Blocks.

    `writable` are the places that commands can write: no program there is run.

    Raises:
        SandboxError: there is none. The secret is never part of the message.
    """
    match credential.source:
        case "env":
            secret = os.environ.get(credential.variable or "", "")
            remedy = f"Set {credential.variable} in the environment of Sanderling."
        case "keychain":
            # A process, because nothing can end a call that waits for a keychain which waits for the user.
            argv = (sys.executable, "-m", "keyring", "get", KEYCHAIN_SERVICE, name)
            secret = _output(name, argv, trusted_environment(writable))
            remedy = f"Unlock the keychain, or store it: `{own_command()} credentials add {name}`."
        case "command":
            program, *arguments = credential.command
            environment = trusted_environment(writable)
            program = _trusted(name, program, environment["PATH"], writable)
            secret = _output(name, (program, *arguments), environment)
            remedy = f"Run `{' '.join(credential.command)}` in a shell: it must print the secret."
    if not secret:
        raise SandboxError(f"There is no secret for the credential '{name}'. {remedy}")
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise SandboxError(
            f"The secret of '{name}' contains a space or an invalid character. {remedy}"
        )
    if len(secret) < MIN_SECRET_CHARS:
        raise SandboxError(
            f"The secret of '{name}' has fewer than {MIN_SECRET_CHARS} characters: use a token."
        )
    return secret


def trusted_environment(writable: Sequence[str]) -> dict[str, str]:
    """Return the environment of Sanderling with search paths that do not lead to the `writable` places."""
    return {**os.environ, **{name: _outside(name, writable) for name in ("PATH", "PYTHONPATH")}}


def _outside(variable: str, writable: Sequence[str]) -> str:
    entries = os.environ.get(variable, "").split(os.pathsep)
    return os.pathsep.join(each for each in entries if _is_outside(each, writable))


def _is_outside(path: str, writable: Sequence[str]) -> bool:
    places = map(os.path.expanduser, writable)
    return path.startswith("/") and not any(leads_through(path, each) for each in places)


def _trusted(name: str, program: str, path: str, writable: Sequence[str]) -> str:
    """Return where `program` is on this PATH, outside the places that commands can write."""
    found = shutil.which(os.path.expanduser(program), path=path) or ""
    if not _is_outside(found, writable):
        raise SandboxError(
            f"The credential '{name}' needs the program '{program}', which is not on PATH outside the project."
        )
    return found


def _output(name: str, argv: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what a program prints; "" if it fails. Its messages are dropped, because they may quote the secret."""
    try:
        done = subprocess.run(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
            timeout=READ_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SandboxError(
            f"Reading the secret of '{name}' took more than {READ_S:g} s. Unlock the keychain and try again."
        ) from None
    except (OSError, subprocess.SubprocessError):
        return ""
    if done.returncode or len(done.stdout) > MAX_SECRET_BYTES:
        return ""
    return done.stdout.decode(errors="replace").rstrip("\r\n")
