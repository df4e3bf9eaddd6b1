"""Files that the agent looks at or proposes to change: nothing of the project runs before the user enters them."""

import os
from pathlib import Path

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.test_asked import decide_all, hunk_count
from tests.nvim.test_code import NODE, SCRIPTED
from tests.nvim.test_guests import start_guest, typed

pytestmark = pytest.mark.guard

__all__ = ["start_guest"]

DONE = {"step": [{"text": "Done."}]}
EVENTS = (
    "BufNew BufAdd BufReadPre BufReadPost BufNewFile FileType Syntax BufEnter BufWinEnter BufWritePre BufWritePost "
    "LspAttach"
)
OPENING = ["BufNew", "BufAdd", "BufReadPre", "Syntax", "FileType", "BufReadPost"]

LISTEN = """
local events, name = ...
_G.heard = {}
vim.api.nvim_create_autocmd(vim.split(events, ' '), {
  callback = function(event)
    local file = vim.fs.basename(vim.api.nvim_buf_get_name(event.buf))
    table.insert(_G.heard, { event.event, file })
  end,
})
vim.o.modeline = true
"""


ENABLE = """
local command, root = ...
vim.lsp.config('scripted', { cmd = command, filetypes = { 'text' }, root_dir = root })
vim.lsp.enable('scripted')
vim.cmd.doautocmd('FileType')
"""


def listen(child):
    child.lua(LISTEN, EVENTS)


def heard(child, name):
    """The events that autocommands of the user's have heard of the file."""
    return [event for event, file in child.lua("return _G.heard") or [] if file == name]


def reply(*uses):
    return {"step": [{"tool_use": use} for use in uses]}


def use(name, use_id="t1", **given):
    return {"id": use_id, "name": name, "input": given}


def edit(path, old="one", new="ONE", use_id="t1"):
    return use("edit", use_id, path=path, edits=[{"old": old, "new": new}])


TEXT = "one\ntwo\nthree\n# vim: set tabstop=3:\n"


@pytest.fixture
def listening(start_agent, project):
    """A user in `here.txt`, with a second window for code, whose Neovim notes what autocommands hear."""

    def start(
        *replies, mode="ask", setup=None, split="vsplit here.txt", before=(), server=False, files=()
    ):
        (project / "a.py").write_text(TEXT)
        (project / "b.py").write_text(TEXT)
        (project / "here.txt").write_text("here\n")
        for name, text in dict(files).items():
            (project / name).write_text(text)
        child = start_agent(*replies, DONE, setup=setup)
        child.command("edit here.txt")
        if split:
            child.command(split)
        for command in before:
            child.command(command)
        if server:  # for text files below the project, as a user's configuration has it
            child.lua(ENABLE, [*SCRIPTED, "plain"], str(project))
            ready = "return #vim.lsp.get_clients({ bufnr = 0, name = 'scripted' })"
            wait_until(lambda: child.lua(ready) == 1)
        listen(child)
        child.command(f"AgentMode {mode}")
        child.ask()
        return child

    return start


def shown(child, name):
    return child.lua("return vim.fn.win_findbuf(vim.fn.bufnr((...)))", str(child.project / name))


def enter(child, name):
    """Go into a window that shows the file, by keys."""
    win = shown(child, name)[0]
    child.feed(f"<Esc>{child.lua('return vim.fn.win_id2win(...)', win)}<C-w>w")
    wait_until(lambda: "FileType" in heard(child, Path(name).name), "the user has entered it")


def wait_for_proposal(child, name="a.py"):
    wait_until(lambda: hunk_count(child, child.project / name), "the change is proposed")
    wait_until(lambda: shown(child, name), "it is shown")


@pytest.fixture
def proposing(listening):
    """Such a user, while a change of `a.py` is proposed."""

    def start(**given):
        child = listening(reply(edit("a.py")), **given)
        wait_for_proposal(child)
        return child

    return start


