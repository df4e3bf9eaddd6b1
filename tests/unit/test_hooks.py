"""Hooks of the user and of a trusted project, in the format of Claude Code, with the real sandbox."""

import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.conftest import DEADLINE_S, happens, prove, settings_of
from tests.unit.test_gate import request_of
from tests.unit.test_tool_uses import Talk, bash, edit
from tests.unit.test_trust import trust_all, write

from sanderling.config import Layer, Settings
from sanderling.config.layers import Layers
from sanderling.conversation.checks.configuration import mistakes_in
from sanderling.errors import ConfigError
from sanderling.hooks.declared import Hook, HookEvent, load_hooks, own_hooks, project_hooks
from sanderling.hooks.messages import answer_of
from sanderling.permissions.approvals import Permit, Question
from sanderling.permissions.rules import rule_from_text
from sanderling.project.project import Project
from sanderling.protocol.actions import CancelTurn, Compact, RedoTurn, UndoTurn
from sanderling.protocol.events import (
    ApprovalRequested,
    ErrorOccurred,
    FilesRestored,
    Notice,
    TurnEnded,
)
from sanderling.protocol.messages import NoteBlock, Prompt, TextBlock, ToolResult
from sanderling.providers import ModelLimits
from sanderling.session.session import Session
from sanderling.tools.effects import Effect

WRITE = ("write", {"path": "new.txt", "content": "x"})


def answer(**fields: Any) -> str:
    return f"echo {json.dumps(json.dumps({'hookSpecificOutput': fields}))}"


def decide(decision: str, reason: str = "because", **fields: Any) -> str:
    return answer(
        hookEventName="PreToolUse",
        permissionDecision=decision,
        permissionDecisionReason=reason,
        **fields,
    )


class HookedTalk(Talk):
    """A session with hooks of the user's, by event, and of the trusted project's .claude/settings.json."""

    def __init__(
        self,
        base: Path,
        *replies: Any,
        own: dict[HookEvent, Any] | None = None,
        project: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        session = Session.open(base / "state/sessions", "s1", str(base / "home/project"))
        settings = settings_of(session)
        session.close()
        hooks = {event: _tables(each) for event, each in (own or {}).items()}
        settings = msgspec.structs.replace(settings, hooks=hooks)
        super().__init__(base, *replies, settings=settings, **options)
        if project is not None:
            write(self.project, ".claude/settings.json", json.dumps({"hooks": project}))
            trust_all(self.services.project.trust)

    @property
    def notices(self) -> list[str]:
        return [each.text for each in self.of(Notice)]

    @property
    def notes(self) -> list[str]:
        return [block.text for block in self.blocks if isinstance(block, NoteBlock | TextBlock)]


def _tables(hook: Any) -> tuple[dict[str, Any], ...]:
    hooks = hook if isinstance(hook, tuple) else (hook,)
    return tuple({"command": each} if isinstance(each, str) else each for each in hooks)


def group(command: str, matcher: str = "", **fields: Any) -> list[dict[str, Any]]:
    return [{"matcher": matcher, "hooks": [{"type": "command", "command": command, **fields}]}]


def with_key(key: str, value: Any) -> str:
    return json.dumps({"hooks": {"Stop": group("x", **{key: value})}})


# --- what a hook reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, name, expected",
    [
        (bash("true"), "Bash", {"command": "true"}),
        (WRITE, "Write", {"file_path": "{project}/new.txt", "content": "x"}),
        (
            edit("app.py", "1", "2"),
            "Edit",
            {"file_path": "{project}/app.py", "old_string": "1", "new_string": "2"},
        ),
        (("read", {"path": "app.py"}), "Read", {"file_path": "{project}/app.py"}),
        (bash("true", background=True), "Bash", {"command": "true", "run_in_background": True}),
        (
            (
                "edit",
                {"path": "app.py", "edits": [{"old": "1", "new": "2"}, {"old": "2", "new": "3"}]},
            ),
            "MultiEdit",
            {
                "file_path": "{project}/app.py",
                "edits": [
                    {"old_string": "1", "new_string": "2"},
                    {"old_string": "2", "new_string": "3"},
                ],
            },
        ),
        (
            ("todo", {"items": [{"content": "Look.", "status": "pending"}]}),
            "TodoWrite",
            {"todos": [{"content": "Look.", "status": "pending"}]},
        ),
    ],
)
async def test_a_hook_reads_the_call_in_claudes_words(tmp_path, call, name, expected):
    seen = tmp_path / "seen.json"
    talk = HookedTalk(
        tmp_path,
        call,
        mode="auto",
        own={"PreToolUse": {"command": f"cat >{seen}", "sandbox": False, "matcher": name}},
    )
    await talk.run()
    message = json.loads(seen.read_text())
    project = str(talk.project)
    if path := expected.get("file_path"):
        expected = {**expected, "file_path": path.format(project=project)}
    assert message["tool_input"] == expected
    assert (message["tool_name"], message["tool_use_id"]) == (name, "t1")
    assert (message["session_id"], message["cwd"]) == ("s1", project)
    assert (message["hook_event_name"], message["permission_mode"]) == ("PreToolUse", "auto")


@pytest.mark.parametrize(
    "call, text, response",
    [
        (bash("echo out"), "stdout", {"stderr": "", "interrupted": False, "isImage": False}),
        (WRITE, "content", {"success": True, "filePath": "{project}/new.txt"}),
        (
            edit("app.py", "not there", "x"),
            "content",
            {"success": False, "filePath": "{project}/app.py"},
        ),
    ],
)
async def test_a_hook_reads_the_result_in_claudes_words(tmp_path, call, text, response):
    seen = tmp_path / "seen.json"
    table = {"command": f"cat >{seen}", "sandbox": False}
    talk = await HookedTalk(tmp_path, call, mode="auto", own={"PostToolUse": table}).run()
    if path := response.get("filePath"):
        response = {**response, "filePath": path.format(project=talk.project)}
    said = json.loads(seen.read_text())["tool_response"]
    assert said == {text: talk.told(), **response}


