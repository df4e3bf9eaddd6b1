"""Mentions in a prompt: what they bring along when it is sent, what is said of them before, and how they are completed."""

import base64
import os
import re
import struct
import subprocess
import zlib

import pytest
from tests.conftest import prove_unless_quick, quick, wait_until
from tests.loopback import LoopbackServer, Reply, done, message_start, text
from tests.nvim.conftest import texts_told
from tests.nvim.test_code import program, start, warm

pytestmark = prove_unless_quick


@pytest.fixture
def server():
    with LoopbackServer() as server:
        server.answer(Reply(message_start(), text("Yes."), done()))
        yield server


@pytest.fixture
def start_claude(start_claude, project):
    def start(**setup):
        (project / "src").mkdir(exist_ok=True)
        (project / "src" / "slow.py").write_text("".join(f"line{n}\n" for n in range(1, 21)))
        (project / "secret.env").write_text("KEY=1\n")
        child = start_claude()
        child.setup(**setup)
        child.command("edit src/slow.py")
        return child

    return start


def ask(child, server, prompt):
    """The texts that the model is told for a prompt that is typed."""
    child.open_chat()
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, vim.split(..., '\\n'))", prompt)
    child.feed("<CR>")
    child.wait_for_turns()
    return texts_told(server.prompts[-1].json()["messages"][-1])


@quick
def test_a_file_goes_along_as_it_stands_in_the_editor(start_claude, server):
    child = start_claude()
    child.feed("ggccunsaved<Esc>")
    assert ask(child, server, "what is @src/slow.py:1-2?") == [
        "src/slow.py:1-2, current editor text:\n```python\n1\tunsaved\n2\tline2\n```",
        "what is @src/slow.py:1-2?",
    ]
    assert "▸ src/slow.py:1-2 · 2 lines" in child.screen_text()


OPENERS = ("xdg-open", "wslview", "explorer.exe", "lemonade")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")


@pytest.mark.parametrize(
    "prompt, expected",
    [
        ("@secret.env", "secret.env:1, as saved on disk:\n```\n1\tKEY=1\n```"),
        ("(@src/slow.py:3).", "src/slow.py:3, current editor text:\n```python\n3\tline3\n```"),
        ("@src/", "src/, directory listing:\n```\nslow.py\n```"),
        ("see @buffer", "src/slow.py:1-20, current editor text:"),
        (
            "@selection?",
            "src/slow.py:2-4, current editor text:\n```python\n2\tline2\n3\tline3\n4\tline4\n```",
        ),
        (
            "@diagnostics",
            "@diagnostics, diagnostics of language servers and linters:\n```\nsrc/slow.py:3: error: wrong\n```",
        ),
        ("@quickfix", "@quickfix, the editor's quickfix list:\n```\nsrc/slow.py:5: here\n```"),
        ("@diff", "+new"),
        ("@staged", "+staged"),
        ("@my\\ file.txt", "my file.txt:1, as saved on disk:\n```\n1\tblank\n```"),
    ],
)
def test_each_kind_brings_what_it_names(start_claude, server, project, prompt, expected):
    child = start_claude()
    (project / "my file.txt").write_text("blank\n")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    (project / "a.txt").write_text("old\n")
    (project / "b.txt").write_text("old\n")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    subprocess.run([*GIT, "commit", "-qm", "x"], cwd=project, check=True)
    (project / "b.txt").write_text("staged\n")
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    (project / "a.txt").write_text("new\n")
    child.feed("2GVjj<Esc>")
    child.lua("""
      local ns = vim.api.nvim_create_namespace('test')
      vim.diagnostic.set(ns, 0, { { lnum = 2, col = 0, message = 'wrong', severity = 1 } })
      vim.fn.setqflist({ { filename = 'src/slow.py', lnum = 5, text = 'here' } })
    """)
    told = ask(child, server, prompt)
    # Neovim 0.12 has filetypes for these.
    assert expected in re.sub("```(env|text)\n", "```\n", told[0])
    assert told[-1] == prompt


@quick
@pytest.mark.parametrize(
    "text, count", [("a@b ", 0), ("@x ", 500), ("@", 0), ("@" + "." * 50 + "x", 1)]
)
def test_a_long_line_of_mentions_holds_up_nobody(start_nvim, text, count):
    child = start_nvim()
    with child.little_work(5):  # without care, minutes
        found = child.lua(
            "return #require('sanderling.prompt.mentions').parse({ (...):rep(10000) })", text
        )
    assert found <= count


