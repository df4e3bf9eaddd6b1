"""
A tool server that does what none should. `python hostile.py [HOW ...]`; no library but Python's own.

HOW it starts: `mute` never answers, `exit` ends at once, `slow:S` sleeps first, `banner` prints what is no message, `once:FILE` ends
when FILE is there already. `old` does not know `server/discover` and says nothing to it, `shocked` says nothing any more after it,
`ends:STATUS` ends at it. `list:LINE` answers `tools/list` with LINE, `unlisted` never. `many:N` has N tools. Its tools do the rest.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

HOW = sys.argv[1:]
TEN_MB = 10 << 20
TOOLS = {
    "echo": "Say it again.",
    "die": "Kill the server.",
    "quit": "End with status 3.",
    "hang": "Never answer.",
    "count": "Tell how far it is, then answer.",
    "flood": "Write to stdout, stderr or as notifications without an end: `where`.",
    "garbage": "Write a line that is no message, then answer.",
    "big": "Answer with 10 MB.",
    "parts": "Answer with a million parts.",
    "endless": "Write a line without an end.",
    "read": "Read a file.",
    "write": "Write a file.",
    "connect": "Connect to a port.",
    "env": "Tell a variable.",
    "fail": "Answer with an error of the tool's.",
    "refuse": "Answer with an error of the protocol's.",
    "log": "Log a line, then answer.",
    "more": "Have one tool more, and say so.",
    "ask": "Ask the client for something in the middle of a call.",
    "structured": "Answer with structured content.",
    "picture": "Answer with an image, a link and a resource.",
    "odd": "Answer what is no result.",
    "raw": "Answer with the bytes of `words`, in which ID is the request's.",
    "regex": "Answer with what its own schema takes for ever to refuse.",
}
NAMES = list(TOOLS)
CANCELLED: set[object] = set()
HEARS = threading.Event()
HEARS.set()
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_writing = threading.Lock()


def send(**message: object) -> None:
    with _writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def raw(line: str, number: object) -> None:
    """Write a line, in which the characters up to U+00FF are bytes."""
    with _writing:
        sys.stdout.buffer.write(line.replace("ID", json.dumps(number)).encode("latin-1") + b"\n")
        sys.stdout.flush()


def text(words: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": words}], **more}


def tool(name: str) -> dict[str, object]:
    described: dict[str, object] = {
        "name": name,
        "description": TOOLS.get(name, "Came later."),
        "inputSchema": {"type": "object", "properties": {"words": {"type": "string"}}},
    }
    if name == "read":
        described["annotations"] = {"readOnlyHint": True, "destructiveHint": False}
    if name == "regex":
        schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
        described["outputSchema"] = schema
    return described


def flood(where: str) -> None:
    line = "x" * 1000 + "\n"
    while True:
        if where == "stderr":
            sys.stderr.write(line * 100)
        elif where == "progress":
            send(method="notifications/progress", params={"progressToken": 0, "progress": 1})
        elif where in ("requests", "deaf"):
            send(id=f"r{time.monotonic()}", method="ping")
        elif where == "answers":
            send(id=f"a{time.monotonic()}", result={"content": [1] * 1000})
        else:
            sys.stdout.write(line * 100)


def call(  # noqa: PLR0911
    number: object, name: str, given: dict[str, str], token: object
) -> dict[str, object] | None:
    match name:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "quit":
            sys.stderr.write("I have had enough\n")
            sys.stderr.flush()
            os._exit(3)
        case "hang":
            while number not in CANCELLED:
                time.sleep(0.01)
            Path(given["words"]).write_text("cancelled")
        case "count":
            for step in (1, 2, 3):
                progress = {
                    "progressToken": token,
                    "progress": step,
                    "total": 3,
                    "message": f"step {step}",
                }
                send(method="notifications/progress", params=progress)
                time.sleep(0.15)
        case "flood":
            if given["words"] == "deaf":
                HEARS.clear()
            flood(given["words"])
        case "parts":
            return {"content": [1] * 1_000_000}
        case "garbage":
            with _writing:
                sys.stdout.write(
                    'this is no message\n{"jsonrpc": "2.0", "id": [1], "result": 5}\n\n[1, 2, 3]\n'
                )
                sys.stdout.flush()
        case "big":
            return text("".join(f"line {n:07}\n" for n in range(TEN_MB // 13)))
        case "endless":
            while True:
                sys.stdout.write("x" * 65536)
        case "read":
            return text(Path(given["words"]).read_text())
        case "write":
            Path(given["words"]).write_text("written")
        case "connect":
            host, _, port = given["words"].rpartition(":")
            with socket.create_connection((host, int(port)), 2) as connection:
                return text(connection.recv(100).decode())
        case "env":
            return text(os.environ.get(given["words"], "(not set)"))
        case "fail":
            return text("it did not work", isError=True)
        case "refuse":
            raise ValueError("this cannot be asked for")
        case "log":
            send(method="notifications/message", params={"level": "info", "data": given["words"]})
            sys.stderr.write(f"logged {given['words']}\n")
            sys.stderr.flush()
        case "more":
            NAMES.append(f"later{len(NAMES) - len(TOOLS) + 1}")
            send(method="notifications/tools/list_changed")
        case "ask":
            send(id="q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 5})
        case "structured":
            return text("see the data", structuredContent={"rows": [1, 2]})
        case "picture":
            content = [
                {"type": "image", "data": DOT, "mimeType": "image/png"},
                {"type": "image", "data": DOT, "mimeType": "image/tiff"},
                {"type": "resource_link", "uri": "file:///a", "name": "a"},
                {"type": "resource", "resource": {"uri": "note:///1", "text": "a note"}},
            ]
            return {"content": content}
        case "odd":
            return {"content": 7}
        case "values":
            return text(json.dumps(given))
        case "raw":
            raw(given["words"], number)
            return None
        case "regex":
            return text("", structuredContent={"a": "a" * 40 + "!"})
        case _:
            pass
    return text(given.get("words", "done"))


def answer(number: object, method: str, params: dict[str, object]) -> None:
    try:
        match method:
            case "initialize":
                result: dict[str, object] = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                    "serverInfo": {"name": "hostile", "version": "1"},
                }
            case "tools/list":
                if "unlisted" in HOW:
                    return
                if lines := [how[5:] for how in HOW if how.startswith("list:")]:
                    raw(lines[0], number)
                    return
                result = {"tools": [tool(name) for name in NAMES]}
            case "tools/call":
                token = params.get("_meta", {}).get("progressToken")
                given = params.get("arguments") or {}
                if (called := call(number, params["name"], given, token)) is None:
                    return
                result = called
            case "ping":
                result = {}
            case "server/discover" if "old" in HOW:
                return
            case "server/discover" if "shocked" in HOW:
                HEARS.clear()
                return
            case "server/discover" if endings := [
                how[5:] for how in HOW if how.startswith("ends:")
            ]:
                os._exit(int(endings[0]))
            case _:
                send(id=number, error={"code": -32601, "message": f"no method {method}"})
                return
        send(id=number, result=result)
    except Exception as error:  # noqa: BLE001
        send(id=number, error={"code": -32602, "message": f"{type(error).__name__}: {error}"})


def main() -> None:
    for how in HOW:
        match how.partition(":"):
            case ("mute", _, _):
                time.sleep(3600)
            case ("exit", _, _):
                sys.stderr.write("nothing to do here\n")
                sys.exit(7)
            case ("slow", _, seconds):
                time.sleep(float(seconds))
            case ("banner", _, _):
                print("Welcome to the server!\n\n{not json}", flush=True)
            case ("many", _, number):
                NAMES.extend(f"tool{n}" for n in range(int(number)))
            case ("once", _, path):
                if Path(path).exists():
                    sys.exit(9)
                Path(path).touch()
    for line in sys.stdin:
        HEARS.wait()
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "notifications/cancelled":
            CANCELLED.add(params.get("requestId"))
        elif method and "id" in message:
            threading.Thread(
                target=answer, args=(message["id"], method, params), daemon=True
            ).start()


if __name__ == "__main__":
    main()
