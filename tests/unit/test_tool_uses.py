"""The turn's loop with real tools: what runs, what asks, what the model is told, what is shown; in the real sandbox."""

import asyncio
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import msgspec
import pytest
from tests.api_rules.anthropic import refusals
from tests.conftest import happens, prove, prove_rest
from tests.talk import BaseTalk, Steps, scripted

from sanderling.conversation import tool_uses
from sanderling.conversation.prompt import system_prompt
from sanderling.conversation.tool_uses import DENIED_WITH_ANOTHER, INTERRUPTED
from sanderling.permissions.rules import rule_from_text
from sanderling.permissions.store import RuleStore
from sanderling.project.programs import own_programs
from sanderling.project.trust.trust import Trust
from sanderling.protocol.actions import AnswerApproval, SetNetwork
from sanderling.protocol.events import (
    ApprovalRequested,
    ApprovalSettled,
    ChangedLines,
    ModeChanged,
    Notice,
    PromptSteered,
    SandboxChanged,
    TodoChanged,
    ToolEnded,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from sanderling.protocol.in_line import InLine
from sanderling.protocol.messages import Message, Prompt, TextBlock, ToolResult, ToolUse
from sanderling.protocol.modes import Mode
from sanderling.protocol.requests import InspectToolUse, WholeToolUse
from sanderling.providers import ModelRequest
from sanderling.providers.scripted import ScriptedProvider
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.session.history_pager import HistoryPager
from sanderling.session.session import Session
from sanderling.tools.base import Arguments, Context, OutsideTool, Tool
from sanderling.tools.catalog import TOOLS, UNLISTED, Catalog, OwnTools, specs_of
from sanderling.tools.commands.shell import ShellState
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome

DONE = [{"text": "Done."}]


Call = tuple[str, dict[str, Any]]


def uses(*calls: Call) -> Steps:
    """A reply that uses tools, whose ids are t1, t2 and so on."""
    return [
        {"tool_use": {"id": f"t{number}", "name": name, "input": arguments}}
        for number, (name, arguments) in enumerate(calls, 1)
    ]


def reply(steps: Steps | Call) -> Steps:
    return uses(steps) if isinstance(steps, tuple) else steps


def bash(command: str, **more: Any) -> Call:
    return "bash", {"command": command, **more}


def edit(path: str, old: str, new: str) -> Call:
    return "edit", {"path": path, "edits": [{"old": old, "new": new}]}


class Talk(BaseTalk):
    """A session with a scripted model, in a project of its own."""

    def __init__(
        self, base: Path, *replies: Steps | Call, mode: Mode = "ask", **options: Any
    ) -> None:
        self.project = base / "home/project"
        self.project.mkdir(parents=True, exist_ok=True)
        (self.project / "app.py").write_text("def f():\n    return 1\n")
        session = Session.open(base / "state/sessions", "s1", str(self.project))
        super().__init__(session, scripted(*map(reply, replies), DONE), **options)
        if mode != "ask":
            self.conversation.controls.set_mode(mode)

    @asynccontextmanager
    async def asked(self, text: str = "Do it.") -> AsyncIterator[Self]:
        """A turn that has begun; when the context ends, it has ended, too."""
        async with self.served():
            self.conversation.submit(Prompt("p1", text))
            yield self
            await self.until(TurnEnded)
        asked = [*self.session.history, Message("user", (TextBlock("."),))]
        assert refusals(msgspec.to_builtins(asked)) == []

    async def run(self, *answers: str) -> Self:
        """Run a turn whose questions are answered so, one after the other: `deny: too slow` has a reason, `always: …` a rule."""
        async with self.asked():
            for count, answer in enumerate(answers, 1):
                choice, _, words = answer.partition(": ")
                more = {"rule" if choice == "always" else "reason": words} if words else {}
                self.answer(await self.until(ApprovalRequested, count), choice, **more)
        return self

    @property
    def questions(self) -> list[ApprovalRequested]:
        return self.of(ApprovalRequested)

    def answer(self, question: ApprovalRequested, answer: str, **more: Any) -> None:
        self.services.approvals.answer(AnswerApproval(question.id, answer, **more))  # type: ignore[arg-type]

    def told(self, number: int = 0) -> str:
        content = self.results[number].content
        assert isinstance(content, str)
        return content


def test_schemas_descriptions_and_system_prompt_together_stay_small():
    tools = msgspec.json.encode(specs_of(TOOLS.values()))
    assert len(tools) + len(system_prompt().encode()) <= 15_500, len(tools)


def test_without_an_editor_tools_and_system_prompt_are_smaller_and_name_none():
    catalog = Catalog(OwnTools(has_editor=False), disabled=("ask_user",))
    specs = asyncio.run(catalog.so_far()).specs
    editor_tools = {"code_nav", "code_refactor", "diagnostics"}
    assert {*TOOLS} - {spec.name for spec in specs} == editor_tools | UNLISTED | {"ask_user"}
    tools = msgspec.json.encode(specs).decode()
    prompt = system_prompt(has_editor=False, has_user=False)
    assert len((tools + prompt).encode()) <= 11_000, len(tools)
    for word in ("editor", "Neovim", "code_nav", "code_refactor", "diagnostics"):
        assert word not in prompt + tools


async def test_a_session_that_uses_no_other_feature_offers_these_tools(tmp_path):
    talk = Talk(tmp_path, DONE)
    await talk.run()
    own = "bash delegate edit glob grep jobs read todo web_fetch write"
    offered = (await talk.services.calls.catalog.so_far()).specs
    assert sorted(spec.name for spec in offered) == own.split()


def test_no_schema_has_what_says_nothing_to_a_model():
    for spec in specs_of(TOOLS.values()):
        schema = json.dumps(spec.input_schema)
        for empty in (
            *('"default": ""', '"default": false', '"default": 0', '"default": null'),
            *('"null"', '"title"'),
        ):
            assert empty not in schema, spec.name


def test_every_tool_says_what_it_is_for_and_allows_no_unknown_field():
    for tool in TOOLS.values():
        assert len(tool.description) > 40
        assert tool.schema["type"] == "object"
        assert tool.schema["additionalProperties"] is False


class Weather:
    """A source of tools from outside; it never has the same ones twice."""

    def __init__(self, *more: str) -> None:
        self.asked = 0
        self._more = more

    async def tools(self) -> tuple[Tool, ...]:
        self.asked += 1
        names = (f"mcp__weather__tell{self.asked}", *self._more)
        return (*map(weather_tool, names), TOOLS["ls"])


def weather_tool(name: str) -> Tool:
    async def tell(args: Arguments, context: Context) -> Outcome:  # noqa: ARG001
        return Outcome(content=f"It rains in {args.values['place']}.")

    return OutsideTool(
        name,
        Arguments,
        tell,
        lambda *_: Effect(name, "call"),
        lambda args, _: args.values["place"],
        remote_description="Tell the weather of a place, as it is there now.",
        input_schema={"type": "object", "properties": {"place": {"type": "string"}}},
    )


@prove
async def test_commands_and_edits_are_shown_again_as_they_were_shown_while_they_ran(tmp_path):
    talk = Talk(
        tmp_path,
        uses(
            bash("mkdir src; echo a; cd src"),
            bash("printf '[x · 1 ms]'; exit 3"),
            bash("true"),
            bash("echo up; sleep 30", background=True),
            bash("echo 'no port'; exit 2", background=True),
            bash("echo slow; sleep 30", timeout_s=3),
            ("read", {"path": "app.py"}),
            edit("app.py", "return 1", "return 2"),
            bash("exit", nonsense=1),
        ),
        mode="auto",
        rules=(rule_from_text("allow bash"),),
    )
    await talk.run()
    shown: dict[str, str] = {}
    for event in talk.of(ToolOutput, ToolEnded):
        text = event.text if isinstance(event, ToolOutput) else event.detail
        above = shown.get(event.id, "")
        shown[event.id] = f"{above.rstrip(chr(10))}\n{text}" if above and text else above or text
    session = Session.open(tmp_path / "state/sessions", "s1", str(talk.project))
    again = [event for event in HistoryPager(session).take().events if isinstance(event, ToolEnded)]
    session.close()
    assert [event.summary for event in again] == [event.summary for event in talk.of(ToolEnded)]
    assert {event.id: event.detail for event in again if event.id != "t7"} == {
        use_id: text.rstrip("\n") for use_id, text in shown.items() if use_id != "t7"
    }
    assert shown["t5"].startswith("no port\n")


async def test_tools_come_from_sources_and_what_comes_late_comes_last(tmp_path):
    weather = Weather()
    calls = [(f"mcp__weather__tell{n}", {"place": "Bern"}) for n in (1, 1, 3)]
    talk = Talk(tmp_path, *calls, sources=(OwnTools(), weather), can_ask=True)
    provider = talk.services.provider
    asked: list[list[str]] = []

    def stream(request: ModelRequest) -> Any:
        asked.append([tool.name for tool in request.tools])
        return ScriptedProvider.stream(provider, request)

    provider.stream = stream  # type: ignore[method-assign]
    await talk.run("session", "once")
    assert (talk.questions[0].tool, talk.questions[0].title) == ("mcp__weather__tell1", "Bern")
    assert talk.questions[0].rule == "allow mcp__weather__tell1"
    assert talk.questions[1].tool == "mcp__weather__tell3"
    assert [result.content for result in talk.results] == ["It rains in Bern."] * 3
    assert len(talk.questions) == 2
    for names, before in zip(asked[1:], asked, strict=False):
        assert names[: len(before)] == before
    own = [name for name in TOOLS if name not in UNLISTED]
    assert asked[-1] == [*own, *(f"mcp__weather__tell{n}" for n in range(1, weather.asked + 1))]
    tools = await talk.services.calls.catalog.so_far()
    assert {*tools.by_name} - {spec.name for spec in tools.specs} == UNLISTED


async def test_ls_is_not_offered_but_lists_a_directory_when_called(tmp_path):
    talk = Talk(tmp_path, ("ls", {"path": "."}), ("read", {"path": "."}))
    (talk.project / "tern.txt").touch()
    await talk.run()
    specs = (await talk.services.calls.catalog.so_far()).specs
    assert "ls" not in [spec.name for spec in specs]
    assert ["tern.txt" in str(result.content) for result in talk.results] == [True, True]
    assert not any(result.is_error for result in talk.results)


@pytest.mark.parametrize(
    "name",
    [
        "rain",
        "mcp__weather",
        "mcp__a__b__c",
        "mcp__a___b",
        "mcp___a__b",
        "mcp__a__b_",
        "mcp__a__" + "b" * 57,
    ],
)
async def test_a_name_for_which_a_rule_for_another_server_could_hold_is_no_tools(name):
    catalog = Catalog(OwnTools(), Weather(name))
    assert [*(await catalog.so_far()).by_name] == [*TOOLS, "mcp__weather__tell1"]


# --- the loop ----------------------------------------------------------------------------------------------------------


async def test_what_only_reads_runs_at_once_and_the_model_sees_the_result(tmp_path):
    talk = await Talk(tmp_path, ("read", {"path": "app.py"})).run()
    assert "return 1" in talk.told()
    assert not talk.results[0].is_error
    assert talk.questions == []
    started, ended = talk.of(ToolStarted, ToolEnded)
    assert (started.tool, started.title) == ("read", "app.py")
    assert not ended.is_error
    assert talk.history[-1].content == (TextBlock("Done."),)


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("teleport", {}, "There is no tool 'teleport'"),
        ("read", {}, "missing required field `path`"),
        (
            "read",
            {"colour": "red"},
            "read has no `colour`. It takes: path (required), offset, limit.",
        ),
        ("read", {"path": None}, "Expected `str`, got `null` - at `$.path`"),
        ("read", {"path": 5}, "Expected `str`, got `int` - at `$.path`"),
    ],
)
async def test_bad_input_is_told_in_words_and_the_turn_goes_on(tmp_path, name, arguments, words):
    talk = await Talk(tmp_path, (name, arguments)).run()
    assert words in talk.told()
    assert talk.results[0].is_error
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")]