async def test_a_message_larger_than_a_pipe_reaches_the_hook_whole(tmp_path):
    seen = tmp_path / "seen.json"
    text = "x" * 300_000
    talk = HookedTalk(
        tmp_path,
        ("write", {"path": "new.txt", "content": text}),
        mode="auto",
        own={"PreToolUse": {"command": f"cat >{seen}", "sandbox": False}},
    )
    await talk.run()
    assert json.loads(seen.read_text())["tool_input"]["content"] == text


async def test_a_hook_need_not_read_its_message(tmp_path):
    own: dict[HookEvent, Any] = {"PreToolUse": "exec true"}
    call = ("write", {"path": "new.txt", "content": "x" * 300_000})
    talk = await HookedTalk(tmp_path, call, mode="auto", own=own).run()
    assert (talk.project / "new.txt").exists()
    assert talk.notices == []


# --- before a tool call ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whose", ["the project's", "the user's", "outside the sandbox"])
@pytest.mark.parametrize(
    "command",
    [
        "echo 'not here' >&2; exit 2",
        decide("deny", "not here"),
        'echo \'{"decision": "block", "reason": "not here"}\'',
    ],
)
async def test_a_hook_denies_a_call_with_its_reason(tmp_path, command, whose):
    is_projects, is_confined = whose == "the project's", whose != "outside the sandbox"
    hooks = {"PreToolUse": group(command, "Write")} if is_projects else {}
    own: dict[HookEvent, Any] = {}
    if not is_projects:
        own = {"PreToolUse": {"command": command, "matcher": "Write", "sandbox": is_confined}}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own, project=hooks).run()
    assert talk.told() == "A hook denied this: not here"
    assert not (talk.project / "new.txt").exists()


@pytest.mark.parametrize(
    "matcher, is_denied",
    [
        ("Write", True),
        ("write", True),
        ("Edit|Write", True),
        ("W.*", True),
        ("*", True),
        ("", True),
        ("Writ", False),
        ("Bash", False),
    ],
)
async def test_a_matcher_means_whole_names_of_tools(tmp_path, matcher, is_denied):
    own: dict[HookEvent, Any] = {"PreToolUse": {"command": "exit 2", "matcher": matcher}}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own).run()
    assert (talk.project / "new.txt").exists() != is_denied


@pytest.mark.parametrize(
    "matcher, meant",
    [
        ("Bahs", "Bash"),
        ("Edit|Writ", "Write"),
        ("BASH", "Bash"),
        ("mcp__x__y|TaskOutput|lua__z", ""),
    ],
)
async def test_a_matcher_that_misspells_a_tool_is_reported_once(tmp_path, matcher, meant):
    own: dict[HookEvent, Any] = {"PreToolUse": {"command": "true", "matcher": matcher}}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own).run()
    problems = [each for each in talk.notices if "names no tool" in each]
    assert len(problems) == bool(meant)
    assert not meant or problems[0].endswith(f"did you mean '{meant}'?")


@pytest.mark.parametrize(
    "event, said, decision, reason",
    [
        ("PreToolUse", {"decision": "approve", "reason": "fine"}, "allow", "fine"),
        ("PreToolUse", {"decision": "deny", "reason": "no"}, "deny", "no"),
        ("PreToolUse", {"permissionDecision": "defer"}, None, ""),
        (
            "PreToolUse",
            {"permissionDecision": "ask", "decision": "approve", "reason": "why"},
            "ask",
            "why",
        ),
        ("PostToolUse", {"permissionDecision": "deny"}, None, ""),
        ("PermissionRequest", {"permissionDecision": "deny"}, None, ""),
        ("PermissionRequest", {"behavior": "deny", "message": "no", "reason": "x"}, "deny", "no"),
        ("PermissionRequest", {"behavior": "deny", "reason": "x"}, "deny", "x"),
        ("PreToolUse", {"behavior": "deny"}, None, ""),
        ("UserPromptSubmit", {"decision": "block", "reason": "no"}, "deny", "no"),
    ],
)
def test_each_form_of_a_decision_is_understood_at_its_event(event, said, decision, reason):
    inner = {key: said[key] for key in ("behavior", "message") if key in said}
    specific = {key: said[key] for key in ("permissionDecision",) if key in said}
    specific |= {"decision": inner} if inner else {}
    outer = {key: said[key] for key in ("decision", "reason") if key in said}
    output = json.dumps({**outer, "hookSpecificOutput": specific})
    found = answer_of(Hook(event, "x", "config.toml"), 0, output, "")
    assert (found.decision, found.reason) == (decision, reason)


@pytest.mark.parametrize(
    "event, output, context, fails",
    [
        ("SessionStart", "{{today}} is fine", "{{today}} is fine", False),
        ("UserPromptSubmit", '{"continue": 1}', "", True),
        ("PreToolUse", "a remark", "", False),
        ("PreToolUse", "{broken", "", True),
    ],
)
def test_output_that_is_not_json_is_context_where_the_event_takes_text(
    event, output, context, fails
):
    found = answer_of(Hook(event, "x", "config.toml"), 0, output, "")
    assert (found.context, bool(found.failure)) == (context, fails)


