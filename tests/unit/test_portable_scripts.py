"""The scripts for contributors run with bash 3.2 and the BSD tools of macOS, where GNU's options do not exist."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.conftest import ROOT

TRACKED = ["Makefile", ".ci/run", *ROOT.glob("scripts/*.sh"), *ROOT.glob("eval/tasks/*/**/*.sh")]
SCRIPTS = [Path(ROOT, each) for each in TRACKED]
NOT_ON_MACOS = {
    "GNU's option": r"\brealpath\b|readlink -f|sed -i|sed -r|stat -c|date -d|xargs -r|grep -P|base64 -w|head -n -|cp --|mktemp --",
    "GNU's program": r"\b(nproc|tac|shuf|md5sum|sha256sum)\b",
    "GNU's escape in sed": r"\bsed\b[^|]*\\[+?tb]",
    "newer than bash 3.2": r"\b(mapfile|readarray|coproc)\b|declare -A|\$\{\w+(,,|\^\^)|&>>|\|&",
    "an unset array in bash 3.2": r'(?<!\+)"\$\{failed\[@\]\}"',
}
ON_LINUX_ONLY = {"unpack_neovim.sh": 'here=\\$(dirname "\\$(realpath "\\$0")")/root/usr'}


@pytest.mark.parametrize("what", NOT_ON_MACOS)
def test_no_script_needs_what_macos_lacks(what):
    for script in SCRIPTS:
        lines = script.read_text().splitlines()
        allowed = ON_LINUX_ONLY.get(script.name)
        found = [
            line
            for line in lines
            if not line.startswith("#") and line != allowed and re.search(NOT_ON_MACOS[what], line)
        ]
        assert found == [], script


def test_make_help_lists_the_targets_wherever_it_is_called(tmp_path):
    link = tmp_path / "a link"
    link.symlink_to(ROOT)
    done = subprocess.run(
        ["make", "-f", link / "Makefile", "help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("help      list the targets\ninstall   build the Python")
    assert "\nbench     measure speed\n" in done.stdout
