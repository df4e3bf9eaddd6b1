"""Long lines: of each the screen gets the beginning, and is told once how much more there is."""

from hypothesis import given
from hypothesis import strategies as st

from sanderling.editor.long_lines import MAX_LINE_CHARS, LongLines
from sanderling.protocol.events import (
    AnswerRestarted,
    BlockEnded,
    CommandStarted,
    Compacted,
    ErrorOccurred,
    Event,
    HistoryShown,
    Notice,
    PromptSteered,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    TurnEnded,
    TurnStarted,
)
from sanderling.protocol.messages import Prompt, Selection

LONG = "x" * (MAX_LINE_CHARS + 2_500)
SHOWN = "x" * MAX_LINE_CHARS + "… [2.5 kB more]"
SAID = "x" * MAX_LINE_CHARS + "… [2.5 kB more: :Agent export writes all of it]"


def cut(*events: Event) -> list[Event]:
    lines = LongLines()
    return [shown for event in events for shown in lines.cut(event)]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta | ThinkingDelta))


texts = st.lists(
    st.sampled_from(["\n", "a", "wörd ", "y" * (MAX_LINE_CHARS - 1), "z" * MAX_LINE_CHARS]),
    max_size=8,
)


@given(texts)
def test_a_text_is_cut_alike_in_however_many_pieces_it_comes(pieces: list[str]):
    streamed = cut(*(TextDelta(1, piece) for piece in pieces), BlockEnded(1))
    [whole] = cut(PromptSteered(Prompt("1", "".join(pieces))))
    assert isinstance(whole, PromptSteered)
    assert text_of(streamed) == whole.prompt.text
    lines = "".join(pieces).split("\n")
    for line, shown in zip(lines, whole.prompt.text.split("\n"), strict=True):
        assert shown == line or (len(line) > MAX_LINE_CHARS and len(shown) < MAX_LINE_CHARS + 60)


def test_while_a_long_line_grows_nothing_of_it_goes_to_the_screen():
    lines = LongLines()
    assert text_of([*lines.cut(TextDelta(1, LONG))]) == "x" * MAX_LINE_CHARS + "… "
    assert all(lines.cut(TextDelta(1, "more")) == () for _ in range(1000))
    assert text_of([*lines.cut(TextDelta(1, "\nnext"))]).endswith(
        "[6.5 kB more: :Agent export writes all of it]\nnext"
    )


def test_blocks_that_grow_side_by_side_are_cut_apart():
    shown = cut(TextDelta(1, LONG), ThinkingDelta(2, "short"), BlockEnded(2), BlockEnded(1))
    assert shown[1:3] == [ThinkingDelta(2, "short"), BlockEnded(2)]
    assert text_of([shown[0], *shown[3:]]) == SAID


def test_the_end_of_a_turn_ends_a_line():
    shown = cut(ThinkingDelta(1, LONG), TurnEnded("cancelled"))
    assert text_of(shown) == SHOWN
    assert shown[-1] == TurnEnded("cancelled")


def test_an_answer_that_fails_ends_its_line_before_the_error():
    failed = ErrorOccurred("cut", "The connection broke.", "")
    shown = cut(TextDelta(1, LONG), failed, TurnEnded("error"))
    assert text_of(shown[:2]) == SAID
    assert shown[2:] == [failed, TurnEnded("error")]


def test_an_answer_that_begins_anew_is_cut_anew():
    shown = cut(TextDelta(1, LONG), AnswerRestarted(1), TextDelta(1, LONG), BlockEnded(1))
    assert text_of(shown[2:]) == SAID


def test_what_comes_whole_is_cut_too():
    prompt = Prompt("1", LONG, (Selection("a.txt", 1, 1, LONG),), LONG)
    cut_prompt = Prompt("1", SAID, (Selection("a.txt", 1, 1, SHOWN),), SHOWN)
    whole = [
        TurnStarted(prompt),
        CommandStarted("c1", LONG),
        ToolEnded("t1", "", f"-{LONG[1:]}\nshort"),
        Compacted("summary", 2, 1, LONG),
    ]
    shown = [
        TurnStarted(cut_prompt),
        CommandStarted("c1", SHOWN),
        ToolEnded("t1", "", f"-{SHOWN[1:]}\nshort"),
        Compacted("summary", 2, 1, SHOWN),
    ]
    assert cut(*whole) == shown
    assert cut(HistoryShown(tuple(whole), has_earlier=True, start=3)) == [
        HistoryShown(tuple(shown), has_earlier=True, start=3)
    ]


def test_what_has_no_long_line_stays_as_it_is():
    said = [TurnStarted(Prompt("1", "go\n" * MAX_LINE_CHARS)), Notice("info", "so")]
    assert cut(*said) == said
