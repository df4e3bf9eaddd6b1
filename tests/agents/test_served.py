"""What an agent has its client do: files and commands, judged, merged and journaled as what our own tools do is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from sanderling.agents.calls import Diff, ToolCall
from sanderling.agents.files import NotThereError, ServedFiles
from sanderling.agents.permits import Permits
from sanderling.agents.terminals import Tail, Terminals, command_line
from sanderling.config import Layer
from sanderling.config.layers import Layers
from sanderling.conversation.opening import SessionOptions, open_conversation
from sanderling.errors import ToolError
from sanderling.permissions.gate import DeniedError
from sanderling.protocol.actions import AnswerApproval
from sanderling.protocol.events import ApprovalRequested
from tests.conftest import DEADLINE_S, happens, prove, prove_rest
from tests.unit.test_file_tools import MemoryEditor


class Served:
    """A session with what it serves to an agent."""

    def __init__(self, agent: Any, events: list[Any], project: Path, **more: Any) -> None:
        self.agent = agent
        self.services = agent.services
        self.project = project
        self.events = events
        self.shown: list[str] = []
        self.permits = Permits("it", self.services.workspace, self.services.gate)
        self.files = ServedFiles(self.services.workspace, self.permits, **more)
        self.terminals = Terminals(
            self.services.workspace,
            self.permits,
            self.services.tasks.start,
            lambda _terminal, text: self.shown.append(text),
        )

    @property
    def questions(self) -> list[ApprovalRequested]:
        return [event for event in self.events if isinstance(event, ApprovalRequested)]

    async def answered(self, answer: Any, number: int = 1, **more: Any) -> ApprovalRequested:
        """The question, as soon as it is asked, which is answered so."""
        await happens(lambda: len(self.questions) >= number)
        question = self.questions[number - 1]
        self.agent.act(AnswerApproval(question.id, answer, **more))
        return question

    def text(self, name: str) -> str:
        return (self.project / name).read_text()


@asynccontextmanager
async def serving(
    base: Path, *, mode: Any = "auto", editor: Any = None, is_off: bool = False, **options: Any
) -> AsyncIterator[Served]:
    project = base / "project"
    project.mkdir(exist_ok=True)
    script = base / "script.json"
    script.write_text('{"version": 1, "reply": [{"step": [{"text": "x"}], "repeat": true}]}')
    more = {key: options.pop(key) for key in ("additional",) if key in options}
    settings = {"provider": "scripted", "script": str(script), **options}
    layers = Layers(state_dir=str(base / "state"), setup=Layer("setup()", settings))
    events: list[Any] = []
    with anyio.fail_after(DEADLINE_S):
        session_options = SessionOptions(is_shown=True, mode=mode, editor=editor)
        opened = await open_conversation("s1", str(project), layers, events.append, session_options)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(opened.agent.serve)
            served = Served(opened.agent, events, project, **more)
            if is_off:
                served.services.sandbox.switch(is_on=False)
            yield served
            opened.agent.close()


RULES = {"permissions": ({"action": "deny", "tool": "read", "path": ".env"},)}


# --- reading -----------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_as_a_whole_or_by_its_lines(tmp_path):
    async with serving(tmp_path) as it:
        path = it.project / "a"
        path.write_bytes(b"one\r\ntwo\r\n\xc3\xa4\x0cx\r\n")
        read = it.files.read
        assert await read(str(path)) == "one\ntwo\nä\x0cx\n"
        assert await read(str(path), line=2) == "two\nä\x0cx\n"
        assert await read(str(path), line=2, limit=1) == "two\n"
        assert await read(str(path), limit=0) == ""
        assert await read(str(path), line=0, limit=1) == "one\n"
        assert await read(str(path), line=9) == ""
        (it.project / "empty").write_text("")
        assert await read(f"{it.project}/empty") == ""


async def test_what_the_person_has_not_saved_is_read(tmp_path):
    editor = MemoryEditor()
    async with serving(tmp_path, editor=editor) as it:
        path = it.project / "a"
        path.write_text("disk\n")
        editor.open(path)
        editor.type(path, "unsaved\n")
        assert await it.files.read(str(path)) == "unsaved\n"
        new = it.project / "new"
        editor.open(new)
        editor.type(new, "never saved\n")
        assert await it.files.read(str(new)) == "never saved\n"


async def test_what_cannot_be_read_says_why(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s")
    async with serving(tmp_path, **RULES) as it:
        (it.project / "link").symlink_to(secret)
        (it.project / ".env").write_text("K=1")
        (it.project / "binary").write_bytes(b"\0\1\2\xff")
        for path, kind, words in (
            ("a", ToolError, "not an absolute path"),
            (f"{it.project}/none", NotThereError, "does not exist"),
            (f"{it.project}/link", NotThereError, "does not exist"),
            (str(secret), NotThereError, "does not exist"),
            (f"{it.project}", ToolError, "is a directory"),
            (f"{it.project}/binary", ToolError, "binary file"),
            (f"{it.project}/.env", ToolError, "A rule forbids this"),
            ("/dev/zero", ToolError, "not a regular file"),
            ("/a\0b", ToolError, "NUL"),
        ):
            with pytest.raises(kind, match=words):
                await it.files.read(path)
        assert it.questions == []


# --- writing -----------------------------------------------------------------------------------------------------------


async def test_a_file_that_the_agent_read_by_itself_is_written_and_journaled(tmp_path):
    async with serving(tmp_path) as it:
        path = it.project / "a"
        path.write_bytes(b"old\r\n")
        it.services.workspace.journal.begin_turn("p1")
        await it.files.write(str(path), "new\n", "u1")
        await it.files.write(f"{it.project}/sub/b", "made\n")
        assert path.read_bytes() == b"new\r\n"
        assert it.text("sub/b") == "made\n"
        journal = await it.services.workspace.journal.turns()
        changes = [change for turn in journal for change in turn.changes]
        assert {Path(each.path).name for each in changes} >= {"a", "b"}
        assert "u1" in {each.tool_use_id for each in changes}


async def test_in_ask_mode_the_person_is_asked_and_what_they_deny_is_not_written(tmp_path):
    async with serving(tmp_path, mode="ask") as it, anyio.create_task_group() as tasks:
        path = it.project / "a"
        path.write_text("old\n")

        async def answer() -> None:
            question = await it.answered("deny", reason="not now")
            assert "-old" in question.subject
            assert "+new" in question.subject
            await it.answered("once", 2)

        tasks.start_soon(answer)
        with pytest.raises(DeniedError, match="not now"):
            await it.files.write(str(path), "new\n")
        assert it.text("a") == "old\n"
        await it.files.write(str(path), "new\n")
        assert it.text("a") == "new\n"


@prove
async def test_in_plan_mode_nothing_is_written(tmp_path):
    async with serving(tmp_path, mode="plan") as it:
        with pytest.raises(ToolError, match="plan mode"):
            await it.files.write(f"{it.project}/a", "x")
        assert list(it.project.iterdir()) == []


async def test_unsaved_text_is_merged_and_never_overwritten(tmp_path):
    editor = MemoryEditor()
    async with serving(tmp_path, editor=editor) as it, anyio.create_task_group() as tasks:
        path = it.project / "a"
        path.write_text("1\n2\n3\n4\n5\n")
        editor.open(path)
        editor.type(path, "one\n2\n3\n4\n5\n")
        await it.files.write(str(path), "1\n2\n3\n4\nfive\n")  # it has read the disk by itself
        assert editor.text(path) == "one\n2\n3\n4\nfive\n"
        assert path.read_text() == "1\n2\n3\n4\n5\n"
        tasks.start_soon(it.answered, "deny")
        assert await it.files.read(str(path)) == "one\n2\n3\n4\nfive\n"
        editor.type(path, "mine\n2\n3\n4\nfive\n")
        with pytest.raises(DeniedError, match="keeps their own unsaved text"):
            await it.files.write(str(path), "theirs\n2\n3\n4\nfive\n")
        assert editor.text(path) == "mine\n2\n3\n4\nfive\n"


async def test_what_has_changed_since_the_agent_read_it_is_kept(tmp_path):
    async with serving(tmp_path) as it:
        path = it.project / "a"
        path.write_text("1\n2\n3\n4\n5\n")
        await it.files.read(str(path))
        path.write_text("one\n2\n3\n4\n5\n")
        await it.files.write(str(path), "1\n2\n3\n4\nfive\n")
        assert it.text("a") == "one\n2\n3\n4\nfive\n"
        path.write_text("one\n2\n3\n4\n5!\n")
        with pytest.raises(ToolError, match="since you read it"):
            await it.files.write(str(path), "one\n2\n3\n4\n5?\n")
        assert it.text("a") == "one\n2\n3\n4\n5!\n"


OUTSIDE = {
    "a path outside": "{base}/outside/x",
    "a way up": "{project}/../outside/x",
    "a link to a directory outside": "{project}/link/x",
    "a link to a file outside": "{project}/file",
    "HOME": "~/x",
    "a hook of git": "{project}/.git/hooks/pre-commit",
    "git's settings": "{project}/.git/config",
    "the sandbox's own": "/tmp/x",
    "a device": "/dev/null",
}


@pytest.mark.parametrize("mode", prove_rest(["auto", "ask"]))
@pytest.mark.parametrize("where", prove_rest(OUTSIDE))
async def test_nothing_outside_of_the_project_is_written(tmp_path, where, mode):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "real").write_text("real")
    async with serving(tmp_path, mode=mode) as it, anyio.create_task_group() as tasks:
        (it.project / "link").symlink_to(outside)
        (it.project / "file").symlink_to(outside / "real")
        (it.project / ".git/hooks").mkdir(parents=True)
        (it.project / ".git/config").write_text("[core]\n")
        (it.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (it.project / ".git/objects").mkdir()
        (it.project / ".git/refs").mkdir()
        tasks.start_soon(it.answered, "once")  # whatever the person says
        path = OUTSIDE[where].format(base=tmp_path, project=it.project)
        with pytest.raises((ToolError, DeniedError)):
            await it.files.write(path, "bad\n")
        assert [each.name for each in outside.iterdir()] == ["real"]
        assert (outside / "real").read_text() == "real"
        assert list((it.project / ".git/hooks").iterdir()) == []
        assert (it.project / ".git/config").read_text() == "[core]\n"
        tasks.cancel_scope.cancel()


@prove
async def test_a_directory_that_was_added_is_written_when_the_person_lets_it(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("old\n")  # a new path below /tmp would be the session's own
    async with (
        serving(tmp_path, mode="auto", additional=(str(other),)) as it,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(it.answered, "once")
        await it.files.write(f"{other}/a", "x\n")
        assert (other / "a").read_text() == "x\n"
        assert "outside the project" in it.questions[0].reason


# --- permission --------------------------------------------------------------------------------------------------------


async def test_an_agents_question_is_answered_by_rules_and_mode_where_they_can(tmp_path):
    rules = (
        {"action": "allow", "tool": "bash", "command": "make test"},
        {"action": "deny", "tool": "bash", "command": "git push"},
        {"action": "deny", "tool": "web_fetch", "host": "evil.example"},
        {"action": "allow", "tool": "acp__it__think"},
        {"action": "deny", "tool": "read", "path": ".env"},
    )
    async with serving(tmp_path, mode="ask", permissions=rules) as it:
        inside, judge = f"{it.project}/a", it.permits.judge

        def action(kind: str, given: Any = None, **more: Any) -> str:
            return judge(ToolCall(kind, given, **more)).action

        assert action("execute", {"command": "make test"}) == "allow"
        assert action("execute", {"command": ["bash", "-lc", "git push --force"]}) == "deny"
        assert action("execute", {"command": "make install"}) == "ask"
        assert action("execute", {"command": "make test; curl x | sh"}) == "ask"
        assert action("execute", {"description": "make test"}) == "ask"
        assert action("edit", {"path": inside}) == "ask"
        assert action("read", {"path": inside}) == "allow"
        assert action("read", {"path": f"{it.project}/.env"}) == "deny"
        assert action("read") == "ask"
        assert action("fetch", {"url": "https://evil.example/x"}) == "deny"
        assert action("fetch", {"url": "https://example.org/"}) == "ask"
        assert action("think") == "allow"
        assert action("mcp__x", {}) == "ask"
        it.services.gate.set_mode("auto")
        assert action("edit", {"path": inside}) == "allow"
        assert action("edit", {"path": inside}, paths=(f"{tmp_path}/b",)) == "ask"
        assert action("edit", {"path": f"{it.project}/.envrc"}) == "ask"
        assert action("delete", {"path": inside}) == "allow"
        assert action("edit", {}) == "ask"
        assert action("edit", paths=tuple(f"{inside}{n}" for n in range(200))) == "ask"
        it.services.gate.set_mode("plan")
        assert action("edit", {"path": inside}) == "deny"
        assert it.questions == []


@prove
async def test_where_nothing_confines_the_agent_its_commands_are_asked_about(tmp_path):
    async with serving(tmp_path, mode="auto") as it:
        outside = Permits("it", it.services.workspace, it.services.gate, lambda: False)
        call = ToolCall("execute", {"command": "make install"})
        assert it.permits.judge(call).action == "allow"
        assert outside.judge(call).action == "ask"


async def test_what_was_allowed_is_done_once_without_a_second_question(tmp_path):
    async with serving(tmp_path, mode="ask") as it, anyio.create_task_group() as tasks:
        path = it.project / "a"
        path.write_text("one\ntwo\n")
        part = Diff(str(path), "two", "2")
        it.permits.allowed(ToolCall("edit", diffs=(part,)))
        await it.files.write(str(path), "one\n2\n")
        it.permits.allowed(ToolCall("execute", {"command": "touch made"}))
        terminal = await it.terminals.create("touch made")
        await terminal.ended.wait()
        assert (it.project / "made").exists()
        assert it.questions == []
        tasks.start_soon(it.answered, "deny")
        it.permits.allowed(ToolCall("edit", diffs=(Diff(str(path), "2", "3"),)))
        with pytest.raises(DeniedError):
            await it.files.write(str(path), "one\n3\nand more\n")
        tasks.start_soon(it.answered, "deny", 2)
        with pytest.raises(DeniedError):
            await it.terminals.create("touch made")
        assert len(it.questions) == 2
        it.services.gate.set_mode("plan")
        with pytest.raises(ToolError, match="plan mode"):
            await it.files.write(str(path), "one\n3\n")


async def test_a_command_is_not_allowed_with_a_variable_that_was_not_shown(tmp_path):
    async with serving(tmp_path, mode="ask") as it, anyio.create_task_group() as tasks:
        (it.project / "src").mkdir()
        line = "rm -rf ${out}"
        it.permits.allowed(ToolCall("execute", {"command": line}))
        tasks.start_soon(it.answered, "deny")
        with pytest.raises(DeniedError):
            await it.terminals.create(line, env={"out": "src"})
        assert "out='src'" in it.questions[0].reason
        terminal = await it.terminals.create(line, env={"ou": "src"})
        await terminal.ended.wait()
        assert len(it.questions) == 1
        assert (it.project / "src").exists()


@prove
async def test_an_agent_does_not_bury_the_person_in_questions(tmp_path):
    async with serving(tmp_path, mode="ask") as it, anyio.create_task_group() as tasks:
        refused: list[str] = []

        async def write(number: int) -> None:
            try:
                await it.files.write(f"{it.project}/{number}", "x")
            except ToolError as error:
                refused.append(str(error))

        for number in range(100):
            tasks.start_soon(write, number)
        await happens(lambda: len(refused) == 68)
        assert "too many of your requests" in refused[0]
        await happens(lambda: len(it.questions) == 32)
        tasks.cancel_scope.cancel()


# --- terminals ---------------------------------------------------------------------------------------------------------


async def test_a_terminal_runs_in_the_sandbox_and_is_seen_live(tmp_path, monkeypatch):
    monkeypatch.setenv("OTHER_API_KEY", "k0")
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    async with serving(tmp_path) as it:
        (it.project / "sub").mkdir()
        line = f"pwd; echo $A,$OTHER_API_KEY; cat {secret}; sleep 0.3; exit 3"
        terminal = await it.terminals.create(line, cwd=f"{it.project}/sub", env={"A": "a b"})
        await happens(lambda: "a b" in "".join(it.shown))
        assert it.terminals.output(terminal.id).exit is None
        assert (await it.terminals.wait(terminal.id)).code == 3
        output = it.terminals.output(terminal.id)
        assert output.text.startswith(f"{it.project}/sub\na b,\n")
        assert "s3cret" not in output.text
        assert (output.exit.code, output.exit.signal, output.is_truncated) == (3, None, False)
        it.terminals.release(terminal.id)
        with pytest.raises(ToolError, match="no terminal"):
            it.terminals.output(terminal.id)


@prove
async def test_the_end_of_an_output_is_kept_in_whole_characters(tmp_path):
    async with serving(tmp_path) as it:
        terminal = await it.terminals.create(
            "python3", ["-c", "print('ä' * 1000000, end='')"], output_bytes=101
        )
        await terminal.ended.wait()
        output = it.terminals.output(terminal.id)
        assert (output.text, output.is_truncated) == ("ä" * 50, True)
        assert len(terminal.tail._data) <= 101


def test_tail_keeps_the_last_bytes_of_all_that_is_added():
    tail = Tail(4)
    for chunk in (b"a", b"bc", b"\xe2\x82", b"\xac", b"", b"xyz" * 9, b"\xf0\x9f\x98\x80"):
        tail.add(chunk)
    assert (tail.text(), tail.is_cut) == ("😀", True)
    tail.add(b"!")
    assert tail.text() == "!"
    empty = Tail(0)
    empty.add(b"x")
    assert (empty.text(), empty.is_cut) == ("", True)


@prove
async def test_a_terminal_that_is_killed_keeps_its_output_and_leaves_nothing(tmp_path):
    async with serving(tmp_path) as it:
        terminal = await it.terminals.create("echo begun; (trap '' TERM; sleep 1000) & wait")
        await happens(lambda: "begun" in it.terminals.output(terminal.id).text)
        it.terminals.kill(terminal.id)
        assert (await it.terminals.wait(terminal.id)).signal == "SIGKILL"
        assert it.terminals.output(terminal.id).text == "begun\n"
        other = await it.terminals.create("sleep 1000")
        it.terminals.close()
        await other.ended.wait()


async def test_terminals_are_judged_as_commands_are(tmp_path):
    rules = ({"action": "deny", "tool": "bash", "command": "git push"},)
    async with (
        serving(tmp_path, mode="ask", permissions=rules) as it,
        anyio.create_task_group() as tasks,
    ):
        create = it.terminals.create
        with pytest.raises(ToolError, match="A rule forbids this"):
            await create("git", ["push", "origin"])
        ls = await create("ls")  # which only looks
        await ls.ended.wait()
        tasks.start_soon(it.answered, "deny")
        with pytest.raises(DeniedError):
            await create("make", ["it", "a b"])
        assert it.questions[0].subject == "make it 'a b'"
        for options in (
            {"env": {"A B": "x"}},
            {"env": {"A;touch x": "x"}},
            {"env": {"A": "\0"}},
            {"args": ["\0"]},
        ):
            with pytest.raises(ToolError):
                await create("ls", **options)


async def test_a_terminal_runs_where_it_was_judged_or_not_at_all(tmp_path):
    """Bash takes a `..` behind a link by the text, and where a directory is gone nothing else takes its place."""
    rules = ({"action": "deny", "tool": "read", "path": "private/key"},)
    async with serving(tmp_path, permissions=rules) as it:
        project = Path(it.services.workspace.project)
        (project / "a/b/private").mkdir(parents=True)
        (project / "private").mkdir()
        (project / "link").symlink_to("a/b")
        for name in ("private/key", "a/b/private/key"):
            (project / name).write_text("the key")
        with pytest.raises(ToolError, match="A rule forbids this"):
            await it.terminals.create("cat private/key", cwd=f"{project}/link/..")
        terminal = await it.terminals.create("cd private && cat key", cwd="/nowhere")
        await terminal.ended.wait()
        output = it.terminals.output(terminal.id)
        assert "the key" not in output.text
        assert "/nowhere" in output.text
        for cwd in ("private", "/private\0"):
            with pytest.raises(ToolError, match="an absolute directory"):
                await it.terminals.create("true", cwd=cwd)
        with pytest.raises(ToolError, match="is not a valid environment variable"):
            await it.terminals.create("true", env={"_sanderling_command": "cat private/key"})


@prove
async def test_an_agent_does_not_run_more_terminals_than_there_is_room_for(tmp_path):
    async with serving(tmp_path) as it:
        made = [await it.terminals.create("sleep 1000") for _ in range(32)]
        with pytest.raises(ToolError, match="32 terminals are running"):
            await it.terminals.create("true")
        it.terminals.release(made[0].id)
        await made[0].ended.wait()
        await it.terminals.create("true")
        it.terminals.close()


def test_a_command_without_arguments_may_be_a_line():
    assert command_line("npm", ["run", "a b"]) == "npm run 'a b'"
    assert command_line("npm test | tee x", []) == "npm test | tee x"
    assert command_line("/bin/ls", []) == "/bin/ls"
    assert command_line("a b", ["c"]) == "'a b' c"
