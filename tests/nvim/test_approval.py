"""Questions to the person: the float, how it is answered, and that it takes no key that was not meant for it."""

import os
import re
import time

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.conftest import count_keys_after

SIZES = {"usual": {"columns": 120, "lines": 40}, "small": {"columns": 60, "lines": 20}}
SIX = (
    *("a allow once", "s allow for this session", "A always (shows the rule)"),
    *("d deny", "D deny with a reason", "q later"),
)
DIFF = "--- a/src/app.py\n+++ b/src/app.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"


def asked(id_="q1", **fields):
    event = {
        "type": "approval_requested",
        "id": id_,
        "tool": "bash",
        "title": "make all",
        "subject": "make all && rm -rf 'build dir'",
        "filetype": "sh",
        "reason": "Commands ask in mode ask.",
        "cwd": "/srv/project",
        "choices": ["once", "session", "always"],
        "rule": "make *",
    }
    return event | fields


def settled(id_="q1"):
    return {"type": "approval_settled", "id": id_}


def answer(answer_, id_="q1", *, reason="", rule=""):
    action = {"type": "answer_approval", "id": id_, "answer": answer_}
    return action | {"reason": reason, "rule": rule, "option": ""}


def many_lines(count=40):
    return "\n".join(f"echo {n}" for n in range(count))


def float_of(screen):
    return screen.lua("""
      for _, win in ipairs(vim.api.nvim_tabpage_list_wins(0)) do
        local config = vim.api.nvim_win_get_config(win)
        if config.relative ~= '' and config.zindex == 60 then
          local buf = vim.api.nvim_win_get_buf(win)
          return {
            win = win,
            config = config,
            lines = vim.api.nvim_buf_get_lines(buf, 0, -1, true),
            is_focused = win == vim.api.nvim_get_current_win(),
          }
        end
      end
    """)


def drawn(screen):
    """What is on the screen now, without asking for it to be drawn."""
    return "\n".join(
        screen.lua("""
          local rows = {}
          for row = 1, vim.o.lines do
            local cells = {}
            for col = 1, vim.o.columns do
              cells[col] = vim.fn.screenstring(row, col)
            end
            rows[row] = (table.concat(cells):gsub('%s+$', ''))
          end
          return rows
        """)
    )


def wait_until_seen(screen, text="Allow"):
    wait_until(lambda: text in drawn(screen), f"{text!r} is on the screen")


def ask(screen, *events):
    screen.send(*(events or (asked(),)))
    wait_until_seen(screen)
    return screen


def enter(screen):
    screen.feed(":Agent question<CR>")
    wait_until(lambda: (float_of(screen) or {}).get("is_focused"), "the float is entered")
    return screen


@pytest.fixture
def start_screen(start_screen):
    """Keys count at once; some tests are about when they do."""

    def start(**options):
        screen = start_screen(**options)
        count_keys_after(screen, 0)
        return screen

    return start


@pytest.fixture
def editor(start_screen, project):
    """A person in a file, with the chat hidden."""

    def start(size="usual", **setup):
        screen = start_screen(**SIZES[size])
        if setup:
            screen.setup(**setup)
        screen.lua("require('sanderling').mode('ask')")  # there is a session, but no window of it
        screen.lua("_G.actions = {}")
        (project / "code.py").write_text("".join(f"x = {n}\n" for n in range(100)))
        screen.command("edit code.py")
        return screen

    return start


# --- what it shows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_the_float_says_what_is_to_be_done_where_why_and_how_confined(editor, size):
    screen = editor(size)
    screen.send({"type": "sandbox_changed", "level": "landlock", "network": "proxy"})
    ask(screen)
    text = drawn(screen)
    assert "Allow bash?" in text
    assert "Commands ask in mode ask." in text
    assert "in /srv/project sbx:landlock partial net:proxy" in text
    assert "make all && rm -rf 'build dir'" in text
    assert ":Agent question to answer" in text
    enter(screen)
    text = screen.screen_text()
    for key in SIX:
        assert f"│{key}" in text, key
    assert " p full view g? all keys ╯" in text


@pytest.mark.parametrize("size", SIZES)
def test_the_last_end_of_a_long_command_is_not_cut_off(editor, size):
    screen = ask(editor(size), asked(subject="echo " + "x" * 150 + " | sh"))
    rows = re.findall("│(.*)│", drawn(screen))
    assert "x" * 150 + " | sh" in "".join(row.rstrip().removeprefix("↪ ") for row in rows)


