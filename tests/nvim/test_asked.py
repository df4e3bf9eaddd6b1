"""Changes that are reviewed in the file itself before they are made: what is proposed, kept, rejected, and what reaches the disk."""

import os
import random
import signal

import pytest
from tests.conftest import prove_rest, prove_unless_quick, quick, wait_until

pytestmark = prove_unless_quick

TWELVE = "".join(f"line {n}\n" for n in range(1, 13))
FOUR = [{"old": f"line {n}\n", "new": f"LINE {n}\n"} for n in (2, 5, 8, 11)]
DONE = {"step": [{"text": "Done."}]}


def edit(path, edits=None, use="t1"):
    call = {"id": use, "name": "edit", "input": {"path": path, "edits": edits or FOUR}}
    return {"step": [{"tool_use": call}]}


def upper(*numbers):
    text = TWELVE
    for n in numbers:
        text = text.replace(f"line {n}\n", f"LINE {n}\n")
    return text


def put(child, path, row, *lines):
    """Have the user replace a line of the file's buffer."""
    child.lua(
        "local path, row, lines = ... "
        "vim.api.nvim_buf_set_lines(vim.fn.bufnr(path), row, row + 1, true, lines)",
        str(path),
        row,
        list(lines),
    )


def hunk_count(child, path):
    return child.lua(
        "return #require('sanderling.review.hunks').list(vim.fn.bufnr((...)))", str(path)
    )


def decide(child, path, *choices, reason=""):
    """Keep (True) or reject (False) hunks by their number; those before move no others."""
    for number, is_kept in choices:
        child.lua(
            """
            local path, number, is_kept, reason = ...
            local hunks = require('sanderling.review.hunks')
            local list = hunks.list(vim.fn.bufnr(path))
            if is_kept then
              hunks.accept({ list[number] })
            else
              hunks.reject({ list[number] }, reason)
            end
            """,
            str(path),
            number,
            is_kept,
            reason,
        )


def decide_all(child, path, *choices, reason=""):
    """Decide on all hunks that are left, and wait for the turn's end."""
    decide(child, path, *choices, reason=reason)
    child.wait_for_turns()


@pytest.fixture
def proposed(start_agent, project):
    """A person in another file, while four changes of `a.txt` are proposed."""

    def start(content=TWELVE, *, edits=None, is_open=False, setup=None, before=(), **screen):
        path = project / "a.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        (project / "other.txt").write_text("other\n")
        child = start_agent(edit("a.txt", edits), DONE, setup=setup, **screen)
        for command in before:
            child.command(command)
        child.command("edit a.txt" if is_open else "edit other.txt")
        child.command("vsplit other.txt")
        child.ask()
        wait_until(lambda: hunk_count(child, path), "the change is proposed")
        return child, path

    return start


def test_what_is_kept_is_written_and_no_other_byte(proposed):
    child, path = proposed()
    assert path.read_text() == TWELVE
    assert child.lines(path) == upper(2, 5, 8, 11).splitlines()
    assert not child.is_modified(path)
    decide_all(child, path, (1, True), (1, False), (1, True), (1, False))
    assert path.read_text() == upper(2, 8)
    assert child.lines(path) == upper(2, 8).splitlines()
    assert not child.is_modified(path)
    (result,) = child.results()
    assert result.count("The user rejected this part") == 2


def test_nothing_moves_and_the_focus_stays_where_it_is(proposed):
    child, path = proposed()
    state = child.lua("return { vim.fn.bufname(), vim.fn.win_getid(), vim.fn.mode() }")
    assert state[0] == "other.txt"
    assert child.lua("return #vim.fn.win_findbuf(vim.fn.bufnr((...)))", str(path)) == 1
    screen = child.screen_text()
    assert "LINE 2" in screen
    assert "4 hunks to review in the file" in screen


