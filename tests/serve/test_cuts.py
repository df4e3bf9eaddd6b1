"""
Cuts at random bytes and moments, in both directions and every phase: what a person saw is whole, and nothing ran twice.

The client does what the wire asks of one: it comes again where it was, sends its prompt under the same id until that was answered, and
answers a question that it is asked again.
"""

import asyncio
import os
import random
from typing import Any

import pytest

from tests.acp.talk import chosen
from tests.conftest import prove
from tests.fuzz import part
from tests.remote.served import RandomCutter
from tests.serve.talk import LOST, Client, attached

WORDS = "one two three four five six seven eight nine ten " * 3
PERMISSION = "session/request_permission"


def replies(turns: int) -> list[list[dict[str, Any]]]:
    """Each turn streams text, asks whether it may run a command, runs it for a while, and says that it is done."""
    found: list[list[dict[str, Any]]] = []
    for turn in range(turns):
        command = f"echo {turn} >> ran; sleep 0.1; echo ran"
        use = {"id": f"t{turn}", "name": "bash", "input": {"command": command}}
        text = {"text": f"{turn}: {WORDS}", "chunk_chars": 5, "chunk_delay_ms": 5}
        found += [[text, {"tool_use": use}], [{"text": f"end {turn}."}]]
    return found


class Lasting:
    """A client that comes again as often as it is cut off."""

    def __init__(self, server: Any, home: Any, url: str) -> None:
        self.server, self.home, self.url = server, home, url
        self.session = self.life = ""
        self.seen: list[dict[str, Any]] = []  # numbered updates
        self.accepted: set[str] = set()
        self.connections = 0
        self.asked = 0

    async def _think(self, _: Any) -> Any:
        """A person takes a while: connections are cut while a question waits, too."""
        self.asked += 1
        await asyncio.sleep(random.uniform(0, 0.3))
        return chosen("once")(None)

    async def prompt(self, text: str, prompt_id: str) -> str:
        while True:
            try:
                async with asyncio.timeout(60), self.server.connect(self.url) as socket:
                    self.connections += 1
                    client = Client(socket)
                    client.answers[PERMISSION] = self._think
                    try:
                        return await self._ask(client, text, prompt_id)
                    finally:
                        self._take(client)
            except LOST:
                assert self.server.process.poll() is None

    async def _ask(self, client: Client, text: str, prompt_id: str) -> str:
        await client.initialize()
        if not self.session:
            self.session, self.life = await client.begin_session(self.home)
        else:
            meta = await client.again(
                "resume", self.home, self.session, life=self.life, after=len(self.seen)
            )
            assert meta["is_continued"], meta
        return await client.prompt(self.session, text, prompt_id)

    def _take(self, client: Client) -> None:
        for told in client.told:
            place = told["_meta"]["sanderling"]
            assert place["life"] == self.life
            assert place["seq"] == len(self.seen) + 1, (place, len(self.seen))
            self.seen.append(told)
        self.accepted |= set(client.accepted)


async def cut(serve: Any, home: Any, cuts: int, seed: int) -> None:
    turns = 4 * cuts  # how many each turn has is chance
    server = serve("--model", home.script(*replies(turns)))
    print(f"seed {seed}")
    async with RandomCutter(server.port, random.Random(seed)) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        client = Lasting(server, home, url)
        turn = 0
        while proxy.made < cuts and turn < turns:
            assert await client.prompt(f"go {turn}", f"p{turn}") == "end_turn"
            assert f"p{turn}" in client.accepted
            turn += 1
        assert proxy.made >= cuts, (proxy.made, turn)
    assert (home.project / "ran").read_text().split() == [str(each) for each in range(turn)]
    text = "".join(f"{each}: {WORDS}end {each}." for each in range(turn))
    assert spoken(client.seen, "agent_message_chunk") == text
    asked = "".join(f"go {each}" for each in range(turn))
    assert spoken(client.seen, "user_message_chunk") == asked
    async with attached(server) as whole:
        await whole.again("load", home, client.session)
        assert whole.told == client.seen
    print(
        f"{proxy.made} cuts, {turn} turns, {client.connections} connections, {client.asked} questions"
    )


def spoken(told: list[dict[str, Any]], kind: str) -> str:
    updates = (each["update"] for each in told)
    return "".join(each["content"]["text"] for each in updates if each["sessionUpdate"] == kind)


@prove
async def test_cuts_lose_nothing_and_repeat_nothing(serve, home):
    await cut(serve, home, 8, random.randrange(1 << 30))


@prove
@pytest.mark.parametrize("number", range(part(5)))
async def test_hundreds_of_cuts_lose_nothing_and_repeat_nothing(serve, home, number):
    seed = int(os.environ.get("SANDERLING_SEED", "0")) or random.randrange(1 << 30)
    await cut(serve, home, 104, seed + number)


@prove
async def test_two_who_are_cut_off_see_the_same(serve, home):
    server = serve("--model", home.script(*replies(12)))
    async with RandomCutter(server.port, random.Random()) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        one, two = Lasting(server, home, url), Lasting(server, home, url)
        await one.prompt("go 0", "p0")
        two.session, two.life = one.session, one.life
        two.seen = list(one.seen)
        for turn in range(1, 12):
            who = (one, two)[turn % 2]
            assert await who.prompt(f"go {turn}", f"p{turn}") == "end_turn"
        proxy.is_cutting = False
        for who in (one, two):
            assert await who.prompt("go 0", "p0") == "end_turn"
    assert one.seen == two.seen
