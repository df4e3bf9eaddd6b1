"""Mentions of other sessions: `@session:ID` attaches that session's last answer and summary to the prompt."""

import re
from pathlib import Path

import msgspec

from sanderling.errors import ConfigError, SessionError
from sanderling.protocol.messages import Prompt, Selection

MAX_MENTIONS = 10
_MENTION = r"(?<![\w@])@session:([\w-]+)"


def with_sessions(prompt: Prompt, session_dir: Path) -> Prompt:
    """
    Attach the last answers of the mentioned sessions to `prompt`. Reads their logs, so call it in a thread.

    Raises:
        ConfigError: a session does not exist or has no answer.
    """
    # A prompt that waited may already have some.
    there = {selection.path for selection in prompt.selections}
    found = dict.fromkeys(re.findall(_MENTION, prompt.text))
    ids = [each for each in found if f"@session:{each}" not in there][:MAX_MENTIONS]
    if not ids:
        return prompt
    selections = (*prompt.selections, *(_selection(each, session_dir) for each in ids))
    return msgspec.structs.replace(prompt, selections=selections)


def mentions_session(prompt: Prompt) -> bool:
    return re.search(_MENTION, prompt.text) is not None


def _selection(session_id: str, session_dir: Path) -> Selection:
    from sanderling.session.store.export import last_words  # only needed for mentions

    try:
        said = last_words(session_dir, session_id)
    except SessionError as error:
        raise ConfigError(f"@session:{session_id}: {error}. Nothing was sent.") from error
    origin = f"the last answer in another session, \u201c{said.title}\u201d"
    return Selection(
        f"@session:{session_id}", 1, said.text.count("\n") + 1, said.text, "markdown", origin=origin
    )
