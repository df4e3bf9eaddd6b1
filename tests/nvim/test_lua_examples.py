"""The examples of the Lua API in the help, each run as it is printed there."""

import re
import subprocess
from textwrap import dedent

import pytest
from tests.conftest import ROOT, prove_unless_quick, wait_until
from tests.nvim.replies import DONE, reply, say
from tests.nvim.test_slash import menu

pytestmark = prove_unless_quick

HELP = (ROOT / "doc" / "sanderling-extending.txt").read_text()
EXAMPLES = HELP[HELP.index("*sanderling-lua-examples*") :].split("=" * 78)[0]
BLOCKS = [dedent(block) for block in re.findall(r">lua\n(.*?)\n<", EXAMPLES, re.DOTALL)]
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c")


def example(words):
    """The example that contains `words`."""
    (block,) = [each for each in BLOCKS if words in each]
    return block


def sent(screen):
    """The first prompt that was sent."""
    return wait_until(lambda: screen.actions("submit_prompt"), "a prompt is sent")[0]["prompt"]


@pytest.fixture
def repository(project):
    subprocess.run(["git", "init", "-qb", "topic/help"], cwd=project, check=True)
    subprocess.run(
        [*GIT, "commit", "-q", "--allow-empty", "-m", "Add a parser"], cwd=project, check=True
    )
    return project


def test_each_example_is_tested():
    assert len(BLOCKS) >= 5
    tested = ("'standup'", "'issue'", "'turn_ended'", "branch =", "picker(", "M.setup")
    assert sorted(map(example, tested)) == sorted(BLOCKS)


@pytest.mark.usefixtures("repository")
def test_the_command_sends_the_commits(start_chat):
    screen = start_chat()
    screen.lua(example("'standup'"))
    screen.feed("i/standup <C-s>")
    assert re.fullmatch(r"Say in one line what I did:\n\w+ Add a parser\n?", sent(screen)["text"])


def test_the_mention_completes_and_attaches_an_issue(start_chat, tmp_path):
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(
        "#!/bin/sh\n"
        'case "$2 $3" in\n'
        """list*) echo '[{"number": 12, "title": "It crashes"}]' ;;\n"""
        '"view 12") echo "It crashes at start." ;;\n'
        "*) echo 'no such issue' >&2; exit 1 ;;\n"
        "esac\n"
    )
    gh.chmod(0o755)
    screen = start_chat()
    screen.lua("vim.env.PATH = ... .. ':' .. vim.env.PATH", str(gh.parent))
    screen.lua(example("'issue'"))
    screen.feed("i@issue:")
    wait_until(lambda: menu(screen) == ["@issue:12"])
    screen.wait_for_screen("It crashes")
    screen.feed("<C-n><C-y> and @issue:13<C-s>")
    texts = [selection["text"] for selection in sent(screen)["selections"]]
    assert texts[0] == "It crashes at start."
    assert "no such issue" in texts[1]
    wait_until(lambda: "@issue:13 failed: no such issue" in screen.messages())


def test_the_mention_offers_nothing_while_the_program_fails(start_chat, tmp_path):
    gh = tmp_path / "bin" / "gh"
    gh.parent.mkdir()
    gh.write_text(f"#!/bin/sh\necho 'not logged in' >&2; echo >{tmp_path}/ran; exit 4\n")
    gh.chmod(0o755)
    screen = start_chat()
    screen.lua("vim.env.PATH = ... .. ':' .. vim.env.PATH", str(gh.parent))
    screen.lua(example("'issue'"))
    screen.feed("i@issue:")
    wait_until((tmp_path / "ran").exists)
    gh.write_text("""#!/bin/sh\necho '[{"number": 7, "title": "Late"}]'\n""")
    screen.feed("Lat")
    wait_until(lambda: menu(screen) == ["@issue:7"])
    assert screen.messages() == ""


def test_the_callback_keeps_the_last_answer_in_a_register(start_agent):
    agent = start_agent(reply(say("The answer.")), DONE)
    agent.lua(example("'turn_ended'"))
    agent.chat("hello")
    wait_until(lambda: agent.lua("return vim.fn.getreg('a')") == "The answer.")


@pytest.mark.usefixtures("repository")
def test_the_statusline_shows_the_branch_instead_of_the_usage(start_chat):
    screen = start_chat()
    screen.lua(example("branch ="))
    assert screen.statusline().endswith(" · topic/help")
    assert "tokens" not in screen.statusline()
    screen.wait_for_screen("idle · topic/help")


def test_the_picker_runs_the_line_with_the_number(start_agent):
    agent = start_agent(DONE)
    agent.chat("alpha")
    agent.lua(example("picker("))
    agent.lua("vim.ui.input = function(opts, answer) _G.prompt = opts.prompt answer('1') end")
    agent.command("Agent new")
    agent.command("AgentSessions")
    wait_until(lambda: "Number of a line" in (agent.lua("return _G.prompt") or ""))
    wait_until(lambda: "alpha" in agent.transcript_text())


def test_the_extension_asks_again_in_a_copy(start_agent, tmp_path):
    agent = start_agent(reply(say("First.")), reply(say("Second.")), DONE)
    path = tmp_path / "plugin" / "lua" / "sanderling" / "extensions" / "second_opinion.lua"
    path.parent.mkdir(parents=True)
    path.write_text(example("M.setup"))
    agent.command(f"set runtimepath+={tmp_path / 'plugin'}")
    (setup,) = re.findall(r"extensions = (\{ second_opinion.*?\} \})", HELP)
    agent.lua(f"""
      local options = vim.deepcopy(require('sanderling.config').options)
      require('sanderling').setup({{ provider = 'scripted', script = options.script, extensions = {setup} }})
    """)
    agent.chat("what now?")
    first = agent.session_id()
    with agent._one_more_turn():
        agent.feed("i/second<C-s>")
    assert agent.session_id() != first
    wait_until(lambda: agent.lua("return require('sanderling').session().mode") == "plan")
    texts = [
        each["text"] for each in agent.lua("return require('sanderling').session():messages()")
    ]
    assert texts[0] == texts[2] == "what now?"
