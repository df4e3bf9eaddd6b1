""":Agent trust: what stands on its page is what would be trusted, and nothing is trusted that was not answered for."""

import hashlib
import sys

import pytest
from tests.conftest import wait_until
from tests.nvim.conftest import count_keys_after

from sanderling.text import _HIDDEN, number


def file(path, text, state="new"):
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    return {"path": path, "state": state, "sha256": sha256, "text": text}


RULES = file("AGENTS.md", "# Rules\n\nBe brief.\n")
COMMAND = file(".sanderling/commands/ship.md", "Ship it.", "changed")
CONFIG = file(".sanderling.toml", "", "trusted")
FILES = [RULES, COMMAND, CONFIG]


def hashes(*files):
    return {each["path"]: each["sha256"] for each in files}


def shown(files=FILES, **fields):
    return {"project": "/work/project", "files": list(files)} | fields


def is_on_page(screen):
    return screen.lua("return vim.bo.filetype") == "sanderling_trust"


def open_page(screen, files=FILES, **fields):
    """Ask for the files from a file of the person's, get them, and wait until keys count."""
    screen.feed("<C-w>h")
    wait_until(lambda: screen.lua("return vim.bo.filetype") == "")
    screen.command("Agent trust")
    assert screen.actions("show_trust")
    screen.answer("show_trust", **shown(files, **fields))
    assert is_on_page(screen)
    count_keys_after(screen, 0)


def marks(screen):
    lines = [line.split() for line in screen.lines() if line[0:1] in ("☐", "☑")]
    return {words[2]: words[0] for words in lines}


def test_the_page_shows_each_file_whole_and_what_is_new_or_changed(screen):
    open_page(screen)
    lines = screen.lines()
    assert "/work/project" in lines[0]
    assert any(line == "☐ new      AGENTS.md" for line in lines)
    assert any(line == "☐ changed  .sanderling/commands/ship.md" for line in lines)
    assert any(line == "☑ trusted  .sanderling.toml" for line in lines)
    assert any(line.startswith("Trust these 3 files as shown?") for line in lines)
    start = lines.index("New, 3 lines: AGENTS.md")
    assert lines[start + 1 :] == [
        "│ # Rules",
        "│ ",
        "│ Be brief.",
        "",
        "Changed since you trusted it, 1 line: .sanderling/commands/ship.md",
        "│ Ship it.",
        "",
        "Trusted, 0 lines: .sanderling.toml",
    ]
    assert screen.lua("return vim.bo.modifiable") is False
    assert screen.mode() == "n"


def test_what_python_shows_as_its_code_is_shown_as_that_here(screen):
    hidden = "".join(char for char in map(chr, range(sys.maxunicode + 1)) if _HIDDEN.match(char))
    hidden = hidden[hidden.index("\xad") :]  # Neovim shows control characters by itself
    shown = screen.lua("return require('sanderling.ui.unseen').visible(...)", "\n".join(hidden))
    assert shown.split("\n") == list(map(number, hidden))


def test_what_a_person_cannot_see_stands_there_as_its_code(screen):
    smuggled = "".join(chr(0xE0000 + ord(char)) for char in "rm")
    text = f"a\u202eb\u200bc{smuggled}\ufe0f d\x1b[8mäöü—漢字 🙂"
    open_page(screen, [file("AGENTS.md", text)])
    assert screen.lines()[-1] == (
        "│ a<U+202E>b<U+200B>c<U+E0072><U+E006D><U+FE0F> d\x1b[8mäöü—漢字 🙂"
    )
    screen_text = screen.screen_text()
    assert "d^[[8m" in screen_text
    groups = screen.lua("""
      return vim.tbl_map(function(mark) return mark[4].hl_group end,
        vim.api.nvim_buf_get_extmarks(0, -1, { vim.fn.line('$') - 1, 0 }, -1, { details = true }))
    """)
    assert groups == ["AgentWarning"] * 5


def test_what_a_file_allows_stands_in_words_above_the_question(screen):
    allowed = {"allowed": ["run `make test` with any arguments", "run `a\u202eb`"]}
    open_page(screen, [CONFIG | allowed])
    lines = screen.lines()
    start = lines.index(".sanderling.toml lets the model do this without asking you:")
    assert lines[start + 1 : start + 5] == [
        "│ run `make test` with any arguments",
        "│ run `a·b`",
        "",
        "Trust this file as shown?",
    ]


