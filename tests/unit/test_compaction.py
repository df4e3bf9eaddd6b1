"""What the model is shown of a conversation that outgrows its window: always something that the API accepts."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api_rules import anthropic
from tests.conftest import examples

from sanderling.conversation.compaction import (
    KEPT_PROMPT_TOKENS,
    LEAST_FREED_TOKENS,
    cleared_results,
    compacted,
    estimated_tokens,
    is_due,
    limit_tokens,
    problem_of,
    share_of,
    summary_prompt,
)
from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    Selection,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
)
from sanderling.session.history import input_line, with_results

IMAGE = ImageBlock(ImageSource("image/png", "aGVsbG8="))


def words(tokens: int) -> str:
    return "word" * tokens


def said(text: str) -> Message:
    return Message("user", (TextBlock(text),))


def rounds(*sizes: int, name: str = "bash", is_error: bool = False) -> list[Message]:
    """A prompt, and a round of one tool use for each size, its result's in tokens; the last has not been answered yet."""
    history = [said("Go.")]
    for number, size in enumerate(sizes):
        use = ToolUse(f"t{number}", name, {"command": f"pytest -q {number}"})
        history += [
            Message("assistant", (TextBlock("Next."), use)),
            Message("user", (ToolResult(use.id, words(size), is_error),)),
        ]
    return history


def refusals(history) -> list[str]:
    return anthropic.refusals(msgspec.json.decode(msgspec.json.encode(history)))


# --- when --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "window, max_output, limit",
    [
        (1_000_000, 128_000, 800_000),
        (1_000_000, 32_000, 800_000),
        (200_000, 32_000, 148_000),
        (200_000, 128_000, 100_000),
        (64_000, 32_000, 32_000),
        (32_000, 8_000, 24_000),
        (8_000, 8_000, 6_000),
    ],
)
def test_the_limit_leaves_room_for_an_answer_and_is_at_least_half_a_window(
    window, max_output, limit
):
    assert limit_tokens(window, max_output) == limit


def test_compaction_is_due_above_the_limit_and_never_with_an_unknown_window():
    assert not is_due(148_000, 200_000, 32_000)
    assert is_due(148_001, 200_000, 32_000)
    assert not is_due(10_000_000, 0, 32_000)


def test_an_estimate_counts_all_that_is_sent():
    history = [
        said(words(100)),
        Message(
            "assistant",
            (
                ThinkingBlock(words(10), "a signature, which is no text"),
                ToolUse("t", "bash", {"command": "x" * (400 - 14 - 4)}),
            ),
        ),
        Message("user", (ToolResult("t", (TextBlock(words(50)), IMAGE)),)),
    ]
    assert estimated_tokens(history) == 100 + 10 + 100 + 50 + 1_600


def test_an_estimate_of_other_scripts_is_higher():
    assert estimated_tokens([said("語" * 400)]) == 300


# --- old results -------------------------------------------------------------------------------------------------------


def test_old_results_are_cleared_and_the_newest_stay():
    history = rounds(30_000, 15_000, 25_000, 12_000, 3_000)
    assert cleared_results(history) == {
        "t0": '[cleared: the result of bash "pytest -q 0" (120,000 characters); get it again if you need it]',
        "t1": '[cleared: the result of bash "pytest -q 1" (60,000 characters); get it again if you need it]',
    }


def test_results_that_the_model_has_not_seen_stay_whatever_their_size():
    assert cleared_results(rounds(100_000)) == {}
    assert list(cleared_results(rounds(30_000, 100_000))) == ["t0"]
    assert cleared_results(rounds(30_000, 39_999)) == {}


def test_nothing_is_cleared_for_little():
    assert cleared_results(rounds(LEAST_FREED_TOKENS - 1, 40_000, 1)) == {}
    assert list(cleared_results(rounds(LEAST_FREED_TOKENS + 100, 40_000, 1))) == ["t0"]


def test_clearing_twice_clears_nothing_more():
    history = rounds(*[5_000] * 40)
    texts = cleared_results(history)
    assert list(texts) == [f"t{number}" for number in reversed(range(32))]
    cleared = with_results(history, texts)
    assert refusals(cleared) == []
    assert cleared_results(cleared) == {}
    rest = cleared_results(cleared, kept_tokens=0)
    assert list(rest) == [f"t{number}" for number in reversed(range(32, 39))]


