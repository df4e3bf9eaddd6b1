"""Who wrote a line, if an external agent did."""

from sanderling.blame.origins import origins_in
from sanderling.config import Settings
from tests.acp_client.test_turns import call


async def test_what_an_external_agent_wrote_by_itself_leads_to_its_prompt_and_its_name(guests):
    script = {
        "prompts": {
            "go": [
                {"write": {"path": "a.txt", "text": "old\nthe new line\n"}},
                call("1", title="Write", kind="edit", status="completed"),
            ]
        }
    }
    (guests.project / "a.txt").write_text("old\n")
    async with guests.talk(script) as talk:
        await talk.ask("go")
        origins = origins_in(Settings(str(guests.state_dir)), str(guests.project))
        found = origins.blame(str(guests.project / "a.txt"))
    assert [(each.first, each.count) for each in found.lines] == [(2, 1)]
    [hunk] = found.hunks
    assert (hunk.prompt, hunk.agent, hunk.number) == ("go", "mine", 1)