def test_a_file_cannot_pass_for_the_page_or_for_another_file(screen):
    text = "end\n\nCLAUDE.md (trusted, 1 line)\n☑ CLAUDE.md"
    open_page(screen, [file("AGENTS.md", text), file("x\nCLAUDE.md (trusted", "text")])
    lines = screen.lines()
    assert "CLAUDE.md (trusted, 1 line)" not in lines
    assert "│ CLAUDE.md (trusted, 1 line)" in lines
    assert "New, 1 line: x CLAUDE.md (trusted" in lines


def test_a_name_cannot_pass_for_the_state_of_its_file(screen):
    name = f".claude/commands/a{' ' * 60}trusted{' ' * 60}.md"
    open_page(screen, [file(name, "text")])
    lines = screen.lines()
    assert any(line.startswith(f"☐ new      {name[:20]}") for line in lines)
    assert any(line.startswith(f"New, 1 line: {name[:20]}") for line in lines)


def test_a_trusts_all_with_the_hashes_that_were_shown_and_goes_back(screen):
    open_page(screen)
    screen.feed("a")
    (sent,) = wait_until(lambda: screen.actions("trust_files"))
    assert sent["hashes"] == hashes(*FILES)
    assert screen.lua("return vim.bo.filetype") == ""
    assert screen.lua("return #vim.api.nvim_list_tabpages()") == 1


def test_q_leaves_all_as_it_is(screen):
    open_page(screen)
    screen.feed("tq")
    wait_until(lambda: not is_on_page(screen))
    assert screen.actions("trust_files") == []


def test_a_key_that_was_typed_before_the_page_came_is_no_answer(screen):
    screen.command("stopinsert | Agent trust")
    screen.lua(
        """
        _G.answers.show_trust(...)
        vim.wait(60000, function() return vim.bo.filetype == 'sanderling_trust' end, 1)
        vim.api.nvim_feedkeys('a', 'xt', false)
        """,
        shown(),
    )
    assert is_on_page(screen)
    assert screen.actions("trust_files") == []


def test_words_that_are_typed_on_when_the_page_comes_trust_nothing(screen):
    open_page(screen)
    count_keys_after(screen, 60)
    screen.feed("be well, and a")
    screen.lua("return 1")
    assert is_on_page(screen)
    assert screen.actions("trust_files") == []
    count_keys_after(screen, 0)
    screen.feed("a")
    assert wait_until(lambda: screen.actions("trust_files"))


def test_who_typed_the_command_in_insert_mode_types_on_when_the_page_is_left(screen):
    screen.feed("i/trust<C-s>")
    wait_until(lambda: screen.actions("show_trust"))
    screen.answer("show_trust", **shown())
    wait_until(lambda: is_on_page(screen) and screen.mode() == "n")
    count_keys_after(screen, 0)
    screen.feed("q")
    wait_until(lambda: screen.mode() == "i")
    assert screen.lua("return vim.bo.filetype") == "sanderling_prompt"
    screen.feed("and so on")
    wait_until(lambda: screen.prompt_lines() == ["and so on"])


def test_the_keys_are_in_sight_at_the_end_of_a_long_file_too(screen):
    open_page(screen, [file("AGENTS.md", "Be brief.\n" * 200)])
    screen.feed("G")
    assert "a: trust all   t: mark" in screen.screen_text()


def test_t_marks_the_file_at_the_cursor_in_the_list_or_in_its_text(screen):
    open_page(screen)
    assert marks(screen) == {
        "AGENTS.md": "☐",
        ".sanderling/commands/ship.md": "☐",
        ".sanderling.toml": "☑",
    }
    screen.feed("t/Ship it<CR>t/lines: .sanderling.toml<CR>t")
    wait_until(
        lambda: (
            marks(screen)
            == {
                "AGENTS.md": "☑",
                ".sanderling/commands/ship.md": "☑",
                ".sanderling.toml": "☐",
            }
        )
    )
    screen.feed("ggt")
    screen.wait_for_message("No file under the cursor.")