def test_lines_stay_lines_and_what_is_hidden_in_a_title_is_not(editor):
    screen = ask(editor(), asked(title="a\n\u202eb\u200bc\x1b[1m", subject="ls\nrm x"))
    assert "Allow bash a ·b·c [1m?" in drawn(screen)
    assert float_of(screen)["lines"][:3] == ["ls", "rm x", ""]
    screen.send(settled())
    ask(screen, asked(subject="echo <U+202E>txt.exe ␛[2K \\ude41"))
    assert "echo <U+202E>txt.exe ␛[2K \\ude41" in drawn(screen)


@pytest.mark.parametrize("size", SIZES)
def test_a_long_subject_shows_its_head_and_whole_where_it_is_entered(editor, size):
    screen = ask(editor(size), asked(subject=many_lines()))
    assert "echo 0" in drawn(screen)
    shown = drawn(screen).count("│echo ")
    assert f"… {40 - shown} more lines: :Agent question" in drawn(screen)
    enter(screen)
    screen.feed("G")
    screen.wait_for_screen("echo 39")
    assert "more lines" not in screen.screen_text()


@pytest.mark.parametrize("size", SIZES)
def test_the_rule_that_holds_for_the_session_or_always_is_shown_where_there_is_one(editor, size):
    screen = ask(editor(size), asked(tool="edit", title="src/app.py", rule="allow edit ./src/**"))
    assert "│s/A allows: edit ./src/**  " in drawn(screen)
    screen.send(settled())
    ask(screen, asked(choices=["once", "session"], rule=""))
    assert "would allow" not in drawn(screen)


@pytest.mark.parametrize("size", SIZES)
def test_a_title_that_is_cut_is_shown_whole_where_the_subject_does_not_say_it(editor, size):
    screen = editor(size)
    url = "https://example.org/" + "path/" * 30 + "?all=my-secrets"
    ask(screen, asked(tool="web_fetch", title=url, subject="example.org", filetype=""))
    rows = re.findall("│(.*)│", drawn(screen))
    assert url in "".join(row.rstrip().removeprefix("↪ ") for row in rows)


@pytest.mark.parametrize("limit", prove_rest(["again", "calls", "retry"]))
def test_a_question_about_a_limit_of_the_turn_names_no_tool(editor, limit):
    screen = editor()
    screen.send(asked(tool=limit, title="Go on?", subject="3 more", kind="limit", rule=""))
    wait_until(lambda: "╭ Let it continue? ─" in drawn(screen), "the question")


def test_a_title_that_is_cut_is_not_said_twice(editor):
    screen = editor()
    command = "echo  " + "word " * 30
    ask(screen, asked(title=command + "…", subject=command + "\nls"))
    assert float_of(screen)["lines"][:3] == [command, "ls", ""]
    assert sum("word" in line for line in float_of(screen)["lines"]) == 1


def test_one_endless_line_is_cut_at_the_end_of_the_float(editor):
    screen = ask(editor(), asked(subject="x" * 100_000 + "\nls"))
    assert "… 2 more lines: :Agent question" in drawn(screen)
    assert float_of(screen)["config"]["height"] <= 16


def test_what_is_missing_is_said_within_a_narrow_float(editor):
    head = editor().lua("""
      local wording = require('sanderling.approval.wording')
      return { wording.head_of({ 'a', 'b', 'c', 'd' }, 24, 3) }
    """)
    assert head == [["a", "b", "… 2 more lines"], 3, True]


@prove
def test_five_megabytes_are_shown_at_once(editor):
    screen = editor()
    with screen.little_work():
        screen.send(asked(subject="y" * 2_500_000 + "\n" + "z\n" * 1_250_000))
        assert "yyyy" in drawn(screen)
        enter(screen)


def test_a_command_is_highlighted_and_the_words_around_it_are_not(editor):
    screen = ask(editor(), asked(reason="It's 'asked", subject='for x in "a"; do echo "$x"; done'))
    groups = screen.lua(
        """
        return vim.api.nvim_win_call(..., function()
          local function group(lnum, col)
            return vim.fn.synIDattr(vim.fn.synID(lnum, col, 1), 'name')
          end
          return { group(1, 1), group(2, 1), group(3, 6) }
        end)
        """,
        float_of(screen)["win"],
    )
    assert groups[0].startswith("sh")
    assert groups[1:] == ["", ""]


def test_a_diff_is_highlighted_with_our_own_groups(editor):
    screen = ask(editor(), asked(tool="edit", title="src/app.py", subject=DIFF, filetype="diff"))
    marks = screen.lua(
        """
        local buf = vim.api.nvim_win_get_buf(...)
        local groups = {}
        for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buf, -1, 0, -1, { details = true })) do
          groups[mark[4].hl_group] = vim.api.nvim_buf_get_lines(buf, mark[2], mark[2] + 1, true)[1]
        end
        return groups
        """,
        float_of(screen)["win"],
    )
    assert marks["AgentDiffAdd"] == "+2"
    assert marks["AgentDiffDelete"] == "-two"
    assert marks["AgentDiffHunk"].startswith("@@")


