"""
From an action to a call of a tool that the request defines, by the names and schemas of its tools.

The families of agents differ in names only, so one table serves all: the first tool of a row that the request has is used, and
arguments get the names that its schema has. Without a tool for an action, the agent's shell does it, as its model would.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from eval.score.files import APP, relative
from eval.score.scenarios import Action, Call

TextOf = Callable[[str], str | None]
ABSENT = "apply_change_v9"


class Tool(NamedTuple):
    """A tool of a request. `is_free` is one that takes text instead of JSON."""

    name: str
    schema: dict[str, Any]
    is_free: bool = False

    @property
    def properties(self) -> dict[str, Any]:
        return self.schema.get("properties") or {}


class ToolCall(NamedTuple):
    """A call as it goes to the agent. `arguments` is JSON, unless it is malformed, or the text for a free tool."""

    name: str
    arguments: str
    is_free: bool = False
    is_malformed: bool = False


TOOLS: dict[Action, tuple[str, ...]] = {
    "read": ("read", "Read", "read_file"),
    "list": ("ls", "list", "LS", "list_directory", "list_dir"),
    "search": ("grep", "Grep", "grep_search", "search_file_content"),
    "edit": (
        "edit",
        "Edit",
        "replace",
        "edit_file",
        "search_replace",
        "text_editor",
        "apply_patch",
    ),
    "write": ("write", "Write", "write_file", "text_editor", "apply_patch"),
    "run": ("bash", "Bash", "run_shell_command", "exec_command", "shell_command", "shell"),
}
"""The tools for an action, the best first."""

NAMES: dict[str, tuple[str, ...]] = {
    "path": ("path", "file_path", "filePath", "absolute_path", "dir_path", "workdir", "file"),
    "old": ("old_string", "oldString", "old_str", "old"),
    "new": ("new_string", "newString", "new_str", "new"),
    "text": ("content", "contents", "file_text", "text"),
    "pattern": ("pattern", "query", "regex"),
    "command": ("command", "cmd"),
}
TIMEOUTS = {"timeout_s": 1, "timeout": 1000, "timeout_ms": 1000, "yield_time_ms": 1000}
"""The arguments for a time limit, and their units in a second."""
FILLERS: dict[str, Any] = {
    "description": "A step of the task",
    "instruction": "A step of the task",
    "explanation": "A step of the task",
}
"""Arguments that some tools require in addition."""


class Adapter:
    """The tools of one request. `text_of` returns the text of a file as a model has seen it, or None if there is no such file."""

    def __init__(self, tools: Iterable[Tool], text_of: TextOf) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self._text_of = text_of

    def find(self, action: Action) -> Tool | None:
        short = {name.rpartition("__")[2]: tool for name, tool in self.tools.items()}
        return next((short[name] for name in TOOLS[action] if name in short), None)

    @property
    def can_work(self) -> bool:
        """Whether the request is one for the agent's work, and not for a title or the like."""
        return bool(self.find("run") or self.find("edit"))

    def call(self, call: Call) -> ToolCall:
        """Return the call for the agent. Without a tool for it, the shell does it."""
        if call.spoiled == "absent":
            return ToolCall(ABSENT, json.dumps({"path": relative(call.path)}))
        tool = self.find(call.action)
        if tool is None:
            tool = self.find("run")
            if tool is None:
                return ToolCall(TOOLS[call.action][0], json.dumps({"path": call.path}))
            call = Call(action="run", command=in_shell(call, self._text_of), spoiled=call.spoiled)
        if tool.is_free:
            return ToolCall(tool.name, patch_of(call, self._text_of), is_free=True)
        arguments = self._arguments(tool, call)
        if call.spoiled == "names":
            arguments = {f"the_{name}": value for name, value in arguments.items()}
        encoded = json.dumps(arguments, ensure_ascii=False)
        if call.spoiled == "malformed":
            return ToolCall(tool.name, encoded[:-2], is_malformed=True)
        return ToolCall(tool.name, encoded)

    def _arguments(self, tool: Tool, call: Call) -> dict[str, Any]:
        known = tool.properties
        path = self._path(tool, call)
        if tool.name.endswith("apply_patch"):
            return {"input": patch_of(call, self._text_of)}
        if tool.name.endswith("search_replace"):  # blocks of text in one argument
            return {"file_path": path, "content": block_of(call.old, call.new)}
        values: dict[str, Any] = {}
        match call.action:
            case "read" | "list":
                values = {"path": path}
            case "search":
                values = {"pattern": call.pattern, "path": path}
            case "edit":
                values = {"path": path, "old": call.old, "new": call.new}
            case "write":
                values = {"path": path, "text": call.text}
            case "run":
                values = {"command": call.command}
        if call.action == "edit" and "edits" in known:
            return {"path": path, "edits": [{"old": call.old, "new": call.new}]}
        arguments = {
            next((name for name in NAMES[key] if name in known), key): value
            for key, value in values.items()
            if value or key != "path"
        }
        if known.get("command", {}).get("type") == "array":
            arguments["command"] = ["bash", "-lc", call.command]
        if call.timeout_s:
            unit = next(((n, u) for n, u in TIMEOUTS.items() if n in known), None)
            arguments |= {unit[0]: call.timeout_s * unit[1]} if unit else {}
        required = [name for name in tool.schema.get("required", ()) if name not in arguments]
        return arguments | {name: FILLERS[name] for name in required if name in FILLERS}

    def _path(self, tool: Tool, call: Call) -> str:
        """Return the path as tools want it: absolute, unless it is the tool of an agent that takes relative ones."""
        path = call.path or ("." if call.action in ("list", "search") else "")
        if not path or path.startswith("/") or "path" in tool.properties:
            return path
        return f"{APP}/{relative(path)}".removesuffix("/.")