def test_all_rejected_is_denied_with_the_reasons(proposed):
    child, path = proposed(is_open=True)
    decide_all(child, path, *[(1, False)] * 4, reason="no capitals")
    assert path.read_text() == TWELVE
    assert child.lines(path) == TWELVE.splitlines()
    assert not child.is_modified(path)
    (result,) = child.results()
    assert "Reason: no capitals\n@@ line 2 @@\n-line 2\n+LINE 2" in result


def test_what_the_person_makes_of_a_hunk_is_what_is_written(proposed):
    child, path = proposed()
    put(child, path, 4, "mine", "too")
    decide_all(child, path, *[(1, True)] * 4)
    assert path.read_text() == upper(2, 5, 8, 11).replace("LINE 5\n", "mine\ntoo\n")
    assert "The user edited your proposal here" in child.results()[0]


def test_what_the_person_types_beside_the_hunks_stays_theirs_to_write(proposed):
    child, path = proposed()
    put(child, path, 5, "typed")
    wait_until(lambda: child.is_modified(path))
    decide_all(child, path, *[(1, True)] * 4)
    assert path.read_text() == TWELVE
    wanted = upper(2, 5, 8, 11).replace("line 6\n", "typed\n")
    assert child.lines(path) == wanted.splitlines()
    assert child.is_modified(path)
    child.command("wall")
    assert path.read_text() == wanted


WRITES = {
    "write": "buffer a.txt | silent write",
    "write all": "bufdo silent! update",
    "another file": "buffer a.txt | silent write! copy.txt",
    "append": "buffer a.txt | silent write >> copy.txt",
    "lines": "buffer a.txt | 1,$-1write! copy.txt",
}


@quick
@pytest.mark.parametrize("name", prove_rest(WRITES, keep=(0,)))
def test_no_line_that_was_not_accepted_reaches_the_disk(proposed, name, project):
    child, path = proposed()
    (project / "copy.txt").write_text("")
    put(child, path, 2, "typed")
    decide(child, path, (1, True), (2, False))
    before = child.lines(path)
    child.command(WRITES[name])
    own = TWELVE.replace("line 3\n", "typed\n")
    copied = (project / "copy.txt").read_text()
    if "copy" in WRITES[name]:
        assert copied == (own.removesuffix("line 12\n") if name == "lines" else own)
        assert path.read_text() == TWELVE
    else:
        assert path.read_text() == own
        assert not child.is_modified(path)
    assert child.lines(path) == before
    assert hunk_count(child, path) == 2
    decide_all(child, path, (1, True), (1, True))
    wanted = upper(2, 5, 11).replace("line 3\n", "typed\n")
    assert child.lines(path) == wanted.splitlines()
    if "copy" not in WRITES[name]:
        assert path.read_text() == wanted


def test_hooks_of_the_person_see_their_own_text_and_the_proposal_survives_them(proposed):
    child, path = proposed(
        before=[
            "autocmd BufWritePre *.txt let g:seen = getline(1, '$') | silent %s/line 7/Line 7/e"
        ]
    )
    put(child, path, 2, "typed")
    child.command("buffer a.txt | silent write")
    own = TWELVE.replace("line 3\n", "typed\n")
    assert child.lua("return vim.g.seen") == own.splitlines()
    assert path.read_text() == own.replace("line 7", "Line 7")
    assert hunk_count(child, path) == 4
    decide_all(child, path, *[(1, True)] * 4)
    assert path.read_text() == (
        upper(2, 5, 8, 11).replace("line 3\n", "typed\n").replace("line 7", "Line 7")
    )


def test_undo_and_quitting_decide_nothing(proposed):
    child, path = proposed()
    child.command("wincmd h | buffer a.txt")
    child.feed("u")
    wait_until(lambda: child.lines(path) == TWELVE.splitlines())
    wait_until(lambda: not child.is_modified(path))
    child.feed("<C-r>")
    wait_until(lambda: hunk_count(child, path) == 4)
    assert not child.is_modified(path)
    child.command("quit")
    assert not child.events("AgentTurnEnded")
    assert path.read_text() == TWELVE


