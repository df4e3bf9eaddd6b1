"""`:AgentEdit`: lines that are rewritten in place, previewed below them, accepted or not."""

import json

import pytest
from tests.conftest import prove_rest, prove_unless_quick, quick, wait_until
from tests.loopback import STALL, Reply, Status, delta, done, message_start, text
from tests.loopback import block_start as begin_block

pytestmark = prove_unless_quick

CODE = "import time\n\n\ndef slow():\n    time.sleep(9)\n    return 1\n\n\ndef last():\n    pass\n"


def says(*answers, when=""):
    return [{"step": [{"text": answer}]} | ({"when": when} if when else {}) for answer in answers]


@pytest.fixture
def start_editor(start_agent, project):
    """A Neovim in `code.py`, whose edits are answered in order."""

    def start(*replies, content=CODE, name="code.py", setup=None, newline=None, **screen):
        (project / name).write_text(content, newline="" if newline is None else newline)
        child = start_agent(*replies, setup=setup, **screen)
        child.command(f"edit {name}")
        return child

    return start


def wait_ready(child, count=1):
    wait_until(lambda: len(child.events("AgentEditReady")) >= count, f"{count} edits are ready")


@pytest.fixture
def edit_more(start_claude, project):
    """A Neovim in a file of one line, for which the model behind the API has an edit ready."""

    def start():
        (project / "a.txt").write_text("zero\n")
        child = start_claude()
        edit(child, "edit a.txt | AgentEdit more")
        return child

    return start


def edit(child, command):
    count = len(child.events("AgentEditReady"))
    child.command(command)
    wait_ready(child, count + 1)


def accept(child, count=1):
    wait_ready(child, count)
    child.command("AgentAccept")


def outcomes(child):
    return [event["outcome"] for event in child.events("AgentEditEnded")]


def test_an_edit_of_lines_elsewhere_takes_the_cursor_there_and_a_jump_back_returns(start_editor):
    content = "".join(f"x = {n}\n" for n in range(200))
    child = start_editor(*says("x = 0"), content=content)
    edit(child, "150,151AgentEdit be quick")
    assert any("▍be quick" in line for line in child.screen())
    child.feed("\\ea")
    wait_until(lambda: child.lines()[149] == "x = 0")
    child.feed("``")
    assert child.lua("return vim.fn.line('.')") == 1


@quick
def test_the_keys_of_an_edit_are_seen_in_a_narrow_window(start_editor):
    usage = {"input_tokens": 3300, "output_tokens": 150}
    child = start_editor({"step": [{"text": "x = 0"}], "usage": usage})
    child.command("rightbelow vnew | wincmd p | vertical resize 42")
    edit(child, "5,6AgentEdit be quick")
    assert any("\\ea accepts · \\er rejects · \\ee refines" in line for line in child.screen())


def test_a_preview_that_reaches_the_end_of_its_window_is_drawn_to_its_end(start_editor):
    answer = "".join(f"x = {n}\n" for n in range(13)) + "y = 'all of it'"
    step = {"text": answer, "chunk_chars": 6, "chunk_delay_ms": 20}
    content = "".join(f"x = {n}\n" for n in range(14))
    child = start_editor({"step": [step]}, content=content, columns=80, lines=24)
    edit(child, "11AgentEdit count on")
    child.wait_for_screen("y = 'all of it'")
    assert "\\ea accepts" in child.screen_text()
    child.feed("\\er")
    wait_until(lambda: outcomes(child) == ["rejected"])
    assert "all of it" not in child.screen_text()


@quick
def test_an_edit_is_previewed_below_its_lines_and_changes_them_when_accepted(start_editor):
    child = start_editor(*says("    time.sleep(0)\n    return 2", when="be quick"))
    edit(child, "5,6AgentEdit be quick")
    assert child.lines() == CODE.splitlines()
    screen = child.screen()
    top = next(row for row, line in enumerate(screen) if "be quick" in line and "+2" in line)
    assert [line.strip() for line in screen[top - 2 : top + 6]] == [
        "time.sleep(9)",
        "return 1",
        "▍be quick  +2 −2",
        "−      time.sleep(9)",
        "−      return 1",
        "+      time.sleep(0)",
        "+      return 2",
        screen[top + 5].strip(),
    ]
    assert screen[top + 5].rstrip().endswith("$0.00")
    assert "\\ea accepts" in screen[top + 5]
    child.feed("\\ea")
    wait_until(lambda: outcomes(child) == ["accepted"])
    assert child.lines()[3:6] == ["def slow():", "    time.sleep(0)", "    return 2"]
    assert "be quick" not in "\n".join(child.screen()[:-2])
    child.feed("u")
    wait_until(lambda: child.lines() == CODE.splitlines())