def state(child, name):
    """What a file that was opened by hand has."""
    return child.lua(
        """
        local buf = vim.fn.bufnr((...))
        return {
          filetype = vim.bo[buf].filetype, syntax = vim.bo[buf].syntax, tabstop = vim.bo[buf].tabstop,
          modeline = vim.bo[buf].modeline, swapfile = vim.bo[buf].swapfile, listed = vim.bo[buf].buflisted,
          undofile = vim.bo[buf].undofile, plugin = vim.b[buf].did_ftplugin or 0,
          autoread = vim.api.nvim_buf_call(buf, function() return vim.o.autoread end),
        }
        """,
        str(child.project / name),
    )


BY_HAND = {
    "filetype": "python",
    "syntax": "python",
    "tabstop": 3,
    "modeline": True,
    "swapfile": True,
    "listed": True,
    "undofile": False,
    "plugin": 1,
    "autoread": True,
}


def test_a_file_that_was_opened_by_hand_is_so(child, project):
    (project / "a.py").write_text(TEXT)
    listen(child)
    child.command("edit other.txt | edit a.py")
    assert heard(child, "a.py") == [*OPENING, "BufEnter", "BufWinEnter"]
    assert state(child, "a.py") == BY_HAND


# --- nothing runs -------------------------------------------------------------------------------------------------------


def test_a_proposal_runs_nothing_until_the_user_enters_its_window(proposing):
    child = proposing()
    child.wait_for_question()
    assert heard(child, "a.py") == []
    assert "ONE" in child.screen_text()
    enter(child, "a.py")
    assert [event for event in heard(child, "a.py") if event in OPENING] == OPENING
    assert heard(child, "a.py").count("BufEnter") == heard(child, "a.py").count("BufWinEnter") == 1
    assert state(child, "a.py") | {"tabstop": 3} == BY_HAND
    child.command("AgentAccept all")
    child.wait_for_turns()
    assert (child.project / "a.py").read_text() == TEXT.replace("one", "ONE")
    child.feed("u")
    wait_until(lambda: child.lines(child.project / "a.py")[0] == "one", "undo")


def test_an_accepted_proposal_is_opened_as_if_by_hand(proposing):
    child = proposing()
    child.enter_question()
    assert heard(child, "a.py") == []
    child.feed("a")
    child.wait_for_turns()
    assert [event for event in heard(child, "a.py") if event in OPENING] == OPENING
    assert state(child, "a.py") == BY_HAND
    assert "BufWritePre" in heard(child, "a.py")
    assert (child.project / "a.py").read_text() == TEXT.replace("one", "ONE")


def test_a_denied_proposal_has_run_nothing(proposing):
    child = proposing()
    child.answer_question("d")
    assert heard(child, "a.py") == []


@pytest.mark.parametrize("new", ["new.py", "deep/er/new.py"])
def test_a_proposed_new_file_runs_nothing_until_the_user_enters_its_window(listening, new):
    child = listening(reply(use("write", path=new, content="one = 1\n")))
    wait_for_proposal(child, new)
    assert heard(child, "new.py") == []
    enter(child, new)
    assert [e for e in heard(child, "new.py") if e in {*OPENING, "BufNewFile"}] == [
        "BufNew",
        "BufAdd",
        "Syntax",
        "FileType",
        "BufNewFile",
    ]
    assert state(child, new)["filetype"] == "python"
    decide_all(child, child.project / new, (1, True))
    assert (child.project / new).read_text() == "one = 1\n"


@pytest.mark.parametrize("follow", ["show", "jump"])
@pytest.mark.parametrize("mode", prove_rest(["ask", "auto"], (0,), is_one=True))
def test_following_a_read_runs_nothing_until_a_key_of_the_users(listening, follow, mode):
    before = ["AgentChat"] if follow == "show" else []
    child = listening(
        reply(use("read", path="a.py")),
        mode=mode,
        setup={"follow": follow},
        split="",
        before=before,
    )
    child.wait_for_turns()
    wait_until(lambda: shown(child, "a.py"), "it is shown")
    assert heard(child, "a.py") == []
    assert "three" in child.screen_text()
    if follow == "show":
        enter(child, "a.py")
    else:
        child.feed("j")
    wait_until(lambda: state(child, "a.py") == BY_HAND)
    assert heard(child, "a.py").count("BufEnter") == 1


