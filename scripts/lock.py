"""
Pin everything: write constraints.txt from what resolves now. `make lock` runs it, and needs uv.

uv resolves for every platform and for each Python from the oldest supported one on, and knows the hash of every file of a release. So
users install the bytes that were tested, even on a platform on which nothing was resolved. The build of the project, each extra and each
dependency group have a section with what earlier sections lack; `install.py` uses the sections that it needs.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "constraints.txt"
OLDEST_PYTHON = "3.11"
PIN = re.compile(r"^([\w.-]+)==.*(?:\n    .*)*", re.MULTILINE)
"""A release, its marker, and the hashes of its files below it."""


def main() -> None:
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("make lock needs uv, which resolves for all platforms: pip install uv")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    runtime = project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"] | project["dependency-groups"]
    sections = {
        "base": runtime,
        "build": project["build-system"]["requires"],
        **{name: [*runtime, *wanted] for name, wanted in extras.items()},
    }
    together = resolve(uv, [each for wanted in sections.values() for each in wanted])
    text, known = "", set[str]()
    for name, wanted in sections.items():
        pins = resolve(uv, wanted, together)
        text += f"# {name}\n" + "".join(f"{pin}\n" for pin in pins.values() if pin not in known)
        known |= set(pins.values())  # the same release with another marker is another pin
    LOCK.write_text(text)
    print(f"{LOCK.name}: {len(known)} pins")


def resolve(uv: str, requirements: list[str], pins: dict[str, str] | None = None) -> dict[str, str]:
    """Return the pins that meet `requirements`, by name, chosen from `pins` if there are any."""
    options = ["--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes"]
    options += ["--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join((pins or {}).values()))
        constraints.flush()
        result = subprocess.run(
            [uv, "pip", "compile", *options, "--constraints", constraints.name, "-"],
            cwd=ROOT,
            input="\n".join(requirements),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if result.returncode != 0:
        sys.exit(f"{LOCK.name} is unchanged: uv could not resolve the requirements, see above.")
    return {match[1]: match[0] for match in PIN.finditer(result.stdout)}


if __name__ == "__main__":
    main()
