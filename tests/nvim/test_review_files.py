"""Rejected changes reach only the file that was read, and what is wrong with one file stops no other."""

import os
import stat

import pytest
from tests.conftest import prove, prove_rest, wait_until
from tests.nvim.test_asked import hunk_count
from tests.nvim.test_buffer_states import full_disk
from tests.nvim.test_loading import edit, reply, use

pytestmark = pytest.mark.guard

__all__ = ["full_disk"]

DONE = {"step": [{"text": "Done."}]}
TEXT = "one\ntwo\nthree\n"
CHANGED = TEXT.replace("one", "ONE")

# What a command of the agent's puts in the file's place, and what that is called.
KINDS = {
    "pipe": ("rm f.txt; mkfifo f.txt", "a named pipe"),
    "link": ("mv f.txt g.txt; ln -s g.txt f.txt", "a symbolic link"),
    "link to pipe": ("rm f.txt; mkfifo p; ln -s p f.txt", "a symbolic link"),
    "directory": ("rm f.txt; mkdir f.txt", "a directory"),
    "socket": (
        "rm f.txt; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"f.txt\")'",
        "a socket",
    ),
    "device": ("rm f.txt; ln -s /dev/full f.txt", "a symbolic link"),
}


@pytest.fixture
def reviewed(start_agent, project):
    """Two open files that the agent has changed, in a Neovim where a hang or a question shows at once."""

    def start(command=None, before=(), text=TEXT, names=("f.txt", "o.txt")):
        for name in names:
            (project / name).write_bytes(text.encode() if isinstance(text, str) else text)
        edits = [edit(name, use_id=f"e{n}") for n, name in enumerate(names)]
        more = [reply(use("bash", "c", command=command))] if command else []
        reads = [use("read", f"r{n}", path=name) for n, name in enumerate(names)]
        child = start_agent(reply(*reads), reply(*edits), *more, DONE)
        for each in before:
            child.command(each)
        for name in names:
            child.command(f"edit {name}")
        child.command("AgentMode auto")
        child.ask_and_wait()
        return child

    return start


def told(child, words):
    wait_until(lambda: not child.is_blocked() and words in child.messages(), words)


def reject(child):
    """`:AgentReject all`, which must end, and ask nothing."""
    child.command("AgentReject all")
    assert not child.is_blocked()


@pytest.mark.parametrize("kind", prove_rest(KINDS, (0, 1), is_one=True))
@pytest.mark.parametrize("autoread", prove_rest([True, False], (0,), is_one=True))
def test_what_is_no_file_any_more_is_left_alone(reviewed, project, kind, autoread):
    command, words = KINDS[kind]
    child = reviewed(command, before=[] if autoread else ["set noautoread"])
    path = project / "f.txt"
    mode = os.lstat(path).st_mode
    told(child, f"f.txt has changed on disk; it is {words} now, so it is left alone")
    child.command("checktime")
    assert (
        child.lua(
            "return vim.api.nvim_get_option_value('autoread', { buf = vim.fn.bufnr('f.txt') })"
        )
        is False
    )
    reject(child)
    told(child, f"f.txt was not changed: it is {words} now")
    assert (project / "o.txt").read_text() == TEXT
    assert stat.S_IFMT(os.lstat(path).st_mode) == stat.S_IFMT(mode)
    assert child.lines(path)[0] == "ONE"
    if kind == "link":
        assert (project / "g.txt").read_text() == CHANGED
    child.command("AgentAccept all")
    assert hunk_count(child, path) == 0


@prove
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "directory"])  # netrw's
def test_nothing_writes_what_is_no_file_any_more(reviewed, project, kind, tmp_path):
    child = reviewed(KINDS[kind][0])
    child.command("buffer f.txt | set autowriteall nohidden")
    child.feed("onew<Esc>")
    child.feed(":silent! write<CR>:silent! update<CR>:silent! wall<CR>:silent! buffer o.txt<CR>")
    wait_until(lambda: not child.is_blocked())
    told(child, "f.txt was not written: it is")
    assert "new" in child.lines(project / "f.txt")
    child.command(f"silent write {tmp_path}/saved")
    assert (tmp_path / "saved").read_text() == CHANGED.replace("ONE\n", "ONE\nnew\n")
    if kind == "link":
        assert (project / "g.txt").read_text() == CHANGED


