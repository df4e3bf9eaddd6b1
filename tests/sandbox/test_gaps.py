"""The gaps of each level: the table in the code against the help."""

import pytest

from sanderling.sandbox.gaps import GAPS, NETWORK_ON
from tests.conftest import ROOT

HELP = " ".join((ROOT / "doc" / "sanderling.txt").read_text().split())
AT_EVERY_LEVEL = (
    "Files that a command writes to the project run outside the sandbox when you run them: tests, Makefiles, package scripts, an unfinished rebase.",
    "When you commit: what a hook runs beyond the files that it names, such as the scripts of package.json.",
    "When you only open a file: a language server or linter in your editor runs build scripts (build.rs), macros, plugins and settings that are code (eslint.config.js).",
    "A command can read the whole project, its history included, and the system's programs and settings.",
    "With the network on, or to a host that the proxy allows, it can send what it reads.",
    "A name that does not exist yet cannot be protected by a mount; the guard removes it within about a millisecond, and a program that reads it in between finds it.",
    "A new repository whose settings run something is found within about a second, in large projects within ten times the duration of a scan; a git command in between runs them.",
    "While you change a repository's settings outside, a running command can write to the new file for about a millisecond, and its text counts as yours.",
    "A command with the network on can hand a connection to one without.",
    "If the sandbox's own processes are killed before their last check, files left by a command stay in the project.",
    "An MCP server starts in the project: if it loads code or settings from there (node_modules, .npmrc), their author can misuse the paths, hosts and variables declared for it.",
    "As root, files below /usr and /opt that only root may read are readable.",
    "The kernel is shared: a vulnerability in it is a vulnerability of the sandbox.",
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