@quick
def test_nothing_runs_that_the_repository_names(start_claude, server, project, tmp_path):
    child = start_claude()
    run, ran = tmp_path / "run", tmp_path / "ran"
    run.write_text(f"#!/bin/sh\necho $0 $@ >> {ran}\ncat\n")
    run.chmod(0o755)

    def git(*arguments):
        subprocess.run([*GIT, *arguments], cwd=project, check=True)

    git("init", "-q")
    (project / "a.txt").write_text("old\n")
    git("add", ".")
    git("commit", "-qm", "x")
    hook = project / ".git/hooks/post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.symlink_to(run)
    (project / ".gitattributes").write_text("*.txt filter=a=b diff=d\n*.py filter=p\n")
    git("config", "core.fsmonitor", str(run))
    git("config", "filter.a=b.clean", str(run))
    git("config", "filter.a=b.required", "true")
    git("config", "filter.p.process", str(run))
    git("config", "filter.p.required", "true")
    for key in ("diff.external", "diff.d.command", "diff.d.textconv", "core.pager"):
        git("config", key, str(run))
    ran.unlink(missing_ok=True)
    (project / "a.txt").write_text("new\n")
    (project / "src" / "slow.py").touch()
    child.open_chat()
    child.feed("ilook at ")
    wait_until(lambda: child.lua(COUNT) > 0)
    child.feed("<C-u><Esc>")
    told = ask(child, server, "@diff @staged")
    assert not ran.exists()
    assert "+new" in told[0]


def test_no_program_of_the_project_runs_even_if_it_is_on_path(start_nvim, project, tmp_path):
    """In a shell with an active environment, `.venv/bin` is on PATH, and commands in the sandbox can write there."""
    ran = tmp_path / "ran"
    for place in (".venv/bin", "relative"):
        (project / place).mkdir(parents=True)
        for name in ("git", "rg", "tmux", "wl-paste", "pngpaste", *OPENERS):
            program = project / place / name
            program.write_text(f"#!/bin/sh\necho $0 >> {ran}\nexit 1\n")
            program.chmod(0o755)
    subprocess.run([*GIT, "init", "-q"], cwd=project, check=True)
    (project / "a.txt").write_text("a\n")
    path = f"{project}/.venv/bin:relative:{os.environ['PATH']}"
    child = start_nvim({"PATH": path, "TMUX": "/tmp/some,1,0", "WAYLAND_DISPLAY": "wayland-0"})
    child.command("edit a.txt")
    child.open_chat()
    child.feed("ilook at @diff @clipboard ")
    wait_until(lambda: child.lua(COUNT) > 0)
    child.feed("<Esc>")
    child.lua("require('sanderling.prompt.images').of_clipboard(vim.fn.getcwd())")
    child.lua("require('sanderling.access.git').diff(vim.fn.getcwd(), {})")
    child.lua("require('sanderling.access.links').open('https://example.org/')")
    child.command("checkhealth sanderling")
    assert not ran.exists(), ran.read_text()


def test_a_difference_is_of_the_project_alone(start_claude, server, project, tmp_path):
    """The repository's configuration may say that its files are others than those beside it."""

    def git(*arguments):
        subprocess.run([*GIT, *arguments], cwd=project, check=True)

    git("init", "-q")
    git("config", "core.worktree", str(tmp_path))
    secret, changed = tmp_path / "a.env", project / "new.py"
    for path in (secret, changed):
        path.write_text("old\n")
        git("add", str(path))
        path.write_text("secret\n" if path == secret else "new\n")
    child = start_claude()
    told = ask(child, server, "@diff")
    assert "+++ b/new.py" in told[0]
    assert "secret" not in told[0]

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    git("config", "core.worktree", str(elsewhere))
    secret.rename(elsewhere / "a.env")
    child.feed("ilook at @diff")
    child.wait_for_screen("git failed")


@pytest.mark.parametrize(
    "prompt",
    [
        *("use @property here", "a@secret.env", "@nowhere.txt", "@src/slow.py:90"),
        *("@https://x.y/z", "@@secret.env"),
    ],
)
def test_what_names_nothing_is_a_word_like_all_others(start_claude, server, prompt):
    assert ask(start_claude(), server, prompt) == [prompt]


@quick
def test_what_a_rule_keeps_from_the_model_is_not_sent(start_claude, server):
    child = start_claude(permissions=[{"action": "deny", "tool": "read", "path": "*.env"}])
    child.open_chat()
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'look at @secret.env' })")
    child.feed("<CR>")
    child.wait_for_transcript("A rule keeps secret.env from the model: nothing was sent")
    assert server.prompts == []


