"""The Lua API for plugins: commands, mentions, events, sessions, pickers, parts of the statusline, extensions."""

import re
from typing import get_args

import pytest
from tests.conftest import ROOT, prove_unless_quick, quick, wait_until
from tests.nvim.replies import DONE, bash, reply, say
from tests.nvim.test_slash import menu

from sanderling.protocol.events import Event

pytestmark = prove_unless_quick


@pytest.fixture
def plugin(tmp_path):
    """Run Lua code as a plugin "jira.nvim" in a Neovim; `H` keeps handles and what was seen."""

    def load(child, code, file="jira"):
        path = tmp_path / "jira.nvim" / "lua" / f"{file}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("_G.H = _G.H or {}\nlocal agent = require('sanderling')\n" + code)
        child.command(f"set runtimepath+={tmp_path / 'jira.nvim'}")
        child.lua("package.loaded[...] = nil require(...)", file)
        return child

    return load


def refusal(child, code):
    """The error of a call of the API, without a place in the code."""
    return child.lua(
        "local agent = require('sanderling') "
        f"local ok, err = pcall(function() {code} end) return not ok and err or ''"
    )


def selections(screen):
    """What is attached to the prompts that were sent."""
    return [
        selection
        for action in screen.actions("submit_prompt")
        for selection in action["prompt"].get("selections", [])
    ]


def wait_for_prompt(screen):
    return wait_until(lambda: screen.actions("submit_prompt"), "a prompt is sent")[-1]


# --- commands ----------------------------------------------------------------------------------------------------------

STANDUP = """
H.command = agent.command('standup', {
  desc = 'what I did today',
  args = '[day]',
  complete = { 'today', { name = 'yesterday', desc = 'the day before' } },
  run = function(args, session)
    H.seen = { args, session.id }
    session:send('What did I do ' .. args .. '?')
  end,
})
"""


@quick
def test_a_plugins_command_runs_with_its_arguments_and_session(screen, plugin):
    plugin(screen, STANDUP)
    screen.feed("i/standup  this week <C-s>")
    sent = wait_for_prompt(screen)
    assert sent["prompt"]["text"] == "What did I do this week?"
    assert screen.lua("return H.seen") == ["this week", screen.session_id()]
    assert screen.prompt_lines() == [""]


def test_a_plugins_command_is_in_the_menu_and_in_the_help(screen, plugin):
    plugin(screen, STANDUP)
    screen.feed("i/stan")
    wait_until(lambda: menu(screen) == ["/standup"])
    screen.wait_for_screen("what I did today")
    screen.feed("<C-u>/help<C-s>")
    screen.wait_for_screen("q closes")
    screen.feed("G")
    screen.wait_for_screen("/standup [day]", "what I did today")


def test_arguments_of_a_plugins_command_are_completed(screen, plugin):
    plugin(screen, STANDUP)
    screen.feed("i/standup ")
    wait_until(lambda: menu(screen) == ["today", "yesterday"])
    screen.wait_for_screen("the day before")
    screen.feed("yest")
    wait_until(lambda: menu(screen) == ["yesterday"])


def test_a_removed_command_is_unknown_again_and_its_name_is_free(screen, plugin):
    plugin(screen, STANDUP)
    screen.lua("H.command:remove() H.command:remove()")
    screen.send({"type": "slash_commands_changed", "commands": []})
    screen.feed("i/standup<C-s>")
    screen.wait_for_message("Unknown command /standup")
    plugin(screen, STANDUP)
    screen.feed("<C-s>")
    wait_for_prompt(screen)


def test_an_error_in_a_command_is_shown_with_the_plugins_name(screen, plugin):
    plugin(
        screen,
        "agent.command('broken', { desc = 'x', run = function() error('no network') end })",
    )
    screen.feed("i/broken<C-s>")
    screen.wait_for_message("jira.nvim: /broken failed: jira.lua:3: no network")
    screen.feed("works<C-s>")
    assert wait_for_prompt(screen)["prompt"]["text"] == "works"
    screen.command("checkhealth sanderling")
    report = screen.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), ' ')")
    assert re.search(r"of the agent process and of plugins:\s+jira.nvim: /broken failed", report)


def test_an_error_in_the_completion_of_a_command_is_shown_once(screen, plugin):
    plugin(
        screen,
        "agent.command('broken', { desc = 'x', run = print, complete = function() error('oh') end })",
    )
    screen.feed("i/broken a")
    screen.wait_for_message("jira.nvim: completion of /broken failed: jira.lua:3: oh")
    screen.feed("b")
    screen.lua("vim.wait(300)")
    assert screen.messages().count("completion of /broken") == 1


def test_a_command_registered_by_a_markdown_file_gives_way_to_the_plugins(screen, plugin):
    screen.send(
        {"type": "slash_commands_changed", "commands": [{"name": "standup", "description": "md"}]}
    )
    plugin(screen, STANDUP)
    screen.feed("i/stand")
    wait_until(lambda: menu(screen) == ["/standup"])
    screen.feed("up now<C-s>")
    assert wait_for_prompt(screen)["prompt"]["text"] == "What did I do now?"


