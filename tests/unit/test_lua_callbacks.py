"""Callbacks in Lua, as the host uses their answers."""

from typing import Any

import pytest

from sanderling.editor.extensions import DeclaredCallback, Extensions
from sanderling.editor.lua_callbacks import LuaCallbacks


class Answering(Extensions):
    """Extensions with one callback before tool calls, and a Neovim that always answers this."""

    def __init__(self, said: Any) -> None:
        self.callbacks = (DeclaredCallback("tool", 1.0),)
        self._said = said

    async def call(self, *_: Any, **__: Any) -> Any:
        return self._said


@pytest.mark.parametrize(
    "said", [None, [], {}, {"answers": {}}, {"answers": [{}]}, {"answers": [{"owner": "x", "decision": "x"}]}]
)  # fmt: skip
async def test_an_answer_that_cannot_be_read_counts_as_a_failure(said):
    shown: list[Any] = []
    callbacks = LuaCallbacks(Answering(said), "s1", "/project", shown.append)
    verdict = await callbacks.run("tool", {"name": "bash", "input": {}})
    assert verdict.decision == "ask"
    assert "is not valid" in shown[0].text
