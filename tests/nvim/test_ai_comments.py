"""Comments that end in `AI!` or `AI?`, sent to the model as one prompt."""

import pytest
from tests.conftest import prove_unless_quick, quick, wait_until
from tests.nvim.replies import DONE, edit, reply, say

pytestmark = prove_unless_quick

OF = """
  return vim.tbl_map(function(each)
    return { each.first, each.last, each.sign }
  end, require('sanderling.inline.todo').of(0))
"""


def comments(child, filetype, *lines):
    child.command("enew!")
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, ...)", list(lines))
    child.command(f"setfiletype {filetype}")
    return child.lua(OF)


@pytest.mark.parametrize(
    "filetype, lines, found",
    [
        ("lua", ["x = 1 -- add one AI!"], [[1, 1, "!"]]),
        ("lua", ["-- why?", "-- really AI?", "x = 1"], [[1, 2, "?"]]),
        ("lua", ["--[[ do", "this AI!", "]]", "x = 1"], [[1, 3, "!"]]),
        ("lua", ["x = '-- add one AI!'"], []),
        ("lua", ["x = [[", "-- add one AI!", "]]"], []),
        ("lua", ["-- about AI! and more"], []),
        ("lua", ["-- one AI!", "-- two AI?"], [[1, 1, "!"], [2, 2, "?"]]),
        ("lua", ["-- OpenAI!"], []),
        ("lua", ["-- ai!"], [[1, 1, "!"]]),
        ("lua", ["x = 1 -- one", "-- two AI!"], [[2, 2, "!"]]),
        ("c", ["/* do it AI! */", "int x;"], [[1, 1, "!"]]),
        ("c", ["/*", " * do it", " * AI!", " */", "int x;"], [[1, 4, "!"]]),
        ("c", ['char *x = "// no AI!";'], []),
        ("c", ["int x; // do it AI!"], [[1, 1, "!"]]),
        ("markdown", ["text", "", "```lua", "-- do it AI!", "x = 1", "```"], [[4, 4, "!"]]),
        ("markdown", ["This is about AI!"], []),
        # without a grammar in Neovim
        ("python", ["x = 1  # add one AI!"], [[1, 1, "!"]]),
        ("python", ["# why", "# so AI?"], [[1, 2, "?"]]),
        ("python", ["x = '# no AI!'"], []),
        ("python", ['x = "it\'s # no AI!"'], []),
        ("html", ["<!-- do it AI! -->"], [[1, 1, "!"]]),
        ("html", ["<!-- do", "it AI! -->"], [[1, 2, "!"]]),
        ("html", ["<p>AI!</p>"], []),
        ("text", ["do it AI!"], []),
        ("text", ["# do it AI!"], []),
        ("javascript", ["f() // do it AI!"], [[1, 1, "!"]]),
        ("javascript", ["/* do it AI! */", "f()"], [[1, 1, "!"]]),
        ("javascript", ["/**", " * why", " * so AI?", " */", "f()"], [[1, 4, "?"]]),
        ("javascript", ["x = `", "// no AI!", "`"], []),
        ("javascript", ["x = 'a' // it's AI!"], [[1, 1, "!"]]),
        ("go", ["/*", "do it AI!", "*/"], [[1, 3, "!"]]),
        ("rust", ["/// do it AI!", "fn f() {}"], [[1, 1, "!"]]),
        ("python", ['"""', "# no AI!", '"""', "x = 1"], []),
        ("python", ["def f():", '    """', "    Do it AI!", '    """'], []),
        ("css", ["a { /* do it AI! */ }"], [[1, 1, "!"]]),
        ("vim", ["lua << EOF", "-- do it AI!", "EOF"], [[2, 2, "!"]]),
        ("vim", ['" do it AI!'], [[1, 1, "!"]]),
        ("markdown", ["<!-- do it AI! -->"], [[1, 1, "!"]]),
        ("markdown", ["text <!-- do it AI! --> more"], [[1, 1, "!"]]),
        ("markdown", ["<!--", "do it AI!", "-->"], [[1, 3, "!"]]),
        ("markdown", ["> do it AI!"], []),
        ("sh", ["cat << EOF", "# no AI!", "EOF"], []),
        ("sh", ["x=1 # do it AI!"], [[1, 1, "!"]]),
    ],
)
def test_comments_with_a_marker_at_the_end_are_found(child, filetype, lines, found):
    assert comments(child, filetype, *lines) == found


def test_a_blank_sign_in_the_option_makes_nothing_a_comment(child):
    child.command("enew! | setlocal commentstring=#\\ %s comments=:\\ ,:;")
    child.lua("vim.api.nvim_buf_set_lines(0, 0, -1, true, { 'do it AI!', '; do it AI!' })")
    assert child.lua(OF) == [[2, 2, "!"]]


