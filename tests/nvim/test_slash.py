"""Slash commands: what is typed into the prompt, the same verbs as commands of the editor, and the menu that offers them."""

import pytest
from tests.conftest import prove_rest, wait_until

COMMANDS = {
    "type": "slash_commands_changed",
    "commands": [
        {"name": "review", "description": "Review the changes", "arguments": "[what]"},
        {"name": "ticket:new", "description": "Write\x1b a ticket", "source": "project"},
        {"name": "clear", "description": "Not what you think", "source": "project"},
    ],
}


def menu(screen):
    """The words of the completion menu, None when there is none."""
    return screen.lua("""
      local info = vim.fn.complete_info({ 'pum_visible', 'matches' })
      return info.pum_visible == 1 and vim.tbl_map(function(item) return item.word end, info.matches) or nil
    """)


def wait_for_menu(screen, words):
    return wait_until(lambda: menu(screen) == words, f"the menu has {words}")


def words_typed(screen):
    """The prompts that the history would keep across sessions."""
    return screen.lua("return require('sanderling.prompt.history').entries()")


# --- in the prompt -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed, action",
    prove_rest(
        [
            ("/usage", {"type": "show_usage"}),
            ("/cost", {"type": "show_usage"}),
            ("/settings", {"type": "show_settings"}),
            ("/trust", {"type": "show_trust"}),
            ("/compact", {"type": "compact", "focus": ""}),
            ("/compact the parser", {"type": "compact", "focus": "the parser"}),
            ("/compact the parser<CR>and its tests", {"focus": "the parser\nand its tests"}),
            ("/compact undo", {"type": "undo_compaction"}),
            ("/model claude-opus-5-5", {"type": "set_model", "model": "claude-opus-5-5"}),
            ("/model", {"type": "list_models"}),
            ("/model all", {"type": "list_models", "scope": "all"}),
            ("/mode plan", {"type": "set_mode", "mode": "plan"}),
            ("/net  proxy ", {"type": "set_network", "mode": "proxy"}),
            ("/sandbox on", {"type": "set_sandbox", "is_on": True}),
        ],
        (0, 5, -1),
    ),
)
def test_a_command_in_the_prompt_is_sent_and_is_kept_in_the_history(screen, typed, action):
    screen.feed(f"i{typed}<C-s>")
    (sent,) = wait_until(screen.actions)
    assert sent | action == sent
    assert screen.prompt_lines() == [""]
    assert words_typed(screen) == [typed.replace("<CR>", "\n").rstrip()] or typed.endswith(" ")


def test_without_an_argument_mode_and_network_are_told(screen):
    screen.feed("i/mode<C-s>")
    screen.wait_for_message("Mode ask: changes")
    screen.feed("/net<C-s>")
    screen.wait_for_message("Network off: commands reach nothing")
    assert screen.actions() == []


def test_exit_hides_the_chat(screen):
    screen.feed("i/exit<C-s>")
    wait_until(lambda: not screen.transcript_win())
    assert screen.mode() == "n"


def test_clear_begins_anew_in_the_same_windows(screen):
    screen.in_a_turn("An answer.")
    screen.feed("i/clear<C-s>")
    wait_until(lambda: screen.transcript() == [""])
    assert screen.prompt_lines() == [""]


@pytest.mark.parametrize(
    "typed, sentence",
    prove_rest(
        [
            ("/mdoe plan", "Unknown command /mdoe; did you mean /mode?"),
            ("/zzzzzz", "Unknown command /zzzzzz; /help lists them. Type a space first"),
            ("/tiket:new", "Unknown command /tiket:new; did you mean /ticket:new?"),
            ("/clear all", "/clear takes no argument."),
            ("/clear<CR>all", "/clear takes no argument."),
            ("/net o<CR>n", "/net: off, proxy or on, not 'o …'."),
            ("/sandbox onn", "/sandbox: status, off or on, not 'onn'."),
            ("/mode autoo", "/mode: ask, auto or plan, not 'autoo'."),
        ]
    ),
)
def test_what_is_no_command_is_refused_and_stays(screen, typed, sentence):
    screen.send(COMMANDS)
    screen.feed(f"i{typed}<C-s>")
    screen.wait_for_message(sentence)
    assert screen.prompt_lines() == typed.split("<CR>")
    assert screen.actions() == []
    assert words_typed(screen) == []
    assert not screen.is_blocked()


