"""The root of the project that a command line is about."""

from pathlib import Path

from sanderling.errors import UsageError
from sanderling.text import printable


def project_root(directory: str) -> str:
    """
    The nearest directory upwards that holds `.git`, as in the editor; where there is none, the one of now.

    Raises:
        UsageError: there is no such directory, or it is none to work in.
    """
    try:
        root = str(_root_named(directory) if directory else _root_around(Path.cwd()))
    except FileNotFoundError as error:
        raise UsageError("the current directory does not exist any more") from error
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be looked at: {error.strerror}") from error
    if printable(root) != root:  # in no log, and in no request to a model
        raise UsageError(f"the name of '{root}' is no UTF-8: give the directory another one")
    return root


def _root_named(directory: str) -> Path:
    if not Path(directory).is_dir():
        raise UsageError(f"there is no directory '{directory}'")
    return Path(directory).resolve()


def _root_around(here: Path) -> Path:
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)