def test_no_chat_is_needed_and_none_opens(start_editor):
    child = start_editor(*says("x"))
    edit(child, "1AgentEdit shorter")
    assert child.lua("return #vim.api.nvim_list_wins()") == 1
    assert child.session_files() == []


@quick
def test_what_the_model_is_told(start_claude, server, project):
    server.answer(Reply(message_start(), text("    return 2"), done()))
    body = [f"x{number} = {number}" for number in range(150)]
    (project / "code.py").write_text(
        "\n".join(["class Early:", *body, "    return 1", "end = 1", *body])
    )
    child = start_claude()
    child.command("edit code.py")
    edit(child, "152AgentEdit return two")
    request = server.prompts[0].json()
    assert "tools" not in request
    assert "thinking" not in request or request["thinking"] == {"type": "disabled"}
    context, instruction = [block["text"] for block in request["messages"][0]["content"]]
    assert instruction == "return two"
    assert context.startswith("The file: code.py, python.")
    assert "1: class Early:" in context
    assert "before the part:\n```\nx50 = 50\n" in context
    assert context.endswith("The part is line 152:\n```\n    return 1\n```")
    assert "x98 = 98\n```" in context
    assert "x99 = 99\n```" not in context.split("after the part:")[1]


def test_a_second_instruction_refines_the_first(start_editor):
    child = start_editor(*says("first = 1"), *says("second = 2"))
    edit(child, "1AgentEdit name it")
    edit(child, "AgentEdit another name")
    assert "another name  +1 −1" in child.screen_text()
    assert "second = 2" in child.screen_text()
    assert "first = 1" not in child.screen_text()
    child.command("AgentAccept")
    assert child.lines()[0] == "second = 2"


def test_the_model_sees_its_draft_when_it_refines(edit_more, server):
    server.answer(
        Reply(message_start(), text("one"), done()), Reply(message_start(), text("two"), done())
    )
    child = edit_more()
    edit(child, "AgentEdit even more")
    told = [(m["role"], m["content"][-1]["text"]) for m in server.prompts[1].json()["messages"]]
    assert told == [("user", "more"), ("assistant", "one"), ("user", "even more")]
    assert "↑20 ↓10" in child.screen_text()  # both requests


def test_what_an_edit_has_used_counts_in_the_session_and_in_none_of_its_turns(
    start_claude, server, project
):
    server.answer(
        Reply(message_start(), text("pong"), done()), Reply(message_start(), text("one"), done())
    )
    (project / "a.txt").write_text("zero\n")
    child = start_claude()
    child.command("edit a.txt")
    child.lua("require('sanderling').ask('go')")
    child.wait_for_turns()
    before = child.lua("return require('sanderling').status().cost_usd")
    edit(child, "AgentEdit more")
    wait_until(
        lambda: child.lua("return require('sanderling').status().cost_usd") == 2 * before > 0
    )
    child.command("Agent usage")
    page = wait_until(
        lambda: next(
            (line for line in child.screen() if "claude-sonnet" in line and "20" in line), ""
        )
    )
    assert "10" in page
    logged = [json.loads(line) for line in child.session_files()[-1].read_text().splitlines()]
    assert [each.get("is_aside", False) for each in logged if each["type"] == "usage"] == [
        False,
        True,
    ]


def test_the_key_asks_what_is_to_be_different(start_editor):
    child = start_editor(*says("one"), *says("two"))
    edit(child, "1AgentEdit go")
    child.feed("\\ee")
    child.wait_for_screen("Refine code.py:1", "<C-s> sends")
    child.feed("again<C-s>")
    wait_ready(child, 2)
    child.feed("\\ea")
    wait_until(lambda: child.lines()[0] == "two")


