"""
Questions to the user, sent through the client: permissions, forms and links to open.

If the client cannot answer, for whatever reason, the answer is deny.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from sanderling.acp.agent.clients import Audience, Client
from sanderling.acp.agent.event_translator import KINDS, fenced, shown_parts
from sanderling.acp.wire.asking import (
    ElicitationRequest,
    ElicitationResponse,
    PermissionOption,
    PermissionRequest,
    PermissionResponse,
)
from sanderling.acp.wire.content import Location, ToolContent, shown_text
from sanderling.acp.wire.errors import ClosedError, RpcError
from sanderling.acp.wire.ours import meta_of
from sanderling.acp.wire.updates import ToolCall, ToolCallFields, ToolCallUpdate
from sanderling.protocol.actions import Action, AnswerApproval, CancelTurn
from sanderling.protocol.events import ApprovalRequested, FormChoice, FormField
from sanderling.tools.ask_user import KEEP, text_name

PERMISSION, ELICITATION = "session/request_permission", "elicitation/create"
GRANT = ":grant"
NOBODY = "The client cannot ask the user: {problem}. Do what you can without it, then say what was left undone."
ONCE, SESSION, ALWAYS, WIDER, DENY, DENY_ALL = (
    "once",
    "session",
    "always",
    "wider",
    "deny",
    "deny_all",
)
CHOICE = "choice:"
OF_MODEL = ("question", "plan")
"""Kinds of questions that the model asks."""
NONE_OF_THEM = "None of these"
NO_FORMS = "(The user's editor cannot show this question. Ask it in your answer.)"
WORDS = {
    "grant": "Allow this access",
    "overlap": "Overwrite the unsaved changes",
    "limit": "Continue",
    "server": "Start this server",
    "link": "I have opened the page",
}


class ClientQuestions:
    """Sends the questions of a session."""

    def __init__(self, session_id: str, audience: Audience) -> None:
        self._session_id = session_id
        self._audience = audience
        self._numbers = itertools.count(1)

    async def ask(self, question: ApprovalRequested) -> Action:
        """Ask the user; return the action that their answer results in."""
        try:
            if question.kind in OF_MODEL:
                return await self._ask_for_model(question)
            if question.kind == "form":
                return await self._fill_in(question)
            if question.kind == "link" and self._audience.can(_opens_links):
                return await self._open(question)
            return await self._permit(question)
        except ClosedError:
            return AnswerApproval(question.id, "deny")
        except RpcError as error:
            return AnswerApproval(
                question.id, "deny", NOBODY.format(problem=error), is_unattended=True
            )

    async def _permit(self, question: ApprovalRequested) -> Action:
        asked = PermissionRequest(
            session_id=self._session_id,
            tool_call=_call(question),
            options=self._distinct(_options(question)),
            meta=self._about(question),
        )
        response = await self._audience.ask(PERMISSION, asked, PermissionResponse, _permits)
        if response.outcome.outcome != "selected":
            return CancelTurn()
        return _answer(question, response.outcome.option_id or "")

    async def _ask_for_model(self, question: ApprovalRequested) -> Action:
        """Ask in one form, or else for one field after the other, whose choices are the options."""
        if self._audience.can(_fills_in_forms):
            return await self._fill_in(question)
        values = dict[str, str]()
        for field in question.fields:
            is_blank = question.kind != "plan" and not self._audience.can(_shows_option_names)
            if not field.choices or is_blank:
                values[text_name(field.name)] = NO_FORMS
                continue
            asked = PermissionRequest(
                session_id=self._session_id,
                tool_call=msgspec.structs.replace(_call(question), title=_asked(question, field)),
                options=self._distinct(_choices(question, field)),
                meta=self._about(question),
            )
            response = await self._audience.ask(PERMISSION, asked, PermissionResponse, _permits)
            if response.outcome.outcome != "selected":
                return CancelTurn()
            offered = {f"{CHOICE}{number}": each for number, each in enumerate(field.choices)}
            if chosen := offered.get(response.outcome.option_id or ""):
                values[field.name] = chosen.value
        return AnswerApproval(question.id, "once" if values else "deny", values=values)

    def _distinct(self, options: list[PermissionOption]) -> list[PermissionOption]:
        """Return the first option of each kind, which allows the least, if the client does not show the names."""
        if self._audience.can(_shows_option_names):
            return options
        return list({option.kind: option for option in reversed(options)}.values())[::-1]

    async def _fill_in(self, question: ApprovalRequested) -> Action:
        if not self._audience.can(_fills_in_forms):
            return AnswerApproval(question.id, "cancel")
        asked = ElicitationRequest(
            mode="form",
            session_id=self._session_id,
            message=_message(question),
            requested_schema=_schema(_with_own_words(question)),
            meta=self._about(question),
        )
        response = await self._audience.ask(
            ELICITATION, asked, ElicitationResponse, _fills_in_forms
        )
        values = {name: _text(value) for name, value in (response.content or {}).items()}
        return _elicited(question, response, values)

    async def _open(self, question: ApprovalRequested) -> Action:
        asked = ElicitationRequest(
            mode="url",
            session_id=self._session_id,
            message=_named(
                question,
                "\n".join(filter(None, (f"{question.tool} {question.title}.", question.reason))),
            ),
            url=question.subject,
            elicitation_id=question.id,
            meta=self._about(question),
        )
        response = await self._audience.ask(ELICITATION, asked, ElicitationResponse, _opens_links)
        return _elicited(question, response, {})

    def _about(self, question: ApprovalRequested) -> dict[str, Any]:
        """Return `_meta` for Sanderling's clients. After a reconnect they recognize a repeated question by its `id` and do not ask again."""
        question_id = f"{question.id}:{next(self._numbers)}"
        about = {"id": question_id, "kind": question.kind, "reason": question.reason}
        of_child = {"child": question.id.partition("/")[0]} if question.child else {}
        return meta_of(**about, **of_child)