@pytest.mark.parametrize(
    "typed, path",
    [
        ("/ship", ".claude/commands/ship.md"),
        ("/git:pr 3", ".agents/commands/git/pr.md"),
        ("/release", ".claude/skills/release/SKILL.md"),
    ],
)
def test_a_command_that_is_not_trusted_says_so(screen, typed, path):
    screen.send(COMMANDS)
    screen.send({"type": "trust_needed", "paths": ["AGENTS.md", path]})
    screen.feed(f"i{typed}<C-s>")
    screen.wait_for_message(f"because you have not trusted {path}: :Agent trust")
    assert screen.prompt_lines() == [typed]
    assert screen.actions("submit_prompt") == []


@pytest.mark.parametrize(
    "typed",
    [
        *("/etc is a directory", "/etc/hosts says what?", " /usage", "/Usage", "//usage", "/"),
        "usage<CR>/usage",
    ],
)
def test_what_only_looks_like_a_command_is_a_prompt(screen, typed):
    screen.send(COMMANDS)
    screen.feed(f"i{typed}<C-s>")
    (sent,) = wait_until(screen.actions)
    assert sent["prompt"]["text"] == typed.replace("<CR>", "\n")


@pytest.mark.parametrize(
    "commands, typed",
    [([COMMANDS], "/ticket:new the parser<CR>crashes"), ([], "/mycommand")],
    ids=["of a Markdown file", "before the host has told of its commands"],
)
def test_a_command_that_may_be_the_hosts_is_sent_as_it_was_typed(screen, commands, typed):
    screen.send(*commands)
    screen.feed(f"i{typed}<C-s>")
    (sent,) = wait_until(screen.actions)
    assert sent["type"] == "submit_prompt"
    assert sent["prompt"]["text"] == typed.replace("<CR>", "\n")


def test_the_command_of_a_markdown_file_steers_with_the_key_that_steers(screen):
    screen.send(COMMANDS)
    screen.in_a_turn()
    screen.feed("i/review it<M-s>")
    (sent,) = wait_until(screen.actions)
    assert (sent["type"], sent["prompt"]["text"]) == ("steer_turn", "/review it")


def test_what_is_sent_in_place_of_a_command_is_shown_in_a_fold(screen):
    prompt = {"id": "p1", "text": "/review it", "sent": "Review it.\n\nAll of it."}
    screen.send({"type": "turn_started", "prompt": prompt})
    assert "▸ expanded prompt · 3 lines" in screen.screen_text()
    assert "Review it." not in screen.screen_text()
    steered = prompt | {"id": "p2", "text": "/review that", "sent": "Review that."}
    screen.send({"type": "prompt_steered", "prompt": steered})
    screen.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    screen.command("normal! zR")
    text = screen.screen_text()
    assert text.index("/review it") < text.index("Review it.") < text.index("Sanderling")
    assert text.index("/review that") < text.index("Review that.")


RETURNED = {
    "type": "prompts_returned",
    "prompts": [
        {"id": "1", "text": "plain\nsteer"},
        {"id": "2", "text": "/review 14"},
        {"id": "3", "text": "words"},
        {"id": "4", "text": "more words"},
    ],
}


def test_prompts_that_come_back_are_sent_again_with_each_command_on_its_own(screen):
    screen.send(COMMANDS, RETURNED)
    assert screen.prompt_lines() == ["plain", "steer", "/review 14", "words", "more words"]
    rows = [row for row in screen.screen() if "sent on its own" in row]
    assert [row.split("sent")[0].split("│")[-1].split()[0] for row in rows] == ["/review", "words"]
    screen.feed("<C-s>")
    sent = wait_until(lambda: len(screen.actions()) == 3 and screen.actions())
    assert [each["prompt"]["text"] for each in sent] == [
        "plain\nsteer",
        "/review 14",
        "words\nmore words",
    ]
    screen.feed("<Esc>u")
    wait_until(lambda: "/review 14" in screen.prompt_lines())
    screen.feed("<C-s>")
    wait_until(lambda: len(screen.actions()) == 6)
    assert screen.actions()[4]["prompt"]["text"] == "/review 14"


