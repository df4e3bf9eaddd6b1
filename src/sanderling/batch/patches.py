"""
The patch of a task: all that has changed in its copy, new and binary files included, for `git am` or `git apply`.

It is made with a git directory outside of the copy, which the task cannot reach: the copy's own `.git` belongs to the agent by then.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from sanderling.batch.copies import Copy
from sanderling.batch.git import git
from sanderling.text import printable, shortened

AUTHOR = {
    "GIT_AUTHOR_NAME": "Sanderling",
    "GIT_AUTHOR_EMAIL": "sanderling@localhost",
    "GIT_COMMITTER_NAME": "Sanderling",
    "GIT_COMMITTER_EMAIL": "sanderling@localhost",
}
SUBJECT_CHARS = 72


class Baseline:
    """The files of a copy as the task found them."""

    def __init__(self, copy: Copy, git_dir: Path) -> None:
        """
        Record the files.

        Raises:
            GitError: git failed.
        """
        self._root = copy.root
        self._git_dir = git_dir
        git("init", "--quiet", "--bare", "--template=", git_dir, cwd=git_dir.parent)
        (git_dir / "info").mkdir(exist_ok=True)
        if copy.lender:
            alternates = git_dir / "objects" / "info" / "alternates"
            alternates.write_text(f"{copy.lender / 'objects'}\n")
            excluded = copy.lender / "info" / "exclude"
            if excluded.is_file():
                (git_dir / "info" / "exclude").write_bytes(excluded.read_bytes())
        self._nested = {*nested_repositories(copy.root)}
        self._commit("The project before the task")

    def patch(self, subject: str) -> bytes:
        """
        Return the patch; b"" if nothing has changed.

        Raises:
            GitError: git failed.
        """
        self._commit(subject)
        if not self._git("diff", "--name-only", "HEAD~1", "HEAD"):
            return b""
        options = ("--binary", "--full-index", "--no-signature", "--zero-commit", "--no-renames")
        return self._git("format-patch", "-1", "--stdout", *options)

    def left_out(self) -> list[str]:
        """Return the repositories that the task has made in the project: their files are not in the patch."""
        return sorted({*nested_repositories(self._root)} - self._nested)

    def _commit(self, message: str) -> None:
        left_out = [f":(exclude,literal){path}" for path in nested_repositories(self._root)]
        self._git("add", "--all", "--", ".", *left_out)
        subject = shortened(" ".join(printable(message).split()), SUBJECT_CHARS)
        self._git("commit", "--quiet", "--allow-empty", "--no-verify", "--message", subject)

    def _git(self, *arguments: str) -> bytes:
        directories = (f"--git-dir={self._git_dir}", f"--work-tree={self._root}")
        return git(*directories, *arguments, cwd=self._root, env=AUTHOR)


def nested_repositories(root: Path) -> Iterator[str]:
    """Yield the directories below `root` that are repositories of their own, relative to it."""
    for directory, names, files in os.walk(root):
        if directory != str(root) and ".git" in (*names, *files):
            yield os.path.relpath(directory, root)
            names.clear()
        if ".git" in names:
            names.remove(".git")