def _permits(_: Client) -> bool:
    return True


def _fills_in_forms(client: Client) -> bool:
    return client.fills_in_forms


def _shows_option_names(client: Client) -> bool:
    return client.shows_option_names


def _opens_links(client: Client) -> bool:
    return client.opens_links


def _elicited(
    question: ApprovalRequested, response: ElicitationResponse, values: dict[str, str]
) -> AnswerApproval:
    match response.action:
        case "accept":
            return AnswerApproval(question.id, "once", values=values)
        case "decline":
            return AnswerApproval(question.id, "deny")
        case _:
            return AnswerApproval(question.id, "cancel")


def call_of(question: ApprovalRequested) -> str:
    """Return the ID of the tool call that a question is about."""
    return question.id.removesuffix(GRANT)


def childs_call(question: ApprovalRequested) -> Iterator[ToolCall]:
    """Yield the call that a child session asks about, which the client does not know yet."""
    if question.child:
        yield ToolCall(
            tool_call_id=call_of(question),
            title=_title(question),
            kind=KINDS.get(question.tool, "other"),
            status="pending",
            name=question.tool,
        )


def childs_call_settled(question: ApprovalRequested) -> Iterator[ToolCallUpdate]:
    """Yield the end of that call as a question. The call itself is the child's, and not shown in its parent."""
    if question.child:
        yield ToolCallUpdate(tool_call_id=call_of(question), status="completed")


def _call(question: ApprovalRequested) -> ToolCallFields:
    is_command = question.filetype == "sh"
    return ToolCallFields(
        tool_call_id=call_of(question),
        title=_title(question),
        kind="switch_mode" if question.kind == "plan" else KINDS.get(question.tool, "other"),
        status="pending",
        name=question.tool,
        content=_content(question),
        locations=[Location(path=question.path)] if question.path else None,
        raw_input={"command": question.subject, "cwd": question.cwd} if is_command else None,
    )


def _title(question: ApprovalRequested) -> str:
    if question.kind == "limit":
        title = f"{question.title} {question.reason}"
    else:
        is_command = question.filetype == "sh"
        title = question.title if is_command else f"{question.tool} {question.title}"
    return _named(question, title)


def _named(question: ApprovalRequested, text: str) -> str:
    """Put the name of the child session that asks before a text."""
    return f"{question.child}: {text}" if question.child else text


def _content(question: ApprovalRequested) -> list[ToolContent]:
    parts: list[ToolContent] = []
    if question.kind in OF_MODEL:
        return [shown_text(question.subject)]
    if question.filetype == "diff" and question.path:
        parts = shown_parts(question.path, question.subject)
    if not parts and question.subject:
        parts = [fenced(question.subject, question.filetype)]
    return [*parts, shown_text(question.reason)] if question.reason else parts


