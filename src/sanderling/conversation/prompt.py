"""The system prompt, and the message that a prompt becomes, with what it mentions of other sessions (`@session:ID`)."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sanderling.errors import ConfigError, SessionError
from sanderling.images import ImageError, checked_base64
from sanderling.project.trust.reading import visible_name
from sanderling.protocol.messages import (
    CommandRecord,
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    Selection,
    TextBlock,
)
from sanderling.text import fence_around

MAX_MENTIONS = 10
OF_A_FILE = ("current editor text", "as saved on disk")
"""The origins of mentions that are files; other mentions have no lines that could be edited."""
_MENTION = r"(?<![\w@])@session:([\w-]+)"


_VARIANT = r"\{(\w+):([^{}]*)\}"


def system_prompt(*, has_editor: bool = True, has_user: bool = True, is_small: bool = False) -> str:
    """
    Return the system prompt, without what needs an editor, a user who can answer, or more than the small set of tools.

    It has the same bytes in every request of a session, or the API's cache of the prefix would be lost.
    """
    kept = {"editor": has_editor, "user": has_user, "script": not has_user}
    kept |= {"code": has_editor and not is_small, "todo": not is_small}
    text = Path(__file__).with_name("system_prompt.md").read_text(encoding="utf-8")
    return re.sub(_VARIANT, lambda found: found[2] if kept[found[1]] else "", text)


def prompt_message(
    prompt: Prompt, commands: Sequence[CommandRecord] = (), notes: Sequence[str] = ()
) -> Message:
    """
    Return the message for `prompt`, preceded by `notes` and by the commands that the user ran before it.

    A blank text is omitted, because the API rejects it.
    """
    before = (*notes, *map(_command_text, commands))
    return Message("user", (*_text_blocks(before), *prompt_blocks(prompt)))


def prompt_blocks(prompt: Prompt) -> tuple[TextBlock | ImageBlock, ...]:
    """Return the lines and images attached to `prompt`, then its text."""
    blocks = [block for each in prompt.selections for block in _selection_blocks(each)]
    return (*blocks, *_text_blocks((prompt.sent or prompt.text,)))


def _selection_blocks(selection: Selection) -> tuple[TextBlock | ImageBlock, ...]:
    if not selection.media_type:
        return _text_blocks((_selection_text(selection),))
    name = TextBlock(f"{visible_name(selection.path)}, {selection.origin}:")
    return name, ImageBlock(ImageSource(selection.media_type, selection.text))


def check_images(prompt: Prompt) -> None:
    """
    Check the attached images. An image that the API rejects would otherwise break every later request.

    Raises:
        ConfigError: an image cannot be sent to a model.
    """
    for each in prompt.selections:
        if each.media_type:
            try:
                checked_base64(each.text, each.media_type)
            except ImageError as error:
                name = visible_name(each.path)
                words = f"Cannot send the image {name}: {error}. Nothing was sent."
                raise ConfigError(words) from error


def _text_blocks(texts: Sequence[str]) -> tuple[TextBlock, ...]:
    return tuple(TextBlock(text) for text in texts if text.strip())


def _command_text(record: CommandRecord) -> str:
    shown = f"$ {record.command}\n{record.output}"
    fence = fence_around(shown)
    return f"The user ran this command in the project; it {record.ending.description}:\n{fence}\n{shown}\n{fence}"


def place_of(selection: Selection) -> str:
    """Return where the lines are: `a.py:3-9`, `a.py:3`, or only the name, such as `@diff`, if they are not a file's."""
    name, first, last = visible_name(selection.path), selection.first_line, selection.last_line
    if not _is_of_file(selection):
        return name
    return f"{name}:{first}" if first == last else f"{name}:{first}-{last}"


def _is_of_file(selection: Selection) -> bool:
    if selection.origin:
        return selection.origin.startswith(
            OF_A_FILE
        )  # a large file's continues with what it leaves out
    return not (selection.is_piped or selection.path.startswith("@"))


def _selection_text(selection: Selection) -> str:
    fence = fence_around(selection.text)
    source = "piped into the prompt" if selection.is_piped else "as the editor showed it then"
    text = selection.text
    if _is_of_file(selection):  # with numbers as in results of `read`
        lines = enumerate(text.split("\n"), selection.first_line)
        text = "\n".join(f"{number}\t{line}" for number, line in lines)
    place = place_of(selection)
    return f"{place}, {selection.origin or source}:\n{fence}{selection.filetype}\n{text}\n{fence}"


# --- mentions of other sessions ---------------------------------------------------------------------------------------


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
    selections = (*prompt.selections, *(_last_words(each, session_dir) for each in ids))
    return msgspec.structs.replace(prompt, selections=selections)


def mentions_session(prompt: Prompt) -> bool:
    return re.search(_MENTION, prompt.text) is not None


def _last_words(session_id: str, session_dir: Path) -> Selection:
    from sanderling.session.store.export import last_words  # only needed for mentions

    try:
        said = last_words(session_dir, session_id)
    except SessionError as error:
        raise ConfigError(f"@session:{session_id}: {error}. Nothing was sent.") from error
    origin = f"the last answer in another session, \u201c{said.title}\u201d"
    return Selection(
        f"@session:{session_id}", 1, said.text.count("\n") + 1, said.text, "markdown", origin=origin
    )
