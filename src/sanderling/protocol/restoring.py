"""Results of undo, redo and rewind, file by file."""

from typing import Literal

import msgspec


class RestoredFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A file that was restored, `merged` with the user's changes, or `left` as it is, and `why`.

    `path` is relative to the project for files inside it.
    """

    path: str
    how: Literal["restored", "merged", "left"] = "restored"
    why: str = ""
    added: int = 0
    removed: int = 0


Restoration = Literal["undo", "redo", "rewind", "finish"]
""""finish" completes the undo of a process that was killed."""


class FilesRestored(msgspec.Struct, tag="files_restored", frozen=True, omit_defaults=True):
    """
    The agent's changes in these turns were undone or redone; `turns` are the ids of their prompts.

    `rest_of` is the number of a turn for which another try may restore the files that were left, or 0.
    """

    kind: Restoration
    turns: tuple[str, ...]
    files: tuple[RestoredFile, ...] = ()
    rest_of: int = 0


class ConversationRewound(msgspec.Struct, tag="conversation_rewound", frozen=True):
    """The model now sees only what came before the prompt that begins with `text`. The transcript keeps everything."""

    text: str