def test_following_an_edit_runs_no_hook_of_the_users(listening):
    child = listening(
        reply(use("read", "t0", path="a.py")),
        reply(edit("a.py")),
        reply(use("bash", "t2", command="echo four >>a.py; sleep 0.01")),
        mode="auto",
        setup={"follow": "show"},
        split="",
        before=["AgentChat"],
    )
    child.wait_for_turns()
    wait_until(lambda: child.lines(child.project / "a.py")[-1] == "four", "it is read again")
    assert heard(child, "a.py") == []
    child.command("AgentReject all")
    assert heard(child, "a.py") == []
    text = (child.project / "a.py").read_text()
    assert text == TEXT + "four\n"


@prove
@pytest.mark.guard
def test_a_refactoring_that_is_asked_about_runs_nothing(listening):
    child = listening(
        reply(use("code_refactor", path="here.txt", op="rename", symbol="one.name", to="title")),
        files={"here.txt": "def one.name\n", "other.txt": "use one.name\n"},
        server=True,
    )
    child.wait_for_question()
    assert heard(child, "other.txt") == []
    child.command("AgentAllow")
    child.wait_for_turns()
    assert (child.project / "other.txt").read_text() == "use one.title\n"
    assert heard(child, "other.txt") == []


def test_a_file_that_moves_runs_nothing_under_its_new_name(listening):
    child = listening(
        reply(use("code_refactor", path="here.txt", op="move_file", to="moved.py")),
        files={"here.txt": "def one.name\n"},
        mode="auto",
        server=True,
    )
    child.wait_for_turns()
    wait_until(lambda: shown(child, "moved.py"), "the windows show it")
    assert heard(child, "moved.py") == []
    child.feed("j")
    wait_until(lambda: "FileType" in heard(child, "moved.py"), "the user has typed a key there")
    assert state(child, "moved.py")["filetype"] == "python"


def test_a_write_of_another_agent_runs_nothing_until_it_is_allowed(start_guest, project):
    (project / "here.txt").write_text("here\n")
    (project / "a.py").write_text(TEXT)
    write = {"path": "$CWD/a.py", "content": TEXT.replace("one", "ONE")}
    child = start_guest(
        {"prompts": {"go": [{"call": {"method": "fs/write_text_file", "params": write}}]}}
    )
    child.command("wincmd t | edit here.txt | vsplit here.txt | wincmd b")
    listen(child)
    typed(child, "go")
    wait_for_proposal(child)
    assert heard(child, "a.py") == []
    decide_all(child, project / "a.py", (1, True))
    assert heard(child, "a.py") == [] or "FileType" in heard(child, "a.py")
    assert (project / "a.py").read_text() == TEXT.replace("one", "ONE")


@pytest.fixture
def changed(listening):
    """Files of which none is open that the agent has changed in auto mode."""

    def start(*more, names=("a.py", "b.py"), is_unloaded=False, **given):
        reads = [use("read", f"r{n}", path=name) for n, name in enumerate(names)]
        edits = [edit(name, use_id=f"e{n}") for n, name in enumerate(names)]
        child = listening(reply(*reads), reply(*edits), *more, mode="auto", **given)
        child.wait_for_turns()
        assert all(heard(child, name) == [] for name in names)
        if is_unloaded:
            unload(child, *names)
        return child

    return start


def unload(child, *names):
    """Have hunks wait whose buffers are not loaded any more."""
    child.command("AgentDiff")
    wait_until(lambda: all(hunk_count(child, child.project / name) for name in names))
    wait_until(lambda: child.lua("return vim.bo.buftype") == "quickfix")
    child.command("cclose")
    for name in names:
        child.command(f"bunload {name}")
    child.lua("vim.fn.setqflist({}) _G.heard = {}")


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_the_list_of_changes_opens_no_file(changed, is_unloaded):
    child = changed(is_unloaded=is_unloaded)
    child.command("Agent reviews")
    assert len(child.lua("return vim.fn.getqflist()")) == 2
    assert heard(child, "a.py") == heard(child, "b.py") == []
    child.feed("<CR>")
    wait_until(lambda: "FileType" in heard(child, "a.py"), "its entry is opened")
    wait_until(lambda: hunk_count(child, child.project / "a.py") == 1)
    assert heard(child, "a.py").count("FileType") == heard(child, "a.py").count("BufEnter") == 1
    assert state(child, "a.py") == BY_HAND
    assert heard(child, "b.py") == []


