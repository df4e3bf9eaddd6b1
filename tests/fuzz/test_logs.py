"""A session's log that ends anywhere, as a killed host leaves it: all that was said is there, and what follows is valid."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from sanderling.protocol.actions import Compact
from sanderling.protocol.events import Compacted
from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.session.session import Session
from tests.api_rules.anthropic import refusals
from tests.cached_api import text, thought, use
from tests.fuzz.talk import Answer, Talk, directory, in_process_api, last_words, talking, texts_of
from tests.fuzz.wires import ANTHROPIC

pytestmark = pytest.mark.guard

TODO = use("todo_1", "todo", items=[{"content": "Look.", "status": "in_progress"}])
READ = use("read_1", "read", path="notes.txt")
WRITE = use("write_1", "write", path="new.txt", content="New.\n")
ASKED_NEXT = Message("user", (TextBlock("And now?"),))
SUMMARY = text("The person wants a plan; todo has it, new.txt is written.")


async def eventful_log() -> bytes:
    """Of a session with tools, words in between, a cut answer, a summary, and prompts that had to wait."""
    talk: Talk | None = None

    def say_more() -> None:
        assert talk
        talk.steer("Steer.")
        talk.submit("Queue.")

    plan = ANTHROPIC.bytes_of(thought("Hm."), text("I plan."), TODO, READ)
    with directory() as folder:
        async with in_process_api() as (api, make), talking(folder, make) as talk:
            talk.conversation.controls.set_mode("auto")
            api.answers = [Answer(plan, at=900, then=say_more), Answer(plan), last_words()]
            await talk.ask("First.")
            talk.conversation.act(Compact("what matters"))
            api.answers = [
                Answer(ANTHROPIC.bytes_of(SUMMARY)),
                Answer(ANTHROPIC.bytes_of(WRITE)),
                last_words(),
            ]
            await talk.ask("Second.")
            assert (api.refused, talk.count(Compacted)) == ([], 1)
            return talk.session.path.read_bytes()


def said_in(session: Session) -> set[str]:
    """The person's words that the session has, in its history or waiting for their turn."""
    waiting = msgspec.convert(session.state("waiting") or {}, dict[str, list[Prompt]])
    return {
        *texts_of(session.history, "user"),
        *(prompt.text for prompts in waiting.values() for prompt in prompts),
    }


@contextmanager
def opened(log: bytes, folder: Path) -> Iterator[Session]:
    (folder / "s1.jsonl").write_bytes(log)
    session = Session.open(folder, "s1", "/project")
    yield session
    session.close()


def ends(log: bytes) -> Iterator[int]:
    """Behind each record, and in the middle of it."""
    end = 0
    for line in log.splitlines(keepends=True):
        yield end + len(line) // 2
        end += len(line)
        yield end


async def test_whatever_the_last_record_is_no_word_is_lost_and_the_rest_is_valid(tmp_path):
    log = await eventful_log()
    said: set[str] = set()
    prompts = {"First.", "Steer.", "Queue.", "Second."}
    for end in ends(log):
        last = log[:end].splitlines()[-1:]
        with opened(log[:end], tmp_path) as session:
            assert session.log.damaged_lines == 0
            now = said_in(session) & prompts
            session.append_message(ASKED_NEXT)
            assert refusals(msgspec.to_builtins(session.history)) == [], last
        assert said <= now, f"{said - now} is lost behind {last}"
        said = now
    assert said == prompts


async def test_a_log_that_was_mended_is_read_the_same_again(tmp_path):
    log = await eventful_log()
    for end in ends(log):
        with opened(log[:end], tmp_path) as session:
            history = session.history
        mended = session.path.read_bytes()
        with opened(mended, tmp_path) as session:
            assert session.history == history
        assert session.path.read_bytes() == mended