@prove
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_one_again_is_as_before(reviewed, project, kind):
    child = reviewed(KINDS[kind][0])
    path = project / "f.txt"
    told(child, "f.txt has changed on disk")
    path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    path.write_text(CHANGED + "four\n")
    child.lua("require('sanderling.editing').files_changed({})")
    wait_until(lambda: child.lines(path)[-1] == "four", "it is read")
    assert child.lua("return vim.bo[vim.fn.bufnr('f.txt')].buftype") == ""
    reject(child)
    assert path.read_text() == TEXT + "four\n"


@prove
def test_an_empty_file_in_whose_place_a_pipe_comes_stops_nothing(child, project):
    path = project / "f.txt"
    path.write_text("")
    child.command("edit f.txt")
    child.lua("require('sanderling.editing.kinds')")
    path.unlink()
    os.mkfifo(path)
    child.lua("require('sanderling.editing').files_changed({})")
    told(child, "f.txt has changed on disk; it is a named pipe now")
    os.utime(path, (1, 1))
    child.command("checktime")


@prove
def test_a_pipe_that_a_job_makes_later_is_not_read_when_neovim_gets_the_focus(reviewed, project):
    child = reviewed()
    (project / "f.txt").unlink()
    os.mkfifo(project / "f.txt")
    child.rpc.request("nvim_ui_set_focus", False)
    child.rpc.request("nvim_ui_set_focus", True)
    told(child, "f.txt has changed on disk; it is a named pipe now")
    child.command("checktime")


@prove
@pytest.mark.parametrize("by", ["link", "pipe"])
def test_a_new_file_in_whose_place_something_else_comes_is_not_removed(start_agent, project, by):
    command = "rm new.txt; " + ("mkfifo new.txt" if by == "pipe" else "ln -s g.txt new.txt")
    (project / "g.txt").write_text("mine\n")
    child = start_agent(
        reply(use("write", path="new.txt", content="one\n")),
        reply(use("bash", "c", command=command)),
        DONE,
    )
    child.command("edit new.txt | AgentMode auto")
    child.ask_and_wait()
    reject(child)
    assert os.path.lexists(project / "new.txt")
    assert (project / "g.txt").read_text() == "mine\n"


# --- what others have changed on disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("autoread", prove_rest([True, False], (1,), is_one=True))
def test_what_others_have_changed_on_disk_stays_when_a_change_is_rejected(
    reviewed, project, autoread
):
    child = reviewed(before=[] if autoread else ["set noautoread"])
    (project / "f.txt").write_text("zero\n" + CHANGED.replace("two", "TWO") + "four\n")
    reject(child)
    assert (project / "f.txt").read_text() == "zero\none\nTWO\nthree\nfour\n"
    assert (project / "o.txt").read_text() == TEXT
    assert child.lua("return vim.bo.modified") is False
    told(child, "Rejected 2 changes.")


@prove
def test_a_file_that_another_one_has_replaced_is_merged_too(reviewed, project):
    child = reviewed()
    (project / "next").write_text(CHANGED + "four\n")
    (project / "next").rename(project / "f.txt")
    reject(child)
    assert (project / "f.txt").read_text() == TEXT + "four\n"


@prove
def test_of_a_file_that_is_gone_only_the_buffer_is_changed(reviewed, project):
    child = reviewed("rm f.txt")
    reject(child)
    assert not (project / "f.txt").exists()
    assert child.lines(project / "f.txt") == TEXT.split()
    told(child, "f.txt was not written: it no longer exists.")
    assert (project / "o.txt").read_text() == TEXT


def test_a_file_that_a_hook_of_the_users_replaces_is_not_written(reviewed, project):
    child = reviewed()
    child.command("autocmd BufWritePre f.txt call delete('f.txt') | silent !mkfifo f.txt")
    reject(child)
    told(child, "f.txt was not written")
    assert stat.S_ISFIFO(os.lstat(project / "f.txt").st_mode)
    assert (project / "o.txt").read_text() == TEXT


# --- one bad buffer ----------------------------------------------------------------------------------------------------