def test_a_difference_with_what_a_rule_keeps_is_not_sent(start_claude, server, project):
    child = start_claude(permissions=[{"action": "deny", "tool": "read", "path": "*.env"}])
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    subprocess.run(["git", "add", "."], cwd=project, check=True)
    (project / "secret.env").write_text("KEY=2\n")
    child.open_chat()
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'commit @diff' })")
    child.feed("<CR>")
    child.wait_for_transcript("@diff contains secret.env, which a rule keeps")
    assert server.prompts == []


@quick
def test_beside_a_mention_stands_what_it_brings(start_claude):
    child = start_claude(permissions=[{"action": "deny", "tool": "read", "path": "*.env"}])
    child.open_chat()
    child.feed("i@src/slow.py:1-10 and<CR>@src/none.py and<CR>@secret.env and<CR>@property<Esc>")
    child.wait_for_screen("@src/slow.py:1-10 and   ~15 tokens")
    assert "@src/none.py and   ✗ not found" in child.screen_text()
    assert "@property  ~" not in child.screen_text()
    child.submit_and_wait("ping")
    child.feed("A <Esc>")
    child.wait_for_screen("✗ a rule keeps it from the model")


@quick
def test_beside_several_mentions_what_cannot_be_had_comes_first(start_claude):
    child = start_claude()
    child.open_chat()
    child.feed("i@src/slow.py:1-10 @none.py<Esc>")
    child.wait_for_screen("@none.py ✗ not found")


COUNT = "return require('sanderling.prompt.tracked').count(vim.fn.getcwd())"


def menu(child):
    return child.lua("""
      local info = vim.fn.complete_info({ 'pum_visible', 'matches' })
      return info.pum_visible == 1 and vim.tbl_map(function(item) return item.word end, info.matches) or {}
    """)


@quick
def test_a_menu_of_files_opens_while_a_mention_is_typed(start_claude, project):
    child = start_claude()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    child.open_chat()
    child.feed("ilook at ")
    wait_until(lambda: child.lua(COUNT) > 0)
    child.feed("@")
    wait_until(lambda: "@src/slow.py" in menu(child) and "@diagnostics" in menu(child))
    child.feed("slw")
    wait_until(lambda: menu(child) == ["@src/slow.py"])
    child.feed("<Tab>")
    wait_until(lambda: child.prompt_lines() == ["look at @src/slow.py"])


def write(project, *names):
    for name in names:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("")


def offered(child, prefix):
    """The files that the menu offers for a mention, once they have been listed."""
    child.feed("<Esc>ggVGc")
    wait_until(lambda: child.lua(COUNT) > 0)
    child.feed(f"@{prefix}")
    wait_until(lambda: menu(child))
    return menu(child)


def test_capitals_in_a_mention_prefer_files_with_the_same_capitals(start_claude, project):
    child = start_claude()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    write(project, "docs/changes.md", "tests/test_chain.py", ".devcontainer/on-create.sh", "ch.md")
    write(project, "docs/why.md", "CHANGES.md", "lib/CHOICES.txt")
    child.open_chat()
    assert offered(child, "CH")[:2] == ["@CHANGES.md", "@lib/CHOICES.txt"]
    assert offered(child, "ch")[0] == "@ch.md"


def test_installed_packages_are_not_offered(start_claude, project):
    child = start_claude()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    write(project, "pyvenv.py", "tool/env-1/pyvenv.cfg", "tool/env-1/lib/pyvendor.py")
    write(project, "tool/env-10/pyvoice.py", "web/node_modules/pyvis/index.js")
    child.open_chat()
    assert sorted(offered(child, "pyv")) == ["@pyvenv.py", "@tool/env-10/pyvoice.py"]


COMPLETE = """
  local buf = vim.api.nvim_get_current_buf()
  local client = vim.lsp.get_clients({ bufnr = buf, name = 'sanderling' })[1]
  if not client then return vim.NIL end
  local params = vim.lsp.util.make_position_params(0, client.offset_encoding)
  local result = client:request_sync('textDocument/completion', params, 20000, buf).result
  return { result.isIncomplete, vim.tbl_map(function(item) return item.textEdit.newText end, result.items), client.offset_encoding }
"""