@pytest.mark.parametrize(
    "condition, call, is_denied",
    [
        ("Bash(git *)", bash("git status"), True),
        ("Bash(git:*)", bash("cd . && FOO=1 git push"), True),
        ("Bash(git *)", bash("gitk; echo 'git'"), False),
        ("Bash(git status)", bash("git status"), True),
        ("Bash(git status)", bash("git status -s"), False),
        ("Bash(git *)", bash("eval $x"), True),  # nobody knows
        ("Bash", bash("true"), True),
        ("Bash(*)", bash("true"), True),
        ("Bash(true)", WRITE, False),
        ("Write(*.txt)", WRITE, True),
        ("Edit(*.txt)", WRITE, True),
        ("Edit(/new.txt)", WRITE, True),
        ("Edit(//new.txt)", WRITE, False),
        ("Edit(src/**)", WRITE, False),
        ("Read(*.txt)", WRITE, False),
        ("Read(/app.py)", ("read", {"path": "app.py"}), True),
        ("mcp__db", WRITE, False),
        ("WebFetch(domain:example.com)", WRITE, False),
    ],
)
async def test_a_hook_runs_only_if_its_rule_matches_the_call(tmp_path, condition, call, is_denied):
    project = {"PreToolUse": group("echo no >&2; exit 2", **{"if": condition})}
    talk = await HookedTalk(tmp_path, call, mode="auto", project=project).run()
    assert ("A hook denied this" in talk.told()) is is_denied
    assert talk.notices == []


@pytest.mark.parametrize("event", ["PermissionRequest", "PostToolUse"])
@pytest.mark.parametrize("command, has_run", [("touch a", True), ("touch b", False)])
async def test_a_rule_limits_hooks_of_other_events_too(tmp_path, event, command, has_run):
    project = {event: group("echo ran >>ran", **{"if": "Bash(touch a)"})}
    talk = await HookedTalk(tmp_path, bash(command), project=project).run("once")
    assert (talk.project / "ran").exists() is has_run


async def test_a_rule_that_cannot_be_followed_is_reported_once(tmp_path):
    hooks = [
        *group("exit 2", **{"if": "Bash(* --force)"}),
        *group("exit 2", **{"if": "Task(x)"}),
        *group("exit 2", **{"if": "Bash("}),
    ]
    talk = HookedTalk(tmp_path, project={"PreToolUse": hooks})
    async with talk.served():
        await talk.run_turns(Prompt("p1", "a"), Prompt("p2", "b"))
    assert len(talk.notices) == 3
    for words in (
        "last word can be `*`",
        "'Task(x)' is not supported: a rule for this tool has no target",
        "'Bash(' is not a rule",
    ):
        assert any(words in each for each in talk.notices)


async def test_a_hook_in_the_background_neither_delays_nor_decides(tmp_path):
    command = "until [ -e new.txt ]; do sleep 0.02; done; echo no >&2; touch ended; exit 2"
    project = {"PreToolUse": group(command, **{"async": True})}
    talk = HookedTalk(tmp_path, WRITE, mode="auto", project=project)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "a"))
        await happens((talk.project / "ended").exists)
    assert "hook" not in talk.told()


async def test_what_a_hook_in_the_background_reports_is_in_the_next_prompt(tmp_path):
    command = "until [ -e new.txt ]; do sleep 0.02; done; echo broken >&2; touch ended; exit 2"
    project = {"PostToolUse": group(command, asyncRewake=True)}
    talk = HookedTalk(tmp_path, WRITE, [{"text": "b"}], mode="auto", project=project)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "a"))
        await happens(lambda: talk.services.hooks._hooks._late)
        await talk.run_turns(Prompt("p2", "b"))
    assert any("broken" in each for each in talk.notes)
    assert len(talk.notices) == 1


async def test_a_hook_asks_about_a_call_that_the_mode_allows(tmp_path):
    project = {"PreToolUse": group(decide("ask", "is it wise?"))}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", project=project).run("once")
    [question] = talk.questions
    assert "A hook asks about this: is it wise?" in question.reason
    assert (question.choices, question.rule) == (("once",), "")  # the hook asks the next time, too
    assert (talk.project / "new.txt").exists()


@pytest.mark.parametrize(
    "said, problem",
    [
        (
            {"hookSpecificOutput": {"permissionDecison": "deny"}},
            "its answer has `permissionDecison` instead of `permissionDecision`.",
        ),
        (
            {"permissionDecision": "deny"},
            "its answer has `permissionDecision` outside `hookSpecificOutput`, where it has no effect.",
        ),
        ({"decison": "block"}, "its answer has `decison` instead of `decision`."),
        ({"suppressOutput": True, "hookSpecificOutput": {"updatedMCPToolOutput": 1}}, ""),
    ],
)
async def test_a_misspelled_key_of_an_answer_is_reported(tmp_path, said, problem):
    own: dict[HookEvent, Any] = {"PreToolUse": f"echo '{json.dumps(said)}'"}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own).run()
    assert [each.partition(" failed: ")[2] for each in talk.notices] == (
        [problem] if problem else []
    )


async def test_the_users_hook_allows_what_would_be_asked(tmp_path):
    talk = await HookedTalk(tmp_path, WRITE, own={"PreToolUse": decide("allow")}).run()
    assert talk.questions == []
    assert (talk.project / "new.txt").exists()


async def test_a_projects_hook_allows_nothing(tmp_path):
    project = {"PreToolUse": group(decide("allow"))}
    talk = await HookedTalk(tmp_path, WRITE, project=project).run("deny")
    assert len(talk.questions) == 1
    assert not (talk.project / "new.txt").exists()


async def test_a_hook_allows_nothing_that_needs_more_access(tmp_path):
    call = ("web_fetch", {"url": "https://example.com/"})
    own: dict[HookEvent, Any] = {event: decide("allow") for event in ("PreToolUse",)}
    own["PermissionRequest"] = answer(
        hookEventName="PermissionRequest", decision={"behavior": "allow"}
    )
    talk = await HookedTalk(tmp_path, call, own=own).run("deny")
    assert len(talk.questions) == 1


@pytest.mark.parametrize("mode", ["ask", "plan", "auto"])
@prove
async def test_a_hook_allows_no_command_that_the_sandbox_would_not_confine(tmp_path, mode):
    talk = HookedTalk(tmp_path, mode=mode)
    async with talk.served():
        talk.services.sandbox.switch(is_on=False)
        request = msgspec.structs.replace(request_of(talk, "make"), hooked="allow")
        assert isinstance(talk.services.gate.judge(request), Question)


