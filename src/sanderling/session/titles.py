"""
Titles of sessions and prompts. A session's is the first sentence of a prompt that says what it is about, else of the answer.

A rule instead of a request to the session's own model, which costs more than a title is worth. `conversation/titling.py` asks a small model,
if the user has configured one.
"""

import re
from collections.abc import Iterable
from itertools import islice

from sanderling.text import shortened

MAX_TITLE_CHARS = 60
MAX_PROMPTS = 3  # that are searched for a title

_FENCE = r"^[ \t]*(```|~~~).*?(^[ \t]*\1[^\n]*$|\Z)"
_MARKDOWN = r"^[#>*\-\s`]+|[`*]+"
_SENTENCE_END = r"(?<=[^\d\s][.!?])\s+(?=\S)|(?<=[。！？])"  # noqa: RUF001
_MENTION = r"(?<!\S)@(\S+)"
# With a file's suffix at its end, or absolute with two names and more: `and/or` and `/review` do not match.
_PATH = (
    r"(?<![^\s(\"'\[])(?:(?:[~.\w\-]*/)+([\w\-.]+\.\w{1,5})(?::\d[\d:\-]*)?(?![\w/])"
    r"|[~.]{0,2}(?:/[\w\-.]+)+/([\w\-.]+)/?(?![^\s)\"'\],:;]))"
)
_GREETING = (
    r"(?i)^(?:(?:hi|hello|hey|hallo|moin|servus|hola|bonjour|salut|ciao|yo|greetings|good (?:morning|afternoon|evening|day)|"
    r"thanks|thank you|thx|ok|okay|yes|no|sure|certainly|of course|please)"
    r"(?: (?:there|all|again|everyone|you|sanderling|claude|so much|a lot))*(?![\w'\-])[\s,.!:;\-]*)+"
)
_PREAMBLE = r"(?i)^(?:let me|i'll|i will|i'm going to|how can i|what can i|what would you|here (?:is|are|you go))\b"


def title_of(text: str) -> str:
    """Return the first sentence of `text` that says something, or "": mentions, greetings and fragments such as `03:10` do not."""
    return _first(_title(each) for each in _sentences(text))


def title_of_answer(text: str) -> str:
    """Return the title that an answer gives to its session. Sentences that only announce something are left out."""
    return _first(_title(each) for each in _sentences(text) if not re.match(_PREAMBLE, each))


def first_title(prompts: Iterable[str]) -> str:
    """Return the title that a session has from its first prompts, or ""."""
    return _first(title_of(each) for each in islice(prompts, MAX_PROMPTS))


def prompt_title(text: str) -> str:
    """Return the name of a prompt among others: its first non-empty line, shortened and without Markdown."""
    return shortened(_first(map(_plain, text.splitlines())), MAX_TITLE_CHARS)


def _first(titles: Iterable[str]) -> str:
    return next(filter(None, titles), "")


def _sentences(text: str) -> Iterable[str]:
    text = re.sub(_FENCE, "", text, flags=re.DOTALL | re.MULTILINE)
    for line in text.splitlines():
        for sentence in re.split(_SENTENCE_END, _plain(line)):
            yield str(sentence)


def _plain(line: str) -> str:
    return " ".join(re.sub(_MARKDOWN, "", line).split())


def _title(sentence: str) -> str:
    sentence = re.sub(_GREETING, "", sentence)
    rest = re.sub(_PATH, "", re.sub(_MENTION, "", sentence))
    if not re.search(r"[^\W\d_]{2}", rest):
        return ""
    named = re.sub(_MENTION, _without_sign, sentence)
    named = re.sub(_PATH, _base_name, named)
    return shortened(named.rstrip(" :,;"), MAX_TITLE_CHARS)


def _without_sign(mention: re.Match[str]) -> str:
    return re.sub(r"#L[\d\-L]+|:\d[\d:\-]*$", "", mention[1])


def _base_name(path: re.Match[str]) -> str:
    return path[1] or path[2]
