"""
`code_server.py [STYLE]`: a language server for names like `a.b` in text files, which a line `def a.b` defines.

Columns are counted as UTF-16. Styles: `plain`; `utf8` counts bytes; `mute` answers nothing but that it is there; `slow` answers after
0.3 s; `held` answers once the root has a file `released`, and writes the methods into a file `asked` before; `dying` ends when it is asked; `indexing` is at 42 % and knows nothing; `many` knows 5,000 references; `greedy` would rename in a
file outside, too; `command` offers an action that is only a command; `linter` has actions and no more; `stale` has read what is not
open before it was changed; `invalid` defines names between two lines.
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

NAME = re.compile(r"[^\W\d][\w-]*(?:\.[^\W\d][\w-]*)*")
MANY = 5000
PARENT = os.getppid()


def read() -> Any:
    length = 0
    while line := sys.stdin.buffer.readline().strip():
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return json.loads(sys.stdin.buffer.read(length)) if length else None


def send(**message: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


class Server:
    def __init__(self, style: str) -> None:
        self.style = style
        self.root = Path()
        self.opened: dict[str, str] = {}

    def units(self, text: str) -> int:
        return len(text.encode()) if self.style == "utf8" else len(text.encode("utf-16-le")) // 2

    def texts(self) -> dict[str, str]:
        paths = sorted(self.root.glob("**/*.txt"))
        on_disk = {path.as_uri(): path.read_text() for path in paths}
        if self.style == "stale":
            on_disk = {uri: f"\n{text}" for uri, text in on_disk.items()}
        return on_disk | self.opened

    def names(self) -> Any:
        """Each name: where it is, its parts up to there, and whether the line defines it."""
        for uri, text in self.texts().items():
            for row, line in enumerate(text.split("\n")):
                for found in NAME.finditer(line):
                    at, parts = found.start(), found[0].split(".")
                    for index, part in enumerate(parts):
                        whole = ".".join(parts[: index + 1])
                        is_def = line[: found.start()] == "def " and whole == found[0]
                        first, last = self.units(line[:at]), self.units(line[: at + len(part)])
                        span = {
                            "start": {"line": row, "character": first},
                            "end": {"line": row, "character": last},
                        }
                        yield {"uri": uri, "range": span}, whole, is_def
                        at += len(part) + 1

    def at(self, params: Any) -> str:
        uri, position = params["textDocument"]["uri"], params["position"]
        assert uri in self.opened, "not opened"
        for place, whole, _ in self.names():
            start, end = place["range"]["start"], place["range"]["end"]
            is_there = start["character"] <= position["character"] < end["character"]
            if place["uri"] == uri and start["line"] == position["line"] and is_there:
                return whole
        return ""

    def places(self, whole: str, *, only_definition: bool) -> list[Any]:
        return [
            place
            for place, name, is_def in self.names()
            if name == whole and (is_def or not only_definition)
        ]

    def symbols(self, uri: str | None, query: str = "") -> list[Any]:
        return [
            {
                "name": name.rpartition(".")[2],
                "containerName": name.rpartition(".")[0],
                "kind": 12,
                "location": place,
            }
            for place, name, is_def in self.names()
            if is_def and uri in (None, place["uri"]) and query in name
        ]

    def many(self) -> list[Any]:
        uris = [path.as_uri() for path in sorted(self.root.glob("many/*.txt"))]
        span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
        each = MANY // len(uris)
        return [
            {"uri": uri, "range": json.loads(json.dumps(span).replace('"line": 0', f'"line": {n}'))}
            for uri in uris
            for n in range(each)
        ]

    def rename(self, params: Any) -> Any:
        whole, new = self.at(params), params["newName"]
        changes: dict[str, list[Any]] = {}
        for place in self.places(whole, only_definition=False):
            edit = {"range": place["range"], "newText": new}
            changes.setdefault(place["uri"], []).append(edit)
        if self.style == "greedy":
            span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
            outside = (self.root.parent / "outside.txt").as_uri()
            changes[outside] = [{"range": span, "newText": new}]
        return {"changes": changes} if changes else None

    def actions(self, params: Any) -> list[Any]:
        if self.style == "command":
            return [{"title": "Run it", "command": {"title": "Run it", "command": "run.it"}}]
        uri, start = params["textDocument"]["uri"], params["range"]["start"]
        edit = {"range": {"start": start, "end": start}, "newText": "fixed "}
        return [{"title": "Fix it", "kind": "quickfix", "edit": {"changes": {uri: [edit]}}}]

    def definition(self, params: Any) -> list[Any]:
        if self.style == "invalid":
            half = {"line": 0.5, "character": 0}
            return [{"uri": params["textDocument"]["uri"], "range": {"start": half, "end": half}}]
        return self.places(self.at(params), only_definition=True)

    def references(self, params: Any) -> list[Any]:
        if self.style == "many":
            return self.many()
        return self.places(self.at(params), only_definition=False)

    def answer(self, method: str, params: Any) -> Any:
        answers = {
            "textDocument/definition": self.definition,
            "textDocument/typeDefinition": self.definition,
            "textDocument/references": self.references,
            "textDocument/hover": lambda params: {
                "contents": f"```text\nhover of {self.at(params)}\n```"
            },
            "textDocument/documentSymbol": lambda params: self.symbols(
                params["textDocument"]["uri"]
            ),
            "workspace/symbol": lambda params: self.symbols(None, params["query"]),
            "textDocument/rename": self.rename,
            "textDocument/codeAction": self.actions,
        }
        return answers[method](params) if method in answers else None

    def capabilities(self) -> dict[str, Any]:
        if self.style == "linter":
            return {"textDocumentSync": 1, "codeActionProvider": True}
        names = "definition references typeDefinition hover documentSymbol workspaceSymbol rename codeAction"
        encoding = {"positionEncoding": "utf-8"} if self.style == "utf8" else {}
        return {
            "textDocumentSync": 1,
            **{f"{name}Provider": True for name in names.split()},
            **encoding,
        }

    def begin_indexing(self) -> None:
        send(id="p", method="window/workDoneProgress/create", params={"token": 1})
        begin = {"kind": "begin", "title": "Indexing", "percentage": 0}
        send(method="$/progress", params={"token": 1, "value": begin})
        self.report()

    def report(self) -> None:
        value = {"kind": "report", "percentage": 42}
        send(method="$/progress", params={"token": 1, "value": value})

    def take(self, message: Any) -> None:
        params, method = message.get("params") or {}, message.get("method")
        match method:
            case "initialize":
                self.root = Path(unquote(urlparse(params["rootUri"]).path))
                send(id=message["id"], result={"capabilities": self.capabilities()})
            case "initialized" if self.style == "indexing":
                self.begin_indexing()
            case "textDocument/didOpen":
                document = params["textDocument"]
                self.opened[document["uri"]] = document["text"]
            case "textDocument/didChange":
                self.opened[params["textDocument"]["uri"]] = params["contentChanges"][0]["text"]
            case "textDocument/didClose":
                self.opened.pop(params["textDocument"]["uri"], None)
            case "shutdown":
                send(id=message["id"], result=None)
            case _ if method and "id" in message:
                self.asked(message["id"], method, params)
            case _:
                pass

    def asked(self, id_: Any, method: str, params: Any) -> None:
        if self.style == "dying":
            sys.exit()
        if self.style == "mute":
            return
        if self.style == "slow":
            time.sleep(0.3)
        if self.style == "held":
            with (self.root / "asked").open("a") as file:
                file.write(f"{method}\n")
            while not (self.root / "released").exists() and os.getppid() == PARENT:
                time.sleep(0.01)
        if self.style == "indexing":
            self.report()
            send(id=id_, result=None)
            return
        send(id=id_, result=self.answer(method, params))

    def serve(self) -> None:
        while (message := read()) is not None and message.get("method") != "exit":
            self.take(message)


if __name__ == "__main__":
    Server(sys.argv[1] if len(sys.argv) > 1 else "plain").serve()
