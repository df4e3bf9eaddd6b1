"""
The proxy's use of secrets: the requests that get one, and the text that no response may contain.

A request gets the secret only if it has a command's placeholder in `Authorization`, and the credential lists its host, method
and path. Every other request passes unchanged, with or without the placeholder, which is worth nothing outside. The proxy follows no
redirect, so another host never gets the secret: a client that follows one sends the placeholder again.

A response may repeat the request, as that of an echo service does. So the secret is masked in its head and body, as it was sent and in the
usual spellings. For that the body must not be compressed, nor come in ranges that divide the secret. The sizes and the times of the pieces
must not depend on what they contain either: whoever can write what the server returns could otherwise guess the secret character by
character. This does not help against a host that wants to reveal it, for instance by encoding it in a new way: list only hosts that may know
the secret.
"""

import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from anyio import to_thread

from sanderling.config import ALL_PATHS, Credential
from sanderling.errors import SandboxError
from sanderling.hosts import split_authority
from sanderling.sandbox.credentials import CredentialUse, NamedCredentials, places_of
from sanderling.sandbox.environment import MARK

KEPT_S = 300.0  # a keychain may ask the user each time
SHOWN_PATHS = 8

Headers = list[tuple[bytes, bytes]]
ReadSecret = Callable[[str, Credential], str]

_ENCODING = b"accept-encoding"
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_DROPPED = (
    rb"authorization|cookie|accept-encoding|range|if-range"
    rb"|x-(http-)?method(-override)?|x-original-.*|x-rewrite-.*|forwarded|x-forwarded-.*"
)
"""Headers that could reveal the secret, or name a method or path that was not checked."""


class Placeholder(NamedTuple):
    """A placeholder in a request to one of its credential's hosts. `port` is that of the host's TLS."""

    use: CredentialUse
    credential: Credential
    scheme: str
    user: str
    port: int

    def why_not(self) -> str:
        """Return why the credential does not apply to the request; "" if it does."""
        use, credential = self.use, self.credential
        if use.method not in credential.methods:
            return f"not for {use.method}, only for {', '.join(credential.methods)}"
        if ALL_PATHS not in credential.paths and not _is_plain(use.path):
            return f"not for {use.path}, because servers read such a path in different ways"
        if not credential.paths:
            return f"not for {use.path}, because the project has no remote on its hosts"
        if not any(_matches(use.path, pattern) for pattern in credential.paths):
            return f"not for {use.path}, only for {_shown(credential.paths)}"
        return ""


class SecretProxy:
    """
    Decides which requests get a secret. `admit` makes a command's mark a placeholder.

    `on_use` is called for each use. `why_off` returns why no request gets a secret at the moment; "" if some do.
    """

    def __init__(
        self,
        credentials: NamedCredentials,
        read: ReadSecret,
        on_use: Callable[[CredentialUse], None],
        why_off: Callable[[], str],
    ) -> None:
        self._read = read
        self.on_use = on_use
        self.why_off = why_off
        self._marks = set[str]()
        self._secrets: dict[str, tuple[float, str]] = {}  # by name: when read, and the secret
        self._of_host: dict[tuple[str, int], tuple[str, Credential, int]] = {}
        for name, credential in credentials:
            for text in credential.hosts:
                _, port = split_authority(text)
                for place in places_of(text):
                    self._of_host[place] = name, credential, port or 443

    def admit(self, mark: str) -> None:
        """Let the command with this `mark` use the secrets. On macOS, other programs can reach the proxy, and have none."""
        self._marks.add(mark)

    def placeholder_in(
        self,
        host: str,
        port: int,
        method: bytes,
        target: bytes,
        headers: Iterable[tuple[bytes, bytes]],
    ) -> Placeholder | None:
        """Return the placeholder of a request to `host`; None if it has none, or the host has no credential."""
        found = self._of_host.get((host, port))
        sent = [value for name, value in headers if name == b"authorization"]
        if not found or len(sent) != 1:
            return None
        scheme, user, mark = _parts(sent[0])
        if mark not in self._marks:
            return None
        name, credential, tls_port = found
        path = target.decode("ascii", "replace").partition("?")[0]
        use = CredentialUse(name, method.decode("ascii", "replace"), host, path, mark)
        return Placeholder(use, credential, scheme, user, tls_port)

    async def authorization(self, placeholder: Placeholder) -> tuple[bytes, "Mask"]:
        """
        Return the header's value with the secret, and what masks it in the response.

        Raises:
            SandboxError: the secret cannot be read.
        """
        secret = (await self._secret(placeholder)).encode()
        if placeholder.scheme.lower() == "basic":
            value = b64encode(placeholder.user.encode() + b":" + secret)
        else:
            value = secret
        return placeholder.scheme.encode() + b" " + value, Mask(secret, value)

    async def _secret(self, placeholder: Placeholder) -> str:
        name = placeholder.use.name
        read_at, secret = self._secrets.get(name, (0.0, ""))
        if not secret or time.monotonic() > read_at + KEPT_S:
            reading = partial(self._read, name, placeholder.credential)
            secret = await to_thread.run_sync(reading, abandon_on_cancel=True)
            self._secrets[name] = time.monotonic(), secret
        return secret


def with_secret(headers: Headers, authorization: bytes) -> Headers:
    """Return a request's headers with the secret, without headers that could reveal it, or change the method or the path."""
    kept = [(name, value) for name, value in headers if not re.fullmatch(_DROPPED, _as_read(name))]
    return [*kept, (_ENCODING, b"identity"), (b"authorization", authorization)]