async def test_input_that_is_no_json_is_told_and_the_turn_goes_on(tmp_path):
    step = {
        "tool_use": {"id": "t1", "name": "bash", "problem": "The input is not the JSON object …"}
    }
    talk = await Talk(tmp_path, [step]).run()
    assert talk.results == [ToolResult("t1", "The input is not the JSON object …", is_error=True)]


def has_begun(talk: Talk, *ids: str) -> bool:
    lines = talk.session.log.path.read_text().splitlines()
    started = [line for line in lines if '"tool_started"' in line]
    return all(any(f'"{use_id}"' in line for line in started) for use_id in ids)


@pytest.mark.parametrize(
    "command",
    [
        "until [ -e go ]; do sleep 0.01; done; echo {}",
        "until grep -q . go; do sleep 0.01; done | cat; echo {}",
    ],
)
async def test_commands_that_only_read_run_at_the_same_time_and_are_told_and_shown_in_order(
    tmp_path, command
):
    calls = [bash(command.format(n)) for n in (1, 2)]
    async with Talk(tmp_path, uses(*calls, ("read", {"path": "app.py"}))).asked() as talk:
        await happens(lambda: has_begun(talk, "t1", "t2", "t3"))
        (talk.project / "go").write_text("go")
    assert [result.tool_use_id for result in talk.results] == ["t1", "t2", "t3"]
    assert [talk.told(n).splitlines()[-2] for n in (0, 1)] == ["1", "2"]
    shown = [event.id for event in talk.of(ToolStarted, ToolOutput, ToolEnded)]
    assert shown == sorted(shown)


async def test_commands_of_one_message_run_in_order(tmp_path):
    calls = (
        "sleep 0.3; mkdir -p build && echo one > build/a.txt",
        "cat build/a.txt",
        "git init -q . && git add -A",
        "git -c user.name=a -c user.email=a@example.org commit -qm all && git show --stat",
        "cd build && pwd",
        "pwd",
        "export PLACE=here",
        "echo $PLACE",
    )
    talk = await Talk(tmp_path, uses(*map(bash, calls)), mode="auto").run()
    assert not any(result.is_error for result in talk.results), talk.results
    told = [talk.told(n) for n in range(len(calls))]
    assert told[1].startswith("one\n")
    assert "build/a.txt" in told[3]
    assert "cwd" not in "".join(told[:4])
    assert told[5].startswith(f"{talk.project}/build\n")
    assert told[7].startswith("here\n")


async def test_commands_of_one_message_are_asked_about_together_and_run_in_order(tmp_path):
    calls = [bash("until [ -e go ]; do sleep 0.01; done; touch made"), bash("rm made && echo gone")]
    async with Talk(tmp_path, uses(*calls)).asked() as talk:
        await talk.until(ApprovalRequested, 2)
        talk.answer(talk.questions[1], "once")
        talk.answer(talk.questions[0], "once")
        await happens(lambda: has_begun(talk, "t1"))
        assert not has_begun(talk, "t2")
        (talk.project / "go").touch()
    assert talk.told(1).startswith("gone\n")
    assert len(talk.questions) == 2


async def test_command_is_asked_about_where_the_one_before_it_has_gone(tmp_path):
    (tmp_path / "home/project/sub").mkdir(parents=True)
    calls = [bash("cd sub"), bash("touch made")]
    talk = await Talk(tmp_path, uses(*calls)).run("once")
    assert [question.cwd for question in talk.questions] == [str(talk.project / "sub")]
    assert (talk.project / "sub/made").exists()


