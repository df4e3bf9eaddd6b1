"""Small things of the screen: links, numbers, footers, completion beside plugins, tables that end."""

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.test_approval import asked
from tests.nvim.test_looks import turn

WATCH = """
  vim.ui.open = function(url) _G.opened = url end
  vim.ui.select = function(items, opts, on_choice)
    _G.prompt = opts.prompt
    on_choice(_G.answer or items[1])
  end
"""


@pytest.mark.parametrize(
    "line, col, url",
    prove_rest(
        [
            ("see https://example.org/a?b=c#d.", 6, "https://example.org/a?b=c#d"),
            ("[page](https://example.org/x) more", 2, "https://example.org/x"),
            ("https://a.org and https://b.org", 20, "https://b.org"),
            ("https://a.org and", 15, "https://a.org"),
            ("<http://c.org>", 0, "http://c.org"),
            ("no link, file:///etc/passwd", 0, None),
            ("https://paypa\u0406.com", 0, None),
            ("https://a.org/\u202efdp.exe", 0, None),
            ("https://a.org/" + "x" * 5000, 0, None),
            ("x" * 100_000 + " https://a.org", 100_005, "https://a.org"),
        ]
    ),
)
def test_a_link_is_opened_when_its_whole_address_was_confirmed(screen, line, col, url):
    screen.lua(WATCH)
    screen.lua("require('sanderling.access.links').confirm(...)", line, col)
    assert screen.lua("return _G.prompt") == url
    assert screen.lua("return _G.opened") == url


def test_gx_in_the_chat_asks_about_the_address_that_the_text_hides(screen):
    screen.lua(WATCH + "_G.answer = 'Leave it'")
    screen.in_a_turn("[safe](https://example.org/other)")
    screen.lua("vim.api.nvim_set_current_win(require('sanderling').transcript().win)")
    screen.feed("G0gx")
    wait_until(lambda: screen.lua("return _G.prompt") == "https://example.org/other")
    assert screen.lua("return _G.opened") is None


@pytest.mark.parametrize(
    "count, shown",
    prove_rest(
        [
            (840, "840"),
            (999, "999"),
            (1000, "1.0k"),
            (99_940, "99.9k"),
            (99_960, "100k"),
            (182_000, "182k"),
            (999_499, "999k"),
            (999_999, "1.0M"),
            (1_500_000, "1.5M"),
            (99_999_999, "100M"),
        ]
    ),
)
def test_a_number_is_short(child, count, shown):
    assert child.lua("return require('sanderling.ui.words').short(...)", count) == shown


@pytest.mark.parametrize(
    "seconds, shown",
    [
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (7300, "2 h 1 min"),
    ],
)
def test_a_duration_has_two_units(child, seconds, shown):
    assert child.lua("return require('sanderling.ui.words').duration(...)", seconds) == shown


def test_the_footer_of_a_question_counts_cells(start_chat):
    screen = start_chat(columns=60, lines=24)
    options = [
        {"id": "1", "title": "許可する", "choice": "once"},
        {"id": "2", "title": "拒否する", "choice": "deny"},
    ]
    screen.send(asked(tool="Claude", options=options, choices=["once"], rule=""))
    screen.command("Agent question")
    wait_until(lambda: "許可する" in screen.screen_text().replace(" ", ""), screen.screen_text)


def test_agent_with_a_verb_takes_a_bar_as_its_own_command_does(screen):
    screen.command("Agent mode plan | let g:after = 1")
    assert screen.actions("set_mode")[-1]["mode"] == "plan"
    assert screen.lua("return vim.g.after") == 1
    screen.command("Agent stop|let g:after = 2")
    assert screen.lua("return vim.g.after") == 2
    screen.command("Agent ask what is a | b?")
    assert screen.actions("submit_prompt")[-1]["prompt"]["text"] == "what is a | b?"
    screen.lua("vim.cmd('AgentNew')")


def test_a_verb_with_two_words_completes_its_argument(screen):
    screen.send({"type": "local_models_known", "models": ["claude-a", "openai:gpt"]})
    complete = "return vim.fn.getcompletion(..., 'cmdline')"
    names = screen.lua(complete, "Agent provider_test ")
    assert names
    assert screen.lua(complete, "Agent provider_test ") == names


def test_the_page_of_keys_tells_modes_apart_and_names_help_as_help(screen):
    screen.feed("<Esc>g?")
    screen.wait_for_screen("send the prompt (normal mode)", "send the prompt, stay in insert mode")
    keys = screen.lua("return require('sanderling.ui.keys').lines('prompt')")
    assert [
        line for line in keys if "sanderling-" in line and ":help sanderling-" not in line
    ] == []
    assert sum("(normal mode)" in line for line in keys) == 1, "others are the same in each mode"


def test_a_command_whose_file_is_written_meanwhile_is_known_from_the_next_turn_on(start_agent):
    child = start_agent(*({"step": [{"text": text}]} for text in ("pong", "pong", "Hello")))
    child.open_chat()
    child.say("ping")
    folder = child.home / "config/sanderling/commands"
    folder.mkdir(parents=True)
    (folder / "greet.md").write_text("Greet them.")
    child.say("ping")
    names = "return vim.tbl_map(function(each) return each.name end, require('sanderling.prompt.slash').all(...))"
    session = child.lua("return require('sanderling.session.live').current_id()")
    wait_until(lambda: "greet" in child.lua(names, session), deadline_s=10)
    child.say("/greet")
    assert "Greet them." in child.transcript_text()


CMP = """
  local enabled, sources = ...
  package.loaded['cmp'] = { get_config = function()
    return { enabled = function() return enabled end, sources = sources }
  end }
"""