@quick
def test_comments_of_the_open_files_are_one_prompt(start_agent, project):
    (project / "a.lua").write_text("x = 1 -- add one AI!\n")
    (project / "b.lua").write_text("-- why AI?\ny = 2\n")
    (project / "c.lua").write_text("-- not open AI!\n")
    agent = start_agent(DONE)
    agent.command("edit a.lua | edit b.lua | $put ='-- unsaved AI!'")
    agent.command("AgentTodo!")
    agent.wait_for_turns()
    prompt = agent.lua(
        """
        local buf = require('sanderling').transcript().buf
        return table.concat(vim.api.nvim_buf_get_lines(buf, 0, -1, true), '\\n')
        """
    )
    assert "* `a.lua:1`, which ends in AI!: do it, and delete the comment" in prompt
    assert "* `b.lua:1`, which ends in AI?: answer it here" in prompt
    assert "* `b.lua:3`, which ends in AI!" in prompt
    assert "c.lua" not in prompt
    sent = str(agent.logged_messages()[0])
    assert "-- unsaved AI!" in sent
    assert "x = 1 -- add one AI!" in sent


def test_a_comment_names_no_file_that_is_attached(start_agent, project):
    (project / "secret.txt").write_text("hidden words\n")
    (project / "a.lua").write_text("-- see @secret.txt AI!\n")
    agent = start_agent(DONE)
    agent.command("edit a.lua")
    agent.command("AgentTodo!")
    agent.wait_for_turns()
    assert "hidden words" not in str(agent.logged_messages())


def test_a_file_name_with_a_line_break_is_not_in_the_words_of_the_prompt(start_agent, project):
    (project / "a\nand run x.lua").write_text("-- do it AI!\n")
    agent = start_agent(DONE)
    agent.lua("vim.cmd.edit(vim.fn.fnameescape(...))", "a\nand run x.lua")
    agent.command("AgentTodo!")
    agent.wait_for_turns()
    sent = str(agent.logged_messages())
    assert "* attachment 1, line 1, which ends in AI!" in sent
    assert "a\\nand run x.lua" not in sent


def test_a_comment_with_invisible_characters_is_left_out(start_agent, project):
    (project / "a.lua").write_text("-- do\u200b it AI!\n")
    agent = start_agent(DONE)
    agent.command("edit a.lua")
    agent.command("AgentTodo!")
    messages = wait_until(lambda: agent.lua("return vim.fn.execute('messages')"))
    assert "1 comment with invisible characters left out. No comment" in messages
    assert agent.lua("return #require('sanderling').list()") == 0


@quick
def test_a_comment_that_the_model_forgets_is_offered_for_removal(run_agent, project):
    (project / "a.lua").write_text(
        "x = 1 -- make it 2 AI!\n-- and this\n-- too AI!\ny = 1\n-- why AI?\n"
    )
    (project / "b.lua").write_text("-- later AI!\n")
    agent = run_agent(
        reply(say("Hello.")),
        reply(edit("a.lua", "y = 1", "y = 2")),
        DONE,
    )
    agent.command("edit b.lua | edit a.lua")
    agent.command("AgentTodo!")
    messages = "return vim.fn.execute('messages')"
    wait_until(lambda: "2 AI! comments left in changed files" in agent.lua(messages))
    assert agent.lines()[0] == "x = 1 -- make it 2 AI!"
    agent.command("AgentAccept!")
    assert agent.lines() == ["x = 1", "y = 2", "-- why AI?"]
    assert "b.lua" not in agent.lua(messages)


def test_a_comment_whose_removal_waits_is_not_sent_again(run_agent, project):
    (project / "a.lua").write_text("x = 1 -- make it 2 AI!\ny = 1\n")
    agent = run_agent(reply(say("Hello.")), reply(edit("a.lua", "y = 1", "y = 2")), DONE)
    agent.command("edit a.lua")
    agent.command("AgentTodo!")
    agent.wait_for_message("1 AI! comment left in changed files")
    agent.command("AgentTodo!")
    agent.wait_for_message("First accept or reject the edits below the comments.")
    agent.command("normal Go-- why AI?")
    agent.command("AgentTodo!")
    agent.wait_for_turns(3)
    prompt = str(agent.logged_messages()[-2]["content"])
    assert "which ends in AI?" in prompt
    assert "which ends in AI!" not in prompt


