"""A tool server for tests, of the standard library alone, so that it runs in the sandbox: its one tool asks the person."""

import json
import sys
from pathlib import Path

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name"},
        "age": {"type": "integer", "minimum": 1},
        "sure": {"type": "boolean"},
        "pet": {"type": "string", "enum": ["cat", "dog"]},
    },
    "required": ["name"],
}


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"), message.get("id"):
        case "initialize", number:
            info = {"name": "asking", "version": "1"}
            said = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
            say({"id": number, "result": said})
        case "tools/list", number:
            tool = {"name": "ask", "description": "Asks.", "inputSchema": {"type": "object"}}
            say({"id": number, "result": {"tools": [tool]}})
            Path("listed").touch()
        case "tools/call", number:
            asked = {"message": "Who are you?", "requestedSchema": FORM}
            say({"id": "q1", "method": "elicitation/create", "params": asked})
            answer = json.loads(sys.stdin.readline())
            while answer.get("id") != "q1":
                answer = json.loads(sys.stdin.readline())
            text = json.dumps(answer.get("result"))
            say({"id": number, "result": {"content": [{"type": "text", "text": text}]}})
        case _, None:
            pass
        case _, number:
            say({"id": number, "error": {"code": -32601, "message": "no"}})
