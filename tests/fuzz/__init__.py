"""What happens when anything breaks off at any place, and in any order. `make fuzz` tries all, `make prove` a part."""

import os

IS_FULL = bool(os.environ.get("SANDERLING_FUZZ"))


def seeds(count: int) -> range:
    """The seeds of a test that draws lots: `make fuzz` takes all, `make prove` a quarter."""
    return range(count if IS_FULL else -(-count // 4))