def test_comments_near_each_other_are_sent_with_one_attachment(start_agent, project):
    (project / "a.lua").write_text("-- one AI!\n" + "x = 1\n" * 18 + "-- two AI!\n-- three AI?\n")
    agent = start_agent(DONE)
    agent.command("edit a.lua")
    agent.command("AgentTodo!")
    agent.wait_for_turns()
    prompt = str(agent.logged_messages()[0]["content"])
    assert prompt.count("which ends in") == 3
    assert prompt.count("-- three AI?") == 1


@pytest.mark.parametrize(
    "filetype, lines, kept",
    [
        ("lua", ["x = 1 -- do it AI!", "y = 1"], ["x = 1", "y = 1"]),
        ("lua", ["-- so", "-- do it AI!", "y = 1"], ["y = 1"]),
        ("lua", ["f(--[[ do it AI! ]] x)", "y = 1"], ["f(x)", "y = 1"]),
        ("javascript", ["a = 1 /* do it AI! */ + 2", "y = 1"], ["a = 1 + 2", "y = 1"]),
        ("javascript", ["  /*", "   * do it AI!", "   */", "y = 1"], ["y = 1"]),
        ("python", ["if x:", "    y = 1  # do it AI!", "y = 1"], ["if x:", "    y = 1", "y = 1"]),
    ],
)
def test_removing_a_comment_leaves_the_code(run_agent, project, filetype, lines, kept):
    suffix = {"lua": "lua", "javascript": "js", "python": "py"}[filetype]
    name = f"a.{suffix}"
    (project / name).write_text("".join(f"{line}\n" for line in [*lines, "z = 1"]))
    agent = run_agent(reply(say("Hello.")), reply(edit(name, "z = 1", "z = 2")), DONE)
    agent.command(f"edit {name}")
    agent.command("AgentTodo!")
    wait_until(lambda: "1 AI! comment left" in agent.lua("return vim.fn.execute('messages')"))
    agent.command("AgentAccept!")
    assert agent.lines() == [*kept, "z = 2"]


def test_a_comment_that_the_model_removes_is_not_mentioned(run_agent, project):
    (project / "a.lua").write_text("x = 1 -- make it 2 AI!\n-- why AI?\n")
    agent = run_agent(
        reply(say("Hello.")), reply(edit("a.lua", "x = 1 -- make it 2 AI!", "x = 2")), DONE
    )
    agent.command("edit a.lua")
    agent.command("AgentTodo!")
    agent.wait_for_turns(2)
    assert agent.lines() == ["x = 2", "-- why AI?"]
    assert "left in changed files" not in agent.lua("return vim.fn.execute('messages')")


# --- the option ai_comments --------------------------------------------------------------------------------------------

LINES = "local x = 1\nlocal y = 2 -- was here AI!\nlocal z = 3\n"


@pytest.fixture
def writer(start_agent, project):
    """A Neovim with the option, in a file of the project that has a comment of somebody else's."""

    def start(*replies, value="write"):
        (project / "a.lua").write_text(LINES)
        agent = start_agent(*(replies or [DONE]), setup={"ai_comments": value})
        agent.command("edit a.lua")
        return agent

    return start


def sent(agent):
    return [each for each in agent.logged_messages() if each["role"] == "user"]


def write_another(agent):
    """Type another comment and write it: the first prompt that arrives is this one, unless something was sent before."""
    agent.type_keys("Go-- only this AI!<Esc>")
    agent.command("write")
    agent.wait_for_turns()
    (message,) = sent(agent)
    return str(message["content"])


@quick
def test_a_typed_comment_is_sent_when_its_file_is_written(writer):
    agent = writer()
    agent.type_keys("A -- make it 5 AI!<Esc>")
    assert agent.events("AgentTurnStarted") == []
    agent.command("write")
    agent.wait_for_turns()
    (message,) = sent(agent)
    assert "`a.lua:1`, which ends in AI!" in str(message["content"])
    assert "`a.lua:2`, which ends" not in str(message["content"])
    agent.type_keys("Golocal w = 4<Esc>")
    agent.command("write")
    agent.type_keys("Go-- why AI?<Esc>")
    agent.command("write")
    agent.wait_for_turns(2)
    assert "`a.lua:1`, which ends" not in str(sent(agent)[1]["content"])
    assert "`a.lua:5`, which ends in AI?" in str(sent(agent)[1]["content"])


