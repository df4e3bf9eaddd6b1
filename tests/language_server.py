"""
`language_server.py STYLE`: a language server that says `NAME is bad` of each line that holds `bad NAME`.

A line `breaks FILE NAME` is an error in that other file, of the same directory. Styles: `push` publishes after each change; `pull`
is asked; `mute` says nothing; `late` says it 1.6 s afterwards; `dying` ends at the first change; `indexing` first says that it
indexes, and what is old when that has ended, at the first change; `once` publishes only when the file is opened.
"""

import re
import sys
import time
from typing import Any

from code_server import read, send  # which stands beside it: it is run as a script

LATE_S = 1.6


def error(row: int, message: str, severity: int = 1) -> dict[str, Any]:
    places = {"start": {"line": row, "character": 0}, "end": {"line": row, "character": 1}}
    return {
        "range": places,
        "severity": severity,
        "message": message,
        "source": "tests",
        "code": "B1",
    }


class Server:
    def __init__(self, style: str) -> None:
        self.style = style
        self.elsewhere: dict[str, set[str]] = {}

    def check(self, uri: str, text: str) -> list[dict[str, Any]]:
        found, elsewhere = [], dict[str, list[dict[str, Any]]]()
        for row, line in enumerate(text.split("\n")):
            if words := re.search(r"\bbad (.*)", line):
                found.append(error(row, f"{words[1]} is bad"))
            if words := re.search(r"\bodd (.*)", line):
                found.append(error(row, f"{words[1]} is odd", severity=2))
            if words := re.search(r"\bbreaks (\S+) (.*)", line):
                other = uri.rpartition("/")[0] + "/" + words[1]
                elsewhere.setdefault(other, []).append(error(0, f"{words[2]} is broken"))
        for other in {*elsewhere, *self.elsewhere.get(uri, ())}:
            self.publish(other, elsewhere.get(other, []))
        self.elsewhere[uri] = {*elsewhere}
        return found

    def publish(self, uri: str, found: list[dict[str, Any]]) -> None:
        send(method="textDocument/publishDiagnostics", params={"uri": uri, "diagnostics": found})

    def progress(self, kind: str) -> None:
        send(method="$/progress", params={"token": 1, "value": {"kind": kind, "title": "Indexing"}})

    def changed(self, uri: str, text: str, *, is_first: bool) -> None:
        self.text = text
        if self.style == "indexing" and is_first:
            self.progress("begin")
            return
        if self.style == "indexing":
            self.progress("end")
        if self.style == "dying" and not is_first:
            sys.exit()
        if self.style == "late" and not is_first:
            time.sleep(LATE_S)
        if self.style == "once" and not is_first:
            return
        if self.style not in ("mute", "pull"):
            self.publish(uri, self.check(uri, text))

    def serve(self) -> None:
        while (message := read()) is not None:
            params = message.get("params") or {}
            match message.get("method"):
                case "initialize":
                    provider = {"interFileDependencies": True, "workspaceDiagnostics": False}
                    pulls = {"diagnosticProvider": provider} if self.style == "pull" else {}
                    send(
                        id=message["id"], result={"capabilities": {"textDocumentSync": 1, **pulls}}
                    )
                case "textDocument/didOpen":
                    document = params["textDocument"]
                    self.changed(document["uri"], document["text"], is_first=True)
                case "textDocument/didChange":
                    text = params["contentChanges"][0]["text"]
                    self.changed(params["textDocument"]["uri"], text, is_first=False)
                case "textDocument/diagnostic":
                    items = self.check(params["textDocument"]["uri"], self.text)
                    send(id=message["id"], result={"kind": "full", "items": items})
                case "shutdown":
                    send(id=message["id"], result=None)
                case "exit":
                    return


Server(sys.argv[1]).serve()