# --- other ways to do it -----------------------------------------------------------------------------------------------


def in_shell(call: Call, text_of: TextOf) -> str:
    """Return the command that a model runs if its agent has no tool for the action."""
    path = shlex.quote(call.path or ".")
    commands = {
        "read": f"cat {path}",
        "list": f"ls -la {path}",
        "search": f"grep -rn -E {shlex.quote(call.pattern)} {path}",
        "run": call.command,
    }
    patch = f"apply_patch <<'PATCH'\n{patch_of(call, text_of)}\nPATCH"
    return commands.get(call.action, patch)


def block_of(old: str, new: str) -> str:
    return f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


def patch_of(call: Call, text_of: TextOf) -> str:
    """Return the change in the format of Codex's `apply_patch`, in whole lines."""
    path, text = call.path, text_of(call.path)
    if call.action == "write" and text is None:
        added = call.text.removesuffix("\n").split("\n")
        lines = [f"*** Add File: {path}", *(f"+{line}" for line in added)]
    else:
        mark = "\ufeff" if (text or "").startswith("\ufeff") else ""
        whole = (text or "", mark + call.text)
        old, new = whole if call.action == "write" else (call.old, call.new)
        old, new = whole_lines(text or "", old, new)
        lines = [f"*** Update File: {path}", "@@"]
        lines += [f"-{line}" for line in old.split("\n")] + [f"+{line}" for line in new.split("\n")]
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def whole_lines(text: str, old: str, new: str) -> tuple[str, str]:
    """Extend a replacement of a part of the text to whole lines, without the last line break."""
    at = text.find(old)
    if at < 0:
        return old.removesuffix("\n"), new.removesuffix("\n")
    start = text.rfind("\n", 0, at) + 1
    end = at + len(old)
    if old.endswith("\n") and new.endswith("\n"):
        return text[start : end - 1], text[start:at] + new[:-1]
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    return text[start:stop], text[start:at] + new + text[end:stop]


# --- the tools of a request --------------------------------------------------------------------------------------------


def tools_of(body: Mapping[str, Any]) -> list[Tool]:
    """Return the tools of a request, in any of the formats."""
    found = list[Tool]()
    for tool in body.get("tools") or ():
        found += _tools_in(tool)
    return found


def _tools_in(tool: Mapping[str, Any]) -> list[Tool]:
    found: list[Tool] = []
    match tool:
        case {"functionDeclarations": [*declared]}:
            found += (_tool(each) for each in declared)
        case {"type": "function", "function": function}:
            found.append(_tool(function))
        case {"type": "custom", "format": _}:
            found.append(Tool(tool["name"], {}, is_free=True))
        case {"type": "namespace", "tools": [*inner]}:
            found += (each for part in inner for each in _tools_in(part))
        case {"name": _}:
            found.append(_tool(tool))
        case _:
            pass
    return found


def _tool(declared: Mapping[str, Any]) -> Tool:
    names = ("input_schema", "parametersJsonSchema", "parameters")
    schemas: list[dict[str, Any]] = [declared[name] for name in names if declared.get(name)]
    return Tool(declared["name"], schemas[0] if schemas else {})