async def test_command_that_a_rule_denies_by_its_turn_does_not_run(tmp_path):
    calls = [bash("until [ -e go ]; do sleep 0.01; done; touch first"), bash("touch second")]
    async with Talk(tmp_path, uses(*calls)).asked() as talk:
        await talk.until(ApprovalRequested, 2)
        for question in talk.questions:
            talk.answer(question, "once")
        store = RuleStore(talk.services.settings.state_dir, str(talk.project))
        store.add(rule_from_text("deny bash touch second"))
        (talk.project / "go").touch()
    assert not (talk.project / "second").exists()
    assert "A rule forbids this" in talk.told(1)


async def test_stop_of_a_job_and_commands_keep_their_order(tmp_path):
    stop = ("jobs", {"action": "stop", "id": "j1"})
    calls = (
        bash("until [ -e end ]; do sleep 0.01; done; sleep 60", background=True),
        bash("sleep 0.2; touch end"),
        stop,
    )
    talk = await Talk(tmp_path, uses(*calls), mode="auto").run()
    assert "ended by" in talk.told(2) or "exit status" in talk.told(2)
    assert (talk.project / "end").exists()


async def test_edits_of_one_file_and_a_command_after_them_keep_their_order(tmp_path):
    calls = (
        edit("app.py", "return 1", "return 2"),
        edit("app.py", "return 2", "return 3"),
        bash("cat app.py"),
        edit("app.py", "return 3", "return 4"),
    )
    talk = await Talk(tmp_path, uses(*calls), mode="auto").run()
    assert [result.is_error for result in talk.results] == [False] * 4
    assert "return 3" in talk.told(2)
    assert (talk.project / "app.py").read_text() == "def f():\n    return 4\n"


@prove
async def test_one_failure_cancels_nothing_else(tmp_path):
    talk = await Talk(
        tmp_path, uses(bash("exit 3"), bash("sleep 0.3; echo fine")), mode="auto"
    ).run()
    assert [result.is_error for result in talk.results] == [True, False]
    assert "exit status 3" in talk.told(0)
    assert talk.told(1).startswith("fine")


async def test_stopping_the_turn_ends_the_command_and_leaves_a_history_the_api_accepts(tmp_path):
    talk = Talk(
        tmp_path, uses(bash("echo begun; sleep 60"), ("read", {"path": "app.py"})), mode="auto"
    )
    async with talk.asked():
        await talk.until(ToolOutput)
        talk.conversation.cancel()
    assert talk.of(TurnEnded) == [TurnEnded("cancelled")]
    assert talk.results[0].is_error
    assert talk.told(0).startswith("begun") or talk.told(0) == INTERRUPTED