def _as_read(name: bytes) -> bytes:
    """Return a header's name as servers read it that make variables of headers (RFC 3875, section 4.1.18)."""
    return name.replace(b"_", b"-")


class Mask:
    """Replaces a secret, and the `value` sent for it, by as many asterisks in a stream, also where it is divided between two pieces."""

    def __init__(self, secret: bytes, value: bytes) -> None:
        forms = {*_spellings(secret), *_encodings(secret), *_spellings(value)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._held = b""

    def masked(self, data: bytes) -> bytes:
        """Return all of `data` with the secrets replaced."""
        for form in self._forms:
            data = data.replace(form, b"*" * len(form))
        return data

    def feed(self, data: bytes) -> bytes:
        """Return the next piece of the stream, without its last bytes, with which a secret could begin: as many, whatever they are."""
        data = self.masked(self._held + data)
        end = max(0, len(data) - len(self._forms[0]) + 1)
        self._held = data[end:]
        return data[:end]

    def end(self) -> bytes:
        rest, self._held = self._held, b""
        return rest


def masked_response(headers: Headers, mask: Mask, hosts: Iterable[str]) -> Headers:
    """
    Return a response's headers without the secret, and without cookies, which could replace it.

    A redirect to one of the `hosts` leads to the proxy again, so that the client can send the placeholder.

    Raises:
        SandboxError: the body is compressed, so the secret cannot be found in it.
    """
    kept = Headers()
    for name, value in headers:
        if name == b"content-encoding" and value.strip().lower() != b"identity":
            raise SandboxError("the server sent a compressed response, which cannot be checked")
        if name == b"set-cookie":
            continue
        shown = _through_proxy(value, hosts) if name == b"location" else value
        kept.append((name, mask.masked(shown)))
    return kept


def _through_proxy(location: bytes, hosts: Iterable[str]) -> bytes:
    for host in hosts:
        if location.lower().startswith(f"https://{host}/".encode()):
            return b"http" + location[len(b"https") :]
    return location


def _parts(authorization: bytes) -> tuple[str, str, str]:
    """Return scheme, user and placeholder of an `Authorization` header; an empty placeholder if it has none."""
    scheme, _, value = authorization.decode("latin-1").strip().partition(" ")
    user, value = "", value.strip()
    if scheme.lower() == "basic":
        with suppress(ValueError):
            user, _, value = b64decode(value, validate=True).decode().partition(":")
    is_mark = scheme.lower() in ("basic", "bearer", "token") and re.fullmatch(MARK, value)
    return scheme, user, value if is_mark else ""


def _is_plain(path: str) -> bool:
    """Return whether every server reads `path` in the same way: without escapes, and without parts that name another one."""
    parts = path.split("/")[1:]
    return not re.search(r"[%\\;]", path) and not {".", ".."} & {*parts} and "" not in parts[:-1]


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, re.sub(r"[\[?]", r"[\g<0>]", pattern))  # only `*` is special


def _shown(paths: Sequence[str]) -> str:
    more = ["…"] if len(paths) > SHOWN_PATHS else []
    return ", ".join([*paths[:SHOWN_PATHS], *more])


def _spellings(text: bytes) -> Iterable[bytes]:
    """Return a text as it is, and as JSON, URLs and HTML spell it."""
    yield text
    in_json = re.sub(rb'["\\]', rb"\\\g<0>", text)
    yield in_json
    yield in_json.replace(b"/", rb"\/")
    for special, escape in _IN_JSON_FOR_HTML:
        for plain in (in_json, text.replace(b"\\", rb"\\")):
            yield re.sub(special, partial(_as_escape, escape), plain)
    for names in _IN_HTML:
        yield re.sub(rb"[&<>\"'+]", partial(_as_entity, names), text)
    for safe in ("", "/", "!'()*", ";,/?:@&=+$!*'()#"):
        quoted = quote_from_bytes(text, safe=safe)
        yield quoted.encode()
        yield re.sub("%..", lambda found: found[0].lower(), quoted).encode()


_IN_JSON_FOR_HTML = (
    (rb"[&<>]", rb"\u%04x"),
    (rb"[&<>='\"]", rb"\u%04x"),
    (rb"[&<>+`'\"]", rb"\u%04X"),
)
"""As Go and Rails, Gson and .NET spell it."""
_BASIC = {b"&": b"&amp;", b"<": b"&lt;", b">": b"&gt;"}
_IN_HTML = (
    _BASIC,
    _BASIC | {b'"': b"&quot;", b"'": b"&#x27;"},
    _BASIC | {b'"': b"&quot;", b"'": b"&#39;"},
    _BASIC | {b'"': b"&quot;", b"'": b"&#039;"},
    _BASIC | {b'"': b"&#34;", b"'": b"&#39;"},
    _BASIC | {b'"': b"&#34;", b"'": b"&#39;", b"+": b"&#43;"},
)
"""As text, and as Python, Ruby, PHP and Go spell it."""


def _as_escape(escape: bytes, found: re.Match[bytes]) -> bytes:
    return escape % ord(found[0])


def _as_entity(names: Mapping[bytes, bytes], found: re.Match[bytes]) -> bytes:
    return names.get(found[0], found[0])


def _encodings(secret: bytes) -> Iterable[bytes]:
    """Return the secret in hexadecimal, and in base64, after any other text."""
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for before, first in (
        (0, 0),
        (1, 2),
        (2, 3),
    ):  # the characters from `first` depend on the secret alone
        whole = (before + len(secret)) * 8 // 6
        encoded = b64encode(bytes(before) + secret)[first:whole]
        yield encoded
        yield encoded.translate(_URL_SAFE)
