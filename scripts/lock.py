"""
Pin everything: write constraints.txt from what resolves now. `make lock` runs it.

It asks pip to resolve without installing. The oldest supported Python decides, because it needs the most backports;
newer ones then use a subset of the pins.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
REQUIREMENTS = [".[dev,neovim]", "hatchling"]  # hatchling is what pyproject.toml builds with


def main() -> None:
    if sys.version_info[:2] != OLDEST_PYTHON:
        sys.exit("The pins are resolved on Python 3.11: make lock PYTHON=python3.11")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--quiet",
        "--report",
        "-",
    ]
    result = subprocess.run(
        [*command, *REQUIREMENTS], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(
            "constraints.txt stays as it is: pip could not resolve the requirements, see above."
        )
    packages = [item["metadata"] for item in json.loads(result.stdout)["install"]]
    pins = sorted(
        f"{item['name'].lower()}=={item['version']}"
        for item in packages
        if item["name"] != "sanderling"
    )
    (ROOT / "constraints.txt").write_text("\n".join(pins) + "\n")
    print(f"constraints.txt: {len(pins)} pins")


if __name__ == "__main__":
    main()