def test_changes_above_are_survived(start_editor):
    child = start_editor(*says("    return 2"))
    edit(child, "6AgentEdit two")
    child.lua("vim.api.nvim_buf_set_lines(0, 0, 1, true, { '# a', '# b', '# c' })")
    child.feed("8GO<C-u>above<Esc>j")
    child.command("AgentAccept")
    assert child.lines()[6:10] == ["    time.sleep(9)", "above", "    return 2", ""]


def test_lines_that_have_changed_are_left_alone_until_that_is_undone(start_editor):
    child = start_editor(*says("    return 2"))
    edit(child, "6AgentEdit two")
    child.feed("6GA  # mine<Esc>")
    child.feed(":AgentAccept<CR>")
    child.wait_for_message("have changed since they were sent")
    assert child.lines()[5] == "    return 1  # mine"
    child.feed("u")
    child.feed(":AgentAccept<CR>")
    wait_until(lambda: child.lines()[5] == "    return 2")


@quick
def test_it_is_stopped_by_a_key(start_claude, server, project):
    server.answer(Reply(message_start(), begin_block(), delta(text="    half\n"), STALL))
    (project / "code.py").write_text(CODE)
    child = start_claude()
    child.command("edit code.py")
    child.feed(":5AgentEdit go<CR>")
    child.wait_for_screen("half")
    child.feed("<C-c>")
    wait_until(lambda: "half" not in child.screen_text())
    wait_until(
        lambda: server.prompts[0].is_closed if hasattr(server.prompts[0], "is_closed") else True
    )
    assert outcomes(child) == ["stopped"]
    assert child.lines() == CODE.splitlines()


def test_stopping_a_refinement_leaves_the_draft_before(edit_more, server):
    server.answer(
        Reply(message_start(), text("one"), done()),
        Reply(message_start(), begin_block(), delta(text="half\n"), STALL),
    )
    child = edit_more()
    child.feed(":AgentEdit other<CR>")
    child.wait_for_screen("half")
    child.feed("<C-c>")
    wait_until(lambda: "half" not in child.screen_text())
    child.command("AgentAccept")
    assert child.lines() == ["one"]


def test_two_at_once_are_each_their_own(start_editor):
    replies = [
        {
            "when": "one",
            "step": [{"text": "    sleep = 1", "chunk_chars": 2, "chunk_delay_ms": 20}],
        },
        {
            "when": "two",
            "step": [{"text": "    return 22", "chunk_chars": 2, "chunk_delay_ms": 20}],
        },
    ]
    child = start_editor(*replies)
    child.command("5AgentEdit one")
    edit(child, "6AgentEdit two")
    screen = child.screen_text()
    assert screen.index("sleep = 1") < screen.index("return 22")
    child.command("AgentAccept!")
    assert child.lines()[4:6] == ["    sleep = 1", "    return 22"]
    assert outcomes(child) == ["accepted", "accepted"]


@pytest.mark.parametrize(
    "content, before, keys, message",
    [
        (CODE, "5,6AgentEdit go", ":6,7AgentEdit other<CR>", "These lines have another edit"),
        (CODE, "set nomodifiable", ":1AgentEdit x<CR>", "'nomodifiable'"),
        ("abcdefghij\n\tabc\nabcdefghij\n", "", "1G3l<C-v>2jl<F6>", "cuts a tab"),
    ],
)
def test_what_cannot_be_edited_is_refused(start_editor, content, before, keys, message):
    child = start_editor(*says("x"), content=content)
    child.command("xmap <F6> <Plug>(AgentEdit)")
    child.command(before)
    child.feed(keys)
    child.wait_for_message(message)


def test_the_dot_asks_for_the_same_further_down(start_editor):
    child = start_editor(*says("a"), *says("b"), content="1\n2\n3\n4\n")
    edit(child, "1,2AgentEdit shorter")
    child.command("AgentAccept")
    assert child.lines() == ["a", "3", "4"]
    child.feed("j.")
    wait_ready(child, 2)
    assert "▍shorter" in child.screen_text()
    child.command("AgentAccept")
    assert child.lines() == ["a", "b"]


@quick
def test_the_operator_asks_and_is_repeated_by_the_dot(start_editor):
    child = start_editor(*says("A"), *says("B"), content="one two\n\nthree four\n")
    child.command("map <F6> <Plug>(AgentEdit)")
    child.feed("<F6>iw")
    child.wait_for_screen("Edit code.py:1", "<C-s> sends")
    child.feed("capital<C-s>")
    accept(child)
    assert child.lines() == ["A two", "", "three four"]
    child.feed("Gw.")
    accept(child, 2)
    assert child.lines() == ["A two", "", "three B"]


