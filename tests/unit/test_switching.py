"""One conversation with many models: whoever is asked next, the API takes the history, and holds nothing that another has sealed."""

import base64
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import DEADLINE_S, examples, prove, prove_rest
from tests.fuzz.talk import directory
from tests.talk import BaseTalk
from tests.wires.endpoints import WIRES, Answer, Apis, Said, models, providers

from sanderling.config import Settings
from sanderling.conversation.compaction import compacted
from sanderling.conversation.reply import Reply
from sanderling.errors import ProviderError
from sanderling.protocol.messages import (
    ImageBlock,
    ImageSource,
    Message,
    Prompt,
    TextBlock,
    ToolResult,
    ToolUse,
)
from sanderling.providers.choice import make_provider
from sanderling.providers.retries import Backoff
from sanderling.session.history import with_results
from sanderling.session.records import LoggedClearing, LoggedSummary
from sanderling.session.session import Session
from sanderling.text import printable

PNG = ImageBlock(ImageSource("image/png", base64.b64encode(b"\x89PNG").decode()))


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Keys that are none, and no network."""
    for name in WIRES:
        monkeypatch.setenv(f"{name.upper()}_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_PROXY", "*")


class Play:
    """A conversation whose turns the test makes."""

    def __init__(self, folder: Path, apis: Apis, model: str) -> None:
        self.apis = apis
        self.settings = Settings(state_dir=str(folder), model=model, providers=providers())
        self.session = Session.open(self.settings.session_dir, "s1", "/project")
        self.provider = make_provider(self.settings)
        backoff = Backoff(attempts=1)
        talk = BaseTalk(self.session, self.provider, settings=self.settings, backoff=backoff)
        self.services = talk.services
        self.reply = Reply(self.session)
        self._numbers = itertools.count()
        # What each compaction has taken from what models see again.
        self._compacted: list[Said] = []

    async def aclose(self) -> None:
        await self.provider.aclose()
        self.session.close()

    def say(self, words: str) -> None:
        prompt = Prompt(f"p{next(self._numbers)}", words)
        self.session.append_prompt(Message("user", (TextBlock(words),)), prompt)

    async def hear(self, answer: Answer) -> list[ToolUse]:
        """Ask the model, which says this; return its tool uses."""
        if not self.session.history or self.session.history[-1].role == "assistant":
            self.say("Go on.")
        self.apis.answers = [answer]
        try:
            await self.services.calls.ask(self.reply)
        except ProviderError as error:
            if answer.share == 1:
                self.apis.problems.append(f"{error.kind}: {error.message}")
        return self.reply.keep(self.provider.model)

    def tell(self, uses: Sequence[ToolUse], results: Sequence[Any], steered: str = "") -> None:
        told = (
            ToolResult(use.id, *result)
            for use, result in zip(uses, itertools.cycle(results or [("done",)]), strict=False)
        )
        notes = (TextBlock(steered),) if steered else ()
        self.session.append_message(Message("user", (*told, *notes)))

    def switch(self, model: str) -> None:
        if model != self.provider.model:
            self.apis.forget()
            self._compacted = [{} for _ in self._compacted]
            self.provider.set_model(model)
            self.session.switch_model(self.provider.model)

    def summarize(self) -> None:
        self._compacted.append(self.apis.forget())
        history = compacted("All is well.", self.session.prompts, is_in_turn=False)
        self.session.append(LoggedSummary(history, "All is well.", 100, 10))

    def clear(self) -> None:
        self.apis.forget_prefix()
        blocks = (block for message in self.session.history for block in message.content)
        ids = [block.tool_use_id for block in blocks if isinstance(block, ToolResult)]
        texts = dict.fromkeys(ids[:-1], "[cleared]")
        if texts and with_results(self.session.history, texts) != self.session.history:
            self._compacted.append({})
            self.session.append(LoggedClearing(texts, 100, 10))

    def undo(self) -> None:
        self.apis.forget_prefix()
        if self.session.undo_compaction():
            self.apis.remember(self._compacted.pop())


@asynccontextmanager
async def playing(folder: Path, apis: Apis, model: str) -> AsyncIterator[Play]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", apis.handle)
        play = Play(folder, apis, model)
        try:
            with anyio.fail_after(DEADLINE_S):
                yield play
        finally:
            await play.aclose()


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thought(words: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": words}


def use(use_id: str, number: int, name: str = "read") -> dict[str, Any]:
    return {"type": "tool_use", "id": use_id, "name": name, "input": {"n": number}}


RESULTS = [("1: a",), ("It failed.", True), ((TextBlock("A picture:"), PNG),), (" ",)]


async def talk_in_turns(play: Play, first: str, second: str) -> None:
    """Turns with thoughts, tools, pictures and errors, by two models in turns, who follow each other in a turn, too."""
    play.say("What is there?")
    for number, model in enumerate((first, second, first, second)):
        looks = [use("call_1", 10 * number), use("", 10 * number + 1)]
        uses = await play.hear(Answer([thought("Hm."), text("I look."), *looks]))
        play.tell(uses, RESULTS, steered="Hurry." if number % 2 else "")
        uses = await play.hear(
            Answer([use("a b " * 30, 10 * number + 2, "ls -l"), use("call_1", 10 * number + 3)])
        )
        play.tell(uses, RESULTS[:2])
        play.switch(model)
        uses = await play.hear(Answer([thought("So."), use("call_9", 10 * number + 4)]))
        play.tell(uses, RESULTS)
        await play.hear(Answer([thought("I know."), text("A picture.")]))
        play.say("And now?")
        await play.hear(Answer([text("Now I wo")], share=0.6))
        play.say("Again.")
        await play.hear(Answer([thought("Well."), text("Now it is later.")]))
        play.say("And then?")


@pytest.mark.parametrize(
    "first, second",
    prove_rest(itertools.product(WIRES, repeat=2), keep=range(0, len(WIRES) ** 2, 23)),
)
def test_two_models_may_take_turns(first, second):
    apis = Apis()

    async def run() -> None:
        with directory() as folder:
            async with playing(folder, apis, f"{first}:m1") as play:
                await talk_in_turns(play, f"{second}:m2", f"{first}:m1")

    anyio.run(run)
    assert apis.problems == []
    assert {name for name, _ in apis.asked} == {first, second}


WORDS = st.sampled_from(
    ["Hello.", "a\n\n```py\nx = 1\n```", " ", "\n", "Grüße, 🦀\u2028", "x" * 200, ""]
)
IDS = st.sampled_from(
    ["call_1", "call_2", "", "functions.read:0", "x" * 90, "ü" * 20, "toolu_01", "123456789"]
)
NAMES = st.sampled_from(["read", "bash", "", "no such tool", "x" * 600, "read\0"])
NUMBERS = itertools.count()
BLOCKS = st.lists(
    st.one_of(
        st.builds(text, WORDS),
        st.builds(thought, WORDS),
        st.builds(lambda use_id, name: use(use_id, next(NUMBERS), name), IDS, NAMES),
    ),
    max_size=5,
)
TOLD = st.lists(
    st.sampled_from(
        [*RESULTS, ("x" * 5000,), ("",), ((PNG,),), ((TextBlock(" "), PNG),), ("Half: \ud83d",)]
    ),
    max_size=4,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), WORDS.filter(str.strip)),
        st.tuples(st.just("hear"), BLOCKS, st.sampled_from([1.0, 1.0, 1.0, 0.7]), TOLD, WORDS),
        st.tuples(st.just("hear"), BLOCKS, st.sampled_from([1.0, 1.0, 1.0, 0.7]), TOLD, WORDS),
        st.tuples(st.just("switch"), st.sampled_from(list(models()))),
        st.tuples(st.sampled_from(["summarize", "clear", "undo"])),
    ),
    max_size=20,
)


async def live_through(play: Play, steps: Sequence[tuple[Any, ...]]) -> None:
    for step in steps:
        match step:
            case "say", words:
                play.say(words)
            case "hear", blocks, share, told, steered:
                if uses := await play.hear(Answer(blocks, share)):
                    play.tell(uses, told, steered)
            case "switch", model:
                play.switch(model)
            case name, *_:
                getattr(play, name)()
    play.say("At last.")
    await play.hear(Answer([text("All done.")]))


def written(session: Session) -> str:
    """The history as a log can hold it."""
    return printable(json.dumps(msgspec.to_builtins(session.history), ensure_ascii=False))


@prove
@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(list(models())), STEPS)
def test_whatever_they_say_the_next_one_can_go_on(model, steps):
    apis = Apis()

    async def run() -> None:
        with directory() as folder:
            async with playing(folder, apis, model) as play:
                await live_through(play, steps)
                history = written(play.session)
                play.session.close()
                again = Session.open(play.settings.session_dir, "s1", "/project")
                assert written(again) == history
                again.close()

    anyio.run(run)
    assert apis.problems == []
