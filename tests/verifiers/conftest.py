"""Tests with verifiers, of which `VERIFIERS` names the Python: `pip install verifiers uv` in an environment of its own."""

import os
from pathlib import Path

HERE = Path(__file__).parent
VERIFIERS = os.environ.get("VERIFIERS", "")
