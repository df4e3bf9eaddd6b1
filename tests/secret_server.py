"""
An HTTPS server that wants a secret: git repositories by the real `git http-backend`, a little of GitHub's API, and paths that try to reveal it.

It runs in threads of the test process and keeps the `Authorization` header of each request.
"""

import gzip
import json
import os
import socket
import ssl
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

CHUNK_BYTES = 1 << 16
JSON = {"Content-Type": "application/json"}
MALFORMED = {
    "hint": "HTTP/1.1 103 Early Hints\r\nLink: {sent}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "coding": "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\n{sent}\r\n0\r\n\r\n",
    "folded": "HTTP/1.1 200 OK\r\nX: a\r\n {sent}\r\nContent-Length: 0\r\n\r\n",
    "header": "HTTP/1.1 200 OK\r\n{sent}\r\n\r\n",
    "name": "HTTP/1.1 200 OK\r\n{sent}: x\r\n\r\n",
    "none": "{sent}\r\n\r\n",
    "upgrade": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n{sent}",
    "size": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz;{sent}\r\n",
    "extension": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{sent}\r\na\r\n0\r\n\r\n",
    "more": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na{sent}",
}
"""Odd responses that have the secret where a proxy may not look."""


NAMES = ("localhost", "github.com", "api.github.com")
GRAPHQL = {
    "viewer": {"login": "me"},
    "repository": {
        "hasIssuesEnabled": True,
        "pullRequests": {
            "totalCount": 1,
            "nodes": [{"number": 7, "title": "A change", "state": "OPEN", "headRefName": "topic"}],
        },
        "issues": {
            "totalCount": 1,
            "nodes": [{"number": 8, "title": "A defect", "state": "OPEN"}],
        },
    },
}
"""The fields of gh's queries. Those below `repository` may be more than it asked for."""


class SecretServer(ThreadingHTTPServer):
    """`authorizations` are what its requests had, by method and path; `elsewhere` is where `/redirect` leads."""

    daemon_threads = True

    def __init__(self, repositories: Path, secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.accepted = {f"token {secret}", f"Bearer {secret}"}
        self.accepted |= {
            f"Basic {b64encode(f'{user}:{secret}'.encode()).decode()}"
            for user in ("x-access-token", "me")
        }
        self.authorizations: list[tuple[str, str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.trailers: list[bytes] = []
        self.elsewhere = ""

    @property
    def host(self) -> str:
        return f"localhost:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is no failure of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SecretServer

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        sent = self.headers.get("Authorization", "")
        path, _, query = self.path.partition("?")
        self.server.authorizations.append((self.command, path, sent))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        if path.startswith("/echo"):
            self._echo(path, sent)
        elif path == "/redirect":
            self._answer(302, b"", {"Location": self.server.elsewhere})
        elif sent not in self.server.accepted:
            self._answer(401, b"no", {"WWW-Authenticate": 'Basic realm="test"'})
        elif ".git/" in path:
            self._git(path.removeprefix("/git"), query)
        elif path == "/graphql":
            query = b"".join(self._body()).decode()
            data = {field: value for field, value in GRAPHQL.items() if field in query}
            self._answer(200, json.dumps({"data": data}).encode(), JSON)
        else:
            self._answer(200, b'{"login": "me"}', JSON)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = _serve  # noqa: N815  the library looks for these names

    def _echo(self, path: str, sent: str) -> None:
        data = f'{{"Authorization": "{sent}"}} {sent.partition(" ")[2]}'.encode()
        if path == "/echo/gzip":
            self._answer(200, gzip.compress(data), {"Content-Encoding": "gzip"})
        elif path == "/echo/body":
            self._answer(200, b"".join(self._body()), {})
        elif path == "/echo/head":
            self._answer(200, b"", {"X-Echo": sent, "Set-Cookie": f"a={sent}"})
        elif path == "/echo/bytes":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for byte in data:
                self.wfile.write(b"1\r\n%c\r\n" % byte)
                self.wfile.flush()
            self.wfile.write(b"0\r\nX-Trailer: " + sent.encode() + b"\r\n\r\n")
        elif path.startswith("/echo/malformed/"):
            self.wfile.write(MALFORMED[path.rpartition("/")[2]].format(sent=sent).encode())
            self.close_connection = True
        elif path == "/echo/reason":
            self.wfile.write(f"HTTP/1.1 200 {sent}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            self._answer(200, data, {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _git(self, path: str, query: str) -> None:
        if self.headers.get("Expect"):
            self.send_response_only(100)
            self.end_headers()
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.repositories),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REMOTE_USER": "me",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        if length := self.headers.get("Content-Length"):
            environment["CONTENT_LENGTH"] = length
        with subprocess.Popen(
            ["git", "http-backend"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as backend:
            assert backend.stdin
            assert backend.stdout
            for piece in self._body():
                backend.stdin.write(piece)
            backend.stdin.close()
            head, _, body = backend.stdout.read().partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self._answer(int(fields.pop("Status", "200").split()[0]), body, fields)

    def _body(self) -> Iterator[bytes]:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            while line := self.rfile.readline().strip():
                self.server.trailers.append(line)
            return
        left = int(self.headers.get("Content-Length", "0"))
        while left:
            piece = self.rfile.read(min(left, CHUNK_BYTES))
            left -= len(piece)
            yield piece


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """Return the key and the certificate of `localhost` and of GitHub's hosts, which signs itself."""
    key, certificate = directory / "key.pem", directory / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:{',DNS:'.join(NAMES)}"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


@contextmanager
def secret_server(
    repositories: Path, secret: str, key: Path, certificate: Path
) -> Iterator[SecretServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with SecretServer(repositories, secret) as server:
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]
