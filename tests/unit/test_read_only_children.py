"""Children that only read: a hostile model writes nothing there, whatever the user, a rule or a hook allows."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from tests.children import delegate, said, tree, use
from tests.conftest import happens

from sanderling.protocol.actions import SetMode, SetNetwork, SetSandbox
from sanderling.protocol.events import ApprovalRequested, ModeChanged

HOSTILE = [
    use("write", path="new", content="x"),
    use("write", path="kept.py", content="x"),
    use("edit", path="kept.py", edits=[{"old": "kept", "new": "lost"}]),
    use("bash", command="echo x > new"),
    use("bash", command="echo x >> kept.py; rm -f kept.py; mkdir d; ln -s / link; git init ."),
    use("bash", command="mount -o remount,rw . ; python3 -c \"open('new', 'w').write('x')\""),
    use("bash", command="sleep 0.2; echo x > new", background=True),
    use("code_refactor", action="rename", path="kept.py", symbol="kept", to="lost"),
    use("todo", items=[{"content": "x", "status": "pending"}]),
    use("delegate", task="Write.", role="edit"),
    use("ask_user", questions=[{"question": "May I write?", "choices": [{"label": "yes"}]}]),
    use("web_fetch", url="http://localhost:1/"),
]
ALLOWING = [
    {"action": "allow", "tool": tool} for tool in ("bash", "edit", "write", "web_fetch", "delegate")
]


def state_of(project: Path) -> dict[str, str]:
    return {
        str(path.relative_to(project)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in project.rglob("*")
    }


@pytest.mark.parametrize("role", ["explore", "review"])
@pytest.mark.parametrize("mode", ["ask", "auto", "plan"])
async def test_nothing_is_written_whatever_is_allowed(tmp_path, role, mode):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/kept.py").write_text("kept = 1\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    replies = [[call] for call in HOSTILE]
    replies.append([use("bash", command=f"echo x > {outside}/new")])
    async with tree(
        tmp_path,
        [delegate("Look.", role)],
        children={"Look.": [*replies, [said("I tried.")]]},
        mode=mode,
        permissions=ALLOWING,
        sandbox={"write": [str(outside)]},
    ) as it:
        before = state_of(it.project)
        it.on_event = allow_all(it)
        await it.run()
        assert it.results[0].endswith("I tried.")
        assert state_of(it.project) == before
        assert [*outside.iterdir()] == []


def allow_all(it: Any) -> Any:
    def answer(event: Any) -> None:
        if isinstance(event, ApprovalRequested):
            it.answer(event, "session", for_tree=True, values={"1": "yes"})

    return answer


async def test_no_later_choice_of_the_user_lifts_it(tmp_path):
    calls = [
        [use("bash", command="until test -e go; do sleep 0.05; done; echo x > new")],
        [use("bash", command="echo x > new2")],
        [use("write", path="new3", content="x")],
        [said("I tried.")],
    ]
    async with tree(
        tmp_path, [delegate("Look.", "explore")], children={"Look.": calls}, mode="auto"
    ) as it:
        it.submit()
        await happens(lambda: "until" in str([event.activity for event in it.shown]))
        for action in (SetMode("ask"), SetMode("auto"), SetNetwork("on"), SetSandbox(is_on=False)):
            it.act(action)
        child = it.children[it.child_ids()[0]]
        for action in (SetMode("auto"), SetSandbox(is_on=False)):
            child.act(action)
        (it.project / "go").touch()
        await it.ended()
        assert it.results[0].endswith("I tried.")
        assert [path.name for path in it.project.iterdir()] == ["go"]


async def test_it_stays_so_when_the_session_is_resumed(tmp_path):
    async with tree(
        tmp_path, [delegate("Look.", "explore")], children={"Look.": [[said("Seen.")]]}
    ) as it:
        await it.run()
        [child] = it.child_ids()
    async with tree(tmp_path, [use("bash", command="echo x > new")], session_id=child) as it:
        it.act(SetMode("auto"))
        await happens(lambda: it.of(ModeChanged))
        await it.run("Now write.")
        assert [*it.project.iterdir()] == []


async def test_a_users_role_of_that_name_wins(tmp_path):
    role = {"explore": {"prompt": "Look and write.", "mode": "auto"}}
    children = {"Look.": [[use("write", path="new", content="x")], [said("Done.")]]}
    script = [delegate("Look.", "explore")]
    async with tree(tmp_path, script, children=children, roles=role) as it:
        await it.run()
        assert (it.project / "new").exists()