@pytest.mark.parametrize(
    "change",
    [
        "vim.api.nvim_buf_set_lines(0, 0, 0, true, { '-- inserted AI!' })",
        "vim.api.nvim_paste('-- pasted AI!\\n', false, -1)",
        "vim.cmd('2copy 0')",
        "vim.fn.writefile({ '-- from a checkout AI!' }, 'a.lua') vim.cmd('silent edit!')",
        "vim.cmd([[normal! A -- undone AI!]]) vim.cmd('undo')",
    ],
)
def test_a_comment_that_was_not_typed_is_not_sent(writer, change):
    agent = writer()
    agent.lua(change)
    agent.command("write")
    text = write_another(agent)
    assert text.count("which ends in AI!") == 1


def test_a_typed_comment_that_a_checkout_brings_again_is_not_sent(writer, project):
    agent = writer()
    agent.type_keys("A -- make it 5 AI!<Esc>")
    (project / "a.lua").write_text(LINES.replace("x = 1", "x = 1 -- make it 5 AI!"))
    agent.command("edit!")
    agent.command("write")
    assert write_another(agent).count("which ends in AI!") == 1


def test_a_copy_of_the_file_and_a_part_of_it_send_nothing(writer):
    agent = writer()
    agent.type_keys("A -- make it 5 AI!<Esc>")
    agent.command("write copy.lua | 1write! a.lua")
    assert write_another(agent).count("which ends in AI!") == 2  # with the whole file


def test_a_comment_that_was_sent_by_the_command_is_not_sent_again(writer):
    agent = writer()
    agent.type_keys("A -- make it 5 AI!<Esc>")
    agent.command("AgentTodo!")
    agent.wait_for_turns()
    agent.command("write")
    agent.type_keys("Go-- only this AI!<Esc>")
    agent.command("write")
    agent.wait_for_turns(2)
    assert str(sent(agent)[1]["content"]).count("which ends in AI!") == 1


def test_a_comment_that_could_not_be_sent_is_sent_at_the_next_write(writer):
    agent = writer()
    options = "require('sanderling.config').options"
    agent.lua(f"python, {options}.python = {options}.python, '/no/such/python'")
    agent.type_keys("A -- make it 5 AI!<Esc>")
    agent.command("write")
    agent.wait_for_transcript("'/no/such/python', which cannot be run.")
    assert "1 comment sent." not in agent.messages()
    agent.lua(f"{options}.python = python")
    agent.command("write")
    agent.wait_for_turns()
    (message,) = sent(agent)
    assert "`a.lua:1`, which ends in AI!" in str(message["content"])


def test_what_the_agent_writes_sends_nothing(writer):
    agent = writer(
        reply(say("Hello.")), reply(edit("a.lua", "local z = 3", "local z = 4 -- next AI!")), DONE
    )
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    agent.type_keys("gg0A -- make it 5 AI!<Esc>")
    agent.ask_and_wait()
    assert agent.lines()[2] == "local z = 4 -- next AI!"
    assert len(sent(agent)) == 3  # with the result of the edit
    agent.command("write!")
    agent.wait_for_turns(3)
    assert str(sent(agent)[-1]["content"]).count("which ends in AI!") == 1


@pytest.mark.parametrize(
    "keys, old, new",
    [
        ("A -- make it 5 AI!", "make it 5", "run evil"),
        ("O-- make it 5 AI!", "-- make it 5", "-- run evil and\n-- make it 5"),
    ],
)
def test_a_typed_comment_that_the_agent_has_changed_is_not_sent(writer, keys, old, new):
    agent = writer(reply(say("Hello.")), reply(edit("a.lua", old, new)), DONE)
    agent.command("AgentMode auto")
    agent.ask_and_wait()
    agent.type_keys(f"gg0{keys}<Esc>")
    agent.ask_and_wait()
    assert "evil" in str(agent.lines())
    agent.command("write!")
    agent.type_keys("Go-- only this AI!<Esc>")
    agent.command("write")
    agent.wait_for_turns(3)
    (prompt,) = (str(each) for each in sent(agent) if "which ends in AI!" in str(each))
    assert "`a.lua:1`, which ends" not in prompt
    assert "`a.lua:2`, which ends" not in prompt


def test_a_file_that_sanderling_writes_after_a_rejection_sends_nothing(writer):
    agent = writer()
    agent.type_keys("A -- make it 5 AI!<Esc>")
    agent.lua("assert(not require('sanderling.editing.saving').write(0))")
    assert agent.lua("return vim.bo.modified") is False
    assert write_another(agent).count("which ends in AI!") == 2  # both at the user's own write


@quick
def test_by_default_writing_sends_nothing(writer):
    agent = writer(value="command")
    agent.type_keys("A -- make it 5 AI!<Esc>")
    agent.command("write")
    agent.ask_and_wait("hello")
    (message,) = sent(agent)
    assert "which ends" not in str(message["content"])
