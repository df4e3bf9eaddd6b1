import pathlib, socket, subprocess, sys, time
beat = pathlib.Path("heartbeat")
before = beat.read_bytes() if beat.exists() else b""
time.sleep(0.5)
assert (beat.read_bytes() if beat.exists() else b"") == before, "the server is still running"
server = subprocess.Popen([sys.executable, "-B", "server.py"], stdout=subprocess.PIPE, text=True)
try:
    port = int(server.stdout.readline())
    for request, answer in ((b"hello\n", b"HELLO\r\n"), (b"hello\r\n", b"HELLO\r\n"), (b"a\rb\n", b"A\rB\r\n"), (b"one\ntwo\r\n", b"ONE\r\nTWO\r\n"), (b"\n", b"\r\n")):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
            for byte in request:
                link.send(bytes([byte]))
            link.shutdown(socket.SHUT_WR)
            got = b""
            while part := link.recv(100):
                got += part
            assert got == answer, (request, got)
finally:
    server.kill()
names = subprocess.run(["git", "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout.split()
assert names == ["server.py"], names
print("passed")
