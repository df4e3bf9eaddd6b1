"""Command files in a session: lines that run in the sandbox, files that are attached, and the model and effort of the turn."""

from pathlib import Path
from typing import Any

import pytest
from tests.conftest import happens
from tests.unit.test_tool_uses import Talk, bash
from tests.unit.test_trust import trust_all, write

from sanderling.conversation import command_files
from sanderling.conversation.command_files import MAX_MENTIONED_BYTES, MAX_MENTIONS
from sanderling.permissions.rules import rule_from_text
from sanderling.protocol.actions import CancelTurn, SetModel, SteerTurn
from sanderling.protocol.events import (
    ErrorOccurred,
    ModelChanged,
    Notice,
    PromptsReturned,
    ToolStarted,
    TurnEnded,
)
from sanderling.protocol.messages import Message, Prompt, TextBlock
from sanderling.providers.models.known import KnownModels
from sanderling.tools.effects import Effect


def texts(message: Message) -> str:
    return "\n".join(block.text for block in message.content if isinstance(block, TextBlock))


class CommandTalk(Talk):
    """A session whose project has the trusted command /look with this text."""

    def __init__(
        self, base: Path, text: str, *replies: Any, is_trusted: bool = True, **options: Any
    ) -> None:
        super().__init__(base, *replies, **options)
        write(self.project, ".claude/commands/look.md", text)
        if is_trusted:
            trust_all(self.services.project.trust)

    async def sent(self, typed: str = "/look") -> str:
        """What the model got for the prompt."""
        async with self.asked(typed):
            pass
        return texts(self.session.history[0]) if self.session.history else ""


@pytest.mark.parametrize(
    "text, typed, sent",
    [
        ("Status: !`echo clean`\nGo.", "/look", "Status: clean\nGo."),
        ("!`printf 'a\\nb\\n'`", "/look", "a\nb"),
        ("!`echo $1-$2`", "/look x 'y z'", "x-y z"),
        ("!`echo $ARGUMENTS`", "/look x y", "x y"),
        ("!`printf '<%s>' \"$ARGUMENTS\"` $1", "/look 'x  y' z", "<'x  y' z> x  y"),
        ("!`echo a | awk '{print $1}'`", "/look and more", "a\n\nand more"),
        ("```!\necho one\necho two\n```", "/look", "one\ntwo"),
        ("a!`echo b` `!`echo c``", "/look", "a!`echo b` `!`echo c``"),
        ("!`pwd | grep -o project`", "/look", "project"),
    ],
)
async def test_output_of_a_line_takes_its_place(tmp_path, text, typed, sent):
    talk = CommandTalk(tmp_path, text)
    assert (await talk.sent(typed)).endswith(sent)


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    '"; touch pwned; "',
    "'; touch pwned; '",
    "!`touch pwned`",
    "a\n!`touch pwned`",
    "a\n```!\ntouch pwned\n```",
]


@pytest.mark.parametrize("typed", HOSTILE)
@pytest.mark.parametrize(
    "text",
    ["Do $ARGUMENTS", "Do.", "!`echo $ARGUMENTS` x", '!`echo "$ARGUMENTS"`', "!`: $ARGUMENTS`"],
)
async def test_what_the_user_types_never_runs(tmp_path, text, typed):
    talk = CommandTalk(tmp_path, text)
    await talk.sent(f"/look {typed}")
    assert not (talk.project / "pwned").exists()
    assert talk.session.history


@pytest.mark.parametrize("word", ["$(touch pwned)", ";touch pwned", "`touch pwned`", "*"])
@pytest.mark.parametrize("quote", ["$1", '"$1"'])
async def test_a_single_word_never_runs(tmp_path, word, quote):
    talk = CommandTalk(tmp_path, f"!`printf %s {quote}`")
    await talk.sent(f"/look '{word}'")
    assert not (talk.project / "pwned").exists()


async def test_a_typed_line_is_no_command(tmp_path):
    talk = CommandTalk(tmp_path, "x")
    assert (await talk.sent("Say !`touch pwned`")).endswith("Say !`touch pwned`")
    assert not (talk.project / "pwned").exists()


async def test_a_file_that_is_not_trusted_runs_nothing(tmp_path):
    talk = CommandTalk(tmp_path, "!`touch pwned`", is_trusted=False)
    assert await talk.sent() == ""
    assert "There is no command '/look'" in talk.of(ErrorOccurred)[0].message
    assert not (talk.project / "pwned").exists()


