"""A conversation by Ollama's wire with a server that nobody here wrote: aimock, which shows no models."""

import anyio
from tests.conftest import policy_of
from tests.unit.test_aimock import DEADLINE_S, Aimock, aimock  # noqa: F401 - a fixture

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.parts import Parts
from sanderling.protocol.events import ErrorOccurred, Event, TextDelta, TurnEnded
from sanderling.protocol.messages import Message, Prompt, TextBlock, ToolUse
from sanderling.providers.choice import make_provider
from sanderling.providers.retries import Backoff
from sanderling.session.session import Session


async def say(url: str, directory, *prompts: str) -> tuple[list[Message], list[Event]]:
    settings = Settings(str(directory), model="ollama:m", providers={"ollama": {"base_url": url}})
    project = directory / "project"
    project.mkdir()
    session = Session.open(settings.session_dir, "s1", str(project))
    events: list[Event] = []
    provider = make_provider(settings)
    conversation = Conversation(
        Parts(session, provider, events.append, policy_of(session), settings)
    )
    conversation.parts.calls.backoff = Backoff(attempts=2, first_s=0)
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(conversation.serve)
            for count, prompt in enumerate(prompts, 1):
                conversation.submit(Prompt(f"p{count}", prompt))
                while sum(isinstance(event, TurnEnded) for event in events) < count:
                    await anyio.sleep(0.005)
            conversation.close()
    session.close()
    await provider.aclose()
    return session.history, events


async def test_two_turns_and_a_tool_go_there_and_back(aimock: Aimock, tmp_path):  # noqa: F811
    history, events = await say(aimock.url, tmp_path, "Good morning.", "And now?", "Use a tool.")
    assert [event for event in events if isinstance(event, ErrorOccurred)] == []
    assert history[1].content == (TextBlock("Good morning to you, too! 🦀"),)
    assert sum(isinstance(event, TextDelta) for event in events) > 5, "it streams"
    (use,) = (block for block in history[5].content if isinstance(block, ToolUse))
    assert (use.name, use.input) == ("teleport", {"to": "mars", "at": [1, 2]})
    assert history[-1].content == (TextBlock("I cannot."),)