@pytest.mark.parametrize("does", ["", "write", "run", "network"])
async def test_a_hook_allows_no_function_outside_the_sandbox(tmp_path, does):
    talk = HookedTalk(tmp_path)
    effect = Effect("lua__x", "call", does=does, leaves_sandbox=not does)
    request = request_of(talk, "make")
    request = msgspec.structs.replace(request, hooked="allow", effect=effect)
    assert isinstance(talk.services.gate.judge(request), Question)
    await talk.aclose()


@pytest.mark.parametrize("mode, kind", [("ask", Permit), ("plan", Question)])
async def test_a_hook_does_not_overrule_plan_mode(tmp_path, mode, kind):
    talk = HookedTalk(tmp_path, mode=mode)
    effect = Effect("mcp__notes__add", "call", server="mark")
    request = request_of(talk, "make")
    request = msgspec.structs.replace(request, hooked="allow", effect=effect)
    assert isinstance(talk.services.gate.judge(request), kind)
    await talk.aclose()


async def test_a_hook_allows_no_change_to_what_instructs_agents(tmp_path):
    """An allow rule must name such a file, too."""
    call = ("write", {"path": "AGENTS.md", "content": "x"})
    talk = await HookedTalk(tmp_path, call, own={"PreToolUse": decide("allow")}).run("deny")
    assert len(talk.questions) == 1
    assert not (talk.project / "AGENTS.md").exists()


async def test_a_hook_allows_nothing_that_a_rule_asks_about(tmp_path):
    rules = (rule_from_text("ask write"),)
    own: dict[HookEvent, Any] = {"PreToolUse": decide("allow")}
    talk = await HookedTalk(tmp_path, WRITE, own=own, rules=rules).run("deny")
    assert len(talk.questions) == 1


async def test_a_hook_allows_no_change_to_several_files_if_a_rule_asks_about_one(tmp_path):
    talk = HookedTalk(tmp_path, rules=(rule_from_text("ask edit b.py"),))
    project = str(talk.project)
    paths = (f"{project}/a.py", f"{project}/b.py")
    effect = Effect("edit", "write", path=project, paths=paths)
    request = msgspec.structs.replace(request_of(talk, "make"), hooked="allow", effect=effect)
    assert isinstance(talk.services.gate.judge(request), Question)
    await talk.aclose()


async def test_denying_beats_asking_and_asking_beats_allowing(tmp_path):
    own: dict[HookEvent, Any] = {
        "PreToolUse": (decide("allow"), decide("deny", "no"), decide("ask"))
    }
    talk = await HookedTalk(tmp_path, WRITE, own=own).run()
    assert talk.told().endswith("no")


@pytest.mark.parametrize("whose", ["the project's", "the user's", "outside the sandbox"])
async def test_a_hook_changes_the_input_which_is_shown_judged_and_run(tmp_path, whose):
    its = {"command": "touch changed.txt"}
    command = answer(hookEventName="PreToolUse", updatedInput=its)
    silent = "exit 0"  # changes nothing of what the one before it has answered
    project: dict[str, Any] = {}
    own: dict[HookEvent, Any] = {}
    if whose == "the project's":
        project = {"PreToolUse": [*group(command, "Bash"), *group(silent)]}
    else:
        is_confined = whose != "outside the sandbox"
        table = {"command": command, "matcher": "Bash", "sandbox": is_confined}
        own = {"PreToolUse": (table, silent)}
    talk = HookedTalk(tmp_path, bash("touch original.txt"), project=project, own=own)
    await talk.run("once")
    [question] = talk.questions
    assert question.title == "touch changed.txt"
    assert [each.name for each in talk.project.glob("*.txt")] == ["changed.txt"]
    note = 'A hook changed the input of this call to {"command":"touch changed.txt"}'
    assert note in talk.told()


async def test_a_changed_path_is_judged_anew(tmp_path):
    its = {"file_path": ".git/hooks/pre-commit", "content": "x"}
    project = {"PreToolUse": group(answer(hookEventName="PreToolUse", updatedInput=its))}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", project=project).run()
    assert talk.told().startswith(".git/hooks/pre-commit cannot be written")
    assert not (talk.project / ".git/hooks/pre-commit").exists()


async def test_the_users_hooks_judge_the_input_that_a_projects_hook_has_changed(tmp_path):
    its = {"cmd": "touch changed.txt"}
    project = {"PreToolUse": group(answer(hookEventName="PreToolUse", updatedInput=its))}
    guard = "grep -q 'command.*changed' && { echo not that >&2; exit 2; }; exit 0"
    for own in (guard, f"grep -q original && {decide('allow')}"):
        base = tmp_path / str(len(own))
        talk = HookedTalk(
            base, bash("touch original.txt"), own={"PreToolUse": own}, project=project
        )
        await talk.run(*([] if own == guard else ["deny"]))
        assert not list(talk.project.glob("*.txt")), own
        assert len(talk.questions) == (0 if own == guard else 1)


async def test_an_input_that_the_tool_does_not_take_is_refused_in_words(tmp_path):
    its = {"nonsense": 1}
    project = {"PreToolUse": group(answer(hookEventName="PreToolUse", updatedInput=its))}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", project=project).run()
    assert "Invalid input for 'write'" in talk.told()


async def test_what_a_hook_adds_is_in_the_result(tmp_path):
    own: dict[HookEvent, Any] = {
        "PreToolUse": answer(hookEventName="PreToolUse", additionalContext="Before."),
        "PostToolUse": answer(hookEventName="PostToolUse", additionalContext="After."),
    }
    talk = await HookedTalk(tmp_path, bash("echo out"), mode="auto", own=own).run()
    assert talk.told().endswith("\n\n[From a hook:\nBefore.\nAfter.]")


