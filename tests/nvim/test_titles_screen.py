"""Titles of sessions on the screen."""

from tests.conftest import wait_until


def title(child):
    return child.lua("return require('sanderling').list()[1].title")


def test_a_bare_mention_takes_its_title_from_the_answer_and_keeps_it(start_agent, project):
    (project / "a.py").write_text("x = 1\n")
    agent = start_agent(
        {"step": [{"text": "Sure! It sets a number. More follows."}]},
        {"step": [{"text": "Another answer."}]},
    )
    agent.ask_and_wait("@a.py")
    assert title(agent) == "It sets a number."
    agent.ask_and_wait("and now explain the rest")
    assert title(agent) == "It sets a number."
    assert [record["value"] for record in agent.records("state") if record["key"] == "title"] == [
        "It sets a number."
    ]


def test_after_a_greeting_the_next_prompt_gives_the_title(start_agent):
    agent = start_agent(
        {"step": [{"text": "Hello! How can I help you today?"}]}, {"step": [{"text": "Done."}]}
    )
    agent.ask_and_wait("hi")
    assert not title(agent)
    agent.ask_and_wait("Fix the parser. It fails.")
    assert title(agent) == "Fix the parser."
    agent.command("Agent rename My own")
    wait_until(lambda: title(agent) == "My own")
