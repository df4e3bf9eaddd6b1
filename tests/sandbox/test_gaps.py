"""What the levels lack: the table in code against what the documentation tells a person."""

import pytest

from sanderling.sandbox.gaps import GAPS, NETWORK_ON
from tests.conftest import ROOT

HELP = " ".join((ROOT / "doc" / "sanderling.txt").read_text().split())
AT_EVERY_LEVEL = (
    "What a command writes into the project runs outside of the sandbox when you run it: tests, Makefiles, package scripts, a rebase that it left unfinished; when you commit: what a hook runs beyond the files that it names, the scripts of package.json for instance; and when you only open a file: a language server or a linter in your editor runs build scripts (build.rs), macros, plugins and settings that are code (eslint.config.js).",
    "A command can read all of the project, its history included, and the system's programs and settings.",
    "With the network on, or to a host that the proxy lets through, it can send what it reads.",
    "What no mount can protect, a name that is not there yet, is taken away by the guard within about a millisecond of its appearing; a program that reads it in between finds it.",
    "A new repository whose settings run something is found within about a second, in large projects within ten times as long as a look at the project takes; what asks git about it in between runs them.",
    "When you change a repository's settings outside while commands run, one of them can write to the new file for about a millisecond, and what it wrote counts as yours.",
    "A command with the network on can hand a connection to one that runs without.",
    "If the sandbox's own processes are killed before they have looked a last time, what a command left in the project stays.",
    "A tool server starts in the project: one that loads code or settings from there (node_modules, .npmrc) can be led by whoever wrote them to misuse the paths, hosts and variables that were declared for it.",
    "As root, files below /usr and /opt that only root may read can be read.",
    "The kernel is shared: a hole in it is a hole in the sandbox.",
)
SENTENCES = {gap.words for gaps in (*GAPS.values(), *NETWORK_ON.values()) for gap in gaps} | set(
    AT_EVERY_LEVEL
)


@pytest.mark.parametrize("sentence", sorted(SENTENCES))
def test_help_says_what_is_not_isolated_in_the_same_words(sentence):
    assert sentence in HELP


def test_help_lists_for_each_level_what_it_lacks():
    for level, gaps in GAPS.items():
        chapter = HELP.partition(f"Level {level} ~")[2].partition(" ~ ")[0]
        assert all(gap.words in chapter for gap in gaps), level
