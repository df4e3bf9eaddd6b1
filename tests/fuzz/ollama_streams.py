"""Answers in the format of Ollama: what they say, how they end."""

import json

from tests.fuzz.streams import EMOJI, READ, TELEPORT, TODO
from tests.wires.ollama import done, error, line, text, thinking, tool_use

PLAN, LOOK, GO = (json.loads(each) for each in (TODO, READ, TELEPORT))

STREAMS: dict[str, bytes] = {
    "text": text("Hello", " there.") + done(),
    "unicode": text(*EMOJI.split(" ")) + done(),
    "nothing but blanks": text("\n\n") + done(),
    "nothing": done(),
    "text, cut by the limit": text("And so on and") + done("length"),
    "thought": thinking("Let me", " see.") + text("I see.") + done(),
    "nothing but a thought": thinking("So much to", " think") + done("length"),
    "a tool": tool_use("todo", PLAN) + done(),
    "three tools": tool_use("todo", PLAN)
    + tool_use("read", LOOK)
    + tool_use("teleport", GO)
    + done(),
    "three tools in one piece": line(
        {
            "tool_calls": [
                {"id": f"call_{name}", "function": {"index": n, "name": name, "arguments": told}}
                for n, (name, told) in enumerate((("todo", PLAN), ("read", LOOK), ("teleport", GO)))
            ]
        }
    )
    + done(),
    "thought, text and tools": thinking("First the plan.")
    + text("I plan.")
    + tool_use("todo", PLAN)
    + tool_use("read", LOOK)
    + done(),
    "a tool, then text": tool_use("todo", PLAN) + text("Meanwhile") + done(),
    "a tool without input": tool_use("jobs", {}) + done(),
    "a wrong input": tool_use("todo", {"itemz": []}) + done(),
    "an input that is a string": tool_use("todo", TODO) + done(),
    "one id twice": tool_use("todo", PLAN, id="call_1")
    + tool_use("todo", PLAN, id="call_1")
    + done(),
    "names that no API takes": tool_use("", LOOK)
    + tool_use("read\0 " * 100, LOOK)
    + tool_use("x" * 600, LOOK)
    + done(),
    "a tool with the end": line(
        {"tool_calls": [{"function": {"name": "todo", "arguments": PLAN}}]},
        done=True,
        done_reason="stop",
    ),
    "no end": text("Hello"),
    "failing at once": error(),
    "failing in a text": text("Hel") + error(),
    "failing after a tool": tool_use("todo", PLAN) + error(),
    "half a surrogate pair": text("<").replace(b'"<"', rb'"\ud83d"') + text("Words.") + done(),
}
LAST_WORDS = text("All done.") + done()
