"""Child sessions on the screen of the session that started them: their lines, their questions, and the way to them and back."""

import pytest
from tests.conftest import prove, wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.test_diagnostics import reply, use

PARENT = "the-parent"


def child_changed(number=1, state="running", **more):
    """How the `number`th child is now."""
    return {
        "type": "child_changed",
        "id": f"child-{number}",
        "tool_id": f"use-{number}",
        "name": "explore",
        "task": "Find the configuration",
        "state": state,
    } | more


def started(number=1, title="explore: Find the configuration"):
    return {"type": "tool_started", "id": f"use-{number}", "tool": "delegate", "title": title}


def ended(number=1, summary="done", detail="It is in src/settings.py:12."):
    return {"type": "tool_ended", "id": f"use-{number}", "summary": summary, "detail": detail}


def used(calls=3, tokens=12_345, cost_usd=0.021, budget_tokens=200_000):
    return {
        "calls": calls,
        "tokens": tokens,
        "cost_usd": cost_usd,
        "budget_tokens": budget_tokens,
    }


def question(number=1, title="new.txt", **more):
    return {
        "type": "approval_requested",
        "id": f"child-{number}/w{number}",
        "tool": "write",
        "title": title,
        "subject": "new.txt",
        "choices": ["once", "session", "always"],
        "reason": "It changes a file.",
        "cwd": "/",
        "rule": "allow write ./**",
        "child": "explore",
    } | more


@pytest.fixture
def parent(screen):
    """A chat whose model has delegated a task."""
    screen.in_a_turn("I look for it.\n\n")
    screen.send(started())
    return screen


def line_of(screen, text):
    """The row of the screen with `text`."""
    rows = [row for row in screen.wait_for_screen(text).splitlines() if text in row]
    return rows[0].partition("│")[2].strip()


def enter_transcript(screen, text):
    """Go to the line of the transcript with `text`."""
    screen.lua(
        """
        vim.api.nvim_set_current_win(require('sanderling').transcript().win)
        vim.cmd.stopinsert()
        vim.fn.cursor(1, 1)
        vim.fn.search([[\\V]] .. ..., 'cW')
        """,
        text,
    )


def open_sessions(screen):
    return screen.lua(
        "return vim.tbl_map(function(s) return s.id end, require('sanderling.session.live').all())"
    )


def shown_session(screen):
    return screen.lua("return require('sanderling.session.live').current_id()")


# --- the line of a child -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event, shown",
    [
        (child_changed(state="queued"), "explore · queued"),
        (child_changed(), "explore · working"),
        (child_changed(activity="grep TODO"), "explore · grep TODO"),
        (
            child_changed(activity="grep TODO", **used()),
            "explore · grep TODO · 3 calls · 12.3k of 200k tokens · $0.02",
        ),
        (child_changed(calls=1, tokens=840), "explore · working · 1 call · 840 tokens"),
        (child_changed(state="waiting"), "explore · waiting for you"),
        (
            child_changed(state="waiting", activity="write a.txt"),
            "explore · waiting for you: write a.txt",
        ),
        (child_changed(state="done", activity="grep TODO"), "explore · done"),
        (child_changed(state="partial"), "explore · stopped, with a partial result"),
        (child_changed(state="budget"), "explore · budget used up"),
        (child_changed(state="timeout"), "explore · out of time"),
        (child_changed(state="denied"), "explore · denied"),
        (child_changed(state="error"), "explore · failed"),
        (child_changed(activity="two\nlines"), "explore · two lines"),
    ],
)
def test_the_line_of_a_child_says_what_it_does_and_has_used(start_chat, event, shown):
    screen = start_chat(columns=160)
    screen.in_a_turn("I look for it.\n\n")
    screen.send(started(), event)
    assert line_of(screen, "  explore ·") == shown


@pytest.mark.parametrize("count", [1, 4])
def test_the_lines_of_children_below_a_full_window_are_in_view(start_chat, count):
    screen = start_chat(columns=80, lines=24)
    screen.in_a_turn("\n\n".join(f"Paragraph {number}." for number in range(30)) + "\n\n")
    for number in range(1, count + 1):
        screen.send(started(number), child_changed(number, name=f"explore {number}"))
    screen.wait_for_screen(f"explore {count} · working")
    screen.send(child_changed(count, name=f"explore {count}", activity="grep TODO"))
    screen.wait_for_screen(f"explore {count} · grep TODO")


