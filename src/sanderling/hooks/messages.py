"""What hooks read and answer: JSON in the format of Claude Code, with its names of tools and inputs, so that its hooks work unchanged."""

import posixpath
from collections.abc import Callable
from typing import Any, Literal, cast

import msgspec

from sanderling.hooks.declared import Hook, HookEvent
from sanderling.protocol.modes import Mode
from sanderling.protocol.tool_names import CLAUDES
from sanderling.text import nearest, shortened

Decision = Literal["allow", "ask", "deny"]

_MODES: dict[Mode, str] = {"ask": "default", "auto": "auto", "plan": "plan"}
MAX_TEXT_CHARS = 10_000
"""For the model: a context, or a reason."""
MAX_MESSAGE_CHARS = 1_000
_BLOCKS = 2  # the exit status
_NOT_STARTED = (126, 127)  # of the shell: the program is not executable, or not found
_KILLED = range(129, 193)  # of the shell: a signal has ended the program
_PLAIN_CONTEXT: tuple[HookEvent, ...] = ("SessionStart", "UserPromptSubmit")
"""Events for which the output is context if it is not JSON."""


class Answer(msgspec.Struct, frozen=True):
    """
    What a hook said.

    Attributes:
        decision: about a tool call, a question, or, as "deny", about going on with the event.
        reason: of the decision, if that is not to allow; the model reads it if it is denied, the user if they are asked.
        context: text for the model.
        input: the input to use instead, with Claude's names.
        message: a line for the user.
        stop: why the turn must end.
        failure: why the hook's answer, or a part of it, does not count.
        is_late: it failed before it could answer, so it may have wanted to deny the call.
    """

    decision: Decision | None = None
    reason: str = ""
    context: str = ""
    input: dict[str, Any] | None = None
    message: str = ""
    stop: str = ""
    failure: str = ""
    is_late: bool = False


class _Behavior(msgspec.Struct, rename="camel"):
    behavior: Literal["allow", "deny"]
    message: str = ""
    updated_input: dict[str, Any] | None = None
    interrupt: bool = False


class _Specific(msgspec.Struct, rename="camel"):
    permission_decision: Literal["allow", "ask", "deny", "defer"] | None = None
    permission_decision_reason: str = ""
    updated_input: dict[str, Any] | None = None
    additional_context: str = ""
    decision: _Behavior | None = None


class _Output(msgspec.Struct, rename="camel"):
    go_on: bool = msgspec.field(default=True, name="continue")
    stop_reason: str = ""
    system_message: str = ""
    decision: Literal["approve", "allow", "block", "deny"] | None = None
    reason: str = ""
    hook_specific_output: _Specific = msgspec.field(default_factory=_Specific)


_ELSEWHERE = "hookSpecificOutput"
_KEYS = frozenset({*_Output.__struct_encode_fields__, "suppressOutput"})
_SPECIFIC_KEYS = frozenset({*_Specific.__struct_encode_fields__, "hookEventName"})
_MIN_LIKENESS = 0.85  # of a misspelled key: Claude has others, such as `updatedMCPToolOutput`


class Surroundings(msgspec.Struct, frozen=True):
    """What all messages of a session contain. `mode` returns the current mode."""

    session_id: str
    transcript_path: str
    project: str
    mode: Callable[[], Mode]

    def message(self, event: HookEvent, fields: dict[str, Any]) -> bytes:
        return msgspec.json.encode(
            {
                "session_id": self.session_id,
                "transcript_path": self.transcript_path,
                "cwd": self.project,
                "permission_mode": _MODES[self.mode()],
                "hook_event_name": event,
                **fields,
            }
        )


def names_of(tool: str) -> tuple[str, ...]:
    """Return the names by which a matcher can mean a tool: Claude's and Sanderling's."""
    if tool == "edit":
        return ("Edit", "MultiEdit", "edit")
    return tuple(dict.fromkeys((CLAUDES.get(tool, tool), tool)))


def tool_fields(tool: str, use_id: str, values: dict[str, Any], project: str) -> dict[str, Any]:
    """Return the fields of a message about a tool call: Claude's name and input, and the call's id."""
    name, its_input = CLAUDES.get(tool, tool), dict(values)
    if "path" in its_input and tool in ("read", "write", "edit"):
        its_input["file_path"] = posixpath.join(project, str(its_input.pop("path")))
    if tool == "bash" and its_input.pop("background", False):
        its_input["run_in_background"] = True
    if tool == "edit":
        edits = [_edit(each) for each in its_input.pop("edits", ())]
        if len(edits) == 1:
            its_input |= edits[0]
        else:
            name, its_input["edits"] = "MultiEdit", edits
    if tool == "delegate":
        its_input["prompt"], its_input["subagent_type"] = (
            its_input.get("task"),
            its_input.get("role"),
        )
    if tool == "todo" and "items" in its_input:
        its_input["todos"] = its_input.pop("items")
    return {"tool_name": name, "tool_input": its_input, "tool_use_id": use_id}


