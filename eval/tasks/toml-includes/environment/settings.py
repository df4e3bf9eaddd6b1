"""Settings in TOML files."""

import tomllib


def load(path):
    """Read the file."""
    with open(path, "rb") as file:
        return tomllib.load(file)