async def test_a_line_is_confined_even_while_the_sandbox_is_off(tmp_path):
    secret = tmp_path / "home/secret"
    talk = CommandTalk(tmp_path, f"!`cat {secret} || echo refused`")
    secret.write_text("top secret")
    talk.services.sandbox.switch(is_on=False)
    sent = await talk.sent()
    assert "top secret" not in sent
    assert "refused" in sent


async def test_a_failure_is_in_the_text(tmp_path):
    talk = CommandTalk(tmp_path, "A !`echo bad; exit 3` B")
    sent = await talk.sent()
    assert "A bad\n[The command `echo bad; exit 3` of this prompt failed with exit status 3" in sent
    assert sent.endswith("] B")


async def test_a_flood_is_bounded(tmp_path):
    talk = CommandTalk(tmp_path, "!`yes | head -c 3000000; echo end`")
    sent = await talk.sent()
    assert len(sent) < 20_000
    assert "end" in sent


async def test_a_line_that_does_not_end_is_stopped_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(command_files, "TIMEOUT_S", 3.0)  # opening the sandbox counts
    talk = CommandTalk(tmp_path, "A !`echo a; sleep 600` B")
    assert "a\n[The command `echo a; sleep 600` of this prompt was stopped after 3.0 s] B" in (
        await talk.sent()
    )


async def test_ctrl_c_stops_a_line_and_returns_the_prompt(tmp_path):
    talk = CommandTalk(tmp_path, "!`touch begun; sleep 600`")
    async with talk.asked("/look"):
        await happens((talk.project / "begun").exists)
        talk.conversation.act(CancelTurn())
    assert talk.of(TurnEnded)[0].stop_reason == "cancelled"
    assert [each.text for each in talk.of(PromptsReturned)[0].prompts] == ["/look"]
    assert not talk.session.history


async def test_nothing_is_written_in_plan_mode(tmp_path):
    talk = CommandTalk(tmp_path, "!`touch made`", mode="plan")
    assert "Read-only file system" in await talk.sent()


# --- mentions ------------------------------------------------------------------------------------------------------------


async def test_a_mentioned_file_is_attached(tmp_path):
    talk = CommandTalk(tmp_path, "Look at @app.py, and @app.py:2.")
    sent = await talk.sent()
    assert "app.py:1-2, as saved on disk:\n```\n1\tdef f():\n2\t    return 1\n```" in sent
    assert sent.endswith("Look at @app.py, and @app.py:2.")


async def test_a_directory_is_listed(tmp_path):
    talk = CommandTalk(tmp_path, "What is in @src/?")
    write(talk.project, "src/deep/a.py", "")
    write(talk.project, "src/b.py", "")
    assert "b.py\ndeep/" in await talk.sent()


async def test_mentions_are_bounded_in_number_and_in_size(tmp_path):
    names = [f"f{number}.txt" for number in range(MAX_MENTIONS + 2)]
    talk = CommandTalk(tmp_path, " ".join(f"@{name}" for name in names))
    for name in names:
        write(talk.project, name, f"text of {name}\n")
    lines = MAX_MENTIONED_BYTES // 8
    write(talk.project, names[0], "1234567\n" * (lines + 10))
    sent = await talk.sent()
    assert f", up to line {lines} of {lines + 10}" in sent
    attached = [f"text of {name}" in sent for name in names[1:]]
    assert attached == [True] * (MAX_MENTIONS - 1) + [False] * 2


async def test_lines_of_a_file_are_attached_alone_and_binary_files_not_at_all(tmp_path):
    talk = CommandTalk(tmp_path, "See @lines.txt:2-3 and @binary.dat.")
    write(talk.project, "lines.txt", "one\ntwo\nthree\nfour\n")
    (talk.project / "binary.dat").write_bytes(b"\0planted")
    sent = await talk.sent()
    assert "lines.txt:2-3, as saved on disk:\n```\n2\ttwo\n3\tthree\n```" in sent
    assert "planted" not in sent


async def test_a_mention_takes_an_argument(tmp_path):
    talk = CommandTalk(tmp_path, "Review @$1.")
    assert "2\t    return 1" in await talk.sent("/look app.py")


