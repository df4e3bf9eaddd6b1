"""Harbor's own models read the trajectories of all logs that there can be."""

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sanderling.errors import SessionError
from sanderling.protocol.events import FilesRestored
from sanderling.protocol.messages import (
    CommandRecord,
    DocumentBlock,
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    RedactedThinkingBlock,
    Selection,
    ServerBlock,
    TextBlock,
    ThinkingBlock,
    ToolResult,
    ToolUse,
    Usage,
    WebSearch,
)
from sanderling.session.records import (
    LoggedChild,
    LoggedClearing,
    LoggedCommand,
    LoggedMessage,
    LoggedPartial,
    LoggedRestart,
    LoggedRestored,
    LoggedRewind,
    LoggedState,
    LoggedSummary,
    LoggedToolEnd,
    LoggedToolStart,
    LoggedTurnEnd,
    LoggedUndo,
    LoggedUsage,
)
from sanderling.session.store.atif import export_trajectory
from tests.conftest import examples
from tests.unit.test_atif import PRICES, child_of, exported

GOLDEN = Path(__file__).parent.parent / "golden"

words = st.text(max_size=8)
ids = st.sampled_from(["t1", "t2", "t3"])  # few, so that ids come again
images = st.sampled_from(["image/png", "image/tiff"]).map(
    lambda media_type: ImageBlock(ImageSource(media_type, "aGk="))
)
documents = st.just(DocumentBlock(ImageSource("application/pdf", "aGk="), "a.pdf", 2))
texts = st.builds(TextBlock, words)
parts = st.lists(texts | images | documents, max_size=3).map(tuple)
results = st.builds(ToolResult, ids, words | parts, st.booleans())
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
uses = st.builds(ToolUse, ids, st.sampled_from(["bash", "read"]), st.dictionaries(words, values))
searches = st.builds(ServerBlock, st.just({}), st.none() | st.builds(WebSearch, ids, words))
thoughts = st.builds(ThinkingBlock, words, words) | st.just(RedactedThinkingBlock("x"))
selections = st.builds(Selection, words, st.just(1), st.just(2), words)
prompts = st.builds(Prompt, words, words, st.lists(selections, max_size=2).map(tuple), sent=words)
usages = st.builds(Usage, *(st.integers(0, 9),) * 4)
said = st.lists(texts | images | results, max_size=4).map(tuple)
answers = st.lists(texts | thoughts | uses | searches, max_size=4).map(tuple)
records = st.one_of(
    st.builds(
        LoggedMessage,
        st.builds(Message, st.just("user"), said),
        st.none() | prompts,
        steered=st.lists(prompts, max_size=2).map(tuple),
    ),
    st.builds(LoggedMessage, st.builds(Message, st.just("assistant"), answers)),
    st.builds(LoggedUsage, st.sampled_from(["m", "n", ""]), usages, is_aside=st.booleans()),
    st.builds(LoggedPartial, st.sampled_from(["text", "thinking"]), words),
    st.builds(LoggedToolStart, ids),
    st.builds(LoggedChild, st.sampled_from(["c1", "c2", "s"]), ids),
    st.builds(LoggedToolEnd, ids, words, result=st.none() | results),
    st.builds(LoggedTurnEnd, st.sampled_from(["end_turn", "cancelled", "interrupted"]), words),
    st.builds(LoggedState, st.sampled_from(["effort", "agent", "title", "model"]), values),
    st.builds(LoggedRewind, words, words, st.just(3)),
    st.just(LoggedRestart()),
    st.just(LoggedUndo()),
    st.just(LoggedClearing({"t1": "[cleared]"}, 9, 3)),
    st.just(LoggedSummary((), "sum", 9, 3)),
    st.just(LoggedCommand(CommandRecord("ls", "a"))),
    st.just(LoggedRestored(FilesRestored("undo", ("p",), ()))),
)


def test_golden_logs_are_trajectories_for_harbor(tmp_path, validate):
    logs = sorted(GOLDEN.glob("session_log_*.jsonl"))
    for log in logs:
        (tmp_path / "s1.jsonl").write_bytes(log.read_bytes())
        (steps,) = validate([export_trajectory(tmp_path, "s1", PRICES)])
        assert steps > 5
    assert logs


def test_whatever_a_log_has_harbor_reads_its_trajectory(tmp_path, validate):
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=examples(500),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(st.lists(records, min_size=1, max_size=12))
    def collect(logged):
        child_of(tmp_path, "c1", *(each for each in logged if not isinstance(each, LoggedUsage)))
        try:
            found.append(exported(tmp_path, *logged))
        except SessionError:
            assert not any(isinstance(each, LoggedMessage) and each.prompt for each in logged)

    collect()
    assert all(validate(found))