@quick
def test_without_an_instruction_it_is_asked_for_as_a_question_is(start_editor):
    child = start_editor(*says("A"), *says("B"), content="one\ntwo\nthree\n")
    child.feed(":2AgentEdit<CR>")
    child.wait_for_screen("Edit code.py:2", "How to change these lines: <C-s> sends")
    child.feed("first line<CR>@buffer /mode<C-s>")
    accept(child)
    assert child.lines() == ["one", "A", "three"]
    child.feed("G.")
    accept(child, 2)
    assert child.lines() == ["one", "A", "B"]
    child.feed(":AgentEdit<CR>")
    child.wait_for_screen("Edit code.py:3")
    child.feed("<M-p>")
    child.wait_for_screen("first line", "@buffer /mode")


def test_an_edit_that_is_pending_is_refined_by_the_same_command(start_editor):
    child = start_editor(*says("A"), *says("B"), content="one\n")
    edit(child, "1AgentEdit go")
    child.feed(":AgentEdit<CR>")
    child.wait_for_screen("Refine code.py:1")
    child.feed("shorter<C-s>")
    accept(child, 2)
    assert child.lines() == ["B"]


def test_who_writes_no_instruction_edits_nothing_and_the_dot_asks_again(start_editor):
    child = start_editor(*says("A"), content="one two\n")
    child.command("map <F6> <Plug>(AgentEdit)")
    child.feed("<F6>iw")
    child.wait_for_screen("Edit code.py:1")
    child.feed("xyz<Esc>")
    child.wait_for_screen("q closes")
    child.feed("q")
    wait_until(lambda: "Edit code.py" not in child.screen_text())
    assert child.lines() == ["one two"]
    child.feed("w.")
    child.wait_for_screen("Edit code.py:1")
    child.feed("go<C-s>")
    accept(child)
    assert child.lines() == ["one A"]


@pytest.mark.parametrize(
    "keys, again, expected",
    [
        ("<F6>iq", "Gl.", ["'A'", "", "'B'"]),  # a text object of the user's
        ("Gl<F6>F'", "1G$.", ["B'", "", "Athree'"]),  # backwards
        ("lve<F6>", "G0l.", ["'A'", "", "'Bee'"]),
        ("<F6>/x<CR>", "", ["'one'", "", "'three'"]),  # no such place
        (':call feedkeys("\\<lt>F6>iq", "m")<CR>', "G0l.", ["'A'", "", "'Bee'"]),  # not typed
        ("2<F6>j", "", ["A"]),
    ],
)
def test_the_dot_repeats_what_the_operator_was_applied_to(start_editor, keys, again, expected):
    child = start_editor(*says("A"), *says("B"), content="'one'\n\n'three'\n")
    child.command("map <F6> <Plug>(AgentEdit)")
    child.command("onoremap iq i'")
    child.feed(keys)
    if "/x" in keys:
        child.wait_for_message("E486")
        assert child.lines() == expected
        return
    child.wait_for_screen("<C-s> sends")
    child.feed("go<C-s>")
    accept(child)
    if again:
        child.feed(again)
        accept(child, 2)
    assert child.lines() == expected


def test_the_operator_takes_a_count(start_editor):
    child = start_editor(*says("A"), content="one two three four\n")
    child.command("map <F6> <Plug>(AgentEdit)")
    child.feed("<F6>2awshort<C-s>")
    accept(child)
    assert child.lines() == ["Athree four"]


@quick
@pytest.mark.parametrize(
    "keys, answer, expected",
    prove_rest(
        [
            ("1Gwv", "T", ["one Two", "three", "fäur"]),  # one character
            ("1Gwve", "2", ["one 2", "three", "fäur"]),
            ("1Gwvj", "2\nthe", ["one 2", "the", "fäur"]),  # over a line's end
            ("1Gwvj$", "2", ["one 2", "fäur"]),  # the end of the last line stays
            ("3Gv4l", "4", ["one two", "three", "4"]),
            ("3Glvl", "oe", ["one two", "three", "foer"]),  # a wide character whole
            ("1GlVj", "1\n2", ["1", "2", "fäur"]),
            ("1G<C-v>jjl", "xx\nyy\nzz", ["xxe two", "yyree", "zzur"]),
            ("1Gw<C-v>j$", "x\ny", ["one x", "threy", "fäur"]),
        ],
        keep=(-1,),
    ),
)
def test_a_selection_is_replaced_exactly(start_editor, keys, answer, expected):
    child = start_editor(*says(answer), content="one two\nthree\nfäur\n")
    child.command("xmap <F6> <Plug>(AgentEdit)")
    child.feed(f"{keys}<F6>go<C-s>")
    accept(child)
    assert child.lines() == expected


