"""Each action has been decided about in each kind of conversation: what one does in its own way or refuses, and what it passes on."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any, get_args

import pytest

from sanderling.conversation.conversation import Conversation
from sanderling.conversation.external.conversation import ExternalConversation
from sanderling.conversation.remote.clients_tools import ClientConversation
from sanderling.conversation.remote.conversation import RemoteConversation
from sanderling.conversation.views import SessionViews
from sanderling.protocol.actions import Action

ALL = {kind.__name__ for kind in get_args(Action)}
NOBODYS = {"OpenSession"}  # a face has done it before there is a conversation
WORDS = {  # what is said and shown: queue and log are here in every session
    *("SubmitPrompt", "SteerTurn", "EditWaiting", "ReleaseWaiting", "CancelTurn", "CloseSession"),
    *("SetTitle", "ShowEarlier", "AnswerApproval"),
}
PASSED_ON = {
    # Its process, the files and the sandbox are of here.
    ExternalConversation: {
        *(
            "RetryNow",
            "UndoTurn",
            "RedoTurn",
            "TrustFiles",
            "RunCommand",
            "WatchJob",
            "UseTerminal",
            "TypeInTerminal",
            "ResizeTerminal",
            "StopJob",
            "StopChild",
        ),
        *("SetNetwork", "SetSandbox", "SetMode", "RejectChanges", "NoteReviewed", "NoteSaved"),
        *("ControlToolServer", "ChangeRule", "Rest", "ApplyWorktree"),
    },
    # The first are done or refused as with any guest. Jobs, tool servers and changes of here there are none.
    RemoteConversation: {
        *("SetModel", "SetEffort", "SetGuestOption", "Compact", "UndoCompaction", "NoteUsage"),
        *("WatchJob", "StopJob", "StopChild", "ControlToolServer", "NoteReviewed", "Rest"),
        *("UseTerminal", "TypeInTerminal", "ResizeTerminal"),
        "Remember",
    },
    # The model is asked here. Jobs, tool servers and changes of here there are none.
    ClientConversation: {
        *("RetryNow", "SetModel", "SetRole", "SetEffort", "Compact", "UndoCompaction", "NoteUsage"),
        *("WatchJob", "StopJob", "StopChild", "ControlToolServer", "Rest"),
        *("UseTerminal", "TypeInTerminal", "ResizeTerminal"),
        *("RejectChanges", "NoteReviewed", "NoteSaved", "SetGuestOption"),
    },
}


def named_in(method: Callable[..., Any]) -> set[str]:
    """The classes that the cases of a method name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    patterns = (each.cls for each in ast.walk(tree) if isinstance(each, ast.MatchClass))
    return {ast.unparse(pattern).rpartition(".")[2] for pattern in patterns}


@pytest.mark.parametrize("kind", PASSED_ON)
def test_each_action_is_done_refused_or_passed_on_as_somebody_has_decided(kind):
    named, passed_on = named_in(kind.act), PASSED_ON[kind] | WORDS | NOBODYS
    assert named & passed_on == set()
    assert named | passed_on == ALL


def test_each_action_that_is_passed_on_has_somebody_who_does_it():
    done = named_in(Conversation.act) | named_in(SessionViews.show)
    assert done | NOBODYS | {"SetGuestOption"} == ALL  # which has a meaning with a guest alone