def test_only_the_choices_that_there_are_are_offered_and_taken(editor):
    screen = enter(ask(editor(), asked(choices=["once"])))
    listed = float_of(screen)["lines"][-5:]
    assert listed == ["", "a allow once", "d deny", "D deny with a reason", "q later"]
    screen.feed("sA")
    screen.wait_for_message('"Always" is not available for this.')
    assert '"For the session" is not available for this.' in screen.messages()
    assert screen.actions() == []


# --- it takes no keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_no_keystroke_is_lost_or_taken_while_a_person_types(editor, size):
    screen = editor(size)
    screen.feed("ggO")
    text = "as A d D p q <Tab-less> the quick brown fox jumps " * 4
    for n, piece in enumerate(text.split(" ")):
        screen.feed(piece.replace("<", "<lt>") + "<Space>")
        if n % 10 == 5:
            screen.send(asked(f"q{n}"))
        if n % 10 == 9:
            screen.send(settled(f"q{n - 4}"))
    screen.send(asked("last"))
    typed = "".join(piece + " " for piece in text.split(" "))
    wait_until(lambda: screen.lua("return vim.fn.getline(1)") == typed, "all of it is in the file")
    assert screen.mode() == "i"
    assert screen.actions() == []
    assert "Allow bash" in drawn(screen)
    assert not float_of(screen)["is_focused"]


@pytest.mark.parametrize(
    "keys, mode",
    prove_rest(
        [("", "n"), ("i", "i"), ("v", "v"), ("V", "V"), ("d", "no"), (":echo 1", "c"), ("R", "R")]
    ),
)
def test_it_opens_at_once_in_any_mode_and_changes_none(editor, keys, mode):
    screen = editor()
    screen.feed(keys)
    wait_until(lambda: screen.mode() == mode)
    screen.send(asked())
    wait_until(lambda: "make all && rm" in drawn(screen))
    assert screen.mode() == mode
    assert screen.lua("return vim.fn.expand('%')") == "code.py"


def test_windows_are_gone_through_without_coming_into_it(editor):
    screen = ask(editor())
    for keys in ("<C-w>w", "<C-w>b", "<C-w>j", "<C-w>l", "<C-w>p"):
        screen.feed(keys)
        screen.lua("return 1")
        assert not float_of(screen)["is_focused"], keys


def test_a_key_that_was_typed_for_what_stood_there_before_answers_nothing(editor):
    screen = enter(ask(editor(), asked("q1"), asked("q2")))
    screen.feed("a")
    wait_until(screen.actions)
    count_keys_after(screen, 60)
    screen.feed("ad")
    screen.lua("return 1")
    assert screen.actions() == [answer("once", "q1")]
    count_keys_after(screen, 0)
    screen.feed("d")
    wait_until(lambda: screen.actions()[1:] == [answer("deny", "q2")])


@pytest.mark.parametrize(
    "command", prove_rest(["AgentAllow", "AgentAllow session", "AgentDeny no"])
)
def test_a_command_does_not_answer_what_has_only_just_appeared(editor, command):
    screen = editor()
    count_keys_after(screen, 60)
    screen.send(asked())
    screen.command(command)
    assert screen.actions() == []
    assert "only just appeared" in screen.messages()
    count_keys_after(screen, 0)
    screen.command(command)
    assert len(screen.actions()) == 1


def test_it_gives_way_to_the_cursor(editor):
    screen = ask(editor())
    at_bottom = float_of(screen)["config"]
    assert at_bottom["row"] + at_bottom["height"] + 2 == 38
    screen.command("%s/$/\\=repeat('x', 100)/")
    screen.feed("ggL100|")
    wait_until(lambda: float_of(screen)["config"]["row"] == 0, "it is at the top")
    screen.feed("gg")
    wait_until(lambda: float_of(screen)["config"]["row"] > 20, "it is at the bottom again")


# --- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", prove_rest(SIZES, keep=(0,)))
@pytest.mark.parametrize(
    "keys, expected",
    prove_rest(
        [
            ("a", answer("once")),
            ("s", answer("session")),
            ("d", answer("deny")),
            ("A<CR>", answer("always", rule="make *")),
            ("A<C-u>make check<CR>", answer("always", rule="make check")),
            ("D<CR>", answer("deny")),
            ("Duse ninja<CR>", answer("deny", reason="use ninja")),
        ]
    ),
)
def test_each_key_gives_its_answer_and_the_person_is_where_they_were(editor, size, keys, expected):
    screen = editor(size)
    screen.command("new | vnew | wincmd b")
    ask(screen)
    enter(screen)
    screen.feed(keys)
    wait_until(lambda: screen.actions() == [expected])
    wait_until(lambda: not float_of(screen), "the float is gone")
    assert screen.lua("return vim.fn.expand('%')") == "code.py"
    assert screen.mode() == "n"