@quick
def test_a_language_server_completes_in_the_prompt(start_claude, project):
    child = start_claude()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    child.lua("package.loaded['blink.cmp'] = {}")  # then no menu of ours opens
    child.open_chat()
    child.feed("iä @slo")
    wait_until(lambda: (child.lua(COMPLETE) or [0, []])[1] == ["@src/slow.py"])
    assert child.lua(COMPLETE) == [True, ["@src/slow.py"], "utf-8"]
    assert menu(child) == []
    child.feed("<C-u>/usa")
    wait_until(lambda: child.prompt_lines() == ["/usa"])
    assert child.lua(COMPLETE)[1] == ["/usage"]


def test_neovims_own_completion_takes_the_server(start_claude, project):
    child = start_claude()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    child.lua("package.loaded['blink.cmp'] = {}")  # then no menu of ours opens
    child.open_chat()
    child.command("set completeopt=menuone,noselect")
    child.feed("i@")
    wait_until(lambda: child.lua(COMPLETE) and child.lua(COUNT) > 0)
    child.lua("""
      local client = vim.lsp.get_clients({ name = 'sanderling' })[1]
      vim.lsp.completion.enable(true, client.id, 0, { autotrigger = true })
    """)
    child.feed("<BS>@")
    child.wait_for_screen("@src/slow.py")
    child.feed("slo")
    wait_until(lambda: menu(child) == ["@src/slow.py"])
    child.feed("<C-n><C-y>")
    wait_until(lambda: child.prompt_lines() == ["@src/slow.py"])


def test_new_files_are_found(start_claude, project):
    child = start_claude()
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    child.open_chat()
    child.feed("i")
    wait_until(lambda: child.lua(COUNT) > 0)
    child.feed("@slow")
    wait_until(lambda: menu(child) == ["@src/slow.py"])
    (project / "slower.py").write_text("")
    child.lua("vim.wait(2100)")
    child.feed("<C-u>@slow")
    wait_until(lambda: child.lua(COMPLETE) and "@slower.py" in child.lua(COMPLETE)[1])


# --- other sessions, pages, names --------------------------------------------------------------------------------------


def test_the_last_answer_of_another_session_goes_along(start_claude, server):
    server.answer(
        Reply(message_start(), text("Birds are fast."), done()),
        Reply(message_start(), text("Yes."), done()),
    )
    child = start_claude()
    ask(child, server, "what is fast?")
    (log,) = child.session_files()
    child.command("AgentNew")
    child.feed(f"ilike @session:{log.stem}<Esc>")
    child.wait_for_screen("~4 tokens")
    child.feed("<CR>")
    child.wait_for_turns(2)
    told = texts_told(server.prompts[-1].json()["messages"][-1])
    assert told == [
        f"@session:{log.stem}, the last answer in another session, “what is fast?”:\n```markdown\nBirds are fast.\n```",
        f"like @session:{log.stem}",
    ]
    assert f"▸ @session:{log.stem}" in child.screen_text()


def test_a_session_that_is_not_there_is_told_and_nothing_is_sent(start_claude, server):
    child = start_claude()
    child.open_chat()
    child.feed("ilike @session:gone<Esc>")
    child.wait_for_screen("✗ there is no session gone")
    child.feed("<CR>")
    child.wait_for_transcript("@session:gone: there is no session gone. Nothing was sent.")
    assert server.prompts == []


def test_sessions_are_completed_by_their_titles(start_claude, server):
    child = start_claude()
    ask(child, server, "about sanderlings")
    (log,) = child.session_files()
    child.command("AgentNew")
    child.feed("i@session:")
    # A list from before the prompt may be known already, in which the session has no title.
    title = "return require('sanderling.session.stored').title_of(...)"
    wait_until(lambda: "sanderlings" in (child.lua(title, log.stem) or ""))
    child.feed("sanderl")
    child.wait_for_screen("about sanderlings")
    assert (
        child.lua("return vim.fn.complete_info({ 'items' }).items[1].word")
        == f"@session:{log.stem}"
    )


def test_a_page_is_named_to_the_model_while_there_is_a_network(start_claude, server):
    child = start_claude()
    child.open_chat()
    child.feed("i@https://x.y:80/a")
    child.wait_for_screen("the network is off")
    child.feed("<Esc>ggdG")
    child.command("AgentNet on")
    wait_until(lambda: child.lua("return require('sanderling').net()") == "on")
    told = ask(child, server, "read @https://example.com:8080/a")
    assert told[0].startswith("@https://example.com:8080/a, a web page:")


