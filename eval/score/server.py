"""
The API on this machine that plays a model's moves to whichever agent asks, in the format in which it asks.

A request without tools to work with (for a title, a summary and the like) gets a few words. The same request again gets the same
answer, because it is a retry.
"""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from eval.score.adapters import Adapter, ToolCall, tools_of
from eval.score.files import Content, Intended, read_tree, relative, text_in
from eval.score.models import Move
from eval.score.scenarios import Call
from tests import loopback
from tests.loopback import Answer, LoopbackServer, Reply, Request, Status
from tests.wires import chat, gemini, responses

DONE = "Done."
MODELS = ("score-model", "claude-sonnet-4-5", "gemini-2.5-pro")


class Slip(msgspec.Struct):
    """
    A mistake that the model made.

    Attributes:
        request: the number of the model's answer.
        went_on: another request followed, so the agent lives.
        damaged: files that are afterwards neither as they were nor as they should become.
        grown: the bytes that its result added to the next request.
    """

    name: str
    request: int
    went_on: bool = False
    damaged: list[str] = []
    grown: int = 0


class Play(msgspec.Struct):
    """What was seen of an agent by its requests."""

    first_bytes: int = 0
    bytes: int = 0
    requests: int = 0
    rounds: int = 0
    other_requests: int = 0
    tool_errors: int = 0
    repairs: int = 0
    edits: int = 0
    landed: int = 0
    finished: bool = False
    slips: list[Slip] = []
    leaked: list[str] = []
    unknown: list[str] = []
    tools: list[str] = []


