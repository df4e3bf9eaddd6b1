"""
Makes room in the model's context window before it is full: clears old tool results first, then replaces everything by a summary.

The session's log and the transcript keep everything, so a compaction can be undone.
"""

from collections.abc import Callable

from sanderling.conversation.compaction import (
    DEFAULT_MAX_OUTPUT_TOKENS,
    KEPT_PROMPT_TOKENS,
    KEPT_RESULT_TOKENS,
    LEAST_FREED_TOKENS,
    cleared_results,
    compacted,
    estimated_tokens,
    is_due,
    newer_half,
    problem_of,
    share_of,
    summary_prompt,
)
from sanderling.conversation.hooked import SessionHooks, Trigger
from sanderling.conversation.memory import Memory
from sanderling.conversation.model_calls import ModelCalls
from sanderling.conversation.notes import Notes
from sanderling.errors import ProviderError
from sanderling.protocol.events import Compacted, CompactionStarted, CompactionUndone, Event, Notice
from sanderling.providers import Provider
from sanderling.session.history import with_results
from sanderling.session.records import LoggedClearing, LoggedSummary
from sanderling.session.session import Session

MOST_OVERESTIMATED = 3  # the estimate is four bytes a token; no text that we met has more than 12
MAX_FAILURES = 3


class Compactor:
    """Compacts one session. `notes` supplies what the model needs again after a summary."""

    def __init__(
        self,
        session: Session,
        provider: Provider,
        calls: ModelCalls,
        notes: Notes,
        emit: Callable[[Event], None],
        *,
        memory: Memory,
        hooks: SessionHooks,
        is_automatic: bool,
    ) -> None:
        self._session = session
        self._provider = provider
        self._calls = calls
        self._notes = notes
        self._memory = memory
        self._hooks = hooks
        self._emit = emit
        self._is_automatic = is_automatic
        self._failures = 0
        self._is_unsent = session.is_resumed  # no request of this process has carried the history
        self._asked_focus: str | None = None  # of the summary that the user requested
        self._summary: object = None  # the message that contains the last summary

    async def make_room(self) -> None:
        """Compact before the next request if that is due or requested."""
        if self.is_asked:
            await self.summarize_as_asked(is_in_turn=True)
        elif self._is_automatic and self._is_due():
            self._clear(share_of(self._window, KEPT_RESULT_TOKENS, 4))
            if self._is_due():
                await self._summarize_unless_useless()
        self._is_unsent = False

    async def shrink(self) -> bool:
        """Shorten the conversation because the API rejected it as too long; return False if that is impossible."""
        return self._clear(0, self._window) or await self._summarize_unless_useless()

    @property
    def is_asked(self) -> bool:
        return self._asked_focus is not None

    def ask(self, focus: str) -> None:
        """Request a summary, to be made when the model is not answering."""
        self._asked_focus = focus

    def drop_asked(self) -> bool:
        """Drop the requested summary; return False if there was none."""
        is_asked, self._asked_focus = self.is_asked, None
        return is_asked

    async def summarize_as_asked(self, *, is_in_turn: bool) -> None:
        focus, self._asked_focus = self._asked_focus or "", None
        if self._session.history:
            await self._summarize(focus, is_in_turn=is_in_turn, trigger="manual")
        else:
            self._emit(Notice("info", "Nothing to summarize yet."))

    def undo(self) -> None:
        """Undo the last compaction, and turn automatic compaction off."""
        if self._session.undo_compaction():
            self._calls.cache.explain("a compaction was undone")
            self._is_automatic = False
            self._notes.forget()
            self._memory.keep()
            self._emit(CompactionUndone())
            self._calls.show_usage()
        else:
            self._emit(Notice("info", "Nothing was summarized or cleared in this session."))

    @property
    def _window(self) -> int:
        """The model's context window; 0 if unknown."""
        limits = self._provider.limits
        return limits.context_window_tokens if limits else 0

    def _is_due(self) -> bool:
        limits = self._provider.limits
        if not limits or not limits.context_window_tokens:
            return False
        max_output = limits.max_output_tokens or DEFAULT_MAX_OUTPUT_TOKENS
        used = self._session.last_usage.context_tokens
        if self._is_unsent:  # the usage in the log may be wrong: a server reported it
            used = max(used, estimated_tokens(self._session.history) // MOST_OVERESTIMATED)
        return is_due(used, limits.context_window_tokens, max_output)

    def _clear(self, kept_tokens: int, least_used: int = 0) -> bool:
        """
        Clear old tool results, except about `kept_tokens` of the newest; return whether that frees enough.

        At least `least_used` tokens are in use: the last usage does not count results that no request with them was accepted.
        """
        history = self._session.history
        estimate = estimated_tokens(history)
        tokens = max(self._session.last_usage.context_tokens or estimate, least_used)
        factor = tokens / estimate if estimate else 1.0
        least = share_of(self._window, LEAST_FREED_TOKENS, 8)
        texts = cleared_results(history, factor=factor, kept_tokens=kept_tokens, least_freed=least)
        if texts:
            after = round(estimated_tokens(with_results(history, texts)) * factor)
            self._session.append(LoggedClearing(texts, tokens, after))
            self._calls.cache.explain("old tool results were cleared")
            self._show(Compacted("cleared", tokens, after))
        return bool(texts)

    async def _summarize_unless_useless(self) -> bool:
        first, *answers = self._session.history
        if (first is self._summary and len(answers) <= 1) or self._failures >= MAX_FAILURES:
            return False
        return await self._summarize("", is_in_turn=True)

    async def _summarize(self, focus: str, *, is_in_turn: bool, trigger: Trigger = "auto") -> bool:
        self._emit(CompactionStarted())
        verdict = await self._hooks.before_summary(trigger, focus)
        if verdict.is_denied:
            self._fail(f"A hook refused to compact the conversation: {verdict.reason}")
            return False
        focus = focus if verdict.text is None else verdict.text
        focus = "\n".join(filter(None, (focus, verdict.context)))
        before = self._session.last_usage.context_tokens
        try:
            summary, problem = await self._ask_for_summary(focus)
        except ProviderError as error:
            summary, problem = "", error.message
        if problem:
            self._fail(f"Cannot summarize the conversation: {problem}")
            return False
        session = self._session
        await self._hooks.session_start("compact")
        notes = [*self._notes.after_summary(), *self._hooks.take_notes()]
        history = compacted(
            summary,
            session.prompts,
            notes,
            is_in_turn=is_in_turn,
            prompt_tokens=share_of(self._window, KEPT_PROMPT_TOKENS, 8),
        )
        after = estimated_tokens(history)
        session.append(LoggedSummary(history, summary, before, after))
        self._calls.cache.explain("the conversation was summarized")
        self._memory.keep()
        self._summary = history[0]
        self._show(Compacted("summary", before, after, summary))
        if self._is_due():
            self._fail("The summary and your latest prompts fill the model's context window.")
        else:
            self._failures = 0
        return True

    async def _ask_for_summary(self, focus: str) -> tuple[str, str]:
        """Return a summary, or the problem. If the history is too long even for that, leave out the oldest part."""
        start = 0
        while True:
            try:
                summary, stop_reason = await self._calls.ask_aside(summary_prompt(focus), start)
                break
            except ProviderError as error:
                newer = newer_half(self._session.history, start)
                if error.kind != "context_full" or not newer:
                    raise
                start = newer
        if start:
            text = "The conversation was too long to summarize whole: its oldest part was left out."
            self._emit(Notice("warning", text))
        return summary, problem_of(summary, stop_reason)

    def _show(self, compacted: Compacted) -> None:
        self._emit(compacted)
        self._calls.show_usage()

    def _fail(self, problem: str) -> None:
        self._failures += 1
        further = " Automatic summaries are now off." if self._failures == MAX_FAILURES else ""
        self._emit(Notice("warning", f"{problem.rstrip('.')}.{further}"))
