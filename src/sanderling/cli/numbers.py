"""Numbers on the command line, as types for argparse."""

import argparse
import math


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return number


def whole(text: str, *, least: int = 0) -> int:
    """Return a whole number that is at least `least`."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {least} on")
    return int(text)


def counting(text: str) -> int:
    """Return a whole number from 1 on."""
    return whole(text, least=1)
