import re


def slug(text):
    """Return the text as a part of an address."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
