"""Secrets that commands can use but not read: through the proxy alone, through real git in the sandbox, and under attack from inside."""

import html
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanderling.cli.credentials import PRESETS
from sanderling.config import Credential, Settings
from sanderling.errors import ConfigError, SandboxError
from sanderling.protocol.events import Notice, TurnEnded
from sanderling.protocol.messages import Prompt
from sanderling.sandbox.confinement import policy_for
from sanderling.sandbox.credentials import (
    CredentialUse,
    check_credentials,
    placeholder_environment,
    read_secret,
)
from sanderling.sandbox.environment import new_mark
from sanderling.sandbox.network import credentials as module
from sanderling.sandbox.network.credentials import Mask, Placeholder, SecretProxy
from sanderling.sandbox.network.host_rules import HostRules
from sanderling.sandbox.network.proxy import serve_proxy
from sanderling.sandbox.processes import PIPE
from sanderling.sandbox.remotes import read_remotes, remote_of
from sanderling.session.session import Session
from tests.conftest import ROOT, examples, happens, prove
from tests.sandbox.test_network import HttpServer, listening, say, server_for
from tests.sandbox.test_sandbox import PYTHON, run
from tests.secret_server import MALFORMED, SecretServer, make_certificate, secret_server
from tests.talk import BaseTalk, scripted

if TYPE_CHECKING:
    from sanderling.sandbox.denials import Denial

pytestmark = [
    pytest.mark.guard,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate"),
]

SECRET = "ghp_A+b/9secret0123456789"
BASIC = b64encode(f"me:{SECRET}".encode()).decode()
MARK, OTHER_MARK = "sanderling-0123456789abcdef", "sanderling-fedcba9876543210"
VARIABLE = "TEST_GIT_TOKEN"
DIRECT = {"no_proxy": "", "NO_PROXY": ""}  # otherwise clients reach localhost without the proxy


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(tmp_path, certificate, monkeypatch) -> Iterator[SecretServer]:
    """A server whose certificate this machine trusts, with an empty repository `/git/it.git`."""
    repositories = tmp_path / "repositories"
    subprocess.run(
        ["git", "init", "-q", "--bare", "-b", "main", repositories / "it.git"], check=True
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[1]))
    with secret_server(repositories, SECRET, *certificate) as server:
        yield server


class Scene:
    """A proxy with a credential for `server`."""

    def __init__(self, server: SecretServer, secret: str, **changes) -> None:
        self.server = server
        self.secret = secret
        self.uses: list[CredentialUse] = []
        self.denials: list[Denial] = []
        credential = Credential(**{"hosts": (server.host,), "paths": ("/*",)} | changes)
        self.why_off = ""
        self.secrets = SecretProxy(
            [("github", credential)], self._read, self.uses.append, lambda: self.why_off
        )
        self.secrets.admit(MARK)
        self.port = 0

    def _read(self, name: str, credential: Credential) -> str:
        if not self.secret:
            raise SandboxError(f"There is no secret for {name} from {credential.source}.")
        return self.secret

    async def ask(
        self,
        path: str = "/user",
        authorization: str = f"token {MARK}",
        *,
        method: str = "GET",
        host: str = "",
        more: str = "",
    ) -> str:
        host = host or self.server.host
        sent = f"Authorization: {authorization}\r\n" if authorization else ""
        head = f"{method} http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{sent}{more}\r\n"
        return (await say(self.port, head.encode())).decode("latin-1")


@asynccontextmanager
async def scene(
    server: SecretServer, *hosts: str, secret: str = SECRET, **changes
) -> AsyncIterator[Scene]:
    made = Scene(server, secret, **changes)
    listener = listening()
    made.port = listener.getsockname()[1]
    rules = HostRules((server.host, f"127.0.0.1:{server.server_port}", *hosts))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve_proxy, listener, rules, made.denials.append, made.secrets)
        yield made
        tasks.cancel_scope.cancel()


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


# --- which requests get it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["token", "Bearer", "basic"])
async def test_placeholder_is_replaced_by_the_secret_in_the_scheme_of_the_client(server, scheme):
    sent = basic("me", MARK) if scheme == "basic" else f"{scheme} {MARK}"
    async with scene(server) as it:
        response = await it.ask("/user?q=1", sent)
        assert response.startswith("HTTP/1.1 200 ")
        assert response.endswith('{"login": "me"}')
        assert it.uses == [CredentialUse("github", "GET", "localhost", "/user", MARK)]
    wanted = basic("me", SECRET) if scheme == "basic" else f"{scheme} {SECRET}"
    assert server.authorizations == [("GET", "/user", wanted)]


