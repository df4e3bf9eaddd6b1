"""What the user grants a child's commands, beyond its sandbox: for the child, or for its parent and all of its children."""

import pytest
from tests.children import delegate, said, tree, use


@pytest.mark.parametrize("for_tree", [False, True])
async def test_a_grant_holds_for_the_child_or_for_the_tree(tmp_path, for_tree):
    notes = tmp_path / "home/notes.txt"  # which the sandbox hides
    notes.parent.mkdir()
    notes.write_text("my notes\n")
    look = use("bash", command=f"cat {notes}")
    children = {task: [[look], [said("Done.")]] for task in ("A.", "B.")}
    script = ([delegate("A.")], [delegate("B.")])
    async with tree(tmp_path, *script, children=children) as it:
        granted = it.services.gate.grant_prompts
        it.submit()
        first = await it.asked(2)
        assert (first.kind, first.child) == ("grant", "edit 1")
        it.answer(first, "session", for_tree=for_tree)
        if not for_tree:
            second = await it.asked(3)
            assert (second.kind, second.child) == ("grant", "edit 2")
            it.answer(second, "deny")
        await it.ended()
        assert ["my notes" in str(it.read(child)[1]) for child in it.child_ids()] == [
            True,
            for_tree,
        ]
        assert bool(granted.granted.read_paths) == for_tree
