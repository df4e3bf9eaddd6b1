"""The sandbox on the screen: what commands print, what was refused, level and network, and the ways to change them."""

import re

import pytest
from tests.conftest import prove_rest, wait_until
from tests.rpc import NvimError


def started(command="pytest -q", id_="c1"):
    return {"type": "command_started", "id": id_, "command": command}


def output(text, id_="c1"):
    return {"type": "command_output", "id": id_, "text": text}


def ended(outcome="Done in 0.3 s.", id_="c1", *, is_success=True, notes=()):
    event = {"type": "command_ended", "id": id_, "outcome": outcome}
    return event | {"is_success": is_success, "notes": list(notes)}


def delta(text, block_id=1):
    return {"type": "text_delta", "block_id": block_id, "text": text}


def changed(level="full", network="off", **fields):
    return {"type": "sandbox_changed", "level": level, "network": network} | fields


def denied(operation="connect", target="pypi.org:443", rule="the network is off"):
    return {"type": "access_denied", "operation": operation, "target": target, "rule": rule}


TURN_ENDED = {"type": "turn_ended", "stop_reason": "end_turn"}


# --- what a command prints ---------------------------------------------------------------------------------------------


def test_a_command_is_a_header_its_output_and_its_outcome(screen):
    screen.send(started(), output("1 pas"))
    screen.send(output("sed\n2 passed\n"), ended())
    assert screen.transcript() == ["$ pytest -q", "1 passed", "2 passed", "Done in 0.3 s."]
    assert screen.highlight("$ pytest -q") == ["AgentCommand"]
    assert screen.highlight("1 passed") == ["AgentOutput"]
    assert screen.highlight("2 passed") == ["AgentOutput"]
    assert "AgentNotice" in screen.highlight("Done in 0.3 s.")


def test_a_failure_and_its_notes_stand_below_output_that_has_no_line_break_at_its_end(screen):
    screen.send(
        started(),
        output("boom"),
        ended("Exit status 1 after 2.3 s.", is_success=False, notes=["All of it is in /tmp/x."]),
    )
    assert screen.transcript()[1:] == [
        "boom",
        "Exit status 1 after 2.3 s.",
        "All of it is in /tmp/x.",
    ]
    assert screen.highlight("Exit status 1 after 2.3 s.") == ["AgentError"]
    assert screen.highlight("All of it is in /tmp/x.") == ["AgentNotice"]


@pytest.mark.parametrize(
    "command, header",
    [("true", "$ true"), ("  for i in 1 2\ndo echo $i\ndone", "$ for i in 1 2 …")],
)
def test_a_silent_command_is_the_first_line_of_its_header_and_its_outcome(screen, command, header):
    screen.send(started(command), output(""), ended())
    assert screen.transcript() == [header, "Done in 0.3 s."]


def test_one_blank_line_separates_a_command_from_what_stands_around_it(screen):
    screen.in_a_turn("An answer.")
    screen.send({"type": "block_ended", "block_id": 1}, TURN_ENDED, started("true"), ended())
    screen.send({"type": "notice", "level": "info", "text": "A notice."})
    assert screen.transcript_text().endswith("An answer.\n\n$ true\nDone in 0.3 s.\n\nA notice.")


def test_two_commands_take_turns_each_under_its_header(screen):
    screen.send(started("one", "a"), started("two", "b"), output("2a\n", "b"), output("1a\n", "a"))
    screen.send(output("1b\n", "a"), ended(id_="b"), ended(id_="a"))
    assert screen.transcript_text().split("\n\n") == [
        "$ one",
        "$ two\n2a",
        "$ one (continued)\n1a\n1b",
        "$ two (continued)\nDone in 0.3 s.",
        "$ one (continued)\nDone in 0.3 s.",
    ]


def test_a_command_comes_between_two_paragraphs_of_an_answer_and_not_into_one(screen):
    screen.in_a_turn("First para")
    screen.send(started("make"), output("cc\n"), delta("graph.\n"))
    assert "make" not in screen.transcript_text()
    screen.send(delta("\nSecond para"))
    screen.send(output("ld\n"), ended(), delta("graph."))
    screen.send({"type": "block_ended", "block_id": 1}, TURN_ENDED)
    assert screen.transcript_text().partition("## Sanderling\n\n")[2].split("\n\n") == [
        "First paragraph.",
        "$ make\ncc",
        "Second paragraph.",
        "$ make (continued)\nld\nDone in 0.3 s.",
    ]


