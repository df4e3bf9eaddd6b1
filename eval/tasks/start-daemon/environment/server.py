"""Answers each line in upper case. It writes a heartbeat while it runs."""

import os
import socket
import threading
import time


def beat():
    while True:
        with open("heartbeat", "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.1)


def serve(link):
    buffer = b""
    while part := link.recv(4096):
        buffer += part
        while b"\r\n" in buffer:
            line, buffer = buffer.split(b"\r\n", 1)
            link.sendall(line.upper() + b"\r\n")
    link.close()


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=beat, daemon=True).start()
    while True:
        link, _ = listener.accept()
        threading.Thread(target=serve, args=(link,), daemon=True).start()


if __name__ == "__main__":
    main()