def test_a_name_brings_the_lines_that_a_language_server_knows_by_it(start_claude, server, project):
    child = start_claude()
    (project / "src" / "deep.py").write_text(
        "class Bird:\n    def fly(self):\n        return 1\n\n\nx = 1\n"
    )
    child.command("edit src/deep.py")
    start(child, project, "pyright", [program("basedpyright-langserver"), "--stdio"])
    warm(child)
    told = ask(child, server, "what does @symbol:fly do?")
    assert told == [
        "src/deep.py:2-3, current editor text:\n```python\n2\t    def fly(self):\n3\t        return 1\n```",
        "what does @symbol:fly do?",
    ]


# --- pasted text --------------------------------------------------------------------------------------------------------


NOTE = "<M-m> turns this into @src/slow.py:3-6"


@pytest.mark.parametrize(
    "paste, expected",
    [
        (
            '<Esc>:let @a = join(getbufline(\'slow.py\', 3, 6), "\\n") .. "\\n"<CR>"ap',
            "@src/slow.py:3-6",
        ),
        (
            "why <C-r>=join(getbufline('slow.py', 3, 6), \"\\n\")<CR> so?<Esc>",
            "why @src/slow.py:3-6 so?",
        ),
    ],
)
def test_pasted_lines_of_an_open_file_are_offered_as_a_mention(
    start_claude, server, paste, expected
):
    child = start_claude()
    child.open_chat()
    child.feed("i" + paste)
    wait_until(lambda: NOTE in child.screen_text())
    before = child.prompt_lines()
    child.feed("<M-m>")
    wait_until(lambda: expected in child.prompt_lines())
    wait_until(lambda: NOTE not in child.screen_text())
    child.feed("u")
    wait_until(lambda: child.prompt_lines() == before)
    child.feed("<C-r><CR>")
    child.wait_for_turns()
    told = texts_told(server.prompts[-1].json()["messages"][-1])
    assert "3\tline3\n4\tline4\n5\tline5\n6\tline6" in told[-2]


def test_only_pasted_lines_of_a_file_are_offered(start_claude):
    child = start_claude()
    child.open_chat()
    child.feed("<Esc>")
    child.rpc.request("nvim_paste", "line3\nline4\n", True, -1)
    child.rpc.request("nvim_paste", "line3\nline5\nline6\n", True, -1)
    child.lua("vim.wait(400)")
    assert "makes this" not in child.screen_text()
    child.rpc.request("nvim_paste", "line3\nline4\nline5\n", True, -1)
    child.wait_for_screen("<M-m> turns this into @src/slow.py:3-5")
    child.feed("Gonow<CR>")
    child.rpc.request("nvim_paste", "line7\nline8\nline9", True, -1)
    child.feed("<CR>it")
    child.wait_for_screen("<M-m> turns this into @src/slow.py:7-9")
    child.feed("<Esc>kcclin<Esc><M-m>")
    wait_until(lambda: "@src/slow.py:3-5" in child.prompt_lines())  # the one that still holds
    assert "@src/slow.py:7-9" not in child.screen_text()


# --- images -------------------------------------------------------------------------------------------------------------


def png(width, height):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = zlib.compress(b"".join(b"\0" + b"\x50" * width for _ in range(height)))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def images_told(message):
    return [block["source"] for block in message["content"] if block["type"] == "image"]


def test_an_image_goes_along_by_its_path(start_claude, server, project, tmp_path):
    shot = tmp_path / "a shot.png"
    shot.write_bytes(png(1500, 1000))
    (project / "x.png").symlink_to(shot)
    (project / "no.png").write_bytes(b"text")
    (project / "long.png").write_bytes(png(100, 9000))
    child = start_claude()
    child.open_chat()
    mention = f"@{shot}".replace(" ", "\\ ")
    child.feed("i@x.png and<CR>@no.png<CR>@long.png<Esc>")
    child.wait_for_screen("@x.png and   image 1500x1000, ~2000 tokens")
    assert "✗ unsupported image type" in child.screen_text()
    assert "✗ too large: 100x9000 pixels" in child.screen_text()
    told = ask(child, server, f"what is in {mention}")
    assert told[-2:] == [f"{shot}, an image:", f"what is in {mention}"]
    data = base64.b64encode(shot.read_bytes()).decode()
    sent = server.prompts[-1].json()["messages"][-1]
    assert images_told(sent) == [{"type": "base64", "media_type": "image/png", "data": data}]
    assert "a shot.png (image)" in child.transcript_text()
    assert data[:40] not in child.transcript_text()