def test_a_command_does_not_wait_where_a_paragraph_has_ended(screen):
    screen.in_a_turn("A paragraph.\n\n")
    screen.send(started("make"), output("cc\n"), delta("Another."))
    assert screen.transcript_text().endswith("A paragraph.\n\n$ make\ncc\n\nAnother.")


def test_code_in_an_answer_is_not_torn_by_a_command(screen):
    screen.in_a_turn("```lua\nlocal x = 1\n")
    screen.send(started("make"), delta("\nlocal y"), delta(" = 2\n```\n\nMore."))
    assert "```lua\nlocal x = 1\n\nlocal y = 2\n```\n\n$ make\n\nMore." in screen.transcript_text()


def test_a_command_waits_for_no_more_than_a_line_of_thinking(screen):
    screen.send(
        {"type": "turn_started", "prompt": {"id": "1", "text": "go"}},
        {"type": "thinking_delta", "block_id": 1, "text": "one"},
        started("make"),
        {"type": "thinking_delta", "block_id": 1, "text": " line\nanother"},
    )
    assert "Thinking\none line\n\n\n$ make\n\nThinking\nanother" in screen.transcript_text()


def test_what_was_held_is_drawn_when_the_turn_fails(screen):
    screen.in_a_turn("Half a sen")
    screen.send(started("make"), output("cc\n"))
    screen.send({"type": "error_occurred", "kind": "cut", "message": "Cut.", "remedy": ""})
    assert screen.transcript_text().endswith("Half a sen\n\n$ make\ncc\n\nCut.")


def test_the_end_of_a_command_is_announced_when_it_stands_in_the_transcript(screen):
    screen.in_a_turn("Half a sen")
    screen.lua("""
      vim.api.nvim_create_autocmd('User', { pattern = 'AgentCommandEnded', callback = function()
        local buf = require('sanderling').transcript().buf
        _G.seen = table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, true), '\\n')
      end })
    """)
    screen.send(started("make"), ended("Exit status 2 after 1.0 s.", is_success=False))
    assert screen.events("AgentCommandEnded") == []
    screen.send(delta("tence.\n\n"))
    (event,) = screen.events("AgentCommandEnded")
    assert event.pop("session_id")
    assert event == {
        "command": "make",
        "outcome": "Exit status 2 after 1.0 s.",
        "is_success": False,
    }
    assert screen.lua("return _G.seen").endswith("$ make\nExit status 2 after 1.0 s.")


def test_fences_and_headings_in_output_disturb_nothing(screen):
    screen.send(started("cat x.md"), output("```lua\n## Title\nlocal x = 1\n**x**\n"), ended())
    screen.in_a_turn("plain **strong**\n\n# Heading\n\n")
    screen.send({"type": "block_ended", "block_id": 1}, TURN_ENDED)
    wait_until(
        lambda: "@markup.strong.markdown_inline" in screen.highlight("plain **strong**"),
        "the answer is highlighted",
    )
    wait_until(lambda: "@markup.heading.1.markdown" in screen.highlight("# Heading"))
    for line in ("```lua", "## Title", "local x = 1", "**x**"):
        assert screen.highlight(line) == ["AgentOutput"]


def test_an_answer_that_ends_with_a_blank_line_lends_a_command_no_markdown(screen):
    screen.in_a_turn("Text.\n\n")
    screen.send({"type": "block_ended", "block_id": 1}, TURN_ENDED, started("echo **x**"), ended())
    wait_until(lambda: "@spell.markdown" not in screen.highlight("$ echo **x**"))
    screen.lua("vim.wait(300)")
    assert screen.highlight("$ echo **x**") == ["AgentCommand"]


def test_bytes_that_are_no_text_are_drawn_too(screen):
    screen.send(started("cat"), output("a\0b \x1b[31m é\n"), ended())
    assert screen.transcript()[1].startswith("a")
    assert screen.transcript()[-1] == "Done in 0.3 s."
    assert "went wrong" not in screen.messages()


