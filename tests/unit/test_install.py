"""The installer and its lock: what is installed are the very files that were tested."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.conftest import ROOT, prove

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "constraints.txt").read_text()
PIN = re.compile(
    r"([\w.-]+)==([\w.!+]+)(?: ; [^\\\n]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n"
)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "scripts/install.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def install() -> ModuleType:
    return load()


SECTIONS = load().sections_of(LOCK)


def pins(section: str) -> dict[str, str]:
    return {name: version for name, version, _ in PIN.findall(SECTIONS[section])}


def test_each_line_of_the_lock_is_a_section_or_a_pin_with_hashes():
    assert PIN.sub("", re.sub(r"^# \w+\n", "", LOCK, flags=re.MULTILINE)) == ""
    assert "://" not in LOCK


def test_the_lock_has_what_the_project_wants():
    extras = PROJECT["project"]["optional-dependencies"] | PROJECT["dependency-groups"]
    assert SECTIONS.keys() == {"base", "build", *extras}
    wanted = {
        "base": PROJECT["project"]["dependencies"],
        "build": PROJECT["build-system"]["requires"],
    }
    for section, requirements in (wanted | extras).items():
        known = pins("base") | pins("build") | pins(section)
        for requirement in map(Requirement, requirements):
            assert requirement.specifier.contains(known[canonicalize_name(requirement.name)])


def test_what_is_installed_is_what_is_pinned():
    for name, version in pins("base").items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform, or an older Python
        assert installed == version, name


def wheel(directory: Path, text: str) -> Path:
    """A package whose module says `text`."""
    directory.mkdir(exist_ok=True)
    path = directory / "tested_thing-1.0-py3-none-any.whl"
    files = {
        "tested_thing.py": f"text = {text!r}\n",
        "tested_thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tested-thing\nVersion: 1.0\n",
        "tested_thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digests = {
        name: base64.urlsafe_b64encode(hashlib.sha256(body.encode()).digest()).rstrip(b"=").decode()
        for name, body in files.items()
    }
    record = [f"{name},sha256={digest},{len(files[name])}" for name, digest in digests.items()]
    files["tested_thing-1.0.dist-info/RECORD"] = "\n".join(
        [*record, "tested_thing-1.0.dist-info/RECORD,,"]
    )
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body)
    return path


@prove
def test_other_bytes_than_those_that_were_tested_are_refused(
    install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-I", "-m", "venv", str(environment)], check=True)
    index = tmp_path / "index"
    tested = hashlib.sha256(wheel(index, "tested").read_bytes()).hexdigest()
    (tmp_path / "constraints.txt").write_text(
        f"# base\ntested-thing==1.0 \\\n    --hash=sha256:{tested}\n# other\nabsent==1.0\n"
    )
    monkeypatch.setattr(install, "ROOT", tmp_path)
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": "/dev/null"}
    monkeypatch.setattr(install, "ENVIRON", install.ENVIRON | offline)
    says = [environment / "bin/python", "-c", "import tested_thing; print(tested_thing.text)"]
    wheel(index, "other")
    with pytest.raises(install.InstallError, match="differs from the tested file"):
        install.install_packages(environment, ["base"], None)
    assert subprocess.run(says, check=False, capture_output=True).returncode != 0
    wheel(index, "tested")
    install.install_packages(environment, ["base"], None)
    assert subprocess.run(says, check=True, capture_output=True).stdout == b"tested\n"
    with pytest.raises(install.InstallError):
        install.install_packages(environment, ["other"], None)  # a pin without a hash


def moved(install: ModuleType, tmp_path: Path) -> Path:
    """A checkout with its environment, moved to another directory after it was installed."""
    first, second = tmp_path / "first", tmp_path / "moved here"
    environment = first / ".venv"
    environment.parent.mkdir()
    copy = ["cp", "-al", sys.prefix, str(environment)]
    if subprocess.run(copy, capture_output=True, check=False).returncode:  # another file system
        shutil.copytree(sys.prefix, environment, symlinks=True)
    shutil.copytree(ROOT / "src", first / "src")
    for path in environment.glob("lib/python*/site-packages/*.pth"):
        if "src" in path.read_text():
            path.unlink()  # the other link of it stays
            path.write_text(f"{first / 'src'}\n")
    install.name_sources_relatively(environment, first)
    first.rename(second)
    return second


@prove
def test_an_environment_and_its_checkout_work_where_they_are_moved(install, tmp_path):
    checkout = moved(install, tmp_path)
    link = tmp_path / "sanderling"
    link.symlink_to(checkout / ".venv" / "bin" / "sanderling")
    script = tmp_path / "script.json"
    use = {"tool_use": {"name": "bash", "input": {"command": "echo $((6 * 7))"}}}
    replies = [{"step": [use]}, {"step": [{"text": "Done."}]}]
    script.write_text(json.dumps({"version": 1, "reply": replies}))
    project = tmp_path / "project"
    project.mkdir()
    trajectory = tmp_path / "trajectory.json"
    ran = subprocess.run(
        [
            *(str(link), "-p", "Go.", "--model", f"script:{script}", "--mode", "auto"),
            *("--project", str(project), "--trajectory", str(trajectory)),
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "Done.\n"), ran.stderr
    assert "42" in trajectory.read_text()
    where = [
        str(checkout / ".venv/bin/python"),
        "-I",
        "-c",
        "import sanderling as s; print(s.__file__)",
    ]
    found = subprocess.run(where, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(checkout / "src"))


def test_an_environment_elsewhere_keeps_the_path_of_the_checkout(install, tmp_path):
    pth = tmp_path / "env/lib/python3.11/site-packages/_sanderling.pth"
    pth.parent.mkdir(parents=True)
    pth.write_text("/checkout/src\n")
    install.name_sources_relatively(tmp_path / "env", Path("/checkout"))
    assert pth.read_text() == "/checkout/src\n"