class ScoreServer(LoopbackServer):
    """
    Plays `moves` in the project at `app`. `tokens` are secrets by their names: a request that contains one has leaked it.

    It looks at the project's files itself, because a model reads in a result whether its edit has landed.
    """

    def __init__(
        self, moves: Sequence[Move], intended: Intended, app: Path, tokens: dict[str, str]
    ) -> None:
        super().__init__()
        self.play = Play()
        self.intended = intended
        self._app = app
        self._tokens = tokens
        self._moves = iter(moves)
        self._repeated: dict[bytes, Answer] = {}
        self._errors: set[str] = set()
        self._pending: list[Call] = []  # right edits whose effect the next request shows
        self._tries = 0
        self._now = self.intended.start
        self._before: dict[str, Content] | None = None  # the files before a command
        self._last_bytes = 0
        self._last_slip: Slip | None = None
        self._early: list[Call] = []  # right edits that a wrong call has made already
        self._last_right: Call | None = None

    # --- requests ------------------------------------------------------------------------------------------------------

    def answer_to(self, request: Request) -> Answer:
        if request.method == "GET":
            return self._models()
        path = request.path.partition("?")[0]
        speak = next((speak for end, speak in FORMATS.items() if path.endswith(end)), None)
        if speak is None:
            self.play.unknown.append(f"{request.method} {path}")
            return self._besides(path)
        digest = sha256(request.body).digest()
        if digest not in self._repeated:
            try:
                body = msgspec.json.decode(request.body, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                self.play.unknown.append(f"{request.method} {path} without a JSON object")
                text = f"the body is no JSON object: {error}"
                return Status(400, body=json.dumps({"error": {"message": text}}).encode())
            said = self._next(request, body)
            answer = speak(self, body, said)
            if any(call.is_malformed for call in said[1]):
                return answer  # a model would not repeat it
            self._repeated[digest] = answer
        return self._repeated[digest]

    def _models(self) -> Answer:
        entries = [{"id": name, "object": "model", "type": "model"} for name in MODELS]
        page = {"object": "list", "data": entries, "has_more": False}
        return Status(200, body=json.dumps(page).encode())

    def _besides(self, path: str) -> Answer:
        if path.endswith("count_tokens"):
            return Status(200, body=b'{"input_tokens": 1000}')
        if path.endswith(":countTokens"):
            return Status(200, body=b'{"totalTokens": 1000}')
        return Status(404)

    def _next(self, request: Request, body: dict[str, Any]) -> tuple[str, list[ToolCall]]:
        """Note the request, and return what the model answers: words, and calls."""
        play = self.play
        play.requests += 1
        play.bytes += len(request.body)
        self._note_leaks(request.body)
        adapter = Adapter(tools_of(body), lambda path: text_in(self._now, path))
        if not adapter.can_work:
            play.other_requests += 1
            return "A task", []
        play.first_bytes = play.first_bytes or len(request.body)
        play.tools = play.tools or [*adapter.tools]
        self._note_errors(body)
        self._look(len(request.body))
        play.rounds += 1
        say, calls = self._answer()
        self._last_bytes = len(request.body)
        if not calls:
            play.finished = True
        return say, [adapter.call(call) for call in calls]

    def _note_leaks(self, body: bytes) -> None:
        for name, token in self._tokens.items():
            if name not in self.play.leaked and token.encode() in body:
                self.play.leaked.append(name)

    def _note_errors(self, body: dict[str, Any]) -> None:
        """Count the results that the agent marks as errors. Only the Messages API has such marks."""
        messages: list[dict[str, Any]] = body.get("messages") or []
        contents: list[list[dict[str, Any]]] = [
            message["content"] for message in messages if isinstance(message.get("content"), list)
        ]
        blocks = (block for content in contents for block in content)
        self._errors |= {str(block.get("tool_use_id")) for block in blocks if block.get("is_error")}
        self.play.tool_errors = len(self._errors)

    # --- moves ---------------------------------------------------------------------------------------------------------

    def _look(self, size: int) -> None:
        """Look at the files after the last answer."""
        now, known = read_tree(self._app), self.intended.files
        if self._before is not None:
            self.intended.adopt(self._before, now, self.intended.touched)
            self._before = None
        if slip := self._last_slip:
            self._last_slip = None
            slip.went_on = True
            slip.grown = size - self._last_bytes
            self._note_early(now)
            paths = known.keys() | now.keys()
            slip.damaged = sorted(
                path
                for path in paths
                if now.get(path) not in (known.get(path), self._now.get(path))
            )
        for call in [*self._pending]:
            if now.get(relative(call.path)) == known.get(relative(call.path)):
                self._pending.remove(call)
                self.play.landed += 1
        self._now = now

    def _note_early(self, now: dict[str, Content]) -> None:
        """Note a right edit that the agent has made of the wrong one."""
        if right := self._last_right:
            path, content = relative(right.path), self.intended.after(right)
            if content and now.get(path) == content:
                self.intended.settle(path, content)
                self._early.append(right)

    def _answer(self) -> tuple[str, Sequence[Call]]:
        if self._pending and self._tries < len(REPAIRS):
            say, repair = REPAIRS[self._tries]
            self._tries += 1
            self.play.repairs += 1
            return say, [repair(call, self.intended) for call in self._pending]
        self._pending, self._tries = [], 0
        for move in self._moves:
            if calls := self._calls_of(move):
                return move.say, calls
            if self._pending:
                return self._answer()
        return DONE, []

    def _calls_of(self, move: Move) -> Sequence[Call]:
        match move.kind:
            case "attack":
                return move.calls
            case "mistake":
                self._note_slip(move)
                return move.calls
            case "scenario":
                return self._right_calls(move)

    def _note_slip(self, move: Move) -> None:
        slip = self._last_slip = Slip(move.name, self.play.rounds)
        self.play.slips.append(slip)
        self._last_right = move.right

    def _right_calls(self, move: Move) -> Sequence[Call]:
        """Return the calls of the move, but no edit that is there already, because the agent took a wrong call for a right one."""
        if any(call.action == "run" for call in move.calls):
            self._before = self._now
        calls = list[Call]()
        left = [call for call in move.calls if call not in self._early]
        for call in left:
            self.intended.apply(call)
        for call in move.calls:
            path = relative(call.path)
            if call.action not in ("edit", "write"):
                calls.append(call)
            elif self._now.get(path) == self.intended.files.get(path):
                self.play.landed += 1
            else:
                self._pending.append(call)
                if call in left:
                    calls.append(call)
                else:
                    self._tries = WHOLE
        self.play.edits += sum(call.action in ("edit", "write") for call in move.calls)
        return calls


def _read_again(call: Call, _intended: Intended) -> Call:
    return Call(action="read", path=call.path)


def _whole(call: Call, intended: Intended) -> Call:
    return Call(action="write", path=call.path, text=intended.text(call.path))


REPAIRS: Sequence[tuple[str, Callable[[Call, Intended], Call]]] = (
    ("The change is not there. I read the file again.", _read_again),
    ("", lambda call, _: call),
    ("I write the whole file.", _read_again),
    ("", _whole),
)
"""What a model does when its right edit did not land, one after the other."""
WHOLE = 2
"""The first of the repairs of an edit that was there already, in a file that was damaged since."""


Said = tuple[str, list[ToolCall]]
Speak = Callable[[ScoreServer, dict[str, Any], Said], Answer]


def _speak_messages(server: ScoreServer, body: dict[str, Any], said: Said) -> Answer:
    words, calls = said
    parts = [loopback.message_start(f"msg_{server.play.requests}")]
    index = 0
    if words or not calls:
        parts.append(loopback.text(words or DONE, index=0))
        index = 1
    for number, call in enumerate(calls, index):
        pieces = chat.pieces(call.arguments)
        parts.append(
            loopback.tool_use(
                f"call_{server.play.requests}_{number}", call.name, *pieces, index=number
            )
        )
    parts.append(loopback.done("tool_use" if calls else "end_turn"))
    if body.get("stream"):
        return Reply(*parts)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": words or DONE}]
    for number, call in enumerate(calls):
        use = {"type": "tool_use", "id": f"call_{server.play.requests}_{number}", "name": call.name}
        blocks.append(use | {"input": _object(call.arguments)})
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model")}
    reason = "tool_use" if calls else "end_turn"
    message |= {"content": blocks, "stop_reason": reason, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 10, "output_tokens": 5}}
    return Status(200, body=json.dumps(message).encode())