def test_a_narrow_bar_counts_the_children_instead_of_naming_the_tool(start_chat):
    screen = start_chat(columns=80, lines=24)
    screen.in_a_turn("I look for it.\n\n")
    screen.send(started(), started(2), child_changed(), child_changed(2))
    assert "running · 2 children" in screen.wait_for_screen("2 children")


def test_the_chat_of_a_child_in_a_narrow_window_says_that_it_is_one(start_chat):
    screen = start_chat(columns=80, lines=24)
    role = {"type": "role_changed", "name": "explore"}
    opened = {"type": "session_opened", "model": "a-model", "parent": PARENT}
    screen.send(opened, role)
    screen.wait_for_screen("idle · child, role explore")


def test_a_session_in_a_worktree_says_so(screen):
    opened = {"type": "session_opened", "model": "a-model", "worktree": "main-1a2b3c"}
    screen.send(opened)
    screen.wait_for_screen("idle · worktree")
    assert "· worktree ·" in screen.statusline()
    screen.in_a_turn()
    (line,) = listed(screen)
    assert "worktree main-1a2b3c" in line


def test_the_line_of_a_child_changes_in_place(parent):
    before = parent.transcript()
    for calls in range(1, 30):
        parent.send(child_changed(activity=f"step {calls}", calls=calls))
    assert "explore · step 29 · 29 calls" in parent.wait_for_screen("step 29")
    assert parent.screen_text().count("explore ·") == 1
    assert parent.transcript() == before


def test_each_of_several_children_has_its_line_below_its_call(parent):
    parent.send(started(2, "review: Check the tests"))
    parent.send(
        child_changed(2, name="review", activity="read b.py"), child_changed(activity="read a.py")
    )
    rows = parent.wait_for_screen("read a.py", "read b.py").splitlines()
    at = {
        text: next(i for i, row in enumerate(rows) if text in row)
        for text in ("Find the", "read a", "Check the", "read b")
    }
    assert at["read a"] == at["Find the"] + 1
    assert at["read b"] == at["Check the"] + 1


@pytest.mark.parametrize(
    "columns, shown",
    [
        (38, "explore · reading src/config · $0.02"),
        (25, "explore · reading src/c…"),
    ],
)
def test_a_narrow_window_shows_the_activity_rather_than_the_counts(start_chat, columns, shown):
    screen = start_chat(columns=160)
    screen.in_a_turn("I look for it.\n\n")
    screen.lua(
        "vim.api.nvim_win_set_width(require('sanderling').transcript().win, ...)", columns + 2
    )
    screen.send(started(), child_changed(activity="reading src/config", **used()))
    assert line_of(screen, "  explore ·") == shown


def test_the_line_of_a_child_is_fitted_when_its_window_changes(parent):
    parent.send(child_changed(state="waiting", activity="write the/first/file.txt", **used()))
    wide = line_of(parent, "  explore ·")
    resize = "vim.api.nvim_win_set_width(require('sanderling').transcript().win, ...)"
    parent.lua(resize, 30)
    wait_until(lambda: line_of(parent, "  explore ·").endswith("…"))
    parent.lua(resize, 50)
    wait_until(lambda: line_of(parent, "  explore ·") == wide)


def test_the_line_of_a_child_that_changed_while_its_parent_was_hidden_fits(start_chat):
    screen = start_chat(columns=80, lines=24)
    screen.in_a_turn("I look for it.\n\n")
    session_id = screen.session_id()
    screen.send(started(), child_changed())
    open_child = "require('sanderling.chat').open(..., '/', {})"
    screen.lua(open_child, "child-1")
    wait_until(lambda: shown_session(screen) == "child-1")
    to_session(screen, session_id, child_changed(activity="read app.py", **used()))
    screen.lua(open_child, session_id)
    assert line_of(screen, "  explore ·") == "explore · read app.py · $0.02"


def test_the_end_of_a_call_replaces_the_line_and_its_fold_shows_the_result(parent):
    parent.send(child_changed(state="done", **used()), ended(summary="done · 3 calls"))
    assert "explore ·" not in parent.wait_for_screen("done · 3 calls")
    enter_transcript(parent, "delegate")
    parent.feed("zo")
    assert "It is in src/settings.py:12." in parent.wait_for_screen("src/settings.py:12")


