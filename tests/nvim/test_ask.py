"""`:AgentAsk`, with and without lines."""

import pytest
from tests.conftest import prove
from tests.loopback import (
    LoopbackServer,
    Reply,
    Wait,
    block_start,
    block_stop,
    delta,
    done,
    message_start,
    text,
)
from tests.nvim.conftest import texts_told


@pytest.fixture
def server():
    with LoopbackServer() as server:
        server.answer(Reply(message_start(), text("Because."), done()))
        yield server


@pytest.fixture
def claude(start_claude, project):
    (project / "slow.py").write_text(
        "import time\n\n\ndef slow():\n    time.sleep(9)\n    return 1\n"
    )
    child = start_claude()
    child.command("edit slow.py")
    return child


def content(server):
    return texts_told(server.prompts[0].json()["messages"][0])


def test_a_visual_selection_goes_along_with_its_file_lines_and_filetype(claude, server):
    claude.feed("4GVjj:AgentAsk why is this slow?<CR>")
    claude.wait_for_turns()
    assert content(server) == [
        "slow.py:4-6, as the editor showed it then:\n```python\n4\tdef slow():\n5\t    time.sleep(9)\n6\t    return 1\n```",
        "why is this slow?",
    ]
    assert "▸ slow.py:4-6 · 3 lines" in claude.screen_text()


@prove
def test_unsaved_text_is_what_goes_along(claude, server):
    claude.feed("5Gccunsaved<Esc>")
    claude.feed(":5AgentAsk what is this?<CR>")
    claude.wait_for_turns()
    assert "```python\n5\t    unsaved\n```" in content(server)[0]


@prove
def test_the_path_is_told_from_the_projects_root(claude, server, project):
    (project / "deep").mkdir()
    (project / "deep" / "in.py").write_text("x = 1\n")
    claude.command("edit deep/in.py | cd deep")
    claude.command("1AgentAsk what?")
    claude.wait_for_turns()
    assert content(server)[0].startswith("deep/in.py:1, ")


@prove
def test_without_lines_only_the_question_goes(claude, server):
    claude.command("AgentAsk what is a sanderling?")
    claude.wait_for_turns()
    assert content(server) == ["what is a sanderling?"]


@prove
def test_the_plug_map_asks_about_the_selection(claude, server):
    claude.command("xmap <F6> <Plug>(AgentAsk)")
    claude.feed("5GV<F6>why?<C-s>")
    claude.wait_for_turns()
    assert "time.sleep(9)" in content(server)[0]


@prove
def test_the_cursor_stays_in_the_file(claude):
    claude.command("AgentAsk why?")
    claude.wait_for_turns()
    assert claude.lua("return vim.fn.expand('%:t')") == "slow.py"


@prove
def test_lines_with_fences_are_fenced_with_more(claude, server):
    claude.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { '```', 'x', '````' })")
    claude.command("%AgentAsk what?")
    claude.wait_for_turns()
    assert content(server)[0].endswith("`````python\n1\t```\n2\tx\n3\t````\n`````")
    assert "`````python\n```\nx\n````\n`````" in claude.transcript_text()


@pytest.mark.parametrize(
    "bytes_, what",
    [
        (b"ok\nbad \xff byte\n", "bytes that are not UTF-8 in line 2"),
        (b"a\n\0b\n", "a NUL byte in line 2"),
    ],
)
def test_lines_that_are_no_text_are_refused_whole(claude, server, project, bytes_, what):
    (project / "blob").write_bytes(bytes_)
    claude.command("edit ++enc=utf-8 ++bad=keep blob")
    claude.command("%AgentAsk what?")
    claude.wait_for_transcript(f"blob contains {what}")
    assert server.prompts == []


def test_a_prompt_that_is_no_text_is_refused_and_kept(claude, server):
    claude.open_chat()
    claude.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'bad \\255 byte' })")
    claude.feed("<CR>")
    claude.wait_for_transcript(
        "The prompt contains bytes that are not UTF-8 in line 1. Nothing was sent."
    )
    assert claude.lua("return vim.api.nvim_buf_get_lines(0, 0, -1, true)[1] == 'bad \\255 byte'")
    assert server.prompts == []


@prove
def test_a_refusal_during_a_turn_disturbs_neither_the_answer_nor_its_end(claude, server):
    server.answer(
        Reply(
            message_start(),
            block_start(type="text", text=""),
            delta(text="Half "),
            Wait(0.5),
            delta(text="and half."),
            block_stop(),
            done(),
        )
    )
    claude.open_chat()
    claude.submit("go")
    claude.wait_for_transcript("Half")
    claude.lua("require('sanderling').submit('bad \\255 byte')")
    assert "not UTF-8" in claude.messages()
    assert not claude.is_blocked()
    claude.wait_for_turns()
    assert claude.transcript()[-1] == "Half and half."
    assert [event["stop_reason"] for event in claude.events("AgentTurnEnded")] == ["end_turn"]


def test_an_empty_prompt_from_lua_is_refused(claude, server):
    claude.open_chat()
    claude.submit(" \n ")
    claude.wait_for_transcript("The prompt is empty. Nothing was sent.")
    assert server.prompts == []


@prove
def test_an_enormous_prompt_is_sent_whole_or_refused_whole(claude, server):
    line = "x" * 1023
    claude.lua(
        "_G.big = function(n) return vim.split((('x'):rep(1023) .. '\\n'):rep(n), '\\n') end"
    )
    claude.lua("require('sanderling').submit(table.concat(_G.big(2048), '\\n'))")
    claude.wait_for_turns()
    assert content(server)[-1] == f"{line}\n" * 2048
    claude.lua("require('sanderling').submit(table.concat(_G.big(17 * 1024), '\\n'))")
    claude.wait_for_transcript("at most 16 MB. Nothing was sent.")
    assert len(server.prompts) == 1


@prove
def test_text_with_every_awkward_character_arrives_as_typed(claude, server):
    awkward = (
        "tab\there \u2028 sep \u0085 nel \u200b zero \U0001f426 bird \x01 ctrl \\ \" ' % $& ` é"
    )
    claude.lua("require('sanderling').submit(...)", awkward)
    claude.wait_for_turns()
    assert content(server) == [awkward]
    assert awkward in claude.transcript_text()


@prove
def test_what_the_model_says_arrives_byte_for_byte(claude, server):
    awkward = "nul \0 cr \r\n tab\t \u2028 \U0001f426 \x1b[31mred\x1b[0m end"
    server.answer(Reply(message_start(), text(awkward), done()))
    claude.command("AgentAsk go")
    claude.wait_for_turns()
    assert "\n".join(claude.transcript()[-2:]) == awkward