OF_TOOL, OF_SERVER = "allow mcp__git__log", "allow mcp__git__*"


@pytest.mark.parametrize(
    "keys, expected",
    prove_rest(
        [
            ("s1<CR>", answer("session", rule=OF_TOOL)),
            ("s2<CR>", answer("session", rule=OF_SERVER)),
            ("A2<CR><CR>", answer("always", rule=OF_SERVER)),
            ("A1<CR><C-u>allow mcp__git__l*<CR>", answer("always", rule="allow mcp__git__l*")),
        ]
    ),
)
def test_tool_of_a_server_can_be_allowed_with_all_tools_of_that_server(editor, keys, expected):
    screen = enter(ask(editor(), asked(tool="mcp__git__log", rule=OF_TOOL, wider=OF_SERVER)))
    screen.feed(keys)
    wait_until(lambda: screen.actions() == [expected])


@pytest.mark.parametrize("keys", prove_rest(["A<Esc>", "A<C-u><CR>", "D<Esc>"]))
def test_to_cancel_what_an_answer_asks_for_is_to_go_back_to_the_question(editor, keys):
    screen = enter(ask(editor()))
    screen.feed(keys)
    wait_until(lambda: screen.mode() == "n")
    assert screen.actions() == []
    assert float_of(screen)["is_focused"]


@pytest.mark.parametrize(
    "how, expected",
    prove_rest(
        [
            (":AgentAllow<CR>", answer("once")),
            (":AgentAllow once<CR>", answer("once")),
            (":AgentAllow session<CR>", answer("session")),
            (":AgentAllow always<CR><CR>", answer("always", rule="make *")),
            (":AgentDeny<CR>", answer("deny")),
            (":AgentDeny not | now<CR>", answer("deny", reason="not | now")),
            ("<F2>", answer("once")),
            ("<F3>", answer("session")),
            ("<F4><CR>", answer("always", rule="make *")),
            ("<F5>", answer("deny")),
            ("i<F2>", answer("once")),
            ("v<F5>", answer("deny")),
        ],
        keep=(0, 3, 5, -4, -1),
    ),
)
def test_commands_and_maps_answer_from_anywhere(editor, how, expected):
    screen = editor()
    names = ["Allow", "AllowSession", "AllowAlways", "Deny"]
    for number, name in enumerate(names, 2):
        screen.command(f"map <F{number}> <Plug>(Agent{name})")
        screen.command(f"imap <F{number}> <Plug>(Agent{name})")
    ask(screen)
    screen.feed(how)
    wait_until(lambda: screen.actions() == [expected])
    wait_until(lambda: not float_of(screen))
    assert screen.lua("return vim.fn.expand('%')") == "code.py"


@pytest.mark.parametrize("keys", ["Dno network<CR>", "A<CR>"])
def test_what_was_typed_for_an_answer_does_not_stay_on_the_screen(editor, keys):
    screen = enter(ask(editor()))
    screen.feed(keys)
    wait_until(screen.actions, "an answer")
    wait_until(lambda: not any(w in drawn(screen) for w in ("because:", "Always allow:")))


def test_the_map_into_the_float_leaves_insert_mode(editor):
    screen = editor()
    screen.command("imap <F2> <Plug>(AgentQuestion)")
    ask(screen)
    screen.feed("i<F2>")
    wait_until(lambda: (float_of(screen) or {}).get("is_focused") and screen.mode() == "n")
    screen.feed("a")
    wait_until(lambda: screen.actions() == [answer("once")])


def test_a_key_goes_to_the_question_from_both_windows_of_the_chat(screen):
    for keys in ("\\a", "<C-w>k\\a"):
        ask(screen)
        screen.feed(keys)
        wait_until(lambda: float_of(screen)["is_focused"], keys)
        screen.send(settled())
        wait_until(lambda: not float_of(screen))


@pytest.mark.parametrize(
    "keys, options",
    prove_rest([("\\a", {}), ("\\d", {}), ("\\p", {}), ("<Space>a", {"question": "<Space>a"})]),
)
def test_in_the_float_a_key_of_the_chat_answers_nothing(editor, keys, options):
    screen = enter(ask(editor(keys=options)))
    screen.feed(keys)
    screen.feed("<Tab>s")
    wait_until(screen.actions, "an answer")
    assert screen.actions() == [answer("session")]