@pytest.mark.parametrize(
    "sent", ["", "token mine", f"token {OTHER_MARK}", f"token x{MARK}", f"Digest {MARK}", "Basic %"]
)
async def test_request_without_the_commands_placeholder_passes_unchanged(server, sent):
    async with scene(server) as it:
        # Over plain HTTP, a server for TLS does not answer: the request went there unchanged.
        assert "login" not in await it.ask(authorization=sent)
        assert not it.uses
    assert not server.authorizations


async def test_two_authorizations_get_no_secret(server):
    async with scene(server) as it:
        assert "login" not in await it.ask(more=f"Authorization: token {MARK}\r\n")
        assert not it.uses


async def test_only_the_credentials_own_host_gets_the_secret(server):
    async with scene(server) as it:
        assert "login" not in await it.ask(host=f"127.0.0.1:{server.server_port}")
        assert (await it.ask(host="other.example:80")).startswith("HTTP/1.1 403 ")
        assert not it.uses
    assert not server.authorizations


async def test_host_that_is_not_listed_gets_no_secret(server):
    async with scene(server) as it:
        listener, it.port = listening(), 0
        it.port = listener.getsockname()[1]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve_proxy, listener, HostRules(()), it.denials.append, it.secrets)
            assert (await it.ask()).startswith("HTTP/1.1 403 ")
            tasks.cancel_scope.cancel()
        assert [denial.target for denial in it.denials] == [server.host]
        assert not it.uses


async def test_methods_and_paths_limit_the_secret(server):
    async with scene(server, paths=("/me/it*",), methods=("GET",)) as it:
        assert (await it.ask("/me/it/x")).startswith("HTTP/1.1 200 ")
        refused = await it.ask("/me/it", method="POST", more="Content-Length: 0\r\n")
        assert refused.startswith("HTTP/1.1 403 ")
        assert "'github' is not for POST, only for GET." in refused
        for path in (
            "/me/other",
            "/me/it/../other",
            "/me/it/%2e%2e/other",
            "/me/it//../x",
            "/me/it\\..",
            "/me/it/.",
        ):
            assert (await it.ask(path)).startswith("HTTP/1.1 403 "), path
    assert [path for _, path, _ in server.authorizations] == ["/me/it/x"]


async def test_only_the_asterisk_of_a_path_is_special(server):
    async with scene(server, paths=("/a[bc]*",)) as it:
        assert (await it.ask("/a[bc]d")).startswith("HTTP/1.1 200 ")
        assert (await it.ask("/ab")).startswith("HTTP/1.1 403 ")
    async with scene(server, paths=("/a?b",)) as it:
        assert (await it.ask("/axb")).startswith("HTTP/1.1 403 ")


async def test_placeholder_of_before_plan_mode_is_refused_in_it(server):
    async with scene(server) as it:
        it.why_off = "not for plan mode"
        refused = await it.ask()
        assert refused.startswith("HTTP/1.1 403 ")
        assert "The credential 'github' is not for plan mode." in refused
        assert not it.uses
    assert not server.authorizations


