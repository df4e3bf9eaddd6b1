"""
Questions of a server to the user during a call: a form to fill in, or a page to open.

In both versions of the protocol the SDK calls these functions: in the older one for the server's own requests, in the newer one for what
a call needs first. A server can have a few questions open, and no more.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

from msgspec.structs import replace

from sanderling.mcp.forms import Form, FormError, Value
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, FormField
from sanderling.text import visible

if TYPE_CHECKING:
    import mcp_types

MAX_OPEN = 4  # of one server
MAX_MESSAGE_CHARS = 2_000
TITLES = {"form": "asks for input", "link": "asks you to open a page"}
LISTED_CELLS = 74  # of the fields' names, in the question's float
MAX_URL_CHARS = 4_000

Ask = Callable[[ApprovalRequested], Awaitable[AnswerApproval]]


class ElicitationAnswer(NamedTuple):
    """The user's answer in the protocol's terms."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Value | None] | None = None


ACTIONS: Mapping[str, Literal["accept", "decline", "cancel"]] = {
    "deny": "decline",
    "cancel": "cancel",
}


class Elicitation:
    """The questions of all servers of a session. `ask` shows one to the user."""

    def __init__(self, project: str, ask: Ask) -> None:
        self._project = project
        self._ask = ask
        self._open = Counter[str]()

    async def form(self, server: str, message: str, schema: Mapping[str, Any]) -> ElicitationAnswer:
        """
        Let the user fill in a form, until it is valid or they give up.

        Raises:
            FormError: the form is invalid.
        """
        form, filled = Form(schema), dict[str, str]()
        question = self._question(server, "form", message, "")
        with self._counted(server) as is_too_many:
            while not is_too_many:
                fields = form.fields(filled)
                question = replace(question, subject=_listed(fields), fields=fields)
                answer = await self._ask(question)
                if answer.answer in ACTIONS:
                    return ElicitationAnswer(ACTIONS[answer.answer])
                filled = answer.values
                try:
                    return ElicitationAnswer("accept", {**form.values(filled)})
                except FormError as error:
                    question = replace(question, reason=str(error))
        return ElicitationAnswer("cancel")

    async def link(self, server: str, message: str, url: str) -> ElicitationAnswer:
        """
        Ask the user to open a page.

        Raises:
            FormError: it is not a page for a browser.
        """
        if len(url) > MAX_URL_CHARS or not _is_page(url):
            raise FormError("its page is not a web address")
        with self._counted(server) as is_too_many:
            if is_too_many:
                return ElicitationAnswer("cancel")
            answer = await self._ask(self._question(server, "link", message, url))
        return ElicitationAnswer(ACTIONS.get(answer.answer, "accept"))

    def _question(
        self, server: str, kind: Literal["form", "link"], message: str, subject: str
    ) -> ApprovalRequested:
        return ApprovalRequested(
            f"{kind}:{uuid4().hex}",
            server,
            TITLES[kind],
            visible(subject),
            visible(message)[:MAX_MESSAGE_CHARS],
            self._project,
            ("once",),
            kind=kind,
        )

    @contextmanager
    def _counted(self, server: str) -> Generator[bool]:
        """Count the question in this context; yield True if the server has too many open already."""
        self._open[server] += 1
        try:
            yield self._open[server] > MAX_OPEN
        finally:
            self._open[server] -= 1


async def answer_in_sdk(
    elicitation: Elicitation, server: str, params: "mcp_types.ElicitRequestParams"
) -> "mcp_types.ElicitResult | mcp_types.ErrorData":
    """Ask in the form of the SDK's callback."""
    import mcp_types

    try:
        if params.mode == "url":
            answer = await elicitation.link(server, params.message, params.url)
        else:
            answer = await elicitation.form(server, params.message, params.requested_schema)
    except FormError as error:
        return mcp_types.ErrorData(code=mcp_types.INVALID_PARAMS, message=str(error))
    return mcp_types.ElicitResult(action=answer.action, content=answer.content)


def _is_page(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and url.isprintable() and " " not in url


def _listed(fields: tuple[FormField, ...]) -> str:
    names = (f"{each.label or each.name}{' (needed)' * each.is_required}" for each in fields)
    return fill(visible(", ".join(names)), LISTED_CELLS, break_long_words=False)