@pytest.mark.parametrize(
    "count, state", prove_rest([(20, "none"), (21, "open"), (200, "open"), (201, "closed")])
)
def test_long_output_is_a_fold_that_only_very_long_output_closes(screen, count, state):
    screen.send(started(), output("".join(f"{n}\n" for n in range(count))))
    assert screen.in_transcript("foldlevel(2)") == 0
    screen.send(ended())
    level, closed, closed_end = screen.in_transcript(
        "[foldlevel(2), foldclosed(2), foldclosedend(2)]"
    )
    assert level == (0 if state == "none" else 1)
    assert (closed, closed_end) == ((1, count + 1) if state == "closed" else (-1, -1))
    if state == "closed":
        assert f"▸ $ pytest -q · {count} lines" in screen.screen_text()
        assert "Done in 0.3 s." in screen.screen_text()


def test_the_line_of_a_fold_keeps_its_count_when_the_command_is_long(screen):
    screen.send(started("echo " + "x" * 200), output("x\n" * 300), ended())
    assert re.search(r"echo x+…x+ · 300 lines", screen.screen_text())


def test_long_output_is_not_folded_away_from_who_reads_it(screen):
    screen.send(started(), output("".join(f"{n}\n" for n in range(500))))
    screen.feed("<C-w>k100Gzt")
    wait_until(lambda: screen.in_transcript("line('.')") == 100)
    before = screen.in_transcript("winsaveview()")
    screen.send(ended())
    assert screen.in_transcript("winsaveview()") == before
    assert screen.in_transcript("[foldlevel(100), foldclosed(100)]") == [1, -1]


def test_folds_of_output_that_ended_while_hidden_are_as_they_would_have_been(screen):
    screen.send(started(), output("x\n" * 50))
    screen.feed("\\q")
    wait_until(lambda: screen.lua("return require('sanderling').transcript().win == nil"))
    screen.send(ended(), started("two", "c2"), output("x\n" * 500, "c2"), ended(id_="c2"))
    screen.command("AgentChat")
    assert screen.in_transcript("[foldlevel(2), foldclosed(2)]") == [1, -1]
    assert screen.in_transcript("foldclosedend(60)") == 554


def test_five_thousand_lines_in_small_frames_are_complete_and_followed(screen):
    screen.send(started("seq 5000"))
    for first in range(0, 5000, 50):
        screen.send(output("".join(f"line {n}\n" for n in range(first, first + 50))))
    assert "line 4999" in screen.screen_text()
    screen.send(ended())
    assert screen.transcript()[1:-1] == [f"line {n}" for n in range(5000)]
    marks = screen.lua(
        "return #vim.api.nvim_buf_get_extmarks(require('sanderling').transcript().buf, -1, 0, -1, {})"
    )
    assert marks < 10
    assert "▸ $ seq 5000 · 5000 lines" in screen.screen_text()


def test_a_reader_is_not_moved_by_what_a_command_prints(screen):
    screen.send(started(), output("".join(f"{n}\n" for n in range(150))))
    screen.feed("<C-w>kgg")
    wait_until(lambda: screen.in_transcript("line('.')") == 1)
    screen.send(output("more\n"), denied(), output("more\n"), ended())
    assert screen.in_transcript("[line('.'), line('w0')]") == [1, 1]


def test_output_that_comes_under_textlock_is_drawn_once_and_in_order(screen):
    screen.command("nnoremap <expr> <F5> getchar() ? '' : ''")
    screen.send(started())
    screen.feed("<F5>")
    screen.rpc.request(
        "nvim_exec_lua",
        """
        local id = vim.b[require('sanderling').transcript().buf].sanderling_session
        require('sanderling.host').receive({ session_id = id, seq = 1, events = ... })
        """,
        [[output("a\n"), denied(), output("b\n"), ended()]],
    )
    screen.feed("x")
    wait_until(lambda: screen.transcript()[-1] == "Done in 0.3 s.")
    assert [line for line in screen.transcript() if len(line) == 1] == ["a", "b"]
    assert screen.transcript_text().count("blocked") == 1


def test_bracket_keys_stop_at_commands(screen):
    screen.in_a_turn("Text.")
    screen.send(
        {"type": "block_ended", "block_id": 1}, TURN_ENDED, started("ls"), output("x\n"), ended()
    )
    header = screen.transcript().index("$ ls") + 1
    screen.feed("<C-w>kgg3]]")
    wait_until(lambda: screen.in_transcript("line('.')") == header)


# --- what the sandbox did ----------------------------------------------------------------------------------------------