@pytest.mark.parametrize("close_key", ["q", "<Esc>"])
def test_who_looked_at_the_keys_of_the_question_is_back_in_it(editor, close_key):
    screen = editor()
    screen.command("new | vnew | wincmd b")
    ask(screen)
    enter(screen)
    screen.feed("g?")
    screen.wait_for_screen("allow it once")
    screen.feed(close_key)
    wait_until(lambda: "allow it once" not in screen.screen_text())
    assert float_of(screen)["is_focused"]
    screen.feed("a")
    assert screen.actions() == [answer("once")]
    assert screen.lua("return vim.fn.expand('%')") == "code.py"


def test_in_the_chat_the_answering_keys_keep_what_they_mean_there(screen):
    ask(screen)
    screen.feed("asDdp<Esc><C-w>kd<Esc>a")
    wait_until(lambda: screen.mode() == "i", "a goes to the prompt")
    assert screen.actions() == []
    assert float_of(screen)


def test_commands_complete_and_refuse_other_words(editor):
    screen = editor()
    complete = "return vim.fn.getcompletion('AgentAllow ', 'cmdline')"
    assert screen.lua(complete) == ["once", "session", "always"]
    ask(screen)
    screen.feed(":AgentAllow maybe<CR>")
    screen.wait_for_message("once, session or always, not 'maybe'")
    assert not screen.is_blocked()
    assert screen.actions() == []


@pytest.mark.parametrize("command", ["Agent question", "AgentAllow", "AgentDeny"])
def test_where_nothing_is_asked_the_commands_say_so(start_screen, command):
    screen = start_screen()
    screen.feed(f":{command}<CR>")
    screen.wait_for_message("No question is open.")
    assert not screen.is_blocked()


def test_an_answer_that_nobody_waits_for_any_more_is_not_sent(editor):
    screen = ask(editor())
    screen.lua("vim.ui.input = function(_, on_done) _G.done = on_done end")
    enter(screen)
    screen.feed("D")
    wait_until(lambda: screen.lua("return _G.done ~= nil"))
    screen.send(settled())
    screen.lua("_G.done('no')")
    assert screen.actions() == []
    assert "This question is no longer open." in screen.messages()


# --- the queue ---------------------------------------------------------------------------------------------------------


def test_questions_wait_in_one_float_and_are_gone_through_with_tab(editor):
    screen = ask(editor(), asked("q1"), asked("q2", title="ls"), asked("q3", title="wc"))
    assert "Allow bash? · 1 of 3" in drawn(screen)
    enter(screen)
    for key, title in [("<Tab>", "ls? · 2 of 3"), ("<S-Tab>", "bash? · 1 of 3")]:
        screen.feed(key)
        wait_until(lambda title=title: title in screen.screen_text(), title)
    screen.feed("<S-Tab>")
    screen.wait_for_screen("wc? · 3 of 3")
    screen.feed("a")
    wait_until(lambda: screen.actions() == [answer("once", "q3")])
    assert "ls? · 2 of 2" in screen.screen_text()
    assert float_of(screen)["is_focused"]


@pytest.mark.parametrize("size", SIZES)
def test_each_key_answers_one_question_and_another_denies_all(editor, size):
    screen = ask(editor(size), *[asked(f"q{n}", is_of_several=True) for n in (1, 2, 3, 4)])
    alone = {"is_alone": True}
    screen.feed("<M-d>")
    wait_until(lambda: screen.actions() == [answer("deny", "q1") | alone])
    enter(screen)
    screen.wait_for_screen("deny all 3")
    screen.feed("d")
    wait_until(lambda: screen.actions()[1:] == [answer("deny", "q2") | alone])
    screen.feed("Dkeep it<CR>")
    wait_until(lambda: screen.actions()[2:] == [answer("deny", "q3", reason="keep it") | alone])
    screen.wait_for_screen("deny the rest, too")
    screen.feed(":AgentDeny not now<CR>")
    denied = answer("deny", "q4", reason="not now")
    wait_until(lambda: screen.actions()[3:] == [denied | alone])


@pytest.mark.parametrize(
    "keys, reason", [("x", ""), ("Xno<CR>", "no"), (":AgentDeny! no<CR>", "no")]
)
def test_all_requests_of_a_message_are_denied_by_keys_of_their_own(editor, keys, reason):
    screen = enter(ask(editor(), *[asked(f"q{n}", is_of_several=True) for n in (1, 2)]))
    screen.feed(keys)
    wait_until(lambda: screen.actions() == [answer("deny", "q1", reason=reason)])


@pytest.mark.parametrize("size", SIZES)
def test_keys_that_have_no_line_of_their_own_are_named_in_the_border(editor, size):
    screen = enter(ask(editor(size), asked(subject=many_lines())))
    footer = screen.screen_text().splitlines()[-3]
    assert " a once s session A always d deny D reason q later " in footer
    assert " g? " in footer


