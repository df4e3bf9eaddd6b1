"""From a name that a model or a command wrote to a file: what is opened is a file, and nothing runs."""

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.test_approval import ask, asked, enter
from tests.nvim.test_tools_screen import (
    TURN_STARTED,
    delta,
    ended,
    go_to,
    here,
    job_output,
    jobs,
    output,
    shown_use,
    started,
    terminal,
)

SCHEMES = ["term", "http", "https", "ftp", "sftp", "scp", "rcp", "rsync", "dav", "davs", "file"]
SCHEMES += ["man", "other"]
PATTERNS = [
    *(f"{scheme}://*" for scheme in SCHEMES),
    *("zipfile:*", "zipfile:*/*", "tarfile::*", "tarfile::*/*", "*.zip", "*.jar", "*.docx"),
    *("*.tar", "*.tar.gz", "*.tgz", "*.shada", "*.sealed", "*/vault/*"),
]
KEYS = ["gf", "gF", "[f", "]f", "<C-w>f", "<C-w><C-f>", "<C-w>F", "<C-w>gf", "<C-w>gF", "gx"]
KEYS += ["K", "<C-]>", "g]", "<C-w>]", "g<C-]>", "<C-w>}", "<CR>", "Vgf", "V<C-w>f", "viWgx"]

NOTE_WHAT_IS_REACHED = """
  _G.reached = {}
  vim.cmd('silent! autocmd! BufReadCmd')
  vim.cmd('silent! autocmd! FileReadCmd')
  for _, pattern in ipairs(...) do
    vim.api.nvim_create_autocmd({ 'BufReadCmd', 'FileReadCmd' }, { pattern = pattern, callback = function(event)
      table.insert(_G.reached, event.match)
    end })
  end
  vim.ui.open = function(what) table.insert(_G.reached, 'opened ' .. what) end
"""


def note(screen):
    screen.lua(NOTE_WHAT_IS_REACHED, PATTERNS)
    screen.command("set more")


def reached(screen):
    return screen.lua("return _G.reached")


def make(project, name):
    """The file that has this name, as the kernel reads it."""
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("harmless\n")
    return path


def press(screen, keys):
    """Type them, and wait until they have done what they do."""
    screen.feed(f"{keys}<Cmd>let g:pressed = get(g:, 'pressed') + 1<CR>")
    count = screen.lua("_G.count = (_G.count or 0) + 1 return _G.count")
    wait_until(
        lambda: not screen.is_blocked() and screen.lua("return vim.g.pressed") == count, keys
    )


@pytest.mark.parametrize("key", prove_rest(["<CR>", "gf", "gF", "<C-w>f"], (0,)))
@pytest.mark.parametrize(
    "name",
    prove_rest(
        [
            *(f"{scheme}://sh x" for scheme in SCHEMES),
            *("zipfile:a.zip::b", "tarfile::a.tar", "zipfile:a/b", "a.zip", "sub/a.tar.gz"),
            *("a.docx", "x.shada", "key.sealed", "vault/key"),
        ],
        keep=(0, 1, 13, 15, 16, 21),
    ),
)
def test_a_place_whose_name_means_something_to_a_plugin_is_no_command(screen, project, name, key):
    make(project, name)
    note(screen)
    line = f'File "{project}/{name}", line 1'
    screen.send(started(), output(line + "\n"), ended("", is_error=True))
    go_to(screen, "^File")
    press(screen, key)
    assert reached(screen) == []
    is_plain = "://" in name
    if is_plain:
        assert here(screen)[0] == str(project / name.replace("//", "/"))
        assert screen.lua("return vim.fn.getline(1)") == "harmless"
        screen.command("cd .. | cd - | edit | checktime")
        assert reached(screen) == []
    else:
        assert "A plugin would read" in screen.screen_text()
        assert screen.lua("return vim.bo.filetype") == "sanderling"


@pytest.mark.parametrize("key", ["<CR>", "gf"])
def test_a_place_without_an_end_is_not_opened(screen, project, key):
    (project / "app.py").symlink_to("/proc/self/pagemap")
    with (project / "large.py").open("wb") as file:
        file.truncate(100 << 20)
    text = "/proc/self/pagemap\napp.py:1\nlarge.py:1\n"
    screen.send(started(), output(text), ended("", is_error=True))
    for line, told in (
        ("^/proc", "No existing file is named here"),
        ("^app", "No existing file is named here"),
        ("^large", "large.py is 100 MB. Open it with :edit"),
    ):
        go_to(screen, line)
        press(screen, key)
        wait_until(lambda told=told: told in screen.screen_text(), line)
        assert screen.lua("return vim.bo.filetype") == "sanderling"


def test_what_stays_harmless_opens_by_its_real_name(screen, project):
    real = make(project, "src/app.py")
    (project / "term:").symlink_to(project / "src")
    (project / "a.zip").symlink_to(real)
    note(screen)
    text = 'File "term://app.py", line 1\na.zip:1\n'
    screen.send(started(), output(text), ended("", is_error=True))
    for line in ("^File", "^a.zip"):
        go_to(screen, line)
        press(screen, "gf")
        assert here(screen)[0] == str(real)
    assert reached(screen) == []


