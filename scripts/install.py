"""
Build the Python environment of Sanderling's host, for `make install` and :AgentInstall.

Only the standard library is available at this point. A stamp, written last, tells a finished environment from an interrupted or outdated
one: without a stamp everything is built again, with an old one the packages are updated.

Packages are exactly the files that the tests ran with: constraints.txt has their hashes, and pip and uv refuse any others. Only wheels
are allowed, because building a package from source would fetch whatever build tools it names, without known hashes. An editable project
has no hash either, and would be refused in the same call. So packages come first, hatchling among them, and then the project alone, built
by that and without an index.
"""

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

if sys.version_info < (3, 11):  # noqa: UP036 - old Pythons do get here
    sys.exit(
        "Sanderling needs Python 3.11 or newer and this is {}.{}: install one and choose it, in a shell with"
        " `make install PYTHON=python3.11`, in Neovim with the option 'python'.".format(
            *sys.version_info[:2]
        )
    )

ROOT = Path(__file__).resolve().parent.parent
STAMP = "sanderling-stamp"
INPUTS = ("pyproject.toml", "constraints.txt", "scripts/sanderling.sh")
"""The files that determine an environment; lua/sanderling/health.lua compares them, too."""
NO_CONNECTION = re.compile(
    r"NewConnectionError|ConnectTimeout|NameResolutionError|ProxyError|dns error|Connection refused"
)
NO_WHEEL = re.compile(r"[Nn]o matching distribution|no usable wheels|no wheels? with a matching")
WRONG_HASH = re.compile(r"DO NOT MATCH THE HASHES|[Hh]ash mismatch")
PYTHON_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LOCK = "constraints.txt"
# The user's constraints would be added to these, and have no hashes.
NO_CONSTRAINTS = dict.fromkeys(
    ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "UV_CONSTRAINT", "UV_BUILD_CONSTRAINT"), os.devnull
) | {"PIP_USER": "0"}
# PYTHONPATH would hide packages from the installer, PYTHONDONTWRITEBYTECODE make every import 3-4 times slower.
ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


class InstallError(Exception):
    """One sentence: what is wrong and what to do."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the Python environment of Sanderling.")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv", metavar="DIR")
    parser.add_argument(
        "--extras",
        default="",
        help="extras and dependency groups of pyproject.toml, separated by commas",
    )
    parser.add_argument(
        "--allow-source",
        action="store_true",
        help="build packages without a wheel for this machine from source, with unpinned tools",
    )
    parser.add_argument(
        "--neovim-if-missing", action="store_true", help="install Neovim if PATH has no Neovim 0.11"
    )
    args = parser.parse_args()
    extras = {extra for extra in args.extras.split(",") if extra}
    try:
        if args.neovim_if_missing and not has_neovim():
            extras.add("neovim")
        install(args.environment.expanduser().absolute(), extras, allows_source=args.allow_source)
    except InstallError as error:
        sys.exit(f"Not installed: {error}")
    except OSError as error:
        sys.exit(
            f"Not installed: {error}. Fix that, or choose another directory with --environment DIR."
        )
    except KeyboardInterrupt:
        sys.exit("Not installed: interrupted. The next run starts over.")


def install(environment: Path, extras: set[str], *, allows_source: bool = False) -> None:
    environment.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(environment.parent):
        stamp = read_stamp(environment)
        extras |= set(stamp.get("extras", []))  # `make chat` keeps what `make test` added
        wanted = {
            "inputs": hash_of_inputs(),
            "root": str(ROOT),
            "python": PYTHON_VERSION,
            "extras": sorted(extras),
        }
        if stamp == wanted:
            print(f"{environment} is up to date (Python {PYTHON_VERSION})")
            return
        uv = shutil.which("uv")
        if is_reusable(environment, stamp, uv):
            print(f"1/3 environment: {environment} is kept (Python {PYTHON_VERSION})", flush=True)
            (environment / STAMP).unlink()
        else:
            print(f"1/3 environment: {environment} (Python {PYTHON_VERSION})", flush=True)
            create(environment, uv)
        print(f"2/3 packages: with {'uv' if uv else 'pip'}, up to a minute …", flush=True)
        install_packages(environment, ["base", "build", *sorted(extras)], uv, allows_source)
        install_project(environment, uv)
        print("3/3 bytecode", flush=True)
        compile_sources(environment)
        (environment / STAMP).write_text(json.dumps(wanted) + "\n")


@contextlib.contextmanager
def one_at_a_time(directory: Path) -> Generator[None, None, None]:
    """Make a second installer wait, so that it finds the work done."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot lock a directory
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def hash_of_inputs() -> str:
    inputs = b"".join((ROOT / name).read_bytes() for name in INPUTS)
    return hashlib.sha256(inputs).hexdigest()


def read_stamp(environment: Path) -> dict[str, Any]:
    """Return the stamp of a finished environment; {} if it is unfinished or its interpreter is gone."""
    if not os.access(environment / "bin" / "python", os.X_OK):
        return {}
    try:
        return json.loads((environment / STAMP).read_text())
    except (FileNotFoundError, ValueError):
        return {}


