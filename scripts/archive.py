"""
Build an archive of Sanderling with a Python of its own, which runs wherever it is unpacked: `sanderling-VERSION-linux-x86_64.tar.gz`.

It is for containers without Python or network, and a Neovim plugin as well: put its directory on 'runtimepath'. Packages are exactly those of
constraints.txt. The Python is a copy of the one that runs this. It should be from python-build-standalone, which brings its libraries: others
run only on systems as new as this one, with the same OpenSSL.
"""

import argparse
import gzip
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # -I leaves it out

from install import (
    LOCK,
    NO_CONSTRAINTS,
    PYTHON_VERSION,
    ROOT,
    STAMP,
    InstallError,
    hash_of_inputs,
    run,
    sections_of,
)

FILES = ("CHANGELOG.md", "LICENSE", "README.md", LOCK, "pyproject.toml")
FOLDERS = ("doc", "lua", "plugin", "rplugin", "src")
SCRIPTS = ("install.py", "sanderling.sh")
LIBRARY = f"lib/python{PYTHON_VERSION}"
LEFT_OUT = ("__pycache__", "screens", "site-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "config-*")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(), metavar="DIR")
    parser.add_argument(
        "--url",
        metavar="URL",
        help="where the archive will be; writes an agent.json for Harbor and the registry of agents",
    )
    args = parser.parse_args()
    if args.url and not args.url.startswith("https://"):
        parser.error("--url must begin with https://")
    try:
        with tempfile.TemporaryDirectory() as directory:
            tree = Path(directory, "sanderling")
            build(tree)
            args.output.mkdir(parents=True, exist_ok=True)
            path = args.output / f"sanderling-{version()}-{target()}.tar.gz"
            pack(tree, path)
    except (InstallError, OSError) as error:
        sys.exit(f"No archive: {error}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"{digest}  {path}")
    if args.url:
        entry = json.loads((ROOT / "agent.json").read_text())
        archive = f"{args.url.rstrip('/')}/{path.name}"
        binary = {"archive": archive, "cmd": "./sanderling", "args": ["acp"], "checksum": digest}
        entry["distribution"] = {"binary": {target(): binary}} | entry["distribution"]
        (args.output / "agent.json").write_text(json.dumps(entry, indent=2) + "\n")


def version() -> str:
    return json.loads((ROOT / "agent.json").read_text())["version"]


def target() -> str:
    """Return the platform as the registry of agents names it."""
    machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-{machine}"


def build(tree: Path) -> None:
    """
    Make the tree: a checkout, with its environment in `.venv`, as the plugin looks for it.

    Raises:
        InstallError: the Python cannot be moved, or the packages cannot be installed.
    """
    ignored = shutil.ignore_patterns(*LEFT_OUT[:2])
    for name in FOLDERS:
        shutil.copytree(ROOT / name, tree / name, ignore=ignored)
    (tree / "scripts").mkdir()
    for name in (*FILES, *(f"scripts/{each}" for each in SCRIPTS)):
        shutil.copy(ROOT / name, tree / name)
    environment = tree / ".venv"
    copy_python(Path(sys.base_prefix), environment)
    install(environment)
    (tree / "sanderling").symlink_to(".venv/bin/sanderling")
    python = str(environment / "bin/python3")
    places = [str(tree / "src"), str(tree / "rplugin"), str(environment / LIBRARY)]
    subprocess.run([python, "-I", "-m", "compileall", "-qq", *places], check=False)


def copy_python(prefix: Path, environment: Path) -> None:
    name = f"python{PYTHON_VERSION}"
    if not (prefix / LIBRARY / "os.py").is_file():
        raise InstallError(f"{prefix} has no {LIBRARY}: run this with another Python.")
    (environment / "bin").mkdir(parents=True)
    shutil.copytree(
        prefix / LIBRARY, environment / LIBRARY, ignore=shutil.ignore_patterns(*LEFT_OUT)
    )
    (environment / LIBRARY / "site-packages").mkdir()
    shutil.copy(prefix / "bin" / name, environment / "bin" / name)
    for link in ("python", "python3"):
        (environment / "bin" / link).symlink_to(name)
    for library in prefix.glob(f"lib/libpython{PYTHON_VERSION}*.so*"):
        shutil.copy(library, environment / "lib", follow_symlinks=False)
    look_beside_itself(environment / "bin" / name, prefix / "lib")
    code = "import sys; print(sys.prefix, open('/proc/self/maps').read() if sys.platform == 'linux' else '')"
    said = subprocess.run(
        [environment / "bin/python3", "-I", "-c", code], capture_output=True, text=True, check=False
    )
    if not said.stdout.startswith(f"{environment.resolve()} ") or f" {prefix}/" in said.stdout:
        raise InstallError(
            f"the Python in {prefix} does not run elsewhere: take one of python-build-standalone."
        )


def look_beside_itself(program: Path, libraries: Path) -> None:
    """Replace the directory of its libraries, in the header of an ELF file, by one relative to the file, as chrpath does."""
    old, new = os.fsencode(libraries) + b"\0", b"$ORIGIN/../lib\0"
    data = program.read_bytes()
    if len(new) <= len(old):
        program.write_bytes(data.replace(old, new.ljust(len(old), b"\0")))


def install(environment: Path) -> None:
    """Install the pinned packages, and Sanderling as its own sources."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
        pins.write(sections_of((ROOT / LOCK).read_text())["base"])
        pins.flush()
        options = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", pins.name)
        pip = (sys.executable, "-I", "-m", "pip", "--python", str(environment / "bin/python3"))
        run([*pip, "install", "--no-compile", *options], "pip failed", NO_CONSTRAINTS)
    for path in (environment / "bin").iterdir():
        if path.read_bytes()[:2] == b"#!":  # names the directory where this was built
            path.unlink()
    shutil.copy(ROOT / "scripts/sanderling.sh", environment / "bin/sanderling")
    (environment / "bin/sanderling").chmod(0o755)
    (environment / LIBRARY / "site-packages/_sanderling.pth").write_text("../../../../src\n")
    stamp = {"inputs": hash_of_inputs(), "root": "", "python": PYTHON_VERSION, "extras": []}
    (environment / STAMP).write_text(json.dumps(stamp) + "\n")


def pack(tree: Path, path: Path) -> None:
    """Write the archive, of nobody's files, in the same order each time."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode |= 0o444 | (0o111 if member.mode & 0o100 else 0)
        return member

    unfinished = path.with_suffix(".part")
    with (
        gzip.GzipFile(unfinished, "wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for each in sorted(tree.iterdir()):
            tar.add(each, arcname=each.name, filter=anonymous)
    unfinished.replace(path)


if __name__ == "__main__":
    main()
