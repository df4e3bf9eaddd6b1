"""What several modules need."""

SEPARATOR = " "
# Powers of 1,000 and not 1,024, as on the labels of disks.
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6}


def clean(text):
    """Return the text with single blanks."""
    return SEPARATOR.join(text.split())


def _split(text):
    number, _, unit = clean(text).partition(" ")
    return float(number), unit


def parse_size(text):
    """Return the number of bytes."""
    number, unit = _split(text)
    return int(number * UNITS[unit])


def format_size(count):
    """Return the size with the largest unit that fits."""
    name = max((name for name in UNITS if UNITS[name] <= max(count, 1)), key=UNITS.get)
    return f"{count / UNITS[name]:.1f} {name}"


def words(count, word):
    """Return the count with the word, in the plural if needed."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