@pytest.mark.parametrize("is_unloaded", [False, True])
def test_the_key_to_the_next_change_opens_the_file_that_it_goes_to_and_no_other(
    changed, is_unloaded
):
    child = changed(is_unloaded=is_unloaded)
    child.command("lua require('sanderling.review.commands').go(1)")
    here = child.lua("return vim.fn.expand('%:t')")
    assert here in {"a.py", "b.py"}
    assert heard(child, here).count("FileType") == 1
    assert state(child, here) == BY_HAND
    assert heard(child, "b.py" if here == "a.py" else "a.py") == []


@pytest.mark.parametrize("command", ["AgentAccept all", "AgentReject all"])
@pytest.mark.parametrize("is_unloaded", [False, True])
def test_a_decision_about_all_files_opens_none(changed, command, is_unloaded):
    child = changed(is_unloaded=is_unloaded)
    child.command(command)
    child.wait_for_message("2 changes.")
    assert heard(child, "a.py") == heard(child, "b.py") == []
    wanted = TEXT.replace("one", "ONE") if "Accept" in command else TEXT
    assert (child.project / "a.py").read_text() == (child.project / "b.py").read_text() == wanted


def test_the_difference_opens_a_file_when_its_window_is_entered(changed):
    child = changed()
    child.command("AgentDiff! session")
    wait_until(lambda: child.lua("return #vim.api.nvim_list_tabpages()") == 3)
    wait_until(lambda: child.lua("return vim.fn.expand('%:t')") == "b.py")
    assert "ONE" in child.screen_text()
    assert heard(child, "a.py") == heard(child, "b.py") == []
    child.feed("l")
    wait_until(lambda: "FileType" in heard(child, "b.py"), "the user has typed a key there")
    assert state(child, "b.py") == BY_HAND
    assert heard(child, "a.py") == []
    child.command("tabprevious")
    assert state(child, "a.py") == BY_HAND
    assert child.lua("return vim.wo.diff")


def test_the_difference_in_the_files_opens_none(changed):
    child = changed()
    child.command("AgentDiff session")
    wait_until(lambda: len(child.lua("return vim.fn.getqflist()")) == 2)
    assert heard(child, "a.py") == heard(child, "b.py") == []


def test_a_quiet_file_that_changes_on_disk_is_read_again_in_silence(listening):
    child = listening(
        reply(use("read", path="a.py")), setup={"follow": "show"}, split="", before=["AgentChat"]
    )
    child.wait_for_turns()
    for text in ("changed\n", "changed again\n"):
        (child.project / "a.py").write_text(text)
        child.command("checktime")
        assert child.lines(child.project / "a.py") == [text.strip()]
    assert heard(child, "a.py") == []
    assert child.lua("return vim.o.eventignore") == ""
    child.command("set autoread")
    enter(child, "a.py")
    assert state(child, "a.py") == BY_HAND | {"tabstop": 4}


# --- ordinary users lose nothing ---------------------------------------------------------------------------------------

WAYS_IN = {
    "buffer": "buffer a.py",
    "edit": "edit a.py",
    "split": "split a.py",
    "sbuffer": "sbuffer a.py",
    "gf": "exe 'normal! gf'",
    "quickfix": "call setqflist([{'filename': 'a.py', 'lnum': 2}]) | cfirst",
    "tab": "tab sbuffer a.py",
    "drop": "drop a.py",
    "nohidden": "set nohidden | buffer a.py",
    "bnext": "while expand('%:t') != 'a.py' | bnext | endwhile",
}