def _options(question: ApprovalRequested) -> list[PermissionOption]:
    yes = WORDS.get(question.kind, "Allow")
    options = [PermissionOption(option_id=ONCE, name=yes, kind="allow_once")]
    if SESSION in question.choices:
        options.append(_always(SESSION, f"{yes}, for this session"))
    if ALWAYS in question.choices and question.rule:
        options.append(_always(ALWAYS, f"Always: {question.rule}"))
        if question.wider:
            options.append(_always(WIDER, f"Always: {question.wider}"))
    options.append(PermissionOption(option_id=DENY, name="Deny", kind="reject_once"))
    if question.is_of_several:
        options.append(PermissionOption(option_id=DENY_ALL, name="Deny all", kind="reject_once"))
    return options


def _always(option_id: str, name: str) -> PermissionOption:
    return PermissionOption(option_id=option_id, name=name, kind="allow_always")


def _answer(question: ApprovalRequested, option: str) -> AnswerApproval:
    """Return the answer for an option ID; deny if that option was not offered."""
    if option not in {each.option_id for each in _options(question)}:
        option = DENY
    match option:
        case "once":
            return AnswerApproval(question.id, "once")
        case "session":
            return AnswerApproval(question.id, "session")
        case "always":
            return AnswerApproval(question.id, "always", rule=question.rule)
        case "wider":
            return AnswerApproval(question.id, "always", rule=question.wider)
        case _:
            is_alone = question.is_of_several and option != DENY_ALL
            return AnswerApproval(question.id, "deny", is_alone=is_alone)


# --- questions of the model ---------------------------------------------------------------------------------------------


def _message(question: ApprovalRequested) -> str:
    return _named(question, _words(question))


def _words(question: ApprovalRequested) -> str:
    match question.kind, question.fields:
        case "plan", _:
            return f"Accept the plan? {question.subject}"
        case "question", (only,):
            return only.label
        case "question", several:
            return f"{len(several)} questions"
        case _:
            parts = (f"{question.tool} {question.title}:", question.reason)
            return "\n".join(filter(None, parts))


def _asked(question: ApprovalRequested, field: FormField) -> str:
    if question.kind == "plan":
        return _message(question)
    is_limited = field.kind == "choices"
    return _named(question, f"{field.label} (choose one)" if is_limited else field.label)


def _choices(question: ApprovalRequested, field: FormField) -> list[PermissionOption]:
    options = [
        PermissionOption(
            option_id=f"{CHOICE}{number}",
            name=each.title or each.value,
            kind="reject_once" if each.value == KEEP and question.kind == "plan" else "allow_once",
        )
        for number, each in enumerate(field.choices)
    ]
    if question.kind == "plan":
        return options
    return [*options, PermissionOption(option_id=DENY, name=NONE_OF_THEM, kind="reject_once")]


def _with_own_words(question: ApprovalRequested) -> tuple[FormField, ...]:
    """Return the fields of the form: after each choice of the model's, one for the user's own words."""
    if question.kind not in OF_MODEL:
        return question.fields
    fields: list[FormField] = []
    for field in question.fields:
        label = field.label or "Answer"
        fields.append(msgspec.structs.replace(field, label=label))
        if field.choices:
            own = "Comment" if question.kind == "plan" else "In your own words"
            fields.append(FormField(text_name(field.name), "string", label=own))
    return tuple(fields)


# --- forms -------------------------------------------------------------------------------------------------------------


def _schema(fields: tuple[FormField, ...]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _property(field) for field in fields},
    }
    if required := [field.name for field in fields if field.is_required]:
        schema["required"] = required
    return schema


def _property(field: FormField) -> dict[str, Any]:
    titled = [{"const": each.value, "title": _titled(each)} for each in field.choices]
    match field.kind:
        case "choice":
            asked: dict[str, Any] = {"type": "string", "oneOf": titled}
        case "choices":
            asked = {"type": "array", "items": {"anyOf": titled}}
        case _:
            asked = {"type": field.kind}
    asked |= {"title": field.label} if field.label else {}
    asked |= {"description": field.help} if field.help else {}
    default = _default(field)
    return asked if default is None else asked | {"default": default}


def _titled(choice: FormChoice) -> str:
    return ": ".join(filter(None, (choice.title or choice.value, choice.help)))


def _default(field: FormField) -> Any:
    """Return the default of a field; None if it is empty or does not fit the field's type."""
    if not field.value:
        return None
    match field.kind:
        case "boolean":
            return field.value == "true"
        case "choices":
            return field.value.splitlines()
        case "integer" | "number":
            kind = int if field.kind == "integer" else float
            try:
                return kind(field.value)
            except ValueError:
                return None
        case _:
            return field.value


def _text(value: Any) -> str:
    """Convert a form value to the text that Sanderling's forms use."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case list():
            return "\n".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return msgspec.json.encode(value).decode()