def test_what_is_being_typed_stays_apart_from_a_command_that_comes_back(screen):
    screen.send(COMMANDS)
    screen.feed("ihalf typed")
    wait_until(lambda: screen.prompt_lines() == ["half typed"])
    screen.send({"type": "prompts_returned", "prompts": RETURNED["prompts"][1:2]})
    screen.feed(", done<C-s>")
    sent = wait_until(lambda: len(screen.actions()) == 2 and screen.actions())
    assert [each["prompt"]["text"] for each in sent] == ["/review 14", "half typed, done"]


def test_what_is_refused_of_several_stands_in_the_prompt_with_what_comes_after_it(screen):
    texts = ["one", "/nonsense", "three"]
    prompts = [{"id": str(n), "text": text} for n, text in enumerate(texts)]
    screen.send(COMMANDS, {"type": "prompts_returned", "prompts": prompts})
    screen.feed("<C-s>")
    wait_until(lambda: screen.prompt_lines() == ["/nonsense", "three"])
    assert [each["prompt"]["text"] for each in screen.actions()] == ["one"]
    screen.feed("ggdd<C-s>")
    wait_until(lambda: len(screen.actions()) == 2)


def test_a_line_that_is_taken_out_or_rewritten_leaves_no_seam(screen):
    screen.send(COMMANDS, RETURNED)
    screen.feed("<Esc>3Gdd")
    wait_until(lambda: screen.prompt_lines() == ["plain", "steer", "words", "more words"])
    screen.feed("3Gdd<C-s>")
    (sent,) = wait_until(screen.actions)
    assert sent["prompt"]["text"] == "plain\nsteer\nmore words"


def test_a_markdown_file_cannot_take_a_name_of_ours(screen):
    screen.send(COMMANDS)
    screen.feed("i/clear<C-s>")
    wait_until(lambda: screen.prompt_lines() == [""])
    assert screen.actions("submit_prompt") == []


# --- help --------------------------------------------------------------------------------------------------------------


def test_help_shows_each_command_with_its_line_and_those_of_markdown_files(screen):
    screen.send(COMMANDS)
    screen.feed("i/help<C-s>")
    wait_until(lambda: screen.lua("return vim.api.nvim_win_get_config(0).relative") == "editor")
    lines = screen.lines()
    shown = {line.split()[0]: line for line in lines if line.startswith("/")}
    required = (
        "help clear new resume compact model mode net usage cost settings login logout export"
    )
    assert {f"/{name}" for name in f"{required} review exit".split()} <= shown.keys()
    assert shown["/compact"].startswith("/compact [focus|undo]  ")
    assert shown["/review"].startswith("/review [what]  ")
    assert shown["/review"].endswith("  Review the changes")
    assert shown["/ticket:new"].endswith("  Write  a ticket")
    assert len([line for line in lines if line.startswith("/clear")]) == 1
    assert all(len(line.split("  ", 1)[1].strip()) > 3 for line in shown.values())
    assert screen.mode() == "n"
    screen.feed("q")
    wait_until(lambda: screen.lua("return vim.bo.filetype") == "sanderling_prompt")


# --- models ------------------------------------------------------------------------------------------------------------


CATCH_SELECT = "vim.ui.select = function(...) _G.asked = { ... } end"


def test_models_are_chosen_from_a_list(screen):
    screen.lua(CATCH_SELECT)
    screen.command("AgentModel")
    screen.answer("list_models", models=["claude-a", "claude-b"])
    assert wait_until(lambda: screen.lua("return _G.asked and _G.asked[1]")) == [
        "claude-a",
        "claude-b",
    ]
    screen.lua("_G.asked[3](_G.asked[1][2])")
    assert screen.actions("set_model") == [{"type": "set_model", "model": "claude-b"}]


def test_models_that_are_known_are_offered_at_once(screen):
    screen.lua(CATCH_SELECT)
    screen.send({"type": "local_models_known", "models": ["claude-a"]})
    assert screen.lua("return _G.asked == nil")
    screen.feed("i/model<C-s>")
    assert wait_until(lambda: screen.lua("return _G.asked and _G.asked[1]")) == ["claude-a"]
    assert screen.actions() == []


def test_a_list_that_comes_while_something_else_is_typed_asks_nothing(screen):
    screen.lua(CATCH_SELECT)
    screen.feed("i/model<C-s>")
    wait_until(lambda: screen.actions("list_models"))
    screen.feed("By the way")
    wait_until(lambda: screen.prompt_lines() == ["By the way"])
    screen.answer("list_models", models=["claude-a", "claude-b"])
    screen.wait_for_message("Run :AgentModel again")
    assert screen.lua("return _G.asked == nil")