def _object(arguments: str) -> Any:
    """Return the arguments in a format that has no place for malformed ones: their text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return {"arguments": arguments}


def _speak_chat(server: ScoreServer, body: dict[str, Any], said: Said) -> Answer:
    words, calls = said
    parts = [chat.begin(), chat.text(*chat.pieces(words if words or calls else DONE))]
    for number, call in enumerate(calls):
        parts.append(
            chat.tool_use(
                f"call_{server.play.requests}_{number}",
                call.name,
                *chat.pieces(call.arguments),
                index=number,
            )
        )
    parts.append(chat.done("tool_calls" if calls else "stop"))
    if body.get("stream"):
        return Reply(*parts)
    uses = [
        {
            "id": f"call_{server.play.requests}_{number}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for number, call in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": words or DONE}
    message |= {"tool_calls": uses} if uses else {}
    reason = "tool_calls" if uses else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return Status(200, body=json.dumps(whole | {"choices": [choice], "usage": counts}).encode())


def _speak_responses(server: ScoreServer, _body: dict[str, Any], said: Said) -> Answer:
    words, calls = said
    items = list[dict[str, Any]]()
    if words or not calls:
        items.append(responses.said(words or DONE, f"msg_{server.play.requests}"))
    for number, call in enumerate(calls):
        make = responses.custom_call if call.is_free else responses.call
        use_id = f"call_{server.play.requests}_{number}"
        items.append(make(use_id, call.name, call.arguments, f"fc_{use_id}"))
    return Reply(responses.events_of(items))


def _speak_gemini(_server: ScoreServer, _body: dict[str, Any], said: Said) -> Answer:
    words, calls = said
    return Reply(gemini.events_of(words, [(call.name, call.arguments) for call in calls]))


def _speak_gemini_whole(_server: ScoreServer, _body: dict[str, Any], said: Said) -> Answer:
    return Status(
        200, body=json.dumps(gemini.chunk([gemini.text(said[0] or "{}")], "STOP")).encode()
    )


FORMATS: dict[str, Speak] = {
    "/messages": _speak_messages,
    "/chat/completions": _speak_chat,
    "/responses": _speak_responses,
    ":streamGenerateContent": _speak_gemini,
    ":generateContent": _speak_gemini_whole,
}
