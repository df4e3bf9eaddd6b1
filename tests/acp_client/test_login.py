"""A login that is renewed outside while an agent runs: the next prompt has the new one."""

from pathlib import Path

import pytest

from tests.sandbox.test_sandbox import names_in

pytestmark = pytest.mark.anyio


def renew(login: Path) -> None:
    other = Path(f"{login}.new")
    other.write_text("new")
    other.replace(login)


async def test_a_prompt_after_that_is_answered_by_one_that_has_the_new_login(
    guests, tmp_path, monkeypatch
):
    home = tmp_path / "home"
    login = home / ".mine/login.json"
    login.parent.mkdir(parents=True)
    login.write_text("old")
    monkeypatch.setenv("HOME", str(home))
    script = {"prompts": {}}
    async with guests.talk(script, home=["~/.mine/login.json"]) as talk:
        await talk.ask("one")
        await talk.ask("two")
        again = "started a new session"
        assert not any(again in notice for notice in talk.notices)
        renew(login)
        await talk.ask("three")
        assert any(again in notice for notice in talk.notices)
        assert talk.text.endswith("heard: three")
        assert talk.errors == []
    assert names_in(login.parent) == ["login.json"]