@pytest.mark.parametrize("loads_chat", [False, True])
@pytest.mark.parametrize(
    "call, why",
    [
        ("command('help', { desc = 'x', run = print })", "'help' is built in"),
        ("command('explain', { desc = 'x', run = print })", "'explain' is built in"),
        ("command('Stand up', { desc = 'x', run = print })", '"Stand up" is not a name'),
        ("command(nil, {})", "nil is not a name"),
        ("command('ok', { desc = 'x' })", "the field 'run' is missing; it must be a function"),
        ("command('ok', { run = print })", "the field 'desc' is missing"),
        ("command('ok', { desc = 'x', run = 'y' })", "'run' must be a function, not a string"),
        ("command('ok', { desc = 'x', rum = print })", "did you mean 'run'?"),
        ("command('ok')", "expected a table of options, got nil"),
        ("mention('diff', { desc = 'x', resolve = print })", "'diff' is built in"),
        ("mention('https', { desc = 'x', resolve = print })", "'https' is built in"),
        ("mention('a b', { desc = 'x', resolve = print })", "is not a name"),
        ("mention('ok', { desc = 'x' })", "the field 'resolve' is missing"),
        ("mention('ok', { desc = 'x', resolve = print, timeout = 0 })", "more than 0 seconds"),
        ("on('turn_endet', print)", "did you mean 'turn_ended'?"),
        ("on(nil, print)", "must be the name of an event, not a nil"),
        ("on({ 'turn_ended' }, print)", "must be the name of an event, not a table"),
        ("on('turn_ended', 'x')", "expected a function, got string"),
        ("picker('x')", "expected a function, got string"),
        ("statusline({})", "expected a table of functions by name"),
        ("statusline({ jira = 'x' })", "must be a function or false, not a string"),
        ("statusline({ usge = false })", "there is no part 'usge' to hide. Use one of activity,"),
        ("extension('nowhere')", "lua/sanderling/extensions/nowhere.lua"),
        ("extension('../x')", "is not the name of an extension"),
        ("chat({ positon = 'left' })", "unknown field 'positon'; did you mean 'position'?"),
        ("toggle({ focsu = false })", "did you mean 'focus'?"),
        ("ask('x', { rnage = { 1, 2 } })", "did you mean 'range'?"),
        ("ask('x', 'y')", "expected a table of options, got string"),
        ("choose_session('', { al = true })", "did you mean 'all'?"),
    ],
)
def test_a_mistake_in_a_registration_is_refused_with_what_is_wrong(
    start_screen, loads_chat, call, why
):
    child = start_screen()
    if loads_chat:
        child.command("AgentChat")
    err = refusal(child, f"agent.{call}")
    assert why in err
    assert err.startswith("sanderling.")


@pytest.mark.parametrize(
    "code",
    [
        "agent.command('twice', { desc = 'x', run = print })",
        "agent.mention('twice', { desc = 'x', resolve = print })",
        "agent.picker(print)",
        "agent.statusline({ twice = print })",
    ],
)
def test_a_second_registration_of_a_name_is_refused_with_the_first_plugin(screen, plugin, code):
    plugin(screen, f"H.first = {code}")
    assert "is already registered, by jira.nvim. Call remove() on its handle" in refusal(
        screen, code
    )
    screen.lua("H.first:remove()")
    assert refusal(screen, code) == ""


def test_a_registration_loads_neither_the_chat_nor_the_bus(start_screen, plugin):
    child = start_screen()
    child.lua(
        "for name in pairs(package.loaded) do if name:find('^sanderling') then package.loaded[name] = nil end end"
    )
    plugin(
        child,
        STANDUP
        + """
        agent.mention('jira', { desc = 'x', resolve = print, complete = print })
        agent.on('turn_ended', print)
        agent.picker(print)
        agent.statusline({ jira = print })
        """,
    )
    loaded = set(child.lua("return vim.tbl_keys(package.loaded)"))
    assert {name for name in loaded if name.startswith("sanderling")} <= {
        "sanderling",
        "sanderling.ui.lazy",
        "sanderling.ui.words",
        "sanderling.ui.unseen",
        "sanderling.ui.icons",
        *(
            f"sanderling.extend.{name}"
            for name in (
                *("command", "event_types", "events", "mention", "offers", "picker"),
                *("registry", "reserved", "status"),
            )
        ),
    }


def test_a_completion_that_never_answers_is_reported_and_asked_again(screen, plugin):
    plugin(
        screen,
        """
        H.count = 0
        agent.command('slow', { desc = 'x', run = print, complete = function(_, done)
          H.count = H.count + 1
          if H.count > 1 then done({ 'second' }) end
        end })
        """,
    )
    screen.feed("i/slow ")
    screen.wait_for_message("jira.nvim: completion of /slow failed: no answer within 5 s")
    assert screen.lua("return H.count") == 1
    screen.feed("s")
    wait_until(lambda: menu(screen) == ["second"])