async def test_request_that_began_before_plan_mode_does_not_go_on_in_it(server):
    async with scene(server) as it, await anyio.connect_tcp("127.0.0.1", it.port) as client:
        await client.send(
            f"POST http://{server.host}/echo/body HTTP/1.1\r\nHost: {server.host}\r\n"
            f"Authorization: token {MARK}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        await happens(lambda: bool(server.authorizations))
        it.why_off = "not for plan mode"
        await client.send(b"3\r\nbad\r\n0\r\n\r\n")
        got = b""
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                got += await client.receive()
        assert b"bad" not in got


async def test_method_cannot_be_changed_by_a_header(server):
    async with scene(server) as it:
        more = "X-HTTP-Method-Override: DELETE\r\nCookie: a=b\r\nRange: bytes=1-2\r\nConnection: accept-encoding\r\n"
        await it.ask(more=more)
    assert not {"x-http-method-override", "cookie", "range"} & server.headers[0].keys()


@pytest.mark.parametrize(
    "name",
    [
        "X_HTTP_Method_Override",  # the same to a server with CGI's variables
        "X-Original-URL",
        "x_rewrite-url",
        "X-Original-Method",
        "X-Forwarded-Uri",
        "X-Forwarded-Method",
        "Accept_Encoding",
    ],
)
async def test_path_and_method_cannot_be_changed_by_a_header_of_another_name(server, name):
    async with scene(server) as it:
        await it.ask(more=f"{name}: /other\r\nX-Mine: 1\r\n")
    assert name.lower() not in server.headers[0]
    assert server.headers[0]["x-mine"] == "1"


async def test_trailers_of_a_request_with_the_secret_are_dropped(server):
    body = "2\r\nok\r\n0\r\nX-HTTP-Method-Override: DELETE\r\n\r\n"
    async with scene(server) as it:
        head = f"POST http://{server.host}/echo/body HTTP/1.1\r\nHost: {server.host}\r\n"
        sent = f"Authorization: token {MARK}\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert b"ok" in await say(it.port, f"{head}{sent}{body}".encode())
    assert server.trailers == []


async def test_server_without_a_trusted_certificate_gets_no_secret(server, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    async with scene(server) as it:
        response = await it.ask()
        assert response.startswith("HTTP/1.1 502 ")
        assert "localhost gets no secret: " in response.splitlines()[0]
        assert not it.uses
    assert not server.authorizations


async def test_secret_is_read_once_and_again_when_it_is_too_old(monkeypatch):
    read = list[str]()

    def read_secret(name: str, _: Credential) -> str:
        read.append(name)
        return SECRET

    credential = Credential(hosts=("github.com",))
    proxy = SecretProxy([("github", credential)], read_secret, lambda _: None, str)
    use = CredentialUse("github", "GET", "github.com", "/", MARK)
    placeholder = Placeholder(use, credential, "token", "", 443)
    for _ in range(3):
        await proxy.authorization(placeholder)
    assert read == ["github"]
    monkeypatch.setattr(module, "KEPT_S", -1.0)
    await proxy.authorization(placeholder)
    assert read == ["github", "github"]


async def test_missing_secret_is_an_error_that_says_so(server):
    async with scene(server, secret="") as it:
        response = await it.ask()
        assert response.startswith("HTTP/1.1 502 ")
        assert "There is no secret for github from keychain." in response.splitlines()[0]
        assert not it.uses
    assert not server.authorizations


# --- what comes back -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/echo", "/echo/bytes", "/echo/head", "/echo/reason", "/echo/gzip"]
)
@pytest.mark.parametrize("sent", [f"token {MARK}", basic("me", MARK)])
async def test_server_that_repeats_the_request_does_not_reveal_the_secret(server, path, sent):
    async with scene(server) as it:
        response = await it.ask(path, sent)
        assert response.startswith("HTTP/1.1 502 " if path == "/echo/gzip" else "HTTP/1.1 200 ")
        assert SECRET in server.authorizations[0][2] or BASIC in server.authorizations[0][2]
        assert SECRET not in response
        assert BASIC not in response
        assert "set-cookie" not in response.lower()
        if path == "/echo":
            assert "*" * len(SECRET) in response


@pytest.mark.parametrize("kind", MALFORMED)
async def test_malformed_response_does_not_reveal_the_secret(server, kind):
    async with scene(server) as it:
        response = await it.ask(f"/echo/malformed/{kind}")
        assert SECRET in server.authorizations[0][2]
        assert SECRET not in response


async def test_redirect_leads_back_to_the_proxy_only_for_the_credentials_host(server):
    async with scene(server) as it:
        server.elsewhere = f"https://{server.host}/new"
        assert f"location: http://{server.host}/new\r\n" in (await it.ask("/redirect")).lower()
        server.elsewhere = "https://other.example/new"
        assert "location: https://other.example/new\r\n" in (await it.ask("/redirect")).lower()


@settings(max_examples=examples(200), deadline=None)
@given(
    st.data(),
    st.lists(st.sampled_from([SECRET, SECRET[:9], "x", BASIC, BASIC[:5], "*"]), max_size=8),
)
def test_mask_hides_the_secret_however_the_stream_is_divided(data, words):
    text = "".join(words).encode()
    mask = Mask(SECRET.encode(), BASIC.encode())
    shown = b""
    rest = text
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        shown += mask.feed(rest[:size])
        rest = rest[size:]
    shown += mask.end()
    assert len(shown) == len(text)
    assert SECRET.encode() not in shown
    assert BASIC.encode() not in shown


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.integers(1, 200), max_size=6), st.data())
def test_sizes_of_the_pieces_do_not_depend_on_what_they_contain(sizes, data):
    """Otherwise a file of guesses on the server, and the sizes in which it comes, tell how much of a guess is right."""
    texts = st.text(f"{SECRET}x", min_size=sum(sizes), max_size=sum(sizes))
    guesses = [data.draw(texts).encode(), b"x" * sum(sizes), (SECRET * 99)[: sum(sizes)].encode()]
    shown = list[list[int]]()
    for guess in guesses:
        mask, rest = Mask(SECRET.encode(), BASIC.encode()), guess
        shown.append([])
        for size in sizes:
            shown[-1].append(len(mask.feed(rest[:size])))
            rest = rest[size:]
    assert shown[0] == shown[1] == shown[2]


