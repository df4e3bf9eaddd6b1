"""What happens when anything breaks off at any place, and in any order. `make fuzz` tries all, `make prove` a part."""

import os

IS_FULL = bool(os.environ.get("SANDERLING_FUZZ"))


def part(count: int) -> int:
    """So many of `count`: all for `make fuzz`, else a quarter, rounded up."""
    return count if IS_FULL else -(-count // 4)