def folded(screen):
    """The lines of the transcript as they are shown, without blank ones."""
    return [
        line
        for line in screen.in_transcript(
            "map(range(1, line('$')), {_, l -> foldclosed(l) == -1 ? getline(l) : foldclosed(l) == l ? foldtextresult(l) : ''})"
        )
        if line
    ]


def test_each_of_several_children_keeps_its_result_below_its_own_header(parent):
    tasks = {2: "review: Check the tests", 3: "edit: Write a test"}
    parent.send(*(started(n, title) for n, title in tasks.items()))
    parent.send(*(child_changed(n, activity=f"step of {n}") for n in (1, 2, 3)))
    parent.send(child_changed(2, state="done"), ended(2, "done", "Two are missing.\nOne is wrong."))
    assert "explore · step of 3" in parent.wait_for_screen("explore · step of 1", "done · 2 lines")
    assert "step of 2" not in parent.screen_text()
    parent.send(child_changed(1, state="done"), ended(1, "done · 3 calls"))
    parent.send(child_changed(3, state="error"), ended(3, "failed", "No key.") | {"is_error": True})
    parent.send(
        {"type": "text_delta", "block_id": 2, "text": "All have ended."},
        {"type": "block_ended", "block_id": 2},
    )
    shown = folded(parent)
    assert shown[-5:] == [
        "▸ delegate explor…ation  done · 3 calls · 1 line",
        "▸ delegate review: Ch… the tests  done · 2 lines",
        "delegate edit: Write a test  ✗ failed",
        "No key.",
        "All have ended.",
    ]
    assert "(continued)" not in parent.transcript_text()
    text = parent.transcript_text()
    places = [
        text.index(part)
        for part in (
            "Find the",
            "src/settings",
            "Check the",
            "Two are",
            "One is",
            "Write a",
            "No key",
            "All have",
        )
    ]
    assert places == sorted(places)
    for header, detail in (
        ("Find the", "It is in"),
        ("Check the", "Two are"),
        ("Write a", "No key"),
    ):
        enter_transcript(parent, header)
        parent.feed("zo")
        enter_transcript(parent, detail)
        assert parent.in_transcript("foldlevel('.')") == 1
    parent.feed("gg]t]t")
    wait_until(lambda: "Check the" in parent.lua("return vim.api.nvim_get_current_line()"))
    parent.feed("gf")
    wait_until(lambda: shown_session(parent) == "child-2")


def test_a_window_keeps_its_view_when_a_result_is_put_in_above_it(parent):
    parent.send(started(2, "review: Check the tests"), child_changed(1), child_changed(2))
    for number in range(10, 60):
        parent.send(started(number, f"grep {number}") | {"tool": "grep"}, ended(number, "", ""))
    enter_transcript(parent, "grep 30")
    parent.feed("zt3j")
    wait_until(lambda: "grep 33" in parent.lua("return vim.api.nvim_get_current_line()"))
    before = parent.screen_text().replace("1 child", "").replace("2 children", "")
    parent.send(child_changed(1, state="done"), ended(1, "done", "one\ntwo\nthree"))
    assert "grep 33" in parent.lua("return vim.api.nvim_get_current_line()")
    rows = [row.partition("│")[2] for row in before.splitlines()[:30]]
    assert [row.partition("│")[2] for row in parent.screen_text().splitlines()[:30]] == rows
    parent.send(ended(2, "done", "four"))
    parent.send({"type": "text_delta", "block_id": 2, "text": "The end."})
    parent.feed("G")
    parent.wait_for_screen("The end.")


def test_a_child_whose_call_is_shown_later_has_its_line_then(screen):
    screen.in_a_turn("I look for it.\n\n")
    screen.send(child_changed(state="waiting", activity="write a.txt"))
    assert "explore ·" not in screen.screen_text()
    screen.send(started())
    assert line_of(screen, "  explore ·") == "explore · waiting for you: write a.txt"


# --- to the child and back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["<CR>", "gf"])
def test_a_key_on_its_line_opens_the_child_and_another_goes_back(parent, key):
    session_id = parent.session_id()
    parent.send(child_changed())
    enter_transcript(parent, "delegate")
    parent.feed(key)
    wait_until(lambda: shown_session(parent) == "child-1")
    parent.send({"type": "session_opened", "model": "m", "title": "Find it", "parent": session_id})
    parent.send({"type": "title_changed", "title": "Find it"})
    assert "child of" in parent.winbar()[0]
    assert "Find it" in parent.winbar()[0]
    parent.feed("<Esc>\\b")
    wait_until(lambda: shown_session(parent) == session_id)
    assert open_sessions(parent) == [session_id, "child-1"]


