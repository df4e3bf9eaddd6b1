"""What happens when anything breaks off at any place. `make fuzz` tries all places, `make test` a few."""

import os

IS_FULL = bool(os.environ.get("SANDERLING_FUZZ"))