def test_short_results_and_errors_stay_what_they_are():
    history = rounds(*[100] * 1_000, 41_000, 1)
    assert cleared_results(history) == {}
    failed = rounds(30_000, 41_000, 1, is_error=True)
    (result,) = with_results(failed, cleared_results(failed))[2].content
    assert isinstance(result, ToolResult)
    assert result.is_error


def test_a_measured_factor_counts():
    history = rounds(15_000, 25_000, 0)
    assert cleared_results(history) == {}
    assert list(cleared_results(history, factor=1.6)) == ["t0"]


def test_cleared_page_of_a_file_names_its_lines():
    use = ToolUse("t", "read", {"path": "a.py", "offset": 40})
    page = "x" * 200_000 + "\n(lines 40-1239 of 3000; continue with offset=1240)"
    history = [
        said("Look."),
        Message("assistant", (use,)),
        Message("user", (ToolResult("t", page),)),
        *rounds(40_000, 1)[1:],
    ]
    [text] = cleared_results(history).values()
    assert text.startswith('[cleared: the result of read "a.py", lines 40-1239 (')


def test_images_are_cleared_with_their_number():
    use = ToolUse("t", "read", {"path": "a.png"})
    history = [
        said("Look."),
        Message("assistant", (use,)),
        Message("user", (ToolResult("t", (IMAGE,) * 20),)),
        *rounds(40_000, 1)[1:],
    ]
    assert cleared_results(history) == {
        "t": '[cleared: the result of read "a.png" (20 images); get it again if you need it]'
    }


@pytest.mark.parametrize(
    "data, line",
    [
        ({"command": "pytest -q", "timeout_s": 3}, "pytest -q"),
        ({"edits": [], "path": "src/a.py"}, "src/a.py"),
        ({"command": "cat <<EOF\n  a\nEOF"}, "cat <<EOF a EOF"),
        ({"depth": 2, "other": "that"}, "that"),
        ({"command": "x" * 100}, "x" * 79 + "…"),
        ({"depth": 2}, ""),
        ({"command": 3, "path": "a"}, "a"),
    ],
)
def test_an_input_is_told_in_a_line(data, line):
    assert input_line(ToolUse("t", "tool", data)) == line


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from([0, 10, 250, 5_000, 30_000]), min_size=1, max_size=4), max_size=12
    ),
    st.sampled_from([0, 10_000, 40_000]),
)
def test_whatever_is_cleared_the_history_stays_valid(sizes, kept_tokens):
    history = [said("Go.")]
    for number, row in enumerate(sizes):
        uses = [ToolUse(f"t{number}_{n}", "bash", {"command": "x"}) for n in range(len(row))]
        results = [
            ToolResult(use.id, words(size) or "-") for use, size in zip(uses, row, strict=True)
        ]
        history += [Message("assistant", tuple(uses)), Message("user", tuple(results))]
    texts = cleared_results(history, kept_tokens=kept_tokens)
    cleared = with_results(history, texts)
    assert refusals(cleared) == []
    assert cleared[-1] == history[-1]
    if texts:
        assert estimated_tokens(history) - estimated_tokens(cleared) >= LEAST_FREED_TOKENS - 1
        assert not set(texts) & set(cleared_results(cleared, kept_tokens=kept_tokens))


# --- the summary -------------------------------------------------------------------------------------------------------


def texts_of(message: Message) -> list[str]:
    return [block.text for block in message.content if isinstance(block, TextBlock)]


def test_the_request_for_a_summary_is_valid_wherever_the_conversation_stands():
    assert refusals([*rounds(10), summary_prompt()]) == []
    assert (
        refusals([said("Go."), Message("assistant", (TextBlock("Done."),)), summary_prompt()]) == []
    )


def test_a_focus_is_passed_on_in_the_persons_words():
    assert "above all" not in texts_of(summary_prompt(" \n"))[0]
    (text,) = texts_of(summary_prompt("the {summary} of the parser\n"))
    assert text.endswith("The user asks you to keep above all: the {summary} of the parser\n")


