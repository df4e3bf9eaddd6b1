"""What the levels lack: the table in code against what the documentation tells a person."""

import pytest

from sanderling.sandbox.gaps import GAPS, NETWORK_ON, RESIDUAL
from tests.conftest import ROOT

HELP = " ".join((ROOT / "doc" / "sanderling.txt").read_text().split())
SENTENCES = {gap.words for gaps in (*GAPS.values(), *NETWORK_ON.values()) for gap in gaps} | set(
    RESIDUAL
)


@pytest.mark.parametrize("sentence", sorted(SENTENCES))
def test_help_says_what_is_not_isolated_in_the_same_words(sentence):
    assert sentence in HELP


def test_help_lists_for_each_level_what_it_lacks():
    for level, gaps in GAPS.items():
        chapter = HELP.partition(f"Level {level} ~")[2].partition(" ~ ")[0]
        assert all(gap.words in chapter for gap in gaps), level
