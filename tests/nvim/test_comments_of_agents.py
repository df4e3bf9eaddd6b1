"""Review comments that another agent answers, or a session elsewhere."""

from contextlib import ExitStack

import pytest
from tests.acp_client.test_turns import call
from tests.conftest import prove_unless_quick, quick, wait_until
from tests.nvim.replies import edit, reply, use
from tests.nvim.test_comments import CODE, stored
from tests.nvim.test_guests import start_guest  # noqa: F401 - a fixture
from tests.remote.conftest import elsewhere  # noqa: F401 - a fixture
from tests.remote.served import Server

pytestmark = prove_unless_quick

CHANGED = CODE.replace("sleep(9)", "sleep(1)")
ANSWER = {"say": "1. The import is needed.\n2. It sleeps for one second.\n"}


def comment_twice(child, path):
    child.command(f"edit {path}")
    child.command("5,6AgentComment Sleep less.")
    child.command("1AgentComment Remove it.")
    child.command("AgentReview send")


def wait_for_outcomes(child):
    child.wait_for_turns()
    child.wait_for_message("Lines changed for 1 of 2 comments")
    child.wait_for_screen(
        "✗ not changed · model: The import is needed.",
        "✓ changed · model: It sleeps for one second.",
    )
    assert [each["state"] for each in stored(child)] == ["answered", "answered"]


@quick
@pytest.mark.parametrize("is_asked", [False, True])
def test_another_agent_answers_a_whole_round(start_guest, project, is_asked):  # noqa: F811
    path = project / "code.py"
    path.write_text(CODE)
    params = {"path": str(path), "content": CHANGED}
    write = (
        {"request": {"method": "fs/write_text_file", "params": params}}
        if is_asked
        else {"write": {"path": str(path), "text": CHANGED}}
    )
    steps = [write, call("1", title="Write", kind="edit", status="completed"), ANSWER]
    child = start_guest({"prompts": {"*": steps}}, columns=160, lines=40)
    child.command("wincmd p")
    comment_twice(child, path)
    if is_asked:
        child.wait_for_question()
        child.command("AgentAllow")
    wait_for_outcomes(child)


@pytest.fixture
def serve(elsewhere):  # noqa: F811
    """A function that starts a server; it ends with the test."""
    with ExitStack() as stack:

        def start(*arguments):
            server = Server(elsewhere, *arguments)
            stack.callback(server.stop)
            return server.start()

        yield start


def let_it_sleep_less(elsewhere):  # noqa: F811
    elsewhere.script(
        [
            reply(use("read", path="code.py")),
            reply(edit("code.py", "time.sleep(9)", "time.sleep(1)")),
            reply({"text": ANSWER["say"]}),
        ]
    )
    elsewhere.configure('mode = "auto"\n')


def open_at(start_nvim, address, elsewhere):  # noqa: F811
    child = start_nvim({"PATH": f"{elsewhere.bin}:/usr/bin:/bin"}, columns=160, lines=40)
    child.command(f"AgentChat {address}")
    child.wait_for_screen("idle")
    child.command("AgentMode auto")
    child.wait_for_screen("auto idle")
    child.command("wincmd p")
    return child


def test_a_session_elsewhere_answers_a_whole_round(start_nvim, elsewhere):  # noqa: F811
    path = elsewhere.project / "code.py"
    path.write_text(CODE)
    let_it_sleep_less(elsewhere)
    child = open_at(start_nvim, elsewhere.address(), elsewhere)
    comment_twice(child, path)
    wait_for_outcomes(child)
    wait_until(lambda: path.read_text() == CHANGED)


@pytest.mark.parametrize("has_tools", [True, False])
def test_a_session_on_a_server_answers_a_whole_round_wherever_its_tools_run(
    start_nvim,
    elsewhere,  # noqa: F811
    serve,
    project,
    has_tools,
):
    path = (elsewhere.project if has_tools else project) / "code.py"
    path.write_text(CODE)
    let_it_sleep_less(elsewhere)
    server = serve() if has_tools else serve("--tools", "client")
    child = open_at(start_nvim, server.address(), elsewhere)
    comment_twice(child, path)
    wait_for_outcomes(child)
    wait_until(lambda: path.read_text() == CHANGED)