def test_what_comes_later_does_not_replace_what_is_being_read(editor):
    screen = ask(editor())
    screen.send(asked("q2", title="other"))
    assert "Allow bash? · 1 of 2" in drawn(screen)
    screen.send(settled("q2"))
    assert "Allow bash? ─" in screen.screen_text()


@pytest.mark.parametrize("key", prove_rest(["<Esc>", "q", ":quit<CR>", "<C-w>c"]))
def test_leaving_answers_nothing_and_the_question_comes_back(editor, key):
    screen = enter(ask(editor()))
    screen.feed(key)
    wait_until(lambda: not float_of(screen), "the float is gone")
    time.sleep(0.1)
    assert not float_of(screen)
    assert screen.actions() == []
    assert screen.lua("return vim.fn.expand('%')") == "code.py"
    assert "1 to answer" in screen.statusline()
    how = "Question pending: :Agent question brings it back, \\a in the chat."
    screen.wait_for_screen(how)
    enter(screen)
    screen.feed("q")
    wait_until(lambda: not float_of(screen))
    screen.send(asked("q2", title="other"))
    assert "Allow bash other? · 2 of 2" in drawn(screen)


def test_a_command_shows_a_question_that_was_left_before_it_answers_it(editor):
    screen = enter(ask(editor()))
    screen.feed("q")
    wait_until(lambda: not float_of(screen))
    count_keys_after(screen, 60)
    screen.command("AgentAllow")
    assert screen.actions() == []
    assert "Allow bash" in drawn(screen)


def test_it_is_gone_when_it_is_settled_or_the_host_ends_or_the_chat_is_cleared(screen):
    publish = (
        "require('sanderling.host.bus').publish(..., { { type = 'local_failed', message = 'x' } })"
    )
    for end in (
        lambda: screen.send(settled("q1"), settled("q2")),
        lambda: screen.lua(publish, screen.session_id()),
        lambda: screen.command("lua require('sanderling').clear()"),
    ):
        ask(screen, asked("q1"), asked("q2"))
        assert "waiting for you: 2 to answer" in screen.screen_text()
        end()
        assert not float_of(screen)
        screen.command("redrawstatus!")
        assert "to answer" not in screen.screen_text()
        assert "to answer" not in screen.statusline()


# --- where it is -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", prove_rest(SIZES, keep=(0,)))
@pytest.mark.parametrize(
    "keys",
    prove_rest(
        [
            *(":split<CR>:only<CR>", ":split<CR><C-w>o", ":tabnew<CR>", ":tabnew<CR>:tabclose<CR>"),
            *(":tabnew<CR>gt:tabclose<CR>", ":tab split<CR>:split<CR>:only<CR>:tabonly<CR>"),
            ":fclose!<CR>",
        ],
        keep=(0, 3, 5, -1),
    ),
)
def test_it_survives_what_closes_windows(editor, size, keys):
    screen = ask(editor(size))
    screen.feed(keys)
    screen.lua("return 1")
    wait_until(lambda: "make all && rm" in drawn(screen), "it is there again")
    floats = screen.lua("""
      return vim.tbl_filter(function(win)
        return vim.api.nvim_win_get_config(win).relative ~= ''
      end, vim.api.nvim_list_wins())
    """)
    assert len(floats) == 1
    screen.command("AgentAllow")
    assert screen.actions() == [answer("once")]


@pytest.mark.parametrize("columns, lines", prove_rest([(60, 20), (40, 12), (200, 60)]))
def test_it_is_whole_on_a_screen_of_another_size(editor, columns, lines):
    screen = ask(editor())
    screen.rpc.request("nvim_ui_try_resize", columns, lines)
    wait_until(lambda: screen.lua("return vim.o.columns") == columns)
    wait_until(lambda: (float_of(screen)["config"]["width"] + 2) <= columns)
    rows = screen.screen()
    assert any("Allow bash?" in row for row in rows)
    assert sum("╭" in row or "╰" in row for row in rows) == 2
    assert "'build dir'" in screen.screen_text() or "build" in screen.screen_text()


def test_over_a_chat_that_is_wide_enough_it_hides_no_code(screen):
    ask(screen)
    place = float_of(screen)["config"]
    position = screen.lua(
        "return vim.api.nvim_win_get_position(require('sanderling').transcript().win)"
    )
    assert place["col"] >= position[1]


def test_the_chat_itself_can_be_a_float_and_lies_below(start_screen):
    screen = start_screen()
    screen.open_chat(position="float", focus=True)
    ask(screen)
    assert "make all && rm" in drawn(screen)