@pytest.mark.parametrize("name", ["a.zip", "term://x"])
def test_a_buffer_of_the_file_by_such_a_name_is_not_read_by_a_plugin(screen, project, name):
    real = make(project, "app.py")
    link = project / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(real)
    note(screen)
    screen.lua("vim.fn.bufadd(...)", str(link))
    screen.send(started(), output("app.py:1\n"), ended("", is_error=True))
    go_to(screen, "^app")
    press(screen, "gf")
    assert reached(screen) == []
    assert screen.lua("return vim.fn.getline(1)") == "harmless"


HOSTILE = "term://./x.sh"


def in_transcript(screen):
    screen.send(TURN_STARTED, delta(f"{HOSTILE}\n"))
    go_to(screen, "^term")


def in_prompt(screen):
    screen.feed(f"<Esc>i{HOSTILE}<Esc>0")
    wait_until(lambda: screen.prompt_lines() == [HOSTILE] and screen.mode() == "n")


def in_float(screen):
    screen.send(started(), ended())
    go_to(screen, "^bash", "K")
    wait_until(screen.actions)
    screen.answer("inspect_tool_use", **shown_use(HOSTILE))
    screen.feed("G0")


def in_question(screen):
    ask(screen, asked(subject=HOSTILE))
    enter(screen)
    screen.lua("vim.fn.search('term://')")


def in_the_whole_of_a_question(screen):
    ask(screen, asked(subject=HOSTILE))
    enter(screen)
    screen.feed("p")
    wait_until(lambda: screen.lua("return vim.fn.getline(1)") == HOSTILE)


def in_job(screen):
    screen.send(jobs(""))
    screen.command("Agent terminal")
    screen.send(job_output(HOSTILE))
    wait_until(lambda: terminal(screen) == [HOSTILE])
    screen.feed("gg0")


def in_trust(screen):
    file = {"path": "AGENTS.md", "kind": "instructions", "text": HOSTILE, "state": "new"}
    screen.command("Agent trust")
    screen.answer("show_trust", project="/p", files=[file | {"sha256": "0" * 64}])
    wait_until(lambda: screen.lua("return vim.bo.filetype") == "sanderling_trust")
    assert screen.lua("return vim.fn.search('term://')") > 0


@pytest.mark.parametrize(
    "open_buffer",
    prove_rest(
        [
            in_transcript,
            in_prompt,
            in_float,
            in_question,
            in_the_whole_of_a_question,
            in_job,
            in_trust,
        ]
    ),
)
@pytest.mark.parametrize("has_file", prove_rest([False, True], keep=(0,)))
def test_no_key_of_neovims_opens_more_than_a_file(screen, project, open_buffer, has_file):
    if has_file:
        make(project, HOSTILE)
    (project / "tags").write_text(f"x\t{HOSTILE}\t1\nterm\t{HOSTILE}\t1\n")
    note(screen)
    screen.setup(keys={"go_to_file": False})
    open_buffer(screen)
    screen.command("let g:view = winsaveview() | let g:win = win_getid() | let g:buf = bufnr()")
    for key in KEYS:
        if not screen.lua("return vim.api.nvim_win_is_valid(vim.g.win)"):
            open_buffer(screen)
            screen.command("let g:view = winsaveview() | let g:win = win_getid()")
        screen.lua("""
          vim.api.nvim_set_current_win(vim.g.win)
          vim.fn.winrestview(vim.g.view)
        """)
        if open_buffer is in_question and key == "<CR>":
            continue
        press(screen, key)
        press(screen, "<Esc>" if screen.mode() != "n" else "")
        assert reached(screen) == [], key


def test_p_in_a_question_reads_a_file_and_asks_no_plugin(screen, project):
    zipped = make(project, "a.zip")
    (project / "plain").symlink_to(zipped)
    note(screen)
    ask(screen, asked(tool="read", subject="plain", path=str(project / "plain")))
    enter(screen)
    press(screen, "p")
    assert reached(screen) == []
    assert "A plugin would read a.zip" in screen.screen_text()


@pytest.mark.parametrize(
    "name, command",
    prove_rest(
        [
            ("notes.txt.gz", None),  # Neovim's own plugin
            ("notes.xz", None),
            ("secret.gpg", "'[,']!gpg --decrypt"),
            ("table.bin", "silent %!xxd"),
            ("deep/table.bin", "execute '1,$!xxd'"),
        ]
    ),
)
def test_what_a_program_would_unpack_is_not_opened_from_the_transcript(
    screen, project, name, command
):
    path = make(project, name)
    if command:
        screen.lua(
            """
            local pattern, command = ...
            vim.api.nvim_create_autocmd('BufReadPost', { pattern = pattern, command = command })
            """,
            f"*{path.suffix}",
            command,
        )
    screen.send(TURN_STARTED, delta(f"see {name}\n"))
    go_to(screen, "^see")
    press(screen, "wgf")
    assert f"A plugin would read {path.name}" in screen.screen_text()
    assert screen.lua("return vim.fn.bufexists(...)", str(path)) == 0


def test_an_autocommand_that_only_sets_something_is_in_nobodys_way(screen, project):
    make(project, "notes.rst")
    screen.command("autocmd BufReadPost *.rst setlocal spell | silent! let b:seen = 1")
    screen.send(TURN_STARTED, delta("see notes.rst\n"))
    go_to(screen, "^see")
    press(screen, "wgf")
    assert screen.lua("return vim.fn.expand('%:t')") == "notes.rst"