async def test_the_same_call_again_and_again_warns_the_model_and_then_asks_the_person(tmp_path):
    same = [[{"tool_use": {"name": "read", "input": {"path": "app.py"}}}]] * 5
    talk = await Talk(tmp_path, *same).run("deny")
    assert "keeps making the same call" in talk.questions[0].reason
    assert ["this identical call" in talk.told(n) for n in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")]
    assert talk.history[-1].role == "user"


@prove
async def test_reason_why_a_turn_is_not_to_go_on_is_told_to_the_model(
    tmp_path,
):
    same = [[{"tool_use": {"name": "read", "input": {"path": "app.py"}}}]] * 5
    talk = await Talk(tmp_path, *same).run("deny: Look elsewhere.")
    assert talk.of(TurnEnded) == [TurnEnded("end_turn")]
    assert talk.history[-1] == Message("user", (TextBlock("Look elsewhere."),))
    assert [event.prompt.text for event in talk.of(PromptSteered)] == ["Look elsewhere."]
    again = Session.open(tmp_path / "state/sessions", "s1", str(talk.project))
    assert again.history == talk.history
    again.close()


# --- asking ------------------------------------------------------------------------------------------------------------


async def test_an_edit_asks_with_its_difference_and_is_made_when_it_is_allowed(tmp_path):
    async with Talk(tmp_path, edit("app.py", "return 1", "return 2")).asked() as talk:
        question = await talk.until(ApprovalRequested)
        assert (question.tool, question.title, question.filetype) == ("edit", "app.py", "diff")
        assert "-    return 1\n+    return 2" in question.subject
        assert question.path == str(talk.project / "app.py")
        assert "return 1" in (talk.project / "app.py").read_text()
        talk.answer(question, "once")
    assert talk.of(ApprovalSettled) == [ApprovalSettled(question.id)]
    assert "return 2" in (talk.project / "app.py").read_text()


async def test_what_could_not_be_done_anyway_is_not_asked(tmp_path):
    talk = await Talk(tmp_path, edit("app.py", "return 7", "return 2")).run()
    assert talk.questions == []
    assert talk.results[0].is_error


async def test_reason_of_a_denial_is_told_to_the_model(tmp_path):
    talk = await Talk(tmp_path, bash("touch made")).run("deny: Use the Makefile.")
    [question] = talk.questions
    assert (question.subject, question.filetype) == ("touch made", "sh")
    assert talk.told() == "The user denied this: Use the Makefile."
    assert not (talk.project / "made").exists()


async def test_one_of_a_batch_is_denied_alone_where_the_person_says_so(tmp_path):
    async with Talk(tmp_path, uses(*[bash(f"touch {n}") for n in (1, 2, 3)])).asked() as talk:
        await talk.until(ApprovalRequested, 3)
        first, second, third = talk.questions
        assert [each.is_of_several for each in (first, second, third)] == [True] * 3
        talk.services.approvals.answer(
            AnswerApproval(second.id, "deny", "Not that.", is_alone=True)
        )
        talk.answer(first, "once")
        talk.answer(third, "once")
    assert talk.told(1) == "The user denied this: Not that."
    made = sorted(path.name for path in talk.project.iterdir())
    assert made == ["1", "3", "app.py"]


@prove
async def test_a_question_about_the_only_tool_use_left_denies_no_other(tmp_path):
    calls = [("read", {"path": "app.py"}), edit("app.py", "return 1", "return 2")]
    talk = await Talk(tmp_path, uses(*calls)).run("deny")
    assert not talk.questions[0].is_of_several


async def test_denying_one_of_a_batch_denies_the_rest_of_it(tmp_path):
    async with Talk(tmp_path, uses(*[bash(f"touch {n}") for n in (1, 2, 3)])).asked() as talk:
        await talk.until(ApprovalRequested, 3)
        talk.answer(talk.questions[1], "deny")
    assert [result.content == DENIED_WITH_ANOTHER for result in talk.results] == [True, False, True]
    assert [ended.is_denied for ended in talk.of(ToolEnded)] == [False, True, False]
    assert len(talk.of(ApprovalSettled)) == 3
    assert sorted(path.name for path in talk.project.iterdir()) == ["app.py"]


async def test_allowed_for_the_session_asks_no_more_and_other_things_still_ask(tmp_path):
    replies = [bash("make test"), bash("make test"), bash("make install")]
    talk = await Talk(tmp_path, *replies).run("session", "once")
    assert talk.questions[1].subject == "make install"
    assert len(talk.questions) == 2


@prove
async def test_always_keeps_the_rule_as_the_person_has_changed_it_outside_of_the_project(tmp_path):
    talk = await Talk(tmp_path, bash("git commit -m x")).run("always: allow bash git")
    [question] = talk.questions
    assert question.rule == "allow bash git commit"
    assert "always" in question.choices
    again = await Talk(tmp_path, bash("git add app.py")).run()
    assert again.questions == []
    assert not list(talk.project.rglob("*rules*"))


@prove
async def test_rule_that_is_none_is_asked_about_again(tmp_path):
    answers = ("always: permit bash git", "once")
    talk = await Talk(tmp_path, bash("git commit -m x")).run(*answers)
    assert "is not a rule: " in talk.questions[1].reason
    assert talk.questions[1].rule == "permit bash git"
    assert not talk.results[0].is_error or "git" in talk.told()


async def test_what_shows_as_nothing_is_shown_to_the_person(tmp_path):
    talk = await Talk(tmp_path, bash("echo \u202egpj.exe\u200b\x1b[8m hidden")).run("deny")
    assert talk.questions[0].subject == "echo <U+202E>gpj.exe<U+200B><U+001B>[8m hidden"


async def test_stopping_the_turn_takes_its_questions_back(tmp_path):
    async with Talk(tmp_path, bash("touch made")).asked() as talk:
        await talk.until(ApprovalRequested)
        talk.conversation.cancel()
    assert len(talk.of(ApprovalSettled)) == 1
    assert talk.results == [ToolResult("t1", INTERRUPTED, is_error=True)]


@prove
async def test_lines_that_a_command_changed_are_reported_with_its_end(tmp_path):
    command = "sed -i s/1/2/ app.py; mkdir sub; printf 'a\\nb\\n' > sub/new; exit 3"
    talk = Talk(tmp_path, uses(bash(command), bash("cat app.py")), bash("rm sub/new"), mode="auto")
    async with talk.asked():
        pass
    changed = [set(ended.changed) for ended in talk.of(ToolEnded)]
    made = {ChangedLines("app.py", 1, 1), ChangedLines("sub/new", 2, 0)}
    assert changed == [made, set(), {ChangedLines("sub/new", 0, 2)}]


# --- jobs that end -----------------------------------------------------------------------------------------------------


JOB = "until [ -e go ]; do sleep 0.01; done; echo done; exit 3"
ENDED = "[j1 has ended: exit status 3. `jobs read j1` has 5 bytes.]"


def notes_of(talk: Talk) -> list[list[str]]:
    """The texts in each message to the model."""
    return [
        [block.text for block in message.content if isinstance(block, TextBlock)]
        for message in talk.session.history
        if message.role == "user"
    ]


async def job_ends(talk: Talk) -> None:
    (talk.project / "go").touch()
    await happens(lambda: not talk.conversation.services.workspace.jobs.are_running)


@prove
async def test_the_end_of_a_job_is_reported_once_with_the_next_results(tmp_path):
    start = bash(JOB, background=True)
    wait = bash("touch go; while [ -e /proc/$$/nothing ] || ! [ -e gone ]; do sleep 0.01; done")
    talk = Talk(tmp_path, start, wait, bash("true"), bash("true"), mode="auto")
    async with talk.asked():
        await happens((talk.project / "go").exists)
        await job_ends(talk)
        (talk.project / "gone").touch()
    assert [ENDED in notes for notes in notes_of(talk)] == [False, False, True, False, False]


@prove
async def test_the_end_of_a_job_is_reported_with_the_next_prompt(tmp_path):
    talk = Talk(tmp_path, bash(JOB, background=True), DONE, DONE, DONE, mode="auto")
    async with talk.served():
        for number, is_known in enumerate((False, True, False), 1):
            talk.conversation.submit(Prompt(f"p{number}", "Go on."))
            await talk.until(TurnEnded, number)
            if number == 1:
                await job_ends(talk)
            assert (ENDED in notes_of(talk)[-1]) == is_known


@prove
async def test_the_end_of_a_job_that_was_read_or_stopped_is_not_reported(tmp_path):
    read = ("jobs", {"action": "read", "id": "j1", "wait_s": 20})
    talk = Talk(
        tmp_path,
        bash("sleep 0.5; exit 3", background=True, timeout_s=1),
        read,
        bash("sleep 1000", background=True),
        ("jobs", {"action": "stop", "id": "j2"}),
        bash("true"),
        mode="auto",
    )
    async with talk.asked():
        pass
    assert "has ended" not in str(notes_of(talk))


# --- what the sandbox refuses ------------------------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path) -> Path:
    """A file of the person's that the sandbox hides."""
    path = tmp_path / "home/notes.txt"
    path.parent.mkdir()
    path.write_text("my notes\n")
    return path


@prove
async def test_hidden_file_is_offered_and_the_command_runs_again(tmp_path, outside):
    other = outside.with_name("other.txt")
    other.write_text("not granted")
    talk = Talk(tmp_path, bash(f"cat {outside}"), bash(f"cat {other}"), mode="auto")
    await talk.run("once", "deny")
    assert talk.questions[0].subject == f"read {outside}"
    assert talk.questions[0].choices == ("once", "session")
    assert talk.told(0).startswith("my notes\n")
    assert "No such file" in talk.told(1)


@prove
async def test_only_the_command_that_was_refused_a_host_is_asked_about_and_runs_again(tmp_path):
    lookup = "echo x >> asks; python3 -c \"import socket; socket.getaddrinfo('docs.example', 80)\""
    talk = Talk(
        tmp_path,
        bash("echo x >> job; until [ -e asks ]; do sleep 0.01; done; sleep 1000", background=True),
        uses(bash("echo x >> count; sleep 0.2; exit 1"), bash(lookup)),
        mode="auto",
    )
    await talk.run("once")
    [question] = talk.questions
    assert question.subject == "resolve docs.example"
    assert "socket.getaddrinfo" in question.title
    lines = {name: (talk.project / name).read_text() for name in ("job", "count", "asks")}
    assert lines == {"job": "x\n", "count": "x\n", "asks": "x\nx\n"}
    again = "[Run again with docs.example allowed; the output of the first run is left out.]"
    assert [again in talk.told(n) for n in range(3)] == [False, False, True]


@prove
async def test_hidden_program_is_offered_and_the_command_runs_again(tmp_path, hidden_tool):
    twice = [bash("mytool")] * 2
    talk = await Talk(tmp_path, *twice, mode="auto").run("once", "deny")
    assert talk.questions[0].subject == f"execute {hidden_tool}"
    assert talk.told(0).startswith("mine\n")
    assert f"[The sandbox refused: execute {hidden_tool}: `mytool` is on your PATH" in talk.told(1)


@prove
@pytest.mark.parametrize("answer, shown", [("session", "my notes\n"), ("deny", "No such file")])
async def test_the_same_grant_is_not_asked_for_twice(tmp_path, outside, answer, shown):
    twice = [bash(f"cat {outside}")] * 2
    talk = await Talk(tmp_path, *twice, mode="auto").run(answer)
    assert len(talk.questions) == 1
    assert [shown in talk.told(n) for n in (0, 1)] == [True, True]


@prove
async def test_reason_against_a_grant_is_told_to_the_model_and_shown(tmp_path, outside):
    talk = Talk(tmp_path, bash(f"cat {outside}"), mode="auto")
    await talk.run("deny:  These are private. ")
    said = "[The user did not allow that: These are private.]"
    assert "No such file" in talk.told()
    assert talk.told().endswith(f"\n\n{said}")
    [ended] = talk.of(ToolEnded)
    assert ended.detail.endswith(f"\n{said}")
    assert said in b"".join(path.read_bytes() for path in tmp_path.rglob("*.jsonl")).decode()


@prove
async def test_reason_against_one_grant_is_told_though_another_was_given(tmp_path, outside):
    command = f"cat {outside}; python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'"
    talk = await Talk(tmp_path, bash(command), mode="auto").run("once", "deny: No network.")
    assert talk.questions[1].subject == "resolve example.org"
    assert talk.told().startswith("my notes\n")
    assert talk.told().endswith("[The user did not allow that: No network.]")


@prove
async def test_file_outside_of_the_project_is_written_when_that_is_allowed(tmp_path, outside):
    read = ("read", {"path": str(outside)})
    write = ("write", {"path": str(outside), "content": "x\n"})
    talk = await Talk(tmp_path, read, write, mode="auto").run("session", "once")
    assert f"grants {outside}" in talk.questions[1].reason
    assert "-my notes\n+x" in talk.questions[1].subject
    assert "my notes" in talk.told(0)
    assert outside.read_text() == "x\n"


async def test_blocked_host_is_offered_and_for_the_session_goes_through_the_proxy(
    tmp_path,
):
    command = "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'"
    talk = await Talk(tmp_path, bash(command), mode="auto").run("session")
    assert talk.questions[0].subject == "resolve example.org"
    assert talk.services.sandbox.facts.network == "proxy"


@prove
async def test_network_that_was_lent_for_one_command_is_off_again(tmp_path):
    command = "python3 -c 'import socket; socket.getaddrinfo(\"example.org\", 80)'; echo $https_proxy; exit 1"
    talk = await Talk(tmp_path, bash(command), mode="auto").run("once")
    assert re.search(r"^http://\S+@127\.0\.0\.1:3128$", talk.told(), re.MULTILINE)
    assert talk.services.sandbox.facts.network == "off"


@prove
async def test_fetch_while_the_network_is_off_asks_once_and_lets_that_host_in(
    tmp_path,
):
    talk = Talk(tmp_path, ("web_fetch", {"url": "https://docs.example/page"}), mode="auto")
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        assert "docs.example is blocked. Allowing opens it until this ends" in question.reason
        assert "`:AgentNet on`" in question.reason
        talk.answer(question, "once")
        await talk.until(ToolEnded)
    assert len(talk.questions) == 1
    assert "network is off" not in talk.told()
    assert {event.network for event in talk.of(SandboxChanged)} == {"off"}


@prove
async def test_host_that_is_let_in_and_refused_all_the_same_is_not_offered_again(tmp_path):
    url = f"https://{socket.gethostname()}/"
    talk = await Talk(tmp_path, ("web_fetch", {"url": url}), mode="auto").run("once")
    assert len(talk.questions) == 1
    assert talk.results[0].is_error


@prove
async def test_rule_for_one_host_opens_the_network_to_it_and_a_rule_for_all_does_not(tmp_path):
    fetch = ("web_fetch", {"url": "https://docs.example/page"})
    for name, rule, count in (
        ("host", "allow web_fetch docs.example", 0),
        ("all", "allow web_fetch", 1),
    ):
        async with Talk(tmp_path / name, fetch, rules=(rule_from_text(rule),)).asked() as talk:
            if count:
                talk.answer(await talk.until(ApprovalRequested), "deny")
        assert len(talk.questions) == count


@prove
async def test_link_in_the_project_that_leads_outside_asks_for_what_it_leads_to(tmp_path, outside):
    link = tmp_path / "home/project/link"
    link.parent.mkdir()
    link.symlink_to(outside)
    writing = ("edit", {"path": "link", "edits": [{"old": "my notes", "new": "yours"}]})
    talk = await Talk(tmp_path, writing, mode="auto").run("once")
    [question] = talk.questions
    assert f"grants {outside}" in question.reason
    assert "-my notes\n+yours" in question.subject
    assert outside.read_text() == "yours\n"
    assert link.is_symlink()


@prove
async def test_link_that_is_turned_elsewhere_is_not_what_was_allowed(tmp_path, outside):
    other = outside.with_name("other.txt")
    other.write_text("my notes\n")
    link = tmp_path / "home/project/link"
    link.parent.mkdir()
    link.symlink_to(outside)
    there, back = edit("link", "my notes", "yours"), edit("link", "yours", "my notes")
    talk = Talk(
        tmp_path,
        there,
        back,
        bash(f"ln -sf {other} link"),
        there,
        mode="auto",
    )
    await talk.run("session", "deny")
    assert f"grants {other}" in talk.questions[1].reason
    assert other.read_text() == outside.read_text() == "my notes\n"


@prove
async def test_what_was_allowed_for_the_session_is_allowed_in_that_mode_alone(tmp_path):
    command = "mkdir $(echo made)"  # no rule can be proposed for it
    later = [{"delay_ms": 1000, "text": "And now:"}, *uses(bash(command))]
    talk = Talk(tmp_path, bash(command), bash(command), later)
    talk.services.sandbox.switch(is_on=False)
    async with talk.asked():
        talk.answer(await talk.until(ApprovalRequested), "session")
        await talk.until(ToolEnded, 2)
        assert len(talk.questions) == 1
        talk.conversation.controls.set_mode("plan")
        talk.answer(await talk.until(ApprovalRequested, 2), "deny")


@prove
async def test_what_can_never_be_granted_is_not_asked(tmp_path):
    writing = ("write", {"path": "/etc/new", "content": "x"})
    talk = await Talk(tmp_path, uses(writing, ("read", {"path": "/root"}))).run()
    assert talk.questions == []
    assert "more than a command may touch" in talk.told(0)


async def test_search_does_not_show_what_a_rule_keeps_from_the_model(tmp_path):
    talk = Talk(
        tmp_path,
        uses(("grep", {"pattern": "return"}), ("grep", {"pattern": "return", "path": "link"})),
        rules=(rule_from_text("deny read private/**"), rule_from_text("ask read *.key")),
    )
    for name in ("private/deep/a.py", "b.key", "c.py"):
        (talk.project / name).parent.mkdir(parents=True, exist_ok=True)
        (talk.project / name).write_text("return secret\n")
    (talk.project / "link").symlink_to("private")
    await talk.run()
    assert "secret" not in talk.told(1)
    assert "c.py" in talk.told()
    assert "private" not in talk.told()
    assert "b.key" not in talk.told()
    assert "Files that a rule denies were left out." in talk.told()


@prove
async def test_search_outside_of_the_project_finds_what_was_granted_for_it(tmp_path, outside):
    looks = uses(
        ("grep", {"pattern": "notes", "path": str(outside)}), ("ls", {"path": str(outside.parent)})
    )
    talk = await Talk(tmp_path, looks).run("once")
    assert talk.questions[0].subject == f"read {outside}"
    assert "my notes" in talk.told(0)


# --- modes -------------------------------------------------------------------------------------------------------------


async def test_in_auto_mode_what_the_sandbox_confines_does_not_ask(tmp_path):
    talk = await Talk(
        tmp_path, uses(bash("touch made"), edit("app.py", "1", "2")), mode="auto"
    ).run()
    assert talk.questions == []
    assert (talk.project / "made").exists()


async def test_in_auto_mode_without_a_sandbox_a_command_asks(tmp_path):
    talk = Talk(tmp_path, bash("touch made"), mode="auto")
    talk.services.sandbox.switch(is_on=False)
    await talk.run("deny")
    assert not (talk.project / "made").exists()


def notes(message: Message) -> str:
    """What is told beside the person's words."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    return "\n".join(text for text in texts if text.startswith("["))


async def test_in_plan_mode_the_kernel_keeps_commands_from_writing_and_the_model_is_told(tmp_path):
    talk = await Talk(
        tmp_path, uses(bash("touch made"), edit("app.py", "1", "2")), mode="plan"
    ).run()
    assert "Read-only file system" in talk.told(0)
    assert "plan mode" in talk.told(1)
    assert sorted(path.name for path in talk.project.iterdir()) == ["app.py"]
    assert (talk.project / "app.py").read_text() == "def f():\n    return 1\n"
    assert "Plan mode" in notes(talk.history[0])
    assert talk.of(ModeChanged) == [ModeChanged("plan")]


@prove
async def test_mode_that_changes_in_the_middle_of_a_turn_is_told_with_the_next_result(tmp_path):
    async with Talk(tmp_path, bash("touch made")).asked() as talk:
        question = await talk.until(ApprovalRequested)
        talk.conversation.controls.set_mode("plan")
        talk.answer(question, "once")
    assert "Plan mode" in notes(talk.history[2])
    assert not (talk.project / "made").exists()


# --- what goes along, and what is kept -----------------------------------------------------------------------------------


async def test_todo_list_is_shown_and_is_there_when_the_session_is_resumed(tmp_path):
    items = [{"content": "Look", "status": "in_progress"}, {"content": "Mend", "status": "pending"}]
    talk = await Talk(tmp_path, ("todo", {"items": items})).run()
    assert [item.content for item in talk.of(TodoChanged)[0].items] == ["Look", "Mend"]
    again = Talk(tmp_path)
    assert [item.status for item in again.services.workspace.todo.items] == [
        "in_progress",
        "pending",
    ]
    await again.run()
    texts = [block.text for block in again.history[-2].content if isinstance(block, TextBlock)]
    assert "◐ Look" in texts[0]


@prove
async def test_resumed_session_has_the_directory_and_environment_of_its_shell(
    tmp_path,
):
    command = "mkdir sub; cd sub; export GREETING=hello"
    await Talk(tmp_path, bash(command), mode="auto").run()
    again = await Talk(tmp_path, bash("echo $GREETING; basename $PWD"), mode="auto").run()
    assert again.told(-1).startswith("hello\nsub\n")


@prove
async def test_tool_use_is_shown_in_full_when_it_is_asked_for(tmp_path):
    async with Talk(tmp_path, ("read", {"path": "app.py"})).asked() as talk:
        await talk.until(TurnEnded)
        shown = await talk.conversation.answer(InspectToolUse(talk.session.id, "t1"))
        assert isinstance(shown, WholeToolUse)
    assert shown.tool == "read"
    assert '"path": "app.py"' in shown.input
    assert "return 1" in shown.result


async def test_a_repaired_input_is_what_is_asked_run_shown_logged_and_sent_again(tmp_path):
    call = ("Bash", {"cmd": "echo $((6*7)) > out", "timeout": 700_000, "cwd": "/", "reason": "x"})
    talk = Talk(tmp_path, uses(call))
    async with talk.asked():
        question = await talk.until(ApprovalRequested)
        assert question.subject == "echo $((6*7)) > out"
        talk.answer(question, "once")
        await talk.until(TurnEnded)
        shown = await talk.conversation.answer(InspectToolUse(talk.session.id, "t1"))
        assert isinstance(shown, WholeToolUse)
    assert (talk.project / "out").read_text() == "42\n"
    repaired = {"command": "echo $((6*7)) > out", "timeout_s": 600}
    assert msgspec.json.decode(shown.input) == repaired
    [use] = (block for block in talk.session.history[1].content if isinstance(block, ToolUse))
    assert (use.name, use.input) == ("bash", repaired)
    assert "bash has no `cwd`. It takes: command (required)" in talk.told()


async def test_an_invalid_input_stays_in_the_history_as_the_model_wrote_it(tmp_path):
    talk = await Talk(tmp_path, uses(("bash", {"cmd": ["ls"], "cwd": "/"}))).run()
    [use] = (block for block in talk.session.history[1].content if isinstance(block, ToolUse))
    assert use.input == {"cmd": ["ls"], "cwd": "/"}
    assert (
        "bash has no `cwd`. It takes: command (required), timeout_s, background, pty."
        in talk.told()
    )


# --- what is asked is what happens -------------------------------------------------------------------------------------


@prove
async def test_offer_names_the_directory_where_only_that_can_be_granted(tmp_path):
    directory = tmp_path / "home/settings"
    directory.mkdir(parents=True)
    wanted = directory / "new.conf"
    talk = Talk(tmp_path, bash("true"), bash(f"touch {wanted}"), mode="auto")
    talk.services.sandbox.effective_policy.policy = Grant(read_paths=(str(directory),)).added_to(
        talk.services.sandbox.effective_policy.policy
    )
    await talk.run("once")
    assert talk.questions[0].subject == f"write {directory}/ and everything in it, for {wanted}"
    assert wanted.exists()


@prove
@prove
async def test_command_that_is_granted_something_runs_again_where_it_ran_first(tmp_path, outside):
    talk = Talk(tmp_path, bash(f"cd sub && pwd && cat {outside}"), mode="auto")
    (talk.project / "sub").mkdir(parents=True)
    await talk.run("once")
    assert talk.told().startswith(f"{talk.project}/sub\nmy notes\n")


async def test_grant_is_asked_for_where_the_command_ran(tmp_path, outside):
    talk = Talk(tmp_path, bash("cd sub"), bash(f"cat {outside}"), mode="auto")
    (talk.project / "sub").mkdir(parents=True)
    await talk.run("deny")
    [question] = talk.questions
    assert question.cwd == f"{talk.project}/sub"


@prove
@pytest.mark.parametrize("is_on", [True, False])
async def test_what_was_exported_without_a_question_asks_before_it_decides(tmp_path, is_on):
    talk = Talk(
        tmp_path,
        bash("export PATH=$PWD/.x:$PATH"),
        [{"delay_ms": 500, "text": "."}, *uses(bash("ls"))],
        mode="auto",
    )
    async with talk.asked():
        await talk.until(ToolEnded)
        talk.services.sandbox.switch(is_on=is_on)
        talk.conversation.controls.set_mode("ask")
        question = await talk.until(ApprovalRequested)
        assert f"set PATH='{talk.project}/.x:" in question.reason
        talk.answer(question, "deny")


@prove
async def test_exports_ask_once_for_each_value_that_was_shown(tmp_path):
    long = f"export LD_DEBUG={'x' * 3000}"
    commands = ["ls", "ls app.py", "export LESSOPEN=less", "pwd", "ls -l", long, "ls -a", "ls -A"]
    talk = Talk(
        tmp_path,
        bash("export LESSOPEN=$PWD/page LANG=C x=1"),
        [{"delay_ms": 300, "text": "."}, *uses(bash(commands[0]))],
        *(bash(command) for command in commands[1:]),
        mode="auto",
    )
    async with talk.asked():
        await talk.until(ToolEnded)
        talk.conversation.controls.set_mode("ask")
        for number, command in enumerate(
            ["ls", "export LESSOPEN=less", "pwd", long, "ls -a", "ls -A"], 1
        ):
            question = await talk.until(ApprovalRequested, number)
            assert question.subject == command
            talk.answer(question, "once")
    reasons = [question.reason for question in talk.questions]
    assert [reason for reason in reasons if "LANG" in reason or "x=1" in reason] == []
    assert f"LESSOPEN='{talk.project}/page'," in reasons[0]
    assert "LESSOPEN='less'," in reasons[2]
    assert ["(3,0" in reason for reason in reasons] == [False] * 4 + [True] * 2
    kept = talk.services.gate.state()
    assert kept["seen_exports"] == [f"LESSOPEN='{talk.project}/page'", "LESSOPEN='less'"]  # type: ignore[index]


@prove
async def test_exports_that_were_shown_are_known_when_the_session_is_resumed(tmp_path):
    talk = Talk(tmp_path, bash("ls"))
    talk.services.gate.restore({"seen_exports": ["LESSOPEN='x'"]})
    talk.services.workspace.shell.restore(ShellState(str(talk.project), {"LESSOPEN": "x"}))
    await talk.run()
    assert talk.questions == []


async def test_what_was_judged_with_the_sandbox_does_not_run_without_it(tmp_path):
    async with Talk(tmp_path, ("write", {"path": "made", "content": "x"})).asked() as talk:
        question = await talk.until(ApprovalRequested)
        talk.services.sandbox.switch(is_on=False)
        talk.answer(question, "once")
    assert talk.told().startswith("Not run: the user switched off the sandbox")
    assert not (talk.project / "made").exists()


async def test_what_was_allowed_with_the_sandbox_is_allowed_with_it_alone(
    tmp_path,
):
    command = "mkdir $(echo made)"
    async with Talk(tmp_path, bash(command), bash(command)).asked() as talk:
        question = await talk.until(ApprovalRequested)
        talk.services.sandbox.switch(is_on=False)
        talk.answer(question, "session")
        talk.answer(await talk.until(ApprovalRequested, 2), "deny")
    assert not (talk.project / "made").exists()


async def test_sandbox_that_is_switched_off_during_a_write_of_the_log_is_off(tmp_path, monkeypatch):
    talk = Talk(tmp_path, bash("touch made"), mode="auto")
    synced = talk.session.log.synced

    async def switch_off() -> None:
        await synced()
        if talk.of(ToolStarted):
            talk.services.sandbox.switch(is_on=False)

    monkeypatch.setattr(talk.session.log, "synced", switch_off)
    await talk.run()
    assert talk.told().startswith("Not run: the user switched off the sandbox")
    assert not (talk.project / "made").exists()


async def test_only_a_tool_that_does_not_just_look_waits_for_the_disk(tmp_path, monkeypatch):
    talk = Talk(tmp_path, ("ls", {"path": "."}), bash("touch made"), mode="auto")
    disk = anyio.Event()
    monkeypatch.setattr(talk.session.log, "synced", disk.wait)
    async with talk.asked():
        await talk.until(ToolEnded)
        await talk.until(ToolStarted, 2)
        await anyio.sleep(0.1)
        assert len(talk.of(ToolEnded)) == 1
        assert not (talk.project / "made").exists()
        disk.set()
        await talk.until(ToolEnded, 2)
    assert (talk.project / "made").exists()


@prove
async def test_all_of_a_change_can_be_read_before_it_is_allowed(tmp_path):
    hidden = "A" * 5000 + "; hidden()"
    lines = "\n".join(f"line {n}" for n in range(3000))
    talk = Talk(tmp_path, ("write", {"path": "new.py", "content": f"{lines}\n{hidden}\n"}))
    await talk.run("deny")
    [question] = talk.questions
    assert hidden in question.subject
    assert "+line 2999" in question.subject


@prove
async def test_in_plan_mode_nothing_that_was_granted_can_be_written_either(tmp_path, outside):
    command = bash(f"echo more >> {outside}; exit 0")
    later = [{"delay_ms": 300, "text": "."}, *uses(command)]
    talk = Talk(tmp_path, ("write", {"path": str(outside), "content": "x"}), later)
    await_sandbox = talk.services.sandbox
    async with talk.asked():
        talk.answer(await talk.until(ApprovalRequested), "deny")
        await await_sandbox.confined.extend(Grant(write_paths=(str(outside),)))
        talk.conversation.controls.set_mode("plan")
    assert "Read-only file system" in talk.told(1)
    assert outside.read_text() == "my notes\n"


@prove
async def test_jobs_that_can_still_write_are_named_when_plan_mode_begins(tmp_path):
    async with Talk(tmp_path, bash("sleep 60", background=True), mode="auto").asked() as talk:
        await talk.until(ToolEnded)
        talk.conversation.controls.set_mode("plan")
        assert "can still write to the project: j1" in (await talk.until(Notice)).text


# --- what must not end the turn ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    prove_rest(
        [
            ("read", {"path": "/proc/1/root/etc/passwd"}),
            ("write", {"path": "/proc/1/cwd/x", "content": "x"}),
            ("glob", {"pattern": "~\0/x"}),
            ("grep", {"pattern": "x", "glob": "~\0/x"}),
            bash("ls -l /proc/1/exe /proc/1/root"),
            bash("cd /proc/1/cwd && make"),
            bash("touch a '*'"),
        ],
        is_one=True,
    ),
    ids=str,
)
async def test_odd_paths_end_neither_the_turn_nor_the_host(tmp_path, call):
    talk = Talk(tmp_path, call, rules=(rule_from_text("deny read secrets/**"),))
    async with talk.asked():
        while not talk.of(TurnEnded):
            open_questions = {event.id: event for event in talk.questions}
            for settled in talk.of(ApprovalSettled):
                open_questions.pop(settled.id, None)
            for question in open_questions.values():
                talk.answer(question, "deny")
            await anyio.sleep(0.01)
    assert len(talk.results) == 1


@prove
@pytest.mark.parametrize("answer", ["once", "session"])
@pytest.mark.parametrize("call", ["bash", "write"])
async def test_link_that_is_made_before_the_answer_is_not_followed(tmp_path, outside, call, answer):
    secret = outside.with_name("secret.txt")
    secret.write_text("secret\n")
    use = (
        ("write", {"path": str(outside), "content": "x"})
        if call == "write"
        else bash(f"cat {outside}")
    )
    async with Talk(tmp_path, use, mode="auto").asked() as talk:
        question = await talk.until(ApprovalRequested)
        outside.unlink()
        outside.symlink_to(secret)
        talk.answer(question, answer)
    assert "secret\n" not in talk.told()
    assert talk.of(ToolEnded)[0].is_error
    assert secret.read_text() == "secret\n"


@prove
async def test_offer_says_where_a_link_leads(tmp_path, outside):
    link = outside.with_name("link")
    link.symlink_to(outside)
    talk = await Talk(tmp_path, bash(f"cat {link}"), mode="auto").run("deny")
    [question] = talk.questions
    assert question.subject == f"read {link}, which resolves to {outside}"


@prove
async def test_grant_of_an_older_log_is_asked_about_again(tmp_path, outside):
    talk = Talk(tmp_path, bash(f"cat {outside}"), mode="auto")
    talk.services.gate.restore({"granted": [[str(outside)], [], []]})
    await talk.run("deny")
    assert talk.questions[0].subject == f"read {outside}"


@prove
async def test_hosts_that_were_taken_back_do_not_come_back_when_the_session_is_resumed(tmp_path):
    before = Talk(tmp_path)
    before.services.gate.restore({"granted": [[], [], ["example.org"]]})
    async with before.asked():
        await before.until(TurnEnded)
        assert before.services.sandbox.facts.network == "proxy"
        before.conversation.act(SetNetwork("off"))
        await happens(lambda: before.services.sandbox.facts.network == "off")
    talk = await Talk(tmp_path).run()
    assert talk.services.gate.state()["granted"] == NO_GRANT
    assert talk.services.sandbox.facts.network == "off"


@prove
async def test_network_that_is_off_before_the_grants_of_a_session_are_back_stays_off(
    tmp_path,
):
    talk = Talk(tmp_path)
    gate = talk.services.gate
    async with talk.asked():
        await talk.until(TurnEnded)
        gate.restore({"granted": [[], [], ["example.org"]]})
        await talk.conversation.controls.set_network("off")
        await gate.grant_again()
        assert talk.services.sandbox.facts.network == "off"
    assert gate.state()["granted"] == NO_GRANT


@prove
async def test_host_is_asked_about_again_when_the_network_was_switched_off(
    tmp_path,
):
    fetch = ("web_fetch", {"url": "https://docs.example/page"})
    async with Talk(tmp_path, fetch, DONE, fetch).asked() as talk:
        talk.answer(await talk.until(ApprovalRequested), "session")
        await talk.until(TurnEnded)
        await talk.conversation.controls.set_network("off")
        talk.conversation.submit(Prompt("p2", "Again."))
        talk.answer(await talk.until(ApprovalRequested, 2), "deny")
        await talk.until(TurnEnded, 2)


async def test_what_is_gone_when_the_session_is_resumed_is_granted_no_more(tmp_path, outside):
    granted = Grant(read_paths=(str(outside),)).identified()
    outside.rename(outside.with_name("elsewhere"))
    talk = Talk(tmp_path)
    talk.services.gate.restore({"granted": msgspec.to_builtins(granted)})
    await talk.run()
    assert talk.services.gate.state()["granted"] == NO_GRANT


@prove
async def test_what_is_gone_when_it_is_granted_for_the_session_is_not_granted(tmp_path, outside):
    async with Talk(tmp_path, bash(f"cat {outside}"), mode="auto").asked() as talk:
        question = await talk.until(ApprovalRequested)
        outside.unlink()
        talk.answer(question, "session")
    assert "No such file" in talk.told()


@prove
async def test_search_of_a_directory_waits_for_the_edit_of_a_file_in_it(tmp_path):
    talk = Talk(
        tmp_path, uses(edit("app.py", "1", "2"), ("grep", {"pattern": "return"})), mode="auto"
    )
    await talk.run()
    assert "return 2" in talk.told(1)


@prove
async def test_server_of_the_session_is_fetched_in_auto_mode_without_a_question(tmp_path):
    serve = bash("python3 -m http.server 8123 --bind 127.0.0.1", background=True)
    fetch = ("web_fetch", {"url": "http://localhost:8123/app.py"})
    talk = await Talk(tmp_path, serve, fetch, mode="auto").run()
    assert talk.questions == []
    assert "return 1" in talk.told(1)


async def test_a_turn_is_a_checkpoint_of_what_its_tools_have_changed(tmp_path):
    talk = Talk(
        tmp_path,
        uses(
            ("edit", {"path": "app.py", "edits": [{"old": "return 1", "new": "return 2"}]}),
            bash("printf new > made; mkdir d; mv app.py d/app.py"),
        ),
        mode="auto",
    )
    await talk.run()
    journal = talk.services.workspace.journal
    turn = await journal.latest()
    assert turn.turn == "p1"
    found = {each.path.removeprefix(f"{talk.project}/"): each for each in turn.changes}
    assert set(found) == {"app.py", "made", "d", "d/app.py"}
    assert await journal.content(found["app.py"].before) == b"def f():\n    return 1\n"
    assert found["app.py"].after.kind == "absent"
    assert await journal.content(found["d/app.py"].after) == b"def f():\n    return 2\n"
    assert turn.doubtful == ()


def test_output_that_comes_after_a_use_has_ended_is_not_shown():
    shown = []
    line = InLine(shown.append)
    events = [
        each
        for use_id in ("t1", "t2")
        for each in (ToolStarted(use_id, "ls", ""), ToolEnded(use_id, ""))
    ]
    for event in events:
        line.show(event)
        if isinstance(event, ToolEnded):
            line.show(ToolOutput(event.id, "late"))
    assert shown == events


def test_thousands_of_uses_that_wait_for_one_are_shown_once_it_has_ended():
    shown = []
    line = InLine(shown.append)
    line.show(ToolStarted("first", "bash", ""))
    for number in range(5_000):
        line.show(ToolStarted(str(number), "ls", ""))
        line.show(ToolEnded(str(number), ""))
    assert len(shown) == 1
    line.show(ToolEnded("first", ""))
    assert len(shown) == 10_002


# --- the project's own programs ---------------------------------------------------------------------------------------------


def programs_in(project: Path, *places: str) -> None:
    for place in places:
        (project / place).mkdir(parents=True)
        program = project / place / "mytool"
        program.write_text(f"#!/bin/sh\necho {place}\n")
        program.chmod(0o755)


def trust(talk: Talk, *names: str) -> None:
    """Trust these files of the project, and no others."""
    given = talk.services.project.trust
    given.trust({name: file.sha256 for name in names if (file := given.look(name))})


async def test_programs_of_a_project_come_first_on_path_while_it_is_trusted(tmp_path):
    talk = Talk(
        tmp_path,
        *[bash("mytool || echo none; PATH=$PATH:/opt/x; export PATH; printf %s $PATH >path")] * 2,
    )
    (talk.project / "AGENTS.md").write_text("Be kind.\n")
    programs_in(talk.project, "node_modules/.bin", ".venv/bin", "sub/.venv/bin")
    own = f"{talk.project}/.venv/bin:{talk.project}/node_modules/.bin:"
    async with talk.asked():
        talk.answer(await talk.until(ApprovalRequested), "once")
        second = await talk.until(ApprovalRequested, 2)
        trust(talk, "AGENTS.md")  # before the second command starts
        talk.answer(second, "once")
    assert "none" in talk.told(0)
    assert ".venv/bin\n" in talk.told(1)
    path = (talk.project / "path").read_text()
    assert path.startswith(own)
    assert "sub/.venv" not in path
    kept = talk.services.workspace.shell.now.variables["PATH"]
    assert kept is not None
    assert str(talk.project) not in kept
    assert kept.count("/opt/x") == 2


async def test_without_trust_and_outside_the_project_no_programs_come_first(tmp_path):
    talk = Talk(tmp_path)
    services = talk.services
    (talk.project / "AGENTS.md").write_text("Be kind.\n")
    programs_in(talk.project, "venv/bin")
    programs_in(tmp_path, "elsewhere/bin")
    (talk.project / ".venv").symlink_to(tmp_path / "elsewhere")
    assert services.sandbox.own_programs() == ()
    trust(talk, "AGENTS.md")
    assert services.sandbox.own_programs() == (f"{talk.project}/venv/bin",)
    (talk.project / "AGENTS.md").write_text("Be evil.\n")
    assert services.sandbox.own_programs() == ()
    trust(talk)
    assert services.sandbox.own_programs() == ()
    talk.session.close()


def test_project_with_a_colon_in_its_path_puts_nothing_on_path(tmp_path):
    project = tmp_path / "a:b"
    programs_in(project, ".venv/bin")
    (project / "AGENTS.md").write_text("Be kind.\n")
    given = Trust(str(tmp_path / "state"), str(project))
    file = given.look("AGENTS.md")
    assert file
    given.trust({"AGENTS.md": file.sha256})
    assert given.is_given
    assert own_programs(given) == ()


async def test_command_asks_where_the_project_has_a_program_of_its_name(tmp_path):
    talk = Talk(tmp_path, bash("mytool"), bash("ls"))
    programs_in(talk.project, ".venv/bin")
    (talk.project / ".venv/bin/mytool").rename(talk.project / ".venv/bin/ls")
    await talk.run("deny", "deny")
    assert len(talk.questions) == 2


@pytest.mark.parametrize(
    "line, helper",
    [
        ("egrep kind AGENTS.md", "grep"),
        ("zcat a.gz", "gzip"),
        ("rg -z kind", "xz"),
        ("git submodule status", "sed"),
    ],
)
async def test_command_asks_where_the_project_has_a_program_that_it_starts(tmp_path, line, helper):
    talk = Talk(tmp_path, bash(line))
    programs_in(talk.project, ".venv/bin")
    (talk.project / ".venv/bin/mytool").rename(talk.project / f".venv/bin/{helper}")
    await talk.run("deny")
    assert len(talk.questions) == 1


async def test_command_is_judged_again_if_the_mode_changes_while_the_user_is_asked_to_save(
    tmp_path, monkeypatch
):
    talk = Talk(tmp_path, bash("touch made"), mode="plan")

    async def save_after_a_change_of_mode(*_: object) -> None:
        talk.conversation.controls.set_mode("ask")

    monkeypatch.setattr(tool_uses, "offer_to_save", save_after_a_change_of_mode)
    await talk.run("deny")
    assert not (talk.project / "made").exists()
