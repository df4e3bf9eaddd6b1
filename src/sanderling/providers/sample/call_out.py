"""Calls a host on the internet, to see whether that can be reached from here."""

import socket
import sys

HOST = "example.org"

try:
    socket.create_connection((HOST, 443), timeout=5).close()
except OSError as error:
    sys.exit(f"{HOST} cannot be reached: {error}")
print(f"{HOST} answers.")
