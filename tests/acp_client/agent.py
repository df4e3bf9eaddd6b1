"""
An agent that does as its script says, over the Agent Client Protocol, with the standard library alone.

`python agent.py SCRIPT.json`: the script has, by the words of a prompt, a list of steps; those of `*` are for any other. Each step has one
key:

say, think: a chunk of text. say_new: a parameter of session/new. update: an update as it is. raw: a line as it is. ask:
permission for a tool call, and then what was answered is said. call: a request to the client, of which the answer is said.
request: one of which it is not. sleep: seconds. exit: leave with that status. flood: so many chunks. stop: the stop reason. wait_cancel: until the turn is cancelled.
wait_for: until the file is there. spawn: a program that goes on.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.stdout.reconfigure(errors="surrogateescape")  # for bytes that are no text
lock = threading.Lock()
answers: dict[int, tuple[threading.Event, list]] = {}
cancelled = threading.Event()
script = json.loads(Path(sys.argv[1]).read_text())
settings = script.get("settings", {})
numbers = iter(range(1000, 100000))
sessions = iter(range(1, 1000))


def send(message):
    line = message if isinstance(message, str) else json.dumps(message)
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def update(session, **fields):
    send(
        {
            "jsonrpc": "2.0",
            "method": "session/update",
            "params": {"sessionId": session, "update": fields},
        }
    )


def chunk(session, kind, text):
    update(session, sessionUpdate=kind, content={"type": "text", "text": text})


def request(method, params):
    number = next(numbers)
    event, box = answers[number] = threading.Event(), []
    send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
    event.wait()
    return box[0]


def filled(value, session):
    return json.loads(
        json.dumps(value).replace("$CWD", str(Path.cwd())).replace("$SESSION", session)
    )


def play(session, text, prompt_id):
    steps = script["prompts"].get(
        text.strip(), script["prompts"].get("*", [{"say": f"heard: {text}"}])
    )
    stop = "end_turn"
    for step in steps:
        [(key, value)] = step.items()
        value = filled(value, session)
        if cancelled.is_set() and not settings.get("is_deaf"):
            stop = "cancelled"
            break
        match key:
            case "say":
                chunk(session, "agent_message_chunk", value)
            case "say_new":
                chunk(session, "agent_message_chunk", json.dumps(settings["new"][value]))
            case "think":
                chunk(session, "agent_thought_chunk", value)
            case "update":
                update(session, **value)
            case "raw":
                send(value.replace("$SESSION", session))
            case "ask":
                answer = request("session/request_permission", {"sessionId": session, **value})
                chunk(
                    session,
                    "agent_message_chunk",
                    "answer: " + json.dumps(answer.get("result", answer.get("error"))),
                )
            case "call":
                answer = request(value["method"], {"sessionId": session, **value["params"]})
                chunk(
                    session,
                    "agent_message_chunk",
                    "got: " + json.dumps(answer.get("result", answer.get("error"))),
                )
            case "request":
                request(value["method"], {"sessionId": session, **value["params"]})
            case "write":
                Path(value["path"]).write_text(value["text"])
            case "sleep":
                time.sleep(value)
            case "wait_for":
                while not Path(value).exists():
                    time.sleep(0.01)
            case "wait_cancel":
                cancelled.wait(value)
            case "flood":
                for _ in range(value["count"]):
                    chunk(session, "agent_message_chunk", value["text"] * value.get("times", 1))
            case "spawn":
                subprocess.Popen(value)
            case "stderr":
                sys.stderr.write(value)
                sys.stderr.flush()
            case "exit":
                os._exit(value)
            case "stop":
                stop = value
    if cancelled.is_set() and not settings.get("is_deaf"):
        stop = "cancelled"
    if not settings.get("is_mute"):
        send(
            {
                "jsonrpc": "2.0",
                "id": prompt_id,
                "result": {"stopReason": stop, **script.get("answer", {})},
            }
        )
    for each in script.get("after", []):
        time.sleep(0.3)
        send(filled(each, session))


def handle(message):
    method, params, number = message.get("method"), message.get("params") or {}, message.get("id")
    match method:
        case None:
            if number in answers:
                event, box = answers.pop(number)
                box.append(message)
                event.set()
        case "initialize":
            if settings.get("is_silent"):
                return
            result = {
                "protocolVersion": settings.get("version", 1),
                "agentCapabilities": settings.get("capabilities", {}),
            }
            result["authMethods"] = settings.get("auth_methods", [])
            send({"jsonrpc": "2.0", "id": number, "result": result})
        case "authenticate":
            settings["needs_login"] = False
            send({"jsonrpc": "2.0", "id": number, "result": {}})
        case "session/new" if settings.get("needs_login"):
            send(
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "error": {"code": -32000, "message": "Authentication required"},
                }
            )
        case "session/new":
            settings["new"] = params
            session = f"session-{os.getpid()}-{next(sessions)}"
            send(
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "result": {"sessionId": session, **script.get("session", {})},
                }
            )
            for each in script.get("begin", []):
                update(session, **each)
        case "session/load" | "session/resume":
            if method == "session/load":
                chunk(params["sessionId"], "user_message_chunk", "replayed prompt")
                chunk(params["sessionId"], "agent_message_chunk", "replayed answer")
            send({"jsonrpc": "2.0", "id": number, "result": script.get("session", {})})
        case "session/prompt":
            cancelled.clear()
            text = "\n".join(block.get("text", "") for block in params["prompt"])
            threading.Thread(
                target=play, args=(params["sessionId"], text, number), daemon=True
            ).start()
        case "session/cancel":
            cancelled.set()
        case "session/set_mode":
            send({"jsonrpc": "2.0", "id": number, "result": {}})
            update(
                params["sessionId"],
                sessionUpdate="current_mode_update",
                currentModeId=params["modeId"],
            )
        case "session/set_config_option":
            if script.get("tells_options_before"):
                options = script["session"]["configOptions"]
                much = {"type": "text", "text": "x" * (2 << 20)}  # which takes a while
                update(params["sessionId"], sessionUpdate="agent_message_chunk", content=much)
                update(
                    params["sessionId"], sessionUpdate="config_option_update", configOptions=options
                )
            for option in script["session"]["configOptions"]:
                if option["id"] == params["configId"]:
                    option["currentValue"] = params["value"]
            send(
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "result": {"configOptions": script["session"]["configOptions"]},
                }
            )
        case _ if number is not None:
            send(
                {
                    "jsonrpc": "2.0",
                    "id": number,
                    "error": {"code": -32601, "message": f"no {method}"},
                }
            )


for line in sys.stdin:
    handle(json.loads(line))