def test_a_refused_connection_says_how_to_open_the_network_once(screen):
    screen.send(started("pip install x"), output("Looking"), denied(), denied(), output("gone\n"))
    screen.send(denied(target="example.com:443"), ended(is_success=False))
    assert screen.transcript() == [
        "$ pip install x",
        "Looking",
        "The sandbox blocked: connect pypi.org:443 (the network is off)",
        ":AgentNet on opens the network, :AgentNet proxy opens only the hosts in sandbox.hosts.",
        "gone",
        "The sandbox blocked: connect example.com:443 (the network is off)",
        "Done in 0.3 s.",
    ]
    assert "AgentWarning" in screen.highlight(screen.transcript()[2])
    assert "AgentRemedy" in screen.highlight(screen.transcript()[3])
    assert screen.highlight("gone") == ["AgentOutput"]


def test_a_refused_path_has_no_remedy_and_stands_alone_without_a_command(screen):
    screen.send(denied("read", "/home/me/.ssh/id_rsa", "not visible"))
    assert screen.transcript() == ["The sandbox blocked: read /home/me/.ssh/id_rsa (not visible)"]


def test_a_refusal_of_the_proxy_names_the_option(screen):
    screen.send(changed(network="proxy"), denied(rule="not a listed host"))
    assert screen.transcript()[-1] == (
        "Add the host to the option sandbox.hosts, or open the network with :AgentNet on."
    )


@pytest.mark.parametrize(
    "fields, lines, groups",
    prove_rest(
        [
            (
                {"kind": "quarantined", "reason": "must not appear", "kept_at": "/q/1"},
                [
                    "The sandbox undid a change: pkg/x (must not appear).",
                    "The written content is saved at /q/1",
                ],
                ["AgentWarning"],
            ),
            ({"kind": "replaced", "reason": "changed"}, [""], None),
            (
                {"kind": "failed", "reason": "changed"},
                [
                    "The sandbox could not undo a change: pkg/x (changed).",
                    "It can run code outside the sandbox. Check it before git, a shell or an editor reads it.",
                ],
                ["AgentError"],
            ),
            (
                {"kind": "noticed", "reason": "is new, and runs"},
                ["Look at pkg/x: it is new, and runs."],
                ["AgentWarning"],
            ),
        ]
    ),
)
def test_what_the_guard_did_or_could_not_do_is_told_but_for_what_the_host_did(
    screen, fields, lines, groups
):
    screen.send({"type": "guard_acted", "path": "pkg/x"} | fields)
    assert screen.transcript() == lines
    assert groups is None or screen.highlight(lines[0]) == groups


def test_a_problem_is_told_once_as_long_as_it_lasts(screen):
    screen.send(changed("none", problem="No."), changed("none", problem="No."))
    assert screen.transcript() == ["No."]
    assert screen.highlight("No.") == ["AgentError"]
    screen.send(changed("full"), changed("none", problem="No."))
    assert screen.transcript() == ["No.", "", "No."]


def test_a_sandbox_that_is_off_stands_under_a_banner(screen):
    screen.send(changed("full"), changed("off"), changed("off"))
    banner = (
        "THE SANDBOX IS OFF in this session: commands run with all your rights. "
        ":Agent sandbox on switches it on again."
    )
    assert screen.transcript() == [banner]
    assert screen.highlight(banner) == ["AgentError"]
    screen.send(changed("full"))
    assert screen.transcript()[-1] == "The sandbox is on again."


def test_a_change_of_which_nothing_is_said_does_not_divide_an_answer(screen):
    thinking = {"type": "thinking_delta", "block_id": 1}
    screen.send({"type": "turn_started", "prompt": {"id": "1", "text": "go"}})
    screen.send(thinking | {"text": "one\n"}, changed("full"), thinking | {"text": "two\n"})
    assert screen.transcript().count("Thinking") == 1


def test_a_change_of_the_network_is_confirmed_once_and_other_changes_are_not(screen):
    screen.send(changed(""), changed("full"), changed("full", missing=["x"]))
    assert screen.transcript() == [""]
    screen.send(changed(network="on"), changed(network="on"))
    assert screen.transcript() == ["Network on: new commands reach any address."]


def test_a_change_of_the_network_is_a_message_where_the_chat_is_hidden(screen):
    screen.feed("\\q")
    wait_until(lambda: screen.lua("return require('sanderling').transcript().win == nil"))
    screen.send(changed(network="proxy"))
    assert "Network proxy for new commands." in screen.messages()
    assert not screen.is_blocked()