@pytest.mark.parametrize("answer", ["'x'", "{ 1 }", "{ 'a\\nb' }", "{ {} }"])
def test_a_wrong_completion_is_reported_and_the_others_are_offered(screen, plugin, answer):
    plugin(
        screen,
        f"""
        agent.mention('odd', {{ desc = 'x', resolve = print, complete = function()
          local answer = {answer}
          if type(answer) == 'table' then table.insert(answer, 'good') end
          return answer
        end }})
        """,
    )
    screen.feed("i@odd:")
    screen.wait_for_message("jira.nvim: completion of @odd: failed: ")
    if answer != "'x'":
        wait_until(lambda: menu(screen) == ["@odd:good"])


# --- mentions ----------------------------------------------------------------------------------------------------------

JIRA = """
H.mention = agent.mention('jira', {
  desc = 'an issue',
  timeout = 0.3,
  complete = function(lead, done)
    H.leads = H.leads or {}
    table.insert(H.leads, lead)
    vim.defer_fn(function()
      done({ { name = 'ABC-1', desc = 'Crash at start' }, { name = 'ABC 2', desc = 'Typo' } })
    end, 20)
  end,
  resolve = function(name, done, session)
    H.resolved = { name, session.id }
    vim.defer_fn(function() done(H.answer(name)) end, 10)
  end,
})
H.answer = function(name) return { text = name .. ': crash\\nat start\\n' } end
"""


@quick
def test_a_plugins_mention_is_resolved_when_the_prompt_is_sent(screen, plugin):
    plugin(screen, JIRA)
    screen.feed("ifix @jira:ABC-1.<C-s>")
    assert wait_for_prompt(screen)["prompt"]["text"] == "fix @jira:ABC-1."
    (attached,) = selections(screen)
    assert attached["path"] == "@jira:ABC-1"
    assert (attached["text"], attached["origin"]) == ("ABC-1: crash\nat start", "an issue")
    assert screen.lua("return H.resolved") == ["ABC-1", screen.session_id()]


def test_a_number_after_a_plugins_mention_is_no_line(screen, plugin):
    plugin(screen, JIRA)
    screen.feed("i@jira:12 and @jira:1-2<C-s>")
    wait_for_prompt(screen)
    assert [each["text"] for each in selections(screen)] == [
        "12: crash\nat start",
        "1-2: crash\nat start",
    ]


def test_names_for_a_mention_come_later_and_are_offered_then(screen, plugin):
    plugin(screen, JIRA)
    screen.feed("i@ji")
    wait_until(lambda: menu(screen) == ["@jira:"])
    screen.wait_for_screen("an issue")
    screen.feed("ra:")
    wait_until(lambda: menu(screen) == ["@jira:ABC-1", "@jira:ABC\\ 2"])
    screen.wait_for_screen("Crash at start")
    screen.feed("typ")
    wait_until(lambda: menu(screen) == ["@jira:ABC\\ 2"])
    screen.feed("<C-n><C-y><C-s>")
    wait_for_prompt(screen)
    assert screen.lua("return H.resolved[1]") == "ABC 2"


def test_a_mention_is_not_resolved_while_it_is_typed(screen, plugin):
    plugin(screen, JIRA)
    screen.feed("i@jira:ABC-1 now")
    screen.wait_for_screen("@jira:ABC-1 now   an issue")
    assert screen.lua("return H.resolved") is None


def test_a_file_that_a_mention_names_is_attached_as_it_is(screen, plugin):
    (screen.project / "notes.md").write_text("one\ntwo\n")
    plugin(screen, JIRA + "H.answer = function() return { path = 'notes.md' } end")
    screen.feed("i@jira:x<C-s>")
    wait_for_prompt(screen)
    (attached,) = selections(screen)
    assert (attached["path"], attached["text"]) == ("notes.md", "one\ntwo")


def test_a_text_can_have_a_path_as_its_title(screen, plugin):
    plugin(
        screen,
        JIRA
        + "H.answer = function() return { text = 'x = 1', path = 'a.py', filetype = 'python' } end",
    )
    screen.feed("i@jira:x<C-s>")
    wait_for_prompt(screen)
    (attached,) = selections(screen)
    assert (attached["path"], attached["text"], attached["filetype"]) == ("a.py", "x = 1", "python")