@pytest.mark.parametrize(
    "options",
    [
        {"position": "float"},
        {"position": "tab"},
        {"position": "bottom"},
        {"position": "current"},
        {"markdown": "treesitter"},
    ],
    ids=str,
)
def test_the_line_and_the_way_to_the_child_are_the_same_in_every_layout(start_screen, options):
    screen = start_screen(columns=130)
    screen.setup(chat=options | {"start_insert": False})
    screen.command("AgentChat")
    screen.in_a_turn("I look for it.\n\n")
    screen.send(started(), child_changed(activity="grep TODO", **used()))
    screen.wait_for_screen("explore · grep TODO ·")
    session_id, windows = screen.session_id(), screen.lua("return #vim.api.nvim_list_wins()")
    enter_transcript(screen, "delegate")
    screen.feed("<CR>")
    wait_until(lambda: shown_session(screen) == "child-1")
    assert screen.lua("return #vim.api.nvim_list_wins()") == windows
    opened = {"type": "session_opened", "model": "m", "parent": session_id}
    to_session(screen, "child-1", opened)
    screen.feed("<Esc>\\b")
    wait_until(lambda: shown_session(screen) == session_id)
    screen.wait_for_screen("explore · grep TODO")
    assert screen.lua("return #vim.api.nvim_list_wins()") == windows


def test_the_child_opens_from_its_closed_fold_and_from_the_history(parent):
    session_id = parent.session_id()
    events = [started(7, "explore: An earlier one"), child_changed(7, state="done"), ended(7)]
    parent.send({"type": "history_shown", "events": events})
    parent.send(child_changed(state="done"), ended())
    for text, child in (("An earlier one", "child-7"), ("Find the", "child-1")):
        enter_transcript(parent, text)
        assert parent.in_transcript("foldclosed('.')") != -1
        parent.feed("<CR>")
        wait_until(lambda: shown_session(parent) == child)  # noqa: B023
        parent.lua("require('sanderling.chat').open(..., '/', {})", session_id)


def test_a_child_that_waits_for_its_turn_cannot_be_opened_yet(parent):
    session_id = parent.session_id()
    parent.send(child_changed(state="queued"))
    enter_transcript(parent, "delegate")
    parent.feed("<CR>")
    parent.wait_for_message("has not started yet")
    assert open_sessions(parent) == [session_id]


def test_a_key_stops_the_child_of_the_line(parent):
    parent.send(child_changed())
    enter_transcript(parent, "I look")
    parent.feed("\\s")
    parent.wait_for_message("No child session under the cursor.")
    enter_transcript(parent, "delegate")
    parent.feed("\\s")
    wait_until(lambda: parent.actions("stop_child") == [{"type": "stop_child", "id": "child-1"}])
    parent.send(child_changed(state="partial"))
    parent.feed("\\s")
    parent.wait_for_message("This child session has already ended.")
    assert len(parent.actions("stop_child")) == 1


def test_a_session_without_a_parent_says_so(parent):
    enter_transcript(parent, "I look")
    parent.feed("\\b")
    parent.wait_for_message("No other session has started this one.")


# --- counts and events -------------------------------------------------------------------------------------------------


def test_the_statusline_counts_children_that_run_and_that_wait(parent):
    parent.send(
        started(2), started(3), child_changed(1), child_changed(2), child_changed(3, state="done")
    )
    assert "2 children" in parent.statusline()
    parent.send(child_changed(2, state="waiting"))
    assert "2 children (1 waiting)" in parent.statusline()
    status = parent.lua("return require('sanderling').status()")
    assert (status["children"], status["children_waiting"]) == (2, 1)
    parent.send(child_changed(1, state="done"))
    assert "1 child (1 waiting)" in parent.statusline()
    parent.send(child_changed(2, state="denied"))
    assert "child" not in parent.statusline()


def test_a_plugin_hears_of_every_change_and_an_autocommand_of_each_state(parent):
    parent.lua("""
      _G.heard = {}
      require('sanderling').on('child_changed', function(event) table.insert(_G.heard, event.calls or 0) end)
    """)
    parent.send(child_changed(state="queued"))
    parent.send(child_changed(calls=1), child_changed(calls=2))
    parent.send(child_changed(state="done", calls=2))
    assert parent.lua("return _G.heard") == [0, 1, 2, 2]
    events = parent.events("AgentChildChanged")
    assert [event["state"] for event in events] == ["queued", "running", "done"]
    assert events[0]["session_id"] == parent.session_id()
    assert (events[0]["id"], events[0]["name"]) == ("child-1", "explore")