@pytest.mark.parametrize("way", prove_rest(WAYS_IN, (0, 1, 4, 5), is_one=True))
@pytest.mark.parametrize("is_shown", [True, False])
def test_however_it_is_entered_it_is_as_if_opened_by_hand(listening, way, is_shown):
    child = listening(
        reply(use("read", path="a.py")), setup={"follow": "show"}, split="", before=["AgentChat"]
    )
    child.wait_for_turns()
    wait_until(lambda: shown(child, "a.py"), "it is shown")
    if not is_shown:
        child.lua(
            "vim.fn.win_execute(vim.fn.win_findbuf(vim.fn.bufnr('a.py'))[1], 'buffer here.txt')"
        )
        child.command("wincmd t")
    child.command("tabnew")
    if way == "gf":
        child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'a.py' }) vim.bo.modified = false")
    child.lua("_G.heard = {}")
    child.command(WAYS_IN[way])
    assert state(child, "a.py") == BY_HAND
    events = heard(child, "a.py")
    assert [event for event in events if event in OPENING] == OPENING
    assert events.count("BufEnter") == 1
    assert child.lua("return { vim.fn.expand('%:t'), vim.wo.foldmethod }") == ["a.py", "manual"]


def test_options_of_its_window_are_those_of_its_filetype(listening):
    child = listening(
        reply(edit("a.py")),
        before=["autocmd FileType python setlocal foldmethod=indent | let b:mine = 1"],
    )
    wait_for_proposal(child)
    enter(child, "a.py")
    assert child.lua("return { vim.wo.foldmethod, vim.b.mine }") == ["indent", 1]


def test_a_language_server_has_a_proposal_that_the_user_has_entered_and_what_is_accepted(listening):
    child = listening(
        reply(edit("other.txt", "use one.name", "use one.title")),
        files={"other.txt": "use one.name\n"},
        server=True,
    )
    wait_for_proposal(child, "other.txt")
    count = "return #vim.lsp.get_clients({ bufnr = vim.fn.bufnr('other.txt') })"
    assert child.lua(count) == 0
    enter(child, "other.txt")
    wait_until(lambda: child.lua(count) == 1, "the server is attached")
    child.command("AgentAccept all")
    child.wait_for_turns()
    assert child.lua(count) == 1
    assert "BufWritePost" in heard(child, "other.txt")


def test_an_autocommand_that_fails_stops_no_other_and_asks_nothing(listening):
    child = listening(
        reply(edit("a.py")),
        before=[
            "autocmd BufReadPre *.py throw 'first'",
            "autocmd BufReadPost *.py call Nothing()",
            "autocmd FileType python lua error('third')",
            "autocmd BufReadPost *.py let b:last = 1",
        ],
    )
    wait_for_proposal(child)
    enter(child, "a.py")
    assert not child.is_blocked()
    assert child.lua("return vim.b.last") == 1
    assert "An autocommand for a.py failed" in child.messages()
    child.command("AgentAccept all")
    child.wait_for_turns()


@prove
def test_a_saved_session_opens_it_in_the_usual_way(proposing, start_nvim):
    child = proposing()
    decide_all(child, child.project / "a.py", (1, True))
    child.command("mksession Session.vim")
    other = start_nvim()
    other.command("silent! source Session.vim")
    assert state(other, "a.py") | {"tabstop": 3, "modeline": True} == BY_HAND
    child.command("silent! source Session.vim | buffer a.py")
    assert not child.is_blocked()
    assert state(child, "a.py")["filetype"] == "python"


def test_undo_after_a_proposal_was_entered_and_accepted_brings_the_file_back(proposing):
    child = proposing()
    enter(child, "a.py")
    decide_all(child, child.project / "a.py", (1, True))
    child.feed("u")
    wait_until(lambda: child.lines(child.project / "a.py")[0] == "one", "undo")
    child.feed("<C-r>")
    wait_until(lambda: child.lines(child.project / "a.py")[0] == "ONE", "redo")


