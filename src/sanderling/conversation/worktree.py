"""The worktree of a session: made or found when the session opens, and kept under its ref at the end of each turn."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress

from anyio import to_thread

from sanderling.config import Settings
from sanderling.errors import WorktreeError
from sanderling.session.session import Session
from sanderling.worktrees import records
from sanderling.worktrees.changes import Side
from sanderling.worktrees.extras import linked_paths
from sanderling.worktrees.records import Record, Repeated
from sanderling.worktrees.snapshots import keep_snapshot, losses
from sanderling.worktrees.worktrees import Worktrees

UNKEPT = "The worktree's state could not be kept: {}. The files themselves are in {}."


class SessionWorktree:
    """The worktree in which a session works. While the session is open, it cannot be removed."""

    def __init__(self, worktrees: Worktrees, record: Record) -> None:
        self.record = record
        self._worktrees = worktrees
        self._in_use: int | None = worktrees.use(record)
        self._last_problem = ""

    @classmethod
    def open(
        cls, session: Session, settings: Settings, ref: str | None
    ) -> "SessionWorktree | None":
        """
        Return the worktree in which `session` works from now on; a new session gets one if there is a `ref` ("" is HEAD). Blocks.

        Raises:
            WorktreeError: there can be none, or it is gone. The session must not work in the project instead.
        """
        worktrees = Worktrees(settings.state_dir, session.project)
        if session.is_resumed:
            if not session.worktree:
                return None
            record = worktrees.find(session.worktree)
        elif ref is None:
            return None
        else:
            record = _create(worktrees, settings, session.id, ref)
        found = cls(worktrees, record)
        session.work_in(record.name, record.work_dir)
        return found

    async def keep(self) -> str:
        """Keep the current state. Return a new problem as a sentence, or ""."""
        try:
            await to_thread.run_sync(keep_snapshot, self.record)
        except WorktreeError as error:
            problem = UNKEPT.format(error, self.record.directory)
            is_new, self._last_problem = problem != self._last_problem, problem
            return problem if is_new else ""
        return ""

    def close(self, *, is_unused: bool) -> None:
        """Let go of it. If the session is not in the log, remove the worktree, unless there is work in it."""
        if self._in_use is not None:
            records.release(self._in_use)
            self._in_use = None
        if is_unused:
            with suppress(WorktreeError):
                if not losses(self.record).any:
                    self._worktrees.remove(self.record.name)

    def readable(self) -> Sequence[str]:
        """Return the paths of the project to which links lead: commands may read them, and not change them."""
        return linked_paths(self.record.project, self.record.extras)


def repair(session: Session, settings: Settings) -> None:
    """Finish what killed processes have begun with worktrees of the session's project. Blocks."""
    with suppress(WorktreeError):
        Worktrees(settings.state_dir, session.project).all()


@contextmanager
def created(project: str, settings: Settings, session_id: str) -> Generator[Record]:
    """
    Create a worktree of HEAD for a session whose log is written in this context; remove it again if that fails. Blocks.

    Raises:
        WorktreeError: there can be none.
    """
    worktrees = Worktrees(settings.state_dir, project)
    with _removed_on_failure(worktrees, _create(worktrees, settings, session_id)) as record:
        yield record


@contextmanager
def copied(
    session: Session,
    settings: Settings,
    new_id: str,
    repeated: Repeated,
    earlier: Mapping[str, Side],
    *,
    notes: tuple[str, ...],
) -> Generator[Record]:
    """
    Copy the files of `session` for the session `new_id`, whose log is written in this context; see `Worktrees.copy`. Blocks.

    Raises:
        WorktreeError: there can be no copy.
    """
    worktrees = Worktrees(settings.state_dir, session.project)
    if session.worktree and worktrees.find(session.worktree).repository:
        raise WorktreeError(
            "this session works in a copy of a project without git, which cannot be copied again:"
            " repeat the prompt in the session that it was forked from"
        )
    record = worktrees.copy(
        new_id,
        repeated,
        earlier,
        copies=settings.worktree_extras,
        links=settings.worktree_links,
        notes=notes,
    )
    with _removed_on_failure(worktrees, record):
        yield record


@contextmanager
def _removed_on_failure(worktrees: Worktrees, record: Record) -> Generator[Record]:
    """Remove a new worktree if this context fails; meanwhile it is in use."""
    in_use = worktrees.use(record)
    try:
        yield record
    except BaseException:
        records.release(in_use)
        with suppress(WorktreeError):
            worktrees.remove(record.name)
        raise
    records.release(in_use)


def _create(worktrees: Worktrees, settings: Settings, session_id: str, ref: str = "") -> Record:
    copies, links = settings.worktree_extras, settings.worktree_links
    return worktrees.create(session_id, ref, copies=copies, links=links)