def test_a_lost_host_takes_its_children_with_it(parent):
    parent.send(child_changed())
    parent.lose_host()
    wait_until(lambda: "child" not in parent.statusline())
    assert "explore · working" not in parent.screen_text()


# --- questions ---------------------------------------------------------------------------------------------------------


def ask(parent, *events):
    parent.send(*events)
    parent.wait_for_screen("Child session")
    count_keys_after(parent, 0)
    parent.command("Agent question")


def test_a_question_of_a_child_names_its_worktree(parent):
    ask(parent, child_changed(state="waiting"), question(worktree="main-1a2b3c"))
    parent.wait_for_screen("Child session “explore” asks, in its", "main-1a2b3c.")


def test_the_question_about_children_is_not_cut_within_words(parent):
    task = "A task whose words are all quite long, so that they reach the margin of the question."
    more = {
        "tool": "delegate",
        "title": "explore: A task",
        "subject": task,
        "child": "",
        "id": "w1",
    }
    parent.send(question(**more))
    rows = parent.wait_for_screen("A task whose").splitlines()
    assert not [row for row in rows if "↪" in row]


def test_a_question_of_a_child_is_asked_under_its_name(parent):
    ask(parent, child_changed(state="waiting"), question())
    parent.wait_for_screen(
        "Child session “explore” asks.", "s for this child", "S for the parent and all children"
    )


@pytest.mark.parametrize(
    "keys, answer, for_tree",
    [("a", "once", None), ("s", "session", None), ("S", "session", True), ("d", "deny", None)],
)
def test_the_answer_goes_to_the_child_and_says_for_whom_it_counts(parent, keys, answer, for_tree):
    ask(parent, child_changed(state="waiting"), question())
    parent.feed(keys)
    (action,) = wait_until(lambda: parent.actions("answer_approval"))
    assert (action["id"], action["answer"], action.get("for_tree")) == (
        "child-1/w1",
        answer,
        for_tree,
    )


def test_a_question_of_the_session_itself_is_not_for_a_tree(parent):
    parent.send(question(child="", id="w1"))
    parent.wait_for_screen("Allow write")
    count_keys_after(parent, 0)
    parent.command("Agent question")
    parent.feed("S")
    assert "children" not in parent.screen_text()
    parent.feed("a")
    wait_until(lambda: parent.actions("answer_approval"))
    assert [each["answer"] for each in parent.actions("answer_approval")] == ["once"]


def test_a_question_is_listed_once_though_the_chat_of_the_child_is_open(parent):
    session_id = parent.session_id()
    parent.send(child_changed(state="waiting"), question())
    parent.wait_for_screen("Child session")
    enter_transcript(parent, "delegate")
    parent.feed("<CR>")
    wait_until(lambda: shown_session(parent) == "child-1")
    own = question(child="", id="w1")
    parent.send({"type": "session_opened", "model": "m", "parent": session_id}, own)
    asked = "return #require('sanderling.approval.queue').list()"
    assert parent.lua(asked) == 1
    assert len(parent.events("AgentApprovalRequested")) == 1
    count_keys_after(parent, 0)
    parent.command("Agent question")
    parent.feed("a")
    (action,) = wait_until(lambda: parent.actions("answer_approval"))
    assert action["id"] == "child-1/w1"
    assert parent.lua(asked) == 0


def test_a_session_that_was_a_child_asks_for_itself(parent):
    session_id = parent.session_id()
    parent.send(child_changed(state="done"), ended())
    enter_transcript(parent, "delegate")
    parent.feed("<CR>")
    wait_until(lambda: shown_session(parent) == "child-1")
    parent.send(
        {"type": "session_opened", "model": "m", "parent": session_id}, question(child="", id="w1")
    )
    assert parent.lua("return #require('sanderling.approval.queue').list()") == 1


# --- the list of sessions ----------------------------------------------------------------------------------------------

CATCH_CHOICES = """
  _G.choices = {}
  vim.ui.select = function(items, opts, on_choice)
    table.insert(_G.choices, vim.tbl_map(opts.format_item or tostring, items))
    _G.answer = function(index) on_choice(items[index], index) end
  end
  local request = require('sanderling.host').request
  require('sanderling.host').request = function(asked, on_answer)
    if asked.type == 'list_sessions' then
      return on_answer({ sessions = _G.stored or {} })
    end
    return request(asked, on_answer)
  end
"""


