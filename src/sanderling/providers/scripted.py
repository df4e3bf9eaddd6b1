"""
A provider that replays a script: the demo model, and the model of the tests and the documentation.

A script is a TOML or JSON file (`doc/formats.md`). A reply with `when` answers exactly that prompt; replies without one answer
in order. The prompt `ping` is always answered by `pong`, in one piece, unless the script has its own reply.
"""

import fcntl
import itertools
import os
import re
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
from msgspec.structs import replace

from sanderling.errors import ConfigError, ErrorKind, ProviderError
from sanderling.protocol.messages import (
    Message,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
)
from sanderling.providers import (
    BlockDone,
    ModelLimits,
    ModelRequest,
    PlainProvider,
    ReplyDone,
    StreamItem,
    TextPiece,
    ThinkingPiece,
    UsageReport,
)

SAMPLE_PREFIX, MIN_AGE_S = "sanderling-tour-", 60
SCRIPT_VERSION = 1
LIMITS = ModelLimits(context_window_tokens=200_000)
SIGNATURE = "scripted"  # the API rejects thinking without a signature, but never sees a script's


class ScriptedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: ErrorKind
    message: str
    remedy: str = ""


class ScriptedToolUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without an `id` it gets one; `problem` simulates an input that could not be decoded."""

    name: str
    input: dict[str, Any] = {}
    id: str = ""
    problem: str = ""


class ScriptStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `text`, `thinking`, `tool_use`, `error` or `cut`, after `delay_ms`; or only a delay."""

    text: str = ""
    thinking: str = ""
    tool_use: ScriptedToolUse | None = None
    error: ScriptedError | None = None
    cut: bool = False  # the stream ends without its last event
    delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0
    chunk_chars: Annotated[int, msgspec.Meta(ge=0)] = 0  # 0: in one piece
    chunk_delay_ms: Annotated[float, msgspec.Meta(ge=0)] = 0

    def __post_init__(self) -> None:
        deeds = [
            name for name in ("text", "thinking", "tool_use", "error", "cut") if getattr(self, name)
        ]
        if len(deeds) > 1:
            raise ValueError(f"a step does one thing, this one has {' and '.join(deeds)}")


class ScriptedReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: tuple[ScriptStep, ...]
    when: str = ""
    after: str = ""  # the id of a tool use: this reply answers its result
    repeat: bool = False  # a reply without `when` that answers everything after it
    stop_reason: StopReason = "end_turn"
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] = 0  # the limit that ended it; 0: unknown
    usage: Usage | None = None  # default: estimated, four characters to a token


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    reply: tuple[ScriptedReply, ...]


_AGAIN = re.compile(r"_\d+$")
"""The suffix of a tool use id that was already in the history."""
NO_TOUR = ScriptedReply(
    step=(
        ScriptStep(
            text="The tour needs its own sample project, and this session has none because it began with another model."
            ' Start a session with me: `model = "demo"` in the configuration, or `sanderling -p --model demo tour` in a shell.'
        ),
    ),
    when="tour",
)
PONG = ScriptedReply(step=(ScriptStep(text="pong"),), when="ping")


def load_script(path: Path) -> Script:
    """
    Read a script.

    Raises:
        ConfigError: the file cannot be read or is not a script; the message names the place.
    """
    try:
        text = path.read_text(encoding="utf-8")
        data = _tables(text) if path.suffix == ".toml" else msgspec.json.decode(text)
        script = msgspec.convert(data, Script)
    except OSError as error:
        raise ConfigError(f"cannot read the script {path}: {error.strerror}") from error
    except (ValueError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path} is not a script: {error}") from error
    if script.version != SCRIPT_VERSION:
        raise ConfigError(
            f"{path}: unknown version {script.version} of the script format, only {SCRIPT_VERSION} is known"
        )
    return script


def load_demo(sample: str) -> Script:
    """Load the demo model's script. Its tour uses the project in the directory `sample`; without one there is no tour."""
    text = Path(__file__).with_name("demo.toml").read_text(encoding="utf-8")
    script = msgspec.convert(_tables(text.replace("{sample}", sample)), Script)
    return script if sample else replace(script, reply=(*script.reply, NO_TOUR))


def _tables(text: str) -> dict[str, Any]:
    import tomllib  # needed for TOML scripts only

    return tomllib.loads(text)


