"""The AI coding agent that lives in Neovim and stays in the sand box."""

__version__ = "0.1.0"
