"""The list of tool servers, :Agent mcp."""

import pytest
from tests.conftest import prove, prove_rest, running, wait_until
from tests.mcp.conftest import hostile
from tests.nvim.replies import DONE, reply, say, use
from tests.nvim.test_tools_screen import prompt_winbar

SERVERS = [
    {
        "name": "git",
        "state": "ready",
        "place": "mcp-server-git --repository .",
        "era": "2026-07-28",
        "tools": ["git_status", "git_log"],
    },
    {
        "name": "linear",
        "state": "failed",
        "place": "https://mcp.linear.app/mcp",
        "why": "it requires a login: `L` in :Agent mcp opens its page",
        "needs_login": True,
    },
    {"name": "notes", "state": "stopped", "place": "notes-server", "is_projects": True},
]


@pytest.fixture
def shown(screen):
    screen.send({"type": "tool_servers_changed", "servers": SERVERS})
    show(screen)
    return screen


def show(screen, servers=SERVERS):
    screen.lua("_G.answers = {}")
    screen.command("Agent mcp")
    wait_until(lambda: screen.actions("list_tool_servers"))
    screen.answer("list_tool_servers", servers=servers)


def lines(screen):
    return screen.lines()


def controls(screen):
    return [(action["name"], action["what"]) for action in screen.actions("control_tool_server")]


def test_the_list_tells_how_each_server_is(shown):
    shown.wait_for_screen("Tool servers")
    assert lines(shown) == [
        "✓ git     ready · 2026-07-28 · 2 tools",
        "    mcp-server-git --repository .",
        "✗ linear  failed",
        "    https://mcp.linear.app/mcp",
        "    it requires a login: `L` in :Agent mcp opens its page",
        "⏸ notes   stopped · the project's",
        "    notes-server",
    ]
    assert "<CR> details  r restart  d disable  L log in" in shown.screen_text()


def test_keys_are_about_the_server_at_the_cursor(shown):
    shown.wait_for_screen("Tool servers")
    shown.feed("jr")
    shown.feed("jL")
    shown.feed("3jd")
    wait_until(lambda: len(controls(shown)) == 3)
    assert controls(shown) == [("git", "start"), ("linear", "login"), ("notes", "stop")]


def test_the_list_changes_while_it_is_read_and_the_cursor_stays_on_its_server(shown):
    shown.wait_for_screen("Tool servers")
    shown.feed("jj")
    starting = SERVERS[0] | {"state": "restarting", "why": "it was ended by SIGKILL"}
    shown.send({"type": "tool_servers_changed", "servers": [starting, *SERVERS[1:]]})
    shown.wait_for_screen("◐ git     restarting")
    assert "it was ended by SIGKILL" in shown.screen_text()
    assert shown.lua("return vim.api.nvim_get_current_line()") == "✗ linear  failed"


def test_what_a_server_offers_and_has_said_is_shown_whole(shown):
    shown.wait_for_screen("Tool servers")
    shown.feed("<CR>")
    wait_until(lambda: shown.actions("show_tool_server"))
    shown.answer("show_tool_server", title="git", text="## Tools\n* `git_status`\n")
    shown.wait_for_screen("Tools")
    shown.feed("q")
    wait_until(
        lambda: (
            "✗ linear"
            in shown.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true))")
        )
    )


def test_the_list_of_another_session_replaces_the_one_on_the_screen(shown):
    shown.wait_for_screen("Tool servers", "linear")
    shown.command("AgentNew")
    other = SERVERS[0] | {"name": "jira"}
    shown.send({"type": "tool_servers_changed", "servers": [other]})
    show(shown, [other])
    shown.wait_for_screen("Tool servers", "jira")
    assert "linear" not in shown.screen_text()
    shown.feed("r")
    wait_until(lambda: controls(shown) == [("jira", "start")])


def test_without_servers_it_says_how_one_is_declared(screen):
    show(screen, [])
    screen.wait_for_message("see :help sanderling-mcp")


def test_the_keys_of_the_list_are_shown(shown):
    shown.wait_for_screen("Tool servers")
    shown.feed("g?")
    shown.wait_for_screen("log in to the server in a browser")


def test_the_page_of_a_login_is_opened_and_can_be_copied(screen):
    screen.lua("vim.ui.open = function(url) _G.opened = url end")
    url = "https://auth.example.org/authorize?state=1"
    screen.send({"type": "link_offered", "url": url, "text": "Log in at linear:"})
    wait_until(lambda: screen.lua("return _G.opened") == url)
    assert url in screen.transcript_text()


def test_a_server_that_has_failed_is_seen_in_the_bars(screen):
    screen.send({"type": "tool_servers_changed", "servers": SERVERS})
    wait_until(lambda: "1 server failed" in prompt_winbar(screen))
    assert "1 server failed" in screen.statusline()
    screen.send({"type": "tool_servers_changed", "servers": SERVERS[:1]})
    wait_until(lambda: "failed" not in prompt_winbar(screen))