def stored(session_id, title, age_s=0, **more):
    return {
        "id": session_id,
        "project": "/p",
        "title": title,
        "age_s": age_s,
        "size_bytes": 3000,
    } | more


def listed(screen, *infos, command="AgentSessions"):
    """The lines of the list, for these stored sessions."""
    screen.lua(CATCH_CHOICES)
    screen.lua(
        """
        _G.stored = vim.tbl_map(function(info)
          info.changed_at, info.age_s = os.time() - info.age_s, nil
          return info
        end, ...)
        """,
        list(infos),
    )
    screen.command(command)
    return wait_until(lambda: screen.lua("return _G.choices[1]"))


def pick(screen, line, action):
    (index,) = [i for i, each in enumerate(screen.lua("return _G.choices[1]"), 1) if line in each]
    screen.lua("_G.answer(...)", index)
    actions = wait_until(lambda: screen.lua("return _G.choices[2]"))
    assert action in actions, actions
    screen.lua("_G.answer(...)", actions.index(action) + 1)


def to_session(screen, session_id, *events):
    screen.lua(
        "local id, events = ... require('sanderling.host').receive({ session_id = id, seq = 1, events = events })",
        session_id,
        list(events),
    )


def three_sessions(parent):
    """The parent, one that streams and one in which nothing happens."""
    parent.send({"type": "title_changed", "title": "The parent"})
    for name in ("streams", "rests"):
        parent.lua("require('sanderling.chat').open(..., '/p', {})", name)
        turn = [
            {"type": "turn_started", "prompt": {"id": name, "text": "go"}},
            {"type": "text_delta", "block_id": 1, "text": "x"},
        ]
        end = [{"type": "turn_ended", "stop_reason": "end_turn"}] if name == "rests" else []
        to_session(
            parent,
            name,
            {"type": "session_opened", "model": "a-model", "title": f"It {name}"},
            *turn,
            *end,
        )
        to_session(parent, name, {"type": "title_changed", "title": f"It {name}"})


def names(lines):
    return [line.partition(" · ")[0].strip() for line in lines]


def test_sessions_that_wait_come_first_then_those_that_run_then_by_age(parent):
    session_id = parent.session_id()
    three_sessions(parent)
    to_session(parent, session_id, {"type": "turn_ended", "stop_reason": "end_turn"})
    stored_ones = [
        stored("rests", "It rests", 50),
        stored(session_id, "The parent", 90),
        stored("old", "Old", 9000),
        stored("streams", "It streams", 99),
    ]
    assert names(listed(parent, *stored_ones)) == ["It streams", "It rests", "The parent", "Old"]
    to_session(parent, session_id, question(child="", id="w1"))
    lines = listed(parent, *stored_ones)
    assert names(lines) == ["The parent", "It streams", "It rests", "Old"]
    assert "waiting for you: write new.txt" in lines[0]
    assert "streaming" in lines[1]
    assert "a-model" in lines[1]
    assert lines[1].endswith("open")
    assert lines[3] == "Old · 2 h ago · 3 kB"


def test_children_follow_their_parents_whose_place_is_that_of_the_most_urgent(parent):
    session_id = parent.session_id()
    three_sessions(parent)
    to_session(
        parent,
        session_id,
        child_changed(activity="grep TODO", **used()),
        started(2),
        child_changed(2, state="waiting", task="Check"),
        question(2),
    )
    lines = listed(
        parent,
        stored("streams", "It streams", 1),
        stored("earlier", "An earlier child", 10, parent=session_id),
        stored("orphan", "An orphan", 20, parent="gone"),
        stored(session_id, "The parent", 90),
    )
    assert names(lines) == [
        "The parent",
        "↳ explore: Check",
        "↳ explore: Find the configuration",
        "↳ An earlier child",
        "It streams",
        "It rests",
        "An orphan",
    ]
    assert "waiting for you: write new.txt" in lines[1]
    assert "grep TODO" in lines[2]
    assert "3 calls · 12.3k tokens · $0.02" in lines[2]