def test_a_mistyped_event_is_named_with_the_nearest_one():
    with pytest.raises(ConfigError, match="no hook event 'PreTool'; did you mean 'PreToolUse'"):
        load_hooks({"PreTool": [{"command": "x"}]})
    with pytest.raises(ConfigError, match=r"'hooks.Stop\[2\]' has no `command`: nothing would run"):
        load_hooks({"Stop": [{"command": "x"}, {"matcher": "x"}]})
    with pytest.raises(ConfigError, match="no hook event 'zzz'; known: SessionStart, "):
        load_hooks({"zzz": [{"command": "x"}]})


# --- hooks that fail -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, words",
    [
        ("echo oops >&2; exit 1", "exit status 1: oops"),
        ("echo '{broken'", "not what a hook answers"),
        ('echo \'{"hookSpecificOutput": {"permissionDecision": "maybe"}}\'', "not what a hook"),
    ],
)
async def test_a_hook_that_fails_is_shown_once_and_decides_nothing(tmp_path, command, words):
    calls = [WRITE[1], {"path": "other.txt", "content": "x"}]
    steps = [{"tool_use": {"name": "write", "input": each}} for each in calls]
    talk = await HookedTalk(tmp_path, steps, mode="auto", own={"PreToolUse": command}).run()
    [notice] = talk.notices
    assert words in notice
    assert (talk.project / "new.txt").exists()
    assert (talk.project / "other.txt").exists()


@pytest.mark.parametrize("is_confined", [True, False])
@pytest.mark.parametrize(
    "command, words",
    [
        ("sleep 60", "did not end within 0.5 s"),
        ("trap '' TERM INT; sleep 60 & wait", "did not end"),
        ("kill -9 $$", "was killed by signal 9"),
        ("no-such-program", "exit status 127"),
        ("./no-program", "exit status 127"),
        ("/etc", "exit status 126"),
        ("yes", "wrote more than"),
        ("yes >&2", "wrote more than"),
    ],
)
async def test_a_hook_that_hangs_floods_or_dies_is_ended_and_the_user_is_asked(
    tmp_path, command, words, is_confined
):
    table = {"command": command, "timeout": 0.5, "sandbox": is_confined}
    own: dict[HookEvent, Any] = {"PreToolUse": table}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own).run("deny")
    assert words in talk.questions[0].reason
    assert words in talk.notices[0]


async def test_a_hook_that_the_sandbox_hides_is_explained(tmp_path):
    write(tmp_path, "home/tools/check", "#!/bin/sh\n")
    (tmp_path / "home/tools/check").chmod(0o755)
    own: dict[HookEvent, Any] = {"PreToolUse": f"{tmp_path}/home/tools/check"}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own).run("deny")
    assert "the sandbox shows hooks only the project" in talk.questions[0].reason


async def test_a_process_that_a_hook_leaves_behind_does_not_hold_the_turn(tmp_path):
    table = {"command": "sleep 600 & echo done", "timeout": 300}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own={"PreToolUse": table}).run()
    assert (talk.project / "new.txt").exists()


async def test_stopping_the_turn_does_not_wait_for_a_hook(tmp_path):
    marker = tmp_path / "started"
    table = {"command": f"touch {marker}; sleep 600", "timeout": 600, "sandbox": False}
    talk = HookedTalk(tmp_path, WRITE, mode="auto", own={"PreToolUse": table})
    async with talk.served():
        talk.conversation.submit(Prompt("p1", "Do it."))
        await happens(marker.exists)
        talk.conversation.act(CancelTurn())
        ended = await talk.until(TurnEnded)
    assert ended.stop_reason == "cancelled"
    assert not (talk.project / "new.txt").exists()


# --- the sandbox ----------------------------------------------------------------------------------------------------------


async def test_a_projects_hook_runs_in_the_sandbox_even_if_it_is_off_for_commands(tmp_path):
    secret, outside = tmp_path / "home/secret.txt", tmp_path / "outside.txt"
    write(tmp_path, "home/secret.txt", "a planted secret")
    command = f"cat {secret} >&2; echo x >{outside}; echo y >inside.txt; exit 2"
    project = {"PreToolUse": group(command)}
    talk = HookedTalk(tmp_path, WRITE, mode="auto", project=project)
    talk.services.sandbox.switch(is_on=False)
    await talk.run()
    assert "planted" not in talk.told()
    assert not outside.exists()
    assert (talk.project / "inside.txt").read_text() == "y\n"


async def test_the_users_own_hook_may_leave_the_sandbox(tmp_path):
    outside = tmp_path / "outside.txt"
    table = {"command": f"echo $CLAUDE_PROJECT_DIR >{outside}", "sandbox": False}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own={"PreToolUse": table}).run()
    assert outside.read_text() == f"{talk.project}\n"


async def test_hooks_of_a_project_that_is_not_trusted_do_not_run(tmp_path):
    talk = HookedTalk(tmp_path, WRITE, mode="auto")
    file = json.dumps({"hooks": {"PreToolUse": group("exit 2")}})
    write(talk.project, ".claude/settings.json", file)
    await talk.run()
    assert (talk.project / "new.txt").exists()
    trust_all(talk.services.project.trust)
    write(talk.project, ".claude/settings.json", file + "\n")
    assert project_hooks(talk.services.project.trust) == ([], [])


# --- the other events -------------------------------------------------------------------------------------------------------


async def test_the_start_and_each_prompt_get_what_their_hooks_print(tmp_path):
    own: dict[HookEvent, Any] = {
        "SessionStart": {"command": "echo started", "matcher": "startup"},
        "UserPromptSubmit": "echo seen",
    }
    talk = HookedTalk(tmp_path, [{"text": "One."}], own=own)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."), Prompt("p2", "Again."))
    said = "[From a hook:\n{}]"
    assert talk.notes.count(said.format("started")) == 1
    assert talk.notes.count(said.format("seen")) == 2


