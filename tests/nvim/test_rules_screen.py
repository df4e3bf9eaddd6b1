"""The page of rules, :AgentRules."""

import pytest
from tests.conftest import wait_until
from tests.nvim.replies import DONE, bash, reply

ALLOWED = {
    "rule": "allow bash make test",
    "origin": "always",
    "kind": "always",
    "last_use": "2026-11-28",
}
OF_SESSION = {"rule": "allow edit src/**", "origin": "session", "kind": "session"}
DENIED = {"rule": "deny bash rm", "origin": ".sanderling.toml:3"}


def show(screen, rules, **more):
    screen.lua("_G.answers = {}")
    screen.command("AgentRules")
    answer(screen, rules, **more)
    screen.wait_for_screen("Rules")


def answer(screen, rules, **more):
    wait_until(lambda: screen.lua("return _G.answers.list_rules ~= nil"))
    screen.answer("list_rules", rules=rules, **more)


def changes(screen):
    return [(action["rule"], action["new"]) for action in screen.actions("change_rule")]


def test_each_rule_is_shown_with_its_origin_and_last_use_those_first_that_override(screen):
    show(screen, [ALLOWED, OF_SESSION, DENIED])
    assert screen.lines() == [
        "✗ deny bash rm",
        "    .sanderling.toml:3",
        "✓ allow bash make test",
        "    always · last used 2026-11-28",
        "✓ allow edit src/**",
        "    session",
    ]
    assert "e edit  d delete  <CR> open settings" in screen.screen_text()


def test_without_rules_the_page_says_so_and_shows_a_problem(screen):
    show(screen, [], problem="The rules file is broken.")
    assert screen.lines() == ["The rules file is broken."]
    screen.feed("q")
    show(screen, [])
    assert screen.lines() == ["No rules: the mode alone decides."]


def test_a_rule_is_edited_and_deleted_at_the_cursor_and_the_page_is_drawn_again(screen):
    show(screen, [ALLOWED, OF_SESSION])
    screen.feed("e $<CR>")
    wait_until(lambda: changes(screen) == [("allow bash make test", "allow bash make test $")])
    answer(screen, [ALLOWED | {"rule": "allow bash make test $"}, OF_SESSION])
    wait_until(lambda: screen.lines()[0] == "✓ allow bash make test $")
    screen.lua("_G.answers = {}")
    screen.feed("jjd")
    wait_until(lambda: changes(screen)[1:] == [("allow edit src/**", "")])
    answer(screen, [ALLOWED])
    wait_until(lambda: len(screen.lines()) == 2)


@pytest.mark.parametrize("typed", ["<Esc>", "<CR>", "<C-u><CR>", "<C-u>  <CR>"])
def test_an_edit_without_a_change_changes_nothing(screen, typed):
    show(screen, [ALLOWED])
    screen.feed(f"e{typed}")
    screen.feed("j")
    wait_until(lambda: screen.lua("return vim.fn.line('.')") == 2)
    assert changes(screen) == []


@pytest.mark.parametrize("key", ["e", "d"])
def test_a_rule_of_the_settings_is_not_changed_here(screen, key):
    show(screen, [DENIED])
    screen.feed(key)
    screen.wait_for_message("This rule is from .sanderling.toml:3: change it there.")
    assert changes(screen) == []


def test_a_stored_rule_that_restricts_is_deleted_after_a_question(screen):
    show(screen, [{"rule": "deny bash rm", "origin": "always", "kind": "always"}])
    screen.feed("d2<CR>")
    screen.feed("d1<CR>")
    wait_until(lambda: changes(screen))
    assert changes(screen) == [("deny bash rm", "")]


def test_enter_opens_the_settings_file_at_the_line_of_the_rule(screen, tmp_path):
    project = screen.lua("return vim.fn.getcwd()")
    file = tmp_path / "config with blanks.toml"
    file.write_text("\n" * 9)
    show(screen, [{"rule": "ask bash make", "origin": f"{file}:7", "file": f"{file}", "line": 7}])
    screen.feed("j<CR>")
    wait_until(lambda: screen.lua("return vim.api.nvim_buf_get_name(0)") == str(file))
    assert screen.lua("return vim.fn.line('.')") == 7
    assert project not in screen.lua("return vim.api.nvim_buf_get_name(0)")


def test_what_may_be_changed_does_not_depend_on_the_words_of_its_origin(screen):
    show(screen, [{"rule": "deny bash rm", "origin": "session of x.toml:3"}])
    screen.feed("d")
    screen.wait_for_message("This rule is from session of x.toml:3: change it there.")