def test_the_list_shows_tokens_cost_role_and_agent_of_open_sessions(parent):
    three_sessions(parent)
    usage = {
        "type": "usage_updated",
        "total": {"input_tokens": 900},
        "turn": {},
        "last_request": {},
        "is_priced": True,
        "cost_usd": 0.5,
    }
    to_session(parent, "rests", usage, {"type": "role_changed", "name": "reviewer"})
    (line,) = [each for each in listed(parent) if "It rests" in each]
    assert line == "It rests · idle · just now · a-model · role reviewer · 900 tokens, $0.50 · open"


def test_from_the_list_a_child_is_shown_stopped_and_answered(parent):
    session_id = parent.session_id()
    three_sessions(parent)
    to_session(
        parent,
        session_id,
        child_changed(),
        child_changed(2, state="waiting", task="Check"),
        question(2),
    )
    listed(parent)
    pick(parent, "Find the conf", "Stop")
    assert parent.actions("stop_child") == [{"type": "stop_child", "id": "child-1"}]
    listed(parent)
    pick(parent, "Find the conf", "Show")
    wait_until(lambda: shown_session(parent) == "child-1")
    listed(parent)
    pick(parent, "explore: Check", "Answer its question")
    count_keys_after(parent, 0)
    parent.feed("d")
    (action,) = wait_until(lambda: parent.actions("answer_approval"))
    assert (action["id"], action["answer"]) == ("child-2/w2", "deny")


def test_a_session_is_stopped_from_the_list(parent):
    three_sessions(parent)
    listed(parent)
    pick(parent, "It streams", "Stop")
    assert parent.actions("cancel_turn")


def test_a_search_lists_only_the_sessions_that_were_found(parent):
    three_sessions(parent)
    lines = listed(
        parent, stored("rests", "It rests", 5, excerpt="a needle"), command="AgentSessions needle"
    )
    assert names(lines) == ["It rests"]
    assert lines[0].endswith("open · “a needle”")


def test_resuming_passes_over_children(parent):
    parent.lua("require('sanderling.session.stored').known = ...", [])
    found = parent.lua(
        "return require('sanderling.session.stored').newest_closed(...)",
        [stored("c", "A child", 0, parent="p"), stored("s", "A session", 9)],
    )
    assert found["id"] == "s"


# --- with the real tool ------------------------------------------------------------------------------------------------

LOOK, WRITE = "Look at a.txt and report", "Write new.txt"


@pytest.fixture
def start_tree(start_agent):
    """A chat whose model delegates these tasks, which no rule asks about; each child's replies follow its task."""

    def start(tasks, *replies, **screen):
        uses = [use("delegate", task=task, role=role) for task, role in tasks.items()]
        rules = [{"action": "allow", "tool": "delegate"}]
        agent = start_agent(reply(*uses), *replies, setup={"permissions": rules}, **screen)
        agent.command("AgentChat")
        agent.feed("igo<C-s><Esc>")
        return agent

    return start


def child_reply(task, *steps):
    return {"when": task, "step": list(steps)}


def enter_child(agent):
    """Open the chat of the first child from its line; returns the parent's session."""
    parent = agent.session_id()
    wait_until(lambda: "1 child" in agent.statusline())
    enter_transcript(agent, "delegate")
    wait_until(lambda: "explore 1 · working" in agent.screen_text())
    agent.feed("<CR>")
    wait_until(lambda: shown_session(agent) != parent)
    return parent


@prove
def test_a_running_child_is_opened_and_steered_and_then_is_the_users(start_tree):
    agent = start_tree(
        {LOOK: "explore"},
        child_reply(LOOK, {"text": "I look."}, {"delay_ms": 2000}, use("ls", path=".")),
        child_reply("and b.txt", {"text": "I looked at both."}),
        child_reply("thanks", {"text": "You are welcome."}),
        reply({"text": "It is done."}),
    )
    parent = enter_child(agent)
    agent.wait_for_transcript("I look.")
    agent.feed("iand b.txt<C-s><Esc>")
    agent.wait_for_transcript("I looked at both.")
    assert LOOK in agent.transcript_text()
    agent.feed("\\b")
    wait_until(lambda: shown_session(agent) == parent)
    agent.wait_for_transcript("It is done.")
    assert "child" not in agent.statusline()
    enter_transcript(agent, "delegate")
    assert "I looked at both." in agent.transcript_text()  # the report, in the fold
    agent.feed("gf")
    wait_until(lambda: shown_session(agent) != parent)
    agent.feed("ithanks<C-s><Esc>")
    agent.wait_for_transcript("You are welcome.")