@pytest.mark.parametrize(
    "choice, chosen",
    [
        ("Trust only the 2 marked", [RULES, CONFIG]),
        ("Trust all 3", FILES),
        ("Trust none of them", []),
    ],
)
def test_return_asks_by_way_of_vim_ui_select(screen, choice, chosen):
    screen.lua("vim.ui.select = function(...) _G.asked = { ... } end")
    open_page(screen)
    screen.feed("t<CR>")
    wait_until(lambda: screen.lua("return _G.asked ~= nil"))
    assert screen.lua("return _G.asked[2].prompt") == "Trust these 3 files as shown?"
    screen.lua(
        """
        for _, choice in ipairs(_G.asked[1]) do
          if _G.asked[2].format_item(choice) == ... then _G.asked[3](choice) end
        end
        """,
        choice,
    )
    (sent,) = screen.actions("trust_files")
    assert sent["hashes"] == hashes(*chosen)
    assert not is_on_page(screen)


def test_a_single_file_is_trusted_or_not(screen):
    screen.lua("vim.ui.select = function(...) _G.asked = { ... } end")
    open_page(screen, files=FILES[:1])
    screen.feed("<CR>")
    wait_until(lambda: screen.lua("return _G.asked ~= nil"))
    texts = "return vim.tbl_map(_G.asked[2].format_item, _G.asked[1])"
    assert screen.lua(texts) == ["Trust it", "Do not trust it"]


def test_what_the_host_has_written_down_is_confirmed_once(screen):
    changed = {"type": "slash_commands_changed", "commands": []}
    screen.send(changed)
    open_page(screen)
    screen.feed("a")
    wait_until(lambda: screen.actions("trust_files"))
    assert "trusted" not in screen.messages()
    screen.send(changed, changed)
    assert screen.messages().count("3 files trusted, as shown.") == 1


def test_none_is_a_map_on_the_wire(screen):
    screen.lua("vim.ui.select = function(items, _, choose) choose(items[#items]) end")
    open_page(screen)
    screen.feed("<CR>")
    wait_until(lambda: screen.actions("trust_files"))
    assert screen.lua("return vim.json.encode(_G.actions[#_G.actions].hashes)") == "{}"


def test_a_refusal_is_told_and_leaves_no_key_that_trusts(screen):
    open_page(screen, refusal="A home directory is not trusted as a whole.")
    assert "A home directory is not trusted as a whole." in screen.lines()
    assert marks(screen) == {}
    screen.feed("a<CR><Esc>")
    assert screen.actions("trust_files") == []
    screen.feed("q")
    wait_until(lambda: not is_on_page(screen))


def test_a_project_without_such_files_is_a_message_and_a_refusal_a_notice(screen):
    screen.command("Agent trust")
    screen.answer("show_trust", **shown([]))
    assert "no files that need trust" in screen.messages()
    screen.answer("show_trust", **shown([], refusal="A home directory is not trusted as a whole."))
    assert screen.transcript() == ["A home directory is not trusted as a whole."]
    assert not is_on_page(screen)


def test_files_that_come_while_something_else_is_typed_open_nothing(screen):
    screen.feed("i/trust<C-s>")
    wait_until(lambda: screen.actions("show_trust"))
    screen.feed("By the way")
    wait_until(lambda: screen.prompt_lines() == ["By the way"])
    screen.answer("show_trust", **shown())
    assert not is_on_page(screen)
    assert ":Agent trust again to review them" in screen.messages()


def test_the_page_goes_with_its_session(screen):
    open_page(screen)
    screen.lua("require('sanderling').clear()")
    assert not is_on_page(screen)


def test_a_second_page_takes_the_place_of_the_first(screen):
    open_page(screen)
    screen.command("Agent trust")
    screen.answer("show_trust", **shown([RULES]))
    assert is_on_page(screen)
    assert any(line.startswith("Trust this file as shown?") for line in screen.lines())
    assert screen.lua("return #vim.api.nvim_list_tabpages()") == 2


def test_after_a_page_was_closed_by_hand_q_goes_back_to_where_the_next_was_asked_for(screen):
    open_page(screen)
    screen.command("quit")
    screen.command("botright new")
    here = screen.lua("return vim.api.nvim_get_current_win()")
    screen.command("Agent trust")
    screen.answer("show_trust", **shown())
    assert is_on_page(screen)
    count_keys_after(screen, 0)
    screen.feed("q")
    wait_until(lambda: screen.lua("return vim.api.nvim_get_current_win()") == here)


