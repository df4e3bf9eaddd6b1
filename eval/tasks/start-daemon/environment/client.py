import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5) as link:
    link.sendall(sys.argv[2].encode() + b"\n")
    print(link.recv(4096).decode().strip())
