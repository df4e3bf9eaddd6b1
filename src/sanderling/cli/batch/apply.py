"""`sanderling batch apply OUT`: shows each patch, asks, and applies it to the project."""

import argparse
import subprocess
import sys
from pathlib import Path

from sanderling.batch.applying import Patch, patches_of
from sanderling.batch.git import GitError
from sanderling.batch.results import read_results
from sanderling.cli.neovim import neovim_program
from sanderling.cli.streams import say
from sanderling.errors import UsageError
from sanderling.text import visible, visible_line

EXIT_DONE, EXIT_FAILED = 0, 1
QUESTION = "Apply? y: yes, n: no, a: this and all others, q: quit "
MAX_SHOWN_BYTES = 1 << 20


def apply(out: Path, arguments: argparse.Namespace) -> int:
    """
    Apply the patches that the user accepts.

    Raises:
        UsageError: there are no patches, or no terminal for the questions.
    """
    patches = list(patches_of(out, read_results(out), arguments.min_reward))
    if not patches:
        raise UsageError(f"{out} has no patches with such a reward")
    if arguments.open and not neovim_program():
        raise UsageError("--open needs Neovim: there is no nvim on PATH")
    if not arguments.yes and not sys.stdin.isatty():
        raise UsageError(
            "batch apply asks about each patch on a terminal; --yes applies without asking"
        )
    accepts_all, applied, failed = arguments.yes, 0, 0
    for number, patch in enumerate(patches, 1):
        reward = "" if patch.result.reward is None else f", reward {patch.result.reward:g}"
        title = f"{number}/{len(patches)} {patch.result.id} ({patch.result.state}{reward})"
        sys.stdout.write(visible_line(title) + "\n")
        if patch.root is None:
            say(f"not applied: {patch.problem}: {patch.path}")
            failed += 1
            continue
        if not accepts_all:
            _show(patch, is_opened=arguments.open)
            answer = _ask()
            if answer == "q":
                break
            if answer == "n":
                continue
            accepts_all = answer == "a"
        is_applied = _apply(patch)
        applied, failed = applied + is_applied, failed + (not is_applied)
    not_applied = f", {failed} failed" if failed else ""
    say(f"{applied} applied{not_applied}, {len(patches) - applied - failed} left")
    return EXIT_FAILED if failed else EXIT_DONE


def _show(patch: Patch, *, is_opened: bool) -> None:
    if is_opened:
        # A modeline in what the agent wrote must not set options.
        argv = [neovim_program(), "--cmd", "set nomodeline", "-R", "--", str(patch.path)]
        subprocess.run(argv, check=False)  # noqa: S603 - no shell
        return
    try:
        sys.stdout.write(visible(patch.summary()))
    except GitError as error:
        say(str(error))
    with patch.path.open("rb") as file:
        sys.stdout.write(visible(file.read(MAX_SHOWN_BYTES).decode(errors="replace")))


def _ask() -> str:
    while True:
        try:
            answer = input(QUESTION).strip().lower()[:1]
        except EOFError:
            return "q"
        if answer in ("y", "n", "a", "q"):
            return answer


def _apply(patch: Patch) -> bool:
    try:
        sys.stdout.write(f"{patch.apply()}: {visible_line(str(patch.root))}\n")
    except GitError as error:
        say(f"{patch.result.id}: {error}")
        return False
    return True