async def test_a_hook_refuses_a_prompt_which_is_not_sent(tmp_path):
    own: dict[HookEvent, Any] = {"UserPromptSubmit": "grep -q secret && { echo no >&2; exit 2; }"}
    talk = HookedTalk(tmp_path, [{"text": "One."}], own=own)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "the secret"))
    assert talk.history == []
    assert talk.of(ErrorOccurred)[0].message == "A hook refused the prompt: no"


async def test_a_hook_reads_what_a_slash_command_sends(tmp_path):
    own: dict[HookEvent, Any] = {"UserPromptSubmit": "grep -q 'Fix the parser' && exit 2; exit 0"}
    talk = HookedTalk(tmp_path, [{"text": "One."}], own=own)
    write(talk.project, ".claude/commands/mend.md", "Fix the $1.")
    trust_all(talk.services.project.trust)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "/mend parser"))
    assert talk.history == []


async def test_a_hook_answers_a_question_for_the_user(tmp_path):
    allow = answer(hookEventName="PermissionRequest", decision={"behavior": "allow"})
    talk = await HookedTalk(tmp_path, WRITE, own={"PermissionRequest": allow}).run()
    assert (talk.project / "new.txt").exists()
    deny = answer(
        hookEventName="PermissionRequest", decision={"behavior": "deny", "message": "never"}
    )
    project = {"PermissionRequest": group(deny)}
    other = await HookedTalk(tmp_path / "other", WRITE, project=project).run()
    assert other.told() == "A hook denied this: never"
    project = {"PermissionRequest": group(allow)}
    third = await HookedTalk(tmp_path / "third", WRITE, project=project).run("deny")
    assert len(third.questions) == 1


async def test_a_stop_hook_continues_the_turn_until_it_is_content(tmp_path):
    command = "[ -e done ] && exit 0; touch done; echo 'run the tests' >&2; exit 2"
    talk = HookedTalk(tmp_path, [{"text": "I am done."}], mode="auto", own={"Stop": command})
    await talk.run()
    assert any("A hook asks you to continue:\nrun the tests" in each for each in talk.notes)
    assert [each.stop_reason for each in talk.of(TurnEnded)] == ["end_turn"]


async def test_a_stop_hook_reads_the_answer_and_whether_it_has_continued_the_turn(tmp_path):
    seen = tmp_path / "seen.jsonl"
    seen.touch()
    line = f'm=$(cat); grep -q \'"stop_hook_active":true\' <<E || s=2\n$m\nE\necho "$m" >>{seen}; exit ${{s:-0}}'
    replies = [[{"text": text}] for text in ("One.", "Two.", "Three.", "Four.")]
    own: dict[HookEvent, Any] = {"Stop": {"command": line, "sandbox": False}}
    talk = HookedTalk(tmp_path, *replies, own=own)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."), Prompt("p2", "Again."))
    messages = map(json.loads, seen.read_text().splitlines())
    read = [(each["last_assistant_message"], each["stop_hook_active"]) for each in messages]
    assert read == [("One.", False), ("Two.", True), ("Three.", False), ("Four.", True)]


async def test_a_stop_hook_that_is_never_content_is_ended(tmp_path):
    talk = HookedTalk(tmp_path, *[[{"text": "Done."}]] * 20, own={"Stop": "exit 2"})
    await talk.run()
    assert "A Stop hook has continued this turn 8 times; it ends now." in talk.notices
    assert sum("A hook asks you to continue" in each for each in talk.notes) == 8


async def test_a_hook_ends_the_turn(tmp_path):
    command = 'echo \'{"continue": false, "stopReason": "enough"}\''
    own: dict[HookEvent, Any] = {"PostToolUse": (command, "exit 0")}
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own=own).run()
    assert "A hook ended the turn: enough" in talk.notices
    assert talk.history[-1].role == "user"


@pytest.mark.parametrize(
    "event, command, said",
    [
        ("PreToolUse", "exit 2", "A hook denied this: {hook}"),
        ("PreToolUse", decide("deny", ""), "A hook denied this: {hook}"),
        ("PostToolUse", "echo '{\"continue\": false}'", "A hook ended the turn: {hook}"),
        ("UserPromptSubmit", 'echo \'{"decision": "block"}\'', "A hook refused the prompt: {hook}"),
        ("UserPromptSubmit", "echo '{\"continue\": false}'", "A hook refused the prompt: {hook}"),
        ("Stop", 'echo \'{"decision": "block"}\'', "A hook asks you to continue:\n{hook}"),
    ],
)
async def test_a_hook_that_gives_no_reason_is_named(tmp_path, event, command, said):
    talk = HookedTalk(tmp_path, WRITE, mode="auto", own={event: command})
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Do it."))
    [hook] = own_hooks(talk.services.settings)
    results = [str(block.content) for block in talk.blocks if isinstance(block, ToolResult)]
    errors = [each.message for each in talk.of(ErrorOccurred)]
    expected = said.format(hook=f"{hook.shown} gives no reason")
    assert any(expected in each for each in (*results, *errors, *talk.notices, *talk.notes))


async def test_a_hook_that_ended_a_stopped_turn_does_not_refuse_the_next_prompt(tmp_path):
    command = 'echo \'{"continue": false, "stopReason": "enough"}\''
    talk = HookedTalk(tmp_path, WRITE, [{"text": "One."}], own={"PreToolUse": command})
    async with talk.served():
        talk.conversation.submit(Prompt("p1", "Do it."))
        await talk.until(ApprovalRequested)
        talk.conversation.act(CancelTurn())
        await talk.until(TurnEnded)
        await talk.run_turns(Prompt("p2", "Again."))
    assert talk.of(ErrorOccurred) == []


