"""The prompts that turns have answered, and the history before each."""

from sanderling.protocol.messages import Message, Prompt, StopReason
from sanderling.session.history import History


class PromptHistory:
    """
    The prompts of a session's turns, each with the message that it became. Rewound prompts are not included.

    `turn_ids` has the ids of all turns, including rewound ones; `ends` why they ended.
    """

    def __init__(self, history: History) -> None:
        self.turn_ids: list[str] = []
        self.ends: dict[str, StopReason] = {}
        self.messages: list[tuple[Message, Prompt]] = []
        self._history = history

    @property
    def prompts(self) -> list[Prompt]:
        return [prompt for _, prompt in self.messages]

    def find(self, prompt_id: str) -> Prompt | None:
        at = self._index_of(prompt_id)
        return None if at is None else self.messages[at][1]

    def add(self, prompt: Prompt) -> None:
        """Add a prompt; the newest message of the history was made from it."""
        self.turn_ids.append(prompt.id)
        self.messages += [(message, prompt) for message in self._history.messages[-1:]]

    def end(self, stop_reason: StopReason) -> None:
        for turn_id in self.turn_ids[-1:]:
            self.ends.setdefault(turn_id, stop_reason)

    def history_before(self, prompt_id: str) -> list[Message] | None:
        """Return the history after a rewind to this prompt; None if it is no longer known."""
        at = self._index_of(prompt_id)
        return None if at is None else self._history.before(self.messages[at][0])

    def rewind(self, prompt_id: str, tokens: int) -> Prompt | None:
        """Rewind the history to before this prompt, leaving about `tokens` tokens; return the prompt, if it is known."""
        at = self._index_of(prompt_id)
        if at is None:
            return None
        message, prompt = self.messages[at]
        self._history.rewind(message, tokens)
        del self.messages[at:]
        return prompt

    def _index_of(self, prompt_id: str) -> int | None:
        ids = [prompt.id for prompt in self.prompts]
        return len(ids) - 1 - ids[::-1].index(prompt_id) if prompt_id in ids else None
