"""Offers to grant what the sandbox blocked, once or for the session."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import reduce
from typing import NamedTuple

from sanderling.errors import SandboxError
from sanderling.paths import is_within
from sanderling.permissions.approvals import Approvals
from sanderling.protocol.events import ApprovalRequested
from sanderling.sandbox.denials import Denial
from sanderling.sandbox.execution_environment import Disk, existing
from sanderling.sandbox.policy import NO_GRANT, Grant
from sanderling.text import visible
from sanderling.tools.workspace import Workspace

OFFER = "The sandbox blocked this. Allowing grants exactly the access below and runs it again, still sandboxed."
NOT_ALLOWED = "The user did not allow that: {reason}"
UNATTENDED = "Not allowed: {reason}"
OFFERED_TOGETHER = (("read", "execute"), ("write",), ("connect", "resolve"))


class GrantAnswer(NamedTuple):
    """The grant that the user allowed, and sentences with their reasons for denying the rest."""

    grant: Grant
    reasons: tuple[str, ...] = ()


class GrantPrompts:
    """
    The offers of a session. `granted` holds until the session ends; `on_granted` is called when it changes.

    `above` are the offers of the session's parent, if it is a child.
    """

    def __init__(
        self,
        workspace: Workspace,
        approvals: Approvals,
        on_granted: Callable[[], None],
        above: "GrantPrompts | None" = None,
    ) -> None:
        self._above = above
        self.granted = NO_GRANT
        self._workspace = workspace
        self._approvals = approvals
        self._on_granted = on_granted
        self._refused: set[str] = set()  # targets that the user denied

    async def restore(self, granted: Grant) -> None:
        """Grant again what an earlier session had granted, if it still exists."""
        if granted != NO_GRANT and granted.is_identified:
            with suppress(SandboxError):
                await self._workspace.sandbox.confined.extend(granted)
                self.granted = self.granted.and_also(granted)

    def revoke_hosts(self) -> None:
        """Forget the granted hosts, because the network is off: a resumed session does not grant them again."""
        self.granted = self.granted._replace(hosts=())
        self._on_granted()

    async def offer(
        self, title: str, tool_use_id: str, tool: str, denials: Sequence[Denial], cwd: str = ""
    ) -> GrantAnswer:
        """
        Ask which of the denied accesses to grant, with one question each for reading, writing and the network.

        Protected targets, and targets that the user has denied before, are not offered. `cwd` is where it ran; empty means the project.
        """
        granted: Grant = NO_GRANT
        reasons: tuple[str, ...] = ()
        for operations in OFFERED_TOGETHER:
            wanted = {
                denial: grant
                for denial in denials
                if denial.operation in operations
                and denial.target not in self._refused
                and (grant := self._grant_for(denial))
            }
            if wanted:
                grant = reduce(Grant.and_also, wanted.values())
                disk = self._workspace.disk
                subject = "\n".join(
                    _offered_as(denial, needed, disk) for denial, needed in wanted.items()
                )
                question = ApprovalRequested(
                    f"{tool_use_id}:grant",  # no tool use has such an id
                    tool,
                    visible(title),
                    visible(subject),
                    OFFER,
                    cwd or self._workspace.project,
                    ("once", "session"),
                    kind="grant",
                )
                more, said = await self._ask(question, grant, wanted)
                granted, reasons = granted.and_also(more), (*reasons, *said)
        return GrantAnswer(granted, reasons)

    async def _ask(
        self, question: ApprovalRequested, grant: Grant, denials: Iterable[Denial]
    ) -> GrantAnswer:
        answer = await self._approvals.ask(question)
        if answer.answer == "deny":
            self._refused |= {denial.target for denial in denials}
            reason = answer.reason.strip()
            words = UNATTENDED if answer.is_unattended else NOT_ALLOWED
            return GrantAnswer(NO_GRANT, (words.format(reason=reason),) if reason else ())
        if answer.answer == "session":
            try:
                await self.extend(grant, for_tree=answer.for_tree)
            except SandboxError:  # a path has disappeared since the question
                return GrantAnswer(NO_GRANT)
        return GrantAnswer(grant)

    async def extend(self, grant: Grant, *, for_tree: bool) -> None:
        """
        Grant for the session, and `for_tree` for its parent, whose later children get it, too.

        Raises:
            SandboxError: a path has disappeared since the question.
        """
        await self._workspace.sandbox.confined.extend(grant)
        self.granted = self.granted.and_also(grant)
        self._on_granted()
        if for_tree and self._above:
            await self._above.extend(grant, for_tree=True)

    def _grant_for(self, denial: Denial) -> Grant | None:
        """Return the smallest grant that undoes the denial; None if nothing can or need be granted."""
        grant = self._least_for(denial).identified()
        try:
            self._workspace.sandbox.confined.check_grant(grant)
        except SandboxError:
            return None
        # The target of a link may be granted already, though the sandbox does not contain the link.
        is_known = not grant.hosts and self.granted.and_also(grant) == self.granted
        return None if grant == NO_GRANT or is_known else grant

    def _least_for(self, denial: Denial) -> Grant:
        match denial.operation:
            case "connect" | "resolve":
                return Grant(hosts=(denial.target,))
            case _ if denial.rule == "protected" or is_within(
                denial.target, self._workspace.project
            ):
                return NO_GRANT
            case "write" if not self._workspace.sandbox.effective_policy.is_writable:
                return NO_GRANT
            case "write":
                return Grant(write_paths=(existing(self._workspace.disk, denial.target),))
            case "read" | "execute":
                return Grant(read_paths=(denial.target,))


def _offered_as(denial: Denial, grant: Grant, disk: Disk) -> str:
    """Return the line that names the grant, also where it is wider than the denial: the directory of a missing file."""
    [target] = (*grant.read_paths, *grant.write_paths, *grant.hosts)
    if target == denial.target:
        return f"{denial.operation} {target}"
    if target == disk.real_path(denial.target):
        return f"{denial.operation} {denial.target}, which resolves to {target}"
    return f"{denial.operation} {target}/ and everything in it, for {denial.target}"