ODD = "p&a<s>s'w+o=r/d"


@pytest.mark.parametrize("secret", [ODD, f'{ODD}"\\x', SECRET, '\\\\""&&"\\'])
@pytest.mark.parametrize(
    "spell",
    [
        json.dumps,
        lambda text: json.dumps(text).replace("/", "\\/"),
        lambda text: re.sub("[&<>]", lambda it: f"\\u{ord(it[0]):04x}", json.dumps(text)),
        lambda text: re.sub(
            "[&<>+`'\"]", lambda it: f"\\u{ord(it[0]):04X}", text.replace("\\", "\\\\")
        ),
        html.escape,
        lambda text: html.escape(text, quote=False),
        lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        lambda text: quote(text, safe=""),
        lambda text: quote(text, safe="!'()*"),
        lambda text: quote(text, safe=";,/?:@&=+$!*'()#"),
    ],
)
def test_spellings_of_json_html_and_urls_are_masked(spell, secret):
    mask = Mask(secret.encode(), secret.encode())
    spelled = spell(secret)
    inner = spelled[1:-1] if spelled[0] == '"' == spelled[-1] else spelled
    shown = mask.masked(f"{spelled} {inner}".encode()).decode()
    assert set(shown) <= {*'" *'}


@pytest.mark.parametrize("before", ["", "a", "ab", "abc", "abcd"])
@pytest.mark.parametrize(
    "encode",
    [
        b64encode,
        urlsafe_b64encode,
        lambda text: text.hex().encode(),
        lambda text: text.hex().upper().encode(),
        lambda text: quote(text, safe="").replace("%2B", "%2b").replace("%2F", "%2f").encode(),
    ],
)
def test_usual_encodings_are_masked_wherever_the_secret_begins(encode, before):
    encoded = encode(f"{before}{SECRET}{before}".encode())
    masked = Mask(SECRET.encode(), BASIC.encode()).masked(encoded)
    assert len(masked) == len(encoded)
    assert masked.count(b"*") >= len(SECRET)
    with suppress(ValueError):
        assert SECRET[1:-1].encode() not in b64decode(masked.replace(b"*", b"A"))


# --- where it is read from -----------------------------------------------------------------------------------------------


def test_secret_is_read_from_the_environment_a_command_or_the_keychain(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, SECRET)
    assert read_secret("x", Credential(source="env", variable=VARIABLE), ()) == SECRET
    command = (sys.executable, "-c", f"print({SECRET!r})")
    assert read_secret("x", Credential(source="command", command=command), ()) == SECRET
    kept = tmp_path / "keychain.json"
    kept.write_text(f'{{"sanderling-credentials/x": "{SECRET}"}}')
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.keychain.FileKeychain")
    monkeypatch.setenv("KEYCHAIN_FILE", str(kept))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert read_secret("x", Credential(), ()) == SECRET
    with pytest.raises(
        SandboxError,
        match=r"no secret for the credential 'y'.*credentials add y",
    ):
        read_secret("y", Credential(), ())
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "tests.keychain.LockedKeychain")
    with pytest.raises(SandboxError, match="Unlock the keychain"):
        read_secret("x", Credential(), ())