def test_a_block_reaches_over_lines_that_end_before_it(start_editor):
    child = start_editor(*says("XX\nYY\nZZ"), content="abcdef\nab\nabcdef\n", name="a.txt")
    child.command("xmap <F6> <Plug>(AgentEdit)")
    child.feed("1G3l<C-v>2jl<F6>go<C-s>")
    accept(child)
    assert child.lines() == ["abcXXf", "ab YY", "abcZZf"]


def test_a_block_takes_no_answer_with_other_lines(start_editor):
    child = start_editor(*says("X"), content="abc\nabc\n")
    child.command("xmap <F6> <Plug>(AgentEdit)")
    child.feed("1G<C-v>jl<F6>go<C-s>")
    wait_ready(child)
    child.feed(":AgentAccept<CR>")
    child.wait_for_message("The block has 2 lines and the answer 1")
    assert child.lines() == ["abc", "abc"]


def written(child, name="code.py"):
    child.command("set nofixendofline | write")
    return (child.project / name).read_bytes()


@quick
@pytest.mark.parametrize(
    "content, edit, answer, expected",
    prove_rest(
        [
            (b"a\r\nb\r\n", "2AgentEdit x", "c\r\nd", b"a\r\nc\r\nd\r\n"),
            (b"a\nb", "2AgentEdit x", "c\n", b"a\nc"),
            (b"a\nb", "1AgentEdit x", "c\n", b"c\nb"),
            (b"a\r\nb\n", "1AgentEdit x", "c", b"c\r\nb\n"),  # a return that is part of the line
            (b"a\n\nb\n", "2AgentEdit x", "c", b"a\nc\nb\n"),
            (b"", "AgentEdit x", "c\nd", b"c\nd\n"),
            (b"a\n", "%AgentEdit x", "", b""),
            (b"a\nb\n", "%AgentEdit x", "1\n2\n3\n", b"1\n2\n3\n"),
            (b"\ta\n\tb\n", "%AgentEdit x", "c\nd", b"\tc\n\td\n"),
        ],
        keep=(0,),
    ),
)
def test_bytes_around_and_line_ends_stay(start_agent, project, content, edit, answer, expected):  # noqa: PLR0917 - pytest gives them by name
    (project / "code.py").write_bytes(content)
    child = start_agent(*says(answer))
    child.command("edit code.py")
    child.command(edit)
    accept(child)
    assert written(child) == expected


def test_a_fenced_answer_streams_without_its_fence(start_editor):
    step = {"text": "```python\n    return 3\n```\nDone.", "chunk_chars": 1, "chunk_delay_ms": 4}
    child = start_editor({"step": [step]})
    child.feed(":6AgentEdit three<CR>")
    seen = []
    while not child.events("AgentEditReady"):
        seen.append(child.screen_text())
    assert not any("```" in screen for screen in seen)
    child.command("AgentAccept")
    assert child.lines()[5] == "    return 3"


def test_a_buffer_that_is_locked_meanwhile_is_left_alone(start_editor):
    child = start_editor(*says("x"))
    edit(child, "1AgentEdit x")
    child.command("set nomodifiable")
    child.feed(":AgentAccept<CR>")
    child.wait_for_message("nothing was changed")
    assert child.lines() == CODE.splitlines()


def test_a_wiped_buffer_ends_its_edit(start_editor):
    child = start_editor({"step": [{"text": "x" * 400, "chunk_chars": 1, "chunk_delay_ms": 20}]})
    child.feed(":1AgentEdit x<CR>")
    wait_until(lambda: "+xx" in child.screen_text().replace(" ", ""))
    child.command("bwipeout!")
    wait_until(lambda: outcomes(child) == ["closed"])
    assert not child.is_blocked()