@pytest.mark.parametrize(
    "name",
    ["@{base}/secret", "@../secret", "@link", "@~/secret", "@nobody", "a@app.py", "`@app.py`"],
)
async def test_what_is_no_file_of_the_project_stays_text(tmp_path, name):
    name = name.format(base=tmp_path / "home")
    talk = CommandTalk(tmp_path, f"See {name}.")
    write(tmp_path / "home", "secret", "top secret")
    (talk.project / "link").symlink_to(tmp_path / "home/secret")
    sent = await talk.sent()
    assert "top secret" not in sent
    assert "return 1" not in sent
    assert sent.endswith(f"See {name}.")


async def test_a_rule_hides_a_mentioned_file(tmp_path):
    rules = (rule_from_text("deny read app.py"),)
    talk = CommandTalk(tmp_path, "See @app.py", rules=rules)
    assert await talk.sent() == ""
    assert "A rule keeps app.py from the model" in talk.of(ErrorOccurred)[0].message


# --- during a turn -------------------------------------------------------------------------------------------------------


async def test_a_command_that_is_sent_during_a_turn_runs_its_lines(tmp_path):
    wait = bash("until [ -e go ]; do sleep 0.05; done")
    talk = CommandTalk(tmp_path, "Note !`echo this` .", wait, mode="auto")
    async with talk.asked("Begin."):
        await talk.until(ToolStarted)
        talk.conversation.act(SteerTurn(Prompt("p2", "/look")))
        await happens(lambda: talk.services.waiting)
        (talk.project / "go").touch()
    assert texts(talk.session.history[2]).endswith("Note this .")


# --- the model of the turn -----------------------------------------------------------------------------------------------


async def test_model_and_effort_are_for_the_turn(tmp_path):
    talk = CommandTalk(tmp_path, "---\nmodel: other\neffort: high\n---\nDo.")
    before = talk.services.provider.model
    await talk.sent()
    assert [each.model for each in talk.of(ModelChanged)] == ["other", before]
    assert talk.services.provider.model == talk.session.state("model") == before


async def test_a_model_that_the_user_chooses_meanwhile_stays(tmp_path):
    talk = CommandTalk(tmp_path, "---\nmodel: other\n---\nDo.")
    talk.on_event = lambda event: (
        talk.conversation.act(SetModel("third")) if event == ModelChanged("other") else None
    )
    await talk.sent()
    assert talk.services.provider.model == "third"


@pytest.mark.parametrize("model", ["inherit", "''"])
async def test_some_names_mean_the_sessions_model(tmp_path, model):
    talk = CommandTalk(tmp_path, f"---\nmodel: {model}\n---\nDo.")
    await talk.sent()
    assert talk.of(ModelChanged, Notice) == []


@pytest.mark.parametrize("model", ["script:/tmp/x.toml", "sonnet"])
async def test_a_model_that_cannot_be_used_is_reported_and_stays(tmp_path, model):
    talk = CommandTalk(tmp_path, f"---\nmodel: {model}\n---\nDo.")
    assert (await talk.sent()).endswith("Do.")
    assert talk.of(ModelChanged) == []
    assert f"This command names the model {model}: " in talk.of(Notice)[0].text


def test_names_of_families_mean_their_newest_model():
    models = KnownModels()
    assert models.meant("sonnet", "anthropic") == "claude-sonnet-5-5"
    assert models.meant("opus", "anthropic") == "claude-opus-5-5"
    assert models.meant("claude-opus-5", "anthropic") == "claude-opus-5"


async def test_allowed_tools_grant_nothing(tmp_path):
    text = "---\nallowed-tools: Bash(touch:*), Write\n---\nDo."
    talk = CommandTalk(tmp_path, text)
    assert talk.services.gate.mode == "ask"
    effect = Effect("bash", "run", command="touch x", cwd=str(talk.project))
    await talk.sent()
    assert talk.services.gate.decide(effect, is_confined=True).action == "ask"


@pytest.mark.parametrize("is_link", [True, False])
async def test_a_notebook_outside_the_project_is_left_as_text(tmp_path, is_link):
    """With the sandbox off, a link that a command made would send it to the model."""
    write(tmp_path, "outside/a.ipynb", '{"cells": [], "nbformat": 4, "nbformat_minor": 5}')
    name = "a.ipynb" if is_link else str(tmp_path / "outside/a.ipynb")
    talk = CommandTalk(tmp_path, f"Look at @{name}, please.")
    if is_link:
        (talk.project / "a.ipynb").symlink_to(tmp_path / "outside/a.ipynb")
    assert (await talk.sent()).endswith(f"Look at @{name}, please.")
    assert talk.of(ErrorOccurred) == []
