"""Child sessions: a model gives a task to a session of its own, and gets only its report."""

from tests.children import delegate, said, tree, use


def facts(result: str) -> dict[str, str]:
    head = result.partition("\n\n")[0]
    return dict(line.split(": ", 1) for line in head.splitlines())


async def test_a_child_does_the_task_and_its_report_is_the_result(tmp_path):
    children = {
        "Write a.py.": [
            [use("write", path="a.py", content="x = 1\n")],
            [said("See a.py:1 and b.py:3.")],
        ]
    }
    async with tree(tmp_path, [delegate("Write a.py.")], children=children) as it:
        await it.run()
        assert (it.project / "a.py").read_text() == "x = 1\n"
        [result] = it.results
        assert result.endswith("See a.py:1 and b.py:3.")
        found = facts(result)
        assert found["state"] == "done"
        assert (found["files changed"], found["references"]) == ("a.py", "a.py:1")
        assert it.states == ["queued", "running", "done"]
        [child] = it.child_ids()
        header, _ = it.read(child)
        assert header.parent == "parent"
        assert header.access != "ro"