# --- winbar and statusline ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "level, network, text, group",
    prove_rest(
        [
            ("", "off", "sbx:… net:off", "AgentStatus"),
            ("full", "off", "sbx:full net:off", "AgentStatus"),
            ("full-bwrap", "proxy", "sbx:full(bwrap) net:proxy", "AgentStatus"),
            ("namespaces", "off", "sbx:ns partial net:off", "AgentWarning"),
            ("landlock", "off", "sbx:landlock partial net:off", "AgentWarning"),
            ("none", "off", "sbx:none blocked net:off", "AgentError"),
            ("outer", "on", "sbx:outer container net:on", "AgentWarning"),
            ("off", "off", "sbx:OFF unprotected net:on", "AgentError"),
        ]
    ),
)
def test_level_and_network_are_in_the_winbar_also_a_narrow_one_and_in_the_statusline(
    screen, level, network, text, group
):
    screen.lua("vim.api.nvim_win_set_width(require('sanderling').transcript().win, 30)")
    screen.feed("<C-w>k")
    screen.send(changed(level, network))
    bar, words = screen.winbar()
    assert bar.rstrip().endswith(text)
    assert text in screen.screen_text()
    assert words[text.partition(" net:")[0]] == group
    network_group = "AgentWarning" if text.endswith("net:on") else "AgentStatus"
    assert words["net:" + text.partition(" net:")[2]] == network_group
    assert screen.statusline().endswith(" · " + text)


def test_in_a_very_narrow_window_the_words_lose_their_explanation_and_not_their_meaning(screen):
    screen.lua("vim.api.nvim_win_set_width(require('sanderling').transcript().win, 18)")
    screen.send(changed("landlock", "on"))
    assert screen.winbar()[0].rstrip().endswith("landlock net:on")
    screen.send(changed("off"))
    assert "sbx:OFF net:on" in screen.screen_text()


def test_the_model_gives_way_first_in_a_narrow_winbar(screen):
    screen.send({"type": "session_opened", "model": "claude-sonnet-5-5"}, changed())
    screen.lua("vim.api.nvim_win_set_width(require('sanderling').transcript().win, 45)")
    bar, _ = screen.winbar()
    assert "claude" not in bar
    assert bar.rstrip().endswith("  sbx:full net:off")


def test_a_float_on_a_small_screen_shows_command_level_and_network(start_screen):
    screen = start_screen(columns=50, lines=18)
    screen.open_chat(position="float", focus=True)
    screen.send(changed("landlock"), started("ls"), output("file\n"), ended())
    text = screen.screen_text()
    assert "sbx:landlock partial net:off" in text
    assert "$ ls" in text
    assert "Done in 0.3 s." in text


def test_the_prompts_winbar_counts_commands_while_the_model_rests(screen):
    screen.send({"type": "commands_running", "count": 1})
    assert "running 1 command" in screen.screen_text()
    screen.send({"type": "commands_running", "count": 2})
    assert "running 2 commands" in screen.screen_text()
    assert "running 2 commands" in screen.statusline()
    screen.in_a_turn()
    assert "running" not in screen.screen_text()
    screen.send(TURN_ENDED, {"type": "commands_running", "count": 0})
    assert "idle" in screen.screen_text()


# --- running commands --------------------------------------------------------------------------------------------------


def test_agentrun_takes_the_command_raw_and_leaves_the_cursor_where_it_is(start_screen):
    screen = start_screen()
    screen.feed(r""":Agent run echo "a % # $HOME <lt>cword> \| b" | wc -l<CR>""")
    (action,) = wait_until(lambda: screen.actions("run_command"))
    assert action["command"] == r"""echo "a % # $HOME <cword> \| b" | wc -l"""
    assert screen.lua("return vim.bo.filetype") == ""
    assert screen.transcript_win()


def test_agentrun_completes_commands_and_then_files(screen, project):
    (project / "some_file.txt").touch()
    complete = "return vim.fn.getcompletion(..., 'cmdline')"
    assert "cat" in screen.lua(complete, "Agent run ca")
    assert screen.lua(complete, "Agent run cat some_f") == ["some_file.txt"]
    assert screen.lua(complete, "Run cat some_f") == ["some_file.txt"]