@pytest.mark.parametrize("keys", [":only<CR>", ":q<CR>"])
def test_the_chats_windows_close_as_ever_while_it_waits(screen, keys):
    ask(screen)
    screen.feed("<Esc>" + keys)
    wait_until(lambda: screen.lua("return require('sanderling').transcript().win == nil"))
    focusable = screen.lua("""
      return vim.tbl_filter(function(win)
        return vim.api.nvim_win_get_config(win).focusable
      end, vim.api.nvim_list_wins())
    """)
    assert len(focusable) == 1


def test_a_neovim_that_shows_only_the_chat_is_left_as_ever_while_it_waits(screen):
    screen.feed("<C-w>h:quit<CR>")
    wait_until(lambda: screen.lua("return #vim.api.nvim_list_wins()") == 2)
    ask(screen)
    screen.feed(":q<CR>")
    wait_until(lambda: screen.rpc.process.poll() is not None, "Neovim has ended")


def test_neovim_is_left_as_ever_while_it_waits(editor):
    screen = ask(editor())
    screen.feed(":quit<CR>")
    wait_until(lambda: screen.rpc.process.poll() is not None, "Neovim has ended")


@pytest.mark.parametrize("close", ["close", "quit"])
def test_the_last_window_of_a_tab_page_closes_as_ever(editor, close):
    screen = editor()
    screen.command("tabnew")
    ask(screen)
    screen.command(close)
    assert screen.lua("return #vim.api.nvim_list_tabpages()") == 1
    wait_until(lambda: "make all && rm" in drawn(screen))


def test_a_session_file_does_not_know_it(editor, tmp_path):
    screen = ask(editor())
    path = tmp_path / "Session.vim"
    screen.command(f"set sessionoptions+=buffers,blank,options | mksession {path}")
    # These lines say where the checkout and pytest's files lie.
    text = re.sub(r"^(set runtimepath=.*|cd .*)$", "", path.read_text(), flags=re.MULTILINE)
    assert "sanderling" not in text
    assert "code.py" in text
    assert "make && rm" not in text


@pytest.mark.parametrize(
    "enter_keys, leave_keys",
    prove_rest(
        [
            ("q:", ":quit<CR>"),
            ("<F5>", "x"),
            (":echo 1 | echo 2 | echo 3<CR>", "<CR>"),
            (":call getchar()<CR>", "x"),
        ],
        keep=(0,),
    ),
)
def test_what_neovim_is_busy_with_delays_it_and_does_not_lose_it(editor, enter_keys, leave_keys):
    screen = editor()
    screen.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    id_ = screen.session_id()
    screen.feed(enter_keys)
    time.sleep(0.1)
    request = screen.begin_to_send(id_, asked())
    time.sleep(0.2)
    screen.feed(leave_keys)
    screen.rpc.answer(request)
    wait_until_seen(screen)
    screen.command("AgentAllow")
    assert screen.actions() == [answer("once")]
    assert "rror" not in screen.messages()


def test_a_question_that_is_settled_while_text_is_locked_leaves_no_float(editor):
    screen = editor()
    screen.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    ask(screen)
    id_ = screen.session_id()
    screen.feed("<F5>")
    time.sleep(0.1)
    request = screen.begin_to_send(id_, settled())
    time.sleep(0.1)
    screen.feed("x")
    screen.rpc.answer(request)
    wait_until(lambda: not float_of(screen))
    assert "rror" not in screen.messages()


def test_a_rule_for_a_part_of_the_line_is_not_taken_for_all_of_it(editor):
    screen = ask(editor(), asked(subject="mytool a ; id", rule="allow bash mytool a $"))
    row = "s/A allows: bash mytool a $  (only this command of the line)"
    screen.wait_for_screen(row)
    screen.send(settled())
    ask(screen, asked("q2", subject="mytool a", rule="allow bash mytool a $"))
    screen.wait_for_screen("s/A allows: bash mytool a $ ")
    assert "no other part" not in screen.screen_text()


# --- the whole, and being told -----------------------------------------------------------------------------------------


def test_p_shows_the_whole_diff_in_a_tab_page_and_q_comes_back(editor):
    screen = editor()
    subject = DIFF + "".join(f"# {n}\n" for n in range(200))
    ask(screen, asked(tool="edit", subject=subject, filetype="diff", path="src/app.py"))
    enter(screen)
    screen.feed("p")
    wait_until(lambda: screen.lua("return #vim.api.nvim_list_tabpages()") == 2)
    lines = screen.lines()
    assert lines == subject.rstrip("\n").split("\n")
    wait_until(lambda: not float_of(screen)["is_focused"], "the question is here, too")
    assert "-two" not in float_of(screen)["lines"], "once is enough"
    screen.feed("q")
    wait_until(lambda: screen.lua("return #vim.api.nvim_list_tabpages()") == 1)
    wait_until(lambda: "-two" in float_of(screen)["lines"])
    assert screen.actions() == []


