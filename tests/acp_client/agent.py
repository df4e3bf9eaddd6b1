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


def respond(number, result):
    send({"jsonrpc": "2.0", "id": number, "result": result})


def refuse(number, code, words):
    send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": words}})


def update(session, **fields):
    params = {"sessionId": session, "update": fields}
    send({"jsonrpc": "2.0", "method": "session/update", "params": params})


def chunk(session, text, kind="agent_message_chunk"):
    update(session, sessionUpdate=kind, content={"type": "text", "text": text})


def say_answer(session, before, answer):
    chunk(session, before + json.dumps(answer.get("result", answer.get("error"))))


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
                chunk(session, value)
            case "say_new":
                chunk(session, json.dumps(settings["new"][value]))
            case "think":
                chunk(session, value, "agent_thought_chunk")
            case "update":
                update(session, **value)
            case "raw":
                send(value.replace("$SESSION", session))
            case "ask":
                answer = request("session/request_permission", {"sessionId": session, **value})
                say_answer(session, "answer: ", answer)
            case "call":
                answer = request(value["method"], {"sessionId": session, **value["params"]})
                say_answer(session, "got: ", answer)
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
                    chunk(session, value["text"] * value.get("times", 1))
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
        respond(prompt_id, {"stopReason": stop, **script.get("answer", {})})
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
            respond(number, result)
        case "authenticate":
            settings["needs_login"] = False
            respond(number, {})
        case "session/new" if settings.get("needs_login"):
            refuse(number, -32000, "Authentication required")
        case "session/new":
            settings["new"] = params
            session = f"session-{os.getpid()}-{next(sessions)}"
            respond(number, {"sessionId": session, **script.get("session", {})})
            for each in script.get("begin", []):
                update(session, **each)
        case "session/load" | "session/resume":
            if method == "session/load":
                chunk(params["sessionId"], "replayed prompt", "user_message_chunk")
                chunk(params["sessionId"], "replayed answer")
            respond(number, script.get("session", {}))
        case "session/prompt":
            cancelled.clear()
            text = "\n".join(block.get("text", "") for block in params["prompt"])
            threading.Thread(
                target=play, args=(params["sessionId"], text, number), daemon=True
            ).start()
        case "session/cancel":
            cancelled.set()
        case "session/set_mode":
            respond(number, {})
            mode = {"sessionUpdate": "current_mode_update", "currentModeId": params["modeId"]}
            update(params["sessionId"], **mode)
        case "session/set_config_option":
            if script.get("tells_options_before"):
                options = script["session"]["configOptions"]
                chunk(params["sessionId"], "x" * (2 << 20))  # which takes a while
                update(
                    params["sessionId"], sessionUpdate="config_option_update", configOptions=options
                )
            for option in script["session"]["configOptions"]:
                if option["id"] == params["configId"]:
                    option["currentValue"] = params["value"]
            respond(number, {"configOptions": script["session"]["configOptions"]})
        case _ if number is not None:
            refuse(number, -32601, f"no {method}")


for line in sys.stdin:
    handle(json.loads(line))