def test_a_prompt_that_begins_with_an_exclamation_mark_is_a_command(screen):
    screen.feed("i!for i in 1 2<CR>do echo $i; done<C-s>")
    (action,) = wait_until(lambda: screen.actions("run_command"))
    assert action["command"] == "for i in 1 2\ndo echo $i; done"
    assert screen.actions("submit_prompt") == []
    assert screen.prompt_lines() == [""]
    screen.feed("<M-p>")
    wait_until(lambda: screen.prompt_lines() == ["!for i in 1 2", "do echo $i; done"])


def test_only_what_is_typed_into_the_prompt_can_be_a_command(screen):
    screen.submit("!ls")
    screen.command("AgentAsk !ls")
    screen.feed("i !ls<C-s>")
    wait_until(lambda: len(screen.actions("submit_prompt")) == 3)
    assert screen.actions("run_command") == []


def test_an_exclamation_mark_alone_is_refused_and_stays(screen):
    screen.feed("i!  <C-s>")
    sentence = "No command after `!`. Nothing was run."
    screen.wait_for_transcript(sentence)
    assert screen.prompt_lines() == ["!  "]
    assert screen.actions() == []


def test_a_command_that_the_host_never_started_stands_in_the_prompt_again(screen):
    screen.feed("i!make<C-s>")
    wait_until(lambda: screen.actions("run_command"))
    screen.lose_host()
    assert screen.prompt_lines() == ["!make"]
    assert screen.events("AgentCommandEnded") == []


def test_a_command_that_ran_when_the_host_ended_is_announced_as_interrupted(screen):
    screen.command("Agent run make")
    (action,) = screen.actions("run_command")
    screen.send(started("make", action["id"]), {"type": "commands_running", "count": 1})
    screen.lose_host()
    assert screen.prompt_lines() == [""]
    assert [event["outcome"] for event in screen.events("AgentCommandEnded")] == ["Interrupted."]
    assert "running" not in screen.screen_text()


@pytest.mark.parametrize("stop", ["<C-c>", "i<C-c>", ":AgentStop<CR>", "<C-w>k<C-c>"])
def test_a_command_is_stopped_while_no_turn_runs(screen, stop):
    screen.command("Agent run sleep 100")
    screen.screen()  # Neovim maps no <C-c> that comes while it draws
    screen.feed(stop)
    wait_until(lambda: screen.actions("cancel_turn"))


def test_without_a_command_or_a_turn_nothing_is_stopped(screen):
    screen.command("Agent run true")
    (action,) = screen.actions("run_command")
    screen.send(started("true", action["id"]), ended(id_=action["id"]))
    screen.command("AgentStop")
    assert screen.actions("cancel_turn") == []


@pytest.mark.parametrize(
    "typed, action",
    prove_rest(
        [
            ("net on", {"type": "set_network", "mode": "on"}),
            ("sandbox on", {"type": "set_sandbox", "is_on": True}),
            ("Agent sandbox on", {"type": "set_sandbox", "is_on": True}),
        ]
    ),
)
def test_the_words_net_and_sandbox_work_in_the_chat_and_ask_nothing(screen, typed, action):
    screen.feed(f":{typed}<CR>")
    wait_until(lambda: screen.actions() == [action])


def test_the_word_run_works_in_the_chat_and_its_bar_belongs_to_the_command(screen):
    screen.feed(":run ls | wc<CR>")
    (action,) = wait_until(lambda: screen.actions("run_command"))
    assert action["command"] == "ls | wc"


# --- network and sandbox -----------------------------------------------------------------------------------------------


def test_agentnet_works_before_the_chat_was_opened(start_screen):
    screen = start_screen()
    assert screen.lua("return require('sanderling').net()") == "off"
    screen.command("AgentNet on")
    assert screen.actions() == [{"type": "set_network", "mode": "on"}]
    assert screen.lua("return #vim.api.nvim_list_wins()") == 1
    screen.send(changed(network="on"))
    assert screen.lua("return require('sanderling').net()") == "on"


def test_agentnet_alone_tells_the_network_in_one_line(start_screen):
    screen = start_screen(columns=80)
    screen.feed(":AgentNet<CR>")
    sentence = "Network off: commands reach nothing outside the session."
    screen.wait_for_message(sentence)
    assert not screen.is_blocked()
    assert screen.actions() == []


