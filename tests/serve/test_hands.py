"""The output of a tool that a client runs: complete, in order and once, whatever a cut of the connection has taken."""

from sanderling.acp.hands import ToolOutput
from sanderling.serve.hands import Shown


def shown(*pieces: tuple[str, int | None]) -> str:
    screen: list[str] = []
    output = Shown(screen.append)
    for text, start in pieces:
        output.take(ToolOutput("s", "t", text, start))
    return "".join(screen)


def test_what_is_sent_again_after_a_cut_is_shown_once():
    assert shown(("one\n", 0), ("one\ntwo\n", 0), ("three\n", 8)) == "one\ntwo\nthree\n"


def test_what_the_cut_has_taken_is_shown_where_it_belongs():
    assert shown(("one\n", 0), ("three\n", 8), ("one\ntwo\nthree\n", 0)) == "one\ntwo\nthree\n"


def test_a_client_that_does_not_count_is_shown_as_it_speaks():
    assert shown(("one\n", None), ("one\n", None)) == "one\none\n"
