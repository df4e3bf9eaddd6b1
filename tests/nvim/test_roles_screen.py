"""Roles in Neovim, with the real host: chosen, completed, a default, and where they are shown."""

from tests.conftest import wait_until

REVIEWER = "---\ndescription: Reviews code.\ntools: Read\nmode: plan\n---\nReview."


def write_role(child, name="reviewer", text=REVIEWER):
    agents = child.home / "config/sanderling/agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / f"{name}.md").write_text(text)


def status(child):
    return child.lua("return require('sanderling').status()")


def test_a_role_is_chosen_completed_and_ended(child):
    write_role(child)
    child.chat("ping")
    completed = "return vim.fn.getcompletion('AgentRole ', 'cmdline')"
    wait_until(lambda: child.lua(completed) == ["none", "reviewer"])
    child.command("AgentRole reviewer")
    wait_until(lambda: status(child).get("role") == "reviewer")
    assert status(child)["mode"] == "plan"
    child.feed("i/role none<C-s>")
    wait_until(lambda: "role" not in status(child))
    assert status(child)["mode"] == "ask"


def test_a_new_session_begins_with_the_options_of_setup(child):
    write_role(child, text="Review.")
    child.setup(mode="plan", role="reviewer", network="proxy", effort="default")
    child.chat("ping")
    wait_until(lambda: status(child).get("role") == "reviewer")
    wait_until(lambda: status(child)["network"] == "proxy")
    assert status(child)["mode"] == "plan"


def test_a_role_of_setup_may_have_no_tools(child):
    child.setup(roles={"mute": {"tools": [], "prompt": "Say nothing."}}, role="mute")
    given = child.lua("return require('sanderling.config').host_settings().options")
    assert given["roles"] == {"mute": {"tools": [], "prompt": "Say nothing."}}
    child.chat("ping")
    wait_until(lambda: status(child).get("role") == "mute")