# --- in a prompt -------------------------------------------------------------------------------------------------------


def menu(screen):
    return screen.lua("""
      return vim.tbl_map(function(item) return item.word end, vim.fn.complete_info({ 'items' }).items)
    """)


@pytest.fixture
def prompt(screen):
    offering = SERVERS[0] | {"resources": ["note://today", "note://day/{number}"]}
    screen.send({"type": "tool_servers_changed", "servers": [offering]})
    return screen


@pytest.mark.parametrize("before", prove_rest(["", "see ", "one<CR>two ("]))
def test_resources_are_completed_where_one_is_mentioned(prompt, before):
    prompt.feed(f"i{before}@gi")
    wait_until(lambda: menu(prompt) == ["@git:note://today", "@git:note://day/{number}"])
    prompt.feed("t:note://t")
    wait_until(lambda: menu(prompt) == ["@git:note://today"])
    prompt.feed("<Tab>")
    wait_until(lambda: prompt.prompt_lines()[-1].endswith("@git:note://today"))


def test_resources_come_after_what_the_user_has(prompt):
    prompt.feed("i@")
    wait_until(lambda: "@buffer" in menu(prompt))
    words = menu(prompt)
    assert words[0] == "@buffer"
    assert words[-2:] == ["@git:note://today", "@git:note://day/{number}"]


@pytest.mark.parametrize("typed", prove_rest(["me@git:n", "@@g", "@x", "no at"]))
def test_nothing_is_offered_where_nothing_can_be_meant(prompt, typed):
    prompt.feed(f"i{typed}")
    wait_until(lambda: prompt.prompt_lines() == [typed])
    assert prompt.lua("return vim.fn.pumvisible()") == 0


def test_a_menu_of_resources_that_was_sent_away_stays_away(prompt):
    prompt.feed("isee @g")
    wait_until(lambda: menu(prompt))
    prompt.feed("<C-e>it")
    wait_until(lambda: prompt.prompt_lines() == ["see @git"])
    assert prompt.lua("return vim.fn.pumvisible()") == 0


@pytest.mark.parametrize("columns", [60, 80, 160])
def test_the_list_fits_the_screen(screen, columns):
    screen.lua("vim.o.columns = ...", columns)
    long = {"place": "git-server " + "word " * 40, "why": "it ended " + "again " * 40}
    servers = [SERVERS[0] | long]
    screen.send({"type": "tool_servers_changed", "servers": servers})
    show(screen, servers)
    screen.wait_for_screen("Tool servers")
    width = screen.lua("return vim.api.nvim_win_get_width(0)")
    assert max(map(len, lines(screen))) <= width


def test_a_report_that_comes_while_a_prompt_is_written_is_read_in_normal_mode(screen):
    screen.feed("i")
    screen.lua("require('sanderling.access.page').view('A', { 'text' }, 'report')")
    wait_until(lambda: screen.lua("return vim.api.nvim_get_mode().mode") == "n")


# --- from end to end ----------------------------------------------------------------------------------------------------


def servers(marker, **more):
    declared = hostile(f"of:{marker}", **more)
    return {"mcp": {"servers": {"bad": declared}}, "permissions": []}


def is_running(marker):
    return bool(running(f"of:{marker}"))


def wait_until_ready(agent, marker):
    """The server runs; that it is ready, nobody sees yet, so the first prompt gives it the time of a turn."""
    wait_until(lambda: is_running(marker), "the server runs")
    agent.ask_and_wait()


@prove
def test_tool_of_a_server_asks_runs_and_its_result_is_told(start_agent, project, tmp_path):
    call = use("mcp__bad__write", words=str(project / "made"))
    slow = reply(say("Hello."), use("bash", command="sleep 1"))
    agent = start_agent(slow, DONE | {"repeat": False}, reply(call), DONE, setup=servers(tmp_path))
    agent.command("AgentMode auto")
    wait_until_ready(agent, tmp_path)
    agent.ask("Write it.")
    text = agent.wait_for_question()
    assert "mcp__bad__write" in text
    assert '"words":' in text
    agent.enter_question()
    agent.feed("a")
    agent.wait_for_turns(2)
    assert (project / "made").read_text() == "written"
    assert agent.results()[-1] == str(project / "made")


@prove
def test_servers_end_with_the_editor(start_agent, tmp_path):
    agent = start_agent(DONE, setup=servers(tmp_path))
    agent.command("AgentChat")
    wait_until(lambda: is_running(tmp_path), "the server runs")
    agent.close()
    wait_until(lambda: not is_running(tmp_path), "the server has ended")
