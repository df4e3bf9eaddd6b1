"""The conversation of a child session while its parent waits for it."""

from uuid import uuid4

from sanderling.conversation.conversation import Conversation
from sanderling.protocol import actions
from sanderling.protocol.messages import Prompt

OF_PARENT = "The changes of this session belong to the turn that started it: undo that turn in {parent}, where they are reviewed, too."
NOTE = (
    "[You work in a child session: another session gave you the task, and reads only your last message, at most 4 KB of it. Do the task and"
    " nothing else. End with the result: what you found or did, with `path:line` for each place that matters, and what is left to do.]"
)


class ChildConversation(Conversation):
    """A conversation that begins with a task of its parent's model, and whose tool servers and changes are its parent's."""

    _task_id = ""
    _has_begun = False

    def begin(self, task: str) -> None:
        prompt = Prompt(uuid4().hex, task)
        self._task_id = prompt.id
        self.submit(prompt)

    def next_prompt(self) -> Prompt | None:
        """Return the task, once. Its turn takes the user's prompts meanwhile; a late prompt waits until the session opens as the user's."""
        prompt = None if self._has_begun else super().next_prompt()
        self._has_begun = self._has_begun or prompt is not None
        return prompt

    async def expanded(self, prompt: Prompt) -> Prompt:
        """Expand what the user sends. The task is the model's: commands and mentions in it would give it what only the user may."""
        return prompt if prompt.id == self._task_id else await super().expanded(prompt)

    def act(self, action: actions.Action) -> None:
        match action:
            case (
                actions.UndoTurn()
                | actions.RedoTurn()
                | actions.Rewind()
                | actions.RejectChanges()
                | actions.NoteReviewed()
            ):
                if self.services.worktree:
                    super().act(action)
                    return
                parent = self.services.session.parent
                self.services.warn(OF_PARENT.format(parent=parent))
            case _:
                super().act(action)
