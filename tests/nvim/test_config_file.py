""":Agent config opens the files of settings; a mistake in one is told where a person looks."""

import pytest
from tests.conftest import ROOT, prove, wait_until

TEMPLATES = ROOT / "src" / "sanderling" / "config"


@pytest.fixture
def user_file(child):
    return child.home / "config" / "sanderling" / "config.toml"


def buffer_name(child):
    return child.lua("return vim.api.nvim_buf_get_name(0)")


def diagnostics(child):
    return child.lua("""
      return vim.tbl_map(function(each)
        return { each.lnum + 1, each.message }
      end, vim.diagnostic.get(0))
    """)


@prove
def test_a_file_that_does_not_exist_yet_begins_as_its_template(child, user_file):
    child.command("Agent config")
    assert buffer_name(child) == str(user_file)
    lines = child.lines()
    assert lines == (TEMPLATES / "user.toml").read_text().splitlines()
    assert child.lua("return vim.bo.modified and vim.bo.filetype == 'toml'")
    assert not user_file.parent.exists()
    child.command("write")
    child.wait_for_screen("Takes effect in new sessions")
    assert user_file.read_text() == (TEMPLATES / "user.toml").read_text()
    assert diagnostics(child) == []


def test_a_file_that_is_there_is_opened_as_it_is(child, user_file):
    user_file.parent.mkdir(parents=True)
    user_file.write_text("model = 'x'\n")
    child.command("Agent config user")
    assert child.lines() == ["model = 'x'"]
    assert not child.lua("return vim.bo.modified")


@prove
def test_the_projects_file_is_that_of_the_projects_root(child, project):
    (project / "sub").mkdir()
    (project / ".git").mkdir(exist_ok=True)
    child.command(f"edit {project}/sub/x.txt")
    child.command("Agent config project")
    assert buffer_name(child) == str(project / ".sanderling.toml")
    child.command("write")
    child.wait_for_screen("Takes effect once trusted")


def test_xdg_config_home_is_honoured(start_nvim, tmp_path):
    child = start_nvim()
    child.lua(f"vim.env.XDG_CONFIG_HOME = '{tmp_path}/elsewhere'")
    child.command("Agent config")
    assert buffer_name(child) == f"{tmp_path}/elsewhere/sanderling/config.toml"


def test_what_is_wrong_stands_at_its_line_when_the_file_is_written(child):
    child.command("Agent config")
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { '# x', 'modle = 1', 'max_calls = 2' })")
    child.command("write")
    told = wait_until(lambda: diagnostics(child))
    assert told == [[2, "unknown key 'modle'; did you mean 'model'?"]]
    assert "1 mistake, so no session can start" in child.screen_text()
    child.lua("vim.api.nvim_buf_set_lines(0, 1, 2, true, { \"model = 'demo'\" })")
    child.command("write")
    wait_until(lambda: diagnostics(child) == [])


@pytest.mark.parametrize(
    "words, expected", [("Agent config ", ["user", "project"]), ("Agent config p", ["project"])]
)
def test_its_argument_completes(child, words, expected):
    assert child.lua("return vim.fn.getcompletion(..., 'cmdline')", words) == expected


def test_a_word_that_is_no_file_is_told(child):
    child.feed(":Agent config all<CR>")
    assert (
        wait_until(lambda: child.messages().strip()) == "Agent config: user or project, not 'all'."
    )


@prove
def test_a_mistake_is_told_in_the_chat_and_the_next_prompt_tries_it_again(child, user_file):
    user_file.parent.mkdir(parents=True)
    user_file.write_text("# x\nmodle = 'x'\n")
    child.open_chat()
    told = "~/config/sanderling/config.toml:2: unknown key 'modle'; did you mean 'model'?"
    child.wait_for_transcript(told)
    user_file.write_text("max_calls = 3\n")
    child.submit("ping")
    wait_until(lambda: child.transcript()[-1] == "pong")


@prove
def test_a_prompt_of_a_session_that_does_not_open_comes_back(child, user_file):
    user_file.parent.mkdir(parents=True)
    user_file.write_text("modle = 'x'\n")
    child.open_chat()
    child.submit("ping")
    wait_until(lambda: child.prompt_lines() == ["ping"])
    assert "did you mean 'model'" in child.transcript_text()
    user_file.write_text("")
    child.feed("<CR>")
    wait_until(lambda: child.transcript()[-1] == "pong")


@prove
def test_the_choice_of_a_model_tries_it_again_too(child, user_file):
    user_file.parent.mkdir(parents=True)
    user_file.write_text("modle = 'x'\n")
    child.open_chat()
    wait_until(lambda: child.transcript_text().count("unknown key 'modle'") == 1)
    child.command("AgentModel demo")
    wait_until(lambda: child.transcript_text().count("unknown key 'modle'") == 2)
    user_file.write_text("model = 'ollama:x'\n")
    child.command("AgentModel demo")
    child.submit("ping")
    wait_until(lambda: child.transcript()[-1] == "pong")


def test_a_change_takes_effect_with_the_next_session(child, user_file, tmp_path):
    child.chat("ping")
    script = tmp_path / "script.json"
    script.write_text('{"version": 1, "reply": [{"step": [{"text": "from the file"}]}]}')
    user_file.parent.mkdir(parents=True)
    user_file.write_text(f"model = 'script:{script}'\n")
    child.submit_and_wait("ping")
    assert child.transcript()[-1] == "pong"
    child.command("Agent clear")
    child.submit_and_wait("anything")
    assert child.transcript()[-1] == "from the file"


@prove
def test_setup_goes_before_the_file_and_the_settings_say_where_each_is_from(child, user_file):
    user_file.parent.mkdir(parents=True)
    user_file.write_text("\nmax_calls = 3\nthinking = false\n")
    child.setup(max_calls=7)
    child.chat("ping")
    child.command("Agent settings")
    wait_until(lambda: "max_calls: 7 (setup())" in report(child))
    assert "thinking: false (~/config/sanderling/config.toml:3)" in report(child)


def report(child):
    """The text of all floats."""
    return child.lua("""
      local lines = {}
      for _, win in ipairs(vim.api.nvim_list_wins()) do
        if vim.api.nvim_win_get_config(win).relative ~= '' then
          vim.list_extend(lines, vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(win), 0, -1, true))
        end
      end
      return table.concat(lines, '\\n')
    """)


@prove
def test_the_old_name_of_a_projects_file_is_told_once(child, project):
    (project / ".sanderling").mkdir()
    (project / ".sanderling" / "config.toml").write_text("model = 'x'")
    child.open_chat()
    told = ".sanderling/config.toml is no longer read: move it to .sanderling.toml"
    wait_until(lambda: told in child.transcript_text().replace("\n", " "))
    child.submit_and_wait("ping")
    assert child.transcript_text().replace("\n", " ").count(told) == 1


@prove
def test_health_tells_what_is_wrong_and_what_is_in_force(child, user_file):
    user_file.parent.mkdir(parents=True)
    user_file.write_text("modle = 'x'\n")
    child.setup(providers={"here": {"wire": "chta", "base_url": "http://127.0.0.1:9"}})
    child.command("checkhealth sanderling")
    text = child.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n')")
    assert "config.toml:1: unknown key 'modle'; did you mean 'model'?" in text
    assert (
        "setup(): [providers.here]: wire must be one of anthropic, chat, responses, ollama,"
        " not 'chta'; did you mean 'chat'?"
    ) in text
    user_file.write_text("model = 'mine'\nprovider = 'demo'\n")
    child.setup()
    child.command("checkhealth sanderling")
    text = child.lua("return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\\n')")
    assert "provider demo, model mine" in text
