"""Export of a session as Markdown; and its last answer, for a prompt that mentions it."""

import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from sanderling.errors import SessionError
from sanderling.protocol.messages import (
    CommandRecord,
    Message,
    Prompt,
    StopReason,
    TextBlock,
    ToolResult,
    ToolUse,
    Usage,
    kind_of,
)
from sanderling.session.history import input_line
from sanderling.session.ledger import prompt_tokens
from sanderling.session.log import log_path, opened, records_of
from sanderling.session.records import (
    Header,
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedTurnEnd,
    LoggedUndo,
    LoggedUsage,
    Record,
    ToolRecords,
    without_left_ends,
)
from sanderling.session.titles import prompt_title, title_of
from sanderling.text import fence_around, printable

MAX_FOLD_CHARS = 8_000
_FENCE = r" {0,3}(`{3,}|~{3,})(.*)"
ENDINGS: dict[StopReason, str] = {
    "max_tokens": "The answer was cut off at the model's limit.",
    "refusal": "The model refused to answer.",
    "context_full": "The model's context window was full.",
    "cancelled": "Stopped.",
    "interrupted": "Interrupted.",
    "error": "Failed.",
    "max_calls": "Stopped at the limit of requests per turn.",
    "budget": "Stopped at the session's budget.",
}


def export_markdown(session_dir: Path, session_id: str) -> str:
    """
    Return a session's conversation as Markdown, with tool calls folded and long texts cut.

    Raises:
        SessionError: the session does not exist or its log cannot be read.
    """
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        header, lines = records_of(log, file)
        records = list(lines)
    conversation = _Conversation(records)
    sections = [_head(header, records)]
    for record in without_left_ends(records):
        sections += conversation.sections(record)
    sections += conversation.rest()
    return printable("\n\n".join(section.strip("\n") for section in sections)) + "\n"


def write_export(path: str, text: str) -> None:
    """
    Write `text` to a new file.

    Raises:
        SessionError: the file exists or cannot be written.
    """
    target = Path(path)
    try:
        with target.open("x", encoding="utf-8") as file:
            try:
                file.write(text)
                file.flush()
            except OSError:
                target.unlink()  # half a file is no use, and would block another try
                raise
    except FileExistsError:
        raise SessionError(f"{path} already exists: choose another name") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        words = getattr(error, "strerror", None) or str(error)
        raise SessionError(f"Cannot write {path!r}: {words}. Export to another path.") from error


def _head(header: Header, records: Iterable[Record]) -> str:
    named = asked = ""
    models: list[str] = []
    usage = Usage()
    for record in records:
        match record:
            case LoggedState(key="title", value=str(title)):
                named = title
            case LoggedMessage(prompt=Prompt() as prompt):
                asked = asked or title_of(prompt.text)
            case LoggedUsage(model=model, usage=used):
                usage += used
                models += () if model in models else (model,)
            case _:
                pass
    taken = prompt_tokens(usage)
    cached = f" ({usage.cache_read_input_tokens / taken:.0%} cached)" if taken else ""
    return "\n".join(
        (
            f"# {_one_line(named or asked) or 'A session without words'}\n",
            f"* Date: {header.at:%Y-%m-%d %H:%M} UTC",
            f"* Project: {_code(header.project)}",
            f"* Model: {', '.join(models) or 'unknown'}",
            f"* Tokens: {taken:,} in{cached}, {usage.output_tokens:,} out",
            f"* Session: {header.session_id}",
            *([f"* Parent: {header.parent}"] if header.parent else ()),
        )
    )