@quick
def test_a_file_that_a_rule_keeps_from_the_model_is_not_sent(start_editor):
    rule = {"action": "deny", "tool": "read", "path": "secret.env"}
    child = start_editor(*says("x"), name="secret.env", setup={"permissions": [rule]})
    child.feed(":1AgentEdit x<CR>")
    child.wait_for_message("A rule keeps secret.env from the model")
    assert outcomes(child) == ["failed"]
    assert "secret" not in "".join(json.dumps(child.events("AgentEditReady")))


def test_an_answer_that_was_cut_cannot_be_accepted(start_editor):
    child = start_editor({"step": [{"text": "x"}], "stop_reason": "max_tokens"})
    edit(child, "1AgentEdit x")
    assert "reached the token limit" in child.screen_text()
    child.feed(":AgentAccept<CR>")
    child.wait_for_message("cannot be accepted")
    assert child.lines() == CODE.splitlines()


def test_an_error_is_told_with_what_to_do(start_editor):
    error = {"kind": "auth", "message": "The key was refused.", "remedy": "Type /login."}
    child = start_editor({"step": [{"error": error}]})
    child.feed(":1AgentEdit x<CR>")
    child.wait_for_message("The key was refused. Type /login.")
    assert outcomes(child) == ["failed"]


def test_what_fails_for_a_moment_is_tried_again(edit_more, server):
    server.answer(Status(529), Reply(message_start(), text("one"), done()))
    child = edit_more()
    child.command("AgentAccept")
    assert child.lines() == ["one"]


def test_without_a_key_it_says_what_to_do(start_nvim, project):
    (project / "a.txt").write_text("zero\n")
    child = start_nvim()
    child.command("edit a.txt")
    child.feed(":AgentEdit more<CR>")
    wait_until(lambda: "ANTHROPIC_API_KEY" in child.messages() or "login" in child.messages())
    assert outcomes(child) == ["failed"]


def test_the_model_is_that_of_the_session(start_agent, tmp_path, project):
    other = tmp_path / "other.json"
    other.write_text(json.dumps({"version": 1, "reply": says("other")}))
    (project / "a.txt").write_text("zero\n")
    child = start_agent(*says("own"), setup={"model": f"script:{other}"})
    child.command("edit a.txt")
    edit(child, "AgentEdit more")
    child.command("AgentAccept")
    assert child.lines() == ["other"]


def test_a_fold_over_the_lines_opens(start_editor):
    child = start_editor(*says("x"))
    edit(child, "4,6fold | 4,6AgentEdit x")
    assert "▍x" in child.screen_text()


def test_the_preview_scrolls_into_view_at_the_end_of_a_window(start_editor):
    content = "".join(f"line {n}\n" for n in range(100))
    child = start_editor(*says("\n".join(f"new {n}" for n in range(8))), content=content, lines=24)
    child.feed("G:99,100AgentEdit x<CR>")
    wait_ready(child)
    screen = child.screen_text()
    assert "line 98" in screen
    assert "new 7" in screen
    assert "accepts" in screen


@pytest.mark.parametrize("end", ["\\ea", "\\er"])
def test_the_keys_go_with_the_edit(start_editor, end):
    child = start_editor(*says("x"))
    edit(child, "1AgentEdit x")
    child.feed(end)
    wait_until(lambda: len(outcomes(child)) == 1)
    assert child.lua("return vim.fn.maparg('<LocalLeader>ea', 'n')") == ""
    assert child.lua("return vim.fn.maparg('<C-c>', 'n')") == ""


def test_a_persons_key_stays_theirs(start_editor):
    child = start_editor(*says("x"))
    child.command("nnoremap <C-c> :let g:own = 1<CR>")
    edit(child, "1AgentEdit x")
    child.feed("<C-c>")
    wait_until(lambda: child.lua("return vim.g.own") == 1)


def test_a_macro_records_and_replays_an_edit(start_editor):
    child = start_editor(*says("a"), *says("b"), content="1\n2\n")
    child.feed("qq:AgentEdit x<CR>")
    wait_ready(child)
    child.feed(":AgentAccept<CR>jq")
    wait_until(lambda: child.lines() == ["a", "2"])
    assert child.lua("return vim.fn.getreg('q')").startswith(":AgentEdit x\r")