def test_undo_of_a_change_of_which_some_is_kept_decides_nothing(proposed):
    child, path = proposed()
    decide(child, path, (1, True))
    child.command("wincmd h | buffer a.txt")
    child.feed("u")
    wait_until(lambda: child.lines(path) == TWELVE.splitlines())
    child.feed("<C-r>")
    wait_until(lambda: hunk_count(child, path) == 3)
    assert not child.events("AgentTurnEnded")
    decide_all(child, path, (1, True), (1, False), (1, False))
    assert path.read_text() == upper(2, 5)


def test_a_reload_shows_the_change_anew(proposed):
    child, path = proposed()
    child.command("wincmd h | buffer a.txt")
    path.write_text("first\n" + TWELVE)
    child.command("edit!")
    wanted = ("first\n" + upper(2, 5, 8, 11)).splitlines()
    wait_until(lambda: child.lines(path) == wanted and hunk_count(child, path) == 4)
    decide_all(child, path, *[(1, True)] * 4)
    assert path.read_text() == "first\n" + upper(2, 5, 8, 11)


# --- undo afterwards -------------------------------------------------------------------------------------------------------


def undone(child, path, count=20):
    """The text of each state that `u` leads to, from now on, and those that redo leads back through."""
    child.command("wincmd h | buffer a.txt")
    texts = []
    for command in ["silent undo"] * count + ["silent redo"] * count:
        child.command(command)
        child.lua("vim.wait(0, function() return false end)")
        texts.append("".join(f"{line}\n" for line in child.lines(path)))
    return texts


def typed_before(child, path):
    """The person has typed in the file before anything is proposed, and saved that."""
    child.command("edit a.txt")
    child.feed("ggOtyped<Esc>")
    wait_until(lambda: child.lines(path)[0] == "typed")
    child.command("silent write")


UNDO = {
    "rejected": [(1, False)] * 4,
    "two of them kept": [(1, True), (1, False), (1, True), (1, False)],
    "typed in between": [(1, False), "typed", (1, True), (1, False), (1, False)],
    "written in between": [(1, False), "typed", "write", (1, True), (1, False), (1, False)],
    "undone in between": [(1, False), "undo", (1, True), *[(1, False)] * 3],
}


@pytest.mark.parametrize("undofile", [False, True])
@pytest.mark.parametrize("name", UNDO)
def test_undo_never_brings_back_what_was_not_accepted(proposed, name, undofile):
    before = ["set undofile"] if undofile else []
    child, path = proposed("typed\n" + TWELVE, is_open=True, before=before)
    child.command("wincmd h | buffer a.txt")
    for step in UNDO[name]:
        match step:
            case "typed":
                child.command("$put ='mine'")
            case "write":
                child.command("silent write")
            case "undo":
                child.command("silent undo")
            case choice:
                decide(child, path, choice)
    child.wait_for_turns()
    wait_until(
        lambda: child.lua("return next(require('sanderling.proposals.store').by_buf) == nil")
    )
    final = "".join(f"{line}\n" for line in child.lines(path))
    accepted = {line for line in final.splitlines() if "LINE" in line}
    states = undone(child, path)
    for text in states:
        assert {line for line in text.splitlines() if "LINE" in line} in ({*()}, accepted)
    assert "typed\n" + TWELVE in states or (not accepted and "mine" not in final)
    assert states[-1] == final
    if name == "written in between" and undofile:
        child.command("silent write | edit other.txt | bwipeout a.txt | edit a.txt")
        for text in undone(child, path):
            assert {line for line in text.splitlines() if "LINE" in line} in ({*()}, accepted)


