"""
A server that renders each request with a model's real chat template, as llama.cpp does, and reports the template's error as it does.

llama.cpp first finds out what a template takes (common/jinja/caps.cpp), then changes the messages accordingly (common/chat.cpp).
"""

import json
from copy import deepcopy
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NoReturn

import jinja2
import jinja2.nodes
import jinja2.parser
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import SandboxedEnvironment

from tests.loopback import Answer, Request
from tests.wires.servers import ChatServer

Messages = list[dict[str, Any]]

TOOL = {
    "type": "function",
    "function": {
        "name": "tool1",
        "description": "Do it.",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "An argument."}},
            "required": ["arg"],
        },
    },
}
ASKED = {"role": "user", "content": "asked-marker"}
ANSWERED = {"role": "assistant", "content": "The answer."}


def _raise(words: str) -> NoReturn:
    raise jinja2.TemplateError(words)


def _as_json(value: Any, indent: int | None = None, **options: Any) -> str:
    options = {"ensure_ascii": False, "default": list} | options
    return json.dumps(value, indent=indent, **options)


def _now(form: str) -> str:
    return datetime.now(UTC).strftime(form)


class Generation(Extension):
    """The block that marks the model's own words, for training."""

    tags = frozenset(("generation",))

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


class ChatTemplate:
    """A template as llama.cpp and transformers render it."""

    def __init__(self, source: str) -> None:
        environment = SandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
        )
        environment.filters["tojson"] = _as_json
        environment.globals |= {"raise_exception": _raise, "strftime_now": _now}
        self._template = environment.from_string(source)

    def rendered(self, messages: Messages, tools: list[dict[str, Any]]) -> str:
        """Return the prompt for a request's messages and tools; raise what the template raises."""
        messages = deepcopy(messages)
        if not self.takes_system and messages[0]["role"] == "system":
            system, first = messages[:2]
            messages[:2] = [{**first, "content": f"{system['content']}\n{first['content']}"}]
        for message in messages:
            message["content"] = self._content(message.get("content"))
            for call in message.get("tool_calls", ()) if self.takes_objects else ():
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return self._rendered(messages, tools)

    @cached_property
    def takes_system(self) -> bool:
        said = {"role": "system", "content": "system-marker"}
        return "system-marker" in self._tried([said, ASKED])

    @cached_property
    def takes_objects(self) -> bool:
        """The arguments of a call, as an object; else they are JSON."""
        shown = self._tried(self._with_call({"arg": "value"}))
        return bool(shown) and "{'arg': 'value'}" not in shown

    @cached_property
    def shows_results(self) -> bool:
        """False if the template has no role for tools."""
        arguments = {"arg": "value"} if self.takes_objects else '{"arg": "value"}'
        return "result-marker" in self._tried(self._with_call(arguments))

    @cached_property
    def _takes_text(self) -> bool:
        return "asked-marker" in self._tried([ASKED])

    def _content(self, content: Any) -> Any:
        if isinstance(content, list) and self._takes_text:
            return "\n".join(part["text"] for part in content)
        if isinstance(content, str) and not self._takes_text:
            return [{"type": "text", "text": content}]
        return "" if content is None else content

    def _with_call(self, arguments: Any) -> Messages:
        function = {"name": "tool1", "arguments": arguments}
        call = {"id": "call00001", "type": "function", "function": function}
        calls = {"role": "assistant", "content": "", "tool_calls": [call]}
        result = {"role": "tool", "content": "result-marker", "tool_call_id": "call00001"}
        return [ASKED, calls, result, ANSWERED, ASKED]

    def _tried(self, messages: Messages) -> str:
        try:
            return self._rendered(messages, [TOOL])
        except (jinja2.TemplateError, TypeError, KeyError, ValueError):
            return ""

    def _rendered(self, messages: Messages, tools: list[dict[str, Any]]) -> str:
        return self._template.render(
            messages=messages,
            tools=tools,
            functions=_as_json(tools),  # for Firefunction
            datetime=_now("%b %d %Y"),
            bos_token="<s>",
            eos_token="</s>",
            add_generation_prompt=True,
        )


class TemplateServer(ChatServer):
    """Answers what `template` can render, and refuses the rest with `status`."""

    def __init__(self, template: ChatTemplate, status: int) -> None:
        super().__init__()
        self._template, self._status = template, status
        self.shown: list[str] = []
        self.refused: list[str] = []

    def answer_to(self, request: Request) -> Answer:
        if request.path == self.prompt_path:
            body = request.json()
            try:
                self.shown.append(self._template.rendered(body["messages"], body["tools"]))
            except (jinja2.TemplateError, TypeError, KeyError) as error:
                self.refused.append(str(error))
                words = f"\n------------\nWhile executing CallExpression at line 1, column 1 in source:\n   ^\nError: Jinja Exception: {error}"
                return self.refusal(words, self._status)
        return super().answer_to(request)