@pytest.mark.parametrize(
    "summary, stop_reason, problem",
    [
        ("## Goal\nA parser.", "end_turn", ""),
        ("## Goal\nA parser.", "stop_sequence", ""),
        (" \n", "end_turn", "the model wrote nothing"),
        ("", "refusal", "the model refused to write one"),
        ("## Goal", "refusal", "the model refused to write one"),
        ("I\u2019m sorry, but I can't do that.", "end_turn", "the model refused to write one"),
        ("I cannot help with this.", "end_turn", "the model refused to write one"),
        ("I can not yet say why. " + "x" * 500, "end_turn", ""),
        ("## Goal\nA", "max_tokens", "it was cut off at the model's limit"),
        ("## Goal\nA", "cancelled", "it was not finished"),
    ],
)
def test_a_summary_that_is_none_has_a_problem(summary, stop_reason, problem):
    assert problem_of(summary, stop_reason) == problem


def test_a_summary_comes_with_the_latest_prompts_verbatim_and_notes():
    prompts = [
        Prompt("p1", "Write a parser.\n  Not with {summary}!"),
        Prompt("p2", "Why?", (Selection("a.py", 3, 4, "x = 1", "python"),)),
        Prompt("p3", " "),
    ]
    (message,) = compacted("## Goal\nA parser.\n", prompts, ["Mode: auto.", " "], is_in_turn=True)
    frame, header, first, second, notes, mode, go_on = texts_of(message)
    assert "<summary>\n## Goal\nA parser.\n</summary>" in frame
    assert "verbatim" in header
    assert first == "Write a parser.\n  Not with {summary}!"
    assert second == "a.py:3-4, as the editor showed it then:\n```python\n3\tx = 1\n```\n\nWhy?"
    assert "Current state" in notes
    assert mode == "Mode: auto."
    assert "Continue where it stopped" in go_on
    assert message.role == "user"


def test_between_turns_the_model_is_not_told_to_go_on():
    (message,) = compacted("## Goal", [Prompt("p1", "Hi")], is_in_turn=False)
    assert "Go on" not in "".join(texts_of(message))
    (message,) = compacted("## Goal", [], is_in_turn=False)
    assert len(message.content) == 1


def test_the_newest_prompts_that_fit_are_kept_in_their_order():
    prompts = [Prompt(f"p{n}", f"{n}" + words(KEPT_PROMPT_TOKENS // 4)[1:]) for n in range(10)]
    (message,) = compacted("## Goal", prompts, is_in_turn=False)
    assert [text[0] for text in texts_of(message)[2:]] == ["6", "7", "8", "9"]


def test_of_a_prompt_that_is_too_long_the_words_are_kept_before_its_lines():
    lines = Selection("a.py", 1, 9_000, words(2 * KEPT_PROMPT_TOKENS))
    (message,) = compacted("## Goal", [Prompt("p1", "Why?", (lines,))], is_in_turn=True)
    assert texts_of(message)[2] == ("[Attached lines, omitted here: a.py:1-9000]\n\nWhy?")
    long = Prompt("p1", "begin" + "語" * 100_000 + "end")
    (message,) = compacted("## Goal", [Prompt("p0", "Hi"), long], is_in_turn=True)
    text = texts_of(message)[2]
    assert text.startswith("begin語")
    assert text.endswith("語end")
    assert estimated_tokens([said(text)]) < KEPT_PROMPT_TOKENS + 50
    left_out = int(text.partition("[… ")[2].partition(" ")[0].replace(",", ""))
    assert text.count("語") + left_out == 100_000


PROMPTS = st.lists(
    st.builds(
        Prompt,
        st.just("p"),
        st.one_of(st.text(max_size=20), st.integers(1, 30_000).map(words)),
        st.lists(
            st.builds(Selection, st.just("a"), st.just(1), st.just(2), st.text()), max_size=2
        ).map(tuple),
    ),
    max_size=6,
)


@settings(max_examples=examples(200), deadline=None)
@given(
    st.text(min_size=1).filter(str.strip), PROMPTS, st.lists(st.text(), max_size=3), st.booleans()
)
def test_whatever_was_said_the_compacted_conversation_is_valid(summary, prompts, notes, is_in_turn):
    messages = compacted(summary, prompts, notes, is_in_turn=is_in_turn)
    follows = () if is_in_turn else (said("Next."),)
    assert refusals([*messages, *follows]) == []
    assert estimated_tokens(messages) < (
        KEPT_PROMPT_TOKENS + 1_000 + estimated_tokens(map(said, (summary, *notes)))
    )


@pytest.mark.parametrize(
    "window, tokens", [(0, 40_000), (8_192, 2_048), (160_000, 40_000), (1_000_000, 40_000)]
)
def test_of_a_small_window_only_a_share_is_kept(window, tokens):
    assert share_of(window, 40_000, 4) == tokens