@pytest.mark.parametrize(
    "answer, why",
    [
        ("H.answer = function() return nil, 'no such issue' end", "no such issue"),
        ("H.answer = function() return nil end", "expected a table with text or path, got nil"),
        ("H.answer = function() return {} end", "neither text nor path was given"),
        ("H.answer = function() return { text = 1 } end", "'text' must be a string, not a number"),
        ("H.answer = function() return { path = 'gone.md' } end", "gone.md was not found"),
        ("H.answer = function() return { text = 'a\\0b' } end", "binary file"),
        ("H.mention:remove() agent.mention('jira', { desc = 'x', timeout = 0.2, resolve = function() end })", "no answer within 0.2 s"),
        ("H.mention:remove() agent.mention('jira', { desc = 'x', resolve = function() error('down') end })", "down"),
    ],
)  # fmt: skip
def test_a_mention_that_fails_is_shown_and_the_prompt_is_sent(screen, plugin, answer, why):
    plugin(screen, JIRA + answer)
    screen.feed("ifix @jira:ABC-1<C-s>")
    assert wait_for_prompt(screen)["prompt"]["text"] == "fix @jira:ABC-1"
    (attached,) = selections(screen)
    assert attached["path"] == "@jira:ABC-1"
    assert why in attached["text"]
    wait_until(lambda: "jira.nvim: @jira:ABC-1 failed: " in screen.messages())
    assert why in screen.messages()


def test_an_answer_after_the_deadline_or_a_second_one_is_ignored(screen, plugin):
    plugin(
        screen,
        """
        agent.mention('late', { desc = 'x', timeout = 0.1, resolve = function(_, done)
          vim.defer_fn(function() done({ text = 'late' }) H.late = true end, 300)
        end })
        agent.mention('twice', { desc = 'x', resolve = function(_, done)
          done({ text = 'first' })
          done({ text = 'second' })
        end })
        """,
    )
    screen.feed("i@late:1 @twice:1<C-s>")
    wait_for_prompt(screen)
    wait_until(lambda: screen.lua("return H.late"))
    late, twice = selections(screen)
    assert "no answer within 0.1 s" in late["text"]
    assert twice["text"] == "first"
    assert "internal error" not in screen.messages()


def test_mentions_of_plugins_are_resolved_at_the_same_time(screen, plugin):
    plugin(
        screen,
        """
        local waiting = {}
        agent.mention('pair', { desc = 'x', resolve = function(name, done)
          waiting[name] = done
          if vim.tbl_count(waiting) == 2 then
            for each, fn in pairs(waiting) do fn({ text = 'text of ' .. each }) end
          end
        end })
        """,
    )
    screen.feed("i@pair:1 @pair:2 @pair:1<C-s>")
    wait_for_prompt(screen)
    assert [each["text"] for each in selections(screen)] == ["text of 1", "text of 2"]


def test_a_removed_mention_is_plain_text(screen, plugin):
    plugin(screen, JIRA)
    screen.lua("H.mention:remove()")
    screen.feed("i@jira:ABC<C-s>")
    wait_for_prompt(screen)
    assert selections(screen) == []
    assert screen.lua("return H.resolved") is None


# --- events ------------------------------------------------------------------------------------------------------------


@quick
def test_a_callback_gets_each_event_of_its_type_and_the_session(screen, plugin):
    plugin(
        screen,
        """
        H.texts, H.other = {}, {}
        H.on = agent.on('text_delta', function(event, session)
          table.insert(H.texts, { event.text, session.id, event.type })
        end)
        H.session = agent.session()
        H.session:on('turn_ended', function(event) table.insert(H.other, event.stop_reason) end)
        """,
    )
    screen.in_a_turn("Hello")
    screen.send({"type": "turn_ended", "stop_reason": "end_turn"})
    assert screen.lua("return H.texts") == [["Hello", screen.session_id(), "text_delta"]]
    assert screen.lua("return H.other") == ["end_turn"]
    screen.lua("H.on:remove()")
    screen.in_a_turn("More")
    assert len(screen.lua("return H.texts")) == 1


def test_an_error_in_a_callback_stops_neither_the_others_nor_the_answer(screen, plugin):
    plugin(
        screen,
        """
        agent.on('text_delta', function(event) event.text = nil error('oops') end)
        agent.on('text_delta', function(event) H.text = event.text end)
        """,
    )
    screen.in_a_turn("Hello ")
    screen.send({"type": "text_delta", "block_id": 1, "text": "world"})
    screen.wait_for_transcript("Hello world")
    assert screen.lua("return H.text") == "world"
    screen.wait_for_message("jira.nvim: on('text_delta') failed: jira.lua:4: oops")
    assert screen.messages().count("oops") == 1


def test_every_event_of_the_protocol_can_be_named(screen):
    tags = [struct.__struct_config__.tag for struct in get_args(Event)]
    assert len(tags) > 40
    screen.lua("for _, tag in ipairs(...) do require('sanderling').on(tag, print) end", tags)
    text = (ROOT / "lua" / "sanderling" / "types.lua").read_text()
    assert all(
        f"---@overload fun(type: '{tag}', fn: fun(event: sanderling." in text for tag in tags
    )


def test_a_callback_of_a_session_sees_no_other_session(screen, plugin):
    plugin(
        screen,
        """
        H.seen = {}
        agent.session():on('title_changed', function(event) table.insert(H.seen, event.title) end)
        """,
    )
    screen.send({"type": "title_changed", "title": "mine"})
    screen.command("AgentNew")
    screen.send({"type": "title_changed", "title": "other"})
    assert screen.lua("return H.seen") == ["mine"]


