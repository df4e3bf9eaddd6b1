"""`sanderling acp` as a process, and a client that is held by hand. All that was said is held against the official schema at the end."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests import homes
from tests.acp.schema import check_wire
from tests.conftest import DEADLINE_S, is_alive, processes_with

FULL = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}},
    "elicitation": {"form": {}, "url": {}},
    "auth": {"terminal": True},
}
Answer = Callable[[dict[str, Any]], Any]


class AgentError(Exception):
    """The agent has refused a request."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code = error["code"]


def chosen(option: str) -> Answer:
    return lambda _: {"outcome": {"outcome": "selected", "optionId": option}}


class Home(homes.Home):
    """One in which agents are started."""

    def script(self, *replies: list[dict[str, Any]], name: str = "script.json") -> str:
        """Write a script of `replies`; return the model that replays it."""
        path = self.folder / name
        path.write_text(json.dumps({"version": 1, "reply": [{"step": steps} for steps in replies]}))
        return f"script:{path}"

    def script_of(self, *replies: dict[str, Any]) -> str:
        """Write a script of whole replies; return the model that replays it."""
        path = self.folder / "replies.json"
        path.write_text(json.dumps({"version": 1, "reply": list(replies)}))
        return f"script:{path}"

    def start(self, *arguments: str, environment: dict[str, str] | None = None) -> "Agent":
        return Agent(self, arguments, self.environment | (environment or {}))

    def run(self, *arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
        """Run another command of the program's, to its end."""
        return subprocess.run(
            [sys.executable, "-m", "sanderling", *arguments],
            cwd=self.project,
            env=self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )


class Agent:
    """One process of `sanderling acp`. `answers` are those of the client to what it is asked, by method."""

    def __init__(self, home: Home, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
        self.home = home
        self.answers: dict[str, Answer] = {}
        self.messages: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        self.errors: list[dict[str, Any]] = []
        self.stderr_path = home.folder / f"stderr-{time.monotonic_ns()}"
        with self.stderr_path.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sanderling", "acp", *arguments],
                cwd=home.project,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self._ids = 0
        self._responses: dict[Any, queue.Queue[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- sending -------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        message = {"jsonrpc": "2.0"} | message
        self.messages.append({"direction": "in", "message": message})
        self.write(json.dumps(message).encode() + b"\n")

    def notify(self, method: str, **params: Any) -> None:
        self.send({"method": method, "params": params})

    def begin(self, method: str, **params: Any) -> int:
        self._ids += 1
        self._responses[self._ids] = queue.Queue()
        self.send({"id": self._ids, "method": method, "params": params})
        return self._ids

    def end(self, request_id: int, deadline_s: float = DEADLINE_S) -> Any:
        response = self._responses[request_id].get(timeout=deadline_s)
        if "error" in response:
            raise AgentError(response["error"])
        return response["result"]

    def request(self, method: str, **params: Any) -> Any:
        return self.end(self.begin(method, **params))

    def initialize(self, **capabilities: Any) -> Any:
        return self.request("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def new(self, **params: Any) -> str:
        """Begin a session; return its id."""
        given = {"cwd": str(self.home.project), "mcpServers": []} | params
        return self.request("session/new", **given)["sessionId"]

    def begin_prompt(self, session_id: str, text: str) -> int:
        block = {"type": "text", "text": text}
        return self.begin("session/prompt", sessionId=session_id, prompt=[block])

    def prompt(self, session_id: str, text: str) -> str:
        """Have `text` answered; return the stop reason."""
        return self.end(self.begin_prompt(session_id, text))["stopReason"]

    # --- receiving -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            message = json.loads(line)
            self.messages.append({"direction": "out", "message": message})
            if "method" not in message:
                self._take_response(message)
            elif "id" in message:
                self.asked.append(message)
                threading.Thread(target=self._answer, args=(message,), daemon=True).start()
            elif message["method"] == "session/update":
                self.updates.append(message["params"]["update"])

    def _take_response(self, message: dict[str, Any]) -> None:
        waiting = self._responses.get(message["id"])
        if waiting is None:
            self.errors.append(message)
        else:
            waiting.put(message)

    def _answer(self, message: dict[str, Any]) -> None:
        answer = self.answers.get(message["method"])
        if answer is None:
            error = {"code": -32601, "message": f"no {message['method']}"}
            self.send({"id": message["id"], "error": error})
        elif (result := answer(message["params"])) is not None:
            self.send({"id": message["id"], "result": result})

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        """The updates of these kinds, in order."""
        return [update for update in self.updates if update["sessionUpdate"] in kinds]

    def asked_for(self, method: str) -> list[dict[str, Any]]:
        """The requests of that method, in order."""
        return [request for request in self.asked if request["method"] == method]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(update["content"]["text"] for update in self.of(kind))

    # --- ending --------------------------------------------------------------------------------------------------------

    def finish(self) -> int:
        """End the input; return the exit status. Nothing is left running then."""
        assert self.process.stdin
        self.process.stdin.close()
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        assert self.descendants() == []
        stderr = self.stderr_path.read_text()
        assert "Traceback" not in stderr, stderr
        check_wire(self.messages)
        return status

    def descendants(self) -> list[int]:
        """Processes of this home that still run."""
        mark = f"HOME={self.home.folder}".encode()
        found = processes_with("environ", lambda environ: mark in environ.split(b"\0"))
        return [pid for pid in found if is_alive(pid) and pid != self.process.pid]

    def kill(self) -> None:
        """Let go of the process, however it stands."""
        self.process.kill()
        self.process.wait()
        self._reader.join(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()