def is_reusable(environment: Path, stamp: dict[str, Any], uv: str | None) -> bool:
    """Return True if the packages can be changed in place: same checkout, same Python, and an installer."""
    is_same = stamp.get("root") == str(ROOT) and stamp.get("python") == PYTHON_VERSION
    return is_same and (uv is not None or (environment / "bin" / "pip").exists())


def create(environment: Path, uv: str | None) -> None:
    if environment.is_dir() and any(environment.iterdir()):
        if not (environment / "pyvenv.cfg").exists():
            raise InstallError(
                f"{environment} contains something else: move it away, or choose another --environment."
            )
        shutil.rmtree(environment)
    # A virtual environment's Python may run this, perhaps that of the one just removed, so its base is used.
    python = getattr(sys, "_base_executable", sys.executable)
    if uv:
        run(
            [uv, "venv", "--python", python, str(environment)],
            "uv could not create the environment",
        )
        return
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise InstallError(
            f"{python} lacks the module venv: `apt install python{PYTHON_VERSION}-venv` on Debian and Ubuntu,"
            " or install uv, then run this again."
        )
    run([python, "-I", "-m", "venv", str(environment)], "the environment could not be created")


def install_packages(
    environment: Path, sections: list[str], uv: str | None, allows_source: bool = False
) -> None:
    """Install exactly what these sections of constraints.txt pin, with checked hashes."""
    source = [] if allows_source else ["--only-binary", ":all:"]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        pins.write("".join(map(sections_of((ROOT / LOCK).read_text()).__getitem__, sections)))
        pins.flush()
        options = ["--require-hashes", "--no-deps", *source, "--requirement", pins.name]
        run(installer(environment, uv, *options), f"{'uv' if uv else 'pip'} failed", NO_CONSTRAINTS)


def install_project(environment: Path, uv: str | None) -> None:
    """Install the checkout itself, so that its sources are what runs."""
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--editable", "."]
    run(installer(environment, uv, *options), "the project could not be built", NO_CONSTRAINTS)
    name_sources_relatively(environment, ROOT)


def name_sources_relatively(environment: Path, root: Path) -> None:
    """Have an environment inside the checkout find the sources where both of them are moved or mounted: in a container, for example."""
    if root not in environment.parents:
        return
    for path in environment.glob("lib/python*/site-packages/*.pth"):
        if path.read_text().strip() == str(root / "src"):
            path.write_text(f"{os.path.relpath(root / 'src', path.parent)}\n")


def sections_of(lock: str) -> dict[str, str]:
    """Return the pins by section; a section begins with `# NAME`."""
    parts = re.split(r"^# (.+)\n", lock, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def installer(environment: Path, uv: str | None, *options: str) -> list[str]:
    python = str(environment / "bin" / "python")
    if uv:
        return [uv, "pip", "install", "--python", python, "--compile-bytecode", *options]
    return [python, "-I", "-m", "pip", "install", "--compile", *options]


def compile_sources(environment: Path) -> None:
    """Compile the plugin's own modules; a read-only checkout works without that."""
    command = [environment / "bin" / "python", "-I", "-m", "compileall", "-qq", "src", "rplugin"]
    subprocess.run(
        command, cwd=ROOT, env=ENVIRON, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )


def run(command: list[str], failure: str, environ: dict[str, str] | None = None) -> None:
    """
    Run a step silently.

    Raises:
        InstallError: `failure`, the first error in the output, and where to find all of it.
    """
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=ENVIRON | (environ or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode == 0:
        return
    # pip quotes the error of its build step, indented, after its own "subprocess-exited-with-error"
    error = re.search(r"^\W*error: (?!subprocess)(.+)", result.stdout, re.IGNORECASE | re.MULTILINE)
    reason = error[1].rstrip(".") if error else result.stdout.strip().rpartition("\n")[2]
    remedy = "Check network and disk, then run this again"
    if NO_CONNECTION.search(
        result.stdout
    ):  # pip itself ends with a message about conflicting versions
        reason = "the package index cannot be reached"
    elif WRONG_HASH.search(result.stdout):
        reason = "a package differs from the tested file"
        remedy = "Your package index, or a proxy, has another file: find out which one is right"
    elif NO_WHEEL.search(result.stdout):
        remedy = (
            "Use another Python, or build it from source: python3 scripts/install.py --allow-source"
        )
    with tempfile.NamedTemporaryFile(
        "w", prefix="sanderling-install-", suffix=".log", delete=False
    ) as log:
        log.write(result.stdout)
    raise InstallError(f"{failure} ({reason[:300]}). {remedy}; details: {log.name}")


def has_neovim() -> bool:
    nvim = shutil.which("nvim")
    command = [
        str(nvim),
        "--clean",
        "--headless",
        "-c",
        "execute has('nvim-0.11') ? 'quit' : 'cquit'",
    ]
    return (
        nvim is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


if __name__ == "__main__":
    main()
