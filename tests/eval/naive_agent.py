#!/usr/bin/env python3
"""An agent without a sandbox, which also loses line endings: what a score must notice. It is started like goose."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path


def tool(name, **properties):
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in properties}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOLS = [
    tool("shell", command=1),
    tool("read_file", path=1),
    tool("write_file", path=1, content=1),
    tool("edit_file", path=1, old_string=1, new_string=1),
]


def run(name, arguments):
    match name:
        case "shell":
            done = subprocess.run(
                ["bash", "-c", arguments["command"]], capture_output=True, check=False
            )
            return (done.stdout + done.stderr).decode(errors="replace")[:5000]
        case "read_file":
            return Path(arguments["path"]).read_text()
        case "write_file":
            Path(arguments["path"]).write_text(arguments["content"])
        case "edit_file":
            path = Path(arguments["path"])
            text = path.read_text()
            if arguments["old_string"] not in text:
                return "error: not found"
            path.write_text(text.replace(arguments["old_string"], arguments["new_string"]))
    return "ok"


def answer(messages):
    body = {"model": "m", "stream": True, "messages": messages, "tools": TOOLS}
    request = urllib.request.Request(
        os.environ["OPENAI_HOST"] + "/v1/chat/completions", json.dumps(body).encode()
    )
    calls = {}
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:])["choices"]:
                for part in choice["delta"].get("tool_calls", ()):
                    call = calls.setdefault(part["index"], {"id": part.get("id"), "json": ""})
                    call["name"] = part["function"].get("name") or call.get("name")
                    call["json"] += part["function"]["arguments"]
    return list(calls.values())


def main():
    messages = [{"role": "user", "content": sys.argv[-1]}]
    while calls := answer(messages):
        functions = [{"name": call["name"], "arguments": call["json"]} for call in calls]
        uses = [
            {"id": call["id"], "type": "function", "function": function}
            for call, function in zip(calls, functions, strict=True)
        ]
        messages.append({"role": "assistant", "tool_calls": uses})
        for call in calls:
            try:
                result = run(call["name"], json.loads(call["json"]))
            except (ValueError, KeyError, OSError) as error:
                result = f"error: {error!r}"
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print("0.1.0")
    else:
        main()
