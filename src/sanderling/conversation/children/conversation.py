"""The conversation of a child session while its parent waits for it."""

from sanderling.conversation.conversation import Conversation
from sanderling.protocol import actions

OF_PARENT = "The changes of this session belong to the turn that started it: undo that turn in {parent}, where they are reviewed, too."
NOTE = (
    "[You work in a child session: another session gave you the task, and reads only your last message, at most 4 KB of it. Do the task and"
    " nothing else. End with the result: what you found or did, with `path:line` for each place that matters, and what is left to do.]"
)


class ChildConversation(Conversation):
    """A conversation whose tool servers and changes are its parent's."""

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