async def test_a_hook_refuses_a_compaction(tmp_path):
    own: dict[HookEvent, Any] = {"PreCompact": {"command": "exit 2", "matcher": "manual"}}
    talk = HookedTalk(tmp_path, [{"text": "One."}], own=own)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."))
        before = list(talk.history)
        await talk.act(Compact(""), TurnEnded)
    assert talk.history == before
    assert any("A hook refused to compact" in each for each in talk.notices)


async def test_hooks_of_a_compaction_read_its_focus_and_add_to_the_summary(tmp_path):
    seen = tmp_path / "seen.json"
    own: dict[HookEvent, Any] = {
        "PreCompact": {"command": f"cat >{seen}", "matcher": "manual", "sandbox": False},
        "SessionStart": {"command": "echo remembered", "matcher": "compact"},
    }
    talk = HookedTalk(tmp_path, [{"text": "One."}], [{"text": "The summary."}], own=own)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."))
        assert "remembered" not in str(talk.history)
        await talk.act(Compact("the tests"), TurnEnded)
    message = json.loads(seen.read_text())
    assert (message["trigger"], message["custom_instructions"]) == ("manual", "the tests")
    assert str(talk.history).count("remembered") == 1


async def test_a_hook_refuses_an_automatic_compaction(tmp_path):
    own: dict[HookEvent, Any] = {"PreCompact": {"command": "exit 2", "matcher": "auto"}}
    full = {"step": [{"text": "One."}], "usage": {"input_tokens": 170_000}}
    talk = HookedTalk(tmp_path, full, [{"text": "Two."}], own=own)
    talk.provider.limits = ModelLimits(200_000, 8_000)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."), Prompt("p2", "And now?"))
    assert any("A hook refused to compact" in each for each in talk.notices)
    assert len(talk.history) == 4


async def test_a_resumed_session_says_so_to_its_hooks(tmp_path):
    own: dict[HookEvent, Any] = {
        "SessionStart": (
            {"command": "echo anew", "matcher": "startup"},
            {"command": "echo again", "matcher": "resume"},
        )
    }
    first = HookedTalk(tmp_path, [{"text": "One."}], own=own)
    await first.run()
    second = HookedTalk(tmp_path, [{"text": "Two."}], own=own)
    async with second.served():
        await second.run_turns(Prompt("p2", "Go on."))
    hooked = [note for note in second.notes if note.startswith("[From a hook")]
    assert hooked == ["[From a hook:\nanew]", "[From a hook:\nagain]"]


async def test_a_message_for_the_user_is_shown(tmp_path):
    command = 'echo \'{"systemMessage": "Mind the gap."}\''
    talk = await HookedTalk(tmp_path, WRITE, mode="auto", own={"PreToolUse": command}).run()
    assert any(each.endswith("Mind the gap.") for each in talk.notices)


@pytest.mark.parametrize("decision", ["ask", "deny"])
async def test_what_a_hook_says_is_bounded_and_hides_nothing(tmp_path, decision):
    said = f"\x1b[2J\u202e{'x' * 20_000}"
    words = {
        "hookSpecificOutput": {"permissionDecision": decision, "permissionDecisionReason": said},
        "systemMessage": said,
    }
    project = {"PreToolUse": group("cat said.json")}
    talk = HookedTalk(tmp_path, WRITE, mode="auto", project=project)
    write(talk.project, "said.json", json.dumps(words))
    await talk.run(*(["deny"] if decision == "ask" else []))
    shown = [*talk.notices, talk.told(), *(each.reason for each in talk.questions)]
    assert any("<U+001B>[2J<U+202E>xxx" in text for text in shown[-1:])
    assert not any("\x1b" in text or "\u202e" in text for text in shown)
    assert max(map(len, shown)) < 11_000


async def test_the_end_of_a_session_runs_its_hooks(tmp_path):
    marker = tmp_path / "ended"
    table = {"command": f"touch {marker}", "sandbox": False}
    talk = HookedTalk(tmp_path, [{"text": "One."}], own={"SessionEnd": table})
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."))
        talk.conversation.close()
        await happens(marker.exists)


async def test_a_hook_that_hangs_does_not_hold_the_end_of_a_session(tmp_path):
    marker = tmp_path / "started"
    table = {"command": f"touch {marker}; sleep 600", "timeout": 600, "sandbox": False}
    talk = HookedTalk(tmp_path, [{"text": "One."}], own={"SessionEnd": table})
    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(talk.conversation.serve)
            await talk.run_turns(Prompt("p1", "Hi."))
            talk.conversation.close()
    assert marker.exists()


async def test_what_a_formatter_changes_after_an_edit_is_undone_and_redone_with_it(tmp_path):
    command = "sed -i s/2/3/ app.py; echo made >made.txt"
    call = edit("app.py", "return 1", "return 2")
    talk = HookedTalk(tmp_path, call, mode="auto", own={"PostToolUse": command})
    app, made = talk.project / "app.py", talk.project / "made.txt"
    before = app.read_text()
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Do it."))
        assert "return 3" in app.read_text()
        await talk.act(UndoTurn(), FilesRestored)
        assert app.read_text() == before
        assert not made.exists()
        await talk.act(RedoTurn(), FilesRestored)
    assert "return 3" in app.read_text()
    assert made.exists()


async def test_the_model_may_edit_a_file_that_a_formatter_has_changed(tmp_path):
    command = "sed -i 's/2$/3/' app.py"
    calls = [edit("app.py", "return 1", "return 2"), edit("app.py", "return 3", "return 4")]
    talk = HookedTalk(tmp_path, *calls, mode="auto", own={"PostToolUse": command})
    await talk.run()
    assert "return 4" in (talk.project / "app.py").read_text()


# --- declarations ----------------------------------------------------------------------------------------------------------


def settings_with(text: str) -> Any:
    import tomllib

    layer = Layer("config.toml", tomllib.loads(text), text)
    return Layers(state_dir="/s", file=layer).settings()