@pytest.mark.parametrize(
    "enabled, sources, has_menu",
    prove_rest(
        [
            (True, [{"name": "nvim_lsp"}], False),
            (True, [{"name": "buffer"}], True),
            (False, [{"name": "nvim_lsp"}], True),
        ]
    ),
)
def test_the_menu_opens_where_nvim_cmp_does_not_complete_by_servers(
    screen, enabled, sources, has_menu
):
    screen.lua(CMP, enabled, sources)
    screen.feed("i/mo")
    wait_until(lambda: screen.prompt_lines() == ["/mo"])
    visible = "return vim.fn.pumvisible()"
    if has_menu:
        wait_until(lambda: screen.lua(visible) == 1)
    else:
        assert screen.lua(visible) == 0


@pytest.mark.parametrize("complete", [".,w,b", ".,o"])
def test_with_autocomplete_one_menu_opens(screen, complete):
    if not screen.lua("return vim.fn.exists('+autocomplete')"):
        pytest.skip("this Neovim has no 'autocomplete'")
    screen.command(f"set autocomplete complete={complete}")
    screen.feed("i/mo")
    info = "return vim.fn.complete_info({ 'pum_visible', 'items' })"
    wait_until(lambda: screen.lua(info)["pum_visible"] == 1)
    words = [item["word"] for item in screen.lua(info)["items"]]
    assert words[:2] == ["/model", "/mode"]
    assert len(words) == len(set(words))
    assert screen.prompt_lines() == ["/mo"]


def test_what_is_known_of_a_session_that_is_over_is_forgotten(screen):
    sizes = """
      local function upvalue(fn, name)
        for i = 1, 20 do
          local found, value = debug.getupvalue(fn, i)
          if found == name then return value end
        end
      end
      local listeners = require('sanderling.editing.listeners')
      return vim.tbl_count(upvalue(listeners.is_allowed, 'allowed'))
    """
    id_ = screen.lua("return require('sanderling.session.live').current_id()")
    screen.send(*turn(1)[:1])
    screen.lua("require('sanderling.editing.listeners').allow(...)", "t1", id_)
    screen.lua("require('sanderling.editing.listeners').allow(...)", "t2", "another")
    assert screen.lua(sizes) == 2
    screen.send({"type": "turn_ended", "stop_reason": "end_turn"})
    wait_until(lambda: screen.lua(sizes) == 1)


# --- messages -----------------------------------------------------------------------------------------------------------


LONG = "The installation is not complete, and quite a bit longer than eighty cells: " + "x" * 200
TEXT = LONG + "\nRun :AgentInstall.\u3164"

REPLACE = """
  vim.notify = function(...)
    _G.told = { ... }
  end
"""


def tell(child, *args):
    child.lua("require('sanderling.ui.message').tell(...)", *args)


def test_a_plugin_that_shows_messages_gets_all_of_it_and_a_title(child):
    child.lua(REPLACE)
    tell(child, TEXT, 3)
    shown = TEXT.replace("\u3164", "<U+3164>")
    assert child.lua("return _G.told") == [shown, 3, {"title": "Sanderling"}]


def test_neovim_itself_shows_the_first_line_as_far_as_it_fits(child):
    tell(child, "one\u202etwo\nthree")
    assert not child.is_blocked()
    assert child.messages().strip() == "one·two …"
    tell(child, TEXT)
    assert not child.is_blocked()


def test_an_error_of_a_command_reaches_the_plugin_whole_but_without_its_traceback(child):
    child.lua(REPLACE)
    child.lua("""
      require('sanderling.ui.message').tell_error('AgentEdit',
        'some/file.lua:12: cannot edit:\\nthe buffer is locked\\nstack traceback:\\n\\t[C]: in function')
    """)
    assert child.lua("return _G.told[1]") == "cannot edit:\nthe buffer is locked"


def test_errors_of_options_reach_the_plugin_whole(child):
    child.lua(REPLACE)
    child.setup(keys={"answer_once": "<M-a>"})
    text = child.lua("return _G.told[1]")
    assert "option 'keys.answer_once' must be a key without Alt or Escape" in text
    assert text.endswith('not "<M-a>"')


@pytest.mark.parametrize("ambiwidth, sign", [("single", "…"), ("double", "<")])
def test_one_sign_marks_a_line_that_begins_above_the_window(start_screen, ambiwidth, sign):
    screen = start_screen(columns=80, lines=24, commands=[f"set ambiwidth={ambiwidth}"])
    screen.command("AgentChat tab")
    screen.in_a_turn("word after word " * 200)
    screen.wait_for_transcript("word after word")
    first = wait_until(lambda: next((r for r in screen.screen() if "word" in r), None))
    assert first.startswith((f" {sign}ord", f" {sign}fter"))
    assert "<<<" not in screen.screen_text()


@pytest.mark.parametrize(
    "default, shown",
    [
        ("a\x12=execute('let g:evaluated = 1')", "a =execute('let g:evaluated = 1')"),
        ("a\x15b\x03c\x7f\x1b\nd", "a b c   d"),
    ],
)
def test_a_default_text_types_no_keys(screen, default, shown):
    screen.lua(
        """
        local default = ...
        vim.schedule(function()
          require('sanderling.ui.message').ask({ prompt = 'Title: ', default = default }, function(answer)
            _G.answer = answer
          end)
        end)
        """,
        default,
    )
    screen.wait_for_screen("Title: a")
    screen.feed("<CR>")
    wait_until(lambda: screen.lua("return _G.answer") == shown)
    assert screen.lua("return vim.g.evaluated") is None
