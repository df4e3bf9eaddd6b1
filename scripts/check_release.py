"""
Check that a tag can be released: `check_release.py v0.1.0 [--notes]`.

The package, agent.json and a section of CHANGELOG.md must all have the version that the tag names. With `--notes`, print that section.
"""

import argparse
import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description="Check that a tag can be released.")
    parser.add_argument("tag", help="v and the version, as in v0.1.0")
    parser.add_argument(
        "--notes", action="store_true", help="print the version's section of the changelog"
    )
    args = parser.parse_args()
    version = args.tag.removeprefix("v")
    notes = notes_of(version, (ROOT / "CHANGELOG.md").read_text())
    if faults := faults_of(version, notes):
        sys.exit("\n".join(faults))
    print(notes if args.notes else f"{version} can be released")


def faults_of(version: str, notes: str) -> list[str]:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    agent = json.loads((ROOT / "agent.json").read_text())
    uvx = agent["distribution"]["uvx"]["package"].partition("==")[2]
    found = {"pyproject.toml": package, "agent.json": agent["version"], "agent.json, uvx": uvx}
    faults = [
        f"{where} has version {it}, the tag {version}"
        for where, it in found.items()
        if it != version
    ]
    if not notes:
        faults.append(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD', or an empty one")
    return faults


def notes_of(version: str, changelog: str) -> str:
    """Return the text of the version's section, or "" if it is missing."""
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    found = re.search(rf"{heading}\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


if __name__ == "__main__":
    main()