def test_the_image_on_the_clipboard_goes_along(start_claude, server, tmp_path):
    (tmp_path / "shot.png").write_bytes(png(3, 2))
    program = tmp_path / "xclip"
    program.write_text(f'#!/bin/sh\n[ "$4" = image/png ] && exec cat {tmp_path}/shot.png\n')
    program.chmod(0o755)
    child = start_claude()
    child.lua("vim.env.PATH = ... .. ':' .. vim.env.PATH; vim.env.DISPLAY = ':9'", str(tmp_path))
    child.lua("vim.env.WAYLAND_DISPLAY = nil")
    told = ask(child, server, "what is @clipboard?")
    assert told[-2:] == ["@clipboard, the image on the clipboard:", "what is @clipboard?"]
    data = base64.b64encode((tmp_path / "shot.png").read_bytes()).decode()
    assert images_told(server.prompts[-1].json()["messages"][-1])[0]["data"] == data


def test_what_git_has_to_say_is_noted_before_it_is_sent(start_claude, project):
    child = start_claude(permissions=[{"action": "deny", "tool": "read", "path": "*.env"}])
    for arguments in (["init", "-q"], ["add", "src"], ["commit", "-qm", "x"]):
        subprocess.run([*GIT, *arguments], cwd=project, check=True)
    (project / "src" / "slow.py").write_text("changed\n")
    child.chat("ping")
    child.feed("i@diff<CR>@staged<CR>@symbol:x<CR>@clipboard<Esc>")
    wait_until(lambda: re.search(r"@diff +~\d+ tokens", child.screen_text()))
    wait_until(lambda: re.search(r"@staged +✗ no changes", child.screen_text()))
    child.wait_for_screen("✗ no language server")
    wait_until(lambda: re.search(r"@clipboard +✗ ", child.screen_text()))
    subprocess.run([*GIT, "add", "secret.env"], cwd=project, check=True)
    child.feed("cc@staged now<Esc>")
    child.lua("vim.wait(5000)")
    child.feed("A.<Esc>")
    child.wait_for_screen("✗ a rule keeps secret.env from the model")


# --- large files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_open", [True, False])
def test_a_large_file_brings_its_head_and_an_outline(start_claude, server, project, is_open):
    lines = [f"value = {n}" for n in range(1, 3001)]
    lines[99], lines[2499] = "def early():", "    def late(self):"
    (project / "big.py").write_text("\n".join(lines) + "\n")
    child = start_claude()
    if is_open:
        child.command("edit big.py")
    head, outline, _ = ask(child, server, "what is @big.py?")
    origin = "current editor text" if is_open else "as saved on disk"
    begin = (
        f"big.py:1-200, {origin}; only lines 1-200 of 3000, read the rest as needed:\n```python\n"
    )
    assert head.startswith(f"{begin}1\tvalue = 1\n")
    assert head.endswith("\n200\tvalue = 200\n```")
    assert outline == (
        "@outline:big.py, line numbers of definitions in the rest:\n```\n2500:     def late(self):\n```"
    )
    child.wait_for_screen("▸ big.py:1-200 · 200 lines")


def test_a_range_of_a_large_file_is_whole(start_claude, server, project):
    (project / "big.py").write_text("value\n" * 3000)
    child = start_claude()
    [lines, _] = ask(child, server, "what is @big.py:1-2900?")
    assert lines.endswith("\n2900\tvalue\n```")


TWO_PAUSES = """
  local buf, times = vim.api.nvim_get_current_buf(), {}
  for _ = 1, 2 do
    require('sanderling.prompt.noting').update(buf)
    require('sanderling.prompt.pasted').note(buf, 0, 0, 1)
    vim.wait(400, function() return false end, 10, true) -- runs timers, nothing that they schedule
  end
"""


@quick
def test_two_pauses_before_neovim_has_time_cause_no_error(start_chat):
    child = start_chat()
    child.feed("i@none.py")
    child.wait_for_screen("not found")
    child.rpc.request("nvim_exec_lua", TWO_PAUSES, [])
    child.feed("<C-u>@other.py")
    child.wait_for_screen("@other.py", "not found")
    assert child.messages() == ""


def test_notes_that_do_not_fit_behind_the_text_end_with_an_ellipsis(start_chat):
    child = start_chat(columns=60, lines=20)
    child.feed("iwe see @none.py with @no.py")
    child.wait_for_screen("  @no.py ✗ not found …")  # below the line
    child.feed("<C-u>@none.py @no.py")
    child.wait_for_screen("@none.py @no.py ✗ not found …")
    child.feed("<C-u>@none.py")
    child.wait_for_screen("@none.py   ✗ not found")