def test_the_undo_file_of_a_file_is_there_when_it_is_entered(proposing, start_nvim):
    before = ["set undofile"]
    other = start_nvim(commands=["set undofile"])
    (other.project / "a.py").write_text("older\n")
    other.command(
        "edit a.py | %delete | call setline(1, ['one', 'two', 'three', '# vim: set tabstop=3:']) | write"
    )
    other.close()
    child = proposing(before=before)
    enter(child, "a.py")
    decide_all(child, child.project / "a.py", (1, True))
    child.feed("uu")
    wait_until(lambda: "older" in child.lines(child.project / "a.py"), "what was before")


# --- swap files --------------------------------------------------------------------------------------------------------


def leave_swap_file(start_nvim, directory, name):
    """A Neovim that has the file open ends without a word."""
    other = start_nvim(commands=[f"set directory={directory} updatecount=1"])
    other.command(f"edit {name} | setlocal swapfile | call setline(1, 'unsaved') | preserve")
    other.close()
    assert list(directory.glob("*.sw?"))


@pytest.mark.parametrize(
    "command",
    prove_rest(
        [
            "Agent reviews",
            "AgentAccept all",
            "AgentReject all",
            "lua require('sanderling.review.commands').go(1)",
            "AgentDiff",
        ]
    ),
)
@pytest.mark.parametrize("is_unloaded", prove_rest([False, True], (1,), is_one=True))
def test_a_swap_file_is_no_obstacle_and_no_question(
    changed, start_nvim, tmp_path, command, is_unloaded
):
    swap = tmp_path / "swap"
    swap.mkdir()
    child = changed(before=[f"set directory={swap} updatecount=200"], is_unloaded=is_unloaded)
    leave_swap_file(start_nvim, swap, child.project / "a.py")
    child.command(command)
    assert not child.is_blocked()
    if command == "Agent reviews":
        assert len(child.lua("return vim.fn.getqflist()")) == 2
        child.feed("<CR>")
    elif command == "AgentDiff":
        wait_until(lambda: len(child.lua("return vim.fn.getqflist()")) == 2)
        child.command("edit a.py")
    elif command.startswith("Agent"):
        child.wait_for_message("2 changes.")
        return
    wait_until(lambda: "FileType" in heard(child, "a.py") + heard(child, "b.py"))
    if child.lua("return vim.fn.expand('%:t')") == "a.py":
        child.wait_for_message("a.py has a swap file")
        wait_until(lambda: len(list(swap.glob("*a.py.sw?"))) == 2, "it has one of its own")
    assert not child.is_blocked()


def test_a_swap_file_is_no_question_where_the_agent_proposes_or_is_followed(
    listening, start_nvim, tmp_path
):
    swap = tmp_path / "swap"
    swap.mkdir()
    (tmp_path / "project" / "a.py").write_text(TEXT)
    leave_swap_file(start_nvim, swap, tmp_path / "project" / "a.py")
    child = listening(
        reply(use("read", "t0", path="a.py")),
        reply(edit("a.py")),
        before=[f"set directory={swap} updatecount=200", "AgentChat"],
        setup={"follow": "show"},
    )
    wait_for_proposal(child)
    assert not child.is_blocked()
    assert child.messages().count("swap file") == 0
    enter(child, "a.py")
    child.wait_for_message("a.py has a swap file")
    assert not child.is_blocked()


# --- a real language server, and a project that has planted what it runs -----------------------------------------------

PLANTED = """
require('fs').appendFileSync(%r, process.argv.join(' ') + '\\n')
"""


@pytest.fixture
def planted(project, tmp_path):
    """A clone whose own TypeScript notes that it was run; gives the note."""
    ran = tmp_path / "ran"
    lib = project / "node_modules" / "typescript" / "lib"
    lib.mkdir(parents=True)
    for name in ("tsserver.js", "_tsserver.js", "typescript.js"):
        (lib / name).write_text(PLANTED % str(ran))
    (lib.parent / "package.json").write_text('{"name": "typescript", "version": "5.9.3"}')
    (project / "package.json").write_text("{}")
    (project / "a.ts").write_text("const one = 1\n")
    (project / "here.txt").write_text("here\n")
    return ran


STARTED = "return #vim.lsp.get_clients({ name = 'ts_ls', _uninitialized = true })"