def test_from_the_whole_q_goes_back_into_the_question_as_long_as_it_waits(editor):
    screen = editor()
    for is_waiting in (True, False):
        ask(screen)
        enter(screen)
        screen.feed("p")
        wait_until(lambda: screen.lua("return #vim.api.nvim_list_tabpages()") == 2)
        if not is_waiting:
            screen.send(settled())
        screen.feed("q")
        wait_until(lambda: screen.lua("return #vim.api.nvim_list_tabpages()") == 1)
        if is_waiting:
            wait_until(lambda: float_of(screen)["is_focused"], "an answer can follow")
            screen.send(settled())
        wait_until(lambda: screen.lua("return vim.fn.expand('%:t')") == "code.py")
    assert screen.mode() == "n"
    assert "Nothing waits" not in screen.messages()


def test_who_looked_at_the_keys_and_the_whole_is_where_they_were_after_the_answer(editor):
    screen = editor()
    screen.command("split | split | wincmd j")
    window = screen.lua("return vim.api.nvim_get_current_win()")
    ask(screen)
    enter(screen)
    for key in ("g?", "p"):
        screen.feed(key)
        wait_until(lambda: not float_of(screen)["is_focused"], "that is where the person is")
        screen.feed("q")
        wait_until(lambda: float_of(screen)["is_focused"], "the question is there again")
    screen.feed("a")
    screen.send(settled())
    wait_until(lambda: not float_of(screen), "the question is gone")
    assert screen.lua("return vim.api.nvim_get_current_win()") == window


def test_q_leaves_the_whole_when_its_window_is_the_only_one(editor):
    screen = enter(ask(editor()))
    screen.feed("p")
    wait_until(lambda: screen.lua("return #vim.api.nvim_list_tabpages()") == 2)
    screen.command("tabonly")
    screen.feed("q")
    wait_until(lambda: float_of(screen)["is_focused"], "the question is there")
    assert "rror" not in screen.messages()


@pytest.mark.parametrize("name, shown", [("a%b.txt", "hello"), ("fifo", "the subject")])
def test_p_opens_what_it_is_about_if_that_is_a_plain_file(editor, project, name, shown):
    screen = editor()
    os.mkfifo(project / "fifo")
    (project / "a%b.txt").write_text("hello\n")
    ask(screen, asked(tool="read", subject="the subject", filetype="", path=str(project / name)))
    enter(screen).feed("p")
    wait_until(lambda: screen.lua("return vim.api.nvim_get_current_line()") == shown)


def test_autocommands_are_told(editor):
    screen = editor()
    screen.send(asked(), asked("q2", tool="edit", title="a.py"))
    id_ = screen.session_id()
    assert screen.events("AgentApprovalRequested") == [
        {"session_id": id_, "id": "q1", "tool": "bash", "title": "make all", "count": 1},
        {"session_id": id_, "id": "q2", "tool": "edit", "title": "a.py", "count": 2},
    ]


@pytest.mark.parametrize("is_wanted", [False, True])
def test_the_bell_rings_only_when_it_is_wanted(editor, is_wanted):
    screen = editor(approval={"bell": is_wanted})
    screen.lua("""
      _G.sent = {}
      vim.fn.chansend = function(channel, text) table.insert(_G.sent, { channel, text }) end
    """)
    screen.send(asked())
    assert screen.lua("return #_G.sent") == int(is_wanted)


def test_it_has_groups_of_its_own_that_survive_a_colour_scheme(editor):
    screen = editor()
    screen.command("colorscheme vim | colorscheme default")
    ask(screen)
    for group in ("Approval", "ApprovalBorder", "ApprovalTitle", "ApprovalKey"):
        assert screen.lua("return vim.api.nvim_get_hl(0, { name = ... }).link", "Agent" + group)


@pytest.mark.parametrize("key", prove_rest(["a", "d", "s", "<F5>", "<M-d>"], keep=(0, 3)))
def test_a_key_that_is_held_down_answers_one_request(editor, key):
    screen = editor(keys={"answer_once": "<F5>"})
    ask(screen, *[asked(f"q{n}") for n in (1, 2, 3, 4)])
    count_keys_after(screen, 0.3)
    if not key.startswith("<"):
        enter(screen)
    wait_until(lambda: screen.lua("return require('sanderling.approval.float').is_seen()"))
    screen.feed(key)
    wait_until(screen.actions)
    time.sleep(0.5)  # the delay after which a keyboard repeats a key
    for _ in range(40):
        screen.feed(key)
        time.sleep(0.03)
    assert len(screen.actions()) == 1
