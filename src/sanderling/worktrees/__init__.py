"""
Worktrees: a session's own checkout of the project's repository, and what becomes of its work.

`worktrees.py` creates, finds and removes them, `snapshots.py` keeps their content under a ref and says what would be lost,
`changes.py` compares them with their base, `extras.py` and `copying.py` add files that git ignores. `git.py` runs git so that nothing in
a repository or a worktree is executed.
"""
