"""
Compaction: shortens the conversation that the model sees when it outgrows the context window.

First the results of old tool calls are cleared: a line says what was there, and the model can get it again. If that is not enough, a
summary that the model writes replaces everything, followed by the user's latest prompts verbatim. The log and the screen keep all of it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from sanderling.conversation.prompt import place_of, prompt_blocks
from sanderling.protocol.messages import (
    ContentBlock,
    DocumentBlock,
    ImageBlock,
    Message,
    Prompt,
    RedactedThinkingBlock,
    ResultBlock,
    ServerBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.session.history import input_line
from sanderling.text import counted

WINDOW_SHARE, LEAST_WINDOW_SHARE = 0.8, 0.5
# In a small window (half of Ollama's advice for agents), half of it would be due at every second prompt: instructions and tools alone
# fill a quarter of 8,192 tokens. If an answer does not fit, the API says so, and the conversation is shortened then.
SMALL_WINDOW_TOKENS, SMALL_WINDOW_SHARE = 32_768, 0.75
SPARE_TOKENS = 20_000  # what one message of tool results may add before usage is known again
KEPT_RESULT_TOKENS = 40_000
# Less is not worth losing the API's cache from the first change on.
LEAST_FREED_TOKENS = 20_000
KEPT_PROMPT_TOKENS = 20_000
MIN_CLEARED_CHARS = 1_000
MAX_REFUSAL_CHARS = 500
BYTES_PER_TOKEN = 4
DEFAULT_MAX_OUTPUT_TOKENS = 32_000
IMAGE_TOKENS = 1_600  # the API scales larger images down to this
PAGE_TOKENS = 3_000  # of a PDF: its text and its picture

_REFUSAL = (
    r"(?i)\W*(?:(?:I['\u2019]m |I am )?sorry|I apologi[sz]e|I can(?:['\u2019]t|not| not)|I won['\u2019]t"
    r"|I(?:['\u2019]m| am) (?:not able|unable))\b"
)

SUMMARY_FRAME = """\
[Sanderling] The conversation no longer fit your context window. You wrote this summary of it, which replaces it. Files may have changed \
since: read them before you change them.

