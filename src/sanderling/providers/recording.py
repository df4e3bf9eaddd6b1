"""
Recordings of a provider's answers as a script that the scripted provider replays (`:help sanderling-script`).

What varies from run to run is left out: durations, and how text was split. Tool uses keep their ids, so that tests can name them.
Reasoning loses its signature, which a script does not need.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import msgspec
from msgspec.structs import replace

from sanderling.errors import ConfigError, ProviderError
from sanderling.paths import replacing
from sanderling.protocol.messages import TextBlock, ThinkingBlock, ToolUse, Usage
from sanderling.providers import (
    BlockDone,
    CacheMissed,
    Delegate,
    ModelRequest,
    Provider,
    ReplyDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    ToolUseBegun,
    UsageReport,
)
from sanderling.providers.redaction import Redactor
from sanderling.providers.scripted import (
    SCRIPT_VERSION,
    Script,
    ScriptedError,
    ScriptedReply,
    ScriptedToolUse,
    ScriptStep,
)

if TYPE_CHECKING:
    from sanderling.protocol.messages import StopReason


class Recording:
    """
    The script at `path`. It can be replayed after each reply, and only its owner can read it.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, path: Path, redactor: Redactor) -> None:
        self.path = path
        self.problem = ""  # why the file is out of date
        self._redactor = redactor
        self._replies: list[ScriptedReply] = []
        self._redacted: list[ScriptedReply] = []
        is_other = path.exists() and not path.is_file()  # a device would be replaced by a file
        if is_other or not os.access(path.parent, os.W_OK):
            raise ConfigError(f"cannot record to {path}: it is not a writable file")

    def add(self, reply: ScriptedReply) -> None:
        known = len(self._redactor.stand_ins)
        self._replies.append(reply)
        self._redacted.append(self._without_secrets(reply))
        if (
            len(self._redactor.stand_ins) > known
        ):  # a newly found secret may occur in earlier replies, too
            self._redacted = list(map(self._without_secrets, self._replies))
        try:
            self._write()
        except OSError as error:
            self.problem = f"{error.strerror}: {self.path}"
        else:
            self.problem = ""

    def _without_secrets(self, reply: ScriptedReply) -> ScriptedReply:
        return replace(reply, step=tuple(map(self._step_without_secrets, reply.step)))

    def _step_without_secrets(self, step: ScriptStep) -> ScriptStep:
        """Redact a step. Names, ids and kinds stay, even if the user's name is the same word."""
        text, use, error = self._redactor.text, step.tool_use, step.error
        if use:
            use_input = self._redactor.value(use.input)
            use = replace(use, input=use_input, problem=text(use.problem))
        if error:
            error = replace(error, message=text(error.message), remedy=text(error.remedy))
        step = replace(step, text=text(step.text), thinking=text(step.thinking))
        return replace(step, tool_use=use, error=error)

    def _write(self) -> None:
        script = msgspec.json.encode(_as_data(Script(SCRIPT_VERSION, tuple(self._redacted))))
        with replacing(self.path, is_durable=False) as file:
            file.write(msgspec.json.format(script, indent=1) + b"\n")


def _as_data(value: Any) -> Any:
    """Return `value` as plain data, without fields that have their defaults."""
    match value:
        case msgspec.Struct():
            fields = (
                (field, getattr(value, field.name)) for field in msgspec.structs.fields(value)
            )
            return {field.name: _as_data(item) for field, item in fields if item != field.default}
        case tuple():
            return [_as_data(item) for item in cast("tuple[Any, ...]", value)]
        case _:
            return value


class RecordingProvider(Delegate):
    """Records each answer of `provider` as it was given: whole, failed, cut off, or stopped by the user."""

    def __init__(self, provider: Provider, recording: Recording) -> None:
        self._provider = provider
        self._recording = recording

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        answer = _AnswerRecord()
        end = ScriptStep(cut=True)
        try:
            async with aclosing(self._provider.stream(request)) as stream:
                async for item in stream:
                    answer.add(item)
                    yield item
        except ProviderError as error:
            end = ScriptStep(error=ScriptedError(error.kind, error.message, error.remedy))
            raise
        except (GeneratorExit, anyio.get_cancelled_exc_class()):
            answer.stop_reason = answer.stop_reason or "cancelled"
            raise
        finally:
            self._recording.add(answer.reply(end, self._provider.answer_limit))


class _AnswerRecord:
    """One answer so far."""

    def __init__(self) -> None:
        self.stop_reason: StopReason | None = None
        self._steps: list[ScriptStep] = []
        self._usage: Usage | None = None
        self._open: list[TextPiece | ThinkingPiece] = []

    def add(self, item: StreamItem) -> None:
        match item:
            case TextPiece() | ThinkingPiece():
                self._open.append(item)
            case BlockDone(block, problem):
                self._open = []
                match block:
                    case TextBlock(text) if text:
                        self._steps.append(ScriptStep(text=text))
                    case ThinkingBlock(thinking) if thinking:
                        self._steps.append(ScriptStep(thinking=thinking))
                    case ToolUse(use_id, name, use_input):
                        use = ScriptedToolUse(name, use_input, use_id, problem)
                        self._steps.append(ScriptStep(tool_use=use))
                    case _:
                        pass  # encrypted reasoning, or an empty block
            case UsageReport(usage):
                self._usage = usage
            case ReplyDone(stop_reason):
                self.stop_reason = stop_reason
            case ToolUseBegun() | CacheMissed():
                pass

    def reply(self, end: ScriptStep, limit: int) -> ScriptedReply:
        """Return the answer so far; `end` is its last step, unless the model or the user ended it, and `limit` is in tokens."""
        steps = [*self._steps, *self._unfinished()]
        if self.stop_reason is None:
            steps.append(end)
        is_limited = self.stop_reason == "max_tokens"
        reply = ScriptedReply(
            tuple(steps), usage=self._usage, max_tokens=limit if is_limited else 0
        )
        return replace(reply, stop_reason=self.stop_reason or reply.stop_reason)

    def _unfinished(self) -> list[ScriptStep]:
        text = "".join(piece.text for piece in self._open)
        if not text:
            return []
        is_text = isinstance(self._open[-1], TextPiece)
        return [ScriptStep(text=text) if is_text else ScriptStep(thinking=text)]