def test_a_callback_of_a_session_is_removed_by_its_handle_and_its_error_is_shown(screen, plugin):
    plugin(
        screen,
        """
        H.seen = 0
        H.handle = agent.session():on('title_changed', function() H.seen = H.seen + 1 error('x') end)
        """,
    )
    screen.send({"type": "title_changed", "title": "one"})
    screen.wait_for_message("jira.nvim: on('title_changed') failed: jira.lua:5: x")
    screen.lua("H.handle:remove()")
    screen.send({"type": "title_changed", "title": "two"})
    assert screen.lua("return H.seen") == 1


def test_a_callback_can_close_its_session_and_remove_itself(screen, plugin):
    plugin(
        screen,
        """
        H.on = agent.on('title_changed', function(event)
          H.title = event.title
          H.on:remove()
          vim.cmd('Agent close')
        end)
        """,
    )
    screen.command("AgentNew")
    screen.send(
        {"type": "title_changed", "title": "one"}, {"type": "title_changed", "title": "two"}
    )
    assert screen.lua("return { H.title, #require('sanderling').sessions() }") == ["one", 1]
    assert "internal error" not in screen.messages()


# --- sessions ----------------------------------------------------------------------------------------------------------


def test_without_a_chat_there_is_no_session(start_screen):
    child = start_screen()
    assert child.lua("return { require('sanderling').session() or 'none' }") == ["none"]
    assert child.lua("return require('sanderling').sessions()") == []


def test_a_session_has_an_id_a_title_and_a_mode(screen):
    screen.send(
        {"type": "title_changed", "title": "Parser"}, {"type": "mode_changed", "mode": "plan"}
    )
    assert screen.lua("""
      local one = require('sanderling').session()
      return { one.id, one.title, one.mode, one.project, one.is_open, one.is_busy }
    """) == [screen.session_id(), "Parser", "plan", str(screen.project), True, False]
    assert "'mode' cannot be set" in refusal(screen, "agent.session().mode = 'auto'")


def test_sessions_are_listed_in_order_and_are_the_same_objects(screen):
    screen.command("AgentNew")
    assert screen.lua("""
      local agent = require('sanderling')
      local all, ids = agent.sessions(), {}
      for i, each in ipairs(agent.list()) do
        ids[i] = each.id == all[i].id
      end
      return { #all, ids, all[2] == agent.session() }
    """) == [2, [True, True], True]


def test_a_session_sends_steers_and_stops_though_another_is_shown(screen):
    first = screen.session_id()
    screen.lua("_G.first = require('sanderling').session()")
    screen.command("AgentNew")
    screen.lua("_G.first:send('one\\ntwo')")
    screen.lua("_G.first:steer('hurry')")
    screen.lua("_G.first:stop()")
    assert [action["type"] for action in screen.actions()] == [
        "submit_prompt",
        "steer_turn",
        "cancel_turn",
    ]
    assert screen.actions()[0]["prompt"]["text"] == "one\ntwo"
    assert screen.session_id() != first
    assert "text must be a string, got number" in refusal(screen, "_G.first:send(1)")
    assert "call it with a colon: session:send()" in refusal(screen, "_G.first.send('x')")
    assert "call it with a colon: session:messages()" in refusal(screen, "_G.first.messages()")


def test_a_closed_session_says_so(screen):
    screen.lua("_G.first = require('sanderling').session()")
    screen.command("AgentNew")
    screen.command("AgentNew")
    screen.lua("require('sanderling').switch(1)")
    screen.command("Agent close")
    assert screen.lua("return { _G.first.is_open, _G.first.title, _G.first.project }") == [
        False,
        "",
        "",
    ]
    assert "is closed" in refusal(screen, "_G.first:send('x')")
    assert "is closed" in refusal(screen, "_G.first:messages()")


MESSAGES = "return require('sanderling').session():messages(...)"
SELECTION = {"path": "a.py", "first_line": 1, "last_line": 1, "text": "x = 1"}