def enable_typescript(child):
    server = NODE / "typescript-language-server"
    if not server.exists():
        pytest.skip("typescript-language-server is not installed: make peers")
    child.lua(
        """
        vim.lsp.config('ts_ls', { cmd = { ..., '--stdio' }, filetypes = { 'typescript' }, root_markers = { 'package.json' } })
        vim.lsp.enable('ts_ls')
        """,
        str(server),
    )


def enter_and_see_it_run(child, ran):
    """The test's own proof: what was planted runs as soon as the user opens the file."""
    assert not ran.exists()
    child.command("tabedit a.ts")
    wait_until(ran.exists, "the project's own TypeScript runs")


READ_TS = use("read", "t0", path="a.ts")
TS_USES = {
    "read": READ_TS,
    "edit": use("edit", path="a.ts", edits=[{"old": "one", "new": "two"}]),
    "write": use("write", path="a.ts", content="const two = 2\n"),
    "new": use("write", path="new.ts", content="const two = 2\n"),
}


@pytest.mark.parametrize(
    "mode, name, follow",
    prove_rest(
        [
            ("ask", "edit", "off"),
            ("ask", "new", "off"),
            ("ask", "read", "show"),
            ("ask", "write", "off"),
            ("ask", "edit", "show"),
            ("ask", "read", "jump"),
            ("auto", "edit", "off"),
            ("auto", "write", "show"),
            ("auto", "new", "show"),
            ("auto", "edit", "jump"),
        ],
        (0,),
    ),
)
def test_the_projects_typescript_does_not_run_before_the_user_opens_a_file(
    start_agent, planted, mode, name, follow
):
    child = start_agent(reply(READ_TS), reply(TS_USES[name]), DONE, setup={"follow": follow})
    enable_typescript(child)
    child.command("edit here.txt")
    if follow != "jump":
        child.command("vsplit here.txt | AgentChat")
    child.command(f"AgentMode {mode}")
    child.ask()
    file = "new.ts" if name == "new" else "a.ts"
    if mode == "ask" and name != "read":
        wait_for_proposal(child, file)
    else:
        child.wait_for_turns()
    if follow != "off":
        wait_until(lambda: shown(child, file), "it is shown")
    assert child.lua(STARTED) == 0
    enter_and_see_it_run(child, planted)


@prove
def test_the_projects_typescript_does_not_run_for_another_agents_write(start_guest, planted):
    write = {"path": "$CWD/a.ts", "content": "const two = 2\n"}
    child = start_guest(
        {"prompts": {"go": [{"call": {"method": "fs/write_text_file", "params": write}}]}}
    )
    enable_typescript(child)
    child.command("wincmd t | edit here.txt | vsplit here.txt | wincmd b")
    typed(child, "go")
    wait_for_proposal(child, "a.ts")
    assert child.lua(STARTED) == 0
    enter_and_see_it_run(child, planted)


# --- what is no file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["Agent config project", "Agent config"])
def test_settings_that_are_a_pipe_are_not_opened(child, project, command):
    own = child.home / "config" / "sanderling" / "config.toml"
    own.parent.mkdir(parents=True)
    for path in (own, project / ".sanderling.toml"):
        os.mkfifo(path)
    child.command(command)
    child.wait_for_message("is a named pipe, so it was not opened.")
    assert not child.is_blocked()


@prove
@pytest.mark.parametrize("is_unloaded", [False, True])
@pytest.mark.parametrize(
    "command",
    [
        *("Agent reviews", "AgentAccept all", "AgentReject all", "AgentDiff", "AgentDiff!"),
        "lua require('sanderling.review.commands').go(1)",
    ],
)
def test_a_pipe_in_the_place_of_a_closed_file_stops_no_command(changed, command, is_unloaded):
    child = changed(is_unloaded=is_unloaded)
    path = child.project / "a.py"
    path.unlink()
    os.mkfifo(path)
    child.command(command)
    child.feed("<CR>")
    child.command("checktime")
    assert not child.is_blocked()
    if command == "AgentReject all":
        wait_until(lambda: (child.project / "b.py").read_text() == TEXT, "the other is rejected")
        child.wait_for_message("a.py is a named pipe")