def test_agentnet_completes_its_words_and_refuses_others_naming_them(screen):
    complete = "return vim.fn.getcompletion(..., 'cmdline')"
    assert screen.lua(complete, "AgentNet ") == ["off", "proxy", "on"]
    assert screen.lua(complete, "AgentNet o") == ["off", "on"]
    assert screen.lua(complete, "Agent sandbox o") == ["off", "on"]
    screen.feed(":AgentNet maybe<CR>")
    screen.wait_for_message("AgentNet: off, proxy or on, not 'maybe'.")
    assert not screen.is_blocked()
    with pytest.raises(NvimError, match="'off', 'proxy' or 'on'"):
        screen.lua("require('sanderling').net('maybe')")
    with pytest.raises(NvimError, match="'status', 'off' or 'on'"):
        screen.lua("require('sanderling').sandbox('maybe')")
    assert screen.actions() == []


def test_what_a_command_says_is_seen_where_somebody_has_scrolled_up(screen):
    screen.in_a_turn("\n".join(f"line {n}" for n in range(200)))
    screen.send({"type": "turn_ended", "stop_reason": "end_turn"})
    screen.feed("<C-w>kgg<C-w>j")
    wait_until(lambda: "line 199" not in screen.screen_text())
    screen.command("Agent sandbox")
    screen.wait_for_screen("line 199")


def test_agentsandbox_says_that_a_container_is_the_sandbox_and_what_is_open(screen):
    screen.send(changed("outer", "on", missing=["The network is that of the container."]))
    screen.command("Agent sandbox")
    assert screen.transcript() == [
        "Sandbox outer: the container around the agent confines commands, and nothing else does.",
        "Missing here:",
        "- The network is that of the container.",
    ]
    assert screen.highlight("Missing here:") == ["AgentWarning"]


def test_agentsandbox_tells_all_in_the_transcript(start_screen):
    screen = start_screen()
    screen.lua("require('sanderling').net('off')")
    screen.send(changed("landlock", missing=["Other processes are seen.", "So is the network."]))
    screen.command("Agent sandbox")
    assert screen.transcript() == [
        "Sandbox landlock, weaker than full: commands have no namespaces of their own.",
        "Network off: commands reach nothing outside the session.",
        "Missing here:",
        "- Other processes are seen.",
        "- So is the network.",
    ]
    assert screen.highlight("Missing here:") == ["AgentWarning"]
    assert screen.lua("return vim.bo.filetype") == ""
    assert "So is the network." in screen.screen_text()


@pytest.mark.parametrize(
    "choice, actions", [(1, [{"type": "set_sandbox", "is_on": False}]), (2, [])]
)
def test_the_sandbox_is_switched_off_only_when_the_person_says_so(screen, choice, actions):
    screen.lua("vim.ui.select = function(...) _G.asked = { ... } end")
    screen.command("Agent sandbox off")
    assert screen.actions() == []
    screen.lua("_G.asked[3](_G.asked[1][...])", choice)
    assert screen.actions() == actions


def test_an_answer_for_a_session_that_is_gone_switches_nothing_off(screen):
    screen.lua("vim.ui.select = function(...) _G.asked = { ... } end")
    screen.command("Agent sandbox off")
    screen.lua("require('sanderling').clear()")
    screen.lua("_G.asked[3](_G.asked[1][1])")
    assert screen.actions("set_sandbox") == []


# --- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"min_level": "some"}, "option 'sandbox.min_level' must be one of 'full', 'full-bwrap'"),
        ({"hosts": "pypi.org"}, "option 'sandbox.hosts' must be a list of hosts"),
        ({"hosts": ["https://pypi.org"]}, "option 'sandbox.hosts' must be a list of hosts"),
        ({"read": ["data"]}, "option 'sandbox.read' must be a list of absolute paths"),
        ({"env": ["A B"]}, "option 'sandbox.env' must be a list of names of environment variables"),
        ({"wirte": []}, "unknown option 'sandbox.wirte'; did you mean 'sandbox.write'?"),
    ],
)
def test_a_wrong_option_of_the_sandbox_is_named(start_nvim, options, message):
    child = start_nvim(columns=200)
    child.setup(sandbox=options)
    assert message in child.messages()


def test_the_host_is_given_the_options_of_the_sandbox(child):
    child.setup(sandbox={"read": ["~/data"], "hosts": ["pypi.org"], "env": ["CI"]})
    given = child.lua("return require('sanderling.config').host_settings().options")
    assert given == {
        "sandbox": {"hosts": ["pypi.org"], "read": [f"{child.home}/data"], "env": ["CI"]}
    }
