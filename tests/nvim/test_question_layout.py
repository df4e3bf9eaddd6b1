"""The order in a question: the command or change once, then anything unusual, then, dimmed, why it asks and what a rule would cover."""

import pytest
from tests.conftest import prove_rest, wait_until
from tests.nvim.conftest import count_keys_after
from tests.nvim.replies import DONE, reply, use
from tests.nvim.test_approval import SIX, asked, float_of

WARNINGS = ["example.org is blocked.", "It is outside the project."]
FULL = {"reason": " ".join([*WARNINGS, "No rule covers it."]), "warnings": WARNINGS}
SIZES = [(60, 20), (80, 24), (120, 36), (200, 50)]


@pytest.fixture
def shown(start_chat):
    def start(columns=120, lines=36, **fields):
        screen = start_chat(columns=columns, lines=lines)
        count_keys_after(screen, 0)
        screen.send(asked(**FULL | fields))
        wait_until(lambda: float_of(screen), "the question")
        return screen

    return start


def groups(screen):
    """The highlight group that begins each line of the question, by the line."""
    return screen.lua(
        """
        local buf = vim.api.nvim_win_get_buf(...)
        local groups = vim.empty_dict()
        for _, mark in ipairs(vim.api.nvim_buf_get_extmarks(buf, -1, 0, -1, { details = true })) do
          local line = vim.api.nvim_buf_get_lines(buf, mark[2], mark[2] + 1, true)[1]
          if mark[3] == 0 and line ~= '' then
            groups[line] = mark[4].hl_group
          end
        end
        return groups
        """,
        float_of(screen)["win"],
    )


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0, 2)))
def test_the_command_comes_first_then_warnings_then_reasons(shown, columns, lines):
    screen = shown(columns, lines, title="make all", subject="make all", rule="allow bash make all")
    text = float_of(screen)["lines"]
    wanted = ["make all", *WARNINGS, "", "No rule covers it.", "s/A allows: bash make all"]
    assert [line for line in text if line in wanted] == wanted
    found = groups(screen)
    assert {found[warning] for warning in WARNINGS} == {"AgentWarning"}
    assert found["No rule covers it."] == found["s/A allows: bash make all"] == "AgentStatus"


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0, 2)))
def test_the_command_is_on_the_screen_once(shown, columns, lines):
    screen = shown(
        columns, lines, title="cargo test", subject="cargo test", rule="", reason="Asks."
    )
    assert screen.screen_text().count("cargo test") == 1


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0,)))
def test_a_long_command_hides_no_warning(shown, columns, lines):
    screen = shown(columns, lines, subject="\n".join(f"echo {n}" for n in range(200)))
    text = screen.screen_text()
    for warning in WARNINGS:
        assert warning in text
    assert "echo 0" in text
    assert "more lines" in text


@pytest.mark.parametrize("columns, lines", prove_rest(SIZES, keep=(0, 2)))
def test_the_six_keys_have_a_line_each(shown, columns, lines):
    screen = shown(columns, lines, subject="ls", title="ls", warnings=[], reason="Asks.")
    screen.feed("<Esc>:Agent question<CR>")
    wait_until(lambda: float_of(screen)["is_focused"])
    assert float_of(screen)["lines"][-6:] == list(SIX)
    for words in SIX:
        assert f"│{words} " in screen.screen_text()


@pytest.mark.parametrize("columns, lines", prove_rest([(33, 16), (40, 12)]))
def test_on_the_smallest_screens_the_command_and_a_warning_are_seen(shown, columns, lines):
    screen = shown(
        columns, lines, subject="ls", title="ls", warnings=WARNINGS[1:], reason=WARNINGS[1]
    )
    text = screen.screen_text()
    assert "│ls" in text
    assert "It is outside the project." in text


def test_a_reason_that_is_a_warning_is_shown_once(shown):
    screen = shown(reason=" ".join(WARNINGS))
    assert screen.screen_text().count("It is outside the project.") == 1


# --- from the model -------------------------------------------------------------------------------------------------------


def question(agent):
    return agent.lua(
        "return vim.api.nvim_buf_get_lines(vim.api.nvim_win_get_buf(...), 0, -1, true)",
        agent.float(),
    )


def test_hidden_characters_of_a_command_are_listed(asking_agent):
    agent = asking_agent(reply(use("bash", command="echo a\u202eb\u3164\u3164")), DONE)
    lines = question(agent)
    assert lines[0] == "echo a<U+202E>b<U+3164><U+3164>"
    warning = "Contains 3 characters that cannot be seen: <U+202E>, <U+3164>."
    assert warning in " ".join(lines[1:])


def test_the_emoji_of_a_command_are_not_hidden(asking_agent):
    agent = asking_agent(reply(use("bash", command="echo ❤️ > heart")), DONE)
    assert "cannot be seen" not in " ".join(question(agent))


def test_a_protected_file_is_a_warning(asking_agent, project):
    (project / "sub").mkdir()
    new = use("write", path="sub/.envrc", content="ls\n")
    agent = asking_agent(reply(new), DONE, setup={"review": "float"})
    text = " ".join(question(agent))
    assert ".envrc can run code or instruct an agent outside the sandbox." in text


def test_a_question_about_instructions_says_what_agents_do_with_them(start_agent):
    agent = start_agent(reply(use("write", path="AGENTS.md", content="ls\n")), DONE)
    agent.ask()
    agent.wait_for_question()
    shown = " ".join(agent.question_text().split())
    assert "Agents read AGENTS.md as instructions: they may do what it says" in shown
    assert "can run code" not in shown


def test_a_question_about_a_command_says_that_it_gets_a_terminal(asking_agent):
    agent = asking_agent(reply(use("bash", command="gdb a.out", pty=True)), DONE)
    assert "It gets a terminal, in which the model can type." in " ".join(question(agent))


def test_a_variable_that_an_earlier_command_has_set_is_a_warning(start_agent):
    agent = start_agent(
        reply(use("bash", command="export LD_PRELOAD=/x", description="")),
        reply(use("bash", command="touch made", description="")),
        DONE,
    )
    agent.ask()
    agent.wait_for_question()
    agent.command("AgentAllow")
    agent.wait_for_question(2)
    lines = question(agent)
    assert lines[0] == "touch made"
    assert "An earlier command set LD_PRELOAD" in " ".join(lines[1:3])