@pytest.mark.parametrize("origin", ["always", "session", "setup()", ".sanderling.toml:3 on box"])
def test_enter_on_a_rule_without_a_file_here_says_so(screen, origin):
    show(screen, [{"rule": "allow bash make", "origin": origin}])
    screen.feed("<CR>")
    screen.wait_for_message(f"This rule is in no file here: {origin}.")


FORGED = {
    "allow bash make\n✗ deny bash rm": "✓ allow bash make<U+000A>✗ deny bash rm",
    "allow bash make\r\x1b[2K": "✓ allow bash make<U+000D><U+001B>[2K",
    "allow bash make\tx\x7f": "✓ allow bash make<U+0009>x<U+007F>",
    "allow bash make ": "✓ allow bash make<U+0020>",
    "allow bash  make": "✓ allow bash<U+0020><U+0020>make",
    f"allow bash make{' ' * 80}deny": "✓ allow bash make<U+0020 80 times>deny",
    "allow bash \u202ekam\u200b\u00a0x": "✓ allow bash <U+202E>kam<U+200B><U+00A0>x",
}


@pytest.mark.parametrize("rule", FORGED)
def test_a_rule_cannot_look_like_another_or_like_two(screen, rule):
    show(screen, [{"rule": rule, "origin": "always", "kind": "always"}])
    assert screen.lines() == [FORGED[rule], "    always"]
    screen.feed("e")
    screen.wait_for_message("This rule has characters that cannot be edited here.")
    screen.feed("d")
    wait_until(lambda: changes(screen) == [(rule, "")])


def test_a_long_rule_is_shown_whole_and_its_further_rows_are_marked(screen):
    rule = "allow bash " + "x" * 150 + "✗deny"
    show(screen, [{"rule": rule, "origin": "always", "kind": "always"}])
    rows = screen.screen_text().split("\n")
    [last] = [row for row in rows if "✗deny" in row]
    assert "↪ " in last[: last.index("✗deny")]


def test_a_refusal_is_shown_while_the_page_covers_the_chat(screen):
    show(screen, [ALLOWED])
    screen.send({"type": "notice", "level": "warning", "text": "Nothing changed: no rule."})
    screen.wait_for_message("Nothing changed: no rule.")


def test_the_page_closes_with_its_session_and_lists_its_keys(screen):
    show(screen, [ALLOWED])
    screen.feed("g?")
    screen.wait_for_screen("open the settings file at the rule")
    screen.feed("q")
    screen.command("Agent close")
    wait_until(lambda: "always" not in screen.screen_text())


# --- from end to end ---------------------------------------------------------------------------------------------------


def test_what_was_allowed_for_the_session_asks_again_once_it_is_deleted(asking_agent):
    agent = asking_agent(
        reply(bash("touch made")), DONE | {"repeat": False}, reply(bash("touch made")), DONE
    )
    agent.answer_question("s")
    agent.command("AgentRules")
    agent.wait_for_screen("allow bash touch made $", "session")
    agent.feed("d")
    agent.wait_for_screen("No rules: the mode alone decides.")
    agent.feed("q")
    agent.ask("Again.")
    agent.wait_for_question(2)


def test_an_invalid_rule_is_refused_in_words_and_the_stored_one_stays(asking_agent):
    agent = asking_agent(reply(bash("touch made")), DONE)
    agent.enter_question()
    agent.feed("A<CR>")
    agent.wait_for_turns()
    agent.command("AgentRules")
    agent.wait_for_screen("allow bash touch made $", "always")
    agent.feed("e<C-u>permit bash<CR>")
    agent.wait_for_message("'permit bash' is not a rule")
    agent.feed("e<C-u>allow bash touch<CR>")
    agent.wait_for_screen("✓ allow bash touch ")


def test_the_page_is_there_without_a_chat_and_leads_to_the_users_settings(start_agent):
    agent = start_agent(DONE, setup={"permissions": [{"action": "ask", "tool": "web_fetch"}]})
    settings = agent.home / "config" / "sanderling" / "config.toml"
    settings.parent.mkdir(parents=True)
    rule = '[[permissions]]\naction = "deny"\ntool = "bash"\ncommand = "rm"\n'
    settings.write_text(f"# mine\n\n{rule}")
    agent.command("AgentRules")
    agent.wait_for_screen("✗ deny bash rm", "~/config/sanderling/config.toml:3", "ask web_fetch")
    assert "setup()" in agent.screen_text()
    agent.feed("gg<CR>")
    wait_until(lambda: agent.lua("return vim.api.nvim_buf_get_name(0)") == str(settings))
    assert agent.lua("return vim.fn.line('.')") == 3