def test_messages_are_the_prompts_answers_and_tool_calls(screen):
    screen.send(
        {"type": "turn_started", "prompt": {"id": "1", "text": "go", "selections": [SELECTION]}},
        {"type": "thinking_delta", "block_id": 1, "text": "hm"},
        {"type": "text_delta", "block_id": 2, "text": "I "},
        {"type": "text_delta", "block_id": 2, "text": "look."},
        {"type": "block_ended", "block_id": 2},
        {"type": "tool_started", "id": "t1", "tool": "bash", "title": "make"},
        {"type": "tool_started", "id": "t2", "tool": "read", "title": "a.py"},
        {"type": "tool_started", "id": "t3", "tool": "bash", "title": "rm x"},
        {"type": "tool_ended", "id": "t1", "summary": "exit 2", "is_error": True},
        {"type": "tool_ended", "id": "t3", "summary": "denied", "is_denied": True},
        {"type": "prompt_steered", "prompt": {"id": "2", "text": "faster"}},
        {"type": "text_delta", "block_id": 3, "text": "Done."},
        {"type": "turn_ended", "stop_reason": "end_turn"},
    )
    messages = screen.lua(MESSAGES)
    assert [(each["role"], each["text"]) for each in messages] == [
        ("user", "go"),
        ("assistant", "I look."),
        ("user", "faster"),
        ("assistant", "Done."),
    ]
    assert messages[1]["tool_calls"] == [
        {"id": "t1", "tool": "bash", "title": "make", "summary": "exit 2", "is_error": True, "is_denied": False},
        {"id": "t2", "tool": "read", "title": "a.py"},
        {"id": "t3", "tool": "bash", "title": "rm x", "summary": "denied", "is_error": False, "is_denied": True},
    ]  # fmt: skip
    assert messages[0]["selections"] == [SELECTION]
    assert (messages[0]["id"], messages[2]["is_steering"]) == ("1", True)
    assert messages[3]["stop_reason"] == "end_turn"
    assert screen.lua(MESSAGES, {"count": 1}) == messages[3:]
    assert "from 1 on" in refusal(screen, "agent.session():messages({ count = 0 })")
    assert "'cnt'; did you mean 'count'?" in refusal(
        screen, "agent.session():messages({ cnt = 1 })"
    )


def test_text_after_a_tool_call_is_a_message_of_its_own(screen):
    screen.send(
        {"type": "turn_started", "prompt": {"id": "1", "text": "go"}},
        {"type": "text_delta", "block_id": 1, "text": "First."},
        {"type": "tool_started", "id": "t1", "tool": "bash", "title": "make"},
        {"type": "tool_ended", "id": "t1", "summary": "ok"},
        {"type": "text_delta", "block_id": 2, "text": "Second."},
    )
    assert [each["text"] for each in screen.lua(MESSAGES)] == ["go", "First.", "Second."]


def test_an_answer_that_begins_again_is_there_once(screen):
    screen.send(
        {"type": "turn_started", "prompt": {"id": "1", "text": "go"}},
        {"type": "text_delta", "block_id": 1, "text": "Cut off"},
        {"type": "answer_restarted", "block_id": 1},
    )
    assert [each["text"] for each in screen.lua(MESSAGES)] == ["go"]
    screen.send(
        {"type": "text_delta", "block_id": 2, "text": "Whole."},
        {"type": "turn_ended", "stop_reason": "end_turn"},
    )
    assert [each["text"] for each in screen.lua(MESSAGES)] == ["go", "Whole."]


def turn(number, text):
    return [
        {"type": "turn_started", "prompt": {"id": str(number), "text": f"prompt {number}"}},
        {"type": "text_delta", "block_id": number, "text": text},
        {"type": "turn_ended", "stop_reason": "end_turn"},
    ]


def test_messages_that_were_taken_back_are_gone(screen):
    screen.send(*turn(1, "a"), *turn(2, "b"))
    screen.send({"type": "conversation_rewound", "text": "Rewound.", "prompt_id": "2"})
    screen.send(*turn(3, "c"))
    assert [each["text"] for each in screen.lua(MESSAGES)] == ["prompt 1", "a", "prompt 3", "c"]


def test_an_earlier_page_can_be_loaded_and_comes_before(screen, plugin):
    screen.send(
        {"type": "history_shown", "events": turn(5, "e"), "has_earlier": True, "start": 50, "times": {}}
    )  # fmt: skip
    assert screen.lua("return { require('sanderling').session():messages() }")[1] is True
    asked = len(screen.actions("show_earlier"))  # the window is near the top
    plugin(screen, "agent.session():load_earlier(function(is_loaded) H.loaded = is_loaded end)")
    assert len(screen.actions("show_earlier")) == max(asked, 1)
    screen.send(
        {"type": "history_shown", "events": turn(4, "d"), "has_earlier": False, "start": 0, "times": {}}
    )  # fmt: skip
    assert screen.lua("return H.loaded") is True
    assert [each["text"] for each in screen.lua(MESSAGES)] == ["prompt 4", "d", "prompt 5", "e"]
    plugin(screen, "agent.session():load_earlier(function(is_loaded) H.loaded = is_loaded end)")
    wait_until(lambda: screen.lua("return H.loaded") is False)


def test_a_session_that_closes_while_it_loads_reports_that_nothing_was_loaded(screen, plugin):
    screen.send(
        {"type": "history_shown", "events": turn(5, "e"), "has_earlier": True, "start": 50, "times": {}}
    )  # fmt: skip
    plugin(
        screen,
        "agent.session():load_earlier(function(is_loaded) H.loaded = is_loaded error('x') end)",
    )
    screen.command("Agent close")
    wait_until(lambda: screen.lua("return H.loaded") is False)
    screen.wait_for_message("jira.nvim: load_earlier() failed: jira.lua:3: x")