def test_the_users_hooks_are_read_with_their_places():
    settings = settings_with(
        '[[hooks.PreToolUse]]\nmatcher = "Bash"\ncommand = "a"\n\n[[hooks.PreToolUse]]\ncommand = "b"\n'
        "timeout = 2.5\nsandbox = false\n"
    )
    first, second = own_hooks(settings)
    assert (first.matcher, first.command, first.is_confined) == ("Bash", "a", True)
    assert (second.timeout_s, second.is_confined) == (2.5, False)
    assert first.origin == "config.toml:1"
    assert second.origin == "config.toml:5"


@pytest.mark.parametrize(
    "text, words",
    [
        ('[[hooks.PreTool]]\ncommand = "a"', "did you mean 'PreToolUse'?"),
        ('[[hooks.Stop]]\ncomand = "a"', "comand"),
        ('[[hooks.Stop]]\ncommand = ""', "command"),
        ('[[hooks.Stop]]\ncommand = "a"\ntimeout = 0', "timeout"),
        ('[[hooks.Stop]]\ncommand = "a"\nmatcher = "("', "no regular expression"),
    ],
)
def test_a_mistake_in_the_settings_is_named(text, words):
    mistakes = mistakes_in(settings_with(text), "/p")
    assert any(words in str(each) for each in mistakes)


@pytest.mark.parametrize(
    "data, problem",
    [
        ('{"hooks": ', "not valid JSON"),
        ('{"hooks": {"Notification": []}}', "hooks for 'Notification' are not supported."),
        ('{"hooks": {"PostToolUseFailure": []}}', "'PostToolUseFailure' are not supported."),
        ('{"hooks": {"PreTolUse": []}}', "are not supported: did you mean 'PreToolUse'?"),
        (
            '{"hooks": {"Stop": {"command": "x"}}}',
            "the hooks for Stop are not used: they must be a list",
        ),
        ('{"hooks": {"Stop": [{"command": "x"}]}}', "it has no list `hooks`"),
        ('{"hooks": {"Stop": [{"hooks": [{"comand": "x"}]}]}}', "it has no `command`"),
        ('{"hooks": {"Stop": [{"hooks": [{"type": "prompt", "prompt": "x"}]}]}}', "only commands"),
        (
            '{"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}}',
            "no regular expression",
        ),
        ('{"hooks": {"Stop": [1]}}', "is not a table"),
        ('{"hooks": {"Stop": {"hooks": []}}}', "they must be a list"),
        ('{"hooks": {"Stop": [{"hooks": {"command": "x"}}]}}', "it has no list `hooks`"),
        ('{"hooks": []}', "not an object of lists by event"),
        ('[{"hooks": {}}]', "not an object of lists by event"),
        (with_key("args", ["x"]), "'args' is not supported"),
        (with_key("shell", "powershell"), "its shell 'powershell' is not supported"),
        (with_key("if", "Bash"), "'if' is only for events about tool calls"),
        (with_key("if", 1), "its 'if' is not a text"),
    ],
)
def test_what_is_not_used_of_a_projects_file_is_said(trust, project, data, problem):
    write(project, ".claude/settings.json", data)
    trust_all(trust)
    hooks, problems = project_hooks(trust)
    assert hooks == []
    assert problem in problems[0]


async def test_what_is_not_used_of_a_projects_file_is_shown_once(tmp_path):
    project = {"Notification": group("x"), "Stop": group("exit 0")}
    talk = HookedTalk(tmp_path, [{"text": "One."}], project=project)
    async with talk.served():
        await talk.run_turns(Prompt("p1", "Hi."), Prompt("p2", "Again."))
    assert talk.notices == [".claude/settings.json: hooks for 'Notification' are not supported."]


def test_a_key_that_has_no_effect_is_said(trust, project):
    keys = {"statusMessage": "x", "asynch": True, "rewakeMessage": "x"}
    write(project, ".claude/settings.json", json.dumps({"hooks": {"Stop": group("x", **keys)}}))
    trust_all(trust)
    [_], problems = project_hooks(trust)
    assert problems == [
        ".claude/settings.json: the key 'asynch' of a hook for Stop has no effect here; did you mean 'async'?",
        ".claude/settings.json: the key 'rewakeMessage' of a hook for Stop has no effect here.",
    ]


def test_only_a_file_that_declares_hooks_asks_for_trust(tmp_path, project):
    of_project = Project(Settings(str(tmp_path / "state")), str(project))
    write(project, ".claude/settings.json", '{"permissions": {}}')
    assert of_project.news_of_untrusted() == ()
    assert of_project.trust.shown().files == ()
    write(project, ".claude/settings.json", json.dumps({"hooks": {"Stop": group("x")}}))
    assert of_project.news_of_untrusted() == (".claude/settings.json",)
    assert [each.path for each in of_project.trust.shown().files] == [".claude/settings.json"]


@pytest.mark.parametrize(
    "timeout, limit_s",
    [(3, 3), (2.5, 2.5), (10_000, 600), (0, 10), (-1, 10), ("soon", 10), (None, 10)],
)
def test_a_timeout_of_a_projects_hook_is_bounded(trust, project, timeout, limit_s):
    hooks = {"Stop": group("x", timeout=timeout)}
    write(project, ".claude/settings.json", json.dumps({"hooks": hooks}))
    trust_all(trust)
    [hook], _ = project_hooks(trust)
    assert hook.timeout_s == limit_s


@pytest.mark.parametrize("path", [".claude/settings.json", ".codex/hooks.json"])
def test_both_files_of_a_project_are_read(trust, project, path):
    write(project, path, json.dumps({"permissions": {}, "hooks": {"Stop": group("x", timeout=3)}}))
    trust_all(trust)
    [hook], problems = project_hooks(trust)
    assert (hook.command, hook.timeout_s, hook.is_projects, problems) == ("x", 3, True, [])
