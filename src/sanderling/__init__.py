"""The AI coding agent that lives in Neovim and works in a sandbox."""

import os

__version__ = "0.1.0"


def forget_empty_home() -> None:
    """An empty HOME is none: that of the user's account counts."""
    if not os.environ.get("HOME"):
        os.environ.pop("HOME", None)