<summary>
{summary}
</summary>"""
PROMPTS_FRAME = "[Sanderling] The user's latest prompts, verbatim, oldest first:"
NOTES_FRAME = "[Sanderling] Current state:"
GO_ON = """\
[Sanderling] You were in the middle of the work for the last of these prompts. Continue where it stopped: do not start over, do \
not repeat what is done, and do not mention the summary."""


# --- when --------------------------------------------------------------------------------------------------------------


def limit_tokens(window_tokens: int, max_output_tokens: int) -> int:
    """Return how many tokens may fill the window. The answer and a round of tool results must still fit; half is always allowed, and more of a small window."""
    least = SMALL_WINDOW_SHARE if window_tokens <= SMALL_WINDOW_TOKENS else LEAST_WINDOW_SHARE
    room = window_tokens - max_output_tokens - SPARE_TOKENS
    return int(max(min(WINDOW_SHARE * window_tokens, room), least * window_tokens))


def share_of(window_tokens: int, usual: int, share: int) -> int:
    """Return `usual` tokens, or the window's `share`-th part if that is less; the window may be unknown (0)."""
    return min(usual, window_tokens // share) if window_tokens else usual


def is_due(used: int, window_tokens: int, max_output_tokens: int) -> bool:
    """Return whether to compact before the next request; never if the window is unknown (0)."""
    return window_tokens > 0 and used > limit_tokens(window_tokens, max_output_tokens)


def estimated_tokens(messages: Iterable[Message]) -> int:
    """Estimate the tokens of `messages`, at four bytes each."""
    return sum(_block_tokens(block) for message in messages for block in message.content)


def _block_tokens(block: ContentBlock) -> int:
    match block:
        case TextBlock(text):
            return _text_tokens(text)
        case ThinkingBlock(thinking=text) | RedactedThinkingBlock(data=text):
            return _text_tokens(text)
        case ServerBlock(data):
            return len(msgspec.json.encode(data)) // BYTES_PER_TOKEN
        case ToolUse(name=name, input=data):
            return (len(name) + len(msgspec.json.encode(data))) // BYTES_PER_TOKEN
        case ToolResult():
            return _result_tokens(block)
        case ImageBlock():
            return IMAGE_TOKENS


def _result_tokens(result: ToolResult) -> int:
    if isinstance(result.content, str):
        return _text_tokens(result.content)
    return sum(map(_part_tokens, result.content))


def _part_tokens(part: ResultBlock) -> int:
    match part:
        case TextBlock(text):
            return _text_tokens(text)
        case ImageBlock():
            return IMAGE_TOKENS
        case DocumentBlock(pages=pages):
            return PAGE_TOKENS * max(1, pages)


def _text_tokens(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN


# --- old results -------------------------------------------------------------------------------------------------------


def cleared_results(
    history: Sequence[Message],
    *,
    factor: float = 1.0,
    kept_tokens: int = KEPT_RESULT_TOKENS,
    least_freed: int = LEAST_FREED_TOKENS,
) -> dict[str, str]:
    """
    Return replacement texts for the results of old tool calls, by id; empty if clearing would not free enough.

    The newest results stay: at least `kept_tokens` of them, and those in the last message, which the model has not seen yet. `factor` is
    the ratio of real to estimated tokens.
    """
    uses = {
        block.id: block
        for message in history
        for block in message.content
        if isinstance(block, ToolUse)
    }
    texts: dict[str, str] = {}
    newer_tokens = freed_tokens = 0.0
    for result, is_last in _results_from_newest(history):
        tokens = _result_tokens(result) * factor
        if not is_last and newer_tokens >= kept_tokens and _is_worth_clearing(result):
            text = _text_instead(uses.get(result.tool_use_id), result)
            texts[result.tool_use_id] = text
            freed_tokens += tokens - _text_tokens(text) * factor
        newer_tokens += tokens
    return texts if freed_tokens >= least_freed else {}


def _results_from_newest(history: Sequence[Message]) -> Iterator[tuple[ToolResult, bool]]:
    """Yield each tool result, newest first, and whether it is in the last message."""
    for message in reversed(history):
        for block in reversed(message.content):
            if isinstance(block, ToolResult):
                yield block, message is history[-1]


def _is_worth_clearing(result: ToolResult) -> bool:
    return not isinstance(result.content, str) or len(result.content) >= MIN_CLEARED_CHARS


def _text_instead(use: ToolUse | None, result: ToolResult) -> str:
    what = f'{use.name} "{input_line(use)}"{_range(use, result)}' if use else "a tool"
    return f"[cleared: the result of {what} ({_size(result)}); get it again if you need it]"


def _range(use: ToolUse, result: ToolResult) -> str:
    """Return the lines that a result of `read` had, of those that a file has."""
    if use.name != "read" or not isinstance(result.content, str):
        return ""
    extent = re.match(r"\((lines [\d,]+-[\d,]+) of", result.content.rpartition("\n")[2])
    return f", {extent[1]}" if extent else ""


def _size(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return f"{len(result.content):,} characters"
    chars = sum(len(block.text) for block in result.content if isinstance(block, TextBlock))
    images = sum(isinstance(block, ImageBlock) for block in result.content)
    pdfs = (block.pages for block in result.content if isinstance(block, DocumentBlock))
    parts = (
        counted(images, "image") if images else "",
        *(f"a PDF of {counted(pages, 'page')}" for pages in pdfs),
        f"{chars:,} characters" if chars else "",
    )
    return ", ".join(filter(None, parts)) or "empty"


# --- the summary -------------------------------------------------------------------------------------------------------


def summary_prompt(focus: str = "") -> Message:
    """Return the message, after the history, that asks the model for a summary. `focus` says what matters to the user."""
    text = Path(__file__).with_name("compaction_prompt.md").read_text(encoding="utf-8")
    if focus.strip():
        text += f"\nThe user asks you to keep above all: {focus.strip()}\n"
    return Message("user", (TextBlock(text),))


def newer_half(history: Sequence[Message], start: int) -> int:
    """Return the index of a user message near the middle of the history after `start`, or 0."""
    middle = start + max(1, (len(history) - start) // 2)
    for index, message in enumerate(history[middle:], middle):
        is_answer = any(isinstance(block, ToolResult) for block in message.content)
        if message.role == "user" and not is_answer:
            return index
    return 0


def problem_of(summary: str, stop_reason: StopReason = "end_turn") -> str:
    """Return why a summary is unusable; empty if it is fine."""
    text = summary.strip()
    if stop_reason == "refusal" or (len(text) < MAX_REFUSAL_CHARS and re.match(_REFUSAL, text)):
        return "the model refused to write one"
    if stop_reason in {"max_tokens", "context_full"}:
        return "it was cut off at the model's limit"
    if stop_reason not in {"end_turn", "stop_sequence"}:
        return "it was not finished"
    return "" if text else "the model wrote nothing"


def compacted(
    summary: str,
    prompts: Sequence[Prompt],
    notes: Sequence[str] = (),
    *,
    is_in_turn: bool,
    prompt_tokens: int = KEPT_PROMPT_TOKENS,
) -> tuple[Message, ...]:
    """
    Return the messages that replace the conversation.

    `prompts` are all prompts of the session, oldest first. `notes` describe the current state: todo list, mode. `is_in_turn`: the model
    must continue at once with the work for the last prompt.
    """
    recent = _recent(prompts, prompt_tokens)
    texts = (
        SUMMARY_FRAME.replace("{summary}", summary.strip()),
        *((PROMPTS_FRAME, *recent) if recent else ()),
        *((NOTES_FRAME, *notes) if any(note.strip() for note in notes) else ()),
        GO_ON if is_in_turn else "",
    )
    return (Message("user", tuple(TextBlock(text) for text in texts if text.strip())),)


def _recent(prompts: Sequence[Prompt], room: int) -> list[str]:
    """Return the newest prompts that fit, oldest first. If the newest does not fit, it is shortened."""
    kept: list[str] = []
    for prompt in reversed(prompts):
        text = _shown(prompt)
        if _text_tokens(text) > room:
            if not kept:
                kept.append(_shortened(prompt, room))
            break
        room -= _text_tokens(text)
        kept.append(text)
    return kept[::-1]


def _shown(prompt: Prompt) -> str:
    return "\n\n".join(
        block.text if isinstance(block, TextBlock) else "[image omitted]"
        for block in prompt_blocks(prompt)
    )


def _shortened(prompt: Prompt, room: int) -> str:
    """Return the text of `prompt` without its attached lines; of a very long text the beginning and the end."""
    places = ", ".join(map(place_of, prompt.selections))
    lines = f"[Attached lines, omitted here: {places}]\n\n" if places else ""
    half = room * BYTES_PER_TOKEN // 2
    data = prompt.text.encode("utf-8", "surrogatepass")
    if len(data) <= 2 * half:
        return lines + prompt.text
    head, tail = (part.decode("utf-8", "ignore") for part in (data[:half], data[-half:]))
    left_out = len(prompt.text) - len(head) - len(tail)
    return f"{lines}{head}\n[… {left_out:,} characters omitted …]\n{tail}"
