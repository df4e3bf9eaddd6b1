"""The installer and its lock: what is installed are the very files that were tested."""

import base64
import hashlib
import importlib.metadata
import importlib.util
import re
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