def test_with_a_bang_all_providers_are_asked_and_who_does_not_answer_is_told(screen):
    screen.lua(CATCH_SELECT)
    screen.send({"type": "local_models_known", "models": ["claude-a"]})
    screen.command("AgentModel!")
    assert screen.actions("list_models") == [{"type": "list_models", "scope": "all"}]
    screen.answer(
        "list_models",
        models=["claude-a", "ollama:qwen3:8b"],
        notes={"claude-a": "window 1,000,000, $2/$10 per M"},
        problems=["groq: Cannot reach api.groq.com (timed out)."],
    )
    wait_until(lambda: screen.lua("return _G.asked ~= nil"))
    assert screen.lua("return vim.tbl_map(_G.asked[2].format_item, _G.asked[1])") == [
        "claude-a         window 1,000,000, $2/$10 per M",
        "ollama:qwen3:8b",
    ]
    assert "groq: Cannot reach api.groq.com (timed out)." in screen.transcript_text()


def test_models_are_completed_with_their_provider_or_without_it(screen):
    screen.lua("""
      local host = require('sanderling.host')
      host.is_running = function() return true end
      local request = host.request
      host.request = function(asked, on_answer)
        if asked.type ~= 'list_models' then return request(asked, on_answer) end
        table.insert(_G.actions, { type = asked.type, scope = asked.scope })
        on_answer({ models = { 'claude-a', 'openai:gpt-6.2-sol', 'ollama:qwen3:8b' } })
      end
    """)
    complete = "return vim.fn.getcompletion(..., 'cmdline')"
    known = ["claude-a", "openai:gpt-6.2-sol", "ollama:qwen3:8b"]
    assert screen.lua(complete, "AgentModel ") == ["claude-sonnet-5-5"]
    wait_until(lambda: screen.lua(complete, "AgentModel ") == known)
    assert screen.lua(complete, "AgentModel openai:g") == ["openai:gpt-6.2-sol"]
    assert screen.lua(complete, "AgentModel qwen") == ["ollama:qwen3:8b"]
    assert {"type": "list_models", "scope": "known"} in screen.actions("list_models")


def test_a_provider_is_tried_and_its_row_shown(screen):
    screen.command("Agent provider_test ollama:qwen3:8b")
    assert screen.actions("test_provider") == [
        {"type": "test_provider", "provider": "ollama:qwen3:8b"}
    ]
    assert "Testing the provider" in screen.messages()
    row = "| ollama:qwen3:8b | 65,536 |    ? |     ? | ✓ 4 ms | ✓ 2 s | ✓ 3 s |  none |"
    screen.answer("test_provider", title="Provider", text=f"{row}\n")
    screen.wait_for_screen("✓ 4 ms")


def test_without_a_session_no_provider_is_tried(start_nvim):
    child = start_nvim()
    child.command("Agent provider_test")
    assert "No session is open" in child.messages()


# --- the menu ----------------------------------------------------------------------------------------------------------


def test_a_slash_opens_a_menu_that_inserts_nothing_by_itself(screen):
    screen.feed("i/")
    words = wait_until(lambda: menu(screen))
    assert words[0] == "/help"
    assert "/model" in words
    assert screen.prompt_lines() == ["/"]
    assert "show these commands" in screen.screen_text()
    screen.feed("mo")
    wait_for_menu(screen, ["/model", "/mode"])
    assert screen.prompt_lines() == ["/mo"]


def test_tab_goes_through_the_menu_and_is_a_tab_without_it(screen):
    screen.feed("i/mo")
    wait_for_menu(screen, ["/model", "/mode"])
    screen.feed("<Tab>")
    wait_until(lambda: screen.prompt_lines() == ["/model"])
    screen.feed("<Tab>")
    wait_until(lambda: screen.prompt_lines() == ["/mode"])
    screen.feed(" ")
    wait_for_menu(screen, ["ask", "auto", "plan"])
    screen.feed("p")
    wait_for_menu(screen, ["plan"])
    screen.feed("<Tab><C-s>")
    (sent,) = wait_until(screen.actions)
    assert sent == {"type": "set_mode", "mode": "plan"}
    screen.feed("a<Tab>b")
    wait_until(lambda: screen.prompt_lines() == ["a\tb"])


