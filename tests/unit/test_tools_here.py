"""Tools that run here for a conversation that is kept elsewhere: what of them is kept with the session."""

from pathlib import Path

import pytest
from tests.conftest import policy_of

from sanderling.acp.client.local_turn import LocalTurn
from sanderling.config import Settings
from sanderling.conversation.remote.tools_here import LocalTools
from sanderling.conversation.services import SessionServices
from sanderling.project.project import Project
from sanderling.protocol.actions import RejectChanges, RejectedHunk
from sanderling.protocol.messages import Prompt
from sanderling.providers.choice import make_provider
from sanderling.session.session import Session


@pytest.fixture
def services(tmp_path: Path):
    project = tmp_path / "project"
    project.mkdir()
    settings = Settings(state_dir=str(tmp_path / "state"), model="demo", provider="demo")
    session = Session.open(settings.session_dir, "s1", str(project))
    elsewhere = Project(settings, str(tmp_path / "elsewhere"))
    provider = make_provider(settings)
    return SessionServices(
        session, provider, lambda _: None, policy_of(session), settings, project=elsewhere
    )


async def never(*_: object) -> None:
    raise AssertionError("nothing was asked for")


async def test_what_the_model_is_yet_to_be_told_is_kept_once_tools_run_here(services):
    services.restore(None)
    LocalTools(services, lambda *_: None, never, LocalTurn()).begin()
    hunk = RejectedHunk(1, ("theirs",), ("mine",))
    services.notes.add_rejected(RejectChanges(f"{services.session.project}/a.py", (hunk,)))
    services.memory.keep()
    (rejected,) = services.session.state("told")["rejected"]
    assert "-theirs" in rejected
    assert rejected in services.notes.with_prompt(Prompt("p1", "Go on."))
