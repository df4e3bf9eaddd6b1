"""The model asks the user questions, and whether they accept its plan."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import happens, prove_rest
from tests.talk import BaseTalk, scripted
from tests.unit.test_tool_uses import DONE, Talk, bash

from sanderling.config import Settings
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested, ApprovalSettled, ModeChanged, TurnEnded
from sanderling.protocol.messages import Prompt, TextBlock
from sanderling.session.history import NOT_RUN
from sanderling.session.session import Session
from sanderling.tools.ask_user import DISMISSED, KEPT, NO_USER, NOT_PLANNING
from sanderling.tools.base import Context
from sanderling.tools.catalog import TOOLS

DATABASE = {
    "question": "Which database?",
    "choices": [
        {"label": "SQLite", "description": "no server"},
        {"label": "Postgres", "description": "as in production"},
    ],
}
PARTS = {
    "question": "Which parts?",
    "choices": [{"label": "Login"}, {"label": "Search"}],
    "several": True,
}
NAME = {"question": "What shall it be called?"}


def ask(*questions: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return "ask_user", ({"questions": list(questions)} if questions else {}) | more


PLAN = ask(plan="Replace the cache")


class Asked(Talk):
    def __init__(self, base: Path, *replies: Any, **options: Any) -> None:
        super().__init__(base, *replies, **{"can_ask": True} | options)

    async def with_values(self, answer: str = "once", **values: str) -> str:
        """Answer the question of a turn, and return what the model gets."""
        async with self.asked():
            question = await self.until(ApprovalRequested)
            filled = {name.lstrip("_"): value for name, value in values.items()}
            self.conversation.act(AnswerApproval(question.id, answer, values=filled))  # type: ignore[arg-type]
        return self.told()


async def test_the_users_choice_is_the_result(tmp_path: Path):
    talk = Asked(tmp_path, ask(DATABASE))
    assert await talk.with_values(_1="SQLite") == "The user answers: SQLite"
    [question] = talk.questions
    assert (question.kind, question.tool, question.choices) == ("question", "ask_user", ("once",))
    [field] = question.fields
    assert (field.kind, field.label) == ("choice", "Which database?")
    assert [(each.value, each.help) for each in field.choices] == [
        ("SQLite", "no server"),
        ("Postgres", "as in production"),
    ]
    assert not talk.results[0].is_error


@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
async def test_questions_are_asked_in_every_mode(tmp_path: Path, mode: Any):
    assert "SQLite" in await Asked(tmp_path, ask(DATABASE), mode=mode).with_values(_1="SQLite")


async def test_several_choices_and_own_words_are_told_apart(tmp_path: Path):
    told = await Asked(tmp_path, ask(PARTS)).with_values(_1="Login\nSearch", _1_text="and export")
    assert told == 'The user answers: Login, Search. They add: "and export"'


async def test_own_words_need_no_choice(tmp_path: Path):
    told = await Asked(tmp_path, ask(DATABASE)).with_values(_1_text="DuckDB")
    assert told == "The user answers: DuckDB"


async def test_an_answer_that_is_no_choice_counts_as_own_words(tmp_path: Path):
    assert (
        await Asked(tmp_path, ask(DATABASE)).with_values(_1="DuckDB") == "The user answers: DuckDB"
    )


async def test_several_questions_are_one_request_and_each_answer_names_its_question(tmp_path: Path):
    talk = Asked(tmp_path, ask(DATABASE, PARTS, NAME))
    told = await talk.with_values(_1="Postgres", _3_text="Tern")
    assert told.splitlines() == [
        "The user answers:",
        "Which database? → Postgres",
        "Which parts? → (no answer)",
        "What shall it be called? → Tern",
    ]
    assert [each.kind for each in talk.questions[0].fields] == ["choice", "choices", "string"]


@pytest.mark.parametrize("answer", ["deny", "cancel"])
async def test_dismissing_says_that_there_is_no_answer(tmp_path: Path, answer: str):
    assert await Asked(tmp_path, ask(DATABASE)).with_values(answer) == DISMISSED


async def test_an_empty_answer_is_none(tmp_path: Path):
    assert await Asked(tmp_path, ask(NAME)).with_values(_1_text="  ") == DISMISSED


async def test_a_client_that_cannot_ask_says_why(tmp_path: Path):
    talk = Asked(tmp_path, ask(DATABASE))
    await talk.run("deny: The client cannot ask.")
    assert talk.told() == "There is no answer: The client cannot ask."


@pytest.mark.parametrize(
    "wrong, words",
    [
        (ask(), "Give one to four `questions`"),
        (ask(*[NAME] * 5), "5 questions; the limit is 4"),
        (ask({"question": " "}), "Question 1 must have 1 to 1,000 characters."),
        (ask(NAME, {"question": "?", "choices": [{"label": "a"}] * 2}), "Question 2 has the choice 'a' twice."),
        (ask({"question": "?", "choices": [{"label": str(n)} for n in range(10)]}), "10 choices; the limit is 9"),
        (ask({"question": "?", "choices": [{"label": "x" * 101}]}), "Each `label` of question 1"),
        (ask({"question": "?", "choices": [{"label": "\n"}]}), "Each `label` of question 1"),
        (ask(NAME, plan="It"), "Ask the `questions` first"),
    ],
)  # fmt: skip
async def test_what_cannot_be_asked_is_an_error_that_says_what_to_do(
    tmp_path: Path, wrong: Any, words: str
):
    talk = await Asked(tmp_path, wrong).run()
    assert words in talk.told()
    assert talk.results[0].is_error
    assert talk.questions == []


@pytest.mark.parametrize(
    "loose",
    prove_rest([
        {"questions": {"question": "Which?", "choices": ["a", "b"]}},
        {"questions": [{"prompt": "Which?", "options": [{"label": "a"}, {"title": "b"}], "multiSelect": "false"}]},
        {"questions": '[{"question": "Which?", "choices": ["a", {"label": "b"}]}]'},
        {"question": "Which?", "choices": ["a", "b"]},
        {"question": "Which?", "options": '["a", "b"]', "plan": ""},
    ]),
)  # fmt: skip
async def test_looser_inputs_are_understood(tmp_path: Path, loose: Any):
    talk = Asked(tmp_path, ("ask_user", loose))
    assert await talk.with_values(_1="a") == "The user answers: a"
    [field] = talk.questions[0].fields
    assert [each.value for each in field.choices] == ["a", "b"]


async def test_a_question_cannot_hide_what_it_says(tmp_path: Path):
    talk = Asked(tmp_path, ask({"question": "Yes\u202e?", "choices": [{"label": "a\u200b\nb"}]}))
    await talk.with_values(_1="a")
    [field] = talk.questions[0].fields
    assert (field.label, field.choices[0].value) == ("Yes<U+202E>?", "a<U+200B> b")


async def test_stopping_the_turn_withdraws_the_question(tmp_path: Path):
    talk = Asked(tmp_path, ask(DATABASE))
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        talk.conversation.cancel()
        assert (await talk.until(ApprovalSettled)).id == question.id
    assert talk.told() == "Interrupted by the user."
    assert talk.of(TurnEnded)[-1].stop_reason == "cancelled"


async def test_a_resumed_session_says_that_the_question_was_not_answered(tmp_path: Path):
    talk = Asked(tmp_path, ask(DATABASE))
    async with talk.served():
        talk.conversation.submit(Prompt("p1", "Do it."))
        await talk.until(ApprovalRequested)
        log = talk.session.log.path.read_bytes()
    # As it was on the disk when the process was killed.
    talk.session.log.path.write_bytes(log)
    session = Session.open(tmp_path / "state/sessions", "s1", str(talk.project))
    again = BaseTalk(session, scripted([{"text": "ok"}]), can_ask=True)
    await again.say("Go on.")
    await again.aclose()
    assert [each.content for each in again.results] == [NOT_RUN]


async def test_other_calls_of_the_message_run_meanwhile(tmp_path: Path):
    talk = Asked(tmp_path, [{"tool_use": {"name": "ask_user", "input": ask(NAME)[1]}},
                            {"tool_use": {"name": "bash", "input": {"command": "touch made"}}}], mode="auto")  # fmt: skip
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        await happens((talk.project / "made").exists)
        talk.answer(question, "once", values={"1_text": "Tern"})
    assert talk.told() == "The user answers: Tern"


# --- where it is offered ---------------------------------------------------------------------------------------------------


async def offered(talk: BaseTalk) -> bool:
    tools = await talk.services.calls.catalog.so_far()
    return "ask_user" in tools.by_name


async def test_it_is_offered_only_where_the_user_can_answer(tmp_path: Path):
    assert await offered(Asked(tmp_path))
    assert not await offered(Talk(tmp_path / "print"))


async def test_it_can_be_disabled(tmp_path: Path):
    talk = Asked(
        tmp_path, settings=Settings(state_dir=tmp_path / "state", tools_disabled=("ask_*",))
    )
    assert not await offered(talk)
    assert talk.services.workspace.user is None


async def test_without_a_user_it_fails_in_words(tmp_path: Path):
    workspace = Talk(tmp_path).services.workspace
    tool = TOOLS["ask_user"]
    with pytest.raises(Exception, match=NO_USER[:20]):
        await tool.run(tool.parse(ask(NAME)[1]), Context(workspace, "t1", lambda _: None))


# --- plans -----------------------------------------------------------------------------------------------------------------


def notes(talk: BaseTalk) -> str:
    return "\n".join(each.text for each in talk.blocks if isinstance(each, TextBlock))


@pytest.mark.parametrize("mode", ["ask", "auto"])
async def test_accepting_a_plan_switches_the_mode_and_goes_on_in_the_turn(
    tmp_path: Path, mode: Any
):
    talk = Asked(tmp_path, PLAN, bash("touch made"), mode="plan")
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        assert (question.kind, question.subject) == ("plan", "Replace the cache")
        talk.conversation.act(AnswerApproval(question.id, "once", values={"plan": mode}))
        if mode == "ask":
            talk.answer(await talk.until(ApprovalRequested, 2), "once")
    assert talk.told().startswith("The user accepts the plan and has switched to")
    assert f"[{mode.capitalize()} mode: " in notes(talk)
    assert talk.of(ModeChanged)[-1].mode == mode
    assert (talk.project / "made").exists()
    assert Session.open(tmp_path / "state/sessions", "s1", str(talk.project)).state("mode") == mode


@pytest.mark.parametrize(
    "answer, values, words",
    [
        ("once", {"plan": "keep"}, KEPT),
        ("deny", {}, KEPT),
        ("deny", {"plan": "auto"}, KEPT),
        ("cancel", {"plan": "auto"}, KEPT),
        ("once", {"plan": "on"}, "The user comments on the plan: on\nStay in plan mode."),
        ("once", {"plan_text": "Use lru_cache."}, "The user comments on the plan: Use lru_cache.\nStay in plan mode."),
        ("once", {"plan": "keep", "plan_text": "No."}, "The user comments on the plan: No.\nStay in plan mode."),
    ],
)  # fmt: skip
async def test_any_other_answer_keeps_the_mode(
    tmp_path: Path, answer: Any, values: dict[str, str], words: str
):
    talk = Asked(tmp_path, PLAN, mode="plan")
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        talk.conversation.act(AnswerApproval(question.id, answer, values=values))
    assert talk.told() == words
    assert talk.services.gate.mode == "plan"


async def test_a_comment_may_go_with_the_acceptance(tmp_path: Path):
    told = await Asked(tmp_path, PLAN, mode="plan").with_values(
        plan="auto", plan_text="Tests first."
    )
    assert told.endswith("They add: Tests first.")


@pytest.mark.parametrize("mode", ["ask", "auto"])
async def test_outside_of_plan_mode_there_is_nothing_to_accept(tmp_path: Path, mode: Any):
    talk = await Asked(tmp_path, PLAN, mode=mode).run()
    assert talk.told() == NOT_PLANNING
    assert talk.questions == []


async def test_only_the_answer_to_a_plan_switches_the_mode(tmp_path: Path):
    talk = Asked(tmp_path, ask({"question": "?", "choices": ["auto"]}), mode="plan")
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        talk.conversation.act(AnswerApproval("another", "once", values={"plan": "auto"}))
        talk.conversation.act(
            AnswerApproval(question.id, "once", values={"1": "auto", "plan": "auto"})
        )
    assert talk.services.gate.mode == "plan"


async def test_a_plan_is_accepted_once(tmp_path: Path):
    talk = Asked(tmp_path, PLAN, mode="plan")
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        talk.conversation.act(AnswerApproval(question.id, "once", values={"plan": "keep"}))
        talk.conversation.act(AnswerApproval(question.id, "once", values={"plan": "auto"}))
    assert talk.services.gate.mode == "plan"


async def test_a_call_beside_the_plan_is_judged_in_plan_mode(tmp_path: Path):
    write = {"tool_use": {"name": "write", "input": {"path": "new.py", "content": "x = 1\n"}}}
    plan = {"tool_use": {"name": "ask_user", "input": PLAN[1]}}
    talk = Asked(tmp_path, [plan, write], mode="plan")
    await talk.with_values(plan="auto")
    assert not (talk.project / "new.py").exists()


async def test_the_note_on_plan_mode_says_how_a_plan_ends_where_the_user_can_accept_it(
    tmp_path: Path,
):
    talk = await Asked(tmp_path, DONE, mode="plan").run()
    assert "call `ask_user`, if you have it, with `plan`" in notes(talk)
    talk = await Talk(tmp_path / "print", DONE, mode="plan").run()
    assert "ask_user" not in notes(talk)


def test_the_definition_is_small():
    tool = TOOLS["ask_user"]
    assert len(msgspec.json.encode(tool.schema)) + len(tool.description) <= 1_000


async def test_the_first_of_two_answers_that_arrive_together_counts(tmp_path: Path):
    talk = Asked(tmp_path, PLAN, mode="plan")
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        for chosen in ("keep", "auto"):
            talk.conversation.act(AnswerApproval(question.id, "once", values={"plan": chosen}))
    assert talk.told() == KEPT
    assert talk.services.gate.mode == "plan"