def test_sending_with_the_menu_open_leaves_an_empty_prompt_in_which_typing_goes_on(screen):
    screen.feed("i/usag")
    wait_for_menu(screen, ["/usage"])
    screen.feed("e<C-s>")
    wait_until(lambda: screen.actions("show_usage"))
    screen.feed("/s<C-s>")
    wait_until(lambda: "Unknown command /s" in screen.messages() or screen.actions("submit_prompt"))
    screen.feed("<C-u>hello<CR>there<C-s>")
    sent = wait_until(lambda: screen.actions("submit_prompt"))
    assert sent[-1]["prompt"]["text"] == "hello\nthere"
    assert menu(screen) is None


def test_return_with_the_menu_open_is_a_line_break(screen):
    screen.feed("i/co")
    wait_until(lambda: menu(screen))
    screen.feed("<CR>")
    wait_until(lambda: screen.prompt_lines() == ["/co", ""])
    assert menu(screen) is None


def test_a_menu_that_was_sent_away_stays_away_until_the_next_insert(screen):
    screen.feed("i/c")
    wait_until(lambda: menu(screen))
    screen.feed("<C-e>")
    wait_until(lambda: menu(screen) is None)
    screen.feed("o")
    wait_until(lambda: screen.prompt_lines() == ["/co"])
    assert menu(screen) is None
    screen.feed("<Esc>A")
    screen.feed("m")
    wait_for_menu(screen, ["/compact"])
    screen.feed("<C-e>")
    wait_until(lambda: menu(screen) is None)
    screen.feed("<C-u><C-u>")
    wait_until(lambda: screen.prompt_lines() == [""])
    screen.feed("/ex")
    wait_for_menu(screen, ["/export", "/exit"])


def test_the_menu_comes_only_for_the_beginning_of_the_first_line(screen):
    screen.feed("ilook at /u")
    wait_until(lambda: screen.prompt_lines() == ["look at /u"])
    assert menu(screen) is None
    screen.feed("<CR>/u")
    wait_until(lambda: screen.prompt_lines() == ["look at /u", "/u"])
    assert menu(screen) is None


def test_a_command_from_the_history_opens_no_menu(screen):
    screen.feed("i/mode<C-s>/net<C-s>")
    screen.wait_for_message("Network off")
    screen.feed("<M-p>")
    wait_until(lambda: screen.prompt_lines() == ["/net"])
    screen.feed("<M-p>")
    wait_until(lambda: screen.prompt_lines() == ["/mode"])
    assert menu(screen) is None


def test_the_menu_offers_markdown_commands_and_the_models_that_are_known(screen):
    screen.send(COMMANDS, {"type": "local_models_known", "models": ["claude-a", "claude-b"]})
    screen.feed("i/ti")
    wait_for_menu(screen, ["/ticket:new"])
    screen.feed("<Esc>cc/model ")
    wait_for_menu(screen, ["claude-a", "claude-b"])


def test_omnifunc_offers_the_same_in_the_users_own_way(screen):
    screen.feed("i/mod<Esc>a<C-x><C-o>")
    wait_for_menu(screen, ["/model", "/mode"])
    assert screen.prompt_lines() == ["/model"]
    screen.feed("<C-n>")
    wait_until(lambda: screen.prompt_lines() == ["/mode"])
    screen.feed(" <C-x><C-o>")
    wait_until(lambda: screen.prompt_lines() == ["/mode ask"])


def test_a_tab_of_the_users_own_and_another_completion_are_left_alone(screen):
    screen.lua("vim.keymap.set('i', '<Tab>', 'mine', { buffer = 0 })")
    screen.feed("i/mo")
    wait_until(lambda: menu(screen))
    screen.feed("<Tab>")
    wait_until(lambda: screen.prompt_lines() == ["/momine"])
    screen.feed("<Esc>cctwo words<CR>")
    wait_until(lambda: screen.prompt_lines() == ["two words", ""])
    screen.feed("w<C-x><C-n>")
    wait_until(lambda: screen.prompt_lines() == ["two words", "words"])
    assert (
        screen.lua("return vim.api.nvim_get_option_value('completeopt', { scope = 'local' })") == ""
    )


