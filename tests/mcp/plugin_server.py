"""A server in the package of a plugin, without any library: its tool `look` says what it was given, and what it can do."""

import json
import os
import socket
import sys
from pathlib import Path

TOOLS = [{"name": "look", "description": "Look around.", "inputSchema": {"type": "object"}}]


def tried(act, *arguments: object) -> str:
    try:
        act(*arguments)
    except OSError as error:
        return type(error).__name__
    return "done"


def write(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("x")


def connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=1).close()


def looked(arguments: dict) -> dict:
    return {
        "argv": sys.argv,
        "cwd": str(Path.cwd()),
        "environment": dict(os.environ),
        "home": tried(os.listdir, os.environ["HOME"]),
        "written": {path: tried(write, path) for path in arguments.get("write", ())},
        "read": {path: tried(os.listdir, path) for path in arguments.get("read", ())},
        "reached": tried(connect, "127.0.0.1", arguments.get("port", 1)),
    }


def answer(method: str, parameters: dict) -> dict | None:
    if method == "initialize":
        info = {"name": "look", "version": "1"}
        version = parameters["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = json.dumps(looked(parameters.get("arguments", {})))
        return {"content": [{"type": "text", "text": text}]}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params", {}))
        fault = {"error": {"code": -32601, "message": "no such method"}}
        body = fault if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}), flush=True)
