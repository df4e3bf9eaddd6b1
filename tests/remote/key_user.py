"""An agent elsewhere that borrows keys: `key_user.py PLAN ANSWERS` asks as PLAN says, and writes what it got to ANSWERS."""

import json
import sys
from itertools import count
from pathlib import Path

PLAN, ANSWERS = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
answers = []
numbers = count(1)
prompts = []


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(requests):
    for request in requests:
        number = next(numbers)
        send(id=number, method="_sanderling/http", params={"id": f"r{number}", **request})


def take(message):
    match message.get("method"):
        case "initialize":
            # The version is this one's, or the client says that they differ.
            ours = {"sanderling": {"version": PLAN["version"], "resume": 1, "cwd": "/"}}
            result = {"protocolVersion": 1, "agentCapabilities": {"_meta": ours}}
            send(id=message["id"], result=result)
        case "session/new":
            send(id=message["id"], result={"sessionId": "theirs"})
            ask(PLAN["before"])
        case "session/prompt":
            prompts.append(message)
            ours = message["params"]["_meta"]["sanderling"]
            told = {"sessionId": "theirs", "promptId": ours["prompt_id"]}
            send(method="_sanderling/prompt_accepted", params=told)
            ask(PLAN["within"])
        case "_sanderling/http_data" if message["params"].get("isLast"):
            answers.append({"last": message["params"]})
        case "_sanderling/http_data" if PLAN["ends_early"]:
            send(method="_sanderling/http_end", params={"id": message["params"]["id"]})
        case "_sanderling/http_data":
            taken = {"id": message["params"]["id"], "count": len(message["params"]["data"])}
            send(method="_sanderling/http_taken", params=taken)
        case None if "id" in message and "method" not in message:
            answers.append(message)
        case method if "id" in message and method:
            send(id=message["id"], result={})
    written = ANSWERS.with_suffix(".new")
    written.write_text(json.dumps(answers))
    written.rename(ANSWERS)
    failed = sum("error" in each for each in answers)
    ended = failed + sum("last" in each for each in answers)
    if prompts and ended == len(PLAN["before"]) + len(PLAN["within"]):
        send(id=prompts.pop()["id"], result={"stopReason": "end_turn"})


for line in sys.stdin:
    take(json.loads(line))