@pytest.mark.parametrize("count", [1, 2])
def test_undo_of_a_reload_brings_back_what_the_person_had_and_nothing_else(proposed, count):
    child, path = proposed(is_open=True)
    child.command("wincmd h | buffer a.txt | $put ='mine'")
    path.write_text("first\n" + TWELVE)
    wanted = ("first\n" + upper(2, 5, 8, 11)).splitlines()
    for _ in range(count):
        child.command("edit!")
        wait_until(lambda: child.lines(path) == wanted and hunk_count(child, path) == 4)
    child.command("silent undo")  # the proposal
    wait_until(lambda: child.lines(path) == ("first\n" + TWELVE).splitlines())
    assert not child.is_modified(path)
    states = undone(child, path, 10)
    assert TWELVE + "mine\n" in states
    for text in states[:10]:
        assert "LINE" not in text
    assert hunk_count(child, path) == 4
    decide_all(child, path, *[(1, True)] * 4)
    assert path.read_text() == "first\n" + upper(2, 5, 8, 11)


ENDS = {
    "stopped": "lua require('sanderling').stop()",
    "closed": "lua require('sanderling').close()",
    "denied": "AgentDeny",
}


@pytest.mark.parametrize("name", [*ENDS, "killed"])
def test_when_it_ends_otherwise_the_person_has_their_own_text_back(proposed, name):
    child, path = proposed()
    put(child, path, 2, "typed")
    decide(child, path, (1, True))
    child.wait_for_question()
    if name == "killed":
        os.kill(child.host_pid(), signal.SIGKILL)
    else:
        child.command(ENDS[name])
    own = TWELVE.replace("line 3\n", "typed\n")
    wait_until(lambda: child.lines(path) == own.splitlines())
    assert child.is_modified(path)
    assert path.read_text() == TWELVE
    child.command("wall")
    assert path.read_text() == own


def test_a_file_that_the_person_closes_is_asked_about_in_the_float(proposed):
    child, path = proposed()
    child.command("bwipeout! a.txt")
    child.wait_for_screen("-line 2", "+LINE 2")
    child.answer_question("a")
    assert path.read_text() == upper(2, 5, 8, 11)


def test_the_floats_keys_answer_for_what_is_left(proposed):
    child, path = proposed()
    decide(child, path, (2, False))
    child.enter_question()
    assert "3 of 4 hunks to review" in child.screen_text()
    child.feed("a")
    child.wait_for_turns()
    assert path.read_text() == upper(2, 8, 11)


def test_with_the_option_it_is_asked_in_the_float(start_agent, project):
    (project / "a.txt").write_text(TWELVE)
    child = start_agent(edit("a.txt"), DONE, setup={"review": "float"})
    child.command("edit a.txt")
    child.ask()
    child.wait_for_screen("+LINE 2")
    assert hunk_count(child, project / "a.txt") == 0


@pytest.mark.parametrize("name", ["new.txt", "src/deep/new.txt"])
def test_a_new_file_is_reviewed_before_there_is_one(start_agent, project, name):
    call = {"id": "t1", "name": "write", "input": {"path": name, "content": "one\ntwo"}}
    child = start_agent({"step": [{"tool_use": call}]}, DONE)
    child.command("edit other.txt | vsplit")
    child.ask()
    path = project / name
    wait_until(lambda: hunk_count(child, path))
    assert child.lines(path) == ["one", "two"]
    child.command(f"wincmd h | buffer {name} | silent! write")
    assert not path.exists() or path.read_text() == ""
    decide_all(child, path, (1, True))
    assert path.read_text() == "one\ntwo"


@pytest.mark.parametrize("name", ["new.txt", "a.txt"])
def test_the_window_shows_what_it_showed_when_all_is_kept(start_agent, project, name):
    (project / "a.txt").write_text("before\n")
    text = "".join(f"line {n}\n" for n in range(40))
    call = {"id": "t1", "name": "write", "input": {"path": name, "content": text}}
    read = {"step": [{"tool_use": {"id": "t0", "name": "read", "input": {"path": "a.txt"}}}]}
    child = start_agent(read, {"step": [{"tool_use": call}]}, DONE, columns=80, lines=24)
    child.command("edit other.txt")
    child.command("AgentChat")
    child.ask()
    wait_until(lambda: hunk_count(child, project / name))
    child.wait_for_question()
    child.command(f"exe bufwinnr('{name}') .. 'wincmd w' | normal! 10Gzt2j")
    place = "return { vim.fn.line('.'), vim.fn.line('w0'), vim.fn.bufname() }"
    assert child.lua(place) == [12, 10, name]
    child.feed("\\ha")
    child.wait_for_turns()
    assert (project / name).read_text() == text
    assert child.lua(place) == [12, 10, name]