def test_stopping_a_child_in_its_chat_gives_its_parent_the_work_so_far(start_tree):
    agent = start_tree(
        {LOOK: "explore"},
        child_reply(LOOK, {"text": "Half of it.", "chunk_chars": 1}, {"delay_ms": 3_600_000}),
        reply({"text": "It is done."}),
    )
    parent = enter_child(agent)
    agent.wait_for_transcript("Half of it.")
    agent.feed("<Esc><C-c>")
    agent.wait_for_transcript("Stopped")
    agent.feed("\\b")
    wait_until(lambda: shown_session(agent) == parent)
    agent.wait_for_transcript("It is done.")
    assert "Half of it." in agent.transcript_text()


def test_the_line_of_a_child_is_right_after_the_session_was_resumed(start_tree):
    agent = start_tree(
        {LOOK: "explore"}, child_reply(LOOK, {"text": "Nothing."}), reply({"text": "It is done."})
    )
    agent.wait_for_transcript("It is done.")
    parent, before = agent.session_id(), agent.transcript()
    agent.command("Agent close")
    agent.command(f"AgentResume {parent}")
    wait_until(
        lambda: shown_session(agent) == parent and agent.transcript()[: len(before)] == before
    )
    enter_transcript(agent, "delegate")
    agent.feed("<CR>")
    wait_until(lambda: shown_session(agent) not in (parent, None))
    agent.wait_for_transcript("Nothing.")
    agent.feed("\\b")
    wait_until(lambda: shown_session(agent) == parent)


@prove
def test_a_childs_question_with_a_change_is_shown_in_the_file_and_answered_in_the_parent(
    start_tree, project
):
    (project / "a.txt").write_text("one\n")
    agent = start_tree(
        {WRITE: "edit"},
        child_reply(WRITE, use("edit", path="a.txt", edits=[{"old": "one", "new": "two"}])),
        reply({"text": "It is done."}),
    )
    agent.wait_for_question()
    agent.wait_for_screen("two")  # in the file, as with any proposal
    assert "Child session “edit 1” asks." in agent.screen_text()
    agent.command("Agent question")
    agent.feed("S")
    agent.wait_for_transcript("It is done.")
    wait_until(lambda: (project / "a.txt").read_text() == "two\n")


def test_the_list_shows_a_running_child_that_is_not_open_and_opens_it(start_tree):
    agent = start_tree(
        {LOOK: "explore"},
        child_reply(LOOK, {"text": "I look."}, {"delay_ms": 3_600_000}),
        columns=160,
    )
    parent = agent.session_id()
    agent.wait_for_screen("explore 1 · working")
    agent.lua("""
      _G.choices = {}
      vim.ui.select = function(items, opts, on_choice)
        table.insert(_G.choices, vim.tbl_map(opts.format_item or tostring, items))
        _G.answer = function(index) on_choice(items[index], index) end
      end
    """)
    agent.feed("<Esc>")
    agent.command("AgentSessions")
    lines = wait_until(lambda: agent.lua("return _G.choices[1]"))
    assert [line.partition(" · ")[0].strip() for line in lines] == ["go", f"↳ explore 1: {LOOK}"]
    assert "open elsewhere" not in lines[1]
    assert "working" in lines[1]
    pick(agent, LOOK, "Show")
    wait_until(lambda: shown_session(agent) != parent)
    agent.wait_for_transcript("I look.")


def test_a_question_of_a_child_is_answered_in_its_own_chat(start_tree, project):
    agent = start_tree(
        {WRITE: "edit"},
        child_reply(WRITE, use("write", path="new.txt", content="new\n")),
        reply({"text": "It is done."}),
    )
    agent.wait_for_question()
    parent = agent.session_id()
    enter_transcript(agent, "delegate")
    agent.feed("<CR>")
    wait_until(lambda: shown_session(agent) != parent)
    agent.wait_for_transcript("write new.txt")
    assert len(agent.events("AgentApprovalRequested")) == 1
    agent.feed("<Esc>\\a")
    wait_until(lambda: agent.lua("return vim.api.nvim_get_current_win()") == agent.float())
    agent.feed("a")
    wait_until((project / "new.txt").exists)
    agent.lua("require('sanderling.chat').open(..., '/', {})", parent)
    agent.wait_for_transcript("It is done.")
    asked = "return #require('sanderling.approval.queue').list()"
    wait_until(lambda: agent.lua(asked) == 0)