# --- commands of the editor --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command, action",
    prove_rest(
        [
            ("Agent compact", {"type": "compact", "focus": ""}),
            ("Agent compact the parser", {"type": "compact", "focus": "the parser"}),
            ("Agent compact!", {"type": "undo_compaction"}),
            ("AgentModel claude-x", {"type": "set_model", "model": "claude-x"}),
            ("Agent usage", {"type": "show_usage"}),
            ("Agent settings", {"type": "show_settings"}),
            ("Agent trust", {"type": "show_trust"}),
        ]
    ),
)
def test_the_commands_of_the_editor_do_the_same(screen, command, action):
    screen.command(command)
    assert screen.actions() == [action]


def test_they_show_a_chat_where_there_is_none_and_leave_the_cursor_where_it_is(start_screen):
    screen = start_screen()
    screen.command("AgentModel")
    assert screen.actions("list_models")
    assert screen.transcript_win()
    assert screen.lua("return vim.bo.filetype") == ""


@pytest.mark.parametrize(
    "command, sentence",
    prove_rest(
        [
            ("Agent usage", "No session is open. :AgentChat opens one."),
            ("Agent settings", "No session is open. :AgentChat opens one."),
            ("Agent compact", "No session is open. :AgentChat opens one."),
            ("Agent queue", "No prompts are queued."),
            ("Agent retry", "Nothing to retry."),
        ]
    ),
)
def test_a_look_at_no_session_begins_none_and_says_so(start_screen, command, sentence):
    screen = start_screen()
    screen.command(command)
    assert sentence in screen.messages()
    assert screen.actions() == []
    assert screen.lua("return require('sanderling').list()") == []


def test_agentreview_is_the_prompt(screen):
    screen.command("Agent review the parser")
    (sent,) = screen.actions()
    assert sent["prompt"]["text"] == "/review the parser"


def test_agentmodel_and_agentcompact_complete(screen):
    complete = "return vim.fn.getcompletion(..., 'cmdline')"
    screen.send({"type": "local_models_known", "models": ["claude-a", "claude-b"]})
    assert screen.lua(complete, "AgentModel claude-") == ["claude-a", "claude-b"]
    assert screen.lua(complete, "Agent compact u") == ["undo"]


def test_where_no_request_waits_nothing_is_retried(screen):
    screen.in_a_turn()
    screen.command("Agent retry")
    assert screen.actions() == []
    assert "Nothing to retry." in screen.messages()


def test_sessions_are_opened_and_closed_from_the_prompt(screen):
    first = screen.lua("return require('sanderling.session.live').current_id()")
    screen.feed("i/new<C-s>")
    wait_until(
        lambda: screen.lua("return require('sanderling.session.live').current_id()") != first
    )
    screen.feed("<Esc>i/close<C-s>")
    wait_until(
        lambda: screen.lua("return require('sanderling.session.live').current_id()") == first
    )
    assert screen.prompt_lines() == [""]
    assert screen.lua("return require('sanderling.host.log').lines") == []
    assert not screen.is_blocked()


@pytest.mark.parametrize("columns", [80, 120])
def test_the_menu_shows_whole_descriptions_in_few_rows_and_is_as_wide_as_they_are(screen, columns):
    screen.command(f"set lines=36 columns={columns}")
    options = "return { vim.o.pumwidth, vim.o.pumheight, vim.o.completeopt }"
    before = screen.lua(options)
    position = "return vim.fn.pum_getpos()"
    screen.feed("i/")
    screen.wait_for_screen("/resume    resume an earlier session, by default the newest")
    assert screen.lua(position)["height"] == 10
    screen.feed("mod")
    wait_for_menu(screen, ["/model", "/mode"])
    screen.wait_for_screen("/mode  show or set the permission mode")
    longest = len("/mode  show or set the permission mode")
    wait_until(lambda: longest <= screen.lua(position)["width"] <= longest + 1)
    screen.feed("<Esc>")
    wait_until(lambda: screen.lua(options) == before)


def test_a_height_of_the_menu_that_the_user_has_set_is_kept(screen):
    screen.command("set pumheight=5")
    screen.feed("i/")
    wait_until(lambda: screen.lua("return vim.fn.pum_getpos().height") == 5)
    screen.feed("<Esc>")
    wait_until(lambda: menu(screen) is None)
    assert screen.lua("return vim.o.pumheight") == 5
