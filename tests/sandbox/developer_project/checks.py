"""What Python projects' tests do. The name keeps the sandbox's own test run from collecting this file."""

import asyncio
import contextlib
import fcntl
import mmap
import multiprocessing
import os
import pty
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import shared_memory
from pathlib import Path

import pytest


class Pong(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"pong")

    def log_message(self, *_):
        pass


def square(number):
    return number * number


def count_up(counter):
    for _ in range(1000):
        with counter.get_lock():
            counter.value += 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_the_loopback_answers(host):
    with ThreadingHTTPServer((host, 0), Pong) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{host}:{server.server_port}/", timeout=10) as answer:
            assert answer.read() == b"pong"
        server.shutdown()


def test_ipv6_loopback_answers():
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        client = socket.create_connection(server.getsockname()[:2], timeout=10)
        connection = server.accept()[0]
        with client, connection:
            connection.sendall(b"pong")
            assert client.recv(9) == b"pong"


def test_udp_works_on_the_loopback():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("127.0.0.1", 0))
        client.sendto(b"ping", server.getsockname())
        server.settimeout(10)
        assert server.recv(9) == b"ping"


def test_a_unix_server_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is 107 bytes at most

    async def pong(_, writer):
        writer.write(b"pong")
        writer.close()

    async def ask():
        async with await asyncio.start_unix_server(pong, "socket"):
            reader, writer = await asyncio.open_unix_connection("socket")
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(ask()) == b"pong"


def test_an_abstract_socket_answers():
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("")  # the kernel picks the name
        server.listen()
        client.connect(server.getsockname())
        connection = server.accept()[0]
        with connection:
            connection.sendall(b"pong")
            assert client.recv(9) == b"pong"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_pool_maps(method):
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(square, range(5)) == [0, 1, 4, 9, 16]


def test_an_executor_maps():
    with ProcessPoolExecutor(2) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]


def test_a_manager_shares():
    with multiprocessing.Manager() as manager:
        shared = manager.dict(a=1)
        shared["b"] = 2
        assert dict(shared) == {"a": 1, "b": 2}


def test_a_lock_locks():
    counter = multiprocessing.Value("i", 0)
    processes = [multiprocessing.Process(target=count_up, args=(counter,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert counter.value == 2000


def test_shared_memory_is_shared():
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    other = shared_memory.SharedMemory(memory.name)
    memory.buf[0] = 42
    assert other.buf[0] == 42
    other.close()
    memory.close()
    memory.unlink()


def test_a_pty_opens():
    pid, master = pty.fork()
    if pid == 0:
        os.execvp("tty", ["tty"])
    os.waitpid(pid, 0)
    with contextlib.closing(os.fdopen(master, "rb", 0)) as terminal:
        assert terminal.read(8) == b"/dev/pts"


def test_two_writers_share_a_database_with_a_write_ahead_log():
    for folder in (Path.cwd(), Path(tempfile.mkdtemp())):
        path = folder / "wal.db"
        with (
            contextlib.closing(sqlite3.connect(path)) as one,
            contextlib.closing(sqlite3.connect(path)) as two,
        ):
            assert one.execute("pragma journal_mode=wal").fetchone() == ("wal",)
            one.execute("create table t (n)")
            for n, connection in enumerate((one, two, one, two)):
                connection.execute("insert into t values (?)", (n,))
                connection.commit()
            assert two.execute("select sum(n) from t").fetchone() == (6,)
        path.unlink()


def test_many_async_children_work():
    async def echo(number):
        process = await asyncio.create_subprocess_exec(
            "echo", str(number), stdout=asyncio.subprocess.PIPE
        )
        return int((await process.communicate())[0])

    async def all_of_them():
        return await asyncio.gather(*map(echo, range(20)))

    assert asyncio.run(all_of_them()) == list(range(20))


def test_a_child_is_signalled_and_reaped():
    process = subprocess.Popen(["sleep", "60"])
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(10) == -signal.SIGTERM


def test_a_process_group_is_signalled():
    argv = ["sh", "-c", "sleep 60 & wait"]
    process = subprocess.Popen(argv, start_new_session=True)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL


def test_files_are_locked_mapped_linked_and_replaced(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 4096)
    with path.open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with mmap.mmap(file.fileno(), 0) as memory:
            memory[0:1] = b"y"
    os.link(path, tmp_path / "hard")
    (tmp_path / "soft").symlink_to("hard")
    (tmp_path / "folder").mkdir()
    (tmp_path / "soft").replace(tmp_path / "folder" / "moved")
    path.replace(tmp_path / "folder" / "file")
    path = tmp_path / "folder" / "file"
    path.chmod(0o600)
    os.utime(path, (1, 1))
    assert path.read_bytes()[:2] == b"yx"
    assert (path.stat().st_nlink, path.stat().st_mode & 0o777, path.stat().st_mtime) == (
        2,
        0o600,
        1,
    )


def test_a_fifo_and_a_memory_file_work(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    threading.Thread(target=fifo.write_text, args=("through",)).start()
    assert fifo.read_text() == "through"
    with os.fdopen(os.memfd_create("m"), "r+b") as file:
        file.write(b"m")


def test_this_interpreter_starts_itself():
    argv = [sys.executable, "-c", "import sys; print(sys.argv[1])", "again"]
    assert subprocess.check_output(argv, text=True) == "again\n"
