"""
The user's git settings that are copied into the sandbox: the author, and how output looks.

Settings that run programs, contain credentials or name other files are left out. The global ignore file is copied, or `git add -A` would
add files that it ignores outside.
"""

import os
import re
import subprocess
from pathlib import Path

from anyio import to_thread

from sanderling.paths import open_plain
from sanderling.sandbox.guard.git_program import GIT_TIMEOUT_S, TrustedGit
from sanderling.sandbox.policy import SandboxPolicy

KEPT = (
    r"user\.(name|email)|init\.defaultbranch|core\.(abbrev|autocrlf|commentchar|eol|quotepath|whitespace)"
    r"|(advice|alias|color|column|rebase|rerere|status)\..*|branch\.(autosetup\w+|sort)|commit\.(cleanup|verbose)"
    r"|diff\.(algorithm|colormoved|indentheuristic|mnemonicprefix|noprefix|renames)|fetch\.prune|format\.pretty"
    r"|log\.\w+|merge\.(conflictstyle|ff)|pull\.(ff|rebase)|push\.(autosetupremote|default)|tag\.sort"
)
LIST_SETTINGS = ("config", "--global", "--includes", "--list", "-z")


async def write_gitconfig(policy: SandboxPolicy) -> None:
    """Write `gitconfig` and `gitignore` into the policy's `state_dir`. Both are empty without git or settings."""
    program = TrustedGit(policy.project, *policy.write_paths).program
    settings = await to_thread.run_sync(_read_settings, program) if program else {}
    _write(Path(policy.state_dir), settings)


def _write(state: Path, settings: dict[str, str]) -> None:
    ignored = Path(settings.pop("core.excludesfile", "~/.config/git/ignore")).expanduser()
    try:
        with open_plain(ignored) as file:
            ignore_text = file.read().decode(errors="surrogateescape")
    except OSError:
        ignore_text = ""
    kept = {key: value for key, value in settings.items() if re.fullmatch(KEPT, key)}
    lines = [_line(key, value) for key, value in kept.items() if not value.startswith("!")]
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in (
        ("gitignore", ignore_text),
        ("gitconfig", "".join(lines)),
    ):
        (state / name).write_text(text, encoding="utf-8", errors="surrogateescape")


def _read_settings(program: str) -> dict[str, str]:
    try:
        done = subprocess.run(  # noqa: S603
            [program, *LIST_SETTINGS],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    items = (item.partition("\n") for item in os.fsdecode(done.stdout).split("\0"))
    return {key: value for key, _, value in items if key}


def _line(key: str, value: str) -> str:
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    header = f'{section} "{_escaped(subsection)}"' if subsection else section
    return f'[{header}]\n\t{name} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
