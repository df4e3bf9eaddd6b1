"""The host process: started on first use, back after a crash, gone with Neovim."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.conftest import ROOT, find_neovim, is_alive, prove, prove_rest, wait_until

SLOW = """
[[reply]]
when = "slow"
[[reply.step]]
text = "The beginning. "
[[reply.step]]
delay_ms = 30000
[[reply]]
repeat = true
[[reply.step]]
text = "Here again."
"""


@pytest.fixture
def busy(scripted):
    """A Neovim in the middle of a long turn."""
    child = scripted(SLOW)
    child.command("AgentChat")
    child.submit("slow")
    child.wait_for_transcript("The beginning.")
    return child


def children_of(pid):
    out = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return [int(word) for word in out.split()]


def test_no_process_starts_and_no_module_loads_before_the_first_use(child):
    assert children_of(child.pid) == []
    assert (
        child.lua(
            "return vim.tbl_filter(function(m) return m:find('^sanderling') end, vim.tbl_keys(package.loaded))"
        )
        == []
    )


def test_the_host_starts_once_and_serves_every_use(child):
    child.chat("ping")
    pid = child.host_pid()
    child.command("AgentChat")
    child.chat("ping")
    assert child.host_pid() == pid


def test_a_killed_host_says_so_once_and_the_next_prompt_finds_the_conversation(busy):
    wait_until(lambda: "The beginning." in busy.session_files()[0].read_text())
    os.kill(busy.host_pid(), signal.SIGKILL)
    busy.wait_for_transcript("exited (signal 9)")
    assert busy.events("AgentTurnEnded")[0]["stop_reason"] == "interrupted"
    busy.submit_and_wait("go on")
    text = busy.transcript_text()
    assert text.count("exited") == 1
    assert "The beginning." in text
    assert text.endswith("Here again.")
    assert len(busy.session_files()) == 1
    log = busy.session_files()[0].read_text()
    assert '"stop_reason":"interrupted"' in log
    assert '"role":"assistant","content":[{"type":"text","text":"The beginning. "}]' in log
    assert busy.messages().strip() == ""


@prove
def test_prompts_that_a_killed_host_had_not_read_go_back_into_the_prompt(busy):
    host = busy.host_pid()
    os.kill(host, signal.SIGSTOP)
    busy.feed("iand then<C-s><Esc>")
    wait_until(lambda: busy.prompt_lines() == [""])
    os.kill(host, signal.SIGKILL)
    wait_until(lambda: busy.prompt_lines() == ["and then"])


@pytest.mark.parametrize("way", prove_rest(["qa!", "SIGTERM", "SIGHUP", "SIGKILL"], keep=(0,)))
def test_the_host_is_gone_when_neovim_is(busy, way):
    host = busy.host_pid()
    if way == "qa!":
        busy.feed(":qa!<CR>")
    else:
        os.kill(busy.pid, getattr(signal, way))
    wait_until(lambda: not is_alive(host), f"host gone after {way}")


@prove
def test_the_host_is_gone_when_neovim_is_killed_while_the_client_loads(start_nvim):
    child = start_nvim({"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    child.command("AgentChat")
    host = child.host_pid()
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(host), "host gone")


@prove
def test_the_host_is_gone_when_a_frozen_neovim_is_killed_with_text_unread(scripted):
    child = scripted(
        """
