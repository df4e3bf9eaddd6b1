"""Child sessions of a served session: every client sees them, and any of them answers."""

import asyncio

from tests.acp.talk import chosen
from tests.serve.talk import attached

PERMISSION = "session/request_permission"
TASK = "Find the answer."


def use(call_id, name, **data):
    return {"tool_use": {"id": call_id, "name": name, "input": data}}


def work_of(client):
    """The texts in the call that delegates, as they came."""
    return [
        each["content"][0]["content"]["text"]
        for each in client.of("tool_call_update")
        if each["toolCallId"] == "d1" and each.get("content")
    ]


async def test_several_clients_see_a_child_and_any_of_them_answers_it(serve, home):
    model = home.script_of(
        {"when": TASK, "step": [use("c1", "bash", command="touch made")]},
        {"after": "c1", "step": [{"text": "It is 42."}]},
        {"step": [use("d1", "delegate", task=TASK, role="edit")]},
        {"step": [{"text": "All done."}]},
    )
    server = serve("--model", model)
    async with attached(server) as one, attached(server) as other:
        one.answers[PERMISSION] = lambda asked: (
            chosen("session")(asked)
            if asked["toolCall"]["name"] == "delegate"
            else asyncio.get_running_loop().create_future()  # never answered
        )
        session = await one.new(home)
        turn = await one.begin_prompt(session, "go", "p1")
        await one.wait_for(lambda: any("waiting" in text for text in work_of(one)))
        other.answers[PERMISSION] = chosen("once")
        await other.again("load", home, session)
        assert (await turn)["stopReason"] == "end_turn"
        for client in (one, other):
            await client.wait_for(lambda client=client: client.text().endswith("All done."))
            assert work_of(client)[-1].endswith("It is 42.")
        assert (home.project / "made").exists()
