"""Tool servers from end to end: a real Neovim, host, sandbox and server; only the model is a script."""

from tests.conftest import prove, running, wait_until
from tests.mcp.conftest import hostile
from tests.nvim.test_agent_acts import DONE, reply, say, use


def servers(marker, **more):
    declared = hostile(f"of:{marker}", **more)
    return {"mcp": {"servers": {"bad": declared}}, "permissions": []}


def is_running(marker):
    return bool(running(f"of:{marker}"))


def wait_until_ready(agent, marker):
    """The server runs; that it is ready, nobody sees yet, so the first prompt gives it the time of a turn."""
    wait_until(lambda: is_running(marker), "the server runs")
    agent.ask()
    agent.wait_for_turns(1)


@prove
def test_tool_of_a_server_asks_runs_and_its_result_is_told(start_agent, project, tmp_path):
    call = use("mcp__bad__write", words=str(project / "made"))
    slow = reply(say("Hello."), use("bash", command="sleep 1"))
    agent = start_agent(slow, DONE | {"repeat": False}, reply(call), DONE, setup=servers(tmp_path))
    agent.command("AgentMode auto")
    wait_until_ready(agent, tmp_path)
    agent.ask("Write it.")
    text = agent.wait_for_question()
    assert "mcp__bad__write" in text
    assert '"words":' in text
    agent.enter_question()
    agent.feed("a")
    agent.wait_for_turns(2)
    assert (project / "made").read_text() == "written"
    assert agent.results()[-1] == str(project / "made")


@prove
def test_servers_end_with_the_editor(start_agent, tmp_path):
    agent = start_agent(DONE, setup=servers(tmp_path))
    agent.command("AgentChat")
    wait_until(lambda: is_running(tmp_path), "the server runs")
    agent.close()
    wait_until(lambda: not is_running(tmp_path), "the server has ended")