[[reply]]
[[reply.step]]
text = "%s"
chunk_chars = 10
chunk_delay_ms = 2
"""
        % ("x" * 50_000)
    )
    child.command("AgentChat")
    child.submit("go")
    child.wait_for_transcript("xxx")
    host = child.host_pid()
    os.kill(child.pid, signal.SIGSTOP)
    log = child.session_files()[0]
    size = log.stat().st_size
    wait_until(lambda: log.stat().st_size > size + 1000, "the host goes on while Neovim is frozen")
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(host), "host gone")


def test_without_an_environment_the_chat_says_what_to_do_and_offers_it(start_nvim, bare_plugin):
    child = start_nvim(plugin_root=bare_plugin)
    child.lua(
        "_G.offers = {} vim.ui.select = function(items, opts) table.insert(_G.offers, opts.prompt) end"
    )
    child.command("AgentChat")
    wait_until(lambda: child.lua("return _G.offers"))
    assert (
        "Sanderling's Python environment is not built yet. Run :AgentInstall"
        in child.transcript_text().replace("\n", " ")
    )
    child.feed("iping<C-s><Esc>")
    wait_until(lambda: child.prompt_lines() == ["ping"], "the prompt is not lost")
    assert len(child.lua("return _G.offers")) == 1, "the offer is made once"


def test_that_nothing_can_be_built_is_told_in_a_narrow_window_too(start_nvim):
    child = start_nvim(columns=60)
    child.setup(python="/nonexistent/python3")
    child.feed(":AgentInstall<CR>")
    wait_until(lambda: not child.is_blocked() and "again." in child.screen_text(), "it is told")


FAKE_PYTHON = """#!/bin/sh
test "$2" = -c && exit 0
while test -e "$0.waits"; do sleep 0.05; done
for environment; do :; done
mkdir -p "$environment/bin"
printf '#!/bin/sh\\nexec "%s" "$@"\\n' {python!r} > "$environment/bin/python"
chmod +x "$environment/bin/python"
"""


IMPOSTOR = """#!/bin/sh
touch "$0.ran"
exit 0
"""


@pytest.mark.parametrize("entry", ["{project}/bin", "bin", "."])
def test_agentinstall_runs_no_program_of_the_project(start_nvim, bare_plugin, tmp_path, entry):
    outside = tmp_path / "outside"
    project = tmp_path / "project"
    for directory, text in (
        (outside, FAKE_PYTHON.format(python=sys.executable)),
        (project / "bin", IMPOSTOR),
        (project, IMPOSTOR),
    ):
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("python3", "uv"):
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
    (project / "sitecustomize.py").write_text(f"open({str(project / 'imported')!r}, 'w')")
    path = f"{entry.format(project=project)}:{outside}:{os.environ['PATH']}"
    child = start_nvim({"PATH": path, "PYTHONPATH": str(project)}, plugin_root=bare_plugin)
    child.lua("vim.fn.chdir(...)", str(project))
    child.command("AgentInstall")
    child.wait_for_message("Sanderling is ready.")
    assert [*project.rglob("*.ran"), *project.glob("imported")] == []
    child.setup(python="python3")
    found = child.lua("return require('sanderling.host').python()")
    assert found == str(outside / "python3")


@prove
def test_when_the_environment_is_built_nothing_is_left_to_do(start_nvim, bare_plugin, tmp_path):
    (bare_plugin / "doc").unlink()
    shutil.copytree(ROOT / "doc", bare_plugin / "doc", ignore=shutil.ignore_patterns("tags"))
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.write_text(FAKE_PYTHON.replace("{python!r}", f"'{sys.executable}'"))
    python.chmod(0o755)
    child = start_nvim({"PATH": f"{python.parent}:{os.environ['PATH']}"}, plugin_root=bare_plugin)
    child.setup(chat={"start_insert": True})
    child.lua("vim.ui.select = function(items, _, choose) choose(items[1]) end")
    waits = python.with_name("python3.waits")
    waits.touch()
    child.command("AgentChat")
    child.wait_for_screen("ask building the environment")
    waits.unlink()
    child.wait_for_message("Sanderling is ready.")
    assert child.lua("return #vim.api.nvim_list_wins()") == 3, "the terminal is gone"
    assert child.lua("return vim.bo.filetype") == "sanderling_prompt"
    wait_until(lambda: child.lua("return vim.api.nvim_get_mode().mode") == "i", "ready for typing")
    assert "is not built yet" not in child.transcript_text()
    child.wait_for_screen(" idle ")
    child.command("help sanderling")
    child.command("helpclose")
    child.submit("ping")
    wait_until(lambda: child.transcript()[-1] == "pong")


@prove
def test_agentinstall_builds_the_environment_before_the_users_eyes_and_the_chat_works(
    start_nvim, bare_plugin
):
    child = start_nvim({"HOME": str(Path.home())}, plugin_root=bare_plugin)
    child.command("AgentInstall")
    child.wait_for_screen("1/3 ")
    wait_until(lambda: "Sanderling is ready" in child.messages(), "installed", deadline_s=300)
    assert (child.home / "data" / "nvim" / "sanderling" / "venv" / "bin" / "python").exists()
    child.chat("ping")
    assert child.transcript()[-1] == "pong"
    child.command("checkhealth sanderling")
    report = child.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), ' ')")
    assert "ERROR" not in report
    assert "another version" not in report


@prove
def test_closed_sessions_leave_no_open_files_behind(child):
    child.command("AgentChat")
    for turn in range(1, 6):
        child.submit("ping")
        child.wait_for_turns(turn)
        child.lua("require('sanderling').clear()")
    fds = Path(f"/proc/{child.host_pid()}/fd")

    def open_logs():
        found = []
        for fd in fds.iterdir():
            with suppress(FileNotFoundError):  # others come and go: a sandbox closes
                found += [fd] if fd.readlink().suffix == ".jsonl" else []
        return found

    wait_until(lambda: open_logs() == [], "the logs of the five closed sessions are closed")


def test_an_action_that_is_none_is_logged_and_blocks_nothing(child):
    child.command("AgentChat")
    child.lua("""
      local id = vim.b[require('sanderling').transcript().buf].sanderling_session
      require('sanderling.host').act(id, { type = 'no_such_action' })
    """)
    log = child.home / "state" / "nvim" / "sanderling.log"
    wait_until(lambda: log.exists() and "act failed" in log.read_text(), "the defect is logged")
    assert not child.is_blocked()
    assert child.messages().strip() == ""


@prove
@pytest.mark.parametrize("place", ["log", "state"])
def test_where_nothing_can_be_written_the_chat_still_answers(start_nvim, place):
    child = start_nvim()
    state = child.home / "state" / "nvim"
    state.mkdir(parents=True, exist_ok=True)
    blocked = state / ("sanderling.log" if place == "log" else "sanderling")
    if place == "log":
        blocked.mkdir()  # a directory where a file should be, for root may write everywhere
    else:
        blocked.write_text("")
    child.chat("ping")
    assert child.transcript()[-1] == "pong" if place == "log" else "pong" in child.transcript_text()
    assert not child.is_blocked()
    if place == "state":
        assert "Cannot write the session's log" in child.transcript_text()


def test_an_interpreter_that_is_not_there_is_named(child):
    child.setup(python="/no/such/python")
    child.command("AgentChat")
    assert "is '/no/such/python', which cannot be run" in child.transcript_text()


def test_a_broken_environment_is_named_with_its_remedy(child, tmp_path):
    broken = tmp_path / "python"
    broken.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pynvim'\" >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    child.setup(python=str(broken))
    child.command("AgentChat")
    child.wait_for_transcript("is broken (ModuleNotFoundError: No module named 'pynvim')")
    assert ":AgentInstall" in child.transcript_text()


@prove
def test_a_real_interpreter_without_the_packages_is_a_broken_environment(child, tmp_path):
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True
    )
    child.setup(python=str(tmp_path / "bare" / "bin" / "python"))
    child.command("AgentChat")
    wait_until(lambda: "is broken (ModuleNotFoundError" in child.transcript_text())


@prove
def test_settings_that_the_host_refuses_are_told_and_the_prompt_comes_back(child):
    child.lua("""
        local config = require('sanderling.config')
        known = config.host_settings
        config.host_settings = function()
          return vim.tbl_deep_extend('force', known(), { options = { max_tokens = -1 } })
        end
    """)
    child.open_chat()
    child.submit("ping")
    child.wait_for_transcript("Invalid settings: ")
    assert "max_tokens" in child.transcript_text()
    wait_until(lambda: child.prompt_lines() == ["ping"])
    child.lua("require('sanderling.config').host_settings = known")
    child.feed("<CR>")
    child.wait_for_turns()
    assert child.transcript()[-1] == "pong"


@prove
def test_the_log_is_written_and_agentlog_opens_it(child):
    child.command("Agent log")
    assert "has no log yet" in child.messages()
    child.chat("ping")
    child.command("Agent log")
    assert "started" in child.lua(
        "return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n')"
    )
    assert child.lua("return vim.bo.readonly")


@prove
def test_session_logs_are_private_and_named_by_date_and_time(child):
    child.chat("ping")
    (path,) = child.session_files()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stem[:8].isdigit()
    assert path.stem[8] == "-"


@prove
def test_update_remote_plugins_breaks_nothing(start_nvim, tmp_path):
    child = start_nvim()
    child.lua("vim.g.loaded_python3_provider, vim.g.python3_host_prog = nil, ...", sys.executable)
    # As at a start without --clean.
    child.lua("vim.g.loaded_remote_plugins = ...", str(tmp_path / "rplugin.vim"))
    result = child.lua("return vim.fn.execute('UpdateRemotePlugins')")
    assert "remote/host: generated rplugin manifest" in result
    # The word that begins what pynvim says of a plugin it cannot load.
    assert "Encountered" not in result + child.messages()
    child.chat("ping")
    assert child.transcript()[-1] == "pong"


def test_an_old_neovim_is_told_in_one_sentence(tmp_path):
    lua = """
      vim.fn.has = function(what) return what == 'nvim-0.11' and 0 or 1 end
      vim.cmd.source(...)
      vim.cmd.AgentChat()
    """
    script = tmp_path / "old.lua"
    script.write_text(lua.replace("...", repr(str(ROOT / "plugin" / "sanderling.lua"))))
    result = subprocess.run(
        [find_neovim(), "--clean", "--headless", "-l", str(script)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr.strip() == "Sanderling needs Neovim 0.11 or newer: please update Neovim."


PRINT_ENVIRONMENT = """
[[reply]]
[[reply.step]]
[reply.step.tool_use]
name = "bash"
input = { command = "echo $PYTHONPATH $PYTHONWARNINGS" }
[[reply]]
[[reply.step]]
text = "There."
"""


@prove
def test_what_the_environment_says_of_python_is_for_commands_and_not_for_the_host(
    start_nvim, tmp_path
):
    (tmp_path / "sanderling.py").write_text("raise SystemExit('the wrong one')")
    script = tmp_path / "script.toml"
    script.write_text("version = 1\n" + PRINT_ENVIRONMENT)
    child = start_nvim(
        {"PYTHONHOME": "/nowhere", "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error"}
    )
    child.setup(provider="scripted", script=str(script))
    child.command("AgentChat")
    child.command("AgentMode auto")
    child.submit_and_wait("go")
    log = child.session_files()[0].read_text()
    assert f'"content":"{tmp_path} error\\n[exit status 0' in log
