"""The AI coding agent that lives in Neovim and works in a sandbox."""

import os
import sys

__version__ = "0.1.0"


def forget_empty_home() -> None:
    """Treat an empty HOME as unset, so that the home of the user's account counts."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)


def open_missing_streams() -> None:
    """Open standard streams that were closed at the start on /dev/null, or the next opened file would take their numbers."""
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            os.set_inheritable(fd, True)
            setattr(sys, name, os.fdopen(fd, mode, errors="backslashreplace"))


def _load_nothing_from_here() -> None:
    """
    Import nothing from the current directory, nor from relative entries of PYTHONPATH: a project may have a `re.py`.

    This is too late for a sitecustomize.py, which Python has run already. The installed command, `scripts/sanderling.sh`, starts Python
    in a way that runs none.
    """
    ours = os.path.dirname(os.path.dirname(__file__))
    try:
        here = os.getcwd()
    except OSError:
        here = ""  # the directory was deleted, and holds no modules
    sys.path[:] = [
        path
        for path in sys.path
        if path == ours or (os.path.isabs(path) and os.path.realpath(path) != here)
    ]


if sys.argv[:1] == ["-m"]:  # argv[0] until `python -m` has found the module
    _load_nothing_from_here()