def _edit(each: dict[str, Any]) -> dict[str, Any]:
    renamed = {"old": "old_string", "new": "new_string"}
    return {renamed.get(key, key): value for key, value in each.items()}


def tool_response(tool: str, text: str, path: str, *, is_error: bool) -> dict[str, Any]:
    if tool == "bash":
        return {"stdout": text, "stderr": "", "interrupted": False, "isImage": False}
    file = {"filePath": path} if path else {}
    return {"content": text, "success": not is_error, **file}


def answer_of(hook: Hook, status: int, output: str, errors: str) -> Answer:
    """Return what a hook said that ended with this exit status."""
    if status == _BLOCKS:
        reason = errors.strip() or _no_reason(hook)
        return Answer("deny", shortened(reason, MAX_TEXT_CHARS))
    if status:
        first = errors.strip().partition("\n")[0]
        first = shortened(first, MAX_MESSAGE_CHARS)
        failure = f"exit status {status}{f': {first}' if first else ''}"
        if status in _NOT_STARTED and hook.is_confined:
            failure += "; the sandbox shows hooks only the project and the programs of $PATH"
        return Answer(failure=failure, is_late=status in _NOT_STARTED or status in _KILLED)
    text = output.strip()
    if not text.startswith("{"):
        return _plain(hook, text)
    try:
        answer = _answer(hook, msgspec.json.decode(text, type=_Output))
        return msgspec.structs.replace(answer, failure=_mistake(msgspec.json.decode(text)))
    except (msgspec.DecodeError, RecursionError) as error:
        is_json = isinstance(error, msgspec.ValidationError | RecursionError)
        if hook.event in _PLAIN_CONTEXT and not is_json:
            return _plain(hook, text)
        return Answer(failure=f"its output is not what a hook answers: {error}")


def _plain(hook: Hook, text: str) -> Answer:
    """Return the answer of a hook whose output is not JSON."""
    is_context = hook.event in _PLAIN_CONTEXT
    return Answer(context=shortened(text, MAX_TEXT_CHARS) if is_context else "")


def _answer(hook: Hook, said: _Output) -> Answer:
    event, specific = hook.event, said.hook_specific_output
    decision: Decision | None = None
    reason, its_input = said.reason, None
    if said.decision:
        decision = "allow" if said.decision in ("approve", "allow") else "deny"
    if event == "PreToolUse":
        its_input = specific.updated_input
        if specific.permission_decision and specific.permission_decision != "defer":
            decision = specific.permission_decision
            reason = specific.permission_decision_reason or reason
    if event == "PermissionRequest" and specific.decision:
        decision, reason = specific.decision.behavior, specific.decision.message or reason
    if decision in ("deny", "ask"):
        reason = reason or _no_reason(hook)
    stop = "" if said.go_on else said.stop_reason or _no_reason(hook)
    return Answer(
        decision,
        shortened(reason, MAX_TEXT_CHARS),
        shortened(specific.additional_context, MAX_TEXT_CHARS),
        its_input,
        shortened(said.system_message, MAX_MESSAGE_CHARS),
        shortened(stop, MAX_MESSAGE_CHARS),
    )


def _mistake(said: dict[str, Any]) -> str:
    """Return a sentence about a key that has no effect, but is like one that has; "" without any. Other keys are ignored, as by Claude."""
    for key in said.keys() - _KEYS:
        if key in _SPECIFIC_KEYS:
            return f"its answer has `{key}` outside `{_ELSEWHERE}`, where it has no effect"
    inner = cast("dict[str, Any]", said.get(_ELSEWHERE, {}))
    for keys, known in ((said, _KEYS | _SPECIFIC_KEYS), (inner, _SPECIFIC_KEYS)):
        for key in keys.keys() - known:
            if near := nearest(key, known, _MIN_LIKENESS):
                return f"its answer has `{key[:80]}` instead of `{near[0]}`"
    return ""


def _no_reason(hook: Hook) -> str:
    return f"{hook.shown} gives no reason"