class _Conversation:
    """Converts records to sections of Markdown."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._tools = ToolRecords(records)
        self._is_answering = False
        self._pieces = ""  # of an answer without a message yet

    def sections(self, record: Record) -> Iterator[str]:
        match record:
            case LoggedMessage():
                self._pieces = ""
                yield from self._message(record)
            case LoggedPartial(block="text", text=text):
                self._pieces += text
            case LoggedRestart():
                self._pieces = ""
            case LoggedTurnEnd(stop_reason=stop_reason, error=error):
                self._pieces = ""
                if note := error or ENDINGS.get(stop_reason, ""):
                    yield _note(note)
            case _:
                yield from _aside(record)

    def rest(self) -> Iterator[str]:
        """Yield the pieces of an unfinished answer: the session is open, or was killed."""
        if self._pieces.strip():
            yield from self._answer(_closed(self._pieces))

    def _message(self, record: LoggedMessage) -> Iterator[str]:
        if record.prompt:
            yield from self._prompt("You", record.prompt)
        for prompt in record.steered:
            yield from self._prompt("You (steering)", prompt)
        if record.message.role == "assistant":
            for block in record.message.content:
                match block:
                    case TextBlock(text):
                        yield from self._answer(_closed(text))
                    case ToolUse():
                        yield from self._answer(self._tool_use(block))
                    case _:
                        pass

    def _prompt(self, who: str, prompt: Prompt) -> Iterator[str]:
        self._is_answering = False
        yield f"## {who}"
        for selection in prompt.selections:
            if selection.media_type:
                yield f"{_code(selection.path)}: an image"
                continue
            place = f"{selection.path}:{selection.first_line}-{selection.last_line}"
            yield f"{_code(place)}:\n\n{_fenced(selection.text, selection.filetype)}"
        yield _closed(prompt.text)

    def _answer(self, section: str) -> Iterator[str]:
        if not self._is_answering:
            self._is_answering = True
            yield "## Sanderling"
        yield section

    def _tool_use(self, use: ToolUse) -> str:
        end = self._tools.ended.get(use.id) or LoggedToolEnd(use.id)
        result = self._tools.results.get(use.id) or end.result
        is_error = end.is_error or bool(result and result.is_error)
        outcome = end.summary or ("failed" if is_error else "")
        result_text = _told(result) if result else "No result."
        shown = end.block(result_text) or result_text
        line = f"<b>{html.escape(use.name)}</b> <code>{html.escape(end.title or input_line(use))}</code>"
        return _fold(f"{line} {html.escape(outcome)}", _fenced(shown, end.filetype))


def _aside(record: Record) -> Iterator[str]:
    match record:
        case LoggedCommand(record=CommandRecord(command, output, ending)):
            line = f"You ran <code>{html.escape(_one_line(command))}</code>: it {html.escape(ending.description)}"
            yield _fold(line, _fenced(f"$ {command}\n{output}"))
        case LoggedClearing(before_tokens=before, after_tokens=after):
            yield _note(f"Old tool results were cleared: {before:,} → {after:,} tokens.")
        case LoggedSummary(before_tokens=before, after_tokens=after, summary=summary):
            line = f"The model continues from a summary: {before:,} → {after:,} tokens"
            yield _fold(line, _fenced(summary, "markdown"))
        case LoggedUndo():
            yield _note("The last compaction was undone.")
        case _:
            pass


def _told(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(
        block.text if isinstance(block, TextBlock) else f"[{kind_of(block)}]"
        for block in result.content
    )


def _note(text: str) -> str:
    return f"> {html.escape(_one_line(text), quote=False)}"


def _fold(line: str, content: str) -> str:
    return f"<details>\n<summary>{line.strip()}</summary>\n\n{content}\n\n</details>"


def _code(text: str) -> str:
    """Return inline code, delimited by more backticks than it contains."""
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " * (text.startswith("`") or text.endswith("`"))
    return f"{ticks}{space}{text}{space}{ticks}"


def _fenced(text: str, filetype: str = "") -> str:
    """Return a code block that its content cannot close. Long texts are cut at the end."""
    if len(text) > MAX_FOLD_CHARS:
        left_out = len(text) - MAX_FOLD_CHARS
        text = f"{text[:MAX_FOLD_CHARS]}\n[… {left_out:,} characters omitted]"
    fence = fence_around(text)
    return f"{fence}{filetype}\n{text.rstrip()}\n{fence}"


def _closed(text: str) -> str:
    """Close a code block that `text` leaves open, because it would swallow everything after it."""
    fence = ""
    for line in text.splitlines():
        found = re.match(_FENCE, line)
        if not found:
            continue
        run, rest = found.groups()
        if not fence:
            fence = run if run[0] == "~" or "`" not in rest else ""
        elif run[0] == fence[0] and len(run) >= len(fence) and not rest.strip():
            fence = ""
    return f"{text.rstrip()}\n{fence}" if fence else text


def _one_line(text: str) -> str:
    return " ".join(text.split())


class LastWords(msgspec.Struct, frozen=True):
    """The title of a session and its last answer, preceded by its summary if it has one."""

    title: str
    text: str


def last_words(session_dir: Path, session_id: str) -> LastWords:
    """
    Return the last answer of a session, and its summary.

    Raises:
        SessionError: the session does not exist, its log cannot be read, or it has no answer.
    """
    title = named = summary = answer = ""
    log = log_path(session_dir, session_id)
    with opened(log) as file:
        _, records = records_of(log, file)
        for record in records:
            match record:
                case LoggedState(key="title", value=str(named)):
                    pass
                case LoggedSummary(summary=summary):
                    pass
                case LoggedMessage(message=message, prompt=prompt):
                    title = title or (prompt_title(prompt.text) if prompt else "")
                    answer = _text(message) or answer
                case _:
                    pass
    if not answer:
        raise SessionError("it has no answer yet")
    before = f"Summary of what came before:\n\n{summary}\n\n" if summary else ""
    return LastWords(named or title, f"{before}{answer}")


def _text(message: Message) -> str:
    if message.role == "user":
        return ""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    return "\n\n".join(filter(str.strip, texts))