def test_program_that_commands_can_write_is_not_asked_for_the_secret(tmp_path, monkeypatch):
    program = tmp_path / "project" / "gh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho {SECRET}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    credential = Credential(source="command", command=("gh", "auth", "token"))
    assert read_secret("x", credential, ()) == SECRET
    with pytest.raises(SandboxError):
        read_secret("x", credential, (str(program.parent),))
    elsewhere = tmp_path / "link"
    elsewhere.symlink_to(program)
    with pytest.raises(SandboxError, match="needs the program"):
        read_secret(
            "x", Credential(source="command", command=(str(elsewhere),)), (str(program.parent),)
        )


@pytest.mark.parametrize("source", ["command", "keychain"])
def test_search_paths_that_lead_into_the_project_are_not_used_to_read_it(
    tmp_path, monkeypatch, source
):
    project = tmp_path / "project"
    (project / "keyring").mkdir(parents=True)
    evil = f"import os; open({str(tmp_path / 'ran')!r}, 'w'); print('{SECRET}x')"
    (project / "keyring" / "__init__.py").write_text("")
    (project / "keyring" / "__main__.py").write_text(evil)
    interpreter = project / "helper-of-test"
    interpreter.write_text(f"#!/bin/sh\ntouch {tmp_path / 'ran'}; echo {SECRET}x\n")
    program = tmp_path / "program"
    program.write_text("#!/usr/bin/env helper-of-test\n")
    for each in (interpreter, program):
        each.chmod(0o755)
    monkeypatch.setenv("PATH", f"{project}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(project))
    credential = Credential(source=source, command=(str(program),))
    assert read_secret("x", credential, ()) == f"{SECRET}x"
    (tmp_path / "ran").unlink()
    with pytest.raises(SandboxError, match="no secret"):
        read_secret("x", credential, (str(project),))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("printed", ["", "two words", "ü", "short"])
def test_secret_that_cannot_be_one_is_refused_without_being_quoted(printed):
    command = (
        sys.executable,
        "-c",
        f"print({printed!r}); print({SECRET!r}, file=__import__('sys').stderr)",
    )
    with pytest.raises(SandboxError) as caught:
        read_secret("x", Credential(source="command", command=command), ())
    assert not printed or f" {printed} " not in str(caught.value).partition("Run")[0]


@pytest.mark.parametrize(
    "credentials, passed, message",
    [
        ({"a": Credential()}, (), "has no hosts"),
        (
            {"a": Credential(hosts=("a:99999",))},
            (),
            "'a:99999' of the credential 'a' is not a host",
        ),
        (
            {"a": Credential(hosts=("x.org",)), "b": Credential(hosts=("x.org",))},
            (),
            "same host x.org",
        ),
        (
            {"a": Credential(hosts=("x.org",)), "b": Credential(hosts=("X.org:443",))},
            (),
            "same host X.org:443",
        ),
        ({"a": Credential(hosts=("x.org",), source="env")}, (), "set `variable`"),
        (
            {"a": Credential(hosts=("x.org",), source="env", variable="NODE_OPTIONS")},
            (),
            "commands see NODE_OPTIONS",
        ),
        (
            {"a": Credential(hosts=("x.org",), source="env", variable="T")},
            ("T",),
            "remove T from sandbox.env",
        ),
    ],
)
def test_incomplete_credential_is_refused(credentials, passed, message):
    with pytest.raises(ConfigError, match=message):
        check_credentials(credentials, passed)


def test_git_gets_the_placeholder_after_its_other_settings():
    credential = Credential(hosts=("github.com",), placeholders=("GH_TOKEN",))
    made = placeholder_environment([("github", credential)], MARK, {"GIT_CONFIG_COUNT": "1"})
    assert made["GH_TOKEN"] == MARK
    assert made["GIT_CONFIG_COUNT"] == "5"
    assert made["GIT_CONFIG_VALUE_2"] == "git@github.com:"
    assert made["GIT_CONFIG_KEY_4"] == "http.http://github.com/.extraHeader"
    assert b64decode(made["GIT_CONFIG_VALUE_4"].split()[-1]) == f"x-access-token:{MARK}".encode()


def test_the_spelling_of_a_host_makes_no_difference_to_git(tmp_path):
    hosts = ("GitHub.com", "git.Example.com.:8443", "gitlab.com:443")
    credential = Credential(hosts=hosts, source="env", variable=VARIABLE)
    mine = Settings(state_dir=str(tmp_path), sandbox_credentials={"work": credential})
    policy = policy_for(mine, str(tmp_path))
    values = placeholder_environment(policy.credentials, MARK, {}).values()
    assert {"https://github.com/", "git@github.com:", "https://git.example.com:8443/"} <= {*values}
    assert {"git@git.example.com:", "http.http://gitlab.com/.extraHeader"} <= {*values}
    assert not [each for each in values if ":443" in each]


def test_urls_of_remotes_are_rewritten_as_they_are_written():
    hosts = ("github.com", "git.example:8443")
    remotes = (
        "https://me@github.com/me/it",
        "https://GitHub.com/me/it",
        "me@github.com:me/it",
        "https://me@github.com:8443/me/it",
        "https://me@git.example:8443/me/it",
        "ssh://me@git.example:22/me/it",
        "https://me@other.example/me/it",
        "https://me:secret@github.com/me/it",
    )
    made = placeholder_environment(
        [("x", Credential(hosts=hosts))], MARK, {}, tuple(filter(None, map(remote_of, remotes)))
    )
    keys, values = ([made[name] for name in made if part in name] for part in ("KEY", "VALUE"))
    rewritten = {value: key for key, value in zip(keys, values, strict=True)}
    assert rewritten["https://me@github.com/"] == "url.http://github.com/.insteadOf"
    assert rewritten["https://GitHub.com/"] == "url.http://github.com/.insteadOf"
    assert rewritten["me@github.com:"] == "url.http://github.com/.insteadOf"
    assert rewritten["https://me@git.example:8443/"] == "url.http://git.example:8443/.insteadOf"
    assert rewritten["ssh://me@git.example:22/"] == "url.http://git.example:8443/.insteadOf"
    others = ("https://me@github.com:8443/", "https://me@other.example/", "secret")
    assert not [each for each in values if any(other in each for other in others)]


# --- in the sandbox ------------------------------------------------------------------------------------------------------

SEARCH = """
import os, sys
from base64 import b64encode
secret = bytes.fromhex(sys.argv[1])
needles = (secret, b64encode(b"x-access-token:" + secret))
found = [name for name, value in os.environb.items() if any(each in value for each in needles)]
places = ["/proc", os.environ["HOME"], "/tmp", os.getcwd(), "/dev/shm", "/run", "/etc"]
for place in places:
    for top, folders, files in os.walk(place):
        folders[:] = [each for each in folders if each not in ("task", "map_files", "sys")]
        for name in files:
            path = os.path.join(top, name)
            if place == "/proc" and name not in ("environ", "cmdline", "mem", "maps", "kcore"):
                continue
            try:
                with open(path, "rb", buffering=0) as file:
                    data = file.read(1 << 22)
            except (OSError, ValueError):
                continue
            if any(each in data for each in needles) and path != f"/proc/{os.getpid()}/cmdline":
                found.append(path)
print(found)
"""


@asynccontextmanager
async def sandbox_with(place, server: SecretServer, monkeypatch, **changes) -> AsyncIterator:
    monkeypatch.setenv(VARIABLE, SECRET)
    credential = Credential(
        hosts=(server.host,),
        source="env",
        variable=VARIABLE,
        placeholders=("GH_TOKEN",),
        paths=("/*",),
    )
    hosts = (server.host, f"127.0.0.1:{server.server_port}")
    changes = {
        "network": "proxy",
        "hosts": hosts,
        "credentials": (("github", credential),),
    } | changes
    async with place.open("full", **changes) as sandbox:
        yield sandbox


async def test_git_pushes_and_fetches_over_https_with_a_secret_that_commands_do_not_have(
    place, server, monkeypatch
):
    async with sandbox_with(place, server, monkeypatch) as sandbox:
        url = f"https://{server.host}/git/it.git"
        script = (
            f"git push -q {url} main && git clone -q {url} copy && git -C copy log --format=%s &&"
            " echo $GH_TOKEN | cut -c1-11"
        )
        status, out, errors = await run(sandbox, script, env=DIRECT)
        assert (status, out) == (0, "first\nsanderling-\n"), errors
        uses = [event for event in place.events if isinstance(event, CredentialUse)]
        assert ("POST", "/git/it.git/git-receive-pack") in [(use.method, use.path) for use in uses]
        assert {(use.name, use.host) for use in uses} == {("github", "localhost")}
        assert {sent for _, _, sent in server.authorizations} == {basic("x-access-token", SECRET)}
        searched = await run(sandbox, PYTHON, "-c", SEARCH, SECRET.encode().hex(), env=DIRECT)
        assert searched[:2] == (0, "[]\n"), searched


@pytest.mark.parametrize(
    "start", ["https://me@{}/", "https://LOCALHOST:{port}/", "me@localhost:", "http://me@{}/"]
)
async def test_git_pushes_to_a_remote_with_a_user_or_in_another_spelling(
    place, server, monkeypatch, start
):
    url = f"{start.format(server.host, port=server.server_port)}git/it.git"
    await anyio.run_process(["git", "remote", "add", "origin", url], cwd=place.project)
    remotes = read_remotes(str(place.project), ())
    async with sandbox_with(place, server, monkeypatch, remotes=remotes) as sandbox:
        script = "git push -q origin main && git fetch -q && git rev-parse -q --verify origin/main"
        status, _, errors = await run(sandbox, script, env=DIRECT)
        assert status == 0, errors
    assert {sent for _, _, sent in server.authorizations} == {basic("x-access-token", SECRET)}


async def test_plan_mode_and_a_network_that_is_off_or_open_give_no_placeholder(
    place, server, monkeypatch
):
    for changes in ({"network": "off"}, {"network": "on"}, {"mode": "ro"}):
        async with sandbox_with(place, server, monkeypatch, **changes) as sandbox:
            out = (await run(sandbox, "env"))[1]
            assert "GH_TOKEN" not in out
            assert "insteadOf" not in out
            assert SECRET not in out


async def test_placeholder_of_one_session_is_worth_nothing_in_another(place, server, monkeypatch):
    async with sandbox_with(place, server, monkeypatch) as sandbox:
        url = f"http://{server.host}/echo"
        script = f"curl -s -m 20 -H 'Authorization: token {new_mark()}' {url}; echo; curl -s -m 20 -H \"Authorization: token $GH_TOKEN\" {url}"
        out = (await run(sandbox, script, env=DIRECT))[1]
        assert SECRET not in out
        assert "*" * len(SECRET) in out
    assert len(server.authorizations) == 1


def memory_with_new_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return memory_of_this_process("VmRSS")


def memory_of_this_process(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


@prove
async def test_large_push_streams_through_the_proxy_in_little_memory(place, server, monkeypatch):
    megabytes = int(os.environ.get("PUSH_MB", "64"))
    async with sandbox_with(place, server, monkeypatch) as sandbox:
        url = f"https://{server.host}/git/it.git"
        script = (
            f"head -c {megabytes << 20} /dev/urandom > large && $GIT add large && $GIT commit -qm large"
            f" && $GIT push -q {url} main && git ls-remote {url} main | cut -f1 && git rev-parse main"
        )
        before = memory_with_new_peak()
        env = DIRECT | {"GIT": "git -c core.compression=0 -c core.bigFileThreshold=1m"}
        status, out, errors = await run(sandbox, script, env=env)
        grown = memory_of_this_process("VmHWM") - before
        assert status == 0, errors
        there, here = out.split()
        assert there == here
        print(f"the proxy and the server took {grown / 1e6:.1f} MB")
        assert grown < 32 << 20


async def test_redirect_to_another_host_carries_only_the_placeholder(place, server, monkeypatch):
    other = HttpServer()
    async with server_for(other) as port, sandbox_with(place, server, monkeypatch) as sandbox:
        await sandbox.set_network("proxy", (*sandbox.policy.hosts, f"127.0.0.1:{port}"))
        server.elsewhere = f"http://127.0.0.1:{port}/stolen"
        script = (
            "curl -s -m 20 -L --location-trusted"
            f' -H "Authorization: token $GH_TOKEN" http://{server.host}/redirect; echo $GH_TOKEN'
        )
        out = (await run(sandbox, script, env=DIRECT))[1]
        assert out.startswith("hello")
        assert server.authorizations == [("GET", "/redirect", f"token {SECRET}")]
        assert f"token {out.split()[-1].removeprefix('hello')}".encode() in other.requests[0]
        assert SECRET.encode() not in b"".join(other.requests)


async def test_placeholder_is_worth_nothing_while_the_network_is_off(place, server, monkeypatch):
    async with sandbox_with(place, server, monkeypatch) as sandbox:
        script = (
            "echo ready; read -r _;"
            f' curl -s -m 20 -H "Authorization: token $GH_TOKEN" http://{server.host}/user; echo $?'
        )
        process = await sandbox.spawn(["sh", "-c", script], env=DIRECT, stdin=PIPE)
        assert process.stdout
        assert process.stdin
        assert await process.stdout.receive() == b"ready\n"
        await sandbox.set_network("off")
        await process.stdin.send(b"\n")
        left = b""
        async for data in process.stdout:
            left += data
        await process.wait()
        assert left.strip() != b"0"
        assert b"login" not in left
    assert not server.authorizations


class SecretTalk(BaseTalk):
    """A conversation whose model runs `command`."""

    def __init__(self, place, command: str, **changes) -> None:
        session = Session.open(place.base / "sessions", "s1", str(place.project))
        use = {"tool_use": {"name": "bash", "input": {"command": command}}}
        super().__init__(
            session,
            scripted([use], [{"text": "Done."}]),
            policy=place.policy(network="proxy", **changes),
        )
        self.conversation.controls.set_mode("auto")


async def test_each_use_is_a_line_of_the_transcript_and_the_secret_is_in_no_file(
    place, server, monkeypatch
):
    monkeypatch.setenv(VARIABLE, SECRET)
    credential = Credential(
        hosts=(server.host,),
        source="env",
        variable=VARIABLE,
        placeholders=("GH_TOKEN",),
        paths=("/*",),
    )
    url = f"http://{server.host}/echo?x=1"
    curl = f'curl -s -m 20 --noproxy "" -H "Authorization: token $GH_TOKEN" {url}; env'
    talk = SecretTalk(
        place,
        curl,
        hosts=(server.host, f"127.0.0.1:{server.server_port}"),
        credentials=(("github", credential),),
    )
    async with talk.begun(Prompt("go", "go"), TurnEnded):
        pass  # the sandbox ends, too
    notices = [event.text for event in talk.of(Notice)]
    wanted = f"Used the credential github: GET localhost/echo, by `{curl[:100]}`"
    assert notices == [wanted]
    assert "*" * len(SECRET) in str(talk.results)
    for needle in (SECRET, basic("x-access-token", SECRET).split()[1]):
        assert needle not in str(talk.events)
        for path in place.base.rglob("*"):
            assert not path.is_file() or needle.encode() not in path.read_bytes(), path


@pytest.mark.skipif(not shutil.which("gh"), reason="gh is not installed")
async def test_gh_and_git_work_with_a_credential_for_github_as_it_is_added(
    place, server, monkeypatch
):
    look_up = socket.getaddrinfo

    def look_up_here(host: str | bytes, port: int, *arguments, **options):
        if port == 443:
            host, port = "127.0.0.1", server.server_port
        return look_up(host, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    table = PRESETS["github"] | {"source": "env", "variable": VARIABLE}
    credentials = (("github", msgspec.convert(table, Credential)),)
    hosts = (*table["hosts"], f"127.0.0.1:{server.server_port}")
    shutil.copy(shutil.which("gh"), place.project / "gh")
    changes = {"hosts": hosts, "credentials": credentials}
    async with sandbox_with(place, server, monkeypatch, **changes) as sandbox:

        async def output_of(command: str, status: int = 0) -> str:
            ended, out, errors = await run(sandbox, command, env={"GH_REPO": "me/it"})
            assert ended == status, (command, errors)
            return out + errors

        assert await output_of("./gh api user --jq .login") == "me\n"
        assert "A change" in await output_of("./gh pr list")
        assert "A defect" in await output_of("./gh issue list")
        status = await output_of("./gh auth status")
        assert re.search("Logged in to github.com (as|account) me", status)
        assert not await output_of("git push -q https://github.com/it.git main")
        refused = await output_of("./gh repo edit me/it --description x", status=1)
        assert "'github' is not for PATCH, only for GET, HEAD, POST" in refused
        uses = [event for event in place.events if isinstance(event, CredentialUse)]
        assert {(use.method, use.host + use.path) for use in uses} >= {
            ("GET", "api.github.com/user"),
            ("GET", "api.github.com/"),
            ("POST", "api.github.com/graphql"),
            ("GET", "github.com/it.git/info/refs"),
            ("POST", "github.com/it.git/git-receive-pack"),
        }
    sent = {sent for _, _, sent in server.authorizations}
    assert sent == {f"token {SECRET}", basic("x-access-token", SECRET)}
