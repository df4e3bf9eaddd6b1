"""Count the words of a text."""

import re
from collections import Counter

WORD = re.compile(r"[a-z]+")


def count_words(text):
    """Return how often each word occurs, in lower case."""
    return dict(Counter(WORD.findall(text.lower())))