def test_what_was_taken_back_on_an_earlier_page_is_not_shown_when_it_is_loaded(screen):
    screen.send(
        {"type": "history_shown", "events": turn(5, "e"), "has_earlier": True, "start": 50, "times": {}},
        {"type": "conversation_rewound", "text": "Rewound.", "prompt_id": "4"},
        *turn(6, "f"),
        {"type": "history_shown", "events": [*turn(3, "c"), *turn(4, "d")], "has_earlier": False, "start": 0, "times": {}},
    )  # fmt: skip
    assert [each["text"] for each in screen.lua(MESSAGES)] == ["prompt 3", "c", "prompt 6", "f"]


def test_a_fork_is_opened_and_has_the_messages(start_agent, plugin):
    agent = start_agent(
        reply(say("Hi."), bash("echo out")),
        DONE,
        setup={"permissions": [{"action": "allow", "tool": "bash"}]},
    )
    agent.chat("hello")
    plugin(
        agent,
        "agent.session():fork(function(copy) H.copy = copy.id H.texts = #agent.sessions() end)",
    )
    copy = wait_until(lambda: agent.lua("return H.copy"))
    assert agent.lua("return H.texts") == 2
    assert agent.session_id() == copy
    wait_until(lambda: len(agent.lua(MESSAGES)) == 3)
    user, call, answer = agent.lua(MESSAGES)
    assert (user["text"], call["text"], answer["text"]) == ("hello", "Hi.", "Done.")
    assert [each["tool"] for each in call["tool_calls"]] == ["bash"]


def test_an_error_after_a_fork_is_shown(start_agent, plugin):
    agent = start_agent(DONE)
    agent.chat("hello")
    plugin(agent, "agent.session():fork(function() error('late') end)")
    agent.wait_for_message("jira.nvim: fork() failed: jira.lua:3: late")


# --- pickers -----------------------------------------------------------------------------------------------------------

PICKER = """
H.handle = agent.picker(function(list)
  H.list = { title = list.title, lines = list.lines, keys = #list.keys }
  H.run = list.run
end)
"""


def test_a_picker_of_a_plugin_shows_the_lists(start_agent, plugin):
    agent = start_agent(DONE, setup={"picker": "select"})
    agent.chat("alpha")
    agent.command("AgentNew")
    agent.say("beta")
    plugin(agent, PICKER)
    agent.command("AgentSessions")
    shown = wait_until(lambda: agent.lua("return H.list"))
    assert shown["title"].startswith("Sessions")
    row = next(i for i, line in enumerate(shown["lines"], 1) if "alpha" in line)
    agent.lua("H.run(1, ...)", row)
    wait_until(lambda: "alpha" in agent.transcript_text())


def test_a_picker_that_fails_or_is_removed_leaves_the_lists_to_the_others(start_agent, plugin):
    agent = start_agent(DONE, setup={"picker": "select"})
    agent.chat("alpha")
    agent.lua("vim.ui.select = function() _G.selects = (_G.selects or 0) + 1 end")
    plugin(agent, "H.handle = agent.picker(function() error('broken') end)")
    agent.command("AgentSessions")
    agent.wait_for_message("The picker jira.nvim failed, so vim.ui.select() is used: ")
    wait_until(lambda: agent.lua("return _G.selects") == 1)
    plugin(agent, "H.handle:remove()\n" + PICKER)
    agent.command("AgentSessions")
    wait_until(lambda: agent.lua("return H.list"))
    agent.lua("H.handle:remove()")
    agent.command("AgentSessions")
    wait_until(lambda: agent.lua("return _G.selects") == 2)


# --- the statusline ----------------------------------------------------------------------------------------------------


def test_parts_of_the_statusline_are_added_replaced_and_hidden(screen, plugin):
    plugin(
        screen,
        """
        H.handle = agent.statusline({
          jira = function(status, session) return 'ABC-1 ' .. status.mode .. ' ' .. #session.id end,
          activity = function(status) return '<' .. status.activity .. '>' end,
          usage = false,
          empty = function() end,
        })
        """,
    )
    size = len(screen.session_id())
    assert screen.statusline().startswith("Sanderling: <idle> · ")
    assert screen.statusline().endswith(f" · ABC-1 ask {size}")
    assert "tokens" not in screen.statusline()
    assert " ·  · " not in screen.statusline()
    screen.wait_for_screen("<idle>", f"ABC-1 ask {size}")
    screen.lua("H.handle:remove()")
    assert screen.statusline().startswith("Sanderling: idle · 0 tokens")
    wait_until(lambda: "ABC-1" not in screen.screen_text())


def test_a_part_follows_the_session(screen, plugin):
    plugin(
        screen, "agent.statusline({ title = function(status) return 'mode:' .. status.mode end })"
    )
    screen.wait_for_screen("mode:ask")
    screen.send({"type": "mode_changed", "mode": "plan"})
    screen.wait_for_screen("mode:plan")