OBSTACLES = {
    "nomodifiable": ("setlocal nomodifiable", "f.txt is locked in Neovim ('nomodifiable')."),
    "readonly": ("setlocal readonly", "f.txt is locked in Neovim ('readonly')."),
    "large": ("call system('truncate -s 40M f.txt')", "f.txt was not changed: it is 40 MB now"),
}


@pytest.mark.parametrize("name", prove_rest(OBSTACLES, (0,), is_one=True))
def test_one_bad_buffer_does_not_stop_the_others(reviewed, project, name):
    command, words = OBSTACLES[name]
    child = reviewed(names=("f.txt", "e.txt", "o.txt"))
    child.command(f"buffer f.txt | {command} | buffer o.txt")
    reject(child)
    told(child, f"Rejected 2 changes; 1 left. {words}")
    assert (project / "e.txt").read_text() == (project / "o.txt").read_text() == TEXT
    assert (project / "f.txt").read_text().startswith(CHANGED)
    child.command("AgentAccept all")
    assert "internal error" not in child.messages()


@prove
@pytest.mark.parametrize("event", ["BufWritePre", "BufWritePost", "TextChanged", "BufModifiedSet"])
def test_an_autocommand_that_throws_does_not_stop_the_others(reviewed, project, event):
    child = reviewed(before=[f"autocmd {event} f.txt throw 'mine'"])
    reject(child)
    assert (project / "f.txt").read_text() == (project / "o.txt").read_text() == TEXT
    told(child, "Rejected 2 changes.")


@prove
@pytest.mark.parametrize("name", OBSTACLES)
def test_one_bad_buffer_does_not_stop_the_undo_of_the_others(reviewed, project, name):
    child = reviewed(names=("f.txt", "e.txt", "o.txt"))
    child.command(f"buffer f.txt | {OBSTACLES[name][0]} | buffer o.txt")
    child.command("AgentUndo")
    wait_until(lambda: (project / "o.txt").read_text() == TEXT, "undone")
    wait_until(lambda: (project / "e.txt").read_text() == TEXT, "undone")
    assert not child.is_blocked()


@prove
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_any_more_does_not_stop_the_undo_of_the_others(reviewed, project, kind):
    child = reviewed(KINDS[kind][0])
    child.command("AgentUndo")
    wait_until(lambda: (project / "o.txt").read_text() == TEXT, "undone")
    assert not child.is_blocked()
    child.command("checktime")


# --- bytes -------------------------------------------------------------------------------------------------------------

BYTES = {
    "dos": b"one\r\ntwo\r\n",
    "no end": b"one\ntwo",
    "mark": b"\xef\xbb\xbfone\ntwo\n",
    "latin1": b"one\n\xe4\xf6\xfc\n",
    "utf-16": "one\ntwo\n".encode("utf-16"),
}


@pytest.mark.parametrize("name", prove_rest(BYTES, (0, 1), is_one=True))
@pytest.mark.parametrize("option", prove_rest(["fixeol", "nofixeol"], (1,), is_one=True))
def test_a_rejection_brings_back_each_byte(reviewed, project, name, option):
    child = reviewed(text=BYTES[name], before=[f"set {option} undofile"])
    path = project / "f.txt"
    path.chmod(0o755)
    inode = path.stat().st_ino
    assert path.read_bytes() != BYTES[name]
    reject(child)
    assert path.read_bytes() == BYTES[name]
    assert (path.stat().st_ino, path.stat().st_mode & 0o777) == (inode, 0o755)
    child.command("buffer f.txt | silent write")
    assert not child.is_blocked()


@prove
def test_on_a_full_disk_the_file_stays_what_it_was(full_disk, child):
    path = full_disk / "f.txt"
    path.write_text(TEXT)
    child.command("edit f.txt")
    (full_disk / "ballast").write_bytes(bytes(900 * 1024))
    child.lua("vim.api.nvim_buf_set_lines(0, 0, 1, false, { ('x'):rep(300 * 1024) })")
    said = child.lua("return require('sanderling.editing.saving').write(vim.fn.bufnr())")
    assert "f.txt was not written" in said
    assert "ENOSPC" in said
    assert path.read_text() == TEXT
    assert child.lua("return vim.bo.modified") is True
