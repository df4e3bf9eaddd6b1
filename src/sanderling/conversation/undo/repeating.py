"""
Repeats the last prompt in a fork of the session, on a private copy of the files as they were before it, and compares the results.

The changes of the repeated turn are not undone: the copy is made from the plan of that undo. `bringing.py` replaces them by the changes of
the second result.
"""

import os
from functools import partial

from anyio import to_thread

from sanderling.changes.restoring import PresentState, RestorePlan
from sanderling.conversation.budget import dollars
from sanderling.conversation.children.report import said
from sanderling.conversation.compaction import estimated_tokens
from sanderling.conversation.services import SessionServices
from sanderling.conversation.undo.undoing import Undoer
from sanderling.conversation.worktree import copied
from sanderling.errors import SessionError
from sanderling.protocol.messages import Message, Prompt
from sanderling.protocol.requests import RepeatedPrompt, RepeatPrompt, ShowResult, TurnResult
from sanderling.session.log import log_path
from sanderling.session.records import LoggedState
from sanderling.session.store import fork
from sanderling.worktrees.changes import Side
from sanderling.worktrees.records import Repeated

NO_PROMPT = "There is no prompt to repeat yet."
NO_FORK = "This session was not forked: name a turn."
KEPT = "{path} is in the copy with the changes of the first result: {why}."
COST = "The first result cost {}."
RUNNABLE = 0o100


async def repeat(
    services: SessionServices, undoer: Undoer, request: RepeatPrompt
) -> RepeatedPrompt:
    """
    Make the copy and the fork in which the last prompt is repeated.

    Raises:
        ConfigError: there is no such model.
        SessionError: there is no prompt, or the session cannot be forked.
        WorktreeError: there can be no copy.
        ToolError: no sandbox is available, or the editor does not answer.
    """
    session = services.session
    if not (prompts := session.prompt_history.prompts):
        raise SessionError(NO_PROMPT)
    prompt, model = prompts[-1], services.provider.model
    if request.model:
        model = services.full_name_of(request.model)
    planned = await undoer.planned((prompt.id,))
    make = partial(_fork, services, request.new_id, prompt, planned, model)
    notes = await to_thread.run_sync(make)
    return RepeatedPrompt(prompt, model, _cost(services, prompt, model), notes)


def _cost(services: SessionServices, prompt: Prompt, model: str) -> str:
    """Return what is known of the cost of repeating a prompt, as sentences."""
    session, calls = services.session, services.calls
    before = session.ledger.turn_cost(calls.prices)
    is_last = session.prompt_history.turn_ids[-1] == prompt.id
    sentences = [COST.format(dollars(before.usd))] if is_last and before.is_priced else []
    if earlier := session.prompt_history.history_before(prompt.id):
        sentences.append(calls.reading_cost(model, estimated_tokens(earlier)))
    return " ".join(sentences)


def _fork(
    services: SessionServices, new_id: str, prompt: Prompt, planned: RestorePlan, model: str
) -> tuple[str, ...]:
    """Make the copy, then the log that names it. Return notes about the copy."""
    session, shown = services.session, services.workspace.shown
    earlier = {each.path: side for each in planned.steps if (side := _side(each.then)) is not None}
    left = tuple(KEPT.format(path=shown(each.path), why=each.why) for each in planned.left)
    directory = session.path.parent
    repeated = Repeated(session.id, prompt.id, session.work_dir, str(log_path(directory, new_id)))
    with copied(session, services.settings, new_id, repeated, earlier, notes=left) as record:
        states = (LoggedState("model", model), LoggedState("mode", services.gate.mode))
        fork(
            directory,
            session.id,
            new_id,
            prompt.id,
            is_before=True,
            worktree=record.name,
            states=states,
        )
    return record.notes


def _side(state: PresentState) -> Side | None:
    """Return a file, a link or nothing; None for anything else, which no commit contains."""
    match state.state.kind:
        case "absent":
            return Side()
        case "link":
            return Side("link", os.fsencode(state.state.target))
        case "file":
            is_runnable = bool(state.state.mode & RUNNABLE)
            return Side("file", state.data or b"", is_runnable=is_runnable)
        case _:
            return None


async def result(services: SessionServices, undoer: Undoer, request: ShowResult) -> TurnResult:
    """
    Return what turns cost and changed, and the last answer.

    Raises:
        SessionError: there is no such turn.
    """
    from sanderling.blame.turns import read_turns  # only for a comparison

    session = services.session
    logged = await to_thread.run_sync(read_turns, session.path.parent, session.id)
    if request.turn:
        turns = [turn for turn in logged.turns if turn == request.turn]
    elif isinstance(logged.header.forked_from, str):
        turns = [turn for turn, each in logged.turns.items() if each.at > logged.header.at]
    else:
        raise SessionError(NO_FORK)
    tallies = [logged.turns[turn].tally for turn in turns]
    costs = [tally.cost(services.calls.prices) for tally in tallies]
    models = dict.fromkeys(model for tally in tallies for model in tally.by_model)
    return TurnResult(
        ", ".join(models) or services.provider.model,
        sum(cost.usd for cost in costs),
        is_priced=all(cost.is_priced for cost in costs),
        answer=_answer(services, turns[-1]) if turns else "",
        files=await undoer.changed_in(turns),
        is_running=not turns or turns[-1] not in session.prompt_history.ends,
    )


def _answer(services: SessionServices, turn: str) -> str:
    """Return the last answer of a turn; "" if the conversation was summarized since."""
    session = services.session
    prompts = {id(message): prompt for message, prompt in session.prompt_history.messages}
    found, is_inside = list[Message](), False
    for message in session.history:
        if prompt := prompts.get(id(message)):
            is_inside = prompt.id == turn
        if is_inside:
            found.append(message)
    return said(found, is_done=True)
