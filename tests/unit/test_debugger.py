"""`debug`: what its questions show. tests/plugins/test_debugger.py has the rest, with real debuggers."""

from typing import Any, cast

import pytest

from sanderling.tools.debugger import DebugInput, debug_tool


class Running:
    """An editor in which all debug sessions run that a call names."""

    async def check(self, session: int) -> None: ...


TOOL = debug_tool(cast("Any", Running()))


@pytest.mark.parametrize(
    "given, title, note",
    [
        ({"op": "evaluate", "expression": "drop()"}, "evaluate drop()", "This runs code"),
        (
            {"op": "evaluate", "expression": "drop()", "session": 2, "frame": 0},
            "evaluate drop() (session 2, frame 0)",
            "It names session 2, frame 0. This runs code",
        ),
        ({"op": "step_in", "thread": 3}, "step_in (thread 3)", "It names thread 3. This moves"),
    ],
)
async def test_a_question_names_another_session_thread_or_frame(
    given: dict[str, Any], title: str, note: str
):
    args = DebugInput(**given)
    context = cast("Any", type("Context", (), {"workspace": None, "may_read": None}))
    assert TOOL.title(args, context.workspace) == title
    assert TOOL.look
    preview = await TOOL.look(args, context)
    assert preview.note.startswith(note)