def test_of_a_page_that_was_closed_by_hand_nothing_is_left(screen):
    watchers = screen.lua("return vim.on_key()")
    open_page(screen)
    screen.command("quit")
    assert screen.lua("return vim.on_key()") == watchers
    screen.command("botright new")
    here = screen.lua("return vim.api.nvim_get_current_win()")
    screen.lua("require('sanderling').clear()")
    assert screen.lua("return vim.api.nvim_get_current_win()") == here


# --- what is ignored ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "paths, sentence",
    [
        (["AGENTS.md"], "AGENTS.md is ignored until trusted: :Agent trust."),
        (["a", "b"], "a and b are ignored until trusted: :Agent trust."),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more are ignored until trusted: :Agent trust"),
    ],
)
def test_files_that_are_ignored_are_named_once(screen, paths, sentence):
    needed = {"type": "trust_needed", "paths": paths}
    screen.send(needed, needed)
    screen.send(needed)
    assert len(screen.transcript()) == 1
    assert screen.transcript()[0].startswith(sentence)
    screen.send({"type": "trust_needed", "paths": ["other.md"]})
    assert screen.transcript()[-1].startswith("other.md is ignored")


def test_files_that_are_ignored_are_no_news_again_in_a_session_that_comes_after(screen):
    needed = {"type": "trust_needed", "paths": ["AGENTS.md"]}
    screen.send(needed)
    screen.command("Agent clear")
    assert screen.transcript() == [""]
    screen.send(needed)
    assert screen.transcript() == [""]


def test_no_files_that_are_ignored_are_no_news(screen):
    screen.send({"type": "trust_needed", "paths": []})
    assert screen.transcript() == [""]


# --- with a host -------------------------------------------------------------------------------------------------------


def test_what_was_trusted_is_used_until_it_changes(start_agent, project):
    reply = {"repeat": True, "step": [{"text": "Yes."}]}
    rules = project / "AGENTS.md"
    rules.write_text("Be brief.\n")
    agent = start_agent(reply)
    agent.chat("go")
    assert "AGENTS.md is ignored until trusted: :Agent trust" in agent.transcript_text()
    agent.command("Agent trust")
    wait_until(lambda: is_on_page(agent))
    assert "│ Be brief." in agent.lines()
    count_keys_after(agent, 0)
    agent.feed("a")
    agent.wait_for_message("1 file trusted, as shown.")
    agent.submit_and_wait("and now?")
    assert "Be brief." in agent.session_files()[-1].read_text()
    rules.write_text("Be long.\n")
    agent.command("Agent trust")
    wait_until(lambda: is_on_page(agent))
    assert "Changed since you trusted it, 1 line: AGENTS.md" in agent.lines()
    assert marks(agent) == {"AGENTS.md": "☐"}


def test_settings_that_are_trusted_are_said_to_wait_for_the_next_session(screen):
    open_page(screen, [RULES, {**CONFIG, "state": "new"}])
    screen.feed("a")
    wait_until(lambda: screen.actions("trust_files"))
    screen.send({"type": "slash_commands_changed", "commands": []})
    assert "take effect in new sessions: :Agent clear" in screen.messages()


def test_files_that_are_trusted_are_not_said_to_be_ignored_any_more(screen):
    screen.send({"type": "trust_needed", "paths": ["AGENTS.md"]})
    open_page(screen, [RULES])
    screen.feed("a")
    wait_until(lambda: screen.actions("trust_files"))
    screen.send({"type": "slash_commands_changed", "commands": []})
    assert screen.transcript() == ["1 file trusted, as shown."]
    screen.in_a_turn("Brief it is.")
    assert screen.transcript()[:3] == ["1 file trusted, as shown.", "", "## You"]


def test_of_several_files_those_that_were_not_trusted_are_still_said_to_be_ignored(screen):
    screen.send({"type": "trust_needed", "paths": [RULES["path"], COMMAND["path"]]})
    screen.lua("vim.ui.select = function(items, _, choose) choose(items[1]) end")
    open_page(screen, [RULES, COMMAND])
    screen.feed("t<CR>")
    wait_until(lambda: screen.actions("trust_files"))
    screen.send({"type": "slash_commands_changed", "commands": []})
    (line,) = screen.transcript()
    assert line.startswith(f"{COMMAND['path']} is ignored")
