"""Changes that were taken back: what came of it, file by file."""

from typing import Literal

import msgspec


class RestoredFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    A file that was brought back to what it was: `merged` with what the person has changed, or `left` as it is, and `why`.

    `path` is relative to the project where it lies inside.
    """

    path: str
    how: Literal["restored", "merged", "left"] = "restored"
    why: str = ""
    added: int = 0
    removed: int = 0


Restoration = Literal["undo", "redo", "rewind", "finish"]
"""The last finishes what a process has begun that was killed."""


class FilesRestored(msgspec.Struct, tag="files_restored", frozen=True, omit_defaults=True):
    """
    The changes that the agent has made in these turns were taken back, or made again; `turns` are the ids of their prompts.

    Where another try may bring what was left, `rest_of` is the number of the turn to ask for; 0 if there is none.
    """

    kind: Restoration
    turns: tuple[str, ...]
    files: tuple[RestoredFile, ...] = ()
    rest_of: int = 0


class ConversationRewound(msgspec.Struct, tag="conversation_rewound", frozen=True):
    """From here on the model is shown what was said before the prompt that begins with `text`. The transcript keeps everything."""

    text: str
