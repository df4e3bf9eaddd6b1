"""The AI coding agent that lives in Neovim and works in a sandbox."""

import os
import sys

__version__ = "0.1.0"


def forget_empty_home() -> None:
    """An empty HOME is none: that of the user's account counts."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)


def open_missing_streams() -> None:
    """Have a standard stream that was closed from the start lead nowhere, or the next file that is opened takes its place."""
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the first number that is free
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, mode, errors="backslashreplace"))


def _load_nothing_from_here() -> None:
    """
    Import nothing from the current directory, nor from what PYTHONPATH names relative to it: a project may have a `re.py`.

    It is too late for a sitecustomize.py, which Python has run before this: `scripts/sanderling.sh`, the installed command, starts
    Python in a way that runs none.
    """
    ours, here = os.path.dirname(os.path.dirname(__file__)), os.path.realpath(os.curdir)
    sys.path[:] = [
        path
        for path in sys.path
        if path == ours or (os.path.isabs(path) and os.path.realpath(path) != here)
    ]


if sys.argv[:1] == ["-m"]:  # which stands there until the module that `python -m` runs is found
    _load_nothing_from_here()