def copy_sample(resources: AsyncExitStack) -> str:
    """Copy the tour's project to a temporary directory, which is deleted with `resources`, or by a later copy."""
    _remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=SAMPLE_PREFIX))
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    resources.callback(os.close, lock)
    resources.callback(shutil.rmtree, directory, ignore_errors=True)
    sample = directory / "greeter"
    bundled = Path(__file__).with_name("sample")
    shutil.copytree(bundled, sample, ignore=shutil.ignore_patterns("__pycache__"))
    return str(sample)


def _remove_abandoned() -> None:
    """
    Delete the copies of processes that ended without deleting their own. When Neovim quits, it gives the agent process no time for it.

    A living process has its copy locked. A new copy is not locked yet, but too young to be deleted.
    """
    for directory in Path(tempfile.gettempdir()).glob(f"{SAMPLE_PREFIX}*"):
        with suppress(OSError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                found = os.fstat(lock)
                if found.st_uid == os.getuid() and time.time() - found.st_mtime > MIN_AGE_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(directory)
            finally:
                os.close(lock)


class ScriptedProvider(PlainProvider):
    def __init__(self, script: Script, model: str = "scripted") -> None:
        super().__init__(model)
        self.limits = LIMITS
        self._by_prompt = {PONG.when: PONG} | {r.when: r for r in script.reply if r.when}
        self._by_tool_use = {r.after: r for r in script.reply if r.after}
        self._in_order = [reply for reply in script.reply if not reply.when and not reply.after]
        self._tool_use_ids = (f"scripted-{number}" for number in itertools.count(1))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem]:
        reply = self._reply_to(request.history)
        self.answer_limit = reply.max_tokens
        output_chars = 0
        for step in reply.step:
            await anyio.sleep(step.delay_ms / 1000)
            output_chars += len(step.text) + len(step.thinking)
            if step.error:
                raise ProviderError(step.error.kind, step.error.message, step.error.remedy)
            if step.cut:
                return
            async for item in self._play(step):
                yield item
        yield UsageReport(reply.usage or Usage(_count_chars(request) // 4, output_chars // 4))
        yield ReplyDone(reply.stop_reason)

    def _reply_to(self, history: Sequence[Message]) -> ScriptedReply:
        tool_use_id = _last_tool_use(history)
        for each in (tool_use_id, _AGAIN.sub("", tool_use_id)):
            if answer := self._by_tool_use.get(each):
                return answer
        words = _last_words(history)
        if words in self._by_prompt:
            return self._by_prompt[words]
        if not self._in_order:
            raise ProviderError(
                "internal",
                "The script has no more replies.",
                "Add one, or set repeat = true on its last.",
            )
        return self._in_order[0] if self._in_order[0].repeat else self._in_order.pop(0)

    async def _play(self, step: ScriptStep) -> AsyncGenerator[StreamItem]:
        for piece in _pieces(step.text or step.thinking, step.chunk_chars):
            await anyio.sleep(step.chunk_delay_ms / 1000)
            yield TextPiece(piece) if step.text else ThinkingPiece(piece)
        if step.text:
            yield BlockDone(TextBlock(step.text))
        if step.thinking:
            yield BlockDone(ThinkingBlock(step.thinking, SIGNATURE))
        if use := step.tool_use:
            tool_use_id = use.id or next(self._tool_use_ids)
            yield BlockDone(ToolUse(tool_use_id, use.name, use.input), use.problem)


def _pieces(text: str, chunk_chars: int) -> list[str]:
    size = chunk_chars or len(text) or 1
    return [text[start : start + size] for start in range(0, len(text), size)]


def _last_tool_use(history: Sequence[Message]) -> str:
    results = [block for block in history[-1].content if isinstance(block, ToolResult)]
    return results[-1].tool_use_id if results else ""


def _last_words(history: Sequence[Message]) -> str:
    blocks = history[-1].content
    return next(
        (block.text for block in reversed(blocks) if isinstance(block, TextBlock)), ""
    ).strip()


def _count_chars(request: ModelRequest) -> int:
    return len(request.system) + sum(map(_message_chars, request.history))


def _message_chars(message: Message) -> int:
    return sum(len(block.text) for block in message.content if isinstance(block, TextBlock))