def test_an_error_in_a_part_is_shown_once_and_the_built_in_one_stays(screen, plugin):
    plugin(
        screen,
        "agent.statusline({ activity = function() error('50% broken') end, more = function() error('too') end })",
    )
    screen.wait_for_message("jira.nvim: statusline part 'activity' failed: jira.lua:3: 50% broken")
    screen.in_a_turn()
    screen.send({"type": "turn_ended", "stop_reason": "end_turn"})
    assert screen.statusline().startswith("Sanderling: idle · ")
    screen.wait_for_screen("ask idle")
    assert screen.messages().count("broken") == 1


def test_a_part_that_is_no_text_is_reported(screen, plugin):
    plugin(screen, "agent.statusline({ more = function() return {} end })")
    screen.wait_for_message(
        "jira.nvim: statusline part 'more' failed: expected a text, got a table"
    )
    assert "table" not in screen.statusline()


def test_the_chats_bars_keep_the_mode_and_the_sandbox(screen, plugin):
    plugin(screen, "agent.statusline({ mode = false, sandbox = false })")
    screen.send({"type": "mode_changed", "mode": "plan"})
    screen.send({"type": "sandbox_changed", "level": "off", "network": "off"})
    screen.wait_for_screen("plan idle", "sbx:OFF")
    assert "plan" not in screen.statusline()


# --- extensions --------------------------------------------------------------------------------------------------------


@pytest.fixture
def extension(tmp_path):
    """Write an extension into a plugin "jira.nvim" on the runtimepath."""

    def write(child, code, name="jira"):
        path = tmp_path / "jira.nvim" / "lua" / "sanderling" / "extensions" / f"{name}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        child.command(f"set runtimepath+={tmp_path / 'jira.nvim'}")

    return write


JIRA_EXTENSION = """
local M = {}
function M.setup(opts)
  _G.setups = (_G.setups or 0) + 1
  _G.opts = opts
  require('sanderling').command('jira', { desc = opts.project or 'none', run = function() error('x') end })
end
return M
"""


def test_an_extension_is_loaded_once_with_its_options(screen, extension):
    extension(screen, JIRA_EXTENSION)
    screen.setup(extensions={"jira": {"project": "ABC"}})
    screen.lua("_G.module = require('sanderling').extension('jira')")
    assert screen.lua("return require('sanderling').extension('jira') == _G.module") is True
    assert screen.lua("return { _G.setups, _G.opts.project }") == [1, "ABC"]
    screen.feed("i/jira<C-s>")
    screen.wait_for_message("jira.nvim: /jira failed: jira.lua:6: x")


def test_an_extension_that_fails_can_be_loaded_again(screen, extension):
    extension(screen, "return { setup = function() error('no token') end }")
    assert "jira.lua:1: no token" in refusal(screen, "agent.extension('jira')")
    screen.lua("package.loaded['sanderling.extensions.jira'] = nil")
    extension(screen, JIRA_EXTENSION)
    screen.lua("require('sanderling').extension('jira')")
    assert screen.lua("return _G.setups") == 1


def test_configured_extensions_are_loaded_when_a_chat_first_opens(start_screen, extension):
    child = start_screen()
    extension(child, JIRA_EXTENSION)
    child.setup(extensions={"jira": {"project": "ABC"}})
    assert child.lua("return _G.setups") is None
    child.command("AgentChat")
    assert child.lua("return { _G.setups, _G.opts.project }") == [1, "ABC"]
    child.command("AgentNew")
    assert child.lua("return _G.setups") == 1


def test_a_configured_extension_that_fails_is_reported_and_the_others_are_loaded(
    start_screen, extension
):
    child = start_screen()
    extension(child, JIRA_EXTENSION)
    extension(child, "return { setup = function() error('no token') end }", "broken")
    extension(child, "return {}", "empty")
    extension(child, "return {", "syntax")
    child.setup(extensions={"broken": {}, "empty": {}, "gone": {}, "jira": {}, "syntax": {}})
    child.command("AgentChat")
    assert child.lua("return _G.setups") == 1
    child.wait_for_message("extension 'broken' failed: broken.lua:1: no token")
    child.wait_for_message("extension 'syntax' failed: syntax.lua:1: unexpected symbol")
    child.wait_for_message("'empty' has no function setup(opts)")
    child.wait_for_message("no plugin in 'runtimepath' has lua/sanderling/extensions/gone.lua")
    child.feed("iworks<C-s>")
    wait_for_prompt(child)


def test_wrong_options_of_extensions_are_reported(start_screen):
    child = start_screen()
    child.lua("require('sanderling').setup({ extensions = { 'jira' } })")
    child.wait_for_message("option 'extensions' must be tables of options by name")


def test_the_version_of_the_api_is_a_number(start_screen):
    assert start_screen().lua("return require('sanderling').api_version") == 1