def test_a_new_file_that_is_rejected_leaves_nothing(start_agent, project):
    call = {"id": "t1", "name": "write", "input": {"path": "new.txt", "content": "one\n"}}
    child = start_agent({"step": [{"tool_use": call}]}, DONE)
    child.command("edit other.txt | vsplit")
    child.ask()
    path = project / "new.txt"
    wait_until(lambda: hunk_count(child, path))
    decide_all(child, path, (1, False))
    assert not path.exists()
    wait_until(lambda: child.lua("return vim.fn.bufexists((...))", str(path)) == 0)


# --- exact bytes ---------------------------------------------------------------------------------------------------------

FORMATTER = "autocmd BufWritePre *.txt silent keepjumps %s/LINE 8$/Line 8/e"
AUTOSAVE = "autocmd TextChanged,InsertLeave,BufLeave *.txt silent! update"
CRLF = TWELVE.replace("\n", "\r\n").encode()
SITUATIONS = {
    "formatter": (TWELVE.encode(), [FORMATTER]),
    "autosave": (TWELVE.encode(), [AUTOSAVE]),
    "folds": (TWELVE.encode(), ["autocmd BufWinEnter a.txt silent! 3,9fold"]),
    "crlf": (CRLF, []),
    "no final newline": (TWELVE.removesuffix("\n").encode(), []),
    "all of it": (CRLF.removesuffix(b"\r\n"), ["set nofixendofline", FORMATTER, AUTOSAVE]),
}


@quick
@pytest.mark.parametrize("name", prove_rest(SITUATIONS, keep=(0,)))
def test_the_first_and_third_of_four_hunks_are_in_the_file_byte_by_byte(proposed, name):
    content, before = SITUATIONS[name]
    child, path = proposed(content, before=before)
    child.command("wincmd h | buffer a.txt")
    decide(child, path, (1, True), (1, False))
    child.feed("Gzvo<Esc>u")
    child.command("doautocmd TextChanged | wincmd l")
    assert path.read_bytes() == content
    decide_all(child, path, (1, True), (1, False))
    third = b"Line 8" if FORMATTER in before else b"LINE 8"
    assert path.read_bytes() == content.replace(b"line 2", b"LINE 2").replace(b"line 8", third)
    wait_until(lambda: not child.is_modified(path), "Neovim hears of the write")
    assert (b"format on save" in child.results()[0].encode()) == (FORMATTER in before)


# --- several at once, while an answer streams and somebody types ------------------------------------------------------------


@pytest.fixture
def of_two_files(start_agent, project):
    """The model will propose four changes of each of two files."""

    def start():
        uses = []
        for name in ("a.txt", "b.txt"):
            (project / name).write_text(TWELVE)
            uses += edit(name, use=name)["step"]
        return start_agent({"step": uses}, DONE)

    return start


def test_two_files_are_reviewed_while_the_person_types_in_a_third(of_two_files, project):
    child = of_two_files()
    child.command("edit other.txt | vsplit")
    child.ask()
    paths = [project / "a.txt", project / "b.txt"]
    child.feed("itype")
    wait_until(lambda: all(hunk_count(child, path) == 4 for path in paths))
    child.feed(" on")
    wait_until(lambda: child.lua("return vim.api.nvim_get_current_line()") == "type on")
    assert child.mode() == "i"
    child.feed("<Esc>")
    decide(child, paths[1], *[(1, True)] * 4)
    wait_until(lambda: paths[1].read_text() == upper(2, 5, 8, 11))
    assert paths[0].read_text() == TWELVE
    assert hunk_count(child, paths[0]) == 4
    child.command("only")
    child.command("Agent question")
    child.wait_for_screen("4 hunks to review in the file:", "<C-w>e goes there")
    decide_all(child, paths[0], *[(1, False)] * 4)
    assert paths[0].read_text() == TWELVE


def test_an_entry_of_the_list_opens_in_a_window_for_code(of_two_files, project):
    child = of_two_files()
    child.command("edit a.txt")
    child.ask()
    wait_until(lambda: all(hunk_count(child, project / name) == 4 for name in ("a.txt", "b.txt")))
    child.command("wincmd t | Agent reviews")
    windows = child.lua("return vim.fn.winnr('$')")
    child.feed("5G<CR>")
    wait_until(lambda: child.lua("return vim.fn.bufname()") == "b.txt")
    assert child.lua("return { vim.fn.winnr('$'), vim.fn.line('.'), vim.fn.winnr() }") == [
        windows,
        2,
        1,
    ]
    child.command("copen | call setqflist([{'filename': 'other.txt', 'lnum': 1}])")
    child.feed("<CR>")
    wait_until(lambda: child.lua("return vim.fn.bufname()") == "other.txt")
    assert child.lua("return vim.fn.winnr('$')") == windows + 1  # as Neovim does


# --- any order --------------------------------------------------------------------------------------------------------------

EDITS = [{"old": f"line {n}\n", "new": f"NEW {n}\n"} for n in range(2, 40, 4)]
FORTY = "".join(f"line {n}\n" for n in range(1, 41))


@pytest.mark.parametrize("seed", prove_rest(range(12), keep=(0,)))
def test_in_any_order_of_keeping_rejecting_typing_and_writing_nothing_is_lost(proposed, seed):
    rng = random.Random(seed)
    child, path = proposed(FORTY, edits=EDITS)
    child.command("wincmd h | buffer a.txt")
    waiting, kept, typed = [int(each["old"].split()[1]) for each in EDITS], set(), []
    while waiting:
        match rng.choice(["keep", "reject", "type", "write", "undo", "update"]):
            case "type":
                text = child.lines(path)
                typed.append(f"typed {len(typed)}")
                row = rng.randrange(len(text) + 1)
                child.lua("vim.api.nvim_buf_set_lines(0, ...)", row, row, True, [typed[-1]])
            case "write":
                child.command("silent write")
            case "update":
                child.command("silent update")
            case "undo":
                child.command("silent undo | silent redo")
            case choice:
                index = rng.randrange(len(waiting))
                decide(child, path, (index + 1, choice == "keep"))
                number = waiting.pop(index)
                kept |= {number} if choice == "keep" else set()
        if waiting:
            assert "NEW" not in path.read_text()
            assert hunk_count(child, path) == len(waiting)
    child.wait_for_turns()
    child.command("silent wall")
    written = path.read_text().splitlines()
    assert sorted(line for line in written if "typed" in line) == sorted(typed)
    wanted = [f"NEW {n}" if n in kept else f"line {n}" for n in range(1, 41)]
    assert [line for line in written if "typed" not in line] == wanted
    assert child.lines(path) == written


def test_a_file_that_changes_on_the_disk_meanwhile_is_looked_at_again(proposed):
    child, path = proposed()
    path.write_text("first\n" + TWELVE)
    child.lua("require('sanderling.editing').files_changed({ (...) })", str(path))
    wanted = ("first\n" + upper(2, 5, 8, 11)).splitlines()
    wait_until(lambda: child.lines(path) == wanted and hunk_count(child, path) == 4)
    decide_all(child, path, (1, True), *[(1, False)] * 3)
    assert path.read_text() == "first\n" + upper(2)


def test_a_file_that_changed_unnoticed_keeps_that_change(proposed):
    child, path = proposed()
    path.write_text("first\n" + TWELVE)
    decide_all(child, path, *[(1, True)] * 4)
    assert path.read_text() == "first\n" + upper(2, 5, 8, 11)
    assert child.lines(path) == path.read_text().splitlines()
